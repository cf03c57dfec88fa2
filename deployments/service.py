"""What the HTTP routes stand on: checked bodies become utterances, spoken by the deployments behind this one."""

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import numpy as np
from ray.exceptions import RayActorError
from ray.serve.handle import DeploymentHandle
from ray.serve.metrics import Counter, Histogram

from deployments.audio_response import Answer, first_audio
from deployments.clip_fetch import ClipFetcher
from deployments.deadline import within
from deployments.http_errors import ApiError, not_ready, to_api_error
from deployments.recovery import Recovery
from deployments.remote import call, pull
from deployments.schema import SpeechBody, check_speech
from deployments.served import DEFAULT_VOICE, OPENAI_VOICES, Served
from deployments.settings import Settings
from deployments.speech_job import clip_bytes, is_url, to_jobs
from deployments.utterance import Speaker, Utterance
from deployments.voices import Voices
from pipeline.audio import AudioOutput
from pipeline.built_in_voices import load_built_in_voices
from pipeline.checkpoint import codec_key
from pipeline.codec_service import AudioChunk
from pipeline.config import CodecConfig, ModelConfig
from pipeline.errors import SpeechError
from pipeline.joining import Joiner
from pipeline.random_state import fresh_seed
from pipeline.reference import ClipCache
from pipeline.request import Prompt, SpeechJob, SpeechRequest
from pipeline.tokenizer import Tokenizer
from pipeline.voices import VoiceStore

WARM_UP = SpeechJob(SpeechRequest("warm-up", Prompt("Ready."), seed=0, max_frames=4))
WARM_UP_RETRY_SECONDS = 2.0
READY_SECONDS = 5.0
_STAND_IN = "Anything."
SECONDS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 2, 5, 10, 30)

log = logging.getLogger("ray.serve")


class SpeechService:
    """One per ingress replica. To be made on the event loop it serves from."""

    def __init__(self, settings: Settings, codec: DeploymentHandle):
        self.limits = settings.http
        self.served = Served(settings.model.name, settings.model.aliases)
        self.codec_config = CodecConfig.load(settings.model.codec)
        self._codec = codec
        self._stream = codec.options(stream=True)
        model = ModelConfig.load(settings.model.tts)
        self._tokenizer = Tokenizer.load(settings.model.tts, model)
        self._clips = ClipCache(self.codec_config)
        self._fetcher = ClipFetcher(
            settings.http.clip_hosts, most_bytes=settings.http.max_body_bytes, seconds=settings.http.clip_seconds
        )
        self._recovery = Recovery("codec", settings.recovery_attempts)
        of_model = load_built_in_voices(settings.model.tts, model)
        self.voices = Voices(of_model, _store(settings, of_model), self._clips, self._encode)
        self.started = int(time.time())
        self._warm = False
        self._warming = asyncio.get_running_loop().create_task(self._warm_up())
        self._first_audio = Histogram(
            "moss_first_audio_seconds", description="Request to first audio", boundaries=list(SECONDS)
        )
        self._answers = Counter("moss_answers", description="Answers by status", tag_keys=("status",))

    async def start(self, body: SpeechBody, request_id: str) -> Answer:
        """Checks, starts and waits for the first audio; whatever is wrong until then is raised."""
        began = time.monotonic()
        output = self._output(body, body.streams)
        clip, codes = await self._voice(body)
        jobs = await self.jobs(body, request_id, clip, codes)
        tokens = await asyncio.to_thread(self._tokens, jobs)
        utterance = Utterance(jobs, self.speaker(), self.codec_config, body.max_frames)
        pieces = within(self.limits.deadline_seconds, utterance.pieces())
        first = await first_audio(pieces)
        self._first_audio.observe(time.monotonic() - began)
        return Answer(jobs[0].request.seed, first, pieces, output, lambda: (tokens, utterance.frames))

    async def converse(self, values: dict[str, Any]) -> "Conversation":
        """Checks the fields of all that will be said; raises as `start` does."""
        body = await asyncio.to_thread(check_speech, {**values, "input": _STAND_IN}, self.limits)
        output = self._output(body, streaming=True)
        return Conversation(self, body, output, *await self._voice(body))

    def speaker(self) -> Speaker:
        """A voice for the parts of one text, through the deployments."""
        return Speaker(self._audio, self.codec_config)

    def refusal(self, error: Exception, request_id: str) -> ApiError:
        """What the client is told, counted; what it is not told goes to the log."""
        answer = to_api_error(error)
        if answer.status == 500:
            log.error("request %s failed", request_id, exc_info=error)
        self.count(answer.status)
        return answer

    def count(self, status: int) -> None:
        """An answer was given."""
        self._answers.inc(tags={"status": str(status)})

    async def check_ready(self) -> None:
        """ApiError 503 unless a warm-up synthesis has gone through every deployment, and all of them make progress."""
        if not self._warm:
            raise not_ready("the models are still being loaded")
        try:
            async with asyncio.timeout(READY_SECONDS):
                await call(self._codec.ready.remote())
        except (TimeoutError, SpeechError, RayActorError) as error:
            raise not_ready("a part of the server makes no progress") from error

    async def jobs(
        self,
        body: SpeechBody,
        request_id: str,
        clip: np.ndarray | None,
        codes: np.ndarray | None,
        first_part: int = 0,
    ) -> list[SpeechJob]:
        """As `to_jobs`, off the event loop."""
        return await asyncio.to_thread(
            to_jobs, body, request_id=request_id, limits=self.limits, clip=clip, voice=codes, first_part=first_part
        )

    async def _voice(self, body: SpeechBody) -> tuple[np.ndarray | None, np.ndarray | None]:
        """The clip or the codes to speak with; neither is the model's own voice. Raises ApiError 404 for a model or
        voice that is not served, and ApiError 400 or InvalidRequest for a clip that cannot be used."""
        self.served.check_model(body.model)
        codes = await self.voices.codes(body.voice)
        return (None, codes) if body.ref_audio is None else (await self._clip(body.ref_audio), None)

    async def _clip(self, ref_audio: str) -> np.ndarray:
        if is_url(ref_audio):
            data = await self._fetcher.fetch(ref_audio.strip())
        else:
            data = await asyncio.to_thread(clip_bytes, ref_audio)
        return await asyncio.to_thread(self._clips.prepared, data)

    async def _encode(self, clip: np.ndarray) -> np.ndarray:
        return await self._recovery.call(lambda: call(self._codec.encode.remote(clip)))

    def _tokens(self, jobs: list[SpeechJob]) -> int:
        return sum(len(self._tokenizer.encode(job.request.prompt.text)) for job in jobs)

    def _output(self, body: SpeechBody, streaming: bool) -> AudioOutput:
        codec = self.codec_config
        return AudioOutput(
            body.response_format,
            codec.sampling_rate,
            codec.channels,
            rate=body.sample_rate,
            channels=body.channels,
            streaming=streaming,
            speed=body.speed,
        )

    def _audio(self, job: SpeechJob) -> AsyncGenerator[AudioChunk]:
        def start(request: SpeechRequest) -> AsyncGenerator[AudioChunk]:
            return pull(self._stream.stream.remote(replace(job, request=request)))

        return self._recovery.stream(job.request, start, lambda chunk: chunk.frames)

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


def _store(settings: Settings, of_model: Iterable[str]) -> VoiceStore | None:
    if settings.voices.store is None:
        return None
    reserved = (DEFAULT_VOICE, *of_model, *OPENAI_VOICES)
    key = codec_key(settings.model.codec)
    return VoiceStore(settings.voices.store, key, reserved=reserved, max_voices=settings.voices.max_voices)


class Conversation:
    """Texts spoken one after the other in one voice, as one continuous file."""

    def __init__(
        self,
        service: SpeechService,
        body: SpeechBody,
        output: AudioOutput,
        clip: np.ndarray | None,
        codes: np.ndarray | None,
    ):
        self.body = body
        self.output = output
        self._clip, self._codes = clip, codes
        self.seed = fresh_seed() if body.seed is None else body.seed
        self._service = service
        self._speaker = service.speaker()
        self._joiner = Joiner(service.codec_config.sampling_rate, service.codec_config.channels)
        self._parts = 0
        self._id = uuid.uuid4().hex

    async def speak(self, text: str) -> AsyncGenerator[bytes]:
        """Bytes of the file with the text in it. Closing it stops the model; the file can go on."""
        for job in await self._jobs(text):
            if self._parts:
                yield await asyncio.to_thread(self._written, self._joiner.next_part())
            self._parts += 1
            async with aclosing(self._speaker.part(job)) as audio:
                async for samples in audio:
                    yield await asyncio.to_thread(self._written, self._joiner.write(samples))

    async def finish(self) -> bytes:
        """The end of the file."""
        rest = await asyncio.to_thread(self._written, self._joiner.finish())
        return rest + await asyncio.to_thread(self.output.finish)

    async def _jobs(self, text: str) -> list[SpeechJob]:
        body = self.body.model_copy(update={"input": text, "seed": self.seed})
        return await self._service.jobs(body, self._id, self._clip, self._codes, first_part=self._parts)

    def _written(self, samples: np.ndarray) -> bytes:
        return self.output.write(samples) if samples.shape[1] else b""
