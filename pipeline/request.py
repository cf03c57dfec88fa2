"""The nouns of a request, shared by every part of the project."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

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
class FrameChunk:
    """Consecutive frames of one request. The last chunk of a request, and only it, has a `finish` reason."""

    start: int
    """Index of the first frame."""
    codes: np.ndarray
    """int64 [frames, n_vq]; the last chunk may be empty"""
    finish: str | None = None
    """`stop` (the model ended the utterance) or `length` (the frame limit was reached)"""
    generator: np.ndarray | None = None
    """uint8: state of the request's torch.Generator after the last frame, where one draws"""


@dataclass(frozen=True)
class SpeechRequest:
    """One utterance. Its audio is a function of the model files, prompt, seed, sampling and frame limit.

    `done` and `generator` say how far it has come already: the engine goes on after them, with the same frames that it
    would have made from the start.
    """

    request_id: str
    prompt: Prompt
    seed: int
    max_frames: int
    sampling: SamplingParams = field(default_factory=SamplingParams)
    done: np.ndarray | None = None
    """int64 [frames, n_vq]"""
    generator: np.ndarray | None = None
    """uint8: state of the torch.Generator after `done`, where one draws"""
    accepted: bool = False
    """Another engine had it already: it does not queue up again, and a full queue does not refuse it."""

    def after(self, chunks: Sequence[FrameChunk]) -> "SpeechRequest":
        """The rest of this request, to go on with elsewhere once `chunks` of it have been made."""
        if not chunks:
            return replace(self, accepted=True)
        made = [chunk.codes for chunk in chunks]
        done = np.concatenate(made if self.done is None else [self.done, *made])
        return replace(self, done=done, generator=chunks[-1].generator, accepted=True)


@dataclass(frozen=True)
class SpeechJob:
    """A request and the reference clip it brings, prepared for the encoder but not yet encoded."""

    request: SpeechRequest
    """Its prompt has no references yet if there is a clip."""
    reference: np.ndarray | None = None
    """float32 [channels, samples] at the codec's rate"""
