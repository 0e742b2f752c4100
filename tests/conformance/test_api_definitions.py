"""How every API server treats CustomResourceDefinitions."""

import pytest

from tests.support.api import CRDS, Api, config_map, defined, definition, gone
from tests.support.clusters import Cluster
from tests.support.eventually import eventually, read_until

OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
NAMED = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}}}


async def test_a_definition_is_accepted_and_established(api: Api) -> None:
    crd = definition(NAMED)
    created = (await api.post(CRDS, crd)).ok()
    path = f"{CRDS}/{crd['metadata']['name']}"
    assert created["metadata"]["generation"] == 1
    assert created["spec"]["names"] == {
        "plural": "things",
        "singular": "thing",
        "kind": "Thing",
        "listKind": "ThingList",
        "shortNames": ["th"],
    }
    assert created["spec"]["conversion"] == {"strategy": "None"}
    assert created["status"]["storedVersions"] == ["v1"]

    async def established() -> None:
        status = (await api.get(path)).ok()["status"]
        found = {one["type"]: (one["status"], one["reason"]) for one in status.get("conditions") or ()}
        assert found == {"NamesAccepted": ("True", "NoConflicts"), "Established": ("True", "InitialNamesAccepted")}
        assert status["acceptedNames"] == created["spec"]["names"]

    await eventually(established)
    (await api.delete(path)).ok()
    await gone(api, path)


async def test_invalid_definitions_are_refused(api: Api) -> None:
    wrong_name = definition(NAMED)
    wrong_name["metadata"]["name"] = "others." + wrong_name["spec"]["group"]
    refused = await api.post(CRDS, wrong_name)
    assert (refused.code, refused.reason) == (422, "Invalid")
    assert any(field == "metadata.name" for field, _ in refused.causes())
    untyped = await api.post(CRDS, definition({"properties": {"spec": {"type": "object"}}}))
    assert untyped.code == 422
    assert any("openAPIV3Schema" in field for field, _ in untyped.causes())


async def test_unknown_fields_go_and_objects_are_served(api: Api) -> None:
    async with defined(api, definition(NAMED)) as things:
        group = things.split("/")[2]
        body = {
            "apiVersion": f"{group}/v1",
            "kind": "Thing",
            "metadata": {"name": "t"},
            "spec": {"a": "x", "b": "y"},
            "other": 1,
        }
        created = (await api.post(things, body)).ok()
        assert created["spec"] == {"a": "x"}
        assert "other" not in created
        listed = (await api.get(things)).ok()
        assert (listed["kind"], listed["apiVersion"]) == ("ThingList", f"{group}/v1")
        assert listed["items"] == [created]
        named = [one["name"] for one in (await api.get(f"/apis/{group}/v1")).ok()["resources"]]
        assert named == ["things"]
        other = await api.post(things, {**body, "kind": "Other"})
        assert other.code in {400, 422}
        version = await api.post(things, {**body, "apiVersion": f"{group}/v2"})
        assert (version.code, version.reason) == (400, "BadRequest")
        assert (await api.get(f"{things}/t/status")).code == 404


async def test_another_schema_reads_stored_objects(api: Api) -> None:
    crd = definition(OPEN)
    async with defined(api, crd) as things:
        body = {"apiVersion": f"{crd['spec']['group']}/v1", "kind": "Thing", "metadata": {"name": "t"}}
        created = (await api.post(things, {**body, "spec": {"a": "x", "b": "y"}})).ok()
        path = f"{CRDS}/{crd['metadata']['name']}"
        stricter = {
            "type": "object",
            "properties": {
                "spec": {
                    "type": "object",
                    "properties": {"a": {"type": "string"}, "c": {"type": "string", "default": "z"}},
                }
            },
        }
        change = [{"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema", "value": stricter}]
        (await api.patch(path, change, "application/json-patch+json")).ok()

        async def reread() -> None:
            found = (await api.get(f"{things}/t")).ok()
            assert found["spec"] == {"a": "x", "c": "z"}
            assert found["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]

        await eventually(reread)


async def test_a_definition_takes_its_objects_with_it(api: Api) -> None:
    crd = definition(OPEN)
    path = f"{CRDS}/{crd['metadata']['name']}"
    async with defined(api, crd) as things:
        body = {"apiVersion": f"{crd['spec']['group']}/v1", "kind": "Thing"}
        (await api.post(things, {**body, "metadata": {"name": "free"}})).ok()
        (await api.post(things, {**body, "metadata": {"name": "held", "finalizers": ["example.com/f"]}})).ok()
        marked = (await api.delete(path)).ok()
        assert marked["metadata"]["finalizers"] == ["customresourcecleanup.apiextensions.k8s.io"]
        assert "Terminating" in {one["type"] for one in marked["status"]["conditions"]}
        await gone(api, f"{things}/free")
        assert (await api.get(path)).code == 200

        async def closed() -> None:
            late = await api.post(things, {**body, "metadata": {"generateName": "late-"}})
            assert late.code in {403, 405}, late.body
            assert late.message.endswith("create not allowed while custom resource definition is terminating")

        await eventually(closed)
        (await api.patch(f"{things}/held", {"metadata": {"finalizers": None}})).ok()
        await gone(api, path)
        await read_until(lambda: api.get(things), lambda found: found.code == 404)


async def test_a_custom_resource_owns_like_any_other_object(api: Api, cluster: Cluster) -> None:
    if not cluster.embedded:
        pytest.skip("a real garbage collector learns of a new definition only after half a minute")
    crd = definition(OPEN)
    async with defined(api, crd) as things:
        body = {"apiVersion": f"{crd['spec']['group']}/v1", "kind": "Thing", "metadata": {"name": "t"}}
        created = (await api.post(things, body)).ok()
        reference = {"apiVersion": body["apiVersion"], "kind": "Thing", "name": "t", "uid": created["metadata"]["uid"]}
        (await api.post(api.path("configmaps"), config_map("c", ownerReferences=[reference]))).ok()
        (await api.delete(f"{CRDS}/{crd['metadata']['name']}")).ok()
        await gone(api, api.path("configmaps", "c"))
