"""Each line of docs/lifecycle.md on the order and on the Framework, walked by one Framework."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest

from frameworkcontroller.api.objects import Identity
from frameworkcontroller.api.status import State
from frameworkcontroller.api.timestamps import parse_time
from frameworkcontroller.machine.kernel.actions import Action, ConfirmGone, ConfirmNone, Create, Delete, LeaveNewer
from frameworkcontroller.machine.kernel.exchanges import Accepted, Exists, Gone, NotAttempted, Remains
from frameworkcontroller.machine.kernel.model import Plan, Snapshot, SnapshotTrigger, Urgency
from frameworkcontroller.machine.kernel.reasons import Reason
from frameworkcontroller.machine.kernel.requests import Kind, Unanswered
from frameworkcontroller.machine.lifereasons import LifeReason
from tests.support.bench import NOW, UID, Bench, accepted, begun, limits, prepared, role, running
from tests.unit.machine.shown import actions

STOPPED = "User has requested to stop the Framework"
TASK_STOPPED = "Stop to complete current FrameworkAttempt"


def state(bench: Bench) -> State:
    """The Framework's state."""
    return bench.status.state


def diagnostics(bench: Bench) -> str:
    """Diagnostics of the attempt's completion status."""
    completion = bench.completion()
    return completion.diagnostics


def stop(bench: Bench) -> None:
    """The user stops the Framework, which is persisted."""
    bench.edit_then_plan(executionType="Stop")


def stopping(*roles: Any) -> Bench:
    """A running Framework that is stopped: the deletion of its ConfigMap is accepted."""
    bench = running(*roles)
    stop(bench)
    bench.fold(bench.expect(Delete), Accepted())
    return bench


def configmap_deletions(made: Plan) -> list[Reason]:
    """The records of a ConfigMap that others delete."""
    return [one.reason for one in made.records if one.reason is LifeReason.CONFIGMAP_DELETING]


# --- the beginning ----------------------------------------------------------------------------------------------


def test_the_first_plan_only_writes_the_initial_status() -> None:
    bench = Bench(role(number=2, podGracefulDeletionTimeoutSec=60), role("b", 1))
    made = bench.plan(write=False)
    assert (made.actions, made.urgency) == ([], Urgency.NOW)
    status = bench.status
    assert state(bench) is State.CREATION_PENDING
    assert (status.start_time, status.transition_time, status.attempt.start_time) == (NOW, NOW, NOW)
    assert (status.run_time, status.completion_time, status.attempt.configmap_uid) == (None, None, None)
    assert status.observed_generation == 1
    roles = status.attempt.roles
    shown = [(item.name, len(item.tasks), item.pod_graceful_deletion_timeout_sec) for item in roles]
    assert shown == [("a", 2, 60), ("b", 1, None)]
    tasks = list(bench.tracker.tasks())
    assert {task.state for task in tasks} == {State.CREATION_PENDING}
    uids = {task.instance_uid for task in tasks} | {item.instance_uid for item in roles}
    assert len(uids) == 5
    assert all(len(uid) == 36 and uid[14] == "4" for uid in uids)


def test_the_whole_life_of_a_framework_that_succeeds() -> None:
    bench = accepted()
    action = bench.expect(Create)
    assert (action.target.kind, action.target.name, action.controller_uid) == (Kind.CONFIGMAP, "f-attempt", UID)
    assert orjson.loads(action.body)["kind"] == "ConfigMap"
    uid = bench.created(action, show=False)
    bench.idle()
    assert (state(bench), bench.status.attempt.configmap_uid) == (State.CREATION_REQUESTED, uid)
    bench.show("f-attempt")
    pod = bench.only(bench.plan())
    assert state(bench) is State.PREPARING
    bench.created(pod)
    bench.plan()
    bench.now += 10
    bench.run()
    assert state(bench) is State.RUNNING
    assert bench.status.run_time == bench.status.attempt.run_time == NOW + 10
    bench.show_then_plan("f-a-0", phase="Succeeded")
    bench.fold(bench.only(bench.plan()), Accepted())
    bench.hide_then_plan("f-a-0")
    made = bench.plan(write=False)
    # The completion of the attempt is persisted before the ConfigMap is deleted.
    assert (state(bench), made.actions, made.urgency) == (State.DELETION_PENDING, [], Urgency.NOW)
    assert not bench.plan(write=False).actions
    bench.write()
    deletion = bench.expect(Delete)
    assert (deletion.target.name, deletion.uid) == ("f-attempt", uid)
    bench.fold(deletion, Accepted())
    bench.idle()
    assert state(bench) is State.DELETION_REQUESTED
    bench.show_then_plan("f-attempt", deleting=bench.now)
    assert (state(bench), bench.code()) == (State.DELETING, 0)
    bench.hide("f-attempt")
    bench.plan(write=False)
    assert state(bench) is State.ATTEMPT_COMPLETED
    bench.plan()
    assert (state(bench), bench.states()) == (State.COMPLETED, ["Completed"])
    assert bench.status.completion_time == bench.status.attempt.completion_time == NOW + 10


# --- AttemptCreationPending ------------------------------------------------------------------------------------


def test_create_waits_for_start() -> None:
    bench = accepted(role(), executionType="Create")
    for _ in range(3):
        assert bench.idle().requeue_after is None
    assert not bench.tracker.is_busy
    assert state(bench) is State.CREATION_PENDING
    bench.edit_then_plan(executionType="Start")
    assert actions(bench.wait(0)) == ["Create f-attempt"]


def test_a_framework_that_is_being_deleted_creates_nothing() -> None:
    bench = accepted()
    bench.deleting = True
    for _ in range(3):
        bench.idle()
    assert not bench.tracker.is_busy


@pytest.mark.parametrize("before", ["Create", "Start"])
def test_stop_before_a_creation_confirms_the_absence_of_the_configmap(before: str) -> None:
    bench = accepted(role(number=2), executionType=before)
    stop(bench)
    confirmation = bench.expect(ConfirmNone, 0)
    assert (confirmation.target.name, confirmation.controller_uid) == ("f-attempt", UID)
    bench.fold(confirmation, Remains("one is being deleted"))
    assert state(bench) is State.CREATION_PENDING
    bench.idle()
    assert bench.expect(ConfirmNone, 60) == confirmation
    bench.fold(confirmation, Gone(), write=False)
    assert state(bench) is State.ATTEMPT_COMPLETED
    assert (bench.code(), diagnostics(bench), bench.task_codes()) == (-210, STOPPED, [-220, -220])
    bench.plan()
    assert (state(bench), bench.states()) == (State.COMPLETED, ["Completed", "Completed"])


def dying(bench: Bench) -> None:
    """The cache shows a ConfigMap whose deletion was to end by now."""
    bench.show("f-attempt", deleting=bench.now, grace=0)


def test_a_configmap_that_appears_after_the_completion_is_deleted_once_that_is_persisted() -> None:
    bench = begun()
    configmap, bench.configmap = bench.configmap, None
    bench.forget()
    stop(bench)
    bench.fold(bench.only(bench.wait(0)), Gone(), write=False)
    # Its creation was answered late.
    bench.configmap = configmap
    for _ in range(3):
        assert not bench.plan(write=False).actions
    assert state(bench) is State.COMPLETED
    bench.write()
    bench.expect(Delete)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_garbage_collector_that_does_nothing_stalls_after_two_minutes(restarts: bool) -> None:
    """No process needs to have waited for that time."""
    bench = stopping(role(number=2))
    dying(bench)
    assert bench.plan().requeue_after == 120
    bench.pass_time(119)
    assert not bench.stalls()
    if restarts:
        bench.restart()
        bench.listed = bench.now
    bench.pass_time(1)
    reason, message = bench.stall()
    assert reason == "PodsNotDeleted"
    for words in ("ConfigMap f-attempt was deleted at ", "none of its 2 Pods is being deleted", "f-a-0", "collector"):
        assert words in message
    bench.show_then_plan("f-a-1", deleting=bench.now + 30)
    assert bench.stalls() == [("False", "Progressing")]


def test_a_terminating_configmap_stalls_once_it_stays_without_a_pod() -> None:
    bench = stopping(role(number=2))
    dying(bench)
    bench.show("f-a-1", deleting=bench.now + 1000, grace=1000)
    for seconds in (0, 600):
        bench.pass_time(seconds)
        assert not bench.stalls()
    for name in ("f-a-0", "f-a-1"):
        bench.hide(name)
    bench.plan()
    bench.pass_time(119)
    assert not bench.stalls()
    bench.pass_time(1)
    assert bench.stalls() == [("True", "ConfigMapNotGone")]
    bench.configmap = None
    bench.plan()
    assert (bench.stalls(), bench.code()) == ([("False", "Progressing")], -210)


@pytest.mark.parametrize("marks", [None, (UID, "1")])
def test_a_configmap_that_stop_finds_is_deleted_only_once_the_status_is_confirmed(
    marks: tuple[str, ...] | None,
) -> None:
    bench = accepted()
    stop(bench)
    confirmation = bench.expect(ConfirmNone, 0)
    bench.fold(confirmation, Exists(Identity("other", UID, marks, False)))
    assert state(bench) is State.CREATION_PENDING
    if marks is None:
        deletion = bench.expect(Delete)
        assert (deletion, deletion.unrecorded) == (Delete(confirmation.target, "other"), True)
        bench.fold(deletion, Accepted())
    else:
        leave = bench.expect(LeaveNewer)
        assert leave == LeaveNewer(confirmation.target)
        bench.fold(leave, Remains("as old"))
    for result in (Exists(Identity("other", UID, marks, True)), Gone()):
        bench.idle()
        assert bench.expect(ConfirmNone, 60) == confirmation
        bench.fold(confirmation, result)
    assert bench.code() == -210


# --- recorded but absent ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("runs", [False, True])
def test_a_configmap_that_is_gone_was_deleted_by_others(runs: bool) -> None:
    bench = running() if runs else Bench(role())
    if not runs:
        bench.attempt()
        bench.plan()
    bench.vanish()
    made = bench.plan(write=False)
    assert [(one.reason, one.warning) for one in made.records][:1] == [(LifeReason.CONFIGMAP_DELETING, True)]
    assert (state(bench), bench.states()) == (State.ATTEMPT_COMPLETED, ["Completed"])
    assert (bench.code(), bench.task_codes()) == (-100, [-220])


def test_a_configmap_that_only_a_stale_cache_shows_is_deleted_with_back_off() -> None:
    bench = running()
    shown = bench.configmap
    stop(bench)
    bench.fold(bench.expect(Delete), Accepted())
    bench.hide("f-attempt")
    bench.settle()
    assert state(bench) is State.COMPLETED
    bench.restart()
    bench.configmap = shown
    action = bench.expect(Delete)
    assert action.unrecorded
    bench.fold(action, Gone())
    assert (bench.idle().requeue_after or 0) > 0.3
    assert not bench.tracker.is_busy
    assert bench.expect(Delete, 60) == action


def test_a_decided_completion_stays_when_the_configmap_goes() -> None:
    bench = running()
    stop(bench)
    bench.vanish()
    assert configmap_deletions(bench.plan(write=False)) == []
    assert (state(bench), bench.code()) == (State.ATTEMPT_COMPLETED, -210)


def test_the_attempt_waits_for_a_pod_that_no_task_has() -> None:
    bench = running()
    identity = replace(bench.pods["f-a-0"].identity, uid="taskless")
    taskless = replace(bench.pods["f-a-0"], name="f-a-7", identity=identity)
    bench.vanish()
    bench.pods["f-a-7"] = taskless
    bench.plan()
    assert state(bench) is State.DELETING
    assert actions(bench.plan()) == ["Delete f-a-7"]
    bench.hide_then_plan("f-a-7")
    assert state(bench) is State.ATTEMPT_COMPLETED


@pytest.mark.parametrize("succeeds", [True, False])
def test_the_attempt_waits_for_creations_of_pods_in_flight(succeeds: bool) -> None:
    bench = begun()
    creation = bench.expect(Create)
    bench.hide("f-attempt")
    bench.creating = True
    bench.plan()
    assert (state(bench), bench.code(), bench.task_codes()) == (State.DELETING, -100, [-220])
    if succeeds:
        uid = bench.created(creation)
        bench.creating = False
        bench.plan()
        assert (state(bench), bench.states()) == (State.DELETING, ["DeletionPending"])
        assert bench.expect(Delete) == Delete(creation.target, uid)
        bench.hide("f-a-0")
    else:
        bench.fold(creation, NotAttempted())
        bench.creating = False
        assert bench.tracker.is_busy
    bench.plan(write=False)
    assert (state(bench), bench.task_codes()) == (State.ATTEMPT_COMPLETED, [-220])


# --- being deleted ----------------------------------------------------------------------------------------------


def test_a_configmap_that_others_delete() -> None:
    bench = running(role(number=2))
    bench.show("f-attempt", deleting=bench.now)
    bench.idle()
    assert (state(bench), bench.code()) == (State.DELETING, -100)
    # Its Tasks are followed to their end.
    bench.show_then_plan("f-a-0", deleting=bench.now + 30)
    assert bench.states() == ["Deleting", "Running"]
    bench.hide_then_plan("f-a-0")
    bench.plan()
    assert bench.states() == ["Completed", "Running"]
    bench.vanish()
    bench.plan(write=False)
    assert (state(bench), bench.code()) == (State.ATTEMPT_COMPLETED, -100)
    assert bench.states() == ["Completed", "Completed"]


# --- Stop and completion ----------------------------------------------------------------------------------------


def test_stop_completes_the_attempt_and_stops_every_task() -> None:
    bench = running(role(number=2))
    bench.end("f-a-1", 7)
    bench.edit(executionType="Stop")
    assert not bench.plan(write=False).actions
    assert (state(bench), bench.code(), diagnostics(bench)) == (State.DELETION_PENDING, -210, STOPPED)
    assert bench.task_codes() == [-220, 7]
    completion = bench.task_completion()
    assert (completion.phrase, completion.diagnostics) == ("FrameworkAttemptCompletion", TASK_STOPPED)
    bench.write()
    assert actions(bench.plan()) == ["Delete f-attempt"]
    # A later phase of a Pod does not change the completion of its Task.
    bench.show_then_plan("f-a-0", phase="Succeeded")
    assert bench.task_codes() == [-220, 7]


@pytest.mark.parametrize("deleting", [False, True])
def test_stop_while_the_attempt_is_completing_changes_nothing(deleting: bool) -> None:
    bench = prepared(role(failed=1))
    bench.show_then_plan("f-a-0", phase="Failed")
    bench.fold(bench.expect(Delete), Accepted())
    bench.hide("f-a-0")
    for _ in range(3):
        bench.plan()
    assert (state(bench), bench.code()) == (State.DELETION_PENDING, -300)
    if deleting:
        bench.show_then_plan("f-attempt", deleting=bench.now)
    stop(bench)
    assert bench.code() == -300


def test_a_leaving_task_does_not_make_the_framework_run() -> None:
    bench = prepared(role(number=2))
    bench.edit_then_plan(role(number=1))
    bench.show_then_plan("f-a-1", phase="Running")
    assert state(bench) is State.PREPARING
    bench.run("f-a-0")
    assert state(bench) is State.RUNNING


# --- retry ------------------------------------------------------------------------------------------------------


def fail(bench: Bench, exit_code: int) -> None:
    """The one Task ends with that code, the attempt completes by it, and its ConfigMap goes."""
    bench.stop_then_plan(code=exit_code)
    bench.fold(bench.expect(Delete), Accepted())
    bench.hide("f-a-0")
    while not (made := bench.plan()).actions:
        pass
    bench.fold(bench.only(made), Accepted())
    bench.hide("f-attempt")


def conflicting() -> Bench:
    """A Framework whose attempt has just failed with a transient conflict, under a fancy policy."""
    fancy = {"fancyRetryPolicy": True, "maxRetryCount": 0}
    bench = prepared(role(failed=1), limit=limits(minimum=100, maximum=200), retryPolicy=fancy)
    fail(bench, 201)
    bench.plan()
    assert (state(bench), bench.code()) == (State.ATTEMPT_COMPLETED, 201)
    return bench


def test_a_retry_is_a_fresh_attempt() -> None:
    bench = running(role(number=1, failed=1, podGracefulDeletionTimeoutSec=9), retryPolicy={"maxRetryCount": 1})
    old = bench.status.attempt
    old_uids = {old.roles[0].instance_uid, old.roles[0].tasks[0].instance_uid}
    bench.now += 100
    fail(bench, 5)
    # The end of an attempt is shown before the next one begins.
    for _ in range(2):
        bench.plan(write=False)
        assert state(bench) is State.ATTEMPT_COMPLETED
    bench.write()
    for _ in range(2):
        assert not bench.plan(write=False).actions
        assert state(bench) is State.CREATION_PENDING
    retry, new = bench.status.retry, bench.status.attempt
    assert (retry.total_retried_count, retry.accountable_retried_count, retry.retry_delay_sec) == (1, 1, None)
    assert (new.id, new.start_time, new.run_time) == (1, NOW + 100, None)
    assert (new.configmap_uid, new.completion_status) == (None, None)
    assert (bench.status.start_time, bench.status.run_time) == (NOW, NOW)
    assert new.roles[0].pod_graceful_deletion_timeout_sec == 9
    task = new.roles[0].tasks[0]
    assert not old_uids & {new.roles[0].instance_uid, task.instance_uid}
    assert (task.state, task.attempt.id, task.retry.total_retried_count) == (State.CREATION_PENDING, 0, 0)
    bench.write()
    body = orjson.loads(bench.expect(Create).body)
    assert body["metadata"]["annotations"]["FC_FRAMEWORK_ATTEMPT_ID"] == "1"


def test_the_delay_of_a_retry_is_persisted_and_passes_before_it() -> None:
    bench = conflicting()
    made = bench.plan()
    delay = bench.status.retry.retry_delay_sec
    assert delay is not None
    assert 100 <= delay <= 200
    assert (made.requeue_after, state(bench)) == (delay, State.ATTEMPT_COMPLETED)
    bench.pass_time(delay - 1)
    assert state(bench) is State.ATTEMPT_COMPLETED
    # It is drawn once. Another process continues the wait.
    bench.restart()
    assert bench.plan().requeue_after == 1
    assert bench.status.retry.retry_delay_sec == delay
    bench.pass_time(1)
    retry = bench.status.retry
    assert state(bench) is State.CREATION_PENDING
    assert (retry.total_retried_count, retry.accountable_retried_count, retry.retry_delay_sec) == (1, 0, None)


def test_a_clock_that_is_set_back_does_not_delay_an_immediate_retry() -> None:
    bench = prepared(role(failed=1), retryPolicy={"maxRetryCount": 1})
    fail(bench, 5)
    bench.plan()
    assert state(bench) is State.ATTEMPT_COMPLETED
    bench.now -= 3600
    bench.plan()
    assert state(bench) is State.CREATION_PENDING


def test_stop_skips_the_delay_of_a_retry() -> None:
    bench = conflicting()
    bench.plan()
    bench.edit_then_settle(executionType="Stop")
    assert (state(bench), bench.now, bench.status.attempt.id) == (State.COMPLETED, NOW, 1)
    assert (bench.code(), diagnostics(bench)) == (-210, STOPPED)


def test_delays_are_drawn_within_the_range() -> None:
    seen = set()
    for seed in range(30):
        bench = conflicting()
        bench.rng.seed(seed)
        bench.limits = limits(minimum=3, maximum=6)
        bench.plan()
        seen.add(bench.status.retry.retry_delay_sec)
    assert seen == {3, 4, 5, 6}


def test_a_completed_framework_is_not_retried_by_a_later_policy() -> None:
    bench = prepared()
    bench.end()
    bench.edit_then_plan(role(number=5), retryPolicy={"maxRetryCount": -2})
    bench.plan()
    assert (state(bench), bench.states()) == (State.COMPLETED, ["Completed"])
    assert bench.status.observed_generation == 2


# --- retention --------------------------------------------------------------------------------------------------


def test_a_completed_framework_is_deleted_after_its_retention() -> None:
    bench = prepared()
    bench.end()
    assert bench.idle().requeue_after == 2_592_000
    bench.idle(after=2_592_000 - 1)
    action = bench.expect(Delete, after=1)
    assert (action.target.kind, action.target.name, action.uid) == (Kind.FRAMEWORK, "f", UID)
    bench.fold(action, Unanswered("reset"))
    bench.idle()
    assert bench.expect(Delete, 60) == action
    bench.fold(action, Accepted())
    assert not bench.tracker.is_busy
    bench.deleting = True
    assert bench.idle().requeue_after is None


def test_only_the_retention_is_due_for_a_completed_framework() -> None:
    """Alarms of its Tasks end: a stuck Pod, a wait for the cache, a creation held back."""
    bench = begun(role(number=3, podGracefulDeletionTimeoutSec=500))
    first, second, _ = bench.plan().actions
    bench.created(first)
    bench.created(second, show=False)
    bench.show_then_plan("f-a-0", deleting=bench.now + 30)
    bench.vanish()
    # The Pod that the cache never showed is read live.
    (action,) = [action for action in bench.wait(60).actions if isinstance(action, ConfirmGone)]
    bench.fold(action, Gone())
    bench.plan()
    bench.plan()
    assert state(bench) is State.COMPLETED
    due, plans = bench.now + 2_592_000, 0
    while not (made := bench.plan()).actions:
        assert made.requeue_after
        bench.now += made.requeue_after
        plans += 1
    assert plans <= 3
    assert bench.now == due


# --- snapshots ------------------------------------------------------------------------------------------------------

NO_DELAY = {"totalRetriedCount": 0, "accountableRetriedCount": 0, "retryDelaySec": 0}


def kept(bench: Bench) -> tuple[list[Snapshot], list[Action]]:
    """Snapshots and actions of the next plan, whose status is not written yet."""
    made = bench.plan(write=False)
    return made.snapshots, made.actions


def snapshots(bench: Bench) -> Snapshot:
    """The snapshot of the next plans, with deletions accepted and seen at once and three seconds between plans."""
    found: list[Snapshot] = []
    for _ in range(10):
        made = bench.plan()
        found += made.snapshots
        for action in made.actions:
            if isinstance(action, Delete):
                bench.fold(action, Accepted())
                bench.hide(action.target.name)
        bench.now += 3
    (snapshot,) = found
    return snapshot


def shown(snapshot: Snapshot) -> Sequence[Any]:
    """State, attempt and retries in a snapshot."""
    body = orjson.loads(snapshot.status_json)
    return body["state"], body["attemptStatus"]["id"], body["retryPolicyStatus"]


def test_a_snapshot_of_a_tasks_attempt_is_in_the_plan_that_replaces_it_once_its_end_is_persisted() -> None:
    bench = prepared(role(retryPolicy={"maxRetryCount": 1}))
    bench.stop_then_plan(code=1)
    bench.fold(bench.expect(Delete), Accepted())
    bench.hide("f-a-0")
    assert kept(bench) == ([], [])
    assert bench.state() is State.ATTEMPT_COMPLETED
    bench.write()
    (snapshot,), _ = kept(bench)
    assert (snapshot.trigger, snapshot.role, snapshot.index) == (SnapshotTrigger.TASK_RETRY, "a", 0)
    assert shown(snapshot) == ("AttemptCompleted", 0, NO_DELAY)
    assert bench.task().attempt.id == 1


def test_a_snapshot_of_a_frameworks_attempt_has_the_delay_of_its_retry() -> None:
    bench = prepared(role(failed=1), retryPolicy={"maxRetryCount": 1})
    bench.stop(code=1)
    snapshot = snapshots(bench)
    assert (snapshot.trigger, snapshot.role) == (SnapshotTrigger.FRAMEWORK_RETRY, None)
    assert shown(snapshot) == ("AttemptCompleted", 0, NO_DELAY)
    assert (bench.status.attempt.id, bench.status.retry.retry_delay_sec) == (1, None)


def test_a_snapshot_of_a_task_has_the_annotations_that_all_its_attempts_share() -> None:
    bench = prepared(role(number=2))
    bench.edit(role(number=1))
    snapshot = snapshots(bench)
    attempt = bench.status.attempt
    assert snapshot.annotations == {
        "FC_FRAMEWORK_NAMESPACE": "ns",
        "FC_FRAMEWORK_NAME": "f",
        "FC_TASKROLE_NAME": "a",
        "FC_TASK_INDEX": "1",
        "FC_CONFIGMAP_NAME": "f-attempt",
        "FC_FRAMEWORK_UID": UID,
        "FC_FRAMEWORK_ATTEMPT_ID": "0",
        "FC_FRAMEWORK_ATTEMPT_INSTANCE_UID": f"0_{attempt.configmap_uid}",
        "FC_CONFIGMAP_UID": attempt.configmap_uid,
        "FC_TASKROLE_UID": attempt.roles[0].instance_uid,
    }
    # The time at which its status was persisted, not its completion.
    assert snapshot.deleted_at is not None
    assert snapshot.deleted_at == parse_time(orjson.loads(snapshot.status_json)["completionTime"]) + 3


def test_a_snapshot_of_a_framework_is_taken_once_in_the_plan_that_deletes_it() -> None:
    bench = prepared(role(), limit=replace(limits(), framework_completed_retain_sec=10))
    bench.end()
    bench.now += 11
    (snapshot,), (delete,) = kept(bench)
    assert (snapshot.trigger, shown(snapshot)[0]) == (SnapshotTrigger.FRAMEWORK_DELETION, "Completed")
    bench.fold(delete, Unanswered("lost"))
    bench.now += 60
    assert kept(bench) == ([], [delete])


# --- the order of a sync -----------------------------------------------------------------------------------------


def test_observed_generation_is_the_planned_one() -> None:
    bench = running()
    assert bench.status.observed_generation == 1
    bench.edit(description="nothing that matters")
    bench.plan(write=False)
    assert (bench.status.observed_generation, bench.tracker.urgency) == (2, Urgency.SHOWN)


def test_a_plan_without_a_change_is_not_written() -> None:
    bench = running()
    bench.plan()
    for look in (False, False, True):
        if look:
            bench.tracker.look_at_all()
        made = bench.plan(write=False)
        assert (made.actions, made.urgency, made.records, made.requeue_after) == ([], Urgency.NONE, [], None)


def test_an_invalid_spec_stops_all_actions_and_stalls() -> None:
    bench = running()
    bench.show("f-a-0", phase="Failed")
    bench.edit(role("a", -5))
    made = bench.plan(write=False)
    assert (made.actions, made.requeue_after, bench.states()) == ([], None, ["Running"])
    assert bench.stall() == ("InvalidSpec", "spec.taskRoles[0].taskNumber: -5: must be at least 0")
    bench.write()
    assert bench.plan(write=False).urgency is Urgency.NONE
    bench.edit_then_plan(role())
    assert (bench.states(), bench.stalls()) == (["DeletionPending"], [("False", "Progressing")])


def test_a_framework_with_an_invalid_spec_is_not_due_again() -> None:
    """Otherwise it would be planned without pause."""
    bench = Bench(role())
    bench.pod(show=False)
    bench.plan()
    bench.now += 10_000
    bench.spoil()
    for _ in range(2):
        assert bench.plan().requeue_after in (None, 0.0)
    assert bench.plan().requeue_after is None
    assert not bench.tracker.is_busy


def test_a_new_framework_with_an_invalid_spec_begins_once_the_spec_is_valid() -> None:
    bench = Bench(role("b", -1))
    bench.settle()
    assert not bench.status.attempt.roles
    bench.edit_then_plan(role("b", 2))
    bench.all_pods()
    assert bench.states("b") == ["Preparing", "Preparing"]
