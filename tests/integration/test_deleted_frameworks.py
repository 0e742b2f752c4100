"""Frameworks that are deleted go once nothing of them runs and the archive has them, on each API server."""

from collections.abc import AsyncIterator

import orjson
import pytest

from frameworkcontroller.api import names
from frameworkcontroller.api.codec import decode_status
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.cli.main import build_parser
from frameworkcontroller.config.config import Config
from frameworkcontroller.config.historyconfig import History, HistorySinkKind
from frameworkcontroller.kube.resources import CONFIGMAPS, NAMESPACES, PODS
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.manager.app import Controller
from tests.support.cli import Cli
from tests.support.clusters import Cluster
from tests.support.eventually import eventually, read_until
from tests.support.frameworks import Frameworks, Json, condition, role, tasks
from tests.support.historysink import ArchiveStandIn, attempts_of
from tests.support.objects import is_there, read, until_missing

pytestmark = pytest.mark.newest


@pytest.fixture
async def archive() -> AsyncIterator[ArchiveStandIn]:
    async def unknown() -> int:
        return 0

    async with ArchiveStandIn(unknown) as archive:
        yield archive
        assert archive.wrong == []


@pytest.fixture
async def controller(cluster: Cluster, archive: ArchiveStandIn, pods: SimulatedRuntime) -> AsyncIterator[Controller]:
    settings = Config(history=History(sink=HistorySinkKind.HTTP, url=archive.records_url))
    async with Controller(settings, await cluster.connection(), wall=cluster.wall) as controller:
        yield controller


@pytest.fixture
async def frameworks(cluster: Cluster) -> Frameworks:
    return Frameworks(await cluster.client(), cluster.namespace)


def missing(archive: ArchiveStandIn, framework: Json) -> list[object]:
    """The attempts that a status shows, and the archive does not have with the same code."""
    status = decode_status(framework["status"])
    assert status is not None
    shown = attempts_of(framework["metadata"]["uid"], status)
    return [attempt for attempt, code in shown.items() if code not in archive.acknowledged.get(attempt, {})]


@pytest.mark.parametrize("propagation", [None, "Background", "Foreground"])
async def test_pods_end_and_then_the_framework_goes(
    cluster: Cluster, frameworks: Frameworks, archive: ArchiveStandIn, controller: Controller, propagation: str | None
) -> None:
    failing = role(
        "b", simulate={"run-seconds": "0, forever", "exit-code": "1"}, task={"retryPolicy": {"maxRetryCount": 1}}
    )
    created = await frameworks.create("f", role(number=2), failing)
    await frameworks.until_running("f", 3)
    assert (await frameworks.get("f"))["metadata"]["finalizers"] == [names.HISTORY_FINALIZER]
    await frameworks.set_finalizers("f-a-0", "example.com/hold", resource=PODS)
    await frameworks.delete("f", propagation)
    await read_until(frameworks.pods, lambda found: [*found] == ["f-a-0"])
    found = await frameworks.get("f")
    assert names.HISTORY_FINALIZER in found["metadata"]["finalizers"]
    # The controller ends it, as the garbage collector does nothing in the background while the Framework is there.
    status = await frameworks.until(
        "f", lambda status: status["attemptStatus"]["completionStatus"]["code"] == -210 and len(tasks(status)) == 2
    )
    assert status["attemptStatus"]["completionStatus"]["diagnostics"]
    assert await is_there(frameworks.client, CONFIGMAPS, "f-attempt", frameworks.namespace)
    await archive.refuse()
    await frameworks.set_finalizers("f-a-0", resource=PODS)

    async def nothing_runs() -> None:
        await frameworks.assert_nothing_left("f")
        assert (await frameworks.status("f"))["state"] == "Completed"

    await eventually(nothing_runs)
    last = await frameworks.get("f")
    await archive.accept()
    await frameworks.until_gone("f")
    assert missing(archive, last) == []
    # Also the one that was retried.
    task = tasks(last["status"], "b")[0]
    assert (task["attemptStatus"]["id"], (task["instanceUID"], 0) in archive.acknowledged) == (1, True)
    assert created["metadata"]["uid"] == last["metadata"]["uid"]


async def test_a_namespace_waits_for_the_archive(
    cluster: Cluster, frameworks: Frameworks, archive: ArchiveStandIn, controller: Controller
) -> None:
    """The reason is reported, and the Framework goes once the archive has all."""
    for name in ("f", "g"):
        await frameworks.create(name, role(number=2))
        await frameworks.until_running(name, 2)
    await archive.refuse()
    await frameworks.client.delete(NAMESPACES, frameworks.namespace)

    async def nothing_runs() -> None:
        for name in ("f", "g"):
            await frameworks.assert_nothing_left(name)
            assert (await frameworks.status(name))["state"] == "Completed"

    await eventually(nothing_runs, within=120)
    if cluster.embedded:
        # After a minute, which real time would take.
        status = await frameworks.until(
            "f", lambda status: condition(status, "Stalled").get("reason") == "HistoryUnavailable", within=200
        )
        assert archive.url in condition(status, "Stalled")["message"]
    found = [await frameworks.get(name) for name in ("f", "g")]
    assert (await read(frameworks.client, NAMESPACES, frameworks.namespace))["status"]["phase"] == "Terminating"
    await archive.accept()
    await until_missing(frameworks.client, NAMESPACES, frameworks.namespace, within=120)
    assert [missing(archive, one) for one in found] == [[], []]


async def test_the_history_is_given_up_while_the_archive_is_away(
    cluster: Cluster, frameworks: Frameworks, archive: ArchiveStandIn, controller: Controller
) -> None:
    """A running controller adds the finalizer again, except to Frameworks that are being deleted."""
    cli = Cli(cluster, await cluster.client(), parser=build_parser)
    for name in ("f", "stays"):
        await frameworks.create(name, role(number=2))
        await frameworks.until_running(name, 2)
    await archive.refuse()
    await frameworks.delete("f", "Background")

    async def ended() -> None:
        await frameworks.assert_nothing_left("f")
        assert (await frameworks.status("f"))["state"] == "Completed"

    await eventually(ended)
    assert (await cli("history", "release-finalizers", "-n", cluster.namespace)).code == 0
    await frameworks.until_gone("f")
    await read_until(
        lambda: frameworks.client.get(FRAMEWORKS, "stays", frameworks.namespace),
        lambda found: orjson.loads(found)["metadata"].get("finalizers") == [names.HISTORY_FINALIZER],
    )
    assert len(await frameworks.pods()) == 2
    await archive.accept()
    await frameworks.delete("stays", None)
    await frameworks.until_gone("stays")


async def test_a_controller_without_history_releases_all(
    cluster: Cluster, frameworks: Frameworks, archive: ArchiveStandIn, pods: SimulatedRuntime
) -> None:
    """One that is deleted meanwhile, one that runs, and one that has not started."""
    settings = Config(history=History(sink=HistorySinkKind.HTTP, url=archive.records_url))
    async with Controller(settings, await cluster.connection(), wall=cluster.wall):
        for name in ("f", "runs"):
            await frameworks.create(name, role(number=2))
            await frameworks.until_running(name, 2)
    await frameworks.delete("f", "Background")
    async with Controller(Config(), await cluster.connection(), wall=cluster.wall):
        await frameworks.until_gone("f")
        await read_until(lambda: frameworks.get("runs"), lambda found: not found["metadata"].get("finalizers"))
        assert len(await frameworks.pods()) == 2
