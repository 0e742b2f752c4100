"""Waits use the monotonic clock; statuses hold times of the wall clock."""

from collections.abc import Callable

import pytest

from frameworkcontroller.machine.kernel.actions import Create, Delete
from frameworkcontroller.machine.kernel.model import Plan
from frameworkcontroller.machine.kernel.requests import Kind, Unanswered
from tests.support.bench import Bench, limits, refused, role

HOUR = 3600.0


def unseen_pod(bench: Bench) -> Plan:
    """A Pod was created, and the cache does not show it: 300 s."""
    bench.pod(show=False)
    return bench.plan()


def unseen_configmap(bench: Bench) -> Plan:
    """So was a ConfigMap: 300 s."""
    bench.plan()
    bench.created(bench.only(bench.plan()), show=False)
    return bench.plan()


def pod_to_be_forced(bench: Bench) -> Plan:
    """A Pod is being deleted, and is to be gone after 100 s."""
    bench.pod()
    bench.run()
    bench.show("f-a-0", deleting=bench.now + 30)
    return bench.plan()


def retry(bench: Bench) -> Plan:
    """An attempt failed by a transient conflict, and the next one follows after 300 s."""
    bench.pod()
    bench.end(code=201)
    return bench.plan()


def held_request(bench: Bench) -> Plan:
    """A request was not answered."""
    bench.attempt()
    bench.fold(bench.only(bench.plan()), Unanswered("lost"))
    return bench.plan()


def retained(bench: Bench) -> Plan:
    """A completed Framework is kept for 30 days."""
    bench.pod()
    bench.end(code=0)
    return bench.plan()


def waiting_bench() -> Bench:
    """All waits in these tests take 300 s, or as the limits say."""
    return Bench(
        role(podGracefulDeletionTimeoutSec=100, failed=1),
        limit=limits(minimum=300, maximum=300),
        retryPolicy={"fancyRetryPolicy": True, "maxRetryCount": 0},
    )


@pytest.mark.parametrize("hours", [-1, 1], ids=["back", "forward"])
@pytest.mark.parametrize(
    "wait",
    [unseen_pod, unseen_configmap, pod_to_be_forced, retry, held_request, retained],
    ids=lambda wait: wait.__name__,
)
def test_a_wall_clock_that_is_set_changes_no_wait(wait: Callable[[Bench], Plan], hours: int) -> None:
    bench = waiting_bench()
    before = wait(bench).requeue_after
    assert before
    bench.put_clock_back(-hours * HOUR)
    bench.tracker.look_at_all()
    made = bench.idle()
    assert made.requeue_after == pytest.approx(before, abs=1)
    end = bench.now + before + 1
    while not made.actions and bench.status.attempt.id == 0 and bench.now < end:
        assert made.requeue_after is not None
        bench.now += made.requeue_after
        made = bench.plan()
    assert made.actions or bench.status.attempt.id == 1
    assert bench.now <= end


@pytest.mark.parametrize("wait", [unseen_pod, unseen_configmap, retry, retained], ids=lambda wait: wait.__name__)
def test_a_process_that_finds_a_time_yet_to_come_waits_no_longer_than_from_now(wait: Callable[[Bench], Plan]) -> None:
    bench = waiting_bench()
    before = wait(bench).requeue_after
    assert before
    bench.put_clock_back(HOUR)
    bench.restart()
    if wait is unseen_pod:
        bench.plan()
    made = bench.plan()
    assert made.requeue_after == pytest.approx(before, abs=1)


def test_statuses_hold_the_time_of_the_wall_clock() -> None:
    bench = waiting_bench()
    action = held_request(bench)
    assert not action.actions
    bench.put_clock_back(HOUR)
    created = bench.expect(Create, 15)
    bench.created(created)
    bench.run()
    assert bench.task().attempt.run_time == int(bench.now)


def test_a_refusal_that_asks_for_a_pause_gets_it_by_the_same_clock() -> None:
    bench = waiting_bench()
    bench.pod()
    bench.stop_then_plan()
    deletion = bench.expect(Delete)
    assert deletion.target.kind is Kind.POD
    answer = refused(429)
    bench.fold(deletion, type(answer)(429, "slow down", answer.status_json, retry_after_sec=40.0))
    bench.put_clock_back(HOUR)
    made = bench.idle()
    assert made.requeue_after == pytest.approx(40.0, abs=1)
