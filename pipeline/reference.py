"""Reference audio: from the bytes a client sends to the waveform the codec encodes. Deterministic."""

import hashlib
import io
import threading
from collections import OrderedDict

import av
import numpy as np
import soxr

from pipeline.audio import mix_channels
from pipeline.config import CodecConfig
from pipeline.errors import InvalidRequest

MIN_SECONDS, MAX_SECONDS = 1.0, 30.0
MIN_RATE, MAX_RATE = 2_000, 192_000
MAX_CHANNELS = 8
"""Channels kept when decoding: bounds the memory of a clip; the codec takes the first one or two."""

SILENCE_PEAK = 10 ** (-60 / 20)
"""A clip that stays below -60 dBFS holds no voice."""

MAX_PEAK = 100.0
"""40 dB over full scale: floating-point files may overshoot, but not like this."""

# Only plain files: libav's playlist demuxers (hls, concat, dash, ...) would open other files and hosts.
_DEMUXERS = (
    "aac,ac3,aiff,amr,ape,asf,au,avi,caf,dsf,dts,eac3,flac,flv,ircam,loas,matroska,mov,mp3,mpc,mpc8,mpeg,mpegts,"
    "nistsphere,ogg,paf,pvf,rm,shn,tak,tta,voc,w64,wav,wv"
)


def decode_audio(data: bytes) -> tuple[np.ndarray, int]:
    """float32 `[channels, samples]`, full scale 1, and the rate in Hz of a file in any usual audio format.

    Decoding stops as soon as the clip is longer than allowed, so neither a huge file nor a lying header costs
    much. A file without its end counts as what is there, where its format cannot tell. Raises InvalidRequest
    for what is empty, damaged, no audio or too long.
    """
    if not data:
        raise _invalid("the reference audio is empty")
    try:
        with av.open(io.BytesIO(data), metadata_errors="replace", options={"format_whitelist": _DEMUXERS}) as container:
            return _decode(container)
    except av.FFmpegError:
        raise _invalid("the reference audio is damaged, cut short, or in an unknown format") from None


def _decode(container: av.container.InputContainer) -> tuple[np.ndarray, int]:
    stream = container.streams.best("audio")
    if stream is None or stream.codec_context is None:
        raise _invalid("the reference file holds no audio")
    blocks: list[np.ndarray] = []
    rate = channels = samples = 0
    for frame in container.decode(stream):
        if not blocks:
            rate, channels = frame.sample_rate, frame.layout.nb_channels
            _check_rate(rate)
        if (frame.sample_rate, frame.layout.nb_channels) != (rate, channels):
            raise _invalid("the reference audio changes its sample rate or channels midway")
        samples += frame.samples
        _check_not_too_long(samples, rate)
        blocks.append(_frame_samples(frame)[:MAX_CHANNELS])
    if samples == 0:
        raise _invalid("the reference audio is empty")
    return np.concatenate(blocks, axis=1), rate


def _frame_samples(frame: av.AudioFrame) -> np.ndarray:
    """float32 `[channels, samples]`; integers of b bits are divided by 2^(b-1)."""
    samples = frame.to_ndarray()
    if not frame.format.is_planar:
        samples = samples.reshape(-1, frame.layout.nb_channels).T
    if samples.dtype == np.uint8:
        samples = samples.astype(np.int16) - 128
        return samples.astype(np.float32) / np.float32(128)
    if np.issubdtype(samples.dtype, np.integer):
        full_scale = 2.0 ** (8 * samples.dtype.itemsize - 1)
        return (samples / full_scale).astype(np.float32)
    return samples.astype(np.float32)


def prepare_reference(audio: np.ndarray, rate: int, codec: CodecConfig) -> np.ndarray:
    """float32 `[codec.channels, samples]` at the codec's rate and with its loudness, ready for its encoder.

    `audio`: float32 `[channels, samples]` at `rate` Hz. Of more than two channels the first two count; mono
    is duplicated for a stereo codec, stereo averaged for a mono one. The gain, over the whole clip, is
    `clip(-20 - 10*log10(mean(x^2) + 1e-9), -3, +3)` dB (the model authors' normalisation). Raises
    InvalidRequest for a clip outside 1..30 s, silent, or with samples that are not finite.
    """
    _check_rate(rate)
    _check_not_too_long(audio.shape[1], rate)
    if audio.shape[1] < MIN_SECONDS * rate:
        raise _invalid(f"the reference audio is shorter than {MIN_SECONDS:g} s")
    mixed = mix_channels(audio[:2], codec.channels)
    peak = np.abs(mixed).max()
    if not peak <= MAX_PEAK:  # a NaN fails every comparison
        raise _invalid("the reference audio holds samples that are not finite or far over full scale")
    if peak < SILENCE_PEAK:
        raise _invalid("the reference audio is silent")
    return _normalise_loudness(_resample(mixed, rate, codec.sampling_rate))


class ClipCache:
    """Prepared clips by the bytes of their files, the last used ones up to `max_bytes`. Threads may share it."""

    def __init__(self, codec: CodecConfig, max_bytes: int = 64 * 2**20):
        self._codec = codec
        self._max_bytes = max_bytes
        self._clips: OrderedDict[bytes, np.ndarray] = OrderedDict()
        self._lock = threading.Lock()

    def prepared(self, data: bytes) -> np.ndarray:
        """As `prepare_reference` of `decode_audio`, read-only; raises what they raise."""
        key = hashlib.sha256(data).digest()
        with self._lock:
            if key in self._clips:
                self._clips.move_to_end(key)
                return self._clips[key]
        clip = prepare_reference(*decode_audio(data), self._codec)
        clip.flags.writeable = False
        with self._lock:
            self._clips[key] = clip
            while sum(each.nbytes for each in self._clips.values()) > self._max_bytes:
                self._clips.popitem(last=False)
        return clip


def _resample(audio: np.ndarray, rate: int, target_rate: int) -> np.ndarray:
    if rate == target_rate:
        return np.ascontiguousarray(audio)
    return np.ascontiguousarray(soxr.resample(audio.T, rate, target_rate, quality="HQ").T)


def _normalise_loudness(audio: np.ndarray) -> np.ndarray:
    power = np.mean(np.square(audio, dtype=np.float64))
    decibel = np.clip(-20 - 10 * np.log10(power + 1e-9), -3, 3)
    return audio * np.float32(10 ** (decibel / 20))


def content_key(audio: np.ndarray) -> str:
    """SHA-256 (hex) of a prepared clip, float32 `[channels, samples]`: equal audio has equal keys."""
    digest = hashlib.sha256(str(audio.shape).encode())
    digest.update(np.ascontiguousarray(audio, dtype="<f4"))
    return digest.hexdigest()


def _check_rate(rate: int) -> None:
    if not MIN_RATE <= rate <= MAX_RATE:
        raise _invalid(f"the reference audio's sample rate of {rate} Hz is not in {MIN_RATE}..{MAX_RATE}")


def _check_not_too_long(samples: int, rate: int) -> None:
    if samples > MAX_SECONDS * rate:
        raise _invalid(f"the reference audio is longer than {MAX_SECONDS:g} s")


def _invalid(message: str) -> InvalidRequest:
    return InvalidRequest(message, param="ref_audio")
