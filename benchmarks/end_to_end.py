"""`python -m benchmarks.end_to_end`: C requests at once over HTTP, batched against the serial fallback.

Two servers of one model in one Ray instance take turns: `batched` draws all rows of a step in one pass, `serial` has
a depth model that declares `accepts_generators = False`. The answers must have the same bytes. First a tiny random
model, then one of the published width with few layers and random weights.
"""

import asyncio
import hashlib
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import httpx
from rich.table import Table
from tqdm import tqdm

from benchmarks.models import prepared, read_plan
from benchmarks.playback import Playback, play
from benchmarks.results import BenchmarkFailed, new_table, report
from benchmarks.serving import BATCHED, SERIAL, check_health, cluster, deploy, peak_memory, settings
from benchmarks.workload import body

SERVERS = (BATCHED, SERIAL)
CONCURRENCY = (1, 8, 16, 32, 64)
_SAMPLE_BYTES = 2


@dataclass(frozen=True)
class Answer:
    playback: Playback
    digest: str


@dataclass(frozen=True)
class Round:
    """C requests sent at once."""

    seconds: float
    answers: list[Answer]


@dataclass(frozen=True)
class Row:
    """One server at one concurrency: medians over the rounds, percentiles over all their requests."""

    model: str
    server: str
    concurrency: int
    seconds: float
    first_audio_p50: float
    first_audio_p95: float
    real_time_factor: float
    audio_per_second: float
    underruns: float
    """of all streams, a round"""
    silence: float
    """s of all streams, a round"""


async def speak(client: httpx.AsyncClient, server: str, fields: dict) -> Answer:
    began = time.perf_counter()
    arrivals, digest = [], hashlib.sha256()
    async with client.stream("POST", f"/{server}/v1/audio/speech", json=fields) as response:
        if response.status_code != 200:
            raise BenchmarkFailed(f"the {server} server answered {response.status_code}: {await response.aread()}")
        rate = int(response.headers["x-sample-rate"]) * int(response.headers["x-channels"]) * _SAMPLE_BYTES
        async for part in response.aiter_raw():
            arrivals.append((time.perf_counter() - began, len(part) / rate))
            digest.update(part)
    return Answer(play(arrivals), digest.hexdigest())


async def one_round(url: str, server: str, concurrency: int, max_frames: int) -> Round:
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=600, limits=limits) as client:
        began = time.perf_counter()
        answers = await asyncio.gather(*(speak(client, server, body(i, max_frames)) for i in range(concurrency)))
        return Round(time.perf_counter() - began, answers)


def measure(url: str, concurrency: int, max_frames: int, rounds: int, progress: tqdm) -> dict[str, list[Round]]:
    """Both servers in every round, in alternating order; the first round is thrown away."""
    done: dict[str, list[Round]] = {server: [] for server in SERVERS}
    for turn in range(rounds):
        for server in SERVERS if turn % 2 == 0 else SERVERS[::-1]:
            done[server].append(asyncio.run(one_round(url, server, concurrency, max_frames)))
            check_health(url, server)
            progress.update()
    return {server: each[1:] for server, each in done.items()}


def _row(model: str, server: str, concurrency: int, rounds: list[Round]) -> Row:
    heard = [answer.playback for each in rounds for answer in each.answers]
    first = sorted(playback.first_audio for playback in heard)

    def a_round(field: str) -> float:
        return statistics.median(sum(getattr(a.playback, field) for a in each.answers) for each in rounds)

    return Row(
        model=model,
        server=server,
        concurrency=concurrency,
        seconds=statistics.median(each.seconds for each in rounds),
        first_audio_p50=statistics.median(first),
        first_audio_p95=first[round(0.95 * (len(first) - 1))],
        real_time_factor=statistics.median(playback.real_time_factor for playback in heard),
        audio_per_second=statistics.median(sum(a.playback.audio for a in r.answers) / r.seconds for r in rounds),
        underruns=a_round("underruns"),
        silence=a_round("silence"),
    )


def _ratio(done: dict[str, list[Round]]) -> float:
    return statistics.median(s.seconds / b.seconds for b, s in zip(done[BATCHED], done[SERIAL], strict=True))


def _check_bytes(done: dict[str, list[Round]], known: dict[int, str]) -> None:
    """Every answer to a request has the bytes of the first, whichever server made it and beside whom."""
    for each in (each for rounds in done.values() for each in rounds):
        for index, answer in enumerate(each.answers):
            if known.setdefault(index, answer.digest) != answer.digest:
                raise BenchmarkFailed(f"request {index} got other bytes than before")


def _table(model: str, rows: list[Row], ratios: dict[int, float]) -> Table:
    columns = ("seconds", "serial / batched", "first audio p50, p95 s", "RTF", "audio s / s", "underruns", "silence s")
    table = new_table(f"C requests at once over HTTP, {model} model", "server", "C", *columns)
    for r in rows:
        ratio = f"{ratios[r.concurrency]:.2f}" if r.server == SERIAL else ""
        first = f"{r.first_audio_p50:.2f}, {r.first_audio_p95:.2f}"
        rates = (f"{r.real_time_factor:.2f}", f"{r.audio_per_second:.2f}", f"{r.underruns:g}", f"{r.silence:.2f}")
        table.add_row(r.server, str(r.concurrency), f"{r.seconds:.2f}", ratio, first, *rates)
    return table


def _memory_table(model: str, peaks: dict[str, float]) -> Table:
    table = new_table(f"peak resident memory, {model} model", "process", "MiB")
    for name, peak in peaks.items():
        table.add_row(name, f"{peak:.0f}")
    return table


@dataclass(frozen=True)
class Result:
    """One model's."""

    rows: list[Row]
    serial_over_batched: dict[int, float]
    """by concurrency"""
    peak_memory_mib: dict[str, float]

    def tables(self, model: str) -> list[Table]:
        return [_table(model, self.rows, self.serial_over_batched), _memory_table(model, self.peak_memory_mib)]


def run(name: str, levels: Sequence[int], rounds: int) -> Result:
    rows, ratios, known = [], {}, {}
    with prepared(name) as model, cluster() as url:
        for server in SERVERS:
            deploy(server, url, settings(model))
        with tqdm(total=len(levels) * rounds * len(SERVERS), desc=f"end to end, {name}") as progress:
            for concurrency in levels:
                done = measure(url, concurrency, model.max_frames, rounds, progress)
                _check_bytes(done, known)
                ratios[concurrency] = _ratio(done)
                rows += [_row(name, server, concurrency, done[server]) for server in SERVERS]
        return Result(rows, ratios, peak_memory())


def main(arguments: Sequence[str] | None = None) -> None:
    plan = read_plan("end_to_end", __doc__, CONCURRENCY, arguments)
    results = {name: run(name, plan.levels, plan.rounds) for name in plan.names}
    tables = [table for name, result in results.items() for table in result.tables(name)]
    report(
        "end_to_end",
        plan.options,
        tables,
        rounds=plan.rounds,
        models={n: asdict(result) for n, result in results.items()},
    )


if __name__ == "__main__":
    main()
