"""Why a Framework or a Task is where it is: what it waits for, why it ended, why it is not tried again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from frameworkcontroller.api.codec import StatusError, decode_status
from frameworkcontroller.api.completion import CompletionStatus
from frameworkcontroller.api.spec import ExecutionType, FrameworkSpec, RetryPolicy, SpecError, parse_spec
from frameworkcontroller.api.status import Condition, FrameworkStatus, State, TaskStatus
from frameworkcontroller.commands.humanize import by_policy, code_and_phrase, duration, tame, why
from frameworkcontroller.commands.phases import Standing, standing
from frameworkcontroller.commands.poddiagnosis import without_name
from frameworkcontroller.machine.policy import decide_retry

NOT_SEEN: Final = "not seen by a controller yet"

_GOES_AWAY: Final = frozenset({State.DELETION_REQUESTED, State.DELETING})


@dataclass(frozen=True, slots=True)
class View:
    """A Framework as it was read. ``pod_words``: what its Pods say they wait for, by name of the Pod."""

    namespace: str
    name: str
    status: FrameworkStatus | None
    spec: FrameworkSpec
    deleting: bool = False
    problem: str = ""
    pod_words: Mapping[str, str] = field(default_factory=dict)


def read_view(framework: Mapping[str, Any], pod_words: Mapping[str, str] | None = None) -> View:
    """What there is to see of an API object. What cannot be read is a ``problem``, never an error."""
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
        pod_words or {},
    )


def stalled(status: FrameworkStatus) -> Condition | None:
    """The condition that says what only a person or another component can change, if it holds."""
    return next((one for one in status.conditions if one.type == "Stalled" and one.status == "True"), None)


def about_framework(view: View, now: float) -> list[str]:
    """What a person should know of the Framework itself, a line each; nothing while all goes its way."""
    said = [tame(view.problem)] if view.problem else []
    if view.deleting:
        said.append("is being deleted, and gone once its Pods are")
    status = view.status
    if status is None:
        return said
    stall = stalled(status)
    if stall is not None and status.state is not State.COMPLETED:
        said.append(f"stalled for {duration(now - stall.last_transition_time)}: {stall.reason}: {tame(stall.message)}")
    if status.state is State.CREATION_PENDING and view.spec.execution_type is ExecutionType.CREATE:
        said.append("waits to be started: its executionType is Create")
    completion = status.attempt.completion_status
    if completion is None:
        return said
    said += _why_attempt_ended(completion)
    if status.state is State.ATTEMPT_COMPLETED:
        said.append(_retry_in(status.retry.retry_delay_sec, status.attempt.completion_time, now))
    elif status.state is State.COMPLETED:
        said += _why_not_retried(view.spec.retry_policy, completion, status.retry.accountable_retried_count)
    elif status.state is not State.CREATION_PENDING:
        said.append("waits until the Pods of this attempt are gone")
    return said


def about_task(view: View, role: str, task: TaskStatus, pod: str) -> str:
    """Why the Task waits or failed; empty while all goes its way. Does not name the Pod, so that equals are equal."""
    completion = task.attempt.completion_status
    words = view.pod_words.get(pod, "")
    match standing(task):
        case Standing.WAITING if completion is not None:
            return _ended_by(completion)
        case Standing.WAITING | Standing.RUNNING:
            return tame(without_name(pod, words))
        case Standing.FAILED if completion is not None:
            spec = view.spec.role(role)
            policy = RetryPolicy() if spec is None else spec.task.retry_policy
            retry = _why_not_retried(policy, completion, task.retry.accountable_retried_count)
            return "; ".join([_ended_by(completion), *retry])
        case Standing.ENDING if completion is not None:
            if task.state in _GOES_AWAY and words:
                return f"{_ended_by(completion)}; its Pod {tame(without_name(pod, words))}"
            return _ended_by(completion)
        case Standing.STOPPED if completion is not None:
            return code_and_phrase(completion)
    return ""


def _why_attempt_ended(completion: CompletionStatus) -> list[str]:
    return [f"{code_and_phrase(completion)}{by_policy(completion) or f': {why(completion)}'}"]


def _why_not_retried(policy: RetryPolicy, completion: CompletionStatus, accountable: int) -> list[str]:
    decision = decide_retry(policy, completion, accountable, 0)
    return [] if completion.succeeded or decision.retry else [f"not retried: {decision.reason}"]


def _retry_in(delay: int | None, since: int | None, now: float) -> str:
    if delay is None or since is None:
        return "is about to be retried, or completed"
    left = since + delay - now
    return f"is retried in {duration(left)}" if left >= 1 else "is about to be retried"


def _ended_by(completion: CompletionStatus) -> str:
    if completion.succeeded:
        return code_and_phrase(completion)
    # As it was said, names included: these are mostly the program's own words.
    said = why(completion)
    return f"{code_and_phrase(completion)}{f': {said}' if said else ''}"
