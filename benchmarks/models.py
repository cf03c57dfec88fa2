"""The checkpoints that are served: a tiny random one, and one of the published width with few layers."""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.published import raw_sizes
from benchmarks.results import ROOT, integers, option_parser
from benchmarks.timing import physical_cores
from pipeline.random_checkpoint import codec_config, write_checkpoint

TINY, WIDE = "tiny", "published-width"
MODELS, QUICK_MODELS = (TINY, WIDE), (TINY,)
QUICK_CONCURRENCY = (1, 16)
ROUNDS, QUICK_ROUNDS = 5, 3


@dataclass(frozen=True)
class Model:
    directory: Path
    """holds tts/ and codec/"""
    dtype: str
    threads: int
    """of backbone and depth; the codec has one"""
    max_frames: int
    """of a request: less where a frame takes long"""


@dataclass(frozen=True)
class Plan:
    """What a benchmark of served models was asked for."""

    options: argparse.Namespace
    names: Sequence[str]
    levels: Sequence[int]
    """of concurrency"""
    rounds: int


def read_plan(
    benchmark: str, description: str, concurrency: Sequence[int], arguments: Sequence[str] | None = None
) -> Plan:
    """From the command line; all models and levels unless told otherwise, few of them for `--quick`."""
    parser = option_parser(benchmark, description, ROUNDS)
    parser.add_argument("--concurrency", type=integers, help="for example 1,16; at most 64")
    parser.add_argument("--models", type=lambda value: value.split(","), help=f"of {','.join(MODELS)}")
    options = parser.parse_args(arguments)
    return Plan(
        options,
        names=options.models or (QUICK_MODELS if options.quick else MODELS),
        levels=options.concurrency or (QUICK_CONCURRENCY if options.quick else concurrency),
        rounds=options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS),
    )


@contextmanager
def prepared(name: str) -> Iterator[Model]:
    """The model of this name; the wide one is written for the occasion, with random weights."""
    if name == TINY:
        yield Model(ROOT / "models" / "random", "float32", 1, 50)
        return
    with TemporaryDirectory() as directory:
        write_checkpoint(directory, raw_sizes(), codec_config(codebook_size=1024))
        yield Model(Path(directory), "bfloat16", physical_cores(), 12)
