"""`stream_format: sse` over real HTTP."""

import base64
import json


def body(**fields):
    return {"input": "Hello there.", "response_format": "pcm", "seed": 5, "max_frames": 30, **fields}


def events(text):
    assert text.endswith("\n\n")
    return [json.loads(event.removeprefix("data: ")) for event in text.strip().split("\n\n")]


def test_events_carry_the_bytes_of_the_plain_answer(client):
    plain = client.post("/v1/audio/speech", json=body())
    answer = client.post("/v1/audio/speech", json=body(stream_format="sse"))
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["x-seed"] == "5"
    *deltas, done = events(answer.text)
    assert len(deltas) > 1
    assert {event["type"] for event in deltas} == {"speech.audio.delta"}
    assert b"".join(base64.b64decode(event["audio"]) for event in deltas) == plain.content
    assert done["type"] == "speech.audio.done"
    assert (done["seed"], done["finish_reason"]) == (5, plain.headers["x-finish-reason"])
    usage = done["usage"]
    assert usage["output_tokens"] * 1920 * 2 == len(plain.content)
    assert usage["input_tokens"] > 0
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]


def test_an_error_before_the_first_audio_is_an_ordinary_answer(client):
    answer = client.post("/v1/audio/speech", json=body(stream_format="sse", voice="nobody"))
    assert answer.status_code == 404
    assert answer.json()["error"]["param"] == "voice"
