"""The stand-ins for Kueue and for gang schedulers, against owners written by hand: a careful one, and sinners."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.machine.kernel.requests import Kind
from tests.support.gangscheduler import Backend, GangScheduler
from tests.support.kueue import (
    DEACTIVATIONS,
    EVICTIONS,
    FINALIZER,
    FLAVOR_LABEL,
    PODSET,
    WORKLOAD,
    Kueue,
    condition,
    has_quota,
    is_active,
    is_true,
)
from tests.support.world import ApiRefusal, Body, Violation, World, name_of, uid_of

NAME: Final = "w"
QUOTA: Final = 4


class Owner:
    """An owner of a Workload with two Pods, written by hand; a careful one, as it stands."""

    def __init__(self, queue: str = "team-a", seconds: int | None = None, **options: Any) -> None:
        self.world = World()
        self.kueue = Kueue(self.world, {"a100": QUOTA}, **options)
        podset = {"name": "worker", "count": 2, "template": {"spec": {}}}
        owner = {"kind": "Framework", "uid": "framework-1", "controller": True}
        metadata = {"name": NAME, "ownerReferences": [owner], "finalizers": [FINALIZER]}
        spec = {"queueName": queue, "podSets": [podset], "maximumExecutionTimeSeconds": seconds}
        self.world.create(Kind.WORKLOAD, {"metadata": metadata, "spec": spec})

    @property
    def workload(self) -> Body:
        """The Workload."""
        return self.world.objects[Kind.WORKLOAD][NAME]

    def start(self, count: int = 2, flavor: str = "a100", podset: str = "worker") -> None:
        """Create the Pods."""
        for number in range(count):
            metadata = {"name": f"p-{number}", "annotations": {WORKLOAD: NAME}, "labels": {PODSET: podset}}
            self.world.create(Kind.POD, {"metadata": metadata, "spec": {"nodeSelector": {FLAVOR_LABEL: flavor}}})
            self.world.pod(f"p-{number}", node="node-1", phase="Running")

    def stop(self) -> None:
        """Ask the Pods to end: they exist until their containers have."""
        for name in list(self.world.objects[Kind.POD]):
            self.world.delete(Kind.POD, name)

    def end(self) -> None:
        """The containers of the Pods have ended."""
        for name in list(self.world.objects[Kind.POD]):
            self.world.remove(Kind.POD, name)

    def give_back(self, *, reserved: str = "False", requeued: str = "") -> None:
        """Give the quota back. ``requeued``: why Kueue is to queue it again, "" if it is queued."""
        conditions = [one for one in self.workload["status"]["conditions"] if one["type"] == "Evicted"]
        conditions += [
            {"type": kind, "status": reserved, "reason": "Pending"} for kind in ("QuotaReserved", "Admitted")
        ]
        if requeued:
            conditions.append({"type": "Requeued", "status": "False", "reason": requeued})
        change = {"status": {"admission": None, "conditions": conditions}}
        self.world.merge(Kind.WORKLOAD, NAME, change, "status")

    def say_ready(self, status: str, reason: str) -> None:
        """Set the condition PodsReady."""
        others = [one for one in self.workload["status"]["conditions"] if one["type"] != "PodsReady"]
        ready = {"type": "PodsReady", "status": status, "reason": reason}
        ready["lastTransitionTime"] = format_time(int(self.world.now))
        self.world.merge(Kind.WORKLOAD, NAME, {"status": {"conditions": [*others, ready]}}, "status")

    def let_go(self) -> None:
        """Take the finalizer off."""
        self.world.merge(Kind.WORKLOAD, NAME, {"metadata": {"finalizers": []}})


def admitted(**options: Any) -> Owner:
    """One whose Workload is admitted, with its Pods."""
    owner = Owner(**options)
    assert owner.kueue.settle()
    owner.start()
    return owner


def evicted() -> Owner:
    """Likewise, and it is evicted while another Workload waits for quota."""
    owner = admitted()
    owner.kueue.rival(QUOTA)
    owner.kueue.play("Preempted", 0)
    owner.kueue.settle()
    assert not has_quota(owner.world.objects[Kind.WORKLOAD]["rival-1"])
    return owner


def test_an_evicted_workload_waits_for_its_owner_and_only_then_another_is_admitted() -> None:
    owner = evicted()
    owner.stop()
    assert not owner.kueue.settle()
    owner.end()
    owner.give_back()
    owner.kueue.settle()
    rival = owner.world.objects[Kind.WORKLOAD]["rival-1"]
    assert is_true(rival, "Admitted")
    assert not is_true(owner.workload, "Admitted")
    assert is_true(owner.workload, "Evicted"), "until it has quota anew"
    owner.kueue.end_rivals()
    owner.kueue.settle()
    assert is_true(owner.workload, "Admitted")
    assert not is_true(owner.workload, "Evicted")
    owner.start()


@pytest.mark.parametrize("stops", [False, True])
@pytest.mark.parametrize("give_back", [Owner.give_back, Owner.let_go])
def test_quota_that_is_released_while_pods_exist_is_caught(stops: bool, give_back: Callable[[Owner], None]) -> None:
    owner = evicted()
    if stops:
        owner.stop()
    owner.world.delete(Kind.WORKLOAD, NAME)
    with pytest.raises(Violation, match="its Workload has no quota"):
        give_back(owner)


def test_pods_before_quota_are_caught() -> None:
    owner = Owner()
    with pytest.raises(Violation, match="its Workload has no quota"):
        owner.start()


def test_more_pods_than_admitted_are_caught() -> None:
    owner = Owner()
    owner.kueue.settle()
    with pytest.raises(Violation, match="3 Pods of podset worker exist, there is quota for 2"):
        owner.start(3)


@pytest.mark.parametrize(("flavor", "podset"), [("", "worker"), ("spot", "worker"), ("a100", "other")])
def test_pods_of_another_flavor_or_podset_are_caught(flavor: str, podset: str) -> None:
    owner = Owner()
    owner.kueue.settle()
    with pytest.raises(Violation, match="quota: "):
        owner.start(flavor=flavor, podset=podset)


def test_pods_next_to_rivals_on_their_quota_are_caught() -> None:
    """Pods and rivals exceed the quota in sum."""
    owner = evicted()
    owner.kueue.play("steal", 0)
    with pytest.raises(Violation, match="Pods and rivals use"):
        owner.world.edit(Kind.WORKLOAD, "rival-1", _admit_by_force)


_ADMITTED: Final[Body] = {
    "admission": {"podSetAssignments": [{"name": "worker", "count": 2, "flavors": {"pods": "a100"}}]},
    "conditions": [
        {"type": kind, "status": "True", "reason": kind, "lastTransitionTime": format_time(0)}
        for kind in ("QuotaReserved", "Admitted")
    ],
}


def _admit_by_force(body: Body) -> None:
    assigned = [{"name": "main", "count": QUOTA, "flavors": {"pods": "a100"}}]
    body["status"] = {"admission": {"podSetAssignments": assigned}, "conditions": []}


def test_half_of_a_reservation_is_caught() -> None:
    owner = evicted()
    owner.end()
    owner.give_back(reserved="True")
    with pytest.raises(Violation, match="has no admission, and its conditions say that it has"):
        owner.kueue.settle()


def test_rivals_wait_for_the_pods_of_a_workload_that_others_have_finished() -> None:
    owner = admitted()
    owner.kueue.rival(QUOTA)
    owner.kueue.play("finish", 0)
    owner.kueue.settle()
    rival = owner.world.objects[Kind.WORKLOAD]["rival-1"]
    assert not is_true(rival, "Admitted")
    owner.end()
    owner.kueue.settle()
    assert is_true(rival, "Admitted")


@pytest.mark.parametrize("reason", EVICTIONS)
def test_after_most_evictions_it_is_queued_again_by_its_owner_or_after_a_while(reason: str) -> None:
    owner = admitted()
    owner.kueue.play(reason, 0)
    owner.end()
    conditions = [{"type": kind, "status": "False", "reason": "x"} for kind in ("QuotaReserved", "Admitted")]
    now = owner.workload["metadata"]["creationTimestamp"]
    conditions.append({"type": "Requeued", "status": "False", "reason": reason, "lastTransitionTime": now})
    owner.world.merge(Kind.WORKLOAD, NAME, {"status": {"admission": None, "conditions": conditions}}, "status")
    assert not owner.kueue.settle()
    assert owner.kueue.due_at is not None
    owner.world.go_by(owner.kueue.due_at - owner.world.now)
    assert owner.kueue.settle()
    assert is_true(owner.workload, "Admitted")


@pytest.mark.parametrize("reason", ["Deactivated", *DEACTIVATIONS])
def test_a_deactivated_workload_is_evicted_with_the_cause_and_queued_again_by_the_reason_alone(reason: str) -> None:
    owner = admitted()
    owner.kueue.play(reason if reason in DEACTIVATIONS else "deactivate", 0)
    owner.kueue.settle()
    assert (is_active(owner.workload), is_true(owner.workload, "DeactivationTarget")) == (False, False)
    evicted = condition(owner.workload, "Evicted")
    assert evicted is not None
    assert evicted["reason"] == reason
    owner.end()
    owner.give_back(requeued=reason)
    owner.kueue.play("activate", 0)
    owner.kueue.settle()
    assert is_true(owner.workload, "Admitted") == (reason == "Deactivated")
    assert owner.kueue.due_at is None
    if reason != "Deactivated":
        owner.give_back(requeued="Deactivated")
        owner.kueue.settle()
        assert is_true(owner.workload, "Admitted")


def test_the_condition_that_outlives_the_longest_execution_time_deactivates_again() -> None:
    owner = Owner(seconds=60)
    owner.kueue.settle()
    owner.start()
    owner.world.go_by(60)
    owner.kueue.settle()
    assert is_true(owner.workload, "Evicted")
    assert is_true(owner.workload, "DeactivationTarget")
    owner.kueue.play("activate", 0)
    owner.kueue.settle()
    assert not is_active(owner.workload)
    owner.end()
    owner.give_back(requeued="Deactivated")
    owner.kueue.play("activate", 0)
    owner.kueue.settle()
    assert is_true(owner.workload, "Admitted")


def test_the_quota_of_a_deactivated_workload_is_free_while_its_pods_exist() -> None:
    owner = admitted()
    owner.kueue.rival(QUOTA)
    owner.kueue.settle()
    rival = owner.world.objects[Kind.WORKLOAD]["rival-1"]
    assert not has_quota(rival)
    owner.kueue.play("deactivate", 0)
    owner.kueue.settle()
    assert has_quota(rival)
    with pytest.raises(Violation, match="its Workload has no quota"):
        owner.give_back()


def test_only_pods_of_deactivated_workloads_do_not_count() -> None:
    owner = admitted()
    owner.kueue.rival(QUOTA)
    owner.kueue.play("deactivate", 0)
    owner.kueue.settle()
    owner.kueue.play("activate", 0)
    owner.end()
    owner.give_back()
    owner.world.edit(Kind.WORKLOAD, NAME, lambda body: body.update(status=_ADMITTED))
    with pytest.raises(Violation, match="Pods and rivals use 5"):
        owner.start()


def test_pods_that_are_not_ready_in_time_are_evicted_and_deactivated_the_second_time() -> None:
    owner = admitted(pods_ready_sec=100.0)
    owner.world.go_by(99)
    assert not owner.kueue.settle()
    owner.world.go_by(1)
    owner.kueue.settle()
    assert owner.kueue.evictions == {"PodsReadyTimeout": 1}
    owner.end()
    owner.give_back()
    owner.kueue.settle()
    owner.world.go_by(100)
    owner.kueue.settle()
    assert owner.kueue.evictions == {"PodsReadyTimeout": 1, "DeactivatedDueToRequeuingLimitExceeded": 1}


@pytest.mark.parametrize(("reason", "seconds"), [("WaitForStart", 0), ("WaitForRecovery", 100)])
def test_the_time_of_pods_that_were_ready_counts_from_their_loss(reason: str, seconds: int) -> None:
    owner = admitted(pods_ready_sec=100.0)
    owner.say_ready("True", "Started")
    owner.world.go_by(1000)
    owner.say_ready("False", reason)
    owner.kueue.settle()
    assert owner.kueue.evictions == ({} if seconds else {"PodsReadyTimeout": 1})
    owner.world.go_by(100)
    owner.kueue.settle()
    assert owner.kueue.evictions == {"PodsReadyTimeout": 1}


REFUSED: Final[list[tuple[str, Body]]] = [
    ("", {"spec": {"podSets": [{"name": "worker", "count": 3, "template": {"spec": {}}}]}}),
    ("", {"spec": {"podSets": [{"name": "worker", "count": 2, "template": {"spec": {"x": 1}}}]}}),
    ("", {"spec": {"podSets": []}}),
    ("", {"spec": {"queueName": "team-b"}}),
    ("", {"spec": {"priorityClassRef": {"name": "high"}}}),
    ("status", {"status": {"admission": {"clusterQueue": "other"}}}),
]


@pytest.mark.parametrize(("subresource", "change"), REFUSED)
def test_changes_of_fixed_fields_are_refused_until_quota_is_released(subresource: str, change: Body) -> None:
    owner = admitted()
    with pytest.raises(ApiRefusal, match="immutable"):
        owner.world.merge(Kind.WORKLOAD, NAME, change, subresource)
    owner.end()
    if not subresource:
        owner.give_back()
        owner.world.merge(Kind.WORKLOAD, NAME, change)


def test_a_count_may_fall_while_quota_is_reserved() -> None:
    owner = admitted()
    owner.end()
    podset = {"name": "worker", "count": 1, "template": {"spec": {}}}
    owner.world.merge(Kind.WORKLOAD, NAME, {"spec": {"podSets": [podset]}})
    assert owner.workload["metadata"]["generation"] == 2


def reclaim(owner: Owner, *counts: int, podset: str = "worker") -> None:
    """The owner no longer needs this number of Pods."""
    reclaimable = [{"name": podset, "count": count} for count in counts]
    owner.world.merge(Kind.WORKLOAD, NAME, {"status": {"reclaimablePods": reclaimable}}, "status")


def test_quota_that_is_reclaimed_goes_to_others_and_not_back() -> None:
    owner = Owner()
    owner.kueue.quota = {"a100": 2}
    owner.kueue.settle()
    owner.kueue.rival(1)
    owner.kueue.settle()
    assert [has_quota(one) for one in owner.kueue.workloads()] == [False, True]
    for name, count in (("worker", 3), ("other", 1)):
        with pytest.raises(ApiRefusal, match="should be less or equal"):
            reclaim(owner, count, podset=name)
    reclaim(owner, 1)
    for counts in ((), (0,)):
        with pytest.raises(ApiRefusal, match="cannot be less than 1"):
            reclaim(owner, *counts)
    owner.kueue.settle()
    assert [has_quota(one) for one in owner.kueue.workloads()] == [True, True]
    with pytest.raises(Violation, match="2 Pods of podset worker exist, there is quota for 1"):
        owner.start(2)


def test_a_patch_has_preconditions_and_keeps_to_its_subresource() -> None:
    owner = admitted()
    version = owner.workload["metadata"]["resourceVersion"]
    for metadata in ({"uid": "other"}, {"resourceVersion": "0"}):
        with pytest.raises(ApiRefusal, match="precondition"):
            owner.world.merge(Kind.WORKLOAD, NAME, {"metadata": metadata, "spec": {"active": False}})
    owner.world.merge(Kind.WORKLOAD, NAME, {"status": {"admission": None}})
    owner.world.merge(Kind.WORKLOAD, NAME, {"spec": {"active": False}, "metadata": {"labels": {"x": "y"}}}, "status")
    assert owner.workload["metadata"]["resourceVersion"] == version
    assert has_quota(owner.workload)


# --- gangs ---------------------------------------------------------------------------------------------------------


class Gang:
    """An owner of a group of Pods that deletes those that have ended, and replaces those that have failed."""

    def __init__(self, backend: Backend, size: int = 4, minimum: int = 4, capacity: int = 100) -> None:
        self.backend = backend
        self.world = World()
        self.scheduler = GangScheduler(self.world, backend, capacity)
        spec: Body = {"schedulingPolicy": {"gang": {"minCount": minimum}}} if backend.is_native else {}
        spec |= {} if backend.is_native else {"minMember": minimum}
        self.world.create(backend.kind, {"metadata": {"name": "g"}, "spec": spec})
        for number in range(size):
            self.create(number)

    @property
    def bound(self) -> list[str]:
        """Names of the Pods that have a Node."""
        return [name_of(pod) for pod in self.world.objects[Kind.POD].values() if pod["spec"].get("nodeName")]

    def create(self, number: int, *, single: bool = False) -> None:
        """Create a Pod of the group, or of none."""
        spec, labels, annotations = {}, {}, {}
        if self.backend.is_native and not single:
            spec = {"schedulingGroup": {"podGroupName": "g"}}
        elif self.backend is Backend.VOLCANO:
            annotations = {"scheduling.k8s.io/group-name": "g"}
        elif self.backend is Backend.COSCHEDULING:
            labels = {"scheduling.x-k8s.io/pod-group": "g"}
        metadata = {"name": f"p-{number}", "labels": labels, "annotations": annotations}
        self.world.create(Kind.POD, {"metadata": metadata, "spec": spec})

    def lower(self, minimum: int) -> None:
        """Lower the minimum of the group."""
        native = {"spec": {"schedulingPolicy": {"gang": {"minCount": minimum}}}}
        self.world.merge(self.backend.kind, "g", native if self.backend.is_native else {"spec": {"minMember": minimum}})

    def settle(self) -> None:
        """Let the scheduler come to rest."""
        while self.scheduler.step():
            pass


BACKENDS: Final = list(Backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_gang_is_bound_all_at_once_or_not_at_all(backend: Backend) -> None:
    gang = Gang(backend, capacity=3)
    gang.settle()
    assert gang.bound == []
    gang.scheduler.capacity["node-1"] = 4
    gang.settle()
    assert len(gang.bound) == 4


@pytest.mark.parametrize("backend", BACKENDS)
def test_pods_wait_for_the_others_and_for_their_group(backend: Backend) -> None:
    gang = Gang(backend, size=3)
    gang.settle()
    assert gang.bound == []
    gang.create(3)
    gang.world.objects[backend.kind].clear()
    gang.settle()
    assert gang.bound == []


def lose_one_and_replace_another(gang: Gang) -> None:
    """A Task succeeds and one fails: the Pods of both are deleted, and one comes again."""
    gang.settle()
    for name in ("p-0", "p-1"):
        gang.world.remove(Kind.POD, name)
    gang.create(1)
    gang.settle()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_fixed_minimum_deadlocks_a_retry(backend: Backend) -> None:
    gang = Gang(backend)
    lose_one_and_replace_another(gang)
    assert gang.scheduler.stuck() == ["p-1"]


@pytest.mark.parametrize("backend", [one for one in BACKENDS if one is not Backend.NATIVE_1_36])
def test_a_minimum_that_follows_the_tasks_does_not(backend: Backend) -> None:
    gang = Gang(backend)
    lose_one_and_replace_another(gang)
    gang.lower(3)
    gang.settle()
    assert gang.scheduler.stuck() == []
    assert "p-1" in gang.bound


def test_1_36_refuses_another_minimum_and_binds_single_pods() -> None:
    gang = Gang(Backend.NATIVE_1_36)
    lose_one_and_replace_another(gang)
    with pytest.raises(ApiRefusal, match="immutable"):
        gang.lower(3)
    gang.world.remove(Kind.POD, "p-1")
    gang.create(1, single=True)
    gang.settle()
    assert gang.scheduler.stuck() == []


@pytest.mark.parametrize("backend", [Backend.NATIVE_1_36, Backend.NATIVE_1_37])
def test_that_a_group_was_scheduled_is_never_taken_back(backend: Backend) -> None:
    gang = Gang(backend)
    lose_one_and_replace_another(gang)
    (found,) = gang.world.objects[backend.kind]["g"]["status"]["conditions"]
    assert found["status"] == "True"


def test_volcano_counts_succeeded_pods() -> None:
    gang = Gang(Backend.VOLCANO)
    gang.settle()
    gang.world.pod("p-0", phase="Succeeded")
    gang.world.remove(Kind.POD, "p-1")
    gang.create(1)
    gang.settle()
    assert gang.scheduler.stuck() == []


def test_a_native_group_stays_while_pods_refer_to_it_and_its_controller_works() -> None:
    gang = Gang(Backend.NATIVE_1_37, size=1)
    gang.world.delete(Kind.PODGROUP, "g")
    assert not gang.world.collect()
    gang.world.remove(Kind.POD, "p-0")
    gang.world.protects_groups = False
    assert not gang.world.collect()
    gang.world.protects_groups = True
    assert gang.world.collect()
    assert not gang.world.objects[Kind.PODGROUP]


@pytest.mark.parametrize("blocks", [False, True])
def test_a_group_holds_the_configmap_of_its_attempt_only_if_it_says_so(blocks: bool) -> None:
    world = World()
    owner = world.create(Kind.CONFIGMAP, {"metadata": {"name": "c", "finalizers": ["foregroundDeletion"]}})
    reference = {"kind": "ConfigMap", "uid": uid_of(owner), "controller": True, "blockOwnerDeletion": blocks}
    world.create(Kind.PODGROUP, {"metadata": {"name": "g", "ownerReferences": [reference]}})
    world.protects_groups = False
    world.delete(Kind.CONFIGMAP, "c", foreground=True)
    while world.collect():
        pass
    assert bool(world.objects[Kind.CONFIGMAP]) == blocks
    assert world.objects[Kind.PODGROUP], "nobody lets it go"
