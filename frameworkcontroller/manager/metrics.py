"""Metrics of one controller, for Prometheus.

The parts of a controller know nothing of metrics. They keep plain figures, which ``ControllerCollector`` reads at each
scrape, or call a plain function of ``Metrics``. Each controller has its own registry, so several can run in one
process. No label holds a name that a user chose, so the number of time series does not grow with the workload.

docs/metrics.md is generated from this module.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, get_args

from prometheus_client import CollectorRegistry, Counter, GCCollector, Histogram, Metric, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from frameworkcontroller import __version__
from frameworkcontroller.api.completion import CATEGORIES, DISRUPTIONS, PREDEFINED
from frameworkcontroller.controller.eventbroadcaster import EventCounters
from frameworkcontroller.controller.reconcilers import Reconcilers
from frameworkcontroller.controller.statecounts import StateCounts
from frameworkcontroller.controller.workers import SyncResult, Workers
from frameworkcontroller.kube.informer import Informer
from frameworkcontroller.kube.ratelimiter import RateLimiter
from frameworkcontroller.kube.reflector import Failure
from frameworkcontroller.kube.transport import Exchange
from frameworkcontroller.kube.workqueue import QueueCore
from frameworkcontroller.machine.model import AttemptCounters, Level
from frameworkcontroller.machine.protocol import WriteResult
from frameworkcontroller.manager.informers import Informers

QUEUE: Final = "framework"
"""Value of the label ``name`` of the only work queue, as in client-go."""

OTHER_CODE: Final = "other"
"""Value of the label ``code`` for exit codes of containers that have no time series of their own."""

NO_ANSWER: Final = "none"
"""Value of the label ``code`` for requests without a response."""

_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_BYTES: Final = tuple(float(4**power * 1024) for power in range(6))  # 1 KiB to 1 MiB
_LAG: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)

_SENT: Final = {
    "create": ("configmaps", "pods"),
    "delete": ("configmaps", "frameworks", "pods"),
    "get": ("configmaps", "frameworks", "pods"),
    "list": ("configmaps", "frameworks", "pods"),
    "patch": ("frameworks/status",),
    "watch": ("configmaps", "frameworks", "pods"),
}
"""The requests that every controller sends: their time series exist from the start. Resources by verb."""


class Registry(CollectorRegistry):
    """A registry without ``_created`` series, which would double the number of series for no use."""

    def collect(self) -> Iterator[Metric]:
        """All families with their current values."""
        for metric in super().collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric


class Metrics:
    """The registry of one controller, and the functions by which its parts report what happens.

    These run on hot paths, so each binds its time series once.
    """

    def __init__(self, known_codes: Iterable[int] = ()) -> None:
        """``known_codes``: completion codes of the configuration, which get time series of their own."""
        self.registry = Registry()
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        waited = self._histogram(
            "workqueue_queue_duration_seconds",
            "Time that a key waits in the work queue before a worker gets it.",
            ("name",),
        )
        self.queue_waited = waited.labels(QUEUE).observe
        worked = self._histogram(
            "workqueue_work_duration_seconds", "Time that a worker holds a key of the work queue.", ("name",)
        )
        self.queue_worked = worked.labels(QUEUE).observe
        reconciles = self._histogram(
            "frameworkcontroller_reconcile_duration_seconds",
            "Duration of syncs of Frameworks, by result: done; retry, after a transient failure; failed, by an "
            "unexpected error; cancelled, because the controller stops.",
            ("result",),
        )
        self._reconciles = {result: reconciles.labels(result).observe for result in get_args(SyncResult)}
        self._requests = self._counter(
            "frameworkcontroller_api_requests",
            "Requests to the API server, by RBAC verb and resource, and by the HTTP status code of the response "
            f"({NO_ANSWER}: no response).",
            ("verb", "resource", "code"),
        )
        self._request_seconds = self._histogram(
            "frameworkcontroller_api_request_duration_seconds",
            "Latency of requests to the API server, without the wait for the client's rate limit; not of watches.",
            ("verb", "resource"),
        )
        transferred = self._counter(
            "frameworkcontroller_api_transferred_bytes",
            "Bytes of request bodies sent to the API server, and of response bodies received from it.",
            ("direction",),
        )
        self._sent_bytes = transferred.labels("sent").inc
        self._received_bytes = transferred.labels("received").inc
        self.limiter_waited = self._histogram(
            "frameworkcontroller_api_rate_limiter_wait_seconds",
            "Time that requests wait for the client's rate limit (kubeClientQps, kubeClientBurst).",
        ).observe
        attempts = self._counter(
            "frameworkcontroller_attempts_completed",
            "Completed attempts, by level and completion code. Codes that are neither predefined nor in podFailureSpec "
            f"count as {OTHER_CODE}.",
            ("level", "code"),
        )
        codes = dict.fromkeys([*PREDEFINED, *(code.code for code in DISRUPTIONS.values()), *known_codes])
        self._completed = {(level, code): attempts.labels(level, str(code)).inc for level in Level for code in codes}
        self._completed_otherwise = {level: attempts.labels(level, OTHER_CODE).inc for level in Level}
        retries = self._counter(
            "frameworkcontroller_retries",
            "Retries, by level and by the type that the retry policy gave to the completed attempt.",
            ("level", "type"),
        )
        self._retried = {
            (level, category): retries.labels(level, category).inc for level in Level for category in CATEGORIES
        }
        writes = self._counter(
            "frameworkcontroller_status_writes",
            "Writes of the status of a Framework, by result: accepted; landed, accepted although the response was "
            "lost; conflict, a precondition failed; not_found; too_large for the API server; error.",
            ("result",),
        )
        self._writes = {result: writes.labels(result).inc for result in get_args(WriteResult)}
        self._write_bytes = self._histogram(
            "frameworkcontroller_status_write_bytes",
            "Size of the statuses sent to the API server, as stored (after compression, if it is on).",
            buckets=_BYTES,
        ).observe
        self.loop_lagged = self._histogram(
            "frameworkcontroller_event_loop_lag_seconds",
            "Delay of the event loop: the time by which a timer fires late because other work keeps the loop busy. "
            "Sampled once a second while the web server runs.",
            buckets=_LAG,
        ).observe
        self._exchanges: dict[tuple[str, str, int], tuple[Callable[[], None], Callable[[float], None] | None]] = {}
        for verb, resources in _SENT.items():
            for resource in resources:
                self._bind(verb, resource, 201 if verb == "create" else 200)

    def exchanged(self, exchange: Exchange) -> None:
        """A request to the API server has ended."""
        count, observe_seconds = self._exchanges.get(exchange[:3]) or self._bind(*exchange[:3])
        count()
        if observe_seconds is not None:
            observe_seconds(exchange.seconds)
        if exchange.sent_bytes:
            self._sent_bytes(exchange.sent_bytes)
        if exchange.received_bytes:
            self._received_bytes(exchange.received_bytes)

    def synced(self, result: SyncResult, seconds: float) -> None:
        """A sync has ended."""
        self._reconciles[result](seconds)

    def wrote_status(self, result: WriteResult, size: int) -> None:
        """A status of ``size`` bytes was sent."""
        self._writes[result]()
        self._write_bytes(size)

    def count_attempts(self, counters: AttemptCounters) -> None:
        """These completions and retries were persisted."""
        for (level, code), number in counters.completed.items():
            (self._completed.get((level, code)) or self._completed_otherwise[level])(number)
        for retried, number in counters.retried.items():
            self._retried[retried](number)

    def _counter(self, name: str, text: str, labels: Sequence[str] = ()) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _histogram(
        self, name: str, text: str, labels: Sequence[str] = (), *, buckets: tuple[float, ...] = _SECONDS
    ) -> Histogram:
        return Histogram(name, text, labels, buckets=buckets, registry=self.registry)

    def _bind(self, verb: str, resource: str, code: int) -> tuple[Callable[[], None], Callable[[float], None] | None]:
        plural, slash, subresource = resource.partition("/")
        name = f"{plural.partition('.')[0]}{slash}{subresource}"
        count = self._requests.labels(verb, name, str(code) if code else NO_ANSWER).inc
        bound = count, None if verb == "watch" else self._request_seconds.labels(verb, name).observe
        self._exchanges[verb, resource, code] = bound
        return bound


@dataclass(frozen=True, slots=True, eq=False)
class ControllerCollector(Collector):
    """Reads the figures of a controller's parts at each scrape: some dozens of numbers, for any workload."""

    queue: QueueCore[str]
    workers: Workers
    worker_number: int
    informers: Informers
    state_counts: StateCounts
    reconcilers: Reconcilers
    events: EventCounters
    limiter: RateLimiter
    leading: Callable[[], bool]
    """Whether this replica is the leader, or runs without leader election."""
    status_lost: Callable[[], bool]
    """Whether the CRD has no status subresource."""

    def collect(self) -> Iterator[Metric]:
        """All families with their current values."""
        yield from self._queue()
        yield from self._caches()
        yield from self._frameworks()
        yield _counter(
            "frameworkcontroller_events",
            "Kubernetes Events of Frameworks, by result: created; patched, to raise the count of a repeated one; "
            "rationed, dropped because its Framework had too many; overflowed, dropped because too many were waiting; "
            "refused by the API server; unsent, dropped because the API server was unavailable for too long.",
            asdict(self.events),
            ("result",),
        )
        yield _gauge(
            "frameworkcontroller_api_rate_limiter_waiting",
            "Requests that wait for the client's rate limit.",
            self.limiter.waiting,
        )
        yield _gauge(
            "leader_election_master_status",
            "1 if this replica is the leader, or runs without leader election.",
            {"frameworkcontroller": self.leading()},
            ("name",),
        )
        yield _gauge(
            "frameworkcontroller_status_subresource_lost",
            "1 if the CRD has lost its status subresource, without which no status can be written.",
            self.status_lost(),
        )
        yield _gauge(
            "frameworkcontroller_build_info",
            "Always 1; the labels hold the versions of the controller and of Python.",
            {(__version__, platform.python_version()): 1},
            ("version", "python"),
        )

    def _queue(self) -> Iterator[Metric]:
        queue = self.queue
        for family, name, text, value in (
            (_gauge, "workqueue_depth", "Keys that are ready in the work queue.", len(queue)),
            (_counter, "workqueue_adds", "Additions of a key to the work queue.", queue.adds),
            (_counter, "workqueue_retries", "Additions of a key to the work queue after a failure.", queue.retries),
            (
                _gauge,
                "workqueue_unfinished_work_seconds",
                "Sum of the times for which workers have held their current keys. It grows while a sync hangs.",
                queue.unfinished_seconds,
            ),
            (
                _gauge,
                "workqueue_longest_running_processor_seconds",
                "Longest time for which a worker has held its current key.",
                queue.longest_running_seconds,
            ),
        ):
            yield family(name, text, {QUEUE: value}, ("name",))
        yield _gauge(
            "frameworkcontroller_workqueue_delayed",
            "Keys that are due later: for a retry, a timeout, or the end of a retention.",
            queue.delayed,
        )
        yield _gauge("frameworkcontroller_workers_busy", "Syncs in progress.", self.workers.busy)
        yield _gauge(
            "frameworkcontroller_workers", "Maximum number of concurrent syncs (workerNumber).", self.worker_number
        )

    def _caches(self) -> Iterator[Metric]:
        def each(read: Callable[[Informer[Any]], float]) -> dict[str, float]:
            return {informer.resource.plural: read(informer) for informer in self.informers}

        yield _gauge(
            "frameworkcontroller_cache_objects",
            "Objects in the cache.",
            each(lambda one: len(one.lister)),
            ("resource",),
        )
        yield _gauge(
            "frameworkcontroller_cache_synced", "1 if the cache is filled.", each(lambda one: one.synced), ("resource",)
        )
        yield _counter(
            "frameworkcontroller_lists",
            "Complete lists stored in the cache.",
            each(lambda one: one.counters.lists),
            ("resource",),
        )
        yield _counter(
            "frameworkcontroller_watch_events",
            "Events received from watches.",
            each(lambda one: one.counters.events),
            ("resource",),
        )
        yield _counter(
            "frameworkcontroller_watch_restarts",
            "Ends of lists and watches, by reason. The API server closes each watch every few minutes (closed).",
            {
                (informer.resource.plural, failure.value): informer.counters.failures[failure]
                for informer in self.informers
                for failure in Failure
            },
            ("resource", "reason"),
        )
        yield _counter(
            "frameworkcontroller_unreadable_objects",
            "Objects received from lists and watches that could not be decoded.",
            each(lambda one: one.counters.undecodable),
            ("resource",),
        )

    def _frameworks(self) -> Iterator[Metric]:
        counts = self.state_counts
        yield _gauge("frameworkcontroller_frameworks", "Frameworks, by state.", counts.frameworks, ("state",))
        yield _gauge(
            "frameworkcontroller_tasks",
            "Tasks, by state. Those of completed Frameworks count too.",
            counts.tasks,
            ("state",),
        )
        yield _gauge(
            "frameworkcontroller_frameworks_stalled",
            "Frameworks that make no progress until a user or another component acts.",
            counts.stalled,
        )
        yield _gauge(
            "frameworkcontroller_frameworks_quarantined",
            "Frameworks in quarantine, which the controller does not work on: their status is inconsistent, or a sync "
            "failed unexpectedly.",
            counts.quarantined,
        )
        yield _gauge(
            "frameworkcontroller_ledger_entries", "Frameworks whose status is held in memory.", len(self.reconcilers)
        )


def _gauge(name: str, text: str, values: float | Mapping[Any, float], labels: Sequence[str] = ()) -> Metric:
    return _filled(GaugeMetricFamily(name, text, labels=labels), values)


def _counter(name: str, text: str, values: float | Mapping[Any, float], labels: Sequence[str] = ()) -> Metric:
    return _filled(CounterMetricFamily(name, text, labels=labels), values)


def _filled(
    family: GaugeMetricFamily | CounterMetricFamily, values: float | Mapping[Any, float]
) -> GaugeMetricFamily | CounterMetricFamily:
    """``values``: one number, or numbers by the value of the label, by a tuple if there are several labels."""
    for key, value in values.items() if isinstance(values, Mapping) else [((), values)]:
        family.add_metric(key if isinstance(key, tuple) else (key,), value)
    return family
