"""AAC output: an ADTS stream has neither a length nor a delay to skip, so packets are chosen to fit the audio."""

from pipeline.encoders import Framing, LibavEncoder, longest_surplus

AAC_RATES = (22_050, 24_000, 32_000, 44_100, 48_000)
"""Below, a frame lasts longer than 50 ms: a file that holds all of its audio could outlast it by more than that."""

_FRAME = 1024


def aac_encoder(rate: int, channels: int, streaming: bool) -> LibavEncoder:
    """AAC-LC in ADTS. The file is never shorter than its audio and at most 49 ms longer, whole and streamed.

    The audio starts up to a frame late: 23, 21, 17, 6 and 3 ms at 44.1, 48, 32, 24 and 22.05 kHz. At the last two
    the first 15 and 21 ms of it lie in the half frame that a decoder cannot restore; they are silent or fade in.
    """
    framing = _framing(rate)
    return LibavEncoder(rate, channels, streaming, container="adts", codec="aac", lossy=True, framing=framing)


def _framing(rate: int) -> Framing:
    """The first packet only completes the frame before the audio, so it is left out, and zeros go into that frame.

    A decoder restores a frame from two packets. Of a frame with the second alone, about half is lost.
    """
    return Framing(_FRAME, silence=min(_FRAME, longest_surplus(rate) - (_FRAME - 1)), dropped=1)
