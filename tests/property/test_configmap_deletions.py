"""However the attempt's ConfigMap is deleted, the attempt is over only when nothing of it runs (C4)."""

from __future__ import annotations

from typing import Any

import pytest

from frameworkcontroller.api.status import State
from frameworkcontroller.machine.kernel.requests import Kind
from tests.support.history import History


def spec(retries: int) -> dict[str, Any]:
    """Two Tasks, and this number of further attempts."""
    roles = [{"name": "a", "taskNumber": 2, "frameworkAttemptCompletionPolicy": {}, "task": {}}]
    return {"executionType": "Start", "retryPolicy": {"maxRetryCount": retries}, "taskRoles": roles}


@pytest.mark.parametrize("asked_before", [False, True], ids=["at-once", "after-stop"])
@pytest.mark.parametrize("propagation", ["Foreground", "Background", "Orphan"])
def test_the_attempt_is_over_after_its_last_pod(propagation: str, asked_before: bool) -> None:
    history = History(1)
    history.create(spec(retries=0))
    history.settle()
    for which in range(2):
        history.kubelet(which, "Running")
    history.lose_node(lost=True)
    history.settle()
    if asked_before:
        history.execute("Stop")
        history.settle()
    history.delete_configmap(propagation)
    # Every step is checked.
    history.wait(60)
    status = history.status
    assert status is not None
    assert status.state is State.DELETING
    history.lose_node(lost=False)
    history.wait(60)
    status = history.status
    assert status is not None
    assert status.state is State.COMPLETED
    assert not history.world.objects[Kind.POD]


@pytest.mark.parametrize("propagation", ["Foreground", "Background", "Orphan"])
def test_the_next_attempt_follows(propagation: str) -> None:
    history = History(2)
    history.create(spec(retries=1))
    history.settle()
    history.delete_configmap(propagation)
    history.wait(60)
    status = history.status
    assert status is not None
    assert status.attempt.id == 1
    history.finish()
