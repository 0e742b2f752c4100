"""Which Pods fit onto the node, one by one or as a gang. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Protocol, TypeVar

from frameworkcontroller.local.resource_lists import ResourceList

INITIALLY_SCHEDULED = "PodGroupInitiallyScheduled"
"""Condition of a PodGroup: once True, it stays True."""


@dataclass(frozen=True, slots=True)
class PlacedPodGroup:
    """A PodGroup. ``minimum``: how many of its Pods are bound together, 0 if they are bound one by one."""

    key: str
    namespace: str
    name: str
    uid: str
    resource_version: str
    deleting: bool
    minimum: int
    conditions: tuple[Mapping[str, Any], ...]

    @property
    def initially_scheduled(self) -> Mapping[str, Any]:
        """The condition of that name; empty if there is none."""
        return next((one for one in self.conditions if one.get("type") == INITIALLY_SCHEDULED), {})


def decode_pod_group(body: Mapping[str, Any]) -> PlacedPodGroup:
    """Decode a PodGroup as the API server sent it."""
    metadata = body["metadata"]
    policy = (body.get("spec") or {}).get("schedulingPolicy") or {}
    return PlacedPodGroup(
        key=f"{metadata['namespace']}/{metadata['name']}",
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
        resource_version=metadata.get("resourceVersion") or "",
        deleting=metadata.get("deletionTimestamp") is not None,
        minimum=(policy.get("gang") or {}).get("minCount") or 0,
        conditions=tuple((body.get("status") or {}).get("conditions") or ()),
    )


class Requesting(Protocol):
    """A Pod, as far as it needs room."""

    @property
    def uid(self) -> str: ...
    @property
    def requests(self) -> ResourceList: ...


P = TypeVar("P", bound=Requesting)


@dataclass(slots=True)
class Room:
    """The requests of the Pods on a node or about to be bound to it.

    ``capacity``: None for a node that takes any number of Pods.
    """

    capacity: ResourceList | None = None
    _held: dict[str, ResourceList] = field(default_factory=dict)
    _used: dict[str, Decimal] = field(default_factory=dict)

    def hold(self, pod: Requesting) -> None:
        """Count a Pod, once."""
        if pod.uid not in self._held:
            self._held[pod.uid] = pod.requests
            for name, amount in pod.requests.items():
                self._used[name] = self._used.get(name, Decimal(0)) + amount

    def release(self, uid: str) -> bool:
        """Count a Pod no longer. Return whether it was counted."""
        requests = self._held.pop(uid, None)
        for name, amount in (requests or {}).items():
            self._used[name] -= amount
        return requests is not None

    def lacking(self, pod: Requesting) -> list[str]:
        """The resources that the node lacks for the Pod."""
        if self.capacity is None or pod.uid in self._held:
            return []
        return sorted(
            name
            for name, amount in pod.requests.items()
            if amount and self._used.get(name, Decimal(0)) + amount > self.capacity.get(name, Decimal(0))
        )

    def take(self, pods: Sequence[P], at_least: int) -> tuple[list[P], list[str]]:
        """Hold the Pods that fit, in order; none if they are fewer than ``at_least``.

        Return them, and the resources that the other Pods lack.
        """
        taken: list[P] = []
        short: set[str] = set()
        for pod in pods:
            lacking = self.lacking(pod)
            short.update(lacking)
            if not lacking:
                self.hold(pod)
                taken.append(pod)
        if len(taken) < at_least:
            for pod in taken:
                self.release(pod.uid)
            taken = []
        return taken, sorted(short)


def insufficient(resources: Sequence[str]) -> str:
    """The lacking resources of a node, in kube-scheduler's words."""
    return ", ".join(f"1 Insufficient {name}" for name in resources)
