"""The requests of the event recorder, and the Events that it drops."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from frameworkcontroller.api.completion import CONTAINER_PERMANENT_FAILED, POD_EXTERNAL_DELETED, Code, CompletionStatus
from frameworkcontroller.controller.recorder import (
    MAX_MESSAGE_BYTES,
    MAX_QUEUED,
    MUTE_SEC,
    TRIES,
    EventRecorder,
)
from frameworkcontroller.controller.taskevents import DELAY_SEC, MAX_DELAY_SEC, RESET_SEC
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.machine.kernel.model import Record
from frameworkcontroller.machine.lifereasons import LifeReason
from tests.support.faulty_server import Answer, FaultyServer, drop, faulty_server, silence, status
from tests.support.frameworks import Json
from tests.support.virtual_clock import wall

pytestmark = pytest.mark.virtual_clock


class Board:
    """An API server of Events, and its requests."""

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
    def summary(self) -> list[tuple[str, str, int]]:
        """Reason, message and count of each, in the order of their names."""
        return [(one["reason"], one["message"], one["count"]) for _, one in sorted(self.events.items())]


@pytest.fixture
async def board() -> AsyncIterator[Board]:
    async with faulty_server() as server:
        yield Board(server)


@pytest.fixture
async def recorder(board: Board) -> AsyncIterator[EventRecorder]:
    async with KubeClient(Connection.to_address(board.server.url), wall=wall) as client:
        recorder = EventRecorder(client, wall=wall, rng=random.Random(1))
        running = asyncio.create_task(recorder.run())
        yield recorder
        running.cancel()


def started(text: str = "it started") -> Record:
    return Record(LifeReason.FRAMEWORK_ATTEMPT_STARTED, text)


def failed(index: int, code: Code = CONTAINER_PERMANENT_FAILED, role: str = "a") -> Record:
    completion = CompletionStatus.of(code, "it broke")
    return Record(LifeReason.TASK_FAILED, f"TaskAttempt 0 failed: it broke {index}", role, index, True, completion)


def send(recorder: EventRecorder, *records: Record, name: str = "f", namespace: str = "ns") -> None:
    recorder.record(f"{namespace}/{name}", f"uid of {name}", records, log=False)


async def test_a_repeated_event_is_patched_and_created_again_after_it_expired(
    board: Board, recorder: EventRecorder
) -> None:
    for _ in range(2):
        send(recorder, started())
        await asyncio.sleep(1)
    assert board.summary == [("FrameworkAttemptStarted", "it started", 2)]
    assert board.requests == ["POST", "PATCH"]
    # An API server keeps an Event for an hour.
    board.events.clear()
    send(recorder, started())
    await asyncio.sleep(1)
    assert board.summary == [("FrameworkAttemptStarted", "it started", 3)]
    assert (recorder.counters["created"], recorder.counters["patched"]) == (2, 1)


async def test_records_for_the_log_only_are_not_sent(board: Board, recorder: EventRecorder) -> None:
    send(
        recorder, Record(LifeReason.POD_CREATED, "x", "a", 0), Record(LifeReason.TASK_COMPLETED, "it succeeded", "a", 0)
    )
    send(recorder, Record(LifeReason.TASK_COMPLETED, "it did not", "a", 0, warning=True))
    await asyncio.sleep(5)
    assert board.summary == [("TaskCompleted", "Task a[0]: it did not", 1)]


async def test_equal_records_of_tasks_are_one_event(board: Board, recorder: EventRecorder) -> None:
    send(recorder, *(failed(index) for index in range(36, -1, -1)))
    send(recorder, failed(0, POD_EXTERNAL_DELETED), failed(3, role="b"))
    assert board.summary == []
    await asyncio.sleep(DELAY_SEC + 1)
    assert board.summary == [
        (
            "TaskFailed",
            "37 Tasks of TaskRole a failed with 210 ContainerPermanentFailed: a[32], a[33], a[34], a[35], a[36] and 32 "
            "more; a[36]: TaskAttempt 0 failed: it broke 36",
            1,
        ),
        ("TaskFailed", "Task a[0]: TaskAttempt 0 failed: it broke 0", 1),
        ("TaskFailed", "Task b[3]: TaskAttempt 0 failed: it broke 3", 1),
    ]


async def test_repeated_records_of_one_task_count_as_one_task(board: Board, recorder: EventRecorder) -> None:
    send(recorder, failed(0), failed(0))
    await asyncio.sleep(DELAY_SEC + 1)
    assert board.summary == [("TaskFailed", "Task a[0] (2 times): TaskAttempt 0 failed: it broke 0", 1)]
    send(recorder, failed(1), failed(0), failed(1))
    await asyncio.sleep(2 * DELAY_SEC + 1)
    words = "2 Tasks of TaskRole a failed with 210 ContainerPermanentFailed: a[0], a[1]; a[1]: "
    assert board.summary[1:] == [("TaskFailed", f"{words}TaskAttempt 0 failed: it broke 1", 1)]


async def test_an_event_about_the_framework_flushes_those_about_its_tasks_first(
    board: Board, recorder: EventRecorder
) -> None:
    send(recorder, failed(0), Record(LifeReason.FRAMEWORK_FAILED, "it failed", warning=True))
    await asyncio.sleep(0.1)
    assert [reason for reason, _, _ in board.summary] == ["TaskFailed", "FrameworkFailed"]


async def test_many_records_of_tasks_are_sent_in_growing_batches_without_loss(
    board: Board, recorder: EventRecorder
) -> None:
    for index in range(10_000):
        send(recorder, failed(index))
        await asyncio.sleep(0.05)
    await asyncio.sleep(MAX_DELAY_SEC)
    assert sum(int(message.split()[0]) for _, message, _ in board.summary) == 10_000
    assert len(board.requests) <= 11
    await asyncio.sleep(RESET_SEC)
    send(recorder, failed(7))
    await asyncio.sleep(DELAY_SEC + 1)
    assert board.summary[-1][1] == "Task a[7]: TaskAttempt 0 failed: it broke 7"


async def test_messages_are_cut_to_the_limit_of_the_api(board: Board, recorder: EventRecorder) -> None:
    send(recorder, started("ä" * MAX_MESSAGE_BYTES), started("\udc80 half of a pair"))
    await asyncio.sleep(1)
    (_, long, _), (_, odd, _) = board.summary
    assert len(long.encode()) <= MAX_MESSAGE_BYTES
    assert long.endswith("ä...")
    assert odd == "\\udc80 half of a pair"


async def test_transient_errors_are_retried(board: Board, recorder: EventRecorder) -> None:
    board.server.then(
        drop(), status(500, "InternalError"), status(429, "TooManyRequests", headers={"Retry_After": "7"})
    )
    send(recorder, started("first"), started("second"))
    await asyncio.sleep(60)
    assert [message for _, message, _ in board.summary] == ["first", "second"]


async def test_a_lost_response_creates_no_second_event(board: Board, recorder: EventRecorder) -> None:
    async def execute_and_drop(request: web.BaseRequest) -> web.StreamResponse:
        await board.handle(request)
        return await drop()(request)

    board.server.then(execute_and_drop)
    send(recorder, started())
    await asyncio.sleep(60)
    assert board.summary == [("FrameworkAttemptStarted", "it started", 1)]
    assert recorder.counters["unsent"] == 0


async def test_an_unavailable_server_only_costs_events(
    board: Board, recorder: EventRecorder, caplog: pytest.LogCaptureFixture
) -> None:
    board.server.otherwise = drop()
    for number in range(MAX_QUEUED + 50):
        send(recorder, started(), name=f"f{number}")
    await asyncio.sleep(1)
    assert recorder.counters["overflowed"] == 50
    await asyncio.sleep(TRIES * 10 * 5)
    assert recorder.counters["unsent"] >= 4
    assert len([line for line in caplog.messages if "dropping new ones" in line]) == 1
    assert len([line for line in caplog.messages if "Cannot send Events" in line]) == 1
    board.server.otherwise = board.handle
    await asyncio.sleep(60)
    assert recorder.counters["created"] == MAX_QUEUED - recorder.counters["unsent"]


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
async def test_a_namespace_that_refuses_events_is_logged_once(
    board: Board, recorder: EventRecorder, caplog: pytest.LogCaptureFixture, answer: Answer, why: str
) -> None:
    board.server.otherwise = answer
    caplog.set_level(logging.INFO)
    for number in range(20):
        send(recorder, started(), name=f"f{number}")
        await asyncio.sleep(MUTE_SEC / 10)
    assert [why in line for line in caplog.messages] == [True]
    assert recorder.counters["refused"] == 20
    # Other namespaces are not muted, and this one only for a time.
    board.server.otherwise = board.handle
    send(recorder, started(), namespace="other")
    await asyncio.sleep(MUTE_SEC)
    send(recorder, started(), name="late")
    await asyncio.sleep(1)
    assert len(board.events) == 2
    board.server.otherwise = answer
    send(recorder, started("again"))
    await asyncio.sleep(1)
    assert len(caplog.messages) == 2


async def test_a_namespace_that_refuses_events_gets_few_requests(board: Board, recorder: EventRecorder) -> None:
    board.server.otherwise = status(403, "Forbidden", "no")
    for number in range(200):
        send(recorder, started(), name=f"f{number}")
        await asyncio.sleep(MUTE_SEC / 100)
    assert len(board.server.seen) <= 4


async def test_a_queued_event_is_updated(board: Board, recorder: EventRecorder) -> None:
    board.server.then(silence(30))
    for _ in range(5):
        send(recorder, started("first"), started("second"))
    await asyncio.sleep(60)
    assert max(board.summary) == ("FrameworkAttemptStarted", "second", 5)
    # The first was sent, and lost; the second was queued, and is created with its final count.
    assert board.requests == ["POST"]


async def test_drain_flushes_batches_and_times_out(
    board: Board, recorder: EventRecorder, caplog: pytest.LogCaptureFixture
) -> None:
    loop = asyncio.get_running_loop()
    send(recorder, failed(0))
    before = loop.time()
    await recorder.drain(5)
    assert loop.time() - before < DELAY_SEC
    assert len(board.summary) == 1
    board.server.otherwise = silence()
    send(recorder, failed(1))
    before = loop.time()
    await recorder.drain(5)
    assert loop.time() - before == pytest.approx(5, abs=0.5)
    assert "were not sent in time" in caplog.messages[-1]


async def test_an_idle_recorder_sends_nothing(recorder: EventRecorder) -> None:
    send(recorder, started())
    await asyncio.sleep(10_000)
    assert recorder.counters["created"] == 1
