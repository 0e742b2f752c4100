"""Validates objects of built-in kinds, beyond metadata and field types."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

from frameworkcontroller.api.quantities import parse_quantity
from frameworkcontroller.local.apiserver import claim_validation, crd_validation, name_forms, pod_update, pod_validation
from frameworkcontroller.local.apiserver.api_resources import ApiResource
from frameworkcontroller.local.apiserver.status_causes import (
    Cause,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
)

Json = Mapping[str, Any]

_MAX_DATA = 1 << 20
_STANDARD_QUOTA = frozenset(
    {
        "configmaps",
        "cpu",
        "ephemeral-storage",
        "limits.cpu",
        "limits.ephemeral-storage",
        "limits.memory",
        "memory",
        "persistentvolumeclaims",
        "pods",
        "replicationcontrollers",
        "requests.cpu",
        "requests.ephemeral-storage",
        "requests.memory",
        "requests.storage",
        "resourcequotas",
        "secrets",
        "services",
        "services.loadbalancers",
        "services.nodeports",
    }
)


def causes_on_create(t: ApiResource, obj: Json) -> list[Cause]:
    """Validate a new, defaulted object; custom resources are validated by their schema instead."""
    check = None if t.custom else _ON_CREATE.get(t.kind)
    return [] if check is None else check(obj)


def causes_on_update(t: ApiResource, new: Json, old: Json) -> list[Cause]:
    """Validate ``new`` in place of ``old``."""
    if t.custom:
        return []
    update = _ON_UPDATE.get(t.kind)
    if update is not None:
        return update(new, old)
    check = _ON_CREATE.get(t.kind)
    return [] if check is None or _content(new) == _content(old) else check(new)


def _content(obj: Json) -> dict[str, Any]:
    return {key: value for key, value in obj.items() if key != "metadata"}


def _pod(obj: Json) -> list[Cause]:
    return pod_validation.spec_causes(obj.get("spec") or {})


def _pod_update(new: Json, old: Json) -> list[Cause]:
    found = [] if new.get("status") == old.get("status") else pod_validation.status_causes(new.get("status") or {})
    if new.get("spec") == old.get("spec"):
        return found
    return found + _pod(new) + pod_update.causes_on_update(new, old)


def _claim(obj: Json) -> list[Cause]:
    return claim_validation.spec_causes(obj.get("spec") or {})


def _config_map(obj: Json) -> list[Cause]:
    data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
    found = [invalid(f"data[{key}]", key, text) for key in data for text in name_forms.config_key(key)]
    found += [invalid(f"data[{key}]", key, "duplicate of key present in binaryData") for key in data if key in binary]
    found += [invalid(f"binaryData[{key}]", key, text) for key in binary for text in name_forms.config_key(key)]
    size = sum(len(value.encode()) for value in data.values()) + sum(map(_decoded_size, binary.values()))
    return [*found, too_long("[]", _MAX_DATA)] if size > _MAX_DATA else found


def _config_map_update(new: Json, old: Json) -> list[Cause]:
    return _frozen(new, old, "data", "binaryData") + _config_map(new)


def _secret(obj: Json) -> list[Cause]:
    data = obj.get("data") or {}
    found = [invalid(f"data[{key}]", key, text) for key in data for text in name_forms.config_key(key)]
    if sum(map(_decoded_size, data.values())) > _MAX_DATA:
        found.append(too_long("data", _MAX_DATA))
    wanted = {
        "kubernetes.io/tls": ("tls.crt", "tls.key"),
        "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
        "kubernetes.io/dockercfg": (".dockercfg",),
        "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    }
    missing = [key for key in wanted.get(obj.get("type") or "", ()) if key not in data]
    return found + [required(f"data[{key}]") for key in missing]


def _secret_update(new: Json, old: Json) -> list[Cause]:
    found = _frozen(new, old, "data")
    if new.get("type") != old.get("type"):
        found.append(invalid("type", new.get("type"), "field is immutable"))
    return found + _secret(new)


def _frozen(new: Json, old: Json, *fields: str) -> list[Cause]:
    """Check that an immutable object stays immutable and unchanged."""
    if not old.get("immutable"):
        return []
    found = [] if new.get("immutable") else [forbidden("immutable", "field is immutable when `immutable` is set")]
    changed = [field for field in fields if (new.get(field) or {}) != (old.get(field) or {})]
    return found + [forbidden(field, "field is immutable when `immutable` is set") for field in changed]


def _decoded_size(text: str) -> int:
    return len(base64.b64decode(text))


def _service(obj: Json) -> list[Cause]:
    spec = obj.get("spec") or {}
    kind, ports = spec.get("type"), spec.get("ports") or ()
    found: list[Cause] = []
    if not ports and kind != "ExternalName" and spec.get("clusterIP") != "None":
        found.append(required("spec.ports"))
    seen_names: set[str] = set()
    seen_ports: set[tuple[Any, Any]] = set()
    for index, port in enumerate(ports):
        path = f"spec.ports[{index}]"
        name, number, target = port.get("name") or "", port.get("port") or 0, port.get("targetPort", 0)
        if not name:
            if len(ports) > 1:
                found.append(required(f"{path}.name"))
        else:
            found += [invalid(f"{path}.name", name, text) for text in name_forms.label(name)]
            if name in seen_names:
                found.append(duplicate(f"{path}.name", name))
            seen_names.add(name)
        if not 1 <= number <= 65535:
            found.append(invalid(f"{path}.port", number, "must be between 1 and 65535, inclusive"))
        if port.get("protocol") not in ("SCTP", "TCP", "UDP"):
            found.append(not_supported(f"{path}.protocol", port.get("protocol"), ("SCTP", "TCP", "UDP")))
        if isinstance(target, int) and not 1 <= target <= 65535:
            found.append(invalid(f"{path}.targetPort", target, "must be between 1 and 65535, inclusive"))
        if (number, port.get("protocol")) in seen_ports:
            found.append(duplicate(path, {"protocol": port.get("protocol"), "port": number, "targetPort": 0}))
        seen_ports.add((number, port.get("protocol")))
    for field, choices in (
        ("sessionAffinity", ("ClientIP", "None")),
        ("type", ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")),
    ):
        if spec.get(field) not in choices:
            found.append(not_supported(f"spec.{field}", spec.get(field), choices))
    if kind == "ExternalName":
        external = spec.get("externalName") or ""
        if not external:
            found.append(required("spec.externalName"))
        else:
            found += [
                invalid("spec.externalName", external, text) for text in name_forms.subdomain(external.rstrip("."))
            ]
    return found


def _resource_quota(obj: Json) -> list[Cause]:
    found: list[Cause] = []
    for name, amount in ((obj.get("spec") or {}).get("hard") or {}).items():
        path = f"spec.hard[{name}]"
        complaints = name_forms.qualified(name)
        found += [invalid(path, name, text) for text in complaints]
        if not complaints and "/" not in name and name not in _STANDARD_QUOTA and not name.startswith("requests."):
            found.append(invalid(path, name, "must be a standard resource type or fully qualified"))
            found.append(invalid(path, name, "must be a standard resource for quota"))
        if parse_quantity(amount) < 0:
            found.append(invalid(path, amount, "must be greater than or equal to 0"))
    return found


def _event(obj: Json) -> list[Cause]:
    namespace = (obj.get("metadata") or {}).get("namespace")
    involved = (obj.get("involvedObject") or {}).get("namespace") or ""
    # An Event about an object without a namespace belongs in the default one.
    if involved and involved != namespace:
        return [invalid("involvedObject.namespace", involved, "does not match event.namespace")]
    return []


def _lease(obj: Json) -> list[Cause]:
    spec = obj.get("spec") or {}
    found: list[Cause] = []
    duration, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if duration is not None and duration <= 0:
        found.append(invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"))
    if transitions is not None and transitions < 0:
        found.append(invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
    return found


def _role(obj: Json) -> list[Cause]:
    found: list[Cause] = []
    for index, rule in enumerate(obj.get("rules") or ()):
        path = f"rules[{index}]"
        if not rule.get("verbs"):
            found.append(required(f"{path}.verbs", "verbs must contain at least one value"))
        if rule.get("nonResourceURLs"):
            continue
        if not rule.get("apiGroups"):
            found.append(required(f"{path}.apiGroups", "resource rules must supply at least one api group"))
        if not rule.get("resources"):
            found.append(required(f"{path}.resources", "resource rules must supply at least one resource"))
    return found


def _role_binding(kinds: tuple[str, ...]) -> Callable[[Json], list[Cause]]:
    def check(obj: Json) -> list[Cause]:
        role = obj.get("roleRef") or {}
        found: list[Cause] = []
        if role.get("kind") not in kinds:
            found.append(not_supported("roleRef.kind", role.get("kind") or "", kinds))
        if not role.get("name"):
            found.append(required("roleRef.name"))
        for index, subject in enumerate(obj.get("subjects") or ()):
            path = f"subjects[{index}]"
            if not subject.get("name"):
                found.append(required(f"{path}.name"))
            subjects = ("ServiceAccount", "User", "Group")
            if subject.get("kind") not in subjects:
                found.append(not_supported(f"{path}.kind", subject.get("kind") or "", subjects))
        return found

    return check


def _role_binding_update(kinds: tuple[str, ...]) -> Callable[[Json, Json], list[Cause]]:
    check = _role_binding(kinds)

    def update(new: Json, old: Json) -> list[Cause]:
        changed = (new.get("roleRef") or {}) != (old.get("roleRef") or {})
        found = [invalid("roleRef", new.get("roleRef"), "cannot change roleRef")] if changed else []
        return check(new) + found

    return update


def _priority_class(obj: Json) -> list[Cause]:
    name = (obj.get("metadata") or {}).get("name") or ""
    if name.startswith("system-"):
        detail = (
            "priority class names with 'system-' prefix are reserved for system use only. error: "
            f"{name} is not a known system priority class"
        )
        return [forbidden("metadata.name", detail)]
    if (obj.get("value") or 0) > 1_000_000_000:
        return [forbidden("value", "maximum allowed value of a user defined priority is 1000000000")]
    return []


def _budget(obj: Json) -> list[Cause]:
    spec = obj.get("spec") or {}
    found: list[Cause] = []
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        found.append(invalid("spec", "", "minAvailable and maxUnavailable cannot be both set"))
    limits = ((field, spec.get(field)) for field in ("minAvailable", "maxUnavailable"))
    negative = [one for one in limits if isinstance(one[1], int) and one[1] < 0]
    found += [invalid(f"spec.{field}", value, "must be greater than or equal to 0") for field, value in negative]
    return found


_ON_CREATE: Mapping[str, Callable[[Json], list[Cause]]] = {
    "ClusterRole": _role,
    "ClusterRoleBinding": _role_binding(("ClusterRole",)),
    "ConfigMap": _config_map,
    "CustomResourceDefinition": crd_validation.causes,
    "Event": _event,
    "Lease": _lease,
    "PersistentVolumeClaim": _claim,
    "Pod": _pod,
    "PodDisruptionBudget": _budget,
    "PriorityClass": _priority_class,
    "ResourceQuota": _resource_quota,
    "Role": _role,
    "RoleBinding": _role_binding(("Role", "ClusterRole")),
    "Secret": _secret,
    "Service": _service,
}
_ON_UPDATE: Mapping[str, Callable[[Json, Json], list[Cause]]] = {
    "ClusterRoleBinding": _role_binding_update(("ClusterRole",)),
    "ConfigMap": _config_map_update,
    "CustomResourceDefinition": crd_validation.causes,
    "PersistentVolumeClaim": claim_validation.causes_on_update,
    "Pod": _pod_update,
    "RoleBinding": _role_binding_update(("Role", "ClusterRole")),
    "Secret": _secret_update,
}
