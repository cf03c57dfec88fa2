"""From utterances to what a training step sees: rows as the server builds them, and what each position must answer."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from pipeline.config import ModelConfig
from pipeline.prompt import audio_rows, prompt_rows
from pipeline.request import Prompt
from pipeline.tokenizer import Tokenizer
from training.demo_voice.tokenizer import TEXT, TEXT_END
from training.demo_voice.utterances import Utterance, Utterances, byte_at, phone_at, phone_of_byte

ENGLISH = 0.5
"""Share of prompts that name the language; a server may leave it out."""
LENGTH_KNOWN = 0.1
"""Share of prompts that name the length in frames."""
OTHER_FIELD = 0.02
"""Share of prompts with an instruction, which this model learns to pass over."""
UNENDED = 0.1
"""Share of texts without their full stop: people forget it."""
REFERENCE_OF_DEFAULT = 0.25
"""Share of the default voice's prompts with a reference, as later parts of a long text have the first one; the other
voices always have one."""
REFERENCE_FRAMES = (16, 64)
SPELLING_DELAY = 2
"""A row of text is asked for the phone of the letter so many rows earlier: how it sounds depends on what follows it."""
UNKNOWN = -1
"""A label that no loss counts."""


@dataclass(frozen=True)
class Example:
    """One utterance: prompt and speech in one matrix."""

    rows: np.ndarray
    """int64 [prompt rows + frames, 1 + n_vq]"""
    frames: int
    """The last that many rows are speech."""
    place: np.ndarray
    """float [frames + 1]: row of the byte spoken in each frame, at the end the row behind the text; or UNKNOWN"""
    phones: np.ndarray
    """int64 [frames, LABELS_PER_FRAME]"""
    text_end: int
    """The row behind the text"""
    spelled: np.ndarray
    """int64 [rows]: the phone of the letter SPELLING_DELAY rows earlier, UNKNOWN where there is none"""
    frame: np.ndarray
    """int64 [frames]: their indices in the corpus"""


@dataclass(frozen=True)
class Batch:
    """Examples side by side, padded behind their ends. A *decision* is a frame to speak, or to stop instead."""

    rows: Tensor
    """int64 [batch, time, 1 + n_vq]"""
    example: Tensor
    """int64 [decisions]"""
    time: Tensor
    """int64 [decisions]: the row whose hidden state decides"""
    stop: Tensor
    """int64 [decisions]: 1 behind the last frame, else 0"""
    codes: Tensor
    """int64 [decisions, n_vq]; zeros where it stops"""
    place: Tensor
    """float32 [decisions]: the row to look at, or UNKNOWN"""
    phones: Tensor
    """int64 [decisions, LABELS_PER_FRAME]; UNKNOWN where it stops"""
    text_end: Tensor
    """float32 [batch]: the row behind the text"""
    spelled: Tensor
    """int64 [batch, time]: the phone that a row of text is asked for, or UNKNOWN"""
    frame: Tensor
    """int64 [decisions]: index of the frame in the corpus; UNKNOWN where it stops"""


class ExampleMaker:
    """Draws prompts around the utterances of one split."""

    def __init__(self, utterances: Utterances, config: ModelConfig, tokenizer: Tokenizer, labels: tuple[str, ...]):
        self.utterances = utterances
        self.config = config
        self._tokenizer = tokenizer
        self._numbers = {label: number for number, label in enumerate(labels)}
        self._text_begin, self._text_end = (tokenizer.encode(piece)[0] for piece in (TEXT, TEXT_END))

    @cached_property
    def lengths(self) -> np.ndarray:
        """int64 [utterances]: rows of each with a plain prompt, and with a reference's where its voice needs one."""
        plain = len(prompt_rows(Prompt(""), self._tokenizer, self.config))
        return np.array(
            [
                plain + len(item.text.encode()) + item.frames + (REFERENCE_FRAMES[1] + 2) * (item.voice > 0)
                for item in self.items
            ]
        )

    @property
    def items(self) -> list[Utterance]:
        return self.utterances.items

    def plain(self, index: int) -> Example:
        """The example of an utterance as a client without wishes would ask for it; a reference where needed."""
        utterance = self.items[index]
        references = (self._reference(index, np.random.default_rng(index)),) if utterance.voice else ()
        return self._example(utterance, Prompt(utterance.text, references=references))

    def drawn(self, index: int, rng: np.random.Generator) -> Example:
        """The example of an utterance under a prompt with wishes at random."""
        utterance = self.items[index]
        # One number for each wish, needed or not: a change of one share leaves the other draws as they are.
        english, length, other, unended, referred = rng.random(5)
        prompt = Prompt(
            _without_full_stop(utterance.text) if unended < UNENDED else utterance.text,
            language="English" if english < ENGLISH else None,
            tokens=utterance.frames if length < LENGTH_KNOWN else None,
            instruction=self.items[rng.integers(len(self.items))].text if other < OTHER_FIELD else None,
        )
        if utterance.voice or referred < REFERENCE_OF_DEFAULT:
            prompt = replace(prompt, references=(self._reference(index, rng),))
        return self._example(utterance, prompt)

    def _reference(self, index: int, rng: np.random.Generator) -> np.ndarray:
        """Codes of some frames of another utterance of the same voice, or of this one where it is the only one."""
        voice = self.utterances.of_voice[self.items[index].voice]
        others = voice[voice != index] if len(voice) > 1 else voice
        codes = self.utterances.codes_of(self.items[rng.choice(others)])
        length = min(len(codes), int(rng.integers(REFERENCE_FRAMES[0], REFERENCE_FRAMES[1] + 1)))
        start = int(rng.integers(len(codes) - length + 1))
        return codes[start : start + length]

    def _example(self, utterance: Utterance, prompt: Prompt) -> Example:
        codes = self.utterances.codes_of(utterance).astype(np.int64)
        head = prompt_rows(prompt, self._tokenizer, self.config)
        text = self._text_rows(prompt.text, head[:, 0])
        return Example(
            rows=np.concatenate((head, audio_rows(self.config.tokens.assistant_slot, codes))),
            frames=utterance.frames,
            place=_places(utterance, text),
            phones=phone_at(utterance, self._numbers),
            text_end=text.stop,
            spelled=self._spelled(utterance, text, len(head) + utterance.frames),
            frame=utterance.frame_indices,
        )

    def _text_rows(self, text: str, ids: np.ndarray) -> slice:
        """Where the text lies among the ids of a prompt; empty unless a row is a byte (lower case may be longer)."""
        begin = int(np.flatnonzero(ids == self._text_begin)[-1]) + 1
        end = int(np.flatnonzero(ids == self._text_end)[-1])
        return slice(begin, end if end - begin == len(text.encode()) else begin)

    def _spelled(self, utterance: Utterance, text: slice, rows: int) -> np.ndarray:
        labels = np.full(rows, UNKNOWN)
        phones = phone_of_byte(utterance, self._numbers)[: text.stop - text.start]
        labels[text.start + SPELLING_DELAY :][: len(phones)] = phones
        return labels


def _places(utterance: Utterance, text: slice) -> np.ndarray:
    if text.start == text.stop:
        return np.full(utterance.frames + 1, UNKNOWN)
    return np.append(np.minimum(text.start + byte_at(utterance), text.stop), text.stop)


def collate(examples: list[Example], pad_row: np.ndarray) -> Batch:
    """`pad_row`: int64 [1 + n_vq], what fills the rows behind a shorter example."""
    time = max(len(example.rows) for example in examples)
    rows = np.tile(pad_row, (len(examples), time, 1))
    spelled = np.full((len(examples), time), UNKNOWN)
    for index, example in enumerate(examples):
        rows[index, : len(example.rows)] = example.rows
        spelled[index, : len(example.rows)] = example.spelled
    stops = np.zeros((1, len(pad_row) - 1), dtype=np.int64)
    columns = [
        (
            np.full(example.frames + 1, index),
            np.arange(len(example.rows) - example.frames - 1, len(example.rows)),
            np.arange(example.frames + 1) == example.frames,
            np.concatenate((example.rows[len(example.rows) - example.frames :, 1:], stops)),
            example.place,
            np.concatenate((example.phones, np.full((1, example.phones.shape[1]), UNKNOWN))),
            np.append(example.frame, UNKNOWN),
        )
        for index, example in enumerate(examples)
    ]
    example, times, stop, codes, place, phones, frame = map(np.concatenate, zip(*columns, strict=True))
    return Batch(
        rows=torch.from_numpy(rows),
        example=torch.from_numpy(example),
        time=torch.from_numpy(times),
        stop=torch.from_numpy(stop.astype(np.int64)),
        codes=torch.from_numpy(codes),
        place=torch.from_numpy(place.astype(np.float32)),
        phones=torch.from_numpy(phones),
        text_end=torch.tensor([float(example.text_end) for example in examples]),
        spelled=torch.from_numpy(spelled),
        frame=torch.from_numpy(frame),
    )


def _without_full_stop(text: str) -> str:
    return text[:-1] if text.endswith(".") else text
