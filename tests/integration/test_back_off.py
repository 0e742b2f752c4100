"""Retries wait as `backoff` says, of a Task and of a Framework; a restart of the controller changes nothing."""

from datetime import datetime

import pytest

from frameworkcontroller.config.config import shipped_config
from frameworkcontroller.manager.app import Controller
from tests.support.clusters import Cluster
from tests.support.frameworks import Frameworks, Json, policy, role, tasks

BACKOFF: Json = {"baseSeconds": 20, "maxSeconds": 50}
DELAYS = [20, 40, 50]
IN_REAL_TIME = 20
"""By so much the delays are divided there."""

pytestmark = pytest.mark.usefixtures("pods")


async def check(cluster: Cluster, failing: Json, *, of_task: bool) -> None:
    """Check the seconds from each attempt's end to the next one's start; each is tracked by a controller of its own."""
    frameworks = Frameworks(await cluster.client(), cluster.namespace)
    divisor = 1 if cluster.embedded else IN_REAL_TIME
    retry = {"maxRetryCount": 3, "backoff": {key: value // divisor for key, value in BACKOFF.items()}}
    if of_task:
        failing["task"]["retryPolicy"] = retry
        await frameworks.create("f", failing)
    else:
        await frameworks.create("f", {**failing, "frameworkAttemptCompletionPolicy": policy(1)}, retryPolicy=retry)

    def level(status: Json) -> Json:
        return tasks(status)[0] if of_task else status

    found = []
    for number in range(len(DELAYS)):
        async with Controller(shipped_config(), await cluster.connection(), wall=cluster.wall):
            waiting = await frameworks.until(
                "f", lambda status: bool(status) and level(status)["retryPolicyStatus"]["retryDelaySec"], every=0.2
            )
        ended = level(waiting)["attemptStatus"]["completionTime"]
        assert level(waiting)["retryPolicyStatus"].get("recentRetriedCount", 0) == number
        async with Controller(shipped_config(), await cluster.connection(), wall=cluster.wall):
            attempt = number + 1
            retried = await frameworks.until(
                "f",
                lambda status, attempt=attempt: level(status)["attemptStatus"]["id"] == attempt,  # type: ignore[misc]
                every=0.2,
            )
        started = level(retried)["attemptStatus"]["startTime"]
        found.append(int((datetime.fromisoformat(started) - datetime.fromisoformat(ended)).total_seconds()))
    async with Controller(shipped_config(), await cluster.connection(), wall=cluster.wall):
        status = await frameworks.until_state("f", "Completed", every=0.2)
    assert level(status)["retryPolicyStatus"]["totalRetriedCount"] == len(DELAYS)
    assert "recentRetriedCount" not in level(status)["retryPolicyStatus"]
    delays = [delay // divisor for delay in DELAYS]
    if cluster.embedded:
        assert found == delays
    else:
        # The next controller may be late.
        assert all(waited >= delay for waited, delay in zip(found, delays, strict=True)), found


FAILS: Json = {"run-seconds": 0.1, "exit-code": 1}


async def test_a_task_waits(cluster: Cluster) -> None:
    await check(cluster, role(simulate=FAILS), of_task=True)


async def test_a_framework_waits(cluster: Cluster) -> None:
    await check(cluster, role(simulate=FAILS), of_task=False)
