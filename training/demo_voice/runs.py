"""A run of training that can be stopped at any time, goes on from its last checkpoint, and leaves a curve behind."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import torch
from tqdm import trange

from training.demo_voice.files import write_json, write_whole

SAVE_EVERY, VALIDATE_EVERY = 100, 250


class Training(Protocol):
    """What changes from step to step; `state` and `restore` carry it over an interruption."""

    step: int

    def state(self) -> dict[str, Any]: ...

    def restore(self, state: dict[str, Any]) -> None: ...


def run(
    training: Training,
    steps: int,
    advance: Callable[[], dict[str, float]],
    validate: Callable[[], dict[str, Any]],
    checkpoint: Path,
    log: Path,
    title: str,
) -> None:
    """Goes on to the last step: `advance` does one and returns its losses. `log` gets the curve."""
    curve = []
    if checkpoint.exists():
        training.restore(torch.load(checkpoint, weights_only=True))
        curve = json.loads(log.read_text(encoding="utf-8"))
    progress = trange(training.step, steps, initial=training.step, total=steps, desc=title)
    for _ in progress:
        losses = advance()
        progress.set_postfix({name: f"{loss:.3f}" for name, loss in losses.items()})
        last = training.step == steps
        if training.step % VALIDATE_EVERY == 0 or last:
            curve.append({"step": training.step, "train": losses, "valid": validate()})
            progress.write(json.dumps(curve[-1]))
        if training.step % SAVE_EVERY == 0 or last:
            write_json(log, curve)
            write_whole(checkpoint, lambda file: torch.save(training.state(), file))
