"""Frameworks whose programs stop to make progress, with the whole controller (docs/lifecycle.md, "Hangs")."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from frameworkcontroller.config.config import Config, ProgressReports
from frameworkcontroller.machine.parts.hangs.hangs import WRITE_SEC
from frameworkcontroller.manager.app import Controller
from tests.support.clusters import Cluster
from tests.support.frameworks import Frameworks, role
from tests.support.frameworks import policy as policy_of
from tests.support.writtenreports import write_report

INTERVAL: Final = 2
DEADLINE: Final = 20
LIMIT: Final = DEADLINE + INTERVAL + WRITE_SEC
PROGRESS: Final = {"intervalSeconds": INTERVAL, "deadlineSeconds": DEADLINE, "startDeadlineSeconds": 2 * DEADLINE}
FANCY: Final = {"fancyRetryPolicy": True}


@pytest.fixture(autouse=True)
async def controller(cluster: Cluster) -> AsyncIterator[Controller]:
    config = Config(progress_reports=ProgressReports(bind_address="127.0.0.1:0"))
    async with Controller(config, await cluster.connection(), wall=cluster.wall) as running:
        yield running


def ended_by_hang(status: dict[str, Any]) -> bool:
    completion = status["attemptStatus"]["completionStatus"]
    return bool(completion and completion["code"] == -252)


async def test_a_hang_is_ended_in_its_deadline_and_retried(cluster: Cluster, frameworks: Frameworks) -> None:
    await frameworks.create("f", role("a", 2), progress=PROGRESS, retryPolicy=FANCY)
    await frameworks.until_running("f", 2)
    await write_report(frameworks, cluster.wall(), step=7)
    began = cluster.wall()
    status = await frameworks.until("f", lambda found: found["attemptStatus"]["id"] == 1, within=3 * LIMIT)
    assert LIMIT - 2 <= cluster.wall() - began <= LIMIT + 5
    assert status["retryPolicyStatus"]["totalRetriedCount"] == 1
    assert status["progress"]["frameworkAttemptID"] == 0
    await frameworks.until_running("f", 2)


async def test_a_hang_that_is_not_retried(cluster: Cluster, frameworks: Frameworks) -> None:
    await frameworks.create("f", role("a", 2), progress=PROGRESS)
    await frameworks.until_running("f", 2)
    await write_report(frameworks, cluster.wall(), step=7)
    status = await frameworks.until_state("f", "Completed", within=3 * LIMIT)
    assert ended_by_hang(status)
    diagnostics = status["attemptStatus"]["completionStatus"]["diagnostics"]
    assert diagnostics.startswith("No progress for ")
    assert " at step 7: deadlineSeconds is 20; the last report arrived at " in diagnostics
    assert diagnostics in status["message"]


async def test_a_program_with_progress_is_ignored(cluster: Cluster, frameworks: Frameworks) -> None:
    await frameworks.create("f", role("a", 2), progress=PROGRESS, retryPolicy=FANCY)
    await frameworks.until_running("f", 2)
    for step in range(6):
        await write_report(frameworks, cluster.wall(), step=step)
        await asyncio.sleep(DEADLINE)
    status = await frameworks.status("f")
    assert (status["attemptStatus"]["id"], status["attemptStatus"]["completionStatus"]) == (0, None)


async def test_a_program_that_never_reports(frameworks: Frameworks) -> None:
    await frameworks.create("f", role("a", 1), progress=PROGRESS, retryPolicy={"maxRetryCount": 0})
    await frameworks.until_running("f", 1)
    status = await frameworks.until_state("f", "Completed", within=4 * LIMIT)
    assert ended_by_hang(status)
    assert "No report of progress" in status["attemptStatus"]["completionStatus"]["diagnostics"]
    assert status["phase"] == "Failed"


async def test_checkpoints_renew_the_retries(cluster: Cluster, frameworks: Frameworks) -> None:
    policy = {"maxRetryCount": 1, "resetOnProgress": True}
    failing = role("a", 1, simulate={"run-seconds": 5, "exit-code": 1}, frameworkAttemptCompletionPolicy=policy_of(1))
    await frameworks.create("f", failing, progress={"intervalSeconds": INTERVAL}, retryPolicy=policy)
    for attempt in range(4):

        def runs(found: dict[str, Any], attempt: int = attempt) -> bool:
            return bool(found["attemptStatus"]["id"] == attempt and found["state"] == "AttemptRunning")

        await frameworks.until("f", runs)
        await write_report(frameworks, cluster.wall(), step=attempt, checkpoint=True)
    status = await frameworks.until_state("f", "Completed")
    retries = status["retryPolicyStatus"]
    assert (retries["totalRetriedCount"], retries["accountableRetriedCount"]) == (4, 1)
