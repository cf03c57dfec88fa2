"""`python -m training.demo_voice.assemble`: the exported parts as one checkpoint, `model/tts` and `model/codec`.

The voices that are spoken through references come along as codes of one held-out utterance each.
"""

import argparse
import shutil
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from pipeline.built_in_voices import FILE
from training.demo_voice.files import BUILD, Split, write_whole
from training.demo_voice.utterances import SAMPLES_PER_FRAME

NAMES = {1: "arthur", 2: "felix"}
FRAMES = 40
"""of a reference: 3.2 s"""


def reference(split: Split, codes: np.ndarray, voice: int) -> np.ndarray:
    """uint8 `[FRAMES, n_vq]`: the beginning of the first utterance that is long enough."""
    entry = next(
        entry for entry in split.entries if entry["voice"] == voice and entry["samples"] >= FRAMES * SAMPLES_PER_FRAME
    )
    first = entry["start"] // SAMPLES_PER_FRAME
    return codes[first : first + FRAMES]


def assemble(build: Path) -> Path:
    """Writes the folder `model` and returns it."""
    model = build / "model"
    for part, folder in (("lm", "tts"), ("codec", "codec")):
        shutil.copytree(build / part / "export", model / folder, dirs_exist_ok=True)
    split, codes = Split.load(build, "valid"), np.load(build / "codes" / "valid.npy")
    voices = {name: np.ascontiguousarray(reference(split, codes, voice)) for voice, name in NAMES.items()}
    write_whole(model / "tts" / FILE, lambda file: file.write(save(voices)))
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=BUILD)
    model = assemble(parser.parse_args().build)
    size = sum(path.stat().st_size for path in model.rglob("*.safetensors")) / 1e6
    print(f"{model}: {size:.1f} MB of weights")


if __name__ == "__main__":
    main()
