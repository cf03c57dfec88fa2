import asyncio
import base64
import json

import numpy as np
import pytest

from deployments.audio_response import Answer, AudioStream, EventStream, first_audio, whole
from deployments.utterance import Piece
from pipeline.audio import AudioOutput
from pipeline.errors import ModelFailure


class Source:
    """Pieces of 480 samples, without end unless `last` is given; knows whether it was closed."""

    def __init__(self, last=None, error=None, samples=480):
        self.last, self.error, self.samples = last, error, samples
        self.made, self.closed = 0, False

    async def pieces(self):
        try:
            while True:
                finish = "stop" if self.made == self.last else None
                self.made += 1
                yield Piece(np.full((2, self.samples), 0.5, np.float32), finish)
                if finish:
                    return
                if self.error and self.made == 3:
                    raise self.error
                await asyncio.sleep(0)
        finally:
            self.closed = True


def output(streaming=True):
    return AudioOutput("pcm", 48000, 2, rate=48000, channels=2, streaming=streaming)


async def started(source, streaming=True):
    pieces = source.pieces()
    return Answer(1, await first_audio(pieces), pieces, output(streaming), lambda: (7, source.made))


async def answer(source, receive, send, kind=AudioStream):
    response = kind(await started(source))
    await response({"type": "http", "asgi": {"spec_version": "2.3"}}, receive, send)


async def never():
    await asyncio.Event().wait()


async def gone():
    return {"type": "http.disconnect"}


async def test_a_stream_carries_the_bytes_of_the_whole_answer():
    sent = []

    async def send(message):
        sent.append(message)

    await answer(Source(last=4), never, send)
    complete = await whole(await started(Source(last=4), streaming=False))
    assert b"".join(message.get("body", b"") for message in sent) == complete.body
    assert len(complete.body) == 5 * 480 * 4
    assert complete.headers["x-finish-reason"] == "stop"
    assert sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


async def test_a_client_that_is_gone_before_the_first_byte_closes_the_source():
    async def send(_message):
        raise AssertionError("nothing can be sent any more")

    source = Source()
    with pytest.raises(AssertionError):
        await answer(source, never, send)
    assert source.closed


async def test_a_client_that_leaves_in_the_middle_closes_the_source():
    source = Source()
    sent = []

    async def send(message):
        sent.append(message)
        await asyncio.sleep(0)

    async def leaves():
        while len(sent) < 5:
            await asyncio.sleep(0)
        return await gone()

    async with asyncio.timeout(20):
        await answer(source, leaves, send)
    assert source.closed


async def test_a_failure_in_the_middle_never_ends_the_body():
    sent = []

    async def send(message):
        sent.append(message)

    source = Source(error=ModelFailure("broken"))
    with pytest.raises(Exception, match="broken"):
        await answer(source, never, send)
    assert source.closed
    assert all(message.get("more_body", True) for message in sent)


async def test_an_utterance_without_audio_is_a_failure_of_the_model_and_is_closed():
    source = Source(last=0, samples=0)
    with pytest.raises(ModelFailure, match="first frame"):
        await first_audio(source.pieces())
    assert source.closed


def events(sent):
    body = b"".join(message.get("body", b"") for message in sent).decode()
    assert body.endswith("\n\n")
    return [json.loads(event.removeprefix("data: ")) for event in body.strip().split("\n\n")]


async def test_events_carry_the_same_bytes_and_end_with_usage_seed_and_reason():
    sent, plain = [], []

    async def send(message):
        sent.append(message)

    async def send_plain(message):
        plain.append(message)

    await answer(Source(last=4), never, send, EventStream)
    await answer(Source(last=4), never, send_plain)
    assert dict(sent[0]["headers"])[b"content-type"].startswith(b"text/event-stream")
    *deltas, done = events(sent)
    assert {event["type"] for event in deltas} == {"speech.audio.delta"}
    audio = b"".join(base64.b64decode(event["audio"]) for event in deltas)
    assert audio == b"".join(message.get("body", b"") for message in plain)
    assert done == {
        "type": "speech.audio.done",
        "usage": {"input_tokens": 7, "output_tokens": 5, "total_tokens": 12},
        "seed": 1,
        "finish_reason": "stop",
    }


async def test_events_that_break_off_end_with_the_error():
    sent = []

    async def send(message):
        sent.append(message)

    source = Source(error=ModelFailure("internals of the model"))
    await answer(source, never, send, EventStream)
    *_, last = events(sent)
    assert (last["type"], last["error"]["code"]) == ("error", "model_failure")
    assert "internals" not in last["error"]["message"]
    assert source.closed
