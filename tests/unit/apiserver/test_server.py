"""The server as a whole: its socket, its watches over time, its end, and its start on an earlier one's storage."""

import asyncio
import logging
import random
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
import yaml

from frameworkcontroller.local.apiserver import http_bodies
from frameworkcontroller.local.apiserver.authentication import Authenticator
from frameworkcontroller.local.apiserver.depth import DEEPEST
from frameworkcontroller.local.apiserver.http_api import Served
from frameworkcontroller.local.apiserver.options import Call
from frameworkcontroller.local.apiserver.restserver import ApiServer
from frameworkcontroller.local.apiserver.storage import ObjectStorage
from tests.support.api import (
    APPLY_PATCH,
    JSON_PATCH,
    PARTIAL,
    TABLE,
    Api,
    bind,
    config_map,
    defined,
    definition,
    open_api,
    pod,
)
from tests.support.eventually import eventually
from tests.support.virtual_clock import VirtualClockLoop, wall

pytestmark = pytest.mark.virtual_clock

ANYTHING: dict[str, Any] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
"""A schema."""


@asynccontextmanager
async def served(folder: Path, **options: Any) -> AsyncIterator[tuple[ApiServer, Api]]:
    async with ApiServer(wall=wall, rng=random.Random(1), **options) as server:
        server.write_kubeconfig(folder / "kubeconfig")
        async with open_api(folder / "kubeconfig", "default") as api:
            yield server, api


# --- the socket -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "8.8.8.8"])
async def test_it_serves_this_machine_only(host: str) -> None:
    with pytest.raises(ValueError, match="loopback"):
        ApiServer(host=host)


async def test_a_token_lets_in(tmp_path: Path) -> None:
    async with served(tmp_path, authenticator=Authenticator("secret", users=())) as (server, api):
        assert (await api.get("/api/v1/namespaces")).code == 200
        async with aiohttp.ClientSession() as session:
            for path, headers, code in [
                ("/readyz", {}, 200),
                ("/api/v1/namespaces", {}, 401),
                ("/version", {}, 401),
                ("/api/v1/namespaces", {"Authorization": "Bearer other"}, 401),
                ("/api/v1/namespaces", {"Authorization": "Basic secret"}, 401),
            ]:
                async with session.get(server.url + path, headers=headers) as response:
                    assert response.status == code, (path, headers)
        assert (tmp_path / "kubeconfig").stat().st_mode & 0o077 == 0


async def test_kubeconfig(tmp_path: Path) -> None:
    async with served(tmp_path) as (server, _):
        config = yaml.safe_load(server.kubeconfig("here"))
        assert config["current-context"] == "here"
        assert config["clusters"][0]["cluster"] == {"server": server.url}
        assert config["contexts"][0]["context"]["namespace"] == "default"


async def test_health_and_version(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, api):
        for path in ("/healthz", "/livez", "/readyz", "/readyz?verbose"):
            answer = await api.get(path)
            assert (answer.code, answer.body) == (200, "ok")
        version = (await api.get("/version")).ok()
        assert (version["major"], version["minor"]) == ("1", "33")


async def test_a_body_that_is_too_long(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, api):
        answer = await api.post(api.path("configmaps"), b"x" * (http_bodies.MAX_BODY_BYTES + 1))
        assert (answer.code, answer.reason) == (413, "RequestEntityTooLarge")
        assert answer.message == "Request entity too large: limit is 3145728"


async def test_a_client_that_asks_before_it_sends(tmp_path: Path) -> None:
    async with served(tmp_path) as (server, _), aiohttp.ClientSession() as session:
        url = f"{server.url}/api/v1/namespaces/default/configmaps"
        async with session.post(url, json=config_map("c"), expect100=True) as response:
            assert response.status == 201


async def test_an_object_that_is_too_large(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, api):
        role = {
            "metadata": {"name": "r"},
            "rules": [{"apiGroups": ["x" * 1_600_000], "resources": ["x"], "verbs": ["get"]}],
        }
        answer = await api.post("/apis/rbac.authorization.k8s.io/v1/clusterroles", role)
        assert (answer.code, answer.message) == (500, "etcdserver: request is too large")


def nested(levels: int, *, lists: bool) -> bytes:
    """A value of this depth."""
    return b"[" * levels + b"]" * levels if lists else b'{"a":' * levels + b"1" + b"}" * levels


@pytest.mark.parametrize("lists", [False, True])
async def test_an_object_of_many_levels_is_served_in_every_form(tmp_path: Path, lists: bool) -> None:
    async with served(tmp_path) as (_, api), defined(api, definition(ANYTHING)) as things:
        group = things.split("/")[2].encode()
        head = b'{"apiVersion":"%s/v1","kind":"Thing","metadata":{"name":"t"},' % group
        body = head + b'"deep":' + nested(DEEPEST - 1, lists=lists) + b"}"
        created = (await api.call("POST", things, body, content_type="application/yaml")).ok()
        assert (await api.put(f"{things}/t", created)).code == 200
        assert (await api.patch(f"{things}/t", {"metadata": {"labels": {"a": "b"}}})).code == 200
        label = [{"op": "remove", "path": "/metadata/labels"}]
        assert (await api.patch(f"{things}/t", label, JSON_PATCH)).code == 200
        for accept in ("application/json", "application/yaml", TABLE, PARTIAL):
            for path in (things, f"{things}/t"):
                answer = await api.call("GET", path, accept=accept, query={"includeObject": "Object"})
                assert answer.code == 200, (accept, answer.body)
        async with api.watch(things, accept=TABLE, includeObject="Object") as events:
            await events.reach(1)
        assert (await api.delete(f"{things}/t")).code == 200


@pytest.mark.parametrize("levels", [DEEPEST + 1, 255, 900, 1024, 1030, 50_000])
@pytest.mark.parametrize("lists", [False, True])
async def test_an_object_of_too_many_levels_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, levels: int, lists: bool
) -> None:
    deep = nested(levels - 1, lists=lists)
    async with served(tmp_path) as (_, api), defined(api, definition(ANYTHING)) as things:
        group = things.split("/")[2].encode()

        def thing(name: bytes, rest: bytes = b"") -> bytes:
            return b'{"apiVersion":"%s/v1","kind":"Thing","metadata":{"name":"%s"}%s}' % (group, name, rest)

        small = (await api.post(things, thing(b"small"))).ok()
        configuration = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"deep":%s}' % deep
        refused = [
            await api.post(things, thing(b"t", b',"deep":' + deep)),
            await api.post(api.path("configmaps"), configuration),
            await api.put(f"{things}/small", thing(b"small", b',"deep":' + deep)),
            await api.patch(f"{things}/small", b'{"deep":%s}' % deep),
            await api.patch(f"{things}/small", b'[{"op":"add","path":"/deep","value":%s}]' % deep, JSON_PATCH),
            await api.patch(f"{things}/t", thing(b"t", b',"deep":' + deep), APPLY_PATCH, fieldManager="me"),
        ]
        if levels < 2000:
            # It has no braces, so that it is no JSON; of more levels it takes PyYAML minutes to say so.
            text = b"apiVersion: %s/v1\nkind: Thing\nmetadata: {name: t}\n" % group
            text += b"".join(b" " * level + b"a:\n" for level in range(levels))
            refused.append(await api.call("POST", things, text, content_type="application/yaml"))
        for answer in refused:
            assert (answer.code, answer.reason) == (400, "BadRequest"), answer.body
            assert answer.message.startswith(f"nested more than {DEEPEST} levels deep")
        assert [one["metadata"]["name"] for one in (await api.get(things)).ok()["items"]] == ["small"]
        assert (await api.get(f"{things}/small")).ok() == small
        assert "failed" not in caplog.text


async def test_managed_fields_count_as_levels(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, api), defined(api, definition(ANYTHING)) as things:
        thing = {"apiVersion": f"{things.split('/')[2]}/v1", "kind": "Thing", "metadata": {"name": "t"}}
        deep = {**thing, "deep": orjson.loads(nested(DEEPEST - 10, lists=False))}
        created = (await api.post(things, deep, fieldManager="me")).ok()
        kept = (await api.put(f"{things}/t", created, fieldManager="other")).ok()
        deeper = {**deep, "metadata": {"name": "u"}, "deep": orjson.loads(nested(DEEPEST - 3, lists=False))}
        for answer in (
            await api.post(things, deeper, fieldManager="me"),
            await api.post(things, deeper, fieldManager="me", dryRun="All"),
        ):
            assert (answer.code, answer.reason) == (400, "BadRequest"), answer.body
        assert (await api.get(things)).ok()["items"] == [kept]


async def test_a_patch_that_puts_an_object_into_itself_is_refused_in_the_end(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, api), defined(api, definition(ANYTHING)) as things:
        group = things.split("/")[2]
        before = {"apiVersion": f"{group}/v1", "kind": "Thing", "metadata": {"name": "t"}, "a": {"b": 1}}
        (await api.post(things, before)).ok()
        for times in (250, 1000):
            steps = []
            for step in range(times):
                steps.append({"op": "copy", "from": "/a", "path": "/b"})
                steps.append({"op": "move", "from": "/b", "path": "/a" + "/c" * (step + 1)})
            answer = await api.patch(f"{things}/t", steps, JSON_PATCH)
            assert (answer.code, answer.reason) == (400, "BadRequest"), answer.body
        assert (await api.get(f"{things}/t")).ok()["a"] == {"b": 1}


async def test_a_fault_of_its_own_is_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(tmp_path) as (server, api):
        monkeypatch.setattr(server.registry, "get", lambda *_: 1 / 0)
        answer = await api.get(api.path("configmaps", "c"))
        assert (answer.code, answer.reason) == (500, "InternalError")
        assert "failed" in caplog.text
        assert (await api.get(api.path("configmaps"))).code == 200


async def test_requests_are_observed(tmp_path: Path) -> None:
    seen: list[Served] = []
    async with served(tmp_path, observe=seen.append) as (_, api):
        await api.post(api.path("configmaps"), config_map("c"))
        await api.get(api.path("configmaps"))
        await api.delete(api.path("configmaps"))
        await api.patch(api.path("pods", "p", "status"), {})
        async with api.watch(api.path("configmaps")):
            pass
        await api.get("/version")

    def said(one: Served) -> tuple[str, str, str, str, int]:
        return one.verb, one.resource, one.subresource, one.name, one.code

    assert [said(one) for one in seen[:4]] == [
        ("create", "configmaps", "", "", 201),
        ("list", "configmaps", "", "", 200),
        ("deletecollection", "configmaps", "", "", 200),
        ("patch", "pods", "status", "p", 404),
    ]
    assert ("get", "", "", "/version", 200) in {said(one) for one in seen}


async def test_yaml_bodies_and_answers(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, api):
        body = yaml.safe_dump(config_map("c")).encode()
        created = await api.call(
            "POST", api.path("configmaps"), body, content_type="application/yaml", accept="application/yaml"
        )
        assert created.code == 201
        assert yaml.safe_load(created.body)["data"] == {"a": "b"}
        applied = await api.call(
            "PATCH",
            api.path("configmaps", "d"),
            yaml.safe_dump(config_map("d")).encode(),
            content_type=APPLY_PATCH,
            query={"fieldManager": "me"},
        )
        assert applied.code == 201


async def test_the_body_of_a_delete_may_be_yaml(tmp_path: Path) -> None:
    async with served(tmp_path) as (_, api):
        (await api.post(api.path("configmaps"), config_map("c"))).ok()
        body = b"preconditions: {uid: other}"
        refused = await api.call("DELETE", api.path("configmaps", "c"), body, content_type="application/yaml")
        assert refused.code == 409


# --- watches over time ------------------------------------------------------------------------------------------------


async def test_bookmarks(tmp_path: Path) -> None:
    async with served(tmp_path, bookmark_interval=10) as (server, api):
        loop = asyncio.get_running_loop()
        path = api.path("configmaps")
        async with api.watch(path, allowWatchBookmarks="true", timeoutSeconds="25", resourceVersion="1") as events:
            begun = loop.time()
            (await api.post(api.path("secrets"), {"metadata": {"name": "s"}})).ok()
            for count, at in ((1, 10), (2, 20), (3, 23)):
                await events.reach(count)
                assert loop.time() - begun == pytest.approx(at, abs=0.1)
            await events.ended.wait()
            assert loop.time() - begun == pytest.approx(25, abs=0.1)
        assert [one["type"] for one in events.all] == ["BOOKMARK"] * 3
        assert events.all[-1]["object"] == {
            "kind": "ConfigMap",
            "apiVersion": "v1",
            "metadata": {"resourceVersion": str(server.storage.revision), "creationTimestamp": None},
        }
        async with api.watch(path, timeoutSeconds="25", resourceVersion="1") as silent:
            await silent.ended.wait()
        assert silent.all == []


async def test_the_present_state_and_where_it_ends(tmp_path: Path) -> None:
    async with served(tmp_path) as (server, api):
        (await api.post(api.path("configmaps"), config_map("c"))).ok()
        async with api.watch(
            api.path("configmaps"),
            sendInitialEvents="true",
            resourceVersionMatch="NotOlderThan",
            allowWatchBookmarks="true",
        ) as events:
            await events.reach(2)
            assert events.all[0]["type"] == "ADDED"
            metadata = events.all[1]["object"]["metadata"]
            assert metadata["annotations"] == {"k8s.io/initial-events-end": "true"}
            assert metadata["resourceVersion"] == str(server.storage.revision)


async def test_from_before_the_past_that_is_kept(tmp_path: Path) -> None:
    async with served(tmp_path) as (server, api):
        path = api.path("configmaps")
        for name in ("a", "b", "c"):
            (await api.post(path, config_map(name))).ok()
        first = (await api.get(path, limit=1)).ok()
        version = first["metadata"]["resourceVersion"]
        (await api.delete(f"{path}/c")).ok()
        server.storage.compact()
        async with api.watch(path, resourceVersion=version) as events:
            await events.ended.wait()
        (event,) = events.all
        assert event["type"] == "ERROR"
        assert event["object"] == {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": f"too old resource version: {version} ({server.storage.revision})",
            "reason": "Expired",
            "code": 410,
        }
        expired = await api.get(path, limit=1, **{"continue": first["metadata"]["continue"]})
        assert (expired.code, expired.reason) == (410, "Expired")
        token = expired.body["metadata"]["continue"]
        rest = (await api.get(path, **{"continue": token})).ok()
        assert [one["metadata"]["name"] for one in rest["items"]] == ["b"]
        exact = await api.get(path, resourceVersion=version, resourceVersionMatch="Exact")
        assert (exact.code, exact.message) == (410, "The resourceVersion for the provided list is too old.")


async def test_a_watch_that_is_too_slow_ends(tmp_path: Path) -> None:
    async with served(tmp_path, history=50) as (server, api):
        path = api.path("configmaps")
        host, port = server.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1)
        writer.write(f"GET {path}?watch=1 HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
        await eventually(lambda: _is(server.watches == 1))
        big = {**config_map("c"), "data": {"a": "x" * 500_000}}
        (await api.post(path, big)).ok()
        for number in range(80):
            (await api.patch(f"{path}/c", {"data": {"b": str(number)}})).ok()
        received = bytearray()
        while chunk := await reader.read(1 << 20):
            received += chunk
            if received.endswith(b"0\r\n\r\n"):
                break
        writer.close()
        assert 0 < received.count(b'"type":') < 81
        await eventually(lambda: _is(server.watches == 0))


async def _is(value: bool) -> None:
    assert value


@pytest.mark.parametrize("turns", range(6))
async def test_a_connection_of_the_last_moment_is_closed(tmp_path: Path, turns: int) -> None:
    """``turns`` of the event loop before the end: before it is accepted, while it is, when it just was."""
    async with served(tmp_path) as (server, _):
        host, port = server.url.removeprefix("http://").split(":")
        client = socket.create_connection((host, int(port)))
        client.setblocking(False)
        for _ in range(turns):
            await asyncio.sleep(0)
    with client:
        await asyncio.sleep(0.1)
        try:
            assert client.recv(1) == b""
        except ConnectionResetError:
            assert turns < 2  # It was never accepted.


async def test_nothing_is_kept_of_a_watcher_that_left(tmp_path: Path) -> None:
    async with served(tmp_path) as (server, api):
        async with api.watch(api.path("configmaps")), api.watch(api.path("pods")):
            await eventually(lambda: _is(server.watches == 2))
        await eventually(lambda: _is(server.watches == 0))


async def test_a_watcher_that_leaves_in_the_middle_of_a_change_is_no_fault(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(tmp_path) as (server, api):
        path = api.path("configmaps")
        host, port = server.url.removeprefix("http://").split(":")
        (await api.post(path, config_map("c"))).ok()
        for number in range(40):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(f"GET {path}?watch=1 HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
            await reader.readuntil(b"\r\n\r\n")
            change = asyncio.create_task(api.patch(f"{path}/c", {"data": {"b": str(number)}}))
            # At another step of the change each time: before it comes, while it is sent, afterwards.
            for _ in range(number % 8):
                await asyncio.sleep(0)
            writer.transport.abort()
            assert (await change).code == 200
        await eventually(lambda: _is(server.watches == 0))
    assert [(record.name, record.getMessage()) for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_ten_thousand_pods(tmp_path: Path) -> None:
    async with served(tmp_path, history=20_000) as (server, api):
        endpoint = server.registry.endpoints.find("", "v1", "pods")
        assert endpoint is not None
        async with api.watch(api.path("pods"), resourceVersion=str(server.storage.revision)) as events:
            for number in range(10_000):
                server.registry.create(endpoint, "default", pod(f"p{number:05}"), Call("create", "test"))
            await events.reach(10_000)
        names = [f"p{number:05}" for number in range(10_000)]
        assert [name for _, name in events.seen()] == names
        found: list[str] = []
        query: dict[str, str | int] = {"limit": 500}
        while True:
            page = (await api.get(api.path("pods"), **query)).ok()
            found += [one["metadata"]["name"] for one in page["items"]]
            if not page["metadata"].get("continue"):
                break
            query["continue"] = page["metadata"]["continue"]
        assert found == names


async def test_events_are_forgotten_after_an_hour(tmp_path: Path, clock: VirtualClockLoop) -> None:
    async with served(tmp_path) as (_, api):
        event = {"metadata": {"name": "e"}, "involvedObject": {"namespace": "default", "name": "x", "kind": "Pod"}}
        (await api.post(api.path("events"), event)).ok()
        await asyncio.sleep(3000)
        (await api.patch(api.path("events", "e"), {"count": 2})).ok()
        await asyncio.sleep(3000)
        assert (await api.get(api.path("events"), fieldSelector="involvedObject.name=x")).ok()["items"]
        await asyncio.sleep(700)
        assert (await api.get(api.path("events", "e"))).code == 404


# --- logs -----------------------------------------------------------------------------------------------------------


class FakeLogs:
    """Yields the parameters of the request, in two chunks."""

    async def read(self, namespace: str, name: str, container: str, **options: Any) -> AsyncIterator[bytes]:
        if options["previous"]:
            raise LookupError(f'previous terminated container "{container}" in pod "{name}" not found')
        asked = {key: value for key, value in options.items() if value not in {None, False}}
        yield f"{namespace}/{name}/{container}\n".encode()
        yield orjson.dumps(asked)


async def test_logs(tmp_path: Path) -> None:
    async with served(tmp_path, logs=FakeLogs()) as (server, api):
        two = pod("p")
        two["spec"]["containers"].append({"name": "side", "image": "none"})
        for body in (two, pod("q")):
            (await api.post(api.path("pods"), body)).ok()
        path = api.path("pods", "p", "log")
        assert (await api.get(path, container="main")).body == ""  # no node has it yet
        await bind(api, "p")
        await bind(api, "q")
        unnamed = await api.get(path)
        assert (unnamed.code, unnamed.message) == (
            400,
            "a container name must be specified for pod p, choose one of: [main side]",
        )
        wrong = await api.get(path, container="other")
        assert (wrong.code, wrong.message) == (400, "container other is not valid for pod p")
        query: dict[str, str | int] = {
            "container": "side",
            "tailLines": 3,
            "timestamps": "true",
            "follow": "true",
            "limitBytes": 9,
        }
        said = (await api.get(path, **query)).body
        assert said == 'default/p/side\n{"follow":true,"tail_lines":3,"limit_bytes":9,"timestamps":true}'
        previous = await api.get(api.path("pods", "q", "log"), previous="true")
        assert (previous.code, previous.message) == (400, 'previous terminated container "main" in pod "q" not found')
        assert (await api.get(api.path("pods", "none", "log"))).code == 404
        server.logs = None
        assert (await api.get(api.path("pods", "q", "log"))).body == ""


# --- end and start ----------------------------------------------------------------------------------------------------


async def test_it_ends_with_all_that_it_began(tmp_path: Path) -> None:
    before = asyncio.all_tasks()
    async with served(tmp_path) as (server, api):
        async with api.watch(api.path("configmaps")) as events:
            await server.stop()
            await events.ended.wait()
        assert asyncio.all_tasks() == before | {asyncio.current_task()}
        with pytest.raises(aiohttp.ClientConnectionError):
            await api.get("/readyz")


async def test_killed_and_started_again(tmp_path: Path) -> None:
    storage = ObjectStorage()
    async with served(tmp_path, storage=storage) as (server, api):
        port = int(server.url.rpartition(":")[2])
        root = (await api.post(api.path("configmaps"), config_map("root"))).ok()
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "root", "uid": root["metadata"]["uid"]}
        (await api.post(api.path("configmaps"), config_map("child", ownerReferences=[reference]))).ok()
        (await api.delete(api.path("configmaps", "root"))).ok()
        await server.stop(abort=True)
        async with ApiServer(wall=wall, port=port, storage=storage) as again:
            assert again.url == server.url

            async def collected() -> None:
                assert (await api.get(api.path("configmaps"))).ok()["items"] == []

            await eventually(collected)
            late = (await api.post(api.path("configmaps"), config_map("late"))).ok()
            assert int(late["metadata"]["resourceVersion"]) > int(root["metadata"]["resourceVersion"])


async def test_a_seed_repeats_a_run(tmp_path: Path) -> None:
    runs = []
    for _ in range(2):
        async with served(tmp_path) as (server, api):
            (await api.post(api.path("configmaps"), {"metadata": {"generateName": "g-"}})).ok()
            (found,) = (await api.get(api.path("configmaps"))).ok()["items"]
            runs.append((found["metadata"]["name"], found["metadata"]["uid"], server.storage.revision))
    assert runs[0] == runs[1]
