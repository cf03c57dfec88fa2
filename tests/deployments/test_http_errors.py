"""Every error has OpenAI's shape, a fitting status, and tells nothing it should not."""

import json
import pickle

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from deployments.http_errors import (
    ApiError,
    body_too_large,
    error_body,
    error_response,
    install,
    model_not_found,
    shown,
    to_api_error,
    voice_not_found,
)
from pipeline.errors import CheckpointError, EngineStopped, InvalidRequest, ModelFailure, QueueFull

SECRET = "/srv/models/host-17: avcodec_send_packet()"
MAPPED = [
    (InvalidRequest("seed must be an integer", param="seed"), 400, "invalid_request_error"),
    (QueueFull(SECRET), 429, "rate_limit_error"),
    (EngineStopped(SECRET), 503, "server_error"),
    (ModelFailure(SECRET), 500, "server_error"),
    (CheckpointError(SECRET), 500, "server_error"),
    (KeyError(SECRET), 500, "server_error"),
    (UnicodeDecodeError("utf-8", b"", 0, 1, SECRET), 500, "server_error"),
]


@pytest.fixture(scope="module")
def client():
    app = FastAPI()
    install(app)

    @app.get("/fail/{number}")
    async def fail(number: int):
        raise MAPPED[number][0]

    @app.get("/own")
    async def own():
        raise voice_not_found("nobody", ["default"])

    return TestClient(app, raise_server_exceptions=False)


def error_of(response):
    assert response.headers["content-type"] == "application/json"
    assert response.json().keys() == {"error"}
    error = response.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    return error


@pytest.mark.parametrize(("error", "status", "kind"), MAPPED, ids=lambda value: type(value).__name__)
def test_exceptions_become_answers(error, status, kind):
    answer = to_api_error(error)
    assert (answer.status, answer.type) == (status, kind)
    assert ("Retry-After" in answer.headers) == (status in (429, 503))


@pytest.mark.parametrize("number", range(len(MAPPED)))
def test_handlers_answer_alike_and_leak_nothing(client, number):
    response = client.get(f"/fail/{number}")
    error, status, kind = MAPPED[number]
    assert (response.status_code, error_of(response)["type"]) == (status, kind)
    assert ("retry-after" in response.headers) == (status in (429, 503))
    for word in ("srv", "host-17", "avcodec", "Traceback", type(error).__name__):
        assert word not in response.text


def test_an_invalid_request_keeps_its_message_and_field():
    answer = to_api_error(InvalidRequest("seed must be an integer", param="seed"))
    assert (answer.message, answer.param) == ("seed must be an integer", "seed")


def test_an_api_error_is_answered_as_it_is(client):
    response = client.get("/own")
    assert response.status_code == 404
    assert error_of(response) == {
        "message": 'there is no voice "nobody"; the voices are: default',
        "type": "invalid_request_error",
        "param": "voice",
        "code": "voice_not_found",
    }


def test_unknown_routes_methods_and_parameters_have_the_same_shape(client):
    missing = client.get("/v1/nothing")
    assert missing.status_code == 404
    assert "/v1/nothing" in error_of(missing)["message"]
    wrong_method = client.post("/own")
    assert (wrong_method.status_code, wrong_method.headers["allow"]) == (405, "GET")
    assert "GET" in error_of(wrong_method)["message"]
    wrong_parameter = client.get("/fail/x")
    assert wrong_parameter.status_code == 400
    assert error_of(wrong_parameter)["param"] == "number"


def test_not_found_and_too_large_say_what_would_do():
    assert "tts-1" in model_not_found("gpt", ["moss", "tts-1"]).message
    error = body_too_large(1234)
    assert (error.status, "1234" in error.message) == (413, True)


@pytest.mark.parametrize("text", ["\ud800 lone", "line\nbreak\0", "x" * 10**6, '“quotes" \\', "\u202e"])
def test_bodies_are_short_valid_json_whatever_the_message_holds(text):
    error = ApiError(400, text, param=text)
    body = json.loads(error_response(error).body.decode("utf-8"))
    assert body == error_body(error)
    assert len(body["error"]["message"]) <= 2000
    assert len(body["error"]["param"]) <= 100
    assert body["error"]["message"].isprintable()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (1, "1"),
        (1.5, "1.5"),
        (float("nan"), "NaN"),
        ("a", '"a"'),
        ([1] * 1000, "an array"),
        ({"a": 1}, "an object"),
    ],
)
def test_values_are_shown_as_in_json(value, text):
    assert shown(value) == text


def test_huge_values_are_shown_short():
    for value in ("x" * 10**6, 10**5000, -(10**5000)):
        assert len(shown(value)) <= 100


def test_api_errors_survive_pickling():
    error = ApiError(429, "busy", "rate_limit_error", "p", "c", {"Retry-After": "1"})
    copy = pickle.loads(pickle.dumps(error))
    assert vars(copy) == vars(error)
    assert str(copy) == "busy"
