"""Every field of POST /v1/audio/speech over a real socket: what it accepts is spoken, all else refused by name."""

import asyncio
import json

from deployments.limits import HttpLimits
from deployments.schema import OPENAI_ONLY_FIELDS
from deployments.served import OPENAI_VOICES
from pipeline.languages import LANGUAGES
from tests.deployments.test_schema import ACCEPTED, CLIP, LIMITS, REFUSED
from tests.deployments.test_speech import clip

SPEECH = "/v1/audio/speech"
TOGETHER = 8
SHORT = {"input": "Hi.", "response_format": "pcm", "max_frames": 3}
SERVED = HttpLimits()


def at_the_servers_limits(value):
    """A value at or over a limit of the tables, as one at or over the server's."""
    swaps = {
        LIMITS.max_frames: SERVED.max_frames,
        LIMITS.max_frames + 1: SERVED.max_frames + 1,
        "a" * LIMITS.max_input_chars: "a" * SERVED.max_input_chars,
        "a" * (LIMITS.max_input_chars + 1): "a" * (SERVED.max_input_chars + 1),
        f"${{token:{LIMITS.max_frames + 1}}}a": f"${{token:{SERVED.max_frames + 1}}}a",
    }
    return swaps.get(value, value) if type(value) in (int, str) else value


async def answers(client, bodies):
    gate = asyncio.Semaphore(TOGETHER)

    async def post(fields):
        async with gate:
            content = json.dumps(fields).encode()
            return await client.post(SPEECH, content=content, headers={"Content-Type": "application/json"})

    return await asyncio.gather(*(post(fields) for fields in bodies))


async def test_every_accepted_value_is_spoken(async_client):
    values = {name: [at_the_servers_limits(value) for value in ACCEPTED[name]] for name in ACCEPTED}
    values |= {
        "model": ["moss-tts-local", "tts-1", "tts-1-hd", "gpt-4o-mini-tts"],
        "voice": ["default", "Default", "Alloy", {"id": "alloy"}, *OPENAI_VOICES],
        "response_format": ["mp3", "opus", "aac", "flac", "wav", "pcm", " WAV ", "Mp3\n"],
        "language": [*LANGUAGES, *LANGUAGES.values(), "auto", "ENGLISH", ""],
        "ref_audio": [clip(1.0), clip(1.0).split(",")[1], clip(1.0, format="FLAC")],
        **{name: ["anything", 1, {"a": 1}] for name in OPENAI_ONLY_FIELDS},
    }
    bodies = [{**SHORT, name: value} for name in values for value in [*values[name], *[None] * (name != "input")]]
    for body in bodies:
        if len(body["input"]) > 100 or body["max_frames"] is None or body["max_frames"] > 3:
            body |= {"text_temperature": 0, "max_frames": 3}
    for body, answer in zip(bodies, await answers(async_client, bodies), strict=True):
        assert answer.status_code == 200, (body, answer.text)
        assert answer.content
        assert answer.headers["x-seed"].isdecimal()
        assert answer.headers["x-request-id"]


async def test_every_other_value_is_refused_by_the_name_of_its_field(async_client):
    cases = [
        (name, {**SHORT, **(CLIP if name in ("ref_text", "ref_mode") else {}), name: at_the_servers_limits(value)})
        for name in REFUSED
        for value in REFUSED[name]
    ]
    refusals = await answers(async_client, [body for _, body in cases])
    for (name, body), answer in zip(cases, refusals, strict=True):
        assert answer.status_code == 400, (body, answer.status_code)
        error = json.loads(answer.content)["error"]
        assert error["param"] == name, body
        assert error["type"] == "invalid_request_error"
        assert name in error["message"]
