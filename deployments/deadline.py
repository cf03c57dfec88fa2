"""Bounds how long an answer may take as a whole."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TypeVar

from deployments.http_errors import deadline_exceeded

T = TypeVar("T")


async def within(seconds: float, items: AsyncGenerator[T]) -> AsyncGenerator[T]:
    """The items, until so many seconds have passed: then the source is closed, with ApiError 504."""
    end = asyncio.get_running_loop().time() + seconds
    async with aclosing(items):
        while True:
            try:
                async with asyncio.timeout_at(end):
                    item = await anext(items)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise deadline_exceeded(seconds) from None
            yield item
