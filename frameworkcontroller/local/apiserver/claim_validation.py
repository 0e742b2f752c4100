"""Validates PersistentVolumeClaims."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from frameworkcontroller.api.quantities import parse_quantity
from frameworkcontroller.local.apiserver import name_forms
from frameworkcontroller.local.apiserver.status_causes import Cause, forbidden, invalid, not_supported, required

_STORAGE: Final = "spec.resources[storage]"
_EXCLUSIVE: Final = "ReadWriteOncePod"
_ACCESS_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", _EXCLUSIVE)
_VOLUME_MODES: Final = ("Block", "Filesystem")


def spec_causes(spec: Mapping[str, Any]) -> list[Cause]:
    """Validate the spec of a new claim."""
    modes, found = spec.get("accessModes") or (), list[Cause]()
    if not modes:
        found.append(required("spec.accessModes", "at least 1 access mode is required"))
    found += [not_supported("spec.accessModes", mode, _ACCESS_MODES) for mode in modes if mode not in _ACCESS_MODES]
    if _EXCLUSIVE in modes and len(modes) > 1:
        detail = f"may not use {_EXCLUSIVE} with other access modes"
        found.append(forbidden("spec.accessModes", detail))
    size = _size(spec)
    if size is None:
        found.append(required(_STORAGE))
    elif parse_quantity(size) <= 0:
        found.append(invalid(_STORAGE, size, "must be greater than zero"))
    storage_class = spec.get("storageClassName")
    if storage_class:
        found += [invalid("spec.storageClassName", storage_class, text) for text in name_forms.subdomain(storage_class)]
    if spec.get("volumeMode") not in _VOLUME_MODES:
        found.append(not_supported("spec.volumeMode", spec.get("volumeMode"), _VOLUME_MODES))
    return found


def causes_on_update(new: Mapping[str, Any], old: Mapping[str, Any]) -> list[Cause]:
    """Refuse a change of the spec, except the volume's name once, and a larger size of a bound claim."""
    found = [] if new.get("status") == old.get("status") else _status_causes(new.get("status") or {})
    return found + _change_causes(new.get("spec") or {}, old)


def _change_causes(spec: Mapping[str, Any], old: Mapping[str, Any]) -> list[Cause]:
    before = old.get("spec") or {}
    if spec == before:
        return []
    allowed = dict(spec)
    if not before.get("volumeName") and spec.get("volumeName"):
        del allowed["volumeName"]
        allowed |= {"volumeName": before["volumeName"]} if "volumeName" in before else {}
    size, present = _size(spec), _size(before)
    bound = (old.get("status") or {}).get("phase") == "Bound"
    if bound and size is not None:
        allowed["resources"] = {**(spec.get("resources") or {}), "requests": before["resources"]["requests"]}
    if allowed != before:
        return [forbidden("spec", "spec is immutable after creation except resources.requests for bound claims")]
    if size is not None and present is not None and parse_quantity(size) < parse_quantity(present):
        return [forbidden("spec.resources.requests.storage", "field can not be less than previous value")]
    return []


def _status_causes(status: Mapping[str, Any]) -> list[Cause]:
    return [
        invalid(f"status.capacity[{name}]", int(parse_quantity(amount)), "must be a valid resource quantity")
        for name, amount in (status.get("capacity") or {}).items()
        if parse_quantity(amount) < 0
    ]


def _size(spec: Mapping[str, Any]) -> Any:
    return ((spec.get("resources") or {}).get("requests") or {}).get("storage")
