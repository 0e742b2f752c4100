"""Assigns the devices of one node to containers. Pure; its memory follows the number of assigned devices.

Devices belong to a Pod from its preparation to its end, as in Kubernetes. Its init containers use devices that its main
containers get later; sidecars run at the same time as both, and share none.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from frameworkcontroller.api.names import GPU
from frameworkcontroller.api.quantities import parse_quantity


class DeviceRequest(NamedTuple):
    """A container's request. ``initial``: an init container that has ended before the next container starts."""

    container: str
    number: int
    initial: bool


class DeviceAllocator:
    """Assigns each device to at most one Pod at a time, those that come first in ``devices`` before the others."""

    def __init__(self, devices: Sequence[object]) -> None:
        self._devices = devices
        self._unused = 0
        """No device from this index on was ever assigned."""
        self._returned: list[int] = []
        """A heap of the devices before it that are free."""
        self._taken: dict[str, list[int]] = {}
        self._assigned: dict[str, Mapping[str, str]] = {}

    @property
    def count(self) -> int:
        """The number of devices."""
        return len(self._devices)

    @property
    def free(self) -> int:
        """The number of devices that no Pod has."""
        return len(self._devices) - self._unused + len(self._returned)

    def allocate(self, pod: str, requests: Sequence[DeviceRequest]) -> Mapping[str, str] | None:
        """Assign devices to a Pod, the same until they are released; None if there are too few now.

        Returns the devices of each container, separated by commas.
        """
        if pod in self._assigned:
            return self._assigned[pod]
        number = needed(requests)
        if number > self.free:
            return None
        taken = self._taken[pod] = sorted(self._take() for _ in range(number))
        left, found = taken, {}
        for request in requests:
            found[request.container] = ",".join(str(self._devices[index]) for index in left[: request.number])
            if not request.initial:
                left = left[request.number :]
        self._assigned[pod] = found
        return found

    def release(self, pod: str) -> None:
        """Release the devices of a Pod without live containers. Idempotent."""
        for index in self._taken.pop(pod, ()):
            heapq.heappush(self._returned, index)
        self._assigned.pop(pod, None)

    def _take(self) -> int:
        if self._returned:
            return heapq.heappop(self._returned)
        self._unused += 1
        return self._unused - 1


def needed(requests: Sequence[DeviceRequest]) -> int:
    """The number of devices of a Pod: the most that its containers have at one time."""
    kept = most = 0
    for request in requests:
        most = max(most, kept + request.number)
        if not request.initial:
            kept += request.number
    return most


def device_requests(pod: Mapping[str, Any], resource: str = GPU) -> list[DeviceRequest]:
    """The requests of the containers of a Pod, in the order of their start."""
    spec = pod["spec"]
    inits = [(item, item.get("restartPolicy") != "Always") for item in spec.get("initContainers") or ()]
    return [
        DeviceRequest(container["name"], _count(container.get("resources") or {}, resource), initial)
        for container, initial in [*inits, *((item, False) for item in spec["containers"])]
    ]


def _count(resources: Mapping[str, Any], resource: str) -> int:
    amounts = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return max(0, math.ceil(parse_quantity(amounts.get(resource, "0"))))
