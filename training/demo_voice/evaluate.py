"""`python -m training.demo_voice.evaluate`: how well the finished voice is understood, and whether it stops.

Writes `report.md` and `report.json`. Word error rates are a recogniser's that knows the sentences: compare columns.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from tqdm import tqdm

from pipeline.config import ModelConfig
from pipeline.normalise import normalise
from pipeline.sentences import split_text
from training.demo_voice.files import BUILD, Split, write_json, write_whole
from training.demo_voice.recognise import RATE, Recogniser, word_errors, words
from training.demo_voice.sentences import DEMO, HARVARD, LONG, NATURAL
from training.demo_voice.speech import speak
from training.demo_voice.voice import GREEDY, RoundTrip, Spoken, Voice

SETS = {"demo": DEMO, "natural": NATURAL, "harvard": HARVARD}
"""Each is heard by a recogniser that knows its sentences, and no others."""
PART_FRAMES = 120
"""Estimated frames of one part of a long text."""
STOP_SENTENCES = 200
SHORTEST = 0.6
"""An utterance of less than this share of the source's length was cut off."""
SPEED_SENTENCES = NATURAL[:10]

Say = Callable[[Sequence[str]], list[np.ndarray]]


class Report:
    """Everything measured, as one dictionary; `markdown` is the same for people."""

    def __init__(self, model: Path, build: Path):
        self._model, self._build = model, build
        self._recognisers = {texts: Recogniser(texts) for texts in (*SETS.values(), LONG)}
        self.measured: dict[str, dict] = {}

    def fill(self) -> None:
        n_vq = ModelConfig.load(self._model / "tts").n_vq
        round_trip = RoundTrip(self._model / "codec", n_vq)
        clip = Split.load(self._build, "valid")
        with Voice(self._model) as voice:
            self.measured["speed"] = _speed(voice)
            ways: dict[str, Say] = {
                "source": _source,
                "codec": lambda texts: list(map(round_trip, _source(texts))),
                "greedy": lambda texts: _samples(voice.say_all(texts, GREEDY)),
                "default": lambda texts: _samples(voice.say_all(texts)),
            }
            for name, say in tqdm(ways.items(), "word error rates"):
                self.measured[name] = {of: self._word_error_rate(texts, say(texts)) for of, texts in SETS.items()}
                self.measured[name]["long"] = self._word_error_rate(LONG, _in_parts(say))
            for number in _cloned(clip):
                recording = _clip_of(clip, number)
                spoken = _samples(voice.say_all(NATURAL, None, recording))
                self.measured[f"voice {number}"] = {"natural": self._word_error_rate(NATURAL, spoken)}
            for name, sampling in tqdm({"greedy": GREEDY, "default": None}.items(), "ends"):
                self.measured[f"ends, {name}"] = _ends(clip, lambda texts, how=sampling: voice.say_all(texts, how))

    def _word_error_rate(self, texts: tuple[str, ...], spoken: Sequence[np.ndarray]) -> float:
        said = [words(text) for text in texts]
        errors = sum(map(word_errors, self._recognisers[texts].hear_all(spoken), said))
        return round(errors / sum(map(len, said)), 4)

    @property
    def markdown(self) -> str:
        lines = ["# The demo voice, measured", "", "| word error rate | " + " | ".join((*SETS, "long")) + " |"]
        lines.append("|---" * (len(SETS) + 2) + "|")
        for name, rates in self.measured.items():
            if "natural" in rates:
                cells = [f"{rates[of]:.1%}" if of in rates else "-" for of in (*SETS, "long")]
                lines.append(f"| {name} | " + " | ".join(cells) + " |")
        for name in ("ends, greedy", "ends, default", "speed"):
            lines += ["", f"{name}: " + ", ".join(f"{key} {value}" for key, value in self.measured[name].items())]
        return "\n".join(lines) + "\n"


def _source(texts: Sequence[str]) -> list[np.ndarray]:
    """The speech that the voice is to learn, as the corpus has it."""
    return [speak(normalise(text, "English"), 0)[0] for text in texts]


def _samples(spoken: Sequence[Spoken]) -> list[np.ndarray]:
    return [each.samples for each in spoken]


def _in_parts(say: Say) -> list[np.ndarray]:
    """Each long text, its parts spoken one after the other."""
    return [np.concatenate(say(split_text(text, PART_FRAMES, "English"))) for text in LONG]


def _cloned(split: Split) -> list[int]:
    return sorted({entry["voice"] for entry in split.entries} - {0})


def _clip_of(split: Split, voice: int) -> np.ndarray:
    """int16 `[samples]`: the first recording of a voice that lasts three seconds or more."""
    entry = next(each for each in split.entries if each["voice"] == voice and each["samples"] >= 3 * RATE)
    return np.array(split.samples[entry["start"] : entry["start"] + entry["samples"]])


def _ends(split: Split, say_all: Callable[[Sequence[str]], list[Spoken]]) -> dict[str, float]:
    """Of sentences that were never trained: how many never ended, how many ended early, and how long they were."""
    entries = [entry for entry in split.entries if entry["voice"] == 0][:STOP_SENTENCES]
    spoken = say_all([entry["text"] for entry in entries])
    lengths = np.array([len(each.samples) for each in spoken]) / [entry["samples"] for entry in entries]
    ended = np.array([each.finish == "stop" for each in spoken])
    return {
        "sentences": len(entries),
        "never ended": int((~ended).sum()),
        "cut off": int((ended & (lengths < SHORTEST)).sum()),
        "mean length": round(float(lengths.mean()), 3),
        "shortest": round(float(lengths.min()), 3),
        "longest": round(float(lengths.max()), 3),
    }


def _speed(voice: Voice) -> dict[str, float]:
    """Seconds of work for a second of speech, one request at a time on one core."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    voice.say(SPEED_SENTENCES[0], GREEDY)
    began = time.perf_counter()
    samples = sum(len(voice.say(text, GREEDY).samples) for text in SPEED_SENTENCES)
    seconds = time.perf_counter() - began
    torch.set_num_threads(threads)
    return {"real-time factor": round(seconds * RATE / samples, 3)}


def main() -> None:
    parser = argparse.ArgumentParser(prog="training.demo_voice.evaluate", description=__doc__.split(":", 1)[1])
    parser.add_argument("--build", type=Path, default=BUILD, help="folder of the stages; default %(default)s")
    parser.add_argument("--model", type=Path, help="folder with tts/ and codec/; default BUILD/model")
    options = parser.parse_args()
    report = Report(options.model or options.build / "model", options.build)
    report.fill()
    write_json(options.build / "report.json", report.measured)
    write_whole(options.build / "report.md", lambda file: file.write(report.markdown.encode()))
    print(report.markdown)


if __name__ == "__main__":
    main()
