"""Draws one frame for every row of a batch: a stop decision and n_vq codes, each row from its own state."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from pipeline.depth import DepthTransformer
from pipeline.depth_call import SAMPLING_COLUMNS
from pipeline.random_state import BatchStates, RowState, check_row_states
from pipeline.sampling import STOP_DRAW, Draws, FilterParams, draw_codes

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
    draws = Draws.from_states(states, len(hidden), model.config.n_vq + 1, hidden.device)
    return draw_frame(model, hidden, stop_params, code_params, draws, emitted)


@torch.inference_mode()
def draw_frame(
    model: DepthTransformer,
    hidden: Tensor,
    stop_params: FilterParams,
    code_params: FilterParams,
    draws: Draws,
    emitted: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """`sample_frame` with the randomness of the frame at hand: tensors in, tensors out."""
    rows, n_vq = len(hidden), model.config.n_vq
    inputs = model.rows.pad(hidden)
    cache = model.new_cache(len(inputs))
    codes = torch.zeros(len(inputs), n_vq, dtype=torch.int64, device=hidden.device)
    stop = torch.zeros(rows, dtype=torch.bool, device=hidden.device)
    for codebook in range(n_vq):
        outputs = model.step(inputs, cache, codebook)
        if codebook == 0:
            stop = draw_codes(model.stop_logits(outputs)[:rows], stop_params, None, draws, STOP_DRAW) == STOP
        logits = model.code_logits(outputs, codebook)[:rows]
        seen = None if emitted is None else emitted[:, codebook, : logits.shape[1]]
        codes[:rows, codebook] = draw_codes(logits, code_params, seen, draws, codebook + 1)
        if codebook + 1 < n_vq:
            inputs = model.embed_code(codes[:, codebook], codebook)
    return codes[:rows], stop


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
            draw_frame(
                model,
                hidden[one],
                stop_params.index(one),
                code_params.index(one),
                Draws.from_states([state], 1, model.config.n_vq + 1, hidden.device),
                None if emitted is None else emitted[one],
            )
        )
    codes, stop = zip(*frames, strict=True)
    return torch.cat(codes), torch.cat(stop)


def filters_of(table: np.ndarray, device: torch.device) -> tuple[FilterParams, FilterParams]:
    """Parameters of the stop decision and of the codes, from the `sampling` table of a call."""
    columns = dict(zip(SAMPLING_COLUMNS, table.T, strict=True))
    stop = [columns[f"stop_{name}"] for name in ("temperature", "top_k", "top_p")]
    codes = [columns[name] for name in ("temperature", "top_k", "top_p", "repetition_penalty")]
    no_penalty = np.ones(len(table), dtype=np.float32)
    return FilterParams.from_columns(*stop, no_penalty, device), FilterParams.from_columns(*codes, device)
