"""``retryPolicy.resetOnProgress``: at most maxRetryCount failures in a row without progress, any number with.

Random attempts of a Task or a Framework, with any reports and restarts of the controller, next to a model of the rule.
More of them: ``HISTORIES=2500 pytest tests/property/test_renewed_retries.py``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from frameworkcontroller.api.status import ProgressStatus, State
from tests.support.bench import Bench, role

POD: Final = "f-a-0"
DEADLINE: Final = 50
BASE_SEC: Final = 10
TRANSIENT: Final = 200
IGNORED: Final = 42
COUNTED: Final = 43
CODES: Final = (1, 1, 1, TRANSIENT, IGNORED, COUNTED)
_RULES: Final = {
    "rules": [
        {"action": action, "onExitCodes": {"operator": "In", "values": [code]}}
        for action, code in (("Ignore", IGNORED), ("Count", COUNTED))
    ]
}


@dataclass(frozen=True)
class Attempt:
    """One attempt, which fails with ``code``. ``first``, ``last``: seconds of its run with a report.

    ``restarts``: whether a new process continues after each step of its end.
    """

    code: int = 1
    first: int | None = None
    last: int = 0
    checkpoint: int | None = None
    ran: int = 120
    restarts: bool = False

    @property
    def has_progress(self) -> bool:
        """Whether it counts as one with progress."""
        has_reports = self.first is not None and self.last - self.first >= DEADLINE
        return self.checkpoint is not None or has_reports


@dataclass
class Model:
    """The rule, by the words of docs/long-training.md."""

    limit: int
    is_task: bool
    fancy: bool
    counted: int = 0
    total: int = 0
    in_a_row: int = 0
    failures: int = 0
    """In a row without progress, of those that count."""
    over: bool = False

    def end(self, attempt: Attempt) -> None:
        """An attempt has failed."""
        if attempt.has_progress:
            self.counted = self.in_a_row = self.failures = 0
        counts = not (self.fancy and attempt.code == TRANSIENT)
        if self.is_task and attempt.code in (IGNORED, COUNTED):
            counts = attempt.code == COUNTED
        if counts and self.limit != -2:
            self.failures += 1
            if self.counted >= self.limit:
                self.over = True
                return
        self.counted += counts
        self.total += 1
        self.in_a_row += 1


def play(attempts: list[Attempt], *, limit: int, is_task: bool, fancy: bool = False) -> None:
    """Let these attempts follow each other, and compare each end with the model."""
    model = Model(limit, is_task, fancy)
    bench = begin(limit, is_task=is_task, fancy=fancy)
    for attempt in attempts:
        model.end(attempt)
        run(bench, attempt)
        subject = bench.task() if is_task else bench.status
        said = f"B: after {attempt} of {attempts}"
        assert (bench.status.state is State.COMPLETED) == model.over, said
        retry = subject.retry
        assert (retry.total_retried_count, retry.accountable_retried_count) == (model.total, model.counted), said
        if model.over:
            break
        assert (subject.attempt.id, retry.recent_retried_count) == (model.total, model.in_a_row), said
    assert model.failures <= limit + 1 or limit == -2


def begin(limit: int, *, is_task: bool, fancy: bool) -> Bench:
    """The first attempt runs."""
    policy = {
        "fancyRetryPolicy": fancy,
        "maxRetryCount": limit,
        "resetOnProgress": True,
        "backoff": {"baseSeconds": BASE_SEC, "maxSeconds": 1000},
    }
    progress = {"intervalSeconds": 10, "deadlineSeconds": DEADLINE}
    if is_task:
        bench = Bench(role(retryPolicy=policy, podFailurePolicy=_RULES), progress=progress)
    else:
        bench = Bench(role(failed=1), progress=progress, retryPolicy=policy)
    bench.run_all()
    return bench


def run(bench: Bench, attempt: Attempt) -> None:
    """The running attempt reports, fails, and is followed by the next one."""
    began = int(bench.now)
    if attempt.first is not None or attempt.checkpoint is not None:
        seconds = (attempt.first, attempt.last if attempt.first is not None else None, attempt.checkpoint)
        first, last, checkpoint = (None if one is None else began + one for one in seconds)
        bench.status.progress = ProgressStatus(
            framework_attempt_id=bench.status.attempt.id,
            first_report_time=first or checkpoint,
            last_report_time=last or checkpoint,
            last_change_time=last or checkpoint,
            last_checkpoint_time=checkpoint,
        )
    bench.now += attempt.ran
    bench.stop(code=attempt.code)
    for _ in range(60):
        if attempt.restarts:
            bench.restart()
            bench.listed = bench.now + 1
        if bench.status.state is State.COMPLETED:
            return
        bench.settle()
        bench.now += bench.plan().requeue_after or 0
        bench.settle()
        if POD in bench.pods:
            bench.run()
            return
    raise AssertionError("B: it does not continue")


SECONDS = st.integers(1, 120)


@st.composite
def drawn(draw: st.DrawFn) -> Attempt:
    """An attempt with or without reports."""
    first, last = sorted([draw(SECONDS), draw(SECONDS)])
    return Attempt(
        code=draw(st.sampled_from(CODES)),
        first=draw(st.sampled_from([None, None, first])),
        last=last,
        checkpoint=draw(st.sampled_from([None, None, None, last])),
        restarts=draw(st.booleans()),
    )


@settings(max_examples=int(os.environ.get("HISTORIES", "200")), deadline=None)
@given(
    attempts=st.lists(drawn(), min_size=1, max_size=10),
    limit=st.sampled_from([0, 1, 2, 3, -2]),
    is_task=st.booleans(),
    fancy=st.booleans(),
)
def test_the_rule(attempts: list[Attempt], limit: int, is_task: bool, fancy: bool) -> None:
    play(attempts, limit=limit, is_task=is_task, fancy=fancy)


@pytest.mark.parametrize("is_task", [False, True])
def test_the_rule_in_words(is_task: bool) -> None:
    """Twenty failures with a checkpoint do not matter; the third one in a row without does."""
    plain, saved = Attempt(), Attempt(checkpoint=60)
    play([saved] * 20 + [plain] * 2 + [saved] * 2 + [plain] * 9, limit=3, is_task=is_task)
