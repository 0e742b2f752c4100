"""How every API server treats creates, updates and patches: codes, reasons, messages and fields."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.support.api import (
    APPLY_PATCH,
    JSON_PATCH,
    MERGE_PATCH,
    PARTIAL,
    STRATEGIC_PATCH,
    Api,
    bind,
    config_map,
    defined,
    definition,
    pod,
)

THING = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "number": {"type": "integer", "minimum": 0, "default": 3},
                "text": {"type": "string"},
                "replicas": {"type": "integer"},
                "empty": {"type": "string", "nullable": True},
            },
        },
        "status": {
            "type": "object",
            "properties": {
                "state": {"type": "string"},
                "replicas": {"type": "integer"},
                "selector": {"type": "string"},
            },
        },
    },
}
MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


@pytest.fixture
async def things(api: Api) -> AsyncIterator[str]:
    """The path of custom resources with status and scale subresources."""
    paths = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    async with defined(api, definition(THING, subresources={"status": {}, "scale": paths})) as path:
        yield path


def thing(path: str, name: str, **body: Any) -> dict[str, Any]:
    group = path.split("/")[2]
    return {"apiVersion": f"{group}/v1", "kind": "Thing", "metadata": {"name": name}, "spec": {"text": "x"}, **body}


# --- create ---------------------------------------------------------------------------------------------------------


async def test_the_fields_of_a_new_object_that_the_server_sets(api: Api) -> None:
    asked = config_map(
        "c",
        uid="mine",
        creationTimestamp="2001-01-01T00:00:00Z",
        deletionTimestamp="2001-01-01T00:00:00Z",
        deletionGracePeriodSeconds=7,
    )
    answer = await api.post(api.path("configmaps"), asked)
    assert answer.code == 201
    metadata = answer.body["metadata"]
    assert metadata["namespace"] == api.namespace
    assert metadata["uid"] not in {"", "mine"}
    assert metadata["resourceVersion"].isdigit()
    assert metadata["creationTimestamp"] > "2002"
    assert not metadata.keys() & {"deletionTimestamp", "deletionGracePeriodSeconds", "generation"}
    assert (await api.get(api.path("configmaps", "c"))).ok()["metadata"] == metadata


async def test_a_taken_name_is_refused(api: Api) -> None:
    (await api.post(api.path("configmaps"), config_map("c"))).ok()
    answer = await api.post(api.path("configmaps"), config_map("c"))
    assert (answer.code, answer.reason) == (409, "AlreadyExists")
    assert answer.message == 'configmaps "c" already exists'
    assert answer.body["details"] == {"name": "c", "kind": "configmaps"}


async def test_a_name_is_generated(api: Api) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "g-"}}
    names = {(await api.post(api.path("configmaps"), body)).ok()["metadata"]["name"] for _ in range(5)}
    assert len(names) == 5
    assert all(name.startswith("g-") and len(name) == 7 for name in names)


async def test_objects_that_cannot_be_created(api: Api) -> None:
    path = api.path("configmaps")
    missing = await api.post(api.path("configmaps", namespace="nowhere"), config_map("c"))
    assert (missing.code, missing.message) == (404, 'namespaces "nowhere" not found')
    elsewhere = await api.post(path, config_map("c", namespace="elsewhere"))
    assert (elsewhere.code, elsewhere.reason) == (400, "BadRequest")
    assert elsewhere.message.startswith(
        "the namespace of the provided object does not match the namespace sent on the r"
    )
    nameless = await api.post(path, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}})
    assert (nameless.code, nameless.causes()) == (
        422,
        [("metadata.name", "Required value: name or generateName is required")],
    )
    versioned = await api.post(path, config_map("c", resourceVersion="5"))
    assert (versioned.code, versioned.message) == (500, "resourceVersion should not be set on objects to be created")
    finalizer = await api.post(path, config_map("c", finalizers=["nodomain"]))
    assert finalizer.code == 422
    assert finalizer.causes()[0][0] == "metadata.finalizers[0]"
    wrong_kind = await api.post(path, {**config_map("c"), "kind": "Secret"})
    assert (wrong_kind.code, wrong_kind.reason) == (400, "BadRequest")
    assert wrong_kind.message.startswith('Secret in version "v1" cannot be handled as a ConfigMap')
    broken = await api.call("POST", path, b'{"a":')
    assert broken.code == 400
    assert broken.message.startswith("the object provided is unrecognized (must be of type ConfigMap)")
    text = await api.call("POST", path, b"x", content_type="text/plain")
    assert (text.code, text.reason) == (415, "UnsupportedMediaType")
    assert (await api.get(path)).ok()["items"] == []


async def test_a_dry_run_changes_nothing(api: Api) -> None:
    path = api.path("configmaps")
    tried = (await api.post(path, config_map("c"), dryRun="All")).ok()
    assert tried["metadata"]["uid"]
    assert "resourceVersion" not in tried["metadata"]
    assert (await api.get(api.path("configmaps", "c"))).code == 404
    created = (await api.post(path, config_map("c"))).ok()
    patched = (await api.patch(api.path("configmaps", "c"), {"data": {"a": "z"}}, dryRun="All")).ok()
    assert patched["data"] == {"a": "z"}
    assert (await api.delete(api.path("configmaps", "c"), dryRun="All")).code == 200
    assert (await api.get(api.path("configmaps", "c"))).ok() == created
    refused = await api.post(path, config_map("d"), dryRun="Some")
    assert refused.code == 422
    assert refused.causes()[0][0] == "dryRun"


# --- update ---------------------------------------------------------------------------------------------------------


async def test_optimistic_concurrency(api: Api) -> None:
    first = (await api.post(api.path("configmaps"), config_map("c"))).ok()
    path = api.path("configmaps", "c")
    unchanged = (await api.put(path, first)).ok()
    assert unchanged["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    second = (await api.put(path, {**first, "data": {"a": "2"}})).ok()
    assert int(second["metadata"]["resourceVersion"]) > int(first["metadata"]["resourceVersion"])
    stale = await api.put(path, {**first, "data": {"a": "3"}})
    assert (stale.code, stale.reason) == (409, "Conflict")
    assert stale.message == f'Operation cannot be fulfilled on configmaps "c": {MODIFIED}'
    patched = await api.patch(
        path, {"metadata": {"resourceVersion": first["metadata"]["resourceVersion"]}, "data": {"a": "4"}}
    )
    assert (patched.code, patched.message) == (409, stale.message)
    (await api.put(path, config_map("c"))).ok()  # says of no version, so replaces any


async def test_an_update_may_not_change_the_identity(api: Api) -> None:
    first = (await api.post(api.path("configmaps"), config_map("c"))).ok()
    path = api.path("configmaps", "c")
    other = await api.put(path, config_map("c", uid="other"))
    assert (other.code, other.reason) == (409, "Conflict")
    assert f"Precondition failed: UID in precondition: other, UID in object meta: {first['metadata']['uid']}" in (
        other.message
    )
    immutable = await api.patch(path, {"metadata": {"uid": "other"}})
    assert immutable.code in {409, 422}
    renamed = await api.put(path, config_map("d"))
    assert (renamed.code, renamed.message) == (
        400,
        "the name of the object (d) does not match the name on the URL (c)",
    )
    absent = await api.put(api.path("configmaps", "d"), config_map("d"))
    assert (absent.code, absent.message) == (404, 'configmaps "d" not found')
    kept = (
        await api.patch(
            path, {"metadata": {"uid": None, "creationTimestamp": None, "generation": 5}, "data": {"b": "c"}}
        )
    ).ok()
    assert {key: kept["metadata"][key] for key in ("uid", "creationTimestamp")} == {
        key: first["metadata"][key] for key in ("uid", "creationTimestamp")
    }


async def test_generations_count_changes_of_the_spec(api: Api, things: str) -> None:
    created = (await api.post(things, thing(things, "t", status={"state": "new"}, unknown=1))).ok()
    assert created["metadata"]["generation"] == 1
    assert created["spec"] == {"text": "x", "number": 3}
    assert not created.keys() & {"status", "unknown"}
    path = f"{things}/t"
    labelled = (await api.patch(path, {"metadata": {"labels": {"a": "b"}, "generation": 9}})).ok()
    assert labelled["metadata"]["generation"] == 1
    written = (await api.patch(f"{path}/status", {"status": {"state": "s"}, "spec": {"text": "y"}})).ok()
    assert (written["metadata"]["generation"], written["status"], written["spec"]["text"]) == (1, {"state": "s"}, "x")
    changed = (await api.patch(path, {"spec": {"text": "y"}, "status": {"state": "lost"}})).ok()
    assert (changed["metadata"]["generation"], changed["status"]) == (2, {"state": "s"})
    held = (await api.patch(path, {"metadata": {"finalizers": ["example.com/f"]}})).ok()
    assert held["metadata"]["generation"] == 2
    deleted = (await api.delete(path)).ok()
    assert deleted["metadata"]["generation"] == 3
    (await api.patch(path, {"metadata": {"finalizers": None}})).ok()


async def test_a_status_write_leaves_metadata_alone(api: Api, things: str) -> None:
    created = (await api.post(things, thing(things, "t"))).ok()
    created["metadata"]["labels"] = {"a": "b"}
    written = (await api.put(f"{things}/t/status", {**created, "status": {"state": "s", "unknown": 1}})).ok()
    assert "labels" not in written["metadata"]
    assert written["status"] == {"state": "s"}
    wrong = await api.patch(f"{things}/t/status", {"status": {"state": 5}})
    assert wrong.code == 422
    ((field, message),) = wrong.causes()
    assert field == "status.state"
    assert message.endswith('state in body must be of type string: "integer"')


async def test_custom_resources_name_the_version_they_replace(api: Api, things: str) -> None:
    created = (await api.post(things, thing(things, "t"))).ok()
    del created["metadata"]["resourceVersion"]
    refused = await api.put(f"{things}/t", created)
    assert refused.code == 422
    ((field, message),) = refused.causes()
    assert field == "metadata.resourceVersion"
    assert message.endswith(": must be specified for an update")


async def test_scale(api: Api, things: str) -> None:
    (await api.post(things, thing(things, "t", spec={"replicas": 1}))).ok()
    (await api.patch(f"{things}/t/status", {"status": {"replicas": 2, "selector": "a=b"}})).ok()
    scale = (await api.get(f"{things}/t/scale")).ok()
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert (scale["spec"], scale["status"]) == ({"replicas": 1}, {"replicas": 2, "selector": "a=b"})
    scaled = (await api.put(f"{things}/t/scale", {**scale, "spec": {"replicas": 4}})).ok()
    assert scaled["spec"] == {"replicas": 4}
    (await api.patch(f"{things}/t/scale", {"spec": {"replicas": 5}})).ok()
    found = (await api.get(f"{things}/t")).ok()
    assert (found["spec"]["replicas"], found["metadata"]["generation"]) == (5, 3)


# --- patch ----------------------------------------------------------------------------------------------------------


async def test_json_patch_guards(api: Api, things: str) -> None:
    created = (await api.post(things, thing(things, "t"))).ok()
    path = f"{things}/t"
    guard = [
        {"op": "test", "path": "/metadata/uid", "value": created["metadata"]["uid"]},
        {"op": "test", "path": "/metadata/generation", "value": 1},
    ]
    write = {"op": "add", "path": "/status", "value": {"state": "s"}}
    (await api.patch(f"{path}/status", [*guard, write], JSON_PATCH)).ok()
    (await api.patch(path, {"spec": {"text": "y"}})).ok()
    late = await api.patch(f"{path}/status", [*guard, {**write, "value": {"state": "late"}}], JSON_PATCH)
    assert (late.code, late.reason) == (422, "Invalid")
    assert late.message == "the server rejected our request due to an error in our request"
    astray = await api.patch(path, [{"op": "replace", "path": "/spec/no/where", "value": 1}], JSON_PATCH)
    assert astray.code == 422
    assert (await api.get(path)).ok()["status"] == {"state": "s"}


async def test_patch_formats(api: Api, things: str) -> None:
    (await api.post(api.path("pods"), pod("p"))).ok()
    path = api.path("pods", "p")
    merged = (await api.patch(path, {"metadata": {"labels": {"a": "b", "c": "d"}}}, MERGE_PATCH)).ok()
    assert merged["metadata"]["labels"] == {"a": "b", "c": "d"}
    strategic = {"metadata": {"labels": {"a": None}}, "spec": {"containers": [{"name": "main", "image": "other"}]}}
    merged = (await api.patch(path, strategic, STRATEGIC_PATCH)).ok()
    assert merged["metadata"]["labels"] == {"c": "d"}
    assert merged["spec"]["containers"][0]["image"] == "other"
    (await api.post(things, thing(things, "t"))).ok()
    refused = await api.patch(f"{things}/t", {}, STRATEGIC_PATCH)
    assert refused.code == 415
    assert "accepted media types include: application/json-patch+json, application/merge-patch+json" in refused.message
    assert (await api.patch(path, {}, "application/unknown")).code == 415
    absent = await api.patch(api.path("pods", "q"), {})
    assert (absent.code, absent.message) == (404, 'pods "q" not found')


async def test_server_side_apply(api: Api) -> None:
    path = api.path("configmaps", "c")
    nobody = await api.patch(path, config_map("c"), APPLY_PATCH)
    assert nobody.causes() == [("fieldManager", "Required value: is required for apply patch")]
    created = await api.patch(path, config_map("c"), APPLY_PATCH, fieldManager="one")
    assert created.code == 201
    again = await api.patch(path, config_map("c"), APPLY_PATCH, fieldManager="one")
    assert again.code == 200
    assert again.body["metadata"]["resourceVersion"] == created.body["metadata"]["resourceVersion"]
    other = {**config_map("c"), "data": {"a": "other"}}
    conflict = await api.patch(path, other, APPLY_PATCH, fieldManager="two")
    assert (conflict.code, conflict.reason) == (409, "Conflict")
    assert conflict.causes() == [(".data.a", 'conflict with "one"')]
    assert conflict.message == 'Apply failed with 1 conflict: conflict with "one": .data.a'
    forced = await api.patch(path, other, APPLY_PATCH, fieldManager="two", force="true")
    assert forced.ok()["data"] == {"a": "other"}
    assert {one["manager"] for one in forced.body["metadata"]["managedFields"]} >= {"two"}
    (await api.patch(path, {**config_map("c"), "data": {}}, APPLY_PATCH, fieldManager="two")).ok()
    assert not (await api.get(path)).ok().get("data")


# --- Pods -----------------------------------------------------------------------------------------------------------


async def test_a_new_pod_is_pending_and_complete(api: Api) -> None:
    created = (await api.post(api.path("pods"), {**pod("p"), "status": {"phase": "Running"}})).ok()
    assert created["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert (
        created["spec"].items()
        >= {
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "schedulerName": "default-scheduler",
            "enableServiceLinks": True,
            "securityContext": {},
        }.items()
    )
    assert created["spec"]["containers"] == [
        {
            "name": "main",
            "image": "none",
            "imagePullPolicy": "Always",
            "resources": {},
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
        }
    ]


async def test_the_spec_of_a_pod_is_immutable(api: Api) -> None:
    (await api.post(api.path("pods"), pod("p"))).ok()
    path = api.path("pods", "p")
    refused = await api.patch(path, {"spec": {"hostname": "other"}})
    assert (refused.code, refused.causes()[0][0]) == (422, "spec")
    assert "pod updates may not change fields other than `spec.containers[*].image`" in refused.message
    (await api.patch(path, {"spec": {"activeDeadlineSeconds": 10}})).ok()
    longer = await api.patch(path, {"spec": {"activeDeadlineSeconds": 20}})
    assert longer.causes() == [
        ("spec.activeDeadlineSeconds", "Invalid value: 20: must be less than or equal to previous value")
    ]
    ignored = (await api.patch(path, {"status": {"phase": "Running"}})).ok()
    assert ignored["status"]["phase"] == "Pending"
    written = (await api.patch(f"{path}/status", {"status": {"phase": "Running"}, "spec": {"nodeName": "x"}})).ok()
    assert written["status"]["phase"] == "Running"
    assert "nodeName" not in written["spec"]


async def test_binding(api: Api) -> None:
    (await api.post(api.path("pods"), pod("p"))).ok()
    await bind(api, "p")
    bound = (await api.get(api.path("pods", "p"))).ok()
    assert bound["spec"]["nodeName"] == "n1"
    assert [(one["type"], one["status"]) for one in bound["status"]["conditions"]] == [("PodScheduled", "True")]
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"name": "n2"}}
    again = await api.post(api.path("pods", "p", "binding"), binding)
    assert (again.code, again.reason) == (409, "Conflict")
    assert again.message == (
        'Operation cannot be fulfilled on pods/binding "p": pod p is already assigned to node "n1"'
    )
    assert (await api.post(api.path("pods", "q", "binding"), {**binding, "metadata": {"name": "q"}})).code == 404


async def test_metadata_alone(api: Api) -> None:
    (await api.post(api.path("configmaps"), config_map("c", labels={"a": "b"}))).ok()
    partial = (await api.call("GET", api.path("configmaps", "c"), accept=PARTIAL)).ok()
    assert (partial["kind"], partial["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
    assert partial["metadata"]["labels"] == {"a": "b"}
    assert "data" not in partial
    created = await api.call("POST", api.path("configmaps"), config_map("d"), accept=PARTIAL)
    assert (created.code, created.body["kind"]) == (201, "PartialObjectMetadata")


async def test_paths_that_lead_nowhere(api: Api) -> None:
    resource = await api.get("/api/v1/foos")
    assert (resource.code, resource.message) == (404, "the server could not find the requested resource")
    group = await api.get("/apis/nobody.example.com/v1/foos")
    assert (group.code, group.body) == (404, "404 page not found\n")
    for method, path in [
        ("DELETE", "/api/v1/configmaps"),
        ("POST", "/api/v1/configmaps"),
        ("POST", api.path("configmaps", "c")),
        ("PUT", api.path("configmaps")),
        ("PATCH", api.path("configmaps")),
    ]:
        answer = await api.call(method, path, config_map("c"))
        assert (answer.code, answer.reason) == (405, "MethodNotAllowed"), (method, path)
        assert answer.message == "the server does not allow this method on the requested resource"


async def test_an_empty_dir_of_less_than_nothing_is_refused(api: Api) -> None:
    body = pod("p")
    body["spec"]["volumes"] = [{"name": "v", "emptyDir": {"sizeLimit": "-1Mi"}}]
    refused = await api.post(api.path("pods"), body)
    where = "spec.volumes[0].emptyDir.sizeLimit"
    text = "Forbidden: SizeLimit field must be a valid resource quantity"
    assert (refused.code, refused.causes()) == (422, [(where, text)])
    body["spec"]["volumes"][0]["emptyDir"]["sizeLimit"] = "0"
    (await api.post(api.path("pods"), body)).ok()
