"""The order of the first syncs after a restart: new Frameworks, then those that run, then completed ones.

No key is lost, whatever the order in which the caches are filled.
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
from frameworkcontroller.kube.workqueue import QueueCore

NEW, RUNNING, COMPLETED, GONE = range(4)
STATES: Final = {NEW: "", RUNNING: "AttemptRunning", COMPLETED: "Completed"}
IDENTITY: Final = Identity("u", "c", None, False)


def framework(name: str, kind: int) -> FrameworkRecord:
    return FrameworkRecord(f"ns/{name}", "ns", name, name, "1", 1, None, b"{}", b"{}", None, STATES[kind])


def taken(queue: QueueCore[str]) -> list[str]:
    return list(iter(queue.get_nowait, None))


@given(kinds=st.lists(st.sampled_from([NEW, RUNNING, COMPLETED, GONE]), max_size=12), data=st.data())
def test_the_order_changes_and_nothing_else(kinds: list[int], data: st.DataObject) -> None:
    held, plain = QueueCore[str](lambda: 0.0), QueueCore[str](lambda: 0.0)
    handlers = [EventHandlers(queue, Reconcilers(), SnapshotLogger()) for queue in (held, plain)]  # type: ignore[arg-type]
    handlers[0].hold()
    names = [f"f{number}" for number in range(len(kinds))]
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
    for one in handlers:
        for event, arguments in events:
            getattr(one, event)(*arguments)
    before = taken(held)
    assert set(before) == {f"ns/{name}" for name, kind in zip(names, kinds, strict=True) if kind == NEW}
    for key in before:
        held.done(key)
    handlers[0].release()
    after = [key for key in taken(held) if key not in before]
    assert {*before, *after} == set(taken(plain))
    ranks = [kinds[names.index(key.partition("/")[2])] == COMPLETED for key in after]
    assert ranks == sorted(ranks)
    # From now on nothing is held.
    handlers[0].framework_added(framework("late", RUNNING))
    assert taken(held) == ["ns/late"]
