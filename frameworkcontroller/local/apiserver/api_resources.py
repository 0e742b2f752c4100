"""The served resources: one :class:`ApiResource` per group, version and resource.

Discovery, OpenAPI, tables and the REST handlers all read it, for built-in kinds and custom resources.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

STANDARD_VERBS: tuple[str, ...] = (
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
)
"""The verbs of an ordinary resource, in the real server's order for a built-in kind."""

CUSTOM_RESOURCE_VERBS: tuple[str, ...] = (
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
)
"""The same verbs in the real server's order for a custom resource."""


@dataclass(frozen=True, slots=True)
class Subresource:
    """A subresource such as ``pods/status``, with the kind that it reads or writes."""

    name: str
    """Last path segment: ``status``, ``scale``, ``log``, ``binding``, ``eviction``."""
    kind: str
    verbs: tuple[str, ...]
    group: str | None = None
    """Group of ``kind``; None: the parent's."""
    version: str | None = None
    """Version of ``kind``; None: the parent's."""


@dataclass(frozen=True, slots=True)
class PrinterColumn:
    """One of a CRD's ``additionalPrinterColumns``."""

    name: str
    type: str
    """integer, number, string, boolean or date."""
    json_path: str
    format: str = ""
    description: str = ""
    priority: int = 0
    """Greater than 0: only in ``kubectl get -o wide``."""


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """The fields behind a custom resource's ``scale`` subresource (JSON paths such as ``.spec.replicas``)."""

    spec_replicas: str
    status_replicas: str
    label_selector: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiResource:
    """A resource in one API version."""

    group: str
    """Empty for the core group."""
    version: str
    kind: str
    plural: str
    singular: str
    list_kind: str
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    namespaced: bool = True
    verbs: tuple[str, ...] = STANDARD_VERBS
    subresources: tuple[Subresource, ...] = ()
    schema: Mapping[str, Any] | None = None
    """``openAPIV3Schema`` of a custom resource's version; None for a built-in kind (see ``builtin``)."""
    printer_columns: tuple[PrinterColumn, ...] = ()
    """A CRD version's columns; empty: the default (NAME, AGE). Those for built-in kinds are in ``table``."""
    scale: ScalePaths | None = None

    @property
    def group_version(self) -> str:
        """``apiVersion`` of its objects: ``v1`` or ``group/v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """The name in error messages: ``pods`` or ``frameworks.frameworkcontroller.microsoft.com``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def custom(self) -> bool:
        """Whether a CustomResourceDefinition defines it."""
        return self.schema is not None

    def subresource(self, name: str) -> Subresource | None:
        """The subresource with that name, or None."""
        return next((sub for sub in self.subresources if sub.name == name), None)


def crd_resources(crd: Mapping[str, Any]) -> list[ApiResource]:
    """The resources of a valid CustomResourceDefinition, in the order of its versions.

    Like the real server, it uses ``status.acceptedNames`` if set, else ``spec.names``.
    """
    spec = crd["spec"]
    names = (crd.get("status") or {}).get("acceptedNames") or {}
    if not names.get("plural") or not names.get("kind"):
        names = spec["names"]
    kind = names["kind"]
    types = []
    for version in spec["versions"]:
        if not version.get("served"):
            continue
        subresources = version.get("subresources") or {}
        types.append(
            ApiResource(
                group=spec["group"],
                version=version["name"],
                kind=kind,
                plural=names["plural"],
                singular=names.get("singular") or kind.lower(),
                list_kind=names.get("listKind") or f"{kind}List",
                short_names=tuple(names.get("shortNames") or ()),
                categories=tuple(names.get("categories") or ()),
                namespaced=spec["scope"] == "Namespaced",
                verbs=CUSTOM_RESOURCE_VERBS,
                subresources=tuple(_subresources(kind, subresources)),
                schema=(version.get("schema") or {}).get("openAPIV3Schema") or {},
                printer_columns=tuple(_printer_column(c) for c in version.get("additionalPrinterColumns") or ()),
                scale=_scale(subresources.get("scale")),
            )
        )
    return types


def _subresources(kind: str, declared: Mapping[str, Any]) -> list[Subresource]:
    found = []
    if declared.get("status") is not None:
        found.append(Subresource("status", kind, ("get", "patch", "update")))
    if declared.get("scale") is not None:
        found.append(Subresource("scale", "Scale", ("get", "patch", "update"), "autoscaling", "v1"))
    return found


def _printer_column(column: Mapping[str, Any]) -> PrinterColumn:
    return PrinterColumn(
        name=column["name"],
        type=column["type"],
        json_path=column["jsonPath"],
        format=column.get("format") or "",
        description=column.get("description") or "",
        priority=column.get("priority") or 0,
    )


def _scale(declared: Mapping[str, Any] | None) -> ScalePaths | None:
    if declared is None:
        return None
    return ScalePaths(
        spec_replicas=declared["specReplicasPath"],
        status_replicas=declared["statusReplicasPath"],
        label_selector=declared.get("labelSelectorPath") or None,
    )
