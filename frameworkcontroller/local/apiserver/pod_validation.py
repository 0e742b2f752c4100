"""Validates Pods: the rules that a hand-written Pod is likely to break, with the real server's texts.

Rarely used volume sources, affinity terms and security contexts are not validated.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from frameworkcontroller.api.quantities import parse_quantity
from frameworkcontroller.local.apiserver import name_forms
from frameworkcontroller.local.apiserver.object_meta import label_causes
from frameworkcontroller.local.apiserver.status_causes import (
    Cause,
    duplicate,
    forbidden,
    invalid,
    not_found,
    not_supported,
    required,
    too_long,
)

Json = Mapping[str, Any]

_MAX_INT32 = 2**31 - 1
_STANDARD_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage"})
_FIELD_PATHS = frozenset(
    {
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "metadata.annotations",
        "metadata.labels",
        "spec.nodeName",
        "spec.serviceAccountName",
        "spec.restartPolicy",
        "status.hostIP",
        "status.hostIPs",
        "status.phase",
        "status.podIP",
        "status.podIPs",
    }
)
_ENV_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef")
_SOURCE_NAMES = {"configMap": "name", "secret": "secretName", "persistentVolumeClaim": "claimName"}


def spec_causes(spec: Json, path: str = "spec") -> list[Cause]:
    """Validate a defaulted Pod spec."""
    found, volumes = _volumes(spec.get("volumes") or (), f"{path}.volumes")
    host_network = bool(spec.get("hostNetwork"))
    containers, inits = spec.get("containers") or (), spec.get("initContainers") or ()
    if not containers:
        found.append(required(f"{path}.containers"))
    taken: set[str] = set()
    found += _containers(containers, f"{path}.containers", volumes, host_network, taken)
    found += _containers(inits, f"{path}.initContainers", volumes, host_network, taken)
    found += _one_of(spec, "restartPolicy", ("Always", "OnFailure", "Never"), path)
    found += _one_of(spec, "dnsPolicy", ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"), path)
    if spec.get("dnsPolicy") == "None" and not (spec.get("dnsConfig") or {}).get("nameservers"):
        found.append(required(f"{path}.dnsConfig", "must provide `dnsConfig` when `dnsPolicy` is None"))
    found += label_causes(spec.get("nodeSelector") or {}, f"{path}.nodeSelector")
    for field, check in (
        ("serviceAccountName", name_forms.subdomain),
        ("nodeName", name_forms.subdomain),
        ("hostname", name_forms.label),
        ("subdomain", name_forms.label),
    ):
        value = spec.get(field)
        if value:
            found += [invalid(f"{path}.{field}", value, text) for text in check(value)]
    if (group := spec.get("schedulingGroup")) is not None:
        place, value = f"{path}.schedulingGroup.podGroupName", group.get("podGroupName")
        found += [invalid(place, value, text) for text in name_forms.subdomain(value)] if value else [required(place)]
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None:
        found += _between(deadline, 1, _MAX_INT32, f"{path}.activeDeadlineSeconds")
    if spec.get("hostPID") and spec.get("shareProcessNamespace"):
        detail = "ShareProcessNamespace and HostPID cannot both be enabled"
        found.append(invalid(f"{path}.securityContext.shareProcessNamespace", True, detail))
    found += _identity(spec.get("securityContext") or {}, f"{path}.securityContext")
    found += _tolerations(spec.get("tolerations") or (), f"{path}.tolerations")
    hosts = [alias.get("ip") or "" for alias in spec.get("hostAliases") or ()]
    detail = "must be valid IP address"
    return found + [invalid(f"{path}.hostAliases.ip", host, detail) for host in hosts if not _is_ip(host)]


def _one_of(obj: Json, field: str, choices: Sequence[str], path: str) -> list[Cause]:
    value = obj.get(field)
    return [] if value in choices or value is None else [not_supported(f"{path}.{field}", value, choices)]


def _between(value: int, least: int, most: int, path: str) -> list[Cause]:
    return [] if least <= value <= most else [invalid(path, value, f"must be between {least} and {most}, inclusive")]


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _identity(context: Json, path: str) -> list[Cause]:
    found: list[Cause] = []
    for field in ("runAsUser", "runAsGroup", "fsGroup"):
        if context.get(field) is not None:
            found += _between(context[field], 0, _MAX_INT32, f"{path}.{field}")
    return found


def _volumes(volumes: Iterable[Json], path: str) -> tuple[list[Cause], set[str]]:
    found: list[Cause] = []
    seen: set[str] = set()
    for index, volume in enumerate(volumes):
        place = f"{path}[{index}]"
        name = volume.get("name") or ""
        if not name:
            found.append(required(f"{place}.name"))
        else:
            found += [invalid(f"{place}.name", name, text) for text in name_forms.label(name)]
            if name in seen:
                found.append(duplicate(f"{place}.name", name))
            seen.add(name)
        sources = [field for field in volume if field != "name"]
        found += [forbidden(f"{place}.{extra}", "may not specify more than 1 volume type") for extra in sources[1:]]
        for source in sources[:1]:
            found += _volume_source(source, volume[source] or {}, f"{place}.{source}")
    return found, seen


def _volume_source(kind: str, source: Json, path: str) -> list[Cause]:
    found: list[Cause] = []
    if kind == "hostPath" and not source.get("path"):
        found.append(required(f"{path}.path"))
    limit = source.get("sizeLimit") if kind == "emptyDir" else None
    if limit is not None and parse_quantity(limit) < 0:
        found.append(forbidden(f"{path}.sizeLimit", "SizeLimit field must be a valid resource quantity"))
    name_field = _SOURCE_NAMES.get(kind)
    if name_field and not source.get(name_field):
        found.append(required(f"{path}.{name_field}"))
    if kind in ("configMap", "secret"):
        for index, item in enumerate(source.get("items") or ()):
            place = f"{path}.items[{index}]"
            if not item.get("key"):
                found.append(required(f"{place}.key"))
            found += _local_path(item.get("path") or "", f"{place}.path")
    return found


def _local_path(text: str, path: str) -> list[Cause]:
    if not text:
        return [required(path)]
    if text.startswith("/"):
        return [invalid(path, text, "must be a relative path")]
    return [invalid(path, text, "must not contain '..'")] if ".." in text.split("/") else []


def _containers(
    containers: Iterable[Json], path: str, volumes: set[str], host_network: bool, taken: set[str]
) -> list[Cause]:
    found: list[Cause] = []
    host_ports: set[str] = set()
    for index, container in enumerate(containers):
        place = f"{path}[{index}]"
        name = container.get("name") or ""
        if not name:
            found.append(required(f"{place}.name"))
        else:
            found += [invalid(f"{place}.name", name, text) for text in name_forms.label(name)]
        found += _container(container, place, volumes, host_network, host_ports)
        if name and name in taken:
            found.append(duplicate(f"{place}.name", name))
        taken.add(name)
    return found


def _container(container: Json, path: str, volumes: set[str], host_network: bool, host_ports: set[str]) -> list[Cause]:
    found: list[Cause] = []
    image = container.get("image") or ""
    if not image:
        found.append(required(f"{path}.image"))
    elif image != image.strip():
        found.append(invalid(f"{path}.image", image, "must not have leading or trailing whitespace"))
    for hook, handler in (container.get("lifecycle") or {}).items():
        if isinstance(handler, Mapping):
            found += _handler(handler, f"{path}.lifecycle.{hook}")
    for field in ("livenessProbe", "readinessProbe", "startupProbe"):
        if container.get(field) is not None:
            found += _probe(container[field], f"{path}.{field}")
    found += _one_of(container, "imagePullPolicy", ("Always", "IfNotPresent", "Never"), path)
    policy = container.get("terminationMessagePolicy")
    if policy not in (None, "File", "FallbackToLogsOnError"):
        detail = "must be 'File' or 'FallbackToLogsOnError'"
        found.append(invalid(f"{path}.terminationMessagePolicy", policy, detail))
    found += _ports(container.get("ports") or (), f"{path}.ports", host_network, host_ports)
    found += _env(container.get("env") or (), f"{path}.env")
    for source in container.get("envFrom") or ():
        if not source.get("configMapRef") and not source.get("secretRef"):
            found.append(invalid(f"{path}.envFrom", "", "must specify one of: `configMapRef` or `secretRef`"))
    found += _mounts(container.get("volumeMounts") or (), f"{path}.volumeMounts", volumes)
    found += _resources(container.get("resources") or {}, f"{path}.resources")
    return found + _identity(container.get("securityContext") or {}, f"{path}.securityContext")


def _ports(ports: Iterable[Json], path: str, host_network: bool, host_ports: set[str]) -> list[Cause]:
    found: list[Cause] = []
    seen: set[str] = set()
    for index, port in enumerate(ports):
        place = f"{path}[{index}]"
        name, number, host = port.get("name"), port.get("containerPort") or 0, port.get("hostPort") or 0
        if name:
            complaints = name_forms.port_name(name)
            found += [invalid(f"{place}.name", name, text) for text in complaints]
            if not complaints and name in seen:
                found.append(duplicate(f"{place}.name", name))
            seen.add(name)
        if not number:
            found.append(required(f"{place}.containerPort"))
        else:
            found += _between(number, 1, 65535, f"{place}.containerPort")
        if host:
            found += _between(host, 1, 65535, f"{place}.hostPort")
        found += _one_of(port, "protocol", ("SCTP", "TCP", "UDP"), place)
        if host_network and number and host != number:
            detail = "must match `hostPort` when `hostNetwork` is true"
            found.append(invalid(f"{place}.containerPort", number, detail))
        if host:
            where = f"{port.get('protocol')}/{port.get('hostIP') or ''}/{host}"
            if where in host_ports:
                found.append(duplicate(f"{place}.hostPort", where))
            host_ports.add(where)
    return found


def _env(variables: Iterable[Json], path: str) -> list[Cause]:
    found: list[Cause] = []
    for index, variable in enumerate(variables):
        place = f"{path}[{index}]"
        name, source = variable.get("name") or "", variable.get("valueFrom")
        if not name:
            found.append(required(f"{place}.name"))
        else:
            found += [invalid(f"{place}.name", name, text) for text in name_forms.env_name(name)]
        if source is not None:
            found += _env_source(source, variable.get("value") or "", f"{place}.valueFrom")
    return found


def _env_source(source: Json, value: str, path: str) -> list[Cause]:
    given = [field for field in _ENV_SOURCES if source.get(field) is not None]
    found: list[Cause] = []
    if not given:
        detail = "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
        return [invalid(path, "", detail)]
    if "fieldRef" in given:
        label = source["fieldRef"].get("fieldPath") or ""
        if not label:
            found.append(required(f"{path}.fieldRef.fieldPath"))
        elif label.partition("[")[0] not in _FIELD_PATHS:
            detail = f"error converting fieldPath: field label not supported: {label}"
            found.append(invalid(f"{path}.fieldRef.fieldPath", label, detail))
    for field in ("configMapKeyRef", "secretKeyRef"):
        if field in given:
            key = source[field].get("key") or ""
            name = source[field].get("name") or ""
            found += [invalid(f"{path}.{field}.name", name, text) for text in name_forms.subdomain(name)]
            if not key:
                found.append(required(f"{path}.{field}.key"))
            else:
                found += [invalid(f"{path}.{field}.key", key, text) for text in name_forms.config_key(key)]
    if value:
        found.append(invalid(path, "", "may not be specified when `value` is not empty"))
    elif len(given) > 1:
        found.append(invalid(path, "", "may not have more than one field specified at a time"))
    return found


def _mounts(mounts: Iterable[Json], path: str, volumes: set[str]) -> list[Cause]:
    found: list[Cause] = []
    seen: set[str] = set()
    for index, mount in enumerate(mounts):
        place = f"{path}[{index}]"
        name, at = mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            found.append(required(f"{place}.name"))
        elif name not in volumes:
            found.append(not_found(f"{place}.name", name))
        if not at:
            found.append(required(f"{place}.mountPath"))
        elif at in seen:
            found.append(invalid(f"{place}.mountPath", at, "must be unique"))
        seen.add(at)
        if mount.get("subPath"):
            found += _local_path(mount["subPath"], f"{place}.subPath")
    return found


def _resources(resources: Json, path: str) -> list[Cause]:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    found = [
        cause
        for kind, amounts in (("limits", limits), ("requests", requests))
        for name, amount in amounts.items()
        for cause in _resource(name, amount, f"{path}.{kind}[{name}]")
    ]
    for name, amount in requests.items():
        overcommits = name in _STANDARD_RESOURCES or "/" not in name
        if name not in limits:
            if not overcommits:
                found.append(required(f"{path}.limits", "Limit must be set for non overcommitable resources"))
        elif not overcommits and parse_quantity(amount) != parse_quantity(limits[name]):
            found.append(invalid(f"{path}.requests", amount, f"must be equal to {name} limit"))
        elif parse_quantity(amount) > parse_quantity(limits[name]):
            found.append(invalid(f"{path}.requests", amount, f"must be less than or equal to {name} limit"))
    return found


def _resource(name: str, amount: str, path: str) -> list[Cause]:
    found = [invalid(path, name, text) for text in name_forms.qualified(name)]
    if not found and "/" not in name and name not in _STANDARD_RESOURCES and not name.startswith("hugepages-"):
        found.append(invalid(path, name, "must be a standard resource type or fully qualified"))
        found.append(invalid(path, name, "must be a standard resource for containers"))
    value = parse_quantity(amount)
    if value < 0:
        found.append(invalid(path, amount, "must be greater than or equal to 0"))
    if "/" in name and value != int(value):
        found.append(invalid(path, amount, "must be an integer"))
    return found


def _probe(probe: Json, path: str) -> list[Cause]:
    found = _handler(probe, path)
    for field in ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"):
        if (probe.get(field) or 0) < 0:
            found.append(invalid(f"{path}.{field}", probe[field], "must be greater than or equal to 0"))
    return found


def _handler(handler: Json, path: str) -> list[Cause]:
    given = [field for field in ("exec", "httpGet", "tcpSocket", "grpc", "sleep") if handler.get(field) is not None]
    if not given:
        return [required(path, "must specify a handler type")]
    found = [forbidden(f"{path}.{field}", "may not specify more than 1 handler type") for field in given[1:]]
    first = given[0]
    if first == "exec" and not handler["exec"].get("command"):
        found.append(required(f"{path}.exec.command"))
    if first in ("httpGet", "tcpSocket"):
        port = handler[first].get("port", 0)
        if isinstance(port, int):
            found += _between(port, 1, 65535, f"{path}.{first}.port")
        else:
            found += [invalid(f"{path}.{first}.port", port, text) for text in name_forms.port_name(port)]
    return found


def _tolerations(tolerations: Iterable[Json], path: str) -> list[Cause]:
    found: list[Cause] = []
    for index, toleration in enumerate(tolerations):
        place = f"{path}[{index}]"
        key, operator = toleration.get("key") or "", toleration.get("operator") or ""
        if key:
            found += [invalid(f"{place}.key", key, text) for text in name_forms.qualified(key)]
        elif operator != "Exists":
            detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            found.append(invalid(f"{place}.operator", operator, detail))
        if toleration.get("tolerationSeconds") is not None and toleration.get("effect") != "NoExecute":
            detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            found.append(invalid(f"{place}.effect", toleration.get("effect") or "", detail))
        if operator in ("", "Equal"):
            value = toleration.get("value") or ""
            found += [invalid(f"{place}.operator", value, text) for text in name_forms.label_value(value)]
        elif operator == "Exists":
            if toleration.get("value"):
                detail = "value must be empty when `operator` is 'Exists'"
                found.append(invalid(f"{place}.operator", dict(toleration), detail))
        else:
            found.append(not_supported(f"{place}.operator", operator, ("Equal", "Exists")))
        if toleration.get("effect"):
            found += _one_of(toleration, "effect", ("NoSchedule", "PreferNoSchedule", "NoExecute"), place)
    return found


def status_causes(status: Json, path: str = "status") -> list[Cause]:
    """Validate a Pod's status, superficially."""
    found: list[Cause] = []
    for index, address in enumerate(status.get("podIPs") or ()):
        if not _is_ip(address.get("ip") or ""):
            found.append(invalid(f"{path}.podIPs[{index}].ip", address.get("ip") or "", "must be a valid IP address"))
    message = status.get("message") or ""
    return [*found, too_long(f"{path}.message", 1 << 20)] if len(message) > 1 << 20 else found
