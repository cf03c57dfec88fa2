import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from pipeline.random_state import CounterState
from pipeline.request import SamplingParams
from pipeline.sampling import (
    STOP_DRAW,
    Draws,
    FilterParams,
    draw_codes,
    filtered_probabilities,
    pack_emitted,
    unpack_emitted,
)

GOLDEN_CASES = Path(__file__).parents[1] / "fixtures" / "moss_local_tiny" / "golden.json"
FILTERS = json.loads(GOLDEN_CASES.read_text())["filters"]
PLAIN = SamplingParams(temperature=1.0, top_k=0, top_p=1.0)
GREEDY = SamplingParams(temperature=0.0)
NUM_DRAWS = 13


def scores_of(rows, size=1024, seed=0):
    return torch.randn(rows, size, generator=torch.Generator().manual_seed(seed)) * 3


def draw(logits, params, states, index=1, emitted=None):
    draws = Draws.from_states(states, len(logits), NUM_DRAWS)
    return draw_codes(logits, FilterParams.for_codes(params), emitted, draws, index)


def log(*probabilities):
    return torch.tensor([[math.log(p) for p in probabilities]])


def golden_history(golden):
    return torch.zeros(6, 128, dtype=torch.bool).scatter_(1, golden["filter.history"].long(), True)


@pytest.mark.parametrize("case", range(len(FILTERS)))
def test_probabilities_are_the_authors(golden, case):
    params = FilterParams.for_codes([SamplingParams(**FILTERS[case])] * 6)
    ours = filtered_probabilities(golden["filter.logits"], params, golden_history(golden))
    authors = golden[f"filter.{case}.probs"]
    torch.testing.assert_close(ours, authors, atol=2e-5, rtol=1e-4)
    assert torch.equal(ours > 0, authors > 0)


def test_rows_with_different_parameters_share_a_batch(golden):
    params = [SamplingParams(**case) for case in FILTERS]
    for row in range(6):
        logits = golden["filter.logits"][row].expand(len(params), -1)
        history = golden_history(golden)[row].expand(len(params), -1)
        ours = filtered_probabilities(logits, FilterParams.for_codes(params), history)
        authors = torch.stack([golden[f"filter.{case}.probs"][row] for case in range(len(params))])
        torch.testing.assert_close(ours, authors, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("case", range(len(FILTERS)))
def test_counter_draws_follow_the_authors_probabilities(golden, case):
    samples, row = 4000, 2
    params = [SamplingParams(**FILTERS[case])] * samples
    history = golden_history(golden)[row].expand(samples, -1)
    states = [CounterState(seed, frame=case) for seed in range(samples)]
    codes = draw(golden["filter.logits"][row].expand(samples, -1), params, states, emitted=history)
    expected = golden[f"filter.{case}.probs"][row].double() * samples
    observed = torch.bincount(codes, minlength=128)
    assert observed[expected == 0].sum() == 0
    rare = expected < 5
    observed = torch.cat((observed[~rare], observed[rare].sum()[None]))
    expected = torch.cat((expected[~rare], expected[rare].sum()[None]))
    observed, expected = observed[expected > 0], expected[expected > 0]
    chi_square = ((observed - expected) ** 2 / expected).sum().item()
    freedom = len(expected) - 1
    assert chi_square <= freedom + 5 * math.sqrt(2 * freedom)


# Seed 0, frame 0, draw 0 is word 6627e8d5 of Random123's first known answer: 0.399 of the mass.
@pytest.mark.parametrize(
    ("probabilities", "code"),
    [
        ((0.2, 0.5, 0.3), 1),
        ((0.32, 0.33, 0.35), 1),
        ((0.35, 0.33, 0.32), 1),
        ((0.1, 0.3, 0.36, 0.24), 1),
        ((0.25, 0.25, 0.25, 0.25), 1),
        ((0.1, 0.1, 0.4, 0.4), 2),
        ((0.11, 0.11, 0.39, 0.39), 3),
    ],
)
def test_a_counter_draw_inverts_the_distribution_in_order_of_score_then_index(probabilities, code):
    assert draw(log(*probabilities), [PLAIN], [CounterState(0)], STOP_DRAW).tolist() == [code]


@pytest.mark.parametrize("size", [4, 1024])
def test_each_entry_owns_the_uniforms_from_its_start_up_to_the_next(size):
    logits = torch.full((6, size), -math.inf)
    logits[:, :4] = 0.0
    quarter = 2**24 // 4
    bits = torch.tensor([[0], [quarter - 1], [quarter], [2 * quarter - 1], [2 * quarter], [2**24 - 1]])
    codes = draw_codes(logits, FilterParams.for_codes([PLAIN] * 6), None, Draws(bits), STOP_DRAW)
    assert codes.tolist() == [0, 0, 1, 1, 2, 3]


def test_top_p_keeps_the_entry_that_starts_at_exactly_p():
    params = FilterParams.for_codes([SamplingParams(temperature=1.0, top_k=0, top_p=0.5)])
    quarters = filtered_probabilities(torch.zeros(1, 4), params)
    torch.testing.assert_close(quarters, torch.tensor([[1.0, 1.0, 1.0, 0.0]]) / 3)


def test_ties_with_the_last_of_top_k_stay_however_many():
    params = FilterParams.for_codes([SamplingParams(temperature=1.0, top_k=3, top_p=1.0)])
    logits = torch.full((1, 1024), -1.0)
    logits[0, 100:400] = 0.0
    logits[0, 250] = -0.0
    probabilities = filtered_probabilities(logits, params)
    assert probabilities.nonzero()[:, 1].tolist() == list(range(100, 400))
    torch.testing.assert_close(probabilities[0, 100:400], torch.full((300,), 1 / 300))


@pytest.mark.parametrize("size", [2, 128, 1024])
def test_top_k_of_all_scores_or_more_is_off(size):
    logits = scores_of(3, size)
    off = filtered_probabilities(logits, FilterParams.for_codes([PLAIN] * 3))
    torch.testing.assert_close(off, logits.softmax(-1))
    for top_k in (-1, size, size + 1, 10**12):
        params = FilterParams.for_codes([SamplingParams(temperature=1.0, top_k=top_k, top_p=1.0)] * 3)
        assert torch.equal(filtered_probabilities(logits, params), off)


@pytest.mark.parametrize("states", [None, [CounterState(9)], [torch.Generator()]])
def test_greedy_takes_the_lowest_of_the_best_after_the_penalty(states):
    logits = torch.tensor([[1.0, 2.0, -0.0, 4.0, 2.0, 0.0]])
    emitted = torch.tensor([[False, False, False, True, False, False]])
    greedy = SamplingParams(temperature=0.0, repetition_penalty=3.0)
    assert draw(logits, [greedy], states, emitted=emitted).tolist() == [1]
    signed_zeros = torch.linspace(-9, -8, 1024)[None]
    signed_zeros[0, [10, 20]] = torch.tensor([-0.0, 0.0])
    assert draw(signed_zeros, [greedy], states).tolist() == [10]
    assert draw(torch.zeros(1, 1024), [greedy], states).tolist() == [0]


def test_tiny_temperature_is_greedy():
    logits = scores_of(4)
    params = [SamplingParams(temperature=1e-40)] * 4
    assert torch.equal(draw(logits, params, [CounterState(i) for i in range(4)]), logits.argmax(-1))


def test_stop_head_uses_its_own_parameters_and_no_penalty():
    request = SamplingParams(repetition_penalty=2.0, stop_temperature=2.0, stop_top_k=1, stop_top_p=0.9)
    params = FilterParams.for_stop([request])
    assert params.temperature.tolist() == [2.0]
    assert params.top_k.tolist() == [1]
    assert params.top_p.tolist() == pytest.approx([0.9])
    assert params.repetition_penalty.tolist() == [1.0]
    assert filtered_probabilities(torch.tensor([[0.0, 1.0]]), params).tolist() == [[0.0, 1.0]]


def test_half_precision_scores_are_drawn_in_float32():
    logits = scores_of(8).to(torch.bfloat16)
    states = [CounterState(seed) for seed in range(8)]
    params = [SamplingParams()] * 8
    assert torch.equal(draw(logits, params, states), draw(logits.float(), params, states))


@pytest.mark.parametrize("states", [None, [None] * 6])
def test_a_batch_without_states_is_the_plain_batched_draw(states):
    logits = scores_of(6)
    requests = [SamplingParams(), PLAIN, GREEDY, SamplingParams(top_k=3), SamplingParams(top_p=0.3), PLAIN]
    for index in range(NUM_DRAWS):
        torch.manual_seed(index)
        plain = torch.multinomial(filtered_probabilities(logits, FilterParams.for_codes(requests)), 1)[:, 0]
        after = torch.get_rng_state()
        torch.manual_seed(index)
        assert torch.equal(draw(logits, requests, states, index), plain)
        assert torch.equal(torch.get_rng_state(), after)


def test_generator_rows_draw_as_if_served_one_by_one():
    logits, params = scores_of(5), [SamplingParams(top_k=k) for k in (0, 1, 25, 70, 300)]
    generators = [torch.Generator().manual_seed(42 + row) for row in range(5)]
    together = [draw(logits, params, generators, index) for index in range(NUM_DRAWS)]
    for row in range(5):
        generator = torch.Generator().manual_seed(42 + row)
        probabilities = filtered_probabilities(logits[row : row + 1], FilterParams.for_codes(params[row : row + 1]))
        for codes in together:
            assert codes[row] == torch.multinomial(probabilities, 1, generator=generator)[0, 0]


def test_a_scalar_generator_equals_a_list_of_one():
    logits = scores_of(1)
    first, second = torch.Generator().manual_seed(3), torch.Generator().manual_seed(3)
    for index in range(NUM_DRAWS):
        assert draw(logits, [PLAIN], first, index) == draw(logits, [PLAIN], [second], index)


def test_unseeded_rows_leave_seeded_rows_alone_and_draw_from_the_global_stream():
    logits, params = scores_of(4), [PLAIN] * 4
    alone = [torch.Generator().manual_seed(seed) for seed in (0, 2)]
    expected = draw(logits[[0, 2]], params[:2], alone)
    mixed = [torch.Generator().manual_seed(0), None, torch.Generator().manual_seed(2), None]
    torch.manual_seed(11)
    codes = draw(logits, params, mixed)
    torch.manual_seed(11)
    unseeded = torch.multinomial(filtered_probabilities(logits[[1, 3]], FilterParams.for_codes(params[:2])), 1)
    assert torch.equal(codes[[0, 2]], expected)
    assert torch.equal(codes[[1, 3]], unseeded[:, 0])
    for mine, other in zip(alone, mixed[::2], strict=True):
        assert torch.equal(mine.get_state(), other.get_state())


def test_seeded_rows_leave_the_global_stream_alone():
    before = torch.get_rng_state()
    draw(scores_of(3), [PLAIN] * 3, [CounterState(0), torch.Generator(), CounterState(2)])
    assert torch.equal(torch.get_rng_state(), before)


def test_a_greedy_row_leaves_its_generator_alone():
    generator = torch.Generator().manual_seed(1)
    before = generator.get_state()
    draw(scores_of(2), [GREEDY, PLAIN], [generator, CounterState(0)])
    assert torch.equal(generator.get_state(), before)


@pytest.mark.parametrize("count", [0, 2, 4])
@pytest.mark.parametrize("state", [None, CounterState(1), torch.Generator()])
def test_draws_need_one_state_a_row(state, count):
    with pytest.raises(ValueError, match=rf"^Expected 3 per-row generators, but got {count}\.$"):
        Draws.from_states([state] * count, 3, NUM_DRAWS)


def test_a_bare_seed_is_no_state():
    with pytest.raises(TypeError, match="int"):
        Draws.from_states([42], 1, NUM_DRAWS)


def test_seeds_and_frames_as_tensors_are_the_same_draws():
    states = [CounterState(2**63 - 1, 4), CounterState(0, 0), CounterState(2**32, 4095)]
    seeds = torch.tensor([state.seed for state in states])
    frames = torch.tensor([state.frame for state in states])
    tensors = Draws.from_counters(seeds, frames, NUM_DRAWS)
    assert torch.equal(tensors.bits, Draws.from_states(states, 3, NUM_DRAWS).bits)


def test_each_draw_of_a_frame_and_each_frame_is_another():
    logits = torch.zeros(1, 1024)
    drawn = [
        tuple(draw(logits, [PLAIN], [CounterState(8, frame)], index).item() for index in range(NUM_DRAWS))
        for frame in range(20)
    ]
    assert len(set(drawn)) == 20
    assert all(len(set(codes)) > NUM_DRAWS - 3 for codes in drawn)


def test_an_infinitely_low_score_is_never_drawn():
    logits = torch.full((500, 128), -math.inf)
    logits[:, [5, 70]] = 1.0
    codes = draw(logits, [PLAIN] * 500, [CounterState(seed) for seed in range(500)])
    assert set(codes.tolist()) == {5, 70}


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_broken_row_stays_in_range_and_away_from_its_neighbours(bad):
    logits, params = scores_of(3), [SamplingParams()] * 3
    states = [CounterState(seed) for seed in range(3)]
    healthy = draw(logits, params, states)
    logits[1, 7] = bad
    codes = draw(logits, params, states)
    assert torch.equal(codes[[0, 2]], healthy[[0, 2]])
    assert 0 <= codes[1] < 1024


@pytest.mark.parametrize("size", [128, 1000, 1024])
def test_emitted_codes_survive_packing(size):
    emitted = np.random.default_rng(0).random((3, 12, size)) < 0.1
    packed = pack_emitted(emitted)
    assert packed.dtype == np.uint8
    assert packed.shape == (3, 12, -(-size // 8))
    assert np.array_equal(unpack_emitted(packed, size), emitted)
    assert unpack_emitted(packed, size).dtype == np.bool_
