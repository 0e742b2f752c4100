"""API objects as commands receive them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from frameworkcontroller.api import fields, names

T = TypeVar("T")

Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class CachedObject(Generic[T]):
    """The identity of an object in an informer's cache, and a value."""

    key: str
    uid: str
    resource_version: str
    value: T

    @classmethod
    def of(cls, body: Mapping[str, Any], value: T) -> CachedObject[T]:
        """Return the record of an API object."""
        metadata = body["metadata"]
        return cls(key_of(body), metadata["uid"], metadata["resourceVersion"], value)


def key_of(body: Mapping[str, Any]) -> str:
    """Return ``namespace/name`` of an object."""
    return f"{body['metadata']['namespace']}/{body['metadata']['name']}"


def state_of(framework: Mapping[str, Any]) -> str | None:
    """Return the state of a Framework, if its status has one."""
    state: str | None = (framework.get("status") or {}).get("state")
    return state


def attempt_of(framework: Mapping[str, Any]) -> int:
    """Return the attempt that the status of a Framework shows; -1 if none has begun."""
    number = ((framework.get("status") or {}).get("attemptStatus") or {}).get("id")
    return number if isinstance(number, int) else -1


def queue_of(framework: Mapping[str, Any]) -> str:
    """Return Kueue's queue in which a Framework has quota, or else the queue of its label; "" if it has none."""
    admission = (framework.get("status") or {}).get("admission") or {}
    return str(admission.get("queueName") or queue_label_of(framework))


def queue_label_of(framework: Mapping[str, Any]) -> str:
    """Return Kueue's queue of the label of a Framework; "" if it has none."""
    return str((framework["metadata"].get("labels") or {}).get(names.QUEUE_NAME) or "")


def is_suspended(framework: Mapping[str, Any]) -> bool:
    """Return whether ``spec.suspend`` is true."""
    return bool((framework.get("spec") or {}).get("suspend"))


def condition_of(framework: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Return the condition of that type; an empty one if there is none."""
    conditions = (framework.get("status") or {}).get("conditions") or ()
    return next((one for one in conditions if one.get("type") == kind), {})


def roles_of(framework: Mapping[str, Any]) -> Sequence[Json]:
    """Return the roles in the spec of a Framework."""
    return (framework.get("spec") or {}).get("taskRoles") or ()


def task_numbers(framework: Mapping[str, Any]) -> dict[str, int]:
    """Return the wanted number of Tasks by role: as autoscaling has set it, or else as in the spec."""
    roles = roles_of(framework)
    numbers = {role["name"]: role.get("taskNumber", 1) for role in roles}
    if any(role.get("autoscaling") for role in roles):
        # A user can write any status.
        with suppress(KeyError, TypeError, ValueError, AttributeError):
            numbers |= _autoscaled(framework)
    return numbers


def _autoscaled(framework: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    # A late import: most commands decode no status.
    from frameworkcontroller.api.codec import with_plain_roles

    wanted = {role["name"] for role in roles_of(framework) if role.get("autoscaling")}
    attempt = (framework.get("status") or {}).get("attemptStatus") or {}
    for role in with_plain_roles(attempt).get("taskRoleStatuses") or ():
        found = role.get("autoscaling") or {}
        if role["name"] in wanted and found.get("scalerID"):
            yield role["name"], fields.number(found, "taskNumber")


def pod_selector(framework: str, role: str | None = None, index: int | None = None) -> str:
    """Return the label selector for the Pods of a Framework, a role or a Task."""
    labels = {names.FRAMEWORK_NAME: framework, names.TASKROLE_NAME: role, names.TASK_INDEX: index}
    return ",".join(f"{label}={value}" for label, value in labels.items() if value is not None)


def default_container(pod: Mapping[str, Any]) -> str | None:
    """Return the container of kubectl's annotation, or else the first one."""
    named: str | None = (pod["metadata"].get("annotations") or {}).get("kubectl.kubernetes.io/default-container")
    listed = (pod.get("spec") or {}).get("containers")
    return named or (listed[0]["name"] if listed else None)
