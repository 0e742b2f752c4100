"""A standby takes over with caches that are older than its predecessor's last write.

Random histories (``test_machine_histories``, ``test_queue_histories``) do so, too. These short ones surely catch a
controller that believes its caches (``mutants``).
"""

from typing import Any, Final

import pytest

from frameworkcontroller.api.status import State
from frameworkcontroller.machine.kernel.actions import Create
from frameworkcontroller.machine.kernel.requests import Kind
from tests.property import test_queues as queues
from tests.support.archive import ArchivedHistory
from tests.support.history import History
from tests.support.queuedhistory import QueuedHistory
from tests.support.queueguarantees import QUEUE_LABEL
from tests.support.world import uid_of

_PODS: Final = 2


def begin(*roles: dict[str, Any]) -> History:
    """A Framework, and a controller that does nothing yet."""
    history = History()
    history.create({"executionType": "Start", "taskRoles": list(roles)})
    return history


def an_attempt_is_over() -> History:
    """The standby has seen the first attempt of a Task before its Pod. That attempt is over now."""
    history = begin({"name": "a", "taskNumber": 1, "task": {"retryPolicy": {"maxRetryCount": 1}}})
    history.stop_before(Create, lambda target: target.name == "f-a-0")
    history.stand_by()
    history.until(lambda: "f-a-0" in history.world.objects[Kind.POD])
    history.kubelet(0, "end", 1)
    history.until(lambda: "f-a-0" not in history.world.objects[Kind.POD])
    history.stop_before(Create, lambda target: target.name == "f-a-0")
    history.take_over()
    return history


def a_role_has_started() -> History:
    """The status shows a role as started, since another one was ready, which it no longer is."""
    dependent = {"name": "b", "taskNumber": 1, "dependsOn": [{"name": "a", "status": "Ready"}]}
    history = begin({"name": "a", "taskNumber": 1}, dependent)
    history.until(lambda: "f-a-0" in history.world.objects[Kind.POD])
    history.kubelet(0, "Running")
    history.settle()
    history.stand_by()
    history.kubelet(0, "ready")
    history.stop_before(Create, lambda target: target.name == "f-b-0")
    history.kubelet(0, "unready")
    history.deliver_to_standby(_PODS, 50)
    history.take_over()
    history.rest(0)
    return history


def a_task_has_left() -> History:
    """The standby has seen a Task whose attempt is over. It has been marked, archived and removed since."""
    history = ArchivedHistory(7)
    policy = {"minFailedTaskCount": -1, "minSucceededTaskCount": -1}
    role = {"name": "a", "taskNumber": 2, "frameworkAttemptCompletionPolicy": policy}
    history.create({"taskRoles": [{**role, "task": {"retryPolicy": {"maxRetryCount": 1}}}]})
    history.settle()
    for pod in (0, 1):
        history.kubelet(pod, "Running")
    history.settle()
    history.set_sink("hangs")
    history.kubelet(1, "end", 1)
    history.settle()
    history.stand_by()
    history.rescale("a", 1)
    history.settle()
    history.set_sink("stores")
    history.settle()
    assert history.status is not None
    assert [len(role.tasks) for role in history.status.attempt.roles] == [1]
    history.take_over()
    return history


def a_pod_is_not_recorded() -> History:
    """The leader dies before it records a Pod, which the standby has not seen. Another client deletes the ConfigMap."""
    policy = {"minFailedTaskCount": -1, "minSucceededTaskCount": -1}
    history = begin({"name": "a", "taskNumber": 1, "frameworkAttemptCompletionPolicy": policy})
    pods = history.world.objects[Kind.POD]
    history.stand_by()
    history.settle()
    history.kubelet(0, "Running")
    history.settle()
    history.rescale("a", 2)
    history.until(lambda: "f-a-1" in pods)
    history.kubelet(1, "Running")
    history.take_over()
    history.delete_configmap("Background")
    history.collect(2)
    history.kubelet(0, "remove")
    assert list(pods) == ["f-a-1"]
    return history


def nothing_is_recorded(history: History, *, warm: bool) -> None:
    """The leader dies before it records a ConfigMap and a Pod of it. Another client deletes the ConfigMap.

    ``warm``: a standby continues that has seen neither. Otherwise the controller is restarted.
    """
    pods = history.world.objects[Kind.POD]
    history.stand_by()
    history.until(lambda: "f-a-0" in pods)
    assert state_of(history) is State.CREATION_PENDING
    if warm:
        history.deliver_to_standby(0, 50)
        history.take_over()
    else:
        history.crash(0)
    history.tick(1)
    history.kubelet(0, "Running")
    history.delete_configmap("Background")
    history.collect(1)
    assert list(pods) == ["f-a-0"]


def state_of(history: History) -> State:
    """The stored state of the Framework."""
    assert history.status is not None
    return history.status.state


def end_without_pods(history: History) -> None:
    """The caches of the new leader catch up, except the cache of Pods, unless it lists them."""
    controller = history.controllers[0]
    for _ in range(20):
        for other in history.others:
            other()
        for kind in (Kind.FRAMEWORK, Kind.CONFIGMAP, Kind.WORKLOAD):
            controller.deliver(kind, 50)
        history.run(0, 30)
        if not controller.due and controller.requeue_at is not None:
            history.world.go_until(min(controller.requeue_at, history.world.clock + 1))


def go_on(history: History) -> None:
    """The new leader works by its old caches, and they catch up."""
    history.run(0, 30)
    history.settle()


def test_it_repeats_no_attempt_that_is_over() -> None:
    history = an_attempt_is_over()
    go_on(history)
    (pod,) = history.pods()
    assert pod["metadata"]["annotations"]["FC_TASK_ATTEMPT_ID"] == "1"
    history.finish()


def test_it_continues_a_start_that_only_the_status_shows() -> None:
    history = a_role_has_started()
    assert "f-b-0" not in history.world.objects[Kind.POD]
    go_on(history)
    assert "f-b-0" in history.world.objects[Kind.POD]
    history.finish()


def test_the_history_gets_no_older_status_than_it_has() -> None:
    history = a_task_has_left()
    go_on(history)
    history.rescale("a", 2)
    history.finish()


def test_it_lists_the_pods_that_its_predecessor_may_have_created() -> None:
    history = a_pod_is_not_recorded()
    end_without_pods(history)
    assert state_of(history) is State.DELETING
    history.kubelet(0, "remove")
    history.settle()
    assert state_of(history) is State.COMPLETED
    history.finish()


WISHES: Final = ("suspend", "stop", "rescale and suspend", "move")


def begin_for(wish: str) -> History:
    """A Framework of two Tasks, in a queue if it is to move to another one."""
    return queues.begin() if wish == "move" else begin({"name": "a", "taskNumber": 2})


def fulfil(history: History, wish: str) -> None:
    """The user wants an end of the attempt."""
    if isinstance(history, QueuedHistory):
        history.label(QUEUE_LABEL, "team-b")
    elif wish == "stop":
        history.execute("Stop")
    else:
        if wish == "rescale and suspend":
            history.rescale("a", 0)
        history.suspend(wanted=True)


@pytest.mark.parametrize("warm", [True, False], ids=["standby", "restart"])
@pytest.mark.parametrize("wish", WISHES)
def test_nothing_is_over_while_a_pod_runs_that_no_status_records(wish: str, warm: bool) -> None:
    history = begin_for(wish)
    nothing_is_recorded(history, warm=warm)
    fulfil(history, wish)
    end_without_pods(history)
    assert state_of(history) is State.CREATION_PENDING
    assert history.status is not None
    assert all(one.status != "True" for one in history.status.conditions if one.type == "Suspended")
    history.finish()


def test_an_attempt_begins_after_the_pods_that_its_predecessor_left() -> None:
    history = begin({"name": "a", "taskNumber": 2})
    nothing_is_recorded(history, warm=False)
    left = {uid_of(pod) for pod in history.pods()}
    end_without_pods(history)
    history.settle()
    assert not left & {uid_of(pod) for pod in history.pods()}, "they are deleted first"
    history.finish()


def test_a_configmap_without_label_is_adopted_with_its_pods() -> None:
    history = begin({"name": "a", "taskNumber": 2})
    history.until(lambda: "f-a-0" in history.world.objects[Kind.POD])
    (before,) = history.world.objects[Kind.CONFIGMAP].values()
    history.unlabel(1)
    history.crash(0)
    history.settle()
    (after,) = history.world.objects[Kind.CONFIGMAP].values()
    assert uid_of(after) == uid_of(before)
    history.finish()
