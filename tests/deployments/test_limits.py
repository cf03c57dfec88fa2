"""What one request may take, each limit over real HTTP, on a model that never stops by itself.

The application has limits of its own and a route prefix, beside that of the other tests.
"""

import base64
import json
import socket
import time
from contextlib import AsyncExitStack

import httpx
import pytest
import torch
from ray import serve
from safetensors.torch import load_file, save_file

from deployments.app import bind
from pipeline.built_in_voices import FILE
from pipeline.random_checkpoint import codec_config, tts_config, write_checkpoint
from pipeline.runaway import LONGEST_LOOP
from tests.deployments.conftest import idle, settings, until_ready
from tests.deployments.test_voice_routes import clip, upload

APP = "guarded"
SPEECH = "/v1/audio/speech"
FRAME = 0.08
MOST_BYTES, MOST_CHARS, MOST_FRAMES = 600_000, 400, 3000
BODY_SECONDS, DEADLINE_SECONDS = 1.0, 5.0
AT_ONCE, PER_MINUTE = 2, 40
KEYS = ("first", "second", "third", "fourth")


def make_endless(directory):
    """The random model, with a stop head that always says to go on and codes that hardly depend on anything."""
    write_checkpoint(directory, tts_config(), codec_config())
    path = directory / "tts" / "model.safetensors"
    weights = load_file(path)
    weights["local_text_lm_head.weight"] *= 1000
    weights["local_transformer.ln_f.weight"] *= 0.01
    save_file(weights, path, metadata={"format": "pt"})
    codes = torch.randint(0, 128, (25, 12), generator=torch.Generator().manual_seed(1))
    save_file({"Bella": codes}, directory / "tts" / FILE)


@pytest.fixture(scope="module")
def guarded(cluster, tmp_path_factory):
    """Base URL of the application, and how to deploy it anew."""
    directory = tmp_path_factory.mktemp("guarded")
    make_endless(directory)
    keys = directory / "keys"
    keys.write_text("\n".join(KEYS))
    one = {"autoscaling": {"min_replicas": 1, "max_replicas": 1}}
    application = settings(
        model={"tts": directory / "tts", "codec": directory / "codec"},
        backbone=one,
        depth=one,
        codec=one,
        voices={"store": str(directory / "voices"), "max_voices": 2},
        http={
            "max_body_bytes": MOST_BYTES,
            "max_input_chars": MOST_CHARS,
            "max_frames": MOST_FRAMES,
            "body_seconds": BODY_SECONDS,
            "deadline_seconds": DEADLINE_SECONDS,
            "api_keys_file": keys,
            "key_requests": AT_ONCE,
            "key_requests_per_minute": PER_MINUTE,
        },
    )
    url = f"{cluster}/{APP}"

    def deploy():
        serve.run(bind(application), name=APP, route_prefix=f"/{APP}")
        until_ready(url)

    deploy()
    yield url, deploy
    serve.delete(APP)


@pytest.fixture
def url(guarded):
    return guarded[0]


def of_key(url, key):
    return httpx.AsyncClient(base_url=url, timeout=60, headers={"Authorization": f"Bearer {key}"})


@pytest.fixture
async def client(url):
    async with of_key(url, "first") as client:
        yield client


def body(**fields):
    return {"input": "It goes on.", "response_format": "pcm", "sample_rate": 48000, "seed": 1, **fields}


def seconds_of(pcm):
    return len(pcm) / 2 / 48000


def error_of(response):
    assert response.headers["content-type"] == "application/json"
    assert set(response.json()) == {"error"}
    return response.json()["error"]


async def test_a_model_that_goes_round_is_stopped_as_a_runaway(client):
    answer = await client.post(SPEECH, json=body(temperature=0, max_frames=300))
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-finish-reason"] == "runaway"
    assert seconds_of(answer.content) == pytest.approx(LONGEST_LOOP, abs=2 * FRAME)
    again = await client.post(SPEECH, json=body(temperature=0, max_frames=300, stream_format="sse"))
    events = [json.loads(line[6:]) for line in again.text.splitlines() if line.startswith("data: ")]
    assert b"".join(base64.b64decode(event["audio"]) for event in events[:-1]) == answer.content
    assert events[-1]["finish_reason"] == "runaway"
    await idle(app=APP)


async def test_a_model_that_wanders_is_stopped_at_the_budget_of_its_text(client):
    short, longer = [await client.post(SPEECH, json=body(input=text)) for text in ("Yes.", "Yes, it goes on.")]
    for answer in (short, longer):
        assert answer.headers["x-finish-reason"] == "length"
    assert 2 < seconds_of(short.content) < seconds_of(longer.content) < 60
    cut = await client.post(SPEECH, json=body(max_frames=7))
    assert seconds_of(cut.content) == pytest.approx(7 * FRAME)
    assert cut.headers["x-finish-reason"] == "length"


async def test_an_answer_that_takes_too_long_is_given_up_with_504(client):
    answer = await client.post(SPEECH, json=body(max_frames=MOST_FRAMES))
    assert answer.status_code == 504
    assert error_of(answer)["code"] == "deadline_exceeded"
    assert "5 s" in error_of(answer)["message"]
    await idle(app=APP)


async def test_a_stream_that_takes_too_long_never_ends_cleanly(client):
    got = 0
    with pytest.raises(httpx.RemoteProtocolError):
        async with client.stream("POST", SPEECH, json=body(max_frames=MOST_FRAMES, stream=True)) as response:
            assert response.status_code == 200
            async for part in response.aiter_bytes():
                got += len(part)
    assert 0 < seconds_of(b"") + got < MOST_FRAMES * 3840 * 2
    events = await client.post(SPEECH, json=body(max_frames=MOST_FRAMES, stream_format="sse"))
    last = json.loads(events.text.strip().splitlines()[-1].removeprefix("data: "))
    assert last["type"] == "error"
    assert last["error"]["code"] == "deadline_exceeded"
    await idle(app=APP)


async def test_limits_of_text_frames_and_body_name_themselves(client):
    for fields, status, param, named in (
        ({"input": "a" * (MOST_CHARS + 1)}, 400, "input", str(MOST_CHARS)),
        ({"instructions": "a" * (MOST_CHARS + 1)}, 400, "instructions", str(MOST_CHARS)),
        ({"max_frames": MOST_FRAMES + 1}, 400, "max_frames", str(MOST_FRAMES)),
        ({"duration_tokens": MOST_FRAMES + 1}, 400, "duration_tokens", str(MOST_FRAMES)),
        ({"ref_audio": "A" * MOST_BYTES}, 413, None, str(MOST_BYTES)),
        ({"ref_audio": "https://example.com/a.wav"}, 400, "ref_audio", "list"),
    ):
        answer = await client.post(SPEECH, json=body(**fields))
        assert answer.status_code == status, answer.text
        assert error_of(answer)["param"] == param
        assert named in error_of(answer)["message"]


def raw_connection(url):
    parts = httpx.URL(url)
    return socket.create_connection((parts.host, parts.port), timeout=30)


def head(url, length, key="second"):
    path = httpx.URL(url).path
    return (
        f"POST {path}{SPEECH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    ).encode()


def answer_of(connection):
    data = b""
    while b"\r\n\r\n" not in data or not data.endswith(b"}"):
        part = connection.recv(65536)
        if not part:
            break
        data += part
    return data


def test_a_body_over_the_limit_is_refused_before_it_has_come(url):
    with raw_connection(url) as connection:
        connection.sendall(head(url, 10**12))
        sent = 0
        while sent <= MOST_BYTES:
            sent += connection.send(b"a" * 50_000)
        answer = answer_of(connection)
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"body_too_large" in answer


def test_bodies_that_drip_in_are_given_up_and_keep_nobody_waiting(url):
    drips = [raw_connection(url) for _ in range(AT_ONCE)]
    for connection in drips:
        connection.sendall(head(url, 1000) + b'{"input": "')
    began = time.monotonic()
    with httpx.Client(base_url=url, headers={"Authorization": "Bearer third"}, timeout=60) as client:
        assert client.post(SPEECH, json=body(max_frames=3)).status_code == 200
    while time.monotonic() - began < BODY_SECONDS / 2:
        for connection in drips:
            connection.sendall(b"a")
        time.sleep(0.1)
    for connection in drips:
        answer = answer_of(connection)
        assert answer.startswith(b"HTTP/1.1 408"), answer
        assert b"body_too_slow" in answer
        connection.close()


async def test_keys_are_needed_and_limited_each_for_itself(url):
    async with httpx.AsyncClient(base_url=url, timeout=60) as nobody, of_key(url, "wrong") as wrong:
        for client in (nobody, wrong):
            refused = await client.post(SPEECH, json=body())
            assert refused.status_code == 401
            assert error_of(refused)["code"] == "invalid_api_key"
        for path in ("/", "/health", "/ready", "/docs", "/openapi.json"):
            assert (await nobody.get(path)).status_code == 200
    async with of_key(url, "second") as second, of_key(url, "third") as third:
        async with AsyncExitStack() as running:
            for _ in range(AT_ONCE):
                request = second.stream("POST", SPEECH, json=body(max_frames=MOST_FRAMES, stream=True))
                assert (await running.enter_async_context(request)).status_code == 200
            refused = await second.post(SPEECH, json=body())
            assert refused.status_code == 429
            assert error_of(refused)["code"] == "rate_limit_exceeded"
            assert int(refused.headers["retry-after"]) >= 1
            assert (await third.post(SPEECH, json=body(max_frames=3))).status_code == 200
        await idle(app=APP)
        assert (await second.post(SPEECH, json=body(max_frames=3))).status_code == 200
    async with of_key(url, "fourth") as fourth, of_key(url, "third") as third:
        statuses = [(await fourth.get("/v1/models")).status_code for _ in range(PER_MINUTE + 3)]
        assert statuses[: PER_MINUTE - 1] == [200] * (PER_MINUTE - 1)
        assert statuses[-1] == 429
        assert (await third.get("/v1/models")).status_code == 200


def test_a_voice_of_the_model_speaks_and_is_protected(url):
    with httpx.Client(base_url=url, headers={"Authorization": "Bearer third"}, timeout=60) as client:
        voices = client.get("/v1/audio/voices").json()["voices"]
        assert [(voice["name"], voice["built_in"]) for voice in voices[:2]] == [("default", True), ("Bella", True)]
        assert client.get("/v1/audio/voices/bella").json()["name"] == "Bella"
        own, bella, again = [
            client.post(SPEECH, json=body(voice=name, max_frames=20)) for name in ("default", "Bella", "BELLA")
        ]
        assert bella.status_code == 200
        assert bella.content == again.content != own.content
        for refused in (upload(client, "bella"), client.delete("/v1/audio/voices/Bella")):
            assert refused.status_code == 409
            assert error_of(refused)["code"] == "voice_protected"


def test_voices_survive_a_restart(guarded):
    url, deploy = guarded
    with httpx.Client(base_url=url, headers={"Authorization": "Bearer third"}, timeout=60) as client:
        for name in ("Ada", "Ben"):
            assert upload(client, name, clip(150.0 if name == "Ada" else 220.0)).status_code == 201
        full = upload(client, "Cleo")
        assert full.status_code == 409
        assert error_of(full)["code"] == "too_many_voices"
        spoken = [client.post(SPEECH, json=body(voice=name, max_frames=20)).content for name in ("Ada", "Ben")]
        serve.delete(APP)
        deploy()
        assert [voice["name"] for voice in client.get("/v1/audio/voices").json()["voices"]][2:] == ["Ada", "Ben"]
        again = [client.post(SPEECH, json=body(voice=name, max_frames=20)).content for name in ("Ada", "Ben")]
        assert again == spoken
        assert spoken[0] != spoken[1]
        assert client.delete("/v1/audio/voices/Ada").json() == {"id": "Ada", "object": "voice", "deleted": True}
        assert client.post(SPEECH, json=body(voice="Ada")).status_code == 404
