"""Voices: what a request may name, and uploads of one's own."""

import asyncio
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException

from deployments.http_errors import ERROR_RESPONSES, bad_request, shown
from deployments.routes.speech import read_body
from deployments.service import SpeechService
from pipeline.errors import InvalidRequest
from pipeline.voice import Voice

_FILE_FIELDS = ("file", "audio_sample")
"""The second is OpenAI's name for it."""
_TEXT_FIELDS = ("name", "ref_text", "description")
_MOST_FIELDS = 16

_UPLOAD = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "properties": {
                        "name": {"type": "string", "description": "What requests call it.", "example": "Ada"},
                        "file": {
                            "type": "string",
                            "format": "binary",
                            "description": "1 to 30 s of speech, in any usual audio format.",
                        },
                        "ref_text": {"type": "string", "description": "What is said in it."},
                        "description": {"type": "string"},
                    },
                    "required": ["name", "file"],
                }
            }
        },
    }
}


def router(service: SpeechService) -> APIRouter:
    routes = APIRouter()

    @routes.get("/v1/audio/voices")
    async def voices() -> dict[str, Any]:
        """The voices a request may name: the built-in ones, then the uploaded ones."""
        uploaded = await asyncio.to_thread(service.voices.uploaded)
        return {"voices": [*map(_built_in, service.voices.built_in), *map(_card, uploaded)]}

    @routes.post("/v1/audio/voices", status_code=201, responses=ERROR_RESPONSES, openapi_extra=_UPLOAD)
    async def upload(request: Request) -> JSONResponse:
        """Keeps a clip as a voice, until it is deleted. The clip is checked and encoded before it is there."""
        form = await _form(service, request)
        data = await _file(form)
        texts = {name: form.get(name) for name in _TEXT_FIELDS}
        if texts["name"] is None:
            raise bad_request("name is required: what requests will call the voice", "name")
        try:
            voice = await service.voices.add(data, **texts)
        except InvalidRequest as error:
            raise bad_request(error.message, "file" if error.param == "ref_audio" else error.param) from None
        return JSONResponse(_card(voice), status_code=201)

    @routes.get("/v1/audio/voices/{name}", responses={404: ERROR_RESPONSES[404]})
    async def voice(name: str) -> dict[str, Any]:
        """One voice."""
        built_in = service.voices.built_in_name(name)
        if built_in is not None:
            return _built_in(built_in)
        return _card(await asyncio.to_thread(service.voices.get, name))

    @routes.delete("/v1/audio/voices/{name}", responses={s: ERROR_RESPONSES[s] for s in (404, 409)})
    async def delete(name: str) -> dict[str, Any]:
        """From now on no replica knows the voice."""
        await asyncio.to_thread(service.voices.delete, name)
        return {"id": name, "object": "voice", "deleted": True}

    return routes


def _built_in(name: str) -> dict[str, Any]:
    return {"id": name, "name": name, "object": "voice", "built_in": True}


def _card(voice: Voice) -> dict[str, Any]:
    return {
        "id": voice.name,
        "name": voice.name,
        "object": "voice",
        "built_in": False,
        "created": voice.created,
        "ref_text": voice.transcript,
        "description": voice.description,
    }


async def _form(service: SpeechService, request: Request) -> FormData:
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise bad_request("the body must be multipart/form-data with the fields name and file")
    raw = await read_body(request, service.limits.max_body_bytes, service.limits.body_seconds)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": raw, "more_body": False}

    try:
        limited = {"max_files": 1, "max_fields": _MOST_FIELDS, "max_part_size": service.limits.max_body_bytes}
        form = await Request(request.scope, receive).form(**limited)
    except (MultiPartException, HTTPException, KeyError) as error:
        raise bad_request(f"the body is not valid multipart/form-data: {error}") from None
    for name, value in form.multi_items():
        if name not in (*_FILE_FIELDS, *_TEXT_FIELDS):
            known = ", ".join((*_TEXT_FIELDS, *_FILE_FIELDS))
            raise bad_request(f"there is no field {shown(name)}; the fields are: {known}", name, "unknown_parameter")
        if isinstance(value, UploadFile) != (name in _FILE_FIELDS):
            kind = "a file" if name in _FILE_FIELDS else "text"
            raise bad_request(f"{name} must be {kind}", name)
    return form


async def _file(form: FormData) -> bytes:
    files = [form[name] for name in _FILE_FIELDS if name in form]
    if len(files) != 1:
        raise bad_request("file is required: 1 to 30 s of speech in an audio file", "file")
    return await files[0].read()
