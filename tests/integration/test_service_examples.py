"""The services of examples/service, with real processes on a local cluster, while their templates are rolled out."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.config.config import shipped_config
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.resources import SERVICES
from frameworkcontroller.local.cluster import LocalCluster
from frameworkcontroller.manager.app import Controller
from tests.integration.test_examples import namespaces_work
from tests.support.eventually import eventually
from tests.support.examples import find, framework_of
from tests.support.frameworks import Frameworks, Json
from tests.support.objects import read


@dataclass
class Site:
    """A local cluster with a Framework, and a client of its Service."""

    client: KubeClient
    frameworks: Frameworks
    http: aiohttp.ClientSession
    name: str
    role: str

    async def role_status(self) -> Json:
        """The status of its role, empty if there is none yet."""
        attempt = (await self.frameworks.status(self.name)).get("attemptStatus") or {"taskRoleStatuses": [{}]}
        found: Json = attempt["taskRoleStatuses"][0]
        return found

    async def until_ready(self, number: int) -> None:
        async def is_so() -> None:
            role = await self.role_status()
            assert role.get("budgetedTaskCount") == role.get("readyTaskCount") == number

        await eventually(is_so)

    async def address(self) -> str:
        """The address of its Service."""
        spec = (await read(self.client, SERVICES, f"{self.name}-{self.role}", "default"))["spec"]
        return f"http://{spec['clusterIP']}:{spec['ports'][0]['port']}"

    async def roll(self) -> None:
        """Change the template, and wait until all Tasks have it."""
        (container,) = framework_of(find(self.name))["spec"]["taskRoles"][0]["task"]["pod"]["spec"]["containers"]
        at = next(at for at, one in enumerate(container["env"]) if one["name"] == "VERSION")
        changed = await self.frameworks.set(
            self.name, **{f"taskRoles__0__task__pod__spec__containers__0__env__{at}__value": "2"}
        )

        async def is_over() -> None:
            role = await self.role_status()
            number = len(role["taskStatuses"])
            assert (await self.frameworks.status(self.name))["observedGeneration"] == changed["metadata"]["generation"]
            assert (role["updatedTaskCount"], role["readyTaskCount"]) == (number, number)

        await eventually(is_over)


@asynccontextmanager
async def serving(path: Path, name: str, role: str) -> AsyncIterator[Site]:
    """The example on a local cluster, as `frameworkcontroller local up` starts it."""
    async with (
        LocalCluster(path) as cluster,
        Controller(shipped_config(), cluster.connect()),
        KubeClient(cluster.connect()) as client,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as http,
    ):
        await client.create(FRAMEWORKS, orjson.dumps(framework_of(find(name))), "default")
        yield Site(client, Frameworks(client, "default"), http, name, role)


async def during(work: Awaitable[None], ask: Callable[[], Awaitable[Any]]) -> list[Any]:
    """The answers to questions, one after the other in each of three loops, while the work is done."""
    answers: list[Any] = []
    task = asyncio.ensure_future(work)

    async def loop() -> None:
        while not task.done():
            answers.append(await ask())
            await asyncio.sleep(0.02)

    await asyncio.gather(loop(), loop(), loop())
    await task
    return answers


async def test_no_request_fails_while_web_servers_are_replaced(tmp_path: Path) -> None:
    async with serving(tmp_path, "web", "server") as site:
        await site.until_ready(4)
        address = await site.address()

        async def ask() -> str:
            async with site.http.get(address, headers={"Connection": "close"}) as answer:
                assert answer.status == 200
                return await answer.text()

        answers = await during(site.roll(), ask)
        found = Counter(tuple(text.split(" by ")) for text in answers)
        servers = {f"web-server-{index}\n" for index in range(4)}
        assert {server for version, server in found if version == "2"} >= {"web-server-3\n"}
        assert {server for _, server in found} == servers
        assert len(answers) > 100
        assert {(await ask()).split(" by ")[0] for _ in range(12)} == {"2"}


async def test_a_model_server_answers_by_the_protocol_of_tensorflow_serving(tmp_path: Path) -> None:
    async with serving(tmp_path, "serving", "server") as site:
        await site.until_ready(2)
        address = await site.address()
        async with site.http.get(f"{address}/v1/models/half_plus_two") as answer:
            (version,) = (await answer.json())["model_version_status"]
            assert version["state"] == "AVAILABLE"
        body = {"instances": [1.0, 2.0, 5.0]}
        async with site.http.post(f"{address}/v1/models/half_plus_two:predict", json=body) as answer:
            assert await answer.json() == {"predictions": [2.5, 3.0, 4.5]}
        async with site.http.get(f"{address}/v1/models/other") as answer:
            assert answer.status == 404


async def test_a_quorum_is_never_lost_while_its_members_are_replaced(tmp_path: Path) -> None:
    if not namespaces_work():
        pytest.skip("host names need namespaces")
    async with serving(tmp_path, "quorum", "member") as site:
        await site.until_ready(3)
        address = await site.address()
        written = 0
        lock = asyncio.Lock()

        async def write() -> Json:
            nonlocal written
            async with lock:
                written += 1
                async with site.http.put(address, data=json.dumps(written), headers={"Connection": "close"}) as answer:
                    found: Json = await answer.json(content_type=None)
                    assert (answer.status, found.get("value")) == (200, written), found
                    return found

        answers = await during(site.roll(), write)
        versions = [tuple(one["version"]) for one in answers]
        assert sorted(set(versions)) == sorted(versions)
        assert len(answers) > 20
        async with site.http.get(address, headers={"Connection": "close"}) as answer:
            assert (await answer.json(content_type=None))["value"] == written
