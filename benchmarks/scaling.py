"""`python -m benchmarks.scaling`: how throughput and memory go with text length, replicas and the number of requests.

A tiny random model behind HTTP. Length: 16 requests at once of more and more frames. Replicas: one and two of backbone
and codec with one depth sampler, whose passes should take the rows of both. Requests: many short ones, 32 at once,
with the memory of every process as they go by.
"""

import asyncio
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from ray import serve
from rich.table import Table
from tqdm import tqdm

from benchmarks.end_to_end import Round, one_round
from benchmarks.models import QUICK_ROUNDS, ROUNDS, TINY, Model, prepared
from benchmarks.results import BenchmarkFailed, new_table, option_parser, report
from benchmarks.serving import BATCHED, check_health, cluster, deploy, memory, settings

LENGTHS, QUICK_LENGTHS = (25, 50, 100, 200), (25, 100)
LENGTH_CONCURRENCY = 16
REPLICAS = (1, 2)
REPLICA_CONCURRENCY = (16, 64)
REQUESTS, QUICK_REQUESTS = 1024, 128
REQUEST_CONCURRENCY, REQUEST_FRAMES = 32, 8
STREAM_FRAMES = 200
STREAMS = 32


@dataclass(frozen=True)
class Length:
    max_frames: int
    seconds: float
    audio_per_second: float


@dataclass(frozen=True)
class Replica:
    replicas: int
    concurrency: int
    seconds: float
    audio_per_second: float
    rows_per_pass: float
    """of the depth sampler"""
    running: float
    """requests between their first and last audio, a mean over the time in which there are any"""


@dataclass(frozen=True)
class Sample:
    requests: int
    """done so far"""
    mib: dict[str, float]
    """by process, without shared memory"""


def speech(url: str, concurrency: int, max_frames: int) -> Round:
    done = asyncio.run(one_round(url, BATCHED, concurrency, max_frames))
    check_health(url, BATCHED)
    return done


def lengths(url: str, frames: Sequence[int], rounds: int) -> list[Length]:
    rows = []
    for count in tqdm(frames, desc="length"):
        done = [speech(url, LENGTH_CONCURRENCY, count) for _ in range(rounds)][1:]
        seconds = statistics.median(each.seconds for each in done)
        rows.append(Length(count, seconds, _audio(done) / seconds))
    return rows


def replicas(url: str, count: int, max_frames: int, rounds: int) -> list[Replica]:
    """At every concurrency; the first round is thrown away."""
    depth = serve.get_deployment_handle("DepthSampler", BATCHED)
    rows = []
    for concurrency in tqdm(REPLICA_CONCURRENCY, desc=f"replicas: {count}"):
        speech(url, concurrency, max_frames)
        before = depth.stats.remote().result()
        done = [speech(url, concurrency, max_frames) for _ in range(rounds - 1)]
        after = depth.stats.remote().result()
        passes, drawn = (after[name] - before[name] for name in ("passes", "rows"))
        seconds = statistics.median(each.seconds for each in done)
        running = statistics.mean(map(_running, done))
        rows.append(Replica(count, concurrency, seconds, _audio(done) / seconds, drawn / passes, running))
    return rows


def _running(done: Round) -> float:
    heard = [answer.playback for answer in done.answers]
    began, ended = min(each.first_audio for each in heard), max(each.finished for each in heard)
    return sum(each.finished - each.first_audio for each in heard) / (ended - began)


def many_requests(url: str, total: int) -> list[Sample]:
    samples = []
    with tqdm(total=total, desc="requests") as progress:
        while not samples or samples[-1].requests < total:
            for _ in range(max(1, total // 8 // REQUEST_CONCURRENCY)):
                speech(url, REQUEST_CONCURRENCY, REQUEST_FRAMES)
                progress.update(REQUEST_CONCURRENCY)
            samples.append(Sample(progress.n, memory()))
    return samples


def memory_of_streams(url: str, model: Model) -> dict[str, float]:
    """MiB a running stream holds in each part: the KV blocks and decoder windows in use, times their size."""
    return asyncio.run(_while_streams_run(url, model))


async def _while_streams_run(url: str, model: Model) -> dict[str, float]:
    running = asyncio.create_task(one_round(url, BATCHED, STREAMS, STREAM_FRAMES))
    backbone, codec = (serve.get_deployment_handle(name, BATCHED) for name in ("Backbone", "CodecDecoder"))
    most = {"Backbone": 0.0, "CodecDecoder": 0.0}
    while not running.done():
        for name, handle in (("Backbone", backbone), ("CodecDecoder", codec)):
            stats = await handle.stats.remote()
            most[name] = max(most[name], stats["kv_bytes_in_use"] / 2**20 / STREAMS)
        await asyncio.sleep(0.05)
    await running
    for name, handle in (("Backbone", backbone), ("CodecDecoder", codec)):
        if (await handle.stats.remote())["kv_bytes_in_use"]:
            raise BenchmarkFailed(f"{name} still holds memory of streams that have ended")
    return most


def _audio(done: list[Round]) -> float:
    return statistics.median(sum(answer.playback.audio for answer in each.answers) for each in done)


def _length_table(rows: list[Length]) -> Table:
    table = new_table(f"{LENGTH_CONCURRENCY} requests at once", "frames", "seconds", "audio s / s")
    for r in rows:
        table.add_row(str(r.max_frames), f"{r.seconds:.2f}", f"{r.audio_per_second:.1f}")
    return table


def _replica_table(rows: list[Replica]) -> Table:
    columns = ("C", "seconds", "audio s / s", "rows a pass", "running requests")
    table = new_table("replicas of backbone and codec, one depth sampler", "replicas", *columns)
    for r in rows:
        rates = (f"{r.audio_per_second:.1f}", f"{r.rows_per_pass:.1f}", f"{r.running:.1f}")
        table.add_row(str(r.replicas), str(r.concurrency), f"{r.seconds:.2f}", *rates)
    return table


def _memory_table(samples: list[Sample]) -> Table:
    names = [name for name in samples[0].mib if name.startswith(BATCHED)]
    table = new_table(f"MiB after so many requests, {REQUEST_CONCURRENCY} at once", "requests", *names)
    for sample in samples:
        table.add_row(str(sample.requests), *(f"{sample.mib[name]:.0f}" for name in names))
    return table


def _stream_table(held: dict[str, float]) -> Table:
    table = new_table(f"MiB of KV blocks a running stream of {STREAM_FRAMES} frames", "part", "MiB")
    for name, size in held.items():
        table.add_row(name, f"{size:.2f}")
    return table


def main(arguments: Sequence[str] | None = None) -> None:
    options = option_parser("scaling", __doc__, ROUNDS).parse_args(arguments)
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    by_replicas: list[Replica] = []
    with prepared(TINY) as model:
        for count in reversed(REPLICAS):
            with cluster() as url:
                deploy(BATCHED, url, settings(model, replicas=count))
                by_replicas = replicas(url, count, model.max_frames, rounds) + by_replicas
                if count == 1:
                    by_length = lengths(url, QUICK_LENGTHS if options.quick else LENGTHS, rounds)
                    held = memory_of_streams(url, model)
                    samples = many_requests(url, QUICK_REQUESTS if options.quick else REQUESTS)
    tables = [_length_table(by_length), _replica_table(by_replicas), _stream_table(held), _memory_table(samples)]
    numbers = {"length": by_length, "replicas": by_replicas, "memory": samples}
    listed = {name: [asdict(row) for row in rows] for name, rows in numbers.items()}
    report("scaling", options, tables, rounds=rounds, stream_mib=held, **listed)


if __name__ == "__main__":
    main()
