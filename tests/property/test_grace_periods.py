"""One history in which Pods end before their containers: its checks find a controller that does not wait."""

from __future__ import annotations

import pytest

from frameworkcontroller.machine import framework, task
from tests.support.history import History
from tests.support.world import Violation


def play(*, stop: bool) -> None:
    """A Pod fails while its containers run; the user stops the Framework (``stop``); the grace period passes."""
    history = History()
    retry = {"fancyRetryPolicy": True, "maxRetryCount": -1}
    history.create({"executionType": "Start", "taskRoles": [{"name": "a", "task": {"retryPolicy": retry}}]})
    history.settle()
    history.kubelet(0, "Running")
    history.settle()
    history.kubelet(0, "fail early")
    if stop:
        history.execute("Stop")
    history.settle()
    history.tick(70)
    history.settle()
    history.finish()


@pytest.mark.parametrize("stop", [False, True])
def test_a_controller_that_waits(stop: bool) -> None:
    play(stop=stop)


def test_a_task_that_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "wait_for_containers", lambda *_: False)
    with pytest.raises(Violation, match=r"containers of .* still run"):
        play(stop=False)


def test_a_framework_that_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framework, "containers_run_until", lambda *_: None)
    with pytest.raises(Violation, match=r"containers of .* still run"):
        play(stop=True)
