"""Defaults and validation of CustomResourceDefinitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from frameworkcontroller.local.apiserver import name_forms
from frameworkcontroller.local.apiserver.crd_schema import schema_causes
from frameworkcontroller.local.apiserver.status_causes import Cause, invalid, not_supported, required

Json = Mapping[str, Any]

_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")


def defaulted(crd: Json) -> dict[str, Any]:
    """Apply the defaults of a CRD: names derived from the kind, conversion strategy None, ..."""
    result = dict(crd)
    spec = dict(result.get("spec") or {})
    given = dict(spec.get("names") or {})
    kind = given.get("kind") or ""
    if kind:
        if not given.get("singular"):
            given["singular"] = kind.lower()
        if not given.get("listKind"):
            given["listKind"] = f"{kind}List"
    spec["names"] = given
    spec.setdefault("conversion", {"strategy": "None"})
    versions = [{"served": False, "storage": False, **version} for version in spec.get("versions") or ()]
    if versions:
        spec["versions"] = versions
    result["spec"] = spec
    return result


def causes(crd: Json, old: Json | None = None) -> list[Cause]:
    """Validate a defaulted ``crd`` that replaces ``old`` (None on create)."""
    spec = crd.get("spec") or {}
    given = spec.get("names") or {}
    group, plural = spec.get("group") or "", given.get("plural") or ""
    name = (crd.get("metadata") or {}).get("name") or ""
    found: list[Cause] = []
    if name != f"{plural}.{group}":
        found.append(invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
    if old is not None:
        found += _immutable(spec, old.get("spec") or {})
    found += _group(group)
    scope = spec.get("scope") or ""
    if not scope:
        found.append(required("spec.scope"))
    elif scope not in ("Cluster", "Namespaced"):
        found.append(not_supported("spec.scope", scope, ("Cluster", "Namespaced")))
    found += _versions(spec.get("versions") or [])
    found += _names(given)
    if spec.get("preserveUnknownFields"):
        detail = (
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
        )
        found.append(invalid("spec.preserveUnknownFields", True, detail))
    return found + _conversion(spec.get("conversion") or {})


def _immutable(spec: Json, before: Json) -> list[Cause]:
    found = [
        invalid(f"spec.{field}", spec.get(field), "field is immutable")
        for field in ("group", "scope")
        if spec.get(field) != before.get(field)
    ]
    now, then = spec.get("names") or {}, before.get("names") or {}
    return found + [
        invalid(f"spec.names.{field}", now.get(field), "field is immutable")
        for field in ("plural", "kind")
        if now.get(field) != then.get(field)
    ]


def _group(group: str) -> list[Cause]:
    if not group:
        return [required("spec.group")]
    complaints = name_forms.subdomain(group)
    if not complaints and "." not in group:
        complaints = ["should be a domain with at least one dot"]
    return [invalid("spec.group", group, text) for text in complaints]


def _names(given: Json) -> list[Cause]:
    found: list[Cause] = []
    for field in ("plural", "singular", "kind", "listKind"):
        value = given.get(field) or ""
        mixed = field in ("kind", "listKind")
        if not value:
            found.append(required(f"spec.names.{field}"))
            continue
        preface = "may have mixed case, but should otherwise match: " if mixed else ""
        complaints = name_forms.dns_1035_label(value.lower() if mixed else value)
        found += [invalid(f"spec.names.{field}", value, preface + text) for text in complaints]
    for field in ("shortNames", "categories"):
        for index, value in enumerate(given.get(field) or ()):
            place = f"spec.names.{field}[{index}]"
            found += [invalid(place, value, text) for text in name_forms.dns_1035_label(value)]
    if given.get("kind") and given.get("kind") == given.get("listKind"):
        found.append(invalid("spec.names.listKind", given["listKind"], "kind and listKind may not be the same"))
    return found


def _versions(versions: list[Json]) -> list[Cause]:
    found: list[Cause] = []
    # With one version (or equal ones), the real server reports the formerly shared top-level fields.
    shared = len(versions) == 1
    for index, version in enumerate(versions):
        path = f"spec.versions[{index}]"
        name = version.get("name") or ""
        found += [invalid(f"{path}.name", name, text) for text in name_forms.dns_1035_label(name)]
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if not schema:
            found.append(required(f"{path}.schema.openAPIV3Schema"))
        else:
            found += schema_causes(
                schema, "spec.validation.openAPIV3Schema" if shared else f"{path}.schema.openAPIV3Schema"
            )
        parent = "spec" if shared else path
        for column, declared in enumerate(version.get("additionalPrinterColumns") or ()):
            found += _column(declared, f"{parent}.additionalPrinterColumns[{column}]")
        scale = (version.get("subresources") or {}).get("scale")
        if scale is not None:
            found += _scale(scale, f"{parent}.subresources.scale")
    shown = [{"Name": version.get("name"), "Storage": bool(version.get("storage"))} for version in versions]
    if len({version.get("name") for version in versions}) != len(versions):
        found.append(invalid("spec.versions", shown, "must contain unique version names"))
    if sum(bool(version.get("storage")) for version in versions) != 1:
        found.append(invalid("spec.versions", shown, "must have exactly one version marked as storage version"))
    return found


def _column(column: Json, path: str) -> list[Cause]:
    found: list[Cause] = []
    if not column.get("name"):
        found.append(required(f"{path}.name"))
    kind, form, where = column.get("type") or "", column.get("format") or "", column.get("jsonPath") or ""
    if not kind:
        found.append(required(f"{path}.type", f"must be one of {','.join(_COLUMN_TYPES)}"))
    elif kind not in _COLUMN_TYPES:
        found.append(invalid(f"{path}.type", kind, f"must be one of {','.join(_COLUMN_TYPES)}"))
    if form and form not in _COLUMN_FORMATS:
        found.append(invalid(f"{path}.format", form, f"must be one of {','.join(_COLUMN_FORMATS)}"))
    if not where:
        found.append(required(f"{path}.JSONPath"))
    elif not where.startswith("."):
        found.append(invalid(f"{path}.JSONPath", where, "must be a simple json path starting with ."))
    return found


def _scale(scale: Json, path: str) -> list[Cause]:
    found: list[Cause] = []
    for field, under in (
        ("specReplicasPath", (".spec",)),
        ("statusReplicasPath", (".status",)),
        ("labelSelectorPath", (".spec", ".status")),
    ):
        where = scale.get(field) or ""
        if not where:
            if field != "labelSelectorPath":
                found.append(required(f"{path}.{field}"))
        elif not any(where.startswith(f"{root}.") for root in under):
            found.append(invalid(f"{path}.{field}", where, f"should be a json path under {' or '.join(under)}"))
    return found


def _conversion(conversion: Json) -> list[Cause]:
    strategy = conversion.get("strategy") or ""
    if strategy not in ("None", "Webhook"):
        return [not_supported("spec.conversion.strategy", strategy, ("None", "Webhook"))]
    if strategy == "None":
        return []
    found: list[Cause] = []
    webhook = conversion.get("webhook") or {}
    if not webhook.get("clientConfig"):
        detail = "required when strategy is set to Webhook"
        found.append(required("spec.conversion.webhookClientConfig", detail))
    if not webhook.get("conversionReviewVersions"):
        found.append(required("spec.conversion.conversionReviewVersions"))
    return found
