"""Rules of podFailurePolicy (docs/failures-and-retries.md, "Failure rules")."""

from dataclasses import replace
from typing import Any

import orjson
import pytest

from frameworkcontroller.api.codec import encode_status
from frameworkcontroller.api.completion import DecidedRule, FailureAction
from frameworkcontroller.api.objects import PodRecord, pod_record
from frameworkcontroller.api.spec import parse_spec
from frameworkcontroller.api.status import State
from frameworkcontroller.machine.kernel.exchanges import Accepted
from frameworkcontroller.machine.kernel.failure import Classifier
from frameworkcontroller.machine.kernel.model import Plan
from frameworkcontroller.machine.kernel.rules import with_rule
from frameworkcontroller.machine.lifereasons import LifeReason
from tests.support.bench import Bench, begun, prepared, refused, role, running

Json = dict[str, Any]


def exits(*values: int, operator: str = "In", container: str | None = None) -> Json:
    return {"onExitCodes": {"operator": operator, "values": list(values), "containerName": container}}


def codes(*values: int, operator: str = "In") -> Json:
    return {"onCompletionCodes": {"operator": operator, "values": list(values)}}


def condition(kind: str = "DisruptionTarget", **more: str) -> Json:
    return {"onPodConditions": [{"type": kind, **more}]}


def rules(*given: tuple[str, Json]) -> Json:
    return {"podFailurePolicy": {"rules": [{"action": action, **pattern} for action, pattern in given]}}


DISRUPTED = [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "why"}]


def pod(
    *containers: tuple[str, int | None], conditions: list[Json] | None = None, sidecar: tuple[str, int] | None = None
) -> PodRecord:
    """A failed Pod: names and exit codes of its containers, None for one that has not ended."""

    def status(name: str, code: int | None) -> Json:
        return {"name": name, "state": {"running": {}} if code is None else {"terminated": {"exitCode": code}}}

    return pod_record(
        {
            "metadata": {"namespace": "ns", "name": "f-a-0", "uid": "u", "resourceVersion": "1"},
            "spec": {"initContainers": [{"name": sidecar[0], "restartPolicy": "Always"}] if sidecar else []},
            "status": {
                "phase": "Failed",
                "initContainerStatuses": [status(*sidecar)] if sidecar else [],
                "containerStatuses": [status(*container) for container in containers],
                "conditions": conditions or [],
            },
        }
    )


# --- which rule matches -------------------------------------------------------------------------------------------

ONE = pod(("main", 42))
TWO = pod(("main", 42), ("other", 0))
MANY = pod(("main", 1), ("other", 42), ("left", None))
WITH_SIDECAR = pod(("main", 1), sidecar=("side", 42))
EVICTED = pod(("main", 137), conditions=[*DISRUPTED, {"type": "Ready", "status": "False", "reason": "PodFailed"}])
NOT_EVICTED = pod(("main", 137), conditions=[{**DISRUPTED[0], "status": "False"}])


@pytest.mark.parametrize(
    ("failed", "pattern", "expected"),
    [
        (ONE, exits(42), True),
        (ONE, exits(41, 42, 43), True),
        (ONE, exits(41), False),
        (ONE, exits(41, operator="NotIn"), True),
        (ONE, exits(42, operator="NotIn"), False),
        # As of a Job: one of several containers is enough, and one that ended with 0 never counts.
        (TWO, exits(42, operator="NotIn"), False),
        (TWO, exits(42, container="other", operator="NotIn"), False),
        (TWO, exits(42, container="other"), False),
        (TWO, exits(42, container="none"), False),
        (MANY, exits(42), True),
        (MANY, exits(42, operator="NotIn"), True),
        (MANY, exits(42, container="main"), False),
        (MANY, exits(42, container="main", operator="NotIn"), True),
        (MANY, exits(1, container="left", operator="NotIn"), False),
        (WITH_SIDECAR, exits(42), False),
        (WITH_SIDECAR, exits(42, container="side"), True),
        (EVICTED, condition(), True),
        (EVICTED, condition(status="True"), True),
        (EVICTED, condition(status="False"), False),
        (EVICTED, condition(reason="EvictionByEvictionAPI"), True),
        (EVICTED, condition(reason="DeletionByPodGC"), False),
        (EVICTED, condition("Ready"), False),
        (EVICTED, condition("Ready", status="False", reason="PodFailed"), True),
        (EVICTED, {"onPodConditions": [{"type": "Other"}, {"type": "DisruptionTarget"}]}, True),
        (NOT_EVICTED, condition(), False),
        (NOT_EVICTED, condition(status="False"), True),
        (ONE, condition(), False),
        (ONE, codes(42), True),
        (ONE, codes(41), False),
        (ONE, codes(42, operator="NotIn"), False),
        (EVICTED, codes(137), True),
    ],
)
def test_which_failures_match(failed: PodRecord, pattern: Json, expected: bool) -> None:
    task = parse_spec({"taskRoles": [role(**rules(("FailTask", pattern)))]}).task_roles[0].task
    completion = Classifier().classify(failed)
    decided = with_rule(task.pod_failure_policy, completion, failed)
    assert decided.policy == (DecidedRule(FailureAction.FAIL_TASK, 0) if expected else None)
    assert replace(decided, policy=None) == completion


# --- actions ------------------------------------------------------------------------------------------------------


def started(*given: tuple[str, Json], number: int = 1, retry: Json | None = None, **spec: Any) -> Bench:
    """A Framework whose Pods run."""
    return running(role(number=number, retryPolicy=retry or {}, **rules(*given)), **spec)


def decided(bench: Bench) -> Json | None:
    """The rule that ended the attempt, in the stored status."""
    body = orjson.loads(encode_status("f", bench.status))
    found: Json | None = body["attemptStatus"]["completionStatus"].get("policy")
    return found


def test_count_leaves_the_decision_to_the_retry_policy() -> None:
    bench = started(("Count", exits(42)), retry={"maxRetryCount": 1})
    bench.end(code=42)
    assert (bench.task().attempt.id, bench.task().retry.accountable_retried_count) == (1, 1)
    bench.run()
    bench.stop(code=42)
    bench.settle()
    assert bench.state() is State.COMPLETED
    assert bench.completion().succeeded


def test_count_is_not_the_fancy_retry_policy_switched_off() -> None:
    bench = started(("Count", exits(200)), retry={"fancyRetryPolicy": True})
    bench.end(code=200)
    assert (bench.task().attempt.id, bench.task().retry.accountable_retried_count) == (1, 0)


def test_ignore_retries_and_does_not_count() -> None:
    bench = started(("Ignore", exits(42)), number=2)
    for number in range(3):
        bench.end(code=42)
        assert (bench.task().attempt.id, bench.task().retry.accountable_retried_count) == (number + 1, 0)
        bench.run()
    bench.end(code=41)
    assert bench.state() is State.COMPLETED


def test_ignore_backs_off_and_a_disruption_does_not() -> None:
    bench = started(("Ignore", exits(42)), ("Ignore", condition()), number=2)
    for _ in range(3):
        bench.end(code=42)
        bench.run()
    for _ in range(2):
        bench.now += 30
        bench.show_then_plan("f-a-0", deleting=bench.now + 30, conditions=DISRUPTED)
        bench.hide("f-a-0")
        bench.settle()
        assert bench.state() is State.PREPARING
        bench.run()
    bench.end(code=42)
    assert (bench.state(), bench.task().retry.retry_delay_sec) == (State.ATTEMPT_COMPLETED, 10)


def test_fail_task_does_not_retry() -> None:
    bench = started(("FailTask", exits(200)), number=2, retry={"fancyRetryPolicy": True, "maxRetryCount": -2})
    bench.end(code=200)
    assert bench.states() == ["Completed", "Running"]
    assert bench.status.attempt.completion_status is None


def test_a_copied_fail_task_says_nothing_of_the_framework() -> None:
    failing = role(failed=1, **rules(("FailTask", exits(42))))
    bench = prepared(failing, retryPolicy={"maxRetryCount": 1})
    bench.run()
    bench.end(code=42)
    assert bench.status.attempt.id == 1
    bench.run()
    bench.end(code=42)
    assert bench.status.state is State.COMPLETED
    assert decided(bench) is None


@pytest.mark.parametrize("retry", [{"maxRetryCount": -2}, {"fancyRetryPolicy": True}])
def test_fail_framework(retry: Json) -> None:
    bench = started(("FailFramework", exits(200)), number=3, retry=retry, retryPolicy=retry)
    bench.end("f-a-1", code=200)
    assert bench.status.state is State.COMPLETED
    assert bench.states() == ["Completed"] * 3
    completion = bench.completion()
    assert completion.code == 200
    assert completion.trigger is not None
    assert (completion.trigger.task_role_name, completion.trigger.task_index) == ("a", 1)
    assert completion.trigger.message == "podFailurePolicy.rules[0] is FailFramework"
    assert decided(bench) == {"action": "FailFramework", "rule": 0}
    assert bench.task_codes() == [-220, 200, -220]


@pytest.mark.parametrize(
    ("retry", "attempt", "counted"),
    [({}, 0, 0), ({"maxRetryCount": 1}, 1, 1), ({"fancyRetryPolicy": True}, 1, 0)],
)
def test_restart_framework(retry: Json, attempt: int, counted: int) -> None:
    endless = {"maxRetryCount": -2}
    bench = started(("RestartFramework", codes(200)), number=2, retry=endless, retryPolicy=retry)
    bench.end(code=200)
    assert (bench.status.attempt.id, bench.status.retry.accountable_retried_count) == (attempt, counted)
    assert (bench.status.state is State.COMPLETED) is (attempt == 0)


def records(bench: Bench) -> list[str]:
    """The records until the Framework is completed."""
    found: list[str] = []
    for _ in range(50):
        made: Plan = bench.plan()
        found += [f"{record.reason}: {record.message}" for record in made.records]
        for action in made.actions:
            bench.hide(action.target.name)
        if bench.status.state is State.COMPLETED:
            break
    return found


def test_the_rule_is_in_records_and_conditions() -> None:
    bench = started(("FailFramework", exits(42)), retry={"maxRetryCount": -1}, retryPolicy={"maxRetryCount": -1})
    bench.stop(code=42)
    told = records(bench)
    said = "42 ContainerUnrecognizedFailed (Task a[0]: podFailurePolicy.rules[0] is FailFramework)"
    assert any(
        one.startswith(f"{LifeReason.FRAMEWORK_ATTEMPT_COMPLETING}: FrameworkAttempt 0") and said in one for one in told
    )
    why = f"Framework completed, not retried as podFailurePolicy.rules[0] is FailFramework, with {said}"
    assert any(one.startswith(f"{LifeReason.FRAMEWORK_FAILED}: {why}") for one in told)
    (failed,) = (one for one in bench.status.conditions if one.type == "Failed")
    assert failed.message.startswith(said)


# --- when the rules are asked -------------------------------------------------------------------------------------


def test_both_levels_are_decided_in_one_write() -> None:
    bench = started(("FailFramework", exits(42)), number=2)
    bench.stop(code=42)
    made = bench.plan(write=False)
    assert not made.actions
    assert bench.task().attempt.completion_status is not None
    assert bench.status.attempt.completion_status is not None


@pytest.mark.parametrize("later", [False, True])
def test_a_change_of_the_rules_after_the_end_changes_nothing(later: bool) -> None:
    """``later``: the rule is added. Otherwise, it is removed, and another process takes over."""
    retry = {"maxRetryCount": -1}
    bench = started(*([] if later else [("FailTask", exits(42))]), number=2, retry=retry)
    bench.stop_then_plan(code=42)
    assert bench.state() is State.DELETION_PENDING
    bench.edit(role(number=2, retryPolicy=retry, **(rules(("FailFramework", exits(42))) if later else {})))
    if not later:
        bench.restart()
    bench.settle()
    assert bench.states() == ["Preparing" if later else "Completed", "Running"]


def test_the_scale_down_of_a_task_that_fails_as_it_stops() -> None:
    bench = started(("FailFramework", exits(42)), number=2)
    bench.edit_then_plan(role(number=1, **rules(("FailFramework", exits(42)))))
    bench.stop("f-a-1", code=42)
    bench.settle()
    assert bench.states() == ["Running"]
    assert bench.status.attempt.completion_status is None


def test_no_rule_counts_once_the_attempt_ends() -> None:
    bench = started(("FailFramework", exits(42)), number=2, retryPolicy={"maxRetryCount": 1})
    bench.edit_then_plan(executionType="Stop")
    bench.stop(code=42)
    bench.settle()
    assert bench.code() == -210
    assert decided(bench) is None


def test_exit_codes_of_a_pod_that_others_delete_do_not_count() -> None:
    """They do not count if the deletion is seen first, so they must not if both are seen at once."""
    bench = started(("FailFramework", exits(143)), number=2, retry={"fancyRetryPolicy": True})
    terminated = {"name": "main", "state": {"terminated": {"exitCode": 143}}}
    bench.show_then_plan("f-a-0", phase="Failed", deleting=bench.now + 30, containerStatuses=[terminated])
    bench.hide("f-a-0")
    bench.settle()
    assert bench.task().attempt.id == 1


@pytest.mark.parametrize("restart", [False, True])
def test_conditions_of_a_pod_that_others_delete(restart: bool) -> None:
    bench = started(("RestartFramework", condition(reason="EvictionByEvictionAPI")), number=2)
    bench.show_then_plan("f-a-0", deleting=bench.now + 30, conditions=DISRUPTED)
    if restart:
        bench.restart()
    bench.hide("f-a-0")
    bench.settle()
    assert bench.code() == -1010
    assert decided(bench) == {"action": "RestartFramework", "rule": 0}


def test_conditions_of_a_pod_that_is_gone_at_once() -> None:
    bench = started(("FailTask", condition()), number=2, retry={"fancyRetryPolicy": True})
    bench.show_then_plan("f-a-0", conditions=DISRUPTED)
    assert bench.state() is State.RUNNING
    bench.drop("f-a-0", removed=True)
    bench.settle()
    assert bench.state() is State.COMPLETED


def test_a_disruption_without_a_code_of_its_own() -> None:
    bench = started(("FailTask", condition(reason="OfMyOwn")), number=2, retry={"fancyRetryPolicy": True})
    bench.show_then_plan("f-a-0", deleting=bench.now + 30, conditions=[{**DISRUPTED[0], "reason": "OfMyOwn"}])
    bench.hide("f-a-0")
    bench.settle()
    assert bench.state() is State.COMPLETED


@pytest.mark.parametrize("restart", [False, True])
def test_a_pod_that_is_refused(restart: bool) -> None:
    """It is learnt between plans: the next one ends the attempt, and creates nothing."""
    bench = begun(role(number=3, **rules(("FailFramework", codes(-200)))), retryPolicy={"maxRetryCount": -1})
    first, *_ = bench.plan().actions
    bench.fold(first, refused(422))
    if restart:
        bench.restart()
    bench.idle()
    assert bench.status.attempt.completion_status is not None
    bench.settle()
    assert bench.status.state is State.COMPLETED
    assert decided(bench) == {"action": "FailFramework", "rule": 0}


@pytest.mark.parametrize("failed", [0, 1])
@pytest.mark.parametrize("restart", [False, True])
def test_the_last_task_that_is_refused_ends_the_attempt_by_its_rule(failed: int, restart: bool) -> None:
    """It completes in the plan that ends the attempt, by which a completion policy is met, too."""
    bench = begun(role(failed=failed, **rules(("FailFramework", codes(-200)))), retryPolicy={"maxRetryCount": -1})
    bench.fold(bench.only(bench.plan()), refused(422))
    if restart:
        bench.restart()
    bench.settle()
    completion = bench.completion()
    assert (bench.status.state, completion.code, completion.failed) == (State.COMPLETED, -200, True)
    assert decided(bench) == {"action": "FailFramework", "rule": 0}


@pytest.mark.parametrize("failed", [0, 1])
def test_the_last_task_that_vanishes_as_the_framework_is_suspended(failed: int) -> None:
    bench = running(role(failed=failed, **rules(("FailFramework", codes(-101)))), retryPolicy={"maxRetryCount": -1})
    bench.edit(suspend=True)
    bench.drop("f-a-0", removed=True)
    bench.settle()
    assert bench.status.state is State.COMPLETED
    assert decided(bench) == {"action": "FailFramework", "rule": 0}


def test_no_pod_is_created_by_the_plan_that_ends_the_attempt() -> None:
    growing = role(number=2, **rules(("FailFramework", codes(42))))
    bench = prepared(growing)
    bench.edit_then_plan({**growing, "taskNumber": 3})
    bench.stop(code=42)
    made = bench.plan(write=False)
    assert bench.status.state is State.DELETION_PENDING
    assert not made.actions


def test_a_success_has_no_rule() -> None:
    bench = started(("FailFramework", codes(1, operator="NotIn")), number=2)
    bench.end(code=0)
    assert bench.states() == ["Completed", "Running"]


def test_a_completion_policy_that_is_met_at_the_same_time_comes_first() -> None:
    failing = role(number=2, succeeded=1, **rules(("FailFramework", exits(42))))
    bench = prepared(failing)
    bench.run()
    bench.run("f-a-1")
    bench.stop_then_plan(code=0)
    bench.fold(bench.only(bench.plan()), Accepted())
    bench.hide_then_plan("f-a-0")
    assert bench.state() is State.ATTEMPT_COMPLETED
    bench.stop_then_plan("f-a-1", code=42)
    assert bench.completion().succeeded
    assert bench.task(index=1).attempt.completion_status is not None
    assert decided(bench) is None


def test_a_status_without_rules_has_no_such_field() -> None:
    bench = started(number=2)
    bench.end(code=42)
    assert b'"policy"' not in encode_status("f", bench.status)
