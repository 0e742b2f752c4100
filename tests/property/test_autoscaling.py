"""Random histories of a Framework with autoscaling: S3 and all other guarantees hold after every step.

The number of Tasks of a role changes only to one that is stored, within the bounds; switching autoscaling on or
retrying the Framework changes nothing; and in the end each role has as many Tasks as its object asks for. More of them:
``HISTORIES=2000 pytest tests/property/test_autoscaling.py``.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from frameworkcontroller.machine.kernel.actions import Delete
from tests.property.test_machine_histories import ROLES, Histories, history_settings, specs
from tests.support.autoscaled import SCALER, AutoscaledHistory
from tests.support.history import NAME

Json = dict[str, Any]

NUMBERS = st.integers(0, 6)
BOUNDS = st.tuples(st.integers(0, 3), st.integers(1, 5)).filter(lambda one: one[0] <= one[1])


@st.composite
def autoscaled_specs(draw: st.DrawFn) -> Json:
    """A spec of a few small roles. Most have autoscaling."""
    spec = draw(specs())
    for role in spec["taskRoles"]:
        bounds = draw(st.none() | BOUNDS | BOUNDS)
        role["autoscaling"] = None if bounds is None else {"minTasks": bounds[0], "maxTasks": bounds[1]}
    return spec


class AutoscaledHistories(Histories):
    """One history, with autoscalers."""

    history: AutoscaledHistory

    @initialize(seed=st.integers(0, 2**16), spec=autoscaled_specs())
    def begin(self, seed: int, spec: Json) -> None:
        self.history = AutoscaledHistory(seed)
        self.history.create(spec)

    @rule(which=st.integers(0, 1), count=st.sampled_from([1, 2, 50]))
    def deliver_scalers(self, which: int, count: int) -> None:
        self.history.deliver(which, 3, count)

    @rule(role=ROLES, number=NUMBERS)
    def ask(self, role: str, number: int) -> None:
        self.history.ask(role, number)

    @rule(role=ROLES, number=NUMBERS)
    def ask_and_settle(self, role: str, number: int) -> None:
        self.history.ask(role, number)
        self.history.settle()

    @rule(role=ROLES, numbers=st.lists(NUMBERS, max_size=4), which=st.integers(0, 1), steps=st.integers(0, 6))
    def ask_and_crash(self, role: str, numbers: list[int], which: int, steps: int) -> None:
        """A controller is killed at any step of its work on a number."""
        for number in numbers:
            self.history.ask(role, number)
            self.history.follow(which, steps)
            self.history.crash(which)

    @rule(role=ROLES, bounds=st.none() | BOUNDS | BOUNDS)
    def set_bounds(self, role: str, bounds: tuple[int, int] | None) -> None:
        self.history.set_bounds(role, bounds)

    @rule(role=ROLES)
    def delete_scaler(self, role: str) -> None:
        self.history.delete_scaler(role)

    @rule(role=ROLES)
    def unlabel_scaler(self, role: str) -> None:
        self.history.unlabel_scaler(role)

    @rule(role=ROLES, labelled=st.booleans())
    def take_name(self, role: str, labelled: bool) -> None:
        self.history.intrude(f"{NAME}-{role}", labelled=labelled, kind=SCALER)


TestAutoscaledHistories = AutoscaledHistories.TestCase
TestAutoscaledHistories.settings = history_settings()


# --- stories ---------------------------------------------------------------------------------------------------------


def _begin(number: int = 2, *, retries: int = 0, **policy: int) -> AutoscaledHistory:
    story = AutoscaledHistory(7)
    role = {
        "name": "a",
        "taskNumber": number,
        "autoscaling": {"minTasks": 1, "maxTasks": 4},
        "frameworkAttemptCompletionPolicy": policy,
    }
    story.create({"executionType": "Start", "taskRoles": [role], "retryPolicy": {"maxRetryCount": retries}})
    _settle(story)
    return story


def _settle(story: AutoscaledHistory) -> None:
    for _ in range(3):
        story.wait(2)
        story.all_pods_run()
    story.settle()


def scaled() -> AutoscaledHistory:
    """An autoscaler asks for more than the bounds, and for less, and its object is deleted."""
    story = _begin()
    for number in (3, 9, 0, 3):
        story.ask("a", number)
        _settle(story)
    story.delete_scaler("a")
    _settle(story)
    story.finish()
    return story


def killed_while_scaling() -> AutoscaledHistory:
    """The controller is killed at each step of its work on a number."""
    story = _begin()
    for steps in range(12):
        story.ask("a", 1 + (steps * 3) % 4)
        story.follow(0, steps)
        story.crash(0)
    _settle(story)
    story.finish()
    return story


def retried() -> AutoscaledHistory:
    """The Framework is retried after it was scaled."""
    story = _begin(retries=1, minFailedTaskCount=1)
    story.ask("a", 4)
    _settle(story)
    story.kubelet(0, "end", 1)
    _settle(story)
    story.finish()
    return story


def switched() -> AutoscaledHistory:
    """Autoscaling is switched off and on again before its object is gone."""
    story = _begin()
    story.ask("a", 4)
    _settle(story)
    story.set_bounds("a", None)
    story.stop_before(Delete, lambda target: target.kind is SCALER)
    story.crash(0)
    story.set_bounds("a", (1, 4))
    _settle(story)
    story.finish()
    return story


def test_stories() -> None:
    scaled()
    killed_while_scaling()
    retried()
    switched()
