"""The annotations of a Pod for the simulated runtime.

All under ``sim.frameworkcontroller.dev/``. For every main container, or for one container (also an init container) with
``.{container}`` appended:

* ``run-seconds``: seconds, or ``forever`` (the default; 0 for an init container);
* ``exit-code``: 0 to 255, default 0;
* ``signal``: the signal to report; default none, as with real container runtimes;
* ``reason`` and ``message`` of the terminated container; default reason ``Completed`` for code 0, else ``Error``;
* ``startup-seconds``: from prepared to started, default 0;
* ``stop-seconds``: from the request to stop to the end, default 0. If it exceeds the grace period, the
  container is killed then; ``forever``: not until deleted by force, as on a lost node.

For the Pod as a whole:

* ``pod-reason``, ``pod-message``: it fails, as if evicted, when its first main container would have ended;
* ``prepare-seconds``: from bound to prepared (as for pulling images), default 0;
* ``attempt``: the attempt that lists count: ``task`` (the default), ``framework``, or ``restart`` of the
  container.

Every value may be a list, ``a, b, c``: one value per attempt, counted from 0, the last one for all later attempts. The
attempt is the Pod's annotation FC_TASK_ATTEMPT_ID or FC_FRAMEWORK_ATTEMPT_ID, or the container's restartCount. Messages
are not lists, because they may contain commas.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from frameworkcontroller.local.kubelet.pod import ContainerKind, ContainerSpec, NodePod

PREFIX: Final = "sim.frameworkcontroller.dev/"

FOREVER: Final = math.inf

_CONTAINER_KEYS: Final = frozenset(
    {"run-seconds", "exit-code", "signal", "reason", "message", "startup-seconds", "stop-seconds"}
)
_POD_KEYS: Final = frozenset({"pod-reason", "pod-message", "prepare-seconds", "attempt"})
_ATTEMPTS: Final = {"task": "FC_TASK_ATTEMPT_ID", "framework": "FC_FRAMEWORK_ATTEMPT_ID", "restart": ""}


class SimulationError(ValueError):
    """An invalid annotation; the text names it."""


@dataclass(frozen=True, slots=True)
class Behavior:
    """The behavior of one instance of a container. Times are seconds, or `FOREVER`; ``reason`` "" is the default."""

    startup_seconds: float = 0.0
    run_seconds: float = FOREVER
    exit_code: int = 0
    signal: int = 0
    reason: str = ""
    message: str = ""
    stop_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class PodBehavior:
    """The behavior of the Pod as a whole; with ``reason`` "" it does not fail as a whole."""

    prepare_seconds: float = 0.0
    reason: str = ""
    message: str = ""


_PLAIN: Final = Behavior()
_PLAIN_INIT: Final = Behavior(run_seconds=0.0)
_PLAIN_POD: Final = PodBehavior()


def check(pod: NodePod) -> None:
    """Raise SimulationError if an annotation under the prefix is unknown or invalid."""
    names = {spec.name for spec in pod.containers}
    for key in pod.annotations:
        if key.startswith(PREFIX):
            what, _, container = key.removeprefix(PREFIX).partition(".")
            if container and container not in names:
                raise SimulationError(f"annotation {key}: the Pod has no container {container!r}")
            if what not in _CONTAINER_KEYS and (container or what not in _POD_KEYS):
                raise SimulationError(f"annotation {key} is not known")
    pod_behavior(pod)
    for spec in pod.containers:
        behavior(pod, spec, 0)


def behavior(pod: NodePod, spec: ContainerSpec, instance: int) -> Behavior:
    """The behavior of the ``instance + 1``-th instance of a container. Raises SimulationError."""
    plain = _PLAIN_INIT if spec.kind is ContainerKind.INIT else _PLAIN
    reader = _Reader(pod, instance, spec)
    if not reader.any:
        return plain
    return Behavior(
        startup_seconds=reader.seconds("startup-seconds", plain.startup_seconds),
        run_seconds=reader.seconds("run-seconds", plain.run_seconds),
        exit_code=reader.integer("exit-code", 255),
        signal=reader.integer("signal", 64),
        reason=reader.value("reason") or "",
        message=reader.text("message"),
        stop_seconds=reader.seconds("stop-seconds", plain.stop_seconds),
    )


def pod_behavior(pod: NodePod) -> PodBehavior:
    """The behavior of the Pod as a whole. Raises SimulationError."""
    reader = _Reader(pod, 0, None)
    if not reader.any:
        return _PLAIN_POD
    return PodBehavior(
        prepare_seconds=reader.seconds("prepare-seconds", 0.0),
        reason=reader.value("pod-reason") or "",
        message=reader.text("pod-message"),
    )


class _Reader:
    """Selects the value for one container and attempt."""

    def __init__(self, pod: NodePod, instance: int, spec: ContainerSpec | None) -> None:
        self._annotations: Mapping[str, str] = pod.annotations
        self._general = spec is None or spec.kind is ContainerKind.MAIN
        self._suffix = "" if spec is None else f".{spec.name}"
        self._instance = instance
        self.any = any(key.startswith(PREFIX) for key in pod.annotations)
        self._attempt = self._find_attempt() if self.any else 0

    def _find_attempt(self) -> int:
        counted = self._annotations.get(PREFIX + "attempt", "task")
        if counted not in _ATTEMPTS:
            raise SimulationError(f"annotation {PREFIX}attempt: {counted!r} is not one of {', '.join(_ATTEMPTS)}")
        if counted == "restart":
            return self._instance
        text = self._annotations.get(_ATTEMPTS[counted], "0")
        return int(text) if text.isdecimal() else 0

    def text(self, key: str) -> str:
        general = self._annotations.get(PREFIX + key, "") if self._general else ""
        return self._annotations.get(PREFIX + key + self._suffix, general)

    def value(self, key: str) -> str | None:
        values = [item.strip() for item in self.text(key).split(",")]
        return values[min(self._attempt, len(values) - 1)] or None

    def seconds(self, key: str, default: float) -> float:
        text = self.value(key)
        if text is None:
            return default
        try:
            number = FOREVER if text == "forever" else float(text)
        except ValueError:
            number = -1.0
        if not number >= 0:
            raise SimulationError(f"annotation {PREFIX}{key}: {text!r} is not seconds and not `forever`")
        return number

    def integer(self, key: str, most: int) -> int:
        text = self.value(key)
        if text is None:
            return 0
        if not text.isdecimal() or int(text) > most:
            raise SimulationError(f"annotation {PREFIX}{key}: {text!r} is not an integer from 0 to {most}")
        return int(text)
