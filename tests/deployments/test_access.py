"""Keys, their limits and CORS, in front of an app of this test's own."""

import asyncio

import httpx
import pytest
from fastapi import FastAPI

from deployments.access import KeyGate, install_access, read_keys
from deployments.limits import HttpLimits
from pipeline.errors import SpeechError


@pytest.fixture
def keys_file(tmp_path):
    path = tmp_path / "keys"
    path.write_text("# for the tests\nalpha\n\n  beta \n")
    return path


class Door:
    """An app whose one route waits until it is let go."""

    def __init__(self, **limits):
        self.app = FastAPI()
        self.go = asyncio.Event()

        @self.app.post("/v1/audio/speech")
        async def speech():
            await self.go.wait()
            return {}

        @self.app.get("/health")
        async def health():
            return {}

        install_access(self.app, HttpLimits(**limits))

    def client(self, key=None):
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx.AsyncClient(transport=httpx.ASGITransport(self.app), base_url="http://door", headers=headers)


async def statuses(calls):
    return [answer.status_code for answer in await asyncio.gather(*calls)]


async def test_without_a_file_of_keys_anyone_may_call():
    door = Door()
    door.go.set()
    async with door.client() as client:
        assert (await client.post("/v1/audio/speech")).status_code == 200


async def test_with_one_only_its_keys_may(keys_file):
    door = Door(api_keys_file=keys_file)
    door.go.set()
    for key, expected in (
        (None, 401),
        ("gamma", 401),
        ("alph", 401),
        ("alpha", 200),
        ("beta", 200),
        ("# for the tests", 401),
    ):
        async with door.client(key) as client:
            answer = await client.post("/v1/audio/speech")
            assert answer.status_code == expected
            if expected == 401:
                assert answer.json()["error"]["code"] == "invalid_api_key"
                assert answer.headers["www-authenticate"] == "Bearer"
            assert (await client.get("/health")).status_code == 200


@pytest.mark.parametrize("header", ["alpha", "Basic alpha", "Bearer", "Bearer ", "Bearer \xe4"])
async def test_other_authorizations_are_none(keys_file, header):
    door = Door(api_keys_file=keys_file)
    async with door.client() as client:
        answer = await client.post("/v1/audio/speech", headers={"Authorization": header.encode("latin-1")})
        assert answer.status_code == 401


async def test_a_key_has_so_many_requests_at_once_and_another_key_its_own(keys_file):
    door = Door(api_keys_file=keys_file, key_requests=2)
    async with door.client("alpha") as alpha, door.client("beta") as beta:
        running = [asyncio.create_task(client.post("/v1/audio/speech")) for client in (alpha, alpha, beta)]
        await asyncio.sleep(0.05)
        refused = await alpha.post("/v1/audio/speech")
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "rate_limit_exceeded")
        assert int(refused.headers["retry-after"]) >= 1
        door.go.set()
        assert await statuses(running) == [200, 200, 200]
        assert (await alpha.post("/v1/audio/speech")).status_code == 200


async def test_a_key_may_begin_so_many_requests_a_minute():
    now = 0.0

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    gate = KeyGate(app, frozenset({"alpha"}), per_minute=3, clock=lambda: now)
    headers = {"Authorization": "bearer alpha"}
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(gate), base_url="http://door", headers=headers
    ) as client:
        assert [(await client.get("/x")).status_code for _ in range(5)] == [200, 200, 200, 429, 429]
        assert (await client.get("/x")).headers["retry-after"] == "20"
        now = 21.0
        assert [(await client.get("/x")).status_code for _ in range(2)] == [200, 429]
        now = 10_000.0
        assert [(await client.get("/x")).status_code for _ in range(4)] == [200, 200, 200, 429]


async def test_pages_of_listed_origins_may_call_and_read_the_headers(keys_file):
    door = Door(api_keys_file=keys_file, cors_origins=("https://page.example",))
    door.go.set()
    asked = {"Origin": "https://page.example", "Access-Control-Request-Method": "POST"}
    asked["Access-Control-Request-Headers"] = "authorization,content-type"
    async with door.client() as client:
        preflight = await client.options("/v1/audio/speech", headers=asked)
        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-origin"] == "https://page.example"
        refused = await client.post("/v1/audio/speech", headers={"Origin": "https://page.example"})
        assert refused.status_code == 401
        assert refused.headers["access-control-allow-origin"] == "https://page.example"
        assert "X-Seed" in refused.headers["access-control-expose-headers"]
        other = await client.options("/v1/audio/speech", headers=asked | {"Origin": "https://other.example"})
        assert "access-control-allow-origin" not in other.headers


def test_a_file_without_keys_is_an_error(tmp_path):
    empty = tmp_path / "empty"
    empty.write_text("# nothing\n")
    for path in (empty, tmp_path / "missing"):
        with pytest.raises(SpeechError, match=path.name):
            read_keys(path)
