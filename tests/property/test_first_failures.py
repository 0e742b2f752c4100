"""Random attempts in which Tasks fail: the status names the first failure, or says that it is not certain (F).

More of them: ``HISTORIES=2000 pytest tests/property/test_first_failures.py``.
"""

from __future__ import annotations

import os

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.failures import CAUSE, GLOO, NCCL, FailingAttempt, Fate

_NODES = 3
_TIMES = st.integers(0, 60).map(lambda tenths: tenths / 10)


@st.composite
def fates(draw: st.DrawFn) -> Fate:
    """A Task that fails by itself, follows another one, or runs until it is stopped."""
    words = draw(st.sampled_from([CAUSE, CAUSE, GLOO, NCCL, ""]))
    return Fate(
        node=draw(st.integers(0, _NODES - 1)),
        end=draw(st.none() | _TIMES),
        words=words,
        code=134 if words == NCCL else draw(st.sampled_from([1, 7, 139])),
        lag=draw(_TIMES),
        stop_code=draw(st.sampled_from([143, 143, 137, 0, 1])),
        seen=draw(st.sampled_from([True, True, True, False])),
    )


@given(
    tasks=st.lists(fates(), min_size=1, max_size=6).filter(lambda found: any(one.end is not None for one in found)),
    clocks=st.lists(st.sampled_from([0.0, 0.0, -0.9, 0.9]), min_size=_NODES, max_size=_NODES),
    restarts=st.frozensets(st.integers(0, 8), max_size=2),
)
@settings(max_examples=int(os.environ.get("HISTORIES", "300")), deadline=None)
def test_the_first_failure(tasks: list[Fate], clocks: list[float], restarts: frozenset[int]) -> None:
    FailingAttempt(tasks, clocks, restarts).play()


def seen_last() -> None:
    """Two Tasks have failed before one of them is seen."""
    FailingAttempt([Fate(0, 1.0, lag=9.0), Fate(1, 6.0)]).play()


def followed() -> None:
    """The Tasks that follow the first one end at the same time."""
    FailingAttempt([Fate(0, 0.5), Fate(1, 0.5, GLOO), Fate(1, 0.5, NCCL, 134)]).play()


def close() -> None:
    """Two Tasks fail on nodes with different clocks."""
    FailingAttempt([Fate(0, 1.8), Fate(1, 0.9, lag=1.5)], [-0.9, 0.9]).play()


def lost() -> None:
    """A Pod is gone, and the end of its container was never seen."""
    FailingAttempt([Fate(0, 5.0), Fate(1, 4.0, lag=9.0, seen=False)]).play()


def taken_over() -> None:
    """A process ends that has seen the first failure after it has decided the end of the attempt."""
    FailingAttempt([Fate(0, 5.0), Fate(1, 4.0, lag=9.0), Fate(2)], restarts=frozenset({3})).play()
