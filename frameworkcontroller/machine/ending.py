"""The spec of a Framework whose own one is invalid: it has what ends the Framework, and begins nothing.

Nothing that ends an attempt needs a valid spec: Stop, a suspension, the deadline, an eviction by Kueue, a deletion, and
the end of the retention. Each field that asks for one counts as soon as it is valid itself; otherwise its last valid
value does, as far as this process has seen one. Meanwhile no attempt, Pod or other object is created, and Tasks stay as
they are: what their ends mean is for the policies of a valid spec (docs/lifecycle.md, "An invalid spec").
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from frameworkcontroller.api.spec import (
    ENDING_FIELDS,
    ExecutionType,
    FrameworkSpec,
    SpecError,
    TaskRoleSpec,
    parse_spec,
)
from frameworkcontroller.api.status import FrameworkStatus

_NO_ROLE: Final = TaskRoleSpec(name="a")


class Ends(NamedTuple):
    """The values of ``ENDING_FIELDS``."""

    execution_type: ExecutionType = ExecutionType.START
    suspend: bool = False
    active_deadline_seconds: int | None = None
    ttl_seconds_after_finished: int | None = None

    @property
    def is_asked_for(self) -> bool:
        """Whether nothing is to run."""
        return self.suspend or self.execution_type is ExecutionType.STOP


def ends_of(spec: FrameworkSpec) -> Ends:
    """What ends a Framework with this spec."""
    return Ends(*(getattr(spec, field) for field in Ends._fields))


def ends_in(given: Any, last: Ends) -> Ends:
    """What ends a Framework with an invalid spec, given as its JSON value. ``last``: that of the last valid one."""
    return Ends(*(_value(given, *names) for names in zip(ENDING_FIELDS, Ends._fields, last, strict=True)))


def _value(given: Any, key: str, field: str, last: Any) -> Any:
    if not isinstance(given, dict):
        return last
    try:
        return getattr(parse_spec({key: given.get(key)}), field)
    except SpecError:
        return last


def spec_to_end(ends: Ends, status: FrameworkStatus | None) -> FrameworkSpec:
    """The spec that the machine goes by: roles and Tasks are those of the status."""
    roles = () if status is None else status.attempt.roles
    counts = {role.name: sum(not task.deletion_pending for task in role.tasks) for role in roles}
    task_roles = [_NO_ROLE.model_copy(update={"name": name, "task_number": count}) for name, count in counts.items()]
    return FrameworkSpec().model_copy(update={**ends._asdict(), "task_roles": tuple(task_roles)})
