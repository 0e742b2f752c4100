"""The reader of logs: the lines that it asks for, its bounds, turns and records, with a node that obeys the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from frameworkcontroller.api.historyrecords import LogRecord, RecordId
from frameworkcontroller.api.objects import ContainerRun
from frameworkcontroller.controller.logcapture import FOLLOW_SEC, MAX_READ_BYTES, OPEN_SEC, SILENT_SEC, LogCapture
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.errors import Forbidden, TransportError
from frameworkcontroller.machine.kernel.model import Capture

pytestmark = pytest.mark.virtual_clock

STAMP = b"2026-01-31T12:00:00.1Z "
TAIL = 2048
LONG = 10.0


class Node:
    """In place of a client: the logs of containers."""

    def __init__(self) -> None:
        self.logs: dict[str, bytes] = {}
        """By container."""
        self.raises: Exception | None = None
        self.opens_after = 0.0
        self.good = 0
        """Requests before `raises` and `opens_after` count."""
        self.sends_after = 0.0
        """Before the first chunk of each log."""
        self.ends: dict[str, asyncio.Event] = {}
        """Of followed containers."""
        self.asked: list[dict[str, Any]] = []
        self.sent = 0
        self.open = 0
        self.most_open = 0

    @asynccontextmanager
    async def log(
        self, pod: str, _ns: str, container: str, **options: str | int
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        self.asked.append({"pod": pod, "container": container, **options})
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            if len(self.asked) > self.good:
                await asyncio.sleep(self.opens_after)
                if self.raises is not None:
                    raise self.raises
            yield self._chunks(container, options)
        finally:
            self.open -= 1

    async def _chunks(self, container: str, options: dict[str, str | int]) -> AsyncIterator[bytes]:
        await asyncio.sleep(self.sends_after)
        lines = self.logs.get(container, b"").splitlines(keepends=True)[-int(options["tailLines"]) :]
        sent = b"".join(line if line.startswith(b"!") else STAMP + line for line in lines)
        sent = sent[: int(options.get("limitBytes", len(sent)))]
        for begin in range(0, len(sent), 2**16):
            self.sent += len(sent[begin : begin + 2**16])
            yield sent[begin : begin + 2**16]
        if "follow" in options:
            await self.ends.setdefault(container, asyncio.Event()).wait()
            yield STAMP + b"the end\n"


class Sink:
    """Keeps the records."""

    def __init__(self) -> None:
        self.logs: list[LogRecord] = []
        self.is_full = False
        self.came = asyncio.Event()

    def offer_log(self, place: tuple[str, str, int], found: RecordId, log: LogRecord) -> bool:
        assert (place, found.kind) == (("ns", "f", 3), "Pod")
        self.logs.append(log)
        self.came.set()
        return not self.is_full


class World:
    """A capture with its node and its sink."""

    def __init__(self, *, concurrency: int = 2, tail: int = TAIL) -> None:
        self.node, self.sink = Node(), Sink()
        self.began = asyncio.get_running_loop().time()
        client = cast("KubeClient", self.node)
        self.capture = LogCapture(client, self.sink, tail_bytes=tail, concurrency=concurrency)
        self.released: dict[str, float] = {}

    def ask(self, *runs: ContainerRun, uid: str = "p", **options: Any) -> None:
        """A machine asks for the logs of a Pod."""
        found = RecordId(framework_uid="u", attempt=0, role="a", task_uid="t", task_attempt=0, pod_uid=uid)
        capture = Capture(found, 7, f"f-{uid}", "node-1", runs or (run(),), **{"until": self.began + LONG, **options})
        self.capture.capture("ns/f", 3, capture, lambda: self._release(uid))

    def _release(self, uid: str) -> None:
        self.released.setdefault(uid, self.passed)

    @property
    def passed(self) -> float:
        """The seconds since the beginning."""
        return round(asyncio.get_running_loop().time() - self.began, 1)

    async def until(self, records: int) -> list[LogRecord]:
        """Wait for that number of records."""
        while len(self.sink.logs) < records:
            self.sink.came.clear()
            await self.sink.came.wait()
        return self.sink.logs


def run(container: str = "main", number: int = 0, *, previous: bool = False) -> ContainerRun:
    return ContainerRun(container, number, previous)


async def test_a_short_log_is_whole() -> None:
    world = World()
    world.node.logs = {"main": b"said\nmore\n", "old": b"before\n"}
    world.ask(run("main", 2), run("old", 1, previous=True), run("silent"))
    main, old, silent = await world.until(3)
    assert main == LogRecord(
        index=7, pod_name="f-p", node="node-1", container="main", run=2, packed=main.packed, size=10
    )
    assert main.data() == b"said\nmore\n"
    assert (old.container, old.run, old.data()) == ("old", 1, b"before\n")
    assert (silent.data(), silent.cut_start, silent.cut_end, silent.why) == (b"", False, False, "")
    assert [("previous" in asked, asked["timestamps"]) for asked in world.node.asked] == [
        (False, "true"),
        (True, "true"),
        (False, "true"),
    ]
    assert world.released == {"p": 0.0}
    assert world.capture.results == {"captured": 3}


@pytest.mark.parametrize("length", [1, 2, 10, 64, 100, 1000, 2047, 5000, 100_000])
async def test_the_last_bytes_of_a_long_log(length: int) -> None:
    """Short and long lines: few requests, and few bytes."""
    world = World()
    line = b"x" * (length - 1) + b"\n"
    world.node.logs = {"main": b"first\n" + line * (1_000_000 // length)}
    world.ask()
    (log,) = await world.until(1)
    assert log.data() == world.node.logs["main"][-TAIL:]
    assert (log.cut_start, log.cut_end, log.why) == (True, False, "")
    assert len(world.node.asked) <= 3
    assert world.node.sent <= 200 * TAIL


async def test_equal_logs_are_read_with_few_bytes() -> None:
    """The first one shows how long the lines are."""
    world = World(concurrency=1)
    world.node.logs = {"main": (b"x" * 127 + b"\n") * 1000}
    for number in range(5):
        world.ask(uid=str(number))
    await world.until(2)
    before = world.node.sent
    for log in await world.until(5):
        assert log.data() == world.node.logs["main"][-TAIL:]
    assert world.node.sent - before <= 3 * 1.5 * TAIL
    world.node.logs = {"main": b"y\n" * 10_000}
    world.ask(uid="short")
    assert (await world.until(6))[5].data() == b"y\n" * (TAIL // 2)


async def test_a_line_without_end() -> None:
    world = World()
    world.node.logs = {"main": b"x" * (2 * MAX_READ_BYTES)}
    world.ask()
    (log,) = await world.until(1)
    assert log.data() == b"x" * TAIL
    assert (log.cut_start, log.cut_end, log.why) == (True, True, f"its lines are longer than {MAX_READ_BYTES} bytes")
    assert world.node.sent <= 2 * MAX_READ_BYTES


async def test_binary_output_stays_as_it_is() -> None:
    world = World()
    world.node.logs = {"main": bytes(range(256)).replace(b"\r", b"") + b"\n"}
    world.ask()
    assert (await world.until(1))[0].data() == world.node.logs["main"]


@pytest.mark.parametrize(
    ("problem", "why"),
    [
        (Forbidden("pods/log is\nforbidden", code=403), "pods/log is forbidden"),
        (TransportError("broken off"), "broken off"),
    ],
)
async def test_a_refusal_is_in_the_record(problem: Exception, why: str) -> None:
    world = World()
    world.node.raises = problem
    world.ask(run(), follow=True)
    (log,) = await world.until(1)
    assert (log.size, log.cut_start, log.cut_end, log.why) == (0, True, True, why)
    assert world.released == {"p": 0.0}
    assert world.capture.results == {"missed": 1}


@pytest.mark.parametrize("follow", [True, False])
async def test_an_error_text_with_the_code_200_is_no_log(follow: bool) -> None:
    world = World()
    world.node.logs = {"main": b"!failed to get container status\n"}
    world.node.ends["main"] = asyncio.Event()
    world.node.ends["main"].set()
    world.ask(follow=follow)
    (log,) = await world.until(1)
    assert (log.size, log.cut_end) == (0, True)
    assert log.why.startswith("its node answers: !failed to get container status")
    assert "p" in world.released


@pytest.mark.parametrize("place", ["opens_after", "sends_after"])
async def test_a_node_that_hangs_delays_the_deletion_within_the_bound(place: str) -> None:
    world = World()
    setattr(world.node, place, 10_000.0)
    world.ask(run("a"), run("b"), run("c"))
    logs = await world.until(3)
    assert world.released == {"p": LONG}
    assert {log.why for log in logs} == {
        "its node did not send it in time",
        "its turn did not come in time, as 1 logs waited (history.logs.concurrency)",
    }
    await asyncio.sleep(1.0)
    assert world.node.open == 0


async def test_a_pod_that_runs_is_followed_to_its_end() -> None:
    world = World()
    world.node.logs = {"main": b"said\n"}
    world.ask(follow=True)
    await asyncio.sleep(100.0)
    assert world.released == {"p": 0.0}
    assert not world.sink.logs
    world.node.ends["main"].set()
    (log,) = await world.until(1)
    assert (log.data(), log.cut_start, log.cut_end, log.why) == (b"said\nthe end\n", False, False, "")


async def test_a_silent_container_is_taken_for_followed() -> None:
    """Old API servers answer with the first byte."""
    world = World()
    world.node.opens_after = 30.0
    world.ask(follow=True)
    await asyncio.sleep(LONG)
    assert world.released == {"p": OPEN_SEC}
    world.node.ends["main"] = asyncio.Event()
    world.node.ends["main"].set()
    assert (await world.until(1))[0].data() == b"the end\n"


async def test_following_is_bounded() -> None:
    world = World()
    world.ask(follow=True)
    (log,) = await world.until(1)
    assert (log.cut_end, log.why) == (True, f"it did not end within {FOLLOW_SEC:.0f} s")
    assert world.passed == pytest.approx(FOLLOW_SEC, abs=1)
    hanging = World()
    hanging.node.opens_after = 10_000.0
    hanging.ask(follow=True)
    assert (await hanging.until(1))[0].why == "its node did not send it in time"
    assert hanging.passed == pytest.approx(OPEN_SEC + SILENT_SEC, abs=1)


async def test_a_container_that_writes_without_end() -> None:
    world = World()
    world.node.logs = {"main": b"y\n" * MAX_READ_BYTES}
    line = b"x" * 200_000 + b"\n"
    world.node.logs = {"main": line * 200}
    world.ask(follow=True)
    (log,) = await world.until(1)
    assert (
        log.data() == world.node.logs["main"][: MAX_READ_BYTES - (MAX_READ_BYTES // len(line) + 1) * len(STAMP)][-TAIL:]
    )
    assert log.why == f"it was followed for {MAX_READ_BYTES} bytes only"
    assert world.node.sent <= MAX_READ_BYTES + 2**16


async def test_an_unexpected_error_is_in_the_record_and_delays_nothing(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.node.raises = ValueError("no such codec")
    world.ask()
    (log,) = await world.until(1)
    assert (log.size, log.cut_end, log.why) == (0, True, "an error of the controller: ValueError('no such codec')")
    assert world.released == {"p": 0.0}
    assert "Cannot read a log of Pod ns/f-p" in caplog.text


@pytest.mark.parametrize("problem", [TransportError("broken off"), None])
async def test_lines_of_a_first_read_stay_if_the_second_one_fails(problem: Exception | None) -> None:
    """The second one asks for more lines, as they were short."""
    world = World()
    world.node.logs = {"main": b"y\n" * 10_000}
    world.node.good, world.node.raises, world.node.opens_after = 1, problem, 0.0 if problem else 10_000.0
    world.ask()
    (log,) = await world.until(1)
    assert (log.data(), log.cut_start) == (b"y\n" * int(world.node.asked[0]["tailLines"]), True)
    assert log.why == ("its node did not send all in time" if problem is None else "broken off")
    assert len(world.node.asked) == 2


@pytest.mark.timeout(20)
async def test_many_pods_whose_turn_does_not_come_take_time_in_proportion_to_their_number() -> None:
    world = World()
    world.node.opens_after = 10_000.0
    for number in range(20_000):
        world.ask(uid=str(number))
    await world.until(20_000)
    assert {*world.released.values()} == {LONG}
    assert len(world.released) == 20_000


async def test_where_there_is_no_room_logs_are_read_as_they_stand() -> None:
    world = World(concurrency=1)
    world.node.logs = {"main": b"said\n"}
    world.ask(uid="p", follow=True)
    world.ask(uid="q", follow=True)
    (log,) = await world.until(1)
    assert (log.pod_name, log.data(), log.cut_end) == ("f-q", b"said\n", True)
    assert log.why == "it was not followed to its end, as 1 others were (history.logs.concurrency)"
    assert world.released == {"p": 0.0, "q": 0.0}
    assert world.capture.results == {"cut": 1}


async def test_the_most_important_ones_come_first() -> None:
    world = World(concurrency=1)
    world.node.opens_after = 1.0
    for uid, rank in (("first", 2), ("c", 2), ("b", 1), ("a", 0)):
        world.ask(uid=uid, rank=rank)
    logs = await world.until(4)
    assert [log.pod_name for log in logs] == ["f-first", "f-a", "f-b", "f-c"]
    assert world.node.most_open == 1


async def test_a_reason_without_a_read() -> None:
    world = World()
    world.ask(why="the API server is slow", until=0.0)
    assert [log.why for log in world.sink.logs] == ["the API server is slow"]
    assert not world.node.asked


async def test_a_full_sink_counts_as_missed() -> None:
    world = World()
    world.sink.is_full = True
    world.node.logs = {"main": b"said\n"}
    world.ask()
    await world.until(1)
    assert world.capture.results == {"missed": 1}
    assert world.released == {"p": 0.0}


async def test_a_stop_keeps_the_followed_part() -> None:
    world = World(concurrency=1)
    world.node.logs = {"main": b"said\n"}
    world.ask(follow=True)
    await asyncio.sleep(1.0)
    world.node.sends_after = 5.0
    world.ask(uid="q")
    world.ask(uid="r")
    await asyncio.sleep(1.0)
    await world.capture.stop()
    # The deletion of q and r was not requested: the next process reads them.
    assert [(log.pod_name, log.data(), log.why) for log in world.sink.logs] == [
        ("f-p", b"said\n", "the controller stopped before its end")
    ]
    world.ask(uid="s")
    assert world.sink.logs[-1].why == "the controller stops"


async def test_a_deposed_leader_writes_nothing() -> None:
    world = World(concurrency=1)
    world.node.opens_after = 5.0
    world.ask(uid="p")
    world.ask(uid="q", follow=True)
    world.ask(uid="r")
    world.capture.clear()
    await asyncio.sleep(1000.0)
    assert not world.sink.logs
    assert world.node.open == 0
    world.ask(uid="s", until=asyncio.get_running_loop().time() + LONG)
    assert [log.pod_name for log in await world.until(1)] == ["f-s"]


async def test_a_large_log_is_compressed_in_a_thread() -> None:
    world = World(tail=2**20)
    world.node.logs = {"main": b"0123456789abcde\n" * 2**17}
    world.ask()
    (log,) = await world.until(1)
    assert log.data() == world.node.logs["main"][-(2**20) :]
