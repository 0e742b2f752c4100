"""Rules of single kinds: Pods, quotas, namespaces, services, events, nodes, definitions."""

from typing import Any

import pytest

from frameworkcontroller.local.addresses import service_network
from frameworkcontroller.local.apiserver.api_errors import ApiStatusError
from frameworkcontroller.local.apiserver.deletion import DeleteOptions
from frameworkcontroller.local.apiserver.options import Call
from frameworkcontroller.local.apiserver.pod_strategy import qos_class
from tests.support.registry import Inside


@pytest.fixture
def inside() -> Inside:
    return Inside()


def containers(*resources: dict[str, Any]) -> dict[str, Any]:
    return {"containers": [{"name": f"c{i}", "image": "none", "resources": one} for i, one in enumerate(resources)]}


# --- Pods -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (containers({}), "BestEffort"),
        (containers({"requests": {"cpu": "1"}}), "Burstable"),
        (containers({"limits": {"cpu": "1", "memory": "1Gi"}}), "Guaranteed"),
        (containers({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m"}}), "Guaranteed"),
        (containers({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}), "Burstable"),
        (containers({"limits": {"cpu": "1", "memory": "1Gi"}}, {}), "Burstable"),
        (containers({"requests": {"example.com/gpu": "1"}}), "BestEffort"),
    ],
)
def test_quality_of_service(spec: dict[str, Any], expected: str) -> None:
    assert qos_class(spec) == expected


def test_a_write_of_a_pods_status_does_not_change_its_owners(inside: Inside) -> None:
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "x"}
    inside.create("Pod", "p", metadata={"ownerReferences": [reference]})
    change = {"metadata": {"ownerReferences": [], "labels": {"a": "b"}}, "status": {"phase": "Running"}}
    inside.change("Pod", "p", change, subresource="status")
    found = inside.get("Pod", "p")
    assert found["metadata"]["ownerReferences"] == [reference]
    assert found["metadata"]["labels"] == {"a": "b"}
    assert found["status"] == {"phase": "Running", "qosClass": "BestEffort"}


def test_a_pod_that_goes_is_bound_no_more(inside: Inside) -> None:
    inside.create("Pod", "p", metadata={"finalizers": ["example.com/f"]})
    inside.delete("Pod", "p")
    with pytest.raises(ApiStatusError, match="is being deleted, cannot be assigned to a host"):
        inside.bind("p")


# --- quotas ---------------------------------------------------------------------------------------------------------


def test_a_quota_counts_pods_that_have_not_ended(inside: Inside) -> None:
    inside.create("ResourceQuota", "q", spec={"hard": {"pods": "2", "count/pods": "3"}})
    for name in ("a", "b"):
        inside.create("Pod", name)
    with pytest.raises(ApiStatusError) as refused:
        inside.create("Pod", "c")
    assert (refused.value.code, refused.value.message) == (
        403,
        'pods "c" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2',
    )
    inside.settle()
    assert inside.get("ResourceQuota", "q")["status"] == {
        "hard": {"pods": "2", "count/pods": "3"},
        "used": {"pods": "2", "count/pods": "2"},
    }
    inside.change("Pod", "a", {"status": {"phase": "Failed"}}, subresource="status")
    inside.create("Pod", "c")
    inside.settle()
    assert inside.get("ResourceQuota", "q")["status"]["used"] == {"pods": "2", "count/pods": "3"}
    inside.delete("Pod", "a")
    inside.delete("Pod", "b")
    inside.settle()
    assert inside.get("ResourceQuota", "q")["status"]["used"] == {"pods": "1", "count/pods": "1"}


def test_a_quota_on_compute(inside: Inside) -> None:
    inside.create("ResourceQuota", "q", spec={"hard": {"requests.cpu": "1", "limits.memory": "1Gi"}})
    with pytest.raises(ApiStatusError, match=r"failed quota: q: must specify limits.memory,requests.cpu"):
        inside.create("Pod", "none")
    half = {"requests": {"cpu": "500m"}, "limits": {"memory": "512Mi"}}
    inside.create("Pod", "a", spec=containers(half))
    inside.settle()
    assert inside.get("ResourceQuota", "q")["status"]["used"] == {"requests.cpu": "500m", "limits.memory": "512Mi"}
    with pytest.raises(
        ApiStatusError, match=r"requested: requests.cpu=600m, used: requests.cpu=500m, limited: requests.cpu=1"
    ):
        inside.create("Pod", "b", spec=containers({"requests": {"cpu": "600m"}, "limits": {"memory": "1Mi"}}))
    inside.create("Pod", "b", spec=containers(half))


def test_quotas_that_change_and_go(inside: Inside) -> None:
    inside.create("ResourceQuota", "q", spec={"hard": {"configmaps": "1"}})
    inside.create("ConfigMap", "a")
    with pytest.raises(ApiStatusError, match="exceeded quota: q"):
        inside.create("ConfigMap", "b")
    inside.change("ResourceQuota", "q", {"spec": {"hard": {"configmaps": "2"}}})
    inside.create("ConfigMap", "b")
    inside.create("Namespace", "other", "")
    for name in ("x", "y", "z"):
        inside.create("ConfigMap", name, "other")
    inside.delete("ResourceQuota", "q")
    inside.create("ConfigMap", "c")


def test_a_server_that_starts_again_knows_its_quotas(inside: Inside) -> None:
    inside.create("ResourceQuota", "q", spec={"hard": {"pods": "1"}})
    inside.create("Pod", "a")
    again = Inside(type(inside.server)(wall=lambda: 0.0, storage=inside.storage))
    with pytest.raises(ApiStatusError, match="exceeded quota"):
        again.create("Pod", "b")


# --- namespaces, services, nodes --------------------------------------------------------------------------------------


def test_every_namespace_has_its_service_account(inside: Inside) -> None:
    inside.create("Namespace", "n", "")
    inside.settle()
    assert inside.find("ServiceAccount", "default", "n") is not None
    inside.delete("ServiceAccount", "default", namespace="n")
    inside.settle()
    assert inside.find("ServiceAccount", "default", "n") is not None


def test_a_terminating_namespace_reports_its_remaining_content(inside: Inside) -> None:
    inside.create("Namespace", "n", "")
    inside.create("Pod", "p", "n")
    inside.bind("p", "n")
    inside.create("ConfigMap", "c", "n", metadata={"finalizers": ["example.com/f"]})
    inside.settle()
    assert not inside.delete("Namespace", "n", namespace="")
    inside.settle()
    status = inside.get("Namespace", "n", "")["status"]
    assert status["phase"] == "Terminating"
    messages = {one["type"]: one["message"] for one in status["conditions"] if one["status"] == "True"}
    assert messages == {
        "NamespaceContentRemaining": "Some resources are remaining: configmaps has 1 resource instances, "
        "pods has 1 resource instances",
        "NamespaceFinalizersRemaining": "Some content in the namespace has finalizers remaining: "
        "example.com/f in 1 resource instances",
    }
    inside.delete("Pod", "p", namespace="n", grace=0)
    inside.change("ConfigMap", "c", {"metadata": {"finalizers": []}}, "n")
    inside.settle()
    assert inside.find("Namespace", "n", "") is None
    assert not inside.storage.count("serviceaccounts", "n/")


def test_each_service_has_an_address_of_its_own(inside: Inside) -> None:
    port = {"ports": [{"port": 80}]}
    first = inside.create("Service", "a", spec=port).document()["spec"]
    second = inside.create("Service", "b", spec=port).document()["spec"]
    free = service_network().hosts()
    assert {first["clusterIP"], second["clusterIP"]} == {str(next(free)), str(next(free))}
    assert inside.create("Service", "c", spec={**port, "clusterIP": "None"}).document()["spec"]["clusterIP"] == "None"
    changed = inside.change("Service", "a", {"spec": {"clusterIP": "", "ports": [{"port": 81}]}}).document()["spec"]
    assert changed["clusterIP"] == first["clusterIP"]
    inside.delete("Service", "a")
    assert inside.create("Service", "d", spec=port).document()["spec"]["clusterIP"] == first["clusterIP"]


def test_a_node_comes_with_its_status(inside: Inside) -> None:
    node = inside.create("Node", "n", "", status={"capacity": {"pods": "3"}}).document()
    assert node["status"]["capacity"] == {"pods": "3"}
    inside.change("Node", "n", {"status": {"capacity": {"pods": "4"}}}, "")
    assert inside.get("Node", "n", "")["status"]["capacity"] == {"pods": "3"}


def test_a_lease_is_made_by_the_first_write(inside: Inside) -> None:
    endpoint = inside.endpoint("Lease")
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}, "spec": {}}
    call = Call("update", "test")
    record, created = inside.registry.replace(endpoint, "default", "l", body, call)
    assert created
    with pytest.raises(ApiStatusError, match="must be specified for an update"):
        inside.registry.replace(endpoint, "default", "l", body, call)
    body["metadata"] = {"name": "l", "resourceVersion": str(record.revision)}
    assert not inside.registry.replace(endpoint, "default", "l", body, call)[1]


# --- definitions ----------------------------------------------------------------------------------------------------


def definition(name: str, kind: str, **names: Any) -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": name, "kind": kind, **names},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        }
    }


def test_two_definitions_do_not_share_a_name(inside: Inside) -> None:
    inside.create("CustomResourceDefinition", "as.example.com", "", **definition("as", "A", shortNames=["x"]))
    inside.create("CustomResourceDefinition", "bs.example.com", "", **definition("bs", "B", shortNames=["x"]))
    conditions = inside.get("CustomResourceDefinition", "bs.example.com", "")["status"]["conditions"]
    assert [(one["type"], one["status"], one["reason"], one["message"]) for one in conditions] == [
        ("NamesAccepted", "False", "ShortNamesConflict", '"x" is already in use'),
        ("Established", "False", "NotAccepted", "not all names are accepted"),
    ]
    assert inside.registry.endpoints.find("example.com", "v1", "bs") is None
    assert inside.registry.endpoints.find("example.com", "v1", "as") is not None


def test_a_definition_can_be_deleted_and_made_again(inside: Inside) -> None:
    name = "as.example.com"
    inside.create("CustomResourceDefinition", name, "", **definition("as", "A"))
    inside.create("A", "a")
    assert not inside.delete("CustomResourceDefinition", name, namespace="")
    inside.settle()
    assert inside.find("CustomResourceDefinition", name, "") is None
    assert inside.registry.endpoints.find("example.com", "v1", "as") is None
    assert not inside.storage.count(name)
    inside.create("CustomResourceDefinition", name, "", **definition("as", "A"))
    inside.create("A", "a")


def test_versions_are_the_same_objects(inside: Inside) -> None:
    body = definition("as", "A")
    body["spec"]["versions"].append({**body["spec"]["versions"][0], "name": "v2", "storage": False})
    inside.create("CustomResourceDefinition", "as.example.com", "", **body)
    inside.create("A", "a")
    second = inside.registry.endpoints.find("example.com", "v2", "as")
    assert second is not None
    record = inside.registry.get(second, "default", "a")
    assert second.document(record)["apiVersion"] == "example.com/v2"
    inside.registry.delete(second, "default", "a", DeleteOptions(), Call("delete", "test"))
    assert inside.find("A", "a") is None


def test_generated_names_are_tried_until_one_is_free(inside: Inside) -> None:
    names = iter(["x-1", "x-1", "x-2"])
    inside.registry.identities.name = lambda prefix: next(names)  # type: ignore[method-assign]  # a dice that is loaded
    endpoint = inside.endpoint("ConfigMap")
    body = {"metadata": {"generateName": "x-"}}
    call = Call("create", "test")
    made = [
        inside.registry.create(endpoint, "default", dict(body, metadata=dict(body["metadata"])), call) for _ in "12"
    ]
    assert [record.name for record in made] == ["x-1", "x-2"]
