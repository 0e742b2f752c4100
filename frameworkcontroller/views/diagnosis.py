"""The phase of a Task, and why a Task or a Framework waits or has ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.codec import StatusError, decode_status
from frameworkcontroller.api.completion import CompletionStatus, Outcome
from frameworkcontroller.api.spec import ExecutionType, FrameworkSpec, RetryPolicy, SpecError, parse_spec
from frameworkcontroller.api.status import WAITS, Condition, FrameworkStatus, State, TaskStatus
from frameworkcontroller.machine.kernel.policy import RetryDecision, decide_retry, decide_task_retry
from frameworkcontroller.views.apiobjects import queue_label_of, queue_of
from frameworkcontroller.views.poddiagnosis import without_name
from frameworkcontroller.views.texts import clean_line, duration

NOT_SEEN: Final = "not seen by a controller yet"

BEFORE_RUNNING: Final = frozenset({State.CREATION_PENDING, State.CREATION_REQUESTED, State.PREPARING})
_DELETED_STATES: Final = frozenset({State.DELETION_REQUESTED, State.DELETING})
_REFUSED: Final = "Failed to create Pod: "


class Phase(Enum):
    """A summary of a state, its color, and its cell in bars; the most interesting one first."""

    FAILED = ("failed", "red", "x")
    WAITING = ("waiting", "yellow", "░")
    ENDING = ("ending", "magenta", "▒")
    RUNNING = ("running", "green", "▓")
    STOPPED = ("stopped", "dim", "-")
    SUCCEEDED = ("succeeded", "cyan", "█")

    def __init__(self, label: str, color: str, cell: str) -> None:
        self.label = label
        self.color = color
        self.cell = cell


_PHASES: Final = {Outcome(phase.label): phase for phase in (Phase.FAILED, Phase.STOPPED, Phase.SUCCEEDED)}


def phase_of(status: FrameworkStatus | TaskStatus) -> Phase:
    """Return the phase of a Task or a Framework. One that was stopped has not failed."""
    if status.state is State.COMPLETED:
        return phase_of_end(status.attempt.completion_status)
    return phase_before_end(status.state, status.retry.retry_delay_sec)


def phase_of_end(completion: CompletionStatus | None) -> Phase:
    """Return the phase of a completed Task or Framework. Without a completion status it counts as failed."""
    return Phase.FAILED if completion is None else _PHASES[completion.outcome]


def phase_before_end(state: State, retry_delay_sec: int | None) -> Phase:
    """Return the phase of a Task or Framework that has not completed; the delay is its next retry's."""
    if state is State.RUNNING:
        return Phase.RUNNING
    backs_off = state is State.ATTEMPT_COMPLETED and retry_delay_sec
    return Phase.WAITING if backs_off or state in BEFORE_RUNNING else Phase.ENDING


@dataclass(frozen=True, slots=True)
class FrameworkView:
    """A Framework to show. ``problem``: why it cannot be read; ``pods``: diagnoses of its Pods, by name.

    ``queue``: that of Kueue in which it is, "" for none. ``next_queue``: that of its label, "" for none. ``started``:
    the roles that have started, if they waited for others.
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


def wait_of(status: FrameworkStatus) -> str:
    """Return why nothing runs, as the condition Running says it; "" if it gives no reason."""
    running = next((one for one in status.conditions if one.type == "Running"), None)
    return "" if running is None else running.message.partition(WAITS)[2]


def diagnose_framework(view: FrameworkView, now: float) -> list[str]:
    """Return lines on the state of the Framework; none if it needs no explanation."""
    ended = view.status is None or (view.status.state is State.COMPLETED and not view.deleting)
    stall = None if view.status is None or ended else stalled(view.status)
    # An invalid spec is usually the reason why the Framework is stalled.
    is_told = stall is not None and stall.message == view.problem
    lines = [clean_line(view.problem)] if view.problem and not is_told else []
    if view.deleting:
        lines.append("is being deleted, and disappears with its last Pod")
    status = view.status
    if status is None:
        return lines
    if stall is not None:
        since = duration(now - stall.last_transition_time)
        lines.append(f"stalled for {since}: {stall.reason}: {clean_line(stall.message)}")
    if status.state is State.CREATION_PENDING and view.spec.execution_type is ExecutionType.CREATE:
        also = ", and to be resumed: suspend is true" if view.spec.suspend else ""
        lines.append(f"waits to be started: its executionType is Create{also}")
    elif (waits := wait_of(status)) and status.state is not State.ATTEMPT_COMPLETED:
        lines.append(f"waits: {clean_line(waits)}")
    lines += _quota(view, status)
    completion = status.attempt.completion_status
    if completion is None:
        return lines
    lines.append(end_sentence(completion))
    if status.state is State.ATTEMPT_COMPLETED:
        delay, end = status.retry.retry_delay_sec, status.attempt.completion_time
        left = 0.0 if delay is None or end is None else end + delay - now
        if left < 1 and (waits := wait_of(status)):
            lines.append(f"waits: {clean_line(waits)}")
        elif delay is None or end is None:
            lines.append("is about to be retried, or completed")
        else:
            lines.append(f"is retried in {duration(left)}" if left >= 1 else "is about to be retried")
    elif status.state is State.COMPLETED:
        retried = status.retry.accountable_retried_count
        lines += _no_retry(completion, decide_retry(view.spec.retry_policy, completion, retried, 0))
    elif status.state is not State.CREATION_PENDING:
        lines.append("waits until the Pods of this attempt are gone")
    return lines


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
        yield f"queue {queue}: {missing.reason}: {clean_line(missing.message)}"


def diagnose_task(view: FrameworkView, role: str, task: TaskStatus) -> str:
    """Return the reason for which the Task waits or failed, without the name of its Pod; "" if there is none."""
    completion, phase = task.attempt.completion_status, phase_of(task)
    pod = names.pod_name(view.name, role, task.index)
    pod_text = clean_line(without_name(pod, view.pods[pod])) if pod in view.pods else ""
    if phase is Phase.RUNNING or (phase is Phase.WAITING and completion is None):
        return pod_text or _awaited_roles(view, role, task)
    if phase is Phase.SUCCEEDED or completion is None:
        return ""
    if phase is Phase.STOPPED:
        return result(completion)
    # The cause keeps names of Pods: it is mostly the program's own text.
    text = "" if completion.succeeded else cause(completion)
    parts = [f"{result(completion)}{f': {text}' if text else ''}"]
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


def cause(completion: CompletionStatus) -> str:
    """Return the reason of an attempt's end: from its Pod, or else from the controller."""
    pod = completion.pod
    if pod is None:
        text = completion.diagnostics
        if text.startswith(_REFUSED):
            # The API server's answer to a refused Pod: the message in it is for people.
            with suppress(orjson.JSONDecodeError, KeyError, TypeError):
                text = f"{_REFUSED}{orjson.loads(text.removeprefix(_REFUSED))['ErrStatus']['message']}"
        return clean_line(text)
    parts = [": ".join(filter(None, (pod.reason, pod.message)))]
    for container in pod.containers:
        if container.code or container.message:
            end = f"signal {container.signal}" if container.signal else f"exit code {container.code}"
            texts = (f"container {container.name}", end, container.reason, container.message)
            parts.append(": ".join(filter(None, texts)))
    if not any(parts):
        # A container that never ran, or ran on, has code 0 too; only one that has ended has a reason.
        parts += [f"container {one.name} did not end by itself" for one in pod.containers if not one.reason]
    return clean_line("; ".join(filter(None, parts)) or completion.diagnostics)


def trigger(completion: CompletionStatus) -> str:
    """Return ", by TASK: POLICY" for the Task that met a completion policy; "" if none was met.

    If all Tasks have completed, the diagnostics have their counts, and the last Task does not matter.
    """
    found = completion.trigger
    if found is None or not found.task_role_name or found.message == completion.diagnostics:
        return ""
    return f", by {found.task_role_name}[{found.task_index}]: {found.message}"


def end_sentence(completion: CompletionStatus) -> str:
    """Return how an attempt of a Framework ended, and by which Task or for which cause."""
    return f"{result(completion)}{trigger(completion) or f': {cause(completion)}'}"


def _no_retry(completion: CompletionStatus, decision: RetryDecision) -> list[str]:
    return [] if completion.succeeded or decision.retry else [f"not retried: {decision.reason}"]
