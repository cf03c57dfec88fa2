"""An event loop on a thread of its own, for callers that have none."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    def __init__(self, name: str):
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the loop and waits for its result; any thread may call it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def iterate(self, items: AsyncGenerator[T]) -> Iterator[T]:
        """The items of an asynchronous generator; closing this iterator closes the generator."""
        end = object()

        async def following() -> object:
            return await anext(items, end)

        try:
            while (item := self.run(following())) is not end:
                yield item
        finally:
            self.run(items.aclose())

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
