import asyncio
import json

import numpy as np
import pytest
import torch

from pipeline.depth_sampler import DepthSampler
from pipeline.engine import Engine, EngineLimits
from pipeline.errors import EngineStopped, InvalidRequest, ModelFailure, QueueFull
from pipeline.local_depth import LocalDepth
from pipeline.request import Prompt, SamplingParams, SpeechRequest
from tests.conftest import TINY

LIMITS = EngineLimits(max_running=8, max_waiting=16, kv_blocks=96, block_size=64, prefill_rows=50)
CASES = json.loads((TINY / "golden.json").read_text())


@pytest.fixture
def new_engine(backbone, tokenizer, depth):
    def make(limits=LIMITS, depth_side=None, **options):
        return Engine(backbone, tokenizer, depth_side or LocalDepth(DepthSampler(depth)), limits, **options)

    return make


def request(text="Hello there.", seed=1, max_frames=20, **sampling):
    # A low stop temperature keeps these requests talking up to their frame limit or close to it.
    return SpeechRequest(f"{text}/{seed}", Prompt(text), seed, max_frames, SamplingParams(**sampling))


async def codes_of(engine, wanted):
    chunks = [chunk async for chunk in engine.stream(wanted)]
    return np.concatenate([chunk.codes for chunk in chunks])


async def until(condition):
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


class NeverStops:
    """A depth side that goes on for ever, with codes that tell the seed and the frame."""

    def __init__(self, sampler):
        self.sampler = sampler
        self.rows = []

    async def sample(self, call):
        self.rows.append(call.rows)
        await asyncio.sleep(0)
        result = self.sampler.sample(call)
        result.stop[:] = False
        return result


@pytest.fixture
def endless(depth):
    return NeverStops(DepthSampler(depth))


@pytest.mark.parametrize(
    ("name", "penalty", "key"),
    [(name, 1.0, f"greedy.{name}.frames") for name in CASES["greedy"]] + [("plain", 1.3, "greedy_rp13.plain.frames")],
)
def test_greedy_frames_are_the_reference_ones(new_engine, golden, name, penalty, key):
    case = next(case for case in CASES["prompts"] if case["name"] == name)
    prompt = Prompt(
        **case["fields"],
        references=tuple(golden[f"prompt.reference_codes_{r}"].numpy() for r in case["references"]),
        continuation=case["mode"] == "continuation",
    )
    sampling = SamplingParams(temperature=0.0, stop_temperature=0.0, repetition_penalty=penalty)
    with new_engine() as engine:
        chunks = list(engine.generate(SpeechRequest("golden", prompt, 0, 24, sampling)))
    assert np.array_equal(np.concatenate([chunk.codes for chunk in chunks]), golden[key].numpy())
    assert [chunk.finish for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].finish == "stop"


@pytest.mark.parametrize("random", ["counter", "generator"])
async def test_a_request_is_the_same_alone_and_among_others_that_come_and_go(new_engine, endless, random):
    wanted = [request(f"Text number {i}" + "!" * (7 * i), seed=i, max_frames=9 + 3 * i) for i in range(6)]
    wanted[2] = request("greedy", temperature=0.0, max_frames=11)
    wanted[4] = request("penalty", seed=4, repetition_penalty=1.4, max_frames=17)
    alone = [await codes_of(new_engine(depth_side=endless, random=random), one) for one in wanted]
    engine = new_engine(depth_side=endless, random=random)

    async def later(index):
        await asyncio.sleep(0.01 * ((index * 5) % 7))
        return await codes_of(engine, wanted[index % 6])

    together = await asyncio.gather(*map(later, range(18)))
    for index, codes in enumerate(together):
        assert np.array_equal(codes, alone[index % 6])
    assert max(endless.rows) > 1
    await until(lambda: engine.kv.free == engine.kv.total)


async def test_seeds_differ_and_repeat(new_engine, endless):
    seeds = [0, 1, 2**32 - 1, 2**32, 2**63 - 1]
    engine = new_engine(depth_side=endless)
    once, again = [await asyncio.gather(*(codes_of(engine, request(seed=seed)) for seed in seeds)) for _ in range(2)]
    assert all(np.array_equal(a, b) for a, b in zip(once, again, strict=True))
    assert len({codes.tobytes() for codes in once}) == len(seeds)


async def test_chunks_are_cut_by_frame_index_and_the_limit_ends_the_request(new_engine, endless):
    engine = new_engine(depth_side=endless)
    chunks = [chunk async for chunk in engine.stream(request(max_frames=20))]
    assert [(chunk.start, len(chunk.codes), chunk.finish) for chunk in chunks] == [
        (0, 1, None), (1, 1, None), (2, 2, None), (4, 4, None), (8, 8, None), (16, 4, "length"),
    ]  # fmt: skip


async def test_more_requests_than_slots_are_served_in_arrival_order(new_engine, endless):
    engine = new_engine(EngineLimits(max_running=2, max_waiting=16, kv_blocks=96), endless)
    finished = []

    async def run(index):
        await codes_of(engine, request(f"number {index}", max_frames=6))
        finished.append(index)

    tasks = []
    for index in range(8):
        tasks.append(asyncio.create_task(run(index)))
        await until(lambda count=index + 1: engine.running + len(engine.waiting) + len(finished) >= count)
    await asyncio.gather(*tasks)
    assert all(abs(position - index) <= 1 for position, index in enumerate(finished))
    assert max(endless.rows) <= 2


async def test_a_full_queue_refuses_and_a_request_that_never_fits_is_told_so(new_engine, endless):
    engine = new_engine(EngineLimits(max_running=1, max_waiting=2, kv_blocks=8), endless)
    tasks = [asyncio.create_task(codes_of(engine, request(max_frames=100))) for _ in range(3)]
    await until(lambda: engine.running == 1 and len(engine.waiting) == 2)
    with pytest.raises(QueueFull):
        await codes_of(engine, request())
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await until(lambda: not engine.busy)
    with pytest.raises(InvalidRequest, match="512 positions"):
        await codes_of(engine, request(max_frames=400))
    assert len(await codes_of(engine, request(max_frames=5))) == 5


async def test_a_long_request_waits_for_blocks_and_then_runs(new_engine, endless):
    engine = new_engine(EngineLimits(max_running=8, max_waiting=8, kv_blocks=10), endless)
    results = await asyncio.gather(*(codes_of(engine, request(max_frames=60 + i)) for i in range(5)))
    assert [len(codes) for codes in results] == [60, 61, 62, 63, 64]
    assert engine.kv.free == 10


@pytest.mark.parametrize("after", [0, 1, 4])
async def test_closing_the_stream_frees_slot_and_blocks(new_engine, endless, after):
    engine = new_engine(depth_side=endless)
    other = asyncio.create_task(codes_of(engine, request("other", max_frames=40)))
    stream = engine.stream(request(max_frames=10_000 // 4))
    reader = asyncio.create_task(anext(stream))
    if after:
        await reader
        for _ in range(after - 1):
            await anext(stream)
        await stream.aclose()
    else:
        await asyncio.sleep(0)
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)
    await until(lambda: engine.running <= 1 and not engine.waiting)
    assert len(await other) == 40
    await until(lambda: engine.kv.free == engine.kv.total)


async def test_a_reader_that_stalls_does_not_slow_another(new_engine, endless):
    engine = new_engine(depth_side=endless)
    stalled = engine.stream(request("stalled", max_frames=30))
    await anext(stalled)
    assert len(await codes_of(engine, request(max_frames=30))) == 30
    assert sum([len(chunk.codes) async for chunk in stalled]) == 29


class Fails(NeverStops):
    async def sample(self, call):
        if 13 in call.states.seeds:
            raise ConnectionError("the depth side is gone")
        result = await super().sample(call)
        result.failed[call.states.seeds == 7] = True
        return result


async def test_an_error_reaches_the_requests_it_belongs_to_and_the_engine_goes_on(new_engine, depth):
    engine = new_engine(depth_side=Fails(DepthSampler(depth)))
    good = [asyncio.create_task(codes_of(engine, request(seed=seed))) for seed in (1, 2)]
    with pytest.raises(ModelFailure, match="not finite"):
        await codes_of(engine, request(seed=7))
    assert [len(await task) for task in good] == [20, 20]
    with pytest.raises(ConnectionError):
        await codes_of(engine, request(seed=13))
    assert len(await codes_of(engine, request(seed=3))) == 20
    assert engine.kv.free == engine.kv.total


async def test_closing_the_engine_ends_its_requests_with_an_error(new_engine, endless):
    engine = new_engine(depth_side=endless)
    task = asyncio.create_task(codes_of(engine, request(max_frames=2000)))
    await until(lambda: engine.running == 1)
    await engine.close()
    with pytest.raises(EngineStopped):
        await task
    with pytest.raises(EngineStopped):
        await codes_of(engine, request())
    assert engine.stalled_seconds() == float("inf")


async def test_a_step_that_hangs_is_seen(new_engine):
    class Hangs:
        async def sample(self, call):
            await asyncio.Event().wait()

    engine = new_engine(depth_side=Hangs())
    assert engine.stalled_seconds() == 0.0
    task = asyncio.create_task(codes_of(engine, request()))
    await until(lambda: engine.stalled_seconds() > 0.2)
    task.cancel()
    await engine.close()


def test_bfloat16_is_batch_invariant_too(config, tokenizer, depth):
    from pipeline.backbone import load_backbone
    from pipeline.depth import load_depth

    half = load_backbone(TINY / "tts", config, dtype=torch.bfloat16)
    sampler = NeverStops(DepthSampler(load_depth(TINY / "tts", config, dtype=torch.bfloat16)))

    async def run():
        engine = Engine(half, tokenizer, sampler, LIMITS)
        wanted = [request(f"Sentence {i}.", seed=i) for i in range(5)]
        together = await asyncio.gather(*(codes_of(engine, one) for one in wanted))
        for one, codes in zip(wanted, together, strict=True):
            assert np.array_equal(codes, await codes_of(Engine(half, tokenizer, sampler, LIMITS), one))

    asyncio.run(run())


@pytest.mark.parametrize("random", ["counter", "generator"])
@pytest.mark.parametrize("chunks", [1, 3, 5])
async def test_a_request_goes_on_after_frames_that_another_engine_has_made(new_engine, endless, random, chunks):
    wanted = request(seed=6, max_frames=37, repetition_penalty=1.3)
    whole = [chunk async for chunk in new_engine(depth_side=endless, random=random).stream(wanted)]
    rest = wanted.after(whole[:1]).after(whole[1:chunks])
    engine = new_engine(depth_side=endless, random=random)
    other = asyncio.create_task(codes_of(engine, request("a neighbour", seed=8, max_frames=50)))
    resumed = [chunk async for chunk in engine.stream(rest)]
    await other
    for got, expected in zip(resumed, whole[chunks:], strict=True):
        assert (got.start, got.finish) == (expected.start, expected.finish)
        assert np.array_equal(got.codes, expected.codes)
        assert random == "counter" or np.array_equal(got.generator, expected.generator)


async def test_a_request_accepted_elsewhere_is_never_refused_and_does_not_queue_up_again(new_engine, endless):
    engine = new_engine(EngineLimits(max_running=1, max_waiting=2, kv_blocks=96), endless)
    finished = []

    async def run(name, wanted):
        await codes_of(engine, wanted)
        finished.append(name)

    tasks = [asyncio.create_task(run("running", request(max_frames=40)))]
    await until(lambda: engine.running == 1)
    for i in range(2):
        tasks.append(asyncio.create_task(run(f"queued {i}", request(max_frames=5))))
        await until(lambda held=i + 1: len(engine.waiting) == held)
    tasks.append(asyncio.create_task(run("resumed", request(max_frames=5).after([]))))
    await asyncio.gather(*tasks)
    assert finished == ["running", "resumed", "queued 0", "queued 1"]


class TakesTurns(NeverStops):
    """Each step of a request is drawn by another replica than the one before."""

    def __init__(self, *samplers):
        super().__init__(samplers[0])
        self.samplers = samplers

    async def sample(self, call):
        self.sampler = self.samplers[len(self.rows) % len(self.samplers)]
        return await super().sample(call)


@pytest.mark.parametrize("random", ["counter", "generator"])
async def test_frames_drawn_by_changing_depth_replicas_are_those_of_one(new_engine, endless, config, random):
    from pipeline.depth import load_depth

    replicas = [DepthSampler(load_depth(TINY / "tts", config, dtype=torch.float32)) for _ in range(2)]
    wanted = request(seed=3, repetition_penalty=1.2)
    one = await codes_of(new_engine(depth_side=endless, random=random), wanted)
    assert np.array_equal(await codes_of(new_engine(depth_side=TakesTurns(*replicas), random=random), wanted), one)


async def test_prompts_that_begin_alike_share_what_was_computed_and_keep_their_bits(new_engine, endless):
    wanted = [request(text, seed=i, repetition_penalty=1.1) for i, text in enumerate(["One.", "Another one.", "One."])]
    alone = [await codes_of(new_engine(depth_side=endless), one) for one in wanted]
    engine = new_engine(depth_side=endless)
    assert np.array_equal(await codes_of(engine, wanted[0]), alone[0])
    assert engine.reused == 0
    together = await asyncio.gather(*(codes_of(engine, one) for one in wanted))
    assert all(map(np.array_equal, together, alone))
    block = LIMITS.block_size
    assert engine.reused >= 3 * block
    assert engine.reused % block == 0
    assert engine.kv.free == engine.kv.total


async def test_a_prompt_found_up_to_its_last_row_needs_no_prefill(new_engine, endless, tokenizer, config):
    from pipeline.prompt import prompt_rows

    text = next(
        text
        for text in ("a" + " b" * count for count in range(200))
        if len(prompt_rows(Prompt(text), tokenizer, config)) % LIMITS.block_size == 1
    )
    engine = new_engine(depth_side=endless)
    once, again = [await codes_of(engine, request(text)) for _ in range(2)]
    assert np.array_equal(once, again)
    assert engine.reused == len(prompt_rows(Prompt(text), tokenizer, config)) - 1


async def test_nothing_is_shared_of_a_request_without_a_single_finite_frame(new_engine, depth):
    class Fails(NeverStops):
        async def sample(self, call):
            result = await super().sample(call)
            result.failed[:] = True
            return result

    engine = new_engine(depth_side=Fails(DepthSampler(depth)))
    for _ in range(2):
        with pytest.raises(ModelFailure):
            await codes_of(engine, request())
    assert engine.reused == 0
    assert engine.kv.free == engine.kv.total


async def test_many_prompts_are_prefilled_in_one_forward_within_the_row_limit(new_engine, endless, monkeypatch):
    engine = new_engine(EngineLimits(max_running=8, kv_blocks=96, prefill_rows=400, cohorts=1), endless)
    forwards = []
    forward = engine.backbone.forward

    def record(rows, spans, kv):
        forwards.append([span.count for span in spans])
        return forward(rows, spans, kv)

    monkeypatch.setattr(engine.backbone, "forward", record)
    await asyncio.gather(*(codes_of(engine, request(seed=seed, max_frames=3)) for seed in range(6)))
    prefills = [counts for counts in forwards if max(counts) > 1]
    assert max(len(counts) for counts in prefills) > 1
    assert max(sum(counts) for counts in prefills) <= 400
