"""The audio of one answer, and where two answers differ."""

import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass

import av
import numpy as np

from pipeline.errors import SpeechError

_PCM_RATE, _PCM_CHANNELS = "24000", "1"
"""OpenAI's pcm, where no header says otherwise. Its samples have 16 bits."""


class UnreadableAnswer(SpeechError):
    """An answer whose audio cannot be read, or that holds none."""


@dataclass(frozen=True)
class Answer:
    """Interleaved integer samples as bytes, `frame_bytes` for all channels at one instant; `rate` in Hz.

    `seed` is what the header X-Seed says, None without one.
    """

    samples: bytes
    rate: int
    channels: int
    frame_bytes: int
    seed: str | None

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.frame_bytes / self.rate

    @property
    def digest(self) -> str:
        """SHA-256 of the samples."""
        return hashlib.sha256(self.samples).hexdigest()

    def difference(self, other: "Answer") -> str | None:
        """Where `other` first differs from this one, in words; None if the samples are the same."""
        if (self.rate, self.channels) != (other.rate, other.channels):
            return f"it has {other.rate} Hz x {other.channels}, the first answer {self.rate} Hz x {self.channels}"
        if self.digest == other.digest:
            return None
        byte = first_difference(self.samples, other.samples)
        sample = byte // self.frame_bytes
        return (
            f"first differs at byte {byte}, sample {sample}, {sample / self.rate:.3f} s; "
            f"it has {len(other.samples)} bytes of samples, the first answer {len(self.samples)}"
        )


def first_difference(left: bytes, right: bytes) -> int:
    """Index of the first byte that differs; the length of the shorter if it is how the longer begins."""
    length = min(len(left), len(right))
    unequal = np.frombuffer(left, np.uint8, length) != np.frombuffer(right, np.uint8, length)
    return int(unequal.argmax()) if unequal.any() else length


def read_answer(content: bytes, format: str, headers: Mapping[str, str]) -> Answer:
    """The samples of a `pcm`, `wav` or `flac` body. A file's header says other lengths when streamed: it is left out.

    `headers`: with lower-case names. Raises UnreadableAnswer.
    """
    if format == "pcm":
        rate = _number(headers, "x-sample-rate", _PCM_RATE)
        channels = _number(headers, "x-channels", _PCM_CHANNELS)
        samples, frame_bytes = content, 2 * channels
    else:
        array, rate = _decoded(content, format)
        channels = array.shape[1]
        samples, frame_bytes = array.tobytes(), channels * array.itemsize
    if not samples:
        raise UnreadableAnswer("the answer holds no audio")
    return Answer(samples, rate, channels, frame_bytes, headers.get("x-seed"))


def _number(headers: Mapping[str, str], name: str, default: str) -> int:
    value = headers.get(name, default)
    if not (value.isdecimal() and int(value)):
        raise UnreadableAnswer(f"the header {name} of the answer is {value[:80]!r}, not a positive number")
    return int(value)


def _decoded(content: bytes, format: str) -> tuple[np.ndarray, int]:
    """Samples `[samples, channels]` as they are in the file, and their rate in Hz."""
    try:
        with av.open(io.BytesIO(content), format=format) as container:
            stream = container.streams.audio[0]
            parts = [np.empty((0, stream.channels), np.int16)]
            for frame in container.decode(stream):
                array = frame.to_ndarray()
                parts.append(array.T if frame.format.is_planar else array.reshape(-1, stream.channels))
            return np.concatenate(parts), stream.rate
    except av.FFmpegError as error:
        raise UnreadableAnswer(f"the answer is no {format} file that can be decoded ({error.strerror})") from None
