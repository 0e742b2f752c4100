"""The slow-start batch: which actions may start at which time, and their results."""

import orjson
import pytest

from frameworkcontroller.machine.kernel.actions import Action, Create, Delete
from frameworkcontroller.machine.kernel.batch import WIDTH, Batch
from frameworkcontroller.machine.kernel.exchanges import Accepted, Created, Exists, Gone, NotAttempted, Result
from frameworkcontroller.machine.kernel.requests import Kind, Refused, Target, Unanswered
from tests.support.bench import refused


def pods(number: int) -> list[Create]:
    """Creations of Pods."""
    return [Create(Target(Kind.POD, f"f-a-{index}", 0, "a", index), b"{}", "cm-uid") for index in range(number)]


def batch_of(*actions: Action) -> Batch:
    """A batch of these."""
    batch = Batch()
    batch.add(actions)
    return batch


def started(batch: Batch) -> list[Action]:
    """Start all that may start."""
    found = []
    while (action := batch.start()) is not None:
        found.append(action)
    return found


def quota() -> Refused:
    """A refusal for want of quota."""
    return refused(403, "Forbidden", "exceeded quota: q")


def test_creations_start_with_one_and_continue_in_full_width_once_it_has_succeeded() -> None:
    actions = pods(200)
    batch = batch_of(*actions)
    assert started(batch) == actions[:1]
    batch.end(actions[0], Created("u"))
    assert started(batch) == actions[1 : 1 + WIDTH]
    batch.end(actions[1], Created("u"))
    assert started(batch) == actions[1 + WIDTH : 2 + WIDTH]


def test_other_actions_start_at_once_and_before_creations() -> None:
    deletions = [Delete(Target(Kind.POD, f"p{index}"), "u") for index in range(3)]
    creations = pods(3)
    batch = batch_of(*creations, *deletions)
    assert started(batch) == [*deletions, creations[0]]


@pytest.mark.parametrize(
    "result",
    [
        quota(),
        refused(403, "PolicyDenied", "no"),
        refused(403, "", "no"),
        Unanswered("lost"),
        Exists(None, "leases exist"),
    ],
)
def test_nothing_is_started_after_a_failure(result: Result) -> None:
    actions = pods(3)
    batch = batch_of(*actions)
    batch.end(started(batch)[0], result)
    assert started(batch) == []
    assert [(one.action, type(one.result)) for one in batch.take()] == [
        (actions[0], type(result)),
        (actions[1], NotAttempted),
        (actions[2], NotAttempted),
    ]
    assert not batch.is_open


def test_a_failure_among_many_ends_with_those_in_flight() -> None:
    actions = pods(200)
    batch = batch_of(*actions)
    batch.end(started(batch)[0], Created("u"))
    in_flight = started(batch)
    batch.end(in_flight[0], quota())
    assert started(batch) == []
    # The others are not given up while actions are in flight.
    assert [type(one.result) for one in batch.take()] == [Created, Refused]
    for action in in_flight[1:]:
        batch.end(action, Created("u"))
    results = [type(one.result) for one in batch.take()]
    assert results == [Created] * (WIDTH - 1) + [NotAttempted] * (200 - 1 - WIDTH)


def test_a_refusal_that_completes_one_task_does_not_hold_back_the_others() -> None:
    """A large role with a bad template would else be tried one Task a pass."""
    actions = pods(3)
    batch = batch_of(*actions)
    invalid = Refused(422, "no", orjson.dumps({"reason": "Invalid"}), reason="Invalid")
    batch.end(started(batch)[0], invalid)
    assert started(batch) == actions[1:]


@pytest.mark.parametrize("result", [Accepted(), Gone()])
def test_a_deletion_that_went_well_stops_nothing(result: Result) -> None:
    batch = batch_of(Delete(Target(Kind.POD, "p"), "u"), *pods(1))
    batch.end(started(batch)[0], result)
    assert not batch.stopped


def test_an_object_is_known_until_its_outcome_is_taken() -> None:
    actions = pods(2)
    batch = batch_of(*actions)
    batch.end(started(batch)[0], Created("u"))
    assert actions[0].target in batch
    batch.take()
    assert [action.target in batch for action in actions] == [False, True]
    batch.add(actions[:1])
    assert started(batch) == [actions[1], actions[0]]


def test_a_creation_that_is_given_up_does_not_widen_the_batch() -> None:
    actions = pods(3)
    batch = batch_of(*actions)
    batch.end(started(batch)[0], NotAttempted())
    assert started(batch) == actions[1:2]
    assert batch.is_creating
