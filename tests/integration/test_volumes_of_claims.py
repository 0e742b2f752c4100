"""Claims and the Pods that use them, on every API server."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest

from frameworkcontroller.kube.client import MERGE_PATCH
from frameworkcontroller.kube.errors import NotFound
from frameworkcontroller.kube.resources import EVENTS, PERSISTENTVOLUMECLAIMS, PODS, Resource
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from tests.integration.test_process_pods import Here, here, on_node, sh
from tests.support.clusters import Cluster
from tests.support.eventually import eventually, read_until, until
from tests.support.objects import items, read
from tests.support.pods import pod_manifest

pytestmark = pytest.mark.virtual_clock

__all__ = ["here"]

Json = dict[str, Any]

VOLUME = {"name": "data", "persistentVolumeClaim": {"claimName": "c"}}
MOUNT = {"volumeMounts": [{"name": "data", "mountPath": "/data-of-claim"}]}


class Claims:
    """The claims of the test's namespace."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    async def create(self, name: str = "c", **spec: Any) -> None:
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
        body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}
        client = await self.cluster.client()
        await client.create(PERSISTENTVOLUMECLAIMS, orjson.dumps(body), self.cluster.namespace)

    async def get(self, name: str = "c") -> Json:
        client = await self.cluster.client()
        return await read(client, PERSISTENTVOLUMECLAIMS, name, self.cluster.namespace)

    async def bound(self, size: str = "1Gi") -> Json:
        """The claim, once it is bound in that size."""
        return await read_until(self.get, lambda claim: claim["status"].get("capacity") == {"storage": size})

    async def delete(self, name: str = "c") -> None:
        client = await self.cluster.client()
        await client.delete(PERSISTENTVOLUMECLAIMS, name, self.cluster.namespace)

    async def warnings(self, name: str) -> dict[str, str]:
        """Messages of Events about the object, by reason."""
        client = await self.cluster.client()
        events = await items(client, EVENTS, self.cluster.namespace)
        about = [event for event in events if event["involvedObject"]["name"] == name and event["type"] == "Warning"]
        return {event["reason"]: event["message"] for event in about}


@pytest.fixture
def claims(cluster: Cluster) -> Claims:
    return Claims(cluster)


# --- processes ------------------------------------------------------------------------------------------------------


async def run(here: Here, script: str, name: str = "p", **fields: Any) -> None:
    """Run a Pod with the claim to its end, and delete it."""
    await here.create(
        on_node(sh(f"cd $FC_LOCAL_VOLUME_DATA; {script}", **MOUNT), name=name, volumes=[VOLUME], **fields)
    )
    await here.until_phase("Succeeded", name)
    await remove(here, name)


async def remove(here: Here, name: str = "p") -> None:
    await here.client.delete(PODS, name, here.namespace)
    await eventually(lambda: is_gone(here, PODS, name))


async def is_gone(here: Here, resource: Resource, name: str) -> bool:
    with suppress(NotFound):
        await here.client.get(resource, name, here.namespace)
        return False
    return True


async def test_a_claim_is_bound_and_its_files_outlive_pods(here: Here, claims: Claims) -> None:
    await claims.create()
    claim = await claims.bound()
    assert claim["spec"]["volumeName"] == f"pvc-{claim['metadata']['uid']}"
    assert (claim["status"]["phase"], claim["status"]["accessModes"]) == ("Bound", ["ReadWriteOnce"])
    await run(here, "test ! -e file; echo one > file")
    await run(here, "test $(cat file) = one")


async def test_pods_share_a_claim(here: Here, claims: Claims) -> None:
    await claims.create(storageClassName="standard")
    await claims.bound()
    waiting = sh("cd $FC_LOCAL_VOLUME_DATA; until test -e file; do sleep 0.02; done", **MOUNT)
    await here.create(on_node(waiting, name="other", volumes=[VOLUME]))
    await here.until_phase("Running", "other")
    await run(here, "touch file")
    await here.until_phase("Succeeded", "other")


async def test_a_volume_may_be_read_only(here: Here, claims: Claims) -> None:
    if not here.runtime.mounts_work:
        pytest.skip("needs namespaces")
    await claims.create()
    await claims.bound()
    await run(here, "touch /data-of-claim/file")
    read_only = {"name": "data", "persistentVolumeClaim": {"claimName": "c", "readOnly": True}}
    script = "test -e /data-of-claim/file && ! touch /data-of-claim/other"
    await here.create(on_node(sh(script, **MOUNT), name="p", volumes=[read_only]))
    await here.until_phase("Succeeded", "p")


async def test_files_go_with_the_claim_and_the_claim_after_its_pods(
    here: Here, claims: Claims, cluster: Cluster, tmp_path: Path
) -> None:
    if cluster.name == "1.36":
        pytest.skip("this API server does not protect claims")
    await claims.create()
    await claims.bound()
    await here.create(on_node(sh("touch $FC_LOCAL_VOLUME_DATA/file; sleep 600", **MOUNT), name="p", volumes=[VOLUME]))
    kept = tmp_path / "node" / "pods" / "claims"

    async def files(*expected: str) -> None:
        assert sorted(path.name for path in kept.glob("*/*")) == list(expected)

    await eventually(lambda: files("file"))
    await claims.delete()
    assert (await claims.get())["metadata"]["deletionTimestamp"]
    await files("file")
    await remove(here)

    await eventually(lambda: is_gone(here, PERSISTENTVOLUMECLAIMS, "c"))
    await until(lambda: list(kept.iterdir()) == [])
    await claims.create()
    await claims.bound()
    await run(here, "test ! -e file")


# --- the scheduler and the provisioner, without processes -----------------------------------------------------------


async def until_scheduled(claims: Claims, why_not: str | None = None) -> None:
    client = await claims.cluster.client()

    async def probe() -> None:
        pod = await read(client, PODS, "f-r-0", claims.cluster.namespace)
        conditions = {one["type"]: one for one in pod["status"].get("conditions") or ()}
        scheduled = conditions.get("PodScheduled") or {}
        assert (scheduled.get("status"), scheduled.get("message")) == ("False" if why_not else "True", why_not)

    await eventually(probe)


async def create_pod(claims: Claims) -> None:
    client = await claims.cluster.client()
    manifest = pod_manifest(volumes=[VOLUME], namespace=claims.cluster.namespace)
    await client.create(PODS, orjson.dumps(manifest), claims.cluster.namespace)


@pytest.mark.parametrize(
    ("spec", "obstacle"),
    [
        (
            {"storageClassName": "fast"},
            'storageclass.storage.k8s.io "fast" not found: the local cluster has only "standard"',
        ),
        ({"storageClassName": ""}, "no persistent volumes available for this claim and no storage class is set"),
        ({"volumeName": "theirs"}, 'volume "theirs" not found'),
        ({"volumeMode": "Block"}, "the local cluster has no block volumes, selectors and data sources"),
    ],
)
async def test_a_claim_that_cannot_be_bound_holds_its_pods(
    pods: SimulatedRuntime, claims: Claims, spec: Json, obstacle: str
) -> None:
    await claims.create(**spec)
    await create_pod(claims)
    why = f'0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims: "c": {obstacle}.'
    await until_scheduled(claims, why)
    assert (await claims.get())["status"] == {"phase": "Pending"}

    async def told() -> None:
        assert await claims.warnings("c") == {"ProvisioningFailed": obstacle}
        assert await claims.warnings("f-r-0") == {"FailedScheduling": why}

    await eventually(told)


async def test_a_pod_waits_for_a_claim_that_comes_later(pods: SimulatedRuntime, claims: Claims) -> None:
    await create_pod(claims)
    await until_scheduled(claims, '0/1 nodes are available: persistentvolumeclaim "c" not found.')
    await claims.create()
    await until_scheduled(claims)


async def test_a_pod_with_its_claim_starts_without_a_warning(pods: SimulatedRuntime, claims: Claims) -> None:
    await claims.create()
    await create_pod(claims)
    await until_scheduled(claims)
    assert await claims.warnings("f-r-0") == {}


async def test_a_claim_grows(pods: SimulatedRuntime, claims: Claims, cluster: Cluster) -> None:
    if cluster.name == "1.20":
        pytest.skip("this API server asks a storage class whether that is possible")
    await claims.create()
    await claims.bound()
    client = await cluster.client()
    larger = orjson.dumps({"spec": {"resources": {"requests": {"storage": "2Gi"}}}})
    await client.patch(PERSISTENTVOLUMECLAIMS, "c", larger, cluster.namespace, content_type=MERGE_PATCH)
    await claims.bound("2Gi")
