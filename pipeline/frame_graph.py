"""One frame as a device graph: the whole of `draw_frame`, seeds included, recorded once and replayed.

A frame is n_vq passes of a small model with a draw after each, which on an accelerator take less time than it takes to
launch them one by one. With counters the randomness of a frame is a function of two integers a row, so they are inputs
like the hidden states, and a batch replays whatever its seeds are.
"""

import logging

import numpy as np
import torch
from torch import Tensor

from pipeline.depth import DepthTransformer
from pipeline.sampler import draw_frame, filters_of
from pipeline.sampling import Draws, FilterParams

log = logging.getLogger(__name__)

_WARM_UPS = 3
"""Runs before the recording: libraries allocate and choose kernels in the first ones."""


class FrameGraph:
    """Draws up to `rows` rows at the cost of `rows`, from inputs in fixed places. Not thread-safe.

    Devices without graphs, and those that refuse the recording, run the same operations one by one.
    """

    def __init__(self, model: DepthTransformer, rows: int):
        device = model.device
        self._model = model
        self._hidden = torch.zeros(rows, model.config.hidden_size, dtype=model.dtype, device=device)
        self._seeds = torch.zeros(rows, dtype=torch.int64, device=device)
        self._frames = torch.zeros(rows, dtype=torch.int64, device=device)
        self._stop, self._codes = (_greedy(rows, device) for _ in range(2))
        self._recorded = self._record()

    @property
    def rows(self) -> int:
        return len(self._hidden)

    @torch.inference_mode()
    def draw(self, hidden: Tensor, sampling: np.ndarray, seeds: Tensor, frames: Tensor) -> tuple[Tensor, Tensor]:
        """As `draw_frame` with `Draws.from_counters`, for `hidden` `[n <= rows, hidden]` and the table of a call.

        The results are overwritten by the next call.
        """
        count = len(hidden)
        self._hidden[:count] = hidden
        self._seeds[:count] = seeds
        self._frames[:count] = frames
        for place, given in zip((self._stop, self._codes), filters_of(sampling, hidden.device), strict=True):
            for column, values in zip(_columns(place), _columns(given), strict=True):
                column[:count] = values
        if self._recorded is None:
            codes, stop = self._frame()
        else:
            graph, (codes, stop) = self._recorded
            graph.replay()
        return codes[:count], stop[:count]

    def _frame(self) -> tuple[Tensor, Tensor]:
        draws = Draws.from_counters(self._seeds, self._frames, self._model.config.n_vq + 1)
        # Made anew, as each keeps columns it has derived from its tensors.
        stop, codes = (FilterParams(*_columns(params)) for params in (self._stop, self._codes))
        return draw_frame(self._model, self._hidden, stop, codes, draws)

    @torch.inference_mode()
    def _record(self) -> tuple["torch.cuda.CUDAGraph", tuple[Tensor, Tensor]] | None:
        """The graph and where it leaves its results; None where there is none."""
        kind = self._hidden.device.type
        if kind not in ("cuda", "npu"):
            return None
        device = getattr(torch, kind)
        stream = device.Stream()
        stream.wait_stream(device.current_stream())
        with device.stream(stream):
            for _ in range(_WARM_UPS):
                self._frame()
        device.current_stream().wait_stream(stream)
        graph = device.CUDAGraph() if kind == "cuda" else device.NPUGraph()
        try:
            with device.graph(graph):
                drawn = self._frame()
        except RuntimeError:
            log.warning("%s does not record the depth frame as a graph; it runs step by step", kind, exc_info=True)
            return None
        return graph, drawn


def _columns(params: FilterParams) -> tuple[Tensor, ...]:
    """The columns that were given, without the derived ones."""
    return params.temperature, params.top_k, params.top_p, params.repetition_penalty


def _greedy(rows: int, device: torch.device) -> FilterParams:
    """What rows that are not there are drawn with: any finite parameters."""
    return FilterParams.from_columns([0.0] * rows, [0] * rows, [1.0] * rows, [1.0] * rows, device)
