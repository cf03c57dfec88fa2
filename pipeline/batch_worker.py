"""Runs blocking work on one thread, in batches: whatever arrives while a batch runs forms the next one."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from pipeline.errors import EngineStopped

Item = TypeVar("Item")
Result = TypeVar("Result")


class BatchWorker(Generic[Item, Result]):
    """`work(items)` gets up to `limit` of summed `weight` and returns one result an item, in order.

    An item's failure is its own: when a batch raises, its items are run again one by one, so `work` must either
    finish or leave no trace. An item heavier than the limit runs alone.
    """

    def __init__(
        self,
        work: Callable[[Sequence[Item]], Sequence[Result]],
        *,
        limit: int,
        weight: Callable[[Item], int] = lambda _item: 1,
        name: str = "torch",
    ):
        self._work = work
        self._limit = limit
        self._weight = weight
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._waiting: deque[tuple[Item, asyncio.Future[Result]]] = deque()
        self._loop_task: asyncio.Task | None = None
        self._busy_since: float | None = None
        self._closed = False
        self.batches = 0

    async def submit(self, item: Item) -> Result:
        """Waits for the item's result. Cancelling the caller drops the item if it has not begun."""
        if self._closed:
            raise EngineStopped("the worker is shut down")
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((item, future))
        if self._loop_task is None or self._loop_task.done():
            self._loop_task = asyncio.create_task(self._drain())
        return await future

    @property
    def busy_seconds(self) -> float:
        """How long the batch in work has been running; 0 when idle."""
        return 0.0 if self._busy_since is None else time.monotonic() - self._busy_since

    def close(self) -> None:
        self._closed = True
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _drain(self) -> None:
        while batch := self._next_batch():
            self._busy_since = time.monotonic()
            try:
                await self._run(batch)
            finally:
                self._busy_since = None

    def _next_batch(self) -> list[tuple[Item, asyncio.Future[Result]]]:
        batch, held = [], 0
        while self._waiting:
            item, future = self._waiting[0]
            if future.cancelled():
                self._waiting.popleft()
                continue
            held += self._weight(item)
            if batch and held > self._limit:
                break
            batch.append(self._waiting.popleft())
        return batch

    async def _run(self, batch: list[tuple[Item, asyncio.Future[Result]]]) -> None:
        self.batches += 1
        loop = asyncio.get_running_loop()
        try:
            results = await loop.run_in_executor(self._thread, self._work, [item for item, _ in batch])
        except Exception as error:  # noqa: BLE001 - whatever the work raises belongs to the waiting callers
            if len(batch) > 1:
                for single in batch:
                    await self._run([single])
            elif not batch[0][1].done():
                batch[0][1].set_exception(error)
            return
        for (_, future), result in zip(batch, results, strict=True):
            if not future.done():
                future.set_result(result)
