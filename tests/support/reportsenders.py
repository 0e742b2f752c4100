"""Pods of attempts that report to a report server, and their tokens."""

from __future__ import annotations

import asyncio
import random
import ssl
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import aiohttp
import orjson

from frameworkcontroller.api import names
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.kube.errors import AlreadyExists
from frameworkcontroller.kube.resources import CONFIGMAPS, PODS, SERVICEACCOUNTS
from frameworkcontroller.reports.service import ReportService
from tests.support.clusters import Cluster
from tests.support.eventually import eventually

NO_CHECK_TIME: Final = 0x200000
"""Certificates have virtual times."""


@dataclass(frozen=True)
class Answer:
    """The answer to a report."""

    status: int
    text: str
    headers: Mapping[str, str]


@dataclass
class Attempt:
    """An attempt: its ConfigMap."""

    framework: str
    uid: str
    id: int = 0


class Senders:
    """Makes attempts, Pods and tokens on a cluster, and sends reports to a service."""

    def __init__(self, cluster: Cluster, client: KubeClient, service: ReportService) -> None:
        self.cluster = cluster
        self.client = client
        self.service = service
        self.namespace = cluster.namespace

    async def attempt(self, framework: str = "train", attempt_id: int = 0, **data: str) -> Attempt:
        """Create the ConfigMap of an attempt."""
        body = {
            "metadata": {
                "name": names.configmap_name(framework),
                "labels": {names.FRAMEWORK_NAME: framework},
                "annotations": {names.FRAMEWORK_ATTEMPT_ID: str(attempt_id)},
            },
            "data": data,
        }
        made = orjson.loads(await self.client.create(CONFIGMAPS, orjson.dumps(body), self.namespace))
        return Attempt(framework, made["metadata"]["uid"], attempt_id)

    async def pod(self, attempt: Attempt | None, index: int = 0, name: str | None = None) -> str:
        """Create a Pod of the attempt, or of none. Return its name."""
        name = name or names.pod_name(attempt.framework if attempt else "alone", "worker", index)
        metadata: dict[str, Any] = {"name": name}
        if attempt is not None:
            owner = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "name": names.configmap_name(attempt.framework),
                "uid": attempt.uid,
                "controller": True,
            }
            metadata |= {"labels": {names.FRAMEWORK_NAME: attempt.framework}, "ownerReferences": [owner]}
        # No control plane of the tests makes it.
        with suppress(AlreadyExists):
            await self.client.create(SERVICEACCOUNTS, b'{"metadata": {"name": "default"}}', self.namespace)
        body = {
            "metadata": metadata,
            "spec": {"serviceAccountName": "default", "containers": [{"name": "main", "image": "none"}]},
        }
        await self.client.create(PODS, orjson.dumps(body), self.namespace)
        return name

    async def remove(self, pod: str) -> None:
        """Delete a Pod at once."""
        await self.client.delete(PODS, pod, self.namespace, grace_period_seconds=0)

    async def token(self, pod: str | None, audience: str | None = names.PROGRESS_AUDIENCE, seconds: int = 600) -> str:
        """A token of the default account, bound to the Pod."""
        spec: dict[str, Any] = {"audiences": [] if audience is None else [audience], "expirationSeconds": seconds}
        if pod is not None:
            metadata = orjson.loads(await self.client.get(PODS, pod, self.namespace))["metadata"]
            spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": metadata["uid"]}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        answer = await self.client.create(
            SERVICEACCOUNTS, orjson.dumps(body), self.namespace, name="default", subresource="token"
        )
        return str(orjson.loads(answer)["status"]["token"])

    def url(self, attempt: Attempt, namespace: str | None = None) -> str:
        """The URL that Pods of the attempt have."""
        path = f"/apis/progress/v1/namespaces/{namespace or self.namespace}"
        return f"{self.service.url}{path}/frameworks/{attempt.framework}/attempts/{attempt.id}"

    async def send(self, url: str, token: str | None, body: bytes | None = None, **fields: Any) -> Answer:
        """Send a report, by default with these fields."""
        context = ssl.create_default_context(cadata=self.service.trusted)
        context.verify_flags |= NO_CHECK_TIME
        content = orjson.dumps({"trainerStatus": fields}) if body is None else body
        headers = {"Content-Type": "application/json"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        connector = aiohttp.TCPConnector(ssl=context, force_close=True)
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.post(url, data=content, headers=headers) as answer,
        ):
            return Answer(answer.status, await answer.text(), dict(answer.headers))

    async def data(self, attempt: Attempt) -> dict[str, Any]:
        """The data of the attempt's ConfigMap."""
        body = orjson.loads(await self.client.get(CONFIGMAPS, names.configmap_name(attempt.framework), self.namespace))
        data: dict[str, Any] = body.get("data") or {}
        return data

    async def progress(self, attempt: Attempt) -> dict[str, Any] | None:
        """The stored progress of the attempt."""
        text = (await self.data(attempt)).get(names.PROGRESS_KEY)
        progress: dict[str, Any] | None = None if text is None else orjson.loads(text)
        return progress

    async def until(self, attempt: Attempt, **expected: Any) -> dict[str, Any]:
        """Wait until the stored progress has these values."""

        async def probe() -> dict[str, Any]:
            progress = await self.progress(attempt)
            assert progress is not None
            assert {key: progress.get(key) for key in expected} == expected
            return progress

        return await eventually(probe, within=200)

    @asynccontextmanager
    async def connection(self, address: str = "127.0.0.1") -> AsyncIterator[tuple[StreamReader, StreamWriter]]:
        """A connection with TLS to the server, from this address."""
        context = ssl.create_default_context(cadata=self.service.trusted)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        port = int(self.service.url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, local_addr=(address, 0))
        try:
            yield reader, writer
        finally:
            writer.close()


@asynccontextmanager
async def senders(cluster: Cluster, *, connection: Connection | None = None, **options: Any) -> AsyncIterator[Senders]:
    """Senders on the cluster, with a report server of their own.

    ``connection``: of the server. ``options``: of `ReportService`.
    """
    client = await cluster.client()
    given: dict[str, Any] = {
        "wall": cluster.wall,
        "rng": random.Random(1),
        "exists": lambda _namespace, _name, _uid: None,
        "trusted_changed": lambda _trusted: None,
        **options,
    }
    own = await cluster.client() if connection is None else KubeClient(connection)
    service = ReportService(own, cluster.namespace, "127.0.0.1", 0, None, **given)
    await service.prepare()
    await service.start()
    try:
        yield Senders(cluster, client, service)
    finally:
        await asyncio.shield(service.stop(0.0))
        if connection is not None:
            await own.close()
