"""The SDK's watches and logs: of each attempt, from the archive, and while the API server fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from frameworkcontroller import (
    Forbidden,
    Framework,
    LogLine,
    LogUnavailable,
    NotFound,
    RequestRefused,
    Retry,
    Unreachable,
    aio,
)
from frameworkcontroller.history.archive import HistoryArchive
from frameworkcontroller.history.archiveapi import application
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.manager.app import Controller
from frameworkcontroller.webaccess.boundedserver import BoundedServer
from tests.support.access import Everyone
from tests.support.archives import framework_record, log_record
from tests.support.clusters import Cluster
from tests.support.eventually import eventually, until
from tests.support.frontdoor import FrontDoor, Request, refusal
from tests.support.sdkjobs import returned, sdk_job, sdk_role
from tests.support.virtual_clock import VirtualClockLoop
from tests.support.writtenlogs import WrittenLogs

pytestmark = pytest.mark.virtual_clock

ENDLESS = {"run-seconds": "forever"}


@pytest.fixture
async def logs(cluster: Cluster, pods: SimulatedRuntime) -> WrittenLogs:
    assert cluster.server is not None
    written = WrittenLogs(cluster.wall)
    cluster.server.logs = written
    return written


@pytest.fixture
async def sdk(
    cluster: Cluster, door: FrontDoor, logs: WrittenLogs, controller: Controller
) -> AsyncIterator[aio.Cluster]:
    """The cluster behind a door, with a node and a controller that do not use the door."""

    async def connect() -> Any:
        return door.connection

    async with aio.Cluster(connect, cluster.namespace) as opened:
        yield opened


class Reading:
    """Lines of a log, read in the background."""

    def __init__(self, lines: AsyncIterator[LogLine]) -> None:
        self.lines: list[str] = []
        self.task = asyncio.create_task(self._read(lines))

    async def _read(self, lines: AsyncIterator[LogLine]) -> None:
        async for line in lines:
            self.lines.append(str(line))

    async def has(self, *lines: str) -> None:
        await until(lambda: self.lines == list(lines) or self.task.done())
        assert self.lines == list(lines)


def is_watch(request: Request) -> bool:
    return request.verb in ("list", "watch")


# --- logs ---


async def test_the_lines_of_all_tasks_are_merged(sdk: aio.Cluster, logs: WrittenLogs, pods: SimulatedRuntime) -> None:
    run = await sdk.submit(Framework(name="f", roles=[sdk_role("a", 2), sdk_role("b")]))
    await run.wait("Running")
    reading = Reading(run.logs(follow=True))
    only = Reading(run.logs(role="a", task=1, follow=True))
    logs.write("f-a-0", "one")
    await reading.has("a[0]: one")
    logs.write("f-a-1", "two", "ü\r")
    await reading.has("a[0]: one", "a[1]: two", "a[1]: ü")
    logs.write("f-b-0", "three")
    await reading.has("a[0]: one", "a[1]: two", "a[1]: ü", "b[0]: three")
    now = [line async for line in run.logs()]
    assert [str(line) for line in now] == reading.lines
    assert [(one.role, one.task, one.attempt, one.text) for one in now][:1] == [("a", 0, 0, "one")]
    assert now[0].time.startswith("2026-01-01T")
    assert [str(line) async for line in run.logs(role="b")] == ["b[0]: three"]
    assert [str(line) async for line in run.logs(task=1, tail=1)] == ["a[1]: ü"]
    await run.stop()
    for pod in ("f-a-0", "f-a-1", "f-b-0"):
        logs.end(pod)
    await asyncio.wait_for(reading.task, 60)
    await asyncio.wait_for(only.task, 60)
    assert only.lines == ["a[1]: two", "a[1]: ü"]


async def test_later_attempts_are_followed(sdk: aio.Cluster, logs: WrittenLogs) -> None:
    simulate = {"run-seconds": "1, forever", "exit-code": "1, 0", "attempt": "framework"}
    run = await sdk.submit(sdk_job(simulate=simulate, retry=Retry(1, base_seconds=0)))
    logs.write("f-worker-0", "first")
    reading = Reading(run.logs(follow=True))
    await until(lambda: "worker[0]: first" in reading.lines)
    async with aclosing(run.watch()) as changes:
        async for status in changes:
            if (status.attempt, status.phase) == (1, "Running"):
                break
    logs.write("f-worker-0", "second")
    await until(lambda: "worker[0]: second" in reading.lines)
    await run.stop()
    logs.end("f-worker-0")
    await asyncio.wait_for(reading.task, 60)


async def test_a_closed_iterator_leaves_no_task(sdk: aio.Cluster, logs: WrittenLogs) -> None:
    run = await sdk.submit(sdk_job(simulate=ENDLESS))
    await run.wait("Running")
    logs.write("f-worker-0", "one")
    await asyncio.sleep(60)
    before = asyncio.all_tasks()
    async with aclosing(run.logs(follow=True)) as lines:
        async for _ in lines:
            break
    reading = Reading(run.logs(follow=True))
    await reading.has("worker[0]: one")
    reading.task.cancel()
    await asyncio.wait([reading.task])
    assert [task for task in asyncio.all_tasks() - before if "RequestHandler" not in repr(task)] == []


async def test_without_a_log_the_reason_is_named(sdk: aio.Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FRAMEWORK_HISTORY_URL", raising=False)
    run = await sdk.submit(sdk_job(simulate=ENDLESS))
    with pytest.raises(LogUnavailable, match=r"f: no Pod of attempt 0 has a log now, and no archive is named"):
        await _read(run.logs())
    with pytest.raises(LogUnavailable, match=r"attempt 3 .* no archive is named"):
        await _read(run.logs(attempt=3))
    monkeypatch.setenv("FRAMEWORK_HISTORY_URL", "http://127.0.0.1:1")
    with pytest.raises(RequestRefused, match=r"^archive http://127\.0\.0\.1:1: "):
        await _read(run.logs(attempt=3))
    monkeypatch.setenv("FRAMEWORK_HISTORY_URL", "ftp://x")
    with pytest.raises(RequestRefused, match=r"^archive ftp://x: "):
        await _read(run.logs(attempt=3))
    await run.delete()
    with pytest.raises(NotFound, match="there is no Framework"):
        await _read(run.logs())


async def _read(lines: AsyncIterator[LogLine]) -> list[str]:
    return [str(line) async for line in lines]


async def test_run_returns_the_result_without_any_log(
    sdk: aio.Cluster, door: FrontDoor, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FRAMEWORK_HISTORY_URL", raising=False)
    door.always(lambda one: refusal(403, "Forbidden", "no") if one.resource == "pods/log" else None)
    assert (await sdk.run(sdk_job(simulate=returned(1)))).value == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("f: no more logs: no. Ask for the permission to get pods/log")


async def test_run_prints_the_logs(sdk: aio.Cluster, logs: WrittenLogs, capsys: pytest.CaptureFixture[str]) -> None:
    logs.write("f-worker-0", "hello")
    logs.end("f-worker-0")
    await sdk.run(sdk_job(simulate=returned(1)))
    assert capsys.readouterr().out == "worker[0]: hello\n"


async def test_logs_of_pods_and_of_the_archive(
    sdk: aio.Cluster, logs: WrittenLogs, clock: VirtualClockLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await sdk.submit(Framework(name="f", roles=[sdk_role("a", 2, simulate=ENDLESS)]))
    await run.wait("Running")
    where = f"{run.namespace}/f"
    records = [
        framework_record(run.uid, attempt=0, code=7, where=where),
        log_record(run.uid, 0, b"past\nlast\n", role="a", where=where),
        log_record(run.uid, 1, b"archived\n", role="a", where=where),
    ]
    # The node has the log of one Task only.
    logs.write("f-a-1", "live")
    with clock.outside():
        async with await HistoryArchive.open(f"sqlite:///{tmp_path}/archive.db") as archive:
            await archive.store(records)
            async with BoundedServer(application(archive, Everyone()), "127.0.0.1", 0) as server:
                monkeypatch.setenv("FRAMEWORK_HISTORY_URL", server.url)
                for attempt in (None, 0):
                    assert await _read(run.logs(attempt=attempt)) == ["a[1]: live", "a[0]: past", "a[0]: last"]
                assert await _read(run.logs(role="a", task=0, tail=1)) == ["a[0]: last"]
                assert [one.number for one in await run.attempts()] == [0]
                with pytest.raises(LogUnavailable, match="attempt 2 has a log now, nor has the archive"):
                    await _read(run.logs(attempt=2))
    with pytest.raises(RequestRefused, match=r"^archive "):
        await _read(run.logs())
    # All live logs are read without it.
    logs.write("f-a-0", "too")
    assert await _read(run.logs()) == ["a[0]: too", "a[1]: live"]


# --- outages ---


async def test_a_restarted_api_server_is_waited_out(sdk: aio.Cluster, door: FrontDoor, logs: WrittenLogs) -> None:
    run = await sdk.submit(sdk_job(simulate=ENDLESS))
    await run.wait("Running")
    reading, waiting = Reading(run.logs(follow=True)), asyncio.create_task(run.wait())
    logs.write("f-worker-0", "before")
    await reading.has("worker[0]: before")
    await door.refuse()
    logs.write("f-worker-0", "meanwhile")
    await asyncio.sleep(200)
    assert not waiting.done()
    await door.accept()
    await reading.has("worker[0]: before", "worker[0]: meanwhile")
    logs.write("f-worker-0", "after")
    logs.end("f-worker-0")
    await run.stop()
    assert (await asyncio.wait_for(waiting, 600)).phase == "Stopped"
    await asyncio.wait_for(reading.task, 600)
    assert reading.lines == ["worker[0]: before", "worker[0]: meanwhile", "worker[0]: after"]


@pytest.mark.parametrize("use", [lambda run: run.wait(), lambda run: _read(run.logs(follow=True))])
async def test_a_long_outage_is_reported(sdk: aio.Cluster, door: FrontDoor, use: Callable[[aio.Run], Any]) -> None:
    run = await sdk.submit(sdk_job(simulate=ENDLESS))
    await run.wait("Running")
    using = asyncio.create_task(use(run))
    await asyncio.sleep(10)
    await door.refuse()
    began = asyncio.get_running_loop().time()
    with pytest.raises(Unreachable, match="cannot connect"):
        await using
    assert 300 < asyncio.get_running_loop().time() - began < 400
    with pytest.raises(Unreachable):
        await run.refresh()


@pytest.mark.parametrize(
    ("code", "reason", "words"),
    [
        (
            401,
            "Unauthorized",
            "the API server does not accept the credentials: .*Log in again, or choose another context",
        ),
        (403, "Forbidden", "Ask for the permission to "),
    ],
)
@pytest.mark.parametrize("use", [lambda run: run.wait(), lambda run: _read(run.logs(follow=True))])
async def test_a_token_that_expires_is_reported(
    sdk: aio.Cluster, door: FrontDoor, code: int, reason: str, words: str, use: Callable[[aio.Run], Any]
) -> None:
    run = await sdk.submit(sdk_job(simulate=ENDLESS))
    await run.wait("Running")
    using = asyncio.create_task(use(run))
    await asyncio.sleep(10)
    door.always(lambda _request: refusal(code, reason, "no longer"))
    await door.refuse()
    await door.accept()
    with pytest.raises(Forbidden, match=words):
        await asyncio.wait_for(using, 60)


@pytest.mark.parametrize("verb", ["list", "watch"])
@pytest.mark.parametrize(
    ("resource", "use"),
    [
        ("frameworks", lambda run: run.wait()),
        ("frameworks", lambda run: _read(run.logs(follow=True))),
        ("pods", lambda run: _read(run.logs(follow=True))),
    ],
)
async def test_a_user_who_may_only_get_frameworks_learns_why_nothing_comes(
    sdk: aio.Cluster, door: FrontDoor, verb: str, resource: str, use: Callable[[aio.Run], Any]
) -> None:
    run = await sdk.submit(sdk_job(simulate=ENDLESS))
    await run.wait("Running")

    def rule(request: Request) -> Any:
        if (request.verb, request.resource) == (verb, resource):
            return refusal(403, "Forbidden", "you may not")
        return None

    door.always(rule)
    with pytest.raises(
        Forbidden, match=f"you may not. Ask for the permission to {verb} {resource} in namespace "
    ) as caught:
        await asyncio.wait_for(use(run), 60)
    assert (caught.value.verb, caught.value.resource) == (verb, resource)


@pytest.mark.parametrize("follow", [True, False])
async def test_a_user_who_may_not_read_logs(sdk: aio.Cluster, door: FrontDoor, follow: bool) -> None:
    run = await sdk.submit(sdk_job(simulate=ENDLESS))
    await run.wait("Running")
    door.always(lambda one: refusal(403, "Forbidden", "no") if one.resource == "pods/log" else None)
    with pytest.raises(Forbidden, match="Ask for the permission to get pods/log in namespace"):
        await asyncio.wait_for(_read(run.logs(follow=follow)), 60)


@pytest.mark.parametrize(
    "answer",
    [
        lambda: refusal(500, "InternalError", "the node is busy"),
        lambda: web.Response(text="failed to try resolving symlinks\n"),
    ],
)
async def test_a_node_that_cannot_begin_a_log_is_asked_again(
    sdk: aio.Cluster, door: FrontDoor, logs: WrittenLogs, answer: Callable[[], web.Response]
) -> None:
    run = await sdk.submit(sdk_job(simulate=ENDLESS))
    await run.wait("Running")
    logs.write("f-worker-0", "one")
    asked: list[Request] = []

    def rule(request: Request) -> web.Response | None:
        if request.resource != "pods/log" or len(asked) == 2:
            return None
        asked.append(request)
        return answer()

    door.always(rule)
    reading = Reading(run.logs(follow=True))
    await reading.has("worker[0]: one")
    await run.stop()
    logs.end("f-worker-0")
    await asyncio.wait_for(reading.task, 60)


@pytest.mark.parametrize("code", [500, 503, 429])
async def test_a_started_log_continues_after_errors(
    sdk: aio.Cluster, door: FrontDoor, logs: WrittenLogs, code: int
) -> None:
    run = await sdk.submit(sdk_job(simulate=ENDLESS))
    await run.wait("Running")
    logs.write("f-worker-0", "before")
    reading = Reading(run.logs(follow=True))
    await reading.has("worker[0]: before")
    with door.answering(lambda one: refusal(code, "Bad", "later") if one.resource == "pods/log" else None):
        await door.refuse()
        await door.accept()
        await until(lambda: any(request.resource == "pods/log" for request, _ in door.refused))
        logs.write("f-worker-0", "after")
    await reading.has("worker[0]: before", "worker[0]: after")
    reading.task.cancel()
    await asyncio.wait([reading.task])


async def test_a_submission_without_an_answer_is_reported(sdk: aio.Cluster, door: FrontDoor) -> None:
    door.always(lambda one: refusal(504, "Timeout", "later") if one.verb == "create" else None)
    with pytest.raises(Unreachable, match="the API server cannot answer: later"):
        await sdk.submit(sdk_job())


async def test_code_that_cannot_be_stored_takes_the_framework_with_it(sdk: aio.Cluster, door: FrontDoor) -> None:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    door.always(lambda one: refusal(403, "Forbidden", "no") if one.resource == "configmaps" else None)
    with pytest.raises(Forbidden, match="Ask for the permission to create configmaps"):
        await sdk.submit(sdk_job(objects=[config]))

    async def is_gone() -> bool:
        return await sdk.list() == []

    await eventually(is_gone)


async def test_concurrent_changes_are_retried(sdk: aio.Cluster, door: FrontDoor) -> None:
    run = await sdk.submit(sdk_job(simulate=ENDLESS))
    await run.wait("Running")
    await asyncio.gather(*(run.scale(worker=number) for number in range(2, 6)), run.suspend())
    assert (await run.refresh()).object["spec"]["suspend"] is True
