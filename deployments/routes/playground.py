"""GET /: a page to try the server with."""

from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from deployments.service import SpeechService

_PAGE = Path(__file__).parents[1] / "playground.html"


def router(service: SpeechService) -> APIRouter:
    routes = APIRouter()
    page = _PAGE.read_text(encoding="utf-8")

    @routes.get("/", response_class=HTMLResponse, include_in_schema=False)
    async def playground() -> str:
        return page

    return routes
