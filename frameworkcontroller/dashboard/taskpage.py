"""The page of one Task: its attempts, its Pod as it is now, and the Pod's Events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

from frameworkcontroller.api import names
from frameworkcontroller.api.causes import cause
from frameworkcontroller.api.codec import decode_task
from frameworkcontroller.api.completion import PodCompletion
from frameworkcontroller.api.phases import end_phase, phase_of_task
from frameworkcontroller.api.problems import ProblemError
from frameworkcontroller.api.status import Phase, State, TaskStatus
from frameworkcontroller.dashboard.frameworkpage import FrameworkSource, Json, archived_task, head_of
from frameworkcontroller.dashboard.kubectl import task_commands
from frameworkcontroller.dashboard.live import PodsAndEvents
from frameworkcontroller.dashboard.logpage import LogLink
from frameworkcontroller.dashboard.rows import framework_href, tasks_href
from frameworkcontroller.dashboard.views import Shell
from frameworkcontroller.views.containerlogs import ArchivedLog
from frameworkcontroller.views.diagnosis import FrameworkView as View
from frameworkcontroller.views.diagnosis import diagnose_task
from frameworkcontroller.views.poddiagnosis import diagnose_pod
from frameworkcontroller.views.texts import clean_line, printable

_MAX_MESSAGE: Final = 4096
"""A kubelet cuts the message of a container at this length."""


@dataclass(frozen=True, slots=True)
class TaskSource:
    """The data of a Task that its Framework does not have.

    ``archived``: its attempts in the archive, each with the number of the Framework's attempt and, if it was read, the
    object. ``logs``: the entries of its logs there; ``logs_problem``: why they cannot be read.
    """

    role: str
    index: int
    archived: Sequence[tuple[int, Json, Json | None]] = ()
    more: PodsAndEvents = field(default_factory=PodsAndEvents)
    logs: Sequence[Json] = ()
    logs_problem: str = ""


@dataclass(frozen=True, slots=True)
class ContainerView:
    """A container of a Pod. ``state``: waiting, running, ended, or "" if not known.

    ``message``: its own words, of several lines. ``restarts``: None if not known.
    """

    name: str
    state: str
    code: int | None
    signal: int | None
    reason: str
    message: str
    restarts: int | None = None


@dataclass(frozen=True, slots=True)
class TaskAttemptView:
    """An attempt of a Task. ``pod``: the name of its Pod. ``href``: the Framework's page with its attempt.

    ``text``: why it ended, or the reason of its wait. ``trigger``: the event that archived it ("OnTaskRetry"), "" for
    one from the status. ``logs``: its archived logs.
    """

    task: TaskStatus
    framework_attempt: int
    pod: str
    href: str
    text: str
    trigger: str = ""
    logs: Sequence[LogLink] = ()

    @property
    def phase(self) -> str:
        completion = self.task.attempt.completion_status
        if completion is not None and self.task.state in (State.ATTEMPT_COMPLETED, State.COMPLETED):
            return end_phase(completion).lower()
        return phase_of_task(self.task).lower()

    @property
    def type(self) -> str:
        """The category of the completion, if it is known."""
        completion = self.task.attempt.completion_status
        return completion.category if completion and completion.attributes is not None else ""

    @property
    def diagnostics(self) -> str:
        completion = self.task.attempt.completion_status
        return clean_line(completion.diagnostics, _MAX_MESSAGE) if completion else ""

    @property
    def containers(self) -> list[ContainerView]:
        completion = self.task.attempt.completion_status
        pod = completion.pod if completion is not None and completion.pod is not None else PodCompletion()
        # A container without a reason ran on: its code is 0, too.
        return [
            ContainerView(
                name=one.name,
                state="ended" if one.reason or one.code or one.signal else "",
                code=one.code if one.reason or one.code or one.signal else None,
                signal=one.signal or None,
                reason=clean_line(one.reason),
                message=printable(one.message)[:_MAX_MESSAGE],
            )
            for one in pod.containers
        ]


def find_task(view: View, role: str, index: int) -> TaskStatus | None:
    """Return the status of a Task; None if the status of the Framework has none."""
    tasks = _tasks_of(view, role)
    return tasks[index] if 0 <= index < len(tasks) else None


def _tasks_of(view: View, role: str) -> Sequence[TaskStatus]:
    roles = view.status.attempt.roles if view.status else ()
    return next((one.tasks for one in roles if one.name == role), ())


class TaskPage:
    """A Task over all known attempts, the newest first.

    ``is_known``: the status or the archive has it. ``missing``: the number of earlier attempts that both lack.
    ``avoided``: nodes on which it failed, the last one first. ``pod_text``: why the Pod does not run, end or disappear;
    "" without a reason. ``previous``, ``next``: its neighbors in the role.
    """

    template: ClassVar[str] = "task.html"

    def __init__(self, shell: Shell, framework: FrameworkSource, source: TaskSource) -> None:
        view, role, index = framework.view(), source.role, source.index
        task = find_task(view, role, index)
        self.shell = shell
        self.is_known = task is not None or bool(source.archived)
        self.head = head_of(framework)
        self.role, self.index, self.more = role, index, source.more
        self.attempts = [
            _with_logs(one, source.logs, view, framework) for one in _attempts(view, task, framework, source)
        ]
        self.logs_problem = source.logs_problem
        newest = self.attempts[0] if self.attempts else None
        known = {
            one.task.attempt.id for one in self.attempts if newest and one.framework_attempt == newest.framework_attempt
        }
        self.phase = phase_of_task(task).lower() if task else newest.phase if newest else Phase.ENDING.lower()
        self.state = task.state if task else newest.task.state if newest else ""
        self.sentence = diagnose_task(view, role, task) if task else newest.text if newest else ""
        self.retries = task.retry.total_retried_count if task else 0
        self.missing = max(0, task.attempt.id + 1 - len(known)) if task else 0
        self.avoided = [clean_line(one.name) for one in reversed(task.avoided_nodes)] if task else []
        pod = source.more.pod
        self.pod_text = clean_line(diagnose_pod(pod, shell.now)[0], 1000) if pod else ""
        self.containers = _containers(pod.get("status") or {}) if pod else []
        self.commands = task_commands(
            view.namespace,
            view.name,
            role,
            index,
            pod["metadata"]["name"] if pod else "",
            live=framework.live,
            past=shell.past,
        )
        prefix = tasks_href(view.namespace, view.name, framework.body["metadata"]["uid"], role)
        last = max((one.index for one in _tasks_of(view, role)), default=-1)
        self.previous = f"{prefix}{index - 1}" if 0 < index <= last + 1 else ""
        self.next = f"{prefix}{index + 1}" if index < last else ""


def _attempts(
    view: View, task: TaskStatus | None, framework: FrameworkSource, source: TaskSource
) -> Iterator[TaskAttemptView]:
    """Yield the attempts, the newest first."""
    place = view.namespace, view.name, framework.body["metadata"]["uid"]
    pod = names.pod_name(view.name, source.role, source.index)
    shown: set[tuple[str, int]] = set()
    if task is not None and view.status is not None:
        text = diagnose_task(view, source.role, task) or _cause(task)
        yield TaskAttemptView(task, view.status.attempt.id, pod, framework_href(*place), text)
        shown.add((task.instance_uid, task.attempt.id))
    for number, item, body in sorted(source.archived, key=lambda one: (one[0], one[1]["attempt"]), reverse=True):
        archived = _decoded(body) or archived_task(item)
        if archived is None or (archived.instance_uid, archived.attempt.id) in shown:
            continue
        shown.add((archived.instance_uid, archived.attempt.id))
        href = framework_href(*place, number)
        yield TaskAttemptView(
            archived, number, item.get("pod") or pod, href, _cause(archived), item.get("trigger") or ""
        )


def _with_logs(one: TaskAttemptView, logs: Sequence[Json], view: View, framework: FrameworkSource) -> TaskAttemptView:
    task, uid = one.task, framework.body["metadata"]["uid"]
    place = one.framework_attempt, task.instance_uid, task.attempt.id
    its = [item for item in logs if (item["frameworkAttempt"], item["taskUid"], item["attempt"]) == place]
    return replace(one, logs=[LogLink.of(ArchivedLog(item), view.namespace, view.name, uid) for item in its])


def _cause(task: TaskStatus) -> str:
    completion = task.attempt.completion_status
    return clean_line(cause(completion), 2000) if completion and completion.failed else ""


def _decoded(body: Json | None) -> TaskStatus | None:
    try:
        return None if body is None else decode_task(body["status"])
    except (ProblemError, KeyError, TypeError):
        return None


def _containers(status: Json) -> list[ContainerView]:
    """Return the containers in the status of a Pod."""
    found = []
    for listed in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"):
        for one in status.get(listed) or ():
            state = one.get("state") or {}
            end = state.get("terminated") or {}
            about = end or state.get("waiting") or {}
            found.append(
                ContainerView(
                    name=one["name"],
                    state="ended" if end else "running" if "running" in state else "waiting" if state else "",
                    code=end.get("exitCode") if end else None,
                    signal=end.get("signal") or None,
                    reason=clean_line(about.get("reason") or ""),
                    message=printable(about.get("message") or "")[:_MAX_MESSAGE],
                    restarts=one.get("restartCount"),
                )
            )
    return found
