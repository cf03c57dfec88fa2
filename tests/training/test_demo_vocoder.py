import numpy as np
import pytest

pytest.importorskip("pyworld")

from training.demo_voice.analysis import FFT, STEP, Features
from training.demo_voice.vocoder import FRAME, HOP, SLOT_SECONDS, SLOTS, grid_of, minimum_phase, noise, synthesise

SECONDS = 0.8
STEPS = round(SECONDS / STEP) + 1


def steady(f0, aperiodicity, steps=STEPS):
    """A sound that does not change, with one broad resonance."""
    envelope = -(((np.arange(FFT // 2 + 1) - 60) / 80) ** 2)
    return Features(np.full(steps, f0), np.tile(envelope, (steps, 1)) - 6, np.full((steps, FFT // 2 + 1), aperiodicity))


def frames_of(audio):
    return audio.reshape(-1, FRAME)


@pytest.mark.parametrize("f0", [80.0, 104.0, 181.0])
def test_a_steady_vowel_repeats_itself_every_frame(f0):
    frames = frames_of(synthesise(steady(f0, 0.01), grid_of([0.0, SECONDS])))
    inner = frames[4:9]
    assert np.abs(inner).max() > 0.01
    np.testing.assert_allclose(inner, np.tile(inner[0], (len(inner), 1)), atol=1e-3 * np.abs(inner).max())


@pytest.mark.parametrize(("f0", "pulses"), [(80.0, 6), (104.0, 8), (181.0, 14)])
def test_a_frame_holds_a_whole_number_of_periods(f0, pulses):
    frame = frames_of(synthesise(steady(f0, 0.01), grid_of([0.0, SECONDS])))[6]
    strengths = np.abs(np.fft.rfft(frame)[1 : 4 * pulses])
    harmonics = np.arange(len(strengths)) % pulses == pulses - 1
    # Pulses stand on whole samples, so a period is not always as long as the next.
    assert strengths[harmonics].min() > 20 * strengths[~harmonics].max()


def test_the_noise_of_a_steady_fricative_repeats_itself_too():
    frames = frames_of(synthesise(steady(0.0, 1.0), grid_of([0.0, SECONDS])))
    assert frames[4].std() > 0.01
    np.testing.assert_allclose(frames[4:9], np.tile(frames[4], (5, 1)), atol=1e-9)


def test_speech_stands_between_frames_of_silence():
    audio = synthesise(steady(100.0, 0.1), grid_of([0.2, 0.31, 0.6]))
    frames = frames_of(audio)
    assert not frames[0, :-HOP].any()
    assert not frames[-1, FFT:].any()
    assert np.abs(frames[1]).max() > 0.01


def test_phones_begin_on_slots_and_none_is_lost():
    grid = grid_of([0.03, 0.031, 0.04, 0.15, 0.30])
    assert grid.slots.tolist() == [3, 4, 5, 7, 13]
    assert grid.frames == -(-13 // SLOTS) + 1
    middle = grid.source_seconds(np.array([6.0 * SLOT_SECONDS * 16_000]))
    assert 0.04 < middle[0] < 0.15


def test_a_minimum_phase_response_has_the_spectrum_asked_for_and_begins_at_once():
    log_power = steady(0.0, 1.0).log_power[:1]
    spectrum = minimum_phase(log_power)
    np.testing.assert_allclose(np.log(np.abs(spectrum) ** 2), log_power, atol=0.3)
    energy = np.cumsum(np.fft.irfft(spectrum)[0] ** 2)
    assert energy[64] > 0.95 * energy[-1]


def test_the_noise_is_flat():
    np.testing.assert_allclose(np.abs(np.fft.rfft(noise())), np.sqrt(FRAME), rtol=1e-9)
