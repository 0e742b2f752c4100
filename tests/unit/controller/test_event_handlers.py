"""The event handlers: which deletions they believe, and the snapshots of deleted objects."""

from __future__ import annotations

import logging
import random
from dataclasses import replace
from typing import Any

import orjson
import pytest

from frameworkcontroller.api.objects import (
    CompanionRecord,
    ConfigMapRecord,
    Disruption,
    FrameworkRecord,
    Identity,
    PodRecord,
)
from frameworkcontroller.api.status import (
    FrameworkAttemptStatus,
    FrameworkStatus,
    State,
    TaskAttemptStatus,
    TaskRoleStatus,
    TaskStatus,
)
from frameworkcontroller.controller.eventhandlers import EventHandlers
from frameworkcontroller.controller.reconcilers import Reconcilers
from frameworkcontroller.controller.snapshots import SnapshotLogger
from frameworkcontroller.kube.workqueue import WorkQueue
from frameworkcontroller.machine.kernel.model import Env, Snapshot, SnapshotTrigger
from frameworkcontroller.machine.kernel.requests import Kind
from frameworkcontroller.machine.parts.dependencies.dependencies import RoleOrder
from frameworkcontroller.machine.quarantine import Quarantine
from frameworkcontroller.machine.reconciler import Reconciler
from tests.support.bench import limits

POD = PodRecord("ns/f-a-0", "ns", "f-a-0", "5", Identity("pod-1", "cm-1", None, False), "Running")
CONFIGMAP = ConfigMapRecord("ns/f-attempt", "ns", "f-attempt", "5", Identity("cm-1", "f-1", None, False))
DELETING = Identity("pod-1", "cm-1", None, True)


class Known:
    """A Framework whose Pod and ConfigMap the cache has shown."""

    def __init__(self) -> None:
        self.queue: WorkQueue[str] = WorkQueue()
        self.reconcilers = Reconcilers()
        record = FrameworkRecord("ns/f", "ns", "f", "f-1", "1", 1, None, b"{}", b"{}", None)
        self.reconciler = self.reconcilers.open(record)
        task = TaskStatus(0, "task-1", 0, 0, TaskAttemptStatus(0, 0, pod_uid=POD.uid), State.RUNNING, role="a")
        attempt = FrameworkAttemptStatus(0, 0, configmap_uid=CONFIGMAP.uid)
        attempt.roles.append(TaskRoleStatus("a", "role-1", tasks=[task]))
        self.reconciler.tracker.begin(FrameworkStatus(0, 0, attempt=attempt))
        self.reconciler.tracker.agenda.clear()
        self.reconciler.tracker.expectations.trust_absence(POD.uid)
        self.reconciler.tracker.expectations.trust_absence(CONFIGMAP.uid)
        self.handlers = EventHandlers(self.queue, self.reconcilers, SnapshotLogger())


@pytest.fixture
async def known() -> Known:
    return Known()


@pytest.mark.parametrize("awaited", [True, False])
async def test_readiness_wakes_a_framework_with_a_role_that_waits_for_it(known: Known, *, awaited: bool) -> None:
    if awaited:
        tracker = known.reconciler.tracker
        tracker.part(RoleOrder).watch(tracker, {"a"})
        known.reconciler.tracker.agenda.clear()
    known.handlers.pod_updated(POD, replace(POD, ready=True))
    assert list(known.reconciler.tracker.agenda) == [("a", 0)] * awaited
    assert len(known.queue) == awaited


@pytest.mark.parametrize("confirmed", [True, False])
async def test_a_later_version_counts_until_the_api_server_has_shown_the_status(
    known: Known, *, confirmed: bool
) -> None:
    known.reconciler.known.stored.confirmed = confirmed
    old = FrameworkRecord("ns/f", "ns", "f", "f-1", "1", 1, None, b"{}", b"{}", None)
    known.handlers.framework_updated(old, replace(old, resource_version="2"))
    assert len(known.queue) == (not confirmed)


@pytest.mark.parametrize(
    ("final", "removed"),
    [
        (replace(POD, identity=DELETING), True),
        (replace(POD, identity=DELETING, phase="Succeeded"), True),
        # As it is left, with a grace period or by a finalizer's holder, when it loses its label.
        (replace(POD, identity=replace(DELETING, deletion_grace_sec=30)), False),
        (replace(POD, identity=DELETING, finalizers=True), False),
        (replace(POD, phase="Succeeded"), False),
        (POD, False),
        # A list without it: it lost its label or was deleted while unwatched.
        (None, False),
    ],
    ids=["removed", "ended", "terminating", "finalizers", "succeeded", "alive", "vanished"],
)
async def test_a_pod_that_the_cache_drops_is_gone_only_in_a_state_that_no_api_server_keeps(
    known: Known, final: PodRecord | None, removed: bool
) -> None:
    known.handlers.pod_deleted(POD, final)
    assert known.reconciler.tracker.expectations.trusts_absence(POD.uid) is removed
    assert known.reconciler.tracker.expectations.has_lost(POD.uid) is not removed
    assert list(known.reconciler.tracker.agenda) == [("a", 0)]
    assert await known.queue.get() == "ns/f"


async def test_nothing_is_kept_of_a_pod_that_no_task_records(known: Known) -> None:
    known.handlers.pod_deleted(replace(POD, identity=replace(POD.identity, uid="other")), None)
    assert not known.reconciler.tracker.expectations.has_lost("other")


async def test_events_of_a_framework_in_quarantine_change_nothing(known: Known) -> None:
    record = FrameworkRecord("ns/f", "ns", "f", "f-1", "1", 1, None, b"{}", b"{}", None)
    env = Env(0.0, 0.0, random.Random(1), limits())
    known.reconcilers.put(record, Quarantine(record, ValueError("unforeseen"), env, logged_cause=None))
    known.handlers.pod_changed(POD)
    known.handlers.pod_updated(POD, replace(POD, ready=True))
    known.handlers.pod_deleted(POD, None)
    known.handlers.configmap_deleted(CONFIGMAP, None)
    companion = CompanionRecord("ns/f", "ns", "f", "5", Identity("service-1", "f-1", None, False), "f")
    known.handlers.companion_changed(companion)
    known.handlers.companion_deleted(companion, None)
    known.handlers.companions_listed(Kind.SERVICE, 1.0, lambda _: None)
    assert known.reconcilers.resync() == []
    assert list(known.reconciler.tracker.agenda) == []


DISRUPTED = replace(POD, disruption=Disruption("DeletionByPodGC", "PodGC: node no longer exists"))


@pytest.mark.parametrize(("old", "final"), [(DISRUPTED, None), (POD, DISRUPTED)], ids=["vanished", "told"])
async def test_why_kubernetes_deleted_a_pod_is_kept_from_its_last_state(
    known: Known, old: PodRecord, final: PodRecord | None
) -> None:
    known.handlers.pod_deleted(old, final)
    assert known.reconciler.tracker.life.dropped == {("a", 0): DISRUPTED}


async def test_why_kubernetes_deleted_a_pod_is_not_kept_if_no_task_records_it(known: Known) -> None:
    known.handlers.pod_deleted(replace(DISRUPTED, identity=replace(POD.identity, uid="other")), None)
    known.handlers.pod_deleted(replace(DISRUPTED, name="f-a-7"), None)
    assert known.reconciler.tracker.life.dropped == {}


async def test_nothing_is_kept_of_a_pod_that_was_not_disrupted(known: Known) -> None:
    known.handlers.pod_deleted(POD, POD)
    assert known.reconciler.tracker.life.dropped == {}


@pytest.mark.parametrize(
    "final",
    [replace(CONFIGMAP, identity=replace(CONFIGMAP.identity, deleting=True)), CONFIGMAP, None],
    ids=["deleted", "alive", "vanished"],
)
async def test_whether_a_configmap_that_the_cache_drops_is_gone_is_not_known(
    known: Known, final: ConfigMapRecord | None
) -> None:
    known.handlers.configmap_deleted(CONFIGMAP, final)
    assert not known.reconciler.tracker.expectations.trusts_absence(CONFIGMAP.uid)
    assert known.reconciler.tracker.expectations.has_lost(CONFIGMAP.uid)
    assert await known.queue.get() == "ns/f"


FRAMEWORK = FrameworkRecord("ns/g", "ns", "g", "g-1", "1", 1, None, b'{"name":"g"}', b"{}", None)


def _track(known: Known) -> Reconciler:
    status = FrameworkStatus(start_time=0, transition_time=0, attempt=FrameworkAttemptStatus(id=3, start_time=0))
    reconciler = known.reconcilers.open(FRAMEWORK)
    reconciler.tracker.begin(status)
    return reconciler


@pytest.mark.parametrize(
    "final", [None, replace(FRAMEWORK, status_json=b'{"state":"Completed"}')], ids=["vanished", "told"]
)
async def test_a_framework_that_is_gone_is_in_the_history_once(
    known: Known, final: FrameworkRecord | None, caplog: pytest.LogCaptureFixture
) -> None:
    _track(known)
    with caplog.at_level(logging.INFO):
        known.handlers.framework_deleted(FRAMEWORK, final)
    (line,) = caplog.messages
    _, mark, tail = line.partition(": OnFrameworkDeletion: ObjectSnapshot: ")
    assert mark
    shown = orjson.loads(tail)
    assert shown["metadata"]["name"] == "g"
    if final is None:
        assert shown["status"]["attemptStatus"]["id"] == 3
    else:
        assert shown["status"] == final.status


async def test_a_framework_that_was_kept_before_its_deletion_is_not_kept_again(
    known: Known, caplog: pytest.LogCaptureFixture
) -> None:
    _track(known).tracker.process.deletion_snapshot_taken = True
    with caplog.at_level(logging.INFO):
        known.handlers.framework_deleted(FRAMEWORK, FRAMEWORK)
    assert caplog.messages == ["[ns/g]: Framework was deleted"]


@pytest.mark.parametrize("final", [None, replace(FRAMEWORK, status_json=b"{}")], ids=["vanished", "told"])
async def test_snapshots_that_no_request_has_followed_are_logged_when_the_framework_is_gone(
    known: Known, final: FrameworkRecord | None, caplog: pytest.LogCaptureFixture
) -> None:
    """For example, another client deletes it while its own deletion at the end of its retention is delayed."""
    reconciler = _track(known)
    reconciler.tracker.process.deletion_snapshot_taken = True
    reconciler.known.stored.resource_version = "8"
    reconciler._outbox.snapshots.append(Snapshot(SnapshotTrigger.FRAMEWORK_DELETION, b'{"state":"Completed"}'))
    with caplog.at_level(logging.INFO):
        known.handlers.framework_deleted(FRAMEWORK, final)
    shown, told = caplog.messages
    assert told == "[ns/g]: Framework was deleted"
    snapshot = orjson.loads(shown.partition(": OnFrameworkDeletion: ObjectSnapshot: ")[2])
    assert snapshot["metadata"] == {"name": "g", "resourceVersion": "8"}
    assert snapshot["status"] == {"state": "Completed"}


async def test_snapshots_of_a_deleted_framework_have_its_uid(known: Known, caplog: pytest.LogCaptureFixture) -> None:
    _track(known)._outbox.snapshots.append(Snapshot(SnapshotTrigger.FRAMEWORK_DELETION, b"{}"))
    with caplog.at_level(logging.INFO):
        known.handlers.framework_deleted(replace(FRAMEWORK, uid="g-0"), None)
    (message,) = caplog.messages
    assert "no snapshot" in message


# --- the history of Pods ------------------------------------------------------------------------------------------


def owner(kind: str = "ConfigMap", name: str = "f-attempt", *, controller: bool = True) -> dict[str, Any]:
    """An owner reference of the Pod f-a-0."""
    return {"kind": kind, "name": name, "uid": "cm-1", "controller": controller}


@pytest.mark.parametrize(
    ("owners", "told"),
    [
        ([owner("Job"), owner()], True),
        ([owner()], True),
        ([owner(controller=False)], False),
        ([owner("ReplicaSet")], False),
        ([owner(name="g-attempt")], False),
        ([], False),
        (None, False),
    ],
)
async def test_only_pods_of_a_framework_are_kept_for_the_history(
    known: Known, owners: list[dict[str, Any]] | None, told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Any client can set the label of a Pod."""
    metadata = {"namespace": "ns", "name": "f-a-0", "uid": "pod-1", "labels": {"FC_FRAMEWORK_NAME": "f"}}
    with caplog.at_level(logging.INFO):
        known.handlers.pod_object_deleted(
            {"metadata": {**metadata, "ownerReferences": owners}, "status": {"phase": "Succeeded"}}
        )
    assert [": OnPodDeletion: ObjectSnapshot: " in message for message in caplog.messages] == [True] * told


@pytest.mark.parametrize(
    ("identity", "told"),
    [
        (Identity("pod-1", "cm-1", ("x",), False), True),
        (Identity("pod-1", "cm-1", None, False), False),
        (Identity("pod-1", None, ("x",), False), False),
    ],
)
async def test_only_pods_of_a_framework_are_missed(
    known: Known, identity: Identity, told: bool, caplog: pytest.LogCaptureFixture
) -> None:
    known.handlers.pod_deleted(replace(POD, identity=identity), None)
    assert ["deleted while unwatched" in message for message in caplog.messages] == [True] * told
