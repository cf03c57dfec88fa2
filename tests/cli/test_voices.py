"""`moss-tts-serve voices` against a server that keeps them."""

import pytest

from tests.cli.conftest import KeepingVoices, Server, moss, samples, wav_file


@pytest.fixture
def keeping(serving):
    return serving(KeepingVoices)


@pytest.fixture
def clip(tmp_path):
    file = tmp_path / "clip.wav"
    file.write_bytes(wav_file(samples(5)))
    return file


def test_a_voice_comes_is_listed_and_goes(keeping, clip):
    added = moss("voices", "add", "Anna Müller", clip, "--ref-text", "Grüße", "--key", "k", MOSS_TTS_URL=keeping.url)
    assert (added.returncode, added.stdout.decode()) == (0, "added Anna Müller\n"), added.stderr
    assert keeping.voices["Anna Müller"]["file"] == ("clip.wav", clip.read_bytes())
    assert keeping.voices["Anna Müller"]["ref_text"][1].decode() == "Grüße"
    assert keeping.asked[-1][2]["authorization"] == "Bearer k"

    listed = moss("voices", "list", "--url", keeping.url)
    assert (listed.returncode, listed.stdout.decode()) == (0, "default\nAnna Müller\n")

    removed = moss("voices", "remove", "Anna Müller", "--url", keeping.url)
    assert (removed.returncode, removed.stdout.decode()) == (0, "removed Anna Müller\n")
    assert keeping.voices == {}


def test_without_a_text_none_is_sent(keeping, clip):
    assert moss("voices", "add", "anna", clip, "--url", keeping.url).returncode == 0
    assert set(keeping.voices["anna"]) == {"name", "file"}


def test_refusals_are_told_in_the_servers_words(keeping, clip):
    assert moss("voices", "add", "anna", clip, "--url", keeping.url).returncode == 0
    again = moss("voices", "add", "anna", clip, "--url", keeping.url)
    message = 'moss-tts-serve: the server answered 409: there is a voice named "anna" already\n'
    assert (again.returncode, again.stdout, again.stderr.decode()) == (1, b"", message)
    gone = moss("voices", "remove", "berta", "--url", keeping.url)
    assert gone.returncode == 1
    assert "404: there is no uploaded voice of this name" in gone.stderr.decode()


@pytest.mark.parametrize("name", ["..", "a/b", "a?b", "50%"])
def test_a_name_cannot_lead_out_of_its_place_in_the_url(keeping, name):
    done = moss("voices", "remove", name, "--url", keeping.url)
    assert done.returncode == (2 if name == ".." else 1)
    quoted = {"a/b": "a%2Fb", "a?b": "a%3Fb", "50%": "50%25"}
    assert [path for _, path, *_ in keeping.asked] == ([f"/v1/audio/voices/{quoted[name]}"] if name in quoted else [])


def test_a_missing_clip_never_reaches_the_server(keeping, tmp_path):
    assert moss("voices", "add", "anna", tmp_path / "none.wav", "--url", keeping.url).returncode == 2
    assert keeping.asked == []


def test_names_do_not_steer_the_terminal(serving):
    class Hostile(Server):
        def do_GET(self):
            self.send(200, b'{"voices": [{"name": "a\\u001b[2Jb"}]}', content_type="application/json")

    assert moss("voices", "list", "--url", serving(Hostile).url).stdout == b"a [2Jb\n"


def test_another_kind_of_server_is_noticed(serving):
    class Other(Server):
        def do_GET(self):
            self.send(200, b"<html></html>", content_type="text/html")

    done = moss("voices", "list", "--url", serving(Other).url)
    assert done.returncode == 1
    assert "no list of voices" in done.stderr.decode()


def test_without_a_server_nothing_can_be_listed():
    assert moss("voices", "list", "--url", "http://127.0.0.1:1").returncode == 3
