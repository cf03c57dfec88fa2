"""From a checked request body to the job that codec and engine work on. Pure, apart from the fresh seed."""

import base64
import math
import unicodedata

from deployments.http_errors import bad_request
from deployments.limits import HttpLimits
from deployments.schema import SpeechBody
from deployments.served import Served
from pipeline.languages import estimated_frames
from pipeline.random_state import fresh_seed
from pipeline.reference import ClipCache
from pipeline.request import Prompt, SamplingParams, SpeechJob, SpeechRequest

_SLOWEST = 2.5
"""How much slower than the estimate speech may be before it is cut."""
_OVER_WISH = 1.5
_SPARE_FRAMES = 50

_ALL_CODES = 2**31 - 1
_LEAST = 2.0**-24
_URL_SAFE = str.maketrans("-_", "+/")


def to_job(body: SpeechBody, *, request_id: str, served: Served, limits: HttpLimits, clips: ClipCache) -> SpeechJob:
    """Decodes the reference clip, so it may take a while: run it off the event loop.

    Raises ApiError 404 for a model or voice that is not served, and ApiError 400 or InvalidRequest for a clip
    that cannot be used.
    """
    served.check_model(body.model)
    served.voice(body.voice)
    request = SpeechRequest(
        request_id=request_id,
        prompt=_prompt(body),
        seed=fresh_seed() if body.seed is None else body.seed,
        max_frames=_frame_budget(body, limits),
        sampling=_sampling(body),
    )
    return SpeechJob(request, None if body.ref_audio is None else clips.prepared(_clip_bytes(body.ref_audio)))


def _prompt(body: SpeechBody) -> Prompt:
    return Prompt(
        text=_joined(body.ref_text, body.text) if body.continues else body.text,
        instruction=body.instructions,
        tokens=body.wished_frames,
        language=body.language,
        continuation=body.continues,
    )


def _joined(transcript: str, text: str) -> str:
    """The transcript of a clip and the text that goes on from it, as one text."""
    transcript = transcript.strip()
    return transcript + ("" if _is_unspaced(transcript[-1]) else " ") + text


def _is_unspaced(character: str) -> bool:
    """Whether its script puts no space between words: Han, kana, bopomofo, and their punctuation."""
    wide = unicodedata.east_asian_width(character) in ("W", "F", "H")
    return wide and not unicodedata.name(character, "").startswith(("HANGUL", "HALFWIDTH HANGUL"))


def _frame_budget(body: SpeechBody, limits: HttpLimits) -> int:
    """`max_frames`, or enough for slow speech of the text and for the wished length, up to the cap."""
    if body.max_frames is not None:
        return body.max_frames
    by_text = _SLOWEST * estimated_frames(body.text, body.language)
    by_wish = _OVER_WISH * (body.wished_frames or 0)
    return min(math.ceil(max(by_text, by_wish)) + _SPARE_FRAMES, limits.max_frames)


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


def _clip_bytes(ref_audio: str) -> bytes:
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
