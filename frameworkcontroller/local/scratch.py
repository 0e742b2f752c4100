"""Temporary directories that end with their process: the next one removes the files of a killed one."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from frameworkcontroller.local.kubelet.podfiles import remove_tree

_PREFIX: Final = "frameworkcontroller-"
_LOCK: Final = "frameworkcontroller.lock"
"""The lock file in each such directory, held while it is in use. Other directories are not ours."""

_log: Final = logging.getLogger(__name__)


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """Create a private directory for temporary files, after removing the directories of dead processes.

    Raises OSError if it cannot be created.
    """
    _remove_abandoned(Path(tempfile.gettempdir()))
    directory, lock = _make()
    try:
        yield directory
    finally:
        try:
            shutil.rmtree(directory)
        except OSError as error:
            _log.error("Cannot remove %s: %s", directory, error)
        os.close(lock)


def _make() -> tuple[Path, int]:
    while True:
        directory = Path(tempfile.mkdtemp(prefix=_PREFIX))
        lock = os.open(directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        # Another process may find a new directory before its lock is held, and remove it.
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(lock).st_nlink:
                return directory, lock
        os.close(lock)


def _remove_abandoned(parent: Path) -> None:
    for directory in parent.glob(f"{_PREFIX}*"):
        # Leave anything unexpected alone; the next process retries errors.
        with contextlib.suppress(OSError):
            if _is_own_directory(directory):
                lock = os.open(directory / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    # Processes of the dead one may still be ending; they need no files.
                    remove_tree(directory)
                finally:
                    os.close(lock)


def _is_own_directory(path: Path) -> bool:
    found = path.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
