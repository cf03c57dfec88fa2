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

MAGIC = {"mp3": b"\xff", "opus": b"OggS", "aac": b"\xff\xf1", "flac": b"fLaC", "wav": b"RIFF", "pcm": b""}
FORMAT_RATES = [
    (format, rate) for format, spec in FORMATS.items() for rate in spec.rates or (8_000, 11_025, 24_000, 44_100, 48_000)
]


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


def libav_reader(data):
    # Of a few frames libav does not recognize the format; a client has the content type to go by.
    known = next((name for name in ("aac", "mp3") if data.startswith(MAGIC[name])), None)
    return av.open(io.BytesIO(data), format=known)


def libav_samples(data):
    """[channels, samples] as libav decodes them; integers stay integers."""
    with libav_reader(data) as container:
        frames = list(container.decode(audio=0))
    channels = frames[0].layout.nb_channels
    blocks = [f.to_ndarray() if f.format.is_planar else f.to_ndarray().reshape(-1, channels).T for f in frames]
    return np.concatenate(blocks, axis=1)


def decoded_seconds(format, data, rate, channels):
    """Length of a file by its decoder, which must also find the rate and channel count."""
    if format == "pcm":
        return len(data) / (2 * channels * rate)
    if format == "wav":
        with wave.open(io.BytesIO(data)) as reader:
            assert (reader.getframerate(), reader.getnchannels()) == (rate, channels)
            return len(reader.readframes(reader.getnframes())) / (2 * channels * rate)
    played_rate = 48_000 if format == "opus" else rate
    with libav_reader(data) as container:
        assert container.streams.audio[0].rate == played_rate
        assert container.streams.audio[0].channels == channels
    return libav_samples(data).shape[1] / played_rate


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


@pytest.mark.parametrize(("format", "rate"), FORMAT_RATES)
@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("channels", [1, 2])
def test_every_file_is_as_long_as_its_audio_within_50_ms(format, rate, channels, streaming):
    for samples in (3_840, 24_000, 48_000, 154_080):
        output = AudioOutput(format, 48_000, 2, rate, channels, streaming)
        assert (output.rate, output.channels) == (rate, channels)
        data = encoded(output, cut(speech(samples), endless(3840)))
        assert data.startswith(MAGIC[format])
        assert abs(decoded_seconds(format, data, rate, channels) - samples / 48_000) < 0.05


@pytest.mark.parametrize(("format", "rate"), [(f, r) for f, r in FORMAT_RATES if f in ("mp3", "aac")])
def test_no_number_of_samples_makes_a_stream_of_frames_too_long_or_short(format, rate):
    frame = 1_024 if format == "aac" else 1_152 if rate >= 32_000 else 576
    for samples in range(2 * frame, 3 * frame, 37):
        data = encoded(AudioOutput(format, rate, 1, rate=rate, streaming=True), [speech(samples, 1, rate)])
        assert abs(decoded_seconds(format, data, rate, 1) - samples / rate) < 0.05


@pytest.mark.parametrize("format", ["flac", "opus", "wav", "pcm"])
@pytest.mark.parametrize("streaming", [False, True])
def test_files_that_can_tell_their_length_are_exact(format, streaming):
    data = encoded(AudioOutput(format, 48_000, 2, 24_000, 1, streaming), cut(speech(100_002), endless(3840)))
    assert decoded_seconds(format, data, 24_000, 1) == 50_001 / 24_000


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
    assert soundfile.info(io.BytesIO(data("opus"))).frames == 12_345


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


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(("format", "rate"), FORMAT_RATES)
def test_the_end_of_the_audio_is_not_lost(format, rate, streaming):
    if format in ("pcm", "wav"):
        return
    pcm = np.zeros((1, 48_000), np.float32)
    pcm[0, -2_000:] = speech(2_000, 1)[0]
    samples = libav_samples(encoded(AudioOutput(format, 48_000, 1, rate, streaming=streaming), [pcm]))[0]
    played_rate = 48_000 if format == "opus" else rate
    loudness = np.abs(samples / (1.0 if samples.dtype == np.float32 else 32768.0))
    assert loudness[: int(0.9 * played_rate)].max() < 0.02
    # A stream of MP3 at 8 kHz may lack 23 ms.
    assert loudness[int((0.96 if (format, rate) == ("mp3", 8_000) else 0.98) * played_rate) :].max() > 0.2


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    ("format", "rate", "late"),
    [
        ("mp3", 8_000, 0),
        ("mp3", 24_000, 0),
        ("mp3", 48_000, 0),
        ("opus", 48_000, 0),
        ("aac", 22_050, 57),
        ("aac", 24_000, 153),
        ("aac", 32_000, 545),
        ("aac", 44_100, 1_024),
        ("aac", 48_000, 1_024),
    ],
)
def test_the_delay_of_the_codec_is_not_heard(format, rate, late, streaming):
    pcm = np.zeros((1, rate), np.float32)
    pcm[0, rate // 4 : rate // 4 + 10] = 0.9
    samples = libav_samples(
        encoded(AudioOutput(format, rate, 1, rate=rate, streaming=streaming), cut(pcm, endless(1_920)))
    )
    assert abs(int(np.abs(samples[0]).argmax()) - (rate // 4 + 5 + late)) < 10


@pytest.mark.parametrize(("rate", "late"), [(32_000, 545), (44_100, 1_024), (48_000, 1_024)])
def test_aac_keeps_the_first_10_ms_of_the_audio(rate, late):
    pcm, start = np.zeros((1, rate), np.float32), slice(0, rate // 100)
    pcm[:, start] = speech(rate // 100, 1, rate)
    samples = libav_samples(encoded(AudioOutput("aac", rate, 1), [pcm]))[0, late:]
    assert np.corrcoef(samples[start], pcm[0, start])[0, 1] > 0.95


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("format", FORMATS)
def test_no_audio_at_all_makes_an_empty_file(format, streaming):
    output = AudioOutput(format, 48_000, 2, 24_000, 1, streaming)
    data = output.write(np.zeros((2, 0), np.float32)) + output.finish()
    if format in ("wav", "flac", "opus"):
        assert data.startswith(MAGIC[format])


# -- tempo --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("speed", [0.25, 0.7, 1.0, 1.5, 4.0])
@pytest.mark.parametrize(("rate", "channels"), [(None, None), (8_000, 2), (44_100, 1), (48_000, 1), (48_000, 2)])
def test_streamed_and_whole_pcm_are_the_same_bytes_at_every_speed(rate, channels, speed):
    pcm = speech(24_001)

    def data(sizes, streaming):
        return encoded(AudioOutput("pcm", 48_000, 2, rate, channels, streaming, speed), cut(pcm, endless(*sizes)))

    streamed = data((3840, 3840, 7680), True)
    assert streamed == data((24_001,), False) == data((1_000, 1), True)
    samples = len(streamed) // (2 * (channels or 1))
    assert abs(samples - 24_001 / speed * (rate or 24_000) / 48_000) <= 1


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("speed", [0.25, 1.3, 4.0])
@pytest.mark.parametrize("streaming", [False, True])
def test_every_format_is_as_long_as_its_speed_says(format, speed, streaming):
    output = AudioOutput(format, 48_000, 2, 24_000, 1, streaming, speed)
    data = encoded(output, cut(speech(100_003), endless(3840)))
    assert abs(decoded_seconds(format, data, 24_000, 1) - 100_003 / 48_000 / speed) < 0.05


def test_a_broken_waveform_is_an_error_at_any_speed():
    pcm = speech(9_600)
    pcm[1, 5_000] = np.nan
    with pytest.raises(SpeechError, match="not finite"):
        AudioOutput("pcm", 48_000, 2, speed=4.0).write(pcm)


@pytest.mark.parametrize("speed", [0.0, 0.2499, 4.0001, -1.0, np.nan, np.inf])
def test_a_speed_out_of_range_is_refused(speed):
    with pytest.raises(InvalidRequest, match=r"0\.25.*4") as caught:
        AudioOutput("pcm", 48_000, 2, speed=speed)
    assert caught.value.param == "speed"


# -- requests -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("format", "content_type", "rate", "channels"),
    [
        ("wav", "audio/wav", 48_000, 2),
        ("flac", "audio/flac", 48_000, 2),
        ("mp3", "audio/mpeg", 48_000, 2),
        ("opus", "audio/ogg", 48_000, 2),
        ("aac", "audio/aac", 48_000, 2),
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


@pytest.mark.parametrize(
    ("format", "rate"),
    [
        ("wav", 7_999),
        ("wav", 48_001),
        ("wav", 0),
        ("mp3", 10_000),
        ("opus", 44_100),
        ("opus", 11_025),
        ("aac", 16_000),
        ("aac", 30_000),
    ],
)
def test_a_rate_the_format_lacks_is_refused(format, rate):
    with pytest.raises(InvalidRequest) as caught:
        AudioOutput(format, 48_000, 2, rate)
    assert caught.value.param == "sample_rate"


def test_a_format_names_the_rates_it_has():
    with pytest.raises(InvalidRequest, match="8000, 12000, 16000, 24000, 48000"):
        AudioOutput("opus", 48_000, 2, 44_100)


@pytest.mark.parametrize("channels", [0, 3, -1])
def test_channels_other_than_one_and_two_are_refused(channels):
    with pytest.raises(InvalidRequest) as caught:
        AudioOutput("wav", 48_000, 2, channels=channels)
    assert caught.value.param == "channels"


def _resident_bytes():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


@pytest.mark.parametrize("format", ["mp3", "opus", "aac", "flac"])
def test_abandoned_streams_free_their_memory_at_once(format):
    def abandon(times):
        for _ in range(times):
            output = AudioOutput(format, 48_000, 2, speed=1.5)
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


@pytest.mark.parametrize(
    ("native", "format", "rate"),
    [
        (48_000, "wav", 48_000), (16_000, "wav", 24_000), (16_000, "mp3", 24_000), (16_000, "aac", 24_000),
        (44_100, "flac", 44_100), (44_100, "opus", 48_000), (22_050, "mp3", 24_000), (32_000, "opus", 48_000),
        (96_000, "wav", 48_000), (30_000, "mp3", 32_000), (16_000, "pcm", 24_000), (48_000, "pcm", 24_000),
    ],
)  # fmt: skip
def test_without_a_wish_the_rate_is_the_models_or_the_next_that_players_expect(native, format, rate):
    assert AudioOutput(format, native, 1).rate == rate
