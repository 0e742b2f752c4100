"""The machine of a Framework in quarantine: the condition Stalled, once, and its release."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from frameworkcontroller.api import names
from frameworkcontroller.api.codec import StatusError
from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.api.workloads import WorkloadRecord
from frameworkcontroller.machine.kernel.protocol import Done, Emit, ReadLive, RequeueError, Wait, Warn, WriteStatus
from frameworkcontroller.machine.kernel.requests import Answer, Answered, Get, PatchStatus, Refusal, Unanswered
from frameworkcontroller.machine.kernel.teardown import LOOK_SEC
from frameworkcontroller.machine.lifereasons import LifeReason
from frameworkcontroller.machine.parts.kueue.orphanedworkloads import releases_of
from frameworkcontroller.machine.quarantine import RETRY_SEC, Quarantine, QuarantineEnd
from tests.support.oneframework import NOW, Driver, OneFramework, refused

CAUSE: Final = ValueError("nobody foresaw it")
LOST: Final = Unanswered("the connection was cut")


def quarantined(
    status: Any = None, *, error: Exception = CAUSE, told: str | None = None
) -> tuple[OneFramework, Driver]:
    """A Framework with that stored status in quarantine."""
    world = OneFramework(status=status)
    assert world.record is not None
    return world, Driver(world, Quarantine(world.record, error, world.env, logged_cause=told))


def shown(status: Any = None) -> tuple[OneFramework, Driver]:
    """The same, and its condition is written."""
    world, driver = quarantined(status)
    driver.finish()
    driver.sent()
    return world, driver


def stalled(status: Any) -> Any:
    """The condition Stalled of a status."""
    (found,) = (one for one in status["conditions"] if one["type"] == "Stalled")
    return found


# --- told -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "told", "log", "traced"),
    [
        (CAUSE, None, True, True),
        (CAUSE, "ValueError: nobody foresaw it", False, True),
        (CAUSE, "ValueError: something else", True, True),
        (StatusError("no status"), None, True, False),
        (StatusError("no status"), "no status", False, False),
    ],
)
def test_a_cause_is_logged_once_and_always_an_event(
    error: Exception, told: str | None, *, log: bool, traced: bool
) -> None:
    _, driver = quarantined(error=error, told=told)
    (emitted,) = driver.take(Emit)
    assert (emitted.log, emitted.trace) == (log, error if traced else None)
    (record,) = emitted.records
    assert (record.reason, record.warning) == (LifeReason.QUARANTINED, True)
    assert str(error) in record.message


def test_a_long_cause_is_cut() -> None:
    _, driver = quarantined(error=StatusError("x" * 100_000))
    assert isinstance(driver.machine, Quarantine)
    assert len(driver.machine.cause) == 2000


# --- the condition --------------------------------------------------------------------------------------------------


def test_a_framework_without_a_status_gets_one_without_tasks() -> None:
    world, driver = quarantined()
    call = driver.expect(WriteStatus)
    assert isinstance(driver.begin(call), Get)
    driver.expect(Wait)
    driver.serve(call, driver.requests[-1])
    assert (stalled(world.status)["status"], stalled(world.status)["reason"]) == ("True", LifeReason.QUARANTINED)
    assert "nobody foresaw it" in stalled(world.status)["message"]
    assert world.status["attemptStatus"]["taskRoleStatuses"] == []


def test_a_status_that_cannot_be_read_keeps_all_except_the_condition() -> None:
    kept: dict[str, Any] = {
        "state": 7,
        "conditions": [{"type": "Running", "more": []}, {"type": "Stalled", "status": "False"}],
    }
    world, driver = quarantined(kept)
    driver.finish()
    assert [type(request) for request in driver.requests] == [Get, PatchStatus]
    patch = driver.requests[-1]
    assert isinstance(patch, PatchStatus)
    assert patch.path == "/status/conditions"
    assert (patch.uid, patch.generation, patch.resource_version) == ("uid-1", 1, "v1")
    assert world.status == kept | {"conditions": [kept["conditions"][0], stalled(world.status)]}


def test_the_condition_is_written_once() -> None:
    world, driver = shown()
    driver.expect(Done)
    # Neither by another one, as one that a controller begins with.
    assert world.record is not None
    other = Driver(world, Quarantine(world.record, CAUSE, world.env, logged_cause=None))
    other.finish()
    assert other.sent() == ["Get f"]


@pytest.mark.parametrize("status", ["", "text", [1], {"conditions": "text"}, {"conditions": [1]}, {"conditions": {}}])
def test_a_status_without_a_place_for_the_condition_is_left_as_it_is(status: Any) -> None:
    world, driver = quarantined(status)
    assert driver.finish().error is None
    if status in ("", {"conditions": {}}):
        assert stalled(world.status)["reason"] == LifeReason.QUARANTINED
    else:
        assert driver.sent() == ["Get f"]
        assert world.status == status


def test_the_condition_is_added_to_a_status_that_others_write_meanwhile() -> None:
    world, driver = quarantined({"conditions": []})
    call = driver.call()
    read = driver.begin(call)
    assert read is not None
    patch = driver.on_answer(call, world.answer(read))
    world.store({"conditions": [], "more": 1})
    driver.serve(call, patch)
    assert driver.sent() == ["Get f", "PatchStatus f", "Get f", "Get f", "PatchStatus f"]
    assert world.status["more"] == 1
    assert stalled(world.status)


def test_after_three_conflicts_the_condition_waits() -> None:
    world, driver = quarantined({"conditions": []})
    call = driver.call()
    request = driver.begin(call)
    while request is not None:
        if isinstance(request, PatchStatus):
            world.annotate()
        request = driver.on_answer(call, world.answer(request))
    assert sum(isinstance(request, PatchStatus) for request in driver.requests) == 3
    assert isinstance(driver.failed(), RequeueError)
    driver.expect(WriteStatus)


@pytest.mark.parametrize("kind", [Refusal.INVALID, Refusal.CONFLICT, Refusal.ALREADY_EXISTS, Refusal.TOO_LARGE])
def test_a_refused_condition_is_not_written_again(kind: Refusal) -> None:
    world, driver = quarantined({"conditions": []})
    call = driver.call()
    read = driver.begin(call)
    assert read is not None
    driver.on_answer(call, world.answer(read))
    driver.serve(call, driver.on_answer(call, refused(kind, "never")))
    assert ["never" in warning.text for warning in driver.take(Warn)] == [True]
    assert driver.expect(Done).error is None


@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize(
    ("answer", "retry_after_sec"),
    [
        (LOST, 0.0),
        (refused(Refusal.TOO_MANY_REQUESTS, retry_after_sec=7.0), 7.0),
        (refused(Refusal.SERVER_ERROR, retry_after_sec=3.0), 3.0),
    ],
)
def test_a_failure_that_may_pass_is_followed_by_another_try(at: int, answer: Answer, retry_after_sec: float) -> None:
    world, driver = quarantined({"conditions": []})
    call = driver.call()
    request = driver.begin(call)
    if at == 2:
        assert request is not None
        request = driver.on_answer(call, world.answer(request))
    assert driver.on_answer(call, answer) is None
    error = driver.failed()
    assert isinstance(error, RequeueError)
    assert error.retry_after_sec == retry_after_sec
    assert driver.finish().error is None
    assert stalled(world.status)


def test_a_namesake_is_not_touched() -> None:
    world, driver = quarantined({"conditions": []})
    world.replace()
    driver.finish()
    assert driver.sent() == ["Get f"]


# --- the release ----------------------------------------------------------------------------------------------------


def test_it_is_due_again_within_a_tenth_of_ten_minutes() -> None:
    _, driver = shown()
    done = driver.expect(Done)
    assert done.requeue_after is not None
    assert 0.9 * RETRY_SEC <= done.requeue_after <= 1.1 * RETRY_SEC


def later(world: OneFramework) -> None:
    world.clock += 1.1 * RETRY_SEC


def edited(world: OneFramework) -> None:
    world.edit_and_show(executionType="Stop")


@pytest.mark.parametrize("happens", [later, edited])
def test_it_is_released_by_time_and_by_another_spec(happens: Callable[[OneFramework], None]) -> None:
    world, driver = shown()
    happens(world)
    call = driver.expect(ReadLive)
    driver.do(call)
    assert isinstance(driver.machine, Quarantine)
    released = driver.machine.released
    assert released is not None
    assert (released.uid, released.status) == ("uid-1", world.status)
    assert driver.next() == Done()


def test_metadata_and_an_older_generation_release_nothing() -> None:
    world, driver = shown()
    world.annotate()
    world.body["metadata"]["generation"] = 0
    world.show()
    driver.expect(Done)
    assert driver.sent() == []


@pytest.mark.parametrize(
    "answer", [LOST, refused(Refusal.OBJECT_NOT_FOUND), refused(Refusal.TOO_MANY_REQUESTS), Answered(b"<html>")]
)
def test_it_stays_while_the_framework_cannot_be_read(answer: Answer) -> None:
    world, driver = shown()
    later(world)
    call = driver.call()
    driver.begin(call)
    assert driver.on_answer(call, answer) is None
    assert isinstance(driver.machine, Quarantine)
    assert driver.machine.released is None
    driver.failed()
    driver.expect(ReadLive)


def test_a_framework_that_is_gone_is_ignored() -> None:
    world, driver = quarantined()
    world.record = None
    assert driver.next() == Done()
    world.replace()
    world.show()
    assert driver.next() == Done()


def test_a_stop_changes_nothing() -> None:
    _, driver = shown()
    machine = driver.machine
    assert isinstance(machine, Quarantine)
    machine.stop()
    assert machine.describe(0.0) == {"quarantine": "ValueError: nobody foresaw it"}
    driver.expect(Done)


# --- an end that is asked for ---------------------------------------------------------------------------------------


def ended(world: OneFramework, *workloads: WorkloadRecord) -> float | None:
    """One look at a Framework in quarantine; the seconds until the next one."""
    world.show()
    assert world.record is not None
    releases = releases_of(world.record.uid, workloads, world.env.second)
    return Driver(world, QuarantineEnd(world.record, releases)).finish().requeue_after


def odd(**spec: Any) -> OneFramework:
    """A Framework with a status that cannot be read, a ConfigMap and a Pod."""
    attempt = {"executionStartTime": format_time(NOW), "configMapUID": "uid-of-f-attempt"}
    world = OneFramework(status={"attemptStatus": attempt, "accumulatedPastExecutionTimeSeconds": 40}, **spec)
    for name, owner in (("f-attempt", "uid-1"), ("f-a-0", "uid-of-f-attempt")):
        annotations = dict.fromkeys(names.POD_IDENTITY, "1") | {names.FRAMEWORK_UID: "uid-1"}
        metadata = {"name": name, "namespace": "ns", "uid": f"uid-of-{name}", "resourceVersion": "1"}
        references = [{"controller": True, "uid": owner}]
        world.objects[name] = {"metadata": {**metadata, "ownerReferences": references, "annotations": annotations}}
    world.run("f-a-0")
    return world


@pytest.mark.parametrize(
    "wanted",
    [{"executionType": "Stop"}, {"suspend": True}, {"activeDeadlineSeconds": 40}, {"suspend": True, "x": [[]]}],
)
def test_a_quarantined_framework_that_is_to_end_is_deleted(wanted: Any) -> None:
    world = odd(**wanted)
    assert ended(world) == LOOK_SEC
    assert "f-attempt" not in world.objects
    assert ended(world) == LOOK_SEC
    assert "f-a-0" not in world.objects
    world.pods.clear()
    assert ended(world) is None


def test_a_deadline_is_waited_for() -> None:
    world = odd(activeDeadlineSeconds=100)
    assert ended(world) == 60
    world.body["status"] = {"attemptStatus": 7}
    assert ended(world) is None
    world.body["status"] = "x"
    assert ended(world) is None
    assert len(world.objects) == 2


@pytest.mark.parametrize("wanted", [{}, {"executionType": "Create"}, {"suspend": "x"}, {"executionType": "stop"}])
def test_a_quarantined_framework_that_is_not_to_end_is_not_read(wanted: Any) -> None:
    world = odd(**wanted)
    world.show()
    assert world.record is not None
    driver = Driver(world, QuarantineEnd(world.record, ()))
    assert driver.finish() == Done()
    assert driver.requests == []
