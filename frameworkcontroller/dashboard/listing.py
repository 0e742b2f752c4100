"""The list of Frameworks: filters, order and pages of the live ones, followed by past ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import urlencode

from frameworkcontroller.dashboard.rows import WORDS, FrameworkRow, bar_of
from frameworkcontroller.dashboard.views import (
    PHASES,
    Choice,
    Command,
    Empty,
    Filters,
    FrameworkList,
    ListColumn,
    Shell,
)
from frameworkcontroller.history.reads import PHASES as PAST_PHASES
from frameworkcontroller.views.diagnosis import Phase

ROWS: Final = 100
"""Of a page."""

_MOST_TEXT: Final = 200
_ALL: Final = ""
LIVE: Final = "live"
PAST: Final = "past"

_PHASE_ORDER: Final = {phase: number for number, phase in enumerate(PHASES)}


def _shown_result(one: FrameworkRow) -> str:
    # The usual end needs no explanation.
    return "" if one.phase == Phase.SUCCEEDED.label else one.result


_KEYS: Final[Mapping[str, Callable[[FrameworkRow], Any]]] = {
    "name": lambda one: one.name,
    "namespace": lambda one: (one.namespace, one.name),
    "state": lambda one: (_PHASE_ORDER[one.phase], one.state, one.word),
    "why": lambda one: (not (one.why or _shown_result(one)), one.result, one.why),
    "tasks": lambda one: one.tasks,
    "retries": lambda one: one.retries + one.task_retries,
    "age": lambda one: -(one.created or 0),
}
"""Of each column, what it is sorted by in ascending order."""

_DESCENDING_FIRST: Final = frozenset({"tasks", "retries"})

_TITLES: Final = {
    "namespace": "Namespace",
    "name": "Name",
    "state": "State",
    "why": "Why",
    "tasks": "Tasks",
    "retries": "Retries",
    "age": "Age",
}


@dataclass(frozen=True, slots=True)
class ListQuery:
    """What the URL of the list asks for. Values that are not known are as good as none.

    ``state``: a phase or a word. ``page``: of live ones, from 0. ``after``: the archive's mark of the page of past
    ones.
    """

    text: str = ""
    namespace: str = ""
    state: str = ""
    which: str = _ALL
    sort: str = "age"
    descending: bool = False
    page: int = 0
    after: str = ""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> ListQuery:
        """Read the query of a URL."""
        sort, order = query.get("sort", ""), query.get("order", "")
        sort = sort if sort in _KEYS else "age"
        state, which, page = query.get("state", ""), query.get("which", ""), query.get("page", "")
        return cls(
            text=query.get("q", "")[:_MOST_TEXT].strip(),
            namespace=query.get("namespace", ""),
            state=state if state in PHASES or state in WORDS else "",
            which=which if which in (LIVE, PAST) else _ALL,
            sort=sort,
            descending=order == "desc" if order in ("asc", "desc") else sort in _DESCENDING_FIRST,
            page=int(page) if page.isascii() and page.isdigit() and len(page) < 7 else 0,
            after=query.get("after", ""),
        )

    @property
    def href(self) -> str:
        """The URL, relative to the root."""
        usual = "desc" if self.sort in _DESCENDING_FIRST else "asc"
        order = "desc" if self.descending else "asc"
        values = {
            "q": self.text,
            "namespace": self.namespace,
            "state": self.state,
            "which": self.which,
            "sort": "" if self.sort == "age" and order == usual else self.sort,
            "order": "" if order == usual else order,
            "page": str(self.page) if self.page else "",
            "after": self.after,
        }
        return "?" + urlencode({name: value for name, value in values.items() if value})

    @property
    def filters(self) -> bool:
        """Whether it leaves out Frameworks."""
        return bool(self.text or self.namespace or self.state or self.which)

    def matches(self, one: FrameworkRow) -> bool:
        """Return whether the list shows this live Framework."""
        if self.namespace and one.namespace != self.namespace:
            return False
        if self.state and self.state not in (one.phase, one.word):
            return False
        if not self.text:
            return True
        found = (
            f"{one.namespace}/{one.name} {one.state} {one.word} {one.why} {one.result} {one.queue} {one.uid}".lower()
        )
        return all(word in found for word in self.text.lower().split())

    def ordered(self, found: Iterable[FrameworkRow]) -> list[FrameworkRow]:
        """Return them in the order of the list; equal ones by name."""
        ranked = sorted(found, key=lambda one: (one.name, one.namespace))
        ranked.sort(key=_KEYS[self.sort], reverse=self.descending)
        return ranked


@dataclass(frozen=True, slots=True)
class PastRows:
    """Past Frameworks after the live ones of a page. ``next``: the archive's mark of those after them, "" for none."""

    rows: Sequence[FrameworkRow] = ()
    next: str = ""


def live_rows(query: ListQuery, matched: Sequence[FrameworkRow]) -> Sequence[FrameworkRow]:
    """Return those of the page; none if the page is one of past Frameworks."""
    if query.after or query.which == PAST:
        return ()
    return matched[query.page * ROWS : (query.page + 1) * ROWS]


def framework_list(
    shell: Shell,
    query: ListQuery,
    readable: Collection[FrameworkRow],
    matched: Sequence[FrameworkRow],
    past: PastRows,
    namespaces: Sequence[str],
    *,
    listed: bool = True,
) -> FrameworkList:
    """Return the page. ``readable``: live Frameworks that the viewer may read; ``matched``: those that match, in order.

    ``namespaces``: for the filter. ``listed``: live ones are known.
    """
    if query.which == PAST:
        matched = ()
    shown = live_rows(query, matched)
    rows = (*shown, *past.rows)
    older = ""
    if len(shown) == ROWS and ((query.page + 1) * ROWS < len(matched) or (shell.past and query.which != LIVE)):
        older = replace(query, page=query.page + 1).href
    elif past.next:
        older = replace(query, page=0, after=past.next).href
    newer = ""
    if query.after:
        newer = replace(query, page=0, after="").href
    elif query.page:
        newer = replace(query, page=query.page - 1).href
    return FrameworkList(
        shell=shell,
        filters=_filters(query, readable, namespaces, past=shell.past),
        columns=tuple(_columns(query, many=len(namespaces) > 1)),
        rows=rows,
        matched=len(matched),
        live_total=len(readable),
        first_row=query.page * ROWS + 1,
        counts=bar_of(Counter(_PHASES[one.phase] for one in matched)).shares,
        newer=newer,
        older=older,
        empty=None if rows else _empty(shell, query, listed=listed),
        shows_live=query.which != PAST,
    )


_PHASES: Final = {phase.label: phase for phase in Phase}


def _columns(query: ListQuery, *, many: bool) -> Iterable[ListColumn]:
    for key, title in _TITLES.items():
        if key == "namespace" and not many:
            continue
        is_sorted = key == query.sort
        descending = not query.descending if is_sorted else key in _DESCENDING_FIRST
        href = replace(query, sort=key, descending=descending, page=0, after="").href
        yield ListColumn(key, title, href, ("descending" if query.descending else "ascending") if is_sorted else "")


def _filters(query: ListQuery, readable: Collection[FrameworkRow], namespaces: Sequence[str], *, past: bool) -> Filters:
    # Past Frameworks, which are not counted, are in one of these phases.
    kept = PAST_PHASES if past and query.which != LIVE else ()
    present = {text for one in readable for text in (one.phase, one.word)}
    # Each number is that of the rows which the choice would give with the other filters.
    only_text, live = replace(query, namespace="", state=""), query.which != PAST
    found = [one for one in readable if only_text.matches(one)] if live else []
    here = [one for one in found if query.namespace in ("", one.namespace)]
    numbers = Counter(text for one in here for text in (one.phase, one.word))
    states = [
        Choice(one, one, one == query.state, numbers[one] if live else None)
        for one in (*PHASES, *WORDS)
        if one in kept or one == query.state or (live and one in present)
    ]
    places = Counter(one.namespace for one in found if query.state in ("", one.phase, one.word))
    named = [Choice(name, name, name == query.namespace, places[name] if live else None) for name in namespaces]
    return Filters(
        text=query.text,
        namespaces=(Choice("", "all namespaces", not query.namespace), *named) if len(namespaces) > 1 else (),
        states=(Choice("", "all states", not query.state), *states),
        which=tuple(
            Choice(value, text, query.which == value)
            for value, text in ((_ALL, "live and past"), (LIVE, "live"), (PAST, "past"))
        ),
        sort="" if query.sort == "age" else query.sort,
        order=("desc" if query.descending else "asc") if query.descending != (query.sort in _DESCENDING_FIRST) else "",
        active=query.filters,
        clear=replace(query, text="", namespace="", state="", which=_ALL, page=0, after="").href,
    )


def _empty(shell: Shell, query: ListQuery, *, listed: bool) -> Empty:
    if not listed:
        return Empty("Frameworks are not known yet.")
    if query.which == PAST and not shell.past:
        return no_archive()
    if query.filters or query.page or query.after:
        return Empty("No Framework matches these filters.")
    if not shell.live:
        return Empty(
            "The archive has no Frameworks yet: the controller sends one when it is retried, completes or is deleted."
        )
    create = Command("Create one", "kubectl apply -f examples/batch/batchsucceeded.yaml", changes=True)
    return Empty("There are no Frameworks.", (create,))


def no_archive(problem: str = "so that only Frameworks that exist can be shown") -> Empty:
    """Return what to show where there is no archive. ``problem``: what is missing for that."""
    return Empty(
        f"There is no archive, {problem}. To keep all attempts, run an archive, "
        "have the controller send records to it (history.sink: http in its configuration), and name it here.",
        (
            Command("Run an archive", "frameworkcontroller history serve --database sqlite:///history.db"),
            Command(
                "Show it in these pages",
                "frameworkcontroller dashboard --history http://127.0.0.1:10281 --history-token-file history.db.token",
            ),
        ),
    )
