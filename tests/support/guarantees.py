"""The guarantees, checked on the record of the world of ``tests.support.world``.

Sources: docs/guarantees.md, docs/failures-and-retries.md and docs/running.md, and not the code.
Checked are: every status that the API server stores, against the one before it; every request of a controller, against
the status that is stored at that moment (persist before act); and after every change of any object, all Pods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.causes import MOST
from frameworkcontroller.api.codec import decode_status, encode_status
from frameworkcontroller.api.spec import (
    ExecutionType,
    FrameworkSpec,
    RetryPolicy,
    SpecError,
    TaskRoleSpec,
    TaskSpec,
    parse_spec,
)
from frameworkcontroller.api.status import FrameworkStatus, State, TaskRoleStatus, TaskStatus
from frameworkcontroller.api.timestamps import parse_time
from frameworkcontroller.machine.kernel.actions import Action, ConfirmGone, ConfirmNone, Delete
from frameworkcontroller.machine.kernel.companionpart import RemoveCompanion
from frameworkcontroller.machine.kernel.model import InvariantError, Limits
from frameworkcontroller.machine.kernel.requests import Kind, PatchFinalizers, Target
from frameworkcontroller.machine.kernel.tracker import Tracker
from frameworkcontroller.machine.parts.dependencies.dependencies import RoleOrder
from tests.support.invariants import check_status, check_step
from tests.support.queueguarantees import QueueGuarantees
from tests.support.roleobjectguarantees import ROLE_OBJECTS, RoleObjectGuarantees
from tests.support.world import NAMESPACE, PODGROUPS, Body, World, controller_of, is_deleting, mark_of, name_of, uid_of

_OVER: Final = (State.ATTEMPT_COMPLETED, State.COMPLETED)
_NEVER_RETRIED: Final = (-210, -220, -230, -250)
_ALWAYS_RETRIED: Final = (-240, -241, -242, -261)
_DISRUPTED: Final = range(-1012, -1007)
_EARLY_SEC: Final = 30
"""Time in which a disruption counts, too."""


class Guarantees:
    """Watches a world, and raises ``Violation`` at once when something promised does not hold.

    ``loose``: two controllers work at once, or a request that its sender gave up is executed later. Then no status that
    was read can justify an action for sure, so C2 to C4 and persist-before-act hold again only once things settled.
    ``is_to_go`` always holds: nothing is deleted without cause.
    """

    def __init__(self, world: World, limits: Limits) -> None:
        self.world = world
        self.limits = limits
        self.loose = False
        self.hasty = False
        """Whether a controller has planned on what was to be written first: then a status may show several steps."""
        self.abandoned: set[str] = set()
        """Frameworks (by UID) that a user has deleted without foreground propagation: C2 and C4 say nothing of them."""
        self._stored: dict[str, FrameworkStatus] = {}
        self._raw: dict[str, bytes] = {}
        self._ours: set[str] = set()
        self._ownerless: set[str] = set()
        self._served: set[str] = set()
        """Frameworks (by UID) that ever had a Service."""
        self._kind = Kind.POD
        """The kind of the object that a controller creates."""
        self._begun: set[str] = set()
        """Owners (by UID) of what was created."""
        self._to_go: set[str] = set()
        self._read_as_lost: dict[str, bool] = {}
        """Whether the Node of a Pod (by UID) was lost when a controller last read it."""
        self.queues = QueueGuarantees(world)
        self.role_objects = RoleObjectGuarantees(world)
        self.on_finalizers: Callable[[PatchFinalizers, Body], None] = lambda *_: None
        """Takes a change of the finalizers of a Framework, right before it."""
        self.on_creation: Callable[[str, Kind], None] = lambda *_: None
        """Takes the UID of the Framework and the kind of an object, right before it is created."""
        self.on_progress_read: Callable[[], None] = lambda: None
        """Called right before the progress of an attempt is read live."""
        self.on_hang: Callable[[str, FrameworkStatus], None] | None = None
        """Takes the UID of the Framework and its status before, right after it is stored that an attempt hangs."""
        world.watchers.append(self.look)

    def is_ours(self, body: Body) -> bool:
        """Whether a controller has created it."""
        return uid_of(body) in self._ours

    # --- live objects ---

    def look(self) -> None:
        """Check the world as it is now."""
        self.role_objects.count_ready()
        for body in self.world.objects[Kind.FRAMEWORK].values():
            self.queues.note(body)
            self._look_at_status(body)
        if not self.loose:
            self.look_at_pods()

    def look_at_pods(self) -> None:
        """C1 to C4."""
        ours = [pod for pod in self.world.objects[Kind.POD].values() if self.is_ours(pod)]
        self.queues.look_at_pods(ours)
        tasks: dict[str, str] = {}
        attempts: dict[str, str] = {}
        for pod in self.world.objects[Kind.POD].values():
            framework = mark_of(pod, names.FRAMEWORK_UID)
            if not framework or uid_of(pod) not in self._ours or framework in self.abandoned:
                continue
            instance, task = mark_of(pod, names.FRAMEWORK_ATTEMPT_INSTANCE_UID), mark_of(pod, names.TASK_UID)
            name = name_of(pod)
            if uid_of(pod) in self._ownerless:
                # Created after another client had deleted its ConfigMap: only the collector can help.
                continue
            if tasks.setdefault(task, name) != name:
                raise self.world.violation(f"C1: {name} and {tasks[task]} are instances of one Task")
            if attempts.setdefault(framework, instance) != instance:
                raise self.world.violation(f"C3: attempts {instance} and {attempts[framework]} run at once")
            if framework in self.world.gone:
                raise self.world.violation(f"C2/C4: {name} runs, and its Framework is gone")
            status = self._stored.get(framework)
            if status is None:
                raise self.world.violation(f"{name} runs, and its Framework has no status")
            self._look_at_pod(pod, status)
            if _is_suspended(status):
                raise self.world.violation(f"Suspended is True, and {name} runs")
        for configmap in self.world.objects[Kind.CONFIGMAP].values():
            status = self._stored.get(controller_of(configmap) or "")
            if uid_of(configmap) in self._ours and status is not None and status.state in _OVER:
                raise self.world.violation(f"C4: {name_of(configmap)} is there, the status says {status.state}")

    def _look_at_pod(self, pod: Body, status: FrameworkStatus) -> None:
        name = name_of(pod)
        attempt_id = int(mark_of(pod, names.FRAMEWORK_ATTEMPT_ID))
        if status.attempt.id != attempt_id or status.state in _OVER:
            raise self.world.violation(
                f"C4: {name} of attempt {attempt_id} runs, the status says {status.attempt.id} {status.state}"
            )
        task = _task_of(status, mark_of(pod, names.TASKROLE_NAME), int(mark_of(pod, names.TASK_INDEX)))
        if task is None or task.instance_uid != mark_of(pod, names.TASK_UID):
            raise self.world.violation(f"C2: {name} runs, and its Task is deleted")
        task_attempt = int(mark_of(pod, names.TASK_ATTEMPT_ID))
        if task.attempt.id != task_attempt or task.state in _OVER:
            raise self.world.violation(
                f"C2: {name} of TaskAttempt {task_attempt} runs, the status says {task.attempt.id} {task.state}"
            )

    # --- requests of controllers ---

    def planned(self, before: bytes, tracker: Tracker, name: str) -> None:
        """Check the status as it stands after a plan or a fold."""
        after = tracker.status
        if after is None:
            raise self.world.violation("a plan left no status")
        encoded = encode_status(name, after)
        counted = {state: sum(task.state is state for task in tracker.tasks()) for state in State}
        self._require(tracker.task_states == counted, f"Tasks by state: {tracker.task_states}, but there are {counted}")
        order = tracker.find_part(RoleOrder)
        for role, indexes in () if order is None else order.ready.items():
            for index in indexes:
                one = tracker.task((role, index))
                runs = one is not None and one.state is State.RUNNING and not one.is_leaving
                self._require(runs, f"{role}[{index}] counts as ready")
        for task in tracker.tasks():
            task.encoded = None
        if encode_status(name, after) != encoded:
            raise self.world.violation(f"cached JSON of a Task is not that of the Task: {encoded!r}")
        self._check(None if not before else decode_status(orjson.loads(before)), decode_status(orjson.loads(encoded)))

    def creating(self, framework_uid: str, target: Target, body: Body) -> None:
        """A creation has reached the API server: the stored status must justify it."""
        self._kind = target.kind
        owner = controller_of(body)
        status = self._stored.get(framework_uid)
        where = f"creation of {target.name}"
        if target.kind not in (Kind.POD, *PODGROUPS):
            free = target.kind is Kind.VOLUME_CLAIM and owner is None
            self._require(free or owner == framework_uid, f"{where}: controlled by {owner}")
        if self.loose or framework_uid in self.world.gone:
            return
        if status is None:
            raise self.world.violation(f"{where}: no status is stored")
        if target.kind in ROLE_OBJECTS and (body.get("spec") or {}).get("clusterIP") != "None":
            self.role_objects.creating(framework_uid, target, body, status)
            return
        if target.kind in (Kind.SERVICE, Kind.WORKLOAD, Kind.ROLE_SCALER):
            return
        if target.kind is Kind.VOLUME_CLAIM:
            self._require(_task_of(status, target.role, target.index) is not None, f"{where}: no such Task is stored")
            return
        self._require(status.attempt.id == int(mark_of(body, names.FRAMEWORK_ATTEMPT_ID)), f"{where}: not this attempt")
        self._require(status.attempt.completion_status is None, f"{where}: the attempt is completing")
        if target.kind in PODGROUPS:
            self._require(status.attempt.configmap_uid in (None, owner), f"{where}: controlled by {owner}")
            return
        if target.kind is Kind.CONFIGMAP:
            self.queues.starting(framework_uid, self.world.specs.get((framework_uid, status.observed_generation or 0)))
            self._require(status.state is State.CREATION_PENDING, f"{where}: the stored state is {status.state}")
            self._require(not _is_suspended(status), f"{where}: Suspended is True")
            spec = self.spec_of(framework_uid, status.observed_generation)
            has_names = spec is None or not spec.has_hostnames or framework_uid in self._served
            self._require(has_names, f"{where}: there was never a Service")
            deadline = None if spec is None else spec.active_deadline_seconds
            past = status.accumulated_past_execution_time_seconds
            self._require(deadline is None or past < deadline, f"{where}: {past}s of {deadline}s are over")
            return
        task = _task_of(status, target.role, target.index)
        if task is None:
            raise self.world.violation(f"{where}: no such Task is stored")
        self._require(task.instance_uid == mark_of(body, names.TASK_UID), f"{where}: not this Task instance")
        self._require(task.attempt.id == int(mark_of(body, names.TASK_ATTEMPT_ID)), f"{where}: not this TaskAttempt")
        self._require(task.state is State.CREATION_PENDING, f"{where}: the stored state is {task.state}")
        self._require(not task.is_leaving, f"{where}: the Task is deletionPending")
        recorded = status.attempt.configmap_uid
        self._require(recorded in (None, owner), f"{where}: controlled by {owner}, recorded is {recorded}")
        self._require_claims(framework_uid, target)
        self.queues.creating_pod(framework_uid, body)
        role = next(role for role in status.attempt.roles if role.name == target.role)
        always = self._depends(framework_uid, target.role)
        self._require(role.started or not always, f"D: {where}: the start of its TaskRole is not stored")

    def _require_claims(self, framework_uid: str, pod: Target) -> None:
        """The claims of a Task existed, as this Framework's, before its Pod."""
        specs = [spec for (uid, _), spec in self.world.specs.items() if uid == framework_uid]
        roles = [one for spec in specs for one in spec.get("taskRoles") or () if one["name"] == pod.role]
        for claim in {one["metadata"]["name"] for role in roles for one in role.get("volumeClaimTemplates") or ()}:
            events = (orjson.loads(event.raw) for event in self.world.events[Kind.VOLUME_CLAIM])
            found = (mark_of(body, names.FRAMEWORK_UID) for body in events if name_of(body) == f"{claim}-{pod.name}")
            self._require(framework_uid in found, f"creation of {pod.name}: its claim {claim} never existed")

    def _depends(self, framework_uid: str, role: str) -> bool:
        """Whether every spec that the Framework has had lets the role depend on others."""
        specs = [spec for (uid, _), spec in self.world.specs.items() if uid == framework_uid]
        roles = [item for spec in specs for item in spec.get("taskRoles") or () if item["name"] == role]
        return len(roles) == len(specs) and all(item.get("dependsOn") for item in roles)

    def created(self, body: Body) -> None:
        """A controller has created this."""
        self._ours.add(uid_of(body))
        self.queues.created(body)
        self._begun.add(controller_of(body) or "")
        if self._kind is Kind.SERVICE and body["spec"].get("clusterIP") == "None":
            self._served.add(controller_of(body) or "")
        if controller_of(body) in self.world.gone:
            self._ownerless.add(uid_of(body))

    def deleting(self, framework_uid: str, action: Action, uid: str) -> None:
        """A deletion has reached the API server: the stored status must justify it, and it must be of ours."""
        target = action.target
        body = self.world.find(target.kind, uid)
        where = f"deletion of {target.name} {uid}"
        if body is None or name_of(body) != target.name:
            return
        if target.kind in ROLE_OBJECTS and isinstance(action, RemoveCompanion):
            self.role_objects.deleting(framework_uid, target, body, self._stored.get(framework_uid))
            return
        if target.kind in (Kind.SERVICE, *PODGROUPS):
            raise self.world.violation(f"{where}: a controller never deletes one")
        if target.kind is Kind.WORKLOAD:
            self._require(controller_of(body) == framework_uid, f"{where}: it is not ours")
            return
        if target.kind is Kind.ROLE_SCALER:
            self._justify_scaler_deletion(framework_uid, body, where)
            return
        if target.kind is Kind.VOLUME_CLAIM:
            self._justify_claim_deletion(framework_uid, target, body, where)
            return
        if target.kind is not Kind.FRAMEWORK:
            self._require(uid in self._ours, f"{where}: it is not ours")
            self._require(
                is_deleting(body) or self.is_to_go(target.kind, body),
                f"{where}: no status that was ever stored gives cause to",
            )
        status = self._stored.get(framework_uid)
        if self.loose or status is None:
            return
        if target.kind is Kind.POD:
            self._justify_pod_deletion(status, action, body, where)
        elif target.kind is Kind.CONFIGMAP:
            self._justify_configmap_deletion(status, action, body, where)
        else:
            self._require(status.state is State.COMPLETED, f"{where}: the stored state is {status.state}")
            ttl = self._shortest_ttl(framework_uid)
            self._require(self.world.latest >= status.transition_time + ttl, f"{where}: it is to be retained")

    def ending(self, framework_uid: str, kind: Kind, uid: str) -> None:
        """A controller deletes an object of an ignored Framework: it must be ours, and the Framework deleted."""
        framework = self.world.find(Kind.FRAMEWORK, framework_uid)
        where = f"deletion of {kind} {uid}"
        self._require(uid in self._ours or self.world.find(kind, uid) is None, f"{where}: it is not ours")
        self._require(framework is None or is_deleting(framework), f"{where}: its Framework is not deleted")
        # Nothing is decided for it, so no end is stored before.
        self.abandoned.add(framework_uid)

    def _shortest_ttl(self, framework_uid: str) -> int:
        """Of all specs, as the cache may show an older one."""
        specs = (spec for (uid, _), spec in self.world.specs.items() if uid == framework_uid)
        ttls = [spec.get("ttlSecondsAfterFinished") for spec in specs]
        return min(self.limits.framework_completed_retain_sec if ttl is None else ttl for ttl in ttls)

    def node_read(self, uid: str, node: str) -> None:
        """A controller reads the Node of a Pod that it wants to delete by force."""
        self._read_as_lost[uid] = is_lost(self.world.objects[Kind.NODE].get(node))

    def marking(self, framework_uid: str, body: Body) -> None:
        """A claim is changed: its annotations name a Task of this Framework, or of an earlier one."""
        where = f"change of {name_of(body)}"
        self._require(controller_of(body) in (None, framework_uid), f"{where}: it has another controller")
        _, framework, role, index = names.split_claim_name(name_of(body)) or ("", "", "", 0)
        namespace = body["metadata"].get("namespace", NAMESPACE)
        said = [mark_of(body, name) for name in names.CLAIM_IDENTITY]
        self._require(said == [namespace, framework, role, str(index)], f"{where}: it says {said}")

    def _justify_claim_deletion(self, framework_uid: str, target: Target, body: Body, where: str) -> None:
        self._require(mark_of(body, names.FRAMEWORK_UID) == framework_uid, f"{where}: it is not ours")
        self.marking(framework_uid, body)
        self._require(mark_of(body, names.WHEN_SCALED) == "Delete", f"{where}: it is to be retained")
        pod = names.pod_name(target.name.split("-")[1], target.role, target.index)
        self._require(pod not in self.world.objects[Kind.POD], f"{where}: its Pod exists")
        status = self._stored.get(framework_uid)
        if not self.loose and status is not None:
            self._require(_task_of(status, target.role, target.index) is None, f"{where}: its Task is stored")

    def patching(self, framework_uid: str, kind: Kind, before: Body, after: Body) -> None:
        """A controller's patch is about to change an object."""
        if kind is Kind.VOLUME_CLAIM:
            self.marking(framework_uid, before)
        elif kind is Kind.WORKLOAD:
            self.queues.patching_workload(framework_uid, before, after, loose=self.loose)
        elif kind in ROLE_OBJECTS and before.get("spec") != after.get("spec"):
            self._require(uid_of(before) in self._ours, f"O: change of {name_of(before)}: it is not ours")
            status = self._stored.get(framework_uid)
            if status is not None and not self.loose:
                self.role_objects.check_minimum(framework_uid, name_of(before), after, status)
        elif kind in PODGROUPS:
            self._require(uid_of(before) in self._ours, f"change of {name_of(before)}: it is not ours")
            self.queues.patching_group(before, after, kind)
        else:
            self.relabelling(before)

    def relabelling(self, body: Body) -> None:
        """A label is restored: only on our objects."""
        self._require(uid_of(body) in self._ours, f"label of {name_of(body)}: it is not ours")

    def _justify_scaler_deletion(self, framework_uid: str, body: Body, where: str) -> None:
        self._require(controller_of(body) == framework_uid, f"{where}: it is not ours")
        status = self._stored.get(framework_uid)
        if not self.loose and status is not None:
            kept = {role.autoscaling.scaler_id for role in status.attempt.roles if role.autoscaling is not None}
            self._require(mark_of(body, names.SCALER_ID) not in kept, f"{where}: its role has autoscaling")

    def _justify_pod_deletion(self, status: FrameworkStatus, action: Action, body: Body, where: str) -> None:
        found = next(
            ((role, task) for role, task in _tasks(status) if task.attempt.pod_uid == uid_of(body)),
            None,
        )
        if found is None:
            # Controlled but not recorded.
            owner = controller_of(body)
            recorded = status.attempt.configmap_uid
            holder = None if owner is None else self.world.find(Kind.CONFIGMAP, owner)
            self._require(
                recorded in (None, owner) or (holder is not None and is_deleting(holder)),
                f"{where}: it is controlled by {owner} and not by {recorded}",
            )
            if isinstance(action, Delete) and action.force:
                named = mark_of(body, names.TASKROLE_NAME)
                bearer = next((role for role in status.attempt.roles if role.name == named), None)
                self._justify_force(action, body, where, bearer)
            return
        role, task = found
        if isinstance(action, Delete) and action.force:
            self._justify_force(action, body, where, role)
        elif task.state is State.CREATION_REQUESTED:
            waited = task.transition_time + self.limits.object_local_cache_creation_timeout_sec
            self._require(task.is_leaving or self.world.latest >= waited, f"{where}: the cache has not been waited for")
        else:
            self._require(task.state is State.DELETION_PENDING, f"{where}: the stored state is {task.state}")

    def _justify_force(self, action: Delete, body: Body, where: str, role: TaskRoleStatus | None) -> None:
        timeout = None if role is None else role.pod_graceful_deletion_timeout_sec
        metadata = body["metadata"]
        self._require(timeout is not None, f"{where}: forced, and no timeout is stored")
        self._require(is_deleting(body), f"{where}: forced, and it is not being deleted")
        began = parse_time(metadata["deletionTimestamp"]) - metadata["deletionGracePeriodSeconds"]
        self._require(self.world.latest >= began + (timeout or 0), f"{where}: forced too early")
        self._require(action.confirm, f"{where}: forced without a live read")
        if role is not None and role.pod_force_deletion_policy == "NodeUnreachable" and body["spec"].get("nodeName"):
            lost = self._read_as_lost.get(uid_of(body), False)
            self._require(lost, f"{where}: forced, and its Node was not found to be lost")

    def _justify_configmap_deletion(self, status: FrameworkStatus, action: Action, body: Body, where: str) -> None:
        uid = uid_of(body)
        if status.attempt.configmap_uid != uid:
            # Controlled but not recorded.
            if status.state is State.CREATION_PENDING and not self._is_stopped(mark_of(body, names.FRAMEWORK_UID)):
                same = int(mark_of(body, names.FRAMEWORK_ATTEMPT_ID)) == status.attempt.id
                runs = same and uid in self._begun and status.attempt.completion_status is None
                self._require(not runs, f"{where}: it has had Pods, and its attempt would run twice")
            return
        if status.state is State.CREATION_REQUESTED:
            waited = status.transition_time + self.limits.object_local_cache_creation_timeout_sec
            stop = any(spec.get("executionType") == "Stop" for (_, _), spec in self.world.specs.items())
            stop |= status.attempt.completion_status is not None
            self._require(stop or self.world.latest >= waited, f"{where}: the cache has not been waited for")
        else:
            self._require(status.state is State.DELETION_PENDING, f"{where}: the stored state is {status.state}")
        self._require(not isinstance(action, ConfirmNone | ConfirmGone), f"{where}: by a {type(action).__name__}")

    def is_to_go(self, kind: Kind, body: Body) -> bool:
        """Whether a status that was ever stored gives a controller cause to delete this Pod or ConfigMap.

        This holds for any number of controllers: annotations name one attempt of one Task by random UIDs, and no
        status ever reverts.
        """
        if uid_of(body) not in self._to_go and self._may_go(kind, body):
            self._to_go.add(uid_of(body))
        return uid_of(body) in self._to_go

    def _may_go(self, kind: Kind, body: Body) -> bool:
        """Whether the status that is stored now gives cause."""
        framework = mark_of(body, names.FRAMEWORK_UID)
        status = self._stored.get(framework)
        if status is None:
            return not framework or framework in self.world.gone
        attempt, named = status.attempt, int(mark_of(body, names.FRAMEWORK_ATTEMPT_ID))
        if attempt.completion_status is not None or attempt.id > named or self._is_stopped(framework):
            return True
        if attempt.configmap_uid is None and self._is_ending(framework):
            # Nothing of it is recorded, and a deletion is final.
            return True
        if attempt.id < named:
            return False
        configmap = uid_of(body) if kind is Kind.CONFIGMAP else controller_of(body)
        if attempt.configmap_uid not in (None, configmap):
            return True
        if kind is Kind.CONFIGMAP:
            if status.state is State.CREATION_PENDING:
                # It came after a live read had shown that there is none.
                return self.loose and (self._was_suspended(framework) or self.queues.has_moved(framework))
            return status.state is State.CREATION_REQUESTED and self._is_overdue(status)
        task = next((task for _, task in _tasks(status) if task.instance_uid == mark_of(body, names.TASK_UID)), None)
        if task is None or task.is_leaving or task.attempt.id > int(mark_of(body, names.TASK_ATTEMPT_ID)):
            return True
        if task.attempt.id < int(mark_of(body, names.TASK_ATTEMPT_ID)):
            return False
        if task.attempt.pod_uid != uid_of(body):
            return task.attempt.pod_uid is not None or task.state is not State.CREATION_PENDING
        if task.state is State.CREATION_REQUESTED:
            return self._is_overdue(task)
        return task.attempt.completion_status is not None

    def _is_overdue(self, waits: FrameworkStatus | TaskStatus) -> bool:
        """Whether the cache may have been waited for for long enough."""
        since, limit = waits.transition_time, self.limits.object_local_cache_creation_timeout_sec
        return self.world.latest >= since + limit

    def _is_ending(self, framework: str) -> bool:
        """Whether the Framework is being deleted, which a controller whose history blocks takes for a Stop."""
        body = self.world.find(Kind.FRAMEWORK, framework)
        return self.limits.history_blocks and body is not None and is_deleting(body)

    def _is_stopped(self, framework: str) -> bool:
        """Whether the newest spec stops it: that is final, so unrecorded objects may go at once."""
        newest = max((generation for uid, generation in self.world.specs if uid == framework), default=0)
        return newest > 0 and self.world.specs[framework, newest].get("executionType") == "Stop"

    def _was_suspended(self, framework: str) -> bool:
        """Whether the user has ever suspended it."""
        return any(spec.get("suspend") for (uid, _), spec in self.world.specs.items() if uid == framework)

    def _note_causes(self, framework: str) -> None:
        for kind in (Kind.POD, Kind.CONFIGMAP):
            for body in self.world.objects[kind].values():
                if mark_of(body, names.FRAMEWORK_UID) == framework:
                    self.is_to_go(kind, body)

    def _require(self, holds: bool, text: str) -> None:
        if not holds:
            raise self.world.violation(text)

    # --- stored statuses ---

    def _look_at_status(self, body: Body) -> None:
        uid = uid_of(body)
        raw = orjson.dumps(body.get("status"))
        if raw == self._raw.get(uid, b"null"):
            return
        self._raw[uid] = raw
        before = self._stored.get(uid)
        after = decode_status(body["status"])
        if after is None:
            raise self.world.violation("an empty status was stored")
        self.world.tell(f"STORED {summary(after)}")
        self._check(before, after)
        self._note_causes(uid)
        self._stored[uid] = after
        self._note_causes(uid)
        generation = body["metadata"]["generation"]
        observed = after.observed_generation or 0
        is_final = after.phase in ("Succeeded", "Failed", "Stopped")
        self._require(is_final == (after.state is State.COMPLETED), f"P: {after.phase} is stored with {after.state}")
        self._require(len(after.message) <= MOST and after.message.isprintable(), f"message: {after.message!r}")
        self._require(observed <= generation, f"observedGeneration {observed} is ahead of {generation}")
        self._check_wire(name_of(body), body["status"])
        if _is_suspended(after):
            waits = after.state in (State.CREATION_PENDING, State.ATTEMPT_COMPLETED)
            self._require(waits and self._was_suspended(uid), f"Suspended is True, and it is {after.state}")
        if before is None:
            self._require(after.state is State.CREATION_PENDING, f"the first status stored says {after.state}")
            return
        self._require(observed >= (before.observed_generation or 0), "observedGeneration went back")
        self._check_framework(uid, before, after)
        if after.attempt.id == before.attempt.id:
            self._check_roles(uid, before, after)

    def _check(self, before: FrameworkStatus | None, after: FrameworkStatus | None) -> None:
        assert after is not None
        try:
            check_status(after)
            if before is not None:
                check_step(before, after)
        except InvariantError as error:
            raise self.world.violation(str(error)) from error

    def _check_wire(self, name: str, body: Any) -> None:
        attempt = body["attemptStatus"]
        self._require(attempt["configMapName"] == f"{name}-attempt", "configMapName")
        for role in attempt["taskRoleStatuses"]:
            for index, task in enumerate(role["taskStatuses"]):
                self._require(task["index"] == index, f"{role['name']}: Task {index} has index {task['index']}")
                pod = task["attemptStatus"]
                self._require(pod["podName"] == f"{name}-{role['name']}-{index}", "podName")
                uid = pod["podUID"]
                self._require(pod["instanceUID"] == (None if uid is None else f"{pod['id']}_{uid}"), "instanceUID")

    def _check_framework(self, uid: str, before: FrameworkStatus, after: FrameworkStatus) -> None:
        old, new = before.attempt, after.attempt
        spec = self.spec_of(uid, after.observed_generation)
        if new.id != old.id:
            self._require(new.id == old.id + 1, f"Framework attempt {new.id} follows {old.id}")
            self._require(
                before.state is State.ATTEMPT_COMPLETED, f"attempt {new.id} began when {before.state} was stored"
            )
            self._require(after.state is State.CREATION_PENDING, f"attempt {new.id} is first seen as {after.state}")
            known = {role.instance_uid for role in old.roles} | {task.instance_uid for _, task in _tasks(before)}
            fresh = {role.instance_uid for role in new.roles} | {task.instance_uid for _, task in _tasks(after)}
            self._require(not known & fresh, f"attempt {new.id} reuses instance UIDs")
            self._require(not new.scheduled_pod_groups, f"G1: attempt {new.id} begins with groups that were placed")
            if spec is not None and before.retry.retry_delay_sec is None:
                self._check_retry("Framework", spec.retry_policy, before, after, retried=True)
            if spec is not None and spec.execution_type is not ExecutionType.STOP:
                self._check_delay(spec.retry_policy, before)
                self._check_back_off("Framework", [one.retry_policy for one in self._specs(uid)], before, after)
            return
        self._check_active_time(before, after)
        if before.state is not State.COMPLETED and after.state is State.COMPLETED and spec is not None:
            self._check_retry("Framework", spec.retry_policy, before, after, retried=False)
        if after.state is State.DELETION_REQUESTED:
            asked = before.state in (State.DELETION_PENDING, State.DELETION_REQUESTED)
            self._require(asked, f"deletion requested when {before.state} was stored")
        if old.completion_status is None and new.completion_status is not None and spec is not None:
            self._check_decision(uid, spec, before, after)

    def _check_delay(self, policy: RetryPolicy, before: FrameworkStatus) -> None:
        delay, completion = before.retry.retry_delay_sec, before.attempt.completion_status
        if delay is None:
            conflict = completion is not None and "Conflict" in (completion.attributes or ())
            self._require(not (conflict and policy.fancy_retry_policy), "retried, and its delay was never stored")
        else:
            self._require(self.world.latest >= before.transition_time + delay, f"retried before its {delay}s were over")

    def _check_retry(
        self,
        what: str,
        policy: RetryPolicy,
        before: FrameworkStatus | TaskStatus,
        after: FrameworkStatus | TaskStatus,
        *,
        retried: bool,
    ) -> None:
        """Rules 1 to 3 of Retry, and Failure rules, word by word."""
        completion = (before if retried else after).attempt.completion_status
        assert completion is not None
        failed = completion.type_name != "Succeeded"
        attributes = completion.attributes or ()
        limit, used = policy.max_retry_count, before.retry.accountable_retried_count
        action = None if completion.policy is None else completion.policy.action
        ends = {"FailTask", "RestartFramework"} if isinstance(before, TaskStatus) else set()
        if completion.code in _ALWAYS_RETRIED:
            due, accountable = True, False
        elif completion.code in _NEVER_RETRIED or action in {"FailFramework", *ends}:
            due, accountable = False, False
        elif action == "Ignore" or (policy.fancy_retry_policy and failed and "Transient" in attributes):
            due, accountable = True, False
        elif policy.fancy_retry_policy and failed and "Permanent" in attributes:
            due, accountable = False, False
        else:
            due, accountable = limit == -2 or (failed and (limit == -1 or used < limit)), True
        if before.retry.retry_delay_sec is None or after.attempt.id == before.attempt.id:
            self._require(retried == due, f"{what}: retried: {retried}, but {policy} of {completion} says {due}")
        if after.attempt.id != before.attempt.id:
            counted = after.retry.accountable_retried_count - used
            self._require(counted == accountable, f"{what}: accountable retries went up by {counted}")

    def _check_end_by_rule(self, before: FrameworkStatus, status: FrameworkStatus) -> None:
        completion = status.attempt.completion_status
        assert completion is not None
        assert completion.policy is not None
        assert completion.trigger is not None
        self._require(
            completion.policy.action in ("RestartFramework", "FailFramework"), f"ended by {completion.policy}"
        )
        task = _task_of(status, completion.trigger.task_role_name, completion.trigger.task_index)
        if task is None or task.attempt.completion_status is None:
            raise self.world.violation(f"ended by {completion.trigger}, which did not fail")
        found = task.attempt.completion_status
        told = (found.code, found.policy) == (completion.code, completion.policy)
        self._require(told, f"ended by {completion.policy}, and the Task says {found}")
        leaving = _task_of(before, completion.trigger.task_role_name, completion.trigger.task_index)
        self._require(leaving is None or not leaving.is_leaving, "ended by a Task that is deletionPending")

    def _check_decision(self, uid: str, spec: FrameworkSpec, before: FrameworkStatus, status: FrameworkStatus) -> None:
        completion = status.attempt.completion_status
        assert completion is not None
        trigger = completion.trigger
        if completion.policy is not None:
            self._check_end_by_rule(before, status)
        elif trigger is not None and trigger.message == completion.diagnostics:
            self._check_all_completed(spec, before, status)
        elif trigger is not None:
            role_spec = spec.role(trigger.task_role_name)
            if role_spec is None:
                raise self.world.violation(f"triggered by {trigger}, whose role is not in the spec")
            policy = role_spec.framework_attempt_completion_policy
            ended = [task for role, task in _tasks(status) if role.name == trigger.task_role_name and _counts(task)]
            succeeded = sum(_succeeded(task) for task in ended)
            waiting = next((role for role in spec.task_roles if trigger.message.startswith(_unmet(role.name))), None)
            if waiting is not None:
                self._check_unmet(waiting, trigger.task_role_name, status)
                return
            expected = {
                f"FailedTaskCount {len(ended) - succeeded} has reached MinFailedTaskCount "
                f"{policy.min_failed_task_count} in the TaskRole",
                f"SucceededTaskCount {succeeded} has reached MinSucceededTaskCount "
                f"{policy.min_succeeded_task_count} in the TaskRole",
            }
            self._require(
                self.hasty or trigger.message in expected, f"triggered by {trigger}, the status says one of {expected}"
            )
        elif completion.code == -210:
            asked = spec.execution_type is ExecutionType.STOP or self._is_ending(uid)
            self._require(asked, "-210, and nobody asked to stop")
        elif completion.code == -240:
            asked = spec.suspend and spec.execution_type is not ExecutionType.STOP
            self._require(asked, "-240, and nobody asked to suspend")
        elif completion.code == -241:
            admitted = None if before.admission is None else before.admission.workload_uid
            self.queues.evicting(uid, admitted, completion.diagnostics)
        elif completion.code == -250:
            deadline, started = spec.active_deadline_seconds, status.attempt.execution_start_time
            active: float = before.accumulated_past_execution_time_seconds
            if started is not None:
                active += self.world.latest - started
            self._require(deadline is not None and active >= deadline, f"-250 after {active}s of {deadline}s")
        elif completion.code == -252 and self.on_hang is not None:
            self.on_hang(uid, before)
        else:
            self._require(completion.code in (-100, -110), f"the attempt completed with {completion.code}")

    def _check_unmet(self, waiting: TaskRoleSpec, role: str, status: FrameworkStatus) -> None:
        """An attempt ended because of a dependency: its role has failed, and nothing else has ended the attempt."""
        self._require(("Complete", role) in [(one.status, one.name) for one in waiting.depends_on], "no dependency")
        tasks = {one.name: one for one in status.attempt.roles}
        self._require(not tasks[waiting.name].started, f"{waiting.name} has started, and its dependency is unmet")
        ended = [task for owner, task in _tasks(status) if owner.name == role and _counts(task)]
        self._require(
            not all(map(_succeeded, ended)), f"no Task of {role} has failed, and {waiting.name} is told that one has"
        )

    def _check_start(self, spec: FrameworkSpec, name: str, after: FrameworkStatus) -> None:
        """A role starts when all Tasks that it waits for have succeeded, or have run."""
        tasks = {role.name: [task for task in role.tasks if not task.is_leaving] for role in after.attempt.roles}
        role = spec.role(name)
        for one in () if role is None else role.depends_on:
            where = f"{name} starts, and {one.name} is not {one.status}"
            if one.status == "Complete":
                ended = [_counts(task) and _succeeded(task) for task in tasks[one.name]]
                self._require(all(ended), where)
            else:
                self._require(all(task.run_time is not None or _counts(task) for task in tasks[one.name]), where)

    def _check_all_completed(self, spec: FrameworkSpec, before: FrameworkStatus, status: FrameworkStatus) -> None:
        completion = status.attempt.completion_status
        assert completion is not None
        assert completion.trigger is not None
        total = sum(number_of(role, before) for role in spec.task_roles)
        ended = {(role.name, task.index): task for role, task in _tasks(status) if _counts(task)}
        self._require(1 <= total == len(ended), f"{len(ended)} of {total} Tasks completed, and so has the attempt")
        self._require(completion.code == 0, f"all Tasks completed, and the attempt with {completion.code}")
        rules = [task.attempt.completion_status.policy for task in ended.values() if task.attempt.completion_status]
        ending = [rule for rule in rules if rule is not None and rule.action in ("RestartFramework", "FailFramework")]
        self._require(not ending, f"all Tasks completed, one by {ending}")
        last = ended.get((completion.trigger.task_role_name, completion.trigger.task_index))
        if last is None:
            raise self.world.violation(f"completed by {completion.trigger}, which is no completed Task")
        stored = {task.instance_uid for _, task in _tasks(before) if task.state is State.COMPLETED}
        if self.loose:
            # Another controller may have seen another order than the one that was stored.
            stored = set()
        for (role, index), task in ended.items():
            later = (task.completion_time or 0, task.instance_uid not in stored)
            self._require(
                later <= (last.completion_time or 0, last.instance_uid not in stored),
                f"completed by {completion.trigger}, and {role}[{index}] came later",
            )

    def _check_roles(self, uid: str, before: FrameworkStatus, after: FrameworkStatus) -> None:
        spec = self.spec_of(uid, after.observed_generation)
        roles = {role.name: role for role in after.attempt.roles}
        for old in before.attempt.roles:
            new = roles.pop(old.name, None)
            if new is None or new.instance_uid != old.instance_uid:
                self._require(all(_has_left(task) for task in old.tasks), f"TaskRole {old.name} was dropped with Tasks")
                continue
            self.role_objects.check_count(old, new)
            always = new.started and not old.started and self._depends(uid, old.name)
            if spec is not None and always and after.observed_generation == before.observed_generation:
                self._check_start(spec, old.name, after)
            for task in old.tasks[len(new.tasks) :]:
                self._require(_has_left(task), f"{old.name}[{task.index}] was dropped when {task.state} was stored")
            for was, task in zip(old.tasks, new.tasks, strict=False):
                where = f"{old.name}[{task.index}]"
                if task.instance_uid != was.instance_uid:
                    self._require(_has_left(was), f"{where} was replaced when {was.state} was stored")
                    self._check_new_task(where, task)
                else:
                    role_spec = None if spec is None else spec.role(old.name)
                    self._check_task(where, was, task, None if role_spec is None else role_spec.task.retry_policy)
                    # No rule applies to a Task whose attempt of the Framework ends.
                    ends = after.attempt.completion_status is not None
                    self._check_history_of_task(uid, where, was, task, ends=ends)
                    if task.attempt.id == was.attempt.id and was.state is State.RUNNING:
                        early = _completion_code(task) == -260 and _completion_code(was) is None
                        self._require(not early, f"{where} ran, and ended with -260")
            for task in new.tasks[len(old.tasks) :]:
                self._check_new_task(f"{old.name}[{task.index}]", task)
        for role in roles.values():
            for task in role.tasks:
                self._check_new_task(f"{role.name}[{task.index}]", task)

    def _check_new_task(self, where: str, task: TaskStatus) -> None:
        if self.hasty:
            return
        self._require(task.state is State.CREATION_PENDING, f"{where} is new and first seen as {task.state}")
        self._require(not task.is_leaving, f"{where} is new and deletionPending")
        self._require(task.attempt.id == 0, f"{where} is new and at attempt {task.attempt.id}")

    def _check_task(self, where: str, before: TaskStatus, after: TaskStatus, policy: RetryPolicy | None) -> None:
        old, new = before.attempt, after.attempt
        if new.id != old.id:
            self._require(new.id == old.id + 1, f"{where}: attempt {new.id} follows {old.id}")
            self._require(before.state is State.ATTEMPT_COMPLETED, f"{where}: retried when {before.state} was stored")
            self._require(after.state is State.CREATION_PENDING, f"{where}: retried and first seen as {after.state}")
            self._require(not before.is_leaving, f"{where}: retried, and it is deletionPending")
            ended = old.completion_status
            is_decided = before.retry.retry_delay_sec is not None and (ended is None or ended.policy is None)
            if policy is not None and not is_decided:
                self._check_retry(where, policy, before, after, retried=True)
            return
        if policy is not None and before.retry.retry_delay_sec is None and after.retry.retry_delay_sec is not None:
            # This is the decision: the policy may change while the delay passes.
            self._check_retry(where, policy, after, after, retried=True)
        if after.state is State.DELETION_REQUESTED:
            asked = before.state in (State.DELETION_PENDING, State.DELETION_REQUESTED)
            self._require(asked, f"{where}: deletion requested when {before.state} was stored")
        for field in ("pod_node_name", "pod_ip", "pod_host_ip"):
            value = getattr(old, field)
            self._require(not value or getattr(new, field) == value, f"{where}: {field} went back")
            self._require(value is None or getattr(new, field) is not None, f"{where}: {field} went back to null")

    def _check_active_time(self, before: FrameworkStatus, after: FrameworkStatus) -> None:
        """The active time of an attempt is added to the earlier ones once, at its end."""
        past, attempt = before.accumulated_past_execution_time_seconds, after.attempt
        if before.state not in _OVER and after.state in _OVER and attempt.execution_start_time is not None:
            past += max(0, (attempt.completion_time or 0) - attempt.execution_start_time)
        found = after.accumulated_past_execution_time_seconds
        self._require(found == past, f"the active time of all attempts is {found}s, expected are {past}s")

    def _check_history_of_task(
        self, uid: str, where: str, before: TaskStatus, after: TaskStatus, *, ends: bool
    ) -> None:
        """Check by all specs so far, as the cache may have shown an older one."""
        if before.attempt.id != after.attempt.id:
            self._check_back_off(where, [one.retry_policy for one in self.task_specs(uid, after.role)], before, after)
            return
        completion = after.attempt.completion_status
        if before.attempt.completion_status is not None or completion is None:
            return
        if completion.policy is None:
            specs = self.task_specs(uid, after.role)
            ignored = (
                bool(specs)
                and not ends
                and not after.is_leaving
                and all(_matches_surely(one, completion.code) for one in specs)
            )
            self._require(not ignored, f"{where} ended with {completion.code}, and its failure rule was ignored")
            return
        found = completion.policy
        for task in self.task_specs(uid, after.role):
            rules = () if task.pod_failure_policy is None else task.pod_failure_policy.rules
            if found.rule < len(rules) and rules[found.rule].action == found.action:
                earlier = [rule.on_completion_codes for rule in rules[: found.rule]]
                if not any(codes is not None and completion.code in codes for codes in earlier):
                    return
        raise self.world.violation(f"{where} ended with {completion.code}, and {found} was never the first to match")

    def _check_back_off(
        self,
        what: str,
        policies: list[RetryPolicy],
        before: FrameworkStatus | TaskStatus,
        after: FrameworkStatus | TaskStatus,
    ) -> None:
        """A retry waits for its back-off, if all specs had one; after a disruption it neither waits nor counts."""
        completion, attempt = before.attempt.completion_status, before.attempt
        assert completion is not None
        delay = before.retry.retry_delay_sec or 0
        if completion.code in _DISRUPTED:
            lasted = (attempt.completion_time or 0) - attempt.start_time
            counted = after.retry.recent_retried_count > before.retry.recent_retried_count
            waits = delay and "Conflict" not in (completion.attributes or ())
            self._require(lasted < _EARLY_SEC or not (waits or counted), f"{what}: a disruption waits or counts")
            return
        if self.loose or completion.code in _ALWAYS_RETRIED:
            return
        least = min(
            (0 if one.backoff is None else min(one.backoff.base_seconds, one.backoff.max_seconds) for one in policies),
            default=0,
        )
        # A delay may be over before it is written.
        waited = delay if before.retry.retry_delay_sec is not None else self.world.latest - before.transition_time
        self._require(waited >= least, f"{what}: retried after {waited:g}s, its back-off is {least}s at least")
        self._require(self.world.latest >= before.transition_time + delay, f"{what}: retried before its {delay}s")

    def task_specs(self, uid: str, name: str) -> list[TaskSpec]:
        """Return the Tasks of a role by all valid specs that the Framework has had."""
        return [role.task for spec in self._specs(uid) if (role := spec.role(name)) is not None]

    def _specs(self, uid: str) -> list[FrameworkSpec]:
        """All valid specs that the Framework has had."""
        found = (self.spec_of(uid, generation) for known, generation in self.world.specs if known == uid)
        return [spec for spec in found if spec is not None]

    def spec_of(self, uid: str, generation: int | None) -> FrameworkSpec | None:
        """The spec of that generation, None if it is invalid or unknown."""
        try:
            return parse_spec(self.world.specs[uid, generation or 0])
        except (SpecError, KeyError):
            return None


def number_of(role: TaskRoleSpec, status: FrameworkStatus) -> int:
    """The number of Tasks that the role is to have by that stored status."""
    if role.autoscaling is None:
        return role.task_number
    found = next((one for one in status.attempt.roles if one.name == role.name), None)
    if found is None:
        number = role.task_number
    elif found.autoscaling is not None and found.autoscaling.scaler_id:
        number = found.autoscaling.task_number
    else:
        number = sum(not task.is_leaving for task in found.tasks)
    return role.autoscaling.bounded(number)


def _matches_surely(task: TaskSpec, code: int) -> bool:
    """Whether a failure of a Pod's only container with this code matches a rule."""
    rules = () if task.pod_failure_policy is None else task.pod_failure_policy.rules
    patterns = (one.on_completion_codes or one.on_exit_codes for one in rules)
    return code > 0 and any(one is not None and code in one for one in patterns)


def is_lost(node: Body | None) -> bool:
    """Whether this Node is lost, as pages define it: absent, unreachable or out of service."""
    taints = () if node is None else (node.get("spec") or {}).get("taints") or ()
    keys = {taint["key"] for taint in taints}
    return node is None or bool(keys & {"node.kubernetes.io/unreachable", "node.kubernetes.io/out-of-service"})


def _is_suspended(status: FrameworkStatus) -> bool:
    return any(item.type == "Suspended" and item.status == "True" for item in status.conditions)


def _unmet(role: str) -> str:
    return f"TaskRole {role} depends on "


def summary(status: FrameworkStatus) -> str:
    """A status in one line."""
    text = f"attempt {status.attempt.id} {_short(status.state)} {_code(status)}".rstrip()
    for role in status.attempt.roles:
        tasks = ", ".join(
            f"{task.attempt.id}:{_short(task.state)}{'!' if task.is_leaving else ''}{_code(task)}"
            for task in role.tasks
        )
        text += f" | {role.name}{' started' * role.started}: {tasks}"
    return text


def _short(state: State) -> str:
    return state.value.removeprefix("Attempt") if state is not State.ATTEMPT_COMPLETED else state.value


def _code(status: FrameworkStatus | TaskStatus) -> str:
    completion = status.attempt.completion_status
    return "" if completion is None else f"({completion.code})"


def _tasks(status: FrameworkStatus) -> Iterator[tuple[TaskRoleStatus, TaskStatus]]:
    return ((role, task) for role in status.attempt.roles for task in role.tasks)


def _task_of(status: FrameworkStatus, role_name: str, index: int) -> TaskStatus | None:
    for role, task in _tasks(status):
        if role.name == role_name and task.index == index:
            return task
    return None


def _has_left(task: TaskStatus) -> bool:
    return task.is_leaving and task.state is State.COMPLETED


def _completion_code(task: TaskStatus) -> int | None:
    """The completion code of the current attempt."""
    completion = task.attempt.completion_status
    return None if completion is None else completion.code


def _counts(task: TaskStatus) -> bool:
    return task.state is State.COMPLETED and not task.is_leaving


def _succeeded(task: TaskStatus) -> bool:
    completion = task.attempt.completion_status
    return completion is not None and completion.type_name == "Succeeded"
