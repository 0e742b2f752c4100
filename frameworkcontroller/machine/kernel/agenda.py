"""The Tasks that the next plan looks at, and the times at which later plans look at others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from frameworkcontroller.api.spec import TaskRoleSpec
from frameworkcontroller.deadlines import Deadlines
from frameworkcontroller.machine.kernel.model import Env

TaskKey = tuple[str, int]
"""Role and index of a Task."""


class ClaimAgenda:
    """The volume claims that the next plan looks at, by name."""

    __slots__ = ("_due", "_names", "changing", "paced", "policies", "scan", "unlisted")

    def __init__(self) -> None:
        self._names: dict[str, None] = {}
        self._due: dict[str, None] = {}
        self.scan = False
        """Whether to look at all claims of the Framework."""
        self.changing: set[str] = set()
        """Claims with an action whose outcome is not known. What it changes is an event of its own."""
        self.unlisted: set[TaskKey] = set()
        """Tasks that wait until the claims are listed."""
        self.paced: Deadlines[str] = Deadlines()
        """Claims to change after a pause, and its end (monotonic seconds)."""
        self.policies: dict[str, TaskRoleSpec] = {}
        """The last specs of roles by name, without Pods, of which the policies count for claims."""

    def __bool__(self) -> bool:
        return bool(self._names or self._due)

    def add(self, name: str) -> None:
        """Look at the claim in the next plan."""
        self._names[name] = None

    def retry(self, name: str) -> None:
        """Look at the claim again after the back-off."""
        self._due[name] = None

    def take(self, *, again: bool) -> list[str]:
        """Take the claims. ``again``: also those that waited for the end of the back-off."""
        taken = {**self._due, **self._names} if again else self._names
        self._names = {}
        if again:
            self._due = {}
        return list(taken)


class Agenda:
    """Tasks in the order of their latest events, which decides which of two completes first."""

    __slots__ = ("_alarms", "_deadlines", "_framework_deadline", "_keys")

    def __init__(self) -> None:
        self._keys: dict[TaskKey, None] = {}
        self._alarms: Deadlines[TaskKey] = Deadlines()
        self._deadlines: dict[TaskKey, dict[float, float]] = {}
        self._framework_deadline: tuple[float, float] | None = None
        """Not in the dict: most Frameworks of a big cluster are completed, and have no other deadline."""

    def __bool__(self) -> bool:
        return bool(self._keys)

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
        self._alarms.clear()
        self._deadlines.clear()
