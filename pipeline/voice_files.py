"""The two files of a voice as bytes, both safetensors: its clip with what is known of it, and codes of the clip.

Reading checks digests, so that damage shows as a ValueError and never as other audio.
"""

import hashlib
import json
from dataclasses import asdict
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from pipeline.reference import content_key
from pipeline.voice import Voice

HEAD_BYTES = 32 * 2**10
"""The start of a voice's file that surely holds its header: texts have their limits."""


def pack_voice(voice: Voice, clip: np.ndarray) -> bytes:
    """The file of a voice and its clip, float32 `[channels, samples]`, bit for bit."""
    record = json.dumps(asdict(voice), ensure_ascii=False)
    return save({"clip": np.ascontiguousarray(clip)}, {"voice": record})


def unpack_voice(head: bytes) -> Voice:
    """The voice whose file starts with `head`; ValueError if it is damaged."""
    length = int.from_bytes(head[:8], "little")
    if len(head) < 8 + length:
        raise ValueError("the header is cut short")
    try:
        return Voice(**json.loads(json.loads(head[8 : 8 + length])["__metadata__"]["voice"]))
    except (KeyError, TypeError) as error:
        raise ValueError(f"the header does not describe a voice: {error!r}") from error


def unpack_clip(data: bytes, content: str) -> np.ndarray:
    """The clip in a voice's file, float32 `[channels, samples]`; ValueError unless its content key is `content`."""
    clip = _array(data, "clip", np.float32)
    if content_key(clip) != content:
        raise ValueError("the clip is not the one that was stored")
    return clip


def pack_codes(codes: np.ndarray) -> bytes:
    """The file of a clip's codes, int64 `[frames, n_vq]`."""
    return save({"codes": np.ascontiguousarray(codes)}, {"sha256": _digest(codes)})


def unpack_codes(data: bytes) -> np.ndarray:
    """int64 `[frames, n_vq]`; ValueError if the file is damaged."""
    codes = _array(data, "codes", np.int64)
    length = int.from_bytes(data[:8], "little")
    if _digest(codes) != json.loads(data[8 : 8 + length])["__metadata__"].get("sha256"):
        raise ValueError("the codes are not those that were stored")
    return codes


def _array(data: bytes, name: str, dtype: Any) -> np.ndarray:
    try:
        array = load(data)[name]
    except (SafetensorError, KeyError) as error:
        raise ValueError(f"no whole safetensors file with {name}: {error!r}") from error
    if array.dtype != dtype or array.ndim != 2:
        raise ValueError(f"{name} are {array.dtype} of {array.ndim} dimensions")
    return array


def _digest(codes: np.ndarray) -> str:
    digest = hashlib.sha256(str(codes.shape).encode())
    digest.update(np.ascontiguousarray(codes, dtype="<i8"))
    return digest.hexdigest()
