"""A recording as spectral envelope, pitch and noisiness: WORLD (Morise et al. 2016), by pyworld."""

from dataclasses import dataclass

import numpy as np
import pyworld
from numpy.typing import NDArray

from training.demo_voice.codec_config import SAMPLING_RATE

RATE = SAMPLING_RATE
STEP = 0.005
"""Seconds between analysis frames."""
FFT = 1024
LOWEST, HIGHEST = 60.0, 260.0
"""Range of the fundamental frequency, Hz."""


@dataclass(frozen=True)
class Features:
    """Every `STEP` seconds: float64 `f0` `[steps]` in Hz, 0 where unvoiced; `log_power` and `aperiodicity` (0 a pure
    tone, 1 noise) `[steps, FFT / 2 + 1]`."""

    f0: NDArray[np.float64]
    log_power: NDArray[np.float64]
    aperiodicity: NDArray[np.float64]


def analyse(audio: NDArray[np.float64]) -> Features:
    """float64 `[samples]` at RATE Hz."""
    rough, times = pyworld.dio(audio, RATE, f0_floor=LOWEST, f0_ceil=HIGHEST, frame_period=STEP * 1000)
    f0 = pyworld.stonemask(audio, rough, times, RATE)
    power = pyworld.cheaptrick(audio, f0, times, RATE, fft_size=FFT)
    return Features(f0, np.log(power + 1e-12), pyworld.d4c(audio, f0, times, RATE, fft_size=FFT))
