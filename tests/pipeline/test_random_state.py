import pickle

import numpy as np
import pytest
import torch

from pipeline.errors import InvalidRequest
from pipeline.random_state import (
    CounterState,
    check_row_states,
    export_generator,
    fresh_seed,
    import_generator,
    new_generator,
    validate_seed,
)


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1, 2**32, 2**63 - 1])
def test_every_seed_of_the_range_is_taken_as_it_is(seed):
    assert validate_seed(seed) == seed
    assert CounterState(seed).seed == seed
    assert new_generator(seed, "cpu").initial_seed() == seed


@pytest.mark.parametrize("seed", [-1, 2**63, 2**64, True, False, 1.0, "1", None, np.float64(1)])
@pytest.mark.parametrize("make", [validate_seed, CounterState, lambda seed: new_generator(seed, "cpu")])
def test_anything_else_is_refused_with_the_range(make, seed):
    with pytest.raises(InvalidRequest, match=r"integer from 0 to 9223372036854775807") as error:
        make(seed)
    assert error.value.param == "seed"


def test_a_seed_too_long_to_print_is_refused_like_any_other():
    with pytest.raises(InvalidRequest):
        validate_seed(10**5000)


def test_counter_state_advances_by_one_frame_and_travels():
    state = CounterState(7)
    assert state.frame == 0
    assert pickle.loads(pickle.dumps(state.advanced().advanced())) == CounterState(7, 2)


def test_fresh_seeds_are_valid_and_differ():
    seeds = {fresh_seed() for _ in range(100)}
    assert len(seeds) == 100
    assert all(validate_seed(seed) == seed for seed in seeds)


@pytest.mark.parametrize("count", [0, 1, 2, 4, 5])
@pytest.mark.parametrize("state", [None, CounterState(1), torch.Generator()])
def test_a_list_of_another_length_is_refused_also_when_all_none(state, count):
    with pytest.raises(ValueError) as error:
        check_row_states([state] * count, 3)
    assert str(error.value) == f"Expected 3 per-row generators, but got {count}."


def test_a_scalar_generator_serves_one_row_only():
    check_row_states(torch.Generator(), 1)
    with pytest.raises(ValueError, match=r"^Expected 2 per-row generators, but got 1\.$"):
        check_row_states(torch.Generator(), 2)


def test_a_generator_goes_on_where_it_was_after_travelling():
    generator = new_generator(5, "cpu")
    torch.rand(3, generator=generator)
    state = export_generator(generator)
    assert state.dtype == np.uint8
    copy = import_generator(pickle.loads(pickle.dumps(state)), "cpu")
    assert torch.equal(torch.rand(9, generator=copy), torch.rand(9, generator=generator))
