"""`python -m training.demo_voice.corpus`: texts to speech on the codec's grid, with the timing of phones and words.

Each worker writes whole shards, so a run that was stopped goes on where it was. Joined, a split is two files:
`corpus/SPLIT.npy`, int16 `[samples]` at 16 kHz, all utterances one after the other, and `corpus/SPLIT.json`, a list
with text, voice, start and samples of each, its phones `[label, first ms, last ms]` and its words `[first character,
last character, first ms, last ms]`. Every last is exclusive, and a word lasts until the next one begins.
"""

import argparse
import json
import multiprocessing
import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.lib.format import open_memmap
from tqdm import tqdm

from training.demo_voice.files import BUILD, write_json, write_whole
from training.demo_voice.speech import VOICES, Entry, speak
from training.demo_voice.texts import sentences

SHARES = (0.7, 0.15, 0.15)
SHARD = 100
"""Utterances a file."""


def plan(count: int, seed: int = 1) -> list[tuple[str, int]]:
    """`count` texts in an order drawn by lot, each with the number of its voice."""
    rng = random.Random(seed)
    texts = sentences(count, seed)
    rng.shuffle(texts)
    return list(zip(texts, rng.choices(range(len(VOICES)), SHARES, k=count), strict=True))


def _make_shard(job: tuple[Path, list[tuple[str, int]]]) -> None:
    path, texts = job
    made = [utterance for text, voice in texts if (utterance := speak(text, voice)) is not None]
    write_whole(path.with_suffix(".npy"), lambda file: np.save(file, np.concatenate([audio for audio, _ in made])))
    # The list comes last: a shard with a list is finished.
    write_json(path, [entry for _, entry in made])


def make_shards(folder: Path, texts: list[tuple[str, int]], workers: int) -> list[Path]:
    """Speaks all texts in shards below `folder`, and returns the shards' lists in order."""
    folder.mkdir(parents=True, exist_ok=True)
    shards = [texts[first : first + SHARD] for first in range(0, len(texts), SHARD)]
    paths = [folder / f"{index:04}.json" for index in range(len(shards))]
    jobs = [job for job in zip(paths, shards, strict=True) if not job[0].exists()]
    # A process a shard: espeak-ng carries the phase of its oscillators from text to text, and never forgets it.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["training.demo_voice.speech", "training.demo_voice.texts"])
    with context.Pool(workers, maxtasksperchild=1) as pool:
        done = pool.imap_unordered(_make_shard, jobs)
        for _ in tqdm(done, f"speaking {folder.name}", total=len(paths), initial=len(paths) - len(jobs), unit="shard"):
            pass
    return paths


def join(paths: list[Path], target: Path) -> None:
    """The shards in one file of samples and one list, `target`."""
    entries = list(_placed(paths))
    total = entries[-1]["start"] + entries[-1]["samples"]
    unfinished = target.with_suffix(".npy.part")
    samples = open_memmap(unfinished, mode="w+", dtype=np.int16, shape=(total,))
    first = 0
    for path in paths:
        shard = np.load(path.with_suffix(".npy"))
        samples[first : first + len(shard)] = shard
        first += len(shard)
    samples.flush()
    unfinished.rename(target.with_suffix(".npy"))
    write_json(target, entries)


def _placed(paths: list[Path]) -> Iterator[Entry]:
    start = 0
    for path in paths:
        for entry in json.loads(path.read_text(encoding="utf-8")):
            yield {**entry, "start": start}
            start += entry["samples"]


def _planned(path: Path, count: int) -> list[tuple[str, int]]:
    """The plan, kept in a file: making it takes a minute."""
    if not path.exists():
        write_json(path, plan(count))
    return [(text, voice) for text, voice in json.loads(path.read_text(encoding="utf-8"))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=BUILD)
    parser.add_argument("--utterances", type=int, default=16_000, help="of training: 11 hours")
    parser.add_argument("--valid", type=int, default=300, help="more utterances, for validation")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--only-valid", action="store_true", help="what evaluate needs: a minute instead of half an hour"
    )
    options = parser.parse_args()
    folder = options.build / "corpus"
    wanted = ["valid"] if options.only_valid else ["valid", "train"]
    missing = [split for split in wanted if not (folder / f"{split}.json").exists()]
    if not missing:
        print(f"{folder} is complete")
        return
    texts = _planned(folder / "plan.json", options.utterances + options.valid)
    parts = {"valid": texts[: options.valid], "train": texts[options.valid :]}
    for split in missing:
        join(make_shards(folder / "shards" / split, parts[split], options.workers), folder / f"{split}.json")


if __name__ == "__main__":
    main()
