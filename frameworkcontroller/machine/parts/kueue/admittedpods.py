"""What Kueue adds to the Pods of an admitted Framework."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from frameworkcontroller.api.status import AdmittedPodSet
from frameworkcontroller.machine.kernel.manifests import with_entries


@dataclass(frozen=True, slots=True)
class AdmittedPods:
    """The fields for the Pods of a role. Nothing contradicts its template: ``ReadAdmission`` has compared them."""

    texts: AdmittedPodSet

    def apply(self, template: Mapping[str, Any], pod_name: str) -> dict[str, Any]:
        """Return the template with the fields."""
        metadata, spec = template.get("metadata"), template.get("spec")
        if metadata is None or isinstance(metadata, dict):
            metadata = dict(metadata or {})
            for name, ours in (("labels", self.texts.labels), ("annotations", self.texts.annotations)):
                if ours:
                    metadata[name] = with_entries(metadata.get(name), ours)
        if isinstance(spec, dict):
            spec = dict(spec)
            if self.texts.node_selector:
                spec["nodeSelector"] = with_entries(spec.get("nodeSelector"), self.texts.node_selector)
            gates = [{"name": name} for name in self.texts.scheduling_gates]
            for name, added in (("tolerations", self.texts.tolerations), ("schedulingGates", gates)):
                own = spec.get(name)
                if added and (own is None or isinstance(own, list)):
                    known = set(map(_key, own or ()))
                    spec[name] = [*(own or []), *(one for one in added if _key(one) not in known)]
        return {**template, "metadata": metadata, "spec": spec}


def _key(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
