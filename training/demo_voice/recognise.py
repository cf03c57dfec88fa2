"""Word error rate by a recogniser that knows the sentences: a gate for intelligibility, not a claim about quality.

pocketsphinx brings an English acoustic model and a dictionary; the language model is a bigram of the sentences under
test, so a word has to be told apart from the others that could stand there only.
"""

import math
import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
from pocketsphinx import Decoder, get_model_path

from pipeline.errors import SpeechError
from pipeline.normalise import normalise
from pipeline.numbers_en import cardinal

RATE = 16000
NOISE = 33.0
"""Standard deviation of the noise under the speech, -60 dB: a recogniser made for rooms is lost in digital silence."""
SEARCH = {"beam": 1e-80, "wbeam": 1e-60, "pbeam": 1e-80, "lw": 10.0, "topn": 8}
"""More thorough than its defaults: with those, one word in twenty of faultless speech is taken for another."""
PADDING = 0.3
"""s of that noise before and behind the speech"""
GETTING_USED_TO = 8
"""Recordings heard twice."""
DISCOUNT = 0.5
"""Taken off every bigram's count for the words that were never seen next (absolute discounting; Ney 1994)."""
_BEGIN, _END = "<s>", "</s>"
_LEAST = 1e-6


class Recogniser:
    """Hears 16 kHz speech as words of `sentences`. Raises SpeechError when the dictionary lacks one of them."""

    def __init__(self, sentences: Iterable[str]):
        spoken = [words(sentence) for sentence in sentences]
        with tempfile.NamedTemporaryFile("w", suffix=".arpa") as file:
            file.write(bigram_model(spoken))
            file.flush()
            self._decoder = Decoder(
                hmm=get_model_path("en-us/en-us"),
                dict=get_model_path("en-us/cmudict-en-us.dict"),
                lm=file.name,
                samprate=RATE,
                loglevel="FATAL",
                **SEARCH,
            )
        self._unknown_voice = self._decoder.get_cmn(False)
        unknown = sorted({word for sentence in spoken for word in sentence if self._decoder.lookup_word(word) is None})
        if unknown:
            raise SpeechError(f"the dictionary has no pronunciation of {', '.join(unknown)}")

    def hear_all(self, recordings: Sequence[np.ndarray]) -> list[list[str]]:
        """The words of each recording, int16 `[samples]`, all of one voice.

        A few are heard first for the mean of the voice's features, which every one is then heard against: the result of
        one does not depend on which came before it.
        """
        self._decoder.set_cmn(self._unknown_voice)
        for recording in recordings[:GETTING_USED_TO]:
            self._hear(recording)
        mean = self._decoder.get_cmn(True)
        heard = []
        for recording in recordings:
            self._decoder.set_cmn(mean)
            heard.append(self._hear(recording))
        return heard

    def _hear(self, samples: np.ndarray) -> list[str]:
        padded = np.pad(samples.astype(np.float64), round(PADDING * RATE))
        padded += np.random.default_rng(0).normal(0, NOISE, len(padded))
        self._decoder.start_utt()
        self._decoder.process_raw(padded.clip(-32768, 32767).astype(np.int16).tobytes(), full_utt=True)
        self._decoder.end_utt()
        heard = self._decoder.hyp()
        return heard.hypstr.split() if heard else []


def words(text: str) -> list[str]:
    """The words of a text as they are spoken, in lower case; plain figures become words."""
    plain = re.sub(r"\d+", lambda figures: f" {cardinal(int(figures[0]))} ", normalise(text, "English"))
    return re.findall(r"[a-z']+", plain.lower())


def word_errors(heard: Sequence[str], said: Sequence[str]) -> int:
    """Substitutions, insertions and deletions between two word sequences (Levenshtein 1966)."""
    row = list(range(len(said) + 1))
    for i, word in enumerate(heard, 1):
        above, row[0] = row[0], i
        for j, expected in enumerate(said, 1):
            above, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, above + (word != expected))
    return row[-1]


def bigram_model(sentences: Sequence[Sequence[str]]) -> str:
    """An ARPA file: discounted bigrams that back off to the words' own frequencies."""
    marked = [(_BEGIN, *sentence, _END) for sentence in sentences]
    singles = Counter(word for sentence in marked for word in sentence[1:])
    pairs = Counter(pair for sentence in marked for pair in pairwise(sentence))
    total = sum(singles.values())
    starts, freed, unseen = Counter(), Counter(), {}
    for (first, second), count in pairs.items():
        starts[first] += count
        freed[first] += DISCOUNT
        unseen[first] = unseen.get(first, 1.0) - singles[second] / total
    lines = ["\\data\\", f"ngram 1={len(singles) + 1}", f"ngram 2={len(pairs)}", "", "\\1-grams:"]
    for word in (_BEGIN, *singles):
        weight = freed[word] / starts[word] / max(unseen[word], _LEAST) if starts[word] else 1.0
        probability = math.log10(singles[word] / total) if singles[word] else -99
        lines.append(f"{probability:.5f} {word} {math.log10(weight):.5f}")
    lines += ["", "\\2-grams:"]
    for (first, second), count in pairs.items():
        lines.append(f"{math.log10((count - DISCOUNT) / starts[first]):.5f} {first} {second}")
    return "\n".join([*lines, "", "\\end\\", ""])
