"""The barrier's settings."""

from __future__ import annotations

import re
from collections.abc import Mapping

from frameworkcontroller.barrier.exits import EXIT_REFUSED, BarrierError

AWAITED_NAMES = "BARRIER_WAIT_FOR_NAME"
HOSTFILE_ROLES = "BARRIER_HOSTFILE_ROLES"
HOSTFILE_SLOTS = "BARRIER_HOSTFILE_SLOTS"

_HOST = re.compile(r"(?=.{1,253}$)[A-Za-z0-9_][-A-Za-z0-9_]{0,62}(\.[A-Za-z0-9_][-A-Za-z0-9_]{0,62})*\.?")


class Settings:
    """The Framework and the names to wait for, the times in seconds, and the roles of the host file."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """Raises BarrierError, naming the variable."""
        self.namespace = _name(environ, "FC_FRAMEWORK_NAMESPACE", r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
        self.name = _name(environ, "FC_FRAMEWORK_NAME", r"[a-z0-9]{1,63}")
        self.role = environ.get("FC_TASKROLE_NAME") or None
        self.uid = environ.get("FC_FRAMEWORK_UID") or None
        self.attempt: tuple[int, str] | None = None
        attempt = environ.get("FC_FRAMEWORK_ATTEMPT_INSTANCE_UID")
        if attempt:
            found = re.fullmatch(r"([0-9]{1,18})_(.+)", attempt)
            if found is None:
                problem = f"must be {{id}}_{{uid}}: {attempt!r}"
                raise BarrierError("$FC_FRAMEWORK_ATTEMPT_INSTANCE_UID " + problem, EXIT_REFUSED)
            self.attempt = int(found.group(1)), found.group(2)
        self.interval = _seconds(environ, "BARRIER_CHECK_INTERVAL_SEC", default=10, least=5)
        self.timeout = _seconds(environ, "BARRIER_CHECK_TIMEOUT_SEC", default=600, least=60, most=1200)
        self.awaited_names = _listed(environ, AWAITED_NAMES, _HOST, "the name of a host")
        self.hostfile_roles = _listed(environ, HOSTFILE_ROLES, re.compile(r"[a-z0-9]{1,63}"), "the name of a TaskRole")
        self.hostfile_slots: int | None = None
        slots = environ.get(HOSTFILE_SLOTS)
        if slots:
            if re.fullmatch(r"[1-9][0-9]{0,5}", slots.strip()) is None:
                raise BarrierError(f"${HOSTFILE_SLOTS} must be a number from 1 to 999999: {slots!r}", EXIT_REFUSED)
            if not self.hostfile_roles:
                problem = f"{slots!r} has no effect without ${HOSTFILE_ROLES}"
                raise BarrierError(f"${HOSTFILE_SLOTS}: {problem}", EXIT_REFUSED)
            self.hostfile_slots = int(slots)


def _listed(environ: Mapping[str, str], variable: str, pattern: re.Pattern[str], meaning: str) -> list[str]:
    """The parts between commas, none if the variable is empty."""
    value = environ.get(variable, "").strip()
    found: list[str] = []
    for part in value.split(",") if value else ():
        item = part.strip()
        if pattern.fullmatch(item) is None:
            raise BarrierError(f"${variable}: {item!r} cannot be {meaning}", EXIT_REFUSED)
        if item in found:
            raise BarrierError(f"${variable}: {item!r} is there twice", EXIT_REFUSED)
        found.append(item)
    return found


def _name(environ: Mapping[str, str], variable: str, pattern: str) -> str:
    value = environ.get(variable)
    if not value:
        raise BarrierError(f"${variable} is not set: it names the Framework to wait for", EXIT_REFUSED)
    if re.fullmatch(pattern, value) is None:
        raise BarrierError(f"${variable} cannot be the name of one: {value!r}", EXIT_REFUSED)
    return value


def _seconds(environ: Mapping[str, str], variable: str, default: int, least: int, most: int | None = None) -> int:
    value = environ.get(variable)
    if not value:
        return default
    seconds = int(value) if re.fullmatch(r"[0-9]{1,9}", value.strip()) else -1
    if seconds < least or (most is not None and seconds > most):
        bounds = f"at least {least}" if most is None else f"from {least} to {most}"
        raise BarrierError(f"${variable} must be a whole number of seconds, {bounds}: {value!r}", EXIT_REFUSED)
    return seconds
