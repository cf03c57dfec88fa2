"""Real servers of the embedded model, in one Ray instance of the benchmark's own, on the loopback interface alone."""

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

from benchmarks.results import ROOT, BenchmarkFailed
from deployments import app
from deployments.depth import DepthSampler
from deployments.settings import Settings

BATCHED, SERIAL = "batched", "serial"
EMBEDDED = ROOT / "models" / "embedded"
_LOOPBACK = "127.0.0.1"
_READY_SECONDS = 120
_ONE = {"autoscaling": {"min_replicas": 1, "max_replicas": 1}}
_TITLE = re.compile(r"ServeReplica:(\w+):(\w+)|ray::(ProxyActor|ServeController)|(gcs_server|raylet)")


@serve.deployment(name="DepthSampler")
class SerialDepthSampler(DepthSampler.func_or_class):
    """As if the model took no list of random states: the sampler then goes row by row."""

    def __init__(self, settings: Settings):
        super().__init__(settings)
        self._sampler.model.accepts_generators = False


def settings() -> Settings:
    """One replica of everything, with room for 64 requests at once."""
    return Settings.model_validate(
        {
            "model": {"tts": EMBEDDED / "tts", "codec": EMBEDDED / "codec"},
            "backbone": {**_ONE, "max_running": 64, "max_waiting": 64, "kv_blocks": 1024, "cohorts": 1},
            "depth": {**_ONE, "max_rows": 64},
            "codec": {**_ONE, "max_streams": 64},
            "ingress": _ONE,
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


def deploy(name: str, url: str) -> None:
    """Starts the application `batched` or `serial` below `url`/name, and waits until it is ready."""
    depth = SerialDepthSampler if name == SERIAL else DepthSampler
    with patch.object(app, "DepthSampler", depth):  # `bind` has no other use for the choice than this benchmark's
        application = app.bind(settings())
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
    peaks = {}
    for pid in _descendants(os.getpid()):
        title = _TITLE.search(_read(pid, "cmdline").replace("\0", " "))
        peak = re.search(r"VmHWM:\s+(\d+) kB", _read(pid, "status"))
        if title and peak:
            peaks[" ".join(filter(None, title.groups()))] = int(peak[1]) / 1024
    return dict(sorted(peaks.items()))


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
