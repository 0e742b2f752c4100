"""A stand-in for Kueue in the world of ``tests.support.world``: one ClusterQueue, with quota for Pods of each flavor.

It writes as Kueue's scheduler and Workload controller, refuses as Kueue's webhook, and asserts after every change, as
Kueue itself cannot: the Pods that exist never need more than the quota that is reserved for them.
An eviction frees quota only once the owner of the Workload gives the reservation back. Exception: Kueue 0.19 frees the
quota of a Workload at once when it is deactivated, so that its Pods do not count until the owner has given it back.

Source: ../shared/spec/extensions/queues-and-gangs.md, and Kueue 0.19.2. A Pod that exists uses quota until it is
removed, in any phase.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

from frameworkcontroller.api.timestamps import format_time, parse_time
from frameworkcontroller.machine.kernel.requests import Kind
from tests.support.world import ApiRefusal, Body, World, is_deleting, mark_of, name_of, uid_of

CLUSTER_QUEUE: Final = "cq"
QUEUES: Final = ("team-a", "team-b")
PRIORITIES: Final = {"low": 10, "high": 1000}
WORKLOAD: Final = "kueue.x-k8s.io/workload"
PODSET: Final = "kueue.x-k8s.io/podset"
TOPOLOGY_GATE: Final = "kueue.x-k8s.io/topology"
FINALIZER: Final = "kueue.x-k8s.io/resource-in-use"
FLAVOR_LABEL: Final = "example.com/flavor"
EVICTIONS: Final = (
    "Preempted",
    "PodsReadyTimeout",
    "AdmissionCheck",
    "ClusterQueueStopped",
    "LocalQueueStopped",
    "NodeFailures",
    "FlavorMigration",
)
DEACTIVATED: Final = "Deactivated"
DEACTIVATIONS: Final = (
    "DeactivatedDueToRequeuingLimitExceeded",
    "DeactivatedDueToMaximumExecutionTimeExceeded",
    "DeactivatedDueToAdmissionCheck",
)
"""Reasons of evictions of Workloads that Kueue itself has deactivated."""
_DUE_TO: Final = "DeactivatedDueTo"
DEACTIVATION_TARGET: Final = "DeactivationTarget"
_REQUEUE_SEC: Final = 10.0
_REFUSED: Final = 'admission webhook "vworkload.kb.io" denied the request: %s'


class Kueue:
    """``quota``: Pods of each flavor. ``checks``: an admission check comes between reservation and admission.

    ``topology``: assignments have one, so that Pods stay gated until it lets them go. ``pods_ready_sec``: time in which
    the Pods of an admitted Workload must be ready; the second time that they are not, it is deactivated. ``is_loose``:
    whether a creation may be executed after its sender has given it up; then only ``check`` at rest judges the Pods.
    """

    def __init__(
        self,
        world: World,
        quota: Mapping[str, int],
        seed: int = 0,
        *,
        checks: bool = False,
        topology: bool = False,
        pods_ready_sec: float | None = None,
        is_loose: Callable[[], bool] = lambda: False,
    ) -> None:
        self.world = world
        self.quota = dict(quota)
        self.checks = checks
        self.topology = topology
        self.pods_ready_sec = pods_ready_sec
        self.activates = False
        """Whether somebody activates each Workload that is inactive and has no quota."""
        self.admissions = 0
        self.evictions: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._is_loose = is_loose
        self._rivals = 0
        self._taken_by_others: set[str] = set()
        """Workloads (by UID) that others have finished or removed, so that their quota is free before their Pods go."""
        self._taken_names: dict[str, str] = {}
        """UIDs of those that are removed, by name."""
        self._deactivated: set[str] = set()
        """Workloads (by UID) whose quota was free before their Pods go, as they were deactivated with it."""
        self._late: set[str] = set()
        """Workloads (by UID) whose Pods were not ready in time once."""
        self._homes: dict[str, str] = {}
        """The Workload (UID) that each Pod (UID) was made for, "" if there was none."""
        for flavor in quota:
            self.serve(flavor)
        for name, value in PRIORITIES.items():
            world.create(Kind.WORKLOAD_PRIORITY_CLASS, {"metadata": {"name": name}, "value": value})
        world.webhooks[Kind.WORKLOAD] = refuse_change
        world.watchers.append(self._look)

    def _look(self) -> None:
        self._note_pods()
        self._note_deactivated()
        if not self._is_loose():
            self.check()

    # --- state -------------------------------------------------------------------------------------------------------

    def serve(self, flavor: str) -> None:
        """The flavor can be read."""
        if flavor not in self.world.objects[Kind.RESOURCE_FLAVOR]:
            tolerations = [{"key": flavor, "operator": "Exists"}]
            spec = {"nodeLabels": {FLAVOR_LABEL: flavor}, "tolerations": tolerations}
            self.world.create(Kind.RESOURCE_FLAVOR, {"metadata": {"name": flavor}, "spec": spec})

    def hide(self, flavor: str) -> None:
        """The flavor cannot be read for a while."""
        if flavor in self.world.objects[Kind.RESOURCE_FLAVOR]:
            self.world.tell(f"kueue: the ResourceFlavor {flavor} is removed")
            self.world.remove(Kind.RESOURCE_FLAVOR, flavor)

    def workloads(self) -> list[Body]:
        """In the order in which they are admitted."""
        found = self.world.objects[Kind.WORKLOAD].values()
        return sorted(found, key=lambda one: (-one["spec"].get("priority", 0), one["metadata"]["creationTimestamp"]))

    def of_frameworks(self) -> list[Body]:
        """Those that a controller has made."""
        return [one for one in self.workloads() if is_owned(one)]

    # --- the assertion -----------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Pods of Workloads exist only within the quota that is reserved, for the podset and flavor that are assigned.

        Raises:
            Violation: they do not.
        """
        used: Counter[str] = Counter()
        found = {uid_of(one): one for one in self.world.objects[Kind.WORKLOAD].values()}
        for uid, pods in self._pods().items():
            workload = found.get(uid)
            if uid not in self._taken_by_others:
                self._check_pods(workload, pods)
            if uid not in self._deactivated:
                used.update(_flavor(pod) for pod in pods)
        for workload in found.values():
            if not is_owned(workload):
                used.update(reserved_by(workload))
        for flavor, count in used.items():
            if count > self.quota.get(flavor, 0):
                text = f"quota: Pods and rivals use {count} of flavor {flavor}, whose quota is {self.quota.get(flavor)}"
                raise self.world.violation(text)

    def _check_pods(self, workload: Body | None, pods: list[Body]) -> None:
        if workload is None or not has_quota(workload):
            raise self.world.violation(f"quota: {name_of(pods[0])} exists, and its Workload has no quota")
        assignments = {one["name"]: one for one in (admission_of(workload) or {}).get("podSetAssignments", ())}
        for podset, count in Counter(map(_podset, pods)).items():
            left = left_of(workload, assignments[podset]) if podset in assignments else 0
            if count > left:
                raise self.world.violation(f"quota: {count} Pods of podset {podset} exist, there is quota for {left}")
        for pod in pods:
            flavor = assignments[_podset(pod)]["flavors"]["pods"]
            if _flavor(pod) != flavor:
                raise self.world.violation(f"quota: {name_of(pod)} selects {_flavor(pod)}, assigned is {flavor}")

    def _note_pods(self) -> None:
        for pod in self.world.objects[Kind.POD].values():
            if uid_of(pod) not in self._homes and mark_of(pod, WORKLOAD):
                workload = self.world.objects[Kind.WORKLOAD].get(mark_of(pod, WORKLOAD))
                taken = self._taken_names.get(mark_of(pod, WORKLOAD), "")
                self._homes[uid_of(pod)] = taken if workload is None else uid_of(workload)

    def _note_deactivated(self) -> None:
        for workload in self.world.objects[Kind.WORKLOAD].values():
            if not has_quota(workload):
                self._deactivated.discard(uid_of(workload))
            elif is_owned(workload) and not is_active(workload):
                self._deactivated.add(uid_of(workload))

    def _pods(self) -> dict[str, list[Body]]:
        """The Pods that exist, by UID of the Workload that they were made for."""
        found: dict[str, list[Body]] = {}
        for pod in self.world.objects[Kind.POD].values():
            if uid_of(pod) in self._homes:
                found.setdefault(self._homes[uid_of(pod)], []).append(pod)
        return found

    def _lent(self, flavor: str) -> int:
        """Quota used by Pods whose Workload other clients have ended."""
        lent = (pod for uid, pods in self._pods().items() if uid in self._taken_by_others for pod in pods)
        return sum(_flavor(pod) == flavor for pod in lent)

    # --- acts of Kueue itself ----------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Do the next thing that Kueue does by itself; False if there is none."""
        return any(self._step(workload) for workload in self.workloads()) or self._let_pods_go()

    def settle(self) -> bool:
        """Do all of it; False if there was nothing."""
        moved = False
        while self.step():
            moved = True
        return moved

    @property
    def due_at(self) -> float | None:
        """When, by the wall clock, it queues the next Workload again, if ever."""
        held = [one for one in self.workloads() if (condition(one, "Requeued") or {}).get("status") == "False"]
        held = [one for one in held if not (is_true(one, "Finished") or is_deleting(one) or admission_of(one))]
        held = [one for one in held if is_active(one) and not _reason(one, "Requeued").startswith(DEACTIVATED)]
        return min((_since(one, "Requeued") + _REQUEUE_SEC for one in held), default=None)

    def _step(self, workload: Body) -> bool:
        if is_true(workload, "Finished") or is_deleting(workload):
            return False
        if is_active(workload) and is_true(workload, DEACTIVATION_TARGET):
            self._set_active(workload, False)
            return True
        if admission_of(workload) is not None:
            return self._follow(workload)
        if is_true(workload, "QuotaReserved") or is_true(workload, "Admitted"):
            raise self.world.violation(f"{name_of(workload)} has no admission, and its conditions say that it has")
        if not is_active(workload):
            # With that condition, it would be inactive again at once.
            activates = self.activates and not is_true(workload, DEACTIVATION_TARGET)
            if activates:
                self._set_active(workload, True)
            return activates
        requeued = condition(workload, "Requeued")
        if requeued is not None and requeued["status"] == "False":
            return self._requeue(workload)
        return self._admit(workload)

    def _follow(self, workload: Body) -> bool:
        """A Workload with quota goes on to be admitted, or is evicted."""
        if not is_active(workload) and not is_true(workload, "Evicted"):
            self._evict_deactivated(workload)
            return True
        if _runs_too_long(workload, self.world.now) and not is_true(workload, DEACTIVATION_TARGET):
            # Also a second time, after its eviction, while the owner has not given the quota back.
            self.deactivate(workload, "MaximumExecutionTimeExceeded")
            return True
        if is_true(workload, "Evicted"):
            return False
        if not is_true(workload, "Admitted"):
            self._write(workload, "is admitted", ("Admitted", True, "Admitted", "The workload is admitted"))
            self.admissions += 1
            return True
        due = self._ready_by(workload)
        if due is not None and self.world.now >= due:
            if uid_of(workload) in self._late:
                self._late.discard(uid_of(workload))
                self.deactivate(workload, "RequeuingLimitExceeded")
            else:
                self._late.add(uid_of(workload))
                self.evict(workload, "PodsReadyTimeout")
            return True
        return False

    def _ready_by(self, workload: Body) -> float | None:
        """When it is evicted unless its Pods are ready.

        As in Kueue, the time counts from the admission, unless the owner says that they were ready and recover.
        """
        ready = condition(workload, "PodsReady") or {}
        if self.pods_ready_sec is None or ready.get("status") == "True":
            return None
        recovers = ready.get("reason") == "WaitForRecovery"
        return _since(workload, "PodsReady" if recovers else "Admitted") + self.pods_ready_sec

    def _requeue(self, workload: Body) -> bool:
        """Queue an evicted Workload again after a while; after a deactivation at once or never, by its reason."""
        reason = _reason(workload, "Requeued")
        if reason == DEACTIVATED:
            self._write(workload, "is queued again", ("Requeued", True, "Reactivated", "The workload was reactivated"))
            return True
        if reason.startswith(DEACTIVATED):
            return False
        if self.world.now < _since(workload, "Requeued") + _REQUEUE_SEC:
            return False
        self._write(workload, "is queued again", ("Requeued", True, "BackoffFinished", "its back-off is over"))
        return True

    def _admit(self, workload: Body) -> bool:
        """Reserve quota if it is there."""
        spec = workload["spec"]
        if spec["queueName"] not in QUEUES:
            return self._refuse(workload, "Inadmissible", f"LocalQueue {spec['queueName']} doesn't exist")
        assigned = self._assign(workload)
        if assigned is None:
            return self._refuse(workload, "Pending", "couldn't assign flavors to pod set: insufficient unused quota")
        admission = {"clusterQueue": CLUSTER_QUEUE, "podSetAssignments": assigned}
        conditions = [
            ("QuotaReserved", True, "QuotaReserved", "Quota reserved in ClusterQueue cq"),
            *((kind, False, "QuotaReserved", "") for kind in ("Evicted", "Preempted") if condition(workload, kind)),
        ]
        if not self.checks:
            conditions.append(("Admitted", True, "Admitted", "The workload is admitted"))
            self.admissions += 1
        self._write(workload, "has quota", *conditions, admission=admission)
        return True

    def _assign(self, workload: Body) -> list[Body] | None:
        free = {flavor: count - self._reserved(flavor) for flavor, count in self.quota.items()}
        assigned = []
        for podset in workload["spec"]["podSets"]:
            # As Kueue does, also of a Workload that waits.
            needed = podset["count"] - min(reclaimed_of(workload).get(podset["name"], 0), podset["count"])
            fits = [flavor for flavor, count in free.items() if count >= needed]
            if not fits:
                return None
            flavor = self._random.choice(fits)
            free[flavor] -= needed
            one = {
                "name": podset["name"],
                "count": needed,
                "flavors": {"pods": flavor},
                "resourceUsage": {"pods": str(needed)},
            }
            if self.topology:
                domain = {"values": ["node-1"], "count": needed}
                one["topologyAssignment"] = {"levels": ["kubernetes.io/hostname"], "slices": [domain]}
            assigned.append(one)
        return assigned

    def _reserved(self, flavor: str) -> int:
        return sum(reserved_by(one)[flavor] for one in self.workloads()) + self._lent(flavor)

    def _refuse(self, workload: Body, reason: str, text: str) -> bool:
        found = condition(workload, "QuotaReserved")
        if found is not None and (found["reason"], found["status"]) == (reason, "False"):
            return False
        self._write(workload, f"waits: {text}", ("QuotaReserved", False, reason, text))
        return True

    def _let_pods_go(self) -> bool:
        """Take the gate off Pods whose Workload has a topology."""
        for pod in list(self.world.objects[Kind.POD].values()):
            gates = [one["name"] for one in pod["spec"].get("schedulingGates") or ()]
            workload = self.world.objects[Kind.WORKLOAD].get(mark_of(pod, WORKLOAD))
            if TOPOLOGY_GATE in gates and workload is not None and is_true(workload, "Admitted"):
                left = [{"name": one} for one in gates if one != TOPOLOGY_GATE]
                self.world.tell(f"kueue: {name_of(pod)} is let go")
                self.world.edit(Kind.POD, name_of(pod), lambda body: body["spec"].update(schedulingGates=left))  # noqa: B023
                return True
        return False

    # --- acts at any moment -------------------------------------------------------------------------------------------

    def play(self, what: str, which: int) -> None:
        """Something happens to one of the Workloads of Frameworks, if it can.

        ``what``: a reason of EVICTIONS or DEACTIVATIONS, or deactivate, activate, delete, finish, steal, unadmit,
        chatter, hide, serve.
        """
        if what in ("hide", "serve"):
            flavor = sorted(self.quota)[which % len(self.quota)]
            self.hide(flavor) if what == "hide" else self.serve(flavor)
            return
        found = [one for one in self.of_frameworks() if not is_true(one, "Finished")]
        if not found:
            return
        workload = found[which % len(found)]
        name, has_admission = name_of(workload), admission_of(workload) is not None
        match what:
            case reason if reason in EVICTIONS:
                if has_admission and not is_true(workload, "Evicted"):
                    self.evict(workload, reason)
            case reason if reason in DEACTIVATIONS:
                if has_admission and not is_true(workload, "Evicted"):
                    self.deactivate(workload, reason.removeprefix(_DUE_TO))
            case "deactivate" | "activate":
                self._set_active(workload, what == "activate")
            case "delete" if not is_deleting(workload):
                self.world.tell(f"somebody deletes {name}")
                self.world.delete(Kind.WORKLOAD, name)
            case "finish":
                if has_admission:
                    self._taken_by_others.add(uid_of(workload))
                self._write(workload, "is finished by others", ("Finished", True, "OutOfSync", "somebody finished it"))
            case "steal":
                self.world.tell(f"somebody removes {name} with its finalizers")
                self._taken_by_others.add(uid_of(workload))
                self._taken_names[name] = uid_of(workload)
                self.world.remove(Kind.WORKLOAD, name)
            case "unadmit" if is_true(workload, "Admitted") and not is_true(workload, "Evicted") and self.checks:
                self._write(
                    workload, "is not admitted any more", ("Admitted", False, "ChecksPending", "a check is back")
                )
            case "chatter" if not has_admission:
                text = f"insufficient unused quota, {self._random.randint(1, 9)} more needed"
                self._write(workload, "waits", ("QuotaReserved", False, "Pending", text))

    def deactivate(self, workload: Body, cause: str) -> None:
        """Begin to deactivate the Workload, for a reason of Kueue itself."""
        self._write(
            workload, f"will be deactivated: {cause}", (DEACTIVATION_TARGET, True, cause, "it has had its turns")
        )
        if cause == "MaximumExecutionTimeExceeded":
            forget = lambda body: body["status"].pop("accumulatedPastExecutionTimeSeconds", None)  # noqa: E731
            self.world.edit(Kind.WORKLOAD, name_of(workload), forget)

    def _evict_deactivated(self, workload: Body) -> None:
        cause = _reason(workload, DEACTIVATION_TARGET)
        self.evict(workload, f"{_DUE_TO}{cause}" if cause else DEACTIVATED)

        def change(body: Body) -> None:
            kept = [one for one in body["status"]["conditions"] if one["type"] != DEACTIVATION_TARGET]
            body["status"]["conditions"] = kept

        self.world.edit(Kind.WORKLOAD, name_of(workload), change)

    def _set_active(self, workload: Body, active: bool) -> None:
        self.world.tell(f"{name_of(workload)} becomes {'active' if active else 'inactive'}")
        self.world.edit(Kind.WORKLOAD, name_of(workload), lambda body: body["spec"].update(active=active))

    def evict(self, workload: Body, reason: str) -> None:
        """Ask the owner to stop, and to give the reservation back."""
        self.evictions[reason] += 1
        also = [("Preempted", True, "InClusterQueue", "to accommodate another")] if reason == "Preempted" else []
        text = f"evicted for {reason}"
        self._write(workload, f"is evicted: {reason}", ("Evicted", True, reason, text), *also)

    def rival(self, count: int, priority: str = "low") -> None:
        """Create a foreign Workload, whose Pods exist whenever it has quota."""
        self._rivals += 1
        spec = {
            "queueName": QUEUES[0],
            "priority": PRIORITIES[priority],
            "podSets": [{"name": "main", "count": count, "template": {"spec": {}}}],
        }
        self.world.create(Kind.WORKLOAD, {"metadata": {"name": f"rival-{self._rivals}"}, "spec": spec})

    def end_rivals(self) -> None:
        """Remove all foreign Workloads."""
        for workload in self.workloads():
            if not is_owned(workload):
                self.world.tell(f"kueue: {name_of(workload)} ends")
                self.world.remove(Kind.WORKLOAD, name_of(workload))

    # --- writing -----------------------------------------------------------------------------------------------------

    def _write(
        self, workload: Body, text: str, *conditions: tuple[str, bool, str, str], admission: Body | None = None
    ) -> None:
        self.world.tell(f"kueue: {name_of(workload)} {text}")

        def change(body: Body) -> None:
            status = body.setdefault("status", {})
            if admission is not None:
                status["admission"] = admission
            for kind, holds, reason, message in conditions:
                set_condition(status, kind, holds, reason, message, self.world.now)

        self.world.edit(Kind.WORKLOAD, name_of(workload), change)


# --- Kueue's webhook -------------------------------------------------------------------------------------------------


def refuse_change(before: Body, after: Body) -> None:
    """Refuse changes of fields that are fixed while quota is reserved.

    Raises:
        ApiRefusal: 403.
    """
    old, new = admission_of(before), admission_of(after)
    if old is not None and new is not None and old != new:
        raise _refusal("status.admission: field is immutable")
    counts = {one["name"]: one["count"] for one in after["spec"]["podSets"]}
    for name, count in reclaimed_of(after).items():
        if count > counts.get(name, -1):
            raise _refusal(f"status.reclaimablePods[{name}].count: should be less or equal to {counts.get(name)}")
    if not (has_quota(before) and has_quota(after)):
        return
    old, new = before["spec"], after["spec"]
    if old["podSets"] != new["podSets"] and not _only_counts_fall(old["podSets"], new["podSets"]):
        raise _refusal("spec.podSets: field is immutable while quota is reserved")
    if old.get("queueName") != new.get("queueName"):
        raise _refusal("spec.queueName: field is immutable while quota is reserved")
    if _class_of(old) != _class_of(new):
        raise _refusal("spec.priorityClassRef: field is immutable while quota is reserved, but for the class of Kueue")
    limits = old.get("maximumExecutionTimeSeconds"), new.get("maximumExecutionTimeSeconds")
    if limits[0] != limits[1] and is_true(before, "Admitted") and is_true(after, "Admitted"):
        raise _refusal("spec.maximumExecutionTimeSeconds: field is immutable while the Workload is admitted")
    reclaimed = reclaimed_of(after)
    for name, count in reclaimed_of(before).items():
        if reclaimed.get(name, -1) < count:
            raise _refusal(f"status.reclaimablePods[{name}].count: cannot be less than {count}")


def _only_counts_fall(old: list[Body], new: list[Body]) -> bool:
    """With ElasticJobsViaWorkloadSlices, which is on by default, counts may fall."""
    return len(old) == len(new) and all(
        {**one, "count": 0} == {**other, "count": 0} and other["count"] <= one["count"]
        for one, other in zip(old, new, strict=True)
    )


def _class_of(spec: Body) -> tuple[object, ...]:
    """The fixed fields of the priority class: all, except the name of a class of Kueue."""
    found = spec.get("priorityClassRef")
    if found is None:
        return ()
    is_own = found.get("kind") == "WorkloadPriorityClass"
    return found.get("group"), found.get("kind"), None if is_own else found.get("name")


def _refusal(text: str) -> ApiRefusal:
    return ApiRefusal(403, "Forbidden", _REFUSED % text)


# --- fields of a Workload --------------------------------------------------------------------------------------------


def _status(workload: Body) -> Body:
    return workload.get("status") or {}


def admission_of(workload: Body) -> Body | None:
    """``status.admission``."""
    return _status(workload).get("admission")


def condition(workload: Body, kind: str) -> Body | None:
    """The condition of that type."""
    return next((one for one in _status(workload).get("conditions") or () if one["type"] == kind), None)


def is_true(workload: Body, kind: str) -> bool:
    """Whether the condition of that type is True."""
    found = condition(workload, kind)
    return found is not None and found["status"] == "True"


def is_owned(workload: Body) -> bool:
    """Whether a controller has made it."""
    return bool(workload["metadata"].get("ownerReferences"))


def has_quota(workload: Body) -> bool:
    """Whether quota is reserved for it, which Kueue reads from the condition."""
    return is_true(workload, "QuotaReserved")


def is_active(workload: Body) -> bool:
    """Whether it may have quota."""
    return workload["spec"].get("active") is not False


def reserved_by(workload: Body) -> Counter[str]:
    """Pods of each flavor that quota is reserved for; of a finished or inactive Workload none is."""
    found: Counter[str] = Counter()
    if not is_true(workload, "Finished") and is_active(workload):
        for one in (admission_of(workload) or {}).get("podSetAssignments", ()):
            found[one["flavors"]["pods"]] += left_of(workload, one)
    return found


def reclaimed_of(workload: Body) -> dict[str, int]:
    """By podset, the Pods whose quota was released."""
    return {one["name"]: one["count"] for one in _status(workload).get("reclaimablePods") or ()}


def left_of(workload: Body, assigned: Body) -> int:
    """The number of Pods of an assignment that quota is reserved for."""
    name = assigned["name"]
    count = next((one["count"] for one in workload["spec"]["podSets"] if one["name"] == name), 0)
    return min(int(assigned["count"]), count - min(reclaimed_of(workload).get(name, 0), count))


def set_condition(status: Body, kind: str, holds: bool, reason: str, message: str, now: float) -> None:
    """Set the condition of that type."""
    found: Any = next((one for one in status.setdefault("conditions", []) if one["type"] == kind), None)
    if found is None:
        status["conditions"].append(found := {"type": kind})
    if found.get("status") != str(holds):
        found["lastTransitionTime"] = format_time(int(now))
    found |= {"status": str(holds), "reason": reason, "message": message}


def _runs_too_long(workload: Body, now: float) -> bool:
    """Whether it was admitted for as long as it may be, over all its admissions."""
    most = workload["spec"].get("maximumExecutionTimeSeconds")
    if most is None or not is_true(workload, "Admitted"):
        return False
    past = _status(workload).get("accumulatedPastExecutionTimeSeconds") or 0
    return bool(past + now - _since(workload, "Admitted") >= most)


def _reason(workload: Body, kind: str) -> str:
    return str((condition(workload, kind) or {}).get("reason", ""))


def _since(workload: Body, kind: str) -> int:
    return parse_time((condition(workload, kind) or {})["lastTransitionTime"])


def _flavor(pod: Body) -> str:
    return str((pod["spec"].get("nodeSelector") or {}).get(FLAVOR_LABEL, ""))


def _podset(pod: Body) -> str:
    return str((pod["metadata"].get("labels") or {}).get(PODSET, ""))
