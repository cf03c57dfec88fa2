"""WS /v1/audio/speech/stream: text comes in pieces, audio goes out as it is made.

Messages of text are JSON objects with a `type`. The client sends

* `session.config`, first: any field of POST /v1/audio/speech but `input`, `stream` and `stream_format`;
* `input.text` with `text`: some more of the text; a sentence is spoken as soon as a whole word follows it;
* `input.flush`: what has come so far is spoken now, complete or not;
* `input.interrupt`: the model stops, and text that has not been spoken is dropped;
* `input.done`: flush, and close when all is spoken.

The server answers `session.started` (seed, rate, channels, content type), then for every part of the text
`audio.start` (its index and text), binary messages with the bytes of one continuous file, and `audio.done`; after an
interruption `audio.interrupted`; `session.done` in the end; or `error`, in the shape of HTTP's, before it closes.
"""

import asyncio
import logging
from collections import deque
from contextlib import aclosing, suppress
from typing import Any

from fastapi import APIRouter, WebSocket, WebSocketDisconnect

from deployments.http_errors import bad_request, error_body, shown, to_api_error
from deployments.json_body import parse_object
from deployments.service import Conversation, SpeechService
from pipeline.marks import something_to_say
from pipeline.sentences import SentenceReader

POLICY_VIOLATION, INTERNAL_ERROR = 1008, 1011
TYPES = ("input.text", "input.flush", "input.interrupt", "input.done")
_OF_HTTP_ONLY = ("input", "stream", "stream_format")

log = logging.getLogger("ray.serve")


def router(service: SpeechService) -> APIRouter:
    routes = APIRouter()

    @routes.websocket("/v1/audio/speech/stream")
    async def stream(socket: WebSocket) -> None:
        await socket.accept()
        try:
            await _Session(service, socket).run()
        except Exception as error:  # noqa: BLE001 - whatever it is, the client is told in its own protocol
            await _end(socket, error.exceptions[0] if isinstance(error, ExceptionGroup) else error)

    return routes


async def _end(socket: WebSocket, error: Exception) -> None:
    if isinstance(error, WebSocketDisconnect):
        return
    answer = to_api_error(error)
    if answer.status == 500:
        log.error("a session failed", exc_info=error)
    with suppress(RuntimeError, WebSocketDisconnect):  # it has been closed meanwhile
        await socket.send_json({"type": "error", **error_body(answer)})
        await socket.close(INTERNAL_ERROR if answer.status >= 500 else POLICY_VIOLATION)


class _Session:
    """One connection: a task that reads messages beside one that speaks what they bring, a part at a time.

    Whichever fails ends both; a peer that leaves is seen by the one that reads, at once.
    """

    def __init__(self, service: SpeechService, socket: WebSocket):
        self._service = service
        self._socket = socket
        self._parts: deque[str] = deque()
        self._changed = asyncio.Event()
        self._done = False
        self._spoken: asyncio.Task | None = None
        """The part at work: what an interruption cancels."""

    async def run(self) -> None:
        conversation = await self._begin()
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(self._read())
            await self._speak_all(conversation)
            reading.cancel()
        await self._socket.send_json({"type": "session.done"})
        await self._socket.close()

    async def _begin(self) -> Conversation:
        values = await self._message()
        if values.pop("type", None) != "session.config":
            raise bad_request('the first message must be of type "session.config"', "type")
        for name in _OF_HTTP_ONLY:
            if name in values:
                raise bad_request(f"{name} has no place in session.config", name, "unknown_parameter")
        conversation = await self._service.converse(values)
        self._most_chars = self._service.limits.max_input_chars
        self._sentences = SentenceReader(conversation.body.language)
        output = conversation.output
        await self._socket.send_json(
            {
                "type": "session.started",
                "seed": conversation.seed,
                "sample_rate": output.rate,
                "channels": output.channels,
                "content_type": output.content_type,
            }
        )
        return conversation

    async def _message(self) -> dict[str, Any]:
        message = await self._socket.receive()
        if message["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(message.get("code", 1000))
        text = message.get("text")
        if text is None:
            raise bad_request("messages must be text: JSON objects with a type")
        return parse_object(text.encode("utf-8", "surrogatepass"), self._service.limits.max_body_bytes)

    async def _read(self) -> None:
        while True:
            values = await self._message()
            match values:
                case {"type": "input.text", "text": str(text)}:
                    self._take(text)
                case {"type": "input.flush"}:
                    self._flush()
                case {"type": "input.interrupt"}:
                    self._interrupt()
                case {"type": "input.done"}:
                    self._flush()
                    self._done = True
                case _:
                    known = ", ".join(TYPES)
                    raise bad_request(
                        f"there is no message of type {shown(values.get('type'))} like this; there are: {known}", "type"
                    )
            self._changed.set()

    def _take(self, text: str) -> None:
        waiting = self._sentences.waiting + sum(map(len, self._parts)) + len(text)
        if waiting > self._most_chars:
            raise bad_request(f"{waiting} characters are waiting to be spoken, more than {self._most_chars}", "text")
        complete = self._sentences.write(text)
        if complete:
            self._parts.append(complete)

    def _flush(self) -> None:
        rest = self._sentences.flush()
        if rest.strip():
            self._parts.append(rest)

    def _interrupt(self) -> None:
        self._sentences.flush()
        self._parts.clear()
        if self._spoken is not None:
            self._spoken.cancel()

    async def _speak_all(self, conversation: Conversation) -> None:
        index = 0
        while self._parts or not self._done:
            if not self._parts:
                self._changed.clear()
                await self._changed.wait()
                continue
            text = self._parts.popleft()
            if not something_to_say(text):
                continue
            self._spoken = asyncio.create_task(self._speak(conversation, index, text))
            try:
                await self._spoken
            except asyncio.CancelledError:
                if asyncio.current_task().cancelling():
                    self._spoken.cancel()
                    raise
                await self._socket.send_json({"type": "audio.interrupted", "index": index})
            self._spoken = None
            index += 1
        await self._send(await conversation.finish())

    async def _speak(self, conversation: Conversation, index: int, text: str) -> None:
        await self._socket.send_json({"type": "audio.start", "index": index, "text": text.strip()})
        async with aclosing(conversation.speak(text)) as audio:
            async for data in audio:
                await self._send(data)
        await self._socket.send_json({"type": "audio.done", "index": index})

    async def _send(self, data: bytes) -> None:
        if data:
            await self._socket.send_bytes(data)
