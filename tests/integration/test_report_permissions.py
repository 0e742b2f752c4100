"""The rules of components/progress are exactly sufficient, and the manifests fit the configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from frameworkcontroller.config.config import PROGRESS_SERVICE, Config, ProgressReports, load_config
from frameworkcontroller.reports.servercertificate import AUTHORITY_OBJECT
from tests.integration.test_manifests import check_names, documents, only, overlaid
from tests.integration.test_rbac import CLUSTER_WIDE, ONE_NAMESPACE, granted, permissions, rules, running, used
from tests.integration.test_rbac import config as settings_on
from tests.integration.test_rbac import documents as in_file
from tests.support.clusters import Cluster
from tests.support.frontdoor import FrontDoor, front_door
from tests.support.kubectl import Kubectl
from tests.support.realcluster import ROOT
from tests.support.reportsenders import Senders

PROGRESS: Final = ROOT / "manifests" / "components" / "progress" / "kustomization.yaml"
BESIDE: Final = ROOT / "manifests" / "components" / "progress-single-namespace" / "cluster.yaml"


def settings(cluster: Cluster, **more: Any) -> Config:
    return settings_on(cluster, progress_reports=ProgressReports(bind_address="127.0.0.1:0"), **more)


async def report(cluster: Cluster, door: FrontDoor, config: Config) -> None:
    """Have a Pod report to a controller behind the door, until that is written."""
    async with running(cluster, door, config) as controller:
        assert controller.report_service is not None
        sends = Senders(cluster, await cluster.client(), controller.report_service)
        attempt = await sends.attempt()
        token = await sends.token(await sends.pod(attempt))
        answer = await sends.send(sends.url(attempt), token, step=1)
        assert answer.status == 200, answer
        await sends.until(attempt, step=1)


@pytest.mark.parametrize("one_namespace", [False, True], ids=["cluster", "namespace"])
async def test_the_rules_match_its_requests(cluster: Cluster, one_namespace: bool) -> None:
    if not cluster.embedded:
        pytest.skip("a real API server replaces this comparison")
    more = {"namespace": cluster.namespace} if one_namespace else {}
    async with front_door(await cluster.connection()) as door:
        await report(cluster, door, settings(cluster, **more))
    base = permissions([*rules(CLUSTER_WIDE, "ClusterRole"), *rules(CLUSTER_WIDE, "Role")])
    # The certificate of another year would need it.
    unused = {("update", "", "secrets")}
    own = permissions([*rules(PROGRESS, "ClusterRole"), *rules(PROGRESS, "Role")])
    assert used(door.requests) - base == own - unused
    assert {one.namespace for one in door.requests if one.resource == "secrets"} == {cluster.namespace}
    named = {one.name for one in door.requests if (one.verb, one.resource) == ("get", "secrets")}
    assert named == {AUTHORITY_OBJECT}
    assert [one["resourceNames"] for one in rules(PROGRESS, "Role") if "resourceNames" in one] == [[AUTHORITY_OBJECT]]
    assert permissions(rules(PROGRESS, "ClusterRole")) == permissions(rules(BESIDE, "ClusterRole"))


@pytest.mark.parametrize("one_namespace", [False, True], ids=["cluster", "namespace"])
async def test_it_runs_under_exactly_these_rules(cluster: Cluster, one_namespace: bool) -> None:
    cluster.skip_without_tokens()
    (lease_role,) = in_file(CLUSTER_WIDE, "Role")
    lease_role = {**lease_role, "rules": [*lease_role["rules"], *rules(PROGRESS, "Role")]}
    if one_namespace:
        roles, more = in_file(ONE_NAMESPACE, "Role"), {"namespace": cluster.namespace}
        roles += in_file(BESIDE, "ClusterRole")
    else:
        (base,) = in_file(CLUSTER_WIDE, "ClusterRole")
        roles, more = [{**base, "rules": [*base["rules"], *rules(PROGRESS, "ClusterRole")]}], {}
    async with granted(cluster, *roles, lease_role), front_door(await cluster.connection("controller")) as door:
        await report(cluster, door, settings(cluster, **more))
    # A controller of the whole cluster may meet leftovers of other tests.
    ours = "", cluster.namespace
    refused = (request for request, code in door.refused if code == 403 and request.namespace in ours)
    forbidden = {(request.verb, request.resource) for request in refused}
    assert forbidden == ({("get", "customresourcedefinitions")} if one_namespace else set())


@pytest.mark.parametrize(
    ("folder", "component"),
    [
        ("base", "progress"),
        ("overlays/single", "progress"),
        ("overlays/single-namespace", "progress-single-namespace"),
    ],
)
@pytest.mark.virtual_clock
async def test_pods_reach_the_server_by_its_service(
    kubectl: Kubectl, tmp_path: Path, folder: str, component: str
) -> None:
    made = await overlaid(kubectl, tmp_path, folder, component)
    check_names(made)
    account = only(made, "ServiceAccount")["metadata"]
    (service,) = (one for one in made if (one["kind"], one["metadata"]["name"]) == ("Service", PROGRESS_SERVICE))
    assert service["metadata"]["namespace"] == account["namespace"]
    pod = only(made, "StatefulSet")["spec"]["template"]
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    (port,) = service["spec"]["ports"]
    ports = {one["name"]: one["containerPort"] for one in pod["spec"]["containers"][0]["ports"]}
    # The component names the setting that a user has to make.
    text = PROGRESS.read_text()
    assert f'bindAddress: ":{ports[port["targetPort"]]}"\n' in text
    reports = ProgressReports(bind_address=f":{ports[port['targetPort']]}")
    url = f"https://{PROGRESS_SERVICE}.{account['namespace']}.svc"
    assert (reports.url_in(account["namespace"]), port["port"]) == (url, 443)
    (role,) = (one for one in made if one["kind"] == "Role" and one["metadata"]["name"] == "frameworkcontroller")
    assert permissions(rules(PROGRESS, "Role")) <= permissions(role["rules"])
    assert role["metadata"]["namespace"] == account["namespace"]


@pytest.mark.virtual_clock
async def test_all_features_include_it(kubectl: Kubectl, tmp_path: Path) -> None:
    made = await documents(kubectl, Path("overlays/full"))
    (text,) = (one["data"]["frameworkcontroller.yaml"] for one in made if one["kind"] == "ConfigMap")
    file = tmp_path / "frameworkcontroller.yaml"
    file.write_text(text)
    assert load_config(file, required=True).progress_reports.bind_address == ":10281"
    assert yaml.safe_load(text)["progressReports"]
    assert PROGRESS_SERVICE in {one["metadata"]["name"] for one in made if one["kind"] == "Service"}
