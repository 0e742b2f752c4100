"""A CRD that loses its status subresource while the controller runs: noticed, told, and put back if permitted."""

import asyncio
import copy
import logging
import random
from collections.abc import AsyncIterator, Set
from functools import partial
from typing import Any

import orjson
import pytest
from aiohttp import web

from frameworkcontroller.api import names
from frameworkcontroller.api.lastapplied import LAST_APPLIED
from frameworkcontroller.config.config import Config
from frameworkcontroller.controller.reconcilers import Reconcilers
from frameworkcontroller.kube import crdguard
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.kube.crd import missing_fields
from frameworkcontroller.kube.crdguard import AGAIN_SEC, PERIOD_SEC, CrdGuard, has_status
from frameworkcontroller.kube.resources import EVENTS
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.machine import statuswriter
from frameworkcontroller.manager.app import Controller
from frameworkcontroller.manager.exposition import registry_of
from tests.integration.test_kube_crd import MANIFEST, CrdServer
from tests.support import original
from tests.support.api import CRDS, Api, open_api, replace_spec
from tests.support.clusters import Cluster
from tests.support.eventually import eventually, read_until, until
from tests.support.faulty_server import drop, faulty_server, status
from tests.support.frameworks import Frameworks, Json, condition, role
from tests.support.frontdoor import Request, front_door, refusal
from tests.support.virtual_clock import VirtualClockLoop

WITHOUT: dict[str, Any] = copy.deepcopy(MANIFEST)
del WITHOUT["spec"]["versions"][0]["subresources"]


def test_whether_there_is_a_status_subresource() -> None:
    assert has_status(MANIFEST, MANIFEST)
    assert not has_status(WITHOUT, MANIFEST)
    newer = copy.deepcopy(MANIFEST)
    newer["spec"]["versions"].append({"name": "v2", "served": True, "storage": False})
    assert has_status(newer, MANIFEST)
    unserved = copy.deepcopy(WITHOUT)
    unserved["spec"]["versions"][0]["served"] = False
    assert has_status(unserved, MANIFEST)
    empty = copy.deepcopy(MANIFEST)
    empty["spec"]["versions"][0]["subresources"] = {"scale": {}, "status": None}
    assert not has_status(empty, MANIFEST)


FIELDS = [
    "spec.taskRoles[].dependsOn",
    "status.attemptStatus.taskRoleStatuses[].started",
]


def older(*paths: str) -> dict[str, Any]:
    """The CRD of a release that had not these fields."""
    crd = copy.deepcopy(MANIFEST)
    for path in paths:
        *way, last = path.split(".")
        schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for name in way:
            schema = schema["properties"][name.removesuffix("[]")]
            schema = schema["items"] if name.endswith("[]") else schema
        del schema["properties"][last]
        # Rules about the field.
        schema.pop("x-kubernetes-validations", None)
    return crd


OLDER = older(*FIELDS)


def test_which_fields_a_crd_lacks() -> None:
    assert missing_fields(MANIFEST, MANIFEST) == []
    assert missing_fields(OLDER, MANIFEST) == FIELDS
    assert missing_fields(MANIFEST, OLDER) == []
    assert missing_fields(older("spec.taskRoles", "status.conditions[].reason"), MANIFEST) == [
        "spec.taskRoles",
        "status.conditions[].reason",
    ]
    other = copy.deepcopy(OLDER)
    other["spec"]["versions"].append({"name": "v2", "served": True, "storage": False, "schema": {}})
    assert missing_fields(other, MANIFEST) == FIELDS
    other["spec"]["preserveUnknownFields"] = True
    assert missing_fields(other, MANIFEST) == []
    unserved = copy.deepcopy(OLDER)
    unserved["spec"]["versions"][0]["served"] = False
    assert missing_fields(unserved, MANIFEST) == []
    keeping = copy.deepcopy(OLDER)
    schema = keeping["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    schema["spec"] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    assert missing_fields(keeping, MANIFEST) == FIELDS[1:]


class Guarded:
    """A guard at work, and its reports."""

    def __init__(self, server: CrdServer, client: KubeClient) -> None:
        self.existing = {"ns/f", "ns/g"}
        self.lost: list[tuple[str, set[str]]] = []
        self.restored: list[set[str]] = []
        self.outdated: list[list[str]] = []
        """The missing fields after each check that has found some; none once the CRD has all."""
        self.server = server
        self.guard = CrdGuard(
            client,
            MANIFEST,
            exists=self.existing.__contains__,
            lost=self._lost,
            restored=lambda keys: self.restored.append(set(keys)),
            outdated=lambda fields: self.outdated.append(list(fields)),
            current=lambda: self.outdated.append([]),
            rng=random.Random(1),
        )

    def problem(self) -> str | None:
        return self.guard.problem

    def _lost(self, problem: str, keys: Set[str]) -> None:
        self.lost.append((problem, set(keys)))


@pytest.fixture
async def guarded() -> AsyncIterator[Guarded]:
    async with faulty_server() as running, KubeClient(Connection.to_address(running.url)) as client:
        server = CrdServer(running)
        server.store(MANIFEST)
        made = Guarded(server, client)
        task = asyncio.create_task(made.guard.run())
        yield made
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()


@pytest.mark.virtual_clock
class TestGuard:
    async def test_one_look_every_ten_minutes(self, guarded: Guarded, clock: VirtualClockLoop) -> None:
        await asyncio.sleep(6 * PERIOD_SEC)
        assert 5 <= len(guarded.server.requests) <= 7
        assert set(guarded.server.requests) == {"GET"}
        assert (guarded.lost, guarded.restored) == ([], [])

    async def test_a_loss_is_noticed_although_nothing_is_written(
        self, guarded: Guarded, caplog: pytest.LogCaptureFixture
    ) -> None:
        guarded.server.store(WITHOUT)
        await asyncio.sleep(1.2 * PERIOD_SEC)
        assert guarded.server.crd is not None
        assert has_status(guarded.server.crd, MANIFEST)
        assert guarded.problem() is None
        assert guarded.restored == [set()]
        assert "Restored the status subresource" in caplog.text

    async def test_a_refused_write_has_it_looked_at_at_once(self, guarded: Guarded) -> None:
        guarded.server.store(WITHOUT)
        guarded.guard.refused("ns/f")
        await asyncio.sleep(3)
        assert guarded.server.requests == ["GET", "PUT"]
        assert guarded.restored == [{"ns/f"}]
        guarded.guard.refused("ns/f")
        await asyncio.sleep(AGAIN_SEC - 5)
        assert guarded.server.requests == ["GET", "PUT"]
        await asyncio.sleep(10)
        assert guarded.server.requests == ["GET", "PUT", "GET"]
        assert guarded.restored == [{"ns/f"}]

    async def test_frameworks_that_were_deleted_cost_no_request(self, guarded: Guarded) -> None:
        for number in range(100):
            guarded.guard.refused(f"ns/gone{number}")
            await asyncio.sleep(0.5)
        assert guarded.server.requests == []

    async def test_a_lack_of_permission_is_reported_once_for_each(
        self, guarded: Guarded, caplog: pytest.LogCaptureFixture
    ) -> None:
        guarded.server.store(WITHOUT)
        guarded.server.forbidden = {"PUT"}
        for _ in range(5):
            guarded.guard.refused("ns/f")
            await asyncio.sleep(2 * AGAIN_SEC)
        guarded.guard.refused("ns/g")
        await asyncio.sleep(2 * AGAIN_SEC)
        assert guarded.problem() is not None
        assert [keys for _, keys in guarded.lost if keys] == [{"ns/f"}, {"ns/g"}]
        assert [record.levelno for record in caplog.records].count(logging.WARNING) == 1
        assert "has no status subresource" in caplog.text
        assert "may not PUT" in caplog.text
        guarded.server.store(MANIFEST)
        await asyncio.sleep(2 * AGAIN_SEC)
        assert guarded.problem() is None
        assert guarded.restored == [{"ns/f", "ns/g"}]

    async def test_without_leave_to_read_it_discovery_tells(self, guarded: Guarded) -> None:
        names_served = ["frameworks", "frameworks/status"]

        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            if "customresourcedefinitions" in request.path:
                return await status(403, "Forbidden", "may not GET")(request)
            resources = [{"name": name} for name in names_served]
            return web.Response(body=orjson.dumps({"resources": resources}))

        guarded.server.faulty.otherwise = answer
        await asyncio.sleep(1.2 * PERIOD_SEC)
        assert guarded.problem() is None
        names_served.pop()
        await asyncio.sleep(1.2 * PERIOD_SEC)
        assert "may not be read from here: may not GET" in (guarded.problem() or "")

    async def test_trouble_with_the_answer_is_asked_again(self, guarded: Guarded) -> None:
        guarded.server.store(WITHOUT)
        guarded.server.faulty.then(drop(), guarded.server.answer, status(409, "Conflict"))
        guarded.guard.refused("ns/f")
        await asyncio.sleep(4 * AGAIN_SEC)
        assert guarded.server.requests == ["GET", "GET", "PUT", "GET", "PUT"]
        assert guarded.restored == [{"ns/f"}]

    async def test_one_that_is_gone_is_not_put_back(self, guarded: Guarded) -> None:
        guarded.server.crd = None
        await asyncio.sleep(1.2 * PERIOD_SEC)
        assert guarded.server.requests == ["GET"]
        assert guarded.problem() is None

    async def test_fields_that_an_older_manifest_removes_are_put_back(
        self, guarded: Guarded, caplog: pytest.LogCaptureFixture
    ) -> None:
        guarded.server.store(OLDER)
        await asyncio.sleep(1.2 * PERIOD_SEC)
        assert guarded.server.crd is not None
        assert missing_fields(guarded.server.crd, MANIFEST) == []
        assert guarded.guard.missing == ()
        assert guarded.outdated == [[]]
        assert "Restored spec.taskRoles[].dependsOn, status." in caplog.text

    async def test_fields_that_may_not_be_put_back_are_reported(
        self, guarded: Guarded, caplog: pytest.LogCaptureFixture
    ) -> None:
        guarded.server.forbidden = {"PUT"}
        guarded.server.store(OLDER)
        guarded.guard.refused("ns/f")
        await asyncio.sleep(10 * AGAIN_SEC)
        assert guarded.guard.missing == tuple(FIELDS)
        assert guarded.problem() is None
        assert 5 <= len(guarded.outdated) <= 11
        assert all(fields == FIELDS for fields in guarded.outdated)
        assert [record.levelno for record in caplog.records].count(logging.WARNING) == 1
        assert f"The API server drops {', '.join(FIELDS)}" in caplog.text
        assert "may not PUT" in caplog.text
        guarded.server.store(MANIFEST)
        await asyncio.sleep(2 * AGAIN_SEC)
        assert guarded.guard.missing == ()
        assert guarded.outdated[-1] == []

    async def test_a_newer_release_is_left_as_it_is(self, guarded: Guarded) -> None:
        newer = copy.deepcopy(MANIFEST)
        schema = newer["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
        schema["spec"]["properties"]["invented"] = {"type": "string"}
        guarded.server.store(newer)
        await asyncio.sleep(3 * PERIOD_SEC)
        assert set(guarded.server.requests) == {"GET"}
        assert guarded.outdated == []

    async def test_one_that_lacked_fields_from_the_start(self, guarded: Guarded) -> None:
        guarded.server.forbidden = {"PUT"}
        guarded.server.store(OLDER)
        guarded.guard.start_with(OLDER)
        assert guarded.outdated == [FIELDS]
        guarded.server.store(MANIFEST)
        await asyncio.sleep(1.2 * PERIOD_SEC)
        assert guarded.guard.missing == ()

    async def test_one_that_lacked_it_from_the_start(self, guarded: Guarded) -> None:
        guarded.server.forbidden = {"PUT"}
        guarded.guard.start_with(WITHOUT)
        assert guarded.problem() is not None


# On every API server, with the whole controller.


@pytest.fixture
async def api(cluster: Cluster, pods: SimulatedRuntime) -> AsyncIterator[Api]:
    """The API server, with a node; the CRD is restored at the end in any case."""
    async with open_api(cluster.kubeconfig, cluster.namespace) as api:
        yield api
        await put_crd(api, MANIFEST["spec"])
        await eventually(partial(served, api))


async def served(api: Api) -> None:
    """Fail unless our CRD is in force."""
    body = original.framework("none", taskRoles=ORDERED, suspend=True)
    path = original.frameworks(api)
    spec = (await api.post(path, body, dryRun="All")).ok()["spec"]
    assert {"suspend"} <= spec.keys()
    assert "dependsOn" in spec["taskRoles"][1]
    (await api.get(path)).ok()


async def put_crd(api: Api, spec: dict[str, Any]) -> None:
    await replace_spec(api, f"{CRDS}/{names.CRD_NAME}", spec)


async def put_in_force(api: Api, crd: dict[str, Any]) -> None:
    """Put it there, with a field more; return once the API server keeps that field."""
    marked = copy.deepcopy(crd)
    spec = marked["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    spec["properties"]["inForce"] = {"type": "string"}
    await put_crd(api, marked["spec"])

    async def in_force() -> None:
        body = original.framework("none", inForce="yes")
        assert "inForce" in (await api.post(original.frameworks(api), body, dryRun="All")).ok()["spec"]

    await eventually(in_force)


async def lose_status(api: Api) -> None:
    """Apply the original's CRD over ours; return once it is in force."""
    await put_crd(api, original.crd_spec("v1"))
    await read_until(lambda: api.get(original.frameworks(api, "f") + "/status"), lambda found: found.code == 404)


async def test_it_is_put_back_while_the_controller_runs(
    cluster: Cluster, api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    frameworks = Frameworks(await cluster.client(), cluster.namespace)
    async with Controller(Config(), await cluster.connection(), wall=cluster.wall) as controller:
        await frameworks.create("f", role("a", 2))
        await frameworks.until_running("f", 2)
        await lose_status(api)
        await frameworks.set("f", executionType="Stop")
        await frameworks.until_state("f", "Completed")
        assert controller.crd_guard.problem is None
    crd = (await api.get(f"{CRDS}/{names.CRD_NAME}")).ok()
    assert crd["spec"]["versions"][0]["subresources"] == {"status": {}}
    assert "Restored the status subresource" in caplog.text


async def test_a_crd_that_may_not_be_restored_is_reported(
    cluster: Cluster, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crdguard, "AGAIN_SEC", 2.0)
    client = await cluster.client()
    frameworks = Frameworks(client, cluster.namespace)

    async def told(controller: Controller) -> None:
        body = orjson.loads(
            await client.list(EVENTS, cluster.namespace, field_selector="reason=StatusNotServed,involvedObject.name=f")
        )
        assert len(body["items"]) == 1
        (event,) = body["items"]
        assert event["type"] == "Warning"
        assert "has no status subresource" in event["message"]
        assert "it may not" in event["message"]
        assert registry_of(controller).get_sample_value("frameworkcontroller_status_subresource_lost") == 1

    async with (
        front_door(await cluster.connection()) as door,
        Controller(Config(), door.connection, wall=cluster.wall) as controller,
    ):
        await frameworks.create("f", role("a", 2))
        await frameworks.until_running("f", 2)
        with door.answering(forbid_updates):
            await lose_status(api)
            await frameworks.set("f", executionType="Stop")
            await eventually(partial(told, controller))
            assert (await frameworks.status("f"))["state"] == "AttemptRunning"
            await put_crd(api, MANIFEST["spec"])
            await frameworks.until_state("f", "Completed")
        await until(
            lambda: registry_of(controller).get_sample_value("frameworkcontroller_status_subresource_lost") == 0
        )


def forbid_updates(request: Request) -> web.Response | None:
    """Refuse changes of the CRD to the controller."""
    if (request.verb, request.resource) == ("update", "customresourcedefinitions"):
        return refusal(403, "Forbidden", "it may not")
    return None


async def lacks(controller: Controller, number: int) -> None:
    """Fail unless the metric shows this number of missing fields of the CRD."""
    assert registry_of(controller).get_sample_value("frameworkcontroller_crd_missing_fields") == number


def stalled(status: Json) -> tuple[str, str]:
    found = condition(status, "Stalled")
    return found.get("status", ""), found.get("reason", "")


ORDERED = (
    role("a", 1),
    {**role("w", 1), "dependsOn": [{"name": "a", "status": "Ready"}]},
)


async def test_a_role_whose_start_would_be_dropped_does_not_start(
    cluster: Cluster, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crdguard, "AGAIN_SEC", 2.0)
    monkeypatch.setattr(statuswriter, "PRUNED_RETRY_SEC", 2.0)
    frameworks = Frameworks(await cluster.client(), cluster.namespace)
    await put_crd(api, older(FIELDS[1])["spec"])
    async with (
        front_door(await cluster.connection()) as door,
        Controller(Config(), door.connection, wall=cluster.wall) as controller,
    ):
        with door.answering(forbid_updates):
            await put_in_force(api, older(FIELDS[1]))
            await frameworks.create("f", *ORDERED)

            await frameworks.until("f", lambda status: stalled(status) == ("True", "FieldsDropped"))
            await eventually(partial(lacks, controller, 1))
            attempt = (await frameworks.status("f"))["attemptStatus"]
            assert not any("started" in one for one in attempt["taskRoleStatuses"])
            pods = (await api.get(api.path("pods"))).ok()["items"]
            assert [pod["metadata"]["name"] for pod in pods] == ["f-a-0"]
            await put_crd(api, MANIFEST["spec"])
            await frameworks.until_running("f", 2)

        await frameworks.until("f", lambda status: stalled(status) == ("False", "Progressing"))
        await eventually(partial(lacks, controller, 0))


async def test_a_suspended_framework_does_not_start_when_the_crd_loses_the_field(
    cluster: Cluster, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    resynced: list[bool] = []
    resync = Reconcilers.resync

    def counted(subject: Reconcilers, *, from_cache: bool = True) -> list[str]:
        resynced.append(from_cache)
        return resync(subject, from_cache=from_cache)

    async def resynced_without_cache() -> None:
        assert resynced.count(False) >= 3

    monkeypatch.setattr(Reconcilers, "resync", counted)
    frameworks = Frameworks(await cluster.client(), cluster.namespace)
    async with (
        front_door(await cluster.connection()) as door,
        Controller(Config(), door.connection, wall=cluster.wall, resync_sec=2.0),
    ):
        await frameworks.create("f", role("a", 1), suspend=True)
        await frameworks.until("f", lambda status: condition(status, "Suspended").get("status") == "True")
        with door.answering(forbid_updates):
            await put_crd(api, older("spec.suspend")["spec"])

            async def dropped() -> None:
                change = {"metadata": {"annotations": {"x": "y"}}}
                assert "suspend" not in (await api.patch(original.frameworks(api, "f"), change)).ok()["spec"]

            await eventually(dropped)
            await eventually(resynced_without_cache)
            assert (await api.get(api.path("pods"))).ok()["items"] == []
            await put_crd(api, MANIFEST["spec"])
            await eventually(partial(served, api))
        resumed = {"spec": {"suspend": False}}
        (await api.patch(original.frameworks(api, "f"), resumed)).ok()
        await frameworks.until_running("f", 1)


async def test_dropped_fields_of_a_spec_are_reported_where_kubectl_applied_it(
    cluster: Cluster, api: Api, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(crdguard, "AGAIN_SEC", 2.0)
    client = await cluster.client()
    frameworks = Frameworks(client, cluster.namespace)

    async def told() -> None:
        body = orjson.loads(await client.list(EVENTS, cluster.namespace, field_selector="reason=FieldsDropped"))
        assert [event["involvedObject"]["name"] for event in body["items"]] == ["applied"]
        assert "has dropped spec.taskRoles[].dependsOn, which kubectl applied" in body["items"][0]["message"]

    async with front_door(await cluster.connection()) as door:
        await put_in_force(api, OLDER)
        with door.answering(forbid_updates):
            async with Controller(Config(), door.connection, wall=cluster.wall) as controller:
                applied = orjson.dumps({"spec": {"taskRoles": ORDERED}}).decode()
                await frameworks.create("sent", *ORDERED)
                await frameworks.create("applied", *ORDERED, metadata={"annotations": {LAST_APPLIED: applied}})
                await eventually(told)
                await lacks(controller, 2)
                assert f"The API server drops {', '.join(FIELDS)}" in caplog.text
                assert "dependsOn" not in str((await api.get(original.frameworks(api, "sent"))).ok()["spec"])
