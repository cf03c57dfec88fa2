import pytest
import torch
from torch.nn import functional as F

from pipeline.attention import Span, attend, plan_attention
from pipeline.kv_blocks import BlockTable, KVBlocks, OutOfBlocks

HEADS, KV_HEADS, SIZE, BLOCK = 8, 2, 16, 16


def storage(dtype=torch.float32, blocks=64):
    return KVBlocks(layers=1, blocks=blocks, kv_heads=KV_HEADS, block_size=BLOCK, head_dim=SIZE, dtype=dtype)


def sequence(seed, length, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(length, HEADS, SIZE, generator=generator).to(dtype),
        torch.randn(length, KV_HEADS, SIZE, generator=generator).to(dtype),
        torch.randn(length, KV_HEADS, SIZE, generator=generator).to(dtype),
    )


def step(kv, members, tile=1, window=None):
    """One call for several (table, (q, k, v), count): returns the outputs of each member."""
    spans = []
    for table, _, count in members:
        kv.extend(table, table.length + count)
        spans.append(Span(table, table.length, count))
    rows = [[t[s.start : s.start + s.count] for t in qkv] for s, (_, qkv, _) in zip(spans, members, strict=True)]
    plan = plan_attention(spans, kv, tile=tile, window=window)
    out = attend(*(torch.cat(column) for column in zip(*rows, strict=True)), kv, 0, plan)
    for table, _, count in members:
        table.length += count
        if window:
            kv.trim(table, table.length - window)
    return out.split([count for _, _, count in members])


def alone(qkv, length, tile=1, window=None):
    return step(storage(qkv[1].dtype), [(BlockTable(), qkv, length)], tile, window)[0]


@pytest.mark.parametrize("window", [None, 24])
def test_agrees_with_torch_attention(window):
    q, k, v = sequence(0, 80)
    position = torch.arange(80)
    ahead = position[:, None] - position[None]
    mask = (ahead >= 0) & (ahead < (window or 80))
    expected = F.scaled_dot_product_attention(
        *(t.transpose(0, 1)[None] for t in (q, k, v)), attn_mask=mask, enable_gqa=True
    )[0].transpose(0, 1)
    torch.testing.assert_close(alone((q, k, v), 80, tile=4, window=window), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_prefill_equals_decode_bit_for_bit(dtype):
    qkv = sequence(1, 90, dtype)
    kv, table = storage(dtype), BlockTable()
    rows = torch.cat([step(kv, [(table, qkv, 1)])[0] for _ in range(90)])
    assert torch.equal(rows, alone(qkv, 90))


@pytest.mark.parametrize("window", [None, 24])
def test_any_cut_and_any_neighbours_give_the_same_bits(window):
    first, second = sequence(2, 96), sequence(3, 96)
    kv = storage()
    tables = BlockTable(), BlockTable()
    got = ([], [])
    for a, b in [(8, 0), (4, 32), (20, 4), (0, 12), (32, 8), (32, 40)]:
        members = [(t, s, n) for t, s, n in ((tables[0], first, a), (tables[1], second, b)) if n]
        outputs = iter(step(kv, members, tile=4, window=window))
        for kept, count in zip(got, (a, b), strict=True):
            if count:
                kept.append(next(outputs))
    assert torch.equal(torch.cat(got[0]), alone(first, 96, tile=4, window=window))
    assert torch.equal(torch.cat(got[1]), alone(second, 96, tile=4, window=window))


def test_blocks_reused_in_another_order_give_the_same_bits():
    qkv, other = sequence(4, 60), sequence(5, 60)
    kv = storage(blocks=8)
    used = BlockTable(), BlockTable()
    for table in used:
        step(kv, [(table, other, 60)])
    kv.release(used[0])
    kv.release(used[1])
    assert torch.equal(step(kv, [(BlockTable(), qkv, 60)])[0], alone(qkv, 60))


def test_a_long_prefill_in_groups_of_pairs_gives_the_same_bits():
    qkv, kv = sequence(6, 100), storage()
    kv.blocks_at_once = 10
    assert torch.equal(step(kv, [(BlockTable(), qkv, 100)])[0], alone(qkv, 100))


def test_a_sequence_that_went_wrong_leaves_nothing_to_the_next_owner_of_its_blocks():
    qkv, kv, table = sequence(8, 60), storage(blocks=4), BlockTable()
    step(kv, [(table, tuple(t * float("nan") for t in qkv), 60)])
    kv.release(table, scrub=True)
    assert torch.equal(step(kv, [(BlockTable(), qkv, 60)])[0], alone(qkv, 60))


def test_blocks_return_when_the_window_moves_on_and_at_release():
    kv, table, qkv = storage(blocks=6), BlockTable(), sequence(7, 400)
    for _ in range(100):
        step(kv, [(table, qkv, 4)], tile=4, window=24)
        assert len(table.blocks) <= 3
    kv.release(table)
    assert kv.free == 6


def test_asking_for_more_blocks_than_are_free_changes_nothing():
    kv, table = storage(blocks=2), BlockTable()
    with pytest.raises(OutOfBlocks):
        kv.extend(table, 3 * BLOCK)
    assert kv.free == 2
    assert table.blocks == []
