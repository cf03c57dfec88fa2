"""The body of POST /v1/audio/speech: its fields, what each accepts, and the errors of those that do not."""

from typing import Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from deployments import fields
from deployments.fields import LANGUAGE_NAMES, TOKEN_PREFIX, Accepts, Refused, limits_of
from deployments.http_errors import ApiError, bad_request, shown
from deployments.json_body import parse_object
from deployments.limits import HttpLimits
from deployments.served import DEFAULT_VOICE
from pipeline.audio import FORMATS
from pipeline.normalise import normalise
from pipeline.request import SamplingParams

OPENAI_ONLY_FIELDS = frozenset({"metadata", "safety_identifier", "service_tier", "store", "user"})
"""Fields of OpenAI's API that have no meaning here; they are ignored, all other unknown ones refused."""

_DEFAULTS = SamplingParams()


class SpeechBody(BaseModel):
    """What is to be spoken, and how. Every field but `input` may be left out or null for its default."""

    # Validated with HttpLimits as the context; without one, their defaults hold.
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    input: fields.InputText = Field(
        description="The text to speak, with at least one letter or digit of any script. `[pause 1.5s]` "
        "makes a pause. A prefix `${token:N}` means the same as `duration_tokens` N.",
        examples=["Hello there, it is good to hear from you."],
    )
    model: fields.ModelName = Field(
        None,
        description="The served model's name or an alias of it; see `/v1/models`.",
        examples=["tts-1"],
    )
    voice: fields.VoiceName = Field(
        DEFAULT_VOICE,
        description="A voice's name, alone or as the `id` of an object. The names of OpenAI's voices stand "
        "for `default`. With `ref_audio` the clip's voice is used instead.",
        examples=[DEFAULT_VOICE, "alloy"],
    )
    normalize: fields.Flag = Field(
        True,
        description="Whether markdown, URLs, emoji, currency, times, units and the like are put into words first. "
        "False: `input` as it is.",
    )
    instructions: fields.Text = Field(
        None, description="How to speak, in words. Blank means unset.", examples=["Speak slowly and warmly."]
    )
    response_format: fields.ResponseFormat = Field(
        "mp3",
        description="The format of the answer; case and surrounding blanks do not matter. `pcm` is 16-bit "
        "little-endian samples without a header.",
    )
    stream: fields.Flag = Field(
        False,
        description="True: bytes as they are made. False: the whole file, with exact lengths.",
    )
    stream_format: fields.StreamFormat = Field(
        "audio",
        description="`audio`: the bytes of the file. `sse`: the same bytes as they are made, in server-sent events "
        "`speech.audio.delta` (base64), with `speech.audio.done` or `error` at the end.",
    )
    speed: fields.Speed = Field(1.0, description="How much faster than the model speaks; the pitch is kept.")
    seed: fields.Seed = Field(
        None,
        description="Makes the answer repeatable: the same request gives the same bytes. Without one a "
        "fresh seed is drawn; the header `X-Seed` tells which.",
        examples=[42],
    )
    temperature: fields.Temperature = Field(
        _DEFAULTS.temperature, description="Temperature of the codes; 0 always takes the likeliest."
    )
    top_p: fields.TopP = Field(
        _DEFAULTS.top_p, description="Codes are drawn from the likeliest that reach this probability."
    )
    top_k: fields.TopK = Field(
        _DEFAULTS.top_k, description="Codes are drawn from this many likeliest; 0 or -1: from all."
    )
    repetition_penalty: fields.Penalty = Field(
        _DEFAULTS.repetition_penalty,
        description="Above 1 makes codes that have occurred less likely, below 1 more likely.",
    )
    text_temperature: fields.Temperature = Field(
        None,
        description="Temperature of the decision to end. Unset: 1.0, or 0 when `temperature` is 0, so that "
        "`temperature` 0 alone makes the whole answer greedy.",
    )
    text_top_p: fields.TopP = Field(_DEFAULTS.stop_top_p, description="`top_p` of the decision to end.")
    text_top_k: fields.TopK = Field(_DEFAULTS.stop_top_k, description="`top_k` of the decision to end.")
    language: fields.Language = Field(
        None,
        description="Language of the text, by English name or code in any case. `auto` or blank means unset. "
        f"Known: {LANGUAGE_NAMES}.",
        examples=["English", "zh", "auto"],
    )
    duration_tokens: fields.Frames = Field(
        None,
        description="Wished length of the audio, in frames of 80 ms; up to the server's cap.",
        examples=[125],
    )
    max_frames: fields.Frames = Field(
        None,
        description="The audio is cut after this many frames of 80 ms; up to the server's cap. Unset: ample "
        "for the length of the text.",
    )
    ref_audio: fields.Clip = Field(
        None,
        description="A clip of the voice to speak with, 1 to 30 s long and not silent: a data URI or plain "
        "base64 of a file in any usual format, rate and channel count; or the https URL of one, on a host that the "
        "server's operator has listed.",
        examples=["data:audio/wav;base64,UklGRi..."],
    )
    ref_text: fields.Text = Field(
        None,
        description="What is said in `ref_audio`. Needed, and used, by `ref_mode` `continuation` only. Blank "
        "means unset.",
    )
    ref_mode: fields.ReferenceMode = Field(
        None,
        description="`clone` (the default): the clip's voice speaks. `continuation`: the clip goes on, and "
        "only what is new is returned.",
    )
    sample_rate: fields.SampleRate = Field(
        None,
        description="Sample rate of the answer in Hz. Unset: the model's own, but at least 24000; for `pcm` 24000. "
        f"`mp3` knows {', '.join(map(str, FORMATS['mp3'].rates))} only.",
    )
    channels: fields.Channels = Field(None, description="1 (mono) or 2 (stereo). Unset: the model's own, for `pcm` 1.")

    @model_validator(mode="before")
    @classmethod
    def _null_means_unset(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {
            name: value
            for name, value in values.items()
            if not (name in OPENAI_ONLY_FIELDS or (value is None and name in _ACCEPTED))
        }

    @field_validator("*", mode="before")
    @classmethod
    def _is_clean_text(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, str):
            fields.check_characters(value, info.field_name)
        return value

    @model_validator(mode="after")
    def _fields_fit_together(self, info: ValidationInfo) -> Self:
        self._check_token_prefix(limits_of(info).max_frames)
        self._check_reference()
        rates = FORMATS[self.response_format].rates
        if self.sample_rate is not None and rates and self.sample_rate not in rates:
            known = ", ".join(map(str, rates))
            raise Refused(
                f"sample_rate must be one of {known} for {self.response_format}, not {self.sample_rate}",
                "sample_rate",
            )
        return self

    def _check_token_prefix(self, max_frames: int) -> None:
        prefix = TOKEN_PREFIX.match(self.input)
        if prefix is None:
            return
        if prefix[1] is None or not 1 <= int(prefix[1]) <= max_frames:
            raise Refused(f"the ${{token:N}} prefix of input must hold an integer from 1 to {max_frames}", "input")
        if self.duration_tokens not in (None, int(prefix[1])):
            raise Refused(
                f"duration_tokens is {self.duration_tokens}, but the prefix of input says {int(prefix[1])}",
                "duration_tokens",
            )

    def _check_reference(self) -> None:
        for name in ("ref_text", "ref_mode"):
            if self.ref_audio is None and getattr(self, name) is not None:
                raise Refused(f"{name} needs ref_audio, the clip it is about", name)
        if self.continues and self.ref_text is None:
            raise Refused("ref_mode continuation needs ref_text, what is said in ref_audio", "ref_text")

    @property
    def text(self) -> str:
        """What is spoken: `input` without the `${token:N}` prefix and surrounding blanks."""
        return TOKEN_PREFIX.sub("", self.input, count=1).strip()

    @property
    def spoken_text(self) -> str:
        """`text` as it reads aloud."""
        return normalise(self.text, self.language) if self.normalize else self.text

    @property
    def wished_frames(self) -> int | None:
        """`duration_tokens`, or the N of the `${token:N}` prefix."""
        prefix = TOKEN_PREFIX.match(self.input)
        return self.duration_tokens if prefix is None else int(prefix[1])

    @property
    def streams(self) -> bool:
        """Whether bytes are sent as they are made."""
        return bool(self.stream) or self.stream_format == "sse"

    @property
    def continues(self) -> bool:
        """Whether the speech goes on from the reference clip."""
        return self.ref_mode == "continuation"


_ACCEPTED = {
    name: next(each.phrase for each in field.metadata if isinstance(each, Accepts))
    for name, field in SpeechBody.model_fields.items()
}


def parse_speech(raw: bytes, limits: HttpLimits) -> SpeechBody:
    """The body of a request, checked in full but for its model and voice names and the content of the clip.

    Raises ApiError, and nothing else: 413 for a body over the limit, else 400 naming the field that is wrong.
    """
    return check_speech(parse_object(raw, limits.max_body_bytes), limits)


def check_speech(values: dict[str, Any], limits: HttpLimits) -> SpeechBody:
    """As `parse_speech`, from a parsed object."""
    _check_names(values)
    try:
        return SpeechBody.model_validate(values, context=limits)
    except ValidationError as error:
        raise _explained(error, limits) from None


def speech_request_body() -> dict[str, Any]:
    """OpenAPI's description of the body, for `openapi_extra=` of a route that reads the raw bytes."""
    schema = SpeechBody.model_json_schema()
    content = {"schema": schema, "example": {"input": "Hello there.", "voice": DEFAULT_VOICE, "seed": 42}}
    return {"requestBody": {"required": True, "content": {"application/json": content}}}


def _check_names(values: dict[str, Any]) -> None:
    """Before pydantic looks, which would collect an error for each of a million unknown fields."""
    for name in values:
        if name not in _ACCEPTED and name not in OPENAI_ONLY_FIELDS:
            message = f"there is no field {shown(name)}; the fields are: {', '.join(_ACCEPTED)}"
            raise bad_request(message, name, "unknown_parameter")


def _explained(error: ValidationError, limits: HttpLimits) -> ApiError:
    """One sentence about the first problem: which field, what it accepts, what came."""
    problem = error.errors(include_url=False)[0]
    refused = problem.get("ctx", {}).get("error")
    if isinstance(refused, Refused):
        return bad_request(str(refused), refused.param)
    name = problem["loc"][0]
    accepted = _ACCEPTED[name] % limits.model_dump()
    if problem["type"] == "missing":
        return bad_request(f"{name} is required: {accepted}", name, "missing_required_parameter")
    return bad_request(f"{name} must be {accepted}, not {shown(problem['input'])}", name)
