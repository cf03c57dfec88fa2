"""One causal transformer of the codec over packed rows: the new positions of one stream after the other.

Module and parameter names are the published ones, so a checkpoint loads by prefix.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pipeline.activations import ExactGELU
from pipeline.attention import AttentionPlan, Span, attend, plan_attention
from pipeline.config import TransformerStage
from pipeline.kv_blocks import KVBlocks
from pipeline.rotary import rotary_frequencies, rotate
from pipeline.row_buckets import RowBuckets

LAYER_NORM_EPS = 1e-5


@dataclass(frozen=True)
class StepPlan:
    """What one step needs in every layer of a stage; made once for all of them."""

    attention: AttentionPlan
    cos: Tensor
    sin: Tensor
    rows: RowBuckets


def plan_step(
    stage: TransformerStage, spans: Sequence[Span], kv: KVBlocks, rows: RowBuckets, relaxed: bool
) -> StepPlan:
    """Lays out the rows of `spans`; a tile is one codec frame, so steps of whole frames never cut a tile."""
    device = kv.keys.device
    positions = torch.cat([torch.arange(span.start, span.start + span.count) for span in spans]).to(device)
    frequencies = rotary_frequencies(stage.rope_base, stage.hidden_size // stage.num_heads, device)
    angles = positions.float()[:, None, None, None] * frequencies
    attention = plan_attention(spans, kv, tile=stage.positions_per_frame, window=stage.context, relaxed=relaxed)
    return StepPlan(attention, torch.cos(angles), torch.sin(angles), rows)


class CodecTransformer(nn.Module):
    """`[rows, input_size]` -> `[rows, output_size]`."""

    def __init__(self, stage: TransformerStage):
        super().__init__()
        self.input_proj = nn.Linear(stage.input_size, stage.hidden_size, bias=False)
        self.transformer = nn.ModuleDict(
            {"layers": nn.ModuleList(TransformerLayer(stage) for _ in range(stage.num_layers))}
        )
        self.output_proj = nn.Linear(stage.hidden_size, stage.output_size, bias=False)

    def forward(self, rows: Tensor, kv: KVBlocks, plan: StepPlan) -> Tensor:
        x = plan.rows.apply(self.input_proj, plan.rows.pad(rows))
        for index, layer in enumerate(self.transformer["layers"]):
            x = layer(x, kv, index, plan)
        return plan.rows.apply(self.output_proj, x)[: rows.shape[0]]


class TransformerLayer(nn.Module):
    """Pre-norm block: `x + scale_1 * attention(norm1(x))`, then `x + scale_2 * ffn(norm2(x))`."""

    def __init__(self, stage: TransformerStage):
        super().__init__()
        size, inner = stage.hidden_size, stage.inner_size
        self.norm1 = nn.LayerNorm(size, eps=LAYER_NORM_EPS)
        self.self_attn = SelfAttention(size, stage.num_heads)
        self.layer_scale_1 = LayerScale(size) if stage.layer_scale else nn.Identity()
        self.norm2 = nn.LayerNorm(size, eps=LAYER_NORM_EPS)
        self.ffn = nn.Sequential(nn.Linear(size, inner, bias=False), ExactGELU(), nn.Linear(inner, size, bias=False))
        self.layer_scale_2 = LayerScale(size) if stage.layer_scale else nn.Identity()

    def forward(self, x: Tensor, kv: KVBlocks, layer: int, plan: StepPlan) -> Tensor:
        x = x + self.layer_scale_1(self.self_attn(self.norm1(x), kv, layer, plan))
        return x + self.layer_scale_2(plan.rows.apply(self.ffn, self.norm2(x)))


class SelfAttention(nn.Module):
    """Windowed causal self-attention; keys are stored after rotary."""

    def __init__(self, size: int, num_heads: int):
        super().__init__()
        self.num_heads = num_heads
        self.in_proj = nn.Linear(size, 3 * size, bias=False)
        self.out_proj = nn.Linear(size, size, bias=False)

    def forward(self, x: Tensor, kv: KVBlocks, layer: int, plan: StepPlan) -> Tensor:
        packed = plan.rows.apply(self.in_proj, x)[: plan.attention.rows].unflatten(1, (3, self.num_heads, -1))
        queries, keys = rotate(packed[:, :2], plan.cos, plan.sin).to(packed.dtype).unbind(1)
        mixed = attend(queries, keys, packed[:, 2], kv, layer, plan.attention)
        return plan.rows.apply(self.out_proj, plan.rows.pad(mixed.flatten(1)))


class LayerScale(nn.Module):
    """Multiplies every channel by its own factor (Touvron et al. 2021, "CaiT")."""

    def __init__(self, size: int):
        super().__init__()
        self.scale = nn.Parameter(torch.empty(size))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * x
