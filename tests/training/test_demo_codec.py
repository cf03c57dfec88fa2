import json

import pytest
import torch
from safetensors.torch import save_file

from pipeline.codec import CodecDecoder, CodecEncoder
from pipeline.config import CodecConfig
from training.demo_voice.codec_config import codec_config
from training.demo_voice.codec_net import Codec

FRAMES = 40
CONFIG = CodecConfig.from_dict(codec_config())


@pytest.fixture(scope="module")
def audio():
    """Several times longer than any window."""
    return 0.1 * torch.randn(2, FRAMES * CONFIG.samples_per_frame, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def codec(audio):
    torch.manual_seed(0)
    codec = Codec(CONFIG).eval()
    with torch.no_grad():
        latents = codec.encode(audio).flatten(0, 1)
    codec.quantizer.start_from(latents.mean(0) + latents.std(0) * torch.randn(2000, latents.shape[1]))
    return codec


@pytest.fixture(scope="module")
def directory(codec, tmp_path_factory):
    directory = tmp_path_factory.mktemp("codec")
    (directory / "config.json").write_text(json.dumps(codec_config()))
    save_file(codec.state_dict(), directory / "model.safetensors")
    return directory


def test_the_served_codec_reads_the_trained_weights_as_the_training_code_does(codec, directory, audio):
    encoder = CodecEncoder.load(directory, CONFIG, max_step_frames=16)
    n_vq = CONFIG.quantizer.num_codebooks
    decoder = CodecDecoder.load(directory, CONFIG, max_streams=1, max_step_frames=16, n_vq=n_vq)
    with torch.no_grad():
        heard, quantized = codec(audio)
    for row in range(len(audio)):
        codes = encoder.encode(audio[row : row + 1], n_vq)
        assert (codes == quantized.codes[row]).float().mean() > 0.999
        torch.testing.assert_close(decoder.decode_all(quantized.codes[row])[0], heard[row], rtol=1e-3, atol=1e-4)
