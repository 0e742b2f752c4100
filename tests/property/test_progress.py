"""Random histories of a Framework whose Pods report: R and all other guarantees hold after every step.

Reports come early, late, twice, with other clocks, and from users who edit the ConfigMap. More of them:
``HISTORIES=2000 pytest tests/property/test_progress.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from tests.property.test_machine_histories import Histories, history_settings, specs
from tests.support.progresshistory import ReportedHistory

_ROLE: Final = {
    "name": "a",
    "taskNumber": 1,
    "frameworkAttemptCompletionPolicy": {"minFailedTaskCount": 1, "minSucceededTaskCount": -1},
}
_EDITS: Final = (
    None,
    "",
    "{",
    '{"step": -1, "lastReportTime": "2023-11-14T22:13:20Z"}',
    '{"step": 7}',
    '{"step": 8, "lastReportTime": "2001-01-01T00:00:00Z", "lastCheckpointTime": "2001-01-01T00:00:00Z"}',
    '{"step": 9, "lastReportTime": "2900-01-01T00:00:00Z", "lastCheckpointTime": "2900-01-01T00:00:00Z"}',
)


def _begin(**progress: Any) -> ReportedHistory:
    story = ReportedHistory(7)
    retry = {"maxRetryCount": 1}
    story.create({"executionType": "Start", "retryPolicy": retry, "progress": progress, "taskRoles": [_ROLE]})
    _run(story)
    return story


def _run(story: ReportedHistory) -> None:
    story.settle()
    story.kubelet(0, "Running")
    story.settle()


def _saved() -> ReportedHistory:
    """The first report has a checkpoint."""
    story = _begin()
    story.report(1, checkpoint=True)
    story.settle()
    return story


def _over(story: ReportedHistory) -> ReportedHistory:
    story.look()
    story.finish()
    return story


def steady() -> ReportedHistory:
    """A report each second, and a checkpoint each minute."""
    story = _begin(intervalSeconds=1)
    for step in range(200):
        story.tick(1)
        story.report(step, checkpoint=step % 60 == 59)
        story.settle()
    return _over(story)


def edited() -> ReportedHistory:
    """Clocks and users change the times."""
    story = _saved()
    story.tick(100)
    story.report(2, checkpoint=True, skew=-200)
    story.look()
    story.report(3, checkpoint=True, skew=10**6)
    return _over(story)


def retried() -> ReportedHistory:
    """The attempt fails, and the next one reports."""
    story = _saved()
    story.report(2)
    story.kubelet(0, "end", 1)
    _run(story)
    story.look()
    story.report(1)
    return _over(story)


@pytest.mark.parametrize("story", [steady, edited, retried])
def test_a_story_with_reports(story: Callable[[], ReportedHistory]) -> None:
    told = story()
    assert told.framework is None


class ReportedHistories(Histories):
    """One history, with reports."""

    history: ReportedHistory

    @initialize(seed=st.integers(0, 2**16), spec=specs(), interval=st.sampled_from([1, 60, 200]))
    def begin(self, seed: int, spec: dict[str, Any], interval: int = 60) -> None:
        self.history = ReportedHistory(seed)
        self.history.create({**spec, "progress": {"intervalSeconds": interval}})

    @rule(step=st.integers(0, 5), checkpoint=st.booleans(), skew=st.sampled_from([0, 0, 0, -30, 30, 5000]))
    def report(self, step: int, checkpoint: bool, skew: int) -> None:
        self.history.report(step, checkpoint=checkpoint, skew=skew)

    @rule(text=st.sampled_from(_EDITS))
    def edit_the_data(self, text: str | None) -> None:
        self.history.scribble(text)

    @rule(step=st.integers(0, 5), which=st.integers(0, 1), steps=st.integers(1, 20))
    def report_and_follow(self, step: int, which: int, steps: int) -> None:
        """A report comes, and a controller works."""
        self.history.report(step)
        self.follow(which, steps)

    @rule()
    def look(self) -> None:
        self.history.look()


TestReportedHistories = ReportedHistories.TestCase
TestReportedHistories.settings = history_settings()
