"""The depth transformer: from one hidden state of the backbone to a stop decision and the codes of one frame.

It is detached from the time axis: every frame starts with an empty cache at position 0, so nothing outlives a call.
"""

from pathlib import Path

import torch
from torch import Tensor, nn

from pipeline.activations import ExactSiLU, relax_activations
from pipeline.checkpoint import load_module, open_tts
from pipeline.config import DepthConfig, ModelConfig
from pipeline.rotary import rotary_frequencies, rotate
from pipeline.row_buckets import CPU_DEFAULT, UNPADDED


class _Attention(nn.Module):
    def __init__(self, config: DepthConfig):
        super().__init__()
        self.c_attn = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.c_proj = nn.Linear(config.hidden_size, config.hidden_size)


class _MLP(nn.Module):
    def __init__(self, config: DepthConfig):
        super().__init__()
        self.fc_in = nn.Linear(config.hidden_size, config.inner_size)
        self.act = ExactSiLU()
        self.fc_out = nn.Linear(config.inner_size, config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc_out(self.act(self.fc_in(x)))


class _Block(nn.Module):
    def __init__(self, config: DepthConfig):
        super().__init__()
        self.heads, self.head_dim = config.num_heads, config.head_dim
        self.ln_1 = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.attn = _Attention(config)
        self.ln_2 = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.mlp = _MLP(config)

    def forward(self, x: Tensor, cache: Tensor, step: int, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attn.c_proj(self._attend(self.attn.c_attn(self.ln_1(x)), cache, step, cos, sin).to(x.dtype))
        return x + self.mlp(self.ln_2(x))

    def _attend(self, packed: Tensor, cache: Tensor, step: int, cos: Tensor, sin: Tensor) -> Tensor:
        """Attention of the newest position over the cache `[2, rows, heads, steps, head_dim]`, in float32."""
        packed = packed.float().view(-1, 3, self.heads, self.head_dim)
        query, cache[0, :, :, step] = rotate(packed[:, :2], cos, sin).unbind(1)
        cache[1, :, :, step] = packed[:, 2]
        keys, values = cache[:, :, :, : step + 1].unbind(0)
        scores = query.unsqueeze(2) @ keys.transpose(-1, -2)
        return (torch.softmax(scores.mul_(self.head_dim**-0.5), dim=-1) @ values).flatten(1)


class _Transformer(nn.Module):
    def __init__(self, config: DepthConfig):
        super().__init__()
        self.h = nn.ModuleList(_Block(config) for _ in range(config.num_layers))
        self.ln_f = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)


class DepthTransformer(nn.Module):
    """Parameter names are the published ones; see `pipeline.sampler` for how a frame is drawn from it.

    Heads are tied to the embeddings where the checkpoint ties them; `stop_head` holds the two rows (go on, stop) of
    either published head.
    """

    accepts_generators = True
    """A batch may carry one random state a row. A model that declares False is served row by row."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        depth = config.depth
        self.config = config
        self.rows = CPU_DEFAULT
        self.local_transformer = _Transformer(depth)
        self.audio_embeddings = nn.ModuleList(nn.Embedding(size, depth.hidden_size) for size in config.codebook_sizes)
        self.audio_lm_heads = nn.ModuleList(
            nn.Linear(depth.hidden_size, size, bias=False) for size in config.codebook_sizes
        )
        self.stop_head = nn.Linear(depth.hidden_size, 2, bias=False)
        self._angles: list[tuple[Tensor, Tensor]] | None = None

    @property
    def dtype(self) -> torch.dtype:
        return self.local_transformer.ln_f.weight.dtype

    @property
    def device(self) -> torch.device:
        return self.local_transformer.ln_f.weight.device

    def relax(self) -> None:
        """Fused kernels without padding: faster, and bits that depend on the batch."""
        self.rows = UNPADDED
        relax_activations(self)

    def new_cache(self, rows: int) -> Tensor:
        """Keys and values of one frame, float32 `[layers, 2, rows, heads, n_vq, head_dim]`."""
        depth = self.config.depth
        shape = (depth.num_layers, 2, rows, depth.num_heads, self.config.n_vq, depth.head_dim)
        return torch.empty(shape, device=self.device)

    def step(self, inputs: Tensor, cache: Tensor, step: int) -> Tensor:
        """One position of the frame: inputs `[rows, hidden]` -> outputs after `ln_f`, same shape."""
        cos, sin = self._rotary()[step]
        x = inputs
        for block, block_cache in zip(self.local_transformer.h, cache, strict=True):
            x = block(x, block_cache, step, cos, sin)
        return self.local_transformer.ln_f(x)

    def stop_logits(self, outputs: Tensor) -> Tensor:
        """`[rows, 2]` from the outputs of step 0: class 0 goes on, class 1 ends the utterance."""
        return self.stop_head(outputs)

    def code_logits(self, outputs: Tensor, codebook: int) -> Tensor:
        """`[rows, codebook size]` from the outputs of step `codebook`."""
        return self.audio_lm_heads[codebook](outputs)

    def embed_code(self, codes: Tensor, codebook: int) -> Tensor:
        """The input of step `codebook + 1`: `[rows, hidden]` from int64 `[rows]`."""
        return self.audio_embeddings[codebook](codes)

    def _rotary(self) -> list[tuple[Tensor, Tensor]]:
        """cos and sin of the interleaved rotary embedding at each step, float32 `[head_dim / 2]`."""
        if self._angles is None:
            frequencies = rotary_frequencies(self.config.depth.rope_base, self.config.depth.head_dim, self.device)
            steps = torch.arange(self.config.n_vq, dtype=torch.float32, device=self.device)
            angles = torch.outer(steps, frequencies)
            self._angles = list(zip(angles.cos(), angles.sin(), strict=True))
        return self._angles


def load_depth(
    directory: Path | str, config: ModelConfig, *, dtype: torch.dtype, device: torch.device | str = "cpu"
) -> DepthTransformer:
    """Reads the depth part of a checkpoint; raises CheckpointError if any tensor of the whole is wrong."""
    checkpoint = open_tts(directory, config)
    with torch.device("meta"):
        depth = DepthTransformer(config)
    if config.stop_head == "full_vocab":
        rows = [config.tokens.assistant_slot, config.tokens.audio_end]
        weight = checkpoint.read_rows("text_lm_head.weight", rows, dtype, device)
        depth.stop_head.weight = nn.Parameter(weight, requires_grad=False)
    load_module(depth, checkpoint, _published_name, dtype, device)
    return depth.eval()


def _published_name(name: str) -> str:
    return name.replace("stop_head.", "local_text_lm_head.")
