"""The least time a depth pass can take here: its weights must be read and its products computed."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from pipeline.depth import DepthTransformer
from pipeline.determinism import linears
from pipeline.packed_linear import Linear, linear_dtype

_READ_BYTES = 2**30
_MATMUL_ROWS = (64, 512, 2048)
_REPEATS = 7


@dataclass(frozen=True)
class Speeds:
    """The best this machine showed, in bytes and floating-point operations a second."""

    read: float
    matmul: float


@dataclass(frozen=True)
class Floor:
    """Seconds that reading the weights of a pass takes, and computing; they can overlap, so the larger one counts."""

    reading: float
    computing: float

    @property
    def seconds(self) -> float:
        return max(self.reading, self.computing)


@torch.inference_mode()
def measure_speeds(layer: Linear) -> Speeds:
    """Reads an array far larger than any cache; multiplies few and many rows, by a layer and by weights of its size."""
    data = torch.ones(_READ_BYTES // 4)
    read = _READ_BYTES / min(_best_seconds(data.amax), _best_seconds(data.sum))
    weight = torch.ones(layer.out_features, layer.in_features, dtype=linear_dtype(layer))
    rates = []
    for count in _MATMUL_ROWS:
        rows = torch.ones(count, layer.in_features, dtype=weight.dtype)
        best = min(_best_seconds(partial(layer, rows)), _best_seconds(partial(F.linear, rows, weight)))
        rates.append(2 * count * weight.numel() / best)
    return Speeds(read, max(rates))


def floor_of_pass(depth: DepthTransformer, rows: int, speeds: Speeds) -> Floor:
    """Every step reads the weights of all blocks, one head, and a row of an embedding for each row of the batch.

    Biases, norms and attention count for nothing here.
    """
    steps = depth.config.n_vq
    blocks, heads = _weights(depth.local_transformer), _weights(depth.audio_lm_heads) + _weights(depth.stop_head)
    embedded = rows * (steps - 1) * depth.config.hidden_size
    size = depth.dtype.itemsize * (steps * blocks + heads + embedded)
    operations = 2 * rows * (steps * blocks + heads)
    return Floor(size / speeds.read, operations / speeds.matmul)


def _weights(module: nn.Module) -> int:
    return sum(layer.in_features * layer.out_features for layer in linears(module))


def _best_seconds(call: Callable[[], object]) -> float:
    times = []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)
