import gc
import io
import struct
import wave

import av
import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.audio import FORMATS, AudioOutput, Resampler, mix_channels, to_int16
from pipeline.errors import InvalidRequest, SpeechError

MAGIC = {"wav": b"RIFF", "flac": b"fLaC", "mp3": b"\xff", "pcm": b""}


def speech(samples, channels=2, rate=48_000):
    """float32 [channels, samples]: a gliding tone with some noise, different in each channel."""
    time = np.arange(samples) / rate
    noise = np.random.default_rng(0).standard_normal((channels, samples)) * 0.01
    tones = [0.3 * np.sin(2 * np.pi * (200 + 50 * c) * time * (1 + time)) for c in range(channels)]
    return (np.stack(tones) + noise).astype(np.float32)


def cut(pcm, sizes):
    start = 0
    while start < pcm.shape[1]:
        size = next(sizes)
        yield pcm[:, start : start + size]
        start += size


def encoded(output, chunks):
    return b"".join([*map(output.write, chunks), output.finish()])


def libav_samples(data):
    """[channels, samples] as libav decodes them; integers stay integers."""
    with av.open(io.BytesIO(data)) as container:
        frames = list(container.decode(audio=0))
    channels = frames[0].layout.nb_channels
    blocks = [f.to_ndarray() if f.format.is_planar else f.to_ndarray().reshape(-1, channels).T for f in frames]
    return np.concatenate(blocks, axis=1)


def endless(*sizes):
    while True:
        yield from sizes


# -- rounding and mixing ------------------------------------------------------------------------------------


def test_every_16_bit_value_survives_the_way_through_float():
    every = np.arange(-32768, 32768).astype(np.int16)
    np.testing.assert_array_equal(to_int16(every[None] / np.float32(32768))[:, 0], every)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [(0.5, 0), (1.5, 2), (2.5, 2), (-0.5, 0), (-1.5, -2), (0.75, 1), (32767.4, 32767), (32767.5, 32767)],
)
def test_rounding_is_half_to_even(steps, expected):
    assert to_int16(np.array([[steps / 32768]], dtype=np.float32)).item() == expected


@pytest.mark.parametrize(("value", "expected"), [(1.0, 32767), (7.5, 32767), (-1.0, -32768), (-1e30, -32768)])
def test_what_is_too_loud_is_clipped(value, expected):
    assert to_int16(np.array([[value]], dtype=np.float32)).item() == expected


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_broken_waveform_is_an_error(value):
    with pytest.raises(SpeechError, match="not finite"):
        to_int16(np.array([[0.0, value]], dtype=np.float32))


def test_16_bit_samples_are_interleaved():
    interleaved = to_int16(np.array([[1, 2, 3], [4, 5, 6]], dtype=np.float32) / 32768)
    assert interleaved.flags.c_contiguous
    assert interleaved.ravel().tolist() == [1, 4, 2, 5, 3, 6]


def test_stereo_becomes_mono_by_its_mean_and_mono_is_duplicated():
    stereo = np.array([[0.5, -1.0], [0.25, 1.0]], dtype=np.float32)
    np.testing.assert_array_equal(mix_channels(stereo, 1), [[0.375, 0.0]])
    np.testing.assert_array_equal(mix_channels(stereo[:1], 2), stereo[[0, 0]])
    assert mix_channels(stereo, 2) is stereo


# -- resampling ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("target", [8_000, 16_000, 22_050, 24_000, 44_100])
def test_the_cut_of_a_stream_never_changes_a_resampled_bit(target, channels):
    pcm = speech(60_000, channels)

    def resampled(sizes):
        resampler = Resampler(48_000, target, channels)
        return np.concatenate([*map(resampler.process, cut(pcm, sizes)), resampler.flush()], axis=1)

    whole = resampled(endless(60_000))
    assert abs(whole.shape[1] - 60_000 * target / 48_000) <= 1
    for sizes in ((3840,), (1, 7, 4_999), (30_001,)):
        np.testing.assert_array_equal(resampled(endless(*sizes)), whole)


def test_resampling_keeps_a_tone():
    time = np.arange(48_000) / 48_000
    resampler = Resampler(48_000, 24_000, 1)
    tone = (0.5 * np.sin(2 * np.pi * 440 * time)).astype(np.float32)[None]
    out = np.concatenate([resampler.process(tone), resampler.flush()], axis=1)
    np.testing.assert_allclose(out[0, 500:-500], tone[0, ::2][500:-500], atol=1e-4)


def test_equal_rates_change_nothing():
    resampler = Resampler(48_000, 48_000, 2)
    pcm = speech(100)
    assert resampler.process(pcm) is pcm
    assert resampler.flush().shape == (2, 0)


# -- formats ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(("rate", "channels"), [(48_000, 2), (24_000, 1), (8_000, 2), (44_100, 1)])
@pytest.mark.parametrize("format", FORMATS)
def test_magic_bytes_rate_channels_and_duration_are_right(format, rate, channels, streaming):
    pcm = speech(100_003)
    output = AudioOutput(format, 48_000, 2, rate, channels, streaming)
    data = encoded(output, cut(pcm, endless(3840)))
    assert (output.rate, output.channels) == (rate, channels)
    assert data.startswith(MAGIC[format])
    expected = 100_003 * rate / 48_000
    if format == "pcm":
        assert len(data) == 2 * channels * round(expected)
        return
    with av.open(io.BytesIO(data)) as container:
        assert container.streams.audio[0].rate == rate
        assert container.streams.audio[0].channels == channels
    length = libav_samples(data).shape[1]
    slack = 0.05 * rate if format == "mp3" else 1
    assert -1 <= length - expected <= slack


@pytest.mark.parametrize("format", FORMATS)
@given(sizes=st.lists(st.integers(1, 9_000), min_size=1, max_size=6))
@settings(max_examples=8, deadline=None)
def test_the_cut_of_a_stream_never_changes_a_byte(format, sizes):
    pcm = speech(20_011)

    def data(sizes, streaming):
        return encoded(AudioOutput(format, 48_000, 2, 24_000, 1, streaming), cut(pcm, endless(*sizes)))

    for streaming in (False, True):
        assert data(sizes, streaming) == data([20_011], streaming)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(("rate", "channels"), [(48_000, 2), (24_000, 1)])
def test_streamed_and_whole_files_hold_the_same_samples(format, rate, channels):
    pcm = speech(48_000)
    streamed, whole = (
        encoded(AudioOutput(format, 48_000, 2, rate, channels, streaming), cut(pcm, endless(3840)))
        for streaming in (True, False)
    )
    if format == "pcm":
        assert streamed == whole
        return
    length = libav_samples(whole).shape[1]
    np.testing.assert_array_equal(libav_samples(streamed)[:, :length], libav_samples(whole))


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("channels", [1, 2])
def test_wav_and_flac_and_pcm_hold_the_exact_samples(channels, streaming):
    pcm = speech(30_001, channels)
    expected = np.round(pcm.astype(np.float64) * 32768).clip(-32768, 32767).T

    def data(format):
        output = AudioOutput(format, 48_000, channels, 48_000, channels, streaming)
        return encoded(output, cut(pcm, endless(3840, 1)))

    np.testing.assert_array_equal(np.frombuffer(data("pcm"), "<i2").reshape(-1, channels), expected)
    np.testing.assert_array_equal(np.frombuffer(data("wav")[44:], "<i2").reshape(-1, channels), expected)
    flac = bytearray(data("flac"))
    if streaming:  # libsndfile insists on a length, which STREAMINFO leaves open
        assert flac[22:26] == bytes(4)
        flac[22:26] = struct.pack(">I", 30_001)
    samples, _ = soundfile.read(io.BytesIO(flac), dtype="int16", always_2d=True)
    np.testing.assert_array_equal(samples, expected)


def test_whole_files_say_their_exact_length():
    pcm = speech(12_345)

    def data(format):
        return encoded(AudioOutput(format, 48_000, 2, streaming=False), cut(pcm, endless(3840)))

    with wave.open(io.BytesIO(data("wav"))) as reader:
        assert (reader.getnframes(), reader.getframerate(), reader.getnchannels()) == (12_345, 48_000, 2)
    assert len(data("wav")) == struct.unpack("<I", data("wav")[4:8])[0] + 8
    assert soundfile.info(io.BytesIO(data("flac"))).frames == 12_345
    assert soundfile.info(io.BytesIO(data("mp3"))).frames == 12_345


def test_a_streamed_wav_says_that_its_length_is_unknown():
    output = AudioOutput("wav", 48_000, 2, streaming=True)
    first = output.write(speech(3840))
    assert first[4:8] == first[40:44] == b"\xff" * 4
    assert len(first) == 44 + 4 * 3840
    assert len(output.write(speech(3840))) == 4 * 3840
    assert output.finish() == b""


@pytest.mark.parametrize("format", FORMATS)
def test_a_stream_flows_before_it_ends(format):
    output = AudioOutput(format, 48_000, 2, streaming=True)
    parts = [output.write(chunk) for chunk in cut(speech(10 * 3840), endless(3840))]
    assert sum(map(bool, parts)) >= 5
    assert sum(map(len, parts)) > 0.7 * sum(map(len, [*parts, output.finish()]))


def test_every_pcm_chunk_is_whole_samples():
    output = AudioOutput("pcm", 48_000, 2, 44_100, 2)
    assert all(len(output.write(chunk)) % 4 == 0 for chunk in cut(speech(20_000), endless(1, 777, 3840)))


def test_the_end_of_the_audio_is_not_lost():
    pcm = np.zeros((1, 48_000), np.float32)
    pcm[0, -2_000:] = speech(2_000, 1)[0]
    for format in ("mp3", "flac", "wav"):
        for streaming in (False, True):
            samples = libav_samples(encoded(AudioOutput(format, 48_000, 1, streaming=streaming), [pcm]))
            loudness = np.abs(samples[0] / (1 if samples.dtype == np.float32 else 32768)).astype(np.float32)
            assert loudness[46_500:47_900].max() > 0.2, format
            assert loudness[:45_000].max() < 0.02, format


def test_an_mp3_stream_starts_without_the_delay_of_its_encoder():
    pcm = np.zeros((1, 24_000), np.float32)
    pcm[0, 6_000:6_010] = 0.9
    samples = libav_samples(encoded(AudioOutput("mp3", 24_000, 1), cut(pcm, endless(1_920))))
    assert abs(int(np.abs(samples[0]).argmax()) - 6_005) < 10


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("format", FORMATS)
def test_no_audio_at_all_makes_an_empty_file(format, streaming):
    output = AudioOutput(format, 48_000, 2, 24_000, 1, streaming)
    data = output.write(np.zeros((2, 0), np.float32)) + output.finish()
    if format in ("wav", "flac"):
        assert data.startswith(MAGIC[format])


# -- requests -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("format", "content_type", "rate", "channels"),
    [
        ("wav", "audio/wav", 48_000, 2),
        ("flac", "audio/flac", 48_000, 2),
        ("mp3", "audio/mpeg", 48_000, 2),
        ("pcm", "audio/pcm", 24_000, 1),
        (" MP3 ", "audio/mpeg", 48_000, 2),
    ],
)
def test_formats_have_their_content_type_and_defaults(format, content_type, rate, channels):
    output = AudioOutput(format, 48_000, 2)
    assert (output.content_type, output.rate, output.channels) == (content_type, rate, channels)


@pytest.mark.parametrize("format", ["ogg", "", "wave", "../wav"])
def test_an_unknown_format_is_refused_with_the_list(format):
    with pytest.raises(InvalidRequest, match="wav") as caught:
        AudioOutput(format, 48_000, 2)
    assert caught.value.param == "response_format"


@pytest.mark.parametrize(("format", "rate"), [("wav", 7_999), ("wav", 48_001), ("wav", 0), ("mp3", 10_000)])
def test_a_rate_the_format_lacks_is_refused(format, rate):
    with pytest.raises(InvalidRequest) as caught:
        AudioOutput(format, 48_000, 2, rate)
    assert caught.value.param == "sample_rate"


@pytest.mark.parametrize("channels", [0, 3, -1])
def test_channels_other_than_one_and_two_are_refused(channels):
    with pytest.raises(InvalidRequest) as caught:
        AudioOutput("wav", 48_000, 2, channels=channels)
    assert caught.value.param == "channels"


def _resident_bytes():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


@pytest.mark.parametrize("format", ["mp3", "flac"])
def test_abandoned_streams_free_their_memory_at_once(format):
    def abandon(times):
        for _ in range(times):
            output = AudioOutput(format, 48_000, 2)
            output.write(np.zeros((2, 9_600), np.float32))

    gc.collect()
    gc.disable()
    try:
        abandon(10)
        before = _resident_bytes()
        abandon(60)
        assert _resident_bytes() - before < 15e6
    finally:
        gc.enable()
