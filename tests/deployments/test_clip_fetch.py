"""Clips by URL: from listed hosts and public addresses only, within limits, and with nothing left open."""

import asyncio
import gzip
import ipaddress
import ssl
from collections import Counter
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from deployments.clip_fetch import MOST_AT_ONCE, MOST_REDIRECTS, ClipFetcher, is_public
from deployments.http_errors import ApiError
from pipeline.errors import EngineStopped, QueueFull, SpeechError

CLIP = bytes(range(256)) * 300
UNLISTED = "ref_audio cannot be fetched: its host is not on this server's list"
UNREACHABLE = "ref_audio cannot be fetched: its host cannot be reached, or not securely"
NO_ANSWER = "ref_audio cannot be fetched: its host gave no proper answer"
TOO_LARGE = "ref_audio is larger than the limit of 100000 bytes"
NO_URL = "ref_audio as a URL must be like https://host/path, without user and password"


def ok(body, *headers):
    return reply("200 OK", *headers, f"Content-Length: {len(body)}", body=body)


def reply(status, *headers, body=b""):
    return "\r\n".join([f"HTTP/1.1 {status}", *headers, "", ""]).encode() + body


def redirect(location, status="302 Found"):
    return reply(status, f"Location: {location}", "Content-Length: 0")


async def forever(writer, head=b"", part=b""):
    """Sends the head, then the part again and again."""
    writer.write(head)
    while True:
        writer.write(part)
        await writer.drain()
        await asyncio.sleep(0 if len(part) > 1000 else 0.01)


class Host:
    """A server on loopback. Its connections get the answers in turn, the last one over and over."""

    def __init__(self, *answers):
        self.answers = answers
        self.requests = []
        self.open = self.opened = 0
        self.arrived = asyncio.Event()
        self.reads_request = True

    async def serve(self, reader, writer):
        answer = self.answers[min(self.opened, len(self.answers) - 1)]
        self.opened += 1
        self.open += 1
        try:
            if self.reads_request:
                self.requests.append((await reader.readuntil(b"\r\n\r\n")).decode())
            self.arrived.set()
            if callable(answer):
                await answer(writer)
            else:
                writer.write(answer)
            await reader.read()
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            pass
        finally:
            self.open -= 1
            writer.close()

    def headers(self, index=0):
        return dict(line.split(": ", 1) for line in self.requests[index].split("\r\n")[1:] if line)

    def paths(self):
        return [request.split(" ")[1] for request in self.requests]

    async def is_left(self):
        async with asyncio.timeout(10):
            while self.open:
                await asyncio.sleep(0.01)


@asynccontextmanager
async def running(*answers, tls=None, reads_request=True):
    host = Host(*answers)
    host.reads_request = reads_request
    server = await asyncio.start_server(host.serve, "127.0.0.1", 0, ssl=tls)
    host.port = server.sockets[0].getsockname()[1]
    host.base = f"http://127.0.0.1:{host.port}"
    async with server:
        yield host


def fetcher(*hosts, most_bytes=100_000, seconds=20.0, **options):
    return ClipFetcher(hosts, most_bytes=most_bytes, seconds=seconds, **options)


def local(*hosts, **options):
    """A fetcher that may go to these servers on loopback."""
    return fetcher(*(f"private:{host.base}" for host in hosts), **options)


class Names:
    """Stands in for the DNS: each look-up of a name gets the next of its answers, the last one over and over."""

    def __init__(self, **answers):
        self.answers = {name.replace("_", "."): addresses for name, addresses in answers.items()}
        self.asked = []

    async def __call__(self, host, port):
        times = Counter(asked for asked, _ in self.asked)[host]
        self.asked.append((host, port))
        if host not in self.answers:
            raise OSError(-2, "Name or service not known")
        answers = self.answers[host]
        return answers[min(times, len(answers) - 1)]


async def refusal(fetching):
    with pytest.raises(ApiError) as raised:
        await fetching
    assert (raised.value.status, raised.value.param) == (400, "ref_audio")
    return raised.value.message


async def test_a_clip_is_fetched_as_it_is():
    async with running(ok(CLIP)) as host:
        assert await local(host).fetch(f"  {host.base}/voices/a%20b.wav?key=1#part\n") == CLIP
        await host.is_left()
    assert host.paths() == ["/voices/a%20b.wav?key=1"]


async def test_a_chunked_body_and_one_without_a_length_are_fetched_whole():
    chunked = reply("200 OK", "Transfer-Encoding: chunked", body=b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")

    async def until_closed(writer):
        writer.write(reply("200 OK", body=b"abcde"))
        writer.close()

    async with running(chunked, until_closed) as host:
        fetch = local(host).fetch
        assert [await fetch(host.base), await fetch(host.base)] == [b"abcde", b"abcde"]


async def test_a_request_carries_nothing_of_the_server(monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    cookie = reply("302 Found", "Location: /next", "Set-Cookie: a=b; Path=/", "Content-Length: 0")
    async with running(cookie, ok(CLIP)) as host:
        assert await local(host).fetch(host.base) == CLIP
    expected = {
        "Host": f"127.0.0.1:{host.port}",
        "User-Agent": "speech-server",
        "Accept": "audio/*, */*;q=0.5",
        "Accept-Encoding": "identity",
        "Connection": "close",
    }
    assert [host.headers(0), host.headers(1)] == [expected, expected]


# Which hosts are on the list


@pytest.mark.parametrize(
    "url",
    [
        "https://other.example/a.wav",
        "https://clips.example.other.example/",
        "https://xclips.example/",
        "https://sub.clips.example/",
        "https://cdn.example/",
        "https://xcdn.example/",
        "https://clips.example:8443/",
        "https://clips.example:80/",
        "https://port.example/",
        "https://127.0.0.1/",
        "https://2130706433/",
        "https://0x7f000001/",
        "https://127.1/",
        "https://[::1]/",
        "https://[::ffff:127.0.0.1]/",
        "https://[fe80::1%25eth0]/",
        "https://localhost/",
        "https://192.0.2.7/",
    ],
)
async def test_what_is_not_listed_is_not_even_looked_up(url):
    names = Names()
    hosts = ("clips.example", "*.cdn.example", "port.example:8443", "[2001:db8::7]", "198.51.100.7")
    assert await refusal(fetcher(*hosts, resolve=names).fetch(url)) == UNLISTED
    assert names.asked == []


async def test_plain_http_needs_an_entry_of_its_own():
    names = Names()
    fetch = fetcher("clips.example", resolve=names).fetch
    assert await refusal(fetch("http://clips.example/")) == f"{UNLISTED} for plain http"
    assert await refusal(fetch("http://clips.example:443/")) == f"{UNLISTED} for plain http"
    assert await refusal(fetcher("http://clips.example", resolve=names).fetch("https://clips.example/")) == UNLISTED
    assert names.asked == []


@pytest.mark.parametrize(
    ("entry", "url", "asked"),
    [
        ("clips.example", "https://clips.example/a", ("clips.example", 443)),
        ("clips.example", "HTTPS://CLIPS.Example:443", ("clips.example", 443)),
        ("Clips.Example", "https://clips.example", ("clips.example", 443)),
        ("clips.example", "https://clips.example./", ("clips.example", 443)),
        ("clips.example:8443", "https://clips.example:8443/", ("clips.example", 8443)),
        ("*.cdn.example", "https://a.b.cdn.example/", ("a.b.cdn.example", 443)),
        ("http://clips.example", "http://clips.example/", ("clips.example", 80)),
        ("http://clips.example:8080", "http://clips.example:8080/", ("clips.example", 8080)),
        ("bücher.example", "https://BÜCHER.example/", ("xn--bcher-kva.example", 443)),
        ("xn--bcher-kva.example", "https://bücher.example/", ("xn--bcher-kva.example", 443)),
        ("*.bücher.example", "https://www.bücher.example/", ("www.xn--bcher-kva.example", 443)),
        ("clips.example", "https://clips。example/", ("clips.example", 443)),
        ("192.0.2.7", "https://192.0.2.7/", ("192.0.2.7", 443)),
        ("[2001:db8::7]", "https://[2001:DB8:0::7]/", ("2001:db8::7", 443)),
    ],
)
async def test_what_is_listed_is_looked_up(entry, url, asked):
    names = Names()
    assert await refusal(fetcher(entry, resolve=names).fetch(url)) == UNREACHABLE
    assert names.asked == [asked]


@pytest.mark.parametrize(
    "url",
    [
        "",
        "clips.example/a.wav",
        "https://",
        "https:///a.wav",
        "//clips.example/a.wav",
        "ftp://clips.example/",
        "file:///etc/passwd",
        "https://user@clips.example/",
        "https://user:word@clips.example/",
        "https://clips.example@other.example/",
        "https://clips.example:99999/",
        "https://clips.example:0/",
        "https://clips.example:x/",
        "https://clips.example\\.other.example/",
        "https://clips%2eexample/",
        "https://clips..example/",
        "https://.clips.example/",
        "https://" + 64 * "a" + ".clips.example/",
        "https://256.1.1.1/",
        "https://0177.0.0.1/",
        "https://[::1/",
        "https://ｃlips.example/",
        "https://clips.example/\r\nX: y",
        "https://clips.example/\ud800",
        "https://\ud800.example/",
        "https://clips.example/" + 70_000 * "a",
    ],
)
async def test_what_is_no_proper_url_is_refused(url):
    names = Names()
    assert await refusal(fetcher("clips.example", "*.clips.example", resolve=names).fetch(url)) == NO_URL
    assert names.asked == []


@pytest.mark.parametrize(
    "entry",
    ["", "*", "*.", "a b", "host/path", "host?x", "host#x", "u@host", "ftp://host", "h:0", "h:x", "*.*.h", "private:"],
)
def test_an_entry_that_is_no_host_is_refused(entry):
    with pytest.raises(SpeechError, match="is no host to fetch clips from"):
        fetcher(entry)


# Which addresses a host may have


@pytest.mark.parametrize(
    "address",
    ["93.184.216.34", "8.8.8.8", "2606:2800:220:1::1", "::ffff:8.8.8.8", "64:ff9b::808:808"],
)
def test_addresses_of_the_internet_are_public(address):
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "0.0.0.0",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.100.100.200",
        "192.0.0.192",
        "198.18.0.1",
        "224.0.0.1",
        "239.255.255.250",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::127.0.0.1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "::ffff:0:127.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::808:808",
        "2002:7f00:1::",
        "2002:a9fe:a9fe::1",
        "2001:0:7f00:1::1",
        "2001:db8::1",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "fe80::1%eth0",
        "fec0::1",
        "ff02::1",
        "ff0e::1",
    ],
)
def test_all_other_addresses_are_not(address):
    assert not is_public(address)


@pytest.mark.parametrize(
    "addresses",
    [["127.0.0.1"], ["::ffff:127.0.0.1"], ["93.184.216.34", "127.0.0.1"], ["127.0.0.1", "93.184.216.34"], []],
)
async def test_a_listed_host_with_a_private_address_is_not_connected_to(addresses):
    async with running(ok(CLIP)) as host:
        inside = fetcher(f"http://clips.example:{host.port}", resolve=Names(clips_example=[addresses]))
        assert await refusal(inside.fetch(f"http://clips.example:{host.port}/")) == UNREACHABLE
        assert await refusal(fetcher(host.base).fetch(host.base)) == UNREACHABLE
    assert host.opened == 0


async def test_a_host_is_looked_up_once_and_reached_at_the_address_that_was_checked():
    async with running(ok(CLIP)) as host:
        names = Names(clips_example=[["127.0.0.1"], ["192.0.2.1"]])
        entry = f"http://clips.example:{host.port}"
        assert await fetcher(f"private:{entry}", resolve=names).fetch(entry) == CLIP
    assert names.asked == [("clips.example", host.port)]
    assert host.headers()["Host"] == f"clips.example:{host.port}"


@pytest.mark.parametrize("addresses", [["127.0.0.1", "127.0.0.2"], ["127.0.0.2", "127.0.0.1"]])
async def test_any_of_the_addresses_will_do(addresses):
    async with running(ok(CLIP)) as host:
        names = Names(clips_example=[addresses])
        entry = f"http://clips.example:{host.port}"
        assert await fetcher(f"private:{entry}", resolve=names).fetch(entry) == CLIP


async def test_a_port_where_nobody_listens_is_told_without_details():
    async with running(ok(CLIP)) as host:
        pass
    assert await refusal(local(host).fetch(host.base)) == UNREACHABLE


async def test_the_system_resolver_is_asked_by_default():
    async with running(ok(CLIP)) as host:
        assert await fetcher(f"private:http://localhost:{host.port}").fetch(f"http://localhost:{host.port}/") == CLIP


# Redirects


@pytest.mark.parametrize("status", ["301 M", "302 F", "303 S", "307 T", "308 P"])
async def test_a_redirect_is_followed(status):
    async with running(redirect("../b.wav?x=1", status), ok(CLIP)) as host:
        assert await local(host).fetch(f"{host.base}/old/a.wav") == CLIP
    assert host.paths() == ["/old/a.wav", "/b.wav?x=1"]


async def test_a_redirect_loop_ends():
    async with running(redirect("/again")) as host:
        message = await refusal(local(host).fetch(host.base))
        await host.is_left()
    assert message == "ref_audio cannot be fetched: it redirects more than 3 times"
    assert host.opened == 1 + MOST_REDIRECTS


async def test_a_redirect_to_a_host_that_is_not_listed_is_not_followed():
    async with running(ok(CLIP)) as other, running(redirect(other.base)) as host:
        message = await refusal(local(host).fetch(host.base))
    assert message == (
        "ref_audio cannot be fetched: a host it redirects to is not on this server's list for plain http"
    )
    assert other.opened == 0


async def test_a_redirect_to_a_private_address_is_not_followed():
    async with running(ok(CLIP)) as inside:
        target = f"http://cdn.example:{inside.port}"
        async with running(redirect(target)) as host:
            names = Names(cdn_example=[["127.0.0.1"]])
            names.answers["127.0.0.1"] = [["127.0.0.1"]]
            both = fetcher(f"private:{host.base}", target, resolve=names)
            assert await refusal(both.fetch(host.base)) == UNREACHABLE
    assert names.asked[-1] == ("cdn.example", inside.port)
    assert inside.opened == 0


@pytest.mark.parametrize("location", ["file:///etc/passwd", "http://u:p@127.0.0.1/", "http://[", "gopher://127.0.0.1"])
async def test_a_redirect_to_what_is_no_proper_url_is_not_followed(location):
    async with running(redirect(location)) as host:
        message = await refusal(local(host).fetch(host.base))
    assert message == "ref_audio cannot be fetched: it redirects to what is no http or https URL"


# Size, time and form of the answer


async def test_a_clip_of_just_the_limit_is_fetched():
    async with running(ok(100_000 * b"a"), ok(100_001 * b"a")) as host:
        assert await local(host).fetch(host.base) == 100_000 * b"a"
        assert await refusal(local(host).fetch(host.base)) == TOO_LARGE


async def test_a_length_over_the_limit_is_refused_before_the_body_comes():
    async with running(reply("200 OK", "Content-Length: 100001")) as host:
        assert await refusal(local(host).fetch(host.base)) == TOO_LARGE
        await host.is_left()


@pytest.mark.parametrize(
    ("header", "part"),
    [("X-Length: none", 4096 * b"a"), ("Transfer-Encoding: chunked", b"1000\r\n" + 4096 * b"a" + b"\r\n")],
)
async def test_an_endless_body_is_cut_at_the_limit(header, part):
    async with running(lambda writer: forever(writer, reply("200 OK", header), part)) as host:
        assert await refusal(local(host).fetch(host.base)) == TOO_LARGE
        await host.is_left()


async def test_a_body_shorter_than_its_length_is_no_clip():
    async def short(writer):
        writer.write(reply("200 OK", "Content-Length: 1000", body=b"abc"))
        writer.close()

    async with running(short) as host:
        assert await refusal(local(host).fetch(host.base)) == NO_ANSWER


async def test_a_body_goes_no_further_than_its_length():
    async with running(reply("200 OK", "Content-Length: 3", body=b"abcdef")) as host:
        assert await local(host).fetch(host.base) == b"abc"


@pytest.mark.parametrize("encoding", ["gzip", "GZIP", "br", "identity, gzip"])
async def test_a_compressed_body_is_not_unpacked(encoding):
    bomb = gzip.compress(bytes(2**20))
    async with running(ok(bomb, f"Content-Encoding: {encoding}")) as host:
        message = await refusal(local(host).fetch(host.base))
    assert message == "ref_audio cannot be fetched: its host sent it compressed, unasked"


@pytest.mark.parametrize("status", ["204 N", "206 P", "300 M", "304 N", "403 F", "404 N", "500 I"])
async def test_a_status_other_than_200_is_named(status):
    async with running(reply(status, body=b"/srv/secret")) as host:
        message = await refusal(local(host).fetch(host.base))
    assert message == f"ref_audio cannot be fetched: its host answered with status {status[:3]}"


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-server\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + 200_000 * b"a",
    ],
)
async def test_what_is_not_http_is_told_without_details(answer):
    async with running(answer) as host:
        assert await refusal(local(host).fetch(host.base)) == NO_ANSWER
        await host.is_left()


async def test_a_host_that_hangs_up_is_told_without_details():
    async def hang_up(writer):
        writer.close()

    async with running(hang_up) as host:
        assert await refusal(local(host).fetch(host.base)) == NO_ANSWER


@pytest.mark.parametrize(
    ("head", "part"),
    [
        (b"", b""),
        (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"),
        (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
        (reply("200 OK", "Content-Length: 90000"), b"a"),
        (reply("200 OK", "Transfer-Encoding: chunked"), b"1\r\na\r\n"),
    ],
    ids=["no answer", "headers", "hints", "body", "chunks"],
)
async def test_a_slow_answer_is_given_up(head, part):
    answer = (lambda writer: forever(writer, head, part)) if part else head
    async with running(answer) as host:
        message = await refusal(local(host, seconds=0.25).fetch(host.base))
        await host.is_left()
    assert message == "ref_audio cannot be fetched: it took more than 0.25 s"


async def test_the_time_is_for_all_redirects_together():
    async def late(writer):
        await asyncio.sleep(0.2)
        writer.write(redirect("/again"))

    async with running(late) as host:
        message = await refusal(local(host, seconds=0.3).fetch(host.base))
    assert message == "ref_audio cannot be fetched: it took more than 0.3 s"


async def test_a_slow_look_up_is_given_up():
    async def stuck(host, port):
        await asyncio.Event().wait()

    message = await refusal(fetcher("clips.example", seconds=0.1, resolve=stuck).fetch("https://clips.example/"))
    assert message == "ref_audio cannot be fetched: it took more than 0.1 s"


# Connections


async def test_a_cancelled_caller_closes_the_connection():
    async with running(lambda writer: forever(writer, reply("200 OK", "Content-Length: 90000"), b"a")) as host:
        fetching = asyncio.create_task(local(host).fetch(host.base))
        await host.arrived.wait()
        fetching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetching
        await host.is_left()


async def test_no_more_than_so_many_connections_are_open_at_once():
    async def held(writer):
        await full.wait()
        writer.write(ok(CLIP))

    full = asyncio.Event()
    async with running(held) as host:
        clips = local(host)
        fetching = [asyncio.create_task(clips.fetch(host.base)) for _ in range(3 * MOST_AT_ONCE)]
        while host.opened < MOST_AT_ONCE:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)  # time for one more to come, if it could
        assert host.opened == MOST_AT_ONCE
        full.set()
        assert await asyncio.gather(*fetching) == [CLIP] * len(fetching)


async def test_who_only_waited_for_others_is_told_to_try_again():
    async with running(lambda writer: forever(writer, reply("200 OK", "Content-Length: 90000"), b"a")) as host:
        clips = local(host, seconds=0.5)
        fetching = [asyncio.create_task(clips.fetch(host.base)) for _ in range(MOST_AT_ONCE)]
        while host.opened < MOST_AT_ONCE:
            await asyncio.sleep(0.01)
        clips._seconds = 0.1
        with pytest.raises(QueueFull):
            await clips.fetch(host.base)
        for error in await asyncio.gather(*fetching, return_exceptions=True):
            assert isinstance(error, ApiError)


async def test_closing_ends_what_is_under_way_and_refuses_what_comes_later():
    async with running(lambda writer: forever(writer, reply("200 OK", "Content-Length: 90000"), b"a")) as host:
        clips = local(host, seconds=3600.0)
        under_way = [asyncio.create_task(clips.fetch(host.base)) for _ in range(MOST_AT_ONCE + 2)]
        await host.arrived.wait()
        async with asyncio.timeout(10):
            await clips.close()
        ends = await asyncio.gather(*under_way, return_exceptions=True)
        await host.is_left()
        with pytest.raises(EngineStopped):
            await clips.fetch(host.base)
        await clips.close()
    assert [type(end) for end in ends] == [EngineStopped] * len(under_way)


# TLS


class Authority:
    """A certificate authority made for one test."""

    def __init__(self):
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Test Authority")])
        authority = x509.BasicConstraints(ca=True, path_length=None)
        self.certificate = self._signed(self.name, self.key, [(authority, True)])

    def trusted(self):
        """What a client that trusts it uses."""
        pem = self.certificate.public_bytes(serialization.Encoding.PEM).decode()
        return ssl.create_default_context(cadata=pem)

    def server(self, folder, *names):
        """What a server with a certificate for these host names uses."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
        certificate = self._signed(subject, key, [(x509.SubjectAlternativeName([_general(n) for n in names]), False)])
        path = folder / f"{names[0]}.pem"
        form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        path.write_bytes(
            key.private_bytes(serialization.Encoding.PEM, *form) + certificate.public_bytes(serialization.Encoding.PEM)
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(path)
        return context

    def _signed(self, subject, key, extensions):
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder(subject_name=subject, issuer_name=self.name, public_key=key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        return builder.sign(self.key, hashes.SHA256())


def _general(name):
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


@pytest.fixture(scope="module")
def authority():
    return Authority()


def secure(host, name, tls):
    names = Names()
    names.answers = {name: [["127.0.0.1"]], "127.0.0.1": [["127.0.0.1"]]}
    return fetcher(f"private:{name}:{host.port}", resolve=names, tls=tls)


@pytest.mark.parametrize("name", ["clips.example", "xn--bcher-kva.example", "127.0.0.1"])
async def test_a_clip_is_fetched_over_tls_that_verifies_the_host(authority, tmp_path, name):
    async with running(ok(CLIP), tls=authority.server(tmp_path, name)) as host:
        clips = secure(host, name, authority.trusted())
        assert await clips.fetch(f"https://{name}:{host.port}/") == CLIP
        await host.is_left()


async def test_a_certificate_for_another_host_is_refused(authority, tmp_path):
    async with running(ok(CLIP), tls=authority.server(tmp_path, "other.example", "127.0.0.1")) as host:
        clips = secure(host, "clips.example", authority.trusted())
        assert await refusal(clips.fetch(f"https://clips.example:{host.port}/")) == UNREACHABLE
    assert host.requests == []


async def test_an_authority_nobody_knows_is_not_trusted(authority, tmp_path):
    async with running(ok(CLIP), tls=authority.server(tmp_path, "clips.example")) as host:
        clips = secure(host, "clips.example", None)
        assert await refusal(clips.fetch(f"https://clips.example:{host.port}/")) == UNREACHABLE
    assert host.requests == []


async def test_a_host_that_does_not_speak_tls_is_not_asked_in_plain_text():
    async with running(b"HTTP/1.1 200 OK\r\n\r\n", reads_request=False) as host:
        clips = secure(host, "clips.example", None)
        assert await refusal(clips.fetch(f"https://clips.example:{host.port}/")) == UNREACHABLE
        await host.is_left()


async def test_a_handshake_that_stalls_leaves_no_connection_open():
    async with running(b"", reads_request=False) as host:
        clips = secure(host, "clips.example", None)
        fetching = asyncio.create_task(clips.fetch(f"https://clips.example:{host.port}/"))
        await host.arrived.wait()
        await asyncio.sleep(0.05)
        fetching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetching
        await host.is_left()
