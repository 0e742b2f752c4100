"""Programs that report progress, servers that take their reports, and the checks of the guarantee N.

``HangHistory`` is ``tests.support.history`` with report servers: the leader's own and another replica's. Each
progress of the program counts whose report a server took, or could not take because of this controller.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Final

from frameworkcontroller.api import names
from frameworkcontroller.api.progressreports import decode_progress
from frameworkcontroller.api.status import FrameworkStatus, ProgressStatus, State
from frameworkcontroller.machine.kernel.requests import Kind
from frameworkcontroller.machine.parts.hangs.hangs import READ_SEC, WRITE_SEC
from tests.support.driver import Controller
from tests.support.history import CONFIGMAP, History
from tests.support.progresshistory import REPORTED
from tests.support.world import Body, Fate, is_deleting, name_of, uid_of
from tests.support.writtenreports import report_text

INTERVAL: Final = 10
DEADLINE: Final = 100
START: Final = 150
SLACK: Final = INTERVAL + WRITE_SEC
_TASK: Final[dict[str, Any]] = {"retryPolicy": {"maxRetryCount": -2}}
SPEC: Final[dict[str, Any]] = {
    "executionType": "Start",
    "retryPolicy": {"fancyRetryPolicy": True},
    "progress": {"intervalSeconds": INTERVAL, "deadlineSeconds": DEADLINE, "startDeadlineSeconds": START},
    "taskRoles": [{"name": name, "taskNumber": 1, "task": _TASK} for name in "ab"],
}
_STEPS: Final = 2000


@dataclass(slots=True)
class Server:
    """The report server of one replica. ``skew``: of its wall clock. ``late``: seconds that its writes take."""

    skew: float = 0.0
    late: float = 0.0
    up: bool = True
    written_at: float = -1000.0
    due: float | None = None
    """When its next write lands."""
    pending: tuple[str, int, bool, bool] | None = None
    """UID of the ConfigMap, the step, and whether it is a change and a checkpoint."""


class HangHistory(History):
    """One history of a Framework whose Pods report."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed, limits=REPORTED)
        self.rng = random.Random(~seed)
        self.own, self.other = Server(), Server()
        self.step = 0
        self.trained: list[tuple[str, float]] = []
        """UID of the ConfigMap, and time, of each progress that counts."""
        self.stalled = False
        """Whether no change of the ConfigMap reaches the caches."""
        self.away = False
        """Whether the API server does not answer controllers and report servers."""
        self.paused = False
        """Whether the controller's process stands still."""
        self.disturbed_at = 0.0
        """When a Task last had no running Pod, or something else was a reason for no progress."""
        self.known_since = 0.0
        """Since when this process would know of each report."""
        self.read_at: float | None = None
        self.ended: set[str] = set()
        """UIDs of the ConfigMaps of attempts that hang, by the controller."""
        self.guarantees.on_progress_read = self._on_read
        self.guarantees.on_hang = self._on_hang
        self._know()
        self.create(SPEC)

    # --- truth ---

    @property
    def is_calm(self) -> bool:
        """Whether nothing is a reason for no progress."""
        status, framework = self.status, self.framework
        if status is None or framework is None or is_deleting(framework) or framework["spec"].get("suspend"):
            return False
        tasks = [task for role in status.attempt.roles for task in role.tasks]
        wanted = sum(role["taskNumber"] for role in framework["spec"]["taskRoles"])
        rest = all(task.state in (State.RUNNING, State.COMPLETED) and not task.is_leaving for task in tasks)
        running = [pod for pod in self.pods() if pod["status"]["phase"] == "Running" and not is_deleting(pod)]
        completed = sum(task.state is State.COMPLETED for task in tasks)
        return status.state is State.RUNNING and rest and len(running) + completed == len(tasks) == wanted

    def _on_read(self) -> None:
        self.read_at = self.world.clock

    def _on_hang(self, _: str, before: FrameworkStatus) -> None:
        uid, clock, read_at = before.attempt.configmap_uid or "", self.world.clock, self.read_at
        if uid in self.ended:
            return
        if read_at is None or clock - read_at > READ_SEC:
            raise self.world.violation(f"N: ended without a live read of its progress: {read_at}")
        body = self.configmap
        interval = None if body is None else body["data"].get(names.INTERVAL_KEY)
        if interval is None:
            raise self.world.violation("N: ended, and its Pods cannot report")
        seconds = START if self._stored(uid) is None else DEADLINE
        end = read_at - int(interval) - WRITE_SEC
        late = [at for of, at in self.trained if of == uid and end - seconds + 0.01 < at <= end]
        if late:
            raise self.world.violation(f"N: ended at {clock}, and it made progress at {late}")
        if self.disturbed_at > read_at - seconds:
            raise self.world.violation(f"N: ended at {clock}, and its Tasks did not run at {self.disturbed_at}")
        if self.known_since > read_at - seconds:
            raise self.world.violation(
                f"N: ended at {clock}, by a process that knows of reports since {self.known_since}"
            )
        self.ended.add(uid)
        self.world.tell(f"(attempt {uid} hangs)")

    def _stored(self, uid: str) -> ProgressStatus | None:
        body = self.configmap
        if body is None or uid_of(body) != uid:
            return None
        return decode_progress((body.get("data") or {}).get(names.PROGRESS_KEY), 0)

    # --- programs ---

    def train(self, seconds: float, gap: float = DEADLINE, *, checkpoint: bool = False, lost: bool = False) -> None:
        """The program makes progress, each time after ``gap`` seconds. ``lost``: no report reaches a server."""
        end = self.world.clock + seconds
        while self.world.clock < end:
            if not lost:
                self.progress(checkpoint=checkpoint)
            self.advance(min(gap, end - self.world.clock))

    def progress(self, *, checkpoint: bool = False) -> None:
        """One report with progress."""
        self.step += 1
        self._report(is_change=True, checkpoint=checkpoint)

    def repeat(self, seconds: float) -> None:
        """The program reports without progress."""
        end = self.world.clock + seconds
        while self.world.clock < end:
            self.report_without_progress()
            self.advance(7)

    def report_without_progress(self) -> None:
        """One report without progress."""
        self._report(is_change=False)

    def report_of_another_attempt(self) -> None:
        """A late report of an attempt that is over, or of another Framework's Pod."""
        self.world.tell("a server refuses a foreign report")
        self._take(self.other, "another", is_change=True, checkpoint=True)

    def _report(self, *, is_change: bool, checkpoint: bool = False) -> None:
        body = self.configmap
        if body is None or not self._can_report(body) or names.INTERVAL_KEY not in body["data"]:
            return
        server = self.rng.choice([self.own, self.other])
        if self.away or not server.up:
            self.world.tell(f"program: step {self.step}, and no server takes the report")
            if is_change and (self.away or server is self.own):
                self.trained.append((uid_of(body), self.world.clock))
            return
        self.world.tell(f"program: step {self.step}{' with a checkpoint' * checkpoint}")
        if is_change:
            self.trained.append((uid_of(body), self.world.clock))
        self._take(server, uid_of(body), is_change=is_change, checkpoint=checkpoint)

    def _can_report(self, body: Body) -> bool:
        return any(
            pod["status"]["phase"] == "Running"
            and any(one["uid"] == uid_of(body) for one in pod["metadata"].get("ownerReferences") or ())
            for pod in self.world.objects[Kind.POD].values()
        )

    # --- report servers ---

    def _take(self, server: Server, uid: str, *, is_change: bool, checkpoint: bool) -> None:
        body = self.configmap
        if body is None or uid_of(body) != uid:
            return
        before = server.pending
        if before is not None and before[0] == uid:
            is_change, checkpoint = is_change or before[2], checkpoint or before[3]
        server.pending = uid, self.step, is_change, checkpoint
        interval = int(body["data"][names.INTERVAL_KEY])
        at_once = checkpoint or self._stored(uid) is None
        due = max(self.world.clock, server.written_at + (0 if at_once else interval)) + server.late
        server.due = due if server.due is None else min(server.due, due)

    def _write(self, server: Server) -> None:
        """A write that is due lands. While the API server is away, it is repeated once that is back."""
        if server.due is None or server.due > self.world.clock or self.away:
            return
        pending, server.pending, server.due = server.pending, None, None
        server.written_at = self.world.clock
        body = self.configmap
        if pending is None or body is None or uid_of(body) != pending[0]:
            return
        uid, step, is_change, is_checkpoint = pending
        stored = self._stored(uid) or ProgressStatus()
        now = int(self.world.now + server.skew)
        changed, checkpoint = stored.last_change_time, stored.last_checkpoint_time
        found = ProgressStatus(
            step=step,
            last_report_time=max(now, stored.last_report_time or now),
            last_change_time=_later(changed, now) if is_change or changed is None else changed,
            last_checkpoint_time=_later(checkpoint, now) if is_checkpoint else checkpoint,
        )
        value = report_text(found)
        self.world.tell(f"server: writes step {step}")
        self.world.edit(Kind.CONFIGMAP, CONFIGMAP, lambda one: one["data"].update({names.PROGRESS_KEY: value}))

    def set_server(self, *, up: bool) -> None:
        """The leader's report server ends, or is back. It writes its reports before."""
        if up != self.own.up:
            self.world.tell(f"the report server is {'up' if up else 'down'}")
            self.own.up = up
            if not up:
                self.own.due = None if self.own.pending is None else self.world.clock
                self._write(self.own)
            self._know()

    def set_other(self, *, skew: float, late: float) -> None:
        """The clock and the speed of the other replica's server."""
        self.other.skew, self.other.late = skew, late

    def set_away(self, *, away: bool) -> None:
        """The API server is away, or back."""
        if away != self.away:
            self.world.tell(f"the API server is {'away' if away else 'back'}")
            self.away = away
            for server in (self.own, self.other):
                if server.pending is not None and not away:
                    server.due = self.world.clock
                    self._write(server)
            self._know()

    # --- knowledge ---

    def _know(self) -> None:
        """The knowledge of the controller begins at this time, or ends."""
        self.known_since = self.world.clock
        knows = self.own.up and not self.away and not self.blind
        for controller in self.controllers:
            controller.reports_since = self.world.clock if knows else None

    blind = False
    """Whether the watch of ConfigMaps is known to be broken."""

    def set_blind(self, *, blind: bool) -> None:
        """The watch of ConfigMaps breaks, or its cache is current again."""
        if blind != self.blind:
            self.world.tell(f"the watch is {'broken' if blind else 'current'}")
            self.blind = blind
            if not blind:
                self.deliver(0, 1, 1000)
            self._know()

    def lose_lease(self) -> None:
        """The controller loses its lease, and gets it again."""
        self.world.tell("the lease is lost and won again")
        self._know()

    def crash(self, which: int) -> None:
        super().crash(which)
        self._died()

    def take_over(self) -> None:
        super().take_over()
        self._died()

    def _died(self) -> None:
        self.own = Server(up=self.own.up)
        self._know()

    # --- time ---

    def advance(self, seconds: float) -> None:
        """Time passes, and everything works that is not broken."""
        end = self.world.clock + seconds
        self._work()
        while self.world.clock < end:
            (controller,) = self.controllers
            dues = [server.due for server in (self.own, self.other)]
            wakes = [end, *(due for due in dues if due is not None and not self.away)]
            if controller.requeue_at is not None and not self.paused:
                wakes.append(max(controller.requeue_at, self.world.clock + 0.001))
            self.world.go_until(max(min(wakes), self.world.clock))
            self._work()

    def _work(self) -> None:
        (controller,) = self.controllers
        for _ in range(_STEPS):
            moved = self.world.collect()
            for pod in list(self.world.objects[Kind.POD].values()):
                if is_deleting(pod):
                    self.world.remove(Kind.POD, name_of(pod))
                    moved = True
            for server in (self.own, self.other):
                self._write(server)
            if not self.is_calm:
                self.disturbed_at = self.world.clock
            if not self.paused:
                moved |= self._step(controller)
            if not moved:
                return
        raise self.world.violation("Hot loop: nothing settles")

    def _step(self, controller: Controller) -> bool:
        if not self.away:
            for kind in (Kind.FRAMEWORK, Kind.CONFIGMAP, Kind.POD):
                held = kind is Kind.CONFIGMAP and (self.stalled or self.blind) and self._shows_attempt(controller)
                if not held:
                    controller.deliver(kind, controller.cache.behind(kind))
        elif not self.world.fates:
            self.world.fates.extend([(None, Fate.LOST)] * 5)
        if not controller.due:
            return False
        controller.step()
        return True

    def _shows_attempt(self, controller: Controller) -> bool:
        """Whether only reports are held back: the beginning and the end of an attempt are seen."""
        body, cached = self.configmap, controller.cache.configmaps.get(CONFIGMAP)
        return body is not None and cached is not None and cached.uid == uid_of(body) and not is_deleting(body)

    def all_run(self) -> None:
        """All Pods run."""
        self.advance(0.1)
        self.all_pods_run()
        self.advance(0.1)

    def recover(self) -> None:
        """All faults are over."""
        self.stalled = self.paused = False
        self.world.fates.clear()
        self.set_away(away=False)
        self.world.fates.clear()
        self.set_server(up=True)
        self.set_blind(blind=False)
        self.set_other(skew=0.0, late=0.0)

    def end_fairly(self) -> None:
        """N: an attempt that hangs is ended in time, once nothing is broken; and all else comes to its end."""
        self.recover()
        self.suspend(wanted=False)
        for _ in range(40):
            self.all_run()
            if self.is_calm:
                break
            self.advance(20)
        if not self.is_calm:
            raise self.world.violation("its Tasks do not run")
        configmap = self.configmap
        assert configmap is not None
        if self.rng.random() < 0.7:
            self.progress()
        self.advance(START + 2 * SLACK + 1)
        if uid_of(configmap) not in self.ended:
            raise self.world.violation("N: it hangs, and is not ended")
        for controller in self.controllers:
            controller.reports_since = None
        self.finish()


def _later(stored: int | None, now: int) -> int:
    return now if stored is None else max(now, stored + 1)
