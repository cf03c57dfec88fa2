"""The nouns of a request, shared by every part of the project."""

from dataclasses import dataclass, field

import numpy as np

MAX_SEED = 2**63 - 1


@dataclass(frozen=True)
class SamplingParams:
    """How codes and the stop decision are drawn. A temperature of 0 is greedy; top_k <= 0 and top_p 1 are off."""

    temperature: float = 1.7
    top_p: float = 0.8
    top_k: int = 25
    repetition_penalty: float = 1.0
    stop_temperature: float = 1.0
    stop_top_p: float = 1.0
    stop_top_k: int = 50


@dataclass(frozen=True)
class Prompt:
    """What is said and how. Blank or unset fields read `None` in the template.

    `references`: codes of reference clips, each int64 `[frames, n_vq]`. With `continuation` the single reference
    is speech that goes on: `text` then starts with its transcript.
    """

    text: str
    instruction: str | None = None
    tokens: int | None = None
    quality: str | None = None
    sound_event: str | None = None
    ambient_sound: str | None = None
    language: str | None = None
    references: tuple[np.ndarray, ...] = ()
    continuation: bool = False


@dataclass(frozen=True)
class SpeechRequest:
    """One utterance. Its audio is a function of the model files and of this object without `request_id`."""

    request_id: str
    prompt: Prompt
    seed: int
    max_frames: int
    sampling: SamplingParams = field(default_factory=SamplingParams)


@dataclass(frozen=True)
class SpeechJob:
    """A request and the reference clip it brings, prepared for the encoder but not yet encoded."""

    request: SpeechRequest
    """Its prompt has no references yet if there is a clip."""
    reference: np.ndarray | None = None
    """float32 [channels, samples] at the codec's rate"""
