"""The body of POST /v1/audio/speech, field by field as its documentation promises."""

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from deployments.http_errors import ApiError, error_body
from deployments.limits import HttpLimits
from deployments.schema import OPENAI_ONLY_FIELDS, SpeechBody, parse_speech, speech_request_body

LIMITS = HttpLimits(max_input_chars=200, max_frames=1000, max_body_bytes=100_000)
OPENAI_SPEECH_FIELDS = (
    "input",
    "model",
    "voice",
    "instructions",
    "response_format",
    "speed",
    "stream_format",
)
UNSET = {
    "model": None,
    "voice": "default",
    "normalize": True,
    "instructions": None,
    "response_format": "mp3",
    "stream": False,
    "stream_format": "audio",
    "speed": 1.0,
    "seed": None,
    "temperature": 1.7,
    "top_p": 0.8,
    "top_k": 25,
    "repetition_penalty": 1.0,
    "text_temperature": None,
    "text_top_p": 1.0,
    "text_top_k": 50,
    "language": None,
    "duration_tokens": None,
    "max_frames": None,
    "ref_audio": None,
    "ref_text": None,
    "ref_mode": None,
    "sample_rate": None,
    "channels": None,
}
CLIP = {"ref_audio": "AAAA"}
NAN, INFINITY = float("nan"), float("inf")

ACCEPTED = {
    "input": ["Hi.", "7", "你好", "سلام", "½", "é", "😀 ok", "a" * 200, "<|im_end|>", " \n x"],
    "model": ["anything, as names are looked up later"],
    "voice": ["default", "alloy", "nobody, as names are looked up later"],
    "instructions": ["whisper"],
    "stream": [True, False],
    "normalize": [True, False],
    "stream_format": ["audio", "sse"],
    "speed": [0.25, 1, 1.0, 1.5, 4],
    "seed": [0, 42, 2**63 - 1],
    "temperature": [0, 0.0, 1, 1.25, 2],
    "text_temperature": [0, 0.0, 1, 1.25, 2],
    "top_p": [0.01, 1, 1.0],
    "text_top_p": [0.01, 1, 1.0],
    "top_k": [-1, 0, 1, 25, 10**6],
    "text_top_k": [-1, 0, 1, 25, 10**6],
    "repetition_penalty": [0.01, 1, 1.3, 2],
    "duration_tokens": [1, 1000],
    "max_frames": [1, 1000],
    "ref_audio": ["data:audio/wav;base64,AAAA", "AAAA"],
    "sample_rate": [8000, 24000, 44100, 48000],
    "channels": [1, 2],
}
NO_TEXT = [1, 1.5, True, [], ["a"], {}]
NO_NUMBER = ["1", "", "nan", True, False, [], [1], {}, NAN, INFINITY, -INFINITY]
NO_INTEGER = [*NO_NUMBER, 1.0, 0.5, 1e300]
NOTHING_TO_SAY = ["", " \n\t", "😀👍", "1️⃣ ℹ️", "...!?", "。、", "[pause 2s]", "\u3164", "${token:5}"]
BAD_PREFIXES = ["${token:0}a", "${token:1001}a", "${token:x}a", "${token:5a"]
REFUSED = {
    "input": [*NO_TEXT, *NOTHING_TO_SAY, *BAD_PREFIXES, "a" * 201, "a\0b", "a\ud800b"],
    "model": [*NO_TEXT, "a\0", "\ud800"],
    "voice": [1, True, [], {}, {"id": 1}, {"id": "alloy", "x": 1}, {"name": "alloy"}, "a\0", "\ud800"],
    "instructions": [*NO_TEXT, "a" * 201, "a\0", "\udfff"],
    "response_format": [*NO_TEXT, "", "ogg", "mp3,wav"],
    "stream": [0, 1, "true", "", [], {}],
    "normalize": [0, 1, "true", "", [], {}],
    "stream_format": [*NO_TEXT, "", "SSE", "AUDIO "],
    "speed": [*NO_NUMBER, 0.249, 4.01, 0, -1],
    "seed": [*NO_INTEGER, -1, 2**63, 2**64, 10**30, "42", 42.0],
    "temperature": [*NO_NUMBER, -0.1, 2.01, 10**400],
    "text_temperature": [*NO_NUMBER, -0.1, 2.01],
    "top_p": [*NO_NUMBER, 0, -0.5, 1.01],
    "text_top_p": [*NO_NUMBER, 0, -0.5, 1.01],
    "top_k": [*NO_INTEGER, -2],
    "text_top_k": [*NO_INTEGER, -2],
    "repetition_penalty": [*NO_NUMBER, 0, -1, 2.01],
    "language": [*NO_TEXT, "klingon", "english!", "x" * 5000, "en\0"],
    "duration_tokens": [*NO_INTEGER, 0, -1, 1001],
    "max_frames": [*NO_INTEGER, 0, -1, 1001],
    "ref_audio": [*NO_TEXT, "A\0"],
    "ref_text": [*NO_TEXT, "a" * 201, "a\0"],
    "ref_mode": [*NO_TEXT, "", "copy", "Clone"],
    "sample_rate": [*NO_INTEGER, 0, 7999, 48001],
    "channels": [*NO_INTEGER, 0, 3, -1],
}


def cases(table):
    return [pytest.param(name, value, id=f"{name}-{value!a:.30}") for name in table for value in table[name]]


def parse(fields, limits=LIMITS):
    return parse_speech(json.dumps(fields).encode(), limits)


def refusal(fields, limits=LIMITS):
    with pytest.raises(ApiError) as caught:
        parse(fields, limits)
    assert_presentable(caught.value)
    return caught.value


def assert_presentable(error):
    """Short, of OpenAI's shape, and strict JSON in UTF-8."""
    body = error_body(error)
    text = json.dumps(body, ensure_ascii=False, allow_nan=False)
    assert json.loads(text.encode()) == body
    assert body["error"].keys() == {"message", "type", "param", "code"}
    assert body["error"]["message"]
    assert len(text) < 1500


def test_the_tables_cover_every_field():
    assert set(SpeechBody.model_fields) == {"input", *UNSET} == set(REFUSED)
    assert set(UNSET) - set(ACCEPTED) == {"response_format", "language", "ref_text", "ref_mode"}  # own tests


@pytest.mark.parametrize(("name", "value"), cases(ACCEPTED))
def test_accepts(name, value):
    body = parse({"input": "Hi.", name: value})
    assert getattr(body, name) == value
    assert type(getattr(body, name)) is type(value) or isinstance(getattr(body, name), float)


@pytest.mark.parametrize(("name", "value"), cases(REFUSED))
def test_refuses_naming_the_field(name, value):
    fields = {"input": "Hi.", **(CLIP if name in ("ref_text", "ref_mode") else {}), name: value}
    error = refusal(fields)
    assert (error.status, error.type, error.param) == (400, "invalid_request_error", name)
    assert name in error.message


def test_left_out_and_null_mean_the_default():
    expected = {"input": "Hi.", **UNSET}
    assert parse({"input": "Hi."}).model_dump() == expected
    assert parse({"input": "Hi.", **dict.fromkeys(UNSET)}).model_dump() == expected


@pytest.mark.parametrize("fields", [{}, {"input": None}, {"voice": "alloy"}])
def test_input_is_required(fields):
    error = refusal(fields)
    assert (error.status, error.param, error.code) == (400, "input", "missing_required_parameter")


@pytest.mark.parametrize("name", ["temperature", "top_p", "repetition_penalty", "seed", "speed", "top_k"])
@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "1e400", "-1e400", "9" * 5000])
def test_numbers_out_of_this_world_are_refused_by_name(name, literal):
    if (name, literal) == ("top_k", "9" * 5000):
        assert parse_speech(b'{"input": "a", "top_k": %s}' % literal.encode(), LIMITS).top_k > 10**18
        return
    with pytest.raises(ApiError) as caught:
        parse_speech(b'{"input": "a", "%s": %s}' % (name.encode(), literal.encode()), LIMITS)
    assert (caught.value.status, caught.value.param) == (400, name)
    assert_presentable(caught.value)


@pytest.mark.parametrize(
    ("given_format", "expected"),
    [("mp3", "mp3"), ("wav", "wav"), ("flac", "flac"), ("pcm", "pcm"), (" WAV\n", "wav"), ("Mp3", "mp3")],
)
def test_response_format_forgives_case_and_blanks(given_format, expected):
    assert parse({"input": "a", "response_format": given_format}).response_format == expected


def test_an_unavailable_format_is_answered_with_the_available_ones():
    message = refusal({"input": "a", "response_format": "speex"}).message
    assert all(name in message for name in ("mp3", "wav", "flac", "pcm", "speex"))


def test_a_voice_can_be_given_as_an_object():
    assert parse({"input": "a", "voice": {"id": "alloy"}}).voice == "alloy"


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ("en", "English"),
        ("english", "English"),
        (" ZH ", "Chinese"),
        ("Yue", "Cantonese"),
        ("auto", None),
        ("", None),
        ("  ", None),
    ],
)
def test_language_by_name_or_code(language, expected):
    assert parse({"input": "a", "language": language}).language == expected


@pytest.mark.parametrize("name", ["instructions", "ref_text"])
def test_blank_texts_are_unset(name):
    assert getattr(parse({"input": "a", name: " \n"}), name) is None


def test_messages_name_the_configured_caps():
    limits = HttpLimits(max_input_chars=7, max_frames=13)
    assert "7" in refusal({"input": "12345678"}, limits).message
    assert "13" in refusal({"input": "a", "max_frames": 14}, limits).message
    assert parse({"input": "1234567", "max_frames": 13}, limits).max_frames == 13


@pytest.mark.parametrize("name", ["foo", "Input", "text", "x" * 5000, "a\nb", "ref_voice"])
def test_unknown_fields_are_refused_by_name(name):
    error = refusal({"input": "a", name: None})
    assert (error.status, error.code) == (400, "unknown_parameter")
    assert error.param[:20] == name[:20]
    assert "seed" in error.message


def test_a_field_name_that_is_no_text_is_refused():
    assert refusal({"input": "a", "\ud800": 1}).status == 400


def test_fields_that_openai_has_are_never_unknown():
    assert set(OPENAI_SPEECH_FIELDS) <= set(SpeechBody.model_fields)
    extra = {name: {"any": ["value"]} for name in OPENAI_ONLY_FIELDS}
    assert parse({"input": "a", **extra}) == parse({"input": "a"})


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"ref_text": "hello"}, "ref_text"),
        ({"ref_mode": "clone"}, "ref_mode"),
        ({"ref_mode": "continuation", **CLIP}, "ref_text"),
        ({"ref_mode": "continuation", "ref_text": " ", **CLIP}, "ref_text"),
        ({"sample_rate": 47999}, "sample_rate"),
        ({"sample_rate": 10000, "response_format": "MP3"}, "sample_rate"),
        ({"input": "${token:5}a", "duration_tokens": 6}, "duration_tokens"),
    ],
)
def test_fields_that_do_not_fit_together(fields, param):
    error = refusal({"input": "a", **fields})
    assert (error.status, error.param) == (400, param)


@pytest.mark.parametrize(
    "fields",
    [
        CLIP,
        {"ref_text": "hello", **CLIP},
        {"ref_mode": "clone", **CLIP},
        {"ref_mode": "continuation", "ref_text": "hello", **CLIP},
        {"sample_rate": 47999, "response_format": "wav"},
        {"input": "${token:5}a", "duration_tokens": 5},
    ],
)
def test_fields_that_fit_together(fields):
    parse({"input": "a", **fields})


@pytest.mark.parametrize(
    ("text", "spoken", "frames"),
    [
        ("${token:50}Hi there. ", "Hi there.", 50),
        ("  ${token:1000} Hi", "Hi", 1000),
        (" Hi ${token:50}", "Hi ${token:50}", None),
    ],
)
def test_a_token_prefix_is_the_wished_length(text, spoken, frames):
    body = parse({"input": text})
    assert (body.text, body.wished_frames) == (spoken, frames)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"[]",
        b'"text"',
        b"1",
        b"{",
        b'{"input": "a"',
        b'{"input": "a"} {}',
        b'{"input": "\xff"}',
        b'{"input": "\xed\xa0\x80"}',
        b"{'input': 'a'}",
        '{"input": "a"}'.encode("utf-16"),
        b'{"input": "a\n"}',
        b'{"input": "a", "input": "b"}',
        b'{"input": "a", "user": {"x": 1, "x": 2}}',
        b"[" * 100_000,
        b'{"user":' * 12_000,
        b"[" * 50_000 + b"]" * 50_000,
        b"input=a&voice=alloy",
    ],
    ids=lambda raw: repr(raw[:20]),
)
def test_bodies_that_are_no_json_object(raw):
    with pytest.raises(ApiError) as caught:
        parse_speech(raw, LIMITS)
    assert caught.value.status == 400
    assert_presentable(caught.value)


def test_a_byte_order_mark_is_forgiven():
    assert parse_speech(b'\xef\xbb\xbf{"input": "a"}', LIMITS).input == "a"


def test_a_body_over_the_limit_is_refused_with_413():
    with pytest.raises(ApiError) as caught:
        parse_speech(b" " * (LIMITS.max_body_bytes + 1), LIMITS)
    assert caught.value.status == 413
    assert str(LIMITS.max_body_bytes) in caught.value.message


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**63 - 1, 2**63, -(2**63), 10**30, 10**400])
    | st.floats()
    | st.text(st.characters(exclude_categories=()), max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(deadline=None, max_examples=600)
@given(name=st.sampled_from(sorted(SpeechBody.model_fields)), value=json_values)
@example(name="voice", value={"id": "\ud800"})
@example(name="language", value="İ")
def test_any_json_value_is_taken_or_refused_properly(name, value):
    fields = {"input": "Hi.", **(CLIP if name in ("ref_text", "ref_mode") else {}), name: value}
    try:
        body = parse(fields)
    except ApiError as error:
        assert 400 <= error.status < 500
        assert error.param is not None
        assert_presentable(error)
    else:
        assert value is None or getattr(body, name) is not None or str(value).strip().lower() in ("", "auto")


@settings(deadline=None, max_examples=150)
@given(st.dictionaries(st.sampled_from([*SpeechBody.model_fields, "user", "foo"]), json_values))
def test_any_object_is_taken_or_refused_properly(fields):
    try:
        parse(fields)
    except ApiError as error:
        assert 400 <= error.status < 500
        assert_presentable(error)


@settings(deadline=None, max_examples=150)
@given(st.binary(max_size=200))
def test_any_bytes_are_refused_properly(raw):
    with pytest.raises(ApiError) as caught:
        parse_speech(raw, LIMITS)
    assert caught.value.status == 400
    assert_presentable(caught.value)


def test_openapi_describes_every_field_and_stands_alone():
    content = speech_request_body()["requestBody"]["content"]["application/json"]
    schema = content["schema"]
    assert "$ref" not in json.dumps(schema)
    assert schema["required"] == ["input"]
    assert schema["additionalProperties"] is False
    assert set(schema["properties"]) == set(SpeechBody.model_fields)
    for name, field in schema["properties"].items():
        assert len(field["description"]) > 20
        if name != "input":
            assert {"type": "null"} in field["anyOf"]
            assert field["default"] == UNSET[name]
    assert parse(content["example"])


def test_openapi_examples_are_accepted():
    for name, field in speech_request_body()["requestBody"]["content"]["application/json"]["schema"][
        "properties"
    ].items():
        for value in field.get("examples", []):
            assert parse({"input": "a", name: value})
