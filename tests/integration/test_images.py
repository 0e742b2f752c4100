"""The images, built from the Dockerfile and started as manifests in the world start them."""

import asyncio
import re
import subprocess
import sys
import zipfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from signal import SIGTERM
from typing import Any

import orjson
import pytest
import yaml

from frameworkcontroller import __version__
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.kube.errors import NotFound
from frameworkcontroller.local.apiserver.authentication import Authenticator
from frameworkcontroller.local.apiserver.restserver import ApiServer
from frameworkcontroller.local.kubelet.agent import NodeAgent
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from tests.support.eventually import eventually, until
from tests.support.images import Container, Images, image_store, why_not
from tests.support.objects import read

ROOT = Path(__file__).resolve().parents[2]
USER = 65532

pytestmark = [
    pytest.mark.skipif(why_not() is not None, reason=why_not() or ""),
    # A Debian is made, packages are fetched, and the image is built.
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def images() -> Iterator[Images]:
    with image_store() as images:
        images.make_base()
        for target in ("frameworkcontroller", "frameworkbarrier"):
            images.build(target)
        yield images
        # Nothing is left.
        assert images.signal(USER, 0) == 0


@asynccontextmanager
async def cluster() -> AsyncIterator[tuple[ApiServer, KubeClient]]:
    """An API server that answers the images' user too, with a node for its Pods; in real time, as the images are."""
    async with (
        ApiServer(authenticator=Authenticator(users=[0, USER])) as server,
        KubeClient(Connection.to_address(server.url)) as client,
    ):
        node = asyncio.create_task(NodeAgent(client, SimulatedRuntime()).run())
        yield server, client
        node.cancel()
        with suppress(asyncio.CancelledError):
            await node


def framework(name: str, run_time: str) -> bytes:
    document = yaml.safe_load((ROOT / "examples" / "batch" / "batchsucceeded.yaml").read_text())
    document["metadata"]["name"] = name
    pod = document["spec"]["taskRoles"][0]["task"]["pod"]
    pod["metadata"] = {"annotations": {"sim.frameworkcontroller.dev/run-seconds": run_time}}
    return orjson.dumps(document)


@asynccontextmanager
async def running(images: Images, container: Container, *command: str, **options: Any) -> AsyncIterator[list[str]]:
    """A program in a container, terminated as a kubelet does it; its output is in the list in the end."""
    process = container.start(*command, **options)
    log: list[str] = []
    reading = asyncio.create_task(asyncio.to_thread(process.communicate))
    try:
        yield log
    finally:
        # buildah passes no signal on, nor does the shell that may have started it.
        assert await asyncio.to_thread(images.signal, USER, SIGTERM, "venv/bin/frameworkcontroller") == 1
        out, _ = await asyncio.wait_for(reading, 300)
        log.append(out)
        print(out)


async def succeeded(client: KubeClient, name: str) -> None:
    status = (await read(client, FRAMEWORKS, name, "default")).get("status", {})
    assert status.get("state") == "Completed"
    assert status["attemptStatus"]["completionStatus"]["code"] == 0


async def served(client: KubeClient) -> None:
    with suppress(NotFound):
        await client.list(FRAMEWORKS, "default")
        return
    raise AssertionError("Frameworks are not served yet")


async def test_a_killed_build_leaves_no_mount(tmp_path: Path) -> None:
    program = f"""
import subprocess, sys
from tests.support.images import inside, own_mounts
with own_mounts() as keeper:
    subprocess.run([*inside(keeper), "mount", "-t", "proc", "proc", "{tmp_path}"])
    print(keeper, flush=True)
    subprocess.run([*inside(keeper), "sleep", "1000"])
"""
    build = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
    )
    assert build.stdout is not None
    keeper = Path(f"/proc/{int(await build.stdout.readline())}")
    assert f" {tmp_path} proc " in (keeper / "mounts").read_text()
    assert list(tmp_path.iterdir()) == []
    build.kill()
    await until(lambda: not keeper.exists())
    # The processes in it have ended, too: they hold the other end.
    assert await asyncio.wait_for(build.stdout.read(), 300) == b""
    await build.wait()


def test_the_controller_is_in_its_image(images: Images) -> None:
    container = images.container("frameworkcontroller")
    assert images.entrypoint("frameworkcontroller") == "[./start.sh]"
    for command in (["./start.sh", "--version"], ["frameworkcontroller", "--version"]):
        out, _ = container.start(*command).communicate(timeout=600)
        assert out == f"frameworkcontroller {__version__}\n"
    out, _ = container.start("id", "-u").communicate(timeout=600)
    assert out == f"{USER}\n"


def test_the_embedded_cluster_is_not_in_its_image(images: Images) -> None:
    container = images.container("frameworkcontroller")
    process = container.start("frameworkcontroller", "local", "up")
    out, _ = process.communicate(timeout=600)
    assert (process.returncode, "the embedded cluster is not part of the controller's image" in out) == (1, True), out
    assert list(container.root.glob("opt/frameworkcontroller/venv/lib/python3*/site-packages/frameworkcontroller/kube"))
    assert not list(
        container.root.glob("opt/frameworkcontroller/venv/lib/python3*/site-packages/frameworkcontroller/local")
    )


async def test_the_controller_runs_as_the_original_is_run(images: Images, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "frameworkcontroller.yaml").write_text("workerNumber: 7\n")
    container = images.container("frameworkcontroller")
    async with cluster() as (server, client):
        command = ["bash", "-c", "cp /frameworkcontroller-config/frameworkcontroller.yaml . && ./start.sh"]
        environment = {"KUBE_APISERVER_ADDRESS": server.url}
        async with running(
            images, container, *command, environment=environment, volumes={tmp_path: "/frameworkcontroller-config"}
        ) as said:
            await eventually(lambda: served(client), within=30)
            await client.create(FRAMEWORKS, framework("b", "1"), "default")
            await eventually(lambda: succeeded(client, "b"), within=30)
    (log,) = said
    assert re.search(r"^I\d{4} \S+ +\d+ \S+\] \[default/b\]: .*Completed", log, re.MULTILINE)
    assert "Stopped" in log
    assert (container.root / "opt/frameworkcontroller/frameworkcontroller/frameworkcontroller.yaml").read_text() == (
        "workerNumber: 7\n"
    )


async def test_the_controller_writes_no_file(images: Images) -> None:
    """So that its root file system can be read-only."""
    container = images.container("frameworkcontroller")
    before = container.files()
    async with (
        cluster() as (server, client),
        running(images, container, "./start.sh", environment={"KUBE_APISERVER_ADDRESS": server.url}),
    ):
        await eventually(lambda: served(client), within=30)
        await client.create(FRAMEWORKS, framework("b", "1"), "default")
        await eventually(lambda: succeeded(client, "b"), within=30)
    changed = {name for name, _ in container.files() ^ before}
    # The files that the builder of containers itself puts there.
    assert changed <= {"etc/hosts", "etc/resolv.conf", "etc/hostname", "run/.containerenv"}


async def test_the_barrier_leaves_its_files_in_the_volume(images: Images, tmp_path: Path) -> None:
    container = images.container("frameworkbarrier")
    volume = tmp_path / "volume"
    volume.mkdir()
    volume.chmod(0o777)
    controller = images.container("frameworkcontroller")
    async with (
        cluster() as (server, client),
        running(images, controller, "./start.sh", environment={"KUBE_APISERVER_ADDRESS": server.url}),
    ):
        await eventually(lambda: served(client), within=30)
        await client.create(FRAMEWORKS, framework("b", "600"), "default")
        environment = {
            "KUBE_APISERVER_ADDRESS": server.url,
            "FC_FRAMEWORK_NAMESPACE": "default",
            "FC_FRAMEWORK_NAME": "b",
            "BARRIER_CHECK_INTERVAL_SEC": "5",
        }
        process = container.start("./start.sh", environment=environment, volumes={volume: "/mnt/frameworkbarrier"})
        out, _ = await asyncio.to_thread(process.communicate, timeout=600)
        assert process.returncode == 0, out
    assert orjson.loads((volume / "framework.json").read_bytes())["metadata"]["name"] == "b"
    assert "FB_WORKER_IPS" in (volume / "injector.sh").read_text()


def test_the_barrier_is_one_file(images: Images, tmp_path: Path) -> None:
    """Others copy it out of the image and run it with a Python of theirs."""
    container = images.container("frameworkbarrier")
    file = container.root / "opt/frameworkcontroller/frameworkbarrier/frameworkbarrier"
    assert file.stat().st_mode & 0o111 == 0o111
    with zipfile.ZipFile(file) as archive:
        for source in (ROOT / "frameworkcontroller" / "barrier").glob("*.py"):
            assert archive.read(f"frameworkcontroller/barrier/{source.name}") == source.read_bytes()
    (tmp_path / "kubeconfig").write_text("{current-context: c, contexts: [{name: c, context: {cluster: absent}}]}")
    # Without the packages of this Python.
    done = subprocess.run(
        [sys.executable, "-I", "-S", file],
        env={"FC_FRAMEWORK_NAMESPACE": "a", "FC_FRAMEWORK_NAME": "b", "KUBECONFIG": str(tmp_path / "kubeconfig")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, "there is no cluster 'absent'" in done.stderr) == (1, True), done.stderr
