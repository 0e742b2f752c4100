"""Random histories of a Framework whose Tasks avoid nodes: A and all other guarantees hold after every step.

Each new Pod avoids exactly the nodes of the stored status, which changes only with the end of an attempt. Nodes take
Pods or do not, and no Pod waits forever because of the nodes that it avoids. More of them:
``HISTORIES=2000 pytest tests/property/test_avoided_nodes.py``.
"""

from __future__ import annotations

from typing import Any, Final

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from frameworkcontroller.api.status import State
from tests.property.test_machine_histories import ROLES, SMALL, Histories, history_settings, specs
from tests.support.avoidednodes import NODES, AvoidingHistory
from tests.support.history import EXIT_CODES

Json = dict[str, Any]
RELAX_SEC: Final = 50
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_OWN: Final = {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["own"]}]}


def _terms(*terms: Json) -> Json:
    return {"spec": {"affinity": {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": [*terms]}}}}}


PODS = st.sampled_from([{"spec": {}}, {"spec": {}}, {"spec": {"affinity": {}}}, _terms(_OWN), _terms({}, _OWN, _OWN)])
PRE_RUNNING = st.sampled_from([None, None, 40, 500])
CODES = st.sampled_from([None, None, {"operator": "In", "values": [1, 210]}, {"operator": "NotIn", "values": [200]}])
AVOID = st.none() | st.fixed_dictionaries(
    {
        "after": st.sampled_from([1, 1, 2]),
        "limit": st.sampled_from([1, 2, 8]),
        "relaxAfterSeconds": st.just(RELAX_SEC),
        "onCodes": CODES,
    }
)


@st.composite
def avoiding_specs(draw: st.DrawFn) -> Json:
    """A spec of a few small roles. Most avoid nodes."""
    spec = draw(specs())
    for role in spec["taskRoles"]:
        task = role["task"]
        # Nodes are no objects here.
        task |= {"pod": draw(PODS), "preRunningDeadlineSeconds": draw(PRE_RUNNING), "podForceDeletionPolicy": None}
        task["retryPolicy"] = {**task["retryPolicy"], "avoidNodes": draw(AVOID)}
    return spec


class AvoidingHistories(Histories):
    """One history, with a scheduler."""

    history: AvoidingHistory

    @initialize(seed=st.integers(0, 2**16), spec=avoiding_specs())
    def begin(self, seed: int, spec: Json) -> None:
        self.history = AvoidingHistory(seed)
        self.history.create(spec)

    @rule(nodes=st.lists(st.sampled_from(NODES), max_size=3, unique=True))
    def close(self, nodes: list[str]) -> None:
        self.history.close(nodes)

    @rule(which=SMALL, code=st.sampled_from(EXIT_CODES), times=st.integers(1, 3))
    def fail_again_and_again(self, which: int, code: int, times: int) -> None:
        """A Pod ends, and the next one, and all controllers react."""
        for _ in range(times):
            self.history.kubelet(which, "end", code)
            self.history.settle()

    @rule(role=ROLES, avoid=AVOID)
    def set_avoided(self, role: str, avoid: Json | None) -> None:
        """The user changes avoidNodes."""

        def change(found: Json) -> None:
            found.setdefault("task", {}).setdefault("retryPolicy", {})["avoidNodes"] = avoid

        self.history.edit_role(role, f"avoidNodes of {role}: {avoid}", change)


TestAvoidingHistories = AvoidingHistories.TestCase
TestAvoidingHistories.settings = history_settings()


# --- stories ---------------------------------------------------------------------------------------------------------


def _begin(number: int = 1, *, retries: int = 9, failed: int = 0, of_framework: int = 0) -> AvoidingHistory:
    story = AvoidingHistory(7)
    avoid = {"relaxAfterSeconds": RELAX_SEC}
    task = {"retryPolicy": {"maxRetryCount": retries, "avoidNodes": avoid}, "pod": _terms(_OWN, _OWN)}
    policy = {"minFailedTaskCount": failed, "minSucceededTaskCount": -1}
    roles = [{"name": "a", "taskNumber": number, "task": task, "frameworkAttemptCompletionPolicy": policy}]
    story.create({"executionType": "Start", "taskRoles": roles, "retryPolicy": {"maxRetryCount": of_framework}})
    story.settle()
    return story


def failures() -> AvoidingHistory:
    """A Task fails on each node, waits for a while, and runs on the first again."""
    story = _begin()
    for _ in NODES:
        story.kubelet(0, "end", 1)
        story.settle()
    story.kubelet(0, "Running")
    story.wait(RELAX_SEC)
    story.finish()
    return story


def restart_of_the_framework() -> AvoidingHistory:
    """A Task fails, and with it the attempt of the Framework."""
    story = _begin(2, retries=0, failed=1, of_framework=3)
    story.kubelet(1, "end", 1)
    story.settle()
    story.kubelet(0, "Running")
    story.kubelet(1, "Running")
    story.settle()
    story.finish()
    return story


def test_stories() -> None:
    failures()
    restart_of_the_framework()


def test_a_pod_waits_for_a_limited_time() -> None:
    story = _begin()
    story.close(NODES[1:])
    story.kubelet(0, "end", 1)
    story.settle()
    story.kubelet(0, "Running")
    story.settle()
    assert story.status is not None
    assert story.status.attempt.roles[0].tasks[0].state is State.PREPARING
    before = story.world.clock
    while (task := story.status.attempt.roles[0].tasks[0]).state is not State.RUNNING:
        story.wait(RELAX_SEC)
        story.kubelet(0, "Running")
        story.settle()
        assert story.world.clock <= before + 2 * RELAX_SEC
    assert task.avoided_nodes == ()
