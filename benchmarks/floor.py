"""The least time a depth pass can take here: its weights must be read and its products computed."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from pipeline.depth import DepthTransformer

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
def measure_speeds(weight: torch.Tensor) -> Speeds:
    """Reads an array far larger than any cache; multiplies rows with `weight` `[out, in]`, few and many at once."""
    data = torch.ones(_READ_BYTES // 4)
    read = _READ_BYTES / min(_best_seconds(data.amax), _best_seconds(data.sum))
    rates = []
    for count in _MATMUL_ROWS:
        rows = torch.ones(count, weight.shape[1], dtype=weight.dtype)
        rates.append(2 * count * weight.numel() / _best_seconds(lambda rows=rows: F.linear(rows, weight)))
    return Speeds(read, max(rates))


def floor_of_pass(depth: DepthTransformer, rows: int, speeds: Speeds) -> Floor:
    """Every step reads all block weights, one head and a row of an embedding for each row; attention is not counted."""
    steps = depth.config.n_vq
    heads = sum(head.weight.numel() for head in depth.audio_lm_heads) + depth.stop_head.weight.numel()
    blocks = sum(weight.numel() for weight in depth.local_transformer.parameters())
    embedded = rows * (steps - 1) * depth.config.hidden_size
    products = sum(m.weight.numel() for m in depth.local_transformer.modules() if isinstance(m, nn.Linear))
    size = depth.dtype.itemsize * (steps * blocks + heads + embedded)
    operations = 2 * rows * (steps * products + heads)
    return Floor(size / speeds.read, operations / speeds.matmul)


def _best_seconds(call: Callable[[], object]) -> float:
    times = []
    for _ in range(_REPEATS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)
