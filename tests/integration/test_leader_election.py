"""Several replicas, one of them active: the election, the change, and the absence of repeated actions.

A front door before the API server records the requests, so the controllers need not be asked.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from frameworkcontroller.config.bindaddress import BindAddress
from frameworkcontroller.config.config import Config, LeaderElection
from frameworkcontroller.kube.leaderelection import Election
from frameworkcontroller.kube.resources import LEASES
from frameworkcontroller.manager import app
from frameworkcontroller.manager.app import Controller
from frameworkcontroller.manager.exposition import registry_of
from frameworkcontroller.manager.web import WebServer
from tests.support.clusters import Cluster
from tests.support.eventually import eventually, until
from tests.support.frameworks import Frameworks, codes, condition, role, tasks
from tests.support.frontdoor import FrontDoor, Request, Rule, front_door, refusal
from tests.support.objects import items, read

pytestmark = pytest.mark.newest

LEASE = "fc"


@dataclass
class Replica:
    """A controller that takes part in the election, and the door through which it goes to the API server."""

    controller: Controller
    door: FrontDoor
    namespace: str

    @property
    def identity(self) -> str:
        assert self.controller.election is not None
        return self.controller.election.identity

    @property
    def frameworks_known(self) -> float | None:
        """Of how many Frameworks it keeps the status."""
        return registry_of(self.controller).get_sample_value("frameworkcontroller_ledger_entries")

    def acted(self, since: float) -> list[str]:
        """The requests since that moment that only a leader may send."""
        return [
            str(request)
            for request in self.door.since(since)
            if request.verb in ("create", "update", "patch", "delete")
            and request.namespace == self.namespace
            and request.resource != "leases"
        ]

    async def until_leading(self, *, within: float = 30.0) -> None:
        await until(lambda: self.controller.leading, within=within, every=0.02)


def config(cluster: Cluster, duration_sec: int = 60, **more: Any) -> Config:
    """`duration_sec`: of a lease, on real time. A leader loses a short one only because the machine is busy."""
    times: dict[str, Any] = {}
    if not cluster.embedded:
        times = {"lease_duration_sec": duration_sec, "renew_deadline_sec": duration_sec * 2 // 3, "retry_period_sec": 1}
    return Config(
        leader_election=LeaderElection(
            enabled=True, lease_name=LEASE, lease_namespace=cluster.namespace, **times, **more
        )
    )


def duration(cluster: Cluster, duration_sec: int = 60) -> float:
    """How long a lease lasts, in seconds, and a standby takes at most to see that it has expired."""
    election = config(cluster, duration_sec).leader_election
    return election.lease_duration_sec + 1.2 * election.retry_period_sec


@asynccontextmanager
async def replica(
    cluster: Cluster, duration_sec: int = 60, *, rule: Rule = lambda _: None, **election: Any
) -> AsyncIterator[Replica]:
    """One that runs, and is ready: it leads or stands by. ``rule``: of its front door."""
    async with front_door(await cluster.connection()) as door:
        door.always(rule)
        controller = Controller(
            config(cluster, duration_sec, **election),
            door.connection,
            wall=cluster.wall,
            instant=cluster.instant,
        )
        async with controller:
            yield Replica(controller, door, cluster.namespace)


@asynccontextmanager
async def succession(
    cluster: Cluster, *, rule: Rule = lambda _: None
) -> AsyncIterator[tuple[Callable[[], Awaitable[None]], Replica]]:
    """A leader, by the coroutine function that ends it, and its standby. ``rule``: of the front door of that one."""
    async with AsyncExitStack() as first_stack:
        first = await first_stack.enter_async_context(replica(cluster))
        await first.until_leading()
        async with replica(cluster, rule=rule) as second:
            yield first_stack.aclose, second


async def holder(frameworks: Frameworks) -> str:
    lease = await read(frameworks.client, LEASES, LEASE, frameworks.namespace)
    who: str = lease["spec"]["holderIdentity"]
    return who


async def test_one_acts_and_the_other_is_ready_to(cluster: Cluster, frameworks: Frameworks) -> None:
    async with replica(cluster) as first:
        await first.until_leading()
        async with replica(cluster) as second:
            assert second.controller.ready
            await frameworks.create("f", role(number=3, simulate={"run-seconds": 0.5}))
            assert codes(tasks(await frameworks.until_state("f", "Completed"))) == [0] * 3
            assert await holder(frameworks) == first.identity
            assert not second.controller.leading
            assert second.acted(since=0) == []
            # It learns only from watches of Pods and ConfigMaps; nothing piles up meanwhile.
            assert len(second.controller.queue) == 0
            assert second.frameworks_known == 0


async def test_a_leader_that_ends_in_order_hands_over_at_once(cluster: Cluster, frameworks: Frameworks) -> None:
    loop = asyncio.get_running_loop()
    async with succession(cluster) as (end_first, second):
        await frameworks.create("f", role(number=2))
        before = await frameworks.until_running("f", 2)
        ended = loop.time()
        await end_first()
        await second.until_leading()
        election = config(cluster).leader_election
        # By a watch: not by the next of its looks, which are two seconds apart.
        assert loop.time() - ended < (1 if cluster.embedded else election.lease_duration_sec / 2)
        assert await holder(frameworks) == second.identity
        await frameworks.set("f", taskRoles__0__taskNumber=3)
        after = await frameworks.until_running("f", 3)
    # The second one takes over the objects that the first one started.
    assert uids(after)[:2] == uids(before)
    assert after["attemptStatus"]["id"] == 0


async def test_a_process_that_follows_another_one_does_not_wait_for_its_lease(
    cluster: Cluster, frameworks: Frameworks, tmp_path: Path
) -> None:
    lock = str(tmp_path / "lock")
    loop = asyncio.get_running_loop()

    async with replica(cluster, lock_file=lock) as first:
        await first.until_leading()
        await frameworks.create("f", role(number=2))
        before = await frameworks.until_running("f", 2)
        # A second one at the same time, in another container of the Pod, say, waits like any other.
        async with replica(cluster, lock_file=lock) as beside:
            await asyncio.sleep(3)
            assert not beside.controller.leading
        # As of a process that is killed, its Lease is not released.
        first.door.always(_no_lease)
    assert await holder(frameworks) == first.identity
    ended = loop.time()
    async with replica(cluster, lock_file=lock) as second:
        await second.until_leading()
        assert loop.time() - ended < (1 if cluster.embedded else 30)
        assert second.identity.rpartition("_")[0] == first.identity.rpartition("_")[0]
        lease = await read(frameworks.client, LEASES, LEASE, cluster.namespace)
        assert lease["spec"]["leaseTransitions"] == 1
        await frameworks.set("f", taskRoles__0__taskNumber=3)
        assert uids(await frameworks.until_running("f", 3))[:2] == uids(before)


@pytest.mark.virtual_clock
async def test_a_leadership_that_ends_by_an_error_releases_its_lease(cluster: Cluster, frameworks: Frameworks) -> None:
    election = Election(
        await cluster.client(),
        namespace=cluster.namespace,
        name=LEASE,
        identity="the-one-that-fails",
        timing=config(cluster).leader_election.timing(),
    )

    async def lead() -> None:
        assert await holder(frameworks) == election.identity
        raise ValueError("out of luck")

    with pytest.raises(ValueError, match="out of luck"):
        await election.run(lead)
    assert await holder(frameworks) == ""


@pytest.mark.virtual_clock
async def test_a_standby_acts_on_its_caches_and_compares_them_later(cluster: Cluster, frameworks: Frameworks) -> None:
    loop = asyncio.get_running_loop()
    async with succession(cluster) as (end_first, second):
        await frameworks.create("f", role(number=2))
        await frameworks.until_running("f", 2)
        await asyncio.sleep(app.STANDBY_CACHE_SEC + 1)
        over = loop.time()
        await end_first()
        await second.until_leading()
        await frameworks.set("f", taskRoles__0__taskNumber=3)
        await frameworks.until_running("f", 3)
        first_act = min(one.at for one in second.door.since(over) if one.verb == "create")
        compared = over + app.COMPARISON_DELAY_SEC
        assert first_act < compared
        assert not [one for one in second.door.since(over) if one.verb == "list" and one.at < first_act]
        await until(lambda: lists(second, over) == {"frameworks", "configmaps", "pods"})


def lists(replica: Replica, since: float) -> set[str]:
    return {one.resource for one in replica.door.since(since) if one.verb == "list"}


@pytest.mark.virtual_clock
async def test_a_new_leader_begins_with_frameworks_without_status(cluster: Cluster, frameworks: Frameworks) -> None:
    """Those at rest do not hold it up, and all get their turn."""
    at_rest = [f"f{number}" for number in range(32)]
    async with replica(cluster, 3) as before, AsyncExitStack() as stack:
        await before.until_leading()
        for name in at_rest:
            await frameworks.create(name, role(), suspend=True)
            await frameworks.until(name, lambda status: condition(status, "Suspended").get("status") == "True")
        held_back = True
        after = await stack.enter_async_context(
            replica(cluster, 3, rule=lambda request: _no_lease_write(request) if held_back else None)
        )
        order: list[str] = []
        start = after.controller.workers._start

        def started(key: str) -> None:
            order.append(key.partition("/")[2])
            start(key)

        after.controller.workers._start = started  # type: ignore[method-assign]
        with before.door.answering(lambda _: refusal(503, "ServiceUnavailable", "cut off")):
            await frameworks.create("new", role(), suspend=True)

            async def is_known() -> None:
                known = {record.key for record in after.controller.informers.frameworks.lister.values()}
                assert f"{cluster.namespace}/new" in known

            await eventually(is_known)
            held_back = False
            await after.until_leading(within=60)
            await frameworks.until("new", lambda status: condition(status, "Suspended").get("status") == "True")
            await until(lambda: set(order) == {"new", *at_rest})
            assert order[0] == "new"


@pytest.mark.virtual_clock
async def test_a_deposed_leader_reads_all_statuses_again(cluster: Cluster, frameworks: Frameworks) -> None:
    """Its records lack the tracked state. Two changes of leader later it continues from the stored state."""
    loop = asyncio.get_running_loop()
    async with replica(cluster, 3) as first:
        await first.until_leading()
        await frameworks.create("f", role(number=1))
        await frameworks.until_running("f", 1)
        held_back = True
        async with replica(cluster, 3, rule=lambda request: _no_lease_write(request) if held_back else None) as second:
            since = loop.time()
            with first.door.answering(_no_lease):
                held_back = False
                await second.until_leading(within=60)
                await frameworks.set("f", taskRoles__0__taskNumber=2)
                before = await frameworks.until_running("f", 2)

            async def relisted() -> None:
                assert first.door.count(since)["list", "frameworks"] == 1
                assert first.controller.ready

            await eventually(relisted)
            assert first.frameworks_known == 0
        await first.until_leading(within=60)
        back = loop.time()
        await frameworks.set("f", taskRoles__0__taskNumber=3)
        after = await frameworks.until_running("f", 3)
        assert uids(after)[:2] == uids(before)
        assert ("create", "configmaps") not in first.door.count(back)


@pytest.mark.virtual_clock
async def test_a_deposed_leader_leads_again_only_with_filled_caches(cluster: Cluster, frameworks: Frameworks) -> None:
    """Until then, as at its start, another replica leads at once, without waiting for its list."""

    def no_list(request: Request) -> Any:
        is_list = (request.verb, request.resource) == ("list", "frameworks")
        return refusal(503, "ServiceUnavailable", "busy") if is_list else _no_lease(request) if cut_off else None

    cut_off = True
    async with replica(cluster, 3) as first:
        await first.until_leading()
        await frameworks.create("f", role(number=1))
        await frameworks.until_running("f", 1)
        with first.door.answering(no_list):
            async with replica(cluster, 3) as second:
                await second.until_leading(within=60)
                cut_off = False
                await until(lambda: first.frameworks_known == 0)
            async with replica(cluster, 3) as third:
                await third.until_leading()
                assert await holder(frameworks) == third.identity
            await asyncio.sleep(2 * duration(cluster, 3))
            assert await holder(frameworks) == ""
        await first.until_leading(within=60)
        await frameworks.set("f", taskRoles__0__taskNumber=2)
        await frameworks.until_running("f", 2)


def _no_lease_write(request: Request) -> Any:
    """Of a standby that is not to lead yet, though the machine is too busy for the leader to renew a short Lease."""
    return _no_lease(request) if request.verb in ("create", "update", "patch") else None


def _no_lease(request: Request) -> Any:
    return refusal(503, "ServiceUnavailable", "etcd is away") if request.resource == "leases" else None


@pytest.mark.virtual_clock
async def test_an_idle_standby_sends_nothing(cluster: Cluster, frameworks: Frameworks) -> None:
    async with replica(cluster) as first, replica(cluster) as second:
        await first.until_leading()
        await asyncio.sleep(5)
        since = asyncio.get_running_loop().time()
        await asyncio.sleep(20)
        assert second.door.since(since) == []
        assert await holder(frameworks) == first.identity


@pytest.mark.virtual_clock
async def test_a_standby_that_may_not_watch_the_lease_reads_it(cluster: Cluster, frameworks: Frameworks) -> None:
    """As after an upgrade of the image alone: the older rules do not have that verb."""
    loop = asyncio.get_running_loop()

    def deny(request: Request) -> Any:
        if (request.verb, request.resource) == ("watch", "leases"):
            return refusal(403, "Forbidden", "cannot watch resource leases")
        return None

    async with succession(cluster, rule=deny) as (end_first, second):
        await asyncio.sleep(10)
        ended = loop.time()
        await end_first()
        await second.until_leading()
        assert loop.time() - ended < 5
        sent = [one.verb for one in second.door.since(0) if one.resource == "leases"]
        assert sent.count("watch") <= 3


async def test_a_leader_that_is_cut_off_stops_before_the_next_begins(cluster: Cluster, frameworks: Frameworks) -> None:
    loop = asyncio.get_running_loop()
    lasts = 15
    async with replica(cluster, lasts) as first:
        await first.until_leading()
        async with replica(cluster, lasts) as second:
            await frameworks.create("f", role(number=2))
            before = await frameworks.until_running("f", 2)
            await first.door.refuse()
            # Until then it may still send an Event of its Pods.
            cut = loop.time()
            # It has work to do that it cannot do.
            await frameworks.set("f", taskRoles__0__taskNumber=4)
            overlap = False

            async def taken_over() -> bool:
                nonlocal overlap
                overlap |= first.controller.leading and second.controller.leading
                return second.controller.leading

            await eventually(taken_over, within=2 * duration(cluster, lasts), every=0.02)
            assert not overlap
            if cluster.embedded:
                assert loop.time() - cut < duration(cluster) + 2
            after = await frameworks.until_running("f", 4)
            back = loop.time()
            await first.door.accept()

            async def stands_by() -> None:
                assert first.controller.election is not None
                assert "leases" in {request.resource for request in first.door.since(back)}
                assert first.frameworks_known == 0

            await eventually(stands_by)
            assert not first.controller.leading
            await frameworks.set("f", executionType="Stop")
            await frameworks.until_state("f", "Completed")
            # An Event that could not be sent is sent again.
            assert [one for one in first.acted(since=cut) if " events " not in one] == []
            assert first.controller.ready
    assert uids(after)[:2] == uids(before)
    assert after["attemptStatus"]["id"] == 0


@pytest.mark.virtual_clock
async def test_a_lease_that_was_only_not_renewed_in_time_is_kept(cluster: Cluster, frameworks: Frameworks) -> None:
    loop = asyncio.get_running_loop()
    async with replica(cluster, 3) as only:
        await only.until_leading()
        await frameworks.create("f", role(number=2))
        before = await frameworks.until_running("f", 2)
        with only.door.answering(
            lambda request: refusal(503, "ServiceUnavailable", "etcd is away") if request.resource == "leases" else None
        ):
            await until(lambda: not only.controller.leading)
            since = loop.time()
            await frameworks.set("f", taskRoles__0__taskNumber=3)
            await asyncio.sleep(duration(cluster))
            # The rest of the API server would have it.
            assert only.acted(since=since) == []
        after = await frameworks.until_running("f", 3)
        # The same leadership: nothing had to be read again.
        assert only.door.count(since)["list", "frameworks"] == 0
        assert uids(after)[:2] == uids(before)


@pytest.mark.virtual_clock
async def test_a_leader_that_waits_for_its_lease_for_an_hour_is_alive(cluster: Cluster, frameworks: Frameworks) -> None:
    async with AsyncExitStack() as stack:
        one = await stack.enter_async_context(replica(cluster))
        await one.until_leading()
        web = await stack.enter_async_context(WebServer(one.controller, BindAddress("127.0.0.1", 0)))
        session = await stack.enter_async_context(aiohttp.ClientSession())

        async def healthy() -> None:
            async with session.get(f"{web.url}/healthz") as answer:
                assert answer.status == 200, await answer.text()

        await frameworks.create("f", role(number=3))
        await frameworks.until_running("f", 3)
        with one.door.answering(lambda _: refusal(503, "ServiceUnavailable", "told to refuse")):
            for name in ("f-a-0", "f-a-1", "f-a-2"):
                await frameworks.delete_pod(name)
            for _ in range(12):
                await asyncio.sleep(300)
                await healthy()
        await one.until_leading()
        await healthy()
        await frameworks.until_state("f", "Completed")


async def test_a_lease_that_was_removed_is_made_again(cluster: Cluster, frameworks: Frameworks) -> None:
    async with replica(cluster) as only:
        await only.until_leading()
        await frameworks.create("f", role(number=1))
        before = await frameworks.until_running("f", 1)
        await frameworks.client.delete(LEASES, LEASE, cluster.namespace)

        async def made() -> bool:
            found = await items(frameworks.client, LEASES, cluster.namespace)
            return [item["spec"]["holderIdentity"] for item in found] == [only.identity]

        await eventually(made)
        await frameworks.set("f", taskRoles__0__taskNumber=2)
        assert uids(await frameworks.until_running("f", 2))[:1] == uids(before)


async def test_fields_of_the_lease_that_other_clients_set_are_kept(cluster: Cluster, frameworks: Frameworks) -> None:
    body = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": LEASE, "labels": {"team": "a"}},
        "spec": {"holderIdentity": ""},
    }
    await frameworks.client.create(LEASES, orjson.dumps(body), cluster.namespace)
    async with replica(cluster) as only:
        await only.until_leading()
        lease = await read(frameworks.client, LEASES, LEASE, cluster.namespace)
        assert lease["metadata"]["labels"] == {"team": "a"}
        assert lease["spec"]["leaseDurationSeconds"] == config(cluster).leader_election.lease_duration_sec
        assert lease["spec"]["leaseTransitions"] == 1
        assert lease["spec"]["acquireTime"].endswith("Z")
    lease = await read(frameworks.client, LEASES, LEASE, cluster.namespace)
    assert lease["spec"]["holderIdentity"] in ("", None)


def uids(status: dict[str, Any]) -> list[str]:
    return [task["attemptStatus"]["podUID"] for task in tasks(status)]
