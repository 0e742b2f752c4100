"""The subjects and times of later plans: the one place for "look again"."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import Enum, auto
from typing import Final

from frameworkcontroller.deadlines import Deadlines
from frameworkcontroller.machine.kernel.model import Env

TaskKey = tuple[str, int]
"""Role and index of a Task."""


class Scope(Enum):
    """Subjects that are no single object."""

    ROLES = auto()
    """Tasks to be added or removed."""
    TASKLESS = auto()
    """Pods without a Task."""


class When(Enum):
    """When to look again, if not at a time."""

    NOW = auto()
    """In the next plan."""
    PERSISTED = auto()
    """In the first plan after the tracked status is stored: a write causes no event."""


NOW: Final = When.NOW
PERSISTED: Final = When.PERSISTED


class Agenda:
    """The Framework, Tasks and scopes that plans look at.

    Tasks are in the order of their latest events, which decides which of two completes first. The next time of the
    Framework is kept until the next plan, which finds it again. ``Holds`` has the Tasks that wait for a reason, and
    ``wake`` takes them once it ends. How soon the status is stored is another question: the urgency of the tracker.
    """

    __slots__ = (
        "_alarms",
        "_awaiting",
        "_deadlines",
        "_framework",
        "_framework_at",
        "_framework_awaits",
        "_framework_deadline",
        "_keys",
        "roles_due",
        "taskless_due",
    )

    def __init__(self) -> None:
        self._keys: dict[TaskKey, None] = {}
        self._alarms: Deadlines[TaskKey] = Deadlines()
        self._deadlines: dict[TaskKey, dict[float, float]] = {}
        self._awaiting: dict[TaskKey, None] = {}
        self._framework = self._framework_awaits = False
        self._framework_at: float | None = None
        self.roles_due = True
        """Whether ``Scope.ROLES`` is to be looked at."""
        self.taskless_due = False
        """Whether ``Scope.TASKLESS`` is."""
        self._framework_deadline: tuple[float, float] | None = None
        """Not in the dict: most Frameworks of a big cluster are completed, and have no other deadline."""

    def look(self, what: TaskKey | Scope | str | None = None, when: When | float = NOW) -> None:
        """Look at a Task, a scope or, with it all objects of parts (None or a key of one), the Framework.

        ``when``: a time (monotonic seconds) means then at the latest. A Task that is looked at now goes to the end.
        """
        if isinstance(what, tuple):
            if when is NOW:
                self._keys.pop(what, None)
                self._keys[what] = None
            elif when is PERSISTED:
                self._awaiting[what] = None
            elif (current := self._alarms.get(what)) is None or when < current:
                self._alarms.set(what, when)
        elif what is Scope.ROLES:
            self.roles_due = True
        elif what is Scope.TASKLESS:
            self.taskless_due = True
        elif when is NOW:
            self._framework = True
        elif when is PERSISTED:
            self._framework_awaits = True
        elif self._framework_at is None or when < self._framework_at:
            self._framework_at = when

    def wake(self, keys: Iterable[TaskKey]) -> None:
        """Look at Tasks now; those on the agenda keep their places."""
        for key in keys:
            self._keys.setdefault(key)

    def __bool__(self) -> bool:
        return bool(self._keys)

    def __iter__(self) -> Iterator[TaskKey]:
        return iter(self._keys)

    @property
    def is_due(self) -> bool:
        """Whether the next plan has something to look at."""
        return self._framework or bool(self._keys)

    @property
    def is_awaited(self) -> bool:
        """Whether Tasks wait for the status to be stored."""
        return bool(self._awaiting)

    def next_time(self) -> float | None:
        """The next time to look at something, in monotonic seconds."""
        of_framework, of_tasks = self._framework_at, self._alarms.next()
        if of_framework is None or of_tasks is None:
            return of_tasks if of_framework is None else of_framework
        return min(of_framework, of_tasks)

    # --- plans ---

    def begin(self, clock: float) -> None:
        """Begin a plan: it looks at the Framework, and at the Tasks whose time has come."""
        self._framework = False
        self.ring(clock)

    def ring(self, clock: float) -> None:
        """Put the Tasks whose time has come on the agenda."""
        while (key := self._alarms.pop_due(clock)) is not None:
            self.look(key)

    def forget_time(self) -> None:
        """Forget when to look at the Framework, before a plan that finds it."""
        self._framework_at = None

    def on_persisted(self) -> None:
        """The status is stored."""
        self.wake(self._awaiting)
        self._awaiting.clear()
        self._framework |= self._framework_awaits
        self._framework_awaits = False

    def clear(self) -> None:
        self._keys.clear()

    def take(self) -> list[TaskKey]:
        """Take all Tasks off the agenda, in order."""
        keys = list(self._keys)
        self._keys.clear()
        return keys

    # --- deadlines ---

    def deadline(self, key: TaskKey | None, since: float, seconds: float, env: Env) -> float:
        """Return ``since`` (seconds since the epoch) plus ``seconds`` in monotonic seconds.

        Computed once per state of the Task or (None) Framework, so setting the wall clock does not change the wait,
        which never exceeds ``seconds``.
        """
        due = since + seconds
        if key is None:
            if self._framework_deadline is None or self._framework_deadline[0] != due:
                self._framework_deadline = due, env.clock + max(0.0, min(due - env.now, seconds))
            return self._framework_deadline[1]
        of_task = self._deadlines.setdefault(key, {})
        if due not in of_task:
            of_task[due] = env.clock + max(0.0, min(due - env.now, seconds))
        return of_task[due]

    def end_deadlines(self, key: TaskKey | None) -> None:
        """Forget the deadlines of a Task or (None) the Framework, whose state changes."""
        if key is None:
            self._framework_deadline = None
        else:
            self._deadlines.pop(key, None)

    # --- Tasks that go ---

    def keep(self, exists: Callable[[TaskKey], object]) -> None:
        """Forget the deadlines of Tasks that no longer exist."""
        self._deadlines = {key: due for key, due in self._deadlines.items() if exists(key)}

    def forget_tasks(self) -> None:
        """Forget all Tasks; the Framework's deadline stays."""
        self._keys.clear()
        self._awaiting.clear()
        self._alarms.clear()
        self._deadlines.clear()
