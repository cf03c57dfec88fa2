import json

import numpy as np
import pytest

pytest.importorskip("espeakng_loader")
pytest.importorskip("pyworld")
pytest.importorskip("pocketsphinx")

from training.demo_voice.corpus import SHARD, join, make_shards
from training.demo_voice.speech import speak
from training.demo_voice.vocoder import FRAME

TEXT = "Good evening, Anna."


@pytest.fixture(scope="module")
def spoken():
    return speak(TEXT, 0)


def test_an_utterance_is_whole_frames_between_silent_ones(spoken):
    samples, entry = spoken
    assert entry["samples"] == len(samples)
    assert len(samples) % FRAME == 0
    assert np.abs(samples[: FRAME // 2]).max() == 0
    assert np.abs(samples).max() > 10_000


def test_words_and_phones_are_timed_on_the_new_grid(spoken):
    _, entry = spoken
    assert [TEXT[first:last] for first, last, _, _ in entry["words"]] == ["Good", "evening", "Anna"]
    assert entry["words"][0][2] == entry["phones"][0][1] == 80
    assert {first % 80 for _, first, _ in entry["phones"]} <= {0, 27, 53}


def test_what_cannot_be_heard_is_left_out():
    assert speak("...", 0) is None


def test_shards_have_the_same_bytes_when_made_again(tmp_path):
    texts = [(TEXT, 0), ("Yes, please.", 1), ("Stop!", 2)] * (SHARD // 3 // 10)
    first, again = (make_shards(tmp_path / name, texts, workers=1) for name in "ab")
    for one, other in zip(first, again, strict=True):
        assert one.read_bytes() == other.read_bytes()
        assert one.with_suffix(".npy").read_bytes() == other.with_suffix(".npy").read_bytes()


def test_a_split_holds_the_utterances_of_its_shards_one_after_the_other(tmp_path):
    paths = make_shards(tmp_path / "shards", [(TEXT, 0), ("Yes, please.", 1)], workers=1)
    join(paths, tmp_path / "train.json")
    entries = json.loads((tmp_path / "train.json").read_text())
    assert [entry["text"] for entry in entries] == [TEXT, "Yes, please."]
    assert entries[1]["start"] == entries[0]["samples"]
    assert len(np.load(tmp_path / "train.npy")) == sum(entry["samples"] for entry in entries)
