"""Calls between deployments, with stand-ins for Ray's side; tests over real sockets are in test_speech.py."""

import asyncio
import pickle
from contextlib import aclosing

import pytest
from ray.exceptions import RayTaskError

from deployments.http_errors import ApiError, to_api_error
from deployments.remote import call, original_error, pull
from pipeline.errors import (
    CheckpointError,
    EngineStopped,
    InvalidRequest,
    ModelFailure,
    QueueFull,
    ReplicaLost,
)


class Items:
    """A remote generator: yields what it is given; an exception is raised, and `...` waits for ever."""

    def __init__(self, *items):
        self.items = list(items)
        self.cancelled = False

    def __aiter__(self):
        return self

    async def __anext__(self):
        if not self.items:
            raise StopAsyncIteration
        item = self.items.pop(0)
        if item is ...:
            await asyncio.Event().wait()
        if isinstance(item, BaseException):
            raise item
        return item

    def cancel(self):
        self.cancelled = True


def crossed(error, hops=1):
    """The error as it arrives after it was raised on another replica."""
    for _ in range(hops):
        error = pickle.loads(pickle.dumps(RayTaskError("f", "Traceback", original_error(error)))).as_instanceof_cause()
    return error


@pytest.mark.parametrize("hops", [1, 2])
@pytest.mark.parametrize(
    ("error", "status"),
    [
        (InvalidRequest("no such value", "ref_audio"), 400),
        (InvalidRequest("no such value"), 400),
        (QueueFull("full"), 429),
        (EngineStopped("stopping"), 503),
        (ReplicaLost("gone"), 503),
        (ModelFailure("not finite"), 500),
        (CheckpointError("no such file"), 500),
        (ApiError(413, "too large", param="input", headers={"Retry-After": "1"}), 413),
    ],
)
async def test_errors_cross_processes_as_what_they_were(error, status, hops):
    with pytest.raises(type(error), match=str(error)) as caught:
        _ = [item async for item in pull(Items(1, crossed(error, hops)))]
    assert caught.type is type(error)
    assert vars(caught.value) == vars(error)
    assert to_api_error(caught.value).status == status


async def test_items_arrive_in_order_and_a_finished_generator_is_not_cancelled():
    items = Items(1, 2, 3)
    assert [item async for item in pull(items)] == [1, 2, 3]
    assert not items.cancelled


async def test_leaving_early_cancels_the_producer():
    items = Items(1, 2, 3)
    async with aclosing(pull(items)) as pulled:
        assert await anext(pulled) == 1
    assert items.cancelled


async def test_a_consumer_that_is_cancelled_while_it_waits_cancels_the_producer():
    items = Items(1, ...)

    async def consume():
        async for _ in pull(items):
            pass

    task = asyncio.create_task(consume())
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert items.cancelled


async def test_a_remote_side_that_cancels_itself_is_an_error_and_not_our_own_cancellation():
    with pytest.raises(EngineStopped):
        _ = [item async for item in pull(Items(1, asyncio.CancelledError()))]

    async def cancelled():
        raise asyncio.CancelledError

    with pytest.raises(EngineStopped):
        await call(cancelled())
