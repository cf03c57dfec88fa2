"""MP3 output: what a stream of MP3 has to know about frames."""

import struct

from pipeline.encoders import UNKNOWN_LENGTH, Framing, LibavEncoder, longest_surplus

MP3_RATES = (8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)


def mp3_encoder(rate: int, channels: int, streaming: bool) -> LibavEncoder:
    """A whole file has the exact length of its audio. A stream ends on a whole frame, up to 49 ms later.

    A frame lasts 72 ms at 8 kHz and 52 ms at 11.025 kHz: a stream there may instead lack the last 23 or 3 ms.
    """
    return LibavEncoder(
        rate,
        channels,
        streaming,
        container="mp3",
        codec="libmp3lame",
        lossy=True,
        options={"id3v2_version": "0"},
        stream_header=mp3_stream_header,
        framing=_stream_framing(rate) if streaming else None,
    )


def _stream_framing(rate: int) -> Framing:
    frame = 1152 if rate >= 32_000 else 576
    return Framing(frame, _LAME_DELAY + _DECODER_DELAY, spare=max(0, frame - 1 - longest_surplus(rate)))


def mp3_stream_header(frame: bytes) -> bytes:
    """An `Info` frame for an MP3 stream that starts with `frame`: tells players the encoder delay to skip.

    Without it a decoder plays 1105 samples of padding first. It gives no length, since none is known. Layout:
    frame header (ISO 11172-3), side information left zero, Xing tag, LAME tag with the delay at its byte 21.
    """
    mpeg1, mono = frame[1] & 0x08, frame[3] >> 6 == 3
    side_information = (17 if mono else 32) if mpeg1 else (9 if mono else 17)
    no_crc, no_padding = frame[1] | 0x01, frame[2] & ~0x02
    header = bytes([frame[0], no_crc, no_padding, frame[3]])
    stream_size_follows = 0x02
    tag = b"Info" + struct.pack(">II", stream_size_follows, UNKNOWN_LENGTH)
    lame = b"LAME3.100" + bytes(12) + (_LAME_DELAY << 12).to_bytes(3, "big") + bytes(12)
    return (header + bytes(side_information) + tag + lame).ljust(_mp3_frame_bytes(header), b"\0")


_LAME_DELAY, _DECODER_DELAY = 576, 529
"""Samples LAME and every decoder put in front; a decoder that knows the first skips both."""


def _mp3_frame_bytes(header: bytes) -> int:
    """Length of an unpadded layer III frame by its header (ISO 11172-3 2.4.2.3, 13818-3 2.4.2.3)."""
    version, bit_rate_index, rate_index = header[1] >> 3 & 3, header[2] >> 4, header[2] >> 2 & 3
    mpeg1 = version == 3
    bit_rates = _MPEG1_KBITS if mpeg1 else _MPEG2_KBITS
    rate = (44_100, 48_000, 32_000)[rate_index] // {3: 1, 2: 2, 0: 4}[version]
    return (144 if mpeg1 else 72) * bit_rates[bit_rate_index] * 1000 // rate


_MPEG1_KBITS = (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)
_MPEG2_KBITS = (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)
