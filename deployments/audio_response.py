"""The audio of a request as an HTTP answer, whole or streamed."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from types import MappingProxyType

from fastapi import Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from deployments import sse
from deployments.http_errors import to_api_error
from deployments.utterance import Piece
from pipeline.audio import AudioOutput
from pipeline.errors import ModelFailure

log = logging.getLogger("ray.serve")


@dataclass(frozen=True)
class Answer:
    """An utterance whose first audio is there; `rest` goes on from it and is to be closed."""

    seed: int
    first: Piece
    rest: AsyncGenerator[Piece]
    output: AudioOutput
    usage: Callable[[], tuple[int, int]]
    """tokens of the text, and frames made so far"""

    @property
    def headers(self) -> dict[str, str]:
        return {
            "X-Seed": str(self.seed),
            "X-Sample-Rate": str(self.output.rate),
            "X-Channels": str(self.output.channels),
        }


async def first_audio(audio: AsyncGenerator[Piece]) -> Piece:
    """Waits for the first sound, so that what fails before it still gets its own status.

    Raises ModelFailure when the utterance has no audio at all.
    """
    async for piece in audio:
        if piece.samples.shape[1]:
            return piece
    raise ModelFailure("the model ended the utterance before its first frame")


class AudioStream(StreamingResponse):
    """Sends bytes as they are made. A later failure breaks the body off, so that it cannot pass for a whole one.

    Closes the source however it ends, also when the client is gone before the first byte.
    """

    def __init__(self, answer: Answer, headers: Mapping[str, str] = MappingProxyType({})):
        self._answer = answer
        self._encoded = _encoded(answer)
        super().__init__(self._parts(), media_type=self._media_type, headers={**answer.headers, **headers})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._answer.rest), aclosing(self._encoded), aclosing(self.body_iterator):
            await super().__call__(scope, receive, send)

    @property
    def _media_type(self) -> str:
        return self._answer.output.content_type

    async def _parts(self) -> AsyncGenerator[bytes]:
        async for data, _ in self._encoded:
            yield data


class EventStream(AudioStream):
    """The same bytes in server-sent events. A later failure is the last event."""

    def __init__(self, answer: Answer):
        super().__init__(answer, {"Cache-Control": "no-cache"})

    @property
    def _media_type(self) -> str:
        return sse.CONTENT_TYPE

    async def _parts(self) -> AsyncGenerator[bytes]:
        try:
            async for data, finish in self._encoded:  # noqa: B007 - the reason comes with the last bytes
                if data:
                    yield sse.delta(data)
        except Exception as error:
            log.warning("a stream of events broke off", exc_info=True)
            yield sse.failed(to_api_error(error))
            return
        tokens, frames = self._answer.usage()
        yield sse.done(seed=self._answer.seed, finish_reason=finish, input_tokens=tokens, output_tokens=frames)


async def whole(answer: Answer) -> Response:
    """Waits for the end: exact lengths, and the header X-Finish-Reason."""
    data, finish = await whole_bytes(answer)
    headers = {**answer.headers, "X-Finish-Reason": finish}
    return Response(data, media_type=answer.output.content_type, headers=headers)


async def whole_bytes(answer: Answer) -> tuple[bytes, str]:
    """The file, and why it ended."""
    parts, finish = [], ""
    async with aclosing(_encoded(answer)) as encoded:
        async for data, finish in encoded:  # noqa: B007 - the reason comes with the last bytes
            parts.append(data)
    return b"".join(parts), finish


async def _encoded(answer: Answer) -> AsyncGenerator[tuple[bytes, str | None]]:
    """Bytes ready to send; the finish reason comes with the last ones. Encoders run off the event loop."""
    output = answer.output
    async with aclosing(answer.rest):
        finish = answer.first.finish
        yield await asyncio.to_thread(output.write, answer.first.samples), None
        async for piece in answer.rest:
            finish = piece.finish
            if piece.samples.shape[1]:
                yield await asyncio.to_thread(output.write, piece.samples), None
        yield await asyncio.to_thread(output.finish), finish
