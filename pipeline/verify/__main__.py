"""`python -m pipeline.verify --url URL`: checks on a live server that the same request gives the same bytes.

Sends varied requests alone, one after the other; then the same ones in shuffled rounds, many at once, streamed and
whole, between unseeded requests and clients that leave early. Every answer must hold the samples of the first to the
same request, and what an unseeded request got must come again, alone, for the seed that its X-Seed named.

Speaks plain HTTP, so it can check any server of OpenAI's speech API that takes the fields used. Exit status: 0 if every
answer was the same, 1 if one differed, 2 if the server could not be reached, refused, or did not come to an end.
"""

import argparse
import asyncio
import math
import sys

import httpx

from pipeline.verify.cases import seeded_cases, unseeded_cases
from pipeline.verify.check import Check
from pipeline.verify.report import Report
from pipeline.verify.server import CONNECT_SECONDS, NoVerdict, SpeechServer

SAME, DIFFERENT, NO_VERDICT, INTERRUPTED = 0, 1, 2, 130


async def verify(arguments: argparse.Namespace) -> int:
    """The exit status. A difference found before the server gave out is still one."""
    common = {name: getattr(arguments, name) for name in ("model", "voice", "max_frames") if getattr(arguments, name)}
    seeded = seeded_cases(arguments.requests, arguments.seed, common)
    unseeded = unseeded_cases(arguments.requests, common)
    report, failure = Report(), None
    async with _client(arguments) as client:
        check = Check(SpeechServer(client, arguments.timeout), seeded, unseeded, report)
        try:
            await check.run(arguments.rounds, arguments.concurrency, arguments.seed)
        except NoVerdict as error:
            failure = error
    report.verdicts([*seeded, *unseeded])
    if failure:
        report.failure(f"stopped: {failure}")
    if any(case.differences for case in (*seeded, *unseeded)):
        return DIFFERENT
    return NO_VERDICT if failure else SAME


def _client(arguments: argparse.Namespace) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=arguments.url,
        headers={"Authorization": f"Bearer {arguments.api_key}"} if arguments.api_key else {},
        timeout=httpx.Timeout(None, connect=CONNECT_SECONDS),
        limits=httpx.Limits(max_connections=None),
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m pipeline.verify",
        description=__doc__.split(": ", 1)[1],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--url", type=_url, required=True, help="the server, with or without /v1: http://127.0.0.1:8000")
    add("--requests", type=_count, default=16, metavar="N", help="different requests (default: 16)")
    add("--concurrency", type=_count, default=8, metavar="C", help="requests at once in a round (default: 8)")
    add("--rounds", type=_count, default=3, metavar="N", help="rounds; two have each request both ways (default: 3)")
    add("--seed", type=int, default=0, metavar="S", help="of the requests' seeds and the rounds' order (default: 0)")
    add(
        "--timeout",
        type=_seconds,
        default=300.0,
        metavar="S",
        help="seconds a request may take, waits for a busy server (429, Retry-After) included (default: 300)",
    )
    add("--max-frames", type=_count, default=150, metavar="N", help="80 ms frames of audio at most (default: 150)")
    add("--model", help="name of the model, for servers that need one")
    add("--voice", help="name of the voice, for servers that need one; requests with a clip use the clip's")
    add("--api-key", type=_key, metavar="KEY", help="sent as bearer token")
    return parser.parse_args()


def _url(value: str) -> str:
    try:
        url = httpx.URL(value)
    except httpx.InvalidURL as error:
        raise argparse.ArgumentTypeError(f"{value!r} is no URL: {error}") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise argparse.ArgumentTypeError(f"must be like http://127.0.0.1:8000, not {value!r}")
    return value.rstrip("/").removesuffix("/v1")


def _count(value: str) -> int:
    if not (value.isdecimal() and int(value)):
        raise argparse.ArgumentTypeError(f"must be a whole number from 1 on, not {value!r}")
    return int(value)


def _seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"must be seconds above 0, not {value!r}")
    return seconds


def _key(value: str) -> str:
    if not (value.isascii() and value.isprintable()):
        raise argparse.ArgumentTypeError("must consist of printable ASCII characters")
    return value


def main() -> int:
    try:
        return asyncio.run(verify(_arguments()))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
