"""`python -m benchmarks.depth_module`: one frame of the depth transformer at the published size, several ways.

serial: one call a row, each with its own torch.Generator. generators: one batched call, a torch.Generator a row.
counter: one batched call, Philox. unseeded: one batched call, torch's global stream. plain serial: as serial, with
torch's own linear layers and no padding, the way a model runs as it is loaded. Weights are random, bfloat16.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import torch
from rich.table import Table
from tqdm import tqdm

from benchmarks.floor import Probes, floor_of_pass
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
PLAIN = "plain serial"
BATCHED = (GENERATORS, COUNTER, UNSEEDED)
READING, COMPUTING = "reading", "computing"
SAMPLING = {GENERATORS: "sampling, generators", COUNTER: "sampling, counter"}
"""Filters and draws alone, on scores that are there."""


@dataclass(frozen=True)
class Row:
    """Medians over the rounds; ratios are taken round by round first."""

    rows: int
    ms: dict[str, float]
    serial_over: dict[str, float]
    plain_over: dict[str, float]
    sampling_share: dict[str, float]
    """filters and draws, of a batched pass with the same kind of random states"""
    read_gb_per_s: float
    matmul_gflop_per_s: float
    reading_ms: float
    computing_ms: float
    over_floor: float
    """counter over the larger of the two"""


class Batch:
    """The ways to draw one frame for `rows` rows of the same hidden states."""

    def __init__(self, depth: DepthTransformer, plain: DepthTransformer, probes: Probes, rows: int):
        config, params = depth.config, [SamplingParams()] * rows
        self._depth, self._plain, self._probes = depth, plain, probes
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
            SERIAL: lambda: self._serial(self._depth),
            PLAIN: lambda: self._serial(self._plain),
            GENERATORS: lambda: self._batched(self._generators),
            COUNTER: lambda: self._batched(self._counters),
            UNSEEDED: lambda: self._batched(None),
            SAMPLING[GENERATORS]: lambda: self._sampling(self._generators),
            SAMPLING[COUNTER]: lambda: self._sampling(self._counters),
            READING: self._probes.reading,
            COMPUTING: self._probes.computing,
        }

    def reset(self) -> None:
        for row, generator in enumerate(self._generators):
            generator.manual_seed(SEED + row)

    def _serial(self, depth: DepthTransformer) -> None:
        for row, generator in enumerate(self._generators):
            sample_frame(depth, self._hidden[row : row + 1], *self._row_params, generator)

    def _batched(self, states: Sequence[CounterState | torch.Generator] | None) -> None:
        sample_frame(self._depth, self._hidden, *self._params, states)

    @torch.inference_mode()
    def _sampling(self, states: Sequence[CounterState | torch.Generator]) -> None:
        stop, codes = self._params
        draws = Draws.from_states(states, len(self._hidden), len(self._code_logits) + 1)
        draw_codes(self._stop_logits, stop, None, draws, STOP_DRAW)
        for codebook, scores in enumerate(self._code_logits):
            draw_codes(scores, codes, None, draws, codebook + 1)


def published_depth(settled: bool = True) -> DepthTransformer:
    with torch.device("meta"):
        depth = DepthTransformer(sizes())
    fill(depth, torch.bfloat16)
    if settled:
        settle_depth(depth, Determinism.BATCH_INVARIANT, max(BATCHES))
    else:
        depth.relax()
    return depth


def _row(depth: DepthTransformer, probes: Probes, rows: int, times: Rounds) -> Row:
    def over(name: str, base: str) -> float:
        return quartiles(ratios(times, name, base))[1]

    ms = {name: quartiles(values)[1] for name, values in times.items()}
    read, matmul = probes.bytes_per_second(ms[READING] / 1000), probes.operations_per_second(ms[COMPUTING] / 1000)
    floor = floor_of_pass(depth, rows, read, matmul)
    return Row(
        rows=rows,
        ms=ms,
        serial_over={name: over(SERIAL, name) for name in BATCHED},
        plain_over={name: over(PLAIN, name) for name in BATCHED},
        sampling_share={name: over(sampling, name) for name, sampling in SAMPLING.items()},
        read_gb_per_s=read / 1e9,
        matmul_gflop_per_s=matmul / 1e9,
        reading_ms=1000 * floor.reading,
        computing_ms=1000 * floor.computing,
        over_floor=ms[COUNTER] / (1000 * floor.seconds),
    )


def _times_table(rows: list[Row]) -> Table:
    names = (PLAIN, SERIAL, *BATCHED)
    table = new_table("depth, one frame, ms", "B", *names)
    for r in rows:
        table.add_row(str(r.rows), *(f"{r.ms[name]:.1f}" for name in names))
    return table


def _ratio_table(rows: list[Row]) -> Table:
    bases = {PLAIN: "plain_over", SERIAL: "serial_over"}
    table = new_table("serial over batched", "B", *(f"{base} / {name}" for base in bases for name in BATCHED))
    for r in rows:
        table.add_row(str(r.rows), *(f"{getattr(r, field)[name]:.2f}" for field in bases.values() for name in BATCHED))
    return table


def _share_table(rows: list[Row]) -> Table:
    shares = [f"share of {name}" for name in SAMPLING.values()]
    table = new_table("limits", "B", *shares, "GB/s", "GFLOP/s", "reading ms", "computing ms", "counter / floor")
    for r in rows:
        speeds = (f"{r.read_gb_per_s:.1f}", f"{r.matmul_gflop_per_s:.0f}")
        limits = (f"{r.reading_ms:.1f}", f"{r.computing_ms:.1f}", f"{r.over_floor:.2f}")
        table.add_row(str(r.rows), *(f"{share:.1%}" for share in r.sampling_share.values()), *speeds, *limits)
    return table


def main(arguments: Sequence[str] | None = None) -> None:
    parser = option_parser("depth_module", __doc__, ROUNDS)
    parser.add_argument("--threads", type=int, default=physical_cores(), help="default: the physical cores")
    parser.add_argument("--batches", type=integers, help="for example 1,8,64")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    batches = options.batches or (QUICK_BATCHES if options.quick else BATCHES)
    depth, plain = published_depth(), published_depth(settled=False)
    probes = Probes(depth.local_transformer.h[0].mlp.fc_in)
    rows = []
    with tqdm(total=len(batches) * rounds, desc="depth module") as progress:
        for count in batches:
            batch = Batch(depth, plain, probes, count)
            rows.append(_row(depth, probes, count, measure(batch.calls, rounds, progress, batch.reset)))
    tables = (_times_table(rows), _ratio_table(rows), _share_table(rows))
    report("depth_module", options, tables, threads=options.threads, rounds=rounds, rows=[asdict(r) for r in rows])


if __name__ == "__main__":
    main()
