import pytest
import torch

from pipeline.philox import philox4x32, uniform_bits

# Random123, kat_vectors: philox4x32 10.
KNOWN_ANSWERS = [
    (
        "00000000 00000000 00000000 00000000",
        "00000000 00000000",
        "6627e8d5 e169c58d bc57ac4c 9b00dbd8",
    ),
    (
        "ffffffff ffffffff ffffffff ffffffff",
        "ffffffff ffffffff",
        "408f276d 41c83b0e a20bc7c6 6d5451fd",
    ),
    (
        "243f6a88 85a308d3 13198a2e 03707344",
        "a4093822 299f31d0",
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]


def words(text):
    return torch.tensor([int(word, 16) for word in text.split()])


@pytest.mark.parametrize(("counter", "key", "output"), KNOWN_ANSWERS)
def test_known_answers(counter, key, output):
    assert torch.equal(philox4x32(words(counter), words(key)), words(output))


def test_vectorised_evaluation_gives_every_row_its_own_answer():
    counters, keys, outputs = (
        torch.stack([words(text) for text in column]) for column in zip(*KNOWN_ANSWERS, strict=True)
    )
    assert torch.equal(philox4x32(counters.repeat(9, 1), keys.repeat(9, 1)), outputs.repeat(9, 1))
    assert torch.equal(philox4x32(counters.view(3, 1, 4), keys[None, :])[1, 1], outputs[1])


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1, 2**32, 0x299F31D0A4093822, 2**63 - 1])
@pytest.mark.parametrize("frame", [0, 1, 4095])
def test_a_draw_sits_at_its_documented_counter_and_key(seed, frame):
    bits = uniform_bits(torch.tensor([seed]), torch.tensor([frame]), 13)
    key = torch.tensor([seed % 2**32, seed // 2**32])
    for draw in range(13):
        word = philox4x32(torch.tensor([draw, frame, 0, 0]), key)[0]
        assert bits[0, draw].item() == word.item() // 2**8


def test_bits_are_the_high_ones_of_the_known_word():
    bits = uniform_bits(torch.tensor([0, 2**63 - 1]), torch.tensor([0, 7]), 13)
    assert bits.shape == (2, 13)
    assert bits[0, 0].item() == 0x6627E8
    assert ((bits >= 0) & (bits < 2**24)).all()


def test_number_of_draws_does_not_change_the_draws():
    seeds, frames = torch.tensor([3, 2**40]), torch.tensor([5, 6])
    assert torch.equal(uniform_bits(seeds, frames, 4), uniform_bits(seeds, frames, 13)[:, :4])
