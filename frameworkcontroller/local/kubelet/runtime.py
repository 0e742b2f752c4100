"""What a kubelet asks of the runtime that has its containers, and what the runtime tells it.

Commands do not wait: what became of them is told through `RuntimeEvents`, at once or later. The runtime holds no
policy: order, restarts, back-off, deadlines and phases are the kubelet's (`lifecycle`), whichever runtime it drives.
"""

from __future__ import annotations

from typing import Protocol

from frameworkcontroller.local.kubelet.container import Termination
from frameworkcontroller.local.kubelet.pod import PodRecord


class RuntimeEvents(Protocol):
    """What a runtime tells its kubelet, always on the event loop's thread. Unknown Pods are ignored."""

    def prepared(self, uid: str, address: str) -> None:
        """The Pod's surroundings are ready and ``address`` is its podIP; its containers may be started."""

    def unprepared(self, uid: str, reason: str, message: str) -> None:
        """The surroundings cannot be made just now (a ConfigMap is missing, say); it is worth trying again."""

    def started(self, uid: str, container: str) -> None:
        """The container's process runs."""

    def refused(self, uid: str, container: str, reason: str, message: str) -> None:
        """The container cannot be started just now; it is worth trying again."""

    def exited(self, uid: str, container: str, termination: Termination) -> None:
        """The container has ended, with everything in it; or never came to run, and trying again will not help."""

    def fail_pod(self, uid: str, reason: str, message: str, culprit: tuple[str, Termination] | None = None) -> None:
        """The Pod as a whole has failed (evicted, say, or impossible here): stop its containers and mark it Failed.

        ``culprit`` is a container that therefore never ran, and how that is to be told of it.
        """

    def override_phase(self, uid: str, phase: str | None, reason: str = "", message: str = "") -> None:
        """Show this phase whatever the containers do; None ends that."""

    def node_reachable(self, reachable: bool) -> None:
        """Whether the node still talks to the API server; while it does not, nothing is reported and nothing obeyed."""


class Runtime(Protocol):
    """Runs containers. Every ``start`` is answered by ``exited`` or ``refused`` in the end, also after ``stop``."""

    @property
    def name(self) -> str:
        """What it is called in container IDs and in the Node."""

    @property
    def needs_manifest(self) -> bool:
        """Whether it reads ``PodRecord.manifest``."""

    @property
    def lost_reason(self) -> str:
        """Why Pods that an earlier kubelet had started are gone, for their status."""

    def attach(self, events: RuntimeEvents) -> None:
        """Set who is told. Called once, before anything else."""

    async def open(self) -> None:
        """Make ready, and clear away what an earlier runtime left."""

    async def close(self) -> None:
        """End everything and leave nothing behind."""

    def adopt(self, pod: PodRecord) -> bool:
        """Whether a Pod that an earlier kubelet started still runs, and is this runtime's from now on."""

    def prepare(self, pod: PodRecord) -> None:
        """Make the Pod's surroundings: address, directories, volumes. Answer: prepared, unprepared or fail_pod."""

    def start(self, pod: PodRecord, container: str, instance: int) -> None:
        """Start a container, for the ``instance + 1``-th time. Answer: started (then exited), refused or exited."""

    def stop(self, pod: PodRecord, container: str, grace: float) -> None:
        """End a container: ask it to, and force it after ``grace`` seconds. Asking again can only shorten the time."""

    async def release(self, pod: PodRecord) -> None:
        """Forget a Pod none of whose containers is live, and remove what was made for it. Safe to repeat."""
