"""The preconditions of the status write, one by one: what may happen between the decision and its being stored."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
import pytest

from frameworkcontroller.api import names
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.config.config import Config
from frameworkcontroller.kube.client import MERGE_PATCH, KubeClient
from frameworkcontroller.kube.errors import ApiError, TransportError
from frameworkcontroller.kube.resources import PODS
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.manager.app import Controller
from tests.support.clusters import Cluster
from tests.support.exposure import Exposure
from tests.support.frameworks import Frameworks, Json, codes, role, states, tasks

Send = Callable[[], Awaitable[bytes]]
Hook = Callable[[Send], Awaitable[bytes]]


class StatusWrites:
    """Lets a test step between the controller and its status writes.

    Only those in `namespace`: on a real control plane the Frameworks of earlier tests go bit by bit, and are synced.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, namespace: str) -> None:
        self._hooks: list[tuple[Callable[[Json], bool], Hook]] = []
        original = KubeClient.patch

        async def patch(client: KubeClient, resource: Any, name: str, body: bytes, *args: Any, **kwargs: Any) -> bytes:
            async def send() -> bytes:
                return await original(client, resource, name, body, *args, **kwargs)

            if kwargs.get("subresource") == "status" and resource.kind == names.KIND and namespace in args:
                written = next(op["value"] for op in orjson.loads(body) if op["op"] == "add")
                for position, (when, hook) in enumerate(self._hooks):
                    if when(written):
                        del self._hooks[position]
                        return await hook(send)
            return await send()

        monkeypatch.setattr(KubeClient, "patch", patch)

    def once(self, when: Callable[[Json], bool], hook: Hook) -> None:
        """Have `hook` send the next write of a status that is such."""
        self._hooks.append((when, hook))

    @property
    def done(self) -> bool:
        """Whether all hooks have had their turn."""
        return not self._hooks


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> StatusWrites:
    return StatusWrites(monkeypatch, cluster.namespace)


@pytest.fixture
async def frameworks(
    cluster: Cluster, writes: StatusWrites, pods: SimulatedRuntime, controller: Controller
) -> Frameworks:
    return Frameworks(await cluster.client(), cluster.namespace)


@pytest.fixture
async def history(cluster: Cluster) -> Exposure:
    return Exposure(await cluster.client(), cluster.namespace)


def running(status: Json) -> bool:
    return "AttemptRunning" in states(status)


async def test_a_lost_answer_is_found_to_have_been_a_success(frameworks: Frameworks, writes: StatusWrites) -> None:
    async def lose_the_answer(send: Send) -> bytes:
        await send()
        raise TransportError("the connection was cut")

    writes.once(running, lose_the_answer)
    await frameworks.create("f", role("a", 2))
    before = await frameworks.until_running("f", 2)
    await frameworks.set("f", executionType="Stop")
    after = await frameworks.until_state("f", "Completed")
    assert writes.done
    assert pod_uids(after) == pod_uids(before)


async def test_a_write_that_never_arrived_is_repeated(frameworks: Frameworks, writes: StatusWrites) -> None:
    async def lose_the_request(_: Send) -> bytes:
        raise TransportError("the connection was cut")

    for _ in range(3):
        writes.once(lambda _: True, lose_the_request)
    await frameworks.create("f", role("a", 2, simulate={"run-seconds": 0.5}))
    status = await frameworks.until_state("f", "Completed")
    assert codes(tasks(status)) == [0, 0]
    assert writes.done


async def test_a_status_never_lands_on_a_spec_that_it_has_not_seen(
    frameworks: Frameworks, writes: StatusWrites
) -> None:
    refusals: list[str] = []

    async def change_the_spec_first(send: Send) -> bytes:
        await frameworks.set("f", taskRoles__0__taskNumber=1)
        try:
            return await send()
        except ApiError as error:
            refusals.append(str(error))
            raise

    writes.once(running, change_the_spec_first)
    await frameworks.create("f", role("a", 2))
    status = await frameworks.until("f", lambda status: states(status) == ["AttemptRunning"])
    assert len(refusals) == 1
    assert status["observedGeneration"] == 2
    assert status["attemptStatus"]["id"] == 0


async def test_metadata_of_others_is_kept_and_does_not_matter(frameworks: Frameworks, writes: StatusWrites) -> None:
    async def annotate_first(send: Send) -> bytes:
        body = orjson.dumps({"metadata": {"annotations": {"requestGeneration": "2"}}})
        await frameworks.client.patch(FRAMEWORKS, "f", body, frameworks.namespace, content_type=MERGE_PATCH)
        return await send()

    writes.once(running, annotate_first)
    await frameworks.create("f", role("a", 2))
    await frameworks.until_running("f", 2)
    assert writes.done
    assert (await frameworks.get("f"))["metadata"]["annotations"]["requestGeneration"] == "2"


async def test_the_status_of_somebody_else_is_not_overwritten(frameworks: Frameworks, writes: StatusWrites) -> None:
    async def write_another_first(send: Send) -> bytes:
        status = await frameworks.status("f")
        status["attemptStatus"]["taskRoleStatuses"][0]["taskStatuses"][0]["retryPolicyStatus"]["totalRetriedCount"] = 7
        status["attemptStatus"]["taskRoleStatuses"][0]["taskStatuses"][0]["attemptStatus"]["id"] = 7
        body = orjson.dumps({**await frameworks.get("f"), "status": status})
        await frameworks.client.raw("PUT", FRAMEWORKS.path(frameworks.namespace, "f", "status"), body=body)
        return await send()

    # The first write after the initial one: what is stored then still waits for its ConfigMap.
    writes.once(lambda status: status["attemptStatus"]["configMapUID"] is not None, write_another_first)
    await frameworks.create("f", role("a", 2))
    status = await frameworks.until_running("f", 2)
    assert writes.done
    assert [task["attemptStatus"]["id"] for task in tasks(status)] == [7, 0]


async def test_a_pod_that_another_controller_has_recorded_meanwhile_is_no_orphan(
    cluster: Cluster, frameworks: Frameworks, monkeypatch: pytest.MonkeyPatch
) -> None:
    await frameworks.create("f", role("a", 1, simulate={"run-seconds": 0.1}), role("b", 1))
    await frameworks.until("f", lambda status: states(status) == ["Completed", "AttemptRunning"])
    pod = (await frameworks.pods())["f-b-0"]
    metadata = {"name": "f-a-0", **{key: pod["metadata"][key] for key in ("labels", "annotations", "ownerReferences")}}
    pod = {**pod, "metadata": metadata, "spec": {"containers": pod["spec"]["containers"]}, "status": {}}
    original = KubeClient.get
    recorded: list[str] = []

    async def record_first(client: KubeClient, resource: Any, name: str, *args: Any, **kwargs: Any) -> bytes:
        if resource.kind == names.KIND and frameworks.namespace in args and kwargs.get("flow") and not recorded:
            recorded.append((await frameworks.pods())["f-a-0"]["metadata"]["uid"])
            status = await frameworks.status("f")
            task = tasks(status, "a")[0]
            task |= {"state": "AttemptCreationRequested", "completionTime": None}
            task["attemptStatus"] |= {
                "id": 1,
                "podUID": recorded[0],
                "instanceUID": f"1_{recorded[0]}",
                "completionStatus": None,
                "completionTime": None,
                "runTime": None,
            }
            body = orjson.dumps({**await frameworks.get("f"), "status": status})
            await frameworks.client.raw("PUT", FRAMEWORKS.path(frameworks.namespace, "f", "status"), body=body)
        return await original(client, resource, name, *args, **kwargs)

    monkeypatch.setattr(KubeClient, "get", record_first)
    await frameworks.client.create(PODS, orjson.dumps(pod), frameworks.namespace)
    after = await frameworks.until("f", lambda status: states(status) == ["AttemptRunning", "AttemptRunning"])
    assert pod_uids(after) == recorded


def both_run(role: list[Json]) -> bool:
    return [task["state"] for task in role] == ["AttemptRunning"] * 2


async def test_two_controllers_at_once(
    cluster: Cluster, pods: SimulatedRuntime, frameworks: Frameworks, history: Exposure
) -> None:
    async with history.following():
        async with Controller(Config(), await cluster.connection(), wall=cluster.wall):
            simulate = {"run-seconds": "0.3, 0.2, 0.1", "exit-code": "200, 200, 0"}
            retry = {"retryPolicy": {"fancyRetryPolicy": True}}
            await frameworks.create("f", role("a", 5, simulate=simulate, task=retry), role("b", 3))
            await asyncio.sleep(0.2)
            await frameworks.set("f", taskRoles__1__taskNumber=2)
            await frameworks.until("f", lambda status: both_run(tasks(status, "b")))
            for index in range(2):
                pods.finish(f"{cluster.namespace}/f-b-{index}")
            status = await frameworks.until_state("f", "Completed")
        await history.until_last("Completed")
    assert codes(tasks(status, "a")) == [0] * 5
    assert codes(tasks(status, "b")) == [0] * 2
    assert [len(statuses) > 3 for statuses in history.statuses.values()] == [True]
    history.check()
    await frameworks.assert_nothing_left("f")


def pod_uids(status: Json) -> list[str]:
    return [task["attemptStatus"]["podUID"] for task in tasks(status)]
