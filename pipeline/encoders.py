"""Encoders: from 16-bit samples to the bytes of a file, chunk by chunk."""

import io
import struct
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import av
import numpy as np

UNKNOWN_LENGTH = 0xFFFFFFFF


class AudioEncoder(Protocol):
    """Turns int16 `[samples, channels]` chunks into a file; its returned bytes, joined, are the file."""

    def encode(self, chunk: np.ndarray) -> bytes: ...

    def finish(self) -> bytes: ...


class PcmEncoder:
    """Bare samples: 16 bits, little-endian, interleaved. Every chunk holds whole samples."""

    def __init__(self, rate: int, channels: int, streaming: bool):
        pass

    def encode(self, chunk: np.ndarray) -> bytes:
        return chunk.astype("<i2", copy=False).tobytes()

    def finish(self) -> bytes:
        return b""


class WavEncoder:
    """RIFF WAVE with the canonical 44-byte header. A stream cannot know its length and says 0xFFFFFFFF."""

    def __init__(self, rate: int, channels: int, streaming: bool):
        self._rate, self._channels, self._streaming = rate, channels, streaming
        self._pending = [wav_header(rate, channels, None)] if streaming else []

    def encode(self, chunk: np.ndarray) -> bytes:
        self._pending.append(chunk.astype("<i2", copy=False).tobytes())
        return self._take() if self._streaming else b""

    def finish(self) -> bytes:
        rest = self._take()
        return rest if self._streaming else wav_header(self._rate, self._channels, len(rest)) + rest

    def _take(self) -> bytes:
        data = b"".join(self._pending)
        self._pending.clear()
        return data


def wav_header(rate: int, channels: int, data_bytes: int | None) -> bytes:
    """The 44 bytes in front of 16-bit samples; `data_bytes` None writes 0xFFFFFFFF, as streams do."""
    riff_bytes = UNKNOWN_LENGTH if data_bytes is None else 36 + data_bytes
    pcm, bits, block_bytes = 1, 16, 2 * channels
    return struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        *(b"RIFF", riff_bytes, b"WAVE"),
        *(b"fmt ", 16, pcm, channels, rate, rate * block_bytes, block_bytes, bits),
        *(b"data", UNKNOWN_LENGTH if data_bytes is None else data_bytes),
    )


class _StreamSink:
    """A file without `seek`, so that the muxer never goes back to bytes already sent."""

    def __init__(self):
        self._pending = bytearray()

    def write(self, data: bytes) -> int:
        self._pending += data
        return len(data)

    def take(self) -> bytes:
        data = bytes(self._pending)
        self._pending.clear()
        return data


@dataclass(frozen=True)
class Framing:
    """How packets make up a file that cannot say its length: a decoder plays every sample of every packet.

    `packet`: samples a packet decodes to. `delay`: samples of the codec in front of the audio, told to decoders.
    `silence`: zeros put in front of the audio. `dropped`: leading packets left out. `spare`: samples at the end
    of the audio that may be left out where a packet more would make the file too long.
    """

    packet: int
    delay: int = 0
    silence: int = 0
    dropped: int = 0
    spare: int = 0

    def kept(self, samples: int) -> range:
        """The packets that make up the file of so many samples, out of those the codec makes."""
        needed = self.delay + self.silence + samples - self.spare
        return range(self.dropped, self.dropped + -(-needed // self.packet))


def longest_surplus(rate: int) -> int:
    """Samples by which a file may outlast its audio: 50 ms, less 1 ms for the roundings on the way there."""
    return 49 * rate // 1000


class LibavEncoder:
    """Any codec and container of libav. A whole file has its exact length in the header, a stream cannot.

    `stream_header(first_bytes)` gives bytes to put in front of a stream. `framing` chooses packets where the file
    has no length.
    """

    def __init__(
        self,
        rate: int,
        channels: int,
        streaming: bool,
        *,
        container: str,
        codec: str,
        lossy: bool,
        options: dict[str, str] | None = None,
        stream_header: Callable[[bytes], bytes] | None = None,
        framing: Framing | None = None,
    ):
        self._rate, self._channels = rate, channels
        self._layout = "mono" if channels == 1 else "stereo"
        self._sink = _StreamSink() if streaming else io.BytesIO()
        self._stream_header = stream_header if streaming else None
        self._framing = framing
        self._samples_in = self._packets_out = 0
        muxer = {"fflags": "+bitexact", "flush_packets": "1", **(options or {})}
        self._container = av.open(self._sink, "w", format=container, options=muxer)
        # An abandoned container is a reference cycle that keeps megabytes until the next garbage collection.
        weakref.finalize(self, self._container.close)
        self._stream = self._container.add_stream(codec, rate=rate, layout=self._layout)
        self._stream.codec_context.thread_count = 1
        if lossy:
            self._stream.bit_rate = _bit_rate(rate, channels)
        self._container.start_encoding()

    def encode(self, chunk: np.ndarray) -> bytes:
        if self._samples_in == 0 and self._framing:
            self._mux(self._packets(np.zeros((self._framing.silence, self._channels), dtype=np.int16)))
        self._samples_in += len(chunk)
        self._mux(self._packets(chunk))
        return self._ready()

    def finish(self) -> bytes:
        self._mux(self._stream.encode(None))
        self._container.close()
        return self._ready() if isinstance(self._sink, _StreamSink) else self._sink.getvalue()

    def _packets(self, chunk: np.ndarray) -> list[av.Packet]:
        if len(chunk) == 0:
            return []
        frame = av.AudioFrame.from_ndarray(chunk.reshape(1, -1), format="s16", layout=self._layout)
        frame.sample_rate = self._rate
        return self._stream.encode(frame)

    def _mux(self, packets: list[av.Packet]) -> None:
        first, self._packets_out = self._packets_out, self._packets_out + len(packets)
        if self._framing:
            # A codec looks ahead: before the end every packet it gives is covered by the samples it has seen.
            kept = self._framing.kept(self._samples_in)
            packets = [packet for index, packet in enumerate(packets, first) if index in kept]
        self._container.mux(packets)

    def _ready(self) -> bytes:
        if not isinstance(self._sink, _StreamSink):
            return b""
        data = self._sink.take()
        if data and self._stream_header:
            data, self._stream_header = self._stream_header(data) + data, None
        return data


def _bit_rate(rate: int, channels: int) -> int:
    """Two bits a sample are transparent for speech; 64 kbit/s is the most MPEG-2.5 offers at 8 kHz."""
    return max(64_000, 2 * rate * channels)
