"""The command as a shell runs it, against small servers on loopback."""

import contextlib
import io
import json
import math
import os
import pty
import struct
import subprocess
import sys
import threading
import wave
from email import message_from_bytes
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "cli"]
RATE, SAMPLES = 24_000, 12_000
SECONDS = "0.50 s"
UNKNOWN = b"\xff\xff\xff\xff"


def samples(seed):
    """Half a second of a tone whose pitch is the seed's, 16-bit mono."""
    pitch = 200 + seed % 500
    return struct.pack(f"<{SAMPLES}h", *(int(9000 * math.sin(pitch * i / RATE * math.tau)) for i in range(SAMPLES)))


def wav_file(pcm):
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(RATE)
        writer.writeframes(pcm)
    return file.getvalue()


def audio_file(seed, format):
    pcm = samples(seed)
    if format == "pcm":
        return pcm
    if format == "wav":
        return wav_file(pcm)
    import numpy as np
    import soundfile

    file, kinds = io.BytesIO(), {"mp3": ("MP3", None), "flac": ("FLAC", None), "opus": ("OGG", "OPUS")}
    container, codec = kinds[format]
    soundfile.write(file, np.frombuffer(pcm, "<i2"), RATE, format=container, subtype=codec)
    return file.getvalue()


class Server(BaseHTTPRequestHandler):
    """Remembers what it was asked. Subclasses answer."""

    protocol_version = "HTTP/1.1"

    def setup(self):
        super().setup()
        self.asked = self.server.asked

    def remember(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.asked.append((self.command, self.path, self.headers, body))
        return body

    def send(self, status, content, **headers):
        self.send_response(status)
        for name, value in {"content_length": len(content), **headers}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        self.wfile.write(content)

    def send_error_body(self, status, message, **headers):
        error = {"message": message, "type": "invalid_request_error", "param": None, "code": None}
        self.send(status, json.dumps({"error": error}).encode(), content_type="application/json", **headers)

    def start_stream(self, **headers):
        self.send_response(200)
        for name, value in {"transfer_encoding": "chunked", **headers}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()

    def send_chunk(self, data):
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def log_message(self, *_):
        pass


class Speaking(Server):
    """Speech by seed: as a whole, or as a stream of chunks whose WAV header knows no lengths."""

    def do_POST(self):
        body = json.loads(self.remember())
        with contextlib.suppress(ConnectionError):
            self.answer(body)

    def answer(self, body):
        seed = body.get("seed", 1)
        self.server.sent = content = audio_file(seed, body["response_format"])
        if body.get("stream"):
            self.start_stream(**self.headers_of(seed))
            self.send_stream(streamed(content) if body["response_format"] == "wav" else content)
        else:
            self.send(200, content, **self.headers_of(seed), x_finish_reason="stop")

    def send_stream(self, content):
        for start in range(0, len(content), 5000):
            self.send_chunk(content[start : start + 5000])
        self.send_chunk(b"")

    def headers_of(self, seed):
        return {"content_type": "audio/x", "x_seed": seed, "x_sample_rate": RATE, "x_channels": 1}


def streamed(content):
    """A WAV file as a stream sends it."""
    return content[:4] + UNKNOWN + content[8:40] + UNKNOWN + content[44:]


def stalling(arrived):
    """A server that sends some audio, tells `arrived`, and then nothing until the client leaves."""

    class Stalling(Speaking):
        def send_stream(self, content):
            self.send_chunk(content[:6000])
            arrived.set()
            self.rfile.read(1)

    return Stalling


class KeepingVoices(Server):
    def do_GET(self):
        self.remember()
        voices = [{"id": name, "name": name} for name in ("default", *self.server.voices)]
        self.send(200, json.dumps({"voices": voices}).encode(), content_type="application/json")

    def do_POST(self):
        body = self.remember()
        fields = multipart(self.headers["content-type"], body)
        name = fields["name"][1].decode()
        if name in self.server.voices:
            self.send_error_body(409, f'there is a voice named "{name}" already')
            return
        self.server.voices[name] = fields
        self.send(201, json.dumps({"id": name, "name": name}).encode(), content_type="application/json")

    def do_DELETE(self):
        self.remember()
        from urllib.parse import unquote

        name = unquote(self.path.removeprefix("/v1/audio/voices/"))
        if self.server.voices.pop(name, None) is None:
            self.send_error_body(404, "there is no uploaded voice of this name")
            return
        self.send(200, json.dumps({"id": name, "deleted": True}).encode(), content_type="application/json")


def multipart(content_type, body):
    """Field name to (file name, bytes)."""
    message = message_from_bytes(b"Content-Type: " + content_type.encode() + b"\r\n\r\n" + body)
    return {
        part.get_param("name", header="content-disposition"): (part.get_filename(), part.get_payload(decode=True))
        for part in message.get_payload()
    }


@pytest.fixture
def serving():
    """Starts a server of a handler class; the value has its `url`, and what it was `asked`."""
    with contextlib.ExitStack() as stack:

        def start(handler):
            server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
            server.daemon_threads = True
            server.asked, server.voices = [], {}
            server.url = f"http://127.0.0.1:{server.server_port}"
            stack.callback(server.server_close)
            stack.callback(server.shutdown)
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
            return server

        yield start


@pytest.fixture
def speaking(serving):
    return serving(Speaking)


def environment(**changes):
    names = ("MOSS_TTS_URL", "MOSS_TTS_KEY")
    kept = {name: value for name, value in os.environ.items() if name not in names}
    return {**kept, "PYTHONPATH": str(ROOT), "TERM": "xterm", **changes}


def moss(*arguments, input=b"", cwd=ROOT, **changes):
    """Runs the command without a terminal; what it wrote is bytes. `changes` are environment variables."""
    command = [*COMMAND, *map(str, arguments)]
    done = subprocess.run(
        command, input=input, capture_output=True, cwd=cwd, env=environment(**changes), timeout=60, check=False
    )
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return done


def start(*arguments, stdout=subprocess.PIPE, **changes):
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, env=environment(**changes))


@contextlib.contextmanager
def terminal():
    """A pseudo-terminal: its end for a process, and a function for all that was written there."""
    ours, theirs = pty.openpty()
    written = []

    def read():
        with contextlib.suppress(OSError):  # EIO: the last writer is gone
            while data := os.read(ours, 4096):
                written.append(data)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    with open(theirs, "wb", buffering=0) as end:

        def everything():
            end.close()
            reader.join(10)
            return b"".join(written)

        yield end, everything
        everything()
    os.close(ours)
