"""podForceDeletionPolicy NodeUnreachable: a Pod that does not end is deleted by force only if its Node is lost.

The guarantees that `tests.support.guarantees` checks after every step hold here, too: no deletion by force without a
read of the Node that found it lost.
"""

import random
import re
from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frameworkcontroller.machine.kernel.requests import Kind
from tests.property.test_stuck_unrecorded import come_about, create, is_completed, is_stalled, pod
from tests.support.history import History
from tests.support.world import Body, Fate, is_deleting

TIMEOUT_SEC: Final = 60
LOOK_SEC: Final = 30
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
OUT_OF_SERVICE: Final = "node.kubernetes.io/out-of-service"
FORBIDDEN: Final = "is refused with 403"


def begin(policy: str | None = "NodeUnreachable") -> History:
    history = History()
    task = {
        "podGracefulDeletionTimeoutSec": TIMEOUT_SEC,
        "podForceDeletionPolicy": policy,
        "retryPolicy": {"fancyRetryPolicy": True},
    }
    history.create({"executionType": "Start", "taskRoles": [{"name": "a", "taskNumber": 1, "task": task}]})
    return history


def stuck(history: History) -> Body:
    """The Task's recorded Pod runs, is deleted, and does not end."""
    history.settle()
    history.kubelet(0, "Running")
    history.settle()
    history.lose_node(lost=True)
    history.delete_pod(0, force=False)
    history.settle()
    body: Body = pod(history)
    return body


def unrecorded(history: History) -> Body:
    """The Task's Pod is not recorded, is deleted, and does not end."""
    body: Body = create(history, Kind.POD)
    history.kubelet(0, "Running")
    history.lose_node(lost=True)
    history.delete_pod(0, force=False)
    return body


def go_by(history: History, seconds: float) -> None:
    """The controller works whenever it wakes up, for that long."""
    end = history.world.clock + seconds
    while history.world.clock < end:
        history.settle()
        (controller,) = history.controllers
        wake = end if controller.requeue_at is None else min(end, controller.requeue_at)
        history.world.go_until(wake)
    history.settle()


def reads(history: History) -> list[float]:
    """When the Node was read."""
    return [float(line.split("s ")[0]) for line in history.world.story if "Get node-1" in line]


def message(history: History) -> str:
    """The message of the condition Stalled."""
    assert history.status is not None
    return next(item.message for item in history.status.conditions if item.type == "Stalled")


@pytest.mark.parametrize("prepare", [stuck, unrecorded])
@pytest.mark.parametrize("policy", ["NodeUnreachable", "Always", None])
def test_a_pod_that_is_slow_on_a_healthy_node(policy: str | None, prepare: Callable[[History], Body]) -> None:
    history = begin(policy)
    body = prepare(history)
    go_by(history, 2000)
    if policy == "NodeUnreachable":
        assert pod(history) == body
        assert is_stalled(history, "PodNotGone")
        assert "its Node node-1 is neither unreachable nor out of service" in message(history)
        assert len(reads(history)) == pytest.approx((2000 - TIMEOUT_SEC) / LOOK_SEC, abs=2)
    else:
        assert pod(history) != body
        assert reads(history) == []
    history.finish()


@pytest.mark.parametrize("prepare", [stuck, unrecorded])
@pytest.mark.parametrize("lost", [UNREACHABLE, OUT_OF_SERVICE, None])
def test_a_pod_on_a_lost_node_is_replaced(lost: str | None, prepare: Callable[[History], Body]) -> None:
    """``lost``: by which taint; None: the Node is removed."""
    history = begin()
    body = prepare(history)
    began = history.world.clock
    if lost:
        history.find_node("some/taint", lost)
    else:
        history.remove_node()
    come_about(history, lambda: pod(history) not in (None, body))
    assert TIMEOUT_SEC <= history.world.clock - began < TIMEOUT_SEC + 60
    history.finish()


@pytest.mark.parametrize("prepare", [stuck, unrecorded])
def test_a_node_that_is_lost_later_is_noticed_in_time(prepare: Callable[[History], Body]) -> None:
    history = begin()
    body = prepare(history)
    go_by(history, 500)
    assert pod(history) == body
    history.find_node(UNREACHABLE)
    go_by(history, LOOK_SEC + 15)
    assert pod(history) not in (None, body)
    history.finish()


def test_a_partitioned_node_that_comes_back_in_time_keeps_its_pod() -> None:
    history = begin()
    body = stuck(history)
    history.find_node(UNREACHABLE)
    go_by(history, TIMEOUT_SEC - 10)
    assert pod(history) == body
    # It answers again; its Pod saves its state.
    history.find_node()
    go_by(history, 600)
    assert pod(history) == body
    history.lose_node(lost=False)
    history.settle()
    assert pod(history) not in (None, body)
    history.finish()


def test_an_unrecorded_pod_that_the_cache_does_not_show_is_found_by_its_own_node() -> None:
    history = begin()
    body = unrecorded(history)
    history.unlabel(0)
    go_by(history, 600)
    assert body["metadata"]["uid"] == pod(history)["metadata"]["uid"]
    assert reads(history)
    assert is_stalled(history, "PodNotGone")
    history.find_node(UNREACHABLE)
    go_by(history, 60)
    assert body["metadata"]["uid"] != pod(history)["metadata"]["uid"]
    history.finish()


def test_a_role_that_the_spec_dropped_keeps_its_policy() -> None:
    history = begin()
    body = stuck(history)
    history.drop("a")
    history.crash(0)
    go_by(history, 600)
    assert pod(history) == body
    history.find_node(OUT_OF_SERVICE)
    go_by(history, 60)
    assert pod(history) is None
    history.finish()


@pytest.mark.parametrize("policy", ["Always", None])
def test_a_policy_that_changes_counts_at_once(policy: str | None) -> None:
    history = begin()
    body = stuck(history)
    go_by(history, 600)
    assert pod(history) == body
    history.set_timeout("a", TIMEOUT_SEC, policy)
    history.settle()
    assert pod(history) != body
    history.finish()


def test_stop_waits_for_a_pod_on_a_healthy_node() -> None:
    history = begin()
    stuck(history)
    history.execute("Stop")
    go_by(history, 600)
    assert not is_completed(history)
    history.find_node(UNREACHABLE)
    come_about(history, lambda: is_completed(history))
    history.finish()


def test_without_permission_to_read_nodes_nothing_is_forced_and_it_says_so() -> None:
    history = begin()
    body = stuck(history)
    history.find_node(UNREACHABLE)
    history.world.refused_kinds[Kind.NODE] = (403, "Forbidden", 'cannot get resource "nodes"')
    go_by(history, TIMEOUT_SEC + 1)
    assert pod(history) == body
    assert is_stalled(history, "PodNotGone")
    assert 'its Node node-1 cannot be read: 403: cannot get resource "nodes"' in message(history)
    del history.world.refused_kinds[Kind.NODE]
    go_by(history, LOOK_SEC + 15)
    assert pod(history) not in (None, body)
    history.finish()


@pytest.mark.parametrize("fate", [Fate.LOST, Fate.TOO_MANY])
def test_a_read_without_an_answer_is_repeated(fate: Fate) -> None:
    history = begin()
    body = stuck(history)
    history.find_node(UNREACHABLE)
    history.world.go_by(TIMEOUT_SEC + 5)
    history.fail("get", fate)
    for _ in range(20):
        history.run(0, 1)
    assert pod(history) == body
    go_by(history, 20)
    assert pod(history) not in (None, body)
    history.finish()


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["well", "unreachable", "out of service", "removed", "crash", "forbid", "permit", "tick"]),
            st.integers(1, 90),
        ),
        max_size=12,
    ),
    st.booleans(),
)
def test_no_instance_is_forced_while_its_node_is_healthy(acts: list[tuple[str, int]], is_unrecorded: bool) -> None:
    """C1: the Pod goes only at a moment at which the Node was lost."""
    history = begin()
    body = unrecorded(history) if is_unrecorded else stuck(history)
    uid = body["metadata"]["uid"]
    lost = False
    for act, seconds in acts:
        match act:
            case "well":
                history.find_node()
                lost = False
            case "unreachable" | "out of service":
                history.find_node(UNREACHABLE if act == "unreachable" else OUT_OF_SERVICE)
                lost = True
            case "removed":
                history.remove_node()
                lost = True
            case "crash":
                history.crash(0)
            case "forbid":
                history.world.refused_kinds[Kind.NODE] = (403, "Forbidden", "no")
            case "permit":
                history.world.refused_kinds.clear()
        go_by(history, seconds)
        there = history.world.find(Kind.POD, uid)
        assert lost or there is not None
        if there is None:
            break
        assert is_deleting(there)
    history.world.refused_kinds.clear()
    history.finish()


WALKS: Final = 60
_STEPS: Final = 25


def walk(seed: int) -> History:
    """Pods are deleted on nodes that are lost, or slow, and much else happens; all guarantees are checked."""
    rng = random.Random(seed)
    history = History(seed)
    task = {"retryPolicy": {"maxRetryCount": -2}, "podForceDeletionPolicy": "NodeUnreachable"}
    roles = [
        {"name": name, "taskNumber": 2, "task": {**task, "podGracefulDeletionTimeoutSec": rng.choice([5, 60])}}
        for name in "ab"
    ]
    history.create({"executionType": "Start", "retryPolicy": {"maxRetryCount": -2}, "taskRoles": roles})
    for _ in range(_STEPS):
        match rng.choice(["lose", "lose", "lose", "find", "find", "back", "wait", "wait", "others", "others"]):
            case "lose":
                history.settle()
                for index in range(4):
                    history.kubelet(index, "Running")
                history.lose_node(lost=True)
                history.delete_pod(rng.randrange(4), force=False)
            case "find":
                history.find_node(*rng.choice([(), ("a/b",), (UNREACHABLE,), (OUT_OF_SERVICE, "x")]))
            case "back":
                history.lose_node(lost=False)
            case "wait":
                history.run(0, rng.randrange(10))
                go_by(history, rng.choice([1, 10, 40, 100]))
            case _:
                _happen(rng, history)
    history.finish()
    return history


def _happen(rng: random.Random, history: History) -> None:
    match rng.randrange(8):
        case 0:
            history.remove_node()
        case 1:
            history.crash(0)
        case 2:
            history.rescale(rng.choice("ab"), rng.randrange(4))
        case 3:
            history.drop("b")
        case 4:
            history.unlabel(rng.randrange(4))
        case 5:
            history.fail(
                rng.choice(["get", "delete", "write"]), rng.choice([Fate.LOST, Fate.ANSWER_LOST, Fate.TOO_MANY])
            )
        case 6:
            history.delete_configmap(rng.choice(["Foreground", "Background"]))
        case _:
            history.set_timeout(rng.choice("ab"), rng.choice([0, 30, None]), "NodeUnreachable")


def test_walks_with_lost_and_slow_nodes() -> None:
    forced = spared = 0
    for seed in range(WALKS):
        told = "\n".join(walk(seed).world.story)
        forced += len(re.findall(r"Remove .* force confirm .* -> done", told))
        spared += len(re.findall(r"Waiting: Pod .* is not force-deleted", told))
    assert forced > WALKS / 2
    assert spared > WALKS / 2
