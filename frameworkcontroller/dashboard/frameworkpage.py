"""The page of one Framework: made of its object, or of what the archive has of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from frameworkcontroller.api import names
from frameworkcontroller.api.codec import decode_completion, decode_task
from frameworkcontroller.api.completion import CompletionStatus
from frameworkcontroller.api.status import FrameworkAttemptStatus, State, TaskRoleStatus, TaskStatus
from frameworkcontroller.dashboard.kubectl import framework_commands
from frameworkcontroller.dashboard.rows import (
    ONLY_TASKS,
    FrameworkRow,
    bar_of,
    framework_href,
    live_framework,
    past_row,
    past_time,
    tasks_href,
)
from frameworkcontroller.dashboard.views import (
    AttemptView,
    Cell,
    ConditionView,
    FailureRow,
    FailureWords,
    FrameworkPage,
    Link,
    RoleView,
    Shell,
    TaskGroup,
)
from frameworkcontroller.depths import TooDeepError
from frameworkcontroller.views.attempts import AttemptHistory, Row
from frameworkcontroller.views.diagnosis import (
    FrameworkView as View,
)
from frameworkcontroller.views.diagnosis import (
    Phase,
    cause,
    code_and_phrase,
    diagnose_framework,
    diagnose_task,
    end_sentence,
    phase_of,
    phase_of_end,
    read_view,
    result,
)
from frameworkcontroller.views.kubeevents import KubeEvent as Event
from frameworkcontroller.views.poddiagnosis import without_name
from frameworkcontroller.views.summary import phase_of_result
from frameworkcontroller.views.texts import clean_line, counted, encode
from frameworkcontroller.views.timelinesvg import draw_inline
from frameworkcontroller.views.tree import group, ranges

Json = Mapping[str, Any]

_MAX_GROUPS: Final = 60
_MAX_FAILURES: Final = 40
_MAX_TEXTS: Final = 8
"""Of one code."""

_MAX_ATTEMPTS: Final = 100
_MAX_YAML_TASKS: Final = 100
_BAD: Final = frozenset({("Stalled", "True"), ("Failed", "True")})


@dataclass(frozen=True, slots=True)
class FrameworkSource:
    """What is known of a Framework.

    ``body``: the newest object of it, from the cluster if ``live``, else from the archive. ``shown``: the object with
    the attempt to show, from the archive if that is an earlier one; ``number``: of this attempt, if an archive is
    read. ``item``: its entry in the archive's list.
    ``attempts``: the entries of its attempts there. ``earlier``: other archived objects of it, and ``task_attempts``,
    archived attempts of Tasks, both for the picture. ``retried``: those of the attempt that is shown.
    ``pods``: diagnoses of Pods, by name. ``summary``, ``decoded``: made of ``body`` before, as large ones take long.
    """

    body: Json
    shown: Json
    live: bool
    number: int = -1
    item: Json | None = None
    attempts: Sequence[Json] = ()
    earlier: Sequence[Json] = ()
    task_attempts: Sequence[Json] = ()
    retried: Sequence[Json] = ()
    pods: Mapping[str, str] = field(default_factory=dict)
    pods_problem: str = ""
    events: Sequence[Event] = ()
    events_problem: str = ""
    others: tuple[Link, ...] = ()
    summary: FrameworkRow | None = None
    decoded: View | None = None

    @property
    def is_current(self) -> bool:
        """Whether the newest attempt is shown."""
        return self.shown is self.body

    def view(self) -> View:
        """Return the Framework with its newest attempt."""
        made = self.decoded or read_view(self.body, {})
        return replace(made, pods=self.pods if self.live else {}, deleting=made.deleting and self.live)

    def shown_view(self) -> View:
        """Return the Framework with the attempt to show."""
        if self.is_current:
            return self.view()
        made = read_view(self.shown, {})
        return replace(made, deleting=made.deleting and self.live)


def framework_page(shell: Shell, source: FrameworkSource) -> FrameworkPage:
    """Return the page."""
    now, body = shell.now, source.shown
    view = source.shown_view()
    metadata = body["metadata"]
    namespace, name, uid = metadata["namespace"], metadata["name"], metadata["uid"]
    attempts = _attempts(source, view)
    roles = tuple(_role(view, role, tasks_href(namespace, name, uid, role.name)) for role in _roles(view))
    counts = Counter(phase_of(task) for role in _roles(view) for task in role.tasks)
    status, status_cut = _status_yaml(body.get("status"), sum(len(role.tasks) for role in _roles(view)))
    return FrameworkPage(
        shell=shell,
        head=head_of(source),
        sentences=tuple(_sentences(source, view, now)),
        problem=clean_line(view.problem),
        labels=tuple(_labels(metadata)),
        conditions=tuple(_conditions(view)),
        attempts=attempts,
        attempt=next((one for one in attempts if one.shown), None),
        bar=bar_of(counts),
        roles=roles,
        failures=tuple(_failures(view, source, uid)),
        timeline=_timeline(view, source, shell),
        events=source.events,
        events_problem=source.events_problem,
        pods_problem=source.pods_problem,
        spec=_yaml(body.get("spec")),
        status=status,
        status_cut=status_cut,
        commands=framework_commands(source.body, live=source.live, past=shell.past),
        others=source.others,
    )


def _labels(metadata: Json) -> Iterator[tuple[str, str]]:
    # Those of an archived object may have any text.
    for key, value in sorted((metadata.get("labels") or {}).items()):
        yield clean_line(key), clean_line(str(value))


def head_of(source: FrameworkSource) -> FrameworkRow:
    """Return the row of the Framework, as in the list."""
    if source.live:
        return source.summary or live_framework(source.body)
    if source.item is not None:
        return past_row(source.item)
    return replace(live_framework(source.body), live=False)


def _roles(view: View) -> Sequence[TaskRoleStatus]:
    return view.status.attempt.roles if view.status else ()


def _sentences(source: FrameworkSource, view: View, now: float) -> Iterator[str]:
    if view.status is None and not (source.live and source.is_current):
        yield ONLY_TASKS
    completion = view.status.attempt.completion_status if view.status is not None else None
    if completion is not None and completion.succeeded and not view.problem:
        yield _success(view)
    if source.is_current:
        # The problem of an object that cannot be read has a place of its own.
        yield from (line for line in diagnose_framework(view, now) if line != clean_line(view.problem))
    elif completion is not None:
        yield end_sentence(completion)


def _success(view: View) -> str:
    tasks = [task for role in _roles(view) for task in role.tasks]
    done = sum(phase_of(task) is Phase.SUCCEEDED for task in tasks)
    if done < len(tasks):
        return f"Succeeded: {done:,} of {counted(len(tasks), 'Task')} succeeded"
    return f"Succeeded: all {len(tasks):,} Tasks succeeded" if done > 1 else "Succeeded: its Task succeeded"


def _conditions(view: View) -> Iterator[ConditionView]:
    for one in view.status.conditions if view.status else ():
        since = one.last_transition_time or None
        bad = (one.type, one.status) in _BAD
        yield ConditionView(one.type, one.status, one.reason, clean_line(one.message, 2000), since, bad)


# --- attempts ---


def _attempts(source: FrameworkSource, shown: View) -> tuple[AttemptView, ...]:
    metadata = source.body["metadata"]
    namespace, name, uid = metadata["namespace"], metadata["name"], metadata["uid"]
    shown_id = shown.status.attempt.id if shown.status else source.number
    newest = read_attempt_id(source.body)
    stored = {item["id"]: item for item in source.attempts}
    newest = max([newest, *stored])
    found = []
    for number in range(newest, max(-1, newest - _MAX_ATTEMPTS), -1):
        href = framework_href(namespace, name, uid, None if number == newest else number)
        made = AttemptView(number, href, number == shown_id, number == newest, stored=False)
        if number == shown_id and shown.status:
            made = _attempt_of(made, shown)
        elif number in stored:
            made = _archived_attempt(made, stored[number])
        elif number == newest:
            made = replace(made, stored=True)
        found.append(made)
    return tuple(found)


def read_attempt_id(body: Json) -> int:
    """Return the number of the attempt in the status of an object; -1 if it has none."""
    try:
        number = body["status"]["attemptStatus"]["id"]
    except (KeyError, TypeError):
        return -1
    return number if isinstance(number, int) else -1


def _attempt_of(made: AttemptView, view: View) -> AttemptView:
    status = view.status
    if status is None:
        return made
    attempt, completion = status.attempt, status.attempt.completion_status
    return replace(
        made,
        stored=True,
        phase=(phase_of(status) if completion is None else phase_of_end(completion)).label,
        result=result(completion),
        diagnostics=clean_line(completion.diagnostics, 2000) if completion else "",
        started=attempt.start_time,
        ran=attempt.run_time,
        ended=attempt.completion_time,
        failed_tasks=sum(phase_of(task) is Phase.FAILED for role in attempt.roles for task in role.tasks),
    )


def _archived_attempt(made: AttemptView, item: Json) -> AttemptView:
    code, ended = item.get("code"), past_time(item.get("completed"))
    over = code is not None or ended is not None
    return replace(
        made,
        stored=True,
        phase=phase_of_result(code, item.get("type") or "").label if over else "",
        result="" if code is None else code_and_phrase(code, item.get("phrase") or ""),
        diagnostics=clean_line(item.get("diagnostics") or "", 2000),
        started=past_time(item.get("started")),
        ended=ended,
        failed_tasks=item.get("failedTasks"),
    )


# --- roles and Tasks ---


def _role(view: View, role: TaskRoleStatus, href: str) -> RoleView:
    spec = view.spec.role(role.name)
    groups = group((task, diagnose_task(view, role.name, task)) for task in role.tasks)
    shown = tuple(
        TaskGroup(
            indexes=ranges([task.index for task in one.tasks]),
            first=one.tasks[0].index,
            number=len(one.tasks),
            phase=phase_of(one.tasks[0]).label,
            state=one.tasks[0].state,
            text=one.text,
        )
        for one in groups[:_MAX_GROUPS]
    )
    return RoleView(
        name=role.name,
        href=href,
        bar=bar_of(Counter(map(phase_of, role.tasks))),
        wanted=None if spec is None else spec.task_number,
        retries=sum(task.retry.total_retried_count for task in role.tasks),
        cells=tuple(_cell(task) for task in role.tasks),
        groups=shown,
        more_groups=max(0, len(groups) - _MAX_GROUPS),
    )


def _cell(task: TaskStatus) -> Cell:
    end = result(task.attempt.completion_status)
    text = f"{task.state}, attempt {task.attempt.id}{f', {end}' if end else ''}"
    return Cell(task.index, phase_of(task).label, text, task.retry.total_retried_count)


# --- failures ---


def _failures(view: View, source: FrameworkSource, uid: str) -> Iterator[FailureRow]:
    found: dict[str, dict[str, list[tuple[str, int]]]] = {}
    texts: dict[tuple[str, str], str] = {}
    categories: dict[str, str] = {}
    for role, index, completion in _failed_attempts(view, source):
        end, text = result(completion), cause(completion)
        # Texts that differ in the name of the Pod are shown once, in the words of the first one.
        alike = without_name(names.pod_name(view.name, role, index), text)
        texts.setdefault((end, alike), clean_line(text, 600))
        found.setdefault(end, {}).setdefault(alike, []).append((role, index))
        if completion.attributes is not None:
            # An entry of the archive has none.
            categories[end] = completion.category

    def words(end: str, alike: str, tasks: Sequence[tuple[str, int]]) -> FailureWords:
        role, index = tasks[0]
        href = f"{tasks_href(view.namespace, view.name, uid, role)}{index}"
        return FailureWords(texts[end, alike], len(tasks), _named(tasks), href)

    rows = []
    for end, by_text in found.items():
        ranked = sorted(by_text.items(), key=lambda item: -len(item[1]))
        shown = tuple(words(end, alike, tasks) for alike, tasks in ranked[:_MAX_TEXTS])
        number = sum(map(len, by_text.values()))
        rows.append(FailureRow(end, number, categories.get(end, ""), shown, len(ranked) - len(shown)))
    yield from sorted(rows, key=lambda row: -row.number)[:_MAX_FAILURES]


def _failed_attempts(view: View, source: FrameworkSource) -> Iterator[tuple[str, int, CompletionStatus]]:
    stored: set[tuple[str, int, str, int]] = set()
    for role in _roles(view):
        for task in role.tasks:
            completion = task.attempt.completion_status
            stored.add((role.name, task.index, task.instance_uid, task.attempt.id))
            if completion is not None and completion.unexpected:
                yield role.name, task.index, completion
    for item in source.retried:
        key = item["role"], item["index"], item["taskUid"], item["attempt"]
        completion = archived_completion(item)
        if key not in stored and completion is not None and completion.unexpected:
            yield item["role"], item["index"], completion


def _named(tasks: Sequence[tuple[str, int]]) -> str:
    roles: dict[str, set[int]] = {}
    for role, index in tasks:
        roles.setdefault(role, set()).add(index)
    return ", ".join(f"{role}[{ranges(sorted(indexes))}]" for role, indexes in roles.items())


def archived_completion(item: Json) -> CompletionStatus | None:
    """Return the end of an archived attempt of a Task, from its entry; None if it has none."""
    body = _completion_body(item)
    return None if body is None else decode_completion(body)


def _completion_body(item: Json) -> Json | None:
    if item.get("code") is None:
        return None
    kept = {key: item.get(key) for key in ("code", "phrase", "diagnostics")}
    return {**kept, "type": {"name": item.get("type")}}


# --- the picture ---


def _timeline(view: View, source: FrameworkSource, shell: Shell) -> str:
    if view.status is None and not source.task_attempts:
        return ""
    uid = source.body["metadata"]["uid"]
    history = AttemptHistory(uid)
    if view.status is not None:
        history.add_status(view.status)
    # One that cannot be read is drawn as if it were not known.
    others = [read_view(body, {}) for body in source.earlier]
    for other in others if source.is_current else [*others, source.view()]:
        if other.status is not None:
            history.add_status(other.status)
    for item in source.attempts:
        if (attempt := _archived_framework_attempt(item)) is not None:
            history.add_framework_attempt(attempt)
    for item in source.task_attempts:
        if (task := archived_task(item)) is not None:
            history.add_task(item["role"], task)

    def link(row: Row) -> str:
        return f"{shell.root}{tasks_href(view.namespace, view.name, uid, row.role)}{row.index}" if row.role else ""

    return draw_inline(f"{view.namespace}/{view.name}", history.rows, shell.now, link)


def _archived_framework_attempt(item: Json) -> FrameworkAttemptStatus | None:
    """Return an archived attempt of the Framework from its entry; None if it has not ended, or its start is unknown."""
    started, completed = past_time(item.get("started")), past_time(item.get("completed"))
    if started is None or completed is None:
        return None
    # Of a large one, only the entry is read: it does not say when the first Task ran.
    return FrameworkAttemptStatus(
        id=item["id"],
        start_time=started,
        run_time=started,
        completion_time=completed,
        completion_status=archived_completion(item),
    )


def archived_task(item: Json) -> TaskStatus | None:
    """Return an archived attempt of a Task as its status would have it; None if its start is not known."""
    if item.get("started") is None:
        return None
    attempt = {
        "id": item["attempt"],
        "startTime": item["started"],
        "runTime": item.get("ran"),
        "completionTime": item.get("completed"),
        "podUID": item.get("podUid"),
        "podNodeName": item.get("node"),
        "podIP": item.get("podIP"),
        "podHostIP": item.get("hostIP"),
        "completionStatus": _completion_body(item),
    }
    task: TaskStatus = decode_task(
        {
            "index": item["index"],
            "instanceUID": item["taskUid"],
            "startTime": item["started"],
            "transitionTime": item.get("completed") or item["started"],
            "state": State.RUNNING if item.get("completed") is None else State.ATTEMPT_COMPLETED,
            "attemptStatus": attempt,
        }
    )
    return task


# --- YAML ---


def _yaml(value: Any) -> str:
    if value is None:
        return ""
    try:
        return encode(value, "yaml")
    except TooDeepError as error:
        return f"# {error}\n"


def _status_yaml(status: Any, tasks: int) -> tuple[str, str]:
    """Return the YAML, and what was left out of it: Tasks, if there are many."""
    if not isinstance(status, dict) or tasks <= _MAX_YAML_TASKS:
        return _yaml(status), ""
    attempt = {
        key: value
        for key, value in (status.get("attemptStatus") or {}).items()
        if key not in ("taskRoleStatuses", "taskRoleStatusesCompressed")
    }
    return _yaml({**status, "attemptStatus": attempt}), f"the statuses of {counted(tasks, 'Task')}"
