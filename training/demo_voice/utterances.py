"""The corpus as the language model reads it: texts, codes, and when each word and phone is spoken."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np

from training.demo_voice.codec_config import SAMPLES_PER_FRAME, SAMPLING_RATE
from training.demo_voice.files import Split

FRAME_MS = SAMPLES_PER_FRAME * 1000 // SAMPLING_RATE
LABELS_PER_FRAME = 3
SILENCE = ""
"""The phone label of where nothing is spoken."""


@dataclass(frozen=True)
class Utterance:
    text: str
    voice: int
    """0 speaks without a reference, the others through one."""
    spans: tuple[tuple[int, int], ...]
    """`(first, end)` of its frames in the corpus; more than one where utterances are joined"""
    phones: list
    """`[label, first ms, last ms]` in order, without pauses; ends exclusive"""
    words: list
    """`[first character, last character, first ms, last ms]` in order, pauses behind them left out; ends exclusive"""

    @property
    def frames(self) -> int:
        return sum(end - first for first, end in self.spans)

    @property
    def frame_indices(self) -> np.ndarray:
        """int64 `[frames]`: where its frames are in the corpus."""
        return np.concatenate([np.arange(first, end) for first, end in self.spans])

    def joined(self, other: Self) -> Self:
        """Both as one utterance of two sentences, in the voice of this one."""
        letters, later = len(self.text) + 1, self.frames * FRAME_MS
        moves = (letters, letters, later, later)
        words = [[value + move for value, move in zip(word, moves, strict=True)] for word in other.words]
        return Utterance(
            text=f"{self.text} {other.text}",
            voice=self.voice,
            spans=self.spans + other.spans,
            phones=self.phones + [[label, start + later, stop + later] for label, start, stop in other.phones],
            words=self.words + words,
        )

    @classmethod
    def from_entry(cls, entry: dict) -> Self:
        """From an entry of the corpus, whose words last until the next one begins."""
        phones = [phone for phone in entry["phones"] if not phone[0].startswith("_")]
        first = entry["start"] // SAMPLES_PER_FRAME
        return cls(
            text=entry["text"],
            voice=entry["voice"],
            spans=((first, first + entry["samples"] // SAMPLES_PER_FRAME),),
            phones=phones,
            words=[_spoken(word, phones) for word in entry["words"]],
        )


class Utterances:
    """One split: `corpus/SPLIT.json` with `codes/SPLIT.npy`, uint8 `[all frames, n_vq]`.

    `pairs`: so many more utterances, relative to those of the split, are two of one voice joined at random. The parts
    of a long text hold several sentences and are longer than most of the corpus.
    """

    def __init__(self, directory: Path, split: str, pairs: float = 0.0):
        self.items = [Utterance.from_entry(entry) for entry in Split.load(directory, split).entries]
        self.items += _pairs(self.items, round(pairs * len(self.items)))
        self.codes = np.load(directory / "codes" / f"{split}.npy", mmap_mode="r")

    def __len__(self) -> int:
        return len(self.items)

    def codes_of(self, utterance: Utterance) -> np.ndarray:
        """uint8 `[frames, n_vq]`"""
        return np.concatenate([self.codes[first:end] for first, end in utterance.spans])

    @cached_property
    def of_voice(self) -> dict[int, np.ndarray]:
        """Indices of the utterances of each voice."""
        voices = np.array([item.voice for item in self.items])
        return {int(voice): np.flatnonzero(voices == voice) for voice in np.unique(voices)}

    @cached_property
    def phone_labels(self) -> tuple[str, ...]:
        """Every label of the split, silence first."""
        return (SILENCE, *sorted({phone[0] for item in self.items for phone in item.phones} - {SILENCE}))


def phone_at(utterance: Utterance, numbers: dict[str, int]) -> np.ndarray:
    """int64 `[frames, LABELS_PER_FRAME]`: the number of the phone in the middle of each third of a frame.

    A label without a number, and no phone at all, count as silence.
    """
    times = _middles(utterance.frames * LABELS_PER_FRAME, FRAME_MS / LABELS_PER_FRAME)
    labels = np.full(len(times), numbers[SILENCE])
    for label, first, last in utterance.phones:
        labels[(times >= first) & (times < last)] = numbers.get(label, numbers[SILENCE])
    return labels.reshape(utterance.frames, LABELS_PER_FRAME)


def phone_of_byte(utterance: Utterance, numbers: dict[str, int]) -> np.ndarray:
    """int64 `[bytes of the text]`: the number of the phone that is spoken when a byte's turn is; silence between words.

    A rough label, as it takes the bytes of a word to be equally long.
    """
    offsets = _byte_offsets(utterance.text)
    starts = np.array([first for _, first, _ in utterance.phones])
    labels = np.full(offsets[-1], numbers[SILENCE])
    for begin, end, first, last in utterance.words:
        low, high = offsets[begin], offsets[end]
        times = first + _middles(high - low, (last - first) / (high - low))
        at = np.searchsorted(starts, times, side="right") - 1
        labels[low:high] = [numbers.get(utterance.phones[index][0], numbers[SILENCE]) for index in at]
    return labels


def byte_at(utterance: Utterance) -> np.ndarray:
    """float64 `[frames]`: which byte of the text is being spoken in the middle of each frame.

    Inside a word it moves evenly. Before the first word it is the first byte; in a pause and behind the last word, the
    byte that follows the word, so at the end it is the number of bytes.
    """
    times = _middles(utterance.frames, FRAME_MS)
    offsets = _byte_offsets(utterance.text)
    places = np.zeros(len(times))
    ends = [word[2] for word in utterance.words[1:]] + [np.inf]
    for (begin, end, first, last), until in zip(utterance.words, ends, strict=True):
        low, high = offsets[begin], offsets[end]
        spoken = (times >= first) & (times < last)
        places[spoken] = low + (times[spoken] - first) / max(last - first, 1) * (high - low) - 0.5
        places[(times >= last) & (times < until)] = high
    if utterance.words:
        places[times >= utterance.words[-1][3]] = offsets[-1]
    return places.clip(min=0)


def _pairs(items: list[Utterance], count: int) -> list[Utterance]:
    rng = np.random.default_rng(len(items))
    made: list[Utterance] = []
    while len(made) < count:
        first, second = (items[index] for index in rng.integers(len(items), size=2))
        if first.voice == second.voice:
            made.append(first.joined(second))
    return made


def _spoken(word: list, phones: list) -> list:
    begin, end, first, last = word
    return [begin, end, first, max((stop for _, start, stop in phones if first <= start < last), default=last)]


def _byte_offsets(text: str) -> np.ndarray:
    """int64 `[characters + 1]`: where each character begins in the text's bytes, and the end."""
    return np.cumsum([0, *(len(character.encode()) for character in text)])


def _middles(count: int, step: float) -> np.ndarray:
    return (np.arange(count) + 0.5) * step
