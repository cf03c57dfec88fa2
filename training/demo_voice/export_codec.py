"""`python -m training.demo_voice.export_codec`: the trained codec in the published layout, `codec/export/`.

The encoder and the codebooks come from the training of all parts together, the decoder from its own last training if
that is done.
"""

import argparse
import json
from pathlib import Path

import torch
from safetensors.torch import save

from pipeline.config import CodecConfig
from pipeline.errors import CheckpointError
from training.demo_voice.codec_config import codec_config
from training.demo_voice.codec_net import Codec
from training.demo_voice.files import BUILD, write_whole


def trained_codec(build: Path) -> Codec:
    """The codec as far as it is trained; raises CheckpointError before its codes are final."""
    path = build / "codec" / "model.pt"
    if not path.exists():
        raise CheckpointError(f"{path} does not exist; run training.demo_voice.train_codec first")
    codec = Codec(CodecConfig.from_dict(codec_config()))
    state = torch.load(path, weights_only=True)
    if not state["finished"]:
        raise CheckpointError(f"{path} stopped at step {state['step']}; let training.demo_voice.train_codec finish")
    codec.load_state_dict(state["codec"])
    tuned = build / "codec" / "decoder.pt"
    if tuned.exists():
        codec.load_state_dict(torch.load(tuned, weights_only=True)["decoder"], strict=False)
    return codec.eval()


def export(codec: Codec, directory: Path, dtype: torch.dtype = torch.bfloat16) -> None:
    """Writes `config.json` and `model.safetensors`. The quantizer stays in float32, as it is when it serves."""
    weights = {
        name: tensor.contiguous().to(torch.float32 if name.startswith("quantizer.") else dtype)
        for name, tensor in codec.state_dict().items()
    }
    write_whole(directory / "model.safetensors", lambda file: file.write(save(weights, {"format": "pt"})))
    config = json.dumps(codec_config(), indent=1) + "\n"
    write_whole(directory / "config.json", lambda file: file.write(config.encode()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=BUILD)
    build = parser.parse_args().build
    export(trained_codec(build), build / "codec" / "export")


if __name__ == "__main__":
    main()
