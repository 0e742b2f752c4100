"""The sinks of the history with a whole controller: a forgotten object is stored before, for any fault of the sink."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web

from frameworkcontroller.api.historyrecords import UNREADABLE_ATTEMPT, Trigger, decode_record
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.config.config import Config
from frameworkcontroller.config.historyconfig import History, HistorySinkKind, OnUnavailable
from frameworkcontroller.kube.client import JSON_PATCH
from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.kube.resources import EVENTS, NAMESPACES
from frameworkcontroller.manager.app import Controller
from tests.support.archiveserver import UNAVAILABLE, ArchiveServer, archive_server
from tests.support.clusters import Cluster
from tests.support.eventually import eventually, until
from tests.support.faulty_server import Answer, answer, drop, silence
from tests.support.frameworks import Frameworks, condition, policy, role, states, tasks
from tests.support.frontdoor import FrontDoor, Request, front_door, refusal
from tests.support.objects import read

pytestmark = pytest.mark.virtual_clock

FINALIZER = "frameworkcontroller.microsoft.com/history"
RUNNING = ["AttemptRunning"] * 3


@pytest.fixture
async def archive() -> AsyncIterator[ArchiveServer]:
    async with archive_server() as server:
        yield server


@asynccontextmanager
async def controller(
    cluster: Cluster, connection: Connection | None = None, **history: Any
) -> AsyncIterator[Controller]:
    config = Config(history=History(**history))
    async with Controller(config, connection or await cluster.connection(), wall=cluster.wall) as made:
        yield made


def http(archive: ArchiveServer, **options: Any) -> dict[str, Any]:
    return {"sink": HistorySinkKind.HTTP, "url": archive.url, **options}


def retried(times: int, **more: Any) -> Any:
    return role(
        "a", 3, task={"retryPolicy": {"maxRetryCount": times}}, simulate={"run-seconds": 1, "exit-code": 1}, **more
    )


def expected(uid: str, final: Any, retries: int) -> set[str]:
    """The ids of the records of a Framework in its only attempt, after ``retries`` of each Task."""
    of_tasks = {
        f"{uid}/0/a/{task['instanceUID']}/{attempt}" for task in tasks(final["status"]) for attempt in range(retries)
    }
    return {f"{uid}/0", *of_tasks}


def stalled(status: Any) -> str:
    """Reason and message of the condition Stalled, "" if it is not true."""
    found = condition(status, "Stalled")
    return f"{found['reason']}: {found['message']}" if found.get("status") == "True" else ""


# --- http -------------------------------------------------------------------------------------------------------------


async def test_every_attempt_is_in_the_sink(cluster: Cluster, frameworks: Frameworks, archive: ArchiveServer) -> None:
    async with controller(cluster, **http(archive)) as made:
        worker = retried(1, frameworkAttemptCompletionPolicy=policy(3))
        created = await frameworks.create("f", worker, retryPolicy={"maxRetryCount": 1})
        uid = created["metadata"]["uid"]
        await frameworks.until_running("f", 3)
        assert (await frameworks.get("f"))["metadata"]["finalizers"] == [FINALIZER]
        await frameworks.until_state("f", "Completed")
        final = await frameworks.get("f")
        await until(lambda: f"{uid}/1" in archive.ids(Trigger.FRAMEWORK_COMPLETION), within=120, every=0.5)
        await frameworks.delete("f")
        await frameworks.until_gone("f")
        await until(lambda: len(archive.ids(Trigger.POD_DELETION)) >= 12, within=120, every=0.5)
        kube_system = (await read(frameworks.client, NAMESPACES, "kube-system"))["metadata"]["uid"]
    assert archive.ids(Trigger.FRAMEWORK_RETRY) == {f"{uid}/0"}
    assert archive.ids(Trigger.FRAMEWORK_DELETION) == {f"{uid}/1"}
    # Three Tasks, each retried once in each of the two attempts.
    assert len(archive.ids(Trigger.TASK_RETRY)) == 6
    assert len(archive.ids(Trigger.POD_DELETION)) == 12
    for found, records in archive.records.items():
        for record in records:
            assert str(record.id) == found
            assert (record.namespace, record.name, record.cluster) == (cluster.namespace, "f", kube_system)
    of_pods = [one.generation for records in archive.records.values() for one in records if one.object["kind"] == "Pod"]
    # The first attempt's are deleted while the Framework exists.
    assert of_pods.count(1) >= 6
    (of_retry,) = archive.records[f"{uid}/0"]
    assert of_retry.object["status"]["attemptStatus"]["completionStatus"]["code"] == 1
    last = max(archive.records[f"{uid}/1"], key=lambda record: record.time)
    assert last.object["status"]["attemptStatus"] == final["status"]["attemptStatus"]
    # Each Pod is listed with the attempt of its Task.
    of_tasks = {found.rpartition("/")[0] for found in archive.ids(Trigger.POD_DELETION)}
    assert archive.ids(Trigger.TASK_RETRY) <= of_tasks
    assert made.history_sink is not None
    assert made.history_sink.pending_bytes == 0


@pytest.mark.parametrize(
    "fault",
    [UNAVAILABLE, silence(), drop(), answer(b"", 401), answer(b"", 429, Retry_After="20")],
    ids=["fails", "hangs", "drops", "refuses the token", "wants a pause"],
)
async def test_the_edges_wait_for_a_sink_that_is_away(
    cluster: Cluster, frameworks: Frameworks, archive: ArchiveServer, fault: Answer
) -> None:
    async with controller(cluster, **http(archive)):
        archive.http.otherwise = fault
        created = await frameworks.create("f", retried(1))
        uid = created["metadata"]["uid"]
        status = await frameworks.until("f", lambda status: "HistoryUnavailable" in stalled(status), within=300)
        assert [task["state"] for task in tasks(status)] == ["AttemptCompleted"] * 3
        assert [task["attemptStatus"]["id"] for task in tasks(status)] == [0] * 3
        assert archive.url in stalled(status)
        assert archive.records == {}

        # Other Frameworks run on.
        await frameworks.create("other", role("a", 2))
        await frameworks.until_running("other", 2)

        archive.http.otherwise = archive.stores()
        final = await frameworks.until_state("f", "Completed", within=300)
        assert [task["attemptStatus"]["id"] for task in tasks(final)] == [1] * 3
        assert "HistoryUnavailable" not in stalled(final)
        await frameworks.delete("f", "Background")
        await frameworks.until_gone("f")
    assert expected(uid, {"status": final}, 1) <= set(archive.records)


@pytest.mark.parametrize("propagation", ["Background", "Foreground", "Orphan"])
async def test_a_deletion_outlives_a_restart_while_the_sink_is_away(
    cluster: Cluster, frameworks: Frameworks, archive: ArchiveServer, propagation: str
) -> None:
    said: list[str] = []
    async with controller(cluster, **http(archive)):
        created = await frameworks.create("f", retried(1, frameworkAttemptCompletionPolicy=policy(3)))
        uid = created["metadata"]["uid"]
        running = await frameworks.until("f", lambda status: [one["state"] for one in tasks(status)] == RUNNING)
        archive.http.otherwise = UNAVAILABLE
        await frameworks.delete("f", propagation)
        await frameworks.until("f", lambda status: "HistoryUnavailable" in stalled(status), within=300)
    assert archive.ids(Trigger.FRAMEWORK_DELETION) == set()
    async with controller(cluster, **http(archive)):
        for _ in range(20):
            await asyncio.sleep(5)
            said.append(stalled(await frameworks.status("f")))
        assert all("HistoryUnavailable" in one for one in said)
        assert await frameworks.pods() == {}
        # Only the sink is waited for.
        others = set((await frameworks.get("f"))["metadata"]["finalizers"]) - {FINALIZER}
        assert others <= {"foregroundDeletion", "orphan"}
        archive.http.otherwise = archive.stores()
        await frameworks.until_gone("f")
    await frameworks.assert_nothing_left("f")
    assert archive.ids(Trigger.FRAMEWORK_DELETION) == {f"{uid}/0"}
    last = max(archive.records[f"{uid}/0"], key=lambda record: record.time).object["status"]
    assert last["attemptStatus"]["completionStatus"]["code"] == -210
    uids = [task["attemptStatus"]["podUID"] for task in tasks(running)]
    assert [task["attemptStatus"]["podUID"] for task in tasks(last)] == uids


async def break_spec(frameworks: Frameworks, _: FrontDoor) -> str:
    await frameworks.set("f", taskRoles__0__dependsOn=[{"name": "a", "status": "Ready"}])
    return "InvalidSpec"


async def nest_spec(frameworks: Frameworks, _: FrontDoor) -> str:
    await frameworks.nest("f", 300)
    return "InvalidSpec"


async def break_status(frameworks: Frameworks, _: FrontDoor) -> str:
    patch = orjson.dumps([{"op": "remove", "path": f"/status/{one}"} for one in ("attemptStatus", "retryPolicyStatus")])
    await frameworks.client.patch(
        FRAMEWORKS, "f", patch, frameworks.namespace, content_type=JSON_PATCH, subresource="status"
    )
    # It is read again when the spec changes.
    await frameworks.set("f", description="x")
    return "Quarantined"


async def refuse_statuses(_: Frameworks, door: FrontDoor) -> str:
    def too_large(request: Request) -> web.Response | None:
        if (request.verb, request.resource) == ("patch", "frameworks/status"):
            return refusal(413, "RequestEntityTooLarge", "it is too large")
        return None

    door.always(too_large)
    return ""


@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
@pytest.mark.parametrize("breaks", [break_spec, nest_spec, break_status, refuse_statuses])
async def test_a_quarantined_framework_goes_once_the_sink_has_it(
    cluster: Cluster,
    frameworks: Frameworks,
    archive: ArchiveServer,
    breaks: Callable[[Frameworks, FrontDoor], Awaitable[str]],
    propagation: str,
) -> None:
    async with front_door(await cluster.connection()) as door:
        async with controller(cluster, door.connection, **http(archive)):
            created = await frameworks.create("f", role("a", 2))
            uid = created["metadata"]["uid"]
            await frameworks.until_running("f", 2)
            archive.http.otherwise = UNAVAILABLE
            if reason := await breaks(frameworks, door):
                await frameworks.until("f", lambda status: reason in stalled(status))
            await frameworks.delete("f", propagation)

            async def told() -> None:
                body = orjson.loads(await frameworks.client.list(EVENTS, cluster.namespace))
                found = [one["message"] for one in body["items"] if one["reason"] == "HistoryUnavailable"]
                assert any("503 The database is away" in one for one in found)

            await eventually(told, within=300, every=1)
            assert await frameworks.pods() == {}
            before = len(door.requests)
            await asyncio.sleep(600)
            # Neither the API server nor the sink is kept busy.
            assert len(door.since(0)) - before < 200
            assert FINALIZER in (await frameworks.get("f"))["metadata"]["finalizers"]
        async with controller(cluster, door.connection, **http(archive)):
            await asyncio.sleep(60)
            archive.http.otherwise = archive.stores()
            await frameworks.until_gone("f")
    attempt = UNREADABLE_ATTEMPT if breaks is break_status else 0
    assert archive.ids(Trigger.FRAMEWORK_DELETION) == {f"{uid}/{attempt}"}


async def test_a_sink_that_dies_after_it_has_stored_gets_the_records_again(
    cluster: Cluster, frameworks: Frameworks, archive: ArchiveServer
) -> None:
    async with controller(cluster, **http(archive)):
        archive.http.then(*[archive.dies(drop())] * 2, archive.dies(UNAVAILABLE), archive.dies(silence()))
        created = await frameworks.create("f", retried(1))
        uid = created["metadata"]["uid"]
        final = await frameworks.until_state("f", "Completed", within=300)
    ids = expected(uid, {"status": final}, 1) - {f"{uid}/0"}
    assert ids == archive.ids(Trigger.TASK_RETRY)
    for found in ids:
        assert len(archive.records[found]) > 1
        contents = [record.object["status"]["attemptStatus"] for record in archive.records[found]]
        assert all(content == contents[0] for content in contents)


async def test_a_refused_record_holds_up_only_its_own_framework(
    cluster: Cluster, frameworks: Frameworks, archive: ArchiveServer
) -> None:
    archive.refused = lambda record: record.name == "bad"
    async with controller(cluster, **http(archive)):
        for name in ("bad", "good", "fine"):
            await frameworks.create(name, retried(1))
        for name in ("good", "fine"):
            final = await frameworks.until_state(name, "Completed", within=300)
            assert [task["attemptStatus"]["id"] for task in tasks(final)] == [1] * 3
        status = await frameworks.until("bad", lambda status: "HistoryUnavailable" in stalled(status), within=300)
        assert "400 Bad record: of 1" in stalled(status)
        assert states(status) == ["AttemptCompleted"] * 3
        archive.refused = lambda _: False
        await frameworks.until_state("bad", "Completed", within=300)


async def test_a_controller_that_stops_stores_waiting_records(
    cluster: Cluster, frameworks: Frameworks, archive: ArchiveServer
) -> None:
    async with controller(cluster, **http(archive)) as made:
        await frameworks.create("f", role("a", 2))
        await frameworks.until_running("f", 2)
        archive.http.otherwise = UNAVAILABLE
        for name in list(await frameworks.pods()):
            await frameworks.delete_pod(name, 0)
        assert made.history_sink is not None
        sink = made.history_sink
        await until(lambda: sink.pending[Trigger.POD_DELETION] == 2, within=120, every=0.5)
        archive.http.otherwise = archive.stores()
    assert len(archive.ids(Trigger.POD_DELETION)) >= 2


async def test_a_framework_deleted_while_its_finalizer_was_removed_is_offered(
    cluster: Cluster, frameworks: Frameworks, archive: ArchiveServer
) -> None:
    async with controller(cluster, **http(archive, on_unavailable=OnUnavailable.DROP)):
        created = await frameworks.create("f", role("a", 1))
        await frameworks.until_running("f", 1)
        await frameworks.delete("f", "Background")
        await frameworks.until_gone("f")
        await until(lambda: archive.ids(Trigger.FRAMEWORK_DELETION), within=120, every=0.5)
    assert archive.ids(Trigger.FRAMEWORK_DELETION) == {f"{created['metadata']['uid']}/0"}


# --- file -------------------------------------------------------------------------------------------------------------


def lines(directory: Path) -> list[Any]:
    """The records of all files; each line must be one."""
    return [
        decode_record(line) for file in sorted(directory.glob("*.ndjson")) for line in file.read_bytes().splitlines()
    ]


async def test_every_attempt_is_in_the_files(cluster: Cluster, frameworks: Frameworks, tmp_path: Path) -> None:
    async with controller(cluster, sink=HistorySinkKind.FILE, path=str(tmp_path)):
        created = await frameworks.create("f", retried(2, frameworkAttemptCompletionPolicy=policy(3)))
        uid = created["metadata"]["uid"]
        final = await frameworks.until_state("f", "Completed")
        await frameworks.delete("f")
        await frameworks.until_gone("f")
    assert expected(uid, {"status": final}, 2) <= {str(record.id) for record in lines(tmp_path)}


async def test_a_directory_that_appears_later_lets_all_continue(
    cluster: Cluster, frameworks: Frameworks, tmp_path: Path
) -> None:
    directory = tmp_path / "volume"
    async with controller(cluster, sink=HistorySinkKind.FILE, path=str(directory)):
        created = await frameworks.create("f", retried(1))
        status = await frameworks.until("f", lambda status: "HistoryUnavailable" in stalled(status), within=300)
        assert f"{directory}/" in stalled(status)
        assert "No such file or directory" in stalled(status)
        directory.mkdir()
        final = await frameworks.until_state("f", "Completed", within=300)
        await frameworks.delete("f")
        await frameworks.until_gone("f")
    assert expected(created["metadata"]["uid"], {"status": final}, 1) <= {str(one.id) for one in lines(directory)}
