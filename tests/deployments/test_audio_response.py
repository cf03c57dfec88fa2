import asyncio

import numpy as np
import pytest

from deployments.audio_response import AudioStream, first_audio, whole
from pipeline.audio import AudioOutput
from pipeline.codec_service import AudioChunk
from pipeline.errors import ModelFailure
from pipeline.request import FrameChunk

NO_CODES = np.empty((0, 12), dtype=np.int64)


class Source:
    """Chunks of 480 samples, without end unless `last` is given; knows whether it was closed."""

    def __init__(self, last=None, error=None, samples=480):
        self.last, self.error, self.samples = last, error, samples
        self.made, self.closed = 0, False

    async def chunks(self):
        try:
            while True:
                finish = "stop" if self.made == self.last else None
                yield AudioChunk(np.full((2, self.samples), 0.5, np.float32), FrameChunk(self.made, NO_CODES, finish))
                self.made += 1
                if finish:
                    return
                if self.error and self.made == 3:
                    raise self.error
                await asyncio.sleep(0)
        finally:
            self.closed = True


def output(streaming=True):
    return AudioOutput("pcm", 48000, 2, rate=48000, channels=2, streaming=streaming)


async def answer(source, receive, send):
    chunks = source.chunks()
    response = AudioStream(await first_audio(chunks), chunks, output(), {"X-Seed": "1"})
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
    chunks = Source(last=4).chunks()
    complete = await whole(await first_audio(chunks), chunks, output(streaming=False), {})
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
        await first_audio(source.chunks())
    assert source.closed
