"""How a controller comes up, makes do, and goes down; against the embedded API server, on virtual time."""

import asyncio
import random
from functools import partial

import orjson
import pytest

from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.config.config import Config
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.kube.errors import ApiError
from frameworkcontroller.kube.resources import CONFIGMAPS
from frameworkcontroller.local.apiserver.authentication import Authenticator
from frameworkcontroller.local.apiserver.restserver import ApiServer
from frameworkcontroller.manager.app import Controller
from tests.support.eventually import eventually, until
from tests.support.frameworks import manifest, role
from tests.support.objects import items, read
from tests.support.requests import Requests
from tests.support.virtual_clock import VirtualClockLoop, wall

pytestmark = pytest.mark.virtual_clock


def controller_of(server: ApiServer, config: Config | None = None) -> Controller:
    return Controller(
        config or Config(), Connection.to_address(server.url), wall=wall, rng=random.Random(5), resync_sec=600
    )


def framework(name: str) -> bytes:
    return orjson.dumps(manifest(name, role()))


async def state_is(client: KubeClient, name: str, wanted: str) -> None:
    body = await read(client, FRAMEWORKS, name, "default")
    assert (body.get("status") or {}).get("state") == wanted


async def test_several_in_one_process_do_not_disturb_each_other(clock: VirtualClockLoop) -> None:
    async with ApiServer(wall=wall) as server, KubeClient(Connection.to_address(server.url)) as client:
        async with (
            controller_of(server),
            controller_of(server),
            ApiServer(wall=wall) as other,
            controller_of(other) as elsewhere,
        ):
            for name in "abcdef":
                await client.create(FRAMEWORKS, framework(name), "default")
            for name in "abcdef":
                await eventually(partial(state_is, client, name, "AttemptPreparing"))
            assert len(elsewhere.informers.frameworks.lister) == 0
        found = await items(client, CONFIGMAPS, "default")
        assert sorted(one["metadata"]["name"] for one in found if "attempt" in one["metadata"]["name"]) == [
            f"{name}-attempt" for name in "abcdef"
        ]


async def test_it_waits_for_an_api_server_that_comes_later(
    clock: VirtualClockLoop, caplog: pytest.LogCaptureFixture
) -> None:
    first = ApiServer(wall=wall)
    await first.start()
    controller = controller_of(first)
    await first.stop()
    running = asyncio.create_task(controller.run())
    await asyncio.sleep(300)
    assert not controller.ready
    assert "API server unavailable for" in caplog.text
    port = int(first.url.rpartition(":")[2])
    async with ApiServer(wall=wall, port=port, storage=first.storage):
        await controller.wait_ready()
        controller.stop()
        await running


async def test_stop_while_it_waits_for_its_api_server_is_at_once(clock: VirtualClockLoop) -> None:
    controller = Controller(Config(), Connection.to_address("http://127.0.0.1:1"), wall=wall)
    running = asyncio.create_task(controller.run())
    await asyncio.sleep(30)
    before = clock.time()
    controller.stop()
    await running
    assert clock.time() - before < 1


async def test_credentials_that_are_refused_end_it(clock: VirtualClockLoop) -> None:
    async with ApiServer(wall=wall, authenticator=Authenticator(users=())) as server:
        with pytest.raises(ApiError, match="Unauthorized"):
            await controller_of(server).run()
        with pytest.raises(ApiError, match="Unauthorized"):
            async with controller_of(server):
                raise AssertionError("it is not ready")


async def test_stop_lets_a_running_sync_finish(clock: VirtualClockLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = Requests(monkeypatch, "default")
    async with ApiServer(wall=wall) as server, KubeClient(Connection.to_address(server.url)) as client:
        # One request a second: a sync takes many seconds.
        slow = Config(kube_client_qps=1, kube_client_burst=5)
        async with controller_of(server, slow) as controller:
            await client.create(FRAMEWORKS, framework("f"), "default")
            await eventually(partial(state_is, client, "f", "AttemptCreationPending"))
            await until(lambda: controller.workers.busy > 0)
        assert controller.workers.busy == 0
        assert len(requests.all) > 2
        assert all(request.accepted for request in requests.all)
        stored = await read(client, FRAMEWORKS, "f", "default")
        assert stored["status"] == requests.status_writes[-1].status


async def test_the_audit_finds_changes_without_events(clock: VirtualClockLoop) -> None:
    async with (
        ApiServer(wall=wall) as server,
        KubeClient(Connection.to_address(server.url)) as client,
        controller_of(server) as controller,
    ):
        await client.create(FRAMEWORKS, framework("f"), "default")
        await eventually(partial(state_is, client, "f", "AttemptPreparing"))
        before = controller.queue.adds
        await asyncio.sleep(400)
        assert controller.queue.adds == before
        await asyncio.sleep(400)
        assert controller.queue.adds > before
