"""The event recorder: logs records of Frameworks and sends them as Kubernetes Events.

Sending is best effort, as in client-go: nothing waits for an Event, and one that cannot be sent is counted and dropped.
All Events are about Frameworks; for clients, an Event of a Task's Pod is the Pod's own.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, Final, Literal, get_args

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.backoff import Backoff
from frameworkcontroller.controller.eventcorrelator import (
    CACHE_CAPACITY,
    CorrelatedEvent,
    EventCorrelator,
    InvolvedObject,
    Priority,
)
from frameworkcontroller.controller.taskevents import TaskEventBatcher
from frameworkcontroller.kube import errors
from frameworkcontroller.kube.client import MERGE_PATCH, KubeClient
from frameworkcontroller.kube.resources import EVENTS
from frameworkcontroller.lru import LRUCache
from frameworkcontroller.machine.kernel.model import Record
from frameworkcontroller.machine.kernel.reasons import EventPolicy, Reason
from frameworkcontroller.machine.lifereasons import LifeReason
from frameworkcontroller.machine.parts.kueue.queueing import QueueReason
from frameworkcontroller.machine.quarantine import unreadable

_log: Final = logging.getLogger(__name__)

COMPONENT: Final = "frameworkcontroller"
"""The source of the Events, which `kubectl describe` shows in the column From."""

QPS: Final = 20.0
BURST: Final = 100
"""Events have a rate limit of their own and do not delay other requests."""

MAX_QUEUED: Final = 1000

MAX_MESSAGE_BYTES: Final = 1024
"""The limit of events.k8s.io/v1."""

TRIES: Final = 12
RETRY: Final = Backoff(1.0, 10.0)
"""As in client-go, an Event is retried while the Events behind it wait."""

MUTE_SEC: Final = 60.0
"""Events are dropped for this time after a namespace refused one: it is terminating, or RBAC forbids them."""

_RELEASES: Final = (QueueReason.QUOTA_GIVEN_BACK, QueueReason.LEFT)
_FINAL: Final = frozenset({LifeReason.FRAMEWORK_SUCCEEDED, LifeReason.FRAMEWORK_FAILED, LifeReason.FRAMEWORK_STOPPED})


Outcome = Literal["created", "patched", "rationed", "overflowed", "refused", "unsent"]
"""Of an Event. ``rationed``: dropped by the spam filter; ``overflowed``: the queue was full; ``refused``: also dropped
as its namespace refused the one before; ``unsent``: ``TRIES`` failures."""


class EventRecorder:
    """Takes records with ``record``, which never blocks or raises; ``run`` sends the Events."""

    def __init__(
        self,
        client: KubeClient,
        *,
        wall: Callable[[], float],
        rng: random.Random,
        instance: str = COMPONENT,
        sends_events: bool = True,
    ) -> None:
        """``wall`` returns seconds since the epoch. ``instance`` identifies this replica. Create it on its loop."""
        self._client = client
        self._wall = wall
        self._rng = rng
        self._instance = instance
        self._sends_events = sends_events
        self.counters: dict[Outcome, int] = dict.fromkeys(get_args(Outcome), 0)
        self.releases: dict[Reason, int] = dict.fromkeys(_RELEASES, 0)
        """Quotas released to Kueue, by reason."""
        self._correlator = EventCorrelator(self._new_name)
        self._batcher = TaskEventBatcher(lambda event: self._post(event, Priority.TASK), wall=wall)
        self._queue: asyncio.Queue[tuple[str, bool]] = asyncio.Queue()
        """Names of Events; whether the API server is expected to have an earlier version."""
        self._pending: dict[str, CorrelatedEvent] = {}
        """The newest version of each queued Event."""
        self._last_name = 0
        self._overflowing = False
        self._muted_until: LRUCache[str, float] = LRUCache(CACHE_CAPACITY)
        self._warned: LRUCache[str, bool] = LRUCache(CACHE_CAPACITY)

    # --- recording ---

    def record(
        self, key: str, uid: str, records: Collection[Record], *, log: bool = True, trace: Exception | None = None
    ) -> None:
        """Log records of a Framework, unless ``log`` is false, and post their Events in the same order.

        The status that they are about is stored. The log lines include the traceback of ``trace``.
        """
        for record in records:
            if record.reason in self.releases:
                self.releases[record.reason] += 1
        for record in records if log else ():
            where = "" if record.role is None else f"[{record.role}][{record.index}]"
            level = logging.WARNING if record.warning else logging.INFO
            _log.log(level, "[%s]%s: %s: %s", key, where, record.reason, record.message, exc_info=trace)
        if not self._sends_events:
            return
        namespace, _, name = key.partition("/")
        involved_object = InvolvedObject(namespace, name, uid)
        for record in records:
            policy = record.reason.event
            if policy is EventPolicy.NEVER or (policy is EventPolicy.IF_WARNING and not record.warning):
                continue
            if record.role is not None:
                self._batcher.add(involved_object, record)
                continue
            self._batcher.flush(involved_object)
            priority = Priority.FINAL if record.reason in _FINAL else Priority.FRAMEWORK
            self._post(CorrelatedEvent(involved_object, record.reason, record.message, record.warning), priority)

    def record_unreadable(self, key: str, error: Exception, obj: dict[str, Any]) -> None:
        """Record that a Framework cannot be decoded, and so is neither cached nor synced."""
        self.record(key, obj["metadata"].get("uid", ""), [unreadable(error)])

    def _post(self, event: CorrelatedEvent, priority: Priority) -> None:
        now = self._wall()
        if (self._muted_until.get(event.involved_object.namespace) or 0.0) > now:
            self.counters["refused"] += 1
            return
        correlated = self._correlator.correlate(event, now, priority)
        if correlated is None:
            self.counters["rationed"] += 1
        elif correlated.name in self._pending:
            self._pending[correlated.name] = correlated
        elif len(self._pending) >= MAX_QUEUED:
            self.counters["overflowed"] += 1
            if not self._overflowing:
                self._overflowing = True
                _log.warning("%d Events are queued: dropping new ones until the queue is empty", MAX_QUEUED)
        else:
            self._pending[correlated.name] = correlated
            self._queue.put_nowait((correlated.name, correlated.count > 1))

    # --- sending ---

    async def run(self) -> None:
        """Send queued Events one at a time, until cancelled."""
        while True:
            name, exists = await self._queue.get()
            await self._deliver(self._pending.pop(name), exists=exists)
            self._queue.task_done()
            if not self._pending:
                self._overflowing = False

    async def drain(self, seconds: float) -> None:
        """Post all batches, and wait up to ``seconds`` until ``run`` has sent everything."""
        self._batcher.flush_all()
        try:
            await asyncio.wait_for(self._queue.join(), seconds)
        except TimeoutError:
            _log.warning("%d Events were not sent in time", len(self._pending))

    async def _deliver(self, event: CorrelatedEvent, *, exists: bool) -> None:
        namespace = event.involved_object.namespace
        for tries in range(1, TRIES + 1):
            try:
                await self._send(event, exists=exists)
            except (errors.TransportError, errors.ApiServerError, errors.TooManyRequests) as error:
                if tries == TRIES:
                    self.counters["unsent"] += 1
                    self._warn_once(namespace, "Cannot send Events", error)
                    return
                retry_after = error.retry_after if isinstance(error, errors.ApiError) else None
                await asyncio.sleep(max(retry_after or 0.0, RETRY.delay(tries, self._rng)))
            except errors.ApiError as error:
                self.counters["refused"] += 1
                self._on_refusal(namespace, error)
                return
            except Exception:  # noqa: BLE001 - one bad Event must not end the sending of all others
                self.counters["unsent"] += 1
                _log.exception("Cannot send an Event")
                return
            else:
                self._warned.pop(namespace)
                return

    async def _send(self, event: CorrelatedEvent, *, exists: bool) -> None:
        namespace = event.involved_object.namespace
        if exists:
            patch = {
                "count": event.count,
                "message": _truncate(event.message),
                "lastTimestamp": _time(event.last_timestamp),
            }
            # API servers keep an Event for an hour.
            with suppress(errors.NotFound):
                await self._client.patch(
                    EVENTS, event.name, orjson.dumps(patch), namespace, content_type=MERGE_PATCH, metadata_only=True
                )
                self.counters["patched"] += 1
                return
        # A try whose response was lost may have created it.
        with suppress(errors.AlreadyExists):
            await self._client.create(EVENTS, orjson.dumps(self._manifest(event)), namespace, metadata_only=True)
        self.counters["created"] += 1

    def _on_refusal(self, namespace: str, error: errors.ApiError) -> None:
        what = "The API server refuses an Event"
        if isinstance(error, errors.Forbidden | errors.NotFound):
            self._muted_until.put(namespace, self._wall() + MUTE_SEC)
            if error.has_cause("NamespaceTerminating") or isinstance(error, errors.NotFound):
                what = "Cannot create Events, the namespace is being deleted"
            else:
                what = "Not permitted to create or patch Events"
        self._warn_once(namespace, what, error)

    def _warn_once(self, namespace: str, what: str, error: Exception) -> None:
        """Warn, unless a warning about the namespace was logged since it last accepted an Event."""
        if self._warned.get(namespace) is None:
            self._warned.put(namespace, True)
            _log.warning("[%s]: %s: %s", namespace, what, error)

    def _manifest(self, event: CorrelatedEvent) -> dict[str, Any]:
        involved_object = event.involved_object
        return {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": event.name, "namespace": involved_object.namespace},
            "involvedObject": {
                "apiVersion": names.API_VERSION,
                "kind": names.KIND,
                "namespace": involved_object.namespace,
                "name": involved_object.name,
                "uid": involved_object.uid,
            },
            "type": "Warning" if event.warning else "Normal",
            "reason": event.reason,
            "message": _truncate(event.message),
            "count": event.count,
            "firstTimestamp": _time(event.first_timestamp),
            "lastTimestamp": _time(event.last_timestamp),
            "source": {"component": COMPONENT},
            "reportingComponent": COMPONENT,
            "reportingInstance": self._instance,
        }

    def _new_name(self, involved_object: InvolvedObject) -> str:
        """Return a name that lists sort in the order of creation."""
        self._last_name = max(self._last_name + 1, int(self._wall() * 1e9))
        return f"{involved_object.name}.{self._last_name:016x}"


def _truncate(text: str) -> str:
    encoded = text.encode("utf-8", "backslashreplace")
    if len(encoded) <= MAX_MESSAGE_BYTES:
        return encoded.decode()
    return encoded[: MAX_MESSAGE_BYTES - 3].decode("utf-8", "ignore") + "..."


def _time(seconds: float) -> str:
    return format_time(int(seconds))
