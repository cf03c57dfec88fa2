"""`moss-tts-serve serve`: a server in the foreground."""

import signal
import socket
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
import yaml

from cli.errors import CommandFailed, UsageError

DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 8000


def serve(
    config: Annotated[
        Path,
        typer.Argument(
            help="A settings file (configs/embedded.yaml), or a Serve config (serve_config.yaml), "
            "which has `applications`.",
            exists=True,
            dir_okay=False,
            readable=True,
            show_default=False,
        ),
    ],
    host: Annotated[
        str | None, typer.Option(help=f"Address to listen on; {DEFAULT_HOST} unless given.", show_default=False)
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, help=f"Port to listen on; {DEFAULT_PORT} unless given.", show_default=False),
    ] = None,
) -> None:
    """Serve until Ctrl-C or SIGTERM; streams under way then break off, so that they cannot pass for whole ones."""
    if "applications" in _document(config):
        if host is not None or port is not None:
            raise UsageError(f"{config} is a Serve config, which says host and port itself, in http_options")
        _serve_run(config)
        return
    host, port = host or DEFAULT_HOST, port or DEFAULT_PORT
    _check_settings(config)
    _check_free(host, port)
    print(f"serving {config} on {host}:{port}, once /ready answers; Ctrl-C ends it", file=sys.stderr)
    with TemporaryDirectory(prefix="moss-tts-") as directory:
        written = Path(directory, "serve_config.yaml")
        written.write_text(yaml.safe_dump(serve_config(config, host, port)), encoding="utf-8")
        _serve_run(written)


def serve_config(settings: Path, host: str, port: int) -> dict[str, Any]:
    """What serve_config.yaml says, for another settings file and address."""
    application = {
        "name": "speech",
        "route_prefix": "/",
        "import_path": "deployments.app:build",
        "args": {"config": str(settings.resolve())},
    }
    return {"http_options": {"host": host, "port": port}, "applications": [application]}


def _document(config: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(config.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{config} is not valid YAML: {error}") from None
    if not isinstance(document, dict):
        raise UsageError(f"{config} is neither a settings file nor a Serve config")
    return document


def _check_settings(config: Path) -> None:
    """Here rather than in the cluster, where an error is one line among many."""
    from deployments.settings import ConfigError, Settings

    try:
        Settings.load(config)
    except ConfigError as error:
        raise UsageError(str(error)) from None


def _check_free(host: str, port: int) -> None:
    """Ray would go on without its proxy."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # what a last server left in TIME_WAIT is free
            probe.bind((host, port))
    except OSError as error:
        raise CommandFailed(f"cannot listen on {host}:{port}: {error.strerror}; choose another --port") from None


def _serve_run(config: Path) -> None:
    """Raises CommandFailed if the server ends before Ctrl-C or SIGTERM.

    In a process and session of its own, which gets SIGINT only: on SIGTERM, which is how containers are told to end,
    Ray would leave without shutting Serve down.
    """
    interrupted, server = False, None

    def interrupt(*_signal_and_frame: Any) -> None:
        nonlocal interrupted
        interrupted = True
        if server is not None:
            server.send_signal(signal.SIGINT)

    # Before the process starts: it would inherit that a shell's background job ignores SIGINT.
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ending, interrupt)
    server = subprocess.Popen([sys.executable, "-m", "ray.serve.scripts", "run", str(config)], start_new_session=True)
    if interrupted:
        server.send_signal(signal.SIGINT)
    server.wait()
    if not interrupted:
        raise CommandFailed("the server ended by itself; what it printed says why")
