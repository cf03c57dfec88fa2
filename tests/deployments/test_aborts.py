"""Clients that leave at random moments, others that each clone a voice, and what is left of them: nothing."""

import asyncio
import json
import os
import random

import httpx

from benchmarks.serving import memory
from tests.deployments.conftest import growth_since, idle
from tests.deployments.test_speech import body, clip, speak

ABORTS, CLONES = int(os.environ.get("ABORTS", "250")), int(os.environ.get("CLONES", "200"))
"""`make stress` makes more of them."""
TOGETHER = 16
LONGEST_STAY = 0.6
"""s: about as long as the longest of the requests takes when it is alone."""


def requests(random_):
    """Kinds of requests, each with a fresh text."""
    number = 0
    clips = [clip(1.0 + 0.5 * index) for index in range(3)]
    kinds = (
        {"stream": True},
        {},
        {"stream_format": "sse"},
        {"response_format": "opus", "stream": True, "speed": 1.5},
        {"response_format": "mp3"},
        {"input_repeat": 12},
        {"ref_audio": None},
    )
    while True:
        number += 1
        fields = dict(random_.choice(kinds))
        text = f"This is number {number}, and it is about to be left alone. " * fields.pop("input_repeat", 1)
        if "ref_audio" in fields:
            fields["ref_audio"] = random_.choice(clips)
        yield body(text, **fields, max_frames=random_.choice((20, 60, 400)))


async def leave(url, request, stay, abruptly):
    """Sends the request, or a part of it, and hangs up after `stay` seconds, wherever the answer is then."""
    raw = json.dumps(request).encode()
    head = f"POST /v1/audio/speech HTTP/1.1\r\nHost: x\r\nContent-Length: {len(raw)}\r\n\r\n".encode()
    reader, writer = await asyncio.open_connection(url.host, url.port)
    writer.write(head + raw)
    try:
        async with asyncio.timeout(stay):
            while await reader.read(65536):
                pass
    except TimeoutError:
        pass
    if abruptly:
        writer.transport.abort()
    else:
        writer.close()


async def leave_many(url, count, seed):
    random_ = random.Random(seed)
    bodies = requests(random_)
    gate = asyncio.Semaphore(TOGETHER)

    async def one():
        async with gate:
            await leave(url, next(bodies), random_.uniform(0, LONGEST_STAY), random_.random() < 0.5)

    await asyncio.gather(*(one() for _ in range(count)))


async def test_clients_that_leave_at_random_moments_leave_nothing_behind(async_client):
    url = httpx.URL(str(async_client.base_url))
    alone = (await speak(async_client, seed=1)).content
    await leave_many(url, ABORTS // 4, seed=0)
    await idle()
    before = memory()
    await leave_many(url, ABORTS, seed=1)
    await idle()
    grown = growth_since(before)
    assert max(grown.values()) < 40, grown
    assert (await speak(async_client, seed=1)).content == alone


async def test_hundreds_of_cloned_voices_stay_in_nobodys_memory(async_client):
    gate = asyncio.Semaphore(TOGETHER)

    async def clone(number):
        async with gate:
            await speak(async_client, ref_audio=clip(1.0 + number / 1000), seed=number, max_frames=4)

    await asyncio.gather(*(clone(number) for number in range(CLONES // 2)))
    before = memory()
    await asyncio.gather(*(clone(number) for number in range(CLONES // 2, CLONES)))
    await idle()
    grown = growth_since(before)
    assert max(grown.values()) < 60, grown
