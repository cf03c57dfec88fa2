import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn.utils.parametrizations import weight_norm
from transformers import Qwen3Model

from pipeline.checkpoint import Checkpoint, load_module, open_codec, open_tts
from pipeline.config import CodecConfig, ModelConfig
from pipeline.errors import CheckpointError
from pipeline.layout import check_names, codec_layout, tts_layout, tts_ties
from tests.conftest import TINY

FIXTURES = Path(__file__).parents[1] / "fixtures"
TTS = FIXTURES / "moss_local_tiny" / "tts"
CODEC = FIXTURES / "moss_local_tiny" / "codec"
INDEX = "model.safetensors.index.json"

PUBLISHED_TTS = {
    "n_vq": 12,
    "audio_vocab_size": 1024,
    "pad_token_id": 151643,
    "im_start_token_id": 151644,
    "im_end_token_id": 151645,
    "audio_start_token_id": 151669,
    "audio_end_token_id": 151670,
    "audio_user_slot_token_id": 151654,
    "audio_assistant_slot_token_id": 151656,
    "qwen3_config": {
        "hidden_size": 2560,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 9728,
        "vocab_size": 151936,
        "attention_bias": False,
    },
    "gpt2_config": {"n_embd": 2560, "n_head": 32, "n_inner": 9728, "n_layer": 1, "layer_norm_epsilon": 1e-6},
}


@pytest.fixture(scope="module")
def tts_weights():
    return load_file(TTS / "model.safetensors")


@pytest.fixture(scope="module")
def codec_weights():
    return load_file(CODEC / "model.safetensors")


def tiny_tts(**changes) -> ModelConfig:
    return ModelConfig.from_dict(json.loads((TTS / "config.json").read_text()) | changes)


def published_layout(name: str) -> dict[str, tuple[int, ...]]:
    layout = json.loads((FIXTURES / "layout" / name).read_text())
    return {tensor: tuple(shape) for tensor, shape in layout.items()}


def shapes(weights: dict[str, torch.Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in weights.items()}


def save(weights: dict[str, torch.Tensor], directory: Path, name: str = "model.safetensors") -> Path:
    save_file(weights, directory / name)
    return directory


def save_shards(weights: dict[str, torch.Tensor], directory: Path, index: bool) -> Path:
    names, files = sorted(weights), [f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]
    weight_map = {name: files[i % 3] for i, name in enumerate(names)}
    for file in files:
        save({name: weights[name] for name in names if weight_map[name] == file}, directory, file)
    if index:
        (directory / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return directory


def assert_holds(checkpoint: Checkpoint, weights: dict[str, torch.Tensor]) -> None:
    assert checkpoint.names == shapes(weights)
    for name, tensor in weights.items():
        assert torch.equal(checkpoint.read(name), tensor), name


class Heads(nn.Module):
    """The codebooks' embeddings and heads under their published names."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        sizes, hidden = config.codebook_sizes, config.hidden_size
        self.audio_embeddings = nn.ModuleList(nn.Embedding(size, hidden) for size in sizes)
        self.audio_lm_heads = nn.ModuleList(nn.Linear(hidden, size, bias=False) for size in sizes)


def on_meta(build, *args) -> nn.Module:
    with torch.device("meta"):
        return build(*args)


def tiny_backbone(config: ModelConfig) -> Qwen3Model:
    backbone = on_meta(Qwen3Model, config.backbone)
    backbone.rotary_emb = type(backbone.rotary_emb)(config.backbone)
    return backbone


def test_layouts_are_the_published_ones():
    codec_config = json.loads((FIXTURES / "layout" / "codec_config.json").read_text())
    assert tts_layout(ModelConfig.from_dict(PUBLISHED_TTS)) == published_layout("tts.json")
    assert codec_layout(CodecConfig.from_dict(codec_config)) == published_layout("codec.json")


def test_layouts_are_those_of_the_tiny_checkpoint(tts_weights, codec_weights):
    assert tts_layout(ModelConfig.load(TTS)) == shapes(tts_weights)
    assert codec_layout(CodecConfig.load(CODEC)) == shapes(codec_weights)


def test_layouts_follow_attention_bias_and_missing_layer_scale():
    raw = json.loads((TTS / "config.json").read_text())
    raw["qwen3_config"]["attention_bias"] = True
    biased = tts_layout(ModelConfig.from_dict(raw))
    assert biased["transformer.layers.0.self_attn.k_proj.bias"] == (32,)
    raw = json.loads((CODEC / "config.json").read_text())
    raw["decoder_kwargs"][0]["layer_scale"] = None
    layout = codec_layout(CodecConfig.from_dict(raw))
    scaled = {name.split(".transformer.")[0] for name in layout if name.endswith(".scale")}
    assert "decoder.0" not in scaled and "decoder.2" in scaled


def test_tiny_checkpoints_open_and_read_back(tts_weights, codec_weights):
    assert_holds(open_tts(TTS, ModelConfig.load(TTS)), tts_weights)
    assert_holds(open_codec(CODEC, CodecConfig.load(CODEC)), codec_weights)


@pytest.mark.parametrize("index", [True, False], ids=["indexed", "without index"])
def test_shards_hold_what_the_single_file_holds(tmp_path, tts_weights, index):
    assert_holds(open_tts(save_shards(tts_weights, tmp_path, index), tiny_tts()), tts_weights)


def test_older_codec_names_are_read_under_the_published_ones(tmp_path, codec_weights):
    def older(name: str) -> str:
        name = name.replace(".ffn.0.", ".linear1.").replace(".ffn.2.", ".linear2.")
        name = name.replace("parametrizations.weight.original0", "weight_g")
        return name.replace("parametrizations.weight.original1", "weight_v")

    save({older(name): tensor for name, tensor in codec_weights.items()}, tmp_path)
    assert "quantizer.input_proj.weight_g" in load_file(tmp_path / "model.safetensors")
    assert_holds(open_codec(tmp_path, CodecConfig.load(CODEC)), codec_weights)


def test_no_other_name_is_translated(tmp_path, codec_weights):
    name = "decoder.0.transformer.layers.0.norm1.weight"
    weights = dict(codec_weights)
    weights[name.replace("norm1", "ln1")] = weights.pop(name)
    with pytest.raises(CheckpointError, match=r"missing: decoder\.0\.transformer\.layers\.0\.norm1\.weight"):
        open_codec(save(weights, tmp_path), CodecConfig.load(CODEC))


def test_one_tensor_under_an_old_and_a_new_name_is_refused(tmp_path, codec_weights):
    old = "decoder.0.transformer.layers.0.linear1.weight"
    weights = codec_weights | {old: torch.zeros(96, 48)}
    with pytest.raises(CheckpointError, match=r"ffn\.0\.weight"):
        open_codec(save(weights, tmp_path), CodecConfig.load(CODEC))


@pytest.mark.parametrize("side", [0, 1], ids=["heads left out", "embeddings left out"])
def test_tied_tensors_left_out_are_rebuilt_and_share_storage(tmp_path, tts_weights, side):
    config = tiny_tts()
    left_out = {pair[side] for pair in tts_ties(config).items()}
    assert len(left_out) == config.n_vq + 1
    save({name: tensor for name, tensor in tts_weights.items() if name not in left_out}, tmp_path)
    checkpoint = open_tts(tmp_path, config)
    head, embedding = (
        checkpoint.read("text_lm_head.weight"),
        checkpoint.read("transformer.embed_tokens.weight"),
    )
    assert torch.equal(head, embedding) and head.data_ptr() == embedding.data_ptr()
    module = on_meta(Heads, config)
    load_module(module, checkpoint, dtype=torch.bfloat16)
    for k, (embedding, head) in enumerate(zip(module.audio_embeddings, module.audio_lm_heads, strict=True)):
        kept = tts_weights[f"audio_{'embeddings' if side == 0 else 'lm_heads'}.{k}.weight"]
        assert torch.equal(head.weight, kept.bfloat16())
        assert head.weight.data_ptr() == embedding.weight.data_ptr()


def test_tied_tensors_that_differ_are_both_kept_and_equal_ones_share(tmp_path, tts_weights):
    other = torch.arange(128.0 * 64).view(128, 64)
    checkpoint = open_tts(save(tts_weights | {"audio_lm_heads.3.weight": other}, tmp_path), tiny_tts())
    module = on_meta(Heads, tiny_tts())
    load_module(module, checkpoint)
    embeddings, heads = module.audio_embeddings, module.audio_lm_heads
    assert torch.equal(heads[3].weight, other)
    assert torch.equal(embeddings[3].weight, tts_weights["audio_embeddings.3.weight"])
    assert torch.equal(heads[4].weight, tts_weights["audio_lm_heads.4.weight"])
    assert heads[4].weight.data_ptr() == embeddings[4].weight.data_ptr()


def test_untied_config_requires_both_sides(tmp_path, tts_weights):
    weights = {name: tensor for name, tensor in tts_weights.items() if name != "audio_lm_heads.3.weight"}
    with pytest.raises(CheckpointError, match=r"missing: audio_lm_heads\.3\.weight \[128, 64\]$"):
        open_tts(save(weights, tmp_path), tiny_tts(tie_word_embeddings=False))


def test_both_sides_of_a_tie_missing_are_both_named(tmp_path, tts_weights):
    gone = {"audio_lm_heads.3.weight", "audio_embeddings.3.weight"}
    save({name: tensor for name, tensor in tts_weights.items() if name not in gone}, tmp_path)
    with pytest.raises(CheckpointError) as error:
        open_tts(tmp_path, tiny_tts())
    assert all(f"missing: {name}" in str(error.value) for name in gone)


def test_stop_head_is_required_in_binary_mode_only(tmp_path, tts_weights):
    weights = {name: tensor for name, tensor in tts_weights.items() if name != "local_text_lm_head.weight"}
    save(weights, tmp_path)
    with pytest.raises(CheckpointError, match=r"missing: local_text_lm_head\.weight"):
        open_tts(tmp_path, tiny_tts())
    open_tts(tmp_path, tiny_tts(local_text_head_mode="full_vocab"))
    open_tts(TTS, tiny_tts(local_text_head_mode="full_vocab"))


def test_rows_are_read_from_a_tensor_or_its_twin(tmp_path, tts_weights):
    expected = tts_weights["text_lm_head.weight"][[260, 262]]
    weights = {name: tensor for name, tensor in tts_weights.items() if name != "text_lm_head.weight"}
    for directory in (TTS, save(weights, tmp_path)):
        checkpoint = open_tts(directory, tiny_tts())
        assert torch.equal(checkpoint.read_rows("text_lm_head.weight", [260, 262]), expected)
        rows = checkpoint.read_rows("text_lm_head.weight", [260, 262], torch.bfloat16)
        assert torch.equal(rows, expected.bfloat16())
    with pytest.raises(CheckpointError, match=r"text_lm_head\.weight has 263 rows"):
        checkpoint.read_rows("text_lm_head.weight", [263])


def test_check_names_lists_every_problem_in_one_error():
    many = range(100, 300)
    layout = {f"{kind}.{i}": (2, i) for kind in ("absent", "optional", "right", "wrong") for i in many}
    found = {f"right.{i}": (2, i) for i in many} | {f"wrong.{i}": (i, 2) for i in many}
    found |= {f"extra.{i}": (3,) for i in many}
    with pytest.raises(CheckpointError) as error:
        check_names(found, layout, optional={f"optional.{i}" for i in many}, where="somewhere")
    first, *lines = (line.strip() for line in str(error.value).splitlines())
    assert first.startswith("somewhere ")
    assert lines == [
        *(f"missing: absent.{i} [2, {i}]" for i in many),
        *(f"unexpected: extra.{i} [3]" for i in many),
        *(f"wrong shape: wrong.{i} is [{i}, 2], expected [2, {i}]" for i in many),
    ]


def test_opening_names_missing_unexpected_and_misshapen_tensors(tmp_path, tts_weights):
    weights = dict(tts_weights)
    weights["transformer.norm.bias"] = weights.pop("transformer.norm.weight")
    weights["local_transformer.ln_f.bias"] = torch.zeros(65)
    with pytest.raises(CheckpointError) as error:
        open_tts(save(weights, tmp_path), tiny_tts())
    assert [line.strip() for line in str(error.value).splitlines()[1:]] == [
        "missing: transformer.norm.weight [64]",
        "unexpected: transformer.norm.bias [64]",
        "wrong shape: local_transformer.ln_f.bias is [65], expected [64]",
    ]


@pytest.mark.parametrize("keep", [0, 5, 4000, -1], ids=["empty", "in size", "in header", "last byte gone"])
def test_truncated_file_is_named(tmp_path, keep):
    path = tmp_path / "model.safetensors"
    path.write_bytes((TTS / "model.safetensors").read_bytes()[:keep])
    with pytest.raises(CheckpointError, match=r"truncated.*again") as error:
        open_tts(tmp_path, tiny_tts())
    assert str(path) in str(error.value)


def test_missing_shards_are_all_named(tmp_path, tts_weights):
    save_shards(tts_weights, tmp_path, index=True)
    (tmp_path / "model-00001-of-00003.safetensors").unlink()
    (tmp_path / "model-00003-of-00003.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"download.*00001-of-00003.*00003-of-00003") as error:
        open_tts(tmp_path, tiny_tts())
    assert str(tmp_path / INDEX) in str(error.value)


@pytest.mark.parametrize("text", ["{", "[]", '{"weight_map": 3}', "{}"])
def test_broken_index_is_named(tmp_path, text):
    (tmp_path / INDEX).write_text(text)
    with pytest.raises(CheckpointError, match="not a safetensors index"):
        Checkpoint(tmp_path)


def test_directory_without_weights_is_named(tmp_path):
    with pytest.raises(CheckpointError, match=r"holds no \*\.safetensors"):
        Checkpoint(tmp_path)


def test_tensors_of_another_type_are_named(tmp_path):
    save({"a": torch.zeros(2, dtype=torch.int8), "b": torch.zeros(2)}, tmp_path)
    with pytest.raises(CheckpointError, match=r"float type: a \(I8\)$"):
        Checkpoint(tmp_path)


def test_backbone_is_filled_in_bfloat16_from_its_prefix(tts_weights):
    config = tiny_tts()
    backbone = tiny_backbone(config)
    load_module(backbone, open_tts(TTS, config), "transformer.", torch.bfloat16)
    assert not any(tensor.is_meta for tensor in (*backbone.parameters(), *backbone.buffers()))
    for name, tensor in backbone.state_dict().items():
        assert torch.equal(tensor, tts_weights[f"transformer.{name}"].to(torch.bfloat16)), name


def test_stored_dtype_on_the_cpu_stays_in_the_mapped_file(tts_weights):
    checkpoint = open_tts(TTS, tiny_tts())
    first, second = (checkpoint.read("transformer.norm.weight") for _ in range(2))
    assert first.data_ptr() == second.data_ptr()
    assert torch.equal(first, tts_weights["transformer.norm.weight"])


def test_persistent_buffers_are_filled_and_stay_buffers(tmp_path):
    module = nn.Module()
    module.register_buffer("codebook", torch.empty(4, device="meta"))
    load_module(module, Checkpoint(save({"codebook": torch.arange(4.0)}, tmp_path)))
    assert dict(module.named_buffers()).keys() == {"codebook"}
    assert module.codebook.tolist() == [0, 1, 2, 3]


def test_names_may_be_a_function_and_filled_parameters_are_left_alone(tts_weights):
    module = on_meta(nn.Linear, 64, 2)
    module.bias = nn.Parameter(torch.tensor([1.0, 2.0]))
    load_module(module, open_tts(TTS, tiny_tts()), {"weight": "local_text_lm_head.weight"}.__getitem__)
    assert torch.equal(module.weight, tts_weights["local_text_lm_head.weight"])
    assert module.bias.tolist() == [1.0, 2.0]
    assert not any(parameter.requires_grad for parameter in module.parameters())


def test_buffer_left_on_the_meta_device_is_named():
    config = tiny_tts()
    with pytest.raises(CheckpointError, match=r"compute them before loading: .*rotary_emb\.inv_freq"):
        load_module(on_meta(Qwen3Model, config.backbone), open_tts(TTS, config), "transformer.")


def test_loading_names_what_a_module_lacks_or_has_in_another_shape():
    module = on_meta(nn.Linear, 64, 3)
    with pytest.raises(CheckpointError) as error:
        load_module(module, open_tts(TTS, tiny_tts()), "local_text_lm_head.")
    assert [line.strip() for line in str(error.value).splitlines()[1:]] == [
        "missing: local_text_lm_head.bias [3]",
        "wrong shape: local_text_lm_head.weight is [2, 64], expected [3, 64]",
    ]
    assert module.weight.is_meta


def test_weight_norm_is_folded_as_torch_folds_it(codec_weights):
    checkpoint = open_codec(CODEC, CodecConfig.load(CODEC))
    for name in ("input_proj", "quantizers.3.in_proj", "quantizers.3.out_proj"):
        prefix = f"quantizer.{name}"
        out, inputs, _ = codec_weights[f"{prefix}.parametrizations.weight.original1"].shape
        reference = weight_norm(nn.Conv1d(inputs, out, 1))
        own = {name: codec_weights[f"{prefix}.{name}"] for name in reference.state_dict()}
        reference.load_state_dict(own)
        module = on_meta(nn.Linear, inputs, out)
        load_module(module, checkpoint, f"{prefix}.")
        torch.testing.assert_close(module.weight, reference.weight[:, :, 0], rtol=1e-6, atol=1e-7)
        assert torch.equal(module.bias, codec_weights[f"{prefix}.bias"])
        assert torch.equal(checkpoint.read_weight_norm(prefix), module.weight)


MEMORY = """
import sys
import torch
from torch import nn
from pipeline.checkpoint import Checkpoint, load_module

def peak():  # of this process alone: ru_maxrss would start from the parent's
    status = open("/proc/self/status").read()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024

torch.set_num_threads(1)
with torch.device("meta"):
    module = nn.ModuleList(nn.Linear(2048, 2048, bias=False) for _ in range(int(sys.argv[3])))
torch.zeros(64, dtype=torch.float32).to(torch.bfloat16)
checkpoint = Checkpoint(sys.argv[1])
before = peak()
load_module(module, checkpoint, dtype=getattr(torch, sys.argv[2]))
total = sum(parameter.sum().item() for parameter in module.parameters())
print(peak() - before, total)
"""


@pytest.fixture(scope="module")
def large_checkpoint(tmp_path_factory) -> Path:
    """128 MiB of float32 in 8 tensors of ones."""
    weights = {f"{i}.weight": torch.ones(2048, 2048) for i in range(8)}
    return save(weights, tmp_path_factory.mktemp("large"))


@pytest.mark.parametrize(("dtype", "layers", "mib"), [("float32", 8, 128), ("bfloat16", 8, 80), ("bfloat16", 1, 24)])
def test_memory_holds_the_loaded_weights_once_and_no_others(large_checkpoint, dtype, layers, mib):
    """Kept float32 is the file's 16 MiB a layer; converting holds 8 a layer and the one tensor it reads."""
    command = [sys.executable, "-c", MEMORY, str(large_checkpoint), dtype, str(layers)]
    run = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    growth, total = map(float, run.stdout.split())
    assert total == layers * 2048 * 2048
    assert growth < mib + 24


def test_every_tensor_of_the_layout_is_one_that_a_part_of_the_model_reads(monkeypatch):
    from pipeline.backbone import load_backbone
    from pipeline.codec import CodecDecoder, CodecEncoder
    from pipeline.depth import load_depth

    read = set()
    plain, folded = Checkpoint.read, Checkpoint.read_weight_norm

    def note_read(self, name, *args):
        read.add(name)
        return plain(self, name, *args)

    def note_folded(self, prefix, *args):
        read.update(f"{prefix}.parametrizations.weight.{part}" for part in ("original0", "original1"))
        return folded(self, prefix, *args)

    monkeypatch.setattr(Checkpoint, "read", note_read)
    monkeypatch.setattr(Checkpoint, "read_weight_norm", note_folded)
    tts, codec = ModelConfig.load(TINY / "tts"), CodecConfig.load(TINY / "codec")
    load_backbone(TINY / "tts", tts, dtype=torch.float32)
    load_depth(TINY / "tts", tts, dtype=torch.float32)
    tied = {f"audio_lm_heads.{k}.weight" for k in range(tts.n_vq)} | {"text_lm_head.weight"}
    assert tts_layout(tts).keys() - read == tied
    read.clear()
    CodecDecoder.load(TINY / "codec", codec, max_streams=1, max_step_frames=1, n_vq=codec.quantizer.num_codebooks)
    CodecEncoder.load(TINY / "codec", codec, max_step_frames=1)
    assert codec_layout(codec).keys() == read & codec_layout(codec).keys()
