"""One history of a Framework: acts of users, nodes, networks and clocks, while controllers work on it.

Every operation is complete in itself and takes small numbers, so that a failing history can be shortened by leaving
operations out. ``finish`` is the fair end: faults stop, and then everything must come to the end that was promised.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Final

from frameworkcontroller.api import names
from frameworkcontroller.api.codec import decode_status
from frameworkcontroller.api.spec import ExecutionType, FrameworkSpec, SpecError, parse_spec
from frameworkcontroller.api.status import Condition, FrameworkStatus, State
from frameworkcontroller.machine.kernel.actions import Action
from frameworkcontroller.machine.kernel.failure import Classifier
from frameworkcontroller.machine.kernel.model import Limits
from frameworkcontroller.machine.kernel.requests import Kind, Target
from frameworkcontroller.machine.kernel.states import LIVE
from tests.support.driver import Controller
from tests.support.guarantees import Guarantees
from tests.support.world import Body, Fate, World, controller_of, is_deleting, name_of, uid_of

NAME: Final = "f"
CONFIGMAP: Final = names.configmap_name(NAME)
LIMITS: Final = Limits(
    object_local_cache_creation_timeout_sec=300,
    framework_completed_retain_sec=10_000,
    framework_min_retry_delay_sec_for_transient_conflict_failed=5,
    framework_max_retry_delay_sec_for_transient_conflict_failed=20,
    classifier=Classifier(),
)
EXIT_CODES: Final = (0, 1, 200, 201, 210)
_KINDS: Final = (Kind.FRAMEWORK, Kind.CONFIGMAP, Kind.POD)
_NODE: Final = "node-1"
_PASSES_TO_REST: Final = 100
_SOON_SEC: Final = 20.0
_STEPS_TO_SETTLE: Final = 20_000
_STEPS_UNTIL: Final = 1000
WAKES_TO_END: Final = 60
_WAKES_TO_TELL: Final = 20


class History:
    """A world, the Framework ``f`` in it, and one or two controllers."""

    def __init__(
        self, seed: int = 0, *, thorough: bool = False, limits: Limits = LIMITS, kinds: Sequence[Kind] = _KINDS
    ) -> None:
        """``thorough``: controllers look at every Task each time. ``kinds``: those whose events come one by one."""
        self.world = World()
        self.guarantees = Guarantees(self.world, limits)
        self._seeds = random.Random(seed)
        self._limits = limits
        self._thorough = thorough
        self._kinds = kinds
        self._node_is_lost = False
        self.others: list[Callable[[], bool]] = []
        """What else does something by itself, step by step, and returns whether there was anything to do."""
        self.wakes: list[Callable[[], float | None]] = []
        """When, by the wall clock, one of them has something to do, if ever."""
        self.find_node()
        self._let_loose: set[str] = set()
        """Frameworks (by UID) whose ConfigMap was once deleted so that it waited for no Pod."""
        self.controllers = [self._start("A")]
        self._standby: Controller | None = None

    # --- state ---

    @property
    def framework(self) -> Body | None:
        """The live Framework."""
        return self.world.objects[Kind.FRAMEWORK].get(NAME)

    @property
    def configmap(self) -> Body | None:
        """The live ConfigMap of the attempt, or another one of that name."""
        return self.world.objects[Kind.CONFIGMAP].get(CONFIGMAP)

    @property
    def status(self) -> FrameworkStatus | None:
        """Its stored status."""
        return None if self.framework is None else decode_status(self.framework.get("status"))

    @property
    def spec(self) -> FrameworkSpec | None:
        """Its spec, if it can be run."""
        try:
            return None if self.framework is None else parse_spec(self.framework["spec"])
        except SpecError:
            return None

    def pods(self) -> list[Body]:
        """The live Pods that a controller has created."""
        return [pod for pod in self.world.objects[Kind.POD].values() if self.guarantees.is_ours(pod)]

    # --- controllers ---

    def _start(self, name: str) -> Controller:
        controller = Controller(self.world, self.guarantees, NAME, self._limits, self._seeds.getrandbits(32), name)
        controller.thorough = self._thorough
        return controller

    def run(self, which: int, steps: int) -> None:
        """A controller takes some small steps."""
        controller = self.controllers[which % len(self.controllers)]
        for _ in range(steps):
            if not controller.due:
                break
            controller.step()

    def follow(self, which: int, steps: int) -> None:
        """A controller sees everything before each of its steps."""
        controller = self.controllers[which % len(self.controllers)]
        for _ in range(steps):
            controller.catch_up()
            self.run(which, 1)

    def until(self, holds: Callable[[], bool], which: int = 0) -> None:
        """A controller follows, as nodes and the garbage collector do, until that holds."""
        for _ in range(_STEPS_UNTIL):
            if holds():
                return
            for other in self.others:
                other()
            self.collect(1)
            self.kubelet(0, "remove")
            self.follow(which, 1)
            controller = self.controllers[which]
            if not controller.due and controller.requeue_at is not None:
                self.world.go_until(controller.requeue_at)
        raise self.world.violation("it does not come about")

    def stop_before(self, action: type[Action], holds: Callable[[Target], bool], which: int = 0) -> None:
        """A controller stands still right before such an action."""

        def is_next() -> bool:
            found = self.controllers[which].next_action
            return isinstance(found, action) and holds(found.target)

        self.until(is_next, which)

    def crash(self, which: int) -> None:
        """A controller is killed where it stands, and restarted."""
        position = which % len(self.controllers)
        name = self.controllers[position].label
        self.world.tell(f"[{name}] is killed and started anew")
        self.controllers[position] = self._start(name)

    def stand_by(self) -> None:
        """A replica begins to watch, and does nothing yet."""
        self.world.tell("[S] stands by")
        self._standby = self._start("S")

    def deliver_to_standby(self, kind: int, count: int) -> None:
        """A cache of the replica sees some more events."""
        if self._standby is not None:
            self._standby.deliver(self._kinds[kind % len(self._kinds)], count)

    def take_over(self) -> None:
        """The first controller is killed, and the replica continues with its caches."""
        if self._standby is not None:
            self.world.tell(f"[S] takes over from [{self.controllers[0].label}]")
            self.controllers[0], self._standby = self._standby, None

    def start_second(self) -> None:
        """A second controller works at the same time."""
        if len(self.controllers) == 1:
            self.world.tell("[B] is started beside [A]")
            self.guarantees.loose = True
            self.controllers.append(self._start("B"))

    def breathe(self, *, lazy: bool, actions: int) -> None:
        """Have status writes take long, or not; and bound how many actions a pass starts."""
        self.guarantees.hasty |= lazy
        for controller in self.controllers:
            controller.lazy = lazy
            controller.limit = actions

    def rest(self, which: int) -> None:
        """A controller that sees and hears nothing new must come to rest."""
        self.world.fates.clear()
        controller = self.controllers[which % len(self.controllers)]
        begun = controller.passes
        while controller.due:
            controller.step()
            if controller.passes > begun + _PASSES_TO_REST:
                raise self.world.violation("Hot loop: a controller works on, and nothing changes")

    # --- caches, requests, time ---

    def deliver(self, which: int, kind: int, count: int) -> None:
        """A cache sees some more events."""
        self.controllers[which % len(self.controllers)].deliver(self._kinds[kind % len(self._kinds)], count)

    def relist(self, which: int, kind: int) -> None:
        """A cache jumps to the live objects."""
        self.controllers[which % len(self.controllers)].relist(self._kinds[kind % len(self._kinds)])

    def fail(self, verb: str | None, fate: Fate) -> None:
        """The next request of a controller (of that verb) meets this fate."""
        self.world.fates.append((verb, fate))

    def execute_late(self) -> None:
        """A request that was given up is executed."""
        if self.world.late:
            self.guarantees.loose = True
            self.world.execute_late()

    def tick(self, seconds: int) -> None:
        """Time passes; or the clock is put back."""
        self.world.go_by(seconds)
        self.world.tell(f"the clock goes by {seconds}s")

    def wait(self, seconds: int) -> None:
        """All come to rest, and time passes until a controller's next alarm, if that is near."""
        self.settle()
        wakes = [controller.requeue_at for controller in self.controllers if controller.requeue_at is not None]
        if wakes and min(wakes) <= self.world.clock + seconds:
            self.world.go_until(min(wakes))
            self.settle()

    def collect(self, steps: int) -> None:
        """The garbage collector takes some steps."""
        for _ in range(steps):
            if not self.world.collect():
                break

    # --- nodes ---

    def kubelet(self, which: int, what: str, code: int = 0) -> None:
        """A node says how one of its Pods fares."""
        pods = sorted(self.world.objects[Kind.POD].values(), key=name_of)
        if pods:
            self._fare(pods[which % len(pods)], what, code)

    def lose_node(self, *, lost: bool) -> None:
        """The nodes are gone, and no Pod on them ends, or they are back."""
        if lost != self._node_is_lost:
            self.world.tell("the nodes are lost" if lost else "the nodes are back")
            self._node_is_lost = lost

    def find_node(self, *taints: str) -> None:
        """The Node of the Pods is there, with these taints."""
        body = {
            "metadata": {"name": _NODE},
            "spec": {"taints": [{"key": key, "effect": "NoExecute"} for key in taints]},
        }
        self.remove_node()
        self.world.tell(f"{_NODE} is {' and '.join(taints) or 'well'}")
        self.world.create(Kind.NODE, body)

    def remove_node(self) -> None:
        """The Node of the Pods is removed."""
        if _NODE in self.world.objects[Kind.NODE]:
            self.world.tell(f"{_NODE} is removed")
            self.world.remove(Kind.NODE, _NODE)

    def node_of(self, pod: Body) -> str:
        """The node of a Pod, "" if none fits."""
        return _NODE

    def _fare(self, pod: Body, what: str, code: int) -> None:
        name, phase = name_of(pod), pod["status"]["phase"]
        ended = phase in ("Succeeded", "Failed")
        if what == "remove":
            if is_deleting(pod) and not self._node_is_lost:
                self.world.tell(f"node: {name} is gone")
                self.world.remove(Kind.POD, name)
        elif ended and not (uid_of(pod) in self.world.grace_ends and what == "end"):
            return
        elif ended:
            self.world.tell(f"node: the containers of {name} end")
            self.world.pod(name, phase=phase, exit_code=int(phase == "Failed"))
        elif what in ("ready", "unready"):
            if phase == "Running":
                self.world.tell(f"node: {name} is {what}")
                self.world.pod(name, ready=what == "ready")
        elif not (node := self.node_of(pod)):
            self.world.tell(f"scheduler: {name} fits on no node")
        elif what == "fail early":
            self.world.tell(f"node: {name} fails, and its containers run")
            self.world.pod(name, node=node, phase="Failed", runs_on=True)
        elif what == "bind":
            self.world.pod(name, node=node)
        elif what == "end":
            self.world.tell(f"node: {name} ends with {code}")
            self.world.pod(name, node=node, phase="Failed" if code else "Succeeded", exit_code=code)
        else:
            self.world.tell(f"node: {name} is {what}")
            self.world.pod(name, node=node, phase=what)

    # --- users ---

    def create(self, spec: Body) -> None:
        """The user creates the Framework, if there is none."""
        if self.framework is None:
            self.world.tell(f"user: create {spec}")
            self.world.create(Kind.FRAMEWORK, {"metadata": {"name": NAME}, "spec": spec})

    def delete(self, *, foreground: bool) -> None:
        """The user deletes the Framework."""
        if self.framework is not None:
            if uid_of(self.framework) in self._let_loose and self.pods():
                # Its ConfigMap was to wait for them (docs/guarantees.md, Limits).
                return
            if not foreground and not is_deleting(self.framework):
                self.guarantees.abandoned.add(uid_of(self.framework))
            self.world.tell(f"user: delete the Framework{' in the foreground' if foreground else ''}")
            self.world.delete(Kind.FRAMEWORK, NAME, foreground=foreground)

    def edit(self, what: str, change: Callable[[Body], None]) -> None:
        """The user edits the spec."""
        if self.framework is not None:
            self.world.tell(f"user: {what}")
            self.world.edit(Kind.FRAMEWORK, NAME, lambda body: change(body["spec"]))

    def edit_role(self, role: str, what: str, change: Callable[[Body], None]) -> None:
        """The user edits a role, if it is there."""

        def edit(spec: Body) -> None:
            if (found := _role(spec, role)) is not None:
                change(found)

        self.edit(what, edit)

    def rescale(self, role: str, number: int) -> None:
        """The user sets how many Tasks a role has; it is added if it is not there."""

        def change(spec: Body) -> None:
            found = _role(spec, role)
            if found is None:
                spec["taskRoles"].append({"name": role, "taskNumber": number})
            else:
                found["taskNumber"] = number

        self.edit(f"rescale {role} to {number}", change)

    def drop(self, role: str) -> None:
        """The user takes a role out."""

        def change(spec: Body) -> None:
            spec["taskRoles"] = [item for item in spec["taskRoles"] if item["name"] != role]
            for item in spec["taskRoles"]:
                item["dependsOn"] = [one for one in item.get("dependsOn") or () if one["name"] != role]

        self.edit(f"drop {role}", change)

    def set_retry(self, role: str | None, *, fancy: bool, limit: int) -> None:
        """The user changes a retry policy."""

        def change(spec: Body) -> None:
            target = spec if role is None else _role(spec, role)
            if target is not None and role is not None:
                target = target.setdefault("task", {})
            if target is not None:
                target["retryPolicy"] = {"fancyRetryPolicy": fancy, "maxRetryCount": limit}

        self.edit(f"retry policy of {role or 'the Framework'}: fancy {fancy}, {limit}", change)

    def set_completion(self, role: str, failed: int, succeeded: int) -> None:
        """The user changes a completion policy."""
        policy = {"minFailedTaskCount": failed, "minSucceededTaskCount": succeeded}
        what = f"completion policy of {role}: {failed} failed, {succeeded} succeeded"
        self.edit_role(role, what, lambda found: found.update(frameworkAttemptCompletionPolicy=policy))

    def set_dependency(self, role: str, other: str, status: str | None) -> None:
        """The user lets a role depend on an earlier one, or (None) no longer."""

        def change(spec: Body) -> None:
            found = _role(spec, role)
            if found is not None and _role(spec, other) is not None and other < role:
                kept = [one for one in found.get("dependsOn") or () if one["name"] != other]
                found["dependsOn"] = kept + ([] if status is None else [{"name": other, "status": status}])

        self.edit(f"{role} depends on {other}: {status}", change)

    def set_timeout(self, role: str, seconds: int | None, policy: str | None = None) -> None:
        """The user changes podGracefulDeletionTimeoutSec and podForceDeletionPolicy."""
        wanted = {"podGracefulDeletionTimeoutSec": seconds, "podForceDeletionPolicy": policy}
        what = f"podGracefulDeletionTimeoutSec of {role}: {seconds}, {policy}"
        self.edit_role(role, what, lambda found: found.setdefault("task", {}).update(wanted))

    def set_deadline(self, seconds: int | None) -> None:
        """The user changes activeDeadlineSeconds."""
        self.edit(f"activeDeadlineSeconds: {seconds}", lambda spec: spec.update(activeDeadlineSeconds=seconds))

    def set_pre_running(self, role: str, seconds: int | None) -> None:
        """The user changes preRunningDeadlineSeconds."""
        wanted = {"preRunningDeadlineSeconds": seconds}
        what = f"preRunningDeadlineSeconds of {role}: {seconds}"
        self.edit_role(role, what, lambda found: found.setdefault("task", {}).update(wanted))

    def set_ttl(self, seconds: int | None) -> None:
        """The user changes ttlSecondsAfterFinished."""
        self.edit(f"ttlSecondsAfterFinished: {seconds}", lambda spec: spec.update(ttlSecondsAfterFinished=seconds))

    def suspend(self, *, wanted: bool) -> None:
        """The user suspends the Framework, or resumes it."""
        if self.framework is not None and bool(self.framework["spec"].get("suspend")) != wanted:
            self.edit("suspend" if wanted else "resume", lambda spec: spec.update(suspend=wanted))

    def execute(self, wanted: str) -> None:
        """The user changes executionType, where that is supported."""
        if self.framework is not None:
            now = self.framework["spec"].get("executionType", "Start")
            if (now, wanted) in (("Create", "Start"), ("Create", "Stop"), ("Start", "Stop")):
                self.edit(f"executionType {wanted}", lambda spec: spec.update(executionType=wanted))

    def break_spec(self, *, broken: bool) -> None:
        """The user makes the spec invalid in a way that the schema accepts; or valid again."""
        retry: Body = {"maxRetryCount": -7} if broken else {}
        if self.framework is not None and broken != (self.spec is None):
            self.edit("break the spec" if broken else "mend the spec", lambda spec: spec.update(retryPolicy=retry))

    def annotate(self) -> None:
        """A user changes foreign metadata."""
        if self.framework is not None:
            self.world.tell("somebody annotates the Framework")
            self.world.edit(Kind.FRAMEWORK, NAME, lambda body: body["metadata"].update(annotations={"x": "y"}))

    def delete_pod(self, which: int, *, force: bool, disrupted: bool = False) -> None:
        """A user deletes a Pod; ``disrupted``: Kubernetes does, and sets its condition before."""
        pods = sorted(self.pods(), key=name_of)
        if pods:
            name = name_of(pods[which % len(pods)])
            if disrupted:
                self.world.edit(Kind.POD, name, _disrupt)
            self.world.tell(f"somebody deletes {name}{' by force' if force else ''}")
            self.world.delete(Kind.POD, name, grace=0 if force else None)

    def delete_configmap(self, propagation: str = "Foreground") -> None:
        """A user deletes the attempt's ConfigMap."""
        body = self.configmap
        if body is not None and self.guarantees.is_ours(body):
            if propagation != "Foreground":
                if self.framework is None or is_deleting(self.framework):
                    # Then the Framework may go before the Pods.
                    return
                if controller_of(body) != uid_of(self.framework):
                    # It is one of an earlier Framework of the name.
                    return
                self._let_loose.add(uid_of(self.framework))
            self.world.tell(f"somebody deletes the ConfigMap: {propagation}")
            self.world.delete(Kind.CONFIGMAP, CONFIGMAP, foreground=True, propagation=propagation)

    def unlabel(self, which: int) -> None:
        """A user removes the label by which a Pod or the ConfigMap is watched."""
        candidates = sorted(self.pods(), key=name_of)
        candidates += [body for body in self.world.objects[Kind.CONFIGMAP].values() if self.guarantees.is_ours(body)]
        if candidates:
            body = candidates[which % len(candidates)]
            kind = Kind.POD if "spec" in body else Kind.CONFIGMAP
            self.world.tell(f"somebody unlabels {name_of(body)}")
            self.world.edit(kind, name_of(body), lambda found: found["metadata"].update(labels={}))

    def intrude(self, name: str, *, labelled: bool, kind: Kind | None = None) -> None:
        """Another client creates an object of a name that the Framework needs. ``kind`` None: ConfigMap or Pod."""
        kind = kind or (Kind.CONFIGMAP if name == names.configmap_name(NAME) else Kind.POD)
        if name not in self.world.objects[kind]:
            self.world.tell(f"somebody creates a foreign {kind} {name}")
            labels = {names.FRAMEWORK_NAME: NAME} if labelled else {}
            body: Body = {"metadata": {"name": name, "labels": labels}}
            body["spec"] = {}
            quota, self.world.pod_quota = self.world.pod_quota, None
            self.world.create(kind, body)
            self.world.pod_quota = quota

    def retreat(self) -> None:
        """Foreign objects go."""
        for kind in (Kind.POD, Kind.CONFIGMAP, Kind.SERVICE, Kind.VOLUME_CLAIM, Kind.ROLE_SCALER):
            for body in list(self.world.objects[kind].values()):
                if not self.guarantees.is_ours(body):
                    self.world.tell(f"the foreign {kind} {name_of(body)} goes")
                    self.world.remove(kind, name_of(body))

    def set_quota(self, pods: int | None) -> None:
        """The administrator limits how many Pods there may be."""
        self.world.tell(f"quota: {pods} Pods")
        self.world.pod_quota = pods

    # --- the fair end ---

    def settle(self) -> None:
        """All caches, collectors, nodes and controllers work, without time passing, until they are at rest."""
        self.world.fates.clear()
        for step in range(_STEPS_TO_SETTLE):
            moved = self.world.collect()
            for other in self.others:
                moved |= other()
            for pod in list(self.world.objects[Kind.POD].values()):
                if is_deleting(pod) and not self._node_is_lost:
                    self.world.remove(Kind.POD, name_of(pod))
                    moved = True
            for controller in self.controllers:
                controller.catch_up()
                if controller.due:
                    controller.step()
                    moved = True
            if not moved and not self.go_to_next_write():
                break
            if step == _STEPS_TO_SETTLE - 1:
                raise self.world.violation("Hot loop: nothing settles")
        for controller in self.controllers:
            controller.probe()

    def go_to_next_write(self) -> bool:
        """Let time pass until a controller's next write or retry; False if none is due."""
        soon = self.world.clock + _SOON_SEC
        wakes = [one.requeue_at for one in self.controllers if not one.is_settled and one.requeue_at is not None]
        if not wakes or min(wakes) > soon:
            return False
        self.world.go_until(min(wakes))
        return True

    def finish(self) -> None:
        """Faults stop, obstacles go: check that everything comes to the end that was promised."""
        self.world.tell("--- the fair end ---")
        self.breathe(lazy=False, actions=100)
        self.world.fates.clear()
        self.guarantees.loose |= bool(self.world.late)
        while self.world.execute_late():
            pass
        self.world.late.clear()
        # Pods run here only when all is still, which may be too late for it.
        for role in (self.framework or {"spec": {"taskRoles": []}})["spec"]["taskRoles"]:
            if (role.get("task") or {}).get("preRunningDeadlineSeconds") is not None:
                self.set_pre_running(role["name"], None)
        self.settle()
        alone = len(self.controllers) == 1
        del self.controllers[1:]
        self._whatever_stands_in_the_way_is_told(alone=alone)
        self.lose_node(lost=False)
        self.set_quota(None)
        self.retreat()
        self._an_end_that_is_asked_for_comes()
        self.break_spec(broken=False)
        self._drop_what_is_never_met()
        if self.framework is not None and self.framework["spec"].get("suspend"):
            self._until("the Framework is suspended or completed", self._is_suspended, step=self.all_pods_run)
            self.suspend(wanted=False)
        self.execute("Start")
        self._until("all Tasks run or are completed", self._is_running, step=self._all_start)
        if self._must_complete_by_itself():
            self._until("the Framework completes by itself", self._is_completed, step=self._all_pods_succeed)
        self.execute("Stop")
        self._until("the Framework is completed after Stop", self._is_completed, step=lambda: None)
        self._nothing_is_left()
        kept = "the Framework is deleted after its retention, which alone wakes it"
        self._until(kept, lambda: self.framework is None, step=lambda: None, wakes=3)
        self._nothing_is_left()

    def _an_end_that_is_asked_for_comes(self) -> None:
        """Stop, a suspension and a deadline count, also with an invalid spec."""
        spec: Body = {} if self.framework is None else self.framework["spec"]
        if spec.get("executionType") == "Stop":
            self._until("the stopped Framework is completed", self._is_completed, step=lambda: None)
        elif spec.get("suspend"):
            self._until("the suspended Framework says so", self._is_suspended, step=lambda: None)
        elif self.spec is None and spec.get("activeDeadlineSeconds") is not None and self._has_begun():
            self._until("the deadline ends the Framework", self._is_completed, step=lambda: None)

    def _has_begun(self) -> bool:
        status = self.status
        return status is not None and status.state in LIVE and status.attempt.configmap_uid is not None

    def _whatever_stands_in_the_way_is_told(self, *, alone: bool) -> None:
        """With all obstacles in place, the Framework runs, is completed, or reports the cause of its wait.

        ``alone``: there was no second controller. Conditions that one has written stay until the next write.
        """
        for _ in range(_WAKES_TO_TELL):
            self.all_pods_run()
            self.settle()
            (controller,) = self.controllers
            status, spec = self.status, self.spec
            if status is None or self.framework is None or is_deleting(self.framework) or self._is_running():
                return
            told = [*status.conditions]
            if not alone and controller.reconciler is not None and controller.reconciler.tracker.status is not None:
                told += controller.reconciler.tracker.status.conditions
            if any(item.type == "Stalled" and item.status == "True" for item in told):
                return
            if (
                spec is not None
                and spec.execution_type is ExecutionType.CREATE
                and status.state is State.CREATION_PENDING
            ):
                return
            if any(self._says_what_is_awaited(item) for item in told):
                return
            self._go_to_next_wake()
        raise self.world.violation("It waits, and does not say for what")

    def _says_what_is_awaited(self, told: Condition) -> bool:
        return "waits until TaskRole" in told.message or told.reason == "Suspended"

    def _drop_what_is_never_met(self) -> None:
        """The user takes out each dependency whose role never completes, or completes the attempt before it does."""
        for role in () if self.spec is None else self.spec.task_roles:
            for other in role.depends_on:
                awaited = self.spec.role(other.name) if self.spec is not None else None
                policy = None if awaited is None else awaited.framework_attempt_completion_policy
                if other.status == "Complete" and (
                    awaited is None
                    or policy is None
                    or awaited.task.retry_policy.max_retry_count == -2
                    or max(policy.min_failed_task_count, policy.min_succeeded_task_count) > 0
                ):
                    self.set_dependency(role.name, other.name, None)

    def _all_start(self) -> None:
        """All Pods run and are ready, and those that others wait for succeed."""
        self.all_pods_run()
        spec = self.spec
        dependencies = [] if spec is None else [one for role in spec.task_roles for one in role.depends_on]
        awaited = {one.name for one in dependencies if one.status == "Complete"}
        for pod in self.pods():
            if names.split_pod_name(name_of(pod))[1] in awaited:  # type: ignore[index]
                self._fare(pod, "end", 0)

    def _until(
        self, what: str, holds: Callable[[], bool], *, step: Callable[[], None], wakes: int = WAKES_TO_END
    ) -> None:
        for _ in range(wakes):
            step()
            self.settle()
            if self.framework is None or holds():
                self.guarantees.look_at_pods()
                return
            self._go_to_next_wake()
        raise self.world.violation(f"It does not come about: {what}")

    def _go_to_next_wake(self) -> None:
        """Let time pass until the next alarm."""
        (controller,) = self.controllers
        now = self.world.now
        seconds = [max(0.0, at - now) for wake in self.wakes if (at := wake()) is not None]
        if controller.requeue_at is not None:
            seconds.append(controller.requeue_at - self.world.clock)
        self.world.go_by(max(0.0, min(seconds, default=0.0)))

    def _is_running(self) -> bool:
        status, spec = self.status, self.spec
        if status is None or spec is None:
            return False
        if status.state is State.COMPLETED:
            return True
        if status.attempt.completion_status is not None or status.retry.retry_delay_sec is not None:
            return False
        states = {
            role.name: [task.state for task in role.tasks if not task.is_leaving] for role in status.attempt.roles
        }
        return states == {role.name: states.get(role.name) for role in spec.task_roles} and all(
            len(states[role.name]) == role.task_number
            and all(state in (State.RUNNING, State.COMPLETED) for state in states[role.name])
            for role in spec.task_roles
        )

    def _is_suspended(self) -> bool:
        told = () if self.status is None else self.status.conditions
        return self._is_completed() or any(item.type == "Suspended" and item.status == "True" for item in told)

    def _is_completed(self) -> bool:
        return self.status is not None and self.status.state is State.COMPLETED

    def _must_complete_by_itself(self) -> bool:
        spec = self.spec
        return (
            spec is not None
            and spec.task_count > 0
            and spec.retry_policy.max_retry_count != -2
            and all(role.task.retry_policy.max_retry_count != -2 for role in spec.task_roles)
        )

    def all_pods_run(self) -> None:
        for pod in self.pods():
            if pod["status"]["phase"] in ("Pending", "Unknown"):
                self._fare(pod, "Running", 0)
            self._fare(pod, "ready", 0)

    def _all_pods_succeed(self) -> None:
        for pod in self.pods():
            self._fare(pod, "end", 0)

    def _nothing_is_left(self) -> None:
        left = [name_of(body) for kind in (Kind.POD, Kind.CONFIGMAP) for body in self.world.objects[kind].values()]
        if left:
            raise self.world.violation(f"Left over: {left}")


def _disrupt(pod: Body) -> None:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "evicting"}
    pod["status"]["conditions"] = [condition]


def _role(spec: Body, name: str) -> Body | None:
    found: Any = next((role for role in spec["taskRoles"] if role["name"] == name), None)
    return found  # type: ignore[no-any-return]
