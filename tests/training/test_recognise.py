"""The scale the voice is measured with."""

import re

import numpy as np
import pytest

pytest.importorskip("pocketsphinx", reason="comes with the extra for training")

from training.demo_voice.recognise import Recogniser, bigram_model, word_errors, words


@pytest.mark.parametrize(
    ("heard", "errors"),
    [("the cat sat", 0), ("the cat", 1), ("the cat has sat", 1), ("a cat sat", 1), ("", 3), ("cat the sat", 2)],
)
def test_word_errors_are_the_fewest_edits(heard, errors):
    assert word_errors(heard.split(), ["the", "cat", "sat"]) == errors


def test_figures_are_counted_as_the_words_that_are_said():
    assert words("Table 2 is ready at 7:30.") == ["table", "two", "is", "ready", "at", "seven", "thirty"]


def test_the_words_that_may_follow_a_word_have_a_probability_of_one_together():
    model = bigram_model([["a", "b"], ["a", "c"], ["b", "c", "c"]])
    singles = {word: (10 ** float(p), 10 ** float(weight)) for p, word, weight in _entries(model, "1-grams")}
    seen = {(first, second): 10 ** float(p) for p, first, second in _entries(model, "2-grams")}
    for first in ("<s>", "a", "b", "c"):
        follow = [seen.get((first, word), singles[first][1] * singles[word][0]) for word in ("a", "b", "c", "</s>")]
        assert sum(follow) == pytest.approx(1.0, abs=1e-3)
    assert seen["a", "b"] == pytest.approx((1 - 0.5) / 2, abs=1e-4)


def test_nothing_is_heard_in_silence():
    assert Recogniser(["hello there", "good morning"]).hear_all([np.zeros(16000, dtype=np.int16)]) == [[]]


def _entries(model: str, part: str) -> list[list[str]]:
    block = re.search(rf"\\{part}:\n(.*?)\n\n", model, re.DOTALL)
    return [line.split() for line in block[1].splitlines()]
