"""Fields of a spec for roles that serve requests: updates, numbers of Tasks, disruption budgets and Services."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, PlainValidator, StringConstraints, model_validator

from frameworkcontroller.api import names
from frameworkcontroller.api.inputmodel import INT32_MAX, MAX_TASK_NUMBER, SpecModel
from frameworkcontroller.api.problems import Problem, ProblemError

MAX_SERVICE_PORTS = 64
"""For each Service."""


class DisruptionBudget(SpecModel):
    """How many Tasks of a role evictions may make unavailable at a time."""

    max_unavailable: Annotated[int, Field(ge=0, le=INT32_MAX)]


class UpdateType(StrEnum):
    """When Tasks get a changed template: with their next attempt, or a few at a time, whose attempts end for it."""

    ON_DELETE = "OnDelete"
    ROLLING_UPDATE = "RollingUpdate"


_PERCENTAGE: Final = re.compile(r"([1-9][0-9]?|100)%")


def _number_or_percentage(value: Any) -> int | str:
    is_number = type(value) is int and 1 <= value <= INT32_MAX
    if not (is_number or (isinstance(value, str) and _PERCENTAGE.fullmatch(value))):
        raise ProblemError(Problem((), "must be a number from 1 on, or a percentage from 1% to 100%", value))
    found: int | str = value
    return found


class RollingUpdate(SpecModel):
    """``max_unavailable``: of the role's Tasks, as a number or a percentage. ``partition``: the first updated index."""

    max_unavailable: Annotated[int | str, PlainValidator(_number_or_percentage, json_schema_input_type=int | str)] = 1
    partition: Annotated[int, Field(ge=0, le=INT32_MAX)] = 0

    def limit(self, task_number: int) -> int:
        """The number of Tasks that may be unavailable. A percentage is rounded down, and at least 1."""
        if isinstance(self.max_unavailable, int):
            return self.max_unavailable
        return max(1, task_number * int(self.max_unavailable[:-1]) // 100)


class UpdateStrategy(SpecModel):
    """How a changed template reaches the Tasks of a role."""

    type: Annotated[UpdateType, Field(strict=False)] = UpdateType.ON_DELETE
    rolling_update: RollingUpdate | None = None

    @model_validator(mode="after")
    def _fits_its_type(self) -> UpdateStrategy:
        if self.rolling_update is not None and self.type is not UpdateType.ROLLING_UPDATE:
            raise ProblemError(Problem(("rollingUpdate",), f"must only be set with type {UpdateType.ROLLING_UPDATE}"))
        return self


class Autoscaling(SpecModel):
    """The bounds between which a FrameworkRoleScaler sets the number of Tasks."""

    min_tasks: Annotated[int, Field(ge=0, le=MAX_TASK_NUMBER)] = 1
    max_tasks: Annotated[int, Field(ge=1, le=MAX_TASK_NUMBER)]

    @model_validator(mode="after")
    def _bounds_are_in_order(self) -> Autoscaling:
        if self.max_tasks < self.min_tasks:
            text = f"must not be below minTasks ({self.min_tasks})"
            raise ProblemError(Problem(("maxTasks",), text, self.max_tasks))
        return self

    def bounded(self, number: int) -> int:
        """The number, or the bound that it exceeds."""
        return max(self.min_tasks, min(self.max_tasks, number))


class Protocol(StrEnum):
    """The protocol of a port."""

    TCP = "TCP"
    UDP = "UDP"
    SCTP = "SCTP"


_PortNumber = Annotated[int, Field(ge=1, le=65535)]


def _target_port(value: Any) -> Any:
    if isinstance(value, bool) or not (names.is_port_name(value) if isinstance(value, str) else value in _PORTS):
        text = "must be the number of a port, 1 to 65535, or the name of a container's port"
        raise ProblemError(Problem((), text, value))
    return value


_PORTS: Final = range(1, 65536)


class ServicePort(SpecModel):
    """A port of a Service. ``target_port``: of the Pods, by number or the container's name for it; None: ``port``."""

    name: Annotated[str, StringConstraints(pattern=names.PORT_PATTERN)] | None = None
    port: _PortNumber
    target_port: Annotated[int | str, BeforeValidator(_target_port)] | None = None
    protocol: Annotated[Protocol, Field(strict=False)] = Protocol.TCP
    app_protocol: (
        Annotated[str, StringConstraints(pattern=names.APP_PROTOCOL_PATTERN, max_length=names.MAX_LABEL_KEY)] | None
    ) = None


class RoleService(SpecModel):
    """A Service with one address for the Pods of a role that are ready."""

    task_role: Annotated[str, StringConstraints(pattern=names.NAME_PATTERN)]
    ports: Annotated[
        tuple[ServicePort, ...], Field(strict=False, min_length=1, max_length=MAX_SERVICE_PORTS, fail_fast=True)
    ]

    @model_validator(mode="after")
    def _ports_differ(self) -> RoleService:
        numbers: dict[tuple[int, Protocol], int] = {}
        by_name: dict[str, int] = {}
        for position, one in enumerate(self.ports):
            if (first := numbers.setdefault((one.port, one.protocol), position)) != position:
                raise ProblemError(Problem(("ports", position, "port"), f"is already in ports[{first}]", one.port))
            if one.name is None and len(self.ports) > 1:
                raise ProblemError(Problem(("ports", position, "name"), "must be set, as there are several ports"))
            if one.name is not None and (first := by_name.setdefault(one.name, position)) != position:
                text = f"is already the name of ports[{first}]"
                raise ProblemError(Problem(("ports", position, "name"), text, one.name))
        return self
