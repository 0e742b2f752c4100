"""What becomes of actions whose turns are slow to come, and of a pass that is stopped or refused."""

import random
from typing import Any, Final

import orjson
import pytest

from frameworkcontroller.api.codec import EncodedStatus
from frameworkcontroller.api.objects import ConfigMapRecord, FrameworkRecord, PodRecord, configmap_record, pod_record
from frameworkcontroller.api.objects import framework_record as read_framework
from frameworkcontroller.machine.kernel.model import Env, Observed, Record
from frameworkcontroller.machine.kernel.protocol import (
    Act,
    Call,
    Done,
    Emit,
    Instruction,
    ReadLive,
    StatusWritten,
    WriteStatus,
)
from frameworkcontroller.machine.kernel.requests import (
    Answer,
    Answered,
    Get,
    Kind,
    PatchStatus,
    Post,
    Refusal,
    Refused,
    Remove,
    Request,
    Unanswered,
)
from frameworkcontroller.machine.reconciler import Reconciler
from tests.support.bench import limits, role

RETAIN_SEC: Final = limits().framework_completed_retain_sec


def refusal(kind: Refusal) -> Refused:
    """A refusal of that kind."""
    return Refused(422, "no", b"{}", kind=kind)


class Turns:
    """Framework ``f``, its reconciler, and an API server that does what is asked for."""

    def __init__(self, tasks: int) -> None:
        self.clock = 1_000.0
        self.rng = random.Random(7)
        metadata = {"namespace": "ns", "name": "f", "uid": "u", "generation": 1, "resourceVersion": "1"}
        self.body: dict[str, Any] = {"metadata": metadata, "spec": {"taskRoles": [role("a", tasks)]}}
        self.configmap: ConfigMapRecord | None = None
        self.pods: dict[str, PodRecord] = {}
        self.bodies: dict[str, Any] = {}
        self.effects: list[object] = []
        self.reconciler = Reconciler(self.record)

    @property
    def record(self) -> FrameworkRecord:
        return read_framework(self.body)

    @property
    def env(self) -> Env:
        return Env(1_700_000_000 + self.clock, self.clock, self.rng, limits())

    def observe(self, *, creating: bool) -> Observed:
        return Observed(self.configmap, self.pods.get, lambda: list(self.pods.values()), creating=creating)

    def answer(self, request: Request) -> Answer:
        metadata = self.body["metadata"]
        match request:
            case Get(Kind.FRAMEWORK):
                return Answered(orjson.dumps(self.body))
            case Get():
                return refusal(Refusal.OBJECT_NOT_FOUND)
            case Post(kind, name, body):
                found = orjson.loads(body)
                found["metadata"] |= {"uid": f"uid-of-{name}", "resourceVersion": "1"}
                self.bodies[name] = found
                if kind is Kind.CONFIGMAP:
                    self.configmap = configmap_record(found)
                else:
                    self.pods[name] = pod_record(found)
                return Answered(orjson.dumps(found))
            case PatchStatus(value=EncodedStatus() as value):
                if request.resource_version != metadata["resourceVersion"]:
                    return refusal(Refusal.INVALID)
                self.body["status"] = orjson.loads(value.body)
                self.touch()
                return Answered(orjson.dumps({"metadata": metadata}))
        return Answered(b'{"metadata": {}}')

    def touch(self) -> None:
        """The stored object changes."""
        metadata = self.body["metadata"]
        metadata["resourceVersion"] = str(1 + int(metadata["resourceVersion"]))
        self.reconciler.on_framework_event(self.record)

    def next(self) -> Instruction:
        instruction = self.reconciler.next(self)
        self.effects += self.reconciler.effects()
        return instruction

    def call(self) -> Call:
        call = self.next()
        assert isinstance(call, Act | WriteStatus | ReadLive), call
        return call

    def serve(self, call: Call, request: Request | None) -> None:
        while request is not None:
            request = self.reconciler.on_answer(call, self.answer(request))
        self.effects += self.reconciler.effects()

    def do(self, call: Call, *, after: float = 0.0) -> Request | None:
        self.clock += after
        first = self.reconciler.begin(call, self)
        self.serve(call, first)
        return first

    def finish(self) -> Done:
        while not isinstance(instruction := self.next(), Done):
            assert isinstance(instruction, Act | WriteStatus | ReadLive)
            self.do(instruction)
        return instruction

    def settle(self) -> None:
        for _ in range(50):
            done = self.finish()
            if done.requeue_after is None or done.requeue_after >= 60:
                return
            self.clock += done.requeue_after
        raise AssertionError("it does not settle")

    def phase(self, name: str, phase: str) -> None:
        """The cache shows the Pod in that phase."""
        self.bodies[name]["status"] = {"phase": phase}
        self.pods[name] = pod_record(self.bodies[name])
        self.reconciler.on_pod_event(name)

    def run_all(self) -> None:
        self.settle()
        for name in list(self.pods):
            self.phase(name, "Running")
        self.settle()
        self.clock += 60

    def gone(self, *names: str) -> None:
        """The cache drops these Pods, which does not say that they are gone."""
        for name in names:
            self.reconciler.on_pod_dropped(self.pods.pop(name), removed=False)
            self.reconciler.on_pod_event(name)

    def written(self) -> list[str]:
        """The results of the status writes."""
        results: list[str] = [effect.result for effect in self.effects if isinstance(effect, StatusWritten)]
        self.effects.clear()
        return results

    def records(self) -> list[Record]:
        return [record for effect in self.effects if isinstance(effect, Emit) for record in effect.records]


def acts(turns: Turns) -> list[Act]:
    found = []
    while isinstance(instruction := turns.next(), Act):
        found.append(instruction)
    return found


def test_a_completing_attempt_does_not_put_off_what_waits_for_its_turn() -> None:
    """Else every pass would, for as long as turns take more than a second to come."""
    turns = stopped(3)
    turns.finish()
    turns.gone("f-a-0", "f-a-1")
    waiting = acts(turns)
    assert len(waiting) >= 2
    turns.clock += 1.5
    turns.next()
    assert all(isinstance(turns.do(act), Get) for act in waiting)


def stopped(number: int) -> Turns:
    """A Framework that its user stops, up to the deletion of its ConfigMap."""
    turns = Turns(number)
    turns.run_all()
    turns.body["spec"]["executionType"] = "Stop"
    turns.body["metadata"]["generation"] = 2
    turns.touch()
    turns.finish()
    return turns


def test_a_slow_live_read_puts_no_action_off() -> None:
    turns = stopped(1)
    turns.reconciler.stored.confirmed = False
    turns.reconciler.tracker.agenda.look()
    read = turns.call()
    assert isinstance(read, ReadLive)
    turns.do(read, after=3)
    act = turns.call()
    turns.next()
    assert isinstance(turns.do(act), Remove)


@pytest.mark.parametrize("lost", [True, False])
def test_nothing_is_started_after_a_status_write_that_failed(*, lost: bool) -> None:
    turns = Turns(200)
    turns.finish()
    turns.finish()
    turns.do(turns.call())
    waiting = acts(turns)
    turns.do(waiting[0])
    turns.clock += 6
    write = turns.call()
    while isinstance(write, Act):
        waiting.append(write)
        write = turns.call()
    assert isinstance(write, WriteStatus)
    request = turns.reconciler.begin(write, turns)
    if lost:
        assert turns.reconciler.on_answer(write, Unanswered("lost")) is None
    else:
        turns.body["status"]["conditions"] = []
        turns.touch()
        turns.serve(write, request)
    turns.do(waiting[1])
    assert not isinstance(turns.next(), Act)
    assert [turns.reconciler.begin(act, turns) for act in waiting[2:]] == [None] * len(waiting[2:])


def test_a_stop_before_the_first_plan_loses_nothing() -> None:
    turns = Turns(3)
    turns.run_all()
    turns.phase("f-a-0", "Succeeded")
    turns.finish()
    # One Task is to be retried, say, and the state of another one is known now.
    turns.gone("f-a-1")
    turns.phase("f-a-2", "Failed")
    turns.reconciler.stop()
    turns.finish()
    tasks = turns.body["status"]["attemptStatus"]["taskRoleStatuses"][0]["taskStatuses"]
    assert tasks[2]["state"] == "AttemptDeletionPending"
    assert ("a", 1) in turns.reconciler.tracker.agenda


def test_a_deletion_that_was_not_attempted_is_no_failure() -> None:
    turns = Turns(1)
    turns.run_all()
    turns.phase("f-a-0", "Succeeded")
    turns.settle()
    turns.pods.clear()
    turns.reconciler.on_pod_event("f-a-0")
    turns.settle()
    turns.configmap = None
    turns.reconciler.on_configmap_dropped("uid-of-f-attempt")
    turns.reconciler.resync()
    turns.settle()
    assert turns.reconciler.tracker.status is not None
    assert turns.reconciler.tracker.status.state == "Completed"
    turns.clock += RETAIN_SEC + 1
    turns.effects.clear()
    deletion = turns.call()
    turns.reconciler.stop()
    assert turns.do(deletion) is None
    assert turns.next() == Done(0.0)
    assert turns.records() == []


def too_large(turns: Turns, *, then: Answer | None = None, touched: bool = False) -> Instruction:
    """The status is found too large: what follows."""
    write = turns.call()
    assert isinstance(write, WriteStatus)
    turns.reconciler.begin(write, turns)
    live = turns.reconciler.on_answer(write, refusal(Refusal.TOO_LARGE))
    assert isinstance(live, Get)
    if touched:
        turns.touch()
    said = turns.reconciler.on_answer(write, turns.answer(live))
    if said is not None:
        assert then is not None
        assert turns.reconciler.on_answer(write, then) is None
    return turns.next()


def test_a_write_is_counted_once() -> None:
    turns = Turns(1)
    assert too_large(turns, touched=True) == Done(0.0)
    assert turns.written() == ["conflict"]


def test_a_status_that_takes_no_condition_is_not_sent_again_and_again() -> None:
    turns = Turns(1)
    done = [too_large(turns, then=refusal(Refusal.INVALID)) for _ in range(4)]
    assert done[:3] == [Done(0.0)] * 3
    assert isinstance(done[3], Done)
    assert done[3].error is not None
