"""Disk space that retention and a restart can use when the disk is full.

SQLite needs room in its WAL even to delete, and room for its shared memory to open a file.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

_BYTES: Final = 64 * 2**20
"""Several times the WAL, which must be copied into the database before it can be used again."""
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_SHARE: Final = 8
"""Of a small disk, this part."""


class Reserve:
    """A file next to the database that occupies the space."""

    def __init__(self, database: Path) -> None:
        self._path = database.with_name(f"{database.name}-reserve")
        self.held = False

    def hold(self) -> bool:
        """Occupy the space. Return whether it is occupied: the disk is full otherwise."""
        if self.held:
            return True
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            self.held = error.errno not in _FULL
            return self.held
        try:
            found = os.fstatvfs(file)
            size = min(_BYTES, found.f_blocks * found.f_frsize // _SHARE)
            os.posix_fallocate(file, 0, size)
            self.held = True
        except OSError as error:
            self.release()
            # Without support for it, or below a limit on the size of files, there is no reserve.
            self.held = error.errno not in _FULL
        finally:
            os.close(file)
        return self.held

    def release(self) -> bool:
        """Free the space. Return whether there was some."""
        self.held = False
        try:
            size = self._path.stat().st_size
            self._path.unlink()
        except OSError:
            return False
        return size > 0
