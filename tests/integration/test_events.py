"""The Events of a Framework over its life."""

import asyncio
from collections.abc import Callable

import orjson
import pytest

from frameworkcontroller.config.config import Config
from frameworkcontroller.kube.resources import EVENTS
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.manager.app import Controller
from tests.support.clusters import Cluster
from tests.support.eventually import eventually, read_until
from tests.support.frameworks import Frameworks, Json, policy, role, states, tasks
from tests.support.kubectl import Kubectl


class Story:
    """The Events of a namespace."""

    def __init__(self, frameworks: Frameworks) -> None:
        self._frameworks = frameworks

    async def events(self, name: str = "f") -> list[Json]:
        """The Events about a Framework, in the order of creation."""
        selector = f"involvedObject.kind=Framework,involvedObject.name={name}"
        client, namespace = self._frameworks.client, self._frameworks.namespace
        body = orjson.loads(await client.list(EVENTS, namespace, field_selector=selector))
        found: list[Json] = sorted(body["items"], key=lambda one: int(one["metadata"]["resourceVersion"]))
        return found

    async def exactly(self, *reasons: str, name: str = "f") -> list[Json]:
        """Wait for Events of exactly these reasons, and return them."""
        return await read_until(
            lambda: self.events(name),
            lambda events: sorted(event["reason"] for event in events) == sorted(reasons),
            within=20,
        )

    async def until(self, holds: Callable[[Json], bool], name: str = "f") -> Json:
        """Wait for an Event for which ``holds`` is true."""

        async def probe() -> Json:
            events = await self.events(name)
            found = [event for event in events if holds(event)]
            assert found, [(event["reason"], event["message"]) for event in events]
            return found[0]

        return await eventually(probe, within=20)


@pytest.fixture
async def frameworks(cluster: Cluster, pods: SimulatedRuntime, controller: Controller) -> Frameworks:
    return Frameworks(await cluster.client(), cluster.namespace)


@pytest.fixture
def story(frameworks: Frameworks) -> Story:
    return Story(frameworks)


async def test_a_framework_that_fails_and_is_retried(
    frameworks: Frameworks, pods: SimulatedRuntime, story: Story
) -> None:
    failing = role("a", 1, frameworkAttemptCompletionPolicy=policy(failed=1))
    await frameworks.create("f", failing, retryPolicy={"maxRetryCount": 1})
    for number in range(2):

        def runs(status: Json, number: int = number) -> bool:
            return status["attemptStatus"]["id"] == number and states(status) == ["AttemptRunning"]

        await frameworks.until("f", runs)
        pods.fail(f"{frameworks.namespace}/f-a-0", 7, message="no more disk")
    await frameworks.until_state("f", "Completed")
    attempt = ["FrameworkAttemptStarted", "FrameworkAttemptRunning", "TaskCompleted", "FrameworkAttemptCompleting"]
    events = await story.exactly(
        *attempt, *attempt[:2], attempt[3], "TaskFailed", "FrameworkRetryScheduled", "FrameworkFailed"
    )
    by_reason: dict[str, list[Json]] = {}
    for event in events:
        by_reason.setdefault(event["reason"], []).append(event)
    (failed,) = by_reason["TaskFailed"]
    # Word for word the same in both attempts, so that it is counted.
    assert failed["count"] == 2
    assert failed["type"] == "Warning"
    assert failed["message"].startswith(
        "Task a[0]: TaskAttempt 0 failed with 7 ContainerUnrecognizedFailed: main exited with 7: no more disk"
    )
    (scheduled,) = by_reason["FrameworkRetryScheduled"]
    assert scheduled["message"] == (
        "FrameworkAttempt 1 starts at once, as 0 of 1 retries were used, after 7 ContainerUnrecognizedFailed"
    )
    assert scheduled["type"] == "Normal"
    completing = by_reason["FrameworkAttemptCompleting"][1]["message"]
    assert completing.startswith(
        "FrameworkAttempt 1 is completing with 7 ContainerUnrecognizedFailed "
        "(Task a[0]: FailedTaskCount 1 has reached MinFailedTaskCount 1 in the TaskRole): "
    )
    (last,) = by_reason["FrameworkFailed"]
    assert last["type"] == "Warning"
    assert last["message"].startswith("Framework completed, not retried as all of its 1 retries were used, with 7 ")
    assert last["message"].endswith(": main exited with 7: no more disk")


@pytest.mark.virtual_clock
async def test_events_can_be_switched_off(cluster: Cluster, pods: SimulatedRuntime) -> None:
    frameworks = Frameworks(await cluster.client(), cluster.namespace)
    async with Controller(Config(record_events=False), await cluster.connection(), wall=cluster.wall):
        await frameworks.create("f", role("a", 1, simulate={"run-seconds": 0.1}))
        await frameworks.until_state("f", "Completed")
        await asyncio.sleep(2)
    assert await Story(frameworks).events() == []


@pytest.mark.virtual_clock
async def test_a_stopping_controller_sends_its_last_events(cluster: Cluster, pods: SimulatedRuntime) -> None:
    frameworks = Frameworks(await cluster.client(), cluster.namespace)
    async with Controller(Config(), await cluster.connection(), wall=cluster.wall):
        await frameworks.create("f", role("a", 1, simulate={"exit-code": 7, "run-seconds": 0.1}))
        await frameworks.until("f", lambda status: "completionStatus" in str(status) and "7" in str(status))
        await frameworks.until_state("f", "Completed")
    assert "FrameworkSucceeded" in [event["reason"] for event in await Story(frameworks).events()]


async def test_describe_shows_the_events(
    frameworks: Frameworks, pods: SimulatedRuntime, story: Story, kubectl: Kubectl
) -> None:
    await frameworks.create("f", role("a", 1, task={"retryPolicy": {"fancyRetryPolicy": True}}))
    await frameworks.until_running("f", 1)
    pods.fail(f"{frameworks.namespace}/f-a-0", 200)
    await frameworks.until("f", lambda status: tasks(status)[0]["attemptStatus"]["id"] == 1)
    await frameworks.until_running("f", 1)
    pods.finish(f"{frameworks.namespace}/f-a-0")
    await frameworks.until_state("f", "Completed")
    await story.until(lambda event: event["reason"] == "FrameworkSucceeded")
    told = (await kubectl.ok("describe", "framework", "f")).split("Events:")[1]
    lines = [line.split() for line in told.splitlines() if " frameworkcontroller " in line]
    assert [line[1] for line in lines] == [
        "FrameworkAttemptStarted",
        "FrameworkAttemptRunning",
        "TaskFailed",
        "TaskRetried",
        "FrameworkSucceeded",
    ]
