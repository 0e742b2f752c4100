"""Random histories of one Framework: every guarantee holds after every step, and everything comes to its promised end.

``tests.support.history`` has the operations, ``tests.support.guarantees`` the checks. hypothesis shortens a failing
history, and its error ends in the story. More of them: ``HISTORIES=2000 pytest tests/property``.
"""

from __future__ import annotations

import os
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.support.history import EXIT_CODES, NAME, History
from tests.support.world import Fate

ROLES = st.sampled_from("abc")
SMALL = st.integers(0, 5)
KINDS = st.integers(0, 2)
MINIMUM = st.sampled_from([0, -1, 1, 2])
LIMIT = st.sampled_from([0, 1, 2, -1, -2])
TIMEOUT = st.sampled_from([None, 0, 5, 60])
FORCE = st.sampled_from([None, "Always", "NodeUnreachable"])
TAINTS = st.sampled_from(
    [(), ("a/b",), ("node.kubernetes.io/unreachable",), ("node.kubernetes.io/out-of-service", "x")]
)
DEPENDENCY = st.sampled_from([None, None, None, "Ready", "Complete"])
CODES = st.lists(st.sampled_from([1, 200, 201, 210, -101, -1010]), min_size=1, max_size=3, unique=True)
PATTERN = st.one_of(
    st.builds(lambda codes: {"onExitCodes": {"operator": "In", "values": codes}}, CODES),
    st.builds(lambda codes: {"onCompletionCodes": {"operator": "In", "values": codes}}, CODES),
    st.just({"onPodConditions": [{"type": "DisruptionTarget"}]}),
)
ACTION = st.sampled_from(["Count", "Ignore", "FailTask", "RestartFramework", "FailFramework"])
RULES = st.lists(st.builds(lambda action, pattern: {"action": action, **pattern}, ACTION, PATTERN), max_size=3)
BACKOFF = st.sampled_from([None, None, {"baseSeconds": 1, "maxSeconds": 4}, {"baseSeconds": 0}])
RETRY = st.fixed_dictionaries({"fancyRetryPolicy": st.booleans(), "maxRetryCount": LIMIT, "backoff": BACKOFF})
DEADLINE = st.sampled_from([None, None, 1, 50, 500])
PRE_RUNNING = st.sampled_from([None, None, 50, 500])
"""Not less than the time that settling may take: Pods run only afterwards."""
SUSPEND = st.sampled_from([None, False, False, True])
TTL = st.sampled_from([None, None, 0, 50])
POD = st.sampled_from([{}, {}, {"metadata": {"ownerReferences": [{"kind": "ConfigMap", "name": "s", "uid": "stays"}]}}])
"""Templates, of which one names an owner that outlives every attempt."""


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    """A spec of a few small roles."""
    roles = [
        {
            "name": name,
            "taskNumber": draw(st.integers(0, 3)),
            "frameworkAttemptCompletionPolicy": {
                "minFailedTaskCount": draw(MINIMUM),
                "minSucceededTaskCount": draw(MINIMUM),
            },
            "task": {
                "retryPolicy": draw(RETRY),
                "podGracefulDeletionTimeoutSec": draw(TIMEOUT),
                "podForceDeletionPolicy": draw(FORCE),
                "podFailurePolicy": {"rules": draw(RULES)} if draw(st.booleans()) else None,
                "preRunningDeadlineSeconds": draw(PRE_RUNNING),
                "pod": draw(POD),
            },
        }
        for name in "abc"[: draw(st.sampled_from([1, 0, 2, 3]))]
    ]
    for position, item in enumerate(roles):
        # Each role may wait for earlier ones: any graph without a cycle.
        dependencies = draw(st.lists(DEPENDENCY, min_size=position, max_size=position))
        named = zip("abc", dependencies, strict=False)
        if found := [{"name": name, "status": status} for name, status in named if status is not None]:
            item["dependsOn"] = found
    return {
        "executionType": draw(st.sampled_from(["Start", "Create"])),
        "suspend": draw(SUSPEND),
        "retryPolicy": draw(RETRY),
        "activeDeadlineSeconds": draw(DEADLINE),
        "ttlSecondsAfterFinished": draw(TTL),
        "taskRoles": roles,
    }


def history_settings(count: int = 200) -> settings:
    """Settings for random histories: that many, or HISTORIES."""
    return settings(
        max_examples=int(os.environ.get("HISTORIES", count)),
        stateful_step_count=60,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


class Histories(RuleBasedStateMachine):
    """One history. Rules that are needed often appear more than once."""

    history: History

    @initialize(seed=st.integers(0, 2**16), spec=specs())
    def begin(self, seed: int, spec: dict[str, Any]) -> None:
        self.history = History(seed)
        self.history.create(spec)

    # --- controllers ---

    @rule(which=st.integers(0, 1), steps=st.sampled_from([1, 2, 3, 5, 10, 30]))
    def run_controller(self, which: int, steps: int) -> None:
        self.history.run(which, steps)

    @rule(which=st.integers(0, 1), kind=KINDS, count=st.sampled_from([1, 2, 5, 50]))
    def deliver(self, which: int, kind: int, count: int) -> None:
        self.history.deliver(which, kind, count)

    @rule(which=st.integers(0, 1), steps=st.integers(1, 20))
    def follow(self, which: int, steps: int) -> None:
        """A controller sees everything, and works."""
        for kind in range(3):
            self.history.deliver(which, kind, 50)
        self.history.run(which, steps)

    @rule(which=st.integers(0, 1), kind=KINDS)
    def relist(self, which: int, kind: int) -> None:
        self.history.relist(which, kind)

    @rule(which=st.integers(0, 1))
    def crash(self, which: int) -> None:
        self.history.crash(which)

    @rule()
    def stand_by(self) -> None:
        self.history.stand_by()

    @rule()
    def take_over(self) -> None:
        self.history.take_over()

    @rule(kind=KINDS, count=st.sampled_from([1, 2, 5, 50]))
    def deliver_to_standby(self, kind: int, count: int) -> None:
        self.history.deliver_to_standby(kind, count)

    @rule()
    def start_second(self) -> None:
        self.history.start_second()

    @rule(which=st.integers(0, 1))
    def rest(self, which: int) -> None:
        self.history.rest(which)

    @rule(lazy=st.booleans(), actions=st.sampled_from([1, 2, 100]))
    def breathe(self, lazy: bool, actions: int) -> None:
        self.history.breathe(lazy=lazy, actions=actions)

    @rule()
    def settle(self) -> None:
        self.history.settle()

    @rule(seconds=st.sampled_from([1, 100, 1000]))
    def wait(self, seconds: int) -> None:
        self.history.wait(seconds)

    # --- the cluster ---

    @rule(
        which=SMALL,
        what=st.sampled_from(["Running", "end", "remove", "Unknown", "bind", "fail early", "ready", "unready"]),
        code=st.sampled_from(EXIT_CODES),
    )
    def kubelet(self, which: int, what: str, code: int) -> None:
        self.history.kubelet(which, what, code)

    @rule(which=SMALL, code=st.sampled_from(EXIT_CODES))
    def end_pod(self, which: int, code: int) -> None:
        """A Pod ends, and all controllers react."""
        self.history.kubelet(which, "end", code)
        self.history.settle()

    @rule(which=SMALL, stop=st.booleans(), seconds=st.sampled_from([0, 5, 40]))
    def end_pod_before_its_containers(self, which: int, stop: bool, seconds: int) -> None:
        """A Pod fails, and its containers run until their grace period is over."""
        self.history.kubelet(which, "fail early")
        self.history.settle()
        if stop:
            self.history.execute("Stop")
        self.history.tick(seconds)
        self.history.settle()

    @rule(lost=st.booleans())
    def lose_node(self, lost: bool) -> None:
        self.history.lose_node(lost=lost)

    @rule(taints=TAINTS)
    def find_node(self, taints: tuple[str, ...]) -> None:
        self.history.find_node(*taints)

    @rule()
    def remove_node(self) -> None:
        self.history.remove_node()

    @rule(verb=st.sampled_from(["create", "delete", "write", "get", "patch", None]), fate=st.sampled_from(list(Fate)))
    def fail_request(self, verb: str | None, fate: Fate) -> None:
        self.history.fail(verb, fate)

    @rule()
    def execute_late(self) -> None:
        self.history.execute_late()

    @rule(seconds=st.sampled_from([1, 5, 30, 130, 400, -60]))
    def tick(self, seconds: int) -> None:
        self.history.tick(seconds)

    @rule(steps=st.sampled_from([1, 2, 10]))
    def collect(self, steps: int) -> None:
        self.history.collect(steps)

    @rule(pods=st.sampled_from([None, 0, 1, 2]))
    def set_quota(self, pods: int | None) -> None:
        self.history.set_quota(pods)

    # --- users ---

    @rule(role=ROLES, number=st.integers(0, 4))
    def rescale(self, role: str, number: int) -> None:
        self.history.rescale(role, number)

    @rule(role=ROLES, number=st.integers(0, 4))
    def rescale_and_follow(self, role: str, number: int) -> None:
        self.history.rescale(role, number)
        self.history.settle()

    @rule(role=ROLES)
    def drop(self, role: str) -> None:
        self.history.drop(role)

    @rule(role=st.none() | ROLES, fancy=st.booleans(), limit=LIMIT)
    def set_retry(self, role: str | None, fancy: bool, limit: int) -> None:
        self.history.set_retry(role, fancy=fancy, limit=limit)

    @rule(role=ROLES, failed=MINIMUM, succeeded=MINIMUM)
    def set_completion(self, role: str, failed: int, succeeded: int) -> None:
        self.history.set_completion(role, failed, succeeded)

    @rule(role=ROLES, other=ROLES, status=DEPENDENCY)
    def set_dependency(self, role: str, other: str, status: str | None) -> None:
        self.history.set_dependency(role, other, status)

    @rule(role=ROLES, seconds=TIMEOUT, policy=FORCE)
    def set_timeout(self, role: str, seconds: int | None, policy: str | None) -> None:
        self.history.set_timeout(role, seconds, policy)

    @rule(seconds=DEADLINE)
    def set_deadline(self, seconds: int | None) -> None:
        self.history.set_deadline(seconds)

    @rule(role=ROLES, seconds=PRE_RUNNING)
    def set_pre_running(self, role: str, seconds: int | None) -> None:
        self.history.set_pre_running(role, seconds)

    @rule(seconds=TTL)
    def set_ttl(self, seconds: int | None) -> None:
        self.history.set_ttl(seconds)

    @rule(wanted=st.sampled_from(["Start", "Stop"]))
    def set_execution(self, wanted: str) -> None:
        self.history.execute(wanted)

    @rule(wanted=st.booleans())
    def suspend(self, wanted: bool) -> None:
        self.history.suspend(wanted=wanted)

    @rule(wanted=st.booleans(), which=st.integers(0, 1), steps=st.integers(0, 20))
    def suspend_and_follow(self, wanted: bool, which: int, steps: int) -> None:
        """A controller sees it, and works."""
        self.history.suspend(wanted=wanted)
        self.follow(which, steps)

    @rule(broken=st.booleans())
    def break_spec(self, broken: bool) -> None:
        self.history.break_spec(broken=broken)

    @rule()
    def annotate(self) -> None:
        self.history.annotate()

    @rule(foreground=st.booleans())
    def delete(self, foreground: bool) -> None:
        self.history.delete(foreground=foreground)

    @rule(spec=specs())
    def create_again(self, spec: dict[str, Any]) -> None:
        self.history.create(spec)

    @rule(which=SMALL, force=st.booleans(), disrupted=st.booleans())
    def delete_pod(self, which: int, force: bool, disrupted: bool) -> None:
        self.history.delete_pod(which, force=force, disrupted=disrupted)

    @rule(propagation=st.sampled_from(["Foreground", "Background", "Orphan"]))
    def delete_configmap(self, propagation: str) -> None:
        self.history.delete_configmap(propagation)

    @rule(which=SMALL)
    def unlabel(self, which: int) -> None:
        self.history.unlabel(which)

    @rule(
        name=st.sampled_from([f"{NAME}-attempt", f"{NAME}-a-0", f"{NAME}-a-1", f"{NAME}-b-0"]), labelled=st.booleans()
    )
    def intrude(self, name: str, labelled: bool) -> None:
        self.history.intrude(name, labelled=labelled)

    @rule()
    def retreat(self) -> None:
        self.history.retreat()

    def teardown(self) -> None:
        # After a violation the world is no longer one that could come to a good end.
        if hasattr(self, "history") and not self.history.world.violated:
            self.history.finish()


TestHistories = Histories.TestCase
TestHistories.settings = history_settings(300)
