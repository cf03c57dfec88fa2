"""Modules at the published widths with random weights, made in memory."""

import torch
from torch import nn

from pipeline.config import ModelConfig
from pipeline.random_checkpoint import tts_config

SEED = 42
BACKBONE_LAYERS = 2


def sizes(width: int = 2560, heads: int = 32, inner: int = 9728) -> ModelConfig:
    """The published widths by default; the text vocabulary and the number of backbone layers are always small."""
    return ModelConfig.from_dict(raw_sizes(width, heads, inner))


def raw_sizes(width: int = 2560, heads: int = 32, inner: int = 9728) -> dict:
    """`sizes` as a `config.json`."""
    raw = tts_config(
        hidden_size=width, layers=BACKBONE_LAYERS, heads=heads, kv_heads=8, inner_size=inner, codebook_size=1024
    )
    raw["qwen3_config"]["head_dim"] = 128
    return raw


def fill(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    """Random weights whose products keep the size of what they are multiplied with; norms of 1, biases of 0."""
    module.to(dtype).to_empty(device="cpu")
    generator = seeded()
    for name, weight in module.named_parameters():
        weight.requires_grad_(False)
        if weight.dim() == 2:
            weight.normal_(std=weight.shape[1] ** -0.5, generator=generator)
        else:
            weight.fill_(0 if name.endswith("bias") else 1)
    return module.eval()


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(SEED)
