"""A directory for temporary files that goes with its process, however that ends: what is left, the next one removes."""

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
"""In each such directory, and held for as long as it is in use. What lacks it is somebody else's."""

_log: Final = logging.getLogger(__name__)


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """A new directory of this user's alone, where temporary files belong. Those whose processes are gone go first.

    Raises OSError if it cannot be made.
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
        # One that is just starting may have found the lock before it was held, and have removed all of it.
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(lock).st_nlink:
                return directory, lock
        os.close(lock)


def _remove_abandoned(parent: Path) -> None:
    for directory in parent.glob(f"{_PREFIX}*"):
        # Whatever is not as it should be is left alone, and what goes wrong is tried again by the next one.
        with contextlib.suppress(OSError):
            if _is_own_directory(directory):
                lock = os.open(directory / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    # Processes that the former one started may still be ending: they have no use for files any more.
                    remove_tree(directory)
                finally:
                    os.close(lock)


def _is_own_directory(path: Path) -> bool:
    found = path.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
