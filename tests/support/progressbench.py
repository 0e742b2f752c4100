"""A Framework with ``spec.progress`` on the bench, and its report server."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.status import ProgressStatus
from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.machine.kernel.model import Limits, Reporting
from tests.support.bench import Bench, Body, limits, role
from tests.support.writtenreports import with_report

CA: Final = "-----BEGIN CERTIFICATE-----\n"
REPORTING: Final = Reporting("https://reports.ns.svc:9000", CA)
CONFIGMAP: Final = names.configmap_name("f")


def reporting_limits() -> Limits:
    """The default limits, with a report server."""
    return replace(limits(), reporting=REPORTING)


def show_report(bench: Bench, checkpoint: int | None) -> None:
    """The report server writes a report, and the cache sees it. ``checkpoint``: the time of the last one."""
    progress = ProgressStatus(step=1, last_report_time=int(bench.now), last_checkpoint_time=checkpoint)
    bench.bodies[CONFIGMAP] = with_report(bench.bodies[CONFIGMAP], progress)
    bench.show(CONFIGMAP)


class ProgressBench(Bench):
    """A Framework whose Pods report."""

    def __init__(self, *roles: Body, limit: Limits | None = None, progress: Any = None, **spec: Any) -> None:
        super().__init__(*(roles or (role(),)), limit=limit or reporting_limits(), progress=progress or {}, **spec)

    def report(
        self, *, at: int | None = None, checkpoint: int | None = None, changed: bool = True, **values: Any
    ) -> None:
        """The report server writes a report that arrives now, and the cache sees it; no plan is made.

        ``at``: the time of the report. ``checkpoint``: the time of the last one.
        """
        now = int(self.now) if at is None else at
        times = {
            "lastReportTime": now,
            "lastChangeTime": now if changed else None,
            "lastCheckpointTime": checkpoint,
        }
        body = values | {key: format_time(time) for key, time in times.items() if time is not None}
        self.put(orjson.dumps(body).decode())

    def report_then_plan(self, **report: Any) -> None:
        """A report (see ``report``), and the plan of its event."""
        self.report(**report)
        self.plan()

    def put(self, text: str | None) -> None:
        """Another client writes the key of the reports, and the cache sees it."""
        data = self.bodies[CONFIGMAP].setdefault("data", {})
        data.pop(names.PROGRESS_KEY, None)
        if text is not None:
            data[names.PROGRESS_KEY] = text
        self.show(CONFIGMAP)

    @property
    def progress(self) -> ProgressStatus:
        """The progress in the status."""
        assert self.status.progress is not None
        return self.status.progress

    def writes_in(self, seconds: float) -> int:
        """The number of writes in this time, in which nothing happens except alarms."""
        before, end = self.writes, self.now + seconds
        while (after := self.plan().requeue_after) is not None and self.now + after <= end:
            self.now += after
        self.now = end
        self.plan()
        return self.writes - before


def reporting(*roles: Body, limit: Limits | None = None, progress: Any = None, **spec: Any) -> ProgressBench:
    """A Framework that runs, and has not reported yet."""
    bench = ProgressBench(*roles, limit=limit, progress=progress, **spec)
    bench.run_all()
    bench.plan()
    return bench
