"""Discovery documents, in the forms that old and new clients request."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from frameworkcontroller.local.apiserver import builtin_resources, discovery_documents
from frameworkcontroller.local.apiserver.api_resources import CUSTOM_RESOURCE_VERBS, ApiResource, Subresource

WIDGETS = replace(
    builtin_resources.CONFIGMAPS,
    group="test.example.com",
    kind="Wid",
    plural="wids",
    singular="wid",
    short_names=(),
    verbs=CUSTOM_RESOURCE_VERBS,
    schema={},
    subresources=(Subresource("status", "Wid", ("get", "patch", "update")),),
)
TYPES: tuple[ApiResource, ...] = (*builtin_resources.BUILTIN_RESOURCES, WIDGETS)


def names(document: dict[str, Any]) -> list[str]:
    return [entry["name"] for entry in document["resources"]]


def test_the_core_group_lists_resources_and_subresources() -> None:
    document = discovery_documents.api_resource_list(TYPES, "", "v1")
    assert document is not None
    assert document["groupVersion"] == "v1"
    entries = {entry["name"]: entry for entry in document["resources"]}
    assert entries["pods"] == {
        "name": "pods",
        "singularName": "pod",
        "namespaced": True,
        "kind": "Pod",
        "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
        "shortNames": ["po"],
        "categories": ["all"],
    }
    assert entries["pods/eviction"] == {
        "name": "pods/eviction",
        "singularName": "",
        "namespaced": True,
        "group": "policy",
        "version": "v1",
        "kind": "Eviction",
        "verbs": ["create"],
    }
    assert "deletecollection" not in entries["namespaces"]["verbs"]
    assert names(document) == sorted(names(document))


def test_a_custom_resource_is_listed_like_any_other() -> None:
    document = discovery_documents.api_resource_list(TYPES, "test.example.com", "v1")
    assert document is not None
    assert names(document) == ["wids", "wids/status"]
    assert document["resources"][0]["verbs"][0] == "delete"
    assert discovery_documents.api_resource_list(TYPES, "test.example.com", "v9") is None


def test_groups_name_their_versions_best_first() -> None:
    served = [replace(WIDGETS, version=version) for version in ("v1beta1", "v2", "v1", "v10alpha1", "foo")]
    group = discovery_documents.api_group(served, "test.example.com")
    assert group is not None
    assert [one["version"] for one in group["versions"]] == ["v2", "v1", "v1beta1", "v10alpha1", "foo"]
    assert group["preferredVersion"] == {"groupVersion": "test.example.com/v2", "version": "v2"}
    assert discovery_documents.api_group(served, "other") is None


def test_all_groups_are_listed_once_with_the_servers_address() -> None:
    document = discovery_documents.api_group_list(TYPES, "127.0.0.1:1")
    groups = [group["name"] for group in document["groups"]]
    assert len(groups) == len(set(groups))
    assert {"apiextensions.k8s.io", "test.example.com"} <= set(groups)
    assert "" not in groups
    address = [{"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1:1"}]
    assert all(group["serverAddressByClientCIDRs"] == address for group in document["groups"])
    assert discovery_documents.api_versions("127.0.0.1:1")["versions"] == ["v1"]


@pytest.mark.parametrize("version", ["v2", "v2beta1"])
def test_the_aggregated_document_holds_all_of_it(version: str) -> None:
    core = discovery_documents.aggregated(TYPES, core=True, version=version)
    assert core["apiVersion"] == f"apidiscovery.k8s.io/{version}"
    assert [item["metadata"] for item in core["items"]] == [{}]
    pods = next(one for one in core["items"][0]["versions"][0]["resources"] if one["resource"] == "pods")
    assert pods["scope"] == "Namespaced"
    assert next(one for one in pods["subresources"] if one["subresource"] == "eviction") == {
        "subresource": "eviction",
        "responseKind": {"group": "policy", "version": "v1", "kind": "Eviction"},
        "verbs": ["create"],
    }
    groups = discovery_documents.aggregated(TYPES, core=False, version=version)["items"]
    wids = next(item for item in groups if item["metadata"] == {"name": "test.example.com"})
    assert wids["versions"][0]["freshness"] == "Current"
    assert wids["versions"][0]["resources"][0]["responseKind"] == {
        "group": "test.example.com",
        "version": "v1",
        "kind": "Wid",
    }


def test_the_root_lists_paths() -> None:
    paths = discovery_documents.root_paths(TYPES, ["/healthz"])["paths"]
    assert paths == sorted(paths)
    assert {"/api/v1", "/apis/test.example.com/v1", "/healthz"} <= set(paths)


def test_the_version_reads_as_a_kubernetes_version() -> None:
    info = discovery_documents.version_info("v1.33.0+frameworkcontroller")
    assert (info["major"], info["minor"], info["gitVersion"]) == ("1", "33", "v1.33.0+frameworkcontroller")
