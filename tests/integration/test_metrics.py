"""The metrics of a controller at work match the API server and the world."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NamedTuple

import orjson
import pytest

from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.api.status import Phase
from frameworkcontroller.config.config import Config, Kueue, KueueMode, LeaderElection
from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.kube.resources import NAMESPACES, PODS
from frameworkcontroller.local.apiserver.restserver import ApiServer
from frameworkcontroller.manager.app import Controller
from frameworkcontroller.manager.exposition import registry_of
from frameworkcontroller.manager.health import Health
from tests.support.clusters import Cluster, embedded_cluster, simulated_node
from tests.support.eventually import eventually, until
from tests.support.frameworks import Frameworks, Json, policy, role, states
from tests.support.localqueue import in_queue, queue_on
from tests.support.pods import pod_manifest
from tests.support.virtual_clock import VirtualClockLoop, wall

pytestmark = pytest.mark.virtual_clock


class World(NamedTuple):
    """The embedded cluster with a node, and a controller at work on it."""

    cluster: Cluster
    controller: Controller
    frameworks: Frameworks

    def value(self, name: str, /, **labels: str) -> float:
        """A time series' value."""
        found = registry_of(self.controller).get_sample_value(name, labels)
        assert found is not None, f"no {name} {labels}"
        return found

    def by(self, name: str, label: str, /, **others: str) -> dict[str, float]:
        """The values above zero of a metric, by one label."""
        return {
            sample.labels[label]: sample.value
            for sample in self.samples()
            if sample.name == name and sample.value and others.items() <= sample.labels.items()
        }

    def samples(self) -> Iterator["Sample"]:
        for family in registry_of(self.controller).collect():
            for sample in family.samples:
                yield Sample(sample.name, sample.labels, sample.value)


class Sample(NamedTuple):
    name: str
    labels: dict[str, str]
    value: float


@pytest.fixture
async def world(clock: VirtualClockLoop, tmp_path: Path) -> AsyncIterator[World]:
    async with (
        embedded_cluster(tmp_path) as cluster,
        simulated_node(cluster),
        Controller(
            Config(framework_completed_retain_sec=3600), await cluster.connection(), wall=wall, rng=random.Random(3)
        ) as controller,
    ):
        yield World(cluster, controller, Frameworks(await cluster.client(), cluster.namespace))


async def test_attempts_and_retries_are_counted_by_their_cause(world: World) -> None:
    worker = role(
        "a",
        2,
        task={"retryPolicy": {"maxRetryCount": 2}},
        simulate={"run-seconds": 1, "exit-code": 3},
        frameworkAttemptCompletionPolicy=policy(2),
    )
    await world.frameworks.create("failing", worker, retryPolicy={"maxRetryCount": 1})
    conflict = role("a", 1, simulate={"run-seconds": 1, "exit-code": 201}, frameworkAttemptCompletionPolicy=policy(1))
    await world.frameworks.create("conflict", conflict, retryPolicy={"fancyRetryPolicy": True, "maxRetryCount": 0})
    await world.frameworks.create("fine", role("a", 3, simulate={"run-seconds": 1}))
    await world.frameworks.create("stopped", role("a", 4))
    await world.frameworks.until_running("stopped", 4)
    await world.frameworks.set("stopped", executionType="Stop")
    for name in ("failing", "fine", "stopped"):
        await world.frameworks.until_state(name, "Completed")
    await world.frameworks.until(
        "conflict", lambda status: status["retryPolicyStatus"]["totalRetriedCount"] == 2, within=3600, every=1
    )
    completed = "frameworkcontroller_attempts_completed_total"
    # The exit code 3 has no known cause, and no time series of its own.
    assert world.by(completed, "code", level="framework") == {"other": 2, "201": 2, "0": 1, "-210": 1}
    assert world.by(completed, "code", level="task") == {"other": 12, "201": 2, "0": 3, "-220": 4}
    retries = "frameworkcontroller_retries_total"
    assert world.by(retries, "type", level="framework") == {"Unknown": 1, "TransientConflict": 2}
    assert world.by(retries, "type", level="task") == {"Unknown": 8}


async def test_requests_are_counted_as_the_api_server_answered_them(world: World) -> None:
    await world.frameworks.create("f", role("a", 5, simulate={"run-seconds": 1}))
    await world.frameworks.until_state("f", "Completed")
    requests = "frameworkcontroller_api_requests_total"
    assert world.value(requests, verb="create", resource="pods", code="201") == 5
    assert world.value(requests, verb="create", resource="configmaps", code="201") == 1
    assert world.value(requests, verb="list", resource="pods", code="200") == 1
    assert world.value("frameworkcontroller_api_request_duration_seconds_count", verb="create", resource="pods") == 5
    written = world.value(requests, verb="patch", resource="frameworks/status", code="200")
    assert written >= 3
    assert world.by("frameworkcontroller_status_writes_total", "result") == {"accepted": written}
    assert world.value("frameworkcontroller_status_write_bytes_count") == written
    stored = len(orjson.dumps(await world.frameworks.status("f")))
    assert written * 200 < world.value("frameworkcontroller_status_write_bytes_sum") <= written * (stored + 2000)
    assert world.value("frameworkcontroller_api_rate_limiter_wait_seconds_count") >= written + 6
    sent = world.value("frameworkcontroller_api_transferred_bytes_total", direction="sent")
    assert sent > world.value("frameworkcontroller_status_write_bytes_sum")


async def test_an_api_server_that_is_away_shows(clock: VirtualClockLoop) -> None:
    server = ApiServer(wall=wall)
    await server.start()
    async with Controller(Config(), Connection.to_address(server.url), wall=wall) as controller:
        value = registry_of(controller).get_sample_value
        broken = {"resource": "pods", "reason": "broken"}
        assert value("frameworkcontroller_watch_restarts_total", broken) == 0
        await server.stop()
        await until(lambda: (value("frameworkcontroller_watch_restarts_total", broken) or 0) > 3, within=120)
        unanswered = {"verb": "watch", "resource": "pods", "code": "none"}
        assert (value("frameworkcontroller_api_requests_total", unanswered) or 0) > 1


async def test_states_are_those_that_the_api_server_shows(world: World) -> None:
    """After a churn of all kinds of Frameworks, and at several times within."""
    chance = random.Random(7)
    for number in range(16):
        worker = role(
            "w",
            chance.randint(1, 4),
            task={"retryPolicy": {"maxRetryCount": chance.choice([0, 1])}},
            simulate={"run-seconds": chance.choice([0.5, 5, 100]), "exit-code": chance.choice([0, 0, 1, 210])},
            frameworkAttemptCompletionPolicy=policy(chance.choice([-1, 1, 2])),
        )
        await world.frameworks.create(f"f{number}", worker, retryPolicy={"maxRetryCount": chance.choice([0, 0, 1])})
    for round_number in range(4):
        await eventually(lambda: _agrees(world), within=60, every=0.5)
        for number in range(round_number, 16, 4):
            if chance.random() < 0.3:
                await world.frameworks.delete(f"f{number}")
            elif chance.random() < 0.5:
                await world.frameworks.set(f"f{number}", taskRoles__0__taskNumber=chance.randint(0, 5))
        await asyncio.sleep(8)
    await eventually(lambda: _agrees(world), within=600, every=5)
    assert world.value("frameworkcontroller_frameworks_quarantined") == 0
    assert world.value("frameworkcontroller_cache_objects", resource="frameworks") == world.value(
        "frameworkcontroller_ledger_entries"
    )


async def _agrees(world: World) -> None:
    items = orjson.loads(await world.frameworks.client.list(FRAMEWORKS, world.cluster.namespace))["items"]
    statuses: list[Json] = [item["status"] for item in items if item.get("status")]
    assert len(statuses) == len(items)
    frameworks = Counter(status["phase"] for status in statuses)
    tasks = Counter(state for status in statuses for state in states(status))
    assert world.by("frameworkcontroller_frameworks", "phase") == frameworks
    assert world.by("frameworkcontroller_tasks", "state") == tasks


async def test_the_end_of_retention_takes_frameworks_out_of_the_figures(world: World) -> None:
    await world.frameworks.create("f", role("a", 2, simulate={"run-seconds": 1}))
    await world.frameworks.until_state("f", "Completed")

    async def completed(number: int) -> None:
        assert world.value("frameworkcontroller_frameworks", phase="Succeeded") == number
        assert world.value("frameworkcontroller_tasks", state="Completed") == 2 * number

    await eventually(lambda: completed(1))
    await asyncio.sleep(3700)
    await eventually(lambda: completed(0))
    assert world.value("frameworkcontroller_ledger_entries") == 0


async def test_a_stalled_framework_shows_until_it_is_not(world: World) -> None:
    async def shows(number: int) -> None:
        found = world.by("frameworkcontroller_frameworks_stalled", "reason")
        assert found == ({"NamingConflict": number} if number else {})

    namesake = {"apiVersion": "v1", "kind": "Pod", **pod_manifest(name="f-a-0", namespace=world.cluster.namespace)}
    await world.frameworks.client.create(PODS, orjson.dumps(namesake), world.cluster.namespace)
    await world.frameworks.create("f", role("a", 1))
    await eventually(lambda: shows(1))
    await world.frameworks.delete_pod("f-a-0", grace=0)
    await world.frameworks.until_running("f", 1)
    await eventually(lambda: shows(0))


async def test_queues_are_measured(clock: VirtualClockLoop, tmp_path: Path) -> None:
    """One waits for quota, preempts the other, and both give it back."""
    config = Config(kueue=Kueue(mode=KueueMode.ENABLED))
    async with (
        embedded_cluster(tmp_path) as cluster,
        simulated_node(cluster),
        queue_on(cluster, {"pods": "2"}),
        Controller(config, await cluster.connection(), wall=wall, rng=random.Random(3)) as controller,
    ):
        world = World(cluster, controller, Frameworks(await cluster.client(), cluster.namespace))

        async def create(name: str, priority: str, **simulate: object) -> None:
            await world.frameworks.create(name, role(number=2, simulate=simulate), metadata=in_queue(priority))

        await create("low", "low", **{"stop-seconds": 100})
        await world.frameworks.until_running("low", 2)
        assert world.value("frameworkcontroller_longest_eviction_seconds") == 0
        await create("high", "high", **{"run-seconds": 1000})
        await world.frameworks.until("low", lambda status: status["state"] == "AttemptDeleting")
        await asyncio.sleep(20)
        assert world.by("frameworkcontroller_frameworks_waiting", "reason") == {"QuotaPending": 1}
        assert 20 <= world.value("frameworkcontroller_longest_eviction_seconds") < 30
        assert world.by("frameworkcontroller_quota_releases_total", "reason") == {}
        await world.frameworks.until_running("high", 2)
        assert world.value("frameworkcontroller_longest_eviction_seconds") == 0
        assert world.by("frameworkcontroller_evictions_total", "reason") == {"Preempted": 1}
        assert world.by("frameworkcontroller_quota_releases_total", "reason") == {"QuotaGivenBack": 1}
        waited = world.value("frameworkcontroller_queue_wait_seconds_sum")
        assert 25 <= waited < 60
        await world.frameworks.until("low", lambda status: status["state"] == "AttemptRunning", within=2000, every=10)
        assert world.value("frameworkcontroller_queue_wait_seconds_count") == 3
        assert 1000 <= world.value("frameworkcontroller_queue_wait_seconds_sum") - waited < 1100
        await world.frameworks.set("low", taskRoles__0__task__pod__spec__priorityClassName="x")
        await eventually(lambda: evicted(world, {"Preempted": 1, "WorkloadOutOfSync": 1}), within=200)


async def evicted(world: World, expected: dict[str, float]) -> None:
    assert world.by("frameworkcontroller_evictions_total", "reason") == expected


async def test_names_that_users_choose_make_no_series(world: World) -> None:
    """For all names of Frameworks and exit codes of containers, the time series stay the same."""

    def series() -> set[tuple[str, frozenset[tuple[str, str]]]]:
        return {(sample.name, frozenset(sample.labels.items())) for sample in world.samples()}

    async def churn(namespace: str, prefix: str, codes: range) -> None:
        frameworks = Frameworks(world.frameworks.client, namespace)
        for code in codes:
            worker = role(
                f"{prefix}role{code}",
                2,
                simulate={"run-seconds": 0.5, "exit-code": code, "message": f"{prefix}message{code}"},
                frameworkAttemptCompletionPolicy=policy(1),
            )
            await frameworks.create(f"{prefix}{code}", worker, retryPolicy={"maxRetryCount": 1})
        for code in codes:
            await frameworks.until_state(f"{prefix}{code}", "Completed", within=600)
            await frameworks.delete(f"{prefix}{code}")

    await churn(world.cluster.namespace, "warm", range(3))
    before = series()
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "another"}}
    await world.frameworks.client.create(NAMESPACES, orjson.dumps(body))
    await churn("another", "churn", range(0, 256, 16))
    assert series() - before == set()
    assert len(before) < 1000
    assert not [sample for sample in world.samples() if any("churn" in text for text in sample.labels.values())]


async def test_each_controller_counts_for_itself(world: World) -> None:
    await world.frameworks.create("f", role("a", 1, simulate={"run-seconds": 1}))
    await world.frameworks.until_state("f", "Completed")
    other = Controller(Config(), Connection.to_address("http://127.0.0.1:1"))
    value = registry_of(other).get_sample_value
    assert value("frameworkcontroller_frameworks", {"phase": Phase.SUCCEEDED}) == 0
    assert value("workqueue_adds_total", {"name": "framework"}) == 0
    assert world.value("workqueue_adds_total", name="framework") > 0


async def test_the_queue_and_the_syncs(world: World) -> None:
    await world.frameworks.create("f", role("a", 3, simulate={"run-seconds": 1}))
    await world.frameworks.until_state("f", "Completed")
    done = world.value("frameworkcontroller_reconcile_duration_seconds_count", result="done")
    assert done >= 3
    assert world.value("workqueue_work_duration_seconds_count", name="framework") == done
    assert world.value("workqueue_queue_duration_seconds_count", name="framework") == done
    assert world.value("workqueue_adds_total", name="framework") == done
    assert world.value("workqueue_depth", name="framework") == 0
    assert world.value("workqueue_retries_total", name="framework") == 0
    assert world.value("leader_election_master_status", name="frameworkcontroller") == 1


async def test_of_two_replicas_the_leader_has_the_figures(clock: VirtualClockLoop, tmp_path: Path) -> None:
    async with embedded_cluster(tmp_path) as cluster, simulated_node(cluster):
        config = Config(leader_election=LeaderElection(enabled=True, lease_namespace=cluster.namespace))
        frameworks = Frameworks(await cluster.client(), cluster.namespace)

        async def replica() -> World:
            connection = await cluster.connection()
            return World(cluster, Controller(config, connection, wall=wall, instant=cluster.instant), frameworks)

        async def figures(world: World, leading: int) -> None:
            assert world.value("leader_election_master_status", name="frameworkcontroller") == leading
            assert world.value("frameworkcontroller_frameworks", phase="Running") == leading
            assert world.value("frameworkcontroller_tasks", state="AttemptRunning") == 2 * leading

        first, second = await replica(), await replica()
        async with first.controller as leader:
            await frameworks.create("f", role("a", 2))
            await frameworks.until_state("f", "AttemptRunning")
            async with second.controller as standby:
                await eventually(lambda: figures(first, 1))
                await figures(second, 0)
                health = Health(standby.informers, standby.queue, clock=clock.time, required=list(standby.informers))
                for _ in range(12):
                    assert [check for check in (*health.live(), *health.ready()) if check.problem is not None] == []
                    await asyncio.sleep(60)
                leader.stop()
                await leader.wait_stopped()
                await eventually(lambda: figures(second, 1))
                await figures(first, 0)
