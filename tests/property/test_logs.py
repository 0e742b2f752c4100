"""Random histories of a Framework whose logs are kept: L and all other guarantees hold after every step.

No Pod that was seen to run is deleted before its log is read or followed, or was waited for long enough, while the log
endpoint reads, hangs, or refuses; and everything comes to its end. More of them:
``HISTORIES=2000 pytest tests/property/test_logs.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from frameworkcontroller.machine.kernel.model import KeepLogs
from tests.property.test_machine_histories import Histories, history_settings, specs
from tests.support.podlogs import MODES, LoggedHistory

_ROLE: Final = {
    "name": "a",
    "taskNumber": 2,
    "frameworkAttemptCompletionPolicy": {"minFailedTaskCount": 1, "minSucceededTaskCount": -1},
}


def _begin(mode: str, *, tasks: int = 0, keep: KeepLogs = KeepLogs.ALL) -> LoggedHistory:
    story = LoggedHistory(7, keep=keep)
    story.set_reader(mode)
    task = {"retryPolicy": {"maxRetryCount": tasks}}
    story.create({"executionType": "Start", "taskRoles": [{**_ROLE, "task": task}]})
    story.settle()
    for pod in (0, 1):
        story.kubelet(pod, "Running")
    story.settle()
    return story


def retry(mode: str) -> LoggedHistory:
    """A Task fails and is retried."""
    story = _begin(mode, tasks=1)
    story.kubelet(0, "end", 1)
    story.settle()
    story.finish()
    return story


def stop(mode: str) -> LoggedHistory:
    """The Framework is stopped while its Pods run."""
    story = _begin(mode)
    story.execute("Stop")
    story.settle()
    story.finish()
    return story


def forced_deletion(mode: str) -> LoggedHistory:
    """A Pod goes while it runs, and its controller sees only that."""
    story = _begin(mode)
    story.delete_pod(0, force=True)
    story.settle()
    story.finish()
    return story


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("story", [retry, stop, forced_deletion])
def test_the_logs_of_a_story(story: Callable[[str], LoggedHistory], mode: str) -> None:
    told = story(mode)
    reasons = [why for found in told.reader.records.values() for why in found]
    assert len(told.reader.records) >= 2
    assert any(reasons) == (mode != "reads" or story is forced_deletion)


def test_failed_attempts_only() -> None:
    story = _begin("reads", tasks=1, keep=KeepLogs.FAILED)
    story.kubelet(0, "end", 1)
    story.kubelet(1, "end", 0)
    story.settle()
    story.execute("Stop")
    story.settle()
    story.finish()
    assert [(one.pod_name, one.follow, one.rank) for one in story.reader.order] == [("f-a-0", False, 0)]


def test_the_failed_task_comes_first() -> None:
    """The others are stopped with it, and followed."""
    story = _begin("hangs")
    story.kubelet(1, "end", 1)
    story.settle()
    story.finish()
    assert [(one.pod_name, one.follow, one.rank) for one in story.reader.order] == [
        ("f-a-1", False, 0),
        ("f-a-0", True, 2),
    ]


class LoggedHistories(Histories):
    """One history, with a reader of logs."""

    history: LoggedHistory

    @initialize(
        seed=st.integers(0, 2**16),
        spec=specs(),
        keep=st.sampled_from([KeepLogs.ALL, KeepLogs.FAILED]),
        mode=st.sampled_from(MODES),
    )
    def begin(self, seed: int, spec: dict[str, Any], keep: KeepLogs = KeepLogs.ALL, mode: str = "reads") -> None:
        self.history = LoggedHistory(seed, keep=keep)
        self.history.set_reader(mode)
        self.history.create(spec)

    @rule(mode=st.sampled_from(MODES))
    def set_reader(self, mode: str) -> None:
        self.history.set_reader(mode)

    @rule(steps=st.sampled_from([1, 2, 20]))
    def step_reader(self, steps: int) -> None:
        self.history.step_reader(steps)

    @rule(which=st.integers(0, 1), steps=st.integers(1, 20))
    def read_and_follow(self, which: int, steps: int) -> None:
        """Logs are read, and a controller works."""
        self.history.step_reader(steps)
        self.follow(which, steps)


TestLoggedHistories = LoggedHistories.TestCase
TestLoggedHistories.settings = history_settings()
