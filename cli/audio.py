"""The audio of an answer: its formats, and how many seconds it lasts."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from cli.errors import CommandFailed, UsageError

Format = Literal["wav", "mp3", "opus", "aac", "flac", "pcm"]
SUFFIXES: dict[str, Format] = {
    ".wav": "wav",
    ".mp3": "mp3",
    ".opus": "opus",
    ".ogg": "opus",
    ".aac": "aac",
    ".flac": "flac",
    ".pcm": "pcm",
}

_WAV_HEADER_BYTES = 44
_SAMPLE_BYTES = 2
_UNKNOWN_LENGTH = b"\xff\xff\xff\xff"


def format_of(path: Path) -> Format:
    """By the suffix; UsageError for one that is none of `SUFFIXES`."""
    try:
        return SUFFIXES[path.suffix.lower()]
    except KeyError:
        known = ", ".join(SUFFIXES)
        raise UsageError(f"{path} does not tell its format: end it in one of {known}, or give --format") from None


@dataclass(frozen=True)
class AudioShape:
    """`rate` in Hz. Rate and channels are None where the server does not tell them."""

    format: Format
    rate: int | None
    channels: int | None

    @classmethod
    def of(cls, format: Format, headers: Mapping[str, str]) -> "AudioShape":
        """From X-Sample-Rate and X-Channels."""
        rate, channels = headers.get("x-sample-rate", ""), headers.get("x-channels", "")
        return cls(format, int(rate) if rate.isdecimal() else None, int(channels) if channels.isdecimal() else None)

    def seconds(self, size: int) -> float | None:
        """How long so many bytes last, where they are samples of 16 bits (pcm and wav); else None."""
        if self.format not in ("pcm", "wav") or not self.rate or not self.channels:
            return None
        header = _WAV_HEADER_BYTES if self.format == "wav" else 0
        return max(size - header, 0) / (_SAMPLE_BYTES * self.channels * self.rate)


def complete_wav(file: BinaryIO) -> None:
    """Writes the lengths into the header of a WAV file that came as a stream, which cannot know them.

    Afterwards it is the file that the server would have sent as a whole. Others are left as they are.
    """
    file.seek(0)
    header = file.read(_WAV_HEADER_BYTES)
    if header[:4] != b"RIFF" or header[36:] != b"data" + _UNKNOWN_LENGTH:
        return
    size = file.seek(0, 2)
    for place, length in ((4, size - 8), (40, size - _WAV_HEADER_BYTES)):
        file.seek(place)
        file.write(min(length, 0xFFFFFFFF).to_bytes(4, "little"))


def decoded_seconds(path: Path, format: Format) -> float:
    """How long a file with a header lasts, by decoding it. Raises CommandFailed if it cannot be decoded."""
    import av  # it takes as long to load as everything else together

    try:
        with av.open(str(path)) as container:
            samples = sum(frame.samples for frame in container.decode(audio=0))
            return samples / container.streams.audio[0].rate
    except (av.FFmpegError, IndexError) as error:
        words = getattr(error, "strerror", None) or "it holds no audio"
        raise CommandFailed(f"the answer is no {format} file that can be decoded ({words})") from None
