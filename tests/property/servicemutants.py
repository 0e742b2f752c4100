"""Controllers broken on purpose, by the guarantee that they break: S3, U and O."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final
from unittest.mock import patch

from frameworkcontroller.api.status import State, TaskStatus
from frameworkcontroller.machine.kernel.companionpart import CompanionPart
from frameworkcontroller.machine.kernel.context import Context
from frameworkcontroller.machine.kernel.model import Env
from frameworkcontroller.machine.kernel.tracker import Tracker
from frameworkcontroller.machine.parts.autoscaling import rolescalers
from frameworkcontroller.machine.parts.autoscaling.rolescalers import AutoscalingPart
from frameworkcontroller.machine.parts.budgets import disruptionbudgets
from frameworkcontroller.machine.parts.budgets.disruptionbudgets import BudgetPart, BudgetState
from frameworkcontroller.machine.parts.rollout.availability import Availability, RoleTasks
from frameworkcontroller.machine.parts.rollout.rollingupdate import RolloutPart
from tests.property import test_autoscaling as autoscaling
from tests.property import test_role_objects as addressed
from tests.property import test_rolling_updates as rolling
from tests.support.flaws import Broken


def _set_unmarked(tracker: Tracker, role: Any, value: Any, _urgency: Any) -> None:
    role.autoscaling = value
    tracker.agenda.look()


def _of_spec(framework: Any, role: str, known: Any) -> bytes:
    """The object, with the first number of the role."""
    return _SCALER_BODY(framework, role, replace(known, task_number=2))


_SCALER_BODY: Final = rolescalers.scaler_body


def _addressed(*operations: tuple[Any, int]) -> Callable[[], object]:
    """A Framework whose role has a Service and a disruption budget."""
    return partial(addressed.play, 40, *operations)


def _count_unready(self: BudgetState, task: TaskStatus, _pod: Any) -> None:
    self.ready.get(task.role, set()).add(task.index)


def _remove_all(self: CompanionPart, ctx: Context) -> None:
    for target in self._recorded(ctx.tracker.status):
        self._remove(ctx, target)


_READY: Final = ((("pods", "Running"), 20), (("pods", "ready"), 40))
_DUE: Final = RoleTasks.due


def _rolls(due: Callable[[RoleTasks, int, int, int], list[int]]) -> Broken:
    """Controllers that replace other Tasks."""
    return partial(patch.object, RoleTasks, "due", due)


def _observes(change: Callable[[Any, Any, Any], Any]) -> Broken:
    """Controllers that see the Pods of a rollout after a change of the state, the Task and the Pod."""
    observe = Availability.observe

    def observe_changed(state: Availability, tracker: Tracker, task: TaskStatus, pod: Any, env: Env) -> None:
        observe(state, tracker, task, change(state, task, pod), env)

    return partial(patch.object, Availability, "observe", observe_changed)


def _forget_template(state: Any, task: Any, pod: Any) -> Any:
    """The belief of a controller whose status has no templates."""
    if (role := state.roles.get(task.role)) is not None:
        task.attempt.template_hash, task.encoded = role.watched.template, None
    return pod


CASES: Final[tuple[tuple[str, Broken, Callable[[], object], str], ...]] = (
    # --- S3
    (
        "S3: goes by a number before it is stored",
        partial(patch.object, rolescalers.ScalerState, "set", staticmethod(_set_unmarked)),
        autoscaling.scaled,
        "S3: a went from",
    ),
    (
        "S3: never reads the object",
        partial(patch.object, AutoscalingPart, "_found", lambda *_: None),
        autoscaling.scaled,
        "It waits, and does not",
    ),
    (
        "S3: makes no object again",
        partial(patch.object, AutoscalingPart, "_create", lambda *_: None),
        autoscaling.scaled,
        "It waits, and does not",
    ),
    (
        "S3: makes the object with the number of the spec",
        partial(patch.object, rolescalers, "scaler_body", _of_spec),
        autoscaling.scaled,
        "S3: f-a begins with",
    ),
    (
        "S3: has another object in each attempt",
        partial(patch.object, AutoscalingPart, "begin_attempt", lambda *_: None),
        autoscaling.retried,
        "has another object in a new attempt",
    ),
    (
        "S3: reads objects from before",
        partial(patch.object, rolescalers, "_is_current", lambda *_: True),
        autoscaling.switched,
        "S3: ",
    ),
    # --- U
    ("U: never replaces a Task", _rolls(lambda *_: []), rolling.rollout, "It does not come about"),
    (
        "U: replaces all at once",
        _rolls(lambda tasks, _unavailable, _limit, partition: _DUE(tasks, 0, 99, partition)),
        rolling.rollout,
        "U: ",
    ),
    (
        "U: does not count the Tasks that are not available",
        _rolls(lambda tasks, _unavailable, limit, partition: _DUE(tasks, 0, limit, partition)),
        rolling.rollout,
        "U: ",
    ),
    (
        "U: begins with the lowest index",
        partial(patch, "frameworkcontroller.machine.parts.rollout.availability.heapq.nlargest", heapq.nsmallest),
        rolling.rollout,
        "before",
    ),
    (
        "U: ignores the partition",
        _rolls(lambda tasks, unavailable, limit, _: _DUE(tasks, unavailable, limit, 0)),
        rolling.partial_rollout,
        "is below the partition",
    ),
    (
        "U: takes each running Pod for a ready one",
        _observes(lambda _state, _task, pod: replace(pod, ready=True)),
        rolling.unready_rollout,
        "U: ",
    ),
    (
        "U: does not wait for minReadySeconds",
        partial(patch.object, RoleTasks, "_available_at", lambda *_: 0.0),
        rolling.slow_rollout,
        "U: ",
    ),
    ("U: forgets the templates of Pods", _observes(_forget_template), rolling.rollout, "U: |It does not come about"),
    (
        "U: gives Pods no label",
        partial(patch.object, RolloutPart, "shape", lambda *_: None),
        rolling.unseen_pods,
        "U: |It does not come about",
    ),
    # --- O
    (
        "O: records no object",
        partial(patch.object, Tracker, "record_role_objects", lambda *_: None),
        _addressed(),
        "O: recorded are",
    ),
    (
        "O: deletes a Service that every spec asks for",
        partial(patch.object, CompanionPart, "before", _remove_all),
        _addressed(),
        "every spec asks for it",
    ),
    (
        "O: leaves a Service that no spec asks for",
        partial(patch.object, CompanionPart, "_remove", lambda *_: None),
        _addressed((("service", None), 40)),
        "O: recorded are",
    ),
    (
        "O: counts Tasks that are not ready",
        partial(patch.object, BudgetState, "observe", _count_unready),
        _addressed((("pods", "Running"), 40)),
        "were ready",
    ),
    (
        "O: writes a minimum before its count is stored",
        partial(patch.object, BudgetPart, "rests_on_status", False),
        _addressed((("lazy", 1), 0), (("pods", "Running"), 40), (("run", 0), 9), (("run", 1), 9), (("run", 0), 40)),
        "has the minimum",
    ),
    (
        "O: counts no Task that leaves and is ready",
        partial(patch.object, disruptionbudgets, "_STAYING", frozenset()),
        _addressed(*_READY, (("rescale", 1), 40)),
        "are not over",
    ),
    (
        "O: counts Tasks that have left",
        partial(patch.object, disruptionbudgets, "_STAYING", frozenset(State)),
        _addressed(*_READY, (("rescale", 1), 40)),
        "are not over",
    ),
)
"""Names, flaws, tales that show them, and words of which one is in the error."""
