"""Two controllers at once, one of them slow: short histories in which it finds the other one's objects.

Random histories (``test_machine_histories``) sometimes hit such moments, these always do. ``mutants`` plays them
with a controller that never reads the status live: it deletes something without cause.
"""

from collections.abc import Callable
from typing import Any, Final

import pytest

from frameworkcontroller.api.status import State
from frameworkcontroller.machine.kernel.actions import ConfirmNone, Create
from frameworkcontroller.machine.kernel.requests import Kind
from tests.support.history import History
from tests.support.world import Body, Fate

A: Final = 0
B: Final = 1
_TRIES: Final = 10


def begin() -> History:
    """A Framework of one Task is there, and two controllers."""
    history = History()
    roles = [{"name": "a", "taskNumber": 1, "task": {"retryPolicy": {"maxRetryCount": 0}}}]
    history.create({"executionType": "Start", "taskRoles": roles})
    history.start_second()
    return history


def hold_up_pod(history: History) -> None:
    """A stands still right before another try to create the Pod, with nothing to be written."""
    for _ in range(_TRIES):
        history.stop_before(Create, lambda target: target.kind is Kind.POD, A)
        if history.controllers[A].is_settled:
            return
        history.fail("create", Fate.LOST)
        history.run(A, 1)
    raise AssertionError("it always has something to write")


def pod(history: History) -> Body | None:
    """The Pod of the Task that all is about."""
    return history.world.objects[Kind.POD].get("f-a-0")


def record(history: History, *, attempt: int = 0) -> None:
    """B creates and records the Pod of that FrameworkAttempt's Task."""

    def is_recorded() -> bool:
        status = history.status
        if status is None or status.attempt.id != attempt or pod(history) is None:
            return False
        return [task.state for task in _tasks(history)] == [State.PREPARING]

    history.until(is_recorded, B)


def replace_attempt(history: History) -> None:
    """By the time that A creates the Pod, the Task's next attempt has one."""
    history.edit("retry", lambda spec: spec["taskRoles"][0]["task"]["retryPolicy"].update(maxRetryCount=1))
    hold_up_pod(history)
    record(history)
    first = pod(history)
    history.kubelet(0, "end", 1)
    history.until(lambda: pod(history) not in (None, first), B)
    record(history)


def replace_task(history: History) -> None:
    """By the time that A creates the Pod, the Task was deleted, and another instance of it has one."""
    hold_up_pod(history)
    record(history)
    history.rescale("a", 0)
    history.until(lambda: pod(history) is None and not _tasks(history), B)
    history.rescale("a", 1)
    record(history)


def replace_task_that_leaves(history: History) -> None:
    """By the time that A checks that a Task left no Pod, another instance of the Task has one."""
    history.stop_before(Create, lambda target: target.kind is Kind.POD, A)
    history.fail("create", Fate.LOST)
    history.run(A, 1)
    history.rescale("a", 0)
    history.stop_before(ConfirmNone, lambda target: target.kind is Kind.POD, A)
    history.fail("get", Fate.LOST)
    history.run(A, 1)
    history.stop_before(ConfirmNone, lambda target: target.kind is Kind.POD, A)
    history.until(lambda: not _tasks(history), B)
    history.rescale("a", 1)
    record(history)


def replace_framework_attempt(history: History) -> None:
    """By the time that A creates the ConfigMap, the Framework's next attempt has one."""
    policy = {"minFailedTaskCount": 1, "minSucceededTaskCount": 0}
    history.edit("policy", lambda spec: spec["taskRoles"][0].update(frameworkAttemptCompletionPolicy=policy))
    history.edit("retry", lambda spec: spec.update(retryPolicy={"maxRetryCount": 1}))
    history.stop_before(Create, lambda target: target.kind is Kind.CONFIGMAP, A)
    record(history)
    history.kubelet(0, "end", 1)
    record(history, attempt=1)


def go_on(history: History) -> None:
    """A continues, and its caches show nothing of the time between."""
    for _ in range(3):
        history.run(A, 30)
        history.tick(30)


def _tasks(history: History) -> list[Any]:
    status = history.status
    assert status is not None
    return [task for role in status.attempt.roles for task in role.tasks]


STORIES: Final = [replace_attempt, replace_task, replace_task_that_leaves, replace_framework_attempt]


@pytest.mark.parametrize("story", STORIES)
def test_a_slow_controller_deletes_nothing_of_the_other_ones(story: Callable[[History], None]) -> None:
    history = begin()
    story(history)
    running = pod(history)
    assert running is not None
    go_on(history)
    assert pod(history) == running
    history.finish()
