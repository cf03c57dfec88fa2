"""The codec as a module that learns. Its `state_dict` has the published names and shapes: exporting is saving it.

The arithmetic is that of `pipeline.codec`, written for batches of equal crops instead of streams.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.config import CodecConfig, PatchStage, TransformerStage
from pipeline.rotary import rotary_frequencies
from training.demo_voice.codec_quantizer import Quantized, ResidualQuantizer

LAYER_SCALE = 0.2
"""Where the layer scales begin: the networks are shallow."""


class Codec(nn.Module):
    """Mono audio to codes and back."""

    def __init__(self, config: CodecConfig):
        super().__init__()
        self.config = config
        self.encoder = nn.ModuleList(
            Fold(stage.patch) if isinstance(stage, PatchStage) else Transformer(stage) for stage in config.encoder
        )
        self.quantizer = ResidualQuantizer(config.quantizer)
        self.decoder = nn.ModuleList(
            Unfold(stage.patch) if isinstance(stage, PatchStage) else Transformer(stage) for stage in config.decoder
        )

    def encode(self, audio: Tensor) -> Tensor:
        """Latents `[batch, frames, hidden_size]` of the quantizer, from `[batch, samples]` of whole frames."""
        x = audio[..., None]
        for module in self.encoder:
            x = module(x)
        return self.quantizer.project_in(x)

    def decode(self, latents: Tensor) -> Tensor:
        """`[batch, samples]` from latents as `encode` or the quantizer gives them."""
        x = self.quantizer.project_out(latents)
        for module in self.decoder:
            x = module(x)
        return x[..., 0]

    def forward(self, audio: Tensor, stages: Tensor | None = None) -> tuple[Tensor, Quantized]:
        """The audio as it comes back, each row through its own number of `stages` (None: all)."""
        quantized = self.quantizer(self.encode(audio), stages)
        return self.decode(quantized.latents), quantized


class Fold(nn.Module):
    """`[batch, T, C]` -> `[batch, T / patch, C * patch]`: channel `c * patch + j` holds step j of channel c."""

    def __init__(self, patch: int):
        super().__init__()
        self.patch = patch

    def forward(self, x: Tensor) -> Tensor:
        return x.unflatten(1, (-1, self.patch)).transpose(2, 3).flatten(2)


class Unfold(nn.Module):
    """The inverse of `Fold`."""

    def __init__(self, patch: int):
        super().__init__()
        self.patch = patch

    def forward(self, x: Tensor) -> Tensor:
        return x.unflatten(2, (-1, self.patch)).transpose(2, 3).flatten(1, 2)


class Transformer(nn.Module):
    """`[batch, T, input_size]` -> `[batch, T, output_size]`."""

    def __init__(self, stage: TransformerStage):
        super().__init__()
        self.stage = stage
        self.input_proj = nn.Linear(stage.input_size, stage.hidden_size, bias=False)
        self.transformer = nn.ModuleDict({"layers": nn.ModuleList(Layer(stage) for _ in range(stage.num_layers))})
        self.output_proj = nn.Linear(stage.hidden_size, stage.output_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.input_proj(x)
        head_dim = self.stage.hidden_size // self.stage.num_heads
        frequencies = rotary_frequencies(self.stage.rope_base, head_dim, x.device)
        angles = torch.arange(x.shape[1], dtype=torch.float32)[:, None, None] * frequencies
        cos, sin = torch.cos(angles), torch.sin(angles)
        for layer in self.transformer["layers"]:
            x = layer(x, cos, sin)
        return self.output_proj(x)


class Layer(nn.Module):
    """Pre-norm block: `x + scale_1 * attention(norm1(x))`, then `x + scale_2 * ffn(norm2(x))`."""

    def __init__(self, stage: TransformerStage):
        super().__init__()
        size, inner = stage.hidden_size, stage.inner_size
        self.norm1 = nn.LayerNorm(size, eps=1e-5)
        self.self_attn = SelfAttention(size, stage.num_heads, stage.context)
        self.layer_scale_1 = LayerScale(size)
        self.norm2 = nn.LayerNorm(size, eps=1e-5)
        self.ffn = nn.Sequential(nn.Linear(size, inner, bias=False), nn.GELU(), nn.Linear(inner, size, bias=False))
        self.layer_scale_2 = LayerScale(size)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.layer_scale_1(self.self_attn(self.norm1(x), cos, sin))
        return x + self.layer_scale_2(self.ffn(self.norm2(x)))


class SelfAttention(nn.Module):
    """Causal attention over the last `context` positions, in blocks of as many, each beside the one before."""

    def __init__(self, size: int, num_heads: int, context: int):
        super().__init__()
        self.num_heads = num_heads
        self.context = context
        self.in_proj = nn.Linear(size, 3 * size, bias=False)
        self.out_proj = nn.Linear(size, size, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        queries, keys, values = self.in_proj(x).unflatten(2, (3, self.num_heads, -1)).unbind(2)
        scale = queries.shape[-1] ** -0.5
        queries, keys = rotate(queries, cos * scale, sin * scale), rotate(keys, cos, sin)
        blocks = -(-x.shape[1] // self.context)
        spare = blocks * self.context - x.shape[1]
        queries, keys, values = (
            F.pad(part, (0, 0, 0, 0, 0, spare)).unflatten(1, (blocks, self.context)).transpose(2, 3)
            for part in (queries, keys, values)
        )
        scores = queries @ _with_previous(keys).transpose(-1, -2)
        mixed = (scores + self._mask(blocks, x.device)).softmax(-1) @ _with_previous(values)
        return self.out_proj(mixed.transpose(2, 3).flatten(3).flatten(1, 2)[:, : x.shape[1]])

    def _mask(self, blocks: int, device: torch.device) -> Tensor:
        """`[blocks, 1, context, 2 * context]`: 0 where a query sees a key, else -inf; nothing is before block 0."""
        distance = torch.arange(self.context)[:, None] + self.context - torch.arange(2 * self.context)
        seen = ((distance >= 0) & (distance < self.context)).expand(blocks, 1, -1, -1).clone()
        seen[0, :, :, : self.context] = False
        return torch.zeros(seen.shape).masked_fill(~seen, -torch.inf).to(device)


def _with_previous(blocks: Tensor) -> Tensor:
    """`[batch, blocks, heads, n, D]` -> `[.., 2 * n, D]`: each block behind the one before it."""
    previous = F.pad(blocks[:, :-1], (0, 0, 0, 0, 0, 0, 1, 0))
    return torch.cat((previous, blocks), dim=3)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turns the pairs (0, 1), (2, 3), .. of the last dimension: pipeline.rotary's arithmetic, with gradients."""
    even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


class LayerScale(nn.Module):
    """Multiplies every channel by its own factor."""

    def __init__(self, size: int):
        super().__init__()
        self.scale = nn.Parameter(torch.full((size,), LAYER_SCALE))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * x
