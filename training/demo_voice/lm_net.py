"""The language model as a plain trainable module: a Qwen3 backbone and a depth transformer in two hundred lines.

Parameter names are the published ones, so exporting is renaming nothing. Attention is matmul, softmax, matmul: on CPUs
its backward pass is several times faster than the fused kernel's, and the weights of a head can be guided.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.config import DepthConfig, ModelConfig

INIT_STD = 0.05
"""Of the embeddings, which are the heads too: logits start with a deviation of about 0.8."""


@dataclass(frozen=True)
class HeadWeights:
    """Attention weights `[batch, time, time]` of one head of a backbone layer."""

    layer: int
    head: int
    weights: Tensor


class RMSNorm(nn.Module):
    def __init__(self, size: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x.float(), self.weight.shape, self.weight, self.eps)


class Attention(nn.Module):
    """Grouped-query attention with normed queries and keys; rotary halves concatenated."""

    def __init__(self, config):
        super().__init__()
        hidden, size = config.hidden_size, config.head_dim
        self.heads, self.kv_heads, self.size = config.num_attention_heads, config.num_key_value_heads, size
        self.q_proj = nn.Linear(hidden, self.heads * size, bias=False)
        self.k_proj = nn.Linear(hidden, self.kv_heads * size, bias=False)
        self.v_proj = nn.Linear(hidden, self.kv_heads * size, bias=False)
        self.o_proj = nn.Linear(self.heads * size, hidden, bias=False)
        self.q_norm, self.k_norm = RMSNorm(size, config.rms_norm_eps), RMSNorm(size, config.rms_norm_eps)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """`[batch, time, hidden]` -> the same, and the weights `[batch, heads, time, time]`."""
        query = self.q_norm(self._split(self.q_proj(x), self.heads))
        key = self.k_norm(self._split(self.k_proj(x), self.kv_heads))
        value = self._split(self.v_proj(x), self.kv_heads)
        query, key = _rotate_halves(query, cos, sin) * self.size**-0.5, _rotate_halves(key, cos, sin)
        group = self.heads // self.kv_heads
        batch, time = x.shape[:2]
        # Query heads of one key head lie one after the other: together they are one taller matrix.
        query = query.reshape(batch, self.kv_heads, group * time, self.size)
        scores = (query @ key.transpose(-1, -2)).view(batch, self.kv_heads, group, time, time) + mask
        weights = scores.softmax(-1)
        out = weights.view(batch, self.kv_heads, group * time, time) @ value
        out = out.view(batch, self.heads, time, self.size).transpose(1, 2).reshape(batch, time, -1)
        return self.o_proj(out), weights.view(batch, self.heads, time, time)

    def _split(self, x: Tensor, heads: int) -> Tensor:
        return x.unflatten(-1, (heads, self.size)).transpose(1, 2)


class MLP(nn.Module):
    def __init__(self, hidden: int, inner: int):
        super().__init__()
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = MLP(config.hidden_size, config.intermediate_size)


class Transformer(nn.Module):
    """Qwen3 without a cache: whole sequences, padded behind their ends, which causal attention never sees."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(
        self, x: Tensor, watched: frozenset[tuple[int, int]], below: int
    ) -> tuple[Tensor, list[HeadWeights], Tensor]:
        """States after the last norm, weights of the watched heads, and states before layer `below`."""
        time = x.shape[1]
        cos, sin = self._rotary(time)
        mask = torch.full((time, time), float("-inf")).triu(1)
        seen, before = [], x
        for index, layer in enumerate(self.layers):
            before = x if index == below else before
            out, weights = layer.self_attn(layer.input_layernorm(x), cos, sin, mask)
            seen += [HeadWeights(index, head, weights[:, head]) for at, head in sorted(watched) if at == index]
            x = x + out
            x = x + layer.mlp(layer.post_attention_layernorm(x))
        return self.norm(x), seen, before

    def _rotary(self, time: int) -> tuple[Tensor, Tensor]:
        size = self.config.head_dim
        angles = torch.outer(torch.arange(time), _frequencies(self.config.rope_parameters["rope_theta"], size))
        return angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)


class DepthBlock(nn.Module):
    """Pre-norm block with biases; `c_attn` packs query, key and value; rotary pairs lie side by side."""

    def __init__(self, config: DepthConfig):
        super().__init__()
        hidden, self.heads = config.hidden_size, config.num_heads
        self.ln_1 = nn.LayerNorm(hidden, eps=config.layer_norm_eps)
        self.attn = nn.ModuleDict({"c_attn": nn.Linear(hidden, 3 * hidden), "c_proj": nn.Linear(hidden, hidden)})
        self.ln_2 = nn.LayerNorm(hidden, eps=config.layer_norm_eps)
        self.mlp = nn.ModuleDict(
            {"fc_in": nn.Linear(hidden, config.inner_size), "fc_out": nn.Linear(config.inner_size, hidden)}
        )

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        packed = self.attn["c_attn"](self.ln_1(x)).unflatten(-1, (3, self.heads, -1))
        query, key, value = packed.transpose(1, 3).unbind(2)
        query, key = _rotate_pairs(query, cos, sin) * query.shape[-1] ** -0.5, _rotate_pairs(key, cos, sin)
        weights = (query @ key.transpose(-1, -2) + mask).softmax(-1)
        x = x + self.attn["c_proj"]((weights @ value).transpose(1, 2).flatten(2))
        return x + self.mlp["fc_out"](F.silu(self.mlp["fc_in"](self.ln_2(x))))


class DepthTransformer(nn.Module):
    """All codebooks of a frame at once, the true codes fed back."""

    def __init__(self, config: DepthConfig):
        super().__init__()
        self.config = config
        self.h = nn.ModuleList(DepthBlock(config) for _ in range(config.num_layers))
        self.ln_f = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(self, x: Tensor) -> Tensor:
        """`[frames, n_vq, hidden]` -> outputs after the last norm."""
        steps = x.shape[1]
        angles = torch.outer(torch.arange(steps), _frequencies(self.config.rope_base, self.config.head_dim))
        mask = torch.full((steps, steps), float("-inf")).triu(1)
        for block in self.h:
            x = block(x, angles.cos(), angles.sin(), mask)
        return self.ln_f(x)


class LanguageModel(nn.Module):
    """The served networks with one embedding for each codebook, which is its head too."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        self.transformer = Transformer(config.backbone)
        self.local_transformer = DepthTransformer(config.depth)
        self.audio_embeddings = nn.ModuleList(nn.Embedding(size, config.hidden_size) for size in config.codebook_sizes)
        self.local_text_lm_head = nn.Linear(config.hidden_size, 2, bias=False)
        self.apply(_initialise)

    def embed(self, rows: Tensor) -> Tensor:
        """`[batch, time, hidden]` of rows int64 `[batch, time, 1 + n_vq]`; the pad code adds zero."""
        x = self.transformer.embed_tokens(rows[..., 0])
        # One lookup for all codebooks: codebook k starts at its offset in the joined table, whose last row is zero.
        table = torch.cat([*(each.weight for each in self.audio_embeddings), x.new_zeros(1, x.shape[-1])])
        sizes = torch.tensor([0, *self.config.codebook_sizes[:-1]])
        codes = rows[..., 1:]
        places = torch.where(codes == self.config.audio_pad_code, len(table) - 1, codes + sizes.cumsum(0))
        return x + F.embedding_bag(places.flatten(0, 1), table, mode="sum").view_as(x)

    def hidden(
        self, rows: Tensor, watched: frozenset[tuple[int, int]] = frozenset(), below: int = 0
    ) -> tuple[Tensor, list[HeadWeights], Tensor]:
        """Hidden states after the final norm, `[batch, time, hidden]`, of rows int64 `[batch, time, 1 + n_vq]`.

        Also the weights of the `watched` (layer, head) pairs, and the hidden states before layer `below`.
        """
        return self.transformer(self.embed(rows), watched, below)

    def frame_logits(self, hidden: Tensor, codes: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Stop logits `[frames, 2]` and, for each codebook, logits `[frames, codes]`, given the codes before it.

        hidden `[frames, hidden]`; codes int64 `[frames, n_vq]`, of which the last codebook is not read.
        """
        fed = [embedding(codes[:, k]) for k, embedding in enumerate(self.audio_embeddings[:-1])]
        out = self.local_transformer(torch.stack([hidden, *fed], dim=1))
        heads = [F.linear(out[:, k], embedding.weight) for k, embedding in enumerate(self.audio_embeddings)]
        return self.local_text_lm_head(out[:, 0]), heads


def _frequencies(base: float, size: int) -> Tensor:
    return base ** (-torch.arange(0, size, 2) / size)


def _rotate_halves(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


def _rotate_pairs(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


def _initialise(module: nn.Module) -> None:
    if isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=INIT_STD)
    elif isinstance(module, nn.Linear):
        nn.init.normal_(module.weight, std=module.in_features**-0.5 / math.sqrt(2))
        if module.bias is not None:
            nn.init.zeros_(module.bias)
