"""A TaskRole that is added after Kueue's admission has no place in it: its Tasks wait, but not for ever."""

from __future__ import annotations

from frameworkcontroller.api.completion import FRAMEWORK_EVICTED
from tests.support.bench import role
from tests.support.queuedbench import QueuedBench


def with_an_added_role() -> QueuedBench:
    """One Task of role a runs, and two of role b are added."""
    bench = QueuedBench(role("a", 1))
    bench.begin()
    bench.all_pods_run()
    bench.edit(role("a", 1), role("b", 2))
    bench.settle()
    return bench


def test_an_added_role_waits_while_others_run() -> None:
    bench = with_an_added_role()
    assert list(bench.pods) == ["f-a-0"]
    assert bench.status.attempt.completion_status is None


def test_an_attempt_with_nothing_left_but_an_added_role_ends_uncounted() -> None:
    bench = with_an_added_role()
    bench.stop("f-a-0")
    while bench.status.attempt.completion_status is None:
        made = bench.plan()
        assert made.actions or bench.tracker.is_busy, "it waits for ever"
        for action in made.actions:
            bench.hide(action.target.name)
    completion = bench.status.attempt.completion_status
    assert completion.code == FRAMEWORK_EVICTED.code
    assert "WorkloadOutOfSync" in completion.diagnostics
    assert "TaskRole b" in completion.diagnostics
