"""The reconcilers of all Frameworks, by key.

A tracked status is the expected one: a stale cached copy never overrides it (docs/guarantees.md). It is taken from the
cache once, when the Framework is first seen, and from then on only from accepted writes and live reads.
"""

from __future__ import annotations

from collections.abc import Iterator

from frameworkcontroller.api.objects import FrameworkRecord
from frameworkcontroller.machine.quarantine import Quarantine
from frameworkcontroller.machine.reconciler import Reconciler

Machine = Reconciler | Quarantine
"""Decides for one Framework."""


class Reconcilers:
    """Machines by the keys of their Frameworks."""

    def __init__(self, *, compress: bool = False) -> None:
        """``compress``: config largeFrameworkCompression."""
        self._compress = compress
        self._machines: dict[str, Machine] = {}

    def __len__(self) -> int:
        return len(self._machines)

    def __iter__(self) -> Iterator[Machine]:
        return iter(self._machines.values())

    def get(self, key: str) -> Machine | None:
        """The machine of the key."""
        return self._machines.get(key)

    def find(self, record: FrameworkRecord) -> Machine | None:
        """The machine of this Framework, not of another one with the same name."""
        machine = self._machines.get(record.key)
        return machine if machine is not None and machine.uid == record.uid else None

    def open(self, record: FrameworkRecord) -> Reconciler:
        """Create a reconciler from the stored status.

        Raises:
            StatusError: the stored status is invalid.
        """
        reconciler = Reconciler(record, compress=self._compress)
        self.put(record, reconciler)
        return reconciler

    def put(self, record: FrameworkRecord, machine: Machine) -> None:
        """Let ``machine`` decide for the Framework."""
        # From now on the tracked status counts, and this one may take megabytes.
        record.status_json = None
        self._machines[record.key] = machine

    def forget(self, key: str) -> None:
        """Drop the machine of the key."""
        self._machines.pop(key, None)

    def clear(self) -> None:
        """Drop all machines, because another controller may write the statuses."""
        self._machines.clear()

    def resync(self, *, from_cache: bool = True) -> list[str]:
        """Put all Tasks of the Frameworks that are not completed on their agendas, and return the keys.

        ``from_cache``: their specs are those in the cache, not only newer ones.

        This makes the controller level-triggered: it recovers from missed events.
        """
        return [machine.key for machine in self._machines.values() if machine.resync(from_cache=from_cache)]
