"""A Framework that the controller cannot process is quarantined alone, reports that, and comes back."""

import asyncio
import logging
from typing import Any

import orjson
import pytest

from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.api.status import State
from frameworkcontroller.config.config import Config
from frameworkcontroller.kube.client import JSON_PATCH, KubeClient
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.machine import passes
from frameworkcontroller.machine.kernel.model import InvariantError, Plan
from frameworkcontroller.machine.plan import plan
from frameworkcontroller.machine.quarantine import RETRY_SEC
from frameworkcontroller.manager.app import Controller
from tests.integration.test_events import Story
from tests.integration.test_preconditions import pod_uids
from tests.support.clusters import Cluster
from tests.support.eventually import eventually, until
from tests.support.frameworks import Frameworks, Json, condition, role

pytestmark = pytest.mark.newest


@pytest.fixture
async def frameworks(cluster: Cluster, pods: SimulatedRuntime, trap: "Trap", controller: Controller) -> Frameworks:
    return Frameworks(await cluster.client(), cluster.namespace)


class Trap:
    """Plans of some Frameworks fail, in an unforeseen way."""

    def __init__(self) -> None:
        self.errors: dict[str, Exception] = {}
        self.since = 0
        """The first generation whose plans fail."""
        self.plans = 0

    def plan(self, subject: Any, *args: Any) -> Plan:
        """In place of the machine's own."""
        error = self.errors.get(subject.name)
        if error is not None and subject.generation >= self.since:
            self.plans += 1
            raise error
        return plan(subject, *args)


class Looks:
    """Counts the live reads of one Framework by its controller."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
        self.count = 0
        original = KubeClient.get

        async def get(client: KubeClient, *args: Any, **kwargs: Any) -> bytes:
            self.count += kwargs.get("flow") == key and args[0] is FRAMEWORKS
            return await original(client, *args, **kwargs)

        monkeypatch.setattr(KubeClient, "get", get)


@pytest.fixture
def trap(monkeypatch: pytest.MonkeyPatch) -> Trap:
    trap = Trap()
    monkeypatch.setattr(passes, "plan", trap.plan)
    return trap


def is_quarantined(status: Json) -> bool:
    stalled = condition(status, "Stalled")
    return stalled.get("status") == "True" and stalled["reason"] == "Quarantined"


def without_conditions(status: Json) -> Json:
    return {key: value for key, value in status.items() if key != "conditions"}


async def until_quarantined(controller: Controller, count: int) -> None:
    """Wait until the controller counts this number: once the API server has answered, later than others know."""
    await until(lambda: controller.state_counts.quarantined == count)


@pytest.mark.virtual_clock
@pytest.mark.parametrize("error", [InvariantError("two of the same"), ZeroDivisionError("division by zero")])
async def test_it_is_reported_everywhere_and_harms_no_other(
    controller: Controller,
    frameworks: Frameworks,
    trap: Trap,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    caplog.set_level(logging.INFO)
    looks = Looks(monkeypatch, f"{frameworks.namespace}/f")
    await frameworks.create("f", role("a", 2))
    before = await frameworks.until_running("f", 2)
    # Without actions that are still planned for the previous spec.
    trap.since = before["observedGeneration"] + 1
    trap.errors["f"] = error
    await frameworks.set("f", taskRoles__0__taskNumber=3)
    status = await frameworks.until("f", is_quarantined)
    story = f"{type(error).__name__}: {error}"
    assert story in condition(status, "Stalled")["message"]
    assert without_conditions(status) == without_conditions(before)
    event = await Story(frameworks).until(lambda event: event["reason"] == "Quarantined")
    assert event["message"] == condition(status, "Stalled")["message"]
    assert event["type"] == "Warning"
    (line,) = [one for one in caplog.records if ": Quarantined: " in one.getMessage()]
    assert line.exc_info is not None
    assert line.exc_info[1] is error
    await until_quarantined(controller, 1)
    # It rests during all changes of its Pods; others do not.
    plans, looked = trap.plans, looks.count
    await frameworks.delete_pod("f-a-0")
    await frameworks.create("other", role("a", 1, simulate={"run-seconds": 0.2}))
    await frameworks.until_state("other", "Completed")
    assert (trap.plans, looks.count) == (plans, looked)
    # A change of its spec has it tried again.
    del trap.errors["f"]
    await frameworks.set("f", taskRoles__0__taskNumber=1)
    status = await frameworks.until("f", lambda status: condition(status, "Stalled").get("status") == "False")
    assert pod_uids(status)[0] == pod_uids(before)[0]
    over = await Story(frameworks).until(lambda event: event["reason"] == "Progressing")
    assert over["message"] == "No longer stalled by Quarantined"
    await until_quarantined(controller, 0)


@pytest.mark.virtual_clock
@pytest.mark.parametrize(
    ("wanted", "state"),
    [
        ({"executionType": "Stop"}, "Completed"),
        ({"suspend": True}, "AttemptCreationPending"),
        ({"activeDeadlineSeconds": 3}, "Completed"),
    ],
)
async def test_a_requested_end_is_carried_out_in_quarantine(
    frameworks: Frameworks, trap: Trap, wanted: Json, state: str
) -> None:
    for name in "fg":
        await frameworks.create(name, role("a", 2), activeDeadlineSeconds=1000)
        await frameworks.until_running(name, 2)
        trap.errors[name] = ZeroDivisionError("division by zero")
        await frameworks.set(name, description="x")
        await frameworks.until(name, is_quarantined)
    await frameworks.set("f", **wanted)
    await eventually(lambda: frameworks.assert_nothing_left("f"), within=60)
    assert is_quarantined(await frameworks.status("f"))
    assert set(await frameworks.pods()) == {"g-a-0", "g-a-1"}
    trap.errors.clear()
    await frameworks.set("f", description="y")
    status = await frameworks.until_state("f", state)
    if state == "AttemptCreationPending":
        await frameworks.until("f", lambda status: condition(status, "Suspended").get("status") == "True")
        assert status["retryPolicyStatus"]["accountableRetriedCount"] == 0


@pytest.mark.virtual_clock
async def test_it_is_tried_again_by_and_by_and_told_once(
    frameworks: Frameworks, trap: Trap, caplog: pytest.LogCaptureFixture
) -> None:
    await frameworks.create("f", role("a", 1))
    before = await frameworks.until_running("f", 1)
    trap.errors["f"] = ZeroDivisionError("division by zero")
    await frameworks.set("f", taskRoles__0__taskNumber=2)
    await frameworks.until("f", is_quarantined)
    version = (await frameworks.get("f"))["metadata"]["resourceVersion"]
    await asyncio.sleep(RETRY_SEC * 5)
    assert 4 <= trap.plans <= 7
    assert len([line for line in caplog.messages if ": Quarantined: " in line]) == 1
    assert (await frameworks.get("f"))["metadata"]["resourceVersion"] == version
    # The Event is repeated: else it would expire after an hour.
    event = await Story(frameworks).until(lambda event: event["reason"] == "Quarantined")
    assert event["count"] == trap.plans
    trap.errors.clear()
    await asyncio.sleep(RETRY_SEC * 1.1)
    status = await frameworks.until_running("f", 2)
    assert pod_uids(status)[0] == pod_uids(before)[0]


async def test_one_without_a_status_gets_one_that_says_so(frameworks: Frameworks, trap: Trap) -> None:
    trap.errors["f"] = ZeroDivisionError("division by zero")
    await frameworks.create("f", role("a", 2))
    status = await frameworks.until("f", is_quarantined)
    assert status["state"] == State.CREATION_PENDING
    assert status["attemptStatus"]["taskRoleStatuses"] == []
    trap.errors.clear()
    await frameworks.set("f", description="try again")
    await frameworks.until_running("f", 2)


async def replace_status(frameworks: Frameworks, name: str, status: Json) -> None:
    patch = orjson.dumps([{"op": "add", "path": "/status", "value": status}])
    client, namespace = frameworks.client, frameworks.namespace
    await client.patch(FRAMEWORKS, name, patch, namespace, content_type=JSON_PATCH, subresource="status")


async def test_a_status_that_cannot_be_read_is_kept_and_gets_the_condition(
    cluster: Cluster, pods: SimulatedRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    frameworks = Frameworks(await cluster.client(), cluster.namespace)
    await frameworks.create("f", role("a", 1), executionType="Stop")
    times = {"startTime": "2026-01-01T00:00:00Z", "transitionTime": "2026-01-01T00:00:00Z"}
    retry = {"totalRetriedCount": 0, "accountableRetriedCount": 0, "retryDelaySec": None}
    attempt = {"id": 0, "startTime": "2026-01-01T00:00:00Z", "instanceUID": None, "configMapName": "f-attempt"}
    bad = {
        **times,
        "state": "AttemptRunning",
        "retryPolicyStatus": retry,
        "attemptStatus": {**attempt, "taskRoleStatuses": None, "taskRoleStatusesCompressed": "Zm9v"},
    }
    await replace_status(frameworks, "f", bad)
    kept = await frameworks.status("f")
    async with Controller(Config(), await cluster.connection(), wall=cluster.wall) as controller:
        status = await frameworks.until("f", is_quarantined)
        message = condition(status, "Stalled")["message"]
        assert "status.attemptStatus.taskRoleStatusesCompressed: Not a gzipped file (b'fo')" in message
        assert without_conditions(status) == without_conditions(kept)
        await until_quarantined(controller, 1)
        await Story(frameworks).until(lambda event: event["reason"] == "Quarantined")
        # Once the cause is fixed, a change of the spec brings it back.
        bad["attemptStatus"] = {**attempt, "taskRoleStatuses": []}
        bad["state"] = "AttemptCreationPending"
        await replace_status(frameworks, "f", bad)
        await frameworks.set("f", description="mended")
        await frameworks.until_state("f", "Completed")
