"""Compares ways of doing one thing within one run, so that what else the machine does falls on all of them alike."""

import math
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tqdm import tqdm

WARM_UP = 2
ROUND_SECONDS = 0.15
"""A call that is shorter than this is repeated within a round."""

Rounds = dict[str, list[float]]
"""Milliseconds a call in every round, by name."""


def measure(
    calls: Mapping[str, Callable[[], object]],
    rounds: int,
    progress: tqdm | None = None,
    before_round: Callable[[], None] = lambda: None,
) -> Rounds:
    """Times all `calls` once a round, in alternating order. The first round is thrown away; `progress` counts all."""
    repeats = {name: _repeats(call) for name, call in calls.items()}
    times: Rounds = {name: [] for name in calls}
    for turn in range(rounds):
        before_round()
        names = list(calls) if turn % 2 == 0 else list(reversed(calls))
        for name in names:
            times[name].append(_milliseconds(calls[name], repeats[name]))
        if progress is not None:
            progress.update()
    return {name: values[1:] for name, values in times.items()}


def ratios(times: Rounds, name: str, base: str) -> list[float]:
    """`name` over `base`, round by round."""
    return [value / other for value, other in zip(times[name], times[base], strict=True)]


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median, upper quartile."""
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def physical_cores() -> int:
    """Physical cores this process may use: what a run takes by default."""
    cores = set()
    for cpu in os.sched_getaffinity(0):
        siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        cores.add(siblings.read_text(encoding="ascii").strip() if siblings.exists() else str(cpu))
    return len(cores)


def _repeats(call: Callable[[], object]) -> int:
    """Warms the call up, and says how often it fits a round."""
    for _ in range(WARM_UP):
        call()
    return max(1, math.ceil(ROUND_SECONDS * 1000 / _milliseconds(call, 1)))


def _milliseconds(call: Callable[[], object], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) * 1000 / repeats
