"""`moss-tts-serve verify`: the verifier of `pipeline.verify`, with this command's server."""

import os
import sys

import typer

from cli.server import DEFAULT_URL, URL_VARIABLE

TAKES_ANY_OPTION = {"allow_extra_args": True, "ignore_unknown_options": True}


def verify(context: typer.Context) -> None:
    """Check on a live server that the same request gives the same bytes; see --help for options and exit status."""
    from pipeline.verify.__main__ import main

    sys.argv[1:] = with_url(context.args)
    raise typer.Exit(main())


def with_url(arguments: list[str]) -> list[str]:
    """The verifier knows no default server."""
    if any(each.split("=")[0] == "--url" for each in arguments):
        return arguments
    return ["--url", os.environ.get(URL_VARIABLE) or DEFAULT_URL, *arguments]
