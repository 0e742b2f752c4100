"""In-memory state of a Framework by its lifetime: replaced as a whole, never reset field by field."""

from __future__ import annotations

from dataclasses import dataclass, field

from frameworkcontroller.api.completion import CompletionStatus
from frameworkcontroller.api.objects import ConfigMapRecord, PodRecord, PodTrouble
from frameworkcontroller.api.spec import FrameworkSpec
from frameworkcontroller.api.status import TaskStatus
from frameworkcontroller.machine.kernel.agenda import TaskKey
from frameworkcontroller.machine.kernel.manifests import PodTemplate
from frameworkcontroller.machine.kernel.model import AttemptCounters
from frameworkcontroller.machine.kernel.reasons import Reason


@dataclass(slots=True)
class AttemptLife:
    """In-memory state of the Framework's attempt. A new one for each attempt."""

    configmap_end: CompletionStatus | None = None
    """Its completion if its ConfigMap is gone, but not deleted by another client."""
    configmap_gone: bool = False
    """Whether the ConfigMap is gone, and Pods of the attempt may exist that only the machine deletes."""
    alone_since: float | None = None
    """When (monotonic seconds) the ConfigMap was first seen to be terminating without Pods."""
    templates: dict[str, PodTemplate] = field(default_factory=dict)
    """Encoded Pods by role, of this generation."""
    dropped_configmap: ConfigMapRecord | None = None
    """Last state of a ConfigMap that the cache has dropped, if it has progress."""
    dropped: dict[TaskKey, PodRecord] = field(default_factory=dict)
    """Last states of recorded Pods that the cache has dropped, if they show ends of containers, or have conditions or a
    node and no completion is decided."""
    left_running: dict[TaskKey, tuple[str, float]] = field(default_factory=dict)
    """UIDs of ended Pods with running containers, and when that was first seen (monotonic seconds)."""
    begun: set[str] = field(default_factory=set)
    """Roles with a Pod that was created."""
    failing: list[TaskStatus] = field(default_factory=list)
    """Tasks with a failure that ends the attempt, by podFailurePolicy."""

    troubled: dict[TaskKey, PodTrouble] = field(default_factory=dict)
    """Pods that cannot start, or restart their containers."""

    def forget_tasks(self) -> None:
        """Forget all Tasks, as the attempt is over."""
        self.alone_since = self.dropped_configmap = None
        for known in (self.templates, self.dropped, self.left_running, self.troubled):
            known.clear()


@dataclass(slots=True)
class ProcessLife:
    """In-memory state of a Framework over all attempts."""

    generation: int | None = None
    """Generation of the spec in the last plan."""
    spec: FrameworkSpec | None = None
    """The last valid one in a plan; None before, and once the Framework is completed."""
    task_numbers: tuple[int, ...] = ()
    """Numbers of Tasks of roles with autoscaling in the last plan."""
    stored_numbers: dict[str, int] = field(default_factory=dict)
    """The numbers in the last persisted status, by role."""
    adapted: tuple[FrameworkSpec, dict[str, int], FrameworkSpec] | None = None
    """The last spec, other numbers of Tasks, and the spec with these."""
    mistake: str = ""
    """A likely mistake in that spec."""
    last_stall: Reason | None = None
    """The stall that was recorded last."""
    last_wait: Reason | None = None
    """The reason to wait that the condition Running shows."""
    deletion_snapshot_taken: bool = False
    """Whether the snapshot of the Framework's deletion was taken."""
    counters: AttemptCounters | None = None
    """Attempts that ended or were retried since the last persisted status."""
