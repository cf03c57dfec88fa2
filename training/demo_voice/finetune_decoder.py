"""`python -m training.demo_voice.finetune_decoder`: trains the decoder further on codes that no longer change.

The language model can be trained at the same time: it only needs the codes.
"""

import argparse
from pathlib import Path

import torch
from torch import Tensor, nn

from training.demo_voice.codec_loss import loss_after_first_frame, snr
from training.demo_voice.codec_net import Codec
from training.demo_voice.crops import Batch, Crops
from training.demo_voice.export_codec import trained_codec
from training.demo_voice.files import BUILD
from training.demo_voice.runs import run
from training.demo_voice.schedule import cosine

LEARNING_RATE = 8e-4
SEED = 2


class DecoderTraining:
    """Everything behind the codebooks learns: their projection back, and the decoder."""

    def __init__(self, codec: Codec, steps: int):
        self.codec = codec.requires_grad_(False)
        self.steps = steps
        self.tuned = [*codec.quantizer.output_proj.parameters(), *codec.decoder.parameters()]
        for parameter in self.tuned:
            parameter.requires_grad_(True)
        self.optimizer = torch.optim.AdamW(self.tuned, LEARNING_RATE, betas=(0.9, 0.98), weight_decay=0.01)
        self.step = 0

    def state(self) -> dict:
        weights = self.codec.state_dict()
        decoder = {name: weights[name] for name in weights if name.startswith(("decoder.", "quantizer.output_proj."))}
        return {"decoder": decoder, "optimizer": self.optimizer.state_dict(), "step": self.step}

    def restore(self, state: dict) -> None:
        self.codec.load_state_dict(state["decoder"], strict=False)
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = state["step"]

    def advance(self, crops: Crops) -> float:
        """One step; returns its loss."""
        batch = crops.batch(self.step)
        for group in self.optimizer.param_groups:
            group["lr"] = LEARNING_RATE * cosine(self.step, self.steps)
        latents = self._latents(batch)
        with torch.autocast("cpu", torch.bfloat16):
            heard = self.codec.decode(latents).float()
        loss = loss_after_first_frame(heard, batch)
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.tuned, 1.0)
        self.optimizer.step()
        self.step += 1
        return float(loss.detach())

    @torch.no_grad()
    def _latents(self, batch: Batch) -> Tensor:
        return self.codec.quantizer(self.codec.encode(batch.audio)).latents

    @torch.no_grad()
    def validate(self, crops: Crops, batches: int = 8) -> float:
        """SNR in dB on crops that are always the same."""
        pairs = [(self.codec(batch.audio)[0], batch.audio) for batch in map(crops.batch, range(batches))]
        heard, audio = (torch.cat(parts)[:, crops.skip :] for parts in zip(*pairs, strict=True))
        return snr(heard, audio)


def train(build: Path, steps: int) -> None:
    training = DecoderTraining(trained_codec(build), steps)
    train_crops, valid_crops = Crops.load(build, "train", seed=SEED), Crops.load(build, "valid")
    run(
        training,
        steps,
        advance=lambda: {"wave": training.advance(train_crops)},
        validate=lambda: {"snr": training.validate(valid_crops)},
        checkpoint=build / "codec" / "decoder.pt",
        log=build / "codec" / "decoder.json",
        title="decoder",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=BUILD)
    parser.add_argument("--steps", type=int, default=3_000)
    options = parser.parse_args()
    train(options.build, options.steps)


if __name__ == "__main__":
    main()
