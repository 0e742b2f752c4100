"""Records and archives for tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from frameworkcontroller.api.historyrecords import LogRecord
from frameworkcontroller.api.timestamps import format_time

EPOCH = 1_767_225_600
"""2026-01-01T00:00:00Z."""


def at(seconds: int) -> str:
    """The time of an object, ``seconds`` after the epoch of the tests."""
    return format_time(EPOCH + seconds)


def record_time(microseconds: int) -> str:
    """The time of a record, after the epoch of the tests."""
    seconds, rest = divmod(microseconds, 1_000_000)
    return f"{at(seconds)[:-1]}.{rest:06}Z"


def completion(code: int, **more: Any) -> dict[str, Any]:
    """A completionStatus."""
    kind: dict[str, Any] = {"name": "Succeeded" if code == 0 else "Failed", "attributes": []}
    return {"code": code, "phrase": f"Phrase{code}", "type": kind, "diagnostics": f"ended with {code}", **more}


def task_status(
    index: int,
    number: int = 0,
    *,
    code: int | None = 1,
    uid: str = "",
    node: str | None = "node-0",
    completed: int = 10,
    retries: int = 0,
    state: str = "",
) -> dict[str, Any]:
    """The status of a Task; ``code`` None: it runs."""
    return {
        "index": index,
        "instanceUID": uid or f"task-{index}",
        "startTime": at(0),
        "state": state or ("AttemptRunning" if code is None else "Completed"),
        "deletionPending": False,
        "retryPolicyStatus": {"totalRetriedCount": retries},
        "attemptStatus": {
            "id": number,
            "startTime": at(1),
            "runTime": at(2),
            "completionTime": None if code is None else at(completed),
            "podName": f"train-worker-{index}",
            "podUID": f"pod-{index}-{number}",
            "podNodeName": node,
            "podIP": "10.0.0.1",
            "podHostIP": "192.168.0.1",
            "completionStatus": None if code is None else completion(code),
        },
    }


def record(
    uid: str,
    attempt: int,
    trigger: str,
    body: Mapping[str, Any],
    *,
    time: int = 0,
    where: str = "default/train",
    more: Iterable[str | int] = (),
) -> bytes:
    """The line of a record. ``more``: the parts of its id after the attempt."""
    namespace, _, name = where.partition("/")
    return orjson.dumps(
        {
            "id": "/".join(map(str, (uid, attempt, *more))),
            "trigger": trigger,
            "time": record_time(time),
            "cluster": "cluster-1",
            "namespace": namespace,
            "name": name,
            "generation": 1,
            "controller": "1.0",
            "object": body,
        }
    )


def task_record(
    uid: str,
    index: int,
    number: int = 0,
    *,
    attempt: int = 0,
    role: str = "worker",
    time: int = 0,
    where: str = "default/train",
    trigger: str = "OnTaskRetry",
    padding: int = 0,
    status: dict[str, Any] | None = None,
    spec: Mapping[str, Any] | None = None,
    **more_status: Any,
) -> bytes:
    """The record of a Task, with this status or one with ``more_status``. ``padding``: characters in its spec."""
    found = task_status(index, number, **more_status) if status is None else status
    body = {
        "kind": "Task",
        "metadata": {"name": found["attemptStatus"]["podName"], "creationTimestamp": at(0)},
        "spec": {"padding": "x" * padding} if spec is None else spec,
        "status": found,
    }
    more = (role, found["instanceUID"], number)
    return record(uid, attempt, trigger, body, time=time, where=where, more=more)


def framework_record(
    uid: str,
    *,
    attempt: int = 0,
    time: int = 0,
    where: str = "default/train",
    trigger: str = "OnFrameworkCompletion",
    code: int | None = 0,
    state: str = "Completed",
    created: int = 0,
    completed: int | None = 20,
    roles: Mapping[str, list[dict[str, Any]]] | None = None,
    cause: tuple[str, int] | None = None,
    attempt_status: Mapping[str, Any] | None = None,
    first: tuple[str, int] | None = None,
    spec: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    more_status: Mapping[str, Any] | None = None,
) -> bytes:
    """The record of a Framework with the Tasks of ``roles``. ``cause``: role and index of the Task that ended it.

    ``first``: of the one that failed first.
    """
    ended = None
    if code is not None:
        ended = completion(code)
        if cause is not None:
            ended["trigger"] = {"message": "", "taskRoleName": cause[0], "taskIndex": cause[1]}
    namespace, _, name = where.partition("/")
    end = None if completed is None else at(completed)
    failure = first and {"frameworkAttemptID": attempt, "taskRoleName": first[0], "taskIndex": first[1]}
    body = {
        "kind": "Framework",
        "metadata": {
            "namespace": namespace,
            "name": name,
            "uid": uid,
            "creationTimestamp": at(created),
            **(metadata or {}),
        },
        "spec": spec or {"taskRoles": [{"name": role, "task": {"of": role}} for role in roles or ()]},
        "status": {
            "state": state,
            "startTime": at(created),
            "completionTime": end if state == "Completed" else None,
            **({"firstFailure": failure} if failure else {}),
            "attemptStatus": {
                "id": attempt,
                "startTime": at(created),
                "completionTime": end,
                "completionStatus": ended,
                "taskRoleStatuses": [{"name": role, "taskStatuses": some} for role, some in (roles or {}).items()],
                **(attempt_status or {}),
            },
            **(more_status or {}),
        },
    }
    return record(uid, attempt, trigger, body, time=time, where=where)


def pod_record(uid: str, index: int, number: int = 0, *, pod: str = "pod-1", time: int = 0, **more: Any) -> bytes:
    """The record of a Pod of a Task of the role worker."""
    body = {"kind": "Pod", "metadata": {"uid": pod}}
    parts = ("worker", f"task-{index}", number, pod)
    return record(uid, more.pop("attempt", 0), "OnPodDeletion", body, time=time, more=parts, **more)


def log_record(
    uid: str,
    index: int = 0,
    data: bytes = b"said\n",
    *,
    number: int = 0,
    role: str = "worker",
    pod: str = "",
    container: str = "main",
    run: int = 0,
    cut_start: bool = False,
    cut_end: bool = False,
    why: str = "",
    time: int = 0,
    attempt: int = 0,
    where: str = "default/train",
) -> bytes:
    """The record of the log of a container of a Task."""
    log = LogRecord(
        index=index,
        pod_name=f"{where.partition('/')[2]}-{role}-{index}",
        node="node-0",
        container=container,
        run=run,
        cut_start=cut_start,
        cut_end=cut_end,
        why=why,
    ).with_data(data)
    more = (role, f"task-{index}", number, pod or f"pod-{index}-{number}")
    return record(uid, attempt, "OnPodLog", log.encode(), time=time, where=where, more=more)
