"""Codes to audio, for any number of streams at once."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from pipeline.checkpoint import Checkpoint, open_codec
from pipeline.codec.patch import unfold
from pipeline.codec.quantizer import Dequantizer
from pipeline.codec.stack import StageStack, StreamState
from pipeline.config import CodecConfig
from pipeline.errors import CheckpointError, InvalidRequest


class CodecDecoder:
    """The same codes give the same bits of audio for any cut into steps and any streams beside them.

    Holds memory for `max_streams` streams. Not thread-safe: one call at a time.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        config: CodecConfig,
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        max_streams: int,
        max_step_frames: int,
        n_vq: int,
    ):
        """Codes have `n_vq` codebooks; raises CheckpointError when the codec has fewer."""
        if not 0 < n_vq <= config.quantizer.num_codebooks:
            raise CheckpointError(f"{n_vq} codebooks wanted; the codec has {config.quantizer.num_codebooks}")
        self.config = config
        self.n_vq = n_vq
        self.dtype = dtype
        self.device = device
        self.max_step_frames = max_step_frames
        self.quantizer = Dequantizer(checkpoint, n_vq, device)
        self.stack = StageStack(
            config.decoder,
            unfold,
            checkpoint,
            "decoder.",
            dtype=dtype,
            device=device,
            max_streams=max_streams,
            max_step_frames=max_step_frames,
        )

    @classmethod
    def load(cls, directory: Path | str, config: CodecConfig, **options: Any) -> Self:
        """From a checkpoint directory; options as for the class."""
        return cls(open_codec(directory, config), config, **options)

    @property
    def blocks_in_use(self) -> int:
        """KV blocks held by open streams."""
        return self.stack.blocks_in_use

    def open(self) -> StreamState:
        """A new stream; raises StreamError when `max_streams` are open."""
        return self.stack.open()

    def close(self, state: StreamState) -> None:
        """Ends a stream at any time and returns its memory at once."""
        self.stack.close(state)

    @torch.inference_mode()
    def decode(self, steps: Sequence[tuple[StreamState, Tensor]]) -> list[Tensor]:
        """The next frames of each stream: int64 `[F, n_vq]` -> float32 `[channels, F * samples_per_frame]`.

        Every stream has its own F, 1 to `max_step_frames`. Raises InvalidRequest for codes of a wrong shape,
        type or value and StreamError for streams that cannot run together, both before anything is changed.
        """
        if not steps:
            return []
        for _, codes in steps:
            self._check_codes(codes)
        streams = [(state, codes.shape[0]) for state, codes in steps]
        self.stack.check_step(streams)
        codes = torch.cat([codes.to(self.device) for _, codes in steps])
        rows = self.stack.run(self.quantizer.decode(codes, self.stack.rows).to(self.dtype), streams)
        # Channels follow each other at every point in time, interleaved or side by side.
        samples = rows.float().view(-1, self.config.channels)
        parts = samples.split([frames * self.config.samples_per_frame for _, frames in streams])
        return [part.T.contiguous() for part in parts]

    def decode_all(self, codes: Tensor) -> Tensor:
        """A whole utterance in one call: int64 `[F, n_vq]` -> float32 `[channels, F * samples_per_frame]`."""
        state = self.open()
        try:
            steps = [part for part in codes.split(self.max_step_frames) if len(part)]
            parts = [self.decode([(state, part)])[0] for part in steps]
        finally:
            self.close(state)
        return torch.cat([torch.empty(self.config.channels, 0, device=self.device), *parts], dim=1)

    def _check_codes(self, codes: Tensor) -> None:
        if codes.dim() != 2 or codes.shape[1] != self.n_vq or codes.dtype != torch.int64:
            raise InvalidRequest(f"codes must be int64 [frames, {self.n_vq}], not {codes.dtype} {list(codes.shape)}")
        size = self.config.quantizer.codebook_size
        if codes.numel() and (int(codes.min()) < 0 or int(codes.max()) >= size):
            raise InvalidRequest(f"codes must be 0 to {size - 1}; found {int(codes.min())} to {int(codes.max())}")
