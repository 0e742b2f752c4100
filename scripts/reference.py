"""Print docs/reference.md, spec and status of a Framework, from the CRD.

Run as `.venv/bin/python scripts/reference.py > docs/reference.md`; a test detects an outdated page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import fill
from typing import Any, Final

import yaml

from frameworkcontroller.api import hostlists, names
from frameworkcontroller.api.codec import ADDED, COMPRESSION_THRESHOLD_BYTES
from frameworkcontroller.api.status import RetryPolicyStatus, TaskAttemptStatus, TaskStatus
from frameworkcontroller.machine.kernel.reasons import EventPolicy
from frameworkcontroller.machine.parts import REASONS

CRD: Final = Path(__file__).resolve().parents[1] / "crd" / "frameworks.yaml"

HEAD: Final = f"""\
# Reference

Every field of `{names.API_VERSION}`, kind `{names.KIND}`. [Write a Framework](write-a-framework.md) has examples. See
also [completion codes](failure-codes.md), [states](states.md), [configuration](configuration.md), [events](events.md)
and [metrics](metrics.md).

The names of Frameworks and TaskRoles match `{names.NAME_PATTERN}`, since clients split the Pod name
FRAMEWORK-TASKROLE-INDEX at its dashes.

## spec

Fields that are not required may be omitted or null, which both mean the default.
⁺: [Microsoft's FrameworkController](migration.md#back) ignores the field and those below it.
"""

STATUS: Final = """
## status

Only the controller writes the status. Times are in UTC, RFC 3339, to the second. Fields are null while they have no
value; those marked may be absent.
"""

TASK: Final[Mapping[str, str]] = {
    "index": "From 0.",
    "instanceUID": "Identity of this instance of the Task; changes if a rescale removes and adds it again.",
    "startTime": "",
    "runTime": "",
    "completionTime": "",
    "transitionTime": "",
    "state": "",
    "deletionPending": "A rescale removes it: policies ignore it, and it is removed once its Pod is gone.",
    "retryPolicyStatus.totalRetriedCount": "",
    "retryPolicyStatus.accountableRetriedCount": "",
    "retryPolicyStatus.retryDelaySec": "",
    "attemptStatus.id": "",
    "attemptStatus.startTime": "",
    "attemptStatus.runTime": "",
    "attemptStatus.completionTime": "",
    "attemptStatus.instanceUID": "Unique identity of the attempt, ID_PODUID.",
    "attemptStatus.podName": "FRAMEWORK-TASKROLE-INDEX, the same for every attempt.",
    "attemptStatus.podUID": "The UID of that Pod, once it is created.",
    "attemptStatus.podNodeName": "Its node; empty once the Pod was observed without one.",
    "attemptStatus.podIP": "Its address; likewise.",
    "attemptStatus.podHostIP": "The address of its node; likewise.",
    "attemptStatus.completionStatus": "",
    "attemptStatus.completionStatus.code": "",
    "attemptStatus.completionStatus.phrase": "",
    "attemptStatus.completionStatus.type.name": "",
    "attemptStatus.completionStatus.type.attributes": "",
    "attemptStatus.completionStatus.diagnostics": "",
    "attemptStatus.completionStatus.pod": "Final state of a Pod that succeeded or failed. Absent else.",
    "attemptStatus.completionStatus.pod.reason": "Of the Pod, or absent.",
    "attemptStatus.completionStatus.pod.message": "Of the Pod, or absent.",
    "attemptStatus.completionStatus.pod.containers": "Its containers, init containers first, or absent.",
    "attemptStatus.completionStatus.pod.containers[].name": "Its name.",
    "attemptStatus.completionStatus.pod.containers[].reason": "The reason of its end, or absent.",
    "attemptStatus.completionStatus.pod.containers[].message": "Its termination message, or log, or absent.",
    "attemptStatus.completionStatus.pod.containers[].signal": "The signal that ended it, or absent.",
    "attemptStatus.completionStatus.pod.containers[].code": "Its exit code; 0 if it has not ended.",
    "attemptStatus.completionStatus.policy.action": "Action of the rule of podFailurePolicy that matched; or absent.",
    "attemptStatus.completionStatus.policy.rule": "Position of that rule, from 0; or absent.",
}
"""The fields of a Task's status, for which the CRD has no schema, without those made by `fields.added`. "": as of the
Framework."""

ADDED_TO_TASK: Final[Mapping[str, type]] = {
    "retryPolicyStatus.": RetryPolicyStatus,
    "attemptStatus.": TaskAttemptStatus,
    "": TaskStatus,
}
"""The records whose fields made by `fields.added` follow the other fields of that prefix."""

AVOIDED_NODES: Final = {
    "avoidedNodes[].name": "Name of the node.",
    "avoidedNodes[].failures": "Number of failures of the Task there.",
}
"""The last fields of a Task's status."""

TASKS: Final = f"""
### One of taskStatuses

With `largeFrameworkCompression: true`, `taskRoleStatuses` of {COMPRESSION_THRESHOLD_BYTES:,} bytes or more
is null, and `taskRoleStatusesCompressed` replaces it ([large Frameworks](write-a-framework.md#large-frameworks)).

As of the Framework, with the Pod in place of the ConfigMap:
"""

CONDITIONS: Final = """
## Conditions

They serve clients such as `kubectl wait --for=condition=Succeeded framework/NAME`.

| type | True while |
|---|---|
"""

CONDITION: Final[tuple[tuple[str, str], ...]] = (
    ("`Running`", "the state is AttemptRunning"),
    ("`Completed`", "the state is Completed"),
    (
        "`Succeeded`, `Failed`",
        "the state is Completed, with that completion type, phrase (reason), diagnostics (message). Absent until then",
    ),
    ("`Suspended`", "spec.suspend is true, and nothing of the Framework runs. Absent if it never was suspended"),
    (
        "`QuotaReserved`, `Admitted`",
        "Kueue has reserved quota for it, and has admitted it. Absent without a queue",
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
        "the spec has progress, and the controller no report server. Absent else",
    ),
    (
        "`Stalled`",
        "it waits for a person or another component; the message names the cause. Absent if it never did",
    ),
)

STALLED: Final = "ˢ"

REASONS_HEAD: Final = f"""\
## Reasons

Of [Events](events.md), log lines, `status.reason` and, if marked by {STALLED}, the condition `Stalled`. `status.reason`
may also be `TasksFailed`, `PodsNotStarted`, or a word of Kueue or of the completion.

| reason | meaning |
|---|---|
"""

FAMILIES: Final = {
    "NotAnswered": "requests for such an object failed several times in a row",
    "NotGone": "such an object still exists long after its deletion was due",
    "NotListed": "such objects cannot be listed, which a field of the spec needs",
}
"""Reasons with this end are a row."""

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
`progress` and `checkpointGraceSeconds`. An attempt of a Task is a Pod, `FRAMEWORK-TASKROLE-INDEX`, which the ConfigMap
owns. The finalizer `{names.FOREGROUND_FINALIZER}` keeps the ConfigMap until its last Pod is gone.

The Pod has these annotations, and each of its containers these environment variables, before the template's.
ˡ: also a label; ᶜ: also an annotation of the ConfigMap, which has the label `{names.FRAMEWORK_NAME}`, too;
ᵛ: only a variable.

| name | value |
|---|---|
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
The host lists of one template may have {hostlists.MAX_BYTES:,} bytes together: some 4,000 Tasks.
"""

NETWORK: Final = """
With `network`, the Framework also owns a headless Service, named as `subdomain` says; for each entry of
`network.services` a Service, and for each TaskRole with `disruptionBudget` a PodDisruptionBudget, both named
FRAMEWORK-TASKROLE. With `network` or `coordinator`, these
[placeholders](write-a-framework.md#what-is-put-into-a-pod) count, too:

| placeholder | value |
|---|---|
"""

TEMPLATES: Final = f"""
A claim of `volumeClaimTemplates` has the labels ˡ, these and `{names.FRAMEWORK_NAMESPACE}` and
`{names.FRAMEWORK_UID}` as annotations, and the annotation `{names.WHEN_SCALED}`: the policy that counts when its Task
leaves. With `whenDeleted: Delete`, the Framework owns it. With `updateStrategy.type: RollingUpdate`, a Pod has the
label `{names.TEMPLATE_HASH}`.

## Invalid input

| input | outcome |
|---|---|
"""

BAD_INPUT: Final[tuple[tuple[str, str], ...]] = (
    ("a field of the spec out of its bounds, or two TaskRoles of one name", "the API server refuses it"),
    (
        "wrong `network.services`, claims of one name in a TaskRole, a wrong or too long host list, a host name "
        "without `network`",
        "`Stalled`, `InvalidSpec`, which names field and value; nothing is created",
    ),
    ("a claim that the API server refuses", "`Stalled`, `VolumeClaimNotAnswered`; retried with back-off"),
    (
        "a template of a wrong type, or with an invalid field, even if only by replaced placeholders",
        "the Task completes with -310 or -200, and the API server's message",
    ),
    (
        "a template that causes an internal error of the API server, such as a Pod that is too large",
        "`Stalled`, `PodNotAnswered`; retried with back-off",
    ),
    (
        "a Pod, ConfigMap, Service or claim name that is taken by another object",
        "`Stalled`, `NamingConflict`; that object is not touched",
    ),
    (
        "a spec that was stored before the CRD had these bounds, or is nested more than 254 levels deep",
        "`Stalled`, `InvalidSpec`; nothing begins, and it can be stopped, suspended and deleted. Before Kubernetes "
        "1.30, only an Event and the log report it",
    ),
    ("a status that does not fit into the API server", "`Stalled`, `StatusTooLarge`"),
    ("an invalid configuration", "the controller does not start, and names file, line, key and value"),
)

SHORTER: Final = """\
executionType: Create: start nothing yet. Start: run the Framework. Stop: stop its Pods and complete it. Changes:
  Create to Start or Stop, Start to Stop, and, while suspend is true, Start to Create.

retryPolicy.backoff: Delay before each retry: baseSeconds, doubled for each further retry in a row up to maxSeconds.
  An attempt that ran for 10 minutes ends the row. Retries after Kubernetes disrupted a Pod (codes -1008 to -1012)
  neither wait nor count if the attempt lasted for 30 s. Absent: no delay, with
  [exceptions](failures-and-retries.md#delays).

network: Host names of the Pods: POD.SUBDOMAIN in the namespace, by a headless Service ([host
  names](write-a-framework.md#host-names)). Absent: none. Immutable, except for services; API servers before 1.25
  accept a change, which counts for Pods created later.

network.services[].ports: As of a Service: `name`, required if there are several, `port`, required, `targetPort`
  (default: port), `protocol` (TCP, the default, UDP or SCTP) and `appProtocol`.

coordinator: The Task that the others are to find: {{FC_COORDINATOR_HOST}} in Pod templates. May change at any time; a
  change counts for Pods created later.

coordinator.taskIndex: Its index in the TaskRole.

scheduling: The Pods of an attempt are placed as a group, if the scheduler can do that
  ([gangs](shared-clusters.md#gangs)). Absent: each Pod is placed by itself. Immutable, except for minCount; API
  servers before 1.25 accept a change, which counts for PodGroups and Pods created later.

scheduling.schedulingPolicy: Either `basic`, an empty object (the Pods are placed one by one), or gang.

scheduling.schedulingPolicy.gang: No Pod of a group is placed before minCount of them can be.

scheduling.schedulingPolicy.gang.minCount: Number of Pods of a group that must be placed together. Absent, or above
  the number of its Tasks: all of them. An increase counts for the next attempt.

scheduling.schedulingConstraints: Where the Pods may run: `topology`, a list of objects with the `key` of a label,
  such as topology.kubernetes.io/zone. All Pods of a group are in one such domain.

scheduling.disruptionMode: How the scheduler preempts Pods of a group: `single`, one by one, or `all`, together; an
  empty object. Absent: as the scheduler does by default.

taskRoles[].autoscaling: A FrameworkRoleScaler FRAMEWORK-TASKROLE, with a subresource scale, sets the number of Tasks
  ([autoscaling](services.md#autoscaling)). Absent: taskNumber, which else is the number at the beginning.

taskRoles[].dependsOn: TaskRoles that this one waits for: in each attempt of the Framework, its first Pod is created
  once all of these hold. Absent: at once.

taskRoles[].dependsOn[].status: Ready: the Pod of each of its Tasks is ready, or the Task has completed. Complete: all
  of its Tasks have succeeded.

taskRoles[].disruptionBudget: A PodDisruptionBudget FRAMEWORK-TASKROLE for evictions, as by kubectl drain. A Task is
  available while its Pod is ready. May change at any time. Absent: no budget.

taskRoles[].volumeClaimTemplates: PersistentVolumeClaims of each Task, DATA-FRAMEWORK-TASKROLE-INDEX, mounted as the
  volume DATA ([claims](write-a-framework.md#volume-claims)). They stay over all retries. `apiVersion` and `kind` are
  optional. Immutable. Absent: none.

taskRoles[].volumeClaimTemplates[].metadata: `labels` and `annotations` of the claims, and:

taskRoles[].volumeClaimTemplates[].spec: As of a PersistentVolumeClaim.

taskRoles[].persistentVolumeClaimRetentionPolicy.whenDeleted: When the Framework is deleted, also by
  ttlSecondsAfterFinished. Retain (the default): a later Framework of the same name uses the claims again. Delete:
  they are deleted.

taskRoles[].persistentVolumeClaimRetentionPolicy.whenScaled: When a rescale has removed a Task. Retain (the default):
  its claims are used again if the Task comes back. Delete: they are deleted.

taskRoles[].frameworkAttemptCompletionPolicy: When completed Tasks of this TaskRole complete the attempt of the
  Framework. Without effect of such a policy, it succeeds once all Tasks of all TaskRoles have completed.

taskRoles[].task.retryPolicy.maxRetryCount: As of the Framework, for failures of the Task itself.

taskRoles[].task.retryPolicy.backoff: With the fields of `retryPolicy.backoff`. Absent: the controller's configuration
  decides.

taskRoles[].task.retryPolicy.resetOnProgress: As of the Framework.

taskRoles[].task.retryPolicy.avoidNodes.onCodes: The completion codes that count: `operator`, In or NotIn, and
  `values`, a list, not 0 with In, both required. Absent: all except permanent failures, -100 to -299 (though -260
  counts), -1003 and -1007 to -1012.

taskRoles[].task.podFailurePolicy: Rules for failures of the Pod. Without a match, retryPolicy decides. No rule
  applies to a Task that a rescale removes, or whose FrameworkAttempt already ends.

taskRoles[].task.podFailurePolicy.rules[].action: Count: retryPolicy decides. Ignore: retry the Task, uncounted.
  FailTask: do not retry the Task. RestartFramework: end the FrameworkAttempt; the Framework's retryPolicy decides.
  FailFramework: end it, without a retry.

taskRoles[].task.podFailurePolicy.rules[].onExitCodes: Matches if a container has ended with such an exit code, never
  0. `operator` and `values` as of avoidNodes.onCodes; `containerName`: absent for any, except sidecars.

taskRoles[].task.podFailurePolicy.rules[].onPodConditions: Matches if the Pod has any of these conditions: `type`
  (required), such as DisruptionTarget; `status`, `"True"` (the default), `"False"` or `Unknown`; `reason`, absent for
  any.

taskRoles[].task.podFailurePolicy.rules[].onCompletionCodes: Matches by the completion code. `operator` and `values`
  as of avoidNodes.onCodes.

taskRoles[].task.pod: The Pod of each Task, as a PodTemplateSpec, with any fields of Kubernetes, and
  [placeholders](write-a-framework.md#what-is-put-into-a-pod) in every string.

status.progress.metrics: Reported figures, 20 at most, each with `name` and `value`.

status.state: One of the [states](states.md).

status.firstFailure: The first failure of a container, or of a Task without one, in the last attempt in which Tasks
  failed ([rules](long-training.md#the-first-failure)). Absent without one. It has `frameworkAttemptID`,
  `taskRoleName`, `taskIndex`, `taskAttemptID`, `nodeName` and `containerName` (absent without one), `code`, `phrase`,
  and:

status.earliestFailures: The earliest failures of Tasks in the current attempt, at most 8, likely consequences last,
  with the fields of `firstFailure` (`certain`: false if the end was not seen, or the controller may have caused it). A
  Task that is retried leaves. Absent without any.

status.taskCounts: Tasks of the current attempt, without those that a rescale removes: `total`, `running`,
  `succeeded`, `failed` (without stopped ones), `stopped` (ended on request, or with their attempt).

status.conditions: [Below](#conditions), each with `type`, `status`, `reason`, `message`, `observedGeneration` and
  `lastTransitionTime`.

status.admission: The admission by Kueue: `queueName` of the LocalQueue, `workloadName`, `workloadUID`,
  `clusterQueue`. Absent without one.

status.admission.podSets: For each TaskRole, its `name`, the `count` of admitted Pods, those `reclaimed`, the `digest`
  of the template, and additions to its Pods: `nodeSelector`, `tolerations`, `labels`, `annotations`,
  `schedulingGates`.

status.attemptStatus.completionStatus.type: Its meaning for retries: `name`, Succeeded or Failed, and `attributes`,
  the known ones of Transient, Permanent and Conflict.

status.attemptStatus.completionStatus.policy: The rule of a podFailurePolicy that ended the attempt: its `action` and
  the position of the `rule`, from 0. Absent if another reason did.

status.attemptStatus.completionStatus.trigger: The Task whose completion completed the attempt: `taskRoleName` and
  `taskIndex`; `message`: the rule that took effect.

status.attemptStatus.taskRoleStatuses[].taskStatuses: The Tasks by index, [below](#one-of-taskstatuses).

suspend: True: no attempt starts, and the current one ends with -240, uncounted. False: the next attempt starts, in
  which completed Tasks run again. May change both ways at any time; a completed Framework stays completed. Absent:
  false.

retryPolicy.resetOnProgress: After an attempt with a new checkpoint, or progress.deadlineSeconds of running with
  progress, accountableRetriedCount and the back-off start again. Absent: false.

progress: The programs [report progress](long-training.md#report-progress): in Pods of the coordinator's role, without
  one in all. Counts from the next attempt on. Absent: they do not.

progress.deadlineSeconds: Time without a changed step, percentage or checkpoint after which the attempt fails with
  -252. At least twice intervalSeconds. Absent: no deadline.

checkpointGraceSeconds: Time for a [checkpoint before the end](long-training.md#a-checkpoint-before-the-end) of an
  attempt by suspension, eviction from the queue, a deadline or the disruption of a Pod. Absent: it ends at once.

network.enableDNSHostnames: True: there is a Service, and the hostname of a Pod is its name, unless the template sets
  hostname or subdomain. False: no Pod gets a host name.

network.publishNotReadyAddresses: True: the name of a Pod resolves as soon as it has an address. False: once it is
  ready.

network.services: Services FRAMEWORK-TASKROLE for the ready Pods of a role, from before the first Pod until the entry
  or the Framework is removed. May change at any time. Absent: none.

taskRoles[].taskNumber: Number of Tasks, with index 0 to taskNumber - 1. A change adds Tasks, or stops those with the
  highest indexes.

taskRoles[].updateStrategy.type: OnDelete (the default): Tasks get a changed template with their next attempt.
  RollingUpdate: their attempts end with -242, a few at a time, the highest index first; not possible with a gang.

taskRoles[].task.podGracefulDeletionTimeoutSec: For a deleted Pod that does not disappear, as on a lost node. Null:
  wait forever; a Task never runs twice. n: force-delete it n seconds after its deletion began, and continue; the old
  Pod may still run.

taskRoles[].task.podForceDeletionPolicy: Pods that podGracefulDeletionTimeoutSec force-deletes. Always (the default):
  all. NodeUnreachable: those whose Node is gone or has the taint node.kubernetes.io/unreachable or
  node.kubernetes.io/out-of-service.

status.progress: The progress that programs have reported, in the attempt `frameworkAttemptID`: `percentage`, `step`,
  `remainingSeconds`, estimated, `firstReportTime`, `lastReportTime`, `lastChangeTime` (of step, percentage or
  checkpoint), `lastCheckpointTime`, `lastCheckpointStep` (absent if unknown). Absent before the first report.

status.notice: The last notice of an end that was asked for, in the attempt `frameworkAttemptID`: `reason`
  (Suspension, Eviction, ActiveDeadline or Disruption), `time` and `deadline`, when the attempt ends without a
  checkpoint. Absent without one.

status.attemptStatus.taskRoleStatuses[].autoscaling: With autoscaling, the `taskNumber` that counts, the `scalerID`
  (an annotation) of the FrameworkRoleScaler, absent once autoscaling is off, and its `scalerGeneration`. Absent else.

status.attemptStatus.taskRoleStatuses[].podGracefulDeletionTimeoutSec: Of the spec, or the last one if the TaskRole
  has been removed.

status.attemptStatus.taskRoleStatuses[].podForceDeletionPolicy: Likewise. Absent for Always.
"""
"""Shorter meanings than the CRD's, by path, of the status after `status.`. Fields that one names in backquotes have no
row."""

OTHERWISE: Final = dict(" ".join(entry.split()).split(": ", 1) for entry in SHORTER.split("\n\n"))


def task_fields() -> dict[str, str]:
    """Meanings of the fields of a Task's status, by path."""
    rows = list(TASK.items())
    for prefix, record in ADDED_TO_TASK.items():
        end = 1 + max(number for number, (path, _) in enumerate(rows) if path.startswith(prefix))
        rows[end:end] = [(prefix + one.key, one.meaning) for one in ADDED[record]]
    return dict(rows) | AVOIDED_NODES


def described(text: str) -> str:
    """Format a description as a table cell."""
    return " ".join(text.split()).replace("|", "\\|")


def kind(schema: Mapping[str, Any]) -> str:
    """The type of a field, unless the fields below show it."""
    if schema.get("x-kubernetes-int-or-string"):
        return "integer or string"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if schema["type"] == "array":
        items = str(schema["items"]["type"])
        return "list" if items == "object" else f"list of {items}"
    return "" if schema["type"] == "object" or "pattern" in schema else str(schema["type"])


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
    return f"default {str(value).lower() if isinstance(value, bool) else value}"


def value(schema: Mapping[str, Any], *, is_required: bool) -> str:
    """Type, bounds and default of a field."""
    of_type = f"{kind(schema)} {bounds(schema)}".strip()
    if not of_type.startswith("integer or"):
        of_type = of_type.removeprefix("integer ")
    return ", ".join(filter(None, (of_type, "required" if is_required else default(schema))))


def rows(schema: Mapping[str, Any], path: str, *, of_spec: bool, is_new: bool = False) -> Iterator[str]:
    """A row of the table for each field within ``schema``."""
    for name, field in schema.get("properties", {}).items():
        where = f"{path}{name}"
        table = "" if of_spec else "status."
        above = OTHERWISE.get(table + path.removesuffix(".").removesuffix("[]"), "")
        if f"`{name}`" in above or "the fields of `" in above:
            continue
        below_new = is_new or (of_spec and name not in ORIGINAL)
        columns = [f"`{where}`{NEW if below_new and not is_new else ''}"]
        if of_spec:
            columns.append(value(field, is_required=name in schema.get("required", ())))
        meaning = OTHERWISE.get(table + where, field["description"])
        yield f"| {' | '.join([*columns, described(meaning)])} |"
        inner = field.get("items", field)
        yield from rows(inner, where + ("[]." if "items" in field else "."), of_spec=of_spec, is_new=below_new)


def reasons() -> Iterator[str]:
    """The table of reasons."""
    yield REASONS_HEAD.rstrip("\n")
    told = [one for one in sorted(REASONS) if one.event is not EventPolicy.NEVER]
    for reason in told:
        if not reason.endswith(tuple(FAMILIES)):
            only = " (only for failures)" if reason.event is EventPolicy.IF_WARNING else ""
            mark = STALLED if reason.event is EventPolicy.STALL else ""
            yield f"| `{reason}`{mark} | {reason.meaning}{only} |"
    for end, meaning in FAMILIES.items():
        yield f"| {', '.join(f'`{reason}`{STALLED}' for reason in told if reason.endswith(end))} | {meaning} |"
    yield ""
    yield fill("Only in the log: " + ", ".join(f"`{one}`" for one in sorted(REASONS) if one not in told) + ".", 120)


def page() -> Iterator[str]:
    """The lines of the page."""
    version = yaml.safe_load(CRD.read_text())["spec"]["versions"][0]
    root = version["schema"]["openAPIV3Schema"]["properties"]
    yield HEAD
    yield "| field | value | meaning |"
    yield "|---|---|---|"
    yield from rows(root["spec"], "", of_spec=True)
    yield STATUS
    yield "| field | meaning |"
    yield "|---|---|"
    yield from rows(root["status"], "", of_spec=False)
    yield TASKS.rstrip("\n")
    fields = task_fields()
    yield fill(", ".join(f"`{name}`" for name, meaning in fields.items() if not meaning) + ".", 120)
    yield ""
    yield "| field | meaning |"
    yield "|---|---|"
    yield from (f"| `{name}` | {meaning} |" for name, meaning in fields.items() if meaning)
    yield CONDITIONS.rstrip("\n")
    yield from (f"| {what} | {meaning} |" for what, meaning in CONDITION)
    yield ""
    yield from reasons()
    yield ""
    yield "## Columns of kubectl get"
    yield ""
    columns = version["additionalPrinterColumns"]
    plain, wide = (
        ", ".join(one["name"].upper() for one in columns if bool(one.get("priority")) is w) for w in (False, True)
    )
    yield fill(f"{plain}. With `-o wide`: {wide}.", 120)
    yield OBJECTS.rstrip("\n")
    for key, meaning, of_configmap in KEYS:
        marks = ("ˡ" * (key in LABELS)) + ("ᶜ" * of_configmap) + ("ᵛ" * (key in ONLY_VARIABLES))
        yield f"| `{key}`{marks} | {meaning} |"
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
