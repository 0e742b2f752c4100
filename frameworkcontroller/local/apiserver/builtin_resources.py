"""The built-in resources of the embedded API server.

Kinds that need their own controller (Deployments, Jobs, PersistentVolumes, ...) are left out: an accepted object
without effect misleads more than a clear "the server doesn't have a resource type".
"""

from __future__ import annotations

from frameworkcontroller.local.apiserver.api_resources import STANDARD_VERBS, ApiResource, Subresource

_STATUS_VERBS = ("get", "patch", "update")


def _builtin(
    group: str,
    version: str,
    kind: str,
    plural: str,
    *,
    short: tuple[str, ...] = (),
    categories: tuple[str, ...] = (),
    namespaced: bool = True,
    verbs: tuple[str, ...] = STANDARD_VERBS,
    status: bool = False,
    more: tuple[Subresource, ...] = (),
) -> ApiResource:
    subresources = (*more, Subresource("status", kind, _STATUS_VERBS)) if status else more
    return ApiResource(
        group=group,
        version=version,
        kind=kind,
        plural=plural,
        singular=kind.lower(),
        list_kind=f"{kind}List",
        short_names=short,
        categories=categories,
        namespaced=namespaced,
        verbs=verbs,
        subresources=subresources,
    )


_RBAC = "rbac.authorization.k8s.io"

NAMESPACES = _builtin(
    "",
    "v1",
    "Namespace",
    "namespaces",
    short=("ns",),
    namespaced=False,
    verbs=tuple(verb for verb in STANDARD_VERBS if verb != "deletecollection"),
    status=True,
    more=(Subresource("finalize", "Namespace", ("update",)),),
)
NODES = _builtin("", "v1", "Node", "nodes", short=("no",), namespaced=False, status=True)
PODS = _builtin(
    "",
    "v1",
    "Pod",
    "pods",
    short=("po",),
    categories=("all",),
    status=True,
    more=(
        Subresource("attach", "PodAttachOptions", ("create", "get")),
        Subresource("binding", "Binding", ("create",)),
        Subresource("eviction", "Eviction", ("create",), "policy", "v1"),
        Subresource("exec", "PodExecOptions", ("create", "get")),
        Subresource("log", "Pod", ("get",)),
        Subresource("portforward", "PodPortForwardOptions", ("create", "get")),
    ),
)
CONFIGMAPS = _builtin("", "v1", "ConfigMap", "configmaps", short=("cm",))
EVENTS = _builtin("", "v1", "Event", "events", short=("ev",))
SECRETS = _builtin("", "v1", "Secret", "secrets")
SERVICEACCOUNTS = _builtin(
    "",
    "v1",
    "ServiceAccount",
    "serviceaccounts",
    short=("sa",),
    more=(Subresource("token", "TokenRequest", ("create",), "authentication.k8s.io", "v1"),),
)
PERSISTENTVOLUMECLAIMS = _builtin(
    "", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", short=("pvc",), status=True
)
SERVICES = _builtin("", "v1", "Service", "services", short=("svc",), categories=("all",), status=True)
RESOURCEQUOTAS = _builtin("", "v1", "ResourceQuota", "resourcequotas", short=("quota",), status=True)
CRDS = _builtin(
    "apiextensions.k8s.io",
    "v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
    short=("crd", "crds"),
    categories=("api-extensions",),
    namespaced=False,
    status=True,
)
LEASES = _builtin("coordination.k8s.io", "v1", "Lease", "leases")
PODDISRUPTIONBUDGETS = _builtin(
    "policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", short=("pdb",), status=True
)
ROLES = _builtin(_RBAC, "v1", "Role", "roles")
ROLEBINDINGS = _builtin(_RBAC, "v1", "RoleBinding", "rolebindings")
CLUSTERROLES = _builtin(_RBAC, "v1", "ClusterRole", "clusterroles", namespaced=False)
CLUSTERROLEBINDINGS = _builtin(_RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", namespaced=False)
PRIORITYCLASSES = _builtin(
    "scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", short=("pc",), namespaced=False
)
SELFSUBJECTACCESSREVIEWS = _builtin(
    "authorization.k8s.io",
    "v1",
    "SelfSubjectAccessReview",
    "selfsubjectaccessreviews",
    namespaced=False,
    verbs=("create",),
)
SELFSUBJECTRULESREVIEWS = _builtin(
    "authorization.k8s.io",
    "v1",
    "SelfSubjectRulesReview",
    "selfsubjectrulesreviews",
    namespaced=False,
    verbs=("create",),
)
SELFSUBJECTREVIEWS = _builtin(
    "authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", namespaced=False, verbs=("create",)
)
TOKENREVIEWS = _builtin(
    "authentication.k8s.io", "v1", "TokenReview", "tokenreviews", namespaced=False, verbs=("create",)
)
SUBJECTACCESSREVIEWS = _builtin(
    "authorization.k8s.io",
    "v1",
    "SubjectAccessReview",
    "subjectaccessreviews",
    namespaced=False,
    verbs=("create",),
)

BUILTIN_RESOURCES: tuple[ApiResource, ...] = (
    CONFIGMAPS,
    EVENTS,
    NAMESPACES,
    NODES,
    PERSISTENTVOLUMECLAIMS,
    PODS,
    RESOURCEQUOTAS,
    SECRETS,
    SERVICEACCOUNTS,
    SERVICES,
    CRDS,
    SELFSUBJECTREVIEWS,
    TOKENREVIEWS,
    SELFSUBJECTACCESSREVIEWS,
    SELFSUBJECTRULESREVIEWS,
    SUBJECTACCESSREVIEWS,
    LEASES,
    PODDISRUPTIONBUDGETS,
    CLUSTERROLEBINDINGS,
    CLUSTERROLES,
    ROLEBINDINGS,
    ROLES,
    PRIORITYCLASSES,
)
"""Every built-in resource, in discovery order."""
