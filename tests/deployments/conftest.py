import asyncio
import os
import socket
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import pytest
import ray
from ray import serve

from benchmarks.serving import memory
from deployments.settings import Settings

ROOT = Path(__file__).parents[2]
APP = "speech"
VOICES = TemporaryDirectory(prefix="voices-")
"""One store for all tests, whichever of them deploys the application anew."""


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def settings(**sections):
    """Two replicas of everything that computes, small queues, the random model."""
    two = {"autoscaling": {"min_replicas": 2, "max_replicas": 2}}
    base = {
        "model": {"tts": ROOT / "models/random/tts", "codec": ROOT / "models/random/codec"},
        "backbone": {**two, "max_running": 8, "max_waiting": 8, "kv_blocks": 256},
        "depth": {**two, "max_rows": 16},
        "codec": {**two, "max_streams": 16},
        "voices": {"store": VOICES.name},
    }
    for name, section in sections.items():
        base[name] = {**base.get(name, {}), **section}
    return Settings.model_validate(base)


@pytest.fixture(scope="session")
def cluster():
    """One Ray instance for all tests, with enough logical CPUs for every replica."""
    os.environ["PYTHONPATH"] = str(ROOT)
    ray.init(
        address="local",
        num_cpus=16,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=200 * 2**20,
    )
    port = free_port()
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    yield f"http://127.0.0.1:{port}"
    serve.shutdown()
    ray.shutdown()


@pytest.fixture(scope="session")
def server(cluster):
    """The whole application behind real HTTP; the value is its base URL."""
    from deployments.app import bind

    serve.run(bind(settings()), name=APP, route_prefix="/")
    until_ready(cluster)
    return cluster


def until_ready(url):
    with httpx.Client(base_url=url, timeout=60) as client:
        for _ in range(600):
            if client.get("/ready").status_code == 200:
                return
            time.sleep(0.1)
    pytest.fail("the server did not become ready")


@pytest.fixture
def client(server):
    with httpx.Client(base_url=server, timeout=120) as client:
        yield client


@pytest.fixture
async def async_client(server):
    limits = httpx.Limits(max_connections=200)
    async with httpx.AsyncClient(base_url=server, timeout=120, limits=limits) as client:
        yield client


def stats(deployment, app=APP):
    """What each replica of a deployment says about itself."""
    return serve.get_deployment_handle(deployment, app).broadcast("stats").results(timeout_s=30)


def growth_since(before):
    """MiB by which each process holds more than in `before`, an earlier `memory()`."""
    after = memory()
    return {name: after[name] - before.get(name, 0) for name in after}


async def idle(seconds=20.0, app=APP):
    """Waits until no deployment holds anything for a request."""
    async with asyncio.timeout(seconds):
        while not await asyncio.to_thread(_is_idle, app):
            await asyncio.sleep(0.1)


def _is_idle(app):
    backbones, codecs = stats("Backbone", app), stats("CodecDecoder", app)
    return all(b["running"] == b["waiting"] == 0 and b["free_kv_blocks"] == b["kv_blocks"] for b in backbones) and all(
        c["streams"] == c["blocks_in_use"] == 0 for c in codecs
    )
