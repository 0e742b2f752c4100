"""Events of Kubernetes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from frameworkcontroller.api import names
from frameworkcontroller.api.timestamps import parse_time
from frameworkcontroller.views.texts import clean_line

_MOST: Final = 4096
"""Longer than the messages that the API server admits."""


@dataclass(frozen=True, slots=True)
class KubeEvent:
    """An Event. ``seen``: seconds since the epoch; ``about``: kind and name of its object, as ``Pod/a``."""

    namespace: str
    warning: bool
    seen: int
    count: int
    reason: str
    about: str
    message: str

    @property
    def text(self) -> str:
        """The message and the number of times."""
        times = f" ({self.count} times)" if self.count > 1 else ""
        return f"{clean_line(self.message, _MOST)}{times}"

    @property
    def color(self) -> str:
        """The color of a Warning; other Events have the terminal's."""
        return "yellow" if self.warning else ""

    def concerns(self, framework: str | None) -> bool:
        """Return whether it is about the Framework, its attempt's ConfigMap or one of its Pods; True for None."""
        if framework is None:
            return True
        kind, _, name = self.about.partition("/")
        if kind == "Pod":
            parts = names.split_pod_name(name)
            return parts is not None and parts[0] == framework
        return (kind, name) in ((names.KIND, framework), ("ConfigMap", names.configmap_name(framework)))


def read_event(body: Mapping[str, Any]) -> KubeEvent:
    """Read an Event of the core API, written in the old or the new form."""
    metadata, series = body["metadata"], body.get("series") or {}
    involved = body.get("involvedObject") or {}
    seen = series.get("lastObservedTime") or body.get("lastTimestamp") or body.get("eventTime")
    return KubeEvent(
        metadata["namespace"],
        body.get("type") == "Warning",
        parse_time(seen or metadata["creationTimestamp"]),
        series.get("count") or body.get("count") or 1,
        body.get("reason") or "",
        f"{involved.get('kind', '')}/{involved.get('name', '')}",
        body.get("message") or "",
    )
