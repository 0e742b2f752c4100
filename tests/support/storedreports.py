"""Report writers of several replicas over one ConfigMap in memory, whose API server may fail."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.timestamps import parse_time
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.errors import Conflict, ObjectNotFound, TransportError
from frameworkcontroller.kube.resources import Resource
from frameworkcontroller.reports.podtokens import AttemptPath, ReportingPod, ReportRefused
from frameworkcontroller.reports.progresswriter import ProgressWriter
from frameworkcontroller.reports.reportbody import Report
from frameworkcontroller.tokenbucket import TokenBucket

Fate = Literal["done", "failed", "lost"]
"""Of a request: answered, not executed, or executed without an answer."""

TIMES: Final = ("lastReportTime", "lastChangeTime", "lastCheckpointTime")


@dataclass
class ConfigMaps:
    """The ConfigMap of the attempts of one Framework, one after another. Notes times that go back."""

    interval: int = 60
    uid: int = 0
    version: int = 0
    data: dict[str, str] = field(default_factory=dict)
    fate: Callable[[], Fate] = lambda: "done"
    delay: Callable[[], float] = lambda: 0.01
    writes: list[float] = field(default_factory=list)
    """The times of the loop."""
    faults: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def replace(self) -> None:
        """Begin the next attempt."""
        self.uid += 1
        self.version += 1
        self.data = {}

    @property
    def progress(self) -> dict[str, Any]:
        """The stored progress."""
        found: dict[str, Any] = orjson.loads(self.data.get(names.PROGRESS_KEY, "{}"))
        return found

    def time(self, key: str) -> int | None:
        """A stored time."""
        return parse_time(self.progress[key]) if key in self.progress else None

    def _body(self) -> bytes:
        metadata = {
            "uid": f"uid-{self.uid}",
            "resourceVersion": str(self.version),
            "annotations": {names.FRAMEWORK_ATTEMPT_ID: str(self.uid)},
        }
        return orjson.dumps({"metadata": metadata, "data": {**self.data, names.INTERVAL_KEY: str(self.interval)}})

    async def get(self, resource: Resource, name: str, namespace: str | None = None, **_: Any) -> bytes:
        self.counts["get"] += 1
        await asyncio.sleep(self.delay())
        if self.fate() != "done":
            raise TransportError("connection reset")
        return self._body()

    async def patch(self, resource: Resource, name: str, body: bytes, namespace: str | None = None, **_: Any) -> bytes:
        self.counts["patch"] += 1
        await asyncio.sleep(self.delay())
        fate = self.fate()
        if fate == "failed":
            raise TransportError("connection reset")
        sent = orjson.loads(body)
        actual = {"uid": f"uid-{self.uid}", "resourceVersion": str(self.version)}
        if not sent["metadata"].items() <= actual.items():
            raise Conflict("precondition failed", code=409)
        before = {key: self.time(key) for key in TIMES}
        self.data |= sent["data"]
        self.version += 1
        self.writes.append(asyncio.get_running_loop().time())
        self.faults += [f"{key} went back" for key, value in before.items() if (self.time(key) or 0) < (value or 0)]
        if fate == "lost":
            raise TransportError("connection reset")
        return self._body()


class Gone(ConfigMaps):
    """No ConfigMap."""

    async def get(self, resource: Resource, name: str, namespace: str | None = None, **_: Any) -> bytes:
        raise ObjectNotFound("not found", code=404)


class Replica:
    """The writer of one replica. ``skew``: seconds by which its clock is ahead."""

    def __init__(self, store: ConfigMaps, wall: Callable[[], float], skew: int = 0) -> None:
        loop = asyncio.get_running_loop()
        self.store = store
        self._wall = lambda: wall() + skew
        self._clock = loop.time
        self.restart()

    def restart(self) -> None:
        """Lose everything."""
        self.writer = ProgressWriter(cast("KubeClient", self.store), self._clock, self._wall, random.Random(1))
        self._pods: dict[str, ReportingPod] = {}

    async def take(self, pod: str, report: Report, attempt: int | None = None) -> bool:
        """Take a report of a Pod of that attempt, by default the current one. Return whether it was accepted."""
        number = self.store.uid if attempt is None else attempt
        uid = f"uid-{number}"
        key = f"{pod}-{uid}"
        found = self._pods.setdefault(key, ReportingPod("ns", pod, key, "f", uid, TokenBucket(5, 1.0)))
        try:
            await self.writer.take(found, AttemptPath("ns", "f", number), report)
        except ReportRefused:
            return False
        return True
