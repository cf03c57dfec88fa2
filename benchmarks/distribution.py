"""`python -m benchmarks.distribution`: the price of three deployments beside one process, for the same jobs.

`pipeline.speech.Speech` in this process takes turns with the deployments codec, backbone and depth, which are called
through the handle of the codec, without HTTP. Torch has as many threads in either. The audio must have the same bytes.
First a tiny random model, whose passes take a few milliseconds, then one of the published width with few layers.
What a depth call costs beyond the pass that answers it, is its way there and back and its wait for the pass before.
"""

import hashlib
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass

import torch
from ray import serve
from rich.table import Table
from tqdm import tqdm

from benchmarks.models import prepared, read_plan
from benchmarks.results import BenchmarkFailed, new_table, report
from benchmarks.serving import BATCHED, check_health, cluster, deploy, settings
from benchmarks.timing import Rounds, quartiles, ratios
from benchmarks.workload import jobs
from deployments.settings import DTYPES
from pipeline.codec_service import AudioChunk
from pipeline.config import CodecConfig
from pipeline.request import SpeechJob
from pipeline.speech import Speech

ONE, THREE = "one process", "three deployments"
CONCURRENCY = (1, 16, 32)

Stream = Callable[[SpeechJob], Iterable[AudioChunk]]


@dataclass(frozen=True)
class Row:
    """Medians over the rounds; the ratio, of throughputs, is taken round by round first."""

    concurrency: int
    seconds: dict[str, float]
    audio_per_second: dict[str, float]
    three_over_one: float
    step_ms: float
    """of a depth call from the backbone, there and back"""
    pass_ms: float
    """of the depth pass that answers it"""


@dataclass(frozen=True)
class Spoken:
    seconds: float
    digest: str


class Calls:
    """Depth calls of the application `batched`, as both ends count them."""

    def __init__(self):
        self._ends = [serve.get_deployment_handle(name, BATCHED) for name in ("Backbone", "DepthSampler")]

    def start(self) -> None:
        self._before = self._read()

    def milliseconds(self) -> tuple[float, float]:
        """Of a call and of a pass since the start, means."""
        calls, call_seconds, passes, pass_seconds = (
            now - before for now, before in zip(self._read(), self._before, strict=True)
        )
        return 1000 * call_seconds / calls, 1000 * pass_seconds / passes

    def _read(self) -> tuple[float, ...]:
        backbone, depth = (end.stats.remote().result() for end in self._ends)
        return backbone["depth_calls"], backbone["depth_seconds"], depth["passes"], depth["seconds"]


def speak_all(stream: Stream, work: list[SpeechJob], rate: int) -> tuple[float, list[Spoken]]:
    """Wall time of all jobs at once, and their audio."""
    with ThreadPoolExecutor(len(work)) as pool:
        began = time.perf_counter()
        spoken = list(pool.map(lambda job: _listen(stream(job), rate), work))
        return time.perf_counter() - began, spoken


def measure(
    streams: dict[str, Stream],
    work: list[SpeechJob],
    rate: int,
    rounds: int,
    calls: Calls,
    turn_done: Callable[[], None],
) -> Row:
    """The first round is thrown away."""
    calls.start()
    times: Rounds = {name: [] for name in streams}
    audio: list[list[Spoken]] = []
    for turn in range(rounds):
        for name in streams if turn % 2 == 0 else reversed(streams):
            seconds, spoken = speak_all(streams[name], work, rate)
            audio.append(spoken)
            times[name].append(seconds)
            turn_done()
    if any(spoken != audio[0] for spoken in audio):
        raise BenchmarkFailed("the same jobs got different audio")
    times = {name: values[1:] for name, values in times.items()}
    length = sum(spoken.seconds for spoken in audio[0])
    medians = {name: statistics.median(values) for name, values in times.items()}
    step_ms, pass_ms = calls.milliseconds()
    return Row(
        concurrency=len(work),
        seconds=medians,
        audio_per_second={name: length / seconds for name, seconds in medians.items()},
        three_over_one=quartiles(ratios(times, ONE, THREE))[1],
        step_ms=step_ms,
        pass_ms=pass_ms,
    )


def _listen(chunks: Iterable[AudioChunk], rate: int) -> Spoken:
    samples, digest = 0, hashlib.sha256()
    for chunk in chunks:
        samples += chunk.samples.shape[1]
        digest.update(chunk.samples.tobytes())
    return Spoken(samples / rate, digest.hexdigest())


def _table(model: str, rows: list[Row]) -> Table:
    columns = [f"{name}, {unit}" for unit in ("s", "audio s / s") for name in (ONE, THREE)]
    ratio = ("throughput, three / one", "depth call ms", "depth pass ms")
    table = new_table(f"the same jobs, {model} model", "C", *columns, *ratio)
    for r in rows:
        numbers = (*r.seconds.values(), *r.audio_per_second.values(), r.three_over_one, r.step_ms, r.pass_ms)
        table.add_row(str(r.concurrency), *(f"{number:.2f}" for number in numbers))
    return table


def run(name: str, levels: Sequence[int], rounds: int) -> list[Row]:
    with prepared(name) as model, cluster() as url:
        torch.set_num_threads(model.threads)
        options = {"limits": settings(model).backbone.limits, "dtype": DTYPES[model.dtype]}
        codec = CodecConfig.load(model.directory / "codec")
        work = jobs(max(levels), model.max_frames, codec)
        deploy(BATCHED, url, settings(model))
        handle = serve.get_deployment_handle("CodecDecoder", BATCHED).options(stream=True)
        with Speech.load(model.directory, **options) as speech:
            streams = {ONE: speech.generate, THREE: lambda job: handle.stream.remote(job)}
            with tqdm(total=len(levels) * rounds * len(streams), desc=f"distribution, {name}") as progress:

                def turn_done() -> None:
                    check_health(url, BATCHED)
                    progress.update()

                calls, rate = Calls(), codec.sampling_rate
                return [measure(streams, work[:count], rate, rounds, calls, turn_done) for count in levels]


def main(arguments: Sequence[str] | None = None) -> None:
    plan = read_plan("distribution", __doc__, CONCURRENCY, arguments)
    results = {name: run(name, plan.levels, plan.rounds) for name in plan.names}
    tables = [_table(name, rows) for name, rows in results.items()]
    models = {name: [asdict(row) for row in rows] for name, rows in results.items()}
    report("distribution", plan.options, tables, rounds=plan.rounds, models=models)


if __name__ == "__main__":
    main()
