"""Manifests that operators of clusters expect: replicas, probes, priority, and policies for the network."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_manifests import BUILT, MANIFESTS, apply, check_names, documents, namespaces, overlaid
from tests.support.clusters import Cluster
from tests.support.kubectl import Kubectl

Json = dict[str, Any]

WORKLOADS = ("StatefulSet", "Deployment")
WITHOUT_CONTROLLER = ("users", "cluster")
CONTROLLER = "frameworkcontroller"
ARCHIVE = "frameworkcontroller-archive"
PAGES = "frameworkcontroller-dashboard"

NAMES = {(53, "UDP"), (53, "TCP"), (5353, "UDP"), (5353, "TCP")}
API_SERVER = {(443, "TCP"), (6443, "TCP")}


def workloads(made: list[Json]) -> dict[str, Json]:
    return {one["metadata"]["name"]: one["spec"] for one in made if one["kind"] in WORKLOADS}


def containers(made: list[Json]) -> dict[str, Json]:
    """The one container of each workload."""
    return {name: spec["template"]["spec"]["containers"][0] for name, spec in workloads(made).items()}


@pytest.mark.parametrize("folder", [one for one in BUILT if one.name not in WITHOUT_CONTROLLER], ids=str)
@pytest.mark.virtual_clock
async def test_the_controller_has_two_replicas_on_different_nodes(kubectl: Kubectl, folder: Path) -> None:
    made = await documents(kubectl, folder)
    spec = workloads(made)[CONTROLLER]
    assert spec["replicas"] == (1 if folder.name == "single" else 2)
    (spread,) = spec["template"]["spec"]["topologySpreadConstraints"]
    assert spread["labelSelector"]["matchLabels"] == spec["selector"]["matchLabels"]
    # One node is enough.
    assert spread["whenUnsatisfiable"] == "ScheduleAnyway"
    (budget,) = (one for one in made if (one["kind"], one["metadata"]["name"]) == ("PodDisruptionBudget", CONTROLLER))
    # Drains continue, also with one replica.
    assert budget["spec"]["maxUnavailable"] == 1


@pytest.mark.virtual_clock
async def test_probes_wait_for_the_start(kubectl: Kubectl) -> None:
    found = containers(await documents(kubectl, Path("overlays/full")))
    assert found.keys() == {CONTROLLER, ARCHIVE, PAGES}
    for container in found.values():
        startup, liveness = container["startupProbe"], container["livenessProbe"]
        assert startup["httpGet"] == liveness["httpGet"]
        spent, usual = (probe["periodSeconds"] * probe["failureThreshold"] for probe in (startup, liveness))
        assert spent > usual
        assert startup["periodSeconds"] < liveness["periodSeconds"]


@pytest.mark.virtual_clock
async def test_policies_open_the_ports_of_their_pods(kubectl: Kubectl, tmp_path: Path) -> None:
    made = await overlaid(kubectl, tmp_path, "overlays/full", "archive-monitoring", "network-policies")
    policies = {one["metadata"]["name"]: one["spec"] for one in made if one["kind"] == "NetworkPolicy"}
    assert policies.keys() == workloads(made).keys()
    declared = {
        name: {(port["containerPort"], port["protocol"]) for port in container["ports"]}
        for name, container in containers(made).items()
    }
    labels = {name: spec["template"]["metadata"]["labels"] for name, spec in workloads(made).items()}

    def chosen(selector: Json) -> list[str]:
        """The workloads with Pods of these labels."""
        assert set(selector) == {"matchLabels"}
        return [name for name, has in labels.items() if selector["matchLabels"].items() <= has.items()]

    def ports(rules: list[Json]) -> set[tuple[int, str]]:
        return {(port["port"], port["protocol"]) for rule in rules for port in rule["ports"]}

    for name, policy in policies.items():
        assert chosen(policy["podSelector"]) == [name]
        assert policy["policyTypes"] == ["Ingress", "Egress"]
        # Only `kubectl port-forward` reaches the pages.
        assert ports(policy["ingress"]) == (set() if name == PAGES else declared[name])
        to_all = ports([rule for rule in policy["egress"] if "to" not in rule])
        assert to_all == NAMES | API_SERVER | ({(5432, "TCP")} if name == ARCHIVE else set())
        inside = [rule for rule in policy["egress"] if "to" in rule]
        if name != ARCHIVE:
            (rule,) = inside
            ((peer,), target) = rule["to"], ports([rule])
            assert (chosen(peer["podSelector"]), target) == ([ARCHIVE], declared[ARCHIVE])
            # The other side lets it in.
            (values,) = (
                one["podSelector"]["matchExpressions"][0]["values"]
                for rule in policies[ARCHIVE]["ingress"]
                for one in rule["from"]
                if "podSelector" in one
            )
            assert labels[name]["app.kubernetes.io/name"] in values
        else:
            assert inside == []


@pytest.mark.virtual_clock
async def test_the_controller_alone_may_be_critical(kubectl: Kubectl, tmp_path: Path) -> None:
    made = await overlaid(kubectl, tmp_path, "overlays/full", "critical")
    classes = {name: spec["template"]["spec"].get("priorityClassName") for name, spec in workloads(made).items()}
    assert classes == {CONTROLLER: "system-cluster-critical", ARCHIVE: None, PAGES: None}
    (quota,) = (one for one in made if one["kind"] == "ResourceQuota")
    assert quota["metadata"]["namespace"] == CONTROLLER
    (scope,) = quota["spec"]["scopeSelector"]["matchExpressions"]
    assert (scope["scopeName"], scope["values"]) == ("PriorityClass", [classes[CONTROLLER]])
    assert int(quota["spec"]["hard"]["pods"]) > workloads(made)[CONTROLLER]["replicas"]


@pytest.mark.virtual_clock
async def test_every_component_names_the_namespace(kubectl: Kubectl, tmp_path: Path) -> None:
    """An overlay without `namespace` would have the objects in the user's own."""
    names = ("archive-monitoring", "archive-cert-manager", "../monitoring", "critical", "network-policies")
    made = await overlaid(kubectl, tmp_path, "overlays/full", *names)
    kinds = {one["kind"] for one in made if "namespace" not in one["metadata"]}
    assert kinds == {"Namespace", "CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding"}
    assert namespaces(made) == {CONTROLLER}


@pytest.mark.parametrize("folder", ["base", "overlays/full", "overlays/single-namespace"])
async def test_api_servers_accept_the_components(
    cluster: Cluster, kubectl: Kubectl, tmp_path: Path, folder: str
) -> None:
    if cluster.embedded:
        pytest.skip("the embedded API server does not validate them")
    fields = {"namespace": "frameworks"} if "single" in folder else {}
    made = await overlaid(kubectl, tmp_path, folder, "critical", "network-policies", **fields)
    check_names(made)
    (namespace,) = namespaces(made)
    await kubectl("create", "namespace", namespace)
    ours = [one for one in made if one["kind"] in ("NetworkPolicy", "ResourceQuota", *WORKLOADS)]
    answer = await apply(cluster, kubectl, ours, "--dry-run=server")
    assert (answer.code, answer.err) == (0, "")
    assert len(re.findall(r"\(server dry run\)", answer.out)) == len(ours)


@pytest.mark.virtual_clock
async def test_a_cluster_administrator_prepares_the_single_namespace(kubectl: Kubectl) -> None:
    before = await documents(kubectl, Path("overlays/single-namespace/cluster"))
    after = await documents(kubectl, Path("overlays/single-namespace"))
    assert {one["metadata"]["name"] for one in before if one["kind"] == "Namespace"} == namespaces(after)
    assert {one["kind"] for one in before} == {"CustomResourceDefinition", "ClusterRole", "Namespace"}
    # A team can apply the rest.
    assert all("namespace" in one["metadata"] for one in after)
    assert (
        str(Path("overlays/single-namespace/cluster"))
        in (MANIFESTS / "overlays/single-namespace/kustomization.yaml").read_text()
    )
