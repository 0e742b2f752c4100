"""No hot loop with a back-off, whatever ends the attempts and however often controllers restart."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from frameworkcontroller.api.status import State
from tests.support.bench import NOW, Bench, role

ENDS = st.lists(st.tuples(st.integers(0, 599), st.sampled_from([0, 1, 137, 200, 201]), st.booleans()), max_size=12)
"""Run time and exit code of each attempt, and whether the controller then restarts."""


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
