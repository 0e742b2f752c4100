"""One history in which Pods end before their containers. ``mutants`` plays it with a controller that does not wait."""

from __future__ import annotations

import pytest

from tests.support.history import History


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
