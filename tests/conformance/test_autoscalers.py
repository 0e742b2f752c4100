"""Kubernetes' own HorizontalPodAutoscaler on a FrameworkRoleScaler: up, down, and deleted while it scales.

A kube-controller-manager with that controller alone works through a proxy, which answers for the metrics API. The one
of 1.36 has no such controller here.
"""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import orjson
import pytest
import yaml
from aiohttp import web

from frameworkcontroller.api.resources import ROLE_SCALERS
from frameworkcontroller.config.config import Config
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.errors import ApiError
from frameworkcontroller.kube.resources import CRDS, Resource
from frameworkcontroller.manager.app import Controller
from tests.support.clusters import Cluster, simulated_node
from tests.support.eventually import eventually
from tests.support.frameworks import Frameworks, Json, role
from tests.support.frontdoor import FrontDoor, Request, front_door
from tests.support.objects import is_there, read
from tests.support.ports import unused_port
from tests.support.realcluster import ROOT, find_assets

AUTOSCALERS: Final = Resource("autoscaling", "v2beta2", "horizontalpodautoscalers", "HorizontalPodAutoscaler")
PER_TASK: Final = 10


class Load:
    """The metrics API: the load of the whole role."""

    def __init__(self) -> None:
        self.value = 2 * PER_TASK
        self.asked = 0

    def answer(self, request: Request) -> web.Response | None:
        """The answer to a request for the metric, None to any other request."""
        if request.group != "external.metrics.k8s.io":
            return None
        self.asked += 1
        item = {
            "metricName": "load",
            "metricLabels": {},
            "timestamp": "2026-01-01T00:00:00Z",
            "value": str(self.value),
        }
        kind = {"kind": "ExternalMetricValueList", "apiVersion": "external.metrics.k8s.io/v1beta1", "metadata": {}}
        return web.json_response({**kind, "items": [item]})


def autoscaler(least: int = 1, most: int = 5) -> Json:
    """A HorizontalPodAutoscaler with a number of Tasks for each unit of the load."""
    metric = {
        "type": "External",
        "external": {
            "metric": {"name": "load"},
            "target": {"type": "AverageValue", "averageValue": str(PER_TASK)},
        },
    }
    return {
        "apiVersion": "autoscaling/v2beta2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web-server"},
        "spec": {
            "scaleTargetRef": {"apiVersion": ROLE_SCALERS.api_version, "kind": ROLE_SCALERS.kind, "name": "web-server"},
            "minReplicas": least,
            "maxReplicas": most,
            "metrics": [metric],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
        },
    }


@contextmanager
def manager(program: Path, door: FrontDoor, folder: Path) -> Iterator[None]:
    """A kube-controller-manager that only autoscales."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "x", "cluster": {"server": door.url}}],
        "contexts": [{"name": "x", "context": {"cluster": "x"}}],
        "current-context": "x",
    }
    (folder / "kubeconfig").write_text(yaml.safe_dump(config))
    command = [
        str(program), "--kubeconfig", str(folder / "kubeconfig"), "--leader-elect=false",
        "--controllers", "horizontalpodautoscaling", "--horizontal-pod-autoscaler-sync-period", "1s",
        "--horizontal-pod-autoscaler-downscale-stabilization", "1s", "--bind-address", "127.0.0.1",
        "--port", "0", "--secure-port", str(unused_port()), "--cert-dir", str(folder / "certs"),
    ]  # fmt: skip
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            yield
        finally:
            process.kill()
            print((folder / "log").read_text()[-3000:])


@pytest.fixture
async def load(cluster: Cluster, tmp_path: Path) -> AsyncIterator[Load]:
    """The load that a HorizontalPodAutoscaler sees."""
    assets = find_assets("1.20") if cluster.name == "1.20" else None
    if assets is None:
        pytest.skip("needs a kube-controller-manager that autoscales")
    metrics = Load()
    async with front_door(await cluster.connection()) as door:
        door.always(metrics.answer)
        with manager(assets / "kube-controller-manager", door, tmp_path):
            yield metrics


async def wanted(client: KubeClient, namespace: str) -> int:
    """The number that the object asks for."""
    found: int = (await read(client, ROLE_SCALERS, "web-server", namespace))["spec"]["replicas"]
    return found


async def until_pods(frameworks: Frameworks, number: int) -> None:
    """Wait until the role has that many Pods, and its object says so."""

    async def there() -> None:
        assert sorted(await frameworks.pods()) == [f"web-server-{at}" for at in range(number)]
        assert await is_there(frameworks.client, ROLE_SCALERS, "web-server", frameworks.namespace)
        found = await read(frameworks.client, ROLE_SCALERS, "web-server", frameworks.namespace)
        assert found["status"]["replicas"] == number

    await eventually(there)


def service(number: int) -> Json:
    """A role whose Pods run."""
    bounds = {"minTasks": 1, "maxTasks": 5}
    return role("server", number, simulate={"run-seconds": "forever"}, autoscaling=bounds)


async def condition(client: KubeClient, namespace: str, kind: str) -> Json:
    """A condition of the HorizontalPodAutoscaler."""
    found = await read(client, AUTOSCALERS, "web-server", namespace)
    conditions = found["status"].get("conditions") or ()
    return next((one for one in conditions if one["type"] == kind), {})


async def test_it_scales_up_and_down_and_is_deleted(cluster: Cluster, load: Load) -> None:
    client, namespace = await cluster.client(), cluster.namespace
    frameworks = Frameworks(client, namespace)
    async with simulated_node(cluster), Controller(Config(), await cluster.connection(), wall=cluster.wall):
        await frameworks.create("web", service(2))
        await until_pods(frameworks, 2)
        await client.create(AUTOSCALERS, orjson.dumps(autoscaler()), namespace)

        async def works() -> None:
            assert (await condition(client, namespace, "ScalingActive")).get("status") == "True"

        await eventually(works)
        # To switch it on does not scale.
        assert await wanted(client, namespace) == 2
        load.value = 5 * PER_TASK
        await until_pods(frameworks, 5)
        load.value = 9 * PER_TASK
        asked = load.asked

        async def asked_again() -> None:
            assert load.asked > asked + 2

        await eventually(asked_again)
        await until_pods(frameworks, 5)
        load.value = PER_TASK
        await until_pods(frameworks, 1)
        load.value = 4 * PER_TASK

        async def asks_for_more() -> None:
            assert await wanted(client, namespace) > 1

        await eventually(asks_for_more, every=0.01)
        await client.delete(AUTOSCALERS, "web-server", namespace)
        await until_pods(frameworks, await wanted(client, namespace))
        assert (await frameworks.get("web"))["spec"]["taskRoles"][0]["taskNumber"] == 2


async def test_it_does_nothing_before_the_object_has_a_status(cluster: Cluster, load: Load) -> None:
    client, namespace = await cluster.client(), cluster.namespace
    if not await is_there(client, CRDS, ROLE_SCALERS.qualified):
        body = yaml.safe_load((ROOT / "crd" / "frameworkrolescalers.yaml").read_text())
        await client.create(CRDS, orjson.dumps(body))
    load.value = 5 * PER_TASK
    scaler = {
        "apiVersion": ROLE_SCALERS.api_version,
        "kind": ROLE_SCALERS.kind,
        "metadata": {"name": "web-server"},
        "spec": {"replicas": 2},
    }

    async def created() -> None:
        try:
            await client.create(ROLE_SCALERS, orjson.dumps(scaler), namespace)
        except ApiError as error:
            raise AssertionError(error) from error

    await eventually(created)
    await client.create(AUTOSCALERS, orjson.dumps(autoscaler()), namespace)

    async def refuses() -> None:
        found = await condition(client, namespace, "ScalingActive")
        assert (found.get("status"), found.get("reason")) == ("False", "InvalidSelector")

    await eventually(refuses)
    assert await wanted(client, namespace) == 2
    selector = "FC_FRAMEWORK_NAME=web,FC_TASKROLE_NAME=server"
    status = {"replicas": 0, "selector": selector}
    await Frameworks(client, namespace).merge(ROLE_SCALERS, "web-server", {"status": status}, subresource="status")

    async def scales() -> None:
        assert await wanted(client, namespace) == 5

    await eventually(scales)
    await client.delete(AUTOSCALERS, "web-server", namespace)
    await client.delete(ROLE_SCALERS, "web-server", namespace)
