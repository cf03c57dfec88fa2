"""`python -m pipeline.parity DIR`: checks this implementation against golden data of the model's authors.

DIR holds `tts/`, `codec/`, `golden.json` and `golden.safetensors`. Every key of the latter gets a line with its largest
error; the exit status is 1 if any is missed.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from pipeline.attention import Span
from pipeline.backbone import load_backbone
from pipeline.codec import CodecDecoder, CodecEncoder
from pipeline.config import CodecConfig, ModelConfig
from pipeline.depth import load_depth
from pipeline.depth_sampler import DepthSampler
from pipeline.engine import Engine, EngineLimits
from pipeline.kv_blocks import BlockTable
from pipeline.local_depth import LocalDepth
from pipeline.prompt import prompt_rows
from pipeline.request import Prompt, SamplingParams, SpeechRequest
from pipeline.sampling import FilterParams, filtered_probabilities
from pipeline.tokenizer import Tokenizer

ABSOLUTE, RELATIVE = 2e-5, 1e-4
"""Tolerance of float values; integers must be equal."""
GREEDY_FRAMES = 24

INPUTS = re.compile(
    r"prompt\.reference_codes_\w+|backbone\.(rows|decode_frames)|depth\.(hidden|codes)|filter\.(logits|history)"
    r"|codec\.(short\.)?codes|codec\.encode\.wav"
)


class Parity:
    """The models under test and the golden data, with one method for each kind of key."""

    def __init__(self, directory: Path):
        self.golden = load_file(directory / "golden.safetensors")
        self.cases = json.loads((directory / "golden.json").read_text(encoding="utf-8"))
        config = ModelConfig.load(directory / "tts")
        codec = CodecConfig.load(directory / "codec")
        self.config = config
        self.tokenizer = Tokenizer.load(directory / "tts", config)
        self.backbone = load_backbone(directory / "tts", config, dtype=torch.float32)
        self.depth = load_depth(directory / "tts", config, dtype=torch.float32)
        self.decoder = CodecDecoder.load(
            directory / "codec",
            codec,
            dtype=torch.float32,
            device="cpu",
            max_streams=1,
            max_step_frames=8,
            n_vq=self.golden["codec.codes"].shape[1],
        )
        self.encoder = CodecEncoder.load(
            directory / "codec", codec, dtype=torch.float32, device="cpu", max_step_frames=8
        )

    def check(self, key: str) -> tuple[bool, str]:
        """Whether the key is reproduced, and what to print about it."""
        expected = self.golden[key]
        if INPUTS.fullmatch(key):
            return True, "input"
        compute = self._computation(key)
        if compute is None:
            return False, "unknown key"
        return _compare(compute(), expected)

    def _computation(self, key: str) -> Callable[[], Tensor] | None:
        fixed = {
            "backbone.inputs_embeds": lambda: self.backbone.embed(self.golden["backbone.rows"]),
            "backbone.hidden": lambda: self._backbone_hidden()[0],
            "backbone.decode_hidden": lambda: self._backbone_hidden()[1],
            "depth.stop_logits": lambda: self._depth_logits()[0],
            "depth.logits": lambda: self._depth_logits()[1],
            "codec.audio": lambda: self.decoder.decode_all(self.golden["codec.codes"]),
            "codec.short.audio": lambda: self.decoder.decode_all(self.golden["codec.short.codes"]),
            "codec.encode.codes": self._encoded,
        }
        if key in fixed:
            return fixed[key]
        if match := re.fullmatch(r"prompt\.(\w+)\.rows", key):
            return lambda: torch.from_numpy(prompt_rows(self._prompt(match[1]), self.tokenizer, self.config))
        if match := re.fullmatch(r"filter\.(\d+)\.probs", key):
            return lambda: self._probabilities(int(match[1]))
        if match := re.fullmatch(r"greedy(?:_rp(\d+))?\.(\w+)\.frames", key):
            penalty = float(f"{match[1][0]}.{match[1][1:]}") if match[1] else 1.0
            return lambda: self._greedy(match[2], penalty)
        return None

    def _prompt(self, name: str) -> Prompt:
        case = next(case for case in self.cases["prompts"] if case["name"] == name)
        references = tuple(self.golden[f"prompt.reference_codes_{r}"].numpy() for r in case["references"])
        return Prompt(**case["fields"], references=references, continuation=case["mode"] == "continuation")

    def _backbone_hidden(self) -> tuple[Tensor, Tensor]:
        """Hidden states of the prefilled rows, and of the given frames fed one at a time after them."""
        rows, frames = self.golden["backbone.rows"], self.golden["backbone.decode_frames"]
        table = BlockTable()
        kv = self.backbone.new_kv_blocks(blocks=-(-(len(rows) + len(frames)) // 64), block_size=64)
        kv.extend(table, len(rows) + len(frames))
        prefilled = self.backbone(rows, [Span(table, 0, len(rows))], kv)
        slot = torch.tensor([self.config.tokens.assistant_slot])
        decoded = [
            self.backbone(torch.cat((slot, frame))[None], [Span(table, len(rows) + index, 1)], kv)
            for index, frame in enumerate(frames)
        ]
        return prefilled, torch.cat(decoded)

    @torch.inference_mode()
    def _depth_logits(self) -> tuple[Tensor, Tensor]:
        """Stop logits and code logits with the given codes fed back."""
        inputs, codes = self.golden["depth.hidden"], self.golden["depth.codes"]
        cache = self.depth.new_cache(len(inputs))
        stop, logits = None, []
        for codebook in range(self.config.n_vq):
            outputs = self.depth.step(inputs, cache, codebook)
            stop = self.depth.stop_logits(outputs) if stop is None else stop
            logits.append(self.depth.code_logits(outputs, codebook))
            inputs = self.depth.embed_code(codes[:, codebook], codebook)
        return stop, torch.stack(logits, dim=1)

    def _probabilities(self, index: int) -> Tensor:
        logits, history = self.golden["filter.logits"], self.golden["filter.history"]
        emitted = torch.zeros_like(logits, dtype=torch.bool).scatter_(1, history, True)
        params = FilterParams.for_codes([SamplingParams(**self.cases["filters"][index])] * len(logits))
        return filtered_probabilities(logits, params, emitted)

    def _greedy(self, name: str, penalty: float) -> Tensor:
        sampling = SamplingParams(temperature=0.0, stop_temperature=0.0, repetition_penalty=penalty)
        request = SpeechRequest(name, self._prompt(name), seed=0, max_frames=GREEDY_FRAMES, sampling=sampling)
        limits = EngineLimits(max_running=1, kv_blocks=64)
        with Engine(self.backbone, self.tokenizer, LocalDepth(DepthSampler(self.depth)), limits) as engine:
            return torch.from_numpy(np.concatenate([chunk.codes for chunk in engine.generate(request)]))

    def _encoded(self) -> Tensor:
        return self.encoder.encode(self.golden["codec.encode.wav"], self.golden["codec.encode.codes"].shape[1])


def _compare(got: Tensor, expected: Tensor) -> tuple[bool, str]:
    if got.shape != expected.shape:
        return False, f"shape {list(got.shape)}, expected {list(expected.shape)}"
    if not expected.is_floating_point():
        wrong = int((got != expected).sum())
        return wrong == 0, f"{wrong} of {expected.numel()} differ"
    error = (got - expected).abs()
    largest = float(error.max()) if error.numel() else 0.0
    return bool((error <= ABSOLUTE + RELATIVE * expected.abs()).all()), f"largest error {largest:.2e}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="pipeline.parity", description=__doc__.split(":", 1)[1])
    parser.add_argument("directory", type=Path)
    parity = Parity(parser.parse_args().directory)
    missed = 0
    for key in sorted(parity.golden):
        ok, note = parity.check(key)
        missed += not ok
        print(f"{'ok  ' if ok else 'MISS'}  {key:32}  {note}", flush=True)
    print(f"{len(parity.golden) - missed} of {len(parity.golden)} keys reproduced")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
