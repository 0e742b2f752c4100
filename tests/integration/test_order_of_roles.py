"""Roles that wait for others (docs/write-a-framework.md, "Order of roles")."""

from __future__ import annotations

from typing import Any

import pytest

from frameworkcontroller.kube.resources import EVENTS
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from tests.support.eventually import eventually
from tests.support.frameworks import Frameworks, Json, codes, condition, policy, role, tasks
from tests.support.objects import items

pytestmark = [pytest.mark.usefixtures("controller"), pytest.mark.newest]


def waiting(name: str, number: int, other: str, status: str, **more: Any) -> Json:
    """A role that depends on another one."""
    return role(name, number, dependsOn=[{"name": other, "status": status}], **more)


async def recorded(frameworks: Frameworks) -> list[Json]:
    """The Events of the namespace."""
    return await items(frameworks.client, EVENTS, frameworks.namespace)


def started(status: Json) -> dict[str, bool]:
    """Which roles have started."""
    return {item["name"]: item.get("started", False) for item in status["attemptStatus"]["taskRoleStatuses"]}


async def test_roles_start_in_order(frameworks: Frameworks, pods: SimulatedRuntime) -> None:
    server = waiting("server", 1, "init", "Complete", simulate={"run-seconds.prepare": "forever"})
    server["task"]["pod"]["spec"]["initContainers"] = [{"name": "prepare", "image": "none"}]
    await frameworks.create(
        "f",
        role("init", 2),
        server,
        waiting("client", 2, "server", "Ready", frameworkAttemptCompletionPolicy=policy(1, 2)),
    )
    status = await frameworks.until_running("f", 2)
    assert set(await frameworks.pods()) == {"f-init-0", "f-init-1"}
    message = condition(status, "Running")["message"]
    assert message.startswith("FrameworkAttempt 0: TaskRole ")
    assert "waits until TaskRole " in message
    for name in ("f-init-0", "f-init-1"):
        pods.finish(f"{frameworks.namespace}/{name}")

    status = await frameworks.until("f", lambda status: started(status)["server"])
    assert codes(tasks(status, "init")) == [0, 0]
    await frameworks.until("f", lambda status: tasks(status, "server")[0]["state"] == "AttemptPreparing")
    assert set(await frameworks.pods()) == {"f-server-0"}

    async def is_prepared() -> None:
        assert f"{frameworks.namespace}/f-server-0" in pods.running()
        pods.finish(f"{frameworks.namespace}/f-server-0", "prepare")

    await eventually(is_prepared)
    await frameworks.until("f", lambda status: started(status)["client"])
    await frameworks.until_running("f", 3)
    for name in ("f-client-0", "f-client-1"):
        pods.finish(f"{frameworks.namespace}/{name}")
    status = await frameworks.until_state("f", "Completed")
    assert status["attemptStatus"]["completionStatus"]["code"] == 0
    assert codes(tasks(status, "server")) == [-220]
    begun = [tasks(status, name)[0]["runTime"] for name in ("init", "server", "client")]
    assert begun == sorted(begun)
    await frameworks.assert_nothing_left("f")

    async def events() -> None:
        found = [one for one in await recorded(frameworks) if one["involvedObject"]["name"] == "f"]
        assert {"DependencyPending", "TaskRoleStarted"} <= {one["reason"] for one in found}
        assert "TaskRole server starts, as TaskRole init is Complete" in {one["message"] for one in found}

    await eventually(events, within=30)
