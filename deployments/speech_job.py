"""From a checked request body to the jobs that codec and engine work on. Pure, apart from the fresh seed."""

import base64
import math
import unicodedata

import numpy as np

from deployments.http_errors import bad_request
from deployments.limits import HttpLimits
from deployments.schema import SpeechBody
from pipeline.languages import estimated_frames
from pipeline.random_state import fresh_seed, part_seed
from pipeline.request import Prompt, SamplingParams, SpeechJob, SpeechRequest
from pipeline.sentences import split_text

_SLOWEST = 2.5
"""How much slower than the estimate speech may be before it is cut."""
_OVER_WISH = 1.5
_SPARE_FRAMES = 50

_ALL_CODES = 2**31 - 1
_LEAST = 2.0**-24
_URL_SAFE = str.maketrans("-_", "+/")


def to_jobs(
    body: SpeechBody,
    *,
    request_id: str,
    limits: HttpLimits,
    clip: np.ndarray | None = None,
    voice: np.ndarray | None = None,
    first_part: int = 0,
) -> list[SpeechJob]:
    """The parts of the text, in order, in the voice of a prepared clip or of codes int64 `[frames, n_vq]`.

    `first_part` is how many parts were spoken before, of other texts in the same voice.
    """
    seed = fresh_seed() if body.seed is None else body.seed
    texts = split_text(body.spoken_text, limits.part_frames, body.language)
    return [
        SpeechJob(
            SpeechRequest(
                request_id=request_id if index == 0 else f"{request_id}/{index}",
                prompt=_prompt(body, text, index, wish, voice),
                seed=part_seed(seed, index),
                max_frames=_frame_budget(body, text, wish, limits),
                sampling=_sampling(body),
            ),
            clip,
        )
        for index, (text, wish) in enumerate(zip(texts, _wishes(body, texts), strict=True), first_part)
    ]


def _prompt(body: SpeechBody, text: str, part: int, wished_frames: int | None, voice: np.ndarray | None) -> Prompt:
    """Only the first part goes on from a clip; the others are spoken in its voice."""
    continues = body.continues and part == 0
    return Prompt(
        text=_joined(body.ref_text, text) if continues else text,
        instruction=body.instructions,
        tokens=wished_frames,
        language=body.language,
        references=() if voice is None else (voice,),
        continuation=continues,
    )


def _joined(transcript: str, text: str) -> str:
    """The transcript of a clip and the text that goes on from it, as one text."""
    transcript = transcript.strip()
    return transcript + ("" if _is_unspaced(transcript[-1]) else " ") + text


def _is_unspaced(character: str) -> bool:
    """Whether its script puts no space between words: Han, kana, bopomofo, and their punctuation."""
    wide = unicodedata.east_asian_width(character) in ("W", "F", "H")
    return wide and not unicodedata.name(character, "").startswith(("HANGUL", "HALFWIDTH HANGUL"))


def _wishes(body: SpeechBody, texts: list[str]) -> list[int | None]:
    """The wished length in frames, shared out among the parts by their estimates."""
    if body.wished_frames is None:
        return [None] * len(texts)
    estimates = [max(estimated_frames(text, body.language), 1) for text in texts]
    return [max(round(body.wished_frames * estimate / sum(estimates)), 1) for estimate in estimates]


def _frame_budget(body: SpeechBody, text: str, wish: int | None, limits: HttpLimits) -> int:
    """`max_frames`, or enough for slow speech of the text and for the wished length, up to the cap."""
    if body.max_frames is not None:
        return body.max_frames
    ample = max(_SLOWEST * estimated_frames(text, body.language), _OVER_WISH * (wish or 0))
    return min(math.ceil(ample) + _SPARE_FRAMES, limits.max_frames)


def _sampling(body: SpeechBody) -> SamplingParams:
    stop_temperature = body.text_temperature
    if stop_temperature is None:
        stop_temperature = 0.0 if body.temperature == 0 else SamplingParams.stop_temperature
    return SamplingParams(
        temperature=body.temperature,
        top_p=_above_zero(body.top_p),
        top_k=min(body.top_k, _ALL_CODES),
        repetition_penalty=_above_zero(body.repetition_penalty),
        stop_temperature=stop_temperature,
        stop_top_p=_above_zero(body.text_top_p),
        stop_top_k=min(body.text_top_k, _ALL_CODES),
    )


def _above_zero(value: float) -> float:
    """Smaller numbers do the same as the least one, but float32 could make them 0: another meaning."""
    return max(value, _LEAST)


def is_url(ref_audio: str) -> bool:
    """Whether the clip is to be fetched."""
    return ref_audio.lstrip()[:8].lower().startswith(("http://", "https://"))


def clip_bytes(ref_audio: str) -> bytes:
    """The bytes of a data URI (RFC 2397) or of bare base64, standard or URL-safe, padded or not."""
    value = ref_audio.strip()
    if value[:5].lower() == "data:":
        header, _, value = value.partition(",")
        if not header.lower().endswith(";base64"):
            message = "ref_audio as a data URI must hold base64: data:audio/wav;base64,..."
            raise bad_request(message, "ref_audio")
    digits = "".join(value.split()).translate(_URL_SAFE).rstrip("=")
    try:
        return base64.b64decode(digits + "=" * (-len(digits) % 4), validate=True)
    except ValueError:
        raise bad_request("ref_audio must be a data URI or base64", "ref_audio") from None
