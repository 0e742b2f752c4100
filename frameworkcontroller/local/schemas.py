"""Structural schemas of CustomResourceDefinitions, in few words."""

from __future__ import annotations

from typing import Any, Final

from frameworkcontroller.kube.resources import Resource

Json = dict[str, Any]

LABEL: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
AGE: Final = ("Age", "date", ".metadata.creationTimestamp")
"""The column of ages."""

_SUBDOMAIN: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
_QUANTITY: Final = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?$"


def text(description: str = "", **more: Any) -> Json:
    """A text."""
    return described({"type": "string", **more}, description)


def name(description: str = "") -> Json:
    """The name of an object."""
    return text(description, maxLength=253, pattern=_SUBDOMAIN)


def int32(description: str = "", **more: Any) -> Json:
    """A whole number."""
    return described({"type": "integer", "format": "int32", **more}, description)


def obj(description: str = "", required: tuple[str, ...] = (), /, **properties: Json) -> Json:
    """An object with these properties."""
    needed = {"required": list(required)} if required else {}
    return described({"type": "object", "properties": properties, **needed}, description)


def mapping(values: Json, description: str = "", **more: Any) -> Json:
    """A map of free keys."""
    return described({"type": "object", "additionalProperties": values, **more}, description)


def listing(items: Json, description: str = "", *, keys: tuple[str, ...] = (), **more: Any) -> Json:
    """A list. ``keys`` identify its items; without keys it has a single owner."""
    kind: Json = {"x-kubernetes-list-type": "atomic"}
    if keys:
        kind = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}
    return described({"type": "array", "items": items, **kind, **more}, description)


def described(schema: Json, description: str) -> Json:
    """The schema with that description, if there is one."""
    return {**schema, "description": description} if description else schema


def quantity(description: str = "") -> Json:
    """An amount of a resource."""
    schema = {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": _QUANTITY,
        "x-kubernetes-int-or-string": True,
    }
    return described(schema, description)


def conditions() -> Json:
    """The conditions of a status."""
    condition = obj(
        "",
        ("lastTransitionTime", "message", "reason", "status", "type"),
        lastTransitionTime=text(format="date-time"),
        message=text(maxLength=32768),
        observedGeneration={"type": "integer", "format": "int64", "minimum": 0},
        reason=text(maxLength=1024, minLength=1),
        status=text(enum=["True", "False", "Unknown"]),
        type=text(maxLength=316),
    )
    return listing(condition, "The state, one entry for each aspect of it.", keys=("type",), maxItems=16)


def definition(
    resource: Resource,
    schema: Json,
    *,
    short: tuple[str, ...] = (),
    columns: tuple[tuple[str, str, str], ...] = (),
    status: bool = False,
    approved: str = "",
) -> Json:
    """The CustomResourceDefinition of a resource with a single version.

    ``columns``: name, type and JSON path. ``approved``: the approval that a group of Kubernetes' own needs.
    """
    properties = {"apiVersion": text(), "kind": text(), "metadata": {"type": "object"}, **schema.pop("properties")}
    version: Json = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties, **schema}},
        "subresources": {"status": {}} if status else {},
    }
    annotations = {"api-approved.kubernetes.io": approved}
    if columns:
        shown = [{"name": name, "type": kind, "jsonPath": path} for name, kind, path in columns]
        version["additionalPrinterColumns"] = shown
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": resource.qualified, **({"annotations": annotations} if approved else {})},
        "spec": {
            "group": resource.group,
            "names": {
                "kind": resource.kind,
                "listKind": f"{resource.kind}List",
                "plural": resource.plural,
                "singular": resource.kind.lower(),
                "shortNames": list(short),
            },
            "scope": "Namespaced" if resource.namespaced else "Cluster",
            "versions": [version],
        },
    }
