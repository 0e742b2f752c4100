"""The page of one Framework: made of its object, or of its entries in the archive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Final

from frameworkcontroller.api.causes import cause, normalized
from frameworkcontroller.api.codec import decode_completion, decode_task
from frameworkcontroller.api.completion import CompletionStatus
from frameworkcontroller.api.phases import end_phase, phase_of_framework, phase_of_task
from frameworkcontroller.api.status import (
    Condition,
    FrameworkAttemptStatus,
    FrameworkStatus,
    Phase,
    State,
    TaskRoleStatus,
    TaskStatus,
)
from frameworkcontroller.dashboard.kubectl import framework_commands
from frameworkcontroller.dashboard.live import PodsAndEvents
from frameworkcontroller.dashboard.logpage import LastWords
from frameworkcontroller.dashboard.rows import (
    ONLY_TASKS,
    Bar,
    FrameworkRow,
    bar_of,
    framework_href,
    live_framework,
    past_row,
    past_time,
    tasks_href,
)
from frameworkcontroller.dashboard.views import Command, Link, Shell
from frameworkcontroller.depths import TooDeepError
from frameworkcontroller.history.reads import TASK_FIELDS
from frameworkcontroller.views.attempts import AttemptHistory, Row
from frameworkcontroller.views.diagnosis import (
    NOT_SEEN,
    diagnose_framework,
    diagnose_task,
    end_sentence,
    first_failure,
    message_of,
    read_view,
    result,
)
from frameworkcontroller.views.diagnosis import FrameworkView as View
from frameworkcontroller.views.shownprogress import ShownProgress, progress_of
from frameworkcontroller.views.texts import clean_line, counted, encode
from frameworkcontroller.views.timelinesvg import draw_inline
from frameworkcontroller.views.tree import availability, group, ranges

Json = Mapping[str, Any]

_MAX_GROUPS: Final = 60
_MAX_FAILURES: Final = 40
_MAX_TEXTS: Final = 8
"""Of one code."""

_MAX_ATTEMPTS: Final = 100
_MAX_YAML_TASKS: Final = 100


@dataclass(frozen=True, slots=True)
class FrameworkSource:
    """The data of a Framework.

    ``body``: its newest object, from the cluster if ``live``, else from the archive. ``shown``: the object with the
    attempt to show, which the archive has of an earlier one; ``number``: of this attempt, if an archive is read.
    ``item``: its entry in the archive's list; ``attempts``: the entries of its attempts there. ``earlier``: other
    archived objects of it, and ``task_attempts``, archived attempts of Tasks, both for the picture. ``retried``:
    failed Task attempts of the shown attempt. ``last_words``: the end of the log of the Task that failed first.
    ``last_lines``: of Task attempts, by role, UID of the Task and attempt. ``summary``, ``decoded``: made of ``body``
    before, as large ones take long.
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
    more: PodsAndEvents = field(default_factory=PodsAndEvents)
    others: tuple[Link, ...] = ()
    last_words: LastWords | None = None
    last_lines: Mapping[tuple[str, str, int], str] = field(default_factory=dict)
    summary: FrameworkRow | None = None
    decoded: View | None = None

    @property
    def is_current(self) -> bool:
        """Whether the newest attempt is shown."""
        return self.shown is self.body

    def view(self) -> View:
        """Return the Framework with its newest attempt."""
        made = self.decoded or read_view(self.body, {})
        return replace(made, pods=self.more.diagnoses if self.live else {}, deleting=made.deleting and self.live)

    def shown_view(self) -> View:
        """Return the Framework with the attempt to show."""
        if self.is_current:
            return self.view()
        made = read_view(self.shown, {})
        return replace(made, deleting=made.deleting and self.live)


class RoleView:
    """A role. ``wanted``: its wanted Tasks, None if the spec no longer has such a role.

    ``groups``: of Tasks with the same state and reason, failed ones first. ``href``: prefix of the pages of its Tasks.
    ``availability``: its ready and updated Tasks, "" if they are not counted.
    """

    def __init__(self, view: View, role: TaskRoleStatus, href: str) -> None:
        spec = view.spec.role(role.name)
        groups = group((task, diagnose_task(view, role.name, task)) for task in role.tasks)
        self.name, self.tasks, self.href = role.name, role.tasks, href
        counts = Counter(map(phase_of_task, role.tasks))
        self.bar, self.failed = bar_of(counts), counts[Phase.FAILED]
        self.wanted = None if spec is None else spec.task_number
        self.availability = availability(role)
        self.retries = sum(task.retry.total_retried_count for task in role.tasks)
        self.groups, self.more_groups = groups[:_MAX_GROUPS], max(0, len(groups) - _MAX_GROUPS)


@dataclass(frozen=True, slots=True)
class AttemptView:
    """An attempt of the Framework. ``shown``: the page shows it. ``stored``: the status or the archive has it."""

    id: int
    href: str
    shown: bool
    stored: bool
    phase: str = ""
    result: str = ""
    diagnostics: str = ""
    started: int | None = None
    ended: int | None = None


@dataclass(slots=True)
class FailureWords:
    """Task attempts with the same code and, except for numbers, the same cause.

    ``text``: the cause of the first one. ``href``: its page.
    """

    text: str
    href: str
    tasks: list[tuple[str, int]] = field(default_factory=list)

    @property
    def names(self) -> str:
        """The Tasks as ``worker[0-3,7]``."""
        roles: dict[str, set[int]] = {}
        for role, index in self.tasks:
            roles.setdefault(role, set()).add(index)
        return ", ".join(f"{role}[{ranges(sorted(indexes))}]" for role, indexes in roles.items())


@dataclass(slots=True)
class FailureRow:
    """Task attempts that ended with the same code."""

    result: str
    category: str = ""
    by_text: dict[str, FailureWords] = field(default_factory=dict)

    @property
    def number(self) -> int:
        return sum(len(one.tasks) for one in self.by_text.values())

    @property
    def words(self) -> list[FailureWords]:
        """The most frequent ones."""
        return sorted(self.by_text.values(), key=lambda one: -len(one.tasks))[:_MAX_TEXTS]


class FrameworkPage:
    """A Framework with one of its attempts."""

    template: ClassVar[str] = "framework.html"

    def __init__(self, shell: Shell, source: FrameworkSource) -> None:
        self.shell = shell
        self.source = source
        self._view = source.shown_view()
        self._metadata = source.shown["metadata"]
        self.problem = clean_line(self._view.problem)
        """Why the object cannot be read, "" if it can."""

    @cached_property
    def head(self) -> FrameworkRow:
        """The row of the Framework, as in the list."""
        return head_of(self.source)

    @cached_property
    def sentences(self) -> list[str]:
        """Why it waits or ended, and the next step."""
        return list(self._sentences())

    @property
    def tone(self) -> str:
        """The phase whose color the sentences have; "warning" if it runs, and not all is well."""
        head = self.head
        is_well = head.phase != Phase.RUNNING.lower() or not (head.word or any(role.failed for role in self.roles))
        return head.phase if is_well else "warning"

    def _sentences(self) -> Iterator[str]:
        source, view = self.source, self._view
        if view.status is None:
            yield NOT_SEEN if source.live and source.is_current else ONLY_TASKS
        completion = view.status.attempt.completion_status if view.status is not None else None
        if completion is not None and completion.succeeded and not view.problem:
            yield _success([task for role in _roles(view) for task in role.tasks])
        if source.is_current:
            # The problem of an object that cannot be read has a place of its own.
            yield from (line for line in diagnose_framework(view, self.shell.now) if line != self.problem)
        elif completion is not None and view.status is not None:
            message = message_of(view.status)
            told = first_failure(view.status, told=message)
            yield from filter(None, (message, *told, end_sentence(completion, told=message)))

    @property
    def labels(self) -> list[tuple[str, str]]:
        """The labels. An archived object may have any text in them."""
        found = sorted((self._metadata.get("labels") or {}).items())
        return [(clean_line(key), clean_line(str(value))) for key, value in found]

    @property
    def conditions(self) -> Sequence[Condition]:
        return self._view.status.conditions if self._view.status else ()

    @cached_property
    def roles(self) -> list[RoleView]:
        """The roles, those with failed Tasks first."""
        found = [RoleView(self._view, role, self._tasks_href(role.name)) for role in _roles(self._view)]
        return sorted(found, key=lambda role: not role.failed)

    @cached_property
    def bar(self) -> Bar:
        """The Tasks of all roles."""
        return bar_of(Counter(phase_of_task(task) for role in _roles(self._view) for task in role.tasks))

    def _tasks_href(self, role: str) -> str:
        metadata = self._metadata
        return tasks_href(metadata["namespace"], metadata["name"], metadata["uid"], role)

    @cached_property
    def progress(self) -> ShownProgress | None:
        """The last reported progress of the shown attempt. It is over unless this is the current one of a live one."""
        reported = self._view.spec.progress
        found = progress_of(self._view.status, 0 if reported is None else reported.interval_seconds)
        is_current = self.source.live and self.source.is_current
        return found if found is None or is_current else replace(found, is_over=True)

    # --- attempts ---

    @cached_property
    def attempts(self) -> list[AttemptView]:
        """The latest attempts, the newest first."""
        source, metadata, status = self.source, self.source.body["metadata"], self._view.status
        shown_id = status.attempt.id if status else source.number
        stored = {item["id"]: item for item in source.attempts}
        newest = max([read_attempt_id(source.body), *stored])
        found = []
        for number in range(newest, max(-1, newest - _MAX_ATTEMPTS), -1):
            other = None if number == newest else number
            href = framework_href(metadata["namespace"], metadata["name"], metadata["uid"], other)
            made = AttemptView(number, href, number == shown_id, stored=number == newest)
            if number == shown_id and status:
                made = _attempt_of(made, status)
            elif number in stored:
                made = _archived_attempt(made, stored[number])
            found.append(made)
        return found

    @property
    def attempt(self) -> AttemptView | None:
        """The shown attempt; None before the first."""
        return next((one for one in self.attempts if one.shown), None)

    @cached_property
    def timeline(self) -> str:
        """An SVG element (see `draw_inline`), "" if there is nothing to draw."""
        view, source = self._view, self.source
        if view.status is None and not source.task_attempts:
            return ""
        history = AttemptHistory(source.body["metadata"]["uid"])
        # One that cannot be read is drawn as if it were not known.
        others = [read_view(body, {}) for body in source.earlier]
        for one in [view, *others] if source.is_current else [view, *others, source.view()]:
            if one.status is not None:
                history.add_status(one.status)
        for item in source.attempts:
            if (attempt := _archived_framework_attempt(item)) is not None:
                history.add_framework_attempt(attempt)
        for item in source.task_attempts:
            if (task := archived_task(item)) is not None:
                history.add_task(item["role"], task)

        def link(row: Row) -> str:
            return f"{self.shell.root}{self._tasks_href(row.role)}{row.index}" if row.role else ""

        def words(row: Row, uid: str, attempt: int) -> str:
            return source.last_lines.get((row.role, uid, attempt), "")

        return draw_inline(f"{view.namespace}/{view.name}", history.rows, self.shell.now, link, words)

    # --- failures ---

    @cached_property
    def failures(self) -> list[FailureRow]:
        """Failed Task attempts by code, the most frequent first."""
        rows: dict[str, FailureRow] = {}
        for role, index, completion in self._failed_attempts():
            end, text = result(completion), cause(completion)
            row = rows.setdefault(end, FailureRow(end))
            alike = normalized(text)
            if alike not in row.by_text:
                row.by_text[alike] = FailureWords(clean_line(text, 600), f"{self._tasks_href(role)}{index}")
            row.by_text[alike].tasks.append((role, index))
            if completion.attributes is not None:
                # An entry of the archive has none.
                row.category = completion.category
        return sorted(rows.values(), key=lambda row: -row.number)[:_MAX_FAILURES]

    def _failed_attempts(self) -> Iterator[tuple[str, int, CompletionStatus]]:
        stored: set[tuple[str, int, str, int]] = set()
        for role in _roles(self._view):
            for task in role.tasks:
                completion = task.attempt.completion_status
                stored.add((role.name, task.index, task.instance_uid, task.attempt.id))
                if completion is not None and completion.unexpected:
                    yield role.name, task.index, completion
        for item in self.source.retried:
            key = item["role"], item["index"], item["taskUid"], item["attempt"]
            completion = archived_completion(item)
            if key not in stored and completion is not None and completion.unexpected:
                yield item["role"], item["index"], completion

    # --- YAML and commands ---

    @cached_property
    def spec(self) -> str:
        """The spec as YAML."""
        return _yaml(self.source.shown.get("spec"))

    @property
    def status_cut(self) -> str:
        """The omitted part of the status: Tasks, if there are many."""
        return f"the statuses of {counted(self.bar.total, 'Task')}" if self._is_cut else ""

    @property
    def _is_cut(self) -> bool:
        return isinstance(self.source.shown.get("status"), dict) and self.bar.total > _MAX_YAML_TASKS

    @cached_property
    def status(self) -> str:
        """The status as YAML, without Tasks if there are many."""
        status = self.source.shown.get("status")
        if not self._is_cut or status is None:
            return _yaml(status)
        attempt = {
            key: value
            for key, value in (status.get("attemptStatus") or {}).items()
            if key not in ("taskRoleStatuses", "taskRoleStatusesCompressed")
        }
        return _yaml({**status, "attemptStatus": attempt})

    @property
    def commands(self) -> tuple[Command, ...]:
        return framework_commands(self.source.body, live=self.source.live, past=self.shell.past)


def head_of(source: FrameworkSource) -> FrameworkRow:
    """Return the row of the Framework, as in the list."""
    if source.live:
        return source.summary or live_framework(source.body)
    if source.item is not None:
        return past_row(source.item)
    return replace(live_framework(source.body), live=False)


def _roles(view: View) -> Sequence[TaskRoleStatus]:
    return view.status.attempt.roles if view.status else ()


def _success(tasks: Sequence[TaskStatus]) -> str:
    done = sum(phase_of_task(task) is Phase.SUCCEEDED for task in tasks)
    if done < len(tasks):
        return f"Succeeded: {done:,} of {counted(len(tasks), 'Task')} succeeded"
    return f"Succeeded: all {len(tasks):,} Tasks succeeded" if done > 1 else "Succeeded: its Task succeeded"


def read_attempt_id(body: Json) -> int:
    """Return the number of the attempt in the status of an object; -1 if it has none."""
    try:
        number = body["status"]["attemptStatus"]["id"]
    except (KeyError, TypeError):
        return -1
    return number if isinstance(number, int) else -1


def _attempt_of(made: AttemptView, status: FrameworkStatus) -> AttemptView:
    attempt, completion = status.attempt, status.attempt.completion_status
    phase = phase_of_framework(status) if completion is None else end_phase(completion)
    return _stored(made, phase, completion, attempt.start_time, attempt.completion_time)


def _archived_attempt(made: AttemptView, item: Json) -> AttemptView:
    completion, ended = archived_completion(item), past_time(item.get("completed"))
    phase = None if completion is None and ended is None else end_phase(completion)
    return _stored(made, phase, completion, past_time(item.get("started")), ended)


def _stored(
    made: AttemptView, phase: Phase | None, completion: CompletionStatus | None, started: int | None, ended: int | None
) -> AttemptView:
    return replace(
        made,
        stored=True,
        phase="" if phase is None else phase.lower(),
        result=result(completion),
        diagnostics=clean_line(completion.diagnostics, 2000) if completion else "",
        started=started,
        ended=ended,
    )


def archived_completion(item: Json) -> CompletionStatus | None:
    """Return the end of an archived attempt, from its entry; None if it has none."""
    body = _completion_body(item)
    return None if body is None else decode_completion(body)


def _completion_body(item: Json) -> Json | None:
    if item.get("code") is None:
        return None
    kept = {key: item.get(key) for key in ("code", "phrase", "diagnostics")}
    return {**kept, "type": {"name": item.get("type")}}


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
    attempt = {field: item.get(name) for name, field in TASK_FIELDS.items() if name != "pod"}
    attempt |= {"id": item["attempt"], "completionStatus": _completion_body(item)}
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


def _yaml(value: Any) -> str:
    if value is None:
        return ""
    try:
        return encode(value, "yaml")
    except TooDeepError as error:
        return f"# {error}\n"
