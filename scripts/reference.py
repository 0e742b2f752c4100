"""Print docs/reference.md, spec and status of a Framework, from the CRD.

Run as `.venv/bin/python scripts/reference.py > docs/reference.md`; a test detects an outdated page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from frameworkcontroller.api import hostlists, names
from frameworkcontroller.api.codec import ADDED, COMPRESSION_THRESHOLD_BYTES
from frameworkcontroller.api.fields import Interned, Time
from frameworkcontroller.api.status import AvoidedNode, RetryPolicyStatus, TaskAttemptStatus, TaskStatus
from frameworkcontroller.machine.kernel.reasons import EventPolicy
from frameworkcontroller.machine.parts import REASONS

CRD: Final = Path(__file__).resolve().parents[1] / "crd" / "frameworks.yaml"

HEAD: Final = f"""\
# Reference

This page describes every field of the Framework API, `{names.API_VERSION}`, kind `{names.KIND}`, as
`kubectl explain framework.spec --recursive` does on a cluster. [Write a Framework](write-a-framework.md) shows some.
See also [completion codes](failure-codes.md), [states](states.md), [configuration](configuration.md),
[events](events.md) and [metrics](metrics.md).

The names of Frameworks and TaskRoles match `{names.NAME_PATTERN}`, since clients split the Pod name
FRAMEWORK-TASKROLE-INDEX at its dashes.

## spec

Every field except the name of a TaskRole may be omitted or null, which both mean the default.
⁺: [Microsoft's FrameworkController](migration.md#back) ignores the field.
"""

STATUS: Final = """
## status

Only the controller writes the status. Times are in UTC, RFC 3339, to the second. Nullable fields are always present,
and null while they have no value; fields that may be absent are marked.
"""

TASK: Final[Mapping[str, tuple[str, str]]] = {
    "index": ("integer", "From 0."),
    "instanceUID": ("string", "Identity of this instance of the Task; changes if a rescale removes and adds it again."),
    "startTime": ("time", "When the Task was added."),
    "runTime": ("time, null", "When any of its attempts first ran."),
    "completionTime": ("time, null", "When it completed."),
    "transitionTime": ("time", "When its state last changed."),
    "state": ("string", "Like the Framework's, with the Pod in place of the ConfigMap: see [states](states.md)."),
    "deletionPending": (
        "boolean",
        "A rescale removes it: policies ignore it, and it is removed once its Pod is gone.",
    ),
    "retryPolicyStatus.totalRetriedCount": ("integer", "Number of retries, for any reason."),
    "retryPolicyStatus.accountableRetriedCount": ("integer", "Number of retries that count against maxRetryCount."),
    "retryPolicyStatus.retryDelaySec": (
        "integer, null",
        "Seconds from the end of this attempt to the next, once a retry is decided.",
    ),
    "attemptStatus.id": ("integer", "0 for the first attempt, plus 1 for each retry."),
    "attemptStatus.startTime": ("time", "When the attempt began."),
    "attemptStatus.runTime": ("time, null", "When its Pod first ran."),
    "attemptStatus.completionTime": ("time, null", "When its Pod was gone."),
    "attemptStatus.instanceUID": ("string, null", "Unique identity of the attempt, ID_PODUID."),
    "attemptStatus.podName": ("string", "FRAMEWORK-TASKROLE-INDEX, the same for every attempt."),
    "attemptStatus.podUID": ("string, null", "The UID of that Pod, once it is created."),
    "attemptStatus.podNodeName": ("string, null", "Its node; empty once the Pod was observed without one."),
    "attemptStatus.podIP": ("string, null", "Its address; likewise."),
    "attemptStatus.podHostIP": ("string, null", "The address of its node; likewise."),
    "attemptStatus.completionStatus": ("object, null", "Completion of the attempt; set once and never changed."),
    "attemptStatus.completionStatus.code": ("integer", "See [completion codes](failure-codes.md)."),
    "attemptStatus.completionStatus.phrase": ("string", "The code in one word."),
    "attemptStatus.completionStatus.type.name": ("string", "Succeeded or Failed."),
    "attemptStatus.completionStatus.type.attributes": (
        "list of string, null",
        "Transient, Permanent and Conflict, as far as known; null for a code whose podFailureSpec gives none.",
    ),
    "attemptStatus.completionStatus.diagnostics": ("string", "Details for people and log collectors."),
    "attemptStatus.completionStatus.pod": ("object, or absent", "Final state of a Pod that succeeded or failed."),
    "attemptStatus.completionStatus.pod.reason": ("string, or absent", "Of the Pod."),
    "attemptStatus.completionStatus.pod.message": ("string, or absent", "Of the Pod."),
    "attemptStatus.completionStatus.pod.containers": ("list, or absent", "Its containers, init containers first."),
    "attemptStatus.completionStatus.pod.containers[].name": ("string", "Its name."),
    "attemptStatus.completionStatus.pod.containers[].reason": ("string, or absent", "The reason of its end."),
    "attemptStatus.completionStatus.pod.containers[].message": (
        "string, or absent",
        "Its termination message, or log.",
    ),
    "attemptStatus.completionStatus.pod.containers[].signal": ("integer, or absent", "The signal that ended it."),
    "attemptStatus.completionStatus.pod.containers[].code": ("integer", "Its exit code; 0 if it has not ended."),
    "attemptStatus.completionStatus.policy.action": (
        "string, or absent",
        "Action of the rule of podFailurePolicy that matched; it counts even if the rules are changed.",
    ),
    "attemptStatus.completionStatus.policy.rule": ("integer, or absent", "Position of that rule, from 0."),
}
"""The fields of a Task's status, for which the CRD has no schema, without those made by `fields.added`."""

ADDED_TO_TASK: Final[Mapping[str, type]] = {
    "retryPolicyStatus.": RetryPolicyStatus,
    "attemptStatus.": TaskAttemptStatus,
    "": TaskStatus,
}
"""The records whose fields made by `fields.added` follow the other fields of that prefix."""

AVOIDED_NODES: Final = {
    "avoidedNodes[].name": ("string", "Name of the node."),
    "avoidedNodes[].failures": ("integer", "Number of failures of the Task there."),
}
"""The last fields of a Task's status."""

TYPES: Final = {
    int: "integer", str: "string", Interned: "string", bool: "boolean", Time: "time", tuple[AvoidedNode, ...]: "list",
}  # fmt: skip

TASKS: Final = f"""
### One of taskStatuses

With `largeFrameworkCompression: true`, `taskRoleStatuses` whose JSON has {COMPRESSION_THRESHOLD_BYTES:,} bytes or more
is null, and `taskRoleStatusesCompressed` replaces it ([large Frameworks](write-a-framework.md#large-frameworks)).
"""

CONDITIONS: Final = """
## Conditions

Conditions serve clients such as `kubectl wait --for=condition=Succeeded framework/NAME`. They are computed from the
rest of the status; the controller does not read them.

| type | True while |
|---|---|
"""

CONDITION: Final[tuple[tuple[str, str], ...]] = (
    ("`Running`", "the state is AttemptRunning"),
    ("`Completed`", "the state is Completed"),
    (
        "`Succeeded`, `Failed`",
        "the state is Completed, with that completion type; the reason is the completion phrase, the message its "
        "diagnostics. Absent until then",
    ),
    ("`Suspended`", "spec.suspend is true, and nothing of the Framework runs. Absent if it never was suspended"),
    (
        "`QuotaReserved`, `Admitted`",
        "Kueue has reserved quota for it, and has admitted it; reason and message are Kueue's until then. Absent "
        "without a queue",
    ),
    (
        "`Available`",
        "each TaskRole with `readyTaskCount` has at least `taskNumber` minus `maxUnavailable` ready Tasks (without "
        "RollingUpdate all), and at least one. Absent without such a TaskRole",
    ),
    (
        "`Updated`",
        "all Tasks of TaskRoles with RollingUpdate, from `partition` on, have the template of the spec, and were ready "
        "with it. Absent without such a TaskRole",
    ),
    (
        "`ProgressUnavailable`",
        "the spec has progress, and the controller no report server: the Framework runs without reports. Absent else",
    ),
    (
        "`Stalled`",
        "it waits for a person or another component; the message names the cause. Absent if it never did",
    ),
)

REASONS_HEAD: Final = """\
## Reasons

[Events](events.md), log lines, the condition `Stalled` and `status.reason` have these reasons. `status.reason` may also
be `TasksFailed`, `PodsNotStarted`, or a word of Kueue or of the completion.
"""

ORIGINAL: Final = frozenset(
    {
        "description", "executionType", "retryPolicy", "fancyRetryPolicy", "maxRetryCount", "taskRoles", "name",
        "taskNumber", "frameworkAttemptCompletionPolicy", "minFailedTaskCount", "minSucceededTaskCount", "task",
        "podGracefulDeletionTimeoutSec", "pod",
    }
)  # fmt: skip
"""The names of the fields in the spec of Microsoft's FrameworkController."""

NEW: Final = " ⁺"
"""Marks a field that Microsoft's FrameworkController does not have."""

OBJECTS: Final = f"""
## Created objects

An attempt of a Framework is a ConfigMap, `FRAMEWORK-attempt`, which the Framework owns; it has data only with
`progress` and `checkpointGraceSeconds`. An attempt of a
Task is a Pod, `FRAMEWORK-TASKROLE-INDEX`, which the ConfigMap owns. Both have the label `{names.FRAMEWORK_NAME}`, Pods
also `{names.TASKROLE_NAME}` and `{names.TASK_INDEX}`. The finalizer `{names.FOREGROUND_FINALIZER}` keeps the ConfigMap
until its last Pod is gone.

The Pod has these labels, annotations and environment variables. The variables precede the template's in each of
its containers. The ConfigMap has some of the annotations, too.

| name | value | label | annotation | variable | ConfigMap |
|---|---|---|---|---|---|
"""

LABELS: Final = (names.FRAMEWORK_NAME, names.TASKROLE_NAME, names.TASK_INDEX)
ONLY_VARIABLES: Final = (names.POD_UID, names.TASK_ATTEMPT_INSTANCE_UID, names.NOTICE_FILE)

KEYS: Final[tuple[tuple[str, str, bool], ...]] = (
    (names.FRAMEWORK_NAMESPACE, "the namespace", True),
    (names.FRAMEWORK_NAME, "the Framework's name", True),
    (names.TASKROLE_NAME, "the TaskRole's name", False),
    (names.TASK_INDEX, "the Task's index, 0 to `taskNumber` - 1", False),
    (names.CONFIGMAP_NAME, "`{framework}-attempt`", True),
    (names.POD_NAME, "`{framework}-{role}-{index}`", False),
    (names.FRAMEWORK_UID, "the Framework's UID, the same in all attempts", True),
    (names.FRAMEWORK_ATTEMPT_ID, "id of the attempt of the Framework: 0, 1, 2, …", True),
    (names.FRAMEWORK_ATTEMPT_INSTANCE_UID, "its instanceUID, unique", False),
    (names.CONFIGMAP_UID, "the ConfigMap's UID", False),
    (names.TASKROLE_UID, "the TaskRole's instanceUID", False),
    (names.TASK_UID, "the Task's instanceUID", False),
    (names.TASK_ATTEMPT_ID, "id of the attempt of the Task: 0, 1, 2, … for each instanceUID of the Task", False),
    (names.POD_UID, "the Pod's UID", False),
    (names.TASK_ATTEMPT_INSTANCE_UID, "the instanceUID of the attempt of the Task, unique", False),
    (names.NOTICE_FILE, "only with `checkpointGraceSeconds`: path of the file with the notice of an end", False),
)

PLACEHOLDERS: Final = (
    (names.FRAMEWORK_ATTEMPT_ID, "id of the attempt of the Framework"),
    (names.FRAMEWORK_TASK_NUMBER, "the number of Tasks of all TaskRoles"),
    (names.TASKROLE_TASK_NUMBER, "`taskNumber` of the Pod's own TaskRole"),
    (names.TASK_RANK, "the `taskNumber`s of the TaskRoles before its own in the spec, added up, plus the Task's index"),
    (names.COORDINATOR_HOST, "host name of the Pod of `coordinator`: `{framework}-{role}-{index}.{subdomain}`"),
)

HOST_LISTS: Final = (
    ("{{FC_HOSTS:ROLE}}", "host names of all Tasks of that TaskRole, in order of index, with commas"),
    ("{{FC_HOSTS:ROLE:PORT}}", "the same, with `:PORT` after each, from 1 to 65535"),
    ("{{FC_HOSTS_JSON:ROLE}}, {{FC_HOSTS_JSON:ROLE:PORT}}", "the same as a JSON list"),
)

HOST_LIST_BOUND: Final = f"""\
The host lists of one template may have {hostlists.MAX_BYTES:,} bytes together, which is enough for some 4,000 Tasks.
"""

NETWORK: Final = """
With `network`, the Framework also owns a headless Service, named as `subdomain` says; for each entry of
`network.services` a Service, and for each TaskRole with `disruptionBudget` a PodDisruptionBudget, both named
FRAMEWORK-TASKROLE. If the spec has `network` or `coordinator`, these
[placeholders](write-a-framework.md#what-is-put-into-a-pod) count, too; a running Pod keeps its values:

| placeholder | value |
|---|---|
"""

TEMPLATES: Final = f"""
A claim of `volumeClaimTemplates` has the labels `{names.FRAMEWORK_NAME}`, `{names.TASKROLE_NAME}` and
`{names.TASK_INDEX}`, these and `{names.FRAMEWORK_NAMESPACE}` and `{names.FRAMEWORK_UID}` as annotations, and the
annotation `{names.WHEN_SCALED}`: the policy that counts when its Task leaves. With `whenDeleted: Delete`, the
Framework owns it.

With `updateStrategy.type: RollingUpdate`, a Pod has the label `{names.TEMPLATE_HASH}`: the hash of its template.

The rest of the Pod is the template of its TaskRole, [with a few changes](write-a-framework.md#what-is-put-into-a-pod).

## Invalid input

| input | outcome |
|---|---|
"""

BAD_INPUT: Final[tuple[tuple[str, str], ...]] = (
    (
        "a field of the spec that is out of its bounds, or two TaskRoles of one name",
        "the API server refuses it and names field and value",
    ),
    (
        "an entry of `network.services` for an unknown TaskRole or twice for one, a port that is there twice or has no "
        "name, or a name of a Service that is too long, starts with a digit or equals `subdomain`",
        "`Stalled`, `InvalidSpec`, which names field and value, before anything is created",
    ),
    (
        "two claims of one name in a TaskRole",
        "`Stalled`, `InvalidSpec`, which names field and value, before anything is created",
    ),
    (
        "a claim that the API server refuses",
        "condition `Stalled`, reason `VolumeClaimNotAnswered`; retried with back-off",
    ),
    (
        "a host list of an unknown TaskRole or a wrong port, one that is too long, or a host name without `network`",
        "`Stalled`, `InvalidSpec`, which names field and value, before anything is created",
    ),
    (
        "a template of a wrong type, or with an invalid field, even if only by replaced placeholders",
        "the Task completes with -310 or -200, and the API server's message in the diagnostics",
    ),
    (
        "a template that causes an internal error of the API server (such as a Pod that is too large to store)",
        "condition `Stalled`, reason `PodNotAnswered`; retried with back-off",
    ),
    (
        "a Pod, ConfigMap, Service or claim name that is taken by another object",
        "`Stalled`, `NamingConflict`; that object is not touched",
    ),
    (
        "a spec that was stored before the CRD had these bounds",
        "`Stalled`, `InvalidSpec`; until it is corrected, nothing begins, and it can be stopped and suspended. An API "
        "server older than 1.30 accepts no status for such a Framework: there, an Event and the log report it, and "
        "nothing is done",
    ),
    (
        "a spec nested more than 254 levels deep",
        "`Stalled`, `InvalidSpec`; nothing begins, and it can be stopped, suspended and deleted",
    ),
    ("a status that does not fit into the API server", "`Stalled`, `StatusTooLarge`"),
    ("an invalid configuration", "the controller does not start, and names file, line, key and value"),
)


def task_fields() -> dict[str, tuple[str, str]]:
    """Types and meanings of the fields of a Task's status, by path."""
    rows = list(TASK.items())
    for prefix, record in ADDED_TO_TASK.items():
        end = 1 + max(number for number, (path, _) in enumerate(rows) if path.startswith(prefix))
        rows[end:end] = [(prefix + one.key, (TYPES[one.hint], one.meaning)) for one in ADDED[record]]
    return dict(rows) | AVOIDED_NODES


def described(text: str) -> str:
    """Format a description as a table cell."""
    return " ".join(text.split()).replace("|", "\\|")


def kind(schema: Mapping[str, Any]) -> str:
    """The type of a field."""
    if schema.get("x-kubernetes-int-or-string"):
        return "integer or string"
    told = "time" if schema.get("format") == "date-time" else str(schema["type"])
    if told == "array":
        items = str(schema["items"]["type"])
        told = "list" if items == "object" else f"list of {items}"
    if "enum" in schema:
        told = " or ".join(f"`{value}`" for value in schema["enum"])
    return told + (", null" if schema.get("nullable") else "")


def bounds(schema: Mapping[str, Any]) -> str:
    """The bounds of a field."""
    low, high = schema.get("minimum"), schema.get("maximum")
    if high is not None and high != 2**31 - 1:
        return f"{low} to {high}"
    if low is not None:
        return f"≥ {low}"
    return f"`{schema['pattern']}`" if "pattern" in schema else ""


def default(schema: Mapping[str, Any]) -> str:
    """The default of a field."""
    if "default" not in schema or schema["default"] in ({}, []):
        return ""
    value = schema["default"]
    return str(value).lower() if isinstance(value, bool) else f"{value}"


def rows(schema: Mapping[str, Any], path: str, *, of_spec: bool) -> Iterator[str]:
    """A row of the table for each field within ``schema``."""
    for name, field in schema.get("properties", {}).items():
        where = f"{path}{name}"
        is_new = of_spec and not ORIGINAL.issuperset(where.replace("[]", "").split("."))
        columns = [f"`{where}`{NEW if is_new else ''}", kind(field)]
        if of_spec:
            columns += [bounds(field), "required" if name in schema.get("required", ()) else default(field)]
        # The Tasks have a table of their own.
        meaning = (
            "The Tasks by index, [below](#one-of-taskstatuses)." if name == "taskStatuses" else field["description"]
        )
        yield f"| {' | '.join([*columns, described(meaning)])} |"
        inner = field.get("items", field)
        yield from rows(inner, where + ("[]." if "items" in field else "."), of_spec=of_spec)


def reasons() -> Iterator[str]:
    """The tables of reasons."""
    yield REASONS_HEAD
    yield "| reason | meaning | also of `Stalled` |"
    yield "|---|---|---|"
    for reason in sorted(REASONS):
        if reason.event is not EventPolicy.NEVER:
            only = " (only for failures)" if reason.event is EventPolicy.IF_WARNING else ""
            yield f"| `{reason}` | {reason.meaning}{only} | {'yes' if reason.event is EventPolicy.STALL else ''} |"
    yield ""
    yield "These appear only in the log:"
    yield ""
    yield "| reason | meaning |"
    yield "|---|---|"
    for reason in sorted(REASONS):
        if reason.event is EventPolicy.NEVER:
            yield f"| `{reason}` | {reason.meaning} |"


def page() -> Iterator[str]:
    """The lines of the page."""
    version = yaml.safe_load(CRD.read_text())["spec"]["versions"][0]
    root = version["schema"]["openAPIV3Schema"]["properties"]
    yield HEAD
    yield "| field | type | bounds | default | meaning |"
    yield "|---|---|---|---|---|"
    yield from rows(root["spec"], "", of_spec=True)
    yield STATUS
    yield "| field | type | meaning |"
    yield "|---|---|---|"
    yield from rows(root["status"], "", of_spec=False)
    yield TASKS
    yield "| field | type | meaning |"
    yield "|---|---|---|"
    for name, (type_name, meaning) in task_fields().items():
        yield f"| `{name}` | {type_name} | {meaning} |"
    yield CONDITIONS.rstrip("\n")
    yield from (f"| {what} | {meaning} |" for what, meaning in CONDITION)
    yield ""
    yield from reasons()
    yield ""
    yield "## Columns of kubectl get"
    yield ""
    yield "| column | field | shows |"
    yield "|---|---|---|"
    for column in version["additionalPrinterColumns"]:
        wide = " (`-o wide`)" if column.get("priority") else ""
        shows = column.get("description", "Time since its creation")
        yield f"| {column['name'].upper()}{wide} | `{column['jsonPath'].removeprefix('.')}` | {shows} |"
    yield OBJECTS.rstrip("\n")
    for key, value, of_configmap in KEYS:
        places = (key in LABELS, key not in ONLY_VARIABLES, True, of_configmap)
        yield f"| `{key}` | {value} | {' | '.join('x' if there else '' for there in places)} |"
    yield NETWORK.rstrip("\n")
    yield from (f"| `{names.placeholder(name)}` | {value} |" for name, value in PLACEHOLDERS)
    yield from (f"| `{text.replace(', ', '`, `')}` | {value} |" for text, value in HOST_LISTS)
    yield ""
    yield HOST_LIST_BOUND.rstrip("\n")
    yield TEMPLATES.rstrip("\n")
    yield from (f"| {what} | {shows} |" for what, shows in BAD_INPUT)


def document() -> str:
    """The whole page."""
    return "".join(f"{line}\n" for line in page())


if __name__ == "__main__":
    print(document(), end="")
