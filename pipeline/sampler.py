"""Draws one frame for every row of a depth call: a stop decision and n_vq codes, each row from its own state."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from pipeline.depth import DepthTransformer
from pipeline.depth_call import (
    DepthCall,
    DepthResult,
    RowStates,
    from_wire,
    merge_calls,
    split_result,
)
from pipeline.random_state import (
    BatchStates,
    CounterState,
    RowState,
    check_row_states,
    export_generator,
    import_generator,
)
from pipeline.request import SamplingParams
from pipeline.sampling import STOP_DRAW, Draws, FilterParams, draw_codes, unpack_emitted

STOP = 1


@torch.inference_mode()
def sample_frame(
    model: DepthTransformer,
    hidden: Tensor,
    stop_params: FilterParams,
    code_params: FilterParams,
    states: BatchStates = None,
    emitted: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Codes int64 `[rows, n_vq]` and stop flags bool `[rows]` from hidden states `[rows, hidden]`.

    `states` holds one random state a row, or one generator for a single row, or is None for torch's global stream.
    `emitted` bool `[rows, n_vq, codes]` marks what the repetition penalty applies to. Row i depends on row i alone.
    Raises ValueError when there are not as many states as rows, before anything is computed or drawn.
    """
    check_row_states(states, len(hidden))
    if isinstance(states, Sequence) and not model.accepts_generators:
        return _sample_serially(model, hidden, stop_params, code_params, states, emitted)
    return _sample_batch(model, hidden, stop_params, code_params, states, emitted)


def _sample_batch(
    model: DepthTransformer,
    hidden: Tensor,
    stop_params: FilterParams,
    code_params: FilterParams,
    states: BatchStates,
    emitted: Tensor | None,
) -> tuple[Tensor, Tensor]:
    rows, n_vq = len(hidden), model.config.n_vq
    draws = Draws.from_states(states, rows, n_vq + 1, hidden.device)
    inputs = model.rows.pad(hidden)
    cache = model.new_cache(len(inputs))
    codes = torch.zeros(rows, n_vq, dtype=torch.int64, device=hidden.device)
    stop = torch.zeros(rows, dtype=torch.bool, device=hidden.device)
    for codebook in range(n_vq):
        outputs = model.step(inputs, cache, codebook)
        if codebook == 0:
            stop = draw_codes(model.stop_logits(outputs)[:rows], stop_params, None, draws, STOP_DRAW) == STOP
        logits = model.code_logits(outputs, codebook)[:rows]
        seen = None if emitted is None else emitted[:, codebook, : logits.shape[1]]
        codes[:, codebook] = draw_codes(logits, code_params, seen, draws, codebook + 1)
        inputs = model.rows.pad(model.embed_code(codes[:, codebook], codebook))
    return codes, stop


def _sample_serially(
    model: DepthTransformer,
    hidden: Tensor,
    stop_params: FilterParams,
    code_params: FilterParams,
    states: Sequence[RowState],
    emitted: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """For models that take no list of states: one batch of one row after the other."""
    frames = []
    for row, state in enumerate(states):
        one = slice(row, row + 1)
        frames.append(
            _sample_batch(
                model,
                hidden[one],
                stop_params.index(one),
                code_params.index(one),
                state if isinstance(state, torch.Generator) or state is None else [state],
                None if emitted is None else emitted[one],
            )
        )
    codes, stop = zip(*frames, strict=True)
    return torch.cat(codes), torch.cat(stop)


class DepthSampler:
    """Answers depth calls with a model; holds no state of any request."""

    def __init__(self, model: DepthTransformer):
        self.model = model

    def sample_calls(self, calls: Sequence[DepthCall]) -> list[DepthResult]:
        """One batched pass for the rows of all calls; one answer a call."""
        return split_result(self.sample(merge_calls(calls)), [call.rows for call in calls])

    def sample(self, call: DepthCall) -> DepthResult:
        """One frame for every row of the call."""
        device = self.model.device
        hidden = from_wire(call.hidden, device)
        finite = torch.isfinite(hidden).all(dim=1)
        hidden = torch.where(finite.unsqueeze(1), hidden, torch.zeros_like(hidden))
        params = [SamplingParams(*row) for row in call.sampling.tolist()]
        states = self._states(call.states)
        codes, stop = sample_frame(
            self.model,
            hidden,
            FilterParams.for_stop(params, device),
            FilterParams.for_codes(params, device),
            states,
            self._emitted(call),
        )
        return DepthResult(
            codes=codes.cpu().numpy(),
            stop=stop.cpu().numpy(),
            failed=~finite.cpu().numpy(),
            states=_advanced(call.states, states),
        )

    def _states(self, states: RowStates) -> list[RowState]:
        if states.generators is not None:
            return [import_generator(state, self.model.device) for state in states.generators]
        return [
            CounterState(seed, frame) for seed, frame in zip(states.seeds.tolist(), states.frames.tolist(), strict=True)
        ]

    def _emitted(self, call: DepthCall) -> Tensor | None:
        if len(call.penalized) == 0:
            return None
        config = self.model.config
        emitted = np.zeros((call.rows, config.n_vq, max(config.codebook_sizes)), dtype=bool)
        emitted[call.penalized] = unpack_emitted(call.emitted, emitted.shape[-1])
        return torch.from_numpy(emitted).to(self.model.device)


def _advanced(states: RowStates, used: Sequence[RowState]) -> RowStates:
    return RowStates(
        seeds=states.seeds,
        frames=states.frames + 1,
        generators=None if states.generators is None else np.stack([export_generator(state) for state in used]),
    )
