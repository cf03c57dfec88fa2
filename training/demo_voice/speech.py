"""One utterance of the corpus: what espeak-ng says, resynthesised on the codec's grid, with its timing."""

from functools import cache
from typing import Any

import numpy as np
import soxr
from numpy.typing import NDArray

from training.demo_voice.analysis import RATE, analyse
from training.demo_voice.espeak import Espeak, EspeakVoice, Phone, Utterance
from training.demo_voice.vocoder import SLOT_SECONDS, Grid, grid_of, synthesise

VOICES = (
    (EspeakVoice("en-us+f5"), 1.0),
    (EspeakVoice("en-us"), 1.0),
    (EspeakVoice("en-us+m3", pitch=70), 1.0),
)
"""The default voice and two for cloning, each with the gain that brings its speech to about -21 dB. Of espeak's voices
the first is the one that recognisers understand best."""
LONGEST_SECONDS = 14.0

Entry = dict[str, Any]


def speak(text: str, voice: int) -> tuple[NDArray[np.int16], Entry] | None:
    """One utterance and its entry (without `start`); None when nothing is to be heard, or it takes too long."""
    espeak_voice, gain = VOICES[voice]
    source = _espeak().say(text, espeak_voice)
    phones = _spoken(source.phones)
    if not phones or phones[-1].end > LONGEST_SECONDS:
        return None
    grid = grid_of([phone.start for phone in phones] + [phones[-1].end])
    audio = soxr.resample(source.audio.astype(np.float64), source.rate, RATE, quality="HQ")
    samples = np.clip(np.rint(synthesise(analyse(audio), grid) * gain * 32768), -32768, 32767).astype(np.int16)
    return samples, {"text": text, "voice": voice, "samples": len(samples), **_timing(source, phones, grid)}


def _spoken(phones: list[Phone]) -> list[Phone]:
    """Without the pauses at both ends."""
    heard = [index for index, phone in enumerate(phones) if not phone.is_pause]
    return phones[heard[0] : heard[-1] + 1] if heard else []


def _timing(source: Utterance, phones: list[Phone], grid: Grid) -> Entry:
    edges = np.rint(grid.slots * SLOT_SECONDS * 1000).astype(int).tolist()
    spans = zip(phones, edges, edges[1:], strict=False)
    starts = [word.start for word in source.words] + [phones[-1].end]
    moved = np.rint(np.interp(starts, grid.seconds, grid.slots) * SLOT_SECONDS * 1000).astype(int).tolist()
    return {
        "phones": [[phone.label, first, last] for phone, first, last in spans],
        "words": [
            [word.first, word.last, first, last]
            for word, first, last in zip(source.words, moved, moved[1:], strict=False)
        ],
    }


@cache
def _espeak() -> Espeak:
    return Espeak()
