"""The residual quantizer: laid out on data again and again, never by gradients.

Trained by gradients, what leads into a codebook learns to please it by saying always the same: in a first run five of
the six stages came to hold a tenth of what they could. The decoder sees sums of entries and not their numbers, so
laying the codebooks out anew costs it nothing.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

from pipeline.config import QuantizerConfig

KMEANS_ROUNDS = 12
DECAY = 0.9
LIFT = 2.0
"""The constant coordinate of a fresh codebook over the root mean square of the others; see `start_from`."""


@dataclass(frozen=True)
class Quantized:
    codes: Tensor
    """int64 `[batch, frames, stages]`."""
    latents: Tensor
    """The sum of the entries; its gradient reaches, unchanged, what was quantised."""
    coarse: Tensor
    """The same of the first two stages alone."""
    loss: Tensor
    """How far the latents are from the entries, over all stages, in variances of the latents."""


class ResidualQuantizer(nn.Module):
    """Each stage takes the entry nearest to what the stages before it left over."""

    def __init__(self, config: QuantizerConfig):
        super().__init__()
        self.input_proj = _projection(config.input_size, config.hidden_size)
        self.quantizers = nn.ModuleList(Stage(config) for _ in range(config.num_codebooks))
        self.output_proj = _projection(config.hidden_size, config.output_size)

    def project_in(self, x: Tensor) -> Tensor:
        return _apply(self.input_proj, x)

    def project_out(self, latents: Tensor) -> Tensor:
        return _apply(self.output_proj, latents)

    def forward(self, latents: Tensor, stages: Tensor | None = None) -> Quantized:
        """`stages`: int64 `[batch]`, how many stages each row goes through; None means all."""
        variance = latents.detach().var() + 1e-8
        total, coarse = torch.zeros_like(latents), torch.zeros_like(latents)
        codes, losses = [], []
        for index, stage in enumerate(self.quantizers):
            used = latents.new_ones(()) if stages is None else (stages > index).to(latents)[:, None, None]
            residual = latents - total
            code = stage.nearest(residual.detach())
            entry = stage.entries(code).detach()
            losses.append((used * (residual - entry).square()).mean() / variance)
            total = total + used * entry
            coarse = total if index < 2 else coarse
            codes.append(code)
        through = latents - latents.detach()
        return Quantized(torch.stack(codes, -1), total + through, coarse + through, torch.stack(losses).sum())

    def latents(self, codes: Tensor) -> Tensor:
        """`[batch, frames, hidden_size]` from int64 `[batch, frames, stages]`."""
        return sum(stage.entries(codes[..., index]) for index, stage in enumerate(self.quantizers))

    @torch.no_grad()
    def follow(self, latents: Tensor, codes: Tensor) -> None:
        """Moves every entry a little towards those of `[.., hidden_size]` that chose it, codes int64 `[.., stages]`.

        Latents move with every step of the encoder; entries left behind would drive them on and on.
        """
        residual = latents.flatten(0, -2)
        for stage, code in zip(self.quantizers, codes.flatten(0, -2).T, strict=True):
            stage.follow(residual, code)
            residual = residual - stage.entries(code)

    @torch.no_grad()
    def start_from(self, latents: Tensor) -> None:
        """Scales latents to variance 1, and lays every stage out on what it will see of samples `[n, hidden_size]`."""
        scale = latents.std()
        self.input_proj.parametrizations.weight.original0.div_(scale)
        self.input_proj.bias.div_(scale)
        self.output_proj.parametrizations.weight.original0.mul_(scale)
        residual = latents / scale
        for stage in self.quantizers:
            stage.start_from(residual)
            residual = residual - stage.entries(stage.nearest(residual))


class Stage(nn.Module):
    """One codebook, in a space of few dimensions of its own."""

    def __init__(self, config: QuantizerConfig):
        super().__init__()
        self.in_proj = _projection(config.hidden_size, config.codebook_dim)
        self.codebook = nn.Embedding(config.codebook_size, config.codebook_dim)
        self.out_proj = _projection(config.codebook_dim, config.hidden_size)

    def nearest(self, residual: Tensor) -> Tensor:
        """The entry of the largest cosine, int64 `[..]`; of equal ones the first."""
        return (_apply(self.in_proj, residual) @ F.normalize(self.codebook.weight).T).argmax(-1)

    def entries(self, code: Tensor) -> Tensor:
        return _apply(self.out_proj, self.codebook(code))

    def follow(self, residual: Tensor, code: Tensor) -> None:
        """As a moving average over the last 1 / (1 - DECAY) residuals of an entry (van den Oord 2017, appendix A)."""
        count = torch.bincount(code, minlength=self.codebook.num_embeddings)[:, None]
        total = torch.zeros_like(self.codebook.weight).index_add_(0, code, _apply(self.in_proj, residual))
        kept = DECAY**count
        self.codebook.weight.mul_(kept).add_((1 - kept) * total / count.clamp(min=1))

    def start_from(self, residual: Tensor) -> None:
        """Principal axes of `[n, hidden_size]`, and k-means on them.

        Entries are told apart by their angle alone. One coordinate is therefore a constant: seen from below, points
        of a plane at that height have angles that tell their distances (a gnomonic projection).
        """
        mean = residual.mean(0)
        axes = torch.linalg.svd(residual - mean, full_matrices=False).Vh[: self.codebook.embedding_dim - 1]
        plane = (residual - mean) @ axes.T
        height = LIFT * plane.pow(2).sum(1).mean().sqrt()
        lifted = torch.cat((plane, height.expand(len(plane), 1)), dim=1)
        zero = torch.zeros_like(axes[:1])
        _set(self.in_proj, torch.cat((axes, zero)), torch.cat((-axes @ mean, height[None])))
        _set(self.out_proj, torch.cat((axes, zero)).T, mean)
        self.codebook.weight.copy_(_kmeans(lifted, self.codebook.num_embeddings))


def _kmeans(points: Tensor, count: int) -> Tensor:
    """`count` centres of `[n, d]` by cosine (Dhillon & Modha 2001, spherical k-means), with the means' own lengths."""
    generator = torch.Generator().manual_seed(0)
    centres = points[torch.randperm(len(points), generator=generator)[:count]]
    for _ in range(KMEANS_ROUNDS):
        nearest = (points @ F.normalize(centres).T).argmax(1)
        sizes = torch.bincount(nearest, minlength=count)
        sums = torch.zeros_like(centres).index_add_(0, nearest, points)
        spare = points[torch.randint(len(points), (count,), generator=generator)]
        centres = torch.where(sizes[:, None] > 0, sums / sizes.clamp(min=1)[:, None], spare)
    return centres


def _projection(inputs: int, outputs: int) -> nn.Conv1d:
    return weight_norm(nn.Conv1d(inputs, outputs, 1))


def _apply(projection: nn.Conv1d, x: Tensor) -> Tensor:
    return F.linear(x, projection.weight[..., 0], projection.bias)


def _set(projection: nn.Conv1d, weight: Tensor, bias: Tensor) -> None:
    """Gives a weight-normed projection this value. A row of zeros keeps its direction and gets the gain 0."""
    parts = projection.parametrizations.weight
    gain = weight.norm(dim=1)
    direction = torch.where(gain[:, None] > 0, weight, parts.original1[..., 0])
    parts.original0.copy_(gain[:, None, None])
    parts.original1.copy_(direction[..., None])
    projection.bias.copy_(bias)
