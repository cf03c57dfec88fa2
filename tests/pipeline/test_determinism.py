"""The promise of `batch_invariant`, byte by byte: no tolerance anywhere in this file."""

from itertools import pairwise

import pytest
import torch
from torch import nn

from pipeline.attention import Span
from pipeline.backbone import load_backbone
from pipeline.codec import CodecDecoder, CodecEncoder
from pipeline.config import CodecConfig, ModelConfig
from pipeline.depth import load_depth
from pipeline.determinism import (
    Determinism,
    NotInvariant,
    _frame_logits,
    choose_row_buckets,
    prove_backbone,
    prove_decoder,
    prove_depth,
    settle_backbone,
    settle_codec,
    settle_depth,
)
from pipeline.kv_blocks import BlockTable
from pipeline.row_buckets import RowBuckets
from tests.conftest import TINY

DTYPES = [torch.float32, torch.bfloat16]
MOST = 17


@pytest.fixture(scope="module", params=DTYPES, ids=["float32", "bfloat16"])
def settled(request):
    """Backbone, depth and decoder of one dtype, chosen and proven as a replica does it."""
    config, codec = ModelConfig.load(TINY / "tts"), CodecConfig.load(TINY / "codec")
    backbone = load_backbone(TINY / "tts", config, dtype=request.param)
    depth = load_depth(TINY / "tts", config, dtype=request.param)
    decoder = CodecDecoder.load(
        TINY / "codec", codec, dtype=request.param, max_streams=MOST, max_step_frames=8, n_vq=12
    )
    encoder = CodecEncoder.load(TINY / "codec", codec, dtype=request.param, max_step_frames=8)
    settle_backbone(backbone, Determinism.BATCH_INVARIANT, MOST, 64)
    settle_depth(depth, Determinism.BATCH_INVARIANT, MOST)
    settle_codec(decoder, encoder, Determinism.BATCH_INVARIANT)
    return backbone, depth, decoder, encoder


def rows_of(config, length, seed):
    generator = torch.Generator().manual_seed(seed)
    codes = [torch.randint(0, size + 1, (length,), generator=generator) for size in config.codebook_sizes]
    return torch.stack((torch.randint(0, 256, (length,), generator=generator), *codes), dim=1)


def new_tables(kv, lengths):
    tables = [BlockTable() for _ in lengths]
    for table, length in zip(tables, lengths, strict=True):
        kv.extend(table, length)
    return tables


def stored(kv, table, length):
    """Keys and values of a sequence in order, [2, layers, kv_heads, length, head_dim]."""
    return torch.stack([
        torch.cat([store[:, block] for block in table.blocks], dim=2)[:, :, :length] for store in (kv.keys, kv.values)
    ])  # fmt: skip


def test_prefill_equals_decode_in_hidden_states_and_kv(settled):
    backbone = settled[0]
    rows = rows_of(backbone.config, 75, seed=0)
    kv = backbone.new_kv_blocks(24, 16)
    whole, single, pieces = new_tables(kv, [75] * 3)
    at_once = backbone(rows, [Span(whole, 0, 75)], kv)
    one_by_one = torch.cat([backbone(rows[i : i + 1], [Span(single, i, 1)], kv) for i in range(75)])
    cuts = [0, 1, 31, 40, 75]
    in_pieces = torch.cat([backbone(rows[a:b], [Span(pieces, a, b - a)], kv) for a, b in pairwise(cuts)])
    assert torch.equal(at_once, one_by_one)
    assert torch.equal(at_once, in_pieces)
    expected = stored(kv, whole, 75)
    assert torch.equal(stored(kv, single, 75), expected)
    assert torch.equal(stored(kv, pieces, 75), expected)


def test_a_decode_step_is_the_same_at_every_batch_size_and_position(settled):
    backbone = settled[0]
    lengths = [3 + 11 * i % 70 for i in range(MOST)]
    prompts = [rows_of(backbone.config, length + 1, seed=i) for i, length in enumerate(lengths)]
    kv = backbone.new_kv_blocks(2 * MOST * 6, 16)
    tables = new_tables(kv, [length + 1 for length in lengths])
    for table, prompt in zip(tables, prompts, strict=True):
        backbone(prompt[:-1], [Span(table, 0, len(prompt) - 1)], kv)

    def step(members):
        spans = [Span(tables[i], lengths[i], 1) for i in members]
        return backbone(torch.stack([prompts[i][-1] for i in members]), spans, kv)

    alone = [step([i])[0] for i in range(MOST)]
    for size in range(1, MOST + 1):
        for shift in range(0, MOST, 5):
            members = [(shift + i) % MOST for i in range(size)]
            assert torch.equal(step(members), torch.stack([alone[i] for i in members]))


def test_frame_logits_are_the_same_at_every_batch_size_and_position(settled):
    depth = settled[1]
    generator = torch.Generator().manual_seed(1)
    hidden = torch.randn(MOST, depth.config.hidden_size, generator=generator).to(depth.dtype)
    codes = torch.randint(0, 128, (MOST, depth.config.n_vq), generator=generator)
    with torch.inference_mode():
        alone = torch.cat([_frame_logits(depth, hidden[i : i + 1], codes[i : i + 1]) for i in range(MOST)])
        for size in range(1, MOST + 1):
            for shift in range(0, MOST, 5):
                rows = [(shift + i) % MOST for i in range(size)]
                assert torch.equal(_frame_logits(depth, hidden[rows], codes[rows]), alone[rows])


def test_decoded_audio_is_the_same_for_every_number_of_streams(settled):
    decoder = settled[2]
    codes = torch.randint(0, 128, (MOST, 16, 12), generator=torch.Generator().manual_seed(2))
    alone = [decoder.decode_all(each) for each in codes]
    for count in range(1, MOST + 1):
        states = [decoder.open() for _ in range(count)]
        halves = [decoder.decode([(s, codes[i, a:b]) for i, s in enumerate(states)]) for a, b in ((0, 8), (8, 16))]
        for state in states:
            decoder.close(state)
        for i in range(count):
            assert torch.equal(torch.cat([half[i] for half in halves], dim=1), alone[i])


def test_the_relaxed_mode_computes_the_same_but_does_not_keep_the_promise(golden):
    config = ModelConfig.load(TINY / "tts")
    backbone = load_backbone(TINY / "tts", config, dtype=torch.float32)
    depth = load_depth(TINY / "tts", config, dtype=torch.float32)
    settle_backbone(backbone, Determinism.RELAXED, MOST, 64)
    settle_depth(depth, Determinism.RELAXED, MOST)
    rows = golden["backbone.rows"]
    kv = backbone.new_kv_blocks(8, 64)
    (table,) = new_tables(kv, [len(rows)])
    hidden = backbone(rows, [Span(table, 0, len(rows))], kv)
    torch.testing.assert_close(hidden, golden["backbone.hidden"], rtol=1e-4, atol=2e-5)
    assert not (prove_backbone(backbone, 64) and prove_depth(depth))


def test_the_relaxed_codec_computes_the_same(golden):
    codec = CodecConfig.load(TINY / "codec")
    decoder = CodecDecoder.load(TINY / "codec", codec, max_streams=2, max_step_frames=8, n_vq=12)
    encoder = CodecEncoder.load(TINY / "codec", codec, max_step_frames=8)
    settle_codec(decoder, encoder, Determinism.RELAXED)
    torch.testing.assert_close(decoder.decode_all(golden["codec.codes"]), golden["codec.audio"], rtol=1e-4, atol=2e-5)
    assert torch.equal(encoder.encode(golden["codec.encode.wav"], 12), golden["codec.encode.codes"])


def test_a_choice_is_one_that_agrees_and_none_is_an_error(monkeypatch):
    layer = nn.Linear(64, 64)
    chosen = choose_row_buckets([layer], 16)
    assert chosen.limit is None
    assert chosen.multiple <= 8
    monkeypatch.setattr("pipeline.determinism._agrees_at_multiples", lambda probe, multiple: multiple == 32)
    assert choose_row_buckets([layer], 16) == RowBuckets(32)
    monkeypatch.setattr("pipeline.determinism._agrees_at_multiples", lambda *_: False)
    assert choose_row_buckets([layer], 100) == RowBuckets(128, limit=128)
    monkeypatch.setattr("pipeline.determinism._agrees_at", lambda *_: False)
    with pytest.raises(NotInvariant, match="determinism: relaxed"):
        choose_row_buckets([layer], 16)


def test_one_fixed_row_count_keeps_the_promise_too(settled):
    """What a GPU or NPU uses, run here on the CPU."""
    backbone, depth, decoder, _ = settled
    kept = backbone.rows, depth.rows, decoder.stack.rows
    fixed = RowBuckets(32, limit=32)
    try:
        backbone.rows = RowBuckets(256, limit=256)
        depth.rows = decoder.stack.rows = fixed
        assert prove_backbone(backbone, 64)
        assert prove_depth(depth)
        assert prove_decoder(decoder)
    finally:
        backbone.rows, depth.rows, decoder.stack.rows = kept


def test_a_model_that_cannot_keep_the_promise_does_not_start():
    config = ModelConfig.load(TINY / "tts")
    depth = load_depth(TINY / "tts", config, dtype=torch.float32)

    def step(inputs, cache, codebook, step=depth.step):
        return step(inputs, cache, codebook) + len(inputs) * 1e-3

    depth.step = step
    with pytest.raises(NotInvariant, match="depth transformer"):
        settle_depth(depth, Determinism.BATCH_INVARIANT, MOST)
