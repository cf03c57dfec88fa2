"""Output audio: from the model's waveform to the bytes of a file, chunk by chunk.

`AudioOutput` composes the steps: mix channels, change the tempo, resample, round to 16 bits, encode. Every step
keeps its state over chunks, so the joined bytes do not depend on how the waveform was cut.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import soxr

from pipeline.aac import AAC_RATES, aac_encoder
from pipeline.encoders import AudioEncoder, LibavEncoder, PcmEncoder, WavEncoder
from pipeline.encoders import wav_header as wav_header
from pipeline.errors import InvalidRequest, SpeechError
from pipeline.mp3 import MP3_RATES, mp3_encoder
from pipeline.tempo import Tempo

MIN_RATE, MAX_RATE = 8_000, 48_000
LEAST_DEFAULT_RATE = 24_000
"""Hz, unless a client asks for less: players and telephony stacks take 24 kHz for granted, models may speak at 16."""
CHANNELS = (1, 2)
MIN_SPEED, MAX_SPEED = 0.25, 4.0


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
    _check_finite(pcm)
    return np.ascontiguousarray(np.clip(np.rint(pcm * np.float32(32768)), -32768, 32767).astype(np.int16).T)


def _check_finite(pcm: np.ndarray) -> None:
    if not np.isfinite(pcm).all():
        raise SpeechError("the waveform holds samples that are not finite")


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


@dataclass(frozen=True)
class AudioFormat:
    """`encoder(rate, channels, streaming)` makes an AudioEncoder; unset defaults mean the model's own."""

    content_type: str
    encoder: Callable[[int, int, bool], AudioEncoder]
    rates: tuple[int, ...] | None = None
    default_rate: int | None = None
    default_channels: int | None = None


_FLAC = partial(LibavEncoder, container="flac", codec="flac", lossy=False, options={"metadata_header_padding": "0"})
# A page of 20 ms: the muxer holds each back until the next begins, and a file of a single page gets its length wrong.
_OPUS = partial(LibavEncoder, container="ogg", codec="libopus", lossy=True, options={"page_duration": "20000"})
_OPUS_RATES = (8_000, 12_000, 16_000, 24_000, 48_000)

FORMATS = {
    "mp3": AudioFormat("audio/mpeg", mp3_encoder, rates=MP3_RATES),
    "opus": AudioFormat("audio/ogg", _OPUS, rates=_OPUS_RATES),
    "aac": AudioFormat("audio/aac", aac_encoder, rates=AAC_RATES),
    "flac": AudioFormat("audio/flac", _FLAC),
    "wav": AudioFormat("audio/wav", WavEncoder),
    # OpenAI's pcm is 24 kHz mono and says so nowhere in the bytes: clients rely on it.
    "pcm": AudioFormat("audio/pcm", PcmEncoder, default_rate=24_000, default_channels=1),
}


class AudioOutput:
    """One utterance on its way out: float32 chunks of the model in, bytes of `format` out.

    With `streaming` every call returns bytes ready to send; otherwise a container comes whole from `finish`,
    with exact lengths. Joined, the bytes are the file in both cases. `rate` (Hz) and `channels` left None
    take the format's default. `speed`, 0.25 to 4, changes the tempo and keeps the pitch. Raises InvalidRequest
    for an unknown format, for a rate or channel count it cannot carry, and for another speed.
    """

    def __init__(
        self,
        format: str,
        native_rate: int,
        native_channels: int,
        rate: int | None = None,
        channels: int | None = None,
        streaming: bool = True,
        speed: float = 1.0,
    ):
        spec = _format(format)
        self.content_type = spec.content_type
        self.rate = _checked_rate(format, spec, _first_set(rate, spec.default_rate, _default_rate(spec, native_rate)))
        self.channels = _checked_channels(_first_set(channels, spec.default_channels, native_channels))
        # At the model's own rate, so that one seed is cut in the same places for every `rate`.
        self._tempo = Tempo(native_rate, self.channels, _checked_speed(speed))
        self._resampler = Resampler(native_rate, self.rate, self.channels)
        self._encoder = spec.encoder(self.rate, self.channels, streaming)

    def write(self, chunk: np.ndarray) -> bytes:
        """`chunk`: float32 `[native_channels, samples]`, of any length. Raises SpeechError if it is not finite."""
        _check_finite(chunk)
        return self._encode(self._resampler.process(self._tempo.process(mix_channels(chunk, self.channels))))

    def finish(self) -> bytes:
        """The rest of the file. To be called once, after the last chunk."""
        rest = self._encode(self._resampler.process(self._tempo.flush()))
        return rest + self._encode(self._resampler.flush()) + self._encoder.finish()

    def _encode(self, pcm: np.ndarray) -> bytes:
        return self._encoder.encode(to_int16(pcm)) if pcm.shape[1] else b""


def _default_rate(spec: AudioFormat, native_rate: int) -> int:
    """The model's own, or the nearest above it that the format carries, and never below what clients expect."""
    wanted = min(max(native_rate, LEAST_DEFAULT_RATE), MAX_RATE)
    return min((rate for rate in spec.rates or (wanted,) if rate >= wanted), default=MAX_RATE)


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


def _checked_speed(speed: float) -> float:
    if not MIN_SPEED <= speed <= MAX_SPEED:
        raise InvalidRequest(f"speed must lie in {MIN_SPEED}..{MAX_SPEED}, not {speed}", param="speed")
    return speed
