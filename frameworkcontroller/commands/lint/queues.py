"""Checks of a Framework's labels for Kueue, and of annotations of its Pod templates.

Source: docs/shared-clusters.md, "Queues"; for values, the API ``kueue.x-k8s.io/v1beta2``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from frameworkcontroller.api import names
from frameworkcontroller.commands.lint.findings import Finding, Role, error, mapping, warning
from frameworkcontroller.machine.parts.kueue.workloadspec import MAX_POD_SETS

_LABELS: Final = (names.QUEUE_NAME, names.PRIORITY_CLASS, names.MAX_EXEC_TIME_SECONDS)
_OBJECT_NAME: Final = re.compile(names.SUBDOMAIN_PATTERN)
_SECONDS: Final = re.compile(r"[1-9][0-9]{0,8}")
_LONGEST_VALUE: Final = 63
"""Of a label, and of the topology level in a Workload."""

_TOPOLOGY_FIELDS: Final = (*names.KUEUE_TOPOLOGY_ANNOTATIONS, "kueue.x-k8s.io/podset-slice-required-topology")


def check_queue(framework: Mapping[Any, Any], roles: Sequence[Role]) -> Iterator[Finding]:
    """Check labels and annotations of Kueue. Malformed ones are reported elsewhere."""
    labels, spec = mapping(framework, "metadata", "labels"), mapping(framework, "spec")
    for field in _LABELS:
        if field in mapping(framework, "metadata", "annotations"):
            yield warning(("metadata", "annotations", field), "has no effect as an annotation: it is a label")
    is_queued = bool(labels.get(names.QUEUE_NAME))
    for field in _LABELS:
        if field in labels and isinstance(value := labels[field] or "", str):
            yield from _label(field, value, is_queued=is_queued)
    if is_queued:
        if len(roles) > MAX_POD_SETS:
            text = f"are {len(roles)}: a Workload of Kueue has at most {MAX_POD_SETS} podSets, one for each role"
            yield error(
                ("spec", "taskRoles"), f"{text}, so the Framework will not start (Stalled, TooManyRolesForQueue)"
            )
        with_tasks = [role for role in roles if role.body.get("taskNumber", 1) != 0]
        if spec.get("suspend") is True:
            text = "with a queue: Kueue does not resume a Framework, which enters the queue once suspend is false"
            yield warning(("spec", "suspend"), text, value=True)
        elif len(with_tasks) > 1 and not any(role.body.get("dependsOn") for role in roles):
            text = "Tasks that had completed run again after an eviction, in all TaskRoles at once: dependsOn keeps"
            yield warning(("metadata", "labels", names.QUEUE_NAME), f"{text} their order")
        for role in roles:
            if role.body.get("autoscaling"):
                text = "with a queue: Tasks beyond the admitted number wait until others end or the next attempt starts"
                yield warning((*role.path, "autoscaling"), text)
    for role in roles:
        yield from _template(role, is_queued=is_queued)


def _label(field: str, value: str, *, is_queued: bool) -> Iterator[Finding]:
    path = ("metadata", "labels", field)
    if field == names.MAX_EXEC_TIME_SECONDS:
        if not _SECONDS.fullmatch(value):
            yield error(path, "must be a number of seconds, from 1 to 999999999", value=value)
    elif not value and field == names.QUEUE_NAME:
        yield warning(path, "is empty, and means no queue: the Framework starts at once", value=value)
    elif value and (not _OBJECT_NAME.fullmatch(value) or len(value) > _LONGEST_VALUE):
        kind = "LocalQueue" if field == names.QUEUE_NAME else "WorkloadPriorityClass"
        rule = f"at most {_LONGEST_VALUE} lower case letters, digits, dashes and dots, none of these two at an end"
        yield error(path, f"must be the name of a {kind}: {rule}", value=value)
    if field != names.QUEUE_NAME and not is_queued:
        yield warning(path, f"has no effect without the label {names.QUEUE_NAME}", value=value)


def _template(role: Role, *, is_queued: bool) -> Iterator[Finding]:
    path = (*role.pod_path, "metadata")
    for field in _LABELS:
        if value := mapping(role.pod, "metadata", "labels").get(field):
            text = "belongs on the Framework: as a label of Pods, it lets Kueue queue each Pod by itself"
            yield warning((*path, "labels", field), text, value=value)
    chosen: list[str] = []
    for field, value in mapping(role.pod, "metadata", "annotations").items():
        if field not in _TOPOLOGY_FIELDS:
            continue
        place = (*path, "annotations", field)
        if not is_queued:
            yield warning(place, f"has no effect without the label {names.QUEUE_NAME} of the Framework", value=value)
        if isinstance(value, str) and len(value) > _LONGEST_VALUE:
            yield error(place, f"must be at most {_LONGEST_VALUE} characters, as in a Workload of Kueue", value=value)
        if field in names.KUEUE_TOPOLOGY_ANNOTATIONS:
            chosen.append(field)
            if len(chosen) > 1:
                yield warning(place, f"is set with {chosen[0]}: Kueue takes only one of them", value=value)
