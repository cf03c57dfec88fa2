"""The whole application over real sockets: two replicas of each computing deployment, real audio files."""

import asyncio
import base64
import io
import wave

import av
import numpy as np
import pytest
import soundfile

from tests.deployments.conftest import idle, stats

TEXTS = [
    f"This is sentence number {word}, and no other."
    for word in ["one", "two", "three", "four", "five", "six", "seven", "eight"]
]


def body(text=TEXTS[0], **fields):
    return {"input": text, "response_format": "wav", "max_frames": 30, **fields}


def read_wav(data):
    with wave.open(io.BytesIO(data)) as file:
        return file.getframerate(), file.getnchannels(), file.readframes(file.getnframes())


async def speak(client, **fields):
    response = await client.post("/v1/audio/speech", json=body(**fields))
    assert response.status_code == 200, response.text
    return response


def test_a_wav_is_what_its_headers_say(client):
    response = client.post("/v1/audio/speech", json=body(seed=3))
    assert response.status_code == 200
    rate, channels, frames = read_wav(response.content)
    assert response.headers["content-type"] == "audio/wav"
    assert response.headers["content-length"] == str(len(response.content))
    assert (response.headers["x-sample-rate"], response.headers["x-channels"]) == (str(rate), str(channels))
    assert (rate, channels) == (48000, 2)
    assert response.headers["x-seed"] == "3"
    assert response.headers["x-request-id"]
    assert response.headers["x-finish-reason"] in ("stop", "length")
    samples = np.frombuffer(frames, dtype="<i2")
    assert len(samples) % (3840 * 2) == 0
    assert 100 < np.abs(samples.astype(int)).mean() < 20_000


def test_the_request_id_of_the_client_is_kept(client):
    response = client.post("/v1/audio/speech", json=body(), headers={"X-Request-Id": "mine-7"})
    assert response.headers["x-request-id"] == "mine-7"


async def test_eight_texts_at_once_each_get_their_own_answer(async_client):
    alone = [(await speak(async_client, text=text, seed=5)).content for text in TEXTS]
    together = await asyncio.gather(*(speak(async_client, text=text, seed=5) for text in TEXTS))
    assert [response.content for response in together] == alone
    assert len(set(alone)) == len(TEXTS)


async def test_a_seed_repeats_and_seeds_differ_among_seeded_and_unseeded_neighbours(async_client):
    seeds = [0, 1, 2**32, 2**63 - 1]
    mixed = [*seeds, None, None, *seeds, None]
    answers = await asyncio.gather(*(speak(async_client, seed=seed) for seed in mixed))
    by_seed = {}
    for seed, answer in zip(mixed, answers, strict=True):
        drawn = int(answer.headers["x-seed"])
        assert seed in (None, drawn)
        by_seed.setdefault(drawn, set()).add(answer.content)
    assert len(by_seed) == len(seeds) + 3
    assert all(len(contents) == 1 for contents in by_seed.values())
    assert len(set.union(*by_seed.values())) == len(by_seed)


async def test_an_unseeded_answer_can_be_repeated_with_the_seed_it_names(async_client):
    first = await speak(async_client)
    again = await speak(async_client, seed=int(first.headers["x-seed"]))
    assert again.content == first.content


@pytest.mark.parametrize("response_format", ["wav", "flac", "pcm", "mp3"])
async def test_streamed_equals_whole(async_client, response_format):
    fields = {"response_format": response_format, "seed": 11, "max_frames": 40}
    whole = await speak(async_client, **fields)
    async with async_client.stream("POST", "/v1/audio/speech", json=body(**fields, stream=True)) as response:
        assert response.status_code == 200
        assert "content-length" not in response.headers
        assert response.headers["x-seed"] == "11"
        parts = [part async for part in response.aiter_bytes()]
    assert len(parts) > 1
    streamed = b"".join(parts)
    if response_format == "pcm":
        assert streamed == whole.content
        assert response.headers["x-sample-rate"] == "24000"
        assert response.headers["x-channels"] == "1"
    elif response_format == "wav":
        assert streamed[4:8] == streamed[40:44] == b"\xff\xff\xff\xff"
        assert streamed[44:] == read_wav(whole.content)[2]
    else:
        got, expected = decode(streamed), decode(whole.content)
        samples = expected.shape[1]
        assert np.array_equal(got[:, :samples], expected)
        assert got.shape[1] - samples < 0.05 * 48000  # a streamed mp3 ends with a whole frame


def decode(data):
    """Samples by libav, which is not what reads audio anywhere else in this file."""
    with av.open(io.BytesIO(data)) as container:
        return np.concatenate([frame.to_ndarray() for frame in container.decode(audio=0)], axis=1)


def clip(seconds=2.0, rate=22050, format="WAV"):
    """A spoken-like clip of another rate than the codec's, mono, as a data URI."""
    time = np.arange(int(seconds * rate)) / rate
    samples = 0.2 * np.sin(2 * np.pi * 180 * time) * (1 + np.sin(2 * np.pi * 3 * time))
    file = io.BytesIO()
    soundfile.write(file, np.round(samples * 32000).astype(np.int16), rate, format=format)
    return f"data:audio/{format.lower()};base64,{base64.b64encode(file.getvalue()).decode()}"


async def test_a_cloned_voice_repeats_alone_and_beside_others(async_client):
    fields = {"ref_audio": clip(), "seed": 2}
    alone = await speak(async_client, **fields)
    together = await asyncio.gather(
        *(speak(async_client, **fields) for _ in range(3)),
        *(speak(async_client, ref_audio=clip(1.5 + i), seed=2) for i in range(3)),
        speak(async_client, seed=2),
    )
    assert all(answer.content == alone.content for answer in together[:3])
    assert len({answer.content for answer in together}) == 5


async def test_the_same_clip_in_another_lossless_file_format_gives_the_same_answer(async_client):
    wav, flac = await asyncio.gather(*(speak(async_client, ref_audio=clip(format=f), seed=4) for f in ("WAV", "FLAC")))
    assert wav.content == flac.content


async def test_continuation_speaks_only_what_is_new(async_client):
    fields = {"ref_audio": clip(), "ref_text": "So far so good", "ref_mode": "continuation", "seed": 2}
    continued = await speak(async_client, **fields, max_frames=12)
    assert len(read_wav(continued.content)[2]) <= 12 * 3840 * 4
    assert continued.content != (await speak(async_client, ref_audio=clip(), seed=2, max_frames=12)).content


async def test_sampling_fields_reach_the_model(async_client):
    plain = await speak(async_client, seed=1)
    for fields in (
        {"temperature": 0}, {"top_k": 1}, {"top_p": 0.05}, {"repetition_penalty": 1.8}, {"language": "fr"},
        {"instructions": "whisper"}, {"duration_tokens": 77},
    ):  # fmt: skip
        assert (await speak(async_client, seed=1, **fields)).content != plain.content
    greedy = await asyncio.gather(*(speak(async_client, temperature=0, seed=seed) for seed in (1, 2)))
    assert greedy[0].content == greedy[1].content


async def test_one_bad_request_among_eight_good_ones_costs_the_others_nothing(async_client):
    alone = [(await speak(async_client, text=text, seed=9)).content for text in TEXTS]
    good = [speak(async_client, text=text, seed=9) for text in TEXTS]
    bad = async_client.post("/v1/audio/speech", json=body(seed=-1))
    *answers, refused = await asyncio.gather(*good, bad)
    assert [answer.content for answer in answers] == alone
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "seed"
    assert str(2**63 - 1) in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    ("fields", "status", "param"),
    [
        ({"input": "  "}, 400, "input"),
        ({"seed": 1.0}, 400, "seed"),
        ({"seed": "7"}, 400, "seed"),
        ({"seed": True}, 400, "seed"),
        ({"seed": 2**63}, 400, "seed"),
        ({"model": "gpt-5"}, 404, "model"),
        ({"voice": "nobody"}, 404, "voice"),
        ({"response_format": "midi"}, 400, "response_format"),
        ({"temperature": 3}, 400, "temperature"),
        ({"max_frames": 0}, 400, "max_frames"),
        ({"ref_audio": "data:audio/wav;base64,AAAA"}, 400, "ref_audio"),
        ({"ref_audio": clip(0.3)}, 400, "ref_audio"),
        ({"ref_audio": clip(31)}, 400, "ref_audio"),
        ({"colour": "blue"}, 400, "colour"),
    ],
)
def test_bad_values_are_refused_in_openais_shape(client, fields, status, param):
    response = client.post("/v1/audio/speech", json={**body(), **fields})
    assert response.status_code == status
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"


def test_a_prompt_too_long_for_the_engine_is_refused_before_it_takes_a_slot(client):
    response = client.post("/v1/audio/speech", json=body(instructions="word " * 3900, max_frames=4096))
    assert response.status_code == 400
    assert "positions" in response.json()["error"]["message"]


def test_models_voices_and_health(client):
    models = client.get("/v1/models").json()
    assert models["object"] == "list"
    assert [model["id"] for model in models["data"]] == [
        "moss-tts-local",
        "tts-1",
        "tts-1-hd",
        "gpt-4o-mini-tts",
    ]
    assert client.get("/v1/models/tts-1").json()["id"] == "tts-1"
    assert client.get("/v1/models/other").status_code == 404
    voices = client.get("/v1/audio/voices").json()["voices"]
    assert voices[0] == {"id": "default", "name": "default", "object": "voice", "built_in": True}
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/ready").json() == {"status": "ready"}
    assert client.get("/nowhere").json()["error"]["message"] == "there is no GET /nowhere"
    assert client.get("/v1/audio/speech").status_code == 405


def test_openapi_names_every_field_of_the_body(client):
    from deployments.schema import SpeechBody

    operation = client.get("/openapi.json").json()["paths"]["/v1/audio/speech"]["post"]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    assert set(schema["properties"]) == set(SpeechBody.model_fields)
    assert set(operation["responses"]) >= {"200", "400", "404", "413", "429", "500", "503"}


async def test_clients_that_leave_at_any_stage_leave_nothing_behind(async_client):
    async def leave_after(parts, **fields):
        async with async_client.stream("POST", "/v1/audio/speech", json=body(max_frames=400, **fields)) as response:
            async for _ in response.aiter_raw():
                parts -= 1
                if parts <= 0:
                    return

    async def leave_within(seconds, **fields):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(seconds):
                await async_client.post("/v1/audio/speech", json=body(max_frames=400, **fields))

    await asyncio.gather(
        *(leave_after(parts, stream=True, seed=parts) for parts in (1, 2, 4)),
        *(leave_within(seconds, stream=stream) for seconds in (0.01, 0.05, 0.2) for stream in (True, False)),
        leave_within(0.1, ref_audio=clip(10), seed=1),
    )
    await idle()
    assert (await speak(async_client, seed=1)).status_code == 200


async def test_overload_is_answered_with_429_and_serves_the_rest_right(async_client):
    expected = (await speak(async_client, seed=1, max_frames=150)).content
    answers = await asyncio.gather(
        *(async_client.post("/v1/audio/speech", json=body(seed=1, max_frames=150)) for _ in range(80))
    )
    served = [answer for answer in answers if answer.status_code == 200]
    refused = [answer for answer in answers if answer.status_code == 429]
    assert len(served) + len(refused) == len(answers)
    assert len(served) >= 16
    assert refused
    assert {answer.content for answer in served} == {expected}
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in refused)
    assert refused[0].json()["error"]["code"] == "queue_full"
    await idle()


async def test_calls_of_both_backbones_merge_into_shared_depth_passes(async_client):
    before = await asyncio.to_thread(stats, "DepthSampler")
    await asyncio.gather(*(speak(async_client, text=text, seed=seed) for text in TEXTS for seed in (1, 2)))
    after = await asyncio.to_thread(stats, "DepthSampler")
    passes, calls, rows = (
        sum(replica[key] for replica in after) - sum(replica[key] for replica in before)
        for key in ("passes", "calls", "rows")
    )
    print(f"{rows} rows in {calls} calls in {passes} passes: {rows / passes:.1f} rows a pass")
    assert rows > calls > passes
