"""The elector, one transition at a time."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from frameworkcontroller.kube.elector import (
    POLLS_WITHOUT_WATCH,
    AcquireOrRenew,
    ClockReading,
    Elector,
    LeaderElectionRecord,
    Pause,
    ReadLease,
    Timing,
    WatchLease,
)

TIMING = Timing()


def at(seconds: float, **other: float) -> ClockReading:
    """A moment at which all clocks agree but those that are given."""
    return ClockReading(**{"monotonic": seconds, "boottime": seconds, "wall": seconds, **other})


def lease(holder: str, version: int = 1, transitions: int = 0, duration: Any = 15) -> LeaderElectionRecord:
    spec = {
        "holderIdentity": holder,
        "leaseDurationSeconds": duration,
        "acquireTime": "2026-01-01T00:00:00.000000Z",
        "renewTime": f"2026-01-01T00:00:{version:02}.000000Z",
        "leaseTransitions": transitions,
    }
    return LeaderElectionRecord.of({"metadata": {"resourceVersion": str(version)}, "spec": spec}, TIMING)


def elector(has_ended: Callable[[str], bool] = lambda _: False) -> Elector:
    return Elector("me", TIMING, random.Random(1), has_ended=has_ended)


def leader(sent: float = 100.0) -> Elector:
    one = elector()
    one.on_get(None, at(sent))
    one.on_written(lease("me", 5), at(sent))
    return one


def updated(one: Elector) -> AcquireOrRenew:
    instruction = one.instruction(1_767_225_600.0)
    assert isinstance(instruction, AcquireOrRenew)
    return instruction


def waits(one: Elector) -> float:
    instruction = one.instruction(0.0)
    assert isinstance(instruction, Pause)
    return instruction.seconds


def watches(one: Elector) -> float:
    instruction = one.instruction(0.0)
    assert isinstance(instruction, WatchLease)
    return instruction.seconds


def test_it_looks_before_it_claims() -> None:
    assert elector().instruction(0.0) == ReadLease()


def test_a_missing_lease_is_created() -> None:
    one = elector()
    one.on_get(None, at(100))
    update = updated(one)
    assert update.lease is None
    assert update.spec == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-01-01T00:00:00.000000Z",
        "renewTime": "2026-01-01T00:00:00.000000Z",
        "leaseTransitions": 0,
    }
    assert one.term is None


def test_a_released_lease_is_acquired_at_once_under_its_version() -> None:
    one = elector()
    found = lease("", transitions=3)
    one.on_get(found, at(100))
    update = updated(one)
    assert update.lease is found.lease
    assert update.spec["leaseTransitions"] == 4


@pytest.mark.parametrize("duration", [15, None, 0, -1, "long", True])
def test_a_held_lease_is_respected_for_its_duration_since_it_was_first_seen(duration: object) -> None:
    one = elector()
    if duration is True:
        duration = 1
    lasts = duration if duration == 1 else 15
    for now in (100.0, 100.0 + lasts - 0.01):
        one.on_get(lease("other", duration=duration), at(now))
        assert watches(one) == pytest.approx(100.0 + lasts - now)
    one.on_watch_over(at(100.0 + lasts), lived=lasts)
    update = updated(one)
    assert update.spec["leaseTransitions"] == 1
    # It proves that the lease is the one that was watched.
    assert update.lease is not None
    assert update.lease["metadata"] == {"resourceVersion": "1"}


def test_a_release_that_a_watch_shows_is_acquired_at_once() -> None:
    one = elector()
    one.on_get(lease("other"), at(100))
    one.on_get(lease("", 2), at(101))
    assert updated(one).spec["leaseTransitions"] == 1


def test_a_watch_that_the_server_ends_is_opened_again_at_once() -> None:
    one = elector()
    one.on_get(lease("other"), at(100))
    one.on_watch_over(at(103), lived=3)
    assert one.instruction(0.0) == ReadLease()
    one.on_get(lease("other"), at(103))
    assert watches(one) == 12


def test_without_a_watch_the_lease_is_read_until_the_watch_is_tried_again() -> None:
    one = elector()
    one.on_get(lease("other"), at(100))
    one.on_watch_over(at(100.01), lived=0.01)
    for reads in range(POLLS_WITHOUT_WATCH):
        assert 2 <= waits(one) <= 2.4
        one.on_wait_over()
        assert one.instruction(0.0) == ReadLease()
        one.on_get(lease("other", reads + 2), at(102.0 + 2 * reads))
    one.on_wait_over()
    one.on_get(lease("other", 99), at(200))
    assert one.instruction(0.0) == WatchLease("99", 15)


def test_without_a_watch_it_looks_when_the_lease_would_expire_and_not_later() -> None:
    one = elector()
    one.on_get(lease("other"), at(100))
    one.on_watch_over(at(100), lived=0)
    one.on_get(lease("other"), at(114))
    assert waits(one) == pytest.approx(1.0)


def test_the_lease_of_a_process_that_has_ended_is_acquired_at_once() -> None:
    one = elector({"other"}.__contains__)
    one.on_get(lease("other", transitions=4), at(100))
    # Another leadership: nothing of the old one is continued.
    assert updated(one).spec["leaseTransitions"] == 5
    one.on_conflict()
    one.on_get(lease("third", 2), at(100))
    assert watches(one) == 15


def test_a_release_that_a_renewal_of_its_own_crosses_is_repeated() -> None:
    one = leader()
    assert one.release(0.0) is not None
    assert one.release(0.0) is None
    crossed = lease("me", 6)
    again = one.release(0.0, crossed)
    assert again is not None
    assert again.lease is crossed.lease
    assert again.spec["holderIdentity"] == ""
    assert one.release(0.0, lease("other", 7)) is None


def test_a_deleted_lease_is_still_respected() -> None:
    one = elector()
    one.on_get(lease("other"), at(100))
    one.on_get(None, at(110))
    assert waits(one) > 0
    one.on_get(None, at(115))
    assert updated(one).lease is None


def test_a_leader_acts_until_its_deadline_counted_from_when_it_sent_its_claim() -> None:
    one = leader(sent=100)
    assert one.term == 0
    assert one.is_leader(at(109.99))
    assert not one.is_leader(at(110))
    # Not deposed: perhaps there is no other holder.
    assert one.term == 0
    one.on_wait_over()
    assert updated(one).lease == lease("me", 5).lease
    one.on_written(lease("me", 6), at(200))
    assert one.is_leader(at(209))


@pytest.mark.parametrize("clock", ["monotonic", "boottime", "wall"])
def test_any_clock_that_has_moved_on_halts_a_leader(clock: str) -> None:
    assert not leader(sent=100).is_leader(at(101, **{clock: 110}))


@pytest.mark.parametrize("found", [lease("other", 9, 1), lease("", 9), None, lease("me", 9, transitions=1)])
def test_a_leader_that_finds_anything_else_is_deposed(found: LeaderElectionRecord | None) -> None:
    one = leader(sent=100)
    one.on_conflict()
    one.on_get(found, at(101))
    assert one.term is None
    assert not one.is_leader(at(101))


def test_conflicts_in_a_row_are_not_hot() -> None:
    one = elector()
    one.on_get(lease(""), at(100))
    one.on_conflict()
    assert one.instruction(0.0) == ReadLease()
    one.on_get(lease("", 2), at(100))
    one.on_conflict()
    assert waits(one) >= 2


def test_a_server_that_throttles_is_obeyed_but_not_at_the_price_of_the_lease() -> None:
    one = leader(sent=100)
    one.on_failure(retry_after=3)
    assert waits(one) == 3
    one.on_failure(retry_after=600)
    assert waits(one) == 5


def test_a_leader_gives_its_lease_up_once() -> None:
    one = leader(sent=100)
    update = one.release(1_767_225_600.0)
    assert update is not None
    assert update.spec["holderIdentity"] == ""
    assert update.spec["leaseDurationSeconds"] == 1
    assert update.lease == lease("me", 5).lease
    assert not one.is_leader(at(100))
    assert one.release(0.0) is None
    assert elector().release(0.0) is None


def test_a_lease_of_any_writer_is_read() -> None:
    specs: tuple[Any, ...] = (None, [], {"holderIdentity": 5, "leaseTransitions": "x"}, {})
    for spec in specs:
        record = LeaderElectionRecord.of({"metadata": {"resourceVersion": "1"}, "spec": spec}, TIMING)
        assert (record.holder_identity, record.lease_duration, record.leader_transitions) == ("", 15, 0)
    for document in ({}, {"metadata": None}, {"metadata": {"resourceVersion": 1}}):
        with pytest.raises(ValueError, match="resourceVersion"):
            LeaderElectionRecord.of(document, TIMING)


@pytest.mark.parametrize("times", [(10, 10, 2), (15, 10, 8.4), (15, 10, 0), (15, 2, 2)])
def test_times_out_of_proportion(times: tuple[int, float, float]) -> None:
    with pytest.raises(ValueError, match="not in proportion"):
        Timing(*times)


def test_this_moment() -> None:
    before = ClockReading.now()
    after = ClockReading.now()
    assert 0 <= after.since(before) < 60
