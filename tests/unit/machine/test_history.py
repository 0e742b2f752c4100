"""Archive before forget: its requests, their times and numbers, and the finalizer that holds a deleted Framework."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest

from frameworkcontroller.api import names
from frameworkcontroller.api.objects import PodRecord, framework_record, pod_record
from frameworkcontroller.api.status import State
from frameworkcontroller.machine.kernel.model import Record, SnapshotTrigger
from frameworkcontroller.machine.kernel.protocol import Archive, Done
from frameworkcontroller.machine.kernel.reasons import RequestReason
from frameworkcontroller.machine.kernel.requests import (
    Answer,
    Answered,
    Kind,
    PatchFinalizers,
    Refusal,
    Remove,
    Unanswered,
)
from frameworkcontroller.machine.parts.history.archiving import RECORDS_PER_ARCHIVE, HistoryReason
from frameworkcontroller.machine.parts.history.finalization import Finalization, is_due
from frameworkcontroller.machine.plan import fold_archived
from tests.support.archive import ARCHIVED, ArchivedHistory
from tests.support.bench import Bench, role
from tests.support.history import LIMITS, NAME
from tests.support.kueue import QUEUES
from tests.support.oneframework import Driver, OneFramework, refused
from tests.support.queuedhistory import QueuedHistory
from tests.support.world import ApiRefusal, Body, uid_of

TASKS = 1200
ALL = frozenset(SnapshotTrigger)
SPEC: Body = {
    "taskRoles": [{"name": "a", "taskNumber": 2, "task": {"retryPolicy": {"maxRetryCount": 1}}}],
    "retryPolicy": {"maxRetryCount": 1},
}


def begun(spec: Body = SPEC, **options: Any) -> ArchivedHistory:
    story = ArchivedHistory(3, **options)
    story.create(spec)
    if options:
        # Nothing waits for its history.
        story.given_up.add(uid_of(story.framework or {}))
    story.settle()
    for pod in (0, 1):
        story.kubelet(pod, "Running")
    story.settle()
    return story


def refusals(story: ArchivedHistory) -> list[str]:
    return [line for line in story.world.story if "rejected our request" in line]


def finalizers(story: ArchivedHistory) -> list[str]:
    assert story.framework is not None
    found: list[str] = story.framework["metadata"].get("finalizers", [])
    return found


# --- requests ---------------------------------------------------------------------------------------------------------


def test_many_tasks_that_retry_at_once_are_few_requests() -> None:
    bench = Bench(role(number=TASKS, retryPolicy={"maxRetryCount": 1}), limit=ARCHIVED, checked=False)
    bench.held = True
    bench.all_pods()
    for index in range(TASKS):
        bench.run(f"f-a-{index}")
    bench.limits = replace(ARCHIVED)
    archives = []
    for index in range(TASKS):
        bench.pods[f"f-a-{index}"] = replace(bench.pods[f"f-a-{index}"], phase="Failed")
        bench.tracker.agenda.look(("a", index))
    for _ in range(4):
        made = bench.plan()
        archives += made.archives
        for action in made.actions:
            bench.pods.pop(action.target.name, None)
            bench.tracker.agenda.look((action.target.role, action.target.index))
    assert [len(one) for one in archives] == [RECORDS_PER_ARCHIVE, RECORDS_PER_ARCHIVE, TASKS - 2 * RECORDS_PER_ARCHIVE]
    assert {task.state for task in bench.tracker.tasks()} == {State.ATTEMPT_COMPLETED}
    # The cost of an acknowledgment follows its records, and no record is sent twice.
    first = Archive([one for one, _ in archives[0]], "1", [task for _, task in archives[0]])
    fold_archived(bench.framework, bench.tracker, [(first, Answered(b""))], bench.env)
    assert sum(1 for _ in bench.tracker.agenda) == RECORDS_PER_ARCHIVE
    assert bench.plan().archives == []
    retried = [task for task in bench.tracker.tasks() if task.attempt.id == 1]
    assert len(retried) == RECORDS_PER_ARCHIVE


def test_the_finalizer_costs_one_request_and_no_failed_write() -> None:
    story = begun()
    assert finalizers(story) == [names.HISTORY_FINALIZER]
    assert sum("PatchFinalizers" in line for line in story.world.story) == 1
    assert refusals(story) == []


def test_a_delayed_retry_is_stored_while_it_waits() -> None:
    spec = {**SPEC, "taskRoles": [{**SPEC["taskRoles"][0]}]}
    spec["taskRoles"][0]["task"] = {"retryPolicy": {"maxRetryCount": 1, "backoff": {"baseSeconds": 300}}}
    story = begun(spec)
    story.kubelet(0, "end", 1)
    story.settle()
    assert story.sink.requests == [1]
    assert story.status is not None
    assert story.status.attempt.roles[0].tasks[0].attempt.id == 0
    story.world.go_by(300)
    story.set_sink("hangs")
    story.settle()
    assert story.status.attempt.roles[0].tasks[0].attempt.id == 1
    assert story.sink.requests == [1]


def test_a_completed_framework_is_offered_once() -> None:
    story = begun({**SPEC, "retryPolicy": {"maxRetryCount": 0}})
    story.execute("Stop")
    story.settle()
    assert story.sink.offered == [SnapshotTrigger.FRAMEWORK_COMPLETION]
    story.crash(0)
    story.settle()
    assert story.sink.offered == [SnapshotTrigger.FRAMEWORK_COMPLETION]
    assert story.sink.requests == []


def stalls(story: ArchivedHistory) -> list[str]:
    """The stored reasons of the condition Stalled, in order."""
    found = []
    for event in story.world.events[Kind.FRAMEWORK]:
        status = orjson.loads(event.raw).get("status") or {}
        found += [one["reason"] for one in status.get("conditions", []) if one["type"] == "Stalled"]
    return [reason for reason, before in zip(found, ["", *found], strict=False) if reason != before]


def retry_of_a_task(story: ArchivedHistory) -> None:
    story.kubelet(0, "end", 1)


def deletion(story: ArchivedHistory) -> None:
    story.delete(foreground=False)


def scale_down(story: ArchivedHistory) -> None:
    story.rescale("a", 1)


def pass_time(story: ArchivedHistory, times: int) -> None:
    """20 s pass, this number of times."""
    for _ in range(times):
        story.settle()
        story.world.go_by(20)
    story.settle()


@pytest.mark.parametrize("edge", [retry_of_a_task, deletion, scale_down])
def test_the_condition_of_a_sink_that_is_away_outlives_a_restart(edge: Callable[[ArchivedHistory], None]) -> None:
    story = begun()
    story.set_sink("fails")
    edge(story)
    pass_time(story, 8)
    assert stalls(story) == ["HistoryUnavailable"]
    story.crash(0)
    pass_time(story, 8)
    assert stalls(story) == ["HistoryUnavailable"]
    story.set_sink("stores")
    pass_time(story, 2)
    if story.framework is not None:
        assert stalls(story) == ["HistoryUnavailable", "Progressing"]


def test_an_acknowledgment_outlives_a_change_by_others() -> None:
    spec = {**SPEC, "taskRoles": [{**SPEC["taskRoles"][0]}]}
    spec["taskRoles"][0]["task"] = {"retryPolicy": {"maxRetryCount": 1, "backoff": {"baseSeconds": 300}}}
    story = begun(spec)
    story.kubelet(0, "end", 1)
    story.settle()
    assert story.framework is not None
    assert story.sink.requests == [1]

    def touch(body: Body) -> None:
        body["status"]["conditions"][0]["message"] = "written by another controller"

    story.world.edit(Kind.FRAMEWORK, NAME, touch)
    story.kubelet(0, "ready")
    story.rescale("a", 3)
    story.settle()
    story.world.go_by(300)
    story.settle()
    assert story.status is not None
    assert story.status.attempt.roles[0].tasks[0].attempt.id == 1
    assert story.sink.requests == [1]


@pytest.mark.parametrize("blocks", [False, True])
def test_without_the_triggers_nothing_waits(*, blocks: bool) -> None:
    limits = replace(LIMITS, history=frozenset({SnapshotTrigger.POD_DELETION}), history_blocks=blocks)
    story = begun(limits=limits)
    story.kubelet(0, "end", 1)
    story.settle()
    assert story.status is not None
    assert story.status.attempt.roles[0].tasks[0].attempt.id == 1
    assert (story.sink.requests, finalizers(story)) == ([], [])


def test_a_record_that_may_be_dropped_is_offered() -> None:
    story = ArchivedHistory(3, limits=replace(LIMITS, history=ALL))
    story.create(SPEC)
    story.given_up.add(uid_of(story.framework or {}))
    story.set_sink("fails")
    story.settle()
    story.kubelet(0, "Running")
    story.kubelet(0, "end", 1)
    story.settle()
    assert story.sink.offered == [SnapshotTrigger.TASK_RETRY]
    assert (story.sink.requests, finalizers(story)) == ([], [])


# --- the finalizer ----------------------------------------------------------------------------------------------------


def test_a_framework_that_runs_already_gets_the_finalizer() -> None:
    story = begun(limits=LIMITS)
    assert finalizers(story) == []
    story._limits = story.guarantees.limits = ARCHIVED
    story.crash(0)
    story.settle()
    assert finalizers(story) == [names.HISTORY_FINALIZER]
    assert refusals(story) == []


def test_a_finalizer_that_another_client_removes_is_restored() -> None:
    story = begun()
    story.remove_finalizer()
    assert finalizers(story) == []
    story.settle()
    assert finalizers(story) == [names.HISTORY_FINALIZER]


def test_other_finalizers_stay() -> None:
    story = ArchivedHistory(3)
    story.create(SPEC)
    story.world.edit(Kind.FRAMEWORK, NAME, lambda body: body["metadata"].update(finalizers=["example.com/mine"]))
    story.settle()
    assert finalizers(story) == ["example.com/mine", names.HISTORY_FINALIZER]
    story.delete(foreground=False)
    story.settle()
    assert finalizers(story) == ["example.com/mine"]


@pytest.mark.parametrize("deleted", [False, True])
@pytest.mark.parametrize("limits", [LIMITS, replace(LIMITS, history=ALL)], ids=["none", "Drop"])
def test_a_sink_that_is_switched_off_gives_the_finalizer_up(limits: Any, *, deleted: bool) -> None:
    story = begun()
    story.set_sink("fails")
    if deleted:
        story.delete(foreground=True)
        story.settle()
        assert story.framework is not None
    story.given_up.add(uid_of(story.framework or {}))
    story._limits = story.guarantees.limits = limits
    story.crash(0)
    story.settle()
    assert story.framework is None if deleted else finalizers(story) == []
    assert sum("HistoryGivenUp" in line for line in story.world.story) == 1


@pytest.mark.parametrize("code", [409, 422])
def test_a_refused_finalizer_is_no_hot_loop(code: int) -> None:
    """A failed precondition looks like that, too."""
    story = ArchivedHistory(3)
    story.create(SPEC)

    def refuse(*_: Any, **__: Any) -> Any:
        raise ApiRefusal(code, "Invalid", "a webhook says no")

    patch, story.world.patch_finalizers = story.world.patch_finalizers, refuse  # type: ignore[method-assign]
    for _ in range(12):
        story.wait(60)
    assert sum("PatchFinalizers" in line for line in story.world.story) <= 15
    assert story.status is not None
    assert story.status.state is State.CREATION_PENDING
    assert not story.world.objects[Kind.CONFIGMAP]
    (told,) = (one for one in story.status.conditions if one.type == "Stalled")
    assert (told.reason, "a webhook says no" in told.message) == ("FrameworkNotAnswered", True)
    story.world.patch_finalizers = patch  # type: ignore[method-assign]
    story.wait(60)
    assert finalizers(story) == [names.HISTORY_FINALIZER]
    assert len(story.pods()) == 2


# --- deletions --------------------------------------------------------------------------------------------------------


def suspended(story: ArchivedHistory) -> None:
    story.suspend(wanted=True)
    story.settle()


def pending_retry(story: ArchivedHistory) -> None:
    story.edit("a long delay", lambda spec: spec["retryPolicy"].update(backoff={"baseSeconds": 300}))
    story.set_completion("a", 1, -1)
    story.set_retry("a", fancy=False, limit=0)
    story.settle()
    story.kubelet(0, "end", 1)
    story.settle()
    assert story.status is not None
    assert story.status.state is State.ATTEMPT_COMPLETED


def completed(story: ArchivedHistory) -> None:
    story.execute("Stop")
    story.settle()


def unlabelled(story: ArchivedHistory) -> None:
    story.unlabel(0)


@pytest.mark.parametrize("how", ["background", "foreground", "orphan"])
@pytest.mark.parametrize("before", [suspended, pending_retry, completed, unlabelled])
def test_a_deleted_framework_ends_and_goes_once_the_sink_has_it(
    before: Callable[[ArchivedHistory], None], how: str
) -> None:
    story = begun()
    before(story)
    attempt = 0 if story.status is None else story.status.attempt.id
    story.set_sink("fails")
    story.orphan() if how == "orphan" else story.delete(foreground=how == "foreground")
    for _ in range(8):
        story.wait(30)
    assert story.framework is not None
    assert story.status is not None
    assert story.status.attempt.id == attempt
    assert not story.pods()
    told = {one.type: one for one in story.status.conditions}
    assert "the disk is full" in told["Running"].message
    story.set_sink("stores")
    for _ in range(3):
        story.wait(30)
    assert attempt in {one[1] for one in story.sink.stored}
    assert not story.world.objects[Kind.FRAMEWORK]


@pytest.mark.parametrize("foreground", [False, True])
def test_a_deleted_framework_is_completed_before_it_goes(foreground: bool) -> None:
    """OpenPAI creates a Framework again that disappears, unless it was Completed."""
    story = begun()
    story.set_sink("fails")
    story.delete(foreground=foreground)
    for _ in range(3):
        story.wait(30)
    assert story.status is not None
    assert story.status.state is State.COMPLETED
    completion = story.status.attempt.completion_status
    assert completion is not None
    assert completion.code == -210


def test_a_framework_that_never_began_goes_at_once() -> None:
    story = ArchivedHistory(3)
    story.set_sink("fails")
    story.create({**SPEC, "executionType": "Create"})
    story.settle()
    assert finalizers(story) == []
    story.delete(foreground=False)
    story.settle()
    assert story.framework is None


class QueuedAndArchived(ArchivedHistory, QueuedHistory):
    """A queued Framework whose history blocks."""


def test_a_deleted_framework_gives_its_quota_back() -> None:
    story = QueuedAndArchived(3, quota={"a100": 4, "spot": 4})
    pod = {"spec": {"containers": [{"name": "main", "image": "work"}]}}
    spec = {"taskRoles": [{"name": "a", "taskNumber": 2, "task": {"pod": pod}}]}
    story.create_in(QUEUES[0], spec)
    story.settle()
    assert len(story.pods()) == 2
    story.delete(foreground=False)
    for _ in range(5):
        story.wait(30)
    assert story.framework is None
    assert not story.world.objects[Kind.WORKLOAD]


@pytest.mark.parametrize("code", [403, 409, 422])
def test_a_deleted_framework_whose_status_is_always_refused_goes(code: int) -> None:
    story = begun()
    write = story.world.write_status

    def refuse(*arguments: Any) -> str:
        metadata = story.world.get(Kind.FRAMEWORK, NAME)["metadata"]
        if arguments[3] != metadata["resourceVersion"]:
            return write(*arguments)
        raise ApiRefusal(code, "Invalid", "a webhook says no")

    story.world.write_status = refuse  # type: ignore[assignment]
    story.delete(foreground=False)
    pass_time(story, 20)
    assert story.framework is None
    assert not story.pods()
    assert [one[1] for one in story.sink.stored if len(one) == 2] == [0]


# --- ignored Frameworks -----------------------------------------------------------------------------------


class LeftAlone(OneFramework):
    """A deleted Framework with ConfigMap and Pods, and a sink."""

    def __init__(self) -> None:
        super().__init__(status={"attemptStatus": {"id": 3}, "strange": True}, limit=ARCHIVED)
        self.body["metadata"]["finalizers"] = ["example.com/mine", names.HISTORY_FINALIZER]
        self.delete()
        self.show()
        self.stored: list[Any] = []
        self.answers: Answer = Answered(b"")
        self.requests: list[Any] = []
        self.told: list[Record] = []
        self.ending: Driver | None = None

    def look(self) -> float | None:
        """One pass, and the answer of the history. Return the seconds until the next pass, and let them pass."""
        if self.ending is None:
            assert self.record is not None
            self.ending = Driver(self, Finalization(self.record))
        after = self.ending.finish().requeue_after
        for effect in list(self.ending.effects):
            if isinstance(effect, Archive):
                assert self.ending.finish() == Done()
                self.stored.append(orjson.loads(effect.snapshots[0].status_json))
                self.ending.machine.on_archived(effect, self.answers)
                after = 0 if isinstance(self.answers, Answered) else self.ending.finish().requeue_after
        self.requests += self.ending.requests
        self.ending.requests.clear()
        self.told += self.ending.records()
        self.clock += after or 0
        return after

    def own(self, name: str, owner: str) -> Body:
        """An object of the Framework."""
        references = [{"controller": True, "uid": owner}]
        metadata = {"name": name, "namespace": "ns", "uid": f"uid-of-{name}", "resourceVersion": "1"}
        annotations = dict.fromkeys(names.POD_IDENTITY, "1") | {names.FRAMEWORK_UID: "uid-1"}
        self.objects[name] = {"metadata": {**metadata, "ownerReferences": references, "annotations": annotations}}
        return self.objects[name]


def test_an_ignored_framework_ends_before_it_goes() -> None:
    world = LeftAlone()
    world.own("f-attempt", "uid-1")
    body = world.own("f-a-0", "uid-of-f-attempt")
    pod: PodRecord = pod_record({**body, "status": {"phase": "Running"}})
    world.pods["f-a-0"] = pod
    assert world.look() is not None
    assert "f-attempt" not in world.objects
    assert world.look() is not None
    assert "f-a-0" not in world.objects
    assert world.stored == []
    del world.pods["f-a-0"]
    world.answers = Unanswered("no")
    assert world.look()
    assert names.HISTORY_FINALIZER in world.body["metadata"]["finalizers"]
    world.answers = Answered(b"")
    assert world.look() == 0
    assert world.look() is None
    assert world.body["metadata"]["finalizers"] == ["example.com/mine"]
    assert world.stored == [{"attemptStatus": {"id": 3}, "strange": True}] * 2
    assert [one.reason for one in world.told] == [HistoryReason.COMPLETE]


def test_while_the_sink_is_away_an_ignored_framework_costs_no_requests() -> None:
    world = LeftAlone()
    world.answers = Unanswered("the disk is full")
    delays = [world.look() for _ in range(20)]
    assert len(world.requests) == 2
    assert len(world.stored) == 20
    assert all(delay is not None and 30 <= delay <= 60 for delay in delays[10:])
    (told,) = world.told
    assert (told.reason, told.warning) == (HistoryReason.UNAVAILABLE, True)
    assert "the disk is full" in told.message


def test_a_change_while_the_last_status_is_stored_is_stored_too() -> None:
    world = LeftAlone()
    assert world.look() == 0
    world.store({"attemptStatus": {"id": 4}})
    assert world.look() == 0
    assert world.look() is None
    assert world.stored[1:] == [{"attemptStatus": {"id": 4}}]


@pytest.mark.parametrize("kind", [Refusal.INVALID, Refusal.CONFLICT, Refusal.OTHER])
def test_a_finalizer_that_cannot_be_removed_is_recorded(kind: Refusal) -> None:
    world = LeftAlone()
    world.answer = lambda request: (  # type: ignore[method-assign]
        refused(kind, "a webhook says no")
        if isinstance(request, PatchFinalizers)
        else OneFramework.answer(world, request)
    )
    delays = [world.look() for _ in range(20)]
    assert len(world.stored) == 1
    assert all(delay is not None and 30 <= delay <= 60 for delay in delays[10:])
    (told,) = world.told
    assert (told.reason, told.warning) == (RequestReason.FRAMEWORK_NOT_ANSWERED, True)
    assert "a webhook says no" in told.message


def test_a_framework_that_is_not_deleted_keeps_the_finalizer() -> None:
    world = LeftAlone()
    del world.body["metadata"]["deletionTimestamp"]
    assert world.look() is None
    assert not any(isinstance(one, PatchFinalizers | Remove) for one in world.requests)
    assert world.stored == []
    assert not is_due(framework_record(world.body))


def test_without_a_sink_the_finalizer_of_an_ignored_framework_goes_at_once() -> None:
    world = LeftAlone()
    world.own("f-attempt", "uid-1")
    world.limits = LIMITS
    assert world.look() is None
    assert world.body["metadata"]["finalizers"] == ["example.com/mine"]
    assert (world.stored, list(world.objects)) == ([], ["f-attempt"])


def test_a_configmap_that_cannot_be_read_may_run() -> None:
    world = LeftAlone()
    world.answer = lambda request: (  # type: ignore[method-assign]
        refused(Refusal.SERVER_ERROR) if request.kind is Kind.CONFIGMAP else OneFramework.answer(world, request)  # type: ignore[union-attr]
    )
    assert world.look() is not None
    assert world.stored == []
