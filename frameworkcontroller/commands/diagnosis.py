"""The reason for the state of a Framework or a Task: what it waits for, why it ended, why it is not retried."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.codec import StatusError, decode_status
from frameworkcontroller.api.completion import CompletionStatus
from frameworkcontroller.api.spec import ExecutionType, FrameworkSpec, RetryPolicy, SpecError, parse_spec
from frameworkcontroller.api.status import Condition, FrameworkStatus, State, TaskStatus
from frameworkcontroller.commands.output import clean_line, duration
from frameworkcontroller.commands.phases import Phase, phase_of
from frameworkcontroller.commands.poddiagnosis import without_name
from frameworkcontroller.machine.policy import decide_retry

NOT_SEEN: Final = "not seen by a controller yet"

_DELETED_STATES: Final = frozenset({State.DELETION_REQUESTED, State.DELETING})
_REFUSED: Final = "Failed to create Pod: "


@dataclass(frozen=True, slots=True)
class View:
    """A Framework to show. ``problem``: why it cannot be read; ``pods``: diagnoses of its Pods, by name."""

    namespace: str
    name: str
    status: FrameworkStatus | None
    spec: FrameworkSpec
    deleting: bool = False
    problem: str = ""
    pods: Mapping[str, str] = field(default_factory=dict)


def read_view(framework: Mapping[str, Any], pods: Mapping[str, str] | None = None) -> View:
    """Read an API object. An unreadable part is a ``problem``, not an error."""
    metadata = framework["metadata"]
    problem = ""
    status: FrameworkStatus | None = None
    try:
        status = decode_status(framework.get("status"))
    except StatusError as error:
        problem = str(error)
    try:
        spec = parse_spec(framework.get("spec"))
    except SpecError as error:
        spec, problem = FrameworkSpec(), str(error)
    return View(
        metadata["namespace"],
        metadata["name"],
        status,
        spec,
        bool(metadata.get("deletionTimestamp")),
        problem,
        pods or {},
    )


def stalled(status: FrameworkStatus) -> Condition | None:
    """Return the condition Stalled, if it is True."""
    return next((one for one in status.conditions if one.type == "Stalled" and one.status == "True"), None)


def diagnose_framework(view: View, now: float) -> list[str]:
    """Return lines on the state of the Framework; none if it needs no explanation."""
    lines = [clean_line(view.problem)] if view.problem else []
    if view.deleting:
        lines.append("is being deleted, and disappears with its last Pod")
    status = view.status
    if status is None:
        return lines
    stall = stalled(status)
    if stall is not None and status.state is not State.COMPLETED:
        since = duration(now - stall.last_transition_time)
        lines.append(f"stalled for {since}: {stall.reason}: {clean_line(stall.message)}")
    if status.state is State.CREATION_PENDING and view.spec.execution_type is ExecutionType.CREATE:
        lines.append("waits to be started: its executionType is Create")
    completion = status.attempt.completion_status
    if completion is None:
        return lines
    lines.append(f"{result(completion)}{trigger(completion) or f': {cause(completion)}'}")
    if status.state is State.ATTEMPT_COMPLETED:
        lines.append(_retry(status.retry.retry_delay_sec, status.attempt.completion_time, now))
    elif status.state is State.COMPLETED:
        lines += _no_retry(view.spec.retry_policy, completion, status.retry.accountable_retried_count)
    elif status.state is not State.CREATION_PENDING:
        lines.append("waits until the Pods of this attempt are gone")
    return lines


def diagnose_task(view: View, role: str, task: TaskStatus) -> str:
    """Return the reason for which the Task waits or failed, without the name of its Pod; "" if there is none."""
    completion = task.attempt.completion_status
    pod = names.pod_name(view.name, role, task.index)
    pod_text = view.pods.get(pod, "")
    match phase_of(task):
        case Phase.WAITING if completion is not None:
            return _end(completion)
        case Phase.WAITING | Phase.RUNNING:
            return clean_line(without_name(pod, pod_text))
        case Phase.FAILED if completion is not None:
            spec = view.spec.role(role)
            policy = RetryPolicy() if spec is None else spec.task.retry_policy
            return "; ".join([_end(completion), *_no_retry(policy, completion, task.retry.accountable_retried_count)])
        case Phase.ENDING if completion is not None:
            if task.state in _DELETED_STATES and pod_text:
                return f"{_end(completion)}; its Pod {clean_line(without_name(pod, pod_text))}"
            return _end(completion)
        case Phase.STOPPED if completion is not None:
            return result(completion)
    return ""


def result(completion: CompletionStatus | None) -> str:
    """Return ``137 ContainerSigKillReceived``; "" without a completion."""
    return "" if completion is None else code_and_phrase(completion.code, completion.phrase)


def code_and_phrase(code: int, phrase: str) -> str:
    """Return ``137 ContainerSigKillReceived``."""
    return f"{code} {clean_line(phrase)}".rstrip()


def cause(completion: CompletionStatus) -> str:
    """Return the reason of an attempt's end: from its Pod, or else from the controller."""
    pod = completion.pod
    if pod is None:
        return clean_line(_without_json(completion.diagnostics))
    parts = [": ".join(part for part in (pod.reason, pod.message) if part)]
    for container in pod.containers:
        if container.code or container.message:
            text = ": ".join(part for part in (container.reason, container.message) if part)
            end = f"signal {container.signal}" if container.signal else f"exit code {container.code}"
            parts.append(f"container {container.name}: {end}{f': {text}' if text else ''}")
    if not any(parts) and pod.containers:
        # A container that never ran, or ran on, has code 0 too; only one that has ended has a reason.
        parts += [f"container {one.name} did not end by itself" for one in pod.containers if not one.reason]
    return clean_line("; ".join(part for part in parts if part) or completion.diagnostics)


def trigger(completion: CompletionStatus) -> str:
    """Return ", by TASK: POLICY" for the Task that met a completion policy; "" if none was met.

    If all Tasks have completed, the diagnostics have their counts, and the last Task does not matter.
    """
    found = completion.trigger
    if found is None or not found.task_role_name or found.message == completion.diagnostics:
        return ""
    return f", by {found.task_role_name}[{found.task_index}]: {found.message}"


def _without_json(diagnostics: str) -> str:
    """Replace the API server's answer to a refused Pod by the message in it."""
    if not diagnostics.startswith(_REFUSED):
        return diagnostics
    try:
        return f"{_REFUSED}{orjson.loads(diagnostics.removeprefix(_REFUSED))['ErrStatus']['message']}"
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return diagnostics


def _no_retry(policy: RetryPolicy, completion: CompletionStatus, accountable: int) -> list[str]:
    decision = decide_retry(policy, completion, accountable, 0)
    return [] if completion.succeeded or decision.retry else [f"not retried: {decision.reason}"]


def _retry(delay: int | None, since: int | None, now: float) -> str:
    if delay is None or since is None:
        return "is about to be retried, or completed"
    left = since + delay - now
    return f"is retried in {duration(left)}" if left >= 1 else "is about to be retried"


def _end(completion: CompletionStatus) -> str:
    # The cause keeps names of Pods: it is mostly the program's own text.
    text = "" if completion.succeeded else cause(completion)
    return f"{result(completion)}{f': {text}' if text else ''}"
