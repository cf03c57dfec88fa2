"""Where the tensors of a checkpoint directory lie in its safetensors files. Opening reads headers only."""

import json
import mmap
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from pipeline.errors import CheckpointError

_DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_COPY_AGAIN = "copy or download it again"


@dataclass(frozen=True)
class StoredTensor:
    """One tensor of a mapped file: bytes `start` to `stop`."""

    path: Path
    mapping: mmap.mmap
    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    stop: int

    def view(self) -> torch.Tensor:
        """The tensor over the file's pages, read when used; writing to it never reaches the file."""
        count = (self.stop - self.start) // self.dtype.itemsize
        flat = torch.frombuffer(self.mapping, dtype=self.dtype, count=count, offset=self.start)
        return flat.view(self.shape)

    def read(self, dtype: torch.dtype | None, device: torch.device | str) -> torch.Tensor:
        """`view()` if dtype (None: as stored) and device allow, else a copy that leaves no pages behind."""
        view = self.view()
        tensor = view.to(device=device, dtype=dtype or self.dtype)
        if tensor is not view:
            self._drop_pages()
        return tensor

    def same_bytes(self, other: "StoredTensor") -> bool:
        """Whether both have one dtype, shape and content, bit for bit."""
        if (self.dtype, self.shape) != (other.dtype, other.shape):
            return False
        same = torch.equal(self.view().view(torch.uint8), other.view().view(torch.uint8))
        self._drop_pages()
        other._drop_pages()
        return same

    def _drop_pages(self) -> None:
        """Gives back the file's pages that lie whole inside this tensor, else they count as a second copy."""
        first = -(-self.start // mmap.PAGESIZE) * mmap.PAGESIZE
        last = self.stop // mmap.PAGESIZE * mmap.PAGESIZE
        if last > first:
            self.mapping.madvise(mmap.MADV_DONTNEED, first, last - first)


def weight_files(directory: Path) -> list[Path]:
    """`model.safetensors`, else the shards its index names, else every `*.safetensors`."""
    single = directory / "model.safetensors"
    index = directory / "model.safetensors.index.json"
    if single.exists():
        return [single]
    if index.exists():
        return _indexed_files(index)
    files = sorted(directory.glob("*.safetensors"))
    if not files:
        raise CheckpointError(f"{directory} holds no *.safetensors file; point to a downloaded checkpoint")
    return files


def open_file(path: Path) -> dict[str, StoredTensor]:
    """Stored name -> tensor of one file. Raises CheckpointError if the file is not whole."""
    try:
        with safe_open(path, framework="pt"):
            pass
    except (SafetensorError, OSError) as error:
        message = f"{path} is truncated or no safetensors file ({error}); {_COPY_AGAIN}"
        raise CheckpointError(message) from error
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        # Copy on write: torch.frombuffer wants writable memory, the file stays as it is.
        mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    header.pop("__metadata__", None)
    other = sorted(f"{name} ({entry['dtype']})" for name, entry in header.items() if entry["dtype"] not in _DTYPES)
    if other:
        raise CheckpointError(f"{path} holds tensors that are not of a plain float type: {', '.join(other)}")
    return {
        name: StoredTensor(
            path=path,
            mapping=mapping,
            dtype=_DTYPES[entry["dtype"]],
            shape=tuple(entry["shape"]),
            start=8 + length + entry["data_offsets"][0],
            stop=8 + length + entry["data_offsets"][1],
        )
        for name, entry in header.items()
    }


def _indexed_files(index: Path) -> list[Path]:
    try:
        shards = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{index} is not a safetensors index ({error!r}); {_COPY_AGAIN}") from error
    missing = [shard for shard in shards if not (index.parent / shard).exists()]
    if missing:
        raise CheckpointError(f"{index} names files that are missing; download them: {', '.join(missing)}")
    return [index.parent / shard for shard in shards]
