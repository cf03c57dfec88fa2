"""Paged key/value storage: blocks of a fixed number of positions, lent to sequences and returned at once."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pipeline.errors import SpeechError

GATHERED_ON_CPU = 2**20
GATHERED_ON_ACCELERATOR = 2**28
"""Elements of keys that attention gathers in one go: on a CPU they should stay in cache."""


class OutOfBlocks(SpeechError):
    """More blocks were asked for than are free. Callers reserve before they run, so this is a bug in a caller."""


@dataclass
class BlockTable:
    """The blocks one sequence holds. `first` is the number of its oldest block still held (windows move on)."""

    length: int = 0
    first: int = 0
    blocks: list[int] = field(default_factory=list)


class KVBlocks:
    """Keys and values of every layer, each `[layers, blocks, kv_heads, block_size, head_dim]`.

    Blocks start as zeros and must stay finite: masked positions have a weight of exactly 0, which would still spread
    a NaN. `blocks_at_once` is how many attention should gather in one go.
    """

    def __init__(
        self,
        *,
        layers: int,
        blocks: int,
        kv_heads: int,
        block_size: int,
        head_dim: int,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
    ):
        shape = (layers, blocks, kv_heads, block_size, head_dim)
        self.keys = torch.zeros(shape, dtype=dtype, device=device)
        self.values = torch.zeros(shape, dtype=dtype, device=device)
        self.block_size = block_size
        self.total = blocks
        gathered = GATHERED_ON_CPU if self.keys.device.type == "cpu" else GATHERED_ON_ACCELERATOR
        self.blocks_at_once = max(1, gathered // (kv_heads * block_size * head_dim))
        self._free = list(range(blocks - 1, -1, -1))

    @property
    def free(self) -> int:
        return len(self._free)

    def blocks_for(self, positions: int) -> int:
        return -(-positions // self.block_size)

    def extend(self, table: BlockTable, length: int) -> None:
        """Makes room for positions `0 .. length - 1`; raises OutOfBlocks and changes nothing if there is none."""
        missing = self.blocks_for(length) - table.first - len(table.blocks)
        if missing > self.free:
            raise OutOfBlocks(f"{missing} KV blocks wanted, {self.free} free")
        table.blocks.extend(self._free.pop() for _ in range(missing))

    def trim(self, table: BlockTable, oldest: int) -> None:
        """Returns the blocks that lie wholly before position `oldest`."""
        gone = min(max(oldest // self.block_size - table.first, 0), len(table.blocks))
        self._release(table.blocks[:gone])
        del table.blocks[:gone]
        table.first += gone

    def release(self, table: BlockTable, scrub: bool = False) -> None:
        """Returns every block of a sequence and empties its table.

        `scrub` zeroes them first. It is for sequences that did not end well: a NaN left behind would reach the
        next owner, since masked positions have weight 0 and 0 * NaN is NaN.
        """
        if scrub and table.blocks:
            self.keys[:, table.blocks] = 0
            self.values[:, table.blocks] = 0
        self._release(table.blocks)
        table.blocks, table.length, table.first = [], 0, 0

    def write(self, layer: int, blocks: Tensor, offsets: Tensor, keys: Tensor, values: Tensor) -> None:
        """Stores rows of keys and values `[rows, kv_heads, head_dim]` at (block, offset) of each row."""
        self.keys[layer][blocks, :, offsets] = keys
        self.values[layer][blocks, :, offsets] = values

    def _release(self, blocks: Iterable[int]) -> None:
        self._free.extend(blocks)
