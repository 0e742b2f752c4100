"""The protocol between the life of a Framework and its features, the parts.

A part keeps its state, rules, actions and outcomes in one module or folder. The life (machine/) and the kernel name no
part: they call the hooks of all parts in one order (parts/__init__.py). A part overrides the hooks that it needs. A
part imports the kernel, and neither the life nor another part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, auto
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from frameworkcontroller.api.completion import CompletionStatus
from frameworkcontroller.api.objects import CompanionRecord, Framework, PodRecord
from frameworkcontroller.api.spec import TaskRoleSpec
from frameworkcontroller.api.status import Condition, FrameworkAttemptStatus, FrameworkStatus, TaskStatus
from frameworkcontroller.machine.kernel.actions import Outcome
from frameworkcontroller.machine.kernel.holds import ObjectKey, Wait
from frameworkcontroller.machine.kernel.manifests import PodShape
from frameworkcontroller.machine.kernel.model import Limits, SnapshotTrigger
from frameworkcontroller.machine.kernel.protocol import Archive
from frameworkcontroller.machine.kernel.reasons import Reason, RequestReason
from frameworkcontroller.machine.kernel.requests import Answer, Kind, Target

if TYPE_CHECKING:
    from frameworkcontroller.machine.kernel.context import Context
    from frameworkcontroller.machine.kernel.tracker import Tracker


class EndPhase(Enum):
    """When the end of an attempt is asked for."""

    UNSEEN = auto()
    """The ConfigMap is created, and not yet in the cache."""
    BY_TASKS = auto()
    """The Tasks have observed their Pods, and no completion policy or failure rule is met."""
    LAST = auto()
    """The reason can be taken back, and the outcomes of Tasks count first."""


class Shown(NamedTuple):
    """A condition of a part. ``quiet``: a change of its message alone is not urgent, and no action waits for it."""

    value: bool
    reason: str
    message: str
    quiet: bool = False


class RoleWait(NamedTuple):
    """A role that waits for another one, until its Pods are ready or else its Tasks have succeeded."""

    role: str
    other: str
    until_ready: bool


class PartState:
    """In-memory state of a part. Losing it is safe.

    The tracker tells all that exist of its changes: a part without a state pays nothing.
    """

    __slots__ = ()
    of_attempt: ClassVar[bool] = False
    """Whether it ends with the attempt of the Framework, else with the process."""
    listens: ClassVar[bool] = False
    """Whether it has methods for changes of the status (``on_change`` to ``on_index``)."""

    def on_change(self, subject: FrameworkStatus | TaskStatus | None) -> None:
        """Something that the history has to know has changed, of a Task or of the Framework (also None)."""

    def on_move(self, tracker: Tracker, task: TaskStatus) -> None:
        """A Task has moved to another state, or became deletionPending."""

    def on_count(self, task: TaskStatus, step: int) -> None:
        """A Task that is not deletionPending is counted in its state (1), or no longer (-1)."""

    def on_index(self, tracker: Tracker) -> None:
        """Roles or Tasks were added or removed. All Tasks are counted again afterwards."""

    def on_look_at_all(self) -> None:
        """The next plan looks at everything."""

    def on_persisted(self, tracker: Tracker) -> None:
        """The tracked status is stored."""

    def on_end(self, tracker: Tracker) -> None:
        """The attempt is over, and with it this state, which is of the attempt."""

    def on_tasks_over(self) -> None:
        """The attempt is over: forget its Tasks."""

    def on_completion(self, tracker: Tracker, completion: CompletionStatus) -> None:
        """The completion of an attempt was decided."""

    def successor(self, tracker: Tracker, before: Tracker) -> PartState | None:
        """The state for another tracker of the Framework, which continues from a stored status; None: a new one."""


class Part:
    """A feature. Each hook does nothing by default.

    Queries (``why_``, ``may_``, ``shape``, ...) change only the part's own state.
    """

    reasons: ClassVar[type[Reason]] = Reason
    """The reasons of its records."""
    kinds: ClassVar[frozenset[Kind]] = frozenset()
    """The kinds of objects whose events and outcomes are the part's."""
    not_answered: ClassVar[Reason] = RequestReason.WAITING
    """The reason of a stall by failed requests for these objects."""
    target_part: ClassVar[str] = ""
    """``Target.part`` of its actions on the Framework or its ConfigMap, "" without such."""

    finalizer: ClassVar[str] = ""
    """The part's finalizer of Frameworks, "" without one."""

    # --- the Framework ---

    def is_off(self, framework: Framework, tracker: Tracker, limits: Limits) -> bool:
        """Whether neither spec nor configuration uses the part, and nothing of it is left: then plans skip its hooks.

        Only hooks that take a context.
        """
        return False

    def reads_labels(self, limits: Limits) -> bool:
        """Whether the part reads labels of the Framework: a change of them is confirmed by a live read."""
        return False

    def must_confirm(self, status: FrameworkStatus | None, limits: Limits) -> bool:
        """Whether a plan must not rest on a status that only the cache has shown."""
        return False

    def offered(self, limits: Limits) -> frozenset[SnapshotTrigger]:
        """The triggers whose snapshots are offered to the history when they are logged."""
        return frozenset()

    # --- the steps of a plan ---

    def observe_generation(self, ctx: Context) -> None:
        """Read a new generation of the spec, in its first plan. ``ctx.is_new``: the Framework is new."""

    def begin(self, ctx: Context) -> None:
        """Prepare a plan, before the roles are rescaled."""

    def before(self, ctx: Context) -> None:
        """Act in any state of the Framework, before its rules."""

    def before_tasks(self, ctx: Context) -> None:
        """Act while an attempt runs, before its Tasks observe their Pods."""

    def after_tasks(self, ctx: Context) -> None:
        """Act while an attempt runs and continues, after its Tasks have observed their Pods."""

    def at_end(self, ctx: Context) -> None:
        """Act while the Framework is between two attempts, or completed."""

    def finish(self, ctx: Context) -> None:
        """End a plan, or the folding of outcomes."""

    # --- gates ---

    def why_not_prepare(self, ctx: Context) -> Wait | None:
        """Why an attempt that may start prepares nothing yet."""

    def why_not_create_configmap(self, ctx: Context) -> Wait | None:
        """Why the ConfigMap of an attempt is not created yet, though all else is prepared."""

    def why_not_create_pod(self, ctx: Context, task: TaskStatus) -> Wait | None:
        """Why the Pod of a Task is not created yet."""

    def why_end(self, ctx: Context, phase: EndPhase) -> CompletionStatus | None:
        """Why the attempt ends."""

    def hold_end(self, ctx: Context, completion: CompletionStatus | None) -> bool:
        """Prepare the end of a running attempt that is due; None: none is. Return whether it waits.

        Not asked after a Stop and a deletion, which end at once.
        """
        return False

    def blocks_deletion(self, ctx: Context) -> bool:
        """Whether the part's finalizer is to block a deletion until the attempt has ended, as after a Stop."""
        return False

    def before_forget(self, ctx: Context, trigger: SnapshotTrigger, task: TaskStatus | None, *, due: bool) -> None:
        """Save the ended attempt of a Task or (None) the Framework before it leaves the status. ``due``: now."""

    def may_forget(self, ctx: Context, trigger: SnapshotTrigger, task: TaskStatus | None) -> bool:
        """Whether it may leave the status."""
        return True

    def knows_attempt(self, ctx: Context) -> bool:
        """Whether the end of the Framework's attempt is known to be persisted, though conditions are not."""
        return False

    # --- objects ---

    def ensure(self, ctx: Context) -> bool:
        """Create the objects that precede the ConfigMap of an attempt. Return whether all exist."""
        return True

    def release(self, ctx: Context) -> None:
        """Forget failures of ``ensure``, as nothing is needed for now."""

    def needs_objects(self, role: TaskRoleSpec) -> bool:
        """Whether ``ensure_for`` creates something for the Tasks of the role."""
        return False

    def ensure_for(self, ctx: Context, task: TaskStatus) -> bool:
        """Create the objects that a Task's Pod needs. Return whether all exist."""
        return True

    def shape(self, ctx: Context, role: TaskRoleSpec) -> PodShape | None:
        """The fields for the Pods of a role, None without any."""

    def shape_task(self, ctx: Context, task: TaskStatus) -> PodShape | None:
        """The fields for the Pod of one Task only, None without any. Such a Pod is decoded and encoded once more."""

    def configmap_labels(self, ctx: Context) -> Mapping[str, str]:
        """The labels for the ConfigMap of the attempt."""
        return {}

    def configmap_data(self, ctx: Context) -> Mapping[str, str]:
        """The data for the ConfigMap of the attempt."""
        return {}

    def creating_pod(self, ctx: Context, task: TaskStatus) -> tuple[str, ...]:
        """Note that the Pod is to be created. Return the path of a field that the answer is to show."""
        return ()

    def pod_answered(self, ctx: Context, task: TaskStatus, pod: str, *, kept: bool | None) -> None:
        """Note whether the API server has kept that field; None: it is not known."""

    def observe_pod(self, ctx: Context, task: TaskStatus, pod: PodRecord) -> None:
        """Look at the recorded Pod of a Task that is prepared or runs."""

    def why_end_task(self, ctx: Context, task: TaskStatus, pod: PodRecord) -> CompletionStatus | None:
        """Why the attempt of a Task ends whose Pod does not run yet."""

    def task_removed(self, ctx: Context, task: TaskStatus, role: TaskRoleSpec | None) -> bool:
        """Note that a Task leaves the status by ScaleDown. Return whether that is to be persisted first."""
        return False

    def retry_delay_sec(self, ctx: Context, task: TaskStatus) -> int:
        """The shortest delay of a Task's next attempt, asked once the end of its attempt is persisted. 0: none.

        The longest of all parts and the retry policy counts, and is stored as retryDelaySec. No part has it yet.
        """
        return 0

    def ended(self, ctx: Context, completion: CompletionStatus) -> None:
        """Note the end of an attempt, or that the Framework is completed, together with which changes are persisted."""

    def begin_attempt(self, ctx: Context, attempt: FrameworkAttemptStatus) -> None:
        """Carry something over from the ended attempt of the Framework to the next one, which is not tracked yet."""

    def before_delete(self, ctx: Context, task: TaskStatus | None) -> None:
        """Save from the Pod of a Task, or (None) from all Pods of the attempt, whose end is persisted or terminates."""

    def deletable_at(self, ctx: Context, task: TaskStatus | None) -> float | None:
        """When (monotonic seconds) the Pod of a Task or (None) the ConfigMap may be deleted; None: at once."""
        return None

    def pod_gone(self, ctx: Context, task: TaskStatus) -> None:
        """Note that the attempt of a Task ends, whose Pod is gone or never was."""

    # --- questions between parts ---

    def may_have_pods(self, ctx: Context, role: str, count: int) -> int:
        """The number of Tasks of a role that may have a Pod now, at most ``count``."""
        return count

    def may_shrink(self, ctx: Context, role: str) -> bool:
        """Whether an autoscaler may lower the number of Tasks of the role now."""
        return True

    def has_started(self, ctx: Context, role: str) -> bool:
        """Whether the order of roles lets Pods of the role be created. That is persisted."""
        return True

    def role_waits(self, ctx: Context) -> Iterable[RoleWait]:
        """The roles with Tasks that wait for another role."""
        return ()

    # --- outcomes and conditions ---

    def take(self, ctx: Context, outcome: Outcome) -> None:
        """Fold the outcome of an action of the part."""

    def take_answer(self, ctx: Context, archive: Archive, answer: Answer) -> None:
        """Fold the answer to an effect of the part."""

    def conditions(self, ctx: Context, before: Mapping[str, Condition]) -> Mapping[str, Shown]:
        """The conditions of the part by type. ``before``: all that the Framework has."""
        return {}

    # --- events between plans ---

    def on_event(self, tracker: Tracker, record: CompanionRecord) -> None:
        """An object of the part's kinds has changed."""

    def on_captured(self, tracker: Tracker, pod_uid: str) -> bool:
        """Note that no deletion has to wait for the logs of a Pod. Return whether one has."""
        return False

    def is_watched(self, tracker: Tracker, role: str) -> bool:
        """Whether the readiness of the role's Pods matters: a change of it alone is an event."""
        return False

    def target_of(self, tracker: Tracker, record: CompanionRecord) -> Target | None:
        """The target of actions on an object of the part's kinds; None if it is not the part's."""
        return Target(Kind(record.kind), record.name)

    def on_dropped(self, tracker: Tracker, target: Target) -> None:
        """The cache has dropped an object: it is gone, or has lost its label."""

    def on_resync(self, tracker: Tracker) -> None:
        """Forget changes that the cache has not shown."""

    def is_wanted(self, tracker: Tracker, target: Target) -> bool:
        """Whether an object that waits for its creation is still to be created."""
        return True

    def keeps_hold(self, ctx: Context, key: ObjectKey) -> bool:
        """Whether the back-off or stall of that key, which is no Task's, still means something."""
        return False


class Parts:
    """All parts in their order and, for each hook, those that have it."""

    def __init__(self, *parts: Part) -> None:
        self._parts = parts
        self._without: dict[tuple[Part, ...], Parts] = {}
        for name, hook in vars(Part).items():
            if callable(hook) and not name.startswith("_"):
                # Plain attributes: plans read several of them for each Task.
                self.__dict__[name] = tuple(part for part in parts if getattr(type(part), name) is not hook)
        self._by_kind = {kind: part for part in parts for kind in part.kinds}
        self._by_target_part = {part.target_part: part for part in parts if part.target_part}

    def __iter__(self) -> Iterator[Part]:
        return iter(self._parts)

    def active(self, framework: Framework, tracker: Tracker, limits: Limits) -> Parts:
        """The parts that are not off."""
        off = tuple([part for part in self.is_off if part.is_off(framework, tracker, limits)])
        if not off:
            return self
        if off not in self._without:
            self._without[off] = Parts(*(part for part in self._parts if part not in off))
        return self._without[off]

    if TYPE_CHECKING:

        def __getattr__(self, hook: str) -> tuple[Part, ...]:
            """The parts that have the hook."""

    def of(self, target: Target) -> Part | None:
        """The part with the actions on this target, None if the life has them."""
        if target.part:
            return self._by_target_part.get(target.part)
        return self._by_kind.get(target.kind)

    def of_kind(self, kind: Kind) -> Part | None:
        """The part with the objects of this kind, None if the life has them."""
        return self._by_kind.get(kind)
