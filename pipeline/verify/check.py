"""The course of a check: every request alone, then all of them in crowds, then the unseeded ones again."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial

from pipeline.verify.answer import Answer, UnreadableAnswer
from pipeline.verify.cases import Case
from pipeline.verify.report import Report
from pipeline.verify.server import NoVerdict, SpeechServer

LEAVE_AFTER_PARTS = (1, 4)
LEAVE_AFTER_SECONDS = 0.2
"""In every round, clients leave their stream after so many parts, and one a whole answer after so long."""


class Check:
    """Fills `seeded` and `unseeded` cases with their first answers and what differed from them."""

    def __init__(self, server: SpeechServer, seeded: list[Case], unseeded: list[Case], report: Report):
        self._server = server
        self._seeded = seeded
        self._unseeded = unseeded
        self._report = report

    async def run(self, rounds: int, concurrency: int, seed: int) -> None:
        """`seed` orders the crowds. Raises NoVerdict when the server cannot be reached or refuses."""
        drawn = random.Random(seed)
        await self._alone()
        for number in range(1, rounds + 1):
            await self._crowd(number, concurrency, drawn)
        await self._repeat_unseeded()

    async def _alone(self) -> None:
        with self._report.phase("alone, one after the other", len(self._seeded)) as advance:
            for case in self._seeded:
                await self._keep_first(case, False, "alone")
                advance()

    async def _crowd(self, number: int, concurrency: int, drawn: random.Random) -> None:
        where = f"round {number}, {concurrency} at once"
        jobs = [
            *(partial(self._compare, case, (case.number + number) % 2 == 0, where) for case in self._seeded),
            *(partial(self._keep_first, case, number % 2 == 0, where) for case in self._unseeded),
            *(partial(self._server.leave_stream, drawn.choice(self._seeded).fields, n) for n in LEAVE_AFTER_PARTS),
            partial(self._server.leave_whole, drawn.choice(self._seeded).fields, LEAVE_AFTER_SECONDS),
        ]
        drawn.shuffle(jobs)
        with self._report.phase(where, len(jobs)) as advance:
            await _at_once(jobs, concurrency, advance)

    async def _repeat_unseeded(self) -> None:
        """Alone, with the seed that the last answer to each of them named."""
        with self._report.phase("unseeded ones alone, with their X-Seed", len(self._unseeded)) as advance:
            for case in self._unseeded:
                seed = case.first.seed or ""
                if seed.isdecimal():
                    case.fields["seed"] = int(seed)
                    await self._compare(case, False, "alone")
                else:
                    self._judge(case, "unseeded", "the answer names no seed (X-Seed), so it cannot be repeated")
                advance()

    async def _keep_first(self, case: Case, stream: bool, where: str) -> None:
        try:
            case.first = await self._ask(case, stream, where)
        except UnreadableAnswer as error:
            raise NoVerdict(f"request {case.name} ({_way(stream, where)}): {error}") from None

    async def _compare(self, case: Case, stream: bool, where: str) -> None:
        try:
            answer = await self._ask(case, stream, where)
            difference = case.first.difference(answer) or _other_seed(case, answer)
        except UnreadableAnswer as error:
            difference = str(error)
        self._judge(case, _way(stream, where), difference)

    async def _ask(self, case: Case, stream: bool, where: str) -> Answer:
        try:
            return await self._server.ask(case.fields, stream=stream)
        except NoVerdict as error:
            raise NoVerdict(f"request {case.name} ({_way(stream, where)}): {error}") from None

    def _judge(self, case: Case, way: str, difference: str | None) -> None:
        case.compared += 1
        if difference:
            case.differences.append(difference)
            self._report.difference(case, way, difference)


async def _at_once(jobs: list[Callable[[], Awaitable[None]]], most: int, advance: Callable[[], None]) -> None:
    """Runs all jobs, `most` at a time; the first that fails ends the others."""
    places = asyncio.Semaphore(most)

    async def run(job: Callable[[], Awaitable[None]]) -> None:
        async with places:
            await job()
        advance()

    try:
        async with asyncio.TaskGroup() as group:
            for job in jobs:
                group.create_task(run(job))
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None


def _other_seed(case: Case, answer: Answer) -> str | None:
    asked = str(case.fields["seed"])
    return None if answer.seed in (None, asked) else f"X-Seed says {answer.seed[:80]}, asked for was {asked}"


def _way(stream: bool, where: str) -> str:
    return f"{'streamed' if stream else 'whole'}, {where}"
