"""The server under check, as its clients meet it: some wait for the answer, some leave early."""

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any, TypeVar

import httpx

from pipeline.errors import SpeechError
from pipeline.verify.answer import Answer, read_answer

PATH = "/v1/audio/speech"
CONNECT_SECONDS = 10.0
_BUSY = 429

T = TypeVar("T")


class NoVerdict(SpeechError):
    """The server cannot be reached, refuses, or does not come to an end: nothing can be compared."""


class SpeechServer:
    """`timeout` (s) bounds each request, including the waits a busy server (429) asks for before another attempt."""

    def __init__(self, client: httpx.AsyncClient, timeout: float):
        self._client = client
        self._timeout = timeout

    async def ask(self, fields: dict[str, Any], *, stream: bool) -> Answer:
        """Raises NoVerdict without an answer, UnreadableAnswer for one that holds no audio."""
        response = await self._within_limits(self._post({**fields, "stream": stream}))
        is_text = response.headers.get("content-type", "").startswith(("text/", "application/json"))
        if response.status_code != 200 or is_text:
            raise NoVerdict(f"the server answered {response.status_code} and no audio: {_message(response)}")
        return read_answer(response.content, fields["response_format"], response.headers)

    async def leave_stream(self, fields: dict[str, Any], parts: int) -> None:
        """Breaks the connection off when `parts` parts of the answer are there."""
        await self._within_limits(self._read_parts({**fields, "stream": True}, parts))

    async def leave_whole(self, fields: dict[str, Any], seconds: float) -> None:
        """Breaks the connection off after `seconds`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._within_limits(self._post({**fields, "stream": False}))

    async def _post(self, body: dict[str, Any]) -> httpx.Response:
        while (response := await self._client.post(PATH, json=body)).status_code == _BUSY:
            await asyncio.sleep(_retry_seconds(response, most=self._timeout))
        return response

    async def _read_parts(self, body: dict[str, Any], parts: int) -> None:
        async with self._client.stream("POST", PATH, json=body) as response:
            async for _ in response.aiter_raw():
                parts -= 1
                if parts <= 0:
                    return

    async def _within_limits(self, exchange: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self._timeout):
                return await exchange
        except TimeoutError:
            message = f"no whole answer within {self._timeout:g} s; raise --timeout, or lower --concurrency"
            raise NoVerdict(message) from None
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            url = self._client.base_url
            server = f"{url.scheme}://{url.netloc.decode()}"
            message = f"cannot reach {server} ({_words(error)}); is the server running, and is --url right?"
            raise NoVerdict(message) from None
        except httpx.HTTPError as error:
            raise NoVerdict(f"the server broke its answer off ({_words(error)}); its log may say why") from None


def _retry_seconds(response: httpx.Response, most: float) -> float:
    try:
        return min(max(int(response.headers["retry-after"]), 0.1), most)
    except (KeyError, ValueError):  # none, or a date
        return 1.0


def _message(response: httpx.Response) -> str:
    """What the server said, in OpenAI's shape or any other, as one printable line."""
    try:
        text = str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        text = response.text
    return "".join(c if c.isprintable() else " " for c in text[:300]).strip() or "without a message"


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
