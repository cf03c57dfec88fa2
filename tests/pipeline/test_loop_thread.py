import asyncio
import threading

import pytest

from pipeline.errors import EngineStopped
from pipeline.loop_thread import LoopThread


async def count():
    for number in range(3):
        await asyncio.sleep(0)
        yield number


def test_items_come_in_order_and_errors_come_through():
    async def fails():
        yield 1
        raise KeyError("mine")

    loop = LoopThread("test")
    assert list(loop.iterate(count())) == [0, 1, 2]
    items = loop.iterate(fails())
    assert next(items) == 1
    with pytest.raises(KeyError, match="mine"):
        next(items)
    loop.close()


def test_leaving_early_closes_the_generator():
    closed = threading.Event()

    async def endless():
        try:
            while True:
                yield 1
        finally:
            closed.set()

    loop = LoopThread("test")
    items = loop.iterate(endless())
    next(items)
    items.close()
    assert closed.is_set()
    loop.close()


def test_closing_ends_readers_that_wait_and_refuses_later_ones():
    async def silent():
        await asyncio.Event().wait()
        yield

    loop = LoopThread("test")
    outcomes = []

    def read():
        try:
            list(loop.iterate(silent()))
        except EngineStopped as error:
            outcomes.append(str(error))

    readers = [threading.Thread(target=read) for _ in range(40)]
    for reader in readers:
        reader.start()
    loop.close()
    for reader in readers:
        reader.join(timeout=10)
    assert outcomes == ["the loop is closed"] * 40
    with pytest.raises(EngineStopped):
        loop.run(asyncio.sleep(0))
