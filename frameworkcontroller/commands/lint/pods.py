"""Checks of a role's Pod template and volume claims: errors for each API server, and common mistakes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from typing import Any, Final

from frameworkcontroller.api import hostlists, names
from frameworkcontroller.api.problems import KeyPath, suggestion
from frameworkcontroller.api.quantities import parse_quantity
from frameworkcontroller.commands.lint.fieldtypes import (
    BRACES,
    VARIABLES,
    check_fields,
    check_placeholders,
)
from frameworkcontroller.commands.lint.findings import Finding, Role, error, mapping, mappings, warning

_ACCESS_MODES: Final = ("ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod")
_MAX_PORT: Final = 65535
_OF_NETWORK: Final = "it is one only if the spec has network or coordinator"
_OF_CLAIM: Final = "a claim outlives attempts, and has none of them"


def check_pod(role: Role, *, networked: bool) -> Iterator[Finding]:
    """Check the Pod template. ``networked``: the spec has network or coordinator."""
    task, path = role.body.get("task"), role.pod_path
    pod = mapping(task).get("pod")
    if pod is None and (task is None or isinstance(task, dict)):
        yield error(path, "is required: without a template there is nothing to run")
    if not isinstance(pod, dict):
        return
    yield from check_fields(pod, path, "V1PodTemplateSpec")
    known = (*names.PLACEHOLDERS, *names.NETWORK_PLACEHOLDERS, *hostlists.NAMES) if networked else names.PLACEHOLDERS
    yield from check_placeholders(pod, path, known, _OF_NETWORK)
    for field in ("name", "namespace", "generateName"):
        if value := mapping(pod, "metadata").get(field):
            yield warning((*path, "metadata", field), "is ignored: each Pod gets its Task's", value=value)
    spec = pod.get("spec")
    if not isinstance(spec, dict):
        yield error((*path, "spec"), "is required" if spec is None else "must be a mapping")
        return
    containers = spec.get("containers")
    if not containers:
        yield error((*path, "spec", "containers"), "is required: a Pod has at least one")
    elif isinstance(containers, list) and len(containers) > 1 and spec.get("restartPolicy") == "Never":
        yield warning(
            (*path, "spec", "containers"),
            f"are {len(containers)}, and a Pod runs until all of them have ended: with a helper that "
            "runs on, a Task never ends; make helpers initContainers with restartPolicy Always (Kubernetes 1.29)",
        )
    seen: set[str] = set()
    claims = (mapping(claim, "metadata") for _, claim in mappings(role.body.get("volumeClaimTemplates")))
    named = chain((volume for _, volume in mappings(spec.get("volumes"))), claims)
    volumes = {name for one in named if isinstance(name := one.get("name"), str)}
    for place, container in role.containers():
        yield from _container(container, place, seen)
        yield from _mounts(container, place, volumes)


def _container(container: Mapping[Any, Any], path: KeyPath, seen: set[str]) -> Iterator[Finding]:
    name = container.get("name")
    if name is None:
        yield error((*path, "name"), "is required")
    elif isinstance(name, str):
        if not names.is_label(BRACES.sub("x", name)):
            text = "must be lower case letters, digits and dashes, at most 63 of them"
            yield error((*path, "name"), text, value=name)
        if name in seen:
            yield error((*path, "name"), "is already the name of another container", value=name)
        seen.add(name)
    if not container.get("image"):
        yield error((*path, "image"), "is required")
    if "initContainers" not in path and not container.get("command") and not container.get("args"):
        yield warning((*path, "command"), "is missing, and so is args: the image decides the command")
    for position, port in mappings(container.get("ports")):
        for field, least in (("containerPort", 1), ("hostPort", 0)):
            number = port.get(field)
            if isinstance(number, int) and not least <= number <= _MAX_PORT:
                place = (*path, "ports", position, field)
                yield error(place, f"must be a port, {least} to {_MAX_PORT}", value=number)
    for position, variable in mappings(container.get("env")):
        if variable.get("name") in VARIABLES:
            place = (*path, "env", position, "name")
            yield warning(place, "replaces the controller's variable of this name", value=variable["name"])


def _mounts(container: Mapping[Any, Any], path: KeyPath, volumes: Collection[str]) -> Iterator[Finding]:
    for field in ("volumeMounts", "volumeDevices"):
        for position, mount in mappings(container.get(field)):
            name = mount.get("name")
            if isinstance(name, str) and "{{" not in name and name not in volumes:
                text = f"is no volume of the Pod{suggestion(name, volumes)}"
                yield error((*path, field, position, "name"), text, value=name)


def check_claims(role: Role) -> Iterator[Finding]:
    """Check volumeClaimTemplates, and whether the Pods mount them."""
    templates = [*mappings(role.body.get("volumeClaimTemplates"))]
    retention = "persistentVolumeClaimRetentionPolicy"
    if role.body.get(retention) is not None and not templates:
        yield warning((*role.path, retention), "has no effect without volumeClaimTemplates")
    mounted = {
        name
        for _, container in role.containers()
        for field in ("volumeMounts", "volumeDevices")
        for _, mount in mappings(container.get(field))
        if isinstance(name := mount.get("name"), str)
    }
    volumes: dict[str, list[int]] = {}
    for number, volume in mappings(role.pod_spec.get("volumes")):
        volumes.setdefault(str(volume.get("name")), []).append(number)
    for position, template in templates:
        place = (*role.path, "volumeClaimTemplates", position)
        name = mapping(template, "metadata").get("name")
        yield from _claim_spec(template.get("spec"), (*place, "spec"))
        yield from check_placeholders(template, place, names.PLACEHOLDERS, _OF_CLAIM)
        if not isinstance(name, str):
            continue
        if name not in mounted:
            yield warning(place, f"no container mounts the volume {name}", value=name)
        for number in volumes.get(name, ()):
            text = "is replaced by the claim of this name in volumeClaimTemplates"
            yield warning((*role.pod_path, "spec", "volumes", number), text, value=name)


def _claim_spec(spec: Any, path: KeyPath) -> Iterator[Finding]:
    if spec is not None and not isinstance(spec, dict):
        return
    yield from check_fields(spec, path, "V1PersistentVolumeClaimSpec")
    modes = mapping(spec).get("accessModes")
    if not modes:
        yield error((*path, "accessModes"), "is required, such as [ReadWriteOnce]")
    for number, mode in enumerate(modes if isinstance(modes, list) else ()):
        if isinstance(mode, str) and mode not in _ACCESS_MODES and "{{" not in mode:
            yield error((*path, "accessModes", number), f"must be one of {', '.join(_ACCESS_MODES)}", value=mode)
    place = (*path, "resources", "requests", "storage")
    size = mapping(spec, "resources", "requests").get("storage")
    if not size:
        yield error(place, "is required: the size of the volume")
    elif isinstance(size, str) and "{{" not in size and not _is_size(size):
        yield error(place, "must be a size, such as 10Gi", value=size)


def _is_size(text: str) -> bool:
    try:
        return parse_quantity(text) > 0
    except ValueError:
        return False
