"""The controller's rules are exactly sufficient: the shipped rules, compared with the requests that it sent.

On the embedded cluster, which tells no users apart, its requests are recorded and compared with the rules, in both
directions. On real ones it runs as a user who has exactly those rules.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import aiohttp
import orjson
import pytest
import yaml
from aiohttp.test_utils import make_mocked_request

from frameworkcontroller.api.names import HISTORY_FINALIZER
from frameworkcontroller.api.podgroups import GangScheduler
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.commands import program
from frameworkcontroller.config.config import Config, Kueue, KueueMode, LeaderElection
from frameworkcontroller.config.historyconfig import History, HistorySinkKind
from frameworkcontroller.dashboard.live import LiveFrameworks
from frameworkcontroller.dashboard.pages import Pages
from frameworkcontroller.kube.client import MERGE_PATCH, KubeClient
from frameworkcontroller.kube.crd import CrdError
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
from frameworkcontroller.manager.app import Controller
from frameworkcontroller.webaccess.boundedserver import BoundedServer
from frameworkcontroller.webaccess.cluster_access import ClusterAccess
from frameworkcontroller.webaccess.middleware import protect
from tests.support.claims import claim_spec, claims_in, until_claims_are
from tests.support.clusters import Cluster, embedded_cluster, simulated_node
from tests.support.eventually import eventually, read_until, until
from tests.support.frameworks import Frameworks, Json, condition, policy, role, tasks
from tests.support.frontdoor import FrontDoor, Request, front_door, refusal
from tests.support.historysink import ArchiveStandIn
from tests.support.localqueue import in_queue, needing, queue_on
from tests.support.objects import is_there, read, served_budgets, until_missing
from tests.support.podgroups import serve
from tests.support.pods import pod_manifest
from tests.support.realcluster import ROOT
from tests.support.virtual_clock import VirtualClockLoop

MANIFESTS: Final = ROOT / "manifests"
CLUSTER_WIDE: Final = MANIFESTS / "base" / "rbac.yaml"
ONE_NAMESPACE: Final = MANIFESTS / "overlays" / "single-namespace" / "role.yaml"
KUEUE: Final = MANIFESTS / "components" / "kueue" / "kustomization.yaml"
KUEUE_BESIDE: Final = MANIFESTS / "overlays" / "single-namespace" / "kueue.yaml"
GANGS: Final = MANIFESTS / "components" / "gang" / "kustomization.yaml"
BUDGETS: Final = MANIFESTS / "components" / "disruption-budgets" / "kustomization.yaml"
HISTORY: Final = MANIFESTS / "components" / "history" / "kustomization.yaml"
NODES_BESIDE: Final = MANIFESTS / "overlays" / "single-namespace" / "nodes.yaml"
ARCHIVE: Final = MANIFESTS / "components" / "archive" / "rbac.yaml"
ARCHIVE_OF_ONE: Final = MANIFESTS / "components" / "archive-single-namespace" / "cluster.yaml"
DASHBOARD: Final = MANIFESTS / "components" / "dashboard" / "rbac.yaml"
DASHBOARD_OF_ONE: Final = MANIFESTS / "components" / "dashboard-single-namespace" / "rbac.yaml"
DASHBOARD_BESIDE: Final = MANIFESTS / "components" / "dashboard-single-namespace" / "cluster.yaml"

GANG: Final[Json] = {"schedulingPolicy": {"gang": {}}}

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
    """The rules in roles of that kind, or those that a component adds to one."""
    if file.name != "kustomization.yaml":
        return [rule for document in documents(file, kind) for rule in document["rules"]]
    return [
        operation["value"]
        for patch in yaml.safe_load(file.read_text())["patches"]
        if patch["target"].get("kind", kind) == kind
        for operation in yaml.safe_load(patch["patch"])
    ]


def permissions(given: Iterable[Json]) -> set[Permission]:
    return {
        (verb, group, resource)
        for rule in given
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def without_features(given: Iterable[Json]) -> set[Permission]:
    """The permissions that all Frameworks need."""
    scalers = {resource for _, _, resource in permissions(given) if resource.startswith("frameworkrolescalers")}
    others = {"services", "persistentvolumeclaims", *scalers}
    return {one for one in permissions(given) if one[2] not in others}


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


@asynccontextmanager
async def running(cluster: Cluster, door: FrontDoor, settings: Config) -> AsyncIterator[Controller]:
    """A controller that leads."""
    async with Controller(settings, door.connection, wall=cluster.wall, instant=cluster.instant) as controller:
        await until(lambda: controller.leading)
        yield controller


@asynccontextmanager
async def standing_by(cluster: Cluster, door: FrontDoor, settings: Config) -> AsyncIterator[None]:
    """A replica that does not lead, and watches the Lease."""
    async with Controller(settings, door.connection, wall=cluster.wall, instant=cluster.instant):
        await until(lambda: ("watch", "leases") in door.count(0))
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
    await until(lambda: {request.verb for request in door.requests if request.resource == "nodes"} == {"get"})
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

    await until_missing(client, CRDS, name)
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
        assert without_features(rules(CLUSTER_WIDE, "ClusterRole")) - NOT_REQUESTS == used(everywhere)
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
        assert without_features(rules(ONE_NAMESPACE, "Role")) - NOT_REQUESTS == used(inside)
        # Its attempts beyond, once at the start: whether the definition is as it should be.
        # And, for the Pod that is to be force-deleted, its Node.
        assert {request.resource for request in door.requests if not request.namespace} == {
            "customresourcedefinitions",
            "/apis/frameworkcontroller.microsoft.com/v1",
            "nodes",
        }


async def all_requests_for_a_network(frameworks: Frameworks) -> None:
    """Everything that a controller does with Services."""
    client, namespace = frameworks.client, frameworks.namespace
    # A conflicting object: it reads it.
    other = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "b"}, "spec": {"clusterIP": "None"}}
    await client.create(SERVICES, orjson.dumps(other), namespace)
    for name in ("a", "b"):
        await frameworks.create(name, role(), network={})
    await frameworks.until_running("a", 1)
    await frameworks.until("b", lambda status: condition(status, "Stalled").get("reason") == "NamingConflict")
    before = await read(client, SERVICES, "a", namespace)
    await client.delete(SERVICES, "a", namespace)

    async def made_again() -> None:
        assert await is_there(client, SERVICES, "a", namespace)
        assert (await read(client, SERVICES, "a", namespace))["metadata"]["uid"] != before["metadata"]["uid"]

    await eventually(made_again)

    services = [{"taskRole": "a", "ports": [{"port": 80}]}]
    await frameworks.create("s", role(), network={"enableDNSHostnames": False, "services": services})
    await frameworks.until_running("s", 1)
    await frameworks.set("s", network__services__0__ports=[{"port": 81}])

    async def changed() -> None:
        assert (await read(client, SERVICES, "s-a", namespace))["spec"]["ports"][0]["port"] == 81

    await eventually(changed)
    await frameworks.set("s", network__services=[])
    await until_missing(client, SERVICES, "s-a", namespace)


async def all_requests_for_budgets(frameworks: Frameworks) -> None:
    """Everything that a controller does with PodDisruptionBudgets."""
    await frameworks.create("d", budgeted(1))
    await frameworks.until_running("d", 1)
    version = await served_budgets(frameworks.client)

    async def raised() -> None:
        found = await read(frameworks.client, version, "d-a", frameworks.namespace)
        assert found["spec"]["minAvailable"] == 1

    await eventually(raised)
    await frameworks.set("d", taskRoles__0__disruptionBudget=None)
    await until_missing(frameworks.client, version, "d-a", frameworks.namespace)


def budgeted(number: int) -> Json:
    """A role whose Tasks may not be evicted."""
    return {**role(number=number), "disruptionBudget": {"maxUnavailable": 0}}


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


async def create_queued(frameworks: Frameworks, name: str, number: int, priority: str = "", **pod: Any) -> None:
    """Create a Framework in the local queue."""
    await frameworks.create(name, needing(1, number, pod=pod), metadata=in_queue(priority))


async def all_requests_for_queues(frameworks: Frameworks) -> None:
    """All requests of a controller for Workloads and the objects that they refer to."""
    for name in await frameworks.pods():
        await frameworks.set(name.partition("-")[0], executionType="Stop")
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
    assert inside - permissions(rules(ONE_NAMESPACE, "Role")) == permissions(rules(KUEUE, "Role"))
    base = permissions(rules(CLUSTER_WIDE, "ClusterRole"))
    assert outside - base == permissions(rules(KUEUE_BESIDE, "ClusterRole"))


async def all_requests_for_gangs(frameworks: Frameworks, resource: Resource) -> None:
    """Everything that a controller does with PodGroups."""
    # It reads its owner.
    body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": "h"}}
    await frameworks.client.create(resource, orjson.dumps(body), frameworks.namespace)
    await frameworks.create("g", role(number=2), scheduling=GANG)
    await frameworks.create("h", role(), scheduling=GANG)
    await frameworks.until("h", lambda status: condition(status, "Stalled").get("reason") == "NamingConflict")
    await read_until(frameworks.pods, lambda found: {"g-a-0", "g-a-1"} <= set(found))
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


@dataclass(frozen=True)
class Component:
    """A component of the manifests, or a feature of the base, and the work that needs it."""

    file: Path
    denied: str
    """Verb and resource of its first request."""
    first: dict[str, Any]
    """Fields of the first Framework, and of its role."""
    use: Callable[[Frameworks], Awaitable[None]]
    settings: dict[str, Any] = field(default_factory=dict)
    group: str | None = None
    """The group of its rules that count; None: all of them."""

    def split(self) -> tuple[Json, Json]:
        """The base's ClusterRole without the rules of the feature, and a ClusterRole with them."""
        (base,) = documents(CLUSTER_WIDE, "ClusterRole")
        if self.file != CLUSTER_WIDE:
            return base, {**base, "metadata": {"name": "feature"}, "rules": rules(self.file, "ClusterRole")}
        own = [rule for rule in base["rules"] if rule["resources"] == self.denied.split()[1:]]
        others = [rule for rule in base["rules"] if rule not in own]
        return {**base, "rules": others}, {**base, "metadata": {"name": "feature"}, "rules": own}


COMPONENTS: Final[dict[str, Component]] = {
    "network": Component(CLUSTER_WIDE, "list services", {"network": {}}, all_requests_for_a_network),
    "claims": Component(
        CLUSTER_WIDE, "list persistentvolumeclaims", {"role": claiming(1, "Delete")}, all_requests_for_claims
    ),
    "queues": Component(
        KUEUE,
        "list workloads",
        {"role": needing(1), "metadata": in_queue()},
        all_requests_for_queues,
        {"kueue": Kueue(mode=KueueMode.ENABLED)},
    ),
    "budgets": Component(BUDGETS, "list poddisruptionbudgets", {"role": budgeted(1)}, all_requests_for_budgets),
    "history": Component(HISTORY, "patch frameworks", {}, all_requests_for_the_history),
    **{
        scheduler: Component(
            GANGS,
            "list podgroups",
            {"scheduling": GANG},
            partial(all_requests_for_gangs, resource=resource),
            {"gang_scheduler": scheduler},
            resource.group,
        )
        for scheduler, resource in GANG_SCHEDULERS.items()
    },
}


@asynccontextmanager
async def prepared(cluster: Cluster, component: Component, **more: Any) -> AsyncIterator[Config]:
    """The objects that the component needs; the configuration of the controller."""
    async with AsyncExitStack() as stack:
        settings = {**component.settings, **more}
        if component.file == HISTORY:
            history = await stack.enter_async_context(archive())
            settings["history"] = history.model_copy(update={"cluster": "one" if "namespace" in more else ""})
        elif component.file == KUEUE:
            await stack.enter_async_context(queue_on(cluster, {"cpu": "2"}))
        elif component.file == GANGS:
            resource = GANG_SCHEDULERS[component.settings["gang_scheduler"]]
            await serve(cluster, resource)
            stack.push_async_callback((await cluster.client()).delete, CRDS, resource.qualified)
        yield config(cluster, **settings)


@pytest.mark.parametrize("name", COMPONENTS)
async def test_the_rules_of_a_component_match_its_requests(embedded: Cluster, name: str) -> None:
    cluster, component = embedded, COMPONENTS[name]
    frameworks = Frameworks(await cluster.client(), cluster.namespace)
    async with (
        prepared(cluster, component) as settings,
        front_door(await cluster.connection()) as door,
        running(cluster, door, settings),
    ):
        await component.use(frameworks)
    found = used(request for request in door.requests if request.resource != "leases")
    base, own = component.split()
    granted_to = permissions(own["rules"])
    groups = {component.group} if component.group else {one[1] for one in granted_to}
    assert found - permissions(base["rules"]) == {one for one in granted_to if one[1] in groups}
    if component.file == GANGS:
        assert {one[1] for one in granted_to} == {one.group for one in GANG_SCHEDULERS.values()}
    if component.file == HISTORY:
        (namespace,) = {request.name for request in door.requests if request.resource == "namespaces"}
        named = [rule["resourceNames"] for rule in rules(HISTORY, "ClusterRole") if "resourceNames" in rule]
        assert named == [[namespace]]


async def test_the_rules_of_the_history_in_one_namespace(embedded: Cluster) -> None:
    cluster, component = embedded, COMPONENTS["history"]
    frameworks = Frameworks(await cluster.client(), cluster.namespace)
    async with (
        prepared(cluster, component, namespace=cluster.namespace) as settings,
        front_door(await cluster.connection()) as door,
        running(cluster, door, settings),
    ):
        await component.use(frameworks)
    inside = used(one for one in door.requests if one.namespace and one.resource != "leases")
    assert inside - permissions(rules(ONE_NAMESPACE, "Role")) == permissions(rules(HISTORY, "Role"))


def test_both_sets_of_rules_say_the_same() -> None:
    of_kueue = permissions([*rules(KUEUE, "Role"), *rules(KUEUE_BESIDE, "ClusterRole")])
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


# The history is last: its finalizer may outlive the test, and other controllers would ask to remove it.
@pytest.mark.parametrize(
    "name",
    [
        "network",
        "claims",
        "budgets",
        *(pytest.param(name, marks=pytest.mark.newest) for name in ("queues", GangScheduler.VOLCANO, "history")),
    ],
)
async def test_a_component_runs_under_its_rules(cluster: Cluster, frameworks: Frameworks, name: str) -> None:
    """Without them Framework x is stalled by the denial; with them it continues by itself."""
    component = COMPONENTS[name]
    base, own = component.split()
    verb, resource = component.denied.split()
    async with (
        granted(cluster, base, *documents(CLUSTER_WIDE, "Role")),
        prepared(cluster, component) as settings,
        front_door(await cluster.connection("controller")) as door,
        running(cluster, door, settings),
    ):
        text = f'cannot {verb} resource "{resource}"'
        fields = {"role": role(), **component.first}
        await frameworks.create("x", fields.pop("role"), **fields)
        await frameworks.until("x", lambda status: text in condition(status, "Stalled").get("message", ""))
        assert await frameworks.pods() == {}
        async with granted(cluster, own):
            await frameworks.until("x", lambda status: condition(status, "Stalled")["status"] == "False")
            await read_until(frameworks.pods, lambda found: {*found} == {"x-a-0"})
            await component.use(frameworks)
            forbidden = {(request.verb, request.resource) for request, code in door.refused if code == 403}
            # A single request for the namespace of the archive's identity may be among them.
            assert forbidden - {("get", "namespaces")} == {(verb, resource)}


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
