"""The volume claims of Tasks: creation, retention, adoption, deletion, and claims of other owners."""

from collections.abc import Generator
from typing import Any

import orjson
import pytest

from frameworkcontroller.api.objects import Identity
from frameworkcontroller.api.status import State
from frameworkcontroller.machine.kernel.actions import Action, Create, Delete, Outcome, carry_out, needs_live_status
from frameworkcontroller.machine.kernel.batch import Batch
from frameworkcontroller.machine.kernel.exchanges import (
    Accepted,
    Created,
    Exists,
    Gone,
    NotAttempted,
    Outdated,
    Remains,
    Result,
)
from frameworkcontroller.machine.kernel.holds import Spared, Stall
from frameworkcontroller.machine.kernel.model import Plan
from frameworkcontroller.machine.kernel.reasons import RequestReason
from frameworkcontroller.machine.kernel.requests import (
    Answer,
    Answered,
    Get,
    Kind,
    MergePatch,
    Refusal,
    Refused,
    Remove,
    Target,
    Unanswered,
)
from frameworkcontroller.machine.parts.claims.claimagenda import ClaimReason
from frameworkcontroller.machine.parts.claims.volumeclaims import MarkClaim
from tests.support.bench import UID, Bench, begun, foreign, refused, role
from tests.support.world import merged

CLAIM = "data-f-a-0"
Body = dict[str, Any]
DELETE = {"whenDeleted": "Delete", "whenScaled": "Delete"}


def with_claims(number: int = 1, *claims: str, policy: Body | None = None, **task: Any) -> Body:
    """A role whose Tasks have claims."""
    templates = [{"metadata": {"name": name}, "spec": {"storageClassName": "s"}} for name in claims or ("data",)]
    retention = {} if policy is None else {"persistentVolumeClaimRetentionPolicy": policy}
    return {**role(number=number, **task), "volumeClaimTemplates": templates, **retention}


def started(*roles: Body, **spec: Any) -> Bench:
    """A Framework whose ConfigMap exists, and whose claims are to be created."""
    return begun(*(roles or (with_claims(),)), **spec)


def running(*roles: Body, **spec: Any) -> Bench:
    """A Framework whose Pods are created."""
    bench = started(*roles, **spec)
    bench.all_pods()
    return bench


def created_by(made: Plan) -> list[str]:
    """The names of the objects that the plan creates."""
    return [action.target.name for action in made.actions if isinstance(action, Create)]


def changes(made: Plan) -> list[Action]:
    """The plan's changes of claims that exist."""
    return [action for action in made.actions if isinstance(action, MarkClaim | Delete)]


def marked(bench: Bench, change: Action, *, show: bool = True) -> None:
    """The claim is changed as wanted."""
    assert isinstance(change, MarkClaim)
    metadata = bench.bodies[change.target.name]["metadata"]
    metadata["annotations"] = {**metadata.get("annotations", {}), **dict(change.annotations)}
    metadata["ownerReferences"] = [] if change.owner is None else [orjson.loads(change.owner)]
    bench.fold(change, Created(metadata["uid"]))
    if show:
        bench.show(change.target.name)


def exist(bench: Bench, name: str = CLAIM, **annotations: str) -> None:
    """The cache has a claim of an earlier namesake. ``annotations`` replace its own."""
    claim_role, index = name.split("-")[-2:]
    marks = {
        "FC_FRAMEWORK_NAMESPACE": "ns",
        "FC_FRAMEWORK_NAME": "f",
        "FC_TASKROLE_NAME": claim_role,
        "FC_TASK_INDEX": index,
        "FC_FRAMEWORK_UID": "earlier",
        "FC_VOLUME_CLAIM_WHEN_SCALED": "Retain",
        **annotations,
    }
    metadata = {"name": name, "namespace": "ns", "uid": "old", "resourceVersion": "1", "annotations": marks}
    bench.bodies[name] = {"kind": Kind.VOLUME_CLAIM, "metadata": metadata}
    bench.show(name)


def mark_of(bench: Bench, *, policy: Body | None = None, name: str = CLAIM) -> MarkClaim:
    """The change of a claim that a plan asks for."""
    if policy is not None:
        bench.edit(with_claims(policy=policy))
    (change,) = changes(bench.plan())
    assert isinstance(change, MarkClaim)
    assert change.target.name == name
    return change


# --- before the Pod -----------------------------------------------------------------------------------------------


def test_the_claims_of_a_task_come_before_its_pod() -> None:
    bench = started(with_claims(2, "data", "log"))
    made = bench.plan()
    assert created_by(made) == ["data-f-a-0", "log-f-a-0", "data-f-a-1", "log-f-a-1"]
    first, second, *_ = made.actions
    bench.created(first, show=False)
    assert "f-a-0" not in created_by(bench.plan())
    bench.created(second, show=False)
    assert "f-a-0" in created_by(bench.plan())


@pytest.mark.parametrize("policy", [None, {"whenDeleted": "Delete"}, {"whenScaled": "Delete"}])
def test_a_claim_names_its_task(policy: Body | None) -> None:
    bench = started(with_claims(policy=policy))
    action = bench.expect(Create)
    body = orjson.loads(action.body)
    assert body["metadata"]["annotations"] == {
        "FC_FRAMEWORK_NAMESPACE": "ns",
        "FC_FRAMEWORK_NAME": "f",
        "FC_TASKROLE_NAME": "a",
        "FC_TASK_INDEX": "0",
        "FC_FRAMEWORK_UID": UID,
        "FC_VOLUME_CLAIM_WHEN_SCALED": (policy or {}).get("whenScaled", "Retain"),
    }
    assert body["metadata"]["labels"] == {"FC_FRAMEWORK_NAME": "f", "FC_TASKROLE_NAME": "a", "FC_TASK_INDEX": "0"}
    owners = body["metadata"].get("ownerReferences", [])
    assert [(one["uid"], one["controller"]) for one in owners] == [(UID, True)] * (policy == {"whenDeleted": "Delete"})
    assert body["spec"] == {"storageClassName": "s"}


def test_no_claim_is_created_before_its_role_may_start() -> None:
    bench = started(role("b"), {**with_claims(), "dependsOn": [{"name": "b", "status": "Complete"}]})
    assert created_by(bench.plan()) == ["f-b-0"]


def test_a_claim_that_is_gone_while_its_pod_is_pending_is_created_again() -> None:
    bench = running()
    bench.drop(CLAIM)
    action = bench.only(bench.plan())
    assert action.target == Target(Kind.VOLUME_CLAIM, CLAIM, role="a", index=0)
    bench.created(action)
    bench.run()
    bench.drop(CLAIM)
    bench.idle()


def test_a_claim_that_is_being_deleted_is_waited_for() -> None:
    bench = started()
    exist(bench)
    bench.show(CLAIM, deleting=bench.now)
    made = bench.plan()
    text = f"PersistentVolumeClaim {CLAIM} is being deleted, to be created again"
    assert bench.tracker.holds.waits()[ClaimReason.PENDING].message == text
    assert bench.status.conditions[0].message.endswith(text)
    assert made.actions == bench.wait(130).actions == []
    assert bench.stall()[0] == "VolumeClaimNotGone"
    bench.drop(CLAIM)
    bench.created(bench.only(bench.plan()))
    assert created_by(bench.plan()) == ["f-a-0"]
    bench.all_pods()
    assert bench.stall() == ("", "")
    assert not bench.tracker.holds.waits()


# --- claims of other owners ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"annotations": {"FC_TASKROLE_NAME": "b"}}, ""),
        ({"annotations": {"FC_TASK_INDEX": "1"}}, ""),
        ({"annotations": {"FC_FRAMEWORK_NAME": "g"}}, ""),
        ({"annotations": {"FC_FRAMEWORK_NAMESPACE": "other"}}, ""),
        ({"annotations": None}, "without the annotations of Task a[0]"),
        ({"ownerReferences": [{"kind": "StatefulSet", "name": "x", "uid": "y", "controller": True}]}, ""),
    ],
)
def test_a_claim_of_another_owner_is_neither_used_nor_changed(change: Body, why: str) -> None:
    bench = started()
    exist(bench)
    bench.bodies[CLAIM]["metadata"] = merged(bench.bodies[CLAIM]["metadata"], change)
    bench.show(CLAIM)
    action = bench.expect(Create)
    for _ in range(3):
        bench.fold(action, Exists(foreign(CLAIM)))
        bench.show(CLAIM)
        bench.idle()
        assert bench.wait(60).actions == [action]
    reason, message = bench.stall()
    assert reason == "NamingConflict"
    assert message.startswith(f"PersistentVolumeClaim {CLAIM} (foreign) already exists, {why}")
    bench.drop(CLAIM)
    bench.created(action)
    bench.all_pods()
    assert bench.stall() == ("", "")
    assert "f-a-0" in bench.pods


# --- retained claims ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [{}, DELETE])
def test_a_retained_claim_is_adopted_before_the_pod_is_created(policy: Body) -> None:
    bench = started(with_claims(policy=policy))
    exist(bench)
    change = bench.expect(MarkClaim)
    assert needs_live_status(change)
    assert dict(change.annotations)["FC_FRAMEWORK_UID"] == UID
    assert (change.owner is not None) is bool(policy)
    bench.idle()
    marked(bench, change, show=False)
    assert created_by(bench.plan()) == ["f-a-0"]


def test_a_retained_claim_without_the_label_is_found_and_adopted() -> None:
    bench = started()
    action = bench.only(bench.plan())
    retained = Identity("old", None, ("ns", "f", "a", "0"), deleting=False)
    bench.fold(action, Exists(retained))
    (change,) = changes(bench.plan())
    assert isinstance(change, MarkClaim)
    assert ("FC_FRAMEWORK_NAME", "f") in change.labels
    bench.fold(change, Created("old"))
    assert created_by(bench.wait(5)) == ["f-a-0"]


def test_a_claim_that_another_task_adopted_is_not_used() -> None:
    bench = started()
    exist(bench)
    bench.fold(mark_of(bench), Exists(foreign(CLAIM)))
    exist(bench, FC_TASK_INDEX="7")
    assert created_by(bench.plan()) == [CLAIM]


def test_retained_claims_of_other_tasks_are_ignored() -> None:
    bench = running()
    exist(bench, "data-f-a-1")
    exist(bench, "data-f-b-0")
    exist(bench, "other-f-a-0")
    assert changes(bench.plan()) == []


# --- the exchange that changes a claim -----------------------------------------------------------------------------


def exchanged(
    change: Action, metadata: Body, answer: Answer | None = None, framework: str = UID
) -> tuple[MergePatch | None, Result]:
    """The patch that the action sends for a claim with such metadata, and its result."""
    exchange: Generator[Any, Any, Result] = carry_out(change)
    assert next(exchange) == Get(Kind.VOLUME_CLAIM, CLAIM)
    patch = None
    try:
        request = exchange.send(Answered(orjson.dumps({"metadata": metadata})))
        if request == Get(Kind.FRAMEWORK, "f"):
            found = Answered(orjson.dumps({"metadata": {"uid": framework}}))
            request = exchange.send(found if framework else Refused(404, "", b"{}", kind=Refusal.OBJECT_NOT_FOUND))
        patch = request
        request = exchange.send(answer or Answered(b'{"metadata": {"uid": "old", "resourceVersion": "8"}}'))
        assert request == Get(Kind.VOLUME_CLAIM, CLAIM)
        exchange.send(Answered(orjson.dumps({"metadata": metadata})))
    except StopIteration as end:
        assert patch is None or isinstance(patch, MergePatch)
        return patch, end.value
    raise AssertionError("it has no end")


def retained(bench: Bench, **fields: Any) -> Body:
    exist(bench)
    return {**bench.bodies[CLAIM]["metadata"], "resourceVersion": "7", **fields}


def test_a_patch_has_both_preconditions_and_keeps_other_owners() -> None:
    bench = started(with_claims(policy=DELETE))
    other = {"kind": "Backup", "name": "b", "uid": "backup"}
    metadata = retained(bench, ownerReferences=[other])
    patch, result = exchanged(mark_of(bench), metadata)
    assert result == Created("old")
    assert patch is not None
    change = orjson.loads(patch.body)["metadata"]
    assert (change["uid"], change["resourceVersion"]) == ("old", "7")
    assert [one["uid"] for one in change["ownerReferences"]] == ["backup", UID]
    assert change["annotations"] == {"FC_FRAMEWORK_UID": UID, "FC_VOLUME_CLAIM_WHEN_SCALED": "Delete"}


@pytest.mark.parametrize("framework", ["next", ""])
def test_a_claim_is_not_adopted_for_a_framework_that_is_gone(framework: str) -> None:
    """The garbage collector would delete it, with an owner that is gone. The next one of the name may have it."""
    bench = started(with_claims(policy=DELETE))
    change, metadata = mark_of_retained(bench)
    if framework:
        metadata["annotations"]["FC_FRAMEWORK_UID"] = framework
    patch, result = exchanged(change, metadata, framework=framework)
    assert patch is None
    assert framework or isinstance(result, Remains)
    assert not isinstance(result, Created)


def test_a_claim_without_a_difference_is_not_patched() -> None:
    bench = started()
    metadata = retained(bench)
    change = mark_of(bench)
    same = {**metadata, "annotations": dict(change.annotations), "labels": dict(change.labels)}
    assert exchanged(change, same) == (None, Created("old"))


@pytest.mark.parametrize(
    "fields",
    [
        {"annotations": {}},
        {"deletionTimestamp": "2026-01-01T00:00:00Z"},
        {"ownerReferences": [{"uid": "another", "controller": True}]},
    ],
)
def test_a_claim_that_a_live_read_shows_with_another_owner_is_not_patched(fields: Body) -> None:
    bench = started()
    change, metadata = mark_of_retained(bench)
    patch, result = exchanged(change, {**metadata, **fields})
    assert patch is None
    assert isinstance(result, Exists)


def mark_of_retained(bench: Bench) -> tuple[MarkClaim, Body]:
    metadata = retained(bench)
    return mark_of(bench), metadata


def test_a_claim_that_changed_meanwhile_is_looked_at_again() -> None:
    bench = started()
    change, metadata = mark_of_retained(bench)
    conflict = Refused(409, "changed", b"{}", reason="Conflict", kind=Refusal.CONFLICT)
    _, result = exchanged(change, metadata, conflict)
    assert isinstance(result, Outdated)
    bench.fold(change, result)
    assert bench.wait(5).actions == [change]


# --- changes of the policy ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["running", "completed", "suspended", "stopped"])
def test_a_changed_policy_counts_in_any_state(state: str) -> None:
    bench = running()
    bench.run()
    if state == "completed":
        bench.end()
        assert bench.status.state is State.COMPLETED
    elif state == "suspended":
        bench.edit_then_settle(suspend=True)
    elif state == "stopped":
        bench.edit_then_settle(executionType="Stop")
    bench.edit(with_claims(policy=DELETE))
    made = bench.plan()
    while not changes(made):
        made = bench.plan()
    (change,) = changes(made)
    assert isinstance(change, MarkClaim)
    assert change.owner is not None
    assert ("FC_VOLUME_CLAIM_WHEN_SCALED", "Delete") in change.annotations
    marked(bench, change)
    assert changes(bench.plan()) == []
    back = mark_of(bench, policy={})
    assert back.owner is None


def test_a_change_that_is_refused_stalls_the_framework_and_holds_up_the_others() -> None:
    bench = running(with_claims(3))
    bench.edit(with_claims(3, policy=DELETE))
    due = changes(bench.plan())
    first = due[0]
    for _ in range(3):
        first, *rest = due
        bench.fold(first, refused(403, "may not patch"))
        for change in rest:
            bench.fold(change, NotAttempted())
        assert changes(bench.plan()) == []
        due = changes(bench.wait(60))
        assert len(due) == 3
    assert bench.stall() == (
        "VolumeClaimNotAnswered",
        f"Cannot change PersistentVolumeClaim {first.target.name}: 403: may not patch",
    )
    for change in due:
        marked(bench, change)
    assert changes(bench.plan()) == []
    assert bench.stall() == ("", "")
    assert {one.identity.controller_uid for one in bench.claims.values()} == {UID}


# --- scale-down ---------------------------------------------------------------------------------------------------


def scaled_down(policy: Body | None, *roles: Body) -> Bench:
    """A Framework whose Task 1 leaves by a scale-down; its deletion is persisted, and its Pod gone."""
    bench = running(*roles, with_claims(2, policy=policy))
    bench.run()
    bench.run("f-a-1")
    bench.edit(*(roles or (with_claims(1, policy=policy),)))
    return bench


def deletion_of(bench: Bench) -> Action:
    """The Pod of Task 1 is gone; the deletion of its claim."""
    bench.plan()
    bench.hide("f-a-1")
    made = bench.plan()
    while not changes(made):
        made = bench.plan()
    (deletion,) = changes(made)
    return deletion


def settle(bench: Bench) -> list[str]:
    """All that is due happens. The names of the deleted claims."""
    deleted = []
    for _ in range(30):
        made = bench.plan()
        for action in made.actions:
            if isinstance(action, Delete):
                if action.target.kind is Kind.VOLUME_CLAIM:
                    assert needs_live_status(action)
                    deleted.append(action.target.name)
                    pod = action.target.name.partition("-")[2]
                    assert pod not in bench.pods
                bench.fold(action, Gone() if action.confirm else Accepted())
                bench.drop(action.target.name, removed=True)
            elif isinstance(action, Create):
                bench.created(action)
            elif isinstance(action, MarkClaim):
                marked(bench, action)
            else:
                bench.fold(action, Gone())
    return deleted


@pytest.mark.parametrize(
    ("policy", "deleted"), [(None, []), ({"whenDeleted": "Delete"}, []), ({"whenScaled": "Delete"}, ["data-f-a-1"])]
)
def test_the_claim_of_a_task_that_left_goes_as_the_policy_says(policy: Body | None, deleted: list[str]) -> None:
    bench = scaled_down(policy)
    assert settle(bench) == deleted
    assert ("data-f-a-1" in bench.claims) is not bool(deleted)
    assert CLAIM in bench.claims


def test_claims_of_a_removed_role_go_by_the_policy_that_it_had() -> None:
    bench = scaled_down({"whenScaled": "Delete"}, role("b"))
    assert sorted(settle(bench)) == [CLAIM, "data-f-a-1"]


def test_a_claim_is_deleted_only_when_the_end_of_its_task_is_persisted() -> None:
    bench = scaled_down({"whenScaled": "Delete"})
    bench.plan()
    bench.hide("f-a-1")
    for _ in range(10):
        made = bench.plan(write=False)
        assert changes(made) == []
    assert bench.tracker.task(("a", 1)) is not None
    while bench.tracker.task(("a", 1)) is not None:
        assert changes(bench.plan()) == []
    assert [action.target.name for action in changes(bench.plan())] == ["data-f-a-1"]


@pytest.mark.parametrize(("number", "policy"), [(2, {"whenScaled": "Delete"}), (1, {})])
def test_a_claim_whose_task_comes_back_or_whose_policy_retains_it_is_not_deleted(number: int, policy: Body) -> None:
    bench = scaled_down({"whenScaled": "Delete"})
    if number == 2:
        bench.plan()
    bench.edit(with_claims(number, policy=policy))
    assert settle(bench) == []
    assert ("f-a-1" in bench.pods) is (number == 2)
    assert bench.claims["data-f-a-1"].when_scaled == policy.get("whenScaled", "Retain")


def test_a_retained_claim_is_not_deleted_by_a_later_policy() -> None:
    bench = scaled_down({"whenDeleted": "Delete"})
    settle(bench)
    bench.edit(with_claims(1, policy=DELETE))
    assert settle(bench) == []
    bench.edit(with_claims(1, policy={}))
    settle(bench)
    assert bench.claims["data-f-a-1"].identity.controller_uid is None
    bench.edit(with_claims(1, policy=DELETE))
    assert settle(bench) == []
    assert bench.claims["data-f-a-1"].identity.controller_uid is None


def test_a_claim_that_has_changed_since_the_cache_saw_it_is_not_deleted() -> None:
    """Another controller, or one that the cache has not caught up with, may have adopted it, or had it retained."""
    bench = scaled_down({"whenScaled": "Delete"})
    bench.bodies["data-f-a-1"]["metadata"]["resourceVersion"] = "7"
    bench.show("data-f-a-1")
    deletion = deletion_of(bench)
    exchange = carry_out(deletion)
    uid = bench.claims["data-f-a-1"].uid
    assert next(exchange) == Remove(Kind.VOLUME_CLAIM, "data-f-a-1", uid, False, None, "7")
    exchange.send(Refused(409, "changed", b"{}", reason="Conflict", kind=Refusal.CONFLICT))
    with pytest.raises(StopIteration) as end:
        exchange.send(Answered(orjson.dumps({"metadata": {"uid": uid}})))
    bench.fold(deletion, end.value.value)
    bench.bodies["data-f-a-1"]["metadata"]["annotations"]["FC_VOLUME_CLAIM_WHEN_SCALED"] = "Retain"
    bench.show("data-f-a-1")
    assert bench.wait(60).actions == []


def test_claims_of_an_earlier_framework_are_not_deleted() -> None:
    bench = scaled_down({"whenScaled": "Delete"})
    exist(bench, "data-f-a-5", FC_VOLUME_CLAIM_WHEN_SCALED="Delete")
    assert settle(bench) == ["data-f-a-1"]


@pytest.mark.parametrize("result", [NotAttempted(), Unanswered("reset"), refused(500)])
def test_a_deletion_that_was_not_carried_out_is_repeated(result: Result) -> None:
    bench = scaled_down({"whenScaled": "Delete"})
    deletion = deletion_of(bench)
    bench.fold(deletion, result)
    assert changes(bench.wait(20)) == [deletion]


def test_a_framework_that_is_deleted_touches_no_claim() -> None:
    bench = running(with_claims(2, policy=DELETE))
    bench.deleting = True
    bench.edit(with_claims(1, policy={}))
    exist(bench, "data-f-a-1")
    assert not any(action.target.kind is Kind.VOLUME_CLAIM for action in bench.plan().actions)


def test_a_policy_that_retains_counts_for_a_role_that_is_removed_before_its_claims_are_marked() -> None:
    policy = {"whenScaled": "Delete"}
    bench = running(role("b"), with_claims(2, policy=policy))
    bench.edit(role("b"), with_claims(2, policy={}))
    for change in changes(bench.plan()):
        bench.fold(change, refused(500))
    bench.edit(role("b"))
    assert settle(bench) == []
    assert {one.when_scaled for one in bench.claims.values()} == {"Retain"}


# --- failures -----------------------------------------------------------------------------------------------------


def test_a_refused_claim_stops_the_batch_and_a_foreign_one_does_not() -> None:
    bench = started(with_claims(3))
    first, second, third = bench.plan().actions
    for result, stops in ((refused(403), True), (Exists(foreign(CLAIM)), False)):
        batch = Batch()
        batch.add([first, second, third])
        assert batch.start() == first
        batch.end(first, result)
        assert batch.stopped is stops
    bench.fold(first, refused(403))
    bench.idle()


@pytest.mark.parametrize("change", [True, False])
def test_a_success_with_a_claim_does_not_end_the_back_off_of_its_task(change: bool) -> None:
    """It would send the refused creations of the Pod again at once, whenever another client touches the claim."""
    bench = running() if change else started()
    if change:
        bench.edit(with_claims(policy=DELETE))
    (action,) = bench.plan().actions
    holds, key = bench.tracker.holds, ("a", 0)
    for _ in range(3):
        bench.now = max(bench.now, holds.until(key))
        holds.hold(key, bench.env, "the Pod of the last TaskAttempt was refused")
    holds.stalls[key] = Stall(RequestReason.NAMING_CONFLICT, "Pod f-a-0 exists")
    holds.spare(key, Spared("old", bench.now + 30, "its Node is reachable"))
    until = holds.until(key)
    bench.fold(action, Created("claim-9"))
    assert holds.until(key) == until
    assert holds.hold(key, bench.env, "again") == 3
    assert holds.stalls[key].message == "Pod f-a-0 exists"
    assert holds.spared(key, "old") is not None


def test_a_created_claim_ends_the_stall_that_it_caused() -> None:
    bench = running()
    bench.drop(CLAIM)
    action = bench.only(bench.plan())
    bench.refuse(action, Exists(foreign(CLAIM)))
    bench.plan()
    assert bench.stall()[0] == "NamingConflict"
    bench.created(action)
    bench.plan()
    assert bench.stall() == ("", "")
    assert not bench.tracker.holds.has_failed(("a", 0))


def test_a_claim_that_others_delete_again_and_again_is_created_at_growing_intervals() -> None:
    bench = started()
    end, created = bench.now + 60, 0
    while bench.now < end:
        for action in bench.wait(end - bench.now).actions:
            if action.target.name == CLAIM:
                bench.created(action)
                bench.drop(CLAIM)
                created += 1
                assert created < 20
            else:
                bench.fold(action, refused(503))
        if created == 3:
            bench.plan()
            text = bench.tracker.holds.waits()[ClaimReason.PENDING].message
            assert text == f"PersistentVolumeClaim {CLAIM} was deleted again: it is created after a pause"
            assert bench.status.conditions[0].message.endswith(text)
    assert created >= 4


def test_a_claim_that_others_change_back_again_and_again_is_changed_at_growing_intervals() -> None:
    bench = running()
    bench.run()
    bench.edit(with_claims(policy={"whenScaled": "Delete"}))
    end, marks = bench.now + 60, 0
    while bench.now < end:
        for change in bench.wait(end - bench.now).actions:
            marked(bench, change)
            bench.bodies[CLAIM]["metadata"]["annotations"]["FC_VOLUME_CLAIM_WHEN_SCALED"] = "Retain"
            bench.show(CLAIM)
            marks += 1
            assert marks < 20
    assert marks >= 4


# --- the cost -----------------------------------------------------------------------------------------------------


def test_an_event_of_one_task_looks_at_its_claims_only() -> None:
    number = 40
    bench = running(with_claims(number, "data", "log"))
    for index in range(number):
        bench.run(f"f-a-{index}")
    bench.looks = 0
    bench.show("f-a-7", podIP="10.0.0.9")
    bench.show_then_plan("data-f-a-9")
    assert bench.looks <= 4
    bench.looks = 0
    bench.edit_then_plan(with_claims(number - 1, "data", "log", policy={"whenScaled": "Delete"}))
    bench.hide(f"f-a-{number - 1}")
    settle(bench)
    # Once for the changed spec, and for each change.
    assert bench.looks <= 6 * 2 * number


def test_many_tasks_leave_at_the_cost_of_their_changes() -> None:
    number, policy = 30, {"whenScaled": "Delete"}
    bench = running(with_claims(number, policy=policy))
    for index in range(number):
        bench.run(f"f-a-{index}")
    bench.edit_then_plan(with_claims(1, policy=policy))
    bench.looks = 0
    for index in range(1, number):
        bench.drop(f"f-a-{index}", removed=True)
        for _ in range(3):
            for action in bench.plan().actions:
                bench.fold(action, Accepted())
    assert bench.looks <= 6 * number


def test_outcomes_of_claims_do_not_depend_on_the_instance_of_a_task() -> None:
    bench = started()
    action = bench.only(bench.plan())
    bench.edit_then_plan(role("b"))
    outcome = Outcome(action, Created("claim-1"))
    bench.fold(outcome.action, outcome.result)
    assert bench.tracker.expectations.confirmed[action.target].uid == "claim-1"
