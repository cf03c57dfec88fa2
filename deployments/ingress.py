"""HTTP: checks a request at the door, turns it into a job, and sends back the audio as it comes."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from ray import serve
from ray.exceptions import RayActorError
from ray.serve.handle import DeploymentHandle
from ray.serve.metrics import Counter, Histogram

from deployments.audio_response import AudioStream, first_audio, whole
from deployments.http_errors import (
    ERROR_RESPONSES,
    body_too_large,
    error_response,
    install,
    not_ready,
    to_api_error,
)
from deployments.recovery import Recovery
from deployments.remote import call, pull
from deployments.schema import SpeechBody, parse_speech, speech_request_body
from deployments.served import Served
from deployments.settings import Settings
from deployments.speech_job import to_job
from pipeline.audio import FORMATS, AudioOutput
from pipeline.codec_service import AudioChunk
from pipeline.config import CodecConfig
from pipeline.errors import SpeechError
from pipeline.reference import ClipCache
from pipeline.request import Prompt, SpeechJob, SpeechRequest

WARM_UP = SpeechJob(SpeechRequest("warm-up", Prompt("Ready."), seed=0, max_frames=4))
WARM_UP_RETRY_SECONDS = 2.0
READY_SECONDS = 5.0
SECONDS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 2, 5, 10, 30)

log = logging.getLogger("ray.serve")

app = FastAPI(
    title="moss-tts-serve",
    description="Text to speech that can be repeated: the same request and seed give the same bytes.",
    docs_url="/docs",
)
install(app)


# `serve.ingress` copies this class by value as it stands here: its methods call imported names, none defined below.
@serve.deployment(name="SpeechIngress")
@serve.ingress(app)
class SpeechIngress:
    def __init__(self, settings: Settings, codec: DeploymentHandle):
        self._limits = settings.http
        self._served = Served(settings.model.name, settings.model.aliases)
        self._codec = codec
        self._stream = codec.options(stream=True)
        self._codec_config = CodecConfig.load(settings.model.codec)
        self._clips = ClipCache(self._codec_config)
        self._recovery = Recovery("codec", settings.recovery_attempts)
        self._started = int(time.time())
        self._warm = False
        self._warming = asyncio.get_running_loop().create_task(self._warm_up())
        self._first_audio = Histogram(
            "moss_first_audio_seconds", description="Request to first audio", boundaries=list(SECONDS)
        )
        self._answers = Counter("moss_answers", description="Answers by status", tag_keys=("status",))

    @app.post(
        "/v1/audio/speech",
        response_class=Response,
        responses={
            200: {"description": "Audio", "content": {spec.content_type: {} for spec in FORMATS.values()}},
            **ERROR_RESPONSES,
        },
        openapi_extra=speech_request_body(),
    )
    async def speech(self, request: Request) -> Response:
        """Text to audio. Whole by default; with `stream` the bytes come as they are made."""
        request_id = request.headers["x-request-id"]  # Serve's proxy gives every request one, and answers with it
        try:
            response = await self._speak(request, request_id)
        except Exception as error:
            answer = to_api_error(error)
            if answer.status == 500:
                log.exception("request %s failed", request_id)
            response = error_response(answer)
        self._answers.inc(tags={"status": str(response.status_code)})
        return response

    @app.get("/v1/models")
    async def models(self) -> dict[str, Any]:
        """The served model and its aliases, in OpenAI's shape."""
        return {"object": "list", "data": [self._model(name) for name in self._served.models]}

    @app.get("/v1/models/{name}", responses={404: ERROR_RESPONSES[404]})
    async def model(self, name: str) -> dict[str, Any]:
        """One model by name or alias."""
        self._served.check_model(name)
        return self._model(name)

    @app.get("/v1/audio/voices")
    async def voices(self) -> dict[str, Any]:
        """The voices a request may name."""
        return {"voices": [{"id": voice, "name": voice} for voice in self._served.voices]}

    @app.get("/health")
    async def health(self) -> dict[str, str]:
        """The process is up."""
        return {"status": "ok"}

    @app.get("/ready", responses={503: ERROR_RESPONSES[503]})
    async def ready(self) -> Response:
        """A warm-up synthesis has gone through every deployment, and all of them make progress."""
        if not self._warm:
            raise not_ready("the models are still being loaded")
        try:
            async with asyncio.timeout(READY_SECONDS):
                await call(self._codec.ready.remote())
        except (TimeoutError, SpeechError, RayActorError) as error:
            raise not_ready("a part of the server makes no progress") from error
        return JSONResponse({"status": "ready"})

    async def _speak(self, request: Request, request_id: str) -> Response:
        began = time.monotonic()
        body, job, output = await asyncio.to_thread(self._prepare, await self._read(request), request_id)
        audio = self._audio(job)
        first = await first_audio(audio)
        self._first_audio.observe(time.monotonic() - began)
        headers = {
            "X-Seed": str(job.request.seed),
            "X-Sample-Rate": str(output.rate),
            "X-Channels": str(output.channels),
        }
        if body.stream:
            return AudioStream(first, audio, output, headers)
        return await whole(first, audio, output, headers)

    def _prepare(self, raw: bytes, request_id: str) -> tuple[SpeechBody, SpeechJob, AudioOutput]:
        """All that can be wrong with a request is found here; large bodies and clips take a while, hence the thread."""
        body = parse_speech(raw, self._limits)
        codec = self._codec_config
        job = to_job(body, request_id=request_id, served=self._served, limits=self._limits, clips=self._clips)
        output = AudioOutput(
            body.response_format,
            codec.sampling_rate,
            codec.channels,
            rate=body.sample_rate,
            channels=body.channels,
            streaming=bool(body.stream),
        )
        return body, job, output

    def _audio(self, job: SpeechJob) -> AsyncGenerator[AudioChunk]:
        def start(request: SpeechRequest) -> AsyncGenerator[AudioChunk]:
            return pull(self._stream.stream.remote(replace(job, request=request)))

        return self._recovery.stream(job.request, start, lambda chunk: chunk.frames)

    async def _read(self, request: Request) -> bytes:
        """The body, refused as soon as it is known to be too large."""
        limit, parts, size = self._limits.max_body_bytes, [], 0
        async for part in request.stream():
            size += len(part)
            if size > limit:
                raise body_too_large(limit)
            parts.append(part)
        return b"".join(parts)

    def _model(self, name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": self._started, "owned_by": "moss-tts-serve"}

    async def _warm_up(self) -> None:
        while not self._warm:
            try:
                async with aclosing(self._audio(WARM_UP)) as audio:
                    async for _ in audio:
                        pass
                self._warm = True
            except Exception:
                log.exception("the warm-up synthesis failed; trying again")
                await asyncio.sleep(WARM_UP_RETRY_SECONDS)
