"""The guarantees of queues (K1 to K3) and gangs (G1, G2), checked as by ``tests.support.guarantees``.

K1: no attempt of a queued Framework starts, and no Pod of it is created, without a persisted ``status.admission``.
K2: quota and Workload are released only while no Pod of the Framework exists, and once the status shows that.
The quota of completed Tasks without a retry is released while others run, once the status shows that.
K3: the Pods of a role are never more than were admitted, less the Tasks whose quota was released.
G1: a Pod that names a group is created after it. G2: at rest, the minimum of a group is not more than can still be
placed. G3 (everything is scheduled some time) is checked by the fair end of a history.

Sources: docs/guarantees.md and ../shared/spec/next/queues-and-gangs.md, and not the code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.workloads import JOB_UID
from frameworkcontroller.machine.kernel.requests import Kind
from tests.support.gangscheduler import minimum_of
from tests.support.kueue import FINALIZER, PODSET, WORKLOAD, admission_of, condition, is_true, reclaimed_of
from tests.support.world import (
    PODGROUPS,
    Body,
    World,
    controller_of,
    group_of,
    is_deleting,
    mark_of,
    name_of,
    uid_of,
)

QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
_QUEUED_AGAIN: Final = ("Preempted", "NodeFailures")
"""Reasons of evictions after which the owner has the Workload queued again."""


def owner_of(workload: Body) -> str | None:
    """The UID of the Framework of a Workload. One that ends may have lost its owner: the Framework was orphaned."""
    job = (workload["metadata"].get("labels") or {}).get(JOB_UID) if is_deleting(workload) else None
    return controller_of(workload) or job


class QueueGuarantees:
    """Part of ``Guarantees``; the checks that rest on a status are left out while it is loose."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._labels: dict[str, set[str | None]] = {}
        """All names of queues, and None, that a Framework (by UID) has ever had as its label."""
        self._statuses: dict[str, Body] = {}
        self._started: dict[str, Body | None] = {}
        """The admission that was stored when a ConfigMap (by UID) was created."""

    def note(self, framework: Body) -> None:
        """The Framework, and the status that is stored."""
        label = (framework["metadata"].get("labels") or {}).get(QUEUE_LABEL)
        self._labels.setdefault(uid_of(framework), set()).add(label)
        if framework.get("status"):
            self._statuses[uid_of(framework)] = framework["status"]

    def admission(self, framework_uid: str) -> Body | None:
        """The stored ``status.admission``."""
        return self._statuses.get(framework_uid, {}).get("admission")

    def is_always_queued(self, framework_uid: str) -> bool:
        """Whether the Framework has always had the label of a queue."""
        return None not in self._labels.get(framework_uid, {None})

    def has_moved(self, framework_uid: str) -> bool:
        """Whether the label of the Framework was ever changed."""
        return len(self._labels.get(framework_uid, ())) > 1

    # --- K1 and K3 -------------------------------------------------------------------------------------------------

    def starting(self, framework_uid: str, spec: Body | None) -> None:
        """K1: the ConfigMap of an attempt is being created, by a status that observed this spec."""
        admission = self.admission(framework_uid)
        if not self.is_always_queued(framework_uid):
            return
        if admission is None:
            raise self.world.violation("K1: an attempt starts, and no admission is stored")
        events = [orjson.loads(event.raw) for event in self.world.events[Kind.WORKLOAD]]
        made = [body for body in events if uid_of(body) == admission["workloadUID"]]
        admitted = [body for body in made if is_true(body, "Admitted") and not is_true(body, "Evicted")]
        if not admitted:
            raise self.world.violation(f"K1: an attempt starts by {admission}, and Kueue has never admitted that")
        if spec is None:
            return
        roles = {role["name"]: role.get("taskNumber", 1) for role in spec["taskRoles"]}
        wanted = {name: count for name, count in roles.items() if count}
        found = {one["name"]: _available(one) for one in admission["podSets"]}
        if any(count > found.get(name, 0) for name, count in wanted.items()):
            raise self.world.violation(f"K1: an attempt of {wanted} Tasks starts, and {found} are admitted")

    def created(self, body: Body) -> None:
        """A ConfigMap was created by a controller."""
        self._started[uid_of(body)] = self.admission(controller_of(body) or "")

    def creating_pod(self, framework_uid: str, pod: Body) -> None:
        """K1: a Pod is about to be created. G1: its group exists."""
        name, owner = name_of(pod), controller_of(pod) or ""
        started = self._started.get(owner)
        if started is None and self.is_always_queued(framework_uid):
            raise self.world.violation(f"K1: {name} is created in an attempt that has no admission")
        if started is not None:
            stored = self.admission(framework_uid)
            if stored is None:
                raise self.world.violation(f"K1: {name} is created, and no admission is stored")
            if mark_of(pod, WORKLOAD) != stored["workloadName"]:
                raise self.world.violation(
                    f"K1: {name} is created for {mark_of(pod, WORKLOAD)!r}, admitted is {stored}"
                )
            role = mark_of(pod, names.TASKROLE_NAME)
            if (pod["metadata"].get("labels") or {}).get(PODSET) != role:
                raise self.world.violation(f"K1: {name} is created for another podset than {role}")
            counted = [
                _resources(one["template"]) for one in self._pod_sets(stored["workloadUID"]) if one["name"] == role
            ]
            if _resources(pod) not in counted:
                raise self.world.violation(f"K2: {name} asks for {_resources(pod)}, and Kueue counts {counted}")
        self._check_group_of(framework_uid, pod)

    def _pod_sets(self, workload_uid: str) -> Iterable[Body]:
        """All that a Workload has ever asked for."""
        events = (orjson.loads(event.raw) for event in self.world.events[Kind.WORKLOAD])
        return (one for body in events if uid_of(body) == workload_uid for one in body["spec"]["podSets"])

    def look_at_pods(self, pods: Iterable[Body]) -> None:
        """K3, of the Pods that a controller has created."""
        counts = Counter((mark_of(pod, names.FRAMEWORK_UID), mark_of(pod, names.TASKROLE_NAME)) for pod in pods)
        for (framework_uid, role), count in counts.items():
            admission = self.admission(framework_uid)
            if admission is not None:
                admitted = {one["name"]: _available(one) for one in admission["podSets"]}.get(role, 0)
                if count > admitted:
                    raise self.world.violation(f"K3: {count} Pods of {role} exist, admitted are {admitted}")

    # --- K2 --------------------------------------------------------------------------------------------------------

    def patching_workload(self, framework_uid: str, before: Body, after: Body, *, loose: bool) -> None:
        """K2: a controller's patch is about to change a Workload."""
        name, owner = name_of(before), owner_of(before)
        if owner != framework_uid:
            raise self.world.violation(f"change of {name}: it is controlled by {owner}, not by {framework_uid}")
        given_back = admission_of(before) is not None and admission_of(after) is None
        let_go = FINALIZER in _finalizers(before) and FINALIZER not in _finalizers(after)
        if admission_of(before) is None and admission_of(after) is not None:
            raise self.world.violation(f"change of {name}: the owner gives itself quota")
        if reclaimed_of(after) != reclaimed_of(before) and not given_back:
            self._reclaiming(framework_uid, after, loose=loose)
        if not (given_back or let_go):
            return
        what = f"K2: the {'quota' if given_back else 'finalizer'} of {name} is given back"
        stored = self.admission(framework_uid)
        known = framework_uid not in self.world.gone
        if known and stored is not None and stored["workloadUID"] == uid_of(before):
            finished = let_go and self._statuses[framework_uid]["state"] == "Completed"
            if not finished:
                raise self.world.violation(f"{what}, and the stored status still has its admission")
        left = [pod for pod in self.world.objects[Kind.POD].values() if mark_of(pod, names.FRAMEWORK_UID) == owner]
        if left and not loose:
            raise self.world.violation(f"{what}, and {name_of(left[0])} exists")
        if given_back and not is_true(after, "Finished"):
            self._check_conditions(what, before, after)

    def _reclaiming(self, framework_uid: str, after: Body, *, loose: bool) -> None:
        """K2: quota of Tasks is released while others run. The status shows both that and their final completion."""
        what = f"K2: quota of {name_of(after)} for {reclaimed_of(after)} Pods goes back"
        status: Any = self._statuses.get(framework_uid, {})
        admission = status.get("admission")
        if admission is None or admission["workloadUID"] != uid_of(after):
            raise self.world.violation(f"{what}, and no admission is stored")
        counts = {one["name"]: one["count"] for one in after["spec"]["podSets"]}
        roles = {one["name"]: one for one in status["attemptStatus"]["taskRoleStatuses"]}
        pods = Counter(
            mark_of(pod, names.TASKROLE_NAME)
            for pod in self.world.objects[Kind.POD].values()
            if mark_of(pod, names.FRAMEWORK_UID) == framework_uid
        )
        for one in admission["podSets"]:
            role, number = one["name"], reclaimed_of(after).get(one["name"], 0)
            if number > one.get("reclaimed", 0):
                raise self.world.violation(f"{what}, and the stored status has {one.get('reclaimed', 0)} of {role}")
            tasks = roles.get(role, {}).get("taskStatuses") or ()
            left = sum(task["state"] != "Completed" and not _never_ran(task) for task in tasks)
            if number and counts[role] - number < min(left, counts[role]):
                raise self.world.violation(f"{what}, and {left} Tasks of {role} are not completed")
            if number and counts[role] - number < pods[role] and not loose:
                raise self.world.violation(f"{what}, and {pods[role]} Pods of {role} exist")

    def _check_conditions(self, what: str, before: Body, after: Body) -> None:
        """Kueue reads from the conditions whether quota is reserved, and whether to queue the Workload again."""
        for kind in ("QuotaReserved", "Admitted"):
            found = condition(after, kind)
            if found is None or found["status"] != "False":
                raise self.world.violation(f"{what}, and its condition {kind} is {found}")
        evicted = condition(before, "Evicted")
        if evicted is not None and evicted["status"] == "True":
            wanted = str(evicted["reason"] in _QUEUED_AGAIN)
            found = condition(after, "Requeued")
            if found is None or found["status"] != wanted:
                raise self.world.violation(f"{what} after {evicted['reason']}, and its condition Requeued is {found}")
        kept = {one["type"] for one in before["status"]["conditions"]} - {
            one["type"] for one in after["status"]["conditions"]
        }
        # It would have Kueue deactivate the Workload again.
        kept.discard("DeactivationTarget")
        if kept:
            raise self.world.violation(f"{what}, and its conditions {sorted(kept)} are lost")

    def evicting(self, framework_uid: str, uid: str | None, why: str) -> None:
        """An attempt ends with -241: its admission is over, or its new Pods would differ from the admitted ones.

        ``uid``: of the Workload whose admission was stored.
        """
        if uid is None:
            raise self.world.violation("-241, and no admission is stored")
        if uid in self.world.gone:
            return
        if "WorkloadOutOfSync" in why:
            specs = [spec for (known, _), spec in self.world.specs.items() if known == framework_uid]
            selected = {
                orjson.dumps([[one["name"], one.get("taskNumber"), one["task"]["pod"]] for one in spec["taskRoles"]])
                for spec in specs
            }
            if len(selected) > 1:
                return
        events = (orjson.loads(event.raw) for event in self.world.events[Kind.WORKLOAD])
        for body in (body for body in events if uid_of(body) == uid):
            ended = any(is_true(body, kind) for kind in ("Evicted", "Finished")) or not is_true(body, "Admitted")
            if ended or is_deleting(body):
                return
        raise self.world.violation(f"-241 ({why}), and the Workload was always admitted")

    # --- gangs -----------------------------------------------------------------------------------------------------

    def patching_group(self, before: Body, after: Body, kind: Kind) -> None:
        """A minimum only falls within an attempt: else a replacement would wait for Tasks that were added."""
        old, new = minimum_of(kind, before), minimum_of(kind, after)
        if new > old:
            raise self.world.violation(f"G2: the minimum of {name_of(before)} is raised from {old} to {new}")
        if new < 1:
            raise self.world.violation(f"G2: the minimum of {name_of(before)} becomes {new}")

    def _check_group_of(self, framework_uid: str, pod: Body) -> None:
        name, owner = name_of(pod), controller_of(pod)
        named = group_of(pod) or mark_of(pod, "scheduling.k8s.io/group-name")
        named = named or (pod["metadata"].get("labels") or {}).get("scheduling.x-k8s.io/pod-group", "")
        specs = [spec for (uid, _), spec in self.world.specs.items() if uid == framework_uid]
        if not named:
            attempt: Any = self._statuses.get(framework_uid, {}).get("attemptStatus") or {}
            always = specs and all(
                "gang" in ((spec.get("scheduling") or {}).get("schedulingPolicy") or {}) for spec in specs
            )
            if always and not attempt.get("scheduledPodGroups"):
                raise self.world.violation(f"G1: {name} is created without a group, which was never scheduled")
            return
        ever = [body for kind in PODGROUPS for body in self._ever(kind, named)]
        if owner not in map(controller_of, ever):
            raise self.world.violation(f"G1: {name} is created before its group {named}")

    def _ever(self, kind: Kind, name: str) -> Iterable[Body]:
        return (orjson.loads(event.raw) for event in self.world.events[kind] if event.name == name)

    def check_groups(self, kind: Kind, tasks_to_run: Counter[str]) -> None:
        """G2 at rest. ``tasks_to_run``: by name of the group."""
        for name, group in self.world.objects[kind].items():
            minimum, left = minimum_of(kind, group), tasks_to_run[name]
            if controller_of(group) in self._started and minimum > max(1, left):
                raise self.world.violation(f"G2: the minimum of {name} is {minimum}, and {left} Tasks are to run")


def _available(podset: Body) -> int:
    """The number of Pods that may exist by a stored admission."""
    return int(podset["count"]) - int(podset.get("reclaimed", 0))


def _never_ran(task: Body) -> bool:
    """Whether the Task may have been added after quota went back, and waits for it."""
    return bool(task["state"] == "AttemptCreationPending" and task["attemptStatus"]["id"] == 0)


def _resources(pod: Body) -> list[Any]:
    return [one.get("resources") or {} for one in pod["spec"]["containers"]]


def _finalizers(body: Body) -> list[str]:
    return body["metadata"].get("finalizers") or []
