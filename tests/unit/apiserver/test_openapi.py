"""OpenAPI documents: complete, consistent, with the parts that kubectl reads."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from frameworkcontroller.local.apiserver import builtin_resources, openapi_documents, openapi_protobuf
from frameworkcontroller.local.apiserver.api_resources import ApiResource
from tests.unit.apiserver import answers

SCHEMA = answers.load("custom_resources")["schema"]
WIDGETS = replace(
    builtin_resources.CONFIGMAPS,
    group="test.example.com",
    kind="Wid",
    plural="wids",
    list_kind="WidList",
    schema=SCHEMA,
)
TYPES: tuple[ApiResource, ...] = (*builtin_resources.BUILTIN_RESOURCES, WIDGETS)
PATHS = sorted({f"apis/{t.group_version}" if t.group else "api/v1" for t in TYPES})


def document(path: str) -> dict[str, Any]:
    found = openapi_documents.v3_document(TYPES, path)
    assert found is not None
    return found


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, member in value.items():
            if key == "$ref" and isinstance(member, str):
                yield member
            else:
                yield from references(member)
    elif isinstance(value, list):
        for item in value:
            yield from references(item)


@pytest.mark.parametrize("path", PATHS)
def test_every_reference_leads_somewhere(path: str) -> None:
    schemas = document(path)["components"]["schemas"]
    assert {reference.rpartition("/")[2] for reference in references(document(path))} <= set(schemas)


@pytest.mark.parametrize("t", TYPES, ids=lambda t: str(t.resource))
def test_kubectl_finds_the_kind_and_that_its_fields_are_checked(t: ApiResource) -> None:
    path = f"apis/{t.group_version}" if t.group else "api/v1"
    kind = {"group": t.group, "version": t.version, "kind": t.kind}
    found = document(path)
    assert (
        sum(kind in one.get("x-kubernetes-group-version-kind", []) for one in found["components"]["schemas"].values())
        == 1
    )
    if "patch" in t.verbs:
        operations = [item["patch"] for item in found["paths"].values() if "patch" in item]
        mine = [one for one in operations if one["x-kubernetes-group-version-kind"] == kind]
        assert mine
        assert all("fieldValidation" in [parameter["name"] for parameter in one["parameters"]] for one in mine)


def test_the_index_leads_to_each_document_by_its_content() -> None:
    index = openapi_documents.v3_index(TYPES)["paths"]
    assert sorted(index) == PATHS
    changed = copy.deepcopy(SCHEMA)
    changed["properties"]["spec"]["properties"]["more"] = {"type": "string"}
    after = openapi_documents.v3_index([*builtin_resources.BUILTIN_RESOURCES, replace(WIDGETS, schema=changed)])[
        "paths"
    ]
    assert {path for path in index if index[path] != after[path]} == {"apis/test.example.com/v1"}
    assert openapi_documents.v3_document(TYPES, "apis/nope/v1") is None


def test_lists_say_how_they_merge_and_are_divided() -> None:
    schemas = document("api/v1")["components"]["schemas"]
    pod_spec = schemas["io.k8s.api.core.v1.PodSpec"]
    assert pod_spec["required"] == ["containers"]
    volumes = {key: value for key, value in pod_spec["properties"]["volumes"].items() if key.startswith("x-")}
    assert volumes == {
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "x-kubernetes-patch-strategy": "merge,retainKeys",
        "x-kubernetes-patch-merge-key": "name",
    }
    finalizers = schemas["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"]["properties"]["finalizers"]
    assert (finalizers["x-kubernetes-list-type"], finalizers["x-kubernetes-patch-strategy"]) == ("set", "merge")
    assert schemas["io.k8s.api.core.v1.ConfigMap"]["properties"]["data"]["additionalProperties"] == {"type": "string"}


def test_fields_are_described() -> None:
    containers = document("api/v1")["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]
    assert containers["description"].startswith("List of containers belonging to the pod.")


def test_a_custom_resource_is_described_by_its_own_schema() -> None:
    schema = document("apis/test.example.com/v1")["components"]["schemas"]["com.example.test.v1.Wid"]
    assert schema["properties"]["spec"] == SCHEMA["properties"]["spec"]
    assert {"apiVersion", "kind", "metadata"} <= set(schema["properties"])


def test_the_older_document_refers_in_the_older_way() -> None:
    swagger = openapi_documents.v2_document(TYPES)
    assert swagger["swagger"] == "2.0"
    found = set(references(swagger))
    assert {reference.removeprefix("#/definitions/") for reference in found} <= set(swagger["definitions"])
    pod = swagger["definitions"]["io.k8s.api.core.v1.Pod"]
    assert pod["properties"]["spec"]["$ref"] == "#/definitions/io.k8s.api.core.v1.PodSpec"
    assert "/api/v1/namespaces/{namespace}/pods/{name}" in swagger["paths"]


def fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """An independent reader of the length-delimited fields of a protobuf message."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        tag = varint()
        assert tag & 7 == 2
        size = varint()
        yield tag >> 3, message[at : at + size]
        at += size


def test_the_older_document_is_had_in_protobuf() -> None:
    top = dict(fields(openapi_protobuf.encode(openapi_documents.v2_document(TYPES))))
    assert top[1] == b"2.0"
    definitions = {}
    for number, entry in fields(top[9]):
        assert number == 1
        parts = dict(fields(entry))
        definitions[parts[1].decode()] = parts[2]
    assert set(definitions) == set(openapi_documents.v2_document(TYPES)["definitions"])
    config_map = dict(fields(definitions["io.k8s.api.core.v1.ConfigMap"]))
    assert dict(fields(config_map[22]))[1] == b"object"
    properties = {dict(fields(entry))[1] for _, entry in fields(config_map[25])}
    assert properties == {b"apiVersion", b"binaryData", b"data", b"immutable", b"kind", b"metadata"}
    name, value = (part for _, part in fields(config_map[31]))
    assert name == b"x-kubernetes-group-version-kind"
    assert dict(fields(value))[2] == b'[{"group":"","version":"v1","kind":"ConfigMap"}]'
