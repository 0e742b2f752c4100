"""Metrics of the archive's server, for Prometheus.

No label holds a name that a user chose. docs/metrics.md is generated from this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, GCCollector, Histogram, Metric, ProcessCollector
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from frameworkcontroller import __version__
from frameworkcontroller.api.historyrecords import Trigger

HTTP: Final = "http"
FILE: Final = "file"
SOURCES: Final = (HTTP, FILE)
"""Where records come from: values of the label ``source``."""

_REQUEST_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class _Registry(CollectorRegistry):
    """A registry without ``_created`` series, which would double the number of series for no use."""

    def collect(self) -> Iterator[Metric]:
        for metric in super().collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric


class ArchiveMetrics:
    """The metrics of one server, with a registry of their own."""

    def __init__(self, routes: Iterable[str] = ()) -> None:
        """``routes``: the values of the label ``route``, whose time series exist from the start."""
        self.registry = _Registry()
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        names: dict[str, Any] = {"namespace": "frameworkcontroller", "subsystem": "archive", "registry": self.registry}
        counter: Callable[..., Counter] = partial(Counter, **names)
        gauge: Callable[..., Gauge] = partial(Gauge, **names)
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
        self._bytes = gauge("bytes", "Size of the database without space to be reused, sampled once a minute.")
        self._frameworks = gauge("frameworks", "Frameworks in the database, sampled once a minute.")
        self._database_up = gauge("database_up", "1 if the database could be used when it was last sampled, else 0.")
        self._volume_bytes = gauge(
            "volume_bytes", "Size of the volume with the database, sampled once a minute; 0: not SQLite."
        )
        self._volume_free_bytes = gauge(
            "volume_free_bytes", "Free space of the volume with the database, sampled once a minute; 0: not SQLite."
        )
        self._removed = counter(
            "removed",
            "Rows removed by retention, by kind: framework; attempt, of Frameworks and Tasks, and Pods.",
            ["kind"],
        )
        self._uploads = gauge(
            "uploads", "Requests with records in progress, by state: waiting for their turn; active.", ["state"]
        )
        self._connections = gauge("connections", "Open connections of clients.")
        self._build = gauge("build_info", "1, with the version as label.", ["version"])
        self._build.labels(__version__).set(1)
        for source in SOURCES:
            for trigger in Trigger:
                self._records.labels(source, trigger)
        for code in ("400", "403", "408", "413", "415", "503"):
            self._refused.labels(HTTP, code)
        self._refused.labels(FILE, "400")
        for route in routes:
            self._requests.labels(route, "2xx")
        for kind in ("framework", "attempt"):
            self._removed.labels(kind)
        self.waiting = self._uploads.labels("waiting")
        self.active = self._uploads.labels("active")

    def stored(self, source: str, triggers: Iterable[str | None]) -> None:
        """Count stored records by their triggers."""
        for trigger in triggers:
            if trigger is not None:
                self._records.labels(source, trigger).inc()

    def refused(self, source: str, code: int, number: int = 1) -> None:
        """Count what was not stored."""
        self._refused.labels(source, str(code)).inc(number)

    def answered(self, route: str, code: int, seconds: float) -> None:
        """Observe the duration of a request."""
        self._requests.labels(route, f"{code // 100}xx").observe(seconds)

    def removed(self, frameworks: int, attempts: int) -> None:
        """Count what retention has removed."""
        self._removed.labels("framework").inc(frameworks)
        self._removed.labels("attempt").inc(attempts)

    def sampled(self, usage: tuple[int, int] | None) -> None:
        """Take the size in bytes and the number of Frameworks; None: the database cannot be used."""
        self._database_up.set(0 if usage is None else 1)
        if usage is not None:
            self._bytes.set(usage[0])
            self._frameworks.set(usage[1])

    def volume(self, size: int, free: int) -> None:
        """Take the size and the free space of the volume of SQLite."""
        self._volume_bytes.set(size)
        self._volume_free_bytes.set(free)

    def connected(self, number: int) -> None:
        """Take the number of open connections."""
        self._connections.set(number)

    def watch_folders(self, unread_bytes: Callable[[], int], lag_seconds: Callable[[], float]) -> None:
        """Serve how far following folders is behind. To be called once at most."""
        self.registry.register(_FolderCollector(unread_bytes, lag_seconds))

    def encode(self, accept: str) -> tuple[bytes, str]:
        """Return all metrics and their Content-Type, in the format that the header ``Accept`` asks for."""
        encoder, content_type = choose_encoder(accept)
        return encoder(self.registry), content_type


class _FolderCollector(Collector):
    def __init__(self, unread_bytes: Callable[[], int], lag_seconds: Callable[[], float]) -> None:
        self._unread_bytes = unread_bytes
        self._lag_seconds = lag_seconds

    def collect(self) -> Iterable[Metric]:
        yield GaugeMetricFamily(
            "frameworkcontroller_archive_follower_unread_bytes",
            "Bytes of the followed folders that are not stored yet, compressed files as they are.",
            self._unread_bytes(),
        )
        yield GaugeMetricFamily(
            "frameworkcontroller_archive_follower_lag_seconds",
            "Time for which there have been bytes in the followed folders that are not stored; 0: all are.",
            self._lag_seconds(),
        )
