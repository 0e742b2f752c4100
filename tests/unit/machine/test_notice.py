"""The notice of an end, and the wait for a checkpoint (docs/lifecycle.md, "Notice")."""

from __future__ import annotations

from typing import Any, Final

import orjson
import pytest

from frameworkcontroller.api.status import NoticeStatus, ProgressStatus, State
from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.machine.kernel.actions import Delete, Patch
from frameworkcontroller.machine.kernel.exchanges import Gone, NotAttempted, Patched
from frameworkcontroller.machine.kernel.model import Urgency
from frameworkcontroller.machine.kernel.requests import Unanswered
from tests.support.bench import NOW, Bench, Body, limits, role, running
from tests.support.progressbench import CONFIGMAP, show_report

GRACE: Final = 300
TWO: Final = role("a", 2, failed=1)
ON_DISRUPTION: Final[Body] = {
    "podFailurePolicy": {"rules": [{"action": "RestartFramework", "onPodConditions": [{"type": "DisruptionTarget"}]}]}
}


def training(*roles: Body, **spec: Any) -> Bench:
    """A Framework that runs, and reports its progress."""
    return running(*(roles or (TWO,)), checkpointGraceSeconds=GRACE, **{"progress": {}, **spec})


def shown(bench: Bench) -> str | None:
    """The notice that Pods see."""
    found: str | None = (bench.bodies[CONFIGMAP].get("data") or {}).get("notice")
    return found


def suspended(bench: Bench) -> tuple[str, str]:
    """Status and reason of the condition Suspended."""
    (found,) = [(one.status, one.reason) for one in bench.status.conditions if one.type == "Suspended"]
    return found


def told(bench: Bench) -> str:
    """The message of the condition Running."""
    (found,) = [one.message for one in bench.status.conditions if one.type == "Running"]
    return found


def given(bench: Bench) -> NoticeStatus:
    assert bench.status.notice is not None
    return bench.status.notice


def notified(**spec: Any) -> Bench:
    """A training that is suspended, and has seen the notice."""
    bench = training(**spec)
    bench.edit_then_settle(suspend=True)
    return bench


# --- a suspension ---------------------------------------------------------------------------------------------------


def test_the_notice_is_persisted_before_anything_else() -> None:
    bench = training()
    bench.edit(suspend=True)
    made = bench.plan(write=False)
    assert (made.actions, made.urgency) == ([], Urgency.NOW)
    assert given(bench) == NoticeStatus(0, "Suspension", NOW, NOW + GRACE)
    # As long as the write takes, also when both a checkpoint and the deadline have come.
    bench.now += GRACE
    show_report(bench, int(bench.now))
    assert bench.plan(write=False).actions == []
    assert (bench.code(), shown(bench)) == (None, None)
    bench.write()
    bench.plan()
    assert bench.code() == -240


def test_pods_see_the_persisted_notice() -> None:
    bench = notified()
    assert shown(bench) == f"Suspension {format_time(NOW + GRACE)}"
    assert (bench.code(), bench.status.state, suspended(bench)) == (None, State.RUNNING, ("False", "CheckpointPending"))
    text = f"waits for a checkpoint before the suspension, until {format_time(NOW + GRACE)}"
    assert told(bench) == f"FrameworkAttempt 0: {text}"


def test_a_checkpoint_ends_the_wait() -> None:
    bench = notified()
    bench.now += 10
    show_report(bench, int(bench.now))
    bench.settle()
    assert (bench.status.attempt.id, suspended(bench)) == (1, ("True", "Suspended"))
    assert bench.status.notice is None


def test_the_end_of_the_attempt_is_shown_with_its_notice() -> None:
    bench = notified()
    bench.now += 10
    show_report(bench, int(bench.now))
    bench.plan()
    assert (bench.code(), given(bench).reason, suspended(bench)) == (-240, "Suspension", ("False", "Suspending"))


@pytest.mark.parametrize("late", [-100, 0])
def test_an_earlier_checkpoint_does_not_count(late: int) -> None:
    bench = training()
    show_report(bench, NOW + late)
    bench.edit_then_settle(suspend=True)
    show_report(bench, NOW + late)
    bench.idle(after=GRACE - 1)
    assert bench.code() is None
    bench.pass_time(1)
    assert bench.code() == -240


def test_a_report_server_whose_clock_is_ahead_confuses_nothing() -> None:
    """The notice is later than the last known checkpoint."""
    bench = training()
    show_report(bench, NOW + 30)
    bench.edit_then_settle(suspend=True)
    assert given(bench) == NoticeStatus(0, "Suspension", NOW + 31, NOW + 31 + GRACE)
    bench.idle(after=1)
    show_report(bench, NOW + 31)
    bench.plan()
    assert bench.code() == -240


def test_a_checkpoint_in_the_second_of_the_notice_counts() -> None:
    bench = notified()
    show_report(bench, NOW)
    bench.plan()
    assert bench.code() == -240


def test_the_stored_progress_counts_if_the_configmap_has_none() -> None:
    bench = training()
    bench.status.progress = ProgressStatus(0, last_checkpoint_time=NOW + 30)
    bench.edit_then_settle(suspend=True)
    assert given(bench).time == NOW + 31
    bench.status.progress = ProgressStatus(0, last_checkpoint_time=NOW + 31)
    bench.plan()
    assert bench.code() == -240


def test_progress_of_another_attempt_does_not_count() -> None:
    bench = training()
    bench.edit_then_settle(suspend=True)
    bench.status.progress = ProgressStatus(7, last_checkpoint_time=NOW + 31)
    bench.idle()
    assert bench.code() is None


def test_without_progress_it_waits_for_the_whole_time() -> None:
    bench = notified(progress=None)
    assert told(bench).endswith(f"waits before the suspension, until {format_time(NOW + GRACE)}")
    bench.idle(after=GRACE - 1)
    bench.pass_time(1)
    assert bench.code() == -240


def test_the_wait_wakes_by_itself() -> None:
    bench = notified()
    made = bench.plan()
    assert made.requeue_after == GRACE
    bench.wait(GRACE)
    assert bench.code() == -240


@pytest.mark.parametrize("back", [-1000, 1000])
def test_setting_the_clock_does_not_change_the_wait(back: float) -> None:
    bench = notified()
    bench.put_clock_back(back)
    bench.idle(after=GRACE - 1)
    assert bench.code() is None
    bench.pass_time(1)
    assert bench.code() == -240


def test_a_restart_keeps_the_deadline() -> None:
    bench = notified()
    bench.now += 100
    bench.restart()
    bench.idle()
    assert (bench.code(), given(bench)) == (None, NoticeStatus(0, "Suspension", NOW, NOW + GRACE))
    bench.idle(after=199)
    bench.pass_time(1)
    assert bench.code() == -240


def test_no_pod_is_created_while_the_end_waits() -> None:
    bench = training(role("a", 2), role("b", retryPolicy={"maxRetryCount": -2}))
    bench.edit_then_settle(suspend=True)
    bench.end("f-b-0", 1)
    assert bench.states("b") == ["CreationPending"]
    bench.edit_then_settle(suspend=False)
    assert bench.states("b") == ["Preparing"]


def test_nothing_is_waited_for_without_a_running_task() -> None:
    bench = training()
    bench.edit_then_settle(suspend=True)
    bench.show("f-a-0", phase="Unknown")
    for name in ("f-a-0", "f-a-1"):
        bench.show(name, deleting=bench.now)
    bench.plan()
    assert bench.code() == -240


def test_an_attempt_that_does_not_run_yet_is_not_notified() -> None:
    bench = Bench(role(), checkpointGraceSeconds=GRACE)
    bench.all_pods()
    bench.edit_then_plan(suspend=True)
    assert (bench.code(), bench.status.notice) == (-240, None)


def test_a_task_that_ends_the_attempt_does_not_wait() -> None:
    bench = notified()
    bench.end("f-a-0", 1)
    assert (bench.status.state, bench.code()) == (State.COMPLETED, 1)


# --- the notice is withdrawn ----------------------------------------------------------------------------------------


def test_a_resumed_framework_continues() -> None:
    bench = notified()
    bench.edit(suspend=False)
    made = bench.plan(write=False)
    # Persisted first.
    assert (bench.status.notice, made.actions, made.urgency) == (None, [], Urgency.NOW)
    bench.write()
    bench.settle()
    assert (shown(bench), bench.code(), suspended(bench)) == (None, None, ("False", "Resumed"))
    assert told(bench) == "FrameworkAttempt 0"
    bench.idle(after=10 * GRACE)
    assert bench.code() is None


def test_another_suspension_has_another_notice() -> None:
    bench = notified()
    bench.edit_then_settle(suspend=False)
    bench.now += 100
    bench.edit_then_settle(suspend=True)
    assert given(bench) == NoticeStatus(0, "Suspension", NOW + 100, NOW + 100 + GRACE)
    assert shown(bench) == f"Suspension {format_time(NOW + 100 + GRACE)}"


def test_without_the_field_it_ends_at_once() -> None:
    bench = notified()
    bench.edit_then_plan(checkpointGraceSeconds=None)
    assert bench.code() == -240


@pytest.mark.parametrize("spec", [{"executionType": "Stop"}, {"executionType": "Stop", "suspend": True}])
def test_a_stop_does_not_wait(spec: Any) -> None:
    bench = training()
    bench.edit_then_plan(**spec)
    assert (bench.code(), bench.status.notice) == (-210, None)
    bench = notified()
    bench.edit_then_plan(**spec)
    assert bench.code() == -210


def test_a_deletion_that_a_finalizer_blocks_does_not_wait() -> None:
    bench = notified()
    bench.held = bench.deleting = True
    bench.plan()
    assert bench.code() == -240


# --- an invalid spec ------------------------------------------------------------------------------------------------


def test_an_invalid_spec_is_suspended_after_the_notice() -> None:
    bench = training(TWO, retryPolicy={"maxRetryCount": -2})
    bench.spoil(suspend=True)
    bench.settle()
    assert (shown(bench), bench.code()) == (f"Suspension {format_time(NOW + GRACE)}", None)
    # Tasks stay as they are, since only policies interpret the end of a Pod.
    bench.stop("f-a-0", 1)
    bench.idle()
    assert bench.states() == ["Running", "Running"]
    bench.pass_time(GRACE)
    assert bench.code() == -240


def test_the_suspension_of_an_invalid_spec_is_taken_back() -> None:
    bench = training()
    bench.spoil(suspend=True)
    bench.settle()
    bench.spoil(suspend=False)
    bench.settle()
    assert (bench.status.notice, shown(bench), bench.code()) == (None, None, None)


# --- a deadline -----------------------------------------------------------------------------------------------------


def test_a_deadline_comes_with_a_notice() -> None:
    bench = training(activeDeadlineSeconds=1000)
    bench.now = NOW + 1000
    bench.settle()
    assert given(bench) == NoticeStatus(0, "ActiveDeadline", NOW + 1000, NOW + 1000 + GRACE)
    bench.pass_time(GRACE)
    assert bench.code() == -250


def test_a_raised_deadline_withdraws_the_notice_after_some_time() -> None:
    bench = training(activeDeadlineSeconds=1000)
    bench.now = NOW + 1000
    bench.settle()
    bench.edit_then_plan(activeDeadlineSeconds=9000)
    assert given(bench).reason == "ActiveDeadline"
    assert bench.plan().requeue_after == 30
    bench.pass_time(30)
    bench.settle()
    assert (bench.status.notice, shown(bench), bench.code()) == (None, None, None)


# --- a disruption ---------------------------------------------------------------------------------------------------


def disrupt(bench: Bench, name: str = "f-a-0", *, deleting: bool = False) -> None:
    """Kubernetes announces that it will end the Pod, or does."""
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": "preempted",
    }
    bench.show(name, conditions=[condition], deleting=bench.now + 30 if deleting else None)


def test_all_tasks_are_notified_of_a_disruption() -> None:
    bench = training()
    disrupt(bench)
    bench.settle()
    assert shown(bench) == f"Disruption {format_time(NOW + GRACE)}"
    assert told(bench) == "FrameworkAttempt 0"
    # It ends nothing by itself.
    bench.idle(after=GRACE)
    assert bench.code() is None


def test_a_disruption_that_is_called_off_withdraws_the_notice() -> None:
    bench = training()
    disrupt(bench)
    bench.settle()
    bench.show("f-a-0", conditions=[])
    bench.settle()
    assert (bench.status.notice, shown(bench)) == (None, None)


def test_a_failure_rule_waits_while_the_pod_terminates() -> None:
    bench = training(role("a", 2, **ON_DISRUPTION), retryPolicy={"maxRetryCount": 1})
    disrupt(bench, deleting=True)
    bench.settle()
    assert (bench.states(), bench.code(), given(bench).reason) == (["Deleting", "Running"], None, "Disruption")
    assert told(bench).startswith(
        "FrameworkAttempt 0: waits for a checkpoint before the end by the disruption of a Pod"
    )
    bench.now += 5
    show_report(bench, int(bench.now))
    bench.plan()
    assert bench.code() == -1008


def test_a_failure_rule_waits_no_longer_than_the_pod_exists() -> None:
    bench = training(role("a", 2, **ON_DISRUPTION), retryPolicy={"maxRetryCount": 1})
    disrupt(bench, deleting=True)
    bench.settle()
    bench.drop("f-a-0", removed=True)
    bench.plan()
    assert bench.code() == -1008


def test_the_disrupted_task_is_retried_by_the_usual_rules() -> None:
    bench = training(role("a", 2, retryPolicy={"fancyRetryPolicy": True}))
    disrupt(bench, deleting=True)
    bench.settle()
    bench.drop("f-a-0", removed=True)
    bench.settle()
    assert (bench.status.notice, shown(bench), bench.code()) == (None, None, None)
    assert (bench.task().attempt.id, bench.states()) == (1, ["Preparing", "Running"])


def test_a_suspension_after_a_disruption_has_a_notice_of_its_own() -> None:
    bench = training()
    disrupt(bench)
    bench.settle()
    bench.now += 10 * GRACE
    bench.edit_then_settle(suspend=True)
    assert given(bench) == NoticeStatus(0, "Suspension", NOW + 10 * GRACE, NOW + 11 * GRACE)
    assert bench.code() is None


def test_a_restart_keeps_the_notice_of_a_disruption() -> None:
    bench = training()
    disrupt(bench)
    bench.settle()
    bench.now += 10
    bench.restart()
    bench.settle()
    assert given(bench).time == NOW


# --- the ConfigMap --------------------------------------------------------------------------------------------------


def test_a_lost_patch_is_sent_again() -> None:
    bench = training()
    bench.edit_then_plan(suspend=True)
    patch = bench.expect(Patch)
    assert (patch.uid, orjson.loads(patch.change)) == (
        bench.status.attempt.configmap_uid,
        {"data": {"notice": f"Suspension {format_time(NOW + GRACE)}"}},
    )
    bench.fold(patch, NotAttempted())
    again = bench.expect(Patch)
    bench.refuse(again, Unanswered("gone"))
    assert bench.stall()[0] == "ConfigMapNotAnswered"
    bench.patched(bench.expect(Patch, within=60))
    bench.plan()
    assert bench.stall() == ("", "")


def test_the_cache_may_be_behind() -> None:
    bench = training()
    bench.edit_then_plan(suspend=True)
    patch = bench.expect(Patch)
    bench.idle()
    bench.fold(patch, Patched("7"))
    bench.idle()


def test_a_configmap_that_is_gone_is_not_patched_again() -> None:
    bench = training()
    bench.edit_then_plan(suspend=True)
    bench.fold(bench.expect(Patch), Gone())
    bench.idle()


def test_a_notice_that_a_user_removes_is_written_again() -> None:
    bench = notified()
    bench.plan()
    del bench.bodies[CONFIGMAP]["data"]["notice"]
    bench.show(CONFIGMAP)
    bench.settle()
    assert shown(bench) is not None


def test_the_wait_ends_though_the_configmap_cannot_be_changed() -> None:
    bench = training()
    bench.edit_then_plan(suspend=True)
    for _ in range(100):
        for action in bench.plan().actions:
            if isinstance(action, Delete):
                return
            bench.fold(action, Unanswered("gone"))
        bench.now += 15
    raise AssertionError("it does not end")


def test_nothing_is_written_without_the_feature() -> None:
    bench = running(role(), limit=limits(), suspend=False)
    bench.edit_then_plan(suspend=True)
    assert (bench.status.notice, bench.code()) == (None, -240)
