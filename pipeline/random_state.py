"""The random state of a row: a counter (the default), a `torch.Generator`, or None, the global stream."""

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from pipeline.errors import InvalidRequest
from pipeline.request import MAX_SEED


def validate_seed(value: object) -> int:
    """The seed itself; InvalidRequest unless it is an integer from 0 to 2**63 - 1, which is never wrapped."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_SEED:
        raise InvalidRequest(f"seed must be an integer from 0 to {MAX_SEED}", param="seed")
    return value


def fresh_seed() -> int:
    """An unpredictable seed for a request that brought none, 0 .. 2**63 - 1."""
    return secrets.randbelow(MAX_SEED + 1)


def part_seed(seed: int, part: int) -> int:
    """The seed of a part of a request that is spoken in several: a function of both, the seed itself for part 0."""
    if part == 0:
        return seed
    return _derived(f"part {part} of seed {seed}")


def another_seed(seed: int, attempt: int) -> int:
    """The seed of a further attempt, counted from 1, at what came to nothing with `seed`: a function of both."""
    return _derived(f"attempt {attempt} of seed {seed}")


def _derived(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") & MAX_SEED


@dataclass(frozen=True)
class CounterState:
    """All the random state of a request: its seed and the frame about to be drawn, counted from 0."""

    seed: int
    frame: int = 0

    def __post_init__(self):
        validate_seed(self.seed)
        if not 0 <= self.frame < 2**32:
            raise ValueError(f"frame must fit one 32-bit word of the counter, got {self.frame}")

    def advanced(self) -> "CounterState":
        """The state of the next frame."""
        return CounterState(self.seed, self.frame + 1)


RowState = CounterState | torch.Generator | None
BatchStates = Sequence[RowState] | torch.Generator | None
"""One state a row; None stands for a batch without any, a bare generator for a batch of one row."""


def check_row_states(states: BatchStates, rows: int) -> None:
    """Raises ValueError unless there are as many states as rows, before anything is computed."""
    if states is None:
        return
    count = 1 if isinstance(states, torch.Generator) else len(states)
    if count != rows:
        raise ValueError(f"Expected {rows} per-row generators, but got {count}.")


def new_generator(seed: int, device: torch.device | str) -> torch.Generator:
    """A generator on `device`, to be made once a request. InvalidRequest for a seed out of range."""
    return torch.Generator(device).manual_seed(validate_seed(seed))


def export_generator(generator: torch.Generator) -> np.ndarray:
    """The generator's state, uint8 `[n]`, to travel with a call; n depends on the kind of device."""
    return generator.get_state().numpy()


def import_generator(state: np.ndarray, device: torch.device | str) -> torch.Generator:
    """The generator that `export_generator` saw, on a device of the same kind."""
    generator = torch.Generator(device)
    generator.set_state(torch.from_numpy(np.array(state, dtype=np.uint8)))
    return generator
