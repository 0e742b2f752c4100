"""The page of one Task: its attempts, its Pod as it is now, and the Events of that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from frameworkcontroller.api import names
from frameworkcontroller.api.codec import decode_task
from frameworkcontroller.api.completion import CompletionStatus, PodCompletion
from frameworkcontroller.api.problems import ProblemError
from frameworkcontroller.api.status import State, TaskStatus
from frameworkcontroller.dashboard.frameworkpage import (
    FrameworkSource,
    Json,
    archived_task,
    head_of,
)
from frameworkcontroller.dashboard.kubectl import task_commands
from frameworkcontroller.dashboard.rows import framework_href, tasks_href
from frameworkcontroller.dashboard.views import ContainerView, PodView, Shell, TaskAttemptView, TaskPage
from frameworkcontroller.views.diagnosis import (
    FrameworkView as View,
)
from frameworkcontroller.views.diagnosis import (
    Phase,
    cause,
    diagnose_task,
    phase_of,
    phase_of_end,
    result,
)
from frameworkcontroller.views.kubeevents import KubeEvent as Event
from frameworkcontroller.views.poddiagnosis import diagnose_pod
from frameworkcontroller.views.texts import clean_line, printable

_MAX_MESSAGE: Final = 4096
"""A kubelet cuts the message of a container at this length."""


@dataclass(frozen=True, slots=True)
class TaskSource:
    """What is known of a Task beside its Framework.

    ``archived``: its attempts in the archive, each with the number of the Framework's attempt and, if it was read, the
    object. ``pod``: its Pod as it is now.
    """

    role: str
    index: int
    archived: Sequence[tuple[int, Json, Json | None]] = ()
    pod: Json | None = None
    pods_problem: str = ""
    events: Sequence[Event] = ()
    events_problem: str = ""


def find_task(view: View, role: str, index: int) -> TaskStatus | None:
    """Return the status of a Task; None if the status of the Framework has none."""
    for one in view.status.attempt.roles if view.status else ():
        if one.name == role and 0 <= index < len(one.tasks):
            return one.tasks[index]
    return None


def task_page(shell: Shell, framework: FrameworkSource, source: TaskSource) -> TaskPage | None:
    """Return the page; None if neither the status nor the archive knows the Task."""
    view = framework.view()
    task = find_task(view, source.role, source.index)
    if task is None and not source.archived:
        return None
    metadata = framework.body["metadata"]
    prefix = tasks_href(view.namespace, view.name, metadata["uid"], source.role)
    attempts = tuple(_attempts(view, task, framework, source))
    newest = attempts[0] if attempts else None
    last = max((one.index for role in _tasks(view, source.role) for one in role), default=-1)
    known = {one.attempt for one in attempts if newest and one.framework_attempt == newest.framework_attempt}
    pod = _pod(source.pod, shell.now)
    return TaskPage(
        shell=shell,
        head=head_of(framework),
        role=source.role,
        index=source.index,
        phase=phase_of(task).label if task else newest.phase if newest else Phase.ENDING.label,
        state=task.state if task else newest.state if newest else "",
        sentence=diagnose_task(view, source.role, task) if task else newest.text if newest else "",
        retries=task.retry.total_retried_count if task else 0,
        attempts=attempts,
        missing=max(0, task.attempt.id + 1 - len(known)) if task else 0,
        pod=pod,
        pods_problem=source.pods_problem,
        events=source.events,
        events_problem=source.events_problem,
        commands=task_commands(
            view.namespace,
            view.name,
            source.role,
            source.index,
            pod.name if pod else "",
            live=framework.live,
            past=shell.past,
        ),
        previous=f"{prefix}{source.index - 1}" if 0 < source.index <= last + 1 else "",
        next=f"{prefix}{source.index + 1}" if source.index < last else "",
    )


def _tasks(view: View, role: str) -> Iterator[Sequence[TaskStatus]]:
    for one in view.status.attempt.roles if view.status else ():
        if one.name == role:
            yield one.tasks


def _attempts(
    view: View, task: TaskStatus | None, framework: FrameworkSource, source: TaskSource
) -> Iterator[TaskAttemptView]:
    """Yield the attempts, the newest first."""
    namespace, name, uid = view.namespace, view.name, framework.body["metadata"]["uid"]
    pod = names.pod_name(name, source.role, source.index)
    shown: set[tuple[str, int]] = set()
    if task is not None and view.status is not None:
        number = view.status.attempt.id
        made = _attempt(task, number, pod, framework_href(namespace, name, uid))
        yield replace(made, current=True, text=diagnose_task(view, source.role, task) or made.text)
        shown.add((task.instance_uid, task.attempt.id))
    for number, item, body in sorted(source.archived, key=lambda one: (one[0], one[1]["attempt"]), reverse=True):
        archived = _decoded(body) or archived_task(item)
        if archived is None or (archived.instance_uid, archived.attempt.id) in shown:
            continue
        shown.add((archived.instance_uid, archived.attempt.id))
        made = _attempt(archived, number, item.get("pod") or pod, framework_href(namespace, name, uid, number))
        yield replace(made, trigger=item.get("trigger") or "")


def _decoded(body: Json | None) -> TaskStatus | None:
    try:
        return None if body is None else decode_task(body["status"])
    except (ProblemError, KeyError, TypeError):
        return None


def _attempt(task: TaskStatus, number: int, pod: str, href: str) -> TaskAttemptView:
    attempt, completion = task.attempt, task.attempt.completion_status
    phase = phase_of(task)
    if completion is not None and task.state in (State.ATTEMPT_COMPLETED, State.COMPLETED):
        phase = phase_of_end(completion)
    return TaskAttemptView(
        attempt=attempt.id,
        framework_attempt=number,
        current=False,
        phase=phase.label,
        state=task.state,
        result=result(completion),
        type=completion.category if completion and completion.attributes is not None else "",
        text=clean_line(cause(completion), 2000) if completion and completion.failed else "",
        diagnostics=clean_line(completion.diagnostics, _MAX_MESSAGE) if completion else "",
        pod=pod,
        pod_uid=attempt.pod_uid or "",
        node=clean_line(attempt.pod_node_name or ""),
        pod_ip=clean_line(attempt.pod_ip or ""),
        host_ip=clean_line(attempt.pod_host_ip or ""),
        started=attempt.start_time,
        ran=attempt.run_time,
        ended=attempt.completion_time,
        containers=_ended_containers(completion),
        href=href,
    )


def _ended_containers(completion: CompletionStatus | None) -> tuple[ContainerView, ...]:
    pod = PodCompletion() if completion is None or completion.pod is None else completion.pod
    return tuple(
        # A container without a reason ran on: its code is 0, too.
        ContainerView(
            name=one.name,
            state="ended" if one.reason or one.code or one.signal else "",
            code=one.code if one.reason or one.code or one.signal else None,
            signal=one.signal or None,
            reason=clean_line(one.reason),
            message=printable(one.message)[:_MAX_MESSAGE],
        )
        for one in pod.containers
    )


def _pod(body: Json | None, now: float) -> PodView | None:
    if body is None:
        return None
    metadata, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
    containers = tuple(
        _container(one)
        for listed in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
        for one in status.get(listed) or ()
    )
    return PodView(
        name=metadata["name"],
        uid=metadata["uid"],
        phase=status.get("phase") or "Pending",
        node=spec.get("nodeName") or "",
        text=clean_line(diagnose_pod(body, now)[0], 1000),
        containers=containers,
    )


def _container(status: Mapping[str, Any]) -> ContainerView:
    state = status.get("state") or {}
    end = state.get("terminated") or {}
    about = end or state.get("waiting") or {}
    return ContainerView(
        name=status["name"],
        state="ended" if end else "running" if "running" in state else "waiting" if state else "",
        code=end.get("exitCode") if end else None,
        signal=end.get("signal") or None,
        reason=clean_line(about.get("reason") or ""),
        message=printable(about.get("message") or "")[:_MAX_MESSAGE],
        restarts=status.get("restartCount"),
    )
