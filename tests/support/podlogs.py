"""A reader of logs, and the checks of the guarantee that logs outlive their Pods (L).

``LoggedHistory`` is ``tests.support.history`` with a stand-in for ``controller.logcapture`` whose log endpoint reads,
hangs, or answers an error text.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final

from frameworkcontroller.api.codec import decode_status
from frameworkcontroller.api.status import TaskStatus
from frameworkcontroller.machine.kernel.actions import Delete
from frameworkcontroller.machine.kernel.model import Capture, KeepLogs, Limits
from frameworkcontroller.machine.kernel.requests import Kind
from frameworkcontroller.machine.kernel.states import ENDED
from frameworkcontroller.machine.reconciler import Reconciler
from tests.support.driver import Controller
from tests.support.history import LIMITS, NAME, History
from tests.support.world import Body, World, uid_of

MODES: Final = ("reads", "hangs", "refuses")
CAPTURE_SEC: Final = 10.0
KEPT: Final = {keep: replace(LIMITS, keep_logs=keep, log_capture_sec=CAPTURE_SEC) for keep in KeepLogs}


@dataclass(slots=True, eq=False)
class _Asked:
    controller: Controller
    machine: Reconciler
    capture: Capture
    released: bool = False
    """Whether its deletion need not wait."""

    @property
    def uid(self) -> str:
        """The Pod's."""
        return self.capture.id.pod_uid or ""


@dataclass(slots=True)
class Reader:
    """Reads the logs of all processes. ``mode``: one of MODES. ``records``: by the UID of the Pod, the reasons."""

    world: World
    keep: KeepLogs
    mode: str = "reads"
    records: dict[str, list[str]] = field(default_factory=dict)
    excused: set[str] = field(default_factory=set)
    """UIDs of Pods whose logs a killed process was reading."""
    order: list[Capture] = field(default_factory=list)
    _asked: list[_Asked] = field(default_factory=list)
    _since: dict[tuple[Controller, str], float] = field(default_factory=dict)
    _released: set[tuple[Controller, str]] = field(default_factory=set)

    def capture(self, controller: Controller, machine: Reconciler, capture: Capture) -> None:
        """A machine asks for the logs of a Pod."""
        asked = _Asked(controller, machine, capture)
        self.order.append(capture)
        if (controller, asked.uid) in self._since and not capture.why:
            # Of one process, at most once for each of its trackers of the attempt.
            self.world.tell(f"the logs of {capture.pod_name} are asked for again")
        self._since.setdefault((controller, asked.uid), self.world.clock)
        if capture.why:
            self._record(asked, capture.why)
            self._release(asked)
            return
        if not capture.runs:
            raise self.world.violation(f"L: asks for the logs of {capture.pod_name}, which has none")
        if capture.until > self.world.clock + CAPTURE_SEC:
            raise self.world.violation("L: a deletion may wait longer than captureSeconds")
        self._asked.append(asked)

    def step(self) -> bool:
        """Continue one log. Return False if none can."""
        return any(self._step(asked) for asked in self._asked)

    def next_wake(self) -> float | None:
        """When the next one is over by itself (monotonic seconds)."""
        waiting = [one.capture.until for one in self._asked if not one.released]
        return min(waiting, default=None)

    def _step(self, asked: _Asked) -> bool:
        exists = self.world.find(Kind.POD, asked.uid) is not None
        if asked.released:
            # Followed: it ends with its Pod.
            if not exists:
                self._end(asked, "")
            return not exists
        if self.world.clock >= asked.capture.until:
            self._release(asked)
            self._end(asked, "its node did not send it in time")
        elif self.mode == "hangs":
            return False
        elif self.mode == "refuses" or not exists:
            self._end(asked, "its node answers: failed")
            self._release(asked)
        elif asked.capture.follow:
            self._release(asked)
        else:
            self._end(asked, "")
            self._release(asked)
        return True

    def _end(self, asked: _Asked, why: str) -> None:
        self._asked.remove(asked)
        self._record(asked, why)

    def _record(self, asked: _Asked, why: str) -> None:
        self.world.tell(f"log of {asked.capture.pod_name} ({asked.uid}): {why or 'read'}")
        self.records.setdefault(asked.uid, []).append(why)

    def _release(self, asked: _Asked) -> None:
        asked.released = True
        self._released.add((asked.controller, asked.uid))
        if asked.machine.on_captured(asked.uid):
            asked.controller.enqueue(asked.machine)

    def killed(self, controller: Controller) -> None:
        """A process is gone, with the logs that it was reading."""
        gone = [one for one in self._asked if one.controller is controller]
        self.excused |= {one.uid for one in gone}
        self._asked = [one for one in self._asked if one.controller is not controller]

    def is_asked(self, uid: str) -> bool:
        """Whether a process reads or follows the logs of the Pod."""
        return any(one.uid == uid for one in self._asked)

    # --- checks ------------------------------------------------------------------------------------------------------

    def covers(self, task: TaskStatus) -> bool:
        """Whether the logs of the attempt of a Task are kept."""
        completion = task.attempt.completion_status
        return self.keep is KeepLogs.ALL or (completion is not None and completion.unexpected)

    def check_deletion(self, controller: Controller, action: Delete, seen: set[str]) -> None:
        """L: no Pod that has run is deleted before its logs are read, or followed, or were waited for long enough.

        ``seen``: UIDs of Pods that the controller has seen to run.
        """
        if action.unrecorded or action.force or action.confirm or self.keep is KeepLogs.NONE:
            return
        body = self.world.objects[Kind.FRAMEWORK].get(NAME)
        tasks = {task.attempt.pod_uid: task for task in _tasks(body)}
        for pod in controller.cache.pods.values():
            is_owned = action.target.kind is Kind.CONFIGMAP and pod.identity.controller_uid == action.uid
            task = tasks.get(pod.uid)
            if pod.uid not in seen or pod.identity.deleting or not (is_owned or pod.uid == action.uid):
                continue
            if task is None or task.state in ENDED or not self.covers(task):
                continue
            since = self._since.get((controller, pod.uid))
            is_over = since is not None and self.world.clock >= since + CAPTURE_SEC
            if not is_over and (controller, pod.uid) not in self._released:
                raise self.world.violation(f"L: {pod.name} is deleted before its log is read")

    def check_status(self, body: Body) -> None:
        """L: of each attempt that has ended, the log is kept, or the reason why not."""
        for task in _tasks(body):
            uid = task.attempt.pod_uid
            if uid is None or task.attempt.run_time is None or task.state not in ENDED or not self.covers(task):
                continue
            if uid not in self.records and uid not in self.excused and not self.is_asked(uid):
                raise self.world.violation(f"L: the attempt of {task.role}[{task.index}] ends, and its log is lost")

    def check_all_kept(self) -> None:
        """L: nothing is pending any longer."""
        while self.step():
            pass
        if self._asked:
            raise self.world.violation(f"L: logs are read for ever: {[one.capture.pod_name for one in self._asked]}")


def _tasks(body: Body | None) -> Iterator[TaskStatus]:
    status = None if body is None else decode_status(body.get("status"))
    for role in () if status is None else status.attempt.roles:
        yield from role.tasks


class LoggedHistory(History):
    """A history of a controller that keeps logs."""

    def __init__(self, seed: int = 0, *, keep: KeepLogs = KeepLogs.ALL, limits: Limits | None = None, **options: Any):
        super().__init__(seed, limits=KEPT[keep] if limits is None else limits, **options)
        self.reader = Reader(self.world, keep)
        self.others.append(self.reader.step)
        self.wakes.append(self._next_wake)
        self.world.check_each(Kind.FRAMEWORK, self._check)
        for controller in self.controllers:
            controller.logs = self.reader

    def _start(self, name: str) -> Controller:
        controller = super()._start(name)
        if hasattr(self, "reader"):
            controller.logs = self.reader
        return controller

    def _check(self, body: Body) -> None:
        if uid_of(body):
            self.reader.check_status(body)

    def _next_wake(self) -> float | None:
        clock = self.reader.next_wake()
        return None if clock is None else self.world.now + clock - self.world.clock

    # --- what happens ------------------------------------------------------------------------------------------------

    def crash(self, which: int) -> None:
        self.reader.killed(self.controllers[which % len(self.controllers)])
        super().crash(which)

    def take_over(self) -> None:
        if self._standby is not None:
            self.reader.killed(self.controllers[0])
        super().take_over()

    def set_reader(self, mode: str) -> None:
        """From now on the log endpoint works in this way."""
        self.world.tell(f"the log endpoint {mode}")
        self.reader.mode = mode

    def step_reader(self, steps: int) -> None:
        """Some logs are read."""
        for _ in range(steps):
            if not self.reader.step():
                break

    def finish(self) -> None:
        super().finish()
        self.set_reader("reads")
        self.reader.check_all_kept()
