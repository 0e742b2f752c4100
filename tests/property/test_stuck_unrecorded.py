"""Objects that no status records, and that do not go away: their node is lost, or something else holds them."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from frameworkcontroller.api import names
from frameworkcontroller.api.status import State
from frameworkcontroller.machine.kernel.requests import Kind
from tests.support.history import NAME, History

TIMEOUT_SEC: Final = 600
_WAKES: Final = 60


def begin(*, timeout: int | None = TIMEOUT_SEC) -> History:
    """A Framework of one Task is there, and a controller."""
    history = History()
    roles = [{"name": "a", "taskNumber": 1, "task": {"podGracefulDeletionTimeoutSec": timeout}}]
    history.create({"executionType": "Start", "taskRoles": roles})
    return history


def create(history: History, kind: Kind) -> Any:
    """The controller creates such an object, and is killed before it has recorded that."""
    history.until(lambda: bool(history.world.objects[kind]))
    history.crash(0)
    (body,) = history.world.objects[kind].values()
    return body


def pod(history: History) -> Any:
    """The Pod of the Task."""
    return history.world.objects[Kind.POD].get(f"{NAME}-a-0")


def come_about(history: History, holds: Callable[[], bool]) -> None:
    """Time passes from one wake-up of the controller to the next, until that is so."""
    for _ in range(_WAKES):
        history.settle()
        if holds():
            return
        (controller,) = history.controllers
        assert controller.requeue_at is not None, "it waits for ever"
        history.world.go_until(controller.requeue_at)
    raise history.world.violation("it does not come about")


def is_stalled(history: History, reason: str) -> bool:
    """Whether the Framework says so."""
    assert history.status is not None
    return any(
        (item.type, item.status, item.reason) == ("Stalled", "True", reason) for item in history.status.conditions
    )


def is_completed(history: History) -> bool:
    """Whether the Framework is completed."""
    return history.status is not None and history.status.state is State.COMPLETED


def lost_pod(history: History) -> Any:
    """A Pod that no status records is being deleted on a lost node."""
    body = create(history, Kind.POD)
    history.kubelet(0, "Running")
    history.lose_node(lost=True)
    history.delete_pod(0, force=False)
    return body


def test_an_unrecorded_pod_on_a_lost_node_is_reported_and_replaced_after_its_timeout() -> None:
    history = begin()
    body = lost_pod(history)
    began = history.world.now
    come_about(history, lambda: is_stalled(history, "PodNotGone"))
    assert pod(history) == body
    come_about(history, lambda: pod(history) not in (None, body))
    assert TIMEOUT_SEC <= history.world.now - began < TIMEOUT_SEC + 60
    history.finish()


def test_an_unrecorded_pod_without_a_timeout_is_reported_and_left() -> None:
    history = begin(timeout=None)
    body = lost_pod(history)
    come_about(history, lambda: is_stalled(history, "PodNotGone"))
    history.tick(100_000)
    history.settle()
    assert pod(history) == body
    history.finish()


@pytest.mark.parametrize("persisted", [False, True])
def test_stop_gets_through_past_an_unrecorded_pod_on_a_lost_node(persisted: bool) -> None:
    """``persisted``: the ConfigMap is recorded, too."""
    history = begin()
    if persisted:
        history.until(lambda: history.status is not None and history.status.attempt.configmap_uid is not None)
    lost_pod(history)
    history.execute("Stop")
    come_about(history, lambda: is_completed(history))
    assert pod(history) is None
    history.finish()


def test_an_unrecorded_configmap_that_a_user_deletes_goes_with_its_pod_on_a_lost_node() -> None:
    history = begin()
    lost_pod(history)
    history.delete_configmap()
    come_about(history, lambda: is_stalled(history, "PodNotGone"))
    come_about(history, lambda: history.status is not None and history.status.attempt.configmap_uid is not None)
    history.finish()


def test_an_unrecorded_configmap_that_a_finalizer_holds_is_reported_and_stop_waits_for_it() -> None:
    history = begin()
    body = create(history, Kind.CONFIGMAP)
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "uid": body["metadata"]["uid"], "controller": True}
    holder = {"metadata": {"name": "holder", "ownerReferences": [owner]}}
    history.world.create(Kind.POD, holder)
    history.kubelet(0, "Running")
    history.lose_node(lost=True)
    history.delete_configmap()
    history.execute("Stop")
    come_about(history, lambda: is_stalled(history, "ConfigMapNotGone"))
    assert not is_completed(history)
    history.world.remove(Kind.POD, "holder")
    come_about(history, lambda: is_completed(history))
    assert names.configmap_name(NAME) not in history.world.objects[Kind.CONFIGMAP]
