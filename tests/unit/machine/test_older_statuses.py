"""Statuses from before the later fields of the API: read as they are, and continued, also with such fields in the spec.

The statuses of tests/golden were written by earlier code. They equal the statuses that a Framework without the later
fields gets today (test_golden_traces.py).
"""

from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import orjson
import pytest

from frameworkcontroller.api.codec import COMPRESSION_THRESHOLD_BYTES, EncodedStatus, added_fields, decode_status
from frameworkcontroller.api.completion import CompletionStatus, DecidedRule, FailureAction
from frameworkcontroller.api.objects import configmap_record, pod_record
from frameworkcontroller.api.status import (
    AdmissionStatus,
    AutoscalingStatus,
    FrameworkAttemptStatus,
    FrameworkStatus,
    NoticeStatus,
    ProgressStatus,
    State,
    TaskRoleStatus,
    TaskStatus,
)
from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.machine.kernel.requests import PatchStatus, Post, Remove
from tests.golden import traces
from tests.support.bench import Body, role
from tests.support.framework_crd import crd_manifest
from tests.support.oneframework import NOW, Driver, OneFramework

BEFORE: Final = traces.unpacked((Path(traces.__file__).parent / "traces.xz").read_bytes())
BEFORE_FIELDS: Final = (Path(traces.__file__).parent / "status-fields.txt").read_text().split()
"""The fields of a status that the CRD of before has."""

POLICY: Final = {"rules": [{"action": "FailFramework", "onExitCodes": {"operator": "In", "values": [42]}}]}


@cache
def statuses() -> list[str]:
    """All statuses that earlier code has written."""

    def every() -> Iterator[str]:
        for line in (line for one in BEFORE for line in one if line.startswith("PATCH ") and "/status " in line):
            operations = orjson.loads(line[line.index("[{") :])
            yield orjson.dumps(operations[-1]["value"]).decode()

    return list(dict.fromkeys(every()))


def test_they_are_in_every_state() -> None:
    decoded = [decode_status(orjson.loads(text)) for text in statuses()]
    found: Counter[State] = Counter()
    of_tasks: Counter[State] = Counter()
    for status in decoded:
        assert status is not None
        found[status.state] += 1
        of_tasks.update(task.state for one in status.attempt.roles for task in one.tasks)
    # Deletions are requested together with the step before, or after.
    assert State.CREATION_REQUESTED in found
    assert set(State) - found.keys() <= {State.DELETION_REQUESTED}
    assert set(State) - of_tasks.keys() <= {State.DELETION_REQUESTED}


def test_they_are_read_and_written_as_they_are() -> None:
    for text in statuses():
        stored = orjson.loads(text)
        status = decode_status(stored)
        assert status is not None
        assert added_fields(status) == {}
        made = orjson.loads(EncodedStatus("f", status).body)
        # Of all stored ones, none has a stopped Task.
        assert made.get("taskCounts", {"stopped": 0}).pop("stopped") == 0
        assert made == stored


def test_so_are_compressed_ones() -> None:
    status = next(status for text in reversed(statuses()) if (status := large(text)) is not None)
    packed = orjson.loads(EncodedStatus("f", status, compress=True).body)
    assert "taskRoleStatusesCompressed" in packed["attemptStatus"]
    again = decode_status(packed)
    assert again is not None
    assert EncodedStatus("f", again).body == EncodedStatus("f", status).body
    assert added_fields(again) == {}


def large(text: str) -> FrameworkStatus | None:
    """The status with enough Tasks to be compressed; None if it has none."""
    status = decode_status(orjson.loads(text))
    if status is None or not status.attempt.roles or not status.attempt.roles[0].tasks:
        return None
    tasks: list[TaskStatus] = status.attempt.roles[0].tasks
    tasks[0].instance_uid = "x" * COMPRESSION_THRESHOLD_BYTES
    return status


# --- continued by another process, with later fields in the spec -----------------------------------------------------


def upgrade(world: OneFramework, *roles: Body, **spec: Any) -> Driver:
    """The controller is replaced, and the user adds fields."""
    assert added_fields(decode_status(world.status)) == {}
    world.edit_and_show(*roles, **spec)
    world.clock += 5
    return Driver(world)


def born(world: OneFramework, seconds: float) -> None:
    """The ConfigMap was created at that time, by the clock of the API server."""
    body = world.objects["f-attempt"]
    body["metadata"]["creationTimestamp"] = format_time(int(NOW + seconds))
    if world.configmap is not None:
        world.configmap = configmap_record(body)


def run(world: OneFramework, driver: Driver) -> None:
    for name in world.pods:
        world.run(name)
        driver.reconciler.on_pod_event(name)
    driver.settle()


def running(*roles: Body) -> OneFramework:
    world = OneFramework(*roles)
    Driver(world).run_all()
    assert world.status["state"] == "AttemptRunning"
    return world


def completion(world: OneFramework) -> Any:
    return world.status["attemptStatus"]["completionStatus"]


def made(driver: Driver) -> list[str]:
    """The requests that create or delete something."""
    return [f"{type(one).__name__} {one.name}" for one in driver.requests if isinstance(one, Post | Remove)]


def test_a_requested_attempt_gets_its_start_from_its_configmap() -> None:
    world = OneFramework(role("a"))
    world.shows = False
    driver = Driver(world)
    driver.until(PatchStatus)
    driver = Driver(world)
    driver.settle()
    assert world.status["state"] == "AttemptCreationRequested"
    born(world, 0)
    driver = upgrade(world, activeDeadlineSeconds=100)
    driver.settle()
    assert "executionStartTime" not in world.status["attemptStatus"]
    world.shows = True
    world.configmap = configmap_record(world.objects["f-attempt"])
    driver.settle()
    assert world.status["attemptStatus"]["executionStartTime"] == format_time(NOW)
    assert made(driver) == ["Post f-a-0"]
    run(world, driver)
    world.clock += 100
    driver.settle()
    assert completion(world)["code"] == -250


@pytest.mark.parametrize(("deadline", "ends"), [(3600, False), (50, True)])
def test_a_deadline_of_a_running_attempt_counts_from_its_configmap(deadline: int, *, ends: bool) -> None:
    world = running(role("a", 2))
    born(world, -100)
    driver = upgrade(world, activeDeadlineSeconds=deadline)
    driver.settle()
    assert world.status["attemptStatus"]["executionStartTime"] == format_time(NOW - 100)
    assert (completion(world) is not None) == ends
    assert made(driver) == (["Remove f-attempt"] if ends else [])


def test_a_role_that_runs_needs_no_dependency() -> None:
    world = running(role("a"), role("b"))
    depends = {**role("b"), "dependsOn": [{"name": "a", "status": "Complete"}]}
    driver = upgrade(world, role("a"), depends)
    driver.settle()
    assert made(driver) == []
    assert world.status["attemptStatus"]["taskRoleStatuses"][1]["started"] is True


def test_a_role_without_pods_waits() -> None:
    world = OneFramework(role("a"), role("b", 0))
    Driver(world).run_all()
    depends = {**role("b", 1), "dependsOn": [{"name": "a", "status": "Complete"}]}
    driver = upgrade(world, role("a"), depends)
    driver.settle()
    assert made(driver) == []
    message = next(one["message"] for one in world.status["conditions"] if one["type"] == "Running")
    assert "TaskRole b waits until TaskRole a is Complete" in message


def test_a_running_task_gets_rules_and_back_off() -> None:
    world = running(role("a", 2))
    driver = upgrade(
        world,
        role("a", 2, podFailurePolicy=POLICY, podForceDeletionPolicy="NodeUnreachable", preRunningDeadlineSeconds=60),
        retryPolicy={"maxRetryCount": 3, "backoff": {"baseSeconds": 30}},
    )
    driver.settle()
    assert made(driver) == []
    assert world.status["attemptStatus"]["taskRoleStatuses"][0]["podForceDeletionPolicy"] == "NodeUnreachable"
    ended = {"name": "main", "state": {"terminated": {"exitCode": 42}}}
    body = world.objects["f-a-0"]
    body["status"] = {"phase": "Failed", "containerStatuses": [ended]}
    world.pods["f-a-0"] = pod_record(body)
    driver.reconciler.on_pod_event("f-a-0")
    driver.settle()
    assert completion(world)["policy"] == {"action": "FailFramework", "rule": 0}


def test_a_suspended_framework_ends_its_attempt() -> None:
    world = running(role("a"))
    driver = upgrade(world, suspend=True)
    driver.settle()
    assert completion(world)["code"] == -240
    assert made(driver) == ["Remove f-attempt"]


def test_an_attempt_that_ends_goes_on_to_end() -> None:
    world = running(role("a"))
    world.edit_and_show(executionType="Stop")
    driver = Driver(world)
    write, request = driver.until(PatchStatus)
    driver.serve(write, request)
    assert world.status["state"] == "AttemptDeletionPending"
    driver = upgrade(world, activeDeadlineSeconds=1, suspend=True, ttlSecondsAfterFinished=0)
    driver.settle()
    assert completion(world)["code"] == -210
    assert made(driver) == ["Remove f-attempt"]


def test_a_completed_framework_gets_a_retention() -> None:
    text = next(text for text in statuses() if orjson.loads(text)["state"] == "Completed")
    stored = orjson.loads(text)
    world = OneFramework(role("a"), status=stored)
    driver = Driver(world)
    driver.settle()
    assert made(driver) == []
    driver = upgrade(world, ttlSecondsAfterFinished=0)
    driver.settle()
    assert made(driver) == ["Remove f"]


DERIVED_FIELDS: Final = {
    "status.phase",
    "status.reason",
    "status.message",
    "status.taskCounts.stopped",
    "status.firstFailure",
    "status.earliestFailures",
    "status.attemptStatus.taskRoleStatuses.readyTaskCount",
    "status.attemptStatus.taskRoleStatuses.updatedTaskCount",
}


def test_no_later_field_is_forgotten() -> None:
    """Fields that an older API server drops are checked in its answers, or are no input of decisions."""
    manifest: Any = crd_manifest()
    version = manifest["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    added = set(paths(version["status"], "status")) - set(BEFORE_FIELDS)
    missing = {path for path in added if DERIVED_FIELDS.isdisjoint((path, ".".join(path.split(".")[:2])))}
    status = FrameworkStatus(0, 0, FrameworkAttemptStatus(0, 0))
    status.accumulated_past_execution_time_seconds = status.retry.recent_retried_count = 1
    status.attempt.execution_start_time = 1
    status.admission = AdmissionStatus("q", "w", "u")
    status.progress = ProgressStatus()
    status.notice = NoticeStatus(0, "Suspension", 0, 1)
    status.attempt.scheduled_pod_groups = ["f"]
    status.role_objects = ["Service/f-a"]
    rule = DecidedRule(FailureAction.FAIL_FRAMEWORK, 0)
    status.attempt.completion_status = CompletionStatus(1, "", "Failed", None, "", policy=rule)
    role = TaskRoleStatus("a", "r", pod_force_deletion_policy="Always", started=True, budgeted_task_count=1)
    role.autoscaling = AutoscalingStatus(1)
    status.attempt.roles = [role]
    checked = {".".join(["status", *(part for part in path if isinstance(part, str))]) for path in added_fields(status)}
    assert {path for path in missing if not any(path.startswith(f"{one}.") for one in missing)} == checked


def paths(schema: Any, path: str) -> Iterator[str]:
    schema = schema.get("items", schema)
    for name, field in (schema.get("properties") or {}).items():
        yield f"{path}.{name}"
        yield from paths(field, f"{path}.{name}")
