"""PodGroup manifests for each gang scheduler, Pod membership fields, and unsupported features.

Source: docs/shared-clusters.md, "Gangs". A field of spec.scheduling that the scheduler does not support is refused by
its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.objects import Framework
from frameworkcontroller.api.podgroups import DROPPABLE, IMMUTABLE_VERSION, GangScheduler
from frameworkcontroller.api.problems import Problem, shown
from frameworkcontroller.api.quantities import Amounts, pod_requests
from frameworkcontroller.api.spec import FrameworkSpec, Scheduling, TaskRoleSpec
from frameworkcontroller.machine.kernel.manifests import with_entries
from frameworkcontroller.machine.kernel.requests import Kind

VERSION: Final = "v1beta1"
"""Version of the native PodGroups, if another one is not known to be served."""

_PODGROUPS: Final = {
    GangScheduler.KUBERNETES: (Kind.PODGROUP, "scheduling.k8s.io"),
    GangScheduler.VOLCANO: (Kind.VOLCANO_PODGROUP, "scheduling.volcano.sh/v1beta1"),
    GangScheduler.COSCHEDULING: (Kind.COSCHEDULING_PODGROUP, "scheduling.x-k8s.io/v1alpha1"),
}
"""Kind and apiVersion of the PodGroups of a scheduler; the native ones have several versions."""

_DEFAULT_SCHEDULER: Final = "default-scheduler"
_SCHEDULERS: Final = {
    GangScheduler.VOLCANO: "volcano",
    GangScheduler.COSCHEDULING: "scheduler-plugins-scheduler",
}
"""The schedulerName of Pods whose template has none, as these projects install themselves."""
_STRANGERS: Final = {
    GangScheduler.KUBERNETES: _SCHEDULERS[GangScheduler.VOLCANO],
    GangScheduler.COSCHEDULING: _SCHEDULERS[GangScheduler.VOLCANO],
    GangScheduler.VOLCANO: _DEFAULT_SCHEDULER,
}
"""A schedulerName of Pods whose scheduler is known to ignore these PodGroups. Others may be of a second profile."""


@dataclass(frozen=True, slots=True)
class Group:
    """The roles whose Pods are placed together. ``waits``: the one role waits for others."""

    name: str
    roles: tuple[TaskRoleSpec, ...]
    waits: bool


def groups_of(framework: str, spec: FrameworkSpec) -> tuple[Group, ...]:
    """The groups of a Framework of that name."""
    by_name: dict[str, list[TaskRoleSpec]] = {}
    for role in spec.task_roles:
        by_name.setdefault(spec.group_of(framework, role), []).append(role)
    return tuple(Group(name, tuple(roles), bool(roles[0].depends_on)) for name, roles in by_name.items())


# --- the scheduler -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Gangs:
    """Who places the gangs of a Framework. ``filled_in``: the schedulerName of Pods whose template has none, or ""."""

    scheduler: GangScheduler
    filled_in: str
    groups: tuple[Group, ...]

    @property
    def kind(self) -> Kind:
        """The kind of the PodGroups."""
        return _PODGROUPS[self.scheduler][0]


def gangs_of(framework: Framework, configured: GangScheduler, scheduler_name: str | None) -> Gangs:
    """Who places the gangs of a Framework with spec.scheduling. ``scheduler_name``: the one of the configuration."""
    scheduler = configured
    if configured is GangScheduler.AUTO:
        # A template may have a value of any type there.
        schedulers = [role.task.in_spec("schedulerName") for role in framework.spec.task_roles]
        named = bool(schedulers) and all(one == _SCHEDULERS[GangScheduler.VOLCANO] for one in schedulers)
        scheduler = GangScheduler.VOLCANO if named else GangScheduler.KUBERNETES
    default = _SCHEDULERS.get(scheduler, "")
    filled_in = scheduler_name or default if default else ""
    return Gangs(scheduler, filled_in, groups_of(framework.name, framework.spec))


def refusal(framework: Framework, gangs: Gangs) -> Problem | None:
    """The field that the scheduler does not support, or that makes a group impossible; None if there is none."""
    return next(_refusals(framework, gangs), None)


def _refusals(framework: Framework, gangs: Gangs) -> Iterator[Problem]:
    scheduling, scheduler = framework.spec.scheduling, gangs.scheduler
    if scheduling is None:
        return
    path = ("spec", "scheduling")
    if scheduler is not GangScheduler.KUBERNETES:
        if scheduling.scheduling_constraints.topology:
            yield Problem((*path, "schedulingConstraints", "topology"), f"{scheduler} has no such constraint")
        if scheduling.disruption_mode is not None:
            yield Problem((*path, "disruptionMode"), f"{scheduler} has no such mode")
    if scheduler is not GangScheduler.VOLCANO and scheduling.queue is not None:
        yield Problem((*path, "queue"), f"{scheduler} has no queues, only volcano has", scheduling.queue)
    positions = {role.name: position for position, role in enumerate(framework.spec.task_roles)}
    for group in gangs.groups:
        if scheduler is GangScheduler.COSCHEDULING and len(group.name) > names.MAX_LABEL_VALUE:
            of_name = ("spec", "taskRoles", positions[group.roles[0].name], "name")
            text = f"the PodGroup {group.name} would have {len(group.name)} characters, where coscheduling allows "
            yield Problem(of_name, f"{text}{names.MAX_LABEL_VALUE}", group.roles[0].name)
        named = group.roles[0].task.in_spec("schedulerName")
        if named == _STRANGERS[scheduler] != gangs.filled_in:
            of_pods = ("spec", "taskRoles", positions[group.roles[0].name], "task", "pod", "spec", "schedulerName")
            yield Problem(of_pods, f"this scheduler ignores PodGroups of {scheduler}", named)
        yield from _differences(group, positions, "schedulerName", gangs.filled_in or _DEFAULT_SCHEDULER)
        if scheduler is GangScheduler.KUBERNETES:
            # The group's priority class counts for all of its Pods.
            yield from _differences(group, positions, "priorityClassName", "")


def _differences(group: Group, positions: Mapping[str, int], field: str, default: str) -> Iterator[Problem]:
    """The roles whose templates differ in the field from the first role of their group."""
    first, *others = group.roles
    wanted = first.task.in_spec(field) or default
    for role in others:
        value = role.task.in_spec(field) or default
        if value != wanted:
            path = ("spec", "taskRoles", positions[role.name], "task", "pod", "spec", field)
            text = f"must be as in taskRoles[{positions[first.name]}], {shown(wanted)}: a group of Pods has only one"
            yield Problem(path, text, value)


# --- PodGroups ----------------------------------------------------------------------------------------------------


def dropped_fields(scheduling: Scheduling, kept: Sequence[str]) -> list[str]:
    """The fields of a native PodGroup that the API server has dropped. ``kept``: those that the group has."""
    wanted = {
        "schedulingConstraints": bool(scheduling.scheduling_constraints.topology),
        "disruptionMode": scheduling.disruption_mode is not None,
    }
    return [name for name in DROPPABLE if wanted[name] and name not in kept]


def minimum_in_spec(spec: FrameworkSpec) -> int | None:
    """The minCount of the spec: None is each Task, and 1 that Pods are placed one by one."""
    gang = None if spec.scheduling is None else spec.scheduling.scheduling_policy.gang
    return 1 if gang is None else gang.min_count


def podgroup_body(
    framework: Framework, gangs: Gangs, group: Group, minimum: int, *, attempt: tuple[int, str], version: str
) -> bytes:
    """A PodGroup of an attempt. ``attempt``: its id, and the UID of its ConfigMap. ``version``: of the native API.

    The ConfigMap owns it without waiting for it: a finalizer of the native ones is taken off by a controller that may
    be switched off.
    """
    attempt_id, configmap_uid = attempt
    scheduling = framework.spec.scheduling
    configmap = names.configmap_name(framework.name)
    version = f"/{version or VERSION}" if gangs.scheduler is GangScheduler.KUBERNETES else ""
    return orjson.dumps(
        {
            "apiVersion": _PODGROUPS[gangs.scheduler][1] + version,
            "kind": "PodGroup",
            "metadata": {
                "name": group.name,
                "namespace": framework.namespace,
                "labels": {names.FRAMEWORK_NAME: framework.name},
                "annotations": {
                    names.FRAMEWORK_NAMESPACE: framework.namespace,
                    names.FRAMEWORK_NAME: framework.name,
                    names.CONFIGMAP_NAME: configmap,
                    names.FRAMEWORK_UID: framework.uid,
                    names.FRAMEWORK_ATTEMPT_ID: str(attempt_id),
                    names.CONFIGMAP_UID: configmap_uid,
                },
                "ownerReferences": [
                    {
                        "apiVersion": "v1",
                        "kind": "ConfigMap",
                        "name": configmap,
                        "uid": configmap_uid,
                        "controller": True,
                        "blockOwnerDeletion": False,
                    }
                ],
            },
            "spec": _spec(gangs.scheduler, group, scheduling, minimum, version) if scheduling is not None else {},
        }
    )


def _spec(scheduler: GangScheduler, group: Group, scheduling: Scheduling, minimum: int, version: str) -> dict[str, Any]:
    if scheduler is GangScheduler.KUBERNETES:
        gang = scheduling.scheduling_policy.gang is not None
        body: dict[str, Any] = {"schedulingPolicy": {"gang": {"minCount": minimum}} if gang else {"basic": {}}}
        if topology := scheduling.scheduling_constraints.topology:
            body["schedulingConstraints"] = {"topology": [{"key": one.key} for one in topology]}
        if (mode := scheduling.disruption_mode) is not None:
            together = mode.all is not None
            body["disruptionMode"] = {"all": {}} if together else {"single": {}}
            if version.endswith(IMMUTABLE_VERSION):
                body["disruptionMode"] = "PodGroup" if together else "Pod"
    else:
        body = {"minMember": minimum}
        if scheduler is GangScheduler.VOLCANO:
            if scheduling.queue is not None:
                body["queue"] = scheduling.queue
            if scheduling.scheduling_policy.gang is not None:
                body["minResources"] = _requests(group.roles, minimum).formatted()
    if scheduler is not GangScheduler.COSCHEDULING and (priority := _priority_class(group)):
        body["priorityClassName"] = priority
    return body


def minimum_patch(gangs: Gangs, group: Group, minimum: int) -> bytes:
    """The merge patch that sets the minimum of a PodGroup of a gang."""
    if gangs.scheduler is GangScheduler.KUBERNETES:
        return orjson.dumps({"spec": {"schedulingPolicy": {"gang": {"minCount": minimum}}}})
    spec: dict[str, Any] = {"minMember": minimum}
    if gangs.scheduler is GangScheduler.VOLCANO:
        count = sum(role.task_number for role in group.roles)
        # A merge patch keeps the resources that it does not name.
        names_of_all = dict.fromkeys(_requests(group.roles, count).formatted())
        spec["minResources"] = {**names_of_all, **_requests(group.roles, minimum).formatted()}
    return orjson.dumps({"spec": spec})


def _requests(roles: Iterable[TaskRoleSpec], count: int) -> Amounts:
    """The requests of the first ``count`` Tasks of the roles."""
    total = Amounts()
    for role in roles:
        number = min(count, role.task_number)
        count -= number
        if number:
            total.add(pod_requests(role.task.pod.decoded().get("spec")), number)
    return total


def _priority_class(group: Group) -> str:
    value = group.roles[0].task.in_spec("priorityClassName")
    return value if isinstance(value, str) else ""


# --- Pods ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Member:
    """The fields that put a Pod into a group. ``group`` "": into none."""

    scheduler: GangScheduler
    group: str
    filled_in: str

    @property
    def field(self) -> Sequence[str]:
        """The path of the field of the Pod that an API server may drop, empty if none may."""
        native = self.group and self.scheduler is GangScheduler.KUBERNETES
        return ("spec", "schedulingGroup", "podGroupName") if native else ()

    def apply(self, metadata: dict[str, Any], spec: dict[str, Any], pod_name: str) -> None:
        if self.filled_in and not spec.get("schedulerName"):
            spec["schedulerName"] = self.filled_in
        if self.group and self.scheduler is GangScheduler.KUBERNETES:
            spec["schedulingGroup"] = {"podGroupName": self.group}
        elif self.group and self.scheduler is GangScheduler.VOLCANO:
            keys = (names.KUBE_GROUP_ANNOTATION, names.VOLCANO_GROUP_ANNOTATION)
            metadata["annotations"] = with_entries(metadata.get("annotations"), dict.fromkeys(keys, self.group))
        elif self.group:
            ours = {names.COSCHEDULING_GROUP_LABEL: self.group}
            metadata["labels"] = with_entries(metadata.get("labels"), ours)
