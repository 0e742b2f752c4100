"""The cost of a plan follows the changes, not the number of Tasks (design, "Cost follows change"): visits of Tasks."""

import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from typing import SupportsIndex, overload

import pytest

from frameworkcontroller.api.codec import encode_status
from frameworkcontroller.api.names import pod_name
from frameworkcontroller.api.objects import Identity, PodRecord
from frameworkcontroller.api.status import State, TaskStatus
from frameworkcontroller.machine.kernel.actions import Action, Create, Delete
from frameworkcontroller.machine.kernel.context import CREATIONS_PER_PLAN
from frameworkcontroller.machine.kernel.exchanges import Accepted, NotAttempted
from frameworkcontroller.machine.kernel.model import Observed, Urgency
from frameworkcontroller.machine.kernel.tracker import Tracker
from frameworkcontroller.machine.plan import plan
from tests.support.bench import Bench, prepared, refused, role

MANY = 3_000
FEW = 12
"""Visits that one touched Task may cost, however many Tasks there are."""


class Counting(list[TaskStatus]):
    """The Tasks of a role, which count the looks at them."""

    visits = 0

    def __iter__(self) -> Iterator[TaskStatus]:
        for task in super().__iter__():
            self.visits += 1
            yield task

    @overload
    def __getitem__(self, index: SupportsIndex, /) -> TaskStatus: ...
    @overload
    def __getitem__(self, index: slice, /) -> list[TaskStatus]: ...
    def __getitem__(self, index: SupportsIndex | slice, /) -> TaskStatus | list[TaskStatus]:
        found = super().__getitem__(index)
        self.visits += len(found) if isinstance(found, list) else 1
        return found


class Pods(dict[str, PodRecord]):
    """The cache's Pods, which count the lookups."""

    visits = 0

    def get(self, name: str, default: object = None, /) -> PodRecord | None:  # type: ignore[override]
        self.visits += 1
        return super().get(name)


class Big:
    """A Framework of many Tasks that all run, all of it persisted and looked at once."""

    def __init__(self) -> None:
        self.bench = Bench(role(number=2, failed=3, retryPolicy={"maxRetryCount": 1}), checked=False)
        self.bench.all_pods()
        for index in (0, 1):
            self.bench.run(f"f-a-{index}")
        self.bench.spec["taskRoles"][0]["taskNumber"] = MANY
        status = self.bench.status
        (only,) = status.attempt.roles
        example = only.tasks[0]
        record = self.bench.pods["f-a-0"]
        only.tasks = self.tasks = Counting(
            replace(
                example,
                index=index,
                instance_uid=f"task-{index}",
                attempt=replace(example.attempt, pod_uid=f"running-{index}"),
                retry=replace(example.retry),
            )
            for index in range(MANY)
        )
        self.pods = Pods(
            (
                name,
                replace(record, name=name, key=f"ns/{name}", identity=Identity(f"running-{index}", "cm", None, False)),
            )
            for index, name in ((index, pod_name("f", "a", index)) for index in range(MANY))
        )
        self.bench.pods = self.pods
        self.bench.tracker = Tracker(status)
        self.bench.plan()
        assert not self.bench.plan().actions
        self.reset()

    def reset(self) -> None:
        """Count from here on."""
        self.tasks.visits = self.pods.visits = 0

    def change(self, index: int, **fields: object) -> None:
        """An event tells that a Pod changed."""
        name = pod_name("f", "a", index)
        self.pods[name] = replace(self.pods[name], **fields)  # type: ignore[arg-type]
        self.bench.touch(name)


@pytest.fixture(name="big")
def _big() -> Big:
    return Big()


def test_a_plan_with_nothing_to_do_visits_nothing(big: Big) -> None:
    made = big.bench.plan(write=False)
    assert (made.actions, made.urgency) == ([], Urgency.NONE)
    assert (big.tasks.visits, big.pods.visits) == (0, 0)


def test_a_pod_that_others_wait_for_visits_one_task() -> None:
    number = 200
    waiting = {**role("w", number), "dependsOn": [{"name": "a", "status": "Ready"}]}
    bench = Bench(role("a", number), waiting, checked=False)
    bench.all_pods()
    for index in range(number):
        bench.show(f"f-a-{index}", phase="Running", podIP="10.0.0.1", nodeName="node-1")
    bench.all_pods()
    roles = bench.status.attempt.roles
    for item in roles:
        item.tasks = Counting(item.tasks)
    for index in range(number):
        for item in roles:
            item.tasks.visits = 0  # type: ignore[attr-defined]
        bench.show(f"f-a-{index}", conditions=[{"type": "Ready", "status": "True"}])
        bench.plan(write=False)
        visits = [item.tasks.visits for item in roles]  # type: ignore[attr-defined]
        # The last one starts the other role, whose Tasks are then visited once.
        assert visits[0] <= FEW
        assert visits[1] == (number if index == number - 1 else 0)
    assert roles[1].started


def test_one_event_visits_one_task_from_its_end_to_its_retry(big: Big) -> None:
    bench, task = big.bench, list.__getitem__(big.tasks, 2777)
    big.change(2777, phase="Failed")
    for state in (State.DELETION_PENDING, State.DELETION_REQUESTED):
        big.reset()
        made = bench.plan()
        for action in made.actions:
            bench.fold(action, Accepted())
        assert task.state is state
        assert big.tasks.visits <= FEW
        assert big.pods.visits <= 2
    del big.pods["f-a-2777"]
    bench.touch("f-a-2777")
    actions: list[Action] = []
    while not actions:
        big.reset()
        actions = bench.plan().actions
        assert big.tasks.visits <= FEW
        assert big.pods.visits <= 2
    (creation,) = actions
    assert isinstance(creation, Create)
    assert task.attempt.id == 1
    big.reset()
    bench.created(creation, show=False)
    bench.plan()
    assert task.state is State.CREATION_REQUESTED
    assert big.tasks.visits <= FEW


def test_an_alarm_visits_one_task(big: Big) -> None:
    bench = big.bench
    bench.spec["taskRoles"][0]["task"]["podGracefulDeletionTimeoutSec"] = 60
    bench.plan()
    bench.plan()
    identity = big.pods["f-a-5"].identity
    identity = replace(identity, deleting=True, deletion_time=int(bench.now) + 30, deletion_grace_sec=30)
    big.change(5, identity=identity)
    bench.plan()
    assert bench.plan().requeue_after == 60
    bench.now += 60
    big.reset()
    bench.expect(Delete)
    assert big.tasks.visits <= FEW
    assert big.pods.visits <= 2


def test_completion_is_decided_by_counters(big: Big) -> None:
    """Tasks are looked for only once a policy is triggered."""
    bench = big.bench
    bench.edit_then_plan(role(number=MANY, failed=3))
    bench.plan()
    for index in (10, 20):
        big.change(index, phase="Failed")
        for _ in range(2):
            for action in bench.plan().actions:
                bench.fold(action, Accepted())
        del big.pods[pod_name("f", "a", index)]
        bench.touch(pod_name("f", "a", index))
        for _ in range(3):
            big.reset()
            bench.plan()
            assert big.tasks.visits <= FEW
    assert bench.tracker.role_counts["a"].failed == 2
    assert bench.status.attempt.completion_status is None


def test_an_unchanged_task_is_not_encoded_again(big: Big) -> None:
    encode_status("f", big.bench.status)
    before = [task.encoded for task in big.tasks]
    big.change(42, phase="Failed")
    big.bench.plan()
    encode_status("f", big.bench.status)
    after = [task.encoded for task in big.tasks]
    assert [index for index in range(MANY) if before[index] is not after[index]] == [42]


def test_only_actions_that_were_not_attempted_are_looked_at_again() -> None:
    bench = Bench(role(number=300), checked=False)
    bench.attempt()
    creations = bench.plan().actions
    assert len(creations) == 300
    (only,) = bench.status.attempt.roles
    only.tasks = tasks = Counting(only.tasks)
    bench.created(creations[0], show=False)
    for action in creations[1:4]:
        bench.fold(action, NotAttempted())
    tasks.visits = 0
    assert [action.target.index for action in bench.plan().actions] == [1, 2, 3]
    assert tasks.visits <= 4 * FEW


def test_one_refusal_does_not_make_every_task_be_looked_at_again_and_again() -> None:
    """While creations are held back, a plan in between costs nothing."""
    bench = Bench(role(number=300), checked=False)
    bench.attempt()
    creations = bench.plan().actions
    bench.fold(creations[0], refused(429))
    for action in creations[1:]:
        bench.fold(action, NotAttempted())
    bench.plan()
    (only,) = bench.status.attempt.roles
    only.tasks = tasks = Counting(only.tasks)
    assert not plan(bench.framework, bench.tracker, Observed(bench.configmap, bench.pods.get), bench.env).actions
    assert tasks.visits == 0


def test_a_plan_asks_for_no_more_pods_than_are_created_before_the_next() -> None:
    bench = Bench(role(number=CREATIONS_PER_PLAN + 20), checked=False)
    bench.attempt()
    first, second = bench.plan().actions, bench.plan().actions
    assert (len(first), len(second)) == (CREATIONS_PER_PLAN, 20)
    assert not bench.tracker.is_busy


def test_nothing_is_asked_for_of_pods_whose_creation_is_held_back() -> None:
    bench = Bench(role(number=40), checked=False)
    bench.attempt()
    actions = bench.plan().actions
    bench.fold(actions[0], refused(503))
    for action in actions[1:]:
        bench.fold(action, NotAttempted())
    made = bench.idle()
    assert made.requeue_after is not None


def test_pods_that_wait_for_their_creation_take_no_memory() -> None:
    """Found as a gigabyte: the API server takes a template of 1.4 MB, and placeholders may triple it."""
    args = ["{{FC_POD_NAME}}" * 40_000]
    bench = Bench(role("r" * 63, 200, pod={"spec": {"containers": [{"name": "main", "args": args}]}}), checked=False)
    bench.attempt()
    tracemalloc.start()
    try:
        actions = bench.plan().actions
        taken = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(actions) == 200
    assert all(isinstance(action, Create) and len(action.body) > 2_500_000 for action in actions[:3])
    assert taken < 100_000_000


def test_completed_tasks_keep_no_json_of_pods() -> None:
    bench = prepared(role(number=2, failed=1))
    assert bench.tracker.life.templates
    bench.end("f-a-0", code=1)
    assert bench.status.state is State.COMPLETED
    assert not bench.tracker.life.templates
