"""The rows of the protocol with Kueue (docs/lifecycle.md, "Queues")."""

import copy
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from frameworkcontroller.api.codec import encode_status
from frameworkcontroller.api.objects import Identity, QueueLabels
from frameworkcontroller.api.status import State
from frameworkcontroller.machine.kernel.actions import Create, Delete, Patch
from frameworkcontroller.machine.kernel.exchanges import Accepted, Exists, Gone
from frameworkcontroller.machine.kernel.model import NotListed
from frameworkcontroller.machine.kernel.reasons import Reason, RequestReason
from frameworkcontroller.machine.kernel.requests import Kind, MergePatch, Unanswered
from frameworkcontroller.machine.parts.kueue.queueing import Queueing, QueueReason
from frameworkcontroller.machine.parts.kueue.workloadactions import (
    CreateWorkload,
    Finish,
    ReadAdmission,
    ReadWorkload,
)
from frameworkcontroller.machine.parts.kueue.workloadbodies import ConditionChange
from tests.support.bench import UID, Body, foreign, refused, role
from tests.support.kueue import has_quota
from tests.support.podtemplates import pod_template
from tests.support.queuedbench import NAME, TARGET, QueuedBench, admitted, begun, entered, live, running, told

PATIENCE_SEC = 200
"""More than an object that is being deleted may stay."""
FINALIZER = "kueue.x-k8s.io/resource-in-use"


def template(**spec: Any) -> Body:
    """A Pod template."""
    return {"spec": {"containers": [{"name": "main", "image": "none"}], **spec}}


def assert_stall(bench: QueuedBench, expected: Reason, words: str) -> None:
    """Check that the Framework is stalled for that reason, with these words in the message."""
    reason, message = bench.stall()
    assert reason == expected
    assert words in message


# --- into the queue --------------------------------------------------------------------------------------------------


def test_a_framework_enters_its_queue_and_nothing_starts() -> None:
    bench = QueuedBench(role("a", 2), role("b", 3))
    bench.queue = QueueLabels("team-a", "high", "600")
    bench.classes["high"] = 1000
    bench.plan()
    assert bench.act() == ["CreateWorkload"]
    assert live(bench)["spec"]["queueName"] == "team-a"
    assert [(one["name"], one["count"]) for one in live(bench)["spec"]["podSets"]] == [("a", 2), ("b", 3)]
    assert live(bench)["spec"]["maximumExecutionTimeSeconds"] == 600
    reference = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}
    assert (live(bench)["spec"]["priorityClassRef"], live(bench)["spec"]["priority"]) == (reference, 1000)
    metadata = live(bench)["metadata"]
    assert metadata["finalizers"] == [FINALIZER]
    assert (metadata["labels"]["kueue.x-k8s.io/job-uid"], metadata["ownerReferences"][0]["uid"]) == (UID, UID)
    for _ in range(3):
        bench.idle()
    assert bench.status.state is State.CREATION_PENDING
    assert told(bench, "QuotaReserved") == ("False", "Pending", "Kueue has not looked at the Workload yet")
    assert told(bench, "Admitted") == ("False", "NoReservation", "the Framework has no quota yet")


def test_messages_of_kueue_alone_are_written_once_a_minute_and_hold_nothing_up() -> None:
    bench = entered()
    bench.say_then_plan(("QuotaReserved", False, "Pending", "0 more needed"))
    began, writes = bench.now, bench.writes
    for number in range(1, 60):
        bench.now = began + number
        bench.say(("QuotaReserved", False, "Pending", f"{number} more needed"))
        bench.plan(write=False)
        assert bench.tracker.is_clean
        bench.write()
    assert bench.writes <= writes + 1
    bench.now = began + 120
    made = bench.plan()
    assert told(bench, "QuotaReserved") == ("False", "Pending", "59 more needed")
    assert made.actions == []


def test_the_first_words_about_a_workload_do_not_wait_for_those_about_another() -> None:
    bench = entered()
    bench.plan()
    bench.say_then_plan(("QuotaReserved", False, "Pending", "8 more needed"))
    bench.edit_then_settle(suspend=True)
    bench.edit(suspend=False)
    bench.enter()
    bench.plan()
    assert told(bench, "QuotaReserved") == ("False", "Pending", "Kueue has not looked at the Workload yet")
    bench.say_then_plan(("QuotaReserved", False, "Pending", "9 more needed"))
    assert told(bench, "QuotaReserved") == ("False", "Pending", "9 more needed")


def test_a_change_of_the_request_is_patched_while_there_is_no_quota() -> None:
    bench = entered(role("a", 2))
    digest = live(bench)["metadata"]["annotations"]["FC_QUEUED_INPUTS"]
    bench.edit(role("a", 5))
    assert "UpdateWorkload" in [*bench.act(), *bench.act()]
    assert live(bench)["spec"]["podSets"][0]["count"] == 5
    assert live(bench)["metadata"]["annotations"]["FC_QUEUED_INPUTS"] != digest
    bench.queue = QueueLabels("team-b", "", "60")
    bench.act()
    assert (live(bench)["spec"]["queueName"], live(bench)["spec"]["maximumExecutionTimeSeconds"]) == ("team-b", 60)
    bench.queue = QueueLabels("team-b")
    bench.act()
    assert "maximumExecutionTimeSeconds" not in live(bench)["spec"]
    bench.idle()


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        (QueueLabels("Team_A"), "label kueue.x-k8s.io/queue-name: 'Team_A' must be lower case"),
        (QueueLabels("team-a", "High!"), "label kueue.x-k8s.io/priority-class: 'High!' must be lower case"),
        (QueueLabels("team-a", "", "1h"), "label kueue.x-k8s.io/max-exec-time-seconds: '1h' must be a number"),
        (QueueLabels("team-a", "", "0"), "label kueue.x-k8s.io/max-exec-time-seconds: '0' must be a number"),
    ],
)
def test_a_bad_label_stalls_until_it_is_fixed(labels: QueueLabels, text: str) -> None:
    bench = QueuedBench()
    bench.queue = labels
    bench.plan()
    bench.idle()
    reason, message = bench.stall()
    assert reason == QueueReason.INVALID
    assert message.startswith(text)
    bench.queue = QueueLabels("team-a")
    bench.enter()
    assert bench.stalls() == [("False", "Progressing")]


def test_a_priority_class_that_does_not_exist_stalls_until_it_does() -> None:
    bench = QueuedBench()
    bench.queue = QueueLabels("team-a", "high")
    bench.plan()
    bench.act()
    bench.plan()
    assert bench.stall() == (QueueReason.INVALID, "WorkloadPriorityClass high does not exist")
    assert bench.live is None
    bench.classes["high"] = 7
    bench.now += 60
    bench.enter()
    assert live(bench)["spec"]["priority"] == 7
    bench.plan()
    assert bench.stalls() == [("False", "Progressing")]


def test_the_priority_class_of_pods_counts_without_a_label() -> None:
    bench = QueuedBench(role(pod=template(priorityClassName="urgent")))
    bench.classes["urgent"] = 42
    bench.enter()
    reference = {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "urgent"}
    assert (live(bench)["spec"]["priorityClassRef"], live(bench)["spec"]["priority"]) == (reference, 42)


def test_more_roles_than_a_workload_may_have() -> None:
    bench = QueuedBench(*(role(f"r{number}") for number in range(19)))
    bench.plan()
    bench.idle()
    assert_stall(bench, QueueReason.TOO_MANY_ROLES, "at most 18 TaskRoles, and this one has 19")
    bench.edit(*(role(f"r{number}") for number in range(18)))
    bench.enter()
    assert bench.stalls() == [("False", "Progressing")]


@pytest.mark.parametrize("problem", ["", "404: the server could not find the requested resource", "403: forbidden"])
def test_without_workloads_nothing_starts(problem: str) -> None:
    bench = QueuedBench()
    bench.not_listed = NotListed(problem)
    for _ in range(3):
        bench.idle()
    if problem:
        reason, message = bench.stall()
        assert reason == QueueReason.UNAVAILABLE
        assert problem in message
    bench.not_listed = None
    bench.enter()
    assert (told(bench, "Stalled") or ("False",))[0] == "False"


def test_a_workload_of_another_owner_is_not_touched() -> None:
    bench = QueuedBench()
    bench.plan()
    for _ in range(3):
        action = bench.expect(CreateWorkload, 60)
        bench.fold(action, Exists(foreign(NAME)))
    bench.plan()
    assert bench.stall()[0] == RequestReason.NAMING_CONFLICT


def test_a_workload_that_has_lost_its_label_gets_it_back() -> None:
    bench = QueuedBench()
    bench.plan()
    action = bench.expect(CreateWorkload)
    bench.fold(action, Exists(Identity("w", UID, (), deleting=False)))
    patch = bench.expect(Patch)
    assert orjson.loads(patch.change) == {"metadata": {"labels": {"FC_FRAMEWORK_NAME": "f"}}}


@pytest.mark.parametrize("failure", [Unanswered("lost"), refused(500, "later"), refused(403, "forbidden: nobody may")])
def test_a_failed_creation_is_tried_again_and_told(failure: Any) -> None:
    bench = QueuedBench()
    bench.plan()
    bench.tracker.expectations.end_changes(frozenset({Kind.WORKLOAD}))
    for _ in range(3):
        made = bench.wait(60)
        (action,) = made.actions
        assert isinstance(action, CreateWorkload)
        bench.fold(action, failure)
    bench.plan()
    expected = QueueReason.UNAVAILABLE if "403" in str(failure) else QueueReason.NOT_ANSWERED
    assert bench.stall()[0] == expected


# --- the admission ---------------------------------------------------------------------------------------------------


def test_an_admission_is_persisted_before_the_attempt_begins() -> None:
    bench = admitted(role("a", 2))
    read = bench.expect(ReadAdmission)
    bench.perform(read, write=False)
    made = bench.plan(write=False)
    assert made.actions == []
    bench.write()
    stored = orjson.loads(encode_status("f", bench.status))["admission"]
    assert (stored["workloadUID"], stored["clusterQueue"], stored["queueName"]) == ("workload-1", "cq", "team-a")
    create = bench.expect(Create)
    assert orjson.loads(create.body)["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-a"
    assert told(bench, "Admitted") == ("True", "Admitted", f"Admitted by Workload {NAME}")


def pod_of(bench: QueuedBench, of_role: str = "a") -> Body:
    """The body of the first Pod of a role."""
    spec, admission = bench.framework.spec.role(of_role), bench.status.admission
    assert spec is not None
    assert admission is not None
    made = pod_template(bench.framework, bench.status.attempt, spec, "uid", admission)
    body: Body = orjson.loads(made.render(bench.task(of_role)))
    return body


def test_pods_get_the_assignments_of_kueue() -> None:
    own = [{"key": "own", "operator": "Exists"}]
    bench = QueuedBench(role(pod=template(nodeSelector={"disk": "ssd"}, tolerations=own)))
    toleration = {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}
    bench.flavors["gold"] = {"nodeLabels": {"flavor": "gold"}, "tolerations": [toleration]}
    bench.enter()
    update = {"name": "a", "labels": {"l": "1"}, "annotations": {"n": "2"}, "nodeSelector": {"zone": "z"}}
    check = {"name": "provisioning", "state": "Ready", "podSetUpdates": [{**update, "tolerations": own}]}
    bench.say(admissionChecks=[check])
    bench.admit_then_settle(topologyAssignment={"levels": ["host"], "slices": []})
    pod = pod_of(bench)
    assert pod["spec"]["nodeSelector"] == {"disk": "ssd", "flavor": "gold", "zone": "z"}
    assert pod["spec"]["tolerations"] == [*own, toleration]
    assert pod["spec"]["schedulingGates"] == [{"name": "kueue.x-k8s.io/topology"}]
    labels, annotations = pod["metadata"]["labels"], pod["metadata"]["annotations"]
    assert (labels["kueue.x-k8s.io/podset"], labels["l"]) == ("a", "1")
    assert (annotations["kueue.x-k8s.io/workload"], annotations["n"]) == (NAME, "2")
    assert annotations["kueue.x-k8s.io/podset-unconstrained-topology"] == "true"


@pytest.mark.parametrize(("cluster_queue", "shown"), [("cq-1", "cq-1"), ("research.gpu", None), ("q" * 64, None)])
def test_pods_have_the_names_of_their_queues(cluster_queue: str, shown: str | None) -> None:
    """As Kueue's own jobs have them: the ClusterQueue's name only if its name is one label of a domain name."""
    bench = entered()
    bench.admit(see=False)
    live(bench)["status"]["admission"]["clusterQueue"] = cluster_queue
    bench.see()
    bench.settle()
    labels = pod_of(bench)["metadata"]["labels"]
    assert labels["kueue.x-k8s.io/local-queue-name"] == "team-a"
    assert labels.get("kueue.x-k8s.io/cluster-queue-name") == shown


def test_the_bodies_of_pods_follow_from_the_persisted_admission() -> None:
    """Another process, and a flavor that has changed since, make no difference."""
    bench = running(role("a", 2))
    before = pod_of(bench)
    bench.restart()
    bench.flavors["gold"] = {"nodeLabels": {"flavor": "silver"}}
    bench.settle()
    assert pod_of(bench) == before


@pytest.mark.parametrize(
    ("flavor", "text"),
    [
        (
            {"nodeLabels": {"disk": "hdd"}},
            "ResourceFlavor gold asks for 'hdd' in the Pods of TaskRole a: nodeSelector disk, which is 'ssd' already",
        ),
        (None, "ResourceFlavor gold does not exist"),
    ],
)
def test_a_contradiction_is_a_stall_and_overrides_nothing(flavor: Body | None, text: str) -> None:
    bench = QueuedBench(role(pod=template(nodeSelector={"disk": "ssd"})))
    if flavor is None:
        del bench.flavors["gold"]
    else:
        bench.flavors["gold"] = flavor
    bench.enter()
    bench.admit_then_settle()
    assert bench.stall() == (QueueReason.ADMISSION_CONFLICT, text)
    assert "admission" not in orjson.loads(encode_status("f", bench.status))
    # Others may have the quota.
    assert bench.live is None
    bench.flavors["gold"] = {"nodeLabels": {"disk": "ssd"}}
    bench.now += 59
    bench.settle()
    assert bench.live is None
    bench.now += 2
    bench.enter()
    bench.admit_then_settle()
    assert bench.status.admission is not None
    assert bench.stalls() == [("False", "Progressing")]


@pytest.mark.parametrize("size", ["9" * 30, "9" * 5000, "2147483648", "-1", "\u0663", "", "x", "1e3", 7, None, [1], {}])
def test_an_odd_size_of_slices_is_not_asked_for(size: Any) -> None:
    """Where the size is needed, the API server refuses the Workload."""
    annotations = {"kueue.x-k8s.io/podset-required-topology": "rack", "kueue.x-k8s.io/podset-slice-size": size}
    bench = entered(role(pod={"metadata": {"annotations": annotations}, **template()}))
    request = live(bench)["spec"]["podSets"][0]["topologyRequest"]
    assert request == {"required": "rack", "podIndexLabel": "FC_TASK_INDEX"}


def test_an_admission_that_contradicts_the_pods_is_asked_for_less_and_less_often() -> None:
    bench = QueuedBench(role(pod=template(nodeSelector={"flavor": "lead"})))
    delays = []
    for _ in range(8):
        bench.enter()
        bench.admit_then_settle()
        assert bench.stall()[0] == QueueReason.ADMISSION_CONFLICT
        since = bench.now
        while bench.live is None:
            bench.wait(9000)
            bench.act()
        delays.append(round(bench.now - since))
    assert delays == [60, 120, 240, 480, 960, 1920, 3600, 3600]
    bench.admit_then_settle()
    assert bench.live is None
    bench.edit_then_settle(suspend=True)
    assert bench.stalls() == [("False", "Progressing")]
    bench.edit(role(pod=template(nodeSelector={"flavor": "gold"})), suspend=False)
    bench.enter()
    bench.admit_then_settle()
    assert bench.status.admission is not None


def test_a_check_that_is_not_ready_is_shown() -> None:
    """Kueue leaves the previous reason in the condition Admitted."""
    bench = entered()
    old = ("Admitted", False, "NoReservation", "The workload has no reservation")
    bench.say_then_plan(
        old, ("QuotaReserved", True, "QuotaReserved", "Quota reserved"), admission={"clusterQueue": "cq"}
    )
    assert told(bench, "QuotaReserved") == ("True", "QuotaReserved", "Quota reserved")
    assert told(bench, "Admitted") == ("False", "Pending", "Kueue has not admitted the Workload yet")
    checks = [
        {"name": "budget", "state": "Ready", "message": "enough"},
        {"name": "prov", "state": "Pending", "message": "waiting for 3 nodes"},
        {"name": "multi", "state": "Retry", "message": ""},
    ]
    bench.say_then_plan(admissionChecks=checks)
    text = "admission check prov is Pending: waiting for 3 nodes; admission check multi is Retry"
    assert told(bench, "Admitted") == ("False", "UnsatisfiedChecks", text)
    bench.say_then_plan(("Admitted", False, "UnsatisfiedAdmissionChecks", "The workload has not all checks ready"))
    assert told(bench, "Admitted") == ("False", "UnsatisfiedAdmissionChecks", text)


def test_a_topology_of_the_template_is_asked_for() -> None:
    annotated = {"metadata": {"annotations": {"kueue.x-k8s.io/podset-required-topology": "rack"}}, **template()}
    bench = entered(role(pod=annotated))
    request = live(bench)["spec"]["podSets"][0]["topologyRequest"]
    assert request == {"required": "rack", "podIndexLabel": "FC_TASK_INDEX"}
    bench.admit_then_settle(topologyAssignment={})
    annotations = pod_of(bench)["metadata"]["annotations"]
    assert "kueue.x-k8s.io/podset-unconstrained-topology" not in annotations


def test_the_workload_has_no_more_of_a_template_than_quota_needs() -> None:
    pod = template(volumes=[{"name": "v", "secret": {"secretName": "s"}}], nodeSelector={"x": "{{FC_TASKROLE_NAME}}"})
    container = pod["spec"]["containers"][0]
    container |= {
        "env": [{"name": "TOKEN", "value": "secret"}],
        "command": ["run"],
        "resources": {"limits": {"cpu": "1"}},
    }
    pod["metadata"] = {"labels": {"of": "{{FC_FRAMEWORK_NAME}}"}}
    bench = entered(role(pod=pod))
    made = live(bench)["spec"]["podSets"][0]["template"]
    assert "secret" not in str(made)
    assert made["metadata"]["labels"] == {"of": "f"}
    assert made["spec"]["nodeSelector"] == {"x": "a"}
    assert made["spec"]["containers"] == [{"name": "main", "image": "none", "resources": {"limits": {"cpu": "1"}}}]


# --- Pods that Kueue queues by themselves ----------------------------------------------------------------------------


def gate(bench: QueuedBench, name: str, *gates: str) -> None:
    """The Pod has these scheduling gates."""
    bench.bodies[name]["spec"]["schedulingGates"] = [{"name": one} for one in gates]
    bench.show(name, phase="Pending")
    bench.tracker.agenda.wake({("a", 0), ("a", 1)})


@pytest.mark.parametrize("restarted", [False, True])
def test_a_pod_that_kueue_queues_by_itself_stalls_until_it_does_not(restarted: bool) -> None:
    bench = begun(role("a", 2))
    bench.settle()
    gate(bench, "f-a-1", "kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology")
    if restarted:
        bench.restart()
    bench.plan()
    bench.plan()
    reason, message = bench.stall()
    assert reason == QueueReason.POD_QUEUED_TWICE
    assert message.startswith("Pod f-a-1 has the scheduling gate kueue.x-k8s.io/admission: ")
    assert "docs/kueue.md" in message
    assert bench.code() is None
    gate(bench, "f-a-1", "kueue.x-k8s.io/topology")
    bench.plan()
    bench.plan()
    assert bench.stalls() == [("False", "Progressing")]


def test_the_stall_of_a_pod_that_kueue_queues_by_itself_is_over_with_the_pod() -> None:
    bench = begun()
    bench.settle()
    gate(bench, "f-a-0", "kueue.x-k8s.io/admission")
    bench.plan()
    bench.plan()
    assert bench.stall()[0] == QueueReason.POD_QUEUED_TWICE
    bench.edit_then_settle(suspend=True)
    bench.vanish()
    bench.settle()
    assert bench.stalls() == [("False", "Progressing")]


def test_a_framework_without_a_queue_may_have_pods_that_kueue_queues() -> None:
    bench = QueuedBench()
    bench.queue = None
    bench.settle()
    gate(bench, "f-a-0", "kueue.x-k8s.io/admission")
    bench.plan()
    bench.plan()
    assert told(bench, "Stalled") is None


# --- evictions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [{}, {"maxRetryCount": 3}, {"maxRetryCount": -2}, {"fancyRetryPolicy": True}])
@pytest.mark.parametrize("reason", ["Preempted", "PodsReadyTimeout", "ClusterQueueStopped", "Whatever"])
def test_an_eviction_ends_the_attempt_and_gives_the_quota_back_when_nothing_runs(policy: Body, reason: str) -> None:
    bench = running(role("a", 2), retryPolicy=policy)
    bench.evict(reason)
    look = bench.expect(ReadWorkload)
    bench.perform(look)
    assert bench.plan(write=False).actions == []
    assert (bench.code(), bench.status.state) == (-241, State.DELETION_PENDING)
    bench.write()
    deletion = bench.expect(Delete)
    bench.fold(deletion, Accepted())
    for _ in range(3):
        bench.plan()
        assert has_quota(live(bench))
    bench.vanish()
    bench.settle()
    body = live(bench)
    assert "admission" not in body["status"]
    assert bench.found("QuotaReserved") == ("False", "Pending")
    assert bench.found("Admitted") == ("False", "NoReservation")
    assert (bench.found("Requeued"), bench.found("Evicted")) == ((str(reason == "Preempted"), reason), ("True", reason))
    retry = bench.status.retry
    assert (retry.total_retried_count, retry.accountable_retried_count) == (1, 0)
    assert (bench.status.state, bench.status.attempt.id) == (State.CREATION_PENDING, 1)
    bench.admit_then_settle()
    assert bench.status.admission is not None
    assert bench.states() == ["Preparing", "Preparing"]


def assert_texts(bench: QueuedBench, *kinds: str) -> None:
    """Check that these conditions of the Workload have a reason and a message, as an API server of 1.20 demands."""
    found = {one["type"]: one for one in live(bench)["status"]["conditions"]}
    assert [kind for kind in kinds if not (found[kind]["reason"] and found[kind]["message"])] == []


@pytest.mark.parametrize(("reason", "message"), [("Preempted", ""), ("", "somebody else needs it"), ("", "")])
def test_an_eviction_without_words_gives_the_quota_back(reason: str, message: str) -> None:
    bench = running()
    bench.say(("Evicted", True, reason, message))
    bench.settle()
    assert not has_quota(live(bench))
    assert_texts(bench, "QuotaReserved", "Admitted", "Requeued", "PodsReady")


def test_a_completion_without_diagnostics_finishes_the_workload() -> None:
    bench = running()
    change = ConditionChange("Finished", True, "Succeeded", "")
    bench.perform(Finish(TARGET, live(bench)["metadata"]["uid"], change, int(bench.now)))
    assert_texts(bench, "Finished")
    assert live(bench)["metadata"]["finalizers"] == []


@pytest.mark.parametrize("what", ["delete", "finish", "gone", "another", "unadmitted"])
def test_an_attempt_ends_with_its_admission(what: str) -> None:
    bench = running()
    match what:
        case "delete":
            bench.delete_workload()
        case "finish":
            bench.say(("Finished", True, "OutOfSync", "by another"))
        case "gone":
            bench.live = None
            bench.see()
        case "another":
            live(bench)["metadata"]["uid"] = "another"
            bench.changed_and_seen()
        case "unadmitted":
            bench.say(("Admitted", False, "ChecksPending", "a check is back"))
    bench.act()
    bench.plan()
    assert bench.code() == -241
    if what == "unadmitted":
        bench.evict("AdmissionCheck")
    bench.settle()
    if what == "another":
        admission = bench.status.admission
        assert admission is not None
        assert (admission.workload_uid, bench.status.attempt.id) == ("another", 1)
        return
    assert bench.status.admission is None
    assert live(bench)["metadata"]["finalizers"] == [FINALIZER]
    bench.admit_then_settle()
    assert bench.status.admission is not None


def test_a_stale_cache_evicts_no_framework() -> None:
    bench = running()
    bench.evict()
    evicted = bench.services[NAME]
    bench.say(("Evicted", False, "QuotaReserved", ""), see=False)
    bench.services[NAME] = evicted
    bench.perform(bench.only(bench.plan()))
    for _ in range(3):
        bench.idle()
    assert bench.code() is None
    bench.see()
    bench.idle()


def test_an_eviction_in_the_wait_for_a_retry_gives_the_quota_back_at_once() -> None:
    bench = running(
        role(failed=1), retryPolicy={"maxRetryCount": 3, "backoff": {"baseSeconds": 900, "maxSeconds": 900}}
    )
    bench.end(code=1)
    bench.evict_then_settle()
    assert (bench.status.state, bench.status.admission) == (State.ATTEMPT_COMPLETED, None)
    assert not has_quota(live(bench))


def test_a_retry_of_its_own_keeps_the_quota() -> None:
    bench = running(role(failed=1), retryPolicy={"maxRetryCount": 3})
    bench.end(code=1)
    assert bench.status.attempt.id == 1
    assert bench.status.retry.accountable_retried_count == 1
    assert bench.states() == ["Preparing"]
    assert live(bench)["metadata"]["uid"] == "workload-1"
    assert has_quota(live(bench))


@pytest.mark.parametrize(
    "changed",
    [
        template(nodeSelector={"disk": "ssd"}),
        template(tolerations=[{"operator": "Exists"}]),
        template(schedulerName="other"),
        {"spec": {"containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "9"}}}]}},
        {"metadata": {"annotations": {"kueue.x-k8s.io/podset-required-topology": "rack"}}, **template()},
    ],
)
def test_a_template_that_was_not_admitted_ends_the_attempt(changed: Body) -> None:
    bench = running(role(pod=template()))
    bench.edit_then_plan(role(pod=changed))
    assert bench.code() == -241
    assert "WorkloadOutOfSync" in str(bench.status.attempt.completion_status)
    bench.settle()
    assert bench.status.admission is None
    assert live(bench)["metadata"]["uid"] != "workload-1"
    assert bench.found("QuotaReserved") is None


@pytest.mark.parametrize("make", [entered, running])
def test_another_image_changes_neither_the_request_nor_the_attempt(make: Callable[[Body], QueuedBench]) -> None:
    bench = make(role(pod=template()))
    before = copy.deepcopy(live(bench))
    changed = template()
    changed["spec"]["containers"][0] |= {"image": "another", "command": ["run"]}
    bench.edit_then_settle(role(pod=changed))
    assert live(bench) == before
    assert (bench.code(), bench.status.attempt.id) == (None, 0)


def test_a_digest_of_another_version_counts_as_equal_while_something_runs() -> None:
    bench = running(role(pod=template()))
    admission = bench.status.admission
    assert admission is not None
    (pod_set,) = admission.pod_sets
    other = type(admission)("team-a", NAME, "workload-1", "cq", [type(pod_set)("a", 1, "0:old")])
    bench.tracker.part(Queueing).set_admission(bench.tracker, other)
    bench.settle()
    assert bench.code() is None


# --- the number of Tasks ---------------------------------------------------------------------------------------------


def test_added_tasks_wait_for_ends() -> None:
    bench = running(role("a", 2, succeeded=-1))
    bench.edit_then_settle(role("a", 4))
    assert bench.states() == ["Running", "Running", "CreationPending", "CreationPending"]
    message = (told(bench, "Admitted") or ("", "", ""))[2]
    assert "only 2 of the 4 Tasks of TaskRole a until the next FrameworkAttempt" in message
    bench.end("f-a-0")
    assert bench.states() == ["Completed", "Running", "Preparing", "CreationPending"]
    bench.run("f-a-2")
    bench.end("f-a-1")
    assert bench.states() == ["Completed", "Completed", "Running", "Preparing"]


def test_a_retried_task_keeps_its_place() -> None:
    bench = running(role("a", 2, retryPolicy={"maxRetryCount": 1}))
    bench.edit_then_settle(role("a", 3, retryPolicy={"maxRetryCount": 1}))
    bench.end("f-a-0", code=1)
    assert sum(name in bench.pods for name in ("f-a-0", "f-a-1", "f-a-2")) == 2


def reclaimable(bench: QueuedBench) -> dict[str, int]:
    """The Pods by podSet whose quota is released."""
    found = live(bench)["status"].get("reclaimablePods") or ()
    return {one["name"]: one["count"] for one in found}


def reclaimed(bench: QueuedBench) -> list[tuple[int, int]]:
    """By role, the admitted Pods and the Pods with released quota, in the status."""
    assert bench.status.admission is not None
    return [(one.count, one.reclaimed) for one in bench.status.admission.pod_sets]


def test_a_refused_release_of_quota_does_no_harm() -> None:
    bench = running(role("a", 3, succeeded=-1))
    asked: list[Body] = []

    def refuse(change: Body) -> str | None:
        if "reclaimablePods" not in change.get("status", ()):
            return None
        asked.append(change)
        return "reclaimablePods: nobody may"

    bench.refuses = refuse
    bench.end("f-a-0")
    for _ in range(5):
        bench.now += 60
        bench.settle()
    assert len(asked) == 1
    assert told(bench, "Stalled") is None
    assert bench.code() is None


# --- quota of completed Tasks ----------------------------------------------------------------------------------------


def test_quota_of_completed_tasks_goes_back_while_others_run() -> None:
    """The completion and the number are persisted in one write, before the request to Kueue."""
    bench = running(role("a", 8, succeeded=-1), role("b", 1))
    for index in range(6):
        bench.stop(f"f-a-{index}")
    for _ in range(5):
        for action in bench.plan().actions:
            bench.fold(action, Accepted())
            bench.hide(action.target.name)
        if bench.state() is State.COMPLETED:
            break
    assert bench.tracker.is_clean
    stored = orjson.loads(encode_status("f", bench.status))
    assert [one.get("reclaimed") for one in stored["admission"]["podSets"]] == [6, None]
    assert reclaimable(bench) == {}
    assert bench.act() == ["Reclaim"]
    assert reclaimable(bench) == {"a": 6}
    bench.settle()
    assert [*bench.states(), *bench.states("b")] == ["Completed"] * 6 + ["Running"] * 3
    assert told(bench, "Admitted") == ("True", "Admitted", f"Admitted by Workload {NAME}")
    bench.restart()
    bench.see()
    bench.settle()
    assert reclaimed(bench) == [(8, 6), (1, 0)]
    assert bench.code() is None


def test_steps_in_which_quota_goes_back_are_few() -> None:
    bench = running(role("a", 8, succeeded=-1))
    bench.requests.clear()
    for index in range(7):
        bench.end(f"f-a-{index}")
        bench.now += 1
    assert sum(isinstance(one, MergePatch) for one in bench.requests) == 1
    assert reclaimable(bench) == {"a": 1}
    bench.now += 10
    bench.settle()
    assert reclaimable(bench) == {"a": 7}


@pytest.mark.parametrize("delay", [None, {"baseSeconds": 600, "maxSeconds": 600}])
def test_quota_of_a_task_that_may_be_retried_is_kept(delay: Body | None) -> None:
    retry: Body = {"maxRetryCount": 1}
    if delay is not None:
        retry["backoff"] = delay
    bench = running(role("a", 3, retryPolicy=retry))
    bench.end("f-a-0", code=1)
    assert reclaimed(bench) == [(3, 0)]
    bench.now += 700
    bench.settle()
    bench.run("f-a-0")
    bench.end("f-a-0", code=1)
    assert bench.states() == ["Completed", "Running", "Running"]
    assert reclaimable(bench) == {"a": 1}


def test_a_retry_of_the_rest_finds_its_quota() -> None:
    bench = running(role("a", 3, succeeded=-1, retryPolicy={"maxRetryCount": 1}))
    bench.end("f-a-0")
    assert reclaimable(bench) == {"a": 1}
    bench.end("f-a-1", code=1)
    assert bench.states() == ["Completed", "Preparing", "Running"]


def test_the_next_attempt_needs_another_admission_after_quota_went_back() -> None:
    """It needs all of it, and keeps its place in the queue, and its used time, without earlier checks."""
    bench = running(role("a", 2, failed=1, succeeded=-1), retryPolicy={"maxRetryCount": 1})
    check = {"name": "prov", "state": "Ready", "message": "ok", "podSetUpdates": [{"name": "a"}]}
    bench.say(admissionChecks=[{**check, "lastTransitionTime": "2020-01-01T00:00:00Z"}])
    bench.end("f-a-0")
    assert reclaimable(bench) == {"a": 1}
    bench.end("f-a-1", code=1, after=100)
    assert bench.status.admission is None
    assert bench.status.attempt.id == 1
    assert bench.states() == ["CreationPending", "CreationPending"]
    status = live(bench)["status"]
    assert not has_quota(live(bench))
    assert ("admission" in status, "reclaimablePods" in status) == (False, False)
    assert status["accumulatedPastExecutionTimeSeconds"] >= 100
    assert [(one["state"], "podSetUpdates" in one) for one in status["admissionChecks"]] == [("Pending", False)]
    assert bench.found("Requeued") is None
    assert live(bench)["metadata"]["uid"] == "workload-1"
    bench.admit_then_settle()
    assert bench.states() == ["Preparing", "Preparing"]
    assert reclaimed(bench) == [(2, 0)]


def test_an_admission_with_earlier_released_quota_is_never_taken() -> None:
    """Kueue admits fewer Pods by earlier numbers, as after a reservation that others have cleared."""
    bench = entered(role("a", 2))
    bench.say(reclaimablePods=[{"name": "a", "count": 1}], see=False)
    bench.admit(see=False)
    bench.see()
    bench.settle()
    assert bench.status.admission is None
    assert not has_quota(live(bench))
    assert reclaimable(bench) == {}
    bench.admit_then_settle()
    assert bench.states() == ["Preparing", "Preparing"]


def test_an_eviction_resets_released_quota() -> None:
    bench = running(role("a", 2, succeeded=-1))
    bench.end("f-a-0")
    assert reclaimable(bench) == {"a": 1}
    bench.evict_then_settle()
    assert not has_quota(live(bench))
    assert reclaimable(bench) == {}
    assert bench.found("Requeued") == ("True", "Preempted")


def test_tasks_that_are_added_after_quota_went_back_wait_for_other_tasks() -> None:
    bench = running(role("a", 3, succeeded=-1))
    bench.end("f-a-0")
    bench.end("f-a-1", after=20)
    assert reclaimed(bench) == [(3, 2)]
    bench.edit_then_settle(role("a", 5, succeeded=-1))
    assert bench.states() == ["Completed", "Completed", "Running", "CreationPending", "CreationPending"]
    message = (told(bench, "Admitted") or ("", "", ""))[2]
    assert "only 1 of the 3 Tasks of TaskRole a until the next FrameworkAttempt" in message
    bench.end("f-a-2")
    assert bench.states() == ["Completed", "Completed", "Completed", "Preparing", "CreationPending"]
    assert reclaimable(bench) == {"a": 2}


def test_tasks_that_are_added_to_a_role_without_quota_end_the_attempt_with_the_last_others() -> None:
    bench = running(role("a", 1, succeeded=-1), role("b", 1, succeeded=-1))
    bench.end("f-a-0")
    bench.edit_then_settle(role("a", 2, succeeded=-1), role("b", 1, succeeded=-1))
    assert [*bench.states(), *bench.states("b")] == ["Completed", "CreationPending", "Running"]
    assert (bench.found("PodsReady") or ("",))[0] == "True"
    bench.end("f-b-0")
    assert bench.status.attempt.id == 1
    assert [one["count"] for one in live(bench)["spec"]["podSets"]] == [2, 1]


def test_a_role_that_waits_for_others_keeps_its_quota() -> None:
    waits = [{"name": "a", "status": "Complete"}]
    bench = running(role("a", 2, succeeded=-1), {**role("b", 2), "dependsOn": waits})
    bench.end("f-a-0")
    assert reclaimed(bench) == [(2, 1), (2, 0)]
    bench.end("f-a-1", after=20)
    assert reclaimed(bench) == [(2, 2), (2, 0)]
    assert bench.states("b") == ["Preparing", "Preparing"]


def test_more_tasks_are_queued_with_the_next_attempt() -> None:
    bench = running(role("a", 1, failed=1), retryPolicy={"maxRetryCount": 1})
    bench.edit_then_settle(role("a", 2, failed=1), retryPolicy={"maxRetryCount": 1})
    bench.end(code=1)
    assert bench.status.admission is None
    assert live(bench)["spec"]["podSets"][0]["count"] == 2
    assert live(bench)["metadata"]["uid"] != "workload-1"
    bench.admit_then_settle()
    assert bench.states() == ["Preparing", "Preparing"]


# --- PodsReady and priority ------------------------------------------------------------------------------------------


def test_kueue_learns_when_all_tasks_run_and_when_they_recover() -> None:
    bench = begun(role("a", 2, retryPolicy={"maxRetryCount": 9}))
    bench.settle()
    for name, ready in (("f-a-0", None), ("f-a-1", ("True", "Started"))):
        assert bench.found("PodsReady") is None
        bench.run(name)
        bench.settle()
        assert bench.found("PodsReady") == ready
    bench.end("f-a-0", code=1, after=60)
    bench.now += 60
    bench.settle()
    assert bench.found("PodsReady") == ("False", "WaitForRecovery")
    bench.now += 60
    bench.run("f-a-0")
    bench.settle()
    assert bench.found("PodsReady") == ("True", "Recovered")


def test_completed_tasks_and_roles_that_wait_for_others_are_ready() -> None:
    bench = begun(role("a"), {**role("b"), "dependsOn": [{"name": "a", "status": "Complete"}]})
    bench.settle()
    bench.run("f-a-0")
    bench.settle()
    assert (bench.found("PodsReady") or ("",))[0] == "True"


def test_readiness_changes_at_most_every_ten_seconds() -> None:
    bench = running(role("a", 1, retryPolicy={"maxRetryCount": -2}))
    versions = live(bench)["metadata"]["resourceVersion"]
    for _ in range(3):
        bench.end("f-a-0", code=1, after=1)
        if "f-a-0" in bench.pods:
            bench.run("f-a-0")
            bench.settle()
    assert live(bench)["metadata"]["resourceVersion"] == versions


def test_the_next_attempt_of_an_admission_recovers() -> None:
    """Kueue measures WaitForStart from the admission, which may be long ago."""
    bench = running(role(failed=1), retryPolicy={"maxRetryCount": 3})
    bench.end(code=1, after=60)
    bench.now += 60
    bench.settle()
    assert bench.found("PodsReady") == ("False", "WaitForRecovery")


def test_another_priority_class_counts_at_once() -> None:
    bench = QueuedBench()
    bench.queue = QueueLabels("team-a", "low")
    bench.classes |= {"low": 1, "high": 9}
    bench.begin()
    bench.all_pods_run()
    bench.queue = QueueLabels("team-a", "high")
    bench.settle()
    assert live(bench)["spec"]["priority"] == 9
    assert live(bench)["spec"]["priorityClassRef"]["name"] == "high"
    assert bench.code() is None


def test_a_priority_that_another_controller_undoes_is_not_changed_without_a_pause() -> None:
    bench = QueuedBench()
    bench.queue = QueueLabels("team-a", "low")
    bench.classes |= {"low": 1, "high": 9}
    bench.begin()
    bench.all_pods_run()
    for _ in range(3):
        for name, priority in (("high", 9), ("low", 1)):
            bench.queue = QueueLabels("team-a", name)
            bench.settle()
            changed = live(bench)["spec"]["priority"] == priority
            assert changed == (name == "high")
        bench.now += 5
        bench.settle()
        assert live(bench)["spec"]["priority"] == 1
        bench.now += 5


@pytest.mark.parametrize(("before", "after"), [("", "high"), ("low", "")])
def test_a_record_shows_that_an_added_or_removed_priority_class_counts_later(before: str, after: str) -> None:
    """Kueue's schema lets no Workload with quota get or lose one."""
    bench = QueuedBench()
    bench.queue = QueueLabels("team-a", before)
    bench.classes |= {"low": 1, "high": 9}
    bench.begin()
    bench.all_pods_run()

    def recorded() -> list[str]:
        return [one.message for one in bench.plan().records if one.reason is QueueReason.PRIORITY_KEPT]

    assert recorded() == []
    bench.queue = QueueLabels("team-a", after)
    what = "high was added" if after else "was removed"
    text = f"label kueue.x-k8s.io/priority-class: the priority class {what}, which counts from the next admission"
    assert [one.partition(": Kueue")[0] for one in recorded()] == [text]
    assert recorded() == []
    assert live(bench)["spec"].get("priority") == bench.classes.get(before)
    bench.queue = QueueLabels("team-a", before)
    assert recorded() == []
    bench.queue = QueueLabels("team-a", after)
    assert len(recorded()) == 1
    bench.evict_then_settle()
    bench.vanish()
    bench.settle()
    assert live(bench)["spec"].get("priority") == bench.classes.get(after)


# --- out of the queue ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [running, entered])
def test_a_suspended_framework_leaves_the_queue_and_enters_it_again(make: Callable[[], QueuedBench]) -> None:
    bench = make()
    bench.edit_then_settle(suspend=True)
    assert (bench.live, bench.status.admission) == (None, None)
    assert told(bench, "Suspended") == ("True", "Suspended", "spec.suspend is true; nothing of the Framework runs")
    bench.edit_then_settle(suspend=False)
    assert live(bench)["metadata"]["uid"] != "workload-1"
    assert bench.status.retry.accountable_retried_count == 0


def test_without_the_label_a_waiting_framework_starts_once_it_has_left_the_queue() -> None:
    bench = admitted()
    bench.queue = None
    began = False
    for _ in range(20):
        for action in bench.plan().actions:
            if isinstance(action, Create):
                began = True
                assert bench.live is None
                bench.created(action)
            elif not bench.do(action):
                bench.fold(action, Gone())
    assert began
    assert told(bench, "QuotaReserved") is None


def held_by_others(*, queued: bool) -> QueuedBench:
    """A Framework that waits for its Workload, which is being deleted, and has a finalizer of another client."""
    bench = entered()
    live(bench)["metadata"]["finalizers"].append("example.com/audit")
    if queued:
        bench.delete_workload()
    else:
        bench.changed_and_seen()
        bench.queue = None
    bench.settle()
    assert live(bench)["metadata"]["finalizers"] == ["example.com/audit"]
    return bench


@pytest.mark.parametrize("queued", [True, False])
def test_a_workload_that_another_clients_finalizer_holds_stalls_until_it_is_gone(queued: bool) -> None:
    bench = held_by_others(queued=queued)
    assert (told(bench, "Stalled") or ("False",))[0] == "False"
    assert bench.wait(PATIENCE_SEC).actions == []
    bench.plan()
    reason, message = bench.stall()
    assert reason == QueueReason.NOT_GONE
    assert message.startswith(f"Workload {NAME} was to be deleted by ")
    assert message.endswith("and still exists: a finalizer holds it")
    bench.live = None
    bench.see()
    next_actions = bench.plan().actions
    assert bench.stalls() == [("False", "Progressing")]
    for action in next_actions:
        bench.do(action)
    bench.settle()
    assert (bench.live is not None) == queued


def test_a_framework_that_does_not_wait_for_its_workload_is_not_stalled() -> None:
    bench = held_by_others(queued=True)
    bench.edit(suspend=True)
    bench.wait(PATIENCE_SEC)
    bench.plan()
    assert (told(bench, "Stalled") or ("False",))[0] == "False"


@pytest.mark.parametrize("queue", [None, "team-b"])
def test_a_running_framework_leaves_its_queue_after_the_attempt(queue: str | None) -> None:
    bench = running(role(failed=1), retryPolicy={"maxRetryCount": 3})
    bench.queue = None if queue is None else QueueLabels(queue)
    bench.settle()
    assert bench.code() is None
    assert has_quota(live(bench))
    bench.end(code=1)
    assert bench.status.admission is None
    if queue is None:
        assert (bench.live, bench.states()) == (None, ["Preparing"])
    else:
        assert live(bench)["spec"]["queueName"] == queue


def test_a_framework_that_runs_without_a_queue_enters_it_afterwards() -> None:
    bench = QueuedBench(role(failed=1), retryPolicy={"maxRetryCount": 3})
    bench.queue = None
    bench.all_pods_run()
    bench.queue = QueueLabels("team-a")
    bench.settle()
    assert bench.states() == ["Running"]
    assert bench.live is None
    assert (told(bench, "QuotaReserved") or ("",))[:2] == ("False", "NotQueued")
    bench.end(code=1)
    assert bench.status.state is State.CREATION_PENDING
    assert live(bench)["spec"]["queueName"] == "team-a"


@pytest.mark.parametrize(("exit_code", "reason"), [(0, "Succeeded"), (1, "Failed")])
def test_a_completed_framework_is_finished_for_kueue(exit_code: int, reason: str) -> None:
    bench = running(role(failed=1))
    bench.end(code=exit_code)
    assert bench.status.state is State.COMPLETED
    assert bench.found("Finished") == ("True", reason)
    assert live(bench)["metadata"]["finalizers"] == []
    assert told(bench, "QuotaReserved") is None
    bench.idle()


def test_stop_finishes_a_framework_that_waits() -> None:
    bench = entered()
    bench.edit_then_settle(executionType="Stop")
    assert (bench.status.state, bench.code()) == (State.COMPLETED, -210)
    assert bench.found("Finished") is not None
    assert live(bench)["metadata"]["finalizers"] == []


def test_a_framework_without_a_queue_looks_for_its_workload_once() -> None:
    bench = QueuedBench()
    bench.queue = None
    bench.all_pods_run()
    assert bench.looks <= 1
    assert b"dmission" not in encode_status("f", bench.status)
