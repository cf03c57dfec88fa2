"""WS /v1/audio/speech/stream over a real socket."""

import asyncio
import json

import numpy as np
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from tests.deployments.conftest import idle

SENTENCES = ["The first sentence is here.", "Then comes another one.", "And this is the last."]
CONFIG = {"type": "session.config", "response_format": "pcm", "seed": 21, "max_frames": 25}


class Client:
    def __init__(self, server, **changes):
        self._url = server.replace("http", "ws") + "/v1/audio/speech/stream"
        self._config = CONFIG | changes

    async def __aenter__(self):
        self._connection = await connect(self._url, max_size=None)
        await self.send(**self._config)
        return self

    async def __aexit__(self, *_error):
        await self._connection.close()

    async def send(self, **message):
        await self._connection.send(json.dumps(message))

    async def say(self, text):
        await self.send(type="input.text", text=text)

    async def receive(self):
        async with asyncio.timeout(60):
            data = await self._connection.recv()
        return data if isinstance(data, bytes) else json.loads(data)

    async def until(self, kind):
        """Messages up to the first of this type."""
        messages = []
        while True:
            messages.append(await self.receive())
            if isinstance(messages[-1], dict) and messages[-1]["type"] == kind:
                return messages


def audio(messages):
    return b"".join(message for message in messages if isinstance(message, bytes))


def types(messages):
    return [message["type"] for message in messages if isinstance(message, dict)]


async def conversation(server, pieces, **changes):
    async with Client(server, **changes) as client:
        for piece in pieces:
            await client.say(piece)
        await client.send(type="input.done")
        return await client.until("session.done")


async def test_text_in_pieces_is_spoken_sentence_by_sentence(server):
    whole = " ".join(SENTENCES)
    messages = await conversation(server, [whole[i : i + 7] for i in range(0, len(whole), 7)])
    assert messages[0] == {
        "type": "session.started",
        "seed": 21,
        "sample_rate": 24000,
        "channels": 1,
        "content_type": "audio/pcm",
    }
    assert types(messages)[1:] == ["audio.start", "audio.done"] * 3 + ["session.done"]
    assert [m["text"] for m in messages if isinstance(m, dict) and m["type"] == "audio.start"] == SENTENCES
    assert len(audio(messages)) > 3 * 1920


async def test_a_conversation_repeats_and_begins_as_the_plain_answer(server, client):
    once, again = [await conversation(server, [f"{sentence} " for sentence in SENTENCES]) for _ in range(2)]
    assert audio(once) == audio(again)
    body = {"input": SENTENCES[0], "response_format": "pcm", "seed": 21, "max_frames": 25}
    plain = np.frombuffer(client.post("/v1/audio/speech", json=body).content, "<i2")
    fade = 24_000 // 50
    assert np.array_equal(np.frombuffer(audio(once), "<i2")[: len(plain) - fade], plain[:-fade])


async def test_audio_comes_before_the_text_is_complete(server):
    async with Client(server) as client:
        await client.say("One sentence is complete. The next")
        messages = await client.until("audio.done")
        assert audio(messages)
        await client.send(type="input.flush")
        messages = await client.until("audio.done")
        assert messages[0] == {"type": "audio.start", "index": 1, "text": "The next"}


async def test_an_interruption_stops_the_model_and_drops_the_rest(server):
    async with Client(server, max_frames=400, text_temperature=0, temperature=1.0) as client:
        await client.say("A sentence that will be interrupted. And a second one. And ")
        while not isinstance(await client.receive(), bytes):
            pass
        await client.send(type="input.interrupt")
        await client.until("audio.interrupted")
        await idle()
        await client.say("Something else now.")
        await client.send(type="input.done")
        messages = await client.until("session.done")
        assert [m["text"] for m in messages if isinstance(m, dict) and "text" in m] == ["Something else now."]


async def test_a_peer_that_vanishes_frees_everything(server):
    async with Client(server, max_frames=2000) as client:
        await client.say("A sentence for somebody who is about to leave. And then")
        while not isinstance(await client.receive(), bytes):
            pass
        client._connection.transport.abort()
    await idle()


@pytest.mark.parametrize(
    ("first", "param"),
    [
        ({"type": "input.text", "text": "Hello."}, "type"),
        (CONFIG | {"speed": 100}, "speed"),
        (CONFIG | {"input": "Hello."}, "input"),
        (CONFIG | {"voice": "nobody"}, "voice"),
        (CONFIG | {"nonsense": 1}, "nonsense"),
        (CONFIG | {"ref_audio": "AAAA"}, "ref_audio"),
    ],
)
async def test_a_wrong_beginning_is_refused_and_closed(server, first, param):
    async with Client(server) as client:
        client._config = first
    async with connect(server.replace("http", "ws") + "/v1/audio/speech/stream") as connection:
        await connection.send(json.dumps(first))
        error = json.loads(await connection.recv())
        assert (error["type"], error["error"]["param"]) == ("error", param)
        with pytest.raises(ConnectionClosed):
            await connection.recv()
        assert connection.close_code == 1008


@pytest.mark.parametrize(
    "message", ["no json", "[]", '{"type": "unknown"}', '{"type": "input.text"}', b"bytes", "{" * 10**5]
)
async def test_wrong_messages_are_refused_and_closed(server, message):
    async with Client(server) as client:
        await client.until("session.started")
        await client._connection.send(message)
        messages = await client.until("error")
        assert messages[-1]["error"]["type"] == "invalid_request_error"
        with pytest.raises(ConnectionClosed):
            await client.receive()
    await idle()


async def test_more_text_than_may_wait_is_refused(server):
    async with Client(server) as client:
        for _ in range(5):
            await client.say("no end of it " * 1000)
        messages = await client.until("error")
        assert messages[-1]["error"]["param"] == "text"
