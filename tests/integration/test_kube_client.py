"""The client against servers that answer well, badly, partly, late or not at all."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from frameworkcontroller import __version__
from frameworkcontroller.kube import errors
from frameworkcontroller.kube.client import JSON_PATCH, MERGE_PATCH, KubeClient
from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.kube.kubeconfig import ServerAccess
from frameworkcontroller.kube.ratelimiter import RateLimiter
from frameworkcontroller.kube.resources import CONFIGMAPS, NODES, PODS
from frameworkcontroller.kube.transport import Exchange
from tests.support.faulty_server import (
    FaultyServer,
    answer,
    cut,
    drop,
    event,
    faulty_server,
    silence,
    status,
    stream,
)
from tests.support.virtual_clock import VirtualClockLoop

pytestmark = pytest.mark.virtual_clock


@pytest.fixture
async def server() -> AsyncIterator[FaultyServer]:
    async with faulty_server() as running:
        yield running


@pytest.fixture
def exchanges() -> list[Exchange]:
    return []


@pytest.fixture
async def client(server: FaultyServer, exchanges: list[Exchange]) -> AsyncIterator[KubeClient]:
    async with KubeClient(Connection.to_address(server.url), observe=exchanges.append, wall=lambda: 0.0) as made:
        yield made


async def test_every_verb_as_the_api_wants_it(server: FaultyServer, client: KubeClient) -> None:
    server.otherwise = answer({"kind": "Pod"})
    pod = b'{"metadata":{"name":"a"}}'
    assert await client.get(PODS, "a", "ns") == b'{"kind":"Pod"}'
    await client.list(
        PODS, label_selector="FC_FRAMEWORK_NAME,x in (a,b)", limit=5, continue_token="t=/+", field_selector="f"
    )
    await client.create(PODS, pod, "ns")
    await client.create(PODS, b"{}", "ns", name="a", subresource="binding")
    await client.replace(PODS, "a", pod, "ns")
    await client.patch(PODS, "a", b"[]", "ns", content_type=JSON_PATCH, subresource="status", metadata_only=True)
    await client.patch(NODES, "n", b"{}", content_type=MERGE_PATCH, field_manager="me")
    await client.delete(PODS, "a", "ns", uid="u", grace_period_seconds=0, propagation="Foreground")
    await client.delete(PODS, "a", "ns")
    await client.raw("GET", "/readyz", query={"verbose": ""})

    seen = [(request.method, request.path, request.query) for request in server.seen]
    pod_path = "/api/v1/namespaces/ns/pods/a"
    selectors = {"labelSelector": "FC_FRAMEWORK_NAME,x in (a,b)", "fieldSelector": "f"}
    assert seen == [
        ("GET", pod_path, {}),
        ("GET", "/api/v1/pods", {**selectors, "limit": "5", "continue": "t=/+"}),
        ("POST", "/api/v1/namespaces/ns/pods", {}),
        ("POST", f"{pod_path}/binding", {}),
        ("PUT", pod_path, {}),
        ("PATCH", f"{pod_path}/status", {}),
        ("PATCH", "/api/v1/nodes/n", {"fieldManager": "me"}),
        ("DELETE", pod_path, {}),
        ("DELETE", pod_path, {}),
        ("GET", "/readyz", {"verbose": ""}),
    ]
    options = {"apiVersion": "v1", "kind": "DeleteOptions"}
    assert server.seen[7].json() == {
        **options,
        "preconditions": {"uid": "u"},
        "gracePeriodSeconds": 0,
        "propagationPolicy": "Foreground",
    }
    assert server.seen[8].json() == options
    types = [request.headers.get("Content-Type") for request in server.seen]
    assert types[2:7] == ["application/json"] * 3 + [JSON_PATCH, MERGE_PATCH]
    assert "as=PartialObjectMetadata;" in server.seen[5].headers["Accept"]
    assert {request.headers["User-Agent"] for request in server.seen} == {f"frameworkcontroller/{__version__}"}
    assert all("Authorization" not in request.headers for request in server.seen)


async def test_connections_are_kept_and_measured(
    server: FaultyServer, client: KubeClient, exchanges: list[Exchange]
) -> None:
    server.then(answer(b"12345"), status(404, "NotFound"), silence(3.0))
    await client.get(PODS, "a", "ns")
    with pytest.raises(errors.NotFound):
        await client.patch(PODS, "a", b"", "ns", content_type=JSON_PATCH, subresource="status")
    await client.create(CONFIGMAPS, b"123", "ns")
    assert server.connections == 1
    assert [exchange[:3] for exchange in exchanges] == [
        ("get", "pods", 200),
        ("patch", "pods/status", 404),
        ("create", "configmaps", 200),
    ]
    assert [exchange.seconds for exchange in exchanges] == pytest.approx([0.0, 0.0, 3.0])
    assert [(exchange.sent_bytes, exchange.received_bytes) for exchange in exchanges[::2]] == [(0, 5), (3, 2)]


async def test_a_refusal_says_when_to_come_back(server: FaultyServer, client: KubeClient) -> None:
    server.then(status(429, "TooManyRequests", headers={"Retry_After": "7"}), answer("busy", 503, Retry_After="9"))
    with pytest.raises(errors.TooManyRequests) as refused:
        await client.create(PODS, b"{}", "ns")
    assert refused.value.retry_after == 7.0
    with pytest.raises(errors.ApiServerError, match="busy") as refused_by_a_proxy:
        await client.create(PODS, b"{}", "ns")
    assert refused_by_a_proxy.value.retry_after == 9.0
    assert len(server.seen) == 2, "nothing is sent a second time"


async def test_a_proxys_page_is_no_answer_of_the_api(server: FaultyServer, client: KubeClient) -> None:
    server.then(answer("<html><h1>502 Bad Gateway</h1></html>", 502, Content_Type="text/html"))
    with pytest.raises(
        errors.ApiServerError, match=r"GET http://127.*answered 502 with no Kubernetes status.*Bad Gateway"
    ):
        await client.get(PODS, "a", "ns")


async def test_half_an_answer_is_none(server: FaultyServer, client: KubeClient, exchanges: list[Exchange]) -> None:
    server.then(cut(b'{"kind":"Po', 1000))
    with pytest.raises(errors.TransportError) as broken:
        await client.create(PODS, b"{}", "ns")
    assert broken.value.maybe_sent
    assert exchanges[0].verb == "create"


async def test_a_write_whose_answer_is_lost_is_not_sent_again(server: FaultyServer, client: KubeClient) -> None:
    server.then(answer(), drop())
    await client.get(PODS, "warm", "ns")
    with pytest.raises(errors.TransportError) as broken:
        await client.create(PODS, b"{}", "ns")
    assert broken.value.maybe_sent
    assert [request.method for request in server.seen] == ["GET", "POST"]


async def test_a_server_that_hangs_is_given_up(
    server: FaultyServer, client: KubeClient, clock: VirtualClockLoop
) -> None:
    server.then(silence())
    began = clock.time()
    with pytest.raises(errors.SilenceError, match="fell silent") as broken:
        await client.create(PODS, b"{}", "ns")
    assert broken.value.maybe_sent
    assert 65 <= clock.time() - began <= 67


async def test_an_unknown_host_is_named() -> None:
    async with KubeClient(Connection.to_address("https://no-such-host.invalid:6443")) as client:
        with pytest.raises(errors.TransportError, match=r"no-such-host\.invalid:6443") as broken:
            await client.get(PODS, "a", "ns")
    assert not broken.value.maybe_sent


async def test_a_response_without_http_is_an_error_of_transport() -> None:
    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"\x15\x03\x01\x00\x02\x02\x46")
        writer.close()

    async with await asyncio.start_server(babble, "127.0.0.1", 0) as babbler:
        port = babbler.sockets[0].getsockname()[1]
        async with KubeClient(Connection.to_address(f"http://127.0.0.1:{port}")) as client:
            with pytest.raises(errors.TransportError) as broken:
                await client.create(PODS, b"{}", "ns")
    assert broken.value.maybe_sent


async def test_a_proxy_that_hangs_is_given_up(clock: VirtualClockLoop) -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()  # CONNECT, and then that its sender has had enough
        writer.close()
        await writer.wait_closed()
        ended.set()

    ended = asyncio.Event()
    async with await asyncio.start_server(hang, "127.0.0.1", 0) as proxy:
        access = ServerAccess(server="https://api.example:6443")
        through = Connection(access, origin="", proxy=f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}")
        async with KubeClient(through) as client:
            began = clock.time()
            with pytest.raises(errors.TransportError, match="did not accept a connection in time") as broken:
                await client.get(PODS, "a", "ns")
            await ended.wait()
    assert not broken.value.maybe_sent
    assert 65 <= clock.time() - began <= 67


async def test_a_closed_client_says_so(server: FaultyServer, client: KubeClient, clock: VirtualClockLoop) -> None:
    server.then(silence())
    waiting = asyncio.create_task(client.get(PODS, "a", "ns"))
    await clock.settled()
    await client.close()
    with pytest.raises(errors.TransportError):
        await waiting
    with pytest.raises(errors.TransportError, match="closed"):
        await client.get(PODS, "a", "ns")


async def test_the_limit_is_shared_fairly(server: FaultyServer) -> None:
    server.otherwise = answer()
    async with (
        KubeClient(Connection.to_address(server.url), limiter=RateLimiter(10, 1)) as client,
        asyncio.TaskGroup() as group,
    ):
        for flow in ["big"] * 8 + ["small"]:
            group.create_task(client.create(PODS, b"{}", flow, flow=flow))
    order = [request.path.split("/")[4] for request in server.seen]
    assert order.index("small") <= 2
    assert server.seen[-1].at - server.seen[0].at == pytest.approx(0.8, abs=0.01)


async def test_a_watch_brings_lines_of_any_length(server: FaultyServer, client: KubeClient) -> None:
    huge = event("ADDED", {"spec": "x" * 5_000_000})
    small = event("MODIFIED", {"spec": "y"})
    server.then(stream(small[:5], 1.0, small[5:] + huge + b"\n" + small + small))
    async with client.watch(PODS, "ns", resource_version="7", timeout_seconds=300) as lines:
        assert [line + b"\n" async for line in lines] == [small, huge, small, small]
    assert server.seen[0].query == {
        "watch": "true",
        "resourceVersion": "7",
        "timeoutSeconds": "300",
        "allowWatchBookmarks": "true",
    }


async def test_a_watch_that_ends_within_a_line_did_not_end_well(server: FaultyServer, client: KubeClient) -> None:
    server.then(stream(b'{"type":"ADD'))
    async with client.watch(PODS, resource_version="7") as lines:
        with pytest.raises(errors.TransportError, match="last line is incomplete"):
            await anext(lines)


async def test_watches_do_not_use_up_the_connections_of_requests(server: FaultyServer) -> None:
    server.otherwise = stream(end="hang")
    async with (
        KubeClient(Connection.to_address(server.url), max_connections=1) as client,
        client.watch(PODS, resource_version="1"),
        client.watch(NODES, resource_version="1"),
    ):
        server.otherwise = answer(b"[]")
        assert await client.get(PODS, "a", "ns") == b"[]"


async def test_leaving_a_watch_closes_its_connection(server: FaultyServer, client: KubeClient) -> None:
    server.then(stream(event("ADDED", {}), end="hang"), stream())
    async with client.watch(PODS, resource_version="1") as lines:
        await anext(lines)
    async with client.watch(PODS, resource_version="1") as lines:
        assert [line async for line in lines] == []
    assert server.connections == 2
