"""The reconciler, asked and answered: its instructions, its requests, and its state after the answers."""

import json
from typing import Any, Final

import orjson
import pytest

from frameworkcontroller.api.objects import PodRecord
from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.machine.gates import STOPPED
from frameworkcontroller.machine.kernel.actions import Create
from frameworkcontroller.machine.kernel.batch import WIDTH
from frameworkcontroller.machine.kernel.model import Urgency, require
from frameworkcontroller.machine.kernel.protocol import (
    Act,
    Done,
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
    """A Framework with that number of Tasks. The creation of its first Pod is due."""
    world = OneFramework(role("a", number, **task))
    driver = Driver(world)
    driver.finish()
    driver.finish()
    driver.sent()
    driver.effects.clear()
    return world, driver


def running(number: int = 1, **task: Any) -> tuple[OneFramework, Driver]:
    """A Framework whose Tasks all run."""
    world = OneFramework(role("a", number, **task))
    driver = Driver(world)
    driver.run_all()
    world.clock += 60
    driver.sent()
    driver.effects.clear()
    return world, driver


def completing(number: int = 2, **task: Any) -> tuple[OneFramework, Driver, WriteStatus]:
    """A Framework whose first Pod is gone while the others run: the write of that Task's completion is due."""
    world, driver = running(number, **task)
    goes(world, driver, "f-a-0")
    return world, driver, driver.expect(WriteStatus)


def widened(number: int) -> tuple[OneFramework, Driver, list[Act]]:
    """The same as ``begun``, with the first Pod created: creations of the others, which wait for their turns."""
    world, driver = begun(number)
    driver.do(driver.call())
    return world, driver, list(acts(driver))


def ended(number: int, **task: Any) -> tuple[OneFramework, Driver, list[Act]]:
    """A Framework whose first two Tasks have ended: deletions of their Pods, which wait for their turns."""
    world, driver = running(number, **task)
    for name in ("f-a-0", "f-a-1"):
        runs(world, driver, name, "Succeeded")
    driver.finish()
    return world, driver, list(acts(driver))


def overtake(world: OneFramework, driver: Driver) -> None:
    """The next call is a write, and another controller writes the status before."""
    write = driver.call()
    request = driver.begin(write)
    assert isinstance(request, PatchStatus)
    world.store({**copy(world.status), "observedGeneration": 0})
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
    """Whether the tracked status records a Pod, for each Task."""
    return [task.attempt.pod_uid is not None for task in driver.reconciler.tracker.tasks()]


def copy(status: Any) -> Any:
    return orjson.loads(orjson.dumps(status))


def stalled(status: Any) -> Any:
    return next((one for one in status["conditions"] if one["type"] == "Stalled"), None)


def reasons(driver: Driver) -> list[Reason]:
    """Take the reasons of the emitted records."""
    return [record.reason for record in driver.records()]


def runs(world: OneFramework, driver: Driver, name: str, phase: str = "Running") -> None:
    """An event shows the Pod in that phase."""
    world.run(name, phase)
    driver.reconciler.on_pod_event(name)


def is_seen(world: OneFramework, driver: Driver) -> None:
    """An event shows the Framework as it is stored."""
    world.show()
    record = world.record
    assert record is not None
    driver.reconciler.on_framework_event(record)
    record.status_json = None


def goes(world: OneFramework, driver: Driver, name: str, *, removed: bool = True) -> PodRecord:
    """The cache drops the Pod. ``removed``: its last state shows that it is gone."""
    last = world.pods.pop(name)
    driver.reconciler.on_pod_dropped(last, removed=removed)
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
    driver.expect(Wait)
    driver.serve(first, request)
    assert [act.action.target.name for act in acts(driver)] == ["f-a-1", "f-a-2", "f-a-3"]


@pytest.mark.parametrize("answer", [LOST, refused(Refusal.SERVER_ERROR), refused(Refusal.NOT_FOUND)])
def test_no_action_rests_on_a_status_that_is_not_stored(answer: Answer) -> None:
    driver = Driver(OneFramework())
    for _ in range(3):
        call = driver.expect(WriteStatus)
        driver.begin(call)
        driver.on_answer(call, answer)
        driver.failed()
    assert driver.records() == []


def test_a_pod_is_deleted_only_once_the_end_of_its_task_is_stored() -> None:
    world, driver = running(**RETRIED)
    runs(world, driver, "f-a-0", "Succeeded")
    driver.until(Remove, "f-a-0")
    assert states(world.status) == ["AttemptDeletionPending"]
    assert driver.sent() == ["PatchStatus f", "Remove f-a-0"]


def test_plans_that_follow_from_each_other_are_made_in_one_pass() -> None:
    world, driver = running(2)
    goes(world, driver, "f-a-0")
    driver.finish()
    # The first plan completes the attempt, the second one the Task. Each completion is counted.
    assert states(world.status) == ["Completed", RUNNING]
    assert driver.sent() == ["PatchStatus f"]


class Busy(dict[str, PodRecord]):
    """Pods with an event at each look at one."""

    def __init__(self, driver: Driver) -> None:
        super().__init__(driver.world.pods)
        self.driver = driver
        self.looks = 0

    def get(self, name: str, *_: Any) -> PodRecord | None:  # type: ignore[override]
        """Look at a Pod."""
        self.looks += 1
        self.driver.reconciler.on_pod_event(name)
        return super().get(name)


def test_the_plans_of_a_pass_are_limited() -> None:
    world, driver = running()
    world.pods = busy = Busy(driver)
    driver.reconciler.on_pod_event("f-a-0")
    assert driver.finish() == Done(0.0)
    assert busy.looks == PLANS_PER_PASS


def test_a_write_takes_only_new_events_and_not_the_remaining_plans() -> None:
    world, driver = running(2)
    goes(world, driver, "f-a-0")
    world.pods = busy = Busy(driver)
    driver.reconciler.on_pod_event("f-a-1")
    write = driver.call()
    looks = busy.looks
    driver.begin(write)
    assert busy.looks == looks


@pytest.mark.parametrize("uid", [None, "uid-2"])
def test_a_framework_that_is_gone_is_ignored(uid: str | None) -> None:
    world, driver = running()
    driver.reconciler.on_pod_event("f-a-0")
    if uid is None:
        world.record = None
    else:
        world.replace()
        world.show()
    assert driver.next() == Done()


# --- a call whose turn has come --------------------------------------------------------------------------------------


def test_a_write_includes_events_that_came_before_its_turn() -> None:
    world, driver, write = completing()
    goes(world, driver, "f-a-1")
    request = driver.begin(write)
    assert "Running" not in " ".join(states(written(request)))
    driver.serve(write, request)
    # Its actions follow in the next pass.
    assert driver.next() == Done(0.0)


def test_a_write_includes_nothing_of_a_namesake() -> None:
    world, driver, write = completing()
    goes(world, driver, "f-a-1")
    world.replace()
    world.edit_and_show(role("a", 1))
    assert [task["deletionPending"] for task in tasks(written(driver.begin(write)))] == [False, False]


def test_an_action_that_a_write_justifies_follows_it() -> None:
    world, driver, write = completing()
    del world.objects["f-a-1"]
    goes(world, driver, "f-a-1", removed=False)
    driver.do(write)
    assert driver.next() == Done(0.0)
    request = driver.begin(driver.call())
    assert isinstance(request, Get)
    assert request.name == "f-a-1"


def test_a_write_that_others_wait_for_includes_no_later_event() -> None:
    world, driver, write = completing()
    driver.begin(write)
    driver.on_answer(write, LOST)
    driver.expect(Done)
    first = driver.expect(WriteStatus)
    goes(world, driver, "f-a-1")
    assert states(written(driver.begin(first))) == ["Completed", RUNNING]


def test_a_creation_that_is_no_longer_awaited_is_dropped() -> None:
    world, driver, waiting = widened(3)
    first, second = waiting
    # The API server executes the creation of an earlier process now.
    assert isinstance(first.action, Create)
    world.answer(Post(Kind.POD, "f-a-1", first.action.body))
    driver.reconciler.on_pod_event("f-a-1")
    world.clock += 1
    driver.expect(Wait)
    assert driver.begin(first) is None
    assert isinstance(driver.do(second), Post)
    driver.settle()
    assert pod_uids(world.status) == [f"uid-of-f-a-{index}" for index in range(3)]


@pytest.mark.parametrize("how", ["edited", "deleted", "deleted at an older generation", "replaced", "gone", "stopped"])
def test_an_interrupted_pass_begins_nothing_else(how: str) -> None:
    world, driver, waiting = widened(100)
    request = driver.begin(waiting[0])
    assert request is not None
    if how == "edited":
        world.edit(executionType="Stop")
    elif how.startswith("deleted"):
        world.delete()
        world.body["metadata"]["generation"] -= how != "deleted"
    elif how == "replaced":
        world.replace()
    world.show()
    if how == "gone":
        world.record = None
    elif how == "stopped":
        driver.reconciler.stop()
    assert [driver.begin(act) for act in waiting[1:]] == [None] * (len(waiting) - 1)
    driver.expect(Wait)
    driver.serve(waiting[0], request)
    assert not isinstance(driver.next(), Act)


def test_an_older_generation_does_not_interrupt() -> None:
    world, driver, waiting = widened(3)
    world.body["metadata"]["generation"] -= 1
    world.show()
    assert isinstance(driver.begin(waiting[0]), Post)


def test_after_a_refusal_nothing_else_is_begun() -> None:
    _, driver, (first, second, third) = widened(4)
    assert driver.begin(first) is not None
    assert driver.begin(second) is not None
    driver.on_answer(first, LOST)
    assert driver.begin(third) is None


@pytest.mark.parametrize("deleted", [False, True])
def test_a_deletion_counts_at_any_generation(*, deleted: bool) -> None:
    world = OneFramework()
    world.edit_and_show(description="changed")
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
def test_a_deletion_in_a_live_read_counts_while_the_cache_is_behind(*, deleted: bool) -> None:
    world = OneFramework(executionType="Create")
    driver = Driver(world)
    driver.settle()
    world.edit_and_show(executionType="Start")
    write, request = driver.until(PatchStatus)
    if deleted:
        world.delete()
        world.body["metadata"]["generation"] += 1
    driver.serve(write, request)
    driver.settle()
    assert ("Post f-attempt" in driver.sent()) != deleted


def test_a_completing_attempt_does_not_delay_calls_that_wait_for_their_turns() -> None:
    """Otherwise every pass would, while turns take more than a second to come."""
    world, driver = running(3)
    world.edit_and_show(executionType="Stop")
    driver.finish()
    driver.finish()
    for name in ("f-a-0", "f-a-1"):
        goes(world, driver, name, removed=False)
    waiting = list(acts(driver))
    assert len(waiting) >= 2
    world.clock += 1.5
    driver.next()
    assert all(isinstance(driver.do(act), Get) for act in waiting)


# --- answers while others are awaited --------------------------------------------------------------------------------


def test_an_answer_during_a_status_write_is_folded_after_it() -> None:
    world, driver, (first, second) = widened(3)
    creation = driver.begin(first)
    driver.begin(second)
    world.clock += SHOW_SEC
    write = driver.expect(WriteStatus)
    patch = driver.begin(write)
    assert patch is not None
    driver.serve(first, creation)
    world.clock += 10
    driver.expect(Wait)
    assert recorded(driver) == [True, False, False]
    driver.serve(write, patch)
    assert [record.index for record in driver.records() if record.reason is LifeReason.POD_CREATED] == [0]
    driver.expect(Wait)
    # It is tracked and not stored: another write has to show it.
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


@pytest.mark.parametrize("completes", [False, True])
def test_the_end_of_an_attempt_is_written_once_no_action_is_in_flight(completes: bool) -> None:
    world, driver, (first, *others) = widened(100)
    request = driver.begin(first)
    tracker = driver.reconciler.tracker
    if completes:
        assert tracker.status is not None
        tracker.decide_completion(tracker.status, STOPPED)
    else:
        tracker.change(None, Urgency.NOW)
    world.clock += 1
    driver.next()
    assert [driver.begin(act) for act in others] == [None] * len(others)
    world.clock += SHOW_SEC
    driver.expect(Wait)
    driver.serve(first, request)
    driver.expect(WriteStatus)


@pytest.mark.parametrize(("number", "written"), [(WIDTH + 1, True), (WIDTH, False)])
def test_a_change_that_a_task_waits_for_is_written_during_a_long_batch(number: int, *, written: bool) -> None:
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
    # The next one follows after a pause of the same length.
    driver.reconciler.tracker.persist_first(("a", 0))
    driver.serve(first, request)
    driver.next()
    world.clock += 1
    assert not isinstance(driver.next(), WriteStatus)
    world.clock += 1
    driver.expect(WriteStatus)


def test_writes_while_actions_are_in_flight_are_some_seconds_apart() -> None:
    world, driver, (first, second, third) = widened(4)
    requests = [driver.begin(act) for act in (first, second, third)]
    driver.serve(first, requests[0])
    world.clock += SHOW_SEC
    driver.do(driver.call())
    driver.serve(second, requests[1])
    for _ in range(4):
        world.clock += 1
        driver.expect(Wait)
    world.clock += 1
    driver.expect(WriteStatus)


def test_a_stopped_batch_is_not_planned_again() -> None:
    world, driver, (first, _) = widened(3)
    driver.begin(first)
    driver.reconciler.stop()
    driver.reconciler.on_pod_event("f-a-0")
    world.clock += 1
    driver.next()
    assert list(driver.reconciler.tracker.agenda) == [("a", 0)]


def test_a_stop_before_the_first_plan_loses_nothing() -> None:
    world, driver = running(2)
    goes(world, driver, "f-a-0", removed=False)
    runs(world, driver, "f-a-1", "Failed")
    driver.reconciler.stop()
    driver.finish()
    # A live read of one is due, and the end of the other is stored.
    assert states(world.status) == [RUNNING, "AttemptDeletionPending"]
    assert ("a", 0) in driver.reconciler.tracker.agenda


def test_an_answer_that_is_no_object_is_no_acceptance() -> None:
    _, driver, write = completing()
    driver.begin(write)
    assert driver.on_answer(write, Answered(b"<html>")) is None
    driver.failed()
    assert driver.records() == []


def test_a_pass_ends_only_when_nothing_is_in_flight() -> None:
    world, driver, (first, second) = widened(3)
    creation = driver.begin(first)
    driver.begin(second)
    world.clock += SHOW_SEC
    write = driver.call()
    driver.begin(write)
    driver.on_answer(write, LOST)
    driver.expect(Wait)
    driver.serve(first, creation)
    driver.expect(Wait)
    driver.on_answer(second, LOST)
    driver.failed()
    # Outcomes of this pass are kept.
    driver.expect(WriteStatus)
    assert recorded(driver) == [True, True, False]


@pytest.mark.parametrize("number", [1, 2])
def test_a_single_action_is_awaited_without_a_time(number: int) -> None:
    _, driver = begun(number)
    driver.begin(driver.call())
    assert driver.next() == Wait(None if number == 1 else 1.0)


def test_each_action_is_sent_once() -> None:
    _, driver, waiting = widened(100)
    queued = "f-a-99"
    assert waiting[0].action.target.name == "f-a-1"
    assert queued not in [act.action.target.name for act in waiting]
    for name in ("f-a-1", queued):
        driver.reconciler.on_pod_event(name)
    driver.world.clock += 1
    driver.expect(Wait)
    driver.sent()
    for act in waiting:
        driver.do(act)
    driver.finish()
    posts = [sent for sent in driver.sent() if sent.startswith("Post")]
    assert posts == [f"Post f-a-{index}" for index in range(1, 100)]


def test_creations_in_flight_are_not_planned_again() -> None:
    _, driver, _ = widened(3)
    driver.reconciler.on_pod_event("f-a-1")
    driver.world.clock += 1
    driver.expect(Wait)
    assert not driver.reconciler.tracker.is_busy


def test_a_deletion_by_force_follows_a_deletion_in_flight() -> None:
    world, driver, deletions = ended(3, podGracefulDeletionTimeoutSec=10)
    requests = [driver.begin(act) for act in deletions]
    assert [type(request) for request in requests] == [Remove, Remove]
    # The first one is accepted, and its answer is slow.
    deletion = {"deletionTimestamp": format_time(int(world.env.now) + 30), "deletionGracePeriodSeconds": 30}
    world.objects["f-a-0"]["metadata"] |= deletion
    runs(world, driver, "f-a-0")
    world.clock += SHOW_SEC
    driver.expect(Wait)
    world.clock += 1
    driver.do(driver.call())
    world.clock += 10
    driver.expect(Wait)
    for act in deletions:
        driver.on_answer(act, Answered(b'{"metadata": {}}'))
    assert driver.next() == Done(0.0)
    request = driver.begin(driver.call())
    assert isinstance(request, Remove)
    assert (request.name, request.force) == ("f-a-0", True)


def test_actions_of_a_replaced_status_are_not_begun() -> None:
    world, driver, (first, second) = ended(3)
    assert driver.begin(first) is not None
    runs(world, driver, "f-a-2", "Failed")
    world.clock += SHOW_SEC
    overtake(world, driver)
    assert driver.begin(second) is None


# --- preconditions of the write --------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", [True, False])
def test_nothing_is_started_after_a_failed_write(*, lost: bool) -> None:
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


def lose(driver: Driver, write: WriteStatus, *, landed: bool) -> None:
    """The write is not answered. ``landed``: the API server stores it."""
    request = driver.begin(write)
    assert request is not None
    if landed:
        driver.world.answer(request)
    driver.on_answer(write, LOST)
    driver.failed()


def test_a_write_tests_the_generation_of_its_decisions() -> None:
    world, driver, write = completing(1)
    lose(driver, write, landed=False)
    world.edit_and_show(role("a", 3))
    request = driver.begin(driver.call())
    assert isinstance(request, PatchStatus)
    assert (request.uid, request.generation) == ("uid-1", 1)


@pytest.mark.parametrize("another", ["", "status", "finalizers"])
def test_a_change_of_the_spec_refuses_no_write_unless_it_comes_with_another_change(another: str) -> None:
    world, driver = running()
    world.edit(role("a", 3))
    if another == "status":
        world.body["status"]["completionTime"] = "2026-01-01T00:00:00Z"
    elif another:
        world.body["metadata"]["finalizers"] = ["example.com/kept"]
    is_seen(world, driver)
    driver.run_all()
    assert ("Get f" in driver.sent()) == bool(another)
    results = [effect.result for effect in driver.take(StatusWritten)]
    assert results[0] == "conflict" if another else set(results) == {"accepted"}


def test_a_write_that_had_landed_is_accepted() -> None:
    _, driver, write = completing()
    lose(driver, write, landed=True)
    assert driver.records() == []
    tracker = driver.reconciler.tracker
    driver.settle()
    assert driver.sent() == ["PatchStatus f", "PatchStatus f", "Get f"]
    effects = list(driver.effects)
    assert LifeReason.TASK_COMPLETED in reasons(driver)
    assert [effect.result for effect in effects if isinstance(effect, StatusWritten)] == ["landed"]
    assert driver.reconciler.tracker is tracker
    assert tracker.is_clean
    assert driver.next() == Done()


def test_a_write_continues_from_an_earlier_one_that_had_landed() -> None:
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
    driver.expect(Done)
    driver.effects.clear()
    tracker = driver.reconciler.tracker
    driver.finish()
    driver.settle()
    results = [effect.result for effect in driver.effects if isinstance(effect, StatusWritten)]
    assert results[:2] == ["conflict", "accepted"]
    assert driver.take(Warn) == []
    assert driver.reconciler.tracker is tracker
    assert all(pod_uids(world.status))


def test_another_clients_change_of_metadata_does_not_matter() -> None:
    world, driver, write = completing()
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
    """This number of writes in a row come after a change by others."""
    ends = []
    for _ in range(times):
        write = driver.expect(WriteStatus)
        request = driver.begin(write)
        world.annotate()
        driver.serve(write, request)
        ends.append(driver.expect(Done))
    return ends


def test_the_fourth_failed_precondition_in_a_row_delays_the_next_write() -> None:
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


def test_the_uids_of_created_objects_are_put_into_another_writers_status_and_stored_first() -> None:
    world, driver = begun(2)
    world.shows = False
    before = copy(world.status)
    write, request = driver.until(PatchStatus)
    assert all(pod_uids(written(request)))
    second = tasks(before)[1]
    second["retryPolicyStatus"]["totalRetriedCount"] = second["attemptStatus"]["id"] = 7
    second["attemptStatus"]["instanceUID"] = f"7_{second['instanceUID']}"
    before["attemptStatus"]["configMapUID"] = None
    world.store(before)
    world.edit(executionType="Start")
    tracker = driver.reconciler.tracker
    driver.serve(write, request)
    assert driver.next() == Done(0.0)
    assert driver.reconciler.tracker is not tracker
    assert len(driver.take(Warn)) == 1
    write = driver.expect(WriteStatus)
    request = driver.begin(write)  # type: ignore[assignment]
    assert isinstance(request, PatchStatus)
    # No decision in it depends on the spec: it fits every generation.
    assert request.generation == 2
    assert pod_uids(written(request)) == ["uid-of-f-a-0", None]
    assert [task["retryPolicyStatus"]["totalRetriedCount"] for task in tasks(written(request))] == [0, 7]
    assert driver.records() == []
    driver.serve(write, request)
    # Records of the replaced status are dropped.
    assert reasons(driver) == [LifeReason.FRAMEWORK_ATTEMPT_STARTED, LifeReason.POD_CREATED]


def test_stored_uids_are_not_put_into_another_writers_status() -> None:
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
    assert recorded(driver) == [False, False]


def test_after_a_take_over_all_is_decided_again() -> None:
    world, driver = running(2)
    goes(world, driver, "f-a-0")
    overtake(world, driver)
    assert driver.next() == Done(0.0)
    # No new UID has to be stored first.
    driver.expect(Act)


def test_the_order_of_completed_tasks_outlives_a_take_over() -> None:
    world, driver = running(2)
    goes(world, driver, "f-a-1")
    goes(world, driver, "f-a-0")
    overtake(world, driver)
    world.objects.clear()
    driver.settle()
    assert world.status["attemptStatus"]["completionStatus"]["trigger"]["taskIndex"] == 0


def test_a_resync_believes_the_cache_even_at_an_older_generation() -> None:
    """After a restore, the generation starts again, and no precondition fails while nothing is written."""
    world = OneFramework(role("a", 1))
    for _ in range(3):
        world.annotate()
        world.edit(role("a", 1), description=str(world.body["metadata"]["generation"]))
    driver = Driver(world)
    driver.settle()
    world.body["metadata"]["generation"] = 1
    world.edit_and_show(role("a", 2))
    driver.settle()
    assert len(tasks(world.status)) == 1
    driver.reconciler.resync()
    driver.settle()
    assert len(tasks(world.status)) == 2


def test_a_resync_between_the_turn_and_the_write_changes_nothing() -> None:
    world, driver = running(2)
    world.edit_and_show(role("a", 3))
    write = driver.expect(WriteStatus)
    driver.reconciler.resync()
    driver.serve(write, driver.begin(write))
    driver.settle()
    assert len(tasks(world.status)) == 3


def test_a_generation_that_went_back_is_believed() -> None:
    world, driver = running(2)
    world.edit_and_show(role("a", 3))
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


def test_snapshots_of_a_replaced_status_are_dropped() -> None:
    world, first = running(2, **RETRIED)
    goes(world, first, "f-a-0")
    while states(world.status)[0] != "AttemptCompleted":
        first.do(first.call())
    # Another process, whose cache lacks the other Pod: it reads the status live before it stores anything.
    world.show()
    driver = Driver(world)
    hidden = world.pods.pop("f-a-1")
    call, request = driver.until(Get, "f")
    assert isinstance(call, ReadLive)
    world.store({**copy(world.status), "observedGeneration": 0})
    driver.serve(call, request)
    world.pods["f-a-1"] = hidden
    driver.settle()
    assert sum(len(effect.snapshots) for effect in driver.take(LogSnapshots)) == 1


def test_snapshots_are_logged_before_the_write_that_replaces_their_content() -> None:
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
    """The next write is refused as too large; the request that follows."""
    write = driver.expect(WriteStatus)
    assert isinstance(driver.begin(write), PatchStatus)
    live = driver.on_answer(write, FULL)
    assert isinstance(live, Get)
    return write, driver.on_answer(write, world.answer(live))


def stopped_by_size(number: int) -> tuple[OneFramework, Driver]:
    """A Framework whose status with the end of its first Task is too large, which its condition shows."""
    world, driver = running(number)
    goes(world, driver, "f-a-0")
    driver.serve(*too_large(world, driver))
    return world, driver


def test_the_stored_status_shows_that_the_next_one_is_too_large() -> None:
    world, driver = stopped_by_size(2)
    assert states(world.status) == [RUNNING, RUNNING]
    assert stalled(world.status)["reason"] == LifeReason.STATUS_TOO_LARGE
    assert FULL.message in stalled(world.status)["message"]
    assert "largeFrameworkCompression: true" in stalled(world.status)["message"]
    assert reasons(driver) == [LifeReason.STATUS_TOO_LARGE]
    assert driver.next() == Done(0.0)
    # It is sent again, unchanged, after a while.
    assert driver.next() == Done(TOO_LARGE_RETRY_SEC)
    world.clock += TOO_LARGE_RETRY_SEC
    driver.settle()
    assert states(world.status) == ["Completed", RUNNING]
    assert LifeReason.TASK_COMPLETED in reasons(driver)


def test_the_condition_of_a_compressed_status_asks_for_fewer_tasks() -> None:
    world = OneFramework()
    assert world.record is not None
    driver = Driver(world, Reconciler(world.record, compress=True))
    driver.serve(*too_large(world, driver))
    assert "compressed already" in stalled(world.status)["message"]
    # A Framework without a status gets one without Tasks, which fits.
    assert world.status["attemptStatus"]["taskRoleStatuses"] == []


def test_another_spec_ends_the_wait_of_a_status_that_was_too_large() -> None:
    world, driver = stopped_by_size(3)
    driver.finish()
    world.edit_and_show(role("a", 1))
    assert driver.finish() == Done(0.0)
    driver.finish()
    assert world.status["observedGeneration"] == 2
    assert [task["deletionPending"] for task in tasks(world.status)] == [False, True, True]


def test_events_do_not_end_the_wait_of_a_status_that_was_too_large() -> None:
    world, driver = stopped_by_size(2)
    driver.finish()
    goes(world, driver, "f-a-1")
    assert driver.finish() == Done(TOO_LARGE_RETRY_SEC)


def test_only_the_status_that_was_too_large_waits() -> None:
    world, driver = stopped_by_size(3)
    driver.finish()
    world.edit_and_show(description="Another one.")
    overtake(world, driver)
    write, _ = driver.until(PatchStatus)
    driver.on_answer(write, LOST)
    driver.expect(Done)
    driver.expect(WriteStatus)


def test_a_status_that_is_too_large_and_in_conflict_is_in_conflict() -> None:
    world, driver = running(2)
    goes(world, driver, "f-a-0")
    world.annotate()
    _, following = too_large(world, driver)
    assert following is None
    assert stalled(world.status) is None
    assert driver.next() == Done(0.0)
    assert [effect.result for effect in driver.take(StatusWritten)] == ["conflict"]
    driver.settle()
    assert states(world.status) == ["Completed", RUNNING]


def test_a_condition_in_conflict_is_sent_again_with_the_status() -> None:
    world, driver = running(2)
    goes(world, driver, "f-a-0")
    write, condition = too_large(world, driver)
    assert condition is not None
    world.annotate()
    driver.serve(write, condition)
    assert driver.next() == Done(0.0)
    assert driver.records() == []
    driver.expect(WriteStatus)


def test_a_status_that_takes_no_condition_is_sent_again_with_a_limit() -> None:
    world, driver = running(2)
    goes(world, driver, "f-a-0")
    ends = []
    for _ in range(4):
        write, _ = too_large(world, driver)
        assert driver.on_answer(write, refused(Refusal.INVALID)) is None
        ends.append(driver.expect(Done))
    assert ends[:3] == [Done(0.0)] * 3
    assert ends[3].error is not None


def test_a_condition_that_does_not_fit_is_recorded_once() -> None:
    world, driver = running(2)
    goes(world, driver, "f-a-0")
    found = []
    for message in ("the limit is 1", "the limit is 1", "the limit is 2"):
        write, condition = too_large(world, driver)
        assert stalled(written(condition)) is not None
        assert driver.on_answer(write, refused(Refusal.TOO_LARGE, message)) is None
        assert [driver.next(), driver.next()] == [Done(0.0), Done(TOO_LARGE_RETRY_SEC)]
        world.clock += TOO_LARGE_RETRY_SEC
        found.append(reasons(driver))
    assert found == [[LifeReason.STATUS_TOO_LARGE], [], [LifeReason.STATUS_TOO_LARGE]]


def test_a_condition_that_does_not_fit_is_recorded_again_after_a_status_that_did() -> None:
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
def test_the_refused_status_of_an_invalid_spec_is_recorded(*, valid: bool) -> None:
    world = OneFramework(role("a", 1 if valid else -1))
    driver = Driver(world)
    write = driver.call()
    driver.begin(write)
    live = driver.on_answer(write, refused(Refusal.INVALID, "the spec is invalid"))
    assert live is not None
    assert driver.on_answer(write, world.answer(live)) is None
    assert reasons(driver) == ([] if valid else [LifeReason.INVALID_SPEC])
    assert "the spec is invalid" in str(driver.failed())


def test_events_of_a_framework_with_an_invalid_spec_wait_for_another_one() -> None:
    driver = Driver(OneFramework(role("a", -1)))
    driver.settle()
    driver.reconciler.on_pod_event("f-a-0")
    assert driver.finish() == Done()


@pytest.mark.parametrize(
    ("refusal", "result"),
    [
        (Refusal.NOT_FOUND, "not_found"),
        (Refusal.OBJECT_NOT_FOUND, "not_found"),
        (Refusal.TOO_MANY_REQUESTS, "error"),
        (Refusal.SERVER_ERROR, "error"),
        (Refusal.OTHER, "error"),
    ],
)
def test_a_refused_write_is_repeated_no_sooner_than_the_api_server_wants(refusal: Refusal, result: str) -> None:
    _, driver, write = completing()
    driver.begin(write)
    assert driver.on_answer(write, refused(refusal, retry_after_sec=7.0)) is None
    assert [effect.result for effect in driver.take(StatusWritten)] == [result]
    error = driver.failed()
    assert isinstance(error, RequeueError)
    assert error.retry_after_sec == 7.0
    driver.expect(WriteStatus)


# --- live reads ------------------------------------------------------------------------------------------------------


def taken_up() -> tuple[OneFramework, Driver]:
    """Another process begins with the stored status of a Framework. The creation of one Pod is due."""
    world, driver = running(2, **RETRIED)
    goes(world, driver, "f-a-0")
    driver.until(Post, "f-a-0")
    assert states(world.status) == ["AttemptCreationPending", RUNNING]
    world.show()
    return world, Driver(world)


def test_the_status_is_read_live_before_the_first_action() -> None:
    world, driver = taken_up()
    assert isinstance(driver.do(driver.expect(ReadLive)), Get)
    assert isinstance(driver.do(driver.call()), Post)
    driver.settle()
    driver.sent()
    # From now on the tracked status is the stored one.
    goes(world, driver, "f-a-1")
    driver.until(Post, "f-a-1")
    assert "Get f" not in driver.sent()


def test_a_slow_live_read_delays_no_action() -> None:
    world, driver = taken_up()
    read = driver.expect(ReadLive)
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
def test_actions_wait_while_the_status_cannot_be_read(answer: Answer) -> None:
    _, driver = taken_up()
    for _ in range(2):
        call = driver.expect(ReadLive)
        driver.begin(call)
        driver.on_answer(call, answer)
        driver.failed()
    assert isinstance(driver.do(driver.call()), Get)
    assert isinstance(driver.do(driver.call()), Post)


@pytest.mark.parametrize("outdated", [True, False])
def test_no_action_rests_on_an_outdated_status(outdated: bool) -> None:
    world, driver = taken_up()
    if outdated:
        world.store({**copy(world.status), "observedGeneration": 0})
        driver.do(driver.call())
        assert driver.next() == Done(0.0)
        assert driver.reconciler.known.stored.resource_version == world.body["metadata"]["resourceVersion"]
    else:
        # The same status in another order.
        world.store(dict(reversed(world.status.items())))
        assert isinstance(driver.do(driver.call()), Get)
        assert isinstance(driver.do(driver.call()), Post)


@pytest.mark.parametrize("other", [False, True], ids=["same", "other"])
def test_a_change_of_metadata_or_of_the_status_fails_the_first_write_of_a_process(other: bool) -> None:
    world, _ = running(2, **RETRIED)
    world.show()
    driver = Driver(world)
    goes(world, driver, "f-a-0")
    world.store({**copy(world.status), **({"observedGeneration": 0} if other else {})})
    driver.do(driver.call())
    assert len(driver.take(Warn)) == other
    assert driver.reconciler.known.stored.resource_version == world.body["metadata"]["resourceVersion"]


def test_a_namesake_in_a_live_read_is_no_status() -> None:
    world, driver = taken_up()
    world.replace()
    driver.do(driver.call())
    assert "another one" in str(driver.failed())


def test_the_status_is_read_live_before_an_unrecorded_object_is_deleted() -> None:
    world, driver = running()
    taskless = copy(world.objects["f-a-0"])
    taskless["metadata"] |= {"name": "f-a-5", "uid": "taskless"}
    world.objects["f-a-5"] = taskless
    runs(world, driver, "f-a-5")
    driver.do(driver.expect(ReadLive))
    request = driver.do(driver.call())
    assert isinstance(request, Remove)
    assert (request.name, request.uid) == ("f-a-5", "taskless")


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
    done = driver.expect(Done)
    assert done.requeue_after is not None
    world.clock += done.requeue_after
    driver.expect(WriteStatus)


def test_a_stopping_controller_writes_at_once() -> None:
    world, driver = begun(1)
    world.shows = False
    driver.do(driver.call())
    assert driver.next() == Done(0.0)
    assert driver.next() == Done(1.0)
    driver.reconciler.stop()
    write = driver.expect(WriteStatus)
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
    last, world.configmap = require(world.configmap, "ConfigMap"), None
    driver.reconciler.on_configmap_dropped(last)
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


def test_a_persisted_completion_is_counted_once() -> None:
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
    driver.expect(Done)
    assert reasons(driver) == [RequestReason.WAITING, RequestReason.WAITING]


def test_a_change_in_the_status_is_recorded_once_that_is_stored() -> None:
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
    """A role whose Pod no encoder takes."""
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return role(pod={"spec": value})


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("wanted", [{"executionType": "Stop"}, {"suspend": True}])
def test_a_spec_that_is_too_deep_ends_as_it_says(wanted: Body, *, restart: bool) -> None:
    world, driver = running(2)
    world.edit_and_show(too_deep())
    driver.settle()
    (told,) = [one for one in world.status["conditions"] if one["type"] == "Stalled"]
    assert (told["status"], told["reason"]) == ("True", "InvalidSpec")
    assert "nested more than 254 levels" in told["message"]
    assert len(world.pods) == 2
    world.edit_and_show(**wanted)
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
