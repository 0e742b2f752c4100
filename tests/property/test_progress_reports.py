"""W in random histories: reports of several Pods to several replicas, under failures and restarts."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from frameworkcontroller.reports.progresswriter import MIN_SPACING_SEC
from frameworkcontroller.reports.reportbody import Report
from tests.support.storedreports import ConfigMaps, Fate, Replica
from tests.support.virtual_clock import run, wall

SETTLED_SEC: Final = 600.0
PODS: Final = ("a", "b", "c")


@dataclass(frozen=True)
class Step:
    """After ``wait`` seconds, a Pod reports to a replica: ``advance`` to the next step, else its last one again."""

    wait: float
    replica: int = 0
    pod: str = "a"
    advance: bool = True
    checkpoint: bool = False
    restart: bool = False
    fate: Fate = "done"
    """Of the requests from then on, until the next step."""


@dataclass
class Seen:
    """The content of the reports. Times are in whole seconds."""

    steps: dict[str, int] = field(default_factory=dict)
    changed: int = 0
    checkpoint: int | None = None
    checkpoint_step: int | None = None
    reported: int = 0


async def play(steps: list[Step], *, replicas: int = 1, interval: int = 60) -> tuple[ConfigMaps, Seen]:
    """Play the steps, let all be written, and return the stored progress and the reports."""
    fates: list[Fate] = ["done"]
    store = ConfigMaps(interval, fate=lambda: fates[0])
    all_replicas = [Replica(store, wall) for _ in range(replicas)]
    seen = Seen()
    numbers = iter(range(1, 10**6))
    for step in steps:
        await asyncio.sleep(step.wait)
        fates[0] = step.fate
        replica = all_replicas[step.replica % replicas]
        if step.restart:
            replica.restart()
        known = seen.steps.get(step.pod)
        number = next(numbers) if step.advance or known is None else known
        if not await replica.take(step.pod, Report(step=number, checkpoint=step.checkpoint)):
            # Its Pod repeats it later.
            continue
        now = int(wall())
        if number != known or step.checkpoint:
            seen.changed = now
        seen.steps[step.pod] = number
        seen.reported = now
        if step.checkpoint:
            seen.checkpoint, seen.checkpoint_step = now, number
    fates[0] = "done"
    await asyncio.sleep(SETTLED_SEC)
    assert not store.faults, store.faults[0]
    for replica in all_replicas:
        await replica.writer.stop(10.0)
    return store, seen


def check(steps: list[Step], *, replicas: int = 1, interval: int = 60) -> None:
    """Check the stored progress after the steps."""

    async def main() -> None:
        store, seen = await play(steps, replicas=replicas, interval=interval)
        if not seen.reported:
            assert not store.progress
            return
        assert store.time("lastReportTime") == seen.reported, "a report is lost"
        changed, checkpoint = store.time("lastChangeTime") or 0, store.time("lastCheckpointTime")
        assert changed >= seen.changed, "a change is lost"
        assert checkpoint == seen.checkpoint, "a checkpoint is lost"
        assert store.progress.get("lastCheckpointStep") == seen.checkpoint_step, "a checkpoint has another step"
        assert changed <= seen.reported, "a change is later than all reports"
        if replicas == 1:
            assert changed == seen.changed, "a report that repeats the last counts as a change"
            spacing = min(MIN_SPACING_SEC, interval)
            gaps = [later - earlier for earlier, later in zip(store.writes, store.writes[1:], strict=False)]
            failed = any(step.fate != "done" for step in steps)
            assert failed or all(gap >= spacing for gap in gaps), "writes are too frequent"
            assert (
                failed
                or len(store.writes)
                <= 3 + sum(one.checkpoint for one in steps) + sum(one.wait for one in steps) / interval
            ), "too many writes"

    run(main())


def drawn_steps(**options: Any) -> st.SearchStrategy[list[Step]]:
    """Random steps."""
    step = st.builds(
        Step,
        wait=st.sampled_from([1.0, 5.0, 12.0, 61.0]),
        replica=st.integers(0, 2),
        pod=st.sampled_from(PODS),
        advance=st.booleans(),
        checkpoint=st.sampled_from([False, False, False, True]),
        **options,
    )
    return st.lists(step, min_size=1, max_size=25)


@given(drawn_steps(), st.sampled_from([1, 5, 60]))
@settings(max_examples=150)
def test_one_replica_stores_exactly_the_reported_times(steps: list[Step], interval: int) -> None:
    check(steps, interval=interval)


@given(drawn_steps(fate=st.sampled_from(["done", "done", "failed", "lost"])), st.sampled_from([1, 60]))
@settings(max_examples=150)
def test_failed_writes_lose_nothing(steps: list[Step], interval: int) -> None:
    check(steps, interval=interval)


@given(drawn_steps(fate=st.sampled_from(["done", "done", "failed", "lost"])), st.sampled_from([1, 60]))
@settings(max_examples=250)
def test_several_replicas_miss_no_change(steps: list[Step], interval: int) -> None:
    check(steps, replicas=3, interval=interval)


@given(drawn_steps(), st.lists(st.integers(0, 2), min_size=4, max_size=12))
@settings(max_examples=100)
def test_pods_that_hang_and_report_are_found(steps: list[Step], order: list[int]) -> None:
    """Once each replica has heard from each Pod and written that, the same reports are no change, wherever they go."""

    async def main() -> None:
        store = ConfigMaps(1)
        replicas = [Replica(store, wall) for _ in range(3)]
        for number, step in enumerate(steps):
            await asyncio.sleep(step.wait)
            await replicas[step.replica].take(step.pod, Report(step=number))
        last = {step.pod: number for number, step in enumerate(steps)}

        async def repeat(replica: int) -> None:
            for pod, number in last.items():
                assert await replicas[replica].take(pod, Report(step=number))
            await asyncio.sleep(10.0)

        for number in range(3):
            await repeat(number)
        settled = store.time("lastChangeTime")
        for number in order:
            await repeat(number)
        assert store.time("lastChangeTime") == settled
        for replica in replicas:
            await replica.writer.stop(0.0)

    run(main())


@given(drawn_steps(restart=st.sampled_from([False, False, True])), st.sampled_from([1, 60]))
@settings(max_examples=100)
def test_a_restarted_replica_takes_no_time_back(steps: list[Step], interval: int) -> None:
    """The reports that it had not written are lost, the stored ones are not."""

    async def main() -> None:
        # It checks that no time goes back.
        store, seen = await play(steps, replicas=3, interval=interval)
        assert (store.time("lastReportTime") or 0) <= seen.reported

    run(main())


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from([1.0, 7.0, 61.0])), min_size=2, max_size=15))
@settings(max_examples=100)
def test_every_change_shows_though_clocks_differ(reports: list[tuple[int, float]]) -> None:
    check_clocks(reports)


def check_clocks(reports: list[tuple[int, float]]) -> None:
    """The replicas' clocks differ by minutes: each written change still moves the time of the last change.

    ``reports``: to which replica, and the seconds after it.
    """

    async def main() -> None:
        store = ConfigMaps(1)
        replicas = [Replica(store, wall, skew) for skew in (0, 200, -300)]
        for step, (replica, wait) in enumerate(reports):
            before, writes = store.time("lastChangeTime"), len(store.writes)
            assert await replicas[replica].take("a", Report(step=step))
            await asyncio.sleep(10.0)
            assert len(store.writes) > writes
            after = store.time("lastChangeTime") or 0
            assert before is None or after > before, "a change does not show"
            await asyncio.sleep(wait)
        for one in replicas:
            await one.writer.stop(0.0)
        assert not store.faults

    run(main())


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.booleans()), min_size=1, max_size=20))
@settings(max_examples=100)
def test_a_report_concerns_its_own_attempt_alone(events: list[tuple[int, int, bool]]) -> None:
    check_attempts(events)


def check_attempts(events: list[tuple[int, int, bool]]) -> None:
    """Attempts follow each other; Pods of earlier ones report late.

    ``events``: to which replica, of how many attempts before, and whether the next attempt begins first.
    """

    async def main() -> None:
        store = ConfigMaps(1)
        replicas = [Replica(store, wall) for _ in range(3)]
        for replica, back, begins in events:
            if begins:
                store.replace()
            attempt = max(0, store.uid - back)
            await replicas[replica].take("a", Report(step=attempt), attempt)
            await asyncio.sleep(3.0)
            assert store.progress.get("step") in (None, store.uid), "a report of another attempt is stored"
        for one in replicas:
            await one.writer.stop(0.0)

    run(main())
