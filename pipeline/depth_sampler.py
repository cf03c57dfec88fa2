"""The depth side of the wire: from a call to the frames and states of its rows."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from pipeline.depth import DepthTransformer
from pipeline.depth_call import DepthCall, DepthResult, RowStates, from_wire, merge_calls, split_result
from pipeline.frame_graph import FrameGraph
from pipeline.random_state import CounterState, export_generator, import_generator
from pipeline.sampler import draw_frame, filters_of, sample_frame
from pipeline.sampling import Draws, unpack_emitted


class DepthSampler:
    """Answers depth calls with a model; holds no state of any request.

    With a `graph`, batches that it can hold are replayed instead of launched step by step.
    """

    def __init__(self, model: DepthTransformer, graph: FrameGraph | None = None):
        self.model = model
        self._graph = graph

    def sample_calls(self, calls: Sequence[DepthCall]) -> list[DepthResult]:
        """One batched pass for the rows of all calls; one answer a call."""
        return split_result(self.sample(merge_calls(calls)), [call.rows for call in calls])

    def sample(self, call: DepthCall) -> DepthResult:
        """One frame for every row of the call."""
        device = self.model.device
        hidden = from_wire(call.hidden, device)
        finite = torch.isfinite(hidden).all(dim=1)
        hidden = torch.where(finite.unsqueeze(1), hidden, torch.zeros_like(hidden))
        codes, stop, states = self._draw(call, hidden)
        return DepthResult(
            codes=codes.cpu().numpy(), stop=stop.cpu().numpy(), failed=~finite.cpu().numpy(), states=states
        )

    def _draw(self, call: DepthCall, hidden: Tensor) -> tuple[Tensor, Tensor, RowStates]:
        """Codes, stop flags, and the states of the next frame."""
        model, states = self.model, call.states
        advanced = replace(states, frames=states.frames + 1)
        seeds, frames = (torch.from_numpy(np.array(each)).to(model.device) for each in (states.seeds, states.frames))
        if self._fits_graph(call):
            return *self._graph.draw(hidden, call.sampling, seeds, frames), advanced
        stop_params, code_params = filters_of(call.sampling, model.device)
        emitted = self._emitted(call)
        if states.generators is not None:
            generators = [import_generator(state, model.device) for state in states.generators]
            codes, stop = sample_frame(model, hidden, stop_params, code_params, generators, emitted)
            return codes, stop, replace(advanced, generators=np.stack([export_generator(each) for each in generators]))
        if not model.accepts_generators:
            counters = list(map(CounterState, states.seeds.tolist(), states.frames.tolist()))
            return *sample_frame(model, hidden, stop_params, code_params, counters, emitted), advanced
        draws = Draws.from_counters(seeds, frames, model.config.n_vq + 1)
        return *draw_frame(model, hidden, stop_params, code_params, draws, emitted), advanced

    def _fits_graph(self, call: DepthCall) -> bool:
        if self._graph is None or call.states.generators is not None or not self.model.accepts_generators:
            return False
        return call.rows <= self._graph.rows and len(call.penalized) == 0

    def _emitted(self, call: DepthCall) -> Tensor | None:
        if len(call.penalized) == 0:
            return None
        config = self.model.config
        emitted = np.zeros((call.rows, config.n_vq, max(config.codebook_sizes)), dtype=bool)
        emitted[call.penalized] = unpack_emitted(call.emitted, emitted.shape[-1])
        return torch.from_numpy(emitted).to(self.model.device)
