"""The reconcilers of all Frameworks, by key.

A tracked status is the expected one: a stale cached copy never overrides it (docs/guarantees.md). It is taken from the
cache once, when the Framework is first seen, and from then on only from accepted writes and live reads.
"""

from __future__ import annotations

from frameworkcontroller.api.objects import FrameworkRecord
from frameworkcontroller.machine.quarantine import Quarantine
from frameworkcontroller.machine.reconciler import Reconciler

Machine = Reconciler | Quarantine
"""Decides for one Framework."""


class Reconcilers(dict[str, Machine]):
    """Machines by the keys of their Frameworks."""

    def __init__(self, *, compress: bool = False) -> None:
        """``compress``: config largeFrameworkCompression."""
        super().__init__()
        self._compress = compress

    def find(self, record: FrameworkRecord) -> Machine | None:
        """The machine of this Framework, not of another one with the same name."""
        machine = self.get(record.key)
        return machine if machine is not None and machine.uid == record.uid else None

    def reconciler(self, key: str) -> Reconciler | None:
        """The machine of that key if it takes events; None for a Framework in quarantine, or without a machine."""
        machine = self.get(key)
        return machine if isinstance(machine, Reconciler) else None

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
        self[record.key] = machine

    def resync(self, *, from_cache: bool = True) -> list[str]:
        """Put all Tasks of the Frameworks that are not completed on their agendas, and return the keys.

        ``from_cache``: their specs are those in the cache, not only newer ones.

        This makes the controller level-triggered: it recovers from missed events.
        """
        machines = (machine for machine in self.values() if isinstance(machine, Reconciler))
        return [machine.key for machine in machines if machine.resync(from_cache=from_cache)]
