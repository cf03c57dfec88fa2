"""`stream_format: sse`: the audio of an answer as server-sent events, in the shape of OpenAI's speech API."""

import base64
import json
from typing import Any

from deployments.http_errors import ApiError, error_body

CONTENT_TYPE = "text/event-stream"


def delta(audio: bytes) -> bytes:
    """Some bytes of the file."""
    return _event({"type": "speech.audio.delta", "audio": base64.b64encode(audio).decode()})


def done(*, seed: int, finish_reason: str, input_tokens: int, output_tokens: int) -> bytes:
    """The end of a whole answer. Tokens of the text, and frames of the audio."""
    usage = {
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "total_tokens": input_tokens + output_tokens,
    }
    return _event({"type": "speech.audio.done", "usage": usage, "seed": seed, "finish_reason": finish_reason})


def failed(error: ApiError) -> bytes:
    """The end of an answer that broke off."""
    return _event({"type": "error", **error_body(error)})


def _event(data: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(data)}\n\n".encode()
