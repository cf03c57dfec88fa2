"""The body of POST /v1/audio/speech: its fields, what each accepts, and the errors of those that do not."""

import re
import unicodedata
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

from deployments.http_errors import ApiError, bad_request, shown
from deployments.json_body import parse_object
from deployments.limits import HttpLimits
from deployments.served import DEFAULT_VOICE
from pipeline.audio import FORMATS, MAX_RATE, MIN_RATE
from pipeline.errors import InvalidRequest
from pipeline.languages import LANGUAGES, language_name
from pipeline.request import MAX_SEED, SamplingParams

OPENAI_ONLY_FIELDS = frozenset({"metadata", "safety_identifier", "service_tier", "store", "user"})
"""Fields of OpenAI's API that have no meaning here; they are ignored, all other unknown ones refused."""

_DEFAULTS = SamplingParams()
_LANGUAGE_NAMES = ", ".join(f"{name} ({code})" for name, code in LANGUAGES.items())

_TOKEN_PREFIX = re.compile(r"\s*\$\{token:(?:([0-9]{1,9})\})?")
_EMOJI = re.compile(r".\ufe0f\u20e3?|[0-9#*]\u20e3", re.DOTALL)
"""Letters and digits that are drawn as emoji; the other emoji are neither."""
_PAUSE = re.compile(r"\[pause [^\]]*\]")
_BLANK_LETTERS = frozenset("\u115f\u1160\u3164\uffa0")
"""Hangul fillers: letters by category, nothing to the eye or ear."""


@dataclass(frozen=True)
class Accepts:
    """What a field takes, as the end of "FIELD must be ..."; `%(name)s` stands for a limit of HttpLimits."""

    phrase: str


class _Refused(ValueError):
    """A message of its own, for a check that knows more than the range of one field."""

    def __init__(self, message: str, param: str):
        super().__init__(message)
        self.param = param


def _limits(info: ValidationInfo) -> HttpLimits:
    return info.context or HttpLimits()


def _text(value: str, info: ValidationInfo) -> str:
    most = _limits(info).max_input_chars
    if len(value) > most:
        message = f"{info.field_name} has {len(value)} characters, more than the {most} accepted"
        raise _Refused(message, info.field_name)
    if "\0" in value:
        raise _Refused(f"{info.field_name} must not hold NUL characters", info.field_name)
    return value


def _blank_is_unset(value: str) -> str | None:
    return value if value.strip() else None


def _speakable(value: str) -> str:
    spoken = _PAUSE.sub("", _EMOJI.sub("", _TOKEN_PREFIX.sub("", value, count=1)))
    if not any(_is_letter_or_digit(character) for character in spoken):
        raise ValueError
    return value


def _is_letter_or_digit(character: str) -> bool:
    return unicodedata.category(character)[0] in "LN" and character not in _BLANK_LETTERS


def _voice_name(value: Any) -> Any:
    return value["id"] if isinstance(value, dict) and value.keys() == {"id"} else value


def _format_name(value: Any) -> Any:
    return value.strip().lower() if isinstance(value, str) else value


def _known_format(value: str) -> str:
    if value not in FORMATS:
        raise ValueError
    return value


def _known_language(value: str) -> str | None:
    try:
        return language_name(value)
    except InvalidRequest:
        raise ValueError from None


def _no_url(value: str) -> str:
    if value.lstrip()[:8].lower().startswith(("http://", "https://")):
        raise _Refused(
            "ref_audio URLs are not allowed on this server; send the audio as a data URI or base64", "ref_audio"
        )
    return value


def _frames(value: int, info: ValidationInfo) -> int:
    if value > _limits(info).max_frames:
        raise ValueError
    return value


# A null is taken out before its field is looked at, so the checks of these types never see one.
Text = Annotated[
    str | None,
    AfterValidator(_text),
    AfterValidator(_blank_is_unset),
    Accepts("text of up to %(max_input_chars)d characters"),
]
Frames = Annotated[
    int | None,
    Field(ge=1),
    AfterValidator(_frames),
    Accepts("an integer from 1 to %(max_frames)d, in frames of 80 ms"),
]
Temperature = Annotated[
    float | None, Field(ge=0, le=2, allow_inf_nan=False), Accepts("a number from 0 (greedy) to 2")
]
TopP = Annotated[
    float | None, Field(gt=0, le=1, allow_inf_nan=False), Accepts("a number above 0, up to 1 (which is off)")
]
TopK = Annotated[int | None, Field(ge=-1), Accepts("an integer: 1 or more, or 0 or -1 for off")]


class SpeechBody(BaseModel):
    """What is to be spoken, and how. Every field but `input` may be left out or null, which means its default.

    Validate with a context of HttpLimits; without one, its defaults hold.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    input: Annotated[
        str,
        AfterValidator(_text),
        AfterValidator(_speakable),
        Accepts("text of up to %(max_input_chars)d characters with at least one letter or digit"),
    ] = Field(
        description="The text to speak, with at least one letter or digit of any script. `[pause 1.5s]` makes a "
        "pause. A prefix `${token:N}` means the same as `duration_tokens` N.",
        examples=["Hello there, it is good to hear from you."],
    )
    model: Annotated[str | None, Accepts("the name of a model")] = Field(
        None, description="The served model's name or an alias of it; see `/v1/models`.", examples=["tts-1"]
    )
    voice: Annotated[
        str,
        BeforeValidator(_voice_name),
        WithJsonSchema(
            {
                "anyOf": [
                    {"type": "string"},
                    {
                        "type": "object",
                        "properties": {"id": {"type": "string"}},
                        "required": ["id"],
                        "additionalProperties": False,
                    },
                    {"type": "null"},
                ],
                "default": DEFAULT_VOICE,
            }
        ),
        Accepts('the name of a voice, or {"id": name}'),
    ] = Field(
        DEFAULT_VOICE,
        description="A voice's name, alone or as the `id` of an object. The names of OpenAI's voices stand for "
        "`default`. With `ref_audio` the clip's voice is used instead.",
        examples=[DEFAULT_VOICE, "alloy"],
    )
    instructions: Text = Field(
        None, description="How to speak, in words. Blank means unset.", examples=["Speak slowly and warmly."]
    )
    response_format: Annotated[
        str,
        BeforeValidator(_format_name),
        AfterValidator(_known_format),
        Accepts(f"one of {', '.join(FORMATS)}"),
    ] = Field(
        "mp3",
        description="The format of the answer; case and surrounding blanks do not matter. `pcm` is 16-bit "
        "little-endian samples without a header.",
        json_schema_extra={"enum": list(FORMATS)},
    )
    stream: Annotated[bool | None, Accepts("true or false")] = Field(
        False,
        description="True: bytes as they are made. False: the whole file, with exact lengths and Content-Length.",
    )
    stream_format: Annotated[Literal["audio"] | None, Accepts('"audio", the only one available')] = Field(
        "audio", description="`audio`: the raw bytes of the file."
    )
    speed: Annotated[
        float | None, Field(ge=1, le=1), Accepts("1.0, as other speeds are not available yet")
    ] = Field(1.0, description="Only 1.0 is available.")
    seed: Annotated[int | None, Field(ge=0, le=MAX_SEED), Accepts(f"an integer from 0 to {MAX_SEED}")] = Field(
        None,
        description="Makes the answer repeatable: the same request gives the same bytes. Without one a fresh seed "
        "is drawn; the header `X-Seed` tells which.",
        examples=[42],
    )
    temperature: Temperature = Field(
        _DEFAULTS.temperature, description="Temperature of the codes; 0 always takes the likeliest."
    )
    top_p: TopP = Field(
        _DEFAULTS.top_p, description="Codes are drawn from the likeliest that reach this probability together."
    )
    top_k: TopK = Field(
        _DEFAULTS.top_k, description="Codes are drawn from this many likeliest; 0 or -1: from all."
    )
    repetition_penalty: Annotated[
        float | None,
        Field(gt=0, le=2, allow_inf_nan=False),
        Accepts("a number above 0, up to 2 (1 is off)"),
    ] = Field(
        _DEFAULTS.repetition_penalty,
        description="Above 1 makes codes that have occurred less likely, below 1 more likely.",
    )
    text_temperature: Temperature = Field(
        None,
        description="Temperature of the decision to end. Unset: 1.0, or 0 when `temperature` is 0, so that "
        "`temperature` 0 alone makes the whole answer greedy.",
    )
    text_top_p: TopP = Field(_DEFAULTS.stop_top_p, description="`top_p` of the decision to end.")
    text_top_k: TopK = Field(_DEFAULTS.stop_top_k, description="`top_k` of the decision to end.")
    language: Annotated[
        str | None,
        AfterValidator(_known_language),
        Accepts(f"auto or one of {_LANGUAGE_NAMES}"),
    ] = Field(
        None,
        description=f"Language of the text, by English name or code in any case: {_LANGUAGE_NAMES}. `auto` or blank "
        "means unset.",
        examples=["English", "zh", "auto"],
    )
    duration_tokens: Frames = Field(
        None,
        description="Wished length of the audio, in frames of 80 ms; up to the server's cap.",
        examples=[125],
    )
    max_frames: Frames = Field(
        None,
        description="The audio is cut after this many frames of 80 ms; up to the server's cap. Unset: generous for "
        "the length of the text.",
    )
    ref_audio: Annotated[
        str | None,
        AfterValidator(_no_url),
        Accepts("audio as a data URI or base64"),
    ] = Field(
        None,
        description="A clip of the voice to speak with, 1 to 30 s long and not silent: a data URI "
        "(`data:audio/wav;base64,...`) or plain base64 of a file in any usual format, rate and channel count. URLs "
        "are not allowed.",
        examples=["data:audio/wav;base64,UklGRi..."],
    )
    ref_text: Text = Field(
        None,
        description="What is said in `ref_audio`. Needed, and used, by `ref_mode` `continuation` only. Blank means "
        "unset.",
    )
    ref_mode: Annotated[Literal["clone", "continuation"] | None, Accepts("clone or continuation")] = Field(
        None,
        description="`clone` (the default): the clip's voice speaks. `continuation`: the clip itself goes on; only "
        "what is new is returned.",
    )
    sample_rate: Annotated[
        int | None,
        Field(ge=MIN_RATE, le=MAX_RATE),
        Accepts(f"an integer from {MIN_RATE} to {MAX_RATE}, in Hz"),
    ] = Field(
        None,
        description="Sample rate of the answer in Hz. Unset: the model's own, for `pcm` 24000. "
        f"`mp3` knows {', '.join(map(str, FORMATS['mp3'].rates))} only.",
    )
    channels: Annotated[int | None, Field(ge=1, le=2), Accepts("1 or 2")] = Field(
        None, description="1 (mono) or 2 (stereo). Unset: the model's own, for `pcm` 1."
    )

    @model_validator(mode="before")
    @classmethod
    def _null_means_unset(cls, fields: Any) -> Any:
        if not isinstance(fields, dict):
            return fields
        return {
            name: value
            for name, value in fields.items()
            if not (name in OPENAI_ONLY_FIELDS or (value is None and name in _ACCEPTED))
        }

    @model_validator(mode="after")
    def _fields_fit_together(self, info: ValidationInfo) -> Self:
        self._check_token_prefix(_limits(info).max_frames)
        self._check_reference()
        rates = FORMATS[self.response_format].rates
        if self.sample_rate is not None and rates and self.sample_rate not in rates:
            known = ", ".join(map(str, rates))
            raise _Refused(
                f"sample_rate must be one of {known} for {self.response_format}, not {self.sample_rate}",
                "sample_rate",
            )
        return self

    def _check_token_prefix(self, max_frames: int) -> None:
        prefix = _TOKEN_PREFIX.match(self.input)
        if prefix is None:
            return
        if prefix[1] is None or not 1 <= int(prefix[1]) <= max_frames:
            raise _Refused(
                f"the ${{token:N}} prefix of input must hold an integer from 1 to {max_frames}", "input"
            )
        if self.duration_tokens not in (None, int(prefix[1])):
            raise _Refused(
                f"duration_tokens is {self.duration_tokens}, but the prefix of input says {int(prefix[1])}",
                "duration_tokens",
            )

    def _check_reference(self) -> None:
        for name in ("ref_text", "ref_mode"):
            if self.ref_audio is None and getattr(self, name) is not None:
                raise _Refused(f"{name} needs ref_audio, the clip it is about", name)
        if self.continues and self.ref_text is None:
            raise _Refused("ref_mode continuation needs ref_text, what is said in ref_audio", "ref_text")

    @property
    def text(self) -> str:
        """What is spoken: `input` without the `${token:N}` prefix and surrounding blanks."""
        return _TOKEN_PREFIX.sub("", self.input, count=1).strip()

    @property
    def wished_frames(self) -> int | None:
        """`duration_tokens`, or the N of the `${token:N}` prefix."""
        prefix = _TOKEN_PREFIX.match(self.input)
        return self.duration_tokens if prefix is None else int(prefix[1])

    @property
    def continues(self) -> bool:
        """Whether the speech goes on from the reference clip."""
        return self.ref_mode == "continuation"


_ACCEPTED = {
    name: next(each.phrase for each in field.metadata if isinstance(each, Accepts))
    for name, field in SpeechBody.model_fields.items()
}


def parse_speech(raw: bytes, limits: HttpLimits) -> SpeechBody:
    """The body of a request, checked in full except for what the server has to know: models, voices, the clip.

    Raises ApiError, and nothing else: 413 for a body over the limit, 400 naming the field for all that is wrong.
    """
    fields = parse_object(raw, limits.max_body_bytes)
    try:
        return SpeechBody.model_validate(fields, context=limits)
    except ValidationError as error:
        raise _explained(error, limits) from None


def speech_request_body() -> dict[str, Any]:
    """OpenAPI's description of the body, for `openapi_extra=` of a route that reads the raw bytes."""
    schema = SpeechBody.model_json_schema()
    content = {"schema": schema, "example": {"input": "Hello there.", "voice": DEFAULT_VOICE, "seed": 42}}
    return {"requestBody": {"required": True, "content": {"application/json": content}}}


def _explained(error: ValidationError, limits: HttpLimits) -> ApiError:
    """One sentence about the first problem: which field, what it accepts, what came."""
    problem = error.errors(include_url=False)[0]
    kind, location = problem["type"], problem["loc"]
    refused = problem.get("ctx", {}).get("error")
    if isinstance(refused, _Refused):
        return bad_request(str(refused), refused.param)
    if not location:
        return bad_request("a field name of the body is not Unicode text")
    name = str(location[0])
    if kind == "extra_forbidden":
        known = ", ".join(SpeechBody.model_fields)
        return bad_request(f"there is no field {shown(name)}; the fields are: {known}", name, "unknown_parameter")
    if kind == "string_unicode":
        return bad_request(f"{name} holds a lone surrogate, which is not Unicode text", name)
    accepted = _ACCEPTED[name] % limits.model_dump()
    if kind == "missing":
        return bad_request(f"{name} is required: {accepted}", name, "missing_required_parameter")
    return bad_request(f"{name} must be {accepted}, not {shown(problem['input'])}", name)
