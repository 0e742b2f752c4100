"""Each line of docs/lifecycle.md on the order and on the Framework, walked by one Framework."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from frameworkcontroller.api.objects import Identity
from frameworkcontroller.api.status import State
from frameworkcontroller.api.timestamps import parse_time
from frameworkcontroller.machine.kernel.actions import (
    Action,
    Cleanup,
    Confirm,
    Create,
    Delete,
    Refresh,
    Relabel,
)
from frameworkcontroller.machine.kernel.exchanges import Accepted, Exists, Gone, NotAttempted, Remains, Result
from frameworkcontroller.machine.kernel.model import Snapshot, SnapshotTrigger, Urgency
from frameworkcontroller.machine.kernel.requests import Kind, Unanswered
from frameworkcontroller.machine.lifereasons import LifeReason
from tests.support.bench import NOW, UID, Bench, foreign, limits, refused, role
from tests.unit.machine.shown import actions, stall, stalls

STOPPED = "User has requested to stop the Framework"
TASK_STOPPED = "Stop to complete current FrameworkAttempt"


def state(bench: Bench) -> State:
    """The Framework's state."""
    return bench.status.state


def code(bench: Bench) -> int | None:
    """Code of the attempt's completion status."""
    completion = bench.status.attempt.completion_status
    return None if completion is None else completion.code


def diagnostics(bench: Bench) -> str:
    """Diagnostics of the attempt's completion status."""
    completion = bench.status.attempt.completion_status
    assert completion is not None
    return completion.diagnostics


def task_codes(bench: Bench) -> list[int | None]:
    """Codes of all Tasks' completion statuses."""
    return [
        None if task.attempt.completion_status is None else task.attempt.completion_status.code
        for task in bench.tracker.tasks()
    ]


def running(*, number: int = 1) -> Bench:
    """A Framework whose Tasks all run."""
    bench = Bench(role(number=number))
    bench.all_pods()
    for index in range(number):
        bench.run(f"f-a-{index}")
    bench.plan()
    assert state(bench) is State.RUNNING
    return bench


# --- the beginning ----------------------------------------------------------------------------------------------


def test_the_first_plan_writes_the_initial_status_and_does_nothing_else() -> None:
    bench = Bench(role(number=2, podGracefulDeletionTimeoutSec=60), role("b", 1))
    made = bench.plan(write=False)
    assert not made.actions
    assert made.urgency is Urgency.NOW
    status = bench.status
    assert state(bench) is State.CREATION_PENDING
    assert (status.start_time, status.transition_time, status.attempt.start_time) == (NOW, NOW, NOW)
    assert (status.run_time, status.completion_time, status.attempt.configmap_uid) == (None, None, None)
    assert status.observed_generation == 1
    assert [(item.name, len(item.tasks), item.pod_graceful_deletion_timeout_sec) for item in status.attempt.roles] == [
        ("a", 2, 60),
        ("b", 1, None),
    ]
    tasks = list(bench.tracker.tasks())
    assert {task.state for task in tasks} == {State.CREATION_PENDING}
    uids = {task.instance_uid for task in tasks} | {item.instance_uid for item in status.attempt.roles}
    assert len(uids) == 5
    assert all(len(uid) == 36 and uid[14] == "4" for uid in uids)


def test_the_whole_life_of_a_framework_that_succeeds() -> None:
    bench = Bench(role())
    bench.plan()
    action = bench.only(bench.plan())
    assert isinstance(action, Create)
    assert (action.target.kind, action.target.name, action.controller_uid) == (Kind.CONFIGMAP, "f-attempt", UID)
    assert orjson.loads(action.body)["kind"] == "ConfigMap"
    uid = bench.created(action, show=False)
    assert state(bench) is State.CREATION_REQUESTED
    assert bench.status.attempt.configmap_uid == uid
    assert not bench.plan().actions
    assert state(bench) is State.CREATION_REQUESTED
    bench.show("f-attempt")
    pod = bench.only(bench.plan())
    assert state(bench) is State.PREPARING
    bench.created(pod)
    bench.plan()
    bench.now += 10
    bench.run()
    assert state(bench) is State.RUNNING
    assert bench.status.run_time == bench.status.attempt.run_time == NOW + 10
    bench.show("f-a-0", phase="Succeeded")
    bench.plan()
    bench.fold(bench.only(bench.plan()), Accepted())
    bench.hide("f-a-0")
    bench.plan()
    made = bench.plan(write=False)
    # The attempt is decided complete; that is persisted, and only then is the ConfigMap deleted.
    assert state(bench) is State.DELETION_PENDING
    assert not made.actions
    assert made.urgency is Urgency.NOW
    assert not bench.plan(write=False).actions
    bench.write()
    deletion = bench.only(bench.plan())
    assert isinstance(deletion, Delete)
    assert (deletion.target.name, deletion.uid) == ("f-attempt", uid)
    bench.fold(deletion, Accepted())
    assert state(bench) is State.DELETION_REQUESTED
    assert not bench.plan().actions
    bench.show("f-attempt", deleting=bench.now)
    bench.plan()
    assert state(bench) is State.DELETING
    assert code(bench) == 0
    bench.hide("f-attempt")
    bench.plan(write=False)
    assert state(bench) is State.ATTEMPT_COMPLETED
    bench.plan()
    assert state(bench) is State.COMPLETED
    assert bench.status.completion_time == bench.status.attempt.completion_time == NOW + 10
    assert bench.states() == ["Completed"]


# --- AttemptCreationPending ------------------------------------------------------------------------------------


def test_create_waits_for_start() -> None:
    bench = Bench(role(), executionType="Create")
    bench.plan()
    for _ in range(3):
        made = bench.plan()
        assert not made.actions
        assert made.requeue_after is None
    assert not bench.tracker.is_busy
    assert state(bench) is State.CREATION_PENDING
    bench.edit(executionType="Start")
    bench.plan()
    assert actions(bench.wait(0)) == ["Create f-attempt"]


def test_a_framework_that_is_being_deleted_creates_nothing() -> None:
    bench = Bench(role())
    bench.plan()
    bench.deleting = True
    for _ in range(3):
        assert not bench.plan().actions
    assert not bench.tracker.is_busy


@pytest.mark.parametrize("before", ["Create", "Start"])
def test_stop_before_anything_is_created_makes_sure_that_nothing_is_there(before: str) -> None:
    bench = Bench(role(number=2), executionType=before)
    bench.plan()
    bench.edit(executionType="Stop")
    bench.plan()
    cleanup = bench.only(bench.wait(0))
    assert isinstance(cleanup, Cleanup)
    assert (cleanup.target.name, cleanup.controller_uid) == ("f-attempt", UID)
    bench.fold(cleanup, Remains("one is being deleted"))
    assert state(bench) is State.CREATION_PENDING
    assert not bench.plan().actions
    assert bench.only(bench.wait(60)) == cleanup
    bench.fold(cleanup, Gone(), write=False)
    assert state(bench) is State.ATTEMPT_COMPLETED
    assert (code(bench), diagnostics(bench)) == (-210, STOPPED)
    assert task_codes(bench) == [-220, -220]
    bench.plan()
    assert state(bench) is State.COMPLETED
    assert bench.states() == ["Completed", "Completed"]


@pytest.mark.parametrize(
    "result",
    [
        Unanswered("reset"),
        refused(400),
        refused(403),
        refused(403, "exceeded quota: q"),
        refused(413),
        refused(422),
        refused(429),
        refused(500),
    ],
)
def test_a_configmap_that_cannot_be_created_is_tried_again_with_back_off(result: Result) -> None:
    bench = Bench(role())
    bench.plan()
    action = bench.only(bench.plan())
    for _ in range(8):
        bench.fold(action, result)
        assert state(bench) is State.CREATION_PENDING
        made = bench.plan()
        assert not made.actions
        assert not bench.tracker.is_busy
        assert made.requeue_after is not None
        assert 0 < made.requeue_after <= 60
        assert bench.only(bench.wait(60)) == action
    assert stall(bench) != ("", "")
    bench.created(action)
    bench.plan()
    assert stalls(bench) == [("False", "Progressing")]


def test_a_configmap_of_exactly_this_attempt_is_adopted() -> None:
    bench = Bench(role())
    bench.plan()
    action = bench.only(bench.plan())
    bench.fold(action, Exists(Identity("lost", UID, (UID, "0"), False)))
    assert state(bench) is State.CREATION_REQUESTED
    assert bench.status.attempt.configmap_uid == "lost"


def test_a_configmap_of_exactly_this_attempt_is_adopted_from_the_cache() -> None:
    bench = Bench(role())
    bench.plan()
    bench.restart()
    before = bench.status
    bench.created(bench.only(bench.plan()))
    # The process dies before the UID is persisted.
    bench.restart()
    bench.status.state = before.state
    bench.status.state, bench.status.attempt.configmap_uid = State.CREATION_PENDING, None
    assert actions(bench.plan()) == ["Create f-a-0"]
    assert state(bench) is State.PREPARING
    assert bench.status.attempt.configmap_uid == "configmap-1"


@pytest.mark.parametrize("marks", [("other", "0"), (UID, "x"), None])
def test_a_controlled_configmap_of_another_attempt_is_deleted_and_waited_for(marks: tuple[str, ...] | None) -> None:
    bench = Bench(role())
    bench.plan()
    action = bench.only(bench.plan())
    bench.fold(action, Exists(Identity("old", UID, marks, False)))
    assert state(bench) is State.CREATION_PENDING
    deletion = bench.only(bench.plan())
    assert deletion == Delete(action.target, "old")
    # A live read of the Framework comes first.
    assert isinstance(deletion, Delete)
    assert deletion.orphan
    bench.fold(deletion, Accepted())
    assert not bench.plan().actions
    assert bench.only(bench.wait(60)) == action
    bench.fold(action, Exists(Identity("old", UID, marks, True)))
    assert not bench.plan().actions
    assert bench.only(bench.wait(60)) == action


def test_a_controlled_configmap_of_another_attempt_in_the_cache_is_deleted_and_waited_for() -> None:
    bench = Bench(role(), retryPolicy={"maxRetryCount": 1})
    bench.plan()
    action = bench.only(bench.plan())
    bench.created(action)
    old = bench.configmap
    assert old is not None
    bench.restart()
    bench.status.attempt.configmap_uid, bench.status.state = None, State.CREATION_PENDING
    bench.configmap = replace(old, identity=replace(old.identity, annotations=("other", "0")))
    deletion = bench.only(bench.plan())
    assert deletion == Delete(action.target, old.uid)
    bench.fold(deletion, Accepted())
    for _ in range(3):
        assert not bench.plan().actions
    assert not bench.tracker.is_busy
    bench.configmap = replace(old, identity=replace(old.identity, annotations=("other", "0"), deleting=True))
    bench.now += 60
    assert not bench.plan().actions
    bench.configmap = None
    assert bench.only(bench.plan()) == action


def test_a_configmap_of_a_later_attempt_proves_the_status_old_and_is_never_deleted() -> None:
    bench = Bench(role())
    bench.plan()
    action = bench.only(bench.plan())
    for _ in range(3):
        bench.fold(action, Exists(Identity("later", UID, (UID, "1"), False)))
        refresh = bench.only(bench.plan())
        assert refresh == Refresh(action.target)
        # Had the live read shown a newer status, that one would be tracked by now.
        bench.fold(refresh, Remains("as old"))
        assert not bench.plan().actions
        assert bench.only(bench.wait(60)) == action
    reason, message = stall(bench)
    assert reason == "StatusOutdated"
    assert "f-attempt" in message


@pytest.mark.parametrize("ended", [False, True])
def test_a_configmap_of_a_later_attempt_in_the_cache_is_never_deleted(ended: bool) -> None:
    bench = Bench(role())
    bench.attempt()
    old = bench.configmap
    assert old is not None
    if ended:
        bench.all_pods()
        bench.end()
        assert state(bench) is State.COMPLETED
    else:
        bench.restart()
        bench.status.attempt.configmap_uid, bench.status.state = None, State.CREATION_PENDING
    bench.configmap = replace(old, identity=replace(old.identity, uid="later", annotations=(UID, "1")))
    for _ in range(3):
        refresh = bench.only(bench.wait(60))
        assert isinstance(refresh, Refresh)
        bench.fold(refresh, Remains("as old"))
    assert stall(bench)[0] == "StatusOutdated"
    if ended:
        bench.configmap = None
        bench.plan()
        assert stalls(bench) == [("False", "Progressing")]


def dying(bench: Bench, *, at: float) -> None:
    """The cache shows a ConfigMap that no status records, and that is to be gone by then."""
    bench.show("f-attempt", deleting=at, grace=0)


def test_an_orphaned_configmap_that_is_being_deleted_and_does_not_go_is_told_after_two_minutes() -> None:
    bench = Bench(role())
    bench.attempt()
    bench.restart()
    bench.status.attempt.configmap_uid, bench.status.state = None, State.CREATION_PENDING
    dying(bench, at=bench.now)
    assert bench.plan().requeue_after == 120
    bench.now += 119
    assert not bench.plan().actions
    assert not stalls(bench)
    bench.now += 1
    assert not bench.plan().actions
    assert stalls(bench) == [("True", "ConfigMapNotGone")]
    bench.configmap = None
    create = bench.only(bench.plan())
    bench.created(create)
    bench.plan()
    assert stalls(bench) == [("False", "Progressing")]


def test_stop_makes_sure_that_an_orphaned_configmap_is_gone_and_tells_what_it_waits_for() -> None:
    bench = Bench(role())
    bench.attempt()
    bench.restart()
    bench.status.attempt.configmap_uid, bench.status.state = None, State.CREATION_PENDING
    dying(bench, at=bench.now)
    bench.edit(executionType="Stop")
    bench.plan()
    cleanup = bench.only(bench.wait(0))
    assert isinstance(cleanup, Cleanup)
    assert bench.configmap is not None
    bench.refuse(cleanup, Exists(bench.configmap.identity), times=8)
    assert stalls(bench) == [("True", "ConfigMapNotGone")]
    bench.configmap = None
    assert bench.only(bench.wait(60)) == cleanup
    bench.fold(cleanup, Gone())
    bench.plan()
    assert (code(bench), state(bench)) == (-210, State.COMPLETED)
    assert stalls(bench) == [("False", "Progressing")]


def test_a_configmap_of_an_attempt_whose_end_is_decided_is_deleted_once_that_is_persisted() -> None:
    bench = Bench(role())
    bench.attempt()
    configmap, bench.configmap = bench.configmap, None
    bench.restart()
    bench.status.attempt.configmap_uid, bench.status.state = None, State.CREATION_PENDING
    bench.edit(executionType="Stop")
    bench.plan()
    bench.fold(bench.only(bench.wait(0)), Gone(), write=False)
    # Its creation was answered late.
    bench.configmap = configmap
    for _ in range(3):
        assert not bench.plan(write=False).actions
    assert state(bench) is State.COMPLETED
    bench.write()
    assert isinstance(bench.only(bench.plan()), Delete)


@pytest.mark.parametrize("execution", ["Start", "Stop"])
def test_a_pod_that_holds_an_orphaned_configmap_is_told_and_deleted_by_force(execution: str) -> None:
    bench = Bench(role(podGracefulDeletionTimeoutSec=600))
    bench.all_pods()
    uid = bench.pods["f-a-0"].uid
    # The process dies before anything of it is persisted, and somebody deletes the ConfigMap.
    bench.restart()
    bench.status.attempt.configmap_uid, bench.status.state = None, State.CREATION_PENDING
    bench.task().attempt.pod_uid, bench.task().state = None, State.CREATION_PENDING
    dying(bench, at=bench.now)
    bench.show("f-a-0", deleting=bench.now + 30, grace=30, nodeName="lost")
    if execution == "Stop":
        bench.edit(executionType="Stop")
    bench.plan()
    bench.now += 150
    for action in bench.plan().actions:
        assert isinstance(action, Cleanup)
        assert bench.configmap is not None
        bench.fold(action, Exists(bench.configmap.identity))
    assert stalls(bench) == [("True", "PodNotGone")]
    bench.now += 449
    assert not any(isinstance(action, Delete) for action in bench.plan().actions)
    bench.now += 1
    force = next(action for action in bench.plan().actions if isinstance(action, Delete))
    assert force == Delete(force.target, uid, force=True, confirm=True)
    assert force.orphan
    bench.fold(force, Gone())
    bench.hide("f-a-0")
    bench.plan()
    assert stalls(bench) == [("False", "Progressing")]


def deleted_by_nobody() -> Bench:
    """The ConfigMap of an attempt is deleted, and the garbage collector does nothing about its two Pods."""
    bench = Bench(role(number=2))
    bench.all_pods()
    bench.edit(executionType="Stop")
    bench.plan()
    bench.fold(bench.only(bench.plan()), Accepted())
    dying(bench, at=bench.now)
    return bench


@pytest.mark.parametrize("restarts", [False, True])
def test_a_garbage_collector_that_does_nothing_is_told_after_two_minutes(restarts: bool) -> None:
    """Also if no process has waited for so long."""
    bench = deleted_by_nobody()
    assert bench.plan().requeue_after == 120
    bench.now += 119
    bench.plan()
    assert not stalls(bench)
    if restarts:
        bench.restart()
        bench.listed = bench.now
    bench.now += 1
    bench.plan()
    assert stalls(bench) == [("True", "PodsNotDeleted")]
    _, message = stall(bench)
    for words in ("ConfigMap f-attempt was deleted at ", "none of its 2 Pods is being deleted", "f-a-0", "collector"):
        assert words in message
    bench.show("f-a-1", deleting=bench.now + 30)
    bench.plan()
    assert stalls(bench) == [("False", "Progressing")]


def test_a_garbage_collector_that_is_slow_is_not_told() -> None:
    bench = deleted_by_nobody()
    bench.show("f-a-1", deleting=bench.now + 1000, grace=1000)
    bench.now += 600
    bench.plan()
    assert not stalls(bench)


def test_a_configmap_that_stays_without_any_pod_is_told_and_one_with_pods_is_not() -> None:
    bench = Bench(role())
    bench.all_pods()
    bench.edit(executionType="Stop")
    bench.plan()
    bench.fold(bench.only(bench.plan()), Accepted())
    dying(bench, at=bench.now)
    bench.show("f-a-0", deleting=bench.now + 1000, grace=1000)
    bench.plan()
    bench.now += 500
    bench.plan()
    assert not stalls(bench)
    bench.hide("f-a-0")
    bench.plan()
    bench.now += 119
    bench.plan()
    assert not stalls(bench)
    bench.now += 1
    bench.plan()
    assert stalls(bench) == [("True", "ConfigMapNotGone")]
    bench.configmap = None
    bench.plan()
    assert stalls(bench) == [("False", "Progressing")]
    assert code(bench) == -210


@pytest.mark.parametrize("marks", [None, (UID, "1")])
def test_what_stop_finds_is_deleted_only_once_the_status_is_confirmed(marks: tuple[str, ...] | None) -> None:
    bench = Bench(role())
    bench.plan()
    bench.edit(executionType="Stop")
    bench.plan()
    cleanup = bench.only(bench.wait(0))
    bench.fold(cleanup, Exists(Identity("other", UID, marks, False)))
    assert state(bench) is State.CREATION_PENDING
    then = bench.only(bench.plan())
    if marks is None:
        assert then == Delete(cleanup.target, "other")
        assert isinstance(then, Delete)
        assert then.orphan
        bench.fold(then, Accepted())
    else:
        assert then == Refresh(cleanup.target)
        bench.fold(then, Remains("as old"))
    assert not bench.plan().actions
    assert bench.only(bench.wait(60)) == cleanup
    bench.fold(cleanup, Exists(Identity("other", UID, marks, True)))
    assert not bench.plan().actions
    assert bench.only(bench.wait(60)) == cleanup
    bench.fold(cleanup, Gone())
    assert code(bench) == -210


def test_a_configmap_that_exists_and_cannot_be_found_is_tried_again_with_back_off_and_told() -> None:
    bench = Bench(role())
    bench.plan()
    action = bench.only(bench.plan())
    for _ in range(3):
        bench.fold(action, Exists(None, 'leases "of-a-webhook" already exists'))
        made = bench.plan()
        assert not made.actions
        assert not bench.tracker.is_busy
        assert bench.only(bench.wait(60)) == action
    reason, message = stall(bench)
    assert reason == "ConfigMapNotAnswered"
    assert 'leases "of-a-webhook" already exists' in message


@pytest.mark.parametrize("controller", [None, "somebody"])
def test_a_configmap_that_is_not_ours_is_never_touched_and_told(controller: str | None) -> None:
    bench = Bench(role())
    bench.plan()
    action = bench.only(bench.plan())
    bench.refuse(action, Exists(foreign("f-attempt", "theirs", controller=controller)))
    assert not bench.plan().actions
    reason, message = stall(bench)
    assert reason == "NamingConflict"
    assert "f-attempt" in message
    assert bench.only(bench.wait(60)) == action
    bench.created(action)
    bench.plan()
    assert stalls(bench) == [("False", "Progressing")]


@pytest.mark.parametrize(
    ("code", "reason"), [(403, "Forbidden"), (422, "Invalid"), (400, ""), (403, "PolicyDenied"), (413, "")]
)
def test_a_configmap_that_is_refused_is_waited_for_and_told_in_the_api_servers_words(code: int, reason: str) -> None:
    bench = Bench(role())
    bench.plan()
    action = bench.only(bench.plan())
    bench.refuse(action, refused(code, "a webhook says <no>", reason))
    bench.plan()
    words = '"message":"a webhook says \\u003cno\\u003e",' + (f'"reason":"{reason}",' if reason else "")
    assert stall(bench) == (
        "ConfigMapNotAnswered",
        f'Failed to create ConfigMap: {{"ErrStatus":{{"metadata":{{}},{words}"code":{code}}}}}',
    )
    assert bench.only(bench.wait(60)) == action
    bench.created(action)
    bench.plan()
    assert stalls(bench) == [("False", "Progressing")]


# --- recorded but absent ----------------------------------------------------------------------------------------


def unseen(bench: Bench) -> Confirm:
    """The cache has not shown the created ConfigMap in time; the live read that is asked for."""
    bench.plan()
    uid = bench.created(bench.only(bench.plan()), show=False)
    made = bench.plan()
    assert not made.actions
    assert made.requeue_after == 300
    bench.now += 299
    assert not bench.plan().actions
    bench.now += 1
    action = bench.only(bench.plan())
    assert isinstance(action, Confirm)
    assert (action.target.name, action.uid) == ("f-attempt", uid)
    return action


def test_a_created_configmap_that_is_not_there_in_time_is_given_up() -> None:
    bench = Bench(role())
    bench.fold(unseen(bench), Gone())
    bench.plan(write=False)
    assert state(bench) is State.ATTEMPT_COMPLETED
    assert code(bench) == -110
    assert task_codes(bench) == [-220]


def test_a_created_configmap_that_is_there_all_the_same_is_looked_for_by_a_list() -> None:
    bench = Bench(role())
    assert bench.fold(unseen(bench), Remains("it is there")).relist == {Kind.CONFIGMAP}
    bench.listed = bench.now
    bench.show("f-attempt")
    bench.plan()
    assert state(bench) is State.PREPARING


def test_a_created_configmap_that_no_list_brings_into_the_cache_is_deleted() -> None:
    bench = Bench(role())
    action = unseen(bench)
    bench.fold(action, Remains("it is there"))
    bench.listed = bench.now
    deletion = bench.only(bench.wait(1))
    assert deletion == Delete(action.target, action.uid, confirm=True)
    bench.fold(deletion, Remains("it waits for its Pods"))
    assert state(bench) is State.CREATION_REQUESTED
    assert bench.only(bench.wait(60)) == deletion
    bench.fold(deletion, Gone())
    bench.plan(write=False)
    assert state(bench) is State.ATTEMPT_COMPLETED
    assert code(bench) == -110


def test_a_configmap_that_the_cache_drops_is_gone_only_once_a_live_read_says_so() -> None:
    bench = Bench(role())
    bench.pod()
    bench.run()
    bench.drop("f-attempt")
    action = bench.only(bench.plan())
    assert isinstance(action, Confirm)
    assert bench.status.attempt.completion_status is None
    bench.fold(action, Remains("it is there", unlabelled=True))
    restore = bench.only(bench.plan())
    assert restore == Relabel(action.target, action.uid, "f")
    (record,) = bench.fold(restore, Accepted()).records
    assert record.reason is LifeReason.LABEL_RESTORED
    bench.show("f-attempt")
    bench.plan()
    assert state(bench) is State.RUNNING


def test_a_created_configmap_is_not_waited_for_after_stop() -> None:
    bench = Bench(role())
    bench.plan()
    uid = bench.created(bench.only(bench.plan()), show=False)
    bench.edit(executionType="Stop")
    action = bench.only(bench.wait(0) if bench.plan().actions == [] else bench.plan())
    assert isinstance(action, Delete)
    assert (action.uid, action.confirm) == (uid, True)
    bench.fold(action, Gone())
    bench.plan(write=False)
    assert state(bench) is State.ATTEMPT_COMPLETED
    assert (code(bench), diagnostics(bench)) == (-210, STOPPED)


@pytest.mark.parametrize("runs", [False, True])
def test_a_configmap_that_is_gone_was_deleted_by_others(runs: bool) -> None:
    bench = running() if runs else Bench(role())
    if not runs:
        bench.attempt()
        bench.plan()
    bench.vanish()
    made = bench.plan(write=False)
    assert [(one.reason, one.warning) for one in made.records][:1] == [(LifeReason.CONFIGMAP_DELETING, True)]
    assert state(bench) is State.ATTEMPT_COMPLETED
    assert code(bench) == -100
    assert task_codes(bench) == [-220]
    assert bench.states() == ["Completed"]


def test_a_configmap_that_only_a_stale_cache_shows_is_not_deleted_in_a_circle() -> None:
    bench = running()
    shown = bench.configmap
    bench.edit(executionType="Stop")
    bench.plan()
    bench.fold(bench.only(bench.plan()), Accepted())
    bench.hide("f-attempt")
    bench.settle()
    assert state(bench) is State.COMPLETED
    bench.restart()
    bench.configmap = shown
    action = bench.only(bench.plan())
    assert isinstance(action, Delete)
    assert action.orphan
    bench.fold(action, Gone())
    again = bench.plan()
    assert not again.actions
    assert not bench.tracker.is_busy
    assert again.requeue_after is not None
    assert again.requeue_after > 0.3
    assert bench.only(bench.wait(60)) == action


def test_a_completion_that_was_decided_stays_when_the_configmap_goes() -> None:
    bench = running()
    bench.edit(executionType="Stop")
    bench.plan()
    bench.vanish()
    made = bench.plan(write=False)
    assert LifeReason.CONFIGMAP_DELETING not in [one.reason for one in made.records]
    assert state(bench) is State.ATTEMPT_COMPLETED
    assert code(bench) == -210


def test_the_attempt_is_not_over_before_the_last_pod_of_a_configmap_that_did_not_wait_for_it() -> None:
    bench = running()
    bench.hide("f-attempt")
    made = bench.plan(write=False)
    # That the attempt ends is persisted first.
    assert not made.actions
    assert [one.reason for one in made.records].count(LifeReason.CONFIGMAP_DELETING) == 1
    assert (state(bench), code(bench), task_codes(bench)) == (State.DELETING, -100, [-220])
    assert bench.states() == ["DeletionPending"]
    bench.write()
    deletion = bench.only(bench.plan())
    assert deletion == Delete(deletion.target, bench.pods["f-a-0"].uid)
    bench.fold(deletion, Accepted())
    bench.show("f-a-0", deleting=bench.now + 30)
    assert not bench.plan().actions
    assert (state(bench), bench.states()) == (State.DELETING, ["Deleting"])
    bench.hide("f-a-0")
    made = bench.plan(write=False)
    assert LifeReason.CONFIGMAP_DELETING not in [one.reason for one in made.records]
    assert (state(bench), code(bench), bench.states()) == (State.ATTEMPT_COMPLETED, -100, ["Completed"])


def test_pods_that_are_on_their_way_out_already_are_waited_for() -> None:
    bench = running()
    bench.edit(executionType="Stop")
    bench.plan()
    bench.show("f-a-0", deleting=bench.now + 30)
    # By somebody who could not wait.
    bench.hide("f-attempt")
    for _ in range(3):
        assert not bench.plan().actions
    assert (state(bench), code(bench)) == (State.DELETING, -210)
    bench.hide("f-a-0")
    bench.plan(write=False)
    assert (state(bench), code(bench)) == (State.ATTEMPT_COMPLETED, -210)


def test_a_pod_that_no_task_has_is_waited_for_too() -> None:
    bench = running()
    orphan = replace(bench.pods["f-a-0"], name="f-a-7", identity=replace(bench.pods["f-a-0"].identity, uid="orphan"))
    bench.hide("f-attempt")
    bench.hide("f-a-0")
    bench.pods["f-a-7"] = orphan
    bench.plan()
    assert state(bench) is State.DELETING
    assert [action.target.name for action in bench.plan().actions] == ["f-a-7"]
    bench.hide("f-a-7")
    bench.plan()
    assert state(bench) is State.ATTEMPT_COMPLETED


def test_the_attempt_is_not_over_while_pods_are_being_created() -> None:
    bench = Bench(role())
    bench.attempt()
    creation = bench.only(bench.plan())
    bench.hide("f-attempt")
    bench.creating = True
    bench.plan()
    assert (state(bench), code(bench), task_codes(bench)) == (State.DELETING, -100, [-220])
    uid = bench.created(creation)
    bench.creating = False
    bench.plan()
    assert (state(bench), bench.states()) == (State.DELETING, ["DeletionPending"])
    assert bench.only(bench.plan()) == Delete(creation.target, uid)
    bench.hide("f-a-0")
    bench.plan()
    assert state(bench) is State.ATTEMPT_COMPLETED


def test_the_attempt_is_over_once_the_last_creation_has_failed() -> None:
    bench = Bench(role())
    bench.attempt()
    creation = bench.only(bench.plan())
    bench.hide("f-attempt")
    bench.creating = True
    bench.plan()
    bench.fold(creation, NotAttempted())
    bench.creating = False
    assert bench.tracker.is_busy
    bench.plan(write=False)
    assert (state(bench), task_codes(bench)) == (State.ATTEMPT_COMPLETED, [-220])


def test_a_label_of_the_configmap_that_somebody_else_puts_back_ends_the_stall() -> None:
    bench = running()
    bench.drop("f-attempt")
    for _ in range(4):
        bench.fold(bench.only(bench.wait(30)), Remains("it is there", unlabelled=True))
        bench.fold(bench.only(bench.wait(30)), refused(403, "configmaps is forbidden"))
    bench.plan()
    assert stalls(bench) == [("True", "ConfigMapNotAnswered")]
    bench.show("f-attempt")
    bench.plan()
    assert stalls(bench) == [("False", "Progressing")]


def test_after_a_restart_an_absent_configmap_is_looked_for_by_a_live_read() -> None:
    bench = running()
    bench.restart()
    uid = bench.status.attempt.configmap_uid
    shown, bench.configmap = bench.configmap, None
    action = bench.only(bench.plan())
    assert isinstance(action, Confirm)
    assert (action.target.name, action.uid) == ("f-attempt", uid)
    bench.fold(action, Remains("it is there"))
    assert not bench.plan().actions
    assert bench.only(bench.wait(60)) == action
    # The cache shows it after all.
    bench.configmap = shown
    bench.plan()
    assert state(bench) is State.RUNNING
    bench.vanish()
    bench.restart()
    bench.fold(bench.only(bench.plan()), Gone())
    # So is the Pod.
    bench.fold(bench.only(bench.wait(0)), Gone())
    bench.plan(write=False)
    assert state(bench) is State.ATTEMPT_COMPLETED
    assert code(bench) == -100


def test_a_configmap_of_the_name_with_another_uid_is_not_the_recorded_one() -> None:
    bench = running()
    configmap = bench.configmap
    assert configmap is not None
    bench.vanish()
    bench.configmap = replace(configmap, identity=Identity("other", None, None, False))
    bench.plan(write=False)
    assert state(bench) is State.ATTEMPT_COMPLETED
    assert code(bench) == -100


# --- being deleted ----------------------------------------------------------------------------------------------


def test_a_configmap_that_others_delete() -> None:
    bench = running(number=2)
    bench.show("f-attempt", deleting=bench.now)
    assert not bench.plan().actions
    assert state(bench) is State.DELETING
    assert code(bench) == -100
    # Its Tasks are followed to their end.
    bench.show("f-a-0", deleting=bench.now + 30)
    bench.plan()
    assert bench.states() == ["Deleting", "Running"]
    bench.hide("f-a-0")
    bench.plan()
    bench.plan()
    assert bench.states() == ["Completed", "Running"]
    bench.hide("f-a-1")
    bench.hide("f-attempt")
    bench.plan(write=False)
    assert state(bench) is State.ATTEMPT_COMPLETED
    assert bench.states() == ["Completed", "Completed"]
    assert code(bench) == -100


# --- Stop and completion ----------------------------------------------------------------------------------------


def test_stop_completes_the_attempt_and_stops_every_task() -> None:
    bench = running(number=2)
    bench.end("f-a-1", 7)
    bench.edit(executionType="Stop")
    made = bench.plan(write=False)
    assert not made.actions
    assert state(bench) is State.DELETION_PENDING
    assert (code(bench), diagnostics(bench)) == (-210, STOPPED)
    assert task_codes(bench) == [-220, 7]
    completion = bench.task().attempt.completion_status
    assert completion is not None
    assert (completion.phrase, completion.diagnostics) == ("FrameworkAttemptCompletion", TASK_STOPPED)
    bench.write()
    assert actions(bench.plan()) == ["Delete f-attempt"]
    # What a Pod says now does not change how its Task ended.
    bench.show("f-a-0", phase="Succeeded")
    bench.plan()
    assert task_codes(bench) == [-220, 7]


@pytest.mark.parametrize("deleting", [False, True])
def test_stop_while_the_attempt_is_completing_changes_nothing(deleting: bool) -> None:
    bench = Bench(role(failed=1))
    bench.all_pods()
    bench.show("f-a-0", phase="Failed")
    bench.plan()
    bench.fold(bench.only(bench.plan()), Accepted())
    bench.hide("f-a-0")
    for _ in range(3):
        bench.plan()
    assert state(bench) is State.DELETION_PENDING
    if deleting:
        bench.show("f-attempt", deleting=bench.now)
        bench.plan()
    before = code(bench)
    bench.edit(executionType="Stop")
    bench.plan()
    assert code(bench) == before == -300


def test_a_task_that_leaves_does_not_make_the_framework_run() -> None:
    bench = Bench(role(number=2))
    bench.all_pods()
    bench.edit(role(number=1))
    bench.plan()
    bench.show("f-a-1", phase="Running")
    bench.plan()
    assert state(bench) is State.PREPARING
    bench.run("f-a-0")
    assert state(bench) is State.RUNNING


# --- retry ------------------------------------------------------------------------------------------------------


def fail(bench: Bench, exit_code: int) -> None:
    """The one Task ends with that code, the attempt completes by it, and its ConfigMap goes."""
    bench.show(
        "f-a-0",
        phase="Failed",
        containerStatuses=[{"name": "main", "state": {"terminated": {"exitCode": exit_code}}}],
    )
    bench.plan()
    bench.fold(bench.only(bench.plan()), Accepted())
    bench.hide("f-a-0")
    while not (made := bench.plan()).actions:
        pass
    bench.fold(bench.only(made), Accepted())
    bench.hide("f-attempt")


def conflicting() -> Bench:
    """A Framework whose attempt has just failed with a transient conflict, under a fancy policy."""
    bench = Bench(
        role(failed=1),
        limit=limits(minimum=100, maximum=200),
        retryPolicy={"fancyRetryPolicy": True, "maxRetryCount": 0},
    )
    bench.all_pods()
    fail(bench, 201)
    bench.plan()
    assert state(bench) is State.ATTEMPT_COMPLETED
    assert code(bench) == 201
    return bench


def test_a_retry_is_a_fresh_attempt() -> None:
    bench = Bench(role(number=1, failed=1, podGracefulDeletionTimeoutSec=9), retryPolicy={"maxRetryCount": 1})
    bench.all_pods()
    bench.run()
    old = bench.status.attempt
    old_uids = {old.roles[0].instance_uid, old.roles[0].tasks[0].instance_uid}
    bench.now += 100
    fail(bench, 5)
    bench.plan(write=False)
    assert state(bench) is State.ATTEMPT_COMPLETED
    # The end of an attempt is exposed before anything of the next one is.
    bench.plan(write=False)
    assert state(bench) is State.ATTEMPT_COMPLETED
    bench.write()
    made = bench.plan(write=False)
    assert state(bench) is State.CREATION_PENDING
    assert not made.actions
    status = bench.status
    assert (status.retry.total_retried_count, status.retry.accountable_retried_count) == (1, 1)
    assert status.retry.retry_delay_sec is None
    new = status.attempt
    assert (new.id, new.start_time, new.run_time, new.configmap_uid, new.completion_status) == (
        1,
        NOW + 100,
        None,
        None,
        None,
    )
    assert status.run_time == NOW
    assert status.start_time == NOW
    assert new.roles[0].pod_graceful_deletion_timeout_sec == 9
    task = new.roles[0].tasks[0]
    assert not old_uids & {new.roles[0].instance_uid, task.instance_uid}
    assert (task.state, task.attempt.id, task.retry.total_retried_count) == (State.CREATION_PENDING, 0, 0)
    assert not bench.plan(write=False).actions
    bench.write()
    action = bench.only(bench.plan())
    assert isinstance(action, Create)
    assert orjson.loads(action.body)["metadata"]["annotations"]["FC_FRAMEWORK_ATTEMPT_ID"] == "1"


def test_the_delay_of_a_retry_is_persisted_and_waited_for() -> None:
    bench = conflicting()
    made = bench.plan()
    delay = bench.status.retry.retry_delay_sec
    assert delay is not None
    assert 100 <= delay <= 200
    assert made.requeue_after == delay
    assert state(bench) is State.ATTEMPT_COMPLETED
    bench.now += delay - 1
    bench.plan()
    assert state(bench) is State.ATTEMPT_COMPLETED
    # It is drawn once, whoever waits for it.
    bench.restart()
    assert bench.plan().requeue_after == 1
    assert bench.status.retry.retry_delay_sec == delay
    bench.now += 1
    bench.plan()
    assert state(bench) is State.CREATION_PENDING
    retry = bench.status.retry
    assert (retry.total_retried_count, retry.accountable_retried_count, retry.retry_delay_sec) == (1, 0, None)


def test_a_clock_that_is_set_back_does_not_hold_up_a_retry_without_delay() -> None:
    bench = Bench(role(failed=1), retryPolicy={"maxRetryCount": 1})
    bench.all_pods()
    fail(bench, 5)
    bench.plan()
    assert state(bench) is State.ATTEMPT_COMPLETED
    bench.now -= 3600
    bench.plan()
    assert state(bench) is State.CREATION_PENDING


def test_the_delay_of_a_retry_is_skipped_on_stop() -> None:
    bench = conflicting()
    bench.plan()
    bench.edit(executionType="Stop")
    bench.settle()
    assert state(bench) is State.COMPLETED
    assert bench.now == NOW
    assert bench.status.attempt.id == 1
    assert (code(bench), diagnostics(bench)) == (-210, STOPPED)


def test_delays_are_drawn_within_the_range() -> None:
    seen = set()
    for seed in range(60):
        bench = conflicting()
        bench.rng.seed(seed)
        bench.limits = limits(minimum=3, maximum=6)
        bench.plan()
        seen.add(bench.status.retry.retry_delay_sec)
    assert seen == {3, 4, 5, 6}


def test_a_completed_framework_is_not_retried_whatever_its_policy_becomes() -> None:
    bench = Bench(role())
    bench.all_pods()
    bench.end()
    assert state(bench) is State.COMPLETED
    bench.edit(role(number=5), retryPolicy={"maxRetryCount": -2})
    bench.plan()
    bench.plan()
    assert state(bench) is State.COMPLETED
    assert bench.states() == ["Completed"]
    assert bench.status.observed_generation == 2


# --- retention --------------------------------------------------------------------------------------------------


def test_a_completed_framework_is_deleted_after_its_retention() -> None:
    bench = Bench(role())
    bench.all_pods()
    bench.end()
    made = bench.plan()
    assert not made.actions
    assert made.requeue_after == 2_592_000
    bench.now += 2_592_000 - 1
    assert not bench.plan().actions
    bench.now += 1
    action = bench.only(bench.plan())
    assert isinstance(action, Delete)
    assert (action.target.kind, action.target.name, action.uid) == (Kind.FRAMEWORK, "f", UID)
    bench.fold(action, Unanswered("reset"))
    assert not bench.plan().actions
    assert bench.only(bench.wait(60)) == action
    bench.fold(action, Accepted())
    assert not bench.tracker.is_busy
    bench.deleting = True
    made = bench.plan()
    assert not made.actions
    assert made.requeue_after is None


def test_nothing_but_its_retention_wakes_a_completed_framework() -> None:
    """However many alarms its Tasks had set: a stuck Pod, a cache to be waited for, a creation held back."""
    bench = Bench(role(number=3, podGracefulDeletionTimeoutSec=500))
    bench.attempt()
    first, second, _ = bench.plan().actions
    bench.created(first)
    bench.created(second, show=False)
    bench.show("f-a-0", deleting=bench.now + 30)
    bench.plan()
    bench.vanish()
    # The Pod that the cache never showed is looked for.
    (action,) = [action for action in bench.wait(60).actions if isinstance(action, Confirm)]
    bench.fold(action, Gone())
    bench.plan()
    bench.plan()
    assert state(bench) is State.COMPLETED
    due = bench.now + 2_592_000
    wakes = 0
    while not (made := bench.plan()).actions:
        assert made.requeue_after
        bench.now += made.requeue_after
        wakes += 1
    assert wakes <= 3
    assert bench.now == due


def test_a_framework_that_is_retained_for_no_time_is_deleted_at_once() -> None:
    bench = Bench(role(), limit=replace(limits(), framework_completed_retain_sec=0))
    bench.all_pods()
    bench.end()
    assert state(bench) is State.COMPLETED
    assert bench.deleting


# --- the history ---------------------------------------------------------------------------------------------------


def kept(bench: Bench) -> tuple[list[Snapshot], list[Action]]:
    """Snapshots and actions of the next plan, whose status is not written yet."""
    made = bench.plan(write=False)
    return made.snapshots, made.actions


def test_an_attempt_of_a_task_is_kept_in_the_plan_that_replaces_it_once_its_end_is_persisted() -> None:
    bench = Bench(role(retryPolicy={"maxRetryCount": 1}))
    bench.all_pods()
    bench.stop(code=1)
    bench.plan()
    (delete,) = bench.plan().actions
    bench.fold(delete, Accepted())
    bench.hide("f-a-0")
    assert kept(bench) == ([], [])
    assert bench.state() is State.ATTEMPT_COMPLETED
    bench.write()
    (snapshot,), _ = kept(bench)
    shown = orjson.loads(snapshot.status_json)
    assert (snapshot.trigger, snapshot.role, snapshot.index) == (SnapshotTrigger.TASK_RETRY, "a", 0)
    assert (shown["state"], shown["attemptStatus"]["id"]) == ("AttemptCompleted", 0)
    assert shown["retryPolicyStatus"] == {
        "totalRetriedCount": 0,
        "accountableRetriedCount": 0,
        "retryDelaySec": 0,
    }
    assert bench.task().attempt.id == 1


def test_an_attempt_of_a_framework_that_is_retried_at_once_is_kept_with_its_delay() -> None:
    bench = Bench(role(failed=1), retryPolicy={"maxRetryCount": 1})
    bench.all_pods()
    bench.stop(code=1)
    snapshots: list[Snapshot] = []
    for _ in range(10):
        made = bench.plan()
        snapshots += made.snapshots
        for action in made.actions:
            if isinstance(action, Delete):
                bench.fold(action, Accepted())
                bench.hide(action.target.name)
    (snapshot,) = snapshots
    shown = orjson.loads(snapshot.status_json)
    assert (snapshot.trigger, snapshot.role) == (SnapshotTrigger.FRAMEWORK_RETRY, None)
    assert (shown["state"], shown["attemptStatus"]["id"]) == ("AttemptCompleted", 0)
    assert shown["retryPolicyStatus"] == {
        "totalRetriedCount": 0,
        "accountableRetriedCount": 0,
        "retryDelaySec": 0,
    }
    assert bench.status.attempt.id == 1
    assert bench.status.retry.retry_delay_sec is None


def test_a_task_is_kept_with_the_annotations_that_do_not_change_with_its_attempts() -> None:
    bench = Bench(role(number=2))
    bench.all_pods()
    bench.edit(role(number=1))
    snapshots: list[Snapshot] = []
    for _ in range(10):
        made = bench.plan()
        snapshots += made.snapshots
        for action in made.actions:
            bench.fold(action, Accepted())
            bench.hide(action.target.name)
        bench.now += 3
    (snapshot,) = snapshots
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
    # When its status was persisted, not when it completed.
    assert snapshot.deleted_at is not None
    completed = orjson.loads(snapshot.status_json)["completionTime"]
    assert snapshot.deleted_at == parse_time(completed) + 3


def test_a_framework_is_kept_once_in_the_plan_that_deletes_it() -> None:
    bench = Bench(role(), limit=replace(limits(), framework_completed_retain_sec=10))
    bench.all_pods()
    bench.end()
    bench.now += 11
    (snapshot,), (delete,) = kept(bench)
    assert snapshot.trigger is SnapshotTrigger.FRAMEWORK_DELETION
    assert orjson.loads(snapshot.status_json)["state"] == "Completed"
    bench.fold(delete, Unanswered("lost"))
    bench.now += 60
    assert kept(bench) == ([], [delete])


# --- the order of a sync -----------------------------------------------------------------------------------------


def test_observed_generation_is_the_one_that_was_planned_on() -> None:
    bench = running()
    assert bench.status.observed_generation == 1
    bench.edit(description="nothing that matters")
    bench.plan(write=False)
    assert bench.status.observed_generation == 2
    assert bench.tracker.urgency is Urgency.SHOWN


def test_a_plan_that_changes_nothing_asks_for_no_write() -> None:
    bench = running()
    for _ in range(3):
        made = bench.plan(write=False)
        assert (made.actions, made.urgency, made.records, made.requeue_after) == ([], Urgency.NONE, [], None)
    bench.tracker.look_at_all()
    made = bench.plan(write=False)
    assert (made.actions, made.urgency, made.records, made.requeue_after) == ([], Urgency.NONE, [], None)


def test_a_spec_that_cannot_be_run_stops_everything_and_is_told() -> None:
    bench = running()
    bench.show("f-a-0", phase="Failed")
    bench.edit(role("a", -5))
    made = bench.plan(write=False)
    assert not made.actions
    assert made.requeue_after is None
    assert bench.states() == ["Running"]
    reason, message = stall(bench)
    assert (reason, message) == (
        "InvalidSpec",
        "spec.taskRoles[0].taskNumber: -5: must be at least 0",
    )
    bench.write()
    assert bench.plan(write=False).urgency is Urgency.NONE
    bench.edit(role())
    bench.plan()
    assert bench.states() == ["DeletionPending"]
    assert stalls(bench) == [("False", "Progressing")]


def test_a_spec_that_cannot_be_run_rings_no_alarm() -> None:
    """Else the Framework would be looked at again and again without pause."""
    bench = Bench(role())
    bench.pod(show=False)
    bench.plan()
    bench.now += 10_000
    bench.spoil()
    for _ in range(2):
        assert bench.plan().requeue_after in (None, 0.0)
    assert bench.plan().requeue_after is None
    assert not bench.tracker.is_busy


def test_a_framework_that_began_with_a_bad_spec_begins_once_it_is_mended() -> None:
    bench = Bench(role("b", -1))
    bench.settle()
    assert not bench.status.attempt.roles
    bench.edit(role("b", 2))
    bench.plan()
    bench.all_pods()
    assert bench.states("b") == ["Preparing", "Preparing"]
