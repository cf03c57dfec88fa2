import json
import math

import numpy as np
import pytest
import torch

from pipeline.codec import CodecDecoder, CodecEncoder
from pipeline.config import CodecConfig
from pipeline.errors import CheckpointError
from training.demo_voice.codec_config import CODEBOOKS, codec_config
from training.demo_voice.codec_loss import MEL_BANDS, log_mel, snr, waveform_loss
from training.demo_voice.codec_net import Codec
from training.demo_voice.codec_quantizer import ResidualQuantizer
from training.demo_voice.crops import Crops
from training.demo_voice.encode_corpus import encode_split
from training.demo_voice.export_codec import export, trained_codec
from training.demo_voice.files import Split
from training.demo_voice.train_codec import CodecTraining, Plan, train

FRAME = 1280
SIZES = {"crops": 3, "frames": 6}


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """A corpus of two hummed utterances."""
    build = tmp_path_factory.mktemp("build")
    (build / "corpus").mkdir()
    lengths = (12, 20)
    times = np.arange(sum(lengths) * FRAME) / 16_000
    samples = (8000 * np.sin(2 * np.pi * 150 * times) * (1 + np.sin(2 * np.pi * 3 * times)) / 2).astype(np.int16)
    entries, start = [], 0
    for frames in lengths:
        phones = [["'a", 80, 400], ["m", 400, 800]]
        entries.append({"text": "am", "voice": 0, "start": start, "samples": frames * FRAME, "phones": phones})
        entries[-1]["words"] = [[0, 2, 80, 800]]
        start += frames * FRAME
    for split in ("train", "valid"):
        np.save(build / "corpus" / f"{split}.npy", samples)
        (build / "corpus" / f"{split}.json").write_text(json.dumps(entries))
    return build


@pytest.fixture(scope="module")
def crops(build):
    return Crops.load(build, "train", **SIZES)


def trained(plan, crops, steps):
    training = CodecTraining(plan, phones=len(crops.labels))
    for _ in range(steps):
        training.advance(crops)
    return training


def test_training_goes_on_after_an_interruption_as_if_there_had_been_none(crops):
    plan = Plan(steps=6, unquantised=2)
    whole = trained(plan, crops, 6)
    first = trained(plan, crops, 4)
    second = CodecTraining(plan, phones=len(crops.labels), seed=9)
    second.restore(first.state())
    for _ in range(2):
        second.advance(crops)
    for name, weight in whole.codec.state_dict().items():
        assert torch.equal(weight, second.codec.state_dict()[name]), name


def test_crops_carry_the_phones_that_are_heard_in_them(crops):
    phones = crops._phones
    assert phones.shape == (32, 3)
    assert phones[0].tolist() == [0, 0, 0]
    assert (phones[1:5] == crops.labels["a"]).all()
    assert (phones[5:10] == crops.labels["m"]).all()


def test_codes_are_final_only_when_training_is_over(build, monkeypatch):
    monkeypatch.setattr("training.demo_voice.train_codec.START_BATCHES", 4)
    with pytest.raises(CheckpointError, match="train_codec first"):
        trained_codec(build)
    train(build, Plan(steps=3, unquantised=1))
    assert trained_codec(build).config.frame_rate == 12.5


def test_corpus_codes_are_those_of_the_served_encoder(build, tmp_path):
    torch.manual_seed(0)
    split, codec = Split.load(build, "train"), Codec(CodecConfig.from_dict(codec_config())).eval()
    # Codebooks of points far apart: a hummed tone alone would leave hundreds of entries in one place.
    codec.quantizer.start_from(torch.randn(2000, codec.config.quantizer.hidden_size))
    codes = encode_split(codec, split)
    export(codec, tmp_path, dtype=torch.float32)
    config = CodecConfig.load(tmp_path)
    encoder = CodecEncoder.load(tmp_path, config, max_step_frames=8)
    for entry in split.entries:
        samples = split.samples[entry["start"] :][: entry["samples"]].astype(np.float32) / 32768
        first = entry["start"] // FRAME
        served = encoder.encode(torch.from_numpy(samples)[None], CODEBOOKS)
        assert (served.numpy() == codes[first : first + len(served)]).mean() > 0.99
    CodecDecoder.load(tmp_path, config, max_streams=1, max_step_frames=8, n_vq=CODEBOOKS)


def test_the_first_stage_finds_the_nearest_centre_of_plain_clusters():
    """Clusters on a plane, two of them in the same direction: a cosine alone would take them for one."""
    config = CodecConfig.from_dict(codec_config()).quantizer
    centres = torch.tensor([[1.0, 0.0], [3.0, 0.0], [0.0, 2.0], [-2.0, -1.0]])
    which = torch.arange(400) % 4
    points = torch.zeros(400, config.hidden_size)
    points[:, :2] = centres[which] + 0.01 * torch.randn(400, 2, generator=torch.Generator().manual_seed(0))
    quantizer = ResidualQuantizer(config)
    quantizer.start_from(points)
    with torch.no_grad():
        quantized = quantizer(points[None] / points.std())
    first = quantized.codes[0, :, 0]
    for cluster in range(4):
        assert set(first[which == cluster].tolist()).isdisjoint(first[which != cluster].tolist())
    assert (quantized.latents - points / points.std()).abs().max() < 0.05


def test_a_waveform_is_nearer_to_itself_than_to_one_out_of_phase():
    tone = torch.sin(torch.arange(6400) * 0.1)[None]
    turned = torch.cos(torch.arange(6400) * 0.1)[None]
    assert waveform_loss(tone, tone, 0) < 0.01 < waveform_loss(turned, tone, 0)
    assert snr(1.1 * tone, tone) == pytest.approx(20, abs=0.01)


def test_the_loudness_of_every_band_halves_with_the_amplitude_twice():
    noise = 100 * torch.randn(1, 6400, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(log_mel(noise) - log_mel(noise / 2), torch.tensor(math.log(4)), atol=1e-4)


def test_a_tone_is_loud_in_the_band_of_its_pitch():
    tone = torch.sin(torch.arange(6400) * 2 * math.pi * 1000 / 16_000)[None]
    lowest, highest, pitch = (2595 * math.log10(1 + hertz / 700) for hertz in (60, 8000, 1000))
    expected = round((pitch - lowest) / (highest - lowest) * (MEL_BANDS + 1)) - 1
    assert int(log_mel(tone).mean(1).argmax()) == expected
