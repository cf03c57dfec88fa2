"""The types of body fields: the range that pydantic checks, with the words for what a field accepts."""

import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, WithJsonSchema

from deployments.limits import HttpLimits
from pipeline.audio import CHANNELS, FORMATS, MAX_RATE, MAX_SPEED, MIN_RATE, MIN_SPEED
from pipeline.errors import InvalidRequest
from pipeline.languages import LANGUAGES, language_name
from pipeline.marks import something_to_say
from pipeline.request import MAX_SEED

LANGUAGE_NAMES = ", ".join(f"{name} ({code})" for name, code in LANGUAGES.items())
TOKEN_PREFIX = re.compile(r"\A\s*\$\{token:(?:([0-9]{1,9})\})?")
"""The wished length in front of a text; group 1 is None if what follows is no number."""


@dataclass(frozen=True)
class Accepts:
    """What a field takes, as the end of "FIELD must be ..."; `%(name)s` stands for a limit of HttpLimits."""

    phrase: str


class Refused(ValueError):
    """A message of its own, where "FIELD must be ..." would not say what is wrong."""

    def __init__(self, message: str, param: str):
        super().__init__(message)
        self.param = param


def limits_of(info: ValidationInfo) -> HttpLimits:
    return info.context or HttpLimits()


def check_characters(value: str, name: str) -> None:
    """Refuses what no text holds: NUL, and lone surrogates, which UTF-8 cannot carry."""
    if "\0" in value:
        raise Refused(f"{name} must not hold NUL characters", name)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Refused(f"{name} must not hold lone surrogates", name) from None


def _text(value: str, info: ValidationInfo) -> str:
    most = limits_of(info).max_input_chars
    if len(value) > most:
        message = f"{info.field_name} has {len(value)} characters, more than the {most} accepted"
        raise Refused(message, info.field_name)
    return value


def _blank_is_unset(value: str) -> str | None:
    return value if value.strip() else None


def _speakable(value: str) -> str:
    if not something_to_say(TOKEN_PREFIX.sub("", value, count=1)):
        raise ValueError
    return value


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


def _frames(value: int, info: ValidationInfo) -> int:
    if value > limits_of(info).max_frames:
        raise ValueError
    return value


# Optional fields: a null is taken out before its field is looked at, so the checks never see one.
InputText = Annotated[
    str,
    WithJsonSchema({"type": "string", "minLength": 1}),
    AfterValidator(_text),
    AfterValidator(_speakable),
    Accepts("text of up to %(max_input_chars)d characters with at least one letter or digit"),
]
Text = Annotated[
    str | None,
    AfterValidator(_text),
    AfterValidator(_blank_is_unset),
    Accepts("text of up to %(max_input_chars)d characters"),
]
ModelName = Annotated[str | None, Accepts("the name of a model")]
VoiceName = Annotated[
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
            ]
        }
    ),
    Accepts('the name of a voice, or {"id": name}'),
]
ResponseFormat = Annotated[
    str,
    BeforeValidator(_format_name),
    AfterValidator(_known_format),
    WithJsonSchema({"anyOf": [{"type": "string", "enum": list(FORMATS)}, {"type": "null"}]}),
    Accepts(f"one of {', '.join(FORMATS)}"),
]
Flag = Annotated[bool | None, Accepts("true or false")]
StreamFormat = Annotated[Literal["audio", "sse"] | None, Accepts("audio or sse")]
Speed = Annotated[
    float | None,
    Field(ge=MIN_SPEED, le=MAX_SPEED, allow_inf_nan=False),
    Accepts(f"a number from {MIN_SPEED} to {MAX_SPEED}"),
]
Seed = Annotated[int | None, Field(ge=0, le=MAX_SEED), Accepts(f"an integer from 0 to {MAX_SEED}")]
Temperature = Annotated[float | None, Field(ge=0, le=2, allow_inf_nan=False), Accepts("a number from 0 (greedy) to 2")]
TopP = Annotated[
    float | None, Field(gt=0, le=1, allow_inf_nan=False), Accepts("a number above 0, up to 1 (which is off)")
]
TopK = Annotated[int | None, Field(ge=-1), Accepts("an integer: 1 or more, or 0 or -1 for off")]
Penalty = Annotated[
    float | None, Field(gt=0, le=2, allow_inf_nan=False), Accepts("a number above 0, up to 2 (1 is off)")
]
Language = Annotated[str | None, AfterValidator(_known_language), Accepts(f"auto or one of {LANGUAGE_NAMES}")]
Frames = Annotated[
    int | None,
    Field(ge=1),
    AfterValidator(_frames),
    Accepts("an integer from 1 to %(max_frames)d, in frames of 80 ms"),
]
Clip = Annotated[str | None, Accepts("audio as a data URI or base64, or a URL")]
ReferenceMode = Annotated[Literal["clone", "continuation"] | None, Accepts("clone or continuation")]
SampleRate = Annotated[
    int | None,
    Field(ge=MIN_RATE, le=MAX_RATE),
    Accepts(f"an integer from {MIN_RATE} to {MAX_RATE}, in Hz"),
]
Channels = Annotated[int | None, Field(ge=min(CHANNELS), le=max(CHANNELS)), Accepts("1 (mono) or 2 (stereo)")]
