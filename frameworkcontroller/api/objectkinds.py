"""The kinds of objects that the controller reads and writes: the only place where a kind is declared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Self

from frameworkcontroller.api import names
from frameworkcontroller.api.objects import (
    CompanionRecord,
    budget_record,
    claim_record,
    scaler_record,
    service_record,
)
from frameworkcontroller.api.podgroups import (
    IMMUTABLE_VERSION,
    coscheduling_podgroup_record,
    podgroup_record,
    volcano_podgroup_record,
)
from frameworkcontroller.api.resources import FRAMEWORKS, ROLE_SCALERS
from frameworkcontroller.api.workloads import workload_record
from frameworkcontroller.kube import resources
from frameworkcontroller.kube.resources import Resource


@dataclass(frozen=True, slots=True)
class Companion:
    """How the objects of a kind that no status records are watched.

    ``decode``: the record of an object.
    ``older_versions``: of an API that a cluster may not serve, the older versions of its resource, the best first; None
    for an API that all clusters serve.
    ``is_indexed``: a Framework has several, which are found by its key.
    ``is_own``: of this project. The controller installs their CRD if it is not served.
    ``of_queues``: watched from the start, and only if the configuration has queues. Frameworks may be gone whose
    Workloads still have quota. The others are watched from the first Framework on that needs one.
    """

    decode: Callable[[Mapping[str, Any]], CompanionRecord]
    older_versions: tuple[str, ...] | None = None
    is_indexed: bool = False
    is_own: bool = False
    of_queues: bool = False


class Kind(StrEnum):
    """A kind, and how its objects belong to a Framework.

    ``resource``: the newest version that the controller uses; an API server may serve another one.
    ``identity``: the annotations that say whose an object is.
    ``companion``: None if a status records the objects, or if they belong to no Framework.
    ``of_task``: an object belongs to a single Task.
    """

    resource: Resource
    identity: tuple[str, ...]
    companion: Companion | None
    is_companion: bool
    of_task: bool

    def __new__(
        cls,
        name: str,
        # A default only for the type checker: a call with a name alone finds the kind.
        resource: Resource = FRAMEWORKS,
        identity: tuple[str, ...] = (),
        companion: Companion | None = None,
        of_task: bool = False,
    ) -> Self:
        kind = str.__new__(cls, name)
        kind._value_ = name
        kind.resource, kind.identity, kind.companion, kind.of_task = resource, identity, companion, of_task
        # A plain attribute: plans read it for each action.
        kind.is_companion = companion is not None
        return kind

    FRAMEWORK = "Framework", FRAMEWORKS
    CONFIGMAP = "ConfigMap", resources.CONFIGMAPS, names.CONFIGMAP_IDENTITY
    POD = "Pod", resources.PODS, names.POD_IDENTITY, None, True
    NODE = "Node", resources.NODES
    SERVICE = "Service", resources.SERVICES, names.SERVICE_IDENTITY, Companion(service_record)
    ROLE_SCALER = (
        "FrameworkRoleScaler",
        ROLE_SCALERS,
        names.SCALER_IDENTITY,
        Companion(scaler_record, older_versions=(), is_own=True),
    )
    DISRUPTION_BUDGET = (
        "PodDisruptionBudget",
        resources.PODDISRUPTIONBUDGETS,
        names.SERVICE_IDENTITY,
        Companion(budget_record, older_versions=("v1beta1",)),
    )
    VOLUME_CLAIM = (
        "PersistentVolumeClaim",
        resources.PERSISTENTVOLUMECLAIMS,
        names.CLAIM_IDENTITY,
        Companion(claim_record, is_indexed=True),
        True,
    )
    WORKLOAD = (
        "Workload",
        resources.WORKLOADS,
        (),
        Companion(workload_record, is_indexed=True, of_queues=True),
    )
    RESOURCE_FLAVOR = "ResourceFlavor", resources.RESOURCEFLAVORS
    WORKLOAD_PRIORITY_CLASS = "WorkloadPriorityClass", resources.WORKLOADPRIORITYCLASSES
    PRIORITY_CLASS = "PriorityClass", resources.PRIORITYCLASSES
    PODGROUP = (
        "PodGroup",
        resources.PODGROUPS,
        names.PODGROUP_IDENTITY,
        Companion(podgroup_record, older_versions=("v1alpha3", IMMUTABLE_VERSION)),
    )
    VOLCANO_PODGROUP = (
        "PodGroup.scheduling.volcano.sh",
        resources.VOLCANO_PODGROUPS,
        names.PODGROUP_IDENTITY,
        Companion(volcano_podgroup_record, older_versions=()),
    )
    COSCHEDULING_PODGROUP = (
        "PodGroup.scheduling.x-k8s.io",
        resources.COSCHEDULING_PODGROUPS,
        names.PODGROUP_IDENTITY,
        Companion(coscheduling_podgroup_record, older_versions=()),
    )


PODGROUPS: Final = frozenset({Kind.PODGROUP, Kind.VOLCANO_PODGROUP, Kind.COSCHEDULING_PODGROUP})
"""Kinds of the groups of a gang, one for each scheduler."""

RESOURCES: Final[Mapping[Kind, Resource]] = {kind: kind.resource for kind in Kind}
"""The resources of the kinds, in the newest versions that the controller uses."""
