import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file

from pipeline.codec import CodecDecoder, CodecEncoder, StreamError
from pipeline.codec.patch import fold, unfold
from pipeline.config import CodecConfig
from pipeline.errors import CheckpointError, InvalidRequest
from pipeline.layout import codec_layout
from tests.conftest import TINY

CODEC = TINY / "codec"
CONFIG = CodecConfig.load(CODEC)
MAX_STEP = 6
DTYPES = [torch.float32, torch.bfloat16]


def load_decoder(directory=CODEC, config=CONFIG, **options):
    options = {"max_streams": 4, "max_step_frames": MAX_STEP, "n_vq": 12} | options
    return CodecDecoder.load(directory, config, **options)


@pytest.fixture(scope="module")
def decoders():
    return {dtype: load_decoder(dtype=dtype) for dtype in DTYPES}


@pytest.fixture(scope="module")
def decoder(decoders):
    return decoders[torch.float32]


@pytest.fixture(scope="module")
def codes(golden):
    """The 40 golden frames and 100 random ones: many times the longest window of 12 frames."""
    return torch.cat((golden["codec.codes"].long(), random_codes(0, 100)))


@pytest.fixture(scope="module")
def audio(codes):
    """The same codes in one step, whole."""
    return {
        dtype: load_decoder(dtype=dtype, max_streams=1, max_step_frames=len(codes)).decode_all(codes)
        for dtype in DTYPES
    }


def random_codes(seed, frames, n_vq=12, size=128):
    return torch.randint(size, (frames, n_vq), generator=torch.Generator().manual_seed(seed))


def decode_in_steps(decoder, codes, steps):
    state = decoder.open()
    try:
        parts = [decoder.decode([(state, part)])[0] for part in codes.split(steps)]
    finally:
        decoder.close(state)
    return torch.cat(parts, dim=1)


def cuts(total, longest):
    """Lists of step sizes that add up to `total`."""

    def fit(sizes):
        kept = []
        for size in sizes:
            kept.append(min(size, total - sum(kept)))
            if sum(kept) == total:
                break
        return kept

    return st.lists(st.integers(1, longest), min_size=total, max_size=total).map(fit)


@pytest.mark.parametrize("case", ["codec", "codec.short"])
def test_golden_codes_give_the_golden_audio(decoder, golden, case):
    audio = decoder.decode_all(golden[f"{case}.codes"].long())
    torch.testing.assert_close(audio, golden[f"{case}.audio"], atol=2e-5, rtol=1e-4)


def test_golden_audio_gives_the_golden_codes(golden):
    encoder = CodecEncoder.load(CODEC, CONFIG, max_step_frames=MAX_STEP)
    encoded = encoder.encode(golden["codec.encode.wav"], 12)
    assert torch.equal(encoded, golden["codec.encode.codes"].long())


@settings(max_examples=20, deadline=None)
@given(steps=cuts(40, MAX_STEP))
def test_any_cut_gives_the_same_bits(decoder, codes, audio, steps):
    whole = audio[torch.float32][:, : 40 * CONFIG.samples_per_frame]
    assert torch.equal(decode_in_steps(decoder, codes[:40], steps), whole)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("steps", [[1] * 140, [5] * 28, [1, 2, 3, 4, 5, 6, 6, 1] * 5])
def test_cuts_far_past_the_window_give_the_same_bits(decoders, codes, audio, dtype, steps):
    assert torch.equal(decode_in_steps(decoders[dtype], codes, steps), audio[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
def test_streams_joining_and_leaving_beside_a_stream_do_not_change_it(decoders, codes, audio, dtype):
    decoder = decoders[dtype]
    first, parts, done = decoder.open(), [], 0
    guests = []
    for step in range(30):
        if step % 3 == 0 and len(guests) < 3:
            guests.append((decoder.open(), step))
        if step % 5 == 4:
            decoder.close(guests.pop(0)[0])
        frames = 1 + step % 4
        others = [(state, random_codes(seed + step, 1 + (seed + step) % MAX_STEP)) for state, seed in guests]
        place = step % (len(others) + 1)
        batch = [*others[:place], (first, codes[done : done + frames]), *others[place:]]
        parts.append(decoder.decode(batch)[place])
        done += frames
    for state, _ in [(first, 0), *guests]:
        decoder.close(state)
    assert torch.equal(torch.cat(parts, dim=1), audio[dtype][:, : done * CONFIG.samples_per_frame])


def test_every_stream_of_a_batch_equals_itself_alone(decoder):
    utterances = [random_codes(seed, frames) for seed, frames in enumerate((30, 17, 44, 23))]
    states = [decoder.open() for _ in utterances]
    parts = [[] for _ in utterances]
    for start in range(0, 44, MAX_STEP):
        live = [i for i, codes in enumerate(utterances) if start < len(codes)]
        batch = [(states[i], utterances[i][start : start + MAX_STEP]) for i in live]
        for i, part in zip(live, decoder.decode(batch), strict=True):
            parts[i].append(part)
    for state in states:
        decoder.close(state)
    for codes, own in zip(utterances, parts, strict=True):
        assert torch.equal(torch.cat(own, dim=1), decoder.decode_all(codes))


def test_full_streams_of_the_longest_steps_always_find_room():
    decoder = load_decoder(max_streams=2)
    states = [decoder.open() for _ in range(2)]
    held = []
    for step in range(60):
        decoder.decode([(state, random_codes(step, MAX_STEP - step % 2)) for state in states])
        held.append(decoder.blocks_in_use)
    assert max(held[20:]) == max(held[40:]), "blocks that left the window are still held"


def test_closing_returns_every_block(decoder, codes):
    assert decoder.blocks_in_use == 0
    states = [decoder.open(), decoder.open()]
    decoder.decode([(state, codes[:4]) for state in states])
    assert decoder.blocks_in_use > 0
    for state in states:
        decoder.close(state)
    assert decoder.blocks_in_use == 0


def test_one_stream_too_many_is_refused_and_a_closed_one_makes_room(codes):
    decoder = load_decoder(max_streams=2)
    state = decoder.open()
    decoder.open()
    with pytest.raises(StreamError, match="all 2 codec streams are open"):
        decoder.open()
    decoder.close(state)
    decoder.decode([(decoder.open(), codes[:1])])


def test_streams_used_wrongly_are_refused(decoder, codes):
    state = decoder.open()
    with pytest.raises(StreamError, match="twice"):
        decoder.decode([(state, codes[:1]), (state, codes[1:2])])
    with pytest.raises(StreamError, match="1 to 6 frames, not 7"):
        decoder.decode([(state, codes[: MAX_STEP + 1])])
    decoder.close(state)
    with pytest.raises(StreamError, match="closed"):
        decoder.decode([(state, codes[:1])])
    with pytest.raises(StreamError, match="closed"):
        decoder.close(state)


@pytest.mark.parametrize("wrong", [-1, 128])
def test_codes_out_of_range_are_refused_before_any_stream_moves(decoder, codes, audio, wrong):
    good, bad = decoder.open(), decoder.open()
    with pytest.raises(InvalidRequest, match="codes must be 0 to 127"):
        decoder.decode([(good, codes[:2]), (bad, torch.full((2, 12), wrong))])
    (part,) = decoder.decode([(good, codes[:2])])
    decoder.close(good)
    decoder.close(bad)
    assert torch.equal(part, audio[torch.float32][:, : 2 * CONFIG.samples_per_frame])


@pytest.mark.parametrize("codes", [torch.zeros(2, 11, dtype=torch.int64), torch.zeros(2, 12)])
def test_codes_of_another_shape_or_type_are_refused(decoder, codes):
    with pytest.raises(InvalidRequest, match=r"codes must be int64 \[frames, 12\]"):
        decoder.decode_all(codes)
    assert decoder.blocks_in_use == 0


def test_nothing_to_decode_gives_nothing(decoder):
    assert decoder.decode([]) == []
    assert decoder.decode_all(random_codes(0, 0)).shape == (2, 0)


def test_more_codebooks_than_the_codec_has_are_refused():
    with pytest.raises(CheckpointError, match="the codec has 16"):
        load_decoder(n_vq=17)


@pytest.mark.parametrize("sample", [math.nan, math.inf, -1e20])
def test_a_clip_that_is_no_sound_is_refused_and_does_not_touch_later_clips(golden, sample):
    encoder = CodecEncoder.load(CODEC, CONFIG, max_step_frames=8)
    broken = golden["codec.encode.wav"].clone()
    broken[1, 5000] = sample
    with pytest.raises(InvalidRequest, match="audio samples must be finite"):
        encoder.encode(broken, 12)
    broken[1, 5000] = 1e6
    encoder.encode(broken, 12)
    encoded = encoder.encode(golden["codec.encode.wav"], 12)
    assert torch.equal(encoded, golden["codec.encode.codes"].long())


@pytest.mark.parametrize("dtype", DTYPES)
def test_codes_of_a_clip_depend_on_nothing_but_the_clip(golden, dtype):
    clip = golden["codec.encode.wav"].repeat(1, 3)
    encoder = CodecEncoder.load(CODEC, CONFIG, dtype=dtype, max_step_frames=4)
    first = encoder.encode(clip, 12)
    encoder.encode(clip.flip(1)[:, :20000], 16)
    assert torch.equal(encoder.encode(clip, 12), first)
    assert torch.equal(encoder.encode(clip, 16)[:, :12], first)
    in_one_step = CodecEncoder.load(CODEC, CONFIG, dtype=dtype, max_step_frames=100)
    assert torch.equal(in_one_step.encode(clip, 12), first)


def test_a_tail_shorter_than_a_frame_gives_no_code(golden):
    encoder = CodecEncoder.load(CODEC, CONFIG, max_step_frames=8)
    clip = golden["codec.encode.wav"]
    samples = CONFIG.samples_per_frame
    assert encoder.encode(clip[:, : samples - 1], 12).shape == (0, 12)
    assert torch.equal(encoder.encode(clip[:, : 3 * samples - 1], 12), encoder.encode(clip, 12)[:2])


def test_audio_the_codec_cannot_take_is_refused():
    encoder = CodecEncoder.load(CODEC, CONFIG, max_step_frames=8)
    with pytest.raises(InvalidRequest, match=r"audio must be \[2, samples\]"):
        encoder.encode(torch.zeros(1, 4000), 12)
    with pytest.raises(InvalidRequest, match="n_vq must be 1 to 16"):
        encoder.encode(torch.zeros(2, 4000), 17)


def test_bfloat16_stays_close_to_float32(audio):
    exact, rounded = audio[torch.float32], audio[torch.bfloat16]
    assert rounded.dtype == torch.float32
    assert (exact - rounded).square().mean() < 1e-3 * exact.square().mean()


def test_a_patch_puts_the_steps_of_each_channel_together():
    rows = torch.tensor([[0, 10], [1, 11], [2, 12], [3, 13]])
    folded = torch.tensor([[0, 1, 10, 11], [2, 3, 12, 13]])
    assert torch.equal(fold(rows, 2), folded)
    assert torch.equal(unfold(folded, 2), rows)


def other_config(channels):
    """Channels side by side, 120 samples a frame, windows from modules and from the config."""

    def transformer(inputs, outputs, size, heads, layers, **fields):
        return {
            "module_type": "Transformer",
            "input_dimension": inputs,
            "output_dimension": outputs,
            "d_model": size,
            "num_heads": heads,
            "num_layers": layers,
            "dim_feedforward": 3 * size,
            "layer_scale": 0.5,
            **fields,
        }

    def patch(size):
        return {"module_type": "PatchedPretransform", "patch_size": size}

    return {
        "sampling_rate": 1500,
        "downsample_rate": 120,
        "number_channels": channels,
        "enable_channel_interleave": False,
        "causal_transformer_context_duration": 0.8,
        "encoder_kwargs": [
            patch(20),
            transformer(20 * channels, 16, 24, 2, 3, context_duration=0.4),
            patch(2),
            transformer(32, 8, 16, 4, 1),
            patch(3),
            transformer(24, 20, 32, 1, 2, max_period=500),
        ],
        "decoder_kwargs": [
            transformer(28, 24, 32, 2, 3, context_duration=1.6),
            patch(3),
            transformer(8, 16, 16, 4, 1, layer_scale=None),
            patch(2),
            transformer(8, 20 * channels, 24, 3, 5),
            patch(20),
        ],
        "quantizer_kwargs": {
            "input_dim": 20,
            "rvq_dim": 12,
            "output_dim": 28,
            "num_quantizers": 5,
            "codebook_size": 40,
            "codebook_dim": 4,
            "quantizer_type": "rlfq",
        },
    }


@pytest.fixture(scope="module", params=[1, 2], ids=["mono", "side by side"])
def other(request, tmp_path_factory):
    """Directory and config of a random codec with other sizes than the golden one."""
    config = CodecConfig.from_dict(other_config(request.param))
    generator = torch.Generator().manual_seed(request.param)
    directory = tmp_path_factory.mktemp("codec")
    weights = {
        name: torch.randn(shape, generator=generator) / math.sqrt(shape[1] if len(shape) == 2 else 1)
        for name, shape in codec_layout(config).items()
    }
    save_file(weights, directory / "model.safetensors")
    return directory, config


@settings(max_examples=10, deadline=None)
@given(steps=cuts(60, MAX_STEP))
def test_a_codec_of_other_sizes_gives_the_same_bits_for_any_cut(other, steps):
    directory, config = other
    codes = random_codes(1, 60, n_vq=5, size=40)
    decoder = load_decoder(directory, config, n_vq=5)
    neighbour = decoder.open()
    decoder.decode([(neighbour, codes[:5])])
    whole = load_decoder(directory, config, n_vq=5, max_step_frames=60).decode_all(codes)
    assert whole.shape == (config.channels, 60 * 120)
    assert torch.equal(decode_in_steps(decoder, codes, steps), whole)


def test_a_codec_of_other_sizes_decodes_what_it_encodes(other):
    directory, config = other
    clip = torch.randn(config.channels, 30 * 120 + 50, generator=torch.Generator().manual_seed(3))
    encode = [CodecEncoder.load(directory, config, max_step_frames=frames).encode(clip, 4) for frames in (1, 7, 30)]
    assert encode[0].shape == (30, 4)
    assert torch.equal(encode[0], encode[1])
    assert torch.equal(encode[0], encode[2])
    decoded = load_decoder(directory, config, n_vq=4).decode_all(encode[0])
    assert decoded.shape == (config.channels, 30 * 120)
    assert decoded.isfinite().all()
