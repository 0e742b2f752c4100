"""What this controller knows of each Framework beyond the caches: the status it last wrote or is about to write.

The tracked status is the expected one: a stale cached copy never overrides it, and one that failed to persist is
persisted before anything else (docs/guarantees.md). It is taken from the cache once, when the Framework is first
seen, and from then on only from what the API server accepted or, when a guard failed, from a live read.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import orjson

from frameworkcontroller.api.codec import (
    COMPRESSION_THRESHOLD_BYTES,
    decode_status,
    encode_roles,
    encode_with_roles,
    store_roles,
)
from frameworkcontroller.api.names import split_pod_name
from frameworkcontroller.api.objects import Framework, FrameworkRecord, PodRecord
from frameworkcontroller.api.spec import FrameworkSpec, SpecError, parse_spec
from frameworkcontroller.api.status import State
from frameworkcontroller.machine.model import Create, Created, Exists, Outcome, Plan, Record, Snapshot
from frameworkcontroller.machine.tracker import Tracker


@dataclass(slots=True)
class Entry:
    """One Framework's page in the ledger.

    ``resource_version`` and ``digest`` are of the object and of the status that the API server is known to hold:
    together they tell, when a guard fails, whether somebody else wrote the status, or only touched the rest.
    """

    uid: str
    tracker: Tracker
    resource_version: str
    digest: bytes
    unsure: bytes | None = None
    """Digest of the status that was sent last, if its answer was lost: it may be the one that is stored."""
    confirmed: bool = False
    """Whether the API server itself has shown that this is what it holds, and not only the cache."""
    framework: Framework | None = None
    """The Framework at the newest generation seen, be it in the cache or by a live read."""
    spec_error: str | None = None
    outcomes: list[Outcome] = field(default_factory=list)
    """What was learnt from actions since the last write that was accepted."""
    records: list[Record] = field(default_factory=list)
    """What happened since then: told once the status that shows it, if it shows in there, is accepted."""
    snapshots: list[Snapshot] = field(default_factory=list)
    """What the next request may lose: logged before it is sent."""
    persist_first: bool = False
    """A write failed, or something was learnt that must not be lost: write before anything else is decided."""
    rested: bool = False
    """Whether the status that was written last showed no Task on its way: one such need not follow another at once."""
    unwritten_since: float | None = None
    """Since when (monotonic seconds) the status has had changes that could wait."""
    write_sec: float = 0.0
    """How long the last write of the status took."""
    next_write: float = 0.0
    """Not before when (monotonic seconds) a status that can wait is written again."""
    not_before: float = 0.0
    """Not before when (monotonic seconds) a status that the API server found too large is sent again."""
    too_large_told: str = ""
    """What was told last of a status that was too large, if the status could not say so itself."""
    guards_failed: int = 0
    """How often in a row a guard of the status write has failed."""
    quarantine: str | None = None
    """Why nothing is done for this Framework (controller/quarantine.py)."""
    quarantined_generation: int = -1
    """Unless its generation is above this one by now,"""
    quarantined_until: float = 0.0
    """or it is later than this (monotonic seconds)."""
    quarantine_shown: bool = False
    """Whether its status says so, as far as it can."""

    def take(self, step: Plan) -> None:
        """Keep what a plan has to tell."""
        self.records.extend(step.records)
        self.snapshots.extend(step.snapshots)

    def learn(self, outcomes: Iterable[Outcome]) -> None:
        """Keep what is to be folded into another status, too, if it turns out that the tracked one is not to be."""
        for outcome in outcomes:
            action = outcome.action
            if isinstance(action, Create) and isinstance(outcome.result, Created | Exists):
                # Without the template: a status may wait for long, and a Pod's may be large.
                self.outcomes.append(replace(outcome, action=replace(action, template=b"")))

    def read(self, record: FrameworkRecord) -> Framework:
        """The Framework at the newest generation known, and whether its spec can be run (``spec_error``)."""
        known = self.framework
        deleting = record.deletion_time is not None
        if known is not None and record.generation <= known.generation and deleting <= known.deleting:
            return known
        if known is not None and record.generation < known.generation:
            spec, generation = known.spec, known.generation
        else:
            generation = record.generation
            try:
                spec, self.spec_error = parse_spec(orjson.loads(record.spec_json)), None
            except SpecError as error:
                spec, self.spec_error = FrameworkSpec(), str(error)
        self.framework = Framework(record.namespace, record.name, record.uid, generation, deleting, spec)
        return self.framework


@dataclass(frozen=True, slots=True)
class Encoded:
    """A status as it is to be written (empty while there is none), and what it is told from another by."""

    body: bytes
    digest: bytes


class Ledger:
    """The entries of all Frameworks, by key."""

    def __init__(self, *, compress: bool = False) -> None:
        """``compress``: config largeFrameworkCompression."""
        self.compress = compress
        self._entries: dict[str, Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[tuple[str, Entry]]:
        return iter(self._entries.items())

    def get(self, key: str) -> Entry | None:
        """The entry of that Framework, if it was ever synced."""
        return self._entries.get(key)

    def find(self, record: FrameworkRecord) -> Entry | None:
        """The entry of that very Framework, not of a namesake, if it was ever synced."""
        entry = self._entries.get(record.key)
        return entry if entry is not None and entry.uid == record.uid else None

    def open(self, record: FrameworkRecord) -> Entry:
        """The entry of the Framework in the cache; a new one if it, or its namesake, was not known.

        Raises:
            StatusError: it is new, and the status that the API server holds is not one.
        """
        entry = self.find(record) or self.restore(record)
        # Megabytes that nobody asks again: from now on the tracked status is the one that counts.
        record.status = None
        return entry

    def restore(self, record: FrameworkRecord) -> Entry:
        """Begin the entry of that Framework anew.

        Raises:
            StatusError: the status is not one.
        """
        entry = self._entries[record.key] = self.entry_of(record)
        return entry

    def entry_of(self, record: FrameworkRecord) -> Entry:
        """A new entry, not kept here, from ``record``, which holds the status as the API server does.

        Raises:
            StatusError: the status is not one.
        """
        entry = Entry(record.uid, Tracker(decode_status(record.status)), record.resource_version, b"")
        status = entry.tracker.status
        if status is not None:
            roles = encode_roles(record.name, status.attempt.roles)
            entry.digest = _digest(encode_with_roles(record.name, status, b"null"), roles)
        return entry

    def quarantine(self, record: FrameworkRecord, why: str, until: float) -> Entry:
        """Drop what is known of the Framework, and keep it from being touched until then (monotonic seconds)."""
        record.status = None
        entry = Entry(record.uid, Tracker(), record.resource_version, b"")
        entry.quarantine, entry.quarantined_generation, entry.quarantined_until = why, record.generation, until
        self._entries[record.key] = entry
        return entry

    def quarantined(self, record: FrameworkRecord) -> Entry | None:
        """The entry of that Framework, if it is in quarantine."""
        entry = self.find(record)
        return entry if entry is not None and entry.quarantine is not None else None

    def clear(self) -> None:
        """Forget all Frameworks: from now on somebody else writes their statuses."""
        self._entries.clear()

    def forget(self, key: str) -> None:
        """The Framework is gone."""
        self._entries.pop(key, None)

    async def encode(self, name: str, entry: Entry) -> Encoded:
        """JSON of the tracked status of the Framework named ``name``; ``entry.digest`` tells the one that is stored."""
        status = entry.tracker.status
        if status is None:
            return Encoded(b"", b"")
        roles = encode_roles(name, status.attempt.roles)
        head = encode_with_roles(name, status, b"null")
        if len(roles) < COMPRESSION_THRESHOLD_BYTES:
            stored, digest = _pack(head, roles, self.compress)
        else:
            # For so long the syncs of all other Frameworks would have to wait.
            stored, digest = await asyncio.to_thread(_pack, head, roles, self.compress)
        return Encoded(encode_with_roles(name, status, stored), digest)

    # --- what events say ---

    def touch_pod(self, key: str, pod_name: str) -> None:
        """Something about that Pod changed: its Task is to be looked at."""
        entry = self._entries.get(key)
        parts = split_pod_name(pod_name)
        if entry is not None and parts is not None:
            entry.tracker.agenda.add(parts[1:])

    def pod_dropped(self, key: str, last: PodRecord, *, removed: bool) -> None:
        """The cache dropped the Pod in that state; unless ``removed``, whether it is gone is to be confirmed."""
        entry = self._entries.get(key)
        parts = split_pod_name(last.name)
        if entry is not None and parts is not None:
            entry.tracker.pod_dropped(parts[1:], last, removed=removed)

    def configmap_dropped(self, key: str, uid: str) -> None:
        """The cache dropped that ConfigMap: whether it is gone is to be confirmed."""
        entry = self._entries.get(key)
        if entry is not None:
            entry.tracker.configmap_dropped(uid)

    def resync(self) -> list[str]:
        """Have every Framework that is not completed looked at whole; their keys.

        A slow second way to what events say at once: level-triggered means that no event has to be seen.
        """
        keys = []
        for key, entry in self._entries.items():
            status = entry.tracker.status
            if status is not None and status.state is not State.COMPLETED:
                entry.tracker.touch_all()
                keys.append(key)
        return keys


def _pack(head: bytes, roles: bytes, compress: bool) -> tuple[bytes | str, bytes]:
    return store_roles(roles, compress=compress), _digest(head, roles)


def _digest(head: bytes, roles: bytes) -> bytes:
    """Of what a status says, whether its roles are stored compressed or not."""
    digest = hashlib.blake2b(head, digest_size=16)
    digest.update(roles)
    return digest.digest()
