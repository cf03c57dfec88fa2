"""Sizes of the demo voice's language model, as the `config.json` that is served."""

from pipeline.random_checkpoint import tts_config
from training.demo_voice.codec_config import SAMPLING_RATE
from training.demo_voice.tokenizer import template_pieces


def lm_config(n_vq: int, codebook_size: int, **sizes: int) -> dict:
    """`tts/config.json` for codes of `n_vq` codebooks. `sizes` as for `pipeline.random_checkpoint.tts_config`."""
    sizes = {"hidden_size": 256, "layers": 6, "heads": 8, "kv_heads": 4, "inner_size": 704, **sizes}
    config = tts_config(n_vq=n_vq, codebook_size=codebook_size, sampling_rate=SAMPLING_RATE, **sizes)
    vocabulary = config["vocab_size"] + len(template_pieces())
    config["vocab_size"] = config["qwen3_config"]["vocab_size"] = vocabulary
    # Heads of 32 dimensions have 16 angles; over some hundred rows the slow half of a base of a million would not turn.
    config["qwen3_config"]["rope_theta"] = config["gpt2_config"]["rope_base"] = 10000.0
    return config
