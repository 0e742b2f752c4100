"""Gangs of one Framework (docs/lifecycle.md, "Gangs"): groups, their minimum, and unsupported features."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest

from frameworkcontroller.api.names import POD_IDENTITY
from frameworkcontroller.api.objects import Identity
from frameworkcontroller.api.podgroups import GangScheduler
from frameworkcontroller.machine.kernel.actions import Action, Create, Delete, Patch
from frameworkcontroller.machine.kernel.exchanges import (
    Accepted,
    Created,
    Exists,
    Gone,
    NotAttempted,
    Outdated,
    Patched,
    Remains,
    Result,
)
from frameworkcontroller.machine.kernel.model import NotListed, Urgency
from frameworkcontroller.machine.kernel.reasons import Reason, RequestReason
from frameworkcontroller.machine.kernel.requests import Answered, Kind, Post, Refusal, Refused, Target
from frameworkcontroller.machine.parts.gangs.gangs import TELL_SEC
from frameworkcontroller.machine.parts.gangs.gangstate import GangReason, GangState
from tests.support.bench import UID, Bench, Body, limits, refused, role
from tests.support.queuedbench import QueuedBench

RETRIED: Body = {"retryPolicy": {"maxRetryCount": 5, "backoff": {"baseSeconds": 0}}}
GANG: Body = {"schedulingPolicy": {"gang": {}}}
INVALID = replace(refused(422), kind=Refusal.INVALID)


def gang(*roles: Body, minimum: int | None = None, scheduler: str = "kubernetes", **fields: Any) -> Bench:
    """A Framework with spec.scheduling."""
    spec = {"schedulingPolicy": {"gang": {} if minimum is None else {"minCount": minimum}}, **fields}
    limit = replace(limits(), gang_scheduler=GangScheduler(scheduler))
    return Bench(*(roles or (role(number=4),)), limit=limit, scheduling=spec)


def prepared_gang(*roles: Body, **fields: Any) -> Bench:
    """The same, with all Pods created."""
    bench = gang(*roles, **fields)
    bench.all_pods()
    return bench


def end(bench: Bench, name: str, code: int = 0) -> None:
    """The Pod ends with that exit code, and everything is done that is due within a minute."""
    bench.end(name, code)
    go(bench)


def pod(bench: Bench, name: str) -> Any:
    """The Pod as it was created."""
    return bench.bodies[name]


def group(bench: Bench, name: str = "f") -> Any:
    """The PodGroup as it is stored."""
    return bench.bodies[name]


def minimum(bench: Bench, name: str = "f") -> int:
    return int(group(bench, name)["spec"]["schedulingPolicy"]["gang"]["minCount"])


def creations(actions: list[Action]) -> list[str]:
    return [f"{action.target.kind} {action.target.name}" for action in actions if isinstance(action, Create)]


def stall(bench: Bench) -> tuple[str, str] | None:
    """Reason and message of the condition Stalled, None if it is not True."""
    found = bench.stall()
    return None if found == ("", "") else found


def assert_stall(bench: Bench, reason: Reason, words: str = "") -> None:
    """Check that the condition Stalled has that reason, and these words in its message."""
    found = stall(bench)
    assert found is not None
    assert found[0] == reason
    assert words in found[1]


def patches(bench: Bench) -> list[Patch]:
    """The patches of the next plan."""
    return [action for action in bench.plan().actions if isinstance(action, Patch)]


def waits(bench: Bench) -> str:
    """The wait in the condition Running."""
    return bench.status.conditions[0].message.partition("waits: ")[2]


def go(bench: Bench) -> None:
    """Everything that is due within a minute is done."""
    end = bench.now + 60
    while bench.now < end:
        bench.settle()
        made = bench.plan()
        if made.actions or bench.tracker.is_busy:
            continue
        if made.requeue_after is None or made.requeue_after > 60:
            return
        bench.now += max(made.requeue_after, 0.01)


def creation(bench: Bench) -> Action:
    """Up to the creation of the group."""
    bench.attempt()
    bench.plan()
    return bench.only(bench.plan())


# --- order --------------------------------------------------------------------------------------------------------


def test_the_group_comes_after_the_configmap_and_before_the_pods() -> None:
    bench = gang()
    bench.plan()
    order = []
    for _ in range(10):
        for action in bench.plan().actions:
            order.append(f"{action.target.kind} {action.target.name}")
            bench.created(action)
    assert order == ["ConfigMap f-attempt", "PodGroup f", *(f"Pod f-a-{index}" for index in range(4))]
    metadata = group(bench)["metadata"]
    (owner,) = metadata["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["blockOwnerDeletion"]) == ("ConfigMap", "configmap-1", False)
    assert metadata["labels"] == {"FC_FRAMEWORK_NAME": "f"}
    assert (metadata["annotations"]["FC_FRAMEWORK_UID"], metadata["annotations"]["FC_FRAMEWORK_ATTEMPT_ID"]) == (
        UID,
        "0",
    )


def test_pods_wait_for_their_group() -> None:
    bench = gang(role(number=2))
    creates = creation(bench)
    bench.refuse(creates, refused(403, "may not create podgroups"))
    assert stall(bench) == (GangReason.NOT_ANSWERED, "Cannot create PodGroup f: 403: may not create podgroups")
    assert waits(bench) == "PodGroup f does not exist yet"
    go(bench)
    assert sorted(bench.pods) == ["f-a-0", "f-a-1"]
    assert stall(bench) is None
    assert waits(bench) == ""


def test_a_role_that_waits_has_a_group_of_its_own_once_it_starts() -> None:
    """Groups of different roles may differ."""
    waiting = {**with_pod(role("b", 2), priorityClassName="high"), "dependsOn": [{"name": "a", "status": "Complete"}]}
    bench = prepared_gang(with_pod(role("a", 2), priorityClassName="low"), waiting)
    assert sorted(bench.bodies) == ["f", "f-a-0", "f-a-1", "f-attempt"]
    for index in range(2):
        bench.run(f"f-a-{index}")
        bench.end(f"f-a-{index}")
    go(bench)
    assert minimum(bench, "f-b") == 2
    assert [group(bench, name)["spec"]["priorityClassName"] for name in ("f", "f-b")] == ["low", "high"]
    for name in ("f-a-0", "f-b-0"):
        assert pod(bench, name)["spec"]["schedulingGroup"] == {"podGroupName": "f" if "a" in name else "f-b"}
    assert bench.status.attempt.scheduled_pod_groups == ["f"]


def test_a_group_that_others_delete_is_created_again() -> None:
    bench = prepared_gang()
    bench.drop("f")
    assert creations(bench.plan().actions) == ["PodGroup f"]
    go(bench)
    assert minimum(bench) == 4


# --- the minimum --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("wanted", "stored"), [(None, 4), (3, 3), (9, 4)])
def test_the_minimum_comes_from_the_spec_or_is_the_number_of_tasks(wanted: int | None, stored: int) -> None:
    bench = prepared_gang(minimum=wanted)
    assert minimum(bench) == stored


def test_the_minimum_follows_tasks_that_are_over_before_the_group_was_placed() -> None:
    bench = prepared_gang()
    end(bench, "f-a-0", code=1)
    assert minimum(bench) == 3
    bench.end("f-a-1")
    end(bench, "f-a-2")
    assert minimum(bench) == 1


def test_the_minimum_follows_only_persisted_changes() -> None:
    bench = prepared_gang()
    bench.stop("f-a-0", code=1)
    bench.plan(write=False)
    assert not [action for action in bench.plan(write=False).actions if isinstance(action, Patch)]
    bench.write()
    assert patches(bench)


def test_a_task_that_waits_for_its_retry_does_not_count_and_the_minimum_stays_when_it_is_back() -> None:
    backoff = {"baseSeconds": 40, "maxSeconds": 40}
    bench = prepared_gang(role(number=4, retryPolicy={"maxRetryCount": 5, "backoff": backoff}))
    bench.end("f-a-0", code=1)
    assert bench.states()[0] == "Completed" or bench.task().retry.retry_delay_sec == 40
    assert minimum(bench) == 3
    go(bench)
    assert bench.states()[0] == "Preparing"
    assert minimum(bench) == 3


def test_a_task_whose_pod_terminates_on_a_lost_node_does_not_count() -> None:
    bench = prepared_gang(role(number=4, retryPolicy={"maxRetryCount": 5}))
    bench.show_then_plan("f-a-0", deleting=bench.now + 3600)
    (patch,) = bench.plan().actions
    bench.patched(patch)
    assert minimum(bench) == 3


def test_tasks_that_a_rescale_removes_do_not_count_and_added_ones_do_not_raise_it() -> None:
    bench = prepared_gang()
    bench.edit(role(number=2))
    go(bench)
    assert minimum(bench) == 2
    bench.edit(role(number=6))
    go(bench)
    assert len(bench.pods) == 6
    assert minimum(bench) == 2


def test_once_a_pod_has_a_node_the_minimum_is_1_after_that_is_persisted() -> None:
    bench = prepared_gang()
    bench.show("f-a-0", nodeName="node-1")
    assert bench.plan(write=False).actions == []
    assert bench.status.attempt.scheduled_pod_groups == ["f"]
    assert bench.plan(write=False).actions == []
    bench.write()
    patch = bench.expect(Patch)
    assert patch.resource_version == "1"
    bench.patched(patch)
    assert minimum(bench) == 1


@pytest.mark.parametrize("kind", ["PodGroupInitiallyScheduled", "PodGroupScheduled"])
def test_once_the_scheduler_says_that_the_group_is_placed_the_minimum_is_1(kind: str) -> None:
    bench = prepared_gang()
    bench.show("f", conditions=[{"type": kind, "status": "True"}])
    go(bench)
    assert minimum(bench) == 1


def test_the_next_attempt_is_a_gang_again() -> None:
    bench = gang(role(number=3, failed=1))
    bench.edit(retryPolicy={"maxRetryCount": 5})
    bench.run_all()
    go(bench)
    assert minimum(bench) == 1
    first = group(bench)["metadata"]["uid"]
    bench.stop("f-a-0", code=1)
    for _ in range(20):
        bench.settle()
        if bench.configmap is None and "f" in {name for _, name in bench.groups}:
            bench.drop("f")
        if bench.status.attempt.id == 1 and len(bench.pods) == 3:
            break
        bench.vanish() if bench.status.state.value == "AttemptDeletionRequested" else None
        bench.now += 1
    assert bench.status.attempt.id == 1
    assert group(bench)["metadata"]["uid"] != first
    assert (minimum(bench), bench.status.attempt.scheduled_pod_groups) == (3, [])


def test_many_ends_at_once_are_a_few_patches() -> None:
    bench = prepared_gang(role(number=50))
    sent = 0
    for index in range(45):
        bench.stop(f"f-a-{index}", code=1)
    for _ in range(200):
        made = bench.plan()
        for action in made.actions:
            if isinstance(action, Patch):
                sent += 1
                bench.patched(action)
        if not made.actions and not bench.tracker.is_busy:
            break
        bench.settle()
    go(bench)
    assert minimum(bench) == 5
    assert sent <= 4


def test_an_accepted_patch_is_not_sent_again_before_the_cache_shows_it() -> None:
    bench = prepared_gang()
    bench.stop_then_plan("f-a-0", code=1)
    (patch,) = patches(bench)
    bench.patched(patch, show=False)
    bench.now += 60
    assert not patches(bench)
    # Another client has raised it.
    group(bench)["spec"]["schedulingPolicy"]["gang"]["minCount"] = 9
    group(bench)["metadata"]["resourceVersion"] = "7"
    bench.show("f")
    assert patches(bench)


def test_a_lower_minimum_of_the_spec_counts_at_once_and_a_higher_one_for_the_next_attempt() -> None:
    bench = prepared_gang(minimum=3)
    bench.edit(scheduling={"schedulingPolicy": {"gang": {"minCount": 4}}})
    go(bench)
    assert minimum(bench) == 3
    bench.edit(scheduling={"schedulingPolicy": {"gang": {"minCount": 2}}})
    go(bench)
    assert minimum(bench) == 2


def test_a_changed_group_is_read_again() -> None:
    bench = prepared_gang()
    bench.stop_then_plan("f-a-0", code=1)
    (patch,) = patches(bench)
    bench.fold(patch, Outdated("the object has been modified"))
    bench.now += 60
    group(bench)["metadata"]["resourceVersion"] = "2"
    bench.show("f")
    (patch,) = patches(bench)
    assert patch.resource_version == "2"


def test_a_pod_of_a_placed_group_is_created_once_its_minimum_is_lowered() -> None:
    """If that is refused, the Pod joins no group, which could never be complete again."""
    retried = role(number=4, **RETRIED)
    for refusal in (None, INVALID):
        bench = gang(retried)
        bench.run_all()
        (patch,) = patches(bench)
        bench.stop("f-a-0", code=1)
        for _ in range(10):
            for action in bench.plan().actions:
                assert not isinstance(action, Create)
                if isinstance(action, Delete):
                    bench.fold(action, Accepted())
                    bench.hide(action.target.name)
        assert bench.states()[0] == "CreationPending"
        bench.patched(patch) if refusal is None else bench.fold(patch, refusal)
        go(bench)
        assert ("schedulingGroup" in pod(bench, "f-a-0")["spec"]) == (refusal is None)
        assert bench.states()[0] == "Preparing"


@pytest.mark.parametrize("served", [True, False])
def test_a_placed_group_that_others_delete_or_that_is_no_longer_served_delays_no_pod(served: bool) -> None:
    """A native one stays until no Pod refers to it. An upgrade of Kubernetes may switch the beta API off."""
    bench = prepared_gang(role(number=2, **RETRIED))
    bench.run_all()
    go(bench)
    if served:
        bench.show("f", deleting=bench.now)
        bench.tracker.expectations.confirmed.clear()
    else:
        bench.restart()
        bench.not_listed = NotListed(NOT_SERVED, not_served=True)
    end(bench, "f-a-0", code=1)
    assert bench.states()[0] == "Preparing"
    assert "schedulingGroup" not in pod(bench, "f-a-0")["spec"]
    assert (stall(bench) or (None,))[0] == (None if served else GangReason.NOT_LISTED)


def test_a_group_that_waits_for_a_status_to_be_stored_is_created_then() -> None:
    bench = prepared_gang(role("a"), {**role("b", 2), "dependsOn": [{"name": "a", "status": "Complete"}]})
    bench.run("f-a-0")
    bench.settle()
    bench.end("f-a-0")
    bench.drop("f-b")
    bench.tracker.change(None, Urgency.LATER)
    bench.tracker.agenda.clear()
    assert bench.plan(write=False).actions == []
    assert bench.tracker.urgency is Urgency.SOON
    bench.write()
    assert bench.tracker.is_busy
    assert creations(bench.plan().actions) == ["PodGroup f-b"]


@pytest.mark.parametrize(("make", "urgency"), [(gang, Urgency.SOON), (Bench, Urgency.SHOWN)])
def test_the_minimum_of_a_group_does_not_wait_until_an_end_is_shown(
    make: Callable[[Body], Bench], urgency: Urgency
) -> None:
    bench = make(role(number=4))
    bench.all_pods()
    bench.run("f-a-0")
    bench.run("f-a-1")
    go(bench)
    bench.stop_then_plan("f-a-0")
    bench.fold(bench.only(bench.plan()), Accepted())
    bench.write()
    bench.drop("f-a-0", removed=True)
    bench.touch("f-a-0")
    while bench.tracker.is_busy:
        bench.plan(write=False)
    assert bench.states()[0] == "Completed"
    assert bench.tracker.urgency is urgency


@pytest.mark.parametrize("served", ["v1alpha2", "v1beta1"])
def test_pods_from_before_their_group_are_not_waited_for(served: str) -> None:
    """API servers before 1.25, and the local cluster, let scheduling be added; and dependsOn changes a role's group."""
    retried = role(number=3, **RETRIED)
    bench = Bench(retried, limit=replace(limits(), gang_scheduler=GangScheduler.KUBERNETES))
    bench.served = served
    bench.all_pods()
    bench.edit_then_plan(scheduling=GANG)
    assert bench.plan(write=False).actions == []
    assert bench.status.attempt.scheduled_pod_groups == ["f"]
    bench.write()
    end(bench, "f-a-0", code=1)
    assert (minimum(bench), stall(bench)) == (1, None)
    assert bench.states()[0] == "Preparing"


# --- with a queue -------------------------------------------------------------------------------------------------


def queued(*roles: Body) -> QueuedBench:
    """A gang in a queue, up to its admission."""
    bench = QueuedBench(*roles, scheduling=GANG)
    bench.limits = replace(bench.limits, gang_scheduler=GangScheduler.KUBERNETES)
    bench.begin()
    return bench


def test_tasks_that_kueue_has_not_admitted_do_not_count() -> None:
    """They have no Pod before others have ended, for which the gang would wait."""
    bench = queued(role("a", 2))
    (action,) = bench.plan().actions
    bench.created(action)
    bench.edit_then_settle(role("a", 4), role("b", 3))
    assert bench.states() == ["Preparing", "Preparing", "CreationPending", "CreationPending"]
    assert minimum(bench) == 2
    assert sorted(bench.pods) == ["f-a-0", "f-a-1"]


def test_a_pod_that_terminates_on_a_lost_node_keeps_its_place_in_the_admission() -> None:
    bench = queued(role("a", 3, retryPolicy={"maxRetryCount": 5}))
    bench.settle()
    bench.edit_then_settle(role("a", 5, retryPolicy={"maxRetryCount": 5}))
    assert minimum(bench) == 3
    bench.show("f-a-0", deleting=bench.now + 3600)
    bench.settle()
    assert minimum(bench) == 2


# --- Kubernetes 1.36, where the minimum is immutable --------------------------------------------------------------


def immutable(**fields: Any) -> Bench:
    bench = gang(role(number=4, **RETRIED), **fields)
    bench.served = "v1alpha2"
    bench.all_pods()
    return bench


@pytest.mark.parametrize("placed", [True, False])
def test_pods_of_retried_tasks_are_singles_once_the_group_was_placed(placed: bool) -> None:
    bench = immutable()
    assert group(bench)["apiVersion"] == "scheduling.k8s.io/v1alpha2"
    if placed:
        bench.run_all()
    end(bench, "f-a-0", code=1)
    assert bench.task().attempt.id == 1
    assert pod(bench, "f-a-0")["spec"].get("schedulingGroup") == (None if placed else {"podGroupName": "f"})
    assert not placed or (minimum(bench), stall(bench)) == (4, None)


@pytest.mark.parametrize("policy", [{"basic": {}}, {"gang": {"minCount": 1}}])
def test_retried_pods_stay_in_a_group_that_waits_for_no_others(policy: Body) -> None:
    """Its topology counts for them, too."""
    bench = gang(role(number=2, **RETRIED))
    bench.edit(scheduling={"schedulingPolicy": policy, "schedulingConstraints": {"topology": [{"key": "zone"}]}})
    bench.served = "v1alpha2"
    bench.run_all()
    end(bench, "f-a-0", code=1)
    assert bench.task().attempt.id == 1
    assert pod(bench, "f-a-0")["spec"]["schedulingGroup"] == {"podGroupName": "f"}


def test_a_group_that_can_no_longer_be_placed_stalls() -> None:
    bench = gang()
    bench.served = "v1alpha2"
    bench.all_pods()
    end(bench, "f-a-0", code=1)
    assert_stall(bench, GangReason.UNSUPPORTED, "PodGroup f waits for 4 Pods, and only 3 Tasks are still to run")
    bench.run("f-a-1")
    go(bench)
    assert stall(bench) is None


# --- other owners' objects, and earlier ones -------------------------------------------------------------------------


def old(*, deleting: bool = False, controller: str | None = "another-configmap", uid: str = UID) -> Identity:
    return Identity("old", controller, (uid, "0"), deleting)


def test_a_group_of_an_earlier_attempt_is_waited_for() -> None:
    bench = gang(role(number=2))
    creates = creation(bench)
    for _ in range(8):
        bench.fold(creates, Exists(old(deleting=True)))
        bench.wait(60)
    assert stall(bench) == (GangReason.NOT_GONE, "PodGroup f (old) of an earlier attempt still exists")
    assert not bench.pods
    go(bench)
    assert len(bench.pods) == 2
    assert stall(bench) is None


@pytest.mark.parametrize(
    "found", [old(controller=None), old(uid="another-framework"), Identity("x", None, None, False)]
)
def test_a_foreign_group_is_neither_used_nor_changed(found: Identity) -> None:
    bench = gang(role(number=2))
    creates = creation(bench)
    bench.refuse(creates, Exists(found))
    assert_stall(bench, RequestReason.NAMING_CONFLICT)
    assert not bench.pods


def test_a_group_that_was_created_by_a_request_without_an_answer_is_used() -> None:
    bench = gang(role(number=2))
    creates = creation(bench)
    bench.fold(creates, Exists(Identity("landed", "configmap-1", (UID, "0"), False)))
    assert creations(bench.plan().actions) == ["Pod f-a-0", "Pod f-a-1"]


@pytest.mark.parametrize("known", [True, False])
def test_a_group_that_others_delete_before_it_was_placed_can_still_be_placed(known: bool) -> None:
    """A native one stays while Pods refer to it: a Pod that waited for its end would never be created."""
    bench = prepared_gang(role(number=3, **RETRIED))
    bench.show("f", deleting=bench.now)
    if not known:
        bench.tracker.expectations.confirmed.clear()
    end(bench, "f-a-0", code=1)
    assert bench.states() == ["Preparing"] * 3
    end(bench, "f-a-1")
    assert minimum(bench) == 2
    bench.drop("f")
    go(bench)
    assert "deletionTimestamp" not in group(bench)["metadata"]


@pytest.mark.parametrize("result", [Gone(), Outdated("changed"), refused(403), refused(500)])
def test_a_minimum_that_is_not_lowered_is_tried_now_and_then(result: Result) -> None:
    bench = gang(role(number=2))
    bench.run_all()
    tries, end = 0, bench.now + 600
    while bench.now < end:
        made = bench.plan()
        for action in made.actions:
            tries += isinstance(action, Patch)
            bench.fold(action, result if isinstance(action, Patch) else Exists(old()))
        assert tries < 100
        if not made.actions and not bench.tracker.is_busy:
            bench.now += made.requeue_after or 15
    assert tries >= 10


def test_a_group_that_has_lost_its_label_gets_it_again() -> None:
    """Without, it is not in the cache, and its minimum is never lowered."""
    bench = prepared_gang(role(number=4))
    uid = group(bench)["metadata"]["uid"]
    del group(bench)["metadata"]["labels"]
    bench.drop("f")
    (creates,) = bench.plan().actions
    bench.fold(creates, Exists(Identity(uid, "configmap-1", (UID, "0"), False)))
    (patch,) = bench.plan().actions
    bench.patched(patch)
    assert group(bench)["metadata"]["labels"] == {"FC_FRAMEWORK_NAME": "f"}
    assert minimum(bench) == 4
    end(bench, "f-a-0", code=1)
    assert minimum(bench) == 3


def test_a_group_that_stays_when_it_was_deleted_stalls() -> None:
    bench = prepared_gang(role(number=2))
    bench.show("f", deleting=bench.now)
    bench.tracker.expectations.confirmed.clear()
    bench.plan()
    bench.pass_time(121)
    assert_stall(bench, GangReason.NOT_GONE)


def test_a_lower_minimum_that_cannot_follow_stalls() -> None:
    bench = gang()
    bench.served = "v1alpha2"
    bench.all_pods()
    bench.edit(scheduling={"schedulingPolicy": {"gang": {"minCount": 2}}})
    go(bench)
    assert_stall(
        bench,
        GangReason.UNSUPPORTED,
        "PodGroup f waits for 4 Pods, and minCount is 2 by now: this version of Kubernetes cannot lower",
    )


# --- unsupported features --------------------------------------------------------------------------------------------


NOT_SERVED = "the API server does not serve podgroups.scheduling.k8s.io"
FORBIDDEN = "403: may not list podgroups"


@pytest.mark.parametrize(
    ("not_listed", "expected"),
    [
        (NotListed(NOT_SERVED, not_served=True), (GangReason.UNSUPPORTED, f"spec.scheduling: {NOT_SERVED}")),
        (
            NotListed(FORBIDDEN),
            (GangReason.NOT_LISTED, f"Cannot list PodGroups, which spec.scheduling needs: {FORBIDDEN}"),
        ),
        # The first list is awaited without a message.
        (NotListed(), None),
    ],
)
def test_groups_that_are_not_listed_stall_before_the_attempt(
    not_listed: NotListed, expected: tuple[Reason, str] | None
) -> None:
    bench = gang()
    bench.not_listed = not_listed
    for _ in range(3):
        bench.idle()
    assert stall(bench) == expected
    assert expected is None or waits(bench)
    bench.not_listed = None
    go(bench)
    assert len(bench.pods) == 4
    assert stall(bench) is None


def with_pod(body: Body, **spec: Any) -> Body:
    """The role, with fields of the Pod's spec."""
    return {**body, "task": {"pod": {"spec": {"containers": [{"name": "main", "image": "none"}], **spec}}}}


NO_QUEUES = "spec.scheduling.queue: 'q': {} has no queues, only volcano has"
NO_TOPOLOGY = "spec.scheduling.schedulingConstraints.topology: {} has no such constraint"
ONE = "spec.taskRoles[1].task.pod.spec.{}: '{}': must be as in taskRoles[0], '{}': a group of Pods has only one"
IGNORES = "spec.taskRoles[{}].task.pod.spec.schedulerName: '{}': this scheduler ignores PodGroups of {}"
ZONE: Body = {"schedulingConstraints": {"topology": [{"key": "zone"}]}}
LONG = "b" * 62
AFTER_A = {"dependsOn": [{"name": "a", "status": "Ready"}]}


def of_scheduler(name: str, scheduler: str) -> Body:
    """A role with that scheduler."""
    return with_pod(role(name), schedulerName=scheduler)


@pytest.mark.parametrize(
    ("scheduler", "fields", "roles", "text"),
    [
        ("kubernetes", {"queue": "q"}, (), NO_QUEUES.format("kubernetes")),
        ("coscheduling", {"queue": "q"}, (), NO_QUEUES.format("coscheduling")),
        ("volcano", {"disruptionMode": {"all": {}}}, (), "spec.scheduling.disruptionMode: volcano has no such mode"),
        ("coscheduling", ZONE, (), NO_TOPOLOGY.format("coscheduling")),
        ("volcano", ZONE, (), NO_TOPOLOGY.format("volcano")),
        (
            "kubernetes",
            {},
            (with_pod(role("a"), priorityClassName="low"), with_pod(role("b"), priorityClassName="high")),
            ONE.format("priorityClassName", "high", "low"),
        ),
        (
            "kubernetes",
            {},
            (role("a"), of_scheduler("b", "other")),
            ONE.format("schedulerName", "other", "default-scheduler"),
        ),
        ("volcano", {}, (of_scheduler("a", "other"), role("b")), ONE.format("schedulerName", "volcano", "other")),
        ("kubernetes", {}, (of_scheduler("a", "volcano"),), IGNORES.format(0, "volcano", "kubernetes")),
        ("auto", {}, (role("a"), of_scheduler("b", "volcano") | AFTER_A), IGNORES.format(1, "volcano", "kubernetes")),
        ("volcano", {}, (of_scheduler("a", "default-scheduler"),), IGNORES.format(0, "default-scheduler", "volcano")),
        (
            "coscheduling",
            {},
            (role("a"), role(LONG) | AFTER_A),
            f"spec.taskRoles[1].name: '{LONG}': the PodGroup f-{LONG} would have 64 characters, where "
            "coscheduling allows 63",
        ),
    ],
)
def test_a_feature_that_the_scheduler_lacks_stalls(
    scheduler: str, fields: Any, roles: tuple[Body, ...], text: str
) -> None:
    bench = gang(*roles, scheduler=scheduler, **fields)
    for _ in range(3):
        bench.idle()
    assert stall(bench) == (GangReason.UNSUPPORTED, text)
    bench.edit(scheduling=None)
    bench.all_pods()
    assert stall(bench) is None
    assert bench.pods


# --- a field that the API server drops ----------------------------------------------------------------------------


def first_pod(bench: Bench) -> Create:
    """Up to the creation of the first Pod."""
    bench.created(creation(bench))
    pods = [action for action in bench.plan().actions if isinstance(action, Create)]
    assert [bool(action.field) for action in pods] == [True, *[False] * (len(pods) - 1)]
    for other in pods[1:]:
        bench.fold(other, NotAttempted())
    return pods[0]


def test_a_dropped_field_of_pods_stalls_and_ends_nothing() -> None:
    bench = gang()
    first = first_pod(bench)
    bench.bodies["f-a-0"] = orjson.loads(first.body)
    bench.bodies["f-a-0"]["metadata"] |= {"uid": "pod-9", "resourceVersion": "1"}
    bench.fold(first, Created("pod-9", kept=False))
    bench.show("f-a-0")
    go(bench)
    assert_stall(
        bench,
        GangReason.UNSUPPORTED,
        "The API server dropped spec.schedulingGroup of Pod f-a-0: its feature GenericWorkload is off",
    )
    assert len(bench.pods) == 4
    for index in range(4):
        bench.run(f"f-a-{index}")
        bench.end(f"f-a-{index}")
    go(bench)
    assert bench.status.state.value == "Completed"


@pytest.mark.parametrize("result", [refused(500, "the webhook is down"), NotAttempted()])
def test_another_pod_shows_the_field_if_the_first_is_not_created(result: Result) -> None:
    bench = gang(role(number=2))
    bench.fold(first_pod(bench), result)
    bench.now += 60
    assert any(isinstance(action, Create) and action.field for action in bench.plan().actions)


def test_the_answer_is_looked_at_for_the_field_and_kept_short_otherwise() -> None:
    path = ("spec", "schedulingGroup", "podGroupName")
    bench = gang()
    first = first_pod(bench)
    assert first.field == path
    for spec, kept in (
        ({}, False),
        ({"schedulingGroup": None}, False),
        ({"schedulingGroup": {"podGroupName": "f"}}, True),
    ):
        exchange = first.exchange()
        request = next(exchange)
        assert isinstance(request, Post)
        assert request.whole
        body = orjson.dumps({"metadata": {"uid": "u"}, "spec": spec})
        with pytest.raises(StopIteration) as end:
            exchange.send(Answered(body))
        assert end.value.value == Created("u", kept=kept)


@pytest.mark.parametrize("served", ["v1alpha2", "v1beta1"])
@pytest.mark.parametrize(
    ("field", "value", "gate"),
    [
        ("schedulingConstraints", {"topology": [{"key": "zone"}]}, "TopologyAwareWorkloadScheduling"),
        ("disruptionMode", {"all": {}}, "WorkloadAwarePreemption"),
    ],
)
def test_a_dropped_field_of_the_group_stalls_and_ends_nothing(served: str, field: str, value: Body, gate: str) -> None:
    bench = gang(role(number=2))
    bench.edit(scheduling={**GANG, field: value})
    bench.served = served
    creates = creation(bench)
    bench.created(creates, show=False)
    dropped = group(bench)["spec"].pop(field)
    bench.show("f")
    bench.all_pods()
    text = (
        f"The API server dropped {field} of PodGroup f: its feature {gate} is off. "
        "The Pods of the group are placed without"
    )
    assert stall(bench) == (GangReason.UNSUPPORTED, text)
    assert len(bench.pods) == 2
    bench.run_all()
    go(bench)
    assert stall(bench) == (GangReason.UNSUPPORTED, text)
    group(bench)["spec"][field] = dropped
    bench.show_then_plan("f")
    assert stall(bench) is None


# --- conditions ------------------------------------------------------------------------------------------------


def unscheduled(bench: Bench, message: str) -> None:
    bench.show_then_plan(
        "f", conditions=[{"type": "PodGroupInitiallyScheduled", "status": "False", "message": message}]
    )


def test_the_scheduler_says_why_nothing_runs() -> None:
    bench = prepared_gang()
    unscheduled(bench, "0/3 nodes are available: 3 Insufficient cpu.")
    assert waits(bench) == "PodGroup f is not placed: 0/3 nodes are available: 3 Insufficient cpu."
    bench.run("f-a-0")
    go(bench)
    assert waits(bench) == ""


def test_a_message_that_changes_all_the_time_is_shown_once_a_minute() -> None:
    bench = prepared_gang()
    writes = []
    for number in range(30):
        unscheduled(bench, f"attempt {number}")
        writes.append(bench.writes)
        bench.now += 10
    assert bench.writes <= writes[0] + 30 * 10 / TELL_SEC + 1
    made = bench.plan()
    bench.pass_time(made.requeue_after or TELL_SEC)
    assert waits(bench) == "PodGroup f is not placed: attempt 29"


# --- other schedulers ---------------------------------------------------------------------------------------------


def test_volcano() -> None:
    containers = [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "1500m", "memory": "1Gi"}}}]
    workers = with_pod(role("a", 3), containers=containers, priorityClassName="high")
    other = [{"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": 1}}}]
    bench = prepared_gang(
        workers, with_pod(role("b", 2), containers=other), scheduler="volcano", queue="team-a", minimum=4
    )
    assert group(bench)["apiVersion"] == "scheduling.volcano.sh/v1beta1"
    assert group(bench)["spec"] == {
        "minMember": 4,
        "queue": "team-a",
        "priorityClassName": "high",
        "minResources": {"cpu": "4500m", "memory": "3Gi", "nvidia.com/gpu": "1"},
    }
    body = pod(bench, "f-b-0")
    assert body["spec"]["schedulerName"] == "volcano"
    annotations = body["metadata"]["annotations"]
    assert annotations["scheduling.k8s.io/group-name"] == annotations["scheduling.volcano.sh/group-name"] == "f"
    assert "schedulingGroup" not in body["spec"]
    bench.end("f-a-0", code=1)
    end(bench, "f-a-1", code=1)
    assert group(bench)["spec"]["minMember"] == 3
    assert group(bench)["spec"]["minResources"] == {"cpu": "4500m", "memory": "3Gi"}


@pytest.mark.parametrize("phase", ["Running", "Unknown", "Completed"])
def test_the_status_of_volcano_is_shown(phase: str) -> None:
    bench = prepared_gang(scheduler="volcano")
    message = "3/4 tasks in gang unschedulable"
    conditions = [{"type": "Unschedulable", "status": "True", "reason": "NotEnoughResources", "message": message}]
    bench.show_then_plan("f", phase="Inqueue", conditions=conditions)
    assert waits(bench) == f"PodGroup f is not placed: {message}"
    bench.show("f", phase=phase)
    go(bench)
    assert group(bench)["spec"]["minMember"] == 1
    assert waits(bench) == ""


def test_coscheduling() -> None:
    bench = gang(scheduler="coscheduling")
    bench.limits = replace(bench.limits, gang_scheduler_name="mine")
    bench.all_pods()
    assert (group(bench)["apiVersion"], group(bench)["spec"]) == ("scheduling.x-k8s.io/v1alpha1", {"minMember": 4})
    body = pod(bench, "f-a-0")
    assert body["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] == "f"
    assert body["spec"]["schedulerName"] == "mine"
    bench.show("f", phase="Scheduled")
    go(bench)
    assert group(bench)["spec"] == {"minMember": 1}


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (("volcano", "volcano"), Kind.VOLCANO_PODGROUP),
        (("default-scheduler", "default-scheduler"), Kind.PODGROUP),
        ((None, None), Kind.PODGROUP),
    ],
)
def test_the_templates_choose_the_scheduler(names: tuple[str | None, str | None], kind: Kind) -> None:
    roles = [with_pod(role(name), schedulerName=scheduler) for name, scheduler in zip("ab", names, strict=True)]
    bench = prepared_gang(*roles, scheduler="auto")
    assert (kind, "f") in bench.groups
    assert pod(bench, "f-a-0")["spec"]["schedulerName"] == names[0]


# --- bodies -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "mode", "stored"),
    [
        ("v1beta1", {"all": {}}, {"all": {}}),
        ("v1alpha3", {"single": {}}, {"single": {}}),
        ("v1alpha2", {"all": {}}, "PodGroup"),
        ("v1alpha2", {"single": {}}, "Pod"),
    ],
)
def test_the_words_of_each_version(version: str, mode: Body, stored: Any) -> None:
    topology = {"topology": [{"key": "zone"}]}
    bench = gang(disruptionMode=mode, schedulingConstraints=topology)
    bench.served = version
    bench.all_pods()
    assert group(bench)["apiVersion"] == f"scheduling.k8s.io/{version}"
    assert group(bench)["spec"] == {
        "schedulingPolicy": {"gang": {"minCount": 4}},
        "schedulingConstraints": topology,
        "disruptionMode": stored,
    }


@pytest.mark.parametrize(
    ("scheduler", "spec"), [("kubernetes", {"schedulingPolicy": {"basic": {}}}), ("volcano", {"minMember": 1})]
)
def test_pods_of_a_basic_group_are_placed_one_by_one(scheduler: str, spec: Body) -> None:
    bench = gang(scheduler=scheduler)
    bench.spec["scheduling"] = {"schedulingPolicy": {"basic": {}}}
    bench.all_pods()
    assert group(bench)["spec"] == spec
    bench.run("f-a-0")
    go(bench)
    assert group(bench)["spec"] == spec


def test_all_pods_of_a_group_have_the_marks_of_their_task() -> None:
    for scheduler in ("kubernetes", "volcano", "coscheduling"):
        bench = prepared_gang(scheduler=scheduler)
        assert set(POD_IDENTITY) <= pod(bench, "f-a-0")["metadata"]["annotations"].keys()


def test_results_of_another_attempt_change_nothing() -> None:
    bench = prepared_gang()
    target = Target(Kind.PODGROUP, "f", attempt_id=7)
    for result in (Patched("9"), INVALID, Remains("")):
        bench.fold(Patch(target, "u", b"{}"), result)
    assert not any(group.fixed for group in bench.tracker.part(GangState).groups.values())
    assert isinstance(INVALID, Refused)
