import io
import math
import re
import struct
from dataclasses import replace

import av
import numpy as np
import pytest
import soundfile

from pipeline.config import CodecConfig
from pipeline.errors import InvalidRequest
from pipeline.reference import ClipCache, content_key, decode_audio, prepare_reference
from tests.conftest import TINY

CODEC = CodecConfig.load(TINY / "codec")
MONO_CODEC = replace(CODEC, channels=1)
WIDE_CODEC = replace(CODEC, sampling_rate=48_000)


def tone(seconds=1.5, rate=24_000, channels=1, amplitude=0.25):
    """float32 [channels, samples]: channel c holds a sine of 300 * (c + 1) Hz."""
    time = np.arange(round(seconds * rate)) / rate
    return np.stack([amplitude * np.sin(2 * np.pi * 300 * (c + 1) * time) for c in range(channels)]).astype("f4")


def file_of(audio, rate=24_000, format="WAV", subtype=None):
    buffer = io.BytesIO()
    soundfile.write(buffer, audio.T, rate, format=format, subtype=subtype)
    return buffer.getvalue()


def libav_file_of(audio, rate, container, codec):
    buffer = io.BytesIO()
    with av.open(buffer, "w", format=container) as output:
        layout = "stereo" if len(audio) == 2 else "mono"
        stream = output.add_stream(codec, rate=rate, layout=layout)
        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(audio), format="fltp", layout=layout)
        frame.sample_rate = rate
        output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    return buffer.getvalue()


def refusal(call, *arguments):
    with pytest.raises(InvalidRequest) as caught:
        call(*arguments)
    assert caught.value.param == "ref_audio"
    assert not re.search(r"errno|<none>|avcodec|libav|ffmpeg|BytesIO|invalid data found", str(caught.value), re.I)
    return str(caught.value)


@pytest.mark.parametrize("channels", [1, 2, 3, 6])
@pytest.mark.parametrize("rate", [8_000, 22_050, 48_000, 96_000])
@pytest.mark.parametrize("format", ["WAV", "FLAC"])
def test_lossless_files_decode_to_the_samples_written(format, rate, channels):
    audio = tone(rate=rate, channels=channels)
    data = file_of(audio, rate, format, "PCM_16")
    decoded, decoded_rate = decode_audio(data)
    assert decoded_rate == rate
    assert decoded.dtype == np.float32
    expected = soundfile.read(io.BytesIO(data), dtype="float32", always_2d=True)[0].T
    np.testing.assert_array_equal(decoded, expected)


@pytest.mark.parametrize(
    ("format", "subtype"),
    [
        *[("WAV", subtype) for subtype in ("PCM_U8", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW")],
        *[("FLAC", "PCM_24"), ("AIFF", None), ("AU", None), ("CAF", None), ("W64", None), ("RF64", None)],
    ],
)
def test_every_sample_type_keeps_its_scale(format, subtype):
    data = file_of(tone(channels=2), format=format, subtype=subtype)
    expected = soundfile.read(io.BytesIO(data), dtype="float32")[0].T
    np.testing.assert_allclose(decode_audio(data)[0], expected, rtol=0, atol=2**-24)


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize(
    ("format", "subtype", "rate"),
    [
        ("MP3", None, 8_000),
        ("MP3", None, 44_100),
        ("OGG", "VORBIS", 8_000),
        ("OGG", "VORBIS", 96_000),
        ("OGG", "OPUS", 48_000),
    ],
)
def test_lossy_files_decode_close_to_what_was_written(format, subtype, rate, channels):
    audio = tone(rate=rate, channels=channels)
    decoded, decoded_rate = decode_audio(file_of(audio, rate, format, subtype))
    assert decoded_rate == rate
    assert abs(decoded.shape[1] - audio.shape[1]) <= 0.01 * rate
    length = min(decoded.shape[1], audio.shape[1])
    assert np.abs(decoded[:, :length] - audio[:, :length])[:, rate // 10 : -rate // 10].max() < 0.05


@pytest.mark.parametrize(
    ("container", "codec"), [("mp4", "aac"), ("webm", "libopus"), ("adts", "aac"), ("matroska", "aac")]
)
def test_files_of_browsers_and_phones_decode_too(container, codec):
    audio = tone(rate=48_000, channels=2)
    decoded, rate = decode_audio(libav_file_of(audio, 48_000, container, codec))
    assert rate == 48_000
    assert abs(decoded.shape[1] - audio.shape[1]) <= 0.05 * rate


def test_the_first_channels_of_a_surround_file_are_left_and_right():
    surround = tone(channels=6)
    for format, subtype in (("WAV", None), ("FLAC", None)):
        decoded = decode_audio(file_of(surround, 24_000, format, subtype))[0]
        np.testing.assert_allclose(decoded[:2], surround[:2], atol=1e-4)


def test_more_than_eight_channels_keep_the_first_eight():
    audio = tone(channels=12)
    np.testing.assert_allclose(decode_audio(file_of(audio))[0], audio[:8], atol=1e-4)


def test_a_streamed_wav_of_unknown_length_decodes():
    data = bytearray(file_of(tone()))
    data[4:8] = data[40:44] = b"\xff" * 4
    np.testing.assert_array_equal(decode_audio(bytes(data))[0], decode_audio(file_of(tone()))[0])


def test_what_is_there_of_a_cut_wav_counts():
    data = file_of(tone(seconds=3), subtype="PCM_16")
    assert decode_audio(data[: 44 + 2 * 48_000])[0].shape == (1, 48_000)


def test_odd_tags_do_not_hurt():
    data = file_of(tone(), format="MP3") + b"TAG" + "Öl".encode("latin1").ljust(125, b"\0")
    assert decode_audio(data)[0].shape[1] >= 36_000


WAV = file_of(tone())


def _patched(offset, value):
    return WAV[:offset] + value + WAV[offset + len(value) :]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"RIFF",
        b"hello, this is text, not audio\n" * 50,
        bytes(10_000),
        np.random.default_rng(0).bytes(100_000),
        np.random.default_rng(6).bytes(200_000),
        WAV[:30],
        WAV[:44],
        file_of(tone(), format="FLAC")[:50],
        file_of(tone(), format="FLAC")[:-100],
        file_of(tone(), format="OGG")[:1_000],
        _patched(22, struct.pack("<H", 0)),
        _patched(24, struct.pack("<I", 0)),
        _patched(24, struct.pack("<I", 1_000_000_000)),
        _patched(24, struct.pack("<I", 4_000_000_000)),
        _patched(24, struct.pack("<I", 10)),
    ],
    ids=[
        *["empty", "magic", "text", "zeros", "garbage", "other garbage", "cut header", "no samples"],
        *["cut flac header", "cut flac", "cut ogg"],
        *["no channels", "rate 0", "rate 1e9", "rate 4e9", "rate 10"],
    ],
)
def test_what_is_no_audio_is_refused_in_plain_words(data):
    assert "reference" in refusal(decode_audio, data)


@pytest.mark.parametrize(
    "playlist",
    [
        "#EXTM3U\n#EXT-X-TARGETDURATION:10\n#EXTINF:10,\n{}\n#EXT-X-ENDLIST\n",
        "ffconcat version 1.0\nfile '{}'\n",
        "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=x\nc=IN IP4 127.0.0.1\nt=0 0\nm=audio 5004 RTP/AVP 0\n",
    ],
)
def test_a_playlist_never_opens_another_file(playlist, tmp_path, monkeypatch):
    (tmp_path / "secret.wav").write_bytes(WAV)
    monkeypatch.chdir(tmp_path)
    for target in ("secret.wav", tmp_path / "secret.wav", f"file://{tmp_path}/secret.wav"):
        refusal(decode_audio, playlist.format(target).encode())


def test_video_without_sound_is_refused():
    buffer = io.BytesIO()
    with av.open(buffer, "w", format="matroska") as output:
        stream = output.add_stream("mpeg4", rate=10)
        stream.width = stream.height = 32
        stream.pix_fmt = "yuv420p"
        frame = av.VideoFrame.from_ndarray(np.zeros((32, 32, 3), np.uint8), format="rgb24")
        output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    assert "no audio" in refusal(decode_audio, buffer.getvalue())


def test_a_long_file_is_refused_before_all_of_it_is_decoded(monkeypatch):
    import pipeline.reference as reference

    blocks = []
    original = reference._frame_samples
    monkeypatch.setattr(reference, "_frame_samples", lambda frame: blocks.append(frame.samples) or original(frame))
    data = file_of(np.zeros((1, 8_000 * 600), np.float32), 8_000, "FLAC")
    assert "longer than 30 s" in refusal(decode_audio, data)
    assert sum(blocks) <= 30 * 8_000


def test_the_limits_of_length_are_inclusive():
    for seconds in (1, 30):
        audio, rate = decode_audio(file_of(tone(seconds, 8_000), 8_000))
        assert prepare_reference(audio, rate, CODEC).shape == (2, seconds * 24_000)
    assert "longer" in refusal(decode_audio, file_of(tone(30 + 1 / 8_000, 8_000), 8_000))
    assert "longer" in refusal(prepare_reference, tone(30 + 1 / 8_000, 8_000), 8_000, CODEC)
    assert "shorter" in refusal(prepare_reference, tone(1 - 1 / 8_000, 8_000), 8_000, CODEC)


@pytest.mark.parametrize("rate", [8_000, 16_000, 22_050, 24_000, 44_100, 48_000, 96_000])
@pytest.mark.parametrize("codec", [CODEC, WIDE_CODEC], ids=["24k", "48k"])
def test_resampling_keeps_duration_and_pitch(rate, codec):
    prepared = prepare_reference(tone(2, rate), rate, codec)
    assert prepared.dtype == np.float32
    assert prepared.shape == (2, 2 * codec.sampling_rate)
    spectrum = np.abs(np.fft.rfft(prepared[0]))
    assert spectrum.argmax() / 2 == pytest.approx(300, abs=0.5)


def test_mono_is_duplicated_and_extra_channels_are_dropped():
    mono = prepare_reference(tone(channels=1), 24_000, CODEC)
    np.testing.assert_array_equal(mono[0], mono[1])
    stereo = prepare_reference(tone(channels=2), 24_000, CODEC)
    np.testing.assert_array_equal(stereo, prepare_reference(tone(channels=6), 24_000, CODEC))
    assert not np.array_equal(stereo[0], stereo[1])


def test_a_mono_codec_gets_the_mean_of_left_and_right():
    left, right = tone(channels=2)
    mean = ((left + right) / 2)[None]
    expected = prepare_reference(mean, 24_000, MONO_CODEC)
    assert expected.shape == (1, 36_000)
    np.testing.assert_array_equal(prepare_reference(tone(channels=6), 24_000, MONO_CODEC), expected)


@pytest.mark.parametrize(
    ("level", "decibel"),
    [
        (0.1, 0.0),  # -20 dBFS is what the gain aims at
        (0.12, -20 - 10 * math.log10(0.0144)),  # -1.58 dB
        (0.08, -20 - 10 * math.log10(0.0064)),  # +1.94 dB
        (0.5, -3.0),
        (0.01, 3.0),
    ],
)
def test_the_gain_follows_the_formula(level, decibel):
    square = np.where(np.arange(24_000) % 2 == 0, level, -level).astype(np.float32)[None]
    prepared = prepare_reference(square, 24_000, CODEC)
    np.testing.assert_allclose(prepared[0], square[0] * 10 ** (decibel / 20), rtol=1e-6)


def test_the_gain_is_one_number_over_all_channels():
    audio = np.full((2, 24_000), 0.2, np.float32)
    audio[1] = 0.0
    audio[:, ::2] *= -1
    prepared = prepare_reference(audio, 24_000, CODEC)  # mean(x^2) = 0.02, so -3.01 dB, clipped to -3
    np.testing.assert_allclose(prepared, audio * 10 ** (-3 / 20), rtol=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e30])
def test_samples_that_are_no_audio_are_refused(value):
    audio = tone()
    audio[0, 1_000] = value
    assert "finite" in refusal(prepare_reference, audio, 24_000, CODEC)
    data = file_of(audio, subtype="FLOAT")
    assert "finite" in refusal(prepare_reference, *decode_audio(data), CODEC)


@pytest.mark.parametrize("amplitude", [0, 2**-15, 0.0009])
def test_silence_is_refused(amplitude):
    assert "silent" in refusal(prepare_reference, tone(amplitude=amplitude), 24_000, CODEC)


def test_a_quiet_voice_is_not_silence():
    assert prepare_reference(tone(amplitude=0.002), 24_000, CODEC).any()


def test_sound_in_a_dropped_channel_does_not_count():
    audio = tone(channels=3)
    audio[:2] = 0
    assert "silent" in refusal(prepare_reference, audio, 24_000, CODEC)


def test_equal_audio_has_equal_keys_whatever_the_file():
    audio = (tone(channels=2) * 32768).astype(np.int16)  # libsndfile rounds floats by format
    keys = {
        content_key(prepare_reference(*decode_audio(file_of(audio, format=format)), CODEC))
        for format in ("WAV", "FLAC", "AIFF", "WAV")
    }
    assert len(keys) == 1
    assert re.fullmatch(r"[0-9a-f]{64}", keys.pop())


def test_one_different_sample_or_another_shape_is_another_key():
    audio = tone(channels=2)
    other = audio.copy()
    other[1, 5] = np.nextafter(other[1, 5], np.float32(1))
    assert len({content_key(audio), content_key(other), content_key(audio.reshape(1, -1))}) == 3
    assert content_key(audio) == content_key(np.asfortranarray(audio))


def test_a_clip_is_prepared_once_and_forgotten_when_others_need_the_room():
    files = [file_of(tone(amplitude=amplitude)) for amplitude in (0.1, 0.2, 0.3)]
    expected = [prepare_reference(*decode_audio(data), CODEC) for data in files]
    cache = ClipCache(CODEC, max_bytes=2 * expected[0].nbytes)
    first, second = cache.prepared(files[0]), cache.prepared(files[1])
    assert cache.prepared(bytes(files[0])) is first
    cache.prepared(files[2])
    assert cache.prepared(files[0]) is first
    again = cache.prepared(files[1])
    assert again is not second
    assert not again.flags.writeable
    np.testing.assert_array_equal(again, expected[1])
    assert "damaged" in refusal(cache.prepared, b"no audio at all")
