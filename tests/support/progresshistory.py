"""A history of a Framework whose Pods report, and the checks of the guarantee R (docs/guarantees.md).

``ReportedHistory`` is ``tests.support.history`` with a stand-in for the report server, and a user who edits its data.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.progressreports import decode_progress
from frameworkcontroller.api.status import ProgressStatus
from frameworkcontroller.api.timestamps import format_time, parse_time
from frameworkcontroller.machine.kernel.requests import Kind
from frameworkcontroller.machine.kernel.states import ENDED
from tests.support.history import CONFIGMAP, LIMITS, History
from tests.support.progressbench import REPORTING
from tests.support.world import Body, controller_of, is_deleting, mark_of, uid_of

REPORTED: Final = replace(LIMITS, reporting=REPORTING)
"""Limits with a report server."""

_SHOWN_SEC: Final = 140
"""Time after which the last report is in the stored status."""
_EARLY: Final = 3
"""Writes for progress alone in the first minute of an attempt's reports, beside those each minute."""

_ALONE_SEC: Final = 60
_CHECKPOINT_SEC: Final = 10
_TIMES: Final = ("lastReportTime", "lastChangeTime", "lastCheckpointTime")


class ReportedHistory(History):
    """A history with reports. Every status that is stored is checked against the one before."""

    def __init__(self, seed: int = 0, **options: Any) -> None:
        super().__init__(seed, limits=REPORTED, **options)
        self._stored: dict[str, Body] = {}
        """The last status by the UID of the Framework."""
        self._reported: dict[tuple[str, int], list[Body]] = {}
        """What was reported, by UID and attempt of the Framework."""
        self._budgets = {_ALONE_SEC: 0, _CHECKPOINT_SEC: 0}
        self._since: float = 0.0
        self.world.check_each(Kind.FRAMEWORK, self._check_framework)

    # --- what happens ------------------------------------------------------------------------------------------------

    def report(self, step: int, *, checkpoint: bool = False, skew: int = 0) -> None:
        """The report server writes a report. ``skew``: of its clock."""
        configmap = self._configmap()
        if configmap is None:
            return
        now = format_time(int(self.world.now) + skew)
        known = self._known(configmap) or {}
        changed = checkpoint or step != known.get("step")
        body = {"step": step, "lastReportTime": now, "lastChangeTime": now if changed else known.get("lastChangeTime")}
        last = now if checkpoint else known.get("lastCheckpointTime")
        self.scribble(orjson.dumps({**body, **({"lastCheckpointTime": last} if last else {})}).decode())

    def scribble(self, text: str | None) -> None:
        """Another client writes this into the data of the ConfigMap; None: removes it."""
        configmap = self._configmap()
        if configmap is None:
            return

        def change(body: Body) -> None:
            data = body.setdefault("data", {})
            data.pop(names.PROGRESS_KEY, None)
            if text is not None:
                data[names.PROGRESS_KEY] = text

        attempt = int(mark_of(configmap, names.FRAMEWORK_ATTEMPT_ID))
        if text is not None and (found := decode_progress(text, attempt)) is not None:
            self._reported.setdefault((controller_of(configmap) or "", attempt), []).append(_content(found))
        self.world.tell(f"the ConfigMap of attempt {attempt} gets {text}")
        self.world.edit(Kind.CONFIGMAP, CONFIGMAP, change)

    def crash(self, which: int) -> None:
        super().crash(which)
        self._begin_budget()

    def take_over(self) -> None:
        super().take_over()
        self._begin_budget()

    def _begin_budget(self) -> None:
        self._budgets, self._since = dict.fromkeys(self._budgets, 0), self.world.clock

    def _configmap(self) -> Body | None:
        body = self.configmap
        return body if body is not None and self.guarantees.is_ours(body) else None

    def _known(self, configmap: Body) -> Body | None:
        text = (configmap.get("data") or {}).get(names.PROGRESS_KEY)
        found = None if text is None else decode_progress(text, 0)
        return None if found is None or text is None else orjson.loads(text)

    # --- checks ------------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """R: the last report is in the stored status after two minutes."""
        self.settle()
        end = self.world.clock + _SHOWN_SEC
        while (wake := self.controllers[0].requeue_at) is not None and wake < end:
            self.world.go_until(wake)
            self.settle()
        self.world.go_until(end)
        self.settle()
        status, spec, configmap = self.status, self.spec, self._configmap()
        if status is None or spec is None or configmap is None or status.state in ENDED:
            return
        if spec.progress is None or self.framework is None or uid_of(configmap) != status.attempt.configmap_uid:
            return
        if len(self.controllers) > 1 or is_deleting(self.framework):
            return
        reported = self._known(configmap)
        if reported is None or "lastReportTime" not in reported:
            return
        found = decode_progress(orjson.dumps(reported).decode(), status.attempt.id)
        assert found is not None
        if status.progress is None or status.progress.framework_attempt_id != status.attempt.id:
            raise self.world.violation("R: the first report is not shown")
        if _content(status.progress) != _content(found):
            raise self.world.violation(f"R: the last report is not shown: {_content(found)}")

    def finish(self) -> None:
        self.world.fates.clear()
        self.look()
        super().finish()

    def _check_framework(self, body: Body) -> None:
        if body.get("status"):
            self._check(uid_of(body), self._stored.get(uid_of(body)), body["status"])
            self._stored[uid_of(body)] = body["status"]

    def _check(self, uid: str, before: Body | None, now: Body) -> None:
        old, new = (before or {}).get("progress"), now.get("progress")
        if new is None:
            self._require(old is None, "progress is lost")
            return
        attempt = new["frameworkAttemptID"]
        self._require(attempt <= now["attemptStatus"]["id"], f"progress is of attempt {attempt}")
        found = decode_progress(orjson.dumps(new).decode(), attempt)
        reported = self._reported.get((uid, attempt), [])
        self._require(found is not None and _content(found) in reported, f"nobody has reported {new}")
        times = {key: parse_time(new[key]) for key in _TIMES if new.get(key) is not None}
        self._require(all(time <= self.world.latest for time in times.values()), f"a time is in the future: {new}")
        is_first = old is None or old["frameworkAttemptID"] != attempt
        if old is None or before is None:
            return
        self._require(old["frameworkAttemptID"] <= attempt, f"progress goes back to attempt {attempt}")
        for key in () if is_first else _TIMES:
            known = old.get(key)
            self._require(known is None or (key in times and times[key] >= parse_time(known)), f"{key} goes back")
        is_alone = {**before, "progress": None} == {**now, "progress": None}
        if is_alone and old != new and not is_first and not self.guarantees.loose and len(self.controllers) == 1:
            self._spend(_CHECKPOINT_SEC if old.get(_TIMES[2]) != new.get(_TIMES[2]) else _ALONE_SEC)

    def _spend(self, seconds: int) -> None:
        self._budgets[seconds] += 1
        # The first reports of an attempt are written sooner.
        early = _EARLY * len(self._reported) if seconds == _ALONE_SEC else 0
        most = 2 + early + (self.world.clock - self._since) / seconds
        self._require(self._budgets[seconds] <= most, f"progress alone is written more often than every {seconds}s")

    def _require(self, holds: bool, text: str) -> None:
        if not holds:
            raise self.world.violation(f"R: {text}")


def _content(progress: ProgressStatus) -> Body:
    metrics = [(one.name, one.value) for one in progress.metrics]
    return {"step": progress.step, "percentage": progress.percentage, "metrics": metrics}
