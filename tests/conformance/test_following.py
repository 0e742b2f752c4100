"""The behavior of every API server on which the informer and the installation of the CRD rely."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from frameworkcontroller.api.objects import PodRecord, pod_record
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.kube.client import MERGE_PATCH, KubeClient
from frameworkcontroller.kube.crd import ensure_crd
from frameworkcontroller.kube.errors import ApiError
from frameworkcontroller.kube.informer import Informer
from frameworkcontroller.kube.reflector import Failure
from frameworkcontroller.kube.resources import CONFIGMAPS, CRDS, PODS
from frameworkcontroller.kube.transport import Exchange
from tests.support.clusters import Cluster
from tests.support.eventually import eventually, until
from tests.support.framework_crd import crd_manifest
from tests.support.objects import read
from tests.support.pods import pod_manifest


class Seen:
    """The record that an informer keeps of an object."""

    def __init__(self, obj: dict[str, Any]) -> None:
        metadata = obj["metadata"]
        self.name: str = metadata["name"]
        self.key: str = f"{metadata['namespace']}/{self.name}"
        self.uid: str = metadata["uid"]
        self.resource_version: str = metadata["resourceVersion"]
        self.has_managed_fields = "managedFields" in metadata


@asynccontextmanager
async def running(*informers: Informer[Seen]) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(informer.run()) for informer in informers]
    try:
        for informer in informers:
            await informer.wait_synced()
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def until_equal(informers: Sequence[Informer[Seen]], expected: dict[str, str]) -> None:
    async def equal() -> None:
        for informer in informers:
            assert {item.name: item.resource_version for item in informer.lister.values()} == expected

    await eventually(equal)


def configmap(name: str, **labels: str) -> bytes:
    return orjson.dumps({"metadata": {"name": name, "labels": labels}, "data": {"x": "y" * 1000}})


async def test_the_copy_is_the_original_at_any_page_size(cluster: Cluster) -> None:
    client = await cluster.client()
    for number in range(25):
        await client.create(CONFIGMAPS, configmap(f"c{number}", mine="yes" if number % 5 else "no"), cluster.namespace)
    told: list[str] = []

    def deleted(old: Seen, final: Seen | None) -> None:
        assert final is not None
        assert final.uid == old.uid
        told.append(old.name)

    informers = [
        Informer(
            client,
            CONFIGMAPS,
            Seen,
            namespace=cluster.namespace,
            label_selector="mine=yes",
            page_size=size,
            rng=random.Random(size),
        )
        for size in (1, 7, 500)
    ]
    for informer in informers:
        informer.add_handler(on_delete=deleted)
    async with running(*informers):
        for informer in informers:
            assert len(informer.lister) == 20
            assert not any(item.has_managed_fields for item in informer.lister.values())
        await client.create(CONFIGMAPS, configmap("new", mine="yes"), cluster.namespace)
        await client.create(CONFIGMAPS, configmap("foreign", mine="no"), cluster.namespace)
        await client.delete(CONFIGMAPS, "c1", cluster.namespace)
        # An object that stops matching the selector leaves the view as a deletion.
        relabelled = orjson.dumps({"metadata": {"labels": {"mine": "no"}}})
        await client.patch(CONFIGMAPS, "c2", relabelled, cluster.namespace, content_type=MERGE_PATCH)
        await client.delete(CONFIGMAPS, "c3", cluster.namespace)
        await client.create(CONFIGMAPS, configmap("c3", mine="yes"), cluster.namespace)
        listed = orjson.loads(await client.list(CONFIGMAPS, cluster.namespace, label_selector="mine=yes"))
        expected = {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in listed["items"]}
        assert len(expected) == 19
        await until_equal(informers, expected)
        assert [informer.counters.lists for informer in informers] == [1, 1, 1]
        assert sorted(told) == sorted(["c1", "c2", "c3"] * 3)
        # Another comparison with the server finds no difference.
        before = [informer.counters.events for informer in informers]
        for informer in informers:
            informer.relist()
        await until(lambda: [informer.counters.lists for informer in informers] == [2, 2, 2])
        await until_equal(informers, expected)
        assert sorted(told) == sorted(["c1", "c2", "c3"] * 3)
        assert [informer.counters.events for informer in informers] == before


async def test_a_framework_that_is_nested_too_deeply_harms_no_other(cluster: Cluster) -> None:
    client = await cluster.client()

    def framework(name: str, extra: bytes) -> bytes:
        return (
            b'{"apiVersion":"frameworkcontroller.microsoft.com/v1","kind":"Framework","metadata":{"name":"%s"},"spec":'
            b'{"executionType":"Create","taskRoles":[{"name":"w","taskNumber":1,"task":{"pod":{"spec":{"extra":%s,'
            b'"containers":[{"name":"c","image":"i"}]}}}}]}}' % (name.encode(), extra)
        )

    deep = framework("deep", b'{"a":' * 3000 + b"1" + b"}" * 3000)
    if cluster.embedded:
        # It refuses objects that it cannot read, so there is nothing to survive.
        with pytest.raises(ApiError, match="nested"):
            await client.create(FRAMEWORKS, deep, cluster.namespace)
        return
    await client.create(FRAMEWORKS, deep, cluster.namespace)
    await client.create(FRAMEWORKS, framework("good", b"1"), cluster.namespace)
    unreadable: list[str] = []
    informer = Informer(
        client,
        FRAMEWORKS,
        Seen,
        namespace=cluster.namespace,
        on_undecodable=lambda key, error, obj: unreadable.append(key),
    )
    async with running(informer):
        assert unreadable == [f"{cluster.namespace}/deep"]
        good = await read(client, FRAMEWORKS, "good", cluster.namespace)
        await until_equal([informer], {"good": good["metadata"]["resourceVersion"]})
        await client.delete(FRAMEWORKS, "deep", cluster.namespace)
        await client.delete(FRAMEWORKS, "good", cluster.namespace)
        await until_equal([informer], {})
        assert informer.counters.failures[Failure.MALFORMED] == 0


async def test_an_installed_crd_costs_a_request_or_two(cluster: Cluster) -> None:
    exchanges: list[Exchange] = []
    manifest = crd_manifest()
    async with KubeClient(await cluster.connection(), observe=exchanges.append) as client:
        crd = await ensure_crd(client, manifest)
    assert crd["spec"]["names"]["kind"] == "Framework"
    verbs = [(exchange.verb, exchange.code) for exchange in exchanges]
    # A server without CEL rules drops them, and so is sent them at every start, to no effect.
    assert verbs in ([("get", 200)], [("get", 200), ("update", 200)])
    stored = orjson.loads(await (await cluster.client()).get(CRDS, manifest["metadata"]["name"]))
    assert stored["metadata"]["resourceVersion"] == crd["metadata"]["resourceVersion"]


async def test_the_last_state_of_a_pod_shows_its_end(cluster: Cluster) -> None:
    """Only a deletion event has a state without grace period and finalizers, which no API server stores."""
    client, namespace = await cluster.client(), cluster.namespace
    removed: dict[str, list[bool]] = {}

    def dropped(old: PodRecord, final: PodRecord | None) -> None:
        assert final is not None
        removed.setdefault(old.name, []).append(final.is_removed)

    async def pod(name: str, phase: str = "", finalizer: str = "") -> None:
        body = pod_manifest(name=name, namespace=namespace)
        body["metadata"] |= {"labels": {"mine": "yes"}, "finalizers": [finalizer] if finalizer else []}
        await client.create(PODS, orjson.dumps(body), namespace)
        if phase:
            binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": "nowhere"}}
            await client.create(PODS, orjson.dumps(binding), namespace, name=name, subresource="binding")
            status = orjson.dumps({"status": {"phase": phase}})
            await client.patch(PODS, name, status, namespace, subresource="status", content_type=MERGE_PATCH)

    async def label(name: str, value: str | None) -> None:
        body = orjson.dumps({"metadata": {"labels": {"mine": value}}})
        await client.patch(PODS, name, body, namespace, content_type=MERGE_PATCH)

    async def until_removed(name: str, *expected: bool) -> None:
        await until(lambda: removed.get(name) == list(expected))

    informer = Informer(client, PODS, pod_record, namespace=namespace, label_selector="mine=yes")
    informer.add_handler(on_delete=dropped)
    running = asyncio.create_task(informer.run())
    try:
        await informer.wait_synced()
        await pod("waiting")
        await client.delete(PODS, "waiting", namespace)
        await until_removed("waiting", True)
        await pod("ended", "Succeeded")
        await client.delete(PODS, "ended", namespace)
        await until_removed("ended", True)
        await pod("alive", "Running")
        await label("alive", None)
        await until_removed("alive", False)
        await pod("ending", "Running")
        await client.delete(PODS, "ending", namespace)
        await label("ending", None)
        await until_removed("ending", False)
        await label("ending", "yes")
        # As kubelets do, once nothing of it runs.
        await client.delete(PODS, "ending", namespace, grace_period_seconds=0)
        await until_removed("ending", False, True)
        await pod("kept", "Running", "example.com/keep")
        await client.delete(PODS, "kept", namespace, grace_period_seconds=0)
        await label("kept", None)
        await until_removed("kept", False)
    finally:
        running.cancel()
        await asyncio.wait([running])
        await client.patch(PODS, "kept", b'{"metadata":{"finalizers":null}}', namespace, content_type=MERGE_PATCH)
