"""The Task that failed first, on clusters: status and commands name it."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from frameworkcontroller.config.config import shipped_config
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.manager.app import Controller
from tests.support.cli import Cli
from tests.support.clusters import Cluster
from tests.support.failures import GLOO
from tests.support.frameworks import Frameworks, policy, role

pytestmark = pytest.mark.newest


@pytest.fixture
async def frameworks(cluster: Cluster, unattended: Frameworks, pods: SimulatedRuntime) -> AsyncIterator[Frameworks]:
    async with Controller(shipped_config(), await cluster.connection(), wall=cluster.wall):
        yield unattended


FIRST: Any = {"run-seconds": 2, "exit-code": 7, "message": "ValueError: bad batch"}
FOLLOWS: Any = {"run-seconds": 2, "exit-code": 1, "message": GLOO}


@pytest.mark.parametrize("simulate", [FOLLOWS, {"run-seconds": 60, "exit-code": 0}], ids=["followed", "stopped"])
async def test_a_task_fails_and_the_others_follow_or_are_stopped(
    frameworks: Frameworks, cli: Cli, simulate: Any
) -> None:
    roles = (role("a", 3, simulate=simulate), role("b", 1, simulate=FIRST))
    await frameworks.create("f", *(one | {"frameworkAttemptCompletionPolicy": policy(1)} for one in roles))
    status = await frameworks.until("f", lambda one: one["state"] == "Completed")
    first = status["firstFailure"]
    assert (first["taskRoleName"], first["taskIndex"], first["taskAttemptID"]) == ("b", 0, 0)
    assert (first["code"], first["phrase"], first["containerName"]) == (7, "ContainerUnrecognizedFailed", "main")
    assert first["message"] == "main exited with 7: ValueError: bad batch"
    assert first["nodeName"]
    assert f"b[0] on {first['nodeName']}: main exited with 7: ValueError: bad batch" in status["message"]
    lines = await cli.ok("status", "f")
    assert "b[0]" in lines[1]
    assert "main exited with 7: ValueError: bad batch" in lines[1]
    listed = await cli.ok("list", "-o", "wide")
    assert "main exited with 7" in listed[1]


async def test_the_next_attempt_shows_why_the_last_one_failed(frameworks: Frameworks, cli: Cli) -> None:
    await frameworks.create(
        "f", role(simulate=FIRST, frameworkAttemptCompletionPolicy=policy(1)), retryPolicy={"maxRetryCount": 1}
    )
    status = await frameworks.until(
        "f", lambda one: one["attemptStatus"]["id"] == 1 and one["state"] == "AttemptRunning"
    )
    assert status["firstFailure"]["frameworkAttemptID"] == 0
    assert "earliestFailures" not in status
    lines = await cli.ok("status", "f")
    assert any("attempt 0 failed first in a[0] on " in line for line in lines), lines
