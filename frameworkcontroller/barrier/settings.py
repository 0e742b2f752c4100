"""The barrier's settings."""

from __future__ import annotations

import re
from collections.abc import Mapping

from frameworkcontroller.barrier.errors import EXIT_REFUSED, BarrierError


class Settings:
    """The Framework to wait for, and the times in seconds."""

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
