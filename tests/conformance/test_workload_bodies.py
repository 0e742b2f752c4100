"""Kueue's own schema, with its rules where the API server knows them, judges each Workload that the controller writes.

tests/support/othercontrollers.py names the places of the schemas. The changes of Kueue's webhooks are in
tests/support/kueue.py.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

import orjson
import pytest
from hypothesis import strategies as st

from frameworkcontroller.api.objects import Framework, QueueLabels
from frameworkcontroller.api.spec import parse_spec
from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.api.workloads import IN_USE_FINALIZER, workload_name
from frameworkcontroller.controller.requestsender import send
from frameworkcontroller.kube.client import MERGE_PATCH, KubeClient
from frameworkcontroller.kube.errors import NotFound
from frameworkcontroller.kube.resources import PODS, WORKLOADS
from frameworkcontroller.machine.kernel.actions import PartAction, carry_out
from frameworkcontroller.machine.kernel.exchanges import Created, Patched, Result
from frameworkcontroller.machine.kernel.requests import Answered, Get, Kind, MergePatch, Post, Request, Target
from frameworkcontroller.machine.parts.kueue.workloadactions import (
    CreateWorkload,
    Finish,
    ReadAdmission,
    Reclaim,
    ReleaseQuota,
    RemoveFinalizer,
    SetCondition,
    UpdateWorkload,
    WasAdmitted,
)
from frameworkcontroller.machine.parts.kueue.workloadbodies import ConditionChange
from frameworkcontroller.machine.parts.kueue.workloadspec import MAX_POD_SETS, WorkloadSpec, workload_spec
from tests.support.clusters import Cluster
from tests.support.drawnframeworks import drawn, specs, templates
from tests.support.dryrun import dry_run
from tests.support.eventually import eventually
from tests.support.frameworks import Frameworks
from tests.support.objects import items, read
from tests.support.othercontrollers import crd_of, served

pytestmark = pytest.mark.newest
"""The schemas need later versions than the older control planes."""

Json = dict[str, Any]

_DRAWN: Final = 20

LABELS: Final = st.builds(
    QueueLabels,
    st.sampled_from(["team-a", "a", "a.b-1", "q" * 63]),
    st.sampled_from(["", "high", "low"]),
    st.sampled_from(["", "1", "86400", "999999999"]),
)


@dataclass
class Kueue:
    """Workloads on a cluster that has nothing else of Kueue."""

    cluster: Cluster
    client: KubeClient
    uid: str
    """Of Framework ``f``, which owns the Workloads: a garbage collector deletes those without an owner."""
    sent: list[Request] = field(default_factory=list)
    """Writes of the last action."""
    classes: Mapping[str, int] = field(default_factory=lambda: {"high": 1000, "low": -1000, "batch": 0})
    flavors: Mapping[str, Json] = field(default_factory=lambda: {"gold": {"nodeLabels": {"flavor": "gold"}}})

    async def run(self, action: PartAction, *, is_dry: bool = False) -> Result:
        """Carry the action out. Classes and flavors are read from here; the first write of a dry one ends it."""
        self.sent = []
        exchange = carry_out(action)
        request = next(exchange)
        while True:
            if isinstance(request, Get) and request.kind is not Kind.WORKLOAD:
                found = self.flavors if request.kind is Kind.RESOURCE_FLAVOR else self.classes
                value = found[request.name]
                body = {"spec": value} if request.kind is Kind.RESOURCE_FLAVOR else {"value": value}
                answer: Any = Answered(orjson.dumps(body))
            else:
                if isinstance(request, Post | MergePatch):
                    self.sent.append(request)
                    if is_dry:
                        exchange.close()
                        return Created("")
                answer = await send(self.client, request, self.cluster.namespace, "ns/f")
            try:
                request = exchange.send(answer)
            except StopIteration as ended:
                result: Result = ended.value
                return result

    def entry(self, spec: Json, labels: QueueLabels) -> CreateWorkload:
        """The action by which Framework ``f`` with this spec enters its queue."""
        parsed = parse_spec(spec, framework="f")
        framework = Framework(self.cluster.namespace, "f", self.uid, 1, deleting=False, spec=parsed)
        target = Target(Kind.WORKLOAD, workload_name("f", self.uid))
        return CreateWorkload(target, framework, workload_spec(framework, labels))

    async def get(self, name: str) -> Json:
        return await read(self.client, WORKLOADS, name, self.cluster.namespace)

    async def write_status(self, name: str, status: Json, *conditions: tuple[str, str, str]) -> None:
        """Write the status as Kueue does: each condition replaces the one of its type."""
        time_now = format_time(int(time.time()))
        old = {one["type"]: one for one in ((await self.get(name)).get("status") or {}).get("conditions") or ()}
        for kind, value, reason in conditions:
            old[kind] = {
                "type": kind,
                "status": value,
                "reason": reason,
                "message": f"of {kind}",
                "lastTransitionTime": time_now,
            }
        body = orjson.dumps({"status": {**status, "conditions": [*old.values()]}})
        await self.client.patch(
            WORKLOADS, name, body, self.cluster.namespace, content_type=MERGE_PATCH, subresource="status"
        )

    async def remove(self, name: str) -> None:
        with suppress(NotFound):
            await self.client.delete(WORKLOADS, name, self.cluster.namespace)
            await self.client.patch(
                WORKLOADS, name, b'{"metadata":{"finalizers":null}}', self.cluster.namespace, content_type=MERGE_PATCH
            )


@pytest.fixture
async def kueue(cluster: Cluster) -> AsyncIterator[Kueue]:
    if cluster.embedded:
        pytest.skip("it has a schema of its own, and no rules")
    crd = crd_of({"apiVersion": WORKLOADS.api_version, "kind": WORKLOADS.kind})
    if crd is None:
        pytest.skip("no CustomResourceDefinition of Workloads in ../shared/crds or OTHER_CRDS")
    client = await cluster.client()
    async with served(client, crd):
        frameworks = Frameworks(client, cluster.namespace)
        await frameworks.create("f")
        kueue = Kueue(cluster, client, (await frameworks.get("f"))["metadata"]["uid"])
        yield kueue
        for body in await items(client, WORKLOADS, cluster.namespace) or ():
            await kueue.remove(body["metadata"]["name"])


async def test_each_workload_is_accepted_whole(cluster: Cluster, kueue: Kueue) -> None:
    """No field is refused or dropped. Where Pods are validated, the templates make valid Pods."""
    wrong = []
    for spec, labels in drawn(st.tuples(specs(), LABELS), _DRAWN):
        await kueue.run(kueue.entry(spec, labels), is_dry=True)
        (post,) = kueue.sent
        assert isinstance(post, Post)
        body = orjson.loads(post.body)
        wrong += [(line, body) for line in await dry_run(kueue.client, cluster.namespace, WORKLOADS, body)]
        if cluster.name == "1.20":
            for pod_set in body["spec"]["podSets"]:
                wrong += [(line, pod_set) for line in await _pod_problems(kueue, pod_set["template"])]
    assert wrong == []


async def _pod_problems(kueue: Kueue, template: Json) -> list[str]:
    pod = {"apiVersion": "v1", "kind": "Pod", **template}
    pod["metadata"] = {**template.get("metadata", {}), "name": "probe"}
    # This cluster has none of these classes, and no service accounts.
    pod["spec"] = {key: value for key, value in template["spec"].items() if key != "priorityClassName"}
    problems = await dry_run(kueue.client, kueue.cluster.namespace, PODS, pod)
    # The API server drops empty fields.
    return [line for line in problems if not line.endswith(" was dropped")]


async def test_as_many_roles_as_a_workload_may_have(cluster: Cluster, kueue: Kueue) -> None:
    (pod,) = drawn(templates(), 1)
    for number in (MAX_POD_SETS, MAX_POD_SETS + 1):
        roles = [{"name": f"r{index}", "task": {"pod": pod}} for index in range(number)]
        await kueue.run(kueue.entry({"taskRoles": roles}, QueueLabels("team-a")), is_dry=True)
        (post,) = kueue.sent
        assert isinstance(post, Post)
        found = await dry_run(kueue.client, cluster.namespace, WORKLOADS, orjson.loads(post.body))
        assert bool(found) is (number > MAX_POD_SETS), found


async def test_a_changed_request_leaves_nothing_of_the_old_one(kueue: Kueue) -> None:
    """A merge patch keeps unnamed fields: roles, a priority, a time."""
    pairs = drawn(st.tuples(specs(most=3), LABELS, specs(most=3), LABELS), 10)
    for before, old_labels, after, new_labels in pairs:
        enter = kueue.entry(before, old_labels)
        name = enter.target.name
        assert isinstance(await kueue.run(enter), Created)
        stored = await kueue.get(name)
        wanted = kueue.entry(after, new_labels)
        changed = UpdateWorkload(
            wanted.target, wanted.spec, stored["metadata"]["uid"], stored["metadata"]["resourceVersion"]
        )
        assert isinstance(await kueue.run(changed), Patched)
        now = await kueue.get(name)
        await kueue.remove(name)
        assert isinstance(await kueue.run(wanted), Created)
        fresh = await kueue.get(name)
        await kueue.remove(name)
        assert now["spec"] == fresh["spec"]
        for key in ("annotations", "labels", "finalizers", "ownerReferences"):
            assert now["metadata"][key] == fresh["metadata"][key]


async def test_the_life_of_a_workload(kueue: Kueue) -> None:
    """Each write of the protocol is accepted at its time, and has its effect."""
    for spec, labels in drawn(st.tuples(specs(most=3), LABELS), 4):
        await _live(kueue, kueue.entry(spec, labels))


async def _live(kueue: Kueue, enter: CreateWorkload) -> None:
    target, wanted, name = enter.target, enter.spec, enter.target.name
    assert isinstance(await kueue.run(enter), Created)
    uid = (await kueue.get(name))["metadata"]["uid"]
    now = int(time.time())

    await _admit(kueue, name, wanted)
    admitted = await kueue.run(ReadAdmission(target, uid, wanted.queue_name, wanted))
    assert isinstance(admitted, WasAdmitted)
    assert [(one.name, one.count) for one in admitted.admission.pod_sets] == [
        (role.name, role.task_number) for role in enter.framework.spec.task_roles
    ]
    for change in (
        ConditionChange("PodsReady", False, "WaitForStart", "FrameworkAttempt 0: some Tasks do not run"),
        ConditionChange("PodsReady", True, "Started", "FrameworkAttempt 0: all Tasks run"),
        ConditionChange("PodsReady", False, "WaitForRecovery", "m" * 40_000),
    ):
        assert isinstance(await kueue.run(SetCondition(target, uid, change, now)), Patched)
        assert _is_told(await kueue.get(name), change)
    if wanted.priority_class:
        version = (await kueue.get(name))["metadata"]["resourceVersion"]
        other = replace(wanted, priority_class="low", max_execution_seconds=None)
        assert isinstance(await kueue.run(UpdateWorkload(target, other, uid, version, priority_only=True)), Patched)
        stored = (await kueue.get(name))["spec"]
        assert (stored["priorityClassRef"]["name"], stored["priority"]) == ("low", -1000)
        assert stored.get("maximumExecutionTimeSeconds") == wanted.max_execution_seconds

    pod_sets = [replace(one, reclaimed=one.count) for one in admitted.admission.pod_sets]
    given_back = {one.name: one.count for one in pod_sets if one.count}
    if given_back:
        reclaim = Reclaim(target, uid, replace(admitted.admission, pod_sets=pod_sets))
        assert isinstance(await kueue.run(reclaim), Patched)
        found_pods = (await kueue.get(name))["status"]["reclaimablePods"]
        assert {one["name"]: one["count"] for one in found_pods} == given_back
        assert isinstance(await kueue.run(ReleaseQuota(target, uid, now + 100)), Patched)
        assert not {"admission", "reclaimablePods"} & (await kueue.get(name))["status"].keys()
        await _admit(kueue, name, wanted)

    await kueue.write_status(name, {}, ("Evicted", "True", "Preempted"), ("Preempted", "True", "InClusterQueue"))
    assert isinstance(await kueue.run(ReleaseQuota(target, uid, now + 100)), Patched)
    status = (await kueue.get(name))["status"]
    assert "admission" not in status
    assert status["accumulatedPastExecutionTimeSeconds"] >= 100
    found = {one["type"]: (one["status"], one["reason"]) for one in status["conditions"]}
    assert found["QuotaReserved"] == ("False", "Pending")
    assert found["Admitted"] == ("False", "NoReservation")
    assert found["Requeued"] == ("True", "Preempted")
    assert found["Evicted"] == ("True", "Preempted")

    await _admit(kueue, name, wanted)
    finished = ConditionChange("Finished", True, "Succeeded", "the Framework has succeeded")
    assert isinstance(await kueue.run(Finish(target, uid, finished, now)), Patched)
    stored = await kueue.get(name)
    assert _is_told(stored, finished)
    assert IN_USE_FINALIZER not in stored["metadata"].get("finalizers", [])
    await kueue.remove(name)

    assert isinstance(await kueue.run(enter), Created)
    uid = (await kueue.get(name))["metadata"]["uid"]
    await _admit(kueue, name, wanted)
    await kueue.client.delete(WORKLOADS, name, kueue.cluster.namespace)
    assert isinstance(await kueue.run(RemoveFinalizer(target, uid)), Patched)

    async def is_gone() -> None:
        with pytest.raises(NotFound):
            await kueue.get(name)

    await eventually(is_gone)


async def _admit(kueue: Kueue, name: str, wanted: WorkloadSpec) -> None:
    """Reserve quota and admit, as Kueue does."""
    assigned = [
        {
            "name": one["name"],
            "count": one["count"],
            "flavors": {"cpu": "gold"},
            "resourceUsage": {"cpu": "1500m"},
        }
        for one in wanted.pod_sets
    ]
    admission = {"clusterQueue": "cq", "podSetAssignments": assigned}
    reserved, admitted = ("QuotaReserved", "True", "QuotaReserved"), ("Admitted", "True", "Admitted")
    await kueue.write_status(name, {"admission": admission}, reserved, admitted, ("Evicted", "False", "QuotaReserved"))


def _is_told(workload: Json, change: ConditionChange) -> bool:
    found = {one["type"]: one for one in workload["status"]["conditions"]}[change.type]
    told = (found["status"], found["reason"], found["observedGeneration"])
    text = "True" if change.is_true else "False"
    assert change.message.startswith(found["message"])
    return told == (text, change.reason, workload["metadata"]["generation"])
