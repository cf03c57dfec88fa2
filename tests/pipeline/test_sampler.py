import numpy as np
import pytest
import torch

from pipeline.depth_call import DepthCall, RowStates, merge_calls, sampling_table, to_wire
from pipeline.depth_sampler import DepthSampler
from pipeline.random_state import CounterState, export_generator, new_generator
from pipeline.request import SamplingParams
from pipeline.sampler import sample_frame
from pipeline.sampling import FilterParams, pack_emitted

ROWS = 5
PARAMS = [SamplingParams(temperature=t) for t in (0.0, 0.7, 1.0, 1.7, 2.0)]


@pytest.fixture
def hidden(golden):
    return golden["depth.hidden"]


def draw(model, hidden, states, rows=None):
    params = [PARAMS[row] for row in (rows or range(len(hidden)))]
    hidden = hidden if rows is None else hidden[rows]
    return sample_frame(model, hidden, FilterParams.for_stop(params), FilterParams.for_codes(params), states)


def generators(seeds):
    return [None if seed is None else new_generator(seed, "cpu") for seed in seeds]


def same(left, right):
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


@pytest.mark.parametrize("count", [0, 4, 6])
@pytest.mark.parametrize("state", [None, CounterState(1)])
def test_a_wrong_number_of_states_is_refused_before_any_depth_pass(depth, hidden, monkeypatch, count, state):
    monkeypatch.setattr(depth, "step", lambda *_: pytest.fail("the depth transformer ran"))
    with pytest.raises(ValueError, match=rf"^Expected {ROWS} per-row generators, but got {count}\.$"):
        draw(depth, hidden, [state] * count)


def test_rows_with_counters_do_not_depend_on_their_neighbours(depth, hidden):
    states = [CounterState(seed, frame) for seed, frame in ((7, 0), (7, 1), (2**63 - 1, 5), (0, 9), (3, 2))]
    together = draw(depth, hidden, states)
    for order in ([4, 3, 2, 1, 0], [2], [0, 3], [1, 1, 1, 2]):
        part = draw(depth, hidden, [states[row] for row in order], rows=order)
        assert same(part, [tensor[order] for tensor in together])


def test_rows_with_generators_mix_with_unseeded_and_counter_rows(depth, hidden):
    alone = [draw(depth, hidden, generators([40 + row]), rows=[row]) for row in range(ROWS)]
    mixed = generators([40, None, 42, None, 44])
    mixed[3] = CounterState(9)
    codes, stop = draw(depth, hidden, mixed)
    for row in (0, 2, 4):
        assert torch.equal(codes[row], alone[row][0][0])
        assert torch.equal(stop[row], alone[row][1][0])
    untouched = generators([42])[0]
    draw(depth, hidden, [untouched], rows=[2])
    assert torch.equal(untouched.get_state(), mixed[2].get_state())


def test_all_none_is_the_plain_draw(depth, hidden):
    torch.manual_seed(3)
    plain = draw(depth, hidden, None)
    torch.manual_seed(3)
    assert same(draw(depth, hidden, [None] * ROWS), plain)


def test_one_generator_serves_a_single_row(depth, hidden):
    assert same(draw(depth, hidden, new_generator(5, "cpu"), rows=[3]), draw(depth, hidden, generators([5]), rows=[3]))
    with pytest.raises(ValueError, match="Expected 5 per-row generators, but got 1"):
        draw(depth, hidden, new_generator(5, "cpu"))


def test_a_model_without_generators_is_served_row_by_row_with_the_same_codes(depth, hidden, monkeypatch):
    states = [*generators([1, 2]), CounterState(3), CounterState(4), *generators([5])]
    batched = draw(depth, hidden, states)
    monkeypatch.setattr(depth, "accepts_generators", False)
    rows = []
    step = depth.step
    monkeypatch.setattr(depth, "step", lambda inputs, cache, k: rows.append(cache.shape[2]) or step(inputs, cache, k))
    states[0], states[1], states[4] = generators([1, 2, 5])
    assert same(draw(depth, hidden, states), batched)
    assert len(rows) == ROWS * depth.config.n_vq


def call_of(hidden, seeds, frames, emitted=None, sampling=PARAMS):
    penalized = np.arange(len(seeds)) if emitted is not None else np.empty(0, dtype=np.int64)
    return DepthCall(
        hidden=to_wire(hidden),
        states=RowStates(np.array(seeds), np.array(frames)),
        sampling=sampling_table(sampling[: len(seeds)]),
        penalized=penalized,
        emitted=np.empty((0, 12, 16), np.uint8) if emitted is None else pack_emitted(emitted),
    )


def test_merged_calls_are_answered_as_if_alone(depth, hidden):
    sampler = DepthSampler(depth)
    penalised = [SamplingParams(repetition_penalty=1.5)] * 2
    emitted = np.zeros((2, 12, 128), dtype=bool)
    emitted[0, :, ::3] = True
    calls = [
        call_of(hidden[:3], [1, 2, 3], [0, 4, 8]),
        call_of(hidden[3:], [9, 9], [1, 2], emitted, penalised),
        call_of(hidden[2:3], [2**63 - 1], [4095]),
    ]
    assert merge_calls(calls).penalized.tolist() == [3, 4]
    for merged, call in zip(sampler.sample_calls(calls), calls, strict=True):
        alone = sampler.sample(call)
        assert np.array_equal(merged.codes, alone.codes)
        assert np.array_equal(merged.stop, alone.stop)
        assert merged.states.frames.tolist() == (call.states.frames + 1).tolist()


def test_generator_states_travel_with_the_call_and_come_back_advanced(depth, hidden):
    generator = new_generator(11, "cpu")
    expected = [draw(depth, hidden, [generator], rows=[3])[0] for _ in range(3)]
    state = export_generator(new_generator(11, "cpu"))[None]
    for codes in expected:
        call = call_of(hidden[3:4], [11], [0], sampling=PARAMS[3:])
        call = DepthCall(
            call.hidden,
            RowStates(call.states.seeds, call.states.frames, state),
            call.sampling,
            call.penalized,
            call.emitted,
        )
        result = DepthSampler(depth).sample(call)  # another replica each time
        assert np.array_equal(result.codes, codes.numpy())
        state = result.states.generators


def test_a_hidden_state_that_is_not_finite_fails_its_row_alone(depth, hidden):
    broken = hidden.clone()
    broken[1, 5] = float("nan")
    sampler = DepthSampler(depth)
    good, bad = (sampler.sample(call_of(h, range(ROWS), [0] * ROWS)) for h in (hidden, broken))
    assert bad.failed.tolist() == [False, True, False, False, False]
    keep = [0, 2, 3, 4]
    assert np.array_equal(good.codes[keep], bad.codes[keep])


def test_bfloat16_travels_as_its_bits(depth, hidden):
    from pipeline.depth_call import from_wire

    half = hidden.bfloat16()
    wire = to_wire(half)
    assert wire.dtype == np.uint16
    assert torch.equal(from_wire(wire, "cpu"), half)
