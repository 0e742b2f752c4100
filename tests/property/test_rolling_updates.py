"""Random histories of a Framework with rolling updates: U and all other guarantees hold after every step.

Templates, limits and partitions change at any time, Pods become ready and cease to be, controllers are killed. At the
end, each Task from the partition on has the last template. More of them:
``HISTORIES=2000 pytest tests/property/test_rolling_updates.py``.
"""

from __future__ import annotations

from typing import Any, Final

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from frameworkcontroller.api.status import State
from tests.property.test_machine_histories import ROLES, SMALL, Histories, history_settings, specs
from tests.support.rollinghistory import IMAGES, RollingHistory, template

Json = dict[str, Any]
IMAGE = st.sampled_from(IMAGES)
SECONDS = st.sampled_from([None, None, 5, 40])
ROLLING = st.fixed_dictionaries(
    {
        "maxUnavailable": st.sampled_from([None, 1, 1, 2, "50%", "100%"]),
        "partition": st.sampled_from([None, 0, 0, 1, 2]),
    }
)
STRATEGY = st.one_of(
    st.none(),
    *[st.builds(lambda rolling: {"type": "RollingUpdate", "rollingUpdate": rolling}, ROLLING)] * 4,
)


@st.composite
def rolling_specs(draw: st.DrawFn) -> Json:
    """A spec of a few small roles. Most have RollingUpdate."""
    spec = draw(specs())
    for role in spec["taskRoles"]:
        role |= {"updateStrategy": draw(STRATEGY), "minReadySeconds": draw(SECONDS)}
        role["taskNumber"] = draw(st.integers(1, 4))
        role["task"]["pod"] = template(draw(IMAGE))
        if draw(st.booleans()):
            # A service.
            role["frameworkAttemptCompletionPolicy"] = None
            role["task"] |= {"retryPolicy": {"maxRetryCount": -2}, "podFailurePolicy": None}
    return spec


class RollingHistories(Histories):
    """One history of rollouts."""

    history: RollingHistory

    @initialize(seed=st.integers(0, 2**16), spec=rolling_specs())
    def begin(self, seed: int, spec: Json) -> None:
        self.history = RollingHistory(seed)
        self.history.create(spec)

    @rule(seconds=st.sampled_from([1, 5, 30, 130, 400]))
    def tick(self, seconds: int) -> None:
        """The clock is not put back: the checks read it."""
        self.history.tick(seconds)

    @rule(role=ROLES, image=IMAGE)
    def set_image(self, role: str, image: str) -> None:
        self.history.set_image(role, image)

    @rule(role=ROLES, image=IMAGE, which=st.integers(0, 1), steps=st.integers(1, 20))
    def set_image_and_follow(self, role: str, image: str, which: int, steps: int) -> None:
        self.history.set_image(role, image)
        self.history.follow(which, steps)

    @rule(role=ROLES, strategy=STRATEGY, image=st.none() | IMAGE)
    def set_strategy(self, role: str, strategy: Json | None, image: str | None) -> None:
        self.history.set_role(role, "strategy", {"updateStrategy": strategy})
        if image is not None:
            self.history.set_image(role, image)

    @rule(role=ROLES, seconds=SECONDS)
    def set_min_ready_seconds(self, role: str, seconds: int | None) -> None:
        self.history.set_role(role, "minReadySeconds", {"minReadySeconds": seconds})

    @rule(which=SMALL, is_ready=st.booleans())
    def become_ready(self, which: int, is_ready: bool) -> None:
        """A Pod runs, and is ready or not, and all controllers react."""
        self.history.kubelet(which, "Running")
        self.history.kubelet(which, "ready" if is_ready else "unready")
        self.history.settle()

    @rule(seconds=st.sampled_from([0, 5, 40]))
    def become_all_ready(self, seconds: int) -> None:
        """All Pods are ready for a while, and all controllers react."""
        self.history.all_pods_run()
        self.history.settle()
        self.history.wait(seconds)


TestRollingHistories = RollingHistories.TestCase
TestRollingHistories.settings = history_settings()


# --- stories ---------------------------------------------------------------------------------------------------------


def begin(number: int = 4, *, seconds: int = 0, **rolling: Any) -> RollingHistory:
    """A service whose Pods are all ready."""
    story = RollingHistory(7)
    task = {"retryPolicy": {"maxRetryCount": -2}, "pod": template("v1")}
    strategy = {"type": "RollingUpdate", "rollingUpdate": rolling}
    role = {"name": "a", "taskNumber": number, "task": task, "updateStrategy": strategy, "minReadySeconds": seconds}
    story.create({"executionType": "Start", "taskRoles": [role]})
    story.settle()
    story.all_pods_run()
    story.settle()
    story.wait(seconds)
    return story


def roll_on(story: RollingHistory, rounds: int = 6) -> None:
    """All Pods become ready, again and again."""
    for _ in range(rounds):
        story.all_pods_run()
        story.settle()
        story.wait(60)


def rollout() -> RollingHistory:
    """A template changes, and then another time in the midst of it."""
    story = begin()
    story.set_image("a", "v2")
    story.settle()
    roll_on(story, 2)
    story.set_image("a", "v3")
    roll_on(story)
    story.finish()
    return story


def slow_rollout() -> RollingHistory:
    """The Pods have to be ready for some time."""
    story = begin(seconds=40)
    story.set_image("a", "v2")
    story.settle()
    for _ in range(12):
        story.all_pods_run()
        story.settle()
        story.wait(10)
    story.finish()
    return story


def partial_rollout() -> RollingHistory:
    """The lower half keeps its template."""
    story = begin(maxUnavailable=2, partition=2)
    story.set_image("a", "v2")
    story.settle()
    roll_on(story)
    story.finish()
    return story


def interrupted_rollout() -> RollingHistory:
    """The controller is killed while a Task is between two templates."""
    story = begin()
    story.set_image("a", "v2")
    story.settle()
    story.crash(0)
    roll_on(story)
    story.finish()
    return story


def unready_rollout() -> RollingHistory:
    """New Pods run, and are not ready, until the template is taken back."""
    story = begin()
    story.set_image("a", "v2")
    story.settle()
    for which in range(4):
        story.kubelet(which, "Running")
    story.settle()
    story.wait(60)
    assert story.status is not None
    assert [task.attempt.id for task in story.status.attempt.roles[0].tasks] == [0, 0, 0, 1]
    story.set_image("a", "v1")
    roll_on(story)
    story.finish()
    return story


def unseen_pods() -> RollingHistory:
    """The controller is killed before it sees the Pods that it has created, and the template changes."""
    story = RollingHistory(7)
    task = {"retryPolicy": {"maxRetryCount": -2}, "pod": template("v1")}
    role = {"name": "a", "taskNumber": 2, "task": task, "updateStrategy": {"type": "RollingUpdate"}}
    story.create({"executionType": "Start", "taskRoles": [role]})
    story.until(lambda: len(story.pods()) == 2)
    story.set_image("a", "v2")
    story.crash(0)
    roll_on(story)
    images = {pod["spec"]["containers"][0]["image"] for pod in story.pods()}
    assert images == {"v2"}, f"U: at rest, the images are {images}"
    story.finish()
    return story


STORIES: Final = (unready_rollout, unseen_pods, rollout, slow_rollout, partial_rollout, interrupted_rollout)


@pytest.mark.parametrize("story", STORIES)
def test_stories(story: Any) -> None:
    story()


def test_the_controller_is_killed_at_each_step() -> None:
    """After each of its steps, among them each write, and before its answer."""
    steps = 0
    while True:
        steps += 1
        story = begin()
        story.set_image("a", "v2")
        story.follow(0, steps)
        done = not story.controllers[0].due
        story.crash(0)
        roll_on(story)
        assert story.status is not None
        tasks = story.status.attempt.roles[0].tasks
        assert [(task.state, task.attempt.id) for task in tasks] == [(State.RUNNING, 1)] * 4
        story.finish()
        if done:
            break
    assert steps > 5
