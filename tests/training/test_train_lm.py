"""A run of the language model's training that was stopped ends with the weights of one that was not."""

import json

import numpy as np
import pytest
import torch

from pipeline.errors import CheckpointError
from pipeline.random_checkpoint import codec_config
from training.demo_voice.train_lm import Settings, Trainer, learning_rate, train
from training.demo_voice.utterances import SAMPLES_PER_FRAME

SIZES = {"hidden_size": 32, "layers": 3, "heads": 4, "kv_heads": 2, "inner_size": 48}
SETTINGS = Settings(steps=4, rows=200, save_every=2, validate_every=2)


@pytest.fixture
def corpus(tmp_path):
    """Makes folders of equal corpora: twelve utterances of ten frames."""
    entry = {"text": "Go on.", "samples": 10 * SAMPLES_PER_FRAME}
    entry |= {"phones": [["g", 80, 400], ["n", 400, 640]], "words": [[0, 2, 80, 400], [3, 5, 400, 640]]}
    entries = [{**entry, "voice": index % 2, "start": index * entry["samples"]} for index in range(12)]

    def make(name: str):
        directory = tmp_path / name
        for folder in ("corpus", "codes", "codec/export"):
            (directory / folder).mkdir(parents=True)
        (directory / "codec/export/config.json").write_text(json.dumps(codec_config(codebook_size=32)))
        for split in ("train", "valid"):
            (directory / "corpus" / f"{split}.json").write_text(json.dumps(entries))
            np.save(directory / "corpus" / f"{split}.npy", np.zeros(120 * SAMPLES_PER_FRAME, dtype=np.int16))
            codes = np.random.default_rng(0).integers(0, 32, (120, 4))
            np.save(directory / "codes" / f"{split}.npy", codes.astype(np.uint8))
        return directory

    return make


def test_a_stopped_run_goes_on_to_the_same_weights(corpus, monkeypatch):
    whole = train(corpus("whole"), SETTINGS, **SIZES)
    directory = corpus("stopped")
    with monkeypatch.context() as patched:
        patched.setattr("training.demo_voice.train_lm.Trainer.train_step", _until(3))
        with pytest.raises(KeyboardInterrupt):
            train(directory, SETTINGS, **SIZES)
    resumed = train(directory, SETTINGS, **SIZES)
    assert resumed.curve == whole.curve
    for name, expected in whole.averaged.state_dict().items():
        assert torch.equal(resumed.averaged.state_dict()[name], expected), name


def _until(stop: int):
    step = Trainer.train_step

    def train_step(self):
        if self.step == stop:
            raise KeyboardInterrupt
        return step(self)

    return train_step


def test_a_finished_run_is_left_alone(corpus):
    directory = corpus("done")
    train(directory, SETTINGS, **SIZES)
    before = (directory / "lm" / "checkpoint.pt").stat().st_mtime_ns
    train(directory, SETTINGS, **SIZES)
    assert (directory / "lm" / "checkpoint.pt").stat().st_mtime_ns == before


def test_a_checkpoint_of_other_settings_is_refused(corpus):
    directory = corpus("other")
    train(directory, SETTINGS, **SIZES)
    with pytest.raises(CheckpointError, match="other settings"):
        train(directory, Settings(steps=5, rows=200), **SIZES)


def test_the_learning_rate_rises_stays_and_falls():
    rates = [learning_rate(step, 1000) for step in (0, 9, 399, 700, 999)]
    np.testing.assert_allclose(rates, [0.1, 1.0, 1.0, 0.5, 0.02], atol=1e-9)
