"""Frameworks are made ready for an older controller, and everything is removed (docs/migration.md, "Back")."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import orjson
import pytest

from frameworkcontroller.api import names
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.api.timestamps import format_time
from frameworkcontroller.api.workloads import IN_USE_FINALIZER, workload_name
from frameworkcontroller.cli.main import build_parser
from frameworkcontroller.config.config import Config
from frameworkcontroller.kube.client import MERGE_PATCH, KubeClient
from frameworkcontroller.kube.errors import NotFound
from frameworkcontroller.kube.resources import CRDS, PODS, WORKLOADS
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.local.queues.setup import install
from frameworkcontroller.manager.app import Controller
from tests.support import original
from tests.support.api import Api, open_api, replace_spec
from tests.support.cli import Cli
from tests.support.clusters import Cluster
from tests.support.eventually import eventually
from tests.support.frameworks import Frameworks, Json, role

POD_TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "i"}], "restartPolicy": "Never"}}


@pytest.fixture
async def cli(cluster: Cluster) -> Cli:
    return Cli(cluster, await cluster.client(), parser=build_parser)


@pytest.fixture
async def frameworks(cluster: Cluster) -> Frameworks:
    return Frameworks(await cluster.client(), cluster.namespace)


@pytest.fixture
async def api(cluster: Cluster) -> AsyncIterator[Api]:
    """The API server; whatever happens, the CRD is ours again in the end."""
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(open_api(cluster.kubeconfig, cluster.namespace))
        path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{names.CRD_NAME}"
        ours = (await api.get(path)).ok()["spec"]

        async def restore() -> None:
            await replace_spec(api, path, ours)
            await eventually(in_force)

        async def in_force() -> None:
            answer = await api.post(original.frameworks(api), {**original.framework("probe"), "status": {}})
            await api.delete(original.frameworks(api, "probe"))
            assert "status" not in answer.ok()

        stack.push_async_callback(restore)
        yield api


async def has_suspended(frameworks: Frameworks, name: str, status: str) -> None:
    """Write the status of a Framework that has not started, as a controller does."""
    created = await frameworks.get(name)
    time = format_time(int(1.7e9))
    condition = {"type": "Suspended", "status": status, "reason": "x", "message": "", "lastTransitionTime": time}
    attempt = {"id": 0, "startTime": time, "configMapName": f"{name}-attempt", "taskRoleStatuses": []}
    body = {
        "startTime": time,
        "transitionTime": time,
        "state": "AttemptCreationPending",
        "retryPolicyStatus": {"totalRetriedCount": 0, "accountableRetriedCount": 0},
        "attemptStatus": attempt,
        "conditions": [condition],
        "observedGeneration": created["metadata"]["generation"],
    }
    await frameworks.client.patch(
        FRAMEWORKS,
        name,
        orjson.dumps({"status": body}),
        frameworks.namespace,
        content_type=MERGE_PATCH,
        subresource="status",
    )


async def test_suspended_frameworks_are_held_for_the_original(
    cluster: Cluster, frameworks: Frameworks, cli: Cli, api: Api
) -> None:
    here = ("prepare-downgrade", "-n", cluster.namespace)
    assert await cli.ok(*here) == ["ready: an older controller can take over 0 Frameworks"]
    await frameworks.create("plain", role())
    for name in ("new", "ends", "sleeps"):
        await frameworks.create(name, role(), suspend=True, ttlSecondsAfterFinished=60)
    await has_suspended(frameworks, "ends", "False")
    await has_suspended(frameworks, "sleeps", "True")
    dry = await cli(*here)
    assert dry.code == 1
    rows = [line.split() for line in dry.lines[1:4]]
    assert [row[0].split("/")[1] for row in rows] == ["ends", "new", "sleeps"]
    assert [" ".join(row[1:-2]) for row in rows] == ["no", "would start", "would start"]
    assert {" ".join(row[-2:]) for row in rows} == {"suspend, ttlSecondsAfterFinished"}
    assert any(re.fullmatch(r"suspend +starts it", line) for line in dry.lines)
    assert f"{cluster.namespace}/ends: something of it may still run" in dry.out
    assert dry.lines[-2:] == [
        "not ready: 1 Framework of 4 would be mistreated",
        "not ready: 2 suspended or queued Frameworks would start; --yes suspends them, and sets them to Create",
    ]
    assert {(await frameworks.get(name))["spec"]["executionType"] for name in ("new", "ends", "sleeps")} == {"Start"}

    done = await cli(*here, "--yes")
    assert (done.code, done.lines[-1]) == (1, "not ready: 1 Framework of 4 would be mistreated")
    assert done.out.count("set to Create") == 2
    await has_suspended(frameworks, "ends", "True")
    assert (await cli(*here, "--yes")).code == 0
    for _ in range(2):
        versions = [(await frameworks.get(name))["metadata"]["resourceVersion"] for name in ("new", "ends", "sleeps")]
        again = await cli(*here, "--yes")
        assert (again.code, again.lines[-1]) == (0, "ready: an older controller can take over 4 Frameworks")
        assert versions == [
            (await frameworks.get(name))["metadata"]["resourceVersion"] for name in ("new", "ends", "sleeps")
        ]

    await original.install_crd(api)
    started = [name for name in ("plain", "new", "ends", "sleeps") if original.starts(await frameworks.get(name))]
    assert started == ["plain"]


async def test_a_running_framework_is_suspended_and_held(
    cluster: Cluster, frameworks: Frameworks, cli: Cli, pods: SimulatedRuntime, controller: Controller, api: Api
) -> None:
    await frameworks.create("f", role())
    await frameworks.until_running("f", 1)
    assert (await cli("prepare-downgrade", "-n", cluster.namespace)).code == 0
    assert await cli.ok("suspend", "-n", cluster.namespace, "f") == ["f: suspended"]

    async def held() -> None:
        assert (await cli("prepare-downgrade", "-n", cluster.namespace, "--yes")).code == 0
        # Nothing runs as soon as it says that it is ready.
        assert orjson.loads(await frameworks.client.list(PODS, frameworks.namespace))["items"] == []

    await eventually(held)
    body = await frameworks.get("f")
    assert (body["spec"]["executionType"], body["status"]["attemptStatus"]["id"]) == ("Create", 1)
    original.read(body)
    assert not original.starts(body)
    # Back: it starts after both.
    for command in ("resume", "start"):
        await cli.ok(command, "-n", cluster.namespace, "f")
    await frameworks.until_running("f", 1)


async def test_a_concurrent_change_is_not_overwritten(
    cluster: Cluster, frameworks: Frameworks, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    await frameworks.create("f", role(), suspend=True)
    patch = frameworks.client.__class__.patch
    resumed = False

    async def overtaken(*args: object, **more: object) -> bytes:
        nonlocal resumed
        if not resumed:
            resumed = True
            await frameworks.set("f", suspend=False)
        return await patch(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(frameworks.client.__class__, "patch", overtaken)
    ended = await cli("prepare-downgrade", "-n", cluster.namespace, "--yes")
    assert (ended.code, resumed) == (1, True)
    assert f"{cluster.namespace}/f: was changed meanwhile: run this again" in ended.lines
    assert (await frameworks.get("f"))["spec"]["executionType"] == "Start"


async def crd_is_there(frameworks: Frameworks) -> bool:
    try:
        await frameworks.client.get(CRDS, names.CRD_NAME)
    except NotFound:
        return False
    return True


async def test_uninstall(
    cluster: Cluster, frameworks: Frameworks, cli: Cli, pods: SimulatedRuntime, controller: Controller
) -> None:
    if not cluster.embedded:
        pytest.skip("the CRD of a cluster that others use stays")
    await frameworks.create("f", role(number=2))
    await frameworks.create("g", role(), executionType="Create")
    await frameworks.until_running("f", 2)
    refused = await cli("uninstall", "-n", "default")
    assert (refused.code, refused.out) == (2, "")
    shown = await cli("uninstall")
    assert shown.code == 1
    assert shown.lines == [
        "would delete 2 Frameworks in 1 namespace, of which 2 have not completed, with all of their Pods,",
        f"and the CRD {names.CRD_NAME}; nothing is deleted without --yes",
    ]
    assert (await frameworks.get("f"))["metadata"].get("deletionTimestamp") is None

    async def hold(finalizers: list[str]) -> None:
        body: Json = {"metadata": {"finalizers": finalizers}}
        await frameworks.client.patch(PODS, "f-a-0", orjson.dumps(body), frameworks.namespace, content_type=MERGE_PATCH)

    await hold(["example.com/hold"])
    late = await cli("uninstall", "--yes", "--timeout", "3s")
    assert late.code == 1
    assert late.err.startswith(f"not over within 3 s: Pod {cluster.namespace}/f-a-0, ")
    assert await crd_is_there(frameworks)

    waiting = asyncio.create_task(cli("uninstall", "--yes"))
    await hold([])
    ended = await asyncio.wait_for(waiting, 300)
    assert ended.code == 0, ended
    assert ended.lines[1] == f"deleted the CRD {names.CRD_NAME}"
    assert not await crd_is_there(frameworks)
    assert orjson.loads(await frameworks.client.list(PODS, frameworks.namespace))["items"] == []
    assert await cli.ok("uninstall", "--yes") == [f"there is no CRD {names.CRD_NAME}"]


class Workloads:
    """Workloads of Frameworks as the controller makes them."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self.client, self.namespace = client, namespace

    async def create(self, framework: Json, *finalizers: str) -> str:
        """Create that of a Framework with the finalizer of the controller, and others. Return its name."""
        metadata = framework["metadata"]
        name = workload_name(metadata["name"], metadata["uid"])
        owner = {"apiVersion": names.API_VERSION, "kind": names.KIND, "name": metadata["name"], "uid": metadata["uid"]}
        body = {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Workload",
            "metadata": {
                "name": name,
                "labels": {names.FRAMEWORK_NAME: metadata["name"]},
                "finalizers": [IN_USE_FINALIZER, *finalizers],
                "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
            },
            "spec": {"queueName": "team-a", "podSets": [{"name": "a", "count": 1, "template": POD_TEMPLATE}]},
        }
        await self.client.create(WORKLOADS, orjson.dumps(body), self.namespace)
        return name

    async def found(self) -> dict[str, list[str]]:
        """The finalizers of each."""
        listed = orjson.loads(await self.client.list(WORKLOADS, self.namespace))["items"] or ()
        return {one["metadata"]["name"]: one["metadata"].get("finalizers") or [] for one in listed}

    async def set(self, name: str, body: Json) -> None:
        patch = orjson.dumps(body)
        await self.client.patch(WORKLOADS, name, patch, self.namespace, content_type=MERGE_PATCH)


@pytest.fixture
async def workloads(cluster: Cluster) -> AsyncIterator[Workloads]:
    """Workloads of Kueue, without Kueue."""
    client = await cluster.client()
    await install(client)
    workloads = Workloads(client, cluster.namespace)
    yield workloads
    for name in await workloads.found():
        await workloads.set(name, {"metadata": {"finalizers": []}})


async def in_queue(frameworks: Frameworks, name: str, **more: Any) -> Json:
    """A Framework in a queue."""
    await frameworks.create(name, role(), **more)
    labels = orjson.dumps({"metadata": {"labels": {names.QUEUE_NAME: "team-a"}}})
    await frameworks.client.patch(FRAMEWORKS, name, labels, frameworks.namespace, content_type=MERGE_PATCH)
    return await frameworks.get(name)


async def test_queued_frameworks_are_held_and_leave_their_queue(
    cluster: Cluster, frameworks: Frameworks, cli: Cli, workloads: Workloads
) -> None:
    waits, leaves = await in_queue(frameworks, "waits"), await in_queue(frameworks, "leaves", executionType="Create")
    await has_suspended(frameworks, "waits", "False")
    one, other = await workloads.create(waits), await workloads.create(leaves, "example.com/other")
    here = ("prepare-downgrade", "-n", cluster.namespace)
    shown = await cli(*here)
    assert (shown.code, shown.err) == (1, "")
    assert [line.split() for line in shown.lines[1:3]] == [
        [f"{cluster.namespace}/waits", "would", "start", names.QUEUE_NAME],
        [f"{cluster.namespace}/leaves", "yes", names.QUEUE_NAME],
    ]
    assert shown.lines[-2:] == [
        "not ready: 1 suspended or queued Framework would start; --yes suspends them, and sets them to Create",
        "not ready: 2 Workloads of Kueue would stay; --yes deletes those of which nothing runs",
    ]
    assert await workloads.found() == {one: [IN_USE_FINALIZER], other: [IN_USE_FINALIZER, "example.com/other"]}

    first = await cli(*here, "--yes")
    assert first.code == 1
    assert f"{cluster.namespace}/waits: something of it may still run, though spec.suspend is true: " in first.out
    # As the controller says once it has looked.
    await has_suspended(frameworks, "waits", "True")
    done = await cli(*here, "--yes")
    assert (done.code, done.lines[-1]) == (0, "ready: an older controller can take over 2 Frameworks"), done.out
    spec = (await frameworks.get("waits"))["spec"]
    assert (spec["suspend"], spec["executionType"]) == (True, "Create")
    for name, workload in (("waits", one), ("leaves", other)):
        line = f"{cluster.namespace}/{name}: Workload {workload} was deleted, and its finalizer removed"
        assert line in [*first.lines, *done.lines]
    # What others hold stays until they let it go.
    assert await workloads.found() == {other: ["example.com/other"]}
    await workloads.set(other, {"metadata": {"finalizers": []}})
    again = await cli.ok(*here, "--yes")
    assert again[-1] == "ready: an older controller can take over 2 Frameworks"
    assert not any("Workload" in line for line in again)


async def test_quota_in_use_is_not_given_back(
    cluster: Cluster,
    frameworks: Frameworks,
    cli: Cli,
    pods: SimulatedRuntime,
    controller: Controller,
    workloads: Workloads,
) -> None:
    """Without Kueue in the controller's configuration, nobody else takes care of the Workload."""
    await frameworks.create("f", role())
    await frameworks.until_running("f", 1)
    workload = await workloads.create(await frameworks.get("f"))
    here = ("prepare-downgrade", "-n", cluster.namespace, "--yes")
    told = await cli(*here)
    assert (told.code, told.lines) == (
        1,
        [
            f"{cluster.namespace}/f: Workload {workload} stays: the Framework runs, or is to run",
            "not ready: 1 Workload of Kueue would stay",
        ],
    )
    # Its end is decided, but its Pod is there.
    body: Json = {"metadata": {"finalizers": ["example.com/hold"]}}
    await frameworks.client.patch(PODS, "f-a-0", orjson.dumps(body), frameworks.namespace, content_type=MERGE_PATCH)
    await frameworks.client.delete(FRAMEWORKS, "f", frameworks.namespace, propagation="Background")
    stays = await cli(*here)
    assert stays.code == 1
    assert f"{cluster.namespace}/f: Workload {workload} stays: " in stays.out
    assert IN_USE_FINALIZER in (await workloads.found())[workload]
    body["metadata"]["finalizers"] = []
    await frameworks.client.patch(PODS, "f-a-0", orjson.dumps(body), frameworks.namespace, content_type=MERGE_PATCH)

    async def released() -> None:
        assert (await cli(*here)).code == 0
        assert await workloads.found() == {}
        assert not orjson.loads(await frameworks.client.list(PODS, frameworks.namespace))["items"]

    await eventually(released)


async def test_uninstall_releases_workloads(
    cluster: Cluster,
    frameworks: Frameworks,
    cli: Cli,
    pods: SimulatedRuntime,
    controller: Controller,
    workloads: Workloads,
) -> None:
    """Also if Kueue is not enabled in the controller's configuration: the Framework would stay for ever."""
    if not cluster.embedded:
        pytest.skip("the CRD of a cluster that others use stays")
    await frameworks.create("f", role())
    await frameworks.until_running("f", 1)
    held = await workloads.create(await frameworks.get("f"), "example.com/other")
    late = await cli("uninstall", "--yes", "--timeout", "3s")
    assert late.code == 1
    assert late.err.startswith(f"not over within 3 s: Framework {cluster.namespace}/f")
    # What others hold, they let go.
    assert await workloads.found() == {
        held: ["example.com/other", "foregroundDeletion"]
    } or await workloads.found() == {held: ["example.com/other"]}
    await workloads.set(held, {"metadata": {"finalizers": []}})
    ended = await cli("uninstall", "--yes")
    assert ended.code == 0, ended
    assert await workloads.found() == {}
    assert not await crd_is_there(frameworks)


async def hold_for_history(frameworks: Frameworks, name: str) -> None:
    """Give it the finalizer, as a controller with a history does. There is none here, or it has none."""
    body = orjson.dumps({"metadata": {"finalizers": [names.HISTORY_FINALIZER]}})
    await frameworks.client.patch(FRAMEWORKS, name, body, frameworks.namespace, content_type=MERGE_PATCH)


async def finalizers(frameworks: Frameworks, name: str) -> list[str]:
    return (await frameworks.get(name))["metadata"].get("finalizers") or []


async def test_the_history_holds_nothing_that_is_handed_over(
    cluster: Cluster, frameworks: Frameworks, cli: Cli
) -> None:
    for name in ("f", "g"):
        await frameworks.create(name, role())
        await hold_for_history(frameworks, name)
    await frameworks.create("plain", role())
    await frameworks.delete("g", "Background")
    here = ("prepare-downgrade", "-n", cluster.namespace)
    what = f"the finalizer {names.HISTORY_FINALIZER}: set history.sink to none"
    shown = await cli(*here)
    assert (shown.code, shown.lines) == (
        1,
        [f"not ready: 2 Frameworks would keep {what}; --yes removes it, and gives up what is not archived"],
    )
    assert await finalizers(frameworks, "f") == await finalizers(frameworks, "g") == [names.HISTORY_FINALIZER]
    for _ in range(2):
        # The second time as if a controller had added it again.
        done = await cli(*here, "--yes")
        assert (done.code, done.err) == (1, "")
        assert f" had {what}; run this again" in done.lines[-1]
        assert await finalizers(frameworks, "f") == []
        await hold_for_history(frameworks, "f")
    await cli(*here, "--yes")

    async def ready() -> None:
        assert (await cli.ok(*here))[-1] == "ready: an older controller can take over 2 Frameworks"

    await eventually(ready)


async def test_uninstall_without_a_controller_leaves_nothing_that_the_history_holds(
    cluster: Cluster, frameworks: Frameworks, cli: Cli, pods: SimulatedRuntime
) -> None:
    if not cluster.embedded:
        pytest.skip("the CRD of a cluster that others use stays")
    async with Controller(Config(), await cluster.connection(), wall=cluster.wall):
        await frameworks.create("f", role(number=2))
        await frameworks.create("g", role())
        await frameworks.until_running("f", 2)
        await frameworks.until_running("g", 1)
    for name in ("f", "g"):
        await hold_for_history(frameworks, name)
    await frameworks.delete("f", "Background")
    began = asyncio.get_running_loop().time()
    late = await cli("uninstall", "--yes", "--timeout", "50s")
    assert late.code == 1
    assert re.match(r"not over within 50 s: Framework \S+/f, Framework \S+/g$", late.err.strip()), late.err
    # Its Pods are gone, and a controller could still archive it.
    assert await frameworks.pods() == {}
    assert await finalizers(frameworks, "f") == [names.HISTORY_FINALIZER]
    ended = await cli("uninstall", "--yes", "--archive-within", "5s")
    assert ended.code == 0, ended
    assert ended.lines[:2] == [
        "deleted 2 Frameworks in 1 namespace",
        "the last attempts of 2 Frameworks may not be in the archive",
    ]
    assert asyncio.get_running_loop().time() - began < 60
    assert not await crd_is_there(frameworks)


async def test_uninstall_waits_for_a_controller_that_archives(
    cluster: Cluster, frameworks: Frameworks, cli: Cli
) -> None:
    """As long as it gets on: not each Framework has its turn at once."""
    if not cluster.embedded:
        pytest.skip("the CRD of a cluster that others use stays")
    last = 6
    for number in range(last + 1):
        await frameworks.create(f"f{number}", role(), metadata={"finalizers": [names.HISTORY_FINALIZER]})

    async def archive() -> None:
        for number in range(last):
            await asyncio.sleep(7)
            assert await finalizers(frameworks, f"f{number}") == [names.HISTORY_FINALIZER]
            body = orjson.dumps({"metadata": {"finalizers": []}})
            client, namespace = frameworks.client, frameworks.namespace
            await client.patch(FRAMEWORKS, f"f{number}", body, namespace, content_type=MERGE_PATCH)

    archiving = asyncio.create_task(archive())
    ended = await cli("uninstall", "--yes", "--archive-within", "10s")
    await archiving
    assert (ended.code, ended.lines[1]) == (0, "the last attempts of 1 Framework may not be in the archive")
