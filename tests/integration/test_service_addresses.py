"""Addresses of Services on a local cluster: to which Pods connections go, and when there are none."""

import asyncio
from pathlib import Path
from typing import Any

import orjson

from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.resources import PODS, SERVICES
from frameworkcontroller.local.cluster import LocalCluster
from tests.support.eventually import eventually
from tests.support.objects import read

ANSWERS = """
import os, socket
server = socket.create_server((os.environ["IP"], 9000))
while True:
    one, _ = server.accept()
    one.sendall(os.environ["NAME"].encode() + one.recv(9))
    one.close()
"""


def pod(name: str, *, port: int = 9000, **labels: str) -> dict[str, Any]:
    """A Pod that answers its name, and is ready once its port is open."""
    container = {
        "name": "main",
        "image": "python:3.12-slim",
        "command": ["python3", "-c", ANSWERS],
        "env": [
            {"name": "NAME", "value": name},
            {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ],
        "ports": [{"name": "answers", "containerPort": 9000}],
        "readinessProbe": {"tcpSocket": {"port": port}, "periodSeconds": 1},
    }
    metadata = {"name": name, "labels": {"app": "x", **labels}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


async def ask(address: str, port: int) -> str:
    """The answer to one connection; else whether it was refused, or closed without an answer."""
    try:
        reader, writer = await asyncio.open_connection(address, port)
    except ConnectionRefusedError:
        return "refused"
    try:
        writer.write(b"?")
        return (await asyncio.wait_for(reader.read(), 20)).decode() or "closed"
    except ConnectionResetError:
        return "closed"
    finally:
        writer.close()


async def test_connections_go_to_the_ready_pods_of_a_service(tmp_path: Path) -> None:
    async with LocalCluster(tmp_path) as cluster, KubeClient(cluster.connect()) as client:
        ports = [{"name": "a", "port": 8001, "targetPort": "answers"}, {"name": "b", "port": 8002, "targetPort": 1}]
        service = {"metadata": {"name": "s"}, "spec": {"selector": {"app": "x", "tier": "y"}, "ports": ports}}
        await client.create(SERVICES, orjson.dumps({"apiVersion": "v1", "kind": "Service", **service}), "default")
        address = (await read(client, SERVICES, "s", "default"))["spec"]["clusterIP"]

        async def closed() -> None:
            assert await ask(address, 8001) == "closed"

        await eventually(closed)
        bodies = (pod("one", tier="y"), pod("two", tier="y"), pod("unready", port=9001, tier="y"), pod("other"))
        for body in bodies:
            await client.create(PODS, orjson.dumps(body), "default")

        async def both() -> None:
            assert {await ask(address, 8001) for _ in range(6)} == {"one?", "two?"}

        await eventually(both)
        # No Pod listens there.
        assert await ask(address, 8002) == "closed"
        await client.delete(SERVICES, "s", "default")

        async def refused() -> None:
            assert await ask(address, 8001) == "refused"

        await eventually(refused)
