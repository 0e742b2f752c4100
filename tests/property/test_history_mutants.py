"""Controllers broken on purpose, each lacking one thing that guarantee H rests on: a short story catches it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from unittest.mock import patch

import pytest

from frameworkcontroller.machine import farewell, gates
from frameworkcontroller.machine.kernel.actions import Delete
from frameworkcontroller.machine.kernel.context import Context
from frameworkcontroller.machine.kernel.model import Env, SnapshotTrigger
from frameworkcontroller.machine.kernel.requests import Answer, Answered
from frameworkcontroller.machine.parts.history import archiving as history
from frameworkcontroller.machine.parts.history.archival import Archival
from frameworkcontroller.machine.parts.history.finalization import Farewell, Look
from tests.support.archive import ArchivedHistory
from tests.support.world import ApiRefusal, Body, Violation

_MAY_FORGET_TASK: Final = history.may_forget_task
_MAY_FORGET_ATTEMPT: Final = history.may_forget_attempt
_MAINTAIN: Final = history.maintain
_STORED: Final = Farewell.stored
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


def _retry_of_a_task(mode: str) -> ArchivedHistory:
    story = _begin(_spec(tasks=1))
    story.set_sink(mode)
    story.kubelet(0, "end", 1)
    story.settle()
    return story


def _retry_of_the_framework(mode: str) -> ArchivedHistory:
    story = _begin(_spec(attempts=1))
    story.set_sink(mode)
    story.kubelet(0, "end", 1)
    story.settle()
    return story


def _scale_down(mode: str) -> ArchivedHistory:
    story = _begin(_spec())
    story.set_sink(mode)
    story.rescale("a", 1)
    story.settle()
    return story


def _replace(mode: str) -> ArchivedHistory:
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


def _deletion(mode: str) -> ArchivedHistory:
    story = _begin(_spec(attempts=1))
    story.set_sink(mode)
    story.delete(foreground=False)
    story.settle()
    return story


def _deletion_with_a_lost_node(mode: str, *, foreground: bool = False) -> ArchivedHistory:
    story = _begin(_spec())
    story.set_sink(mode)
    story.lose_node(lost=True)
    story.delete(foreground=foreground)
    story.settle()
    return story


def _retention(mode: str) -> ArchivedHistory:
    story = _begin({**_spec(), "ttlSecondsAfterFinished": 0})
    story.set_sink(mode)
    story.kubelet(0, "end", 1)
    story.settle()
    return story


def _changed_after_the_archive(mode: str) -> ArchivedHistory:
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


def _deletion_with_an_invalid_spec(mode: str) -> ArchivedHistory:
    story = _begin(_spec())
    story.set_sink(mode)
    story.break_spec(broken=True)
    story.settle()
    story.delete(foreground=False)
    story.settle()
    return story


def _orphaning_deletion_with_an_invalid_spec(mode: str) -> ArchivedHistory:
    story = _begin(_spec())
    story.set_sink(mode)
    story.break_spec(broken=True)
    story.orphan()
    story.settle()
    return story


def _deletion_with_a_status_that_cannot_be_stored(mode: str, *, foreground: bool = True) -> ArchivedHistory:
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
    _retry_of_a_task,
    _retry_of_the_framework,
    _scale_down,
    _replace,
    _deletion,
    partial(_deletion_with_a_lost_node, foreground=True),
    _deletion_with_a_lost_node,
    _retention,
    _changed_after_the_archive,
    _deletion_with_an_invalid_spec,
    _orphaning_deletion_with_an_invalid_spec,
    _deletion_with_a_status_that_cannot_be_stored,
)


def _play(story: Callable[[str], ArchivedHistory], mode: str) -> ArchivedHistory:
    played = story(mode)
    played.end()
    return played


@pytest.mark.parametrize("mode", ["stores", "fails", "hangs", "twice", "dies"])
@pytest.mark.parametrize("story", STORIES)
def test_a_sound_controller_comes_to_the_end(story: Callable[[str], ArchivedHistory], mode: str) -> None:
    played = _play(story, mode)
    assert played.framework is None
    assert played.sink.stored


# --- how they are broken ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mutant:
    """``what`` it does; ``found``: words in what is found in the ``story``."""

    what: str
    broken: Callable[[], AbstractContextManager[object]]
    story: Callable[[str], ArchivedHistory]
    found: str = "left the status, and is not in the archive"


def _forgets_task(trigger: SnapshotTrigger) -> Callable[[], AbstractContextManager[object]]:
    def may_forget(ctx: Context, task: Any, asked: SnapshotTrigger) -> bool:
        return asked is trigger or _MAY_FORGET_TASK(ctx, task, asked)

    return lambda: patch.object(history, "may_forget_task", may_forget)


def _forgets_attempt(trigger: SnapshotTrigger) -> Callable[[], AbstractContextManager[object]]:
    def may_forget(ctx: Context, asked: SnapshotTrigger) -> bool:
        return asked is trigger or _MAY_FORGET_ATTEMPT(ctx, asked)

    return lambda: patch.object(history, "may_forget_attempt", may_forget)


def _lets_go_at_the_end(ctx: Context) -> None:
    if ctx.must_go and ctx.tracker.is_completing and ctx.tracker.is_clean:
        history._change(ctx, add=False)


def _begins_without(ctx: Context) -> bool:
    history._change(ctx, add=True)
    return True


def _deletes_at_once(ctx: Context) -> None:
    _MAINTAIN(ctx)
    uid = ctx.attempt.configmap_uid
    if ctx.must_go and uid is not None and not ctx.tracker.is_completing:
        ctx.act(Delete(ctx.configmap_target(), uid))


def _takes_any_answer(ending: Farewell, _: Answer, env: Env) -> Look:
    return _STORED(ending, Answered(b""), env)


def _never_looks(*_: object) -> Generator[Any, Any, bool]:
    yield from ()
    return True


def _keeps_tasks(archival: Archival, subject: object) -> None:
    archival.framework.clear()
    archival.asked_framework.clear()


MUTANTS: Final = {
    "retry-of-a-task": Mutant(
        "retries a Task before its record is stored", _forgets_task(SnapshotTrigger.TASK_RETRY), _retry_of_a_task
    ),
    "retry-of-the-framework": Mutant(
        "retries a Framework before its record is stored",
        _forgets_attempt(SnapshotTrigger.FRAMEWORK_RETRY),
        _retry_of_the_framework,
    ),
    "scale-down": Mutant(
        "removes a Task before its record is stored", _forgets_task(SnapshotTrigger.TASK_DELETION), _scale_down
    ),
    "replacement": Mutant(
        "replaces a Task before its record is stored", _forgets_task(SnapshotTrigger.TASK_DELETION), _replace
    ),
    "deletion": Mutant(
        "removes the finalizer before the record is stored",
        _forgets_attempt(SnapshotTrigger.FRAMEWORK_DELETION),
        _deletion,
        "the finalizer is removed before",
    ),
    "farewell": Mutant(
        "removes the finalizer of one that is left alone before the record is stored",
        lambda: patch.object(Farewell, "stored", _takes_any_answer),
        _deletion_with_a_status_that_cannot_be_stored,
        "the finalizer is removed before",
    ),
    "farewell-while-it-runs": Mutant(
        "removes the finalizer of one that is left alone while Pods exist",
        lambda: patch.object(farewell, "_nothing_runs", _never_looks),
        partial(_deletion_with_a_status_that_cannot_be_stored, foreground=False),
        "the finalizer is removed while",
    ),
    "finalizer-while-it-runs": Mutant(
        "removes the finalizer while Pods exist",
        lambda: patch.object(history, "maintain", _lets_go_at_the_end),
        _deletion_with_a_lost_node,
        "the finalizer is removed while",
    ),
    "no-finalizer-first": Mutant(
        "creates the ConfigMap before the finalizer is there",
        lambda: patch.object(history, "is_held", _begins_without),
        _deletion,
        "a ConfigMap is created before the finalizer is there",
    ),
    "no-finalizer": Mutant(
        "has no finalizer",
        lambda: patch.object(history, "wants_finalizer", lambda _: False),
        _deletion,
        "a ConfigMap is created before the finalizer is there",
    ),
    "deletion-not-persisted": Mutant(
        "deletes the ConfigMap of a deleted Framework before its end is stored",
        lambda: patch.object(history, "maintain", _deletes_at_once),
        _deletion,
        "no status that was ever stored gives cause to",
    ),
    "deaf-to-deletion": Mutant(
        "does not end a deleted Framework",
        lambda: patch.object(gates, "_END_FIRST", gates._END_FIRST[1:]),
        _deletion,
        "It does not come about",
    ),
    "an-acknowledgment-for-ever": Mutant(
        "keeps the acknowledgment of a status that has changed since",
        lambda: patch.object(Archival, "changed", _keeps_tasks),
        _changed_after_the_archive,
        "and is in another state",
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_controller_that_lacks_a_guard_of_the_history_is_caught(name: str) -> None:
    mutant = MUTANTS[name]
    _play(mutant.story, "fails")
    with mutant.broken(), pytest.raises(Violation) as caught:
        _play(mutant.story, "fails")
    said = str(caught.value).partition("\n")[0]
    assert mutant.found in said, f"a controller that {mutant.what}: {said}"
