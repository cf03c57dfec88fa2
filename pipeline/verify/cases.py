"""The requests of a check: a fixed list of texts, crossed with sampling fields, clips, formats and seeds."""

import base64
import io
import random
import wave
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pipeline.verify.answer import Answer

TEXTS = {
    "short english": "Yes, of course.",
    "chinese": "今天天气很好，我们去公园散步吧。",
    "long english": "When the rain had stopped, the whole street came out to look at the sky. Children ran through "
    "the puddles; somebody opened a window, and an old radio played a tune that nobody had heard for years. It went on "
    "like that until the evening, and then, one after the other, the lights went on.",
    "german": "Der Zug nach München fährt heute ausnahmsweise von Gleis sieben ab.",
    "japanese": "明日の会議は午後三時からです。",
    "one word": "No.",
    "numbers": "Order 4711 costs 1,299.50 dollars, due on 3/14/2025 at 9:05.",
    "french": "Où est-ce que tu as mis les clés de la voiture ? Je les cherche depuis ce matin !",
    "long chinese": "从前有一座山，山上有一座庙。庙里住着一位老和尚，他每天早晨都要走很远的路去挑水。"
    "有一天，村里来了一个年轻人，他说愿意帮忙，但是要先听一个故事。老和尚笑了笑，坐在石头上，慢慢地讲了起来。",
    "korean": "내일 아침 일찍 전화해 주세요.",
    "two languages": "The word 你好 means hello, and こんにちは does too.",
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
UNSEEDED = 2


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


def seeded_cases(count: int, seed: int, common: dict[str, Any]) -> list[Case]:
    """`count` requests with seeds: the edges of their range, then numbers drawn from `seed`. All get `common`.

    Texts, sampling fields, clips and formats are each gone through at their own pace, so they meet in many ways.
    """
    drawn = random.Random(seed)
    cases = []
    for index in range(count):
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
    return [
        Case(after + number, text, {**common, "input": TEXTS[text], "response_format": "wav"})
        for number, text in zip(range(1, 1 + UNSEEDED), TEXTS, strict=False)
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
