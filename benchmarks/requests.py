"""CPU of a client for one request, and for one event of a watch, over TLS.

    python -m benchmarks.requests [--rounds 5] [--number 1000] [--pause 0.001] [CLIENT ...]

A process of its own answers every request as an API server answers the creation of a Pod, one answer each ``--pause``
seconds: a controller gets its answers one by one as well, and code that is called rarely costs several times what it
costs in a loop. The clients take turns. CPU of this process alone.
"""

from __future__ import annotations

import argparse
import asyncio
import ssl
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, Final, cast

import aiohttp
import orjson
import uvloop

from benchmarks.rpc import Child, serve
from benchmarks.wire import Pool
from frameworkcontroller.api.objects import pod_record
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.kube.kubeconfig import ServerAccess
from frameworkcontroller.kube.lineframer import LineFramer
from frameworkcontroller.kube.parsing import parse
from frameworkcontroller.kube.ratelimiter import RateLimiter
from frameworkcontroller.kube.resources import PODS
from frameworkcontroller.kubeconfig.tls import Tls
from tests.support.certificates import make_certificates

IN_FLIGHT: Final = 50
_PATH: Final = "/api/v1/namespaces/default/pods"
_ACCEPT: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json"
_HEADERS: Final = (
    b"Cache-Control: no-cache, private\r\nContent-Type: application/json\r\n"
    b"X-Kubernetes-Pf-Flowschema-Uid: a69fd2a7-4c93-4bc4-b987-536c146bcbf7\r\n"
    b"X-Kubernetes-Pf-Prioritylevel-Uid: d6a1b2d2-4b94-43e8-9152-d7c9c1687781\r\n"
    b"Date: Mon, 23 Nov 2026 16:50:58 GMT\r\n"
)
_UID: Final = "6f9619ff-8b86-d011-b42d-00c04fc964ff"


def _pod(number: int) -> dict[str, Any]:
    """A Pod as a watch of stock Kubernetes shows it, 3 KB."""
    marks = {f"FC_{name}": _UID for name in "ABCDEFGHIJKL"}
    fields: dict[str, Any] = {f"f:{name}": {"f:sub": {}, ".": {}} for name in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}
    managed = [{"manager": name, "operation": "Update", "fieldsV1": {"f:metadata": fields}} for name in ("a", "b")]
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": f"f-worker-{number}",
            "namespace": "default",
            "uid": _UID,
            "resourceVersion": str(number + 1),
            "creationTimestamp": "2026-11-23T16:50:59Z",
            "labels": {"FC_FRAMEWORK_NAME": "f", "FC_TASKROLE_NAME": "worker"},
            "annotations": marks,
            "managedFields": managed,
        },
        "spec": {"containers": [{"name": "c", "image": "i", "env": [{"name": "A", "value": "b"}] * 8}]},
        "status": {"phase": "Running", "podIP": "10.1.2.3", "hostIP": "10.0.0.1", "containerStatuses": []},
    }


_BODY: Final = orjson.dumps(_pod(0))
_METADATA: Final = orjson.dumps({"kind": "PartialObjectMetadata", "metadata": _pod(0)["metadata"]})
_EVENTS: Final = [orjson.dumps({"type": "MODIFIED", "object": _pod(number)}) + b"\n" for number in range(10)]


class _Server:
    """Answers, one each ``pause`` seconds."""

    def __init__(self, pause: float) -> None:
        self._pause = pause
        self._due: deque[Callable[[], None]] = deque()
        self._events = 0

    def connection(self) -> asyncio.Protocol:
        return _ServerConnection(self)

    def answer(self, transport: asyncio.WriteTransport, request: bytes) -> None:
        if b"watch=" not in request:
            head = b"HTTP/1.1 201 Created\r\n%bContent-Length: %d\r\n\r\n" % (_HEADERS, len(_METADATA))
            self._due.append(lambda: transport.write(head + _METADATA))
            return
        transport.write(b"HTTP/1.1 200 OK\r\n%bTransfer-Encoding: chunked\r\n\r\n" % _HEADERS)
        for number in range(self._events):
            line = _EVENTS[number % len(_EVENTS)]
            chunk = b"%x\r\n%b\r\n" % (len(line), line)
            self._due.append(lambda chunk=chunk: transport.write(chunk))  # type: ignore[misc]
        self._due.append(lambda: transport.write(b"0\r\n\r\n"))

    async def events(self, number: int) -> None:
        """The next watches bring so many."""
        self._events = number

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._pause)
            if self._due:
                self._due.popleft()()


class _ServerConnection(asyncio.Protocol):
    def __init__(self, server: _Server) -> None:
        self._server = server
        self._buffer = bytearray()
        self._transport: asyncio.WriteTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        while (head := buffer.find(b"\r\n\r\n")) >= 0:
            _, found, rest = bytes(buffer[:head]).lower().partition(b"content-length:")
            end = head + 4 + (int(rest.split(b"\r", 1)[0]) if found else 0)
            if len(buffer) < end:
                return
            request = bytes(buffer[:head])
            del buffer[:end]
            self._server.answer(self._transport, request)


async def _serve(folder: str, pause: str) -> None:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(f"{folder}/server.crt", f"{folder}/server.key")
    server = _Server(float(pause))
    listener = await asyncio.get_running_loop().create_server(server.connection, "127.0.0.1", 0, ssl=tls)

    async def port() -> int:
        number: int = listener.sockets[0].getsockname()[1]
        return number

    async with asyncio.TaskGroup() as group:
        running = group.create_task(server.run())
        await serve({"port": port, "events": server.events})
        running.cancel()


Post = Callable[[], Awaitable[object]]
Watch = Callable[[], AsyncIterator[bytes]]


@asynccontextmanager
async def _kube(port: int, ca: Path) -> AsyncIterator[tuple[Post, Watch | None]]:
    access = ServerAccess(
        server=f"https://127.0.0.1:{port}", authorization="Bearer abcdefghijkl", tls=Tls(ca=ca.read_bytes())
    )
    limiter = RateLimiter(1e9, 10**9)
    async with KubeClient(Connection(access, origin=""), limiter=limiter, observe=lambda _: None) as client:

        async def watch() -> AsyncIterator[bytes]:
            async with client.watch(PODS, resource_version="1") as lines:
                async for line in lines:
                    yield line

        yield lambda: client.create(PODS, _BODY, "default", metadata_only=True, flow="default/f"), watch


@asynccontextmanager
async def _aiohttp(port: int, ca: Path) -> AsyncIterator[tuple[Post, Watch | None]]:
    """With every switch that saves something."""
    url = f"https://127.0.0.1:{port}{_PATH}"
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=ssl.create_default_context(cafile=ca)),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        timeout=aiohttp.ClientTimeout(total=None, connect=None, sock_connect=None, sock_read=65),
        headers={
            "Authorization": "Bearer abcdefghijkl",
            "Accept": _ACCEPT,
            "Accept-Encoding": "identity",
            "Content-Type": "application/json",
        },
    ) as session:

        async def post() -> None:
            async with session.post(url, data=_BODY, allow_redirects=False) as response:
                await response.read()

        async def watch() -> AsyncIterator[bytes]:
            framer = LineFramer()
            async with session.get(url + "?watch=true", allow_redirects=False) as response:
                while chunk := await response.content.readany():
                    for line in framer.feed(chunk):
                        yield line

        yield post, watch


@asynccontextmanager
async def _null(port: int, ca: Path) -> AsyncIterator[tuple[Post, Watch | None]]:
    pool = Pool(f"https://127.0.0.1:{port}", "abcdefghijkl", ca, IN_FLIGHT)
    request = pool.request("POST", _PATH, _BODY)
    yield lambda: pool.send(request), None
    await pool.close()


CLIENTS: Final = {"controller": _kube, "aiohttp": _aiohttp, "null": _null}


async def _measure_posts(post: Post, number: int) -> float:
    async def work(share: int) -> None:
        for _ in range(share):
            await post()

    # The first ones connect.
    await asyncio.gather(*(work(1) for _ in range(IN_FLIGHT)))
    began = time.process_time()
    await asyncio.gather(*(work(number // IN_FLIGHT) for _ in range(IN_FLIGHT)))
    return (time.process_time() - began) / (number // IN_FLIGHT * IN_FLIGHT)


async def _measure_watch(watch: Watch, *, parsed: bool) -> float:
    number = 0
    began = time.process_time()
    async with aclosing(cast("Any", watch())) as lines:
        async for line in lines:
            number += 1
            if parsed:
                pod_record(parse(line)[0]["object"])
    return (time.process_time() - began) / number


async def _measure(options: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        made = make_certificates(Path(folder))
        server = await Child.start("benchmarks.requests", "--serve", folder, str(options.pause))
        port = await server.call("port")
        await server.call("events", number=options.number)
        figures: dict[str, list[float]] = {}
        for _ in range(options.rounds):
            for name in options.clients or CLIENTS:
                async with CLIENTS[name](port, made.ca) as (post, watch):
                    figures.setdefault(f"{name}: a request", []).append(await _measure_posts(post, options.number))
                    if watch is not None:
                        what = f"{name}: an event of a watch, {len(_EVENTS[0])} bytes"
                        figures.setdefault(what, []).append(await _measure_watch(watch, parsed=False))
                        if name == "controller":
                            what = f"{name}: an event, and its record"
                            figures.setdefault(what, []).append(await _measure_watch(watch, parsed=True))
        await server.close()
    for what, values in figures.items():
        least, most = min(values) * 1e6, max(values) * 1e6
        print(f"{what:50} {statistics.median(values) * 1e6:8.1f} µs   {least:.1f} .. {most:.1f}")


def main() -> None:
    """Run as asked."""
    if sys.argv[1:2] == ["--serve"]:
        uvloop.run(_serve(*sys.argv[2:]))
        return
    parser = argparse.ArgumentParser(prog="python -m benchmarks.requests", description=__doc__.partition("\n")[0])
    parser.add_argument("clients", nargs="*", metavar="CLIENT", help=f"{', '.join(CLIENTS)} (default: all)")
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    parser.add_argument("--number", type=int, default=1000, help="of requests and of events (default: 1000)")
    parser.add_argument("--pause", type=float, default=0.001, help="between answers, in seconds (default: 0.001)")
    uvloop.run(_measure(parser.parse_args()))


if __name__ == "__main__":
    main()
