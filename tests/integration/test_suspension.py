"""Suspend and resume on API servers: the remaining Pods, and the status."""

import pytest

from frameworkcontroller.config.config import Config
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.manager.app import Controller
from tests.support.clusters import Cluster
from tests.support.frameworks import Frameworks, Json, condition, role, states, tasks

pytestmark = pytest.mark.newest


def suspended(status: Json) -> bool:
    return bool(condition(status, "Suspended").get("status") == "True")


async def running(frameworks: Frameworks, count: int, *, attempt: int) -> Json:
    return await frameworks.until(
        "f",
        lambda status: status["attemptStatus"]["id"] == attempt and states(status).count("AttemptRunning") == count,
    )


@pytest.mark.virtual_clock
async def test_a_suspension_outlives_controllers(
    cluster: Cluster, pods: SimulatedRuntime, frameworks: Frameworks
) -> None:
    """One ends while Pods still go, another one keeps the promise, and a third resumes."""
    await frameworks.create("f", role("a", 2, simulate={"stop-seconds": "forever"}))
    async with Controller(Config(), await cluster.connection(), wall=cluster.wall):
        await running(frameworks, 2, attempt=0)
        await frameworks.set("f", suspend=True)
        await frameworks.until("f", lambda status: status["attemptStatus"]["completionStatus"] is not None)
    status = await frameworks.status("f")
    assert status["attemptStatus"]["completionStatus"]["code"] == -240
    assert not suspended(status)
    for index in range(2):
        pods.finish(f"{cluster.namespace}/f-a-{index}")
    async with Controller(Config(), await cluster.connection(), wall=cluster.wall):
        await frameworks.until("f", suspended)
        await frameworks.assert_nothing_left("f")
    assert suspended(await frameworks.status("f"))
    await frameworks.set("f", suspend=False)
    async with Controller(Config(), await cluster.connection(), wall=cluster.wall):
        status = await running(frameworks, 2, attempt=1)
    assert not suspended(status)
    assert [task["retryPolicyStatus"]["totalRetriedCount"] for task in tasks(status)] == [0, 0]
