"""The PodGroups of gang schedulers as custom resources, for API servers that have none of their own."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final

import orjson
import pytest

from frameworkcontroller.kube.errors import AlreadyExists, ApiError
from frameworkcontroller.kube.resources import CRDS, PODGROUPS, VOLCANO_PODGROUPS, Resource
from tests.support.clusters import Cluster
from tests.support.eventually import eventually
from tests.support.othercontrollers import crd_of

_COUNT: Final = {"type": "integer", "format": "int32", "minimum": 1}
_OPEN: Final = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_APPROVED: Final = {"api-approved.kubernetes.io": "unapproved, for tests"}


def podgroup_crd(resource: Resource) -> dict[str, Any]:
    """The CRD of these PodGroups, with the fields that the controller writes."""
    if resource.group == PODGROUPS.group:
        gang: dict[str, Any] = {"type": "object", "required": ["minCount"], "properties": {"minCount": _COUNT}}
        mode: dict[str, Any] = {"type": "object", "properties": {"single": _OPEN, "all": _OPEN}}
        if resource.version == "v1alpha2":
            mode = {"type": "string", "enum": ["Pod", "PodGroup"]}
        fields: dict[str, Any] = {
            "schedulingPolicy": {"type": "object", "properties": {"basic": _OPEN, "gang": gang}},
            "schedulingConstraints": _OPEN,
            "disruptionMode": mode,
            "priorityClassName": {"type": "string"},
        }
    else:
        fields = {"minMember": _COUNT}
        if resource.group == VOLCANO_PODGROUPS.group:
            fields |= {"queue": {"type": "string", "default": "default"}, "minResources": _OPEN}
            fields |= {"priorityClassName": {"type": "string"}}
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": fields}, "status": _OPEN}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource.qualified, "annotations": _APPROVED},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced",
            "names": {"kind": resource.kind, "plural": resource.plural, "singular": "podgroup"},
            "versions": [
                {
                    "name": resource.version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {} if resource.group == VOLCANO_PODGROUPS.group else {"status": {}},
                }
            ],
        },
    }


async def serve(cluster: Cluster, resource: Resource) -> None:
    """Have the API server serve these PodGroups, by the schema of their project where that is found.

    Real API servers have the group of the native ones, and let no CustomResourceDefinition add to it.
    """
    if resource.group == PODGROUPS.group and not cluster.embedded:
        pytest.skip("this API server has a group scheduling.k8s.io without PodGroups")
    client = await cluster.client()
    published = crd_of({"apiVersion": resource.api_version, "kind": resource.kind})
    with suppress(AlreadyExists):
        await client.create(CRDS, orjson.dumps(published or podgroup_crd(resource)))

    async def served() -> None:
        try:
            await client.list(resource)
        except ApiError as error:
            # Not served yet, or its storage is not ready.
            raise AssertionError(error) from error

    await eventually(served)
