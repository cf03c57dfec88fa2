"""`moss-tts-serve say` into files and pipes."""

import base64
import io
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading

import pytest
import soundfile

from tests.cli.conftest import (
    ROOT,
    SAMPLES,
    SECONDS,
    Server,
    Speaking,
    environment,
    moss,
    samples,
    stalling,
    start,
    streamed,
    terminal,
    wav_file,
)


def fields(server):
    return json.loads(server.asked[-1][3])


def test_the_file_holds_what_the_server_sent_and_one_line_says_what_it_is(speaking, tmp_path):
    file = tmp_path / "out.wav"
    done = moss("say", "Hello.", "-o", file, "--seed", 7, "--url", speaking.url)
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr.decode() == f"seed 7, {SECONDS}, {file}\n"
    assert file.read_bytes() == wav_file(samples(7))
    assert os.listdir(tmp_path) == ["out.wav"]


def test_a_streamed_wav_file_is_the_whole_one_lengths_included(speaking, tmp_path):
    for name, option in (("whole", []), ("streamed", ["--stream"])):
        moss("say", "Hello.", "-o", tmp_path / f"{name}.wav", "--seed", 7, "--url", speaking.url, *option)
        assert fields(speaking).get("stream", False) is (name == "streamed")
    assert (tmp_path / "streamed.wav").read_bytes() == (tmp_path / "whole.wav").read_bytes() == wav_file(samples(7))


@pytest.mark.parametrize(
    ("name", "format"), [("a.mp3", "mp3"), ("a.FLAC", "flac"), ("a.opus", "opus"), ("a.ogg", "opus"), ("a.pcm", "pcm")]
)
def test_the_suffix_says_the_format(speaking, tmp_path, name, format):
    file = tmp_path / name
    done = moss("say", "Hello.", "-o", file, "--seed", 3, "--url", speaking.url)
    assert done.returncode == 0, done.stderr
    assert fields(speaking)["response_format"] == format
    assert file.read_bytes() == speaking.sent
    told = float(done.stderr.decode().split(", ")[1].removesuffix(" s"))
    lasts = SAMPLES / 24_000 if format == "pcm" else soundfile.info(file).duration
    assert told == pytest.approx(lasts, abs=0.06)


def test_a_format_that_is_given_beats_the_suffix(speaking, tmp_path):
    assert moss("say", "Hello.", "-o", tmp_path / "a.mp3", "--format", "wav", "--url", speaking.url).returncode == 0
    assert fields(speaking)["response_format"] == "wav"


def test_every_option_reaches_the_server_and_nothing_else_does(speaking, tmp_path):
    clip = tmp_path / "clip.wav"
    clip.write_bytes(wav_file(samples(5)))
    options = {
        "seed": 2**63 - 1,
        "voice": "anna",
        "model": "tts-1",
        "speed": 1.25,
        "language": "en",
        "instructions": "Softly.",
        "ref_text": "Grüße",
        "ref_mode": "continuation",
        "temperature": 0.0,
        "top_p": 0.5,
        "top_k": -1,
        "repetition_penalty": 1.1,
        "max_frames": 40,
        "sample_rate": 16000,
        "channels": 2,
    }
    words = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    done = moss("say", "Hällo – 你好.", "-o", tmp_path / "a.wav", "--ref", clip, "--url", speaking.url, *words)
    assert done.returncode == 0, done.stderr
    sent = fields(speaking)
    head, _, data = sent.pop("ref_audio").partition(",")
    assert head.startswith("data:audio/")
    assert head.endswith(";base64")
    assert base64.b64decode(data) == clip.read_bytes()
    assert sent == {"input": "Hällo – 你好.", "response_format": "wav", **options}


def test_a_dash_reads_the_text_from_stdin(speaking, tmp_path):
    done = moss("say", "-", "-o", tmp_path / "a.wav", "--url", speaking.url, input="\ufeffZwölf\nBoxkämpfer\n".encode())
    assert done.returncode == 0, done.stderr
    assert fields(speaking)["input"] == "Zwölf\nBoxkämpfer\n"


@pytest.mark.parametrize("option", [[], ["-o", "-"]])
def test_without_a_file_stdout_holds_the_audio_and_nothing_else(speaking, option):
    done = moss("say", "Hello.", "--seed", 9, "--url", speaking.url, *option)
    assert done.returncode == 0
    assert done.stdout == wav_file(samples(9))
    assert done.stderr.decode() == f"seed 9, {SECONDS}, stdout\n"


def test_a_stream_on_stdout_is_passed_on_as_it_is(speaking):
    done = moss("say", "Hello.", "--seed", 9, "--stream", "--url", speaking.url)
    assert done.stdout == streamed(wav_file(samples(9)))
    assert done.stderr.decode() == f"seed 9, {SECONDS}, stdout\n"


def test_audio_reaches_a_pipe_before_the_answer_ends(serving):
    arrived = threading.Event()
    server = serving(stalling(arrived))
    process = start("say", "Hello.", "--stream", "--url", server.url)
    assert process.stdout.read(44) == streamed(wav_file(samples(1)))[:44]
    process.kill()
    process.communicate()


def test_a_reader_that_leaves_is_no_traceback(serving):
    class Long(Speaking):
        def send_stream(self, content):
            for _ in range(100):
                self.send_chunk(content)
            self.send_chunk(b"")

    server = serving(Long)
    process = start("say", "Hello.", "--stream", "--url", server.url)
    process.stdout.read(44)
    process.stdout.close()
    assert process.wait(30) == 1
    assert process.stderr.read() == b""
    process.stderr.close()


def test_url_and_key_come_from_the_environment(speaking, tmp_path):
    file = tmp_path / "a.wav"
    done = moss("say", "Hello.", "-o", file, MOSS_TTS_URL=f"{speaking.url}/v1/", MOSS_TTS_KEY="secret")
    assert done.returncode == 0, done.stderr
    _, path, headers, _ = speaking.asked[-1]
    assert path == "/v1/audio/speech"
    assert headers["authorization"] == "Bearer secret"


def test_options_beat_the_environment(speaking, tmp_path):
    wrong = {"MOSS_TTS_URL": "http://127.0.0.1:1", "MOSS_TTS_KEY": "old"}
    done = moss("say", "Hi.", "-o", tmp_path / "a.wav", "--url", speaking.url, "--key", "new", **wrong)
    assert done.returncode == 0, done.stderr
    assert speaking.asked[-1][2]["authorization"] == "Bearer new"


class BreaksOff(Speaking):
    def send_stream(self, content):
        self.send_chunk(content[:9000])
        self.close_connection = True

    def send(self, status, content, **headers):
        super().send(status, content[:9000], **{**headers, "content_length": len(content)})
        self.close_connection = True


@pytest.mark.parametrize("option", [[], ["--stream"]])
@pytest.mark.parametrize("before", [None, b"an older file"])
def test_a_body_that_breaks_off_leaves_nothing_behind(serving, tmp_path, option, before):
    file = tmp_path / "out.wav"
    if before:
        file.write_bytes(before)
    done = moss("say", "Hello.", "-o", file, "--url", serving(BreaksOff).url, *option)
    assert done.returncode == 1
    assert "broke its answer off" in done.stderr.decode()
    assert os.listdir(tmp_path) == (["out.wav"] if before else [])
    assert not before or file.read_bytes() == before


@pytest.mark.parametrize("status", [400, 429, 503])
def test_a_refusal_is_told_in_the_servers_words(serving, tmp_path, status):
    class Refusing(Server):
        def do_POST(self):
            self.remember()
            self.send_error_body(status, "there is no\x1b[2J voice", retry_after=4)

    file = tmp_path / "out.wav"
    file.write_bytes(b"an older file")
    done = moss("say", "Hello.", "-o", file, "--url", serving(Refusing).url)
    said = f"moss-tts-serve: the server answered {status}: there is no [2J voice; try again in 4 s\n"
    assert (done.returncode, done.stderr.decode()) == (1, said)
    assert os.listdir(tmp_path) == ["out.wav"]
    assert file.read_bytes() == b"an older file"


def test_a_missing_key_is_asked_for(serving, tmp_path):
    class Locked(Server):
        def do_POST(self):
            self.remember()
            self.send_error_body(401, "a valid API key is needed")

    done = moss("say", "Hello.", "-o", tmp_path / "a.wav", "--url", serving(Locked).url)
    assert done.returncode == 1
    assert "--key or MOSS_TTS_KEY" in done.stderr.decode()


@pytest.mark.parametrize(
    ("content", "kind", "message"),
    [
        (b"<html>hello</html>", "text/html", "answered with text/html, not with audio; is --url right?"),
        (b"", "audio/wav", "the server's answer is empty"),
        (b"no audio at all, whatever its name says", "audio/wav", "is no wav file that can be decoded"),
    ],
)
def test_an_answer_without_audio_is_an_error(serving, tmp_path, content, kind, message):
    class Nonsense(Server):
        def do_POST(self):
            self.remember()
            self.send(200, content, content_type=kind)

    file = tmp_path / "out.wav"
    file.write_bytes(b"an older file")
    done = moss("say", "Hello.", "-o", file, "--url", serving(Nonsense).url)
    assert done.returncode == 1
    assert message in done.stderr.decode()
    assert os.listdir(tmp_path) == ["out.wav"]
    assert file.read_bytes() == b"an older file"


def test_without_a_server_the_message_says_how_to_start_one(tmp_path):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        done = moss("say", "Hello.", "-o", tmp_path / "a.wav", "--url", url)
    assert done.returncode == 3
    assert f"cannot reach {url}" in done.stderr.decode()
    assert "moss-tts-serve serve configs/embedded.yaml" in done.stderr.decode()
    assert os.listdir(tmp_path) == []


def test_a_server_that_says_nothing_is_given_up(serving, tmp_path):
    class Silent(Server):
        def do_POST(self):
            self.remember()
            self.rfile.read(1)

    done = moss("say", "Hello.", "-o", tmp_path / "a.wav", "--timeout", 0.3, "--url", serving(Silent).url)
    assert done.returncode == 1
    assert "the server sent nothing for 0.3 s" in done.stderr.decode()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_answer_ends_quietly_and_leaves_nothing_behind(serving, tmp_path, number, status):
    arrived = threading.Event()
    process = start("say", "Hello.", "--stream", "-o", tmp_path / "a.wav", "--url", serving(stalling(arrived)).url)
    assert arrived.wait(30)
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out, err) == (status, b"", b"")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["Hello.", "-o", "out"], "out does not tell its format"),
        (["Hello.", "-o", "out.doc"], "end it in one of .wav, .mp3"),
        (["Hello.", "-o", "missing/out.wav"], "cannot write missing/out.wav: No such file or directory"),
        (["Hello.", "-o", "folder.wav"], "folder.wav is a directory"),
        (["Hello.", "--format", "midi"], "midi"),
        (["Hello.", "--seed", "one"], "--seed"),
        (["Hello.", "--temperature", "nan"], "numbers must be finite"),
        (["Hello.", "--ref", "missing.wav"], "missing.wav"),
        (["Hello.", "--url", "localhost:8000"], "must be like http://127.0.0.1:8000"),
        (["Hello.", "--key", "geheim\nnis"], "printable ASCII"),
        ([b"\xff\xfe".decode("utf-8", "surrogateescape")], "not UTF-8"),
        ([], "text"),
    ],
)
def test_what_makes_no_sense_never_reaches_the_server(speaking, tmp_path, arguments, message):
    (tmp_path / "folder.wav").mkdir()
    done = moss("say", *arguments, cwd=tmp_path, MOSS_TTS_URL=speaking.url, COLUMNS="200")
    assert done.returncode == 2
    assert message.lower() in done.stderr.decode().lower()
    assert done.stdout == b""
    assert speaking.asked == []
    assert os.listdir(tmp_path) == ["folder.wav"]


def test_stdin_that_is_no_text_never_reaches_the_server(speaking):
    done = moss("say", "-", "--url", speaking.url, input=b"caf\xe9")
    assert done.returncode == 2
    assert "not UTF-8 (at byte 3)" in done.stderr.decode()
    assert speaking.asked == []


def test_a_link_stays_a_link_and_a_file_keeps_its_permissions(speaking, tmp_path):
    file, link = tmp_path / "real.wav", tmp_path / "link.wav"
    file.write_bytes(b"old")
    file.chmod(0o640)
    link.symlink_to("real.wav")
    assert moss("say", "Hello.", "-o", link, "--url", speaking.url).returncode == 0
    assert link.is_symlink()
    assert file.read_bytes() == wav_file(samples(1))
    assert stat.S_IMODE(file.stat().st_mode) == 0o640


def test_what_is_no_file_is_written_to_and_not_replaced(speaking, tmp_path):
    fifo = tmp_path / "pipe.wav"
    os.mkfifo(fifo)
    process = start("say", "Hello.", "-o", fifo, "--url", speaking.url)
    assert fifo.read_bytes() == wav_file(samples(1))
    assert process.wait(30) == 0
    process.communicate()
    assert fifo.is_fifo()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs Linux's full device")
def test_a_full_disk_is_told(speaking):
    done = moss("say", "Hello.", "-o", "/dev/full", "--format", "wav", "--url", speaking.url)
    assert done.returncode == 1
    assert "cannot write /dev/full: No space left on device" in done.stderr.decode()


def test_an_answer_that_was_cut_says_so(serving, tmp_path):
    class Cut(Speaking):
        def send(self, status, content, **headers):
            super().send(status, content, **{**headers, "x_finish_reason": "length"})

    done = moss("say", "Hello.", "-o", tmp_path / "a.wav", "--url", serving(Cut).url)
    assert done.returncode == 0
    assert done.stderr.decode().endswith("a.wav (ended early: length)\n")


def test_a_server_that_tells_no_seed_is_fine(serving, tmp_path):
    class Plain(Speaking):
        def headers_of(self, seed):
            return {"content_type": "audio/wav"}

    done = moss("say", "Hello.", "-o", tmp_path / "a.wav", "--url", serving(Plain).url)
    assert (done.returncode, done.stderr.decode()) == (0, f"seed not told, {SECONDS}, {tmp_path / 'a.wav'}\n")


def test_progress_is_shown_on_a_terminal_and_taken_away(speaking, tmp_path):
    command = [sys.executable, "-m", "cli", "say", "Hi.", "--stream", "-o", str(tmp_path / "a.wav")]
    with terminal() as (theirs, everything):
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=theirs, env=environment(MOSS_TTS_URL=speaking.url, COLUMNS="100")
        )
        assert process.communicate(timeout=30)[0] == b""
        shown = everything().decode()
    assert process.returncode == 0
    assert "24.0 kB, 0.5 s of audio, the first after" in shown
    erase_line = "\x1b[2K"
    last = shown[shown.rindex(erase_line) + len(erase_line) :]
    assert last.strip() == f"seed 1, {SECONDS}, {tmp_path / 'a.wav'}"


def test_speaking_loads_neither_torch_nor_ray(speaking, tmp_path):
    program = (
        "import sys\n"
        "from cli.__main__ import main\n"
        "try:\n    main()\n"
        "finally:\n    print(sorted({'torch', 'ray', 'transformers', 'fastapi'} & set(sys.modules)))\n"
    )
    file = tmp_path / "a.wav"
    command = [sys.executable, "-c", program, "say", "Hello.", "-o", str(file), "--url", speaking.url]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), cwd=ROOT, check=False)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
    assert soundfile.info(io.BytesIO(file.read_bytes())).frames == SAMPLES
