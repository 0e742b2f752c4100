"""Runtime "simulated": containers without processes, for tests and benchmarks with thousands of Pods.

Annotations (see `simulation`) and, in tests, the methods of `SimulatedRuntime` define a Pod's behavior. One event-loop
timer serves all Pods; there is no process, thread, task, file or socket.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final

from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.local.kubelet.container import Termination
from frameworkcontroller.local.kubelet.pod import ContainerKind, NodePod
from frameworkcontroller.local.kubelet.runtime import RuntimeEvents
from frameworkcontroller.local.kubelet.simulation import (
    FOREVER,
    Behavior,
    SimulationError,
    behavior,
    check,
    pod_behavior,
)
from frameworkcontroller.local.timers import Timers

_KILLED: Final = 137
_TERMINATED: Final = 143


@dataclass(slots=True)
class _Instance:
    """One instance of one container. ``started`` is None until it runs, ``stop_due`` until it is asked to end."""

    pod: NodePod
    name: str
    plan: Behavior
    started: float | None = None
    stop_due: float | None = None
    stop_code: int = _TERMINATED

    @property
    def key(self) -> tuple[str, str]:
        return self.pod.uid, self.name


class SimulatedRuntime:
    """Implements `Runtime` and `PodLogs`.

    ``survives_restart``: whether Pods of an earlier kubelet are still running.
    """

    name = "simulated"
    needs_manifest = False
    lost_reason = "The simulated Pod ended with the kubelet that ran it."
    names = None

    def __init__(self, *, survives_restart: bool = True, wall: Callable[[], float] = time.time) -> None:
        self._survives_restart = survives_restart
        self._wall = wall
        self._events: RuntimeEvents | None = None
        self._pods: dict[str, NodePod] = {}
        self._uids: dict[str, str] = {}
        self._instances: dict[tuple[str, str], _Instance] = {}
        self._timers: Timers[tuple[str, str]] = Timers(self._due)
        self._addresses: dict[str, str] = {}
        self._address_numbers = itertools.count(1)

    # --- for tests ----------------------------------------------------------------------------------------------------

    def finish(self, key: str, container: str | None = None) -> None:
        """End a running container (default: all main ones) of the Pod ``namespace/name`` successfully, now."""
        self.fail(key, 0, container=container)

    def fail(
        self,
        key: str,
        code: int = 1,
        reason: str = "",
        message: str = "",
        *,
        signal: int = 0,
        container: str | None = None,
    ) -> None:
        """End a running container (default: all main ones) of the Pod ``namespace/name`` with a failure, now.

        Raises KeyError if there is no such Pod, or none of these containers runs.
        """
        pod = self._pod(key)
        names = (
            [spec.name for spec in pod.containers if spec.kind is ContainerKind.MAIN]
            if container is None
            else [container]
        )
        running = [self._instances[pod.uid, name] for name in names if (pod.uid, name) in self._instances]
        if not running:
            raise KeyError(f"no container of Pod {key} to end: {', '.join(names)}")
        for instance in running:
            self._exit(instance, code, reason, message, signal)

    def fail_pod(self, key: str, reason: str, message: str = "") -> None:
        """Fail the Pod ``namespace/name`` as a whole, as if evicted or preempted."""
        self._kubelet.fail_pod(self._pod(key).uid, reason, message)

    def set_phase(self, key: str, phase: str | None, reason: str = "", message: str = "") -> None:
        """Report this phase (`Unknown`, for example) for the Pod ``namespace/name``; None restores the real one."""
        self._kubelet.override_phase(self._pod(key).uid, phase, reason, message)

    def lose_node(self) -> None:
        """Disconnect the node: it reports nothing and receives no deletions; its Pods keep running."""
        self._kubelet.node_reachable(False)

    def restore_node(self) -> None:
        """Reconnect the node, which catches up."""
        self._kubelet.node_reachable(True)

    def knows(self, key: str) -> bool:
        """Whether the Pod ``namespace/name`` is on this node."""
        return key in self._uids

    def running(self) -> list[str]:
        """The names (``namespace/name``) of the Pods with a running container, sorted."""
        return sorted({item.pod.key for item in self._instances.values() if item.started is not None})

    # --- Runtime ------------------------------------------------------------------------------------------------------

    def attach(self, events: RuntimeEvents) -> None:
        self._events = events

    async def open(self) -> None:
        """Do nothing: there is nothing to initialize."""

    async def close(self) -> None:
        self._timers.clear()
        self._instances.clear()

    def adopt(self, pod: NodePod) -> bool:
        if not self._survives_restart or pod.running_since is None:
            return False
        try:
            mains = [spec for spec in pod.containers if spec.kind is ContainerKind.MAIN]
            plans = {spec.name: behavior(pod, spec, 0) for spec in mains}
        except SimulationError:
            return False
        self._remember(pod)
        self._addresses[pod.uid] = pod.pod_ip
        for name, plan in plans.items():
            item = self._instances[pod.uid, name] = _Instance(pod, name, plan, started=float(pod.running_since))
            if plan.run_seconds != FOREVER:
                # By timer even if it is already over: the Pod is admitted only after this call.
                left = max(0.0, pod.running_since + plan.run_seconds - self._wall())
                self._timers.set(item.key, asyncio.get_running_loop().time() + left)
        return True

    def prepare(self, pod: NodePod) -> None:
        self._remember(pod)
        try:
            check(pod)
            delay = pod_behavior(pod).prepare_seconds
        except SimulationError as error:
            self._kubelet.fail_pod(pod.uid, "InvalidSimulation", str(error))
            return
        self._wake((pod.uid, ""), delay)

    def start(self, pod: NodePod, container: str, instance: int) -> None:
        item = _Instance(pod, container, behavior(pod, pod.container(container), instance))
        self._instances[item.key] = item
        if item.plan.startup_seconds:
            self._wake(item.key, item.plan.startup_seconds)
        else:
            self._run(item)

    def stop(self, pod: NodePod, container: str, grace: float) -> None:
        item = self._instances.get((pod.uid, container))
        if item is None:
            return
        needed = item.plan.stop_seconds
        seconds, code = (needed, _TERMINATED) if needed <= grace else (grace, _KILLED)
        if needed == FOREVER and grace > 0:
            seconds = FOREVER
        due = asyncio.get_running_loop().time() + seconds
        if item.stop_due is None or due < item.stop_due:
            item.stop_due, item.stop_code = due, code
            self._wake(item.key, seconds)

    def ended(self, pod: NodePod) -> None:
        """Do nothing: simulated Pods have no devices."""

    async def release(self, pod: NodePod) -> None:
        if self._uids.get(pod.key) == pod.uid:
            del self._uids[pod.key]
        self._pods.pop(pod.uid, None)
        self._addresses.pop(pod.uid, None)
        self._timers.set((pod.uid, ""), None)

    def remove_claim(self, uid: str) -> None:
        """Do nothing: nothing is stored."""

    # --- logs ---------------------------------------------------------------------------------------------------------

    async def read(
        self,
        namespace: str,
        name: str,
        container: str,
        *,
        follow: bool,  # noqa: ARG002 - the protocol's, as those below
        tail_lines: int | None,  # noqa: ARG002
        since_seconds: float | None,  # noqa: ARG002
        limit_bytes: int | None,
        timestamps: bool,
        previous: bool,  # noqa: ARG002
    ) -> AsyncIterator[bytes]:
        """Yield one line that says that there is no log. Raises LookupError."""
        uid = self._uids.get(f"{namespace}/{name}")
        if uid is None:
            raise LookupError(f'pod "{name}" has no containers here')
        if all(spec.name != container for spec in self._pods[uid].containers):
            raise LookupError(f"container {container} is not valid for pod {name}")
        stamp = f"{format_time(int(self._wall()))} " if timestamps else ""
        yield f"{stamp}container {container} is simulated and prints nothing\n".encode()[:limit_bytes]

    # --- inside -------------------------------------------------------------------------------------------------------

    @property
    def _kubelet(self) -> RuntimeEvents:
        if self._events is None:
            raise RuntimeError("the runtime is attached to no kubelet")
        return self._events

    def _pod(self, key: str) -> NodePod:
        return self._pods[self._uids[key]]

    def _remember(self, pod: NodePod) -> None:
        self._pods[pod.uid] = pod
        self._uids[pod.key] = pod.uid

    def _prepared(self, pod: NodePod) -> None:
        if pod.uid not in self._addresses:
            number = next(self._address_numbers) % (1 << 22)
            self._addresses[pod.uid] = f"10.{128 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"
        self._kubelet.prepared(pod.uid, self._addresses[pod.uid])

    def _run(self, item: _Instance) -> None:
        item.started = self._wall()
        self._kubelet.started(item.pod.uid, item.name)
        # The listener may have stopped or even replaced it.
        if item.stop_due is None and self._instances.get(item.key) is item:
            self._wake(item.key, item.plan.run_seconds)

    def _wake(self, key: tuple[str, str], seconds: float) -> None:
        if seconds <= 0:
            self._due(key)
        else:
            self._timers.set(key, None if seconds == FOREVER else asyncio.get_running_loop().time() + seconds)

    def _due(self, key: tuple[str, str]) -> None:
        uid, container = key
        item = self._instances.get(key)
        if not container:
            self._prepared(self._pods[uid])
        elif item is None:
            return
        elif item.stop_due is not None:
            self._exit(item, item.stop_code)
        elif item.started is None:
            self._run(item)
        elif (whole := pod_behavior(item.pod)).reason and item.name == _first_main(item.pod):
            self._kubelet.fail_pod(uid, whole.reason, whole.message)
        else:
            plan = item.plan
            self._exit(item, plan.exit_code, plan.reason, plan.message, plan.signal)

    def _exit(self, item: _Instance, code: int, reason: str = "", message: str = "", signal: int = 0) -> None:
        if self._instances.get(item.key) is not item:
            return
        del self._instances[item.key]
        self._timers.set(item.key, None)
        reason = reason or ("Completed" if code == 0 else "Error")
        termination = Termination(code, reason, self._wall(), item.started, message, signal)
        self._kubelet.exited(item.pod.uid, item.name, termination)


def _first_main(pod: NodePod) -> str:
    return next(spec.name for spec in pod.containers if spec.kind is ContainerKind.MAIN)
