"""Causal attention over KV blocks whose result for a query depends on nothing but its own sequence.

Every product has one fixed shape: a *tile* of `tile` consecutive queries against one *block* of keys. A step is a
flat list of (tile, block) pairs, whatever the number and lengths of its sequences, so neighbours, padding and the
way a sequence was cut into calls never change a matrix product. The parts of one tile are then joined in the order
of their blocks by a pairwise tree, in which absent parts add exact zeros.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.kv_blocks import BlockTable, KVBlocks
from pipeline.relaxed_attention import RelaxedPlan, attend_relaxed, plan_relaxed


@dataclass(frozen=True)
class Span:
    """The new rows of one sequence: positions `start .. start + count - 1`, both multiples of the tile."""

    table: BlockTable
    start: int
    count: int


@dataclass(frozen=True)
class TileGroup:
    """Consecutive tiles `first .. last - 1` of a plan, with all their pairs."""

    first: int
    last: int
    pair_tile: Tensor
    """int64 [pairs], counted from `first`."""
    pair_block: Tensor
    """int64 [pairs], index into the KV blocks."""
    masks: Tensor
    """float32 [kinds, 1, tile, 1, block_size]: 0, or -inf at keys a query must not see."""
    mask: Tensor
    """int64 [pairs]: the mask of each pair."""
    parts: Tensor
    """int64 [tiles, width]: the pairs of each tile in block order; absent ones point one past the last pair."""


@dataclass(frozen=True)
class AttentionPlan:
    """What one step reads and writes; made once, used by every layer."""

    tile: int
    rows: int
    write_blocks: Tensor
    write_offsets: Tensor
    groups: tuple[TileGroup, ...]


def plan_attention(
    spans: Sequence[Span], kv: KVBlocks, *, tile: int = 1, window: int | None = None, relaxed: bool = False
) -> AttentionPlan | RelaxedPlan:
    """Lays out the rows of `spans`, in order, against the blocks of their sequences.

    A query at position i sees keys j with `0 <= i - j < window` (all earlier ones without a window). `relaxed` gives up
    the promise of this module for torch's fused kernel.
    """
    if relaxed:
        return plan_relaxed(spans, kv, window)
    block_size, device = kv.block_size, kv.keys.device
    starts = np.array([span.start for span in spans])
    counts = np.array([span.count for span in spans])
    tables = _padded_tables(spans)
    tile_span = np.repeat(np.arange(len(spans)), counts // tile)
    tile_start = _ranges(starts // tile, counts // tile) * tile

    last_block = (tile_start + tile - 1) // block_size
    first_block = np.zeros_like(last_block) if window is None else np.maximum(tile_start - window + 1, 0) // block_size
    pairs = last_block - first_block + 1
    firsts = np.array([span.table.first for span in spans])

    row_span = np.repeat(np.arange(len(spans)), counts)
    row_position = _ranges(starts, counts)
    groups = []
    for lo, hi in _cut(pairs, kv.blocks_at_once):
        pair_tile = np.repeat(np.arange(lo, hi), pairs[lo:hi])
        block = _ranges(first_block[lo:hi], pairs[lo:hi])
        span = tile_span[pair_tile]
        masks, mask = _masks(tile_start[pair_tile] - block * block_size, tile, block_size, window)
        groups.append(
            TileGroup(
                first=lo,
                last=hi,
                pair_tile=torch.from_numpy(pair_tile - lo).to(device),
                pair_block=torch.from_numpy(tables[span, block - firsts[span]]).to(device),
                masks=masks.to(device),
                mask=mask.to(device),
                parts=torch.from_numpy(_parts(pairs[lo:hi])).to(device),
            )
        )
    write_blocks = tables[row_span, row_position // block_size - firsts[row_span]]
    return AttentionPlan(
        tile=tile,
        rows=int(counts.sum()),
        write_blocks=torch.from_numpy(write_blocks).to(device),
        write_offsets=torch.from_numpy(row_position % block_size).to(device),
        groups=tuple(groups),
    )


def attend(
    queries: Tensor, keys: Tensor, values: Tensor, kv: KVBlocks, layer: int, plan: AttentionPlan | RelaxedPlan
) -> Tensor:
    """Stores the new keys and values, then attends: `[rows, heads, head_dim]` from queries of that shape.

    keys, values: `[rows, kv_heads, head_dim]`. Query heads share key heads in equal consecutive groups. Scores,
    weights and sums are float32 whatever the storage; the result has the dtype of `queries`.
    """
    if isinstance(plan, RelaxedPlan):
        return attend_relaxed(queries, keys, values, kv, layer, plan)
    kv.write(layer, plan.write_blocks, plan.write_offsets, keys, values)
    rows, heads, size = queries.shape
    kv_heads = keys.shape[1]
    tiles = (queries.float() * size**-0.5).view(rows // plan.tile, plan.tile, kv_heads, heads // kv_heads, size)
    # Contiguous even for a single tile, which `reshape` would leave strided: strides choose kernels too.
    tiles = tiles.transpose(1, 2).contiguous().view(rows // plan.tile, kv_heads, -1, size)
    outputs = [
        _attend_group(tiles[group.first : group.last], kv.keys[layer], kv.values[layer], plan.tile, group)
        for group in plan.groups
    ]
    joined = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
    joined = joined.view(rows // plan.tile, kv_heads, plan.tile, heads // kv_heads, size).transpose(1, 2)
    return joined.reshape(rows, heads, size).to(queries.dtype)


def _attend_group(tiles: Tensor, all_keys: Tensor, all_values: Tensor, tile: int, group: TileGroup) -> Tensor:
    keys = all_keys.index_select(0, group.pair_block).float()
    values = all_values.index_select(0, group.pair_block).float()
    scores = torch.matmul(tiles.index_select(0, group.pair_tile), keys.transpose(-1, -2))
    pairs, kv_heads, queries, block_size = scores.shape
    scores.view(pairs, kv_heads, tile, queries // tile, block_size).add_(group.masks.index_select(0, group.mask))
    # The maximum is exact in any order, so all parts of a tile can share it and need no rescaling.
    peak = F.pad(scores.amax(-1), (0, 0, 0, 0, 0, 1), value=float("-inf"))[group.parts].amax(1)
    weights = scores.sub_(peak[group.pair_tile].unsqueeze(-1)).exp_()
    parts = torch.cat((torch.matmul(weights, values), weights.sum(-1, keepdim=True)), dim=-1)
    parts = F.pad(parts, (0, 0, 0, 0, 0, 0, 0, 1))[group.parts]
    total = _tree_sum(parts)
    return total[..., :-1] / total[..., -1:]


def _masks(ahead: np.ndarray, tile: int, block_size: int, window: int | None) -> tuple[Tensor, Tensor]:
    """The different masks, and which of them each pair has, from how far its tile starts ahead of its block."""
    if window is None:
        ahead = np.minimum(ahead, block_size - 1)  # sees the whole block, as all that are further ahead
    kinds, mask = np.unique(ahead, return_inverse=True)
    ahead = kinds[:, None, None] + np.arange(tile)[:, None] - np.arange(block_size)
    hidden = (ahead < 0) if window is None else (ahead < 0) | (ahead >= window)
    masks = np.where(hidden, -np.inf, 0.0).astype(np.float32)
    return torch.from_numpy(masks[:, None, :, None, :]), torch.from_numpy(mask)


def _tree_sum(parts: Tensor) -> Tensor:
    """Sums dimension 1, a power of two wide, pairwise: trailing zeros do not change how the rest is added."""
    while parts.shape[1] > 1:
        parts = parts[:, 0::2] + parts[:, 1::2]
    return parts[:, 0]


def _padded_tables(spans: Sequence[Span]) -> np.ndarray:
    tables = np.zeros((len(spans), max(len(span.table.blocks) for span in spans)), dtype=np.int64)
    for row, span in enumerate(spans):
        tables[row, : len(span.table.blocks)] = span.table.blocks
    return tables


def _ranges(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """`[s, s + 1, .. s + c - 1]` of every (s, c), one after the other."""
    ends = np.cumsum(counts)
    return np.arange(ends[-1]) + np.repeat(starts - (ends - counts), counts)


def _cut(pairs: np.ndarray, limit: int) -> list[tuple[int, int]]:
    """Cuts tiles into runs of at most `limit` pairs (a tile alone may exceed it)."""
    cuts, lo, held = [], 0, 0
    for index, count in enumerate(pairs.tolist()):
        if held and held + count > limit:
            cuts.append((lo, index))
            lo, held = index, 0
        held += count
    return [*cuts, (lo, len(pairs))]


def _parts(pairs: np.ndarray) -> np.ndarray:
    width = 1 << int(pairs.max() - 1).bit_length()
    column = np.arange(width)
    starts = np.cumsum(pairs) - pairs
    return np.where(column < pairs[:, None], starts[:, None] + column, pairs.sum())
