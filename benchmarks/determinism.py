"""`python -m benchmarks.determinism`: what `determinism: batch_invariant` costs beside `relaxed`, part by part.

Both modes run on the same weights and take turns within one run. Weights are random and made in memory; the widths are
those of the published checkpoint, the layers of the backbone few: its price is the same in every layer.
"""

import argparse
import copy
import json
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
from torch import nn
from tqdm import tqdm
from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

from benchmarks.published import SEED, fill, seeded, sizes
from benchmarks.timing import measure, physical_cores, quartiles, ratios
from pipeline.attention import Span
from pipeline.backbone import Backbone
from pipeline.codec import CodecDecoder, CodecEncoder
from pipeline.config import CodecConfig, ModelConfig
from pipeline.depth import DepthTransformer
from pipeline.determinism import Determinism, settle_backbone, settle_codec, settle_depth
from pipeline.engine import EngineLimits
from pipeline.kv_blocks import BlockTable
from pipeline.random_state import CounterState
from pipeline.request import SamplingParams
from pipeline.sampler import sample_frame
from pipeline.sampling import FilterParams

BATCHES = (1, 4, 16, 64)
CONTEXT = 300
CODEC_STEP_FRAMES = 4
ROOT = Path(__file__).parent
INVARIANT, RELAXED = Determinism.BATCH_INVARIANT.value, Determinism.RELAXED.value

Calls = dict[str, Callable[[], object]]
Part = tuple[str, Callable[[int], Calls]]
"""A title, and for a number of rows the calls to compare."""


@dataclass(frozen=True)
class Price:
    """Medians over the rounds of one run; `price` is invariant over relaxed minus 1, from the ratio of each round."""

    part: str
    rows: int
    invariant_ms: float
    relaxed_ms: float
    price: float
    price_quartiles: tuple[float, float]


def depth_part(config: ModelConfig, dtype: torch.dtype) -> Part:
    """Whole frames: n_vq positions and n_vq + 1 draws."""
    with torch.device("meta"):
        depth = DepthTransformer(config)
    models = _both_modes(fill(depth, dtype), settle_depth)

    def calls(rows: int) -> Calls:
        hidden = torch.randn(rows, config.hidden_size, generator=seeded()).to(dtype)
        states = [CounterState(SEED + row) for row in range(rows)]
        params = [SamplingParams()] * rows
        stop, codes = FilterParams.for_stop(params), FilterParams.for_codes(params)
        return {name: lambda m=model: sample_frame(m, hidden, stop, codes, states) for name, model in models.items()}

    return _title("depth", config, dtype), calls


def backbone_part(config: ModelConfig, dtype: torch.dtype) -> Part:
    """Decode steps, one new row a sequence, always at the same positions of a random cache."""
    with torch.device("meta"):
        backbone = Backbone(config)
    fill(backbone, dtype).transformer.rotary_emb = Qwen3RotaryEmbedding(config.backbone)
    models = _both_modes(backbone, partial(settle_backbone, block_size=EngineLimits.block_size))

    def calls(rows: int) -> Calls:
        lengths = [CONTEXT + row % 16 for row in range(rows)]
        size = EngineLimits.block_size
        kv = backbone.new_kv_blocks(sum(-(-(length + 1) // size) for length in lengths), size)
        for cache in (kv.keys, kv.values):
            cache.normal_(generator=seeded())
        spans = [Span(BlockTable(), length, 1) for length in lengths]
        for span in spans:
            kv.extend(span.table, span.start + 1)
        inputs = torch.randint(0, min(config.codebook_sizes), (rows, 1 + config.n_vq), generator=seeded())
        inputs[:, 0] = config.tokens.assistant_slot
        return {name: lambda m=model: m(inputs, spans, kv) for name, model in models.items()}

    return _title("backbone", config, dtype), calls


def codec_part(model: Path) -> Part:
    """Steps of a few frames a stream, with full windows after the warm-up."""
    config, n_vq = CodecConfig.load(model / "codec"), ModelConfig.load(model / "tts").n_vq

    most = {"max_streams": max(BATCHES), "max_step_frames": CODEC_STEP_FRAMES}
    encoder = CodecEncoder.load(model / "codec", config, max_step_frames=CODEC_STEP_FRAMES)
    decoders = {name: CodecDecoder.load(model / "codec", config, n_vq=n_vq, **most) for name in (INVARIANT, RELAXED)}
    settle_codec(decoders[INVARIANT], encoder, Determinism.BATCH_INVARIANT)
    settle_codec(decoders[RELAXED], encoder, Determinism.RELAXED)
    opened = {name: [decoder.open() for _ in range(max(BATCHES))] for name, decoder in decoders.items()}

    def calls(rows: int) -> Calls:
        size = (CODEC_STEP_FRAMES, n_vq)
        codes = torch.randint(0, config.quantizer.codebook_size, size, generator=seeded())
        return {
            name: lambda d=decoder, streams=opened[name][:rows]: d.decode([(stream, codes) for stream in streams])
            for name, decoder in decoders.items()
        }

    return f"codec {model.name} float32", calls


PARTS: tuple[Callable[[], Part], ...] = (
    lambda: depth_part(sizes(), torch.bfloat16),
    lambda: backbone_part(sizes(), torch.bfloat16),
    lambda: backbone_part(sizes(1024, 16, 3072), torch.float32),
    lambda: codec_part(ROOT.parent / "models" / "random"),
)
"""Made one at a time: the weights of one are gone before the next."""
QUICK_PARTS = PARTS[:2]


def _both_modes(model: nn.Module, settle: Callable[[nn.Module, Determinism, int], None]) -> dict[str, nn.Module]:
    """The model in both modes, sharing every parameter."""
    twin = copy.deepcopy(model, {id(weight): weight for weight in model.parameters()})
    settle(model, Determinism.BATCH_INVARIANT, max(BATCHES))
    settle(twin, Determinism.RELAXED, max(BATCHES))
    return {INVARIANT: model, RELAXED: twin}


def _price(part: str, rows: int, calls: Calls, rounds: int, progress: tqdm) -> Price:
    times = measure(calls, rounds, progress)
    low, price, high = (ratio - 1 for ratio in quartiles(ratios(times, INVARIANT, RELAXED)))
    return Price(part, rows, quartiles(times[INVARIANT])[1], quartiles(times[RELAXED])[1], price, (low, high))


def _table(prices: list[Price]) -> Table:
    table = Table("part", "B", "invariant ms", "relaxed ms", "price", "quartiles", title="determinism: batch_invariant")
    for column in table.columns[1:]:
        column.justify = "right"
        column.no_wrap = True
    for p in prices:
        low, high = p.price_quartiles
        times = (f"{p.invariant_ms:.2f}", f"{p.relaxed_ms:.2f}")
        table.add_row(p.part, str(p.rows), *times, f"{p.price:+.1%}", f"{low:+.1%} .. {high:+.1%}")
    return table


def _title(part: str, config: ModelConfig, dtype: torch.dtype) -> str:
    return f"{part} {config.hidden_size} {str(dtype).removeprefix('torch.')}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.determinism", description=__doc__.split(":", 1)[1])
    parser.add_argument("--threads", type=int, default=physical_cores(), help="default: the physical cores")
    parser.add_argument("--rounds", type=int, default=21, help="the first one is thrown away")
    parser.add_argument("--quick", action="store_true", help="few rounds, published widths alone")
    parser.add_argument("--output", type=Path, default=ROOT / "results" / "determinism.json")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    parts, rounds = (QUICK_PARTS, 6) if options.quick else (PARTS, options.rounds)
    prices = []
    with tqdm(total=len(parts) * len(BATCHES) * rounds) as progress:
        for make in parts:
            title, calls = make()
            progress.set_description(title)
            prices += [_price(title, rows, calls(rows), rounds, progress) for rows in BATCHES]
    Console().print(_table(prices))
    run = {"torch": torch.__version__, "machine": platform.machine(), "threads": options.threads, "rounds": rounds}
    options.output.parent.mkdir(exist_ok=True)
    options.output.write_text(json.dumps(run | {"prices": [asdict(p) for p in prices]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
