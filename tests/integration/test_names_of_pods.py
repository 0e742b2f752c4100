"""Names of Pods and headless Services, looked up by processes, on every API server."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest

from frameworkcontroller.kube.client import MERGE_PATCH
from frameworkcontroller.kube.resources import PODS, SERVICES
from tests.integration.test_process_pods import Here, here, on_node, sh
from tests.support.eventually import eventually, read_until, until

pytestmark = pytest.mark.virtual_clock

__all__ = ["here"]

Json = dict[str, Any]

LOOK_UP = """
import socket, sys
for name in sys.argv[1:]:
    try:
        found = socket.getaddrinfo(name, 80, socket.AF_INET, socket.SOCK_STREAM)
    except OSError:
        found = []
    print(name, *sorted({address[4][0] for address in found}))
"""
OWN = """
import os, socket
print(socket.gethostname(), os.environ["HOSTNAME"], socket.gethostbyname(socket.gethostname()), socket.getfqdn())
"""
FORMS = ("a.s", "a.s.{}", "a.s.{}.svc", "a.s.{}.svc.cluster.local")


@pytest.fixture(autouse=True)
def mounts_work(here: Here) -> None:
    if not here.runtime.mounts_work:
        pytest.skip("needs namespaces")


class Members:
    """Pods behind the headless Service ``s``."""

    def __init__(self, here: Here) -> None:
        self.here = here

    async def service(self, name: str = "s", **spec: Any) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name},
            "spec": {"clusterIP": "None", "selector": {"of": "s"}, **spec},
        }
        await self.here.client.create(SERVICES, orjson.dumps(body), self.here.namespace)

    async def pod(self, name: str, script: str = "sleep 600", **fields: Any) -> Json:
        """Create a Pod; return it once it has an address."""
        fields = {"hostname": name, "subdomain": "s", **fields}
        await self.here.create(on_node(sh(f"exec {script}"), name=name, labels={"of": "s"}, **fields))
        return await self.here.until(lambda pod: bool(pod["status"].get("podIP")), name)

    async def address(self, name: str, script: str = "sleep 600", **fields: Any) -> str:
        return str((await self.pod(name, script, **fields))["status"]["podIP"])

    async def remove(self, name: str) -> None:
        await self.here.client.delete(PODS, name, self.here.namespace, grace_period_seconds=0)

    async def look_up(self, *names: str, **fields: Any) -> dict[str, list[str]]:
        """The addresses that another Pod of the namespace finds, by name."""
        command = [sys.executable, "-c", LOOK_UP, *names]
        await self.here.create(on_node({"name": "main", "command": command}, name="asker", **fields))
        await self.here.until_phase("Succeeded", "asker")
        lines = (await self.here.output("asker")).splitlines()
        await self.remove("asker")
        await eventually(self._asker_is_gone)
        return {line.split()[0]: line.split()[1:] for line in lines}

    async def _asker_is_gone(self) -> None:
        names = [item["metadata"]["name"] for item in orjson.loads(await self._pods())["items"]]
        assert "asker" not in names

    async def _pods(self) -> bytes:
        return await self.here.client.list(PODS, self.here.namespace)


@pytest.fixture
def members(here: Here) -> Members:
    return Members(here)


async def test_a_pod_is_found_by_every_form_of_its_name(members: Members) -> None:
    await members.service(publishNotReadyAddresses=True)
    a, b = await members.address("a"), await members.address("b")
    forms = [form.format(members.here.namespace) for form in FORMS]
    found = await members.look_up(*forms, "b.s", "s", f"s.{members.here.namespace}.svc", "a", "c.s", "a.other")
    assert [found[form] for form in forms] == [[a]] * 4
    assert (found["b.s"], found["s"], found[f"s.{members.here.namespace}.svc"]) == ([b], sorted([a, b]), sorted([a, b]))
    # As on a cluster: only a Pod itself knows it by its host name alone.
    assert (found["a"], found["c.s"], found["a.other"]) == ([], [], [])


async def test_a_pod_is_found_before_it_is_ready_if_the_service_says_so(members: Members) -> None:
    await members.service(publishNotReadyAddresses=True)
    await members.service("ready")
    address = await members.address("a", inits=({"name": "wait", "command": ["sleep", "600"]},))
    assert await members.look_up("a.s", "s", "ready") == {"a.s": [address], "s": [address], "ready": []}
    ready = await members.address("b", subdomain="ready")
    await members.here.until_phase("Running", "b")
    await read_until(
        lambda: members.look_up("b.ready", "ready"), lambda found: found == {"b.ready": [ready], "ready": [ready]}
    )


async def test_a_running_process_follows_a_retried_pod(members: Members, tmp_path: Path) -> None:
    await members.service(publishNotReadyAddresses=True)
    seen = tmp_path / "seen"
    script = (
        "import socket, time\n"
        "while True:\n"
        "    try: found = socket.gethostbyname('a.s')\n"
        "    except OSError: found = '-'\n"
        f"    open({str(seen)!r}, 'a').write(found + '\\n'); time.sleep(0.01)\n"
    )
    seen.write_text("nothing yet\n")
    await members.here.create(on_node({"name": "main", "command": [sys.executable, "-c", script]}))

    async def sees(what: str) -> None:
        assert seen.read_text().splitlines()[-1] == what

    await eventually(lambda: sees("-"))
    first = await members.address("a")
    await eventually(lambda: sees(first))
    await members.remove("a")
    await eventually(lambda: sees("-"))
    second = await members.address("a")
    await eventually(lambda: sees(second))
    assert first != second
    assert list(dict.fromkeys(seen.read_text().splitlines())) == ["nothing yet", "-", first, second]


async def test_names_follow_the_service_and_the_labels(members: Members) -> None:
    address = await members.address("a")
    assert await members.look_up("a.s") == {"a.s": []}
    await members.service(publishNotReadyAddresses=True)

    async def found(*addresses: str) -> None:
        assert await members.look_up("a.s", "s") == {"a.s": list(addresses), "s": list(addresses)}

    await eventually(lambda: found(address))
    await _patch(members, {"metadata": {"labels": {"of": "none"}}})
    await eventually(found)
    await _patch(members, {"metadata": {"labels": {"of": "s"}}})
    await eventually(lambda: found(address))
    await members.here.client.delete(SERVICES, "s", members.here.namespace)
    await eventually(found)


async def _patch(members: Members, change: Json) -> None:
    body = orjson.dumps(change)
    await members.here.client.patch(PODS, "a", body, members.here.namespace, content_type=MERGE_PATCH)


async def test_a_pod_that_has_ended_is_not_found(members: Members) -> None:
    await members.service(publishNotReadyAddresses=True)
    await members.pod("a", "true")
    await members.here.until_phase("Succeeded", "a")
    await read_until(lambda: members.look_up("a.s", "s"), lambda found: found == {"a.s": [], "s": []})


async def test_an_ordinary_service_is_no_name_of_pods(members: Members) -> None:
    await members.service(clusterIP=None, ports=[{"port": 80}])
    await members.address("a")
    await members.here.until_phase("Running", "a")
    assert await members.look_up("a.s", "s") == {"a.s": [], "s": []}


@pytest.mark.parametrize("policy", ["Default", "ClusterFirst", "ClusterFirstWithHostNet"])
async def test_a_pod_on_the_hosts_network_knows_the_names_if_it_says_so(members: Members, policy: str) -> None:
    await members.service(publishNotReadyAddresses=True)
    address = await members.address("a")
    found = await members.look_up("a.s", hostNetwork=True, dnsPolicy=policy)
    assert found == {"a.s": [address] if policy == "ClusterFirstWithHostNet" else []}


@pytest.mark.parametrize("whole", [False, True])
async def test_a_pod_knows_its_own_name(members: Members, whole: bool) -> None:
    command = f"{sys.executable} -c '{OWN}'"
    pod = await members.pod("a", command, setHostnameAsFQDN=whole)
    await members.here.until_phase("Succeeded", "a")
    full = f"a.s.{members.here.namespace}.svc.cluster.local"
    name = full if whole else "a"
    assert (await members.here.output("a")).split() == [name, name, pod["status"]["podIP"], full]


async def test_entries_that_a_pod_adds_to_its_hosts_stay(members: Members, tmp_path: Path) -> None:
    await members.service(publishNotReadyAddresses=True)
    added = tmp_path / "added"
    wait = "until getent hosts a.s > /dev/null; do sleep 0.02; done"
    script = f"echo 127.0.0.77 mine >> /etc/hosts; touch {added}; {wait}; getent hosts mine"
    await members.here.create(on_node(sh(script)))
    await until(added.exists)
    await members.pod("a")
    await members.here.until_phase("Succeeded")
    assert (await members.here.output()).split() == ["127.0.0.77", "mine"]


async def test_many_pods_that_start_together_find_one_another(members: Members) -> None:
    await members.service(publishNotReadyAddresses=True)
    names = [f"p{number}" for number in range(50)]
    addresses = await asyncio.gather(*(members.address(name) for name in names))
    expected = {f"{name}.s": [address] for name, address in zip(names, addresses, strict=True)}
    assert await members.look_up(*expected, "s") == {**expected, "s": sorted(addresses)}
