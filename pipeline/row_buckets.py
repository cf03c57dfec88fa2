"""Row counts at which matrix products give every row the same bits, whatever the other rows are.

Kernels are chosen by the shape of a product, and other kernels add in another order. Which counts agree depends on
device, dtype and weight shapes; `pipeline.determinism` finds out.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class RowBuckets:
    """Rows are padded with zeros to a multiple of `multiple`; with a `limit`, no product has more rows than that."""

    multiple: int
    limit: int | None = None

    def pad(self, x: Tensor) -> Tensor:
        """`[rows, ...]` -> `[padded, ...]`."""
        missing = -x.shape[0] % self.multiple
        return torch.cat((x, x.new_zeros(missing, *x.shape[1:]))) if missing else x

    def apply(self, function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        """`function`, which maps rows to rows one by one, on padded rows, in slices of at most `limit`."""
        if self.limit is None or x.shape[0] <= self.limit:
            return function(x)
        return torch.cat([function(part) for part in x.split(self.limit)])

    def __str__(self) -> str:
        return f"multiples of {self.multiple} rows" if self.limit is None else f"exactly {self.limit} rows"


UNPADDED = RowBuckets(1)
"""Whatever comes: the fastest, and reproducible for one batch composition only."""
CPU_DEFAULT = RowBuckets(8)
"""Agrees on every CPU and weight shape met so far; where it is used without a proof, tests compare the bits."""
