"""The spec of a Framework, read once per generation.

Source: docs/reference.md, "spec". The bounds are the documented ones and never stricter: a client treats a
refused spec as a job that failed permanently. Absent and null both mean the default, because real clients send either.
"""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field, StringConstraints, ValidationError, model_validator

from frameworkcontroller.api import names
from frameworkcontroller.api.inputmodel import INT32_MAX, INT64_MAX, InputModel
from frameworkcontroller.api.problems import Problem, ProblemError, problem_of

RETRY_ALWAYS = -2
RETRY_ON_FAILURE = -1
MAX_TASK_NUMBER = 10000

MAX_TASK_COUNT = 50000
"""More Tasks, of all roles together, than the status of one Framework has room for, however well it is compressed. The
API server takes any number of roles, so that without this bound one Framework could take all memory.
"""


class SpecError(ValueError):
    """A spec that no schema refused but that cannot be run. Its text names each bad field and its value."""


class ExecutionType(StrEnum):
    """What the user wants of the Framework."""

    CREATE = "Create"
    START = "Start"
    STOP = "Stop"


class _SpecModel(InputModel):
    # Clients send keys of their own, and the API server has already pruned or kept them.
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="ignore")


class RetryPolicy(_SpecModel):
    """When to try again. ``max_retry_count``: -2 always, even on success; -1 on every failure; n that many times."""

    fancy_retry_policy: bool = False
    max_retry_count: Annotated[int, Field(ge=RETRY_ALWAYS, le=INT32_MAX)] = 0


class CompletionPolicy(_SpecModel):
    """How many completed Tasks of a role complete the attempt; less than 1 is never."""

    min_failed_task_count: Annotated[int, Field(ge=-1, le=INT32_MAX)] = 0
    min_succeeded_task_count: Annotated[int, Field(ge=-1, le=INT32_MAX)] = 0


class TaskSpec(_SpecModel):
    """What each Task of a role is. ``pod`` is a PodTemplateSpec that passes through untouched.

    ``pod_graceful_deletion_timeout_sec``: None never force-deletes (consistency); n does so n seconds after a Pod's
    deletion began (availability).
    """

    retry_policy: RetryPolicy = RetryPolicy()
    pod_graceful_deletion_timeout_sec: Annotated[int, Field(ge=-(INT64_MAX + 1), le=INT64_MAX)] | None = None
    pod: dict[str, Any] = Field(default_factory=dict)


class TaskRoleSpec(_SpecModel):
    """One group of alike Tasks."""

    name: Annotated[str, StringConstraints(pattern=names.NAME_PATTERN)]
    task_number: Annotated[int, Field(ge=0, le=MAX_TASK_NUMBER)] = 1
    framework_attempt_completion_policy: CompletionPolicy = CompletionPolicy()
    task: TaskSpec = TaskSpec()


class FrameworkSpec(_SpecModel):
    """What the user asked for."""

    description: str | None = None
    execution_type: Annotated[ExecutionType, Field(strict=False)] = ExecutionType.START
    retry_policy: RetryPolicy = RetryPolicy()
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

    @cached_property
    def task_count(self) -> int:
        """Tasks of all roles together."""
        return sum(role.task_number for role in self.task_roles)

    @cached_property
    def _roles(self) -> dict[str, TaskRoleSpec]:
        return {role.name: role for role in self.task_roles}

    def role(self, name: str) -> TaskRoleSpec | None:
        """The role of that name, if the spec has it."""
        return self._roles.get(name)


def parse_spec(spec: Any) -> FrameworkSpec:
    """Read a Framework's ``spec`` as the API server holds it.

    Raises:
        SpecError: a field is out of its documented bounds or of the wrong type; the text names field and value.
    """
    if spec is None:
        spec = {}
    try:
        # By the names of the wire alone: what the code calls a field is nothing that a client may send.
        return FrameworkSpec.model_validate(spec, by_name=False, by_alias=True)
    except ValidationError as error:
        problems = (problem_of(detail, pattern=names.NAME_RULE, below=("spec",)) for detail in error.errors())
        raise SpecError("; ".join(map(str, problems))) from None
