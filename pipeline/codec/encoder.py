"""Audio to codes, one clip at a time."""

from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from pipeline.checkpoint import Checkpoint, open_codec
from pipeline.codec.patch import fold
from pipeline.codec.quantizer import Quantizer
from pipeline.codec.stack import StageStack
from pipeline.config import CodecConfig
from pipeline.errors import InvalidRequest

LOUDEST_SAMPLE = 1e6
"""Full scale is 1. A NaN, or the NaN that far louder samples overflow into, would stay in KV blocks the next
clip reuses: there a masked value counts with weight 0, and 0 times NaN is NaN."""


class CodecEncoder:
    """Runs a clip through in steps of `max_step_frames` frames: that bounds memory and changes no code.

    Not thread-safe: one clip at a time.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        config: CodecConfig,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        max_step_frames: int,
    ):
        self.config = config
        self.dtype = dtype
        self.device = device
        self.max_step_frames = max_step_frames
        self.quantizer = Quantizer(checkpoint, config.quantizer.num_codebooks, device)
        self.stack = StageStack(
            config.encoder,
            fold,
            checkpoint,
            "encoder.",
            dtype=dtype,
            device=device,
            max_streams=1,
            max_step_frames=max_step_frames,
        )

    @classmethod
    def load(cls, directory: Path | str, config: CodecConfig, **options: Any) -> Self:
        """From a checkpoint directory; options as for the class."""
        return cls(open_codec(directory, config), config, **options)

    @torch.inference_mode()
    def encode(self, audio: Tensor, n_vq: int) -> Tensor:
        """int64 `[samples // samples_per_frame, n_vq]` from float32 `[channels, samples]`.

        A tail shorter than a frame gives no code, and as all is causal it cannot change the codes before it.
        Raises InvalidRequest for another number of channels, samples that are no sound (NaN, infinite, beyond
        LOUDEST_SAMPLE) or more codebooks than there are.
        """
        self._check(audio, n_vq)
        frames = audio.shape[1] // self.config.samples_per_frame
        samples = audio[:, : frames * self.config.samples_per_frame].to(device=self.device, dtype=self.dtype)
        width = 1 if self.config.interleave else self.config.channels
        rows = samples.T.reshape(frames, self.config.stream_positions_per_frame, width)
        codes = [torch.empty(0, n_vq, dtype=torch.int64, device=self.device)]
        state = self.stack.open()
        try:
            for first in range(0, frames, self.max_step_frames):
                part = rows[first : first + self.max_step_frames]
                hidden = self.stack.run(part.flatten(0, 1), [(state, len(part))])
                codes.append(self.quantizer.encode(hidden.float(), n_vq, self.stack.rows))
        finally:
            self.stack.close(state)
        return torch.cat(codes)

    def _check(self, audio: Tensor, n_vq: int) -> None:
        if audio.dim() != 2 or audio.shape[0] != self.config.channels:
            raise InvalidRequest(f"audio must be [{self.config.channels}, samples], not {list(audio.shape)}")
        # Not `any(abs > limit)`: comparisons with NaN are false.
        if not bool((audio.abs() <= LOUDEST_SAMPLE).all()):
            raise InvalidRequest(f"audio samples must be finite and within {LOUDEST_SAMPLE:g} of 0")
        if not 0 < n_vq <= self.config.quantizer.num_codebooks:
            raise InvalidRequest(f"n_vq must be 1 to {self.config.quantizer.num_codebooks}, not {n_vq}")
