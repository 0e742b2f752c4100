"""Progress of Frameworks on every API server: the created objects, and the fate of reports (guarantee R)."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from frameworkcontroller.api import names
from frameworkcontroller.api.status import ProgressMetric
from frameworkcontroller.config.config import Config, LeaderElection, ProgressReports
from frameworkcontroller.kube.resources import CONFIGMAPS
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.manager.app import Controller
from tests.support.clusters import Cluster
from tests.support.frameworks import Frameworks, condition, policy, role
from tests.support.objects import read
from tests.support.writtenreports import write_report

CONFIGMAP = names.configmap_name("f")


@pytest.fixture
async def reporting(cluster: Cluster) -> AsyncIterator[Controller]:
    """A controller with a report server."""
    config = Config(
        progress_reports=ProgressReports(bind_address="127.0.0.1:0"),
        leader_election=LeaderElection(lease_namespace=cluster.namespace),
    )
    async with Controller(config, await cluster.connection(), wall=cluster.wall) as controller:
        yield controller


async def data(frameworks: Frameworks) -> dict[str, str]:
    """The data of the attempt's ConfigMap."""
    return dict((await read(frameworks.client, CONFIGMAPS, CONFIGMAP, frameworks.namespace)).get("data") or {})


@pytest.mark.usefixtures("reporting")
async def test_a_pod_can_report(frameworks: Frameworks) -> None:
    await frameworks.create("f", role("a"), progress={}, checkpointGraceSeconds=60)
    await frameworks.until_running("f", 1)
    spec = (await frameworks.pods())["f-a-0"]["spec"]
    (volume,) = [one for one in spec["volumes"] if one["name"] == names.PROGRESS_VOLUME]
    token, files = volume["projected"]["sources"]
    assert token["serviceAccountToken"]["audience"] == names.PROGRESS_AUDIENCE
    assert [one["key"] for one in files["configMap"]["items"]] == ["ca.crt", "notice"]
    (container,) = spec["containers"]
    variables = {one["name"]: one.get("value") for one in container["env"]}
    path = f"/apis/progress/v1/namespaces/{frameworks.namespace}/frameworks/f/attempts/0"
    assert variables[names.SERVER_URL].endswith(path)
    found = await data(frameworks)
    assert found["interval"] == "60"
    assert found["ca.crt"].startswith("-----BEGIN CERTIFICATE-----")


@pytest.mark.usefixtures("reporting")
async def test_reports_become_the_status(frameworks: Frameworks, cluster: Cluster, pods: SimulatedRuntime) -> None:
    retried = role("a", frameworkAttemptCompletionPolicy=policy(1))
    await frameworks.create("f", retried, progress={}, retryPolicy={"maxRetryCount": 1})
    await frameworks.until_running("f", 1)
    assert "progress" not in await frameworks.status("f")
    first = await write_report(frameworks, cluster.wall(), percentage=10, step=1, metrics=[ProgressMetric("loss", 0.5)])
    status = await frameworks.until("f", lambda status: status["progress"]["step"] == 1)
    assert status["progress"] == {
        "frameworkAttemptID": 0,
        "percentage": 10,
        "step": 1,
        "metrics": [{"name": "loss", "value": 0.5}],
        "firstReportTime": first,
        "lastReportTime": first,
        "lastChangeTime": first,
    }
    await write_report(frameworks, cluster.wall(), step=2, checkpoint=True)
    await frameworks.until("f", lambda status: "lastCheckpointTime" in status["progress"])
    # A report by itself takes a minute; an end takes it along.
    await write_report(frameworks, cluster.wall(), step=3, checkpoint=True)
    pods.fail(f"{frameworks.namespace}/f-a-0")
    status = await frameworks.until("f", lambda status: status["attemptStatus"]["id"] == 1)
    assert (status["progress"]["step"], status["progress"]["frameworkAttemptID"]) == (3, 0)
    await frameworks.until_running("f", 1)
    await write_report(frameworks, cluster.wall(), step=1)
    status = await frameworks.until("f", lambda status: status["progress"]["frameworkAttemptID"] == 1)
    assert status["progress"]["step"] == 1
    assert "lastCheckpointTime" not in status["progress"]


@pytest.mark.usefixtures("reporting")
async def test_edits_of_a_user_hurt_only_the_progress(
    frameworks: Frameworks, cluster: Cluster, pods: SimulatedRuntime
) -> None:
    await frameworks.create("f", role("a"), progress={})
    await frameworks.until_running("f", 1)
    await write_report(frameworks, cluster.wall(), step=1)
    await frameworks.until("f", lambda status: status["progress"]["step"] == 1)
    for text in ("{", "x" * 100_000, '{"step": 1e300}', None):
        await frameworks.merge(CONFIGMAPS, CONFIGMAP, {"data": {"progress": text}})
    pods.finish(f"{frameworks.namespace}/f-a-0")
    status = await frameworks.until_state("f", "Completed")
    assert status["progress"]["step"] == 1


@pytest.mark.usefixtures("controller")
async def test_without_a_report_server_the_framework_says_so(frameworks: Frameworks, pods: SimulatedRuntime) -> None:
    await frameworks.create("f", role("a"), progress={})
    status = await frameworks.until_running("f", 1)
    found = condition(status, "ProgressUnavailable")
    assert (found["status"], found["reason"]) == ("True", "NoReportServer")
    assert await data(frameworks) == {}
    pods.finish(f"{frameworks.namespace}/f-a-0")
    await frameworks.until_state("f", "Completed")
