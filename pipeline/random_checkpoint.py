"""`python -m pipeline.random_checkpoint DIR`: a tiny checkpoint in the published layout, from a fixed seed.

Its speech is shaped noise. Tests and benchmarks that need no words run on it; the layout comes from the two
configurations alone, and tests write checkpoints of other sizes with the same functions.
"""

import argparse
import json
import math
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor

from pipeline.config import CodecConfig, ModelConfig
from pipeline.layout import codec_layout, tts_layout, tts_ties

SEED = 48000
CONTROL_TOKENS = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|audio_user_slot|>", "<|audio_assistant_slot|>",
    "<|audio_start|>", "<|audio_end|>",
)  # fmt: skip
BYTES = 256
STOP_MARGIN = 6.0
"""Mean distance of the two stop logits: utterances end by themselves, after some seconds."""
CODE_SCALE = 0.3
"""Size of the codes' embeddings and heads: flat enough that small differences of the text reach the codes."""
PEAKEDNESS = 2.0
"""Weight of the query and key norms: attention picks some rows out, so that every text sounds its own way."""
LOUDNESS = 0.02
"""Gain of the decoder's last projection that brings the noise to the level of speech."""


def tts_config(
    *,
    hidden_size: int = 64,
    layers: int = 3,
    heads: int = 4,
    kv_heads: int = 2,
    inner_size: int = 160,
    depth_layers: int = 1,
    n_vq: int = 12,
    codebook_size: int = 128,
    sampling_rate: int = 48000,
) -> dict:
    """`tts/config.json` of a checkpoint of these sizes."""
    vocab = BYTES + len(CONTROL_TOKENS)
    pad, im_start, im_end, user_slot, assistant_slot, audio_start, audio_end = range(BYTES, vocab)
    return {
        "architectures": ["MossTTSLocalModel"],
        "model_type": "moss_tts_local",
        "n_vq": n_vq,
        "audio_vocab_size": codebook_size,
        "audio_codebook_sizes": [codebook_size] * n_vq,
        "audio_pad_token_id": codebook_size,
        "pad_token_id": pad,
        "im_start_token_id": im_start,
        "im_end_token_id": im_end,
        "audio_user_slot_token_id": user_slot,
        "audio_assistant_slot_token_id": assistant_slot,
        "audio_start_token_id": audio_start,
        "audio_end_token_id": audio_end,
        "local_text_head_mode": "binary",
        "sampling_rate": sampling_rate,
        "tie_word_embeddings": True,
        "hidden_size": hidden_size,
        "vocab_size": vocab,
        "qwen3_config": {
            "model_type": "qwen3",
            "hidden_size": hidden_size,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": kv_heads,
            "head_dim": hidden_size // heads,
            "intermediate_size": inner_size,
            "vocab_size": vocab,
            "max_position_embeddings": 32768,
            "rms_norm_eps": 1e-6,
            "rope_theta": 1000000.0,
            "attention_bias": False,
            "tie_word_embeddings": True,
        },
        "gpt2_config": {
            "n_embd": hidden_size,
            "n_head": heads,
            "n_inner": inner_size,
            "n_layer": depth_layers,
            "layer_norm_epsilon": 1e-6,
            "activation_function": "silu",
            "position_embedding_type": "rope",
            "rope_base": 1000000.0,
        },
    }


def codec_config(
    *,
    sampling_rate: int = 48000,
    channels: int = 2,
    patches: tuple[int, ...] = (2, 2, 2, 2, 2),
    last_patch: int = 240,
    width: int = 48,
    heads: int = 4,
    layers: int = 1,
    context_seconds: float = 0.96,
    num_codebooks: int = 16,
    codebook_size: int = 128,
) -> dict:
    """`codec/config.json`: transformers of one width with `patches` between them, in decoder order."""
    decoder, encoder = [], []
    sizes = [width, *(2 * width // patch * patch for patch in patches), last_patch]
    for index, patch in enumerate((*patches, last_patch)):
        input_size = width if index == 0 else sizes[index] // patches[index - 1]
        stage = {
            "module_type": "Transformer",
            "d_model": width,
            "num_heads": heads,
            "num_layers": layers,
            "dim_feedforward": 2 * width,
            "causal": True,
            "norm": "layer_norm",
            "positional_embedding": "rope",
            "max_period": 10000,
            "gating": "none",
            "layer_scale": 0.01,
            "conv_layout": True,
        }
        output_size = sizes[index + 1]
        decoder += [
            {**stage, "input_dimension": input_size, "output_dimension": output_size},
            {"module_type": "PatchedPretransform", "patch_size": patch},
        ]
        encoder = [
            {"module_type": "PatchedPretransform", "patch_size": patch},
            {**stage, "input_dimension": output_size, "output_dimension": input_size},
            *encoder,
        ]
    return {
        "model_type": "moss-audio-tokenizer",
        "sampling_rate": sampling_rate,
        "downsample_rate": math.prod(patches) * last_patch // channels,
        "number_channels": channels,
        "enable_channel_interleave": True,
        "causal_transformer_context_duration": context_seconds,
        "encoder_kwargs": encoder,
        "decoder_kwargs": decoder,
        "quantizer_type": "rlfq",
        "quantizer_kwargs": {
            "input_dim": width,
            "rvq_dim": width // 2,
            "output_dim": width,
            "num_quantizers": num_codebooks,
            "codebook_size": codebook_size,
            "codebook_dim": 8,
            "quantizer_type": "rlfq",
        },
    }


def write_checkpoint(directory: Path | str, tts: dict, codec: dict, seed: int = SEED) -> None:
    """Writes `tts/` and `codec/` below `directory`; the same arguments give the same files."""
    directory = Path(directory)
    generator = torch.Generator().manual_seed(seed)
    config = ModelConfig.from_dict(tts)
    ties = tts_ties(config)
    weights = {name: _random(name, shape, generator) for name, shape in tts_layout(config).items() if name not in ties}
    _shape_stop(weights)
    _write(directory / "tts", tts, weights)
    byte_tokenizer().save(str(directory / "tts" / "tokenizer.json"))
    shape = CodecConfig.from_dict(codec)
    weights = {name: _random(name, size, generator) for name, size in codec_layout(shape).items()}
    last = max(index for index, stage in enumerate(codec["decoder_kwargs"]) if "d_model" in stage)
    weights[f"decoder.{last}.output_proj.weight"] *= LOUDNESS
    _write(directory / "codec", codec, weights)


def byte_tokenizer() -> Tokenizer:
    """A byte-level tokenizer without merges, with the control tokens after the bytes."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={symbol: id for id, symbol in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in CONTROL_TOKENS])
    return tokenizer


def _random(name: str, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    if "bias" in name:
        return torch.zeros(shape)
    if "q_norm" in name or "k_norm" in name:
        return torch.full(shape, PEAKEDNESS)
    if "norm" in name or "ln_" in name or "original0" in name or len(shape) == 1:
        return torch.full(shape, 0.1 if "scale" in name else 1.0)
    fan_in = shape[1] if len(shape) > 1 else shape[0]
    if "audio_embeddings" in name:
        return torch.randn(shape, generator=generator) * CODE_SCALE
    scale = 1.0 if "embed" in name or "codebook" in name else fan_in**-0.5
    return torch.randn(shape, generator=generator) * scale


def _shape_stop(weights: dict[str, Tensor]) -> None:
    """Gives the last norm a bias that the stop head reads: a constant margin for going on, plus the hidden state."""
    width = weights["local_transformer.ln_f.bias"].shape[0]
    direction = torch.full((width,), 0.5)
    weights["local_transformer.ln_f.bias"] = direction
    head = direction * (STOP_MARGIN / 2 / (direction @ direction))
    weights["local_text_lm_head.weight"] = torch.stack((head, -head))


def _write(directory: Path, config: dict, weights: dict[str, Tensor]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    save_file(weights, directory / "model.safetensors", metadata={"format": "pt"})


def main() -> None:
    parser = argparse.ArgumentParser(prog="pipeline.random_checkpoint", description=__doc__.split(":", 1)[1])
    parser.add_argument("directory", type=Path)
    write_checkpoint(parser.parse_args().directory, tts_config(), codec_config())


if __name__ == "__main__":
    main()
