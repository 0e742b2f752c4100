"""A user removes the label by which Pods and ConfigMaps are watched: the guarantees hold, and work continues."""

from __future__ import annotations

from typing import Any

import pytest

from frameworkcontroller.api.status import State
from frameworkcontroller.machine.kernel.requests import Kind
from tests.support.history import NAME, History

SPEC: dict[str, Any] = {
    "executionType": "Start",
    "taskRoles": [{"name": "a", "taskNumber": 1, "frameworkAttemptCompletionPolicy": {}, "task": {}}],
}
POD, CONFIGMAP = 0, 1


def state(history: History) -> State:
    """The stored status."""
    assert history.status is not None
    return history.status.state


@pytest.fixture
def history() -> History:
    """A Framework whose one Task runs on a node that ends no deleted Pod."""
    history = History(1)
    history.create(SPEC)
    history.settle()
    history.kubelet(0, "Running")
    history.lose_node(lost=True)
    history.settle()
    return history


@pytest.mark.parametrize("which", [POD, CONFIGMAP], ids=["pod", "configmap"])
def test_a_terminating_object_that_loses_its_label_is_not_gone(history: History, which: int) -> None:
    history.execute("Stop")
    history.settle()
    history.unlabel(which)
    # Every step is checked: no status may say that the attempt is over while its Pod is there (C2, C4).
    history.wait(60)
    assert state(history) is State.DELETING
    assert all(
        body["metadata"]["labels"]
        for kind in (Kind.POD, Kind.CONFIGMAP)
        for body in history.world.objects[kind].values()
    )
    history.lose_node(lost=False)
    history.wait(60)
    assert state(history) is State.COMPLETED


@pytest.mark.parametrize("which", [POD, CONFIGMAP], ids=["pod", "configmap"])
def test_an_object_without_its_label_is_followed_to_its_end(history: History, which: int) -> None:
    history.unlabel(which)
    history.settle()
    assert history.framework is not None
    history.lose_node(lost=False)
    history.kubelet(0, "end", 7)
    history.wait(60)
    status = history.status
    assert status is not None
    assert status.state is State.COMPLETED
    (task,) = status.attempt.roles[0].tasks
    assert task.attempt.completion_status is not None
    assert (task.attempt.id, task.attempt.completion_status.code) == (0, 7)
    assert not history.world.objects[Kind.POD].get(f"{NAME}-a-0")
