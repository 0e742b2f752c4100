"""Runs the Pods of one node: connects each `PodLife` with the runtime and the clocks. Independent of the API server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from functools import partial

from frameworkcontroller.local.kubelet.container import ContainerTime, Termination, Trouble
from frameworkcontroller.local.kubelet.lifecycle import Command, PodFailure, PodLife, Prepare, Start
from frameworkcontroller.local.kubelet.pod import NodePod
from frameworkcontroller.local.kubelet.podstatus import Json, PodStatusView
from frameworkcontroller.local.kubelet.readiness import watch_readiness
from frameworkcontroller.local.kubelet.runtime import Runtime
from frameworkcontroller.local.timers import Timers


class PodWorker:
    """One Pod on this node: its latest record, its state, and the status last accepted by the API server.

    ``abandoned``: the object is gone from the API; nothing more is reported.
    """

    __slots__ = ("abandoned", "again", "life", "record", "reported", "stepping", "view")

    def __init__(self, record: NodePod, life: PodLife, view: PodStatusView) -> None:
        self.record = record
        self.life = life
        self.view = view
        self.reported: Json | None = None
        self.abandoned = False
        self.stepping = False
        self.again = False


class PodWorkers:
    """Implements `RuntimeEvents`. ``on_change`` is called with the uid of a Pod whose status may have changed."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        on_change: Callable[[str], None],
        on_reachable: Callable[[bool], None] = lambda _: None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._runtime = runtime
        self._on_change = on_change
        self._on_reachable = on_reachable
        self._wall = wall
        self._pods: dict[str, PodWorker] = {}
        self._timers: Timers[str] = Timers(self._advance)
        self._probes: dict[tuple[str, str], asyncio.Task[None]] = {}
        runtime.attach(self)

    # --- API events ---------------------------------------------------------------------------------------------------

    def get(self, uid: str) -> PodWorker | None:
        return self._pods.get(uid)

    def __iter__(self) -> Iterator[PodWorker]:
        return iter(tuple(self._pods.values()))

    def __len__(self) -> int:
        return len(self._pods)

    def admit(self, record: NodePod) -> None:
        """Start a non-terminal Pod that is bound to this node, or adopt it from an earlier kubelet."""
        now = self._now()
        if self._runtime.adopt(record):
            life = PodLife.adopted(record, now)
        elif record.ran:
            life = PodLife.lost(record, now, self._runtime.lost_reason)
        else:
            life = PodLife(record, now)
        self._pods[record.uid] = PodWorker(record, life, PodStatusView(life, self._runtime.name))
        self._apply(record, life, now)
        self._advance(record.uid)

    def update(self, record: NodePod) -> None:
        """Update an admitted Pod to a new version."""
        pod = self._pods.get(record.uid)
        if pod is None:
            return
        before, pod.record, pod.life.record = pod.record, record, record
        if record.deletion_grace != before.deletion_grace or record.active_deadline != before.active_deadline:
            self._apply(record, pod.life, self._now())
            self._advance(record.uid)

    async def forget(self, uid: str) -> None:
        """Remove a Pod without live containers, and everything that was created for it."""
        pod = self._pods.get(uid)
        if pod is not None:
            self._timers.set(uid, None)
            await self._runtime.release(pod.record)
            self._pods.pop(uid, None)

    def abandon(self, uid: str) -> None:
        """Kill a Pod that no longer exists in the API; ``on_change`` is called when it is dead."""
        pod = self._pods.get(uid)
        if pod is not None:
            pod.abandoned = True
            pod.life.kill()
            self._advance(uid)

    def status(self, pod: PodWorker) -> Json:
        """The Pod's status to report."""
        return pod.view.render(self._now())

    def close(self) -> None:
        """Stop timers and probes."""
        self._timers.clear()
        for uid, container in tuple(self._probes):
            self._stop_probing(uid, container)

    # --- runtime events -----------------------------------------------------------------------------------------------

    def prepared(self, uid: str, address: str) -> None:
        if pod := self._pods.get(uid):
            pod.life.prepared(address)
            self._advance(uid)

    def unprepared(self, uid: str, reason: str, message: str) -> None:
        if pod := self._pods.get(uid):
            pod.life.unprepared(Trouble(reason, message), self._now())
            self._advance(uid)

    def started(self, uid: str, container: str) -> None:
        if pod := self._pods.get(uid):
            pod.life.started(container, self._now())
            if probe := pod.record.container(container).readiness:
                watching = watch_readiness(probe, pod.life.address, partial(self._probed, uid, container))
                self._probes[uid, container] = asyncio.get_running_loop().create_task(watching)
            self._advance(uid)

    def refused(self, uid: str, container: str, reason: str, message: str) -> None:
        if pod := self._pods.get(uid):
            pod.life.refused(container, Trouble(reason, message), self._now())
            self._advance(uid)

    def exited(self, uid: str, container: str, termination: Termination) -> None:
        if pod := self._pods.get(uid):
            self._stop_probing(uid, container)
            pod.life.exited(container, termination, self._now())
            self._advance(uid)

    def fail_pod(self, uid: str, reason: str, message: str, culprit: tuple[str, Termination] | None = None) -> None:
        if pod := self._pods.get(uid):
            pod.life.fail(PodFailure(reason, message), self._now(), culprit)
            self._advance(uid)

    def override_phase(self, uid: str, phase: str | None, reason: str = "", message: str = "") -> None:
        if pod := self._pods.get(uid):
            pod.life.override = None if phase is None else (phase, PodFailure(reason, message))
            self._advance(uid)

    def node_reachable(self, reachable: bool) -> None:
        self._on_reachable(reachable)

    # --- probes -------------------------------------------------------------------------------------------------------

    def _probed(self, uid: str, container: str, ready: bool) -> None:
        if pod := self._pods.get(uid):
            pod.life.probed(container, ready)
            self._advance(uid)

    def _stop_probing(self, uid: str, container: str) -> None:
        if probe := self._probes.pop((uid, container), None):
            probe.cancel()

    # --- the clock ----------------------------------------------------------------------------------------------------

    def _now(self) -> ContainerTime:
        return ContainerTime(asyncio.get_running_loop().time(), self._wall())

    def _apply(self, record: NodePod, life: PodLife, now: ContainerTime) -> None:
        if record.deletion_grace is not None:
            life.terminate(record.deletion_grace, now)

    def _advance(self, uid: str) -> None:
        """Advance the Pod as far as possible now, and report a change."""
        pod = self._pods.get(uid)
        if pod is None:
            return
        pod.again = True
        if pod.stepping:
            # A runtime may answer from within a command: finish this step's commands first.
            return
        pod.stepping = True
        try:
            while pod.again:
                pod.again = False
                for command in pod.life.step(self._now()):
                    self._command(pod.record, command)
        finally:
            pod.stepping = False
        if pod.life.ended:
            self._runtime.ended(pod.record)
        self._timers.set(uid, pod.life.wake_at)
        self._on_change(uid)

    def _command(self, record: NodePod, command: Command) -> None:
        if isinstance(command, Prepare):
            self._runtime.prepare(record)
        elif isinstance(command, Start):
            self._runtime.start(record, command.container, command.instance)
        else:
            self._runtime.stop(record, command.container, command.grace)
