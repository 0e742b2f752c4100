"""The barrier's settings."""

from __future__ import annotations

import re
from collections.abc import Mapping

from frameworkcontroller.barrier.errors import SettingsError

_DEFAULT_INTERVAL_SEC = 10
_LEAST_INTERVAL_SEC = 5
_DEFAULT_TIMEOUT_SEC = 600
_TIMEOUT_SEC_BOUNDS = (60, 1200)


class Settings:
    """The Framework to wait for, and the times in seconds."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """Raises SettingsError, naming the variable."""
        self.namespace = _name(environ, "FC_FRAMEWORK_NAMESPACE", r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
        self.name = _name(environ, "FC_FRAMEWORK_NAME", r"[a-z0-9]{1,63}")
        self.uid = environ.get("FC_FRAMEWORK_UID") or None
        self.attempt = _attempt(environ, "FC_FRAMEWORK_ATTEMPT_INSTANCE_UID")
        self.interval = _seconds(
            environ, "BARRIER_CHECK_INTERVAL_SEC", _DEFAULT_INTERVAL_SEC, _LEAST_INTERVAL_SEC, None
        )
        self.timeout = _seconds(environ, "BARRIER_CHECK_TIMEOUT_SEC", _DEFAULT_TIMEOUT_SEC, *_TIMEOUT_SEC_BOUNDS)


def _name(environ: Mapping[str, str], variable: str, pattern: str) -> str:
    value = environ.get(variable)
    if not value:
        raise SettingsError(f"${variable} is not set: it names the Framework to wait for")
    if re.fullmatch(pattern, value) is None:
        raise SettingsError(f"${variable} cannot be the name of one: {value!r}")
    return value


def _attempt(environ: Mapping[str, str], variable: str) -> tuple[int, str] | None:
    value = environ.get(variable)
    if not value:
        return None
    found = re.fullmatch(r"([0-9]{1,18})_(.+)", value)
    if found is None:
        raise SettingsError(f"${variable} must be {{id}}_{{uid}}: {value!r}")
    return int(found.group(1)), found.group(2)


def _seconds(environ: Mapping[str, str], variable: str, default: int, least: int, most: int | None) -> int:
    value = environ.get(variable)
    if not value:
        return default
    seconds = int(value) if re.fullmatch(r"[0-9]{1,9}", value.strip()) else -1
    if seconds < least or (most is not None and seconds > most):
        bounds = f"at least {least}" if most is None else f"from {least} to {most}"
        raise SettingsError(f"${variable} must be a whole number of seconds, {bounds}: {value!r}")
    return seconds
