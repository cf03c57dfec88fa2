"""The codec: codes to audio for any number of streams at once, and audio to codes."""

from pipeline.codec.decoder import CodecDecoder
from pipeline.codec.encoder import CodecEncoder
from pipeline.codec.stack import StreamError, StreamState

__all__ = ["CodecDecoder", "CodecEncoder", "StreamError", "StreamState"]
