"""Connections of the client: kept, closed, given up, and made through proxies."""

import asyncio
import base64
import gzip
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import orjson
import pytest
import uvloop

from frameworkcontroller.kube import errors
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.kube.kubeconfig import ServerAccess
from frameworkcontroller.kube.resources import CONFIGMAPS, PODS
from frameworkcontroller.kubeconfig.tls import Tls
from tests.support.certificates import Certificates, make_certificates
from tests.support.faulty_server import FaultyServer, answer, drop, event, faulty_server, silence, stream
from tests.support.virtual_clock import VirtualClockLoop

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@asynccontextmanager
async def talking(talk: Talk, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """A server on loopback that talks so on each connection; its host and port."""

    talks: list[asyncio.Task[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await talk(reader, writer)
        finally:
            writer.close()
            with suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talks.append(asyncio.create_task(serve(reader, writer)))

    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for one in talks:
            one.cancel()
        await asyncio.gather(*talks, return_exceptions=True)


async def head(reader: asyncio.StreamReader) -> str:
    """The next request without its body."""
    return (await reader.readuntil(b"\r\n\r\n")).decode()


def client_to(url: str) -> KubeClient:
    return KubeClient(Connection.to_address(url))


# Kept and closed.


async def test_an_idempotent_request_is_repeated_on_another_connection(clock: VirtualClockLoop) -> None:
    async with faulty_server() as server, client_to(server.url) as client:
        server.then(answer(), drop(), answer(b"again"))
        await client.get(PODS, "warm", "n")
        assert await client.get(PODS, "a", "n") == b"again"
        assert server.connections == 2
        # But only once, and not if the connection was new.
        server.then(drop(), drop(), answer())
        with pytest.raises(errors.TransportError, match="closed the connection without an answer"):
            await client.get(PODS, "a", "n")
        assert (len(server.answers), server.connections) == (1, 3)


@pytest.mark.parametrize("answered", [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 2"])
async def test_a_request_that_was_answered_in_part_is_not_repeated(answered: bytes) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head(reader)
        writer.write(OK)
        await head(reader)
        writer.write(answered)

    async with talking(talk) as address, client_to(f"http://{address}") as client:
        await client.get(PODS, "warm", "n")
        with pytest.raises(errors.TransportError, match="broke off its answer"):
            await client.get(PODS, "a", "n")


async def test_idle_connections_are_closed_after_a_minute(clock: VirtualClockLoop) -> None:
    async with faulty_server() as server, client_to(server.url) as client:
        server.otherwise = answer()
        for pause, connections in ((59.0, 1), (59.0, 1), (61.0, 1), (0.0, 2)):
            await client.get(PODS, "a", "n")
            assert server.connections == connections
            await asyncio.sleep(pause)


async def test_a_connection_that_the_server_closes_is_not_used_again() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head(reader)
        writer.write(OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        connections.append(await reader.read())

    connections: list[bytes] = []
    async with talking(talk) as address, client_to(f"http://{address}") as client:
        for _ in range(3):
            assert await client.create(PODS, b"", "n") == b"{}"
    assert connections == [b""] * len(connections)


@pytest.mark.parametrize("surplus", ["with the answer", "later"])
async def test_unrequested_bytes_close_the_connection(surplus: str, clock: VirtualClockLoop) -> None:
    connections = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await head(reader)
        writer.write(OK + OK if surplus == "with the answer" else OK)
        if surplus == "later":
            await asyncio.sleep(5)
            writer.write(OK)
        await reader.read()

    async with talking(talk) as address, client_to(f"http://{address}") as client:
        for _ in range(2):
            assert await client.create(PODS, b"", "n") == b"{}"
            await asyncio.sleep(10)
    assert connections == 2


async def test_a_cancelled_request_closes_its_connection(clock: VirtualClockLoop) -> None:
    async with faulty_server() as server, client_to(server.url) as client:
        server.then(silence(), answer(b"mine"))
        request = asyncio.create_task(client.get(PODS, "a", "n"))
        await clock.settled()
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        assert await client.get(PODS, "b", "n") == b"mine"
        assert server.connections == 2


async def test_a_request_that_is_cancelled_while_it_is_written_ends_with_its_connection() -> None:
    body = 50_000_000
    began: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    received: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if "configmaps" not in await head(reader):
            writer.write(OK)
            await reader.read()
            return
        began.set_result(None)
        size = 0
        with suppress(OSError):
            while part := await reader.read(1000):
                size += len(part)
                if not request.done():
                    await asyncio.sleep(0)
        received.set_result(size)

    async with talking(talk) as address, client_to(f"http://{address}") as client:
        request = asyncio.create_task(client.create(CONFIGMAPS, b"x" * body, "n"))
        await began
        request.cancel()
        with pytest.raises(asyncio.CancelledError):
            await request
        assert await client.get(PODS, "a", "n") == b"{}"
        assert await received < body


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_connecting_can_be_cancelled_at_any_step(certificates: Certificates, loop: str) -> None:
    def files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    async def main() -> None:
        async with faulty_server(ssl_context=certificates.server_context()) as server:
            server.otherwise = answer()
            async with KubeClient(Connection(access(server, certificates), origin="")) as client:
                before = files()
                for steps in range(30):
                    request = asyncio.create_task(client.create(PODS, b"", "n"))
                    for _ in range(steps):
                        await asyncio.sleep(0)
                    request.cancel()
                    with suppress(asyncio.CancelledError):
                        await request
                assert await client.get(PODS, "a", "n") == b"{}"
                await client.close()
                for _ in range(1000):
                    if files() <= before:
                        break
                    await asyncio.sleep(0.01)
                assert files() <= before

    (uvloop.run if loop == "uvloop" else asyncio.run)(main())


async def test_requests_wait_for_a_connection_within_the_limit() -> None:
    async with (
        faulty_server() as server,
        KubeClient(Connection.to_address(server.url), max_connections=1) as client,
    ):
        server.otherwise = answer()
        await asyncio.gather(client.create(PODS, b"", "n"), client.create(PODS, b"", "m"))
        assert server.connections == 1


async def test_silence_counts_from_the_last_byte(clock: VirtualClockLoop) -> None:
    async with faulty_server() as server, client_to(server.url) as client:
        server.then(stream(60.0, b"a", 60.0, b"b", 60.0), stream(60.0, b"a", 70.0, b"b"))
        assert await client.get(PODS, "a", "n") == b"ab"
        with pytest.raises(errors.SilenceError):
            await client.get(PODS, "a", "n")


async def test_the_headers_of_a_stream_have_the_usual_time(clock: VirtualClockLoop) -> None:
    async with faulty_server() as server, client_to(server.url) as client:
        server.then(silence())
        began = clock.time()
        with pytest.raises(errors.SilenceError):
            async with client.watch(PODS, resource_version="1", silence=300.0):
                pass
        assert clock.time() - began == pytest.approx(65, abs=1)
        server.then(silence(200))
        async with client.log("p", "n", "c", follow="true") as chunks:
            assert [chunk async for chunk in chunks] == [b"{}"]


# Bodies.


async def test_an_answer_before_the_end_of_a_large_body() -> None:
    connections = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        request = await head(reader)
        if "configmaps" in request:
            writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
            await ended.wait()
        else:
            writer.write(OK)
            await reader.read()

    ended = asyncio.Event()
    async with talking(talk) as address, client_to(f"http://{address}") as client:
        with pytest.raises(errors.TooLarge):
            await client.create(CONFIGMAPS, b"x" * 50_000_000, "n")
        assert await client.create(PODS, b"", "n") == b"{}"
        ended.set()
    assert connections == 2


async def test_a_server_that_takes_no_body_is_given_up(clock: VirtualClockLoop) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(1000)

    async with talking(talk) as address, client_to(f"http://{address}") as client:
        with pytest.raises(errors.SilenceError) as silent:
            await client.create(CONFIGMAPS, b"x" * 50_000_000, "n")
        assert silent.value.maybe_sent


async def test_a_compressed_answer_is_refused() -> None:
    async with faulty_server() as server, client_to(server.url) as client:
        server.then(answer(gzip.compress(b"{}"), Content_Encoding="gzip"))
        with pytest.raises(errors.TransportError, match="Content-Encoding 'gzip', although only identity"):
            await client.get(PODS, "a", "n")
        assert server.seen[0].headers["Accept-Encoding"] == "identity"


async def test_a_slow_reader_holds_the_server_back(clock: VirtualClockLoop) -> None:
    sent = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await head(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(1000):
            writer.write(line * 100)
            await writer.drain()
            sent += 100

    line = event("ADDED", {"spec": "x" * 1000})
    async with (
        talking(talk) as address,
        client_to(f"http://{address}") as client,
        client.watch(PODS, resource_version="1", silence=10.0) as lines,
    ):
        number = 0
        async for _ in lines:
            number += 1
            if number == 1:
                # Longer than the silence that is permitted to the server.
                await asyncio.sleep(100)
                assert sent < 50_000
        assert number == sent == 100_000


@pytest.mark.parametrize("method", ["watch", "create"])
async def test_a_large_refusal_is_read_to_its_end(method: str, clock: VirtualClockLoop) -> None:
    # Several times the unread limit of a watch, at once: on a connection that has grown its window.
    refusal = b"x" * 20_000_000

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for status in (b"200 OK", b"500 No"):
            await head(reader)
            writer.write(b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n" % (status, len(refusal)) + refusal)
            await writer.drain()
        await reader.read()

    async def watch() -> bytes:
        async with client.watch(PODS, resource_version="1", silence=300.0) as lines:
            return await anext(lines)

    async with talking(talk) as address, client_to(f"http://{address}") as client:
        await client.get(PODS, "warm", "n")
        asked = watch() if method == "watch" else client.create(CONFIGMAPS, refusal, "n")
        with pytest.raises(errors.ApiServerError, match="answered 500"):
            await asyncio.wait_for(asked, 1000)


# The request as sent.


async def test_no_second_header_or_request_within_another() -> None:
    async with faulty_server() as server, client_to(server.url) as client:
        for headers in ({"X": "a\r\nY: b"}, {"X\nY": "a"}, {"X": "a\0"}):
            with pytest.raises(ValueError, match="line break"):
                await client.raw("GET", "/", headers=headers)
        for path in ("/a b", "/a\r\nHost: x", "/é"):
            with pytest.raises(ValueError, match="percent-encoded"):
                await client.raw("GET", path)
        assert server.seen == []
        server.otherwise = answer()
        await client.raw("GET", "/", query={"a b": "c\r\nd/é"})
        assert server.seen[0].query == {"a b": "c\r\nd/é"}


async def test_the_address_may_have_a_path() -> None:
    async with faulty_server() as server, client_to(f"{server.url}/clusters/a/") as client:
        server.otherwise = answer()
        await client.get(PODS, "p", "n")
        assert server.seen[0].path == "/clusters/a/api/v1/namespaces/n/pods/p"
        assert f"http://{server.seen[0].headers['Host']}" == server.url


async def test_closing_ends_watches(clock: VirtualClockLoop) -> None:
    async with faulty_server() as server:
        server.otherwise = stream(event("ADDED", {}), end="hang")
        client = client_to(server.url)
        async with client.watch(PODS, resource_version="1") as lines:
            await anext(lines)
            await client.close()
            with pytest.raises(errors.TransportError):
                await anext(lines)


async def test_the_dot_at_the_end_of_a_name_is_in_no_certificate(certificates: Certificates) -> None:
    async with faulty_server(ssl_context=certificates.server_context()) as server:
        server.otherwise = answer()
        async with KubeClient(Connection(access(server, certificates, "api.test."), origin="")) as client:
            assert await client.get(PODS, "a", "n") == b"{}"


@pytest.mark.parametrize("host", ["a..b", "x" * 64])
async def test_invalid_host_names(host: str) -> None:
    async with client_to(f"http://{host}") as client:
        with pytest.raises(errors.TransportError, match="not the name of a host") as refused:
            await client.create(PODS, b"", "n")
    assert not refused.value.maybe_sent


async def test_requests_share_a_lookup_that_fails(clock: VirtualClockLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    lookups = 0

    async def look_up(*args: object, **options: object) -> list[object]:
        nonlocal lookups
        lookups += 1
        await asyncio.sleep(20)
        raise socket.gaierror(socket.EAI_AGAIN, "no name server")

    monkeypatch.setattr(clock, "getaddrinfo", look_up)
    async with client_to("http://api.example") as client:
        for number in (1, 2):
            began = clock.time()
            requests = await asyncio.gather(*(client.get(PODS, "a", "n") for _ in range(9)), return_exceptions=True)
            assert all("no name server" in str(request) for request in requests)
            assert lookups == number
            assert clock.time() - began == pytest.approx(20)


# Proxies.


def relay(seen: list[str], refusal: bytes = b"") -> Talk:
    """A proxy that tunnels, or answers to CONNECT with a refusal."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await head(reader)
        seen.append(request)
        if refusal:
            writer.write(refusal)
            return
        host, _, port = request.split()[1].rpartition(":")
        there, thither = await asyncio.open_connection(host, int(port))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")

        async def pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            with suppress(OSError):
                while data := await source.read(65536):
                    sink.write(data)
            sink.close()

        try:
            await asyncio.gather(pump(reader, thither), pump(there, writer))
        finally:
            thither.close()
            with suppress(OSError, asyncio.CancelledError):
                await thither.wait_closed()

    return talk


def access(server: FaultyServer | str, certificates: Certificates, server_name: str | None = None) -> ServerAccess:
    url = server if isinstance(server, str) else server.url
    return ServerAccess(server=url, tls=Tls(ca=certificates.ca.read_bytes(), server_name=server_name))


@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_tunnel_through_a_proxy(certificates: Certificates, scheme: str, loop: str) -> None:
    async def main() -> None:
        seen: list[str] = []
        tls = certificates.server_context() if scheme == "https" else None
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(faulty_server(ssl_context=certificates.server_context()))
            proxy = await stack.enter_async_context(talking(relay(seen), tls))
            server.otherwise = answer()
            through = f"{scheme}://me:p%40ss@{proxy}"
            connection = Connection(access(server, certificates, "api.test"), origin="", proxy=through)
            client = await stack.enter_async_context(KubeClient(connection))
            body = orjson.dumps({"data": "x" * 3_000_000})
            await client.create(CONFIGMAPS, body, "n")
            await client.get(PODS, "a", "n")
            assert [request.body for request in server.seen] == [body, b""]
            assert "Proxy-Authorization" not in server.seen[0].headers
            assert len(seen) == 1
            address = server.url.removeprefix("https://")
            assert seen[0].startswith(f"CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n")
            assert base64.b64encode(b"me:p@ss").decode() in seen[0]

    (uvloop.run if loop == "uvloop" else asyncio.run)(main())


async def test_a_proxy_that_refuses(certificates: Certificates) -> None:
    refusal = b"HTTP/1.1 407 Who are you\r\nContent-Length: 0\r\n\r\n"
    async with talking(relay([], refusal)) as proxy:
        through = Connection(access("https://api.example:6443", certificates), origin="", proxy=f"http://{proxy}")
        async with KubeClient(through) as client:
            with pytest.raises(errors.TransportError, match=r"the proxy refused to connect .* 407 Who are you") as no:
                await client.create(PODS, b"", "n")
    assert not no.value.maybe_sent


async def test_a_tunnel_to_a_server_that_is_not_trusted(certificates: Certificates, tmp_path: Path) -> None:
    async with faulty_server(ssl_context=certificates.server_context()) as server, talking(relay([])) as proxy:
        through = Connection(access(server, certificates, "other.test"), origin="", proxy=f"http://{proxy}")
        async with KubeClient(through) as client:
            with pytest.raises(errors.TransportError, match=r"(?i)certificate") as refused:
                await client.get(PODS, "a", "n")
    assert not refused.value.maybe_sent
    assert server.seen == []


async def test_a_plain_server_behind_a_proxy() -> None:
    seen: list[str] = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            seen.append(await head(reader))
            writer.write(OK)

    async with talking(talk) as proxy:
        through = Connection(ServerAccess(server="http://api.example:8080"), origin="", proxy=f"http://me:you@{proxy}")
        async with KubeClient(through) as client:
            await client.get(PODS, "a", "n")
            await client.get(PODS, "a", "n")
    assert len(seen) == 2
    assert seen[1].startswith(
        "GET http://api.example:8080/api/v1/namespaces/n/pods/a HTTP/1.1\r\nHost: api.example:8080\r\n"
    )
    assert f"Proxy-Authorization: Basic {base64.b64encode(b'me:you').decode()}\r\n" in seen[1]
