"""Reads safetensors checkpoints into modules built on the meta device, never holding the weights twice."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import nn

from pipeline.config import CodecConfig, ModelConfig
from pipeline.errors import CheckpointError
from pipeline.layout import (
    WEIGHT_DIRECTION,
    WEIGHT_GAIN,
    Shape,
    check_names,
    codec_layout,
    current_codec_name,
    tts_layout,
    tts_optional,
    tts_ties,
)
from pipeline.safetensors_files import StoredTensor, open_file, weight_files

_KEY_BYTES = 2**20


def open_tts(directory: Path | str, config: ModelConfig) -> "Checkpoint":
    """Opens a text-to-speech checkpoint; raises CheckpointError unless names and shapes fit `config`."""
    checkpoint = Checkpoint(directory, ties=tts_ties(config))
    check_names(
        checkpoint.names,
        tts_layout(config),
        optional=tts_optional(config) | checkpoint.rebuilt.keys(),
        where=str(directory),
    )
    return checkpoint


def open_codec(directory: Path | str, config: CodecConfig) -> "Checkpoint":
    """Opens a codec checkpoint, older names included; raises CheckpointError unless it fits `config`."""
    checkpoint = Checkpoint(directory, rename=current_codec_name)
    check_names(checkpoint.names, codec_layout(config), where=str(directory))
    return checkpoint


def codec_key(directory: Path | str) -> str:
    """Tells codecs apart whose codes mean different things: by their configuration, and their weights' files.

    Of each file it reads the beginning, which holds names, shapes and the first weights.
    """
    digest = hashlib.sha256()
    for path in sorted(Path(directory).iterdir()):
        if path.suffix in (".json", ".safetensors"):
            digest.update(f"{path.name} {path.stat().st_size} ".encode())
            with path.open("rb") as file:
                digest.update(file.read(_KEY_BYTES))
    return digest.hexdigest()


def load_module(
    module: nn.Module,
    checkpoint: "Checkpoint",
    names: str | Callable[[str], str] = "",
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
) -> None:
    """Fills, in place, every parameter and persistent buffer of `module` that is still on the meta device.

    `names` turns a name in the module into a name in the checkpoint; a string is a prefix. A weight-normed
    weight is read under its plain name (`P.weight`), folded. Tied weights of equal bytes share their storage.
    `dtype` None keeps what is on disk. Gradients are switched off: weights only serve here.
    Raises CheckpointError naming every tensor the checkpoint lacks or has in another shape, and every
    non-persistent buffer left on the meta device: those are for the module's own code to compute.
    """
    name_of = names if callable(names) else lambda name: names + name
    targets = {name: tensor for name, tensor in module.state_dict().items() if tensor.is_meta}
    wanted = {name_of(name): tuple(tensor.shape) for name, tensor in targets.items()}
    found = {name: shape for name in wanted if (shape := checkpoint.shape(name)) is not None}
    check_names(found, wanted, where=f"{checkpoint.directory} (for {type(module).__name__})")
    loaded: dict[str, torch.Tensor] = {}
    state = {}
    for name in targets:
        source = checkpoint.canonical(name_of(name))
        if source not in loaded:
            loaded[source] = checkpoint.read(source, dtype, device)
        state[name] = loaded[source]
    module.requires_grad_(False)
    module.load_state_dict(state, strict=False, assign=True)
    left = [name for name, buffer in module.named_buffers() if buffer.is_meta]
    if left:
        raise CheckpointError(
            f"{type(module).__name__} still has buffers on the meta device that no checkpoint holds; "
            f"compute them before loading: {', '.join(sorted(left))}"
        )


class Checkpoint:
    """The tensors of one directory by name, in one file or in shards. Opening it reads headers only.

    `rename` turns a stored name into the published one. `ties` maps a name to the one it shares its data
    with; if the files leave out one of the two, it is read from the other.

    A tensor read to the CPU in its stored dtype is a view of the mapped file: do not write to it, and do not
    overwrite the file meanwhile. Raises CheckpointError naming the file and what to do about it.
    """

    def __init__(
        self,
        directory: Path | str,
        rename: Callable[[str], str] = lambda name: name,
        ties: Mapping[str, str] | None = None,
    ):
        self.directory = Path(directory)
        self._tensors: dict[str, StoredTensor] = {}
        for path in weight_files(self.directory):
            for stored, tensor in open_file(path).items():
                name = rename(stored)
                if name in self._tensors:
                    raise CheckpointError(f"{path}: {stored!r} is a second tensor for {name!r}; remove one")
                self._tensors[name] = tensor
        self._ties = dict(ties or {})
        twins = [*self._ties.items(), *((tied, head) for head, tied in self._ties.items())]
        self.rebuilt = {name: twin for name, twin in twins if name not in self._tensors and twin in self._tensors}
        """Tied name the files leave out -> stored name it is read from."""

    @property
    def names(self) -> dict[str, Shape]:
        """Published name -> shape of every tensor stored in the files."""
        return {name: tensor.shape for name, tensor in self._tensors.items()}

    def shape(self, name: str) -> Shape | None:
        """Shape of what `read(name)` returns; None if the checkpoint has no such tensor."""
        if self._is_weight_norm(name):
            return self._stored(_sibling(name, WEIGHT_DIRECTION)).shape[:-1]
        tensor = self._tensors.get(self.rebuilt.get(name, name))
        return tensor.shape if tensor else None

    def canonical(self, name: str) -> str:
        """The name to read `name` from so that tied tensors of equal bytes are read once."""
        tied = self._ties.get(name)
        if name in self._tensors and tied in self._tensors:
            return tied if self._tensors[name].same_bytes(self._tensors[tied]) else name
        return self.rebuilt.get(name, name)

    def read(self, name: str, dtype: torch.dtype | None = None, device: torch.device | str = "cpu") -> torch.Tensor:
        """One tensor; `dtype` None keeps the stored one. `P.weight` is folded if P is weight-normed."""
        if self._is_weight_norm(name):
            return self.read_weight_norm(name.removesuffix(".weight"), dtype or torch.float32, device)
        return self._stored(name).read(dtype, device)

    def read_rows(
        self,
        name: str,
        rows: Sequence[int],
        dtype: torch.dtype | None = None,
        device: torch.device | str = "cpu",
    ) -> torch.Tensor:
        """`read(name)[rows]`, [len(rows), ...], touching just those rows of the file."""
        stored = self._stored(name)
        if not all(0 <= row < stored.shape[0] for row in rows):
            raise CheckpointError(f"{stored.path}: {name} has {stored.shape[0]} rows, wanted {list(rows)}")
        return stored.view()[list(rows)].to(device=device, dtype=dtype or stored.dtype)

    def read_weight_norm(
        self, prefix: str, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
    ) -> torch.Tensor:
        """Weight of a weight-normed 1x1 convolution as a Linear weight [out, in].

        `g * v / ||v||` with the norm over all but dimension 0 (Salimans & Kingma 2016, as in
        `torch.nn.utils.parametrizations.weight_norm`), computed in float32 on the CPU.
        """
        gain = self.read(f"{prefix}.{WEIGHT_GAIN}", torch.float32)
        direction = self.read(f"{prefix}.{WEIGHT_DIRECTION}", torch.float32)
        norm = torch.linalg.vector_norm(direction, dim=tuple(range(1, direction.dim())), keepdim=True)
        return (direction * (gain / norm)).squeeze(-1).to(device=device, dtype=dtype)

    def _is_weight_norm(self, name: str) -> bool:
        return name.endswith(".weight") and _sibling(name, WEIGHT_DIRECTION) in self._tensors

    def _stored(self, name: str) -> StoredTensor:
        tensor = self._tensors.get(self.rebuilt.get(name, name))
        if tensor is None:
            raise CheckpointError(f"{self.directory} holds no tensor {name}")
        return tensor


def _sibling(weight: str, leaf: str) -> str:
    return f"{weight.removesuffix('.weight')}.{leaf}"
