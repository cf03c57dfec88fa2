"""Calls between deployments: errors arrive as what they were, and a consumer that leaves takes its producer along."""

import asyncio
from collections.abc import AsyncGenerator
from typing import TypeVar

from ray.exceptions import RayTaskError
from ray.serve.exceptions import BackPressureError
from ray.serve.handle import DeploymentResponse, DeploymentResponseGenerator

from pipeline.errors import EngineStopped, QueueFull

T = TypeVar("T")


def original_error(error: Exception) -> Exception:
    """The exception the remote side raised; Ray's own are turned into this project's where they mean the same."""
    while isinstance(error, RayTaskError) and isinstance(error.cause, Exception):
        error = error.cause
    if isinstance(error, BackPressureError):
        return QueueFull(str(error))
    return error


async def call(response: DeploymentResponse) -> T:
    """The result of a remote call."""
    try:
        return await response
    except (RayTaskError, BackPressureError) as error:
        raise original_error(error) from None
    except asyncio.CancelledError:
        _check_not_given_up()
        raise


async def pull(items: DeploymentResponseGenerator) -> AsyncGenerator[T]:
    """The items of a remote generator; leaving early cancels it."""
    finished = False
    try:
        async for item in items:
            yield item
        finished = True
    except (RayTaskError, BackPressureError) as error:
        finished = True
        raise original_error(error) from None
    except asyncio.CancelledError:
        _check_not_given_up()
        raise
    finally:
        if not finished:
            items.cancel()


def _check_not_given_up() -> None:
    """Raises EngineStopped if it was the remote call that was cancelled, and not the one who waits for it."""
    if not asyncio.current_task().cancelling():
        raise EngineStopped("the other side gave the call up") from None
