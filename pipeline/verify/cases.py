"""The requests of a check: a fixed list of texts, crossed with sampling fields, clips, formats and seeds."""

import base64
import random
from dataclasses import dataclass
from typing import Any

import numpy as np

from pipeline.audio import wav_header
from pipeline.verify.client import Answer

TEXTS = {
    "short english": "Yes, of course.",
    "chinese": "今天天气很好，我们去公园散步吧。",
    "long english": "When the rain had stopped, the whole street came out to look at the sky. Children ran through "
    "the puddles; somebody opened a window, and an old radio played a tune that nobody had heard for years. It went on "
    "like that until the evening, and then, one after the other, the lights went on.",
    "japanese": "明日の会議は午後三時からです。",
    "one word": "No.",
    "numbers": "Order 4711 costs 1,299.50 dollars, due on 3/14/2025 at 9:05.",
    "two languages": "Где ключи? Où est-ce que tu les as mis ?",
    "line breaks": "First, the title.\n\nThen a line...\nand - well - the end?",
}
NAMES = tuple(TEXTS)
SAMPLING = (
    {},
    {"temperature": 0},
    {"temperature": 1.0, "top_k": 50, "top_p": 0.95},
    {"repetition_penalty": 1.2},
    {"top_k": 0, "top_p": 1.0},
    {"temperature": 0.7, "top_p": 0.6, "repetition_penalty": 1.1},
    {"top_k": 5},
)
REFERENCES = ({}, {"ref_mode": "clone"}, {}, {"ref_mode": "continuation", "ref_text": "So far, so good."}, {})
FORMATS = (
    {"response_format": "flac"},
    {"response_format": "wav"},
    {"response_format": "wav", "sample_rate": 24_000, "channels": 1},
)
EDGE_SEEDS = (0, 2**63 - 1, 2**32)
UNSEEDED = 2


@dataclass
class Case:
    """One request, its first answer, how many answers were compared with that, and how many of them differed."""

    name: str
    fields: dict[str, Any]
    first: Answer | None = None
    compared: int = 0
    different: int = 0

    @property
    def verdict(self) -> str:
        if self.different:
            return f"DIFFERS {self.different}/{self.compared}"
        return f"same {self.compared}/{self.compared}" if self.compared else "not compared"


def seeded_cases(count: int, seed: int, common: dict[str, Any]) -> list[Case]:
    """`count` requests with seeds: the edges of their range, then numbers drawn from `seed`. All get `common`.

    Texts, sampling fields, clips and formats are each gone through at their own pace, so they meet in many ways.
    """
    drawn = random.Random(seed)
    cases = []
    for index in range(count):
        name, sampling, format, reference = (some[index % len(some)] for some in (NAMES, SAMPLING, FORMATS, REFERENCES))
        own_seed = EDGE_SEEDS[index] if index < len(EDGE_SEEDS) else drawn.getrandbits(63)
        clip = {"ref_audio": spoken_like_clip(100 + 30 * (index % 4), 1.5 + 0.5 * (index % 3))} if reference else {}
        fields = {"input": TEXTS[name], "seed": own_seed, **format, **reference, **clip, **sampling}
        cases.append(Case(f"{index + 1:02d} {name}", common | fields))
    return cases


def unseeded_cases(after: int, common: dict[str, Any]) -> list[Case]:
    """UNSEEDED requests without a seed, numbered from `after` + 1."""
    return [
        Case(f"{number:02d} {name}", {**common, "input": TEXTS[name], "response_format": "wav"})
        for number, name in enumerate(NAMES[:UNSEEDED], start=after + 1)
    ]


def spoken_like_clip(pitch: float, seconds: float, rate: int = 22_050) -> str:
    """A mono 16-bit WAV as a data URI: harmonics of a gliding `pitch` (Hz) in syllables, four a second."""
    time = np.arange(int(seconds * rate)) / rate
    phase = 2 * np.pi * pitch * (time + 0.02 * np.sin(2 * np.pi * 0.7 * time))
    harmonics = sum(np.sin(number * phase) / number for number in range(1, 9))
    samples = 0.2 * harmonics * np.sin(np.pi * 4 * time) ** 2
    data = (32767 * samples).astype("<i2").tobytes()
    return "data:audio/wav;base64," + base64.b64encode(wav_header(rate, 1, len(data)) + data).decode()
