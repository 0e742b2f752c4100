"""Nodes that are silent, tainted or removed, and their Pods: the controllers of nodes inside the API server."""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from frameworkcontroller.local.apiserver.metadata import rfc3339
from frameworkcontroller.local.apiserver.restserver import ApiServer
from tests.support.registry import Inside
from tests.support.virtual_clock import wall

pytestmark = pytest.mark.virtual_clock

Json = dict[str, Any]

LOST = "node.kubernetes.io/unreachable"
NOT_READY = "node.kubernetes.io/not-ready"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"


@pytest.fixture
async def inside() -> AsyncIterator[Inside]:
    async with ApiServer(wall=wall, rng=random.Random(1), node_lifecycle=True) as server:
        yield Inside(server)


def beat(inside: Inside, ready: str = "True") -> None:
    """The status that a kubelet writes."""
    condition = {"type": "Ready", "status": ready, "reason": "KubeletReady", "lastHeartbeatTime": rfc3339(wall())}
    inside.change("Node", "n1", {"status": {"conditions": [condition]}}, "", subresource="status")


def make_node(inside: Inside, ready: str = "True") -> None:
    inside.create("Node", "n1", "")
    beat(inside, ready)


def make_pod(inside: Inside, name: str = "p", **spec: Any) -> str:
    """A running Pod on the node; its uid."""
    spec = {"containers": [{"name": "main", "image": "none"}], **spec}
    uid = inside.create("Pod", name, spec=spec).uid
    inside.bind(name)
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    inside.change("Pod", name, {"status": status}, subresource="status")
    return uid


def tolerating(key: str, seconds: int | None = None) -> Json:
    toleration: Json = {"key": key, "operator": "Exists", "effect": "NoExecute"}
    return {"tolerations": [toleration if seconds is None else {**toleration, "tolerationSeconds": seconds}]}


def taint(inside: Inside, *keys: str) -> None:
    inside.change("Node", "n1", {"spec": {"taints": [{"key": key, "effect": "NoExecute"} for key in keys]}}, "")


def taints(inside: Inside) -> list[str]:
    found = inside.get("Node", "n1", "")["spec"].get("taints") or []
    return sorted(f"{one['key']}:{one['effect']}" for one in found)


def condition(obj: Json, kind: str) -> Json:
    return next((one for one in obj["status"].get("conditions") or () if one["type"] == kind), {})


def ready(inside: Inside) -> str:
    return str(condition(inside.get("Node", "n1", ""), "Ready").get("status"))


def is_deleted(inside: Inside, name: str = "p") -> bool:
    return "deletionTimestamp" in inside.get("Pod", name)["metadata"]


# --- heartbeats ---


async def test_a_silent_node_is_unreachable_after_50_s(inside: Inside) -> None:
    make_node(inside)
    make_pod(inside)
    before = condition(inside.get("Node", "n1", ""), "Ready")
    await asyncio.sleep(49)
    assert (ready(inside), taints(inside)) == ("True", [])
    await asyncio.sleep(2)
    assert taints(inside) == [f"{LOST}:NoExecute", f"{LOST}:NoSchedule"]
    after = condition(inside.get("Node", "n1", ""), "Ready")
    assert (after["status"], after["reason"]) == ("Unknown", "NodeStatusUnknown")
    assert after["lastHeartbeatTime"] == before["lastHeartbeatTime"]
    pod = inside.get("Pod", "p")
    assert condition(pod, "Ready")["status"] == "False"
    assert pod["status"]["phase"] == "Running"


@pytest.mark.parametrize("by", ["status", "lease"])
async def test_heartbeats_keep_a_node_ready(inside: Inside, by: str) -> None:
    make_node(inside)
    inside.create("Lease", "n1", "kube-node-lease")
    for _ in range(4):
        await asyncio.sleep(40)
        if by == "status":
            beat(inside)
        else:
            renewed = {"renewTime": f"{rfc3339(wall())[:-1]}.000000Z"}
            inside.change("Lease", "n1", {"spec": renewed}, "kube-node-lease")
        assert ready(inside) == "True"
    await asyncio.sleep(51)
    assert ready(inside) == "Unknown"


async def test_a_node_that_comes_back_loses_these_taints_and_no_others(inside: Inside) -> None:
    make_node(inside)
    taint(inside, "team")
    await asyncio.sleep(51)
    assert len(taints(inside)) == 3
    beat(inside)
    await asyncio.sleep(0)
    assert taints(inside) == ["team:NoExecute"]
    await asyncio.sleep(51)
    assert len(taints(inside)) == 3


async def test_a_node_that_never_reports(inside: Inside) -> None:
    inside.create("Node", "n1", "")
    await asyncio.sleep(51)
    found = condition(inside.get("Node", "n1", ""), "Ready")
    assert (found["status"], found["reason"]) == ("Unknown", "NodeStatusNeverUpdated")


async def test_taints_follow_condition_and_cordon(inside: Inside) -> None:
    make_node(inside, ready="False")
    await asyncio.sleep(0)
    assert taints(inside) == [f"{NOT_READY}:NoExecute", f"{NOT_READY}:NoSchedule"]
    beat(inside)
    inside.change("Node", "n1", {"spec": {"unschedulable": True}}, "")
    await asyncio.sleep(0)
    assert taints(inside) == ["node.kubernetes.io/unschedulable:NoSchedule"]
    inside.change("Node", "n1", {"spec": {"unschedulable": False}}, "")
    await asyncio.sleep(0)
    assert taints(inside) == []


# --- taints ---


async def test_a_taint_evicts_the_pods_that_do_not_tolerate_it(inside: Inside) -> None:
    make_node(inside)
    make_pod(inside)
    make_pod(inside, "stays", **tolerating("team"))
    taint(inside, "team")
    await asyncio.sleep(0)
    pod = inside.get("Pod", "p")
    found = condition(pod, "DisruptionTarget")
    assert (found["status"], found["reason"]) == ("True", "DeletionByTaintManager")
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 30
    assert not is_deleted(inside, "stays")
    make_pod(inside, "late")
    await asyncio.sleep(0)
    assert is_deleted(inside, "late")


async def test_the_condition_is_stored_before_the_deletion(inside: Inside) -> None:
    make_node(inside)
    make_pod(inside)
    changes = inside.changes()
    taint(inside, "team")
    await asyncio.sleep(100)
    pods = [change.record.document() for change in changes if change.record.resource == "pods"]
    assert [
        (condition(pod, "DisruptionTarget").get("status"), "deletionTimestamp" in pod["metadata"]) for pod in pods[:2]
    ] == [("True", False), ("True", True)]
    assert len(pods) == 2 + 1  # and the node, which is silent here, is no longer ready


async def test_a_pod_stays_as_long_as_it_tolerates(inside: Inside) -> None:
    make_node(inside)
    make_pod(inside)
    make_pod(inside, "short", **tolerating(LOST, 5))
    await asyncio.sleep(50 + 4)
    assert not is_deleted(inside, "short")
    await asyncio.sleep(2)
    assert is_deleted(inside, "short")
    await asyncio.sleep(292)
    assert not is_deleted(inside)  # the 300 s of every Pod
    await asyncio.sleep(3)
    assert is_deleted(inside)


async def test_a_taint_that_goes_in_time(inside: Inside) -> None:
    make_node(inside)
    make_pod(inside, **tolerating("team", 20))
    for _ in range(3):
        taint(inside, "team")
        await asyncio.sleep(15)
        taint(inside)
        await asyncio.sleep(1)
        beat(inside)
    await asyncio.sleep(100)
    assert not is_deleted(inside)


async def test_a_pod_of_the_same_name_has_its_own_time(inside: Inside) -> None:
    make_node(inside)
    make_pod(inside, **tolerating("team", 20))
    taint(inside, "team")
    await asyncio.sleep(15)
    inside.delete("Pod", "p", grace=0)
    make_pod(inside, **tolerating("team", 20))
    await asyncio.sleep(15)
    assert not is_deleted(inside)
    await asyncio.sleep(6)
    assert is_deleted(inside)


# --- Nodes that are gone ---


async def test_the_pods_of_a_removed_node_are_deleted_by_force(inside: Inside) -> None:
    make_node(inside)
    make_pod(inside)
    changes = inside.changes()
    inside.delete("Node", "n1", namespace="")
    await asyncio.sleep(39)
    assert not is_deleted(inside)
    await asyncio.sleep(2)
    assert inside.find("Pod", "p") is None
    marked = next(change.record.document() for change in changes if change.record.name == "p")
    assert marked["status"]["phase"] == "Failed"
    assert condition(marked, "DisruptionTarget")["reason"] == "DeletionByPodGC"


async def test_a_node_that_is_created_again_keeps_its_pods(inside: Inside) -> None:
    make_node(inside)
    make_pod(inside)
    inside.delete("Node", "n1", namespace="")
    await asyncio.sleep(30)
    make_node(inside)
    await asyncio.sleep(30)
    inside.delete("Node", "n1", namespace="")
    await asyncio.sleep(30)
    assert not is_deleted(inside)


async def test_terminating_pods_of_a_node_out_of_service_are_removed(inside: Inside) -> None:
    make_node(inside)
    make_pod(inside)
    make_pod(inside, "stays", **tolerating(OUT_OF_SERVICE))
    taint(inside, OUT_OF_SERVICE)
    await asyncio.sleep(40)
    assert is_deleted(inside)  # but not by force: the node is healthy
    await asyncio.sleep(11)
    assert ready(inside) == "Unknown"
    assert inside.find("Pod", "p") is None
    assert not is_deleted(inside, "stays")
