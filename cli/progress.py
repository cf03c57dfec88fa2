"""What is said while audio comes, and afterwards."""

import sys
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Self

from rich.console import Console
from rich.status import Status

from cli.audio import AudioShape


class Progress:
    """Counts the bytes of an answer; shows them on stderr where that is a terminal, and takes that away at the end."""

    def __init__(self):
        self.size = 0
        self._began = time.monotonic()
        self._first_after: float | None = None
        status = Console(stderr=True).status("waiting for the server") if sys.stderr.isatty() else None
        self._status: Status | None = status
        self._shown: AbstractContextManager = status or nullcontext()

    def __enter__(self) -> Self:
        self._shown.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._shown.__exit__(*exception)

    def add(self, data: bytes, shape: AudioShape) -> None:
        if self._first_after is None:
            self._first_after = time.monotonic() - self._began
        self.size += len(data)
        if self._status is not None:
            self._status.update(self._line(shape))

    def _line(self, shape: AudioShape) -> str:
        seconds = shape.seconds(self.size)
        audio = "" if seconds is None else f", {seconds:.1f} s of audio"
        return f"{self.size / 1000:,.1f} kB{audio}, the first after {self._first_after:.2f} s"
