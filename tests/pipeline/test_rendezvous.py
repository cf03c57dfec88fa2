import asyncio
import threading

import pytest

from pipeline.batch_worker import BatchWorker
from pipeline.rendezvous import Rendezvous


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def away(rendezvous, clock, caller, seconds, pass_seconds=1.0):
    """An answer to `caller`, which calls again after `seconds`."""
    rendezvous.answered({caller}, pass_seconds)
    clock.now += seconds
    rendezvous.called(caller)


def test_a_caller_expected_within_a_pass_is_waited_for(clock):
    rendezvous = Rendezvous(clock)
    away(rendezvous, clock, "a", 0.2)
    rendezvous.answered({"a", "b"}, 1.0)
    assert rendezvous.patience({"b"}, clock.now) == pytest.approx(0.4)
    clock.now += 0.1
    assert rendezvous.patience({"b"}, clock.now) == pytest.approx(0.3)
    rendezvous.called("a")
    assert rendezvous.patience({"a", "b"}, clock.now) == 0


def test_a_caller_that_is_away_for_longer_than_the_longest_wait_is_not(clock):
    rendezvous = Rendezvous(clock)
    away(rendezvous, clock, "a", 1.6)
    rendezvous.answered({"a"}, 1.0)
    assert rendezvous.patience({"b"}, clock.now) == 0


def test_nor_is_one_that_has_never_come_back(clock):
    rendezvous = Rendezvous(clock)
    rendezvous.called("a")
    rendezvous.answered({"a"}, 1.0)
    assert rendezvous.patience({"b"}, clock.now) == 0


def test_one_that_is_late_is_forgotten_until_it_has_called_twice(clock):
    rendezvous = Rendezvous(clock)
    away(rendezvous, clock, "a", 0.1)
    rendezvous.answered({"a"}, 1.0)
    clock.now += 0.3
    assert rendezvous.patience({"b"}, clock.now) == 0
    rendezvous.called("a")
    rendezvous.answered({"a"}, 1.0)
    assert rendezvous.patience({"b"}, clock.now) == 0
    clock.now += 0.2
    rendezvous.called("a")
    rendezvous.answered({"a"}, 1.0)
    assert rendezvous.patience({"b"}, clock.now) == pytest.approx(0.4)


async def test_two_callers_out_of_step_come_into_step():
    batches = []
    turn = threading.Event()

    def work(items):
        batches.append(sorted(items))
        turn.wait(0.02)
        return items

    worker = BatchWorker(work, limit=8, caller=str)

    async def caller(name, start):
        await asyncio.sleep(start)
        for _ in range(8):
            assert await worker.submit(name) == name
            await asyncio.sleep(0.005)

    async with asyncio.timeout(20):
        await asyncio.gather(caller("a", 0), caller("b", 0.01))
    assert batches[0] == ["a"]
    assert batches.count(["a", "b"]) >= 4
