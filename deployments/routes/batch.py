"""POST /v1/audio/speech/batch: several requests in one, each with its own result or error."""

import asyncio
import base64
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from deployments.audio_response import whole_bytes
from deployments.http_errors import ERROR_RESPONSES, bad_request, error_body, shown
from deployments.json_body import parse_object
from deployments.routes.speech import read_body
from deployments.schema import SpeechBody, check_speech
from deployments.service import SpeechService

MOST_REQUESTS = 32

_BODY = {
    "type": "object",
    "properties": {
        "requests": {
            "type": "array",
            "minItems": 1,
            "maxItems": MOST_REQUESTS,
            "items": SpeechBody.model_json_schema(),
            "description": "Each a body of `/v1/audio/speech`, without `stream` and `stream_format`.",
        }
    },
    "required": ["requests"],
    "additionalProperties": False,
}
_EXAMPLE = {"requests": [{"input": "Hello there.", "seed": 42}, {"input": "And again.", "response_format": "wav"}]}


def router(service: SpeechService) -> APIRouter:
    routes = APIRouter()

    async def result(values: Any, index: int, request_id: str) -> dict[str, Any]:
        try:
            body = await asyncio.to_thread(_item, service, values)
            answer = await service.start(body, f"{request_id}/{index}")
            data, finish = await whole_bytes(answer)
        except Exception as error:  # noqa: BLE001 - each request has its own answer
            refused = service.refusal(error, f"{request_id}/{index}")
            return {"index": index, "status": refused.status, **error_body(refused)}
        service.count(200)
        return {
            "index": index,
            "status": 200,
            "audio": base64.b64encode(data).decode(),
            "content_type": answer.output.content_type,
            "sample_rate": answer.output.rate,
            "channels": answer.output.channels,
            "seed": answer.seed,
            "finish_reason": finish,
        }

    @routes.post(
        "/v1/audio/speech/batch",
        responses=ERROR_RESPONSES,
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": _BODY, "example": _EXAMPLE}},
            }
        },
    )
    async def batch(request: Request) -> JSONResponse:
        """Up to 32 requests at once. One that is wrong costs the others nothing: each has its own status."""
        raw = await read_body(request, service.limits.max_body_bytes, service.limits.body_seconds)
        requests = await asyncio.to_thread(_requests, raw, service.limits.max_body_bytes)
        request_id = request.headers["x-request-id"]
        results = await asyncio.gather(*(result(values, i, request_id) for i, values in enumerate(requests)))
        return JSONResponse({"results": results})

    return routes


def _requests(raw: bytes, most_bytes: int) -> list[Any]:
    body = parse_object(raw, most_bytes)
    for name in body:
        if name != "requests":
            raise bad_request(f"there is no field {shown(name)}; the field is: requests", name, "unknown_parameter")
    requests = body.get("requests")
    if not isinstance(requests, list) or not 1 <= len(requests) <= MOST_REQUESTS:
        raise bad_request(f"requests must be an array of 1 to {MOST_REQUESTS} requests", "requests")
    return requests


def _item(service: SpeechService, values: Any) -> SpeechBody:
    if not isinstance(values, dict):
        raise bad_request(f"a request must be an object, not {shown(values)}", "requests")
    body = check_speech(values, service.limits)
    if body.streams:
        raise bad_request("requests in a batch are not streamed", "stream" if body.stream else "stream_format")
    return body
