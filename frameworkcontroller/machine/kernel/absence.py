"""Does anything of a held-back attempt exist? Suspension and several parts rest on the answer.

While no attempt may begin, its ConfigMap may still exist: a controller may have created it, and Pods, and have
died before it recorded them. Only a live read shows that it does not (``configmap``). Pods are looked for in the cache,
which may lack those that a previous leader has created.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from frameworkcontroller.api import names
from frameworkcontroller.api.objects import PodRecord
from frameworkcontroller.api.status import State
from frameworkcontroller.machine.kernel.requests import Kind
from frameworkcontroller.machine.kernel.states import ENDED

if TYPE_CHECKING:
    from frameworkcontroller.machine.kernel.context import Context
    from frameworkcontroller.machine.kernel.tracker import Tracker

_LISTED_SEC: Final = 1.0
"""Time until it is looked at whether Pods have been listed again."""


class Known(Enum):
    """Knowledge of the ConfigMap of an attempt that is held back."""

    UNKNOWN = auto()
    ABSENT = auto()
    """A live read has found none, and the cache has shown none since."""
    FOUND = auto()
    """One exists that is no part of the attempt, or did. It is deleted first."""


@dataclass(slots=True)
class Absence:
    """In-memory knowledge of the objects of a Framework whose attempt is held back."""

    configmap: Known = Known.UNKNOWN
    pods_remain: bool = False
    """Whether Pods exist, or may exist, by the last look."""
    wanted: bool = False
    """Whether the plan needs to know it though no rule of the life holds the attempt back."""
    late: set[str] = field(default_factory=set)
    """UIDs of ConfigMaps that appeared after their absence was known. They are deleted, and never adopted."""
    unrecorded: dict[tuple[str, int], tuple[str, int]] = field(default_factory=dict)
    """By Task, the attempt (instance and id) for which another controller may have created an unrecorded Pod."""
    begun_at: float | None = None
    """Time of this process's first plan by the status (monotonic seconds)."""
    listing_until: float = -math.inf
    """When to look whether Pods have been listed since then (monotonic seconds)."""
    end_is_stored: bool = False
    """Whether the end of the attempt is persisted."""

    def begin_attempt(self, *, ended: bool) -> None:
        """Forget the last attempt. ``ended``: the new one has ended already, by a stored status."""
        self.configmap, self.pods_remain, self.end_is_stored = Known.UNKNOWN, False, ended

    def stop_holding_back(self) -> bool:
        """Expect that any controller creates something from now on. Return whether the attempt was held back."""
        was_held, self.configmap = self.configmap is not Known.UNKNOWN, Known.UNKNOWN
        return was_held

    def saw_configmap(self, uid: str) -> None:
        """The cache shows a ConfigMap of the Framework while none may exist."""
        if self.configmap is Known.ABSENT:
            self.configmap = Known.FOUND
            self.late.add(uid)


def nothing_runs(tracker: Tracker) -> bool:
    """Whether nothing of the Framework runs for sure: no Pod exists, and no request that creates one is in flight."""
    status, known = tracker.status, tracker.absence
    if status is None or known.pods_remain:
        return False
    if status.state in ENDED:
        return known.end_is_stored
    return status.state is State.CREATION_PENDING and known.configmap is Known.ABSENT


def may_have_unrecorded_pods(tracker: Tracker) -> bool:
    """Whether another controller may have created a Pod that the status does not record."""
    unrecorded = tracker.absence.unrecorded
    if tracker.status is not None and tracker.status.state is State.CREATION_PENDING:
        # Also for Tasks that a rescale has removed since.
        return bool(unrecorded)
    for key, attempt in unrecorded.items():
        task = tracker.task(key)
        pending = task is not None and task.state is State.CREATION_PENDING
        if task is not None and pending and (task.instance_uid, task.attempt.id) == attempt:
            return True
    return False


def look_for_pods(ctx: Context) -> None:
    ctx.tracker.absence.pods_remain = shows_pods(ctx) or wait_for_pod_list(ctx)


def shows_pods(ctx: Context) -> bool:
    """Whether the cache shows Pods of the Framework. Costs their number, which is mostly none."""
    return any(is_of_framework(ctx.framework.uid, pod) for pod in ctx.observed.list_pods())


def wait_for_pod_list(ctx: Context) -> bool:
    """Have Pods listed if the cache may lack some that another controller has created. Return whether it may.

    The cache of a new leader may be older than the last Pods of its predecessor.
    """
    known, now = ctx.tracker.absence, ctx.env.clock
    if known.begun_at is None or not may_have_unrecorded_pods(ctx.tracker):
        return False
    if now >= known.listing_until:
        if ctx.observed.pods_listed >= known.begun_at:
            return False
        ctx.plan.relist.add(Kind.POD)
        known.listing_until = now + _LISTED_SEC
    ctx.tracker.agenda.look(None, known.listing_until)
    return True


def is_of_framework(framework_uid: str, pod: PodRecord) -> bool:
    """Whether the Pod is of any attempt of the Framework, whose ConfigMap may be gone.

    A Pod that has lost its owner is recognized by its annotations and its name: a copy for debugging has another name.
    """
    identity = pod.identity
    is_marked = identity.annotations is not None and identity.annotations[0] == framework_uid
    return is_marked and (identity.controller_uid is not None or names.split_pod_name(pod.name) is not None)
