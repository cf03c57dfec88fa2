"""From a request body to its jobs: parts, prompt, seed, budget, sampling, reference clip."""

import base64
import io
import json
import wave

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deployments.http_errors import ApiError, to_api_error
from deployments.limits import HttpLimits
from deployments.schema import parse_speech
from deployments.speech_job import clip_bytes, to_jobs
from pipeline.config import CodecConfig
from pipeline.errors import InvalidRequest
from pipeline.languages import estimated_frames
from pipeline.reference import ClipCache, decode_audio, prepare_reference
from pipeline.request import MAX_SEED, Prompt, SamplingParams, SpeechRequest
from tests.conftest import TINY

CODEC = CodecConfig.load(TINY / "codec")


def job_of(limits=None, **fields):
    (job,) = jobs_of(limits, **fields)
    return job


def jobs_of(limits=None, **fields):
    limits = limits or HttpLimits()
    body = parse_speech(json.dumps({"input": "Hi.", **fields}).encode(), limits)
    clip = None if body.ref_audio is None else ClipCache(CODEC).prepared(clip_bytes(body.ref_audio))
    return to_jobs(body, request_id="r", limits=limits, clip=clip)


def request_of(**fields):
    return job_of(**fields).request


def wav_file(seconds=1.5, rate=16_000, channels=1):
    t = np.arange(int(seconds * rate)) / rate
    tone = (8000 * np.sin(2 * np.pi * 220 * t)).astype("<i2")
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(channels)
        out.setsampwidth(2)
        out.setframerate(rate)
        out.writeframes(np.repeat(tone, channels).tobytes())
    return file.getvalue()


def base64_of(data):
    return base64.b64encode(data).decode()


def test_every_field_reaches_the_request():
    job = job_of(
        input="Guten Tag.",
        instructions="warm",
        language="de",
        duration_tokens=40,
        max_frames=90,
        seed=7,
        temperature=1.1,
        top_p=0.7,
        top_k=3,
        repetition_penalty=1.2,
        text_temperature=0.5,
        text_top_p=0.6,
        text_top_k=2,
    )
    prompt = Prompt("Guten Tag.", instruction="warm", tokens=40, language="German")
    assert job.request == SpeechRequest("r", prompt, 7, 90, SamplingParams(1.1, 0.7, 3, 1.2, 0.5, 0.6, 2))
    assert job.reference is None


def test_defaults_are_the_models_own():
    assert request_of(seed=0).sampling == SamplingParams()
    assert request_of(seed=0).prompt == Prompt("Hi.")


def test_the_seed_is_kept_and_zero_is_a_seed():
    assert [request_of(seed=seed).seed for seed in (0, 5, MAX_SEED)] == [0, 5, MAX_SEED]


def test_without_a_seed_each_request_gets_a_fresh_one():
    seeds = {request_of().seed for _ in range(20)}
    assert len(seeds) == 20
    assert all(0 <= seed <= MAX_SEED for seed in seeds)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, 1.0),
        ({"temperature": 0.3}, 1.0),
        ({"temperature": 0}, 0.0),
        ({"temperature": 0, "text_temperature": 0.7}, 0.7),
        ({"text_temperature": 0}, 0.0),
    ],
)
def test_the_decision_to_end_follows_greedy_codes_only(fields, expected):
    assert request_of(**fields).sampling.stop_temperature == expected


def test_numbers_stay_what_they_mean_in_the_samplers_float32():
    sampling = request_of(top_p=1e-300, text_top_p=5e-324, repetition_penalty=1e-60, top_k=10**30).sampling
    as_float32 = np.array([sampling.top_p, sampling.stop_top_p, sampling.repetition_penalty], dtype=np.float32)
    assert (as_float32 > 0).all()
    assert np.int64(sampling.top_k) > 10**6


def test_max_frames_is_taken_as_it_is():
    assert request_of(max_frames=1, duration_tokens=500).max_frames == 1


def test_the_budget_grows_with_the_text_and_never_cuts_slow_speech():
    for text in ("Yes.", "A longer sentence, with a bit more to say. " * 5, "今天天气很好。" * 20):
        budget = request_of(limits=HttpLimits(part_frames=1000), input=text).max_frames
        assert 2 * estimated_frames(text, None) + 25 < budget <= 4096


def test_the_budget_leaves_room_for_the_wished_length():
    assert request_of(duration_tokens=400).max_frames > 400
    assert request_of(input="${token:400}Hi.").max_frames == request_of(duration_tokens=400).max_frames


def test_the_budget_is_capped():
    limits = HttpLimits(max_frames=60)
    assert {job.request.max_frames for job in jobs_of(limits=limits, input="word " * 1000)} == {60}
    assert request_of(limits=limits, duration_tokens=60).max_frames == 60


@pytest.mark.parametrize(
    "wrap",
    [
        base64_of,
        lambda data: "data:audio/wav;base64," + base64_of(data),
        lambda data: " data:audio/wav;codecs=1;base64," + base64_of(data) + "\n",
        lambda data: "DATA:;BASE64," + base64_of(data),
        lambda data: base64_of(data).rstrip("="),
        lambda data: base64.urlsafe_b64encode(data).decode(),
        lambda data: base64.encodebytes(data).decode(),
    ],
)
def test_a_clip_in_any_spelling_of_base64(wrap):
    data = wav_file(rate=22_050)
    job = job_of(ref_audio=wrap(data))
    np.testing.assert_array_equal(job.reference, prepare_reference(*decode_audio(data), CODEC))
    assert job.reference.dtype == np.float32
    assert job.reference.shape[0] == CODEC.channels
    assert job.request.prompt == Prompt("Hi.")


@pytest.mark.parametrize(
    "clip",
    [
        "",
        "  ",
        "no base64!",
        "AAAAA",
        "data:audio/wav,AAAA",
        "data:audio/wav;base64,",
        "data:audio/wav;base64",
        "data:audio/wav;base64,@@@@",
        "ÄÄÄÄ",
        "file:///etc/passwd",
        base64_of(b"this is no audio at all, just text"),
        base64_of(wav_file(seconds=0.5)),
        base64_of(wav_file(seconds=31, rate=8000)),
        base64_of(wav_file()[:44]),
    ],
    ids=lambda clip: clip[:20],
)
def test_a_clip_that_cannot_be_used_is_refused(clip):
    with pytest.raises((ApiError, InvalidRequest)) as caught:
        job_of(ref_audio=clip)
    error = to_api_error(caught.value)
    assert (error.status, error.param) == (400, "ref_audio")
    assert len(error.message) < 300


@pytest.mark.parametrize(
    ("transcript", "text", "joined"),
    [
        ("Good morning.", "How are you?", "Good morning. How are you?"),
        ("Good morning. ", " How are you?", "Good morning. How are you?"),
        ("你好。", "今天好吗?", "你好。今天好吗?"),
        ("你好", "hello", "你好hello"),
        ("こんにちは", "さようなら", "こんにちはさようなら"),
        ("안녕하세요", "반갑습니다", "안녕하세요 반갑습니다"),
        ("สวัสดี", "ครับ", "สวัสดี ครับ"),
    ],
)
def test_a_continuation_joins_the_transcript_and_the_text(transcript, text, joined):
    job = job_of(input=text, ref_audio=base64_of(wav_file()), ref_text=transcript, ref_mode="continuation", seed=1)
    assert job.request.prompt == Prompt(joined, continuation=True)
    assert job.reference is not None


def test_the_transcript_does_not_raise_the_budget_of_a_continuation():
    clip = {"ref_audio": base64_of(wav_file()), "ref_text": "word " * 100}
    assert request_of(**clip, ref_mode="continuation").max_frames == request_of().max_frames


LONG = "The first sentence is here. " + "Another one follows it, and it is a little longer. " * 20


def test_a_long_text_has_parts_with_seeds_of_their_own():
    jobs = jobs_of(input=LONG, seed=9)
    assert len(jobs) > 2
    assert jobs[0].request.prompt.text == "The first sentence is here."
    assert " ".join(job.request.prompt.text for job in jobs) == LONG.strip()
    seeds = [job.request.seed for job in jobs]
    assert seeds[0] == 9
    assert len(set(seeds)) == len(jobs)
    assert all(0 <= seed <= MAX_SEED for seed in seeds)
    assert seeds == [job.request.seed for job in jobs_of(input=LONG, seed=9)]
    assert len({job.request.request_id for job in jobs}) == len(jobs)


def test_the_wished_length_is_shared_out_among_the_parts():
    jobs = jobs_of(input=LONG, duration_tokens=1000)
    wishes = [job.request.prompt.tokens for job in jobs]
    assert abs(sum(wishes) - 1000) <= len(jobs)
    assert wishes[0] < wishes[1]


def test_only_the_first_part_goes_on_from_a_clip():
    jobs = jobs_of(input=LONG, ref_audio=base64_of(wav_file()), ref_text="Before.", ref_mode="continuation")
    assert [job.request.prompt.continuation for job in jobs] == [True] + [False] * (len(jobs) - 1)
    assert jobs[0].request.prompt.text.startswith("Before. The first")
    assert all(job.reference is not None for job in jobs)


def test_texts_of_one_conversation_are_numbered_on():
    clip = ClipCache(CODEC).prepared(wav_file())
    fields = {"input": LONG, "seed": 9, "ref_audio": "AAAA", "ref_text": "Before.", "ref_mode": "continuation"}
    body = parse_speech(json.dumps(fields).encode(), HttpLimits())
    first = to_jobs(body, request_id="r", limits=HttpLimits(), clip=clip)
    later = to_jobs(body, request_id="r", limits=HttpLimits(), clip=clip, first_part=1)
    assert [job.request.seed for job in later[:-1]] == [job.request.seed for job in first[1:]]
    assert [job.request.request_id for job in later[:-1]] == [job.request.request_id for job in first[1:]]
    assert [job.request.prompt.continuation for job in (first[0], later[0])] == [True, False]


def test_text_is_put_into_words_unless_that_is_off():
    assert request_of(input="**It** is 5 km.").prompt.text == "It is five kilometers."
    assert request_of(input="**It** is 5 km.", normalize=False).prompt.text == "**It** is 5 km."


def test_a_clones_transcript_is_not_spoken():
    job = job_of(ref_audio=base64_of(wav_file()), ref_text="Good morning.")
    assert job.request.prompt == Prompt("Hi.")


@settings(deadline=None, max_examples=100)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "input": st.text(max_size=40),
            "temperature": st.floats(0, 2),
            "top_p": st.floats(0, 1, exclude_min=True),
            "top_k": st.integers(-1),
            "repetition_penalty": st.floats(0, 2, exclude_min=True),
            "ref_audio": st.text(max_size=20) | st.binary(max_size=40).map(base64_of),
        },
    )
)
def test_any_valid_fields_make_a_job_or_a_clear_refusal(fields):
    try:
        request = request_of(**fields, normalize=False)
    except (ApiError, InvalidRequest) as error:
        assert to_api_error(error).status in (400, 404)
    else:
        assert 1 <= request.max_frames <= 4096
        assert request.prompt.text
