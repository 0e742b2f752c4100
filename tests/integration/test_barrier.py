"""The barrier on every API server, and in the Pods of its example."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import orjson
import pytest

from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.barrier.apiserver import connect
from frameworkcontroller.barrier.exits import CheckFailed, WrongFramework
from frameworkcontroller.barrier.frameworkreader import Reader, addresses
from frameworkcontroller.barrier.main import run
from frameworkcontroller.barrier.settings import Settings
from frameworkcontroller.kube.client import KubeClient
from tests.support.barrier_world import NAME, Json, compressed, framework, written
from tests.support.clusters import Cluster
from tests.support.eventually import eventually
from tests.support.frameworks import manifest as framework_manifest
from tests.support.installed import PROGRAM, run_cleanly
from tests.support.kubectl import Kubectl
from tests.support.objects import read

pytestmark = pytest.mark.newest

ROOT = Path(__file__).resolve().parents[2]

READY = {"server": ["10.0.0.1"], "worker": ["10.0.1.1", "10.0.1.2"]}

_T = TypeVar("_T")


def as_created(wanted: Json) -> Json:
    """The same, without the fields that an API server sets."""
    return {**wanted, "metadata": {"name": NAME}}


async def stored(cluster: Cluster, client: KubeClient, wanted: Json) -> Json:
    """Put the Framework with its status there. Return it as stored."""
    await client.create(FRAMEWORKS, orjson.dumps(as_created(wanted)), cluster.namespace)
    return await with_status(cluster, client, wanted)


async def with_status(cluster: Cluster, client: KubeClient, wanted: Json) -> Json:
    """Write the status as given, with the fields that the API server requires."""
    current = await read(client, FRAMEWORKS, NAME, cluster.namespace)
    body = orjson.dumps({**current, "status": wanted["status"]})
    path = FRAMEWORKS.path(cluster.namespace, NAME, "status")
    answer: Json = orjson.loads(await client.raw("PUT", path, body=body))
    return answer


def environ(cluster: Cluster, kubeconfig: Path | None = None) -> dict[str, str]:
    return {
        "FC_FRAMEWORK_NAMESPACE": cluster.namespace,
        "FC_FRAMEWORK_NAME": NAME,
        "KUBECONFIG": str(kubeconfig or cluster.kubeconfig),
    }


async def blocking(work: Callable[[], _T]) -> _T:
    """The barrier's steps, whose waits block its whole thread."""
    return await asyncio.to_thread(work)


def reader_of(cluster: Cluster) -> Reader:
    settings = Settings(environ(cluster))
    return Reader(connect(environ(cluster)), settings)


@pytest.mark.parametrize("pack", [lambda plain: plain, compressed], ids=["raw", "compressed"])
async def test_passes_and_writes_the_framework(cluster: Cluster, tmp_path: Path, pack: Callable[[Json], Json]) -> None:
    there = await stored(cluster, await cluster.client(), pack(framework(READY)))
    identity = {
        "FC_FRAMEWORK_UID": there["metadata"]["uid"],
        "FC_FRAMEWORK_ATTEMPT_INSTANCE_UID": there["status"]["attemptStatus"]["instanceUID"],
    }
    out = tmp_path / "out"
    out.mkdir()
    assert await blocking(partial(run, {**environ(cluster), **identity}, out)) == 0
    assert addresses(written(out)) == READY
    assert written(out)["metadata"]["uid"] == there["metadata"]["uid"]
    assert 'export FB_WORKER_IPS="10.0.1.1,10.0.1.2"\n' in (out / "injector.sh").read_text()


async def test_a_framework_that_is_not_there(cluster: Cluster, tmp_path: Path) -> None:
    assert await blocking(partial(run, environ(cluster), tmp_path)) == 210


async def test_a_large_framework_is_known_unchanged_by_its_metadata(cluster: Cluster) -> None:
    """As it is on a real API server: the question for metadata alone is understood, and the cache may be asked."""
    client = await cluster.client()
    ips: list[str | None] = [f"10.0.{index // 250}.{index % 250}" for index in range(600)]
    await stored(cluster, client, framework({"worker": [*ips, None]}))
    reader = reader_of(cluster)

    async def cached() -> tuple[Json, dict[str, list[str | None]]] | None:
        return await blocking(partial(reader.read, 30, cached=True))

    async def seen(last: str | None) -> None:
        try:
            found = await cached()
        except WrongFramework:
            found = None
        assert found is not None
        assert found[1]["worker"][-1] == last

    async def unchanged() -> None:
        assert await cached() is None

    await eventually(partial(seen, None))
    # Not at once: until its cache is filled, an API server answers from its store, and then, for a moment, with less.
    await eventually(unchanged)
    assert await blocking(partial(reader.read, 30, cached=False)) is not None
    await with_status(cluster, client, framework({"worker": [*ips, "10.9.9.9"]}))
    await eventually(partial(seen, "10.9.9.9"))


async def test_a_user_who_may_not_read_frameworks(cluster: Cluster) -> None:
    if cluster.kubeconfig_of is None:
        pytest.skip("this cluster lets everybody do everything")
    await stored(cluster, await cluster.client(), framework(READY))
    settings = Settings(environ(cluster))
    reader = Reader(connect(environ(cluster, cluster.kubeconfig_of("stranger"))), settings)
    with pytest.raises(CheckFailed, match=r"403: .*forbidden.*needs permission to `get` Frameworks"):
        await blocking(partial(reader.read, 30, cached=True))


async def test_api_servers_take_the_example(kubectl: Kubectl) -> None:
    said = await kubectl.ok(
        "apply", "--dry-run=server", "-f", str(ROOT / "examples/frameworkbarrier/frameworkbarrier.yaml")
    )
    assert len(said.splitlines()) == 5


def run_locally(manifest: Path, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    return run_cleanly(tmp_path, PROGRAM, "local", "run", "--logs", manifest, "--timeout", "500")


def test_the_example(tmp_path: Path) -> None:
    """Twenty Tasks wait for each other with the barrier, then meet at the addresses that it tells them."""
    ran = run_locally(ROOT / "examples/frameworkbarrier/frameworkbarrier.yaml", tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"^frameworkbarrier: Succeeded ", ran.stdout, re.MULTILINE), ran.stdout


MEET = """
import json, os, socket, subprocess, time
cluster, rank = json.loads(os.environ["CLUSTER"]), int(os.environ["RANK"])
coordinator, port = os.environ["COORDINATOR"].split(":")
def look_up(host):
    return socket.getaddrinfo(host.partition(":")[0], 1, socket.AF_INET)[0][4][0]
addresses = {role: [look_up(host) for host in hosts] for role, hosts in cluster.items()}
wanted = [f"{ip} slots=8" for ip in addresses["worker"] + addresses["ps"]]
folder = "/mnt/frameworkbarrier"
assert open(f"{folder}/hostfile").read().splitlines() == wanted
script = f". {folder}/injector.sh >/dev/null; printf %s $FB_COORDINATOR_IP"
assert subprocess.check_output(["sh", "-c", script], text=True) == look_up(coordinator)
# The name of a Pod that has ended resolves for nobody: none ends before all have come.
if rank == 0:
    listener = socket.create_server((look_up(coordinator), int(port)))
    met = [listener.accept() for _ in range(3)]
else:
    for _ in range(3000):
        try:
            socket.create_connection((coordinator, int(port)), 60).recv(1)
            break
        except ConnectionRefusedError:
            time.sleep(0.1)
    else:
        raise SystemExit("nobody listens at " + coordinator)
print("met as", rank)
"""


def test_programs_meet_by_the_names_of_placeholders(tmp_path: Path) -> None:
    """No shell: variables have the names, and the barrier waits for them and writes the host file."""
    cluster = '{"ps": {{FC_HOSTS_JSON:ps}}, "worker": {{FC_HOSTS_JSON:worker:2222}}}'
    mount = {"name": "addresses", "mountPath": "/mnt/frameworkbarrier"}

    def env(**values: str) -> list[dict[str, str]]:
        return [{"name": name, "value": value} for name, value in values.items()]

    barrier = {
        "name": "barrier",
        "image": "frameworkcontroller/frameworkbarrier",
        "volumeMounts": [mount],
        "env": env(
            BARRIER_CHECK_INTERVAL_SEC="5",
            BARRIER_WAIT_FOR_NAME="{{FC_HOSTS:ps}},{{FC_HOSTS:worker}}",
            BARRIER_HOSTFILE_ROLES="worker,ps",
            BARRIER_HOSTFILE_SLOTS="8",
        ),
    }
    main = {
        "name": "main",
        "image": "python",
        "command": [sys.executable, "-c", MEET],
        "volumeMounts": [mount],
        "env": env(CLUSTER=cluster, RANK="{{FC_TASK_RANK}}", COORDINATOR="{{FC_COORDINATOR_HOST}}:7777"),
    }
    spec = {
        "restartPolicy": "Never",
        "initContainers": [barrier],
        "containers": [main],
        "volumes": [{"name": "addresses", "emptyDir": {}}],
    }
    roles = [
        {
            "name": name,
            "taskNumber": number,
            "task": {"pod": {"spec": spec}},
            "frameworkAttemptCompletionPolicy": {"minFailedTaskCount": 1, "minSucceededTaskCount": -1},
        }
        for name, number in (("ps", 1), ("worker", 3))
    ]
    body = framework_manifest("named", *roles, network={}, coordinator={"taskRole": "ps"})
    manifest = tmp_path / "named.json"
    manifest.write_bytes(orjson.dumps(body))
    ran = run_locally(manifest, tmp_path)
    if "no namespaces (" in ran.stderr:
        pytest.skip("needs namespaces")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert re.search(r"^named: Succeeded ", ran.stdout, re.MULTILINE), ran.stdout
    assert sorted(re.findall(r"met as (\d)", ran.stdout)) == ["0", "1", "2", "3"]
