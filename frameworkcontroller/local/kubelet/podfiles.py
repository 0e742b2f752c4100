"""The files of a Pod that runs as local processes, in one directory that is removed with it."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from frameworkcontroller.local.kubelet.podaccess import ApiAccess


class PodFiles:
    """The directory of one Pod. Its path is short, because socket paths are limited."""

    def __init__(self, pods: Path, uid: str) -> None:
        self.directory = pods / uid[-12:]
        self.volumes = self.directory / "v"
        self.hosts = self.directory / "hosts"
        # Work in a thread continues when the task that waits for it is cancelled.
        self._lock = threading.Lock()
        self._removed = False

    def home(self, container: str) -> Path:
        """A container's home and default working directory."""
        return self._container(container) / "home"

    def temporary(self, container: str) -> Path:
        """A container's TMPDIR."""
        return self._container(container) / "tmp"

    def log(self, container: str, instance: int) -> Path:
        """The log of one instance of a container."""
        return self._container(container) / f"{instance}.log"

    def hook_log(self, container: str) -> Path:
        """The log of a container's preStop hook."""
        return self._container(container) / "prestop.log"

    def termination(self, container: str, instance: int) -> Path:
        """The termination message file of one instance of a container."""
        return self._container(container) / f"{instance}.termination"

    def kubeconfig(self, container: str) -> Path:
        """A container's kubeconfig, readable only by its user."""
        return self._container(container) / "api" / "kubeconfig"

    def service_account(self, container: str) -> Path:
        """The directory of a container's service account, readable only by its user."""
        return self._container(container) / "api" / "serviceaccount"

    def make(self, hosts: Callable[[], str]) -> None:
        """Create the files that do not depend on a container. ``hosts`` gives /etc/hosts, written only once."""
        self.directory.mkdir(parents=True, exist_ok=True)
        if not self.hosts.exists():
            new = self.hosts.with_suffix(".new")
            new.write_text(hosts())
            new.replace(self.hosts)

    def make_for(
        self, container: str, instance: int, owner: tuple[int, int] | None, access: ApiAccess, namespace: str
    ) -> None:
        """Create the files of one instance of a container, for this user and group; keep only the previous instance's
        log.

        May run in a thread, concurrently with `remove`; after that it creates nothing. Raises OSError.
        """
        with self._lock:
            if self._removed:
                return
            # A restarted container finds them empty, as on a real cluster.
            for directory in (self.home(container), self.temporary(container)):
                remove_tree(directory)
                directory.mkdir(parents=True)
            self._make_access(container, owner, access, namespace)
            message = self.termination(container, instance)
            message.touch()
            message.chmod(0o666)
            if owner is not None:
                for path in (self.home(container), self.temporary(container), message):
                    os.chown(path, *owner)
            log = self.log(container, instance - 2)
            for old in (log, log.with_name(log.name + ".1"), self.termination(container, instance - 2)):
                old.unlink(missing_ok=True)

    def _make_access(self, container: str, owner: tuple[int, int] | None, access: ApiAccess, namespace: str) -> None:
        """Create the kubeconfig and service account of a container. They contain a secret."""
        account, kubeconfig = self.service_account(container), self.kubeconfig(container)
        # Recreated each time: an earlier one may belong to another user.
        remove_tree(account.parent)
        for directory in (account.parent, account):
            directory.mkdir(mode=0o700)
        files = {account / name: data for name, data in access.service_account(namespace).items()}
        files[kubeconfig] = access.kubeconfig(namespace, account / "ca.crt")
        for path, data in files.items():
            write_new(path, data, 0o600, owner)
        if owner is not None:
            # The outermost last: until then, no other user can replace anything inside.
            for directory in (account, account.parent):
                os.chown(directory, *owner)

    def remove(self) -> None:
        """Remove the directory permanently."""
        with self._lock:
            self._removed = True
            remove_tree(self.directory)

    def _container(self, name: str) -> Path:
        return self.directory / "c" / name


def write_new(path: Path, data: bytes, mode: int, owner: tuple[int, int] | None) -> None:
    """Write a new file for this user and group. Raises FileExistsError, also for a dangling link."""
    # By descriptor: in a directory writable by others, the path may be replaced.
    with open(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(data)
        if owner is not None:
            os.fchown(file.fileno(), *owner)
        os.fchmod(file.fileno(), mode)


def remove_tree(directory: Path) -> None:
    """Remove a directory with its content, even if parts are not writable."""
    with contextlib.suppress(FileNotFoundError):
        try:
            shutil.rmtree(directory)
        except PermissionError:
            for path, _, _ in os.walk(directory):
                with contextlib.suppress(OSError):
                    Path(path).chmod(0o700)
            shutil.rmtree(directory, ignore_errors=True)


def hosts_file(address: str, names: list[str], aliases: Mapping[str, list[str]]) -> str:
    """The beginning of /etc/hosts in a Pod: its names and aliases, and the machine's own file."""
    try:
        machine = Path("/etc/hosts").read_text(errors="replace")
    except OSError:
        machine = "127.0.0.1\tlocalhost\n"
    lines = [f"{address}\t{' '.join(names)}"]
    lines += [f"{ip}\t{' '.join(hostnames)}" for ip, hostnames in aliases.items()]
    own = "\n".join(lines)
    return f"# This Pod\n{own}\n\n# This machine\n{machine.rstrip()}\n\n# Pods behind headless Services\n"
