"""Completion codes, and the statuses made from them.

Source: docs/failure-codes.md. A code tells how an attempt ended: its phrase is for people, its type for retry policies.
Positive codes are exit codes of containers. So is a negative one of a failure that no pattern has recognized: Windows
has such exit codes.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from frameworkcontroller.api.fields import Interned, added

SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
TRANSIENT: Final = "Transient"
CONFLICT: Final = "Conflict"
PERMANENT: Final = "Permanent"
UNKNOWN: Final = "Unknown"

CATEGORIES: Final = (SUCCEEDED, TRANSIENT, TRANSIENT + CONFLICT, PERMANENT, UNKNOWN)
"""The categories of retry policies (docs/failures-and-retries.md, "Retry"). Unknown: a failure of no known kind."""


@dataclass(frozen=True, slots=True)
class Code:
    """A completion code. Clients see the order of ``attributes``."""

    code: int
    phrase: str
    type_name: str = FAILED
    attributes: tuple[str, ...] | None = ()


PREDEFINED: Final[dict[int, Code]] = {}
"""Codes of the contract by number."""


def _predefined(code: int, phrase: str, type_name: str, *attributes: str) -> Code:
    made = PREDEFINED[code] = Code(code, phrase, type_name, attributes)
    return made


POD_SUCCEEDED = _predefined(0, "Succeeded", SUCCEEDED)
CONTAINER_TRANSIENT_FAILED = _predefined(200, "ContainerTransientFailed", FAILED, TRANSIENT)
CONTAINER_TRANSIENT_CONFLICT_FAILED = _predefined(201, "ContainerTransientConflictFailed", FAILED, TRANSIENT, CONFLICT)
CONTAINER_PERMANENT_FAILED = _predefined(210, "ContainerPermanentFailed", FAILED, PERMANENT)
CONFIGMAP_EXTERNAL_DELETED = _predefined(-100, "ConfigMapExternalDeleted", FAILED, TRANSIENT)
POD_EXTERNAL_DELETED = _predefined(-101, "PodExternalDeleted", FAILED, TRANSIENT)
CONFIGMAP_LOCAL_CACHE_CREATION_TIMEOUT = _predefined(-110, "ConfigMapLocalCacheCreationTimeout", FAILED, TRANSIENT)
POD_LOCAL_CACHE_CREATION_TIMEOUT = _predefined(-111, "PodLocalCacheCreationTimeout", FAILED, TRANSIENT)
POD_CREATION_TRANSIENT_ERROR = _predefined(-120, "PodCreationTransientError", FAILED, TRANSIENT)
POD_CREATION_PERMANENT_ERROR = _predefined(-200, "PodCreationPermanentError", FAILED, PERMANENT)
STOP_FRAMEWORK_REQUESTED = _predefined(-210, "StopFrameworkRequested", FAILED, PERMANENT)
FRAMEWORK_ATTEMPT_COMPLETION = _predefined(-220, "FrameworkAttemptCompletion", FAILED, PERMANENT)
DELETE_TASK_REQUESTED = _predefined(-230, "DeleteTaskRequested", FAILED, PERMANENT)
FRAMEWORK_SUSPEND_REQUESTED = _predefined(-240, "FrameworkSuspendRequested", FAILED, TRANSIENT)
FRAMEWORK_EVICTED = _predefined(-241, "FrameworkEvicted", FAILED, TRANSIENT)
TASK_TEMPLATE_UPDATED = _predefined(-242, "TaskTemplateUpdated", FAILED, TRANSIENT)
FRAMEWORK_ACTIVE_DEADLINE_EXCEEDED = _predefined(-250, "FrameworkActiveDeadlineExceeded", FAILED, PERMANENT)
NO_PROGRESS = _predefined(-252, "NoProgress", FAILED, TRANSIENT)
TASK_PRE_RUNNING_DEADLINE_EXCEEDED = _predefined(-260, "TaskPreRunningDeadlineExceeded", FAILED, TRANSIENT, CONFLICT)
TASK_NODE_GIVEN_UP = _predefined(-261, "TaskAvoidedNodeGivenUp", FAILED, TRANSIENT)
POD_FAILED_WITHOUT_FAILED_CONTAINER = _predefined(-300, "PodFailedWithoutFailedContainer", FAILED)
POD_CREATION_UNKNOWN_ERROR = _predefined(-310, "PodCreationUnknownError", FAILED)

_PREEMPTED = Code(-1008, "PodPreemptedByScheduler", FAILED, (TRANSIENT,))

DISRUPTIONS: Final = {
    "PreemptionByScheduler": _PREEMPTED,
    "PreemptionByKubeScheduler": _PREEMPTED,
    "DeletionByTaintManager": Code(-1009, "PodEvictedByTaint", FAILED, (TRANSIENT,)),
    "EvictionByEvictionAPI": Code(-1010, "PodEvictedByApi", FAILED, (TRANSIENT,)),
    "DeletionByPodGC": Code(-1011, "PodDeletedByPodGC", FAILED, (TRANSIENT,)),
    "TerminationByKubelet": Code(-1012, "PodTerminatedByKubelet", FAILED, (TRANSIENT,)),
}
"""Codes of Pods that Kubernetes deletes, by the reason of their condition DisruptionTarget.

The shipped podFailureSpec has the same codes, and no configuration changes these. All are Transient, as -101 is.
"""

DISPLACED: Final = frozenset({-1003, -1007, *(code.code for code in DISRUPTIONS.values())})
"""Codes of Pods that had to make room, or whose node was shut down: no failures of a node.

The first two are of the shipped podFailureSpec.
"""

CONTAINER_UNRECOGNIZED_FAILED_PHRASE: Final = "ContainerUnrecognizedFailed"

RESERVED: Final = (range(-999, 1), range(200, 220))
"""Codes that podFailureSpec may not define: they belong to the contract with containers and clients."""

ALWAYS_RETRIED: Final = frozenset(
    {
        FRAMEWORK_SUSPEND_REQUESTED.code,
        FRAMEWORK_EVICTED.code,
        TASK_TEMPLATE_UPDATED.code,
        TASK_NODE_GIVEN_UP.code,
    }
)
"""Codes of attempts that are retried at once, without being counted. The last two are of Tasks."""

NEVER_RETRIED: Final = frozenset(
    {
        STOP_FRAMEWORK_REQUESTED.code,
        FRAMEWORK_ATTEMPT_COMPLETION.code,
        DELETE_TASK_REQUESTED.code,
        FRAMEWORK_ACTIVE_DEADLINE_EXCEEDED.code,
    }
)
"""Codes of attempts that no policy retries (docs/failures-and-retries.md, "Retry", rule 1)."""

REQUESTED: Final = NEVER_RETRIED - {FRAMEWORK_ACTIVE_DEADLINE_EXCEEDED.code} | ALWAYS_RETRIED
"""Codes of attempts that ended on request."""


class Outcome(StrEnum):
    """How an attempt ended, for people: one that ended on request was stopped, and has not failed."""

    SUCCEEDED = "succeeded"
    STOPPED = "stopped"
    FAILED = "failed"


def is_one_of(codes: Container[int], code: int, phrase: str | None) -> bool:
    """Whether the controller gave an attempt one of these codes. A container may exit with the same number."""
    return code in codes and phrase != CONTAINER_UNRECOGNIZED_FAILED_PHRASE


def outcome_of(code: int, phrase: str | None, type_name: str | None) -> Outcome:
    """Return the outcome of an attempt. The controller, the archive, the commands and the pages have no other rule."""
    if type_name == SUCCEEDED:
        return Outcome.SUCCEEDED
    return Outcome.STOPPED if is_one_of(REQUESTED, code, phrase) else Outcome.FAILED


@dataclass(frozen=True, slots=True)
class ContainerCompletion:
    """How a container ended. ``code`` is 0 if it has not terminated."""

    name: Interned
    code: int = 0
    reason: Interned = ""
    message: str = ""
    signal: int = 0


@dataclass(frozen=True, slots=True)
class PodCompletion:
    """How a Pod ended, by its own status; part of the completion status of its Task."""

    reason: str = ""
    message: str = ""
    containers: tuple[ContainerCompletion, ...] = ()


@dataclass(frozen=True, slots=True)
class Trigger:
    """The Task that completed the attempt of its Framework, by a completion policy."""

    message: str = ""
    task_role_name: str = ""
    task_index: int = 0


class FailureAction(StrEnum):
    """The action of a podFailurePolicy's rule."""

    COUNT = "Count"
    IGNORE = "Ignore"
    FAIL_TASK = "FailTask"
    RESTART_FRAMEWORK = "RestartFramework"
    FAIL_FRAMEWORK = "FailFramework"


ENDING_ACTIONS: Final = frozenset({FailureAction.RESTART_FRAMEWORK, FailureAction.FAIL_FRAMEWORK})
"""Actions that end the attempt of the Framework."""


@dataclass(frozen=True, slots=True)
class DecidedRule:
    """The rule of a podFailurePolicy that matched a failure. ``rule``: its position."""

    action: FailureAction
    rule: int

    def __str__(self) -> str:
        return f"podFailurePolicy.rules[{self.rule}] is {self.action}"


@dataclass(frozen=True, slots=True)
class CompletionStatus:
    """How an attempt ended. It never changes (monotonic exposure).

    Only Frameworks have a ``trigger``, only Tasks a ``pod``. ``attributes`` is None (``null``) if an entry of
    podFailureSpec has no such key. ``policy``: of a Task, the rule that matched; of the Framework, the one that ended
    the attempt.
    """

    code: int
    phrase: str = ""
    type_name: str = ""
    attributes: tuple[str, ...] | None = None
    diagnostics: str = ""
    trigger: Trigger | None = None
    pod: PodCompletion | None = None
    policy: DecidedRule | None = added("", default=None)

    @classmethod
    def of(
        cls, code: Code, diagnostics: str, *, trigger: Trigger | None = None, pod: PodCompletion | None = None
    ) -> CompletionStatus:
        """The status of an attempt that ended with ``code``."""
        return cls(code.code, code.phrase, code.type_name, code.attributes, diagnostics, trigger, pod)

    @property
    def succeeded(self) -> bool:
        """Whether the attempt succeeded."""
        return self.type_name == SUCCEEDED

    @property
    def failed(self) -> bool:
        """Whether the attempt did not succeed."""
        return not self.succeeded

    def is_one_of(self, codes: Container[int]) -> bool:
        """Whether the controller has given it one of these codes."""
        return is_one_of(codes, self.code, self.phrase)

    @property
    def outcome(self) -> Outcome:
        """How the attempt ended, for people."""
        return outcome_of(self.code, self.phrase, self.type_name)

    @property
    def unexpected(self) -> bool:
        """Whether it failed, and not on request."""
        return self.outcome is Outcome.FAILED

    @property
    def ends_framework_attempt(self) -> bool:
        """Whether a rule has ended the attempt of the Framework for it."""
        return self.policy is not None and self.policy.action in ENDING_ACTIONS

    @property
    def category(self) -> str:
        """Its category for retry policies, one of ``CATEGORIES``."""
        if self.succeeded:
            return SUCCEEDED
        if self.has(TRANSIENT):
            return TRANSIENT + CONFLICT if self.has(CONFLICT) else TRANSIENT
        return PERMANENT if self.has(PERMANENT) else UNKNOWN

    def has(self, attribute: str) -> bool:
        """Whether the completion type has ``attribute`` (Transient, Conflict, Permanent)."""
        return self.attributes is not None and attribute in self.attributes
