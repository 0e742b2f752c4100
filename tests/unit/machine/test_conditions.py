"""Conditions of a Framework (docs/running.md, "Phase")."""

from dataclasses import replace

from frameworkcontroller.api.failurespec import FailureClass, PodPattern
from frameworkcontroller.api.status import Condition
from frameworkcontroller.machine.kernel.exchanges import Accepted, Created, Exists
from frameworkcontroller.machine.kernel.model import Urgency
from frameworkcontroller.machine.kernel.reasons import RequestReason
from frameworkcontroller.machine.kernel.requests import Unanswered
from frameworkcontroller.machine.lifereasons import LifeReason
from tests.support.bench import NOW, Bench, accepted, begun, foreign, limits, prepared, refused, role


def condition(bench: Bench, kind: str) -> Condition:
    """The condition of that type, which exists."""
    return next(item for item in bench.status.conditions if item.type == kind)


def status(bench: Bench, kind: str) -> str | None:
    """The status of the condition of that type, if it exists."""
    return next((item.status for item in bench.status.conditions if item.type == kind), None)


def test_the_life_of_a_framework_that_succeeds() -> None:
    bench = accepted()
    assert {item.type: item.status for item in bench.status.conditions} == {"Running": "False", "Completed": "False"}
    bench.all_pods()
    bench.now += 10
    bench.run()
    found = condition(bench, "Running")
    assert (found.status, found.last_transition_time, found.observed_generation) == ("True", NOW + 10, 1)
    bench.end(after=10)
    assert {item.type: item.status for item in bench.status.conditions} == {
        "Running": "False",
        "Completed": "True",
        "Succeeded": "True",
    }
    found = condition(bench, "Succeeded")
    assert (found.reason, found.message) == ("Succeeded", bench.completion().diagnostics)


def test_a_framework_that_fails() -> None:
    bench = prepared(role(failed=1))
    bench.end(code=210)
    found = condition(bench, "Failed")
    assert (found.status, found.reason) == ("True", "ContainerPermanentFailed")
    assert status(bench, "Succeeded") is None
    assert status(bench, "Completed") == "True"


def test_nothing_is_terminal_while_it_is_retried() -> None:
    bench = prepared(role(failed=1), retryPolicy={"maxRetryCount": 1})
    bench.end(code=1)
    assert bench.status.attempt.id == 1
    assert status(bench, "Failed") is None
    assert status(bench, "Completed") == "False"


def test_a_message_is_cut_to_the_limit_of_the_api() -> None:
    bench = prepared(role(failed=1))
    bench.show("f-a-0", phase="Failed", message="x" * 100_000)
    bench.settle()
    assert len(condition(bench, "Failed").message) == 32768


def test_a_phrase_that_is_no_reason_for_the_api_is_replaced() -> None:
    for phrase in ("", "two words", "x" * 2000, "1st", "ends_with:"):
        odd = FailureClass(code=300, phrase=phrase, pod_patterns=[PodPattern()])
        bench = prepared(role(failed=1), limit=limits(odd))
        bench.end(code=1)
        assert bench.code() == 300
        assert condition(bench, "Failed").reason == ("Failed" if len(phrase) < 2000 else "x" * 1024)


def test_the_time_of_a_transition_is_kept_while_nothing_changes() -> None:
    bench = prepared()
    bench.now += 100
    bench.edit_then_plan(description="other")
    found = condition(bench, "Completed")
    assert (found.last_transition_time, found.observed_generation) == (NOW, 2)


def test_stalled_by_a_naming_conflict_until_it_is_over() -> None:
    bench = begun(role(number=2))
    first, second = bench.plan().actions
    bench.created(second)
    in_the_way = Exists(foreign("f-a-0", "theirs"))
    bench.refuse(first, in_the_way, 2)
    # One of a Framework of that name that was there before goes by itself.
    assert status(bench, "Stalled") is None
    bench.wait(60)
    told = bench.fold(first, in_the_way, write=False).records
    assert [(item.reason, item.warning) for item in told] == [(RequestReason.NAMING_CONFLICT, True)]
    assert bench.tracker.urgency >= Urgency.SOON
    bench.write()
    bench.plan()
    found = condition(bench, "Stalled")
    assert (found.status, found.reason, found.last_transition_time) == ("True", "NamingConflict", bench.now // 1)
    assert "f-a-0" in found.message
    bench.refuse(bench.only(bench.wait(60)), in_the_way)
    assert condition(bench, "Stalled") == found
    bench.wait(60)
    bench.created(first)
    assert status(bench, "Stalled") == "False"


def test_a_terminating_object_blocks_for_a_minute_before_it_stalls() -> None:
    bench = accepted()
    action = bench.only(bench.plan())
    in_the_way = Exists(replace(foreign("f-attempt", "theirs"), deleting=True))
    bench.refuse(action, in_the_way, 7)
    assert status(bench, "Stalled") is None
    bench.wait(60)
    assert 30 < bench.now - NOW < 90
    bench.fold(action, in_the_way)
    assert status(bench, "Stalled") == "True"


def test_stalled_by_quota_with_the_api_servers_own_words() -> None:
    bench = begun()
    action = bench.only(bench.plan())
    text = 'pods "f-a-0" is forbidden: exceeded quota: q, requested: pods=1, used: pods=5, limited: pods=5'
    bench.fold(action, refused(403, text))
    found = condition(bench, "Stalled")
    assert (found.status, found.reason, found.message) == ("True", "QuotaExceeded", text)
    assert bench.only(bench.wait(60)) == action
    # Each refusal has the current usage, which is no reason to write the status each time.
    assert bench.fold(action, refused(403, text.replace("used: pods=5", "used: pods=6"))).urgency is Urgency.NONE
    bench.created(bench.only(bench.wait(60)))
    assert status(bench, "Stalled") == "False"


def test_a_stall_and_its_end_are_each_recorded_once() -> None:
    bench = accepted()
    action = bench.only(bench.plan())
    told = []
    for _ in range(5):
        told += bench.fold(action, refused(403, "exceeded quota: q")).records
        bench.wait(60)
    told += bench.fold(action, Created("cm")).records
    assert [(item.reason, item.warning) for item in told if item.reason is not RequestReason.WAITING] == [
        (RequestReason.QUOTA_EXCEEDED, True),
        (LifeReason.FRAMEWORK_ATTEMPT_STARTED, False),
        (LifeReason.PROGRESSING, False),
    ]


def test_a_new_process_does_not_tell_that_a_stall_is_over_before_it_has_looked() -> None:
    bench = accepted()
    bench.fold(bench.only(bench.plan()), refused(403, "exceeded quota: q"))
    assert status(bench, "Stalled") == "True"
    bench.restart()
    assert [item.reason for item in bench.plan().records] == []


def test_a_failure_that_may_pass_stalls_only_when_it_continues() -> None:
    bench = begun()
    action = bench.only(bench.plan())
    for failures in range(1, 6):
        bench.fold(action, Unanswered("connection reset"))
        assert (status(bench, "Stalled") is not None) == (failures >= 3)
        assert bench.only(bench.wait(60)) == action
    found = condition(bench, "Stalled")
    assert "connection reset" in found.message
    assert "f-a-0" in found.message


def test_stalled_by_a_pod_that_does_not_go_away() -> None:
    bench = Bench(role())
    bench.pod()
    bench.run()
    bench.show("f-a-0", deleting=bench.now + 30)
    made = bench.plan()
    assert status(bench, "Stalled") is None
    assert made.requeue_after == 150
    bench.pass_time(149)
    assert status(bench, "Stalled") is None
    bench.now += 1
    made = bench.plan()
    found = condition(bench, "Stalled")
    assert (found.status, found.last_transition_time) == ("True", bench.now)
    assert "f-a-0" in found.message
    assert "node-1" in found.message
    assert made.requeue_after is None
    bench.hide_then_plan("f-a-0")
    bench.plan()
    assert status(bench, "Stalled") == "False"


def test_the_end_of_an_attempt_ends_its_stall() -> None:
    bench = begun()
    bench.refuse(bench.only(bench.plan()), Exists(foreign("f-a-0")))
    assert status(bench, "Stalled") == "True"
    bench.edit_then_plan(executionType="Stop")
    bench.fold(bench.only(bench.plan()), Accepted())
    bench.hide_then_plan("f-attempt")
    bench.plan()
    assert status(bench, "Stalled") == "False"
    assert status(bench, "Completed") == "True"


def test_many_stalls_have_a_short_message() -> None:
    bench = begun(role(number=50))
    for action in bench.plan().actions:
        bench.fold(action, refused(403, f"{action.target.name}: exceeded quota: q"))
    found = condition(bench, "Stalled")
    assert "47 more" in found.message
    assert len(found.message) < 1000
