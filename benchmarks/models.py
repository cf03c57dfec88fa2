"""The checkpoints that are served: the embedded model, and one of the published width with few layers."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.published import raw_sizes
from benchmarks.results import ROOT
from benchmarks.timing import physical_cores
from pipeline.random_checkpoint import codec_config, write_checkpoint

EMBEDDED, WIDE = "embedded", "published-width"


@dataclass(frozen=True)
class Model:
    directory: Path
    """holds tts/ and codec/"""
    dtype: str
    threads: int
    """of backbone and depth; the codec has one"""
    max_frames: int
    """of a request: less where a frame takes long"""


@contextmanager
def prepared(name: str) -> Iterator[Model]:
    """The model of this name; the wide one is written for the occasion, with random weights."""
    if name == EMBEDDED:
        yield Model(ROOT / "models" / "embedded", "float32", 1, 50)
        return
    with TemporaryDirectory() as directory:
        write_checkpoint(directory, raw_sizes(), codec_config(codebook_size=1024))
        yield Model(Path(directory), "bfloat16", physical_cores(), 12)
