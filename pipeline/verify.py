"""`python -m pipeline.verify --url URL`: checks on a live server that the same request gives the same bytes.

Sends varied requests alone, one after the other, then the same ones in shuffled rounds, many at once, streamed and whole,
between unseeded requests and clients that leave early. Every answer must hold the samples of the one given alone; what the
server answered to an unseeded request must come again for the seed it named.

Speaks plain HTTP only, so it can check any server of OpenAI's speech API that takes these fields. Exit status: 0 if every
answer was the same, 1 if one differed, 2 if there is no verdict because the server cannot be reached or refuses.
"""

import argparse
import asyncio
import base64
import hashlib
import io
import random
import sys
import wave
from collections.abc import Awaitable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice, product
from typing import Any

import av
import httpx
import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from pipeline.errors import SpeechError

SAME, DIFFERENT, NO_VERDICT, INTERRUPTED = 0, 1, 2, 130

TEXTS = {
    "english, short": "Yes, of course.",
    "chinese": "今天天气很好，我们去公园散步吧。",
    "english, long": "When the rain had stopped, the whole street came out to look at the sky. Children ran through the "
    "puddles; somebody opened a window, and an old radio played a tune that nobody had heard for years. It went on like "
    "that until the evening, and then, one after the other, the lights went on.",
    "german": "Der Zug nach München fährt heute ausnahmsweise von Gleis sieben ab.",
    "japanese": "明日の会議は午後三時からです。",
    "one word": "No.",
    "numbers": "Order 4711 costs 1,299.50 dollars, due on 3/14/2025 at 9:05.",
    "french": "Où est-ce que tu as mis les clés de la voiture ? Je les cherche depuis ce matin !",
    "chinese, long": "从前有一座山，山上有一座庙。庙里住着一位老和尚，他每天早晨都要走很远的路去挑水。有一天，村里来了一个年轻人，"
    "他说愿意帮忙，但是要先听一个故事。老和尚笑了笑，坐在石头上，慢慢地讲了起来。",
    "korean": "내일 아침 일찍 전화해 주세요.",
    "mixed languages": "The word 你好 means hello, and こんにちは does too.",
    "russian": "Сегодня вечером мы пойдём в театр, если успеем купить билеты.",
    "line breaks": "First, the title.\n\nThen a line...\nand - well - the end?",
}
SAMPLING = (
    {},
    {"temperature": 0},
    {"temperature": 1.0, "top_k": 50, "top_p": 0.95},
    {"repetition_penalty": 1.2},
    {"top_k": 0, "top_p": 1.0},
    {"temperature": 0.7, "top_p": 0.6, "repetition_penalty": 1.1},
    {"top_k": 5},
)
REFERENCES = (None, "clone", None, "continuation", None)
FORMATS = ("pcm", "wav", "flac")
EDGE_SEEDS = (0, 2**63 - 1, 2**32)

PATH = "/v1/audio/speech"
CONNECT_SECONDS = 10.0
BUSY = 429
UNSEEDED = 2
LEAVE_SECONDS = 0.2
LEAVE_PARTS = (1, 4)
"""Streams are left after this many parts, one each a round; one whole answer is left after LEAVE_SECONDS."""


class NoVerdict(SpeechError):
    """The server cannot be reached, refuses, or answers with something that cannot be compared."""


@dataclass(frozen=True)
class Answer:
    """The audio of one answer: interleaved samples as bytes, of `frame_bytes` for all channels at one instant."""

    samples: bytes
    rate: int
    channels: int
    frame_bytes: int
    seed: str | None

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.frame_bytes / self.rate

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.samples).hexdigest()

    def difference(self, other: "Answer") -> str | None:
        """Where `other` first differs, in words; None if it is the same."""
        if (self.rate, self.channels) != (other.rate, other.channels):
            return f"{other.rate} Hz x {other.channels} instead of {self.rate} Hz x {self.channels}"
        if self.digest == other.digest:
            return None
        byte = first_difference(self.samples, other.samples)
        sample = byte // self.frame_bytes
        return (
            f"first differs at byte {byte}, sample {sample}, {sample / self.rate:.3f} s; "
            f"it has {len(other.samples)} bytes of samples, the first answer {len(self.samples)}"
        )


def first_difference(left: bytes, right: bytes) -> int:
    """Index of the first byte that differs; the shorter length if one only goes on after the other."""
    length = min(len(left), len(right))
    unequal = np.frombuffer(left, np.uint8, length) != np.frombuffer(right, np.uint8, length)
    return int(unequal.argmax()) if unequal.any() else length


def read_answer(content: bytes, format: str, headers: httpx.Headers) -> Answer:
    """The samples of a pcm, wav or flac file. Headers of files say other lengths when streamed and are left out.

    Raises NoVerdict for a file that cannot be decoded or holds no sample.
    """
    seed = headers.get("x-seed")
    if format == "pcm":  # OpenAI's, where no header says otherwise: 16 bits, 24 kHz, mono
        rate, channels = (
            int(headers.get(name, default)) for name, default in (("x-sample-rate", 24000), ("x-channels", 1))
        )
        answer = Answer(content, rate, channels, 2 * channels, seed)
    else:
        try:
            samples, rate = _decoded(content, format)
        except av.FFmpegError as error:
            raise NoVerdict(f"the answer is no {format} file that can be decoded ({error.strerror})") from None
        answer = Answer(samples.tobytes(), rate, samples.shape[1], samples.shape[1] * samples.itemsize, seed)
    if not answer.samples:
        raise NoVerdict("the answer holds no audio")
    return answer


def _decoded(content: bytes, format: str) -> tuple[np.ndarray, int]:
    """Integer samples `[samples, channels]` as they are in the file, and their rate in Hz."""
    with av.open(io.BytesIO(content), format=format) as container:
        stream = container.streams.audio[0]
        parts = []
        for frame in container.decode(stream):
            array = frame.to_ndarray()
            parts.append(array.T if frame.format.is_planar else array.reshape(-1, stream.channels))
        return np.concatenate(parts or [np.empty((0, stream.channels), np.int16)]), stream.rate


@dataclass
class Case:
    """One request, its first answer, and how later answers compared with that."""

    number: int
    text: str
    fields: dict[str, Any]
    first: Answer | None = None
    compared: int = 0
    differences: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.number:02d} {self.text}"

    @property
    def verdict(self) -> str:
        if self.differences:
            return f"DIFFERS {len(self.differences)} of {self.compared}"
        return f"same {self.compared} of {self.compared}" if self.compared else "not compared"

    @property
    def sampling(self) -> str:
        shown = ("temperature", "top_k", "top_p", "repetition_penalty")
        return " ".join(
            f"{name.replace('repetition_', '')}={self.fields[name]}" for name in shown if name in self.fields
        )


def make_cases(requests: int, seed: int, common: dict[str, Any]) -> list[Case]:
    """Seeded requests: each list of texts, sampling fields, clips and formats is gone through at its own pace.

    `common` holds fields that all of them get. The seeds are the edges of their range, then drawn from `seed`.
    """
    drawn = random.Random(seed)
    cases = []
    for index in range(requests):
        text = list(TEXTS)[index % len(TEXTS)]
        fields = {
            **common,
            "input": TEXTS[text],
            "response_format": FORMATS[index % len(FORMATS)],
            "seed": EDGE_SEEDS[index] if index < len(EDGE_SEEDS) else drawn.getrandbits(63),
            **SAMPLING[index % len(SAMPLING)],
            **_reference(REFERENCES[index % len(REFERENCES)], index),
        }
        cases.append(Case(index + 1, text, fields))
    return cases


def unseeded_cases(after: int, common: dict[str, Any]) -> list[Case]:
    """UNSEEDED requests without a seed, numbered from `after` + 1."""
    texts = islice(TEXTS.items(), 2, 2 + UNSEEDED)
    return [
        Case(after + 1 + index, f"{name}, unseeded", {**common, "input": text, "response_format": "wav"})
        for index, (name, text) in enumerate(texts)
    ]


def _reference(mode: str | None, index: int) -> dict[str, str]:
    if mode is None:
        return {}
    clip = spoken_like_clip(pitch=100 + 30 * (index % 4), seconds=1.5 + 0.5 * (index % 3))
    fields = {"ref_audio": clip, "ref_mode": mode}
    return {**fields, "ref_text": "So far, so good."} if mode == "continuation" else fields


def spoken_like_clip(pitch: float, seconds: float, rate: int = 22_050) -> str:
    """A mono 16-bit WAV as a data URI: harmonics of a gliding `pitch` (Hz) in syllables, four a second."""
    time = np.arange(int(seconds * rate)) / rate
    phase = 2 * np.pi * pitch * (time + 0.02 * np.sin(2 * np.pi * 0.7 * time))
    harmonics = sum(np.sin(number * phase) / number for number in range(1, 9))
    samples = 0.2 * harmonics * np.sin(np.pi * 4 * time) ** 2
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes((32767 * samples).astype("<i2").tobytes())
    return "data:audio/wav;base64," + base64.b64encode(file.getvalue()).decode()


class SpeechServer:
    """The server under check. `timeout` (s) bounds one request, waits between attempts at a busy server included."""

    def __init__(self, client: httpx.AsyncClient, timeout: float):
        self._client = client
        self._timeout = timeout

    async def ask(self, fields: dict[str, Any], *, stream: bool) -> Answer:
        """Raises NoVerdict for anything but audio."""
        response = await self._within_limits(self._post({**fields, "stream": stream}))
        kind = response.headers.get("content-type", "")
        if response.status_code != 200 or kind.startswith(("text/", "application/json")):
            raise NoVerdict(f"the server refused: {response.status_code}, {_message(response)}")
        return read_answer(response.content, fields["response_format"], response.headers)

    async def leave_stream(self, fields: dict[str, Any], parts: int) -> None:
        """Breaks the connection off once `parts` parts of the answer are there."""
        await self._within_limits(self._read_parts({**fields, "stream": True}, parts))

    async def leave_whole(self, fields: dict[str, Any], seconds: float) -> None:
        """Breaks the connection off after `seconds`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._within_limits(self._post({**fields, "stream": False}))

    async def _post(self, body: dict[str, Any]) -> httpx.Response:
        while (response := await self._client.post(PATH, json=body)).status_code == BUSY:
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
            raise NoVerdict(
                f"no whole answer within {self._timeout:g} s; raise --timeout, or lower --concurrency if the server is busy"
            ) from None
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            url = self._client.base_url
            raise NoVerdict(f"cannot reach {url} ({_words(error)}); is the server running, and --url right?") from None
        except httpx.HTTPError as error:
            raise NoVerdict(f"the server broke its answer off ({_words(error)})") from None


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
