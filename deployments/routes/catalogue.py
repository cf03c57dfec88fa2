"""What is served, and whether it is up."""

from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from deployments.http_errors import ERROR_RESPONSES
from deployments.service import SpeechService


def router(service: SpeechService) -> APIRouter:
    routes = APIRouter()

    def model_card(name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": service.started, "owned_by": "moss-tts-serve"}

    @routes.get("/v1/models")
    async def models() -> dict[str, Any]:
        """The served model and its aliases, in OpenAI's shape."""
        return {"object": "list", "data": [model_card(name) for name in service.served.models]}

    @routes.get("/v1/models/{name}", responses={404: ERROR_RESPONSES[404]})
    async def model(name: str) -> dict[str, Any]:
        """One model by name or alias."""
        service.served.check_model(name)
        return model_card(name)

    @routes.get("/health")
    async def health() -> dict[str, str]:
        """The process is up."""
        return {"status": "ok"}

    @routes.get("/ready", responses={503: ERROR_RESPONSES[503]})
    async def ready() -> JSONResponse:
        """A warm-up synthesis has gone through every deployment, and all of them make progress."""
        await service.check_ready()
        return JSONResponse({"status": "ready"})

    return routes
