"""Events of the node's own controllers."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import orjson

from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.errors import Forbidden, NotFound
from frameworkcontroller.kube.resources import EVENTS


class NodeEvents:
    """Records Events as ``component``, each text once per object."""

    def __init__(self, client: KubeClient, component: str, *, wall: Callable[[], float] = time.time) -> None:
        self._client = client
        self._component = component
        self._wall = wall
        self._last: dict[str, str] = {}

    async def warn(self, namespace: str, about: Mapping[str, str], reason: str, message: str) -> None:
        """Record a warning about the object with this apiVersion, kind, name and uid, unless it was the last one."""
        if self._last.get(about["uid"]) == message:
            return
        now = format_time(int(self._wall()))
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{about['name']}-", "namespace": namespace},
            "involvedObject": {**about, "namespace": namespace},
            "type": "Warning",
            "reason": reason,
            "message": message,
            "source": {"component": self._component},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        self._last[about["uid"]] = message
        try:
            await self._client.create(EVENTS, orjson.dumps(body), namespace)
        except (Forbidden, NotFound):
            # As in a namespace that is being deleted. The object itself says it, too.
            return
