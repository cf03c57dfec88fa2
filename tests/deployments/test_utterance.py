"""The parts of an utterance, from a model of this test's own."""

import numpy as np
import pytest

from deployments.utterance import Speaker, Utterance
from pipeline.codec_service import AudioChunk
from pipeline.config import CodecConfig
from pipeline.random_checkpoint import codec_config
from pipeline.random_state import part_seed
from pipeline.request import FrameChunk, Prompt, SpeechJob, SpeechRequest

CODEC = CodecConfig.from_dict(codec_config())


class Model:
    """Says `frames(seed)` frames of noise for a seed, a frame a chunk, and knows what it was asked for."""

    def __init__(self, frames):
        self.frames = frames
        self.asked = []

    async def speak(self, job):
        self.asked.append(job.request)
        random = np.random.default_rng(job.request.seed)
        count = self.frames(job.request.seed)
        for index in range(count):
            codes = random.integers(0, 128, (1, 12))
            samples = random.uniform(-0.5, 0.5, (2, CODEC.samples_per_frame)).astype(np.float32)
            yield AudioChunk(samples, FrameChunk(index, codes))
        empty = np.zeros((2, 0), np.float32)
        yield AudioChunk(empty, FrameChunk(count, np.zeros((0, 12), np.int64), "stop"))


def job(seed=5, text="Hello."):
    return SpeechJob(SpeechRequest("id", Prompt(text), seed, max_frames=100))


async def spoken(model, *jobs):
    speaker = Speaker(model.speak, CODEC)
    pieces = [piece async for piece in Utterance(jobs, speaker, CODEC).pieces()]
    assert [piece.finish for piece in pieces[:-1]] == [None] * (len(pieces) - 1)
    return np.concatenate([piece.samples for piece in pieces], axis=1), pieces[-1].finish, speaker.frames


async def test_what_came_to_nothing_is_tried_again_with_a_seed_that_follows_from_its_own():
    model = Model(lambda seed: 0 if seed == 5 else 3)
    samples, finish, frames = await spoken(model, job())
    assert (samples.shape[1], finish, frames) == (3 * CODEC.samples_per_frame, "stop", 3)
    assert len(model.asked) == 2
    again = Model(lambda seed: 0 if seed == 5 else 3)
    assert np.array_equal((await spoken(again, job()))[0], samples)
    other = Model(lambda seed: 0 if seed == 6 else 3)
    assert not np.array_equal((await spoken(other, job(6)))[0], samples)


async def test_what_comes_to_nothing_again_and_again_is_given_up():
    model = Model(lambda seed: 0)
    samples, finish, frames = await spoken(model, job())
    assert (samples.shape[1], finish, frames) == (0, "stop", 0)
    assert len({request.seed for request in model.asked}) == len(model.asked) == 4


@pytest.mark.parametrize("silent", [0, 1])
async def test_no_part_of_a_text_is_left_out(silent):
    seeds = [part_seed(5, part) for part in range(3)]
    model = Model(lambda seed: 0 if seed == seeds[silent] else 4)
    _, _, frames = await spoken(model, *(job(seed, f"Part {seed}.") for seed in seeds))
    assert frames == 12
    assert [request.prompt.text for request in model.asked].count(f"Part {seeds[silent]}.") == 2
