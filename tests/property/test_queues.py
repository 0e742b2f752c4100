"""Histories of one Framework in a queue, by the rules of tests/support/queueguarantees.py and tests/support/kueue.py.

Denser than the general ones: a hostile Kueue, a user who changes labels and spec, and a controller that dies between
any two steps.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from frameworkcontroller.api import names
from frameworkcontroller.api.status import State
from frameworkcontroller.machine.kernel.requests import Kind
from tests.support.history import LIMITS, NAME, History
from tests.support.kueue import DEACTIVATIONS, EVICTIONS, Kueue, condition, has_quota, is_active
from tests.support.world import Body, Fate, uid_of

KINDS: Final = (Kind.FRAMEWORK, Kind.CONFIGMAP, Kind.POD, Kind.WORKLOAD)
TEMPLATE: Final = {"spec": {"containers": [{"name": "main", "image": "none"}]}}
FATES: Final = [(verb, fate) for verb in ("create", "write", "delete", "get", "patch") for fate in list(Fate)[:3]]
KUEUE: Final = [
    *EVICTIONS,
    *DEACTIVATIONS,
    "delete",
    "finish",
    "steal",
    "chatter",
    "deactivate",
    "activate",
    "hide",
    "serve",
    "unadmit",
]
USER: Final = ["suspend", "resume", "more", "fewer", "template", "unlabel", "label", "move", "stop", "delete"]
OPERATION: Final = st.sampled_from([*KUEUE, *USER, "crash", "crash", "exit", "run", "collect", "kueue", *FATES])
OPERATIONS: Final = st.lists(st.tuples(OPERATION, st.integers(0, 12)), max_size=12)


class Queued(History):
    """A history with Kueue."""

    def __init__(self, *, tasks: int = 2, quota: int = 4, seed: int = 0, **options: Any) -> None:
        super().__init__(seed, limits=replace(LIMITS, kueue=True), kinds=KINDS)
        self.kueue = Kueue(self.world, {"gold": quota}, seed, is_loose=lambda: self.guarantees.loose, **options)
        self.others.append(self.kueue.step)
        self.wakes.append(lambda: self.kueue.due_at)
        spec = {"taskRoles": [{"name": "a", "taskNumber": tasks, "task": {"pod": TEMPLATE}}]}
        metadata = {"name": NAME, "labels": {names.QUEUE_NAME: "team-a"}}
        self.world.create(Kind.FRAMEWORK, {"metadata": metadata, "spec": spec})

    def follow(self, steps: int) -> None:
        """The controller and Kueue see everything, and work."""
        for _ in range(steps):
            self.kueue.settle()
            for kind in range(len(KINDS)):
                self.deliver(0, kind, 50)
            self.run(0, 1)

    def all_run(self) -> None:
        """All Pods run."""
        self.settle()
        self._all_pods_run()
        self.settle()

    def relabel(self, queue: str | None) -> None:
        """The user sets the label of the queue, or removes it (None)."""
        if self.framework is not None:
            self.world.tell(f"user: queue {queue}")
            labels = {} if queue is None else {names.QUEUE_NAME: queue}
            self.world.edit(Kind.FRAMEWORK, NAME, lambda body: body["metadata"].update(labels=labels))

    def label_time(self, seconds: str) -> None:
        """The user says how long the Framework may be admitted."""
        labels = {names.QUEUE_NAME: "team-a", names.MAX_EXEC_TIME_SECONDS: seconds}
        self.world.edit(Kind.FRAMEWORK, NAME, lambda body: body["metadata"].update(labels=labels))

    def change_template(self) -> None:
        """The user asks for other Pods."""
        template = {"spec": {"containers": TEMPLATE["spec"]["containers"], "nodeSelector": {"disk": "ssd"}}}

        def change(spec: Body) -> None:
            spec["taskRoles"][0]["task"] = {"pod": template}

        self.edit("another template", change)

    @property
    def workloads(self) -> list[Body]:
        """The Workloads of Frameworks."""
        return self.kueue.of_frameworks()

    def do(self, operation: Any) -> None:
        """One operation."""
        match operation:
            case "suspend" | "resume":
                self.suspend(wanted=operation == "suspend")
            case "more" | "fewer":
                self.rescale("a", 3 if operation == "more" else 1)
            case "template":
                self.change_template()
            case "unlabel":
                self.relabel(None)
            case "label":
                self.relabel("team-a")
            case "move":
                self.relabel("team-b")
            case "stop":
                self.execute("Stop")
            case "delete":
                self.delete(foreground=True)
            case "crash":
                self.crash(0)
            case "exit":
                self.kubelet(0, "end", 1)
            case "run":
                self.kubelet(0, "Running")
            case "collect":
                self.collect(3)
            case "kueue":
                self.kueue.settle()
            case (verb, fate):
                self.fail(verb, fate)
            case what:
                self.kueue.play(what, 0)

    def _whatever_stands_in_the_way_is_told(self, *, alone: bool) -> None:
        status = self.status
        if status is not None and any(item.type == "QuotaReserved" and item.message for item in status.conditions):
            return
        super()._whatever_stands_in_the_way_is_told(alone=alone)

    def finish(self) -> None:
        """Kueue is fair again, too."""
        self.kueue.serve("gold")
        self.kueue.activates = True
        super().finish()


@given(first=st.integers(0, 15), operations=OPERATIONS, checks=st.booleans(), topology=st.booleans())
@example(first=6, operations=[("Preempted", 6), ("resume", 3), ("suspend", 12)], checks=False, topology=False)
def test_quota_is_kept_and_released_in_any_history(
    first: int, operations: list[tuple[Any, int]], checks: bool, topology: bool
) -> None:
    history = Queued(checks=checks, topology=topology)
    history.follow(first)
    for operation, steps in operations:
        history.do(operation)
        history.follow(steps)
    history.finish()


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("steps", range(25))
def test_an_eviction_between_any_two_steps_of_a_start_costs_no_retry(steps: int, crash: bool) -> None:
    history = Queued()
    history.follow(steps)
    history.kueue.play("Preempted", 0)
    if crash:
        history.crash(0)
    history.all_run()
    status = history.status
    assert status is not None
    assert (status.state, len(history.pods())) == (State.RUNNING, 2)
    assert status.retry.accountable_retried_count == 0
    assert status.admission is not None
    assert status.admission.workload_uid == uid_of(history.workloads[0])
    history.finish()


@pytest.mark.parametrize("steps", range(25))
def test_the_steps_after_an_eviction_survive_a_crash(steps: int) -> None:
    history = Queued()
    history.all_run()
    history.kueue.play("Preempted", 0)
    history.follow(steps)
    history.crash(0)
    history.all_run()
    status = history.status
    assert status is not None
    assert (status.state, status.attempt.id, status.retry.accountable_retried_count) == (State.RUNNING, 1, 0)
    history.finish()


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("what", ["deactivate", *DEACTIVATIONS])
def test_a_framework_that_was_deactivated_runs_again_once_it_is_activated(what: str, crash: bool) -> None:
    history = Queued()
    history.all_run()
    history.kueue.play(what, 0)
    history.settle()
    if crash:
        history.crash(0)
        history.settle()
    (workload,) = history.workloads
    assert (is_active(workload), has_quota(workload)) == (False, False)
    history.tick(1000)
    history.settle()
    assert history.pods() == []
    history.kueue.play("activate", 0)
    history.all_run()
    status = history.status
    assert status is not None
    assert (status.state, status.attempt.id, status.retry.accountable_retried_count) == (State.RUNNING, 1, 0)
    history.finish()


def test_more_time_and_an_activation_are_the_way_out_after_the_longest_execution_time() -> None:
    history = Queued()
    history.label_time("60")
    history.all_run()
    history.tick(61)
    history.settle()
    (workload,) = history.workloads
    assert not has_quota(workload)
    assert condition(workload, "Evicted")["reason"] == "DeactivatedDueToMaximumExecutionTimeExceeded"  # type: ignore[index]
    # Without more time, it is deactivated again.
    history.kueue.play("activate", 0)
    history.settle()
    assert not is_active(history.workloads[0])
    history.label_time("600")
    history.settle()
    history.kueue.play("activate", 0)
    history.all_run()
    assert history.status is not None
    assert (history.status.state, len(history.pods())) == (State.RUNNING, 2)
    history.finish()


def until_told(history: Queued, reason: str) -> None:
    """Let time pass until the Workload says this about its Pods: changes of that are paced."""
    for _ in range(3):
        history.settle()
        if (condition(history.workloads[0], "PodsReady") or {}).get("reason") == reason:
            return
        history.tick(10)
    raise AssertionError(condition(history.workloads[0], "PodsReady"))


def test_pods_of_a_retry_have_their_time_though_the_admission_is_old() -> None:
    """Kueue counts the time of Pods that wait for their start from the admission."""
    history = Queued(pods_ready_sec=100.0)
    history.set_retry(None, fancy=False, limit=5)
    history.set_completion("a", 1, -1)
    history.all_run()
    until_told(history, "Started")
    history.tick(1000)
    history.kubelet(0, "end", 1)
    until_told(history, "WaitForRecovery")
    assert history.status is not None
    assert history.status.attempt.id == 1
    history.tick(50)
    history.settle()
    assert history.kueue.evictions == {}
    history.all_run()
    until_told(history, "Recovered")
    history.finish()


def test_pods_of_the_next_admission_have_their_time_though_those_before_were_lost() -> None:
    history = Queued(pods_ready_sec=100.0)
    history.set_retry("a", fancy=False, limit=5)
    history.all_run()
    until_told(history, "Started")
    history.kubelet(0, "end", 1)
    until_told(history, "WaitForRecovery")
    history.kueue.play("Preempted", 0)
    history.kueue.rival(4)
    history.settle()
    assert (condition(history.workloads[0], "PodsReady") or {})["reason"] == "WaitForStart"


@given(operations=st.lists(st.tuples(OPERATION, st.integers(0, 6), st.integers(0, 6)), max_size=10))
@example(operations=[("Preempted", 6, 2), ("crash", 3, 3), ("Preempted", 0, 6)])
def test_two_controllers_keep_the_order_of_writes(operations: list[tuple[Any, int, int]]) -> None:
    """Without the checks of K2 and of quota by existing Pods: the other one may have created some meanwhile."""
    history = Queued()
    history.follow(4)
    history.start_second()
    for operation, first, second in operations:
        history.do(operation)
        for which, steps in enumerate((first, second)):
            for _ in range(steps):
                history.kueue.settle()
                for kind in range(len(KINDS)):
                    history.deliver(which, kind, 50)
                history.run(which, 1)
    history.finish()
