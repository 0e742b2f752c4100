"""Likely mistakes in a valid spec that have no other symptom. ``lint`` finds these and many more before.

Costs the size of the Pod templates, once a generation.
"""

from __future__ import annotations

import re
from typing import Final

from frameworkcontroller.api import hostlists, names
from frameworkcontroller.api.spec import FrameworkSpec, TaskRoleSpec

_LIKE_A_PLACEHOLDER: Final = re.compile(rb"\{\{(FC_[A-Za-z0-9_]{1,64})(?=[:}])")
_KNOWN: Final = frozenset(names.PLACEHOLDERS)
_OF_NETWORK: Final = frozenset((*names.NETWORK_PLACEHOLDERS, *hostlists.NAMES))


def mistake_in(spec: FrameworkSpec) -> str:
    """Return the first likely mistake as a sentence, "" for none."""
    known = _KNOWN | _OF_NETWORK if spec.has_network_placeholders else _KNOWN
    found = (_minimum(role) or _placeholder(role, known) for role in spec.task_roles)
    return next(filter(None, found), "")


def _minimum(role: TaskRoleSpec) -> str:
    policy = role.framework_attempt_completion_policy
    for field, minimum in (
        ("minSucceededTaskCount", policy.min_succeeded_task_count),
        ("minFailedTaskCount", policy.min_failed_task_count),
    ):
        if minimum > role.most_tasks > 0:
            return f"{field} {minimum} of TaskRole {role.name} can never be reached: it has {role.most_tasks} Tasks"
    return ""


def _placeholder(role: TaskRoleSpec, known: frozenset[str]) -> str:
    if b"{{FC_" not in role.task.pod.text:
        return ""
    for match in _LIKE_A_PLACEHOLDER.finditer(role.task.pod.text):
        if (word := match[1].decode()) not in known:
            why = ": it needs network or coordinator" if word in _OF_NETWORK else ", which is not a placeholder"
            return f"the Pod template of TaskRole {role.name} has {{{{{word}}}}}{why}"
    return ""
