"""The application that `serve run serve_config.yaml` starts: four deployments, each pulling from the next."""

from pydantic import BaseModel
from ray.serve import Application

from deployments.backbone import Backbone
from deployments.codec import CodecDecoder
from deployments.depth import CONCURRENT_BATCHES, DepthSampler
from deployments.ingress import SpeechIngress
from deployments.replica import deployment_options
from deployments.settings import Settings


class AppArgs(BaseModel):
    """`args` of the application in the Serve configuration file."""

    config: str
    """Path of a settings file, e.g. configs/embedded.yaml"""


def build(args: AppArgs) -> Application:
    """Raises ConfigError for a settings file that is missing or wrong, before anything is deployed."""
    return bind(Settings.load(args.config))


def bind(settings: Settings) -> Application:
    """Wires the deployments: ingress -> codec -> backbone -> depth."""
    # Twice what an engine takes: requests that lost their replica come on top; the engine itself refuses the others.
    requests = 2 * (settings.backbone.max_running + settings.backbone.max_waiting)
    depth = DepthSampler.options(**deployment_options(settings, settings.depth, CONCURRENT_BATCHES)).bind(settings)
    backbone = Backbone.options(**deployment_options(settings, settings.backbone, requests)).bind(settings, depth)
    codec = CodecDecoder.options(**deployment_options(settings, settings.codec, settings.codec.max_requests)).bind(
        settings, backbone
    )
    return SpeechIngress.options(
        ray_actor_options=settings.ingress.actor_options,
        autoscaling_config=settings.ingress.autoscaling,
        max_ongoing_requests=settings.ingress.max_requests,
        max_queued_requests=settings.ingress.max_requests,
        backpressure_config={"status_code": 429, "retry_after_s": 1},
        graceful_shutdown_timeout_s=settings.drain_seconds,
    ).bind(settings, codec)
