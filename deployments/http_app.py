"""The HTTP application: every route, and what stands in front of them all."""

from fastapi import FastAPI

from deployments import http_errors
from deployments.access import install_access
from deployments.routes import batch, catalogue, playground, socket, speech, voices
from deployments.service import SpeechService

DESCRIPTION = "Text to speech that can be repeated: the same request and seed give the same bytes."


def http_app(service: SpeechService) -> FastAPI:
    app = FastAPI(title="moss-tts-serve", description=DESCRIPTION, docs_url="/docs")
    http_errors.install(app)
    for routes in (speech, batch, socket, voices, catalogue, playground):
        app.include_router(routes.router(service))
    install_access(app, service.limits)
    return app
