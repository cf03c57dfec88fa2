"""A row's code is its own: whatever stands beside it, in whatever order, drawn however."""

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline import sampling
from pipeline.random_state import CounterState
from pipeline.request import SamplingParams
from pipeline.sampling import Draws, FilterParams, draw_codes, filtered_probabilities

NUM_DRAWS = 13
SEEDS = [0, 1, 2**32 - 1, 2**32, 2**63 - 1]

settings.register_profile("sampling", deadline=None, derandomize=True, max_examples=60)
SAMPLING = settings.get_profile("sampling")


@dataclass(frozen=True)
class Row:
    content: int
    coarse: bool
    """Logits on a grid: most of them tie, often more than fit a shortlist."""
    params: SamplingParams
    kind: str
    seed: int
    frame: int

    @property
    def state(self):
        if self.kind == "counter":
            return CounterState(self.seed, self.frame)
        return torch.Generator().manual_seed(self.seed) if self.kind == "generator" else None

    def logits(self, size):
        values = torch.randn(size, generator=torch.Generator().manual_seed(self.content)) * 3
        return values.round() if self.coarse else values

    def emitted(self, size):
        return torch.rand(size, generator=torch.Generator().manual_seed(self.content + 1)) < 0.05


PARAMS = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.3, 1.0, 1.7, 5.0]),
    top_p=st.sampled_from([0.0, 1e-6, 0.5, 0.8, 0.999, 1.0]),
    top_k=st.sampled_from([0, 1, 2, 25, 50, 63, 64, 65, 500, 2000]),
    repetition_penalty=st.sampled_from([1.0, 1.1, 1.5]),
)
SEEDED = st.sampled_from(["counter", "generator"])


def rows(kind):
    return st.builds(
        Row,
        content=st.integers(0, 2**31),
        coarse=st.booleans(),
        params=PARAMS,
        kind=kind,
        seed=st.sampled_from(SEEDS) | st.integers(0, 2**63 - 1),
        frame=st.integers(0, 4095),
    )


SIZES = st.sampled_from([2, 64, 65, 128, 1000, 1024])
INDICES = st.integers(0, NUM_DRAWS - 1)
NEIGHBOURS = st.lists(rows(st.sampled_from(["counter", "generator", "none"])), max_size=20)


def draw(batch, size, index):
    logits = torch.stack([row.logits(size) for row in batch])
    emitted = torch.stack([row.emitted(size) for row in batch])
    params = FilterParams.for_codes([row.params for row in batch])
    draws = Draws.from_states([row.state for row in batch], len(batch), NUM_DRAWS)
    return draw_codes(logits, params, emitted, draws, index)


@SAMPLING
@given(rows(SEEDED), NEIGHBOURS, st.integers(0, 20), SIZES, INDICES)
def test_a_seeded_row_draws_alone_what_it_draws_in_any_batch(row, neighbours, position, size, index):
    position = min(position, len(neighbours))
    batch = [*neighbours[:position], row, *neighbours[position:]]
    assert draw(batch, size, index)[position] == draw([row], size, index)[0]


@SAMPLING
@given(st.lists(rows(SEEDED), min_size=2, max_size=20), st.randoms(), SIZES, INDICES)
def test_order_does_not_matter(batch, random, size, index):
    order = list(range(len(batch)))
    random.shuffle(order)
    shuffled = draw([batch[place] for place in order], size, index)
    assert torch.equal(shuffled, draw(batch, size, index)[order])


@SAMPLING
@given(rows(SEEDED), NEIGHBOURS, SIZES)
def test_probabilities_have_the_same_bits_in_any_batch(row, neighbours, size):
    batch = [row, *neighbours]
    logits = torch.stack([each.logits(size) for each in batch])
    params = FilterParams.for_codes([each.params for each in batch])
    together = filtered_probabilities(logits, params)
    alone = filtered_probabilities(logits[:1], FilterParams.for_codes([row.params]))
    assert torch.equal(together[:1], alone)


@pytest.mark.parametrize("size", [128, 1000, 1024])
@pytest.mark.parametrize("count", [1, 16, 40])
def test_the_shortlist_changes_nothing_but_the_cost(monkeypatch, size, count):
    ladder = [1, 2, 25, 50, 63, 64, 65, 500, 0]
    batch = [
        Row(
            content=content,
            coarse=content % 3 == 0,
            params=SamplingParams(top_k=ladder[content % len(ladder)], top_p=1.0 if content % 2 else 0.8),
            kind="counter",
            seed=content,
            frame=0,
        )
        for content in range(count)
    ]
    logits = torch.stack([row.logits(size) for row in batch])
    params = FilterParams.for_codes([row.params for row in batch])
    short = [draw(batch, size, index) for index in range(NUM_DRAWS)]
    probabilities = filtered_probabilities(logits, params)
    monkeypatch.setattr(sampling, "_SHORTLISTS", (size,))
    assert torch.equal(filtered_probabilities(logits, params), probabilities)
    for index, codes in enumerate(short):
        assert torch.equal(codes, draw(batch, size, index))


def test_the_corner_seeds_differ_and_repeat():
    def codes(seed):
        row = Row(content=0, coarse=False, params=SamplingParams(), kind="counter", seed=seed, frame=0)
        return tuple(draw([row], 1024, index).item() for index in range(NUM_DRAWS))

    drawn = {seed: codes(seed) for seed in SEEDS}
    assert len(set(drawn.values())) == len(SEEDS)
    assert all(codes(seed) == drawn[seed] for seed in SEEDS)
