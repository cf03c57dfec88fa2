"""Pieces of the corpus a codec learns from."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.demo_voice.files import Split
from training.demo_voice.utterances import LABELS_PER_FRAME, SAMPLES_PER_FRAME, Utterance, phone_at

SILENCE = ""
STRESS = "',"


@dataclass(frozen=True)
class Batch:
    """float32 `audio` `[crops, samples]`, int64 `phones` `[crops, frames, LABELS_PER_FRAME]`, and a generator of
    numbers that depend on the step alone. `skip` samples of each crop lack their past."""

    audio: Tensor
    phones: Tensor
    skip: int
    rng: np.random.Generator


@dataclass(frozen=True)
class Crops:
    """Equal pieces of whole frames from anywhere in a split; utterances touch in silence."""

    split: Split
    labels: dict[str, int]
    crops: int = 20
    frames: int = 12
    skip: int = SAMPLES_PER_FRAME
    seed: int = 1

    @classmethod
    def load(cls, build: Path, name: str, **sizes: int) -> "Crops":
        """The phones are numbered by the training split, without their stress."""
        split, training = Split.load(build, name), Split.load(build, "train")
        labels = sorted({phone[0].lstrip(STRESS) for entry in training.entries for phone in entry["phones"]})
        return cls(split, {label: index for index, label in enumerate([SILENCE, *labels])}, **sizes)

    def batch(self, step: int) -> Batch:
        """The crops of one step; negative steps are others."""
        rng = np.random.default_rng((self.seed, abs(step), step < 0))
        first = rng.integers(0, len(self.split.samples) // SAMPLES_PER_FRAME - self.frames, self.crops)
        samples = [self._samples(start) for start in first * SAMPLES_PER_FRAME]
        phones = np.stack([self._phones[start : start + self.frames] for start in first])
        audio = torch.from_numpy(np.stack(samples).astype(np.float32) / 32768)
        return Batch(audio, torch.from_numpy(phones), self.skip, rng)

    def _samples(self, start: int) -> NDArray[np.int16]:
        return self.split.samples[start : start + self.frames * SAMPLES_PER_FRAME]

    @cached_property
    def _phones(self) -> NDArray[np.int64]:
        """`[all frames, LABELS_PER_FRAME]`."""
        numbers = _Unstressed(self.labels)
        parts = [phone_at(Utterance.from_entry(entry), numbers) for entry in self.split.entries]
        return np.concatenate(parts).reshape(-1, LABELS_PER_FRAME)


class _Unstressed(dict):
    """Finds the number of a label whatever its stress."""

    def get(self, label: str, default: int) -> int:
        return super().get(label.lstrip(STRESS), default)
