"""Logs outlive their Pods: the end of each container's log is read before its Pod is deleted.

A Pod that has ended is read. One that still runs is followed from the decision to its end, so its deletion waits only
until that has begun. No deletion waits longer than ``Limits.log_capture_sec``. Nothing of this is persisted: a new
process asks again for Pods that exist.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Final

from frameworkcontroller.api.historyrecords import RecordId
from frameworkcontroller.api.names import pod_name
from frameworkcontroller.api.objects import ENDED_PHASES, ContainerRun, Framework, PodRecord
from frameworkcontroller.api.status import State, TaskStatus
from frameworkcontroller.machine.kernel.agenda import TaskKey
from frameworkcontroller.machine.kernel.context import Context
from frameworkcontroller.machine.kernel.model import Capture, KeepLogs, Limits
from frameworkcontroller.machine.kernel.part import Part, PartState
from frameworkcontroller.machine.kernel.states import WITH_POD
from frameworkcontroller.machine.kernel.tracker import Tracker

SLOW_SEC: Final = 1.0
"""Duration of status writes from which on an API server is slow: then only the logs of failed Tasks are read."""

GONE: Final = "the Pod was gone before its log could be read"

_UNKNOWN_CONTAINER: Final = "*"
"""Name of the containers of a Pod that is gone, and whose role is gone from the spec, too."""

FAILED: Final = 0
TRIGGER: Final = 1
"""The Task that has ended the attempt of the Framework."""
OTHER: Final = 2


@dataclass(slots=True)
class _Pod:
    """A Pod that was asked for. ``until``: when (monotonic seconds) its deletion waits no longer.

    ``runs``: those asked for; a container may begin later. ``pending``: number of requests without an answer.
    """

    key: TaskKey
    until: float
    runs: set[tuple[str, int]] = field(default_factory=set)
    pending: int = 0


@dataclass(slots=True, eq=False)
class Captures(PartState):
    """The captures of one attempt of a Framework."""

    of_attempt: ClassVar[bool] = True

    pods: dict[str, _Pod] = field(default_factory=dict)
    """By UID."""
    unread: dict[str, float] = field(default_factory=dict)
    """Until when deletions wait for Pods with pending requests, by UID."""
    asked_all: bool = False
    """Whether all Pods of the attempt were asked for, which ends."""
    waiting: dict[TaskKey | None, float] = field(default_factory=dict)
    """Since when (monotonic seconds) the deletion of a Pod or (None) the ConfigMap is due."""

    def on_look_at_all(self) -> None:
        self.asked_all = False

    def on_tasks_over(self) -> None:
        self.pods.clear()
        self.unread.clear()

    def successor(self, tracker: Tracker, before: Tracker) -> Captures | None:
        """The captures of an attempt that continues, with their times: no deletion waits once more."""
        status, was = tracker.status, before.status
        is_same = status is not None and was is not None and status.attempt.configmap_uid == was.attempt.configmap_uid
        return Captures(self.pods, self.unread, waiting=self.waiting) if is_same else None


class LogPart(Part):
    """The logs of containers, for the history."""

    def is_off(self, framework: Framework, tracker: Tracker, limits: Limits) -> bool:
        return limits.keep_logs is KeepLogs.NONE

    def observe_pod(self, ctx: Context, task: TaskStatus, pod: PodRecord) -> None:
        """Read the logs of a Pod that has ended while that is persisted."""
        is_over = pod.phase in ENDED_PHASES and pod.running_grace_sec is None
        if is_over and task.state is State.DELETION_PENDING and _covers(ctx, task):
            _ask(ctx, task, pod)

    def before_delete(self, ctx: Context, task: TaskStatus | None) -> None:
        """Read or follow the logs of a Pod, or of all Pods of the attempt, the most important ones first."""
        if task is not None:
            if (pod := _find_pod(ctx, task)) is not None and _covers(ctx, task):
                _ask(ctx, task, pod)
            return
        captures = ctx.tracker.part(Captures)
        if captures.asked_all:
            return
        captures.asked_all = True
        for one in sorted(filter(lambda one: _covers(ctx, one), ctx.tracker.tasks()), key=lambda one: _rank(ctx, one)):
            if (pod := _find_pod(ctx, one)) is not None:
                _ask(ctx, one, pod)

    def deletable_at(self, ctx: Context, task: TaskStatus | None) -> float | None:
        """When the logs are read at the latest; None: they are read, or followed."""
        captures = ctx.tracker.find_part(Captures)
        if captures is None:
            return None
        clock, key, uid = ctx.env.clock, None, ""
        if task is not None:
            key, uid = task.key, task.attempt.pod_uid or ""
        if not (captures.pods if task is None else uid in captures.pods):
            return None
        since = captures.waiting.setdefault(key, clock)
        until = max(captures.unread.values(), default=0.0) if task is None else captures.unread.get(uid, 0.0)
        if until > clock:
            return until
        if since >= 0:
            ctx.tracker.counters().log_waits_sec.append(clock - since)
            # Counted once, though the deletion may be repeated.
            captures.waiting[key] = -1.0
        return None

    def pod_gone(self, ctx: Context, task: TaskStatus) -> None:
        """Forget a Pod. If it has run and was never asked for, note that its logs are lost."""
        captures, uid = ctx.tracker.find_part(Captures), task.attempt.pod_uid
        known = None
        if captures is not None:
            captures.waiting.pop(task.key, None)
            known = captures.pods.pop(uid or "", None)
            captures.unread.pop(uid or "", None)
        if known is None and uid is not None and task.attempt.run_time is not None and _covers(ctx, task):
            runs = tuple(ContainerRun(name, 0) for name in _containers(ctx, task))
            ctx.plan.captures.append(_capture(ctx, task, uid, task.attempt.pod_node_name or "", runs, why=GONE))

    def on_captured(self, tracker: Tracker, pod_uid: str) -> bool:
        captures = tracker.find_part(Captures)
        pod = None if captures is None else captures.pods.get(pod_uid)
        if captures is None or pod is None or not pod.pending:
            return False
        pod.pending -= 1
        if pod.pending:
            return False
        del captures.unread[pod_uid]
        awaited = [pod.key, *([] if captures.unread else [None])]
        due = [key for key in awaited if captures.waiting.get(key, -1.0) >= 0]
        for key in due:
            tracker.agenda.look(key)
        return bool(due)


def _covers(ctx: Context, task: TaskStatus) -> bool:
    """Whether the logs of the attempt of a Task are kept."""
    keep, completion = ctx.env.limits.keep_logs, task.attempt.completion_status
    return keep is KeepLogs.ALL or (keep is KeepLogs.FAILED and completion is not None and completion.unexpected)


def _find_pod(ctx: Context, task: TaskStatus) -> PodRecord | None:
    """The recorded Pod of a Task, None if the cache does not show it."""
    if task.attempt.pod_uid is None or task.state not in WITH_POD:
        return None
    pod = ctx.observed.find_pod(pod_name(ctx.framework.name, *task.key))
    return pod if pod is not None and pod.uid == task.attempt.pod_uid else None


def _ask(ctx: Context, task: TaskStatus, pod: PodRecord) -> None:
    """Ask for the logs of the Pod that were not asked for yet."""
    captures, env = ctx.tracker.part(Captures), ctx.env
    asked = captures.pods.get(pod.uid)
    if asked is None:
        asked = captures.pods[pod.uid] = _Pod(task.key, env.clock + env.limits.log_capture_sec)
    runs = tuple(run for run in pod.runs if (run.container, run.run) not in asked.runs)
    if not runs:
        return
    asked.runs.update((run.container, run.run) for run in runs)
    if env.answer_sec > SLOW_SEC and _rank(ctx, task) != FAILED:
        why = f"the API server is slow: its answers take {env.answer_sec:.1f} s"
        ctx.plan.captures.append(_capture(ctx, task, pod.uid, pod.node_name, runs, why=why))
        return
    asked.pending += 1
    captures.unread[pod.uid] = asked.until
    until = env.clock + env.limits.log_capture_sec
    follow = pod.phase not in ENDED_PHASES or pod.running_grace_sec is not None
    ctx.plan.captures.append(_capture(ctx, task, pod.uid, pod.node_name, runs, follow=follow, until=until))


def _capture(
    ctx: Context,
    task: TaskStatus,
    uid: str,
    node: str,
    runs: tuple[ContainerRun, ...],
    *,
    follow: bool = False,
    until: float = 0.0,
    why: str = "",
) -> Capture:
    found = RecordId(
        framework_uid=ctx.framework.uid,
        attempt=ctx.attempt.id,
        role=task.role,
        task_uid=task.instance_uid,
        task_attempt=task.attempt.id,
        pod_uid=uid,
    )
    name = pod_name(ctx.framework.name, *task.key)
    return Capture(found, task.index, name, node, runs, follow, until, _rank(ctx, task), why)


def _rank(ctx: Context, task: TaskStatus) -> int:
    completion, of_framework = task.attempt.completion_status, ctx.attempt.completion_status
    if completion is not None and completion.unexpected:
        return FAILED
    trigger = None if of_framework is None else of_framework.trigger
    is_trigger = trigger is not None and (trigger.task_role_name, trigger.task_index) == task.key
    return TRIGGER if is_trigger else OTHER


def _containers(ctx: Context, task: TaskStatus) -> list[str]:
    """The names of the containers of a Task's Pod, by the template."""
    role = ctx.framework.spec.role(task.role)
    listed = None if role is None else role.task.in_spec("containers")
    found = [one.get("name") for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    return [name for name in found if isinstance(name, str) and name] or [_UNKNOWN_CONTAINER]
