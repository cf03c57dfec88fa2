"""What every benchmark shares: its options, its table and the file of its numbers."""

import argparse
import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
DIRECTORY = Path(__file__).parent / "results"
_PLAIN_WIDTH = 160


class BenchmarkFailed(Exception):
    """The server refused, broke off or was not healthy: there is nothing to report."""


def option_parser(name: str, description: str, rounds: int) -> argparse.ArgumentParser:
    """`--quick`, `--rounds` (None means the benchmark's default) and `--output`."""
    parser = argparse.ArgumentParser(prog=f"benchmarks.{name}", description=description.split(":", 1)[1])
    parser.add_argument("--quick", action="store_true", help="fewer sizes and rounds, for a first look")
    parser.add_argument("--rounds", type=_at_least_two, help=f"default: {rounds}; the first one is thrown away")
    parser.add_argument("--output", type=Path, help=f"default: benchmarks/results/{name}.json ({name}-quick.json)")
    return parser


def integers(value: str) -> tuple[int, ...]:
    """An option's `1,8,16`."""
    return tuple(int(part) for part in value.split(","))


def report(name: str, options: argparse.Namespace, tables: Sequence[Table], **numbers: Any) -> None:
    """Prints the tables and writes the numbers with what they were measured on."""
    console = Console()
    if not console.is_terminal:
        console.width = _PLAIN_WIDTH
    for table in tables:
        console.print(table)
    path = options.output or DIRECTORY / f"{name}{'-quick' if options.quick else ''}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(_machine() | numbers, indent=1) + "\n", encoding="utf-8")


def new_table(title: str, *columns: str) -> Table:
    """Names on the left, numbers on the right."""
    table = Table(*columns, title=title)
    for column in table.columns[1:]:
        column.justify = "right"
        column.no_wrap = True
    return table


def _machine() -> dict[str, Any]:
    return {
        "torch": torch.__version__,
        "machine": platform.machine(),
        "cpus": len(os.sched_getaffinity(0)),
        "load_average": os.getloadavg()[0],
    }


def _at_least_two(value: str) -> int:
    if not value.isdecimal() or int(value) < 2:
        raise argparse.ArgumentTypeError(f"must be a whole number from 2 on, not {value!r}")
    return int(value)
