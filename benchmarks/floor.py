"""The least time a depth pass can take here: its weights must be read and its products computed."""

from dataclasses import dataclass

import torch
from torch import nn

from pipeline.depth import DepthTransformer
from pipeline.determinism import linears
from pipeline.packed_linear import Linear, linear_dtype

_READ_BYTES = 2**29
_MATMUL_ROWS = 512


@dataclass(frozen=True)
class Floor:
    """Seconds that reading the weights of a pass takes, and computing; they can overlap, so the larger one counts."""

    reading: float
    computing: float

    @property
    def seconds(self) -> float:
        return max(self.reading, self.computing)


class Probes:
    """What the machine can do at the time of the other measurements: calls that are timed beside them.

    `reading` goes through an array far larger than any cache. `computing` puts many rows through a layer of the model,
    where reading its weights counts for little.
    """

    def __init__(self, layer: Linear):
        self._data = torch.ones(_READ_BYTES // 4)
        self._layer = layer
        self._rows = torch.ones(_MATMUL_ROWS, layer.in_features, dtype=linear_dtype(layer))

    @torch.inference_mode()
    def reading(self) -> None:
        self._data.amax()

    @torch.inference_mode()
    def computing(self) -> None:
        self._layer(self._rows)

    def bytes_per_second(self, seconds: float) -> float:
        """Of a call of `reading` that took this long."""
        return _READ_BYTES / seconds

    def operations_per_second(self, seconds: float) -> float:
        """Floating-point operations, of a call of `computing` that took this long."""
        return 2 * _MATMUL_ROWS * self._layer.in_features * self._layer.out_features / seconds


def floor_of_pass(depth: DepthTransformer, rows: int, read: float, matmul: float) -> Floor:
    """At so many bytes and operations a second.

    Every step reads the weights of all blocks, one head, and a row of an embedding for each row of the batch.
    Biases, norms and attention count for nothing here.
    """
    steps = depth.config.n_vq
    blocks, heads = _weights(depth.local_transformer), _weights(depth.audio_lm_heads) + _weights(depth.stop_head)
    embedded = rows * (steps - 1) * depth.config.hidden_size
    size = depth.dtype.itemsize * (steps * blocks + heads + embedded)
    operations = 2 * rows * (steps * blocks + heads)
    return Floor(size / read, operations / matmul)


def _weights(module: nn.Module) -> int:
    return sum(layer.in_features * layer.out_features for layer in linears(module))
