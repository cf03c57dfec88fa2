"""What must not happen to a request because of another one, of the depth side, or of the moment."""

import asyncio
import contextvars
import threading

import numpy as np
import pytest
import torch

from pipeline import engine as engine_module
from pipeline.depth_sampler import DepthSampler
from pipeline.engine import Engine, EngineLimits
from pipeline.errors import EngineStopped, QueueFull
from pipeline.request import Prompt, SamplingParams, SpeechRequest

LIMITS = EngineLimits(max_running=8, max_waiting=4, kv_blocks=96, block_size=64, prefill_rows=50)


class Endless:
    """Never stops; waits at `gate` before it answers a call with a seed of `held`."""

    def __init__(self, sampler):
        self.sampler = sampler
        self.held, self.gate = set(), asyncio.Event()
        self.calls = 0

    async def sample(self, call):
        self.calls += 1
        await asyncio.sleep(0)
        if self.held & set(call.states.seeds.tolist()):
            await self.gate.wait()
        result = self.sampler.sample(call)
        result.stop[:] = False
        return result


@pytest.fixture
def endless(depth):
    return Endless(DepthSampler(depth))


@pytest.fixture
def new_engine(backbone, tokenizer):
    return lambda depth_side, limits=LIMITS, **options: Engine(backbone, tokenizer, depth_side, limits, **options)


def request(seed=1, max_frames=12, text="Hello there.", **sampling):
    return SpeechRequest(str(seed), Prompt(text), seed, max_frames, SamplingParams(**sampling))


async def codes_of(engine, wanted):
    return np.concatenate([chunk.codes async for chunk in engine.stream(wanted)])


async def until(condition):
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.002)


async def test_the_loop_does_not_run_in_the_context_of_the_first_request(new_engine, endless):
    # Ray Serve cancels whatever was called in the context of a cancelled request.
    owner = contextvars.ContextVar("owner", default=None)
    seen = []

    class Watching:
        async def sample(self, call):
            seen.append(owner.get())
            return await endless.sample(call)

    engine = new_engine(Watching())
    owner.set("the first request")
    await codes_of(engine, request())
    assert set(seen) == {None}


async def test_a_depth_call_that_is_cancelled_from_outside_leaves_no_request_hanging(new_engine, endless):
    class Cancelled:
        async def sample(self, call):
            if 13 in call.states.seeds:
                raise asyncio.CancelledError
            return await endless.sample(call)

    engine = new_engine(Cancelled())
    tasks = [asyncio.create_task(codes_of(engine, request(seed, max_frames=400))) for seed in (1, 2, 13)]
    async with asyncio.timeout(20):
        results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(error, EngineStopped) for error in results)
    with pytest.raises(EngineStopped, match="CancelledError"):
        await codes_of(engine, request())
    assert engine.stalled_seconds() == float("inf")
    await engine.close()


async def test_a_cohort_that_hangs_is_seen_beside_one_that_goes_on(new_engine, endless):
    endless.held = {7}
    engine = new_engine(endless)
    hung = asyncio.create_task(codes_of(engine, request(7)))
    await until(lambda: endless.calls)
    for seed in range(3):
        assert len(await codes_of(engine, request(seed))) == 12
    await until(lambda: engine.stalled_seconds() > 0.3)
    assert len(await codes_of(engine, request(9))) == 12
    assert engine.stalled_seconds() > 0.3
    endless.gate.set()
    assert len(await hung) == 12
    assert engine.stalled_seconds() == 0.0


async def test_a_burst_is_refused_only_beyond_free_slots_and_the_queue(new_engine, endless):
    engine = new_engine(endless)
    tasks = [asyncio.create_task(codes_of(engine, request(seed, max_frames=60))) for seed in range(15)]
    results = await asyncio.gather(*tasks, return_exceptions=True)
    refused = [result for result in results if isinstance(result, QueueFull)]
    assert [len(result) for result in results if not isinstance(result, QueueFull)] == [60] * 12
    assert len(refused) == 3


async def test_an_accelerator_is_waited_for_on_the_torch_thread(new_engine, endless, monkeypatch):
    threads = []
    to_wire = engine_module.to_wire
    monkeypatch.setattr(
        engine_module, "to_wire", lambda hidden: threads.append(threading.current_thread().name) or to_wire(hidden)
    )
    await codes_of(new_engine(endless), request())
    assert threads
    assert all(name.startswith("backbone") for name in threads)


async def test_calls_with_and_without_a_repetition_penalty_share_a_pass(new_engine, depth):
    sampler, calls = DepthSampler(depth), []

    class Recording:
        async def sample(self, call):
            calls.append(call)
            return sampler.sample(call)

    for penalty in (1.0, 1.5):
        await codes_of(new_engine(Recording()), request(repetition_penalty=penalty))
    plain, penalised = calls[0], calls[-1]
    assert (len(plain.penalized), len(penalised.penalized)) == (0, 1)
    for result, call in zip(sampler.sample_calls([plain, penalised]), (plain, penalised), strict=True):
        assert np.array_equal(result.codes, sampler.sample(call).codes)


def test_threads_may_begin_with_the_engine_at_the_same_time(new_engine, endless):
    barrier = threading.Barrier(6)
    results = [None] * 6

    def run(index):
        barrier.wait()
        try:
            results[index] = np.concatenate([chunk.codes for chunk in engine.generate(request(index))])
        except Exception as error:  # noqa: BLE001 - looked at below
            results[index] = error

    with new_engine(endless) as engine:
        threads = [threading.Thread(target=run, args=(index,)) for index in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
    assert [len(result) for result in results] == [12] * 6


@pytest.mark.parametrize("prefill_rows", [3, 50])
async def test_readers_that_leave_at_any_moment_leave_nothing_and_change_nothing(new_engine, endless, prefill_rows):
    limits = EngineLimits(max_running=5, max_waiting=50, kv_blocks=40, block_size=16, prefill_rows=prefill_rows)
    alone = await codes_of(new_engine(endless, limits), request(99, 30, repetition_penalty=1.2))
    engine = new_engine(endless, limits)

    async def leave(index):
        async with asyncio.timeout(0.004 * index):
            await codes_of(engine, request(index, 200, text="Somebody who leaves." * (1 + index % 4)))

    stay = [asyncio.create_task(codes_of(engine, request(99, 30, repetition_penalty=1.2))) for _ in range(3)]
    left = await asyncio.gather(*map(leave, range(30)), return_exceptions=True)
    assert {type(error) for error in left} == {TimeoutError}
    for task in stay:
        assert np.array_equal(await task, alone)
    await until(lambda: not engine.busy)
    assert engine.kv.free == engine.kv.total
    used = torch.cat([engine.kv.keys.flatten(), engine.kv.values.flatten()])
    assert torch.isfinite(used).all()
