"""Each line of docs/lifecycle.md on a Task, walked by one Task."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest

from frameworkcontroller.api.codec import encode_status, encode_task
from frameworkcontroller.api.completion import Code
from frameworkcontroller.api.objects import Disruption, Identity
from frameworkcontroller.api.status import State
from frameworkcontroller.machine.kernel.actions import Action, Cleanup, Confirm, Create, Delete, Refresh, Relabel
from frameworkcontroller.machine.kernel.exchanges import (
    Accepted,
    Created,
    Exists,
    Gone,
    NotAttempted,
    NotForced,
    Remains,
    Result,
)
from frameworkcontroller.machine.kernel.failure import FailureClass, PodPattern
from frameworkcontroller.machine.kernel.model import Plan, Urgency
from frameworkcontroller.machine.kernel.reasons import RequestReason
from frameworkcontroller.machine.kernel.requests import Kind, Target, Unanswered
from frameworkcontroller.machine.lifereasons import LifeReason
from tests.support.bench import NOW, Bench, foreign, limits, refused, role
from tests.unit.machine.shown import actions, stall, stalls

TASK = ("a", 0)


def code(bench: Bench) -> int | None:
    """Code of the Task's completion status."""
    completion = bench.task().attempt.completion_status
    return None if completion is None else completion.code


def diagnostics(bench: Bench) -> str:
    """Diagnostics of the Task's completion status."""
    completion = bench.task().attempt.completion_status
    assert completion is not None
    return completion.diagnostics


def pending(bench: Bench) -> Create:
    """The attempt is alive; the creation of the Task's Pod that its first plan asks for."""
    bench.attempt()
    action = bench.only(bench.plan())
    assert isinstance(action, Create)
    assert action.target.name == "f-a-0"
    return action


# --- phases -----------------------------------------------------------------------------------------------------


def test_the_whole_life_of_a_task_that_succeeds() -> None:
    bench = Bench(role())
    action = pending(bench)
    assert bench.state() is State.CREATION_PENDING
    uid = bench.created(action, show=False)
    assert bench.state() is State.CREATION_REQUESTED
    assert bench.task().attempt.pod_uid == uid
    bench.now += 5
    bench.show("f-a-0")
    assert not bench.plan().actions
    task = bench.task()
    assert bench.state() is State.PREPARING
    assert (task.attempt.pod_node_name, task.attempt.pod_ip, task.attempt.pod_host_ip) == ("", "", "")
    assert bench.task().run_time is None
    bench.now += 5
    bench.run()
    assert bench.state() is State.RUNNING
    assert (task.attempt.pod_node_name, task.attempt.pod_ip, task.attempt.pod_host_ip) == (
        "node-1",
        "10.0.0.1",
        "10.0.1.1",
    )
    assert task.run_time == task.attempt.run_time == task.transition_time == NOW + 10
    bench.now += 5
    ended = [
        {"name": "setup", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
        {"name": "main", "state": {"terminated": {"exitCode": 0, "reason": "Completed", "message": "loss 0.1"}}},
    ]
    bench.show("f-a-0", phase="Succeeded", initContainerStatuses=ended[:1], containerStatuses=ended[1:])
    made = bench.plan(write=False)
    # Decided, and not yet persisted: nothing is deleted.
    assert bench.state() is State.DELETION_PENDING
    assert (code(bench), diagnostics(bench)) == (0, "Pod succeeded")
    assert orjson.loads(encode_task("f", "a", task))["attemptStatus"]["completionStatus"]["pod"] == {
        "containers": [
            {"name": "setup", "reason": "Completed", "code": 0},
            {"name": "main", "reason": "Completed", "message": "loss 0.1", "code": 0},
        ]
    }
    assert not made.actions
    assert bench.tracker.urgency is Urgency.SOON
    bench.touch("f-a-0")
    assert not bench.plan(write=False).actions
    bench.write()
    action_after = bench.only(bench.plan())
    assert action_after == Delete(action.target, uid)
    bench.fold(action_after, Accepted())
    assert bench.state() is State.DELETION_REQUESTED
    assert bench.task().completion_time is None
    # The cache is behind: an object once deleted never comes back, so there is nothing to be done.
    bench.touch("f-a-0")
    assert not bench.plan().actions
    bench.show("f-a-0", deleting=bench.now + 30)
    assert not bench.plan().actions
    assert bench.state() is State.DELETING
    assert code(bench) == 0
    bench.now += 5
    bench.hide("f-a-0")
    bench.plan()
    assert bench.state() is State.ATTEMPT_COMPLETED
    bench.plan()
    assert bench.state() is State.COMPLETED
    assert task.attempt.completion_time == task.completion_time == NOW + 20


def test_phases_may_be_skipped() -> None:
    bench = Bench(role())
    bench.created(pending(bench), show=False)
    bench.show("f-a-0", phase="Failed", reason="Evicted")
    bench.plan(write=False)
    task = bench.task()
    assert bench.state() is State.DELETION_PENDING
    assert bench.task().run_time is None
    assert diagnostics(bench) == 'Pod failed: PodPattern unmatched: {"reason":"Evicted"}'
    assert task.attempt.completion_status is not None
    assert task.attempt.completion_status.pod is not None
    assert task.attempt.completion_status.pod.reason == "Evicted"


@pytest.mark.parametrize("before", ["Pending", "Running"])
def test_phase_unknown_waits(before: str) -> None:
    bench = Bench(role())
    bench.pod()
    bench.show("f-a-0", phase=before, podIP="10.0.0.1", nodeName="node-1")
    bench.plan()
    state = bench.state()
    bench.show("f-a-0", phase="Unknown", podIP="")
    made = bench.plan()
    assert not made.actions
    assert bench.state() is state
    assert bench.task().attempt.pod_ip == "10.0.0.1"
    bench.show("f-a-0", phase="Running", podIP="10.0.0.1")
    bench.plan()
    assert bench.state() is State.RUNNING


def test_what_was_exposed_of_a_pod_never_goes_back() -> None:
    bench = Bench(role())
    bench.pod()
    bench.run()
    bench.show("f-a-0", phase="Running", podIP="", hostIP="")
    bench.plan()
    attempt = bench.task().attempt
    assert (attempt.pod_ip, attempt.pod_host_ip) == ("10.0.0.1", "10.0.1.1")


def test_running_again_does_not_change_when_it_first_ran() -> None:
    bench = Bench(role(retryPolicy={"maxRetryCount": -2}))
    bench.pod()
    bench.run()
    first = bench.task().run_time
    bench.now += 50
    bench.end()
    bench.run()
    task = bench.task()
    assert task.attempt.id == 1
    assert task.run_time == first == NOW
    assert task.attempt.run_time == NOW + 50
    assert task.attempt.start_time == NOW + 50
    assert task.start_time == NOW


# --- creation ---------------------------------------------------------------------------------------------------


def test_nothing_is_created_before_creation_pending_is_persisted() -> None:
    bench = Bench(role())
    assert not bench.plan(write=False).actions
    assert bench.tracker.urgency is Urgency.NOW
    assert not bench.plan(write=False).actions
    bench.write()
    assert actions(bench.plan()) == ["Create f-attempt"]


def failed_and_gone() -> Bench:
    """A Task that may be retried, whose Pod has failed and is gone, which no plan has seen yet."""
    bench = Bench(role(retryPolicy={"maxRetryCount": 1}))
    bench.pod()
    bench.show("f-a-0", phase="Failed")
    bench.plan()
    bench.fold(bench.only(bench.plan()), Accepted())
    bench.hide("f-a-0")
    return bench


def test_a_retry_creates_nothing_before_it_is_persisted() -> None:
    bench = failed_and_gone()
    bench.plan(write=False)
    assert bench.state() is State.ATTEMPT_COMPLETED
    # The end of an attempt is exposed before anything of the next one is.
    bench.plan(write=False)
    assert bench.state() is State.ATTEMPT_COMPLETED
    bench.write()
    assert not bench.plan(write=False).actions
    assert bench.state() is State.CREATION_PENDING
    assert bench.task().attempt.id == 1
    assert not bench.plan(write=False).actions
    bench.write()
    assert actions(bench.plan()) == ["Create f-a-0"]


@pytest.mark.parametrize(
    ("result", "expected", "text"),
    [
        (refused(400, "bad"), -310, '"message":"bad","reason":"BadRequest","code":400'),
        (refused(403, "hook"), -310, '"message":"hook","reason":"Forbidden","code":403'),
        (refused(422, "inv"), -200, '"message":"inv","reason":"Invalid","code":422'),
        (refused(413, "big"), -200, '"message":"big","reason":"RequestEntityTooLarge","code":413'),
        (refused(500, "hook", "Forbidden"), -310, '"message":"hook","reason":"Forbidden","code":500'),
    ],
)
def test_a_creation_that_is_refused_completes_the_attempt(result: Result, expected: int, text: str) -> None:
    bench = Bench(role(), role("b"))
    bench.attempt()
    first = next(action for action in bench.plan().actions if action.target.role == "a")
    bench.fold(first, result)
    task = bench.task()
    assert bench.state() is State.ATTEMPT_COMPLETED
    quoted = f'Failed to create Pod: {{"ErrStatus":{{"metadata":{{}},{text}}}}}'
    assert (code(bench), diagnostics(bench)) == (expected, quoted)
    assert task.attempt.pod_uid is None
    bench.plan()
    assert bench.state() is State.COMPLETED
    assert bench.task("b").state is State.CREATION_PENDING


@pytest.mark.parametrize(
    "result",
    [
        Unanswered("reset"),
        refused(500),
        refused(429),
        refused(409),
        refused(403, "exceeded quota: q"),
        refused(400, "the object provided is unrecognized"),
        refused(403, "a webhook says no", "PolicyDenied"),
        refused(400, "a webhook says no", ""),
        Exists(foreign("f-a-0")),
        Exists(None, 'leases "of-a-webhook" already exists'),
    ],
)
def test_a_creation_that_fails_transiently_is_retried_with_back_off_and_not_recorded(result: Result) -> None:
    bench = Bench(role())
    action = pending(bench)
    waits = []
    for _ in range(12):
        folded = bench.fold(action, result)
        assert bench.state() is State.CREATION_PENDING
        assert code(bench) is None
        assert folded.requeue_after is not None
        made = bench.plan()
        assert not made.actions
        assert not bench.tracker.is_busy
        assert made.requeue_after is not None
        waits.append(made.requeue_after)
        assert bench.only(bench.wait(60)) == action
    assert waits[0] < 1
    assert max(waits) <= 60
    assert waits[-1] > 5
    bench.created(action)
    assert bench.state() is State.CREATION_REQUESTED


@pytest.mark.parametrize(("code", "reason"), [(403, "PolicyDenied"), (400, "")])
def test_a_webhook_that_denies_with_a_reason_of_its_own_stalls_the_framework_until_it_is_mended(
    code: int, reason: str
) -> None:
    bench = Bench(role())
    action = pending(bench)
    bench.refuse(action, refused(code, "a webhook says no", reason))
    bench.plan()
    reason, message = stall(bench)
    assert reason == "PodNotAnswered"
    assert message == f"Cannot create Pod f-a-0: {code}: a webhook says no"
    assert bench.state() is State.CREATION_PENDING
    assert bench.only(bench.wait(60)) == action
    bench.created(action)
    bench.plan()
    assert stalls(bench) == [("False", "Progressing")]
    assert bench.state() is State.PREPARING


def test_retry_after_is_respected() -> None:
    bench = Bench(role())
    action = pending(bench)
    bench.fold(action, replace(refused(429), retry_after_sec=40.0))
    made = bench.plan()
    assert made.requeue_after is not None
    assert made.requeue_after >= 40


def test_one_refusal_holds_back_all_creations_and_one_success_releases_them() -> None:
    bench = Bench(role(number=3))
    bench.attempt()
    first, second, third = bench.plan().actions
    bench.fold(first, refused(403, "exceeded quota: q"))
    bench.fold(second, NotAttempted())
    bench.fold(third, NotAttempted())
    assert not bench.plan().actions
    released = list(bench.wait(60).actions)
    for action in released:
        bench.created(action)
    while len(released) < 3:
        released += (made := bench.wait(60)).actions
        for action in made.actions:
            bench.created(action)
    bench.plan()
    assert bench.states() == ["Preparing"] * 3


def test_what_was_not_attempted_is_asked_for_again() -> None:
    bench = Bench(role())
    action = pending(bench)
    bench.fold(action, NotAttempted())
    assert bench.tracker.is_busy
    assert bench.only(bench.plan()) == action


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (Exists(None, 'leases "of-a-webhook" already exists'), 'leases "of-a-webhook" already exists'),
        (refused(409, "the quota has been modified"), "409: the quota has been modified"),
    ],
)
def test_a_conflict_over_something_else_is_told_after_a_few_times(result: Result, words: str) -> None:
    bench = Bench(role())
    action = pending(bench)
    bench.refuse(action, result)
    reason, message = stall(bench)
    assert reason == "PodNotAnswered"
    assert "f-a-0" in message
    assert words in message
    bench.wait(60)
    bench.created(action)
    bench.plan()
    assert stalls(bench) == [("False", "Progressing")]


def test_nothing_is_created_while_the_attempt_is_completing() -> None:
    bench = Bench(role())
    pending(bench)
    bench.edit(executionType="Stop")
    bench.plan()
    bench.touch("f-a-0")
    assert actions(bench.plan()) == ["Delete f-attempt"]
    assert bench.state() is State.CREATION_PENDING


# --- controlled but not recorded --------------------------------------------------------------------------------


def test_a_pod_of_exactly_the_pending_attempt_is_adopted_from_the_cache() -> None:
    bench = Bench(role())
    uid = bench.created(pending(bench), show=True)
    # The process dies before the UID is persisted: the status is that of before.
    bench.restart()
    bench.tracker.status.attempt.roles[0].tasks[0].attempt.pod_uid = None  # type: ignore[union-attr]
    bench.tracker.status.attempt.roles[0].tasks[0].state = State.CREATION_PENDING  # type: ignore[union-attr]
    made = bench.plan()
    assert not made.actions
    assert bench.task().attempt.pod_uid == uid
    assert bench.state() is State.PREPARING


def test_a_pod_of_exactly_the_pending_attempt_is_adopted_when_its_name_is_taken() -> None:
    bench = Bench(role())
    action = pending(bench)
    bench.fold(action, Unanswered("reset"))
    bench.now += 10
    assert bench.only(bench.plan()) == action
    bench.fold(action, Exists(_ours(bench)))
    assert bench.state() is State.CREATION_REQUESTED
    assert bench.task().attempt.pod_uid == "lost"


@pytest.mark.parametrize("position", range(5))
def test_a_controlled_pod_of_any_other_attempt_is_deleted(position: int) -> None:
    """Framework, FrameworkAttempt instance, role, Task, TaskAttempt: all five must be named exactly."""
    bench = Bench(role())
    action = pending(bench)
    found = _ours(bench)
    assert found.annotations is not None
    marks = list(found.annotations)
    marks[position] = "other"
    bench.fold(action, Exists(replace(found, annotations=tuple(marks))))
    assert bench.state() is State.CREATION_PENDING
    deletion = bench.only(bench.plan())
    assert deletion == Delete(action.target, "lost")
    assert _is_confirmed_first(deletion)
    bench.fold(deletion, Accepted())
    made = bench.plan()
    assert not made.actions
    assert made.requeue_after is not None
    bench.now += made.requeue_after
    assert bench.only(bench.plan()) == action


def deletions(made: Plan) -> list[str]:
    """The names of unrecorded objects that a plan deletes."""
    return [action.target.name for action in made.actions if isinstance(action, Delete) and action.orphan]


@pytest.mark.parametrize("how", ["stop", "scale down"])
def test_a_pod_that_only_a_decision_keeps_from_adoption_is_deleted_once_that_is_persisted(how: str) -> None:
    bench = Bench(role(number=2))
    bench.all_pods()
    bench.restart()
    task = bench.task()
    task.attempt.pod_uid, task.state = None, State.CREATION_PENDING
    if how == "stop":
        bench.edit(executionType="Stop")
    else:
        bench.edit(role(number=0))
    for _ in range(3):
        assert not deletions(bench.plan(write=False))
    assert bench.state() is State.CREATION_PENDING
    bench.write()
    assert deletions(bench.plan()) == ["f-a-0"]


def test_a_controlled_pod_without_marks_is_deleted() -> None:
    bench = Bench(role())
    action = pending(bench)
    bench.fold(action, Exists(replace(_ours(bench), annotations=None)))
    assert bench.only(bench.plan()) == Delete(action.target, "lost")


def _is_confirmed_first(action: Action) -> bool:
    """Whether the status is read live before the deletion."""
    assert isinstance(action, Delete)
    return action.orphan


def test_a_controlled_pod_of_a_later_attempt_proves_the_status_old_and_is_never_deleted() -> None:
    bench = Bench(role())
    action = pending(bench)
    found = _ours(bench)
    assert found.annotations is not None
    later = Exists(replace(found, annotations=(*found.annotations[:-1], "1")))
    for _ in range(3):
        bench.fold(action, later)
        refresh = bench.only(bench.plan())
        assert refresh == Refresh(action.target)
        # Had the live read shown a newer status, that one would be tracked by now.
        bench.fold(refresh, Remains("as old"))
        assert not bench.plan().actions
        assert bench.only(bench.wait(60)) == action
    reason, message = stall(bench)
    assert reason == "StatusOutdated"
    assert "f-a-0" in message
    bench.created(action)
    bench.plan()
    assert stalls(bench) == [("False", "Progressing")]


@pytest.mark.parametrize("state", [State.CREATION_PENDING, State.COMPLETED])
def test_a_pod_of_a_later_attempt_in_the_cache_is_never_deleted(state: State) -> None:
    bench = Bench(role(retryPolicy={"maxRetryCount": 1}), role("b"))
    bench.all_pods()
    later = bench.pods["f-a-0"]
    assert later.identity.annotations is not None
    later = replace(
        later, identity=replace(later.identity, uid="later", annotations=(*later.identity.annotations[:-1], "1"))
    )
    if state is State.COMPLETED:
        bench.end()
    else:
        bench.restart()
        bench.task().attempt.pod_uid, bench.task().state = None, state
    assert bench.state() is state
    bench.pods["f-a-0"] = later
    bench.touch("f-a-0")
    for _ in range(3):
        refresh = bench.only(bench.wait(60))
        assert isinstance(refresh, Refresh)
        bench.fold(refresh, Remains("as old"))
    assert stall(bench)[0] == "StatusOutdated"
    bench.hide("f-a-0")
    bench.wait(60)
    if state is State.COMPLETED:
        assert stalls(bench) == [("False", "Progressing")]


def test_a_mark_with_too_many_digits_is_no_later_attempt() -> None:
    bench = Bench(role())
    action = pending(bench)
    found = _ours(bench)
    assert found.annotations is not None
    bench.fold(action, Exists(replace(found, annotations=(*found.annotations[:-1], "9" * 5000))))
    assert isinstance(bench.only(bench.plan()), Delete)


def test_an_orphaned_pod_in_the_cache_is_deleted_once_and_its_end_is_waited_for() -> None:
    bench = Bench(role())
    action = pending(bench)
    bench.created(action)
    bench.restart()
    task = bench.task()
    task.attempt.pod_uid, task.state = None, State.CREATION_PENDING
    task.attempt.id = task.retry.total_retried_count = 1
    deletion = bench.only(bench.plan())
    assert isinstance(deletion, Delete)
    assert not deletion.force
    bench.fold(deletion, Accepted())
    # The cache still shows it: nothing is sent again at once.
    for _ in range(5):
        assert not bench.plan().actions
    assert not bench.tracker.is_busy
    bench.show("f-a-0", deleting=bench.now + 30)
    bench.now += 5
    assert not bench.plan().actions
    bench.hide("f-a-0")
    assert actions(bench.plan()) == ["Create f-a-0"]


def orphan(*, timeout: int | None, index: int = 0) -> Bench:
    """A Pod that no status records is being deleted, and its node is lost."""
    bench = Bench(role(podGracefulDeletionTimeoutSec=timeout), role("b"))
    bench.all_pods()
    bench.restart()
    task = bench.task()
    task.attempt.pod_uid, task.state = None, State.CREATION_PENDING
    task.attempt.id = task.retry.total_retried_count = 1
    bench.show("f-a-0", deleting=bench.now + 30, grace=30, nodeName="lost")
    return bench


def test_an_orphaned_pod_that_does_not_go_is_told_and_deleted_by_force_as_one_that_is_recorded() -> None:
    bench = orphan(timeout=600)
    bench.plan()
    bench.now += 30 + 119
    assert not bench.plan().actions
    assert not stalls(bench)
    bench.now += 1
    assert not bench.plan().actions
    assert stalls(bench) == [("True", "PodNotGone")]
    bench.now += 449
    assert not bench.plan().actions
    bench.now += 1
    force = bench.only(bench.plan())
    assert force == Delete(force.target, bench.pods["f-a-0"].uid, force=True, confirm=True)
    assert _is_confirmed_first(force)
    bench.fold(force, Remains("still there"))
    assert not bench.plan().actions
    assert bench.only(bench.wait(60)) == force
    bench.fold(force, Gone())
    bench.hide("f-a-0")
    create = bench.only(bench.wait(60))
    assert isinstance(create, Create)
    bench.created(create)
    bench.plan()
    assert stalls(bench) == [("False", "Progressing")]


def test_an_orphaned_pod_without_a_timeout_is_told_and_never_deleted_by_force() -> None:
    bench = orphan(timeout=None)
    assert not bench.wait(100_000).actions
    assert stalls(bench) == [("True", "PodNotGone")]
    bench.hide("f-a-0")
    create = bench.only(bench.plan())
    # That this fails for another reason is told, and not what is over.
    bench.refuse(create, refused(429, "too many"))
    assert stalls(bench) == [("True", "PodNotAnswered")]


@pytest.mark.parametrize("how", ["Stop", "ScaleDown"])
def test_an_orphaned_pod_that_does_not_go_is_deleted_by_force_while_its_task_leaves(how: str) -> None:
    bench = orphan(timeout=600)
    bench.plan()
    if how == "Stop":
        bench.edit(executionType="Stop")
    else:
        bench.edit(role(number=0, podGracefulDeletionTimeoutSec=600), role("b"))
    bench.plan()
    for action in bench.wait(0).actions:
        assert isinstance(action, Delete)
        assert not action.force
        bench.fold(action, Accepted())
    bench.now += 600
    force = next(action for action in bench.wait(0).actions if action.target.role == "a")
    assert force == Delete(force.target, bench.pods["f-a-0"].uid, force=True, confirm=True)


def test_an_orphaned_pod_of_a_completed_task_is_told_and_deleted_by_force() -> None:
    bench = Bench(role(podGracefulDeletionTimeoutSec=60), role("b"))
    bench.all_pods()
    late = replace(bench.pods["f-a-0"], identity=replace(bench.pods["f-a-0"].identity, uid="late"))
    bench.end()
    assert bench.state() is State.COMPLETED
    bench.bodies["f-a-0"]["metadata"]["uid"] = "late"
    bench.pods["f-a-0"] = late
    bench.show("f-a-0", deleting=bench.now + 30, grace=30)
    assert not bench.plan().actions
    bench.now += 60
    force = bench.only(bench.plan())
    assert force == Delete(force.target, "late", force=True, confirm=True)
    bench.fold(force, Remains("still there"))
    bench.now += 90
    bench.plan()
    assert stalls(bench) == [("True", "PodNotGone")]
    bench.hide("f-a-0")
    bench.plan()
    assert stalls(bench) == [("False", "Progressing")]


def test_a_pod_that_no_task_has_and_that_does_not_go_is_told_and_deleted_by_force() -> None:
    bench = Bench(role(number=2, podGracefulDeletionTimeoutSec=60), role("b"))
    bench.all_pods()
    late = bench.pods["f-a-1"]
    bench.edit(role(number=1, podGracefulDeletionTimeoutSec=60), role("b"))
    bench.settle()
    assert len(bench.states()) == 1
    bench.bodies["f-a-1"]["metadata"]["uid"] = "late"
    bench.pods["f-a-1"] = replace(late, identity=replace(late.identity, uid="late"))
    bench.touch("f-a-1")
    bench.show("f-a-1", deleting=bench.now + 30, grace=30)
    assert not bench.plan().actions
    bench.now += 60
    force = bench.only(bench.plan())
    assert force == Delete(force.target, "late", force=True, confirm=True)
    assert _is_confirmed_first(force)
    bench.fold(force, Remains("still there"))
    bench.now += 90
    bench.plan()
    assert stalls(bench) == [("True", "PodNotGone")]
    bench.hide("f-a-1")
    bench.plan()
    assert stalls(bench) == [("False", "Progressing")]


@pytest.mark.parametrize("verb", ["create", "clean up"])
def test_an_orphaned_pod_that_does_not_go_and_that_the_cache_does_not_show_is_told_and_deleted_by_force(
    verb: str,
) -> None:
    bench = Bench(role(podGracefulDeletionTimeoutSec=600), role("b"))
    bench.attempt()
    create, other = bench.plan().actions
    bench.created(other)
    action: Action = create
    if verb == "clean up":
        bench.fold(create, Unanswered("reset"))
        bench.edit(role(number=0, podGracefulDeletionTimeoutSec=600), role("b"))
        bench.plan()
        action = bench.only(bench.wait(60))
        assert isinstance(action, Cleanup)
    gone_by = int(bench.now) + 30
    found = replace(_ours(bench), annotations=None, deleting=True, deletion_time=gone_by, deletion_grace_sec=30)
    bench.refuse(action, Exists(found), times=8)
    assert stalls(bench) == [("True", "PodNotGone")]
    bench.now += 600
    assert bench.only(bench.plan()) == action
    bench.fold(action, Exists(found))
    force = bench.only(bench.plan())
    assert force == Delete(action.target, "lost", force=True, confirm=True)
    assert _is_confirmed_first(force)
    bench.fold(force, Gone())
    assert bench.only(bench.wait(60)) == action


def test_a_pod_that_is_ours_and_being_deleted_is_waited_for() -> None:
    bench = Bench(role())
    action = pending(bench)
    bench.fold(action, Exists(replace(_ours(bench), deleting=True)))
    made = bench.plan()
    assert not made.actions
    assert made.requeue_after is not None
    assert bench.task().attempt.pod_uid is None


@pytest.mark.parametrize("controller", [None, "somebody"])
def test_a_pod_that_is_not_ours_is_never_touched_and_told(controller: str | None) -> None:
    bench = Bench(role())
    action = pending(bench)
    for _ in range(3):
        bench.fold(action, Exists(foreign("f-a-0", "theirs", controller=controller)))
        made = bench.plan()
        assert not made.actions
        bench.now += made.requeue_after or 0
        assert bench.only(bench.plan()) == action
    reason, message = stall(bench)
    assert reason == "NamingConflict"
    assert "f-a-0" in message
    assert "theirs" in message


def test_a_foreign_pod_in_the_cache_is_not_taken_for_the_tasks() -> None:
    bench = Bench(role())
    action = pending(bench)
    bench.created(action)
    theirs = replace(bench.pods["f-a-0"], identity=Identity("theirs", "somebody", None, False), phase="Running")
    bench.restart()
    task = bench.task()
    task.attempt.pod_uid, task.state = None, State.CREATION_PENDING
    bench.pods["f-a-0"] = theirs
    assert actions(bench.plan()) == ["Create f-a-0"]


def _ours(bench: Bench) -> Identity:
    """A Pod that was created for the pending attempt."""
    attempt, task = bench.status.attempt, bench.task()
    configmap = attempt.configmap_uid or ""
    marks = ("framework-uid", f"0_{configmap}", attempt.roles[0].instance_uid, task.instance_uid, "0")
    return Identity("lost", configmap, marks, False)


# --- recorded but absent ----------------------------------------------------------------------------------------


def unseen(bench: Bench) -> tuple[str, Confirm]:
    """The cache has not shown the created Pod in time; its UID, and the live read that is asked for."""
    uid = bench.created(pending(bench), show=False)
    made = bench.plan()
    assert not made.actions
    assert made.requeue_after == 300
    bench.now += 299
    assert not bench.plan().actions
    bench.now += 1
    action = bench.only(bench.plan())
    assert isinstance(action, Confirm)
    assert action.uid == uid
    return uid, action


def test_a_created_pod_that_is_not_there_in_time_is_given_up() -> None:
    bench = Bench(role())
    _, action = unseen(bench)
    bench.fold(action, Gone())
    assert bench.state() is State.ATTEMPT_COMPLETED
    assert code(bench) == -111


def test_a_created_pod_that_is_there_all_the_same_is_looked_for_by_a_list() -> None:
    bench = Bench(role())
    _, action = unseen(bench)
    assert bench.fold(action, Remains("it is there")).relist == {Kind.POD}
    made = bench.plan()
    assert not made.actions
    # Until the list is made, it is asked for again by and by; one list is enough.
    bench.now += made.requeue_after or 0
    assert bench.only(bench.plan()) == action
    assert not bench.fold(action, Remains("it is there")).relist
    bench.listed = bench.now
    bench.show("f-a-0", phase="Running")
    assert not bench.plan().actions
    assert bench.state() is State.RUNNING


def test_a_created_pod_that_no_list_brings_into_the_cache_is_deleted() -> None:
    bench = Bench(role())
    uid, action = unseen(bench)
    bench.fold(action, Remains("it is there"))
    bench.listed = bench.now
    deletion = bench.only(bench.wait(1))
    assert deletion == Delete(action.target, uid, confirm=True)
    bench.fold(deletion, Remains("still there"))
    assert bench.state() is State.CREATION_REQUESTED
    assert bench.only(bench.wait(5)) == deletion
    bench.fold(deletion, Gone())
    assert bench.state() is State.ATTEMPT_COMPLETED
    assert code(bench) == -111


def test_a_created_pod_that_was_labelled_by_nobody_is_labelled() -> None:
    bench = Bench(role())
    uid, action = unseen(bench)
    assert not bench.fold(action, Remains("it is there", unlabelled=True)).relist
    assert bench.only(bench.plan()) == Relabel(action.target, uid, "f")


# --- a Pod that the cache has dropped -----------------------------------------------------------------------------


def dropped(bench: Bench, *, removed: bool = False) -> str:
    """The cache drops the running Pod; its UID."""
    uid = bench.pod()
    bench.run()
    bench.drop("f-a-0", removed=removed)
    return uid


def test_a_pod_whose_last_state_shows_that_it_is_gone_is_believed_to_be() -> None:
    bench = Bench(role())
    dropped(bench, removed=True)
    assert not bench.plan().actions
    assert (code(bench), diagnostics(bench)) == (-101, "Pod was deleted by others")


def test_one_that_is_gone_before_a_plan_has_seen_it_is_not_waited_for() -> None:
    bench = Bench(role())
    bench.created(pending(bench))
    bench.drop("f-a-0", removed=True)
    bench.plan()
    assert code(bench) == -101


def test_a_terminating_pod_that_the_cache_drops_is_gone_only_once_a_live_read_says_so() -> None:
    bench = Bench(role())
    uid = bench.pod()
    bench.run()
    bench.show("f-a-0", deleting=bench.now + 30)
    bench.plan()
    bench.drop("f-a-0")
    action = bench.only(bench.plan())
    assert action == Confirm(action.target, uid)
    assert bench.state() is State.DELETING
    bench.fold(action, Gone())
    bench.plan()
    assert bench.state() is State.ATTEMPT_COMPLETED


def test_one_that_has_lost_its_label_gets_it_back_and_that_is_told() -> None:
    bench = Bench(role())
    uid = dropped(bench)
    action = bench.only(bench.plan())
    assert not bench.fold(action, Remains("it is there", unlabelled=True)).records
    restore = bench.only(bench.plan())
    assert restore == Relabel(action.target, uid, "f")
    (record,) = bench.fold(restore, Accepted()).records
    assert (record.reason, record.warning, record.role, record.index) == (LifeReason.LABEL_RESTORED, True, "a", 0)
    assert bench.state() is State.RUNNING
    bench.show("f-a-0")
    bench.end(code=3)
    assert code(bench) == 3


def test_nobody_who_takes_labels_off_is_fought_with() -> None:
    bench = Bench(role())
    dropped(bench)
    times: list[float] = []
    while bench.now < NOW + 600:
        made = bench.wait(600 - (bench.now - NOW))
        if not made.actions:
            break
        action = bench.only(made)
        if isinstance(action, Relabel):
            times.append(bench.now)
            bench.fold(action, Accepted())
            # The label is there, and is taken off at once.
            bench.show("f-a-0")
            bench.plan()
            bench.drop("f-a-0")
        else:
            bench.fold(action, Remains("it is there", unlabelled=True))
    assert 30 < len(times) < 70


def test_a_label_that_may_not_be_put_back_stalls_and_the_pod_is_looked_at_all_the_same() -> None:
    bench = Bench(role())
    dropped(bench)
    for _ in range(4):
        bench.fold(bench.only(bench.wait(30)), Remains("it is there", unlabelled=True))
        bench.fold(bench.only(bench.wait(30)), refused(403, "pods is forbidden"))
    bench.plan()
    reason, message = stall(bench)
    assert reason == "PodNotAnswered"
    assert "Cannot label Pod f-a-0: 403" in message
    bench.fold(bench.only(bench.wait(30)), Gone())
    bench.plan()
    assert code(bench) == -101
    assert not any(condition.type == "Stalled" and condition.status == "True" for condition in bench.status.conditions)


def test_a_label_that_somebody_else_puts_back_ends_the_stall() -> None:
    bench = Bench(role())
    dropped(bench)
    for _ in range(4):
        bench.fold(bench.only(bench.wait(30)), Remains("it is there", unlabelled=True))
        bench.fold(bench.only(bench.wait(30)), refused(403, "pods is forbidden"))
    bench.plan()
    assert stalls(bench) == [("True", "PodNotAnswered")]
    bench.show("f-a-0")
    bench.plan()
    assert stalls(bench) == [("False", "Progressing")]


def test_the_wait_for_the_cache_outlives_the_process() -> None:
    bench = Bench(role())
    bench.created(pending(bench), show=False)
    bench.now += 250
    bench.restart()
    assert bench.plan().requeue_after == 50


def test_a_leaving_task_does_not_wait_for_the_cache() -> None:
    bench = Bench(role())
    uid = bench.created(pending(bench), show=False)
    bench.edit(role(number=0))
    bench.plan(write=False)
    assert bench.task().deletion_pending
    assert not bench.plan(write=False).actions
    bench.write()
    action = bench.only(bench.plan())
    assert isinstance(action, Delete)
    assert (action.uid, action.confirm) == (uid, True)
    bench.fold(action, Gone())
    assert bench.state() is State.ATTEMPT_COMPLETED
    assert code(bench) == -230


@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_a_pod_that_is_gone_was_deleted_by_others(phase: str) -> None:
    bench = Bench(role())
    bench.pod()
    bench.show("f-a-0", phase=phase)
    bench.plan()
    bench.hide("f-a-0")
    bench.plan(write=False)
    assert bench.state() is State.ATTEMPT_COMPLETED
    assert (code(bench), diagnostics(bench)) == (-101, "Pod was deleted by others")


@pytest.mark.parametrize(
    ("phase", "listed_ago", "relist"),
    [("Pending", 6, {Kind.CONFIGMAP}), ("Pending", 4, set()), ("Running", 6, set())],
)
def test_a_pod_deleted_before_it_ran_makes_the_cache_of_configmaps_doubtful(
    phase: str, listed_ago: int, relist: set[Kind]
) -> None:
    """The garbage collector deletes it if its ConfigMap is gone, of which the watch may not have told.

    A list takes time: until then, creations wait. So they do after a list that may be older than the deletion.
    """
    bench = Bench(role(retryPolicy={"maxRetryCount": -2}))
    bench.pod()
    bench.show("f-a-0", phase=phase)
    bench.plan()
    bench.listed = bench.env.clock - listed_ago
    bench.hide("f-a-0")
    assert bench.plan().relist == relist
    bench.plan()
    made = bench.plan()
    if phase == "Pending":
        assert not made.actions
        bench.now += 1
        made = bench.plan()
    assert isinstance(bench.only(made), Create)


def test_a_pod_that_is_deleted_after_its_end_casts_no_doubt() -> None:
    """Its phase was never Running."""
    bench = Bench(role(retryPolicy={"maxRetryCount": -2}))
    bench.pod()
    bench.listed = bench.env.clock - 6
    bench.show("f-a-0", phase="Failed")
    bench.plan()
    bench.hide("f-a-0")
    assert bench.task().attempt.run_time is None
    assert not bench.plan().relist


def test_a_pod_that_the_cache_showed_is_not_waited_for_when_it_goes() -> None:
    """Created, seen by the cache, and gone before the Task was looked at with it there."""
    bench = Bench(role())
    bench.created(pending(bench), show=True)
    bench.plan()
    bench.hide("f-a-0")
    bench.plan(write=False)
    assert bench.state() is State.ATTEMPT_COMPLETED
    assert code(bench) == -101


def test_after_a_restart_an_absent_pod_is_looked_for_by_a_live_read() -> None:
    bench = Bench(role())
    uid = bench.pod()
    bench.run()
    bench.restart()
    del bench.pods["f-a-0"]
    action = bench.only(bench.plan())
    assert isinstance(action, Confirm)
    assert action.uid == uid
    bench.fold(action, Remains("it is there"))
    assert bench.state() is State.RUNNING
    made = bench.plan()
    assert not made.actions
    bench.now += made.requeue_after or 0
    assert bench.only(bench.plan()) == action
    bench.fold(action, Gone())
    bench.plan(write=False)
    assert bench.state() is State.ATTEMPT_COMPLETED
    assert code(bench) == -101


def test_a_pod_of_the_name_with_another_uid_is_not_the_recorded_one() -> None:
    bench = Bench(role())
    bench.pod()
    bench.run()
    bench.pods["f-a-0"] = replace(bench.pods["f-a-0"], identity=Identity("other", None, None, False))
    bench.touch("f-a-0")
    bench.plan(write=False)
    assert bench.state() is State.ATTEMPT_COMPLETED
    assert code(bench) == -101


# --- being deleted ----------------------------------------------------------------------------------------------


def test_a_pod_that_others_delete() -> None:
    bench = Bench(role())
    bench.pod()
    bench.run()
    bench.show("f-a-0", deleting=bench.now + 30)
    made = bench.plan()
    assert not made.actions
    assert bench.state() is State.DELETING
    assert (code(bench), diagnostics(bench)) == (-101, "Pod is being deleted by others")
    # Whatever it says in the end: how the attempt ended is decided.
    bench.show("f-a-0", phase="Failed")
    bench.plan()
    assert code(bench) == -101
    bench.hide("f-a-0")
    bench.plan(write=False)
    assert bench.state() is State.ATTEMPT_COMPLETED
    assert code(bench) == -101


@pytest.mark.parametrize("state", ["created", "preparing", "pending deletion", "requested deletion"])
def test_a_pod_may_be_deleted_by_others_at_any_time(state: str) -> None:
    bench = Bench(role())
    bench.created(pending(bench), show=state != "created")
    if state != "created":
        bench.plan()
    expected = -101
    if "deletion" in state:
        bench.show("f-a-0", phase="Succeeded")
        bench.plan()
        expected = 0
    if state == "requested deletion":
        bench.fold(bench.only(bench.plan()), Accepted())
    bench.show("f-a-0", deleting=bench.now + 30)
    bench.plan()
    assert bench.state() is State.DELETING
    assert code(bench) == expected


# --- an ended Pod whose containers run --------------------------------------------------------------------------

LEFT_RUNNING = [{"name": "main", "state": {"running": {}}}]


def left_running(phase: str = "Failed", grace: int | None = 20) -> Bench:
    """A Task whose Pod has ended before its containers have."""
    bench = Bench(role(retryPolicy={"maxRetryCount": 1}))
    bench.pod()
    bench.run()
    if grace is not None:
        bench.bodies["f-a-0"]["spec"]["terminationGracePeriodSeconds"] = grace
    bench.show("f-a-0", phase=phase, reason="DeadlineExceeded", containerStatuses=LEFT_RUNNING)
    return bench


@pytest.mark.parametrize(("phase", "decided"), [("Failed", -300), ("Succeeded", 0)])
@pytest.mark.parametrize(("grace", "waits"), [(20, 50), (0, 30), (3600, 3630), (None, 60)])
def test_a_pod_that_ended_is_left_its_grace_period(phase: str, decided: int, grace: int | None, waits: int) -> None:
    bench = left_running(phase, grace)
    made = bench.plan()
    assert (bench.state(), code(bench)) == (State.DELETION_PENDING, decided)
    made = bench.plan()
    assert not made.actions
    bench.now += waits - 1
    assert not bench.plan().actions
    bench.now += 1
    action = bench.only(bench.plan())
    assert isinstance(action, Delete)
    assert not action.force
    bench.fold(action, Accepted())
    assert bench.tracker.holds.stalls == {}


def test_it_is_deleted_once_its_containers_have_ended() -> None:
    bench = left_running()
    bench.plan()
    bench.now += 3
    assert not bench.plan().actions
    bench.stop(code=143)
    assert isinstance(bench.only(bench.plan()), Delete)
    assert code(bench) == -300


def test_a_sidecar_that_runs_counts() -> None:
    bench = left_running()
    bench.show("f-a-0", containerStatuses=[], initContainerStatuses=LEFT_RUNNING)
    bench.plan()
    assert not bench.plan().actions


def test_that_containers_run_is_told_after_a_while() -> None:
    bench = left_running(grace=100)
    bench.plan()
    bench.plan()
    assert bench.tracker.holds.stalls == {}
    bench.wait(30)
    stall = bench.tracker.holds.stalls["a", 0]
    assert stall.reason is LifeReason.POD_STILL_RUNS
    assert stall.message == (
        "Pod f-a-0 has failed, and its containers still run (node node-1): "
        "it is deleted when they end, or at 2023-11-14T22:15:30Z"
    )
    bench.stop(code=143)
    bench.plan()
    assert bench.tracker.holds.stalls == {}


def test_that_containers_run_is_not_told_of_a_pod_that_others_delete() -> None:
    bench = left_running(grace=100)
    bench.plan()
    bench.plan()
    bench.wait(30)
    assert stalls(bench) == [("True", "PodStillRuns")]
    bench.show("f-a-0", deleting=bench.now + 100, grace=100)
    bench.plan()
    assert stalls(bench) == [("False", "Progressing")]


def test_another_process_waits_anew() -> None:
    bench = left_running()
    bench.plan()
    bench.now += 40
    bench.restart()
    assert not bench.plan().actions
    bench.now += 49
    assert not bench.plan().actions
    bench.now += 1
    assert isinstance(bench.only(bench.plan()), Delete)


def test_a_scaled_down_task_is_left_its_grace_period() -> None:
    bench = left_running()
    bench.edit(role(number=0))
    bench.plan()
    bench.plan()
    assert code(bench) == -230
    assert not bench.plan().actions
    bench.now += 50
    bench.touch("f-a-0")
    assert isinstance(bench.only(bench.plan()), Delete)


def test_an_orphaned_pod_is_left_its_grace_period() -> None:
    bench = left_running()
    pod = replace(bench.pods["f-a-0"], identity=replace(bench.pods["f-a-0"].identity, uid="orphan", annotations=None))
    bench.pods["f-a-0"] = pod
    bench.touch("f-a-0")
    bench.plan()
    bench.plan()
    assert bench.state() is State.CREATION_PENDING
    assert not bench.plan().actions
    action = bench.only(bench.wait(50))
    assert isinstance(action, Delete)
    assert (action.uid, bench.now) == ("orphan", NOW + 50)
    bench.hide("f-a-0")
    bench.plan()
    assert bench.tracker.holds.stalls == {}


@pytest.mark.parametrize("known_before", [True, False])
def test_a_framework_that_completes_leaves_it_its_grace_period(known_before: bool) -> None:
    """The garbage collector deletes the Pods of a ConfigMap that goes."""
    bench = left_running()
    if known_before:
        bench.plan()
        bench.plan()
    bench.edit(executionType="Stop")
    bench.plan()
    assert bench.status.state is State.DELETION_PENDING
    made = bench.plan()
    assert not made.actions
    bench.now += 49
    assert not bench.plan().actions
    bench.now += 1
    assert {action.target.name for action in bench.plan().actions} == {"f-attempt", "f-a-0"}


def test_a_framework_that_completes_waits_for_no_pod_that_runs() -> None:
    bench = Bench(role())
    bench.pod()
    bench.run()
    bench.edit(executionType="Stop")
    bench.plan()
    assert actions(bench.plan()) == ["Delete f-attempt"]


def disrupted(reason: str, status: str = "True") -> list[dict[str, str]]:
    """Conditions of a Pod that is to be disrupted for that reason."""
    return [
        {"type": "Ready", "status": "True"},
        {"type": "DisruptionTarget", "status": status, "reason": reason, "message": "said why"},
    ]


DISRUPTED = [
    ("PreemptionByScheduler", -1008, "PodPreemptedByScheduler"),
    ("PreemptionByKubeScheduler", -1008, "PodPreemptedByScheduler"),
    ("DeletionByTaintManager", -1009, "PodEvictedByTaint"),
    ("EvictionByEvictionAPI", -1010, "PodEvictedByApi"),
    ("DeletionByPodGC", -1011, "PodDeletedByPodGC"),
    ("TerminationByKubelet", -1012, "PodTerminatedByKubelet"),
]


@pytest.mark.parametrize(("reason", "expected", "phrase"), DISRUPTED)
def test_a_pod_that_kubernetes_deletes(reason: str, expected: int, phrase: str) -> None:
    bench = Bench(role())
    bench.pod()
    bench.run()
    bench.show("f-a-0", conditions=disrupted(reason))
    bench.plan()
    # The condition alone ends nothing.
    assert bench.state() is State.RUNNING
    bench.show("f-a-0", deleting=bench.now + 30)
    bench.plan()
    completion = bench.task().attempt.completion_status
    assert bench.state() is State.DELETING
    assert completion is not None
    assert (completion.code, completion.phrase, completion.attributes) == (expected, phrase, ("Transient",))
    assert completion.diagnostics == f"Pod is being deleted by others: {reason}: said why"
    bench.show("f-a-0", phase="Failed")
    bench.plan()
    assert code(bench) == expected


@pytest.mark.parametrize("conditions", [disrupted("EvictionByEvictionAPI", "False"), disrupted("OfMyOwn")])
def test_a_pod_that_is_deleted_for_no_disruption_that_has_a_code(conditions: list[dict[str, str]]) -> None:
    bench = Bench(role())
    bench.pod()
    bench.show("f-a-0", deleting=bench.now + 30, conditions=conditions)
    bench.plan()
    assert (code(bench), diagnostics(bench)) == (-101, "Pod is being deleted by others")


def test_what_is_configured_is_not_applied_to_a_pod_that_is_being_deleted() -> None:
    anything = FailureClass(Code(300, "Mine", attributes=("Permanent",)), (PodPattern(),))
    bench = Bench(role(), limit=limits(anything))
    bench.pod()
    bench.show("f-a-0", phase="Failed", deleting=bench.now + 30, conditions=disrupted("EvictionByEvictionAPI"))
    bench.plan()
    assert code(bench) == -1010


def test_a_pod_that_kubernetes_deleted_at_once() -> None:
    """Its end was not looked at before it was gone."""
    bench = Bench(role())
    bench.pod()
    bench.run()
    gone = replace(bench.pods["f-a-0"], disruption=Disruption("DeletionByPodGC", "PodGC: node no longer exists"))
    bench.pods["f-a-0"] = gone
    bench.drop("f-a-0", removed=True)
    bench.plan()
    assert (code(bench), diagnostics(bench)) == (
        -1011,
        "Pod was deleted by others: DeletionByPodGC: PodGC: node no longer exists",
    )


def test_what_was_said_of_another_pod_of_the_name_does_not_count() -> None:
    bench = Bench(role())
    bench.pod()
    bench.run()
    other = replace(bench.pods["f-a-0"].identity, uid="other")
    gone = replace(bench.pods["f-a-0"], identity=other, disruption=Disruption("DeletionByPodGC", ""))
    bench.tracker.pod_dropped(TASK, gone, removed=True)
    bench.drop("f-a-0", removed=True)
    bench.plan()
    assert code(bench) == -101


def test_without_a_timeout_a_pod_is_never_deleted_by_force() -> None:
    bench = Bench(role())
    bench.pod()
    bench.run()
    bench.show("f-a-0", deleting=bench.now + 30)
    bench.plan()
    bench.now += 1_000_000
    bench.touch("f-a-0")
    assert not bench.plan().actions
    assert bench.state() is State.DELETING


@pytest.mark.parametrize(("timeout", "grace"), [(0, 30), (10, 30), (60, 30), (60, 0), (600, 30)])
def test_force_deletion_is_counted_from_when_the_deletion_began(timeout: int, grace: int) -> None:
    bench = Bench(role(podGracefulDeletionTimeoutSec=timeout))
    uid = bench.pod()
    bench.run()
    began = bench.now
    bench.show("f-a-0", deleting=began + grace, grace=grace)
    # The state is persisted before it is acted on.
    assert not bench.plan(write=False).actions
    assert not bench.plan(write=False).actions
    bench.write()
    while bench.now < began + timeout:
        made = bench.plan()
        assert not made.actions
        assert made.requeue_after is not None
        assert 0 < made.requeue_after <= began + timeout - bench.now
        bench.now += made.requeue_after
    action = bench.only(bench.plan())
    assert isinstance(action, Delete)
    assert (action.uid, action.force, action.confirm) == (uid, True, True)
    bench.fold(action, Remains("still there"))
    assert bench.state() is State.DELETING
    bench.now += 60
    assert bench.only(bench.plan()) == action
    bench.fold(action, Gone())
    # Confirmed by a live read: the cache need not be waited for.
    assert bench.state() is State.ATTEMPT_COMPLETED


def test_a_changed_timeout_is_copied_and_persisted_before_it_is_acted_on() -> None:
    bench = Bench(role(), role("b"))
    bench.all_pods()
    bench.run()
    bench.show("f-a-0", deleting=bench.now + 30)
    bench.plan()
    bench.now += 100
    bench.edit(role(podGracefulDeletionTimeoutSec=50), role("b"))
    made = bench.plan(write=False)
    assert not made.actions
    assert bench.status.attempt.roles[0].pod_graceful_deletion_timeout_sec == 50
    assert bench.tracker.urgency is Urgency.NOW
    assert not bench.plan(write=False).actions
    bench.write()
    action = bench.only(bench.plan())
    assert isinstance(action, Delete)
    assert action.force


def test_the_timeout_of_a_role_that_left_the_spec_is_kept() -> None:
    bench = Bench(role(podGracefulDeletionTimeoutSec=50), role("b"))
    bench.all_pods()
    bench.edit(role("b"))
    bench.plan()
    assert bench.status.attempt.roles[0].pod_graceful_deletion_timeout_sec == 50
    bench.plan()
    bench.fold(bench.only(bench.plan()), Accepted())
    bench.show("f-a-0", deleting=bench.now + 30)
    bench.plan()
    bench.now += 50
    action = bench.only(bench.plan())
    assert isinstance(action, Delete)
    assert action.force


def test_a_changed_policy_is_copied_and_persisted_before_it_is_acted_on() -> None:
    fields: dict[str, Any] = {"podGracefulDeletionTimeoutSec": 50}
    bench = Bench(role(**fields), role("b"))
    bench.all_pods()
    assert b"podForceDeletionPolicy" not in encode_status("f", bench.status)
    bench.show("f-a-0", deleting=bench.now + 30, nodeName="n")
    bench.plan()
    bench.edit(role(podForceDeletionPolicy="NodeUnreachable", **fields), role("b"))
    bench.now += 100
    assert not bench.plan(write=False).actions
    assert bench.status.attempt.roles[0].pod_force_deletion_policy == "NodeUnreachable"
    assert bench.status.attempt.roles[1].pod_force_deletion_policy is None
    assert bench.tracker.urgency is Urgency.NOW
    bench.write()
    action = bench.only(bench.plan())
    assert isinstance(action, Delete)
    assert (action.force, action.if_node_lost, action.node) == (True, True, "n")
    bench.edit(role(podForceDeletionPolicy="Always", **fields), role("b"))
    bench.plan()
    assert b"podForceDeletionPolicy" not in encode_status("f", bench.status)
    action = bench.only(bench.plan())
    assert isinstance(action, Delete)
    assert (action.force, action.if_node_lost) == (True, False)


def test_a_policy_of_a_later_version_spares_pods_on_healthy_nodes() -> None:
    bench = Bench(role(podGracefulDeletionTimeoutSec=50), role("b"))
    bench.all_pods()
    bench.edit(role("b"))
    bench.plan()
    bench.status.attempt.roles[0].pod_force_deletion_policy = "SomethingNew"
    bench.show("f-a-0", deleting=bench.now + 30, nodeName="n")
    bench.plan()
    bench.now += 50
    action = bench.only(bench.plan())
    assert isinstance(action, Delete)
    assert action.if_node_lost


def test_a_pod_that_is_not_forced_is_looked_at_every_half_minute() -> None:
    bench = Bench(role(podGracefulDeletionTimeoutSec=50, podForceDeletionPolicy="NodeUnreachable"), role("b"))
    bench.all_pods()
    bench.show("f-a-0", deleting=bench.now + 30, nodeName="n")
    bench.plan()
    bench.now += 50
    action = bench.only(bench.plan())
    first = bench.fold(action, NotForced("why"))
    assert [(item.reason, item.message) for item in first.records] == [(RequestReason.WAITING, "why")]
    made = bench.plan()
    assert not made.actions
    assert made.requeue_after == pytest.approx(30)
    # Slow as it is, it is no stall yet.
    assert bench.tracker.holds.stalls == {}
    bench.now += 30
    assert bench.only(bench.plan()) == action
    assert bench.fold(action, NotForced("why")).records == []
    bench.now += 90
    bench.plan()
    assert bench.tracker.holds.stalls["a", 0].reason is LifeReason.POD_NOT_GONE
    assert bench.tracker.holds.stalls["a", 0].message.endswith("still exists (node n): why")
    bench.fold(action, Gone())
    assert bench.state() is State.ATTEMPT_COMPLETED
    assert bench.tracker.holds.stalls == {}


def test_nodes_that_cannot_be_read_are_a_stall_at_once() -> None:
    bench = Bench(role(podGracefulDeletionTimeoutSec=50, podForceDeletionPolicy="NodeUnreachable"), role("b"))
    bench.all_pods()
    bench.show("f-a-0", deleting=bench.now + 30, nodeName="n")
    bench.plan()
    bench.now += 50
    bench.fold(bench.only(bench.plan()), NotForced("403", unreadable=True))
    stall = bench.tracker.holds.stalls["a", 0]
    assert (stall.reason, stall.message) == (LifeReason.POD_NOT_GONE, "403")


def test_a_timeout_that_is_taken_back_forces_nothing() -> None:
    bench = Bench(role(podGracefulDeletionTimeoutSec=50))
    bench.pod()
    bench.show("f-a-0", deleting=bench.now + 30)
    bench.plan()
    bench.edit(role(podGracefulDeletionTimeoutSec=None))
    bench.plan()
    bench.now += 500
    assert not bench.plan().actions


# --- deletion that we ask for -----------------------------------------------------------------------------------


@pytest.mark.parametrize("result", [Unanswered("reset"), refused(500), refused(403), refused(429)])
def test_a_deletion_that_fails_is_retried_with_back_off(result: Result) -> None:
    bench = Bench(role())
    bench.pod()
    bench.show("f-a-0", phase="Succeeded")
    bench.plan()
    action = bench.only(bench.plan())
    bench.fold(action, result)
    assert bench.state() is State.DELETION_PENDING
    made = bench.plan()
    assert not made.actions
    assert made.requeue_after is not None
    bench.now += made.requeue_after
    assert bench.only(bench.plan()) == action


def test_a_deletion_that_finds_nothing_is_as_good_as_accepted() -> None:
    bench = Bench(role())
    bench.pod()
    bench.show("f-a-0", phase="Succeeded")
    bench.plan()
    bench.fold(bench.only(bench.plan()), Gone())
    assert bench.state() is State.DELETION_REQUESTED
    bench.hide("f-a-0")
    bench.plan(write=False)
    assert bench.state() is State.ATTEMPT_COMPLETED
    assert code(bench) == 0


def test_an_outcome_of_an_earlier_attempt_or_instance_changes_nothing() -> None:
    bench = Bench(role(retryPolicy={"maxRetryCount": 5}))
    first = pending(bench)
    bench.created(first)
    bench.end(code=1)
    assert bench.task().attempt.id == 1
    state = bench.state()
    for result in (Created("late"), Exists(_ours(bench)), refused(422)):
        bench.fold(first, result)
        assert bench.state() is state
        assert bench.task().attempt.pod_uid != "late"
    elsewhere = replace(first, target=replace(first.target, index=7))
    bench.fold(elsewhere, Created("late"))
    nobody = replace(first, target=replace(first.target, role="z"))
    bench.fold(nobody, Created("late"))


def test_a_late_answer_is_not_taken_for_that_of_a_later_attempt() -> None:
    bench = Bench(role(retryPolicy={"maxRetryCount": 5}))
    first = pending(bench)
    bench.fold(first, refused(422))
    bench.plan()
    bench.plan()
    assert (bench.state(), bench.task().attempt.id) == (State.CREATION_PENDING, 1)
    for result in (Created("late"), Exists(_ours(bench)), refused(422)):
        bench.fold(first, result)
        assert (bench.state(), bench.task().attempt.id) == (State.CREATION_PENDING, 1)
        assert bench.task().attempt.completion_status is None


def test_a_late_answer_is_not_taken_for_that_of_another_instance() -> None:
    bench = Bench(role(number=1), role("b"))
    bench.attempt()
    first = next(action for action in bench.plan().actions if action.target.role == "a")
    bench.edit(role(number=0), role("b"))
    bench.settle()
    bench.edit(role(number=1), role("b"))
    bench.plan()
    assert bench.state() is State.CREATION_PENDING
    bench.fold(first, Created("late"))
    assert bench.state() is State.CREATION_PENDING


# --- retry ------------------------------------------------------------------------------------------------------


def test_a_task_is_retried_without_delay_even_after_a_conflict() -> None:
    bench = Bench(role(retryPolicy={"fancyRetryPolicy": True}))
    bench.pod()
    bench.end(code=201)
    task = bench.task()
    assert task.attempt.id == task.retry.total_retried_count == 1
    assert task.retry.accountable_retried_count == 0
    assert task.retry.retry_delay_sec is None
    assert task.state in (State.CREATION_REQUESTED, State.PREPARING)


def test_a_clock_that_is_set_back_does_not_hold_up_a_retry_without_delay() -> None:
    bench = failed_and_gone()
    bench.plan()
    assert bench.state() is State.ATTEMPT_COMPLETED
    bench.now -= 3600
    bench.plan()
    assert (bench.state(), bench.task().attempt.id) == (State.CREATION_PENDING, 1)


def test_accountable_retries_are_counted_until_there_are_none_left() -> None:
    bench = Bench(role(retryPolicy={"maxRetryCount": 2}), role("b"))
    bench.all_pods()
    for used in (1, 2):
        bench.end(code=1)
        assert bench.task().retry.accountable_retried_count == bench.task().attempt.id == used
    bench.end(code=1)
    assert bench.state() is State.COMPLETED
    assert bench.task().attempt.id == 2


def test_a_policy_that_is_changed_counts_from_then_on() -> None:
    bench = Bench(role(retryPolicy={"maxRetryCount": 5}))
    bench.pod()
    bench.end(code=1)
    bench.edit(role(retryPolicy={"maxRetryCount": 1}))
    bench.end(code=1)
    assert bench.state() is State.COMPLETED


# --- leaving ----------------------------------------------------------------------------------------------------


def test_a_leaving_task_that_was_never_created_is_made_sure_of_by_a_live_read() -> None:
    bench = Bench(role(), role("b"))
    bench.attempt()
    action = next(action for action in bench.plan().actions if action.target.role == "a")
    bench.fold(action, Unanswered("reset"))
    bench.edit(role(number=0), role("b"))
    bench.plan()
    bench.now += 60
    cleanup = next(action for action in bench.plan().actions if action.target.role == "a")
    assert isinstance(cleanup, Cleanup)
    assert cleanup.controller_uid == bench.status.attempt.configmap_uid
    bench.fold(cleanup, Remains("it is there"))
    assert bench.state() is State.CREATION_PENDING
    bench.now += 60
    assert cleanup in bench.plan().actions
    bench.fold(cleanup, Gone())
    assert bench.state() is State.ATTEMPT_COMPLETED
    assert code(bench) == -230


def test_a_live_read_of_another_configmaps_pods_says_nothing_of_a_leaving_task() -> None:
    """The status of another controller is taken over, which has not recorded the ConfigMap."""
    bench = Bench(role(), role("b"))
    bench.plan()
    assert bench.status.state is State.CREATION_PENDING
    bench.edit(role(number=0), role("b"))
    bench.plan()
    assert bench.task().deletion_pending
    bench.fold(Cleanup(Target(Kind.POD, "f-a-0", role="a", index=0), "configmap-uid"), Gone())
    assert bench.state() is State.CREATION_PENDING


def test_a_pod_that_is_found_under_the_name_of_a_leaving_task_is_deleted_once_the_status_is_confirmed() -> None:
    bench = Bench(role(), role("b"))
    bench.attempt()
    action = next(action for action in bench.plan().actions if action.target.role == "a")
    found = replace(_ours(bench), annotations=None)
    bench.fold(action, Unanswered("reset"))
    bench.edit(role(number=0), role("b"))
    bench.plan()
    bench.now += 60
    cleanup = next(action for action in bench.plan().actions if action.target.role == "a")
    bench.fold(cleanup, Exists(found))
    deletion = next(action for action in bench.plan().actions if action.target.role == "a")
    assert deletion == Delete(action.target, "lost")
    assert _is_confirmed_first(deletion)
    bench.fold(deletion, Accepted())
    assert bench.state() is State.CREATION_PENDING
    bench.now += 60
    assert cleanup in bench.plan().actions
    bench.fold(cleanup, Exists(replace(found, deleting=True)))
    assert bench.state() is State.CREATION_PENDING
    bench.now += 60
    assert cleanup in bench.plan().actions
    bench.fold(cleanup, Gone())
    assert code(bench) == -230


def test_a_leaving_task_that_runs_is_stopped_gracefully_once_that_is_persisted() -> None:
    bench = Bench(role(), role("b"))
    bench.all_pods()
    bench.run()
    bench.edit(role(number=0), role("b"))
    assert not bench.plan(write=False).actions
    task = bench.task()
    assert task.deletion_pending
    assert (code(bench), diagnostics(bench)) == (-230, "User has requested to delete the Task by Framework ScaleDown")
    assert not bench.plan(write=False).actions
    bench.write()
    action = bench.only(bench.plan())
    assert bench.state() is State.DELETION_PENDING
    assert isinstance(action, Delete)
    assert not action.force


@pytest.mark.parametrize("state", [State.RUNNING, State.CREATION_PENDING])
def test_a_leaving_task_that_another_controller_marked_without_saying_why_is_stopped_too(state: State) -> None:
    bench = Bench(role(), role("b"), checked=False)
    if state is State.RUNNING:
        bench.all_pods()
        bench.run()
    else:
        bench.attempt()
    task = bench.task()
    assert task.state is state
    task.deletion_pending = True
    task.encoded = None
    bench.restart()
    bench.edit(role(number=0), role("b"))
    assert not [action for action in bench.plan().actions if action.target.role == "a"]
    assert code(bench) == -230
    bench.settle()
    assert [len(item.tasks) for item in bench.status.attempt.roles] == [0, 1]


def test_a_leaving_task_is_not_retried() -> None:
    bench = Bench(role(retryPolicy={"maxRetryCount": -2}), role("b"))
    bench.all_pods()
    bench.show("f-a-0", phase="Failed")
    bench.plan()
    bench.edit(role(number=0, retryPolicy={"maxRetryCount": -2}), role("b"))
    bench.settle()
    # What had ended is left as it ended; the Task goes all the same.
    assert all(item.name != "a" or not item.tasks for item in bench.status.attempt.roles)


def test_the_completion_of_a_leaving_task_that_had_one_stays() -> None:
    bench = Bench(role(), role("b"))
    bench.all_pods()
    bench.show("f-a-0", phase="Failed")
    bench.plan()
    before = bench.task().attempt.completion_status
    bench.edit(role(number=0), role("b"))
    bench.plan()
    assert bench.task().deletion_pending
    assert bench.task().attempt.completion_status == before
