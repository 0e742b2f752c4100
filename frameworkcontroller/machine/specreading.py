"""The spec that the machine goes by. A large one is parsed in a thread, before its pass.

A Framework with an invalid spec still ends: by Stop, a suspension, the deadline, an eviction, a deletion and the end of
its retention (docs/lifecycle.md, "An invalid spec"). Each field that ends it counts as soon as it is valid itself;
until then its last valid value counts, if this process has seen one. Tasks stay, and nothing begins.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import orjson

from frameworkcontroller.api.objects import Framework, FrameworkRecord
from frameworkcontroller.api.spec import (
    ENDING_FIELDS,
    ExecutionType,
    FrameworkSpec,
    SpecError,
    TaskRoleSpec,
    parse_spec,
)
from frameworkcontroller.api.status import FrameworkStatus
from frameworkcontroller.machine.kernel.tracker import Tracker

LARGE_SPEC_BYTES: Final = 64 << 10
"""Size from which a spec is to be parsed in a thread."""


@dataclass(frozen=True, slots=True)
class ReadSpec:
    """The spec of a record, None if it is invalid. ``digest``: of the text, b"" unless that is large.

    ``error``, ``ends``: of an invalid spec, the reason and the values of ``ENDING_FIELDS``.
    """

    spec: FrameworkSpec | None
    digest: bytes
    error: str = ""
    ends: Any = None

    def is_of(self, record: FrameworkRecord) -> bool:
        """Whether it is large, and the spec of this record."""
        return bool(self.digest) and self.digest == _digest_of(record)


def read_spec(record: FrameworkRecord) -> ReadSpec:
    """Parse the spec of a record. One of 1.4 MB takes tens of milliseconds, or with many TaskRoles a quarter second."""
    digest, given = _digest_of(record), orjson.loads(record.spec_json)
    try:
        if record.spec_problem:
            raise SpecError(record.spec_problem)
        return ReadSpec(parse_spec(given, framework=record.name), digest)
    except SpecError as error:
        ends = {field: given.get(field) for field in ENDING_FIELDS} if isinstance(given, dict) else None
        return ReadSpec(None, digest, str(error), ends)


def _digest_of(record: FrameworkRecord) -> bytes:
    if len(record.spec_json) <= LARGE_SPEC_BYTES:
        return b""
    digest = hashlib.blake2b(record.spec_json, digest_size=16)
    digest.update(record.spec_problem.encode())
    return digest.digest()


# --- numbers of Tasks -------------------------------------------------------------------------------------------------


def adapted(framework: Framework, tracker: Tracker) -> Framework:
    """The Framework with the numbers of Tasks that the machine goes by: of roles with autoscaling, the stored ones.

    A number in the status counts once it is persisted. A role without one keeps its Tasks: to switch autoscaling on
    does not scale. A new role has as many as its spec says. The bounds of the spec count in any case.
    """
    spec, life = framework.spec, tracker.process
    if not spec.autoscaled:
        if life.stored_numbers:
            life.stored_numbers = {}
        return framework
    before, numbers = {} if tracker.is_head_settled else life.stored_numbers, {}
    life.stored_numbers = {}
    for role in spec.autoscaled:
        status = tracker.roles.get(role.name)
        if role.name in before:
            number = before[role.name]
        elif status is None:
            number = role.task_number
        elif status.autoscaling is None or not status.autoscaling.scaler_id:
            number = sum(not task.is_leaving for task in status.tasks)
        else:
            number = status.autoscaling.task_number
        life.stored_numbers[role.name] = number
        numbers[role.name] = number if role.autoscaling is None else role.autoscaling.bounded(number)
    if life.adapted is None or life.adapted[0] is not spec or life.adapted[1] != numbers:
        life.adapted = spec, numbers, spec.with_task_numbers(numbers)
    return replace(framework, spec=life.adapted[2])


# --- an invalid spec --------------------------------------------------------------------------------------------------


_NO_ROLE: Final = TaskRoleSpec(name="a")


class Ends(NamedTuple):
    """The values of ``ENDING_FIELDS``."""

    execution_type: ExecutionType = ExecutionType.START
    suspend: bool = False
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None
    checkpoint_grace_seconds: int | None = None

    @property
    def is_asked_for(self) -> bool:
        return self.suspend or self.execution_type is ExecutionType.STOP


def ends_of(spec: FrameworkSpec) -> Ends:
    return Ends(*(getattr(spec, field) for field in Ends._fields))


def ends_in(given: Any, last: Ends) -> Ends:
    """The ending fields of an invalid spec, given as its JSON value. ``last``: of the last valid one."""
    return Ends(*(_value(given, *names) for names in zip(ENDING_FIELDS, Ends._fields, last, strict=True)))


def _value(given: Any, key: str, field: str, last: Any) -> Any:
    if not isinstance(given, dict):
        return last
    try:
        return getattr(parse_spec({key: given.get(key)}), field)
    except SpecError:
        return last


def spec_to_end(ends: Ends, status: FrameworkStatus | None) -> FrameworkSpec:
    """The spec that the machine goes by: it has the roles and Tasks of the status."""
    roles = () if status is None else status.attempt.roles
    counts = {role.name: sum(not task.is_leaving for task in role.tasks) for role in roles}
    task_roles = [_NO_ROLE.model_copy(update={"name": name, "task_number": count}) for name, count in counts.items()]
    return FrameworkSpec().model_copy(update={**ends._asdict(), "task_roles": tuple(task_roles)})
