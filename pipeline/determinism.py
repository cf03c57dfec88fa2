"""How a replica computes, chosen and proven on its own weights, device and dtype before it serves.

`batch_invariant`: a request has the same bits whatever is computed beside it. Products get row counts at which the
kernels agree (`choose_row_buckets`); then the whole module is run on random sequences, alone and mixed, in one go and
row by row, and the bits are compared. `relaxed`: fused kernels, no padding, no promise.
"""

import logging
from collections.abc import Iterable, Sequence
from enum import StrEnum

import torch
from torch import Tensor, nn

from pipeline.attention import Span
from pipeline.backbone import Backbone
from pipeline.codec import CodecDecoder, CodecEncoder
from pipeline.depth import DepthTransformer
from pipeline.errors import SpeechError
from pipeline.kv_blocks import BlockTable
from pipeline.packed_linear import Linear, linear_device, linear_dtype, pack_linears
from pipeline.row_buckets import RowBuckets

log = logging.getLogger(__name__)

MULTIPLES = (4, 8, 16, 32, 64)
FIXED = (32, 64, 128, 256, 512)
MOST_ROWS = 512
"""Counts up to this are tried. Kernels for more rows work in tiles of fewer; the proofs and tests run those as well."""
FACTORS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 16, 17, 24, 31, 32, 33, 48, 63, 64)
SEED = 20240


class Determinism(StrEnum):
    BATCH_INVARIANT = "batch_invariant"
    RELAXED = "relaxed"


class NotInvariant(SpeechError):
    """No choice gives a row the same bits in every batch; the message says where it fails and what can be done."""


def settle_backbone(backbone: Backbone, mode: Determinism, most_rows: int, block_size: int) -> None:
    """Makes the backbone compute in this mode, up to `most_rows` sequences in a step, over KV blocks of `block_size`.

    Raises NotInvariant where the promise cannot be kept.
    """
    pack_linears(backbone.transformer.layers)
    if mode is Determinism.RELAXED:
        backbone.relax()
        return
    backbone.rows = choose_row_buckets(linears(backbone.transformer.layers), most_rows)
    _require(prove_backbone(backbone, block_size), "backbone")
    _log("backbone", backbone.rows, backbone.dtype, backbone.device)


def settle_depth(depth: DepthTransformer, mode: Determinism, most_rows: int) -> None:
    """As `settle_backbone`, for the depth transformer and passes of up to `most_rows`."""
    pack_linears(depth)
    if mode is Determinism.RELAXED:
        depth.relax()
        return
    depth.rows = choose_row_buckets(linears(depth), most_rows)
    _require(prove_depth(depth), "depth transformer")
    _log("depth transformer", depth.rows, depth.dtype, depth.device)


def settle_codec(decoder: CodecDecoder, encoder: CodecEncoder, mode: Determinism) -> None:
    """As `settle_backbone`, for both halves of the codec. The encoder takes one clip at a time, so the shapes of its
    products depend on the clip alone and need no proof."""
    for half in (decoder, encoder):
        pack_linears(half.stack.modules)
    if mode is Determinism.RELAXED:
        decoder.stack.relax()
        encoder.stack.relax()
        return
    layers = [
        layer for half in (decoder, encoder) for layer in (*linears(half.stack.modules), *half.quantizer.linears())
    ]
    decoder.stack.rows = encoder.stack.rows = choose_row_buckets(layers, 1)
    _require(prove_decoder(decoder), "codec decoder")
    _log("codec", decoder.stack.rows, decoder.dtype, decoder.device)


def choose_row_buckets(layers: Iterable[Linear], most_rows: int) -> RowBuckets:
    """The smallest padding at which every one of these layers gives a row the same bits.

    On a CPU multiples of a few rows agree. Elsewhere kernels change with the row count, so there it is one count, of
    at least `most_rows`. Raises NotInvariant when none agrees.
    """
    probes = [_Probe(layer) for layer in {_kind(layer): layer for layer in layers}.values()]
    if all(probe.device.type == "cpu" for probe in probes):
        for multiple in MULTIPLES:
            if all(_agrees_at_multiples(probe, multiple) for probe in probes):
                return RowBuckets(multiple)
    for count in (each for each in FIXED if each >= most_rows):
        if all(_agrees_at(probe, count) for probe in probes):
            return RowBuckets(count, limit=count)
    shapes = sorted((probe.layer.in_features, probe.layer.out_features) for probe in probes)
    raise NotInvariant(
        f"no row count gives the same bits in every batch for layers of (in, out) sizes {shapes}; "
        "set determinism: relaxed to serve without the promise"
    )


def linears(module: nn.Module) -> list[Linear]:
    """Every product of rows with weights in the module."""
    return [layer for layer in module.modules() if isinstance(layer, Linear)]


def _kind(layer: Linear) -> tuple:
    """Layers of one kind run the same kernels."""
    return type(layer), layer.in_features, layer.out_features, linear_dtype(layer)


class _Probe:
    """A layer with random rows to try it on."""

    def __init__(self, layer: Linear):
        self.layer = layer
        self.dtype, self.device = linear_dtype(layer), linear_device(layer)

    def rows(self, count: int) -> Tensor:
        values = torch.randn(count, self.layer.in_features, generator=torch.Generator().manual_seed(SEED))
        return values.to(device=self.device, dtype=self.dtype)


@torch.inference_mode()
def _agrees_at_multiples(probe: _Probe, multiple: int) -> bool:
    rows, layer = probe.rows(MOST_ROWS), probe.layer
    whole = layer(rows)
    counts = {step * factor for step in (multiple, 8) for factor in FACTORS if step * factor <= MOST_ROWS}
    return _is_alike(probe, multiple) and all(
        torch.equal(layer(rows[:count]), whole[:count]) and torch.equal(layer(rows[-count:]), whole[-count:])
        for count in counts
        if count % multiple == 0
    )


@torch.inference_mode()
def _agrees_at(probe: _Probe, count: int) -> bool:
    """Whether a row's place among `count` rows, and what the others hold, leave its bits alone."""
    rows, layer = probe.rows(count), probe.layer
    whole = layer(rows)
    turned = layer(rows.roll(count // 3, 0)).roll(-(count // 3), 0)
    few = layer(torch.cat((rows[:1], torch.zeros_like(rows[1:]))))
    return _is_alike(probe, count) and torch.equal(turned, whole) and torch.equal(few[:1], whole[:1])


def _is_alike(probe: _Probe, count: int) -> bool:
    """Whether the same row gives the same bits at each of `count` places."""
    products = probe.layer(probe.rows(1).expand(count, -1).contiguous())
    return torch.equal(products, products[:1].expand_as(products))


def prove_backbone(backbone: Backbone, block_size: int) -> bool:
    """Three random sequences: prefilled alone, against fed in pieces of changing sizes, several in one call."""
    lengths = (2 * block_size + 6, 9, block_size + 1)
    vocabulary = backbone.config.backbone.vocab_size
    generator = torch.Generator().manual_seed(SEED)
    sequences = []
    for length in lengths:
        codes = [torch.randint(0, size, (length,), generator=generator) for size in backbone.config.codebook_sizes]
        text = torch.randint(0, vocabulary, (length,), generator=generator)
        sequences.append(torch.stack((text, *codes), dim=1))
    alone = [torch.cat(_feed(backbone, block_size, [rows], [(len(rows),)])[0]) for rows in sequences]
    mixed = _feed(backbone, block_size, sequences, [(1, 1, 6, 3), (1, 2, 1, 1), (17, 1, 1, 2)])
    return all(torch.equal(torch.cat(parts), whole) for parts, whole in zip(mixed, alone, strict=True))


def _feed(
    backbone: Backbone, block_size: int, sequences: Sequence[Tensor], sizes: Sequence[Sequence[int]]
) -> list[list[Tensor]]:
    """Hidden states of each sequence, fed `sizes` rows at a time in turn, all that have rows left in one call."""
    kv = backbone.new_kv_blocks(sum(-(-len(rows) // block_size) for rows in sequences), block_size)
    tables = [BlockTable() for _ in sequences]
    for table, rows in zip(tables, sequences, strict=True):
        kv.extend(table, len(rows))
    hidden: list[list[Tensor]] = [[] for _ in sequences]
    turn = 0
    while active := [i for i, rows in enumerate(sequences) if tables[i].length < len(rows)]:
        left = [len(sequences[i]) - tables[i].length for i in active]
        counts = [min(sizes[i][turn % len(sizes[i])], most) for i, most in zip(active, left, strict=True)]
        spans = [Span(tables[i], tables[i].length, count) for i, count in zip(active, counts, strict=True)]
        rows = torch.cat(
            [sequences[i][span.start : span.start + span.count] for i, span in zip(active, spans, strict=True)]
        )
        for i, part in zip(active, backbone(rows, spans, kv).split(counts), strict=True):
            hidden[i].append(part)
            tables[i].length += len(part)
        turn += 1
    return hidden


@torch.inference_mode()
def prove_depth(depth: DepthTransformer) -> bool:
    """Random rows with random codes fed back: all together, against every few of them in other orders."""
    config = depth.config
    rows = 2 * depth.rows.multiple + 3 if depth.rows.limit is None else depth.rows.limit
    generator = torch.Generator().manual_seed(SEED)
    hidden = torch.randn(rows, config.hidden_size, generator=generator).to(depth.device, depth.dtype)
    codes = torch.stack(
        [torch.randint(0, size, (rows,), generator=generator) for size in config.codebook_sizes], dim=1
    ).to(depth.device)
    whole = _frame_logits(depth, hidden, codes)
    order = torch.randperm(rows, generator=generator)
    subsets = [order[:count] for count in (1, 2, 3, 7, 8, 9, rows)]
    return all(torch.equal(_frame_logits(depth, hidden[s], codes[s]), whole[s]) for s in subsets)


def _frame_logits(depth: DepthTransformer, hidden: Tensor, codes: Tensor) -> Tensor:
    inputs = depth.rows.pad(hidden)
    cache = depth.new_cache(len(inputs))
    logits = []
    for codebook in range(depth.config.n_vq):
        outputs = depth.step(inputs, cache, codebook)
        if codebook == 0:
            logits.append(depth.stop_logits(outputs)[: len(hidden)])
        logits.append(depth.code_logits(outputs, codebook)[: len(hidden)])
        inputs = depth.rows.pad(depth.embed_code(codes[:, codebook], codebook))
    return torch.cat(logits, dim=1)


def prove_decoder(decoder: CodecDecoder) -> bool:
    """Two random streams: decoded alone and at once, against cut into other steps and run beside each other."""
    most = decoder.max_step_frames
    generator = torch.Generator().manual_seed(SEED)
    size = (2, 3 * most, decoder.n_vq)
    first, second = torch.randint(0, decoder.config.quantizer.codebook_size, size, generator=generator)
    alone = [decoder.decode_all(first), decoder.decode_all(second)]
    if decoder.stack.max_streams < 2:
        return torch.equal(_decode_in_steps(decoder, [first], [1])[0], alone[0])
    mixed = _decode_in_steps(decoder, [first, second], [1, max(1, most - 1)])
    return all(map(torch.equal, mixed, alone))


def _decode_in_steps(decoder: CodecDecoder, streams: Sequence[Tensor], sizes: Sequence[int]) -> list[Tensor]:
    states = [decoder.open() for _ in streams]
    parts: list[list[Tensor]] = [[] for _ in streams]
    while active := [i for i, state in enumerate(states) if state.frames < len(streams[i])]:
        steps = [(states[i], streams[i][states[i].frames :][: sizes[i]]) for i in active]
        for i, audio in zip(active, decoder.decode(steps), strict=True):
            parts[i].append(audio)
    for state in states:
        decoder.close(state)
    return [torch.cat(each, dim=1) for each in parts]


def _require(proven: bool, part: str) -> None:
    if not proven:
        raise NotInvariant(
            f"the {part} does not give a request the same bits alone and in a batch on this device, though its matrix "
            "products do; set determinism: relaxed to serve without the promise"
        )


def _log(part: str, rows: RowBuckets, dtype: torch.dtype, device: torch.device | str) -> None:
    log.info("%s: batch-invariant with %s, proven on %s in %s", part, rows, device, dtype)
