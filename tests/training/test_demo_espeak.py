import pytest

pytest.importorskip("espeakng_loader")

from pipeline.errors import SpeechError
from training.demo_voice.espeak import Espeak, EspeakVoice

TEXT = "Hello, my café friend."


@pytest.fixture(scope="module")
def espeak():
    return Espeak()


@pytest.fixture(scope="module")
def spoken(espeak):
    return espeak.say(TEXT, EspeakVoice("en-us"))


def test_words_are_found_in_the_text(spoken):
    assert [TEXT[word.first : word.last] for word in spoken.words] == ["Hello", "my", "café", "friend"]


def test_phones_follow_each_other_to_the_end_of_the_audio(spoken):
    ends = [phone.end for phone in spoken.phones]
    assert [phone.start for phone in spoken.phones[1:]] == ends[:-1]
    assert ends[-1] == pytest.approx(len(spoken.audio) / spoken.rate)
    assert [phone.label for phone in spoken.phones[:4]] == ["h", "@", "l", "'oU"]


def test_an_unknown_voice_is_named(espeak):
    with pytest.raises(SpeechError, match="nobody"):
        espeak.say(TEXT, EspeakVoice("nobody"))
