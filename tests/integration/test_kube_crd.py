"""Installing the CRD, on a server that establishes it, slowly, not at all, or lets us do nothing."""

import asyncio
import copy
import logging
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from aiohttp import web

from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.kube.crd import CrdError, ensure_crd, updated
from frameworkcontroller.kube.errors import SilenceError, TransportError
from tests.support.faulty_server import FaultyServer, answer, drop, faulty_server, silence, status
from tests.support.framework_crd import crd_manifest
from tests.support.virtual_clock import VirtualClockLoop

pytestmark = pytest.mark.virtual_clock

MANIFEST: dict[str, Any] = crd_manifest()
NAME = MANIFEST["metadata"]["name"]
ESTABLISHED = [{"type": "NamesAccepted", "status": "True"}, {"type": "Established", "status": "True"}]


class CrdServer:
    """The CRD endpoint of an API server."""

    def __init__(self, faulty: FaultyServer) -> None:
        self.faulty = faulty
        faulty.otherwise = self.answer
        self.crd: dict[str, Any] | None = None
        self.version = 0
        self.forbidden: set[str] = set()
        self.served = False
        self.conditions_after_checks = 0
        self.conditions: list[dict[str, Any]] = ESTABLISHED

    @property
    def requests(self) -> list[str]:
        return [request.method for request in self.faulty.seen]

    def store(self, crd: dict[str, Any]) -> None:
        self.version += 1
        crd = copy.deepcopy(crd)
        crd["metadata"]["resourceVersion"] = str(self.version)
        crd["spec"].setdefault("conversion", {"strategy": "None"})
        self.crd = {**crd, "status": {"conditions": self.conditions if not self.conditions_after_checks else None}}

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        body = self.faulty.seen[-1].body
        if request.method in self.forbidden:
            return await status(403, "Forbidden", f"may not {request.method}")(request)
        if request.path.startswith("/apis/frameworkcontroller"):
            resources = {"resources": [{"name": "frameworks"}]}
            return web.Response(body=orjson.dumps(resources)) if self.served else await status(404, "NotFound")(request)
        if request.method == "POST":
            if self.crd is not None:
                return await status(409, "AlreadyExists")(request)
            self.store(orjson.loads(body))
        elif self.crd is None:
            return await status(404, "NotFound")(request)
        elif request.method == "PUT":
            new = orjson.loads(body)
            if new["metadata"]["resourceVersion"] != self.crd["metadata"]["resourceVersion"]:
                return await status(409, "Conflict")(request)
            self.store(new)
        elif self.conditions_after_checks:
            self.conditions_after_checks -= 1
            if not self.conditions_after_checks:
                self.crd["status"]["conditions"] = self.conditions
        return web.Response(body=orjson.dumps(self.crd))


@pytest.fixture
async def server() -> AsyncIterator[CrdServer]:
    async with faulty_server() as running:
        yield CrdServer(running)


@pytest.fixture
async def client(server: CrdServer) -> AsyncIterator[KubeClient]:
    async with KubeClient(Connection.to_address(server.faulty.url)) as made:
        yield made


async def test_it_is_created_and_awaited(server: CrdServer, client: KubeClient, clock: VirtualClockLoop) -> None:
    server.conditions_after_checks = 4
    began = clock.time()
    crd = await ensure_crd(client, MANIFEST)
    assert crd["status"]["conditions"] == ESTABLISHED
    assert server.requests == ["GET", "POST", "GET", "GET", "GET", "GET"]
    assert clock.time() - began == pytest.approx(0.1 + 0.2 + 0.4 + 0.8)


async def test_one_that_is_there_costs_one_request(server: CrdServer, client: KubeClient) -> None:
    server.store(MANIFEST)
    await ensure_crd(client, MANIFEST)
    assert server.requests == ["GET"]


async def test_an_outdated_one_is_updated_and_fields_of_other_clients_stay(
    server: CrdServer, client: KubeClient
) -> None:
    old = copy.deepcopy(MANIFEST)
    old["metadata"]["annotations"] = {"theirs": "1"}
    old["metadata"]["labels"] = {"theirs": "1"}
    old["spec"]["conversion"] = {"strategy": "Webhook", "webhook": {"clientConfig": {"url": "https://x"}}}
    old["spec"]["preserveUnknownFields"] = True
    old["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": {"type": "object"}}
    old["spec"]["names"] = {**old["spec"]["names"], "categories": ["theirs"]}
    server.store(old)
    manifest = copy.deepcopy(MANIFEST)
    manifest["metadata"]["labels"] = {"ours": "1"}
    crd = await ensure_crd(client, manifest)
    assert server.requests == ["GET", "PUT"]
    assert crd["spec"]["versions"] == MANIFEST["spec"]["versions"]
    assert crd["spec"]["conversion"]["strategy"] == "Webhook"
    assert crd["spec"]["preserveUnknownFields"] is False
    assert crd["metadata"]["annotations"] == {"theirs": "1"}
    assert crd["metadata"]["labels"] == {"theirs": "1", "ours": "1"}
    await ensure_crd(client, manifest)
    assert server.requests == ["GET", "PUT", "GET"]


async def test_versions_of_a_newer_release_stay(server: CrdServer, client: KubeClient) -> None:
    newer = copy.deepcopy(MANIFEST)
    newer["spec"]["versions"][0]["storage"] = False
    newer["spec"]["versions"].insert(0, {"name": "v2", "served": True, "storage": True, "schema": {}})
    server.store(newer)
    crd = await ensure_crd(client, MANIFEST)
    assert server.requests == ["GET"]
    assert [(version["name"], version["storage"]) for version in crd["spec"]["versions"]] == [
        ("v2", True),
        ("v1", False),
    ]


async def test_another_controller_is_quicker(server: CrdServer, client: KubeClient) -> None:
    server.faulty.then(status(404, "NotFound"))
    server.store(MANIFEST)
    await ensure_crd(client, MANIFEST)
    assert server.requests == ["GET", "POST", "GET"]
    assert server.crd is not None
    server.crd["spec"]["versions"][0]["served"] = False
    server.faulty.then(server.answer, status(409, "Conflict"))
    await ensure_crd(client, MANIFEST)
    assert server.requests[3:] == ["GET", "PUT", "GET", "PUT"]


async def test_one_that_is_being_deleted_is_awaited_and_created_again(server: CrdServer, client: KubeClient) -> None:
    server.store(MANIFEST)
    assert server.crd is not None
    server.crd["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    waiting = asyncio.create_task(ensure_crd(client, MANIFEST))
    await asyncio.sleep(20)
    server.crd = None
    await waiting
    assert server.requests.count("POST") == 1
    assert "PUT" not in server.requests


async def test_names_that_are_taken(server: CrdServer, client: KubeClient) -> None:
    server.conditions = [{"type": "NamesAccepted", "status": "False", "message": '"fw" is already in use'}]
    with pytest.raises(CrdError, match='not accepted: "fw" is already in use'):
        await ensure_crd(client, MANIFEST)


async def test_one_that_is_never_established(server: CrdServer, client: KubeClient, clock: VirtualClockLoop) -> None:
    server.conditions = [{"type": "Established", "status": "False", "message": "Installing"}]
    began = clock.time()
    with pytest.raises(CrdError, match=r"not established within 60 s: Established is False: Installing"):
        await ensure_crd(client, MANIFEST)
    assert clock.time() - began == pytest.approx(60)
    assert len(server.requests) <= 66


async def test_a_client_with_read_permission_continues_with_the_existing_crd(
    server: CrdServer, client: KubeClient, caplog: pytest.LogCaptureFixture
) -> None:
    server.forbidden = {"POST", "PUT"}
    with pytest.raises(
        CrdError, match=r"is not installed and may not be created from here.*kubectl apply.*may not POST"
    ):
        await ensure_crd(client, MANIFEST)
    server.store({**MANIFEST, "spec": {**MANIFEST["spec"], "scope": "Cluster"}})
    server.conditions_after_checks = 2
    server.crd = {**(server.crd or {}), "status": {}}
    crd = await ensure_crd(client, MANIFEST)
    assert crd["spec"]["scope"] == "Cluster"
    assert server.requests.count("PUT") == 1
    assert "may not be updated from here" in caplog.text


async def test_who_may_not_even_read_needs_it_to_be_served(server: CrdServer, client: KubeClient) -> None:
    server.forbidden = {"GET"}

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        server.forbidden = {"GET"} if "customresourcedefinitions" in request.path else set()
        return await server.answer(request)

    server.faulty.otherwise = answer
    with pytest.raises(CrdError, match="may not be read from here, and its resource type is not served"):
        await ensure_crd(client, MANIFEST)
    server.served = True
    assert await ensure_crd(client, MANIFEST) == MANIFEST


async def test_a_manifest_that_is_refused(server: CrdServer, client: KubeClient) -> None:
    server.faulty.then(status(404, "NotFound"), status(422, "Invalid", "spec.versions: Required value"))
    with pytest.raises(CrdError, match=r"was refused: spec\.versions: Required value"):
        await ensure_crd(client, MANIFEST)
    server.store({**MANIFEST, "spec": {**MANIFEST["spec"], "scope": "Cluster"}})
    server.faulty.then(server.answer, status(422, "Invalid", "spec.scope: field is immutable"))
    with pytest.raises(CrdError, match=r"could not be updated: spec\.scope: field is immutable"):
        await ensure_crd(client, MANIFEST)


async def test_a_server_that_is_not_up_yet_is_awaited(
    server: CrdServer, client: KubeClient, caplog: pytest.LogCaptureFixture
) -> None:
    server.faulty.then(
        drop(), status(503, "ServiceUnavailable"), status(429, "TooManyRequests", headers={"Retry_After": "9"})
    )
    await ensure_crd(client, MANIFEST)
    assert server.requests == ["GET", "GET", "GET", "GET", "POST"]
    assert server.faulty.seen[3].at - server.faulty.seen[2].at >= 9
    assert [record.levelno for record in caplog.records].count(logging.WARNING) == 1


async def test_a_server_that_cannot_be_reached_is_named(clock: VirtualClockLoop) -> None:
    async with faulty_server() as gone:
        address = gone.url
    began = clock.time()
    async with KubeClient(Connection.to_address(address)) as client:
        with pytest.raises(TransportError, match=f"cannot connect to {address}"):
            await ensure_crd(client, MANIFEST, timeout=10)
    assert clock.time() - began == pytest.approx(10)


async def test_a_server_that_only_hangs(server: CrdServer, client: KubeClient) -> None:
    server.faulty.otherwise = silence()
    with pytest.raises(SilenceError, match="no answer came within 30 s"):
        await ensure_crd(client, MANIFEST, timeout=30)
    with pytest.raises(SilenceError):
        await ensure_crd(client, MANIFEST, timeout=100)


@pytest.mark.parametrize("page", [b"<html>", b'{"metadata": {"na\x00', b"[]", b"{}"])
async def test_an_answer_that_is_no_object_is_no_answer(server: CrdServer, client: KubeClient, page: bytes) -> None:
    server.faulty.then(answer(page), answer(page))
    assert (await ensure_crd(client, MANIFEST))["metadata"]["name"] == NAME
    server.faulty.otherwise = answer(page)
    with pytest.raises(TransportError, match="is not an object"):
        await ensure_crd(client, MANIFEST, timeout=10)


@pytest.mark.parametrize("code", [400, 401, 403, 404, 413, 422])
async def test_a_gateways_page_is_no_refusal(server: CrdServer, client: KubeClient, code: int) -> None:
    page = answer("<html>Welcome!</html>", code)
    server.faulty.then(page, page, status(404, "NotFound"), page)
    crd = await ensure_crd(client, MANIFEST)
    server.store({**MANIFEST, "spec": {**MANIFEST["spec"], "scope": "Cluster"}})
    server.faulty.then(server.answer, page)
    assert (await ensure_crd(client, MANIFEST))["spec"] == crd["spec"]


def test_an_update_takes_frameworks_out_of_all() -> None:
    existing = copy.deepcopy(MANIFEST)
    existing["spec"]["names"]["categories"] = ["all"]
    wanted = updated(existing, MANIFEST)
    assert wanted is not None
    assert wanted["spec"]["names"]["categories"] == []
    del existing["spec"]["names"]["categories"]
    assert updated(existing, MANIFEST) is None


def test_the_differences_that_count() -> None:
    existing = {**copy.deepcopy(MANIFEST), "status": {}}
    assert updated(existing, MANIFEST) is None
    properties = existing["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    properties["spec"]["nullable"] = False
    existing["spec"]["versions"][0]["additionalPrinterColumns"][0]["priority"] = 0
    existing["spec"]["conversion"] = {"strategy": "None"}
    assert updated(existing, MANIFEST) is None
    for change in ({"minimum": 0}, {"default": ""}, {"nullable": True}):
        other = copy.deepcopy(existing)
        other["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"].update(change)
        assert updated(other, MANIFEST) is not None
    del properties["status"]
    assert updated(existing, MANIFEST) is not None
