"""How people say which server they mean: its address, and the variable that holds its key."""

import httpx

EXAMPLE = "http://127.0.0.1:8000"
KEY_VARIABLE = "MOSS_TTS_KEY"


def server_url(value: str) -> str:
    """The base URL, without the `/v1` that OpenAI's clients want. ValueError, for people, when it is none."""
    try:
        valid = httpx.URL(value).scheme in ("http", "https") and httpx.URL(value).host
    except httpx.InvalidURL:
        valid = False
    if not valid:
        raise ValueError(f"must be like {EXAMPLE}, not {value!r}")
    return value.rstrip("/").removesuffix("/v1")
