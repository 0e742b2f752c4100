"""Services and disruption budgets of roles on API servers: their lives, rescale, evictions, and other owners."""

from typing import Any, Final

import orjson
import pytest

from frameworkcontroller.config.config import Config
from frameworkcontroller.kube.errors import ApiError
from frameworkcontroller.kube.resources import SERVICES
from frameworkcontroller.manager.app import Controller
from tests.support.clusters import Cluster
from tests.support.eventually import eventually
from tests.support.frameworks import Frameworks, Json, condition, role, stalled
from tests.support.objects import is_there, read, served_budgets, until_missing

PORTS: Final = [{"port": 80, "targetPort": 8080}]


def addressed(*roles: str, **network: Any) -> Json:
    """A network without host names, with a Service for each of the roles."""
    return {"enableDNSHostnames": False, "services": [{"taskRole": name, "ports": PORTS} for name in roles], **network}


def budgeted(number: int, most: int, name: str = "a") -> Json:
    """A role with a disruption budget."""
    return {**role(name, number=number), "disruptionBudget": {"maxUnavailable": most}}


async def until_minimum(frameworks: Frameworks, wanted: int, name: str = "f-a") -> None:
    """Wait until the budget has that minAvailable."""
    resource = await served_budgets(frameworks.client)

    async def is_so() -> None:
        found = await read(frameworks.client, resource, name, frameworks.namespace)
        assert found["spec"]["minAvailable"] == wanted

    await eventually(is_so)


async def test_a_role_has_an_address_until_its_entry_is_removed(frameworks: Frameworks, controller: Controller) -> None:
    client, namespace = frameworks.client, frameworks.namespace
    made = await frameworks.create("f", role("a", number=2), role("b"), network=addressed("a", "b"))
    status = await frameworks.until_running("f", 3)
    assert status["roleObjects"] == ["Service/f-a", "Service/f-b"]
    found = await read(client, SERVICES, "f-a", namespace)
    (owner,) = found["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Framework", made["metadata"]["uid"], True)
    assert found["spec"]["selector"] == {"FC_FRAMEWORK_NAME": "f", "FC_TASKROLE_NAME": "a"}
    assert found["spec"]["clusterIP"] not in ("None", "", None)
    await frameworks.set("f", network__services__0__ports=[{"port": 81, "appProtocol": "http"}])

    async def changed() -> None:
        again = await read(client, SERVICES, "f-a", namespace)
        (port,) = again["spec"]["ports"]
        assert (port["port"], port["targetPort"], port.get("appProtocol")) == (81, 81, "http")
        assert again["spec"]["clusterIP"] == found["spec"]["clusterIP"]

    await eventually(changed)
    await client.delete(SERVICES, "f-a", namespace)

    async def made_again() -> None:
        assert await is_there(client, SERVICES, "f-a", namespace)
        assert (await read(client, SERVICES, "f-a", namespace))["metadata"]["uid"] != found["metadata"]["uid"]

    await eventually(made_again)
    await frameworks.set("f", network__services=[])
    for name in ("f-a", "f-b"):
        await until_missing(client, SERVICES, name, namespace)
    status = await frameworks.until("f", lambda status: "roleObjects" not in status)
    assert status["state"] == "AttemptRunning"


async def test_an_entry_that_is_removed_while_no_controller_runs(cluster: Cluster, frameworks: Frameworks) -> None:
    async with Controller(Config(), await cluster.connection(), wall=cluster.wall):
        await frameworks.create("f", budgeted(1, 0), network=addressed("a"))
        await frameworks.until_running("f", 1)
        await until_minimum(frameworks, 1)
    await frameworks.set("f", network__services=[], taskRoles__0__disruptionBudget=None)
    async with Controller(Config(), await cluster.connection(), wall=cluster.wall):
        await until_missing(frameworks.client, SERVICES, "f-a", frameworks.namespace)
        await until_missing(frameworks.client, await served_budgets(frameworks.client), "f-a", frameworks.namespace)


async def test_they_go_with_the_framework(frameworks: Frameworks, controller: Controller) -> None:
    await frameworks.create("f", budgeted(1, 0), network=addressed("a"))
    await frameworks.until_running("f", 1)
    await frameworks.delete("f")
    await frameworks.until_gone("f")
    for resource in (SERVICES, await served_budgets(frameworks.client)):
        await until_missing(frameworks.client, resource, "f-a", frameworks.namespace)


async def test_names_that_others_have_are_reported_before_anything_is_created(
    frameworks: Frameworks, controller: Controller
) -> None:
    client, namespace = frameworks.client, frameworks.namespace
    # The headless Service of another Framework has the name.
    await frameworks.create("g", role(), network={"subdomain": "f-a"})
    await frameworks.until_running("g", 1)
    before = await read(client, SERVICES, "f-a", namespace)
    await frameworks.create("f", role(), network=addressed("a"))
    status = await frameworks.until("f", lambda status: stalled(status) == "NamingConflict")
    assert status["state"] == "AttemptCreationPending"
    assert "waits: its Service f-a does not exist yet" in condition(status, "Running")["message"]
    assert await read(client, SERVICES, "f-a", namespace) == before
    await frameworks.set("f", network__services=[])
    await frameworks.until_running("f", 1)
    assert await read(client, SERVICES, "f-a", namespace) == before


async def test_a_network_is_immutable_except_for_services(cluster: Cluster, frameworks: Frameworks) -> None:
    if not cluster.evaluates_rules:
        pytest.skip("this API server does not evaluate rules")
    await frameworks.create("f", role(), network={"subdomain": "f"}, executionType="Create")
    await frameworks.set("f", network__services=[{"taskRole": "a", "ports": PORTS}])
    for field, value in (("subdomain", "g"), ("enableDNSHostnames", False), ("publishNotReadyAddresses", False)):
        with pytest.raises(ApiError, match="network is immutable, except for services"):
            await frameworks.set("f", **{f"network__{field}": value})
    await frameworks.set("f", network__services=[])


async def test_a_budget_follows_the_tasks_that_are_ready(frameworks: Frameworks, controller: Controller) -> None:
    await frameworks.create("f", budgeted(3, 1))
    await frameworks.until_running("f", 3)
    await until_minimum(frameworks, 2)
    await frameworks.set("f", taskRoles__0__taskNumber=5)
    await until_minimum(frameworks, 4)
    await frameworks.set("f", taskRoles__0__taskNumber=2)
    await until_minimum(frameworks, 1)
    await frameworks.set("f", taskRoles__0__disruptionBudget={"maxUnavailable": 0})
    await until_minimum(frameworks, 2)
    status = await frameworks.status("f")
    assert status["roleObjects"] == ["PodDisruptionBudget/f-a"]
    assert status["attemptStatus"]["taskRoleStatuses"][0]["budgetedTaskCount"] == 2


async def test_a_budget_holds_an_eviction_back(
    cluster: Cluster, frameworks: Frameworks, controller: Controller
) -> None:
    if not cluster.embedded:
        pytest.skip("this control plane runs no controller for budgets")
    subject = budgeted(2, 0)
    subject["task"]["retryPolicy"] = {"maxRetryCount": -2}
    await frameworks.create("f", subject)
    await frameworks.until_running("f", 2)
    await until_minimum(frameworks, 2)
    with pytest.raises(ApiError, match="Cannot evict pod as it would violate the pod's disruption budget"):
        await cluster.evict("f-a-0")
    assert set(await frameworks.pods()) == {"f-a-0", "f-a-1"}
    await frameworks.set("f", taskRoles__0__disruptionBudget={"maxUnavailable": 1})
    await until_minimum(frameworks, 1)
    await cluster.evict("f-a-0")
    with pytest.raises(ApiError, match="Cannot evict pod"):
        await cluster.evict("f-a-1")
    resource = await served_budgets(frameworks.client)

    async def shown() -> None:
        status = (await read(frameworks.client, resource, "f-a", frameworks.namespace))["status"]
        assert (status["currentHealthy"], status["desiredHealthy"], status["disruptionsAllowed"]) == (2, 1, 1)

    await eventually(shown)
    await cluster.evict("f-a-1")


async def test_a_budget_of_another_owner_is_ignored(frameworks: Frameworks, controller: Controller) -> None:
    resource = await served_budgets(frameworks.client)
    body = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": "f-a", "labels": {"FC_FRAMEWORK_NAME": "f"}},
        "spec": {"minAvailable": 7, "selector": {"matchLabels": {"app": "other"}}},
    }
    await frameworks.client.create(resource, orjson.dumps(body), frameworks.namespace)
    await frameworks.create("f", budgeted(1, 0))
    await frameworks.until("f", lambda status: stalled(status) == "NamingConflict")
    assert (await read(frameworks.client, resource, "f-a", frameworks.namespace))["spec"]["minAvailable"] == 7
    await frameworks.client.delete(resource, "f-a", frameworks.namespace)
    await frameworks.until_running("f", 1)
    await until_minimum(frameworks, 1)
