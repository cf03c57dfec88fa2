import asyncio
import contextlib
import threading

import pytest

from pipeline.batch_worker import BatchWorker
from pipeline.errors import EngineStopped


class Gate:
    """Work that squares its items, waits at a gate for items that are even, and fails on negative ones."""

    def __init__(self):
        self.open = threading.Event()
        self.batches = []

    def __call__(self, items):
        self.batches.append(list(items))
        if any(item % 2 == 0 for item in items):
            assert self.open.wait(20)
        if min(items) < 0:
            raise ValueError(f"{min(items)} is negative")
        return [item * item for item in items]


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.open.set()


async def until(condition):
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)


async def outcomes(tasks):
    async with asyncio.timeout(20):
        return await asyncio.gather(*tasks, return_exceptions=True)


def start(worker, items):
    return [asyncio.create_task(worker.submit(item)) for item in items]


async def test_items_that_arrive_during_a_batch_form_the_next_one_up_to_the_limit(gate):
    worker = BatchWorker(gate, limit=6, weight=lambda item: item)
    first = start(worker, [2])
    await until(lambda: gate.batches)
    rest = start(worker, [1, 3, 3, 9, 1])
    await asyncio.sleep(0)
    gate.open.set()
    assert await outcomes([*first, *rest]) == [4, 1, 9, 9, 81, 1]
    assert gate.batches == [[2], [1, 3], [3], [9], [1]]
    assert worker.busy_seconds == 0.0


async def test_a_failure_is_the_failing_items_own(gate):
    worker = BatchWorker(gate, limit=10)
    results = await outcomes(start(worker, [1, -3, 5, -7]))
    assert (results[0], results[2]) == (1, 25)
    assert [str(results[index]) for index in (1, 3)] == ["-3 is negative", "-7 is negative"]
    assert await worker.submit(3) == 9


async def test_a_cancelled_item_is_dropped_before_it_begins_and_ignored_while_in_work(gate):
    worker = BatchWorker(gate, limit=1)
    in_work, waiting, last = start(worker, [2, 3, 5])
    await until(lambda: gate.batches)
    in_work.cancel()
    waiting.cancel()
    await asyncio.sleep(0)
    gate.open.set()
    assert isinstance((await outcomes([in_work]))[0], asyncio.CancelledError)
    assert await last == 25
    assert gate.batches == [[2], [5]]


async def test_closing_lets_the_batch_in_work_finish_and_ends_all_that_wait(gate):
    worker = BatchWorker(gate, limit=1)
    tasks = start(worker, [2, 3, 4, 5])
    await until(lambda: gate.batches)
    worker.close()
    with pytest.raises(EngineStopped):
        await worker.submit(7)
    gate.open.set()
    first, *rest = await outcomes(tasks)
    assert first == 4
    assert all(isinstance(error, EngineStopped) for error in rest)
    assert gate.batches == [[2]]


@pytest.mark.parametrize("turns", range(5))
async def test_closing_at_any_moment_leaves_nobody_waiting(gate, turns):
    gate.open.set()
    worker = BatchWorker(gate, limit=2)
    tasks = start(worker, range(6))
    for _ in range(turns):
        await asyncio.sleep(0)
    worker.close()
    for item, outcome in enumerate(await outcomes(tasks)):
        assert outcome == item * item or isinstance(outcome, EngineStopped)


async def test_work_that_answers_for_too_few_items_fails_them_and_the_next_ones_are_served():
    worker = BatchWorker(lambda items: [0] * (len(items) if 9 in items else 0), limit=3)
    results = await outcomes(start(worker, [1, 2]))
    assert all(isinstance(error, ValueError) for error in results)
    assert await worker.submit(9) == 0


async def test_an_item_that_cannot_be_weighed_fails_alone(gate):
    worker = BatchWorker(gate, limit=3, weight=lambda item: len("x" * item))
    bad, good = start(worker, [None, 3])
    results = await outcomes([bad, good])
    assert isinstance(results[0], TypeError)
    assert results[1] == 9
    assert await worker.submit(5) == 25


async def test_callers_that_leave_at_random_neither_stop_the_worker_nor_mix_up_results(gate):
    gate.open.set()
    worker = BatchWorker(gate, limit=5)

    async def call(index):
        async with asyncio.timeout(0.0005 * (index % 4) if index % 3 == 0 else None):
            return await worker.submit(index)

    results = await outcomes([asyncio.create_task(call(index)) for index in range(200)])
    assert all(
        result == index * index or (index % 3 == 0 and isinstance(result, TimeoutError))
        for index, result in enumerate(results)
    )
    with contextlib.suppress(TimeoutError):
        assert await call(1) == 1
