"""Where a stream of codec frames is cut: by frame index alone, so that timing can never reach the audio."""

from collections.abc import Iterator
from itertools import chain, repeat

FIRST_SIZES = (1, 1, 2, 4)
"""Small first, for an early start; each chunk then plays long enough to make the next one."""
SIZE = 8


def chunk_ends(after: int = 0) -> Iterator[int]:
    """Frame counts beyond `after` at which a chunk ends: 1, 2, 4, 8, 16, 24, .."""
    end = 0
    for size in chain(FIRST_SIZES, repeat(SIZE)):
        end += size
        if end > after:
            yield end
