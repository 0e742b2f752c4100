"""The records of Kueue's Workloads."""

from typing import Any

import pytest

from frameworkcontroller.api.objects import ObjectError
from frameworkcontroller.api.workloads import AdmissionCheck, WorkloadCondition, workload_name, workload_record

OWNER = {"apiVersion": "x/v1", "kind": "Framework", "name": "train", "uid": "uid-1", "controller": True}


def body(**status: Any) -> dict[str, Any]:
    """A Workload of the Framework ``train``."""
    metadata = {"namespace": "ns", "name": "w", "uid": "u", "resourceVersion": "5", "ownerReferences": [OWNER]}
    return {"metadata": metadata, "spec": {"queueName": "team-a", "podSets": []}, "status": status}


def condition(kind: str, status: str, reason: str = "Because", message: str = "") -> dict[str, str]:
    """A condition, as Kueue writes it."""
    return {"type": kind, "status": status, "reason": reason, "message": message}


def test_the_name_differs_for_each_framework() -> None:
    name = workload_name("train", "uid-1")
    assert name.startswith("framework-train-")
    assert len(name) == len("framework-train-") + 5
    assert workload_name("train", "uid-2") != name


def test_a_new_workload_waits() -> None:
    found = workload_record(body())
    assert (found.key, found.framework, found.identity.controller_uid) == ("ns/w", "train", "uid-1")
    assert (found.queue_name, found.active, found.in_use, found.reserves) == ("team-a", True, False, False)
    assert not found.admitted
    assert not found.evicted


def test_conditions_and_messages_of_kueue() -> None:
    message = "couldn't assign flavors to pod set worker"
    found = workload_record(body(conditions=[condition("QuotaReserved", "False", "Pending", message)]))
    assert found.quota_reserved == WorkloadCondition("False", "Pending", message)
    assert not found.quota_reserved
    again = workload_record(body(conditions=[condition("QuotaReserved", "False", "Pending", f"{message}: more")]))
    assert again.inputs != found.inputs


def test_admission_checks_that_are_not_ready_are_an_event() -> None:
    check = {"name": "prov", "state": "Pending", "message": "3 nodes"}
    ready = {"name": "budget", "state": "Ready", "message": ""}
    found = workload_record(body(admissionChecks=[ready, check]))
    assert found.checks == (AdmissionCheck("prov", "Pending", "3 nodes"),)
    assert workload_record(body(admissionChecks=[ready])).inputs != found.inputs


def test_the_numbers_of_reclaimable_pods_are_an_event() -> None:
    found = workload_record(body(reclaimablePods=[{"name": "a", "count": 2}, {"name": "b", "count": 0}]))
    assert found.reclaimed == (("a", 2),)
    assert workload_record(body()).inputs != found.inputs


@pytest.mark.parametrize(
    "status", [{"admission": {"clusterQueue": "cq"}}, {"conditions": [condition("QuotaReserved", "True")]}]
)
def test_quota_is_taken_while_either_says_so(status: dict[str, Any]) -> None:
    assert workload_record(body(**status)).reserves


def test_a_write_that_changes_nothing_is_no_event() -> None:
    first, second = body(), body()
    second["metadata"]["resourceVersion"] = "6"
    assert workload_record(first).inputs == workload_record(second).inputs


def test_an_invalid_workload() -> None:
    broken = body()
    del broken["metadata"]["uid"]
    with pytest.raises(ObjectError, match="Workload: metadata: field 'uid' is missing"):
        workload_record(broken)
