"""The stages of one half of the codec, run step by step over any number of independent streams."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pipeline.activations import relax_activations
from pipeline.attention import Span
from pipeline.checkpoint import Checkpoint, load_module
from pipeline.codec.transformer import CodecTransformer, plan_step
from pipeline.config import CodecStage, TransformerStage
from pipeline.errors import SpeechError
from pipeline.kv_blocks import BlockTable, KVBlocks
from pipeline.row_buckets import CPU_DEFAULT, UNPADDED

BLOCK_SIZE = 64
"""Positions a KV block: few and large products on long windows, little masked work on short ones."""


class StreamError(SpeechError):
    """Streams used against the rules (too many, a closed one, a step of a wrong size): a caller's bug."""


@dataclass(eq=False)
class StreamState:
    """All that is kept of one stream between steps: its blocks in each transformer stage, the frames done."""

    tables: dict[int, BlockTable]
    """By the number of the stage."""
    frames: int = 0


class StageStack:
    """Every stage works on `[rows, width]`: the rows of all streams of a step, one stream after the other.

    Not thread-safe: one step at a time.
    """

    def __init__(
        self,
        stages: Sequence[CodecStage],
        repatch: Callable[[Tensor, int], Tensor],
        checkpoint: Checkpoint,
        prefix: str,
        *,
        dtype: torch.dtype,
        device: torch.device | str,
        max_streams: int,
        max_step_frames: int,
    ):
        """`repatch` is `fold` or `unfold`; `prefix` starts the names in the checkpoint."""
        self._stages = stages
        self._repatch = repatch
        self.dtype = dtype
        self.device = device
        self.max_streams = max_streams
        self.max_step_frames = max_step_frames
        self.rows = CPU_DEFAULT
        self.relaxed = False
        self._open: set[StreamState] = set()
        with torch.device("meta"):
            self.modules = nn.ModuleList(
                CodecTransformer(stage) if isinstance(stage, TransformerStage) else nn.Identity() for stage in stages
            )
        load_module(self.modules, checkpoint, prefix, dtype, device)
        self._pools = {
            index: self._pool(stage) for index, stage in enumerate(stages) if isinstance(stage, TransformerStage)
        }

    def relax(self) -> None:
        """Fused kernels without padding: faster, and bits that depend on the batch."""
        self.rows, self.relaxed = UNPADDED, True
        relax_activations(self.modules)

    def open(self) -> StreamState:
        """A new stream at frame 0; raises StreamError when `max_streams` are open."""
        if len(self._open) == self.max_streams:
            raise StreamError(f"all {self.max_streams} codec streams are open; close one first")
        state = StreamState({index: BlockTable() for index in self._pools})
        self._open.add(state)
        return state

    def close(self, state: StreamState) -> None:
        """Ends a stream and returns its blocks at once."""
        self._require_open(state)
        self._open.remove(state)
        for index, pool in self._pools.items():
            pool.release(state.tables[index])

    @property
    def blocks_in_use(self) -> int:
        """KV blocks lent to open streams, over all stages."""
        return sum(pool.total - pool.free for pool in self._pools.values())

    @property
    def bytes_in_use(self) -> int:
        """Of those blocks."""
        return sum(pool.bytes_in_use for pool in self._pools.values())

    def check_step(self, streams: Sequence[tuple[StreamState, int]]) -> None:
        """Raises StreamError unless these (stream, frames) can be run together."""
        if len({id(state) for state, _ in streams}) < len(streams):
            raise StreamError("a codec stream occurs twice in one step")
        for state, frames in streams:
            self._require_open(state)
            if not 0 < frames <= self.max_step_frames:
                raise StreamError(f"a codec step has 1 to {self.max_step_frames} frames, not {frames}")

    def run(self, rows: Tensor, streams: Sequence[tuple[StreamState, int]]) -> Tensor:
        """Pushes the next frames of each stream, packed in this order, through all stages.

        A stream's rows do not depend on the other streams or on how its frames were cut into steps. Streams
        move on only when all stages are done, so a failed step can be repeated.
        """
        for index, stage in enumerate(self._stages):
            if isinstance(stage, TransformerStage):
                pool = self._pools[index]
                plan = plan_step(stage, _spans(stage, pool, index, streams), pool, self.rows, self.relaxed)
                rows = self.modules[index](rows, pool, plan)
            else:
                rows = self._repatch(rows, stage.patch)
        self._advance(streams)
        return rows

    def _advance(self, streams: Sequence[tuple[StreamState, int]]) -> None:
        for state, frames in streams:
            state.frames += frames
            for index, table in state.tables.items():
                stage = self._stages[index]
                table.length = state.frames * stage.positions_per_frame
                self._pools[index].trim(table, table.length - stage.context + 1)

    def _pool(self, stage: TransformerStage) -> KVBlocks:
        """Room for all a stream's first new position sees and a whole step, wherever blocks begin."""
        positions = stage.context - 1 + self.max_step_frames * stage.positions_per_frame
        return KVBlocks(
            layers=stage.num_layers,
            blocks=self.max_streams * (-(-(positions - 1) // BLOCK_SIZE) + 1),
            kv_heads=stage.num_heads,
            block_size=BLOCK_SIZE,
            head_dim=stage.hidden_size // stage.num_heads,
            dtype=self.dtype,
            device=self.device,
        )

    def _require_open(self, state: StreamState) -> None:
        if state not in self._open:
            raise StreamError("this codec stream is closed, or belongs to another codec")


def _spans(
    stage: TransformerStage, pool: KVBlocks, index: int, streams: Sequence[tuple[StreamState, int]]
) -> list[Span]:
    spans = []
    for state, frames in streams:
        table, count = state.tables[index], frames * stage.positions_per_frame
        pool.extend(table, table.length + count)
        spans.append(Span(table, table.length, count))
    return spans
