"""Runs blocking work on one thread, in batches: whatever arrives while a batch runs forms the next one."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

from pipeline.errors import EngineStopped
from pipeline.rendezvous import Rendezvous

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class _Submission(Generic[Item, Result]):
    item: Item
    weight: int
    future: asyncio.Future[Result]


class BatchWorker(Generic[Item, Result]):
    """`work(items)` gets up to `limit` of summed `weight` and returns one result an item, in order.

    An item's failure is its own: when a batch raises, its items are run again one by one, so `work` must either
    finish or leave no trace. An item heavier than the limit runs alone. With a `caller`, which names who an item comes
    from, a batch that is not full waits for callers that are about to come (`Rendezvous`).
    """

    def __init__(
        self,
        work: Callable[[Sequence[Item]], Sequence[Result]],
        *,
        limit: int,
        weight: Callable[[Item], int] = lambda _item: 1,
        caller: Callable[[Item], str] | None = None,
        name: str = "torch",
    ):
        self._work = work
        self._limit = limit
        self._weight = weight
        self._caller = caller
        self._rendezvous = Rendezvous()
        self._arrived = asyncio.Event()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=name)
        self._waiting: deque[_Submission[Item, Result]] = deque()
        self._loop_task: asyncio.Task | None = None
        self._busy_since: float | None = None
        self._closed = False

    async def submit(self, item: Item) -> Result:
        """Waits for the item's result. Cancelling the caller drops the item if it has not begun."""
        return await self.enqueue(item)

    def enqueue(self, item: Item) -> asyncio.Future[Result]:
        """Takes the item at once, behind all that were taken before; raises EngineStopped after `close`."""
        if self._closed:
            raise self._stopped()
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(_Submission(item, self._weight(item), future))
        if self._caller is not None:
            self._rendezvous.called(self._caller(item))
            self._arrived.set()
        if self._loop_task is None or self._loop_task.done():
            self._loop_task = asyncio.create_task(self._drain())
        return future

    @property
    def busy_seconds(self) -> float:
        """How long the batch in work has been running; 0 when idle."""
        return 0.0 if self._busy_since is None else time.monotonic() - self._busy_since

    def close(self) -> None:
        """Lets the batch in work finish; items that wait end with EngineStopped. Any thread may call it."""
        self._closed = True
        self._thread.shutdown(wait=False)

    async def _drain(self) -> None:
        while self._waiting:
            if self._caller is not None:
                await self._wait_for_callers(self._caller)
            if batch := self._next_batch():
                await self._run(batch)

    async def _wait_for_callers(self, caller: Callable[[Item], str]) -> None:
        since = time.monotonic()
        while sum(each.weight for each in self._waiting) < self._limit:
            present = {caller(each.item) for each in self._waiting}
            patience = self._rendezvous.patience(present, since)
            if patience <= 0:
                return
            self._arrived.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._arrived.wait(), patience)

    def _next_batch(self) -> list[_Submission[Item, Result]]:
        batch, held = [], 0
        while self._waiting:
            first = self._waiting[0]
            if first.future.cancelled():
                self._waiting.popleft()
                continue
            held += first.weight
            if batch and held > self._limit:
                break
            batch.append(self._waiting.popleft())
        return batch

    async def _run(self, batch: list[_Submission[Item, Result]]) -> None:
        self._busy_since = time.monotonic()
        try:
            results = await self._in_thread([each.item for each in batch])
            answers = list(zip(batch, results, strict=True))
        except Exception as error:  # noqa: BLE001 - whatever the work raises belongs to the waiting callers
            if len(batch) > 1:
                for single in batch:
                    await self._run([single])
            elif not batch[0].future.done():
                batch[0].future.set_exception(self._stopped() if self._closed else error)
            return
        finally:
            if self._caller is not None:
                callers = {self._caller(each.item) for each in batch}
                self._rendezvous.answered(callers, time.monotonic() - self._busy_since)
            self._busy_since = None
        for each, result in answers:
            if not each.future.done():
                each.future.set_result(result)

    async def _in_thread(self, items: list[Item]) -> Sequence[Result]:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._work, items)

    def _stopped(self) -> EngineStopped:
        return EngineStopped("the worker is shut down")
