"""Gangs on API servers: the PodGroup before the Pods, its minimum, its end, and kinds and fields not served."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import orjson
import pytest

from frameworkcontroller.api.podgroups import GangScheduler
from frameworkcontroller.config.config import Config
from frameworkcontroller.kube.client import MERGE_PATCH
from frameworkcontroller.kube.errors import NotFound
from frameworkcontroller.kube.resources import (
    CONFIGMAPS,
    COSCHEDULING_PODGROUPS,
    CRDS,
    PODGROUPS,
    PODS,
    VOLCANO_PODGROUPS,
    Resource,
)
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.manager import informers
from frameworkcontroller.manager.app import Controller
from tests.support.clusters import Cluster
from tests.support.eventually import eventually, read_until
from tests.support.frameworks import Frameworks, Json, condition, role, stalled
from tests.support.frontdoor import FrontDoor
from tests.support.objects import read
from tests.support.podgroups import serve

GANG: Json = {"schedulingPolicy": {"gang": {}}}


@pytest.fixture
async def frameworks(cluster: Cluster) -> Frameworks:
    return Frameworks(await cluster.client(), cluster.namespace)


@pytest.fixture
async def removed(cluster: Cluster) -> AsyncIterator[None]:
    """CRDs of PodGroups are removed after the test, as other tests see all of a real API server."""
    yield
    client = await cluster.client()
    for resource in (PODGROUPS, VOLCANO_PODGROUPS, COSCHEDULING_PODGROUPS):
        try:
            await client.delete(CRDS, resource.qualified)
        except NotFound:
            continue


def controller(cluster: Cluster, door: FrontDoor, scheduler: GangScheduler = GangScheduler.KUBERNETES) -> Controller:
    return Controller(Config(gang_scheduler=scheduler), door.connection, wall=cluster.wall)


async def group(frameworks: Frameworks, resource: Resource = PODGROUPS, name: str = "f") -> Json:
    """The PodGroup of that name."""
    return await read(frameworks.client, resource, name, frameworks.namespace)


async def say(frameworks: Frameworks, resource: Resource = PODGROUPS, name: str = "f", **status: Any) -> None:
    """A scheduler writes the status of a PodGroup."""
    body = orjson.dumps({"status": status})
    # Volcano's have no status subresource.
    subresource = None if resource.group == VOLCANO_PODGROUPS.group else "status"
    await frameworks.client.patch(
        resource, name, body, frameworks.namespace, content_type=MERGE_PATCH, subresource=subresource
    )


def created(door: FrontDoor) -> list[str]:
    wanted = (PODGROUPS.plural, CONFIGMAPS.plural, PODS.plural)
    return [one.resource for one in door.requests if one.verb == "create" and one.resource in wanted]


async def until_pods(frameworks: Frameworks, count: int) -> dict[str, Json]:
    return await read_until(frameworks.pods, lambda found: len(found) == count)


async def until_minimum(frameworks: Frameworks, wanted: int, resource: Resource = PODGROUPS) -> Json:
    async def probe() -> Json:
        try:
            spec: Json = (await group(frameworks, resource))["spec"]
        except NotFound as error:
            raise AssertionError(error) from error
        found = spec["schedulingPolicy"]["gang"]["minCount"] if resource.group == PODGROUPS.group else spec["minMember"]
        assert found == wanted
        return spec

    return await eventually(probe)


@pytest.mark.usefixtures("removed")
async def test_the_life_of_a_gang(cluster: Cluster, frameworks: Frameworks, door: FrontDoor) -> None:
    """Nothing runs Pods: first the scheduler says why, then a Pod goes, and then all are placed and end."""
    await serve(cluster, PODGROUPS)
    retried = role(number=3, task={"retryPolicy": {"maxRetryCount": 3, "backoff": {"baseSeconds": 5}}})
    retried["task"]["pod"] = role()["task"]["pod"]
    async with controller(cluster, door):
        await frameworks.create("f", retried, scheduling=GANG, retryPolicy={"maxRetryCount": 1})
        await until_pods(frameworks, 3)
        assert created(door) == ["configmaps", "podgroups", "pods", "pods", "pods"]
        first = await group(frameworks)
        (owner,) = first["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["blockOwnerDeletion"]) == ("ConfigMap", "f-attempt", False)
        assert first["spec"]["schedulingPolicy"] == {"gang": {"minCount": 3}}

        why = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."
        await say(frameworks, conditions=[_placed("False", why)])

        async def told() -> None:
            message = condition(await frameworks.status("f"), "Running")["message"]
            assert message == f"FrameworkAttempt 0 waits: PodGroup f is not placed: {why}"

        await eventually(told)
        # Its Task waits for its retry, so the other two can be placed.
        await frameworks.delete_pod("f-a-0", grace=0)
        await until_minimum(frameworks, 2)
        await until_pods(frameworks, 3)

        await say(frameworks, conditions=[_placed("True", "")])
        await until_minimum(frameworks, 1)
        status = await frameworks.status("f")
        assert status["attemptStatus"]["scheduledPodGroups"] == ["f"]

        # The next attempt has a group of its own.
        await frameworks.client.delete(CONFIGMAPS, "f-attempt", frameworks.namespace, propagation="Foreground")

        async def again() -> Json:
            for name in await frameworks.pods():
                if (await frameworks.status("f"))["attemptStatus"]["id"] == 0:
                    await frameworks.delete_pod(name, grace=0)
            try:
                found = await group(frameworks)
            except NotFound as error:
                raise AssertionError(error) from error
            assert found["metadata"]["uid"] != first["metadata"]["uid"]
            return found

        second = await eventually(again)
        assert second["metadata"]["annotations"]["FC_FRAMEWORK_ATTEMPT_ID"] == "1"
        assert second["spec"]["schedulingPolicy"] == {"gang": {"minCount": 3}}
        await until_pods(frameworks, 3)
        assert "scheduledPodGroups" not in (await frameworks.status("f"))["attemptStatus"]
        await frameworks.delete("f")
        for name in await frameworks.pods():
            await frameworks.delete_pod(name, grace=0)

        async def gone() -> None:
            with pytest.raises(NotFound):
                await group(frameworks)

        await eventually(gone)


def _placed(status: str, message: str) -> Json:
    return {
        "type": "PodGroupInitiallyScheduled",
        "status": status,
        "reason": "Unschedulable" if status == "False" else "Scheduled",
        "message": message,
        "lastTransitionTime": "2026-11-22T00:00:00Z",
    }


@pytest.mark.virtual_clock
async def test_the_first_pod_shows_that_its_group_is_not_stored(
    cluster: Cluster, frameworks: Frameworks, pods: SimulatedRuntime, door: FrontDoor, removed: None
) -> None:
    """An API server without the feature drops the field: the status reports that, and the Pods run."""
    await serve(cluster, PODGROUPS)
    async with controller(cluster, door):
        await frameworks.create("f", role(number=2, simulate={"run-seconds": "2"}), scheduling=GANG)
        status = await frameworks.until("f", lambda status: "GangUnsupported" in stalled(status) or _has(status))
        if not _has_group(await frameworks.pods()):
            assert "dropped spec.schedulingGroup of Pod f-a-0" in condition(status, "Stalled")["message"]
        await frameworks.until_state("f", "Completed")
        assert condition(await frameworks.status("f"), "Succeeded")["status"] == "True"


def _has(status: Json) -> bool:
    return bool(status.get("attemptStatus", {}).get("scheduledPodGroups"))


def _has_group(pods: dict[str, Json]) -> bool:
    return any("schedulingGroup" in pod["spec"] for pod in pods.values())


@pytest.mark.parametrize(
    ("scheduler", "resource"),
    [(GangScheduler.VOLCANO, VOLCANO_PODGROUPS), (GangScheduler.COSCHEDULING, COSCHEDULING_PODGROUPS)],
)
async def test_other_schedulers(
    cluster: Cluster,
    frameworks: Frameworks,
    door: FrontDoor,
    removed: None,
    scheduler: GangScheduler,
    resource: Resource,
) -> None:
    await serve(cluster, resource)
    async with controller(cluster, door, scheduler):
        await frameworks.create("f", role(number=2), scheduling=GANG)
        (pod, _) = (await until_pods(frameworks, 2)).values()
        if scheduler is GangScheduler.VOLCANO:
            assert pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "f"
            assert pod["spec"]["schedulerName"] == "volcano"
        else:
            assert pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == "f"
        await until_minimum(frameworks, 2, resource)
        await say(frameworks, resource, phase="Running")
        await until_minimum(frameworks, 1, resource)


async def test_groups_that_are_not_served_stall_that_framework_until_they_are(
    cluster: Cluster,
    frameworks: Frameworks,
    pods: SimulatedRuntime,
    door: FrontDoor,
    removed: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not cluster.embedded:
        # Time is real there.
        monkeypatch.setattr(informers, "DISCOVERY_SEC", 2.0)
    async with controller(cluster, door, GangScheduler.VOLCANO) as running:
        await frameworks.create("f", role(simulate={"run-seconds": "1"}), scheduling=GANG)
        await frameworks.create("other", role(simulate={"run-seconds": "1"}))
        status = await frameworks.until("f", lambda status: bool(stalled(status)))
        assert condition(status, "Stalled")["reason"] == "GangUnsupported"
        text = "spec.scheduling: the API server does not serve podgroups.scheduling.volcano.sh (v1beta1)"
        assert condition(status, "Stalled")["message"] == text
        await frameworks.until_state("other", "Completed")
        assert created(door) == ["configmaps", "pods"]
        await serve(cluster, VOLCANO_PODGROUPS)

        async def placed() -> None:
            # No scheduler of that name is here.
            assert "f-a-0" in await frameworks.pods()

        await eventually(placed, within=180.0)
        assert stalled(await frameworks.status("f")) == ""
        assert running.ready


async def test_the_version_that_is_served_is_used(
    cluster: Cluster, frameworks: Frameworks, door: FrontDoor, removed: None
) -> None:
    old = replace(PODGROUPS, version="v1alpha2")
    await serve(cluster, old)
    async with controller(cluster, door):
        await frameworks.create("f", role(number=2), scheduling={**GANG, "disruptionMode": {"all": {}}})
        await until_pods(frameworks, 2)
        found = await group(frameworks, old)
        assert (found["apiVersion"], found["spec"]["disruptionMode"]) == ("scheduling.k8s.io/v1alpha2", "PodGroup")
