"""A Framework that reports progress, on the bench (tests.support.bench)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import orjson

from frameworkcontroller.api.status import ProgressStatus
from frameworkcontroller.machine.kernel.actions import Action, carry_out
from frameworkcontroller.machine.kernel.exchanges import Result
from frameworkcontroller.machine.kernel.model import Env
from frameworkcontroller.machine.kernel.requests import Answer, Answered
from frameworkcontroller.machine.parts.hangs.hangs import ReadProgress
from tests.support.bench import Body, role
from tests.support.progressbench import CONFIGMAP, ProgressBench
from tests.support.writtenreports import with_report

INTERVAL: Final = 10
DEADLINE: Final = 100
START: Final = 300
SPEC: Final[dict[str, Any]] = {
    "intervalSeconds": INTERVAL,
    "deadlineSeconds": DEADLINE,
    "startDeadlineSeconds": START,
}
ALWAYS: Final = {"fancyRetryPolicy": True}


class HangBench(ProgressBench):
    """Its controller knows of each report, unless ``reports_since`` is None."""

    reports_since: float | None = 0.0

    @property
    def env(self) -> Env:
        return replace(super().env, reports_since=self.reports_since)

    def report_unseen(self, step: int, *, changed: float | None = None, checkpoint: float | None = None) -> None:
        """The live ConfigMap has a report, which the cache does not show yet. ``changed``: now, by default."""
        now = int(self.now)
        found = ProgressStatus(
            step=step,
            last_report_time=now,
            last_change_time=now if changed is None else int(changed),
            last_checkpoint_time=None if checkpoint is None else int(checkpoint),
        )
        self.bodies[CONFIGMAP] = with_report(self.bodies[CONFIGMAP], found)

    def report_and_show(self, step: int, *, changed: float | None = None, checkpoint: float | None = None) -> None:
        """The cache shows a report, and a plan follows."""
        self.report_unseen(step, changed=changed, checkpoint=checkpoint)
        self.show_then_plan(CONFIGMAP)

    def read(self) -> ReadProgress:
        """The live read that the next plan asks for."""
        action = self.only(self.plan())
        assert isinstance(action, ReadProgress)
        return action

    def find(self, action: Action, answer: Answer | None = None) -> Result:
        """The result of a live read. ``answer`` None: of the API server."""
        exchange = carry_out(action)
        next(exchange)
        try:
            exchange.send(Answered(orjson.dumps(self.bodies[CONFIGMAP])) if answer is None else answer)
        except StopIteration as end:
            result: Result = end.value
            return result
        raise AssertionError("it asks for more")

    def do(self, action: Action) -> bool:
        if not isinstance(action, ReadProgress):
            return False
        self.fold(action, self.find(action))
        return True

    def live(self, seconds: float) -> None:
        """This number of seconds goes by, with all that is due in them."""
        end = self.now + seconds
        while True:
            self.settle_reads()
            made = self.plan()
            left = end - self.now
            if made.requeue_after is None or made.requeue_after > left:
                self.now = end
                self.settle_reads()
                return
            self.now += max(made.requeue_after, 0.001)

    def settle_reads(self) -> None:
        """Live reads are answered."""
        for _ in range(20):
            reads = [action for action in self.plan().actions if self.do(action)]
            if not reads and not self.tracker.is_busy:
                return


def hanging(*roles: Body, progress: dict[str, Any] | None = None, **spec: Any) -> HangBench:
    """A Framework whose Pods all run and have not reported yet; all its failures are retried."""
    spec = {"retryPolicy": ALWAYS, **spec}
    bench = HangBench(*(roles or (role(number=2),)), progress=SPEC if progress is None else progress, **spec)
    bench.run_all()
    return bench
