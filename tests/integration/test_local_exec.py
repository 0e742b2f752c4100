"""Commands in containers of the local cluster: kubectl exec and cp, and the protocol behind them."""

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.resources import PODS
from frameworkcontroller.local.cluster import LocalCluster
from tests.support.eventually import eventually, read_until
from tests.support.kubectl import find_kubectl
from tests.support.objects import read
from tests.support.pods import pod_manifest

Json = dict[str, Any]

V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"


class World:
    """A local cluster, and a client of the protocol."""

    def __init__(self, cluster: LocalCluster, client: KubeClient, session: aiohttp.ClientSession) -> None:
        self.cluster = cluster
        self.client = client
        self.session = session

    async def run(self, script: str = "exec sleep 1000", **container: Any) -> None:
        """Run a Pod ``p``."""
        main = {"name": "main", "command": ["sh", "-c", script], **container}
        await self.client.create(PODS, orjson.dumps(pod_manifest(main, name="p")), "default")
        await self.until_phase("Running")

    async def until_phase(self, phase: str) -> Json:
        return await read_until(
            lambda: read(self.client, PODS, "p", "default"), lambda pod: pod["status"]["phase"] == phase
        )

    def url(self, subresource: str = "exec") -> str:
        return f"{self.cluster.url}/api/v1/namespaces/default/pods/p/{subresource}"

    async def open(self, *command: str, protocol: str = V5, **options: str) -> aiohttp.ClientWebSocketResponse:
        query = [*(("command", word) for word in command), *options.items()]
        return await self.session.ws_connect(self.url(), params=query, protocols=[protocol])

    async def refused(
        self,
        subresource: str = "exec",
        *,
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
    ) -> str:
        query = {"command": "true"}
        async with self.session.request(
            method, self.url(subresource), params=query, headers=headers, skip_auto_headers=["Content-Type"]
        ) as answer:
            status = await answer.json()
            assert (answer.status, status["code"]) == (400, 400)
            message: str = status["message"]
            return message


async def result_of(socket: aiohttp.ClientWebSocketResponse) -> tuple[str, str, Json]:
    """The output of the command on stdout and stderr, and its result."""
    streams = {1: b"", 2: b"", 3: b""}
    async for message in socket:
        streams[message.data[0]] += message.data[1:]
    return streams[1].decode(), streams[2].decode(), orjson.loads(streams[3])


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with (
        LocalCluster(tmp_path / "cluster") as cluster,
        KubeClient(cluster.connect()) as client,
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {cluster.server.authenticator.token}"}) as session,
    ):
        yield World(cluster, client, session)


@pytest.mark.parametrize("protocol", [V5, V4])
async def test_a_command_has_streams_and_an_exit_code(world: World, protocol: str) -> None:
    await world.run(env=[{"name": "COLOR", "value": "blue"}])
    script = 'echo "$COLOR $(pwd)"; echo problem >&2; exit 3'
    out, err, result = await result_of(await world.open("sh", "-c", script, protocol=protocol))
    assert (out.split()[0], out.split()[1].endswith("/c/main/home"), err) == ("blue", True, "problem\n")
    assert (result["status"], result["reason"]) == ("Failure", "NonZeroExitCode")
    assert result["details"] == {"causes": [{"reason": "ExitCode", "message": "3"}]}
    _, _, result = await result_of(await world.open("true", protocol=protocol))
    assert result == {"metadata": {}, "status": "Success"}
    _, _, result = await result_of(await world.open("sh", "-c", "kill -9 $$"))
    assert result["details"]["causes"][0]["message"] == "137"
    _, _, result = await result_of(await world.open("nonsense"))
    assert (result["reason"], result["message"]) == (
        "InternalError",
        'error executing command in container: exec: "nonsense": executable file not found in $PATH',
    )


async def test_input_of_any_size_arrives_and_ends(world: World) -> None:
    await world.run()
    data = os.urandom(3_000_000)
    socket = await world.open("cat", stdin="true")

    async def write() -> None:
        for begin in range(0, len(data), 100_000):
            await socket.send_bytes(b"\0" + data[begin : begin + 100_000])
        await socket.send_bytes(b"\xff\0")

    writing = asyncio.create_task(write())
    found, result = b"", b""
    async for message in socket:
        if message.data[0] == 1:
            found += message.data[1:]
        else:
            result += message.data
    await writing
    assert found == data
    assert orjson.loads(result[1:])["status"] == "Success"


async def test_without_stdin_a_command_reads_nothing(world: World) -> None:
    await world.run()
    assert (await result_of(await world.open("cat")))[0] == ""


async def test_a_terminal(world: World) -> None:
    await world.run()
    script = 'test -t 0 && test -t 2 && read x && stty size && echo "$TERM $x" >&2; sleep 1000'
    socket = await world.open("sh", "-c", script, stdin="true", tty="true")
    await socket.send_bytes(b'\4{"Width":132,"Height":43}')
    await socket.send_bytes(b"\0hi\n")
    shown = b""
    while not shown.endswith(b"xterm hi\r\n"):
        message = await socket.receive_bytes()
        assert message[0] == 1
        shown += message[1:]
    assert b"43 132\r\n" in shown

    async def interrupt() -> None:
        """Send Ctrl-C, which only a controlling terminal turns into a signal.

        Once more if a shell that starts a program has missed it.
        """
        while True:
            await socket.send_bytes(b"\0\3")
            await asyncio.sleep(0.5)

    interrupting = asyncio.create_task(interrupt())
    try:
        _, _, result = await result_of(socket)
    finally:
        interrupting.cancel()
        await asyncio.wait([interrupting])
    assert result["details"]["causes"][0]["message"] == "130"


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_a_command_ends_when_its_client_leaves(world: World) -> None:
    await world.run()
    socket = await world.open("sh", "-c", "trap '' TERM HUP; echo $$; while :; do sleep 0.1; done")
    pid = int((await socket.receive_bytes())[1:])
    assert runs(pid)
    await socket.close()

    async def gone() -> None:
        assert not runs(pid)

    await eventually(gone)


async def test_a_pod_has_ended_when_its_commands_have(world: World, tmp_path: Path) -> None:
    await world.run(f"until [ -e {tmp_path}/end ]; do sleep 0.05; done")
    socket = await world.open("sh", "-c", "trap '' TERM HUP; echo $$; while :; do sleep 0.1; done")
    pid = int((await socket.receive_bytes())[1:])
    (tmp_path / "end").touch()
    await world.until_phase("Succeeded")
    assert not runs(pid)
    _, _, result = await result_of(socket)
    assert result["details"]["causes"][0]["message"] == "137"
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    key = {"Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Protocol": V5}
    said = await world.refused(method="GET", headers={**upgrade, **key})
    assert said == 'exec: container "main" in pod "p" is not running'


async def test_unsupported_calls_are_refused_with_the_reason(world: World) -> None:
    await world.run()
    for method in ("GET", "POST"):
        said = await world.refused(method=method, headers={"Connection": "Upgrade", "Upgrade": "SPDY/3.1"})
        assert said.startswith("exec: the local cluster speaks WebSockets only, as kubectl does since 1.31")
        address = (await read(world.client, PODS, "p", "default"))["status"]["podIP"]
        assert f"the Pod's address, {address}, is reachable" in await world.refused("portforward", method=method)
        assert "kubectl logs --follow shows their output" in await world.refused("attach", method=method)
    with pytest.raises(aiohttp.WSServerHandshakeError):
        await world.open("true", protocol="channel.k8s.io")


async def test_a_web_page_executes_nothing(world: World) -> None:
    await world.run()
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await world.session.ws_connect(
            world.url(), params={"command": "true"}, protocols=[V5], headers={"Origin": "http://example.com"}
        )
    assert refused.value.status == 403
    async with aiohttp.ClientSession() as stranger:
        world.cluster.server.authenticator._users._users = frozenset()
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await stranger.ws_connect(world.url(), params={"command": "true"}, protocols=[V5])
        assert refused.value.status == 401


async def test_simulated_containers_execute_nothing(tmp_path: Path) -> None:
    async with (
        LocalCluster(tmp_path, runtime="simulated") as cluster,
        KubeClient(cluster.connect()) as client,
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {cluster.server.authenticator.token}"}) as session,
    ):
        world = World(cluster, client, session)
        await world.run()
        assert await world.refused() == "exec: the containers of this cluster have no processes"


async def test_kubectl_executes_commands_and_copies_files(world: World, tmp_path: Path) -> None:
    program = find_kubectl()
    if isinstance(program, str):
        pytest.skip(program)
    config = tmp_path / "kubeconfig"
    world.cluster.server.write_kubeconfig(config)
    # kubectl 1.30 asks for it.
    environment = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "KUBECTL_REMOTE_COMMAND_WEBSOCKETS": "true"}

    async def kubectl(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
        process = await asyncio.create_subprocess_exec(
            program,
            *("--kubeconfig", str(config), *arguments),
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        out, err = await process.communicate(stdin.encode())
        return process.returncode or 0, out.decode(), err.decode()

    await world.run()
    assert await kubectl("exec", "p", "--", "sh", "-c", "echo hello; exit 3") == (
        3,
        "hello\n",
        "command terminated with exit code 3\n",
    )
    assert await kubectl("exec", "-i", "p", "--", "tr", "a-z", "A-Z", stdin="abc") == (0, "ABC", "")
    (tmp_path / "file").write_text("content")
    code, _, err = await kubectl("cp", str(tmp_path / "file"), f"p:{tmp_path}/copy")
    assert (code, err, (tmp_path / "copy").read_text()) == (0, "", "content")
    code, _, err = await kubectl("port-forward", "p", "8080:80")
    assert code == 1
    assert "port-forward: the local cluster does not support it" in err
