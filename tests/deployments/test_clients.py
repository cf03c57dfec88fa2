"""Clients as people use them, over real sockets; every format read by a decoder that is not ours."""

import io
import wave

import av
import numpy as np
import pytest
import soundfile
from openai import APIStatusError, AsyncOpenAI, NotFoundError, OpenAI

MAGIC = {
    "mp3": (b"ID3", b"\xff\xfb", b"\xff\xf3", b"\xff\xe3"),
    "opus": (b"OggS",),
    "aac": (b"\xff\xf1", b"\xff\xf9"),
    "flac": (b"fLaC",),
    "wav": (b"RIFF",),
}
TYPES = {
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "wav": "audio/wav",
    "pcm": "audio/pcm",
}
HINTS = {"mp3": "mp3", "opus": "ogg", "aac": "aac", "flac": "flac", "wav": "wav"}
REQUEST = {"model": "tts-1", "voice": "alloy", "input": "Hello there."}
SEEDED = {"extra_body": {"seed": 7, "max_frames": 30}}


@pytest.fixture
def openai(server):
    with OpenAI(base_url=f"{server}/v1", api_key="unused", max_retries=0) as client:
        yield client


def seconds_of(data, response_format):
    if response_format == "pcm":
        return len(data) / 2 / 24_000
    with av.open(io.BytesIO(data), format=HINTS[response_format]) as container:
        return sum(frame.samples / frame.sample_rate for frame in container.decode(audio=0))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("response_format", list(TYPES))
def test_every_format_is_whole_in_an_independent_decoder(client, response_format, stream):
    body = {"input": "Hello there.", "seed": 7, "max_frames": 30, "stream": stream}
    answer = client.post("/v1/audio/speech", json=body | {"response_format": response_format})
    expected = len(client.post("/v1/audio/speech", json=body | {"response_format": "pcm"}).content) / 2 / 24_000
    assert answer.headers["content-type"].split(";")[0] == TYPES[response_format]
    assert answer.content.startswith(MAGIC.get(response_format, b""))
    assert abs(seconds_of(answer.content, response_format) - expected) < 0.05
    if not stream:
        assert answer.headers["content-length"] == str(len(answer.content))


def test_the_sdk_gets_the_bytes_of_a_plain_request(openai, client):
    made = openai.audio.speech.create(**REQUEST, response_format="flac", **SEEDED)
    plain = client.post("/v1/audio/speech", json=REQUEST | SEEDED["extra_body"] | {"response_format": "flac"})
    assert made.content == plain.content
    samples, rate = soundfile.read(io.BytesIO(made.content))
    assert (rate, samples.shape[1]) == (48_000, 2)


def test_the_sdk_streams_to_a_file(openai, tmp_path):
    path = tmp_path / "a.wav"
    with openai.audio.speech.with_streaming_response.create(**REQUEST, response_format="wav", **SEEDED) as response:
        response.stream_to_file(path)
        seed = response.headers["x-seed"]
    assert seed == "7"
    with wave.open(str(path)) as file:
        assert file.getnframes() % 3840 == 0


async def test_the_async_sdk_streams_chunks_that_are_whole_samples(server):
    async with AsyncOpenAI(base_url=f"{server}/v1", api_key="unused", max_retries=0) as client:
        streamed = {"seed": 7, "max_frames": 30, "stream": True}
        speech = client.audio.speech.with_streaming_response
        async with speech.create(**REQUEST, response_format="pcm", extra_body=streamed) as response:
            chunks = [chunk async for chunk in response.iter_bytes()]
    assert all(len(chunk) % 2 == 0 for chunk in chunks)
    assert np.abs(np.frombuffer(b"".join(chunks), "<i2").astype(int)).max() > 100


def test_the_sdk_asks_for_events_and_speed(openai):
    made = openai.audio.speech.create(**REQUEST, response_format="pcm", **SEEDED)
    fast = openai.audio.speech.create(**REQUEST, response_format="pcm", speed=2.0, **SEEDED)
    assert abs(len(fast.content) - len(made.content) / 2) < 0.05 * 48_000
    events = openai.audio.speech.create(**REQUEST, response_format="pcm", stream_format="sse", **SEEDED)
    assert b'"type": "speech.audio.done"' in events.content


def test_the_sdk_raises_its_own_errors(openai):
    with pytest.raises(NotFoundError) as caught:
        openai.audio.speech.create(**REQUEST | {"voice": "nobody"})
    assert caught.value.param == "voice"
    with pytest.raises(APIStatusError) as caught:
        openai.audio.speech.create(**REQUEST, speed=9)
    assert (caught.value.status_code, caught.value.param) == (400, "speed")
    assert [model.id for model in openai.models.list()][:2] == ["moss-tts-local", "tts-1"]
