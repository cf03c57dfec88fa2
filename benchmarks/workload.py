"""The requests of every benchmark: 64 fixed texts, one fixed reference clip, the seeds 42 + i."""

import base64
from typing import Any

from pipeline.config import CodecConfig
from pipeline.reference import decode_audio, prepare_reference
from pipeline.request import Prompt, SpeechJob, SpeechRequest
from pipeline.verify.cases import spoken_like_clip

SEED = 42
_CLIP = spoken_like_clip(pitch=140, seconds=3.0)
_OPENINGS = (
    "The train to the coast",
    "Our neighbour's old piano",
    "A letter from the library",
    "The last bus of the evening",
    "Somebody's red umbrella",
    "The smallest of the four boats",
    "A recipe without any measures",
    "The clock above the market",
)
_ENDINGS = (
    "arrived a little later than we had hoped.",
    "was exactly where it had always been.",
    "made everyone in the room look up and smile.",
    "came back on Thursday, and nobody asked why.",
    "stood in the rain until the shop had closed.",
    "turned out to be worth more than the house.",
    "reminded her of a summer by the sea.",
    "is the reason that we are all here today.",
)
TEXTS = tuple(f"{opening} {ending}" for ending in _ENDINGS for opening in _OPENINGS)


def body(index: int, max_frames: int) -> dict[str, Any]:
    """Request `index` as a client sends it, streamed as 16-bit samples."""
    return {
        "input": TEXTS[index],
        "ref_audio": _CLIP,
        "seed": SEED + index,
        "max_frames": max_frames,
        "response_format": "pcm",
        "stream": True,
    }


def jobs(count: int, max_frames: int, codec: CodecConfig) -> list[SpeechJob]:
    """The same requests, past the door."""
    audio, rate = decode_audio(base64.b64decode(_CLIP.partition(",")[2]))
    clip = prepare_reference(audio, rate, codec)
    requests = [SpeechRequest(f"bench-{i}", Prompt(TEXTS[i]), SEED + i, max_frames) for i in range(count)]
    return [SpeechJob(request, clip) for request in requests]
