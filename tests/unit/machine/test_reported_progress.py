"""``status.progress`` from the reports in the ConfigMap of the attempt (docs/lifecycle.md, "Progress")."""

from __future__ import annotations

import orjson
import pytest

from frameworkcontroller.api.codec import encode_status
from frameworkcontroller.api.objects import configmap_record
from frameworkcontroller.api.status import ProgressMetric, State
from frameworkcontroller.machine.kernel.actions import Delete
from frameworkcontroller.machine.kernel.model import Urgency
from frameworkcontroller.machine.kernel.requests import Remove
from tests.support.bench import NOW, limits, role, running
from tests.support.oneframework import Driver, OneFramework
from tests.support.progressbench import CONFIGMAP, ProgressBench, reporting, reporting_limits

# --- the status ---------------------------------------------------------------------------------------------------


def test_a_report_is_in_the_status() -> None:
    bench = reporting()
    bench.report_then_plan(percentage=42, remainingSeconds=60, step=7, metrics=[{"name": "loss", "value": 0.5}])
    found = bench.progress
    assert (found.percentage, found.remaining_seconds, found.step) == (42, 60, 7)
    assert found.metrics == [ProgressMetric("loss", 0.5)]
    assert found.last_report_time == found.last_change_time == int(bench.now)
    assert (found.last_checkpoint_time, found.framework_attempt_id) == (None, 0)


def test_the_stored_status_has_it() -> None:
    bench = reporting()
    bench.report_then_plan(percentage=42)
    stored = orjson.loads(encode_status("f", bench.status))["progress"]
    time = stored["lastReportTime"]
    times = dict.fromkeys(("firstReportTime", "lastReportTime", "lastChangeTime"), time)
    assert stored == {"frameworkAttemptID": 0, "percentage": 42, **times}


def test_the_time_of_the_first_report_of_an_attempt_stays() -> None:
    bench = reporting()
    bench.report_then_plan(percentage=1)
    first = int(bench.now)
    for percentage in (2, 3):
        bench.now += 100
        bench.report_then_plan(percentage=percentage)
        bench.restart()
        bench.plan()
    assert bench.progress.first_report_time == first
    assert bench.progress.last_report_time == first + 200


def test_without_a_report_there_is_no_key() -> None:
    bench = reporting()
    assert "progress" not in orjson.loads(encode_status("f", bench.status))


def test_without_spec_progress_nothing_is_read() -> None:
    bench = running(limit=reporting_limits())
    bench.bodies[CONFIGMAP]["data"] = {
        "progress": orjson.dumps({"percentage": 1, "lastReportTime": "2023-11-14T22:13:20Z"}).decode()
    }
    bench.show(CONFIGMAP)
    bench.plan()
    assert bench.status.progress is None


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "{",
        "[]",
        "null",
        '{"percentage": 101}',
        '{"percentage": 50}',
        '{"percentage": "5", "lastReportTime": 1}',
        "x" * 20_000,
    ],
)
def test_invalid_or_absent_data_changes_nothing(text: str | None) -> None:
    bench = reporting()
    bench.report_then_plan(percentage=42)
    before = bench.progress
    bench.put(text)
    bench.plan()
    assert bench.progress == before
    assert bench.writes_in(600) == 0


def test_a_smaller_step_is_reported_too() -> None:
    """A program that starts again from its checkpoint goes back."""
    bench = reporting()
    bench.report_then_plan(step=9, percentage=90)
    bench.now += 1
    bench.report_then_plan(step=8)
    assert (bench.progress.step, bench.progress.percentage) == (8, None)


def test_times_never_decrease_in_an_attempt() -> None:
    bench = reporting()
    bench.now += 100
    bench.report_then_plan(step=1, checkpoint=NOW + 90)
    before = bench.progress
    bench.report_then_plan(step=2, at=NOW + 10, checkpoint=NOW + 5)
    assert bench.progress.step == 2
    assert bench.progress.last_report_time == before.last_report_time
    assert bench.progress.last_change_time == before.last_change_time
    assert bench.progress.last_checkpoint_time == NOW + 90
    bench.report_then_plan(step=3, changed=False)
    assert bench.progress.last_change_time == before.last_change_time
    assert bench.progress.last_checkpoint_time == NOW + 90


def test_the_step_of_a_checkpoint_is_of_the_latest_one() -> None:
    bench = reporting()
    bench.now += 100
    bench.report_then_plan(step=10, checkpoint=NOW + 90, lastCheckpointStep=10)
    bench.report_then_plan(step=11, checkpoint=NOW + 5, lastCheckpointStep=3)
    assert bench.progress.last_checkpoint_step == 10
    bench.report_then_plan(step=12)
    assert bench.progress.last_checkpoint_step == 10
    bench.report_then_plan(step=20, checkpoint=NOW + 95, lastCheckpointStep=20)
    assert bench.progress.last_checkpoint_step == 20


def test_a_time_in_the_future_counts_as_the_time_of_reading_once() -> None:
    bench = reporting()
    bench.now += 7
    bench.report_then_plan(step=1, at=NOW + 10**6, checkpoint=NOW + 10**6)
    read = int(bench.now)
    for _ in range(3):
        assert bench.progress.last_report_time == bench.progress.last_change_time == read
        assert bench.progress.last_checkpoint_time == read
        assert bench.writes_in(600) == 0


def test_an_annotation_with_another_attempt_changes_nothing() -> None:
    bench = reporting()
    for attempt in ("7", "x", "9" * 5000, "٣"):
        bench.bodies[CONFIGMAP]["metadata"]["annotations"]["FC_FRAMEWORK_ATTEMPT_ID"] = attempt
        bench.report_then_plan(step=1)
        assert bench.status.progress is None or bench.progress.framework_attempt_id == 0


# --- when it is written -------------------------------------------------------------------------------------------


def test_the_first_report_is_written_soon() -> None:
    bench = reporting()
    before = bench.writes
    bench.report()
    assert bench.plan(write=False).urgency is Urgency.SHOWN
    bench.write()
    assert bench.writes == before + 1


def test_the_next_report_is_written_after_a_minute() -> None:
    bench = reporting()
    bench.report_then_plan(step=1)
    bench.now += 5
    bench.report()
    made = bench.plan(write=False)
    assert (made.urgency, made.requeue_after) == (Urgency.NONE, 55)
    assert bench.writes_in(54) == 0
    assert bench.writes_in(2) == 1
    assert bench.writes_in(600) == 0


@pytest.mark.parametrize(
    ("interval", "times"), [(5, [0, 10, 20, 40, 80, 140]), (15, [0, 15, 30, 60, 120]), (60, [0, 60, 120])]
)
def test_at_first_reports_are_written_sooner(interval: int, times: list[int]) -> None:
    """The first report of Transformers' Trainer comes before the first step."""
    bench = reporting(progress={"intervalSeconds": interval})
    found = []
    for second in range(150):
        before = bench.writes
        bench.report_then_plan(step=second)
        found += [second] * (bench.writes - before)
        bench.now += 1
    assert found == times


def test_many_reports_are_one_write_a_minute() -> None:
    bench = reporting(progress={"intervalSeconds": 1})
    before = bench.writes
    for step in range(1200):
        bench.now += 1
        bench.report_then_plan(step=step)
    # Three of them are in the first minute.
    assert bench.writes - before == 20 + 3


def test_a_longer_interval_counts() -> None:
    bench = reporting(progress={"intervalSeconds": 600})
    bench.report_then_plan(step=1)
    bench.report(step=2)
    assert bench.writes_in(599) == 0
    assert bench.writes_in(2) == 1


def test_a_checkpoint_is_written_sooner() -> None:
    bench = reporting()
    bench.report_then_plan(step=1)
    bench.now += 11
    before = bench.writes
    bench.report_then_plan(step=2, checkpoint=int(bench.now))
    assert bench.writes == before + 1


def test_checkpoints_each_second_are_a_write_each_ten_seconds() -> None:
    bench = reporting(progress={"intervalSeconds": 1})
    before = bench.writes
    for step in range(100):
        bench.now += 1
        bench.report_then_plan(step=step, checkpoint=int(bench.now))
    assert bench.writes - before == 10


def test_a_report_is_written_with_another_change() -> None:
    bench = reporting(role(number=2))
    bench.report_then_plan(step=1)
    bench.now += 1
    bench.report_then_plan(step=2)
    before = bench.writes
    bench.end("f-a-1")
    assert bench.writes > before
    assert bench.progress.step == 2
    assert bench.writes_in(600) == 0


def test_a_report_that_differs_in_nothing_is_not_written() -> None:
    bench = reporting()
    bench.report_then_plan(step=1)
    bench.put(orjson.dumps({**orjson.loads(bench.bodies[CONFIGMAP]["data"]["progress"]), "unknown": 1}).decode())
    assert bench.writes_in(600) == 0


# --- no action waits for it ---------------------------------------------------------------------------------------


def test_an_action_does_not_wait_for_progress() -> None:
    """A Task's Pod is deleted once its end is persisted, although a report came after that write."""
    bench = reporting(role(retryPolicy={"maxRetryCount": 1}))
    bench.report_then_plan(step=1)
    bench.stop("f-a-0", 1)
    bench.plan()
    bench.report(step=2)
    deletion = bench.plan(write=False)
    assert [type(one) for one in deletion.actions] == [Delete]
    assert deletion.urgency is Urgency.NONE
    assert bench.progress.step == 2
    assert bench.tracker.is_clean


def test_a_deletion_of_the_attempt_does_not_wait_for_progress() -> None:
    bench = reporting()
    bench.report_then_plan(step=1)
    bench.edit_then_plan(executionType="Stop")
    assert bench.status.state is State.DELETION_PENDING
    bench.report(step=2)
    assert bench.only(bench.plan(write=False)).target.name == CONFIGMAP
    assert bench.tracker.urgency is Urgency.NONE


def test_the_end_of_the_attempt_has_the_last_report() -> None:
    bench = reporting()
    bench.report_then_plan(step=1)
    bench.now += 1
    bench.report_then_plan(step=2)
    bench.end("f-a-0")
    assert bench.status.state is State.COMPLETED
    assert bench.progress.step == 2


# --- attempts -----------------------------------------------------------------------------------------------------


def test_it_is_kept_until_the_first_report_of_the_next_attempt() -> None:
    bench = reporting(role(failed=1), retryPolicy={"maxRetryCount": 1})
    bench.now += 100
    bench.report_then_plan(step=9, checkpoint=int(bench.now))
    before = bench.progress
    bench.end("f-a-0", 1)
    assert bench.status.attempt.id == 1
    assert bench.progress == before
    bench.run("f-a-0")
    assert bench.progress == before
    bench.now -= 50
    bench.report()
    assert bench.plan(write=False).urgency is Urgency.SHOWN
    # Nothing of the attempt before is left, and neither are its times.
    assert (bench.progress.framework_attempt_id, bench.progress.step) == (1, None)
    assert bench.progress.last_report_time == int(bench.now)
    assert bench.progress.last_checkpoint_time is None


def test_a_report_of_another_configmap_is_ignored() -> None:
    bench = reporting()
    bench.bodies[CONFIGMAP]["metadata"]["uid"] = "another"
    bench.report(step=1)
    bench.plan()
    assert bench.status.progress is None


# --- restarts -----------------------------------------------------------------------------------------------------


def test_a_restart_finds_a_report_that_was_not_written() -> None:
    bench = reporting()
    bench.report_then_plan(step=1)
    bench.now += 5
    bench.report(step=2)
    bench.restart()
    assert bench.progress.step == 1
    bench.plan()
    assert bench.progress.step == 2
    assert bench.writes_in(61) == 1


def test_a_restart_without_a_new_report_writes_nothing() -> None:
    bench = reporting()
    bench.report_then_plan(step=1)
    bench.plan()
    bench.restart()
    assert bench.writes_in(600) == 0


def test_a_report_counts_that_only_the_last_state_of_the_deleted_configmap_has() -> None:
    """The events of the report and of the deletion come between two plans."""
    world = OneFramework(limit=reporting_limits(), progress={})
    driver = Driver(world)
    driver.settle()
    world.run("f-a-0")
    driver.reconciler.on_pod_event("f-a-0")
    driver.settle()
    world.run("f-a-0", "Succeeded")
    driver.reconciler.on_pod_event("f-a-0")
    driver.serve(*driver.until(Remove, "f-a-0"))
    last = world.pods.pop("f-a-0")
    driver.reconciler.on_pod_dropped(last, removed=True)
    driver.reconciler.on_pod_event("f-a-0")
    data = {"progress": '{"percentage": 100, "lastReportTime": "2023-11-14T22:13:20Z"}'}
    body = {**world.objects[CONFIGMAP], "data": data}
    driver.serve(*driver.until(Remove, CONFIGMAP))
    world.configmap = None
    driver.reconciler.on_configmap_dropped(configmap_record(body))
    driver.settle()
    assert world.status["progress"]["percentage"] == 100


# --- no report server ---------------------------------------------------------------------------------------------


def conditions(bench: ProgressBench) -> list[tuple[str, str, str]]:
    return [(one.type, one.status, one.reason) for one in bench.status.conditions if one.type.startswith("Progress")]


def test_without_a_report_server_the_framework_runs_and_says_why() -> None:
    bench = ProgressBench(limit=limits())
    records = bench.plan().records
    assert [one.message for one in records if one.reason == "NoReportServer"] == [
        "The controller has no report server (progressReports.bindAddress), so programs cannot report: "
        "spec.progress has no effect"
    ]
    bench.run_all()
    assert conditions(bench) == [("ProgressUnavailable", "True", "NoReportServer")]
    assert bench.status.state is State.RUNNING
    assert "data" not in bench.bodies[CONFIGMAP]
    assert not [one for one in bench.plan().records if one.reason == "NoReportServer"]
    bench.end("f-a-0")
    assert bench.code() == 0
    assert conditions(bench) == []


def test_the_condition_goes_with_the_cause() -> None:
    bench = ProgressBench(limit=limits())
    bench.run_all()
    bench.restart()
    bench.limits = reporting_limits()
    bench.plan()
    assert conditions(bench) == []


def test_with_a_report_server_there_is_no_condition() -> None:
    assert conditions(reporting()) == []
