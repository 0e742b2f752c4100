"""Metrics of the archive's server, for Prometheus.

No label holds a name that a user chose, except namespaces and resources of costs, whose number is bounded. Nodes are
few: the suspect ones. docs/metrics.md is generated from this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import choose_encoder

from frameworkcontroller import __version__
from frameworkcontroller.api.historyrecords import Trigger
from frameworkcontroller.history.holdings import CPU, MEMORY
from frameworkcontroller.history.reads import Costs

HTTP: Final = "http"
FILE: Final = "file"
"""Where records come from: values of the label ``source``."""

COST_NAMESPACES: Final = 100
COST_RESOURCES: Final = 10
"""Costs have at most this number of namespaces and resources, so that they have few time series."""

OTHERS: Final = "_others"
"""The label of the other namespaces. No namespace has that name."""

_REQUEST_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class ArchiveMetrics:
    """The metrics of one server, with a registry of their own."""

    def __init__(self, routes: Iterable[str] = ()) -> None:
        """``routes``: the values of the label ``route``, whose time series exist from the start."""
        # `_created` series would double the number of series for no use.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        names: dict[str, Any] = {"namespace": "frameworkcontroller", "subsystem": "archive", "registry": self.registry}
        counter: Callable[..., Counter] = partial(Counter, **names)
        gauge: Callable[..., Gauge] = partial(Gauge, **names)
        self._gauge = gauge
        self._records = counter(
            "records",
            "Records stored, known ones that came again too, by trigger and by source: http; file, a followed folder.",
            ["source", "trigger"],
        )
        self._refused = counter(
            "refused",
            "Refused records, by source. http: requests, by their status code (400: a bad record). file: lines "
            "that are no records, and compressed files that cannot be read (code 400).",
            ["source", "code"],
        )
        self._requests = Histogram(
            "request_duration_seconds",
            "Time to answer a request, by route (page: the pages) and class of the status code.",
            ["route", "code"],
            buckets=_REQUEST_BUCKETS,
            **names,
        )
        self.bytes = gauge("bytes", "Size of the database without space to be reused, sampled once a minute.")
        self.frameworks = gauge("frameworks", "Frameworks in the database, sampled once a minute.")
        self.database_up = gauge("database_up", "1 if the database could be used when it was last sampled, else 0.")
        self.volume_bytes = gauge(
            "volume_bytes", "Size of the volume with the database, sampled once a minute; 0: not SQLite."
        )
        self.volume_free_bytes = gauge(
            "volume_free_bytes", "Free space of the volume with the database, sampled once a minute; 0: not SQLite."
        )
        self.removed = counter(
            "removed",
            "Rows removed by retention, by kind: framework; attempt, of Frameworks and Tasks, and Pods; log.",
            ["kind"],
        )
        self._suspect_nodes = gauge(
            "suspect_node_failures",
            "Failed attempts of Tasks in the last day on a suspect node: of 3 or more Frameworks, and three times as "
            "many as on as many attempts elsewhere. At most 20 nodes, sampled every ten minutes.",
            ["node"],
        )
        self._cost = gauge(
            "resource_seconds_last_day",
            "Resource-seconds of the last 24 hours of Task attempts that have ended, sampled once a minute, by use: "
            f"waiting, useful or lost. CPUs, bytes of memory. The {COST_NAMESPACES} most expensive namespaces, and "
            f"{OTHERS}: all others.",
            ["namespace", "resource", "use"],
        )
        self._unknown_costs = gauge(
            "unknown_cost_attempts_last_day",
            "Task attempts that ended on a node in the last 24 hours, and whose cost is not known, sampled once a "
            "minute.",
        )
        uploads = gauge(
            "uploads", "Requests with records in progress, by state: waiting for their turn; active.", ["state"]
        )
        self.connected: Callable[[float], None] = gauge("connections", "Open connections of clients.").set
        gauge("build_info", "1, with the version as label.", ["version"]).labels(__version__).set(1)
        for source in (HTTP, FILE):
            for trigger in Trigger:
                self._records.labels(source, trigger)
        for code in ("400", "403", "408", "413", "415", "503"):
            self._refused.labels(HTTP, code)
        self._refused.labels(FILE, "400")
        for route in routes:
            self._requests.labels(route, "2xx")
        for kind in ("framework", "attempt", "log"):
            self.removed.labels(kind)
        self.waiting = uploads.labels("waiting")
        self.active = uploads.labels("active")

    def stored(self, source: str, triggers: Iterable[str]) -> None:
        """Count stored records by their triggers."""
        for trigger in triggers:
            self._records.labels(source, trigger).inc()

    def refused(self, source: str, code: int) -> None:
        """Count a refused record, or a request with records."""
        self._refused.labels(source, str(code)).inc()

    def answered(self, route: str, code: int, seconds: float) -> None:
        """Observe the duration of a request."""
        self._requests.labels(route, f"{code // 100}xx").observe(seconds)

    def set_suspect_nodes(self, failures: Mapping[str, int]) -> None:
        """Replace the suspect nodes, with their failures."""
        self._suspect_nodes.clear()
        for node, count in failures.items():
            self._suspect_nodes.labels(node).set(count)

    def show_costs(self, costs: Costs) -> None:
        """Replace the costs of the last day, by namespace, the most expensive one first."""
        total: dict[str, Any] = {**costs["total"]["resources"]}
        names = sorted(total, key=lambda name: (name not in (CPU, MEMORY), name))[:COST_RESOURCES]
        sums: dict[tuple[str, str, str], float] = {}
        for item in costs["items"][:COST_NAMESPACES]:
            found: dict[str, Any] = {**item["resources"]}
            for name in names:
                for use, seconds in found.get(name, {}).items():
                    sums[item["key"], name, use] = seconds
                    total[name] = {**total[name], use: total[name][use] - seconds}
        if len(costs["items"]) > COST_NAMESPACES:
            sums |= {(OTHERS, name, use): seconds for name in names for use, seconds in total[name].items()}
        self._cost.clear()
        for labels, seconds in sums.items():
            self._cost.labels(*labels).set(seconds)
        self._unknown_costs.set(costs["total"]["unknownAttempts"])

    def watch_folders(self, unread_bytes: Callable[[], int], lag_seconds: Callable[[], float]) -> None:
        """Serve the backlog of followed folders. To be called once at most."""
        about = "Bytes of the followed folders that are not stored yet, compressed files as they are."
        self._gauge("follower_unread_bytes", about).set_function(unread_bytes)
        about = "Time for which there have been bytes in the followed folders that are not stored; 0: all are."
        self._gauge("follower_lag_seconds", about).set_function(lag_seconds)

    def encode(self, accept: str) -> tuple[bytes, str]:
        """Return all metrics and their Content-Type, in the format that the header ``Accept`` asks for."""
        encoder, content_type = choose_encoder(accept)
        return encoder(self.registry), content_type
