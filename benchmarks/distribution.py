"""`python -m benchmarks.distribution`: the price of three deployments beside one process, for the same jobs.

`pipeline.speech.Speech` in this process takes turns with the deployments codec, backbone and depth, which are called
through the handle of the codec, without HTTP. Torch has one thread in either. The audio must have the same bytes.
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

from benchmarks.results import BenchmarkFailed, integers, new_table, option_parser, report
from benchmarks.serving import BATCHED, EMBEDDED, check_health, cluster, deploy, settings
from benchmarks.timing import Rounds, quartiles, ratios
from benchmarks.workload import jobs
from pipeline.codec_service import AudioChunk
from pipeline.config import CodecConfig
from pipeline.request import SpeechJob
from pipeline.speech import Speech

ONE, THREE = "one process", "three deployments"
CONCURRENCY, QUICK_CONCURRENCY = (1, 16, 32), (1, 16)
ROUNDS, QUICK_ROUNDS = 5, 3
MAX_FRAMES = 50

Stream = Callable[[SpeechJob], Iterable[AudioChunk]]


@dataclass(frozen=True)
class Row:
    """Medians over the rounds; the ratio, of throughputs, is taken round by round first."""

    concurrency: int
    seconds: dict[str, float]
    audio_per_second: dict[str, float]
    three_over_one: float


@dataclass(frozen=True)
class Spoken:
    seconds: float
    digest: str


def speak_all(stream: Stream, work: list[SpeechJob]) -> tuple[float, list[Spoken]]:
    """Wall time of all jobs at once, and their audio."""
    with ThreadPoolExecutor(len(work)) as pool:
        began = time.perf_counter()
        spoken = list(pool.map(lambda job: _listen(stream(job)), work))
        return time.perf_counter() - began, spoken


def measure(streams: dict[str, Stream], work: list[SpeechJob], rounds: int, turn_done: Callable[[], None]) -> Row:
    """The first round is thrown away."""
    times: Rounds = {name: [] for name in streams}
    audio: list[list[Spoken]] = []
    for turn in range(rounds):
        for name in streams if turn % 2 == 0 else reversed(streams):
            seconds, spoken = speak_all(streams[name], work)
            audio.append(spoken)
            times[name].append(seconds)
            turn_done()
    if any(spoken != audio[0] for spoken in audio):
        raise BenchmarkFailed("the same jobs got different audio")
    times = {name: values[1:] for name, values in times.items()}
    length = sum(spoken.seconds for spoken in audio[0])
    medians = {name: statistics.median(values) for name, values in times.items()}
    return Row(
        concurrency=len(work),
        seconds=medians,
        audio_per_second={name: length / seconds for name, seconds in medians.items()},
        three_over_one=quartiles(ratios(times, ONE, THREE))[1],
    )


def _listen(chunks: Iterable[AudioChunk]) -> Spoken:
    samples, digest = 0, hashlib.sha256()
    for chunk in chunks:
        samples += chunk.samples.shape[1]
        digest.update(chunk.samples.tobytes())
    return Spoken(samples / CodecConfig.load(EMBEDDED / "codec").sampling_rate, digest.hexdigest())


def _table(rows: list[Row]) -> Table:
    columns = [f"{name}, {unit}" for unit in ("s", "audio s / s") for name in (ONE, THREE)]
    table = new_table("the same jobs, embedded model", "C", *columns, "throughput, three / one")
    for r in rows:
        numbers = (*r.seconds.values(), *r.audio_per_second.values(), r.three_over_one)
        table.add_row(str(r.concurrency), *(f"{number:.2f}" for number in numbers))
    return table


def main(arguments: Sequence[str] | None = None) -> None:
    parser = option_parser("distribution", __doc__, ROUNDS)
    parser.add_argument("--concurrency", type=integers, help="for example 1,16; at most 64")
    options = parser.parse_args(arguments)
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    levels = options.concurrency or (QUICK_CONCURRENCY if options.quick else CONCURRENCY)
    torch.set_num_threads(1)
    work = jobs(max(levels), MAX_FRAMES, CodecConfig.load(EMBEDDED / "codec"))
    with cluster() as url, Speech.load(EMBEDDED, limits=settings().backbone.limits) as speech:
        deploy(BATCHED, url)
        handle = serve.get_deployment_handle("CodecDecoder", BATCHED).options(stream=True)
        streams = {ONE: speech.generate, THREE: lambda job: handle.stream.remote(job)}
        with tqdm(total=len(levels) * rounds * len(streams), desc="distribution") as progress:

            def turn_done() -> None:
                check_health(url, BATCHED)
                progress.update()

            rows = [measure(streams, work[:count], rounds, turn_done) for count in levels]
    report("distribution", options, [_table(rows)], rounds=rounds, rows=[asdict(r) for r in rows])


if __name__ == "__main__":
    main()
