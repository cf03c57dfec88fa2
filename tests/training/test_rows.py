"""What the language model is trained on: the server's rows, and labels that point at the right letters."""

import json

import numpy as np
import pytest

from pipeline.config import ModelConfig
from pipeline.prompt import prompt_rows
from pipeline.request import Prompt
from training.demo_voice.batches import plan_batches
from training.demo_voice.lm_config import lm_config
from training.demo_voice.rows import SPELLING_DELAY, UNKNOWN, ExampleMaker, collate
from training.demo_voice.tokenizer import template_pieces, write_tokenizer
from training.demo_voice.utterances import SAMPLES_PER_FRAME, Utterances, byte_at, phone_at, phone_of_byte

N_VQ = 4
CONFIG = ModelConfig.from_dict(lm_config(n_vq=N_VQ, codebook_size=32))

# "Go on." in ten frames: 80 ms of silence, then five phones and a pause of 80 ms between the two words.
GO_ON = {
    "phones": [["g", 80, 160], ["oU", 160, 320], ["_:", 320, 400], ["0", 400, 560], ["n", 560, 640]],
    "words": [[0, 2, 80, 400], [3, 5, 400, 640]],
}


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    """Three utterances, the last two of voice 1."""
    directory = tmp_path_factory.mktemp("build")
    entries = [
        {"text": "Go on.", "voice": voice, "start": index * 10 * SAMPLES_PER_FRAME, "samples": 10 * SAMPLES_PER_FRAME}
        | GO_ON
        for index, voice in enumerate((0, 1, 1))
    ]
    (directory / "corpus").mkdir()
    (directory / "codes").mkdir()
    (directory / "corpus" / "train.json").write_text(json.dumps(entries))
    np.save(directory / "corpus" / "train.npy", np.zeros(30 * SAMPLES_PER_FRAME, dtype=np.int16))
    codes = np.random.default_rng(0).integers(0, 32, (30, N_VQ)).astype(np.uint8)
    np.save(directory / "codes" / "train.npy", codes)
    utterances = Utterances(directory, "train")
    tokenizer = write_tokenizer(directory / "export", CONFIG)
    return ExampleMaker(utterances, CONFIG, tokenizer, utterances.phone_labels), tokenizer, codes.astype(np.int64)


def test_every_piece_of_the_template_is_one_id(examples):
    _, tokenizer, _ = examples
    assert all(len(tokenizer.encode(piece)) == 1 for piece in template_pieces())


@pytest.mark.parametrize("text", ["Hello, World!", "你好。", "İstanbul", "<|im_end|>", "none", "a\nb"])
def test_any_text_is_bytes_in_lower_case(text, examples):
    _, tokenizer, _ = examples
    assert len(tokenizer.encode(text)) == len(text.lower().encode())
    assert tokenizer.encode(text) == tokenizer.encode(text.lower())


def test_rows_are_the_servers_prompt_and_the_speech_behind_it(examples):
    maker, tokenizer, codes = examples
    example = maker.plain(0)
    head = prompt_rows(Prompt("Go on."), tokenizer, CONFIG)
    np.testing.assert_array_equal(example.rows[: len(head)], head)
    np.testing.assert_array_equal(example.rows[len(head) :, 1:], codes[:10])
    assert (example.rows[len(head) :, 0] == CONFIG.tokens.assistant_slot).all()


def test_a_voice_of_its_own_has_another_utterance_as_reference(examples):
    maker, tokenizer, codes = examples
    example = maker.plain(1)
    head = prompt_rows(Prompt("Go on.", references=(codes[20:30],)), tokenizer, CONFIG)
    np.testing.assert_array_equal(example.rows[: len(head)], head)


def test_drawn_prompts_differ_and_repeat_with_their_seed(examples):
    maker, _, _ = examples
    drawn = [[maker.drawn(0, np.random.default_rng(seed)).rows.tobytes() for seed in range(50)] for _ in range(2)]
    assert drawn[0] == drawn[1]
    assert len(set(drawn[0])) > 5


def test_a_frame_points_at_the_byte_that_is_spoken_in_it(examples):
    maker, _, _ = examples
    # G, then O for two frames, then the blank through the pause, O for longer than N, and at last the end of the text.
    places = np.round(byte_at(maker.items[0]), 1)
    np.testing.assert_array_equal(places.astype(int), [0, 0, 0, 1, 2, 2, 3, 4, 6, 6])


def test_phones_fall_on_the_frames_that_sound_so(examples):
    maker, _, _ = examples
    numbers = {label: number for number, label in enumerate(("", "g", "oU", "0", "n"))}
    heard = phone_at(maker.items[0], numbers)
    np.testing.assert_array_equal(heard[:, 1], [0, 1, 2, 2, 0, 3, 3, 4, 0, 0])
    np.testing.assert_array_equal(phone_of_byte(maker.items[0], numbers), [1, 2, 0, 3, 4, 0])


def test_a_batch_asks_for_every_frame_and_one_stop_of_each_example(examples):
    maker, tokenizer, codes = examples
    pad = np.array([CONFIG.tokens.pad] + [CONFIG.audio_pad_code] * N_VQ)
    batch = collate([maker.plain(0), maker.plain(1)], pad)
    assert batch.stop.tolist() == ([0] * 10 + [1]) * 2
    assert batch.frame.tolist() == [*range(10), UNKNOWN, *range(10, 20), UNKNOWN]
    spoken = batch.stop == 0
    np.testing.assert_array_equal(batch.codes[spoken].numpy(), codes[:20])
    # The row that decides lies right before the row of the frame that it decides on.
    np.testing.assert_array_equal(batch.rows[batch.example[spoken], batch.time[spoken] + 1, 1:], codes[:20])
    assert batch.rows[0, batch.place[0].long(), 0] == tokenizer.encode("g")[0]
    assert (batch.rows[0, len(maker.plain(0).rows) :] == batch.rows.new_tensor(pad)).all()


def test_a_letters_phone_is_asked_for_some_rows_behind_it(examples):
    maker, tokenizer, _ = examples
    example = maker.plain(0)
    row = int(np.flatnonzero(example.rows[:, 0] == tokenizer.encode("g")[0])[-1])
    labels = example.spelled[row + SPELLING_DELAY :][:6]
    assert [maker.utterances.phone_labels[label] for label in labels] == ["g", "oU", "", "0", "n", ""]


def test_joined_utterances_are_spoken_one_after_the_other(examples):
    maker, _, codes = examples
    first, second = maker.items[1], maker.items[2]
    joined = first.joined(second)
    assert joined.text == "Go on. Go on."
    np.testing.assert_array_equal(maker.utterances.codes_of(joined), codes[10:30])
    numbers = {label: number for number, label in enumerate(maker.utterances.phone_labels)}
    np.testing.assert_array_equal(phone_at(joined, numbers)[10:], phone_at(second, numbers))
    # From the second sound of the second sentence on, it is where it was there, seven bytes on.
    np.testing.assert_allclose(byte_at(joined)[12:], byte_at(second)[2:] + 7)


def test_batches_keep_to_the_rows_of_a_step_and_pass_over_the_whole_corpus():
    lengths = np.random.default_rng(0).integers(40, 300, 500)
    plan = plan_batches(lengths, rows=2800, steps=60, rng=np.random.default_rng(1))
    assert len(plan) == 60
    assert all(lengths[batch].max() * len(batch) <= 2800 for batch in plan)
    passed = np.concatenate(plan[: next(i for i, batch in enumerate(plan) if lengths[batch].max() > 290) + 1])
    assert len(set(passed.tolist())) == len(passed)
    assert np.mean(lengths[plan[0]]) < np.mean(lengths[plan[20]])
