"""Who may call, how often, and from which pages: pure ASGI middleware in front of every route."""

import hmac
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from deployments.http_errors import ApiError, error_response, over_the_rate, unauthorized
from deployments.limits import HttpLimits
from pipeline.errors import SpeechError

OPEN_PATHS = frozenset({"/", "/health", "/ready", "/docs", "/openapi.json"})
"""Need no key: probes, and what a browser opens before anyone could give it one."""
EXPOSED_HEADERS = ("X-Seed", "X-Sample-Rate", "X-Channels", "X-Finish-Reason", "X-Request-Id", "Retry-After")


def install_access(app: FastAPI, limits: HttpLimits) -> None:
    """Keys and their limits where there is a file of keys; CORS where there are origins. SpeechError for a bad file."""
    if limits.api_keys_file is not None:
        app.add_middleware(
            KeyGate,
            keys=read_keys(limits.api_keys_file),
            at_once=limits.key_requests,
            per_minute=limits.key_requests_per_minute,
        )
    if limits.cors_origins:  # added last, so outermost: a refusal has its headers, too, and a preflight needs no key
        app.add_middleware(
            CORSMiddleware,
            allow_origins=limits.cors_origins,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "X-Request-Id"],
            expose_headers=EXPOSED_HEADERS,
        )


def read_keys(path: Path) -> frozenset[str]:
    """One key a line; blank lines and those that start with # do not count."""
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise SpeechError(f"http.api_keys_file {path.name} cannot be read: {error}") from None
    keys = frozenset(line for line in lines if line and not line.startswith("#"))
    if not keys:
        raise SpeechError(f"http.api_keys_file {path.name} holds no key, so nobody could call")
    return keys


@dataclass
class _Use:
    """What one key is doing. `allowance` is a token bucket: requests it may begin, refilled with time."""

    running: int = 0
    allowance: float = 0.0
    refilled: float | None = None


class KeyGate:
    """Lets requests with a known bearer key through, within the key's limits on this replica; 0 is no limit."""

    def __init__(
        self,
        app: ASGIApp,
        keys: frozenset[str],
        at_once: int = 0,
        per_minute: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._app = app
        self._keys = [key.encode() for key in keys]
        self._at_once = at_once
        self._per_minute = per_minute
        self._clock = clock
        self._uses: defaultdict[bytes, _Use] = defaultdict(_Use)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or _route(scope) in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        try:
            use = self._uses[self._key(scope)]
            self._enter(use)
        except ApiError as error:
            await _refuse(error, scope, receive, send)
            return
        try:
            await self._app(scope, receive, send)
        finally:
            use.running -= 1

    def _key(self, scope: Scope) -> bytes:
        kind, _, given = dict(scope["headers"]).get(b"authorization", b"").partition(b" ")
        given = given.strip()
        # All are compared, each in constant time: how long it takes tells nothing about any of them.
        matches = [key for key in self._keys if hmac.compare_digest(key, given)]
        if kind.lower() != b"bearer" or not matches:
            raise unauthorized()
        return matches[0]

    def _enter(self, use: _Use) -> None:
        if self._at_once and use.running >= self._at_once:
            raise over_the_rate(f"this key has {use.running} requests running already, as many as it may", 1)
        if self._per_minute:
            self._refill(use)
            if use.allowance < 1:
                wait = ceil((1 - use.allowance) * 60 / self._per_minute)
                raise over_the_rate(f"this key may begin {self._per_minute} requests a minute", wait)
            use.allowance -= 1
        use.running += 1

    def _refill(self, use: _Use) -> None:
        now = self._clock()
        gained = self._per_minute if use.refilled is None else (now - use.refilled) * self._per_minute / 60
        use.allowance = min(use.allowance + gained, self._per_minute)
        use.refilled = now


def _route(scope: Scope) -> str:
    """The path below the application's route prefix."""
    return scope["path"].removeprefix(scope.get("root_path", "")) or "/"


async def _refuse(error: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await receive()  # the connection request; closing before accepting answers it with 403
        await send({"type": "websocket.close", "code": 4401 if error.status == 401 else 4429})
        return
    await error_response(error)(scope, receive, send)
