"""Requests to the API server for tokens: their content, number, and failure."""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.connection import connect
from frameworkcontroller.webaccess import cluster_access
from frameworkcontroller.webaccess.cluster_access import ClusterAccess
from frameworkcontroller.webaccess.viewers import AccessUnavailable, AuthenticationRequired, Viewer
from tests.support.faulty_server import Answer, FaultyServer, answer, drop, faulty_server, silence, status
from tests.support.virtual_clock import VirtualClockLoop

USER = {"username": "ann", "uid": "u", "groups": ["g"], "extra": {"scope": ["a", "b"]}}


class Reviewer:
    """An API server that answers reviews."""

    def __init__(self, server: FaultyServer, client: KubeClient) -> None:
        self.server = server
        self.client = client
        self.tokens = {"good"}
        self.allowed = {"a", "b"}
        self.asked: list[tuple[str, Any]] = []
        self.fault: Answer | None = None

    async def respond(self, request: web.BaseRequest) -> web.StreamResponse:
        if self.fault is not None:
            return await self.fault(request)
        review = self.server.seen[-1].json()
        spec = review["spec"]
        self.asked.append((review["kind"], spec))
        # Others may come meanwhile.
        await asyncio.sleep(0.1)
        if review["kind"] == "TokenReview":
            known = spec["token"] in self.tokens
            told: dict[str, Any] = {"authenticated": True, "user": USER} if known else {"error": "unknown"}
        else:
            told = {"allowed": spec["resourceAttributes"]["namespace"] in self.allowed}
        return web.json_response({**review, "status": told}, status=201)

    def count(self, kind: str) -> int:
        return [asked for asked, _ in self.asked].count(kind)


@pytest.fixture
async def reviewer(clock: VirtualClockLoop) -> AsyncIterator[Reviewer]:
    async with faulty_server() as server:
        client = KubeClient(await connect(address=server.url, kubeconfig="", environ={}))
        made = Reviewer(server, client)
        server.otherwise = made.respond
        yield made
        await client.close()


async def identify(access: ClusterAccess, token: str | None = "good") -> Viewer:
    return await access.identify(make_mocked_request("GET", "/"), token)


async def test_a_user_is_passed_on_whole(reviewer: Reviewer) -> None:
    viewer = await identify(ClusterAccess(reviewer.client))
    assert (viewer.name, viewer.token) == ("ann", "good")
    assert await viewer.may_read("a")
    assert not await viewer.may_read("c")
    _, spec = reviewer.asked[-1]
    assert (spec["user"], spec["uid"], spec["groups"], spec["extra"]) == ("ann", "u", ["g"], {"scope": ["a", "b"]})
    assert spec["resourceAttributes"] == {
        "verb": "get", "group": "frameworkcontroller.microsoft.com", "version": "v1", "resource": "frameworks",
        "subresource": "", "namespace": "c",
    }  # fmt: skip


async def test_questions_are_asked_once_at_a_time_and_once_in_a_while(
    reviewer: Reviewer, clock: VirtualClockLoop
) -> None:
    access = ClusterAccess(reviewer.client)
    viewers = await asyncio.gather(*(identify(access) for _ in range(50)))
    assert reviewer.count("TokenReview") == 1
    assert set(await asyncio.gather(*(viewer.readable(["a", "c"]) for viewer in viewers))) == {frozenset({"a"})}
    assert reviewer.count("SubjectAccessReview") == 3
    await asyncio.sleep(cluster_access.DENIED_SECONDS)
    # New bindings count soon.
    reviewer.allowed.add("c")
    assert await viewers[0].readable(["a", "c"]) == frozenset({"a", "c"})
    assert (reviewer.count("TokenReview"), reviewer.count("SubjectAccessReview")) == (1, 5)
    await asyncio.sleep(cluster_access.VALID_SECONDS)
    reviewer.tokens.clear()
    # A viewer that has been there for long is as good as its token.
    with pytest.raises(AuthenticationRequired):
        await viewers[0].may_read("a")


async def test_a_permission_is_not_older_than_the_groups_it_is_by(reviewer: Reviewer) -> None:
    viewer = await identify(ClusterAccess(reviewer.client))
    await asyncio.sleep(cluster_access.VALID_SECONDS - 1)
    assert await viewer.may_read("a")
    asked = reviewer.count("SubjectAccessReview")
    await asyncio.sleep(2)
    assert await viewer.may_read("a")
    assert (reviewer.count("TokenReview"), reviewer.count("SubjectAccessReview")) == (2, asked + 2)


async def test_bad_tokens_are_remembered_for_a_moment_and_evict_no_good_one(
    reviewer: Reviewer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_access, "_TOKENS", 3)
    access = ClusterAccess(reviewer.client)
    await identify(access)
    for token in ["bad", "bad", *(f"bad{number}" for number in range(10))]:
        with pytest.raises(AuthenticationRequired):
            await identify(access, token)
    assert reviewer.count("TokenReview") == 12
    await identify(access)
    assert reviewer.count("TokenReview") == 12
    reviewer.tokens.add("bad9")
    await asyncio.sleep(cluster_access.INVALID_SECONDS)
    assert (await identify(access, "bad9")).name == "ann"


@pytest.mark.parametrize("token", [None, "", "é", "a b", "a\r\nX: y", "=", "a" * (16 << 10) + "a"])
async def test_an_invalid_token_costs_no_request(reviewer: Reviewer, token: str | None) -> None:
    with pytest.raises(AuthenticationRequired):
        await identify(ClusterAccess(reviewer.client), token)
    assert reviewer.asked == []


FAULTS = {
    "silent": silence(),
    "dropped": drop(),
    "500": status(500, "InternalError"),
    "401": status(401, "Unauthorized"),
    "403": status(403, "Forbidden", "tokenreviews.authentication.k8s.io is forbidden"),
    "404": answer("404 page not found", 404),
    "empty": answer(b"", 201),
    "list": answer(b"[]", 201),
    "no status": answer({"kind": "TokenReview"}, 201),
    "no user": answer({"status": {"authenticated": True}}, 201),
    "odd": answer({"status": {"authenticated": "true", "allowed": "true", "user": 1}}, 200),
    "html": answer(b"<html>gateway</html>", 200),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_without_an_answer_requests_are_refused(
    reviewer: Reviewer, fault: str, caplog: pytest.LogCaptureFixture, clock: VirtualClockLoop
) -> None:
    access = ClusterAccess(reviewer.client)
    viewer = await identify(access)
    reviewer.fault = FAULTS[fault]
    began = clock.time()
    refusals = AuthenticationRequired if fault == "odd" else AccessUnavailable
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            with pytest.raises(refusals):
                await identify(access, "other")
    assert clock.time() - began <= 31
    if fault == "odd":
        assert not await viewer.may_read("a")
    elif fault != "no user":
        with pytest.raises(AccessUnavailable):
            await viewer.may_read("a")
        assert len([record for record in caplog.records if "Cannot check access" in record.message]) in (1, 2)
    assert "other" not in caplog.text
    reviewer.fault = None
    await asyncio.sleep(cluster_access.DENIED_SECONDS)
    assert await viewer.may_read("a")


async def test_a_caller_that_goes_does_not_take_the_answer_along(reviewer: Reviewer) -> None:
    access = ClusterAccess(reviewer.client)
    first, second = asyncio.create_task(identify(access)), asyncio.create_task(identify(access))
    await asyncio.sleep(0.05)
    first.cancel()
    assert (await second).name == "ann"
    assert reviewer.count("TokenReview") == 1


async def test_logs_are_asked_for_as_a_subresource(reviewer: Reviewer) -> None:
    viewer = await identify(ClusterAccess(reviewer.client))
    assert await viewer.may_read_logs("a")
    assert not await viewer.may_read_logs("z")
    asked = [spec["resourceAttributes"] for kind, spec in reviewer.asked if kind == "SubjectAccessReview"]
    assert {(one["verb"], one["group"], one["resource"], one["subresource"]) for one in asked} == {
        ("get", "", "pods", "log")
    }


async def test_the_token_of_writers_lets_write_and_nothing_else(reviewer: Reviewer, tmp_path: Path) -> None:
    file = tmp_path / "token"
    access = ClusterAccess(reviewer.client, writer_token_file=file)
    with pytest.raises(AuthenticationRequired):
        await identify(access, "secret")
    file.write_text("secret\n")
    await asyncio.sleep(cluster_access.INVALID_SECONDS)
    viewer = await identify(access, "secret")
    assert await viewer.may_write_history(["a", "z"])
    assert await viewer.readable(["a"]) == frozenset()
    assert not await viewer.may_read("a")
    assert not await viewer.may_read_logs("a")
    assert not await viewer.may_get("/metrics")
    file.write_text("")
    for token in ("secret", ""):
        with pytest.raises(AuthenticationRequired):
            await identify(access, token)
    assert (await identify(access)).name == "ann"
