"""Output audio: from the model's waveform to the bytes of a file, chunk by chunk.

`AudioOutput` composes the steps: mix channels, resample, round to 16 bits, encode. Every step keeps its state
over chunks, so the joined bytes do not depend on how the waveform was cut.
"""

import io
import struct
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import av
import numpy as np
import soxr

from pipeline.errors import InvalidRequest, SpeechError

MIN_RATE, MAX_RATE = 8_000, 48_000
CHANNELS = (1, 2)

_UNKNOWN_LENGTH = 0xFFFFFFFF


def mix_channels(pcm: np.ndarray, channels: int) -> np.ndarray:
    """float `[c, samples]` to `[channels, samples]`: the mean for one channel, else repeated in order."""
    if len(pcm) == channels:
        return pcm
    if channels == 1:
        return pcm.mean(axis=0, keepdims=True, dtype=pcm.dtype)
    return pcm[np.arange(channels) % len(pcm)]


def to_int16(pcm: np.ndarray) -> np.ndarray:
    """float32 `[channels, samples]` to int16 `[samples, channels]`: x 32768, rounded half to even, clipped.

    Scaling by a power of two is exact, so `to_int16(x / 32768)` gives back every int16 x. Raises SpeechError
    when a sample is not finite.
    """
    if not np.isfinite(pcm).all():
        raise SpeechError("the waveform holds samples that are not finite")
    return np.ascontiguousarray(np.clip(np.rint(pcm * np.float32(32768)), -32768, 32767).astype(np.int16).T)


class Resampler:
    """Streams float32 `[channels, samples]` from one rate to another (soxr HQ); the identity for equal rates.

    The joined output has the same bits for any cut of the input.
    """

    def __init__(self, source_rate: int, target_rate: int, channels: int):
        self._channels = channels
        self._stream = None
        if source_rate != target_rate:
            self._stream = soxr.ResampleStream(source_rate, target_rate, channels, dtype="float32", quality="HQ")

    def process(self, chunk: np.ndarray) -> np.ndarray:
        """What can be told so far; the filter holds back some milliseconds until `flush`."""
        return chunk if self._stream is None else self._run(chunk, last=False)

    def flush(self) -> np.ndarray:
        rest = np.zeros((self._channels, 0), dtype=np.float32)
        return rest if self._stream is None else self._run(rest, last=True)

    def _run(self, chunk: np.ndarray, last: bool) -> np.ndarray:
        return self._stream.resample_chunk(np.ascontiguousarray(chunk.T), last=last).T


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
    riff_bytes = _UNKNOWN_LENGTH if data_bytes is None else 36 + data_bytes
    pcm, bits, block_bytes = 1, 16, 2 * channels
    return struct.pack(
        "<4sI4s4sIHHIIHH4sI",
        *(b"RIFF", riff_bytes, b"WAVE"),
        *(b"fmt ", 16, pcm, channels, rate, rate * block_bytes, block_bytes, bits),
        *(b"data", _UNKNOWN_LENGTH if data_bytes is None else data_bytes),
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


class LibavEncoder:
    """Any codec and container of libav. A whole file has its exact length in the header, a stream cannot.

    `stream_header(first_bytes)` gives bytes to put in front of a stream. A streamed MP3 ends on a whole frame
    (1152 samples from 32 kHz on, 576 below), so it may be that much longer than its audio.
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
    ):
        self._layout = "mono" if channels == 1 else "stereo"
        self._rate = rate
        self._sink = _StreamSink() if streaming else io.BytesIO()
        self._stream_header = stream_header if streaming else None
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
        frame = av.AudioFrame.from_ndarray(chunk.reshape(1, -1), format="s16", layout=self._layout)
        frame.sample_rate = self._rate
        self._container.mux(self._stream.encode(frame))
        return self._ready()

    def finish(self) -> bytes:
        self._container.mux(self._stream.encode(None))
        self._container.close()
        return self._ready() if isinstance(self._sink, _StreamSink) else self._sink.getvalue()

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


def mp3_stream_header(frame: bytes) -> bytes:
    """An `Info` frame for an MP3 stream that starts with `frame`: tells players the encoder delay to skip.

    Without it a decoder plays 1105 samples of padding first. It gives no length, since none is known. Layout:
    frame header (ISO 11172-3), side information left zero, Xing tag, LAME tag with the delay at its byte 21.
    """
    mpeg1, mono = frame[1] & 0x08, frame[3] >> 6 == 3
    side_information = (17 if mono else 32) if mpeg1 else (9 if mono else 17)
    no_crc, no_padding = frame[1] | 0x01, frame[2] & ~0x02
    header = bytes([frame[0], no_crc, no_padding, frame[3]])
    stream_size_follows = 0x02
    tag = b"Info" + struct.pack(">II", stream_size_follows, _UNKNOWN_LENGTH)
    lame = b"LAME3.100" + bytes(12) + (_LAME_DELAY << 12).to_bytes(3, "big") + bytes(12)
    return (header + bytes(side_information) + tag + lame).ljust(_mp3_frame_bytes(header), b"\0")


_LAME_DELAY = 576
"""Samples LAME puts in front; decoders add 529 of their own and skip both."""


def _mp3_frame_bytes(header: bytes) -> int:
    """Length of an unpadded layer III frame by its header (ISO 11172-3 2.4.2.3, 13818-3 2.4.2.3)."""
    version, bit_rate_index, rate_index = header[1] >> 3 & 3, header[2] >> 4, header[2] >> 2 & 3
    mpeg1 = version == 3
    bit_rates = _MPEG1_KBITS if mpeg1 else _MPEG2_KBITS
    rate = (44_100, 48_000, 32_000)[rate_index] // {3: 1, 2: 2, 0: 4}[version]
    return (144 if mpeg1 else 72) * bit_rates[bit_rate_index] * 1000 // rate


_MPEG1_KBITS = (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)
_MPEG2_KBITS = (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)
_MP3_RATES = (8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)


@dataclass(frozen=True)
class AudioFormat:
    """`encoder(rate, channels, streaming)` makes an AudioEncoder; unset defaults mean the model's own."""

    content_type: str
    encoder: Callable[[int, int, bool], AudioEncoder]
    rates: tuple[int, ...] | None = None
    default_rate: int | None = None
    default_channels: int | None = None


_FLAC = partial(LibavEncoder, container="flac", codec="flac", lossy=False, options={"metadata_header_padding": "0"})
_MP3 = partial(
    LibavEncoder,
    container="mp3",
    codec="libmp3lame",
    lossy=True,
    options={"id3v2_version": "0"},
    stream_header=mp3_stream_header,
)

FORMATS = {
    "mp3": AudioFormat("audio/mpeg", _MP3, rates=_MP3_RATES),
    "flac": AudioFormat("audio/flac", _FLAC),
    "wav": AudioFormat("audio/wav", WavEncoder),
    # OpenAI's pcm is 24 kHz mono and says so nowhere in the bytes: clients rely on it.
    "pcm": AudioFormat("audio/pcm", PcmEncoder, default_rate=24_000, default_channels=1),
}


class AudioOutput:
    """One utterance on its way out: float32 chunks of the model in, bytes of `format` out.

    With `streaming` every call returns bytes ready to send; otherwise a container comes whole from `finish`,
    with exact lengths. Joined, the bytes are the file in both cases. `rate` (Hz) and `channels` left None
    take the format's default. Raises InvalidRequest for an unknown format and for a rate or channel count it
    cannot carry.
    """

    def __init__(
        self,
        format: str,
        native_rate: int,
        native_channels: int,
        rate: int | None = None,
        channels: int | None = None,
        streaming: bool = True,
    ):
        spec = _format(format)
        self.content_type = spec.content_type
        self.rate = _checked_rate(format, spec, _first_set(rate, spec.default_rate, native_rate))
        self.channels = _checked_channels(_first_set(channels, spec.default_channels, native_channels))
        self._resampler = Resampler(native_rate, self.rate, self.channels)
        self._encoder = spec.encoder(self.rate, self.channels, streaming)

    def write(self, chunk: np.ndarray) -> bytes:
        """`chunk`: float32 `[native_channels, samples]`, of any length."""
        return self._encode(self._resampler.process(mix_channels(chunk, self.channels)))

    def finish(self) -> bytes:
        """The rest of the file. To be called once, after the last chunk."""
        return self._encode(self._resampler.flush()) + self._encoder.finish()

    def _encode(self, pcm: np.ndarray) -> bytes:
        return self._encoder.encode(to_int16(pcm)) if pcm.shape[1] else b""


def _first_set(*values: int | None) -> int:
    return next(value for value in values if value is not None)


def _format(name: str) -> AudioFormat:
    spec = FORMATS.get(name.strip().lower())
    if spec is None:
        raise InvalidRequest(f"response_format {name!r} is not one of: {', '.join(FORMATS)}", param="response_format")
    return spec


def _checked_rate(name: str, spec: AudioFormat, rate: int) -> int:
    if not MIN_RATE <= rate <= MAX_RATE:
        message = f"sample_rate must lie in {MIN_RATE}..{MAX_RATE}, not {rate}"
        raise InvalidRequest(message, param="sample_rate")
    if spec.rates and rate not in spec.rates:
        known = ", ".join(map(str, spec.rates))
        message = f"response_format {name!r} has no sample_rate {rate}, only: {known}"
        raise InvalidRequest(message, param="sample_rate")
    return rate


def _checked_channels(channels: int) -> int:
    if channels not in CHANNELS:
        raise InvalidRequest(f"channels must be 1 or 2, not {channels}", param="channels")
    return channels
