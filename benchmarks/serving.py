"""Real servers, in one Ray instance of the benchmark's own, on the loopback interface alone."""

import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import httpx
import ray
from ray import serve

from benchmarks.models import Model
from benchmarks.results import ROOT, BenchmarkFailed
from deployments import app
from deployments.depth import DepthSampler
from deployments.settings import Settings

BATCHED, SERIAL = "batched", "serial"
_LOOPBACK = "127.0.0.1"
_READY_SECONDS = 120
_TITLE = re.compile(r"ServeReplica:(\w+):(\w+)|ray::(ProxyActor|ServeController)|(gcs_server|raylet)")


@serve.deployment(name="DepthSampler")
class SerialDepthSampler(DepthSampler.func_or_class):
    """As if the model took no list of random states: the sampler then goes row by row."""

    def __init__(self, settings: Settings):
        super().__init__(settings)
        self._sampler.model.accepts_generators = False


def settings(model: Model, replicas: int = 1, cohorts: int = 1) -> Settings:
    """Replicas of each model part, with room for 64 requests at once; one of the depth sampler and of the ingress."""
    count = {"autoscaling": {"min_replicas": replicas, "max_replicas": replicas}}
    one = {"autoscaling": {"min_replicas": 1, "max_replicas": 1}}
    computing = {"dtype": model.dtype, "threads": model.threads}
    return Settings.model_validate(
        {
            "model": {"tts": model.directory / "tts", "codec": model.directory / "codec"},
            "backbone": {
                **count,
                **computing,
                "max_running": 64,
                "max_waiting": 64,
                "kv_blocks": 1024,
                "cohorts": cohorts,
            },
            "depth": {**one, **computing, "max_rows": 64},
            "codec": {**count, "max_streams": 64},
            "ingress": one,
        }
    )


@contextmanager
def cluster() -> Iterator[str]:
    """Ray with Serve's proxy, stopped in the end; the value is the proxy's URL."""
    os.environ["PYTHONPATH"] = str(ROOT)
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    ray.init(
        address="local",
        num_cpus=16,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=400 * 2**20,
        _node_ip_address=_LOOPBACK,
        _system_config={"worker_niceness": 0},  # as the client and what one process is compared with
    )
    try:
        port = _free_port()
        serve.start(http_options={"host": _LOOPBACK, "port": port})
        yield f"http://{_LOOPBACK}:{port}"
    finally:
        serve.shutdown()
        ray.shutdown()


def deploy(name: str, url: str, wanted: Settings) -> None:
    """Starts the application `batched` or `serial` below `url`/name, and waits until it is ready."""
    depth = SerialDepthSampler if name == SERIAL else DepthSampler
    with patch.object(app, "DepthSampler", depth):  # `bind` has no other use for the choice than this benchmark's
        application = app.bind(wanted)
    serve.run(application, name=name, route_prefix=f"/{name}")
    deadline = time.monotonic() + _READY_SECONDS
    while not _is_ready(url, name):
        if time.monotonic() > deadline:
            raise BenchmarkFailed(f"the {name} server was not ready within {_READY_SECONDS} s")
        time.sleep(0.1)


def check_health(url: str, name: str) -> None:
    """Raises BenchmarkFailed unless every part of the server makes progress."""
    if not _is_ready(url, name):
        raise BenchmarkFailed(f"the {name} server is not healthy any more")


def peak_memory() -> dict[str, float]:
    """MiB of resident memory at the peak of each process that serves, by what it does."""
    return _memory("VmHWM")


def memory() -> dict[str, float]:
    """MiB of resident memory now, without what is shared with other processes; of replicas alike, the sum."""
    return _memory("RssAnon")


def _memory(field: str) -> dict[str, float]:
    held: dict[str, float] = {}
    for pid in _descendants(os.getpid()):
        title = _TITLE.search(_read(pid, "cmdline").replace("\0", " "))
        size = re.search(rf"{field}:\s+(\d+) kB", _read(pid, "status"))
        if title and size:
            name = " ".join(filter(None, title.groups()))
            held[name] = held.get(name, 0.0) + int(size[1]) / 1024
    return dict(sorted(held.items()))


def _is_ready(url: str, name: str) -> bool:
    return httpx.get(f"{url}/{name}/ready", timeout=30).status_code == 200


def _descendants(ancestor: int) -> list[int]:
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (parent := re.search(r"PPid:\s+(\d+)", _read(int(entry.name), "status"))):
            parents[int(entry.name)] = int(parent[1])
    found = [ancestor]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found[1:]


def _read(pid: int, file: str) -> str:
    try:
        return Path(f"/proc/{pid}/{file}").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):  # it has ended
        return ""


def _free_port() -> int:
    with socket.socket() as free:
        free.bind((_LOOPBACK, 0))
        return free.getsockname()[1]
