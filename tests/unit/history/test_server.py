"""The archive's server on a socket, over a storage in memory: records, refusals, faults."""

import asyncio
import gzip
import io
import re
import tracemalloc
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, cast

import aiohttp
import orjson
import pytest
from aiohttp import web

from frameworkcontroller.history import archive as archive_module
from frameworkcontroller.history import upload
from frameworkcontroller.history.archive import HistoryArchive
from frameworkcontroller.history.archiveapi import application, new_metrics
from frameworkcontroller.history.archiveerrors import ArchiveError, RecordError
from frameworkcontroller.history.archivemetrics import ArchiveMetrics
from frameworkcontroller.history.queries import Readable
from frameworkcontroller.history.reads import (
    READS,
    A,
    CountFailures,
    GetFramework,
    ListFailures,
    ListFrameworks,
    ListNamespaces,
    Read,
)
from frameworkcontroller.webaccess import requestbodies
from frameworkcontroller.webaccess.boundedserver import BoundedServer, ListenError
from frameworkcontroller.webaccess.loopback_access import LoopbackAccess
from frameworkcontroller.webaccess.viewers import Viewer, WebAccess
from tests.support.access import Everyone
from tests.support.eventually import eventually

HEADERS = {"Content-Type": "application/x-ndjson"}


@pytest.fixture(autouse=True)
def _encode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_module, "encode", orjson.dumps)
    monkeypatch.setattr("frameworkcontroller.history.archiveapi.encode", orjson.dumps)


class Memory(HistoryArchive):
    """Keeps lines, and has the Framework ``u`` in namespace ``default``."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.away = False
        self.gate = asyncio.Event()
        self.gate.set()
        self.storing = 0
        self.queries: list[tuple[Read[Any], Readable]] = []

    async def store(self, lines: Sequence[bytes]) -> None:
        self.storing += 1
        await self.gate.wait()
        self.storing -= 1
        if self.away:
            raise ArchiveError("the database is away")
        for number, line in enumerate(lines, 1):
            if line.startswith(b"bad"):
                raise RecordError(number, "no JSON")
        self.lines += lines

    async def check(self) -> None:
        if self.away:
            raise ArchiveError("secret password wrong")

    async def read(self, query: Read[A], readable: Readable = None) -> A:
        if query == GetFramework("broken"):
            raise KeyError("a mistake of the program")
        answer: Any = {
            ListNamespaces: {"items": [one for one in ("default", "other") if readable is None or one in readable]},
            ListFrameworks: {"items": [], "next": None},
            CountFailures: {"items": []},
            ListFailures: {"items": []},
            GetFramework: {"uid": "u"} if query == GetFramework("u") else None,
        }.get(type(query))
        self.queries.append((query, readable))
        return cast("A", answer)


@dataclass
class Served:
    """A server and a client of it."""

    archive: Memory
    server: BoundedServer
    client: aiohttp.ClientSession
    metrics: ArchiveMetrics

    async def post(self, body: Any, **headers: str) -> tuple[int, dict[str, Any]]:
        data = io.BytesIO(body) if isinstance(body, bytes) else body
        async with self.client.post(f"{self.server.url}/v1/records", data=data, headers=HEADERS | headers) as answer:
            return answer.status, await answer.json(content_type=None)

    async def get(self, path: str, token: str = "") -> tuple[int, dict[str, Any]]:
        status, text = await self.text(path, token)
        return status, orjson.loads(text)

    async def text(self, path: str, token: str = "") -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with self.client.get(self.server.url + path, headers=headers) as answer:
            return answer.status, await answer.text()

    async def begin(self, length: int, body: bytes, **more: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Send the beginning of a body of that length."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.server.port)
        headers = {"Host": "localhost", "Content-Length": str(length), **more}
        lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
        writer.write(f"POST /v1/records HTTP/1.1\r\n{''.join(lines)}\r\n".encode() + body)
        await writer.drain()
        return reader, writer

    def metric(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"frameworkcontroller_archive_{name}", labels)


@asynccontextmanager
async def serving(access: WebAccess | None = None, **options: Any) -> AsyncIterator[Served]:
    archive, metrics = Memory(), new_metrics()
    app = application(archive, access or Everyone(), metrics=metrics)
    async with (
        BoundedServer(app, "127.0.0.1", 0, connected=metrics.connected, **options) as server,
        aiohttp.ClientSession() as client,
    ):
        yield Served(archive, server, client, metrics)


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    async with serving() as made:
        yield made


async def until(holds: Callable[[], bool]) -> None:
    async def probe() -> bool:
        return holds()

    await eventually(probe, every=0.01)


def line(text: str = "x", trigger: str = "OnTaskRetry") -> bytes:
    return orjson.dumps({"id": text, "trigger": trigger, "namespace": "default"}) + b"\n"


# --- records ---


async def test_records_are_stored(served: Served) -> None:
    assert await served.post(line("a") + b"\n" + line("b").rstrip()) == (200, {"stored": 2})
    assert served.archive.lines == [line("a").rstrip(), line("b").rstrip()]
    assert await served.post(b"") == (200, {"stored": 0})
    assert served.metric("records_total", source="http", trigger="OnTaskRetry") == 2


async def test_gzip_of_several_members_is_stored(served: Served) -> None:
    body = gzip.compress(line("a")) + gzip.compress(line("b"))
    assert await served.post(body, **{"Content-Encoding": "gzip"}) == (200, {"stored": 2})
    assert served.archive.lines == [line("a").rstrip(), line("b").rstrip()]


async def test_a_bad_line_is_named_and_nothing_is_stored(served: Served) -> None:
    status, problem = await served.post(line() + b"\n\n" + b"bad\n" + line())
    assert (status, problem) == (
        400,
        {"title": "Bad record", "detail": "line 4: no JSON; nothing was stored", "line": 4},
    )
    assert served.archive.lines == []
    assert served.metric("refused_total", source="http", code="400") == 1


@pytest.mark.parametrize(
    ("headers", "body", "status", "text"),
    [
        ({"Content-Encoding": "br"}, b"x", 415, 'Content-Encoding: must be gzip or identity, not "br"'),
        ({"Content-Type": "application/json"}, b"x", 415, 'must be application/x-ndjson, not "application/json"'),
        ({"Content-Encoding": "gzip"}, b"no gzip", 400, "the body is not gzip"),
        ({"Content-Encoding": "gzip"}, gzip.compress(line())[:-5], 400, "the gzip data ends too early"),
        ({"Content-Encoding": "gzip"}, gzip.compress(line()) + b"rest", 400, "the body is not gzip"),
        ({"Content-Encoding": "gzip"}, gzip.compress(b"x" * (upload.MAX_BODY_BYTES + 1)), 413, "67108864 bytes"),
    ],
    # Compressed bodies have the time in them, and processes must agree on names.
    ids=["encoding", "type", "not gzip", "cut", "rest", "large"],
)
async def test_a_body_that_cannot_be_read_is_refused(
    served: Served, headers: dict[str, str], body: bytes, status: int, text: str
) -> None:
    found, problem = await served.post(body, **headers)
    assert found == status
    assert text in problem["detail"]
    assert served.archive.lines == []


async def test_a_body_that_is_too_large_is_refused(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload, "MAX_BODY_BYTES", 100_000)
    status, problem = await served.post(b"x" * 100_001)
    assert (status, problem["title"]) == (413, "Too large")

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(11):
            yield b"x" * 10_000

    status, problem = await served.post(chunks())
    assert (status, problem["title"]) == (413, "Too large")
    assert served.archive.lines == []


@contextmanager
def memory_below(most: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < most
    finally:
        tracemalloc.stop()


async def test_a_decompression_bomb_takes_little_memory(served: Served) -> None:
    bomb = gzip.compress(b"\n" * (2 * 2**30 // 16), compresslevel=1) * 16
    with memory_below(4 * upload.MAX_BODY_BYTES):
        status, problem = await served.post(bomb, **{"Content-Encoding": "gzip"})
    assert (status, problem["title"]) == (413, "Too large")


async def test_an_unavailable_database_is_reported_with_a_time_to_try_again(served: Served) -> None:
    served.archive.away = True
    async with served.client.post(f"{served.server.url}/v1/records", data=line(), headers=HEADERS) as answer:
        assert answer.status == 503
        assert int(answer.headers["Retry-After"]) > 0
        assert (await answer.json(content_type=None))["detail"] == "the database is away"
    served.archive.away = False
    assert await served.post(line()) == (200, {"stored": 1})


async def test_a_client_that_dies_in_the_middle_stores_nothing(served: Served) -> None:
    _, writer = await served.begin(1000, line())
    await until(lambda: bool(served.metric("uploads", state="active")))
    writer.close()
    await until(lambda: not served.metric("uploads", state="active"))
    assert served.archive.lines == []
    assert served.archive.storing == 0


async def test_a_client_that_dies_during_the_storing_does_not_stop_it(served: Served) -> None:
    served.archive.gate.clear()
    _, writer = await served.begin(len(line()), line())
    await until(lambda: served.archive.storing > 0)
    writer.close()
    await writer.wait_closed()
    served.archive.gate.set()
    await until(lambda: bool(served.archive.lines))


async def test_bodies_wait_for_their_turns(served: Served) -> None:
    served.archive.gate.clear()
    active = [asyncio.create_task(served.post(line(str(number)))) for number in range(upload.UPLOADS_OF_ONE)]
    await until(lambda: served.archive.storing == upload.UPLOADS_OF_ONE)
    waiting = asyncio.create_task(served.post(line("late")))
    await until(lambda: bool(served.metric("uploads", state="waiting")))
    served.archive.gate.set()
    assert await asyncio.gather(*active, waiting) == [(200, {"stored": 1})] * (upload.UPLOADS_OF_ONE + 1)


async def test_a_late_turn_is_refused() -> None:
    uploads = upload.Uploads(new_metrics(), turn_sec=0.01)
    turns = [uploads.turn(str(number)) for number in range(upload.UPLOADS)]
    for turn in turns:
        await turn.__aenter__()
    with pytest.raises(upload.UploadError) as raised:
        await uploads.turn("late").__aenter__()
    assert raised.value.status == 503
    await turns[0].__aexit__(None, None, None)
    async with uploads.turn("late"):
        pass


async def test_senders_take_turns() -> None:
    """A sender's requests, no matter how many, delay the others by one request."""
    metrics = new_metrics()
    turns = upload.SenderTurns(2, 2, metrics)
    served: list[str] = []
    gate = asyncio.Event()

    async def send(sender: str) -> None:
        async with turns.turn(sender):
            served.append(sender)
            await gate.wait()

    sent = [asyncio.create_task(send("greedy")) for _ in range(20)]
    await until(lambda: len(served) == 2)
    sent += [asyncio.create_task(send(sender)) for sender in ("b", "b", "c")]
    await until(lambda: metrics.registry.get_sample_value(*WAITING) == 21)
    # One who leaves takes no turn.
    sent[5].cancel()
    await asyncio.wait([sent[5]])
    gate.set()
    await asyncio.gather(*sent[:5], *sent[6:])
    assert served[:7] == ["greedy", "greedy", "greedy", "b", "c", "greedy", "b"]
    assert metrics.registry.get_sample_value(*WAITING) == 0
    assert (turns._free, turns._held, turns._waiting) == (2, {}, {})


WAITING = ("frameworkcontroller_archive_uploads", {"state": "waiting"})


async def test_one_large_body_at_a_time(served: Served) -> None:
    """The other ones wait, partly read."""
    served.archive.gate.clear()
    large = line("x" * upload.SMALL_BYTES)
    posts = [asyncio.create_task(served.post(large)) for _ in range(3)]
    await until(lambda: served.metric("uploads", state="waiting") == 2)
    assert served.archive.storing <= 1
    assert await served.get("/v1/frameworks/u") == (200, {"uid": "u"})
    served.archive.gate.set()
    assert await asyncio.gather(*posts) == [(200, {"stored": 1})] * 3


async def test_compressed_bodies_wait_while_they_are_small(served: Served) -> None:
    """A few bytes of each could become 64 MiB, before its turn."""
    bomb = gzip.compress(b"\n" * (upload.MAX_BODY_BYTES // 4), compresslevel=1)
    served.archive.gate.clear()
    first = asyncio.create_task(served.post(line("x" * upload.SMALL_BYTES)))
    await until(lambda: served.archive.storing == 1)
    with memory_below(5 * 3 * upload.SMALL_BYTES):
        posts = [asyncio.create_task(served.post(bomb, **{"Content-Encoding": "gzip"})) for _ in range(5)]
        await until(lambda: served.metric("uploads", state="waiting") == 5)
    served.archive.gate.set()
    assert await asyncio.gather(first, *posts) == [(200, {"stored": 1}), *[(200, {"stored": 0})] * 5]


async def test_a_sender_without_permission_is_answered_before_its_body() -> None:
    """So its slow bodies take no turns."""
    async with serving(Restricted()) as served:
        idle = [await served.begin(10**6, b"x", **of("nothing", "default")) for _ in range(upload.UPLOADS + 1)]
        for reader, _ in idle:
            assert b" 403 " in await reader.readline()
        assert await served.post(line(), **of("default")) == (200, {"stored": 1})
        for _, writer in idle:
            writer.close()


async def test_a_slow_large_body_does_not_stop_other_senders() -> None:
    async with serving(Restricted()) as served:
        part = b"x" * (upload.SMALL_BYTES + 1)
        _, writer = await served.begin(50_000_000, part, **of("default,slow", "default"))
        own = asyncio.create_task(served.post(line("x" * upload.SMALL_BYTES), **of("default,slow", "default")))
        await until(lambda: bool(served.metric("uploads", state="waiting")))
        for sender in ("default", "default,other"):
            large = line("x" * upload.SMALL_BYTES)
            assert await served.post(large, **of(sender, "default")) == (200, {"stored": 1})
        assert not own.done()
        writer.close()
        assert (await own)[0] == 200


def of(token: str, namespace: str = "") -> dict[str, str]:
    """The headers of a sender that may write in the namespaces in its token."""
    return {"Authorization": f"Bearer {token}", "Framework-Namespace": namespace or token}


async def test_a_body_below_the_least_rate_ends(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though a byte comes all the time."""
    monkeypatch.setattr(requestbodies, "GRACE_SEC", 0.2)
    reader, writer = await served.begin(100_000, b"")

    async def dribble() -> None:
        while True:
            writer.write(b"x")
            await asyncio.sleep(0.01)

    dribbling = asyncio.create_task(dribble())
    assert b" 408 " in await reader.readline()
    dribbling.cancel()
    writer.close()


async def test_a_silent_body_ends(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requestbodies, "IDLE_SEC", 0.05)
    reader, writer = await served.begin(9, b"x")
    assert b" 408 " in await reader.readline()
    writer.close()


# --- the server ---


async def test_an_address_in_use_is_reported(served: Served) -> None:
    app = application(served.archive, Everyone())
    server = BoundedServer(app, "127.0.0.1", served.server.port)
    with pytest.raises(ListenError, match=rf"127\.0\.0\.1:{served.server.port}: Address already in use"):
        await server.__aenter__()


async def test_a_stop_waits_for_the_batch_in_progress() -> None:
    async with serving() as served:
        served.archive.gate.clear()
        post = asyncio.create_task(served.post(line()))
        await until(lambda: served.archive.storing > 0)
        stopping = asyncio.create_task(served.server.__aexit__())
        await until(lambda: not served.server._server.is_serving())
        served.archive.gate.set()
        assert await post == (200, {"stored": 1})
        await stopping


# --- queries ---


async def test_answers_and_problems(served: Served) -> None:
    assert await served.get("/v1/frameworks?limit=5&q=a") == (200, {"items": [], "next": None})
    assert served.archive.queries[-1] == (ListFrameworks(q="a", limit=5), None)
    assert await served.get("/v1/frameworks/u") == (200, {"uid": "u"})
    limit = 'limit: must be a whole number from 1 to 1000, not "x"'
    for path, status, title, detail, field in (
        ("/v1/frameworks/x", 404, "Not found", "there is no Framework x", {}),
        ("/v1/other", 404, "Not found", "GET /v1/other: Not Found", {}),
        ("/v1/frameworks?limit=x", 400, "Bad parameter", limit, {"field": "limit"}),
        ("/v1/records", 405, "Method not allowed", "GET /v1/records: Method Not Allowed", {}),
        ("/v1/frameworks/broken", 500, "Internal error", "an unexpected error, which is in the log", {}),
    ):
        assert await served.get(path) == (status, {"title": title, "detail": detail, **field})
    count = served.metric("request_duration_seconds_count", route="frameworks", code="4xx")
    assert count == 1


async def test_probes_metrics_and_the_document(served: Served) -> None:
    for path, text in (("/healthz", "ok\n"), ("/readyz", "[+]database ok\nok\n")):
        assert await served.text(path) == (200, text)
        async with served.client.head(f"{served.server.url}{path}") as answer:
            assert answer.status == 200
    served.archive.away = True
    assert await served.text("/readyz") == (503, "[-]database cannot be used\nfailed\n")
    _, metrics = await served.text("/metrics")
    assert "frameworkcontroller_archive_records_total" in metrics
    assert "_created" not in metrics
    status, document = await served.get("/openapi.json")
    assert status == 200
    assert "/v1/records" in document["paths"]


async def test_other_hosts_and_users_are_refused() -> None:
    async with serving(LoopbackAccess("secret")) as served:
        status, problem = await served.post(line())
        assert (status, problem["title"]) == (401, "Authentication required")
        assert await served.post(line(), Authorization="Bearer secret") == (200, {"stored": 1})
        status, _ = await served.post(line(), Authorization="Bearer secret", Host="evil.example")
        assert status == 403
        assert served.archive.lines == [line().rstrip()]


class Restricted(WebAccess):
    """Admits everyone, as one who may read and write in some namespaces only."""

    def check_address(self, request: web.BaseRequest) -> None:
        pass

    async def identify(self, request: web.BaseRequest, token: str | None) -> Viewer:
        return RestrictedViewer(token or "")


class RestrictedViewer(Viewer):
    token = None

    def __init__(self, name: str) -> None:
        self.name = name
        self._namespaces = frozenset(name.split(","))

    async def may_read(self, namespace: str) -> bool:
        return namespace in self._namespaces

    async def readable(self, namespaces: Iterable[str]) -> frozenset[str] | None:
        return frozenset(namespaces) & self._namespaces

    async def may_read_logs(self, namespace: str) -> bool:
        return namespace in self._namespaces

    async def may_write_history(self, namespaces: Iterable[str]) -> bool:
        asked = set(namespaces)
        return bool(asked) and asked <= self._namespaces

    async def may_get(self, path: str) -> bool:
        return False


async def test_queries_are_limited_to_the_namespaces_of_the_viewer() -> None:
    async with serving(Restricted()) as served:
        for read in READS:
            path = re.sub("{[a-z]+}", "1", re.sub("{taskUid}", "t", read.path))
            assert (await served.text(path, "other"))[0] in (200, 404), path
            query, readable = served.archive.queries[-1]
            assert (type(query), readable) == (read, frozenset({"other"}))
        assert await served.get("/v1/namespaces", "other") == (200, {"items": ["other"]})
        assert (await served.text("/metrics"))[0] == 403


async def test_records_are_taken_for_the_namespaces_of_the_sender_only() -> None:
    other = orjson.dumps({"id": "x", "trigger": "OnTaskRetry", "namespace": "other"}) + b"\n"
    twice = b'{"id":"x","namespace":"default","trigger":"OnTaskRetry","namespace":"other"}\n'
    async with serving(Restricted()) as served:
        for body in (other, line() + other, twice, b"no json\n"):
            status, problem = await served.post(body, **of("default"))
            assert (status, problem.get("title")) == (403, "Not permitted"), body
        assert served.archive.lines == []
        assert await served.post(line(), **of("default")) == (200, {"stored": 1})
        both = of("default,other", "other")
        assert await served.post(line() + other, **both) == (200, {"stored": 2})
        # Without a namespace, it is asked for the permission in all.
        status, problem = await served.post(line(), Authorization="Bearer default")
        assert (status, "in all namespaces" in problem["detail"]) == (403, True)
