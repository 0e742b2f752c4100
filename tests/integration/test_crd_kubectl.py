"""The Framework CRD as a person meets it through kubectl."""

import yaml

from tests.support.clusters import Cluster
from tests.support.kubectl import Kubectl
from tests.support.realcluster import CRD


async def test_explain_teaches_the_spec(kubectl: Kubectl) -> None:
    said = " ".join((await kubectl.ok("explain", "framework.spec.taskRoles.frameworkAttemptCompletionPolicy")).split())
    assert "minSucceededTaskCount <integer>" in said
    assert "When the completed Tasks of this group complete the attempt of the whole Framework." in said


async def test_get_shows_how_frameworks_stand(kubectl: Kubectl) -> None:
    await kubectl.ok("create", "-f", "-", stdin=framework("f1"))
    status = {
        "state": "Completed",
        "runTime": "2026-01-01T00:00:00Z",
        "completionTime": None,
        "retryPolicyStatus": {"totalRetriedCount": 2, "accountableRetriedCount": 1, "retryDelaySec": None},
        "attemptStatus": {"completionStatus": {"code": 0, "phrase": "Succeeded"}},
    }
    await kubectl.ok(
        "patch", "fw", "f1", "--subresource=status", "--type=merge", "-p", yaml.safe_dump({"status": status})
    )
    header, row = (await kubectl.ok("get", "fw")).splitlines()
    assert header.split() == ["NAME", "STATE", "COMPLETION", "RETRIES", "AGE"]
    assert row.split()[:4] == ["f1", "Completed", "Succeeded", "2"]
    assert (await kubectl.ok("get", "all")).count("framework.frameworkcontroller.microsoft.com/f1") == 1


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
