"""Voices that come with a checkpoint, beside its own: codes of a clip each, which a prompt takes as its reference.

`tts/voices.safetensors`, where there is one, holds a tensor of integers `[frames, n_vq]` for each, by name.
"""

from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from pipeline.config import ModelConfig
from pipeline.errors import CheckpointError, InvalidRequest
from pipeline.voice import checked_name

FILE = "voices.safetensors"


def load_built_in_voices(directory: Path | str, config: ModelConfig) -> dict[str, np.ndarray]:
    """Codes int64 `[frames, n_vq]` by name, in the order of the names. Raises CheckpointError naming what is wrong."""
    path = Path(directory) / FILE
    if not path.exists():
        return {}
    try:
        stored = load_file(path)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    return {_checked(path, name): _codes(path, name, stored[name], config) for name in sorted(stored)}


def _checked(path: Path, name: str) -> str:
    try:
        return checked_name(name)
    except InvalidRequest as error:
        raise CheckpointError(f"{path}: {name!r} is no name for a voice: {error.message}") from None


def _codes(path: Path, name: str, codes: np.ndarray, config: ModelConfig) -> np.ndarray:
    if codes.dtype.kind not in "iu" or codes.ndim != 2 or not len(codes) or codes.shape[1] != config.n_vq:
        raise CheckpointError(
            f"{path}: {name} must be integers [frames, {config.n_vq}], not {codes.dtype} {list(codes.shape)}"
        )
    sizes = np.asarray(config.codebook_sizes)
    if codes.min() < 0 or (codes >= sizes).any():
        raise CheckpointError(f"{path}: {name} holds codes beyond the codebooks, which have {sizes.tolist()} entries")
    return codes.astype(np.int64)
