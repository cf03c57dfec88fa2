import numpy as np
import pytest
from safetensors.numpy import save_file

from pipeline.built_in_voices import FILE, load_built_in_voices
from pipeline.config import ModelConfig
from pipeline.errors import CheckpointError
from pipeline.random_checkpoint import tts_config

CONFIG = ModelConfig.from_dict(tts_config(n_vq=4, codebook_size=16))
CODES = np.arange(20).reshape(5, 4) % 16


def test_a_checkpoint_without_voices_has_none(tmp_path):
    assert load_built_in_voices(tmp_path, CONFIG) == {}


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int32", "int64"])
def test_the_codes_come_by_name_whatever_integers_hold_them(tmp_path, dtype):
    save_file({"Zoë": CODES.astype(dtype), "Ada": CODES[:2].astype(dtype)}, tmp_path / FILE)
    voices = load_built_in_voices(tmp_path, CONFIG)
    assert list(voices) == ["Ada", "Zoë"]
    assert voices["Zoë"].dtype == np.int64
    assert np.array_equal(voices["Zoë"], CODES)


@pytest.mark.parametrize(
    ("voices", "message"),
    [
        ({"../a": CODES}, "no name for a voice"),
        ({"Ada": CODES.astype(np.float32)}, "must be integers"),
        ({"Ada": CODES[:, :3]}, r"integers \[frames, 4\]"),
        ({"Ada": CODES[:0]}, r"integers \[frames, 4\]"),
        ({"Ada": CODES[0]}, r"integers \[frames, 4\]"),
        ({"Ada": CODES + 1}, "beyond the codebooks"),
        ({"Ada": CODES - 1}, "beyond the codebooks"),
    ],
)
def test_what_no_prompt_could_take_is_refused_by_name(tmp_path, voices, message):
    save_file({name: np.ascontiguousarray(codes) for name, codes in voices.items()}, tmp_path / FILE)
    with pytest.raises(CheckpointError, match=message):
        load_built_in_voices(tmp_path, CONFIG)


def test_a_file_that_is_none_is_refused(tmp_path):
    (tmp_path / FILE).write_bytes(b"nothing of the kind")
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_built_in_voices(tmp_path, CONFIG)
