"""The residual quantizer, in float32 whatever the precision of the networks around it."""

import torch
from torch import Tensor
from torch.nn import functional as F

from pipeline.checkpoint import Checkpoint
from pipeline.row_buckets import RowBuckets


class Projection:
    """A weight-normed 1x1 convolution, folded: `[rows, in]` -> `[rows, out]`."""

    def __init__(self, checkpoint: Checkpoint, prefix: str, device: torch.device | str):
        self.weight = checkpoint.read_weight_norm(prefix, torch.float32, device)
        self.bias = checkpoint.read(f"{prefix}.bias", torch.float32, device)

    def __call__(self, rows: Tensor) -> Tensor:
        return F.linear(rows, self.weight, self.bias)


class Quantizer:
    """Hidden states to codes: each stage takes the entry nearest to what the stages before it left over."""

    def __init__(self, checkpoint: Checkpoint, num_codebooks: int, device: torch.device | str):
        self.input_proj = Projection(checkpoint, "quantizer.input_proj", device)
        self.stages = [
            (
                Projection(checkpoint, f"quantizer.quantizers.{stage}.in_proj", device),
                F.normalize(_codebook(checkpoint, stage, device)),
                _projected_codebook(checkpoint, stage, device),
            )
            for stage in range(num_codebooks)
        ]

    def weights(self) -> list[Tensor]:
        """All that rows are multiplied with, `[out, in]` each."""
        products = [(in_proj.weight, directions) for in_proj, directions, _ in self.stages]
        return [self.input_proj.weight, *(weight for pair in products for weight in pair)]

    def encode(self, hidden: Tensor, n_vq: int, rows: RowBuckets) -> Tensor:
        """int64 `[frames, n_vq]` from float32 `[frames, input_size]`.

        Nearest after L2-normalising both is the largest cosine. The length of the projected row scales all of
        its scores alike, so only the entries are normalised. The lowest of equally near codes wins.
        """
        return rows.apply(lambda part: self._encode(part, n_vq), rows.pad(hidden))[: hidden.shape[0]]

    def _encode(self, hidden: Tensor, n_vq: int) -> Tensor:
        residual = self.input_proj(hidden)
        codes = []
        for in_proj, directions, entries in self.stages[:n_vq]:
            code = F.linear(in_proj(residual), directions).argmax(1)
            residual = residual - entries[code]
            codes.append(code)
        return torch.stack(codes, dim=1)


class Dequantizer:
    """Codes to hidden states: the sum of the projected entries of the first `n_vq` codebooks."""

    def __init__(self, checkpoint: Checkpoint, n_vq: int, device: torch.device | str):
        self.tables = torch.stack([_projected_codebook(checkpoint, stage, device) for stage in range(n_vq)])
        """float32 `[n_vq, codebook_size, hidden_size]`."""
        self.output_proj = Projection(checkpoint, "quantizer.output_proj", device)
        self._stages = torch.arange(n_vq, device=device)

    def weights(self) -> list[Tensor]:
        """All that rows are multiplied with, `[out, in]` each."""
        return [self.output_proj.weight]

    def decode(self, codes: Tensor, rows: RowBuckets) -> Tensor:
        """float32 `[frames, output_size]` from int64 `[frames, n_vq]`."""
        first, *others = self.tables[self._stages, rows.pad(codes)].unbind(1)
        for entry in others:
            first = first + entry
        return rows.apply(self.output_proj, first)[: codes.shape[0]]


def _codebook(checkpoint: Checkpoint, stage: int, device: torch.device | str) -> Tensor:
    return checkpoint.read(f"quantizer.quantizers.{stage}.codebook.weight", torch.float32, device)


def _projected_codebook(checkpoint: Checkpoint, stage: int, device: torch.device | str) -> Tensor:
    """Every raw entry through the stage's `out_proj`: `[codebook_size, hidden_size]`."""
    out_proj = Projection(checkpoint, f"quantizer.quantizers.{stage}.out_proj", device)
    return out_proj(_codebook(checkpoint, stage, device))
