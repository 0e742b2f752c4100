"""One Framework's status between syncs.

Its records are changed in place, only by this class. With the agenda, the unpersisted changes and counters per role, a
plan costs the number of changes, not of Tasks.

"Persist before act": a Task with unpersisted changes justifies no action (``is_settled``), and neither does a
Framework with any (``is_clean``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, TypeVar

from frameworkcontroller.api.completion import CompletionStatus
from frameworkcontroller.api.objects import PodRecord
from frameworkcontroller.api.status import (
    Condition,
    FirstFailure,
    FrameworkAttemptStatus,
    FrameworkStatus,
    State,
    TaskAttemptStatus,
    TaskCounts,
    TaskRoleStatus,
    TaskStatus,
)
from frameworkcontroller.machine.kernel.absence import Absence
from frameworkcontroller.machine.kernel.actions import Action
from frameworkcontroller.machine.kernel.agenda import PERSISTED, Agenda, Scope, TaskKey
from frameworkcontroller.machine.kernel.expectations import Expectations
from frameworkcontroller.machine.kernel.holds import Holds
from frameworkcontroller.machine.kernel.lifetimes import AttemptLife, ProcessLife
from frameworkcontroller.machine.kernel.model import AttemptCounters, InvariantError, Level, Urgency, require
from frameworkcontroller.machine.kernel.part import PartState
from frameworkcontroller.machine.kernel.states import EDGES, ENDED, FRAMEWORK_URGENCY, TASK_URGENCY, TaskStates

_S = TypeVar("_S", bound=PartState)


@dataclass(slots=True, eq=False, repr=False)
class Tracker:
    """The tracked status of one Framework, None before the first plan."""

    status: FrameworkStatus | None = None
    _: KW_ONLY
    roles: dict[str, TaskRoleStatus] = field(default_factory=dict)
    counts: TaskCounts = field(default_factory=TaskCounts)
    """The status has the same object."""
    role_counts: dict[str, TaskCounts] = field(default_factory=dict)
    task_states: TaskStates = field(default_factory=lambda: TaskStates(dict.fromkeys(State, 0)))
    agenda: Agenda = field(default_factory=Agenda)
    holds: Holds = field(default_factory=Holds)
    expectations: Expectations = field(default_factory=Expectations)
    absence: Absence = field(default_factory=Absence)
    process: ProcessLife = field(default_factory=ProcessLife)
    life: AttemptLife = field(default_factory=AttemptLife)
    follow_ups: list[Action] = field(default_factory=list)
    """Actions for the next plan, as a consequence of outcomes."""
    urgency: Urgency = Urgency.NONE
    _parts: dict[type[PartState], Any] = field(default_factory=dict)
    _listeners: list[PartState] = field(default_factory=list)
    _dirty: set[TaskStatus] = field(default_factory=set)
    _head_dirty: bool = False
    _completions: dict[tuple[str, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Track the given status, which is stored."""
        if self.status is not None:
            self.begin(self.status)
            if any(one.type == "Suspended" and one.status == "True" for one in self.status.conditions):
                # Nothing is created before a status ends that.
                return
            for task in self.tasks():
                if task.state is State.CREATION_PENDING:
                    self.absence.unrecorded[task.key] = task.instance_uid, task.attempt.id

    # --- parts ---

    def part(self, kind: type[_S]) -> _S:
        """The state of a part, which is made if there is none."""
        state: _S | None = self._parts.get(kind)
        if state is None:
            state = self._parts[kind] = kind()
            self._listen()
        return state

    def find_part(self, kind: type[_S]) -> _S | None:
        """The state of a part, None if there is none."""
        found: _S | None = self._parts.get(kind)
        return found

    def _listen(self) -> None:
        self._listeners = [state for state in self._parts.values() if state.listens]

    # --- queries ---

    def tasks(self) -> Iterator[TaskStatus]:
        """All Tasks. Costs their number."""
        for role in self.roles.values():
            yield from role.tasks

    def task(self, key: TaskKey) -> TaskStatus | None:
        role = self.roles.get(key[0])
        if role is None or not 0 <= key[1] < len(role.tasks):
            return None
        return role.tasks[key[1]]

    @property
    def is_clean(self) -> bool:
        return not self._dirty and not self._head_dirty

    @property
    def is_head_settled(self) -> bool:
        """Whether all changes are persisted, except single Tasks'."""
        return not self._head_dirty

    @property
    def is_busy(self) -> bool:
        """Whether another plan has work at once."""
        return self.agenda.is_due or bool(self.follow_ups)

    @property
    def is_completing(self) -> bool:
        """Whether the completion of the Framework's attempt is decided, persisted or not."""
        return self.status is not None and self.status.attempt.completion_status is not None

    @property
    def ended_by_rule(self) -> TaskStatus | None:
        """The Task whose failure ends the Framework's attempt, by podFailurePolicy; None if there is none."""
        return next((task for task in self.life.failing if not task.is_leaving), None)

    @property
    def changed_count(self) -> int:
        return len(self._dirty)

    def is_settled(self, task: TaskStatus) -> bool:
        """Whether all changes of the Task are persisted, so that it justifies actions."""
        return task not in self._dirty

    # --- changes of the whole ---

    def begin(self, status: FrameworkStatus, *, dirty: bool = False) -> None:
        """Track another status or attempt. ``dirty``: it is not persisted."""
        self.status = status
        self.forget_tasks()
        self.life = AttemptLife()
        self.absence.begin_attempt(ended=not dirty and status.state in ENDED)
        for kind in [kind for kind in self._parts if kind.of_attempt]:
            self._parts.pop(kind).on_end(self)
        self._listen()
        self.agenda.end_deadlines(None)
        self._dirty.clear()
        self._index()
        self.look_at_all()
        self.agenda.look(Scope.ROLES)
        if dirty:
            self._dirty.update(self.tasks())
            self.change(None, Urgency.NOW)

    def forget_tasks(self) -> None:
        """Forget everything about Tasks, as the attempt is over."""
        self.agenda.forget_tasks()
        self.holds.forget()
        self.expectations.forget_recorded()
        self.follow_ups.clear()
        self.life.forget_tasks()
        self.absence.unrecorded.clear()
        self._completions.clear()
        for state in self._parts.values():
            state.on_tasks_over()

    def look_at_all(self) -> None:
        """Have the next plan look at the Framework, all Tasks and all objects, also for Pods without a Task."""
        self.agenda.look()
        self.agenda.look(Scope.TASKLESS)
        self.agenda.wake(task.key for task in self.tasks())
        for state in self._parts.values():
            state.on_look_at_all()

    def on_persisted(self) -> None:
        """The tracked status is stored."""
        self._dirty.clear()
        self._head_dirty = False
        self.absence.end_is_stored = self.status is not None and self.status.state in ENDED
        self.urgency = Urgency.NONE
        self.agenda.on_persisted()
        for state in self._parts.values():
            state.on_persisted(self)

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
        self.agenda.look()

    def observe_generation(self, generation: int) -> None:
        status = require(self.status, "status")
        if status.observed_generation != generation:
            status.observed_generation = generation
            self.change(None, Urgency.SHOWN, of_attempt=False)

    def set_conditions(self, conditions: list[Condition], urgency: Urgency, *, quiet: bool = False) -> None:
        """Replace the conditions. ``quiet``: only messages have changed for which no action has to wait."""
        require(self.status, "status").conditions = conditions
        if quiet:
            self.urgency = max(self.urgency, urgency)
        else:
            self.change(None, urgency, of_attempt=False)

    def record_role_objects(self, objects: list[str]) -> None:
        require(self.status, "status").role_objects = objects
        self.change(None, Urgency.SOON, of_attempt=False)

    def record_configmap(self, uid: str, now: int) -> None:
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
        self.counters().retried[Level.FRAMEWORK, completion.category] += 1
        status.retry.total_retried_count += 1
        status.retry.accountable_retried_count += accountable
        status.retry.retry_delay_sec = None
        status.retry.recent_retried_count = recent
        status.attempt = attempt
        self.begin(status, dirty=True)
        self.move_framework(State.CREATION_PENDING, now)

    def record_failures(self, earliest: list[FirstFailure], first: FirstFailure | None) -> None:
        """Record failures. They are written with the ends that they come from."""
        status = require(self.status, "status")
        status.earliest_failures, status.first_failure = earliest, first
        self.change(None, Urgency.LATER)

    # --- changes of roles ---

    def rescale(self, tasks: Mapping[TaskRoleStatus, list[TaskStatus]]) -> None:
        status, before = require(self.status, "status"), set(self.tasks())
        status.attempt.roles = list(tasks)
        for role in tasks:
            role.tasks = tasks[role]
        self._index()
        for task in self.tasks():
            if task not in before:
                self.change(task, Urgency.NOW)
                self.agenda.look(task.key)
        self.change(status, Urgency.SOON)

    def set_forced_deletion(self, role: TaskRoleStatus, seconds: int | None, policy: str | None) -> None:
        """Copy podGracefulDeletionTimeoutSec and podForceDeletionPolicy into the role."""
        role.pod_graceful_deletion_timeout_sec = seconds
        role.pod_force_deletion_policy = policy
        self.change(None, Urgency.NOW)

    # --- changes of one Task ---

    def change(
        self, subject: FrameworkStatus | TaskStatus | None, urgency: Urgency, *, of_attempt: bool = True
    ) -> None:
        """Note an unpersisted change of a Task, or of the Framework (also None) without its Tasks.

        ``of_attempt``: parts that listen are informed.
        """
        if of_attempt:
            for state in self._listeners:
                state.on_change(subject)
        if isinstance(subject, TaskStatus):
            subject.encoded = None
            self._dirty.add(subject)
        else:
            self._head_dirty = True
        self.urgency = max(self.urgency, urgency)

    def record_pod(self, task: TaskStatus, uid: str, now: int) -> None:
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
        self.counters().retried[Level.TASK, completion.category] += 1
        task.retry.total_retried_count += 1
        task.retry.accountable_retried_count += accountable
        task.retry.retry_delay_sec = None
        task.retry.recent_retried_count = recent
        # Before the attempt is replaced: parts count Tasks by their last completion, too.
        self.move(task, State.CREATION_PENDING, now)
        task.attempt = TaskAttemptStatus(id=task.retry.total_retried_count, start_time=now)

    def drop_encoded(self) -> None:
        for task in self.tasks():
            task.encoded = None

    def set_headline(self, phase: str, reason: str, message: str) -> None:
        """Set phase, reason and message before a write. They follow from the rest of the status."""
        status = require(self.status, "status")
        status.phase, status.reason, status.message = phase, reason, message

    def hasten(self) -> None:
        """Persist the changes soon, as an action waits for that."""
        if self.urgency is not Urgency.NONE:
            self.urgency = max(self.urgency, Urgency.SOON)

    def persist_first(self, key: TaskKey | None) -> None:
        """Persist the changes of a Task soon, or of the Framework (None) at once, and look at it again then."""
        if key is None:
            self.agenda.look()
            self.change(None, Urgency.NOW)
        else:
            self.agenda.look(key, PERSISTED)
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
            self.life.begun.add(task.role)
        for listener in self._listeners:
            listener.on_move(self, task)
        if state is State.COMPLETED:
            place = 1 + next(reversed(self._completions.values()), 0)
            self._completions.setdefault(task.attempt_key, place)
            task.retry.retry_delay_sec = None
            task.retry.recent_retried_count = 0
            if task.is_leaving:
                self.agenda.look(Scope.ROLES)
        self._count(task, 1)

    def completed_at(self, task: TaskStatus) -> tuple[int, int]:
        """Time of completion in seconds since the epoch, and place in the order that this process has seen, else 0."""
        return task.completion_time or 0, self._completions.get(task.attempt_key, 0)

    def inherit(self, before: Tracker) -> None:
        """Take the in-memory state of the previous tracker of the Framework."""
        self._completions = before._completions
        self.absence.late = before.absence.late
        self.process.spec = before.process.spec
        self.expectations = before.expectations.successor()
        for kind, old in before._parts.items():
            if (kept := old.successor(self, before)) is not None:
                self._parts[kind] = kept
        self._listen()

    def mark_leaving(self, task: TaskStatus, completion: CompletionStatus) -> None:
        """Mark a Task deletionPending: it no longer counts (Rescale)."""
        self._count(task, -1)
        task.is_leaving = True
        for state in self._listeners:
            state.on_move(self, task)
        self.decide_completion(task, completion)
        if task.state is State.COMPLETED:
            self.agenda.look(Scope.ROLES)
        self.change(task, Urgency.NOW)

    def pod_dropped(self, key: TaskKey, last: PodRecord, *, removed: bool) -> None:
        """The cache dropped a Pod. ``last``: its last state. ``removed``: whether this shows that it is gone."""
        task = self.task(key)
        if task is None or task.attempt.pod_uid != last.uid or task.state in ENDED:
            return
        says = last.disruption is not None or last.conditions or last.scheduled_time is not None
        if last.containers or (task.attempt.completion_status is None and says):
            self.life.dropped[key] = last
        else:
            self.life.dropped.pop(key, None)
        if removed:
            self.expectations.trust_absence(last.uid)
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
        for state in self._listeners:
            state.on_completion(self, completion)
        if isinstance(subject, TaskStatus) and completion.ends_framework_attempt:
            self.life.failing.append(subject)
        self.change(subject, urgency)
        return True

    def renew_retries(self, subject: FrameworkStatus | TaskStatus) -> None:
        """Count retries from 0 again, as the attempt that ends now has made progress."""
        subject.retry.accountable_retried_count = subject.retry.recent_retried_count = 0
        self.change(subject, Urgency.SHOWN)

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
                self.counters().completed[level, subject.attempt.completion_status.code] += 1
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
        self.task_states = TaskStates(dict.fromkeys(State, 0))
        for state in self._listeners:
            state.on_index(self)
        self.life.begun = set()
        self.life.failing.clear()
        for task in self.tasks():
            self._count(task, 1)
            self.task_states[task.state] += 1
            if task.attempt.pod_uid is not None or task.attempt.id:
                self.life.begun.add(task.role)
            completion = task.attempt.completion_status
            if completion is not None and completion.ends_framework_attempt:
                self.life.failing.append(task)
        self._dirty.intersection_update(self.tasks())
        if self._completions:
            uids = {task.instance_uid for task in self.tasks()}
            self._completions = {key: place for key, place in self._completions.items() if key[0] in uids}
        self.agenda.keep(self.task)
        self.holds.keep(self.task)

    def counters(self) -> AttemptCounters:
        """The counters since the last persisted status."""
        if self.process.counters is None:
            self.process.counters = AttemptCounters()
        return self.process.counters

    def _count(self, task: TaskStatus, step: int) -> None:
        if task.is_leaving:
            return
        for state in self._listeners:
            state.on_count(task, step)
        for counts in (self.counts, self.role_counts[task.role]):
            counts.count(task, step)
