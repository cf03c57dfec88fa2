"""`python -m training.demo_voice.train_lm`: trains the language model on the corpus and its codes.

Stopped at any time, it goes on from its last checkpoint; the result is the same. Finished, it does nothing.
"""

import argparse
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm

from pipeline.config import CodecConfig, ModelConfig
from pipeline.errors import CheckpointError
from training.demo_voice.batches import plan_batches
from training.demo_voice.files import BUILD, write_json, write_whole
from training.demo_voice.lm_config import lm_config
from training.demo_voice.lm_net import LanguageModel
from training.demo_voice.objectives import Heads, OwnFrames, step_losses, total_loss, with_mistakes
from training.demo_voice.rows import Batch, ExampleMaker, collate
from training.demo_voice.tokenizer import write_tokenizer
from training.demo_voice.utterances import Utterances


@dataclass(frozen=True)
class Settings:
    steps: int = 4000
    rows: int = 2800
    """of prompts and speech in a step"""
    pairs: float = 0.15
    """joined utterances, relative to the single ones"""
    matrix_rate: float = 2e-3
    """learning rate of Muon, for all matrices inside the networks"""
    other_rate: float = 2e-3
    """learning rate of AdamW, for embeddings, heads, norms and biases"""
    weight_decay: float = 0.1
    """of the matrices"""
    largest_gradient: float = 1.0
    """norm"""
    average: float = 0.998
    """decay of the moving average of the weights, which is what is measured and exported"""
    save_every: int = 200
    validate_every: int = 250
    seed: int = 1


class Trainer:
    """All that a run consists of; `state` and `restore` are everything a checkpoint holds."""

    def __init__(self, directory: Path, settings: Settings, sizes: dict[str, int]):
        self.settings = settings
        train, valid = Utterances(directory, "train", settings.pairs), Utterances(directory, "valid")
        codebook_size = CodecConfig.load(directory / "codec" / "export").quantizer.codebook_size
        self.raw_config = lm_config(train.codes.shape[1], codebook_size, **sizes)
        self.config = ModelConfig.from_dict(self.raw_config)
        tokenizer = write_tokenizer(directory / "lm" / "export", self.config)
        self.labels = train.phone_labels
        self.examples = ExampleMaker(train, self.config, tokenizer, self.labels)
        self._valid = ExampleMaker(valid, self.config, tokenizer, self.labels)
        self.pad_row = np.array([self.config.tokens.pad] + [self.config.audio_pad_code] * self.config.n_vq)
        self._sizes = torch.tensor(self.config.codebook_sizes)

        torch.manual_seed(settings.seed)
        self.model = LanguageModel(self.config)
        self.heads = Heads(self.config.hidden_size, len(self.labels))
        self.averaged = LanguageModel(self.config)
        self.averaged.load_state_dict(self.model.state_dict())
        self.own = OwnFrames(torch.from_numpy(np.array(train.codes)), torch.Generator().manual_seed(settings.seed))
        self.optimizers = _optimizers(self.model, self.heads, settings)
        rng = np.random.default_rng(settings.seed)
        self.plan = plan_batches(self.examples.lengths, settings.rows, settings.steps, rng)
        self.step = 0
        self.curve: list[dict[str, float]] = []

    def train_step(self) -> dict[str, float]:
        """One step; what it draws is a function of the seed and the step. Returns its losses."""
        torch.manual_seed(self.settings.seed * 1_000_003 + self.step)
        rng = np.random.default_rng((self.settings.seed, self.step))
        batch = collate([self.examples.drawn(int(index), rng) for index in self.plan[self.step]], self.pad_row)
        progress = self.step / self.settings.steps
        with torch.autocast("cpu", torch.bfloat16):
            losses = step_losses(self.model, self.heads, batch, with_mistakes(batch, self.own, self._sizes), self.own)
        total_loss(losses, progress).backward()
        nn.utils.clip_grad_norm_([*self.model.parameters(), *self.heads.parameters()], self.settings.largest_gradient)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["initial_lr"] * learning_rate(self.step, self.settings.steps)
            optimizer.step()
            optimizer.zero_grad()
        self.step += 1
        self._average()
        return {name: float(loss.detach()) for name, loss in losses.items()}

    def _average(self) -> None:
        decay = min(self.settings.average, self.step / (self.step + 10))
        with torch.no_grad():
            torch._foreach_lerp_(list(self.averaged.parameters()), list(self.model.parameters()), 1 - decay)

    @torch.inference_mode()
    def validate(self) -> dict[str, float]:
        """Losses of the averaged model over the held-out utterances, each under the prompt of a plain request."""
        totals: dict[str, float] = {}
        batches = self._valid_batches()
        for batch in batches:
            with torch.autocast("cpu", torch.bfloat16):
                losses = step_losses(self.averaged, self.heads, batch, batch.rows, None)
            for name, loss in losses.items():
                totals[name] = totals.get(name, 0.0) + float(loss) / len(batches)
        return totals

    def _valid_batches(self) -> list[Batch]:
        plan = plan_batches(self._valid.lengths, self.settings.rows, 8, np.random.default_rng(0))
        return [collate([self._valid.plain(int(index)) for index in indices], self.pad_row) for indices in plan]

    def state(self) -> dict:
        return {
            "settings": asdict(self.settings),
            "config": self.raw_config,
            "step": self.step,
            "curve": self.curve,
            "model": self.model.state_dict(),
            "heads": self.heads.state_dict(),
            "averaged": self.averaged.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "own": self.own.codes,
        }

    def restore(self, state: dict) -> None:
        """Raises CheckpointError for one of other settings or sizes: what it goes on with must be one run."""
        if (state["settings"], state["config"]) != (asdict(self.settings), self.raw_config):
            raise CheckpointError("the checkpoint is of a run with other settings; remove it to start anew")
        self.step, self.curve = state["step"], state["curve"]
        for name in ("model", "heads", "averaged"):
            getattr(self, name).load_state_dict(state[name])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.own.codes = state["own"]


def learning_rate(step: int, steps: int) -> float:
    """Factor of the learning rates: up within 1 %, level, and from 40 % on evenly down to a fiftieth."""
    progress = step / steps
    return min(1.0, (progress + 1 / steps) / 0.01, max(0.02, (1 - progress) / 0.6))


def train(directory: Path, settings: Settings, **sizes: int) -> Trainer:
    """Runs or goes on until the last step; `sizes` as for `lm_config`."""
    trainer = Trainer(directory, settings, sizes)
    checkpoint = directory / "lm" / "checkpoint.pt"
    if checkpoint.exists():
        trainer.restore(torch.load(checkpoint, weights_only=True))
    with tqdm(desc="language model", total=settings.steps, initial=trainer.step, unit="step") as bar:
        while trainer.step < settings.steps:
            bar.set_postfix_str(_line(trainer.train_step()), refresh=False)
            bar.update()
            last = trainer.step == settings.steps
            if trainer.step % settings.validate_every == 0 or last:
                trainer.curve.append({"step": trainer.step, **trainer.validate()})
                bar.write(f"step {trainer.step}, held out: {_line(trainer.curve[-1])}")
            if trainer.step % settings.save_every == 0 or last:
                write_whole(checkpoint, lambda file: torch.save(trainer.state(), file))
                write_json(directory / "lm" / "curve.json", trainer.curve)
    return trainer


def _optimizers(model: LanguageModel, heads: Heads, settings: Settings) -> list[torch.optim.Optimizer]:
    """Muon (Jordan 2024; scaled as in arXiv 2502.16982) for the matrices of both transformers, AdamW for the rest."""
    matrices: list[Tensor] = []
    others: list[Tensor] = list(heads.parameters())
    for name, parameter in model.named_parameters():
        inside = parameter.ndim == 2 and ".embed_tokens." not in name and "transformer." in name
        (matrices if inside else others).append(parameter)
    muon = torch.optim.Muon(
        matrices,
        lr=settings.matrix_rate,
        weight_decay=settings.weight_decay,
        momentum=0.95,
        adjust_lr_fn="match_rms_adamw",
    )
    adam = torch.optim.AdamW(others, lr=settings.other_rate, betas=(0.9, 0.98), weight_decay=0.0)
    for optimizer in (muon, adam):
        for group in optimizer.param_groups:
            group["initial_lr"] = group["lr"]
    return [muon, adam]


def _line(losses: dict[str, float]) -> str:
    return " ".join(f"{name} {loss:.2f}" for name, loss in losses.items() if name != "step")


def main() -> None:
    parser = argparse.ArgumentParser(prog="training.demo_voice.train_lm", description=__doc__.split(":", 1)[1])
    parser.add_argument("--build", type=Path, default=BUILD, help="folder of the stages; default %(default)s")
    parser.add_argument("--steps", type=int, default=Settings.steps, help="default %(default)s")
    options = parser.parse_args()
    train(options.build, Settings(steps=options.steps))


if __name__ == "__main__":
    main()
