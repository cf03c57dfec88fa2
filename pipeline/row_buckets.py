"""Row counts at which matrix products give every row the same bits, whatever the other rows are."""

import torch
from torch import Tensor

ROW_MULTIPLE = 8
"""Kernels for fewer rows, or for a remainder of rows, add in another order; multiples of 8 all agree."""


def pad_rows(x: Tensor) -> Tensor:
    """Appends zero rows up to the next multiple of ROW_MULTIPLE: `[rows, ...]` -> `[padded, ...]`."""
    missing = -x.shape[0] % ROW_MULTIPLE
    return torch.cat((x, x.new_zeros(missing, *x.shape[1:]))) if missing else x
