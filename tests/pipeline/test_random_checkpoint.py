from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

from pipeline.codec import CodecDecoder
from pipeline.config import CodecConfig
from pipeline.random_checkpoint import codec_config, tts_config, write_checkpoint
from pipeline.request import Prompt, SpeechJob, SpeechRequest
from pipeline.speech import Speech

RANDOM = Path(__file__).parents[2] / "models" / "random"


def test_the_random_model_is_what_its_script_makes(tmp_path):
    write_checkpoint(tmp_path, tts_config(), codec_config())
    for name in ("tts", "codec"):
        made, kept = (load_file(root / name / "model.safetensors") for root in (tmp_path, RANDOM))
        assert made.keys() == kept.keys()
        assert all(made[key].equal(kept[key]) for key in made)
        for file in (tmp_path / name).glob("*.json"):
            assert file.read_text() == (RANDOM / name / file.name).read_text()


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


def test_one_frame_alone_is_the_same_as_beside_others_where_heads_are_narrow(tmp_path):
    """Six channels a head, 1 to 32 positions a frame: sizes at which strides once chose another kernel."""
    write_checkpoint(tmp_path, tts_config(), codec_config(width=24, heads=4))
    config = CodecConfig.load(tmp_path / "codec")
    decoder = CodecDecoder.load(tmp_path / "codec", config, max_streams=5, max_step_frames=8, n_vq=12)
    codes = torch.randint(0, 128, (5, 9, 12), generator=torch.Generator().manual_seed(0))
    alone = [decoder.decode_all(each) for each in codes]
    states = [decoder.open() for _ in codes]
    steps = [
        decoder.decode([(state, each[i : i + 1]) for state, each in zip(states, codes, strict=True)]) for i in range(9)
    ]
    for index, audio in enumerate(alone):
        assert torch.equal(torch.cat([step[index] for step in steps], dim=1), audio)
