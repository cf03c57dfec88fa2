"""Files that are whole or not there: an interrupted stage never leaves half of one."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

BUILD = Path("build/demo_voice")


def write_whole(path: Path, write: Callable[[BinaryIO], None]) -> None:
    """Calls `write` with a file that takes the name `path` only once it is complete and on disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def write_json(path: Path, value: Any) -> None:
    write_whole(path, lambda file: file.write(json.dumps(value, ensure_ascii=False).encode()))


@dataclass(frozen=True)
class Split:
    """One split of the corpus: int16 `samples` `[all]`, left on disk until read, and the list of its utterances."""

    samples: NDArray[np.int16]
    entries: list[dict[str, Any]]

    @classmethod
    def load(cls, build: Path, name: str) -> "Split":
        folder = build / "corpus"
        entries = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
        return cls(np.load(folder / f"{name}.npy", mmap_mode="r"), entries)
