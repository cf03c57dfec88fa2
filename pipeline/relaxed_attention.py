"""Attention for the relaxed mode: torch's fused kernel on padded sequences, fast and not batch-invariant."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.kv_blocks import KVBlocks


@dataclass(frozen=True)
class RelaxedPlan:
    """What one step reads and writes; made once, used by every layer."""

    rows: int
    write_blocks: Tensor
    write_offsets: Tensor
    row_span: Tensor
    """int64 [rows]: the sequence of each row"""
    row_index: Tensor
    """int64 [rows]: its place among the new rows of that sequence"""
    blocks: Tensor
    """int64 [sequences, blocks]: padded block tables"""
    mask: Tensor
    """bool [sequences, 1, new rows, positions]: keys a query may see"""


def plan_relaxed(spans: Sequence, kv: KVBlocks, window: int | None) -> RelaxedPlan:
    """`spans` as for `pipeline.attention.plan_attention`."""
    device, size = kv.keys.device, kv.block_size
    starts = torch.tensor([span.start for span in spans])
    counts = torch.tensor([span.count for span in spans])
    firsts = torch.tensor([span.table.first for span in spans])
    blocks = torch.zeros(len(spans), max(len(span.table.blocks) for span in spans), dtype=torch.int64)
    for index, span in enumerate(spans):
        blocks[index, : len(span.table.blocks)] = torch.tensor(span.table.blocks)
    row_span = torch.arange(len(spans)).repeat_interleave(counts)
    row_index = torch.arange(len(row_span)) - (counts.cumsum(0) - counts)[row_span]
    position = starts[row_span] + row_index
    query = starts[:, None] + torch.arange(int(counts.max()))
    key = firsts[:, None] * size + torch.arange(blocks.shape[1] * size)
    ahead = query[:, :, None] - key[:, None, :]
    mask = (ahead >= 0) if window is None else (ahead >= 0) & (ahead < window)
    tensors = (
        blocks[row_span, position // size - firsts[row_span]], position % size, row_span, row_index, blocks,
        mask[:, None],
    )  # fmt: skip
    return RelaxedPlan(len(row_span), *(tensor.to(device) for tensor in tensors))


def attend_relaxed(
    queries: Tensor, keys: Tensor, values: Tensor, kv: KVBlocks, layer: int, plan: RelaxedPlan
) -> Tensor:
    """As `pipeline.attention.attend`, with bits that depend on the batch."""
    kv.write(layer, plan.write_blocks, plan.write_offsets, keys, values)
    gathered_keys, gathered_values = (
        stored[layer][plan.blocks].transpose(1, 2).flatten(2, 3) for stored in (kv.keys, kv.values)
    )
    rows, heads, size = queries.shape
    if rows == len(plan.blocks):  # one new row each: query heads that share a key head are its rows
        grouped = queries.view(rows, keys.shape[1], -1, size)
        return F.scaled_dot_product_attention(grouped, gathered_keys, gathered_values, attn_mask=plan.mask).reshape(
            rows, heads, size
        )
    padded = queries.new_zeros(plan.mask.shape[0], plan.mask.shape[2], heads, size)
    padded[plan.row_span, plan.row_index] = queries
    mixed = F.scaled_dot_product_attention(
        padded.transpose(1, 2), gathered_keys, gathered_values, attn_mask=plan.mask, enable_gqa=True
    )
    return mixed.transpose(1, 2)[plan.row_span, plan.row_index]
