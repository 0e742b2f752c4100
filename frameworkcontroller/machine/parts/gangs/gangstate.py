"""The state of the gangs of an attempt, and the reasons of their records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from frameworkcontroller.api.completion import ALWAYS_RETRIED
from frameworkcontroller.api.objectkinds import PODGROUPS
from frameworkcontroller.api.podgroups import GangScheduler
from frameworkcontroller.api.spec import FrameworkSpec
from frameworkcontroller.api.status import State, TaskStatus
from frameworkcontroller.machine.kernel.context import Context
from frameworkcontroller.machine.kernel.model import Urgency, require
from frameworkcontroller.machine.kernel.part import PartState
from frameworkcontroller.machine.kernel.reasons import Reason, stall, wait
from frameworkcontroller.machine.kernel.states import ENDED, LIVE
from frameworkcontroller.machine.kernel.tracker import Tracker
from frameworkcontroller.machine.parts.gangs.podgroupbodies import (
    Gangs,
    gangs_of,
    refusal,
)

GANGS: Final = "PodGroups"
"""Key of the stalls of all gangs."""


class GangReason(Reason):
    """The reasons of ``spec.scheduling``."""

    CREATED = "PodGroupCreated", "a PodGroup was created, by which a scheduler places Pods together"
    PENDING = wait(
        "PodGroupPending", "a PodGroup of spec.scheduling does not exist yet, or its scheduler does not place it"
    )
    UNSUPPORTED = stall(
        "GangUnsupported",
        "the scheduler or the API server does not support spec.scheduling; if Pods run, they are placed one by one",
    )
    NOT_GONE = stall("PodGroupNotGone", "a PodGroup of an earlier attempt, or one that was deleted, still exists")
    NOT_ANSWERED = stall("PodGroupNotAnswered", "requests for a PodGroup of spec.scheduling failed several times")
    NOT_LISTED = stall("PodGroupNotListed", "PodGroups cannot be listed, which spec.scheduling needs")


@dataclass(slots=True)
class GroupState:
    """In-memory state of one PodGroup of the attempt."""

    name: str
    exists: bool = False
    """Whether it exists, as of the last plan."""
    has_existed: bool = False
    ending: bool = False
    """Whether it is being deleted, or no longer served."""
    stuck: bool = False
    """Whether it was placed, and its minimum is too high and fixed."""
    lowering: bool = False
    """Whether it was placed, and its minimum is not lowered yet."""
    failing: bool = False
    """Whether it cannot be created."""
    left_out: bool = False
    """Whether it was placed, and new Pods do not join it."""
    fixed: bool = False
    """Whether the API server did not let its minimum change."""
    checked: bool = False
    """Whether a Pod was created to see whether the API server keeps its field."""
    asked: tuple[str, int] | None = None
    """Minimum of the last patch, and the resourceVersion before it."""
    sent: tuple[str, int] | None = None
    """The last accepted patch, until the cache shows it."""
    checkpoint_due: float = 0.0
    """When (monotonic seconds) the last checkpoint may be shown again."""


class GangState(PartState):
    """In-memory state of the gangs of one attempt, and the number of Tasks that are still to run by role."""

    __slots__ = ("_live", "_stored_live", "gangs", "groups", "placed", "refusal", "shown", "spec")
    of_attempt: ClassVar[bool] = True
    listens: ClassVar[bool] = True

    def __init__(self) -> None:
        self.gangs = Gangs(GangScheduler.KUBERNETES, "", ())
        self.spec: FrameworkSpec | None = None
        """The spec that ``gangs`` is for."""
        self.refusal = ""
        """Why they are refused, "" if they are not."""
        self.groups: dict[str, GroupState] = {}
        self.shown = ("", 0.0)
        """The message why groups are not placed, and since when (monotonic seconds) it is shown."""
        self.placed: frozenset[str] = frozenset()
        """PodGroups that were placed in this attempt, which is persisted."""
        self._live: dict[str, int] | None = None
        self._stored_live: dict[str, int] | None = None

    def group(self, name: str) -> GroupState:
        """The state of the group of that name."""
        if (group := self.groups.get(name)) is None:
            group = self.groups[name] = GroupState(name)
        return group

    def count_live(self, tracker: Tracker) -> dict[str, int] | None:
        """By role, the Tasks of the stored status that have a Pod or are about to get one; None: not known yet.

        The first call of an attempt costs the number of Tasks.
        """
        if self._live is None:
            self._live = dict.fromkeys(tracker.roles, 0)
            for task in tracker.tasks():
                if not task.is_leaving:
                    self.on_count(task, 1)
            if tracker.is_clean:
                self._stored_live = dict(self._live)
        return self._stored_live

    def record_placed(self, tracker: Tracker, group: str) -> None:
        """Record that a PodGroup of the attempt was placed."""
        groups = require(tracker.status, "status").attempt.scheduled_pod_groups
        if group not in groups:
            groups.append(group)
            tracker.change(None, Urgency.SOON)

    def on_move(self, tracker: Tracker, task: TaskStatus) -> None:
        if self._live is not None and task.state in ENDED:
            # The minimum of its gang follows the persisted status.
            tracker.hasten()

    def on_count(self, task: TaskStatus, step: int) -> None:
        if self._live is not None and (task.state in LIVE or _is_replaced(task)):
            self._live[task.role] += step

    def on_index(self, tracker: Tracker) -> None:
        if self._live is not None:
            self._live = dict.fromkeys(tracker.roles, 0)

    def on_persisted(self, tracker: Tracker) -> None:
        if self._live is None:
            return
        placed = require(tracker.status, "status").attempt.scheduled_pod_groups
        if self._live != self._stored_live or len(placed) != len(self.placed):
            # Minimums may have to be lowered.
            self._stored_live, self.placed = dict(self._live), frozenset(placed)
            tracker.agenda.look()

    def on_end(self, tracker: Tracker) -> None:
        tracker.expectations.forget_kinds(PODGROUPS)


def _is_replaced(task: TaskStatus) -> bool:
    """Whether the controller gives the Task another Pod in any case, which needs its place in the group."""
    completion = task.attempt.completion_status
    return task.state is not State.COMPLETED and completion is not None and completion.is_one_of(ALWAYS_RETRIED)


def group_of(ctx: Context, role_name: str) -> GroupState | None:
    """The state of the group of that role, None without ``scheduling``."""
    spec = ctx.framework.spec
    if spec.scheduling is None or (role := spec.role(role_name)) is None:
        return None
    return gang_state(ctx).group(spec.group_of(ctx.framework.name, role))


def gang_state(ctx: Context) -> GangState:
    """The state of the gangs of the attempt. The spec has ``scheduling``."""
    state, spec = ctx.tracker.part(GangState), ctx.framework.spec
    if state.spec is not spec:
        if state.spec is None:
            state.placed = frozenset(ctx.attempt.scheduled_pod_groups)
        limits = ctx.env.limits
        state.gangs = gangs_of(ctx.framework, limits.gang_scheduler, limits.gang_scheduler_name)
        problem = refusal(ctx.framework, state.gangs)
        state.refusal, state.spec = "" if problem is None else str(problem), spec
    return state
