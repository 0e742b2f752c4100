"""Pods that have lost their owner, which the garbage collector does not delete: they are known by their annotations."""

import copy
from collections.abc import Callable
from dataclasses import replace

import pytest

from frameworkcontroller.api.objects import Identity, pod_record
from frameworkcontroller.api.status import State
from frameworkcontroller.machine.kernel.absence import is_of_framework
from frameworkcontroller.machine.kernel.actions import ConfirmGone, Create, Delete
from frameworkcontroller.machine.kernel.exchanges import Accepted, Exists, Gone
from frameworkcontroller.machine.kernel.reasons import RequestReason
from frameworkcontroller.machine.lifereasons import LifeReason
from tests.support.bench import UID, Bench, foreign, prepared, role
from tests.support.queuedbench import begun, told

CONFIGMAP = "f-attempt"


def untie(bench: Bench, name: str = "f-a-0") -> None:
    """The Pod loses its owner."""
    bench.bodies[name]["metadata"]["ownerReferences"] = []
    bench.show(name)


def unrecorded(bench: Bench) -> Bench:
    """The process ends after it has created a Pod, and before it has recorded that; the Pod loses its owner."""
    bench.attempt()
    (creation,) = (action for action in bench.plan().actions if isinstance(action, Create))
    stored = copy.deepcopy(bench.status)
    bench.created(creation, show=False)
    bench.tracker.status = stored
    bench.restart()
    untie(bench)
    return bench


def deleted(bench: Bench) -> list[str]:
    """The Pods whose deletion a plan asks for."""
    actions = bench.plan().actions
    assert not any(isinstance(action, Create) for action in actions)
    for action in actions:
        bench.fold(action, Gone() if isinstance(action, ConfirmGone) else Accepted())
    return [action.uid for action in actions if isinstance(action, Delete) and action.target.name.startswith("f-a")]


def test_one_of_a_tasks_name_is_deleted_and_replaced() -> None:
    bench = unrecorded(Bench(role()))
    uid = bench.pods["f-a-0"].uid
    assert deleted(bench) == [uid]
    bench.hide("f-a-0")
    bench.created(bench.only(bench.wait(60)))
    assert bench.task().attempt.pod_uid not in (uid, None)
    assert bench.task().attempt.id == 0


def test_one_without_a_task_is_deleted() -> None:
    bench = unrecorded(Bench(role()))
    bench.edit(role("b"))
    uid = bench.pods["f-a-0"].uid
    bench.settle()
    assert "f-a-0" not in bench.pods
    assert uid not in [pod.uid for pod in bench.pods.values()]


def test_an_attempt_whose_configmap_is_gone_is_not_over_before_it_is_gone() -> None:
    bench = unrecorded(Bench(role(), retryPolicy={"maxRetryCount": 0}))
    uid = bench.pods["f-a-0"].uid
    bench.hide(CONFIGMAP)
    found: list[str] = []
    for _ in range(5):
        found += deleted(bench)
        assert bench.status.state is not State.COMPLETED
    assert set(found) == {uid}
    bench.hide("f-a-0")
    bench.settle()
    assert bench.status.state is State.COMPLETED


@pytest.mark.parametrize("stop", [{"suspend": True}, {"executionType": "Stop"}])
def test_one_from_before_the_attempt_is_deleted_first(stop: dict[str, object]) -> None:
    bench = prepared()
    body = copy.deepcopy(bench.bodies["f-a-0"])
    bench.edit_then_settle(suspend=True)
    bench.edit(**stop)
    bench.bodies["f-a-0"] = body
    untie(bench)
    bench.settle()
    assert bench.pods == {}


def test_one_of_a_completed_framework_is_deleted_and_holds_its_quota() -> None:
    bench = begun()
    bench.all_pods_run()
    body = copy.deepcopy(bench.bodies["f-a-0"])
    bench.stop("f-a-0")
    while bench.status.state is not State.COMPLETED:
        for action in bench.plan(write=False).actions:
            if not bench.do(action):
                bench.fold(action, Accepted(), write=False)
                bench.hide(action.target.name)
        bench.write()
    bench.bodies["f-a-0"] = {**body, "metadata": {**body["metadata"], "uid": "untied"}}
    untie(bench)
    made = bench.plan()
    assert [type(action).__name__ for action in made.actions] == ["Delete"]
    assert bench.live is not None
    bench.settle()
    assert bench.pods == {}
    assert told(bench, "Stalled") is None


def test_one_that_stays_stalls_the_framework() -> None:
    bench = prepared()
    body = copy.deepcopy(bench.bodies["f-a-0"])
    bench.edit_then_settle(suspend=True)
    bench.bodies["f-a-0"] = body
    untie(bench)
    bench.show_then_plan("f-a-0", deleting=bench.now)
    assert bench.stall() == ("", "")
    bench.wait(600)
    bench.plan()
    assert bench.stall()[0] == LifeReason.POD_NOT_GONE


def test_one_that_the_cache_does_not_show_is_found_when_its_name_is_taken() -> None:
    bench = Bench(role())
    bench.attempt()
    creation = bench.only(bench.plan())
    lost = Identity("lost", None, bench_identity(bench), deleting=False)
    bench.fold(creation, Exists(lost))
    assert bench.wait(60).actions == [Delete(creation.target, "lost", unrecorded=True)]
    assert bench.task().attempt.pod_uid is None


def bench_identity(bench: Bench) -> tuple[str, ...]:
    """The identity of the Pod that the Task is about to have."""
    task = bench.task()
    role_uid = bench.status.attempt.roles[0].instance_uid
    return UID, f"0_{bench.status.attempt.configmap_uid}", role_uid, task.instance_uid, "0"


@pytest.mark.parametrize(
    "other",
    [
        foreign("f-a-0"),
        foreign("f-a-0", controller="another"),
        Identity("foreign", "another", (UID, "0_x", "x", "x", "0"), deleting=False),
        Identity("foreign", None, ("another-framework", "0_x", "x", "x", "0"), deleting=False),
    ],
)
def test_foreign_untied_pods_are_ignored(other: Identity) -> None:
    bench = Bench(role())
    bench.attempt()
    creation = bench.only(bench.plan())
    bench.refuse(creation, Exists(other))
    assert bench.stall()[0] == RequestReason.NAMING_CONFLICT


@pytest.mark.parametrize("owner", [None, "later-configmap"])
@pytest.mark.parametrize("stop", [{"suspend": True}, {"executionType": "Stop"}, {"executionType": "Create"}])
def test_untied_pods_of_a_later_attempt_are_ignored(stop: dict[str, object], owner: str | None) -> None:
    """The status was restored from a backup."""
    bench = prepared(role(), retryPolicy={"maxRetryCount": -2})
    body = copy.deepcopy(bench.bodies["f-a-0"])
    bench.edit_then_settle(suspend=True)
    bench.edit(**stop)
    body["metadata"]["annotations"]["FC_FRAMEWORK_ATTEMPT_INSTANCE_UID"] = "7_later-configmap"
    body["metadata"]["ownerReferences"] = [] if owner is None else [{"uid": owner, "controller": True}]
    bench.bodies["f-a-0"] = body
    bench.show("f-a-0")
    for _ in range(9):
        for action in bench.wait(30).actions:
            assert not isinstance(action, Delete)
            bench.fold(action, Gone())


def named(name: str) -> Callable[[Identity], bool]:
    """Whether a Pod of that name, and with that identity, is of the Framework."""
    record = pod_record({"metadata": {"name": name, "namespace": "ns", "uid": "u", "resourceVersion": "1"}})
    return lambda identity: is_of_framework(UID, replace(record, identity=identity))


def test_a_copy_for_debugging_is_ignored() -> None:
    """``kubectl debug --copy-to`` keeps the annotations, and no owner."""
    copied = Identity("u", None, (UID, "0_x", "x", "x", "0"), deleting=False)
    assert named("f-a-0")(copied)
    assert not named("f-a-0-debug")(copied)
