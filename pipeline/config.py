"""The sizes of a checkpoint, read from its two `config.json` files; nothing is hard-wired."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import Qwen3Config

from pipeline.errors import CheckpointError


@dataclass(frozen=True)
class SpecialTokens:
    """Ids of the text-vocabulary tokens that structure a prompt."""

    pad: int
    im_start: int
    im_end: int
    audio_start: int
    audio_end: int
    user_slot: int
    assistant_slot: int

    @property
    def ids(self) -> frozenset[int]:
        return frozenset(vars(self).values())


@dataclass(frozen=True)
class DepthConfig:
    """Sizes of the depth transformer (`gpt2_config` of the checkpoint)."""

    hidden_size: int
    num_heads: int
    inner_size: int
    num_layers: int
    layer_norm_eps: float
    rope_base: float

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_heads


@dataclass(frozen=True)
class ModelConfig:
    """Sizes and special ids of one text-to-speech checkpoint (`DIR/config.json`)."""

    backbone: Qwen3Config
    depth: DepthConfig
    n_vq: int
    codebook_sizes: tuple[int, ...]
    audio_pad_code: int
    tokens: SpecialTokens
    stop_head: str
    tie_word_embeddings: bool

    @property
    def hidden_size(self) -> int:
        return self.backbone.hidden_size

    @classmethod
    def load(cls, directory: Path | str) -> "ModelConfig":
        return cls.from_dict(_read_json(Path(directory) / "config.json"))

    @classmethod
    def from_dict(cls, raw: dict) -> "ModelConfig":
        """Raises CheckpointError naming the field when the architecture is not the one this project serves."""
        with _named_fields("TTS config"):
            backbone = _backbone_config(_first(raw, "qwen3_config", "language_config"))
            depth = _depth_config(raw["gpt2_config"])
            n_vq = int(raw["n_vq"])
            pad_code = int(_first(raw, "audio_pad_token_id", "audio_pad_code", "audio_vocab_size"))
            sizes = raw.get("audio_codebook_sizes") or [raw["audio_vocab_size"]] * n_vq
            tokens = SpecialTokens(
                pad=raw["pad_token_id"],
                im_start=raw["im_start_token_id"],
                im_end=raw["im_end_token_id"],
                audio_start=raw["audio_start_token_id"],
                audio_end=raw["audio_end_token_id"],
                user_slot=raw["audio_user_slot_token_id"],
                assistant_slot=_first(raw, "audio_assistant_slot_token_id", "audio_assistant_gen_slot_token_id"),
            )
        _require(len(sizes) >= n_vq, f"audio_codebook_sizes lists {len(sizes)} codebooks, n_vq is {n_vq}")
        _require(
            depth.hidden_size == backbone.hidden_size,
            f"depth width {depth.hidden_size} differs from backbone width {backbone.hidden_size}",
        )
        stop_head = raw.get("local_text_head_mode", "binary")
        _require(stop_head in ("binary", "full_vocab"), f"local_text_head_mode {stop_head!r} is unknown")
        return cls(
            backbone=backbone,
            depth=depth,
            n_vq=n_vq,
            codebook_sizes=tuple(int(size) for size in sizes[:n_vq]),
            audio_pad_code=pad_code,
            tokens=tokens,
            stop_head=stop_head,
            tie_word_embeddings=bool(raw.get("tie_word_embeddings", True)),
        )


@dataclass(frozen=True)
class TransformerStage:
    """One causal transformer of the codec, running `positions_per_frame` times per codec frame."""

    input_size: int
    output_size: int
    hidden_size: int
    num_heads: int
    num_layers: int
    inner_size: int
    rope_base: float
    layer_scale: bool
    positions_per_frame: int
    context: int
    """A position sees itself and the `context - 1` positions before it."""


@dataclass(frozen=True)
class PatchStage:
    """Folds `patch` steps of time into channels (encoder) or unfolds them (decoder)."""

    patch: int


CodecStage = TransformerStage | PatchStage


@dataclass(frozen=True)
class QuantizerConfig:
    """Sizes of the residual quantizer."""

    input_size: int
    hidden_size: int
    output_size: int
    num_codebooks: int
    codebook_size: int
    codebook_dim: int


@dataclass(frozen=True)
class CodecConfig:
    """Sizes of one codec checkpoint (`DIR/config.json`). `samples_per_frame` counts samples of one channel."""

    sampling_rate: int
    channels: int
    samples_per_frame: int
    interleave: bool
    encoder: tuple[CodecStage, ...]
    decoder: tuple[CodecStage, ...]
    quantizer: QuantizerConfig

    @property
    def frame_rate(self) -> float:
        return self.sampling_rate / self.samples_per_frame

    @property
    def stream_positions_per_frame(self) -> int:
        """Steps of the sample stream per frame: channels are interleaved in time, or lie side by side."""
        return self.samples_per_frame * (self.channels if self.interleave else 1)

    @classmethod
    def load(cls, directory: Path | str) -> "CodecConfig":
        return cls.from_dict(_read_json(Path(directory) / "config.json"))

    @classmethod
    def from_dict(cls, raw: dict) -> "CodecConfig":
        """Accepts the field names of older files too; raises CheckpointError naming what does not fit."""
        with _named_fields("codec config"):
            quantizer = raw["quantizer_kwargs"]
            channels = int(_first(raw, "number_channels", "channels_numbers"))
            base = {
                "sampling_rate": int(_first(raw, "sampling_rate", "sample_rate")),
                "channels": channels,
                "samples_per_frame": int(raw["downsample_rate"]),
                "interleave": bool(raw.get("enable_channel_interleave", True)) and channels > 1,
                "quantizer": QuantizerConfig(
                    input_size=quantizer["input_dim"],
                    hidden_size=quantizer["rvq_dim"],
                    output_size=quantizer.get("output_dim", quantizer["input_dim"]),
                    num_codebooks=quantizer["num_quantizers"],
                    codebook_size=quantizer["codebook_size"],
                    codebook_dim=quantizer["codebook_dim"],
                ),
            }
            kind = quantizer.get("quantizer_type", raw.get("quantizer_type", "rlfq"))
            _require(kind == "rlfq", f"quantizer_type {kind!r} is not supported")
            shape = cls(**base, encoder=(), decoder=())
            duration = raw.get("causal_transformer_context_duration")
            encoder = _codec_stages(raw["encoder_kwargs"], shape, duration, encoding=True)
            decoder = _codec_stages(raw["decoder_kwargs"], shape, duration, encoding=False)
        return cls(**base, encoder=encoder, decoder=decoder)


def _codec_stages(
    modules: list[dict], shape: CodecConfig, default_duration: float | None, encoding: bool
) -> tuple[CodecStage, ...]:
    positions = shape.stream_positions_per_frame if encoding else 1
    stages: list[CodecStage] = []
    for module in modules:
        if module["module_type"] == "PatchedPretransform":
            patch = int(module["patch_size"])
            _require(
                not encoding or positions % patch == 0,
                f"patch_size {patch} does not divide the {positions} positions of a frame",
            )
            positions = positions // patch if encoding else positions * patch
            stages.append(PatchStage(patch))
        elif module["module_type"] == "Transformer":
            stages.append(_transformer_stage(module, positions, shape.frame_rate, default_duration))
        else:
            raise CheckpointError(f"codec config: module_type {module['module_type']!r} is not supported")
    expected = 1 if encoding else shape.stream_positions_per_frame
    _require(
        positions == expected,
        f"{'encoder' if encoding else 'decoder'} patches leave {positions} positions a frame, expected {expected}",
    )
    return tuple(stages)


def _transformer_stage(
    module: dict, positions: int, frame_rate: float, default_duration: float | None
) -> TransformerStage:
    for field, supported in (
        ("causal", True),
        ("gating", "none"),
        ("norm", "layer_norm"),
        ("positional_embedding", "rope"),
    ):
        value = module.get(field, supported)
        _require(value == supported, f"codec transformer with {field}={value!r} is not supported")
    duration = module.get("context_duration") or default_duration
    _require(duration is not None, "codec transformer without context_duration")
    context = round(frame_rate * positions * duration)
    _require(context > 0, f"codec transformer with context_duration {duration} sees no position at all")
    return TransformerStage(
        input_size=module["input_dimension"],
        output_size=module["output_dimension"],
        hidden_size=module["d_model"],
        num_heads=module["num_heads"],
        num_layers=module["num_layers"],
        inner_size=module["dim_feedforward"],
        rope_base=float(module.get("max_period", 10000)),
        layer_scale=module.get("layer_scale") is not None,
        positions_per_frame=positions,
        context=context,
    )


def _backbone_config(raw: dict) -> Qwen3Config:
    fields = {key: value for key, value in raw.items() if not key.startswith("_")}
    if "rope_theta" in fields and not fields.get("rope_parameters"):
        fields["rope_parameters"] = {"rope_type": "default", "rope_theta": fields.pop("rope_theta")}
    config = Qwen3Config(**fields)
    _require(config.hidden_act == "silu", f"a backbone with hidden_act {config.hidden_act!r} is not supported")
    _require(set(config.layer_types) == {"full_attention"}, "sliding-window backbones are not supported")
    return config


def _depth_config(raw: dict) -> DepthConfig:
    activation = raw.get("activation_function", "silu")
    _require(activation == "silu", f"gpt2_config.activation_function {activation!r} is not supported")
    positions = raw.get("position_embedding_type", "rope")
    _require(positions == "rope", f"gpt2_config.position_embedding_type {positions!r} is not supported")
    return DepthConfig(
        hidden_size=raw["n_embd"],
        num_heads=raw["n_head"],
        inner_size=raw.get("n_inner") or 4 * raw["n_embd"],
        num_layers=raw["n_layer"],
        layer_norm_eps=raw["layer_norm_epsilon"],
        rope_base=float(raw.get("rope_base", 10000)),
    )


@contextmanager
def _named_fields(where: str) -> Iterator[None]:
    """Turns a field that is missing, or of another kind than expected, into a CheckpointError that says so."""
    try:
        yield
    except KeyError as error:
        raise CheckpointError(f"{where}: field {error.args[0]!r} is missing") from None
    except (TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"{where}: a field is not what it should be: {error}") from None


def _first(raw: dict, *names: str) -> Any:
    """The value of the first of these fields that is set; the first name is the current one."""
    for name in names:
        if raw.get(name) is not None:
            return raw[name]
    raise KeyError(names[0])


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise CheckpointError(message)


def _read_json(path: Path) -> dict:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{path} does not exist") from None
    except json.JSONDecodeError as error:
        raise CheckpointError(f"{path} is not valid JSON: {error}") from None
