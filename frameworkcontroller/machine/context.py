"""What every decision of one plan looks at, and where it puts what it decided."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from frameworkcontroller.api import names
from frameworkcontroller.api.codec import encode_status, encode_task
from frameworkcontroller.api.completion import CompletionStatus
from frameworkcontroller.api.objects import Framework
from frameworkcontroller.api.status import FrameworkAttemptStatus, FrameworkStatus, TaskStatus
from frameworkcontroller.machine.agenda import TaskKey
from frameworkcontroller.machine.holds import CREATIONS
from frameworkcontroller.machine.manifests import PodTemplate, task_annotations
from frameworkcontroller.machine.model import (
    Action,
    Create,
    Env,
    Kind,
    Observed,
    Plan,
    Record,
    Snapshot,
    Target,
    Trigger,
    known,
)
from frameworkcontroller.machine.reasons import Reason
from frameworkcontroller.machine.tracker import TrackedRole, Tracker

POD_CREATIONS_PER_PLAN: Final = 500
"""More than are created before the next plan: where creations are refused, a Framework of 10,000 Tasks would ask for
10,000 of them again and again."""


@dataclass(slots=True)
class Context:
    """One plan in the making."""

    framework: Framework
    tracker: Tracker
    observed: Observed
    env: Env
    plan: Plan = field(default_factory=Plan)
    pod_creations: int = 0

    @property
    def status(self) -> FrameworkStatus:
        """The tracked status; the first plan has made one before anything asks."""
        return known(self.tracker.status, "status")

    @property
    def attempt(self) -> FrameworkAttemptStatus:
        """The Framework's current attempt."""
        return self.status.attempt

    @property
    def completing(self) -> bool:
        """Whether the current attempt is decided complete (or is)."""
        return self.attempt.completion_status is not None

    def record(
        self,
        reason: Reason,
        message: str,
        task: tuple[TrackedRole, TaskStatus] | None = None,
        *,
        warning: bool | None = None,
        completion: CompletionStatus | None = None,
    ) -> None:
        """Note what happened to the Framework, or to one Task. It is a warning if told so or, by default, if
        ``completion`` is an unexpected failure.
        """
        role, index = (None, None) if task is None else (task[0].status.name, task[1].index)
        if warning is None:
            warning = completion is not None and completion.unexpected
        self.plan.records.append(Record(reason, message, role, index, warning, completion))

    def keep_framework(self, trigger: Trigger) -> None:
        """Keep the Framework's status for the history, as it stands: the caller knows that it is persisted."""
        self.plan.snapshots.append(Snapshot(trigger, encode_status(self.framework.name, self.status)))

    def keep_task(self, trigger: Trigger, role: TrackedRole, task: TaskStatus) -> None:
        """Keep the Task for the history, as it stands: the caller knows that it is persisted."""
        name = role.status.name
        body = encode_task(self.framework.name, name, task)
        annotations = task_annotations(self.framework, self.attempt, role.status, task.index)
        deleted_at = self.env.second if trigger is Trigger.TASK_DELETION else None
        self.plan.snapshots.append(Snapshot(trigger, body, name, task.index, annotations, deleted_at))

    def wake_at(self, when: float) -> None:
        """Plan again at ``when`` (monotonic seconds) at the latest."""
        delay = max(0.0, when - self.env.clock)
        if self.plan.wake_after is None or delay < self.plan.wake_after:
            self.plan.wake_after = delay

    def is_over(self, key: TaskKey | None, since: float, seconds: float) -> bool:
        """Whether so many seconds have passed ``since`` then (by the wall clock), for a Task or (None) the Framework.

        If not, plan again when they have. A wall clock that is set changes nothing: see ``Tracker.deadline``.
        """
        when = self.tracker.agenda.deadline(key, since, seconds, self.env)
        if when <= self.env.clock:
            return True
        if key is None:
            self.wake_at(when)
        else:
            self.tracker.agenda.set_alarm(key, when)
        return False

    def act(self, action: Action) -> None:
        """Have the action done now, or look again once it is no longer held back."""
        target = action.target
        key = (target.role, target.index) if target.kind is Kind.POD else None
        until = self.tracker.holds.until(key)
        if until <= self.env.clock:
            self.plan.actions.append(action)
        elif key is None:
            self.wake_at(until)
        else:
            self.tracker.agenda.set_alarm(key, until)

    def create_pod(self, target: Target, template: PodTemplate, task: TaskStatus, controller_uid: str) -> None:
        """As ``act`` does, have the Task's Pod created."""
        key = (target.role, target.index)
        until = max(self.tracker.holds.until(key), self.tracker.holds.until(CREATIONS))
        if until > self.env.clock:
            self.tracker.agenda.set_alarm(key, until)
        elif self.pod_creations >= POD_CREATIONS_PER_PLAN:
            self.tracker.agenda.add(key)
        else:
            self.pod_creations += 1
            self.plan.actions.append(Create(target, template.raw, controller_uid, template.words(task)))

    def framework_target(self) -> Target:
        """The Framework itself."""
        return Target(Kind.FRAMEWORK, self.framework.name)

    def configmap_target(self) -> Target:
        """The ConfigMap of the current attempt."""
        return Target(Kind.CONFIGMAP, names.configmap_name(self.framework.name), self.attempt.id)

    def pod_target(self, role: TrackedRole, task: TaskStatus) -> Target:
        """The Pod of the Task's current attempt."""
        name = names.pod_name(self.framework.name, role.status.name, task.index)
        return Target(Kind.POD, name, task.attempt.id, role.status.name, task.index, task.instance_uid)
