"""Suspension of one Framework (docs/running.md, "Suspend and resume")."""

from dataclasses import replace
from typing import Any

import orjson
import pytest

from frameworkcontroller.api.codec import encode_status
from frameworkcontroller.api.objects import Identity
from frameworkcontroller.api.status import Condition, State
from frameworkcontroller.machine.kernel.actions import Action, ConfirmGone, ConfirmNone, Create, Delete, LookUp
from frameworkcontroller.machine.kernel.exchanges import Accepted, Exists, Gone, Remains, Result
from frameworkcontroller.machine.kernel.model import Plan, SnapshotTrigger, Urgency
from frameworkcontroller.machine.kernel.requests import Unanswered
from frameworkcontroller.machine.lifereasons import LifeReason
from tests.support.bench import UID, Bench, accepted, role, running

CONFIGMAP = "f-attempt"
POD = "f-a-0"


def suspended(bench: Bench) -> tuple[str, str] | None:
    """Status and reason of the condition Suspended."""
    found = [(item.status, item.reason) for item in bench.status.conditions if item.type == "Suspended"]
    return found[0] if found else None


TRUE = ("True", "Suspended")
GOING = ("False", "Suspending")
RESUMED = ("False", "Resumed")


def retries(bench: Bench) -> tuple[int, int]:
    """All retries, and those that count."""
    return bench.status.retry.total_retried_count, bench.status.retry.accountable_retried_count


def suspend(bench: Bench) -> None:
    """Up to where it is known that nothing runs."""
    bench.edit_then_settle(suspend=True)


def plans(bench: Bench) -> list[Plan]:
    """Some plans. A look finds nothing; deletions are accepted, and all objects vanish."""
    made = []
    for _ in range(12):
        made.append(bench.plan())
        for action in made[-1].actions:
            bench.fold(action, Gone() if isinstance(action, LookUp) else Accepted())
            bench.vanish()
    return made


# --- a running attempt ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [{}, {"maxRetryCount": 3}, {"maxRetryCount": -2}, {"fancyRetryPolicy": True}])
def test_an_attempt_ends_and_the_next_one_waits_with_any_retry_policy(policy: Any) -> None:
    bench = running(retryPolicy={**policy, "backoff": {"baseSeconds": 10}})
    bench.edit(suspend=True)
    # Nothing is deleted before the end is persisted.
    assert not bench.plan(write=False).actions
    assert bench.tracker.urgency is Urgency.NOW
    assert (bench.status.state, bench.code(), suspended(bench)) == (State.DELETION_PENDING, -240, GOING)
    bench.write()
    bench.settle()
    assert (bench.status.state, bench.status.attempt.id, bench.code()) == (State.CREATION_PENDING, 1, None)
    assert (retries(bench), suspended(bench)) == ((1, 0), TRUE)
    assert bench.status.retry.recent_retried_count == 0
    bench.edit(suspend=False)
    bench.all_pods()
    assert (bench.status.state, suspended(bench)) == (State.PREPARING, RESUMED)


def test_the_history_has_the_suspended_attempt() -> None:
    bench = running()
    bench.edit(suspend=True)
    taken = [item for made in plans(bench) for item in made.snapshots]
    (retry,) = [item for item in taken if item.trigger is SnapshotTrigger.FRAMEWORK_RETRY]
    assert orjson.loads(retry.status_json)["attemptStatus"]["completionStatus"]["code"] == -240


@pytest.mark.parametrize("suspends", [True, False])
def test_completed_tasks_that_run_again_because_of_a_suspension_are_counted(suspends: bool) -> None:
    bench = running(role(number=3, failed=0 if suspends else 2), role("b"), retryPolicy={"maxRetryCount": 1})
    bench.end(POD)
    bench.end("f-a-1", code=1)
    if suspends:
        bench.edit(suspend=True)
        bench.plan(write=False)
    else:
        bench.end("f-a-2", code=1)
        assert bench.status.attempt.id == 1
    assert bench.tracker.process.counters is not None
    assert bench.tracker.process.counters.rerun == (2 if suspends else 0)
    bench.write()
    bench.settle()
    bench.edit(suspend=False)
    bench.all_pods()
    assert len(bench.pods) == 4


# --- precedence ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, -250], ids=["completion policy", "deadline"])
def test_a_completion_that_is_due_in_the_same_step_comes_first(code: int) -> None:
    bench = running(activeDeadlineSeconds=10)
    if code == 0:
        bench.stop_then_plan(POD)
        bench.fold(bench.only(bench.plan()), Accepted())
        bench.hide(POD)
    else:
        bench.now += 10
    bench.edit_then_settle(suspend=True)
    assert (bench.status.state, bench.code()) == (State.COMPLETED, code)
    assert suspended(bench) in (None, ("False", "Completed"))


def test_another_completion_stays_and_its_retry_waits() -> None:
    bench = running(role(failed=1), retryPolicy={"maxRetryCount": 1})
    bench.stop(POD, 1)
    for _ in range(10):
        made = bench.plan()
        if bench.tracker.is_completing:
            break
        for action in made.actions:
            bench.fold(action, Accepted())
            bench.hide(action.target.name)
    assert (bench.status.state, bench.code()) == (State.DELETION_PENDING, 1)
    suspend(bench)
    assert (bench.status.state, retries(bench), suspended(bench)) == (State.CREATION_PENDING, (1, 1), TRUE)


def test_the_delay_of_a_retry_passes_while_suspended() -> None:
    bench = running(role(failed=1), retryPolicy={"maxRetryCount": 1, "backoff": {"baseSeconds": 30}})
    bench.end(code=1)
    assert (bench.status.state, bench.status.retry.retry_delay_sec) == (State.ATTEMPT_COMPLETED, 30)
    suspend(bench)
    assert (bench.status.state, suspended(bench)) == (State.ATTEMPT_COMPLETED, TRUE)
    bench.idle(after=29)
    bench.now += 1
    bench.plan(write=False)
    assert (bench.status.state, suspended(bench)) == (State.CREATION_PENDING, TRUE)
    bench.write()
    bench.settle()
    assert (bench.status.state, suspended(bench)) == (State.CREATION_PENDING, TRUE)


def test_a_completed_framework_is_never_suspended() -> None:
    bench = running()
    bench.end()
    assert bench.status.state is State.COMPLETED
    suspend(bench)
    assert (bench.status.state, suspended(bench)) == (State.COMPLETED, None)


def test_executiontype_create_can_be_suspended_too() -> None:
    bench = Bench(role(), executionType="Create", suspend=True)
    bench.settle()
    assert (bench.status.state, suspended(bench)) == (State.CREATION_PENDING, TRUE)
    bench.edit_then_settle(executionType="Start")
    assert (bench.status.attempt.id, bench.status.state, suspended(bench)) == (0, State.CREATION_PENDING, TRUE)


def test_an_invalid_spec_resumes_nothing() -> None:
    bench = running()
    suspend(bench)
    bench.spoil(suspend=False)
    bench.settle()
    assert suspended(bench) == TRUE
    assert bench.configmap is None
    bench.edit(coordinator=None)
    bench.all_pods()
    assert suspended(bench) == ("False", "Resumed")


# --- a ConfigMap that was never seen ---------------------------------------------------------------------------------


def requested() -> Bench:
    """A Framework whose ConfigMap is recorded and not in the cache."""
    bench = accepted()
    bench.created(bench.only(bench.plan()), show=False)
    assert bench.status.state is State.CREATION_REQUESTED
    return bench


def test_an_unseen_configmap_is_deleted_at_once_after_the_end_is_persisted() -> None:
    bench = requested()
    bench.edit(suspend=True)
    assert not bench.plan(write=False).actions
    assert (bench.code(), bench.tracker.urgency) == (-240, Urgency.NOW)
    bench.write()
    deletion = bench.expect(Delete)
    assert (deletion.uid, deletion.confirm) == ("configmap-1", True)
    bench.fold(deletion, Remains("still there"))
    assert suspended(bench) == GOING
    bench.fold(deletion, Gone())
    bench.settle()
    assert (bench.status.attempt.id, retries(bench), suspended(bench)) == (1, (1, 0), TRUE)


@pytest.mark.parametrize("then", ["resumed", "restarted", "shown"])
def test_a_persisted_end_of_an_unseen_configmap_is_final(then: str) -> None:
    bench = requested()
    bench.edit_then_plan(suspend=True)
    if then == "shown":
        bench.show(CONFIGMAP)
        assert not [action for action in bench.plan().actions if isinstance(action, Create)]
    else:
        bench.edit(suspend=False)
        if then == "restarted":
            bench.restart()
        assert not bench.plan().actions, "the new generation is persisted first"
        bench.expect(Delete)
    bench.settle()
    assert (retries(bench), bench.status.attempt.id) == ((1, 0), 1)
    assert then != "shown" or suspended(bench) == TRUE


# --- a stored AttemptCreationPending --------------------------------------------------------------------------------


def pending() -> Bench:
    """A new process finds a suspended Framework that has not started, as far as is stored."""
    bench = accepted()
    bench.edit(suspend=True)
    bench.restart()
    return bench


def look(bench: Bench) -> LookUp:
    """The look at the API server, which is all that happens."""
    for _ in range(5):
        if made := bench.plan().actions:
            (action,) = made
            assert isinstance(action, LookUp)
            return action
    raise AssertionError("it does not look")


def ours(uid: str = "unrecorded", *, attempt_id: int = 0, deleting: bool = False) -> Identity:
    """The ConfigMap of an attempt of the Framework."""
    return Identity(uid, UID, (UID, str(attempt_id)), deleting)


def unrecorded(bench: Bench, *, show: bool = True) -> str:
    """Another controller creates the ConfigMap of this attempt and dies; its UID."""
    shadow = Bench(role())
    shadow.plan()
    uid = shadow.created(shadow.only(shadow.plan()))
    bench.bodies[CONFIGMAP] = shadow.bodies[CONFIGMAP]
    if show:
        bench.show(CONFIGMAP)
        bench.tracker.agenda.look()
    return uid


@pytest.mark.parametrize("first", [[], [Unanswered("no")], [Exists(Identity("unrecorded", UID, (UID, "0"), True))]])
def test_suspension_is_promised_once_a_look_finds_nothing(first: list[Result]) -> None:
    bench = pending()
    action = look(bench)
    for result in first:
        assert suspended(bench) == GOING
        bench.fold(action, result)
        action = bench.expect(LookUp, 5)
    assert suspended(bench) == GOING
    made = bench.fold(action, Gone())
    assert (suspended(bench), made.actions) == (TRUE, [])
    bench.idle()


def test_a_configmap_in_the_cache_is_adopted_without_a_look_and_has_no_pods() -> None:
    bench = pending()
    bench.plan()
    unrecorded(bench)
    for _ in range(5):
        made = bench.plan()
        assert not [action for action in made.actions if isinstance(action, Create | LookUp)]
        if made.actions:
            break
    assert (bench.code(), bench.status.state) == (-240, State.DELETION_PENDING)
    bench.settle()
    assert (bench.status.attempt.id, suspended(bench)) == (1, TRUE)


def test_a_late_configmap_that_a_creation_finds_is_replaced() -> None:
    bench = pending()
    bench.fold(look(bench), Gone())
    uid = unrecorded(bench)
    bench.plan()
    bench.hide(CONFIGMAP)
    bench.edit_then_plan(suspend=False)
    creation = bench.expect(Create)
    bench.fold(creation, Exists(ours(uid)))
    assert bench.status.state is State.CREATION_PENDING
    assert [action.uid for action in bench.wait(5).actions if isinstance(action, Delete)] == [uid]


def test_a_configmap_of_an_earlier_attempt_that_the_look_finds_is_deleted() -> None:
    bench = running()
    suspend(bench)
    bench.restart()
    bench.fold(look(bench), Exists(ours("old", attempt_id=0)))
    assert suspended(bench) == GOING
    deletions = [action for action in bench.wait(5).actions if isinstance(action, Delete)]
    assert [action.uid for action in deletions] == ["old"]
    bench.fold(deletions[0], Accepted())
    bench.settle()
    (action,) = bench.wait(20).actions
    bench.fold(action, Gone())
    assert suspended(bench) == TRUE


@pytest.mark.parametrize("found", [False, True])
@pytest.mark.parametrize("execution", ["Start", "Create"])
def test_a_resume_before_the_look_has_answered(execution: str, found: bool) -> None:
    """The attempt starts, or adopts the found ConfigMap, unless executionType is Create."""
    bench = pending()
    action = look(bench)
    uid = unrecorded(bench, show=False)
    bench.edit(suspend=False, executionType=execution)
    bench.fold(action, Exists(ours(uid)) if found else Gone())
    assert suspended(bench) == RESUMED
    if execution == "Create":
        bench.settle()
        assert (bench.status.state, bench.status.attempt.configmap_uid) == (State.CREATION_PENDING, None)
    elif found:
        bench.show(CONFIGMAP)
        bench.all_pods()
        assert (bench.status.attempt.id, bench.status.attempt.configmap_uid, bench.code()) == (0, uid, None)
    else:
        bench.plan()
        bench.expect(Create)


def test_false_is_persisted_before_a_resumed_attempt_starts() -> None:
    bench = pending()
    bench.fold(look(bench), Gone())
    bench.edit(suspend=False)
    assert not bench.plan(write=False).actions
    assert suspended(bench) == RESUMED
    assert bench.tracker.urgency is Urgency.NOW
    bench.write()
    bench.expect(Create)


def test_a_stored_promise_stays_over_a_restart_and_is_checked() -> None:
    bench = pending()
    bench.fold(look(bench), Gone())
    writes = bench.writes
    bench.restart()
    action = look(bench)
    assert (suspended(bench), bench.writes) == (TRUE, writes)
    bench.fold(action, Gone())
    assert suspended(bench) == TRUE
    bench.restart()
    bench.fold(look(bench), Exists(ours()))
    assert suspended(bench) == GOING


def test_pods_in_the_cache_refute_the_promise() -> None:
    bench = running()
    body = bench.bodies[POD]
    suspend(bench)
    bench.bodies[POD] = body
    bench.show_then_plan(POD)
    assert suspended(bench) == GOING
    bench.hide_then_plan(POD)
    assert suspended(bench) == TRUE
    bench.show(POD)
    bench.pods[POD] = replace(bench.pods[POD], identity=replace(bench.pods[POD].identity, controller_uid=None))
    bench.plan()
    assert suspended(bench) == GOING, "it has lost its owner, and is still the Framework's"
    bench.settle()
    assert suspended(bench) == TRUE
    assert bench.pods == {}


def test_a_promise_is_not_repeated_while_the_cache_shows_a_pod() -> None:
    bench = running()
    body = bench.bodies[POD]
    suspend(bench)
    bench.restart()
    bench.bodies[POD] = body
    bench.show(POD)
    bench.edit(ttlSecondsAfterFinished=5)
    bench.plan(write=False)
    assert suspended(bench) == GOING


def test_a_deleted_framework_is_not_looked_after() -> None:
    bench = pending()
    bench.deleting = True
    for _ in range(3):
        bench.idle()
    assert suspended(bench) == GOING


# --- Frameworks that do not use it ----------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [{}, {"suspend": False}, {"suspend": None}])
def test_a_framework_that_is_never_suspended_has_no_such_condition_and_no_look(spec: Any) -> None:
    bench = Bench(role(failed=1), retryPolicy={"maxRetryCount": 1}, **spec)
    seen: list[Action] = []
    bench.all_pods()
    bench.run()
    bench.stop(code=1)
    for _ in range(30):
        made = bench.plan()
        seen += made.actions
        for action in made.actions:
            match action:
                case Create():
                    bench.created(action)
                case Delete():
                    bench.fold(action, Accepted())
                    bench.hide(action.target.name)
                case ConfirmNone() | ConfirmGone():
                    bench.fold(action, Gone())
    assert bench.status.attempt.id == 1
    assert not [action for action in seen if isinstance(action, LookUp)]
    assert b"uspend" not in encode_status("f", bench.status)


def test_the_wait_is_recorded_once_and_the_condition_shows_it() -> None:
    bench = running()
    bench.edit(suspend=True)
    wanted = (LifeReason.SUSPENDED, LifeReason.FRAMEWORK_RETRY_SCHEDULED)
    told = [record for made in plans(bench) for record in made.records if record.reason in wanted]
    assert [record.reason for record in told] == [LifeReason.FRAMEWORK_RETRY_SCHEDULED, LifeReason.SUSPENDED]
    assert told[0].message.startswith(
        "FrameworkAttempt 1 starts once the Framework is resumed, as it was only interrupted"
    )
    assert not any(record.warning for record in told)
    kinds = {item.type: item for item in bench.status.conditions}
    assert isinstance(kinds["Suspended"], Condition)
    assert kinds["Suspended"].observed_generation == bench.generation
