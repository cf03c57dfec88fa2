"""Steps of time folded into channels, and back: channel `c * patch + j` holds step `j` of channel c."""

from torch import Tensor


def fold(rows: Tensor, patch: int) -> Tensor:
    """`[T, C]` -> `[T / patch, C * patch]`."""
    steps, channels = rows.shape
    patches = rows.view(steps // patch, patch, channels)
    return patches.transpose(1, 2).reshape(steps // patch, channels * patch)


def unfold(rows: Tensor, patch: int) -> Tensor:
    """`[T, C * patch]` -> `[T * patch, C]`, the inverse of `fold`."""
    steps, channels = rows.shape
    patches = rows.view(steps, channels // patch, patch)
    return patches.transpose(1, 2).reshape(steps * patch, channels // patch)
