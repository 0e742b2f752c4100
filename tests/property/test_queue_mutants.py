"""Controllers broken on purpose, each lacking one thing that the promises of queues rest on: random histories catch it.

By the stories of ``test_queue_histories``, in their order, and no more than it plays.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from typing import Any, Final
from unittest.mock import patch

import pytest

from frameworkcontroller.api.completion import CompletionStatus
from frameworkcontroller.api.objects import QueueLabels
from frameworkcontroller.api.spec import RetryPolicy
from frameworkcontroller.api.status import AdmissionStatus, AdmittedPodSet, FrameworkAttemptStatus, State
from frameworkcontroller.api.workloads import WorkloadRecord
from frameworkcontroller.machine import framework, gates
from frameworkcontroller.machine.kernel import manifests
from frameworkcontroller.machine.kernel.actions import Patch, Patched, Target, carry_out, patched
from frameworkcontroller.machine.kernel.context import Context
from frameworkcontroller.machine.kernel.holds import Wait
from frameworkcontroller.machine.kernel.model import require
from frameworkcontroller.machine.kernel.policy import RetryDecision, decide_retry
from frameworkcontroller.machine.kernel.reasons import Reason
from frameworkcontroller.machine.kernel.requests import Kind
from frameworkcontroller.machine.kernel.states import ENDED
from frameworkcontroller.machine.kernel.tracker import Tracker
from frameworkcontroller.machine.parts.gangs import gangs
from frameworkcontroller.machine.parts.gangs.podgroupbodies import minimum_patch
from frameworkcontroller.machine.parts.kueue import kueue
from frameworkcontroller.machine.parts.kueue import orphanedworkloads as orphans
from frameworkcontroller.machine.parts.kueue import workloadactions as workloads
from frameworkcontroller.machine.parts.kueue.workloadactions import LetGo
from tests.property.test_queue_histories import HISTORIES, error_of
from tests.support import driver
from tests.support.gangscheduler import Backend
from tests.support.kueue import DEACTIVATIONS, QUEUES
from tests.support.queuedhistory import GREEDY, OWNED, Step, Story, make_story

_EVICTED: Final = -241
_ORDERS: Final = 6
"""In which the requests of a story that is told are answered."""
_SPEC: Final = {
    "taskRoles": [
        {
            "name": "a",
            "taskNumber": 2,
            "frameworkAttemptCompletionPolicy": {"minFailedTaskCount": 1, "minSucceededTaskCount": -1},
            "task": {
                "retryPolicy": {"maxRetryCount": 0},
                "pod": {"spec": {"containers": [{"name": "main", "image": "work"}]}},
            },
        }
    ],
    "retryPolicy": {"maxRetryCount": -1},
}
_OPTIONS: Final = {"quota": {"a100": 4, "spot": 4}, "checks": True}
_STORY: Final = Story(0, QUEUES[0], _SPEC, _OPTIONS, ())
_UNRECORDED: Final = (
    Step("follow", (0, 14)),
    Step("stand_by"),
    Step("reach", (0, Kind.POD)),
    Step("take_over"),
    Step("play", ("Preempted", 0)),
    Step("grope", (0, 30)),
)
"""A replica takes over that has not seen what was created, and the Framework is evicted."""
_END_ALL: Final = (Step("kubelet", (0, "end", 1)), Step("kubelet", (1, "end", 1)), Step("settle"))
_MORE: Final = (
    Step("settle"),
    Step("rescale", ("a", 4)),
    Step("settle"),
    Step("kubelet", (0, "end", 1)),
    Step("kubelet", (1, "end", 1)),
    Step("settle"),
)
"""Two Tasks of four are admitted, and the attempt is retried."""
_ONE_OF_TWO: Final = (
    Step("set_completion", ("a", 1, -1)),
    Step("settle"),
    Step("kubelet", (0, "end", 0)),
    Step("settle"),
)
"""One Task of two succeeds."""
_ORPHANED: Final = (Step("settle"), Step("delete", (), {"foreground": False}), Step("settle"))
"""The Framework is deleted in the background: its Pods and its Workload outlive it."""

_OWNED: Final = (
    Step("settle"),
    Step("alter", ("a", "metadata", OWNED)),
    Step("kubelet", (0, "end", 1)),
    *_ORPHANED,
)
"""The Pods of the second attempt have an owner by their template, and the Framework is deleted in the background."""
_RETRY_FRAMEWORK: Final = Tracker.retry_framework
_POD: Final = manifests._pod
_WITH_CHANGES: Final = workloads._with_changes
_PATCHED: Final = patched


def _limit(seconds: str) -> Step:
    return Step("label", ("kueue.x-k8s.io/max-exec-time-seconds", seconds))


@dataclass(frozen=True)
class Mutant:
    """``what`` it does; ``found``: words of which one is in what is found."""

    what: str
    broken: Callable[[], AbstractContextManager[object]]
    found: tuple[str, ...]
    steps: tuple[Step, ...] = ()
    """A story in which that shows; without one, the random ones do."""
    gang: Backend | None = None
    """The scheduler of the story, whose Pods are a gang."""

    def stories(self) -> Iterable[Story]:
        """Those in which it is to be found."""
        if self.gang is not None:
            spec = {**_SPEC, "scheduling": {"schedulingPolicy": {"gang": {}}}}
            story = Story(0, None, spec, {"backend": self.gang}, self.steps)
            return [replace(story, seed=seed) for seed in range(2)]
        if not self.steps:
            return map(make_story, range(HISTORIES))
        return [replace(_STORY, steps=self.steps, seed=seed) for seed in range(_ORDERS)]


def _all_of(*patches: AbstractContextManager[object]) -> ExitStack:
    stack = ExitStack()
    for one in patches:
        stack.enter_context(one)
    return stack


# --- how they are broken ---------------------------------------------------------------------------------------------


def _when_it_ends(ctx: Context) -> bool:
    return ctx.tracker.is_clean and (ctx.tracker.is_completing or ctx.tracker.nothing_runs)


def _without_a_look(tracker: Tracker) -> bool:
    state = require(tracker.status, "status").state
    return (tracker._end_is_stored if state in ENDED else state is State.CREATION_PENDING) and not tracker.remains


def _set_and_forget(tracker: Tracker, admission: AdmissionStatus | None) -> None:
    """As if it were persisted."""
    require(tracker.status, "status").admission = admission
    tracker.life.templates.clear()
    tracker.agenda.look()


def _count_evictions(policy: RetryPolicy, completion: CompletionStatus, used: int, delay: int) -> RetryDecision:
    decision = decide_retry(policy, completion, used, delay)
    return replace(decision, accountable=decision.accountable or completion.code == _EVICTED)


def _retry_evictions_by_policy(policy: RetryPolicy, completion: CompletionStatus, used: int, delay: int) -> Any:
    return decide_retry(policy, replace(completion, code=-101), used, delay)


def _clear_and_leave_conditions(body: Any, changes: Any, now: int) -> Any:
    kept = [one for one in changes if one.type not in ("QuotaReserved", "Admitted")]
    return _WITH_CHANGES(body, kept, now)


def _queue_again_always(body: Any, changes: Any, now: int) -> Any:
    always = [replace(one, is_true=True) if one.type == "Requeued" else one for one in changes]
    return _WITH_CHANGES(body, always, now)


def _lose_conditions(body: Any, changes: Any, now: int) -> Any:
    changed = {one.type for one in changes}
    return [one for one in _WITH_CHANGES(body, changes, now) if one["type"] in changed]


def _reclaim_what_has_ended(ctx: Context, admitted: AdmittedPodSet) -> int:
    tasks = ctx.tracker.roles[admitted.name].tasks
    return max(admitted.reclaimed, sum(task.state in ENDED for task in tasks))


def _needs_more_than_was_admitted(ctx: Context, admission: AdmissionStatus, queue: QueueLabels) -> bool:
    wanted = kueue._wanted(ctx, queue).counts
    return any(count > require(admission.pod_set(name), name).count for name, count in wanted.items())


def _keep_reclaimed(target: Target, uid: str, change: Any, *more: Any) -> Any:
    if (change.get("status") or {}).get("reclaimablePods", ()) is None:
        del change["status"]["reclaimablePods"]
    return _PATCHED(target, uid, change, *more)


def _yes(*_: Any, **__: Any) -> bool:
    return True


def _no(*_: Any, **__: Any) -> bool:
    return False


def _none(*_: Any, **__: Any) -> None:
    return None


def _count_by_index(ctx: Context, item: Any) -> Any:
    admission = ctx.status.admission
    admitted = None if admission is None else admission.pod_set(item.role)
    if admission is None or (admitted is not None and item.index < admitted.count):
        return None
    return Wait(Reason.QUOTA_COUNT, "its index is not admitted")


def _rules_without(row: tuple[Any, ...], rule: Any) -> tuple[Any, ...]:
    assert rule in row
    return tuple(one for one in row if one is not rule)


def _rules_with(row: tuple[Any, ...], rule: Any, other: Any) -> tuple[Any, ...]:
    assert rule in row
    return tuple(other if one is rule else one for one in row)


def _keep_what_was_placed(tracker: Tracker, attempt: FrameworkAttemptStatus, *args: Any, **more: Any) -> None:
    attempt.scheduled_pod_groups = list(require(tracker.status, "status").attempt.scheduled_pod_groups)
    _RETRY_FRAMEWORK(tracker, attempt, *args, **more)


def _raise(ctx: Context, plans: Any, group: Any, target: Any, found: Any, live: int) -> None:
    if found.minimum < live:
        change = minimum_patch(plans.gangs, group, live)
        ctx.act(Patch(target, found.uid, change, found.resource_version))


def _with_owners_of_the_template(template: Any, *args: Any) -> Any:
    pod = _POD(template, *args)
    pod["metadata"]["ownerReferences"][:0] = (template.get("metadata") or {}).get("ownerReferences") or ()
    return pod


def _let_go_at_once(orphan: WorkloadRecord, *_: Any, **__: Any) -> Generator[Any, Any, orphans.Release]:
    result = yield from carry_out(LetGo(Target(Kind.WORKLOAD, orphan.name), orphan.uid))
    return orphans.Release(isinstance(result, Patched))


MUTANTS: Final = {
    "quota-back-at-the-end": Mutant(
        "gives quota back once the end of the attempt is decided",
        lambda: patch.object(kueue, "_nothing_runs", _when_it_ends),
        ("quota: ", "K2: ", "G3: ", "Lost wake-up"),
    ),
    "quota-back-whatever-runs": Mutant(
        "gives quota back while Pods exist",
        lambda: patch.object(kueue, "_nothing_runs", lambda ctx: ctx.tracker.is_clean),
        ("quota: ", "K2: "),
        _UNRECORDED,
    ),
    "no-look-before-quota-goes-back": Mutant(
        "believes of an attempt that is not recorded that it has not begun",
        lambda: patch.object(Tracker, "nothing_runs", property(_without_a_look)),
        ("quota: ", "K2: "),
        _UNRECORDED,
    ),
    "admission-not-persisted": Mutant(
        "starts before the admission is persisted",
        lambda: patch.object(Tracker, "set_admission", _set_and_forget),
        ("K1: ", "It does not come about", "Lost wake-up"),
    ),
    "eviction-counts": Mutant(
        "counts an eviction as a retry",
        lambda: patch.object(framework, "decide_retry", _count_evictions),
        ("accountable retries", "retried: "),
    ),
    "eviction-by-policy": Mutant(
        "retries an evicted attempt as the policy says",
        lambda: patch.object(framework, "decide_retry", _retry_evictions_by_policy),
        ("accountable retries", "retried: "),
    ),
    "another-request": Mutant(
        "starts on the admission of another request",
        lambda: _all_of(
            patch.object(workloads.ReadAdmission, "_is_asked_for", _yes), patch.object(kueue, "_is_asked_for", _yes)
        ),
        ("K1: ", "It does not come about"),
    ),
    "more-on-the-next-attempt": Mutant(
        "starts the next attempt on an admission of fewer Tasks",
        lambda: patch.object(kueue, "_needs_more", _no),
        ("K1: ",),
        _MORE,
    ),
    "quota-of-retried-tasks": Mutant(
        "gives the quota of Tasks back that are retried",
        lambda: patch.object(kueue, "_reclaimed", _reclaim_what_has_ended),
        ("K2: ",),
        (
            Step("set_retry", ("a",), {"fancy": False, "limit": -1}),
            Step("settle"),
            Step("kubelet", (0, "end", 1)),
            Step("settle"),
        ),
    ),
    "quota-back-before-that-is-stored": Mutant(
        "gives the quota of completed Tasks back before that is persisted",
        lambda: _all_of(
            patch.object(Tracker, "reclaim", _set_and_forget), patch.object(Tracker, "is_head_settled", True)
        ),
        ("K2: ",),
        _ONE_OF_TWO,
    ),
    "the-next-attempt-on-what-is-left": Mutant(
        "starts the next attempt without the quota that was given back",
        lambda: patch.object(kueue, "_needs_more", _needs_more_than_was_admitted),
        ("K1: ",),
        (*_ONE_OF_TWO, Step("kubelet", (0, "end", 1)), Step("settle")),
    ),
    "what-was-given-back-stays-away": Mutant(
        "waits for an admission that is smaller than what it needs",
        lambda: patch.object(workloads, "patched", _keep_reclaimed),
        ("Hot loop",),
        (*_ONE_OF_TWO, Step("kubelet", (0, "end", 1)), Step("settle")),
    ),
    "quota-kept-to-the-end": Mutant(
        "keeps the quota of completed Tasks until the attempt ends",
        lambda: patch.object(kueue, "_reclaim", _none),
        ("idle quota",),
        (*_ONE_OF_TWO, Step("check_idle_quota")),
    ),
    "an-admission-for-ever": Mutant(
        "believes that an admission holds for ever",
        lambda: patch.object(kueue, "problem_with", _none),
        ("G3: ", "It does not come about"),
        (Step("settle"), Step("play", ("Preempted", 0))),
    ),
    "half-of-a-release": Mutant(
        "clears the admission and not the conditions",
        lambda: patch.object(workloads, "_with_changes", _clear_and_leave_conditions),
        ("K2: ",),
    ),
    "always-queued-again": Mutant(
        "has every evicted Workload queued again at once",
        lambda: patch.object(workloads, "_with_changes", _queue_again_always),
        ("K2: ",),
    ),
    "conditions-lost": Mutant(
        "replaces all conditions by its own",
        lambda: patch.object(workloads, "_with_changes", _lose_conditions),
        ("are lost", "quota: "),
    ),
    "the-cause-of-a-deactivation": Mutant(
        "repeats why Kueue has deactivated a Workload, after which Kueue never queues it again",
        lambda: patch.object(workloads, "_DEACTIVATED", "none"),
        ("It does not come about",),
        (Step("settle"), Step("play", (DEACTIVATIONS[0], 0)), Step("settle")),
    ),
    "deactivated-for-ever": Mutant(
        "keeps a condition for which Kueue deactivates the Workload again",
        lambda: patch.object(workloads, "DEACTIVATION_TARGET", "none"),
        ("It does not come about",),
        (_limit("60"), Step("settle"), Step("tick", (61,)), Step("settle"), _limit("100000")),
    ),
    "no-end-of-what-waits-for-ever": Mutant(
        "waits for ever for the quota of a role that was added",
        lambda: patch.object(gates, "_END_BY_TASKS", _rules_without(gates._END_BY_TASKS, kueue.only_unadmitted)),
        ("It does not come about",),
        (Step("settle"), Step("rescale", ("b", 2))),
    ),
    "more-than-admitted": Mutant(
        "creates the Pods of Tasks that were added after the admission",
        lambda: patch.object(gates, "_CREATE", _rules_without(gates._CREATE, kueue.count_wait)),
        ("K3: ", "quota: ", "K1: ", "Lost wake-up"),
    ),
    "count-by-index": Mutant(
        "has Tasks wait whose index is not below the admitted count",
        lambda: patch.object(gates, "_CREATE", _rules_with(gates._CREATE, kueue.count_wait, _count_by_index)),
        ("It does not come about", "It waits"),
        (Step("settle"), Step("rescale", ("a", 4)), Step("settle"), Step("kubelet", (0, "end", 0)), Step("settle")),
    ),
    "deaf-to-evictions": Mutant(
        "does not end an evicted attempt",
        lambda: patch.object(gates, "_END_LAST", _rules_without(gates._END_LAST, kueue.must_evict)),
        ("G3: ", "It does not come about", "PodsReady", "Lost wake-up"),
    ),
    "orphans-of-running-pods": Mutant(
        "releases the Workload of a Framework that is gone while its Pods exist",
        lambda: patch.object(driver, "release", _let_go_at_once),
        ("K2: ",),
        _ORPHANED,
    ),
    "orphans-for-ever": Mutant(
        "never releases the Workload of a Framework that is gone",
        lambda: patch.object(driver, "orphans", lambda *_: []),
        ("G3: ",),
        _ORPHANED,
    ),
    "owners-of-the-template": Mutant(
        "keeps the owners in a template",
        lambda: patch.object(manifests, "_pod", _with_owners_of_the_template),
        ("K2: ", "C2/C4: ", "quota: ", "G3: "),
        _OWNED,
    ),
    "placeholders-count-as-0": Mutant(
        "takes placeholders in requests for 0",
        lambda: patch.object(workloads, "_uncountable", _none),
        ("K2: ",),
        (Step("alter", ("a", "spec", GREEDY)), Step("settle")),
    ),
    "nothing-needs-no-quota": Mutant(
        "starts a Framework without roles without an admission",
        lambda: patch.object(
            kueue, "_queue", lambda ctx: ctx.framework.queue if ctx.framework.spec.task_roles else None
        ),
        ("K1: ",),
        (Step("drop", ("a",)), Step("settle"), Step("rescale", ("a", 2)), Step("settle")),
    ),
    "silence": Mutant(
        "never says that its Pods are ready",
        lambda: patch.object(kueue, "_tell_readiness", _none),
        ("PodsReady is not told",),
    ),
}


_REPLACED: Final = (
    Step("settle"),
    Step("kubelet", (0, "end", 0)),
    Step("settle"),
    Step("set_retry", ("a",), {"fancy": False, "limit": -1}),
    Step("settle"),
    Step("kubelet", (0, "end", 1)),
    Step("settle"),
)
"""One Task succeeds, and one is retried."""
_GANG_MUTANTS: Final = {
    f"{name}-{backend.name}": replace(mutant, gang=backend)
    for backend in Backend
    for name, mutant in {
        "fixed-minimum": Mutant(
            "never lowers the minimum of a gang",
            lambda: _all_of(patch.object(gangs, "_lower", _none), patch.object(gangs, "_choose_singles", _none)),
            ("It does not come about", "It waits", "G2: "),
            _REPLACED,
        ),
        "no-group-first": Mutant(
            "creates Pods before their group",
            lambda: patch.object(gates, "_CREATE", _rules_without(gates._CREATE, gangs.group_wait)),
            ("G1: ",),
            (Step("settle"),),
        ),
        "half-a-gang": Mutant(
            "creates Pods without a group",
            lambda: patch.object(gangs, "member", _none),
            ("G1: ",),
            (Step("settle"),),
        ),
        "the-group-of-the-last-attempt": Mutant(
            "takes for placed what was placed in the attempt before",
            lambda: patch.object(Tracker, "retry_framework", _keep_what_was_placed),
            ("G1: ", "G2: "),
            (*_REPLACED, Step("set_retry", ("a",), {"fancy": False, "limit": 0}), *_END_ALL),
        ),
        "raised-minimum": Mutant(
            "raises the minimum when Tasks are added",
            lambda: patch.object(gangs, "_lower", _raise),
            ("G2: ",),
            (Step("settle"), Step("rescale", ("a", 4)), Step("settle")),
        ),
    }.items()
    if (name, backend) != ("raised-minimum", Backend.NATIVE_1_36)
}
_GANG_MUTANTS["deaf-to-422"] = Mutant(
    "does not believe that the minimum cannot be changed",
    lambda: patch.object(gangs, "fixed", _none),
    ("It does not come about", "Hot loop"),
    (Step("fix_minimums"), *_REPLACED),
    Backend.NATIVE_1_37,
)


@pytest.mark.parametrize("name", _GANG_MUTANTS)
def test_a_controller_that_lacks_a_guard_of_gangs_is_caught(name: str) -> None:
    find(_GANG_MUTANTS[name])


@pytest.mark.parametrize("name", MUTANTS)
def test_a_controller_that_lacks_a_guard_of_queues_is_caught(name: str) -> None:
    find(MUTANTS[name])


def find(mutant: Mutant) -> None:
    """Check that a sound controller comes to the end of the mutant's stories, and the mutant does not."""
    assert not mutant.steps or not any(map(error_of, mutant.stories()))
    with mutant.broken():
        errors = (error_of(story) for story in mutant.stories())
        error = next((one for one in errors if one is not None), None)
    assert error is not None, f"a controller that {mutant.what} does as well as a sound one"
    said = str(error).partition("\n")[0]
    assert any(words in said for words in mutant.found), said
