"""Speech synthesised again so that its waveform is a plain function of what is said: a target a tiny codec can learn.

Three kinds of chance are taken out. Phones begin on a grid of three slots a codec frame. Every frame holds a whole
number of pulses, evenly spread, so the phase at a frame's border is always the same. And the noise of each frame is the
same sequence. Both excitations are shaped by minimum-phase filters, so no sound comes before its cause.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from training.demo_voice.analysis import FFT, RATE, STEP, Features
from training.demo_voice.codec_config import SAMPLES_PER_FRAME
from training.demo_voice.utterances import LABELS_PER_FRAME

FRAME = SAMPLES_PER_FRAME
"""Samples of a codec frame: 80 ms."""
SLOTS = LABELS_PER_FRAME
"""Of a frame, so that each has a phone of its own."""
SLOT_SECONDS = FRAME / SLOTS / RATE
FEWEST_PULSES, MOST_PULSES = 5, 18
HOP = 80
"""Samples from one noise filter to the next."""
COEFFICIENTS = 80
"""Cepstral coefficients kept: finer ripples of the envelope carry no speech."""
SILENCE = 1e-12

_PULSE_HIGH_PASS = 50.0


@dataclass(frozen=True)
class Grid:
    """Moments of the source, in seconds, and the slots they move to. Both rise; time between is stretched evenly."""

    seconds: NDArray[np.float64]
    slots: NDArray[np.int64]

    @property
    def frames(self) -> int:
        """Whole frames: what is said, and at least one frame of silence behind it."""
        return -(-int(self.slots[-1]) // SLOTS) + 1

    def source_seconds(self, samples: NDArray[np.float64]) -> NDArray[np.float64]:
        """Where in the source a sample of the target comes from; -1 in the silences."""
        slots = samples / (FRAME / SLOTS)
        inside = (slots >= self.slots[0]) & (slots < self.slots[-1])
        return np.where(inside, np.interp(slots, self.slots, self.seconds), -1.0)


def grid_of(boundaries: Sequence[float]) -> Grid:
    """Rounds rising times in seconds to slots, one slot apart at least, after one frame of silence."""
    seconds = np.asarray(boundaries, dtype=np.float64)
    wished = np.rint((seconds - seconds[0]) / SLOT_SECONDS).astype(np.int64) + SLOTS
    steps = np.arange(len(wished))
    # slot[i] = max(wished[i], slot[i - 1] + 1), all at once.
    return Grid(seconds, np.maximum.accumulate(wished - steps) + steps)


def synthesise(features: Features, grid: Grid) -> NDArray[np.float64]:
    """float64 `[grid.frames * FRAME]` at RATE Hz, as loud as the source."""
    positions, periods = pulses(features, grid)
    audio = np.zeros(grid.frames * FRAME + FFT)
    _add_pulses(audio, positions, periods, features, grid)
    _add_noise(audio, features, grid)
    return audio[: grid.frames * FRAME]


def pulses(features: Features, grid: Grid) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Samples at which the glottis closes, and the length of each period in samples: FRAME / n, n whole."""
    positions, periods = [], []
    for frame in range(grid.frames):
        slices = frame * FRAME + np.arange(0, FRAME, HOP) + HOP / 2
        f0 = _nearest(features.f0, grid.source_seconds(slices))
        if not f0.any():
            continue
        count = int(np.clip(np.rint(f0[f0 > 0].mean() * FRAME / RATE), FEWEST_PULSES, MOST_PULSES))
        at = frame * FRAME + np.rint((np.arange(count) + 0.5) * FRAME / count)
        voiced = _nearest(features.f0, grid.source_seconds(at)) > 0
        positions.append(at[voiced].astype(np.int64))
        periods.append(np.full(int(voiced.sum()), FRAME / count))
    return np.concatenate([np.zeros(0, np.int64), *positions]), np.concatenate([np.zeros(0), *periods])


def _add_pulses(audio: NDArray, positions: NDArray[np.int64], periods: NDArray, features: Features, grid: Grid) -> None:
    seconds = grid.source_seconds(positions.astype(np.float64))
    harmonic = np.maximum(1 - _between(features.aperiodicity, seconds) ** 2, SILENCE)
    log_power = _between(features.log_power, seconds) + np.log(harmonic) + np.log(periods)[:, None]
    frequencies = np.linspace(0, RATE / 2, FFT // 2 + 1)
    log_power += np.log((frequencies**2 + 1) / (frequencies**2 + _PULSE_HIGH_PASS**2))
    _overlap_add(audio, positions, np.fft.irfft(minimum_phase(log_power)))


def _add_noise(audio: NDArray, features: Features, grid: Grid) -> None:
    starts = np.arange(0, grid.frames * FRAME, HOP)
    seconds = grid.source_seconds(starts.astype(np.float64))
    starts, seconds = starts[seconds >= 0], seconds[seconds >= 0]
    noisy = np.maximum(_between(features.aperiodicity, seconds), SILENCE)
    filters = minimum_phase(_between(features.log_power, seconds) + 2 * np.log(noisy))
    # Each filter rules a window around its moment; neighbours fade into each other.
    around = starts[:, None] + np.arange(-HOP, HOP)
    windowed = noise()[around % FRAME] * np.hanning(2 * HOP + 1)[:-1]
    _overlap_add(audio, starts - HOP, np.fft.irfft(np.fft.rfft(windowed, FFT) * filters))


def noise() -> NDArray[np.float64]:
    """One frame of noise whose every frequency is equally strong, `[FRAME]`, variance 1."""
    phases = np.random.default_rng(80).uniform(0, 2 * np.pi, FRAME // 2 + 1)
    phases[[0, -1]] = 0
    return np.fft.irfft(np.exp(1j * phases)) * np.sqrt(FRAME)


def minimum_phase(log_power: NDArray[np.float64]) -> NDArray[np.complex128]:
    """Spectra `[n, FFT / 2 + 1]` of the earliest responses with these power spectra, by the folded cepstrum
    (Oppenheim & Schafer, Discrete-Time Signal Processing, ch. 13)."""
    cepstrum = np.fft.irfft(log_power / 2)[:, :COEFFICIENTS]
    cepstrum[:, 1:] *= 2
    return np.exp(np.fft.rfft(cepstrum, FFT))


def _overlap_add(audio: NDArray, starts: NDArray[np.int64], responses: NDArray) -> None:
    for start, response in zip(starts.tolist(), responses, strict=True):
        audio[start : start + FFT] += response


def _nearest(values: NDArray, seconds: NDArray) -> NDArray:
    """Values at these moments, 0 outside the source."""
    index = np.clip(np.rint(seconds / STEP).astype(np.int64), 0, len(values) - 1)
    return np.where(seconds >= 0, values[index], 0.0)


def _between(values: NDArray, seconds: NDArray) -> NDArray:
    """Linear interpolation over time of `[steps, bins]`."""
    place = np.clip(seconds / STEP, 0, len(values) - 1)
    first = np.minimum(place.astype(np.int64), len(values) - 2)
    weight = (place - first)[:, None]
    return values[first] * (1 - weight) + values[first + 1] * weight
