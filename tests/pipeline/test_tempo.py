import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.tempo import Tempo, best_match

RATE = 24_000
SPEEDS = [0.25, 0.4, 0.5, 0.9, 1.1, 1.5, 2.0, 3.0, 4.0]


def tone(samples, hertz=220.0, rate=RATE):
    return (0.5 * np.sin(2 * np.pi * hertz * np.arange(samples) / rate)).astype(np.float32)[None]


def speech(samples, channels):
    """A gliding tone that comes and goes, with some noise."""
    time = np.arange(samples) / RATE
    voice = 0.4 * np.sin(2 * np.pi * 120 * time * (1 + time)) * (np.sin(2 * np.pi * 4 * time) > -0.3)
    noise = np.random.default_rng(0).standard_normal((channels, samples)) * 0.01
    return (voice + noise).astype(np.float32)


def stretched(pcm, speed, sizes=(1_920,), rate=RATE):
    """The whole output for an input cut into pieces of `sizes`, over and over."""
    tempo, parts, start = Tempo(rate, len(pcm), speed), [], 0
    while start < pcm.shape[1]:
        size = sizes[len(parts) % len(sizes)]
        parts.append(tempo.process(pcm[:, start : start + size]))
        start += size
    return np.concatenate([*parts, tempo.flush()], axis=1)


@given(
    speed=st.sampled_from(SPEEDS) | st.floats(0.25, 4.0),
    sizes=st.lists(st.integers(1, 3_000), min_size=1, max_size=8),
    samples=st.integers(0, 12_000),
    channels=st.sampled_from([1, 2]),
)
@settings(max_examples=60, deadline=None)
def test_the_cut_of_a_stream_never_changes_a_bit(speed, sizes, samples, channels):
    pcm = speech(samples, channels)
    np.testing.assert_array_equal(stretched(pcm, speed, sizes), stretched(pcm, speed, (12_000,)))


@pytest.mark.parametrize("speed", SPEEDS)
def test_single_samples_make_the_output_of_the_whole(speed):
    pcm = speech(4_000, 2)
    np.testing.assert_array_equal(stretched(pcm, speed, (1,)), stretched(pcm, speed, (4_000,)))


@pytest.mark.parametrize("speed", SPEEDS)
@pytest.mark.parametrize("samples", [0, 1, 2, 359, 360, 361, 1_081, 1_920, 30_001])
def test_the_length_is_that_of_the_input_over_the_speed(speed, samples):
    out = stretched(speech(samples, 2), speed)
    assert out.dtype == np.float32
    assert out.shape == (2, round(samples / speed))


@pytest.mark.parametrize("hertz", [90.0, 220.0, 1_000.0])
@pytest.mark.parametrize("speed", SPEEDS)
def test_a_tone_keeps_its_pitch_its_level_and_its_smoothness(speed, hertz):
    samples = tone(2 * RATE, hertz)
    out = stretched(samples, speed)[0]
    spectrum = np.abs(np.fft.rfft(out * np.hanning(len(out)), 1 << 18))
    assert abs(spectrum.argmax() * RATE / (1 << 18) / hertz - 1) < 0.01
    assert np.abs(np.diff(out)).max() < 1.05 * np.abs(np.diff(samples)).max()
    inner = out[: -RATE // 20].reshape(-1)
    levels = [np.abs(part).max() for part in np.array_split(inner, len(inner) // (RATE // 40))]
    assert min(levels) > 0.45


@pytest.mark.parametrize("speed", SPEEDS)
def test_speech_keeps_its_place(speed):
    pcm = np.zeros((1, 2 * RATE), np.float32)
    pcm[:, RATE : RATE + RATE // 5] = tone(RATE // 5)
    loud = np.flatnonzero(np.abs(stretched(pcm, speed)[0]) > 0.1) / RATE
    assert abs(loud[0] - 1 / speed) < 0.03
    assert abs(loud[-1] - 1.2 / speed) < 0.03


@pytest.mark.parametrize("speed", SPEEDS)
def test_the_first_and_the_last_sample_stay(speed):
    pcm = speech(RATE, 1)
    out = stretched(pcm, speed)
    assert out[0, 0] == pcm[0, 0]
    assert out[0, -1] == pcm[0, -1]


@pytest.mark.parametrize("speed", SPEEDS)
def test_the_channels_stay_together(speed):
    pcm = speech(RATE // 2, 1)
    left, right = stretched(np.concatenate([pcm, -pcm]), speed)
    np.testing.assert_array_equal(left, -right)
    np.testing.assert_array_equal(left, stretched(pcm, speed)[0])


def test_speed_1_changes_nothing():
    tempo, pcm = Tempo(RATE, 2, 1.0), speech(100, 2)
    assert tempo.process(pcm) is pcm
    assert tempo.flush().shape == (2, 0)


@pytest.mark.parametrize(("speed", "held_ms"), [(0.25, 55), (0.9, 55), (2.0, 70), (4.0, 120)])
def test_little_input_waits(speed, held_ms):
    tempo, made = Tempo(RATE, 1, speed), 0
    pcm = speech(RATE, 1)
    for seen in range(240, RATE + 1, 240):
        made += tempo.process(pcm[:, seen - 240 : seen]).shape[1]
        assert seen - made * speed <= held_ms * RATE / 1000


def test_what_is_used_up_is_freed():
    tempo, pcm = Tempo(RATE, 1, 1.5), speech(RATE, 1)
    tempo.process(pcm)
    tracemalloc.start()
    try:
        for _ in range(10):
            tempo.process(pcm)
        assert tracemalloc.get_traced_memory()[0] < 50_000
    finally:
        tracemalloc.stop()


def test_the_best_match_is_found_where_it_was_put():
    noise = np.random.default_rng(1).standard_normal((2, 900)).astype(np.float32) * 0.1
    assert best_match(noise, noise[:, 321:621], preferred=0) == 321
    assert best_match(noise, 0.25 * noise[:, 599:], preferred=0) == 599


def test_where_all_is_alike_the_preferred_place_is_kept():
    assert best_match(np.zeros((1, 900), np.float32), np.ones((1, 300), np.float32), preferred=250) == 250
