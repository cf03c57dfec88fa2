import numpy as np
import pytest

from pipeline.joining import FADE_SECONDS, LONGEST_LEAD, LONGEST_TAIL, Joiner

RATE = 8_000
FADE = round(FADE_SECONDS * RATE)


def tone(seconds, level=0.5, channels=2):
    time = np.arange(round(seconds * RATE)) / RATE
    return np.tile((level * np.cos(2 * np.pi * 200 * time)).astype("f4"), (channels, 1))


def quiet(seconds, channels=2):
    return np.full((channels, round(seconds * RATE)), 1e-4, dtype="f4")


def join(parts, sizes=(10**9,)):
    joiner, out, turn = Joiner(RATE, 2), [], 0
    for index, part in enumerate(parts):
        if index:
            out.append(joiner.next_part())
        start = 0
        while start < part.shape[1]:
            size = sizes[turn % len(sizes)]
            out.append(joiner.write(part[:, start : start + size]))
            start, turn = start + size, turn + 1
    return np.concatenate([*out, joiner.finish()], axis=1)


def test_a_single_part_stays_as_it_is():
    part = np.concatenate((quiet(0.7), tone(0.5), quiet(0.9)), axis=1)
    np.testing.assert_array_equal(join([part], (160, 1, 77)), part)


@pytest.mark.parametrize("sizes", [(1, 7, 300), (80,), (5, 4000)])
def test_the_cut_into_chunks_changes_nothing(sizes):
    parts = [
        np.concatenate((tone(0.3), quiet(0.6)), axis=1),
        np.concatenate((quiet(0.5), tone(0.2), quiet(0.3), tone(0.1)), axis=1),
        quiet(0.4),
        tone(0.002),
        tone(0.25),
    ]
    np.testing.assert_array_equal(join(parts, sizes), join(parts))


def test_loud_edges_meet_without_a_click():
    first, second = tone(0.3), -tone(0.3)
    joined = join([first, second])
    assert joined.shape[1] == first.shape[1] + second.shape[1]
    steepest = np.abs(np.diff(tone(1.0))).max()
    assert np.abs(np.diff(joined)).max() < 1.5 * steepest
    np.testing.assert_array_equal(joined[:, : 2400 - FADE], first[:, : 2400 - FADE])
    np.testing.assert_array_equal(joined[:, 2400 + FADE :], second[:, FADE:])


def test_the_quiet_between_two_parts_is_as_long_as_between_two_sentences():
    joined = join([np.concatenate((tone(0.3), quiet(3)), axis=1), np.concatenate((quiet(2), tone(0.3)), axis=1)])
    gap = round((LONGEST_TAIL + LONGEST_LEAD) * RATE)
    assert abs(joined.shape[1] - 2 * 2400 - gap) <= 2
    short = join([np.concatenate((tone(0.3), quiet(0.05)), axis=1), tone(0.3)])
    assert short.shape[1] == 2 * 2400 + 400


def test_quiet_within_a_part_and_around_the_whole_is_kept():
    inner = np.concatenate((quiet(1), tone(0.2), quiet(2), tone(0.2)), axis=1)
    last = np.concatenate((tone(0.2), quiet(1)), axis=1)
    joined = join([inner, last], (333,))
    assert joined.shape[1] == inner.shape[1] + last.shape[1]
    np.testing.assert_array_equal(joined[:, : inner.shape[1] - FADE], inner[:, :-FADE])
    np.testing.assert_array_equal(joined[:, -RATE:], last[:, -RATE:])


def test_parts_without_any_sound_leave_a_short_pause_at_most():
    joined = join([tone(0.2), quiet(5), tone(0.2)])
    assert joined.shape[1] <= 2 * 1600 + round(2 * (LONGEST_TAIL + LONGEST_LEAD) * RATE)
