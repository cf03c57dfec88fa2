"""What a caller does when the replica it depends on is lost: it asks another one for the rest.

A request is a function of the model, itself and its seed, so another replica that is told which frames exist already
goes on with the very frames the lost one would have made. Whoever pulls keeps what it has received, which is all that
recovery needs.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import TypeVar

from ray.exceptions import ObjectLostError, RayActorError
from ray.serve.metrics import Counter

from pipeline.errors import EngineStopped, ReplicaLost
from pipeline.request import FrameChunk, SpeechRequest

LOST = (RayActorError, ObjectLostError, EngineStopped)
"""A replica or its node is gone, with whatever it had sent that was not fetched yet, or it is shutting down."""
FIRST_PAUSE_SECONDS = 0.05

log = logging.getLogger("ray.serve")
T = TypeVar("T")


class Recovery:
    """Counts and bounds the recoveries from one deployment, `target`."""

    def __init__(self, target: str, attempts: int):
        self._target = target
        self._attempts = attempts
        self._recoveries = Counter(
            "moss_recoveries", description="Times work went on after a replica was lost", tag_keys=("target",)
        )
        self._recoveries.set_default_tags({"target": target})

    async def call(self, send: Callable[[], Awaitable[T]]) -> T:
        """The result of a call that keeps no state on the other side, sent again when its replica is lost."""
        lost = 0
        while True:
            try:
                return await send()
            except LOST as error:
                lost += 1
                await self._pause(lost, "a call", error)

    async def stream(
        self,
        request: SpeechRequest,
        start: Callable[[SpeechRequest], AsyncGenerator[T]],
        frames_of: Callable[[T], FrameChunk],
    ) -> AsyncGenerator[T]:
        """Items of `start(request)`; when the replica is lost, of `start` for the rest of the request."""
        received: list[FrameChunk] = []
        lost = 0
        while True:
            try:
                async with aclosing(start(request.after(received) if lost else request)) as items:
                    async for item in items:
                        received.append(frames_of(item))
                        yield item
                    return
            except LOST as error:
                if received and received[-1].finish:
                    return
                lost += 1
                await self._pause(lost, f"request {request.request_id}", error)

    async def _pause(self, lost: int, what: str, error: Exception) -> None:
        """Waits before the next attempt, longer each time; raises ReplicaLost after the last one."""
        if lost > self._attempts:
            raise ReplicaLost(f"{what} lost its {self._target} replica {lost} times") from error
        self._recoveries.inc()
        log.warning("%s lost its %s replica (%s); going on with another", what, self._target, type(error).__name__)
        await asyncio.sleep(FIRST_PAUSE_SECONDS * 2 ** (lost - 1))
