"""One Framework's status between syncs.

Its records are changed in place, only by this class. Beside them it keeps the agenda, the unpersisted changes and
counters per role, so that a plan costs what changed, not what exists.

"Persist before act": a Task with unpersisted changes justifies no action (``is_settled``), and neither does a
Framework with any (``is_clean``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import NamedTuple

from frameworkcontroller.api.completion import FRAMEWORK_EVICTED, CompletionStatus
from frameworkcontroller.api.objects import CompanionRecord, PodRecord
from frameworkcontroller.api.status import (
    AdmissionStatus,
    Condition,
    FrameworkAttemptStatus,
    FrameworkStatus,
    State,
    TaskAttemptStatus,
    TaskCounts,
    TaskRoleStatus,
    TaskStatus,
)
from frameworkcontroller.machine.kernel.actions import Action, Target
from frameworkcontroller.machine.kernel.agenda import Agenda, ClaimAgenda, TaskKey
from frameworkcontroller.machine.kernel.expectations import Expectations
from frameworkcontroller.machine.kernel.holds import Holds
from frameworkcontroller.machine.kernel.manifests import PodTemplate
from frameworkcontroller.machine.kernel.model import AttemptCounters, InvariantError, Level, Urgency, require
from frameworkcontroller.machine.kernel.reasons import Reason
from frameworkcontroller.machine.kernel.requests import PODGROUPS, Kind
from frameworkcontroller.machine.kernel.states import EDGES, ENDED, FRAMEWORK_URGENCY, LIVE, TASK_URGENCY
from frameworkcontroller.machine.parts.gangs.podgroupbodies import GangPlans
from frameworkcontroller.machine.parts.history.archival import Archival
from frameworkcontroller.machine.parts.kueue.queueing import OUT_OF_SYNC, Queueing


class Shown(NamedTuple):
    """A companion that an answer of the API server has shown.

    ``since``: when (monotonic seconds) its creation was first wanted; a list of before is older than the answer.
    """

    uid: str
    since: float


@dataclass(slots=True, eq=False, repr=False)
class Tracker:
    """The tracked status of one Framework, None before the first plan."""

    status: FrameworkStatus | None = None
    _: KW_ONLY
    roles: dict[str, TaskRoleStatus] = field(default_factory=dict)
    counts: TaskCounts = field(default_factory=TaskCounts)
    """Those of the status."""
    role_counts: dict[str, TaskCounts] = field(default_factory=dict)
    agenda: Agenda = field(default_factory=Agenda)
    again: bool = False
    """Whether to plan the Framework itself again once the status is persisted."""
    scan: bool = False
    """Whether the next plan looks for orphaned Pods."""
    follow_ups: list[Action] = field(default_factory=list)
    """Actions for the next plan, as a consequence of outcomes."""
    holds: Holds = field(default_factory=Holds)
    expectations: Expectations = field(default_factory=Expectations)
    last_stall: Reason | None = None
    """The stall that this process has recorded last."""
    last_wait: Reason | None = None
    """The reason to wait that the condition Running shows."""
    generation: int | None = None
    """Generation of the spec in the last plan."""
    rescale_due: bool = True
    configmap_end: CompletionStatus | None = None
    """Completion of the attempt if its ConfigMap is gone, but not deleted by another client."""
    absent: bool | None = None
    """Whether a live read has shown, while the next attempt is held back, that no ConfigMap of it exists, and nothing
    was found since. None: unknown."""
    remains: bool = False
    """Whether Pods of the Framework exist, or may exist, while the next attempt is held back."""
    late: set[str] = field(default_factory=set)
    """UIDs of ConfigMaps that appeared when they were known to be absent. They are deleted, and never adopted."""
    orphaned: bool = False
    """Whether the ConfigMap is gone, and Pods of the attempt may exist that only the machine deletes."""
    deletion_snapshot_taken: bool = False
    """Whether the history has the deletion of the Framework."""
    alone_since: float | None = None
    """When (monotonic seconds) the ConfigMap was first seen to be terminating without Pods."""
    templates: dict[str, PodTemplate] = field(default_factory=dict)
    """Encoded Pods by role, of this attempt and generation."""
    dropped: dict[TaskKey, PodRecord] = field(default_factory=dict)
    """Last states of recorded Pods that the cache has dropped, if they have conditions and no completion is decided."""
    left_running: dict[TaskKey, tuple[str, float]] = field(default_factory=dict)
    """UIDs of ended Pods with running containers, and when that was first seen (monotonic seconds)."""
    readiness: dict[str, set[int]] = field(default_factory=dict)
    """By role that another one waits for to be Ready, the indexes of Tasks whose Pods are."""
    begun: set[str] = field(default_factory=set)
    """Roles of which a Pod was created in this attempt."""
    granted: dict[str, set[int]] = field(default_factory=dict)
    """By role with more Tasks than Kueue has admitted, the indexes of Tasks that have a Pod, or may have one."""
    claims: ClaimAgenda = field(default_factory=ClaimAgenda)
    queueing: Queueing = field(default_factory=Queueing)
    companions: dict[Target, Shown] = field(default_factory=dict)
    """Companions that an answer of the API server has shown, and of whose end nothing is known."""
    urgency: Urgency = Urgency.NONE
    task_states: dict[State, int] = field(default_factory=lambda: dict.fromkeys(State, 0))
    """Numbers of Tasks by state, with those that are deletionPending."""
    attempt_counters: AttemptCounters | None = None
    """Attempts that ended or were retried since the last persisted status."""
    gangs: GangPlans | None = None
    """Of a Framework with spec.scheduling (gangs.py)."""
    placed_groups: frozenset[str] = frozenset()
    """PodGroups that were placed in this attempt, which is persisted."""
    archival: Archival | None = None
    """What the history has of this attempt; None while nothing waits for it."""
    finalizer_outdated: bool = False
    """Whether the last change of the history's finalizer has failed by a precondition, or so it seems."""
    completion_unsaid: bool = False
    """Whether the history is to be offered the completion of the Framework, once that is persisted."""
    begun_at: float | None = None
    """When (monotonic seconds) this process made its first plan by the status."""
    listing_until: float = -math.inf
    """When (monotonic seconds) to look whether Pods have been listed since then."""
    unrecorded: dict[TaskKey, tuple[str, int]] = field(default_factory=dict)
    """Attempts, as instance and id, for which another controller may have created a Pod that no status has recorded."""
    enders: list[TaskStatus] = field(default_factory=list)
    """Tasks that failed by a rule that ends the attempt of the Framework."""
    _awaited: dict[Target, float] = field(default_factory=dict)
    """Companions to be created, and when (monotonic seconds) that was first wanted."""
    _ended: set[str] = field(default_factory=set)
    """UIDs of companions that the cache has dropped while one was to be created."""
    _listed: set[Target] = field(default_factory=set)
    """Those of the companions to be created whose kind was listed since."""
    _dirty: set[TaskStatus] = field(default_factory=set)
    _blocked: dict[TaskKey, None] = field(default_factory=dict)
    _completions: dict[tuple[str, int], int] = field(default_factory=dict)
    _head_dirty: bool = False
    _end_is_stored: bool = False
    """Whether the end of the attempt is persisted."""
    _live: dict[str, int] | None = None
    """By role, the Tasks that have a Pod or are about to get one; None: not counted."""
    _stored_live: dict[str, int] | None = None
    """Those of the stored status."""
    _starting: set[str] = field(default_factory=set)
    """Roles whose start is not persisted."""

    def __post_init__(self) -> None:
        """Track the given status, which is stored."""
        if self.status is not None:
            self.begin(self.status)
            if any(one.type == "Suspended" and one.status == "True" for one in self.status.conditions):
                # Nothing is created before a status says otherwise.
                return
            for task in self.tasks():
                if task.state is State.CREATION_PENDING:
                    self.unrecorded[task.key] = task.instance_uid, task.attempt.id

    # --- queries ---

    def tasks(self) -> Iterator[TaskStatus]:
        """All Tasks. Costs their number."""
        for role in self.roles.values():
            yield from role.tasks

    def task(self, key: TaskKey) -> TaskStatus | None:
        """The Task of that role and index, None if there is none."""
        role = self.roles.get(key[0])
        if role is None or not 0 <= key[1] < len(role.tasks):
            return None
        return role.tasks[key[1]]

    def awaits_pod(self, target: Target) -> bool:
        """Whether the target's Pod is still to be created."""
        task = self.task((target.role, target.index))
        return (
            task is not None
            and (task.instance_uid, task.attempt.id) == (target.instance, target.attempt_id)
            and task.state is State.CREATION_PENDING
        )

    def awaits_claim(self, target: Target) -> bool:
        """Whether the target's volume claim is still to be created."""
        task = self.task((target.role, target.index))
        waits = task is not None and task.state in (State.CREATION_PENDING, State.PREPARING)
        return waits and not self.is_completing

    @property
    def is_clean(self) -> bool:
        """Whether everything is persisted."""
        return not self._dirty and not self._head_dirty

    @property
    def is_head_settled(self) -> bool:
        """Whether all changes but those of single Tasks are persisted."""
        return not self._head_dirty

    @property
    def is_busy(self) -> bool:
        """Whether another plan has work at once."""
        return self.again or bool(self.agenda) or bool(self.follow_ups)

    @property
    def is_completing(self) -> bool:
        """Whether the completion of the Framework's attempt is decided, persisted or not."""
        return self.status is not None and self.status.attempt.completion_status is not None

    @property
    def nothing_runs(self) -> bool:
        """Whether it is known that nothing of the Framework runs: no Pod exists, and no request that creates one."""
        if self.status is None:
            return False
        if self.status.state in ENDED:
            return self._end_is_stored and not self.remains
        return self.status.state is State.CREATION_PENDING and self.absent is True and not self.remains

    @property
    def ended_by_rule(self) -> TaskStatus | None:
        """The Task whose failure ends the attempt of the Framework by a rule, None if there is none."""
        return next((task for task in self.enders if not task.deletion_pending), None)

    @property
    def may_have_pods(self) -> bool:
        """Whether the status records a Pod that is not known to be gone."""
        with_pods = (state for state in EDGES if state is not State.CREATION_PENDING and state not in ENDED)
        return any(self.task_states[state] for state in with_pods)

    @property
    def may_have_unrecorded_pods(self) -> bool:
        """Whether another controller may have created a Pod that the status does not record."""
        if self.status is not None and self.status.state is State.CREATION_PENDING:
            # Also for Tasks that a rescale has removed since.
            return bool(self.unrecorded)
        for key, attempt in self.unrecorded.items():
            task = self.task(key)
            pending = task is not None and task.state is State.CREATION_PENDING
            if task is not None and pending and (task.instance_uid, task.attempt.id) == attempt:
                return True
        return False

    @property
    def is_at_rest(self) -> bool:
        """Whether all Tasks run or are completed: no change is expected soon."""
        states = self.task_states
        return states[State.RUNNING] + states[State.COMPLETED] == self.task_count

    @property
    def task_count(self) -> int:
        """The number of Tasks, with those that are deletionPending."""
        return sum(self.task_states.values())

    @property
    def changed_count(self) -> int:
        """The number of Tasks with unpersisted changes."""
        return len(self._dirty)

    @property
    def may_end(self) -> bool:
        """Whether a Task has a Pod that has not ended, as far as is known."""
        states = self.task_states
        return bool(states[State.CREATION_REQUESTED] or states[State.PREPARING] or states[State.RUNNING])

    @property
    def is_awaited(self) -> bool:
        """Whether a Task waits for the changes to be persisted."""
        return bool(self._blocked)

    def is_settled(self, task: TaskStatus) -> bool:
        """Whether all changes of the Task are persisted, so that it justifies actions."""
        return task not in self._dirty

    def has_started(self, role: str) -> bool:
        """Whether the start of a role with dependencies is persisted."""
        return self.roles[role].started and role not in self._starting

    # --- changes of the whole ---

    def begin(self, status: FrameworkStatus, *, dirty: bool = False) -> None:
        """Track another status or attempt. ``dirty``: it is not persisted."""
        self.status = status
        self.forget_tasks()
        if self.archival is not None:
            self.archival.forget()
        self.orphaned = False
        self.absent, self.remains = None, False
        self._end_is_stored = not dirty and status.state in ENDED
        self._end_gangs()
        self.placed_groups = frozenset(() if dirty else status.attempt.scheduled_pod_groups)
        self.configmap_end = None
        self.agenda.end_deadlines(None)
        self._dirty.clear()
        self._index()
        self.touch_all()
        self.rescale_due = True
        if dirty:
            self._dirty.update(self.tasks())
            self.change(None, Urgency.NOW)

    def forget_tasks(self) -> None:
        """Forget everything about Tasks, as the attempt is over."""
        self.agenda.forget_tasks()
        self.holds.forget()
        self.expectations.forget_all()
        self.alone_since = None
        self.follow_ups.clear()
        self.claims.unlisted.clear()
        self._starting.clear()
        if self.archival is not None:
            self.archival.forget_tasks()
        for by_task in (
            self.dropped,
            self.left_running,
            self.readiness,
            self.unrecorded,
            self._blocked,
            self._completions,
            self.templates,
            self.granted,
        ):
            by_task.clear()

    def touch_all(self) -> None:
        """Have the next plan look at all Tasks, and for orphaned Pods."""
        self.again = self.scan = self.claims.scan = True
        self.agenda.update(task.key for task in self.tasks())

    def persisted(self) -> None:
        """The tracked status is stored: put the Tasks that waited for that on the agenda."""
        self._dirty.clear()
        self._head_dirty = False
        self._end_is_stored = self.status is not None and self.status.state in ENDED
        self._starting.clear()
        if self._live is not None:
            self._persisted_gangs(self._live)
        self.urgency = Urgency.NONE
        self.agenda.update(self._blocked)
        self._blocked.clear()
        if self.archival is not None and self.archival.blocked:
            self.archival.blocked = False
            self.again = True
        if self.queueing.blocked:
            self.queueing.blocked = False
            self.again = True

    def move_framework(self, state: State, now: int) -> None:
        """Move the Framework as ``move`` does, and plan it again once persisted."""
        status = require(self.status, "status")
        self._enter(status, state, now)
        if state is State.COMPLETED:
            status.retry.recent_retried_count = 0
        started = status.attempt.execution_start_time
        if state is State.ATTEMPT_COMPLETED and started is not None:
            # The API server's clock and this one may differ.
            status.accumulated_past_execution_time_seconds += max(0, now - started)
        self.agenda.end_deadlines(None)
        self.holds.wait(None, None)
        self.again = True

    def observe_generation(self, generation: int) -> None:
        """Record the spec generation of the status."""
        status = require(self.status, "status")
        if status.observed_generation != generation:
            status.observed_generation = generation
            self.change(None, Urgency.SHOWN, of_attempt=False)

    def set_conditions(self, conditions: list[Condition], urgency: Urgency, *, said_only: bool = False) -> None:
        """Replace the conditions. ``said_only``: only what Kueue says has changed, for which no action has to wait."""
        require(self.status, "status").conditions = conditions
        if said_only:
            self.urgency = max(self.urgency, urgency)
        else:
            self.change(None, urgency, of_attempt=False)

    def set_admission(self, admission: AdmissionStatus | None) -> None:
        """Record the admission by Kueue, or its end."""
        status = require(self.status, "status")
        status.admission = admission
        self.queueing.lost, self.queueing.lost_reason = None, ""
        if admission is not None:
            # Another controller may have begun by the same admission: what it has created is not late.
            self.absent, self.late = None, set()
        # The bodies of Pods follow from it.
        self.templates.clear()
        self.change(None, Urgency.NOW)
        self.again = True

    def reclaim(self, admission: AdmissionStatus) -> None:
        """Record an admission of which less is needed. Once that is persisted, Kueue learns it."""
        require(self.status, "status").admission = admission
        self.change(None, Urgency.SOON, of_attempt=False)
        self.queueing.blocked = True

    def count_admission(self, waited_sec: int) -> None:
        """Count an admission, for which the Framework has waited for this time."""
        self._counters().waited_sec.append(waited_sec)

    def configmap_created(self, uid: str, now: int) -> None:
        """Record the ConfigMap of the current attempt."""
        require(self.status, "status").attempt.configmap_uid = uid
        self.move_framework(State.CREATION_REQUESTED, now)

    def record_execution_start(self, seconds: int) -> None:
        """Record the creation of the attempt's ConfigMap, from which its deadline counts."""
        require(self.status, "status").attempt.execution_start_time = seconds
        self.change(None, Urgency.SHOWN)

    def retry_framework(
        self, attempt: FrameworkAttemptStatus, completion: CompletionStatus, *, accountable: bool, recent: int, now: int
    ) -> None:
        """Replace the Framework's attempt, which ended with ``completion``, by the next one.

        ``recent``: retries in a row.
        """
        status = require(self.status, "status")
        self._counters().retried[Level.FRAMEWORK, completion.category] += 1
        status.retry.total_retried_count += 1
        status.retry.accountable_retried_count += accountable
        status.retry.retry_delay_sec = None
        status.retry.recent_retried_count = recent
        status.attempt = attempt
        self.begin(status, dirty=True)
        self.move_framework(State.CREATION_PENDING, now)

    def count_rerun(self) -> None:
        """Count the completed Tasks, which run again in the next attempt."""
        self._counters().rerun += self.counts.succeeded + self.counts.failed

    # --- changes of roles ---

    def rescale(self, tasks: Mapping[TaskRoleStatus, list[TaskStatus]]) -> None:
        """Replace the roles and their Tasks."""
        status, before = require(self.status, "status"), set(self.tasks())
        status.attempt.roles = list(tasks)
        for role in tasks:
            role.tasks = tasks[role]
        self._index()
        for task in self.tasks():
            if task not in before:
                self.change(task, Urgency.NOW)
                self.agenda.add(task.key)
        self.change(status, Urgency.SOON)

    def set_forced_deletion(self, role: TaskRoleStatus, seconds: int | None, policy: str | None) -> None:
        """Copy podGracefulDeletionTimeoutSec and podForceDeletionPolicy into the role."""
        role.pod_graceful_deletion_timeout_sec = seconds
        role.pod_force_deletion_policy = policy
        self.change(None, Urgency.NOW)

    def start_role(self, role: TaskRoleStatus) -> None:
        """Record that the role's dependencies held, and plan its Tasks once that is persisted."""
        role.started = True
        self._starting.add(role.name)
        self._blocked.update(dict.fromkeys(task.key for task in role.tasks))
        self.change(None, Urgency.NOW)

    def watch_readiness(self, roles: Collection[str]) -> None:
        """Count the ready Pods of these roles only. Puts the Tasks of new ones on the agenda."""
        if self.readiness.keys() == roles:
            return
        before = self.readiness
        self.readiness = {role: before.get(role, set()) for role in roles if role in self.roles}
        for role in self.readiness.keys() - before.keys():
            self.agenda.update(task.key for task in self.roles[role].tasks)

    def observe_readiness(self, task: TaskStatus, *, ready: bool) -> None:
        """Note whether the Pod of a running Task is ready, if a role waits for that."""
        indexes = self.readiness.get(task.role)
        if indexes is None:
            return
        if ready and task.state is State.RUNNING and not task.deletion_pending:
            indexes.add(task.index)
        else:
            indexes.discard(task.index)

    # --- gangs ---

    def count_live(self) -> dict[str, int] | None:
        """By role, the Tasks of the stored status that have a Pod or are about to get one; None: not known yet.

        The first call of an attempt costs the number of Tasks.
        """
        if self._live is None:
            self._live = dict.fromkeys(self.roles, 0)
            for task in self.tasks():
                self._count_live(self._live, task, 1)
            if self.is_clean:
                self._stored_live = dict(self._live)
        return self._stored_live

    def record_placed(self, group: str) -> None:
        """Record that a PodGroup of the attempt was placed."""
        groups = require(self.status, "status").attempt.scheduled_pod_groups
        if group not in groups:
            groups.append(group)
            self.change(None, Urgency.SOON)

    def _persisted_gangs(self, live: dict[str, int]) -> None:
        if self.gangs is not None and self.gangs.blocked:
            self.gangs.blocked = False
            self.again = True
        placed = require(self.status, "status").attempt.scheduled_pod_groups
        if live != self._stored_live or len(placed) != len(self.placed_groups):
            # Minimums may have to be lowered.
            self._stored_live, self.placed_groups = dict(live), frozenset(placed)
            self.again = True

    def _end_gangs(self) -> None:
        """Forget the gangs of the last attempt."""
        if self.gangs is None:
            return
        self.gangs = self._live = self._stored_live = None
        for target in [target for target in self.companions if target.kind in PODGROUPS]:
            del self.companions[target]

    @staticmethod
    def _count_live(counts: dict[str, int], task: TaskStatus, step: int) -> None:
        if task.state in LIVE and not task.deletion_pending:
            counts[task.role] += step

    # --- changes of one Task ---

    def change(
        self, subject: FrameworkStatus | TaskStatus | None, urgency: Urgency, *, of_attempt: bool = True
    ) -> None:
        """Note an unpersisted change of a Task, or of the Framework (also None) but for its Tasks.

        ``of_attempt``: of something that the history has to know.
        """
        if of_attempt and self.archival is not None:
            self.archival.changed(subject)
        if isinstance(subject, TaskStatus):
            subject.encoded = None
            self._dirty.add(subject)
        else:
            self._head_dirty = True
        self.urgency = max(self.urgency, urgency)

    def pod_created(self, task: TaskStatus, uid: str, now: int) -> None:
        """Record the Pod of the Task's current attempt."""
        task.attempt.pod_uid = uid
        self.move(task, State.CREATION_REQUESTED, now)

    def record_placement(self, task: TaskStatus, pod: PodRecord) -> None:
        """Record node and addresses of the Task's Pod. A field that the Pod loses keeps its last value."""
        attempt = task.attempt
        seen = (pod.node_name, pod.pod_ip, pod.host_ip)
        kept = (attempt.pod_node_name, attempt.pod_ip, attempt.pod_host_ip)
        merged = tuple(new or old or "" for new, old in zip(seen, kept, strict=True))
        if merged != kept:
            attempt.pod_node_name, attempt.pod_ip, attempt.pod_host_ip = merged
            # Init containers of all Tasks, such as the barrier, wait for the address of a Pod whose own do.
            awaited = pod.pod_ip and pod.phase == "Pending"
            self.change(task, Urgency.SOON if awaited else Urgency.SHOWN if pod.pod_ip else Urgency.LATER)

    def retry(
        self, task: TaskStatus, completion: CompletionStatus, *, accountable: bool, recent: int, now: int
    ) -> None:
        """Replace the Task's attempt, which ended with ``completion``, by the next. ``recent``: retries in a row."""
        self._counters().retried[Level.TASK, completion.category] += 1
        task.retry.total_retried_count += 1
        task.retry.accountable_retried_count += accountable
        task.retry.retry_delay_sec = None
        task.retry.recent_retried_count = recent
        task.attempt = TaskAttemptStatus(id=task.retry.total_retried_count, start_time=now)
        self.move(task, State.CREATION_PENDING, now)

    def drop_encoded(self) -> None:
        """Drop the cached JSON of all Tasks."""
        for task in self.tasks():
            task.encoded = None

    def wake(self, reason: Reason) -> None:
        """Plan the Tasks again that wait for this reason, which may be over."""
        self.agenda.update(self.holds.waiters(reason))

    def hasten(self) -> None:
        """Persist the changes soon, as an action waits for that."""
        if self.urgency is not Urgency.NONE:
            self.urgency = max(self.urgency, Urgency.SOON)

    def block(self, key: TaskKey) -> None:
        """Persist the changes of the Task soon, and plan it again then."""
        self._blocked[key] = None
        self.urgency = max(self.urgency, Urgency.SOON)

    def move(self, task: TaskStatus, state: State, now: int) -> None:
        """Move a Task to another state, and set its times. Raises InvariantError if the transition is illegal."""
        self._count(task, -1)
        self.task_states[task.state] -= 1
        self.task_states[state] += 1
        self._enter(task, state, now)
        self.agenda.end_deadlines(task.key)
        self.holds.wait(task.key, None)
        if state is State.CREATION_REQUESTED:
            self.begun.add(task.role)
        elif self.readiness and state is not State.RUNNING:
            self.observe_readiness(task, ready=False)
        if (
            self.granted
            and state is not State.CREATION_PENDING
            and (granted := self.granted.get(task.role)) is not None
        ):
            if state in ENDED:
                granted.discard(task.index)
                # Another Task may have its Pod now.
                self.again = True
            else:
                granted.add(task.index)
        if self._live is not None and state in ENDED:
            # The minimum of its gang follows the persisted status.
            self.hasten()
        if state is State.COMPLETED:
            place = 1 + next(reversed(self._completions.values()), 0)
            self._completions.setdefault(_completion_key(task), place)
            task.retry.retry_delay_sec = None
            task.retry.recent_retried_count = 0
            if task.deletion_pending:
                self.rescale_due = True
        self._count(task, 1)

    def completed_at(self, task: TaskStatus) -> tuple[int, int]:
        """Time of completion in seconds since the epoch, and place in the order that this process has seen, else 0."""
        return task.completion_time or 0, self._completions.get(_completion_key(task), 0)

    @property
    def _admission(self) -> AdmissionStatus | None:
        return None if self.status is None else self.status.admission

    def inherit(self, other: Tracker) -> None:
        """Take from the previous tracker of the Framework what no status has."""
        self._completions = other._completions
        if self._admission == other._admission:
            # Else another controller may have begun by the new one.
            self.late = other.late
        self.queueing.known = other.queueing.known
        self.companions = other.companions
        self.claims.policies = other.claims.policies
        self._awaited, self._ended, self._listed = other._awaited, other._ended, other._listed

    def mark_deletion_pending(self, task: TaskStatus, completion: CompletionStatus) -> None:
        """Mark a Task deletionPending: it no longer counts (Rescale)."""
        self._count(task, -1)
        task.deletion_pending = True
        self.observe_readiness(task, ready=False)
        self.decide_completion(task, completion)
        if task.state is State.COMPLETED:
            self.rescale_due = True
        self.change(task, Urgency.NOW)

    def companion_wanted(self, target: Target, clock: float) -> None:
        """The companion is to be created. From now on, its end may be seen before the answer."""
        self._awaited.setdefault(target, clock)

    def companion_answered(self, target: Target, uid: str | None) -> None:
        """The creation of the companion was answered. ``uid``: of one that exists and is ours, None if none does."""
        if uid is not None:
            if target.kind is Kind.VOLUME_CLAIM:
                self.holds.release_claim(target.key, target.name)
            else:
                self.holds.release(target.key)
            if uid in self._ended or target in self._listed:
                # The answer may be from before that end or list. The next one counts: the object has lost its label.
                self._ended.discard(uid)
            else:
                self.companions[target] = Shown(uid, self._awaited.get(target, -math.inf))
        self._awaited.pop(target, None)
        self._listed.discard(target)
        if not self._awaited:
            self._ended.clear()

    def companion_dropped(self, target: Target, uid: str) -> None:
        """The cache dropped a companion: it is gone, or has lost its label."""
        known = self.companions.get(target)
        if known is not None and known.uid == uid:
            del self.companions[target]
        if self._awaited:
            self._ended.add(uid)
        if target.kind is Kind.VOLUME_CLAIM:
            self.claims.add(target.name)
        elif target.kind is Kind.WORKLOAD:
            self.queueing.forget_looks()

    def companions_listed(self, kind: Kind, listed: float, find: Callable[[str], CompanionRecord | None]) -> bool:
        """The cache has all companions of the kind that existed at ``listed`` (monotonic seconds).

        So those that it does not show are gone, or have lost their label. Return whether an answer had shown one.
        ``find``: the cached companion of a name.
        """
        if not (self.companions or self._awaited):
            return False
        self._listed.update(
            target for target, since in self._awaited.items() if target.kind is kind and since <= listed
        )
        dropped = [
            (target, known.uid)
            for target, known in self.companions.items()
            if target.kind is kind
            and known.since <= listed
            and ((found := find(target.name)) is None or found.uid != known.uid)
        ]
        for target, uid in dropped:
            self.companion_dropped(target, uid)
        return bool(dropped)

    def pod_dropped(self, key: TaskKey, last: PodRecord, *, removed: bool) -> None:
        """The cache dropped a Pod. ``last``: its last state. ``removed``: whether this shows that it is gone."""
        task = self.task(key)
        if task is None or task.attempt.pod_uid != last.uid or task.state in ENDED:
            return
        if task.attempt.completion_status is None and (last.disruption is not None or last.conditions):
            self.dropped[key] = last
        else:
            self.dropped.pop(key, None)
        if removed:
            self.expectations.see(last.uid)
        else:
            self.expectations.lose(last.uid)

    def configmap_dropped(self, uid: str) -> None:
        """The cache dropped a ConfigMap: it is gone, or has lost its label."""
        if self.status is not None and self.status.attempt.configmap_uid == uid:
            self.expectations.lose(uid)

    # --- changes of Framework or Task ---

    def decide_completion(
        self, subject: FrameworkStatus | TaskStatus, completion: CompletionStatus, urgency: Urgency = Urgency.SOON
    ) -> bool:
        """Set the completion status of the attempt unless it is set. Return whether it was set now."""
        if subject.attempt.completion_status is not None:
            return False
        subject.attempt.completion_status = completion
        if completion.is_one_of({FRAMEWORK_EVICTED.code}):
            self._counters().evicted[self.queueing.lost_reason or OUT_OF_SYNC] += 1
        if isinstance(subject, TaskStatus) and completion.ends_framework_attempt:
            self.enders.append(subject)
        self.change(subject, urgency)
        return True

    def schedule_retry(self, subject: FrameworkStatus | TaskStatus, delay_sec: int) -> None:
        """Record the decided delay of the next attempt."""
        subject.retry.retry_delay_sec = delay_sec
        self.change(subject, Urgency.SOON)

    def _enter(self, subject: FrameworkStatus | TaskStatus, state: State, now: int) -> None:
        is_task = isinstance(subject, TaskStatus)
        level, urgency = (Level.TASK, TASK_URGENCY) if is_task else (Level.FRAMEWORK, FRAMEWORK_URGENCY)
        if state not in EDGES[subject.state]:
            name = f"Task {subject.role}[{subject.index}]" if isinstance(subject, TaskStatus) else "Framework"
            raise InvariantError(f"{name}: no transition from {subject.state} to {state}")
        subject.state = state
        subject.transition_time = now
        if state is State.RUNNING:
            subject.attempt.run_time = now
            subject.run_time = subject.run_time or now
        elif state is State.ATTEMPT_COMPLETED:
            subject.attempt.completion_time = now
            if subject.attempt.completion_status is not None:
                self._counters().completed[level, subject.attempt.completion_status.code] += 1
        elif state is State.COMPLETED:
            subject.completion_time = now
        self.change(subject, urgency[state])

    # --- helpers ---

    def _index(self) -> None:
        """Rebuild counters and indexes after roles or Tasks were added or removed."""
        status = require(self.status, "status")
        self.roles = {role.name: role for role in status.attempt.roles}
        self.role_counts = {name: TaskCounts() for name in self.roles}
        # Part of the status, but no reason to write it: they change only together with a Task or a role.
        self.counts = status.task_counts = TaskCounts()
        self.task_states = dict.fromkeys(State, 0)
        if self._live is not None:
            self._live = dict.fromkeys(self.roles, 0)
        self.begun = set()
        self.enders.clear()
        for task in self.tasks():
            self._count(task, 1)
            self.task_states[task.state] += 1
            if task.attempt.pod_uid is not None or task.attempt.id:
                self.begun.add(task.role)
            completion = task.attempt.completion_status
            if completion is not None and completion.ends_framework_attempt:
                self.enders.append(task)
        if self.readiness:
            self.watch_readiness(self.readiness.keys() & self.roles.keys())
        self._dirty.intersection_update(self.tasks())
        if self.archival is not None:
            self.archival.keep(self.tasks())
        if self._completions:
            uids = {task.instance_uid for task in self.tasks()}
            self._completions = {key: place for key, place in self._completions.items() if key[0] in uids}
        self.agenda.keep(self.task)
        self.holds.keep(self.task)

    def _counters(self) -> AttemptCounters:
        if self.attempt_counters is None:
            self.attempt_counters = AttemptCounters()
        return self.attempt_counters

    def _count(self, task: TaskStatus, step: int) -> None:
        if task.deletion_pending:
            return
        if self._live is not None:
            self._count_live(self._live, task, step)
        for counts in (self.counts, self.role_counts[task.role]):
            counts.total += step
            if task.state is State.RUNNING:
                counts.running += step
            elif task.state is State.COMPLETED:
                completion = task.attempt.completion_status
                if completion is not None and completion.succeeded:
                    counts.succeeded += step
                else:
                    counts.failed += step


def _completion_key(task: TaskStatus) -> tuple[str, int]:
    return task.instance_uid, task.attempt.id
