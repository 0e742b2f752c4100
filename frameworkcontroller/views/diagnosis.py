"""Why a Task or a Framework waits or has ended. The first line is ``status.message``, the policy's sentence follows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from frameworkcontroller.api import names
from frameworkcontroller.api.causes import cause, failure_sentence, task_sentence
from frameworkcontroller.api.codec import StatusError, decode_status
from frameworkcontroller.api.completion import CompletionStatus
from frameworkcontroller.api.phases import phase_of_task
from frameworkcontroller.api.spec import ExecutionType, FrameworkSpec, RetryPolicy, SpecError, parse_spec
from frameworkcontroller.api.status import WAITS, Condition, FrameworkStatus, Phase, State, TaskStatus
from frameworkcontroller.machine.kernel.policy import RetryDecision, decide_retry, decide_task_retry
from frameworkcontroller.views.apiobjects import queue_label_of, queue_of, task_numbers
from frameworkcontroller.views.texts import clean_line, duration

NOT_SEEN: Final = "not seen by a controller yet"

_TOLD: Final = 128
"""Characters of a sentence to look for in a message, which may lack its end."""

_DELETED_STATES: Final = frozenset({State.DELETION_REQUESTED, State.DELETING})


@dataclass(frozen=True, slots=True)
class FrameworkView:
    """A Framework to show. ``problem``: why it cannot be read; ``pods``: diagnoses of its Pods, by name.

    ``spec``: with the wanted numbers of Tasks. ``queue``: Kueue's in which it is, "" for none. ``next_queue``:
    its label's, "" for none. ``started``: the roles that have started, if they waited for others.
    """

    namespace: str
    name: str
    status: FrameworkStatus | None
    spec: FrameworkSpec
    deleting: bool
    problem: str
    pods: Mapping[str, str]
    queue: str = ""
    next_queue: str = ""
    started: frozenset[str] = frozenset()


def read_view(framework: Mapping[str, Any], pods: Mapping[str, str]) -> FrameworkView:
    """Read an API object. An unreadable part is a ``problem``, not an error."""
    metadata = framework["metadata"]
    status, spec, problem = None, FrameworkSpec(), ""
    try:
        status = decode_status(framework.get("status"))
    except StatusError as error:
        problem = str(error)
    try:
        spec = parse_spec(framework.get("spec"), framework=metadata["name"])
        if spec.autoscaled:
            spec = spec.with_task_numbers(task_numbers(framework))
    except SpecError as error:
        problem = str(error)
    deleting = bool(metadata.get("deletionTimestamp"))
    queues = queue_of(framework), queue_label_of(framework)
    started = frozenset(one.name for one in status.attempt.roles if one.started) if status else frozenset()
    return FrameworkView(
        metadata["namespace"], metadata["name"], status, spec, deleting, problem, pods, *queues, started
    )


def stalled(status: FrameworkStatus) -> Condition | None:
    """Return the condition Stalled, if it is True."""
    return next((one for one in status.conditions if one.type == "Stalled" and one.status == "True"), None)


def message_of(status: FrameworkStatus) -> str:
    """Return why the Framework has its phase; "" if there is nothing to explain.

    A status without a phase, by another controller or of an old archive, gets the message from its other fields.
    """
    if status.phase:
        return clean_line(status.message)
    completion = status.attempt.completion_status
    if completion is not None:
        return clean_line("" if completion.succeeded else _cause(status, completion))
    stall = stalled(status)
    return clean_line(wait_of(status) if stall is None else stall.message)


def wait_of(status: FrameworkStatus) -> str:
    """Return why nothing runs, as the condition Running says it; "" if it gives no reason."""
    running = next((one for one in status.conditions if one.type == "Running"), None)
    return "" if running is None else running.message.partition(WAITS)[2]


def _cause(status: FrameworkStatus, completion: CompletionStatus) -> str:
    by = completion.trigger
    for role in status.attempt.roles:
        for task in role.tasks:
            own = task.attempt.completion_status
            is_blamed = by is not None and (role.name, task.index) == (by.task_role_name, by.task_index)
            if is_blamed and own is not None and own.unexpected:
                return task_sentence(task)
    return cause(completion)


def diagnose_framework(view: FrameworkView, now: float) -> list[str]:
    """Return lines on the state of the Framework, the cause first; none if it needs no explanation."""
    status, message = view.status, "" if view.status is None else message_of(view.status)
    # An invalid spec is usually the reason why the Framework is stalled.
    lines = [message] if message else []
    if view.problem and view.problem not in message:
        lines.append(clean_line(view.problem))
    if view.deleting:
        lines.append("is being deleted, and disappears with its last Pod")
    if status is None:
        return lines
    is_over = status.state is State.COMPLETED
    stall = None if is_over and not view.deleting else stalled(status)
    if stall is not None:
        since = f"stalled for {duration(now - stall.last_transition_time)}: {stall.reason}"
        told = stall.message == message or clean_line(stall.message) == message
        lines.append(since if told else f"{since}: {clean_line(stall.message)}")
    is_created_only = status.state is State.CREATION_PENDING and view.spec.execution_type is ExecutionType.CREATE
    if is_created_only and "executionType" not in message:
        also = ", and to be resumed: suspend is true" if view.spec.suspend else ""
        lines.append(f"waits to be started: its executionType is Create{also}")
    lines += _quota(view, status)
    lines += first_failure(status, told=message)
    completion = status.attempt.completion_status
    if completion is None:
        return lines
    lines.append(end_sentence(completion, told=message))
    if status.state is State.ATTEMPT_COMPLETED:
        delay, end = status.retry.retry_delay_sec, status.attempt.completion_time
        left = 0.0 if delay is None or end is None else end + delay - now
        if left < 1 and (waits := wait_of(status)):
            lines.append(f"waits: {clean_line(waits)}")
        elif delay is None or end is None:
            lines.append("is about to be retried, or completed")
        else:
            lines.append(f"is retried in {duration(left)}" if left >= 1 else "is about to be retried")
    elif is_over:
        retried = status.retry.accountable_retried_count
        lines += _no_retry(completion, decide_retry(view.spec.retry_policy, completion, retried, 0))
    elif status.state is not State.CREATION_PENDING:
        lines.append("waits until the Pods of this attempt are gone")
    return lines


def first_failure(status: FrameworkStatus, *, told: str) -> Iterator[str]:
    """Yield the first failure, unless ``told`` has it, and why it may be another one."""
    first = status.first_failure
    if first is None or status.phase == Phase.SUCCEEDED:
        return
    sentence = clean_line(failure_sentence(first))
    is_current = first.framework_attempt_id == status.attempt.id
    if not is_current:
        yield f"attempt {first.framework_attempt_id} failed first in {sentence}"
    elif sentence[:_TOLD] not in told:
        yield f"first failure: {sentence}"
    if is_current and first.cascade:
        yield "this failure looks like a consequence of another one, which is not known"
    elif is_current and not first.certain:
        yield "another Task may have failed earlier: within 2 s, or unseen"


def _quota(view: FrameworkView, status: FrameworkStatus) -> Iterator[str]:
    """Yield the admission by a queue, or Kueue's reason why there is none."""
    found = {one.type: one for one in status.conditions}
    queue, reserved, admitted = view.queue, found.get("QuotaReserved"), found.get("Admitted")
    if not queue or reserved is None or admitted is None or status.state is State.COMPLETED:
        return
    if admitted.status == "True":
        yield f"queue {queue}: {clean_line(admitted.message)}"
        if status.admission is not None and view.next_queue != queue:
            yield f"{f'queue {view.next_queue}' if view.next_queue else 'no queue'} from the next FrameworkAttempt"
    else:
        missing = admitted if reserved.status == "True" else reserved
        text = clean_line(missing.message)
        told = not text or text in message_of(status)
        yield f"queue {queue}: {missing.reason}" if told else f"queue {queue}: {missing.reason}: {text}"


def diagnose_task(view: FrameworkView, role: str, task: TaskStatus) -> str:
    """Return the reason for which the Task waits or failed; "" if there is none."""
    completion, phase = task.attempt.completion_status, phase_of_task(task)
    pod = names.pod_name(view.name, role, task.index)
    pod_text = clean_line(view.pods.get(pod, ""))
    if phase is Phase.RUNNING or (phase is Phase.PENDING and completion is None):
        return pod_text or _awaited_roles(view, role, task)
    if phase is Phase.SUCCEEDED or completion is None:
        return ""
    if phase is Phase.STOPPED:
        return result(completion)
    text = "" if completion.succeeded else cause(completion)
    parts = [f"{text} ({result(completion)})" if text else result(completion)]
    if phase is Phase.FAILED:
        spec = view.spec.role(role)
        policy = RetryPolicy() if spec is None else spec.task.retry_policy
        parts += _no_retry(completion, decide_task_retry(policy, completion, task.retry.accountable_retried_count))
    elif task.state in _DELETED_STATES and pod_text:
        parts.append(f"its Pod {pod_text}")
    return "; ".join(parts)


def _awaited_roles(view: FrameworkView, role: str, task: TaskStatus) -> str:
    """Return the roles that the Task's role waits for; "" if its Pods may be created."""
    spec, status = view.spec.role(role), view.status
    if task.state is not State.CREATION_PENDING or spec is None or not spec.depends_on or status is None:
        return ""
    if role in view.started:
        return ""
    return f"waits until {' and '.join(f'{one.name} is {one.status}' for one in spec.depends_on)}"


def result(completion: CompletionStatus | None) -> str:
    """Return ``137 ContainerSigKillReceived``; "" without a completion."""
    return "" if completion is None else code_and_phrase(completion.code, completion.phrase)


def code_and_phrase(code: int, phrase: str) -> str:
    """Return ``137 ContainerSigKillReceived``."""
    return f"{code} {clean_line(phrase)}".rstrip()


def trigger(completion: CompletionStatus) -> str:
    """Return ", by TASK: POLICY" for the Task that met a completion policy; "" if none was met.

    If all Tasks have completed, the diagnostics have their counts, and the last Task does not matter.
    """
    found = completion.trigger
    if found is None or not found.task_role_name or found.message == completion.diagnostics:
        return ""
    return f", by {found.task_role_name}[{found.task_index}]: {clean_line(found.message)}"


def end_sentence(completion: CompletionStatus, *, told: str = "") -> str:
    """Return how an attempt of a Framework ended, and by which policy. ``told``: the message that is shown before."""
    if by := trigger(completion):
        return f"{result(completion)}{by}"
    text = cause(completion)
    return result(completion) if not text or text in told else f"{result(completion)}: {text}"


def _no_retry(completion: CompletionStatus, decision: RetryDecision) -> list[str]:
    return [] if completion.succeeded or decision.retry else [f"not retried: {decision.reason}"]
