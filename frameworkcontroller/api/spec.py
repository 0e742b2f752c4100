"""The spec of a Framework, parsed once per generation.

Source: docs/reference.md, "spec". The bounds are not stricter than documented, because clients treat a refused spec as
a permanently failed job. Null means the default, because clients send it.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

import orjson
from pydantic import AfterValidator, Field, StringConstraints, ValidationError, model_validator

from frameworkcontroller.api import hostlists, names
from frameworkcontroller.api.completion import FailureAction
from frameworkcontroller.api.inputmodel import INT32_MAX, INT64_MAX, MAX_TASK_NUMBER, SpecModel
from frameworkcontroller.api.packed import Packed, PackedTexts
from frameworkcontroller.api.problems import KeyPath, Problem, ProblemError, problem_of, shown
from frameworkcontroller.api.servingspec import (
    Autoscaling,
    DisruptionBudget,
    RoleService,
    RollingUpdate,
    ServicePort,
    UpdateStrategy,
    UpdateType,
)

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

RETRY_ALWAYS = -2
RETRY_ON_FAILURE = -1

MAX_RULES = 20
MAX_RULE_VALUES = 255

MAX_TASK_COUNT = 50000
"""For all roles together: more than a compressed status can hold. The API server accepts any number of roles, and one
Framework must not take all memory."""


MAX_AVOIDED_NODES = 16
"""For each Task."""

MAX_AVOIDED_IN_ALL = 40_000
"""For all Tasks of a Framework together: a status has to have room for them."""

MAX_DEPENDENCIES = 5
"""For each role, as in a JobSet."""

MAX_CHECKPOINT_GRACE_SEC = 3600
"""With a bound, no user holds quota for long that others wait for."""

MAX_SUBDOMAIN = 253
"""Characters of a DNS subdomain, which names of objects are."""

MAX_SERVICES = 100
"""Roles with a Service of their own."""

MAX_BUDGETS = 100
"""Roles with a disruption budget."""

MAX_AUTOSCALED = 100
"""Roles with autoscaling."""

MAX_CLAIMS = 20
"""For each role. With a bound, API servers accept the rule that the templates are immutable."""


_MAX_SHOWN: Final = 10
ENDING_FIELDS: Final = (
    "executionType",
    "suspend",
    "activeDeadlineSeconds",
    "ttlSecondsAfterFinished",
    "checkpointGraceSeconds",
)
"""Fields that end a Framework even if its spec is invalid (machine/specreading.py)."""


class SpecError(ValueError):
    """A spec is invalid, although the API server accepted it. The text names the first fields and their values."""


class ExecutionType(StrEnum):
    """Whether the Framework is only created, runs, or stops."""

    CREATE = "Create"
    START = "Start"
    STOP = "Stop"


class PodForceDeletionPolicy(StrEnum):
    """Which Pods are force-deleted after podGracefulDeletionTimeoutSec: all, or those on lost Nodes."""

    ALWAYS = "Always"
    NODE_UNREACHABLE = "NodeUnreachable"


class DependencyStatus(StrEnum):
    """When a dependency on a role holds: once its Pods are ready, or once all of its Tasks have succeeded."""

    READY = "Ready"
    COMPLETE = "Complete"


class ClaimRetention(StrEnum):
    """What happens to a volume claim that is not needed any longer."""

    RETAIN = "Retain"
    DELETE = "Delete"


class RetryBackoff(SpecModel):
    """The delay before the first retry, doubled for each further one in a row up to a maximum. A base of 0: none."""

    base_seconds: Annotated[int, Field(ge=0, le=INT32_MAX)] = 10
    max_seconds: Annotated[int, Field(ge=0, le=INT32_MAX)] = 360

    @model_validator(mode="after")
    def _are_ordered(self) -> RetryBackoff:
        if self.max_seconds < self.base_seconds:
            text = f"must not be below baseSeconds ({self.base_seconds})"
            raise ProblemError(Problem(("maxSeconds",), text, self.max_seconds))
        return self


class RetryPolicy(SpecModel):
    """When to retry. ``max_retry_count``: -2 always, even after success; -1 after each failure; n at most n times.

    ``backoff`` None: Tasks have the configured one, Frameworks none. ``reset_on_progress``: the count of retries and
    the back-off start again after an attempt that made progress.
    """

    fancy_retry_policy: bool = False
    max_retry_count: Annotated[int, Field(ge=RETRY_ALWAYS, le=INT32_MAX)] = 0
    backoff: RetryBackoff | None = None
    reset_on_progress: bool = False


class Operator(StrEnum):
    """Whether a code must be one of the values, or none of them."""

    IN = "In"
    NOT_IN = "NotIn"


def _distinct(values: tuple[int, ...]) -> tuple[int, ...]:
    for position, value in enumerate(values):
        if value in values[:position]:
            raise ProblemError(Problem((position,), "is there twice", value))
    return values


class CodePattern(SpecModel):
    """Codes of failures: those in ``values``, or all others. No failure has the code 0."""

    operator: Annotated[Operator, Field(strict=False)]
    values: Annotated[
        tuple[Annotated[int, Field(ge=-INT32_MAX - 1, le=INT32_MAX)], ...],
        Field(strict=False, min_length=1, max_length=MAX_RULE_VALUES, fail_fast=True),
        AfterValidator(_distinct),
    ]

    @model_validator(mode="after")
    def _can_match(self) -> Self:
        if self.operator is Operator.IN and 0 in self.values:
            raise ProblemError(Problem(("values", self.values.index(0)), "is no code of a failure", 0))
        return self

    def __contains__(self, code: int) -> bool:
        return (code in self.values) == (self.operator is Operator.IN)


class ExitCodePattern(CodePattern):
    """Exit codes other than 0 of containers. ``container_name`` None: of any container that is no sidecar."""

    container_name: str | None = None


class ConditionStatus(StrEnum):
    """Status of a condition."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class PodConditionPattern(SpecModel):
    """A condition of a Pod. ``reason`` None: any."""

    type: str
    status: Annotated[ConditionStatus, Field(strict=False)] = ConditionStatus.TRUE
    reason: str | None = None


class FailureRule(SpecModel):
    """The action on failures that match the one pattern."""

    action: Annotated[FailureAction, Field(strict=False)]
    on_exit_codes: ExitCodePattern | None = None
    on_pod_conditions: tuple[PodConditionPattern, ...] = Field(
        default=(), strict=False, max_length=MAX_RULES, fail_fast=True
    )
    on_completion_codes: CodePattern | None = None

    @model_validator(mode="after")
    def _has_one_pattern(self) -> FailureRule:
        patterns = (self.on_exit_codes, self.on_pod_conditions, self.on_completion_codes)
        if sum(map(bool, patterns)) != 1:
            text = "must have exactly one of onExitCodes, onPodConditions and onCompletionCodes"
            raise ProblemError(Problem((), text))
        return self


class FailurePolicy(SpecModel):
    """Rules for failures of a Task's Pods; the first match counts."""

    rules: tuple[FailureRule, ...] = Field(default=(), strict=False, max_length=MAX_RULES, fail_fast=True)


class AvoidNodes(SpecModel):
    """Nodes that the Pods of a Task avoid: those on which it failed ``after`` times, at most ``limit``.

    ``relax_after_seconds``: how long a Pod may fit on no node until the oldest is given up. ``on_codes`` None: the
    failures that a node can cause.
    """

    after: Annotated[int, Field(ge=1, le=INT32_MAX)] = 1
    limit: Annotated[int, Field(ge=1, le=MAX_AVOIDED_NODES)] = 8
    relax_after_seconds: Annotated[int, Field(ge=1, le=INT32_MAX)] = 600
    on_codes: CodePattern | None = None


class TaskRetryPolicy(RetryPolicy):
    """When to retry a Task, and on which nodes."""

    avoid_nodes: AvoidNodes | None = None


class CompletionPolicy(SpecModel):
    """The number of completed Tasks of a role that completes the attempt; less than 1 is never."""

    min_failed_task_count: Annotated[int, Field(ge=-1, le=INT32_MAX)] = 0
    min_succeeded_task_count: Annotated[int, Field(ge=-1, le=INT32_MAX)] = 0


class TaskSpec(SpecModel):
    """The Tasks of a role. ``pod`` is a PodTemplateSpec, which is not validated.

    ``pod_graceful_deletion_timeout_sec``: seconds after which the deletion of a Pod is forced (availability); None is
    never (consistency). ``pre_running_deadline_seconds``: seconds after its creation by which a Pod must run.
    """

    retry_policy: TaskRetryPolicy = TaskRetryPolicy()
    pod_failure_policy: FailurePolicy | None = None
    pod_graceful_deletion_timeout_sec: Annotated[int, Field(ge=-(INT64_MAX + 1), le=INT64_MAX)] | None = None
    pod_force_deletion_policy: Annotated[PodForceDeletionPolicy, Field(strict=False)] = PodForceDeletionPolicy.ALWAYS
    pre_running_deadline_seconds: Annotated[int, Field(ge=1, le=INT32_MAX)] | None = None
    pod: Packed = Packed({})

    @cached_property
    def template_hash(self) -> str:
        """Hash of ``pod``, whose placeholders are not replaced: no rescale changes it, and no order of keys."""
        text = orjson.dumps(self.pod.decoded(), option=orjson.OPT_SORT_KEYS)
        return hashlib.blake2b(text, digest_size=8).hexdigest()

    @cached_property
    def has_own_hostname(self) -> bool:
        """Whether the template sets the hostname or subdomain of the Pods, which then stay as they are."""
        return bool(self.in_spec("hostname") or self.in_spec("subdomain"))

    def in_spec(self, field: str) -> Any:
        """A field of the Pod's spec in the template, None if it has none."""
        if not self.pod.has_key(field):
            return None
        spec = self.pod.decoded().get("spec")
        return spec.get(field) if isinstance(spec, dict) else None

    def in_metadata(self, field: str, key: str) -> Any:
        """A label or annotation in the template, as ``field`` says, None if it has none."""
        if not self.pod.has_key(key):
            return None
        metadata = self.pod.decoded().get("metadata")
        values = metadata.get(field) if isinstance(metadata, dict) else None
        return values.get(key) if isinstance(values, dict) else None


class Dependency(SpecModel):
    """A role that another one waits for."""

    name: Annotated[str, StringConstraints(pattern=names.NAME_PATTERN)]
    status: Annotated[DependencyStatus, Field(strict=False)]


class ClaimMetadata(SpecModel):
    """Metadata of the volume claims of a template. ``name``: also of the volume in the Pods."""

    name: Annotated[str, StringConstraints(pattern=names.LABEL_PATTERN)]
    labels: PackedTexts = Packed({})
    annotations: PackedTexts = Packed({})


class ClaimTemplate(SpecModel):
    """A PersistentVolumeClaim for each Task of a role. ``spec`` is not validated."""

    api_version: Literal["v1"] | None = None
    kind: Literal["PersistentVolumeClaim"] | None = None
    metadata: ClaimMetadata
    spec: Packed = Packed({})


class ClaimRetentionPolicy(SpecModel):
    """What happens to volume claims when the Framework is deleted, and when their Task leaves by a scale-down."""

    when_deleted: Annotated[ClaimRetention, Field(strict=False)] = ClaimRetention.RETAIN
    when_scaled: Annotated[ClaimRetention, Field(strict=False)] = ClaimRetention.RETAIN


class TaskRoleSpec(SpecModel):
    """A group of equal Tasks. ``depends_on``: must hold once before an attempt's first Pod is created.

    ``min_ready_seconds``: how long the Pod of a Task has to be ready for the Task to be available.
    """

    name: Annotated[str, StringConstraints(pattern=names.NAME_PATTERN)]
    task_number: Annotated[int, Field(ge=0, le=MAX_TASK_NUMBER)] = 1
    depends_on: Annotated[tuple[Dependency, ...], Field(strict=False, max_length=MAX_DEPENDENCIES, fail_fast=True)] = ()
    framework_attempt_completion_policy: CompletionPolicy = CompletionPolicy()
    volume_claim_templates: Annotated[
        tuple[ClaimTemplate, ...], Field(strict=False, max_length=MAX_CLAIMS, fail_fast=True)
    ] = ()
    persistent_volume_claim_retention_policy: ClaimRetentionPolicy = ClaimRetentionPolicy()
    disruption_budget: DisruptionBudget | None = None
    update_strategy: UpdateStrategy = UpdateStrategy()
    min_ready_seconds: Annotated[int, Field(ge=0, le=INT32_MAX)] = 0
    autoscaling: Autoscaling | None = None
    task: TaskSpec = TaskSpec()

    @property
    def rolling_update(self) -> RollingUpdate | None:
        """How attempts end for a changed template, None if they do not."""
        strategy = self.update_strategy
        return None if strategy.type is UpdateType.ON_DELETE else strategy.rolling_update or RollingUpdate()

    @property
    def counts_ready(self) -> bool:
        """Whether a field of the role needs the number of its ready Tasks, which the status then shows."""
        return self.rolling_update is not None or self.min_ready_seconds > 0

    @property
    def most_tasks(self) -> int:
        """The largest number of Tasks that the role may have."""
        return self.task_number if self.autoscaling is None else self.autoscaling.max_tasks

    @model_validator(mode="after")
    def _claim_names_are_unique(self) -> TaskRoleSpec:
        seen: dict[str, int] = {}
        for position, template in enumerate(self.volume_claim_templates):
            name = template.metadata.name
            if seen.setdefault(name, position) != position:
                text = f"is already the name of volumeClaimTemplates[{seen[name]}]"
                raise ProblemError(Problem(("volumeClaimTemplates", position, "metadata", "name"), text, name))
        return self


class Network(SpecModel):
    """Host names of Pods, by a headless Service, and addresses of roles.

    ``subdomain`` None: the name of the Framework.
    """

    enable_dns_hostnames: bool = Field(default=True, alias="enableDNSHostnames")
    subdomain: Annotated[str, StringConstraints(pattern=names.SERVICE_PATTERN)] | None = None
    publish_not_ready_addresses: bool = True
    services: Annotated[tuple[RoleService, ...], Field(strict=False, max_length=MAX_SERVICES, fail_fast=True)] = ()


class Coordinator(SpecModel):
    """The Task that the others are to find."""

    task_role: Annotated[str, StringConstraints(pattern=names.NAME_PATTERN)]
    task_index: Annotated[int, Field(ge=0, le=MAX_TASK_NUMBER - 1)] = 0


class Chosen(SpecModel):
    """A choice without settings."""


class GangPolicy(SpecModel):
    """The Pods of a group are scheduled all or nothing. ``min_count``: how many are all; None is each one."""

    min_count: Annotated[int, Field(ge=1, le=INT32_MAX)] | None = None


class _Choice(SpecModel):
    """One of its fields is set."""

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        fields = type(self).model_fields
        if sum(getattr(self, field) is not None for field in fields) != 1:
            raise ProblemError(Problem((), f"must have exactly one of {' and '.join(fields)}"))
        return self


class SchedulingPolicy(_Choice):
    """How the Pods of a group are scheduled: one by one (``basic``), or all or nothing (``gang``)."""

    basic: Chosen | None = None
    gang: GangPolicy | None = None


class TopologyConstraint(SpecModel):
    """All Pods of a group run on Nodes with the same value of this label."""

    key: Annotated[str, StringConstraints(pattern=names.LABEL_KEY_PATTERN, max_length=names.MAX_LABEL_KEY)]


class SchedulingConstraints(SpecModel):
    """Where the Pods of a group may run."""

    topology: Annotated[tuple[TopologyConstraint, ...], Field(strict=False, max_length=1, fail_fast=True)] = ()


class DisruptionMode(_Choice):
    """How the scheduler preempts Pods of a group: one by one (``single``), or together (``all``)."""

    single: Chosen | None = None
    all: Chosen | None = None


class Scheduling(SpecModel):
    """The groups that a scheduler places as a whole. The names are from ``spec.scheduling`` of a batch/v1 Job.

    ``queue``: of Volcano.
    """

    scheduling_policy: SchedulingPolicy
    scheduling_constraints: SchedulingConstraints = SchedulingConstraints()
    disruption_mode: DisruptionMode | None = None
    queue: Annotated[str, StringConstraints(pattern=names.SUBDOMAIN_PATTERN, max_length=MAX_SUBDOMAIN)] | None = None


_NOT_WITH: Final = "must not be set with "
_GROUP_KEYS: Final = (
    ("annotations", names.KUBE_GROUP_ANNOTATION, "spec.scheduling"),
    ("annotations", names.VOLCANO_GROUP_ANNOTATION, "spec.scheduling"),
    ("labels", names.COSCHEDULING_GROUP_LABEL, "spec.scheduling"),
)
"""Keys that put a Pod into a group: the field of the metadata, the key, and the field of the spec that does so, too."""

_TOPOLOGY_KEYS: Final = tuple(
    ("annotations", key, "spec.scheduling.schedulingConstraints") for key in names.KUEUE_TOPOLOGY_ANNOTATIONS
)


class Progress(SpecModel):
    """Reports of progress, as whole seconds.

    ``interval_seconds``: between two writes of reports. ``deadline_seconds``: without progress, after which the attempt
    ends. ``start_deadline_seconds``: until the first report.
    """

    interval_seconds: Annotated[int, Field(ge=1, le=3600)] = 60
    deadline_seconds: Annotated[int, Field(ge=1, le=INT32_MAX)] | None = None
    start_deadline_seconds: Annotated[int, Field(ge=1, le=INT32_MAX)] | None = None

    @model_validator(mode="after")
    def _deadlines_allow_two_intervals(self) -> Progress:
        for key, seconds in (
            ("deadlineSeconds", self.deadline_seconds),
            ("startDeadlineSeconds", self.start_deadline_seconds),
        ):
            if seconds is not None and seconds < 2 * self.interval_seconds:
                text = f"must be at least twice intervalSeconds ({self.interval_seconds})"
                raise ProblemError(Problem((key,), text, seconds))
        return self


class FrameworkSpec(SpecModel):
    """The whole spec.

    ``active_deadline_seconds``: for all attempts together. ``ttl_seconds_after_finished``: None is the configured one.
    ``checkpoint_grace_seconds``: for a checkpoint before an end that was asked for.
    """

    description: str | None = None
    execution_type: Annotated[ExecutionType, Field(strict=False)] = ExecutionType.START
    suspend: bool = False
    retry_policy: RetryPolicy = RetryPolicy()
    active_deadline_seconds: Annotated[int, Field(ge=1, le=INT32_MAX)] | None = None
    ttl_seconds_after_finished: Annotated[int, Field(ge=0, le=INT32_MAX)] | None = None
    progress: Progress | None = None
    checkpoint_grace_seconds: Annotated[int, Field(ge=1, le=MAX_CHECKPOINT_GRACE_SEC)] | None = None
    network: Network | None = None
    coordinator: Coordinator | None = None
    scheduling: Scheduling | None = None
    task_roles: tuple[TaskRoleSpec, ...] = Field(default=(), strict=False, fail_fast=True)

    @model_validator(mode="after")
    def _role_names_are_unique(self) -> FrameworkSpec:
        seen: dict[str, int] = {}
        for position, role in enumerate(self.task_roles):
            if seen.setdefault(role.name, position) != position:
                text = f"is already the name of taskRoles[{seen[role.name]}]"
                raise ProblemError(Problem(("taskRoles", position, "name"), text, role.name))
        if (most := sum(role.most_tasks for role in self.task_roles)) > MAX_TASK_COUNT:
            text = f"{most} Tasks in all, where no status has room for more than {MAX_TASK_COUNT}"
            raise ProblemError(Problem(("taskRoles",), text))
        return self

    @model_validator(mode="after")
    def _dependencies_can_hold(self) -> FrameworkSpec:
        for position, role in enumerate(self.task_roles):
            seen: dict[str, int] = {}
            for number, dependency in enumerate(role.depends_on):
                text = ""
                if dependency.name == role.name:
                    text = "a TaskRole cannot depend on itself"
                elif dependency.name not in self._roles:
                    text = "is not the name of a TaskRole"
                elif seen.setdefault(dependency.name, number) != number:
                    text = f"is already the name of dependsOn[{seen[dependency.name]}]"
                if text:
                    path = ("taskRoles", position, "dependsOn", number, "name")
                    raise ProblemError(Problem(path, text, dependency.name))
        if cycle := _cycle({role.name: [one.name for one in role.depends_on] for role in self.task_roles}):
            position = next(i for i, role in enumerate(self.task_roles) if role.name == cycle[0])
            most = cycle[:_MAX_SHOWN] + ["…"] * (len(cycle) > _MAX_SHOWN)
            text = f"TaskRoles wait for each other: {' -> '.join(most)}"
            raise ProblemError(Problem(("taskRoles", position, "dependsOn"), text))
        return self

    @model_validator(mode="after")
    def _coordinator_is_a_task(self) -> FrameworkSpec:
        if (coordinator := self.coordinator) is not None:
            role = self.role(coordinator.task_role)
            if role is None:
                problem = Problem(("coordinator", "taskRole"), "is not the name of a TaskRole", coordinator.task_role)
                raise ProblemError(problem)
            least = role.task_number if role.autoscaling is None else role.autoscaling.min_tasks
            if coordinator.task_index >= least:
                text = f"TaskRole {role.name} has only {least} Tasks{' at minTasks' if role.autoscaling else ''}"
                raise ProblemError(Problem(("coordinator", "taskIndex"), text, coordinator.task_index))
        return self

    @model_validator(mode="after")
    def _services_have_roles(self) -> FrameworkSpec:
        seen: dict[str, int] = {}
        for position, service in enumerate(self.services):
            path, name = ("network", "services", position, "taskRole"), service.task_role
            if name not in self._roles:
                raise ProblemError(Problem(path, "is not the name of a TaskRole", name))
            if (first := seen.setdefault(name, position)) != position:
                raise ProblemError(Problem(path, f"is already in services[{first}]", name))
        return self

    @model_validator(mode="after")
    def _objects_of_roles_are_few(self) -> FrameworkSpec:
        if len(self.budgets) > MAX_BUDGETS:
            text = f"{len(self.budgets)} of them have a disruptionBudget, where {MAX_BUDGETS} are allowed"
            raise ProblemError(Problem(("taskRoles",), text))
        if len(self.autoscaled) > MAX_AUTOSCALED:
            text = f"{len(self.autoscaled)} of them have autoscaling, where {MAX_AUTOSCALED} are allowed"
            raise ProblemError(Problem(("taskRoles",), text))
        return self

    @model_validator(mode="after")
    def _hosts_are_known(self) -> FrameworkSpec:
        if not self.has_network_placeholders:
            return self
        found = self.coordinator
        unknown = "spec.coordinator is not set" if found is None else self._why_no_hosts(found.task_role)
        used = names.placeholder(names.COORDINATOR_HOST)
        for position, role in enumerate(self.task_roles):
            if unknown and used.encode() in role.task.pod.text:
                raise ProblemError(Problem(("taskRoles", position, "task", "pod"), f"{used} has no value: {unknown}"))
        for position, place in self._host_lists():
            if problem := self._why_no_hosts(place.hosts.role) or place.problem():
                path = ("taskRoles", position, "task", "pod", *place.path)
                raise ProblemError(Problem(path, problem, place.text))
        return self

    @model_validator(mode="after")
    def _groups_have_one_master(self) -> FrameworkSpec:
        scheduling = self.scheduling
        if scheduling is None:
            return self
        schedulers: dict[str, tuple[str, int]] = {}
        for position, role in enumerate(self.task_roles):
            path = ("taskRoles", position, "task", "pod")
            if role.task.in_spec("schedulingGroup") is not None:
                raise ProblemError(Problem((*path, "spec", "schedulingGroup"), f"{_NOT_WITH}spec.scheduling"))
            keys = [*_GROUP_KEYS, *(_TOPOLOGY_KEYS if scheduling.scheduling_constraints.topology else ())]
            for field, key, other in keys:
                if (value := role.task.in_metadata(field, key)) is not None:
                    raise ProblemError(Problem((*path, "metadata", field, key), _NOT_WITH + other, value))
            if scheduler := role.task.in_spec("schedulerName"):
                first, at = schedulers.setdefault(self.group_of("", role), (scheduler, position))
                if scheduler != first:
                    text = f"must be as in taskRoles[{at}], {shown(first)}: one scheduler places the Pods of a group"
                    raise ProblemError(Problem((*path, "spec", "schedulerName"), text, scheduler))
        return self

    @model_validator(mode="after")
    def _gangs_are_not_rolled(self) -> FrameworkSpec:
        if self.scheduling is None or self.scheduling.scheduling_policy.gang is None:
            return self
        for position, role in enumerate(self.task_roles):
            if role.rolling_update is not None:
                path = ("taskRoles", position, "updateStrategy", "type")
                text = f"{_NOT_WITH}spec.scheduling.schedulingPolicy.gang: a gang is placed as a whole"
                raise ProblemError(Problem(path, text, role.update_strategy.type.value))
        return self

    def group_of(self, framework: str, role: TaskRoleSpec) -> str:
        """The name of the PodGroup of the role's Pods, for a Framework of that name.

        A role that waits for others has its own: a group with both could never be complete.
        """
        return f"{framework}-{role.name}" if role.depends_on else framework

    def _why_no_hosts(self, role: str) -> str:
        if not self.has_hostnames:
            return "Pods have no host names without spec.network"
        found = self.role(role)
        if found is None:
            return f"{shown(role)} is not the name of a TaskRole"
        if found.task.has_own_hostname:
            return f"the Pods of TaskRole {role} have a hostname or subdomain of their own"
        return ""

    def _host_lists(self) -> Iterator[tuple[int, hostlists.HostListPlace]]:
        """Yield the placeholders of host lists, each with the position of the role that has it, if they count."""
        for position, role in enumerate(self.task_roles if self.has_network_placeholders else ()):
            if hostlists.MARK in role.task.pod.text:
                for place in hostlists.find(role.task.pod.decoded()):
                    yield position, place

    def host_list(self, framework: str, wanted: hostlists.HostList) -> bytes:
        """The value of a placeholder of a host list, for a Framework of that name, as a part of a JSON string."""
        return hostlists.list_text(wanted, framework, self.subdomain(framework), self._task_number(wanted.role))

    def host_list_size(self, framework: str, wanted: hostlists.HostList) -> int:
        """The length of ``host_list``."""
        return wanted.escaped_size(framework, self.subdomain(framework), self._task_number(wanted.role))

    def host_list_sizes(self, framework: str) -> Iterator[tuple[int, KeyPath, hostlists.HostListPlace, int]]:
        """Yield the host lists: the role's position, the list's path and place, and the bytes of the role's so far."""
        sizes: dict[int, int] = {}
        for position, place in self._host_lists():
            found = self.role(place.hosts.role)
            most = 0 if found is None else found.most_tasks
            size = place.hosts.size(framework, self.subdomain(framework), most)
            sizes[position] = sizes.get(position, 0) + size
            path = ("spec", "taskRoles", position, "task", "pod", *place.path)
            yield position, path, place, sizes[position]

    def _task_number(self, role: str) -> int:
        found = self.role(role)
        return 0 if found is None else found.task_number

    @property
    def has_hostnames(self) -> bool:
        """Whether Pods get host names, and the Framework a Service."""
        return self.network is not None and self.network.enable_dns_hostnames

    def subdomain(self, framework: str) -> str:
        """The name of the Service, for a Framework of that name."""
        return (self.network and self.network.subdomain) or framework

    @property
    def services(self) -> tuple[RoleService, ...]:
        """The Services of roles."""
        return () if self.network is None else self.network.services

    @cached_property
    def service_ports(self) -> dict[str, tuple[ServicePort, ...]]:
        """By role with a Service, its ports."""
        return {one.task_role: one.ports for one in self.services}

    @cached_property
    def budgets(self) -> dict[str, int]:
        """By role with a disruption budget, how many of its Tasks may be unavailable."""
        return {one.name: one.disruption_budget.max_unavailable for one in self.task_roles if one.disruption_budget}

    @cached_property
    def avoids_nodes(self) -> bool:
        """Whether Tasks of any role avoid nodes."""
        return any(role.task.retry_policy.avoid_nodes is not None for role in self.task_roles)

    @cached_property
    def autoscaled(self) -> tuple[TaskRoleSpec, ...]:
        """The roles with autoscaling."""
        return tuple(role for role in self.task_roles if role.autoscaling is not None)

    def with_task_numbers(self, numbers: Mapping[str, int]) -> FrameworkSpec:
        """The valid spec with other numbers of Tasks of these roles."""
        roles = tuple(
            role.model_copy(update={"task_number": numbers[role.name]}) if role.name in numbers else role
            for role in self.task_roles
        )
        # Not a copy, which would have the cached properties of the original.
        values = {name: getattr(self, name) for name in type(self).model_fields}
        return FrameworkSpec.model_construct(**{**values, "task_roles": roles})

    @cached_property
    def has_claims(self) -> bool:
        """Whether any role has volume claims."""
        return any(role.volume_claim_templates for role in self.task_roles)

    @property
    def has_network_placeholders(self) -> bool:
        """Whether ``names.NETWORK_PLACEHOLDERS`` count. An older template may contain such a text."""
        return self.network is not None or self.coordinator is not None

    @property
    def is_suspended(self) -> bool:
        """Whether nothing is to run for the time being. Stop completes a suspended Framework, too."""
        return self.suspend and self.execution_type is not ExecutionType.STOP

    @cached_property
    def dependents(self) -> tuple[TaskRoleSpec, ...]:
        """The roles that depend on others."""
        return tuple(role for role in self.task_roles if role.depends_on)

    @cached_property
    def ready_roles(self) -> tuple[TaskRoleSpec, ...]:
        """The roles whose ready Tasks are counted."""
        return tuple(role for role in self.task_roles if role.counts_ready)

    @cached_property
    def task_count(self) -> int:
        """The number of Tasks of all roles."""
        return sum(role.task_number for role in self.task_roles)

    @cached_property
    def first_ranks(self) -> dict[str, int]:
        """The rank of the first Task of each role: ranks count the Tasks of all roles, in the order of the spec."""
        numbers = (role.task_number for role in self.task_roles)
        return dict(zip(self._roles, itertools.accumulate(numbers, initial=0), strict=False))

    @cached_property
    def _roles(self) -> dict[str, TaskRoleSpec]:
        return {role.name: role for role in self.task_roles}

    def role(self, name: str) -> TaskRoleSpec | None:
        """The role of that name, None if there is none."""
        return self._roles.get(name)


def _cycle(edges: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a cycle of the graph, whose first node is also the last; empty if there is none."""
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        found: list[str] = error.args[1]
        # Each waits for the one before it. It begins with the first in the order of the spec.
        order = {name: at for at, name in enumerate(edges)}
        ring = found[:0:-1]
        start = min(range(len(ring)), key=lambda at: order[ring[at]])
        return [*ring[start:], *ring[:start], ring[start]]
    return []


def check_hostnames(framework: str, spec: FrameworkSpec) -> Problem | None:
    """The reason why the Framework of that name cannot have its host names and Services, None if it can or has none.

    The API server would refuse each Pod, or the Service, only when an attempt has begun.
    """
    return _check_services(framework, spec) or _check_hostnames(framework, spec)


def _check_services(framework: str, spec: FrameworkSpec) -> Problem | None:
    for position, service in enumerate(spec.services):
        name, text = names.role_object(framework, service.task_role), ""
        if len(name) > names.MAX_HOSTNAME:
            text = f"has {len(name)} characters, where {names.MAX_HOSTNAME} are allowed"
        elif not names.is_valid_service(name):
            text = "starts with a digit, and the name of a Service may not"
        elif spec.has_hostnames and name == spec.subdomain(framework):
            text = "is also spec.network.subdomain"
        if text:
            path = ("spec", "network", "services", position, "taskRole")
            return Problem(path, f"the name of its Service, {name}, {text}", service.task_role)
    return None


def _check_hostnames(framework: str, spec: FrameworkSpec) -> Problem | None:
    if spec.network is None or not spec.has_hostnames:
        return None
    if spec.network.subdomain is None and not names.is_valid_service(framework):
        text = "must be set: the name of the Framework starts with a digit, and the name of a Service may not"
        return Problem(("spec", "network", "subdomain"), text)
    for position, role in enumerate(spec.task_roles):
        if role.task.has_own_hostname or not role.most_tasks:
            continue
        name = names.pod_name(framework, role.name, role.most_tasks - 1)
        if len(name) > names.MAX_HOSTNAME:
            text = f"the host name {name} would have {len(name)} characters, where {names.MAX_HOSTNAME} are allowed"
            return Problem(("spec", "taskRoles", position, "name"), text, role.name)
    for _, path, place, size in spec.host_list_sizes(framework):
        if size > hostlists.MAX_BYTES:
            text = (
                f"with it, the host lists of each Pod have {size:,} bytes, where {hostlists.MAX_BYTES:,} are allowed; "
                "the barrier writes the addresses of all Tasks into files"
            )
            return Problem(path, text, place.text)
    return None


def parse_spec(spec: Any, *, framework: str | None = None) -> FrameworkSpec:
    """Parse the JSON value of a spec. ``framework``: its name, if host names are to be checked.

    Raises:
        SpecError: a field is out of its bounds or has the wrong type.
    """
    if spec is None:
        spec = {}
    try:
        # Only by alias: clients must not send the names of the fields in Python.
        parsed = FrameworkSpec.model_validate(spec, by_name=False, by_alias=True)
    except ValidationError as error:
        problems = itertools.islice(problems_of(error, spec), _MAX_SHOWN + 1)
        texts = [str(one) for one in problems]
        raise SpecError("; ".join(texts if len(texts) <= _MAX_SHOWN else (*texts[:-1], "and more"))) from None
    if framework is not None and (problem := check_hostnames(framework, parsed)) is not None:
        raise SpecError(str(problem))
    return parsed


def problems_of(error: ValidationError, spec: Any) -> Iterator[Problem]:
    """Yield the problems of all roles, and in other lists of the first wrong item.

    pydantic makes a kilobyte for each error, and a spec may have hundreds of thousands.
    """
    wrong = -1
    for detail in error.errors(include_url=False):
        match detail["loc"]:
            case ("taskRoles", int(wrong), *_):
                pass
        yield from _problems_of(detail, ("spec",))
    for position in range(wrong + 1, len(spec["taskRoles"])) if wrong >= 0 else ():
        try:
            TaskRoleSpec.model_validate(spec["taskRoles"][position], by_name=False, by_alias=True)
        except ValidationError as refused:
            for detail in refused.errors(include_url=False):
                yield from _problems_of(detail, ("spec", "taskRoles", position))


def _problems_of(detail: ErrorDetails, below: KeyPath) -> Iterator[Problem]:
    # The items of a list that were refused are missing, and found themselves.
    if detail["type"] != "too_short" or not detail["input"]:
        yield problem_of(detail, names.RULES, below)
