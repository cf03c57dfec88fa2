"""The residual quantizer, in float32 whatever the precision of the networks around it."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.checkpoint import Checkpoint
from pipeline.row_buckets import RowBuckets


class Quantizer:
    """Hidden states to codes: each stage takes the entry nearest to what the stages before it left over."""

    def __init__(self, checkpoint: Checkpoint, num_codebooks: int, device: torch.device | str):
        self.input_proj = _projection(checkpoint, "quantizer.input_proj", device)
        self.stages = [
            (
                _projection(checkpoint, f"quantizer.quantizers.{stage}.in_proj", device),
                _linear(F.normalize(_codebook(checkpoint, stage, device))),
                _projected_codebook(checkpoint, stage, device),
            )
            for stage in range(num_codebooks)
        ]

    def linears(self) -> list[nn.Linear]:
        """Every product of rows with weights."""
        return [self.input_proj, *(layer for in_proj, cosines, _ in self.stages for layer in (in_proj, cosines))]

    def encode(self, hidden: Tensor, n_vq: int, rows: RowBuckets) -> Tensor:
        """int64 `[frames, n_vq]` from float32 `[frames, input_size]`.

        Nearest after L2-normalising both is the largest cosine. The length of the projected row scales all of
        its cosines alike, so only the entries are normalised. The lowest of equally near codes wins.
        """
        return rows.apply(lambda part: self._encode(part, n_vq), rows.pad(hidden))[: hidden.shape[0]]

    def _encode(self, hidden: Tensor, n_vq: int) -> Tensor:
        residual = self.input_proj(hidden)
        codes = []
        for in_proj, cosines, entries in self.stages[:n_vq]:
            code = cosines(in_proj(residual)).argmax(1)
            residual = residual - entries[code]
            codes.append(code)
        return torch.stack(codes, dim=1)


class Dequantizer:
    """Codes to hidden states: the sum of the projected entries of the first `n_vq` codebooks."""

    def __init__(self, checkpoint: Checkpoint, n_vq: int, device: torch.device | str):
        self.tables = torch.stack([_projected_codebook(checkpoint, stage, device) for stage in range(n_vq)])
        """float32 `[n_vq, codebook_size, hidden_size]`."""
        self.output_proj = _projection(checkpoint, "quantizer.output_proj", device)
        self._stages = torch.arange(n_vq, device=device)

    def linears(self) -> list[nn.Linear]:
        """Every product of rows with weights."""
        return [self.output_proj]

    def decode(self, codes: Tensor, rows: RowBuckets) -> Tensor:
        """float32 `[frames, output_size]` from int64 `[frames, n_vq]`."""
        first, *others = self.tables[self._stages, rows.pad(codes)].unbind(1)
        for entry in others:
            first = first + entry
        return rows.apply(self.output_proj, first)[: codes.shape[0]]


def _codebook(checkpoint: Checkpoint, stage: int, device: torch.device | str) -> Tensor:
    return checkpoint.read(f"quantizer.quantizers.{stage}.codebook.weight", torch.float32, device)


@torch.inference_mode()
def _projected_codebook(checkpoint: Checkpoint, stage: int, device: torch.device | str) -> Tensor:
    """Every raw entry through the stage's `out_proj`: `[codebook_size, hidden_size]`."""
    out_proj = _projection(checkpoint, f"quantizer.quantizers.{stage}.out_proj", device)
    return out_proj(_codebook(checkpoint, stage, device))


def _projection(checkpoint: Checkpoint, prefix: str, device: torch.device | str) -> nn.Linear:
    """A weight-normed 1x1 convolution, folded: `[rows, in]` -> `[rows, out]`."""
    weight = checkpoint.read_weight_norm(prefix, torch.float32, device)
    return _linear(weight, checkpoint.read(f"{prefix}.bias", torch.float32, device))


def _linear(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    layer.weight = nn.Parameter(weight, requires_grad=False)
    layer.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)
    return layer
