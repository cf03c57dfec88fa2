"""A text that may have several parts, spoken one after the other as one stretch of speech."""

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

import numpy as np

from pipeline.codec_service import AudioChunk
from pipeline.config import CodecConfig
from pipeline.joining import Joiner
from pipeline.languages import longest_pause
from pipeline.random_state import another_seed
from pipeline.request import SpeechJob
from pipeline.runaway import RunawayWatch

STOP, LENGTH, RUNAWAY = "stop", "length", "runaway"
ATTEMPTS = 4
"""at a part of which nothing has been said"""
_WORST_FIRST = (RUNAWAY, LENGTH, STOP)


@dataclass(frozen=True)
class Piece:
    """Some audio of an utterance. The last piece, and only it, has a `finish` reason."""

    samples: np.ndarray
    """float32 [channels, samples]; may be empty"""
    finish: str | None = None


class Speaker:
    """Speaks one part after the other in one voice. `speak` gives the chunks of a part and may be closed early.

    Without a clip to clone, all later parts clone the first one. `frames` counts what has been made so far.
    """

    def __init__(self, speak: Callable[[SpeechJob], AsyncGenerator[AudioChunk]], codec: CodecConfig):
        self._speak = speak
        self._codec = codec
        self._voice: list[np.ndarray] = []
        self._finishes: Counter[str] = Counter()
        self.frames = 0

    async def part(self, job: SpeechJob) -> AsyncGenerator[np.ndarray]:
        """Its samples, float32 `[channels, samples]`, as they come.

        A model may draw the end before the first frame, and so leave out what was to be said: then it is asked again,
        with a seed that follows from the first one. So an answer is still a function of its request.
        """
        job = self._in_the_voice(job)
        first, said, finish = job.request.seed, self.frames, None
        for seed in (first, *(another_seed(first, attempt) for attempt in range(1, ATTEMPTS))):
            attempt = self._attempt(replace(job, request=replace(job.request, seed=seed)))
            async with aclosing(attempt):
                async for samples, finish in attempt:  # noqa: B007 - the reason comes with the last samples
                    yield samples
            if self.frames > said:
                break
        self._finishes[finish] += 1

    async def _attempt(self, job: SpeechJob) -> AsyncGenerator[tuple[np.ndarray, str | None]]:
        """Samples; with the last ones, why it ended."""
        watch = RunawayWatch(1 / self._codec.frame_rate, longest_pause(job.request.prompt.text))
        async with aclosing(self._speak(job)) as chunks:
            async for chunk in chunks:
                codes = chunk.frames.codes
                good = watch.good_frames(codes, chunk.samples)
                finish = RUNAWAY if good < len(codes) else chunk.frames.finish
                self.frames += good
                if not self._finishes:
                    self._voice.append(codes[:good])
                yield chunk.samples[:, : good * self._codec.samples_per_frame], finish
                if finish:
                    return

    def cut_short(self) -> None:
        """Parts are left out because of a limit."""
        self._finishes[LENGTH] += 1

    @property
    def finish(self) -> str:
        """Why it ended: the worst reason of all parts so far."""
        return next(reason for reason in _WORST_FIRST if self._finishes[reason])

    def _in_the_voice(self, job: SpeechJob) -> SpeechJob:
        """With the first part as its reference, unless it is the first, has one, or nothing was said."""
        request = job.request
        if job.reference is not None or request.prompt.references or not sum(map(len, self._voice)):
            return job
        voice = np.concatenate(self._voice)
        return replace(job, request=replace(request, prompt=replace(request.prompt, references=(voice,))))


class Utterance:
    """The audio of `parts`, up to `max_frames` in all."""

    def __init__(self, parts: Sequence[SpeechJob], speaker: Speaker, codec: CodecConfig, max_frames: int | None = None):
        self._parts = parts
        self._speaker = speaker
        self._codec = codec
        self._max_frames = max_frames

    @property
    def frames(self) -> int:
        """Made so far."""
        return self._speaker.frames

    async def pieces(self) -> AsyncGenerator[Piece]:
        """What can be played, as it comes. A single part is passed on as it is."""
        joiner = Joiner(self._codec.sampling_rate, self._codec.channels) if len(self._parts) > 1 else None
        for index, part in enumerate(self._parts):
            if index:
                yield Piece(joiner.next_part())
            async with aclosing(self._speaker.part(self._within_the_limit(part))) as audio:
                async for samples in audio:
                    yield Piece(joiner.write(samples) if joiner else samples)
            if self._speaker.frames == self._max_frames and index + 1 < len(self._parts):
                self._speaker.cut_short()
                break
        rest = joiner.finish() if joiner else np.zeros((self._codec.channels, 0), dtype=np.float32)
        yield Piece(rest, self._speaker.finish)

    def _within_the_limit(self, part: SpeechJob) -> SpeechJob:
        if self._max_frames is None:
            return part
        left = min(part.request.max_frames, self._max_frames - self._speaker.frames)
        return replace(part, request=replace(part.request, max_frames=left))
