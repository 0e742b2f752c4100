"""Snapshots as the history shows them."""

from __future__ import annotations

import logging
from typing import Any

import orjson
import pytest

from frameworkcontroller.api.names import SNAPSHOT_MARK
from frameworkcontroller.api.objects import FrameworkRecord
from frameworkcontroller.controller.snapshots import SnapshotLogger
from frameworkcontroller.machine.kernel.model import Snapshot, SnapshotTrigger

FRAMEWORK = FrameworkRecord(
    "ns/f", "ns", "f", "f-1", "7", 3, None, b"{}", b'{"taskRoles":[{"name":"a","task":{"x":1}}]}', None
)
STATUS = {
    "instanceUID": "task-uid",
    "startTime": "2023-11-14T22:13:20Z",
    "completionTime": "2023-11-14T22:13:21Z",
    "attemptStatus": {"podName": "f-a-0"},
}
LABELS = {"FC_FRAMEWORK_NAME": "f", "FC_TASKROLE_NAME": "a", "FC_TASK_INDEX": "0"}


@pytest.mark.parametrize(
    ("trigger", "deleted_at", "expected"),
    [
        (SnapshotTrigger.TASK_RETRY, None, {}),
        (
            SnapshotTrigger.TASK_DELETION,
            1_700_000_005,
            {"deletionTimestamp": "2023-11-14T22:13:25Z", "deletionGracePeriodSeconds": 0},
        ),
    ],
)
def test_a_task(
    trigger: SnapshotTrigger, deleted_at: int | None, expected: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    annotations = {**LABELS, "FC_TASKROLE_UID": "role-uid"}
    snapshot = Snapshot(trigger, orjson.dumps(STATUS), "a", 0, annotations, deleted_at)
    SnapshotLogger().log(FRAMEWORK, "6", [snapshot])
    (line,) = caplog.messages
    assert f": {trigger}: {SNAPSHOT_MARK}" in line
    assert orjson.loads(line.partition(SNAPSHOT_MARK)[2]) == {
        "apiVersion": "frameworkcontroller.microsoft.com/v1",
        "kind": "Task",
        "metadata": {
            "name": "f-a-0",
            "namespace": "ns",
            "uid": "task-uid",
            "resourceVersion": "6",
            "generation": 3,
            "creationTimestamp": "2023-11-14T22:13:20Z",
            "labels": LABELS,
            "annotations": annotations,
            **expected,
        },
        "spec": {"x": 1},
        "status": STATUS,
    }
