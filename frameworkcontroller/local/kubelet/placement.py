"""Which Pods fit onto which node, one by one or as a gang. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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

    @property
    def pods(self) -> int:
        """The number of counted Pods."""
        return len(self._held)

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


class Rooms:
    """The rooms of several nodes, by node."""

    def __init__(self, capacities: Mapping[str, ResourceList | None]) -> None:
        self._rooms = {node: Room(capacity) for node, capacity in capacities.items()}
        self._places: dict[str, str] = {}
        """By UID of a Pod: its node."""

    def __contains__(self, node: object) -> bool:
        return node in self._rooms

    def __iter__(self) -> Iterator[str]:
        return iter(self._rooms)

    def __len__(self) -> int:
        return len(self._rooms)

    def hold(self, pod: Requesting, node: str) -> None:
        """Count a Pod on a node, once."""
        if self._places.get(pod.uid, node) != node:
            self.release(pod.uid)
        self._places[pod.uid] = node
        self._rooms[node].hold(pod)

    def release(self, uid: str) -> bool:
        """Count a Pod no longer. Return whether this may make room for another one."""
        node = self._places.pop(uid, None)
        return node is not None and self._rooms[node].release(uid) and self._rooms[node].capacity is not None

    def lacking(self, pod: Requesting, node: str) -> list[str]:
        """The resources that the node lacks for the Pod."""
        return self._rooms[node].lacking(pod)

    def choose(self, pod: Requesting, nodes: Iterable[str]) -> str | None:
        """The node with the fewest Pods of the nodes with room for this one; None if there is none."""
        fitting = (node for node in nodes if not self._rooms[node].lacking(pod))
        return min(fitting, key=lambda node: self._rooms[node].pods, default=None)

    def take(
        self, pods: Sequence[P], at_least: int, nodes: Callable[[P], Sequence[str]]
    ) -> tuple[list[tuple[P, str]], dict[str, list[str]]]:
        """Hold the Pods that fit on one of their ``nodes``, in order; none if they are fewer than ``at_least``.

        Return them with their nodes, and by node the resources that the other Pods lack.
        """
        taken: list[tuple[P, str]] = []
        short: dict[str, set[str]] = {}
        for pod in pods:
            candidates = nodes(pod)
            node = self.choose(pod, candidates)
            if node is not None:
                self.hold(pod, node)
                taken.append((pod, node))
            else:
                for candidate in candidates:
                    short.setdefault(candidate, set()).update(self.lacking(pod, candidate))
        if len(taken) < at_least:
            for pod, _ in taken:
                self.release(pod.uid)
            taken = []
        return taken, {node: sorted(resources) for node, resources in short.items()}


def unavailable(obstacles: Mapping[str, Sequence[str]]) -> str:
    """Why no node takes a Pod, by the obstacles on each node. In kube-scheduler's words."""
    if not obstacles:
        return "no nodes available to schedule pods"
    counted = Counter(obstacle for of_node in obstacles.values() for obstacle in of_node)
    reasons = ", ".join(sorted(f"{count} {obstacle}" for obstacle, count in counted.items()))
    return f"0/{len(obstacles)} nodes are available: {reasons}."


def insufficient(resources: Sequence[str]) -> list[str]:
    """The lacking resources of a node as obstacles."""
    return [f"Insufficient {name}" for name in resources]
