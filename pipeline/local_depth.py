"""The depth side of an engine in the same process."""

from pipeline.batch_worker import BatchWorker
from pipeline.depth_call import DepthCall, DepthResult
from pipeline.depth_sampler import DepthSampler


class LocalDepth:
    """Runs depth calls on a thread of their own; calls that arrive during a pass share the next one."""

    def __init__(self, sampler: DepthSampler, max_rows: int = 64):
        self._worker: BatchWorker[DepthCall, DepthResult] = BatchWorker(
            sampler.sample_calls, limit=max_rows, weight=lambda call: call.rows, name="depth"
        )

    async def sample(self, call: DepthCall) -> DepthResult:
        return await self._worker.submit(call)

    def close(self) -> None:
        self._worker.close()
