"""`python -m training.demo_voice.train_codec`: trains encoder, quantizer and decoder together.

It begins without a quantizer, lays the codebooks out on what the encoder has come to say, again every few hundred
steps, and goes on with straight-through gradients. Batches are functions of the step's number: a run that was stopped
goes on as if it had not been.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from pipeline.config import CodecConfig
from training.demo_voice.codec_config import CODEBOOK_SIZE, CODEBOOKS, codec_config
from training.demo_voice.codec_loss import loss_after_first_frame, snr
from training.demo_voice.codec_net import Codec
from training.demo_voice.crops import Batch, Crops
from training.demo_voice.files import BUILD
from training.demo_voice.runs import run
from training.demo_voice.schedule import cosine

LEARNING_RATE = 1.5e-3
STAGE_DROPOUT = 0.25
"""Part of the rows that use the first few codebooks only."""
PHONE_WEIGHT = 0.2
QUANTIZER_WEIGHT = 0.5
"""Of the distance between what the encoder says and what there are entries for."""
START_BATCHES = 24
"""Batches on which the codebooks are laid out."""


@dataclass(frozen=True)
class Plan:
    steps: int = 8_000
    unquantised: int = 150
    """Steps before there are codes. After many more the encoder says what no small number of entries can."""
    layout_every: int = 150
    layouts_end: float = 0.7
    """Part of the run from which on the codebooks rest, for the networks to learn them as they are."""

    def lays_out_at(self, step: int) -> bool:
        """Whether the codebooks are laid out anew before this step."""
        since = step - self.unquantised
        return since == 0 or (since > 0 and since % self.layout_every == 0 and not self.rests_at(step))

    def rests_at(self, step: int) -> bool:
        """Whether the codebooks stay as they are in this step."""
        return step >= self.layouts_end * self.steps


class PhoneHead(nn.Module):
    """Names the three phones of a frame from its first two codebooks; for training alone.

    It pulls what is said into the codebooks that a language model foretells first.
    """

    def __init__(self, width: int, phones: int, slots: int = 3, inner: int = 256):
        super().__init__()
        self.slots = slots
        self.net = nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, slots * phones))

    def loss(self, coarse: Tensor, phones: Tensor) -> Tensor:
        """Cross-entropy of int64 `[batch, frames, slots]`."""
        return F.cross_entropy(self.net(coarse).unflatten(-1, (self.slots, -1)).flatten(0, 2), phones.flatten())


class CodecTraining:
    """All that changes from step to step; `state` and `restore` carry it over an interruption."""

    def __init__(self, plan: Plan, phones: int, seed: int = 1):
        torch.manual_seed(seed)
        self.plan = plan
        self.config = CodecConfig.from_dict(codec_config())
        self.codec = Codec(self.config)
        self.head = PhoneHead(self.config.quantizer.hidden_size, phones)
        self.codec.quantizer.requires_grad_(False)
        networks = [self.codec.encoder, self.codec.decoder, self.head]
        self.optimizer = torch.optim.AdamW(
            [each for net in networks for each in net.parameters()], LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.01
        )
        self.step = 0

    def state(self) -> dict[str, Any]:
        parts = ("codec", "head", "optimizer")
        finished = self.step >= self.plan.steps
        return {name: getattr(self, name).state_dict() for name in parts} | {
            "step": self.step,
            "finished": finished,
        }

    def restore(self, state: dict[str, Any]) -> None:
        for name in ("codec", "head", "optimizer"):
            getattr(self, name).load_state_dict(state[name])
        self.step = state["step"]

    def advance(self, crops: Crops) -> dict[str, float]:
        """One step; returns its losses."""
        batch = crops.batch(self.step)
        if self.plan.lays_out_at(self.step):
            self._lay_out_codebooks(crops)
        for group in self.optimizer.param_groups:
            group["lr"] = LEARNING_RATE * cosine(self.step, self.plan.steps)
        losses = self._losses(batch)
        self.optimizer.zero_grad()
        sum(losses.values()).backward()
        nn.utils.clip_grad_norm_(self.codec.parameters(), 1.0)
        self.optimizer.step()
        self.step += 1
        return {name: float(loss.detach()) for name, loss in losses.items()}

    def _losses(self, batch: Batch) -> dict[str, Tensor]:
        latents = self._encode(batch.audio)
        if self.step < self.plan.unquantised:
            heard = self._decode(latents)
            return {"wave": loss_after_first_frame(heard, batch), "phone": self._phone_loss(latents, batch)}
        quantized = self.codec.quantizer(latents, self._stages(batch))
        if not self.plan.rests_at(self.step):
            self.codec.quantizer.follow(latents.detach(), quantized.codes)
        heard = self._decode(quantized.latents)
        return {
            "wave": loss_after_first_frame(heard, batch),
            "phone": self._phone_loss(quantized.coarse, batch),
            "quantizer": QUANTIZER_WEIGHT * quantized.loss,
        }

    def _encode(self, audio: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return self.codec.encode(audio).float()

    def _decode(self, latents: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return self.codec.decode(latents).float()

    def _phone_loss(self, latents: Tensor, batch: Batch) -> Tensor:
        return PHONE_WEIGHT * self.head.loss(latents, batch.phones)

    def _stages(self, batch: Batch) -> Tensor:
        few = batch.rng.random(len(batch.audio)) < STAGE_DROPOUT
        return torch.from_numpy(np.where(few, batch.rng.integers(1, CODEBOOKS, len(few)), CODEBOOKS))

    @torch.no_grad()
    def _lay_out_codebooks(self, crops: Crops) -> None:
        latents = [self.codec.encode(crops.batch(-1 - index).audio).flatten(0, 1) for index in range(START_BATCHES)]
        self.codec.quantizer.start_from(torch.cat(latents))

    @torch.no_grad()
    def validate(self, crops: Crops, batches: int = 8) -> dict[str, float]:
        """On crops that are always the same: loss, SNR in dB, and the entropy of each codebook in nats."""
        heard, targets, codes, losses = [], [], [], []
        for index in range(batches):
            batch = crops.batch(index)
            output, quantized = self.codec(batch.audio)
            losses.append(float(loss_after_first_frame(output, batch)))
            heard.append(output[:, crops.skip :])
            targets.append(batch.audio[:, crops.skip :])
            codes.append(quantized.codes.flatten(0, 1))
        ratio = snr(torch.cat(heard), torch.cat(targets))
        return {"loss": float(np.mean(losses)), "snr": ratio, "entropy": _entropies(torch.cat(codes))}


def _entropies(codes: Tensor) -> list[float]:
    shares = [torch.bincount(stage, minlength=CODEBOOK_SIZE) / len(codes) for stage in codes.T]
    return [round(float(torch.special.entr(share).sum()), 2) for share in shares]


def train(build: Path, plan: Plan) -> None:
    train_crops, valid_crops = Crops.load(build, "train"), Crops.load(build, "valid")
    training = CodecTraining(plan, phones=len(train_crops.labels))
    run(
        training,
        plan.steps,
        advance=lambda: training.advance(train_crops),
        validate=lambda: training.validate(valid_crops),
        checkpoint=build / "codec" / "model.pt",
        log=build / "codec" / "training.json",
        title="codec",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=BUILD)
    parser.add_argument("--steps", type=int, default=Plan.steps)
    parser.add_argument("--unquantised", type=int, default=Plan.unquantised, help="steps before there are codes")
    options = parser.parse_args()
    train(options.build, Plan(options.steps, options.unquantised))


if __name__ == "__main__":
    main()
