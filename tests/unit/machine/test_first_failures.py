"""The first failure of an attempt (docs/long-training.md, "The first failure"), as tables, and with many Tasks."""

from __future__ import annotations

import random
from typing import Final
from unittest.mock import patch

import orjson
import pytest

from frameworkcontroller.api.codec import decode_status, encode_status
from frameworkcontroller.api.completion import Outcome
from frameworkcontroller.api.status import FirstFailure, State
from frameworkcontroller.machine.headline import set_headline
from frameworkcontroller.machine.kernel.actions import Delete
from frameworkcontroller.machine.kernel.exchanges import Accepted
from frameworkcontroller.machine.kernel.failure import Classifier
from frameworkcontroller.machine.kernel.tracker import Tracker
from frameworkcontroller.machine.parts.firstfailure.firstfailures import MOST, first_of, with_failure
from tests.support.bench import NOW, Bench, begun, refused, role
from tests.support.failures import CAUSE, GLOO, NCCL, FailingAttempt, Fate, bench_of, end, fail, go_on


def first(bench: Bench) -> FirstFailure:
    found = bench.status.first_failure
    assert found is not None
    return found


def message(bench: Bench) -> str:
    set_headline(bench.tracker, bench.status, bench.framework)
    return bench.status.message


# --- one Task -------------------------------------------------------------------------------------------------------


def test_a_container_that_fails() -> None:
    bench = bench_of(role(failed=1))
    fail(bench, "f-a-0", end(code=7, after=5, message=CAUSE))
    assert first(bench) == FirstFailure(
        framework_attempt_id=0,
        task_role_name="a",
        task_index=0,
        task_attempt_id=0,
        time=NOW + 5,
        code=7,
        phrase="ContainerUnrecognizedFailed",
        node_name="node-1",
        container_name="main",
        message="main exited with 7: ValueError: bad batch",
        certain=True,
    )
    assert message(bench) == "a[0] on node-1: main exited with 7: ValueError: bad batch"


def test_of_several_containers_the_first_one_counts() -> None:
    bench = bench_of(role(failed=1))
    fail(bench, "f-a-0", end("log", 3, 9), end("main", 7, 5), end("data", 0, 1))
    assert (first(bench).container_name, first(bench).time, first(bench).code) == ("main", NOW + 5, 3)
    assert first(bench).message == "main exited with 7"


def test_a_container_that_follows_another_one_in_its_pod() -> None:
    bench = bench_of(role(failed=1))
    fail(bench, "f-a-0", end("main", 1, 2, GLOO), end("other", 7, 5))
    assert (first(bench).container_name, first(bench).certain) == ("other", True)


def test_only_consequences() -> None:
    bench = bench_of(role(number=2, failed=1))
    fail(bench, "f-a-0", end(code=134, message=NCCL))
    assert (first(bench).key, first(bench).cascade, first(bench).certain) == (("a", 0), True, False)
    assert orjson.loads(encode_status("f", bench.status))["firstFailure"]["cascade"] is True


def test_a_refused_pod() -> None:
    bench = begun(role(failed=1))
    bench.fold(bench.only(bench.plan()), refused(422, "no image"))
    go_on(bench)
    assert (first(bench).code, first(bench).container_name, first(bench).certain) == (-200, "", True)


def test_an_evicted_pod() -> None:
    bench = bench_of(role(failed=1))
    fail(bench, "f-a-0", reason="Evicted", message="The node was low on resource: memory")
    assert (first(bench).phrase, first(bench).message) == (
        "PodEvicted",
        "Evicted: The node was low on resource: memory",
    )


def test_a_pod_that_another_client_deletes_counts_from_the_end_of_its_container() -> None:
    bench = bench_of(role(number=2, failed=2))
    bench.show_then_plan("f-a-0", deleting=NOW + 30)
    assert [one.certain for one in bench.status.earliest_failures] == [False]
    bench.show("f-a-0", phase="Failed", containerStatuses=[end(code=143, after=8)])
    bench.drop("f-a-0", removed=True)
    go_on(bench)
    fail(bench, "f-a-1", end(after=12), node="node-2")
    assert (first(bench).code, first(bench).time, first(bench).certain) == (-101, NOW + 8, True)


def test_a_pod_that_is_gone_leaves_it_uncertain() -> None:
    bench = bench_of(role(number=2, failed=2))
    bench.drop("f-a-0")
    go_on(bench)
    fail(bench, "f-a-1", end(after=50), node="node-2")
    assert (first(bench).code, first(bench).certain) == (-101, False)
    assert message(bench).startswith("2 of 2 Tasks failed; probably first: a[0] on node-1: Pod was deleted by others")


# --- several Tasks ----------------------------------------------------------------------------------------------------

TWO: Final = {
    "two seconds later on another node": (("node-1", 5), ("node-2", 7), 0, False),
    "three seconds later on another node": (("node-1", 5), ("node-2", 8), 0, True),
    "three seconds earlier, and seen later": (("node-1", 8), ("node-2", 5), 1, True),
    "one second later on the same node": (("node-1", 5), ("node-1", 6), 0, True),
    "in the same second on the same node": (("node-1", 5), ("node-1", 5), 0, False),
}


@pytest.mark.parametrize("case", TWO)
def test_two_failures(case: str) -> None:
    (node, time), (other, later), expected, certain = TWO[case]
    bench = bench_of(role(number=2, failed=2))
    fail(bench, "f-a-0", end(after=time), node=node)
    assert bench.status.first_failure is None
    bench.restart()
    fail(bench, "f-a-1", end(after=later), node=other)
    assert (first(bench).task_index, first(bench).certain) == (expected, certain)


def test_it_is_not_certain_while_pods_exist() -> None:
    bench = bench_of(role(number=2, failed=1))
    bench.show("f-a-0", phase="Failed", containerStatuses=[end(after=5)])
    bench.plan()
    bench.fold(bench.expect(Delete), Accepted())
    bench.drop("f-a-0", removed=True)
    for _ in range(3):
        bench.plan()
    assert bench.status.state is State.DELETION_PENDING
    assert (first(bench).key, first(bench).certain) == (("a", 0), False)
    go_on(bench)
    assert (first(bench).key, first(bench).certain) == (("a", 0), False)  # the end of a[1] was not seen


def test_a_retried_failure_does_not_count() -> None:
    bench = bench_of(role(number=2, failed=1, retryPolicy={"maxRetryCount": 1}))
    fail(bench, "f-a-0", end(after=1))
    assert bench.status.earliest_failures == []
    bench.run("f-a-0")
    fail(bench, "f-a-1", end(after=100))
    bench.run("f-a-1")
    fail(bench, "f-a-1", end(after=200))
    assert (first(bench).key, first(bench).task_attempt_id, first(bench).time) == (("a", 1), 1, NOW + 200)


def test_a_scaled_down_failure_does_not_count() -> None:
    bench = bench_of(role(number=2, failed=2))
    fail(bench, "f-a-1", end(after=1))
    bench.edit(role(number=1, failed=2))
    go_on(bench)
    assert bench.status.earliest_failures == []


def test_the_next_attempt_keeps_it() -> None:
    bench = bench_of(role(failed=1), retryPolicy={"maxRetryCount": 1})
    fail(bench, "f-a-0", end(code=7, after=1))
    assert (bench.status.attempt.id, bench.status.earliest_failures) == (1, [])
    bench.run()
    bench.show("f-a-0", phase="Succeeded", containerStatuses=[end(code=0)])
    go_on(bench)
    assert bench.status.state is State.COMPLETED
    assert (first(bench).framework_attempt_id, first(bench).code) == (0, 7)


def test_an_attempt_that_succeeds_has_none() -> None:
    bench = bench_of(role(number=2, failed=-1, succeeded=1))
    fail(bench, "f-a-1", end(code=7, after=1))
    bench.show("f-a-0", phase="Succeeded", containerStatuses=[end(code=0)])
    go_on(bench)
    assert bench.completion().outcome is Outcome.SUCCEEDED
    assert bench.status.first_failure is None


def test_an_attempt_that_is_stopped_has_none() -> None:
    bench = bench_of(role(number=2, failed=-1))
    fail(bench, "f-a-1", end(code=7, after=1))
    bench.edit(executionType="Stop")
    go_on(bench)
    assert bench.status.first_failure is None


def test_a_success_costs_no_field_and_no_write() -> None:
    bench = bench_of(role())
    bench.end("f-a-0")
    assert {"firstFailure", "earliestFailures"}.isdisjoint(orjson.loads(encode_status("f", bench.status)))


def test_a_failure_causes_no_write_of_its_own() -> None:
    def writes(*, noted: bool) -> int:
        bench = bench_of(role(number=3, failed=2))
        with patch.object(Tracker, "record_failures", autospec=True) as skipped:
            if noted:
                skipped.side_effect = original
            fail(bench, "f-a-0", end(after=1))
            fail(bench, "f-a-1", end(after=2))
        return bench.writes

    original = Tracker.record_failures
    assert writes(noted=True) == writes(noted=False)


def test_the_fields_survive_encoding() -> None:
    bench = bench_of(role(number=2, failed=1))
    fail(bench, "f-a-0", end(code=134, message=NCCL))
    decoded = decode_status(orjson.loads(encode_status("f", bench.status)))
    assert decoded is not None
    assert (decoded.first_failure, decoded.earliest_failures) == (
        bench.status.first_failure,
        bench.status.earliest_failures,
    )


# --- many Tasks -------------------------------------------------------------------------------------------------------


def failure(index: int, time: int, node: str = "", *, certain: bool = True, cascade: bool = False) -> FirstFailure:
    return FirstFailure(0, "a", index, 0, time, 1, node_name=node, certain=certain, cascade=cascade)


def test_only_the_earliest_are_kept() -> None:
    kept: list[FirstFailure] = []
    times = list(range(100))
    random.Random(7).shuffle(times)
    for time in times:
        kept = with_failure(kept, failure(time, time, cascade=time < 50))
    assert [one.time for one in kept] == list(range(50, 50 + MOST))


def test_a_failure_that_was_not_seen_stays() -> None:
    kept = with_failure([], failure(0, 90, certain=False))
    for index in range(1, 20):
        kept = with_failure(kept, failure(index, index))
    assert [one.task_index for one in kept] == [*range(1, MOST), 0]
    assert not first_of(kept, unseen=False).certain


def test_failures_that_are_not_kept_may_have_been_as_early() -> None:
    kept: list[FirstFailure] = [failure(0, 0, "node-1")]
    for index in range(1, 20):
        kept = with_failure(kept, failure(index, 1, "node-1" if index < 10 else "node-2"))
    assert not first_of(kept, unseen=False).certain


def thousand(seed: int, number: int = 1000) -> tuple[int, list[Fate]]:
    """One of the Tasks fails, and the others follow within a second; the controller sees them in any order."""
    rng = random.Random(seed)
    cause = rng.randrange(number)
    words = {GLOO: 1, NCCL: 134}
    fates = []
    for index in range(number):
        said = rng.choice([*words])
        later, lag = rng.random(), 3 * rng.random()
        own = Fate(index // 8, 10.25, CAUSE, 7, lag)
        fates.append(own if index == cause else Fate(index // 8, 10.25 + later, said, words[said], lag))
    return cause, fates


@pytest.mark.parametrize("seed", range(3))
def test_one_of_a_thousand_tasks_fails_and_the_others_follow(seed: int) -> None:
    cause, fates = thousand(seed)
    attempt = FailingAttempt(fates).play()
    found = first(attempt.bench)
    assert (found.task_index, found.code, found.container_name) == (cause, 7, "main")
    assert f"first: a[{cause}] on node-{cause // 8}: main exited with 7: ValueError: bad batch" in message(
        attempt.bench
    )


def test_one_of_a_thousand_is_certain_once_all_ends_are_seen() -> None:
    cause, fates = thousand(4)
    attempt = FailingAttempt(fates, failed=len(fates)).play()
    assert (first(attempt.bench).task_index, first(attempt.bench).certain) == (cause, True)
    assert len(attempt.bench.status.earliest_failures) == MOST


def test_the_cost_is_linear() -> None:
    """Each end of a Pod is classified once."""
    for number in (50, 200):
        _, fates = thousand(5, number)
        with patch.object(Classifier, "cascading", autospec=True, side_effect=lambda *_: frozenset()) as asked:
            attempt = FailingAttempt(fates, failed=number)
            for index in range(number):
                attempt._show(index)
            attempt._plan()
        assert asked.call_count <= 2 * number
