"""How much one HTTP request may ask for."""

from pydantic import BaseModel, ConfigDict, Field


class HttpLimits(BaseModel):
    """The `http` section of a configuration."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_input_chars: int = Field(20_000, ge=1, description="characters of `input`, and of each other text")
    max_frames: int = Field(4096, ge=1, description="audio frames one request may take")
    max_body_bytes: int = Field(32 * 2**20, ge=1, description="bytes of a request body")
