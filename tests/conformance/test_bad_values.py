"""Bad values of the optional fields of a spec: the API servers' errors, and the controller where they accept it.

Positions in lists are left out, as an API server of 2020 names none.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

import pytest

from frameworkcontroller.api.spec import SpecError, parse_spec
from frameworkcontroller.kube.errors import Invalid
from tests.conformance.test_framework_crd import Frameworks, with_role
from tests.support.clusters import Cluster

Json = dict[str, Any]

INT32: Final = 2**31
IN: Final = {"operator": "In", "values": [1]}
POLICY: Final = "spec.taskRoles.task.podFailurePolicy"
RULE: Final = f"{POLICY}.rules"
ONE_OF: Final = "must have exactly one of onExitCodes, onPodConditions and onCompletionCodes"
BACKOFF: Final = "maxSeconds must not be below baseSeconds"


def rule(**fields: Any) -> Json:
    """A spec with one failure rule."""
    return with_role(task={"podFailurePolicy": {"rules": [fields]}})


def rules(*every: Json) -> Json:
    return with_role(task={"podFailurePolicy": {"rules": list(every)}})


def codes(*values: Any, on: str = "onExitCodes", operator: str = "In") -> Json:
    return rule(action="Count", **{on: {"operator": operator, "values": list(values)}})


def conditions(*every: Json) -> Json:
    return rule(action="Count", onPodConditions=list(every))


def after(*dependencies: tuple[str, str], roles: int = 1) -> Json:
    """A spec whose last role waits for others."""
    others = [{"name": f"r{number}"} for number in range(roles)]
    dependent = {"name": "w", "dependsOn": [{"name": name, "status": status} for name, status in dependencies]}
    return {"taskRoles": [*others, dependent]}


class Bad(NamedTuple):
    """A bad value. ``refusal``: by every API server; None: none refuses it. ``by_rule``: by servers that know CEL."""

    spec: Json
    refusal: str | None
    problem: str
    """What the controller says."""
    by_rule: str | None = None


def out_of_bounds(path: str, spec: Json, value: int, bound: str, limit: int) -> Bad:
    words = {"least": "greater than or equal to", "most": "less than or equal to"}[bound]
    return Bad(spec, f"{path} in body should be {words} {limit}", f"{path}: {value}: must be at {bound} {limit}")


def unsupported(path: str, spec: Json, value: str, *supported: str) -> Bad:
    quoted = ", ".join(f'"{one}"' for one in supported)
    listed = f"{', '.join(supported[:-1])} or {supported[-1]}"
    refusal = f'{path}: Unsupported value: "{value}": supported values: {quoted}'
    return Bad(spec, refusal, f"{path}: {value!r}: must be {listed}")


def of_task(**task: Any) -> Json:
    return with_role(task=task)


TASK: Final = "spec.taskRoles.task"
ACTIONS: Final = ("Count", "Ignore", "FailTask", "RestartFramework", "FailFramework")

BAD: Final = {
    "suspend": Bad(
        {"suspend": "yes"},
        'spec.suspend in body must be of type boolean: "string"',
        "spec.suspend: 'yes': must be true or false",
    ),
    "ttl": out_of_bounds("spec.ttlSecondsAfterFinished", {"ttlSecondsAfterFinished": -1}, -1, "least", 0),
    "ttl, large": out_of_bounds(
        "spec.ttlSecondsAfterFinished", {"ttlSecondsAfterFinished": INT32}, INT32, "most", INT32 - 1
    ),
    "ttl, text": Bad(
        {"ttlSecondsAfterFinished": "1h"},
        'spec.ttlSecondsAfterFinished in body must be of type integer: "string"',
        "spec.ttlSecondsAfterFinished: '1h': must be a whole number",
    ),
    "deadline": out_of_bounds("spec.activeDeadlineSeconds", {"activeDeadlineSeconds": 0}, 0, "least", 1),
    "deadline, large": out_of_bounds(
        "spec.activeDeadlineSeconds", {"activeDeadlineSeconds": INT32}, INT32, "most", INT32 - 1
    ),
    "pre-running": out_of_bounds(
        f"{TASK}.preRunningDeadlineSeconds", of_task(preRunningDeadlineSeconds=0), 0, "least", 1
    ),
    "pre-running, large": out_of_bounds(
        f"{TASK}.preRunningDeadlineSeconds", of_task(preRunningDeadlineSeconds=INT32), INT32, "most", INT32 - 1
    ),
    "back-off": out_of_bounds(
        "spec.retryPolicy.backoff.baseSeconds", {"retryPolicy": {"backoff": {"baseSeconds": -1}}}, -1, "least", 0
    ),
    "back-off, order": Bad(
        {"retryPolicy": {"backoff": {"baseSeconds": 5, "maxSeconds": 4}}},
        None,
        "spec.retryPolicy.backoff.maxSeconds: 4: must not be below baseSeconds (5)",
        f"spec.retryPolicy.backoff: Invalid value: {BACKOFF}",
    ),
    "back-off, above the default": Bad(
        of_task(retryPolicy={"backoff": {"baseSeconds": 361}}),
        None,
        f"{TASK}.retryPolicy.backoff.maxSeconds: 360: must not be below baseSeconds (361)",
        f"{TASK}.retryPolicy.backoff: Invalid value: {BACKOFF}",
    ),
    "forced deletion": unsupported(
        f"{TASK}.podForceDeletionPolicy", of_task(podForceDeletionPolicy="Never"), "Never", "Always", "NodeUnreachable"
    ),
    "a rule without a pattern": Bad(
        rule(action="Count"), f"{RULE} in body should have at least 2 properties", f"{RULE}: {ONE_OF}", ONE_OF
    ),
    "a rule with two patterns": Bad(
        rule(action="Count", onExitCodes=IN, onCompletionCodes=IN),
        f'"{RULE}" must not validate the schema (not)',
        f"{RULE}: {ONE_OF}",
        ONE_OF,
    ),
    "a rule with three patterns": Bad(
        rule(action="Count", onExitCodes=IN, onCompletionCodes=IN, onPodConditions=[{"type": "A"}]),
        f'"{RULE}" must not validate the schema (not)',
        f"{RULE}: {ONE_OF}",
        ONE_OF,
    ),
    "a rule with an action of a Job": unsupported(
        f"{RULE}.action", rule(action="FailJob", onExitCodes=IN), "FailJob", *ACTIONS
    ),
    "a rule without an action": Bad(
        rule(onExitCodes=IN), f"{RULE} in body should have at least 2 properties", f"{RULE}.action: is required"
    ),
    "0 as an exit code": Bad(
        codes(1, 0),
        f'"{RULE}.onExitCodes.values" must not validate the schema (not)',
        f"{RULE}.onExitCodes.values: 0: is no code of a failure",
    ),
    "0 as a completion code": Bad(
        codes(0, on="onCompletionCodes"),
        f'"{RULE}.onCompletionCodes.values" must not validate the schema (not)',
        f"{RULE}.onCompletionCodes.values: 0: is no code of a failure",
    ),
    "a large code": out_of_bounds(f"{RULE}.onExitCodes.values", codes(1, INT32), INT32, "most", INT32 - 1),
    "an operator": unsupported(f"{RULE}.onExitCodes.operator", codes(1, operator="Is"), "Is", "In", "NotIn"),
    "no codes": Bad(
        codes(),
        f"{RULE}.onExitCodes.values in body should have at least 1 items",
        f"{RULE}.onExitCodes.values: a list: must have at least 1 item",
    ),
    "a code twice": Bad(
        codes(1, 2, 1),
        f"{RULE}.onExitCodes.values: Duplicate value: 1",
        f"{RULE}.onExitCodes.values: 1: is there twice",
    ),
    "many codes": Bad(
        codes(*range(1, 257)),
        "at most 255 items",
        f"{RULE}.onExitCodes.values: a list: must have at most 255 items",
    ),
    "many rules": Bad(
        rules(*[{"action": "Count", "onExitCodes": IN}] * 21),
        "at most 20 items",
        f"{RULE}: a list: must have at most 20 items",
    ),
    "no conditions": Bad(
        conditions(), f"{RULE}.onPodConditions in body should have at least 1 items", f"{RULE}: {ONE_OF}"
    ),
    "a condition without a type": Bad(
        conditions({"status": "True"}),
        f"{RULE}.onPodConditions.type: Required value",
        f"{RULE}.onPodConditions.type: is required",
    ),
    "a status of a condition": Bad(
        conditions({"type": "A", "status": "Yes"}),
        f'{RULE}.onPodConditions.status: Unsupported value: "Yes": supported values: "True", "False", "Unknown"',
        f"{RULE}.onPodConditions.status: 'Yes': must be True, False or Unknown",
    ),
    "a status without quotes": Bad(
        conditions({"type": "A", "status": True}),
        f'{RULE}.onPodConditions.status in body must be of type string: "boolean"',
        f"{RULE}.onPodConditions.status: true: must be True, False or Unknown, in quotes",
    ),
    "a role that waits for itself": Bad(
        after(("w", "Ready")),
        None,
        "spec.taskRoles.dependsOn.name: 'w': a TaskRole cannot depend on itself",
        "spec.taskRoles: Invalid value: a TaskRole cannot depend on itself",
    ),
    "a role that waits for an unknown one": Bad(
        after(("x", "Ready")), None, "spec.taskRoles.dependsOn.name: 'x': is not the name of a TaskRole"
    ),
    "roles that wait for each other": Bad(
        {
            "taskRoles": [
                {"name": "a", "dependsOn": [{"name": "b", "status": "Ready"}]},
                {"name": "b", "dependsOn": [{"name": "a", "status": "Complete"}]},
            ]
        },
        None,
        "spec.taskRoles.dependsOn: TaskRoles wait for each other: a -> b -> a",
    ),
    "a dependency twice": Bad(
        after(("r0", "Ready"), ("r0", "Complete")),
        "spec.taskRoles.dependsOn: Duplicate value: ",
        "spec.taskRoles.dependsOn.name: 'r0': is already the name of dependsOn",
    ),
    "many dependencies": Bad(
        after(*((f"r{number}", "Ready") for number in range(6)), roles=6),
        "at most 5 items",
        "spec.taskRoles.dependsOn: a list: must have at most 5 items",
    ),
    "a status of a dependency": unsupported(
        "spec.taskRoles.dependsOn.status", after(("r0", "Running")), "Running", "Ready", "Complete"
    ),
    "a dependency without a status": Bad(
        with_role(dependsOn=[{"name": "b"}]),
        "spec.taskRoles.dependsOn.status: Required value",
        "spec.taskRoles.dependsOn.status: is required",
    ),
}


def without_positions(text: str) -> str:
    return re.sub(r"\[\d+\]", "", text)


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_the_controller_names_field_and_value(bad: Bad) -> None:
    with pytest.raises(SpecError) as error:
        parse_spec(bad.spec)
    assert without_positions(str(error.value)).split("; ")[0] == bad.problem


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
async def test_api_servers_refuse_them(cluster: Cluster, bad: Bad) -> None:
    frameworks = Frameworks(await cluster.client(), cluster.namespace)
    expected = [bad.refusal, bad.by_rule if cluster.evaluates_rules else None]
    if not any(expected):
        await frameworks.create(spec=bad.spec)
        return
    with pytest.raises(Invalid) as refused:
        await frameworks.create(spec=bad.spec)
    said = without_positions(str(refused.value))
    for part in filter(None, expected):
        assert part in said


NULLS: Final = {
    "suspend": {"suspend": None},
    "ttl": {"ttlSecondsAfterFinished": None},
    "deadline": {"activeDeadlineSeconds": None},
    "back-off": {"retryPolicy": {"backoff": None}},
    "delays": {"retryPolicy": {"backoff": {"baseSeconds": None, "maxSeconds": None}}},
    "pre-running": of_task(preRunningDeadlineSeconds=None),
    "forced deletion": of_task(podForceDeletionPolicy=None),
    "failure policy": of_task(podFailurePolicy=None),
    "rules": of_task(podFailurePolicy={"rules": None}),
    "other patterns": rule(action="Count", onExitCodes=IN, onPodConditions=None, onCompletionCodes=None),
    "exit codes": rule(action="Count", onPodConditions=[{"type": "A"}], onExitCodes=None),
    "container": rule(action="Count", onExitCodes={**IN, "containerName": None}),
    "of a condition": conditions({"type": "A", "status": None, "reason": None}),
    "dependencies": with_role(dependsOn=None),
}


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_nulls(item) for name, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("spec", NULLS.values(), ids=NULLS)
async def test_null_means_absent(cluster: Cluster, spec: Json) -> None:
    frameworks = Frameworks(await cluster.client(), cluster.namespace)
    stored = (await frameworks.create(spec=spec))["spec"]
    assert parse_spec(spec) == parse_spec(stored) == parse_spec(without_nulls(spec))
