"""What crosses between backbone and depth: a step's hidden states with all that their rows need, and the answer.

Plain numpy arrays, so that a call is one object of one buffer a field wherever it is sent. The depth side keeps
nothing between calls: states travel with them and come back advanced.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pipeline.request import SamplingParams

SAMPLING_COLUMNS = tuple(SamplingParams.__dataclass_fields__)


def to_wire(tensor: Tensor) -> np.ndarray:
    """A tensor as numpy without a copy on CPU; bfloat16 travels as its bits in uint16."""
    tensor = tensor.detach().cpu()
    return tensor.view(torch.uint16).numpy() if tensor.dtype == torch.bfloat16 else tensor.numpy()


def from_wire(array: np.ndarray, device: torch.device | str) -> Tensor:
    """The inverse of `to_wire`. Arrays from a shared store are read-only, hence the copy."""
    tensor = torch.from_numpy(np.array(array)).to(device)
    return tensor.view(torch.bfloat16) if tensor.dtype == torch.uint16 else tensor


def sampling_table(params: Sequence[SamplingParams]) -> np.ndarray:
    """float32 `[rows, len(SAMPLING_COLUMNS)]`, the columns in the order of the dataclass."""
    return np.array([[getattr(row, name) for name in SAMPLING_COLUMNS] for row in params], dtype=np.float32)


@dataclass(frozen=True)
class RowStates:
    """Random state of each row: the seed and the index of the frame to draw, or a torch.Generator's state."""

    seeds: np.ndarray
    """int64 [rows]"""
    frames: np.ndarray
    """int64 [rows]"""
    generators: np.ndarray | None = None
    """uint8 [rows, state size] when torch.Generators draw, else None."""


@dataclass(frozen=True)
class DepthCall:
    """One step of some sequences. `emitted` is sent only for rows whose repetition penalty is not 1."""

    hidden: np.ndarray
    """float32 [rows, hidden], or uint16 holding bfloat16 bits"""
    states: RowStates
    sampling: np.ndarray
    """float32 [rows, len(SAMPLING_COLUMNS)]"""
    penalized: np.ndarray
    """int64 [penalized rows]"""
    emitted: np.ndarray
    """uint8 [penalized rows, n_vq, ceil(codes / 8)]: bit set of the codes each codebook has emitted"""
    caller: str = ""
    """Which engine it comes from; matters only to when a pass begins."""

    @property
    def rows(self) -> int:
        return len(self.hidden)


@dataclass(frozen=True)
class DepthResult:
    """The answer to a call, row by row."""

    codes: np.ndarray
    """int64 [rows, n_vq]; of no meaning where `stop` or `failed`"""
    stop: np.ndarray
    """bool [rows]"""
    failed: np.ndarray
    """bool [rows]: the hidden state was not finite; the row has no codes"""
    states: RowStates
    """advanced by one frame"""


def merge_calls(calls: Sequence[DepthCall]) -> DepthCall:
    """One call holding the rows of all, in order."""
    if len(calls) == 1:
        return calls[0]
    starts = np.cumsum([0, *(call.rows for call in calls)])
    return DepthCall(
        hidden=np.concatenate([call.hidden for call in calls]),
        states=merge_states([call.states for call in calls]),
        sampling=np.concatenate([call.sampling for call in calls]),
        penalized=np.concatenate([call.penalized + start for call, start in zip(calls, starts, strict=False)]),
        emitted=np.concatenate([call.emitted for call in calls]),
    )


def merge_states(states: Sequence[RowStates]) -> RowStates:
    return RowStates(
        seeds=np.concatenate([state.seeds for state in states]),
        frames=np.concatenate([state.frames for state in states]),
        generators=None if states[0].generators is None else np.concatenate([state.generators for state in states]),
    )


def split_result(result: DepthResult, rows: Sequence[int]) -> list[DepthResult]:
    """Cuts a merged answer back into the answers of its calls."""
    ends = np.cumsum(rows)
    return [_slice(result, end - count, end) for end, count in zip(ends, rows, strict=True)]


def _slice(result: DepthResult, start: int, end: int) -> DepthResult:
    states = result.states
    return DepthResult(
        codes=result.codes[start:end],
        stop=result.stop[start:end],
        failed=result.failed[start:end],
        states=RowStates(
            seeds=states.seeds[start:end],
            frames=states.frames[start:end],
            generators=None if states.generators is None else states.generators[start:end],
        ),
    )
