"""What the language model is trained for, and what it sees wrong on purpose."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from training.demo_voice.lm_net import HeadWeights, LanguageModel
from training.demo_voice.rows import UNKNOWN, Batch
from training.demo_voice.utterances import LABELS_PER_FRAME

CODEBOOK_WEIGHTS = (1.5, 0.5)
"""Of the first and the last codebook, even steps between: what is said lies in the first ones."""
PHONE_WEIGHT, SPELLING_WEIGHT, STOP_WEIGHT = 0.5, 0.2, 0.5
LAST_FRAME_WEIGHT = 4.0
"""Of a decision to stop against one to go on; there is one in an utterance."""
DEPTH_SHARE = 0.5
"""Share of the decisions, at random, that the depth transformer learns from in a step. Every stop is among them."""
WRONG_FRAMES, WRONG_CODES, WRONG_FED_CODES = 0.1, 0.06, 0.06
"""Shares, on average, of the frames replaced by what the model itself said there, of the codes replaced at random in
what the backbone reads, and in what the depth transformer is fed. A model that has only seen perfect speech does not
recover from its own first mistake."""
OWN_TEMPERATURE = 0.8
"""At which the model's own frames are drawn."""


@dataclass(frozen=True)
class Guide:
    """A head of the backbone that is shown where to look: `ahead` bytes behind the one that is being spoken.

    Causal text rows know what came before them, so the pronunciation of a letter is complete only some rows later.
    """

    layer: int
    head: int
    ahead: int
    weight: float = 0.5


GUIDES = (Guide(1, 0, 0), Guide(2, 0, 2), Guide(2, 2, 4))
GUIDE_WIDTH = 1.5
"""Rows: standard deviation of the window a guide asks for."""
SPELLING_LAYER = 2
"""The hidden states before this layer are asked for the phones of the text."""


class Heads(nn.Module):
    """Read the hidden states in training only: the phones of the next frame, and those of the text."""

    def __init__(self, hidden: int, labels: int):
        super().__init__()
        self.phones = nn.Linear(hidden, LABELS_PER_FRAME * labels)
        self.spelling = nn.Linear(hidden, labels)


class OwnFrames:
    """For each frame of the corpus what the model last said there, given the truth before it: its likely mistakes.

    Until the model has come by, some other frame of the corpus.
    """

    def __init__(self, codes: Tensor, generator: torch.Generator):
        self.codes = codes[torch.randperm(len(codes), generator=generator)].contiguous()

    def draw(self, logits: list[Tensor], frames: Tensor) -> None:
        """Remembers a draw from `logits` of each codebook `[frames, codes]` for the frames of these indices."""
        for codebook, scores in enumerate(logits):
            noise = torch.empty_like(scores).exponential_().log_()
            self.codes[frames, codebook] = (scores / OWN_TEMPERATURE - noise).argmax(-1).to(self.codes.dtype)


def with_mistakes(batch: Batch, own: OwnFrames, sizes: Tensor) -> Tensor:
    """`batch.rows` with mistakes in the speech; prompts stay as they are. sizes: int64 [n_vq], of the codebooks."""
    rows = batch.rows.clone()
    spoken = batch.frame != UNKNOWN
    example, time = batch.example[spoken], batch.time[spoken] + 1
    # Every example has a rate of its own, from none to twice the share, so that flawless speech stays familiar.
    rate = 2 * torch.rand(len(rows))[example]
    codes = rows[example, time, 1:]
    replaced = torch.rand(len(codes)) < rate * WRONG_FRAMES
    codes = torch.where(replaced[:, None], own.codes[batch.frame[spoken]].long(), codes)
    rows[example, time, 1:] = _with_wrong_codes(codes, rate[:, None] * WRONG_CODES, sizes)
    return rows


def step_losses(
    model: LanguageModel, heads: Heads, batch: Batch, rows: Tensor, own: OwnFrames | None
) -> dict[str, Tensor]:
    """The mean of each loss: `stop`, `code0` and on, `phones`, `spelling`, `guide`.

    rows: what is read, `batch.rows` or a version with mistakes. With `own`, the depth transformer learns from a share
    of the decisions, is fed mistakes, and what it says is remembered; without, everything counts as it is.
    """
    hidden, seen, below = model.hidden(rows, frozenset((guide.layer, guide.head) for guide in GUIDES), SPELLING_LAYER)
    decided = hidden[batch.example, batch.time]
    losses = {
        "phones": _labelled(heads.phones(decided).unflatten(1, (LABELS_PER_FRAME, -1)).flatten(0, 1), batch.phones),
        "spelling": _labelled(heads.spelling(below[batch.spelled != UNKNOWN]), batch.spelled[batch.spelled != UNKNOWN]),
        "guide": sum(_guide_loss(seen, guide, batch) for guide in GUIDES),
    }
    chosen = torch.rand(len(decided)) < DEPTH_SHARE if own else torch.ones(len(decided), dtype=torch.bool)
    chosen |= batch.stop == 1
    stop, codes, frame = batch.stop[chosen], batch.codes[chosen], batch.frame[chosen]
    fed = _with_wrong_codes(codes, WRONG_FED_CODES, torch.tensor(model.config.codebook_sizes)) if own else codes
    stop_logits, logits = model.frame_logits(decided[chosen], fed)
    losses["stop"] = F.cross_entropy(stop_logits.float(), stop, weight=torch.tensor([1.0, LAST_FRAME_WEIGHT]))
    spoken = stop == 0
    for codebook, scores in enumerate(logits):
        losses[f"code{codebook}"] = F.cross_entropy(scores[spoken].float(), codes[spoken, codebook])
    if own:
        own.draw([scores[spoken].detach().float() for scores in logits], frame[spoken])
    return losses


def total_loss(losses: dict[str, Tensor], progress: float) -> Tensor:
    """The weighted sum. progress: 0 to 1 over the run; the guides have faded out at 0.6."""
    codes = [loss for name, loss in losses.items() if name.startswith("code")]
    weights = torch.linspace(*CODEBOOK_WEIGHTS, len(codes))
    return (
        sum(weight * loss for weight, loss in zip(weights, codes, strict=True)) / len(codes)
        + STOP_WEIGHT * losses["stop"]
        + PHONE_WEIGHT * losses["phones"]
        + SPELLING_WEIGHT * losses["spelling"]
        + max(0.0, 1 - progress / 0.6) * losses["guide"]
    )


def _labelled(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits.float(), labels.flatten(), ignore_index=UNKNOWN)


def _guide_loss(seen: list[HeadWeights], guide: Guide, batch: Batch) -> Tensor:
    """Minus the logarithm of the weight within the window, on average over the decisions with a known place."""
    weights = next(each.weights for each in seen if (each.layer, each.head) == (guide.layer, guide.head))
    known = batch.place != UNKNOWN
    place = batch.place[known, None] + guide.ahead
    # Behind the text there are control rows only: a guide that runs ahead waits on the first of them.
    place = torch.minimum(place, batch.text_end[batch.example[known], None])
    window = torch.exp(-((torch.arange(weights.shape[-1]) - place) ** 2) / (2 * GUIDE_WIDTH**2))
    mass = (weights[batch.example[known], batch.time[known]].float() * window).sum(-1)
    return -guide.weight * (mass + 1e-4).log().mean()


def _with_wrong_codes(codes: Tensor, rate: Tensor | float, sizes: Tensor) -> Tensor:
    wrong = torch.rand(codes.shape) < rate
    return torch.where(wrong, (torch.rand(codes.shape) * sizes).long(), codes)
