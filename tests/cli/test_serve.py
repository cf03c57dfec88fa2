"""`moss-tts-serve serve` and `verify`."""

import hashlib
import signal
import socket
import subprocess
import sys
import time

import httpx
import pytest
import yaml

from cli.serve import serve_config
from cli.verify import with_url
from tests.cli.conftest import ROOT, environment, moss


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def test_a_settings_file_is_served_as_the_serve_config_of_the_repository_does():
    from ray.serve.schema import ServeDeploySchema

    written = yaml.safe_load((ROOT / "serve_config.yaml").read_text())
    written["applications"][0]["args"]["config"] = str(ROOT / "configs/embedded.yaml")
    made = serve_config(ROOT / "configs/embedded.yaml", "127.0.0.1", 8000)
    as_ray_reads_them = [ServeDeploySchema.model_validate(each).model_dump() for each in (written, made)]
    for each in as_ray_reads_them:
        each["logging_config"] = None
    assert as_ray_reads_them[0] == as_ray_reads_them[1]


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("model: [", [], "is not valid YAML"),
        ("just words", [], "neither a settings file nor a Serve config"),
        ("model: {tts: a, codec: b}\nbackbone: {max_runing: 3}", [], "backbone.max_runing"),
        ("applications: []", ["--port", "8001"], "says host and port itself, in http_options"),
    ],
)
def test_a_configuration_that_cannot_be_served_is_refused_at_once(tmp_path, content, options, message):
    file = tmp_path / "config.yaml"
    file.write_text(content)
    done = moss("serve", file, *options)
    assert done.returncode == 2
    assert message in done.stderr.decode()


def test_a_missing_configuration_is_refused(tmp_path):
    assert moss("serve", tmp_path / "none.yaml").returncode == 2


def test_a_port_in_use_is_told():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = moss("serve", "configs/embedded.yaml", "--port", port)
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use; choose another --port" in done.stderr.decode()


def test_the_embedded_model_is_served_speaks_and_ends_when_it_is_told_to(tmp_path):
    port, log = free_port(), tmp_path / "log"
    command = [sys.executable, "-m", "cli", "serve", "configs/embedded.yaml", "--port", str(port)]
    with log.open("wb") as written:
        server = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment(RAY_ADDRESS="local"),
            stdout=written,
            stderr=written,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),  # as a shell starts background jobs
        )
    try:
        _wait_until_ready(server, f"http://127.0.0.1:{port}", log)
        digests = set()
        for name, option in (("whole", []), ("streamed", ["--stream"])):
            file = tmp_path / f"{name}.wav"
            said = moss("say", "Hello.", "--seed", 7, "-o", file, *option, MOSS_TTS_URL=f"http://127.0.0.1:{port}")
            assert said.returncode == 0, said.stderr
            assert said.stderr.decode().startswith("seed 7, ")
            digests.add(hashlib.sha256(file.read_bytes()).hexdigest())
        assert len(digests) == 1
        streamed = stream(port)
        next(streamed)
        server.send_signal(signal.SIGTERM)
        with pytest.raises(httpx.RemoteProtocolError):
            list(streamed)
    finally:
        server.send_signal(signal.SIGINT)
        status = server.wait(120)
    assert status == 0, log.read_text()
    with socket.socket() as gone:
        assert gone.connect_ex(("127.0.0.1", port)) != 0


def stream(port):
    """The parts of an answer of some seconds."""
    body = {"input": "It goes on.", "response_format": "pcm", "stream": True, "seed": 3}
    body |= {"max_frames": 400, "text_temperature": 0}
    with httpx.stream("POST", f"http://127.0.0.1:{port}/v1/audio/speech", json=body, timeout=60) as response:
        assert response.status_code == 200
        yield from response.iter_raw()


def _wait_until_ready(server, url, log):
    for _ in range(900):
        assert server.poll() is None, log.read_text()
        try:
            if httpx.get(f"{url}/ready", timeout=5).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    pytest.fail(log.read_text())


def test_the_verifier_gets_this_commands_server(monkeypatch):
    monkeypatch.setenv("MOSS_TTS_URL", "http://other:1")
    assert with_url(["--requests", "2"]) == ["--url", "http://other:1", "--requests", "2"]
    assert with_url(["--url=http://a"]) == ["--url=http://a"]
    monkeypatch.setenv("MOSS_TTS_URL", "")
    assert with_url([]) == ["--url", "http://127.0.0.1:8000"]


def test_the_verifier_runs_with_its_own_options_and_exit_status():
    done = moss("verify", "--requests", "2", MOSS_TTS_URL="http://127.0.0.1:1")
    assert done.returncode == 2
    assert "cannot reach http://127.0.0.1:1" in done.stderr.decode()
    assert b"--concurrency" in moss("verify", "--help").stdout


@pytest.mark.parametrize("arguments", [[], ["--help"], ["say", "--help"], ["voices"], ["serve", "--help"]])
def test_help_is_on_stdout(arguments):
    assert b"Usage: moss-tts-serve" in moss(*arguments).stdout
