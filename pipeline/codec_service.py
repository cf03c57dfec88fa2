"""The codec at work for many streams: steps that are ready share a pass, reference clips are encoded once."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace

import numpy as np
import torch

from pipeline.batch_worker import BatchWorker
from pipeline.codec import CodecDecoder, CodecEncoder, StreamState
from pipeline.errors import EngineStopped
from pipeline.reference import content_key
from pipeline.request import FrameChunk, SpeechJob, SpeechRequest


@dataclass(frozen=True)
class AudioChunk:
    """The audio of one FrameChunk."""

    samples: np.ndarray
    """float32 [channels, frames * samples_per_frame]"""
    frames: FrameChunk


@dataclass(eq=False)
class _Stream:
    state: StreamState | None = None


@dataclass(frozen=True)
class _Step:
    """Frames to decode, or None to give the stream's memory back."""

    stream: _Stream
    codes: np.ndarray | None


@dataclass(eq=False)
class _Clip:
    """The codes of a reference clip, or the work on them that `readers` wait for."""

    codes: asyncio.Future[np.ndarray]
    readers: int = 0

    @property
    def known(self) -> bool:
        return self.codes.done() and not self.codes.cancelled() and self.codes.exception() is None


class CodecService:
    """Decodes any number of streams, `max_streams` of them at a time, and encodes reference clips.

    All decoder state is touched on one thread only. A stream beyond `max_streams` waits for a place once its first
    chunk is there, so that it is the engine's queue that fills up; its further codes wait in their source, which holds
    at most a request's frame limit of them.
    """

    def __init__(self, decoder: CodecDecoder, encoder: CodecEncoder, *, max_streams: int, cache_size: int):
        self._decoder = decoder
        self._encoder = encoder
        self._places = asyncio.Semaphore(max_streams)
        self._decoding: BatchWorker[_Step, np.ndarray] = BatchWorker(
            self._decode_steps, limit=max_streams, name="codec-decoder"
        )
        self._encoding: BatchWorker[np.ndarray, np.ndarray] = BatchWorker(
            self._encode_clips, limit=1, name="codec-encoder"
        )
        self._cache: OrderedDict[str, _Clip] = OrderedDict()
        self._cache_size = cache_size
        self.streams = 0

    async def speak(
        self, job: SpeechJob, generate: Callable[[SpeechRequest], AsyncGenerator[FrameChunk]]
    ) -> AsyncGenerator[AudioChunk]:
        """The audio of a job: encodes its clip into the prompt and decodes the frames that `generate` makes of it."""
        request = job.request
        if job.reference is not None:
            codes = await self.encode(job.reference)
            request = replace(request, prompt=replace(request.prompt, references=(codes,)))
        async with (
            aclosing(generate(request)) as frames,
            aclosing(self.decode(frames, request.done)) as audio,
        ):
            async for chunk in audio:
                yield chunk

    async def decode(
        self, frames: AsyncIterator[FrameChunk], done: np.ndarray | None = None
    ) -> AsyncGenerator[AudioChunk]:
        """The audio of a stream of frames, chunk by chunk. The stream's memory is freed when it ends or is closed.

        `done` int64 `[frames, n_vq]` are the frames before the first one, whose audio is not wanted any more.
        """
        chunk = await anext(frames, None)
        if chunk is None:
            return
        async with self._places:
            stream = _Stream()
            self.streams += 1
            try:
                for start in range(0, 0 if done is None else len(done), self._decoder.max_step_frames):
                    await self._decode(stream, done[start : start + self._decoder.max_step_frames])
                while chunk is not None:
                    yield AudioChunk(await self._decode(stream, chunk.codes), chunk)
                    chunk = await anext(frames, None)
            finally:
                self.streams -= 1
                self._close(stream)

    async def encode(self, audio: np.ndarray) -> np.ndarray:
        """Codes int64 `[frames, n_vq]` of a prepared clip, float32 `[channels, samples]`; equal clips only once.

        A clip that all its readers have left before its turn is not encoded; a failure is not remembered.
        """
        key = await asyncio.to_thread(content_key, audio)
        if key not in self._cache:
            self._cache[key] = _Clip(self._encoding.enqueue(audio))
        self._cache.move_to_end(key)
        clip = self._cache[key]
        while len(self._cache) > self._cache_size:
            self._cache.popitem(last=False)
        clip.readers += 1
        try:
            return await asyncio.shield(clip.codes)
        finally:
            clip.readers -= 1
            if not clip.readers and not clip.known:
                clip.codes.cancel()
                if self._cache.get(key) is clip:
                    del self._cache[key]

    @property
    def blocks_in_use(self) -> int:
        """KV blocks held by open streams."""
        return self._decoder.blocks_in_use

    @property
    def bytes_in_use(self) -> int:
        """Of those blocks."""
        return self._decoder.stack.bytes_in_use

    def stalled_seconds(self) -> float:
        """How long the pass at work has been running; 0 when idle."""
        return max(self._decoding.busy_seconds, self._encoding.busy_seconds)

    def close(self) -> None:
        self._decoding.close()
        self._encoding.close()

    async def _decode(self, stream: _Stream, codes: np.ndarray) -> np.ndarray:
        if len(codes) == 0:
            return np.empty((self._decoder.config.channels, 0), dtype=np.float32)
        return await self._decoding.submit(_Step(stream, codes))

    def _close(self, stream: _Stream) -> None:
        # Queued now: behind the stream's own step that may be in work, and before any step of the next stream.
        with suppress(EngineStopped):
            self._decoding.enqueue(_Step(stream, None)).add_done_callback(_take_note)

    def _decode_steps(self, steps: Sequence[_Step]) -> list[np.ndarray | None]:
        for step in steps:
            if step.codes is None and step.stream.state is not None:
                self._decoder.close(step.stream.state)
                step.stream.state = None
        ready = [step for step in steps if step.codes is not None]
        for step in ready:
            step.stream.state = step.stream.state or self._decoder.open()
        audio = self._decoder.decode([(step.stream.state, torch.from_numpy(step.codes)) for step in ready])
        by_step = {id(step): samples.cpu().numpy() for step, samples in zip(ready, audio, strict=True)}
        return [by_step.get(id(step)) for step in steps]

    def _encode_clips(self, clips: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [
            self._encoder.encode(torch.from_numpy(np.array(clip)), self._decoder.n_vq).cpu().numpy() for clip in clips
        ]


def _take_note(future: asyncio.Future) -> None:
    """Nobody awaits the end of a stream; when the worker is shut down first, its memory goes with it."""
    if not future.cancelled():
        future.exception()
