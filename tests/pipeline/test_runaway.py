import numpy as np
import pytest

from pipeline.runaway import LONGEST_LOOP, LONGEST_PERIOD, LONGEST_SILENCE, RunawayWatch

SECONDS = 0.08
SAMPLES = 40


def codes_of(count, seed=0):
    return np.random.default_rng(seed).integers(0, 1024, (count, 12))


def sound(count, level=0.1):
    return np.full((2, count * SAMPLES), level, dtype="f4")


def kept(codes, samples, sizes=(10**9,), pause=0.0):
    watch, total, turn = RunawayWatch(SECONDS, pause), 0, 0
    while total < len(codes):
        size = min(sizes[turn % len(sizes)], len(codes) - total)
        good = watch.good_frames(codes[total : total + size], samples[:, total * SAMPLES : (total + size) * SAMPLES])
        total, turn = total + good, turn + 1
        if good < size:
            return total
    return total


def test_speech_is_never_cut():
    assert kept(codes_of(2000), sound(2000)) == 2000


@pytest.mark.parametrize("period", [1, 2, 5, LONGEST_PERIOD])
@pytest.mark.parametrize("sizes", [(10**9,), (1, 1, 2, 4, 8), (7,)])
def test_frames_that_go_round_are_cut_at_the_same_frame_in_any_chunks(period, sizes):
    codes = np.concatenate((codes_of(30), np.tile(codes_of(period, seed=1), (200, 1))))
    longest = int(LONGEST_LOOP / SECONDS)
    assert kept(codes, sound(len(codes)), sizes) == 30 + period + longest


def test_a_longer_pattern_and_a_short_loop_are_left_alone():
    chorus = np.tile(codes_of(LONGEST_PERIOD + 5, seed=1), (60, 1))
    assert kept(chorus, sound(len(chorus))) == len(chorus)
    held = np.concatenate((codes_of(30), np.tile(codes_of(1, seed=1), (40, 1)), codes_of(30, seed=2)))
    assert kept(held, sound(len(held))) == len(held)


@pytest.mark.parametrize("sizes", [(10**9,), (1, 1, 2, 4, 8)])
@pytest.mark.parametrize("pause", [0.0, 12.0])
def test_silence_is_cut_when_it_is_longer_than_any_pause(sizes, pause):
    samples = np.concatenate((sound(10), sound(500, 1e-5)), axis=1)
    assert kept(codes_of(510), samples, sizes, pause) == 10 + int((LONGEST_SILENCE + pause) / SECONDS)


def test_sound_ends_a_silence():
    part = np.concatenate((sound(90, 0.0), sound(1)), axis=1)
    samples = np.concatenate([part] * 5, axis=1)
    assert kept(codes_of(455), samples) == 455


def test_no_frames_are_no_runaway():
    assert RunawayWatch(SECONDS).good_frames(codes_of(0), sound(0)) == 0
