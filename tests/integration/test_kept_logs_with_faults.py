"""Logs that outlive their Pods, with a whole controller: each log or a reason is stored, and no end waits for long."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from frameworkcontroller.machine.kernel.model import KeepLogs
from tests.support.archiveserver import ArchiveServer
from tests.support.clusters import Cluster
from tests.support.eventually import eventually
from tests.support.frameworks import Frameworks, role
from tests.support.frontdoor import Request, front_door, refusal
from tests.support.keptlogs import FAILS, SAYS, controller, until_logs

pytestmark = pytest.mark.virtual_clock


def is_log(request: Request) -> bool:
    return request.resource == "pods/log"


@pytest.mark.parametrize("keep", [KeepLogs.FAILED, KeepLogs.NONE])
async def test_only_wanted_logs_are_read(
    cluster: Cluster, frameworks: Frameworks, archive: ArchiveServer, keep: KeepLogs
) -> None:
    async with (
        front_door(await cluster.connection()) as door,
        controller(cluster, archive, door.connection, keep=keep),
    ):
        await frameworks.create(
            "f", role("a", 1, simulate={"run-seconds": 1}), role("b", 1, simulate=FAILS), role("c", 1)
        )
        await frameworks.until_state("f", "AttemptRunning")
        await asyncio.sleep(5)
        await frameworks.set("f", executionType="Stop")
        await frameworks.until_state("f", "Completed")
    asked = [request.name for request in door.requests if is_log(request)]
    assert asked == (["f-b-0"] if keep is KeepLogs.FAILED else [])


def answers(text: str) -> web.Response:
    return web.Response(text=text)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda: refusal(403, "Forbidden", "pods/log is forbidden"), "pods/log is forbidden"),
        (lambda: refusal(500, "InternalError", "the node is gone"), "the node is gone"),
        (lambda: answers("failed to get container status\n"), "its node answers: failed to get container status"),
    ],
)
async def test_a_log_endpoint_that_fails(
    cluster: Cluster, frameworks: Frameworks, archive: ArchiveServer, answer: Any, why: str
) -> None:
    async with (
        front_door(await cluster.connection()) as door,
        controller(cluster, archive, door.connection),
    ):
        door.always(lambda request: answer() if is_log(request) else None)
        await frameworks.create("f", role("a", 1, simulate=FAILS), role("b", 1, simulate={"run-seconds": 2}))
        await frameworks.until_state("f", "Completed")
        for log in await until_logs(archive, 2):
            assert why in log.why
            assert (log.size, log.cut_end) == (0, True)


async def test_a_log_endpoint_that_hangs_delays_an_end_within_the_bound(
    cluster: Cluster, frameworks: Frameworks, archive: ArchiveServer
) -> None:
    async with (
        front_door(await cluster.connection()) as door,
        controller(cluster, archive, door.connection, capture_seconds=5, concurrency=1) as made,
    ):
        with door.holding(is_log):
            await frameworks.create("f", role("a", 3, simulate={"run-seconds": 1}))
            began = await frameworks.until_running("f", 3)
            assert began
            before = asyncio.get_running_loop().time()
            await frameworks.until_state("f", "Completed")
            took = asyncio.get_running_loop().time() - before
            found = await until_logs(archive, 3)
        assert 5 <= took < 9
        assert {log.why.partition(",")[0] for log in found} == {
            "its node did not send it in time",
            "its turn did not come in time",
        }
        assert made.log_capture is not None
        assert made.log_capture.results == {"missed": 3}


async def test_a_new_controller_reads_logs_that_the_former_one_did_not(
    cluster: Cluster, frameworks: Frameworks, archive: ArchiveServer
) -> None:
    async with front_door(await cluster.connection()) as door:
        with door.holding(is_log) as came:
            async with controller(cluster, archive, door.connection, capture_seconds=300):
                await frameworks.create("f", role("a", 1, simulate=FAILS))

                async def probe() -> None:
                    assert came

                await eventually(probe, within=60)
        async with controller(cluster, archive, door.connection):
            await frameworks.until_state("f", "Completed")
            (log,) = await until_logs(archive, 1)
    assert (log.data(), log.why) == (SAYS, "") if cluster.embedded else log.why
