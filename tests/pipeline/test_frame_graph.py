"""A CPU records no graph: here the same operations, on the same fixed places, run one by one."""

import numpy as np
import pytest
import torch

from pipeline.depth_call import DepthCall, RowStates, sampling_table, to_wire
from pipeline.depth_sampler import DepthSampler
from pipeline.frame_graph import FrameGraph
from pipeline.request import SamplingParams

PARAMS = (
    SamplingParams(),
    SamplingParams(temperature=0.0, stop_temperature=0.0),
    SamplingParams(top_k=0, top_p=0.9),
    SamplingParams(temperature=0.7, top_k=3, stop_top_k=1),
)


def call_of(config, rows, seed, **changes):
    generator = torch.Generator().manual_seed(seed)
    fields = {
        "hidden": to_wire(torch.randn(rows, config.hidden_size, generator=generator)),
        "states": RowStates(np.arange(rows) * 2**33 + seed, np.arange(rows) + seed),
        "sampling": sampling_table([PARAMS[(seed + row) % len(PARAMS)] for row in range(rows)]),
        "penalized": np.zeros(0, dtype=np.int64),
        "emitted": np.zeros((0, config.n_vq, 1), dtype=np.uint8),
    }
    return DepthCall(**fields | changes)


@pytest.fixture
def recorded(depth):
    return DepthSampler(depth, FrameGraph(depth, 8))


def assert_equal(result, expected):
    assert np.array_equal(result.codes, expected.codes)
    assert np.array_equal(result.stop, expected.stop)
    assert np.array_equal(result.failed, expected.failed)
    assert np.array_equal(result.states.frames, expected.states.frames)


@pytest.mark.parametrize("rows", [1, 3, 8])
def test_a_replayed_frame_has_the_codes_of_one_launched_step_by_step(depth, config, recorded, rows):
    for seed in range(4):
        call = call_of(config, rows, seed)
        assert_equal(recorded.sample(call), DepthSampler(depth).sample(call))


def test_what_an_earlier_batch_left_in_its_rows_changes_nothing(config, recorded):
    alone = recorded.sample(call_of(config, 2, 5))
    recorded.sample(call_of(config, 8, 1))
    assert_equal(recorded.sample(call_of(config, 2, 5)), alone)


def test_a_hidden_state_that_is_not_finite_fails_its_own_row_alone(depth, config, recorded):
    call = call_of(config, 3, 2)
    call.hidden[1, 0] = np.nan
    result = recorded.sample(call)
    assert result.failed.tolist() == [False, True, False]
    assert_equal(result, DepthSampler(depth).sample(call))


def test_batches_that_do_not_fit_are_drawn_all_the_same(depth, config, recorded):
    assert_equal(recorded.sample(call_of(config, 9, 3)), DepthSampler(depth).sample(call_of(config, 9, 3)))
    codes = max(config.codebook_sizes)
    penalty = {
        "penalized": np.array([1]),
        "emitted": np.full((1, config.n_vq, -(-codes // 8)), 0b10101010, dtype=np.uint8),
        "sampling": sampling_table([SamplingParams(repetition_penalty=1.5)] * 3),
    }
    call = call_of(config, 3, 4, **penalty)
    assert_equal(recorded.sample(call), DepthSampler(depth).sample(call))
