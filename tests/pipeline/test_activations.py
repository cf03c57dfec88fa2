import pytest
import torch
from torch.nn import functional as F

from pipeline.activations import ExactGELU, ExactSiLU


def every_bfloat16():
    values = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    return values[torch.isfinite(values)]


@pytest.mark.parametrize("activation", [ExactSiLU(), ExactGELU()])
def test_every_bfloat16_gives_the_same_wherever_it_lies(activation):
    values = every_bfloat16()
    whole = activation(values)
    for size in (1, 7, 31, 37):
        parts = [activation(part) for part in values[: 37 * 200].split(size)]
        assert torch.equal(torch.cat(parts), whole[: 37 * 200])
    assert torch.equal(activation(values.flip(0)).flip(0), whole)
    assert torch.equal(torch.stack([activation(value) for value in values[::61]]), whole[::61])


@pytest.mark.parametrize(("activation", "expected"), [(ExactSiLU(), F.silu), (ExactGELU(), F.gelu)])
def test_float32_is_the_same_wherever_it_lies_and_agrees_with_torch(activation, expected):
    values = torch.linspace(-30, 30, 10_007)
    whole = activation(values)
    torch.testing.assert_close(whole, expected(values.double()).float(), rtol=2e-6, atol=1e-7)
    for size in (1, 5, 33, 100):
        assert torch.equal(torch.cat([activation(part) for part in values.split(size)]), whole)
    assert torch.equal(values, torch.linspace(-30, 30, 10_007))
