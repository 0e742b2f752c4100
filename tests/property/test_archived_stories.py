"""Short stories of an archive that blocks: each way to forget an attempt, with each way of the archive to answer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pytest

from tests.support.archive import MODES, ArchivedHistory
from tests.support.world import ApiRefusal, Body

_ROLE: Final = {
    "name": "a",
    "taskNumber": 2,
    "frameworkAttemptCompletionPolicy": {"minFailedTaskCount": 1, "minSucceededTaskCount": -1},
}


def _spec(*, tasks: int = 0, attempts: int = 0) -> Body:
    task = {"retryPolicy": {"maxRetryCount": tasks}}
    return {"taskRoles": [{**_ROLE, "task": task}], "retryPolicy": {"maxRetryCount": attempts}}


# --- stories ---------------------------------------------------------------------------------------------------------


def _begin(spec: Body) -> ArchivedHistory:
    story = ArchivedHistory(7)
    story.create(spec)
    story.settle()
    for pod in (0, 1):
        story.kubelet(pod, "Running")
    story.settle()
    return story


def retry_of_a_task(mode: str) -> ArchivedHistory:
    """A Task fails and is retried."""
    story = _begin(_spec(tasks=1))
    story.set_sink(mode)
    story.kubelet(0, "end", 1)
    story.settle()
    return story


def retry_of_the_framework(mode: str) -> ArchivedHistory:
    """A Task fails, and the Framework is retried."""
    story = _begin(_spec(attempts=1))
    story.set_sink(mode)
    story.kubelet(0, "end", 1)
    story.settle()
    return story


def scale_down(mode: str) -> ArchivedHistory:
    """A Task is removed."""
    story = _begin(_spec())
    story.set_sink(mode)
    story.rescale("a", 1)
    story.settle()
    return story


def replacement(mode: str) -> ArchivedHistory:
    """A Task is removed on a lost node, and added again."""
    story = _begin(_spec())
    story.set_sink(mode)
    story.lose_node(lost=True)
    story.rescale("a", 1)
    story.settle()
    story.rescale("a", 2)
    story.settle()
    story.lose_node(lost=False)
    story.settle()
    return story


def deletion(mode: str) -> ArchivedHistory:
    """The Framework is deleted in the background."""
    story = _begin(_spec(attempts=1))
    story.set_sink(mode)
    story.delete(foreground=False)
    story.settle()
    return story


def deletion_with_a_lost_node(mode: str, *, foreground: bool = False) -> ArchivedHistory:
    """Likewise, while its Pods cannot end."""
    story = _begin(_spec())
    story.set_sink(mode)
    story.lose_node(lost=True)
    story.delete(foreground=foreground)
    story.settle()
    return story


def retention(mode: str) -> ArchivedHistory:
    """The Framework completes, and is deleted at once."""
    story = _begin({**_spec(), "ttlSecondsAfterFinished": 0})
    story.set_sink(mode)
    story.kubelet(0, "end", 1)
    story.settle()
    return story


def changed_after_the_archive(mode: str) -> ArchivedHistory:
    """A Task waits for its retry, whose record is stored. Then it is scaled down."""
    spec = _spec(tasks=1)
    spec["taskRoles"][0]["task"]["retryPolicy"]["backoff"] = {"baseSeconds": 300, "maxSeconds": 300}
    story = _begin(spec)
    story.kubelet(1, "end", 1)
    story.settle()
    story.set_sink(mode)
    story.rescale("a", 1)
    story.settle()
    return story


def deletion_with_an_invalid_spec(mode: str) -> ArchivedHistory:
    """The spec becomes invalid, and the Framework is deleted."""
    story = _begin(_spec())
    story.set_sink(mode)
    story.break_spec(broken=True)
    story.settle()
    story.delete(foreground=False)
    story.settle()
    return story


def orphaning_deletion_with_an_invalid_spec(mode: str) -> ArchivedHistory:
    """Likewise, and its objects are to stay."""
    story = _begin(_spec())
    story.set_sink(mode)
    story.break_spec(broken=True)
    story.orphan()
    story.settle()
    return story


def deletion_with_a_status_that_cannot_be_stored(mode: str, *, foreground: bool = True) -> ArchivedHistory:
    """The API server refuses each status, and the Framework is deleted."""
    story = _begin(_spec())
    story.set_sink(mode)
    write = story.world.write_status

    def refuse(*_: Any) -> str:
        raise ApiRefusal(413, "RequestEntityTooLarge", "the object is too large")

    story.world.write_status = refuse  # type: ignore[assignment]
    story.kubelet(0, "end", 1)
    story.delete(foreground=foreground)
    story.settle()
    story.crash(0)
    story.settle()
    if mode == "hangs":
        # It is stored after all.
        story.world.write_status = write  # type: ignore[method-assign]
    return story


STORIES: Final = (
    retry_of_a_task,
    retry_of_the_framework,
    scale_down,
    replacement,
    deletion,
    partial(deletion_with_a_lost_node, foreground=True),
    deletion_with_a_lost_node,
    retention,
    changed_after_the_archive,
    deletion_with_an_invalid_spec,
    orphaning_deletion_with_an_invalid_spec,
    deletion_with_a_status_that_cannot_be_stored,
)


def play(story: Callable[[str], ArchivedHistory], mode: str) -> ArchivedHistory:
    """The story, up to its fair end."""
    played = story(mode)
    played.end()
    return played


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("story", STORIES)
def test_a_sound_controller_comes_to_the_end(story: Callable[[str], ArchivedHistory], mode: str) -> None:
    played = play(story, mode)
    assert played.framework is None
    assert played.sink.stored
