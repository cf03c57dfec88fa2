"""Clients of the server under check, some of whom leave early; the audio of an answer, and where two answers differ."""

import asyncio
import hashlib
import io
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import av
import httpx
import numpy as np

from pipeline.errors import SpeechError

PATH = "/v1/audio/speech"


class NoVerdict(SpeechError):
    """The server cannot be reached, refuses, or does not come to an end: nothing can be compared."""


class UnreadableAnswer(NoVerdict):
    """An answer whose audio cannot be read, or that holds none."""


@dataclass(frozen=True)
class Answer:
    """Integer samples `[samples, channels]`, their rate in Hz, and what X-Seed says, None without one."""

    samples: np.ndarray
    rate: int
    seed: str | None

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.rate

    @property
    def digest(self) -> str:
        """SHA-256 of the samples."""
        return hashlib.sha256(self.samples.tobytes()).hexdigest()

    def difference(self, other: "Answer", seed: int) -> str | None:
        """Where `other`, asked for with `seed`, first differs from this one, in words; None if it does not."""
        channels, other_channels = self.samples.shape[1], other.samples.shape[1]
        if (self.rate, channels) != (other.rate, other_channels):
            return f"it has {other.rate} Hz x {other_channels}, the first answer {self.rate} Hz x {channels}"
        mine, others = self.samples.tobytes(), other.samples.tobytes()
        if mine == others:
            wrong_seed = other.seed not in (None, str(seed))
            return f"X-Seed says {other.seed[:80]}, asked for was {seed}" if wrong_seed else None
        pairs = enumerate(zip(mine, others, strict=False))
        byte = next((at for at, (left, right) in pairs if left != right), min(len(mine), len(others)))
        sample = byte // (channels * self.samples.itemsize)
        place = f"byte {byte}, sample {sample}, {sample / self.rate:.3f} s"
        return f"first differs at {place}; it has {len(others)} bytes of samples, the first answer {len(mine)}"


def read_answer(content: bytes, format: str, seed: str | None) -> Answer:
    """The samples of a `wav` or `flac` body, without its header, whose lengths a stream cannot know.

    Raises UnreadableAnswer.
    """
    try:
        with av.open(io.BytesIO(content), format=format) as container:
            rate, channels = container.streams.audio[0].rate, container.streams.audio[0].channels
            parts = [frame.to_ndarray().reshape(-1, channels) for frame in container.decode(audio=0)]
    except av.FFmpegError as error:
        raise UnreadableAnswer(f"the answer is no {format} file that can be decoded ({error.strerror})") from None
    if not any(len(part) for part in parts):
        raise UnreadableAnswer("the answer holds no audio")
    return Answer(np.concatenate(parts), rate, seed)


class SpeechClient:
    """`timeout` (s) bounds each request, including the waits a busy server (429) asks for before another attempt."""

    def __init__(self, http: httpx.AsyncClient, timeout: float):
        self._http = http
        self._timeout = timeout

    async def ask(self, fields: dict[str, Any], stream: bool) -> Answer:
        """Raises NoVerdict without an answer, UnreadableAnswer for one that holds no audio."""
        response = await self._post({**fields, "stream": stream})
        is_text = response.headers.get("content-type", "").startswith(("text/", "application/json"))
        if response.status_code != 200 or is_text:
            raise NoVerdict(f"the server answered {response.status_code} and no audio: {_message(response)}")
        return read_answer(response.content, fields["response_format"], response.headers.get("x-seed"))

    async def leave(self, fields: dict[str, Any], stream: bool, seconds: float) -> None:
        """Breaks the connection off after `seconds`, unless the answer came to its end before."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._post({**fields, "stream": stream})

    async def _post(self, body: dict[str, Any]) -> httpx.Response:
        try:
            async with asyncio.timeout(self._timeout):
                while (response := await self._http.post(PATH, json=body)).status_code == 429:
                    seconds = response.headers.get("retry-after", "")  # or a date, which is not read
                    await asyncio.sleep(min(max(int(seconds), 0.1), self._timeout) if seconds.isdecimal() else 1.0)
                return response
        except TimeoutError:
            message = f"no whole answer within {self._timeout:g} s; raise --timeout, or lower --concurrency"
        except httpx.HTTPError as error:
            words, url = str(error) or type(error).__name__, self._http.base_url
            message = f"the server broke its answer off ({words}); its log may say why"
            if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
                server = f"{url.scheme}://{url.netloc.decode()}"
                message = f"cannot reach {server} ({words}); is the server running, and is --url right?"
        raise NoVerdict(message)


def _message(response: httpx.Response) -> str:
    """What the server said, in OpenAI's shape or any other, as one printable line."""
    try:
        text = str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        text = response.text
    return "".join(c if c.isprintable() else " " for c in text[:300]).strip() or "without a message"
