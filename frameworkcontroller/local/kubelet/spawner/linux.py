"""System calls that the standard library lacks in some supported Python."""

from __future__ import annotations

import ctypes
import os
from typing import Final

CLONE_NEWNS: Final = 0x00020000
CLONE_NEWUTS: Final = 0x04000000
CLONE_NEWUSER: Final = 0x10000000

MS_RDONLY: Final = 0x1
MS_NOSUID: Final = 0x2
MS_NODEV: Final = 0x4
MS_NOEXEC: Final = 0x8
MS_REMOUNT: Final = 0x20
MS_NOATIME: Final = 0x400
MS_NODIRATIME: Final = 0x800
MS_BIND: Final = 0x1000
MS_MOVE: Final = 0x2000
MS_REC: Final = 0x4000
MS_UNBINDABLE: Final = 0x20000
MS_PRIVATE: Final = 0x40000
MS_SLAVE: Final = 0x80000
MS_RELATIME: Final = 0x200000

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36

_libc: Final = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def die_with_parent(signal: int) -> None:
    """Get this signal when the parent ends. The caller must check whether it already has."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, signal, 0, 0, 0), "PR_SET_PDEATHSIG")


def reap_descendants() -> None:
    """Become the reaper of all orphaned descendants."""
    _check(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "PR_SET_CHILD_SUBREAPER")


def unshare(flags: int) -> None:
    """Enter new namespaces. Raises OSError."""
    _check(_libc.unshare(flags), "unshare")


def join_namespaces(pid: int, kinds: tuple[str, ...]) -> None:
    """Enter another process's namespaces, of the kinds in /proc/PID/ns. Raises OSError."""
    handles = [os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC) for kind in kinds]
    for handle in handles:
        _check(_libc.setns(handle, 0), "setns")
        os.close(handle)


def mount(source: str, target: str, *, kind: str = "", flags: int = 0, options: str = "") -> None:
    """Call mount(2). Raises OSError that names the target."""
    result = _libc.mount(
        os.fsencode(source), os.fsencode(target), os.fsencode(kind), ctypes.c_ulong(flags), os.fsencode(options)
    )
    _check(result, target)
