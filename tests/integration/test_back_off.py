"""Retries wait as `backoff` says, of a Task and of a Framework; a restart of the controller changes nothing."""

from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from frameworkcontroller.config.config import shipped_config
from frameworkcontroller.manager.app import Controller
from tests.support import clusters
from tests.support.clusters import Cluster
from tests.support.frameworks import Frameworks, Json, policy, role, tasks

BACKOFF: Json = {"maxRetryCount": 3, "backoff": {"baseSeconds": 20, "maxSeconds": 50}}
DELAYS = [20, 40, 50]

pytestmark = pytest.mark.virtual_clock


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with clusters.embedded_cluster(tmp_path) as cluster, clusters.simulated_node(cluster):
        yield cluster


async def waits(cluster: Cluster, *roles: Json, of_task: bool, **spec: Any) -> list[int]:
    """Seconds from the end of each attempt to the start of the next; each is tracked by a controller of its own."""
    frameworks = Frameworks(await cluster.client(), cluster.namespace)
    await frameworks.create("f", *roles, **spec)

    def level(status: Json) -> Json:
        return tasks(status)[0] if of_task else status

    found = []
    for number in range(len(DELAYS)):
        async with Controller(shipped_config(), await cluster.connection(), wall=cluster.wall):
            waiting = await frameworks.until(
                "f", lambda status: bool(status) and level(status)["retryPolicyStatus"]["retryDelaySec"], every=1
            )
        ended = level(waiting)["attemptStatus"]["completionTime"]
        assert level(waiting)["retryPolicyStatus"].get("recentRetriedCount", 0) == number
        async with Controller(shipped_config(), await cluster.connection(), wall=cluster.wall):
            attempt = number + 1
            retried = await frameworks.until(
                "f",
                lambda status, attempt=attempt: level(status)["attemptStatus"]["id"] == attempt,  # type: ignore[misc]
                every=1,
            )
        started = level(retried)["attemptStatus"]["startTime"]
        found.append(int((datetime.fromisoformat(started) - datetime.fromisoformat(ended)).total_seconds()))
    async with Controller(shipped_config(), await cluster.connection(), wall=cluster.wall):
        status = await frameworks.until_state("f", "Completed", every=1)
    assert level(status)["retryPolicyStatus"]["totalRetriedCount"] == len(DELAYS)
    assert "recentRetriedCount" not in level(status)["retryPolicyStatus"]
    return found


FAILS: Json = {"run-seconds": 1, "exit-code": 1}


async def test_a_task_waits(cluster: Cluster) -> None:
    assert await waits(cluster, role(task={"retryPolicy": BACKOFF}, simulate=FAILS), of_task=True) == DELAYS


async def test_a_framework_waits(cluster: Cluster) -> None:
    failing = role(simulate=FAILS, frameworkAttemptCompletionPolicy=policy(1))
    assert await waits(cluster, failing, of_task=False, retryPolicy=BACKOFF) == DELAYS
