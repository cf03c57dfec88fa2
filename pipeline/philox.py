"""Philox4x32-10, a counter-based random function: the same integers on every device, and nothing to store.

Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", SC 2011 (the Random123 library).
"""

import torch

UNIFORM_BITS = 24
"""A float32 holds 24 bits exactly, so a uniform number carries no more."""

_ROUNDS = 10
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_LOW_32 = 0xFFFFFFFF


def philox4x32(counter: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """Random words of `counter` under `key`: int64 `[..., 4]` and `[..., 2]` to int64 `[..., 4]`.

    All values are unsigned 32-bit words held in int64; the leading shapes broadcast.
    """
    c0, c1, c2, c3 = torch.broadcast_tensors(*counter.unbind(-1), key[..., 0])[:4]
    return torch.stack(_rounds(torch.stack((c0, c2)), torch.stack((c1, c3)), key.unbind(-1)), dim=-1)


def uniform_bits(seeds: torch.Tensor, frames: torch.Tensor, draws: int) -> torch.Tensor:
    """Uniform integers in [0, 2**24), int64 `[B, draws]`, from `seeds` and `frames`, int64 `[B]`.

    Draw d of a row is the high 24 bits of word 0 at counter (d, frame, 0, 0) and key (low 32, high 32 bits of
    the seed): a function of (seed, frame, d) alone. One vectorised evaluation, which a graph can capture.
    """
    draw = torch.arange(draws, device=seeds.device).expand(seeds.shape[0], draws)
    frame = frames[:, None].expand_as(draw)
    zero = torch.zeros_like(draw)
    low, high = seeds[:, None] & _LOW_32, seeds[:, None] >> 32
    word = _rounds(torch.stack((draw, zero)), torch.stack((frame, zero)), (low, high))[0]
    return word >> (32 - UNIFORM_BITS)


def _rounds(even: torch.Tensor, odd: torch.Tensor, key: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """The four output words, each `[...]`; words (0, 2) and (1, 3) come stacked, `[2, ...]`.

    int64 keeps the low 64 bits of a product, which are all the bits that two 32-bit words have.
    """
    multipliers = _column(_MULTIPLIERS, even)
    key_steps = _column(_KEY_STEPS, even)
    round_key = torch.stack(torch.broadcast_tensors(*key, even[0])[:2])
    for _ in range(_ROUNDS):
        product = (even * multipliers).flip(0)
        even, odd = product >> 32 & _LOW_32 ^ odd ^ round_key, product & _LOW_32
        round_key = round_key + key_steps & _LOW_32
    return even[0], odd[0], even[1], odd[1]


def _column(words: tuple[int, int], like: torch.Tensor) -> torch.Tensor:
    """int64 `[2, 1, ...]`, filled on the device: a copy from the host could not be captured in a graph."""
    shape = [1] * (like.dim() - 1)
    return torch.stack([torch.full(shape, word, dtype=torch.int64, device=like.device) for word in words])
