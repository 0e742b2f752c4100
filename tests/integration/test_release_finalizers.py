"""Frameworks that their history holds are released (`frameworkcontroller history release-finalizers`)."""

import orjson
import pytest

from frameworkcontroller.api import names
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.cli.main import build_parser
from frameworkcontroller.config.config import Config
from frameworkcontroller.kube.client import JSON_PATCH, MERGE_PATCH
from frameworkcontroller.kube.resources import PODS
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.manager.app import Controller
from tests.support.cli import Cli
from tests.support.clusters import Cluster
from tests.support.eventually import read_until
from tests.support.frameworks import Frameworks, Json, role
from tests.support.objects import until_missing

pytestmark = pytest.mark.newest

RELEASE = ("history", "release-finalizers")


@pytest.fixture
async def cli(cluster: Cluster) -> Cli:
    return Cli(cluster, await cluster.client(), parser=build_parser)


@pytest.fixture
async def frameworks(cluster: Cluster) -> Frameworks:
    return Frameworks(await cluster.client(), cluster.namespace)


async def test_without_a_controller_pods_end_before_their_framework_goes(
    cluster: Cluster, frameworks: Frameworks, cli: Cli, pods: SimulatedRuntime
) -> None:
    """Though its deletion was one in the background, which does not wait for them."""
    async with Controller(Config(), await cluster.connection(), wall=cluster.wall):
        await frameworks.create("f", role(number=2))
        await frameworks.create("stays", role(number=3))
        await frameworks.create("other", role())
        await frameworks.until_running("f", 2)
        await frameworks.until_running("stays", 3)
    await frameworks.set_finalizers("f", "example.com/first", names.HISTORY_FINALIZER)
    await frameworks.set_finalizers("stays", names.HISTORY_FINALIZER)
    await frameworks.delete("f", "Background")
    await frameworks.set_finalizers("f-a-0", "example.com/hold", resource=PODS)

    before = [await frameworks.get(name) for name in ("f", "stays")]
    shown = await cli.ok(*RELEASE, "--dry-run")
    rows = [line.split() for line in shown[1:3]]
    assert rows[0][:2] == [f"{cluster.namespace}/f", "AttemptRunning"]
    assert rows[0][3:] == ["ago", "0", "2"]
    assert rows[1] == [f"{cluster.namespace}/stays", "AttemptRunning", "-", "0", "3"]
    assert shown[-1] == (
        "would release 2 Frameworks with 5 Tasks, whose last attempts may not be in the archive; nothing was changed"
    )
    assert [await frameworks.get(name) for name in ("f", "stays")] == before

    whole = await cli(*RELEASE)
    assert (whole.code, whole.out) == (2, "")
    assert f"-n {cluster.namespace} for all of the namespace" in whole.err
    assert [await frameworks.get(name) for name in ("f", "stays")] == before

    done = await cli(*RELEASE, "-n", cluster.namespace)
    assert done.code == 0
    assert done.lines[-1] == "released 2 Frameworks with 5 Tasks, whose last attempts may not be in the archive"
    assert done.err.startswith("1 Framework will get the finalizer again from a running controller, unless ")
    assert await frameworks.finalizers("stays") == []
    assert "deletionTimestamp" not in (await frameworks.get("stays"))["metadata"]
    # Other clients remove their own finalizers.
    assert sorted(await frameworks.finalizers("f")) == ["example.com/first", "foregroundDeletion"]
    patch: list[Json] = [{"op": "test", "path": "/metadata/finalizers/0", "value": "example.com/first"}]
    patch.append({"op": "remove", "path": "/metadata/finalizers/0"})
    await frameworks.client.patch(FRAMEWORKS, "f", orjson.dumps(patch), frameworks.namespace, content_type=JSON_PATCH)
    await read_until(frameworks.pods, lambda found: [name for name in found if name.startswith("f-")] == ["f-a-0"])
    assert await frameworks.finalizers("f") == ["foregroundDeletion"]
    await frameworks.set_finalizers("f-a-0", resource=PODS)
    await frameworks.until_gone("f")
    assert len(await frameworks.pods()) == 4
    assert await cli.ok(*RELEASE, "-n", cluster.namespace) == [
        f"no Framework has the finalizer {names.HISTORY_FINALIZER}"
    ]


async def test_pods_that_a_user_orphaned_are_ignored(cluster: Cluster, frameworks: Frameworks, cli: Cli) -> None:
    await frameworks.create("f", role())
    await frameworks.set_finalizers("f", names.HISTORY_FINALIZER, "orphan", "example.com/hold")
    await frameworks.delete("f", None)
    assert (await cli.ok(*RELEASE, "-n", cluster.namespace))[-1].startswith("released 1 Framework ")
    if cluster.embedded:
        # A real garbage collector may have orphaned them and removed its finalizer before: then nothing is left to end.
        assert "foregroundDeletion" not in await frameworks.finalizers("f")
    assert names.HISTORY_FINALIZER not in await frameworks.finalizers("f")
    await frameworks.set_finalizers("f")


async def test_only_the_named_ones_are_released(cluster: Cluster, frameworks: Frameworks, cli: Cli) -> None:
    for name in ("f", "g"):
        await frameworks.create(name, role(), metadata={"finalizers": [names.HISTORY_FINALIZER]})
        await frameworks.delete(name, "Background")
    assert (await cli.ok(*RELEASE, "g"))[-1].startswith("released 1 Framework with 0 Tasks")
    await until_missing(frameworks.client, FRAMEWORKS, "g", cluster.namespace)
    assert await frameworks.finalizers("f") == [names.HISTORY_FINALIZER]
    missing = await cli(*RELEASE, "g")
    assert (missing.code, missing.out) == (1, "")
    assert f'there is no Framework "g" in namespace "{cluster.namespace}"' in missing.err
    refused = await cli(*RELEASE, "-A", "f")
    assert (refused.code, refused.out) == (2, "")
    await cli.ok(*RELEASE, "framework/f")


async def test_a_concurrent_change_does_not_remove_the_finalizers_of_other_clients(
    cluster: Cluster, frameworks: Frameworks, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other clients change the list between its read and the patch."""
    await frameworks.create("f", role())
    await frameworks.set_finalizers("f", "example.com/a", names.HISTORY_FINALIZER)
    patch = frameworks.client.__class__.patch
    overtaken = 0

    async def late(*args: object, **more: object) -> bytes:
        nonlocal overtaken
        if b"resourceVersion" in args[3] and overtaken < 2:  # type: ignore[operator]
            overtaken += 1
            lists = [["example.com/a", "example.com/b", names.HISTORY_FINALIZER], [names.HISTORY_FINALIZER]]
            await frameworks.set_finalizers("f", *lists[overtaken - 1])
        return await patch(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(frameworks.client.__class__, "patch", late)
    assert (await cli(*RELEASE, "-n", cluster.namespace)).code == 0
    assert overtaken == 2
    assert await frameworks.finalizers("f") == []


async def test_a_refusal_is_reported_and_the_others_are_released(
    cluster: Cluster, frameworks: Frameworks, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("f", "g"):
        await frameworks.create(name, role())
        await frameworks.set_finalizers(name, names.HISTORY_FINALIZER)
    patch = frameworks.client.__class__.patch

    async def refusing(*args: object, **more: object) -> bytes:
        if args[2] == "f" and more.get("content_type") == MERGE_PATCH:
            # As a CRD refuses an object that it has taken before.
            args = (*args[:3], orjson.dumps({"spec": {"taskRoles": "none"}}), *args[4:])
        return await patch(*args, **more)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(frameworks.client.__class__, "patch", refusing)
        ended = await cli(*RELEASE, "-n", cluster.namespace)
    assert ended.code == 1
    assert f"{cluster.namespace}/f: " in ended.err
    assert "taskRoles" in ended.err
    assert ended.lines[-1].startswith("released 1 Framework ")
    assert await frameworks.finalizers("f") == [names.HISTORY_FINALIZER]
    assert await frameworks.finalizers("g") == []
    await frameworks.set_finalizers("f")
