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
        """The machine of that key."""
        return self._machines.get(key)

    def find(self, record: FrameworkRecord) -> Machine | None:
        """The machine of that very Framework, and not of a namesake."""
        machine = self._machines.get(record.key)
        return machine if machine is not None and machine.uid == record.uid else None

    def open(self, record: FrameworkRecord) -> Reconciler:
        """Make a reconciler of what ``record`` holds.

        Raises:
            StatusError: the stored status is not one.
        """
        reconciler = Reconciler(record, compress=self._compress)
        self.put(record, reconciler)
        return reconciler

    def put(self, record: FrameworkRecord, machine: Machine) -> None:
        """Have ``machine`` decide for the Framework."""
        # It may be megabytes, and only the tracked status counts from now on.
        record.status = None
        self._machines[record.key] = machine

    def forget(self, key: str) -> None:
        """Drop the machine of that key."""
        self._machines.pop(key, None)

    def clear(self) -> None:
        """Drop all machines: another controller writes the statuses from now on."""
        self._machines.clear()

    def resync(self) -> list[str]:
        """Have every Framework that is not completed looked at whole; their keys.

        A slow second way to what events say at once: level-triggered means that no event has to be seen.
        """
        return [machine.key for machine in self._machines.values() if machine.resync()]
