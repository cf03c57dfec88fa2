"""The backbone: transformers' Qwen3 over KV blocks, fed with packed rows of any number of sequences."""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, Qwen3Model
from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

from pipeline.activations import ExactSiLU, relax_activations
from pipeline.attention import AttentionPlan, Span, attend, plan_attention
from pipeline.checkpoint import load_module, open_tts
from pipeline.config import ModelConfig
from pipeline.kv_blocks import KVBlocks
from pipeline.row_buckets import CPU_DEFAULT, UNPADDED

ATTENTION = "kv_blocks"


def _kv_block_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    _mask: None,
    *,
    kv: KVBlocks,
    plan: AttentionPlan,
    **_unused: object,
) -> tuple[Tensor, None]:
    """transformers' attention interface: `[1, heads, padded, head_dim]` in, `[1, padded, heads, head_dim]` out."""
    padded = query.shape[2]
    query, key, value = (x[0].transpose(0, 1)[: plan.rows] for x in (query, key, value))
    out = attend(query, key, value, kv, module.layer_idx, plan)
    return torch.cat((out, out.new_zeros(padded - plan.rows, *out.shape[1:]))).unsqueeze(0), None


AttentionInterface.register(ATTENTION, _kv_block_attention)


class Backbone(nn.Module):
    """Qwen3 with the codes' embeddings. Parameter names are the published ones."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        self.rows = CPU_DEFAULT
        self.relaxed = False
        config.backbone._attn_implementation = ATTENTION
        self.transformer = Qwen3Model(config.backbone)
        for layer in self.transformer.layers:
            layer.mlp.act_fn = ExactSiLU()
        self.audio_embeddings = nn.ModuleList(nn.Embedding(size, config.hidden_size) for size in config.codebook_sizes)

    @property
    def dtype(self) -> torch.dtype:
        return self.transformer.norm.weight.dtype

    @property
    def device(self) -> torch.device:
        return self.transformer.norm.weight.device

    def relax(self) -> None:
        """Fused kernels without padding: faster, and bits that depend on the batch."""
        self.rows, self.relaxed = UNPADDED, True
        relax_activations(self)

    def new_kv_blocks(self, blocks: int, block_size: int) -> KVBlocks:
        qwen = self.config.backbone
        return KVBlocks(
            layers=qwen.num_hidden_layers,
            blocks=blocks,
            kv_heads=qwen.num_key_value_heads,
            block_size=block_size,
            head_dim=qwen.head_dim,
            dtype=self.dtype,
            device=self.device,
        )

    def embed(self, rows: Tensor) -> Tensor:
        """Input embeddings `[T, hidden]` of rows `[T, 1 + n_vq]`; the pad code adds exactly zero."""
        embedded = self.transformer.embed_tokens(rows[:, 0])
        for codebook, embedding in enumerate(self.audio_embeddings):
            codes = rows[:, 1 + codebook]
            spoken = codes != self.config.audio_pad_code
            embedded = embedded + embedding(codes * spoken) * spoken.unsqueeze(1)
        return embedded

    @torch.inference_mode()
    def forward(self, rows: Tensor, spans: Sequence[Span], kv: KVBlocks) -> Tensor:
        """Hidden states after the final norm, `[T, hidden]`, of rows `[T, 1 + n_vq]` int64.

        `spans` says which rows belong to which sequence and where they stand in it; their blocks must be there
        already. Prefill and decode are the same call: a row's bits depend on its sequence alone.
        """
        rows = rows.to(self.device)
        plan = plan_attention(spans, kv, relaxed=self.relaxed)
        positions = torch.cat([torch.arange(span.start, span.start + span.count) for span in spans])
        hidden = self.transformer(
            inputs_embeds=self.rows.pad(self.embed(rows)).unsqueeze(0),
            position_ids=self.rows.pad(positions.to(self.device)).unsqueeze(0),
            attention_mask={"full_attention": None},
            use_cache=False,
            kv=kv,
            plan=plan,
        ).last_hidden_state
        return hidden[0, : plan.rows]


def load_backbone(
    directory: Path | str, config: ModelConfig, *, dtype: torch.dtype, device: torch.device | str = "cpu"
) -> Backbone:
    """Reads the backbone's part of a checkpoint; raises CheckpointError if any tensor of the whole is wrong."""
    checkpoint = open_tts(directory, config)
    with torch.device("meta"):
        backbone = Backbone(config)
    backbone.transformer.rotary_emb = Qwen3RotaryEmbedding(config.backbone).to(device)
    load_module(backbone, checkpoint, dtype=dtype, device=device)
    return backbone.eval()
