"""PersistentVolumeClaims, on every API server alike."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.api import MERGE_PATCH, Api, config_map
from tests.support.clusters import Cluster
from tests.support.eventually import eventually

SPEC: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
IMMUTABLE = "spec: Forbidden: spec is immutable after creation except resources.requests"
PROTECTION = "kubernetes.io/pvc-protection"


def claim(name: str = "c", **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": {**SPEC, **spec}}


async def create(api: Api, body: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = (await api.post(api.path("persistentvolumeclaims"), body)).ok()
    return made


async def refusal(api: Api, name: str, spec: dict[str, Any]) -> str:
    """The first line of the answer to a change that is refused."""
    answer = await api.call("PATCH", api.path("persistentvolumeclaims", name), {"spec": spec}, content_type=MERGE_PATCH)
    assert answer.code == 422
    return str(answer.body["message"]).partition(" is invalid: ")[2].splitlines()[0]


async def test_a_new_claim_is_pending_for_any_sent_status(api: Api) -> None:
    made = await create(api, {**claim(), "status": {"phase": "Bound"}})
    assert made["spec"] == {**SPEC, "volumeMode": "Filesystem"}
    assert made["status"] == {"phase": "Pending"}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"accessModes": []}, "spec.accessModes: Required value: at least 1 access mode is required"),
        ({"resources": {}}, "spec.resources[storage]: Required value"),
        (
            {"resources": {"requests": {"storage": "0"}}},
            'spec.resources[storage]: Invalid value: "0": must be greater than zero',
        ),
        (
            {"volumeMode": "Disk"},
            'spec.volumeMode: Unsupported value: "Disk": supported values: "Block", "Filesystem"',
        ),
    ],
)
async def test_a_bad_claim_is_refused(api: Api, spec: dict[str, Any], message: str) -> None:
    answer = await api.post(api.path("persistentvolumeclaims"), claim(**spec))
    assert (answer.code, answer.body["message"]) == (422, f'PersistentVolumeClaim "c" is invalid: {message}')


async def test_a_claim_that_waits_gets_a_volume_and_changes_in_nothing_else(api: Api) -> None:
    await create(api, claim())
    larger = {"resources": {"requests": {"storage": "2Gi"}}}
    for change in (larger, {"accessModes": ["ReadWriteMany"]}, {"selector": {"matchLabels": {"a": "b"}}}):
        assert (await refusal(api, "c", change)).startswith(IMMUTABLE)
    path = api.path("persistentvolumeclaims", "c")
    bound = (await api.patch(path, {"spec": {"volumeName": "v"}})).ok()
    assert bound["spec"] == {**SPEC, "volumeMode": "Filesystem", "volumeName": "v"}
    assert (await refusal(api, "c", {"volumeName": "w"})).startswith(IMMUTABLE)


async def test_the_size_of_a_bound_claim_never_shrinks(api: Api) -> None:
    await create(api, claim(volumeName="v"))
    status = {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}
    path = api.path("persistentvolumeclaims", "c")
    written = (await api.patch(f"{path}/status", {"status": status, "spec": {"volumeName": "w"}})).ok()
    assert (written["status"], written["spec"]["volumeName"]) == (status, "v")
    smaller = {"resources": {"requests": {"storage": "1Mi"}}}
    assert await refusal(api, "c", smaller) == (
        "spec.resources.requests.storage: Forbidden: field can not be less than previous value"
    )
    assert (await refusal(api, "c", {"accessModes": ["ReadWriteMany"]})).startswith(IMMUTABLE)
    (await api.patch(path, {"status": {"phase": "Lost"}, "metadata": {"labels": {"a": "b"}}})).ok()
    assert (await api.get(path)).ok()["status"] == status


async def test_a_claim_stays_while_a_pod_on_a_node_uses_it(api: Api, cluster: Cluster) -> None:
    if cluster.name == "1.36":
        pytest.skip("this API server does not protect claims")
    await create(api, claim())
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "c"}}
    spec = {"containers": [{"name": "main", "image": "none"}], "volumes": [volume], "nodeName": "nowhere"}
    pods = api.path("pods")
    (await api.post(pods, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})).ok()
    path = api.path("persistentvolumeclaims", "c")
    told = (await api.delete(path)).ok()
    assert told["metadata"]["finalizers"] == [PROTECTION]
    kept = (await api.get(path)).ok()["metadata"]
    assert (kept["finalizers"], kept["deletionGracePeriodSeconds"]) == ([PROTECTION], 0)
    (await api.delete(f"{pods}/p", gracePeriodSeconds=0)).ok()
    await eventually(lambda: gone(api, path))


async def test_a_claim_goes_with_its_owner(api: Api) -> None:
    owner = (await api.post(api.path("configmaps"), config_map("owner"))).ok()["metadata"]
    body = claim()
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["uid"]}
    body["metadata"]["ownerReferences"] = [reference]
    await create(api, body)
    (await api.delete(api.path("configmaps", "owner"))).ok()
    await eventually(lambda: gone(api, api.path("persistentvolumeclaims", "c")))


async def gone(api: Api, path: str) -> None:
    assert (await api.get(path)).code == 404
