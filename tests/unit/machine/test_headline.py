"""Phase, reason and message (docs/running.md, "Phase"), as a table of situations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from frameworkcontroller.api.causes import MOST
from frameworkcontroller.machine.headline import STUCK_SEC, set_headline
from frameworkcontroller.machine.kernel.actions import Delete
from frameworkcontroller.machine.kernel.exchanges import Accepted, Exists
from frameworkcontroller.machine.kernel.model import Urgency
from tests.support.bench import Bench, Body, accepted, begun, foreign, prepared, refused, role, running
from tests.support.queuedbench import QueuedBench

Headline = tuple[str, str, str]


def headline(bench: Bench) -> Headline:
    """The headline that the next status write has."""
    set_headline(bench.tracker, bench.status, bench.framework)
    return bench.status.phase, bench.status.reason, bench.status.message


def ends(bench: Bench, name: str = "f-a-0", *, settled: bool = True, **end: Any) -> Bench:
    """The Pod fails like that, with ``message`` and ``reason`` of its container."""
    code = end.pop("exitCode", 1)
    terminated = {"exitCode": code, "finishedAt": "2026-01-01T00:00:00Z", **end}
    status = [{"name": "main", "state": {"terminated": terminated}}]
    bench.show(name, phase="Failed", containerStatuses=status)
    if settled:
        bench.settle()
    else:
        bench.plan()
    return bench


def template(argument: str) -> Body:
    return {"spec": {"containers": [{"name": "main", "image": "none", "args": [argument]}]}}


def waits(bench: Bench, name: str = "f-a-0", *, after: float = STUCK_SEC, **waiting: str) -> Bench:
    """A container of the Pod waits like that for some seconds."""
    bench.show(name, nodeName="node-1", containerStatuses=[{"name": "main", "state": {"waiting": waiting}}])
    bench.plan()
    bench.pass_time(after)
    return bench


def restarts(bench: Bench, times: int, name: str = "f-a-0", policy: str = "Always") -> Bench:
    """The containers of the running Pod have restarted so often."""
    bench.bodies[name]["spec"]["restartPolicy"] = policy
    status = [{"name": "main", "restartCount": times, "state": {"running": {}}}]
    bench.show(name, phase="Running", nodeName="node-1", containerStatuses=status)
    bench.plan()
    return bench


def unschedulable() -> Bench:
    bench = prepared(role(number=2))
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/1 nodes are available",
    }
    bench.show("f-a-0", conditions=[condition])
    bench.plan()
    bench.pass_time(STUCK_SEC)
    return bench


def pod_refused(code: int, message: str, **spec: Any) -> Bench:
    bench = begun(role(failed=1), **spec)
    bench.fold(bench.only(bench.plan()), refused(code, message))
    bench.settle()
    return bench


def stopped(bench: Bench) -> Bench:
    bench.edit_then_settle(executionType="Stop")
    return bench


def suspended(bench: Bench, *, settled: bool = True) -> Bench:
    bench.edit(suspend=True)
    if settled:
        bench.settle()
    else:
        bench.plan()
    return bench


def resumed() -> Bench:
    bench = suspended(running())
    bench.edit(suspend=False)
    bench.plan()
    return bench


def retried(**policy: Any) -> Bench:
    bench = running(role(failed=1), retryPolicy={"maxRetryCount": 3, **policy})
    return ends(bench, exitCode=137, reason="OOMKilled")


def task_retried(number: int = 1) -> Bench:
    policy = {"maxRetryCount": 2, "backoff": {"baseSeconds": 40}}
    bench = running(role(number=number, retryPolicy=policy))
    for index in range(number):
        ends(bench, f"f-a-{index}", exitCode=3)
    return bench


def failed_for_good(number: int, failing: int) -> Bench:
    bench = running(role(number=number, failed=-1))
    for index in range(failing):
        ends(bench, f"f-a-{index}", exitCode=index + 1, message="CUDA out of memory\n")
        bench.now += 1
    return bench


def failed_beside_a_retry() -> Bench:
    """The first failure waits for its retry, the second one is permanent."""
    retry = {"maxRetryCount": 5, "backoff": {"baseSeconds": 100, "maxSeconds": 100}}
    bench = running(role("a", failed=-1, retryPolicy=retry), role("b", failed=-1), role("c"))
    ends(bench, "f-a-0", exitCode=1)
    bench.now += 1
    return ends(bench, "f-b-0", exitCode=2)


def failed_by_rule() -> Bench:
    rules = [{"action": "FailFramework", "onExitCodes": {"operator": "In", "values": [42]}}]
    bench = running(role(number=2, failed=-1, podFailurePolicy={"rules": rules}))
    ends(bench, "f-a-0", exitCode=1)
    return ends(bench, "f-a-1", exitCode=42)


def queued(*, admitted: bool = False, reason: str = "") -> Bench:
    bench = QueuedBench(role(number=2, failed=1))
    bench.settle()
    if reason:
        bench.say_then_plan(("QuotaReserved", False, reason, "couldn't assign flavors: insufficient quota for cpu"))
    if admitted:
        bench.admit_then_settle()
    return bench


def deadline() -> Bench:
    bench = running(role(), activeDeadlineSeconds=60)
    bench.pass_time(61)
    bench.settle()
    return bench


def pre_running_deadline() -> Bench:
    bench = prepared(role(failed=1, preRunningDeadlineSeconds=60))
    bench.pass_time(61)
    bench.settle()
    return bench


def naming_conflict() -> Bench:
    bench = begun(role())
    bench.refuse(bench.only(bench.plan()), Exists(foreign("f-a-0", "theirs")))
    return bench


def invalid() -> Bench:
    bench = accepted()
    bench.spoil()
    bench.plan()
    return bench


def waits_for_role() -> Bench:
    roles = role("a"), {**role("b"), "dependsOn": [{"name": "a", "status": "Ready"}]}
    return running(*roles)


def ending() -> Bench:
    bench = ends(running(role(number=2, failed=1)), settled=False, exitCode=1, message="boom")
    bench.fold(bench.expect(Delete), Accepted())
    bench.hide_then_plan("f-a-0")
    bench.plan()
    return bench


def evicted() -> Bench:
    bench = running(role(failed=1))
    bench.show("f-a-0", phase="Failed", reason="Evicted", message="The node was low on resource: memory")
    bench.settle()
    return bench


def deleted_by_others() -> Bench:
    bench = running(role(failed=1))
    bench.hide("f-a-0")
    bench.settle()
    return bench


def removed_configmap() -> Bench:
    bench = running(role(failed=1))
    bench.vanish()
    bench.settle()
    return bench


def succeeded(*, failing: bool = False) -> Bench:
    bench = running(role(number=2, failed=-1, succeeded=1))
    if failing:
        ends(bench, "f-a-1", exitCode=1)
    bench.end("f-a-0")
    return bench


def late() -> Bench:
    bench = running(role(number=2, failed=-1))
    bench.end("f-a-0")
    return bench


NODE: Final = " on node-1"
TABLE: Final[dict[str, tuple[Callable[[], Bench], Headline]]] = {
    # --- nothing to explain ---
    "new": (accepted, ("Pending", "", "")),
    "its Pods are created": (prepared, ("Pending", "", "")),
    "runs": (running, ("Running", "", "")),
    "some have succeeded": (late, ("Running", "", "")),
    "succeeded": (succeeded, ("Succeeded", "Succeeded", "")),
    # --- held back ---
    "Create": (
        lambda: accepted(executionType="Create"),
        ("Pending", "NotStarted", "spec.executionType is Create"),
    ),
    "created suspended": (
        lambda: suspended(accepted()),
        ("Suspended", "Suspended", "spec.suspend is true; nothing of the Framework runs"),
    ),
    "suspended while it runs": (
        lambda: suspended(running()),
        ("Suspended", "Suspended", "spec.suspend is true; nothing of the Framework runs"),
    ),
    "being suspended": (
        lambda: suspended(running(), settled=False),
        ("Ending", "FrameworkSuspendRequested", "User has requested to suspend the Framework"),
    ),
    "resumed": (resumed, ("Pending", "", "")),
    "invalid": (
        invalid,
        ("Pending", "InvalidSpec", "spec.coordinator.taskRole: 'nobody': is not the name of a TaskRole"),
    ),
    # --- queues ---
    "in the queue": (queued, ("Queued", "Pending", "Kueue has not looked at the Workload yet")),
    "no quota": (
        lambda: queued(reason="Pending"),
        ("Queued", "Pending", "couldn't assign flavors: insufficient quota for cpu"),
    ),
    "admitted": (lambda: queued(admitted=True), ("Pending", "", "")),
    # --- Pods that do not start ---
    "starts, for a second": (
        lambda: waits(prepared(), after=1, reason="CreateContainerConfigError", message='secret "nosuch" not found'),
        ("Pending", "", ""),
    ),
    "its containers are created": (lambda: waits(prepared(), reason="ContainerCreating"), ("Pending", "", "")),
    "a missing Secret": (
        lambda: waits(prepared(), reason="CreateContainerConfigError", message='secret "nosuch" not found'),
        (
            "Pending",
            "PodsNotStarted",
            f'waiting for its Pod: a[0]{NODE}: main: CreateContainerConfigError: secret "nosuch" not found',
        ),
    ),
    "a missing image": (
        lambda: waits(prepared(), reason="ErrImagePull", message="not found"),
        ("Pending", "PodsNotStarted", f"waiting for its Pod: a[0]{NODE}: main: ErrImagePull: not found"),
    ),
    "an image that is tried again": (
        lambda: waits(prepared(), reason="ImagePullBackOff", message='Back-off pulling image "none"'),
        (
            "Pending",
            "PodsNotStarted",
            f'waiting for its Pod: a[0]{NODE}: main: ImagePullBackOff: Back-off pulling image "none"',
        ),
    ),
    "an image name": (
        lambda: waits(prepared(), reason="InvalidImageName"),
        ("Pending", "PodsNotStarted", f"waiting for its Pod: a[0]{NODE}: main: InvalidImageName"),
    ),
    "a container that cannot be made": (
        lambda: waits(prepared(role(number=3)), "f-a-1", reason="CreateContainerError", message="no such mount"),
        (
            "Pending",
            "PodsNotStarted",
            f"waiting for 1 of 3 Pods: a[1]{NODE}: main: CreateContainerError: no such mount",
        ),
    ),
    "no room": (
        unschedulable,
        ("Pending", "PodsNotStarted", "waiting for 1 of 2 Pods: a[0]: Unschedulable: 0/1 nodes are available"),
    ),
    "another role": (waits_for_role, ("Running", "DependencyPending", "TaskRole b waits until TaskRole a is Ready")),
    "a quota of the namespace": (
        lambda: pod_refused(403, 'pods "f-a-0" is forbidden: exceeded quota: q'),
        ("Pending", "QuotaExceeded", 'pods "f-a-0" is forbidden: exceeded quota: q'),
    ),
    "a name of others": (
        naming_conflict,
        (
            "Pending",
            "NamingConflict",
            "Pod f-a-0 (theirs) already exists, without a controller: refusing to adopt or delete it",
        ),
    ),
    # --- refused ---
    "a Pod that is invalid": (
        lambda: pod_refused(422, "spec.containers[0].image: Required value"),
        ("Failed", "PodCreationPermanentError", "a[0]: Pod refused: spec.containers[0].image: Required value"),
    ),
    "a Pod that cannot be decoded": (
        lambda: pod_refused(400, "json: cannot unmarshal number into Go struct field"),
        ("Failed", "PodCreationUnknownError", "a[0]: Pod refused: json: cannot unmarshal number into Go struct field"),
    ),
    # --- failures ---
    "an exit code": (
        lambda: ends(running(role(failed=1)), exitCode=3),
        ("Failed", "ContainerUnrecognizedFailed", f"a[0]{NODE}: main exited with 3"),
    ),
    "out of memory": (
        lambda: ends(running(role(failed=1)), exitCode=137, reason="OOMKilled", message="CUDA out of memory"),
        ("Failed", "ContainerUnrecognizedFailed", f"a[0]{NODE}: main exited with 137 (OOMKilled): CUDA out of memory"),
    ),
    "a signal": (
        lambda: ends(running(role(failed=1)), exitCode=139, signal=11),
        ("Failed", "ContainerUnrecognizedFailed", f"a[0]{NODE}: main was ended by signal 11"),
    ),
    "a traceback": (
        lambda: ends(running(role(failed=1)), message="Traceback:\n  File x\nValueError: no\x1b[31m data\n\n"),
        ("Failed", "ContainerUnrecognizedFailed", f"a[0]{NODE}: main exited with 1: ValueError: no\ufffd[31m data"),
    ),
    "evicted": (
        evicted,
        ("Failed", "PodFailedWithoutFailedContainer", f"a[0]{NODE}: Evicted: The node was low on resource: memory"),
    ),
    "deleted by others": (
        deleted_by_others,
        ("Failed", "PodExternalDeleted", f"a[0]{NODE}: Pod was deleted by others"),
    ),
    "without its ConfigMap": (
        removed_configmap,
        ("Failed", "ConfigMapExternalDeleted", "ConfigMap was deleted by others"),
    ),
    "its Pod did not start in time": (
        pre_running_deadline,
        (
            "Failed",
            "TaskPreRunningDeadlineExceeded",
            "a[0]: Pod did not run and had no node within preRunningDeadlineSeconds 60 after its creation",
        ),
    ),
    "its deadline": (
        deadline,
        (
            "Failed",
            "FrameworkActiveDeadlineExceeded",
            "Framework was active for longer than its activeDeadlineSeconds 60, in all of its FrameworkAttempts",
        ),
    ),
    "a rule": (
        failed_by_rule,
        (
            "Failed",
            "ContainerUnrecognizedFailed",
            f"2 of 2 Tasks failed; probably first: a[0]{NODE}: main exited with 1",
        ),
    ),
    "its end is not over": (ending, ("Ending", "ContainerUnrecognizedFailed", f"a[0]{NODE}: main exited with 1: boom")),
    "all have completed": (
        lambda: failed_for_good(2, 2),
        ("Succeeded", "Succeeded", f"2 of 2 Tasks failed; first: a[0]{NODE}: main exited with 1: CUDA out of memory"),
    ),
    "one has failed for good": (
        lambda: failed_for_good(3, 1),
        ("Running", "TasksFailed", f"1 of 3 Tasks failed; first: a[0]{NODE}: main exited with 1: CUDA out of memory"),
    ),
    "one has failed for good, and another is retried": (
        failed_beside_a_retry,
        ("Running", "TasksFailed", f"1 of 3 Tasks failed; first: b[0]{NODE}: main exited with 2"),
    ),
    "two have failed for good": (
        lambda: failed_for_good(3, 2),
        ("Running", "TasksFailed", f"2 of 3 Tasks failed; first: a[0]{NODE}: main exited with 1: CUDA out of memory"),
    ),
    "succeeded, and one has failed": (
        lambda: succeeded(failing=True),
        ("Succeeded", "Succeeded", f"a[1]{NODE}: main exited with 1"),
    ),
    # --- retries ---
    "retried later": (
        lambda: retried(backoff={"baseSeconds": 40}),
        (
            "Pending",
            "FrameworkRetryScheduled",
            f"retry 1 of 3 in 40 s after a[0]{NODE}: main exited with 137 (OOMKilled)",
        ),
    ),
    "retried without end": (
        lambda: retried(backoff={"baseSeconds": 40}, maxRetryCount=-1),
        ("Pending", "FrameworkRetryScheduled", f"retry 1 in 40 s after a[0]{NODE}: main exited with 137 (OOMKilled)"),
    ),
    "its Task is retried later": (
        task_retried,
        ("Running", "TaskRetryScheduled", f"retry 1 in 40 s after a[0]{NODE}: main exited with 3"),
    ),
    "two Tasks are retried later": (
        lambda: task_retried(2),
        (
            "Running",
            "TaskRetryScheduled",
            f"2 Tasks wait for a retry; first: retry 1 in 40 s after a[0]{NODE}: main exited with 3",
        ),
    ),
    # --- restarts inside a Pod ---
    "restarted once": (
        lambda: restarts(running(), 1),
        ("Running", "ContainersRestarted", "a[0] restarted once inside its Pod: restartPolicy is Always"),
    ),
    "restarted often": (
        lambda: restarts(running(), 4, policy="OnFailure"),
        ("Running", "ContainersRestarted", "a[0] restarted 4 times inside its Pod: restartPolicy is OnFailure"),
    ),
    # --- likely mistakes ---
    "a minimum that is too high": (
        lambda: running(role(number=2, succeeded=3)),
        ("Running", "LikelyMistake", "minSucceededTaskCount 3 of TaskRole a can never be reached: it has 2 Tasks"),
    ),
    "an unknown placeholder": (
        lambda: running(role(pod=template("{{FC_TASK_INDX}}"))),
        ("Running", "LikelyMistake", "the Pod template of TaskRole a has {{FC_TASK_INDX}}, which is not a placeholder"),
    ),
    "a placeholder of a network": (
        lambda: running(role(pod=template("{{FC_HOSTS:a}}"))),
        (
            "Running",
            "LikelyMistake",
            "the Pod template of TaskRole a has {{FC_HOSTS}}: it needs network or coordinator",
        ),
    ),
    "a placeholder": (lambda: running(role(pod=template("{{FC_TASK_INDEX}}"))), ("Running", "", "")),
    # --- stopped ---
    "stopped": (
        lambda: stopped(running()),
        ("Stopped", "StopFrameworkRequested", "User has requested to stop the Framework"),
    ),
    "stopped before it began": (
        lambda: stopped(accepted(executionType="Create")),
        ("Stopped", "StopFrameworkRequested", "User has requested to stop the Framework"),
    ),
}


@pytest.mark.parametrize("situation", TABLE)
def test_the_headline_of(situation: str) -> None:
    make, expected = TABLE[situation]
    assert headline(make()) == expected


def test_a_message_is_one_line_of_limited_length() -> None:
    bench = ends(running(role(failed=1)), message="x" * 100_000)
    message = headline(bench)[2]
    assert len(message) == MOST
    assert message.startswith("a[0] on node-1: main exited with 1: xxx")
    assert message.endswith("…")


def test_the_first_failure_survives_a_restart_of_the_controller() -> None:
    bench = failed_for_good(3, 2)
    before = headline(bench)
    bench.restart()
    bench.settle()
    assert headline(bench) == before


def test_a_stuck_pod_costs_one_write_and_its_end_another() -> None:
    bench = prepared(role(number=3))
    for name in ("f-a-0", "f-a-1"):
        bench.show_then_plan(name, nodeName="node-1")
    headline(bench)
    before = bench.writes
    for name in ("f-a-0", "f-a-1"):
        waits(bench, name, reason="CreateContainerConfigError", message='secret "nosuch" not found')
        headline(bench)
    assert bench.writes == before + 1
    for name in ("f-a-0", "f-a-1"):
        bench.show_then_plan(name, phase="Running", containerStatuses=[{"name": "main", "state": {"running": {}}}])
    assert headline(bench) == ("Running", "", "")


def test_restarts_are_written_at_powers_of_two_and_recorded_once() -> None:
    bench = running()
    headline(bench)
    before, records = bench.writes, 0
    for times in range(1, 10):
        bench.bodies["f-a-0"]["spec"]["restartPolicy"] = "Always"
        status = [{"name": "main", "restartCount": times, "state": {"running": {}}}]
        bench.show("f-a-0", phase="Running", containerStatuses=status)
        made = bench.plan(write=False)
        records += sum(record.reason == "ContainersRestarted" and record.warning for record in made.records)
        if bench.tracker.urgency is not Urgency.NONE:
            headline(bench)
            bench.write()
    assert (bench.writes - before, records) == (4, 1)


def test_a_new_controller_does_not_write_an_unchanged_message() -> None:
    bench = waits(prepared(), reason="ErrImagePull", message="not found")
    headline(bench)
    bench.write()
    bench.restart()
    bench.plan()
    before = bench.writes
    bench.pass_time(STUCK_SEC)
    assert bench.writes == before
    assert headline(bench)[1] == "PodsNotStarted"


def test_a_likely_mistake_is_recorded_once_a_generation() -> None:
    bench = Bench(role(number=2, succeeded=3))
    assert [one.reason for one in bench.plan().records if one.warning] == ["LikelyMistake"]
    bench.restart()
    assert not [one for one in bench.plan().records if one.warning]
    made = bench.edit_then_plan(role(number=2, succeeded=4))
    assert [one.reason for one in made.records if one.warning] == ["LikelyMistake"]


def test_other_tasks_that_restart_are_counted() -> None:
    bench = running(role(number=3))
    others = [headline(restarts(bench, 1, name))[2].partition(" Always")[2] for name in list(bench.pods)]
    assert others == ["", "; and 1 more Task", "; and 2 more Tasks"]


def test_all_tasks_that_restart_cost_one_write_and_the_same_time_each() -> None:
    bench = running(role(number=50))
    headline(bench)
    for name in list(bench.pods):
        status = [{"name": "main", "restartCount": 1, "state": {"running": {}}}]
        bench.bodies[name]["spec"]["restartPolicy"] = "Always"
        bench.show(name, phase="Running", containerStatuses=status)
    before = bench.writes
    bench.plan(write=False)
    assert headline(bench)[2].endswith("; and 49 more Tasks")
    bench.write()
    for name in list(bench.pods)[1:]:
        status = [{"name": "main", "restartCount": 2, "state": {"running": {}}}]
        bench.show_then_plan(name, phase="Running", containerStatuses=status)
    assert bench.writes == before + 1
