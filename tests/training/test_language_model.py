"""The trained module against the served networks: the exported checkpoint must give the same numbers."""

import numpy as np
import pytest
import torch

from pipeline.attention import Span
from pipeline.backbone import load_backbone
from pipeline.config import ModelConfig
from pipeline.depth import load_depth
from pipeline.errors import CheckpointError
from pipeline.kv_blocks import BlockTable
from pipeline.prompt import prompt_rows
from pipeline.request import Prompt
from pipeline.tokenizer import Tokenizer
from training.demo_voice.export_lm import export, sharpened
from training.demo_voice.lm_config import lm_config
from training.demo_voice.lm_net import LanguageModel

SIZES = {"hidden_size": 64, "layers": 3, "heads": 4, "kv_heads": 2, "inner_size": 96}


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A module of random weights and the folder it was exported to."""
    torch.manual_seed(0)
    raw = lm_config(n_vq=4, codebook_size=32, **SIZES)
    model = LanguageModel(ModelConfig.from_dict(raw)).eval()
    for parameter in model.parameters():
        # No weight is one or zero, and all are what bfloat16 can hold.
        parameter.data = (parameter.data + 0.1 * torch.randn_like(parameter)).bfloat16().float()
    directory = tmp_path_factory.mktemp("export")
    export(raw, model.state_dict(), directory)
    return model, directory


def _rows(directory, config) -> torch.Tensor:
    tokenizer = Tokenizer.load(directory, config)
    codes = np.random.default_rng(0).integers(0, 32, (9, 4))
    prompt = Prompt("Hello there.", language="English", references=(codes,), continuation=True)
    return torch.from_numpy(prompt_rows(prompt, tokenizer, config))


@torch.inference_mode()
def test_hidden_states_are_those_of_the_served_backbone(exported):
    model, directory = exported
    config = ModelConfig.load(directory)
    rows = _rows(directory, config)
    backbone = load_backbone(directory, config, dtype=torch.float32)
    kv, table = backbone.new_kv_blocks(blocks=4, block_size=64), BlockTable()
    kv.extend(table, len(rows))
    expected = backbone(rows, [Span(table, 0, len(rows))], kv)
    hidden, _, _ = model.hidden(rows[None])
    torch.testing.assert_close(hidden[0], expected, rtol=1e-4, atol=1e-4)


@torch.inference_mode()
def test_padding_behind_a_row_changes_nothing_before_it(exported):
    model, directory = exported
    rows = _rows(directory, model.config)[None]
    padded = torch.cat((rows, rows[:, :5]), dim=1)
    torch.testing.assert_close(model.hidden(padded)[0][:, : rows.shape[1]], model.hidden(rows)[0], rtol=1e-5, atol=1e-5)


@torch.inference_mode()
def test_frame_logits_are_those_of_the_served_depth_transformer(exported):
    model, directory = exported
    config = ModelConfig.load(directory)
    depth = load_depth(directory, config, dtype=torch.float32)
    hidden, codes = torch.randn(6, 64), torch.randint(0, 32, (6, 4))
    stop, logits = model.frame_logits(hidden, codes)
    cache, inputs = depth.new_cache(6), hidden
    for codebook in range(4):
        outputs = depth.step(inputs, cache, codebook)
        if codebook == 0:
            torch.testing.assert_close(stop, depth.stop_logits(outputs), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(logits[codebook], depth.code_logits(outputs, codebook), rtol=1e-4, atol=1e-4)
        inputs = depth.embed_code(codes[:, codebook], codebook)


@torch.inference_mode()
def test_sharpened_weights_scale_the_logits_and_nothing_else(exported):
    model, _ = exported
    other = LanguageModel(model.config).eval()
    other.load_state_dict(sharpened(model.state_dict(), codes=3.0, stop=2.0))
    hidden, codes = torch.randn(6, 64), torch.randint(0, 32, (6, 4))
    (stop, logits), (sharp_stop, sharp_logits) = (each.frame_logits(hidden, codes) for each in (model, other))
    torch.testing.assert_close(sharp_stop, 2 * stop, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(torch.stack(sharp_logits), 3 * torch.stack(logits), rtol=1e-4, atol=1e-4)


def test_weights_that_do_not_fit_the_config_are_not_exported(exported, tmp_path):
    model, _ = exported
    with pytest.raises(CheckpointError, match="audio_embeddings"):
        export(lm_config(n_vq=5, codebook_size=32, **SIZES), model.state_dict(), tmp_path)
    assert not list(tmp_path.iterdir())
