"""Playing audio with a program that the machine has."""

import queue
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

from cli.audio import AudioShape, Format
from cli.errors import CommandFailed, UsageError
from cli.server import printable

_WITH_HEADER: tuple[Format, ...] = ("wav", "mp3", "opus", "aac", "flac")
_SAMPLES: tuple[Format, ...] = ("pcm",)


@dataclass(frozen=True)
class Player:
    """`arguments` may name {rate}, {channels} and {file}; a player that names {file} cannot read a pipe.

    The first of `formats` is what it is given unless another one is asked for. All are told to be silent.
    """

    name: str
    arguments: str
    formats: tuple[Format, ...]
    more: Callable[[], tuple[str, ...]] = tuple

    @property
    def reads_pipe(self) -> bool:
        return "{file}" not in self.arguments

    def command(self, shape: AudioShape, file: str = "") -> list[str]:
        """Its command line. OpenAI's pcm is 24 kHz mono, which is what servers mean that do not say."""
        values = {"rate": shape.rate or 24_000, "channels": shape.channels or 1, "file": file}
        return [self.name, *self.more(), *(each.format(**values) for each in self.arguments.split())]


def _raw_option() -> tuple[str, ...]:
    """PipeWire takes a headerless pipe for samples by itself, until it has --raw, when it wants that."""
    usage = subprocess.run(["pw-play", "--help"], capture_output=True, text=True, check=False)
    return ("--raw",) if "--raw" in usage.stdout + usage.stderr else ()


PLAYERS = (
    Player("ffplay", "-nodisp -autoexit -loglevel error -i pipe:0", _WITH_HEADER),
    Player("mpv", "--no-video --no-terminal -", _WITH_HEADER),
    Player("paplay", "--raw --format=s16le --rate={rate} --channels={channels}", _SAMPLES),
    Player("pw-play", "--format=s16 --rate={rate} --channels={channels} -", _SAMPLES, _raw_option),
    Player("aplay", "-q -t raw -f S16_LE -r {rate} -c {channels} -", _SAMPLES),
    Player("afplay", "{file}", ("wav", "mp3", "aac", "flac")),
)


def find_player(format: Format | None) -> Player:
    """The first one there is. Raises UsageError without one, or if it does not understand `format`."""
    player = next((each for each in PLAYERS if shutil.which(each.name)), None)
    if player is None:
        names = ", ".join(each.name for each in PLAYERS)
        raise UsageError(f"there is nothing to play with: install one of {names}, or write a file with -o out.wav")
    if format is not None and format not in player.formats:
        known = ", ".join(player.formats)
        raise UsageError(f"{player.name} plays {known}, not {format}; leave --format out, or write a file with -o")
    return player


def playing(format: Format | None) -> "PipedPlayer | FilePlayer":
    """Raises UsageError as `find_player`."""
    player = find_player(format)
    return (PipedPlayer if player.reads_pipe else FilePlayer)(player, format or player.formats[0])


class PipedPlayer:
    """Plays while the audio comes. What the player has not taken yet waits here, so that the server need not."""

    needs_stream = True

    def __init__(self, player: Player, format: Format):
        self.format, self.place = format, player.name
        self._player = player
        self._process: _Process | None = None
        self._waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._feeder = threading.Thread(target=self._feed, daemon=True)
        self._took_all = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._waiting.put(None)
        if self._process:
            self._process.stop()

    def start(self, shape: AudioShape) -> None:
        self._process = _Process(self._player.command(shape), subprocess.PIPE)
        self._feeder.start()

    def write(self, data: bytes) -> None:
        if self._process.has_ended:
            raise self._process.failure()
        self._waiting.put(data)

    def finish(self) -> None:
        self._waiting.put(None)
        self._feeder.join()
        if self._process.wait() != 0 or not self._took_all:
            raise self._process.failure()

    def _feed(self) -> None:
        with suppress(BrokenPipeError), self._process.stdin as pipe:
            while data := self._waiting.get():
                pipe.write(data)
                pipe.flush()
            self._took_all = True


class FilePlayer:
    """Plays when all of the audio is there, from a temporary file."""

    needs_stream = False

    def __init__(self, player: Player, format: Format):
        self.format, self.place = format, player.name
        self._player = player
        self._process: _Process | None = None
        self._directory = tempfile.TemporaryDirectory(prefix="moss-tts-")
        self._file = Path(self._directory.name, f"speech.{format}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process:
            self._process.stop()
        self._directory.cleanup()

    def start(self, shape: AudioShape) -> None:
        self._shape = shape

    def write(self, data: bytes) -> None:
        with self._file.open("ab") as file:
            file.write(data)

    def finish(self) -> None:
        self._process = _Process(self._player.command(self._shape, str(self._file)), subprocess.DEVNULL)
        if self._process.wait() != 0:
            raise self._process.failure()


class _Process:
    """A player at work. What it says is kept for the message if it fails."""

    def __init__(self, command: list[str], stdin: int):
        self._name = command[0]
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `stop`
        self._popen = subprocess.Popen(command, stdin=stdin, stdout=subprocess.DEVNULL, stderr=self._said)

    @property
    def stdin(self) -> IO[bytes]:
        return self._popen.stdin

    @property
    def has_ended(self) -> bool:
        return self._popen.poll() is not None

    def wait(self) -> int:
        """Its exit status."""
        return self._popen.wait()

    def stop(self) -> None:
        if not self.has_ended:
            self._popen.terminate()
            self._popen.wait()
        self._said.close()

    def failure(self) -> CommandFailed:
        self._said.seek(0)
        lines = [line.strip() for line in self._said.read().decode(errors="replace").splitlines() if line.strip()]
        said = printable(lines[-1]) if lines else "without a message"
        return CommandFailed(f"{self._name} stopped before the end ({said}); -o writes the audio to a file instead")
