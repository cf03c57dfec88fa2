"""One request while the engine works on it."""

import asyncio
from dataclasses import dataclass, field

import numpy as np

from pipeline.chunks import chunk_ends
from pipeline.kv_blocks import BlockTable
from pipeline.request import FrameChunk, SpeechRequest


@dataclass(eq=False)
class Sequence:
    """Rows done and to do, KV blocks, frames so far, and the queue its reader takes chunks from.

    The queue needs no bound of its own: it never holds more than `request.max_frames` frames of codes.
    """

    request: SpeechRequest
    known: np.ndarray
    """int64 [T, 1 + n_vq]: the rows to prefill, of the prompt and of the frames that are done"""
    table: BlockTable = field(default_factory=BlockTable)
    keys: list[bytes] = field(default_factory=list)
    """Of the blocks full of `known` rows, to find or publish them by; the very last row is always computed."""
    frames: list[np.ndarray] = field(default_factory=list)
    generator: np.ndarray | None = None
    """State of the request's torch.Generator, where one draws."""
    emitted: np.ndarray | None = None
    """bool [n_vq, codes], where a repetition penalty needs it."""
    chunks: asyncio.Queue[FrameChunk | Exception] = field(default_factory=asyncio.Queue)
    cancelled: bool = False

    def __post_init__(self) -> None:
        for codes in self.request.done if self.request.done is not None else ():
            self._take(codes)
        self._sent = len(self.frames)
        self._ends = chunk_ends(after=self._sent)
        self._next_end = next(self._ends)

    @property
    def positions(self) -> int:
        """Rows the sequence may come to have."""
        return len(self.known) + self.request.max_frames - self._resumed

    @property
    def at_limit(self) -> bool:
        return len(self.frames) >= self.request.max_frames

    def append(self, codes: np.ndarray) -> None:
        """Takes the next frame, int64 [n_vq], and hands a chunk to the reader when one is full."""
        self._take(codes)
        if len(self.frames) == self._next_end and not self.at_limit:
            self._send(None)
            self._next_end = next(self._ends)

    def finish(self, reason: str) -> None:
        self._send(reason)

    def fail(self, error: Exception) -> None:
        self.chunks.put_nowait(error)

    @property
    def _resumed(self) -> int:
        return 0 if self.request.done is None else len(self.request.done)

    def _take(self, codes: np.ndarray) -> None:
        self.frames.append(codes)
        if self.emitted is not None:
            self.emitted[np.arange(len(codes)), codes] = True

    def _send(self, reason: str | None) -> None:
        frames = self.frames[self._sent :]
        codes = np.stack(frames) if frames else np.empty((0, self.known.shape[1] - 1), dtype=np.int64)
        self.chunks.put_nowait(FrameChunk(self._sent, codes, reason, self.generator))
        self._sent = len(self.frames)
