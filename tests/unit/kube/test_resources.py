import pytest

from frameworkcontroller.kube.resources import CRDS, EVENTS, LEASES, NODES, PODS, Resource

FRAMEWORKS = Resource("frameworkcontroller.microsoft.com", "v1", "frameworks", "Framework")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (PODS.path(), "/api/v1/pods"),
        (PODS.path("ns"), "/api/v1/namespaces/ns/pods"),
        (PODS.path("ns", "a"), "/api/v1/namespaces/ns/pods/a"),
        (PODS.path("ns", "a", "status"), "/api/v1/namespaces/ns/pods/a/status"),
        (PODS.path("ns", "a", "proxy/metrics"), "/api/v1/namespaces/ns/pods/a/proxy/metrics"),
        (NODES.path(), "/api/v1/nodes"),
        (NODES.path(name="n1"), "/api/v1/nodes/n1"),
        (LEASES.path("ns", "l"), "/apis/coordination.k8s.io/v1/namespaces/ns/leases/l"),
        (FRAMEWORKS.path(), "/apis/frameworkcontroller.microsoft.com/v1/frameworks"),
        (CRDS.path(name="x.y"), "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/x.y"),
        (EVENTS.path("ns", "a b/c?d"), "/api/v1/namespaces/ns/events/a%20b%2Fc%3Fd"),
    ],
)
def test_paths(path: str, expected: str) -> None:
    assert path == expected


def test_names_as_the_api_server_writes_them() -> None:
    assert (PODS.api_version, PODS.qualified) == ("v1", "pods")
    assert FRAMEWORKS.api_version == "frameworkcontroller.microsoft.com/v1"
    assert FRAMEWORKS.qualified == "frameworks.frameworkcontroller.microsoft.com"


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_that_would_address_something_else_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not usable"):
        PODS.path("ns", name)
    with pytest.raises(ValueError, match="not usable"):
        PODS.path(name)


def test_scope_is_enforced() -> None:
    with pytest.raises(ValueError, match="cluster-scoped"):
        NODES.path("ns", "n1")
    with pytest.raises(ValueError, match="needs a namespace"):
        PODS.path(name="a")
    with pytest.raises(ValueError, match="needs a name"):
        PODS.path("ns", subresource="status")
