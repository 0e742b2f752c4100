"""The gates: reasons to wait, where they are shown, and their end (machine/gates.py)."""

from __future__ import annotations

from typing import Any

import pytest

from frameworkcontroller.api.status import Condition, TaskStatus
from frameworkcontroller.machine import gates
from frameworkcontroller.machine.gates import STOPPED
from frameworkcontroller.machine.kernel.actions import Create
from frameworkcontroller.machine.kernel.context import Context
from frameworkcontroller.machine.kernel.holds import Wait
from frameworkcontroller.machine.kernel.reasons import EventPolicy, Reason
from frameworkcontroller.machine.parts.kueue.kueue import Kueue
from tests.support.bench import Bench, role


def running(bench: Bench) -> Condition:
    """The condition Running."""
    return next(item for item in bench.status.conditions if item.type == "Running")


@pytest.mark.parametrize("spec", [{"executionType": "Create"}, {"suspend": True}])
def test_the_first_written_status_says_why_the_attempt_does_not_start(spec: dict[str, Any]) -> None:
    bench = Bench(role(), **spec)
    bench.plan()
    (reason,) = bench.tracker.holds.waits()
    first = running(bench).message
    assert " waits: spec." in first
    bench.plan()
    assert bench.tracker.holds.waits().keys() == {reason}
    assert (bench.writes, running(bench).message) == (1, first)


def test_the_wait_for_a_start_is_over_once_the_attempt_has_started() -> None:
    bench = Bench(role(), executionType="Create")
    bench.plan()
    bench.plan()
    bench.edit(executionType="Start")
    bench.all_pods()
    assert not bench.tracker.holds.waits()


def test_a_suspended_framework_does_not_start_and_says_so() -> None:
    bench = Bench(role(), suspend=True)
    bench.plan()
    bench.settle()
    assert bench.configmap is None
    assert [*bench.tracker.holds.waits()] == [Reason.SUSPENDED]
    assert running(bench).message == "FrameworkAttempt 0 waits: spec.suspend is true"
    bench.edit(suspend=False)
    bench.all_pods()
    assert not bench.tracker.holds.waits()


@pytest.fixture
def reason(monkeypatch: pytest.MonkeyPatch) -> Reason:
    """A reason to wait that is shown and becomes an Event."""
    monkeypatch.setattr(Reason.ATTEMPT_ENDS, "event", EventPolicy.WAIT)
    return Reason.ATTEMPT_ENDS


def test_a_wait_of_tasks_is_shown_and_ends_by_an_event(monkeypatch: pytest.MonkeyPatch, reason: Reason) -> None:
    closed = True

    def rule(_: Kueue, _ctx: Context, task: TaskStatus) -> Wait | None:
        return Wait(reason, "something is missing") if closed and task.index else None

    monkeypatch.setattr(Kueue, "may_create", rule)
    bench = Bench(role(number=3))
    bench.attempt()
    made = [action.target.index for action in bench.plan().actions if isinstance(action, Create)]
    assert made == [0]
    assert bench.tracker.holds.waiters(reason) == [("a", 1), ("a", 2)]
    assert running(bench).message == "FrameworkAttempt 0 waits: something is missing"
    closed = False
    bench.tracker.wake(reason)
    made = [action.target.index for action in bench.plan().actions if isinstance(action, Create)]
    assert made == [1, 2]
    assert not bench.tracker.holds.waits()
    assert running(bench).message == "FrameworkAttempt 0"


def test_no_plan_creates_a_pod_and_ends_the_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates, "_END_LAST", (lambda _: STOPPED,))
    bench = Bench(role())
    bench.attempt()
    assert not [action for action in bench.plan().actions if isinstance(action, Create)]
    assert bench.tracker.is_completing
