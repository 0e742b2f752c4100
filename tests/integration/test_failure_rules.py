"""Rules of podFailurePolicy on a cluster: the remaining Pods, and the status."""

from collections.abc import AsyncIterator

import pytest

from frameworkcontroller.config.config import shipped_config
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.manager.app import Controller
from tests.support.clusters import Cluster
from tests.support.frameworks import Frameworks, Json, codes, role, tasks

ENDLESS: Json = {"maxRetryCount": -2}


@pytest.fixture
async def frameworks(cluster: Cluster, pods: SimulatedRuntime) -> AsyncIterator[Frameworks]:
    async with Controller(shipped_config(), await cluster.connection(), wall=cluster.wall):
        yield Frameworks(await cluster.client(), cluster.namespace)


def rules(*given: Json, retry: Json | None = None) -> Json:
    return {"retryPolicy": retry or {}, "podFailurePolicy": {"rules": list(given)}}


def on_exit(action: str, *values: int) -> Json:
    return {"action": action, "onExitCodes": {"containerName": "main", "operator": "In", "values": list(values)}}


async def test_exit_code_42_ends_the_whole(frameworks: Frameworks, pods: SimulatedRuntime) -> None:
    failing = rules(on_exit("Ignore", 41), on_exit("FailFramework", 42), retry=ENDLESS)
    await frameworks.create("f", role("a", 2, task=failing), role("b", 2), retryPolicy=ENDLESS)
    await frameworks.until_running("f", 4)
    pods.fail(f"{frameworks.namespace}/f-a-1", 42)
    status = await frameworks.until_state("f", "Completed")
    assert await frameworks.pods() == {}
    completion = status["attemptStatus"]["completionStatus"]
    assert (completion["code"], completion["policy"]) == (42, {"action": "FailFramework", "rule": 1})
    assert completion["trigger"] == {
        "message": "podFailurePolicy.rules[1] is FailFramework",
        "taskRoleName": "a",
        "taskIndex": 1,
    }
    assert codes(tasks(status)) == [-220, 42]
    assert tasks(status)[1]["attemptStatus"]["completionStatus"]["policy"] == completion["policy"]
    assert status["retryPolicyStatus"]["totalRetriedCount"] == 0


async def test_an_eviction_that_costs_no_retry(cluster: Cluster, frameworks: Frameworks) -> None:
    if cluster.tells_disruptions:
        ignored = rules({"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]})
    else:
        ignored = rules({"action": "Ignore", "onCompletionCodes": {"operator": "In", "values": [-101]}})
    await frameworks.create("f", role("a", 1, task=ignored))
    for number in (1, 2):
        await frameworks.until_running("f", 1)
        await cluster.evict("f-a-0")
        status = await frameworks.until(
            "f",
            lambda status, number=number: tasks(status)[0]["attemptStatus"]["id"] == number,  # type: ignore[misc]
        )
        retries = tasks(status)[0]["retryPolicyStatus"]
        assert (retries["totalRetriedCount"], retries["accountableRetriedCount"]) == (number, 0)
    await frameworks.until_running("f", 1)


async def test_the_api_server_takes_every_kind_of_rule(cluster: Cluster) -> None:
    given: list[Json] = [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}, {"type": "x", "status": "False"}]},
        {"action": "Count", "onExitCodes": {"operator": "NotIn", "values": [0, 1]}},
        {"action": "FailTask", "onCompletionCodes": {"operator": "In", "values": [-1001, 137]}},
    ]
    stored = await Frameworks(await cluster.client(), cluster.namespace).create("f", role("a", 1, task=rules(*given)))
    found = stored["spec"]["taskRoles"][0]["task"]["podFailurePolicy"]["rules"]
    assert found[0]["onPodConditions"][0] == {"type": "DisruptionTarget", "status": "True"}
    assert found[1:] == given[1:]
