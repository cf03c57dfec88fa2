from pathlib import Path

import numpy as np
from safetensors.torch import load_file

from pipeline.random_checkpoint import codec_config, tts_config, write_checkpoint
from pipeline.request import Prompt, SpeechJob, SpeechRequest
from pipeline.speech import Speech

EMBEDDED = Path(__file__).parents[2] / "models" / "embedded"


def test_the_embedded_model_is_what_its_script_makes(tmp_path):
    write_checkpoint(tmp_path, tts_config(), codec_config())
    for name in ("tts", "codec"):
        made, kept = (load_file(root / name / "model.safetensors") for root in (tmp_path, EMBEDDED))
        assert made.keys() == kept.keys()
        assert all(made[key].equal(kept[key]) for key in made)
        for file in (tmp_path / name).glob("*.json"):
            assert file.read_text() == (EMBEDDED / name / file.name).read_text()


def test_a_checkpoint_of_other_sizes_speaks(tmp_path):
    tts = tts_config(
        hidden_size=48, layers=2, heads=6, kv_heads=3, inner_size=80, depth_layers=2, n_vq=5, codebook_size=96
    )
    codec = codec_config(
        sampling_rate=16000, channels=1, patches=(4, 2), last_patch=160, width=32, heads=2, layers=2,
        context_seconds=0.5, num_codebooks=7, codebook_size=96,
    )  # fmt: skip
    write_checkpoint(tmp_path, tts, codec, seed=5)
    with Speech.load(tmp_path) as speech:
        audio = [chunk.samples for chunk in speech.generate(job(max_frames=12))]
    assert np.concatenate(audio, axis=1).shape == (1, 12 * 1280)
    assert np.isfinite(audio[-1]).all()


def job(**fields):
    return SpeechJob(SpeechRequest("request", Prompt("Hello there."), seed=1, **fields))
