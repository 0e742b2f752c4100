"""The address of an API resource: group, version and plural, and the URL paths that follow from them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote


@lru_cache(1024)
def _segment(value: str) -> str:
    if value in ("", ".", ".."):
        # Such a segment would make it the path of another resource, or of the whole collection.
        raise ValueError(f"not usable as a URL path segment: {value!r}")
    return quote(value, safe="")


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource type, for example ``Resource("apps", "v1", "deployments", "Deployment")``. The core group is ""."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """The ``apiVersion`` of its objects: ``v1`` or ``group/version``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """``plural.group``, or ``plural`` in the core group, as in messages of API servers."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """Return the percent-encoded URL path of the collection, of an object, or of a subresource.

        ``namespace=None``: all namespaces (collections only), or a cluster-scoped resource. ``subresource`` may have
        several segments, such as ``proxy/metrics``.

        Raises ValueError for a namespace of a cluster-scoped resource, a namespaced object without a namespace, a
        subresource without a name, or a segment that is empty, ``.`` or ``..``.
        """
        parts = ["api" if not self.group else f"apis/{_segment(self.group)}", _segment(self.version)]
        if namespace is not None:
            if not self.namespaced:
                raise ValueError(f"{self.qualified} are cluster-scoped: they have no namespace ({namespace!r} given)")
            parts += ["namespaces", _segment(namespace)]
        elif name is not None and self.namespaced:
            raise ValueError(f"{self.qualified} are namespaced: {name!r} needs a namespace")
        parts.append(_segment(self.plural))
        if name is not None:
            parts.append(_segment(name))
        if subresource is not None:
            if name is None:
                raise ValueError(f"subresource {subresource!r} of {self.qualified} needs a name")
            parts += [_segment(part) for part in subresource.split("/")]
        return "/" + "/".join(parts)


PODS = Resource("", "v1", "pods", "Pod")
CONFIGMAPS = Resource("", "v1", "configmaps", "ConfigMap")
EVENTS = Resource("", "v1", "events", "Event")
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
PERSISTENTVOLUMECLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
SERVICES = Resource("", "v1", "services", "Service")
PODDISRUPTIONBUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
SERVICEACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
SECRETS = Resource("", "v1", "secrets", "Secret")
RESOURCEQUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")
WORKLOADS = Resource("kueue.x-k8s.io", "v1beta2", "workloads", "Workload")
RESOURCEFLAVORS = Resource("kueue.x-k8s.io", "v1beta2", "resourceflavors", "ResourceFlavor", namespaced=False)
WORKLOADPRIORITYCLASSES = Resource(
    "kueue.x-k8s.io", "v1beta2", "workloadpriorityclasses", "WorkloadPriorityClass", namespaced=False
)
PRIORITYCLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)
PODGROUPS = Resource("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup")
VOLCANO_PODGROUPS = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
COSCHEDULING_PODGROUPS = Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
CRDS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False)
TOKENREVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)
SUBJECTACCESSREVIEWS = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)
