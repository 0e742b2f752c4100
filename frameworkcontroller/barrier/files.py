"""The files that the barrier leaves: framework.json, hostfile and injector.sh."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from frameworkcontroller.barrier.exits import BarrierError, reason
from frameworkcontroller.barrier.settings import Settings

_MOST_EXPORTED_BYTES = 120 << 10  # Linux allows 128 KiB, the variable's name included


def injector(ips: Mapping[str, Sequence[str]], coordinator_ip: str | None = None) -> str:
    """A POSIX shell script that exports the addresses of each role, with the ports that are set when it is sourced.

    It prints each variable to the container's log, in the original's format.
    """
    lines = [
        "#!/bin/sh",
        "# Made by frameworkbarrier, to be sourced. Set FB_{ROLE}_PORT before, for each role whose ADDRESSES you need;",
        "# source it again after setting other ports.",
        "",
        "echo ./injector.sh: Start to inject environment variables",
        "",
    ]
    for role, of_role in ips.items():
        lines += _export(f"FB_{role.upper()}_IPS", ",".join(of_role))
    if coordinator_ip is not None:
        lines += _export("FB_COORDINATOR_IP", coordinator_ip)
    lines.append("")
    for role, of_role in ips.items():
        prefix = "FB_" + role.upper()
        # Brackets as in URLs separate an IPv6 address from its port.
        hosts = [f"[{ip}]" if ":" in ip else ip for ip in of_role]
        lines += _export(prefix + "_ADDRESSES", ",".join(f"{host}:${{{prefix}_PORT-}}" for host in hosts))
    lines += ["", "echo ./injector.sh: Succeeded to inject environment variables"]
    return "\n".join(lines) + "\n"


def _export(variable: str, value: str) -> list[str]:
    # The value consists of addresses and the name of a variable, whose content the shell does not interpret.
    echo = f"printf '%s\\n' \"{variable}=${{{variable}}}\""
    if len(value) < _MOST_EXPORTED_BYTES:
        return [f'export {variable}="{value}"', echo]
    # Linux starts no program with a variable of 128 KiB or more in its environment.
    return [
        f"unset {variable}",
        f'{variable}="{value}"',
        f'if [ "${{#{variable}}}" -lt {_MOST_EXPORTED_BYTES} ]; then',
        f"    export {variable}",
        f"    {echo}",
        "else",
        f"    echo 'injector.sh: {variable} is set for this shell only: too long to be exported' >&2",
        "fi",
    ]


def coordinator_ip(framework: dict[str, Any], ips: Mapping[str, Sequence[str]]) -> str | None:
    """The IP of the Task of ``spec.coordinator``, None if there is none or its role is left out."""
    coordinator = (framework.get("spec") or {}).get("coordinator") or {}
    of_role = ips.get(coordinator.get("taskRole", ""), ())
    return dict(enumerate(of_role)).get(coordinator.get("taskIndex") or 0)


def hostfile(ips: Mapping[str, Sequence[str]], settings: Settings) -> str:
    """The host file of the roles in the settings, as Open MPI reads it: an IP a line."""
    slots = "" if settings.hostfile_slots is None else f" slots={settings.hostfile_slots}"
    return "".join(f"{ip}{slots}\n" for role in settings.hostfile_roles for ip in ips[role])


def write_files(
    directory: Path, framework: dict[str, Any], ips: Mapping[str, Sequence[str]], settings: Settings
) -> None:
    """Write framework.json, the host file if it is wanted, then injector.sh, each atomically. Raises BarrierError."""
    with _describing_errors(directory):
        _replace(directory / "framework.json", json.dumps(framework, separators=(",", ":")) + "\n", 0o644)
        if settings.hostfile_roles:
            _replace(directory / "hostfile", hostfile(ips, settings), 0o644)
        _replace(directory / "injector.sh", injector(ips, coordinator_ip(framework, ips)), 0o755)


def check_writable(directory: Path) -> None:
    """Raise BarrierError if the directory is not writable: better now than after minutes of waiting."""
    with _describing_errors(directory), tempfile.TemporaryFile(dir=directory):
        pass


@contextmanager
def _describing_errors(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BarrierError(f"cannot write to {directory.absolute()}: {reason(error)}") from error


def _replace(path: Path, content: str, mode: int) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content.encode("utf-8"))
        # The other containers may run as other users; the umask must not keep them out.
        temporary.chmod(mode)
        temporary.replace(path)
    finally:
        if temporary.exists():
            temporary.unlink()
