"""Pods that are always refused, under policies that retry always: each try waits for longer than the one before."""

from itertools import pairwise

from frameworkcontroller.api.status import State
from frameworkcontroller.machine.kernel.actions import Action, Create, Delete
from frameworkcontroller.machine.kernel.exchanges import Accepted
from frameworkcontroller.machine.kernel.requests import Kind
from tests.support.bench import Bench, begun, refused, role

ALWAYS = {"maxRetryCount": -2}
NO = refused(403, 'admission webhook "x" denied the request')


def next_action(bench: Bench) -> Action:
    """The next actions, after any number of status writes and any wait."""
    for _ in range(10):
        made = bench.wait(60)
        if made.actions:
            return bench.only(made)
    raise AssertionError("nothing is asked for")


def test_a_task() -> None:
    bench = begun(role(retryPolicy=ALWAYS), role("b"))
    action, other = bench.plan().actions
    bench.created(other)
    waits = []
    for attempt in range(1, 11):
        bench.fold(action, NO)
        began = bench.now
        action = next_action(bench)
        assert action.target.attempt_id == attempt
        waits.append(bench.now - began)
    assert 0.3 < waits[0] <= 0.5
    assert all(later > 1.4 * earlier for earlier, later in pairwise(waits[:5]))
    assert 11 < waits[-1] <= 15
    # Nothing of that is left once a Pod was created: it ends, and its Task is retried at once.
    bench.created(action)
    bench.plan()
    bench.end(code=1)
    assert bench.task().attempt.id == 11
    assert bench.task().state is State.PREPARING


def test_a_task_that_is_refused_once_is_not_waited_for_by_others() -> None:
    bench = begun(role(number=3, retryPolicy=ALWAYS))
    first, second, third = bench.plan().actions
    bench.fold(first, NO)
    bench.created(second)
    bench.created(third)
    bench.plan()
    assert bench.task(index=1).state is State.PREPARING


def test_a_framework() -> None:
    bench = begun(role(failed=1), retryPolicy=ALWAYS)
    waits = []
    for _ in range(8):
        bench.fold(next_action(bench), NO)
        deletion = next_action(bench)
        assert isinstance(deletion, Delete)
        bench.fold(deletion, Accepted())
        bench.hide("f-attempt")
        began = bench.now
        creation = next_action(bench)
        assert isinstance(creation, Create)
        assert creation.target.kind is Kind.CONFIGMAP
        waits.append(bench.now - began)
        bench.created(creation)
    assert 0.3 < waits[0] <= 0.5
    assert all(later > 1.4 * earlier for earlier, later in pairwise(waits[:5]))
    assert 11 < waits[-1] <= 15
    # A Pod is created: the refusal has ended.
    bench.created(next_action(bench))
    bench.plan()
    bench.end(code=1)
    assert bench.status.attempt.id == 9
    assert bench.status.state is not State.CREATION_PENDING


def test_a_pod_that_cannot_be_decoded_has_the_back_off_of_pods_that_never_ran() -> None:
    bench = begun(role(retryPolicy={"maxRetryCount": -1}))
    action = bench.only(bench.plan())
    waits = []
    for _ in range(8):
        bench.fold(action, refused(400, "cannot unmarshal number into Go struct field EnvVar.value of type string"))
        began = bench.now
        action = next_action(bench)
        waits.append(bench.now - began)
    assert waits[-1] > 100
