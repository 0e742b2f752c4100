"""Histories of trainings that report checkpoints, and the checks of the guarantee that ends wait for one (I).

Source: docs/guarantees.md and docs/lifecycle.md, "Notice", and not the code.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from frameworkcontroller.api.codec import decode_status
from frameworkcontroller.api.status import FrameworkStatus, NoticeStatus, ProgressStatus, State
from frameworkcontroller.api.timestamps import format_time, parse_time
from frameworkcontroller.machine.kernel.requests import Kind
from tests.support.guarantees import Guarantees
from tests.support.history import CONFIGMAP, History
from tests.support.queuedhistory import QueuedHistory
from tests.support.world import EPOCH, Body, World, controller_of, is_deleting, name_of, uid_of
from tests.support.writtenreports import report_text

ASKED: Final = (-240, -241, -250)
"""Codes of ends that are asked for from outside. Disruptions have others, and end an attempt only by a rule."""


@dataclass(slots=True)
class _Given:
    """A stored notice. ``due``: when (by the clock that is never put back) its grace is over, at the earliest."""

    notice: NoticeStatus
    due: float


@dataclass(slots=True, eq=False)
class NoticeGuarantee:
    """Watches stored statuses and ConfigMaps. ``grace``: checkpointGraceSeconds of all Frameworks."""

    world: World
    guarantees: Guarantees
    """While they are loose, a ConfigMap may be changed by an older status."""
    grace: int | None
    checkpoints: dict[str, int] = field(default_factory=dict)
    """By UID of a ConfigMap, the time of its latest checkpoint."""
    given: list[NoticeStatus] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    """Completion codes of ends that waited."""
    _before: dict[str, FrameworkStatus] = field(default_factory=dict)
    _stored_at: dict[str, tuple[float, float]] = field(default_factory=dict)
    _known: dict[str, _Given] = field(default_factory=dict)
    _shown: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.world.check_each(Kind.FRAMEWORK, self._check_status)
        self.world.check_each(Kind.CONFIGMAP, self._check_configmap)

    @property
    def _set_back(self) -> float:
        return EPOCH + self.world.clock - self.world.now

    def _check_status(self, body: Body) -> None:
        uid, status = uid_of(body), decode_status(body.get("status"))
        before = self._before.get(uid)
        if status is None or status == before:
            return
        self._note(uid, status)
        if before is not None and before.attempt.id == status.attempt.id:
            self._check_end(body, before, status)
        self._before[uid], self._stored_at[uid] = status, (self.world.clock, self._set_back)

    def _note(self, uid: str, status: FrameworkStatus) -> None:
        """Note a notice when it is first stored."""
        notice, known = status.notice, self._known.get(uid)
        if notice is None or (known is not None and known.notice == notice):
            return
        clock, set_back = self._stored_at.get(uid, (0.0, 0.0))
        seconds = notice.deadline - notice.time
        if seconds != self.grace:
            raise self.world.violation(f"I: the grace is {seconds}s, and not {self.grace}s")
        due = clock + seconds
        if set_back == self._set_back and notice.time - 1 not in self.checkpoints.values():
            due = max(due, notice.deadline - EPOCH + set_back)
        self._known[uid] = _Given(notice, due - 1)
        self.given.append(notice)

    def _check_end(self, body: Body, before: FrameworkStatus, status: FrameworkStatus) -> None:
        completion, last = status.attempt.completion_status, before.attempt.completion_status
        if completion is None or last is not None or completion.code not in ASKED or self.grace is None:
            return
        tasks = [task for one in status.attempt.roles for task in one.tasks]
        runs = any(task.state is State.RUNNING and not task.is_leaving for task in tasks)
        configmap = self.world.objects[Kind.CONFIGMAP].get(CONFIGMAP)
        if not runs or is_deleting(body) or configmap is None or is_deleting(configmap):
            # The other client that deletes it ends the attempt.
            return
        if uid_of(configmap) != status.attempt.configmap_uid:
            return
        notice = before.notice
        if notice is None or notice.framework_attempt_id != status.attempt.id:
            raise self.world.violation(f"I: the attempt ends with {completion.code}, and no notice was stored before")
        checkpoint = self.checkpoints.get(uid_of(configmap))
        has_checkpoint = checkpoint is not None and checkpoint >= notice.time
        if not has_checkpoint and self.world.clock < self._known[uid_of(body)].due:
            left = self._known[uid_of(body)].due - self.world.clock
            raise self.world.violation(f"I: the attempt ends with {completion.code}, {left}s too early")
        self.ends.append(completion.code)

    def _check_configmap(self, body: Body) -> None:
        data = body.get("data") or {}
        if (text := data.get("progress")) and (time := orjson.loads(text).get("lastCheckpointTime")):
            self.checkpoints[uid_of(body)] = max(parse_time(time), self.checkpoints.get(uid_of(body), 0))
        shown = data.get("notice", "")
        if shown == self._shown.get(uid_of(body), ""):
            return
        self._shown[uid_of(body)] = shown
        status = self._before.get(controller_of(body) or "")
        if self.guarantees.loose or status is None or status.attempt.configmap_uid != uid_of(body):
            return
        notice = status.notice
        stored = "" if notice is None else f"{notice.reason} {format_time(notice.deadline)}"
        if shown != stored:
            raise self.world.violation(f"I: Pods see the notice {shown!r}, stored is {stored!r}")


class _Notified(History):
    """The programs of the Framework are notified of its end."""

    def __init__(self, seed: int = 0, *, grace: int | None = 100, **options: Any) -> None:
        super().__init__(seed, **options)
        self.notices = NoticeGuarantee(self.world, self.guarantees, grace)

    def with_notices(self, spec: Body) -> Body:
        """The spec of such a Framework."""
        return {**spec, "checkpointGraceSeconds": self.notices.grace, "progress": {}}

    def report(self, *, checkpoint: bool, behind: int = 0) -> None:
        """The programs report progress. ``behind``: seconds by which the clock of the report server is."""
        body = self.configmap
        if body is None or not self.guarantees.is_ours(body) or not self.pods():
            return
        data = body.get("data") or {}
        last = orjson.loads(data.get("progress", "{}"))
        now = int(self.world.now) - behind
        known = parse_time(last["lastCheckpointTime"]) if "lastCheckpointTime" in last else None
        progress = ProgressStatus(
            step=last.get("step", 0) + 1, last_report_time=now, last_checkpoint_time=now if checkpoint else known
        )
        text = report_text(progress)
        self.world.tell(f"programs: report {text}")
        self.world.edit(Kind.CONFIGMAP, CONFIGMAP, lambda found: found.update(data={**data, "progress": text}))

    def check_withdrawn(self) -> None:
        """I: all is at rest, and no end is asked for."""
        body = self.configmap
        shown = None if body is None else (body.get("data") or {}).get("notice")
        if shown or (self.status is not None and self.status.notice is not None):
            raise self.world.violation(f"I: the notice of an end that nobody asks for is there: {shown!r}")

    def announce(self, which: int) -> None:
        """Kubernetes announces that it will end a Pod, or takes that back."""
        pods = sorted(self.pods(), key=name_of)
        if not pods:
            return
        name = name_of(pods[which % len(pods)])
        condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": "x"}

        def change(pod: Body) -> None:
            pod["status"]["conditions"] = [] if pod["status"].get("conditions") else [condition]

        self.world.tell(f"scheduler: {name} is to be disrupted, or no longer")
        self.world.edit(Kind.POD, name, change)


class NoticedHistory(_Notified):
    """A history of such a Framework."""

    def create(self, spec: Body) -> None:
        super().create(self.with_notices(spec))


class NoticedQueue(_Notified, QueuedHistory):
    """A history of such a Framework in a queue."""

    def create_in(self, queue: str | None, spec: Body) -> None:
        super().create_in(queue, self.with_notices(spec))
