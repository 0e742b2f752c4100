"""Counters and histograms of one controller, as plain numbers.

The parts of a controller know nothing of metrics. They keep plain figures, or call a function of ``ControllerMetrics``.
At each scrape, ``exposition`` reads both. No label holds a name that a user chose, so the number of time series does
not grow with the workload.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, Generic, TypeVar, get_args

from frameworkcontroller.api.completion import CATEGORIES, DISRUPTIONS, PREDEFINED
from frameworkcontroller.controller.syncworkers import SyncResult
from frameworkcontroller.kube.transport import Exchange
from frameworkcontroller.machine.kernel.model import AttemptCounters, Level
from frameworkcontroller.machine.kernel.protocol import WriteResult
from frameworkcontroller.machine.parts.kueue.queueing import OUT_OF_SYNC, WORKLOAD_LOST

if TYPE_CHECKING:
    from frameworkcontroller.controller.historysink import HistorySink

S = TypeVar("S")

QUEUE: Final = "framework"
"""Value of the label ``name`` of the only work queue, as in client-go."""

OTHER_CODE: Final = "other"
"""Value of the label ``code`` for exit codes of containers that have no time series of their own."""

OTHER_REASON: Final = "Other"
"""Value of the label ``reason`` for evictions whose reason has no time series of its own."""

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
"""Kueue's reasons of evictions, with ``DeactivatedDueTo...`` as one, and our own."""

NO_ANSWER: Final = "none"
"""Value of the label ``code`` for requests without a response."""

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


class Count:
    """A time series that only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, number: float = 1.0) -> None:
        self.value += number


class Distribution:
    """The time series of a histogram. ``counts``: of the values up to each bound and above the one before."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class Family(Generic[S]):
    """The time series of one metric by the values of its labels."""

    def __init__(self, metric: str, new: Callable[[], S]) -> None:
        """``metric``: its name and labels, as ``name{label,label}``."""
        self.metric = metric
        self.series: dict[tuple[str, ...], S] = {}
        self._new = new

    def labels(self, *values: str) -> S:
        """The time series of these labels, which exists from now on."""
        if values not in self.series:
            self.series[values] = self._new()
        return self.series[values]


class ControllerMetrics:
    """The functions by which the parts of one controller report events.

    These run on hot paths, so each binds its time series once.
    """

    def __init__(self, known_codes: Iterable[int] = ()) -> None:
        """``known_codes``: completion codes of the configuration, which get time series of their own."""
        self.counters: list[Family[Count]] = []
        self.histograms: list[Family[Distribution]] = []
        self.queue_waited = self._histogram("workqueue_queue_duration_seconds{name}").labels(QUEUE).observe
        self.queue_worked = self._histogram("workqueue_work_duration_seconds{name}").labels(QUEUE).observe
        reconciles = self._histogram("frameworkcontroller_reconcile_duration_seconds{result}")
        self._reconciles = {result: reconciles.labels(result).observe for result in get_args(SyncResult)}
        self._requests = self._counter("frameworkcontroller_api_requests{verb,resource,code}")
        self._request_seconds = self._histogram("frameworkcontroller_api_request_duration_seconds{verb,resource}")
        transferred = self._counter("frameworkcontroller_api_transferred_bytes{direction}")
        self._sent_bytes = transferred.labels("sent").inc
        self._received_bytes = transferred.labels("received").inc
        self.limiter_waited = self._histogram("frameworkcontroller_api_rate_limiter_wait_seconds").labels().observe
        attempts = self._counter("frameworkcontroller_attempts_completed{level,code}")
        codes = dict.fromkeys([*PREDEFINED, *(code.code for code in DISRUPTIONS.values()), *known_codes])
        self._completed = {(level, code): attempts.labels(level, str(code)).inc for level in Level for code in codes}
        self._completed_otherwise = {level: attempts.labels(level, OTHER_CODE).inc for level in Level}
        retries = self._counter("frameworkcontroller_retries{level,type}")
        self._retried = {
            (level, category): retries.labels(level, category).inc for level in Level for category in CATEGORIES
        }
        self._queue_waited = self._histogram("frameworkcontroller_queue_wait_seconds", _HOURS).labels().observe
        evictions = self._counter("frameworkcontroller_evictions{reason}")
        self._evicted = {reason: evictions.labels(reason).inc for reason in (*EVICTION_REASONS, OTHER_REASON)}
        self._rerun = self._counter("frameworkcontroller_tasks_rerun").labels().inc
        writes = self._counter("frameworkcontroller_status_writes{result}")
        self._writes = {result: writes.labels(result).inc for result in get_args(WriteResult)}
        self._write_bytes = self._histogram("frameworkcontroller_status_write_bytes", _BYTES).labels().observe
        self.loop_lagged = self._histogram("frameworkcontroller_event_loop_lag_seconds", _LAG).labels().observe
        self._log_waited: Callable[[float], None] = lambda _: None
        self._exchanges: dict[tuple[str, str, int], tuple[Callable[[], None], Callable[[float], None] | None]] = {}
        for verb, resources in _SENT.items():
            for resource in resources:
                self._bind(verb, resource, 201 if verb == "create" else 200)

    def add_history(self, sink: HistorySink) -> None:
        """Measure the requests of the history's sink."""
        durations = self._histogram("frameworkcontroller_history_request_duration_seconds{result}")
        done, failed = durations.labels("done").observe, durations.labels("failed").observe
        sink.requested = lambda succeeded, seconds: (done if succeeded else failed)(seconds)

    def add_logs(self) -> None:
        """Measure how long deletions wait for logs."""
        self._log_waited = self._histogram("frameworkcontroller_history_log_wait_seconds").labels().observe

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
        for waited in counters.log_waits_sec:
            self._log_waited(waited)
        for reason, number in counters.evicted.items():
            known = _DEACTIVATED if reason.startswith(_DEACTIVATED) else reason
            (self._evicted.get(known) or self._evicted[OTHER_REASON])(number)

    def _counter(self, metric: str) -> Family[Count]:
        family = Family(metric, Count)
        self.counters.append(family)
        return family

    def _histogram(self, metric: str, buckets: Sequence[float] = _SECONDS) -> Family[Distribution]:
        family = Family(metric, lambda: Distribution(buckets))
        self.histograms.append(family)
        return family

    def _bind(self, verb: str, resource: str, code: int) -> tuple[Callable[[], None], Callable[[float], None] | None]:
        plural, slash, subresource = resource.partition("/")
        name = f"{plural.partition('.')[0]}{slash}{subresource}"
        count = self._requests.labels(verb, name, str(code) if code else NO_ANSWER).inc
        bound = count, None if verb == "watch" else self._request_seconds.labels(verb, name).observe
        self._exchanges[verb, resource, code] = bound
        return bound
