"""Metrics of one controller, for Prometheus.

Each controller has a registry of its own, so that several may run in one process. The parts that are measured know
nothing of it: they keep plain figures, which are read when somebody scrapes, or call plain functions, which are bound
to their time series once. No label holds anything that users name, so the number of series does not grow with what
runs. docs/metrics.md, which is made from here, lists all of them.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final, get_args

from prometheus_client import CollectorRegistry, Counter, GCCollector, Histogram, Metric, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from frameworkcontroller import __version__
from frameworkcontroller.api.completion import CATEGORIES, DISRUPTIONS, PREDEFINED
from frameworkcontroller.controller.eventbroadcaster import EventCounters
from frameworkcontroller.controller.ledger import Ledger
from frameworkcontroller.controller.statecounts import StateCounts
from frameworkcontroller.controller.statuswriter import WriteResult
from frameworkcontroller.controller.workers import SyncResult, Workers
from frameworkcontroller.kube.informer import Informer
from frameworkcontroller.kube.ratelimiter import RateLimiter
from frameworkcontroller.kube.reflector import Failure
from frameworkcontroller.kube.transport import Exchange
from frameworkcontroller.kube.workqueue import QueueCore
from frameworkcontroller.machine.model import AttemptCounters, Level

PREFIX: Final = "frameworkcontroller"

QUEUE: Final = "framework"
"""Name of the one work queue, as client-go's label ``name`` has it."""

OTHER_CODE: Final = "other"
"""Stands for every completion code that neither the contract nor the configuration knows: exit codes of containers."""

NO_ANSWER: Final = "none"
"""The code of a request that nobody answered."""

_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_BYTES: Final = tuple(float(4**power * 1024) for power in range(6))  # 1 KiB to 1 MiB, and what is above
_LAG: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)

_SENT: Final = (
    ("create", "configmaps"),
    ("create", "pods"),
    ("delete", "configmaps"),
    ("delete", "frameworks"),
    ("delete", "pods"),
    ("get", "configmaps"),
    ("get", "frameworks"),
    ("get", "pods"),
    ("list", "configmaps"),
    ("list", "frameworks"),
    ("list", "pods"),
    ("patch", "frameworks/status"),
    ("watch", "configmaps"),
    ("watch", "frameworks"),
    ("watch", "pods"),
)
"""The requests that every controller sends sooner or later: their series are there from the start."""


@dataclass(frozen=True, slots=True)
class Sources:
    """The parts of a controller whose figures are read at each scrape."""

    queue: QueueCore[str]
    ledger: Ledger
    limiter: RateLimiter
    workers: Workers
    informers: tuple[Informer[Any], ...]
    worker_number: int
    events: EventCounters


class Metrics:
    """The metrics of one controller.

    Hooks are for whoever has something to say that is not read off the ``Sources``:

    - ``leading`` is called at each scrape: whether this replica is the one that acts (gauge
      ``leader_election_master_status``). A controller without leader election always is.
    - ``status_lost`` is called at each scrape, too: whether the CRD has no status subresource.
    - A Framework whose ledger entry has a ``quarantine`` when one of its syncs ends counts as quarantined, until a
      sync ends with none or finds the Framework gone. Nothing has to be called for that.
    """

    def __init__(self, known_codes: Iterable[int] = ()) -> None:
        """``known_codes``: completion codes of the configuration, which get time series of their own."""
        self.registry = Registry()
        self.state_counts = StateCounts()
        self.leading: Callable[[], bool] = lambda: True
        self.status_lost: Callable[[], bool] = lambda: False
        self._ledger: Ledger | None = None
        registry = self.registry
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)
        waited = Histogram(
            "workqueue_queue_duration_seconds",
            "How long a key stays in the work queue before it is worked on.",
            ["name"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._queue_waited = waited.labels(QUEUE).observe
        worked = Histogram(
            "workqueue_work_duration_seconds",
            "How long a key that was taken from the work queue is worked on.",
            ["name"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._queue_worked = worked.labels(QUEUE).observe
        reconciles = Histogram(
            f"{PREFIX}_reconcile_duration_seconds",
            "How long syncs of Frameworks take, by result: done; retry, something transient is in the way; failed, by "
            "an error that nobody foresaw; cancelled, as the controller stops.",
            ["result"],
            buckets=_SECONDS,
            registry=registry,
        )
        self._reconciles = {result: reconciles.labels(result).observe for result in get_args(SyncResult)}
        self._requests = Counter(
            f"{PREFIX}_api_requests",
            "Requests sent to the API server, by verb and resource as in RBAC rules, and by the HTTP status of the "
            f"answer ({NO_ANSWER}: there was none).",
            ["verb", "resource", "code"],
            registry=registry,
        )
        self._request_seconds = Histogram(
            f"{PREFIX}_api_request_duration_seconds",
            "How long requests to the API server take, without waiting for the client's own rate limit; no watches.",
            ["verb", "resource"],
            buckets=_SECONDS,
            registry=registry,
        )
        moved = Counter(
            f"{PREFIX}_api_transferred_bytes",
            "Bytes of bodies sent to the API server, and received from it.",
            ["direction"],
            registry=registry,
        )
        self._sent_bytes = moved.labels("sent").inc
        self._received_bytes = moved.labels("received").inc
        self._exchanges: dict[tuple[str, str, int], tuple[Callable[[], None], Callable[[float], None] | None]] = {}
        self._limiter_waited = Histogram(
            f"{PREFIX}_api_rate_limiter_wait_seconds",
            "How long requests wait for the client's own rate limit (kubeClientQps, kubeClientBurst).",
            buckets=_SECONDS,
            registry=registry,
        ).observe
        attempts = Counter(
            f"{PREFIX}_attempts_completed",
            "Attempts that came to their end, by level and completion code. Codes that neither the contract nor "
            f"podFailureSpec knows are {OTHER_CODE}.",
            ["level", "code"],
            registry=registry,
        )
        disruptions = [code.code for code in DISRUPTIONS.values()]
        codes = dict.fromkeys([*PREDEFINED, *disruptions, *known_codes])
        self._completed = {(level, code): attempts.labels(level, str(code)).inc for level in Level for code in codes}
        self._completed_otherwise = {level: attempts.labels(level, OTHER_CODE).inc for level in Level}
        retries = Counter(
            f"{PREFIX}_retries",
            "Attempts that were followed by another one, by level and by what the retry policy saw in their end.",
            ["level", "type"],
            registry=registry,
        )
        self._retried = {
            (level, category): retries.labels(level, category).inc for level in Level for category in CATEGORIES
        }
        writes = Counter(
            f"{PREFIX}_status_writes",
            "Writes of the status of a Framework, by result: accepted; landed, accepted though its answer was lost; "
            "conflict, a guard failed; not_found; too_large, for the API server to store; error.",
            ["result"],
            registry=registry,
        )
        self._writes = {result: writes.labels(result).inc for result in get_args(WriteResult)}
        self._write_bytes = Histogram(
            f"{PREFIX}_status_write_bytes",
            "Size of the statuses sent to the API server, as they are stored (compressed, if they are).",
            buckets=_BYTES,
            registry=registry,
        ).observe
        self.observe_lag = Histogram(
            f"{PREFIX}_event_loop_lag_seconds",
            "How late the event loop gets to what is due: the time for which one piece of work keeps all others "
            "waiting. Sampled once a second while the web server runs.",
            buckets=_LAG,
            registry=registry,
        ).observe
        """Told, now and then, how many seconds late the event loop is."""
        for verb, resource in _SENT:
            code = {"create": 201}.get(verb, 200)
            self._exchanges[verb, resource, code] = self._bind(verb, resource, code)

    def attach(self, sources: Sources) -> None:
        """Measure these parts. Once only."""
        self._ledger = sources.ledger
        sources.queue.on_get = self._queue_waited
        sources.queue.on_done = self._queue_worked
        sources.limiter.waited = self._limiter_waited
        self.registry.register(_Figures(self, sources))

    # --- what the parts call ---

    def exchanged(self, exchange: Exchange) -> None:
        """A request to the API server has ended (``KubeClient(observe=...)``)."""
        key = exchange[:3]
        bound = self._exchanges.get(key)
        if bound is None:
            bound = self._exchanges[key] = self._bind(*key)
        count, time = bound
        count()
        if time is not None:
            time(exchange.seconds)
        if exchange.sent_bytes:
            self._sent_bytes(exchange.sent_bytes)
        if exchange.received_bytes:
            self._received_bytes(exchange.received_bytes)

    def synced(self, key: str, result: SyncResult, seconds: float) -> None:
        """A sync of that Framework has ended (``Workers(synced=...)``)."""
        self._reconciles[result](seconds)
        if self._ledger is not None:
            self.state_counts.update(key, self._ledger.get(key))

    def wrote_status(self, result: WriteResult, size: int) -> None:
        """A status of so many bytes was sent (``Syncer(wrote=...)``)."""
        self._writes[result]()
        self._write_bytes(size)

    def count_attempts(self, attempt_counters: AttemptCounters) -> None:
        """This was persisted (``Syncer(count_attempts=...)``)."""
        for (level, code), number in attempt_counters.completed.items():
            (self._completed.get((level, code)) or self._completed_otherwise[level])(number)
        for retried, number in attempt_counters.retried.items():
            self._retried[retried](number)

    def _bind(self, verb: str, resource: str, code: int) -> tuple[Callable[[], None], Callable[[float], None] | None]:
        plural, slash, subresource = resource.partition("/")
        name = f"{plural.partition('.')[0]}{slash}{subresource}"
        count = self._requests.labels(verb, name, str(code) if code else NO_ANSWER).inc
        return count, None if verb == "watch" else self._request_seconds.labels(verb, name).observe


class Registry(CollectorRegistry):
    """A registry without the ``_created`` series, which double what is stored and tell nothing that we need."""

    def collect(self) -> Iterator[Metric]:
        """Everything there is, as it is now."""
        for metric in super().collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric


class _Figures(Collector):
    """What is read off the parts at each scrape."""

    def __init__(self, metrics: Metrics, sources: Sources) -> None:
        self._metrics = metrics
        self._sources = sources

    def collect(self) -> Iterator[Metric]:
        """All of it: some dozens of numbers, however much runs."""
        yield from self._queue()
        yield from self._workers()
        yield from self._caches()
        yield from self._frameworks()
        yield _family(
            CounterMetricFamily,
            f"{PREFIX}_events",
            "Kubernetes Events of Frameworks: created; patched, told again with a higher count; rationed, not told as "
            "too much was told of the Framework; overflowed, as too many others waited; refused; unsent, as the API "
            "server could not be reached for long.",
            (({"result": name}, number) for name, number in asdict(self._sources.events).items()),
        )
        yield GaugeMetricFamily(
            f"{PREFIX}_api_rate_limiter_waiting",
            "Requests that wait for the client's own rate limit now.",
            value=self._sources.limiter.waiting,
        )
        yield _one(
            GaugeMetricFamily,
            "leader_election_master_status",
            "Whether this replica is the one that acts: 1 if it is.",
            {"name": PREFIX},
            self._metrics.leading(),
        )
        yield GaugeMetricFamily(
            f"{PREFIX}_status_subresource_lost",
            "Whether the CRD has lost its status subresource, so that no status can be written: 1 if it has.",
            value=self._metrics.status_lost(),
        )
        yield _one(
            GaugeMetricFamily,
            f"{PREFIX}_build_info",
            "Always 1; the labels say which program this is.",
            {"version": __version__, "python": platform.python_version()},
            1,
        )

    def _queue(self) -> Iterator[Metric]:
        queue, name = self._sources.queue, {"name": QUEUE}
        yield _one(
            GaugeMetricFamily,
            "workqueue_depth",
            "Keys in the work queue that are ready to be worked on.",
            name,
            len(queue),
        )
        yield _one(
            CounterMetricFamily, "workqueue_adds", "How often a key was added to the work queue.", name, queue.adds
        )
        yield _one(
            CounterMetricFamily, "workqueue_retries", "How often a key was added after a failure.", name, queue.retries
        )
        yield _one(
            GaugeMetricFamily,
            "workqueue_unfinished_work_seconds",
            "For how long the keys that are worked on now have been, added up: it grows while something hangs.",
            name,
            queue.unfinished_seconds,
        )
        yield _one(
            GaugeMetricFamily,
            "workqueue_longest_running_processor_seconds",
            "For how long the key that has been worked on longest has been.",
            name,
            queue.longest_running_seconds,
        )
        yield GaugeMetricFamily(
            f"{PREFIX}_workqueue_delayed",
            "Keys that wait for their time: a retry, a timeout, the end of a retention.",
            value=queue.delayed,
        )

    def _workers(self) -> Iterator[Metric]:
        yield GaugeMetricFamily(f"{PREFIX}_workers_busy", "Syncs under way.", value=self._sources.workers.busy)
        yield GaugeMetricFamily(
            f"{PREFIX}_workers", "Most syncs at once (workerNumber).", value=self._sources.worker_number
        )

    def _caches(self) -> Iterator[Metric]:
        informers = {informer.resource.plural: informer for informer in self._sources.informers}
        yield _family(
            GaugeMetricFamily,
            f"{PREFIX}_cache_objects",
            "Objects in the cache.",
            (({"resource": name}, len(one.lister)) for name, one in informers.items()),
        )
        yield _family(
            GaugeMetricFamily,
            f"{PREFIX}_cache_synced",
            "Whether the cache has been filled: 1 if it has.",
            (({"resource": name}, one.synced) for name, one in informers.items()),
        )
        yield _family(
            CounterMetricFamily,
            f"{PREFIX}_lists",
            "Whole lists taken into the cache.",
            (({"resource": name}, one.counters.lists) for name, one in informers.items()),
        )
        yield _family(
            CounterMetricFamily,
            f"{PREFIX}_watch_events",
            "Events that watches brought.",
            (({"resource": name}, one.counters.events) for name, one in informers.items()),
        )
        yield _family(
            CounterMetricFamily,
            f"{PREFIX}_watch_restarts",
            "Lists and watches that did not go on, by reason. The server closes each watch every few minutes (closed).",
            (
                ({"resource": name, "reason": failure.value}, one.counters.failures[failure])
                for name, one in informers.items()
                for failure in Failure
            ),
        )
        yield _family(
            CounterMetricFamily,
            f"{PREFIX}_unreadable_objects",
            "States of objects that could not be read.",
            (({"resource": name}, one.counters.unreadable) for name, one in informers.items()),
        )

    def _frameworks(self) -> Iterator[Metric]:
        counts = self._metrics.state_counts
        yield _family(
            GaugeMetricFamily,
            f"{PREFIX}_frameworks",
            "Frameworks by state.",
            (({"state": state}, number) for state, number in counts.frameworks.items()),
        )
        yield _family(
            GaugeMetricFamily,
            f"{PREFIX}_tasks",
            "Tasks of all Frameworks by state; those of completed Frameworks included.",
            (({"state": state}, number) for state, number in counts.tasks.items()),
        )
        yield GaugeMetricFamily(
            f"{PREFIX}_frameworks_stalled",
            "Frameworks that wait for something that only a person or another component can change.",
            value=counts.stalled,
        )
        yield GaugeMetricFamily(
            f"{PREFIX}_frameworks_quarantined",
            "Frameworks that nothing is done for, as something in them can never be.",
            value=counts.quarantined,
        )
        yield GaugeMetricFamily(
            f"{PREFIX}_ledger_entries",
            "Frameworks whose status is kept in memory.",
            value=len(self._sources.ledger),
        )


_Family = type[GaugeMetricFamily] | type[CounterMetricFamily]


def _one(kind: _Family, name: str, text: str, labels: dict[str, str], value: float) -> Metric:
    return _family(kind, name, text, [(labels, value)])


def _family(kind: _Family, name: str, text: str, samples: Iterable[tuple[dict[str, str], float]]) -> Metric:
    """A family of which every sample has the same labels."""
    rows = list(samples)
    family = kind(name, text, labels=list(rows[0][0]))
    for labels, value in rows:
        family.add_metric(list(labels.values()), value)
    return family
