"""Gives containers their own view of the file system, with volumes at their mountPath.

Works as root, and for every user where user namespaces are allowed (Debian's default). The view is the machine's file
system. Missing mount points are created in memory: a tmpfs covers the nearest existing directory, and every entry of
it is bind-mounted again, so the machine itself is not changed.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from typing import Any, Final

from frameworkcontroller.local.kubelet.spawner import linux

USUAL_FILES: Final = ("/dev/termination-log",)
USUAL_DIRECTORIES: Final = ("/var/run/secrets/kubernetes.io/serviceaccount",)
"""Mount points of nearly every container, created once instead of per container."""

_MAX_ENTRIES: Final = 4096
_KEPT_FLAGS: Final = (
    # A user namespace cannot clear these flags of inherited mounts.
    (os.ST_NOSUID, linux.MS_NOSUID),
    (os.ST_NODEV, linux.MS_NODEV),
    (os.ST_NOEXEC, linux.MS_NOEXEC),
    (os.ST_NOATIME, linux.MS_NOATIME),
    (os.ST_NODIRATIME, linux.MS_NODIRATIME),
    (os.ST_RELATIME, linux.MS_RELATIME),
)


class MountError(Exception):
    """A mount that failed; the text says which and why."""


def supported(staging: str) -> tuple[bool, str]:
    """Whether `View` works for this process, and if not, why. Tried in a child, because it cannot be undone."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            MountView(staging).mount([{"source": staging, "target": "/frameworkcontroller-probe", "read_only": True}])
            code = 0
        except (OSError, MountError) as error:
            os.write(writer, str(error).encode()[:1000])
        finally:
            os._exit(code)
    os.close(writer)
    with open(reader, "rb") as answer:
        why = answer.read().decode(errors="replace")
    _, status = os.waitpid(child, 0)
    return status == 0, why


class MountView:
    """Moves this process into its own namespaces, in which mount points can be created. Raises OSError or MountError.

    ``staging`` is an empty directory. A child that is forked later calls `isolate`, then `mount`.
    """

    def __init__(self, staging: str) -> None:
        # Device numbers of the view's own tmpfs mounts.
        self._ours: set[int] = set()
        self._volumes: list[str] = []
        _enter_namespaces()
        self._build_root(staging)
        for path in USUAL_FILES:
            self.materialise(path, directory=False)
        for path in USUAL_DIRECTORIES:
            self.materialise(path, directory=True)

    def isolate(self, hostname: str) -> None:
        """Give this process, a container's, its own copy of the view, and a host name."""
        linux.unshare(linux.CLONE_NEWNS | linux.CLONE_NEWUTS)
        if hostname:
            socket.sethostname(hostname)

    def mount(self, mounts: list[dict[str, Any]]) -> None:
        """Bind each ``source`` at its ``target``, outer targets first, read-only if ``read_only``."""
        handles = [os.open(item["source"], os.O_PATH | os.O_CLOEXEC) for item in mounts]
        # By handle: a mount may hide the next one's source.
        for handle, item in sorted(zip(handles, mounts, strict=True), key=lambda pair: pair[1]["target"].count("/")):
            directory = stat.S_ISDIR(os.stat(handle).st_mode)
            target = self.materialise(item["target"], directory=directory)
            linux.mount(f"/proc/self/fd/{handle}", target, flags=linux.MS_BIND | linux.MS_REC)
            if item["read_only"]:
                flags = linux.MS_REMOUNT | linux.MS_BIND | linux.MS_RDONLY | _kept_flags(target)
                linux.mount("", target, flags=flags)
            self._volumes.append(target)
        for handle in handles:
            os.close(handle)

    def materialise(self, path: str, *, directory: bool) -> str:
        """Ensure that a directory or file exists at this path; return the path with links resolved.

        Within a mount it is created permanently, as by container runtimes; elsewhere only in this view.
        """
        real = os.path.realpath(path)
        if os.path.lexists(real):
            if os.path.isdir(real) != directory:
                raise MountError(f"{path}: {'not a directory' if directory else 'is a directory'}")
            return real
        parent = os.path.dirname(real)
        while not os.path.lexists(parent):
            parent = os.path.dirname(parent)
        in_volume = any(parent == volume or parent.startswith(volume + "/") for volume in self._volumes)
        if not in_volume and os.stat(parent).st_dev not in self._ours:
            self._cover(parent)
        os.makedirs(real if directory else os.path.dirname(real), exist_ok=True)
        if not directory:
            os.close(os.open(real, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o666))
        return real

    def _build_root(self, staging: str) -> None:
        linux.mount("", "/", flags=linux.MS_REC | linux.MS_SLAVE)
        linux.mount("tmpfs", staging, kind="tmpfs", flags=linux.MS_NOSUID | linux.MS_NODEV, options="mode=0755")
        # Otherwise the copy of the directory that contains staging would contain the root under construction.
        linux.mount("", staging, flags=linux.MS_UNBINDABLE)
        self._ours.add(os.stat(staging).st_dev)
        self._fill(staging, "/")
        linux.mount("", staging, flags=linux.MS_PRIVATE)
        os.chdir(staging)
        linux.mount(".", "/", flags=linux.MS_MOVE)
        os.chroot(".")
        os.chdir("/")

    def _cover(self, directory: str) -> None:
        handle = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        mode = stat.S_IMODE(os.stat(directory).st_mode)
        linux.mount("tmpfs", directory, kind="tmpfs", flags=linux.MS_NOSUID | linux.MS_NODEV, options=f"mode={mode:o}")
        self._ours.add(os.stat(directory).st_dev)
        # The handle still refers to the covered directory.
        self._fill(directory, f"/proc/self/fd/{handle}")
        os.close(handle)

    def _fill(self, target: str, source: str) -> None:
        names = os.listdir(source)
        if len(names) > _MAX_ENTRIES:
            raise MountError(f"{target} has {len(names)} entries, too many to add a mount point to it")
        for name in names:
            old, new = os.path.join(source, name), os.path.join(target, name)
            # Skip entries that vanish, or that this user may not bind.
            with contextlib.suppress(OSError):
                mode = os.lstat(old).st_mode
                if stat.S_ISLNK(mode):
                    os.symlink(os.readlink(old), new)
                    continue
                if stat.S_ISDIR(mode):
                    os.mkdir(new)
                else:
                    os.close(os.open(new, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
                linux.mount(old, new, flags=linux.MS_BIND | linux.MS_REC)


def _enter_namespaces() -> None:
    try:
        linux.unshare(linux.CLONE_NEWNS | linux.CLONE_NEWUTS)
    except PermissionError:
        user, group = os.getuid(), os.getgid()
        linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWNS | linux.CLONE_NEWUTS)
        # Keep the current user: without privileges no other can be mapped.
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)


def _kept_flags(path: str) -> int:
    has = os.statvfs(path).f_flag
    return sum(flag for bit, flag in _KEPT_FLAGS if has & bit)
