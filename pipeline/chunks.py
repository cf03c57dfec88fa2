"""Where a stream of codec frames is cut: by frame index alone, so that timing can never reach the audio."""

from collections.abc import Iterator

FIRST_SIZES = (1, 1, 2, 4)
"""Small first, for an early start; each chunk then plays long enough to make the next one."""
SIZE = 8


def chunk_ends() -> Iterator[int]:
    """Frame counts at which a chunk ends: 1, 2, 4, 8, 16, 24, .."""
    end = 0
    for size in FIRST_SIZES:
        end += size
        yield end
    while True:
        end += SIZE
        yield end
