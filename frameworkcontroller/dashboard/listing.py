"""The list of Frameworks: filters, order and pages of the live ones, followed by past ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, NamedTuple
from urllib.parse import urlencode

from frameworkcontroller.dashboard.rows import FrameworkRow
from frameworkcontroller.dashboard.views import PHASES, Choice, Command, Empty, Shell, choices, namespace_choices
from frameworkcontroller.history.reads import PHASES as PAST_PHASES
from frameworkcontroller.views.summary import WORDS

ROWS: Final = 100
"""Of a page."""

_MOST_TEXT: Final = 200
_ALL: Final = ""
LIVE: Final = "live"
PAST: Final = "past"

_PHASE_ORDER: Final = {phase: number for number, phase in enumerate(PHASES)}


_KEYS: Final[Mapping[str, Callable[[FrameworkRow], Any]]] = {
    "name": lambda one: one.name,
    "namespace": lambda one: (one.namespace, one.name),
    "phase": lambda one: (_PHASE_ORDER[one.phase], one.word),
    "why": lambda one: (not one.message, one.result, one.message),
    "tasks": lambda one: one.tasks,
    "progress": lambda one: -1 if one.progress is None else one.progress.percentage or 0,
    "retries": lambda one: one.retries + one.task_retries,
    "age": lambda one: -(one.created or 0),
}
"""The key of each column in ascending order."""

_DESCENDING_FIRST: Final = frozenset({"tasks", "progress", "retries"})

_COLUMNS: Final = ("namespace", "name", "phase", "why", "tasks", "progress", "retries", "age")


@dataclass(frozen=True, slots=True)
class ListQuery:
    """The query of the list's URL. ``phase``: a phase or a word.

    ``page``: of live ones, from 0. ``after``: the archive's mark of a page of past ones.
    """

    text: str = ""
    namespace: str = ""
    phase: str = ""
    which: str = _ALL
    sort: str = "age"
    descending: bool = False
    page: int = 0
    after: str = ""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> ListQuery:
        """Read the query of a URL. Unknown values count as absent."""
        sort, order = query.get("sort", ""), query.get("order", "")
        sort = sort if sort in _KEYS else "age"
        phase, which, page = query.get("phase", ""), query.get("which", ""), query.get("page", "")
        return cls(
            text=query.get("q", "")[:_MOST_TEXT].strip(),
            namespace=query.get("namespace", ""),
            phase=phase if phase in PHASES or phase in WORDS else "",
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
            "phase": self.phase,
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
        return bool(self.text or self.namespace or self.phase or self.which)

    def matches(self, one: FrameworkRow) -> bool:
        """Return whether the list shows this live Framework."""
        if self.namespace and one.namespace != self.namespace:
            return False
        if self.phase and self.phase not in (one.phase, one.word):
            return False
        if not self.text:
            return True
        texts = (one.phase, one.word, one.message, one.state, one.result, one.queue, one.uid)
        found = " ".join((f"{one.namespace}/{one.name}", *texts)).lower()
        return all(word in found for word in self.text.lower().split())

    def ordered(self, found: Iterable[FrameworkRow]) -> list[FrameworkRow]:
        """Return them in the order of the list; equal ones by name."""
        ranked = sorted(found, key=lambda one: (one.name, one.namespace))
        ranked.sort(key=_KEYS[self.sort], reverse=self.descending)
        return ranked


@dataclass(frozen=True, slots=True)
class PastRows:
    """Past Frameworks after the live ones of a page. ``next``: the archive's mark of the next page, "" for none."""

    rows: Sequence[FrameworkRow] = ()
    next: str = ""


def live_rows(query: ListQuery, matched: Sequence[FrameworkRow]) -> Sequence[FrameworkRow]:
    """Return the page's live Frameworks; none on a page of past ones."""
    if query.after or query.which == PAST:
        return ()
    return matched[query.page * ROWS : (query.page + 1) * ROWS]


class ListColumn(NamedTuple):
    """A column. ``href``: the list sorted by it, in the other direction if it already is.

    ``sorted``: "ascending", "descending" or "".
    """

    key: str
    title: str
    href: str
    sorted: str


class FrameworkList:
    """The table of Frameworks. Live ones come first, then past ones, newest first.

    ``matched``: the number of live Frameworks that match the filters; ``live_total``: of all that the viewer may read.
    ``first_row``: the number of the first row among the live ones, from 1. ``newer``, ``older``: neighboring pages.
    """

    template: ClassVar[str] = "frameworks.html"

    def __init__(
        self,
        shell: Shell,
        query: ListQuery,
        readable: Collection[FrameworkRow],
        matched: Sequence[FrameworkRow],
        past: PastRows,
        namespaces: Sequence[str],
        *,
        listed: bool = True,
    ) -> None:
        """``readable``: live Frameworks that the viewer may read; ``matched``: the matching ones, in order.

        ``namespaces``: for the filter. ``listed``: live ones are known.
        """
        self.shell = shell
        self.query = query
        self.shows_live = query.which != PAST
        matched = matched if self.shows_live else ()
        shown = live_rows(query, matched)
        self.rows = (*shown, *past.rows)
        self.matched = len(matched)
        self.live_total = len(readable)
        self.first_row = query.page * ROWS + 1
        self.older = self.newer = ""
        if len(shown) == ROWS and ((query.page + 1) * ROWS < len(matched) or (shell.past and query.which != LIVE)):
            self.older = replace(query, page=query.page + 1).href
        elif past.next:
            self.older = replace(query, page=0, after=past.next).href
        if query.after:
            self.newer = replace(query, page=0, after="").href
        elif query.page:
            self.newer = replace(query, page=query.page - 1).href
        hidden = {
            *(() if len(namespaces) > 1 else ("namespace",)),
            *(() if any(one.progress for one in matched) else ("progress",)),
        }
        self.columns = tuple(_columns(query, hidden))
        self.namespaces, self.phases = self._filters(readable, namespaces)
        self.which = choices({_ALL: "live and past", LIVE: "live", PAST: "past"}, query.which)
        self.sort = "" if query.sort == "age" else query.sort
        is_usual = query.descending == (query.sort in _DESCENDING_FIRST)
        self.order = "" if is_usual else "desc" if query.descending else "asc"
        self.clear = replace(query, text="", namespace="", phase="", which=_ALL, page=0, after="").href
        self.empty = None if self.rows else _empty(shell, query, listed=listed)

    def _filters(
        self, readable: Collection[FrameworkRow], namespaces: Sequence[str]
    ) -> tuple[tuple[Choice, ...], tuple[Choice, ...]]:
        """Return the choices of namespaces and of phases. Each has the number of rows under the other filters."""
        query, live = self.query, self.shows_live
        # Past Frameworks, which are not counted, are in one of these phases.
        kept = PAST_PHASES if self.shell.past and query.which != LIVE else ()
        present = {text for one in readable for text in (one.phase, one.word)}
        only_text = replace(query, namespace="", phase="")
        found = [one for one in readable if only_text.matches(one)] if live else []
        here = [one for one in found if query.namespace in ("", one.namespace)]
        phases = Counter(text for one in here for text in (one.phase, one.word))
        places = Counter(one.namespace for one in found if query.phase in ("", one.phase, one.word))
        listed = [one for one in (*PHASES, *WORDS) if one in kept or one == query.phase or (live and one in present)]

        def numbered(found: Iterable[Choice], numbers: Mapping[str, int]) -> tuple[Choice, ...]:
            return tuple(replace(one, number=numbers[one.value]) if live and one.value else one for one in found)

        return (
            numbered(namespace_choices(namespaces, query.namespace), places),
            numbered(choices({"": "all phases", **{one: one.capitalize() for one in listed}}, query.phase), phases),
        )


def _columns(query: ListQuery, hidden: Collection[str]) -> Iterable[ListColumn]:
    for key in _COLUMNS:
        if key in hidden:
            continue
        is_sorted = key == query.sort
        descending = not query.descending if is_sorted else key in _DESCENDING_FIRST
        href = replace(query, sort=key, descending=descending, page=0, after="").href
        order = ("descending" if query.descending else "ascending") if is_sorted else ""
        yield ListColumn(key, key.capitalize(), href, order)


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
    """Return the empty state without an archive. ``problem``: its consequence."""
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
