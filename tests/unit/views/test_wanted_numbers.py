"""The wanted number of Tasks, which autoscaling takes from the status."""

import base64
import gzip
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from frameworkcontroller.commands.mergedlogs import _not_in_spec
from frameworkcontroller.dashboard.kubectl import framework_commands
from frameworkcontroller.views.apiobjects import task_numbers
from frameworkcontroller.views.diagnosis import read_view
from frameworkcontroller.views.summary import summarize

SET = {"taskNumber": 3, "scalerID": "s", "scalerGeneration": 2}
TIME = "2026-01-01T00:00:00Z"


def framework(stored: Any, *, compressed: bool = False, autoscaled: bool = True) -> dict[str, Any]:
    """A Framework whose spec wants one Task of ``web``."""
    bounds = {"autoscaling": {"minTasks": 1, "maxTasks": 4}} if autoscaled else {}
    roles = [{"name": "web", "instanceUID": "u", "autoscaling": stored, "taskStatuses": []}]
    packed = base64.b64encode(gzip.compress(orjson.dumps(roles))).decode()
    attempt = {"id": 0, "startTime": TIME, "instanceUID": "0_u"}
    attempt |= {"taskRoleStatusesCompressed": packed} if compressed else {"taskRoleStatuses": roles}
    pod = {"spec": {"containers": [{"name": "m", "image": "i"}]}}
    return {
        "metadata": {"name": "f", "namespace": "default", "uid": "f-uid", "creationTimestamp": TIME},
        "spec": {"taskRoles": [{"name": "web", "taskNumber": 1, "task": {"pod": pod}, **bounds}, {"name": "db"}]},
        "status": {"startTime": TIME, "transitionTime": TIME, "state": "AttemptRunning", "attemptStatus": attempt},
    }


@pytest.mark.parametrize("compressed", [False, True])
def test_autoscaling_sets_the_wanted_number(*, compressed: bool) -> None:
    body = framework(SET, compressed=compressed)
    assert task_numbers(body) == summarize(body).wanted == {"web": 3, "db": 1}
    role = read_view(body, {}).spec.role("web")
    assert role is not None
    assert role.task_number == 3


@pytest.mark.parametrize("stored", [None, {"taskNumber": 0, "scalerGeneration": 0}, "a", {**SET, "taskNumber": "a"}])
def test_else_the_spec_does(stored: Any) -> None:
    assert task_numbers(framework(stored)) == {"web": 1, "db": 1}


def test_autoscaling_that_the_spec_no_longer_has() -> None:
    assert task_numbers(framework(SET, autoscaled=False)) == {"web": 1, "db": 1}


def test_logs_of_a_task_beyond_the_spec() -> None:
    options: Any = SimpleNamespace(name="f", target=("web", 2))
    assert _not_in_spec(options, framework(SET)) is None
    assert _not_in_spec(options, framework(None)) == "f: has no Task web[2]: role web has 1 Task"


def test_the_suggested_command_scales_the_scaler() -> None:
    commands = [one.text for one in framework_commands(framework(SET), live=True, past=False)]
    assert "kubectl scale frameworkrolescaler/f-web --replicas=4 -n default" in commands
