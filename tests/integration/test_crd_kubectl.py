"""The Framework CRD as a person meets it through kubectl."""

import yaml

from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.manager.app import Controller
from tests.support.clusters import Cluster
from tests.support.eventually import eventually
from tests.support.frameworks import Frameworks, role, states
from tests.support.kubectl import Kubectl
from tests.support.realcluster import CRD


async def test_explain_teaches_the_spec(kubectl: Kubectl) -> None:
    async def explain() -> str:
        # An API server publishes the schema of a resource a while after it serves the resource.
        answer = await kubectl("explain", "framework.spec.taskRoles.frameworkAttemptCompletionPolicy")
        assert answer.code == 0, answer.err
        return " ".join(answer.out.split())

    said = await eventually(explain, every=0.5)
    assert "minSucceededTaskCount <integer>" in said
    assert "Decides when the completed Tasks of this TaskRole complete the attempt of the whole Framework." in said


async def test_get_shows_how_frameworks_stand(kubectl: Kubectl) -> None:
    await kubectl.ok("create", "-f", "-", stdin=framework("f1"))
    status = {
        "state": "Completed",
        "phase": "Succeeded",
        "message": "all is well",
        "runTime": "2026-01-01T00:00:00Z",
        "completionTime": None,
        "retryPolicyStatus": {"totalRetriedCount": 2, "accountableRetriedCount": 1, "retryDelaySec": None},
        "taskCounts": {"total": 5, "running": 0, "succeeded": 4, "failed": 1},
        "attemptStatus": {"completionStatus": {"code": 0, "phrase": "Succeeded"}},
    }
    await kubectl.ok(
        "patch", "fw", "f1", "--subresource=status", "--type=merge", "-p", yaml.safe_dump({"status": status})
    )
    header, row = (await kubectl.ok("get", "fw")).splitlines()
    assert header.split() == ["NAME", "PHASE", "TASKS", "RETRIES", "AGE"]
    assert row.split()[:-1] == ["f1", "Succeeded", "5", "2"]
    header, row = (await kubectl.ok("get", "fw", "-o", "wide")).splitlines()
    assert header.split()[5:11] == ["WHY", "QUEUE", "STATE", "RUNNING", "SUCCEEDED", "FAILED"]
    assert "all is well" in row


async def test_delete_all_spares_frameworks(kubectl: Kubectl) -> None:
    await kubectl.ok("create", "-f", "-", stdin=framework("f1"))
    assert "frameworkcontroller" not in await kubectl.ok("get", "all")
    await kubectl.ok("delete", "all", "--all")
    assert (await kubectl.ok("get", "fw", "f1", "-o", "jsonpath={.metadata.deletionTimestamp}")) == ""


async def test_get_counts_the_tasks(
    controller: Controller, pods: SimulatedRuntime, kubectl: Kubectl, cluster: Cluster, frameworks: Frameworks
) -> None:
    await frameworks.create("f", role("a", 3), role("b", 1))
    await frameworks.until_running("f", 4)
    assert (await kubectl.ok("get", "fw", "f", "--no-headers")).split()[1:-1] == ["Running", "4", "0"]
    pods.finish(f"{cluster.namespace}/f-a-0")
    pods.fail(f"{cluster.namespace}/f-b-0")
    await frameworks.until("f", lambda status: states(status).count("Completed") == 2)
    counts = "jsonpath={.status.taskCounts.running} {.status.taskCounts.succeeded} {.status.taskCounts.failed}"
    assert await kubectl.ok("get", "fw", "f", "-o", counts) == "2 1 1"
    await frameworks.set("f", taskRoles__0__taskNumber=2)
    await frameworks.until("f", lambda status: states(status).count("AttemptRunning") == 1)
    assert await kubectl.ok("get", "fw", "f", "-o", counts) == "1 1 1"


async def test_a_framework_without_a_status_is_shown(kubectl: Kubectl) -> None:
    await kubectl.ok("create", "-f", "-", stdin=framework("f1"))
    _, row = (await kubectl.ok("get", "frameworks")).splitlines()
    assert row.split()[0] == "f1"


async def test_the_crd_can_be_applied_again(cluster: Cluster, kubectl: Kubectl) -> None:
    # An API server older than CEL does not tell kubectl of the rule, and kubectl then calls it an unknown field.
    options = ["--validate=false"] if cluster.name == "1.20" else []
    assert "frameworks.frameworkcontroller.microsoft.com" in await kubectl.ok("apply", *options, "-f", str(CRD))


def framework(name: str) -> str:
    """A Framework that leaves out all that may be left out."""
    return yaml.safe_dump(
        {"apiVersion": "frameworkcontroller.microsoft.com/v1", "kind": "Framework", "metadata": {"name": name}}
    )
