"""Random histories of the local queue: the quota is never exceeded, and no Workload waits in vain."""

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from frameworkcontroller.local.queues.decisions import EVICTED, FINISHED, QueueView, Write, decide
from frameworkcontroller.local.queues.queue_records import QueuedWorkload, admitted_usage, decode_workload
from frameworkcontroller.local.resource_lists import total
from tests.unit.queues.test_decisions import NOW, view, workload

QUOTA = Decimal(8)
STEPS = st.one_of(
    st.tuples(st.just("create"), st.integers(0, 4), st.integers(1, 3), st.integers(-1, 1)),
    st.tuples(st.sampled_from(["let go", "finish", "delete", "deactivate", "activate"]), st.integers(0, 9)),
    st.tuples(st.just("decide"), st.integers(0, 3)),
)


class World:
    """Workloads as stored. The owner of an evicted one releases its quota at a step of the history."""

    def __init__(self, preemption: str, strategy: str) -> None:
        self.stored: dict[str, dict[str, Any]] = {}
        self.deactivated: set[str] = set()
        """Those whose quota was free before their owner has let go of it."""
        self._settings: dict[str, Any] = {"preemption": preemption, "strategy": strategy}
        self._time = 0

    def view(self) -> QueueView:
        return view(self.stored.values(), **self._settings)

    def records(self) -> list[QueuedWorkload]:
        return [decode_workload(body) for body in self.stored.values()]

    def create(self, cpu: int, count: int, priority: int) -> None:
        self._time += 1
        name = f"w{self._time}"
        self.stored[name] = workload(name, cpu, count=count, priority=priority, age=1000 - self._time)

    def let_go(self, name: str) -> None:
        body, record = self.stored[name], decode_workload(self.stored[name])
        if record.has(EVICTED) and record.reserved_in is not None:
            del body["status"]["admission"]
            self.deactivated.discard(name)
            for one in body["status"]["conditions"]:
                if one["type"] in ("QuotaReserved", "Admitted"):
                    one["status"] = "False"

    def finish(self, name: str) -> None:
        if decode_workload(self.stored[name]).reserved_in is not None:
            since = self.stored[name]["metadata"]["creationTimestamp"]
            done = {
                "type": FINISHED,
                "status": "True",
                "reason": "Succeeded",
                "message": "",
                "lastTransitionTime": since,
            }
            self.stored[name]["status"]["conditions"].append(done)

    def apply(self, writes: Iterable[Write]) -> None:
        """Store the writes, and check after each of them."""
        for write in writes:
            body = self.stored[write.workload.name]
            body["status"] = {**body.get("status", {}), **write.patch["status"]}
            self.check()

    def check(self) -> None:
        holders = [r for r in self.records() if r.reserved_in is not None and not r.has(FINISHED)]
        holders = [holder for holder in holders if holder.name not in self.deactivated]
        used = total(admitted_usage(holder) for holder in holders)
        assert used.get("cpu", Decimal(0)) <= QUOTA, used

    def settle(self) -> None:
        """Decide until there is nothing to do; every owner of an evicted Workload releases its quota at once."""
        for _ in range(200):
            writes = decide(self.view(), NOW)
            self.apply(writes)
            evicted = [record.name for record in self.records() if record.has(EVICTED) and record.reserved_in]
            for name in evicted:
                self.let_go(name)
            if not writes and not evicted:
                return
        raise AssertionError("the queue never comes to rest")

    def act(self, step: tuple[Any, ...]) -> None:
        what, *arguments = step
        names = list(self.stored)
        if what == "create":
            self.create(*arguments)
        elif what == "decide":
            # Some writes fail: another client was faster, or the API server is away.
            self.apply(decide(self.view(), NOW)[arguments[0] :])
        elif names:
            name = names[arguments[0] % len(names)]
            if what == "let go":
                self.let_go(name)
            elif what == "finish":
                self.finish(name)
            elif what == "delete":
                del self.stored[name]
            else:
                self.stored[name]["spec"]["active"] = what == "activate"
                if what == "deactivate" and decode_workload(self.stored[name]).reserved_in is not None:
                    self.deactivated.add(name)


@given(
    steps=st.lists(STEPS, max_size=30),
    preemption=st.sampled_from(["Never", "LowerPriority", "LowerOrNewerEqualPriority"]),
    strategy=st.sampled_from(["BestEffortFIFO", "StrictFIFO"]),
)
def test_quota_holds_and_the_first_in_the_queue_gets_the_free_quota(
    steps: list[tuple[Any, ...]], preemption: str, strategy: str
) -> None:
    world = World(preemption, strategy)
    for step in steps:
        world.act(step)
        world.check()
    world.settle()
    records = [record for record in world.records() if not record.has(FINISHED) and record.active]
    holders = [record for record in records if record.reserved_in is not None]
    used = total(admitted_usage(holder) for holder in holders).get("cpu", Decimal(0))
    waiting = sorted(
        (record for record in records if record.reserved_in is None), key=lambda r: (-r.priority, r.created, r.key)
    )
    needs = [sum((s.requests["cpu"] * s.count for s in record.pod_sets), Decimal(0)) for record in waiting]
    possible = [(record, need) for record, need in zip(waiting, needs, strict=True)]
    if strategy == "StrictFIFO":
        possible = possible[:1]
    for record, need in possible:
        assert used + need > QUOTA, f"{record.name} waits although it fits"
        lower = [holder for holder in holders if holder.priority < record.priority]
        gain = total(admitted_usage(holder) for holder in lower).get("cpu", Decimal(0))
        if preemption != "Never":
            assert used - gain + need > QUOTA, f"{record.name} waits for ones of lower priority"
