"""`moss-tts-serve`, also as `python -m cli`. Commands that need Ray or the models import them when they run."""

import signal
import sys

import typer

from cli import say, serve, verify, voices
from cli.errors import TERMINATED, CommandFailed

app = typer.Typer(
    name="moss-tts-serve",
    help="Text to speech that can be repeated: the same request and seed give the same bytes.",
    epilog="Exit status: 0 fine, 1 server or audio error, 2 usage, 3 cannot connect, 130 interrupted.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(say.say)
app.add_typer(voices.app, name="voices")
app.command()(serve.serve)
app.command(add_help_option=False, context_settings=verify.TAKES_ANY_OPTION)(verify.verify)


def main() -> None:
    # As an exception, so that half-written files go and players stop.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    try:
        app(prog_name="moss-tts-serve")
    except CommandFailed as error:
        print(f"moss-tts-serve: {error}", file=sys.stderr)
        sys.exit(error.exit_status)


if __name__ == "__main__":
    main()
