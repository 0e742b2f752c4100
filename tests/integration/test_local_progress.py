"""Progress on a local cluster: programs that post as KEP-2779 says, real tokens and TLS, in real time."""

from __future__ import annotations

import sys

from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.sdk.localprocess import LocalProcess
from tests.support.frameworks import Frameworks, policy
from tests.support.reportingprograms import SENDS

SCRIPT = (
    SENDS
    + """
for step in range(1, 4):
    metrics = [{"name": "current_step", "value": str(step)}, {"name": "loss", "value": "0.5"}]
    assert send({"progressPercentage": step * 30, "metrics": metrics}) == 200
    time.sleep(1.1)
assert send({"progressPercentage": 90, "checkpoint": True}) == 200
time.sleep(1.1)
assert send({"progressPercentage": 100}) == 200
"""
)


async def test_a_program_reports_its_progress() -> None:
    process = LocalProcess(nodes=1, capacity=None, keep=False)
    container = {"name": "main", "image": "none", "command": [sys.executable, "-c", SCRIPT]}
    pod = {"spec": {"restartPolicy": "Never", "automountServiceAccountToken": False, "containers": [container]}}
    role = {"name": "a", "taskNumber": 1, "task": {"pod": pod}, "frameworkAttemptCompletionPolicy": policy(1, 1)}
    try:
        async with KubeClient(await process.connect()) as client:
            frameworks = Frameworks(client, "default")
            await frameworks.create("train", role, progress={})
            status = await frameworks.until("train", lambda status: status["progress"]["step"] == 1)
            assert status["progress"]["percentage"] == 30
            status = await frameworks.until("train", lambda status: status["state"] == "Completed")
    finally:
        await process.stop()
    assert status["attemptStatus"]["completionStatus"]["code"] == 0
    progress = status["progress"]
    # The report right before the end is not lost, though the interval is a minute.
    assert (progress["percentage"], progress["step"], progress["frameworkAttemptID"]) == (100, 3, 0)
    assert progress["metrics"] == [{"name": "current_step", "value": 3.0}, {"name": "loss", "value": 0.5}]
    assert progress["lastCheckpointTime"] <= progress["lastChangeTime"] <= progress["lastReportTime"]
