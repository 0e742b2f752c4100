"""CPU and memory of Pods, from the metrics API (metrics-server) of clusters that have it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import orjson

from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.errors import ApiError, Forbidden, NotFound, ServerError
from frameworkcontroller.kube.resources import Resource

POD_METRICS: Final = Resource("metrics.k8s.io", "v1beta1", "pods", "PodMetrics")

_QUANTITY: Final = re.compile(r"([0-9.]+(?:[eE][0-9]+)?)([a-zA-Z]*)")
_SCALE: Final = {
    "n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40,
}  # fmt: skip


class NoMetrics(Exception):
    """The cluster has no metrics; the text says why."""


@dataclass(slots=True)
class Usage:
    """Sums over Pods: ``cpu`` in cores, ``memory`` in bytes."""

    pods: int = 0
    cpu: float = 0.0
    memory: float = 0.0


async def read_usage(client: KubeClient, namespace: str | None, label: str) -> dict[tuple[str, str], Usage]:
    """Return the usage of the Pods with the label, by namespace and value of the label.

    Raises:
        NoMetrics: the cluster has none.
    """
    try:
        listed = orjson.loads(await client.list(POD_METRICS, namespace, label_selector=label))
    except NotFound:
        raise NoMetrics("this cluster has no metrics API (metrics-server)") from None
    except (Forbidden, ServerError) as error:
        raise NoMetrics(f"the metrics API does not answer: {error}") from None
    except ApiError as error:
        raise NoMetrics(str(error)) from None
    found: dict[tuple[str, str], Usage] = {}
    for pod in listed.get("items") or ():
        metadata = pod["metadata"]
        usage = found.setdefault((metadata["namespace"], (metadata.get("labels") or {}).get(label, "")), Usage())
        usage.pods += 1
        for container in pod.get("containers") or ():
            usage.cpu += quantity(container["usage"].get("cpu", "0"))
            usage.memory += quantity(container["usage"].get("memory", "0"))
    return found


def quantity(text: str) -> float:
    """Parse a quantity such as ``250m`` or ``1Gi``; return 0 for an invalid one."""
    found = _QUANTITY.fullmatch(text)
    if found is None or found[2] not in _SCALE:
        return 0.0
    return float(found[1]) * _SCALE[found[2]]
