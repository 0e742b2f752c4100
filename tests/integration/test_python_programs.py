"""The programs of examples/python, on a local cluster and on real control planes, with processes as containers."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import orjson
import pytest

from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.config.config import Config
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.connection import connect
from frameworkcontroller.local.kubelet.agent import NodeAgent
from frameworkcontroller.local.kubelet.process import ProcessRuntime
from frameworkcontroller.manager.app import Controller
from tests.integration.test_process_pods import access_of
from tests.support.clusters import Cluster
from tests.support.pythonprograms import FOLDER, SAYS, assert_they_work, kubeconfig_for, run

Json = dict[str, Any]

TORCHRUN = """#!/bin/sh -e
test -f "$1"
size=$((PET_NNODES * PET_NPROC_PER_NODE))
for rank in $(seq $((PET_NODE_RANK * PET_NPROC_PER_NODE)) $(((PET_NODE_RANK + 1) * PET_NPROC_PER_NODE - 1))); do
    echo "rank $rank of $size at $PET_MASTER_ADDR:$PET_MASTER_PORT" &
done
wait
"""
"""A stand-in for PyTorch's: its processes say their rank."""

RANK = "worker[{node}]: rank {rank} of 32 at {host}:29500"

UNGUARDED = """
import frameworkcontroller as fc

def f():
    return 1

with fc.connect() as cluster:
    cluster.run(fc.function(f, tasks=2))
"""


@pytest.fixture
def launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A torchrun on the PATH of the containers, and a Python without the SDK, as in an image."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "torchrun").write_text(TORCHRUN)
    (folder / "torchrun").chmod(0o755)
    (folder / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    (folder / "python3").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@asynccontextmanager
async def local_cluster(folder: Path) -> AsyncIterator[tuple[Path, KubeClient]]:
    """A local cluster: its kubeconfig, and a client."""
    kubeconfig = folder / "kubeconfig"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "frameworkcontroller", "local", "up", "--kubeconfig", str(kubeconfig)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert process.stdout is not None
    try:
        while b"export KUBECONFIG" not in (line := await process.stdout.readline()):
            assert line
        async with KubeClient(await connect(kubeconfig=str(kubeconfig), environ={})) as client:
            yield kubeconfig, client
    finally:
        process.terminate()
        await process.communicate()


async def frameworks(client: KubeClient) -> list[Json]:
    found: list[Json] = orjson.loads(await client.list(FRAMEWORKS, "default"))["items"]
    return found


@pytest.mark.usefixtures("launcher")
async def test_they_work_on_a_local_cluster(tmp_path: Path) -> None:
    async with local_cluster(tmp_path) as (kubeconfig, client):
        output = await assert_they_work(kubeconfig, client, "default", *SAYS, logs=True)
        (body,) = [one for one in await frameworks(client) if one["metadata"]["name"].startswith("torchrun")]
    name = body["metadata"]["name"]
    ranks = [RANK.format(node=rank // 8, rank=rank, host=f"{name}-worker-0.{name}") for rank in range(32)]
    assert sorted(line for line in output.splitlines() if ": rank " in line) == sorted(ranks)
    (container,) = body["spec"]["taskRoles"][0]["task"]["pod"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "8"}


@pytest.mark.usefixtures("launcher")
async def test_they_work_on_real_control_planes(cluster: Cluster, tmp_path: Path) -> None:
    """Such a node serves no logs to the API server."""
    if cluster.embedded:
        pytest.skip("the local cluster has this API server")
    client = await cluster.client()
    runtime = ProcessRuntime(client, access_of(cluster), tmp_path / "node", wall=cluster.wall)
    agent = NodeAgent(client, runtime, wall=cluster.wall)
    running = asyncio.create_task(agent.run())
    try:
        await agent.wait_ready()
        async with Controller(Config(), await cluster.connection(), wall=cluster.wall):
            kubeconfig = kubeconfig_for(cluster.kubeconfig, cluster.namespace, tmp_path / "kubeconfig")
            await assert_they_work(kubeconfig, client, cluster.namespace, *SAYS, logs=False)
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def test_the_function_runs_on_a_cluster_of_its_own(tmp_path: Path) -> None:
    code, output = await run(FOLDER / "function.py", Path("/nonexistent"), TMPDIR=str(tmp_path))
    assert (code, output) == (0, "pi is about 3.14\n")
    assert list(tmp_path.iterdir()) == []


async def test_a_program_that_each_task_would_submit_again_fails_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "unguarded.py"
    program.write_text(UNGUARDED)
    # The Tasks have the SDK, too, as with `local()`.
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    async with local_cluster(tmp_path) as (kubeconfig, client):
        code, output = await run(program, kubeconfig)
        bodies = await frameworks(client)
    assert code == 1
    assert 'RuntimeError: a Task imports this file: connect below `if __name__ == "__main__":`' in output
    assert [body["status"]["phase"] for body in bodies] == ["Failed"]
