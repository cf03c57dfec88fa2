"""POST /v1/audio/speech/batch over real HTTP."""

import base64

import pytest


def request(**fields):
    return {"input": "Hello there.", "response_format": "wav", "seed": 5, "max_frames": 20, **fields}


def batch(client, requests):
    return client.post("/v1/audio/speech/batch", json={"requests": requests})


def test_each_request_gets_the_bytes_it_would_get_alone(client):
    requests = [request(seed=seed, input=f"Text {seed}.") for seed in range(4)]
    alone = [client.post("/v1/audio/speech", json=each) for each in requests]
    answer = batch(client, requests)
    assert answer.status_code == 200
    for index, (result, single) in enumerate(zip(answer.json()["results"], alone, strict=True)):
        assert (result["index"], result["status"]) == (index, 200)
        assert base64.b64decode(result["audio"]) == single.content
        assert result["content_type"] == "audio/wav"
        assert (str(result["seed"]), result["finish_reason"]) == (
            single.headers["x-seed"],
            single.headers["x-finish-reason"],
        )


def test_a_wrong_request_has_its_own_error_and_costs_the_others_nothing(client):
    wrong = [request(speed=9), {"input": "Hi.", "voice": "nobody"}, 7, request(stream=True)]
    results = batch(client, [request(), *wrong, request()]).json()["results"]
    assert [result["status"] for result in results] == [200, 400, 404, 400, 400, 200]
    assert [result["error"]["param"] for result in results[1:5]] == ["speed", "voice", "requests", "stream"]
    assert results[0]["audio"] == results[5]["audio"]


@pytest.mark.parametrize("value", [[], None, {}, "x", [{"input": "Hi."}] * 33])
def test_a_batch_that_is_none_is_refused(client, value):
    answer = batch(client, value)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "requests"


def test_other_fields_are_refused(client):
    answer = client.post("/v1/audio/speech/batch", json={"requests": [request()], "model": "tts-1"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "model")
