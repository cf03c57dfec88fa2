"""An event loop on a thread of its own, for callers that have none."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any, TypeVar

from pipeline.errors import EngineStopped

T = TypeVar("T")


class LoopThread:
    """Any thread may use it; what runs when it is closed, or comes later, ends with EngineStopped."""

    def __init__(self, name: str):
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()
        self._lock = threading.Lock()
        self._closed = False

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the loop and waits for its result."""
        with self._lock:
            if self._closed:
                work.close()
                raise EngineStopped("the loop is closed")
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise EngineStopped("the loop is closed") from None
        finally:
            future.cancel()  # does nothing unless the wait itself was interrupted

    def iterate(self, items: AsyncGenerator[T]) -> Iterator[T]:
        """The items of an asynchronous generator; closing this iterator closes the generator."""
        end = object()

        async def following() -> object:
            return await anext(items, end)

        try:
            while (item := self.run(following())) is not end:
                yield item
        finally:
            with suppress(EngineStopped):  # closing the loop has ended the generator already
                self.run(items.aclose())

    def close(self) -> None:
        """Ends all that still runs, then the thread."""
        with self._lock:
            self._closed = True
        asyncio.run_coroutine_threadsafe(_cancel_all(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
