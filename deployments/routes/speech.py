"""POST /v1/audio/speech."""

import asyncio

from fastapi import APIRouter, Request, Response

from deployments import sse
from deployments.audio_response import AudioStream, EventStream, whole
from deployments.http_errors import (
    ERROR_RESPONSES,
    body_too_large,
    body_too_slow,
    error_response,
)
from deployments.schema import parse_speech, speech_request_body
from deployments.service import SpeechService
from pipeline.audio import FORMATS

_CONTENT = {spec.content_type: {} for spec in FORMATS.values()} | {sse.CONTENT_TYPE: {}}


def router(service: SpeechService) -> APIRouter:
    routes = APIRouter()

    @routes.post(
        "/v1/audio/speech",
        response_class=Response,
        responses={200: {"description": "Audio", "content": _CONTENT}, **ERROR_RESPONSES},
        openapi_extra=speech_request_body(),
    )
    async def speech(request: Request) -> Response:
        """Text to audio. Whole by default; with `stream` the bytes come as they are made."""
        request_id = request.headers["x-request-id"]  # Serve's proxy gives every request one, and answers with it
        try:
            response = await _speak(service, request, request_id)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is logged or told
            return error_response(service.refusal(error, request_id))
        service.count(response.status_code)
        return response

    return routes


async def _speak(service: SpeechService, request: Request, request_id: str) -> Response:
    raw = await read_body(request, service.limits.max_body_bytes, service.limits.body_seconds)
    body = await asyncio.to_thread(parse_speech, raw, service.limits)
    answer = await service.start(body, request_id)
    if body.stream_format == "sse":
        return EventStream(answer)
    if body.stream:
        return AudioStream(answer)
    return await whole(answer)


async def read_body(request: Request, most_bytes: int, seconds: float) -> bytes:
    """The body. ApiError 413 as soon as it is known to be too large, 408 when it does not come in time."""
    parts, size = [], 0
    try:
        async with asyncio.timeout(seconds):
            async for part in request.stream():
                size += len(part)
                if size > most_bytes:
                    raise body_too_large(most_bytes)
                parts.append(part)
    except TimeoutError:
        raise body_too_slow(seconds) from None
    return b"".join(parts)
