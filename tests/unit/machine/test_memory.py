"""Memory of a Framework with a large spec: its reconciler keeps text, which takes fifty times as much once decoded."""

import re
import tracemalloc
from typing import Any, Final
from unittest.mock import patch

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frameworkcontroller.api.objects import Framework
from frameworkcontroller.api.spec import parse_spec
from frameworkcontroller.api.status import FrameworkAttemptStatus, TaskAttemptStatus, TaskStatus
from frameworkcontroller.machine.kernel import manifests
from frameworkcontroller.machine.kernel.requests import BodyTooLargeError, Kind, Post
from frameworkcontroller.machine.parts.kueue.queueing import Queueing
from tests.support.bench import role
from tests.support.oneframework import Driver, OneFramework
from tests.support.podtemplates import pod_template
from tests.support.queuedbench import entered
from tests.support.reachable import reachable_bytes

SIZE: Final = 200_000
FIXED: Final = 64 << 10
"""Bytes of a reconciler without a large spec, and of a small status."""

SHAPES: Final[dict[str, str]] = {
    "lists": "[[]]",
    "objects": '{"":{}}',
    "numbers": "1000",
    "text": '"text"',
}


def large(part: str, shape: str) -> dict[str, Any]:
    """A role with many small values in one part."""
    value = SHAPES[shape]
    values = orjson.loads("[" + ",".join([value] * (SIZE // (len(value) + 1))) + "]")
    made = role("a", 1)
    claim: dict[str, Any] = {"metadata": {"name": "c"}}
    if part == "pod":
        made["task"]["pod"]["spec"]["odd"] = values
        return made
    if part == "claim":
        claim["spec"] = {"odd": values}
    else:
        claim["metadata"]["labels"] = {f"{number:x}": "" for number in range(SIZE // 10)}
    return {**made, "volumeClaimTemplates": [claim]}


STATES: Final[dict[str, dict[str, Any]]] = {
    "suspended": {"suspend": True},
    "created": {"executionType": "Create"},
    "running": {},
    "stopped": {"executionType": "Stop"},
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("shape", SHAPES)
def test_at_rest_a_template_is_text(state: str, shape: str) -> None:
    driver = Driver(OneFramework(large("pod", shape), **STATES[state]))
    driver.run_all()
    # The text, and the rendered template's text while an attempt runs.
    assert reachable_bytes(driver.reconciler) < 2.2 * SIZE + FIXED


@pytest.mark.parametrize("part", ["claim", "labels"])
def test_at_rest_a_claim_template_is_text(part: str) -> None:
    driver = Driver(OneFramework(large(part, "lists"), suspend=True))
    driver.run_all()
    assert reachable_bytes(driver.reconciler) < 1.5 * SIZE + FIXED


@pytest.mark.parametrize("field", ["labels", "nodeAffinity"])
def test_in_a_queue_the_pod_sets_are_text(field: str) -> None:
    made = role("a", 1)
    if field == "labels":
        made["task"]["pod"]["metadata"] = {"labels": {f"{number:x}": "" for number in range(SIZE // 10)}}
    else:
        made["task"]["pod"]["spec"]["affinity"] = {"odd": [[[]]] * (SIZE // 5)}
    bench = entered(made)
    assert reachable_bytes(bench.tracker.part(Queueing)) < 1.2 * SIZE + FIXED


# --- bodies -----------------------------------------------------------------------------------------------------


LONG: Final = "a" * 60
MULTIPLIED: Final[dict[str, Any]] = {
    "of each Task": {"spec": {"containers": [], "odd": "{{FC_POD_NAME}}" * 60_000}},
    "of the role": {"spec": {"containers": [], "odd": "{{FC_TASKROLE_NAME}}" * 60_000}},
    "keys": {"spec": {"containers": [], "odd": {f"{n}{{{{FC_POD_NAME}}}}": n for n in range(45_000)}}},
    "variables": {"spec": {"containers": [{}] * 30_000}},
    "variables of init containers": {"spec": {"initContainers": [{}] * 30_000}},
}


@pytest.mark.parametrize("template", MULTIPLIED.values(), ids=MULTIPLIED)
def test_a_pod_that_is_too_large_is_refused_before_it_is_rendered(template: Any) -> None:
    """The code equals the API server's, which would get megabytes for each Task."""
    made = {**role(LONG, 2), "task": {"pod": template}}
    driver = Driver(OneFramework(made))
    tracemalloc.start()
    driver.settle()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [request.name for request in driver.requests if isinstance(request, Post)] == ["f-attempt"]
    for task in driver.world.status["attemptStatus"]["taskRoleStatuses"][0]["taskStatuses"]:
        completion = task["attemptStatus"]["completionStatus"]
        assert completion["code"] == -200
        assert re.search(
            f"TaskRole {LONG}: with placeholders replaced and the variables of each container, task.pod would have "
            r"[0-9,]{9,} bytes, where API servers accept 3,145,728",
            completion["diagnostics"],
        )
    assert peak < 50 << 20


def test_a_claim_that_is_too_large_is_not_rendered() -> None:
    made = role(LONG, 1) | {
        "volumeClaimTemplates": [{"metadata": {"name": "c"}, "spec": {"odd": "{{FC_POD_NAME}}" * 50_000}}]
    }
    driver = Driver(OneFramework(made))
    for _ in range(8):
        driver.finish()
        driver.world.clock += 60
    assert not [one for one in driver.requests if isinstance(one, Post) and one.kind is Kind.VOLUME_CLAIM]
    stalled = next(one for one in driver.world.status["conditions"] if one["type"] == "Stalled")
    assert f"volumeClaimTemplate c of TaskRole {LONG} would have " in stalled["message"]
    assert " bytes, where API servers accept 3,145,728" in stalled["message"]


def test_a_workload_that_would_be_too_large_keeps_its_placeholders() -> None:
    made = role(LONG, 1)
    made["task"]["pod"]["metadata"] = {"annotations": {"a": "{{FC_POD_NAME}}" * 50_000}}
    bench = entered(made)
    assert reachable_bytes(bench.tracker.part(Queueing)) < 800_000 + FIXED


@given(
    st.lists(
        st.sampled_from(
            ["{{FC_POD_NAME}}", "{{FC_TASK_INDEX}}", "{{FC_TASK_RANK}}", "{{FC_HOSTS_JSON:a}}", "@0-index", "x"]
        )
    ),
    st.sampled_from([0, 7, 10, 123]),
    st.integers(0, 3),
)
def test_the_size_of_a_pod_is_known(words: list[str], index: int, containers: int) -> None:
    template = {"spec": {"odd": words, "containers": [{"name": "c"}] * containers}}
    made = {"taskRoles": [{"name": "a", "taskNumber": 200, "task": {"pod": template}}], "network": {}}
    subject = Framework("ns", "f", "uid", 1, deleting=False, spec=parse_spec(made))
    attempt = FrameworkAttemptStatus(id=0, start_time=0, configmap_uid="configmap-uid")
    with patch.object(manifests, "LARGE_BYTES", 0):
        pod = pod_template(subject, attempt, subject.spec.task_roles[0], "role-uid")
    task = TaskStatus(index, "task-uid", 0, 0, TaskAttemptStatus(11, 0))
    size = len(pod.render(task))
    with patch.object(manifests, "MAX_BODY_BYTES", size):
        assert len(pod.render(task)) == size
    with patch.object(manifests, "MAX_BODY_BYTES", size - 1), pytest.raises(BodyTooLargeError, match=f"{size:,} bytes"):
        pod.render(task)
