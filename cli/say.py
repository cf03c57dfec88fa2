"""`moss-tts-serve say`: text to audio, into a file, a pipe or the loudspeakers."""

import base64
import json
import mimetypes
import sys
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer

from cli.audio import AudioShape, Format
from cli.errors import CommandFailed, UsageError
from cli.output import STDOUT, Output, output_to
from cli.player import playing
from cli.progress import Progress
from cli.server import DEFAULT_URL, Key, Url, check_success, connection, printable

PATH = "/v1/audio/speech"
_STDIN = "-"


def say(
    text: Annotated[str, typer.Argument(help="What to say; - reads it from stdin.", show_default=False)],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="File to write; - is stdout. Unset: the audio is played, or written to stdout if that is no terminal.",
        ),
    ] = None,
    format: Annotated[
        Format | None, typer.Option(help="Unset: by the file's suffix, wav on stdout, what the player likes best.")
    ] = None,
    stream: Annotated[bool, typer.Option("--stream", help="Take bytes as they are made, as playing does.")] = False,
    seed: Annotated[int | None, typer.Option(help="Makes the audio repeatable; the one used is always told.")] = None,
    voice: Annotated[str | None, typer.Option(help="See `moss-tts-serve voices list`.")] = None,
    model: Annotated[str | None, typer.Option(help="Name of the model, where there are several.")] = None,
    speed: Annotated[float | None, typer.Option(help="0.25 to 4; the pitch is kept.")] = None,
    language: Annotated[str | None, typer.Option(help="Of the text: English, zh, ...")] = None,
    instructions: Annotated[str | None, typer.Option(help="How to speak, in words.")] = None,
    ref: Annotated[
        Path | None,
        typer.Option(help="A clip of the voice to speak with, 1 to 30 s.", exists=True, dir_okay=False, readable=True),
    ] = None,
    ref_text: Annotated[str | None, typer.Option(help="What the clip says.")] = None,
    ref_mode: Annotated[
        str | None, typer.Option(help="clone the voice, or speak on as a continuation of the clip.")
    ] = None,
    temperature: Annotated[float | None, typer.Option(help="0 (always the likeliest) to 2.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Draw from the likeliest that reach this probability.")] = None,
    top_k: Annotated[int | None, typer.Option(help="Draw from this many likeliest.")] = None,
    repetition_penalty: Annotated[float | None, typer.Option(help="Above 1 against repetition.")] = None,
    max_frames: Annotated[int | None, typer.Option(help="Frames of 80 ms after which the audio is cut.")] = None,
    sample_rate: Annotated[int | None, typer.Option(help="8000 to 48000 Hz.")] = None,
    channels: Annotated[int | None, typer.Option(help="1 or 2.")] = None,
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds without a byte after which to give up.")] = 900.0,
    url: Url = DEFAULT_URL,
    key: Key = None,
) -> None:
    """Speak a text: into a file, or aloud. Values that are left out are the server's own."""
    fields = {
        "input": _text(text),
        "seed": seed,
        "voice": voice,
        "model": model,
        "speed": speed,
        "language": language,
        "instructions": instructions,
        "ref_audio": None if ref is None else data_uri(ref),
        "ref_text": ref_text,
        "ref_mode": ref_mode,
        "temperature": temperature,
        "top_p": top_p,
        "top_k": top_k,
        "repetition_penalty": repetition_penalty,
        "max_frames": max_frames,
        "sample_rate": sample_rate,
        "channels": channels,
    }
    with _output(output, format) as out, connection(url, key, timeout) as client:
        fields |= {"response_format": out.format, "stream": True if stream or out.needs_stream else None}
        summary = speak(client, {name: value for name, value in fields.items() if value is not None}, out)
    print(summary, file=sys.stderr)


def speak(client: httpx.Client, fields: dict[str, Any], output: Output) -> str:
    """Sends one request and its answer's audio to `output`; returns a line on what it was. Raises CommandFailed."""
    headers = {"Content-Type": "application/json"}
    with (
        Progress() as progress,
        client.stream("POST", PATH, content=_encoded(fields), headers=headers) as response,
    ):
        check_success(response)
        _check_audio(response)
        shape = AudioShape.of(fields["response_format"], response.headers)
        output.start(shape)
        for data in response.iter_bytes():
            output.write(data)
            progress.add(data, shape)
        if not progress.size:
            raise CommandFailed("the server's answer is empty")
        seconds = output.finish() or shape.seconds(progress.size)
    return _summary(response.headers, seconds, progress.size, output.place)


def data_uri(file: Path) -> str:
    """The file as RFC 2397 has it."""
    kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    return f"data:{kind};base64,{base64.b64encode(file.read_bytes()).decode()}"


def _text(argument: str) -> str:
    if argument != _STDIN:
        return argument
    try:
        return sys.stdin.buffer.read().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"the text on stdin is not UTF-8 (at byte {error.start})") from None


def _output(path: Path | None, format: Format | None) -> Output:
    if path is None and sys.stdout.isatty():
        return playing(format)
    return output_to(path or STDOUT, format)


def _encoded(fields: dict[str, Any]) -> bytes:
    try:
        return json.dumps(fields, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        raise UsageError("the text holds bytes that are not UTF-8") from None
    except ValueError:
        raise UsageError("numbers must be finite") from None


def _check_audio(response: httpx.Response) -> None:
    kind = response.headers.get("content-type", "")
    if kind.startswith(("text/", "application/json")):
        raise CommandFailed(f"the server answered with {printable(kind)}, not with audio; is --url right?")


def _summary(headers: httpx.Headers, seconds: float | None, size: int, place: str) -> str:
    seed = printable(headers.get("x-seed", "not told"))
    length = f"{size} bytes" if seconds is None else f"{seconds:.2f} s"
    reason = headers.get("x-finish-reason", "stop")
    cut = "" if reason == "stop" else f" (ended early: {printable(reason)})"
    return f"seed {seed}, {length}, {place}{cut}"
