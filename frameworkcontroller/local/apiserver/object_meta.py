"""Validates the ``metadata`` of objects of any kind."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from frameworkcontroller.local.apiserver import name_forms
from frameworkcontroller.local.apiserver.api_resources import ApiResource
from frameworkcontroller.local.apiserver.status_causes import Cause, forbidden, invalid, required, too_long

_MAX_ANNOTATIONS = 256 * 1024
_IMMUTABLE = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
_STANDARD_FINALIZERS = frozenset({"foregroundDeletion", "kubernetes", "orphan"})

_NAME_FORMS: Mapping[str, Callable[[str], list[str]]] = {
    "ClusterRole": name_forms.path_segment,
    "ClusterRoleBinding": name_forms.path_segment,
    "Namespace": name_forms.label,
    "Role": name_forms.path_segment,
    "RoleBinding": name_forms.path_segment,
    "Service": name_forms.dns_1035_label,
}


def causes_on_create(t: ApiResource, obj: Mapping[str, Any]) -> list[Cause]:
    """Validate a new object's metadata."""
    metadata = obj.get("metadata") or {}
    check_name = name_forms.subdomain if t.custom else _NAME_FORMS.get(t.kind, name_forms.subdomain)
    found: list[Cause] = []
    generate = metadata.get("generateName")
    if generate:
        # The generated suffix follows, so a trailing dash is valid.
        masked = f"{generate[:-1]}a" if generate.endswith("-") else generate
        found += [invalid("metadata.generateName", generate, text) for text in check_name(masked)]
    name = metadata.get("name")
    if not name:
        found.append(required("metadata.name", "name or generateName is required"))
    else:
        found += [invalid("metadata.name", name, text) for text in check_name(name)]
    if not t.namespaced and metadata.get("namespace"):
        found.append(forbidden("metadata.namespace", "not allowed on this type"))
    return found + _common(metadata, custom=t.custom)


def causes_on_update(t: ApiResource, new: Mapping[str, Any], old: Mapping[str, Any]) -> list[Cause]:
    """Validate the metadata of ``new`` in place of ``old``, including immutable fields."""
    metadata, before = new.get("metadata") or {}, old.get("metadata") or {}
    found = [
        invalid(f"metadata.{field}", metadata.get(field), "field is immutable")
        for field in _IMMUTABLE
        if metadata.get(field) != before.get(field)
    ]
    if before.get("deletionTimestamp"):
        added = [one for one in metadata.get("finalizers") or () if one not in (before.get("finalizers") or ())]
        if added:
            listed = " ".join(f'"{one}"' for one in sorted(added))
            detail = (
                "no new finalizers can be added if the object is being deleted, found new finalizers "
                f"[]string{{{listed}}}"
            )
            found.append(forbidden("metadata.finalizers", detail))
    same_parts = all(
        metadata.get(field) == before.get(field) for field in ("labels", "annotations", "ownerReferences", "finalizers")
    )
    return found if same_parts else found + _common(metadata, custom=t.custom)


def _common(metadata: Mapping[str, Any], *, custom: bool) -> list[Cause]:
    found = label_causes(metadata.get("labels") or {}, "metadata.labels")
    annotations = metadata.get("annotations") or {}
    for key in annotations:
        # Annotation keys may contain capitals.
        found += [invalid("metadata.annotations", key, text) for text in name_forms.qualified(key.lower())]
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > _MAX_ANNOTATIONS:
        found.append(too_long("metadata.annotations", _MAX_ANNOTATIONS))
    owners = metadata.get("ownerReferences") or ()
    return found + _owner_causes(owners) + _finalizer_causes(metadata, custom=custom)


def label_causes(labels: Mapping[str, str], path: str) -> list[Cause]:
    """Validate labels, or a selector in their form."""
    found: list[Cause] = []
    for key, value in labels.items():
        found += [invalid(path, key, text) for text in name_forms.qualified(key)]
        found += [invalid(path, value, text) for text in name_forms.label_value(value)]
    return found


def _owner_causes(owners: Any) -> list[Cause]:
    path = "metadata.ownerReferences"
    found: list[Cause] = []
    controllers = []
    for owner in owners:
        version, kind = owner.get("apiVersion") or "", owner.get("kind") or ""
        for field, value in (("apiVersion", version), ("kind", kind)):
            if not value:
                noun = "version" if field == "apiVersion" else field
                found.append(invalid(f"{path}.{field}", value, f"{noun} must not be empty"))
        missing = [field for field in ("name", "uid") if not owner.get(field)]
        found += [invalid(f"{path}.{field}", "", f"{field} must not be empty") for field in missing]
        if (version, kind) == ("v1", "Event"):
            found.append(invalid(path, dict(owner), "/v1, Kind=Event is disallowed from being an owner"))
        if owner.get("controller"):
            controllers.append(owner.get("name") or "")
    if len(controllers) > 1:
        detail = (
            'Only one reference can have Controller set to true. Found "true" in references for '
            f"{controllers[0]} and {controllers[1]}"
        )
        found.append(invalid(path, json.loads(json.dumps(list(owners))), detail))
    return found


def _finalizer_causes(metadata: Mapping[str, Any], *, custom: bool) -> list[Cause]:
    finalizers = metadata.get("finalizers") or ()
    path = "metadata.finalizers"
    found: list[Cause] = []
    for finalizer in finalizers:
        found += [invalid(path, finalizer, text) for text in name_forms.qualified(finalizer)]
    for index, finalizer in enumerate(finalizers):
        # Finalizers of custom resources need no domain.
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS and not custom:
            detail = "name is neither a standard finalizer name nor is it fully qualified"
            found.append(invalid(f"{path}[{index}]", finalizer, detail))
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        detail = "finalizer orphan and foregroundDeletion cannot be both set"
        found.append(invalid(path, list(finalizers), detail))
    return found
