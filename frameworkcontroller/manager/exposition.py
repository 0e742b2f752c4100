"""The metrics of one controller, for Prometheus.

Imported by the first scrape, for the memory that prometheus-client takes. Each controller has its own registry, so that
several can run in one process.

docs/metrics.md is generated from this module.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry, GCCollector, Metric, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from frameworkcontroller import __version__
from frameworkcontroller.kube.informer import Informer
from frameworkcontroller.manager.controllermetrics import (
    NO_ANSWER,
    OTHER_CODE,
    OTHER_REASON,
    QUEUE,
    Distribution,
    Family,
)

if TYPE_CHECKING:
    from frameworkcontroller.controller.historysink import HistorySink
    from frameworkcontroller.controller.logcapture import LogCapture
    from frameworkcontroller.manager.app import Controller
    from frameworkcontroller.reports.service import ReportService

ORPHANED: Final = "Orphaned"
"""Value of the label ``reason`` for quota of Frameworks that were gone."""

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
    "frameworkcontroller_frameworks{phase}": "Frameworks, by phase.",
    "frameworkcontroller_tasks{state}": "Tasks, by state, also of completed Frameworks.",
    "frameworkcontroller_frameworks_waiting{reason}": ("Frameworks with a waiting Framework or Task, by reason."),
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
        "Quotas released to Kueue, by reason: QuotaGivenBack, after an eviction; QueueLeft, by a Framework that is "
        f"completed, suspended or deleted; {ORPHANED}, of a Framework that was gone."
    ),
    "frameworkcontroller_longest_eviction_seconds": (
        "Longest time for which a Framework that was evicted has kept its quota, since something of it may run."
    ),
    # Reports of progress, if there is a server for them.
    "frameworkcontroller_progress_reports{result}": (
        "Reports of progress from Pods, by result: accepted; invalid; unauthorized, without a valid token; forbidden, "
        "of another Pod; gone, of an earlier attempt; throttled; too_large; unavailable, the API server did not "
        "answer; other."
    ),
    "frameworkcontroller_progress_writes{result}": (
        "Writes of reported progress into ConfigMaps of attempts, by result: written; conflict, with another replica; "
        "gone, the attempt is over; failed, to be repeated."
    ),
    "frameworkcontroller_progress_token_reviews": "Reviews of tokens of Pods that report progress.",
    "frameworkcontroller_progress_connections": "Connections to the report server.",
    "frameworkcontroller_progress_failing": (
        "1 while reports of progress can be neither checked nor written; no attempt ends for lack of progress then."
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
    "frameworkcontroller_history_logs{result}": (
        "Logs of containers that are kept before their Pods are deleted, by result: captured; cut, something is "
        "missing; missed, all is. The records say why."
    ),
    "frameworkcontroller_history_log_wait_seconds": (
        "Time for which the deletion of a Pod or of an attempt's ConfigMap waited for logs."
    ),
    # The process.
    "frameworkcontroller_build_info{version,python}": (
        "Always 1; the labels hold the versions of the controller and of Python."
    ),
}
"""The help text of each metric, by its name and labels."""


def registry_of(controller: Controller) -> CollectorRegistry:
    """A registry with all metrics of the controller and of its process."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    GCCollector(registry=registry)
    registry.register(_ControllerCollector(controller))
    return registry


def expose(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """All metrics in OpenMetrics or the text format, as the header Accept wants, and the type of the content."""
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


class _ControllerCollector(Collector):
    """Reads the figures of a controller's parts at each scrape: some hundred numbers, for any workload."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def collect(self) -> Iterator[Metric]:
        """All families with their current values."""
        controller = self._controller
        for counts in controller.metrics.counters:
            yield _counter(counts.metric, {labels: one.value for labels, one in counts.series.items()})
        for distributions in controller.metrics.histograms:
            yield _histogram(distributions)
        queue = controller.queue
        yield _gauge("workqueue_depth{name}", {QUEUE: len(queue)})
        yield _counter("workqueue_adds{name}", {QUEUE: queue.adds})
        yield _counter("workqueue_retries{name}", {QUEUE: queue.retries})
        yield _gauge("workqueue_unfinished_work_seconds{name}", {QUEUE: queue.unfinished_seconds})
        yield _gauge("workqueue_longest_running_processor_seconds{name}", {QUEUE: queue.longest_running_seconds})
        yield _gauge("frameworkcontroller_workqueue_delayed", queue.delayed)
        yield _gauge("frameworkcontroller_workers_busy", controller.workers.busy)
        yield _gauge("frameworkcontroller_workers", controller.worker_number)

        def each(read: Callable[[Informer[Any]], float]) -> dict[str, float]:
            return {informer.resource.plural: read(informer) for informer in controller.informers.needed}

        yield _gauge("frameworkcontroller_cache_objects{resource}", each(lambda one: len(one.lister)))
        yield _gauge("frameworkcontroller_cache_synced{resource}", each(lambda one: one.synced))
        yield _counter("frameworkcontroller_lists{resource}", each(lambda one: one.counters.lists))
        yield _counter("frameworkcontroller_watch_events{resource}", each(lambda one: one.counters.events))
        yield _counter(
            "frameworkcontroller_watch_restarts{resource,reason}",
            {
                (one.resource.plural, end.value): n
                for one in controller.informers.needed
                for end, n in one.counters.failures.items()
            },
        )
        yield _counter("frameworkcontroller_unreadable_objects{resource}", each(lambda one: one.counters.undecodable))
        yield _gauge("frameworkcontroller_frameworks{phase}", controller.state_counts.frameworks)
        yield _gauge("frameworkcontroller_tasks{state}", controller.state_counts.tasks)
        yield _gauge("frameworkcontroller_frameworks_waiting{reason}", controller.state_counts.waiting)
        yield _gauge("frameworkcontroller_frameworks_stalled{reason}", controller.state_counts.stalled)
        yield _gauge("frameworkcontroller_frameworks_quarantined", controller.state_counts.quarantined)
        releases = {str(reason): number for reason, number in controller.recorder.releases.items()}
        releases[ORPHANED] = controller.orphans_released
        yield _counter("frameworkcontroller_quota_releases{reason}", releases)
        yield _gauge("frameworkcontroller_longest_eviction_seconds", controller.state_counts.longest_eviction())
        yield _gauge("frameworkcontroller_ledger_entries", len(controller.reconcilers))
        yield _counter("frameworkcontroller_events{result}", controller.recorder.counters)
        yield _gauge("frameworkcontroller_api_rate_limiter_waiting", controller.limiter.waiting)
        yield _gauge("leader_election_master_status{name}", {"frameworkcontroller": controller.leading})
        yield _gauge("frameworkcontroller_status_subresource_lost", controller.crd_guard.problem is not None)
        yield _gauge("frameworkcontroller_crd_missing_fields", len(controller.crd_guard.missing))
        yield _gauge("frameworkcontroller_build_info{version,python}", {(__version__, platform.python_version()): 1})
        if controller.report_service is not None:
            yield from _reports(controller.report_service)
        if controller.history_sink is not None:
            yield from _history(controller.history_sink)
        if controller.log_capture is not None:
            yield from _logs(controller.log_capture)


def _reports(service: ReportService) -> Iterator[Metric]:
    yield _counter("frameworkcontroller_progress_reports{result}", service.results)
    yield _counter("frameworkcontroller_progress_writes{result}", service.writer.writes)
    yield _counter("frameworkcontroller_progress_token_reviews", service.authentication.reviews)
    yield _gauge("frameworkcontroller_progress_connections", service.connections)
    yield _gauge("frameworkcontroller_progress_failing", service.works_since is None)


def _history(sink: HistorySink) -> Iterator[Metric]:
    from frameworkcontroller.controller.historysink import RESULTS

    triggers = sorted(sink.triggers)
    counts = {(trigger, result): sink.records[trigger, result] for trigger in triggers for result in RESULTS}
    yield _counter("frameworkcontroller_history_records{trigger,result}", counts)
    pending = {trigger: sink.pending[trigger] for trigger in triggers}
    yield _gauge("frameworkcontroller_history_pending_records{trigger}", pending)
    yield _gauge("frameworkcontroller_history_pending_bytes", sink.pending_bytes)
    yield _gauge("frameworkcontroller_history_oldest_pending_seconds", sink.oldest_seconds)


def _logs(capture: LogCapture) -> Iterator[Metric]:
    from frameworkcontroller.controller.logcapture import RESULTS

    counts = {result: capture.results[result] for result in RESULTS}
    yield _counter("frameworkcontroller_history_logs{result}", counts)


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


def _histogram(family: Family[Distribution]) -> Metric:
    name, text, labels = _described(family.metric)
    histogram = HistogramMetricFamily(name, text, labels=labels)
    for values, one in family.series.items():
        bounds = map(floatToGoString, (*one.bounds, float("inf")))
        histogram.add_metric(values, list(zip(bounds, accumulate(one.counts), strict=True)), one.total)
    return histogram


_gauge: Final = partial(_family, GaugeMetricFamily)
_counter: Final = partial(_family, CounterMetricFamily)
