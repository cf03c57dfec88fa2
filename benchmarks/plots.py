"""`python -m benchmarks.plots`: pictures of the numbers that the other benchmarks have written."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot
from matplotlib.axes import Axes

from benchmarks.results import DIRECTORY

_INCHES, _DPI = (5.2, 3.6), 110


def depth_module(numbers: dict[str, Any], axes: Axes) -> None:
    rows = numbers["rows"]
    batches = [row["rows"] for row in rows]
    for name in rows[0]["ms"]:
        if "sampling" not in name and name not in ("reading", "computing"):
            axes.plot(batches, [row["ms"][name] for row in rows], marker="o", label=name)
    axes.plot(batches, [max(row["reading_ms"], row["computing_ms"]) for row in rows], "k--", label="limit")
    axes.set(xlabel="rows", ylabel="ms a frame", yscale="log", title="Depth transformer, published width")
    _powers(axes, batches)


def first_audio(numbers: dict[str, Any], axes: Axes) -> None:
    _by_server(numbers, axes, "first_audio_p95")
    axes.set(ylabel="s to first audio, p95", yscale="log", title="First audio")


def throughput(numbers: dict[str, Any], axes: Axes) -> None:
    _by_server(numbers, axes, "audio_per_second")
    axes.set(ylabel="s of audio a second", yscale="log", title="Throughput over HTTP")


def memory(numbers: dict[str, Any], axes: Axes) -> None:
    samples = numbers["memory"]
    for name in samples[0]["mib"]:
        if " " in name:
            axes.plot(
                [s["requests"] for s in samples],
                [s["mib"][name] for s in samples],
                marker="o",
                label=name.split()[1],
            )
    axes.set(xlabel="requests done", ylabel="MiB", title="Memory of the replicas")
    axes.set_ylim(bottom=0)


PLOTS = {
    "depth_module": {"depth_module": depth_module},
    "end_to_end": {"first_audio": first_audio, "throughput": throughput},
    "scaling": {"memory": memory},
}
"""By the file of numbers: the picture's name, and what draws it."""


def draw(directory: Path, suffix: str) -> list[Path]:
    """A picture beside every file of numbers that is there."""
    drawn = []
    for source, pictures in PLOTS.items():
        path = directory / f"{source}{suffix}.json"
        if not path.exists():
            continue
        numbers = json.loads(path.read_text(encoding="utf-8"))
        for name, plot in pictures.items():
            figure, axes = pyplot.subplots(figsize=_INCHES, layout="constrained")
            plot(numbers, axes)
            axes.legend(fontsize="small")
            axes.grid(alpha=0.3)
            drawn.append(directory / f"{name}{suffix}.png")
            figure.savefig(drawn[-1], dpi=_DPI)
            pyplot.close(figure)
    return drawn


def _by_server(numbers: dict[str, Any], axes: Axes, field: str) -> None:
    levels: set[int] = set()
    for model, result in numbers["models"].items():
        for server in ("batched", "serial"):
            rows = [row for row in result["rows"] if row["server"] == server]
            levels |= {row["concurrency"] for row in rows}
            axes.plot(
                [row["concurrency"] for row in rows],
                [row[field] for row in rows],
                marker="o",
                linestyle="-" if server == "batched" else ":",
                label=f"{model}, {server}",
            )
    axes.set_xlabel("requests at once")
    _powers(axes, sorted(levels))


def _powers(axes: Axes, values: Sequence[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(values, [str(value) for value in values])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.plots", description=__doc__.split(":", 1)[1])
    parser.add_argument("--quick", action="store_true", help="of the numbers of a first look")
    for path in draw(DIRECTORY, "-quick" if parser.parse_args(arguments).quick else ""):
        print(path.name)


if __name__ == "__main__":
    main()
