"""The kinds of objects that the controller reads and writes."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Self

from frameworkcontroller.api import names


class Kind(StrEnum):
    """A kind, and how its objects belong to a Framework.

    ``identity``: the annotations that say whose an object is. ``is_companion``: no status records such an object.
    ``of_task``: it belongs to a single Task.
    """

    identity: tuple[str, ...]
    is_companion: bool
    of_task: bool

    def __new__(
        cls, name: str, identity: tuple[str, ...] = (), is_companion: bool = False, of_task: bool = False
    ) -> Self:
        kind = str.__new__(cls, name)
        kind._value_ = name
        kind.identity, kind.is_companion, kind.of_task = identity, is_companion, of_task
        return kind

    FRAMEWORK = "Framework"
    CONFIGMAP = "ConfigMap", names.CONFIGMAP_IDENTITY
    POD = "Pod", names.POD_IDENTITY, False, True
    NODE = "Node"
    SERVICE = "Service", names.SERVICE_IDENTITY, True
    VOLUME_CLAIM = "PersistentVolumeClaim", names.CLAIM_IDENTITY, True, True
    WORKLOAD = "Workload", (), True
    RESOURCE_FLAVOR = "ResourceFlavor"
    WORKLOAD_PRIORITY_CLASS = "WorkloadPriorityClass"
    PRIORITY_CLASS = "PriorityClass"
    PODGROUP = "PodGroup", names.PODGROUP_IDENTITY, True
    VOLCANO_PODGROUP = "PodGroup.scheduling.volcano.sh", names.PODGROUP_IDENTITY, True
    COSCHEDULING_PODGROUP = "PodGroup.scheduling.x-k8s.io", names.PODGROUP_IDENTITY, True


PODGROUPS: Final = frozenset({Kind.PODGROUP, Kind.VOLCANO_PODGROUP, Kind.COSCHEDULING_PODGROUP})
"""Kinds of the groups of a gang, one for each scheduler."""
