"""What the person at the terminal sees: a progress bar and a table there, plain lines anywhere else."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from rich.box import SIMPLE
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from pipeline.verify.cases import Case

_PLAIN_WIDTH = 160
_VARIED = ("ref_mode", "temperature", "top_k", "top_p", "repetition_penalty")


class Report:
    def __init__(self) -> None:
        self._console = Console(highlight=False)
        self._errors = Console(highlight=False, stderr=True)
        self._bars = self._console.is_terminal
        if not self._bars:
            self._console.width = _PLAIN_WIDTH

    @contextmanager
    def phase(self, name: str, total: int) -> Iterator[Callable[[], None]]:
        """A bar of `total` steps; the value takes one step."""
        if not self._bars:
            self._line(f"{name}: {total} requests")
            yield lambda: None
            return
        columns = TextColumn("{task.description:40}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        with Progress(*columns, console=self._console) as progress:
            yield partial(progress.advance, progress.add_task(name, total=total))

    def difference(self, case: Case, way: str, difference: str) -> None:
        self._line(f"DIFFERS  request {case.name} ({way}, {case.fields['response_format']}): {difference}", "red")

    def verdicts(self, cases: list[Case]) -> None:
        """One row a request that has been answered, and the sum of them."""
        table = Table(box=SIMPLE if self._bars else None, show_edge=False, header_style="bold")
        for column in ("request", "fields", "seed", "audio", "sha-256", "verdict"):
            table.add_column(column, no_wrap=column not in ("fields", "seed"), overflow="fold")
        for case in cases:
            if case.first:
                table.add_row(*map(Text, _cells(case)), _verdict(case))
        if table.row_count:
            self._console.print(table)
        compared, different = (sum(counts) for counts in zip(*map(_counts, cases), strict=True))
        if different:
            self._line(f"{different} of {compared} answers differ from the first to the same request", "bold red")
        elif compared:
            self._line(f"all {compared} answers have the bytes of the first to the same request", "bold green")

    def failure(self, message: str) -> None:
        self._errors.print(Text(message), soft_wrap=True)

    def _line(self, text: str, style: str = "") -> None:
        self._console.print(Text(text, style=style), soft_wrap=True)


def _cells(case: Case) -> tuple[str, ...]:
    fields = case.fields
    varied = [f"{name}={fields[name]}" for name in _VARIED if name in fields]
    return (
        case.name,
        " ".join([fields["response_format"], *varied]),
        str(fields.get("seed", "none")),
        f"{case.first.seconds:.2f} s",
        case.first.digest[:8],
    )


def _verdict(case: Case) -> Text:
    compared, different = _counts(case)
    if different:
        return Text(f"DIFFERS {different}/{compared}", "red")
    return Text(f"same {compared}/{compared}", "green") if compared else Text("not compared", "yellow")


def _counts(case: Case) -> tuple[int, int]:
    return case.compared, len(case.differences)
