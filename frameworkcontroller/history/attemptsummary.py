"""The part of the status of a Framework that summarizes its attempt: first failure, avoided nodes, last steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from frameworkcontroller.api.codec import StatusError, with_plain_roles
from frameworkcontroller.history.reads import MAX_AVOIDED_SHOWN

_MAX_TEXT: Final = 512
_MAX_STEP: Final = 1 << 53
_FAILURE: Final[Mapping[str, type]] = {
    "taskRoleName": str,
    "taskIndex": int,
    "taskAttemptID": int,
    "nodeName": str,
    "containerName": str,
    "code": int,
    "phrase": str,
    "time": str,
    "message": str,
    "certain": bool,
    "cascade": bool,
}


def attempt_summary(framework: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of `FrameworkAttempt` that the object of a Framework has. Invalid values count as absent."""
    status = _object(framework.get("status"))
    attempt = _object(status.get("attemptStatus"))
    failure, progress = (_of_attempt(status.get(key), attempt) for key in ("firstFailure", "progress"))
    avoided = list(dict.fromkeys(_avoided(_object(framework.get("spec")), attempt)))
    return {
        "firstFailure": _failure(failure) if failure else None,
        "avoidedNodes": avoided[:MAX_AVOIDED_SHOWN],
        "lastStep": _step(progress.get("step")),
        "checkpointStep": _step(progress.get("lastCheckpointStep")),
    }


def _of_attempt(value: Any, attempt: Mapping[str, Any]) -> Mapping[str, Any]:
    found = _object(value)
    return found if found.get("frameworkAttemptID") == attempt.get("id") else {}


def _failure(found: Mapping[str, Any]) -> dict[str, Any] | None:
    values = {key: found[key] for key, kind in _FAILURE.items() if type(found.get(key)) is kind}
    if not {"taskRoleName", "taskIndex"} <= values.keys():
        return None
    return {key: _text(value) if isinstance(value, str) else value for key, value in values.items()}


def _avoided(spec: Mapping[str, Any], attempt: Mapping[str, Any]) -> Iterator[str]:
    """Yield the nodes with enough failures, by Task."""
    after = {}
    for role in _objects(spec.get("taskRoles")):
        policy = _object(_object(role.get("task")).get("retryPolicy")).get("avoidNodes")
        if isinstance(policy, dict):
            after[role.get("name")] = _step(policy.get("after")) or 1
    if not after:
        return
    try:
        roles = with_plain_roles(attempt).get("taskRoleStatuses")
    except (StatusError, TypeError, ValueError):
        return
    for role in _objects(roles):
        if (least := after.get(role.get("name"))) is None:
            continue
        for task in _objects(role.get("taskStatuses")):
            for node in _objects(task.get("avoidedNodes")):
                name, failures = node.get("name"), _step(node.get("failures"))
                if isinstance(name, str) and failures is not None and failures >= least:
                    yield _text(name)


def _text(value: str) -> str:
    """A text of bounded size that JSON can have: no half of a surrogate pair."""
    return value[:_MAX_TEXT].encode(errors="replace").decode()


def _step(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < _MAX_STEP else None


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> Iterator[Mapping[str, Any]]:
    return (one for one in value if isinstance(one, dict)) if isinstance(value, list) else iter(())
