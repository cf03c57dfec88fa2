"""Where audio goes that is not played: into a file, whole or not at all, or through a pipe as it comes."""

import os
import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol, Self

from cli.audio import AudioShape, Format, complete_wav, decoded_seconds, format_of
from cli.errors import CommandFailed, UsageError

STDOUT = Path("-")


class Output(Protocol):
    """To be used as a context manager: leaving it without `finish` undoes what can be undone."""

    format: Format
    place: str
    """For the person who reads it"""
    needs_stream: bool
    """Whether bytes are wanted as they are made"""

    def start(self, shape: AudioShape) -> None:
        """Called once the server has said what is coming."""

    def write(self, data: bytes) -> None: ...

    def finish(self) -> float | None:
        """After the last byte of a whole answer. How many seconds of audio it was, if that is known here."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


def output_to(path: Path, format: Format | None) -> Output:
    """A file, something else that has a path (a pipe, /dev/null), or for "-" stdout. Raises UsageError."""
    if path == STDOUT:
        return PipeOutput(sys.stdout.buffer, format or "wav", "stdout")
    format = format or format_of(path)
    if path.is_dir():
        raise UsageError(f"{path} is a directory; name a file in it")
    with _failures(path, UsageError):
        if path.exists() and not path.is_file():
            return PipeOutput(path.open("wb"), format, str(path))
        return FileOutput(path, format)


class FileOutput:
    """Writes beside the target and moves over it at the end, so that there is never half a file of that name."""

    needs_stream = False

    def __init__(self, path: Path, format: Format):
        self.format, self.place = format, str(path)
        self._target = path.resolve()  # a link stays one
        self._part = self._target.with_name(f".moss-tts-{secrets.token_hex(8)}.part")
        self._file = self._part.open("x+b")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._part.unlink(missing_ok=True)

    def start(self, shape: AudioShape) -> None:
        self._shape = shape

    def write(self, data: bytes) -> None:
        with _failures(self._target, CommandFailed):
            self._file.write(data)

    def finish(self) -> float | None:
        with _failures(self._target, CommandFailed):
            complete_wav(self._file)
            size = self._file.seek(0, os.SEEK_END)
            self._file.flush()
            os.fsync(self._file.fileno())
            seconds = self._shape.seconds(size) if self.format == "pcm" else decoded_seconds(self._part, self.format)
            if self._target.exists():
                shutil.copymode(self._target, self._part)
            self._part.replace(self._target)
        return seconds


class PipeOutput:
    """Hands bytes on as they come. A reader that has gone away is a BrokenPipeError, which ends the command quietly."""

    needs_stream = False

    def __init__(self, pipe: BinaryIO, format: Format, place: str):
        self.format, self.place = format, place
        self._pipe = pipe

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pipe is not sys.stdout.buffer:
            self._pipe.close()

    def start(self, shape: AudioShape) -> None:
        pass

    def write(self, data: bytes) -> None:
        with _failures(self.place, CommandFailed):
            self._pipe.write(data)
            self._pipe.flush()

    def finish(self) -> None:
        return None


@contextmanager
def _failures(place: Path | str, kind: type[CommandFailed]) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise kind(f"cannot write {place}: {error.strerror}") from None
