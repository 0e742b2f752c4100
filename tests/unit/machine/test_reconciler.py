"""The reconciler, asked and answered: its instructions, its requests, and what it learns from the answers."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import orjson
import pytest

from frameworkcontroller.api.objects import PodRecord
from frameworkcontroller.api.status import State, TaskAttemptStatus, TaskStatus
from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.machine.gates import STOPPED
from frameworkcontroller.machine.kernel.actions import Create
from frameworkcontroller.machine.kernel.batch import WIDTH
from frameworkcontroller.machine.kernel.model import Urgency
from frameworkcontroller.machine.kernel.pacing import FAST_SEC, LARGE_STATUS_BYTES, AnswerTimes, Pacing
from frameworkcontroller.machine.kernel.protocol import (
    Act,
    Done,
    Emit,
    LogSnapshots,
    Persisted,
    ReadLive,
    Relist,
    RequeueError,
    StatusWritten,
    Wait,
    Warn,
    WriteStatus,
    read_live,
)
from frameworkcontroller.machine.kernel.reasons import Reason, RequestReason
from frameworkcontroller.machine.kernel.requests import (
    Answer,
    Answered,
    Get,
    Kind,
    PatchStatus,
    Post,
    Refusal,
    Remove,
    Request,
    Unanswered,
)
from frameworkcontroller.machine.kernel.tracker import Tracker
from frameworkcontroller.machine.lifereasons import LifeReason
from frameworkcontroller.machine.passes import BATCH_SEC, PLANS_PER_PASS, SHOW_SEC
from frameworkcontroller.machine.reconciler import Reconciler
from frameworkcontroller.machine.statuswriter import TOO_LARGE_RETRY_SEC
from tests.support.bench import Body, role
from tests.support.oneframework import Driver, OneFramework, acts, refused, written

LOST: Final = Unanswered("the connection was cut")
RETRIED: Final[dict[str, Any]] = {"retryPolicy": {"maxRetryCount": 1}}
RUNNING: Final = "AttemptRunning"


def begun(number: int, **task: Any) -> tuple[OneFramework, Driver]:
    """A Framework of so many Tasks, the first Pod of which is about to be created."""
    world = OneFramework(role("a", number, **task))
    driver = Driver(world)
    driver.finish()
    driver.finish()
    driver.sent()
    driver.effects.clear()
    return world, driver


def running(number: int = 1, **task: Any) -> tuple[OneFramework, Driver]:
    """A Framework all Tasks of which run."""
    world = OneFramework(role("a", number, **task))
    driver = Driver(world)
    driver.run_all()
    world.clock += 60
    driver.sent()
    driver.effects.clear()
    return world, driver


def widened(number: int) -> tuple[OneFramework, Driver, list[Act]]:
    """The same as ``begun``, and the first Pod is created: actions that create the others, and wait for their turns."""
    world, driver = begun(number)
    driver.do(driver.call())
    return world, driver, list(acts(driver))


def ended(number: int, **task: Any) -> tuple[OneFramework, Driver, list[Act]]:
    """A Framework the first two Tasks of which have ended: actions that delete their Pods, and wait for their turns."""
    world, driver = running(number, **task)
    for name in ("f-a-0", "f-a-1"):
        runs(world, driver, name, "Succeeded")
    driver.finish()
    return world, driver, list(acts(driver))


def stopped_by_user(number: int) -> tuple[OneFramework, Driver]:
    """A Framework whose user stops it, which is stored: the deletion of its ConfigMap is due."""
    world, driver = running(number)
    world.edit(executionType="Stop")
    world.show()
    driver.finish()
    return world, driver


def overtake(world: OneFramework, driver: Driver) -> None:
    """The next call is a write, and another controller writes the status before."""
    write = driver.call()
    request = driver.begin(write)
    assert isinstance(request, PatchStatus)
    other = copy(world.status)
    other["observedGeneration"] = 0
    world.store(other)
    driver.serve(write, request)


def tasks(status: Any) -> list[Any]:
    """The Tasks of the first role of a status."""
    found: list[Any] = status["attemptStatus"]["taskRoleStatuses"][0]["taskStatuses"]
    return found


def states(status: Any) -> list[str]:
    return [task["state"] for task in tasks(status)]


def pod_uids(status: Any) -> list[str | None]:
    return [task["attemptStatus"]["podUID"] for task in tasks(status)]


def recorded(driver: Driver) -> list[bool]:
    """Of which Tasks the tracked status records a Pod."""
    return [task.attempt.pod_uid is not None for task in driver.reconciler.tracker.tasks()]


def copy(status: Any) -> Any:
    return orjson.loads(orjson.dumps(status))


def stalled(status: Any) -> Any:
    return next((one for one in status["conditions"] if one["type"] == "Stalled"), None)


def reasons(driver: Driver) -> list[Reason]:
    """Take the reasons of the records that were emitted."""
    return [record.reason for record in driver.records()]


def runs(world: OneFramework, driver: Driver, name: str, phase: str = "Running") -> None:
    """An event tells that the Pod is in that phase."""
    world.run(name, phase)
    driver.reconciler.on_pod_event(name)


def is_seen(world: OneFramework, driver: Driver) -> None:
    """An event shows the Framework as it is stored."""
    world.show()
    record = world.record
    assert record is not None
    driver.reconciler.on_framework_event(record)
    record.status_json = None


def goes(world: OneFramework, driver: Driver, name: str) -> PodRecord:
    """An event tells that the Pod is gone."""
    last = world.pods.pop(name)
    driver.reconciler.on_pod_dropped(last, removed=True)
    driver.reconciler.on_pod_event(name)
    return last


# --- a pass ----------------------------------------------------------------------------------------------------------


def test_a_new_framework_gets_to_its_pods() -> None:
    world = OneFramework(role("a", 3))
    driver = Driver(world)
    done = []
    while (last := driver.finish()).requeue_after is not None:
        done.append((driver.sent(), last.requeue_after))
        world.clock += last.requeue_after
    assert done == [
        (["PatchStatus f"], 0.0),
        (["Post f-attempt"], 0.0),
        (["Post f-a-0", "Post f-a-1", "Post f-a-2"], 0.0),
        ([], 1.0),
    ]
    assert driver.sent() == ["PatchStatus f"]
    assert world.status["attemptStatus"]["configMapUID"] == "uid-of-f-attempt"
    assert pod_uids(world.status) == [f"uid-of-f-a-{index}" for index in range(3)]


def test_pods_are_created_in_a_slow_start_batch() -> None:
    _, driver = begun(4)
    first = driver.call()
    request = driver.begin(first)
    assert isinstance(request, Post)
    assert request.name == "f-a-0"
    assert isinstance(driver.next(), Wait)
    driver.serve(first, request)
    assert [act.action.target.name for act in acts(driver)] == ["f-a-1", "f-a-2", "f-a-3"]


@pytest.mark.parametrize("answer", [LOST, refused(Refusal.SERVER_ERROR), refused(Refusal.NOT_FOUND)])
def test_nothing_is_done_for_a_status_that_is_not_stored(answer: Answer) -> None:
    driver = Driver(OneFramework())
    for _ in range(3):
        call = driver.call()
        assert isinstance(call, WriteStatus)
        driver.begin(call)
        driver.on_answer(call, answer)
        done = driver.next()
        assert isinstance(done, Done)
        assert done.error is not None
    assert driver.records() == []


def test_a_pod_is_deleted_only_once_the_end_of_its_task_is_stored() -> None:
    world, driver = running(**RETRIED)
    world.run("f-a-0", "Succeeded")
    driver.reconciler.on_pod_event("f-a-0")
    driver.until(Remove, "f-a-0")
    assert states(world.status) == ["AttemptDeletionPending"]
    assert driver.sent() == ["PatchStatus f", "Remove f-a-0"]


def test_plans_that_follow_from_each_other_are_made_in_one_pass() -> None:
    world, driver = running(2)
    goes(world, driver, "f-a-0")
    driver.finish()
    # The first plan completes the attempt, the second one the Task, and each completion is counted.
    assert states(world.status) == ["Completed", RUNNING]
    assert driver.sent() == ["PatchStatus f"]


class Busy(dict[str, PodRecord]):
    """Pods of which there is an event each time that one is looked at."""

    def __init__(self, driver: Driver) -> None:
        super().__init__(driver.world.pods)
        self.driver = driver
        self.looks = 0

    def get(self, name: str, *_: Any) -> PodRecord | None:  # type: ignore[override]
        """Look at a Pod."""
        self.looks += 1
        self.driver.reconciler.on_pod_event(name)
        return super().get(name)


def test_a_pass_makes_so_many_plans_and_no_more() -> None:
    world, driver = running()
    world.pods = busy = Busy(driver)
    driver.reconciler.on_pod_event("f-a-0")
    assert driver.finish() == Done(0.0)
    assert busy.looks == PLANS_PER_PASS


def test_a_write_takes_only_new_events_and_not_the_plans_that_are_left() -> None:
    world, driver = running(2)
    goes(world, driver, "f-a-0")
    world.pods = busy = Busy(driver)
    driver.reconciler.on_pod_event("f-a-1")
    write = driver.call()
    looks = busy.looks
    driver.begin(write)
    assert busy.looks == looks


@pytest.mark.parametrize("uid", [None, "uid-2"])
def test_one_that_is_gone_is_let_be(uid: str | None) -> None:
    world, driver = running()
    driver.reconciler.on_pod_event("f-a-0")
    if uid is None:
        world.record = None
    else:
        world.replace()
        world.show()
    assert driver.next() == Done()


# --- a call whose turn has come --------------------------------------------------------------------------------------


def test_a_write_takes_what_came_while_it_waited_for_its_turn() -> None:
    world, driver = running(2)
    goes(world, driver, "f-a-0")
    write = driver.call()
    assert isinstance(write, WriteStatus)
    goes(world, driver, "f-a-1")
    request = driver.begin(write)
    assert "Running" not in " ".join(states(written(request)))
    driver.serve(write, request)
    # What was asked for then is the next pass's.
    assert driver.next() == Done(0.0)


def test_a_write_takes_nothing_from_a_namesake() -> None:
    world, driver = running(2)
    goes(world, driver, "f-a-0")
    write = driver.call()
    goes(world, driver, "f-a-1")
    world.replace()
    world.edit(role("a", 1))
    world.show()
    assert [task["deletionPending"] for task in tasks(written(driver.begin(write)))] == [False, False]


def test_an_action_that_a_write_gives_cause_to_follows_it() -> None:
    world, driver = running(2)
    goes(world, driver, "f-a-0")
    write = driver.call()
    del world.objects["f-a-1"]
    driver.reconciler.on_pod_dropped(world.pods.pop("f-a-1"), removed=False)
    driver.reconciler.on_pod_event("f-a-1")
    driver.do(write)
    assert driver.next() == Done(0.0)
    request = driver.begin(driver.call())
    assert isinstance(request, Get)
    assert request.name == "f-a-1"


def test_a_write_that_others_wait_for_takes_nothing_more() -> None:
    world, driver = running(2)
    goes(world, driver, "f-a-0")
    write = driver.call()
    driver.begin(write)
    driver.on_answer(write, LOST)
    assert isinstance(driver.next(), Done)
    first = driver.call()
    assert isinstance(first, WriteStatus)
    goes(world, driver, "f-a-1")
    assert states(written(driver.begin(first))) == ["Completed", RUNNING]


def test_a_creation_that_is_not_awaited_any_more_is_dropped() -> None:
    world, driver, waiting = widened(3)
    first, second = waiting
    # The creation of an earlier process, which the API server has executed now.
    assert isinstance(first.action, Create)
    world.answer(Post(Kind.POD, "f-a-1", first.action.body))
    driver.reconciler.on_pod_event("f-a-1")
    world.clock += 1
    assert isinstance(driver.next(), Wait)
    assert driver.begin(first) is None
    assert isinstance(driver.do(second), Post)
    driver.settle()
    assert pod_uids(world.status) == [f"uid-of-f-a-{index}" for index in range(3)]


def newer(world: OneFramework, _: Driver) -> None:
    world.edit(executionType="Stop")
    world.show()


def deleted(world: OneFramework, _: Driver) -> None:
    world.delete()
    world.show()


def deleted_at_an_older_generation(world: OneFramework, _: Driver) -> None:
    world.delete()
    world.body["metadata"]["generation"] -= 1
    world.show()


def replaced(world: OneFramework, _: Driver) -> None:
    world.replace()
    world.show()


def gone(world: OneFramework, _: Driver) -> None:
    world.record = None


def stopped(_: OneFramework, driver: Driver) -> None:
    driver.reconciler.stop()


INTERRUPTIONS: Final = [newer, deleted, deleted_at_an_older_generation, replaced, gone, stopped]


@pytest.mark.parametrize("interrupt", INTERRUPTIONS)
def test_an_interrupted_pass_begins_nothing_more(interrupt: Callable[[OneFramework, Driver], None]) -> None:
    world, driver, waiting = widened(100)
    request = driver.begin(waiting[0])
    assert request is not None
    interrupt(world, driver)
    assert [driver.begin(act) for act in waiting[1:]] == [None] * (len(waiting) - 1)
    assert isinstance(driver.next(), Wait)
    driver.serve(waiting[0], request)
    assert not isinstance(driver.next(), Act)


def test_an_older_generation_does_not_interrupt() -> None:
    world, driver, waiting = widened(3)
    world.body["metadata"]["generation"] -= 1
    world.show()
    assert isinstance(driver.begin(waiting[0]), Post)


def test_after_a_refusal_nothing_more_is_begun() -> None:
    _, driver, (first, second, third) = widened(4)
    assert driver.begin(first) is not None
    assert driver.begin(second) is not None
    driver.on_answer(first, LOST)
    assert driver.begin(third) is None


@pytest.mark.parametrize("deleted", [False, True])
def test_a_deletion_counts_at_whatever_generation(*, deleted: bool) -> None:
    world = OneFramework()
    world.edit(description="changed")
    world.show()
    driver = Driver(world)
    call, _ = driver.until(Post, "f-attempt")
    driver.on_answer(call, refused(Refusal.SERVER_ERROR))
    driver.finish()
    driver.sent()
    # Restored from a backup.
    world.body["metadata"]["generation"] = 1
    if deleted:
        world.delete()
    world.show()
    world.clock += 60
    driver.settle()
    assert ("Post f-attempt" in driver.sent()) != deleted


@pytest.mark.parametrize("deleted", [False, True])
def test_a_deletion_that_a_live_read_shows_counts_while_the_cache_is_behind(*, deleted: bool) -> None:
    world = OneFramework(executionType="Create")
    driver = Driver(world)
    driver.settle()
    world.edit(executionType="Start")
    world.show()
    write, request = driver.until(PatchStatus)
    if deleted:
        world.delete()
        world.body["metadata"]["generation"] += 1
    driver.serve(write, request)
    driver.settle()
    assert ("Post f-attempt" in driver.sent()) != deleted


def test_a_completing_attempt_does_not_put_off_what_waits_for_its_turn() -> None:
    """Else every pass would, for as long as turns take more than a second to come."""
    world, driver = stopped_by_user(3)
    driver.finish()
    for name in ("f-a-0", "f-a-1"):
        driver.reconciler.on_pod_dropped(world.pods.pop(name), removed=False)
        driver.reconciler.on_pod_event(name)
    waiting = list(acts(driver))
    assert len(waiting) >= 2
    world.clock += 1.5
    driver.next()
    assert all(isinstance(driver.do(act), Get) for act in waiting)


# --- answers while others are awaited --------------------------------------------------------------------------------


def test_what_is_answered_while_a_status_is_written_is_folded_only_then() -> None:
    world, driver, (first, second) = widened(3)
    creation = driver.begin(first)
    driver.begin(second)
    world.clock += SHOW_SEC
    write = driver.call()
    assert isinstance(write, WriteStatus)
    patch = driver.begin(write)
    assert patch is not None
    driver.serve(first, creation)
    world.clock += 10
    assert isinstance(driver.next(), Wait)
    assert recorded(driver) == [True, False, False]
    driver.serve(write, patch)
    assert [record.index for record in driver.records() if record.reason is LifeReason.POD_CREATED] == [0]
    assert isinstance(driver.next(), Wait)
    # It is known now, and not stored: another write has to show it.
    assert recorded(driver) == [True, True, False]
    assert not driver.reconciler.tracker.is_clean


def test_a_long_batch_ends_after_a_while() -> None:
    world, driver, waiting = widened(100)
    request = driver.begin(waiting[0])
    world.clock += BATCH_SEC
    driver.next()
    driver.serve(waiting[0], request)
    world.clock += 1
    driver.next()
    assert [driver.begin(act) for act in waiting[1:]] == [None] * (len(waiting) - 1)


def urgent(tracker: Tracker) -> None:
    tracker.change(None, Urgency.NOW)


def completing(tracker: Tracker) -> None:
    assert tracker.status is not None
    tracker.decide_completion(tracker.status, STOPPED)


@pytest.mark.parametrize("happens", [urgent, completing])
def test_the_end_of_an_attempt_is_written_once_no_action_is_in_flight(happens: Callable[[Tracker], None]) -> None:
    world, driver, (first, *others) = widened(100)
    request = driver.begin(first)
    happens(driver.reconciler.tracker)
    world.clock += 1
    driver.next()
    assert [driver.begin(act) for act in others] == [None] * len(others)
    world.clock += SHOW_SEC
    assert isinstance(driver.next(), Wait)
    driver.serve(first, request)
    assert isinstance(driver.call(), WriteStatus)


@pytest.mark.parametrize(("number", "written"), [(WIDTH + 1, True), (WIDTH, False)])
def test_what_a_task_waits_for_is_written_during_a_long_batch(number: int, *, written: bool) -> None:
    world, driver, (first, second, *_) = widened(number)
    request = driver.begin(first)
    driver.begin(second)
    driver.reconciler.tracker.persist_first(("a", 0))
    world.clock += 1
    instruction = driver.next()
    assert isinstance(instruction, WriteStatus) == written
    if not isinstance(instruction, WriteStatus):
        return
    patch = driver.begin(instruction)
    assert patch is not None
    world.clock += 2
    driver.serve(instruction, patch)
    # The next one after a pause of the same length.
    driver.reconciler.tracker.persist_first(("a", 0))
    driver.serve(first, request)
    driver.next()
    world.clock += 1
    assert not isinstance(driver.next(), WriteStatus)
    world.clock += 1
    assert isinstance(driver.next(), WriteStatus)


def test_writes_while_actions_are_in_flight_are_some_seconds_apart() -> None:
    world, driver, (first, second, third) = widened(4)
    requests = [driver.begin(act) for act in (first, second, third)]
    driver.serve(first, requests[0])
    world.clock += SHOW_SEC
    driver.do(driver.call())
    driver.serve(second, requests[1])
    for _ in range(4):
        world.clock += 1
        assert isinstance(driver.next(), Wait)
    world.clock += 1
    assert isinstance(driver.call(), WriteStatus)


def test_a_batch_that_is_stopped_is_not_planned_again() -> None:
    world, driver, (first, _) = widened(3)
    driver.begin(first)
    driver.reconciler.stop()
    driver.reconciler.on_pod_event("f-a-0")
    world.clock += 1
    driver.next()
    assert list(driver.reconciler.tracker.agenda) == [("a", 0)]


def test_a_stop_before_the_first_plan_loses_nothing() -> None:
    world, driver = running(2)
    driver.reconciler.on_pod_dropped(world.pods.pop("f-a-0"), removed=False)
    driver.reconciler.on_pod_event("f-a-0")
    runs(world, driver, "f-a-1", "Failed")
    driver.reconciler.stop()
    driver.finish()
    # One is to be looked for by a live read, and the end of the other is stored.
    assert states(world.status) == [RUNNING, "AttemptDeletionPending"]
    assert ("a", 0) in driver.reconciler.tracker.agenda


def test_an_answer_that_is_no_object_is_no_acceptance() -> None:
    world, driver = running(2)
    goes(world, driver, "f-a-0")
    write = driver.call()
    driver.begin(write)
    assert driver.on_answer(write, Answered(b"<html>")) is None
    done = driver.next()
    assert isinstance(done, Done)
    assert done.error is not None
    assert driver.records() == []


def test_a_pass_is_over_only_when_nothing_is_in_flight() -> None:
    world, driver, (first, second) = widened(3)
    creation = driver.begin(first)
    driver.begin(second)
    world.clock += SHOW_SEC
    write = driver.call()
    driver.begin(write)
    driver.on_answer(write, LOST)
    assert isinstance(driver.next(), Wait)
    driver.serve(first, creation)
    assert isinstance(driver.next(), Wait)
    driver.on_answer(second, LOST)
    done = driver.next()
    assert isinstance(done, Done)
    assert done.error is not None
    # Nothing of what ended meanwhile is forgotten.
    assert isinstance(driver.call(), WriteStatus)
    assert recorded(driver) == [True, True, False]


@pytest.mark.parametrize("number", [1, 2])
def test_a_single_action_is_waited_for_without_looking(number: int) -> None:
    _, driver = begun(number)
    driver.begin(driver.call())
    assert driver.next() == Wait(None if number == 1 else 1.0)


def test_an_action_is_asked_for_once() -> None:
    _, driver, waiting = widened(100)
    queued = "f-a-99"
    assert waiting[0].action.target.name == "f-a-1"
    assert queued not in [act.action.target.name for act in waiting]
    for name in ("f-a-1", queued):
        driver.reconciler.on_pod_event(name)
    driver.world.clock += 1
    assert isinstance(driver.next(), Wait)
    driver.sent()
    for act in waiting:
        driver.do(act)
    driver.finish()
    assert [sent for sent in driver.sent() if sent.startswith("Post")] == [
        f"Post f-a-{index}" for index in range(1, 100)
    ]


def test_creations_in_flight_are_not_planned_again() -> None:
    _, driver, _ = widened(3)
    driver.reconciler.on_pod_event("f-a-1")
    driver.world.clock += 1
    assert isinstance(driver.next(), Wait)
    assert not driver.reconciler.tracker.is_busy


def test_a_deletion_by_force_that_is_due_while_another_one_is_in_flight_follows() -> None:
    world, driver, deletions = ended(3, podGracefulDeletionTimeoutSec=10)
    requests = [driver.begin(act) for act in deletions]
    assert [type(request) for request in requests] == [Remove, Remove]
    # The first one is accepted, and its answer is slow.
    world.objects["f-a-0"]["metadata"] |= {
        "deletionTimestamp": format_time(int(world.env.now) + 30),
        "deletionGracePeriodSeconds": 30,
    }
    runs(world, driver, "f-a-0")
    world.clock += SHOW_SEC
    assert isinstance(driver.next(), Wait)
    world.clock += 1
    driver.do(driver.call())
    world.clock += 10
    assert isinstance(driver.next(), Wait)
    for act in deletions:
        driver.on_answer(act, Answered(b'{"metadata": {}}'))
    assert driver.next() == Done(0.0)
    request = driver.begin(driver.call())
    assert isinstance(request, Remove)
    assert (request.name, request.force) == ("f-a-0", True)


def test_actions_of_a_status_that_was_given_up_are_not_begun() -> None:
    world, driver, (first, second) = ended(3)
    assert driver.begin(first) is not None
    runs(world, driver, "f-a-2", "Failed")
    world.clock += SHOW_SEC
    overtake(world, driver)
    assert driver.begin(second) is None


# --- preconditions of the write --------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", [True, False])
def test_nothing_is_started_after_a_write_that_failed(*, lost: bool) -> None:
    world, driver, (first, second, *others) = widened(60)
    requests = [driver.begin(act) for act in (first, second)]
    driver.serve(first, requests[0])
    world.clock += SHOW_SEC
    while isinstance(write := driver.call(), Act):
        others.append(write)
    request = driver.begin(write)
    if lost:
        driver.on_answer(write, LOST)
    else:
        world.store({**world.status, "conditions": []})
        driver.serve(write, request)
    driver.serve(second, requests[1])
    assert not isinstance(driver.next(), Act)
    assert [driver.begin(act) for act in others] == [None] * len(others)


def lose(driver: Driver, *, landed: bool) -> None:
    """The next write is not answered. ``landed``: it is stored all the same."""
    write = driver.call()
    request = driver.begin(write)
    assert isinstance(request, PatchStatus)
    if landed:
        driver.world.answer(request)
    driver.on_answer(write, LOST)
    done = driver.next()
    assert isinstance(done, Done)
    assert done.error is not None


def test_a_write_tests_the_generation_on_which_its_status_was_decided() -> None:
    world, driver = running()
    goes(world, driver, "f-a-0")
    lose(driver, landed=False)
    world.edit(role("a", 3))
    world.show()
    request = driver.begin(driver.call())
    assert isinstance(request, PatchStatus)
    assert (request.uid, request.generation) == ("uid-1", 1)


def test_a_change_of_the_spec_lets_no_write_be_refused() -> None:
    world, driver = running()
    world.edit(role("a", 3))
    is_seen(world, driver)
    driver.run_all()
    assert "Get f" not in driver.sent()
    assert {effect.result for effect in driver.take(StatusWritten)} == {"accepted"}


@pytest.mark.parametrize("change", ["status", "finalizers"])
def test_a_change_of_the_spec_beside_another_one_is_looked_at(change: str) -> None:
    world, driver = running()
    world.edit(role("a", 3))
    if change == "status":
        world.body["status"]["completionTime"] = "2026-01-01T00:00:00Z"
    else:
        world.body["metadata"]["finalizers"] = ["example.com/kept"]
    is_seen(world, driver)
    driver.run_all()
    assert "Get f" in driver.sent()
    assert next(effect.result for effect in driver.take(StatusWritten)) == "conflict"


def test_a_write_that_had_landed_is_accepted() -> None:
    world, driver = running(2)
    goes(world, driver, "f-a-0")
    lose(driver, landed=True)
    assert driver.records() == []
    tracker = driver.reconciler.tracker
    driver.settle()
    assert driver.sent() == ["PatchStatus f", "PatchStatus f", "Get f"]
    assert LifeReason.TASK_COMPLETED in [
        record.reason for effect in driver.effects if isinstance(effect, Emit) for record in effect.records
    ]
    assert [effect.result for effect in driver.take(StatusWritten)] == ["landed"]
    assert driver.reconciler.tracker is tracker
    assert tracker.is_clean
    assert driver.next() == Done()


def test_a_write_goes_on_from_an_earlier_one_that_had_landed() -> None:
    world, driver, (first, second) = widened(3)
    requests = [driver.begin(first), driver.begin(second)]
    world.clock += SHOW_SEC
    write = driver.call()
    patch = driver.begin(write)
    assert patch is not None
    world.answer(patch)
    driver.on_answer(write, LOST)
    # Another status is tracked by the time of the next one.
    driver.serve(first, requests[0])
    driver.serve(second, requests[1])
    assert isinstance(driver.next(), Done)
    driver.effects.clear()
    tracker = driver.reconciler.tracker
    driver.finish()
    driver.settle()
    results = [effect.result for effect in driver.effects if isinstance(effect, StatusWritten)]
    assert results[:2] == ["conflict", "accepted"]
    assert not any(isinstance(effect, Warn) for effect in driver.effects)
    assert driver.reconciler.tracker is tracker
    assert all(pod_uids(world.status))


def test_metadata_of_others_does_not_matter() -> None:
    world, driver = running(2)
    goes(world, driver, "f-a-0")
    write = driver.call()
    request = driver.begin(write)
    tracker = driver.reconciler.tracker
    world.annotate()
    driver.serve(write, request)
    assert driver.next() == Done(0.0)
    driver.settle()
    assert driver.take(Warn) == []
    assert driver.reconciler.tracker is tracker
    assert states(world.status) == ["Completed", RUNNING]
    assert driver.sent() == ["PatchStatus f", "Get f", "PatchStatus f"]


def fail_preconditions(world: OneFramework, driver: Driver, times: int) -> list[Done]:
    """So many writes in a row come after a change by others."""
    ends = []
    for _ in range(times):
        write = driver.call()
        request = driver.begin(write)
        assert isinstance(request, PatchStatus)
        world.annotate()
        driver.serve(write, request)
        done = driver.next()
        assert isinstance(done, Done)
        ends.append(done)
    return ends


def test_the_fourth_failed_precondition_in_a_row_makes_the_next_write_wait() -> None:
    world, driver = running(2)
    goes(world, driver, "f-a-0")
    *before, last = fail_preconditions(world, driver, 4)
    assert before == [Done(0.0)] * 3
    assert last.error is not None


def test_an_accepted_write_ends_the_row_of_failed_preconditions() -> None:
    world, driver = running(2)
    for name in ("f-a-0", "f-a-1"):
        goes(world, driver, name)
        assert fail_preconditions(world, driver, 3) == [Done(0.0)] * 3
        driver.settle()


# --- another writer --------------------------------------------------------------------------------------------------


def take_over() -> tuple[OneFramework, Driver, Tracker]:
    """Two Pods are created, and before that is stored another controller writes."""
    world, driver = begun(2)
    world.shows = False
    before = copy(world.status)
    write, request = driver.until(PatchStatus)
    assert all(pod_uids(written(request)))
    tasks(before)[1]["retryPolicyStatus"]["totalRetriedCount"] = 7
    tasks(before)[1]["attemptStatus"]["id"] = 7
    tasks(before)[1]["attemptStatus"]["instanceUID"] = f"7_{tasks(before)[1]['instanceUID']}"
    before["attemptStatus"]["configMapUID"] = None
    world.store(before)
    world.edit(executionType="Start")
    tracker = driver.reconciler.tracker
    driver.serve(write, request)
    assert driver.next() == Done(0.0)
    return world, driver, tracker


def test_what_was_learnt_is_put_into_the_status_of_another_writer_and_stored_first() -> None:
    _, driver, tracker = take_over()
    assert driver.reconciler.tracker is not tracker
    assert len(driver.take(Warn)) == 1
    write = driver.call()
    assert isinstance(write, WriteStatus)
    request = driver.begin(write)
    assert isinstance(request, PatchStatus)
    # Nothing was decided by a spec: it goes with any.
    assert request.generation == 2
    assert pod_uids(written(request)) == ["uid-of-f-a-0", None]
    assert [task["retryPolicyStatus"]["totalRetriedCount"] for task in tasks(written(request))] == [0, 7]
    assert driver.records() == []
    driver.serve(write, request)
    # Those of the status that was given up are dropped.
    assert reasons(driver) == [LifeReason.FRAMEWORK_ATTEMPT_STARTED, LifeReason.POD_CREATED]


def test_what_is_stored_is_not_learnt_again() -> None:
    world, driver = running(2)
    before = copy(world.status)
    for task in tasks(before):
        task["state"] = "AttemptCreationPending"
        task["attemptStatus"] |= dict.fromkeys(("podUID", "podNodeName", "podIP", "podHostIP", "runTime"))
    goes(world, driver, "f-a-0")
    write = driver.call()
    request = driver.begin(write)
    world.store(before)
    driver.serve(write, request)
    assert [task.attempt.pod_uid for task in driver.reconciler.tracker.tasks()] == [None, None]


def test_after_a_take_over_all_is_decided_anew() -> None:
    world, driver = running(2)
    goes(world, driver, "f-a-0")
    overtake(world, driver)
    assert driver.next() == Done(0.0)
    # Nothing was learnt that is to be stored first.
    assert isinstance(driver.call(), Act)


def test_the_order_in_which_tasks_completed_outlives_a_take_over() -> None:
    world, driver = running(2)
    goes(world, driver, "f-a-1")
    goes(world, driver, "f-a-0")
    overtake(world, driver)
    world.objects.clear()
    driver.settle()
    trigger = world.status["attemptStatus"]["completionStatus"]["trigger"]
    assert trigger["taskIndex"] == 0


def test_a_resync_believes_the_cache_even_at_an_older_generation() -> None:
    """After a restore, the generation begins anew, and no precondition fails while nothing is written."""
    world = OneFramework(role("a", 1))
    for _ in range(3):
        world.annotate()
        world.edit(role("a", 1), description=str(world.body["metadata"]["generation"]))
    driver = Driver(world)
    driver.settle()
    world.body["metadata"]["generation"] = 1
    world.edit(role("a", 2))
    world.show()
    driver.settle()
    assert len(world.status["attemptStatus"]["taskRoleStatuses"][0]["taskStatuses"]) == 1
    driver.reconciler.resync()
    driver.settle()
    assert len(world.status["attemptStatus"]["taskRoleStatuses"][0]["taskStatuses"]) == 2


def test_a_resync_between_the_turn_and_the_write_changes_nothing() -> None:
    world, driver = running(2)
    world.edit(role("a", 3))
    world.show()
    write = driver.call()
    assert isinstance(write, WriteStatus)
    driver.reconciler.resync()
    driver.serve(write, driver.begin(write))
    driver.settle()
    assert len(world.status["attemptStatus"]["taskRoleStatuses"][0]["taskStatuses"]) == 3


def test_a_generation_that_went_back_is_believed() -> None:
    world, driver = running(2)
    world.edit(role("a", 3))
    world.show()
    write, request = driver.until(PatchStatus)
    assert isinstance(request, PatchStatus)
    assert request.generation == 2
    # Restored from a backup.
    world.body["metadata"]["generation"] = 1
    world.annotate()
    world.show()
    driver.serve(write, request)
    goes(world, driver, "f-a-0")
    driver.effects.clear()
    _, request = driver.until(PatchStatus)
    assert isinstance(request, PatchStatus)
    assert request.generation == 1


def test_snapshots_of_a_status_that_was_given_up_are_dropped() -> None:
    world, first = running(2, **RETRIED)
    goes(world, first, "f-a-0")
    while states(world.status)[0] != "AttemptCompleted":
        first.do(first.call())
    # Another process, whose cache lacks the other Pod: it has to ask before anything is stored.
    world.show()
    driver = Driver(world)
    hidden = world.pods.pop("f-a-1")
    call, request = driver.until(Get, "f")
    assert isinstance(call, ReadLive)
    other = copy(world.status)
    other["observedGeneration"] = 0
    world.store(other)
    driver.serve(call, request)
    world.pods["f-a-1"] = hidden
    driver.settle()
    assert sum(len(effect.snapshots) for effect in driver.take(LogSnapshots)) == 1


def test_snapshots_are_logged_before_the_write_that_loses_what_they_show() -> None:
    world, driver = running(2, **RETRIED)
    goes(world, driver, "f-a-0")
    driver.serve(*driver.until(PatchStatus))
    assert states(world.status) == ["AttemptCompleted", RUNNING]
    assert driver.take(LogSnapshots) == []
    _, request = driver.until(PatchStatus)
    assert states(written(request)) == ["AttemptCreationPending", RUNNING]
    (logged,) = driver.take(LogSnapshots)
    assert [(snapshot.role, snapshot.index) for snapshot in logged.snapshots] == [("a", 0)]
    assert logged.resource_version == world.body["metadata"]["resourceVersion"]


# --- a refused status ------------------------------------------------------------------------------------------------

FULL: Final = refused(Refusal.TOO_LARGE, "etcdserver: request is too large")


def too_large(world: OneFramework, driver: Driver) -> tuple[WriteStatus, Request | None]:
    """The next write is refused as too large: the request that follows."""
    write = driver.call()
    assert isinstance(write, WriteStatus)
    assert isinstance(driver.begin(write), PatchStatus)
    live = driver.on_answer(write, FULL)
    assert isinstance(live, Get)
    return write, driver.on_answer(write, world.answer(live))


def test_the_stored_status_says_that_the_next_one_is_too_large() -> None:
    world, driver = running(2)
    before = copy(world.status)
    goes(world, driver, "f-a-0")
    driver.serve(*too_large(world, driver))
    assert states(world.status) == states(before)
    assert stalled(world.status)["reason"] == LifeReason.STATUS_TOO_LARGE
    assert FULL.message in stalled(world.status)["message"]
    assert "largeFrameworkCompression: true" in stalled(world.status)["message"]
    assert reasons(driver) == [LifeReason.STATUS_TOO_LARGE]
    assert driver.next() == Done(0.0)
    # It is tried again, unchanged, after a while.
    assert driver.next() == Done(TOO_LARGE_RETRY_SEC)
    world.clock += TOO_LARGE_RETRY_SEC
    driver.settle()
    assert states(world.status) == ["Completed", RUNNING]
    assert LifeReason.TASK_COMPLETED in reasons(driver)


def test_a_compressed_status_asks_for_fewer_tasks() -> None:
    world = OneFramework()
    assert world.record is not None
    driver = Driver(world, Reconciler(world.record, compress=True))
    driver.serve(*too_large(world, driver))
    assert "compressed already" in stalled(world.status)["message"]
    # One without a status gets one without Tasks, which fits.
    assert world.status["attemptStatus"]["taskRoleStatuses"] == []


def test_another_spec_ends_the_wait_of_a_status_that_was_too_large() -> None:
    world, driver = running(3)
    goes(world, driver, "f-a-0")
    driver.serve(*too_large(world, driver))
    driver.finish()
    world.edit(role("a", 1))
    world.show()
    assert driver.finish() == Done(0.0)
    driver.finish()
    assert world.status["observedGeneration"] == 2
    assert [task["deletionPending"] for task in tasks(world.status)] == [False, True, True]


def test_events_do_not_end_the_wait_of_a_status_that_was_too_large() -> None:
    world, driver = running(2)
    goes(world, driver, "f-a-0")
    driver.serve(*too_large(world, driver))
    driver.finish()
    goes(world, driver, "f-a-1")
    assert driver.finish() == Done(TOO_LARGE_RETRY_SEC)


def test_only_the_status_that_was_too_large_waits() -> None:
    world, driver = running(3)
    goes(world, driver, "f-a-0")
    driver.serve(*too_large(world, driver))
    driver.finish()
    world.edit(description="Another one.")
    world.show()
    overtake(world, driver)
    write, _ = driver.until(PatchStatus)
    driver.on_answer(write, LOST)
    assert isinstance(driver.next(), Done)
    assert isinstance(driver.call(), WriteStatus)


def test_a_status_that_is_too_large_and_in_conflict_is_in_conflict() -> None:
    world, driver = running(2)
    goes(world, driver, "f-a-0")
    world.annotate()
    write, following = too_large(world, driver)
    assert isinstance(write, WriteStatus)
    assert following is None
    assert stalled(world.status) is None
    assert driver.next() == Done(0.0)
    assert [effect.result for effect in driver.take(StatusWritten)] == ["conflict"]
    driver.settle()
    assert states(world.status) == ["Completed", RUNNING]


def test_a_condition_that_is_in_conflict_is_tried_again_with_the_status() -> None:
    world, driver = running(2)
    goes(world, driver, "f-a-0")
    write, said = too_large(world, driver)
    assert said is not None
    world.annotate()
    driver.serve(write, said)
    assert driver.next() == Done(0.0)
    assert driver.records() == []
    assert isinstance(driver.call(), WriteStatus)


def test_a_status_that_takes_no_condition_is_not_sent_again_and_again() -> None:
    world, driver = running(2)
    goes(world, driver, "f-a-0")
    ends = []
    for _ in range(4):
        write, _ = too_large(world, driver)
        assert driver.on_answer(write, refused(Refusal.INVALID)) is None
        ends.append(driver.next())
    assert ends[:3] == [Done(0.0)] * 3
    assert isinstance(ends[3], Done)
    assert ends[3].error is not None


def test_a_condition_that_does_not_fit_is_told_once() -> None:
    world, driver = running(2)
    goes(world, driver, "f-a-0")
    told = []
    for message in ("the limit is 1", "the limit is 1", "the limit is 2"):
        write, said = too_large(world, driver)
        assert stalled(written(said)) is not None
        assert driver.on_answer(write, refused(Refusal.TOO_LARGE, message)) is None
        assert driver.next() == Done(0.0)
        assert driver.next() == Done(TOO_LARGE_RETRY_SEC)
        world.clock += TOO_LARGE_RETRY_SEC
        told.append(reasons(driver))
    assert told == [[LifeReason.STATUS_TOO_LARGE], [], [LifeReason.STATUS_TOO_LARGE]]


def test_a_condition_that_does_not_fit_is_told_again_after_a_status_that_did() -> None:
    world, driver = running(3)
    for name in ("f-a-0", "f-a-1"):
        goes(world, driver, name)
        write, _ = too_large(world, driver)
        driver.on_answer(write, FULL)
        driver.finish()
        assert reasons(driver) == [LifeReason.STATUS_TOO_LARGE]
        world.clock += TOO_LARGE_RETRY_SEC
        driver.settle()
        driver.effects.clear()


@pytest.mark.parametrize("valid", [False, True])
def test_the_refused_status_of_an_invalid_spec_is_told_all_the_same(*, valid: bool) -> None:
    world = OneFramework(role("a", 1 if valid else -1))
    driver = Driver(world)
    write = driver.call()
    driver.begin(write)
    live = driver.on_answer(write, refused(Refusal.INVALID, "the spec is invalid"))
    assert live is not None
    assert driver.on_answer(write, world.answer(live)) is None
    assert reasons(driver) == ([] if valid else [LifeReason.INVALID_SPEC])
    done = driver.next()
    assert isinstance(done, Done)
    assert done.error is not None
    assert "the spec is invalid" in str(done.error)


def test_events_of_a_framework_with_an_invalid_spec_wait_for_another_one() -> None:
    driver = Driver(OneFramework(role("a", -1)))
    driver.settle()
    driver.reconciler.on_pod_event("f-a-0")
    assert driver.finish() == Done()


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        (refused(Refusal.NOT_FOUND, retry_after_sec=7.0), "not_found"),
        (refused(Refusal.OBJECT_NOT_FOUND, retry_after_sec=7.0), "not_found"),
        (refused(Refusal.TOO_MANY_REQUESTS, retry_after_sec=7.0), "error"),
        (refused(Refusal.SERVER_ERROR, retry_after_sec=7.0), "error"),
        (refused(Refusal.OTHER, retry_after_sec=7.0), "error"),
    ],
)
def test_a_refused_write_is_repeated_no_sooner_than_the_api_server_wants(answer: Answer, result: str) -> None:
    world, driver = running(2)
    goes(world, driver, "f-a-0")
    write = driver.call()
    driver.begin(write)
    assert driver.on_answer(write, answer) is None
    assert [effect.result for effect in driver.take(StatusWritten)] == [result]
    done = driver.next()
    assert isinstance(done, Done)
    assert isinstance(done.error, RequeueError)
    assert done.error.retry_after_sec == 7.0
    assert isinstance(driver.call(), WriteStatus)


# --- live reads ------------------------------------------------------------------------------------------------------


def taken_up() -> tuple[OneFramework, Driver]:
    """Another process begins with the stored status of a Framework one Pod of which is still to be created."""
    world, driver = running(2, **RETRIED)
    goes(world, driver, "f-a-0")
    driver.until(Post, "f-a-0")
    assert states(world.status) == ["AttemptCreationPending", RUNNING]
    world.show()
    return world, Driver(world)


def test_the_status_is_read_live_before_the_first_action() -> None:
    world, driver = taken_up()
    call = driver.call()
    assert isinstance(call, ReadLive)
    assert isinstance(driver.do(call), Get)
    assert isinstance(driver.do(driver.call()), Post)
    driver.settle()
    driver.sent()
    # From now on it is known to be the stored one.
    goes(world, driver, "f-a-1")
    driver.until(Post, "f-a-1")
    assert "Get f" not in driver.sent()


def test_a_slow_live_read_puts_no_action_off() -> None:
    world, driver = taken_up()
    read = driver.call()
    assert isinstance(read, ReadLive)
    world.clock += 3
    driver.do(read)
    act = driver.call()
    driver.next()
    assert isinstance(driver.do(act), Post)


def test_the_status_is_read_live_once() -> None:
    _, driver = taken_up()
    driver.do(driver.call())
    post = driver.call()
    driver.begin(post)
    driver.on_answer(post, LOST)
    driver.next()
    driver.world.clock += 20
    assert isinstance(driver.begin(driver.call()), Post)


@pytest.mark.parametrize("answer", [LOST, refused(Refusal.OBJECT_NOT_FOUND), refused(Refusal.TOO_MANY_REQUESTS)])
def test_actions_are_left_for_later_while_the_status_cannot_be_read(answer: Answer) -> None:
    _, driver = taken_up()
    for _ in range(2):
        call = driver.call()
        assert isinstance(call, ReadLive)
        driver.begin(call)
        driver.on_answer(call, answer)
        done = driver.next()
        assert isinstance(done, Done)
        assert done.error is not None
    assert isinstance(driver.do(driver.call()), Get)
    assert isinstance(driver.do(driver.call()), Post)


def test_no_action_rests_on_a_status_of_the_past() -> None:
    world, driver = taken_up()
    # The list of the cache was an old one.
    now = copy(world.status)
    now["observedGeneration"] = 0
    world.store(now)
    driver.do(driver.call())
    assert driver.next() == Done(0.0)
    assert driver.reconciler.known.stored.resource_version == world.body["metadata"]["resourceVersion"]


def test_the_same_status_in_another_order_is_the_stored_one() -> None:
    world, driver = taken_up()
    world.store(dict(reversed(world.status.items())))
    assert isinstance(driver.do(driver.call()), Get)
    assert isinstance(driver.do(driver.call()), Post)


@pytest.mark.parametrize("other", [False, True], ids=["same", "other"])
def test_the_first_write_of_a_process_fails_by_a_change_of_metadata_or_of_the_status(other: bool) -> None:
    world, _ = running(2, **RETRIED)
    world.show()
    driver = Driver(world)
    goes(world, driver, "f-a-0")
    status = copy(world.status)
    if other:
        status["observedGeneration"] = 0
    world.store(status)
    driver.do(driver.call())
    assert [type(effect) for effect in driver.effects if isinstance(effect, Warn)] == [Warn] * other
    assert driver.reconciler.known.stored.resource_version == world.body["metadata"]["resourceVersion"]


def test_a_namesake_that_is_read_live_is_no_status() -> None:
    world, driver = taken_up()
    world.replace()
    driver.do(driver.call())
    done = driver.next()
    assert isinstance(done, Done)
    assert done.error is not None
    assert "another one" in str(done.error)


def test_the_status_is_read_live_before_an_object_is_deleted_that_it_does_not_record() -> None:
    world, driver = running()
    orphan = copy(world.objects["f-a-0"])
    orphan["metadata"] |= {"name": "f-a-5", "uid": "orphan"}
    world.objects["f-a-5"] = orphan
    runs(world, driver, "f-a-5")
    call = driver.call()
    assert isinstance(call, ReadLive)
    driver.do(call)
    request = driver.do(driver.call())
    assert isinstance(request, Remove)
    assert (request.name, request.uid) == ("f-a-5", "orphan")


def test_a_cache_that_lacks_an_object_is_compared_with_a_list_once() -> None:
    world, _ = running()
    world.show()
    world.pods.clear()
    driver = Driver(world)
    for relists in ([Relist(Kind.POD)], []):
        driver.serve(*driver.until(Get, "f-a-0"))
        driver.finish()
        assert driver.take(Relist) == relists


# --- when a status is written ----------------------------------------------------------------------------------------


@dataclass
class Due:
    """When a change is written, after ``clock`` seconds."""

    urgency: Urgency
    when: float
    at_rest: bool = False
    rested: bool = False
    unwritten_since: float | None = None
    write_sec: float = 0.0
    next_write: float = 0.0
    clock: float = 100.0
    answer_sec: float = 0.0
    tasks: int = 1


@pytest.mark.parametrize(
    "due",
    [
        Due(Urgency.NOW, 0.0),
        Due(Urgency.NOW, 0.0, unwritten_since=99, next_write=105, write_sec=5),
        # After a quiet at once, and then gathered for as long as a write takes.
        Due(Urgency.SOON, 100.0),
        Due(Urgency.SOON, 100.0, next_write=99, write_sec=5.0),
        Due(Urgency.SOON, 100.3, next_write=99.1, write_sec=0.3),
        Due(Urgency.SOON, 102.0, next_write=99.1, write_sec=5.0),
        Due(Urgency.SOON, 99.8, next_write=99.1, write_sec=0.3, unwritten_since=99.5),
        Due(Urgency.SOON, 101.5, next_write=101.5, write_sec=1.0, unwritten_since=100.0),
        # The last of what was on its way.
        Due(Urgency.SOON, 0.0, at_rest=True, next_write=99.1, write_sec=5.0),
        Due(Urgency.SOON, 0.0, at_rest=True, next_write=105, write_sec=5.0),
        Due(Urgency.SOON, 102.0, at_rest=True, rested=True, next_write=99.1, write_sec=5.0),
        # With the next step.
        Due(Urgency.LATER, 101.0),
        Due(Urgency.LATER, 101.0, at_rest=True),
        Due(Urgency.LATER, 103.0, write_sec=0.3),
        Due(Urgency.LATER, 110.0, write_sec=3.0),
        Due(Urgency.LATER, 99.0, unwritten_since=98.0),
        Due(Urgency.LATER, 104.0, next_write=104.0, unwritten_since=98.0),
        # What clients want to see, as what one Task waits for.
        Due(Urgency.SHOWN, 100.0),
        Due(Urgency.SHOWN, 100.3, next_write=99.1, write_sec=0.3),
        Due(Urgency.SHOWN, 0.0, at_rest=True, next_write=99.1, write_sec=5.0),
        # At a slow API server for longer, the fewer Tasks the write is for, but not for ever.
        Due(Urgency.SHOWN, 100.0, answer_sec=FAST_SEC),
        Due(Urgency.SHOWN, 102.0, answer_sec=0.15),
        Due(Urgency.SHOWN, 102.0, answer_sec=0.15, at_rest=True),
        Due(Urgency.SHOWN, 101.0, answer_sec=0.15, tasks=2),
        Due(Urgency.SHOWN, 100.02, answer_sec=1.05, tasks=1000),
        Due(Urgency.SHOWN, 110.0, answer_sec=30.0),
        Due(Urgency.SHOWN, 112.0, answer_sec=30.0, next_write=112.0),
        # It counts from the first change of its urgency.
        Due(Urgency.SHOWN, 102.0, answer_sec=0.15, unwritten_since=91.0),
        Due(Urgency.SOON, 100.8, answer_sec=0.15),
        Due(Urgency.SOON, 100.4, answer_sec=0.15, tasks=2),
        Due(Urgency.SOON, 104.0, answer_sec=30.0),
        Due(Urgency.LATER, 101.0, answer_sec=0.06),
        Due(Urgency.LATER, 104.0, answer_sec=0.25),
        Due(Urgency.LATER, 110.0, answer_sec=30.0),
        Due(Urgency.NOW, 0.0, answer_sec=30.0),
    ],
)
def test_a_status_is_written_as_urgently_as_it_is(due: Due) -> None:
    tracker = Tracker()
    tracker.urgency = due.urgency
    tracker.task_states[State.RUNNING if due.at_rest else State.PREPARING] = due.tasks
    pacing = Pacing(due.rested, due.unwritten_since, due.write_sec, due.next_write)
    assert pacing.due(tracker, due.clock, due.answer_sec) == pytest.approx(due.when)


def test_a_large_status_waits_for_the_pods_that_were_created_last() -> None:
    tracker = Tracker(urgency=Urgency.SHOWN)
    tracker.task_states |= {State.PREPARING: 600, State.RUNNING: 400}
    pacing = Pacing(write_sec=0.2, next_write=92.0, created_at=100.0)
    assert pacing.due(tracker, 95.0) == 104.0
    # Not for a third batch: the first change is as old as that.
    pacing.created_at = 103.0
    assert pacing.due(tracker, 103.0) == 105.0
    tracker.urgency = Urgency.SOON
    assert pacing.due(tracker, 103.0) == 95.0
    tracker.urgency = Urgency.SHOWN
    tracker.task_states |= {State.PREPARING: 0, State.RUNNING: 1000}
    assert pacing.due(tracker, 103.0) == 0.0
    # A small one shows each state.
    tracker.task_states |= {State.PREPARING: 1, State.RUNNING: 1}
    pacing.write_sec = FAST_SEC
    assert pacing.due(tracker, 103.0) == 95.0


def test_a_large_status_waits_while_tasks_change() -> None:
    tracker = Tracker(urgency=Urgency.SOON)
    tracker.task_states[State.PREPARING] = 5
    ended = [TaskStatus(index, "", 0, 0, TaskAttemptStatus(0, 0)) for index in range(5)]

    def end(number: int, clock: float) -> float:
        for task in ended[:number]:
            tracker.change(task, Urgency.SOON)
        return pacing.due(tracker, clock)

    pacing = Pacing()
    pacing.wrote(99.0, 99.2, LARGE_STATUS_BYTES)
    assert end(1, 100.0) == pytest.approx(100.2)
    assert end(1, 100.1) == pytest.approx(100.2)
    assert end(2, 100.1) == pytest.approx(100.3)
    assert end(3, 101.1) == pytest.approx(101.3)
    # Others may change for ever.
    assert end(4, 101.9) == pytest.approx(102.0)
    # No other can.
    assert end(5, 101.9) == pytest.approx(100.2)
    pacing.unwritten_since = None
    tracker.persisted()
    assert end(1, 103.0) == 103.0
    # Nor does a small one wait.
    pacing.unwritten_since = None
    pacing.wrote(102.9, 103.1, LARGE_STATUS_BYTES - 1)
    tracker.persisted()
    assert end(1, 103.2) == pytest.approx(103.4)
    assert end(3, 103.3) == pytest.approx(103.4)


def test_the_last_end_waits_for_no_other() -> None:
    tracker = Tracker(urgency=Urgency.SOON)
    tracker.task_states |= {State.DELETION_PENDING: 1, State.RUNNING: 1}
    assert Pacing().due(tracker, 100.0, 30.0) == 104.0
    tracker.task_states |= {State.DELETION_PENDING: 2, State.RUNNING: 0}
    assert Pacing().due(tracker, 100.0, 30.0) == 100.0


def test_a_change_that_is_more_urgent_waits_from_its_own_time() -> None:
    tracker = Tracker(urgency=Urgency.LATER)
    tracker.task_states[State.PREPARING] = 1
    pacing = Pacing()
    assert pacing.due(tracker, 100.0, 30.0) == 110.0
    tracker.urgency = Urgency.SHOWN
    assert pacing.due(tracker, 103.0, 30.0) == 113.0
    assert pacing.due(tracker, 107.0, 30.0) == 113.0
    tracker.urgency = Urgency.SOON
    assert pacing.due(tracker, 107.5, 30.0) == 111.5
    # After a write, all begins anew.
    pacing.unwritten_since = None
    assert pacing.due(tracker, 120.0, 30.0) == 124.0


def test_the_api_server_is_slow_if_it_answers_many_writes_slowly() -> None:
    times = AnswerTimes()
    for number in range(200):
        times.note(100 + number / 40, 100.5 + number / 40, 3000)
    assert times.smoothed(105.5) == pytest.approx(0.5, rel=0.2)
    # A single answer that is fast is no proof, many are.
    times.note(105.5, 105.51, 3000)
    assert times.smoothed(105.51) > 0.35
    for number in range(100):
        times.note(106 + number / 40, 106.01 + number / 40, 3000)
    assert times.smoothed(109) < FAST_SEC


def test_few_slow_writes_long_ones_and_those_of_long_ago_say_little() -> None:
    times = AnswerTimes()
    for second in range(100, 110, 2):
        times.note(second, second + 0.5, 3000)
    assert 0 < times.smoothed(110) < FAST_SEC
    for number in range(200):
        times.note(110 + number / 40, 111 + number / 40, LARGE_STATUS_BYTES)
    assert times.smoothed(116) < FAST_SEC
    for number in range(200):
        times.note(120 + number / 40, 121 + number / 40, LARGE_STATUS_BYTES - 1)
    assert times.smoothed(126) > 0.5
    assert times.smoothed(160) < FAST_SEC


@pytest.mark.parametrize(("seconds", "next_write"), [(0.5, 101.0), (2.0, 104.0), (30.0, 132.0)])
def test_after_a_write_the_api_server_has_a_breath(seconds: float, next_write: float) -> None:
    pacing = Pacing()
    pacing.wrote(100.0, 100.0 + seconds, 3000)
    assert (pacing.write_sec, pacing.next_write) == (seconds, next_write)


def test_only_the_first_status_at_rest_is_written_at_once() -> None:
    world, driver = running(3)
    goes(world, driver, "f-a-0")
    write = driver.call()
    request = driver.begin(write)
    world.clock += 5
    driver.serve(write, request)
    driver.settle()
    world.clock += 2.5
    goes(world, driver, "f-a-1")
    done = driver.next()
    assert isinstance(done, Done)
    assert done.requeue_after is not None
    world.clock += done.requeue_after
    assert isinstance(driver.call(), WriteStatus)


def test_a_stopping_controller_writes_at_once() -> None:
    world, driver = begun(1)
    world.shows = False
    driver.do(driver.call())
    assert driver.next() == Done(0.0)
    assert driver.next() == Done(1.0)
    driver.reconciler.stop()
    write = driver.call()
    assert isinstance(write, WriteStatus)
    assert pod_uids(written(driver.do(write))) == ["uid-of-f-a-0"]


# --- the end of a pass -----------------------------------------------------------------------------------------------


def test_a_framework_at_rest_is_not_due_again() -> None:
    _, driver = running(2)
    assert driver.finish() == Done()


def test_a_framework_is_due_when_the_first_of_its_waits_ends() -> None:
    world, driver = begun(1)
    world.shows = False
    driver.do(driver.call())
    assert driver.next() == Done(0.0)
    # The Pod is to appear within 300 s, and its status is to be written within one.
    assert driver.next() == Done(1.0)
    world.clock += 1.0
    done = driver.finish()
    assert done.requeue_after == pytest.approx(299.0)
    world.clock += 60
    assert driver.finish().requeue_after == pytest.approx(239.0)


def test_a_completed_framework_is_due_at_the_end_of_its_retention() -> None:
    world, driver = running()
    world.run("f-a-0", "Succeeded")
    driver.reconciler.on_pod_event("f-a-0")
    driver.serve(*driver.until(Remove, "f-a-0"))
    goes(world, driver, "f-a-0")
    driver.serve(*driver.until(Remove, "f-attempt"))
    world.configmap = None
    driver.reconciler.on_configmap_dropped("uid-of-f-attempt")
    assert driver.settle() == Done(world.limits.framework_completed_retain_sec)
    assert world.status["state"] == "Completed"
    world.clock += world.limits.framework_completed_retain_sec
    driver.effects.clear()
    deletion = driver.call()
    driver.reconciler.stop()
    # It was not attempted, which is no failure.
    assert driver.do(deletion) is None
    assert driver.next() == Done(0.0)
    assert driver.records() == []


def test_what_is_persisted_is_counted_once() -> None:
    world, driver = running(2)
    goes(world, driver, "f-a-0")
    driver.settle()
    (counted,) = driver.take(Persisted)
    assert sum(counted.attempt_counters.completed.values()) == 1
    assert driver.reconciler.tracker.process.counters is None


def test_a_first_failure_is_recorded_though_no_status_shows_it() -> None:
    _, driver, deletions = ended(2)
    driver.effects.clear()
    for act in deletions:
        driver.begin(act)
        driver.on_answer(act, LOST)
    assert isinstance(driver.next(), Done)
    assert reasons(driver) == [RequestReason.WAITING, RequestReason.WAITING]


def test_what_a_status_is_to_show_is_recorded_once_it_does() -> None:
    world, driver = begun(1)
    world.shows = False
    driver.do(driver.call())
    driver.finish()
    assert driver.finish() == Done(1.0)
    assert reasons(driver) == []
    world.clock += 1.0
    driver.finish()
    assert reasons(driver) == [LifeReason.FRAMEWORK_ATTEMPT_STARTED, LifeReason.POD_CREATED]


@pytest.mark.parametrize(("retry_after_sec", "due"), [(0.0, pytest.approx(0.5, rel=0.3)), (1.5, 1.0), (60.0, 1.0)])
def test_a_pass_is_due_for_its_write_or_a_back_off_whichever_is_first(retry_after_sec: float, due: float) -> None:
    world, driver, (first, second) = widened(3)
    world.shows = False
    driver.do(first)
    driver.begin(second)
    driver.on_answer(second, refused(Refusal.TOO_MANY_REQUESTS, retry_after_sec=retry_after_sec))
    driver.finish()
    assert driver.finish() == Done(due)


# --- a spec that is too deep -----------------------------------------------------------------------------------------


def too_deep(levels: int = 300) -> Body:
    """A role whose Pod nobody can encode."""
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return role(pod={"spec": value})


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("wanted", [{"executionType": "Stop"}, {"suspend": True}])
def test_a_spec_that_is_too_deep_ends_as_it_says(wanted: Body, *, restart: bool) -> None:
    world, driver = running(2)
    world.edit(too_deep())
    world.show()
    driver.settle()
    (told,) = [one for one in world.status["conditions"] if one["type"] == "Stalled"]
    assert (told["status"], told["reason"]) == ("True", "InvalidSpec")
    assert "nested more than 254 levels" in told["message"]
    assert len(world.pods) == 2
    world.edit(**wanted)
    world.show()
    if restart:
        driver = Driver(world)
    for _ in range(10):
        driver.settle()
        gone = [name for name in world.pods if name not in world.objects or "f-attempt" not in world.objects]
        for name in gone:
            world.pods.pop(name)
            driver.reconciler.on_pod_event(name)
        if "f-attempt" not in world.objects:
            world.configmap = None
    completion = world.status["attemptStatus"]["completionStatus"]
    assert completion["code"] == (-210 if "executionType" in wanted else -240)
    assert world.status["state"] == ("Completed" if "executionType" in wanted else "AttemptCompleted")


def test_a_live_read_of_a_spec_that_no_parser_takes_is_cut() -> None:
    world = OneFramework()
    text = json.dumps({**world.body, "spec": {"suspend": True, "a": 7}}).replace("7", "[" * 5000 + "]" * 5000)
    live = read_live(Answered(text.encode()), "uid-1")
    assert live.spec_problem
    assert orjson.loads(live.spec_json) == {"suspend": True}
