import asyncio
import gc
import threading
from contextlib import aclosing

import numpy as np
import pytest
import torch

from pipeline.chunks import SIZE, chunk_ends
from pipeline.codec import CodecDecoder, CodecEncoder
from pipeline.codec_service import CodecService
from pipeline.config import CodecConfig
from pipeline.errors import EngineStopped, InvalidRequest
from pipeline.request import FrameChunk
from tests.conftest import TINY

N_VQ = 12
STREAMS = 3


@pytest.fixture
def parts():
    directory = TINY / "codec"
    config = CodecConfig.load(directory)
    decoder = CodecDecoder.load(directory, config, max_streams=STREAMS, max_step_frames=SIZE, n_vq=N_VQ)
    return decoder, CodecEncoder.load(directory, config, max_step_frames=SIZE)


@pytest.fixture
def service(parts):
    decoder, encoder = parts
    service = CodecService(decoder, encoder, max_streams=STREAMS, cache_size=4)
    yield service
    service.close()


def codes(seed, frames=21):
    return np.random.default_rng(seed).integers(0, 16, (frames, N_VQ))


async def chunks_of(codes, pause=False):
    start = 0
    for end in chunk_ends():
        last = end >= len(codes)
        yield FrameChunk(start, codes[start:end], "stop" if last else None)
        if last:
            return
        if pause:
            await asyncio.sleep(0)
        start = end


async def audio_of(service, frames):
    return np.concatenate([chunk.samples async for chunk in service.decode(frames)], axis=1)


async def until(condition):
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.002)


async def test_streams_beyond_the_places_wait_and_all_sound_as_they_do_alone(parts, service):
    alone = [parts[0].decode_all(torch.from_numpy(codes(seed))).numpy() for seed in range(4)]
    together = await asyncio.gather(
        *(audio_of(service, chunks_of(codes(index % 4), pause=index % 2)) for index in range(24))
    )
    assert all(np.array_equal(audio, alone[index % 4]) for index, audio in enumerate(together))
    await until(lambda: service.blocks_in_use == 0)
    assert service.streams == 0


async def test_a_new_stream_gets_the_place_of_one_that_was_just_left(parts, service):
    alone = parts[0].decode_all(torch.from_numpy(codes(2))).numpy()

    async def left_after_one():
        async with aclosing(service.decode(chunks_of(codes(1)))) as audio:
            await anext(audio)

    for _ in range(30):
        *_, audio = await asyncio.gather(*(left_after_one() for _ in range(3)), audio_of(service, chunks_of(codes(2))))
        assert np.array_equal(audio, alone)
    await until(lambda: service.blocks_in_use == 0)


async def test_listeners_that_leave_at_any_moment_change_nothing_and_leave_nothing(parts, service):
    alone = parts[0].decode_all(torch.from_numpy(codes(1))).numpy()

    async def leave(index):
        async with asyncio.timeout(0.002 * index):
            await audio_of(service, chunks_of(codes(index, frames=150)))

    left = asyncio.gather(*map(leave, range(30)), return_exceptions=True)
    stayed = await asyncio.gather(*(audio_of(service, chunks_of(codes(1))) for _ in range(6)))
    assert all(np.array_equal(audio, alone) for audio in stayed)
    assert {type(error) for error in await left} <= {TimeoutError, np.ndarray}
    await until(lambda: service.blocks_in_use == 0)
    assert service.streams == 0
    assert np.array_equal(await audio_of(service, chunks_of(codes(1))), alone)


async def test_wrong_codes_fail_their_own_stream_only(parts, service):
    alone = parts[0].decode_all(torch.from_numpy(codes(1))).numpy()
    wrong = codes(2)
    wrong[5, 3] = 10_000
    results = await asyncio.gather(
        *(audio_of(service, chunks_of(each)) for each in (codes(1), wrong, codes(1))), return_exceptions=True
    )
    assert isinstance(results[1], InvalidRequest)
    assert np.array_equal(results[0], alone)
    assert np.array_equal(results[2], alone)
    await until(lambda: service.blocks_in_use == 0)


async def test_an_error_of_the_source_reaches_the_listener_and_frees_the_stream(service):
    async def breaks():
        yield FrameChunk(0, codes(1)[:1])
        raise ConnectionError

    with pytest.raises(ConnectionError):
        await audio_of(service, breaks())
    await until(lambda: service.blocks_in_use == 0)
    assert service.streams == 0


async def test_an_utterance_of_no_frames_is_silence_with_its_reason(service):
    chunks = [chunk async for chunk in service.decode(chunks_of(codes(1, frames=0)))]
    assert [chunk.samples.shape for chunk in chunks] == [(2, 0)]
    assert chunks[0].frames.finish == "stop"
    await until(lambda: service.blocks_in_use == 0)


class Encoder:
    """Codes that tell the first sample; waits at a gate, and fails while `broken`."""

    def __init__(self):
        self.gate = threading.Event()
        self.broken = False
        self.encoded = []

    def encode(self, audio, n_vq):
        assert self.gate.wait(20)
        self.encoded.append(float(audio[0, 0]))
        if self.broken:
            raise MemoryError
        return torch.full((1, n_vq), int(audio[0, 0]))


@pytest.fixture
def encoder():
    encoder = Encoder()
    yield encoder
    encoder.gate.set()


@pytest.fixture
def encoding(parts, encoder):
    service = CodecService(parts[0], encoder, max_streams=1, cache_size=2)
    yield service
    service.close()


def clip(value):
    return np.full((2, 100), value, dtype=np.float32)


async def test_equal_clips_are_encoded_once_at_the_same_time_and_later(encoding, encoder):
    encoder.gate.set()
    together = await asyncio.gather(*(encoding.encode(clip(value)) for value in (1, 2, 1, 1, 2)))
    assert [each[0, 0] for each in together] == [1, 2, 1, 1, 2]
    assert (await encoding.encode(clip(1)))[0, 0] == 1
    assert sorted(encoder.encoded) == [1, 2]


async def test_the_least_recently_used_clip_is_forgotten(encoding, encoder):
    encoder.gate.set()
    for value in (1, 2, 1, 3, 1, 2):
        await encoding.encode(clip(value))
    assert encoder.encoded == [1, 2, 3, 2]


async def test_one_reader_that_leaves_takes_nothing_from_the_others(encoding, encoder):
    first, second = [asyncio.create_task(encoding.encode(clip(1))) for _ in range(2)]
    await asyncio.sleep(0.05)
    first.cancel()
    await asyncio.sleep(0)
    encoder.gate.set()
    assert (await second)[0, 0] == 1
    assert encoder.encoded == [1]


async def test_a_clip_nobody_waits_for_any_more_is_not_encoded_and_not_kept(encoding, encoder):
    tasks = [asyncio.create_task(encoding.encode(clip(value))) for value in range(20)]
    await until(lambda: len(encoding._encoding._waiting) == 19)
    for task in tasks[1:]:
        task.cancel()
    await asyncio.gather(*tasks[1:], return_exceptions=True)
    last = asyncio.create_task(encoding.encode(clip(5)))
    encoder.gate.set()
    assert (await tasks[0])[0, 0] == 0
    assert (await last)[0, 0] == 5
    assert encoder.encoded == [0, 5]


@pytest.mark.parametrize("readers_stay", [True, False])
async def test_a_failure_reaches_every_reader_and_is_not_remembered(encoding, encoder, readers_stay):
    complaints = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: complaints.append(context["message"]))
    encoder.broken = True
    tasks = [asyncio.create_task(encoding.encode(clip(1))) for _ in range(3)]
    await asyncio.sleep(0.05)
    if not readers_stay:
        for task in tasks:
            task.cancel()
        await asyncio.sleep(0)
    encoder.gate.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    expected = MemoryError if readers_stay else asyncio.CancelledError
    assert all(isinstance(result, expected) for result in results)
    await until(lambda: encoder.encoded)
    encoder.broken = False
    assert (await encoding.encode(clip(1)))[0, 0] == 1
    del tasks, results
    gc.collect()
    assert complaints == []


async def test_closing_the_service_ends_listeners_and_readers_with_an_error(encoding, encoder):
    readers = [asyncio.create_task(encoding.encode(clip(value))) for value in range(3)]
    await until(lambda: len(encoding._encoding._waiting) == 2)
    listener = encoding.decode(chunks_of(codes(1)))
    await anext(listener)
    encoding.close()
    encoder.gate.set()
    async with asyncio.timeout(20):
        results = await asyncio.gather(*readers, return_exceptions=True)
        assert [isinstance(result, EngineStopped) for result in results].count(True) == 2
        with pytest.raises(EngineStopped):
            await anext(listener)
