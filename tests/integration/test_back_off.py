"""Retries wait as `backoff` says, of a Task and of a Framework; a restart of the controller changes nothing."""

import asyncio
from datetime import datetime

import pytest

from frameworkcontroller.config.config import shipped_config
from frameworkcontroller.manager.app import Controller
from tests.support.clusters import Cluster
from tests.support.frameworks import Frameworks, Json, policy, role, tasks

BACKOFF: Json = {"baseSeconds": 20, "maxSeconds": 50}
DELAYS = [20, 40, 50]
pytestmark = [pytest.mark.usefixtures("pods"), pytest.mark.virtual_clock]


def attempt(level: Json) -> int:
    """The number of the attempt."""
    number: int = level["attemptStatus"]["id"]
    return number


def waits(level: Json, number: int) -> bool:
    """Whether that attempt is over and waits for its retry, or did."""
    return attempt(level) > number or (attempt(level) == number and bool(level["retryPolicyStatus"]["retryDelaySec"]))


@pytest.mark.parametrize("of_task", [True, False], ids=["Task", "Framework"])
async def test_each_retry_waits(cluster: Cluster, *, of_task: bool) -> None:
    """Compare the seconds between attempts with `backoff`; a controller of its own tracks each end and each start."""
    failing = role(simulate={"run-seconds": 0.1, "exit-code": 1})
    frameworks = Frameworks(await cluster.client(), cluster.namespace)
    retry = {"maxRetryCount": 3, "backoff": BACKOFF}
    if of_task:
        failing["task"]["retryPolicy"] = retry
        await frameworks.create("f", failing)
    else:
        await frameworks.create("f", {**failing, "frameworkAttemptCompletionPolicy": policy(1)}, retryPolicy=retry)

    def level(status: Json) -> Json:
        return tasks(status)[0] if of_task else status

    stored: list[Json] = []

    def completed(status: Json) -> bool:
        stored.append(level(status))
        return bool(status["state"] == "Completed")

    whole = asyncio.create_task(frameworks.until("f", completed, within=300, every=0.2))
    for number in range(len(DELAYS)):
        async with Controller(shipped_config(), await cluster.connection(), wall=cluster.wall):
            await frameworks.until("f", lambda status, now=number: waits(level(status), now), every=0.2)  # type: ignore[misc]
        async with Controller(shipped_config(), await cluster.connection(), wall=cluster.wall):
            await frameworks.until("f", lambda status, now=number: attempt(level(status)) > now, every=0.2)  # type: ignore[misc]
    async with Controller(shipped_config(), await cluster.connection(), wall=cluster.wall):
        last = level(await whole)
    assert last["retryPolicyStatus"]["totalRetriedCount"] == len(DELAYS)
    assert "recentRetriedCount" not in last["retryPolicyStatus"]
    found = []
    for number in range(len(DELAYS)):
        waiting = next(item for item in stored if waits(item, number))
        assert attempt(waiting) == number
        assert waiting["retryPolicyStatus"].get("recentRetriedCount", 0) == number
        ended = waiting["attemptStatus"]["completionTime"]
        started = next(item for item in stored if attempt(item) == number + 1)["attemptStatus"]["startTime"]
        found.append((datetime.fromisoformat(started) - datetime.fromisoformat(ended)).total_seconds())
    assert found == DELAYS
