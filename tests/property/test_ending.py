"""An end that is asked for comes, at any moment at which the spec becomes invalid, before and after a restart.

By the rules of tests/support/guarantees.py; random histories are in ``test_machine_histories`` and
``test_queue_histories``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from frameworkcontroller.api.status import State
from tests.property.test_suspension import begin
from tests.support.history import History
from tests.support.kueue import QUEUES
from tests.support.queuedhistory import QueuedHistory

STEPS: Final = range(16)


def stop(history: History) -> None:
    """The user stops it."""
    history.execute("Stop")


def suspend(history: History) -> None:
    """It is suspended."""
    history.suspend(wanted=True)


def exceed(history: History) -> None:
    """Its deadline passes, once it has begun."""
    history.set_deadline(1)
    history.settle()
    history.tick(1)


def code(history: History) -> int | None:
    """The completion code of the current attempt."""
    status = history.status
    completion = None if status is None else status.attempt.completion_status
    return None if completion is None else completion.code


def end_at(steps: int, ask: Callable[[History], None], *, crash: bool) -> None:
    """End a Framework after its spec has become invalid at this step."""
    history = begin()
    history.follow(0, steps)
    history.break_spec(broken=True)
    history.follow(0, steps % 3)
    if crash:
        history.crash(0)
    ask(history)
    for _ in range(3):
        # A new process may have Pods listed once more.
        history.wait(5)
    status = history.status
    assert status is not None
    if ask is stop:
        assert (status.state, code(history)) == (State.COMPLETED, -210)
    elif ask is suspend:
        assert [one.status for one in status.conditions if one.type == "Suspended"] == ["True"]
    elif status.state is not State.CREATION_PENDING:
        assert (status.state, code(history)) == (State.COMPLETED, -250)
    assert ask is exceed or not history.pods()
    told = [(one.status, one.reason) for one in status.conditions if one.type == "Stalled"]
    assert told == [("True", "InvalidSpec")]
    history.finish()


def evict_at(steps: int, evict: str, *, crash: bool) -> None:
    """Evict a queued Framework after its spec has become invalid at this step."""
    history = QueuedHistory(quota={"a100": 4})
    pod = {"spec": {"containers": [{"name": "main", "image": "work"}]}}
    history.create_in(QUEUES[0], {"taskRoles": [{"name": "a", "taskNumber": 2, "task": {"pod": pod}}]})
    for _ in range(steps):
        history.step_kueue(1)
        history.follow(0, 1)
        history.controllers[0].catch_up()
    history.break_spec(broken=True)
    history.run(0, steps % 3)
    if crash:
        history.crash(0)
    history.play(evict, 0)
    history.settle()
    # The end checks that nothing asked back keeps its quota (`_quota_is_given_back`).
    history.finish()


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("ask", [stop, suspend, exceed])
@pytest.mark.parametrize("steps", STEPS)
def test_an_end_comes_at_any_moment(steps: int, ask: Callable[[History], None], *, crash: bool) -> None:
    end_at(steps, ask, crash=crash)


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("evict", ["Preempted", "MaximumExecutionTimeExceeded", "deactivate", "delete"])
@pytest.mark.parametrize("steps", range(0, 100, 9))
def test_an_evicted_framework_releases_its_quota_at_any_moment(steps: int, evict: str, *, crash: bool) -> None:
    evict_at(steps, evict, crash=crash)
