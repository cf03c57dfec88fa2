"""The embedded voice over real HTTP, heard by a recogniser that knows the sentences but not which one was asked for."""

import asyncio

import httpx
import numpy as np
import pytest
from ray import serve

from deployments.app import bind
from deployments.settings import Settings
from tests.deployments.conftest import ROOT, until_ready
from training.demo_voice.recognise import Recogniser, word_errors, words
from training.demo_voice.sentences import LONG, NATURAL

MODEL = ROOT / "models/embedded/tts"
pytestmark = pytest.mark.skipif(not MODEL.exists(), reason="the voice is in training")

APP = "voice"
SPEECH = "/v1/audio/speech"
TOGETHER = NATURAL[:8]
WORST = 0.3
"""Word error rate of a short test; `make eval-voice` measures."""


@pytest.fixture(scope="module")
def url(cluster):
    settings = Settings.load(ROOT / "configs/embedded.yaml")
    serve.run(
        bind(settings.model_copy(update={"voices": settings.voices.model_copy(update={"store": None})})),
        name=APP,
        route_prefix=f"/{APP}",
    )
    until_ready(f"{cluster}/{APP}")
    yield f"{cluster}/{APP}"
    serve.delete(APP)


@pytest.fixture
async def client(url):
    async with httpx.AsyncClient(base_url=url, timeout=120) as client:
        yield client


async def said(client, text, **fields):
    """int16 samples at 16 kHz, what the recogniser was made for."""
    body = {"input": text, "response_format": "pcm", "sample_rate": 16_000, "seed": 1, **fields}
    answer = await client.post(SPEECH, json=body)
    assert answer.status_code == 200, answer.text
    if not body.get("stream"):
        assert answer.headers["x-finish-reason"] == "stop"
    return np.frombuffer(answer.content, "<i2")


def errors(heard, sentence):
    return word_errors(heard, words(sentence)) / len(words(sentence))


async def test_eight_sentences_at_once_are_each_heard_as_their_own(client):
    spoken = await asyncio.gather(*(said(client, sentence) for sentence in TOGETHER))
    for sentence, heard in zip(TOGETHER, Recogniser(NATURAL).hear_all(spoken), strict=True):
        assert min(NATURAL, key=lambda other: errors(heard, other)) == sentence, heard
        assert errors(heard, sentence) <= WORST, heard


async def test_a_long_text_is_heard_whole(client):
    text = LONG[0]
    (heard,) = Recogniser([text]).hear_all([await said(client, text)])
    expected = words(text)
    assert word_errors(heard, expected) <= WORST * len(expected), heard
    third = len(expected) // 3
    for part in (expected[:third], expected[third:-third], expected[-third:]):
        missing = [word for word in part if word not in heard]
        assert len(missing) <= WORST * len(part), missing


async def test_streamed_and_whole_are_the_same_speech_and_another_seed_another_reading(client):
    sentence = NATURAL[0]
    whole, streamed, other = [await said(client, sentence, **fields) for fields in ({}, {"stream": True}, {"seed": 2})]
    assert np.array_equal(whole, streamed)
    assert not (len(whole) == len(other) and np.array_equal(whole, other))
    for heard in Recogniser(NATURAL).hear_all([whole, other]):
        assert errors(heard, sentence) <= WORST, heard


async def test_every_built_in_voice_says_the_words_in_its_own_way(client):
    names = [voice["name"] for voice in (await client.get("/v1/audio/voices")).json()["voices"] if voice["built_in"]]
    spoken = {name: await said(client, NATURAL[1], voice=name) for name in names}
    assert len({samples.tobytes() for samples in spoken.values()}) == len(names)
    for samples in spoken.values():
        (heard,) = Recogniser(NATURAL).hear_all([samples])
        assert min(NATURAL, key=lambda other: errors(heard, other)) == NATURAL[1], heard
