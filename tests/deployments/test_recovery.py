"""Replicas die, are replaced or taken away in the middle of streams, and the clients' bytes stay the same."""

import asyncio
import os
import signal

import numpy as np
import pytest
from ray import serve

from deployments.app import bind
from tests.deployments.conftest import APP, idle, settings, stats
from tests.deployments.test_speech import body, clip

STREAMS = 8
FRAMES = 240


def long(text, **fields):
    """A streamed request that goes on to its frame limit: a greedy stop decision never ends the random model."""
    return body(text, max_frames=FRAMES, stream=True, text_temperature=0, **fields)


def requests():
    """Eight different ones: seeded, greedy, penalised, cloned, continued."""
    bodies = [long(f"Stream number {i}.", seed=i) for i in range(STREAMS)]
    bodies[1] |= {"temperature": 0}
    bodies[2] |= {"repetition_penalty": 1.4, "top_k": 40}
    bodies[3] |= {"ref_audio": clip(2.0)}
    bodies[4] |= {"ref_audio": clip(1.2), "ref_mode": "continuation", "ref_text": "So far"}
    bodies[5] |= {"response_format": "pcm"}
    return bodies


class Reader:
    """One client; `parts` grows while it reads."""

    def __init__(self, client, request):
        self.client, self.request = client, request
        self.parts = []
        self.seed = None

    async def read(self):
        async with self.client.stream("POST", "/v1/audio/speech", json=self.request) as response:
            assert response.status_code == 200
            self.seed = int(response.headers["x-seed"])
            async for part in response.aiter_raw():
                self.parts.append(part)
        return b"".join(self.parts)


async def under(client, bodies, disturb):
    """Reads all streams while `disturb` runs, which starts when every one is under way and none near its end."""
    readers = [Reader(client, request) for request in bodies]
    tasks = [asyncio.create_task(reader.read()) for reader in readers]
    while not all(len(reader.parts) >= 3 for reader in readers):
        await asyncio.sleep(0.01)
        assert not any(task.done() for task in tasks), [task for task in tasks if task.done()]
    await disturb()
    assert not all(task.done() for task in tasks), "the disturbance came too late"
    return await asyncio.gather(*tasks), readers


@pytest.fixture(scope="module")
def expected():
    """What each request gives when nothing happens; filled by the first test that needs it."""
    return {}


async def undisturbed(client, expected):
    if not expected:

        async def nothing():
            pass

        for index, request in enumerate(requests()):
            (answer,), _ = await under(client, [request], nothing)
            expected[index] = answer
    return [expected[index] for index in range(STREAMS)]


async def recovered(deployment, seconds=60):
    async with asyncio.timeout(seconds):
        while True:
            try:
                if len(await asyncio.to_thread(stats, deployment)) == 2:
                    return
            except Exception as error:  # noqa: BLE001 - the replica that was killed answers with an error
                print("waiting for", deployment, type(error).__name__)
            await asyncio.sleep(0.3)


@pytest.mark.parametrize("deployment", ["DepthSampler", "Backbone", "CodecDecoder"])
async def test_killing_a_replica_changes_no_byte(async_client, expected, deployment):
    whole = await undisturbed(async_client, expected)

    async def kill():
        victim = (await asyncio.to_thread(stats, deployment))[0]
        os.kill(victim["pid"], signal.SIGKILL)

    answers, _ = await under(async_client, requests(), kill)
    assert answers == whole
    await recovered(deployment)
    await idle()


async def test_an_unseeded_stream_survives_too(async_client):
    async def kill():
        for deployment in ("Backbone", "CodecDecoder"):
            victim = (await asyncio.to_thread(stats, deployment))[0]
            os.kill(victim["pid"], signal.SIGKILL)

    bodies = [long("No seed here.") for _ in range(4)]
    answers, readers = await under(async_client, bodies, kill)
    await recovered("Backbone")
    await recovered("CodecDecoder")
    for answer, reader in zip(answers, readers, strict=True):
        again = Reader(async_client, {**reader.request, "seed": reader.seed})
        assert await again.read() == answer
    await idle()


def redeploy(**sections):
    """Serve's own way of an update: the same application with other settings."""
    serve.run(bind(settings(**sections)), name=APP, route_prefix="/")


async def test_a_rolling_update_and_a_downscale_change_no_byte(async_client, expected):
    whole = await undisturbed(async_client, expected)
    one = {"autoscaling": {"min_replicas": 1, "max_replicas": 1}}

    async def update():
        await asyncio.to_thread(redeploy, codec={"reference_cache": 7})

    async def downscale():
        await asyncio.to_thread(redeploy, backbone=one, depth=one, codec=one)

    for disturb in (update, downscale):
        answers, _ = await under(async_client, requests(), lambda disturb=disturb: start(disturb))
        assert answers == whole
        await finish()
    await asyncio.to_thread(redeploy)
    await recovered("Backbone")


running = set()


async def start(disturb):
    """Sets a redeployment going and lets it take hold, without waiting for replicas that drain to be gone."""
    task = asyncio.create_task(disturb())
    running.add(task)
    await asyncio.sleep(1.0)


async def finish():
    await asyncio.gather(*running)
    running.clear()


async def test_losing_replicas_again_and_again_is_given_up_with_a_clear_error():
    from ray.exceptions import ActorDiedError

    from deployments.recovery import Recovery
    from pipeline.errors import ReplicaLost

    calls = []

    async def always_lost():
        calls.append(1)
        raise ActorDiedError

    with pytest.raises(ReplicaLost, match="a call lost its depth replica 3 times"):
        await Recovery("depth", attempts=2).call(always_lost)
    assert len(calls) == 3


async def test_a_replica_lost_after_its_last_chunk_adds_nothing():
    from ray.exceptions import ActorDiedError

    from deployments.recovery import Recovery
    from pipeline.request import FrameChunk, Prompt, SpeechRequest

    starts = []

    async def start(request):
        starts.append(request)
        yield FrameChunk(0, np.zeros((2, 12), dtype=np.int64), "stop")
        raise ActorDiedError

    request = SpeechRequest("id", Prompt("text"), seed=1, max_frames=9)
    chunks = [chunk async for chunk in Recovery("codec", 2).stream(request, start, lambda chunk: chunk)]
    assert [chunk.finish for chunk in chunks] == ["stop"]
    assert len(starts) == 1
