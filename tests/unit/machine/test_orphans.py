"""Workloads whose Framework is gone: which are released, and when."""

from types import SimpleNamespace
from typing import Any, NamedTuple

import orjson
import pytest

from frameworkcontroller.api.objectkinds import Kind
from frameworkcontroller.api.objects import PodRecord, pod_record
from frameworkcontroller.api.workloads import WorkloadRecord, workload_record
from frameworkcontroller.machine.kernel.model import Observed
from frameworkcontroller.machine.kernel.protocol import Done, OrphanReleased, ReadLive
from frameworkcontroller.machine.kernel.requests import (
    Answer,
    Answered,
    Get,
    MergePatch,
    Refusal,
    Refused,
    Unanswered,
)
from frameworkcontroller.machine.parts.kueue.orphanedworkloads import LOOK_SEC, OrphanRelease, orphans

OWNER = {"kind": "Framework", "name": "f", "uid": "old", "controller": True}
NOT_FOUND = Refused(404, "no", b"{}", kind=Refusal.OBJECT_NOT_FOUND)
FINALIZER = "kueue.x-k8s.io/resource-in-use"


def body(*finalizers: str, version: str = "5") -> dict[str, Any]:
    """The Workload of the Framework with UID ``old``."""
    metadata = {"namespace": "ns", "name": "w", "uid": "w-1", "resourceVersion": version, "ownerReferences": [OWNER]}
    return {"metadata": {**metadata, "finalizers": list(finalizers)}}


def orphan() -> WorkloadRecord:
    """Its record."""
    return workload_record(body(FINALIZER))


def found(uid: str, controller: str = "") -> Answered:
    """Another object."""
    owners = [{"uid": controller, "controller": True}] if controller else []
    return Answered(orjson.dumps({"metadata": {"uid": uid, "ownerReferences": owners}}))


def pod(framework_uid: str, *owners: dict[str, Any]) -> PodRecord:
    """A Pod of the Framework with that UID."""
    marks = ("FC_FRAMEWORK_UID", "FC_FRAMEWORK_ATTEMPT_INSTANCE_UID", "FC_TASKROLE_UID", "FC_TASK_UID")
    annotations = dict.fromkeys((*marks, "FC_TASK_ATTEMPT_ID"), framework_uid)
    metadata = {"namespace": "ns", "name": "f-a-0", "uid": "p", "resourceVersion": "1", "annotations": annotations}
    return pod_record({"metadata": {**metadata, "ownerReferences": list(owners)}})


class Outcome(NamedTuple):
    """``after``: the seconds until the next pass."""

    done: bool
    after: float | None = None


def outcome(answers: dict[Kind, Answer], *pods: PodRecord) -> tuple[Outcome, list[Any]]:
    """The outcome, and the requests that were sent."""
    machine, sent = OrphanRelease(orphan()), list[Any]()
    view: Any = SimpleNamespace(observe=lambda creating: Observed(None, lambda _: None, lambda: pods))
    call = machine.next(view)
    assert isinstance(call, ReadLive)
    request = machine.begin(call, view)
    while request is not None:
        sent.append(request)
        if isinstance(request, MergePatch):
            request = machine.on_answer(call, Answered(orjson.dumps(body(version="6"))))
        else:
            assert isinstance(request, Get)
            request = machine.on_answer(call, answers[request.kind])
    done = machine.next(view)
    assert isinstance(done, Done)
    return Outcome(machine.effects() == [OrphanReleased("w")], done.requeue_after), sent


def gone(**others: Answer) -> dict[Kind, Answer]:
    """Nothing is left but the Workload."""
    answers: dict[Kind, Answer] = {Kind.FRAMEWORK: NOT_FOUND, Kind.CONFIGMAP: NOT_FOUND}
    answers[Kind.WORKLOAD] = Answered(orjson.dumps(body(FINALIZER, "other")))
    return answers | {Kind[name.upper()]: answer for name, answer in others.items()}


def test_only_held_workloads_of_other_frameworks_are_orphans() -> None:
    released = workload_record(body())
    assert orphans([orphan(), released], None) == [orphan()]
    assert orphans([orphan(), released], "new") == [orphan()]
    assert orphans([orphan(), released], "old") == []


def test_an_orphan_loses_only_our_finalizer() -> None:
    made, sent = outcome(gone())
    assert made == Outcome(done=True)
    assert [one.kind for one in sent] == [Kind.FRAMEWORK, Kind.CONFIGMAP, Kind.WORKLOAD, Kind.WORKLOAD]
    metadata = orjson.loads(sent[-1].body)["metadata"]
    assert metadata == {"finalizers": ["other"], "uid": "w-1", "resourceVersion": "5"}


@pytest.mark.parametrize(
    "answers",
    [
        gone(framework=found("old")),
        gone(framework=Unanswered("lost")),
        gone(framework=Refused(403, "no", b"{}")),
        gone(configmap=found("cm", "old")),
        gone(configmap=Unanswered("lost")),
        gone(workload=Unanswered("lost")),
    ],
)
def test_quota_stays_while_something_may_exist(answers: dict[Kind, Answer]) -> None:
    made, sent = outcome(answers)
    assert made == Outcome(False, LOOK_SEC)
    assert all(isinstance(one, Get) for one in sent)


def test_a_later_framework_of_the_name_does_not_matter() -> None:
    made, _ = outcome(gone(framework=found("new"), configmap=found("cm", "new")), pod("new"))
    assert made.done


@pytest.mark.parametrize("owners", [[{"uid": "cm", "controller": True}], [{"uid": "another"}], []])
def test_a_pod_that_the_cache_shows_holds_the_quota(owners: list[dict[str, Any]]) -> None:
    """Also once it has lost its owner."""
    assert outcome(gone(), pod("old", *owners)) == (Outcome(False, LOOK_SEC), [])


def test_a_workload_that_is_gone_needs_nothing() -> None:
    made, _ = outcome(gone(workload=NOT_FOUND))
    assert made == Outcome(False, None)


def test_a_workload_that_was_orphaned_on_purpose_is_not_changed() -> None:
    """The cache still shows its owner."""
    live = body(FINALIZER)
    del live["metadata"]["ownerReferences"]
    made, sent = outcome(gone(workload=Answered(orjson.dumps(live))))
    assert made == Outcome(False, None)
    assert all(isinstance(one, Get) for one in sent)
