"""The example Frameworks run to their ends, on every API server; their Pods are simulated."""

from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from frameworkcontroller.app import Controller
from frameworkcontroller.controller.executor import FRAMEWORKS
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.errors import NotFound
from frameworkcontroller.kube.resources import CONFIGMAPS, PODS
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.local.kubelet.simulation import PREFIX
from tests.support.clusters import Cluster
from tests.support.eventually import eventually

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

# What the commands of each role do, for Pods that run none: seconds and exit code, one code per Task attempt.
WORKERS = {"run-seconds": "1", "exit-code": "0"}
BEHAVIOUR = {
    "batchsucceeded": {"worker": WORKERS},
    "batchretried": {"worker": {"run-seconds": "1", "exit-code": "200, 0"}},
    "serverworkers": {"server": {"run-seconds": "forever"}, "worker": WORKERS},
}


async def run_example(name: str, cluster: Cluster, client: KubeClient) -> Any:
    """Create the example and wait until it has completed and is cleaned up; what it then is."""
    framework = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
    for role in framework["spec"]["taskRoles"]:
        annotations = role["task"]["pod"].setdefault("metadata", {}).setdefault("annotations", {})
        annotations |= {PREFIX + key: value for key, value in BEHAVIOUR[name][role["name"]].items()}
    await client.create(FRAMEWORKS, orjson.dumps(framework), cluster.namespace)
    return await eventually(partial(completed, name, cluster, client), within=60)


async def completed(name: str, cluster: Cluster, client: KubeClient) -> Any:
    framework = orjson.loads(await client.get(FRAMEWORKS, name, cluster.namespace))
    assert framework.get("status", {}).get("state") == "Completed", framework.get("status")
    return framework


def roles(framework: Any) -> dict[str, list[Any]]:
    """The Task statuses of each role."""
    statuses = framework["status"]["attemptStatus"]["taskRoleStatuses"]
    return {role["name"]: role["taskStatuses"] for role in statuses}


@pytest.mark.parametrize("name", sorted(BEHAVIOUR))
async def test_an_example_succeeds_and_leaves_nothing_behind(
    cluster: Cluster, pods: SimulatedRuntime, controller: Controller, name: str
) -> None:
    client = await cluster.client()
    framework = await run_example(name, cluster, client)
    assert framework["status"]["attemptStatus"]["completionStatus"]["type"]["name"] == "Succeeded"
    left = orjson.loads(await client.list(PODS, cluster.namespace))["items"]
    assert [pod["metadata"]["name"] for pod in left] == []
    with pytest.raises(NotFound):
        await client.get(CONFIGMAPS, f"{name}-attempt", cluster.namespace)


async def test_a_transient_failure_is_retried_without_being_counted(
    cluster: Cluster, pods: SimulatedRuntime, controller: Controller
) -> None:
    framework = await run_example("batchretried", cluster, await cluster.client())
    tasks = roles(framework)["worker"]
    assert [task["attemptStatus"]["completionStatus"]["code"] for task in tasks] == [0, 0, 0]
    assert [task["retryPolicyStatus"]["totalRetriedCount"] for task in tasks] == [1, 1, 1]
    assert [task["retryPolicyStatus"]["accountableRetriedCount"] for task in tasks] == [0, 0, 0]
    assert framework["status"]["retryPolicyStatus"]["totalRetriedCount"] == 0


async def test_the_server_is_stopped_when_its_workers_are_done(
    cluster: Cluster, pods: SimulatedRuntime, controller: Controller
) -> None:
    framework = await run_example("serverworkers", cluster, await cluster.client())
    trigger = framework["status"]["attemptStatus"]["completionStatus"]["trigger"]
    assert trigger["taskRoleName"] == "worker"
    assert trigger["message"] == "SucceededTaskCount 3 has reached MinSucceededTaskCount 3 in the TaskRole"
    (server,) = roles(framework)["server"]
    assert server["attemptStatus"]["completionStatus"]["phrase"] == "FrameworkAttemptCompletion"


def test_every_example_is_tested() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.yaml")} == set(BEHAVIOUR)
