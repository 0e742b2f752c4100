"""The gates: reasons to wait, where they are shown, and their end (machine/gates.py)."""

from typing import Any

import pytest

from frameworkcontroller.api.status import Condition
from frameworkcontroller.machine.lifereasons import LifeReason
from tests.support.bench import Bench, accepted, role


def running(bench: Bench) -> Condition:
    """The condition Running."""
    return next(item for item in bench.status.conditions if item.type == "Running")


@pytest.mark.parametrize("spec", [{"executionType": "Create"}, {"suspend": True}])
def test_the_first_written_status_says_why_the_attempt_does_not_start(spec: dict[str, Any]) -> None:
    bench = accepted(role(), **spec)
    (reason,) = bench.tracker.holds.waits()
    first = running(bench).message
    assert " waits: spec." in first
    bench.plan()
    assert bench.tracker.holds.waits().keys() == {reason}
    assert (bench.writes, running(bench).message) == (1, first)


def test_the_wait_for_a_start_is_over_once_the_attempt_has_started() -> None:
    bench = accepted(role(), executionType="Create")
    bench.plan()
    bench.edit(executionType="Start")
    bench.all_pods()
    assert not bench.tracker.holds.waits()


def test_a_suspended_framework_does_not_start_and_says_so() -> None:
    bench = accepted(role(), suspend=True)
    bench.settle()
    assert bench.configmap is None
    assert [*bench.tracker.holds.waits()] == [LifeReason.SUSPENDED]
    assert running(bench).message == "FrameworkAttempt 0 waits: spec.suspend is true"
    bench.edit(suspend=False)
    bench.all_pods()
    assert not bench.tracker.holds.waits()
