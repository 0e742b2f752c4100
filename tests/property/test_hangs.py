"""Random histories of a Framework whose Pods report progress: N and all other guarantees hold after every step.

Reports are lost, late, repeated or foreign, while controllers and report servers die, watches and the API server fail,
clocks jump, and Tasks are retried. No attempt that makes progress in time is ended; one that hangs is. More of them:
``HISTORIES=2500 pytest tests/property/test_hangs.py``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from frameworkcontroller.machine.kernel.requests import Kind
from tests.support.hanghistory import DEADLINE, INTERVAL, SLACK, START, HangHistory
from tests.support.hangs import hanging
from tests.support.history import CONFIGMAP


def pause(history: HangHistory, seconds: int) -> None:
    """The process of the controller stands still, as after SIGSTOP, while its own report server does, too."""
    history.set_server(up=False)
    history.paused = True
    history.train(seconds, 10)
    history.paused = False
    history.set_server(up=True)


def set_interval(history: HangHistory, seconds: int) -> None:
    """The user changes intervalSeconds, which counts for the next attempt."""
    history.edit(f"intervalSeconds {seconds}", lambda spec: spec["progress"].update(intervalSeconds=seconds))


ACTS: Final[dict[str, Callable[[HangHistory, int], Any]]] = {
    "trains": lambda one, seconds: one.train(4 * seconds, max(1, seconds)),
    "trains slowly": lambda one, seconds: one.train(5 * seconds, DEADLINE),
    "checkpoints": lambda one, seconds: one.train(2 * seconds, max(1, seconds), checkpoint=True),
    "hangs": lambda one, seconds: one.advance(2 * seconds),
    "repeats": lambda one, seconds: one.repeat(2 * seconds),
    "loses reports": lambda one, seconds: one.train(2 * seconds, max(1, seconds), lost=True),
    "foreign report": lambda one, _: one.report_of_another_attempt(),
    "runs": lambda one, _: one.all_run(),
    "crash": lambda one, _: one.crash(0),
    "stand by": lambda one, _: one.stand_by(),
    "take over": lambda one, _: one.take_over(),
    "lease": lambda one, _: one.lose_lease(),
    "watch breaks": lambda one, _: one.set_blind(blind=True),
    "watch works": lambda one, _: one.set_blind(blind=False),
    "watch lags": lambda one, _: setattr(one, "stalled", True),
    "watch catches up": lambda one, _: setattr(one, "stalled", False),
    "server down": lambda one, _: one.set_server(up=False),
    "server up": lambda one, _: one.set_server(up=True),
    "api away": lambda one, _: one.set_away(away=True),
    "api back": lambda one, _: one.set_away(away=False),
    "process stops": pause,
    "clock back": lambda one, seconds: one.tick(-10 * seconds),
    "clock ahead": lambda one, seconds: setattr(one.world, "now", one.world.now + 10 * seconds),
    "server clock": lambda one, seconds: one.set_other(skew=10.0 * (seconds - 40), late=seconds / 10),
    "task fails": lambda one, seconds: one.kubelet(seconds, "end", 1),
    "task succeeds": lambda one, seconds: one.kubelet(seconds, "end", 0),
    "pod deleted": lambda one, seconds: one.delete_pod(seconds, force=False),
    "rescale": lambda one, seconds: one.rescale("b", seconds % 4),
    "suspend": lambda one, _: one.suspend(wanted=True),
    "resume": lambda one, _: one.suspend(wanted=False),
    "annotate": lambda one, _: one.annotate(),
    "shorter interval": lambda one, _: set_interval(one, 1),
    "longer interval": lambda one, _: set_interval(one, INTERVAL),
}
STORY = st.lists(st.tuples(st.sampled_from(sorted(ACTS)), st.integers(0, 80)), max_size=25)


@settings(
    max_examples=int(os.environ.get("HISTORIES", "200")),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(seed=st.integers(0, 2**16), acts=STORY)
def test_only_attempts_that_hang_are_ended(seed: int, acts: list[tuple[str, int]]) -> None:
    history = HangHistory(seed)
    history.all_run()
    for act, seconds in acts:
        ACTS[act](history, seconds)
        history.advance(seconds / 8)
        history.all_run()
    history.end_fairly()


@pytest.mark.parametrize("seed", range(20))
def test_the_histories_have_ends_and_long_runs(seed: int) -> None:
    """Training with progress at each deadline continues, and a hang ends."""
    history = HangHistory(seed)
    history.all_run()
    history.train(3000, DEADLINE)
    assert not history.ended
    history.advance(DEADLINE + SLACK + INTERVAL + 1)
    assert len(history.ended) == 1
    history.all_run()
    history.advance(START + SLACK + 1)
    assert len(history.ended) == 2


# --- stories for controllers that break N (mutants.py) ----------------------------------------------------------------


def begin(*, alone: bool = False) -> HangHistory:
    """All Pods run. ``alone``: only the leader has a report server."""
    history = HangHistory(7)
    history.all_run()
    if alone:
        history.other = history.own
    return history


def a_server_is_down() -> None:
    """The program trains, and no server takes its reports for a while."""
    history = begin(alone=True)
    history.train(100, 50)
    history.set_server(up=False)
    history.train(400, 50)
    history.set_server(up=True)
    history.train(100, 50)


def the_watch_lags() -> None:
    """The cache does not show the progress of a program that trains."""
    history = begin()
    history.train(100, 50)
    history.stalled = True
    history.train(400, 50)


def no_live_read_is_answered() -> None:
    """The same, and the ConfigMap cannot be read."""
    history = begin()
    history.train(100, 50)
    history.stalled = True
    history.world.refused_kinds[Kind.CONFIGMAP] = (503, "ServiceUnavailable", "not now")
    history.train(400, 50)


def clocks_differ() -> None:
    """The wall clock of the report server is behind."""
    history = begin(alone=True)
    history.own.skew = -1000.0
    history.train(400, 50)


def the_leader_dies() -> None:
    """Another process continues, which has not seen the reports before."""
    history = begin(alone=True)
    history.train(100, 50)
    history.advance(DEADLINE)
    history.crash(0)
    history.advance(SLACK + 5)


def a_task_is_retried() -> None:
    """Its next Pod does not run for long."""
    history = begin()
    history.train(100, 50)
    history.kubelet(0, "end", 1)
    history.advance(400)


def writes_are_slow() -> None:
    """Progress at the deadline is written as late as the interval and a slow API server allow."""
    history = begin(alone=True)
    history.progress()
    history.own.late = 9.0
    history.advance(DEADLINE - INTERVAL)
    history.report_without_progress()
    history.advance(INTERVAL)
    history.progress()
    history.advance(2 * INTERVAL)


def it_starts_slowly() -> None:
    """The first report comes later than the next ones may."""
    history = begin()
    history.advance(START)
    history.train(100, 50)


def it_hangs() -> None:
    begin().end_fairly()


def it_repeats_its_reports() -> None:
    """Reports arrive, and show no progress."""
    history = begin()
    history.progress()
    history.repeat(2 * (DEADLINE + 2 * SLACK))
    history.all_run()
    if not history.ended:
        raise history.world.violation("N: it hangs, and is not ended")


def it_is_being_deleted() -> None:
    """Another client's finalizer holds it, so its Pods run on."""
    bench = hanging()
    bench.report_and_show(7)
    bench.deleting = True
    bench.live(10 * START)
    assert bench.code() is None, f"N: ended with {bench.code()}, and it is being deleted"


def an_answer_is_late() -> None:
    """The process stood still while it read, and other reports may have come since."""
    bench = hanging()
    bench.report_and_show(7)
    bench.now += DEADLINE + SLACK
    action = bench.read()
    result = bench.find(action)
    bench.report_unseen(8)
    bench.now += 200
    bench.fold(action, result)
    bench.plan()
    assert bench.code() is None, f"N: ended with {bench.code()} after an old answer"


def nothing_can_report() -> None:
    """The attempt began before the spec had ``progress``."""
    history = begin()
    history.world.edit(Kind.CONFIGMAP, CONFIGMAP, lambda body: body["data"].clear())
    history.advance(4 * START)


@pytest.mark.parametrize(
    "story",
    [
        a_server_is_down,
        the_watch_lags,
        no_live_read_is_answered,
        clocks_differ,
        the_leader_dies,
        a_task_is_retried,
        writes_are_slow,
        it_starts_slowly,
        it_hangs,
        it_repeats_its_reports,
        it_is_being_deleted,
        an_answer_is_late,
        nothing_can_report,
    ],
)
def test_a_story(story: Callable[[], None]) -> None:
    story()
