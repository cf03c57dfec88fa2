"""How much one HTTP request may ask for."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field


class HttpLimits(BaseModel):
    """The `http` section of a configuration."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_input_chars: int = Field(20_000, ge=1, description="characters of `input`, and of each other text")
    max_frames: int = Field(4096, ge=1, description="audio frames one request may take")
    part_frames: int = Field(
        375, ge=50, description="audio frames from which a text is spoken in parts, cut at sentence ends"
    )
    max_body_bytes: int = Field(32 * 2**20, ge=1, description="bytes of a request body")
    body_seconds: float = Field(60.0, gt=0, description="within which a body must have come")
    deadline_seconds: float = Field(900.0, gt=0, description="within which an answer must be made, waiting included")
    api_keys_file: Path | None = Field(
        None, description="a bearer key a line; without a file anyone may call. Relative to the configuration file"
    )
    key_requests: int = Field(0, ge=0, description="requests a key may have running at once on a replica; 0: no limit")
    key_requests_per_minute: int = Field(0, ge=0, description="requests a key may begin a minute; 0: no limit")
    clip_hosts: tuple[str, ...] = Field(
        (), description="hosts that `ref_audio` may name in an https URL; `*.example.com` for all below one"
    )
    clip_seconds: float = Field(10.0, gt=0, description="within which a clip must have been fetched")
    cors_origins: tuple[str, ...] = Field((), description="origins of pages that may call; * for any")
