"""What the broadcaster sends, and what becomes of what it cannot send."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from frameworkcontroller.api.completion import CONTAINER_PERMANENT_FAILED, POD_EXTERNAL_DELETED, Code, CompletionStatus
from frameworkcontroller.controller.eventbroadcaster import (
    MAX_MESSAGE_BYTES,
    MAX_QUEUED,
    MUTE_SEC,
    TRIES,
    EventBroadcaster,
)
from frameworkcontroller.controller.taskevents import DELAY_SEC, MAX_DELAY_SEC, RESET_SEC
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.machine.model import Record
from frameworkcontroller.machine.reasons import Reason
from tests.support.faulty_server import Answer, FaultyServer, drop, faulty_server, silence, status
from tests.support.frameworks import Json
from tests.support.virtual_clock import wall

pytestmark = pytest.mark.virtual_clock


class Board:
    """An API server that keeps Events, and what it was sent."""

    def __init__(self, server: FaultyServer) -> None:
        self.server = server
        self.events: dict[str, Json] = {}
        self.requests: list[str] = []
        server.otherwise = self.handle

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Create or merge."""
        body = self.server.seen[-1].json()
        name = body["metadata"]["name"] if request.method == "POST" else request.path.rpartition("/")[2]
        self.requests.append(request.method)
        if request.method == "POST":
            if name in self.events:
                return await status(409, "AlreadyExists")(request)
            self.events[name] = body
        elif name in self.events:
            self.events[name].update(body)
        else:
            return await status(404, "NotFound")(request)
        return web.Response(body=b"{}")

    @property
    def told(self) -> list[tuple[str, str, int]]:
        """Reason, message and count of each, in the order of their names."""
        return [(one["reason"], one["message"], one["count"]) for _, one in sorted(self.events.items())]


@pytest.fixture
async def board() -> AsyncIterator[Board]:
    async with faulty_server() as server:
        yield Board(server)


@pytest.fixture
async def broadcaster(board: Board) -> AsyncIterator[EventBroadcaster]:
    async with KubeClient(Connection.to_address(board.server.url), wall=wall) as client:
        broadcaster = EventBroadcaster(client, wall=wall, rng=random.Random(1))
        running = asyncio.create_task(broadcaster.run())
        yield broadcaster
        running.cancel()


def started(text: str = "it started") -> Record:
    return Record(Reason.FRAMEWORK_ATTEMPT_STARTED, text)


def failed(index: int, code: Code = CONTAINER_PERMANENT_FAILED, role: str = "a") -> Record:
    completion = CompletionStatus.of(code, "it broke")
    return Record(Reason.TASK_FAILED, f"TaskAttempt 0 failed: it broke {index}", role, index, True, completion)


def tell(broadcaster: EventBroadcaster, *records: Record, name: str = "f", namespace: str = "ns") -> None:
    broadcaster.broadcast(namespace, name, f"uid of {name}", records)


async def test_the_same_again_is_patched_and_made_anew_once_it_is_forgotten(
    board: Board, broadcaster: EventBroadcaster
) -> None:
    for _ in range(2):
        tell(broadcaster, started())
        await asyncio.sleep(1)
    assert board.told == [("FrameworkAttemptStarted", "it started", 2)]
    assert board.requests == ["POST", "PATCH"]
    # An API server keeps an Event for an hour.
    board.events.clear()
    tell(broadcaster, started())
    await asyncio.sleep(1)
    assert board.told == [("FrameworkAttemptStarted", "it started", 3)]
    assert (broadcaster.counters.created, broadcaster.counters.patched) == (2, 1)


async def test_what_is_only_for_the_log_is_not_sent(board: Board, broadcaster: EventBroadcaster) -> None:
    tell(broadcaster, Record(Reason.POD_CREATED, "x", "a", 0), Record(Reason.TASK_COMPLETED, "it succeeded", "a", 0))
    tell(broadcaster, Record(Reason.TASK_COMPLETED, "it did not", "a", 0, warning=True))
    await asyncio.sleep(5)
    assert board.told == [("TaskCompleted", "Task a[0]: it did not", 1)]


async def test_tasks_that_do_the_same_are_told_of_together(board: Board, broadcaster: EventBroadcaster) -> None:
    tell(broadcaster, *(failed(index) for index in range(36, -1, -1)))
    tell(broadcaster, failed(0, POD_EXTERNAL_DELETED), failed(3, role="b"))
    assert board.told == []
    await asyncio.sleep(DELAY_SEC + 1)
    assert board.told == [
        (
            "TaskFailed",
            "37 Tasks of TaskRole a failed with 210 ContainerPermanentFailed: a[32], a[33], a[34], a[35], a[36] and 32 "
            "more; a[36]: TaskAttempt 0 failed: it broke 36",
            1,
        ),
        ("TaskFailed", "Task a[0]: TaskAttempt 0 failed: it broke 0", 1),
        ("TaskFailed", "Task b[3]: TaskAttempt 0 failed: it broke 3", 1),
    ]


async def test_one_task_that_does_the_same_again_is_not_told_of_as_several(
    board: Board, broadcaster: EventBroadcaster
) -> None:
    tell(broadcaster, failed(0), failed(0))
    await asyncio.sleep(DELAY_SEC + 1)
    assert board.told == [("TaskFailed", "Task a[0] (2 times): TaskAttempt 0 failed: it broke 0", 1)]
    tell(broadcaster, failed(1), failed(0), failed(1))
    await asyncio.sleep(2 * DELAY_SEC + 1)
    words = "2 Tasks of TaskRole a failed with 210 ContainerPermanentFailed: a[0], a[1]; a[1]: "
    assert board.told[1:] == [("TaskFailed", f"{words}TaskAttempt 0 failed: it broke 1", 1)]


async def test_what_happens_to_the_framework_is_told_after_what_led_to_it(
    board: Board, broadcaster: EventBroadcaster
) -> None:
    tell(broadcaster, failed(0), Record(Reason.FRAMEWORK_FAILED, "it failed", warning=True))
    await asyncio.sleep(0.1)
    assert [reason for reason, _, _ in board.told] == ["TaskFailed", "FrameworkFailed"]


async def test_a_storm_of_tasks_is_told_of_less_and_less_often_and_whole(
    board: Board, broadcaster: EventBroadcaster
) -> None:
    for index in range(10_000):
        tell(broadcaster, failed(index))
        await asyncio.sleep(0.05)
    await asyncio.sleep(MAX_DELAY_SEC)
    assert sum(int(message.split()[0]) for _, message, _ in board.told) == 10_000
    assert len(board.requests) <= 11
    await asyncio.sleep(RESET_SEC)
    tell(broadcaster, failed(7))
    await asyncio.sleep(DELAY_SEC + 1)
    assert board.told[-1][1] == "Task a[7]: TaskAttempt 0 failed: it broke 7"


async def test_messages_are_cut_to_what_the_api_takes(board: Board, broadcaster: EventBroadcaster) -> None:
    tell(broadcaster, started("ä" * MAX_MESSAGE_BYTES), started("\udc80 half of a pair"))
    await asyncio.sleep(1)
    (_, long, _), (_, odd, _) = board.told
    assert len(long.encode()) <= MAX_MESSAGE_BYTES
    assert long.endswith("ä...")
    assert odd == "\\udc80 half of a pair"


async def test_trouble_is_waited_out(board: Board, broadcaster: EventBroadcaster) -> None:
    board.server.then(
        drop(), status(500, "InternalError"), status(429, "TooManyRequests", headers={"Retry_After": "7"})
    )
    tell(broadcaster, started("first"), started("second"))
    await asyncio.sleep(60)
    assert [message for _, message, _ in board.told] == ["first", "second"]


async def test_a_lost_answer_makes_no_second_event(board: Board, broadcaster: EventBroadcaster) -> None:
    async def execute_and_drop(request: web.BaseRequest) -> web.StreamResponse:
        await board.handle(request)
        return await drop()(request)

    board.server.then(execute_and_drop)
    tell(broadcaster, started())
    await asyncio.sleep(60)
    assert board.told == [("FrameworkAttemptStarted", "it started", 1)]
    assert broadcaster.counters.unsent == 0


async def test_a_server_that_is_away_for_long_costs_events_and_nothing_else(
    board: Board, broadcaster: EventBroadcaster, caplog: pytest.LogCaptureFixture
) -> None:
    board.server.otherwise = drop()
    for number in range(MAX_QUEUED + 50):
        tell(broadcaster, started(), name=f"f{number}")
    await asyncio.sleep(1)
    assert broadcaster.counters.overflowed == 50
    await asyncio.sleep(TRIES * 10 * 5)
    assert broadcaster.counters.unsent >= 4
    assert len([line for line in caplog.messages if "dropping new ones" in line]) == 1
    assert len([line for line in caplog.messages if "Cannot send Events" in line]) == 1
    board.server.otherwise = board.handle
    await asyncio.sleep(60)
    assert broadcaster.counters.created == MAX_QUEUED - broadcaster.counters.unsent


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (status(403, "Forbidden", 'events is forbidden: User "x" cannot create resource'), "Not permitted to create"),
        (
            status(
                403,
                "Forbidden",
                "because it is being terminated",
                details={"causes": [{"reason": "NamespaceTerminating"}]},
            ),
            "the namespace is being deleted",
        ),
        (status(404, "NotFound", 'namespaces "ns" not found'), "the namespace is being deleted"),
        (status(422, "Invalid", "Event is invalid"), "refuses an Event"),
    ],
)
async def test_a_namespace_that_takes_none_is_named_once(
    board: Board, broadcaster: EventBroadcaster, caplog: pytest.LogCaptureFixture, answer: Answer, why: str
) -> None:
    board.server.otherwise = answer
    caplog.set_level(logging.INFO)
    for number in range(20):
        tell(broadcaster, started(), name=f"f{number}")
        await asyncio.sleep(MUTE_SEC / 10)
    assert [why in line for line in caplog.messages] == [True]
    assert broadcaster.counters.refused == 20
    # Others are told of at once, and it again by and by.
    board.server.otherwise = board.handle
    tell(broadcaster, started(), namespace="other")
    await asyncio.sleep(MUTE_SEC)
    tell(broadcaster, started(), name="late")
    await asyncio.sleep(1)
    assert len(board.events) == 2
    board.server.otherwise = answer
    tell(broadcaster, started("again"))
    await asyncio.sleep(1)
    assert len(caplog.messages) == 2


async def test_a_namespace_that_takes_none_is_not_asked_again_and_again(
    board: Board, broadcaster: EventBroadcaster
) -> None:
    board.server.otherwise = status(403, "Forbidden", "no")
    for number in range(200):
        tell(broadcaster, started(), name=f"f{number}")
        await asyncio.sleep(MUTE_SEC / 100)
    assert len(board.server.seen) <= 4


async def test_what_waits_is_brought_up_to_date(board: Board, broadcaster: EventBroadcaster) -> None:
    board.server.then(silence(30))
    for _ in range(5):
        tell(broadcaster, started("first"), started("second"))
    await asyncio.sleep(60)
    assert max(board.told) == ("FrameworkAttemptStarted", "second", 5)
    # The first was sent, and lost; the second waited, and is created as it is by then.
    assert board.requests == ["POST"]


async def test_drain_sends_what_is_held_and_gives_up_in_time(
    board: Board, broadcaster: EventBroadcaster, caplog: pytest.LogCaptureFixture
) -> None:
    loop = asyncio.get_running_loop()
    tell(broadcaster, failed(0))
    before = loop.time()
    await broadcaster.drain(5)
    assert loop.time() - before < DELAY_SEC
    assert len(board.told) == 1
    board.server.otherwise = silence()
    tell(broadcaster, failed(1))
    before = loop.time()
    await broadcaster.drain(5)
    assert loop.time() - before == pytest.approx(5, abs=0.5)
    assert "were not sent in time" in caplog.messages[-1]


async def test_nothing_runs_while_there_is_nothing_to_tell(broadcaster: EventBroadcaster) -> None:
    tell(broadcaster, started())
    await asyncio.sleep(10_000)
    assert broadcaster.counters.created == 1
