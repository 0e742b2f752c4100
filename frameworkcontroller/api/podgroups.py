"""PodGroups of gang schedulers, as the controller reads them, and names of their interfaces.

Source: the APIs ``scheduling.k8s.io`` (Kubernetes 1.36 and 1.37), ``scheduling.volcano.sh/v1beta1`` and
``scheduling.x-k8s.io/v1alpha1`` (scheduler-plugins).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from frameworkcontroller.api import fields, names
from frameworkcontroller.api.objects import CompanionRecord, decoder_of, owned_fields


class GangScheduler(StrEnum):
    """Who places gangs. AUTO: Volcano if all templates name it, else Kubernetes."""

    AUTO = "auto"
    KUBERNETES = "kubernetes"
    VOLCANO = "volcano"
    COSCHEDULING = "coscheduling"


IMMUTABLE_VERSION: Final = "v1alpha2"
"""The version of Kubernetes 1.36, in which the minimum is immutable, and disruptionMode a text."""

DROPPABLE: Final = {
    "schedulingConstraints": "TopologyAwareWorkloadScheduling",
    "disruptionMode": "WorkloadAwarePreemption",
}
"""Fields that an API server drops without a word while a feature is off. Source: pkg/registry/scheduling/podgroup."""

_PLACED_TYPES: Final = ("PodGroupInitiallyScheduled", "PodGroupScheduled")
"""Conditions of Kubernetes 1.37 and 1.36 that say whether the group was placed."""

_UNSCHEDULABLE: Final = "Unschedulable"
"""A condition of Volcano: True while the group cannot be placed."""

_PLACED_PHASES: Final = frozenset({"Scheduled", "Running", "Unknown", "Finished", "Completed"})
"""Phases of Volcano and coscheduling of a group whose Pods were placed. Unknown: some run, others cannot be placed."""


@dataclass(slots=True, frozen=True)
class PodGroupRecord(CompanionRecord):
    """A PodGroup. ``minimum``: 0 if it has none. ``message``: why the scheduler does not place it, "" if unknown.

    ``kept``: those of ``DROPPABLE`` that it has. ``last_checkpoint``: its annotation, as text, "" if none.
    """

    kind: str = "PodGroup"
    minimum: int = 0
    placed: bool = False
    message: str = ""
    kept: tuple[str, ...] = ()
    last_checkpoint: str = ""

    @property
    def inputs(self) -> tuple[object, ...]:
        """The fields whose change is an event."""
        return self.identity, self.minimum, self.placed, self.message


@decoder_of("PodGroup")
def podgroup_record(body: Mapping[str, Any]) -> PodGroupRecord:
    """The record of a PodGroup of Kubernetes. Raises ObjectError if it is invalid."""
    spec = body.get("spec") or {}
    policy = spec.get("schedulingPolicy") or {}
    conditions = [one for one in _conditions(body) if one.get("type") in _PLACED_TYPES]
    placed = any(one.get("status") == "True" for one in conditions)
    message = next((fields.text(one, "message") for one in conditions), "")
    minimum = fields.number(policy.get("gang") or {}, "minCount")
    kept = tuple(name for name in DROPPABLE if spec.get(name))
    return _record(body, "PodGroup", minimum, message, placed=placed, kept=kept)


@decoder_of("PodGroup.scheduling.volcano.sh")
def volcano_podgroup_record(body: Mapping[str, Any]) -> PodGroupRecord:
    """The record of a PodGroup of Volcano. Raises ObjectError if it is invalid."""
    wrong = (one for one in _conditions(body) if (one.get("type"), one.get("status")) == (_UNSCHEDULABLE, "True"))
    message = next((fields.text(one, "message") for one in wrong), "")
    return _record(body, "PodGroup.scheduling.volcano.sh", _min_member(body), message, placed=_has_run(body))


@decoder_of("PodGroup.scheduling.x-k8s.io")
def coscheduling_podgroup_record(body: Mapping[str, Any]) -> PodGroupRecord:
    """The record of a PodGroup of coscheduling. Raises ObjectError if it is invalid."""
    return _record(body, "PodGroup.scheduling.x-k8s.io", _min_member(body), "", placed=_has_run(body))


def _record(
    body: Mapping[str, Any], kind: str, minimum: int, message: str, *, placed: bool, kept: tuple[str, ...] = ()
) -> PodGroupRecord:
    metadata = body["metadata"]
    controllers = (one for one in metadata.get("ownerReferences") or () if one.get("controller"))
    configmap = next((one["name"] for one in controllers if one.get("kind") == "ConfigMap"), "")
    return PodGroupRecord(
        *owned_fields(metadata, names.PODGROUP_IDENTITY),
        framework=names.framework_of(configmap),
        kind=kind,
        minimum=minimum,
        placed=placed,
        message="" if placed else message,
        kept=kept,
        last_checkpoint=fields.text(metadata.get("annotations") or {}, names.LAST_CHECKPOINT),
    )


def _conditions(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return (body.get("status") or {}).get("conditions") or []


def _min_member(body: Mapping[str, Any]) -> int:
    return fields.number(body.get("spec") or {}, "minMember")


def _has_run(body: Mapping[str, Any]) -> bool:
    return (body.get("status") or {}).get("phase") in _PLACED_PHASES
