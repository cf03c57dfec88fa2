"""The depth transformer as a deployment: calls of any backbones become one pass, and nothing is kept between them."""

import asyncio
import os
import time

from ray import serve
from ray.serve.metrics import Histogram

from deployments.replica import check_progress, prepare_torch
from deployments.settings import Settings
from pipeline.batch_worker import BatchWorker
from pipeline.depth_call import DepthCall, DepthResult
from pipeline.speech import load_depth_sampler

ROWS_PER_PASS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
CONCURRENT_BATCHES = 1024
"""Batches that may wait for a pass at once: as many as calls, for it is the pass that merges them."""


def _rows(calls: list[DepthCall]) -> int:
    return sum(call.rows for call in calls)


@serve.deployment(name="DepthSampler")
class DepthSampler:
    """`sample` draws one frame for every row of a call.

    `@serve.batch` gathers calls that arrive together; as it does not add to a batch that waits while a pass runs,
    its batches then go through one worker that merges all that is waiting, up to `max_rows`, into the next pass.
    """

    def __init__(self, settings: Settings):
        device = prepare_torch(settings.depth)
        self._sampler = load_depth_sampler(
            settings.model.tts,
            max_rows=settings.depth.max_rows,
            dtype=settings.depth.torch_dtype,
            device=device,
            determinism=settings.determinism,
        )
        self._stall_seconds = settings.stall_seconds
        self._worker: BatchWorker[DepthCall, DepthResult] = BatchWorker(
            self._pass,
            limit=settings.depth.max_rows,
            weight=lambda call: call.rows,
            caller=lambda call: call.caller,
            name="depth",
        )
        self._gather.set_max_batch_size(settings.depth.max_rows)
        self._rows_per_pass = Histogram(
            "moss_depth_rows_per_pass", description="Rows of one depth pass", boundaries=list(ROWS_PER_PASS)
        )
        self._passes = self._calls = self._rows = 0
        self._seconds = 0.0

    async def sample(self, call: DepthCall) -> DepthResult:
        """One frame for every row; an error concerns this call alone."""
        answer = await self._gather(call)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    @serve.batch(
        max_batch_size=64,
        batch_wait_timeout_s=0,
        max_concurrent_batches=CONCURRENT_BATCHES,
        batch_size_fn=_rows,
    )
    async def _gather(self, calls: list[DepthCall]) -> list[DepthResult | BaseException]:
        return await asyncio.gather(*map(self._worker.submit, calls), return_exceptions=True)

    def _pass(self, calls: list[DepthCall]) -> list[DepthResult]:
        began = time.monotonic()
        results = self._sampler.sample_calls(calls)
        self._seconds += time.monotonic() - began
        self._passes += 1
        self._calls += len(calls)
        self._rows += _rows(calls)
        self._rows_per_pass.observe(_rows(calls))
        return results

    def stats(self) -> dict[str, float]:
        """Passes so far, the calls and rows they served, and the seconds they took."""
        return {
            "pid": os.getpid(),
            "passes": self._passes,
            "calls": self._calls,
            "rows": self._rows,
            "seconds": self._seconds,
        }

    def ready(self) -> None:
        """Returns if the sampler makes progress, raises Stalled if not."""
        self.check_health()

    def check_health(self) -> None:
        check_progress(self._worker.busy_seconds, self._stall_seconds)
