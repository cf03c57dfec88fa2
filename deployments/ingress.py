"""The deployment that speaks HTTP. Serve builds its app after the constructor, with this replica's own settings."""

from fastapi import FastAPI
from ray import serve
from ray.serve.handle import DeploymentHandle

from deployments.http_app import http_app
from deployments.service import SpeechService
from deployments.settings import Settings


@serve.deployment(name="SpeechIngress")
@serve.ingress()
class SpeechIngress:
    def __init__(self, settings: Settings, codec: DeploymentHandle):
        self._service = SpeechService(settings, codec)

    def __serve_build_asgi_app__(self) -> FastAPI:
        return http_app(self._service)
