"""Host names on API servers: the Service before the first Pod, its life, and Services of other owners."""

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from frameworkcontroller.api.objects import service_record
from frameworkcontroller.config.config import Config
from frameworkcontroller.controller.eventhandlers import EventHandlers
from frameworkcontroller.kube.errors import NotFound
from frameworkcontroller.kube.informer import Informer
from frameworkcontroller.kube.resources import CONFIGMAPS, PODS, SERVICES
from frameworkcontroller.machine.kernel.model import NotListed
from frameworkcontroller.machine.kernel.requests import Kind
from frameworkcontroller.manager.app import Controller
from frameworkcontroller.manager.informers import CompanionInformer
from tests.support.clusters import Cluster
from tests.support.eventually import eventually, until
from tests.support.frameworks import Frameworks, Json, condition, policy, role, stalled
from tests.support.frontdoor import FrontDoor, Request, refusal
from tests.support.objects import items, read

pytestmark = pytest.mark.newest


async def service(frameworks: Frameworks, name: str = "f") -> Json:
    """The Service of that name."""
    return await read(frameworks.client, SERVICES, name, frameworks.namespace)


async def make_service(frameworks: Frameworks, name: str, **metadata: Any) -> Json:
    """Another owner's Service."""
    body = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, **metadata},
        "spec": {"clusterIP": "None", "selector": {"app": "other"}},
    }
    made: Json = orjson.loads(await frameworks.client.create(SERVICES, orjson.dumps(body), frameworks.namespace))
    return made


async def until_made_again(frameworks: Frameworks, before: str) -> None:
    """Wait until the Service of "f" has another UID."""

    async def made_again() -> None:
        found = await items(frameworks.client, SERVICES, frameworks.namespace)
        uids = [one["metadata"]["uid"] for one in found if one["metadata"]["name"] == "f"]
        assert uids
        assert uids != [before]

    await eventually(made_again)


def writes(door: FrontDoor) -> list[tuple[str, str]]:
    """The objects that were created and deleted, in order."""
    verbs = ("create", "delete")
    wanted = (SERVICES.plural, CONFIGMAPS.plural, PODS.plural)
    return [(one.verb, one.resource) for one in door.requests if one.verb in verbs and one.resource in wanted]


async def test_the_service_precedes_the_attempt_and_outlives_it(
    frameworks: Frameworks, watched: Controller, door: FrontDoor
) -> None:
    failing = role(
        "a",
        simulate={"run-seconds": "1", "exit-code": "1"},
        frameworkAttemptCompletionPolicy=policy(1),
    )
    made = await frameworks.create("f", failing, network={"subdomain": "train"}, retryPolicy={"maxRetryCount": 1})
    status = await frameworks.until_state("f", "Completed")
    assert status["attemptStatus"]["id"] == 1
    assert [resource for verb, resource in writes(door) if verb == "create"] == [
        "services", "configmaps", "pods", "configmaps", "pods",
    ]  # fmt: skip
    assert ("delete", "services") not in writes(door)
    found = await service(frameworks, "train")
    (owner,) = found["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Framework", made["metadata"]["uid"], True)
    assert found["spec"]["clusterIP"] == "None"
    assert found["spec"]["publishNotReadyAddresses"] is True
    await frameworks.delete("f")
    await frameworks.until_gone("f")

    async def gone() -> None:
        with pytest.raises(NotFound):
            await service(frameworks, "train")

    await eventually(gone)


@pytest.mark.virtual_clock
async def test_pods_have_the_names_by_which_they_find_each_other(
    frameworks: Frameworks, controller: Controller
) -> None:
    master, worker = role("master", 2), role("worker", 2)
    names = ("FC_TASK_RANK", "FC_FRAMEWORK_TASK_NUMBER", "FC_COORDINATOR_HOST", "FC_FRAMEWORK_ATTEMPT_ID")
    args = ["{{" + name + "}}" for name in names]
    worker["task"]["pod"]["spec"]["containers"][0]["args"] = args
    await frameworks.create("f", master, worker, network={}, coordinator={"taskRole": "master"})
    await frameworks.until_running("f", 4)
    pod = (await frameworks.pods())["f-worker-1"]["spec"]
    assert (pod["hostname"], pod["subdomain"]) == ("f-worker-1", "f")
    assert pod["containers"][0]["args"] == ["3", "4", "f-master-0.f", "0"]
    assert (await service(frameworks))["spec"]["selector"] == {"FC_FRAMEWORK_NAME": "f"}


async def test_a_deleted_service_is_made_again_for_running_pods(frameworks: Frameworks, controller: Controller) -> None:
    await frameworks.create("f", role(number=2), network={})
    await frameworks.until_running("f", 2)
    pods = {name: pod["metadata"]["uid"] for name, pod in (await frameworks.pods()).items()}
    before = (await service(frameworks))["metadata"]["uid"]
    await frameworks.client.delete(SERVICES, "f", frameworks.namespace)
    await until_made_again(frameworks, before)
    assert {name: pod["metadata"]["uid"] for name, pod in (await frameworks.pods()).items()} == pods


@pytest.mark.virtual_clock
async def test_a_service_that_was_deleted_while_unwatched_is_made_again(
    frameworks: Frameworks, watched: Controller, door: FrontDoor
) -> None:
    def is_watch(request: Request) -> bool:
        return (request.verb, request.resource) == ("watch", "services")

    broken: list[Request] = []
    with door.answering(lambda request: refusal(410, "Expired", "too old") if request in broken else None):
        with door.holding(is_watch) as broken:
            await frameworks.create("f", role(), network={})
            await frameworks.until_running("f", 1)
            before = (await service(frameworks))["metadata"]["uid"]
            await frameworks.client.delete(SERVICES, "f", frameworks.namespace)
        await until_made_again(frameworks, before)
    assert writes(door).count(("create", "services")) == 2


@pytest.mark.parametrize("labels", [{}, {"FC_FRAMEWORK_NAME": "f"}], ids=["plain", "with our label"])
async def test_a_service_of_another_owner_is_ignored(
    frameworks: Frameworks, controller: Controller, labels: dict[str, str]
) -> None:
    other = await make_service(frameworks, "f", labels=labels)
    await frameworks.create("f", role(), network={})
    status = await frameworks.until("f", lambda status: stalled(status) == "NamingConflict")
    assert status["state"] == "AttemptCreationPending"
    assert "waits: its Service f does not exist yet" in condition(status, "Running")["message"]
    assert await service(frameworks) == other
    await frameworks.client.delete(SERVICES, "f", frameworks.namespace)
    await frameworks.until_running("f", 1)
    assert stalled(await frameworks.status("f")) == ""


@pytest.mark.virtual_clock
@pytest.mark.parametrize("verbs", [("list", "watch"), ("create",)], ids=["list", "create"])
async def test_without_permissions_only_frameworks_with_a_network_wait(
    cluster: Cluster, frameworks: Frameworks, door: FrontDoor, verbs: tuple[str, ...]
) -> None:
    def forbid(request: Request) -> Any:
        if request.resource == "services" and request.verb in verbs:
            return refusal(403, "Forbidden", f'User "controller" cannot {request.verb} services')
        return None

    async with Controller(Config(), door.connection, wall=cluster.wall) as controller:
        with door.answering(forbid):
            await frameworks.create("f", role(), network={})
            await frameworks.create("g", role())
            await frameworks.until_running("g", 1)
            status = await frameworks.until("f", lambda status: bool(stalled(status)))
            wanted = "ServiceNotListed" if "list" in verbs else "ServiceNotAnswered"
            assert stalled(status) == wanted
            assert f"cannot {verbs[0]} services" in condition(status, "Stalled")["message"]
            assert controller.ready
        status = await frameworks.until_running("f", 1)
        assert stalled(status) == ""


@pytest.mark.virtual_clock
async def test_each_term_of_a_leader_watches_from_the_first_need_on(cluster: Cluster, frameworks: Frameworks) -> None:
    keys: list[str] = []
    ignore = SimpleNamespace(
        companion_changed=id, companion_updated=max, companion_deleted=max, companions_listed=print
    )
    make = partial(Informer, frameworks.client, SERVICES, service_record, namespace=frameworks.namespace)
    companions = CompanionInformer(Kind.SERVICE, make, cast(EventHandlers, ignore), keys.append)
    for _ in range(2):
        term = asyncio.create_task(companions.run())
        await asyncio.sleep(0)
        assert not companions.informer.running
        assert companions.find("ns/f", "ns/f") == NotListed()
        await until(lambda: keys == ["ns/f"])
        assert companions.find("ns/f", "ns/f") is None
        term.cancel()
        await asyncio.wait([term])
        assert not companions.informer.synced
        keys.clear()
