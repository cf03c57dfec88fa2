"""The server a command talks to: its address, its key, and what its refusals mean."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import httpx
import typer

from cli.errors import CannotConnect, CommandFailed
from pipeline.verify.server_url import EXAMPLE, KEY_VARIABLE, server_url

DEFAULT_URL = EXAMPLE
URL_VARIABLE = "MOSS_TTS_URL"

_CONNECT_SECONDS = 10.0
_LONGEST_MESSAGE = 2000


def _checked_url(value: str) -> str:
    try:
        return server_url(value)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def _checked_key(value: str | None) -> str | None:
    if value and not (value.isascii() and value.isprintable()):
        raise typer.BadParameter("a key has printable ASCII characters only")
    return value


Url = Annotated[
    str,
    typer.Option(envvar=URL_VARIABLE, callback=_checked_url, help="The server, with or without /v1."),
]
Key = Annotated[
    str | None,
    typer.Option(
        envvar=KEY_VARIABLE,
        callback=_checked_key,
        help="Bearer key, where the server asks for one; others on this machine see what is on a command line.",
    ),
]


@contextmanager
def connection(url: str, key: str | None, timeout: float) -> Iterator[httpx.Client]:
    """A client of the server. `timeout` (s) bounds each wait for bytes.

    What goes wrong inside is raised as CannotConnect, or CommandFailed for an answer that does not come to its end.
    """
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        with httpx.Client(
            base_url=url, headers=headers, timeout=httpx.Timeout(timeout, connect=_CONNECT_SECONDS)
        ) as client:
            yield client
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        words = str(error) or "no answer"
        message = (
            f"cannot reach {url} ({words}); start a server with `moss-tts-serve serve configs/embedded.yaml`, "
            f"or name another one with --url or {URL_VARIABLE}"
        )
        raise CannotConnect(message) from None
    except httpx.TimeoutException:
        raise CommandFailed(f"the server sent nothing for {timeout:g} s; it may be overloaded, or stuck") from None
    except httpx.HTTPError as error:
        words = str(error) or type(error).__name__
        raise CommandFailed(f"the server broke its answer off ({words}); its log may say why") from None


def check_success(response: httpx.Response) -> None:
    """Raises CommandFailed with the server's own words for any status but 2xx."""
    if response.is_success:
        return
    response.read()
    hint = ""
    if response.status_code == httpx.codes.UNAUTHORIZED:
        hint = f"; give it with --key or {KEY_VARIABLE}"
    elif (seconds := response.headers.get("retry-after", "")).isdecimal():
        hint = f"; try again in {seconds} s"
    raise CommandFailed(f"the server answered {response.status_code}: {_message(response)}{hint}")


def printable(text: str) -> str:
    """One line without control characters: what a server sends must not steer a terminal."""
    return "".join(character if character.isprintable() else " " for character in text)


def _message(response: httpx.Response) -> str:
    """What the server said, in OpenAI's shape or any other."""
    try:
        text = str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        text = response.text
    return printable(text[:_LONGEST_MESSAGE]).strip() or "(without a message)"
