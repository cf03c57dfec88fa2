import numpy as np
import pytest
import torch

from pipeline.kv_blocks import BlockTable, KVBlocks, OutOfBlocks, prefix_keys


@pytest.fixture
def kv():
    return KVBlocks(layers=1, blocks=4, kv_heads=1, block_size=2, head_dim=1, dtype=torch.float32)


def held(kv, length):
    table = BlockTable()
    kv.extend(table, length)
    table.length = length
    return table


def test_keys_stand_for_all_rows_up_to_the_end_of_their_block():
    rows = np.arange(21).reshape(7, 3)
    keys = prefix_keys(rows, 2)
    assert len(keys) == len(set(keys)) == 3
    assert prefix_keys(rows[:5], 2) == keys[:2]
    other = rows.copy()
    other[1, 2] += 1
    assert not set(prefix_keys(other, 2)) & set(keys)
    other = rows.copy()
    other[3, 0] += 1
    assert prefix_keys(other, 2)[0] == keys[0]
    assert not set(prefix_keys(other, 2)[1:]) & set(keys)
    assert prefix_keys(rows[:1], 2) == []


def test_published_blocks_are_held_together_and_found_after_all_have_left(kv):
    first = held(kv, 5)
    kv.publish(first, [b"1", b"2"])
    second = BlockTable()
    kv.find(second, [b"1", b"2", b"3"])
    assert second.blocks == first.blocks[:2]
    assert second.length == 4
    kv.extend(second, 6)
    assert kv.free == 0
    shared = first.blocks[:2]
    kv.release(first)
    assert kv.free == 1
    kv.release(second)
    assert kv.free == kv.total
    third = BlockTable()
    kv.find(third, [b"1", b"2"])
    assert third.blocks == shared
    assert kv.free == 2


def test_the_first_missing_key_ends_the_search(kv):
    kv.publish(held(kv, 4), [b"1", b"2"])
    table = BlockTable()
    kv.find(table, [b"0", b"2"])
    assert (table.blocks, table.length) == ([], 0)
    kv.find(table, [b"1", b"0", b"2"])
    assert table.length == 2


def test_room_is_made_by_forgetting_what_was_unused_the_longest(kv):
    for key in (b"a", b"b"):
        table = held(kv, 2)
        kv.publish(table, [key])
        kv.release(table)
    again = BlockTable()
    kv.find(again, [b"a"])
    kv.release(again)
    held(kv, 6)  # two that were never published, and one of the two that were
    found = {}
    for key in (b"a", b"b"):
        found[key] = BlockTable()
        kv.find(found[key], [key])
    assert found[b"a"].length == 2
    assert found[b"b"].length == 0
    with pytest.raises(OutOfBlocks):
        kv.extend(BlockTable(), 2)


def test_scrubbing_leaves_published_blocks_alone(kv):
    table = held(kv, 4)
    kv.keys.fill_(1)
    kv.values.fill_(1)
    published, own = table.blocks
    kv.publish(table, [b"1"])
    kv.release(table, scrub=True)
    assert kv.keys[0, published].sum() == 2
    assert kv.keys[0, own].sum() == kv.values[0, own].sum() == 0


def test_two_that_computed_the_same_block_publish_one_of_them(kv):
    first, second = held(kv, 2), held(kv, 2)
    kv.publish(first, [b"1"])
    kv.publish(second, [b"1"])
    table = BlockTable()
    kv.find(table, [b"1"])
    assert table.blocks == first.blocks
    for each in (first, second, table):
        kv.release(each)
    assert kv.free == kv.total
