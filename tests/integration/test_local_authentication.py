"""Access to a local cluster, by users of this machine and by browsers."""

import asyncio
import sys
from collections.abc import AsyncIterator

import aiohttp
import orjson
import pytest

from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.resources import CONFIGMAPS, PODS
from frameworkcontroller.local.cluster import LocalCluster
from tests.support.api import config_map
from tests.support.eventually import eventually
from tests.support.objects import read
from tests.support.pods import pod_manifest
from tests.support.users import AS_NOBODY, NOBODY, nobodys_python, passable_directory

CREATE = """
import sys, urllib.error, urllib.request
url, token = sys.argv[1:]
headers = {"Content-Type": "application/json"}
if token:
    headers["Authorization"] = "Bearer " + token
body = b'{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "by-nobody"}}'
try:
    print(urllib.request.urlopen(urllib.request.Request(url, body, headers)).status)
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
"""

ASK_FROM_POD = """
import json, os, urllib.error, urllib.request
with open("/var/run/secrets/kubernetes.io/serviceaccount/token") as file:
    token = file.read()
with open(os.environ["KUBECONFIG"]) as file:
    assert json.load(file)["users"][0]["user"]["token"] == token
url = os.environ["KUBE_APISERVER_ADDRESS"] + "/api/v1/namespaces/default/pods/" + os.environ["HOSTNAME"]
with urllib.request.urlopen(urllib.request.Request(url, headers={"Authorization": "Bearer " + token})) as answer:
    assert json.load(answer)["metadata"]["name"] == os.environ["HOSTNAME"]
try:
    urllib.request.urlopen(url)
except urllib.error.HTTPError as error:
    assert error.code == EXPECTED, error
else:
    assert EXPECTED == 200
"""


@pytest.fixture
async def cluster() -> AsyncIterator[LocalCluster]:
    with passable_directory() as directory:
        async with LocalCluster(directory / "cluster") as started:
            yield started


@pytest.fixture
async def client(cluster: LocalCluster) -> AsyncIterator[KubeClient]:
    async with KubeClient(cluster.connect()) as opened:
        yield opened


async def config_maps(client: KubeClient) -> list[str]:
    found = orjson.loads(await client.list(CONFIGMAPS, "default"))
    return [item["metadata"]["name"] for item in found["items"]]


async def test_another_user_needs_the_token(cluster: LocalCluster, client: KubeClient) -> None:
    python = nobodys_python()

    async def create_as_nobody(token: str) -> str:
        url = f"{cluster.url}/api/v1/namespaces/default/configmaps"
        program = await asyncio.create_subprocess_exec(
            *(python, "-I", "-c", CREATE, url, token), stdout=asyncio.subprocess.PIPE, **AS_NOBODY
        )
        out, _ = await program.communicate()
        return out.decode()

    for token in ("", "wrong"):
        code, _, body = (await create_as_nobody(token)).partition(" ")
        assert code == "401"
        status = orjson.loads(body)
        assert (status["kind"], status["reason"]) == ("Status", "Unauthorized")
        assert "clients with its token" in status["message"]
    assert await config_maps(client) == []
    assert await create_as_nobody(cluster.server.authenticator.token) == "201\n"
    assert await config_maps(client) == ["by-nobody"]


@pytest.mark.parametrize("user", [None, NOBODY])
async def test_pods_have_the_token(client: KubeClient, user: int | None) -> None:
    python = sys.executable if user is None else nobodys_python()
    program = ASK_FROM_POD.replace("EXPECTED", "200" if user is None else "401")
    main = {"name": "main", "command": [python, "-c", program], "terminationMessagePolicy": "FallbackToLogsOnError"}
    pod = pod_manifest(main, name="p", securityContext={} if user is None else {"runAsUser": user})
    await client.create(PODS, orjson.dumps(pod), "default")

    async def succeeded() -> None:
        status = (await read(client, PODS, "p", "default"))["status"]
        assert status["phase"] == "Succeeded", status.get("containerStatuses", status)

    await eventually(succeeded)


async def test_a_web_page_is_refused(cluster: LocalCluster, client: KubeClient) -> None:
    body = orjson.dumps(config_map("by-a-page"))
    async with aiohttp.ClientSession() as browser:
        for headers, code in (
            # A form, or fetch with mode no-cors; from a browser that does not say so; and by DNS rebinding.
            ({"Content-Type": "text/plain", "Origin": "http://example.com", "Sec-Fetch-Site": "cross-site"}, 403),
            ({"Content-Type": "text/plain"}, 415),
            ({"Content-Type": "application/json", "Host": f"example.com:{cluster.url.rpartition(':')[2]}"}, 403),
        ):
            url = f"{cluster.url}/api/v1/namespaces/default/configmaps"
            async with browser.post(url, data=body, headers=headers) as answer:
                assert (answer.status, (await answer.json())["kind"]) == (code, "Status")
        # A browser's preflight, before requests that not every page may send.
        preflight = {"Origin": "http://example.com", "Access-Control-Request-Method": "DELETE"}
        async with browser.options(f"{cluster.url}/api/v1/pods", headers=preflight) as answer:
            assert answer.status == 403
            assert not any(name.startswith("Access-Control") for name in answer.headers)
    assert await config_maps(client) == []
