"""`moss-tts-serve voices`: the voices a server keeps."""

import mimetypes
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import httpx
import typer

from cli.errors import CommandFailed, UsageError
from cli.server import DEFAULT_URL, Key, Url, check_success, connection, printable

PATH = "/v1/audio/voices"
_SECONDS = 60.0

app = typer.Typer(help="List, add and remove the voices of a server.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Name of the voice.", show_default=False)]


@app.command("list")
def list_voices(url: Url = DEFAULT_URL, key: Key = None) -> None:
    """Print the names a request may give as --voice, one a line."""
    with connection(url, key, _SECONDS) as client:
        response = client.get(PATH)
        check_success(response)
    for name in _names(response):
        print(printable(name))


@app.command()
def add(
    name: Name,
    file: Annotated[
        Path,
        typer.Argument(
            help="A clip of the voice, 1 to 30 s, in any usual audio format.",
            exists=True,
            dir_okay=False,
            readable=True,
            show_default=False,
        ),
    ],
    ref_text: Annotated[str | None, typer.Option(help="What the clip says.")] = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Upload a clip as a new voice."""
    kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    fields = {"name": name} if ref_text is None else {"name": name, "ref_text": ref_text}
    with connection(url, key, _SECONDS) as client, file.open("rb") as clip:
        check_success(client.post(PATH, data=fields, files={"file": (file.name, clip, kind)}))
    print(f"added {printable(name)}")


@app.command()
def remove(name: Name, url: Url = DEFAULT_URL, key: Key = None) -> None:
    """Delete an uploaded voice."""
    if not name.strip("."):
        raise UsageError(f"a voice cannot be called {name!r}")  # and as part of a URL it would be another one's
    with connection(url, key, _SECONDS) as client:
        check_success(client.delete(f"{PATH}/{quote(name, safe='')}"))
    print(f"removed {printable(name)}")


def _names(response: httpx.Response) -> list[str]:
    try:
        return [str(voice["name"]) for voice in response.json()["voices"]]
    except (ValueError, KeyError, TypeError):
        raise CommandFailed("the server's answer is no list of voices; is --url right?") from None
