"""The Service of a Framework with host names: its creation, and Services of other owners."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import orjson
import pytest

from frameworkcontroller.api.objects import Identity, service_record
from frameworkcontroller.api.status import State
from frameworkcontroller.machine.kernel.actions import Create, carry_out
from frameworkcontroller.machine.kernel.exchanges import Created, Exists
from frameworkcontroller.machine.kernel.model import NotListed, Plan
from frameworkcontroller.machine.kernel.outcomes import drop
from frameworkcontroller.machine.kernel.reasons import RequestReason
from frameworkcontroller.machine.kernel.requests import Answered, Get, Kind, Post, Refusal, Refused, Target, Unanswered
from frameworkcontroller.machine.parts import PARTS
from frameworkcontroller.machine.parts.service.hostservice import ServiceReason
from tests.support.bench import UID, Bench, begun, foreign, refused, role

CONFIGMAP = Kind.CONFIGMAP


def accepted(**spec: Any) -> Bench:
    """A Framework with host names, whose first status is stored."""
    bench = Bench(role(), **{"network": {}, **spec})
    bench.plan()
    return bench


def kinds(made: Plan) -> list[Kind]:
    """The kinds of the objects that the plan creates."""
    assert all(isinstance(action, Create) for action in made.actions)
    return [action.target.kind for action in made.actions]


def service_of(bench: Bench, *, within: float = 0) -> Create:
    """The creation of the Service, the only action within that number of seconds."""
    action = bench.only(bench.wait(within))
    assert isinstance(action, Create)
    assert action.target.kind is Kind.SERVICE
    return action


def ours(uid: str = "service-1", *, deleting: bool = False) -> Identity:
    """Who the Framework's own Service is."""
    return Identity(uid, UID, (UID,), deleting)


# --- before the first attempt -------------------------------------------------------------------------------------


def test_the_service_comes_before_the_configmap() -> None:
    bench = accepted(network={"subdomain": "train"})
    action = service_of(bench)
    assert (action.target.name, action.controller_uid) == ("train", UID)
    assert orjson.loads(action.body)["spec"]["clusterIP"] == "None"
    bench.created(action)
    bench.restart()
    assert kinds(bench.plan()) == [CONFIGMAP]


def test_it_costs_no_status_write_of_its_own() -> None:
    with_service, without = accepted(), accepted(network=None)
    with_service.all_pods()
    without.all_pods()
    assert with_service.writes == without.writes


def test_a_creation_whose_answer_was_lost_is_found() -> None:
    bench = accepted()
    bench.fold(service_of(bench), Unanswered("reset"))
    bench.idle()
    again = bench.only(bench.wait(2))
    bench.fold(again, Exists(ours()))
    assert kinds(bench.plan()) == [CONFIGMAP]


def test_an_exchange_reads_the_object_with_the_name() -> None:
    action = service_of(accepted())
    exchange = carry_out(action)
    assert next(exchange) == Post(Kind.SERVICE, "f", action.body)
    taken = Refused(409, "taken", b"{}", reason="AlreadyExists", kind=Refusal.ALREADY_EXISTS)
    assert exchange.send(taken) == Get(Kind.SERVICE, "f")
    owner = {"kind": "Framework", "name": "f", "uid": UID, "controller": True}
    metadata = {"uid": "s", "annotations": {"FC_FRAMEWORK_UID": UID}, "ownerReferences": [owner]}
    with pytest.raises(StopIteration) as end:
        exchange.send(Answered(orjson.dumps({"metadata": metadata})))
    assert end.value.value == Exists(Identity("s", UID, (UID,), deleting=False))


# --- Services of other owners ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("owner", [None, "another"])
@pytest.mark.parametrize("shown", [True, False], ids=["in the cache", "without the label"])
def test_a_foreign_service_is_neither_used_nor_changed(owner: str | None, shown: bool) -> None:
    bench = accepted()
    if shown:
        references = [{"kind": "Framework", "name": "g", "uid": owner, "controller": True}] if owner else []
        metadata = {"name": "f", "namespace": "ns", "uid": "foreign", "resourceVersion": "1"}
        bench.services["f"] = service_record({"metadata": {**metadata, "ownerReferences": references}})
    action = service_of(bench)
    for _ in range(3):
        bench.fold(action, Exists(foreign("f", controller=owner)))
        bench.idle()
        assert bench.wait(60).actions == [action]
    (reason, message) = bench.stall()
    assert reason == "NamingConflict"
    assert message.startswith("Service f (foreign) already exists, ")
    assert bench.status.state is State.CREATION_PENDING
    bench.services.clear()
    bench.created(action)
    bench.plan()
    assert bench.stall() == ("", "")


# --- failures -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Companion:
    """A kind of objects that no status records."""

    kind: Kind
    name: str
    word: str
    """In reasons."""
    field: str
    """The field of the spec that needs it."""
    waits: str
    """The end of the message of the condition Running while the kind cannot be listed."""
    make: Callable[[], Bench]
    """Up to its creation."""

    def creation(self, bench: Bench, within: float = 0) -> Create:
        """Its creation, the only action within that number of seconds."""
        action = bench.expect(Create, within)
        assert (action.target.kind, action.target.name) == (self.kind, self.name)
        return action


CLAIMED = {**role(), "volumeClaimTemplates": [{"metadata": {"name": "data"}}]}
SERVICE = Companion(Kind.SERVICE, "f", "Service", "spec.network needs", "its Service f does not exist yet", accepted)
CLAIM = Companion(
    Kind.VOLUME_CLAIM,
    "data-f-a-0",
    "VolumeClaim",
    "volumeClaimTemplates need",
    "data-f-a-0 cannot be looked for",
    lambda: begun(CLAIMED),
)
each = pytest.mark.parametrize("companion", [SERVICE, CLAIM], ids=["Service", "claim"])


@each
@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (refused(403, "it is forbidden"), "NotAnswered"),
        (refused(403, "exceeded quota: q"), "QuotaExceeded"),
        (refused(404, "not served"), "NotAnswered"),
        (refused(422, "spec.accessModes: Required value"), "NotAnswered"),
        (Unanswered("reset"), "NotAnswered"),
    ],
)
def test_a_companion_that_cannot_be_created_stalls_the_framework(
    companion: Companion, result: Refused | Unanswered, reason: str
) -> None:
    bench = companion.make()
    action = companion.creation(bench)
    bench.refuse(action, result)
    bench.plan()
    assert bench.stall()[0] == (reason if reason == "QuotaExceeded" else companion.word + reason)
    pending = ServiceReason.PENDING if companion is SERVICE else RequestReason.WAITING
    assert pending in bench.tracker.holds.waits()
    assert bench.task().state is State.CREATION_PENDING
    assert bench.wait(60).actions == [action]
    bench.created(action)
    bench.all_pods()
    assert bench.stall() == ("", "")
    assert not bench.tracker.holds.waits()
    assert "f-a-0" in bench.pods


@each
def test_companions_that_are_not_listed_yet_are_awaited_without_a_message(companion: Companion) -> None:
    bench = companion.make()
    bench.not_listed = NotListed()
    bench.plan()
    writes = bench.writes
    made = bench.plan()
    assert (made.actions, made.requeue_after, bench.writes) == ([], None, writes)
    bench.not_listed = None
    companion.creation(bench)


@each
def test_companions_that_cannot_be_listed_stall_the_framework(companion: Companion) -> None:
    bench = companion.make()
    bench.not_listed = NotListed("403: it is forbidden")
    for _ in range(3):
        bench.idle()
    text = f"Cannot list {companion.kind}s, which {companion.field}: 403: it is forbidden"
    assert bench.stall() == (f"{companion.word}NotListed", text)
    assert bench.status.conditions[0].message.endswith(companion.waits)
    bench.not_listed = None
    bench.all_pods()
    assert bench.stall() == ("", "")
    assert "f-a-0" in bench.pods


@each
def test_a_companion_that_ended_before_its_creation_was_folded_is_created_again(companion: Companion) -> None:
    bench = companion.make()
    action = companion.creation(bench)
    drop(PARTS, bench.tracker, action.target, "uid-9")
    bench.fold(action, Created("uid-9"))
    bench.fold(companion.creation(bench, 60), Created("uid-10"))
    assert [action.target.kind for action in bench.plan().actions] == [CONFIGMAP if companion is SERVICE else Kind.POD]


@each
def test_a_companion_that_a_list_after_its_creation_does_not_show_is_created_again(companion: Companion) -> None:
    bench = companion.make()
    bench.created(companion.creation(bench), show=False)
    bench.now += 1
    assert bench.relist(companion.kind)
    assert companion.kind in [action.target.kind for action in bench.wait(60).actions]


def test_a_framework_that_must_not_start_creates_no_service_and_stalls_for_none() -> None:
    bench = accepted()
    bench.refuse(service_of(bench), refused(403))
    bench.edit(suspend=True)
    for _ in range(3):
        assert not any(isinstance(action, Create) for action in bench.plan().actions)
    assert bench.stall() == ("", "")


def test_a_framework_without_a_service_can_be_stopped() -> None:
    bench = accepted()
    bench.not_listed = NotListed("403: no")
    bench.plan()
    bench.edit_then_settle(executionType="Stop")
    assert bench.status.state is State.COMPLETED
    assert bench.stall() == ("", "")


@pytest.mark.parametrize("deleting", [False, True])
def test_a_framework_that_is_deleted_creates_no_service(deleting: bool) -> None:
    bench = accepted()
    bench.deleting = deleting
    assert bool(bench.plan().actions) is not deleting


# --- while it runs ------------------------------------------------------------------------------------------------


def running() -> Bench:
    """A Framework that runs with its Service."""
    bench = accepted()
    bench.all_pods()
    bench.run()
    return bench


def test_a_service_that_was_deleted_is_created_again_and_pods_continue() -> None:
    bench = running()
    bench.idle()
    bench.drop("f")
    action = service_of(bench)
    bench.fold(action, refused(500))
    assert bench.status.state is State.RUNNING
    assert bench.wait(60).actions == [action]
    bench.created(action, show=False)
    bench.idle()
    assert bench.status.state is State.RUNNING


def test_a_service_that_is_being_deleted_is_created_again_when_it_is_gone() -> None:
    bench = accepted()
    bench.created(service_of(bench))
    bench.show("f", deleting=bench.now)
    bench.idle()
    assert ServiceReason.PENDING in bench.tracker.holds.waits()
    bench.drop("f")
    assert kinds(bench.plan()) == [Kind.SERVICE]


def test_the_end_of_an_old_service_says_nothing_of_the_new_one() -> None:
    bench = running()
    old = bench.services["f"]
    bench.drop("f")
    bench.created(service_of(bench), show=False)
    bench.services["f"] = old
    drop(PARTS, bench.tracker, Target(Kind.SERVICE, "f"), old.uid)
    bench.services.clear()
    bench.idle()


def test_a_pod_is_created_while_its_service_is_refused() -> None:
    bench = running()
    bench.drop("f")
    bench.fold(service_of(bench), refused(403))
    bench.edit_then_plan(role(number=2))
    assert [action.target for action in bench.plan().actions if isinstance(action, Create)] == [
        Target(Kind.POD, "f-a-1", 0, "a", 1, bench.task("a", 1).instance_uid)
    ]


def test_the_creation_is_recorded() -> None:
    bench = accepted()
    made = bench.fold(service_of(bench), Created("s"))
    assert [(one.reason, one.message) for one in made.records] == [(ServiceReason.CREATED, "Service f (s) was created")]


def test_a_service_whose_kind_is_listed_during_its_creation_is_created_again() -> None:
    bench = accepted()
    action = service_of(bench)
    # It may have ended between its creation, which is answered already, and the list.
    assert not bench.relist(Kind.SERVICE)
    bench.created(action, show=False)
    again = bench.only(bench.wait(60))
    bench.fold(again, Exists(ours()))
    assert kinds(bench.plan()) == [CONFIGMAP]


@pytest.mark.parametrize("under_way", [True, False])
def test_a_list_from_before_its_creation_says_nothing_of_a_service(*, under_way: bool) -> None:
    bench = accepted()
    action = service_of(bench)
    if under_way:
        bench.relist(Kind.SERVICE, bench.now - 1)
    bench.created(action, show=False)
    assert not bench.relist(Kind.SERVICE, bench.now - 1)
    assert kinds(bench.plan()) == [CONFIGMAP]


def test_lists_that_show_the_service_end_nothing() -> None:
    bench = accepted()
    bench.created(service_of(bench))
    assert not bench.relist(Kind.SERVICE)
    assert not bench.relist(Kind.VOLUME_CLAIM)
    bench.services.clear()
    assert kinds(bench.plan()) == [CONFIGMAP]


def test_a_list_that_shows_another_service_of_the_name_ends_the_old_one() -> None:
    bench = accepted()
    bench.created(service_of(bench))
    bench.services["f"] = replace(bench.services["f"], identity=foreign("f"))
    assert bench.relist(Kind.SERVICE)
    assert kinds(bench.wait(60)) == [Kind.SERVICE]


def test_a_service_without_the_label_by_which_it_is_watched_is_found() -> None:
    bench = running()
    uid = bench.services["f"].uid
    bench.drop("f")
    bench.fold(service_of(bench), Exists(ours(uid)))
    bench.idle()


def test_it_is_also_found_while_another_creation_is_not_answered() -> None:
    bench = running()
    uid = bench.services["f"].uid
    bench.tracker.expectations.send(Target(Kind.VOLUME_CLAIM, "data-f-a-0"), bench.now)
    bench.drop("f")
    bench.fold(service_of(bench), Exists(ours(uid)))
    # The answer may be older than the end that the cache has shown.
    bench.fold(service_of(bench), Exists(ours(uid)))
    bench.idle()


def test_it_is_created_again_while_the_status_is_not_persisted() -> None:
    bench = running()
    bench.drop("f")
    bench.show("f-a-0", podIP="10.0.0.9")
    assert kinds(bench.plan(write=False)) == [Kind.SERVICE]


def test_the_condition_shows_the_wait_until_it_ends() -> None:
    bench = accepted()
    action = service_of(bench)
    for _ in range(3):
        bench.fold(action, Exists(foreign("f")), write=False)
        for _ in range(3):
            bench.plan(write=False)
            assert bench.status.conditions[0].message.endswith("waits: its Service f does not exist yet")
        bench.write()
        assert action in bench.wait(60).actions


# --- a Service that stays while it is deleted ---------------------------------------------------------------------


@pytest.mark.parametrize("make", [accepted, running])
def test_a_service_that_a_finalizer_holds_is_reported(make: Any) -> None:
    bench: Bench = make()
    if not bench.services:
        bench.created(service_of(bench, within=60))
    bench.show("f", deleting=bench.now)
    assert bench.plan().requeue_after == pytest.approx(120)
    assert bench.stall() == ("", "")
    bench.wait(120)
    assert bench.stall()[0] == "ServiceNotGone"
    assert "Service f was to be deleted by " in bench.stall()[1]
    bench.drop("f")
    bench.refuse(service_of(bench, within=60), refused(500))
    assert bench.stall()[0] == "ServiceNotAnswered"
    bench.created(service_of(bench, within=60))
    bench.plan()
    assert bench.stall() == ("", "")


# --- one that is deleted again and again --------------------------------------------------------------------------


def test_a_service_that_is_always_deleted_is_made_again_at_growing_intervals() -> None:
    bench = running()
    began, pauses = bench.now, []
    for _ in range(8):
        bench.drop("f")
        before = bench.now
        bench.created(service_of(bench, within=60))
        pauses.append(bench.now - before)
    assert pauses[0] == 0
    assert pauses[-1] > 10
    assert bench.now - began > 20
    bench.now += 60
    bench.drop("f")
    assert [action.target.kind for action in bench.plan().actions] == [Kind.SERVICE]


def test_the_attempt_waits_for_a_service_that_is_always_deleted() -> None:
    bench = accepted()
    for _ in range(2):
        bench.created(service_of(bench, within=60))
        bench.drop("f")
    bench.idle()
    assert ServiceReason.PENDING in bench.tracker.holds.waits()
    bench.created(service_of(bench, within=60))
    bench.all_pods()
    assert not bench.tracker.holds.waits()
    assert "f-a-0" in bench.pods


# --- a changed spec, which API servers without rules in CRDs accept -----------------------------------------------


@pytest.mark.parametrize("network", [None, {"subdomain": "other"}, {"enableDNSHostnames": False}])
def test_a_service_that_is_no_longer_wanted_stalls_nothing(network: Any) -> None:
    bench = accepted()
    action = service_of(bench, within=60)
    for _ in range(3):
        bench.fold(action, Exists(foreign("f")))
        bench.wait(60)
    assert bench.stall()[0] == "NamingConflict"
    bench.edit(network=network)
    bench.all_pods()
    assert bench.stall() == ("", "")
    assert not bench.tracker.holds.waits()
    assert "f-a-0" in bench.pods
    assert ("other" in bench.bodies) is (network == {"subdomain": "other"})


def test_an_invalid_spec_is_all_that_is_reported() -> None:
    bench = accepted()
    bench.refuse(service_of(bench, within=60), refused(403))
    bench.plan()
    bench.spoil()
    bench.plan()
    assert bench.stall() == ("InvalidSpec", "spec.coordinator.taskRole: 'nobody': is not the name of a TaskRole")
    bench.edit(coordinator=None)
    bench.all_pods()
    assert bench.stall() == ("", "")
