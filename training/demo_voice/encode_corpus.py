"""`python -m training.demo_voice.encode_corpus`: the corpus in codes, by the trained encoder.

`codes/SPLIT.npy`, uint8 `[all frames, codebooks]`: row i is frame i of `corpus/SPLIT.npy`.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm import tqdm

from training.demo_voice.codec_net import Codec
from training.demo_voice.export_codec import trained_codec
from training.demo_voice.files import BUILD, Split, write_whole

UTTERANCES = 32
"""At once. Of a similar length: the shorter ones are padded, which changes nothing before the padding."""


def encode_split(codec: Codec, split: Split) -> NDArray[np.uint8]:
    """Each utterance is encoded from its own beginning, as a reference clip is when the model serves."""
    frame = codec.config.samples_per_frame
    codes = np.zeros((len(split.samples) // frame, codec.config.quantizer.num_codebooks), dtype=np.uint8)
    for entries in _of_similar_length(split):
        longest = max(entry["samples"] for entry in entries)
        audio = np.zeros((len(entries), longest), dtype=np.float32)
        for row, entry in zip(audio, entries, strict=True):
            row[: entry["samples"]] = split.samples[entry["start"] :][: entry["samples"]] / np.float32(32768)
        for entry, found in zip(entries, _encode(codec, torch.from_numpy(audio)), strict=True):
            first, frames = entry["start"] // frame, entry["samples"] // frame
            codes[first : first + frames] = found[:frames]
    return codes


@torch.inference_mode()
def _encode(codec: Codec, audio: Tensor) -> NDArray[np.uint8]:
    return codec.quantizer(codec.encode(audio)).codes.to(torch.uint8).numpy()


def _of_similar_length(split: Split) -> Iterator[list[dict]]:
    entries = sorted(split.entries, key=lambda entry: entry["samples"])
    for first in tqdm(range(0, len(entries), UTTERANCES), "encoding", unit="batch"):
        yield entries[first : first + UTTERANCES]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=BUILD)
    build = parser.parse_args().build
    codec = trained_codec(build)
    for name in ("valid", "train"):
        path = build / "codes" / f"{name}.npy"
        if path.exists():
            print(f"{path} is there")
            continue
        codes = encode_split(codec, Split.load(build, name))
        write_whole(path, lambda file, codes=codes: np.save(file, codes))


if __name__ == "__main__":
    main()
