"""One YAML file per model and hardware, validated before anything is started."""

from pathlib import Path
from typing import Any, Literal, Self

import torch
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from deployments.limits import HttpLimits
from pipeline.determinism import Determinism
from pipeline.engine import EngineLimits
from pipeline.errors import SpeechError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class ConfigError(SpeechError):
    """A configuration that cannot be served; the message names the file and the fields."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelSection(_Section):
    """Which checkpoint is served. Relative paths start at the configuration file's directory."""

    name: str = "moss-tts-local"
    aliases: tuple[str, ...] = ("tts-1", "tts-1-hd", "gpt-4o-mini-tts")
    tts: Path
    codec: Path


class Replicas(_Section):
    """How many replicas of a deployment there may be, and what each asks of its node."""

    cpus: float = Field(0.1, ge=0, description="num_cpus of a replica, for scheduling")
    resources: dict[str, float] = Field(default={}, description="custom resources of Ray, to choose nodes by")
    autoscaling: dict[str, Any] = Field(
        default={"min_replicas": 1, "max_replicas": 1}, description="Ray Serve's autoscaling_config, as it is"
    )

    @property
    def actor_options(self) -> dict[str, Any]:
        """Ray's view of it."""
        return {"num_cpus": self.cpus, "resources": self.resources}


class Placement(Replicas):
    """What a replica that computes runs on."""

    device: Literal["cpu", "cuda", "npu"] = "cpu"
    device_share: float = Field(1.0, gt=0, description="GPUs or NPUs a replica asks for (cuda and npu only)")
    threads: int = Field(1, ge=1, description="torch threads of a replica on the CPU")
    dtype: Literal["float32", "bfloat16"] = "float32"

    @property
    def torch_dtype(self) -> torch.dtype:
        return DTYPES[self.dtype]

    @property
    def actor_options(self) -> dict[str, Any]:
        """Ray's view of it: `num_gpus` for cuda, the custom resource NPU for npu."""
        options = super().actor_options
        if self.device == "cuda":
            options["num_gpus"] = self.device_share
        if self.device == "npu":
            options["resources"] = {**self.resources, "NPU": self.device_share}
        return options


class BackboneSection(Placement):
    max_running: int = Field(EngineLimits.max_running, ge=1)
    max_waiting: int = Field(EngineLimits.max_waiting, ge=1)
    kv_blocks: int = Field(EngineLimits.kv_blocks, ge=1)
    block_size: int = Field(EngineLimits.block_size, ge=1)
    prefill_rows: int = Field(EngineLimits.prefill_rows, ge=1)
    cohorts: int = Field(EngineLimits.cohorts, ge=1, description="groups that take turns; 1 where all share the cores")
    random: Literal["counter", "generator"] = "counter"

    @property
    def limits(self) -> EngineLimits:
        return EngineLimits(
            max_running=self.max_running,
            max_waiting=self.max_waiting,
            kv_blocks=self.kv_blocks,
            block_size=self.block_size,
            prefill_rows=self.prefill_rows,
            cohorts=self.cohorts,
        )


class DepthSection(Placement):
    max_rows: int = Field(64, ge=1, description="rows of one pass, from any number of backbones")


class CodecSection(Placement):
    max_streams: int = Field(64, ge=1, description="streams with decoder state at once; others wait their turn")
    max_requests: int = Field(1024, ge=1, description="requests a replica holds, waiting ones included")
    reference_cache: int = Field(64, ge=0, description="encoded reference clips kept")


class IngressSection(Replicas):
    max_requests: int = Field(1024, ge=1, description="HTTP requests a replica holds, waiting ones included")


class VoicesSection(_Section):
    """Where uploaded voices are kept: a directory that all replicas share, or any URL that fsspec opens."""

    store: str | None = Field(None, description="without one, voices cannot be uploaded. Relative as in `model`")
    max_voices: int = Field(1000, ge=1)


class Settings(_Section):
    model: ModelSection
    backbone: BackboneSection = BackboneSection()
    depth: DepthSection = DepthSection()
    codec: CodecSection = CodecSection()
    ingress: IngressSection = IngressSection()
    voices: VoicesSection = VoicesSection()
    http: HttpLimits = HttpLimits()
    determinism: Determinism = Field(
        Determinism.BATCH_INVARIANT, description="relaxed: fused kernels, and bits that depend on the batch"
    )
    recovery_attempts: int = Field(5, ge=0, description="replicas one request or call may lose before it is given up")
    stall_seconds: float = Field(60.0, gt=0, description="work without progress for this long is unhealthy")
    drain_seconds: float = Field(900.0, gt=0, description="graceful shutdown: longer than the longest stream")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        most = self.backbone.limits.max_cohort
        if most > self.depth.max_rows:
            raise ValueError(
                f"backbone.max_running {self.backbone.max_running} makes steps of {most} rows, "
                f"more than depth.max_rows ({self.depth.max_rows}) takes in a pass"
            )
        return self

    @classmethod
    def load(cls, path: Path | str) -> "Settings":
        """Reads a YAML file; raises ConfigError naming the file and every field that is wrong."""
        path = Path(path)
        try:
            raw = yaml.safe_load(path.read_text(encoding="utf-8"))
            settings = cls.model_validate(raw)
        except FileNotFoundError:
            raise ConfigError(f"{path}: there is no such file") from None
        except yaml.YAMLError as error:
            raise ConfigError(f"{path} is not valid YAML: {error}") from None
        except ValidationError as error:
            raise ConfigError(f"{path}: {_readable(error)}") from None
        return settings._from(path.resolve().parent)

    def _from(self, here: Path) -> Self:
        """With relative paths starting at `here`."""
        model = self.model.model_copy(update={"tts": here / self.model.tts, "codec": here / self.model.codec})
        changed: dict[str, _Section] = {"model": model}
        if self.voices.store is not None and "://" not in self.voices.store:
            changed["voices"] = self.voices.model_copy(update={"store": str(here / self.voices.store)})
        if self.http.api_keys_file is not None:
            changed["http"] = self.http.model_copy(update={"api_keys_file": here / self.http.api_keys_file})
        return self.model_copy(update=changed)


def _readable(error: ValidationError) -> str:
    return "; ".join(
        f"{'.'.join(map(str, problem['loc'])) or 'the whole'}: {problem['msg']}" for problem in error.errors()
    )
