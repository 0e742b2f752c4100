"""Bodies of volume claims, and the volumes of Pods that use them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.api.objects import Framework
from frameworkcontroller.api.spec import ClaimRetention, ClaimTemplate, TaskRoleSpec
from frameworkcontroller.machine.kernel.manifests import POD_LABELS, filled, filled_size, framework_reference
from frameworkcontroller.machine.kernel.requests import LARGE_BYTES, MAX_BODY_BYTES, BodyTooLargeError


@dataclass(frozen=True, slots=True)
class ClaimVolumes:
    """The volumes of the claims of a role, by the names of their templates."""

    claims: tuple[str, ...]

    def apply(self, metadata: dict[str, Any], spec: dict[str, Any], pod_name: str) -> None:
        """Put these volumes in place of the template's own ones with the same names."""
        others = spec.get("volumes")
        if others is None or isinstance(others, list):
            ours = [{"name": one, "persistentVolumeClaim": {"claimName": f"{one}-{pod_name}"}} for one in self.claims]
            kept = [one for one in others or () if not (isinstance(one, dict) and one.get("name") in self.claims)]
            spec["volumes"] = [*ours, *kept]


def is_large(template: ClaimTemplate) -> bool:
    """Whether a body of the claim may have more than ``LARGE_BYTES``."""
    metadata = template.metadata
    size = sum(len(part.text) for part in (metadata.labels, metadata.annotations, template.spec))
    # A placeholder is replaced by the seventeen-fold, at most.
    return 17 * size > LARGE_BYTES


def claim_body(framework: Framework, role: TaskRoleSpec, template: ClaimTemplate, index: int) -> bytes:
    """A volume claim of a Task. It outlives attempts, and so has no placeholder that depends on one.

    Raises BodyTooLargeError.
    """
    marks = claim_annotations(framework, role, index)
    values = {
        names.FRAMEWORK_NAMESPACE: framework.namespace,
        names.CONFIGMAP_NAME: names.configmap_name(framework.name),
        names.POD_NAME: names.pod_name(framework.name, role.name, index),
        **{name: marks[name] for name in POD_LABELS},
    }
    metadata = template.metadata
    raw = b"[%s]" % b",".join(part.text for part in (metadata.labels, metadata.annotations, template.spec))
    words = {names.placeholder(name).encode(): value.encode() for name, value in values.items()}
    if (size := filled_size(raw, words)) > MAX_BODY_BYTES:
        raise BodyTooLargeError(f"volumeClaimTemplate {metadata.name} of TaskRole {role.name}", size)
    labels, annotations, spec = orjson.loads(filled(raw, words))
    body = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": names.claim_name(metadata.name, framework.name, role.name, index),
            "namespace": framework.namespace,
            "labels": {**labels, **{name: marks[name] for name in POD_LABELS}},
            "annotations": {**annotations, **marks},
        },
        "spec": spec,
    }
    if claim_has_owner(role):
        body["metadata"]["ownerReferences"] = [framework_reference(framework)]
    return orjson.dumps(body)


def claim_has_owner(role: TaskRoleSpec) -> bool:
    """Whether the Framework owns the volume claims of the role, so that they are deleted with it."""
    return role.persistent_volume_claim_retention_policy.when_deleted is ClaimRetention.DELETE


def claim_annotations(framework: Framework, role: TaskRoleSpec, index: int) -> dict[str, str]:
    """The annotations by which a volume claim of a Task is recognized, and that say what happens to it."""
    identity = (framework.namespace, framework.name, role.name, str(index))
    return {
        **dict(zip(names.CLAIM_IDENTITY, identity, strict=True)),
        names.FRAMEWORK_UID: framework.uid,
        names.WHEN_SCALED: role.persistent_volume_claim_retention_policy.when_scaled.value,
    }
