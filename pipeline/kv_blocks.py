"""Paged key/value storage: blocks of a fixed number of positions, lent to sequences and returned at once.

Blocks with the beginning of a prompt can be published under a key of all rows up to their end. Sequences that begin
alike then hold them together, and they stay to be found again until the room is needed. As a row's bits depend on the
rows before it alone, a found block is the one that would have been computed.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
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
        self._holders = [0] * blocks
        self._published: dict[bytes, int] = {}
        self._keys: dict[int, bytes] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()
        """Published blocks that nobody holds, the longest unused first: free, unless found before they are taken."""

    @property
    def free(self) -> int:
        return len(self._free) + len(self._idle)

    @property
    def bytes_in_use(self) -> int:
        """Of keys and values in blocks that sequences hold."""
        return (self.total - self.free) * 2 * self.keys[:, 0].nbytes

    def blocks_for(self, positions: int) -> int:
        return -(-positions // self.block_size)

    def extend(self, table: BlockTable, length: int) -> None:
        """Makes room for positions `0 .. length - 1`; raises OutOfBlocks and changes nothing if there is none."""
        missing = self.blocks_for(length) - table.first - len(table.blocks)
        if missing > self.free:
            raise OutOfBlocks(f"{missing} KV blocks wanted, {self.free} free")
        table.blocks.extend(self._take() for _ in range(missing))

    def find(self, table: BlockTable, keys: Sequence[bytes]) -> None:
        """Gives an empty table the published blocks of as many of its first blocks' keys as there are in a row."""
        for block in map(self._published.get, keys):
            if block is None:
                break
            self._holders[block] += 1
            self._idle.pop(block, None)
            table.blocks.append(block)
        table.length = len(table.blocks) * self.block_size

    def publish(self, table: BlockTable, keys: Sequence[bytes]) -> None:
        """Lets others find the first blocks of a sequence. They must be complete, and all in them finite."""
        for block, key in zip(table.blocks, keys, strict=False):
            if key not in self._published and block not in self._keys:
                self._published[key], self._keys[block] = block, key

    def trim(self, table: BlockTable, oldest: int) -> None:
        """Returns the blocks that lie wholly before position `oldest`."""
        gone = min(max(oldest // self.block_size - table.first, 0), len(table.blocks))
        self._release(table.blocks[:gone])
        del table.blocks[:gone]
        table.first += gone

    def release(self, table: BlockTable, scrub: bool = False) -> None:
        """Returns every block of a sequence and empties its table.

        `scrub` zeroes its own first. It is for sequences that did not end well: a NaN left behind would reach the
        next owner, since masked positions have weight 0 and 0 * NaN is NaN.
        """
        own = [block for block in table.blocks if block not in self._keys]
        if scrub and own:
            self.keys[:, own] = 0
            self.values[:, own] = 0
        self._release(table.blocks)
        table.blocks, table.length, table.first = [], 0, 0

    def write(self, layer: int, blocks: Tensor, offsets: Tensor, keys: Tensor, values: Tensor) -> None:
        """Stores rows of keys and values `[rows, kv_heads, head_dim]` at (block, offset) of each row."""
        self.keys[layer][blocks, :, offsets] = keys
        self.values[layer][blocks, :, offsets] = values

    def _take(self) -> int:
        if self._free:
            block = self._free.pop()
        else:
            block, _ = self._idle.popitem(last=False)
            del self._published[self._keys.pop(block)]
        self._holders[block] = 1
        return block

    def _release(self, blocks: Iterable[int]) -> None:
        for block in blocks:
            self._holders[block] -= 1
            if self._holders[block]:
                continue
            if block in self._keys:
                self._idle[block] = None
            else:
                self._free.append(block)


def prefix_keys(rows: np.ndarray, block_size: int) -> list[bytes]:
    """A key for each full block of `rows` that stands for all rows up to its end."""
    digest, keys = hashlib.sha256(), []
    for end in range(block_size, len(rows) + 1, block_size):
        digest.update(np.ascontiguousarray(rows[end - block_size : end]).tobytes())
        keys.append(digest.digest())
    return keys
