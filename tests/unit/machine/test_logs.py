"""The logs of Pods: which are asked for and when, how long a deletion waits, and its cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest

from frameworkcontroller.api.objects import ContainerRun, PodRecord, pod_record
from frameworkcontroller.machine.kernel.model import Capture, Env, KeepLogs, Limits
from frameworkcontroller.machine.kernel.protocol import CaptureLogs
from tests.support.bench import limits, role
from tests.support.oneframework import Driver, OneFramework
from tests.support.world import Body

RUNS: Final = (ContainerRun("main", 0),)
SEC: Final = 10.0


class World(OneFramework):
    """Pods whose containers have run."""

    answer_sec = 0.0

    @property
    def env(self) -> Env:
        return replace(super().env, answer_sec=self.answer_sec)

    def fare(self, name: str, phase: str) -> PodRecord:
        """The cache shows the Pod in that phase."""
        body = self.objects[name]
        body["spec"]["nodeName"] = "node-1"
        state = {"running": {}} if phase == "Running" else {"terminated": {"exitCode": int(phase == "Failed")}}
        body["status"] = {"phase": phase, "containerStatuses": [{"name": "main", "state": state}]}
        self.pods[name] = pod_record(body, runs=True)
        return self.pods[name]


def keeping(keep: KeepLogs) -> Limits:
    return replace(limits(), keep_logs=keep, log_capture_sec=SEC)


def begun(keep: KeepLogs = KeepLogs.ALL, *, tasks: int = 2, failed: int = 0, **task: Any) -> tuple[World, Driver]:
    """All Pods run."""
    world = World(role(number=tasks, failed=failed, **task), limit=keeping(keep))
    driver = Driver(world)
    driver.settle()
    for name in world.pods:
        world.fare(name, "Running")
        driver.reconciler.on_pod_event(name)
    driver.settle()
    driver.effects.clear()
    driver.requests.clear()
    return world, driver


def change(world: World, driver: Driver, name: str, phase: str) -> None:
    world.fare(name, phase)
    driver.reconciler.on_pod_event(name)


def gone(world: World, driver: Driver, name: str) -> None:
    """The cache drops the Pod."""
    driver.reconciler.on_pod_dropped(world.pods.pop(name), removed=True)
    driver.reconciler.on_pod_event(name)


def captures(driver: Driver) -> list[Capture]:
    return [effect.capture for effect in driver.take(CaptureLogs)]


def removed(driver: Driver) -> list[str]:
    return [one.removeprefix("Remove ") for one in driver.sent() if one.startswith("Remove ")]


def uid(name: str) -> str:
    return f"uid-of-{name}"


def test_a_pod_that_has_ended_is_read_while_its_end_is_stored() -> None:
    world, driver = begun()
    change(world, driver, "f-a-0", "Succeeded")
    call = driver.call()
    (capture,) = captures(driver)
    assert capture == Capture(capture.id, 0, "f-a-0", "node-1", RUNS, follow=False, until=world.clock + SEC, rank=2)
    assert (capture.id.role, capture.id.attempt, capture.id.task_attempt) == ("a", 0, 0)
    assert (capture.id.pod_uid, capture.id.framework_uid) == (uid("f-a-0"), "uid-1")
    driver.do(call)
    done = driver.finish()
    assert done.requeue_after == 0.0
    done = driver.finish()
    assert (done.requeue_after, removed(driver)) == (SEC, [])
    assert driver.reconciler.on_captured(uid("f-a-0"))
    driver.finish()
    assert (captures(driver), removed(driver)) == ([], ["f-a-0"])


def test_a_log_that_is_read_in_time_costs_no_wait() -> None:
    world, driver = begun()
    change(world, driver, "f-a-0", "Failed")
    call = driver.call()
    # Nothing waits for it yet.
    assert not driver.reconciler.on_captured(uid("f-a-0"))
    driver.do(call)
    driver.finish()
    driver.finish()
    assert removed(driver) == ["f-a-0"]


@pytest.mark.parametrize("before", [0.0, 3.0])
def test_no_deletion_waits_longer_than_the_bound(before: float) -> None:
    """Counted from the first request."""
    world, driver = begun()
    change(world, driver, "f-a-0", "Failed")
    call = driver.call()
    world.clock += before
    driver.do(call)
    driver.finish()
    assert driver.finish().requeue_after == SEC - before
    world.clock += SEC - before
    driver.finish()
    assert removed(driver) == ["f-a-0"]
    assert driver.reconciler.tracker.counters().log_waits_sec == [SEC - before]


def test_pods_that_run_are_followed_at_the_end_of_the_attempt() -> None:
    """The failed one first, then the others; the ConfigMap waits until all are followed."""
    world, driver = begun(tasks=3, failed=1)
    change(world, driver, "f-a-1", "Failed")
    change(world, driver, "f-a-2", "Failed")
    driver.reconciler.on_captured(uid("f-a-2"))
    driver.finish()
    driver.reconciler.on_captured(uid("f-a-2"))
    driver.finish()
    assert removed(driver) == ["f-a-2"]
    gone(world, driver, "f-a-2")
    for _ in range(3):
        driver.finish()
    assert [(one.pod_name, one.follow, one.rank) for one in captures(driver)] == [
        ("f-a-1", False, 0),
        ("f-a-2", False, 0),
        ("f-a-0", True, 2),
    ]
    told = [driver.reconciler.on_captured(uid(name)) for name in ("f-a-1", "f-a-2", "f-a-0")]
    assert told == [True, False, True]
    driver.finish()
    assert "f-attempt" in removed(driver)


def stop(world: World, driver: Driver) -> None:
    world.edit_and_show(executionType="Stop")


def scale_down(world: World, driver: Driver) -> None:
    world.edit_and_show(role(number=1))


def deleted_by_others(world: World, driver: Driver) -> None:
    world.objects["f-a-1"]["metadata"] |= {
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "deletionGracePeriodSeconds": 30,
    }
    change(world, driver, "f-a-1", "Running")


@pytest.mark.parametrize(
    ("act", "keep", "pods"),
    [
        (stop, KeepLogs.ALL, ["f-a-0", "f-a-1"]),
        (stop, KeepLogs.FAILED, []),
        (scale_down, KeepLogs.ALL, ["f-a-1"]),
        (scale_down, KeepLogs.FAILED, []),
        (deleted_by_others, KeepLogs.ALL, ["f-a-1"]),
        (deleted_by_others, KeepLogs.FAILED, ["f-a-1"]),
        (deleted_by_others, KeepLogs.NONE, []),
        (stop, KeepLogs.NONE, []),
    ],
)
def test_which_are_followed(act: Callable[[World, Driver], None], keep: KeepLogs, pods: list[str]) -> None:
    world, driver = begun(keep)
    act(world, driver)
    for _ in range(5):
        driver.finish()
    asked = captures(driver)
    assert [one.pod_name for one in asked] == pods
    assert all(one.follow for one in asked)


def test_with_none_nothing_is_asked_for() -> None:
    world, driver = begun(KeepLogs.NONE)
    change(world, driver, "f-a-0", "Failed")
    driver.settle()
    assert (captures(driver), removed(driver)) == ([], ["f-a-0"])


def test_a_pod_that_never_ran_has_no_log() -> None:
    world, driver = begun()
    world.pods["f-a-0"] = replace(world.fare("f-a-0", "Failed"), runs=())
    driver.reconciler.on_pod_event("f-a-0")
    driver.settle()
    assert (captures(driver), removed(driver)) == ([], ["f-a-0"])


def test_a_container_that_begins_while_its_pod_is_stopped() -> None:
    """It is asked for when it is seen, and the deletion waits no longer for it than for the others."""
    world, driver = begun(tasks=1)
    init, main = ContainerRun("init", 0), RUNS[0]
    world.pods["f-a-0"] = replace(world.pods["f-a-0"], runs=(init,))
    stop(world, driver)
    for _ in range(3):
        driver.finish()
    (first,) = captures(driver)
    assert (first.runs, removed(driver)) == ((init,), [])
    world.clock += 4.0
    assert driver.reconciler.on_captured(uid("f-a-0"))
    world.pods["f-a-0"] = replace(world.pods["f-a-0"], runs=(main, init))
    driver.reconciler.tracker.look_at_all()
    assert driver.finish().requeue_after == SEC - 4.0
    (second,) = captures(driver)
    assert (second.runs, second.until) == ((main,), world.clock + SEC)
    world.clock += SEC - 4.0
    driver.finish()
    assert removed(driver) == ["f-attempt"]


def test_a_pod_that_is_gone_has_lost_its_log() -> None:
    world, driver = begun(pod={"spec": {"containers": [{"name": "x"}, {"name": "y"}]}})
    del world.objects["f-a-1"]
    gone(world, driver, "f-a-1")
    driver.settle()
    (capture,) = captures(driver)
    assert capture.runs == (ContainerRun("x", 0), ContainerRun("y", 0))
    assert (capture.node, capture.why) == ("node-1", "the Pod was gone before its log could be read")


def test_of_a_slow_api_server_only_failed_ones_are_read() -> None:
    world, driver = begun()
    world.answer_sec = 2.345
    change(world, driver, "f-a-0", "Failed")
    change(world, driver, "f-a-1", "Succeeded")
    driver.finish()
    assert [(one.pod_name, one.why) for one in captures(driver)] == [
        ("f-a-0", ""),
        ("f-a-1", "the API server is slow: its answers take 2.3 s"),
    ]


def test_a_new_process_asks_again() -> None:
    world, driver = begun()
    change(world, driver, "f-a-0", "Failed")
    driver.finish()
    driver.finish()
    assert len(captures(driver)) == 1
    world.fare("f-a-0", "Failed")
    world.show()
    successor = Driver(world)
    successor.finish()
    assert [one.pod_name for one in captures(successor)] == ["f-a-0"]
    assert removed(successor) == []


def test_another_writer_starts_no_new_wait() -> None:
    """The status is taken over, with the captures of the attempt."""
    world, driver = begun()
    change(world, driver, "f-a-0", "Failed")
    call = driver.call()
    assert len(captures(driver)) == 1
    world.annotate()
    driver.do(call)
    world.clock += SEC
    driver.settle()
    assert captures(driver) == []
    assert removed(driver) == ["f-a-0"]


# --- the runs in a Pod ------------------------------------------------------------------------------------------


def pod(phase: str, *, main: Body | None = None, init: Body | None = None, node: str = "n") -> Body:
    status: Body = {"phase": phase}
    if main is not None:
        status["containerStatuses"] = [{"name": "main", **main}]
    if init is not None:
        status["initContainerStatuses"] = [{"name": "init", **init}]
    spec = {"nodeName": node, "containers": [{"name": "main"}], "initContainers": [{"name": "init"}]}
    metadata = {"namespace": "ns", "name": "f-a-0", "uid": "u", "resourceVersion": "1"}
    return {"metadata": metadata, "spec": spec, "status": status}


RUNNING: Final[Body] = {"state": {"running": {}}}
ENDED: Final = {"state": {"terminated": {"exitCode": 1}}}
WAITING: Final = {"state": {"waiting": {"reason": "PodInitializing"}}}
LAST: Final = {"lastState": {"terminated": {"exitCode": 1}}}


@pytest.mark.parametrize(
    ("body", "runs"),
    [
        (pod("Pending"), []),
        (pod("Pending", main=WAITING, init=RUNNING), [("init", 0, False)]),
        (pod("Running", main=RUNNING, init=ENDED), [("main", 0, False), ("init", 0, False)]),
        (pod("Running", main={**RUNNING, **LAST, "restartCount": 2}), [("main", 2, False), ("main", 1, True)]),
        # A kubelet gives the last run of a container that waits for its restart.
        (pod("Running", main={**WAITING, **LAST, "restartCount": 2}), [("main", 2, False)]),
        (pod("Failed", main={**ENDED, **LAST, "restartCount": 1}), [("main", 1, False), ("main", 0, True)]),
        (pod("Failed"), [("main", 0, False), ("init", 0, False)]),
        (pod("Failed", node=""), []),
    ],
)
def test_runs(body: Body, runs: list[tuple[str, int, bool]]) -> None:
    assert list(pod_record(body, runs=True).runs) == runs
    assert pod_record(body).runs == ()
