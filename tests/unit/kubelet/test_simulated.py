"""Runtime "simulated": the effects of annotations and test code on Pods, on virtual time and without an API server."""

import asyncio

import pytest

from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.local.kubelet.simulation import PREFIX
from tests.support.pods import Hosting, pod_manifest
from tests.support.virtual_clock import VirtualClockLoop


@pytest.fixture
def runtime(clock: VirtualClockLoop) -> SimulatedRuntime:
    return SimulatedRuntime(wall=clock.wall)


@pytest.fixture
def node(runtime: SimulatedRuntime, clock: VirtualClockLoop) -> Hosting:
    return Hosting(runtime, wall=clock.wall)


def sim(**values: str) -> dict[str, str]:
    return {PREFIX + key.replace("_", "-"): value for key, value in values.items()}


async def test_a_pod_without_annotations_runs_forever(node: Hosting) -> None:
    uid = node.admit(pod_manifest(inits=({"name": "i"},)))
    assert node.phase(uid) == "Running"
    assert node.container(uid, "i")["state"]["terminated"]["exitCode"] == 0
    await asyncio.sleep(1e6)
    assert node.phase(uid) == "Running"


async def test_times_and_exit_code(node: Hosting, clock: VirtualClockLoop) -> None:
    uid = node.admit(
        pod_manifest(
            annotations=sim(
                prepare_seconds="3",
                startup_seconds="2",
                run_seconds="10",
                exit_code="7",
                message="a, b",
                reason="OOMKilled",
            )
        )
    )
    assert "podIP" not in node.status(uid)
    await asyncio.sleep(3)
    await clock.settled()
    assert node.status(uid)["podIP"].startswith("10.")
    assert node.phase(uid) == "Pending"
    await asyncio.sleep(2)
    await clock.settled()
    assert node.phase(uid) == "Running"
    await asyncio.sleep(10)
    await clock.settled()
    assert node.phase(uid) == "Failed"
    terminated = node.container(uid)["state"]["terminated"]
    assert terminated.pop("containerID").startswith("simulated://")
    assert terminated == {
        "exitCode": 7,
        "reason": "OOMKilled",
        "message": "a, b",
        "startedAt": "2026-01-01T00:00:05Z",
        "finishedAt": "2026-01-01T00:00:15Z",
    }


@pytest.mark.parametrize(("attempt", "code"), [("0", 1), ("1", 2), ("2", 0), ("7", 0)])
async def test_lists_are_by_attempt(node: Hosting, attempt: str, code: int) -> None:
    annotations = {"FC_TASK_ATTEMPT_ID": attempt, **sim(run_seconds="0", exit_code="1, 2, 0")}
    uid = node.admit(pod_manifest(annotations=annotations))
    assert node.container(uid)["state"]["terminated"]["exitCode"] == code


async def test_lists_by_restart_of_the_container(node: Hosting) -> None:
    uid = node.admit(
        pod_manifest(restartPolicy="OnFailure", annotations=sim(attempt="restart", run_seconds="1", exit_code="1,1,0"))
    )
    await asyncio.sleep(2.5)
    assert node.container(uid)["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    await asyncio.sleep(11)
    assert node.phase(uid) == "Succeeded"
    assert node.container(uid)["restartCount"] == 2


async def test_one_container_alone(node: Hosting, runtime: SimulatedRuntime) -> None:
    uid = node.admit(
        pod_manifest(
            {"name": "a"}, {"name": "b"}, annotations={PREFIX + "run-seconds": "5", PREFIX + "run-seconds.b": "9"}
        )
    )
    await asyncio.sleep(6)
    assert "terminated" in node.container(uid, "a")["state"]
    assert "running" in node.container(uid, "b")["state"]
    runtime.fail("default/f-r-0", 3, container="b")
    assert node.phase(uid) == "Failed"
    with pytest.raises(KeyError, match="no container"):
        runtime.fail("default/f-r-0")


@pytest.mark.parametrize(
    ("stop", "grace", "after", "code"),
    [("0", 30, 0.0, 143), ("4", 30, 4.0, 143), ("40", 30, 30.0, 137), ("forever", 0, 0.0, 137)],
)
async def test_deletion(node: Hosting, stop: str, grace: int, after: float, code: int) -> None:
    uid = node.admit(pod_manifest(annotations=sim(stop_seconds=stop)))
    node.delete(uid, grace)
    if after:
        await asyncio.sleep(after - 0.5)
        assert not node.pod(uid).life.dead
        await asyncio.sleep(1)
    assert node.pod(uid).life.dead
    assert node.container(uid)["state"]["terminated"]["exitCode"] == code


async def test_a_pod_that_never_goes_away_until_it_is_forced(node: Hosting) -> None:
    uid = node.admit(pod_manifest(annotations=sim(stop_seconds="forever", run_seconds="50")))
    node.delete(uid)
    await asyncio.sleep(1e6)
    assert not node.pod(uid).life.dead
    node.workers.abandon(uid)
    assert node.pod(uid).life.dead


async def test_a_whole_pod_fails_as_if_evicted(node: Hosting) -> None:
    uid = node.admit(
        pod_manifest(
            annotations=sim(run_seconds="3", pod_reason="Evicted", pod_message="out of disk", stop_seconds="2")
        )
    )
    await asyncio.sleep(4)
    assert node.phase(uid) == "Running"
    await asyncio.sleep(2)
    status = node.status(uid)
    assert (status["phase"], status["reason"], status["message"]) == ("Failed", "Evicted", "out of disk")


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("run-seconds", "soon", "'soon' is not seconds and not `forever`"),
        ("run-seconds", "-1", "'-1' is not seconds"),
        ("exit-code", "256", "not an integer from 0 to 255"),
        ("exit-codes", "1", "is not known"),
        ("run-seconds.other", "1", "the Pod has no container 'other'"),
        ("pod-reason.main", "x", "is not known"),
        ("attempt", "mine", "not one of task, framework, restart"),
    ],
)
async def test_an_annotation_that_cannot_be_meant_fails_the_pod(
    node: Hosting, key: str, value: str, complaint: str
) -> None:
    uid = node.admit(pod_manifest(annotations={PREFIX + key: value}))
    status = node.status(uid)
    assert (status["phase"], status["reason"]) == ("Failed", "InvalidSimulation")
    assert complaint in status["message"]


async def test_methods_for_tests(node: Hosting, runtime: SimulatedRuntime) -> None:
    uid = node.admit(pod_manifest())
    runtime.set_phase("default/f-r-0", "Unknown", "NodeLost", "no word from the node")
    assert (node.phase(uid), node.status(uid)["reason"]) == ("Unknown", "NodeLost")
    runtime.set_phase("default/f-r-0", None)
    assert node.phase(uid) == "Running"
    assert runtime.running() == ["default/f-r-0"]
    runtime.fail("default/f-r-0", 137, "OOMKilled", signal=9)
    terminated = node.container(uid)["state"]["terminated"]
    assert (terminated["exitCode"], terminated["reason"], terminated["signal"]) == (137, "OOMKilled", 9)
    other = node.admit(pod_manifest(name="f-r-1"))
    runtime.fail_pod("default/f-r-1", "Preempting", "make room")
    assert node.status(other)["reason"] == "Preempting"
    third = node.admit(pod_manifest(name="f-r-2"))
    runtime.finish("default/f-r-2")
    assert node.phase(third) == "Succeeded"
    with pytest.raises(KeyError):
        runtime.finish("default/none")


async def test_restart_of_the_kubelet(clock: VirtualClockLoop) -> None:
    """Simulated Pods run on without their kubelet, and end when they would have, or as soon as one is back."""
    started = {"state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}, "name": "main"}
    status = {"phase": "Running", "podIP": "10.128.0.7", "containerStatuses": [started]}
    await asyncio.sleep(100)
    node = Hosting(SimulatedRuntime(wall=clock.wall), wall=clock.wall)
    longer = node.admit(pod_manifest(annotations=sim(run_seconds="150"), name="f-r-1"), status=status)
    over = node.admit(pod_manifest(annotations=sim(run_seconds="50", exit_code="3")), status=status)
    assert node.status(longer)["podIP"] == "10.128.0.7"
    await asyncio.sleep(1)
    assert node.container(over)["state"]["terminated"]["exitCode"] == 3
    assert node.phase(longer) == "Running"
    await asyncio.sleep(50)
    assert node.container(longer)["state"]["terminated"]["finishedAt"] == "2026-01-01T00:02:30Z"
    mortal = Hosting(SimulatedRuntime(survives_restart=False, wall=clock.wall), wall=clock.wall)
    lost = mortal.admit(pod_manifest(), status=status)
    assert (mortal.phase(lost), mortal.status(lost)["reason"]) == ("Failed", "NodeLost")


async def test_thousands_of_pods_need_one_timer(node: Hosting, clock: VirtualClockLoop) -> None:
    uids = [
        node.admit(pod_manifest(name=f"f-r-{number}", annotations=sim(run_seconds=str(number % 100 + 1))))
        for number in range(2000)
    ]
    assert len(clock._timers) < 10
    await asyncio.sleep(101)
    assert {node.phase(uid) for uid in uids} == {"Succeeded"}
