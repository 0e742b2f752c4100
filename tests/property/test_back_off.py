"""A back-off prevents hot loops for every cause of retries, also when controllers restart."""

from __future__ import annotations

import math
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frameworkcontroller.api.status import State
from tests.support.bench import NOW, Bench, limits, role

POD: Final = "f-a-0"
RAN = st.sampled_from([0, 0, 0, 1, 29, 30, 599])
ENDS = st.lists(st.tuples(st.integers(0, 599), st.sampled_from([0, 1, 137, 200, 201]), st.booleans()), max_size=12)
"""Run time and exit code of each attempt, and whether the controller then restarts."""

ALWAYS: Final = {"fancyRetryPolicy": False, "maxRetryCount": -2}
FANCY: Final = {"fancyRetryPolicy": True, "maxRetryCount": -2}
EXITS: Final = (1, 137, 200, 201)
NEVER_RUNS: Final = "never runs"
DELETED: Final = "is deleted"
TAINTED: Final = "is deleted by the taint manager"
FAILURES: Final = (*EXITS, NEVER_RUNS, DELETED, TAINTED)


def by_rule(action: str) -> dict[str, Any]:
    """A rule for each failure."""
    patterns: list[dict[str, Any]] = [
        {"onPodConditions": [{"type": "DisruptionTarget"}]},
        {"onExitCodes": {"operator": "NotIn", "values": [255]}},
        {"onCompletionCodes": {"operator": "NotIn", "values": [0]}},
    ]
    return {"podFailurePolicy": {"rules": [{"action": action, **pattern} for pattern in patterns]}}


LOOPS: Final[dict[str, tuple[dict[str, Any], dict[str, Any], tuple[int | str, ...]]]] = {
    "fancyRetryPolicy": ({"retryPolicy": FANCY}, {}, (0, *FAILURES)),
    "Count": ({"retryPolicy": FANCY, **by_rule("Count")}, {}, (0, *FAILURES)),
    "Ignore": (by_rule("Ignore"), {}, FAILURES),
    "FailTask": ({"retryPolicy": ALWAYS, **by_rule("FailTask")}, {}, FAILURES),
    "RestartFramework": (by_rule("RestartFramework"), {"retryPolicy": ALWAYS}, FAILURES),
    "RestartFramework, fancyRetryPolicy": (by_rule("RestartFramework"), {"retryPolicy": FANCY}, FAILURES),
    "FailFramework": (by_rule("FailFramework"), {"retryPolicy": ALWAYS}, FAILURES),
    "-260": ({"retryPolicy": ALWAYS}, {}, (NEVER_RUNS,)),
    "-260 of the Framework": ({}, {"retryPolicy": ALWAYS}, (NEVER_RUNS,)),
    "-260 of the Framework, fancyRetryPolicy": ({}, {"retryPolicy": FANCY}, (NEVER_RUNS,)),
}
"""Fields of the Task, fields of the Framework, and what may end an attempt: all that retries without end."""


@given(base=st.integers(1, 50), factor=st.integers(1, 40), fancy=st.booleans(), ends=ENDS)
def test_retries_in_a_row_are_bounded(base: int, factor: int, fancy: bool, ends: list[tuple[int, int, bool]]) -> None:
    longest = base * factor
    backoff = {"baseSeconds": base, "maxSeconds": longest}
    bench = Bench(role(retryPolicy={"fancyRetryPolicy": fancy, "maxRetryCount": -2, "backoff": backoff}))
    bench.all_pods()
    at_most_below_longest = math.ceil(math.log2(factor)) + 1
    for ran, code, restarts in ends:
        bench.run()
        bench.now += ran
        bench.end(code=code)
        if restarts:
            bench.restart()
        while bench.state() is State.ATTEMPT_COMPLETED:
            bench.now += bench.plan().requeue_after or 0
            bench.settle()
        retries = bench.task().retry.total_retried_count
        assert retries <= at_most_below_longest + (bench.now - NOW) / longest
    assert bench.task().retry.total_retried_count == len(ends)


@pytest.mark.parametrize("loop", LOOPS)
@given(data=st.data())
def test_endless_retries_are_bounded(loop: str, data: st.DataObject) -> None:
    task, spec, ways = LOOPS[loop]
    bench = Bench(role(failed=int("-260 of" in loop), preRunningDeadlineSeconds=1, **task), **spec)
    bench.all_pods()
    bounds = limits()
    base, longest = bounds.task_min_retry_delay_sec, bounds.task_max_retry_delay_sec
    at_once = 3 + math.ceil(math.log2(longest / base)) + 1
    retries = late = 0
    ends = st.lists(st.tuples(RAN, st.sampled_from(ways), st.booleans()), max_size=15)
    for ran, way, restarts in data.draw(ends):
        end(bench, ran, way)
        late += way == TAINTED and ran >= 30
        if restarts:
            bench.restart()
        bench.settle()
        go_on(bench)
        if POD not in bench.pods:
            break
        retries += 1
        assert retries <= at_once + late + (bench.now - NOW) / longest
    if loop in ("FailTask", "FailFramework"):
        assert retries == 0


def end(bench: Bench, ran: int, way: int | str) -> None:
    """The Task's attempt ends in this way after this running time."""
    if way == NEVER_RUNS:
        bench.now += 1
        bench.touch(POD)
        bench.plan()
        return
    bench.run()
    bench.now += ran
    if isinstance(way, int):
        bench.stop(code=way)
        return
    reason = "DeletionByTaintManager"
    conditions = [{"type": "DisruptionTarget", "status": "True", "reason": reason}] if way == TAINTED else []
    bench.show(POD, deleting=bench.now + 30, conditions=conditions)
    bench.plan()
    bench.hide(POD)


def go_on(bench: Bench) -> None:
    """Time passes until there is a Pod again, or the Framework is completed."""
    for _ in range(50):
        if POD in bench.pods or bench.status.state is State.COMPLETED:
            return
        wake = bench.plan().requeue_after
        if wake is None and not bench.tracker.is_busy:
            return
        bench.now += wake or 0
        bench.settle()
