"""The informer against a server that fails in every way, in virtual time."""

import asyncio
import gc
import logging
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest
from aiohttp import web

from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.kube.informer import Informer
from frameworkcontroller.kube.reflector import Failure
from frameworkcontroller.kube.resources import PODS
from tests.support.collection_server import TOO_DEEP, CollectionServer
from tests.support.eventually import until
from tests.support.faulty_server import (
    Answer,
    FaultyServer,
    answer,
    cut,
    drop,
    event,
    faulty_server,
    silence,
    status,
    stream,
)
from tests.support.virtual_clock import VirtualClockLoop

pytestmark = pytest.mark.virtual_clock


@dataclass(frozen=True)
class Thing:
    key: str
    uid: str
    resource_version: str
    size: int


def decode(obj: dict[str, Any]) -> Thing:
    if obj.get("poison"):
        raise ValueError("poisoned")
    metadata = obj["metadata"]
    key = f"{metadata['namespace']}/{metadata['name']}"
    return Thing(key, metadata["uid"], metadata["resourceVersion"], obj.get("size", 0))


@dataclass
class Following:
    """A running informer, the collection that it follows, and the calls of its handlers."""

    informer: Informer[Thing]
    server: CollectionServer
    faults: FaultyServer
    client: KubeClient
    told: list[str] = field(default_factory=list)
    mirror: dict[str, Thing] = field(default_factory=dict)

    def added(self, new: Thing) -> None:
        assert new.key not in self.mirror
        self.mirror[new.key] = new
        self.told.append(f"+{new.key}")

    def updated(self, old: Thing, new: Thing) -> None:
        assert self.mirror[new.key] == old
        self.mirror[new.key] = new
        self.told.append(f"~{new.key}")

    def deleted(self, old: Thing, final: Thing | None) -> None:
        assert self.mirror.pop(old.key) == old
        self.told.append(f"-{old.key}" + ("" if final else "?"))

    @property
    def is_right(self) -> bool:
        expected = {f"ns/{name}": obj["metadata"]["resourceVersion"] for name, obj in self.server.objects.items()}
        copy = {thing.key: thing.resource_version for thing in self.informer.lister.values()}
        return copy == expected and self.mirror == {thing.key: thing for thing in self.informer.lister.values()}

    async def until_right(self, within: float) -> None:
        """Wait until copy and original are the same; fail if that takes longer than ``within`` seconds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within
        while not (self.is_right and self.informer.synced):
            assert loop.time() < deadline, f"{list(self.informer.lister.values())} is not {self.server.objects}"
            await asyncio.sleep(min(0.05 * within, 0.5))


@asynccontextmanager
async def following(**options: Any) -> AsyncIterator[Following]:
    before: Callable[[CollectionServer, FaultyServer], None] | None = options.pop("before", None)
    async with faulty_server() as faults:
        server = CollectionServer(faults)
        if before is not None:
            before(server, faults)
        async with KubeClient(Connection.to_address(faults.url), observe=options.pop("observe", None)) as client:
            informer = Informer(client, PODS, decode, rng=random.Random(1), **options)
            it = Following(informer, server, faults, client)
            informer.add_handler(on_add=it.added, on_update=it.updated, on_delete=it.deleted)
            task = asyncio.create_task(informer.run())
            try:
                yield it
            finally:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task


async def test_it_follows() -> None:
    async with following(before=lambda server, _: server.put("a")) as it:
        assert not it.informer.synced
        await it.informer.wait_synced()
        assert it.told == ["+ns/a"]
        it.server.put("b")
        it.server.put("a", size=3)
        it.server.delete("b")
        await it.until_right(1.0)
        assert it.told == ["+ns/a", "+ns/b", "~ns/a", "-ns/b"]
        assert (it.server.lists, it.server.watches) == (1, 1)
        # The first list must be a consistent read: a cache's answer may be older than the writes of a previous process.
        assert "resourceVersion" not in it.faults.seen[0].query


async def test_it_reads_large_lists_in_pages() -> None:
    def fill(server: CollectionServer, _: FaultyServer) -> None:
        for number in range(1000):
            server.put(f"p{number:04}", pad="x" * 10_000)

    async with following(before=fill, page_size=300) as it:
        await it.informer.wait_synced()
        await it.until_right(1.0)
        limits = [int(request.query["limit"]) for request in it.faults.seen if "limit" in request.query]
        # The first page is a small one; from it on pages are as large as the objects allow.
        assert limits[0] == 50
        assert all(80 < limit < 110 for limit in limits[1:])
        assert it.server.lists == 1
        assert gc.isenabled()


async def test_a_page_of_large_objects_is_not_read_whole() -> None:
    """Decoded, 50 objects of 1.4 MB take more than the controller's memory limit."""

    def fill(server: CollectionServer, _: FaultyServer) -> None:
        for number in range(400):
            server.put(f"p{number:04}", pad="x" * (400_000 if number % 200 > 180 else 100))

    received: list[int] = []
    async with following(
        before=fill, page_size=200, observe=lambda exchange: received.append(exchange.received_bytes)
    ) as it:
        await it.informer.wait_synced()
        await it.until_right(1.0)
        it.informer.compare()
        await asyncio.sleep(1)
        # A page is given up with the part of the answer that exceeds the limit.
        assert max(received) < 5 * 2**20
        assert len(received) < 100
        assert it.server.lists == 2


async def test_a_day_without_events_costs_a_watch_every_few_minutes(clock: VirtualClockLoop) -> None:
    async with following() as it:
        await it.informer.wait_synced()
        await asyncio.sleep(24 * 3600)
        assert it.server.lists == 1
        assert 24 * 3600 / 300 <= it.server.watches <= 24 * 3600 / 180 + 1
        it.server.put("a")
        await it.until_right(1.0)


# The faults of a watch that is about to be reopened, and the seconds within which the copy must be right again.
WATCH_FAULTS: dict[str, tuple[list[Answer], float]] = {
    "expired": ([status(410, "Expired")], 1),
    "expired within": ([stream(event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired"}))], 1),
    "expired three times": ([status(410, "Expired")] * 3, 4),
    "throttled": ([status(429, "TooManyRequests", headers={"Retry_After": "20"})], 21),
    "throttled within": ([stream(event("ERROR", {"code": 429, "details": {"retryAfterSeconds": 20}}))], 21),
    "internal error": ([status(500, "InternalError")], 2),
    "a proxy's page": ([answer("<html>502</html>", 502)], 2),
    "redirect": ([answer("", 302, Location="http://127.0.0.1:1/")], 2),
    "forbidden for a while": ([status(403, "Forbidden")] * 3, 6),
    "from the future": (
        [status(504, "Timeout", details={"causes": [{"reason": "ResourceVersionTooLarge"}]})],
        2,
    ),
    "bad request": ([status(400, "BadRequest")], 2),
    "not served": ([status(404, "NotFound")], 2),
    "dropped": ([drop()], 2),
    "dropped many times": ([drop()] * 5, 18),
    "cut in a line": ([stream(b'{"type":"ADDED","obj', end="drop")], 2),
    "ended in a line": ([stream(b'{"type":"ADDED","obj')], 2),
    "half an answer": ([cut(b"abc", 100)], 2),
    "no JSON": ([stream(b"hello\n")], 2),
    "JSON of another kind": ([stream(b"[1]\n")], 2),
    "no object": ([stream(b'{"type":"ADDED"}\n')], 2),
    "an object without a name": ([stream(b'{"type":"ADDED","object":{"metadata":{"resourceVersion":"999"}}}\n')], 2),
    "an unknown type": ([stream(event("RENAMED", {"metadata": {"name": "x", "resourceVersion": "999"}}))], 2),
    "a bookmark of nothing": ([stream(event("BOOKMARK", {"metadata": {}}))], 2),
    "silent": ([stream(end="hang")], 92),
    "never answered": ([silence()], 66),
    "ended at once ten times": ([stream()] * 10, 60),
    "an empty body": ([answer(b"")], 2),
    "a replay": ([stream(event("ADDED", {"metadata": {"name": "old", "namespace": "ns", "resourceVersion": "3"}}))], 2),
}


@pytest.mark.parametrize("fault", WATCH_FAULTS)
async def test_what_happens_to_a_watch_is_made_good(fault: str, clock: VirtualClockLoop) -> None:
    answers, within = WATCH_FAULTS[fault]
    async with following(before=lambda server, _: server.put("a")) as it:
        await it.informer.wait_synced()
        it.server.put("gone")
        await asyncio.sleep(30)
        it.faults.then(*answers)
        it.server.close_watches()
        it.server.delete("gone")
        it.server.put("new")
        it.server.put("a", size=2)
        await it.until_right(within + 0.5)
        assert it.told[-3:].count("~ns/a") == 1
        # And it is a watch that follows now.
        it.server.put("after")
        await it.until_right(within + 12)


async def test_a_server_without_heartbeats_is_not_taken_for_dead_again_and_again() -> None:
    async with following() as it:
        it.server.bookmark_seconds = None
        await it.informer.wait_synced()
        await asyncio.sleep(3600)
        assert it.informer.counters.failures[Failure.SILENT] == 1
        assert it.server.watches <= 3600 / 180 + 2
        # Once it sends some, a dead connection is noticed soon again.
        it.server.bookmark_seconds = 60.0
        await asyncio.sleep(900)
        it.faults.then(stream(end="hang"))
        it.server.close_watches()
        it.server.put("a")
        await it.until_right(92)


LIST_FAULTS: dict[str, list[Answer]] = {
    "server error": [status(500, "InternalError")],
    "not served yet": [status(404, "NotFound")] * 3,
    "forbidden": [status(403, "Forbidden")],
    "throttled": [status(429, "TooManyRequests", headers={"Retry_After": "5"})],
    "half a list": [cut(b'{"kind":"ThingList","items":[', 10_000)],
    "no JSON": [answer("{")],
    "no list": [answer("[]")],
    "no version": [answer({"metadata": {}, "items": []})],
    "an item without a name": [answer({"metadata": {"resourceVersion": "1"}, "items": [{"metadata": {}}]})],
    "an item that is nothing": [answer({"metadata": {"resourceVersion": "1"}, "items": [None]})],
    "dropped": [drop()],
}


@pytest.mark.parametrize("fault", LIST_FAULTS)
async def test_what_happens_to_the_first_list_is_waited_out(fault: str) -> None:
    def prepare(server: CollectionServer, faults: FaultyServer) -> None:
        server.put("a")
        faults.then(*LIST_FAULTS[fault])

    async with following(before=prepare) as it:
        await it.until_right(6.0)
        assert it.told == ["+ns/a"]


async def test_an_object_that_vanished_unseen_is_reported_deleted_without_its_end() -> None:
    async with following(before=lambda server, _: (server.put("a"), server.put("b"))[0]) as it:
        await it.informer.wait_synced()
        it.server.delete("a")
        it.server.delete("b")
        it.server.put("b")
        it.server.compact()
        it.server.close_watches()
        await it.until_right(2.0)
        assert sorted(it.told[:2]) == ["+ns/a", "+ns/b"]
        assert sorted(it.told[2:]) == ["+ns/b", "-ns/a?", "-ns/b?"]


async def test_refused_connections_for_a_minute(clock: VirtualClockLoop, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with faulty_server() as faults:
        server = CollectionServer(faults)
        server.put("a")
        port = int(faults.url.rpartition(":")[2])
        client = KubeClient(Connection.to_address(faults.url))
        informer = Informer(client, PODS, decode, rng=random.Random(1))
        task = asyncio.create_task(informer.run())
        await informer.wait_synced()
    try:
        await asyncio.sleep(60)
        assert 10 <= informer.counters.failures[Failure.BROKEN] <= 24
        assert "ns/a" in informer.lister, "the last known state stays in use"
        async with faulty_server(port) as faults:
            back = CollectionServer(faults)
            back.version = server.version
            back.put("b")
            await asyncio.sleep(10.5)
            assert "ns/b" in informer.lister
            task.cancel()
            await asyncio.wait([task])
    finally:
        await client.close()
    levels = [(record.levelname, record.message.split(" pods")[0]) for record in caplog.records]
    assert levels == [("WARNING", "Cannot list or watch"), ("INFO", "Listing and watching")]


async def test_one_unreadable_object_is_reported_and_harms_no_other() -> None:
    reports: list[tuple[str, str, Any]] = []

    def prepare(server: CollectionServer, _: FaultyServer) -> None:
        server.put("bad", poison=1)
        server.put("good")

    async with following(
        before=prepare,
        on_undecodable=lambda key, error, obj: reports.append((key, str(error), obj["poison"])),
    ) as it:
        await it.informer.wait_synced()
        assert reports == [("ns/bad", "poisoned", 1)]
        it.server.put("good", poison=2)
        it.server.put("other")
        await asyncio.sleep(1)
        assert reports[1:] == [("ns/good", "poisoned", 2)]
        assert set(it.informer.lister) == {"ns/good", "ns/other"}, "what was known of it before stays"
        it.informer.relist()
        await asyncio.sleep(1)
        assert it.server.lists == 2
        assert len(reports) == 2, "the same state is not reported again"
        it.server.put("good")
        it.server.delete("bad")
        await it.until_right(1.0)
        assert it.informer.counters.undecodable == 2


async def test_an_object_that_is_nested_too_deeply_to_be_read_harms_no_other() -> None:
    """The real API server stores ten thousand levels, and the parser reads a tenth of that."""
    reports: list[tuple[str, str]] = []

    def poison(server: CollectionServer, _: FaultyServer) -> None:
        server.put("good")
        server.put("bad", spec=TOO_DEEP)

    async with following(before=poison, on_undecodable=lambda key, error, _: reports.append((key, str(error)))) as it:
        await it.informer.wait_synced()
        assert set(it.informer.lister) == {"ns/good"}
        it.server.put("bad", spec=TOO_DEEP)
        it.server.put("good", size=2)
        await asyncio.sleep(1)
        assert it.informer.lister.get("ns/good") is not None
        assert it.mirror["ns/good"].size == 2
        assert it.server.lists == 1
        assert reports == [("ns/bad", "nested more than 1000 levels deep")] * 2
        it.server.put("bad")
        await it.until_right(1)


async def test_a_handler_that_raises_is_logged_and_harms_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async with following() as it:
        await it.informer.wait_synced()

        def broken(new: Thing) -> None:
            raise ZeroDivisionError(new.key)

        it.informer.add_handler(on_add=broken)
        seen: list[str] = []
        it.informer.add_handler(on_add=lambda new: seen.append(new.key))
        it.server.put("a")
        it.server.put("b")
        await it.until_right(1.0)
        assert seen == ["ns/a", "ns/b"]
        assert "ZeroDivisionError" in caplog.text


async def test_the_whole_object_is_at_hand_when_it_is_deleted(caplog: pytest.LogCaptureFixture) -> None:
    last: list[Any] = []

    def keep(obj: dict[str, Any]) -> None:
        last.append(obj["spec"])
        raise ZeroDivisionError

    async with following(on_deleted_object=keep) as it:
        await it.informer.wait_synced()
        it.server.put("a", spec="large")
        it.server.delete("a")
        it.server.put("b")
        await it.until_right(1.0)
    assert last == ["large"]
    assert it.told == ["+ns/a", "-ns/a", "+ns/b"]
    assert "ZeroDivisionError" in caplog.text


async def test_a_late_handler_gets_existing_objects() -> None:
    async with following(before=lambda server, _: server.put("a")) as it:
        await it.informer.wait_synced()
        seen: list[str] = []
        it.informer.add_handler(on_add=lambda new: seen.append(new.key))
        assert seen == ["ns/a"]


async def test_a_wish_for_a_fresh_list_is_granted_soon_and_not_in_a_circle() -> None:
    async with following() as it:
        await it.informer.wait_synced()
        await asyncio.sleep(20)
        it.server.history.clear()
        it.server.put("missed")
        it.server.history.clear()
        for _ in range(1000):
            it.informer.relist()
            await asyncio.sleep(0.01)
        assert it.is_right
        assert 2 <= it.server.lists <= 8


def _lose_a_deletion(server: CollectionServer) -> None:
    del server.objects["a"]


def _lose_a_change(server: CollectionServer) -> None:
    server.put("a", size=7)
    server.history.clear()


def _lose_an_addition(server: CollectionServer) -> None:
    server.put("new")
    server.history.clear()


def _lose_another_life(server: CollectionServer) -> None:
    del server.objects["a"]
    server.put("a")
    server.history.clear()


@pytest.mark.parametrize("lose", [_lose_a_deletion, _lose_a_change, _lose_an_addition, _lose_another_life])
async def test_comparisons_find_events_that_a_watch_lost(lose: Callable[[CollectionServer], None]) -> None:
    async with following(
        before=lambda server, _: [server.put(name) for name in "abc"], compare_seconds=lambda objects: 600 + objects
    ) as it:
        await it.until_right(1.0)
        lose(it.server)  # and no event tells
        await it.until_right(800)
        # The first one, the comparison, and the one that repairs the copy.
        assert it.server.lists == 3


async def test_handlers_hear_of_a_comparison_as_of_a_list() -> None:
    """The cache never had an object whose first and last event the watch has lost: only its owner knows of it."""
    heard: list[float] = []
    async with following(before=lambda server, _: server.put("a")) as it:
        await it.until_right(1.0)
        it.informer.add_handler(on_listed=lambda: heard.append(it.informer.listed_since))
        before = it.informer.listed_since
        it.informer.compare()
        await until(lambda: heard)
        assert heard == [it.informer.listed_since]
        assert heard[0] > before


async def test_a_comparison_leaves_the_watch_open(clock: VirtualClockLoop) -> None:
    async with following(before=lambda server, _: [server.put(f"{n:03}") for n in range(200)], page_size=10) as it:
        await it.until_right(1.0)
        watches = it.server.watches
        told = asyncio.Event()

        async def changed_meanwhile(request: web.BaseRequest) -> web.StreamResponse:
            it.server.delete("199")  # listed below, if the list is of now
            it.server.put("200")
            it.server.put("100", size=1)
            it.server.delete("005")
            it.server.put("005")
            await it.until_right(1.0)
            told.set()
            return await it.server.answer(request)

        async def listed(request: web.BaseRequest) -> web.StreamResponse:
            answer = await it.server.answer(request)
            it.server.delete("198")  # listed, and gone when the list is complete
            await it.until_right(1.0)
            return answer

        it.faults.then(listed, changed_meanwhile)
        began = clock.time()
        it.informer.compare()
        await told.wait()
        await asyncio.sleep(100)
        assert it.is_right
        assert (it.server.lists, it.server.watches, watches) == (2, 1, 1)
        assert it.informer.listed_since >= began


async def test_a_comparison_that_cannot_be_read_is_repeated(clock: VirtualClockLoop) -> None:
    async with following(before=lambda server, _: [server.put(name) for name in "abc"]) as it:
        await it.until_right(1.0)
        it.faults.then(status(503, "ServiceUnavailable"))
        began = clock.time()
        it.informer.compare()
        await asyncio.sleep(100)
        assert it.informer.listed_since >= began
        assert (it.server.lists, it.server.watches) == (2, 1)


async def test_a_comparison_whose_pages_expire_becomes_a_list(clock: VirtualClockLoop) -> None:
    async with following(before=lambda server, _: [server.put(f"{n:03}") for n in range(50)], page_size=10) as it:
        await it.until_right(1.0)
        it.faults.then(it.server.answer, status(410, "Expired"))
        began = clock.time()
        it.informer.compare()
        await asyncio.sleep(1)
        assert it.informer.listed_since >= began
        assert it.is_right


async def test_cancelling_is_clean_and_it_can_run_again() -> None:
    async with following(before=lambda server, _: server.put("a")) as it:
        await it.informer.wait_synced()
        with pytest.raises(RuntimeError, match="running already"):
            await it.informer.run()
    async with following(before=lambda server, _: server.put("a")) as it:
        for _ in range(3):
            fresh = Informer(it.client, PODS, decode)
            for moment in range(6):
                task = asyncio.create_task(fresh.run())
                for _ in range(moment):
                    await asyncio.sleep(0)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            task = asyncio.create_task(fresh.run())
            await fresh.wait_synced()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert set(fresh.lister) == {"ns/a"}


async def test_a_huge_event_among_small_ones() -> None:
    async with following() as it:
        await it.informer.wait_synced()
        it.server.put("small")
        it.server.put("huge", blob="x" * 6_000_000)
        it.server.put("small", size=2)
        await it.until_right(1.0)


async def test_managed_fields_are_not_even_parsed() -> None:
    seen: list[Any] = []

    def keep(obj: dict[str, Any]) -> Thing:
        seen.append(orjson.loads(orjson.dumps(obj)))
        return decode(obj)

    async with following(before=lambda server, _: server.put("a")) as it:
        informer = Informer(it.client, PODS, keep)
        for obj in it.server.objects.values():
            obj["metadata"]["managedFields"] = [{"manager": "x", "fieldsV1": {"f:a": {}}}]
        task = asyncio.create_task(informer.run())
        await informer.wait_synced()
        it.server.put("b")
        await asyncio.sleep(0.1)
        task.cancel()
    assert [sorted(obj["metadata"]) for obj in seen] == [["name", "namespace", "resourceVersion", "uid"]] * 2
