"""The course of a check: every request alone, then all of them in crowds, then the unseeded ones again."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from rich.box import SIMPLE
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from pipeline.verify.cases import Case
from pipeline.verify.client import Answer, NoVerdict, SpeechClient, UnreadableAnswer

LEAVING = ((True, 0.2), (True, 1.0), (False, 0.2))
"""In every round, so many clients leave: whether they asked for a stream, and after how many seconds."""

_VARIED = ("ref_mode", "sample_rate", "channels", "temperature", "top_k", "top_p", "repetition_penalty")

Job = Callable[[], Awaitable[None]]


@dataclass
class Check:
    """Fills the cases with first answers and counts, and tells the console how far it is and what differs."""

    client: SpeechClient
    seeded: list[Case]
    unseeded: list[Case]
    console: Console

    async def run(self, rounds: int, concurrency: int, seed: int) -> None:
        """`seed` orders the crowds. Raises NoVerdict when the server cannot be reached or refuses."""
        drawn = random.Random(seed)
        alone = [partial(self._keep_first, case, False, "alone") for case in self.seeded]
        await self._phase("alone, one after the other", alone, 1)
        for number in range(1, rounds + 1):
            where = f"round {number}, {concurrency} at once"
            await self._phase(where, self._crowd(number, where, drawn), concurrency)
        again = [partial(self._repeat_unseeded, case) for case in self.unseeded]
        await self._phase("unseeded ones alone, with their X-Seed", again, 1)

    def _crowd(self, number: int, where: str, drawn: random.Random) -> list[Job]:
        jobs = [
            *(partial(self._compare, case, (number + index) % 2 == 1, where) for index, case in enumerate(self.seeded)),
            *(partial(self._keep_first, case, number % 2 == 0, where) for case in self.unseeded),
            *(partial(self.client.leave, drawn.choice(self.seeded).fields, *how) for how in LEAVING),
        ]
        drawn.shuffle(jobs)
        return jobs

    async def _phase(self, name: str, jobs: list[Job], most: int) -> None:
        """Runs all jobs, `most` at a time, begun in their order; the first that fails ends the others."""
        if not self.console.is_terminal:
            self.console.print(f"{name}: {len(jobs)} requests", soft_wrap=True)
        places = asyncio.Semaphore(most)

        async def run(job: Job) -> None:
            async with places:
                await job()
            progress.advance(task)

        try:
            with Progress(console=self.console, disable=not self.console.is_terminal) as progress:
                task = progress.add_task(f"{name:40}", total=len(jobs))
                async with asyncio.TaskGroup() as group:
                    for job in jobs:
                        group.create_task(run(job))
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None

    async def _keep_first(self, case: Case, stream: bool, where: str) -> None:
        case.first = await self._ask(case, stream, where)

    async def _compare(self, case: Case, stream: bool, where: str) -> None:
        try:
            difference = case.first.difference(await self._ask(case, stream, where), case.fields["seed"])
            self._judge(case, difference and f"{_which(case, stream, where)}: {difference}")
        except UnreadableAnswer as error:
            self._judge(case, str(error))

    async def _repeat_unseeded(self, case: Case) -> None:
        if not (case.first.seed or "").isdecimal():
            problem = "the answer names no seed (X-Seed), so it cannot be repeated"
            self._judge(case, f"{_which(case, False, 'unseeded')}: {problem}")
            return
        case.fields["seed"] = int(case.first.seed)
        await self._compare(case, False, "alone")

    async def _ask(self, case: Case, stream: bool, where: str) -> Answer:
        try:
            return await self.client.ask(case.fields, stream)
        except NoVerdict as error:
            raise type(error)(f"{_which(case, stream, where)}: {error}") from None

    def _judge(self, case: Case, difference: str | None) -> None:
        case.compared += 1
        if difference:
            case.different += 1
            self.console.print(Text(f"DIFFERS  {difference}", "red"), soft_wrap=True)


def _which(case: Case, stream: bool, where: str) -> str:
    way = "streamed" if stream else "whole"
    return f"request {case.name} ({way}, {where}, {case.fields['response_format']})"


def print_verdicts(console: Console, cases: list[Case]) -> None:
    """One row a request that has been answered, and the sum of them."""
    table = Table(box=SIMPLE if console.is_terminal else None, show_edge=False, header_style="bold")
    for column in ("request", "fields", "seed", "audio", "sha-256", "verdict"):
        table.add_column(column, no_wrap=column not in ("fields", "seed"), overflow="fold")
    for case in cases:
        if case.first:
            fields = [case.fields["response_format"], *(f"{n}={case.fields[n]}" for n in _VARIED if n in case.fields)]
            answer = str(case.fields.get("seed", "none")), f"{case.first.seconds:.2f} s", case.first.digest[:8]
            style = "red" if case.different else ""
            table.add_row(case.name, " ".join(fields), *answer, case.verdict, style=style)
    if table.row_count:
        console.print(table)
    compared, different = sum(case.compared for case in cases), sum(case.different for case in cases)
    if different:
        console.print(f"{different} of {compared} answers differ from the first to the same request", style="bold red")
    elif compared:
        console.print(f"all {compared} answers have the bytes of the first to the same request", style="bold green")
