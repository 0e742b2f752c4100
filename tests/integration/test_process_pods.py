"""Pods that run as processes, on every API server: from a user's manifest to the logs that a user reads."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest

from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.errors import NotFound
from frameworkcontroller.kube.resources import CONFIGMAPS, PODS
from frameworkcontroller.kubeconfig.reader import Kubeconfig
from frameworkcontroller.local.kubelet.agent import NodeAgent
from frameworkcontroller.local.kubelet.podaccess import ApiAccess
from frameworkcontroller.local.kubelet.process import ProcessRuntime
from tests.support.clusters import Cluster
from tests.support.eventually import eventually, read_until, until
from tests.support.objects import read
from tests.support.pods import pod_manifest

pytestmark = pytest.mark.newest

Json = dict[str, Any]

PORTABLE_CLIENT = """
import json, os, ssl, urllib.request
env, account = os.environ, "/var/run/secrets/kubernetes.io/serviceaccount"
api, context = env.get("KUBE_APISERVER_ADDRESS"), None
if not api:
    api = "https://%s:%s" % (env["KUBERNETES_SERVICE_HOST"], env["KUBERNETES_SERVICE_PORT"])
    context = ssl.create_default_context(cafile=account + "/ca.crt")
token, namespace = open(account + "/token").read(), open(account + "/namespace").read()
url = "%s/api/v1/namespaces/%s/pods/%s" % (api, namespace, env["HOSTNAME"])
request = urllib.request.Request(url, headers={"Authorization": "Bearer " + token})
print(json.load(urllib.request.urlopen(request, context=context))["metadata"]["uid"])
"""
"""Written as for a real cluster, but for the one variable."""


class Here:
    """The node, and the Pods of the test's namespace."""

    def __init__(self, cluster: Cluster, client: KubeClient, runtime: ProcessRuntime) -> None:
        self.cluster = cluster
        self.client = client
        self.runtime = runtime
        self.namespace = cluster.namespace

    async def create(self, manifest: Json) -> Json:
        manifest["metadata"]["namespace"] = self.namespace
        created: Json = orjson.loads(await self.client.create(PODS, orjson.dumps(manifest), self.namespace))
        return created

    async def until(self, expected: Callable[[Json], bool], name: str = "f-r-0") -> Json:
        seen: list[Json] = []

        async def probe() -> None:
            seen[:] = [await read(self.client, PODS, name, self.namespace)]
            assert expected(seen[0]), seen[0]["status"]

        await eventually(probe)
        return seen[0]

    async def until_phase(self, phase: str, name: str = "f-r-0") -> Json:
        return await self.until(lambda pod: pod["status"]["phase"] == phase, name)

    async def output(self, name: str = "f-r-0") -> str:
        chunks = self.runtime.read(
            self.namespace,
            name,
            "main",
            follow=False,
            tail_lines=None,
            since_seconds=None,
            limit_bytes=None,
            timestamps=False,
            previous=False,
        )
        return b"".join([chunk async for chunk in chunks]).decode()


def access_of(cluster: Cluster) -> ApiAccess:
    config = Kubeconfig.read(str(cluster.kubeconfig))
    ca = config.tls().ca
    return ApiAccess(cluster.url, token=config.user.get("token", ""), ca="" if ca is None else ca.decode())


@pytest.fixture
async def here(cluster: Cluster, tmp_path: Path) -> AsyncIterator[Here]:
    client = await cluster.client()
    runtime = ProcessRuntime(client, access_of(cluster), tmp_path / "node", wall=cluster.wall)
    agent = NodeAgent(client, runtime, nodes={"processes": None}, schedule=False, wall=cluster.wall)
    running = asyncio.create_task(agent.run())
    await agent.wait_ready()
    yield Here(cluster, client, runtime)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    assert list((tmp_path / "node").iterdir()) == []


def on_node(*containers: Json, **fields: Any) -> Json:
    fields = {"terminationGracePeriodSeconds": 5, **fields}
    return pod_manifest(*containers, nodeName="processes", **fields)


def sh(script: str, **fields: Any) -> Json:
    return {"name": "main", "command": ["sh", "-c", script], **fields}


async def test_a_pod_reaches_the_api_server_with_the_standard_library(here: Here) -> None:
    # On a cluster with users a Pod needs no more than its token; on the embedded one, none.
    pod = await here.create(on_node({"name": "main", "command": [sys.executable, "-c", PORTABLE_CLIENT]}))
    await here.until_phase("Succeeded")
    assert await here.output() == pod["metadata"]["uid"] + "\n"


async def test_volumes_and_variables_from_the_api_server(here: Here) -> None:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"color": "blue"}}
    await here.client.create(CONFIGMAPS, orjson.dumps(config), here.namespace)
    container = sh(
        "cat /etc/the-config/color; echo; echo $COLOR; cat $KUBECONFIG",
        env=[{"name": "COLOR", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "color"}}}],
        volumeMounts=[{"name": "c", "mountPath": "/etc/the-config"}],
    )
    await here.create(on_node(container, volumes=[{"name": "c", "configMap": {"name": "c"}}]))
    await here.until_phase("Succeeded")
    mounted, variable, kubeconfig = (await here.output()).split("\n", 2)
    assert (mounted, variable) == ("blue", "blue")
    assert json.loads(kubeconfig)["clusters"][0]["cluster"]["server"] == here.cluster.url


LISTENER = """
import os, pathlib, socket, sys, time
wanted = pathlib.Path(sys.argv[1])
while True:
    while not wanted.exists():
        time.sleep(0.02)
    with socket.create_server((os.environ["POD_IP"], 8080)):
        while wanted.exists():
            time.sleep(0.02)
"""


async def test_a_pod_is_ready_while_its_port_is_open(here: Here, tmp_path: Path) -> None:
    wanted = tmp_path / "wanted"
    container = {
        "name": "main",
        "command": [sys.executable, "-c", LISTENER, str(wanted)],
        "env": [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
        "ports": [{"name": "web", "containerPort": 8080}],
        "readinessProbe": {"tcpSocket": {"port": "web"}, "periodSeconds": 1, "failureThreshold": 2},
    }

    def says(ready: bool) -> Callable[[Json], bool]:
        def said(pod: Json) -> bool:
            conditions = {one["type"]: one["status"] for one in pod["status"].get("conditions", ())}
            (main,) = pod["status"].get("containerStatuses", [{}])
            running = "running" in main.get("state", {})
            return running and main["ready"] == ready and conditions.get("Ready") == str(ready)

        return said

    await here.create(on_node(container))
    await here.until(says(False))
    wanted.touch()
    await here.until(says(True))
    wanted.unlink()
    await here.until(says(False))


async def test_deletion_waits_for_the_processes_and_leaves_nothing(here: Here, tmp_path: Path) -> None:
    pid, may_end = tmp_path / "pid", tmp_path / "may-end"
    script = f"trap 'until test -e {may_end}; do sleep 0.05; done; exit 0' TERM; echo $$$$ > {pid}; "
    await here.create(on_node(sh(script + "while :; do sleep 0.05; done"), terminationGracePeriodSeconds=600))
    await here.until_phase("Running")
    await until(lambda: pid.exists() and bool(pid.read_text()))
    process = Path("/proc") / pid.read_text().strip()
    assert process.exists()
    await here.client.delete(PODS, "f-r-0", here.namespace)
    assert process.exists()
    may_end.touch()

    async def gone() -> bool:
        try:
            await here.client.get(PODS, "f-r-0", here.namespace)
        except NotFound:
            return True
        assert not list((tmp_path / "node" / "pods").iterdir()) or process.exists()
        return False

    await eventually(gone)
    assert not process.exists()
    assert not list((tmp_path / "node" / "pods").iterdir())


async def test_logs_by_way_of_the_api_server(here: Here) -> None:
    if here.cluster.server is None:
        pytest.skip("a real API server asks real kubelets")
    here.cluster.server.logs = here.runtime
    await here.create(on_node(sh("echo one; echo two; sleep 1000")))
    await here.until_phase("Running")
    path = PODS.path(here.namespace, "f-r-0", "log")
    await read_until(lambda: here.client.raw("GET", path), lambda found: found == b"one\ntwo\n")
    assert await here.client.raw("GET", path, query={"tailLines": "1", "container": "main"}) == b"two\n"
