"""Reference clips given as URLs, fetched so that no caller can make the server reach what the operator did not list."""

import asyncio
import logging
import re
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Self

import httpcore
import httpx

from deployments.http_errors import ApiError, bad_request
from pipeline.errors import EngineStopped, QueueFull, SpeechError

MOST_AT_ONCE = 8
"""Connections of one fetcher; further fetches wait, within their time."""
MOST_REDIRECTS = 3

_MOST_ADDRESSES = 4
_DEFAULT_PORTS = {"http": 80, "https": 443}
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HOST_NAME = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")
_PRIVATE = "private:"

_GLOBAL_UNICAST = IPv6Network("2000::/3")  # RFC 4291; nothing outside of it is assigned to hosts of the Internet
_6TO4 = IPv6Network("2002::/16")  # RFC 3056, given up by RFC 7526; it embeds an IPv4 address
_NAT64 = IPv6Network("64:ff9b::/96")  # RFC 6052; what a resolver gives for an IPv4 host where there is IPv6 only
_PROTOCOL_ASSIGNMENTS = IPv4Network("192.0.0.0/24")  # RFC 6890; some clouds serve their metadata from it

_NO_URL = "ref_audio as a URL must be like https://host/path, without user and password"
_UNREACHABLE = "its host cannot be reached, or not securely"
_NO_ANSWER = "its host gave no proper answer"

log = logging.getLogger("ray.serve")

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""From a host name or address and a port to IP addresses; OSError or UnicodeError where there are none."""


def is_public(address: str) -> bool:
    """Whether an IP address belongs to a host of the Internet, by itself and by the IPv4 address it may stand for.

    Stricter than `ipaddress.is_global`, which knows neither what is embedded nor multicast, and differs between
    versions of Python.
    """
    ip = ip_address(address)
    if isinstance(ip, IPv6Address):
        if ip.ipv4_mapped is None and ip not in _NAT64:
            return ip.is_global and ip in _GLOBAL_UNICAST and ip not in _6TO4
        ip = IPv4Address(int(ip) & 0xFFFF_FFFF)
    return ip.is_global and not ip.is_multicast and ip not in _PROTOCOL_ASSIGNMENTS


@dataclass(frozen=True)
class _Place:
    """Where a URL leads. `host` is lower case and IDNA-encoded, an IPv6 address in its canonical spelling."""

    scheme: str
    host: str
    port: int

    @classmethod
    def of(cls, url: httpx.URL) -> Self:
        """ValueError for a URL that leads nowhere this server would go."""
        port = _DEFAULT_PORTS.get(url.scheme, 0) if url.port is None else url.port
        if url.scheme not in _DEFAULT_PORTS or url.userinfo or not 0 < port < 2**16:
            raise ValueError("not a plain http or https URL")
        return cls(url.scheme, _canonical(url.raw_host.decode("ascii")), port)


@dataclass(frozen=True)
class _Listed:
    """One entry of the list: a host, or all its subdomains; `private` where its addresses need not be public."""

    place: _Place
    subdomains: bool
    private: bool

    @classmethod
    def of(cls, entry: str) -> Self:
        """From `[private:][http://]host[:port]`, where a host may start with `*.`; SpeechError for anything else."""
        scheme, _, host = entry.removeprefix(_PRIVATE).rpartition("://")
        try:
            url = httpx.URL(f"{scheme or 'https'}://{host.removeprefix('*.')}")
            if url.raw_path != b"/" or url.fragment:
                raise ValueError("more than a host")
            return cls(_Place.of(url), host.startswith("*."), entry.startswith(_PRIVATE))
        except (httpx.InvalidURL, ValueError):
            message = f'"{entry}" is no host to fetch clips from; write host, *.host or host:port'
            raise SpeechError(message) from None

    def admits(self, place: _Place) -> bool:
        same = place.host.endswith(f".{self.place.host}") if self.subdomains else place.host == self.place.host
        return same and (place.scheme, place.port) == (self.place.scheme, self.place.port)


class ClipFetcher:
    """Fetches over https from the listed hosts: `clips.example`, `*.cdn.example`, `clips.example:8443`.

    An entry `http://intranet.example:8080` allows plain http; `private:` in front of an entry allows addresses that
    are not public. `most_bytes` limits the clip, `seconds` all that a fetch does. `resolve` looks hosts up, `tls`
    says whom to trust: by default the system's resolver, and the authorities that browsers trust. SpeechError for an
    entry that is no host.
    """

    def __init__(
        self,
        hosts: Iterable[str],
        *,
        most_bytes: int,
        seconds: float,
        resolve: Resolve | None = None,
        tls: ssl.SSLContext | None = None,
    ):
        self._hosts = [_Listed.of(entry) for entry in hosts]
        self._most_bytes = most_bytes
        self._seconds = seconds
        self._resolve = resolve or _system_resolve
        self._tls = tls or httpx.create_ssl_context(trust_env=False)
        self._slots = asyncio.Semaphore(MOST_AT_ONCE)
        self._clocks: set[asyncio.Timeout] = set()
        self._closed = False

    async def fetch(self, url: str) -> bytes:
        """The body behind a URL. ApiError 400 where it may not or cannot be fetched; QueueFull when others
        take all the time there is; EngineStopped when closed.

        A caller that is cancelled closes the connection.
        """
        if self._closed:
            raise EngineStopped("clips are not fetched any more")
        target = _parsed(url)
        async with self._limits():
            return await self._follow(target)

    async def close(self) -> None:
        """Ends the fetches under way with EngineStopped, and waits until their connections are closed."""
        if self._closed:
            return
        self._closed = True
        for clock in self._clocks:
            if not clock.expired():
                clock.reschedule(asyncio.get_running_loop().time())
        for _ in range(MOST_AT_ONCE):
            await self._slots.acquire()

    @asynccontextmanager
    async def _limits(self) -> AsyncIterator[None]:
        waiting = True
        try:
            async with asyncio.timeout(self._seconds) as clock:
                self._clocks.add(clock)
                try:
                    async with self._slots:
                        waiting = False
                        yield
                finally:
                    self._clocks.discard(clock)
        except TimeoutError:
            if self._closed:
                raise EngineStopped("clips are not fetched any more") from None
            if waiting:
                raise QueueFull("too many other clips are being fetched") from None
            raise _unfetchable(f"it took more than {self._seconds:g} s") from None

    async def _follow(self, target: httpx.URL) -> bytes:
        whose = "its host"
        for _ in range(1 + MOST_REDIRECTS):
            answer = await self._get(target, whose)
            if isinstance(answer, bytes):
                return answer
            target, whose = answer, "a host it redirects to"
        raise _unfetchable(f"it redirects more than {MOST_REDIRECTS} times")

    async def _get(self, url: httpx.URL, whose: str) -> bytes | httpx.URL:
        """The body, or where it redirects to. A connection of its own, which outlives nothing."""
        place = _Place.of(url)
        network = _Pinned(await self._addresses(place, whose), self._seconds)
        target = httpcore.URL(scheme=place.scheme, host=place.host, port=place.port, target=url.raw_path)
        connection = httpcore.AsyncHTTPConnection(target.origin, self._tls, network_backend=network)
        try:
            async with connection.stream("GET", target, headers=_request_headers(url)) as response:
                return await self._read(url, response)
        except httpcore.ConnectError as error:
            raise _unfetchable(_UNREACHABLE) from error
        except (httpcore.NetworkError, httpcore.ProtocolError, OSError) as error:
            raise _unfetchable(_NO_ANSWER) from error
        finally:
            await network.aclose()

    async def _addresses(self, place: _Place, whose: str) -> list[str]:
        """What the host resolves to, once and for all: what is checked here is what is connected to."""
        entries = [entry for entry in self._hosts if entry.admits(place)]
        if not entries:
            listed = "list for plain http" if place.scheme == "http" else "list"
            raise _unfetchable(f"{whose} is not on this server's {listed}")
        try:
            addresses = await self._resolve(place.host, place.port)
        except (OSError, UnicodeError) as error:
            raise _unfetchable(_UNREACHABLE) from error
        may_be_private = any(entry.private for entry in entries)
        if not addresses or not (may_be_private or all(map(is_public, addresses))):
            log.warning("%s, a host to fetch clips from, has addresses that are not public: refused", place.host)
            raise _unfetchable(_UNREACHABLE)
        return addresses[:_MOST_ADDRESSES]

    async def _read(self, url: httpx.URL, response: httpcore.Response) -> bytes | httpx.URL:
        headers = httpx.Headers(response.headers)
        if response.status in _REDIRECTS and "location" in headers:
            return _redirected(url, headers["location"])
        if response.status != 200:
            raise _unfetchable(f"its host answered with status {response.status}")
        if headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
            raise _unfetchable("its host sent it compressed, unasked")
        if int(headers.get("content-length", 0)) > self._most_bytes:
            raise self._too_large()
        body = bytearray()
        async for part in response.aiter_stream():
            body += part
            if len(body) > self._most_bytes:
                raise self._too_large()
        return bytes(body)

    def _too_large(self) -> ApiError:
        return bad_request(f"ref_audio is larger than the limit of {self._most_bytes} bytes", "ref_audio")


class _Pinned(httpcore.AsyncNetworkBackend):
    """Connects to one of the addresses it was made with, whatever host is asked for; TLS still verifies the host.

    It keeps the stream, to close it in every case: a TLS handshake that is cancelled would leave it open.
    """

    def __init__(self, addresses: list[str], seconds: float):
        self._addresses = addresses
        self._seconds_each = seconds / (1 + len(addresses))  # so that one which is silent leaves time for the next
        self._stream: httpcore.AsyncNetworkStream | None = None

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        for address in self._addresses[:-1]:
            with suppress(httpcore.ConnectError, httpcore.ConnectTimeout):
                return await self._connect(address, port, self._seconds_each)
        return await self._connect(self._addresses[-1], port)

    async def aclose(self) -> None:
        if self._stream is not None:
            await self._stream.aclose()

    async def _connect(self, address: str, port: int, seconds: float | None = None) -> httpcore.AsyncNetworkStream:
        self._stream = await httpcore.AnyIOBackend().connect_tcp(address, port, timeout=seconds)
        return self._stream


async def _system_resolve(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [address[0] for *_, address in found]


def _canonical(host: str) -> str:
    """ValueError for what is neither a host name nor an address."""
    if ":" in host:
        return IPv6Address(host).compressed
    host = host.removesuffix(".")  # the root of the DNS, which certificates do not name
    if not _HOST_NAME.fullmatch(host):
        raise ValueError("not a host name")
    return host


def _parsed(text: str) -> httpx.URL:
    try:
        url = httpx.URL(text.strip())
        _Place.of(url)
    except (httpx.InvalidURL, ValueError):
        raise bad_request(_NO_URL, "ref_audio") from None
    return url


def _redirected(url: httpx.URL, location: str) -> httpx.URL:
    try:
        target = url.join(location)
        _Place.of(target)
    except (httpx.InvalidURL, ValueError):
        raise _unfetchable("it redirects to what is no http or https URL") from None
    return target


def _request_headers(url: httpx.URL) -> list[tuple[bytes, bytes]]:
    return [
        (b"Host", url.netloc),
        (b"User-Agent", b"speech-server"),
        (b"Accept", b"audio/*, */*;q=0.5"),
        (b"Accept-Encoding", b"identity"),
        (b"Connection", b"close"),
    ]


def _unfetchable(why: str) -> ApiError:
    return bad_request(f"ref_audio cannot be fetched: {why}", "ref_audio")
