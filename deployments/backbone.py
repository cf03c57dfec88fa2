"""The engine as a deployment: it owns the sequences of its requests and sends their hidden states to the depth side."""

import os
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

from ray import serve
from ray.serve.handle import DeploymentHandle
from ray.serve.metrics import Gauge, Histogram

from deployments.recovery import Recovery
from deployments.remote import call
from deployments.replica import check_progress, prepare_torch
from deployments.settings import Settings
from pipeline.depth_call import DepthCall, DepthResult
from pipeline.request import FrameChunk, SpeechRequest
from pipeline.speech import load_engine

STEP_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28)


class RemoteDepth:
    """Depth calls through a deployment handle: one array of hidden states a step, by way of the object store."""

    def __init__(self, handle: DeploymentHandle, attempts: int):
        self._handle = handle
        self._recovery = Recovery("depth", attempts)
        self.calls = 0
        self.seconds = 0.0
        """that the calls took in all, on the way and at the other end"""

    async def sample(self, depth_call: DepthCall) -> DepthResult:
        began = time.monotonic()
        result = await self._recovery.call(lambda: call(self._handle.sample.remote(depth_call)))
        self.calls += 1
        self.seconds += time.monotonic() - began
        return result


@serve.deployment(name="Backbone")
class Backbone:
    def __init__(self, settings: Settings, depth: DeploymentHandle):
        device = prepare_torch(settings.backbone)
        self._depth = depth
        self._remote_depth = RemoteDepth(depth, settings.recovery_attempts)
        self._engine = load_engine(
            settings.model.tts,
            self._remote_depth,
            settings.backbone.limits,
            dtype=settings.backbone.torch_dtype,
            device=device,
            determinism=settings.determinism,
            random=settings.backbone.random,
            on_step=self._record_step,
        )
        self._stall_seconds = settings.stall_seconds
        self._step_seconds = Histogram(
            "moss_backbone_step_seconds", description="One frame of a cohort", boundaries=list(STEP_SECONDS)
        )
        self._running = Gauge("moss_backbone_running", description="Sequences that step together")
        self._waiting = Gauge("moss_backbone_waiting", description="Requests waiting for a slot")

    async def generate(self, request: SpeechRequest) -> AsyncGenerator[FrameChunk]:
        """Chunks of codec frames; see `Engine.stream`."""
        async with aclosing(self._engine.stream(request)) as chunks:
            async for chunk in chunks:
                yield chunk

    def stats(self) -> dict[str, float]:
        engine = self._engine
        return {
            "pid": os.getpid(),
            "running": engine.running,
            "waiting": len(engine.waiting),
            "free_kv_blocks": engine.kv.free,
            "kv_blocks": engine.kv.total,
            "kv_bytes_in_use": engine.kv.bytes_in_use,
            "reused_rows": engine.reused,
            "depth_calls": self._remote_depth.calls,
            "depth_seconds": self._remote_depth.seconds,
        }

    async def ready(self) -> None:
        """Returns if the engine and the depth side behind it make progress, raises if not."""
        self.check_health()
        await call(self._depth.ready.remote())

    def check_health(self) -> None:
        check_progress(self._engine.stalled_seconds(), self._stall_seconds)

    def _record_step(self, _rows: int, seconds: float) -> None:
        self._step_seconds.observe(seconds)
        self._running.set(self._engine.running)
        self._waiting.set(len(self._engine.waiting))
