"""`moss-tts-serve say` aloud: with players that are scripts, and a terminal that is none."""

import json
import os
import signal
import subprocess
import sys
import threading

import pytest

from tests.cli.conftest import Speaking, environment, moss, samples, stalling, start, streamed, terminal, wav_file

PLAYER = """#!{python}
import json, os, sys
if "--help" in sys.argv:
    print({help!r})
    sys.exit()
print("noise of a player")
print("noise of a player", file=sys.stderr)
heard = open(sys.argv[-1], "rb") if os.path.exists(sys.argv[-1]) else sys.stdin.buffer
with open({log!r}, "wb") as log:
    log.write(json.dumps([os.path.basename(sys.argv[0]), *sys.argv[1:]]).encode() + b"\\n" + heard.read())
"""


class Loudspeaker:
    """Puts players on a PATH of their own, and knows what they were told and heard."""

    def __init__(self, directory):
        self.path = directory / "bin"
        self.path.mkdir()
        self._log = directory / "heard"

    def install(self, name, script=PLAYER, **values):
        file = self.path / name
        values = {"python": sys.executable, "log": str(self._log), "help": "usage", **values}
        file.write_text(script.format(**values))
        file.chmod(0o755)

    @property
    def command(self):
        return json.loads(self._log.read_bytes().split(b"\n", 1)[0])

    @property
    def heard(self):
        return self._log.read_bytes().split(b"\n", 1)[1]

    def say(self, server, *options):
        """Exit status, what was on the terminal, what was on stderr."""
        with terminal() as (theirs, everything):
            process = start("say", "Hi.", "--url", server.url, *options, stdout=theirs, PATH=str(self.path))
            err = process.communicate(timeout=60)[1]
            return process.returncode, everything(), err.decode()


@pytest.fixture
def loudspeaker(tmp_path):
    return Loudspeaker(tmp_path)


RAW = ["24000", "1"]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("ffplay", ["-nodisp", "-autoexit", "-loglevel", "error", "-i", "pipe:0"]),
        ("mpv", ["--no-video", "--no-terminal", "-"]),
        ("paplay", ["--raw", "--format=s16le", "--rate=24000", "--channels=1"]),
        ("pw-play", ["--format=s16", "--rate=24000", "--channels=1", "-"]),
        ("aplay", ["-q", "-t", "raw", "-f", "S16_LE", "-r", "24000", "-c", "1", "-"]),
    ],
)
def test_each_player_hears_the_stream_in_a_format_it_understands(speaking, loudspeaker, name, told):
    loudspeaker.install(name)
    status, out, err = loudspeaker.say(speaking, "--seed", "5")
    assert (status, out, err) == (0, b"", f"seed 5, 0.50 s, {name}\n")
    assert loudspeaker.command == [name, *told]
    header = name in ("ffplay", "mpv")
    assert loudspeaker.heard == (streamed(wav_file(samples(5))) if header else samples(5))
    assert json.loads(speaking.asked[-1][3])["stream"] is True


def test_a_player_that_reads_no_pipe_gets_a_whole_file(speaking, loudspeaker):
    loudspeaker.install("afplay")
    status, _, err = loudspeaker.say(speaking, "--seed", "5")
    assert (status, err) == (0, "seed 5, 0.50 s, afplay\n")
    assert loudspeaker.heard == wav_file(samples(5))
    assert not os.path.exists(loudspeaker.command[1])


def test_a_newer_pipewire_is_told_that_there_is_no_header(speaking, loudspeaker):
    loudspeaker.install("pw-play", help="  -a, --raw   RAW mode")
    assert loudspeaker.say(speaking)[0] == 0
    assert loudspeaker.command[:2] == ["pw-play", "--raw"]


def test_the_first_player_of_the_list_is_taken(speaking, loudspeaker):
    for name in ("aplay", "mpv", "paplay"):
        loudspeaker.install(name)
    assert loudspeaker.say(speaking)[2].endswith(", mpv\n")


def test_a_format_that_is_given_is_played_where_the_player_understands_it(speaking, loudspeaker):
    loudspeaker.install("mpv")
    assert loudspeaker.say(speaking, "--format", "flac")[0] == 0
    assert loudspeaker.heard.startswith(b"fLaC")
    status, _, err = loudspeaker.say(speaking, "--format", "pcm")
    assert status == 2
    assert "mpv plays wav, mp3, opus, aac, flac, not pcm" in err


def test_without_a_player_the_message_says_what_to_do(speaking, loudspeaker):
    status, _, err = loudspeaker.say(speaking)
    assert status == 2
    assert "install one of ffplay, mpv, paplay, pw-play, aplay, afplay, or write a file with -o out.wav" in err
    assert speaking.asked == []


def test_a_player_that_fails_is_quoted(speaking, loudspeaker):
    loudspeaker.install("aplay", "#!/bin/sh\necho 'audio open error: no card' >&2\nexit 1\n")
    status, _, err = loudspeaker.say(speaking)
    assert status == 1
    assert err == (
        "moss-tts-serve: aplay stopped before the end (audio open error: no card); "
        "-o writes the audio to a file instead\n"
    )


def test_a_player_that_ends_early_is_no_success(serving, loudspeaker):
    class Long(Speaking):
        def send_stream(self, content):
            for _ in range(100):
                self.send_chunk(content)
            self.send_chunk(b"")

    loudspeaker.install("aplay", "#!/bin/sh\nexit 0\n")
    status, _, err = loudspeaker.say(serving(Long))
    assert status == 1
    assert "aplay stopped before the end (without a message)" in err


def test_a_slow_player_does_not_hold_up_the_server(serving, loudspeaker):
    all_sent, go_on = threading.Event(), loudspeaker.path / "go on"

    class Long(Speaking):
        def send_stream(self, content):
            for _ in range(100):
                self.send_chunk(content)
            self.send_chunk(b"")
            all_sent.set()

    waits = "#!{python}\nimport os, sys, time\nwhile not os.path.exists({go_on!r}):\n    time.sleep(0.02)\n"
    loudspeaker.install("aplay", waits + "sys.stdin.buffer.read()\n", go_on=str(go_on))
    with terminal() as (theirs, _):
        process = start("say", "Hi.", "--url", serving(Long).url, stdout=theirs, PATH=str(loudspeaker.path))
        assert all_sent.wait(30)
        go_on.touch()
        assert process.wait(30) == 0
        process.communicate()


def test_an_interrupt_stops_the_player_quietly(serving, loudspeaker, tmp_path):
    arrived, pid_file = threading.Event(), tmp_path / "pid"
    holds = "#!{python}\nimport os, sys\nopen({pid!r}, 'w').write(str(os.getpid()))\nsys.stdin.buffer.read()\n"
    loudspeaker.install("aplay", holds, pid=str(pid_file))
    with terminal() as (theirs, everything):
        process = start(
            "say", "Hi.", "--url", serving(stalling(arrived)).url, stdout=theirs, PATH=str(loudspeaker.path)
        )
        assert arrived.wait(30)
        while not (pid_file.exists() and pid_file.read_text()):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        err = process.communicate(timeout=30)[1]
        assert (process.returncode, everything(), err) == (130, b"", b"")
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)


def test_nothing_is_played_into_a_pipe(speaking, loudspeaker):
    loudspeaker.install("aplay")
    done = moss("say", "Hi.", "--url", speaking.url, PATH=str(loudspeaker.path))
    assert done.stdout == wav_file(samples(1))


def test_progress_of_what_is_played_is_on_the_terminal_without_the_players_noise(speaking, loudspeaker):
    loudspeaker.install("aplay")
    with terminal() as (theirs, everything):
        changes = environment(PATH=str(loudspeaker.path), MOSS_TTS_URL=speaking.url)
        command = [sys.executable, "-m", "cli", "say", "Hi."]
        process = subprocess.Popen(command, stdout=theirs, stderr=theirs, env=changes)
        assert process.wait(30) == 0
        shown = everything().decode()
    assert "noise" not in shown
    assert "seed 1, 0.50 s, aplay" in shown
