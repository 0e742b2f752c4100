"""Fields and values that people copy from a Job, a JobSet or another kind, and their counterparts in a Framework.

Source: docs/moving.md.
"""

from __future__ import annotations

from typing import Final

from frameworkcontroller.api import names

_TASK_RETRY: Final = "task.retryPolicy.maxRetryCount of a TaskRole, for each Task"
_NUMBER: Final = "taskNumber of a TaskRole"
_TEMPLATE: Final = "task.pod of a TaskRole"
_FAILED: Final = "minFailedTaskCount in frameworkAttemptCompletionPolicy of a TaskRole"
_SUCCEEDED: Final = "minSucceededTaskCount in frameworkAttemptCompletionPolicy of a TaskRole"

FIELDS: Final = {
    "backoffLimit": ("a Job", _TASK_RETRY),
    "backoffLimitPerIndex": ("a Job", _TASK_RETRY),
    "completionMode": ("a Job", "Tasks that always have an index, FC_TASK_INDEX"),
    "completions": ("a Job", _NUMBER),
    "failurePolicy": ("a JobSet", "spec.retryPolicy, and task.podFailurePolicy of a TaskRole"),
    "managedBy": ("a Job or JobSet", "no other controllers"),
    "maxFailedIndexes": ("a Job", f"{_FAILED}, one more"),
    "maxRetry": ("a Volcano Job", "retryPolicy.maxRetryCount, of the spec or of a TaskRole's task"),
    "minAvailable": (
        "a Volcano Job",
        "scheduling.schedulingPolicy.gang.minCount, for all TaskRoles that start together",
    ),
    "minSuccess": ("a Volcano Job", _SUCCEEDED),
    "parallelism": ("a Job", _NUMBER),
    "podReplacementPolicy": ("a Job", "Pods that are always replaced as by Failed: after the last one is gone"),
    "policies": ("a Volcano Job", "retryPolicy, task.podFailurePolicy and frameworkAttemptCompletionPolicy"),
    "queue": ("a Volcano Job", f"scheduling.queue for Volcano, and the label {names.QUEUE_NAME} for Kueue"),
    "replicas": ("a JobSet or Volcano Job", _NUMBER),
    "replicatedJobs": ("a JobSet", "taskRoles"),
    "runPolicy": ("a Kubeflow job", "its fields in the spec, and retryPolicy.maxRetryCount for backoffLimit"),
    "startupPolicy": ("a JobSet", "dependsOn of a TaskRole"),
    "successPolicy": ("a Job or JobSet", _SUCCEEDED),
    "tasks": ("a Volcano Job", "taskRoles"),
    "template": ("a Job", _TEMPLATE),
    "volumeClaimPolicies": ("a JobSet", "volumeClaimTemplates of a TaskRole, with a claim for each Task"),
}
"""Unknown fields of the spec, a TaskRole or its task: the kind that has them, and the Framework's counterpart."""

PLACES: Final = {
    "activeDeadlineSeconds": "of the spec; for one Pod, of its template's spec",
    "coordinator": "of the spec",
    "dependsOn": "of a TaskRole",
    "network": "of the spec",
    "podFailurePolicy": "of a TaskRole's task",
    "restartPolicy": "of the Pod template's spec; retryPolicy has the retries",
    "persistentVolumeClaimRetentionPolicy": "of a TaskRole",
    "scheduling": "of the spec",
    "suspend": "of the spec, for the whole Framework",
    "ttlSecondsAfterFinished": "of the spec",
    "volumeClaimTemplates": "of a TaskRole",
}
"""Fields that a Framework has in another place."""

ACTIONS: Final = {
    "FailIndex": ("a Job", "FailTask"),
    "FailJob": ("a Job", "FailFramework"),
    "FailJobSet": ("a JobSet", "FailFramework"),
    "RestartJob": ("a JobSet or Volcano Job", "Count for the Task, RestartFramework for the whole"),
    "RestartJobAndIgnoreMaxRestarts": ("a JobSet", "Ignore"),
    "RestartJobSet": ("a JobSet", "RestartFramework"),
    "RestartJobSetAndIgnoreMaxRestarts": ("a JobSet", "RestartFramework, with fancyRetryPolicy of the Framework"),
    "TerminateJob": ("a Volcano Job", "FailFramework"),
}
"""Actions of failure rules: the kind that has them, and the Framework's counterpart."""


def explain(field: str) -> str:
    """Explain an unknown field; "" if it is of no other kind or place."""
    if found := FIELDS.get(field):
        kind, ours = found
        return f"is a field of {kind}; a Framework has {ours}"
    return f"stands in another place: it is a field {PLACES[field]}" if field in PLACES else ""
