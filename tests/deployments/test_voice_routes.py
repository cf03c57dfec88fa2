"""Uploading, using, listing and deleting voices over real HTTP; two replicas of everything."""

import asyncio
import base64
import io
import wave

import numpy as np
import pytest


def clip(pitch=180.0, seconds=2.0, rate=16_000):
    t = np.arange(int(seconds * rate)) / rate
    tone = sum(np.sin(2 * np.pi * pitch * k * t) / k for k in range(1, 6)) * (0.6 + 0.4 * np.sin(2 * np.pi * 3 * t))
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes((5000 * tone).astype("<i2").tobytes())
    return file.getvalue()


def upload(client, name, data=None, field="file", **texts):
    return client.post(
        "/v1/audio/voices", data={"name": name, **texts}, files={field: ("a.wav", data or clip(), "audio/wav")}
    )


def speech(client, **fields):
    body = {"input": "Hello there.", "response_format": "pcm", "seed": 5, "max_frames": 20, **fields}
    return client.post("/v1/audio/speech", json=body)


@pytest.fixture
def name(request, client):
    name = f"Voice of {request.node.name[:40]}".replace("[", "-").replace("]", "").replace("_", " ").strip()
    yield name
    client.delete(f"/v1/audio/voices/{name}")


def test_an_uploaded_voice_speaks_as_its_clip_would(client, name):
    answer = upload(client, name, ref_text="La la.", description="A test.")
    assert answer.status_code == 201, answer.text
    assert answer.json()["name"] == name
    assert answer.json()["ref_text"] == "La la."
    spoken = speech(client, voice=name)
    assert spoken.status_code == 200
    cloned = speech(client, ref_audio=base64.b64encode(clip()).decode())
    assert spoken.content == cloned.content
    assert spoken.content != speech(client).content
    assert speech(client, voice={"id": name.upper()}).content == spoken.content


def test_it_is_listed_shown_and_gone_after_its_deletion(client, name):
    assert upload(client, name, field="audio_sample").status_code == 201
    listed = client.get("/v1/audio/voices").json()["voices"]
    assert listed[0]["id"] == "default"
    assert name in [voice["id"] for voice in listed]
    shown = client.get(f"/v1/audio/voices/{name}").json()
    assert (shown["id"], shown["built_in"]) == (name, False)
    gone = client.delete(f"/v1/audio/voices/{name}")
    assert gone.json() == {"id": name, "object": "voice", "deleted": True}
    assert client.get(f"/v1/audio/voices/{name}").status_code == 404
    for _ in range(8):  # whichever replica answers
        answer = speech(client, voice=name)
        assert (answer.status_code, answer.json()["error"]["param"]) == (404, "voice")
    assert client.delete(f"/v1/audio/voices/{name}").status_code == 404


def test_the_same_name_with_another_clip_is_another_voice(client, name):
    upload(client, name)
    first = speech(client, voice=name).content
    client.delete(f"/v1/audio/voices/{name}")
    upload(client, name, clip(pitch=90))
    assert speech(client, voice=name).content != first


async def test_of_many_uploads_under_one_name_one_wins(async_client, client, name):
    files = {"file": ("a.wav", clip(), "audio/wav")}
    answers = await asyncio.gather(
        *(async_client.post("/v1/audio/voices", data={"name": name}, files=files) for _ in range(6))
    )
    assert sorted(answer.status_code for answer in answers) == [201, 409, 409, 409, 409, 409]
    assert {a.json()["error"]["code"] for a in answers if a.status_code == 409} == {"voice_taken"}


@pytest.mark.parametrize("taken", ["default", "Alloy", "NOVA"])
def test_built_in_names_are_protected(client, taken):
    answer = upload(client, taken)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "voice_protected")
    assert client.delete(f"/v1/audio/voices/{taken.lower()}").status_code == 409


@pytest.mark.parametrize("bad", ["../x", "a/b", "", " ", "x" * 65, "a\nb", "‮abc"])
def test_bad_names_are_refused(client, bad):
    answer = upload(client, bad)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "name")


def test_a_file_that_is_no_clip_is_refused_and_leaves_no_voice(client, name):
    for data in (b"no audio", clip(seconds=0.3)):
        answer = upload(client, name, data)
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "file"
    assert client.get(f"/v1/audio/voices/{name}").status_code == 404


def test_bodies_that_are_no_upload_are_refused(client):
    assert client.post("/v1/audio/voices", json={"name": "x"}).status_code == 400
    assert client.post("/v1/audio/voices", data={"name": "x"}).status_code == 400
    broken = {"content-type": "multipart/form-data; boundary=x"}
    assert client.post("/v1/audio/voices", content=b"--y\r\nnothing", headers=broken).status_code == 400
    no_boundary = {"content-type": "multipart/form-data"}
    assert client.post("/v1/audio/voices", content=b"--y\r\nnothing", headers=no_boundary).status_code == 400
    assert upload(client, "x", extra="y").status_code == 400
