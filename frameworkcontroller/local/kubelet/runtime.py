"""The interface between the kubelet and a container runtime.

Commands do not wait: their results arrive through `RuntimeEvents`, at once or later. The runtime has no policy: order,
restarts, back-off, deadlines and phases are the kubelet's (`lifecycle`), for every runtime.
"""

from __future__ import annotations

from typing import Protocol

from frameworkcontroller.local.kubelet.container import Termination
from frameworkcontroller.local.kubelet.pod import NodePod
from frameworkcontroller.local.kubelet.podhosts import Names


class RuntimeEvents(Protocol):
    """The runtime's callbacks to its kubelet, on the event loop's thread. Unknown Pods are ignored."""

    def prepared(self, uid: str, address: str) -> None:
        """The Pod is prepared and ``address`` is its podIP; its containers may be started."""

    def unprepared(self, uid: str, reason: str, message: str) -> None:
        """The Pod cannot be prepared now (a ConfigMap is missing, for example); a retry may succeed."""

    def started(self, uid: str, container: str) -> None:
        """The container's process runs."""

    def refused(self, uid: str, container: str, reason: str, message: str) -> None:
        """The container cannot be started now; a retry may succeed."""

    def exited(self, uid: str, container: str, termination: Termination) -> None:
        """The container has ended, with all of its processes, or cannot ever be started."""

    def fail_pod(self, uid: str, reason: str, message: str, culprit: tuple[str, Termination] | None = None) -> None:
        """The Pod as a whole has failed (evicted, or impossible here): stop its containers and set it to Failed.

        ``culprit`` is a container that therefore never ran, and the termination to report for it.
        """

    def override_phase(self, uid: str, phase: str | None, reason: str = "", message: str = "") -> None:
        """Report this phase instead of the real one; None ends that."""

    def node_reachable(self, reachable: bool) -> None:
        """Whether the node reaches the API server; while it does not, nothing is reported and no change is applied."""


class Runtime(Protocol):
    """Runs containers. Every ``start`` is eventually answered by ``exited`` or ``refused``, even after ``stop``."""

    @property
    def name(self) -> str:
        """The name in container IDs and in the Node."""

    @property
    def needs_manifest(self) -> bool:
        """Whether it reads ``PodRecord.manifest``."""

    @property
    def lost_reason(self) -> str:
        """The reason in the status of Pods that were lost with an earlier kubelet."""

    @property
    def names(self) -> Names | None:
        """The names that its Pods resolve; informers report Services and changes of Pods to it. None: no names."""

    def attach(self, events: RuntimeEvents) -> None:
        """Set the receiver of events, before anything else."""

    async def open(self) -> None:
        """Initialize, and clean up after an earlier runtime."""

    async def close(self) -> None:
        """End everything and clean up."""

    def adopt(self, pod: NodePod) -> bool:
        """Take over a Pod that an earlier kubelet started, if it still runs; False otherwise."""

    def prepare(self, pod: NodePod) -> None:
        """Create the Pod's address, directories and volumes. Answer: prepared, unprepared or fail_pod."""

    def start(self, pod: NodePod, container: str, instance: int) -> None:
        """Start a container for the ``instance + 1``-th time. Answer: started (then exited), refused or exited."""

    def stop(self, pod: NodePod, container: str, grace: float) -> None:
        """Ask a container to end, and kill it after ``grace`` seconds. A later call can only shorten the time."""

    def ended(self, pod: NodePod) -> None:
        """Free the devices of a Pod: no container of it is live, or will be. Idempotent."""

    async def release(self, pod: NodePod) -> None:
        """Forget a Pod without live containers, and remove everything created for it. Idempotent."""

    def remove_claim(self, uid: str) -> None:
        """Remove the data of a PersistentVolumeClaim, if there is any. The claim is gone."""
