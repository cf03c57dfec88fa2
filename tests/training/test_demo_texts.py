import pytest

pytest.importorskip("pocketsphinx")

from training.demo_voice.sentences import DEMO, HARVARD, NATURAL
from training.demo_voice.templates import SENTENCES
from training.demo_voice.texts import sentences, words_of


@pytest.fixture(scope="module")
def texts():
    return sentences(120)


def test_the_same_seed_gives_the_same_texts(texts):
    assert sentences(120) == texts
    assert sentences(120, seed=2) != texts


def test_no_text_is_said_twice(texts):
    assert len({words_of(text) for text in texts}) == len(texts)


def test_sentences_kept_for_evaluation_are_never_in_the_corpus(monkeypatch):
    kept = HARVARD[0]
    monkeypatch.setattr("training.demo_voice.texts.SENTENCES", [kept, *SENTENCES[:3]])
    said = {words_of(text) for text in sentences(60)}
    assert not said & {words_of(text) for text in (*HARVARD, *NATURAL, *DEMO)}


def test_words_that_are_owed_come_up(texts):
    """120 texts can't pay all debts, but their words hardly repeat."""
    words = [word for text in texts for word in words_of(text)]
    assert len(set(words)) > 0.5 * len(words)
