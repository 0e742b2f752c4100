"""The Service of a Framework beside others that delete it again and again, hold it up, or change the spec meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from frameworkcontroller.api.objects import service_record
from frameworkcontroller.machine.kernel.actions import Action, Create
from frameworkcontroller.machine.kernel.reasons import Reason
from frameworkcontroller.machine.kernel.requests import Kind
from frameworkcontroller.machine.kernel.results import Exists
from tests.support.bench import Bench, foreign, refused, role


def accepted(**spec: Any) -> Bench:
    """A Framework with host names, whose first status is stored."""
    bench = Bench(role(), **{"network": {}, **spec})
    bench.plan()
    return bench


def running() -> Bench:
    """A Framework that runs with its Service."""
    bench = accepted()
    bench.all_pods()
    bench.run()
    return bench


def service_of(bench: Bench) -> Action:
    """The creation of the Service, which is all that a plan asks for."""
    action = bench.only(bench.wait(60))
    assert isinstance(action, Create)
    assert action.target.kind is Kind.SERVICE
    return action


def stall(bench: Bench) -> tuple[str, str] | None:
    """Reason and message of the condition Stalled, if it is True."""
    found = next((one for one in bench.status.conditions if one.type == "Stalled" and one.status == "True"), None)
    return None if found is None else (found.reason, found.message)


# --- a Service that stays while it is deleted ---------------------------------------------------------------------


@pytest.mark.parametrize("make", [accepted, running])
def test_a_service_that_a_finalizer_holds_is_reported(make: Any) -> None:
    bench: Bench = make()
    if not bench.services:
        bench.created(service_of(bench))
    bench.show("f", deleting=bench.now)
    assert bench.plan().requeue_after == pytest.approx(120)
    assert stall(bench) is None
    bench.wait(120)
    assert (stall(bench) or ("", ""))[0] == "ServiceNotGone"
    assert "Service f was to be deleted by " in (stall(bench) or ("", ""))[1]
    bench.drop("f")
    bench.refuse(service_of(bench), refused(500))
    assert (stall(bench) or ("", ""))[0] == "ServiceNotAnswered"
    bench.created(service_of(bench))
    bench.plan()
    assert stall(bench) is None


# --- one that is deleted again and again --------------------------------------------------------------------------


def test_a_service_that_is_always_deleted_is_made_again_at_growing_intervals() -> None:
    bench = running()
    began, pauses = bench.now, []
    for _ in range(8):
        bench.drop("f")
        before = bench.now
        bench.created(service_of(bench))
        pauses.append(bench.now - before)
    assert pauses[0] == 0
    assert pauses[-1] > 10
    assert bench.now - began > 20
    bench.now += 60
    bench.drop("f")
    assert [action.target.kind for action in bench.plan().actions] == [Kind.SERVICE]


def test_the_condition_says_that_the_attempt_waits_for_it() -> None:
    bench = accepted()
    for _ in range(2):
        bench.created(service_of(bench))
        bench.drop("f")
    assert bench.plan().actions == []
    assert Reason.SERVICE_PENDING in bench.tracker.holds.waits()
    bench.created(service_of(bench))
    bench.all_pods()
    assert not bench.tracker.holds.waits()
    assert "f-a-0" in bench.pods


# --- a changed spec, which API servers without rules in CRDs accept -----------------------------------------------


@pytest.mark.parametrize("network", [None, {"subdomain": "other"}, {"enableDNSHostnames": False}])
def test_a_service_that_is_no_longer_wanted_stalls_nothing(network: Any) -> None:
    bench = accepted()
    action = service_of(bench)
    for _ in range(3):
        bench.fold(action, Exists(foreign("f")))
        bench.wait(60)
    assert (stall(bench) or ("", ""))[0] == "NamingConflict"
    bench.edit(network=network)
    bench.all_pods()
    assert stall(bench) is None
    assert not bench.tracker.holds.waits()
    assert "f-a-0" in bench.pods
    assert ("other" in bench.bodies) is (network == {"subdomain": "other"})


def test_an_invalid_spec_is_all_that_is_reported() -> None:
    bench = accepted()
    bench.refuse(service_of(bench), refused(403))
    bench.plan()
    bench.spoil()
    bench.plan()
    assert stall(bench) == ("InvalidSpec", "spec.coordinator.taskRole: 'nobody': is not the name of a TaskRole")
    bench.edit(coordinator=None)
    bench.all_pods()
    assert stall(bench) is None


# --- a Framework of the same name ---------------------------------------------------------------------------------


def test_the_service_of_a_predecessor_is_waited_for() -> None:
    bench = accepted()
    references = [{"kind": "Framework", "name": "f", "uid": "predecessor", "controller": True}]
    metadata = {"name": "f", "namespace": "ns", "uid": "old", "resourceVersion": "1", "ownerReferences": references}
    bench.services["f"] = service_record({"metadata": metadata})
    action = service_of(bench)
    for _ in range(3):
        bench.fold(action, Exists(foreign("f", "old", controller="predecessor")))
        assert service_of(bench) == action
    (reason, text) = stall(bench) or ("", "")
    assert reason == "NamingConflict"
    assert "controlled by predecessor" in text
    assert "f-attempt" not in bench.bodies
    bench.drop("f")
    bench.created(service_of(bench))
    bench.all_pods()
    assert stall(bench) is None
    assert "f-a-0" in bench.pods
