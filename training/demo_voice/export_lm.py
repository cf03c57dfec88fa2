"""`python -m training.demo_voice.export_lm`: the trained language model in the published layout, in bfloat16."""

import argparse
from pathlib import Path

import torch
from safetensors.torch import save

from pipeline.config import ModelConfig
from pipeline.layout import check_names, tts_layout, tts_optional, tts_ties
from pipeline.request import SamplingParams
from training.demo_voice.files import BUILD, write_json, write_whole
from training.demo_voice.tokenizer import write_tokenizer

TEMPERATURE, STOP_TEMPERATURE = 0.5, 0.5
"""What this model is best sampled at. Exported, it is so at the published defaults, 1.7 and 1."""


def sharpened(weights: dict[str, torch.Tensor], codes: float, stop: float) -> dict[str, torch.Tensor]:
    """The weights with the logits of all codes times `codes` and those of the stop decision times `stop`.

    The heads are the embeddings too, so the factor goes into the norm before them.
    """
    norm, head = "local_transformer.ln_f.", "local_text_lm_head.weight"
    changed = {norm + part: weights[norm + part] * codes for part in ("weight", "bias")}
    return {**weights, **changed, head: weights[head] * (stop / codes)}


def export(config: dict, weights: dict[str, torch.Tensor], directory: Path) -> None:
    """Writes `config.json`, `model.safetensors` and `tokenizer.json`; heads are left out, as embeddings hold them.

    Raises CheckpointError when the names or shapes are not the published ones.
    """
    parsed = ModelConfig.from_dict(config)
    shapes = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    check_names(shapes, tts_layout(parsed), tts_optional(parsed) | tts_ties(parsed).keys(), where="the trained model")
    data = save({name: tensor.bfloat16().contiguous() for name, tensor in weights.items()}, metadata={"format": "pt"})
    write_whole(directory / "model.safetensors", lambda file: file.write(data))
    write_json(directory / "config.json", config)
    write_tokenizer(directory, parsed)


def main() -> None:
    parser = argparse.ArgumentParser(prog="training.demo_voice.export_lm", description=__doc__.split(":", 1)[1])
    parser.add_argument("--build", type=Path, default=BUILD, help="folder of the stages; default %(default)s")
    folder = parser.parse_args().build / "lm"
    state = torch.load(folder / "checkpoint.pt", weights_only=True)
    defaults = SamplingParams()
    codes, stop = defaults.temperature / TEMPERATURE, defaults.stop_temperature / STOP_TEMPERATURE
    export(state["config"], sharpened(state["averaged"], codes, stop), folder / "export")
    size = sum(path.stat().st_size for path in (folder / "export").iterdir()) / 1e6
    print(f"{folder / 'export'}: step {state['step']}, {size:.1f} MB")


if __name__ == "__main__":
    main()
