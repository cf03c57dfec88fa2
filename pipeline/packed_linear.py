"""Linear layers whose weights are laid out for oneDNN once, at load, instead of at every product.

torch's compiler does the same when it freezes a model. A plain `F.linear` reads the weights in their stored order,
which takes up to twice as long for few rows.
"""

import torch
from torch import Tensor, nn

ROWS = 8
"""The row count that the layout is chosen for; it works for any."""
WORTHWHILE = 2**18
"""Weights of a layer from which packing pays: the call itself takes longer than a plain one."""


class PackedLinear(nn.Module):
    """`x @ weight.T + bias` of a frozen layer on a CPU: `[rows, in]` -> `[rows, out]`."""

    def __init__(self, layer: nn.Linear):
        super().__init__()
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.dtype, self.device = layer.weight.dtype, layer.weight.device
        self._weight = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach(), ROWS)
        self._bias = None if layer.bias is None else layer.bias.detach()

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, "none", [], "")


Linear = nn.Linear | PackedLinear


def linear_dtype(layer: Linear) -> torch.dtype:
    return layer.dtype if isinstance(layer, PackedLinear) else layer.weight.dtype


def linear_device(layer: Linear) -> torch.device:
    return layer.device if isinstance(layer, PackedLinear) else layer.weight.device


def pack_linears(module: nn.Module) -> None:
    """Replaces every linear layer in the module where this torch build can pack its weights; else leaves it."""
    for parent in module.modules():
        for name, child in parent.named_children():
            if type(child) is nn.Linear and _can_pack(child.weight):
                setattr(parent, name, PackedLinear(child))


def _can_pack(weight: Tensor) -> bool:
    if weight.device.type != "cpu" or weight.numel() < WORTHWHILE or not torch.backends.mkldnn.is_available():
        return False
    if not hasattr(torch.ops.mkldnn, "_reorder_linear_weight"):
        return False
    return weight.dtype == torch.float32 or (
        weight.dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )
