"""What goes into the machine and what comes out of it.

In: the Framework, its tracked status, the observed ConfigMap and Pods, and an ``Env`` (clock, randomness, limits).
Out: a ``Plan``: actions that the *persisted* status justifies, when to wake up, how soon to write the status, and the
records of what moved. What became of the actions comes back in as ``Outcome`` values.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum, StrEnum, auto
from typing import Protocol, TypeVar

from frameworkcontroller.api.completion import CompletionStatus
from frameworkcontroller.api.objects import ConfigMapRecord, Identity, PodRecord
from frameworkcontroller.machine.reasons import Reason


class InvariantError(Exception):
    """The machine found itself where it can never be. The Framework's key is to be quarantined with this story."""


_T = TypeVar("_T")


def known(value: _T | None, what: str) -> _T:
    """``value``, which at this point of the machine cannot be None.

    Raises:
        InvariantError: it is.
    """
    if value is None:
        raise InvariantError(f"{what} is not known where it must be")
    return value


class PodClassifier(Protocol):
    """Says why a Pod failed (``machine.failure.Classifier``, made from the configuration)."""

    def classify(self, pod: PodRecord) -> CompletionStatus:
        """The completion status of ``pod``, which is in phase Failed."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Configured bounds of the machine's decisions, in seconds (docs/configuration.md)."""

    object_local_cache_creation_timeout_sec: int
    framework_completed_retain_sec: int
    framework_min_retry_delay_sec_for_transient_conflict_failed: int
    framework_max_retry_delay_sec_for_transient_conflict_failed: int
    classifier: PodClassifier
    pod_stuck_deleting_sec: int = 120
    """How long past its grace period a Pod may stay before the Framework says that it is stalled by it."""
    task_min_retry_delay_sec: int = 10
    task_max_retry_delay_sec: int = 360
    kubelet_report_sec: int = 30
    """How long a kubelet may take to say that the containers of a Pod that has ended have ended too."""


@dataclass(slots=True)
class Env:
    """The world the machine may not touch: two clocks, randomness, limits.

    ``now`` is the wall clock (seconds since the epoch): statuses hold its times, and it may be set. ``clock`` counts
    seconds and cannot be set: waiting goes by it.
    """

    now: float
    clock: float
    rng: random.Random
    limits: Limits

    @property
    def second(self) -> int:
        """The current time as statuses hold it."""
        return int(self.now)

    def new_uid(self) -> str:
        """A random UUID (version 4)."""
        digits = f"{(self.rng.getrandbits(128) & ~(0xF << 76) & ~(0x3 << 62)) | (0x4 << 76) | (0x2 << 62):032x}"
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


class PodLookup(Protocol):
    """The cache's Pods of one namespace, by name; Pods of others among them."""

    def get(self, name: str, /) -> PodRecord | None:
        """The Pod of that name, if the cache has it."""


@dataclass(slots=True)
class Observed:
    """The caches' view of what the Framework controls."""

    configmap: ConfigMapRecord | None
    pods: PodLookup
    list_pods: Callable[[], Iterable[PodRecord]] = tuple
    """The cache's Pods that bear the Framework's label. Asked for only when everything is looked at, and while a
    ConfigMap is being deleted that is not the attempt's, or that does not go.
    """
    configmaps_listed: float = -math.inf
    """When (monotonic seconds) the last list was asked for that the cache of ConfigMaps was compared with."""
    pods_listed: float = -math.inf
    creating: bool = False
    """Whether creations of the Framework's Pods are under way: what they make is not recorded yet."""


# --- actions ----------------------------------------------------------------------------------------------------


class Kind(StrEnum):
    """Kinds of object an action is about."""

    FRAMEWORK = "Framework"
    CONFIGMAP = "ConfigMap"
    POD = "Pod"


@dataclass(frozen=True, slots=True)
class Target:
    """The object an action is about, and the attempt that it stands for.

    ``role`` and ``index`` are of Pods. ``instance`` is the Task's instance UID ("" for other kinds): an outcome is
    only ever folded into the very Task instance and attempt that asked for it.
    """

    kind: Kind
    name: str
    attempt_id: int = 0
    role: str = ""
    index: int = -1
    instance: str = ""


def filled(template: bytes, words: Iterable[tuple[bytes, bytes]]) -> bytes:
    """``template`` with each of these words, in this order, replaced by what it stands for."""
    for word, value in words:
        template = template.replace(word, value)
    return template


@dataclass(frozen=True, slots=True)
class Create:
    """Create the object. ``controller_uid``: the owner by which one that is already there is told to be ours.

    ``words``, each with what it stands for, make the object's JSON of ``template``, which all Tasks of a role share:
    their Pods may be ten megabytes each, and hundreds of them wait for their turn.
    """

    target: Target
    template: bytes
    controller_uid: str
    words: tuple[tuple[bytes, bytes], ...] = ()

    @property
    def body(self) -> bytes:
        """The object's JSON, made anew each time."""
        return filled(self.template, self.words)


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the object of that UID.

    ``force``: a Pod with grace period 0. ``confirm``: done only once a live read no longer finds that UID. ``stray``:
    the known status does not record the object, so a live read of the Framework must show that status first.
    """

    target: Target
    uid: str
    force: bool = False
    confirm: bool = False
    stray: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class Cleanup:
    """Look, by a live read, for an object of that name that ``controller_uid`` controls: none may be left."""

    target: Target
    controller_uid: str


@dataclass(frozen=True, slots=True)
class Confirm:
    """Make sure, by a live read, that the object of that UID is gone: the cache does not show it."""

    target: Target
    uid: str


@dataclass(frozen=True, slots=True)
class Refresh:
    """Read the Framework live: an object of that name belongs to a newer attempt than the known status has."""

    target: Target


@dataclass(frozen=True, slots=True)
class Relabel:
    """Put back the label by which the object of that UID is watched: somebody has taken it off."""

    target: Target
    uid: str


Action = Create | Delete | Cleanup | Confirm | Relabel | Refresh


# --- outcomes ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Created:
    """The API server created it."""

    uid: str


@dataclass(frozen=True, slots=True)
class Exists:
    """The name is taken, by ``found``; None: a live read does not find it. ``message``: of the API server."""

    found: Identity | None
    message: str = field(default="", compare=False)


class Refusal(Enum):
    """Kinds of refusal that the machine tells apart."""

    ALREADY_EXISTS = auto()
    CONFLICT = auto()
    INVALID = auto()
    OBJECT_NOT_FOUND = auto()
    NOT_FOUND = auto()
    """A 404 that names no object: of the resource type, or of something that is no API server."""
    TOO_LARGE = auto()
    TOO_MANY_REQUESTS = auto()
    SERVER_ERROR = auto()
    OTHER = auto()


@dataclass(frozen=True, slots=True)
class Refused:
    """The API server refused. ``status_json`` is its Status object. Nothing was done.

    ``retry_after_sec``: the least wait that it asked for. ``reason``: the Status' own, "" if none. ``by_api``: False if
    a proxy or gateway answered in place of the API server.
    """

    code: int
    message: str
    status_json: bytes
    retry_after_sec: float = 0.0
    reason: str = ""
    kind: Refusal = Refusal.OTHER
    by_api: bool = True


@dataclass(frozen=True, slots=True)
class Unanswered:
    """No answer: it may or may not have been done."""

    message: str


@dataclass(frozen=True, slots=True)
class Accepted:
    """The deletion was accepted; the object may still be there for a while."""


@dataclass(frozen=True, slots=True)
class Gone:
    """No object of that UID (or, for a Cleanup, none that is ours) is there."""


@dataclass(frozen=True, slots=True)
class Remains:
    """It is still there. ``unlabelled``: without the label by which it is watched."""

    message: str
    unlabelled: bool = False


@dataclass(frozen=True, slots=True)
class NotAttempted:
    """Left for a later sync, with nothing sent."""


Result = Created | Exists | Refused | Unanswered | Accepted | Gone | Remains | NotAttempted


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an action."""

    action: Action
    result: Result


# --- plan -------------------------------------------------------------------------------------------------------


class Level(StrEnum):
    """Whose attempt."""

    FRAMEWORK = "framework"
    TASK = "task"


@dataclass(slots=True)
class AttemptCounters:
    """How many attempts came to their ends, by completion code, and were retried, by the category of that end."""

    completed: dict[tuple[Level, int], int] = field(default_factory=dict)
    retried: dict[tuple[Level, str], int] = field(default_factory=dict)


class Urgency(IntEnum):
    """How soon the status is to be written."""

    NONE = 0
    """Nothing changed."""
    LATER = 1
    """A step on a way on which the next one is expected at once (requested, being deleted): rides with that."""
    SOON = 2
    """Clients want to see it, or one Task waits for it; it may be written together with what happens to others."""
    NOW = 3
    """The whole Framework waits for it."""


class Trigger(StrEnum):
    """What makes a snapshot part of the history (docs/manual.md, History)."""

    FRAMEWORK_RETRY = "OnFrameworkRetry"
    FRAMEWORK_DELETION = "OnFrameworkDeletion"
    TASK_RETRY = "OnTaskRetry"
    TASK_DELETION = "OnTaskDeletion"
    POD_DELETION = "OnPodDeletion"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """JSON of a persisted status: the Framework's (``role`` None), or one Task's.

    The next write of the status, or the deletion of the Framework, loses what it shows. It is logged before that
    request is sent: so it is logged at least once, whenever the controller dies.

    ``annotations``: of a Task, those of its Pods that name no Pod and no attempt. ``deleted_at``: when the Task was
    deleted.
    """

    trigger: Trigger
    status_json: bytes
    role: str | None = None
    index: int | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)
    deleted_at: int | None = None


@dataclass(frozen=True, slots=True)
class Record:
    """One thing that happened to the Framework (``role`` None) or to one of its Tasks: for logs, Events, metrics.

    Emitted only once the status that shows it was accepted. ``completion``: how the attempt ended that it is about.
    """

    reason: Reason
    message: str
    role: str | None = None
    index: int | None = None
    warning: bool = False
    completion: CompletionStatus | None = None


@dataclass(slots=True)
class Plan:
    """What to do now. ``wake_after``: seconds until something is due by itself, None for never.

    ``relist``: the caches of these kinds do not show what is there, and are to be compared with a list.
    """

    actions: list[Action] = field(default_factory=list)
    wake_after: float | None = None
    urgency: Urgency = Urgency.NONE
    records: list[Record] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)
    relist: set[Kind] = field(default_factory=set)


@dataclass(slots=True)
class Fold:
    """What the outcomes changed; fields as in ``Plan``, whose urgency and wake-up this one's replace."""

    wake_after: float | None = None
    urgency: Urgency = Urgency.NONE
    records: list[Record] = field(default_factory=list)
    relist: set[Kind] = field(default_factory=set)
