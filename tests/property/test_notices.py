"""Random histories of trainings that are notified of their ends: I and all other guarantees hold after every step.

No suspension and no deadline ends an attempt before its notice is stored, and a checkpoint or the end of the grace
comes after it; each comes to an end then. More of them: ``HISTORIES=2000 pytest tests/property/test_notices.py``.
"""

from __future__ import annotations

import os
import random
from typing import Any, Final

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from tests.property.test_machine_histories import SMALL, Histories, history_settings, specs
from tests.support.kueue import QUEUES
from tests.support.notices import NoticedHistory, NoticedQueue
from tests.support.queuedhistory import MODEST, make_story

GRACES: Final = st.sampled_from([1, 50, 100, None])
QUEUED: Final = int(os.environ.get("HISTORIES", "200"))
_TWO: Final = {"name": "a", "taskNumber": 2}


def begin(**spec: Any) -> NoticedHistory:
    """Two Tasks run."""
    history = NoticedHistory(7)
    history.create({"executionType": "Start", "taskRoles": [_TWO], **spec})
    history.settle()
    history.all_pods_run()
    history.settle()
    return history


def checkpointed() -> NoticedHistory:
    """A suspension, and a checkpoint after its notice."""
    history = begin()
    history.report(checkpoint=True)
    history.settle()
    history.tick(1)
    history.suspend(wanted=True)
    history.settle()
    history.tick(5)
    history.report(checkpoint=True)
    history.settle()
    assert history.notices.ends == [-240]
    history.finish()
    return history


def waited_out(*, crash: bool = False, put_back: bool = False) -> NoticedHistory:
    """A suspension, and no checkpoint."""
    history = begin()
    history.suspend(wanted=True)
    history.settle()
    history.tick(1)
    history.report(checkpoint=False)
    history.tick(60)
    if put_back:
        history.tick(-60)
    if crash:
        history.crash(0)
    history.settle()
    assert history.notices.ends == []
    history.finish()
    assert history.notices.ends[0] == -240
    return history


def taken_back() -> NoticedHistory:
    """A suspension that the user takes back."""
    history = begin()
    history.suspend(wanted=True)
    history.settle()
    history.suspend(wanted=False)
    history.settle()
    history.check_withdrawn()
    history.finish()
    return history


def at_the_deadline() -> NoticedHistory:
    """A deadline."""
    history = begin(activeDeadlineSeconds=50)
    history.wait(60)
    history.wait(200)
    assert history.notices.ends == [-250]
    history.finish()
    return history


def test_the_stories() -> None:
    checkpointed()
    waited_out()
    taken_back()
    at_the_deadline()


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("put_back", [False, True])
def test_the_grace_survives_restarts_and_clocks(crash: bool, put_back: bool) -> None:
    waited_out(crash=crash, put_back=put_back)


@pytest.mark.parametrize("steps", range(25))
@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_controller_that_dies_at_any_step_keeps_the_notice(steps: int, checkpoint: bool) -> None:
    history = begin()
    history.suspend(wanted=True)
    history.follow(0, steps)
    history.crash(0)
    history.tick(1)
    history.report(checkpoint=checkpoint)
    history.settle()
    history.finish()
    assert len({one.framework_attempt_id for one in history.notices.given}) == len(history.notices.given)


def evicted() -> NoticedQueue:
    """Kueue preempts a training, which resumes later."""
    history = NoticedQueue(7, quota={"a100": 2, "spot": 0})
    history.create_in(QUEUES[0], {"taskRoles": [{**_TWO, "task": {"pod": {"spec": MODEST}}}]})
    history.settle()
    history.all_pods_run()
    history.settle()
    history.tick(10)
    history.play("Preempted", 0)
    history.settle()
    assert (history.notices.ends, len(history.pods())) == ([], 2)
    history.tick(5)
    history.report(checkpoint=True)
    history.settle()
    assert history.notices.ends == [-241]
    history.finish()
    return history


def play_queued(seed: int) -> list[int]:
    """Play the story of that seed in a queue, with reports between its steps. Return the codes of ends that waited."""
    story, rng = make_story(seed), random.Random(seed)
    history = NoticedQueue(seed, grace=rng.choice([1, 60, 300]), **story.options)
    history.create_in(story.queue, story.spec)
    for step in story.steps:
        step.take(history)
        if rng.random() < 0.6:
            history.all_pods_run()
        if rng.random() < 0.2:
            history.report(checkpoint=rng.random() < 0.5)
    history.finish()
    return history.notices.ends


def test_an_eviction_waits_for_a_checkpoint() -> None:
    evicted()


@pytest.mark.parametrize("first", range(0, QUEUED, 50))
def test_queued_trainings(first: int) -> None:
    ends = [code for seed in range(first, first + 50) for code in play_queued(seed)]
    assert ends, "the stories are to have ends that wait"


class NoticedHistories(Histories):
    """One history."""

    history: NoticedHistory

    @initialize(seed=st.integers(0, 2**16), spec=specs(), grace=GRACES)
    def begin(self, seed: int, spec: dict[str, Any], grace: int | None = 100) -> None:
        self.history = NoticedHistory(seed, grace=grace)
        self.history.create(spec)

    @rule(checkpoint=st.booleans(), behind=st.sampled_from([0, 0, 2, 200]))
    def report(self, checkpoint: bool, behind: int) -> None:
        self.history.report(checkpoint=checkpoint, behind=behind)

    @rule(which=SMALL)
    def announce(self, which: int) -> None:
        self.history.announce(which)

    @rule(wanted=st.booleans(), which=st.integers(0, 1), steps=st.integers(0, 20))
    def run_and_suspend(self, wanted: bool, which: int, steps: int) -> None:
        """All Pods run, a suspension begins or ends, and a controller works."""
        self.history.all_pods_run()
        self.history.settle()
        self.history.suspend(wanted=wanted)
        self.follow(which, steps)

    @rule(which=st.integers(0, 1), steps=st.integers(0, 20))
    def report_and_follow(self, which: int, steps: int) -> None:
        """A checkpoint is reported, and a controller works."""
        self.history.tick(1)
        self.history.report(checkpoint=True)
        self.follow(which, steps)


TestNoticedHistories = NoticedHistories.TestCase
TestNoticedHistories.settings = history_settings()
