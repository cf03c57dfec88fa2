"""How far a waveform is from its target, by spectra of three resolutions.

Magnitudes alone never latch on to the phase, so the complex spectra are compared too, and by their squared distance:
it finds the phase in half the steps that the plain distance takes. Both are compressed, as hearing is (Braun & Tashev
2021, "A consolidated view of loss functions for supervised deep learning-based speech enhancement").
"""

import torch
from torch import Tensor

from training.demo_voice.crops import Batch

WINDOWS = (160, 400, 1024)
"""Samples."""
EXPONENT = 0.35
FLOOR = 1e-6
"""Power below which a bin counts as silent."""
L1_WEIGHT = 20.0
MAGNITUDE_WEIGHT = 0.3
"""Of the magnitudes on their own: where the phase stays unknown, the sound should still be as loud."""


def waveform_loss(heard: Tensor, target: Tensor, shift: int) -> Tensor:
    """Of two `[batch, samples]`, a scalar. The windows begin `shift` samples late: in many steps, everywhere."""
    loss = L1_WEIGHT * (heard - target).abs().mean()
    heard, target = heard[:, shift:], target[:, shift:]
    for size in WINDOWS:
        ours, ours_strength = _compressed(heard, size)
        theirs, their_strength = _compressed(target, size)
        loss = loss + (ours - theirs).square().sum(-1).mean()
        loss = loss + MAGNITUDE_WEIGHT * (ours_strength - their_strength).square().mean()
    return loss


def loss_after_first_frame(heard: Tensor, batch: Batch) -> Tensor:
    """`waveform_loss` of a batch; the first frame of a crop begins in the middle of a sound nobody was shown."""
    return waveform_loss(heard[:, batch.skip :], batch.audio[:, batch.skip :], int(batch.rng.integers(200)))


def _compressed(audio: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Real and imaginary parts `[.., bins, times, 2]` with the phase kept, and magnitudes, raised to EXPONENT."""
    window = torch.hann_window(size, device=audio.device)
    spectrum = torch.stft(audio, size, size // 2, window=window, center=False, return_complex=True)
    parts = torch.view_as_real(spectrum) / size**0.5
    power = parts.square().sum(-1) + FLOOR
    return parts * power[..., None] ** ((EXPONENT - 1) / 2), power ** (EXPONENT / 2)


def snr(heard: Tensor, target: Tensor) -> float:
    """Signal-to-noise ratio in dB."""
    noise = (heard - target).square().sum()
    return float(10 * torch.log10(target.square().sum() / noise))
