"""Frameworks that the controller cannot go on with are left alone, each by itself, and say so.

What leads here is a stored status that is none, an invariant that does not hold, or an error that nobody foresaw. All
that is known of the Framework is dropped then, as after a crash, and nothing is done for it: what is recorded of it may
be wrong. Its running Pods run on. It is tried again, from what the API server holds, when its spec changes and every
ten minutes, and whenever a controller starts.

It is told by the condition Stalled (reason Quarantined), an Event, the log (once for each story, with the trace of an
error) and a metric. The condition is the only thing that is written: by its own path, under all guards, so that it can
be put even to a status that cannot be read, of which nothing else is touched. Where not even that is taken, Event, log
and metric have to do.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Any, Final

import orjson

from frameworkcontroller.api.codec import StatusError, encode_condition, encode_status
from frameworkcontroller.api.objects import Framework, FrameworkRecord
from frameworkcontroller.api.spec import FrameworkSpec
from frameworkcontroller.api.status import Condition
from frameworkcontroller.controller.eventcorrelator import CACHE_CAPACITY
from frameworkcontroller.controller.ledger import Entry, Ledger
from frameworkcontroller.controller.recorder import EventRecorder
from frameworkcontroller.controller.requeue import RequeueError
from frameworkcontroller.controller.statuswriter import StatusWriter
from frameworkcontroller.kube.errors import Conflict, Invalid, KubeError, NotFound, is_too_large
from frameworkcontroller.lru import LRUCache
from frameworkcontroller.machine.conditions import MAX_MESSAGE
from frameworkcontroller.machine.model import Env, Record
from frameworkcontroller.machine.plan import reject
from frameworkcontroller.machine.reasons import Reason
from frameworkcontroller.machine.tracker import Tracker

_log: Final = logging.getLogger(__name__)

RETRY_SEC: Final = 600.0
"""A Framework in quarantine is tried again after so long: it costs a read, and whatever led here may be over."""

_STALLED: Final = "Stalled"
_MAX_STORY: Final = 2000
_TRIES: Final = 3
"""The condition is tried to be put so often in a row, if others write the Framework meanwhile."""


class Quarantine:
    """Puts Frameworks there, and says so."""

    def __init__(
        self,
        writer: StatusWriter,
        ledger: Ledger,
        recorder: EventRecorder,
        *,
        env: Callable[[], Env],
        clock: Callable[[], float],
        rng: random.Random,
    ) -> None:
        """``clock``: monotonic seconds."""
        self._writer = writer
        self._ledger = ledger
        self._recorder = recorder
        self._env = env
        self._clock = clock
        self._rng = rng
        self._told: LRUCache[str, str] = LRUCache(CACHE_CAPACITY)
        """What the log has said of each Framework, by its UID."""

    async def admit(self, record: FrameworkRecord, error: Exception) -> float:
        """Leave the Framework alone because of ``error``; in how many seconds it is to be tried again.

        Raises:
            RequeueError: it is left alone, but the API server could not be told so yet.
        """
        story = str(error) if isinstance(error, StatusError) else f"{type(error).__name__}: {error}"
        story = story[:_MAX_STORY]
        until = self._clock() + RETRY_SEC * self._rng.uniform(0.9, 1.1)
        entry = self._ledger.quarantine(record, story, until)
        happened = Record(Reason.QUARANTINED, _text(story), warning=True)
        if self._told.get(record.uid) != story:
            self._told.put(record.uid, story)
            trace = None if isinstance(error, StatusError) else error
            self._recorder.record(record.key, record.uid, [happened], trace=trace)
        else:
            self._recorder.emit_events(record.key, record.uid, [happened])
        return await self.hold(record, entry)

    async def hold(self, record: FrameworkRecord, entry: Entry) -> float:
        """Nothing is to be done for the Framework but to say so, if that is still to be done; until when, in seconds.

        0 if it is to be tried again now.

        Raises:
            RequeueError: the API server could not be told.
        """
        if entry.quarantine is None or record.generation > entry.quarantined_generation:
            return 0.0
        left = max(0.0, entry.quarantined_until - self._clock())
        if left and not entry.quarantine_shown:
            await self._show(record, entry.quarantine)
            entry.quarantine_shown = True
        return left

    async def _show(self, record: FrameworkRecord, story: str) -> None:
        for _ in range(_TRIES):
            try:
                live = await self._writer.look(record.key, record.name, record.namespace)
            except NotFound:
                return
            change = self._change(live, story)
            if live.uid != record.uid or change is None:
                return
            try:
                await self._writer.patch(live, *change)
            except (Invalid, Conflict) as error:
                again = await self._writer.look(record.key, record.name, record.namespace)
                if again.resource_version == live.resource_version:
                    _log.warning("[%s]: The status does not take the condition Stalled: %s", record.key, error)
                    return
            except KubeError as error:
                if not is_too_large(error):
                    raise RequeueError(f"cannot say that it is in quarantine: {error}") from error
                _log.warning("[%s]: The status has no room for the condition Stalled: %s", record.key, error)
                return
            else:
                return
        raise RequeueError("cannot say that it is in quarantine, as others keep writing the Framework")

    def _change(self, live: FrameworkRecord, story: str) -> tuple[str, bytes] | None:
        """Path and JSON of what says so; None if it is said already, or there is no place for it."""
        env = self._env()
        if not live.status:
            # Without a spec, so that it says nothing of Tasks.
            tracker = Tracker()
            framework = Framework(live.namespace, live.name, live.uid, live.generation, False, FrameworkSpec())
            reject(framework, tracker, _text(story), env, reason=Reason.QUARANTINED)
            if tracker.status is None:
                return None
            return "/status", encode_status(live.name, tracker.status)
        if not isinstance(live.status, dict):
            return None
        conditions = live.status.get("conditions") or []
        if not isinstance(conditions, list) or not all(isinstance(one, dict) for one in conditions):
            return None
        present: dict[str, Any] = next((one for one in conditions if one.get("type") == _STALLED), {})
        text = _text(story)[:MAX_MESSAGE]
        fresh = encode_condition(Condition(_STALLED, "True", Reason.QUARANTINED, text, env.second, live.generation))
        if present.get("status") == "True":
            fresh["lastTransitionTime"] = present.get("lastTransitionTime", fresh["lastTransitionTime"])
        if present == fresh:
            return None
        others = [one for one in conditions if one.get("type") != _STALLED]
        return "/status/conditions", orjson.dumps([*others, fresh])


def _text(story: str) -> str:
    return (
        f"The controller cannot go on with this Framework and leaves it alone: {story}. "
        f"It is tried again when its spec changes, and every {RETRY_SEC / 60:g} min"
    )
