"""The annotation with the last checkpoint on the Workload and the PodGroups of an attempt."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import orjson
import pytest

from frameworkcontroller.api import names
from frameworkcontroller.api.podgroups import GangScheduler
from frameworkcontroller.api.status import ProgressStatus
from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.machine.kernel.actions import Patch
from tests.support.bench import NOW, Bench, Body, limits, role
from tests.support.progressbench import show_report
from tests.support.queuedbench import QueuedBench, live, running

GANG: Final[Body] = {"schedulingPolicy": {"gang": {}}}


def shown(body: Any) -> str | None:
    found: str | None = (body["metadata"].get("annotations") or {}).get(names.LAST_CHECKPOINT)
    return found


def gang(scheduler: str) -> Bench:
    bench = Bench(
        role(number=2), limit=replace(limits(), gang_scheduler=GangScheduler(scheduler)), scheduling=GANG, progress={}
    )
    bench.run_all()
    bench.settle()
    # Its minimum was lowered, after which changes wait.
    bench.now += 20
    return bench


def test_the_workload_has_the_last_checkpoint() -> None:
    bench = running(role(number=2), progress={})
    show_report(bench, None)
    bench.settle()
    assert shown(live(bench)) is None
    bench.now += 5
    show_report(bench, NOW + 1)
    bench.settle()
    assert shown(live(bench)) == format_time(NOW + 1)


def test_it_is_written_once_a_minute_at_most() -> None:
    bench = running(role(number=2), progress={})
    bench.now += 100
    show_report(bench, NOW + 1)
    bench.settle()
    for second in range(1, 59):
        bench.now += 1
        show_report(bench, NOW + 1 + second)
        bench.settle()
    assert shown(live(bench)) == format_time(NOW + 1)
    bench.now += 2
    bench.settle()
    assert shown(live(bench)) == format_time(NOW + 59)


def test_the_progress_of_another_attempt_does_not_count() -> None:
    bench = running(role(number=2), progress={}, retryPolicy={"maxRetryCount": -2})
    show_report(bench, NOW)
    bench.settle()
    assert bench.configmap is not None
    bench.configmap = replace(bench.configmap, progress=None)
    bench.status.progress = ProgressStatus(7, last_checkpoint_time=NOW + 7)
    assert not [one for one in bench.plan().actions if "Checkpoint" in type(one).__name__]
    assert shown(live(bench)) == format_time(NOW)


@pytest.mark.parametrize("scheduler", ["kubernetes", "volcano", "coscheduling"])
def test_a_podgroup_has_the_last_checkpoint(scheduler: str) -> None:
    bench = gang(scheduler)
    show_report(bench, NOW)
    bench.settle()
    assert shown(bench.bodies["f"]) == format_time(NOW)
    bench.now += 30
    show_report(bench, NOW + 30)
    bench.idle()
    bench.now += 30
    (patch,) = bench.plan().actions
    assert isinstance(patch, Patch)
    assert orjson.loads(patch.change) == {"metadata": {"annotations": {names.LAST_CHECKPOINT: format_time(NOW + 30)}}}
    bench.patched(patch)
    bench.idle()


def test_nothing_is_written_without_progress() -> None:
    bench = QueuedBench(role(number=2), scheduling=GANG)
    bench.begin()
    bench.all_pods_run()
    show_report(bench, NOW)
    bench.settle()
    assert (shown(live(bench)), shown(bench.bodies["f"])) == (None, None)
