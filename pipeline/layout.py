"""The published tensor names and shapes of both checkpoints, computed from their configs."""

import re
from collections.abc import Mapping, Set

import torch
from transformers import Qwen3Model

from pipeline.config import CodecConfig, DepthConfig, ModelConfig, QuantizerConfig, TransformerStage
from pipeline.errors import CheckpointError

Shape = tuple[int, ...]
Layout = dict[str, Shape]

WEIGHT_GAIN = "parametrizations.weight.original0"
WEIGHT_DIRECTION = "parametrizations.weight.original1"


def tts_layout(config: ModelConfig) -> Layout:
    """Every tensor a text-to-speech checkpoint may hold. The backbone is `transformers`' own Qwen3."""
    with torch.device("meta"):
        backbone = Qwen3Model(config.backbone)
    layout = {f"transformer.{name}": tuple(tensor.shape) for name, tensor in backbone.state_dict().items()}
    layout |= _depth_layout("local_transformer", config.depth)
    for k, size in enumerate(config.codebook_sizes):
        layout[f"audio_embeddings.{k}.weight"] = (size, config.hidden_size)
        layout[f"audio_lm_heads.{k}.weight"] = (size, config.hidden_size)
    layout["text_lm_head.weight"] = layout["transformer.embed_tokens.weight"]
    layout["local_text_lm_head.weight"] = (2, config.hidden_size)
    return layout


def tts_ties(config: ModelConfig) -> dict[str, str]:
    """Head name -> name of the embedding it is tied to; a file may leave out either. Empty if untied."""
    if not config.tie_word_embeddings:
        return {}
    ties = {f"audio_lm_heads.{k}.weight": f"audio_embeddings.{k}.weight" for k in range(config.n_vq)}
    return ties | {"text_lm_head.weight": "transformer.embed_tokens.weight"}


def tts_optional(config: ModelConfig) -> frozenset[str]:
    """Names of `tts_layout` no network of this config reads, so a file may leave them out."""
    return frozenset() if config.stop_head == "binary" else frozenset({"local_text_lm_head.weight"})


def codec_layout(config: CodecConfig) -> Layout:
    """Every tensor of a codec checkpoint. Stages keep their place in the module list: patches count too."""
    layout: Layout = {}
    for side, stages in (("encoder", config.encoder), ("decoder", config.decoder)):
        for index, stage in enumerate(stages):
            if isinstance(stage, TransformerStage):
                layout |= _stage_layout(f"{side}.{index}", stage)
    return layout | _quantizer_layout("quantizer", config.quantizer)


def current_codec_name(stored: str) -> str:
    """The published name of a codec tensor whose file may use an older one; other names pass through."""
    name = re.sub(r"(\.transformer\.layers\.\d+)\.linear1\.", r"\1.ffn.0.", stored)
    name = re.sub(r"(\.transformer\.layers\.\d+)\.linear2\.", r"\1.ffn.2.", name)
    name = re.sub(r"^(quantizer\..*)\.weight_g$", rf"\1.{WEIGHT_GAIN}", name)
    return re.sub(r"^(quantizer\..*)\.weight_v$", rf"\1.{WEIGHT_DIRECTION}", name)


def check_names(
    found: Mapping[str, Shape],
    layout: Mapping[str, Shape],
    optional: Set[str] = frozenset(),
    where: str = "the checkpoint",
) -> None:
    """Raises one CheckpointError, starting with `where`, that lists every missing and unexpected name and
    every wrong shape.

    Names in `optional` may be missing; where present, their shape must fit.
    """
    missing = layout.keys() - found.keys() - optional
    problems = [f"missing: {name} {list(layout[name])}" for name in sorted(missing)]
    problems += [f"unexpected: {name} {list(found[name])}" for name in sorted(found.keys() - layout.keys())]
    problems += [
        f"wrong shape: {name} is {list(found[name])}, expected {list(layout[name])}"
        for name in sorted(found.keys() & layout.keys())
        if tuple(found[name]) != tuple(layout[name])
    ]
    if problems:
        raise CheckpointError("\n  ".join([f"{where} does not hold the expected tensors:", *problems]))


def _depth_layout(prefix: str, config: DepthConfig) -> Layout:
    hidden, inner = config.hidden_size, config.inner_size
    layout = _affine(f"{prefix}.ln_f", hidden)
    for index in range(config.num_layers):
        block = f"{prefix}.h.{index}"
        layout |= _affine(f"{block}.ln_1", hidden)
        layout |= _affine(f"{block}.attn.c_attn", 3 * hidden, hidden)
        layout |= _affine(f"{block}.attn.c_proj", hidden, hidden)
        layout |= _affine(f"{block}.ln_2", hidden)
        layout |= _affine(f"{block}.mlp.fc_in", inner, hidden)
        layout |= _affine(f"{block}.mlp.fc_out", hidden, inner)
    return layout


def _stage_layout(prefix: str, stage: TransformerStage) -> Layout:
    hidden, inner = stage.hidden_size, stage.inner_size
    layout: Layout = {
        f"{prefix}.input_proj.weight": (hidden, stage.input_size),
        f"{prefix}.output_proj.weight": (stage.output_size, hidden),
    }
    for index in range(stage.num_layers):
        layer = f"{prefix}.transformer.layers.{index}"
        layout[f"{layer}.self_attn.in_proj.weight"] = (3 * hidden, hidden)
        layout[f"{layer}.self_attn.out_proj.weight"] = (hidden, hidden)
        layout[f"{layer}.ffn.0.weight"] = (inner, hidden)
        layout[f"{layer}.ffn.2.weight"] = (hidden, inner)
        for half in (1, 2):
            layout |= _affine(f"{layer}.norm{half}", hidden)
            if stage.layer_scale:
                layout[f"{layer}.layer_scale_{half}.scale"] = (hidden,)
    return layout


def _quantizer_layout(prefix: str, config: QuantizerConfig) -> Layout:
    layout = _weight_normed(f"{prefix}.input_proj", config.hidden_size, config.input_size)
    layout |= _weight_normed(f"{prefix}.output_proj", config.output_size, config.hidden_size)
    for index in range(config.num_codebooks):
        stage = f"{prefix}.quantizers.{index}"
        layout[f"{stage}.codebook.weight"] = (config.codebook_size, config.codebook_dim)
        layout |= _weight_normed(f"{stage}.in_proj", config.codebook_dim, config.hidden_size)
        layout |= _weight_normed(f"{stage}.out_proj", config.hidden_size, config.codebook_dim)
    return layout


def _affine(prefix: str, out: int, *inputs: int) -> Layout:
    return {f"{prefix}.weight": (out, *inputs), f"{prefix}.bias": (out,)}


def _weight_normed(prefix: str, out: int, inputs: int) -> Layout:
    return {
        f"{prefix}.bias": (out,),
        f"{prefix}.{WEIGHT_GAIN}": (out, 1, 1),
        f"{prefix}.{WEIGHT_DIRECTION}": (out, inputs, 1),
    }
