"""The processes that have run with one lock file, one after the other: which of them have ended is certain.

The kernel gives the lock to one process at a time, and takes it back when that has ended, however it ends. So a process
that has the lock knows that all before it have ended: also where the container runtime or the kubelet has lost track.
Two processes that run at once, such as in two containers of a Pod, do not both have it.

The file must be on a file system of this machine, such as an emptyDir. It counts for one boot of one machine; a copy,
a clone or a shared file system from elsewhere does not.
"""

from __future__ import annotations

import fcntl
import logging
import os
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Final

_log: Final = logging.getLogger(__name__)

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_MAX_BYTES: Final = 512


class ProcessLock:
    """The lock, held until ``release`` or the end of the process; ``identity`` is unique to it for all time."""

    def __init__(self, path: Path | None, name: str) -> None:
        """``path`` None: no lock. ``name`` begins the identity. If the lock cannot be had, none before it has ended."""
        self._descriptor: int | None = None
        self._prefix = f"{name}_{uuid.uuid4()}"
        self._number = 0
        self.identity = self._prefix
        if path is None:
            return
        try:
            self._take(path, name)
        except (OSError, ValueError) as error:
            self.release()
            _log.warning("Cannot lock %s; after a restart, the lease has to expire first: %s", path, error)

    def has_ended(self, identity: str) -> bool:
        """True if the process of that identity has certainly ended: it had this lock before."""
        prefix, _, number = identity.rpartition("_")
        return prefix == self._prefix and number.isdecimal() and int(number) < self._number

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _take(self, path: Path, name: str) -> None:
        boot = _BOOT_ID.read_text().strip()
        # Not inherited: a credential plugin that runs on must not hold the lock.
        descriptor = self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        prefix, number = self._prefix, 0
        with suppress(ValueError):
            # Written by another boot, or not to the end: a new beginning.
            before, known, count = os.pread(descriptor, _MAX_BYTES, 0).decode("ascii").split()
            if before == boot and known.startswith(f"{name}_"):
                prefix, number = known, int(count) + 1
        content = f"{boot} {prefix} {number}\n".encode("ascii")
        os.ftruncate(descriptor, 0)
        if os.pwrite(descriptor, content, 0) != len(content):
            raise OSError("the file was not written")
        self._prefix, self._number = prefix, number
        self.identity = f"{prefix}_{number}"
