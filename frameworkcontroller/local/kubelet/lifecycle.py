"""Decides what happens to one Pod: the order of its containers, restarts, deadlines, the end, and the phase.

Synchronous, without I/O or clock. Events change the state, `PodLife.step` returns what to do now (each command once),
and `PodLife.wake_at` is the time of the next step without an event.

Invariant: the phase is terminal only when no container of the Pod is live, because clients then start a successor.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import Final, NamedTuple, Self

from frameworkcontroller.local.kubelet.container import Container, ContainerTime, Stage, Termination, Trouble
from frameworkcontroller.local.kubelet.pod import FAILED, PENDING, RUNNING, SUCCEEDED, ContainerKind, NodePod

RETRY_SECONDS: Final = 2.0
"""Delay in seconds before another attempt to prepare a Pod or start a container."""

_LOST = "The container could not be located when the kubelet started again."


class Prepare(NamedTuple):
    """Prepare the Pod's address, directories and volumes."""


class Start(NamedTuple):
    """Start a container for the ``instance + 1``-th time."""

    container: str
    instance: int


class Stop(NamedTuple):
    """End a container within ``grace`` seconds."""

    container: str
    grace: float


Command = Prepare | Start | Stop


class PodFailure(NamedTuple):
    """Why the Pod as a whole failed, for its status."""

    reason: str
    message: str


class _Preparation(Enum):
    NONE = "none"
    ASKED = "asked"
    DONE = "done"


class PodLife:
    """The state of one Pod on this node, from when the kubelet first sees it."""

    def __init__(self, record: NodePod, now: ContainerTime) -> None:
        self.record = record
        self.start_time = now.wall if record.start_time is None else float(record.start_time)
        self.containers = [Container(spec) for spec in record.containers]
        self.address = ""
        self.failure: PodFailure | None = None
        self.override: tuple[str, PodFailure] | None = None
        self.wake_at: float | None = None
        self._by_name = {container.spec.name: container for container in self.containers}
        self._inits = [container for container in self.containers if container.spec.kind is not ContainerKind.MAIN]
        self._mains = [container for container in self.containers if container.spec.kind is ContainerKind.MAIN]
        self._preparation = _Preparation.NONE
        self._unprepared: Trouble | None = None
        self._prepare_at = now.tick
        self._end_due: float | None = None

    @classmethod
    def lost(cls, record: NodePod, now: ContainerTime, reason: str) -> Self:
        """Create the state of a Pod whose containers were lost with an earlier kubelet: it has failed."""
        life = cls(record, now)
        life.address = record.pod_ip
        life.failure = PodFailure("NodeLost", reason)
        for container in life._mains:
            container.stage = Stage.EXITED
            container.termination = Termination(137, "ContainerStatusUnknown", now.wall, None, _LOST)
        return life

    @classmethod
    def adopted(cls, record: NodePod, now: ContainerTime) -> Self:
        """Create the state of a Pod whose main containers an earlier kubelet started and which still run."""
        life = cls(record, now)
        life.address = record.pod_ip
        life._preparation = _Preparation.DONE
        since = now.wall if record.running_since is None else float(record.running_since)
        for container in life._inits:
            container.stage = Stage.EXITED
            container.termination = Termination(0, "Completed", since, since)
        for container in life._mains:
            container.stage = Stage.RUNNING
            container.started_at = since
        return life

    # --- events -------------------------------------------------------------------------------------------------------

    def prepared(self, address: str) -> None:
        self._preparation = _Preparation.DONE
        self._unprepared = None
        self.address = address

    def unprepared(self, trouble: Trouble, now: ContainerTime) -> None:
        self._preparation = _Preparation.NONE
        self._unprepared = trouble
        self._prepare_at = now.tick + RETRY_SECONDS

    def started(self, name: str, now: ContainerTime) -> None:
        container = self._by_name[name]
        if container.stage is Stage.STARTING:
            self._note_restart(container, now)
            container.stage = Stage.RUNNING
            container.started_at = now.wall
            container.trouble = None
            container.probed = False

    def probed(self, name: str, ready: bool) -> None:
        self._by_name[name].probed = ready

    def refused(self, name: str, trouble: Trouble, now: ContainerTime) -> None:
        container = self._by_name[name]
        if container.stage is not Stage.STARTING:
            return
        container.trouble = trouble
        container.retry_at = now.tick + RETRY_SECONDS
        container.stop_due = None
        if container.instance > 0:
            container.stage, container.termination = Stage.EXITED, container.previous
            container.instance -= 1
        else:
            container.stage = Stage.NEW

    def exited(self, name: str, termination: Termination, now: ContainerTime) -> None:
        container = self._by_name[name]
        if container.live:
            if container.stage is Stage.STARTING:
                self._note_restart(container, now)
            container.stage = Stage.EXITED
            container.termination = termination
            container.finished_tick = now.tick
            container.trouble = None

    def fail(self, failure: PodFailure, now: ContainerTime, culprit: tuple[str, Termination] | None = None) -> None:
        """Fail the Pod as a whole; the first reason stays. No effect once the Pod has ended.

        ``culprit`` is a container that therefore never runs, and the termination to report for it.
        """
        if self.failure is not None or self.ended:
            return
        self.failure = failure
        self._end_by(now.tick + self.record.termination_grace)
        if culprit is not None:
            container = self._by_name[culprit[0]]
            if container.stage is Stage.NEW:
                container.stage, container.termination = Stage.EXITED, culprit[1]

    def terminate(self, grace: float, now: ContainerTime) -> None:
        """End the Pod within ``grace`` seconds. A later call can only shorten that."""
        self._end_by(now.tick + grace)

    def kill(self) -> None:
        """End the Pod without grace, even if it is already terminating."""
        self._end_by(-math.inf)

    # --- commands -----------------------------------------------------------------------------------------------------

    def step(self, now: ContainerTime) -> list[Command]:
        """Return what to do now."""
        self.wake_at = None
        self._enforce_deadline(now)
        if self._end_due is not None or self.failure is not None:
            return self._end(now)
        if self._preparation is not _Preparation.DONE:
            if self._preparation is _Preparation.ASKED:
                return []
            if now.tick < self._prepare_at:
                self._wake(self._prepare_at)
                return []
            self._preparation = _Preparation.ASKED
            return [Prepare()]
        commands: list[Command] = []
        if self._initialize(now, commands):
            for container in self._mains:
                if container.stage is Stage.NEW or (container.stage is Stage.EXITED and self._restarts(container)):
                    self._start(container, now, commands)
        if self._finished:
            self._end_by(now.tick + self.record.termination_grace)
            return self._end(now)
        return commands

    def _enforce_deadline(self, now: ContainerTime) -> None:
        if self.record.active_deadline is None or self.failure is not None or self.ended:
            return
        left = self.start_time + self.record.active_deadline - now.wall
        if left <= 0:
            self.fail(
                PodFailure("DeadlineExceeded", "Pod was active on the node longer than the specified deadline"), now
            )
        else:
            self._wake(now.tick + left)

    def _initialize(self, now: ContainerTime, commands: list[Command]) -> bool:
        """Advance the init containers; True once the main containers may run."""
        for container in self._inits:
            if container.spec.kind is ContainerKind.SIDECAR:
                if not container.live:
                    self._start(container, now, commands)
                if not container.begun:
                    return False
            elif not container.succeeded:
                if not container.live and not (container.failed and self.record.restart_policy == "Never"):
                    self._start(container, now, commands)
                return False
        return True

    def _start(self, container: Container, now: ContainerTime, commands: list[Command]) -> None:
        due = container.retry_at
        if container.stage is Stage.EXITED:
            due = max(due, container.backoff.due(container.finished_tick))
        if now.tick < due:
            self._wake(due)
            return
        if container.stage is Stage.EXITED:
            container.previous, container.termination = container.termination, None
            container.instance += 1
        container.stage = Stage.STARTING
        commands.append(Start(container.spec.name, container.instance))

    def _note_restart(self, container: Container, now: ContainerTime) -> None:
        # Not earlier: a start that was refused temporarily is no crash.
        if container.instance > 0:
            container.backoff.restarted(now.tick)

    def _end(self, now: ContainerTime) -> list[Command]:
        """Stop all live containers; sidecars last, because the others may need them until the end."""
        due = now.tick if self._end_due is None else self._end_due
        live = [container for container in self.containers if container.live]
        first = [container for container in live if container.spec.kind is not ContainerKind.SIDECAR]
        commands: list[Command] = []
        for container in first or live:
            if container.stop_due is None or due < container.stop_due:
                container.stop_due = due
                commands.append(Stop(container.spec.name, max(0.0, due - now.tick)))
        return commands

    def _end_by(self, due: float) -> None:
        self._end_due = due if self._end_due is None else min(self._end_due, due)

    def _wake(self, tick: float) -> None:
        self.wake_at = tick if self.wake_at is None else min(self.wake_at, tick)

    def _restarts(self, container: Container) -> bool:
        policy = self.record.restart_policy
        return policy == "Always" or (policy == "OnFailure" and container.failed)

    # --- state --------------------------------------------------------------------------------------------------------

    @property
    def dead(self) -> bool:
        """Whether no container may have a process."""
        return not any(container.live for container in self.containers)

    @property
    def ended(self) -> bool:
        """Whether the Pod has ended: no container is live or will be restarted."""
        return self.dead and (self._end_due is not None or self.failure is not None or self._finished)

    @property
    def initialized(self) -> bool:
        """Whether the main containers may run, or may have run."""
        return all(
            container.begun if container.spec.kind is ContainerKind.SIDECAR else container.succeeded
            for container in self._inits
        )

    @property
    def _finished(self) -> bool:
        if self.record.restart_policy == "Never" and any(
            container.failed for container in self._inits if container.spec.kind is ContainerKind.INIT
        ):
            return True
        return all(container.stage is Stage.EXITED and not self._restarts(container) for container in self._mains)

    @property
    def phase(self) -> str:
        """The phase according to the containers, ignoring `override`."""
        if self.ended:
            if self.failure is None and all(container.succeeded for container in self._mains):
                return SUCCEEDED
            # A Pod that is deleted before anything ran has neither succeeded nor failed.
            if self.failure is None and not any(container.begun for container in self.containers):
                return PENDING
            return FAILED
        return RUNNING if all(container.begun for container in self._mains) else PENDING

    def waiting(self, container: Container) -> Trouble | None:
        """The reason for which the container waits, or None if it runs or has ended."""
        if container.stage is Stage.RUNNING:
            return None
        if container.stage is Stage.EXITED:
            if self.ended or self._end_due is not None or self.failure is not None:
                return None
            if container.spec.kind is ContainerKind.MAIN and not self._restarts(container):
                return None
            if container.spec.kind is ContainerKind.INIT and container.succeeded:
                return None
            return container.trouble or self._crash_loop(container)
        if container.trouble is not None:
            return container.trouble
        reason = "PodInitializing" if self._inits else "ContainerCreating"
        return Trouble(reason, "" if self._unprepared is None else ": ".join(filter(None, self._unprepared)))

    def _crash_loop(self, container: Container) -> Trouble:
        record, delay = self.record, int(container.backoff.delay)
        text = f"{delay // 60}m{delay % 60}s" if delay >= 60 else f"{delay}s"
        return Trouble(
            "CrashLoopBackOff",
            f"back-off {text} restarting failed container={container.spec.name} "
            f"pod={record.name}_{record.namespace}({record.uid})",
        )
