"""The sizes of the codec, as the published `config.json` writes them."""

import math
from typing import Any

SAMPLING_RATE = 16_000
CODEBOOKS, CODEBOOK_SIZE, CODEBOOK_DIM = 6, 256, 16
LATENT = 64
"""Width in which residuals are taken."""
PATCHES = (4, 4, 80)
"""From a frame (12.5 Hz) to 50 Hz, 200 Hz and samples, in decoder order."""
SAMPLES_PER_FRAME = math.prod(PATCHES)
WIDTHS, HEADS = (256, 192, 128), (4, 4, 4)
DECODER_LAYERS, ENCODER_LAYERS = (4, 3, 3), (2, 2, 2)
DECODER_SECONDS, ENCODER_SECONDS = (0.64, 0.24, 0.08), (0.32, 0.24, 0.08)
"""How far back each stage sees. The encoder sees less: a code that hangs on little is easier to foretell from text."""
FFN = 3
"""Inner width of a feed-forward network over its width."""


def codec_config() -> dict[str, Any]:
    """For `pipeline.config.CodecConfig.from_dict` and for `codec/config.json`."""
    sizes = [WIDTHS[1] * PATCHES[0], WIDTHS[2] * PATCHES[1], PATCHES[2]]
    inputs = [WIDTHS[0], WIDTHS[1], WIDTHS[2]]
    decoder, encoder = [], []
    for stage, patch in enumerate(PATCHES):
        patching = {"module_type": "PatchedPretransform", "patch_size": patch}
        down = _transformer(stage, sizes[stage], inputs[stage], ENCODER_LAYERS[stage], ENCODER_SECONDS[stage])
        up = _transformer(stage, inputs[stage], sizes[stage], DECODER_LAYERS[stage], DECODER_SECONDS[stage])
        decoder += [up, patching]
        encoder = [patching, down, *encoder]
    return {
        "model_type": "moss-audio-tokenizer",
        "sampling_rate": SAMPLING_RATE,
        "downsample_rate": SAMPLES_PER_FRAME,
        "number_channels": 1,
        "enable_channel_interleave": True,
        "causal_transformer_context_duration": max(DECODER_SECONDS),
        "encoder_kwargs": encoder,
        "decoder_kwargs": decoder,
        "quantizer_type": "rlfq",
        "quantizer_kwargs": {
            "input_dim": WIDTHS[0],
            "rvq_dim": LATENT,
            "output_dim": WIDTHS[0],
            "num_quantizers": CODEBOOKS,
            "codebook_size": CODEBOOK_SIZE,
            "codebook_dim": CODEBOOK_DIM,
            "quantizer_type": "rlfq",
        },
    }


def _transformer(stage: int, inputs: int, outputs: int, layers: int, seconds: float) -> dict[str, Any]:
    return {
        "module_type": "Transformer",
        "input_dimension": inputs,
        "output_dimension": outputs,
        "d_model": WIDTHS[stage],
        "num_heads": HEADS[stage],
        "num_layers": layers,
        "dim_feedforward": FFN * WIDTHS[stage],
        "context_duration": seconds,
        "causal": True,
        "norm": "layer_norm",
        "positional_embedding": "rope",
        "max_period": 10_000,
        "gating": "none",
        "layer_scale": 0.01,
    }
