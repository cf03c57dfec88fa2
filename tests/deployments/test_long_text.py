"""Texts in several parts over real HTTP."""

import asyncio
import io
import wave

import numpy as np

LONG = (
    "The first sentence is short. But the second one goes on for a while, since it has a lot to tell about nothing "
    "in particular. " + "And so do all the others that follow it, one after the other, until the very end. " * 5
)


def body(**fields):
    return {"input": LONG, "response_format": "pcm", "seed": 11, "max_frames": 300, **fields}


async def spoken(client, **fields):
    response = await client.post("/v1/audio/speech", json=body(**fields))
    assert response.status_code == 200, response.text
    return response


async def test_a_split_text_repeats_alone_among_others_streamed_and_whole(async_client):
    alone = await spoken(async_client)
    together = await asyncio.gather(
        spoken(async_client), spoken(async_client, stream=True), spoken(async_client, seed=12), spoken(async_client)
    )
    assert together[0].content == together[1].content == together[3].content == alone.content
    assert together[2].content != alone.content


async def test_a_split_text_streams_from_its_first_sentence(async_client):
    first = await spoken(async_client, input="The first sentence is short.", max_frames=300)
    whole = await spoken(async_client)
    samples = np.frombuffer(first.content, "<i2")
    fade = 24_000 // 100
    assert np.array_equal(np.frombuffer(whole.content, "<i2")[: len(samples) - 2 * fade], samples[: -2 * fade])


async def test_the_frame_limit_is_that_of_the_whole_text(async_client):
    response = await spoken(async_client, max_frames=40, response_format="wav")
    with wave.open(io.BytesIO(response.content)) as file:
        assert file.getnframes() <= 40 * 3840
    assert response.headers["x-finish-reason"] == "length"
