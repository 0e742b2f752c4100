"""What an older controller ignores, and when it must not take over (commands/downgrade.py)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import orjson
import pytest
from pydantic import BaseModel

from frameworkcontroller.api.codec import encode_status
from frameworkcontroller.api.spec import FrameworkSpec
from frameworkcontroller.api.status import State
from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.commands.downgrade import FIELDS, QUEUE, Finding, examine
from frameworkcontroller.machine.parts.dependencies.dependencies import RoleOrder
from tests.support.bench import Bench, role

ORIGINAL = {
    "description", "executionType", "retryPolicy", "fancyRetryPolicy", "maxRetryCount", "taskRoles", "name",
    "taskNumber", "frameworkAttemptCompletionPolicy", "minFailedTaskCount", "minSucceededTaskCount", "task",
    "podGracefulDeletionTimeoutSec", "pod",
}  # fmt: skip
"""The fields of the original's spec."""

TRUE = [{"type": "Suspended", "status": "True", "lastTransitionTime": format_time(1_700_000_000)}]


def fields(model: type[BaseModel]) -> Iterator[str]:
    """The fields of a spec that the original does not know, without those below one of them."""
    for info in model.model_fields.values():
        assert info.alias is not None
        if info.alias not in ORIGINAL:
            yield info.alias
            continue
        for below in (info.annotation, *get_args(info.annotation)):
            if isinstance(below, type) and issubclass(below, BaseModel):
                yield from fields(below)


def test_no_field_is_forgotten() -> None:
    assert {field.name for field in FIELDS} == {*fields(FrameworkSpec)}


def body(bench: Bench, *, conditions: list[dict[str, Any]] | None = None, status: bool = True) -> dict[str, Any]:
    """The Framework as clients read it."""
    encoded = orjson.loads(encode_status("f", bench.status)) if status else None
    if encoded is not None and conditions is not None:
        encoded["conditions"] = conditions
    return {"metadata": {"name": "f", "namespace": "ns"}, "spec": bench.spec, "status": encoded}


def names(finding: Finding) -> list[str]:
    return [field.name for field in finding.fields]


RULE = {"action": "FailFramework", "onExitCodes": {"operator": "In", "values": [42]}}
USES: list[tuple[str, dict[str, Any]]] = [
    ("suspend", {"suspend": True}),
    ("ttlSecondsAfterFinished", {"ttlSecondsAfterFinished": 0}),
    ("activeDeadlineSeconds", {"activeDeadlineSeconds": 9}),
    ("backoff", {"retryPolicy": {"backoff": {}}}),
    ("backoff", {"taskRoles": [role(retryPolicy={"backoff": {}})]}),
    ("preRunningDeadlineSeconds", {"taskRoles": [role(preRunningDeadlineSeconds=9)]}),
    ("podFailurePolicy", {"taskRoles": [role(podFailurePolicy={"rules": [RULE]})]}),
    ("podForceDeletionPolicy", {"taskRoles": [role(podForceDeletionPolicy="NodeUnreachable")]}),
    ("network", {"network": {}}),
    ("volumeClaimTemplates", {"taskRoles": [{**role(), "volumeClaimTemplates": [{"metadata": {"name": "data"}}]}]}),
    (
        "persistentVolumeClaimRetentionPolicy",
        {"taskRoles": [{**role(), "persistentVolumeClaimRetentionPolicy": {"whenScaled": "Delete"}}]},
    ),
    ("coordinator", {"coordinator": {"taskRole": "a"}}),
    ("scheduling", {"scheduling": {"schedulingPolicy": {"gang": {}}}}),
    ("dependsOn", {"taskRoles": [role(), {**role("b"), "dependsOn": [{"name": "a", "status": "Ready"}]}]}),
]


@pytest.mark.parametrize(("name", "spec"), USES)
def test_a_field_is_found_where_it_is_used(name: str, spec: dict[str, Any]) -> None:
    framework = {"metadata": {"name": "f", "namespace": "ns"}, "spec": {"taskRoles": [role()], **spec}}
    assert names(examine(framework)) == [name]


def test_what_uses_none_of_them_is_ready() -> None:
    bench = Bench(role())
    bench.all_pods()
    assert examine(body(bench)) == Finding("ns/f", (), (), hold=False)
    bench.end(code=1)
    assert examine(body(bench)) == Finding("ns/f", (), (), hold=False)


def test_a_suspended_framework_is_held_once_nothing_of_it_runs() -> None:
    bench = Bench(role(), suspend=True)
    assert examine(body(bench, status=False)).hold
    bench.plan()
    waits = examine(body(bench, conditions=[]))
    assert not waits.hold
    assert waits.blocks == (
        "something of it may still run, though spec.suspend is true: wait until its condition Suspended is True",
    )
    assert examine(body(bench, conditions=[{**TRUE[0], "status": "False"}])).blocks == waits.blocks
    assert examine(body(bench, conditions=TRUE)) == Finding("ns/f", FIELDS[:1], (), hold=True)
    bench.edit(executionType="Create")
    assert examine(body(bench, conditions=TRUE)) == Finding("ns/f", FIELDS[:1], (), hold=False)
    bench.edit(executionType="Stop")
    assert examine(body(bench, conditions=[])) == Finding("ns/f", FIELDS[:1], (), hold=False)


def test_a_completed_framework_is_ready() -> None:
    bench = Bench(role(failed=1, podFailurePolicy={"rules": [{**RULE}]}))
    bench.all_pods()
    bench.end(code=42)
    assert bench.status.state is State.COMPLETED
    bench.edit(suspend=True)
    assert examine(body(bench)).blocks == ()


def test_an_attempt_that_ends_by_its_deadline_blocks_until_that_is_over() -> None:
    bench = Bench(role(), activeDeadlineSeconds=60)
    bench.all_pods()
    bench.run()
    bench.now += 100
    bench.plan()
    bench.edit(activeDeadlineSeconds=None)
    (text,) = examine(body(bench)).blocks
    assert text.startswith("its attempt ends with -250, after which an older controller would follow the retryPolicy")
    bench.settle()
    assert bench.status.state is State.COMPLETED
    assert examine(body(bench)).blocks == ()


def test_a_role_that_waits_for_others_blocks() -> None:
    roles = [role(), {**role("b"), "dependsOn": [{"name": "a", "status": "Ready"}]}]
    bench = Bench(*roles)
    bench.all_pods()
    (text,) = examine(body(bench)).blocks
    assert text == "an older controller starts b at once: wait for the start, or suspend the Framework"
    bench.run()
    bench.show("f-a-0", conditions=[{"type": "Ready", "status": "True"}])
    bench.all_pods()
    assert bench.tracker.part(RoleOrder).has_started(bench.tracker, "b")
    assert examine(body(bench)).blocks == ()
    waiting = Bench(*roles, executionType="Create")
    waiting.plan()
    assert examine(body(waiting)).blocks == ()


@pytest.mark.parametrize(
    ("action", "text"),
    [
        ("Count", ""),
        ("Ignore", "a failure rule decides what follows a[0]"),
        ("FailTask", "a failure rule decides what follows a[0]"),
        ("FailFramework", "its attempt ends by the rule FailFramework"),
        ("RestartFramework", ""),
    ],
)
def test_a_failure_rule_that_has_decided_blocks(action: str, text: str) -> None:
    policy = {"rules": [{**RULE, "action": action}]}
    bench = Bench(role(number=2, podFailurePolicy=policy, retryPolicy={"maxRetryCount": 3}))
    bench.all_pods()
    bench.run("f-a-0")
    bench.stop("f-a-0", code=42)
    bench.plan()
    found = examine(body(bench)).blocks
    assert [each.startswith(text) for each in found] == [True] * bool(text)


def test_a_pod_that_is_spared_on_a_healthy_node_blocks() -> None:
    bench = Bench(role(podForceDeletionPolicy="NodeUnreachable", podGracefulDeletionTimeoutSec=9))
    bench.all_pods()
    bench.run()
    assert examine(body(bench)).blocks == ()
    bench.show("f-a-0", deleting=bench.now)
    bench.plan()
    (text,) = examine(body(bench)).blocks
    assert text.startswith("an older controller force-deletes the Pod of a[0] even if its node runs it")


def test_what_cannot_be_read_blocks() -> None:
    framework = {"metadata": {"name": "f", "namespace": "ns"}, "spec": {"taskRoles": 1}}
    (text,) = examine(framework).blocks
    assert text.startswith("it cannot be read: ")


def queued(bench: Bench, **more: Any) -> dict[str, Any]:
    """The Framework with the label of a queue, and more in its status."""
    framework = body(bench, status=bool(more))
    framework["metadata"]["labels"] = {QUEUE.name: "team-a"}
    if more:
        framework["status"] |= more
    return framework


ADMISSION = {"queueName": "team-a", "workloadName": "framework-f-12345", "workloadUID": "u"}


def test_a_framework_that_waits_in_a_queue_is_suspended() -> None:
    bench = Bench(role())
    assert examine(queued(bench)) == Finding("ns/f", (QUEUE,), (), hold=False, suspend=True)
    bench.plan()
    waits = examine(queued(bench, state="AttemptCreationPending"))
    assert waits == Finding("ns/f", (QUEUE,), (), hold=False, suspend=True)
    bench.edit(suspend=True)
    assert not examine(queued(bench, state="AttemptCreationPending", conditions=[])).would_start
    assert examine(queued(bench, state="AttemptCreationPending", conditions=TRUE)).hold
    bench.edit(suspend=False, executionType="Create")
    assert examine(queued(bench, state="AttemptCreationPending")) == Finding("ns/f", (QUEUE,), (), hold=False)


def test_a_framework_with_quota_blocks() -> None:
    bench = Bench(role())
    bench.all_pods()
    text = (
        "it has quota of Kueue, which an older controller never gives back: suspend the Framework, or wait for its end"
    )
    assert examine(queued(bench, admission=ADMISSION)) == Finding("ns/f", (QUEUE,), (text,), hold=False)
    # The label was removed, which counts for the next attempt.
    framework = queued(bench, admission=ADMISSION)
    del framework["metadata"]["labels"]
    assert examine(framework).blocks == (text,)
    # It ran before it had the label.
    assert examine(queued(bench, admission=None)) == Finding("ns/f", (QUEUE,), (), hold=False)
    bench.end(code=0)
    assert bench.status.state is State.COMPLETED
    assert examine(queued(bench, admission=None)) == Finding("ns/f", (QUEUE,), (), hold=False)
