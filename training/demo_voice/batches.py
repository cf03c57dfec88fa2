"""Which utterances each training step sees."""

import numpy as np


def plan_batches(lengths: np.ndarray, rows: int, steps: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Indices of the examples of each step, of about `rows` rows; in one batch they have about the same length.

    The first pass over the corpus goes from short to long utterances: alignment is learned on short ones. Every later
    pass is in random order.
    """
    plan: list[np.ndarray] = []
    while len(plan) < steps:
        order = np.argsort(lengths * rng.uniform(0.95, 1.05, len(lengths)))
        batches = _cut(order, lengths, rows)
        plan += batches if not plan else [batches[index] for index in rng.permutation(len(batches))]
    return plan[:steps]


def _cut(order: np.ndarray, lengths: np.ndarray, rows: int) -> list[np.ndarray]:
    batches, start = [], 0
    while start < len(order):
        stop, longest = start, 0
        while stop < len(order) and (stop == start or max(longest, lengths[order[stop]]) * (stop - start + 1) <= rows):
            longest = max(longest, lengths[order[stop]])
            stop += 1
        batches.append(order[start:stop])
        start = stop
    return batches
