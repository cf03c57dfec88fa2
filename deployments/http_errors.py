"""Errors as HTTP answers, in the shape of OpenAI's API: {"error": {"message", "type", "param", "code"}}."""

import json
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from pipeline.errors import EngineStopped, InvalidRequest, ModelFailure, QueueFull, ReplicaLost, SpeechError
from pipeline.voice import VoiceLimit, VoiceProtected, VoiceStoreError, VoiceTaken, VoiceUnknown, VoiceUnusable

INVALID_REQUEST = "invalid_request_error"
RATE_LIMIT = "rate_limit_error"
SERVER_ERROR = "server_error"

_VOICE_CODES = {VoiceTaken: "voice_taken", VoiceProtected: "voice_protected", VoiceLimit: "too_many_voices"}
_QUEUE_RETRY_SECONDS = 1
_RESTART_RETRY_SECONDS = 5
_LONGEST_ECHO = 80
_LONGEST_PARAM = 100
_LONGEST_MESSAGE = 2000


class ApiError(Exception):
    """An answer other than success. `message` is one sentence for the person who reads it."""

    def __init__(
        self,
        status: int,
        message: str,
        type: str = INVALID_REQUEST,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ):
        super().__init__(status, message, type, param, code, headers)
        self.status = status
        self.message = message
        self.type = type
        self.param = param
        self.code = code
        self.headers = dict(headers or {})

    def __str__(self) -> str:
        return self.message


class ErrorDetail(BaseModel):
    message: str = Field(description="What is wrong, and what is accepted instead.")
    type: str = Field(description=f"`{INVALID_REQUEST}`, `{RATE_LIMIT}` or `{SERVER_ERROR}`.")
    param: str | None = Field(description="The field that is wrong, where it is a single one.")
    code: str | None = Field(description="A word for programs, such as `model_not_found`.")


class ErrorBody(BaseModel):
    """The body of every answer that is no success."""

    error: ErrorDetail


ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody, "description": description}
    for status, description in {
        400: "A value that is not accepted; `param` names the field.",
        404: "A model or voice that is not served.",
        401: "A bearer key is needed.",
        408: "The body did not come in time.",
        409: "The voice's name is taken or protected, or there are too many voices.",
        413: "The body is over the limit.",
        429: "The queue is full; `Retry-After` says when to try again.",
        500: "The request failed on the server.",
        503: "Not ready, or shutting down; `Retry-After` says when to try again.",
        504: "The answer was not finished within the deadline.",
    }.items()
}
"""For `responses=` of a FastAPI route."""


def bad_request(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    return ApiError(400, message, INVALID_REQUEST, param, code)


def model_not_found(model: str, served: Iterable[str]) -> ApiError:
    message = f"model {shown(model)} is not served here; served are: {', '.join(served)}"
    return ApiError(404, message, INVALID_REQUEST, "model", "model_not_found")


def voice_not_found(voice: str, voices: Iterable[str]) -> ApiError:
    message = f"there is no voice {shown(voice)}; the voices are: {', '.join(voices)}"
    return ApiError(404, message, INVALID_REQUEST, "voice", "voice_not_found")


def body_too_large(limit: int) -> ApiError:
    return ApiError(413, f"the body is larger than the limit of {limit} bytes", code="body_too_large")


def body_too_slow(seconds: float) -> ApiError:
    return ApiError(408, f"the body did not come within {seconds:g} s", code="body_too_slow")


def deadline_exceeded(seconds: float) -> ApiError:
    message = f"the answer was not finished within {seconds:g} s"
    return ApiError(504, message, SERVER_ERROR, code="deadline_exceeded")


def unauthorized() -> ApiError:
    message = "a valid API key is needed: Authorization: Bearer KEY"
    headers = {"WWW-Authenticate": "Bearer"}
    return ApiError(401, message, INVALID_REQUEST, code="invalid_api_key", headers=headers)


def over_the_rate(what: str, seconds: int) -> ApiError:
    return ApiError(429, what, RATE_LIMIT, code="rate_limit_exceeded", headers=_retry(seconds))


def to_api_error(error: BaseException) -> ApiError:
    """What the client is told about an exception; of one not written for clients, nothing is told."""
    match error:
        case ApiError():
            return error
        case InvalidRequest():
            return bad_request(error.message, error.param)
        case QueueFull():
            message = "the server is busy and its queue is full; try again shortly"
            return ApiError(429, message, RATE_LIMIT, code="queue_full", headers=_retry(_QUEUE_RETRY_SECONDS))
        case EngineStopped() | ReplicaLost():
            message = "the server is shutting down or starting again; try again shortly"
            return ApiError(503, message, SERVER_ERROR, code="unavailable", headers=_retry(_RESTART_RETRY_SECONDS))
        case VoiceUnknown():
            return ApiError(404, str(error), param="voice", code="voice_not_found")
        case VoiceTaken() | VoiceProtected() | VoiceLimit():
            return ApiError(409, str(error), param="name", code=_VOICE_CODES[type(error)])
        case VoiceUnusable():
            return ApiError(500, str(error), SERVER_ERROR, "voice", "voice_unusable")
        case VoiceStoreError():
            message = "the store of voices cannot be reached; try again shortly"
            return ApiError(503, message, SERVER_ERROR, code="unavailable", headers=_retry(_RESTART_RETRY_SECONDS))
        case ModelFailure():
            return ApiError(500, "the model failed on this request", SERVER_ERROR, code="model_failure")
        case _:
            return ApiError(500, "an internal error occurred", SERVER_ERROR, code="internal_error")


def not_ready(message: str) -> ApiError:
    return ApiError(503, message, SERVER_ERROR, code="not_ready", headers=_retry(_QUEUE_RETRY_SECONDS))


def error_body(error: ApiError) -> dict[str, dict[str, str | None]]:
    """The body of the answer: valid JSON whatever the message holds."""
    return {
        "error": {
            "message": _printable(error.message, _LONGEST_MESSAGE),
            "type": error.type,
            "param": None if error.param is None else _printable(error.param, _LONGEST_PARAM),
            "code": error.code,
        }
    }


def error_response(error: ApiError) -> JSONResponse:
    return JSONResponse(error_body(error), status_code=error.status, headers=error.headers)


def install(app: FastAPI) -> None:
    """Gives every error of the app the shape of `error_body`: its own, the router's and unforeseen ones."""
    for kind in (ApiError, SpeechError, Exception):
        app.add_exception_handler(kind, _on_error)
    app.add_exception_handler(HTTPException, _on_http_exception)
    app.add_exception_handler(RequestValidationError, _on_invalid_parameter)


def shown(value: object) -> str:
    """A JSON value as it appears in a message: short, however large it is."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case str():
            return f'"{_printable(value, _LONGEST_ECHO)}"'
        case int() if abs(value) >= 10**20:
            return "a number of more than 20 digits"
        case int() | float():
            return json.dumps(value)
        case list():
            return "an array"
        case _:
            return "an object"


def _printable(text: str, longest: int) -> str:
    """At most `longest` characters, without control characters and lone surrogates (UTF-8 has none)."""
    cut = text if len(text) <= longest else text[: longest - 1] + "…"
    encodable = cut.encode("utf-8", "replace").decode("utf-8")
    return "".join(character if character.isprintable() else " " for character in encodable)


def _retry(seconds: int) -> dict[str, str]:
    return {"Retry-After": str(seconds)}


async def _on_error(_request: Request, error: Exception) -> JSONResponse:
    return error_response(to_api_error(error))


async def _on_http_exception(request: Request, error: HTTPException) -> JSONResponse:
    """Errors of the router itself (404, 405) and of FastAPI's own parts."""
    path = _printable(request.url.path, _LONGEST_ECHO)
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = (error.headers or {}).get("Allow", "")
        message = f"{request.method} is not allowed on {path}; allowed: {allowed}"
    elif error.status_code == HTTPStatus.NOT_FOUND and error.detail == HTTPStatus.NOT_FOUND.phrase:
        message = f"there is no {request.method} {path}"
    else:
        message = str(error.detail)
    kind = SERVER_ERROR if error.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR else INVALID_REQUEST
    return error_response(ApiError(error.status_code, message, kind, headers=error.headers))


async def _on_invalid_parameter(_request: Request, error: RequestValidationError) -> JSONResponse:
    """A path, query or header parameter that FastAPI refused."""
    first = error.errors()[0]
    param = str(first["loc"][-1])
    return error_response(bad_request(f"{_printable(param, _LONGEST_PARAM)}: {first['msg']}", param))
