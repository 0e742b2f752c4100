"""Avoided nodes on a local cluster: a Task that fails on one node runs on another, and waits for a limited time."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from frameworkcontroller.local.apiserver.object_records import Change
from tests.support.eventually import read_until
from tests.support.frameworks import policy, role
from tests.support.site import LocalSite, local_site
from tests.support.virtual_clock import wall

pytestmark = pytest.mark.virtual_clock

Json = dict[str, Any]
GPU = "example.com/gpu"
RELAX_SEC = 100
POD = "f-a-0"


def avoiding(number: int = 1, *, retries: int = 9, failed: int = -1, **avoid: Any) -> Json:
    fields = {"relaxAfterSeconds": RELAX_SEC, **avoid}
    task = {"retryPolicy": {"maxRetryCount": retries, "avoidNodes": fields}}
    return role("a", number, task=task, simulate={}, frameworkAttemptCompletionPolicy=policy(failed))


@asynccontextmanager
async def local(path: Path, nodes: int, capacity: dict[str, str] | None = None) -> AsyncIterator[LocalSite]:
    async with local_site(path, LocalSite, nodes=nodes, capacity=capacity) as site:
        yield site


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[LocalSite]:
    async with local(tmp_path, 3) as found:
        yield found


async def running(site: LocalSite, name: str = POD, *, attempt: str = "0", of_framework: str = "0") -> Json:
    """Wait until a Pod of these attempts runs."""

    def runs(pods: dict[str, Json]) -> bool:
        if name not in pods:
            return False
        marks = pods[name]["metadata"]["annotations"]
        ids = marks["FC_TASK_ATTEMPT_ID"], marks["FC_FRAMEWORK_ATTEMPT_ID"]
        return ids == (attempt, of_framework) and bool(pods[name]["status"]["phase"] == "Running")

    return (await read_until(site.frameworks.pods, runs, within=RELAX_SEC * 20, every=1))[name]


async def avoided(site: LocalSite, index: int = 0) -> list[tuple[str, int]]:
    task = (await site.frameworks.status("f"))["attemptStatus"]["taskRoleStatuses"][0]["taskStatuses"][index]
    return [(one["name"], one["failures"]) for one in task.get("avoidedNodes", ())]


async def test_a_task_that_fails_on_a_node_runs_on_another(site: LocalSite) -> None:
    await site.frameworks.create("f", avoiding())
    used: list[str] = []
    for attempt in range(3):
        pod = await running(site, attempt=str(attempt))
        used.append(pod["spec"]["nodeName"])
        site.pods.fail(f"default/{POD}")
    assert sorted(used) == ["local-0", "local-1", "local-2"]
    # No node is left: after a while, it runs on the first again. That takes an attempt, and no retry.
    begun = wall()
    pod = await running(site, attempt="4")
    assert pod["spec"]["nodeName"] == used[0]
    assert RELAX_SEC <= wall() - begun <= RELAX_SEC + 30
    assert await avoided(site) == [(used[1], 1), (used[2], 1)]
    status = await site.frameworks.status("f")
    retry = status["attemptStatus"]["taskRoleStatuses"][0]["taskStatuses"][0]["retryPolicyStatus"]
    assert (retry["totalRetriedCount"], retry["accountableRetriedCount"]) == (4, 3)


async def test_a_node_is_avoided_by_the_next_attempt_of_the_framework(site: LocalSite) -> None:
    await site.frameworks.create("f", avoiding(2, retries=0, failed=1), retryPolicy={"maxRetryCount": 1})
    for name in ("f-a-0", "f-a-1"):
        await running(site, name)
    bad = (await running(site, "f-a-1"))["spec"]["nodeName"]
    site.pods.fail("default/f-a-1")
    for name in ("f-a-0", "f-a-1"):
        pod = await running(site, name, of_framework="1")
        assert pod["spec"]["nodeName"] != bad
    assert [await avoided(site, index) for index in (0, 1)] == [[(bad, 1)]] * 2


async def test_the_terms_of_the_template_stay(site: LocalSite) -> None:
    body = avoiding()
    expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["local-1", "local-2"]}
    terms = [{"matchExpressions": [expression]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    body["task"]["pod"]["spec"]["affinity"] = {"nodeAffinity": required}
    await site.frameworks.create("f", body)
    used = []
    for attempt in range(2):
        used.append((await running(site, attempt=str(attempt)))["spec"]["nodeName"])
        site.pods.fail(f"default/{POD}")
    assert sorted(used) == ["local-1", "local-2"]
    assert (await running(site, attempt="3"))["spec"]["nodeName"] == used[0]


async def test_a_cluster_with_one_node_is_not_stuck(tmp_path: Path) -> None:
    async with local(tmp_path, 1) as site:
        await site.frameworks.create("f", avoiding())
        for attempt in range(3):
            await running(site, attempt=str(attempt))
            site.pods.fail(f"default/{POD}")
        assert (await running(site, attempt="3"))["spec"]["nodeName"] == "local"


async def test_a_gang_is_placed_as_a_whole_again(tmp_path: Path) -> None:
    """Without a free node, all of its Pods are replaced, and its minimum stays until they are placed."""
    minimums: list[int] = []
    bound: dict[str, int] = {}

    def observe(change: Change) -> None:
        body = change.record.document()
        if change.record.resource.startswith("podgroups") and change.type != "DELETED":
            minimums.append(body["spec"]["schedulingPolicy"]["gang"]["minCount"])
        elif change.record.resource == "pods" and body["spec"].get("nodeName"):
            bound.setdefault(body["metadata"]["uid"], minimums[-1])

    async with local(tmp_path, 3, {GPU: "1"}) as site:
        site.cluster.server.storage.observe(observe)
        body = avoiding(3, retries=0, failed=1)
        body["task"]["pod"]["spec"]["containers"][0]["resources"] = {"limits": {GPU: "1"}}
        gang: Json = {"schedulingPolicy": {"gang": {}}}
        await site.frameworks.create("f", body, retryPolicy={"maxRetryCount": 1}, scheduling=gang)
        names = [f"f-a-{index}" for index in range(3)]
        for name in names:
            await running(site, name)
        bad = (await running(site, "f-a-1"))["spec"]["nodeName"]
        site.pods.fail("default/f-a-1")
        again = [await running(site, name, attempt="1", of_framework="1") for name in names]
        assert bad in {pod["spec"]["nodeName"] for pod in again}
        assert [await avoided(site, index) for index in range(3)] == [[]] * 3
        # The first Pod of each of the two attempts is bound under the whole minimum.
        first, _, _, again_first, *others = bound.values()
        assert (first, again_first, len(others)) == (3, 3, 2)
