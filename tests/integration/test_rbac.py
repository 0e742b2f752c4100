"""The controller's rules are exactly sufficient: the shipped rules, compared with the requests that it sent.

On the embedded cluster, which tells no users apart, its requests are recorded and compared with the rules, in both
directions. On real ones it runs as a user who has exactly those rules.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import orjson
import pytest
import yaml
from aiohttp.test_utils import make_mocked_request

from frameworkcontroller.api.names import HISTORY_FINALIZER, PRIORITY_CLASS, QUEUE_NAME
from frameworkcontroller.api.podgroups import GangScheduler
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.commands import program
from frameworkcontroller.config.config import Config, Kueue, KueueMode, LeaderElection
from frameworkcontroller.config.historyconfig import History, HistorySinkKind
from frameworkcontroller.dashboard.live import LiveFrameworks
from frameworkcontroller.dashboard.pages import Pages
from frameworkcontroller.kube.client import MERGE_PATCH, KubeClient
from frameworkcontroller.kube.crd import CrdError
from frameworkcontroller.kube.elector import ClockReading
from frameworkcontroller.kube.errors import ApiError, NotFound
from frameworkcontroller.kube.resources import (
    CONFIGMAPS,
    COSCHEDULING_PODGROUPS,
    CRDS,
    LEASES,
    PERSISTENTVOLUMECLAIMS,
    PODGROUPS,
    PODS,
    SERVICES,
    VOLCANO_PODGROUPS,
    WORKLOADS,
    Resource,
)
from frameworkcontroller.local.queues.setup import LOCAL_QUEUE
from frameworkcontroller.manager.app import Controller
from frameworkcontroller.webaccess.boundedserver import BoundedServer
from frameworkcontroller.webaccess.cluster_access import ClusterAccess
from frameworkcontroller.webaccess.middleware import protect
from tests.support.claims import claim_spec, claims_in, until_claims_are
from tests.support.clusters import Cluster, embedded_cluster, simulated_node
from tests.support.eventually import eventually
from tests.support.frameworks import Frameworks, Json, condition, policy, role, tasks
from tests.support.frontdoor import FrontDoor, Request, front_door, refusal
from tests.support.historysink import ArchiveStandIn
from tests.support.localqueue import queue_on
from tests.support.podgroups import serve
from tests.support.pods import pod_manifest
from tests.support.realcluster import ROOT
from tests.support.virtual_clock import VirtualClockLoop

MANIFESTS: Final = ROOT / "manifests"
CLUSTER_WIDE: Final = MANIFESTS / "base" / "rbac.yaml"
ONE_NAMESPACE: Final = MANIFESTS / "overlays" / "single-namespace" / "role.yaml"
NETWORK: Final = MANIFESTS / "components" / "network" / "rbac.yaml"
NETWORK_OF_ONE: Final = MANIFESTS / "components" / "network-single-namespace" / "rbac.yaml"
CLAIMS: Final = MANIFESTS / "components" / "volumeclaims" / "rbac.yaml"
CLAIMS_OF_ONE: Final = MANIFESTS / "components" / "volumeclaims-single-namespace" / "rbac.yaml"
KUEUE: Final = MANIFESTS / "components" / "kueue" / "rbac.yaml"
KUEUE_OF_ONE: Final = MANIFESTS / "components" / "kueue-single-namespace" / "rbac.yaml"
KUEUE_BESIDE: Final = MANIFESTS / "components" / "kueue-single-namespace" / "cluster.yaml"
GANG: Final = MANIFESTS / "components" / "gang" / "rbac.yaml"
GANG_OF_ONE: Final = MANIFESTS / "components" / "gang-single-namespace" / "rbac.yaml"
HISTORY: Final = MANIFESTS / "components" / "history" / "rbac.yaml"
HISTORY_OF_ONE: Final = MANIFESTS / "components" / "history-single-namespace" / "rbac.yaml"
NODES_BESIDE: Final = MANIFESTS / "overlays" / "single-namespace" / "nodes.yaml"
ARCHIVE: Final = MANIFESTS / "components" / "archive" / "rbac.yaml"
ARCHIVE_OF_ONE: Final = MANIFESTS / "components" / "archive-single-namespace" / "cluster.yaml"
DASHBOARD: Final = MANIFESTS / "components" / "dashboard" / "rbac.yaml"
DASHBOARD_OF_ONE: Final = MANIFESTS / "components" / "dashboard-single-namespace" / "rbac.yaml"
DASHBOARD_BESIDE: Final = MANIFESTS / "components" / "dashboard-single-namespace" / "cluster.yaml"

Permission = tuple[str, str, str]
"""Verb, API group, resource with subresource."""

NOT_REQUESTS: Final[frozenset[Permission]] = frozenset(
    {
        # An admission plugin of API servers (OwnerReferencesPermissionEnforcement, always on in OpenShift) asks for
        # these when a ConfigMap is created that blocks the deletion of its Framework, and a Pod its ConfigMap's.
        ("update", "frameworkcontroller.microsoft.com", "frameworks/finalizers"),
        ("update", "", "configmaps/finalizers"),
    }
)

# RBAC objects, to be made in tests only.
ROLES: Final = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role")
ROLE_BINDINGS: Final = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")
CLUSTER_ROLES: Final = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
CLUSTER_ROLE_BINDINGS: Final = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)


def documents(file: Path, kind: str) -> list[Json]:
    return [item for item in yaml.safe_load_all(file.read_text()) if item["kind"] == kind]


def rules(file: Path, kind: str) -> list[Json]:
    return [rule for document in documents(file, kind) for rule in document["rules"]]


def permissions(given: Iterable[Json]) -> set[Permission]:
    return {
        (verb, group, resource)
        for rule in given
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def used(requests: Iterable[Request]) -> set[Permission]:
    return {(request.verb, request.group, request.resource) for request in requests if request.resource[0] != "/"}


def config(cluster: Cluster, **more: Any) -> Config:
    election = LeaderElection(
        enabled=True,
        lease_name="frameworkcontroller",
        lease_namespace=cluster.namespace,
        lease_duration_sec=3,
        renew_deadline_sec=2,
        retry_period_sec=1,
    )
    return Config(framework_completed_retain_sec=1, leader_election=election, **more)


def _clock(cluster: Cluster, loop: asyncio.AbstractEventLoop) -> Callable[[], ClockReading]:
    return (lambda: ClockReading(loop.time(), loop.time(), cluster.wall())) if cluster.embedded else ClockReading.now


@asynccontextmanager
async def running(cluster: Cluster, door: FrontDoor, settings: Config) -> AsyncIterator[Controller]:
    """A controller that leads."""
    loop = asyncio.get_running_loop()

    async with Controller(settings, door.connection, wall=cluster.wall, instant=_clock(cluster, loop)) as controller:

        async def leads() -> bool:
            return controller.leading

        await eventually(leads)
        yield controller


@asynccontextmanager
async def standing_by(cluster: Cluster, door: FrontDoor, settings: Config) -> AsyncIterator[None]:
    """A replica that does not lead, and watches the Lease."""
    loop = asyncio.get_running_loop()
    async with Controller(settings, door.connection, wall=cluster.wall, instant=_clock(cluster, loop)):

        async def watches() -> bool:
            return ("watch", "leases") in door.count(0)

        await eventually(watches)
        yield


async def everything(frameworks: Frameworks, door: FrontDoor) -> None:
    """All that makes a controller send a request of each kind."""
    client, namespace = frameworks.client, frameworks.namespace
    # Conflicting objects with the names of a Pod and a ConfigMap: it reads them.
    in_the_way = pod_manifest(name="b-a-1", namespace=namespace)
    await client.create(PODS, orjson.dumps(in_the_way), namespace)
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c-attempt"}}
    await client.create(CONFIGMAPS, orjson.dumps(other), namespace)
    failing = {"run-seconds": "0", "exit-code": "1"}
    await frameworks.create("a", role(number=2))
    await frameworks.create("b", role(number=2))
    await frameworks.create("c", role())
    # Fails twice in the same words, so that an Event is counted up.
    await frameworks.create(
        "d",
        role(simulate=failing, frameworkAttemptCompletionPolicy=policy(1)),
        retryPolicy={"maxRetryCount": 1},
    )
    # Ends so slowly that its Node is looked at.
    forced = {"podGracefulDeletionTimeoutSec": 1, "podForceDeletionPolicy": "NodeUnreachable"}
    hangs = {"run-seconds": "forever", "stop-seconds": "forever"}
    await frameworks.create("e", role(simulate=hangs, task=forced), role("b"))
    await frameworks.until_running("e", 2)
    # Another client's change of the Framework, which it finds by a live read when its next status is refused.
    note = orjson.dumps({"metadata": {"annotations": {"note": "x"}}})
    await client.patch(FRAMEWORKS, "e", note, namespace, content_type=MERGE_PATCH)
    await client.delete(PODS, "e-a-0", namespace)

    async def looked() -> None:
        assert {request.verb for request in door.requests if request.resource == "nodes"} == {"get"}

    await eventually(looked)
    await frameworks.set("e", taskRoles__0__task__podForceDeletionPolicy="Always")
    await frameworks.until("e", lambda status: tasks(status)[0]["state"] == "Completed")
    await frameworks.until_running("a", 2)
    bare = orjson.dumps({"metadata": {"labels": None}})
    for resource, unlabelled in ((PODS, "a-a-1"), (CONFIGMAPS, "a-attempt")):
        await client.patch(resource, unlabelled, bare, namespace, content_type=MERGE_PATCH)

        async def labelled(resource: Resource = resource, name: str = unlabelled) -> None:
            found = orjson.loads(await client.get(resource, name, namespace))
            assert found["metadata"].get("labels") == {"FC_FRAMEWORK_NAME": "a"}

        await eventually(labelled)
    await frameworks.set("a", taskRoles__0__taskNumber=1)
    await frameworks.until("a", lambda status: len(status["attemptStatus"]["taskRoleStatuses"][0]["taskStatuses"]) == 1)
    for name in ("b", "c"):
        await frameworks.until(name, lambda status: condition(status, "Stalled").get("reason") == "NamingConflict")
        await frameworks.set(name, executionType="Stop")
    for name in ("a", "e"):
        await frameworks.set(name, executionType="Stop")

    async def gone() -> None:
        items = orjson.loads(await client.list(FRAMEWORKS, namespace))["items"]
        assert [item["metadata"]["name"] for item in items] == []

    # Completed, retained for a moment, and deleted by the controller.
    await eventually(gone, within=90, every=0.2)


@pytest.fixture
async def embedded(clock: VirtualClockLoop, tmp_path: Path) -> AsyncIterator[Cluster]:
    """The embedded cluster, with a node."""
    async with embedded_cluster(tmp_path) as cluster, simulated_node(cluster):
        yield cluster


async def test_the_rules_match_its_requests(embedded: Cluster) -> None:
    cluster = embedded
    client = await cluster.client()
    frameworks = Frameworks(client, cluster.namespace)
    name = "frameworks.frameworkcontroller.microsoft.com"
    await client.delete(CRDS, name)

    async def gone() -> None:
        with pytest.raises(NotFound):
            await client.get(CRDS, name)

    await eventually(gone)
    async with front_door(await cluster.connection()) as door:
        async with running(cluster, door, config(cluster)), standing_by(cluster, door, config(cluster)):
            pass
        # As an older release left it.
        older = orjson.dumps([{"op": "remove", "path": "/spec/versions/0/additionalPrinterColumns"}])
        await client.raw(
            "PATCH", CRDS.path(name=name), body=older, headers={"Content-Type": "application/json-patch+json"}
        )
        async with running(cluster, door, config(cluster)):
            await everything(frameworks, door)
        everywhere = [request for request in door.requests if request.resource != "leases"]
        leases = [request for request in door.requests if request.resource == "leases"]
        assert permissions(rules(CLUSTER_WIDE, "ClusterRole")) - NOT_REQUESTS == used(everywhere)
        assert permissions(rules(CLUSTER_WIDE, "Role")) == used(leases)
        assert {request.namespace for request in leases} == {cluster.namespace}
        # It watches everything everywhere, hence the ClusterRole.
        assert {request.namespace for request in everywhere if request.verb in ("list", "watch")} == {""}
        # Rules that are bound to names cover the names that are used.
        named = {
            request.name
            for request in door.requests
            if request.resource in ("customresourcedefinitions", "leases") and request.name
        }
        assert named == {name, "frameworkcontroller"}


async def test_in_one_namespace_roles_are_enough(embedded: Cluster) -> None:
    cluster = embedded
    frameworks = Frameworks(await cluster.client(), cluster.namespace)

    def forbid(request: Request) -> Any:
        # As for a user with only Roles in that namespace, not even a read of the served kinds.
        if request.namespace != cluster.namespace:
            return refusal(403, "Forbidden", f'User "controller" cannot {request.verb} {request.resource}')
        return None

    async with front_door(await cluster.connection()) as door:
        with door.answering(forbid):
            async with running(cluster, door, config(cluster, namespace=cluster.namespace)):
                await everything(frameworks, door)
        inside = [request for request in door.requests if request.namespace and request.resource != "leases"]
        assert permissions(rules(ONE_NAMESPACE, "Role")) - NOT_REQUESTS == used(inside)
        # Its attempts beyond, once at the start: whether the definition is as it should be.
        # And, for the Pod that is to be force-deleted, its Node.
        assert {request.resource for request in door.requests if not request.namespace} == {
            "customresourcedefinitions",
            "/apis/frameworkcontroller.microsoft.com/v1",
            "nodes",
        }


async def test_the_rules_of_a_network_match_its_requests(embedded: Cluster) -> None:
    cluster = embedded
    client = await cluster.client()
    frameworks = Frameworks(client, cluster.namespace)
    # A conflicting object: it reads it.
    other = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "b"}, "spec": {"clusterIP": "None"}}
    await client.create(SERVICES, orjson.dumps(other), cluster.namespace)
    async with front_door(await cluster.connection()) as door, running(cluster, door, config(cluster)):
        await frameworks.create("a", role(), network={})
        await frameworks.create("b", role(), network={})
        await frameworks.until_running("a", 1)
        await frameworks.until("b", lambda status: condition(status, "Stalled").get("reason") == "NamingConflict")
        await client.delete(SERVICES, "a", cluster.namespace)

        async def made_again() -> None:
            created = [one for one in door.requests if one.resource == "services" and one.verb == "create"]
            assert len([one for one in created if one.namespace == cluster.namespace]) > 2

        await eventually(made_again)
    requests = [request for request in door.requests if request.resource == "services"]
    assert permissions(rules(NETWORK, "ClusterRole")) == used(requests)
    base = permissions(rules(CLUSTER_WIDE, "ClusterRole"))
    assert used(request for request in door.requests if request.resource not in ("services", "leases")) <= base


def claiming(number: int, retained: str) -> Json:
    """A role whose Tasks have volume claims."""
    template = {"metadata": {"name": "data"}, "spec": claim_spec()}
    policy = {"whenDeleted": retained, "whenScaled": retained}
    return {
        **role(number=number),
        "volumeClaimTemplates": [template],
        "persistentVolumeClaimRetentionPolicy": policy,
    }


async def all_requests_for_claims(frameworks: Frameworks) -> None:
    """Everything that a controller does with volume claims."""
    others = {*await claims_in(frameworks)}
    # A conflicting object: it reads its owner.
    other = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data-b-a-0"}}
    body = orjson.dumps({**other, "spec": claim_spec()})
    await frameworks.client.create(PERSISTENTVOLUMECLAIMS, body, frameworks.namespace)
    await frameworks.create("a", claiming(2, "Retain"))
    await frameworks.create("b", claiming(1, "Retain"))
    await frameworks.until_running("a", 2)
    await frameworks.until("b", lambda status: condition(status, "Stalled").get("reason") == "NamingConflict")
    delete = {"whenDeleted": "Delete", "whenScaled": "Delete"}
    await frameworks.set("a", taskRoles__0__persistentVolumeClaimRetentionPolicy=delete)
    await frameworks.set("a", taskRoles__0__taskNumber=1)
    await until_claims_are(frameworks, {"data-a-a-0", "data-b-a-0"} | others)


async def test_the_rules_of_volume_claims_match_its_requests(embedded: Cluster) -> None:
    cluster = embedded
    frameworks = Frameworks(await cluster.client(), cluster.namespace)
    async with front_door(await cluster.connection()) as door, running(cluster, door, config(cluster)):
        await all_requests_for_claims(frameworks)
    requests = [request for request in door.requests if request.resource == "persistentvolumeclaims"]
    assert permissions(rules(CLAIMS, "ClusterRole")) == used(requests)
    base = permissions(rules(CLUSTER_WIDE, "ClusterRole"))
    assert used(one for one in door.requests if one.resource not in ("persistentvolumeclaims", "leases")) <= base


async def create_queued(frameworks: Frameworks, name: str, number: int, priority: str = "", **pod: Any) -> None:
    """Create a Framework in the local queue. Each of its Tasks needs a CPU."""
    one = role(number=number)
    (container,) = one["task"]["pod"]["spec"]["containers"]
    container["resources"] = {"requests": {"cpu": "1"}}
    one["task"]["pod"]["spec"] |= pod
    labels = {QUEUE_NAME: LOCAL_QUEUE, **({PRIORITY_CLASS: priority} if priority else {})}
    await frameworks.create(name, one, metadata={"labels": labels})


async def all_requests_for_queues(frameworks: Frameworks) -> None:
    """All requests of a controller for Workloads and the objects that they refer to."""
    await create_queued(frameworks, "low", 2, "low")
    await frameworks.until_running("low", 2)
    await create_queued(frameworks, "high", 2, "high")
    await frameworks.until_running("high", 2)
    status = await frameworks.status("low")
    assert status["retryPolicyStatus"]["accountableRetriedCount"] == 0
    await frameworks.set("high", suspend=True)
    await frameworks.until_running("low", 2)
    await frameworks.set("low", executionType="Stop")
    await frameworks.set("high", executionType="Stop")
    await create_queued(frameworks, "c", 1, priorityClassName="missing")
    await frameworks.until("c", lambda status: condition(status, "Stalled").get("reason") == "QueueInvalid")
    await frameworks.delete("c", "Foreground")

    async def left() -> None:
        items = orjson.loads(await frameworks.client.list(WORKLOADS, frameworks.namespace))["items"]
        assert [one["metadata"]["name"] for one in items if one["metadata"].get("finalizers")] == []

    await eventually(left)


async def test_the_rules_of_queues_match_its_requests(embedded: Cluster) -> None:
    cluster = embedded
    frameworks = Frameworks(await cluster.client(), cluster.namespace)
    settings = config(cluster, kueue=Kueue(mode=KueueMode.ENABLED))
    async with (
        queue_on(cluster, {"cpu": "2"}),
        front_door(await cluster.connection()) as door,
        running(cluster, door, settings),
    ):
        await all_requests_for_queues(frameworks)
    base = permissions(rules(CLUSTER_WIDE, "ClusterRole"))
    found = used(request for request in door.requests if request.resource != "leases")
    assert found - base == permissions(rules(KUEUE, "ClusterRole"))


async def test_for_queues_in_one_namespace_a_role_and_cluster_scoped_rules_are_enough(embedded: Cluster) -> None:
    cluster = embedded
    frameworks = Frameworks(await cluster.client(), cluster.namespace)
    settings = config(cluster, namespace=cluster.namespace, kueue=Kueue(mode=KueueMode.ENABLED))
    async with (
        queue_on(cluster, {"cpu": "2"}),
        front_door(await cluster.connection()) as door,
        running(cluster, door, settings),
    ):
        await all_requests_for_queues(frameworks)
    inside = used(one for one in door.requests if one.namespace and one.resource != "leases")
    outside = used(one for one in door.requests if not one.namespace)
    assert inside - permissions(rules(ONE_NAMESPACE, "Role")) == permissions(rules(KUEUE_OF_ONE, "Role"))
    base = permissions(rules(CLUSTER_WIDE, "ClusterRole"))
    assert outside - base == permissions(rules(KUEUE_BESIDE, "ClusterRole"))


async def all_requests_for_gangs(frameworks: Frameworks, resource: Resource) -> None:
    """Everything that a controller does with PodGroups."""
    gang: Json = {"schedulingPolicy": {"gang": {}}}
    # It reads its owner.
    body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": "h"}}
    await frameworks.client.create(resource, orjson.dumps(body), frameworks.namespace)
    await frameworks.create("g", role(number=2), scheduling=gang)
    await frameworks.create("h", role(), scheduling=gang)
    await frameworks.until("h", lambda status: condition(status, "Stalled").get("reason") == "NamingConflict")

    async def pods() -> None:
        assert {"g-a-0", "g-a-1"} <= set(await frameworks.pods())

    await eventually(pods)
    await frameworks.set("g", taskRoles__0__taskNumber=1)

    async def lowered() -> None:
        spec = orjson.loads(await frameworks.client.get(resource, "g", frameworks.namespace))["spec"]
        assert (spec.get("minMember") or spec["schedulingPolicy"]["gang"]["minCount"]) == 1

    await eventually(lowered)
    for name in ("g", "h"):
        await frameworks.set(name, executionType="Stop")
        await frameworks.until_gone(name)


GANG_SCHEDULERS: Final = {
    GangScheduler.KUBERNETES: PODGROUPS,
    GangScheduler.VOLCANO: VOLCANO_PODGROUPS,
    GangScheduler.COSCHEDULING: COSCHEDULING_PODGROUPS,
}


@pytest.mark.parametrize("scheduler", GANG_SCHEDULERS)
async def test_the_rules_of_gangs_match_its_requests(embedded: Cluster, scheduler: GangScheduler) -> None:
    cluster, resource = embedded, GANG_SCHEDULERS[scheduler]
    frameworks = Frameworks(await cluster.client(), cluster.namespace)
    await serve(cluster, resource)
    settings = config(cluster, gang_scheduler=scheduler)
    async with front_door(await cluster.connection()) as door, running(cluster, door, settings):
        await all_requests_for_gangs(frameworks, resource)
    base = permissions(rules(CLUSTER_WIDE, "ClusterRole"))
    found = used(request for request in door.requests if request.resource != "leases")
    granted_to = {one for one in permissions(rules(GANG, "ClusterRole")) if one[1] == resource.group}
    assert found - base == granted_to
    assert {one[1] for one in permissions(rules(GANG, "ClusterRole"))} == {
        one.group for one in GANG_SCHEDULERS.values()
    }


async def all_requests_for_the_history(frameworks: Frameworks) -> None:
    """Everything that a controller does with the finalizer."""
    await frameworks.create("k", role())
    await frameworks.until_running("k", 1)
    assert (await frameworks.get("k"))["metadata"]["finalizers"] == [HISTORY_FINALIZER]
    await frameworks.delete("k", "Background")
    await frameworks.until_gone("k")


@asynccontextmanager
async def archive() -> AsyncIterator[History]:
    """The configuration of a history that has an archive."""

    async def unknown() -> int:
        return 0

    async with ArchiveStandIn(unknown) as stand_in:
        yield History(sink=HistorySinkKind.HTTP, url=stand_in.records_url).with_all_logs()


@pytest.mark.parametrize("one_namespace", [False, True], ids=["all namespaces", "one namespace"])
async def test_the_rules_of_the_history_match_its_requests(embedded: Cluster, one_namespace: bool) -> None:
    cluster = embedded
    frameworks = Frameworks(await cluster.client(), cluster.namespace)
    async with (
        archive() as history,
        front_door(await cluster.connection()) as door,
        running(
            cluster,
            door,
            config(
                cluster,
                history=history.model_copy(update={"cluster": "one" if one_namespace else ""}),
                **({"namespace": cluster.namespace} if one_namespace else {}),
            ),
        ),
    ):
        await all_requests_for_the_history(frameworks)
    if one_namespace:
        inside = used(one for one in door.requests if one.namespace and one.resource != "leases")
        assert inside - permissions(rules(ONE_NAMESPACE, "Role")) == permissions(rules(HISTORY_OF_ONE, "Role"))
    else:
        found = used(request for request in door.requests if request.resource != "leases")
        assert found - permissions(rules(CLUSTER_WIDE, "ClusterRole")) == permissions(rules(HISTORY, "ClusterRole"))
        (namespace,) = {request.name for request in door.requests if request.resource == "namespaces"}
        assert [rule["resourceNames"] for rule in rules(HISTORY, "ClusterRole") if "resourceNames" in rule] == [
            [namespace]
        ]


def test_both_sets_of_rules_say_the_same() -> None:
    assert permissions(rules(NETWORK, "ClusterRole")) == permissions(rules(NETWORK_OF_ONE, "Role"))
    assert permissions(rules(CLAIMS, "ClusterRole")) == permissions(rules(CLAIMS_OF_ONE, "Role"))
    assert permissions(rules(GANG, "ClusterRole")) == permissions(rules(GANG_OF_ONE, "Role"))
    of_kueue = permissions([*rules(KUEUE_OF_ONE, "Role"), *rules(KUEUE_BESIDE, "ClusterRole")])
    assert permissions(rules(KUEUE, "ClusterRole")) == of_kueue
    everywhere = permissions(rules(CLUSTER_WIDE, "ClusterRole"))
    definitions = {item for item in everywhere if item[1] == CRDS.group}
    beside = permissions(rules(NODES_BESIDE, "ClusterRole"))
    assert everywhere - definitions == permissions(rules(ONE_NAMESPACE, "Role")) | beside
    assert beside == {("get", "", "nodes")}


async def test_without_permission_to_list_frameworks_it_names_the_missing_rule(embedded: Cluster) -> None:
    cluster = embedded

    def forbid(request: Request) -> Any:
        return refusal(403, "Forbidden", f'User "controller" cannot {request.verb} {request.resource}')

    async with front_door(await cluster.connection()) as door:
        wanted = r"cannot be listed: install its CRD, and permit its use: User"
        with door.answering(forbid), pytest.raises(CrdError, match=wanted):
            await Controller(Config(namespace=cluster.namespace), door.connection, wall=cluster.wall).run()


# --- on real RBAC -----------------------------------------------------------------------------------------------


@asynccontextmanager
async def granted(cluster: Cluster, *roles: Json) -> AsyncIterator[None]:
    """Grant the user `controller` exactly these roles; Roles are in the test's namespace."""
    if cluster.kubeconfig_of is None:
        pytest.skip("this cluster lets everybody do everything")
    client = await cluster.client()
    made: list[tuple[Resource, str, str | None]] = []
    subjects = [{"kind": "User", "name": "controller", "apiGroup": "rbac.authorization.k8s.io"}]
    for role_body in roles:
        kind = role_body["kind"]
        resource, bindings = (ROLES, ROLE_BINDINGS) if kind == "Role" else (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS)
        namespace = cluster.namespace if kind == "Role" else None
        name = f"{role_body['metadata']['name']}-{cluster.namespace}"
        await client.create(resource, orjson.dumps({**role_body, "metadata": {"name": name}}), namespace)
        binding = {
            "apiVersion": bindings.api_version,
            "kind": bindings.kind,
            "metadata": {"name": name},
            "roleRef": {"apiGroup": bindings.group, "kind": kind, "name": name},
            "subjects": subjects,
        }
        await client.create(bindings, orjson.dumps(binding), namespace)
        made += [(resource, name, namespace), (bindings, name, namespace)]
    try:
        await until_granted(cluster)
        yield
    finally:
        for resource, name, namespace in made:
            await client.delete(resource, name, namespace)


async def until_granted(cluster: Cluster) -> None:
    """Wait until the API server has taken in the roles."""
    client = await cluster.client("controller")

    async def probe() -> None:
        try:
            await client.list(FRAMEWORKS, cluster.namespace, limit=1)
            await client.get(LEASES, "frameworkcontroller", cluster.namespace)
        except NotFound:
            pass
        except ApiError as error:
            raise AssertionError(str(error)) from error

    await eventually(probe)


@pytest.mark.parametrize("one_namespace", [False, True], ids=["cluster", "namespace"])
async def test_it_runs_under_exactly_these_rules(cluster: Cluster, frameworks: Frameworks, one_namespace: bool) -> None:
    lease_roles = documents(CLUSTER_WIDE, "Role")
    if one_namespace:
        roles, settings = documents(ONE_NAMESPACE, "Role"), config(cluster, namespace=cluster.namespace)
    else:
        roles, settings = documents(CLUSTER_WIDE, "ClusterRole"), config(cluster)
    async with granted(cluster, *roles, *lease_roles), front_door(await cluster.connection("controller")) as door:
        async with running(cluster, door, settings), standing_by(cluster, door, settings):
            await everything(frameworks, door)
        forbidden = {(request.verb, request.resource) for request, code in door.refused if code == 403}
    # All its attempts beyond: to see whether the definition is as it should be, and a Node. It continues if Frameworks
    # are served; the Pod on that Node is not deleted by force.
    beyond = {("get", "customresourcedefinitions"), ("get", "nodes")}
    assert forbidden == (beyond if one_namespace else set())


async def check_component(
    cluster: Cluster,
    frameworks: Frameworks,
    settings: Config,
    file: Path,
    denied: str,
    begin: Callable[[], Awaitable[object]],
    use: Callable[[], Awaitable[object]],
) -> None:
    """Without the component's rules Framework x is stalled by the denial; with them it continues by itself.

    ``denied``: verb and resource. ``begin``: creates x. ``use``: sends all other requests of the component.
    """
    base = [*documents(CLUSTER_WIDE, "ClusterRole"), *documents(CLUSTER_WIDE, "Role")]
    async with (
        granted(cluster, *base),
        front_door(await cluster.connection("controller")) as door,
        running(cluster, door, settings),
    ):
        verb, resource = denied.split()
        text = f'cannot {verb} resource "{resource}"'
        await begin()
        await frameworks.until("x", lambda status: text in condition(status, "Stalled").get("message", ""))
        assert await frameworks.pods() == {}
        async with granted(cluster, *documents(file, "ClusterRole")):
            await frameworks.until("x", lambda status: condition(status, "Stalled")["status"] == "False")

            async def is_created() -> None:
                assert {*await frameworks.pods()} == {"x-a-0"}

            await eventually(is_created)
            await use()
            forbidden = {(request.verb, request.resource) for request, code in door.refused if code == 403}
            # A single request for the namespace of the archive's identity may be among them.
            assert forbidden - {("get", "namespaces")} == {(verb, resource)}


async def test_a_network_runs_under_the_rules_of_its_component(cluster: Cluster, frameworks: Frameworks) -> None:
    async def use() -> None:
        await frameworks.create("y", role(), network={})
        await frameworks.until_running("y", 1)

    await check_component(
        cluster,
        frameworks,
        config(cluster),
        NETWORK,
        "list services",
        lambda: frameworks.create("x", role(), network={}),
        use,
    )


async def test_volume_claims_are_kept_under_the_rules_of_their_component(
    cluster: Cluster, frameworks: Frameworks
) -> None:
    await check_component(
        cluster,
        frameworks,
        config(cluster),
        CLAIMS,
        "list persistentvolumeclaims",
        lambda: frameworks.create("x", claiming(1, "Delete")),
        lambda: all_requests_for_claims(frameworks),
    )


@pytest.mark.newest
async def test_frameworks_are_queued_under_the_rules_of_their_component(
    cluster: Cluster, frameworks: Frameworks
) -> None:
    async def use() -> None:
        await frameworks.set("x", executionType="Stop")
        await all_requests_for_queues(frameworks)

    async with queue_on(cluster, {"cpu": "2"}):
        await check_component(
            cluster,
            frameworks,
            config(cluster, kueue=Kueue(mode=KueueMode.ENABLED)),
            KUEUE,
            "list workloads",
            lambda: create_queued(frameworks, "x", 1),
            use,
        )


@pytest.mark.newest
async def test_gangs_are_made_under_the_rules_of_their_component(cluster: Cluster, frameworks: Frameworks) -> None:
    await serve(cluster, VOLCANO_PODGROUPS)
    try:
        await check_component(
            cluster,
            frameworks,
            config(cluster, gang_scheduler=GangScheduler.VOLCANO),
            GANG,
            "list podgroups",
            lambda: frameworks.create("x", role(), scheduling={"schedulingPolicy": {"gang": {}}}),
            lambda: all_requests_for_gangs(frameworks, VOLCANO_PODGROUPS),
        )
    finally:
        await frameworks.client.delete(CRDS, VOLCANO_PODGROUPS.qualified)


@pytest.mark.newest
async def test_the_history_holds_frameworks_under_the_rules_of_its_component(
    cluster: Cluster, frameworks: Frameworks
) -> None:
    async with archive() as history:
        await check_component(
            cluster,
            frameworks,
            config(cluster, history=history),
            HISTORY,
            "patch frameworks",
            lambda: frameworks.create("x", role()),
            lambda: all_requests_for_the_history(frameworks),
        )


async def ask_for_access(door: FrontDoor, cluster: Cluster) -> None:
    """All that is asked about viewers and senders of records."""
    assert cluster.server is not None
    async with KubeClient(door.connection) as client:
        access = ClusterAccess(client, audiences=["frameworkcontroller-history", ""])
        token = cluster.server.authenticator.token
        viewer = await access.identify(make_mocked_request("GET", "/"), token)
        assert await viewer.may_read(cluster.namespace)
        assert await viewer.may_write_history([cluster.namespace])
        assert await viewer.may_get("/metrics")


async def test_the_rules_of_the_archive_match_its_requests(embedded: Cluster) -> None:
    async with front_door(await embedded.connection()) as door:
        await ask_for_access(door, embedded)
    assert permissions(rules(ARCHIVE, "ClusterRole")) == used(door.requests)
    assert rules(ARCHIVE_OF_ONE, "ClusterRole") == rules(ARCHIVE, "ClusterRole")


@pytest.mark.parametrize("one_namespace", [False, True], ids=["cluster", "namespace"])
async def test_the_rules_of_the_pages_match_their_requests(embedded: Cluster, one_namespace: bool) -> None:
    cluster = embedded
    frameworks = Frameworks(await cluster.client(), cluster.namespace)
    async with (
        Controller(Config(), await cluster.connection(), wall=cluster.wall),
        front_door(await cluster.connection()) as door,
        KubeClient(door.connection) as client,
    ):
        await frameworks.create("a", role(number=2))
        await frameworks.until_running("a", 2)
        live = LiveFrameworks(client, cluster.namespace if one_namespace else None, wall=cluster.wall)
        app = Pages(live).application()
        protect(app, ClusterAccess(client))
        async with (
            program.background(live.run()),
            BoundedServer(app, "127.0.0.1", 0, drain_sec=0.0) as server,
            aiohttp.ClientSession() as session,
        ):
            await live.wait_synced()
            assert cluster.server is not None
            headers = {"Authorization": f"Bearer {cluster.server.authenticator.token}"}
            uid = (await frameworks.get("a"))["metadata"]["uid"]
            page = f"frameworks/{cluster.namespace}/a/{uid}"
            for path in ("", f"frameworks/{cluster.namespace}/a", page, f"{page}/tasks/a/0"):
                async with session.get(f"{server.url}/{path}", headers=headers) as response:
                    assert response.status == 200, path
    everything_read = permissions(rules(DASHBOARD, "ClusterRole"))
    assert used(door.requests) == everything_read
    if one_namespace:
        inside = [request for request in door.requests if request.namespace]
        assert {request.namespace for request in inside} == {cluster.namespace}
        assert used(inside) == permissions(rules(DASHBOARD_OF_ONE, "Role"))
        beside = [request for request in door.requests if not request.namespace]
        assert used(beside) == permissions(rules(DASHBOARD_BESIDE, "ClusterRole"))
