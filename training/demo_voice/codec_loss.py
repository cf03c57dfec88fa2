"""How far a waveform is from its target, by spectra of three resolutions.

Magnitudes alone never latch on to the phase, so the complex spectra are compared too, and by their squared distance:
it finds the phase in half the steps that the plain distance takes. Both are compressed, as hearing is (Braun & Tashev
2021, "A consolidated view of loss functions for supervised deep learning-based speech enhancement"). What makes one
vowel another is small in all of them, so the loudness of mel bands, in which recognisers and listeners tell phones
apart, is compared on its own.
"""

from functools import cache

import torch
from torch import Tensor
from transformers.audio_utils import mel_filter_bank

from training.demo_voice.codec_config import SAMPLING_RATE
from training.demo_voice.crops import Batch

WINDOWS = (160, 400, 1024)
"""Samples."""
EXPONENT = 0.35
FLOOR = 1e-6
"""Power below which a bin counts as silent."""
L1_WEIGHT = 10.0
MAGNITUDE_WEIGHT = 0.3
"""Of the magnitudes on their own: where the phase stays unknown, the sound should still be as loud."""
MEL_WINDOW, MEL_BANDS = 400, 40
MEL_WEIGHT = 0.5
"""Of the mean distance in nepers of power."""


def waveform_loss(heard: Tensor, target: Tensor, shift: int) -> Tensor:
    """Of two `[batch, samples]`, a scalar. The windows begin `shift` samples late: in many steps, everywhere."""
    loss = L1_WEIGHT * (heard - target).abs().mean()
    heard, target = heard[:, shift:], target[:, shift:]
    for size in WINDOWS:
        ours, ours_strength = _compressed(heard, size)
        theirs, their_strength = _compressed(target, size)
        loss = loss + (ours - theirs).square().sum(-1).mean()
        loss = loss + MAGNITUDE_WEIGHT * (ours_strength - their_strength).square().mean()
    return loss + MEL_WEIGHT * (log_mel(heard) - log_mel(target)).abs().mean()


def loss_after_first_frame(heard: Tensor, batch: Batch) -> Tensor:
    """`waveform_loss` of a batch; the first frame of a crop begins in the middle of a sound nobody was shown."""
    return waveform_loss(heard[:, batch.skip :], batch.audio[:, batch.skip :], int(batch.rng.integers(200)))


def _compressed(audio: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Real and imaginary parts `[.., bins, times, 2]`; white noise has 3/8 of its variance in every bin."""
    parts = _spectrum(audio, size)
    power = parts.square().sum(-1) + FLOOR
    return parts * power[..., None] ** ((EXPONENT - 1) / 2), power ** (EXPONENT / 2)


def log_mel(audio: Tensor) -> Tensor:
    """Mean power of each mel band, as a logarithm: `[.., times, MEL_BANDS]`."""
    power = _spectrum(audio, MEL_WINDOW).square().sum(-1)
    return (power.transpose(-1, -2) @ _mel_bands() + FLOOR).log()


@cache
def _mel_bands() -> Tensor:
    """float32 `[bins, MEL_BANDS]`, the weights of each band's bins; they add up to 1."""
    bands = mel_filter_bank(MEL_WINDOW // 2 + 1, MEL_BANDS, 60.0, SAMPLING_RATE / 2, SAMPLING_RATE)
    return torch.from_numpy(bands / bands.sum(0)).float()


def _spectrum(audio: Tensor, size: int) -> Tensor:
    """Real and imaginary parts `[.., bins, times, 2]`; white noise has 3/8 of its variance in every bin."""
    window = torch.hann_window(size, device=audio.device)
    spectrum = torch.stft(audio, size, size // 2, window=window, center=False, return_complex=True)
    return torch.view_as_real(spectrum) / size**0.5


def snr(heard: Tensor, target: Tensor) -> float:
    """Signal-to-noise ratio in dB."""
    noise = (heard - target).square().sum()
    return float(10 * torch.log10(target.square().sum() / noise))
