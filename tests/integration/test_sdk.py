"""The SDK for asyncio: Frameworks are submitted, followed, changed and deleted."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path

import orjson
import pytest

from frameworkcontroller import (
    AlreadyExists,
    Code,
    Forbidden,
    Framework,
    FrameworkFailed,
    InvalidSpec,
    NotFound,
    RemoteError,
    RequestRefused,
    Retry,
    Unreachable,
    WaitTimeout,
    aio,
    command,
    distributed,
    jax,
    mpi,
    ray,
    spark,
    tensorflow,
    torchrun,
)
from frameworkcontroller.kube.errors import NotFound as ObjectGone
from frameworkcontroller.kube.resources import CONFIGMAPS, CRDS, SECRETS, Resource
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.manager.app import Controller
from tests.support.clusters import Cluster
from tests.support.eventually import eventually
from tests.support.framework_crd import crd_manifest
from tests.support.sdkjobs import raised, returned, sdk_job, sdk_role


@pytest.fixture
async def sdk(cluster: Cluster) -> AsyncIterator[aio.Cluster]:
    async with aio.Cluster(cluster.connection, cluster.namespace) as opened:
        yield opened


@pytest.fixture
async def attended(sdk: aio.Cluster, pods: SimulatedRuntime, controller: Controller) -> aio.Cluster:
    """The cluster, with a node and a controller."""
    return sdk


# --- the life of a Framework ---


async def test_a_framework_from_its_submission_to_its_deletion(attended: aio.Cluster, cluster: Cluster) -> None:
    run = await attended.submit(sdk_job("train", 2, labels={"team": "x"}, simulate={"run-seconds": "forever"}))
    assert (run.name, run.namespace) == ("train", cluster.namespace)
    assert str(run.status) == "Pending: not seen by a controller yet"
    status = await run.wait("Running")
    assert status.phase == "Running"
    await run.scale(worker=3)
    async with aclosing(run.watch()) as changes:
        async for status in changes:
            if [task.phase for task in status.tasks] == ["Running"] * 3:
                break
    assert [task.name for task in status.tasks] == ["worker[0]", "worker[1]", "worker[2]"]
    assert status.roles["worker"].phases == {"Running": 3}
    assert all(task.node for task in status.tasks)
    assert "worker" in await run.explain()
    assert [attempt.number for attempt in await run.attempts()] == [0]
    assert [one.name for one in await attended.list()] == ["train"]
    assert [one.name for one in await attended.list("team=x")] == ["train"]
    assert await attended.list("team=y") == []
    assert (await (await attended.get("train")).refresh()).phase == "Running"
    await run.suspend()
    assert (await run.wait("Suspended")).phase == "Suspended"
    await run.resume()
    await run.wait("Running")
    await run.stop()
    stopped = await run.wait()
    assert (stopped.phase, stopped.is_final) == ("Stopped", True)
    assert repr(run) == f"<Run {cluster.namespace}/train: {stopped}>"
    with pytest.raises(FrameworkFailed, match="train: Stopped") as caught:
        await run.result()
    assert caught.value.result.phase == "Stopped"
    await run.delete()
    await run.delete()
    with pytest.raises(NotFound, match=f'there is no Framework "train" in namespace "{cluster.namespace}"'):
        await attended.get("train")


async def test_a_result_has_the_values_of_all_tasks(attended: aio.Cluster) -> None:
    ps = sdk_role("ps", simulate={"run-seconds": 1})
    framework = Framework(name="f", roles=[sdk_role(tasks=2, simulate=returned({"loss": [0.5, None, "ü"]})), ps])
    result = await attended.run(framework)
    assert (result.phase, result.code, result.retries, result.first_failure) == ("Succeeded", 0, 0, None)
    assert result.value == {"loss": [0.5, None, "ü"]}
    assert result.values == {"worker": (result.value, result.value), "ps": (None,)}
    assert result.duration >= 1


async def test_a_failure_names_task_node_attempt_rule_and_cause(attended: aio.Cluster) -> None:
    behavior = raised("ValueError", "no data", "Traceback (most recent call last):\n  line\nValueError: no data\n")
    framework = Framework(
        name="f", roles=[sdk_role("ps"), sdk_role(tasks=2, simulate=behavior)], retry=Retry(1, base_seconds=0)
    )
    run = await attended.submit(framework)
    with pytest.raises(FrameworkFailed) as caught:
        await run.result()
    error, failure = caught.value, caught.value.result.first_failure
    assert failure is not None
    assert (failure.role, failure.attempt, failure.code, failure.message) == ("worker", 0, 1, "ValueError: no data")
    assert failure.node
    assert failure.rule.endswith("has reached MinFailedTaskCount 1 in the TaskRole")
    assert failure.traceback == "Traceback (most recent call last):\n  line\nValueError: no data\n"
    assert isinstance(error.__cause__, RemoteError)
    assert (error.__cause__.type_name, error.__cause__.message) == ("ValueError", "no data")
    first, rule, *_, last = error.__notes__
    doubt = "" if failure.certain else " (another Task may have failed earlier)"
    assert first == f"first failure: {failure.name} on {failure.node}, attempt 0: ValueError: no data{doubt}"
    assert (error.first_failure, failure.container) == (failure, "main")
    assert rule == f"rule: {failure.rule}"
    assert last == f"retries: 1; more: kubectl framework status f -n {run.namespace}"
    assert "ValueError: no data" in str(error)
    attempts = await run.attempts()
    assert [(one.number, one.code is None) for one in attempts] == [(1, False)]
    assert attempts[0].message


async def test_a_failure_without_words(attended: aio.Cluster) -> None:
    with pytest.raises(FrameworkFailed) as caught:
        await attended.run(sdk_job(simulate={"run-seconds": 1, "exit-code": 3, "message": '{"a'}))
    failure = caught.value.result.first_failure
    assert failure is not None
    assert (failure.code, failure.traceback, failure.error) == (3, None, None)
    assert caught.value.__cause__ is None


async def test_a_framework_of_the_same_name_is_replaced(attended: aio.Cluster) -> None:
    first = await attended.submit(sdk_job(tasks=2))
    with pytest.raises(AlreadyExists, match=f'a Framework "f" exists already in namespace "{first.namespace}"'):
        await attended.submit(sdk_job())
    second = await attended.submit(sdk_job(simulate=returned(7)), replace=True)
    assert second.uid != first.uid
    assert (await second.result()).value == 7
    with pytest.raises(NotFound, match=f'Framework "f" in namespace "{first.namespace}" was deleted'):
        await first.refresh()
    # Not the second one.
    await first.delete()
    await second.refresh()
    other = await attended.submit(sdk_job("g"), replace=True)
    assert other.name == "g"


async def test_a_run_in_a_block_is_deleted_at_its_end(attended: aio.Cluster) -> None:
    async with await attended.submit(sdk_job()) as run:
        await run.wait("Running")
    with pytest.raises(NotFound):
        await attended.get("f")
    with pytest.raises(ZeroDivisionError):
        async with await attended.submit(sdk_job()):
            raise ZeroDivisionError
    assert await attended.list() == []


async def test_a_generated_name(attended: aio.Cluster) -> None:
    runs = [await attended.submit(command(["work"], image="i")) for _ in range(2)]
    assert [run.name.startswith("command") for run in runs] == [True, True]
    assert runs[0].name != runs[1].name


@pytest.mark.newest
async def test_the_api_server_accepts_each_preset(sdk: aio.Cluster) -> None:
    words = ["work", "{{FC_TASK_INDEX}}"]
    for framework in (
        torchrun("train.py", nodes=4, gpus_per_node=8, name="a", gang=True, queue="q", priority="p"),
        distributed(words, name="g"),
        jax(words, name="b"),
        tensorflow(words, parameter_servers=2, chief=False, name="c"),
        mpi(words, workers=2, name="d"),
        ray(words, name="e"),
        spark(words, name="f"),
    ):
        run = await sdk.submit(framework)
        stored = run.status.object["spec"]["taskRoles"]
        assert [one["name"] for one in stored] == [role.name for role in framework.roles]


# --- watches ---


async def test_a_watch_ends_with_the_framework(attended: aio.Cluster) -> None:
    run = await attended.submit(sdk_job(simulate={"run-seconds": 1}))
    phases = [status.phase async for status in run.watch()]
    assert phases[-1] == run.status.phase == "Succeeded"
    assert "Succeeded" not in phases[:-1]
    assert [status.phase async for status in run.watch()] == ["Succeeded"]


async def test_waiting_ends_in_time(attended: aio.Cluster) -> None:
    run = await attended.submit(sdk_job(simulate={"run-seconds": "forever"}))
    await run.wait("Running")
    with pytest.raises(WaitTimeout, match=r"^f is not final within 0\.5 s: Running") as caught:
        await run.wait(timeout=0.5)
    assert caught.value.last.phase == "Running"
    assert isinstance(caught.value, TimeoutError)
    with pytest.raises(WaitTimeout):
        await run.result(timeout=0.5)
    with pytest.raises(ValueError, match="there is no phase 'Runing'; did you mean Running"):
        await run.wait("Runing")
    with pytest.raises(TimeoutError) as outer:
        async with asyncio.timeout(0.5):
            await run.wait()
    assert not isinstance(outer.value, WaitTimeout)


# Elsewhere the collector may delete Pods, and so end the Framework, before it is gone.
@pytest.mark.virtual_clock
@pytest.mark.parametrize(
    "use",
    [
        lambda run: run.wait(),
        lambda run: run.result(),
        lambda run: _last(run.watch()),
    ],
)
async def test_a_deletion_ends_a_wait(attended: aio.Cluster, use: Callable[[aio.Run], object]) -> None:
    run = await attended.submit(sdk_job())
    await run.wait("Running")
    using = asyncio.ensure_future(use(run))  # type: ignore[call-overload]
    deleting = asyncio.ensure_future(run.delete())
    with pytest.raises(NotFound, match=r'^Framework "f" in namespace "\S+" was deleted$'):
        await using
    await deleting


async def _last(changes: AsyncIterator[object]) -> None:
    async for _ in changes:
        pass


@pytest.mark.virtual_clock
async def test_iterators_that_are_closed_early_leave_no_task(attended: aio.Cluster) -> None:
    run = await attended.submit(sdk_job())
    await run.wait("Running")
    await asyncio.sleep(60)
    before = asyncio.all_tasks()
    for iterator in (run.watch(), run.watch()):
        async with aclosing(iterator) as changes:
            async for _ in changes:
                break
    with pytest.raises(WaitTimeout):
        await run.wait(timeout=0.1)
    await run.wait("Running")
    cancelled = asyncio.create_task(run.wait())
    await asyncio.sleep(1)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    # The embedded API server has its own tasks.
    assert [task for task in asyncio.all_tasks() - before if "RequestHandler" not in repr(task)] == []


# --- errors ---


async def test_a_refused_spec_names_field_and_rule(attended: aio.Cluster) -> None:
    with pytest.raises(InvalidSpec, match=r"metadata\.labels.*must be an empty string or consist of alphanumeric"):
        await attended.submit(sdk_job(labels={"a": "b c"}))
    run = await attended.submit(sdk_job())
    with pytest.raises(InvalidSpec, match="roles: 'wrker': there is no such role; did you mean worker"):
        await run.scale(wrker=2)
    with pytest.raises(InvalidSpec, match=r"taskRoles.*taskNumber.*greater than or equal to 0"):
        await run.scale(worker=-1)
    with pytest.raises(InvalidSpec, match="roles: 'wrker': there is no such role; did you mean worker"):
        async for _ in run.logs(role="wrker"):
            pass
    scaled = sdk_role(extra={"autoscaling": {"minTasks": 1, "maxTasks": 3}})
    run = await attended.submit(Framework(name="scaled", roles=[scaled]))
    with pytest.raises(InvalidSpec, match="roles: 'worker': the role has autoscaling: scale its FrameworkRoleScaler"):
        await run.scale(worker=2)
    with pytest.raises(NotFound, match='"A_b" is not the name of a Framework: it must be lower case'):
        await attended.get("A_b")


async def test_a_namespace_that_does_not_exist(cluster: Cluster) -> None:
    async with aio.Cluster(cluster.connection, "nowhere") as nowhere:
        with pytest.raises(RequestRefused, match='namespaces "nowhere" not found'):
            await nowhere.submit(sdk_job())
        with pytest.raises(NotFound, match='there is no Framework "f" in namespace "nowhere"'):
            await nowhere.get("f")


@pytest.mark.virtual_clock
async def test_a_cluster_without_a_controller(sdk: aio.Cluster, cluster: Cluster) -> None:
    client = await cluster.client()
    await client.delete(CRDS, crd_manifest()["metadata"]["name"])
    for use in (sdk.submit(sdk_job()), sdk.get("f"), sdk.list()):

        async def refused(using: object = use) -> None:
            with pytest.raises(RequestRefused, match="this cluster knows no Frameworks: is the controller installed"):
                await using  # type: ignore[misc]

        await refused()


async def test_without_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(Unreachable, match=r"no cluster is configured: set \$KUBECONFIG, or use "):
        async with aio.connect():
            pass
    with pytest.raises(Unreachable, match="nowhere"):
        async with aio.connect(kubeconfig=str(tmp_path / "nowhere")):
            pass


@pytest.mark.newest
async def test_a_stranger_learns_the_missing_permission(cluster: Cluster) -> None:
    if cluster.kubeconfig_of is None:
        pytest.skip("this cluster tells no users apart")
    async with aio.Cluster(lambda: cluster.connection("stranger"), cluster.namespace) as stranger:
        with pytest.raises(Forbidden) as caught:
            await stranger.submit(sdk_job())
        assert (caught.value.verb, caught.value.resource) == ("create", "frameworks")
        hint = f"Ask for the permission to create frameworks in namespace {cluster.namespace}: docs/permissions.md"
        assert str(caught.value).endswith(f". {hint}")
        assert isinstance(caught.value, PermissionError)
        with pytest.raises(Forbidden, match="permission to list frameworks"):
            await stranger.list()


async def test_a_closed_cluster(cluster: Cluster) -> None:
    opened = aio.Cluster(cluster.connection, cluster.namespace)
    async with opened:
        pass
    await opened.__aexit__()
    with pytest.raises(RuntimeError, match="the cluster is not open"):
        await opened.list()


# --- objects of a Framework ---


@pytest.fixture
def code(tmp_path: Path) -> Code:
    (tmp_path / "train.py").write_text("print(1)\n")
    return Code.files(tmp_path / "train.py")


async def owners(cluster: Cluster, name: str, resource: Resource = CONFIGMAPS) -> list[str]:
    body = orjson.loads(await (await cluster.client()).get(resource, name, cluster.namespace))
    return [one["name"] for one in body["metadata"]["ownerReferences"]]


async def test_two_frameworks_share_code_which_is_collected_after_the_last(
    attended: aio.Cluster, cluster: Cluster, code: Code
) -> None:
    runs = await asyncio.gather(*(attended.submit(sdk_job(name, code=code)) for name in "ab"))
    assert sorted(await owners(cluster, code.configmap)) == ["a", "b"]
    await runs[0].delete()
    # A later one takes it over as well, even while the collector is at work.
    third = await attended.submit(sdk_job("c", code=code))
    assert "c" in await owners(cluster, code.configmap)
    for run in (runs[1], third):
        await run.delete()

    async def collected() -> None:
        with pytest.raises(ObjectGone):
            await owners(cluster, code.configmap)

    await eventually(collected, within=180)


async def test_the_largest_code_fits_into_a_configmap(sdk: aio.Cluster, cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(os.urandom(900 * 1024 - 1000))
    code = Code.files(tmp_path / "large")
    await sdk.submit(sdk_job(code=code))
    assert await owners(cluster, code.configmap) == ["f"]


async def test_an_object_of_another_client_stays(sdk: aio.Cluster, cluster: Cluster) -> None:
    client = await cluster.client()
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mine"}, "data": {"a": "b"}}
    await client.create(CONFIGMAPS, orjson.dumps(body), cluster.namespace)
    with pytest.raises(AlreadyExists, match=f'a ConfigMap "mine" exists already in namespace "{cluster.namespace}"'):
        await sdk.submit(sdk_job(objects=[{**body, "data": {"a": "c"}}]))
    with pytest.raises(RequestRefused, match="Pod p: a Framework brings only ConfigMaps and Secrets"):
        await sdk.submit(sdk_job(objects=[{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}]))
    # The Framework does not stay without its objects.
    await eventually(lambda: _is_empty(sdk))
    assert orjson.loads(await client.get(CONFIGMAPS, "mine", cluster.namespace))["data"] == {"a": "b"}


async def _is_empty(sdk: aio.Cluster) -> bool:
    return await sdk.list() == []


async def test_secrets_come_and_go_with_a_framework(attended: aio.Cluster, cluster: Cluster) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"a": "b"}}
    run = await attended.submit(sdk_job(objects=[secret]))
    assert await owners(cluster, "s", SECRETS) == ["f"]
    # The successor of the same name waits until the collector has removed it.
    await attended.submit(sdk_job(objects=[secret]), replace=True)
    assert await owners(cluster, "s", SECRETS) == ["f"]
    with pytest.raises(NotFound):
        await run.refresh()
