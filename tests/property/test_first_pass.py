"""The order of the first syncs after a restart: new Frameworks, then those that run, then completed ones.

No key is lost, in any order in which the caches are filled.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from frameworkcontroller.api.objects import ConfigMapRecord, FrameworkRecord, Identity, PodRecord
from frameworkcontroller.controller.eventhandlers import EventHandlers
from frameworkcontroller.controller.reconcilers import Reconcilers
from frameworkcontroller.controller.snapshots import SnapshotLogger
from frameworkcontroller.kube.turns import AGED_TURN
from frameworkcontroller.kube.workqueue import WorkQueue
from frameworkcontroller.machine import remaining

NEW, RUNNING, COMPLETED, GONE = range(4)
STATES: Final = {NEW: "", RUNNING: "AttemptRunning", COMPLETED: "Completed"}
RANKS: Final = {NEW: 0, RUNNING: 1, GONE: 1, COMPLETED: 2}
IDENTITY: Final = Identity("u", "c", None, False)


def framework(name: str, kind: int) -> FrameworkRecord:
    status = None if kind == NEW else b'{"state": "x"}'
    return FrameworkRecord(f"ns/{name}", "ns", name, name, "1", 1, None, b"{}", b"{}", status, STATES[kind])


def taken(queue: WorkQueue[str]) -> list[str]:
    return list(iter(queue.get_nowait, None))


@given(kinds=st.lists(st.sampled_from([NEW, RUNNING, COMPLETED, GONE]), max_size=12), data=st.data())
def test_the_order_changes_and_nothing_else(kinds: list[int], data: st.DataObject) -> None:
    names = [f"f{number}" for number in range(len(kinds))]
    cached: dict[str, FrameworkRecord] = {}
    ordered = WorkQueue[str](lambda: 0.0, work=lambda key: remaining.of_record(cached.get(key)))
    plain = WorkQueue[str](lambda: 0.0)
    handlers = [EventHandlers(queue, Reconcilers(), SnapshotLogger()) for queue in (ordered, plain)]
    events: list[tuple[str, tuple[Any, ...]]] = []
    for name, kind in zip(names, kinds, strict=True):
        if kind != GONE:
            events.append(("framework_added", (framework(name, kind),)))
        if kind != NEW and data.draw(st.booleans()):
            pod = PodRecord(f"ns/{name}-a-0", "ns", f"{name}-a-0", "1", IDENTITY, "Running")
            events.append(("pod_changed", (pod,)))
            events.append(("pod_updated", (pod, replace(pod, phase="Failed"))))
            events.append(
                ("configmap_added", (ConfigMapRecord(f"ns/{name}-attempt", "ns", f"{name}-attempt", "1", IDENTITY),))
            )
    data.draw(st.randoms(use_true_random=False)).shuffle(events)
    for event, arguments in events:
        if event == "framework_added":
            cached[arguments[0].key] = arguments[0]
        for one in handlers:
            getattr(one, event)(*arguments)
    found = taken(ordered)
    assert sorted(found) == sorted(taken(plain))
    # In the others, the one that has waited longest.
    by_work = [key for number, key in enumerate(found, start=1) if number % AGED_TURN]
    ranks = [RANKS[kinds[names.index(key.partition("/")[2])]] for key in by_work]
    assert ranks == sorted(ranks)
    # A new one that comes later overtakes those that rest.
    for key in found:
        ordered.done(key)
    for key in cached:
        ordered.add(key)
    cached["ns/late"] = framework("late", NEW)
    handlers[0].framework_added(cached["ns/late"])
    for number, key in enumerate(taken(ordered), start=1):
        if key == "ns/late":
            break
        assert kinds[names.index(key.partition("/")[2])] == NEW or not number % AGED_TURN
