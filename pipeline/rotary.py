"""Interleaved rotary position embedding in float32: pairs (0, 1), (2, 3), .. (Su et al. 2021, "RoFormer")."""

from functools import cache

import torch
from torch import Tensor


@cache
def rotary_frequencies(base: float, head_dim: int, device: torch.device | str) -> Tensor:
    """float32 `[head_dim / 2]`: `base^(-2i / head_dim)`, rounded once: the same bits on every device."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
    return (base**-exponents).to(device=device, dtype=torch.float32)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turns each pair of the last dimension by its angle, in float32. cos, sin: `[.., head_dim / 2]`."""
    even, odd = x.float().unflatten(-1, (-1, 2)).unbind(-1)
    turned = torch.empty((*even.shape, 2), device=x.device)
    torch.sub(even * cos, odd * sin, out=turned[..., 0])
    torch.add(even * sin, odd * cos, out=turned[..., 1])
    return turned.flatten(-2)
