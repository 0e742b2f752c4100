"""What the templates show: one frozen record for each page, and those that it consists of.

Conventions of all of them:

- Texts are plain and of one line unless said otherwise; foreign ones (messages, names of nodes) are untrusted, and only
  ever text. Templates escape them.
- Times are seconds since the epoch, None for none. The filters ``iso``, ``ago`` and ``span`` of `rendering` format
  them.
- ``phase`` is the label of a `Phase` of ``views/diagnosis.py``: failed, waiting, ending, running, stopped or
  succeeded. It is the class of a color.
- ``href`` is relative to the root of the pages, without a leading slash: a template writes
  ``{{ view.shell.root }}{{ row.href }}``. "" means that there is no such page.
- Nothing in a view is of a namespace that the viewer may not read, neither an object nor its share of a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from frameworkcontroller.dashboard.rows import Bar, FrameworkRow, PhaseShare
from frameworkcontroller.views.diagnosis import Phase
from frameworkcontroller.views.kubeevents import KubeEvent as Event

PHASES: Final = tuple(phase.label for phase in Phase)
"""The phases, the most interesting one first."""


# --- common to all pages ---


class NoteLevel(StrEnum):
    """How urgent a note is."""

    INFO = "info"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Note:
    """A remark at the top of a page, such as "The API server has not answered for 2m3s: ...". ``since``: from when."""

    level: NoteLevel
    text: str
    since: int | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """A link. ``current``: it leads to what the page shows."""

    text: str
    href: str
    current: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """A command to copy. ``text``: the command, quoted for a POSIX shell. ``changes``: it changes or deletes something.

    ``purpose``: what it does, as an imperative ("Follow the logs of this Task").
    """

    purpose: str
    text: str
    changes: bool = False


@dataclass(frozen=True, slots=True)
class Shell:
    """What the base template needs.

    ``root``: relative URL of the root of the pages, such as ``./`` or ``../../``. ``page``: frameworks, framework,
    task, failures or error. ``now``: when the page was made. ``live``: live Frameworks are watched; ``past``: there is
    an archive. ``events``: URL for `EventSource`, relative to the root, "" if the page does not change by itself; each
    message ``changed`` means that the page has changed, and is to be fetched again. ``scope``: whose Frameworks are
    shown, such as "all namespaces" or "namespace default". ``user``: the name of the logged-in viewer, "" on loopback.
    """

    root: str
    page: str
    title: str
    now: float
    live: bool
    past: bool
    events: str = ""
    scope: str = ""
    user: str = ""
    version: str = ""
    notes: tuple[Note, ...] = ()


# --- the list ---


@dataclass(frozen=True, slots=True)
class ListColumn:
    """A column of the list. ``href``: the list sorted by it, the other way round if it already is.

    ``key``: name, namespace, state, why, tasks, retries or age; ``sorted``: "ascending", "descending" or "" (the values
    of ``aria-sort``, which has "none" for ""). ``href`` "": one cannot sort by it.
    """

    key: str
    title: str
    href: str = ""
    sorted: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """An option of a filter: its value in the query, and its text.

    ``number``: live Frameworks that it would show with the other filters; None if live ones are not shown.
    """

    value: str
    text: str
    selected: bool = False
    number: int | None = None


@dataclass(frozen=True, slots=True)
class Filters:
    """What the form of the list holds: a GET form to the root with the fields ``q``, ``namespace``, ``state``,
    ``which``.

    ``text``: words that names, namespaces, queues, results and reasons must contain. ``namespaces``: empty if only one
    is watched. ``states``: phases and words (stalled, queued, suspended). ``which``: "", live or past. ``sort`` and
    ``order``: hidden fields, "" for the default. ``active``: something is filtered. ``clear``: the list without
    filters.
    """

    text: str = ""
    namespaces: tuple[Choice, ...] = ()
    states: tuple[Choice, ...] = ()
    which: tuple[Choice, ...] = ()
    sort: str = ""
    order: str = ""
    active: bool = False
    clear: str = ""


@dataclass(frozen=True, slots=True)
class Empty:
    """An empty state: what there is not, and what one may type."""

    text: str
    commands: tuple[Command, ...] = ()


@dataclass(frozen=True, slots=True)
class FrameworkList:
    """``frameworks.html``: the table of Frameworks. Live ones come first, then past ones, newest first.

    ``shows_live``: live ones are asked for. ``matched``: live Frameworks that match the filters; ``live_total``: all
    that the viewer may read. ``first_row``:
    the number of the first row among the live ones, from 1. ``counts``: matched live Frameworks by phase. ``newer``,
    ``older``: neighboring pages, "" for none. ``empty``: set if there are no rows.
    """

    shell: Shell
    filters: Filters
    columns: tuple[ListColumn, ...]
    rows: tuple[FrameworkRow, ...]
    matched: int
    live_total: int
    first_row: int = 1
    counts: tuple[PhaseShare, ...] = ()
    newer: str = ""
    older: str = ""
    empty: Empty | None = None
    shows_live: bool = True


# --- one Framework ---


@dataclass(frozen=True, slots=True)
class ConditionView:
    """A condition. ``bad``: it deserves attention as it is (Stalled: True)."""

    type: str
    status: str
    reason: str
    message: str
    since: int | None
    bad: bool = False


@dataclass(frozen=True, slots=True)
class AttemptView:
    """An attempt of the Framework. ``href``: its page. ``shown``: the page shows it. ``current``: the last one.

    ``stored``: its details are known, from the status or the archive; else only that there was one.
    ``phase`` "" if unknown.
    """

    id: int
    href: str
    shown: bool
    current: bool
    stored: bool
    phase: str = ""
    result: str = ""
    diagnostics: str = ""
    started: int | None = None
    ran: int | None = None
    ended: int | None = None
    failed_tasks: int | None = None


@dataclass(frozen=True, slots=True)
class Cell:
    """A Task in the grid of its role. ``text``: state, attempt and result in words, for a tooltip and screen readers.

    Its page is ``{{ root }}{{ role.href }}{{ cell.index }}``.
    """

    index: int
    phase: str
    text: str
    retries: int = 0


@dataclass(frozen=True, slots=True)
class TaskGroup:
    """Tasks of a role in the same state for the same reason. ``indexes``: "0-3,7"; ``first``: the lowest of them."""

    indexes: str
    first: int
    number: int
    phase: str
    state: str
    text: str


@dataclass(frozen=True, slots=True)
class RoleView:
    """A role. ``wanted``: its Tasks in the spec, None if the spec no longer has such a role.

    ``groups``: failed Tasks first, at most some dozens; ``more_groups``: the number of the others. ``href``: prefix of
    the pages of its Tasks.
    """

    name: str
    href: str
    bar: Bar
    wanted: int | None
    retries: int
    cells: tuple[Cell, ...]
    groups: tuple[TaskGroup, ...]
    more_groups: int = 0


@dataclass(frozen=True, slots=True)
class FailureWords:
    """Task attempts with the same code and, except for the names of their Pods, the same reason.

    ``text``: the container's own words, or the controller's, of the first one. ``tasks``: "worker[0-3,7]". ``href``: an
    example.
    """

    text: str
    number: int
    tasks: str
    href: str


@dataclass(frozen=True, slots=True)
class FailureRow:
    """Task attempts that ended with the same code. ``words``: the most frequent first; ``more_words``: others."""

    result: str
    number: int
    category: str
    words: tuple[FailureWords, ...]
    more_words: int = 0


@dataclass(frozen=True, slots=True)
class FrameworkPage:
    """``framework.html``: a Framework with one of its attempts.

    ``head``: as in the list. ``sentences``: why it waits or ended, and what comes next. ``problem``: why the object
    cannot be read, "" if it can. ``attempts``: the newest first. ``attempt``: the one shown; None before the first.
    ``timeline``: an SVG element of our own making (safe markup without styles, whose bars have the classes waiting,
    running, succeeded, failed and stopped), "" if there is nothing to draw. ``events_problem``,
    ``pods_problem``: why there are none, such as a missing permission. ``spec`` and ``status``: YAML of several lines;
    ``status_cut``: what was left out of it, "" if nothing was.
    """

    shell: Shell
    head: FrameworkRow
    sentences: tuple[str, ...]
    problem: str
    labels: tuple[tuple[str, str], ...]
    conditions: tuple[ConditionView, ...]
    attempts: tuple[AttemptView, ...]
    attempt: AttemptView | None
    bar: Bar
    roles: tuple[RoleView, ...]
    failures: tuple[FailureRow, ...]
    timeline: str
    events: Sequence[Event]
    events_problem: str
    pods_problem: str
    spec: str
    status: str
    status_cut: str
    commands: tuple[Command, ...]
    others: tuple[Link, ...] = ()
    """Other Frameworks of the same name: the live one, and past ones."""


# --- one Task ---


@dataclass(frozen=True, slots=True)
class ContainerView:
    """How a container of a Pod ended or is: ``state`` is waiting, running, ended, or "" if not known.

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
    """An attempt of a Task: a Pod. ``attempt``: its number; ``framework_attempt``: that of the Framework.

    ``text``: why it ended, or what it waits for. ``trigger``: the moment at which it was archived ("OnTaskRetry"), ""
    for one from the status. ``href``: the Framework's page with its attempt.
    """

    attempt: int
    framework_attempt: int
    current: bool
    phase: str
    state: str
    result: str
    type: str
    text: str
    diagnostics: str
    pod: str
    pod_uid: str
    node: str
    pod_ip: str
    host_ip: str
    started: int | None
    ran: int | None
    ended: int | None
    containers: tuple[ContainerView, ...]
    trigger: str = ""
    href: str = ""


@dataclass(frozen=True, slots=True)
class PodView:
    """The Pod of a Task as it is now. ``text``: why it does not run, end or disappear; "" if all is well."""

    name: str
    uid: str
    phase: str
    node: str
    text: str
    containers: tuple[ContainerView, ...]


@dataclass(frozen=True, slots=True)
class TaskPage:
    """``task.html``: a Task over all attempts that are known, the newest first.

    ``missing``: how many earlier attempts are not known, because there is no archive of them. ``previous``, ``next``:
    its neighbors in the role.
    """

    shell: Shell
    head: FrameworkRow
    role: str
    index: int
    phase: str
    state: str
    sentence: str
    retries: int
    attempts: tuple[TaskAttemptView, ...]
    missing: int
    pod: PodView | None
    pods_problem: str
    events: Sequence[Event]
    events_problem: str
    commands: tuple[Command, ...]
    previous: str = ""
    next: str = ""


# --- failures ---


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Failed attempts with one code, on one node, of one role or of one day.

    ``percent``: its Task attempts in relation to the largest group, for a bar. ``href``: an example, "" if it can no
    longer be read; ``example``: its name.
    """

    key: str
    label: str
    task_attempts: int
    framework_attempts: int
    frameworks: int
    first: int | None
    last: int | None
    percent: float
    example: str = ""
    href: str = ""


@dataclass(frozen=True, slots=True)
class FailurePage:
    """``failures.html``: failures in the archive. ``by``: tabs; ``since``: choices of the period; both are GET fields.

    ``days``: failed Task attempts per day, the oldest first, for a small chart; empty if they are what is listed.
    ``empty``: set if there is nothing to show, for example because there is no archive.
    """

    shell: Shell
    by: tuple[Choice, ...]
    since: tuple[Choice, ...]
    namespaces: tuple[Choice, ...]
    groups: tuple[FailureGroup, ...]
    days: tuple[FailureGroup, ...] = ()
    empty: Empty | None = None


# --- errors ---


@dataclass(frozen=True, slots=True)
class ErrorPage:
    """``error.html``. ``status``: of HTTP."""

    shell: Shell
    status: int
    title: str
    text: str
    commands: tuple[Command, ...] = field(default=())
