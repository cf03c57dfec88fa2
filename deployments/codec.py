"""The codec as a deployment: it holds the streams' decoder states and pulls codes from a backbone for each."""

import os
from collections.abc import AsyncGenerator
from contextlib import aclosing

import numpy as np
from ray import serve
from ray.serve.handle import DeploymentHandle

from deployments.recovery import Recovery
from deployments.remote import call, pull
from deployments.replica import check_progress, prepare_torch
from deployments.settings import Settings
from pipeline.codec_service import AudioChunk
from pipeline.config import ModelConfig
from pipeline.request import FrameChunk, SpeechJob, SpeechRequest
from pipeline.speech import load_codec_service


@serve.deployment(name="CodecDecoder")
class CodecDecoder:
    def __init__(self, settings: Settings, backbone: DeploymentHandle):
        device = prepare_torch(settings.codec)
        self._service = load_codec_service(
            settings.model.codec,
            ModelConfig.load(settings.model.tts).n_vq,
            dtype=settings.codec.torch_dtype,
            device=device,
            determinism=settings.determinism,
            max_streams=settings.codec.max_streams,
            cache_size=settings.codec.reference_cache,
        )
        self._backbone = backbone
        self._recovery = Recovery("backbone", settings.recovery_attempts)
        self._stall_seconds = settings.stall_seconds

    async def stream(self, job: SpeechJob) -> AsyncGenerator[AudioChunk]:
        """The audio of a job, chunk by chunk. Closing it cancels the request on the backbone as well."""
        async with aclosing(self._service.speak(job, self._generate)) as audio:
            async for chunk in audio:
                yield chunk

    def _generate(self, request: SpeechRequest) -> AsyncGenerator[FrameChunk]:
        def start(rest: SpeechRequest) -> AsyncGenerator[FrameChunk]:
            return pull(self._backbone.options(stream=True).generate.remote(rest))

        return self._recovery.stream(request, start, lambda chunk: chunk)

    async def encode(self, clip: np.ndarray) -> np.ndarray:
        """Codes int64 `[frames, n_vq]` of a prepared clip, float32 `[channels, samples]`."""
        return await self._service.encode(clip)

    def stats(self) -> dict[str, int]:
        return {
            "pid": os.getpid(),
            "streams": self._service.streams,
            "blocks_in_use": self._service.blocks_in_use,
            "kv_bytes_in_use": self._service.bytes_in_use,
        }

    async def ready(self) -> None:
        """Returns if the codec and the deployments behind it make progress, raises if not."""
        self.check_health()
        await call(self._backbone.ready.remote())

    def check_health(self) -> None:
        check_progress(self._service.stalled_seconds(), self._stall_seconds)
