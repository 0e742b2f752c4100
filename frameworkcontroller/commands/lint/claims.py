"""Checks of the volume claims of a role: errors for each API server, and common mistakes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from frameworkcontroller.api.problems import KeyPath
from frameworkcontroller.commands.lint.findings import Finding, error, warning
from frameworkcontroller.commands.lint.pods import PLACEHOLDERS, check_fields, check_placeholders, mappings_in

_ACCESS_MODES: Final = ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod")
_QUANTITY: Final = re.compile(r"\+?([0-9]+\.?[0-9]*|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][-+]?[0-9]+)?")


def check_claims(role: Mapping[Any, Any], path: KeyPath) -> Iterator[Finding]:
    """Check volumeClaimTemplates, and whether the Pods mount them. Malformed fields are reported elsewhere."""
    templates = [*mappings_in(role.get("volumeClaimTemplates"))]
    retention = "persistentVolumeClaimRetentionPolicy"
    if role.get(retention) is not None and not templates:
        yield warning((*path, retention), "has no effect without volumeClaimTemplates")
    pod = _mapping(_mapping(_mapping(role.get("task")).get("pod")).get("spec"))
    mounted = {
        mount.get("name")
        for listed in ("initContainers", "containers")
        for _, container in mappings_in(pod.get(listed))
        for field in ("volumeMounts", "volumeDevices")
        for _, mount in mappings_in(container.get(field))
    }
    volumes: dict[Any, list[int]] = {}
    for number, volume in mappings_in(pod.get("volumes")):
        if isinstance(volume.get("name"), str):
            volumes.setdefault(volume["name"], []).append(number)
    for position, template in templates:
        place = (*path, "volumeClaimTemplates", position)
        name = _mapping(template.get("metadata")).get("name")
        yield from _claim_spec(template.get("spec"), (*place, "spec"))
        yield from check_placeholders(template, place, PLACEHOLDERS, "a claim outlives attempts, and has none of them")
        if isinstance(name, str) and name not in mounted:
            yield warning(place, f"no container mounts the volume {name}", value=name)
        for number in volumes.get(name, ()) if isinstance(name, str) else ():
            of_pod = (*path, "task", "pod", "spec", "volumes", number)
            yield warning(of_pod, "is replaced by the claim of this name in volumeClaimTemplates", value=name)


def _claim_spec(spec: Any, path: KeyPath) -> Iterator[Finding]:
    if spec is not None and not isinstance(spec, dict):
        return
    spec = _mapping(spec)
    yield from check_fields(spec, path, "V1PersistentVolumeClaimSpec")
    modes = spec.get("accessModes")
    if not modes:
        yield error((*path, "accessModes"), "is required, such as [ReadWriteOnce]")
    for number, mode in enumerate(modes if isinstance(modes, list) else ()):
        if isinstance(mode, str) and mode not in _ACCESS_MODES and not _is_replaced(mode):
            yield error((*path, "accessModes", number), f"must be one of {', '.join(_ACCESS_MODES)}", value=mode)
    place = (*path, "resources", "requests", "storage")
    size = _mapping(_mapping(spec.get("resources")).get("requests")).get("storage")
    if not size:
        yield error(place, "is required: the size of the volume")
    elif isinstance(size, str) and not _QUANTITY.fullmatch(size) and not _is_replaced(size):
        yield error(place, "must be a size, such as 10Gi", value=size)


def _is_replaced(text: str) -> bool:
    """Whether the text has a placeholder, or what is reported as a wrong one."""
    return "{{" in text


def _mapping(value: object) -> Mapping[Any, Any]:
    return value if isinstance(value, dict) else {}
