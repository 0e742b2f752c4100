"""A program that hangs, as a real process that reports to a real report server (docs/lifecycle.md, "Hangs")."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.support.frameworks import manifest, policy
from tests.support.reportingprograms import SENDS

PROGRAM = (
    SENDS
    + """
import socket

for step in range(4):
    if os.environ["FC_TASK_INDEX"] == "0":
        assert send({"metrics": [{"name": "current_step", "value": str(step)}]}) == 200
    time.sleep(1)
if os.environ["FC_FRAMEWORK_ATTEMPT_ID"] == "0":
    print("waits for a peer that never comes", flush=True)
    socket.create_server(("127.0.0.1", 0)).accept()
print("trained", flush=True)
"""
)
"""The collective of the first attempt has no end. Only the first Task reports."""


def framework() -> dict[str, Any]:
    container = {"name": "main", "image": "none", "command": [sys.executable, "-c", PROGRAM]}
    pod = {"spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}}
    role = {
        "name": "worker",
        "taskNumber": 2,
        "frameworkAttemptCompletionPolicy": policy(1),
        "task": {"pod": pod},
    }
    return manifest(
        "train",
        role,
        progress={"intervalSeconds": 1, "deadlineSeconds": 3, "startDeadlineSeconds": 60},
        retryPolicy={"fancyRetryPolicy": True, "maxRetryCount": 0},
    )


def test_a_collective_without_an_end_is_ended_and_retried(tmp_path: Path) -> None:
    (tmp_path / "train.yaml").write_text(yaml.safe_dump(framework()))
    ended = subprocess.run(
        [sys.executable, "-m", "frameworkcontroller", "local", "run", "--logs", "train.yaml"],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    told = ended.stdout + ended.stderr
    assert ended.returncode == 0, told
    assert told.count("waits for a peer that never comes") == 2, told
    assert told.count("trained") == 2, told
    assert "Ending (attempt 0): No progress for " in told, told
    assert "at step 3: deadlineSeconds is 3" in told, told
