"""`python -m pipeline.verify --url URL`: checks on a live server that the same request gives the same bytes.

Sends varied requests alone, one after the other; then the same ones in shuffled rounds, many at once, streamed and
whole, between unseeded requests and clients that leave early. Every answer must hold the samples of the first to the
same request, and what an unseeded request got must come again, alone, for the seed that its X-Seed named.

Exit status: 0 if every answer was the same, 1 if one differed, 2 if the server could not be reached, refused, or did
not come to an end.
"""

import argparse
import asyncio
import math
import os
import sys

import httpx
from rich.console import Console

from pipeline.verify.cases import seeded_cases, unseeded_cases
from pipeline.verify.check import Check, print_verdicts
from pipeline.verify.client import NoVerdict, SpeechClient
from pipeline.verify.server_url import KEY_VARIABLE, server_url

SAME, DIFFERENT, NO_VERDICT, INTERRUPTED = 0, 1, 2, 130
_PLAIN_WIDTH = 160


async def verify(arguments: argparse.Namespace) -> int:
    """The exit status. A difference found before the server gave out is still one."""
    common = {name: getattr(arguments, name) for name in ("model", "voice", "max_frames") if getattr(arguments, name)}
    seeded = seeded_cases(arguments.requests, arguments.seed, common)
    unseeded = unseeded_cases(arguments.requests, common)
    width = None if sys.stdout.isatty() else _PLAIN_WIDTH
    console, failure = Console(width=width, highlight=False, markup=False, emoji=False), None
    timeout, limits = httpx.Timeout(None, connect=10.0), httpx.Limits(max_connections=None)
    headers = {"Authorization": f"Bearer {arguments.key}"} if arguments.key else {}
    async with httpx.AsyncClient(base_url=arguments.url, headers=headers, timeout=timeout, limits=limits) as http:
        check = Check(SpeechClient(http, arguments.timeout), seeded, unseeded, console)
        try:
            await check.run(arguments.rounds, arguments.concurrency, arguments.seed)
        except NoVerdict as error:
            failure = error
    print_verdicts(console, [*seeded, *unseeded])
    if failure:
        print(f"stopped: {failure}", file=sys.stderr)
    if any(case.different for case in (*seeded, *unseeded)):
        return DIFFERENT
    return NO_VERDICT if failure else SAME


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m pipeline.verify",
        description=__doc__.split(": ", 1)[1],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--url", type=_url, required=True, help="the server, with or without /v1: http://127.0.0.1:8000")
    add("--requests", type=int, default=16, metavar="N", help="different requests (default: 16)")
    add("--concurrency", type=int, default=8, metavar="C", help="requests at once in a round (default: 8)")
    add("--rounds", type=int, default=3, metavar="N", help="rounds; two have each request both ways (default: 3)")
    add("--seed", type=int, default=0, metavar="S", help="of the requests' seeds and the rounds' order (default: 0)")
    waits = "seconds a request may take, waits for a busy server (429, Retry-After) included (default: 300)"
    add("--timeout", type=float, default=300.0, metavar="S", help=waits)
    add("--max-frames", type=int, default=150, metavar="N", help="80 ms frames of audio at most (default: 150)")
    add("--key", default=os.environ.get(KEY_VARIABLE), help=f"bearer key, where one is needed (or {KEY_VARIABLE})")
    add("--model", help="name of the model, where the server needs one")
    add("--voice", help="name of the voice; requests with a clip use the clip's")
    arguments = parser.parse_args()
    for name in ("requests", "concurrency", "rounds", "timeout", "max_frames"):
        value, option = getattr(arguments, name), "--" + name.replace("_", "-")
        if not 0 < value < math.inf:
            parser.error(f"argument {option}: must be finite and above 0, not {value}")
    return arguments


def _url(value: str) -> str:
    try:
        return server_url(value)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def main() -> int:
    try:
        return asyncio.run(verify(_arguments()))
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
