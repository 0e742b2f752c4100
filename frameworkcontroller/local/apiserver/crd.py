"""CustomResourceDefinitions themselves: their defaults and what may be wrong with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from frameworkcontroller.local.apiserver.causes import Cause


def defaulted(crd: Mapping[str, Any]) -> dict[str, Any]:
    """``crd`` with the defaults of its own type: names derived from the kind, conversion strategy None, ..."""
    result = dict(crd)
    spec = dict(result.get("spec") or {})
    names = dict(spec.get("names") or {})
    kind = names.get("kind") or ""
    if kind:
        if not names.get("singular"):
            names["singular"] = kind.lower()
        if not names.get("listKind"):
            names["listKind"] = f"{kind}List"
    spec["names"] = names
    spec.setdefault("conversion", {"strategy": "None"})
    versions = [dict(version) for version in spec.get("versions") or ()]
    for version in versions:
        version.setdefault("served", False)
        version.setdefault("storage", False)
    if versions:
        spec["versions"] = versions
    result["spec"] = spec
    return result


def causes(crd: Mapping[str, Any], old: Mapping[str, Any] | None = None) -> list[Cause]:
    """What is wrong with a defaulted ``crd`` that replaces ``old`` (None on create)."""
    raise NotImplementedError
