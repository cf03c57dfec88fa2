import pytest
import torch
from torch import nn

from pipeline.determinism import choose_row_buckets, linears
from pipeline.packed_linear import PackedLinear, pack_linears


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("bias", [True, False])
def test_a_packed_layer_computes_what_the_plain_one_does(dtype, tolerance, bias):
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(512, 768, bias=bias).to(dtype)).requires_grad_(False)
    rows = torch.randn(1, 24, 512).to(dtype)
    expected = plain(rows)
    pack_linears(plain)
    assert isinstance(plain[0], PackedLinear)
    torch.testing.assert_close(plain(rows), expected, rtol=tolerance, atol=tolerance)


def test_small_layers_stay_as_they_are():
    module = nn.Sequential(nn.Linear(64, 64))
    pack_linears(module)
    assert type(module[0]) is nn.Linear


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_packed_layers_give_a_row_the_same_bits_at_the_row_counts_that_are_chosen(dtype):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(1024, 512).to(dtype)).requires_grad_(False)
    pack_linears(module)
    buckets = choose_row_buckets(linears(module), 8)
    rows = torch.randn(100, 1024).to(dtype)
    whole = module(buckets.pad(rows))[:100]
    for start, count in ((0, 1), (3, 1), (7, 5), (50, 33), (99, 1), (0, 100)):
        assert torch.equal(module(buckets.pad(rows[start : start + count]))[:count], whole[start : start + count])
