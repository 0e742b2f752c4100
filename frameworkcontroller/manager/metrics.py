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
from functools import partial
from typing import TYPE_CHECKING, Any, Final, get_args

from prometheus_client import CollectorRegistry, Counter, GCCollector, Histogram, Metric, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from frameworkcontroller import __version__
from frameworkcontroller.api.completion import CATEGORIES, DISRUPTIONS, PREDEFINED
from frameworkcontroller.controller.history import RESULTS
from frameworkcontroller.controller.reconcilers import Reconcilers
from frameworkcontroller.controller.recorder import EventRecorder
from frameworkcontroller.controller.statecounts import StateCounts
from frameworkcontroller.controller.workers import SyncResult, Workers
from frameworkcontroller.kube.informer import Informer
from frameworkcontroller.kube.ratelimiter import RateLimiter
from frameworkcontroller.kube.transport import Exchange
from frameworkcontroller.kube.workqueue import QueueCore
from frameworkcontroller.machine.model import AttemptCounters, Level
from frameworkcontroller.machine.protocol import WriteResult
from frameworkcontroller.machine.queueing import OUT_OF_SYNC, WORKLOAD_LOST
from frameworkcontroller.manager.informers import Informers

if TYPE_CHECKING:
    from frameworkcontroller.controller.historysink import HistorySink

QUEUE: Final = "framework"
"""Value of the label ``name`` of the only work queue, as in client-go."""

OTHER_CODE: Final = "other"
"""Value of the label ``code`` for exit codes of containers that have no time series of their own."""

OTHER_REASON: Final = "Other"
"""Value of the label ``reason`` for evictions whose reason has no time series of its own."""

ORPHANED: Final = "Orphaned"
"""Value of the label ``reason`` for quota of Frameworks that were gone."""

_DEACTIVATED: Final = "Deactivated"
EVICTION_REASONS: Final = (
    "Preempted",
    "PodsReadyTimeout",
    "AdmissionCheck",
    "ClusterQueueStopped",
    "LocalQueueStopped",
    "NodeFailures",
    "FlavorMigration",
    _DEACTIVATED,
    WORKLOAD_LOST,
    OUT_OF_SYNC,
)
"""Kueue's reasons of evictions, by which it may say why it has deactivated (``DeactivatedDueTo...``), and our own."""

NO_ANSWER: Final = "none"
"""Value of the label ``code`` for requests without a response."""

_TEXTS: Final = {
    # The work queue and syncs.
    "workqueue_queue_duration_seconds{name}": "Time that a key waits in the work queue before a worker gets it.",
    "workqueue_work_duration_seconds{name}": "Time that a worker holds a key of the work queue.",
    "workqueue_depth{name}": "Keys that are ready in the work queue.",
    "workqueue_adds{name}": "Additions of a key to the work queue.",
    "workqueue_retries{name}": "Additions of a key to the work queue after a failure.",
    "workqueue_unfinished_work_seconds{name}": (
        "Sum of the times for which workers have held their current keys. It grows while a sync hangs."
    ),
    "workqueue_longest_running_processor_seconds{name}": "Longest time for which a worker has held its current key.",
    "frameworkcontroller_workqueue_delayed": (
        "Keys that are due later: for a retry, a timeout, or the end of a retention."
    ),
    "frameworkcontroller_workers_busy": "Syncs in progress.",
    "frameworkcontroller_workers": "Maximum number of concurrent syncs (workerNumber).",
    "frameworkcontroller_reconcile_duration_seconds{result}": (
        "Duration of syncs of Frameworks, by result: done; retry, after a transient failure; failed, by an unexpected "
        "error; cancelled, because the controller stops."
    ),
    "frameworkcontroller_event_loop_lag_seconds": (
        "Delay of the event loop: the time by which a timer fires late because other work keeps the loop busy. "
        "Sampled once a second while the web server runs."
    ),
    # The API server.
    "frameworkcontroller_api_requests{verb,resource,code}": (
        "Requests to the API server, by RBAC verb and resource, and by the HTTP status code of the response "
        f"({NO_ANSWER}: no response)."
    ),
    "frameworkcontroller_api_request_duration_seconds{verb,resource}": (
        "Latency of requests to the API server, without the wait for the client's rate limit; not of watches."
    ),
    "frameworkcontroller_api_transferred_bytes{direction}": (
        "Bytes of request bodies sent to the API server, and of response bodies received from it."
    ),
    "frameworkcontroller_api_rate_limiter_wait_seconds": (
        "Time that requests wait for the client's rate limit (kubeClientQps, kubeClientBurst)."
    ),
    "frameworkcontroller_api_rate_limiter_waiting": "Requests that wait for the client's rate limit.",
    "frameworkcontroller_status_writes{result}": (
        "Writes of the status of a Framework, by result: accepted; landed, accepted although the response was lost; "
        "conflict, a precondition failed; not_found; too_large for the API server; pruned, stored without some fields; "
        "error."
    ),
    "frameworkcontroller_status_write_bytes": (
        "Size of the statuses sent to the API server, as stored (after compression, if it is on)."
    ),
    "frameworkcontroller_status_subresource_lost": (
        "1 if the CRD has lost its status subresource, without which no status can be written."
    ),
    "frameworkcontroller_crd_missing_fields": (
        "Fields of this release that the CRD on the API server lacks, so that the API server drops them."
    ),
    "frameworkcontroller_events{result}": (
        "Kubernetes Events of Frameworks, by result: created; patched, to raise the count of a repeated one; "
        "rationed, dropped because its Framework had too many; overflowed, dropped because too many were waiting; "
        "refused by the API server; unsent, dropped because the API server was unavailable for too long."
    ),
    "leader_election_master_status{name}": "1 if this replica is the leader, or runs without leader election.",
    # The caches.
    "frameworkcontroller_cache_objects{resource}": "Objects in the cache.",
    "frameworkcontroller_cache_synced{resource}": "1 if the cache is filled.",
    "frameworkcontroller_lists{resource}": "Complete lists stored in the cache.",
    "frameworkcontroller_watch_events{resource}": "Events received from watches.",
    "frameworkcontroller_watch_restarts{resource,reason}": (
        "Ends of lists and watches, by reason. The API server closes each watch every few minutes (closed)."
    ),
    "frameworkcontroller_unreadable_objects{resource}": (
        "Objects received from lists and watches that could not be decoded."
    ),
    # Frameworks and Tasks.
    "frameworkcontroller_frameworks{state}": "Frameworks, by state.",
    "frameworkcontroller_tasks{state}": "Tasks, by state. Those of completed Frameworks count too.",
    "frameworkcontroller_frameworks_waiting{reason}": (
        "Frameworks that wait by a rule, or Tasks of which do, by reason."
    ),
    "frameworkcontroller_frameworks_stalled{reason}": (
        "Frameworks that make no progress until a user or another component acts, by the reason of the condition "
        "Stalled."
    ),
    "frameworkcontroller_frameworks_quarantined": (
        "Frameworks in quarantine, which the controller does not work on: their status is inconsistent, or a sync "
        "failed unexpectedly."
    ),
    "frameworkcontroller_ledger_entries": "Frameworks whose status is held in memory.",
    "frameworkcontroller_attempts_completed{level,code}": (
        "Completed attempts, by level and completion code. Codes that are neither predefined nor in podFailureSpec "
        f"count as {OTHER_CODE}."
    ),
    "frameworkcontroller_retries{level,type}": (
        "Retries, by level and by the type that the retry policy gave to the completed attempt."
    ),
    "frameworkcontroller_tasks_rerun": (
        "Tasks that had completed when a suspension ended their attempt: they run again in the next one."
    ),
    "frameworkcontroller_queue_wait_seconds": (
        "Time from which a Framework is queued, first or after an eviction, until Kueue admits it, by its Workload."
    ),
    "frameworkcontroller_evictions{reason}": (
        "Evictions of Frameworks from their queue, by Kueue's reason; WorkloadLost: others deleted or finished the "
        f"Workload; WorkloadOutOfSync: by a change of the spec. Unknown reasons count as {OTHER_REASON}."
    ),
    "frameworkcontroller_quota_releases{reason}": (
        "Quotas given back to Kueue, by reason: QuotaGivenBack, after an eviction; QueueLeft, by a Framework that is "
        f"completed, suspended or deleted; {ORPHANED}, of a Framework that was gone."
    ),
    "frameworkcontroller_longest_eviction_seconds": (
        "Longest time for which a Framework that was evicted has kept its quota, since something of it may run."
    ),
    # The history, if it has a sink.
    "frameworkcontroller_history_records{trigger,result}": (
        "Records of the history, by trigger and result: stored; failed, the sink was unavailable; refused by the sink; "
        "dropped, given up. Failed and refused records are sent again, unless they are dropped."
    ),
    "frameworkcontroller_history_request_duration_seconds{result}": (
        "Duration of batches of records sent to the sink (http) or written (file), by result: done or failed."
    ),
    "frameworkcontroller_history_pending_records{trigger}": "Records of the history that are not stored yet.",
    "frameworkcontroller_history_pending_bytes": (
        "Bytes of the records that are not stored yet; history.maxPendingBytes is their limit."
    ),
    "frameworkcontroller_history_oldest_pending_seconds": (
        "Time for which the oldest record has waited for the sink, or for which the sink has failed while records come."
    ),
    # The process.
    "frameworkcontroller_build_info{version,python}": (
        "Always 1; the labels hold the versions of the controller and of Python."
    ),
}
"""The help text of each metric, by its name and labels."""

_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_HOURS: Final = (1.0, 10.0, 60.0, 300.0, 1800.0, 3600.0, 14400.0, 43200.0, 86400.0, 259200.0, 604800.0)
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
        self.queue_waited = self._histogram("workqueue_queue_duration_seconds{name}").labels(QUEUE).observe
        self.queue_worked = self._histogram("workqueue_work_duration_seconds{name}").labels(QUEUE).observe
        reconciles = self._histogram("frameworkcontroller_reconcile_duration_seconds{result}")
        self._reconciles = {result: reconciles.labels(result).observe for result in get_args(SyncResult)}
        self._requests = self._counter("frameworkcontroller_api_requests{verb,resource,code}")
        self._request_seconds = self._histogram("frameworkcontroller_api_request_duration_seconds{verb,resource}")
        transferred = self._counter("frameworkcontroller_api_transferred_bytes{direction}")
        self._sent_bytes = transferred.labels("sent").inc
        self._received_bytes = transferred.labels("received").inc
        self.limiter_waited = self._histogram("frameworkcontroller_api_rate_limiter_wait_seconds").observe
        attempts = self._counter("frameworkcontroller_attempts_completed{level,code}")
        codes = dict.fromkeys([*PREDEFINED, *(code.code for code in DISRUPTIONS.values()), *known_codes])
        self._completed = {(level, code): attempts.labels(level, str(code)).inc for level in Level for code in codes}
        self._completed_otherwise = {level: attempts.labels(level, OTHER_CODE).inc for level in Level}
        retries = self._counter("frameworkcontroller_retries{level,type}")
        self._retried = {
            (level, category): retries.labels(level, category).inc for level in Level for category in CATEGORIES
        }
        self._queue_waited = self._histogram("frameworkcontroller_queue_wait_seconds", _HOURS).observe
        evictions = self._counter("frameworkcontroller_evictions{reason}")
        self._evicted = {reason: evictions.labels(reason).inc for reason in (*EVICTION_REASONS, OTHER_REASON)}
        self._rerun = self._counter("frameworkcontroller_tasks_rerun").inc
        writes = self._counter("frameworkcontroller_status_writes{result}")
        self._writes = {result: writes.labels(result).inc for result in get_args(WriteResult)}
        self._write_bytes = self._histogram("frameworkcontroller_status_write_bytes", _BYTES).observe
        self.loop_lagged = self._histogram("frameworkcontroller_event_loop_lag_seconds", _LAG).observe
        self._exchanges: dict[tuple[str, str, int], tuple[Callable[[], None], Callable[[float], None] | None]] = {}
        for verb, resources in _SENT.items():
            for resource in resources:
                self._bind(verb, resource, 201 if verb == "create" else 200)

    def add_history(self, sink: HistorySink) -> None:
        """Serve the metrics of the history's sink."""
        self.registry.register(_HistoryCollector(sink))
        durations = self._histogram("frameworkcontroller_history_request_duration_seconds{result}")
        done, failed = durations.labels("done").observe, durations.labels("failed").observe
        sink.requested = lambda succeeded, seconds: (done if succeeded else failed)(seconds)

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
        self._rerun(counters.rerun)
        for seconds in counters.waited_sec:
            self._queue_waited(seconds)
        for reason, number in counters.evicted.items():
            known = _DEACTIVATED if reason.startswith(_DEACTIVATED) else reason
            (self._evicted.get(known) or self._evicted[OTHER_REASON])(number)

    def _counter(self, metric: str) -> Counter:
        return Counter(*_described(metric), registry=self.registry)

    def _histogram(self, metric: str, buckets: Sequence[float] = _SECONDS) -> Histogram:
        return Histogram(*_described(metric), buckets=buckets, registry=self.registry)

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
    recorder: EventRecorder
    limiter: RateLimiter
    leading: Callable[[], bool]
    """Whether this replica is the leader, or runs without leader election."""
    status_lost: Callable[[], bool]
    """Whether the CRD has no status subresource."""
    orphans_released: Callable[[], int]
    """The number of Workloads released whose Framework was gone."""
    missing_fields: Callable[[], int]
    """The number of fields that the CRD lacks."""

    def collect(self) -> Iterator[Metric]:
        """All families with their current values."""
        queue = self.queue
        yield _gauge("workqueue_depth{name}", {QUEUE: len(queue)})
        yield _counter("workqueue_adds{name}", {QUEUE: queue.adds})
        yield _counter("workqueue_retries{name}", {QUEUE: queue.retries})
        yield _gauge("workqueue_unfinished_work_seconds{name}", {QUEUE: queue.unfinished_seconds})
        yield _gauge("workqueue_longest_running_processor_seconds{name}", {QUEUE: queue.longest_running_seconds})
        yield _gauge("frameworkcontroller_workqueue_delayed", queue.delayed)
        yield _gauge("frameworkcontroller_workers_busy", self.workers.busy)
        yield _gauge("frameworkcontroller_workers", self.worker_number)

        def each(read: Callable[[Informer[Any]], float]) -> dict[str, float]:
            return {informer.resource.plural: read(informer) for informer in self.informers.needed}

        yield _gauge("frameworkcontroller_cache_objects{resource}", each(lambda one: len(one.lister)))
        yield _gauge("frameworkcontroller_cache_synced{resource}", each(lambda one: one.synced))
        yield _counter("frameworkcontroller_lists{resource}", each(lambda one: one.counters.lists))
        yield _counter("frameworkcontroller_watch_events{resource}", each(lambda one: one.counters.events))
        yield _counter(
            "frameworkcontroller_watch_restarts{resource,reason}",
            {
                (one.resource.plural, end.value): n
                for one in self.informers.needed
                for end, n in one.counters.failures.items()
            },
        )
        yield _counter("frameworkcontroller_unreadable_objects{resource}", each(lambda one: one.counters.undecodable))
        yield _gauge("frameworkcontroller_frameworks{state}", self.state_counts.frameworks)
        yield _gauge("frameworkcontroller_tasks{state}", self.state_counts.tasks)
        yield _gauge("frameworkcontroller_frameworks_waiting{reason}", self.state_counts.waiting)
        yield _gauge("frameworkcontroller_frameworks_stalled{reason}", self.state_counts.stalled)
        yield _gauge("frameworkcontroller_frameworks_quarantined", self.state_counts.quarantined)
        releases = {str(reason): number for reason, number in self.recorder.releases.items()}
        releases[ORPHANED] = self.orphans_released()
        yield _counter("frameworkcontroller_quota_releases{reason}", releases)
        yield _gauge("frameworkcontroller_longest_eviction_seconds", self.state_counts.longest_eviction())
        yield _gauge("frameworkcontroller_ledger_entries", len(self.reconcilers))
        yield _counter("frameworkcontroller_events{result}", asdict(self.recorder.counters))
        yield _gauge("frameworkcontroller_api_rate_limiter_waiting", self.limiter.waiting)
        yield _gauge("leader_election_master_status{name}", {"frameworkcontroller": self.leading()})
        yield _gauge("frameworkcontroller_status_subresource_lost", self.status_lost())
        yield _gauge("frameworkcontroller_crd_missing_fields", self.missing_fields())
        yield _gauge("frameworkcontroller_build_info{version,python}", {(__version__, platform.python_version()): 1})


@dataclass(frozen=True, slots=True, eq=False)
class _HistoryCollector(Collector):
    sink: HistorySink

    def collect(self) -> Iterator[Metric]:
        """All families with their current values."""
        sink, triggers = self.sink, sorted(self.sink.triggers)
        counts = {(trigger, result): sink.records[trigger, result] for trigger in triggers for result in RESULTS}
        yield _counter("frameworkcontroller_history_records{trigger,result}", counts)
        pending = {trigger: sink.pending[trigger] for trigger in triggers}
        yield _gauge("frameworkcontroller_history_pending_records{trigger}", pending)
        yield _gauge("frameworkcontroller_history_pending_bytes", sink.pending_bytes)
        yield _gauge("frameworkcontroller_history_oldest_pending_seconds", sink.oldest_seconds)


def _described(metric: str) -> tuple[str, str, Sequence[str]]:
    """Return the name, the help text and the labels of a metric."""
    name, _, labels = metric.rstrip("}").partition("{")
    return name, _TEXTS[metric], labels.split(",") if labels else ()


def _family(
    kind: type[GaugeMetricFamily | CounterMetricFamily], metric: str, values: float | Mapping[Any, float]
) -> Metric:
    """``values``: one number, or numbers by the value of the label, by a tuple if there are several labels."""
    name, text, labels = _described(metric)
    family = kind(name, text, labels=labels)
    for key, value in values.items() if isinstance(values, Mapping) else [((), values)]:
        family.add_metric(key if isinstance(key, tuple) else (key,), value)
    return family


_gauge: Final = partial(_family, GaugeMetricFamily)
_counter: Final = partial(_family, CounterMetricFamily)
