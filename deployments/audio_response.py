"""The audio of a request as an HTTP answer, whole or streamed."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from fastapi import Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from pipeline.audio import AudioOutput
from pipeline.codec_service import AudioChunk
from pipeline.errors import ModelFailure


async def first_audio(audio: AsyncGenerator[AudioChunk]) -> AudioChunk:
    """Waits for the first chunk, so that what fails before it still gets its own status.

    Raises ModelFailure when the utterance has no audio at all.
    """
    first = await anext(audio, None)
    if first is None or first.samples.shape[1] == 0:
        await audio.aclose()
        raise ModelFailure("the model ended the utterance before its first frame")
    return first


class AudioStream(StreamingResponse):
    """Sends bytes as they are made. A later failure breaks the body off, so that it cannot pass for a whole one.

    Closes the source however it ends, also when the client is gone before the first byte.
    """

    def __init__(
        self, first: AudioChunk, rest: AsyncGenerator[AudioChunk], output: AudioOutput, headers: dict[str, str]
    ):
        self._source = rest
        self._encoded = _encoded(first, rest, output)
        parts = (data async for data, _ in self._encoded)
        super().__init__(parts, media_type=output.content_type, headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._source), aclosing(self._encoded), aclosing(self.body_iterator):
            await super().__call__(scope, receive, send)


async def whole(
    first: AudioChunk, rest: AsyncGenerator[AudioChunk], output: AudioOutput, headers: dict[str, str]
) -> Response:
    """Waits for the end: exact lengths, and the header X-Finish-Reason."""
    parts, finish = [], None
    async with aclosing(_encoded(first, rest, output)) as encoded:
        async for data, finish in encoded:  # noqa: B007 - the reason comes with the last bytes
            parts.append(data)
    headers = {**headers, "X-Finish-Reason": finish}
    return Response(b"".join(parts), media_type=output.content_type, headers=headers)


async def _encoded(
    first: AudioChunk, rest: AsyncGenerator[AudioChunk], output: AudioOutput
) -> AsyncGenerator[tuple[bytes, str | None]]:
    """Bytes ready to send, with the finish reason of the chunk they came with. Encoders run off the event loop."""
    async with aclosing(rest):
        finish = first.frames.finish
        yield await asyncio.to_thread(output.write, first.samples), None
        async for chunk in rest:
            finish = chunk.frames.finish
            yield await asyncio.to_thread(output.write, chunk.samples), None
        yield await asyncio.to_thread(output.finish), finish
