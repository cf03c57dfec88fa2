"""Speech and its timing from libespeak-ng, through the C API of `espeak/speak_lib.h`.

The library keeps one global state, so a process makes one `Espeak` and says one text at a time. Part of that state is
the phase of its oscillators: what is said depends, by a few samples, on all that the process has said before.
"""

import ctypes
from dataclasses import dataclass

import espeakng_loader
import numpy as np
from numpy.typing import NDArray

from pipeline.errors import SpeechError

_SYNCHRONOUS, _CHARS_UTF8, _PHONEME_EVENTS, _CURRENT_CHARACTER = 2, 1, 1, 1
_RATE, _PITCH, _RANGE = 1, 3, 4
_SEED = 1
_END_OF_LIST, _WORD, _PHONEME = 0, 1, 7


@dataclass(frozen=True)
class EspeakVoice:
    """`name` is a language with an optional `+variant`; rate in words a minute, pitch and range 0 to 99."""

    name: str
    rate: int = 160
    pitch: int = 40
    range: int = 40


@dataclass(frozen=True)
class Phone:
    """One phoneme in espeak's notation, from `start` to `end` in seconds."""

    label: str
    start: float
    end: float

    @property
    def is_pause(self) -> bool:
        return self.label.startswith("_") or not self.label


@dataclass(frozen=True)
class Word:
    """Characters `first` to `last` - 1 of the text, from `start` in seconds."""

    first: int
    last: int
    start: float


@dataclass(frozen=True)
class Utterance:
    """float32 `audio` `[samples]` at `rate` Hz, and what was said when. Phones follow each other without gaps."""

    audio: NDArray[np.float32]
    rate: int
    phones: list[Phone]
    words: list[Word]


class _EventId(ctypes.Union):
    _fields_ = (("number", ctypes.c_int), ("name", ctypes.c_char_p), ("string", ctypes.c_char * 8))


class _Event(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", _EventId),
    )


_Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event))


class Espeak:
    """The synthesiser; raises SpeechError when the library cannot start or refuses a voice."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(espeakng_loader.get_library_path())
        data = espeakng_loader.get_data_path().encode()
        self.rate = self._library.espeak_Initialize(_SYNCHRONOUS, 0, data, _PHONEME_EVENTS)
        if self.rate <= 0:
            raise SpeechError(f"libespeak-ng did not start with its data in {data.decode()}")
        # It starts from the clock.
        self._library.espeak_ng_SetRandSeed(ctypes.c_long(_SEED))
        self._callback = _Callback(self._receive)
        self._library.espeak_SetSynthCallback(self._callback)
        self._audio: list[NDArray[np.int16]] = []
        self._phones: list[tuple[str, int]] = []
        self._words: list[tuple[int, int, int]] = []

    def say(self, text: str, voice: EspeakVoice) -> Utterance:
        """The whole text in one voice, from silence to silence."""
        self._audio, self._phones, self._words = [], [], []
        if self._library.espeak_SetVoiceByName(voice.name.encode()) != 0:
            raise SpeechError(f"espeak-ng has no voice {voice.name!r}")
        for parameter, value in ((_RATE, voice.rate), (_PITCH, voice.pitch), (_RANGE, voice.range)):
            self._library.espeak_SetParameter(parameter, value, 0)
        data = text.encode()
        self._library.espeak_Synth(data, len(data) + 1, 0, _CURRENT_CHARACTER, 0, _CHARS_UTF8, None, None)
        self._library.espeak_Synchronize()
        audio = np.concatenate([np.zeros(0, np.int16), *self._audio])
        return Utterance(
            audio=audio.astype(np.float32) / np.float32(32768),
            rate=self.rate,
            phones=_phones(self._phones, len(audio), self.rate),
            words=[Word(first, first + length, sample / self.rate) for first, length, sample in self._words],
        )

    def _receive(self, samples: "ctypes._Pointer", count: int, events: "ctypes._Pointer") -> int:
        if samples and count > 0:
            self._audio.append(np.ctypeslib.as_array(samples, (count,)).copy())
        for event in iter_events(events):
            if event.type == _PHONEME:
                self._phones.append((event.id.string.decode(), event.sample))
            elif event.type == _WORD:
                self._words.append((event.text_position - 1, event.length, event.sample))
        return 0


def iter_events(events: "ctypes._Pointer"):
    """The events of one callback, up to the mark that ends the list."""
    index = 0
    while events[index].type != _END_OF_LIST:
        yield events[index]
        index += 1


def _phones(marks: list[tuple[str, int]], samples: int, rate: int) -> list[Phone]:
    """Each phone lasts until the next begins; the ones of no length are dropped."""
    ends = [sample for _, sample in marks[1:]] + [samples]
    return [
        Phone(label, sample / rate, end / rate)
        for (label, sample), end in zip(marks, ends, strict=True)
        if end > sample
    ]
