"""What every replica that computes does first, and how it tells that it is stuck."""

import importlib
import logging
from typing import Any

import torch

from deployments.settings import Placement, Settings
from pipeline.errors import SpeechError


class Stalled(SpeechError):
    """Work has made no progress for too long; the replica should be replaced."""


def prepare_torch(placement: Placement) -> torch.device:
    """Sets this process up for its device. torch-npu registers its device on import and is needed nowhere else."""
    pipeline_log = logging.getLogger("pipeline")
    pipeline_log.parent = logging.getLogger("ray.serve")  # the one whose records Serve keeps
    pipeline_log.setLevel(logging.INFO)
    torch.set_num_threads(placement.threads)
    if placement.device == "npu":
        importlib.import_module("torch_npu")
    return torch.device(placement.device)


def check_progress(stalled_seconds: float, limit: float) -> None:
    """Raises Stalled, for a health check."""
    if stalled_seconds > limit:
        raise Stalled(f"no progress for {stalled_seconds:.0f} s")


def deployment_options(settings: Settings, placement: Placement, max_ongoing_requests: int) -> dict[str, Any]:
    """Ray Serve's options of a computing deployment. Admission is the replica's own: its queue is in order."""
    return {
        "ray_actor_options": placement.actor_options,
        "autoscaling_config": placement.autoscaling,
        "max_ongoing_requests": max_ongoing_requests,
        "max_queued_requests": max_ongoing_requests,
        "graceful_shutdown_timeout_s": settings.drain_seconds,
        "health_check_period_s": 5,
        "health_check_timeout_s": 30,
    }
