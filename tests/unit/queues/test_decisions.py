"""The decisions of the local queue: tables of Workloads and outcomes."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.local.queues.counts import cluster_queue_statuses, local_queue_statuses
from frameworkcontroller.local.queues.decisions import QueueView, Write, decide, next_due
from frameworkcontroller.local.queues.queue_records import (
    QueuedWorkload,
    decode_cluster_queue,
    decode_flavor,
    decode_local_queue,
    decode_workload,
)
from frameworkcontroller.local.resource_lists import parse_option

NOW = 1_000_000


def stored(kind: str, name: str, **content: Any) -> dict[str, Any]:
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "7", "creationTimestamp": format_time(NOW - 100)}
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": metadata, **content}


def workload(
    name: str,
    cpu: object = 1,
    *,
    count: int = 1,
    priority: int = 0,
    age: int = 100,
    queue: str = "q",
    **spec: Any,
) -> dict[str, Any]:
    container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
    pod_set = {"name": "worker", "count": count, "template": {"spec": {"containers": [container]}}}
    body = stored("Workload", name, spec={"queueName": queue, "priority": priority, "podSets": [pod_set], **spec})
    body["metadata"] |= {"namespace": "n", "creationTimestamp": format_time(NOW - age), "generation": 3}
    return body


def condition(kind: str, status: str, reason: str, message: str = "", *, age: int = 50) -> dict[str, Any]:
    since = format_time(NOW - age)
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since}


def admitted(body: dict[str, Any], *, age: int = 50) -> dict[str, Any]:
    """The Workload with the quota that it asks for, since `age` seconds."""
    (pod_set,) = body["spec"]["podSets"]
    cpu = pod_set["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"]
    usage = {"cpu": str(cpu * pod_set["count"])}
    assignment = {"name": "worker", "count": pod_set["count"], "flavors": {"cpu": "f"}, "resourceUsage": usage}
    conditions = [
        condition("QuotaReserved", "True", "QuotaReserved", age=age),
        condition("Admitted", "True", "Admitted", age=age),
    ]
    return {
        **body,
        "status": {"admission": {"clusterQueue": "cq", "podSetAssignments": [assignment]}, "conditions": conditions},
    }


def evicted(body: dict[str, Any]) -> dict[str, Any]:
    """The admitted Workload, told to end its Pods."""
    body = admitted(body)
    body["status"]["conditions"].append(condition("Evicted", "True", "Preempted", "for another"))
    return body


def view(
    workloads: Iterable[dict[str, Any]],
    *,
    quota: Mapping[str, str] | None = None,
    preemption: str = "LowerPriority",
    strategy: str = "BestEffortFIFO",
    stop: str = "None",
    local_stop: str = "None",
    flavors: Iterable[str] = ("f",),
) -> QueueView:
    resources = [{"name": name, "nominalQuota": amount} for name, amount in (quota or {"cpu": "8"}).items()]
    spec = {
        "queueingStrategy": strategy,
        "stopPolicy": stop,
        "preemption": {"withinClusterQueue": preemption},
        "resourceGroups": [{"coveredResources": [], "flavors": [{"name": "f", "resources": resources}]}],
    }
    local = stored("LocalQueue", "q", spec={"clusterQueue": "cq", "stopPolicy": local_stop})
    local["metadata"]["namespace"] = "n"
    astray = stored("LocalQueue", "astray", spec={"clusterQueue": "none"})
    astray["metadata"]["namespace"] = "n"
    return QueueView(
        workloads=[decode_workload(body) for body in workloads],
        local_queues={record.key: record for record in map(decode_local_queue, (local, astray))},
        cluster_queues={"cq": decode_cluster_queue(stored("ClusterQueue", "cq", spec=spec))},
        flavors=frozenset(decode_flavor(stored("ResourceFlavor", name)).name for name in flavors),
    )


def conditions_of(write: Write) -> dict[str, dict[str, Any]]:
    return {one["type"]: one for one in write.patch["status"]["conditions"]}


def outcome(write: Write) -> str:
    """The meaning of a write, in a word."""
    if write.deactivates:
        return "deactivated"
    after = conditions_of(write)
    if "admission" in write.patch["status"]:
        return "admitted"
    if after.get("Evicted", {}).get("status") == "True":
        return f"evicted: {after['Evicted']['reason']}"
    return f"waits: {after['QuotaReserved']['message']}"


def outcomes(of: QueueView) -> dict[str, str]:
    return {write.workload.name: outcome(write) for write in decide(of, NOW)}


SHORT = (
    "waits: couldn't assign flavors to pod set worker: insufficient unused quota for cpu in flavor f, {} more needed"
)
TAKING = SHORT + ". Pending the preemption of {} workload(s)"


@pytest.mark.parametrize(
    ("workloads", "expected"),
    [
        pytest.param([workload("a", 4), workload("b", 4)], {"a": "admitted", "b": "admitted"}, id="all fit"),
        pytest.param(
            [workload("young", 5, age=1), workload("old", 5, age=2)],
            {"old": "admitted", "young": SHORT.format(2)},
            id="the older one is first",
        ),
        pytest.param(
            [workload("old", 5, age=2), workload("high", 5, age=1, priority=1)],
            {"high": "admitted", "old": SHORT.format(2)},
            id="priority goes before age",
        ),
        pytest.param([workload("a", 2, count=4)], {"a": "admitted"}, id="count times requests"),
        pytest.param(
            [workload("big", 6, age=3), workload("next", 3, age=2), workload("small", 2, age=1)],
            {"big": "admitted", "next": SHORT.format(1), "small": "admitted"},
            id="a smaller one passes",
        ),
        pytest.param(
            [admitted(workload("a", 8)), workload("same", 1)],
            {"same": SHORT.format(1)},
            id="equal priority preempts nobody",
        ),
        pytest.param(
            [admitted(workload("low", 8)), workload("high", 3, priority=1)],
            {"low": "evicted: Preempted", "high": TAKING.format(3, 1)},
            id="a higher one preempts, and waits",
        ),
        pytest.param(
            [evicted(workload("low", 8)), workload("high", 3, priority=1)],
            {"high": TAKING.format(3, 1)},
            id="it waits until the quota is given back",
        ),
        pytest.param(
            [evicted(workload("low", 4)), workload("high", 5, priority=1, age=2), workload("mid", 4, age=3)],
            {"high": TAKING.format(1, 1), "mid": SHORT.format(1)},
            id="nobody takes the quota that the preemptor waits for",
        ),
        pytest.param(
            [evicted(workload("low", 4)), workload("high", 5, priority=1, age=2), workload("mid", 3, age=3)],
            {"high": TAKING.format(1, 1), "mid": "admitted"},
            id="what is left beside the preemptor may be taken",
        ),
        pytest.param(
            [
                admitted(workload("lowest", 2, priority=-2)),
                admitted(workload("lower", 2, priority=-1)),
                admitted(workload("low", 4)),
                workload("high", 2, priority=1),
            ],
            {"lowest": "evicted: Preempted", "high": TAKING.format(2, 1)},
            id="the lowest is preempted",
        ),
        pytest.param(
            [
                admitted(workload("first", 4), age=9),
                admitted(workload("last", 4), age=8),
                workload("high", 2, priority=1),
            ],
            {"last": "evicted: Preempted", "high": TAKING.format(2, 1)},
            id="of equals, the one admitted last is preempted",
        ),
        pytest.param(
            [
                admitted(workload("small", 1, priority=-1)),
                admitted(workload("large", 7)),
                workload("high", 7, priority=1),
            ],
            {"large": "evicted: Preempted", "high": TAKING.format(7, 1)},
            id="one that would not help is spared",
        ),
        pytest.param(
            [admitted(workload("low", 4)), admitted(workload("same", 4, priority=1)), workload("x", 5, priority=1)],
            {"x": SHORT.format(5)},
            id="nobody is preempted in vain",
        ),
        pytest.param(
            [admitted(workload("low", 8)), workload("x", 9, priority=1)],
            {
                "x": "waits: couldn't assign flavors to pod set worker: insufficient quota for cpu in flavor f, "
                "request > maximum capacity (9 > 8)"
            },
            id="nor for one that can never fit",
        ),
        pytest.param(
            [{**workload("done", 8), "status": {"conditions": [condition("Finished", "True", "Succeeded")]}}],
            {},
            id="a finished one neither waits nor holds quota",
        ),
        pytest.param([workload("a", 1, queue="none")], {"a": "waits: LocalQueue none does not exist"}, id="no queue"),
        pytest.param(
            [workload("a", 1, queue="astray")], {"a": "waits: ClusterQueue none does not exist"}, id="no ClusterQueue"
        ),
        pytest.param([workload("a", 1, active=False)], {"a": "waits: The workload is deactivated"}, id="inactive"),
        pytest.param(
            [admitted(workload("a", 1, active=False))], {"a": "evicted: Deactivated"}, id="deactivated while admitted"
        ),
    ],
)
def test_decisions(workloads: list[dict[str, Any]], expected: dict[str, str]) -> None:
    assert outcomes(view(workloads)) == expected


def test_a_resource_without_quota_is_named() -> None:
    body = workload("a", 1)
    body["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"]["requests"]["memory"] = "1Gi"
    text = "waits: couldn't assign flavors to pod set worker: resource memory unavailable in ClusterQueue"
    assert outcomes(view([body])) == {"a": text}


def test_pods_can_have_a_quota() -> None:
    found = outcomes(view([workload("a", 0, count=3), workload("b", 0, count=2)], quota={"pods": "4"}))
    assert found == {"a": "admitted", "b": SHORT.format(1).replace("cpu", "pods")}


@pytest.mark.parametrize(
    ("preemption", "evicted_one"),
    [("Never", None), ("LowerPriority", None), ("LowerOrNewerEqualPriority", "newer")],
)
def test_whom_the_cluster_queue_permits_to_preempt(preemption: str, evicted_one: str | None) -> None:
    workloads = [admitted(workload("newer", 8, age=1)), workload("older", 8, age=2)]
    found = outcomes(view(workloads, preemption=preemption))
    assert [name for name, what in found.items() if what.startswith("evicted")] == (
        [evicted_one] if evicted_one else []
    )


def test_never_preempt_lower_ones_either() -> None:
    workloads = [admitted(workload("low", 8)), workload("high", 8, priority=1)]
    assert outcomes(view(workloads, preemption="Never")) == {"high": SHORT.format(8)}


def test_a_strict_queue_lets_no_workload_pass() -> None:
    workloads = [admitted(workload("a", 6)), workload("big", 3, age=3), workload("small", 1, age=2)]
    found = outcomes(view(workloads, strategy="StrictFIFO"))
    assert found == {"big": SHORT.format(1), "small": "waits: waiting behind n/big in a StrictFIFO queue"}


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ({"stop": "Hold"}, {"waiting": "waits: ClusterQueue cq is inactive: it is stopped"}),
        (
            {"stop": "HoldAndDrain"},
            {
                "running": "evicted: ClusterQueueStopped",
                "waiting": "waits: ClusterQueue cq is inactive: it is stopped",
            },
        ),
        ({"local_stop": "Hold"}, {"waiting": "waits: LocalQueue q is stopped"}),
        (
            {"local_stop": "HoldAndDrain"},
            {"running": "evicted: LocalQueueStopped", "waiting": "waits: LocalQueue q is stopped"},
        ),
        ({"flavors": ()}, {"waiting": "waits: ClusterQueue cq is inactive: ResourceFlavor f does not exist"}),
    ],
)
def test_a_queue_that_is_stopped(where: dict[str, Any], expected: dict[str, str]) -> None:
    assert outcomes(view([admitted(workload("running", 1)), workload("waiting", 1)], **where)) == expected


def the_write(of: QueueView) -> Write:
    (write,) = decide(of, NOW)
    return write


def test_an_admission_lists_the_given_quota() -> None:
    write = the_write(view([workload("a", 2, count=3)]))
    assert write.patch["status"]["admission"] == {
        "clusterQueue": "cq",
        "podSetAssignments": [
            {"name": "worker", "count": 3, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "6"}},
        ],
    }
    after = conditions_of(write)
    assert {kind: one["status"] for kind, one in after.items()} == {"QuotaReserved": "True", "Admitted": "True"}
    assert {one["lastTransitionTime"] for one in after.values()} == {format_time(NOW)}
    assert {one["observedGeneration"] for one in after.values()} == {3}


def test_an_eviction_leaves_the_quota_to_the_owner() -> None:
    write = next(w for w in decide(view([admitted(workload("a", 8)), workload("b", 8, priority=5)]), NOW))
    assert list(write.patch["status"]) == ["conditions"]
    after = conditions_of(write)
    assert (after["Evicted"]["reason"], after["Preempted"]["reason"]) == ("Preempted", "InClusterQueue")
    assert after["Evicted"]["message"] == "Preempted for workload n/b (UID: uid-b) of priority 5 in ClusterQueue cq"
    assert after["Admitted"]["status"] == after["QuotaReserved"]["status"] == "True"


def test_a_second_admission_takes_the_eviction_back() -> None:
    body = evicted(workload("a", 8))
    body["status"]["conditions"].append(condition("Preempted", "True", "InClusterQueue", "for another"))
    body["status"]["conditions"].append(condition("Requeued", "True", "Preempted", "for another"))
    body["status"]["conditions"].append(condition("PodsReady", "False", "WaitForStart"))
    del body["status"]["admission"]
    for one in body["status"]["conditions"][:2]:
        one["status"] = "False"
    after = conditions_of(the_write(view([body])))
    assert {kind: one["status"] for kind, one in after.items()} == {
        "QuotaReserved": "True",
        "Admitted": "True",
        "Evicted": "False",
        "Preempted": "False",
        "Requeued": "True",
        "PodsReady": "False",
    }
    assert after["Evicted"]["message"] == "Previously: for another"
    assert after["PodsReady"] == condition("PodsReady", "False", "WaitForStart")  # the owner's


@pytest.mark.parametrize(
    ("reason", "requeued"),
    [
        ("Deactivated", "Reactivated"),
        ("LocalQueueStopped", "LocalQueueRestarted"),
        ("ClusterQueueStopped", "ClusterQueueRestarted"),
        ("PodsReadyTimeout", "BackoffFinished"),
    ],
)
def test_one_that_was_taken_out_is_in_the_queue_again(reason: str, requeued: str) -> None:
    body = workload("a", 1)
    body["status"] = {"conditions": [condition("Requeued", "False", reason)]}
    after = conditions_of(the_write(view([body])))
    assert (after["Requeued"]["status"], after["Requeued"]["reason"]) == ("True", requeued)
    stopped = conditions_of(the_write(view([body], stop="Hold")))
    assert stopped["Requeued"]["status"] == "False"


def test_a_message_is_not_repeated() -> None:
    waiting = workload("b", 8)
    (write,) = decide(view([admitted(workload("a", 8)), waiting]), NOW)
    waiting["status"] = write.patch["status"]
    assert decide(view([admitted(workload("a", 8)), waiting]), NOW + 60) == []


def test_a_new_message_keeps_the_time_of_its_condition() -> None:
    waiting = workload("b", 8)
    waiting["status"] = {"conditions": [condition("QuotaReserved", "False", "Pending", "other", age=30)]}
    after = conditions_of(the_write(view([admitted(workload("a", 8)), waiting])))
    assert after["QuotaReserved"]["lastTransitionTime"] == format_time(NOW - 30)


def test_a_set_that_becomes_smaller_gives_quota_back() -> None:
    smaller = admitted(workload("a", 2, count=4))
    assert outcomes(view([smaller, workload("b", 4)])) == {"b": SHORT.format(4)}
    smaller["spec"]["podSets"][0]["count"] = 2
    assert outcomes(view([smaller, workload("b", 4)])) == {"b": "admitted"}


def test_quota_of_pods_that_need_none_again_goes_to_others() -> None:
    partly_done = admitted(workload("a", 2, count=4))
    partly_done["status"]["reclaimablePods"] = [{"name": "worker", "count": 3}]
    assert outcomes(view([partly_done, workload("b", 6)])) == {"b": "admitted"}
    assert outcomes(view([partly_done, workload("b", 7)])) == {"b": SHORT.format(1)}
    partly_done["spec"]["podSets"][0]["count"] = 2
    assert outcomes(view([partly_done, workload("b", 8)])) == {"b": "admitted"}
    ((_, status),) = cluster_queue_statuses(view([partly_done]), NOW)
    assert status["flavorsUsage"][0]["resources"] == [{"name": "cpu", "total": "0"}]


def test_a_waiting_workload_requests_its_remaining_need() -> None:
    waiting = {**workload("a", 2, count=5), "status": {"reclaimablePods": [{"name": "worker", "count": 4}]}}
    write = the_write(view([waiting]))
    (assignment,) = write.patch["status"]["admission"]["podSetAssignments"]
    assert (assignment["count"], assignment["resourceUsage"]) == (1, {"cpu": "2"})


def test_a_deleted_one_holds_its_quota_until_it_is_gone() -> None:
    leaving = admitted(workload("a", 8))
    leaving["metadata"]["deletionTimestamp"] = format_time(NOW)
    waiting = workload("b", 8)
    assert outcomes(view([leaving, waiting])) == {"b": TAKING.format(8, 1)}
    assert outcomes(view([waiting])) == {"b": "admitted"}


def test_it_runs_no_longer_than_it_may() -> None:
    running = admitted(workload("a", 1, maximumExecutionTimeSeconds=80), age=50)
    running["status"]["accumulatedPastExecutionTimeSeconds"] = 20
    of = view([running])
    assert (decide(of, NOW + 9), next_due(of.workloads)) == ([], NOW + 10)
    (write,) = decide(of, NOW + 10)
    assert write.patch["status"]["accumulatedPastExecutionTimeSeconds"] is None
    target = conditions_of(write)["DeactivationTarget"]
    assert (target["status"], target["reason"]) == ("True", "MaximumExecutionTimeExceeded")
    running["status"] |= {"conditions": write.patch["status"]["conditions"], "accumulatedPastExecutionTimeSeconds": 0}
    of = view([running])
    assert next_due(of.workloads) is None
    (write,) = decide(of, NOW + 50)
    assert (write.deactivates, write.patch) == (True, {"spec": {"active": False}})
    running["spec"]["active"] = False
    (write,) = decide(view([running]), NOW + 50)
    assert outcome(write) == "evicted: DeactivatedDueToMaximumExecutionTimeExceeded"
    assert "DeactivationTarget" not in conditions_of(write)
    running["status"]["conditions"] = write.patch["status"]["conditions"]
    (write,) = decide(view([running]), NOW + 50)
    assert conditions_of(write)["DeactivationTarget"]["status"] == "True", "again, as by Kueue 0.19.2"
    running["status"]["conditions"] = write.patch["status"]["conditions"]
    assert decide(view([running]), NOW + 50) == []


def test_one_that_the_condition_deactivates_is_not_queued_again() -> None:
    body = workload("a", 1)
    body["status"] = {"conditions": [condition("DeactivationTarget", "True", "MaximumExecutionTimeExceeded")]}
    assert outcomes(view([body])) == {"a": "deactivated"}


def test_after_the_reason_of_a_deactivation_by_kueue_it_is_never_queued_again() -> None:
    body = workload("a", 1)
    body["status"] = {"conditions": [condition("Requeued", "False", "DeactivatedDueToMaximumExecutionTimeExceeded")]}
    assert outcomes(view([body])) == {}


def test_the_quota_of_a_deactivated_one_is_free() -> None:
    deactivated, waiting = admitted(workload("a", 8, active=False)), workload("b", 8)
    of = view([deactivated, waiting])
    assert outcomes(of) == {"a": "evicted: Deactivated", "b": "admitted"}
    ((_, status),) = cluster_queue_statuses(of, NOW)
    assert status["reservingWorkloads"] == 0
    assert status["flavorsReservation"][0]["resources"][0]["total"] == "0"


def test_counts() -> None:
    workloads = [admitted(workload("a", 2, count=3)), evicted(workload("b", 1)), workload("c", 8), workload("d", 8)]
    of = view([*workloads, {**workload("e", 8), "status": {"conditions": [condition("Finished", "True", "x")]}}])
    statuses = [status for _, status in cluster_queue_statuses(of, NOW)]
    statuses += [status for record, status in local_queue_statuses(of, NOW) if record.name == "q"]
    assert len(statuses) == 2
    for status in statuses:
        counts = {name: status[f"{name}Workloads"] for name in ("pending", "reserving", "admitted")}
        assert counts == {"pending": 2, "reserving": 2, "admitted": 2}
        assert status["flavorsReservation"] == [{"name": "f", "resources": [{"name": "cpu", "total": "7"}]}]
        assert status["conditions"][0]["status"] == "True"


def test_a_status_is_written_when_it_changes() -> None:
    of = view([workload("a", 1)])
    ((record, status),) = cluster_queue_statuses(of, NOW)
    queue = stored("ClusterQueue", "cq", status=status)
    queue["spec"] = {
        "resourceGroups": [{"flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": 8}]}]}]
    }
    again = QueueView(of.workloads, of.local_queues, {record.key: decode_cluster_queue(queue)}, of.flavors)
    assert cluster_queue_statuses(again, NOW + 60) == []


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("cpu", "must be RESOURCE=QUANTITY, separated by commas, such as cpu=8,memory=16Gi: 'cpu'"),
        ("", "must be RESOURCE=QUANTITY, separated by commas, such as cpu=8,memory=16Gi: ''"),
        ("cpu=8,memory=lots", "memory: not a quantity: 'lots'"),
        ("cpu=-8", "cpu: not a quantity: '-8'"),
        ("cpu=8,cpu=9", "cpu: is given twice"),
    ],
)
def test_a_quota_that_cannot_be_read(text: str, error: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(error)}$"):
        parse_option(text)


def test_a_quota() -> None:
    assert parse_option("cpu=8, memory=16Gi,nvidia.com/gpu=4") == {"cpu": "8", "memory": "16Gi", "nvidia.com/gpu": "4"}


def test_a_record_keeps_its_order_in_the_queue() -> None:
    """Its age is the object's, also after an eviction."""
    back = workload("a", 8, age=90)
    back["status"] = {"conditions": [condition("Requeued", "True", "Preempted", age=1)]}
    assert outcomes(view([back, workload("b", 8, age=50)]))["a"] == "admitted"
    assert isinstance(decode_workload(back), QueuedWorkload)
