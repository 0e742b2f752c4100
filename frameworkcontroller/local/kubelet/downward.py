"""The downward API: fields and resources of a Pod, for its environment and volumes."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import orjson

from frameworkcontroller.api.quantities import parse_quantity
from frameworkcontroller.local.kubelet.node import cpus, memory_bytes
from frameworkcontroller.local.kubelet.podsources import ContainerConfigError
from frameworkcontroller.local.kubelet.podstatus import HOST_IP

_SUBSCRIPT: Final = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DownwardApi:
    """``pod`` is its manifest, ``address`` its podIP, known here before it is known to the API server."""

    pod: Json
    address: str

    def field(self, path: str) -> str:
        """The value of a fieldRef with this fieldPath. Raises ConfigError if it is unsupported."""
        metadata, spec = self.pod["metadata"], self.pod["spec"]
        if subscript := _SUBSCRIPT.fullmatch(path):
            return str((metadata.get(subscript[1]) or {}).get(subscript[2], ""))
        match path:
            case "metadata.name" | "metadata.namespace" | "metadata.uid":
                return str(metadata[path.removeprefix("metadata.")])
            case "metadata.labels" | "metadata.annotations":
                items = metadata.get(path.removeprefix("metadata.")) or {}
                return "\n".join(f"{key}={orjson.dumps(items[key]).decode()}" for key in sorted(items))
            case "spec.nodeName":
                return spec.get("nodeName") or ""
            case "spec.serviceAccountName":
                return spec.get("serviceAccountName") or "default"
            case "status.podIP" | "status.podIPs":
                return self.address
            case "status.hostIP" | "status.hostIPs":
                return HOST_IP
            case _:
                raise ContainerConfigError(f"unsupported fieldPath: {path}")

    def resource(self, reference: Json, container_name: str) -> str:
        """The value of a resourceFieldRef, in units of the divisor and rounded up.

        It is a container's request or limit, or the node's capacity if that is unset. Raises ConfigError if it is
        invalid.
        """
        name = reference.get("containerName") or container_name
        spec = self.pod["spec"]
        for container in [*(spec.get("initContainers") or ()), *spec["containers"]]:
            if container["name"] == name:
                break
        else:
            raise ContainerConfigError(f"container {name} not found")
        kind, _, what = str(reference.get("resource")).partition(".")
        asked = ((container.get("resources") or {}).get(kind) or {}).get(what)
        try:
            amount = parse_quantity(asked) if asked is not None else _default(kind, what)
            divisor = parse_quantity(reference.get("divisor") or "1") or Decimal(1)
        except ValueError as error:
            raise ContainerConfigError(str(error)) from None
        return str(math.ceil(amount / divisor))


def _default(kind: str, what: str) -> Decimal:
    if kind not in ("limits", "requests"):
        raise ValueError(f"unsupported resource: {kind}.{what}")
    if kind == "requests":
        return Decimal(0)
    return {"cpu": Decimal(cpus()), "memory": Decimal(memory_bytes())}.get(what, Decimal(0))
