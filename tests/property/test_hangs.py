"""Random histories of a Framework whose Pods report progress: R and all other guarantees hold after every step.

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

from tests.support.hanghistory import DEADLINE, INTERVAL, SLACK, START, HangHistory

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
    "process stops": lambda one, seconds: pause(one, seconds),
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
    """What the random ones rest on: training goes on for ever, and a hang does not."""
    history = HangHistory(seed)
    history.all_run()
    history.train(3000, DEADLINE)
    assert not history.ended
    history.advance(DEADLINE + SLACK + INTERVAL + 1)
    assert len(history.ended) == 1
    history.all_run()
    history.advance(START + SLACK + 1)
    assert len(history.ended) == 2
