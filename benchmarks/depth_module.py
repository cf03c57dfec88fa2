"""`python -m benchmarks.depth_module`: one frame of the depth transformer at the published size, several ways.

serial: one call a row, each with its own torch.Generator. generators: one batched call, a torch.Generator a row.
counter: one batched call, Philox. unseeded: one batched call, torch's global stream. Weights are random, bfloat16.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import torch
from rich.table import Table
from tqdm import tqdm

from benchmarks.floor import Floor, Speeds, floor_of_pass, measure_speeds
from benchmarks.published import SEED, fill, seeded, sizes
from benchmarks.results import integers, new_table, option_parser, report
from benchmarks.timing import Rounds, measure, physical_cores, quartiles, ratios
from pipeline.depth import DepthTransformer
from pipeline.determinism import Determinism, settle_depth
from pipeline.random_state import CounterState
from pipeline.request import SamplingParams
from pipeline.sampler import sample_frame
from pipeline.sampling import STOP_DRAW, Draws, FilterParams, draw_codes

BATCHES, QUICK_BATCHES = (1, 8, 16, 32, 64), (1, 16)
ROUNDS, QUICK_ROUNDS = 31, 3
SERIAL, GENERATORS, COUNTER, UNSEEDED = "serial", "generators", "counter", "unseeded"
SAMPLING = {GENERATORS: "sampling, generators", COUNTER: "sampling, counter"}
"""Filters and draws alone, on scores that are there."""


@dataclass(frozen=True)
class Row:
    """Medians over the rounds; ratios are taken round by round first."""

    rows: int
    ms: dict[str, float]
    serial_over: dict[str, float]
    sampling_share: dict[str, float]
    """filters and draws, of a batched pass with the same kind of random states"""
    floor_ms: float
    reading_ms: float
    computing_ms: float
    over_floor: float
    """counter over the floor"""


class Batch:
    """The ways to draw one frame for `rows` rows of the same hidden states."""

    def __init__(self, depth: DepthTransformer, rows: int):
        config, params = depth.config, [SamplingParams()] * rows
        self._depth = depth
        self._hidden = torch.randn(rows, config.hidden_size, generator=seeded()).to(depth.dtype)
        self._params = FilterParams.for_stop(params), FilterParams.for_codes(params)
        single = [SamplingParams()]
        self._row_params = FilterParams.for_stop(single), FilterParams.for_codes(single)
        self._stop_logits = torch.randn(rows, 2, generator=seeded()).to(depth.dtype)
        self._code_logits = [
            torch.randn(rows, size, generator=seeded()).to(depth.dtype) for size in config.codebook_sizes
        ]
        self._generators = [torch.Generator() for _ in range(rows)]
        self._counters = [CounterState(SEED + row) for row in range(rows)]

    @property
    def calls(self) -> dict[str, Callable[[], object]]:
        return {
            SERIAL: self._serial,
            GENERATORS: lambda: self._batched(self._generators),
            COUNTER: lambda: self._batched(self._counters),
            UNSEEDED: lambda: self._batched(None),
            SAMPLING[GENERATORS]: lambda: self._sampling(self._generators),
            SAMPLING[COUNTER]: lambda: self._sampling(self._counters),
        }

    def reset(self) -> None:
        for row, generator in enumerate(self._generators):
            generator.manual_seed(SEED + row)

    def _serial(self) -> None:
        for row, generator in enumerate(self._generators):
            sample_frame(self._depth, self._hidden[row : row + 1], *self._row_params, generator)

    def _batched(self, states: Sequence[CounterState | torch.Generator] | None) -> None:
        sample_frame(self._depth, self._hidden, *self._params, states)

    @torch.inference_mode()
    def _sampling(self, states: Sequence[CounterState | torch.Generator]) -> None:
        stop, codes = self._params
        draws = Draws.from_states(states, len(self._hidden), len(self._code_logits) + 1)
        draw_codes(self._stop_logits, stop, None, draws, STOP_DRAW)
        for codebook, scores in enumerate(self._code_logits):
            draw_codes(scores, codes, None, draws, codebook + 1)


def published_depth() -> DepthTransformer:
    with torch.device("meta"):
        depth = DepthTransformer(sizes())
    fill(depth, torch.bfloat16)
    settle_depth(depth, Determinism.BATCH_INVARIANT, max(BATCHES))
    return depth


def _row(rows: int, times: Rounds, floor: Floor) -> Row:
    def over(name: str, base: str) -> float:
        return quartiles(ratios(times, name, base))[1]

    ms = {name: quartiles(values)[1] for name, values in times.items()}
    return Row(
        rows=rows,
        ms=ms,
        serial_over={name: over(SERIAL, name) for name in (GENERATORS, COUNTER, UNSEEDED)},
        sampling_share={name: over(sampling, name) for name, sampling in SAMPLING.items()},
        floor_ms=1000 * floor.seconds,
        reading_ms=1000 * floor.reading,
        computing_ms=1000 * floor.computing,
        over_floor=ms[COUNTER] / (1000 * floor.seconds),
    )


def _times_table(rows: list[Row]) -> Table:
    names = (SERIAL, GENERATORS, COUNTER, UNSEEDED)
    table = new_table("depth, one frame, ms", "B", *names, *(f"serial / {name}" for name in names[1:]))
    for r in rows:
        table.add_row(
            str(r.rows), *(f"{r.ms[name]:.1f}" for name in names), *(f"{r.serial_over[n]:.2f}" for n in names[1:])
        )
    return table


def _share_table(rows: list[Row], speeds: Speeds) -> Table:
    title = f"read {speeds.read / 1e9:.1f} GB/s, matmul {speeds.matmul / 1e9:.0f} GFLOP/s"
    shares = [f"share of {name}" for name in SAMPLING.values()]
    table = new_table(title, "B", *shares, "reading ms", "computing ms", "counter / floor")
    for r in rows:
        limits = (f"{r.reading_ms:.1f}", f"{r.computing_ms:.1f}", f"{r.over_floor:.2f}")
        table.add_row(str(r.rows), *(f"{share:.1%}" for share in r.sampling_share.values()), *limits)
    return table


def main(arguments: Sequence[str] | None = None) -> None:
    parser = option_parser("depth_module", __doc__, ROUNDS)
    parser.add_argument("--threads", type=int, default=physical_cores(), help="default: the physical cores")
    parser.add_argument("--batches", type=integers, help="for example 1,8,64")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    batches = options.batches or (QUICK_BATCHES if options.quick else BATCHES)
    depth = published_depth()
    speeds = measure_speeds(depth.local_transformer.h[0].mlp.fc_in)
    rows = []
    with tqdm(total=len(batches) * rounds, desc="depth module") as progress:
        for count in batches:
            batch = Batch(depth, count)
            times = measure(batch.calls, rounds, progress, batch.reset)
            rows.append(_row(count, times, floor_of_pass(depth, count, speeds)))
    run = {"threads": options.threads, "rounds": rounds, "speeds": asdict(speeds), "rows": [asdict(r) for r in rows]}
    report("depth_module", options, (_times_table(rows), _share_table(rows, speeds)), **run)


if __name__ == "__main__":
    main()
