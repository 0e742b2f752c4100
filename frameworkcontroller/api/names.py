"""Names of the wire contract: the API group, FC_ keys, object names and instance UIDs.

Source: docs/manual.md, "What is put into a Pod". Clients split Pod
names on ``-`` and select on the labels, so nothing here may change.
"""

from __future__ import annotations

import re

GROUP = "frameworkcontroller.microsoft.com"
VERSION = "v1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "Framework"
PLURAL = "frameworks"
CRD_NAME = f"{PLURAL}.{GROUP}"

NAME_PATTERN = r"^[a-z0-9]{1,63}$"
"""Pattern of Framework and TaskRole names: no dash, because ``-`` separates the parts of a Pod name."""

NAME_RULE = (
    "must be lower case letters and digits only, at most 63 of them (a dash separates the parts of a Pod's name)"
)
"""The pattern in words, for error messages."""

FOREGROUND_FINALIZER = "foregroundDeletion"
"""Kubernetes' own finalizer: its holder outlives its blocking dependents. It keeps attempts apart (C3, C4)."""

FRAMEWORK_NAMESPACE = "FC_FRAMEWORK_NAMESPACE"
FRAMEWORK_NAME = "FC_FRAMEWORK_NAME"
TASKROLE_NAME = "FC_TASKROLE_NAME"
TASK_INDEX = "FC_TASK_INDEX"
CONFIGMAP_NAME = "FC_CONFIGMAP_NAME"
POD_NAME = "FC_POD_NAME"
FRAMEWORK_UID = "FC_FRAMEWORK_UID"
FRAMEWORK_ATTEMPT_ID = "FC_FRAMEWORK_ATTEMPT_ID"
FRAMEWORK_ATTEMPT_INSTANCE_UID = "FC_FRAMEWORK_ATTEMPT_INSTANCE_UID"
CONFIGMAP_UID = "FC_CONFIGMAP_UID"
TASKROLE_UID = "FC_TASKROLE_UID"
TASK_UID = "FC_TASK_UID"
TASK_ATTEMPT_ID = "FC_TASK_ATTEMPT_ID"
POD_UID = "FC_POD_UID"
TASK_ATTEMPT_INSTANCE_UID = "FC_TASK_ATTEMPT_INSTANCE_UID"

POD_IDENTITY = (FRAMEWORK_UID, FRAMEWORK_ATTEMPT_INSTANCE_UID, TASKROLE_UID, TASK_UID, TASK_ATTEMPT_ID)
"""Annotations that together name one TaskAttempt: a controlled Pod with exactly these may be adopted."""

CONFIGMAP_IDENTITY = (FRAMEWORK_UID, FRAMEWORK_ATTEMPT_ID)
"""Annotations that together name one FrameworkAttempt."""

SNAPSHOT_MARK = "ObjectSnapshot: "
"""What collectors of log lines take the JSON of an object after (docs/manual.md, History)."""

_NAME = re.compile(NAME_PATTERN)


def is_valid_name(name: str) -> bool:
    """Whether ``name`` may name a Framework or a TaskRole."""
    return _NAME.fullmatch(name) is not None


def configmap_name(framework: str) -> str:
    """Name of the ConfigMap that stands for a Framework's current attempt."""
    return f"{framework}-attempt"


def framework_of(name: str) -> str:
    """Name of the Framework that a Pod or ConfigMap of that name belongs to, if it belongs to any."""
    return name.partition("-")[0]


def pod_name(framework: str, role: str, index: int) -> str:
    """Name of the Pod of Task ``index`` of ``role``; the same for all attempts, which is what C1 rests on."""
    return f"{framework}-{role}-{index}"


_MOST_DIGITS = 10


def split_pod_name(name: str) -> tuple[str, str, int] | None:
    """Framework, role and index that ``name`` stands for, or None if it is not the name of a Task's Pod."""
    parts = name.split("-")
    # The canonical decimal only: "f-r-01" must not be taken for Task 1. Thousands of digits, as what an Event is about
    # may have, are refused by int.
    if (
        len(parts) != 3
        or len(parts[2]) > _MOST_DIGITS
        or not parts[2].isascii()
        or not parts[2].isdigit()
        or str(int(parts[2])) != parts[2]
    ):
        return None
    return parts[0], parts[1], int(parts[2])


def attempt_instance_uid(attempt_id: int, object_uid: str) -> str:
    """Identity of one attempt: its id and the UID of the ConfigMap (Framework) or Pod (Task) that stands for it."""
    return f"{attempt_id}_{object_uid}"
