"""The finished voice at work, through the server's own engine, and its codec on recorded speech."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import torch

from pipeline.codec import CodecDecoder, CodecEncoder
from pipeline.config import CodecConfig
from pipeline.engine import EngineLimits
from pipeline.languages import estimated_frames
from pipeline.normalise import normalise
from pipeline.reference import prepare_reference
from pipeline.request import Prompt, SamplingParams, SpeechJob, SpeechRequest
from pipeline.speech import Speech

TOGETHER = 16
"""Requests that are spoken at once; what each says does not depend on it."""
GREEDY = SamplingParams(temperature=0.0, stop_temperature=0.0)


@dataclass(frozen=True)
class Spoken:
    samples: np.ndarray
    """int16 [samples]"""
    frames: int
    finish: str
    """`stop`, or `length` for one that never ended"""


class Voice:
    """Speaks texts with the model in `directory`, as a server would. Use it as a context manager."""

    def __init__(self, directory: Path):
        self._codec = CodecConfig.load(directory / "codec")
        limits = EngineLimits(max_running=TOGETHER, max_waiting=1000, kv_blocks=32 * TOGETHER, cohorts=1)
        self._speech = Speech.load(directory, limits=limits)

    def say(
        self, text: str, sampling: SamplingParams | None = None, seed: int = 0, clip: np.ndarray | None = None
    ) -> Spoken:
        """One text without a language tag. sampling: None is a server's default. clip: int16 `[samples]` of a voice."""
        text = normalise(text, None)
        request = SpeechRequest(
            request_id=str(seed),
            prompt=Prompt(text),
            seed=seed,
            max_frames=2 * estimated_frames(text, None) + 25,
            sampling=sampling or SamplingParams(),
        )
        job = SpeechJob(request, reference=None if clip is None else self._prepared(clip))
        chunks = list(self._speech.generate(job))
        samples = np.concatenate([chunk.samples[0] for chunk in chunks])
        return Spoken(_to_int16(samples), sum(len(chunk.frames.codes) for chunk in chunks), chunks[-1].frames.finish)

    def say_all(
        self, texts: Sequence[str], sampling: SamplingParams | None = None, clip: np.ndarray | None = None
    ) -> list[Spoken]:
        """All texts, text i with seed i, in the order given."""
        with ThreadPoolExecutor(TOGETHER) as pool:
            return list(pool.map(lambda item: self.say(item[1], sampling, item[0], clip), enumerate(texts)))

    def _prepared(self, clip: np.ndarray) -> np.ndarray:
        return prepare_reference(_to_float(clip), self._codec.sampling_rate, self._codec)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._speech.__exit__(*error)


class RoundTrip:
    """Encodes and decodes 16 kHz speech with the codec in `directory`."""

    def __init__(self, directory: Path, n_vq: int):
        config = CodecConfig.load(directory)
        options = {"dtype": torch.float32, "max_step_frames": 64}
        self._n_vq = n_vq
        self._encoder = CodecEncoder.load(directory, config, **options)
        self._decoder = CodecDecoder.load(directory, config, max_streams=1, n_vq=n_vq, **options)

    def __call__(self, samples: np.ndarray) -> np.ndarray:
        """int16 `[samples]` to int16 of as many whole frames."""
        codes = self._encoder.encode(torch.from_numpy(_to_float(samples)), self._n_vq)
        return _to_int16(self._decoder.decode_all(codes)[0].numpy())


def _to_float(samples: np.ndarray) -> np.ndarray:
    return samples.astype(np.float32)[None] / np.float32(32768)


def _to_int16(samples: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(samples * 32768), -32768, 32767).astype(np.int16)
