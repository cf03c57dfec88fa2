"""`python -m pipeline.verify` as an operator runs it: against the application, and against servers known to be bad."""

import contextlib
import hashlib
import io
import json
import random
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import soundfile

ROOT = Path(__file__).parents[2]
RATE, CHANNELS, SAMPLES = 8000, 2, 4000


def verify(url, *options):
    command = [sys.executable, "-m", "pipeline.verify", "--url", url, "--timeout", "60", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=150)
    assert "Traceback" not in done.stderr
    return done


class Repeatable(BaseHTTPRequestHandler):
    """Noise that depends on the body alone. Subclasses spoil it."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        body.setdefault("seed", random.getrandbits(63))
        with contextlib.suppress(ConnectionError):  # clients that leave are part of the check
            self.answer(body)

    def answer(self, body):
        self.send(200, self.audio(body), {"X-Seed": str(body["seed"])})

    def audio(self, body):
        key = json.dumps({name: value for name, value in sorted(body.items()) if name != "stream"}).encode()
        seed = int.from_bytes(hashlib.sha256(key).digest()[:8], "big")
        samples = np.random.default_rng(seed).integers(-9000, 9000, (SAMPLES, CHANNELS), np.int16)
        self.spoil(body, samples)
        if body["response_format"] == "pcm":
            return samples.tobytes()
        file = io.BytesIO()
        soundfile.write(file, samples, RATE, format=body["response_format"])
        return file.getvalue()

    def spoil(self, body, samples):
        pass

    def send(self, status, content, headers):
        self.send_response(status)
        audio = {"Content-Type": "audio/x", "X-Sample-Rate": str(RATE), "X-Channels": str(CHANNELS)}
        for name, value in {"Content-Length": str(len(content)), **audio, **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


class OneByteOffInCrowds(Repeatable):
    """Greedy requests are wrong in the upper byte of one sample while others are being served."""

    inside = 0
    lock = threading.Lock()

    def answer(self, body):
        with self.lock:
            type(self).inside += 1
        time.sleep(0.05)
        try:
            super().answer(body)
        finally:
            with self.lock:
                type(self).inside -= 1

    def spoil(self, body, samples):
        if body.get("temperature") == 0 and self.inside > 1:
            samples[2000, 1] ^= 1 << 12


class BusyEverySecondTime(Repeatable):
    asked = 0

    def answer(self, body):
        type(self).asked += 1
        if self.asked % 2:
            self.send(429, b"{}", {"Content-Type": "application/json", "Retry-After": "0"})
        else:
            super().answer(body)


class NamesNoSeed(Repeatable):
    def answer(self, body):
        self.send(200, self.audio(body), {})


class Refusing(Repeatable):
    def answer(self, body):
        error = {"error": {"message": "there is no field max_frames", "type": "invalid_request_error"}}
        self.send(400, json.dumps(error).encode(), {"Content-Type": "application/json"})


class NoSpeechServer(Repeatable):
    def answer(self, body):
        self.send(200, b"<html>hello</html>", {"Content-Type": "text/html"})


class BreakingOff(Repeatable):
    def answer(self, body):
        self.send(200, self.audio(body)[:100], {"Content-Length": "5000"})


class Hanging(Repeatable):
    def answer(self, body):
        self.rfile.read(1)  # until the client leaves


@pytest.fixture
def serving():
    """Starts a server of a handler class on loopback; the value is its URL."""
    with contextlib.ExitStack() as stack:

        def start(handler):
            fake = ThreadingHTTPServer(("127.0.0.1", 0), handler)
            stack.callback(fake.server_close)
            stack.callback(fake.shutdown)
            threading.Thread(target=fake.serve_forever, daemon=True).start()
            return f"http://127.0.0.1:{fake.server_port}"

        yield start


def test_the_application_passes(server):
    done = verify(server, "--requests", "5", "--rounds", "2", "--concurrency", "6", "--max-frames", "20")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all 12 answers have the bytes of the first" in done.stdout
    assert "clone" in done.stdout
    assert "continuation" in done.stdout


def test_a_repeatable_server_passes_by_any_spelling_of_its_url(serving):
    done = verify(serving(Repeatable) + "/v1/", "--requests", "16", "--rounds", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all 34 answers" in done.stdout
    assert "\x1b" not in done.stdout


def test_one_wrong_byte_in_a_crowd_is_found_and_named(serving):
    done = verify(serving(OneByteOffInCrowds), "--requests", "4", "--concurrency", "4")
    assert done.returncode == 1, done.stdout + done.stderr
    found = [line for line in done.stdout.splitlines() if line.startswith("DIFFERS")]
    # upper byte of the second of two 16-bit channels, at 8 kHz
    place = f"byte {2000 * 4 + 3}, sample 2000, 0.250 s"
    assert found
    assert all("request 02 chinese" in line and "4 at once, wav" in line and place in line for line in found)
    assert f"{len(found)} of 14 answers differ" in done.stdout
    assert any("whole, round" in line or "streamed, round" in line for line in found)


def test_a_busy_server_is_asked_again(serving):
    done = verify(serving(BusyEverySecondTime), "--requests", "4", "--rounds", "1")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_server_that_names_no_seed_cannot_have_its_unseeded_answers_repeated(serving):
    done = verify(serving(NamesNoSeed), "--requests", "2", "--rounds", "1")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "names no seed (X-Seed)" in done.stdout


@pytest.mark.parametrize(
    ("handler", "message"),
    [
        (Refusing, "answered 400 and no audio: there is no field max_frames"),
        (NoSpeechServer, "answered 200 and no audio: <html>hello</html>"),
        (BreakingOff, "broke its answer off"),
        (Hanging, "no whole answer within 0.5 s; raise --timeout"),
    ],
)
def test_without_audio_there_is_no_verdict(serving, handler, message):
    done = verify(serving(handler), "--requests", "2", "--timeout", "0.5")
    assert done.returncode == 2, done.stdout + done.stderr
    assert message in done.stderr
    assert "request 01" in done.stderr


def test_a_server_that_is_not_there_is_no_traceback():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        done = verify(f"http://127.0.0.1:{closed.getsockname()[1]}")
    assert done.returncode == 2
    assert "cannot reach http://127.0.0.1:" in done.stderr
    assert "is the server running" in done.stderr


@pytest.mark.parametrize("option", [("--url", "localhost:8000"), ("--requests", "0"), ("--timeout", "nan")])
def test_options_that_make_no_sense_are_refused(option):
    done = verify("http://127.0.0.1:1", *option)
    assert done.returncode == 2
    assert f"argument {option[0]}: must be" in done.stderr
