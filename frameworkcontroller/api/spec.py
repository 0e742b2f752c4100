"""The spec of a Framework, parsed once per generation.

Source: docs/reference.md, "spec". The bounds are not stricter than documented, because clients treat a refused spec as
a permanently failed job. Null means the default, because clients send it.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from frameworkcontroller.api import names
from frameworkcontroller.api.completion import FailureAction
from frameworkcontroller.api.inputmodel import INT32_MAX, INT64_MAX, InputModel
from frameworkcontroller.api.problems import Problem, ProblemError, problem_of

RETRY_ALWAYS = -2
RETRY_ON_FAILURE = -1
MAX_TASK_NUMBER = 10000

MAX_RULES = 20
MAX_RULE_VALUES = 255

MAX_TASK_COUNT = 50000
"""For all roles together: more than a compressed status can hold. The API server accepts any number of roles, and one
Framework must not take all memory."""


MAX_DEPENDENCIES = 5
"""For each role, as in a JobSet."""


class SpecError(ValueError):
    """A spec is invalid, although the API server accepted it. The text names each field and its value."""


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


class _SpecModel(InputModel):
    # Clients send keys of their own, and the API server has already pruned or kept them.
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="ignore")


class RetryBackoff(_SpecModel):
    """The delay before the first retry, doubled for each further one in a row up to a maximum. A base of 0: none."""

    base_seconds: Annotated[int, Field(ge=0, le=INT32_MAX)] = 10
    max_seconds: Annotated[int, Field(ge=0, le=INT32_MAX)] = 360

    @model_validator(mode="after")
    def _are_ordered(self) -> RetryBackoff:
        if self.max_seconds < self.base_seconds:
            text = f"must not be below baseSeconds ({self.base_seconds})"
            raise ProblemError(Problem(("maxSeconds",), text, self.max_seconds))
        return self


class RetryPolicy(_SpecModel):
    """When to retry. ``max_retry_count``: -2 always, even after success; -1 after each failure; n at most n times.

    ``backoff`` None: of a Task that of the configuration, of the Framework none.
    """

    fancy_retry_policy: bool = False
    max_retry_count: Annotated[int, Field(ge=RETRY_ALWAYS, le=INT32_MAX)] = 0
    backoff: RetryBackoff | None = None


class Operator(StrEnum):
    """Whether a code must be one of the values, or none of them."""

    IN = "In"
    NOT_IN = "NotIn"


def _distinct(values: tuple[int, ...]) -> tuple[int, ...]:
    for position, value in enumerate(values):
        if value in values[:position]:
            raise ProblemError(Problem((position,), "is there twice", value))
    return values


class CodePattern(_SpecModel):
    """Codes of failures: those in ``values``, or all others. No failure has the code 0."""

    operator: Annotated[Operator, Field(strict=False)]
    values: Annotated[
        tuple[Annotated[int, Field(ge=-INT32_MAX - 1, le=INT32_MAX)], ...],
        Field(strict=False, min_length=1, max_length=MAX_RULE_VALUES),
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


class PodConditionPattern(_SpecModel):
    """A condition of a Pod. ``reason`` None: any."""

    type: str
    status: Annotated[ConditionStatus, Field(strict=False)] = ConditionStatus.TRUE
    reason: str | None = None


class FailureRule(_SpecModel):
    """The action on failures that match the one pattern."""

    action: Annotated[FailureAction, Field(strict=False)]
    on_exit_codes: ExitCodePattern | None = None
    on_pod_conditions: tuple[PodConditionPattern, ...] = Field(default=(), strict=False, max_length=MAX_RULES)
    on_completion_codes: CodePattern | None = None

    @model_validator(mode="after")
    def _has_one_pattern(self) -> FailureRule:
        patterns = (self.on_exit_codes, self.on_pod_conditions, self.on_completion_codes)
        if sum(map(bool, patterns)) != 1:
            text = "must have exactly one of onExitCodes, onPodConditions and onCompletionCodes"
            raise ProblemError(Problem((), text))
        return self


class FailurePolicy(_SpecModel):
    """What follows failures of a Task's Pods; the first rule that matches counts."""

    rules: tuple[FailureRule, ...] = Field(default=(), strict=False, max_length=MAX_RULES)


class CompletionPolicy(_SpecModel):
    """The number of completed Tasks of a role that completes the attempt; less than 1 is never."""

    min_failed_task_count: Annotated[int, Field(ge=-1, le=INT32_MAX)] = 0
    min_succeeded_task_count: Annotated[int, Field(ge=-1, le=INT32_MAX)] = 0


class TaskSpec(_SpecModel):
    """The Tasks of a role. ``pod`` is a PodTemplateSpec, which is not validated.

    ``pod_graceful_deletion_timeout_sec``: seconds after which the deletion of a Pod is forced (availability); None is
    never (consistency). ``pre_running_deadline_seconds``: seconds after its creation by which a Pod must run.
    """

    retry_policy: RetryPolicy = RetryPolicy()
    pod_failure_policy: FailurePolicy | None = None
    pod_graceful_deletion_timeout_sec: Annotated[int, Field(ge=-(INT64_MAX + 1), le=INT64_MAX)] | None = None
    pod_force_deletion_policy: Annotated[PodForceDeletionPolicy, Field(strict=False)] = PodForceDeletionPolicy.ALWAYS
    pre_running_deadline_seconds: Annotated[int, Field(ge=1, le=INT32_MAX)] | None = None
    pod: dict[str, Any] = Field(default_factory=dict)


class Dependency(_SpecModel):
    """A role that another one waits for."""

    name: Annotated[str, StringConstraints(pattern=names.NAME_PATTERN)]
    status: Annotated[DependencyStatus, Field(strict=False)]


class TaskRoleSpec(_SpecModel):
    """A group of equal Tasks. ``depends_on``: what must hold once before the first Pod of an attempt is created."""

    name: Annotated[str, StringConstraints(pattern=names.NAME_PATTERN)]
    task_number: Annotated[int, Field(ge=0, le=MAX_TASK_NUMBER)] = 1
    depends_on: Annotated[tuple[Dependency, ...], Field(strict=False, max_length=MAX_DEPENDENCIES)] = ()
    framework_attempt_completion_policy: CompletionPolicy = CompletionPolicy()
    task: TaskSpec = TaskSpec()


class FrameworkSpec(_SpecModel):
    """The whole spec.

    ``active_deadline_seconds``: for all attempts together. ``ttl_seconds_after_finished``: None is the configured one.
    """

    description: str | None = None
    execution_type: Annotated[ExecutionType, Field(strict=False)] = ExecutionType.START
    suspend: bool = False
    retry_policy: RetryPolicy = RetryPolicy()
    active_deadline_seconds: Annotated[int, Field(ge=1, le=INT32_MAX)] | None = None
    ttl_seconds_after_finished: Annotated[int, Field(ge=0, le=INT32_MAX)] | None = None
    task_roles: tuple[TaskRoleSpec, ...] = Field(default=(), strict=False)

    @model_validator(mode="after")
    def _role_names_are_unique(self) -> FrameworkSpec:
        seen: dict[str, int] = {}
        for position, role in enumerate(self.task_roles):
            if seen.setdefault(role.name, position) != position:
                text = f"is already the name of taskRoles[{seen[role.name]}]"
                raise ProblemError(Problem(("taskRoles", position, "name"), text, role.name))
        if self.task_count > MAX_TASK_COUNT:
            text = f"{self.task_count} Tasks in all, where no status has room for more than {MAX_TASK_COUNT}"
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
            text = f"TaskRoles wait for each other: {' -> '.join(cycle)}"
            raise ProblemError(Problem(("taskRoles", position, "dependsOn"), text))
        return self

    @property
    def is_suspended(self) -> bool:
        """Whether nothing is to run for the time being. Stop completes a suspended Framework, too."""
        return self.suspend and self.execution_type is not ExecutionType.STOP

    @cached_property
    def dependents(self) -> tuple[TaskRoleSpec, ...]:
        """The roles that depend on others."""
        return tuple(role for role in self.task_roles if role.depends_on)

    @cached_property
    def task_count(self) -> int:
        """The number of Tasks of all roles."""
        return sum(role.task_number for role in self.task_roles)

    @cached_property
    def _roles(self) -> dict[str, TaskRoleSpec]:
        return {role.name: role for role in self.task_roles}

    def role(self, name: str) -> TaskRoleSpec | None:
        """The role of that name, None if there is none."""
        return self._roles.get(name)


def _cycle(edges: dict[str, list[str]]) -> list[str]:
    """A cycle of the graph, whose first node is also the last; empty if there is none."""
    waiting = {name: set(targets) for name, targets in edges.items() if targets}
    sources: dict[str, list[str]] = {}
    for name, targets in waiting.items():
        for target in targets:
            sources.setdefault(target, []).append(name)
    free = [name for name in edges if name not in waiting]
    while free:
        name = free.pop()
        for source in sources.get(name, ()):
            waiting[source].discard(name)
            if not waiting[source]:
                del waiting[source]
                free.append(source)
    if not waiting:
        return []
    way: dict[str, None] = {}
    name = next(name for name in edges if name in waiting)
    while name not in way:
        way[name] = None
        name = next(target for target in edges[name] if target in waiting)
    names_on_way = list(way)
    return [*names_on_way[names_on_way.index(name) :], name]


def parse_spec(spec: Any) -> FrameworkSpec:
    """Parse the JSON value of a spec.

    Raises:
        SpecError: a field is out of its bounds or has the wrong type.
    """
    if spec is None:
        spec = {}
    try:
        # Only by alias: clients must not send the names of the fields in Python.
        return FrameworkSpec.model_validate(spec, by_name=False, by_alias=True)
    except ValidationError as error:
        problems = (problem_of(detail, pattern=names.NAME_RULE, below=("spec",)) for detail in error.errors())
        raise SpecError("; ".join(map(str, problems))) from None
