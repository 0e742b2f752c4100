"""Records that several pages show.

The class of a page, such as `FrameworkPage`, has the name of its template and the properties that the template reads.
In all of them:

- Foreign texts (messages, names of nodes) are untrusted. Templates escape them, and show them as text only.
- Times are seconds since the epoch, None for none. The filters of `rendering` format them.
- ``phase`` is a phase of the status in lower case. It is the class of a color.
- ``href`` is relative to the root of the pages: a template writes ``{{ shell.root }}{{ row.href }}``. "": no page.
- Nothing comes from a namespace that the viewer may not read: no object, and no share of a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final, Protocol

from frameworkcontroller.views.looks import LOOKS

PHASES: Final = tuple(phase.lower() for phase in LOOKS)
"""The phases, the most interesting one first."""


class NoteLevel(StrEnum):
    """How urgent a note is."""

    INFO = "info"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Note:
    """A remark at the top of a page. ``since``: its beginning."""

    level: NoteLevel
    text: str
    since: int | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """A link. ``current``: it leads to this page."""

    text: str
    href: str
    current: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """A command to copy. ``text``: quoted for a POSIX shell. ``changes``: it changes or deletes something.

    ``purpose``: an imperative ("Follow the logs of this Task").
    """

    purpose: str
    text: str
    changes: bool = False


@dataclass(frozen=True, slots=True)
class Empty:
    """An empty state: a message and suggested commands."""

    text: str
    commands: tuple[Command, ...] = ()


@dataclass(frozen=True, slots=True)
class Choice:
    """An option of a filter: its value in the query, and its text.

    ``number``: live Frameworks that it would show with the other filters; None if live ones are not shown.
    """

    value: str
    text: str
    selected: bool = False
    number: int | None = None


def choices(texts: Mapping[str, str], chosen: str) -> tuple[Choice, ...]:
    """Return options from their values and texts."""
    return tuple(Choice(value, text, value == chosen) for value, text in texts.items())


def namespace_choices(namespaces: Iterable[str], chosen: str) -> tuple[Choice, ...]:
    """Return the filter of namespaces; empty for a single one."""
    named = {name: name for name in namespaces}
    return choices({"": "all namespaces", **named}, chosen) if len(named) > 1 else ()


@dataclass(frozen=True, slots=True)
class Shell:
    """The data of the base template.

    ``root``: relative URL of the root of the pages, such as ``./`` or ``../../``. ``page``: frameworks, framework,
    task, failures, cost or error. ``now``: the time of the page. ``live``: live Frameworks are watched; ``past``: there
    is an archive. ``events``: URL for `EventSource`, relative to the root, "" for a page without updates; after each
    message ``changed`` the script fetches the page. ``scope``: the watched namespaces, such as "all namespaces" or
    "namespace default". ``user``: the name of the logged-in viewer, "" on loopback.
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


class Page(Protocol):
    """A page. ``template``: the file name of its template."""

    template: ClassVar[str]

    @property
    def shell(self) -> Shell: ...


@dataclass(frozen=True, slots=True)
class ErrorPage:
    """An error. ``status``: of HTTP."""

    template: ClassVar[str] = "error.html"
    shell: Shell
    status: int
    title: str
    text: str
