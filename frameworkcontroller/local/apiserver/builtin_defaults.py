"""The real server's defaults of built-in kinds.

Every function returns a new object if it sets anything; arguments are not modified.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

from frameworkcontroller.local.apiserver import crd_validation
from frameworkcontroller.local.apiserver.api_resources import ApiResource

Json = dict[str, Any]

_RBAC = "rbac.authorization.k8s.io"
_FILE_MODE = 0o644
# A Pod stays on an unreachable node for five minutes; admission adds this unless the Pod has its own toleration.
_NODE_TOLERATIONS = tuple(
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for key in ("not-ready", "unreachable")
)


def default(t: ApiResource, obj: Mapping[str, Any]) -> Json:
    """Apply the defaults of the built-in kind ``t``."""
    defaulter = _DEFAULTERS.get(t.kind)
    return dict(obj) if defaulter is None else defaulter(obj)


def _filled(obj: Mapping[str, Any], /, **defaults: Any) -> Json:
    """Copy ``obj`` with ``defaults`` for its missing fields."""
    result = dict(obj)
    for name, value in defaults.items():
        result.setdefault(name, value)
    return result


def _replaced(obj: Json, field: str, change: Callable[[Any], Any]) -> None:
    """Replace a field's value, if it is set."""
    if obj.get(field) is not None:
        obj[field] = change(obj[field])


def _each(change: Callable[[Mapping[str, Any]], Json]) -> Callable[[Any], Any]:
    return lambda items: [change(item) for item in items]


def _pod(obj: Mapping[str, Any]) -> Json:
    result = dict(obj)
    spec = pod_spec(result.get("spec") or {})
    tolerations = list(spec.get("tolerations") or ())
    for toleration in _NODE_TOLERATIONS:
        if not any(_tolerates(one, str(toleration["key"])) for one in tolerations):
            tolerations.append(dict(toleration))
    spec["tolerations"] = tolerations
    result["spec"] = _filled(spec, priority=0, preemptionPolicy="PreemptLowerPriority")
    return result


def _tolerates(toleration: Mapping[str, Any], key: str) -> bool:
    return toleration.get("key", "") in ("", key) and toleration.get("effect", "") in ("", "NoExecute")


def pod_spec(spec: Mapping[str, Any]) -> Json:
    """Default a Pod's spec as a Pod template."""
    result = _filled(
        {name: value for name, value in spec.items() if value != ""},
        restartPolicy="Always",
        terminationGracePeriodSeconds=30,
        dnsPolicy="ClusterFirst",
        securityContext={},
        schedulerName="default-scheduler",
        enableServiceLinks=True,
    )
    host_network = bool(result.get("hostNetwork"))
    for field in ("initContainers", "containers", "ephemeralContainers"):
        _replaced(result, field, _each(lambda container: _container(container, host_network)))
    _replaced(result, "volumes", _each(_volume))
    account = result.get("serviceAccountName") or result.get("serviceAccount")
    if account:
        # serviceAccount is the deprecated alias.
        result["serviceAccountName"] = result["serviceAccount"] = account
    return result


def _container(container: Mapping[str, Any], host_network: bool) -> Json:
    image = container.get("image") or ""
    tag = image.rpartition("/")[2]
    latest = "@" not in tag and (":" not in tag or tag.endswith(":latest"))
    result = _filled(
        container,
        resources={},
        terminationMessagePath="/dev/termination-log",
        terminationMessagePolicy="File",
        imagePullPolicy="Always" if latest else "IfNotPresent",
    )
    _replaced(result, "resources", _resources)
    _replaced(result, "ports", _each(lambda port: _port(port, host_network)))
    _replaced(result, "env", _each(_env))
    for field in ("livenessProbe", "readinessProbe", "startupProbe"):
        _replaced(result, field, _probe)
    if result.get("lifecycle"):
        lifecycle = dict(result["lifecycle"])
        for hook in ("postStart", "preStop"):
            _replaced(lifecycle, hook, _handler)
        result["lifecycle"] = lifecycle
    return result


def _resources(resources: Mapping[str, Any]) -> Json:
    """A missing request defaults to the limit."""
    result = dict(resources)
    if result.get("limits"):
        result["requests"] = {**result["limits"], **(result.get("requests") or {})}
    return result


def _port(port: Mapping[str, Any], host_network: bool) -> Json:
    result = _filled(port, protocol="TCP")
    if host_network and result.get("containerPort"):
        result.setdefault("hostPort", result["containerPort"])
    return result


def _env(env: Mapping[str, Any]) -> Json:
    result = dict(env)
    _replaced(result, "valueFrom", _downward)
    return result


def _downward(source: Mapping[str, Any]) -> Json:
    result = dict(source)
    _replaced(result, "fieldRef", lambda ref: _filled(ref, apiVersion="v1"))
    _replaced(result, "resourceFieldRef", lambda ref: _filled(ref, divisor="0"))
    return result


def _probe(probe: Mapping[str, Any]) -> Json:
    return _handler(_filled(probe, timeoutSeconds=1, periodSeconds=10, successThreshold=1, failureThreshold=3))


def _handler(handler: Mapping[str, Any]) -> Json:
    result = dict(handler)
    _replaced(result, "httpGet", lambda get: _filled(get, path="/", scheme="HTTP"))
    _replaced(result, "grpc", lambda grpc: _filled(grpc, service=""))
    return result


def _volume(volume: Mapping[str, Any]) -> Json:
    result = dict(volume)
    if not any(name != "name" for name in result):
        result["emptyDir"] = {}
    for field in ("secret", "configMap"):
        _replaced(result, field, lambda source: _filled(source, defaultMode=_FILE_MODE))
    _replaced(result, "downwardAPI", lambda source: _items(_filled(source, defaultMode=_FILE_MODE)))
    _replaced(result, "projected", _projected)
    _replaced(result, "hostPath", lambda source: _filled(source, type=""))
    return result


def _items(source: Mapping[str, Any]) -> Json:
    result = dict(source)
    _replaced(result, "items", _each(_downward))
    return result


def _projected(projected: Mapping[str, Any]) -> Json:
    result = _filled(projected, defaultMode=_FILE_MODE)
    _replaced(result, "sources", _each(_projection))
    return result


def _projection(source: Mapping[str, Any]) -> Json:
    result = dict(source)
    _replaced(result, "downwardAPI", _items)
    _replaced(result, "serviceAccountToken", lambda token: _filled(token, expirationSeconds=3600))
    return result


def _namespace(obj: Mapping[str, Any]) -> Json:
    result = dict(obj)
    metadata = dict(result.get("metadata") or {})
    if metadata.get("name"):
        labels = dict(metadata.get("labels") or {})
        labels.setdefault("kubernetes.io/metadata.name", metadata["name"])
        metadata["labels"] = labels
        result["metadata"] = metadata
    return result


def _secret(obj: Mapping[str, Any]) -> Json:
    result = _filled(obj, type="Opaque")
    # Written in plain text, stored in base64.
    clear = result.pop("stringData", None)
    if clear:
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in clear.items()}
        result["data"] = {**(result.get("data") or {}), **encoded}
    return result


def _service(obj: Mapping[str, Any]) -> Json:
    result = dict(obj)
    spec = _filled(result.get("spec") or {}, type="ClusterIP", sessionAffinity="None")
    if spec["type"] != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if spec["type"] in ("NodePort", "LoadBalancer"):
        spec.setdefault("externalTrafficPolicy", "Cluster")
    _replaced(spec, "ports", _each(lambda port: _filled(port, protocol="TCP", targetPort=port.get("port", 0))))
    if spec.get("clusterIP"):
        spec.setdefault("clusterIPs", [spec["clusterIP"]])
    result["spec"] = spec
    return result


def _claim(obj: Mapping[str, Any]) -> Json:
    result = _filled(obj, status={})
    result["spec"] = _filled(result.get("spec") or {}, volumeMode="Filesystem", resources={})
    result["status"] = _filled(result["status"] or {}, phase="Pending")
    return result


def _node(obj: Mapping[str, Any]) -> Json:
    result = _filled(obj, spec={})
    state = dict(result.get("status") or {})
    if state.get("capacity"):
        state["allocatable"] = {**state["capacity"], **(state.get("allocatable") or {})}
        result["status"] = state
    return result


def _role_binding(obj: Mapping[str, Any]) -> Json:
    result = dict(obj)
    _replaced(result, "roleRef", lambda ref: _filled(ref, apiGroup=_RBAC))
    _replaced(result, "subjects", _each(_subject))
    return result


def _subject(subject: Mapping[str, Any]) -> Json:
    return _filled(subject, apiGroup=_RBAC) if subject.get("kind") in ("User", "Group") else dict(subject)


def _priority_class(obj: Mapping[str, Any]) -> Json:
    return _filled(obj, value=0, preemptionPolicy="PreemptLowerPriority")


_DEFAULTERS: Mapping[str, Callable[[Mapping[str, Any]], Json]] = {
    "ClusterRoleBinding": _role_binding,
    "CustomResourceDefinition": crd_validation.defaulted,
    "Lease": lambda obj: _filled(obj, spec={}),
    "Namespace": _namespace,
    "Node": _node,
    "PersistentVolumeClaim": _claim,
    "Pod": _pod,
    "PriorityClass": _priority_class,
    "RoleBinding": _role_binding,
    "Secret": _secret,
    "Service": _service,
}
