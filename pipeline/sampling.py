"""From logits to codes: repetition penalty, temperature, top-k, top-p, one draw a row.

A row's code is a function of its own logits, parameters and random state, bit for bit. What makes it so:
floating point is used for elementwise steps only, and everything that runs along a row (order, cumulative
probability, the draw) works on integers, which give the same result in any order and at any width.

Logits are finite or -inf (never drawn). A row with NaN or +inf gets some code in range that means nothing, or
the error of `torch.multinomial` if it draws from a torch stream; looking for it here would stall the device.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from pipeline.philox import UNIFORM_BITS, uniform_bits
from pipeline.random_state import BatchStates, CounterState, check_row_states
from pipeline.request import SamplingParams

STOP_DRAW = 0
"""Index of the stop head's draw in a frame; codebook k has draw k + 1."""

_Rows = slice | torch.Tensor

_UNLIMITED = 2**31
_MIN_DIVISOR = 1e-20
"""Keeps logit / temperature finite; any temperature this low picks the best logit anyway."""
_SHORTLISTS = (32, 64)


@dataclass(frozen=True)
class FilterParams:
    """Sampling parameters of each row, as tensors `[B]` on the device of the logits.

    temperature: float32, 0 is greedy. top_k: int64, off when <= 0 or >= the number of logits.
    top_p: float32, off when <= 0 or >= 1. repetition_penalty: float32 > 0, off when 1.
    Not to be changed in place: derived columns are kept. A captured graph builds one from its input tensors.
    """

    temperature: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    repetition_penalty: torch.Tensor

    @classmethod
    def for_codes(cls, params: Sequence[SamplingParams], device: torch.device | str = "cpu") -> "FilterParams":
        columns = [(p.temperature, p.top_k, p.top_p, p.repetition_penalty) for p in params]
        return cls.from_columns(*zip(*columns, strict=True), device=device)

    @classmethod
    def for_stop(cls, params: Sequence[SamplingParams], device: torch.device | str = "cpu") -> "FilterParams":
        columns = [(p.stop_temperature, p.stop_top_k, p.stop_top_p, 1.0) for p in params]
        return cls.from_columns(*zip(*columns, strict=True), device=device)

    @classmethod
    def from_columns(
        cls,
        temperature: Sequence[float] | np.ndarray,
        top_k: Sequence[int] | np.ndarray,
        top_p: Sequence[float] | np.ndarray,
        repetition_penalty: Sequence[float] | np.ndarray,
        device: torch.device | str = "cpu",
    ) -> "FilterParams":
        return cls(
            temperature=torch.tensor(temperature, dtype=torch.float32, device=device),
            top_k=torch.tensor(top_k, dtype=torch.int64, device=device),
            top_p=torch.tensor(top_p, dtype=torch.float32, device=device),
            repetition_penalty=torch.tensor(repetition_penalty, dtype=torch.float32, device=device),
        )

    def index(self, rows: torch.Tensor) -> "FilterParams":
        """The parameters of `rows` (int64 or bool), in that order."""
        return FilterParams(self.temperature[rows], self.top_k[rows], self.top_p[rows], self.repetition_penalty[rows])

    @cached_property
    def greedy(self) -> torch.Tensor:
        return self.temperature <= 0

    @cached_property
    def _divisor(self) -> torch.Tensor:
        return self.temperature.clamp(min=_MIN_DIVISOR).masked_fill(self.greedy, 1)[:, None]

    @cached_property
    def _last_rank(self) -> torch.Tensor:
        """Rank of the last entry within top-k, int64 `[B, 1]`, not yet cut to the number of logits."""
        limit = self.top_k.masked_fill(self.top_k <= 0, _UNLIMITED).masked_fill(self.greedy, 1)
        return limit[:, None] - 1

    @cached_property
    def _shortlist_width(self) -> int:
        """Enough entries for every row whose top-k is that small, with one beyond to see it by."""
        ranks = int(self._last_rank.clamp(max=_SHORTLISTS[-1] - 2).max())
        return next(width for width in _SHORTLISTS if width > ranks + 1)

    @cached_property
    def _top_p_bits(self) -> torch.Tensor:
        """top_p in units of 2**-24, int64 `[B, 1]`; greedy is 0, which keeps the best entry alone."""
        off = (self.top_p <= 0) | (self.top_p >= 1)
        units = (self.top_p.masked_fill(off, 1) * 2.0**UNIFORM_BITS).ceil().to(torch.int64)
        return units.masked_fill(self.greedy, 0)[:, None]


@dataclass(frozen=True)
class Draws:
    """The randomness of one frame, prepared once from the states of its rows.

    bits: int64 `[B, draws]`, uniform in [0, 2**24) for rows with a counter, 0 for the others.
    generators: (row, generator) of the rows that own one. unseeded: int64, the rows on the global stream.
    """

    bits: torch.Tensor
    generators: tuple[tuple[int, torch.Generator], ...] = ()
    unseeded: torch.Tensor | None = None

    @classmethod
    def from_counters(cls, seeds: torch.Tensor, frames: torch.Tensor, draws: int) -> "Draws":
        """Every row has a counter: int64 `[B]` each. Works on tensors alone, so a graph can capture it."""
        return cls(uniform_bits(seeds, frames, draws))

    @classmethod
    def from_states(cls, states: BatchStates, rows: int, draws: int, device: torch.device | str = "cpu") -> "Draws":
        """One state a row. ValueError when their number differs from `rows`, TypeError for anything else."""
        check_row_states(states, rows)
        if states is None:
            states = [None] * rows
        elif isinstance(states, torch.Generator):
            states = [states]
        for state in states:
            if state is not None and not isinstance(state, CounterState | torch.Generator):
                raise TypeError(f"a row's random state cannot be a {type(state).__name__}")
        counters = [s if isinstance(s, CounterState) else None for s in states]
        unseeded = [row for row, state in enumerate(states) if state is None]
        return cls(
            bits=_counter_bits(counters, draws, device),
            generators=tuple((row, s) for row, s in enumerate(states) if isinstance(s, torch.Generator)),
            unseeded=torch.tensor(unseeded, device=device) if unseeded else None,
        )


def draw_codes(
    logits: torch.Tensor,
    params: FilterParams,
    emitted: torch.Tensor | None,
    draws: Draws,
    draw: int,
) -> torch.Tensor:
    """One code a row, int64 `[B]`, from logits `[B, V]` of any floating dtype.

    draw: which draw of the frame this is. emitted: bool `[B, V]`, the codes each row has emitted
    from this codebook; None when no row is penalised.

    Counter rows take the inverse of the cumulative distribution, entries in order of logit, then index.
    Generator rows take `torch.multinomial` of the row alone, a greedy row leaving its generator as it is.
    Rows without a state share one `torch.multinomial` on the global stream, greedy ones included, so that a
    batch without any state equals `torch.multinomial(filtered_probabilities(...), 1)` bit for bit.
    """
    logits = _penalised(logits, params, emitted)
    if draws.unseeded is not None and len(draws.unseeded) == len(logits):
        return torch.multinomial(_dense(logits, params), 1)[:, 0]
    codes = _by_width(logits, params, lambda c, rows: c.pick(draws.bits[rows, draw : draw + 1]))
    if draws.generators or draws.unseeded is not None:
        _draw_from_streams(codes, _dense(logits, params), params, draws)
    return codes


def filtered_probabilities(
    logits: torch.Tensor, params: FilterParams, emitted: torch.Tensor | None = None
) -> torch.Tensor:
    """What a draw is made from: float32 `[B, V]`, zero where filtered out. Arguments as for `draw_codes`.

    A greedy row has 1 at its best logit, the lowest index among equals. Fixed point drops what is far below
    the resolution of a draw: of 1024 logits, those below 2**-28 times the best.
    """
    return _dense(_penalised(logits, params, emitted), params)


def pack_emitted(emitted: np.ndarray) -> np.ndarray:
    """bool `[..., V]` as bits, uint8 `[..., ceil(V / 8)]`, to travel with a call."""
    return np.packbits(emitted, axis=-1)


def unpack_emitted(packed: np.ndarray, size: int) -> np.ndarray:
    """The bool `[..., size]` that `pack_emitted` saw."""
    return np.unpackbits(packed, axis=-1, count=size).view(np.bool_)


@dataclass(frozen=True)
class _Candidates:
    """The best entries of each row, best first, int64: those that may be drawn, then others.

    indices: `[B, W]`. weights: `[B, W]`, proportional to the probabilities, 0 outside top-k.
    cumulative: `[B, W]`, running sum of the weights. mass: `[B, 1]`, sum of the weights within top-p.
    """

    indices: torch.Tensor
    weights: torch.Tensor
    cumulative: torch.Tensor
    mass: torch.Tensor

    def pick(self, bits: torch.Tensor) -> torch.Tensor:
        """The first entry whose cumulative weight exceeds bits / 2**24 of the mass, `[B]`; bits: `[B, 1]`."""
        share = bits * self.mass >> UNIFORM_BITS
        rank = torch.searchsorted(self.cumulative, share, right=True).clamp_(max=self.indices.shape[1] - 1)
        return self.indices.gather(1, rank)[:, 0]

    def dense(self, size: int) -> torch.Tensor:
        """Probabilities in vocabulary order, float32 `[B, size]`."""
        kept = self.weights.masked_fill(self.cumulative > self.mass, 0)
        probabilities = kept.to(torch.float32) / self.mass.to(torch.float32)
        return torch.zeros(len(kept), size, device=kept.device).scatter_(1, self.indices, probabilities)


def _penalised(logits: torch.Tensor, params: FilterParams, emitted: torch.Tensor | None) -> torch.Tensor:
    logits = logits.to(torch.float32)
    if emitted is None:
        return logits
    penalty = params.repetition_penalty[:, None]
    return torch.where(emitted, torch.where(logits < 0, logits * penalty, logits / penalty), logits)


def _dense(logits: torch.Tensor, params: FilterParams) -> torch.Tensor:
    return _by_width(logits, params, lambda candidates, _rows: candidates.dense(logits.shape[1]))


def _draw_from_streams(codes: torch.Tensor, probabilities: torch.Tensor, params: FilterParams, draws: Draws) -> None:
    """Overwrites the codes of the rows that draw from torch streams; greedy rows already have theirs."""
    if draws.unseeded is not None:
        codes[draws.unseeded] = torch.multinomial(probabilities[draws.unseeded], 1)[:, 0]
    greedy = params.greedy.tolist() if draws.generators else []
    for row, generator in draws.generators:
        if not greedy[row]:
            codes[row] = torch.multinomial(probabilities[row : row + 1], 1, generator=generator)[0, 0]


def _by_width(
    logits: torch.Tensor, params: FilterParams, finish: Callable[[_Candidates, _Rows], torch.Tensor]
) -> torch.Tensor:
    """`finish(candidates, rows)` of every row, computed on a shortlist where a CPU finds that enough.

    The width changes the cost alone: what is left out has weight 0. Other devices sort all logits, which
    is cheap there, while asking whether a shortlist is enough would stall them.
    """
    everything = slice(None)
    width = params._shortlist_width if logits.device.type == "cpu" else logits.shape[1]
    if logits.shape[1] <= width:
        return finish(_candidates(logits, params, everything), everything)
    best, indices = _shortlist(logits, width)
    best.div_(params._divisor)
    threshold = _threshold(best, params._last_rank)
    enough = best[:, -1:] < threshold
    result = finish(_weigh(best, indices, threshold, params._top_p_bits, logits.shape[1]), everything)
    if not enough.all():
        rows = enough.logical_not_().nonzero()[:, 0]
        result[rows] = finish(_candidates(logits, params, rows), rows)
    return result


def _candidates(logits: torch.Tensor, params: FilterParams, rows: _Rows) -> _Candidates:
    best, indices = logits[rows].sort(dim=-1, descending=True, stable=True)
    best.div_(params._divisor[rows])
    threshold = _threshold(best, params._last_rank[rows])
    return _weigh(best, indices, threshold, params._top_p_bits[rows], logits.shape[1])


def _weigh(
    best: torch.Tensor, indices: torch.Tensor, threshold: torch.Tensor, top_p_bits: torch.Tensor, size: int
) -> _Candidates:
    """Top-k and top-p on tempered logits sorted descending, float32 `[B, W]`, the best of `size`.

    Weights are exp(logit - best logit) in fixed point, scaled so that the products below stay under 2**63.
    """
    scale = 2.0 ** (62 - UNIFORM_BITS - (size - 1).bit_length())
    weights = (best - best[:, :1]).exp_().mul_(scale).to(torch.int64).masked_fill_(best < threshold, 0)
    cumulative = weights.cumsum(-1)
    limit = top_p_bits * cumulative[:, -1:] >> UNIFORM_BITS
    mass = cumulative.masked_fill(cumulative - weights > limit, 0).amax(-1, keepdim=True)
    return _Candidates(indices, weights, cumulative, mass)


def _threshold(best: torch.Tensor, last_rank: torch.Tensor) -> torch.Tensor:
    """The k-th largest logit, `[B, 1]`; logits equal to it stay. The last one when k reaches further."""
    return best.gather(1, last_rank.clamp(max=best.shape[1] - 1))


def _shortlist(logits: torch.Tensor, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The `width` best logits and their indices, by logit descending, then index ascending.

    Which of several equal to the last one it holds is left open.
    """
    indices = logits.topk(width, sorted=False).indices.sort(-1).values
    best, order = logits.gather(1, indices).sort(dim=-1, descending=True, stable=True)
    return best, indices.gather(1, order)


def _counter_bits(counters: list[CounterState | None], draws: int, device: torch.device | str) -> torch.Tensor:
    rows = [row for row, state in enumerate(counters) if state is not None]
    bits = torch.zeros(len(counters), draws, dtype=torch.int64, device=device)
    if rows:
        seeds = torch.tensor([counters[row].seed for row in rows], device=device)
        frames = torch.tensor([counters[row].frame for row in rows], device=device)
        bits[torch.tensor(rows, device=device)] = uniform_bits(seeds, frames, draws)
    return bits
