"""Learning rates over a run."""

import math

WARMUP = 100
"""Steps."""


def cosine(step: int, steps: int, floor: float = 0.01) -> float:
    """Rises to 1 over WARMUP steps, then falls to `floor` along half a cosine (Loshchilov & Hutter 2017, "SGDR")."""
    if step < WARMUP:
        return (step + 1) / WARMUP
    progress = (step - WARMUP) / max(steps - WARMUP, 1)
    return floor + (1 - floor) * (1 + math.cos(math.pi * progress)) / 2
