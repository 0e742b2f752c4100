"""The spec's bounds, defaults and error texts (docs/reference.md, "spec")."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
import pytest

from frameworkcontroller.api import names
from frameworkcontroller.api.spec import (
    ClaimRetention,
    ClaimRetentionPolicy,
    Coordinator,
    DependencyStatus,
    ExecutionType,
    FrameworkSpec,
    Network,
    PodForceDeletionPolicy,
    SpecError,
    TaskRoleSpec,
    parse_spec,
)

INT32 = 2**31 - 1
INT64 = 2**63 - 1


def role(**fields: Any) -> TaskRoleSpec:
    """The one role of a spec with those fields."""
    return parse_spec({"taskRoles": [{"name": "a", **fields}]}).task_roles[0]


NAME_RULE = (
    "must be lower case letters and digits only, at most 63 of them (a dash separates the parts of a Pod's name)"
)


def error(spec: Any) -> str:
    """The error of an invalid spec."""
    with pytest.raises(SpecError) as caught:
        parse_spec(spec)
    return str(caught.value)


# --- absent, null, unknown ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec",
    [
        None,
        {},
        {"taskRoles": []},
        {"description": None, "executionType": None, "suspend": None, "retryPolicy": None, "taskRoles": None},
        {"retryPolicy": {}},
        {"retryPolicy": {"maxRetryCount": None, "fancyRetryPolicy": None}},
    ],
)
def test_an_empty_spec_means_the_defaults(spec: Any) -> None:
    parsed = parse_spec(spec)
    assert parsed == FrameworkSpec()
    assert parsed.description is None
    assert parsed.execution_type is ExecutionType.START
    assert (parsed.retry_policy.fancy_retry_policy, parsed.retry_policy.max_retry_count) == (False, 0)
    assert parsed.task_roles == ()
    assert parsed.task_count == 0


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"taskNumber": None, "frameworkAttemptCompletionPolicy": None, "task": None},
        {"frameworkAttemptCompletionPolicy": {}, "task": {}},
        {
            "frameworkAttemptCompletionPolicy": {"minFailedTaskCount": None, "minSucceededTaskCount": None},
            "task": {
                "retryPolicy": None,
                "podGracefulDeletionTimeoutSec": None,
                "podForceDeletionPolicy": None,
                "pod": None,
            },
        },
        {"task": {"retryPolicy": {"fancyRetryPolicy": None, "maxRetryCount": None}}},
    ],
)
def test_absent_and_null_mean_the_defaults_at_every_level(fields: dict[str, Any]) -> None:
    parsed = role(**fields)
    assert parsed.task_number == 1
    policy = parsed.framework_attempt_completion_policy
    assert (policy.min_failed_task_count, policy.min_succeeded_task_count) == (0, 0)
    retry = parsed.task.retry_policy
    assert (retry.fancy_retry_policy, retry.max_retry_count) == (False, 0)
    assert parsed.task.pod_graceful_deletion_timeout_sec is None
    assert parsed.task.pod_force_deletion_policy is PodForceDeletionPolicy.ALWAYS
    assert parsed.task.pod.decoded() == {}


def test_partial_policies_mean_the_defaults_of_the_rest() -> None:
    parsed = role(
        frameworkAttemptCompletionPolicy={"minFailedTaskCount": 3}, task={"retryPolicy": {"maxRetryCount": -1}}
    )
    assert parsed.framework_attempt_completion_policy.min_succeeded_task_count == 0
    assert parsed.framework_attempt_completion_policy.min_failed_task_count == 3
    assert parsed.task.retry_policy.fancy_retry_policy is False


def test_unknown_fields_are_passed_over() -> None:
    parsed = parse_spec(
        {
            "whatever": 1,
            "retryPolicy": {"odd": True},
            "taskRoles": [{"name": "a", "odd": None, "task": {"odd": [], "pod": {"odd": {"deep": None}}}}],
        }
    )
    assert parsed.task_roles[0].task.pod.decoded() == {"odd": {"deep": None}}


@pytest.mark.parametrize("value", [10**30, {1: 2}, "\ud800", orjson.loads("[" * 300 + "]" * 300)])
def test_a_template_that_is_no_json_is_refused(value: Any) -> None:
    with pytest.raises(SpecError, match=r"spec.taskRoles\[0\].task.pod: a mapping: cannot be encoded as JSON: "):
        role(task={"pod": {"x": value}})


def test_the_pod_template_is_not_looked_into() -> None:
    template = {"metadata": 7, "spec": {"containers": "none", "privileged": False, "x": None}}
    assert role(task={"pod": template}).task.pod.decoded() == template


# --- values -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", list(ExecutionType))
def test_execution_types(value: ExecutionType) -> None:
    assert parse_spec({"executionType": value.value}).execution_type is value


def test_roles_by_name_and_all_tasks() -> None:
    parsed = parse_spec({"taskRoles": [{"name": "a", "taskNumber": 2}, {"name": "b"}, {"name": "c", "taskNumber": 0}]})
    assert parsed.task_count == 3
    found = parsed.role("b")
    assert found is not None
    assert found.name == "b"
    assert parsed.role("d") is None


@pytest.mark.parametrize(
    ("path", "low", "high"),
    [
        (("retryPolicy", "maxRetryCount"), -2, INT32),
        (("activeDeadlineSeconds",), 1, INT32),
        (("ttlSecondsAfterFinished",), 0, INT32),
        (("taskRoles", 0, "task", "preRunningDeadlineSeconds"), 1, INT32),
        (("taskRoles", 0, "taskNumber"), 0, 10_000),
        (("taskRoles", 0, "frameworkAttemptCompletionPolicy", "minFailedTaskCount"), -1, INT32),
        (("taskRoles", 0, "frameworkAttemptCompletionPolicy", "minSucceededTaskCount"), -1, INT32),
        (("taskRoles", 0, "task", "retryPolicy", "maxRetryCount"), -2, INT32),
        (("taskRoles", 0, "task", "podGracefulDeletionTimeoutSec"), -INT64 - 1, INT64),
    ],
)
def test_bounds(path: tuple[str | int, ...], low: int, high: int) -> None:
    for value in (low, high):
        parse_spec(nested(path, value))
    bad: list[Any] = [True, "1", 1.5, [], {}]
    if high < INT64:
        bad += [low - 1, high + 1]
    for value in bad:
        rule = "must be a whole number"
        if type(value) is int:
            rule = f"must be at least {low}" if value < low else f"must be at most {high}"
        assert error(nested(path, value)) == f"{place(path)}: {shown(value)}: {rule}"


def shown(value: Any) -> str:
    """The value as errors show it."""
    return {bool: "true", list: "a list", dict: "a mapping"}.get(type(value), repr(value))


def test_whole_numbers_may_have_a_point() -> None:
    fields = {"taskNumber": 3.0, "task": {"podGracefulDeletionTimeoutSec": 300.0, "pod": {"spec": {"priority": 3.0}}}}
    parsed = parse_spec({"retryPolicy": {"maxRetryCount": -2.0}, "taskRoles": [{"name": "a", **fields}]})
    (role,) = parsed.task_roles
    assert (parsed.retry_policy.max_retry_count, role.task_number) == (-2, 3)
    assert role.task.pod_graceful_deletion_timeout_sec == 300
    assert type(role.task_number) is int
    assert error(nested(("taskRoles", 0, "taskNumber"), 3.5)).startswith("spec.taskRoles[0].taskNumber: 3.5: ")
    assert error(nested(("taskRoles", 0, "taskNumber"), float("inf"))).startswith("spec.taskRoles[0].taskNumber: inf: ")


def nested(path: tuple[str | int, ...], value: Any) -> Any:
    """A spec with that value at that path."""
    for part in reversed(path):
        value = [{"name": "a", **value}] if part == 0 else {part: value}
    return value


def place(path: tuple[str | int, ...]) -> str:
    """The path as errors show it."""
    return "spec" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)


@pytest.mark.parametrize(
    ("path", "rule", "values"),
    [
        ((), "must be a mapping", (7, "a", [])),
        (("retryPolicy", "fancyRetryPolicy"), "must be true or false", (0, 1, "true", "false", [])),
        (("suspend",), "must be true or false", (0, 1, "true", "false", [])),
        (("executionType",), "must be Create, Start or Stop", ("start", "STOP", "", "Pause", 1, True)),
        (("description",), "must be text (put it in quotes)", (7,)),
        (("taskRoles",), "must be a list", (7, "a", {"name": "a"})),
        (("taskRoles", 0, "dependsOn"), "must be a list", (7, "a", {"name": "a"})),
        (("taskRoles", 0, "task", "retryPolicy", "fancyRetryPolicy"), "must be true or false", (0, "true", [])),
        (("taskRoles", 0, "task", "pod"), "must be a mapping", (7, "a", [])),
    ],
)
def test_values_of_another_type(path: tuple[str | int, ...], rule: str, values: Sequence[Any]) -> None:
    for value in values:
        assert error(nested(path, value)) == f"{place(path)}: {shown(value)}: {rule}"


@pytest.mark.parametrize("name", ["a", "0", "worker1", "a" * 63])
def test_names(name: str) -> None:
    assert parse_spec({"taskRoles": [{"name": name}]}).task_roles[0].name == name


@pytest.mark.parametrize("name", ["", "A", "a-b", "a_b", "a.b", "é", "a" * 64, "a\n", " a", 7, ["a"]])
def test_other_names_are_refused(name: Any) -> None:
    rule = NAME_RULE if isinstance(name, str) else "must be text (put it in quotes)"
    assert error({"taskRoles": [{"name": name}]}) == f"spec.taskRoles[0].name: {shown(name)}: {rule}"


@pytest.mark.parametrize("fields", [{}, {"name": None}, {"taskNumber": 3}])
def test_a_role_must_have_a_name(fields: dict[str, Any]) -> None:
    assert error({"taskRoles": [{"name": "a"}, fields]}) == "spec.taskRoles[1].name: is required"


def test_names_are_unique() -> None:
    text = error({"taskRoles": [{"name": "a"}, {"name": "b"}, {"name": "a"}]})
    assert text == "spec.taskRoles[2].name: 'a': is already the name of taskRoles[0]"


def test_a_framework_has_50000_tasks_at_most() -> None:
    roles = [{"name": f"w{number}", "taskNumber": 10000} for number in range(6)]
    text = "60000 Tasks in all, where no status has room for more than 50000"
    assert error({"taskRoles": roles}) == f"spec.taskRoles: {text}"


def depending(**roles: Any) -> dict[str, Any]:
    """A spec of roles that depend on others being Ready."""
    return {
        "taskRoles": [
            {"name": name, "dependsOn": [{"name": other, "status": "Ready"} for other in others]}
            for name, others in roles.items()
        ]
    }


def test_dependencies() -> None:
    parsed = parse_spec({"taskRoles": [{"name": "a"}, {"name": "b", "dependsOn": [{"name": "a", "status": "Ready"}]}]})
    assert [(one.name, one.status) for one in parsed.task_roles[1].depends_on] == [("a", DependencyStatus.READY)]
    assert [role.name for role in parsed.dependents] == ["b"]
    assert parse_spec({"taskRoles": [{"name": "a", "dependsOn": None}]}).dependents == ()
    parse_spec(depending(a="bcdef", b="cd", c="", d="ef", e="f", f=""))


@pytest.mark.parametrize(
    ("roles", "text"),
    [
        ({"a": "a"}, "taskRoles[0].dependsOn[0].name: 'a': a TaskRole cannot depend on itself"),
        ({"a": "", "b": "ax"}, "taskRoles[1].dependsOn[1].name: 'x': is not the name of a TaskRole"),
        ({"a": "", "b": "aa"}, "taskRoles[1].dependsOn[1].name: 'a': is already the name of dependsOn[0]"),
        ({"a": "b", "b": "a"}, "taskRoles[0].dependsOn: TaskRoles wait for each other: a -> b -> a"),
        ({"x": "a", "a": "yb", "b": "c", "c": "a", "y": ""}, "taskRoles[1].dependsOn: TaskRoles wait for each other: "),
        ({"a": "bcdefg", **dict.fromkeys("bcdefg", "")}, "taskRoles[0].dependsOn: "),
    ],
)
def test_dependencies_that_cannot_hold_are_refused(roles: dict[str, str], text: str) -> None:
    assert error(depending(**roles)).startswith(f"spec.{text}")


def test_a_long_chain_of_dependencies() -> None:
    chain = {f"r{number}": [f"r{number + 1}"] for number in range(5000)}
    parse_spec(depending(**chain, r5000=[]))
    assert "r0 -> r1 -> r2" in error(depending(**chain, r5000=["r0"]))


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ({"name": "a"}, "status: is required"),
        ({"status": "Ready"}, "name: is required"),
        ({"name": "a", "status": "Completed"}, "status: 'Completed': must be Ready or Complete"),
        ({"name": "A", "status": "Ready"}, f"name: 'A': {NAME_RULE}"),
    ],
)
def test_a_dependency_has_a_name_and_a_status(item: dict[str, Any], text: str) -> None:
    found = error({"taskRoles": [{"name": "a"}, {"name": "b", "dependsOn": [item]}]})
    assert found == f"spec.taskRoles[1].dependsOn[0].{text}"


@pytest.mark.parametrize("value", [7, "a", None, []])
def test_a_role_is_an_object(value: Any) -> None:
    assert error({"taskRoles": [value]}).endswith(": must be a mapping")
    assert error({"taskRoles": [value]}).startswith("spec.taskRoles[0]: ")


def test_all_errors_are_reported_at_once() -> None:
    text = error({"retryPolicy": {"maxRetryCount": -3}, "taskRoles": [{"name": "A"}, {"taskNumber": 10_001}]})
    for where in (
        "spec.retryPolicy.maxRetryCount: -3: ",
        "spec.taskRoles[0].name: 'A': ",
        "spec.taskRoles[1].taskNumber: 10001: ",
        "spec.taskRoles[1].name: is required",
    ):
        assert where in text


def test_a_long_value_is_cut() -> None:
    assert len(error({"executionType": "x" * 10_000})) < 300


def test_python_names_of_fields_are_unknown_to_the_api() -> None:
    """A field that the API does not know means nothing, however the code calls its own."""
    parsed = parse_spec({"execution_type": "Stop", "taskRoles": [{"name": "a", "task_number": 7}]})
    assert parsed.execution_type is ExecutionType.START
    assert parsed.task_roles[0].task_number == 1


# --- backoff -----------------------------------------------------------------------------------------------------


def test_backoff() -> None:
    def read(backoff: Any) -> tuple[int, int] | None:
        policy = parse_spec({"retryPolicy": {"backoff": backoff}}).retry_policy
        assert role(task={"retryPolicy": {"backoff": backoff}}).task.retry_policy.backoff == policy.backoff
        found = policy.backoff
        return None if found is None else (found.base_seconds, found.max_seconds)

    assert read(None) is None
    assert read({}) == (10, 360)
    assert read({"baseSeconds": None, "maxSeconds": 20.0}) == (10, 20)
    assert read({"baseSeconds": 0, "maxSeconds": 0}) == (0, 0)
    assert read({"baseSeconds": INT32, "maxSeconds": INT32}) == (INT32, INT32)


@pytest.mark.parametrize(
    ("backoff", "expected"),
    [
        ({"baseSeconds": -1}, ".baseSeconds: -1: must be at least 0"),
        ({"maxSeconds": 2**31}, f".maxSeconds: {2**31}: must be at most {INT32}"),
        ({"baseSeconds": 361}, ".maxSeconds: 360: must not be below baseSeconds (361)"),
        ({"baseSeconds": "10s"}, ".baseSeconds: '10s': must be a whole number"),
        (7, ": 7: must be a mapping"),
    ],
)
def test_invalid_backoff(backoff: Any, expected: str) -> None:
    assert error({"retryPolicy": {"backoff": backoff}}) == f"spec.retryPolicy.backoff{expected}"
    below = {"taskRoles": [{"name": "a", "task": {"retryPolicy": {"backoff": backoff}}}]}
    assert error(below) == f"spec.taskRoles[0].task.retryPolicy.backoff{expected}"


# --- podFailurePolicy --------------------------------------------------------------------------------------------

EXITS: dict[str, Any] = {"operator": "In", "values": [1]}


def rule(**fields: Any) -> Any:
    """A spec of one Task with such a rule."""
    task = {"podFailurePolicy": {"rules": [{"action": "Count", **fields}]}}
    return {"taskRoles": [{"name": "a", "task": task}]}


def test_failure_rules() -> None:
    given = [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}, {"type": "x", "status": "Unknown"}]},
        {"action": "FailFramework", "onExitCodes": {"containerName": "main", **EXITS}},
        {"action": "FailTask", "onCompletionCodes": {"operator": "NotIn", "values": [-1000, 0]}, "odd": 1},
    ]
    policy = role(task={"podFailurePolicy": {"rules": given}}).task.pod_failure_policy
    assert policy is not None
    ignore, fail, task = policy.rules
    assert [(one.type, one.status, one.reason) for one in ignore.on_pod_conditions] == [
        ("DisruptionTarget", "True", None),
        ("x", "Unknown", None),
    ]
    assert fail.on_exit_codes is not None
    assert (fail.on_exit_codes.container_name, fail.on_exit_codes.values) == ("main", (1,))
    assert task.on_completion_codes is not None
    assert [code in task.on_completion_codes for code in (-1000, 1)] == [False, True]


@pytest.mark.parametrize("policy", [None, {}, {"rules": None}, {"rules": []}])
def test_no_failure_rules(policy: Any) -> None:
    found = role(task={"podFailurePolicy": policy}).task.pod_failure_policy
    assert found is None or found.rules == ()


ONE_OF = ": must have exactly one of onExitCodes, onPodConditions and onCompletionCodes"


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, ONE_OF),
        ({"onPodConditions": []}, ONE_OF),
        ({"onExitCodes": EXITS, "onCompletionCodes": EXITS}, ONE_OF),
        ({"onExitCodes": EXITS, "onPodConditions": [{"type": "x"}]}, ONE_OF),
        (
            {"action": "FailJob", "onExitCodes": EXITS},
            ".action: 'FailJob': must be Count, Ignore, FailTask, RestartFramework or FailFramework",
        ),
        ({"onExitCodes": {"values": [1]}}, ".onExitCodes.operator: is required"),
        ({"onExitCodes": {"operator": "In"}}, ".onExitCodes.values: is required"),
        ({"onExitCodes": {"operator": "Is", "values": [1]}}, ".onExitCodes.operator: 'Is': must be In or NotIn"),
        ({"onExitCodes": {**EXITS, "values": []}}, ".onExitCodes.values: a list: must have at least 1 item"),
        (
            {"onExitCodes": {**EXITS, "values": [*range(1, 257)]}},
            ".onExitCodes.values: a list: must have at most 255 items",
        ),
        ({"onExitCodes": {**EXITS, "values": [1, 2, 1]}}, ".onExitCodes.values[2]: 1: is there twice"),
        ({"onExitCodes": {**EXITS, "values": [7, 0]}}, ".onExitCodes.values[1]: 0: is no code of a failure"),
        (
            {"onCompletionCodes": {**EXITS, "values": [0]}},
            ".onCompletionCodes.values[0]: 0: is no code of a failure",
        ),
        ({"onExitCodes": {**EXITS, "values": [1, "2"]}}, ".onExitCodes.values[1]: '2': must be a whole number"),
        ({"onPodConditions": [{}]}, ".onPodConditions[0].type: is required"),
        (
            {"onPodConditions": [{"type": "x", "status": True}]},
            ".onPodConditions[0].status: true: must be True, False or Unknown, in quotes",
        ),
        (
            {"onPodConditions": [{"type": "x"}] * 21},
            ".onPodConditions: a list: must have at most 20 items",
        ),
    ],
)
def test_invalid_failure_rules(fields: Any, expected: str) -> None:
    assert error(rule(**fields)) == f"spec.taskRoles[0].task.podFailurePolicy.rules[0]{expected}"


def test_too_many_failure_rules() -> None:
    rules = rule(onExitCodes=EXITS)["taskRoles"][0]["task"]["podFailurePolicy"]["rules"] * 21
    text = error({"taskRoles": [{"name": "a", "task": {"podFailurePolicy": {"rules": rules}}}]})
    assert text == "spec.taskRoles[0].task.podFailurePolicy.rules: a list: must have at most 20 items"


# --- host names ---------------------------------------------------------------------------------------------------

HOST = {"spec": {"containers": [{"env": [{"value": "{{FC_COORDINATOR_HOST}}"}]}]}}


def test_defaults_of_the_network() -> None:
    parsed = parse_spec({"network": {}, "coordinator": {"taskRole": "a"}, "taskRoles": [{"name": "a"}]})
    assert parsed.network == Network(enableDNSHostnames=True, subdomain=None, publish_not_ready_addresses=True)
    assert parsed.coordinator == Coordinator(task_role="a", task_index=0)
    assert parsed.subdomain("f") == "f"
    assert parsed.has_hostnames
    assert parsed.has_network_placeholders


@pytest.mark.parametrize("spec", [{}, {"network": None, "coordinator": None}])
def test_without_network_nothing_is_new(spec: dict[str, Any]) -> None:
    parsed = parse_spec({**spec, "taskRoles": [{"name": "a", "task": {"pod": HOST}}]}, framework="0" * 63)
    assert not parsed.has_hostnames
    assert not parsed.has_network_placeholders


@pytest.mark.parametrize("subdomain", ["a", "a-0", "x" * 63])
def test_a_subdomain_is_the_name_of_a_service(subdomain: str) -> None:
    parsed = parse_spec({"network": {"subdomain": subdomain}}, framework="0")
    assert parsed.network is not None
    assert parsed.network.subdomain == subdomain


@pytest.mark.parametrize("subdomain", ["", "0a", "A", "-a", "a-", "a.b", "x" * 64, "a\n"])
def test_other_subdomains_are_refused(subdomain: str) -> None:
    assert error({"network": {"subdomain": subdomain}}).endswith(names.RULES[names.SERVICE_PATTERN])


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"coordinator": {}}, "coordinator.taskRole: is required"),
        ({"coordinator": {"taskRole": "b"}}, "coordinator.taskRole: 'b': is not the name of a TaskRole"),
        ({"coordinator": {"taskRole": "a", "taskIndex": 2}}, "coordinator.taskIndex: 2: TaskRole a has only 2 Tasks"),
        ({"network": {}}, "{{FC_COORDINATOR_HOST}} has no value: spec.coordinator is not set"),
        ({"coordinator": {"taskRole": "a"}}, "has no value: Pods have no host names without spec.network"),
        (
            {"coordinator": {"taskRole": "a"}, "network": {"enableDNSHostnames": False}},
            "has no value: Pods have no host names without spec.network",
        ),
    ],
)
def test_a_coordinator_that_cannot_be_found_is_refused(spec: dict[str, Any], text: str) -> None:
    assert text in error({**spec, "taskRoles": [{"name": "a", "taskNumber": 2, "task": {"pod": HOST}}]})


@pytest.mark.parametrize("field", ["hostname", "subdomain"])
def test_the_host_of_a_coordinator_with_a_name_of_its_own_is_unknown(field: str) -> None:
    own = {"name": "a", "task": {"pod": {"spec": {field: "x"}}}}
    user = {"name": "b", "task": {"pod": HOST}}
    spec = {"network": {}, "coordinator": {"taskRole": "a"}, "taskRoles": [own, user]}
    assert error(spec) == (
        "spec.taskRoles[1].task.pod: {{FC_COORDINATOR_HOST}} has no value: "
        "the Pods of TaskRole a have a hostname or subdomain of their own"
    )
    parse_spec({**spec, "coordinator": {"taskRole": "b"}})


def hosted(placeholder: str, number: int = 2, **fields: Any) -> dict[str, Any]:
    """A spec whose one role has that placeholder in an environment variable."""
    pod = {"spec": {"containers": [{"env": [{"value": f"<{placeholder}>"}]}]}}
    return {"taskRoles": [{"name": "a", "taskNumber": number, "task": {"pod": pod}}], **fields}


@pytest.mark.parametrize("arguments", ["a", "a:1", "a:65535"])
@pytest.mark.parametrize("name", ["FC_HOSTS", "FC_HOSTS_JSON"])
def test_host_lists(name: str, arguments: str) -> None:
    parse_spec(hosted(f"{{{{{name}:{arguments}}}}}", network={}), framework="f")


@pytest.mark.parametrize("text", ["{{FC_HOSTS:a:0}", "{{FC_HOSTSX:b}}", "{{ FC_HOSTS:b }}", "{{fc_hosts:b}}"])
def test_other_texts_are_no_host_lists(text: str) -> None:
    parse_spec(hosted(text, network={}), framework="f")


@pytest.mark.parametrize(
    ("placeholder", "problem"),
    [
        ("{{FC_HOSTS}}", "'' is not the name of a TaskRole"),
        ("{{FC_HOSTS:}}", "'' is not the name of a TaskRole"),
        ("{{FC_HOSTS:b}}", "'b' is not the name of a TaskRole"),
        ("{{FC_HOSTS_JSON:b:80}}", "'b' is not the name of a TaskRole"),
        ("{{FC_HOSTS: a}}", "' a' is not the name of a TaskRole"),
        ("{{FC_HOSTS:{{FC_TASKROLE_NAME}}", "'{{FC_TASKROLE_NAME' is not the name of a TaskRole"),
        ("{{FC_HOSTS:a:}}", "'' is no number from 1 to 65535"),
        ("{{FC_HOSTS:a:0}}", "'0' is no number from 1 to 65535"),
        ("{{FC_HOSTS:a:080}}", "'080' is no number from 1 to 65535"),
        ("{{FC_HOSTS:a:-1}}", "'-1' is no number from 1 to 65535"),
        ("{{FC_HOSTS:a:\u00b2}}", "'\u00b2' is no number from 1 to 65535"),
        ("{{FC_HOSTS:a:http}}", "'http' is no number from 1 to 65535"),
        ("{{FC_HOSTS:a:80:80}}", "'80:80' is no number from 1 to 65535"),
        ("{{FC_HOSTS_JSON:a:65536}}", "'65536' is no number from 1 to 65535"),
        ("{{FC_HOSTS:a:99999999999999999999}}", "'99999999999999999999' is no number from 1 to 65535"),
    ],
)
def test_host_lists_that_have_no_value(placeholder: str, problem: str) -> None:
    where = "spec.taskRoles[0].task.pod.spec.containers[0].env[0].value"
    assert error(hosted(placeholder, network={})) == f"{where}: {placeholder!r}: {problem}"
    parse_spec(hosted(placeholder), framework="f")


@pytest.mark.parametrize(
    "fields", [{"coordinator": {"taskRole": "a"}}, {"network": {"enableDNSHostnames": False}}], ids=["alone", "off"]
)
def test_without_host_names_there_are_no_host_lists(fields: dict[str, Any]) -> None:
    assert error(hosted("{{FC_HOSTS:a}}", **fields)).endswith("Pods have no host names without spec.network")


@pytest.mark.parametrize("field", ["hostname", "subdomain"])
def test_the_hosts_of_a_role_with_names_of_its_own_are_unknown(field: str) -> None:
    own = {"name": "own", "task": {"pod": {"spec": {field: "x"}}}}
    user = hosted("{{FC_HOSTS:own}}")["taskRoles"][0]
    text = "the Pods of TaskRole own have a hostname or subdomain of their own"
    assert error({"network": {}, "taskRoles": [own, user]}).endswith(f"'{{{{FC_HOSTS:own}}}}': {text}")


def test_host_lists_have_a_bound() -> None:
    # f-a-0.f to f-a-9999.f, with commas.
    size = sum(len(f"f-a-{index}.f") for index in range(10000)) + 9999
    assert size < 128_000 < 2 * size
    parse_spec(hosted("{{FC_HOSTS:a}}", 10000, network={}), framework="f")
    with pytest.raises(SpecError) as refused:
        parse_spec(hosted("{{FC_HOSTS:a}}{{FC_HOSTS:a}}", 10000, network={}), framework="f")
    assert str(refused.value) == (
        "spec.taskRoles[0].task.pod.spec.containers[0].env[0].value: '{{FC_HOSTS:a}}': with it, the host lists of each "
        f"Pod have {2 * size:,} bytes, where 128,000 are allowed; the barrier writes the addresses of all Tasks into "
        "files"
    )
    parse_spec(hosted("{{FC_HOSTS:a}}{{FC_HOSTS:a}}", 5000, network={}), framework="f")
    with pytest.raises(SpecError):
        parse_spec(hosted("{{FC_HOSTS:a}}", 10000, network={}), framework="framework")


def test_a_framework_whose_name_starts_with_a_digit_needs_a_subdomain() -> None:
    with pytest.raises(SpecError, match=r"^spec\.network\.subdomain: must be set: the name of the Framework starts"):
        parse_spec({"network": {}}, framework="0f")
    for network in ({"subdomain": "f0"}, {"enableDNSHostnames": False}, None):
        parse_spec({"network": network}, framework="0f")


def test_host_names_have_63_characters_at_most() -> None:
    def spec(number: int, **pod: Any) -> dict[str, Any]:
        task = {"pod": {"spec": pod}}
        return {"network": {}, "taskRoles": [{"name": "r" * 10, "taskNumber": number, "task": task}]}

    parse_spec(spec(10), framework="f" * 50)
    with pytest.raises(SpecError, match=rf"^spec\.taskRoles\[0\]\.name: .* {'f' * 50}-{'r' * 10}-10 would have 64"):
        parse_spec(spec(11), framework="f" * 50)
    parse_spec(spec(11, hostname="own"), framework="f" * 50)
    parse_spec(spec(0), framework="f" * 60)
    parse_spec({**spec(11), "network": None}, framework="f" * 60)


# --- volume claims ---


def claims(*templates: Any, **fields: Any) -> dict[str, Any]:
    """A spec with a role of these volumeClaimTemplates."""
    return {"taskRoles": [{"name": "a", "volumeClaimTemplates": list(templates), **fields}]}


def test_claims() -> None:
    template = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "d"}, "spec": {"x": [1]}}
    spec = parse_spec(claims(template))
    (role,) = spec.task_roles
    assert spec.has_claims
    assert role.volume_claim_templates[0].spec.decoded() == {"x": [1]}
    assert role.persistent_volume_claim_retention_policy == ClaimRetentionPolicy()
    assert ClaimRetentionPolicy().when_deleted is ClaimRetentionPolicy().when_scaled is ClaimRetention.RETAIN
    assert not parse_spec({"taskRoles": [{"name": "a", "volumeClaimTemplates": None}]}).has_claims


DATA: dict[str, Any] = {"metadata": {"name": "data"}}


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (claims(DATA, DATA), "[1].metadata.name: 'data': is already the name of volumeClaimTemplates[0]"),
        (claims({}), "[0].metadata: is required"),
        (claims({"metadata": {}}), "[0].metadata.name: is required"),
        (claims({"metadata": {"name": "Data"}}), "[0].metadata.name: 'Data': must be the name of a volume"),
        (claims({"metadata": {"name": "d" * 64}}), "must be the name of a volume"),
        (claims(*({"metadata": {"name": f"d{number}"}} for number in range(21))), "20"),
        (
            claims(DATA, persistentVolumeClaimRetentionPolicy={"whenScaled": "Keep"}),
            "persistentVolumeClaimRetentionPolicy.whenScaled: 'Keep'",
        ),
    ],
)
def test_claims_that_cannot_be_are_refused(spec: dict[str, Any], text: str) -> None:
    with pytest.raises(SpecError) as error:
        parse_spec(spec)
    assert text in str(error.value)


# --- scheduling ---


def scheduled(*pods: dict[str, Any], gang: Any = None, **fields: Any) -> dict[str, Any]:
    """A spec with ``scheduling``, and a role for each Pod template."""
    roles = [{"name": f"r{number}", "task": {"pod": pod}} for number, pod in enumerate(pods)]
    return {"scheduling": {"schedulingPolicy": {"gang": gang or {}}, **fields}, "taskRoles": roles}


def test_scheduling() -> None:
    assert parse_spec({"scheduling": None}).scheduling is None
    spec = parse_spec(scheduled({"spec": {"schedulerName": "x"}}, {}, gang={"minCount": 3}, queue="team-a.b"))
    assert spec.scheduling is not None
    assert spec.scheduling.queue == "team-a.b"
    policy = spec.scheduling.scheduling_policy
    assert policy.gang is not None
    assert (policy.gang.min_count, policy.basic) == (3, None)
    basic = parse_spec({"scheduling": {"schedulingPolicy": {"basic": {}, "gang": None}}}).scheduling
    assert basic is not None
    assert basic.scheduling_policy.gang is None


def test_a_role_that_waits_for_others_is_a_group_of_its_own() -> None:
    waits = {"name": "b", "dependsOn": [{"name": "a", "status": "Complete"}]}
    spec = parse_spec({"taskRoles": [{"name": "a"}, waits]})
    assert [spec.group_of("f", role) for role in spec.task_roles] == ["f", "f-b"]


def test_a_scheduler_of_each_group() -> None:
    spec = scheduled({"spec": {"schedulerName": "x"}}, {"spec": {"schedulerName": "y"}})
    assert error(spec) == (
        "spec.taskRoles[1].task.pod.spec.schedulerName: 'y': must be as in taskRoles[0], 'x': one scheduler places "
        "the Pods of a group"
    )
    spec["taskRoles"][1]["dependsOn"] = [{"name": "r0", "status": "Complete"}]
    parse_spec(spec)


TOPOLOGY = {"schedulingConstraints": {"topology": [{"key": "example.com/rack"}]}}
KUEUE_TOPOLOGY = {"metadata": {"annotations": {"kueue.x-k8s.io/podset-required-topology": "example.com/rack"}}}


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"scheduling": {}}, "spec.scheduling.schedulingPolicy: is required"),
        (
            {"scheduling": {"schedulingPolicy": {"gang": {}, "basic": {}}}},
            "spec.scheduling.schedulingPolicy: must have exactly one of basic and gang",
        ),
        (scheduled(gang={"minCount": 0}), "spec.scheduling.schedulingPolicy.gang.minCount: 0: must be at least 1"),
        (scheduled(disruptionMode={}), "spec.scheduling.disruptionMode: must have exactly one of single and all"),
        (
            scheduled(disruptionMode={"single": {}, "all": {}}),
            "spec.scheduling.disruptionMode: must have exactly one of single and all",
        ),
        (scheduled(queue="-"), "spec.scheduling.queue: '-': must be the name of an object"),
        (
            scheduled(schedulingConstraints={"topology": [{"key": "a"}, {"key": "b"}]}),
            "spec.scheduling.schedulingConstraints.topology: a list: must have at most 1 items",
        ),
        (
            scheduled(schedulingConstraints={"topology": [{"key": "a/b/c"}]}),
            "spec.scheduling.schedulingConstraints.topology[0].key: 'a/b/c': must be the key of a label",
        ),
        (
            scheduled({}, {"spec": {"schedulingGroup": {"podGroupName": "x"}}}),
            "spec.taskRoles[1].task.pod.spec.schedulingGroup: must not be set with spec.scheduling",
        ),
        (
            scheduled({"metadata": {"annotations": {"scheduling.k8s.io/group-name": "x"}}}),
            "spec.taskRoles[0].task.pod.metadata.annotations.scheduling.k8s.io/group-name: 'x': must not be set",
        ),
        (
            scheduled({"metadata": {"labels": {"scheduling.x-k8s.io/pod-group": "x"}}}),
            "spec.taskRoles[0].task.pod.metadata.labels.scheduling.x-k8s.io/pod-group: 'x': must not be set",
        ),
        (
            scheduled(KUEUE_TOPOLOGY, **TOPOLOGY),
            "podset-required-topology: 'example.com/rack': must not be set with spec.scheduling.scheduling",
        ),
    ],
)
def test_scheduling_that_cannot_be_is_refused(spec: dict[str, Any], text: str) -> None:
    assert text in error(spec)


def test_kueue_may_choose_the_topology_of_a_gang() -> None:
    parse_spec(scheduled(KUEUE_TOPOLOGY))
    without = scheduled(KUEUE_TOPOLOGY, {"spec": {"schedulingGroup": None}}, **TOPOLOGY)
    del without["scheduling"]
    parse_spec(without)


# --- large values ------------------------------------------------------------------------------------------------

LONG = "x" * 300_000
PODS_OF_TWO_SCHEDULERS = [{"spec": {"schedulerName": one}} for one in (LONG, f"{LONG}y")]


@pytest.mark.parametrize(
    "spec",
    [
        {"executionType": LONG},
        {"description": [LONG]},
        {"network": {"subdomain": LONG}},
        {"coordinator": {"taskRole": LONG}},
        {"taskRoles": LONG},
        {"taskRoles": [{"name": LONG}]},
        {"taskRoles": [{"name": "a", "taskNumber": LONG}]},
        {"taskRoles": [{"name": "a", "dependsOn": [{"name": LONG, "status": LONG}]}]},
        {"taskRoles": [{"name": "a", "task": {"pod": LONG}}]},
        {"taskRoles": [{"name": "a", "volumeClaimTemplates": [{"kind": LONG, "metadata": {"name": LONG}}]}]},
        {"taskRoles": [{"name": "a", "volumeClaimTemplates": [{"metadata": {"name": "b", "labels": {LONG: 1}}}]}]},
        {"network": {}, "taskRoles": [{"name": "a", "task": {"pod": {"x": "{{FC_HOSTS:" + LONG + "}}"}}}]},
        {"network": {}, "taskRoles": [{"name": "a", "task": {"pod": {"x": "{{FC_HOSTS:a:" + LONG + "}}"}}}]},
        {"network": {}, "taskRoles": [{"name": "a", "task": {"pod": {LONG: "{{FC_HOSTS:b}}"}}}]},
        {"taskRoles": [{"name": "x"} | {"task": {"retryPolicy": LONG}}] * 5000},
        scheduled(*PODS_OF_TWO_SCHEDULERS),
        scheduled({"metadata": {"labels": {"scheduling.x-k8s.io/pod-group": LONG}}}),
        scheduled(queue=LONG),
        {
            "taskRoles": [
                {"name": f"r{n}x", "dependsOn": [{"name": f"r{(n + 1) % 9}x", "status": LONG}]} for n in range(9)
            ]
        },
        {
            "taskRoles": [
                {"name": f"r{n}", "dependsOn": [{"name": f"r{(n + 1) % 9000}", "status": "Ready"}]} for n in range(9000)
            ]
        },
    ],
)
def test_a_text_quotes_no_more_than_a_kilobyte_of_a_value(spec: dict[str, Any]) -> None:
    text = error(spec)
    assert "x" * 1000 not in text
    assert len(text) < 5000


def test_not_all_of_many_problems_are_reported() -> None:
    text = error({"taskRoles": [{"name": "A"}] * 12})
    assert text.count("spec.taskRoles[") == 10
    assert text.endswith("; and more")


def test_a_deep_path_is_shortened() -> None:
    pod: Any = {"x": "{{FC_HOSTS:b}}"}
    for _ in range(200):
        pod = {"y" * 70: pod}
    text = error({"network": {}, "taskRoles": [{"name": "a", "task": {"pod": pod}}]})
    assert text.startswith("spec.taskRoles[0].task.pod.yyy")
    assert ".x: '{{FC_HOSTS:b}}': 'b' is not the name of a TaskRole" in text
    assert len(text) < 600
