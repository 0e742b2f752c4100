"""The types of built-in kinds: the client library's models, and tables of additions.

The models know every field's name and JSON type. The tables below add integer widths, quantities, and how strategic
merge patch and server-side apply treat lists.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from frameworkcontroller.local.apiserver.api_resources import ApiResource
from frameworkcontroller.local.apiserver.typegraph import ANY, Field, Ownership, Shape, Type

# Lists of objects that are merged and owned item by item, by these keys. Strategic merge patch uses only the first key.
# "*" marks lists of unions (a volume has one source), for the directive $retainKeys.
_KEYED: Mapping[str, Mapping[str, str]] = {
    "Container": {
        "env": "name",
        "ports": "containerPort,protocol",
        "volumeDevices": "devicePath",
        "volumeMounts": "mountPath",
    },
    "ContainerStatus": {"allocatedResourcesStatus": "name", "volumeMounts": "mountPath"},
    "EphemeralContainer": {
        "env": "name",
        "ports": "containerPort,protocol",
        "volumeDevices": "devicePath",
        "volumeMounts": "mountPath",
    },
    "JSONSchemaProps": {"x-kubernetes-validations": "rule"},
    "NamespaceStatus": {"conditions": "type"},
    "NodeStatus": {"addresses": "type", "conditions": "type"},
    "ObjectMeta": {"ownerReferences": "uid"},
    "PersistentVolumeClaimStatus": {"conditions": "type"},
    "PodSpec": {
        "containers": "name",
        "ephemeralContainers": "name",
        "hostAliases": "ip",
        "imagePullSecrets": "name",
        "initContainers": "name",
        "resourceClaims": "name*",
        "schedulingGates": "name",
        "topologySpreadConstraints": "topologyKey,whenUnsatisfiable",
        "volumes": "name*",
    },
    "PodStatus": {"conditions": "type", "podIPs": "ip", "resourceClaimStatuses": "name*"},
    "ServiceAccount": {"secrets": "name"},
    "ServiceSpec": {"ports": "port,protocol"},
    "ServiceStatus": {"conditions": "type"},
}
# The same for server-side apply only; strategic merge patch replaces these lists.
_KEYED_FOR_APPLY: Mapping[str, Mapping[str, str]] = {
    "CustomResourceDefinitionStatus": {"conditions": "type"},
    "ResourceRequirements": {"claims": "name"},
    "ResourceStatus": {"resources": "resourceID"},
}
# Lists of scalars that are sets; True: strategic merge patch merges them as well.
_SETS = {
    "ContainerRestartRuleOnExitCodes.values": False,
    "NodeAllocatableResourceClaimStatus.containers": False,
    "NodeSpec.podCIDRs": True,
    "ObjectMeta.finalizers": True,
}
# Objects and maps with a single owner.
_ATOMIC = frozenset(
    {
        "ConfigMapKeySelector",
        "FileKeySelector",
        "LabelSelector",
        "LocalObjectReference",
        "NodeSelector",
        "NodeSelectorTerm",
        "ObjectFieldSelector",
        "ObjectReference",
        "OwnerReference",
        "PodSpec.nodeSelector",
        "ResourceFieldSelector",
        "RoleRef",
        "ScopeSelector",
        "SecretKeySelector",
        "ServiceSpec.selector",
        "Subject",
        "TypedLocalObjectReference",
    }
)
# Scalars that need more than their JSON type. Integers not listed have 32 bits.
_FORMATS: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "Condition.observedGeneration",
            "ContainerImage.sizeBytes",
            "CustomResourceDefinitionCondition.observedGeneration",
            "CustomResourceDefinitionStatus.observedGeneration",
            "JSONSchemaProps.maxItems",
            "JSONSchemaProps.maxLength",
            "JSONSchemaProps.maxProperties",
            "JSONSchemaProps.minItems",
            "JSONSchemaProps.minLength",
            "JSONSchemaProps.minProperties",
            "LinuxContainerUser.gid",
            "LinuxContainerUser.supplementalGroups",
            "LinuxContainerUser.uid",
            "NodeSwapStatus.capacity",
            "ObjectMeta.deletionGracePeriodSeconds",
            "ObjectMeta.generation",
            "PodCondition.observedGeneration",
            "PodSecurityContext.fsGroup",
            "PodSecurityContext.runAsGroup",
            "PodSecurityContext.runAsUser",
            "PodSecurityContext.supplementalGroups",
            "PodSpec.activeDeadlineSeconds",
            "PodSpec.terminationGracePeriodSeconds",
            "PodStatus.observedGeneration",
            "Probe.terminationGracePeriodSeconds",
            "SecurityContext.runAsGroup",
            "SecurityContext.runAsUser",
            "ServiceAccountTokenProjection.expirationSeconds",
            "SleepAction.seconds",
            "Toleration.tolerationSeconds",
        ),
        "int64",
    ),
    **dict.fromkeys(
        (
            "ContainerStatus.allocatedResources",
            "EmptyDirVolumeSource.sizeLimit",
            "NodeAllocatableResourceClaimStatus.resources",
            "NodeStatus.allocatable",
            "NodeStatus.capacity",
            "PersistentVolumeClaimStatus.allocatedResources",
            "PersistentVolumeClaimStatus.capacity",
            "PodSpec.overhead",
            "PodStatus.allocatedResources",
            "ResourceFieldSelector.divisor",
            "ResourceQuotaSpec.hard",
            "ResourceQuotaStatus.hard",
            "ResourceQuotaStatus.used",
            "ResourceRequirements.limits",
            "ResourceRequirements.requests",
            "VolumeResourceRequirements.limits",
            "VolumeResourceRequirements.requests",
        ),
        "quantity",
    ),
    **dict.fromkeys(
        (
            "HTTPGetAction.port",
            "PodDisruptionBudgetSpec.maxUnavailable",
            "PodDisruptionBudgetSpec.minAvailable",
            "ServicePort.targetPort",
            "TCPSocketAction.port",
        ),
        "int-or-string",
    ),
    **dict.fromkeys(("ConfigMap.binaryData", "Secret.data", "WebhookClientConfig.caBundle"), "byte"),
    **dict.fromkeys(
        ("Event.eventTime", "EventSeries.lastObservedTime", "LeaseSpec.acquireTime", "LeaseSpec.renewTime"),
        "micro-time",
    ),
    **dict.fromkeys(("ObjectMeta.uid", "ObjectReference.uid", "OwnerReference.uid"), "uid"),
}
_FREE_FORM = {"ManagedFieldsEntry.fieldsV1"}

_SCALARS = {
    "str": ("string", ""),
    "int": ("integer", "int32"),
    "float": ("number", "double"),
    "bool": ("boolean", ""),
    "datetime": ("string", "date-time"),
}


@cache
def builtin_type(t: ApiResource) -> Type:
    """The type of the built-in kind ``t``."""
    return named_type(t.kind)


@cache
def object_meta() -> Type:
    """The type of ``metadata``, shared with custom resources."""
    return _model("V1ObjectMeta")


@cache
def named_type(name: str) -> Type:
    """A type by its Go name: ``PodSpec``, ``DeleteOptions``, ``Eviction``, ``Binding``."""
    return _model("CoreV1Event" if name == "Event" else f"V1{name}")


@cache
def _model(class_name: str) -> Type:
    name = re.sub(r"^[A-Z]?[a-z]*V1", "", class_name)
    return Type(
        Shape.OBJECT,
        name=name,
        fields=lambda: _fields(class_name, name),
        ownership=Ownership.ATOMIC if name in _ATOMIC else Ownership.GRANULAR,
    )


def _fields(class_name: str, name: str) -> dict[str, Field]:
    # Imported late: the models take half a second, and only requests for such a type need them.
    from kubernetes_asyncio.client import models

    model = getattr(models, class_name)
    keyed = {**_KEYED.get(name, {}), **_KEYED_FOR_APPLY.get(name, {})}
    fields = {}
    for attribute, declared in model.openapi_types.items():
        json_name = model.attribute_map[attribute]
        path = f"{name}.{json_name}"
        keys = keyed.get(json_name, "")
        merges = json_name in _KEYED.get(name, {}) or _SETS.get(path, False)
        key_names = tuple(keys.rstrip("*").split(",")) if keys else ()
        fields[json_name] = Field(
            _declared(declared, path, key_names),
            patch_merge=merges,
            patch_key=key_names[0] if merges and key_names else "",
            patch_retain_keys=keys.endswith("*"),
            required=_is_required(model, attribute),
            description=_description(model, attribute),
        )
    return fields


def _declared(declared: str, path: str, keys: tuple[str, ...] = ()) -> Type:
    """The type for a model's notation: ``str``, ``V1PodSpec``, ``list[V1Container]``, ``dict(str, str)``."""
    if declared.startswith("list["):
        ownership = Ownership.KEYED if keys else Ownership.SET if path in _SETS else Ownership.ATOMIC
        defaults = {"protocol": "TCP"} if "protocol" in keys else None
        element = _declared(declared[5:-1], path)
        return Type(Shape.LIST, element=element, ownership=ownership, keys=keys, key_defaults=defaults)
    if declared.startswith("dict("):
        element = _declared(declared[len("dict(str, ") : -1], path)
        ownership = Ownership.ATOMIC if path in _ATOMIC else Ownership.GRANULAR
        return Type(Shape.MAP, element=element, ownership=ownership)
    known_format = _FORMATS.get(path, "")
    if declared in _SCALARS:
        kind, usual_format = _SCALARS[declared]
        return _scalar(kind, known_format or usual_format)
    if declared == "object":
        if known_format:
            return _scalar("string", known_format)
        return Type(Shape.MAP, element=ANY) if path in _FREE_FORM else ANY
    return _model(declared)


@cache
def _scalar(kind: str, format_: str) -> Type:
    return Type(Shape.SCALAR, kind=kind, format=format_)


def _is_required(model: Any, attribute: str) -> bool:
    # The models record this only in the error message of their setters.
    constants = getattr(model, attribute).fset.__code__.co_consts
    return any(isinstance(constant, str) and constant.endswith("must not be `None`") for constant in constants)


def _description(model: Any, attribute: str) -> str:
    """A field's description, from the docstring of its getter (none under ``python -OO``)."""
    lines = [line.strip() for line in (getattr(model, attribute).fget.__doc__ or "").splitlines()]
    text = lines[2] if len(lines) > 2 else ""
    return "" if text.startswith(":return:") else text.removesuffix("# noqa: E501").rstrip()
