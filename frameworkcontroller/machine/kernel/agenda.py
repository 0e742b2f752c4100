"""The Tasks that the next plan looks at, and the times at which later plans look at others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from frameworkcontroller.deadlines import Deadlines
from frameworkcontroller.machine.kernel.model import Env

TaskKey = tuple[str, int]
"""Role and index of a Task."""


class Agenda:
    """What the next plan looks at: the Framework itself, its roles, its Pods and Tasks.

    Tasks are in the order of their latest events, which decides which of two completes first.
    """

    __slots__ = ("_alarms", "_blocked", "_deadlines", "_framework", "_framework_deadline", "_keys", "roles_due", "scan")

    def __init__(self) -> None:
        self._keys: dict[TaskKey, None] = {}
        self._alarms: Deadlines[TaskKey] = Deadlines()
        self._deadlines: dict[TaskKey, dict[float, float]] = {}
        self._blocked: dict[TaskKey, None] = {}
        self._framework = False
        self.roles_due = True
        """Whether Tasks may have to be added or removed."""
        self.scan = False
        """Whether to look for orphaned Pods."""
        self._framework_deadline: tuple[float, float] | None = None
        """Not in the dict: most Frameworks of a big cluster are completed, and have no other deadline."""

    def __bool__(self) -> bool:
        return bool(self._keys)

    @property
    def is_due(self) -> bool:
        """Whether there is something to look at."""
        return self._framework or bool(self._keys)

    @property
    def is_awaited(self) -> bool:
        """Whether Tasks wait for the status to be persisted."""
        return bool(self._blocked)

    def look(self) -> None:
        """Look at the Framework itself, once its status is persisted."""
        self._framework = True

    def look_at_roles(self) -> None:
        """Look whether Tasks are to be added or removed."""
        self.roles_due = True

    def look_at_all(self, keys: Iterable[TaskKey]) -> None:
        """Look at the Framework, at these Tasks, and for orphaned Pods."""
        self._framework = self.scan = True
        self.update(keys)

    def look_once_persisted(self, *keys: TaskKey) -> None:
        """Put the Tasks on the agenda once the status is persisted."""
        self._blocked.update(dict.fromkeys(keys))

    def persisted(self) -> None:
        """The status is persisted."""
        self.update(self._blocked)
        self._blocked.clear()

    def begin(self, clock: float) -> None:
        """Begin a plan: it looks at the Framework, and at the Tasks whose alarms are due."""
        self._framework = False
        self.ring(clock)

    def __iter__(self) -> Iterator[TaskKey]:
        return iter(self._keys)

    def add(self, key: TaskKey) -> None:
        """Put the Task at the end of the agenda."""
        self._keys.pop(key, None)
        self._keys[key] = None

    def update(self, keys: Iterable[TaskKey]) -> None:
        """Put Tasks on the agenda; those on it keep their places."""
        for key in keys:
            self._keys.setdefault(key)

    def clear(self) -> None:
        """Take all Tasks off the agenda."""
        self._keys.clear()

    def take(self) -> list[TaskKey]:
        """Take all Tasks off the agenda, in order."""
        keys = list(self._keys)
        self._keys.clear()
        return keys

    # --- alarms ---

    def set_alarm(self, key: TaskKey, when: float) -> None:
        """Put the Task on the agenda at ``when`` (monotonic seconds) or earlier."""
        current = self._alarms.get(key)
        if current is None or when < current:
            self._alarms.set(key, when)

    def ring(self, clock: float) -> None:
        """Put the Tasks with due alarms on the agenda."""
        while (key := self._alarms.pop_due(clock)) is not None:
            self.add(key)

    def next_alarm(self) -> float | None:
        """Time of the next alarm, in monotonic seconds."""
        return self._alarms.next()

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
        self._blocked.clear()
        self._alarms.clear()
        self._deadlines.clear()
