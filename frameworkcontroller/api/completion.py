"""Completion codes, and the statuses made from them.

Source: docs/failure-codes.md. A code says how one attempt ended; phrase and type say it to people and to the
retry policy. Positive codes are container exit codes; the reserved ranges belong to this contract.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
TRANSIENT: Final = "Transient"
CONFLICT: Final = "Conflict"
PERMANENT: Final = "Permanent"
UNKNOWN: Final = "Unknown"

CATEGORIES: Final = (SUCCEEDED, TRANSIENT, TRANSIENT + CONFLICT, PERMANENT, UNKNOWN)
"""The kinds of end that retry policies tell apart (docs/manual.md, Retry); without a known attribute it is unknown."""


@dataclass(frozen=True, slots=True)
class Code:
    """One predefined completion code: ``attributes`` order is what clients see."""

    code: int
    phrase: str
    type_name: str = FAILED
    attributes: tuple[str, ...] | None = ()


POD_SUCCEEDED = Code(0, "Succeeded", SUCCEEDED)
CONTAINER_TRANSIENT_FAILED = Code(200, "ContainerTransientFailed", FAILED, (TRANSIENT,))
CONTAINER_TRANSIENT_CONFLICT_FAILED = Code(201, "ContainerTransientConflictFailed", FAILED, (TRANSIENT, CONFLICT))
CONTAINER_PERMANENT_FAILED = Code(210, "ContainerPermanentFailed", FAILED, (PERMANENT,))
CONFIGMAP_EXTERNAL_DELETED = Code(-100, "ConfigMapExternalDeleted", FAILED, (TRANSIENT,))
POD_EXTERNAL_DELETED = Code(-101, "PodExternalDeleted", FAILED, (TRANSIENT,))
CONFIGMAP_LOCAL_CACHE_CREATION_TIMEOUT = Code(-110, "ConfigMapLocalCacheCreationTimeout", FAILED, (TRANSIENT,))
POD_LOCAL_CACHE_CREATION_TIMEOUT = Code(-111, "PodLocalCacheCreationTimeout", FAILED, (TRANSIENT,))
POD_CREATION_TRANSIENT_ERROR = Code(-120, "PodCreationTransientError", FAILED, (TRANSIENT,))
POD_CREATION_PERMANENT_ERROR = Code(-200, "PodCreationPermanentError", FAILED, (PERMANENT,))
STOP_FRAMEWORK_REQUESTED = Code(-210, "StopFrameworkRequested", FAILED, (PERMANENT,))
FRAMEWORK_ATTEMPT_COMPLETION = Code(-220, "FrameworkAttemptCompletion", FAILED, (PERMANENT,))
DELETE_TASK_REQUESTED = Code(-230, "DeleteTaskRequested", FAILED, (PERMANENT,))
POD_FAILED_WITHOUT_FAILED_CONTAINER = Code(-300, "PodFailedWithoutFailedContainer")
POD_CREATION_UNKNOWN_ERROR = Code(-310, "PodCreationUnknownError")

POD_PREEMPTED_BY_SCHEDULER = Code(-1008, "PodPreemptedByScheduler", FAILED, (TRANSIENT,))
POD_EVICTED_BY_TAINT = Code(-1009, "PodEvictedByTaint", FAILED, (TRANSIENT,))
POD_EVICTED_BY_API = Code(-1010, "PodEvictedByApi", FAILED, (TRANSIENT,))
POD_DELETED_BY_POD_GC = Code(-1011, "PodDeletedByPodGC", FAILED, (TRANSIENT,))
POD_TERMINATED_BY_KUBELET = Code(-1012, "PodTerminatedByKubelet", FAILED, (TRANSIENT,))

DISRUPTIONS: Final = {
    "PreemptionByScheduler": POD_PREEMPTED_BY_SCHEDULER,
    "PreemptionByKubeScheduler": POD_PREEMPTED_BY_SCHEDULER,
    "DeletionByTaintManager": POD_EVICTED_BY_TAINT,
    "EvictionByEvictionAPI": POD_EVICTED_BY_API,
    "DeletionByPodGC": POD_DELETED_BY_POD_GC,
    "TerminationByKubelet": POD_TERMINATED_BY_KUBELET,
}
"""Codes of Pods that Kubernetes deletes, by the reason of their condition DisruptionTarget.

They are those of the shipped podFailureSpec, and no configuration changes them. All are Transient, as -101 is.
"""

CONTAINER_UNRECOGNIZED_FAILED_PHRASE: Final = "ContainerUnrecognizedFailed"

PREDEFINED: Final[dict[int, Code]] = {
    code.code: code
    for code in (
        POD_SUCCEEDED,
        CONTAINER_TRANSIENT_FAILED,
        CONTAINER_TRANSIENT_CONFLICT_FAILED,
        CONTAINER_PERMANENT_FAILED,
        CONFIGMAP_EXTERNAL_DELETED,
        POD_EXTERNAL_DELETED,
        CONFIGMAP_LOCAL_CACHE_CREATION_TIMEOUT,
        POD_LOCAL_CACHE_CREATION_TIMEOUT,
        POD_CREATION_TRANSIENT_ERROR,
        POD_CREATION_PERMANENT_ERROR,
        STOP_FRAMEWORK_REQUESTED,
        FRAMEWORK_ATTEMPT_COMPLETION,
        DELETE_TASK_REQUESTED,
        POD_FAILED_WITHOUT_FAILED_CONTAINER,
        POD_CREATION_UNKNOWN_ERROR,
    )
}

RESERVED: Final = (range(-999, 1), range(200, 220))
"""Codes that podFailureSpec may not define: they belong to the contract with containers and clients."""

NEVER_RETRIED: Final = frozenset(
    {STOP_FRAMEWORK_REQUESTED.code, FRAMEWORK_ATTEMPT_COMPLETION.code, DELETE_TASK_REQUESTED.code}
)
"""Codes of attempts that ended on request: no policy retries them (docs/manual.md, Retry, rule 1)."""


@dataclass(frozen=True, slots=True)
class ContainerCompletion:
    """How one container ended; ``code`` is 0 for one that has not terminated."""

    name: str
    code: int
    reason: str = ""
    message: str = ""
    signal: int = 0


@dataclass(frozen=True, slots=True)
class PodCompletion:
    """What a Pod that ended said of itself, kept in its Task's completion status."""

    reason: str = ""
    message: str = ""
    containers: tuple[ContainerCompletion, ...] = ()


@dataclass(frozen=True, slots=True)
class Trigger:
    """Which Task made a completion policy complete the Framework's attempt."""

    message: str
    task_role_name: str
    task_index: int


@dataclass(frozen=True, slots=True)
class CompletionStatus:
    """How an attempt ended. Immutable: once set on an attempt it never changes (Monotonic exposure).

    ``trigger`` is of Frameworks only, ``pod`` of Tasks only. ``attributes`` is None when a podFailureSpec entry gave
    none (clients see ``null``), and empty when there are none.
    """

    code: int
    phrase: str
    type_name: str
    attributes: tuple[str, ...] | None
    diagnostics: str
    trigger: Trigger | None = None
    pod: PodCompletion | None = None

    @classmethod
    def of(
        cls, code: Code, diagnostics: str, *, trigger: Trigger | None = None, pod: PodCompletion | None = None
    ) -> CompletionStatus:
        """The status of an attempt that ended with ``code``."""
        return cls(code.code, code.phrase, code.type_name, code.attributes, diagnostics, trigger, pod)

    @property
    def succeeded(self) -> bool:
        """Whether the attempt did what it was for."""
        return self.type_name == SUCCEEDED

    @property
    def failed(self) -> bool:
        """Whether the attempt ended for any other reason."""
        return not self.succeeded

    @property
    def unexpected(self) -> bool:
        """Whether it failed other than on request."""
        return self.failed and self.code not in NEVER_RETRIED

    @property
    def category(self) -> str:
        """What the retry policies see in it: one of ``CATEGORIES``."""
        if self.succeeded:
            return SUCCEEDED
        if self.has(TRANSIENT):
            return TRANSIENT + CONFLICT if self.has(CONFLICT) else TRANSIENT
        return PERMANENT if self.has(PERMANENT) else UNKNOWN

    def has(self, attribute: str) -> bool:
        """Whether the completion type has ``attribute`` (Transient, Conflict, Permanent)."""
        return self.attributes is not None and attribute in self.attributes
