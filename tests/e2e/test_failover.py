"""How soon the next leader acts: after a clean stop, in its own Pod, and when only the Lease's expiry tells.

Frameworks that are suspended from the start need one write each and no Pod. One is created every tenth of a second; the
longest time without a write is that without a leader. Times are those at which a watch shows a change, and the Lease's
own.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from time import time
from typing import Any

import orjson

from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.kube.errors import KubeError
from frameworkcontroller.kube.resources import LEASES, PODS
from tests.e2e.stage import CONTROLLER, WITHIN, Play, Track, play
from tests.e2e.test_controller import STATEFULSETS
from tests.support.eventually import eventually
from tests.support.objects import read

Json = dict[str, Any]

BEAT_SEC = 0.1


@dataclass
class Beats:
    """The Lease and the first writes of Frameworks, each with the time at which a watch showed it."""

    leases: list[tuple[float, Json]] = field(default_factory=list)
    created: dict[str, float] = field(default_factory=dict)
    written: dict[str, float] = field(default_factory=dict)

    @property
    def holder(self) -> str:
        """Who holds the Lease."""
        holder: str = self.leases[-1][1].get("holderIdentity") or "" if self.leases else ""
        return holder

    def acquired(self, *, after: float, other_than: str) -> tuple[float, Json]:
        """The first version of the Lease after that time with another holder."""
        for seen, spec in self.leases:
            if seen >= after and (spec.get("holderIdentity") or other_than) != other_than:
                return seen, spec
        raise AssertionError(f"no other holder than {other_than}")

    def first_write(self, after: float) -> float:
        """When the first write after that time was seen."""
        return min(seen for seen in self.written.values() if seen >= after)

    def longest_pause(self, after: float) -> float:
        """The longest time in which nothing was written."""
        times = sorted([after, *(seen for seen in self.written.values() if seen >= after)])
        return max(later - earlier for earlier, later in pairwise(times))


def seconds(micro_time: str) -> float:
    """Since the epoch."""
    return datetime.fromisoformat(micro_time).timestamp()


@asynccontextmanager
async def beats(play: Play) -> AsyncIterator[Beats]:
    """Create Frameworks, and see when they are written."""
    found = Beats()

    async def watch(resource: Any, namespace: str, take: Any) -> None:
        while True:
            # An API server that is busy may break a watch off.
            with suppress(KubeError):
                listed = orjson.loads(await play.client.list(resource, namespace))
                for body in listed["items"]:
                    take(time(), body)
                version = listed["metadata"]["resourceVersion"]
                async with play.client.watch(resource, namespace, resource_version=version) as lines:
                    async for line in lines:
                        event = orjson.loads(line)
                        if event["type"] == "ERROR":
                            break
                        if event["type"] in ("ADDED", "MODIFIED"):
                            take(time(), event["object"])
            await asyncio.sleep(BEAT_SEC)

    def take_lease(now: float, body: Json) -> None:
        if body["metadata"]["name"] == CONTROLLER:
            found.leases.append((now, body["spec"]))

    def take_framework(now: float, body: Json) -> None:
        name = body["metadata"]["name"]
        found.created.setdefault(name, now)
        if body.get("status"):
            found.written.setdefault(name, now)

    async def create() -> None:
        number = 0
        while True:
            await play.create(f"beat{number}", play.role(script="true"), suspend=True)
            number += 1
            await asyncio.sleep(BEAT_SEC)

    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(watch(LEASES, CONTROLLER, take_lease)),
            group.create_task(watch(FRAMEWORKS, play.namespace, take_framework)),
            group.create_task(create()),
        ]
        await eventually(lambda: _some(found), within=WITHIN)
        yield found
        for task in tasks:
            task.cancel()


async def _some(found: Beats) -> bool:
    return len(found.written) >= 5 and bool(found.holder)


async def install(play: Play, folder: str, replicas: int) -> None:
    """Install the manifests in that folder, and wait until the rolling update is over.

    Two replicas are critical, as the quota of their namespace permits, and have NetworkPolicies.
    """
    more = ("components/critical", "components/network-policies") if replicas > 1 else ()
    await play.stage.install(folder, *more)

    async def updated() -> None:
        body = await read(play.client, STATEFULSETS, CONTROLLER, CONTROLLER)
        status = body["status"]
        assert status["observedGeneration"] == body["metadata"]["generation"]
        assert status["currentRevision"] == status["updateRevision"]
        assert status["replicas"] == status.get("readyReplicas") == status.get("updatedReplicas", replicas) == replicas

    await eventually(updated, within=WITHIN, every=0.2)
    pods = await play.controllers(replicas)
    assert {"priorityClassName" in pod["spec"] for pod in pods.values()} == {bool(more)}


async def until_acquired(found: Beats, leader: str, since: float, within: float = WITHIN) -> tuple[float, Json]:
    """Wait until there is another holder, and it has written."""

    async def probe() -> None:
        seen, _ = found.acquired(after=since, other_than=leader)
        assert any(one > seen for one in found.written.values())

    await eventually(probe, within=within, every=0.05)
    await asyncio.sleep(1)
    return found.acquired(after=since, other_than=leader)


def last_of(found: Beats, holder: str) -> tuple[float, Json]:
    """The last version of the Lease of that holder."""
    return next((seen, spec) for seen, spec in reversed(found.leases) if spec.get("holderIdentity") == holder)


@play(Track.CONTROLLER)
async def test_a_stopped_leader_hands_over(play: Play) -> None:
    """Its Pod is deleted, as by a rollout or a drain."""
    await install(play, "base", 2)
    try:
        async with beats(play) as found:
            leader = found.holder
            since = time()
            await play.client.delete(PODS, leader.partition("_")[0], CONTROLLER)
            seen, _ = await until_acquired(found, leader, since)
            released = next(at for at, spec in found.leases if at >= since and not spec.get("holderIdentity"))
            wrote = found.first_write(seen)
            print(
                f"FAILOVER clean stop: deleted to released {released - since:.2f} s, released to acquired"
                f" {seen - released:.3f} s, released to first write {wrote - released:.3f} s, longest pause"
                f" {found.longest_pause(since):.2f} s"
            )
            # The standby, not a Pod that was started since.
            assert found.holder.partition("_")[0] != leader.partition("_")[0]
        await play.controllers(2)
    finally:
        await install(play, "overlays/single", 1)


@play(Track.CONTROLLER)
async def test_a_restarted_container_leads_again(play: Play) -> None:
    """The process of the only replica is killed."""
    await install(play, "overlays/single", 1)
    async with beats(play) as found:
        leader = found.holder
        since = time()
        await play.kill_controller()
        seen, spec = await until_acquired(found, leader, since)
        (pod,) = play.recorder.pods(CONTROLLER).values()
        (container,) = pod["status"]["containerStatuses"]
        started = seconds(container["state"]["running"]["startedAt"])
        print(
            f"FAILOVER restart: killed to started {started - since:.0f} s, started to acquired {seen - started:.1f} s"
            f" (startedAt in whole seconds), killed to acquired {seen - since:.2f} s, to first write"
            f" {found.first_write(seen) - since:.2f} s, acquired to first write {found.first_write(seen) - seen:.3f} s"
        )
        # The next process of the same Pod, and without waiting for the Lease to expire: that would take 15 s from its
        # start on, however late a busy machine starts it, or shows the Lease.
        assert found.holder.rpartition("_")[0] == leader.rpartition("_")[0]
        assert seconds(spec["acquireTime"]) - started < 14


@play(Track.CONTROLLER)
async def test_a_killed_leader_is_followed_when_its_lease_expires(play: Play) -> None:
    """The API server has lost its Pod with its node: only the Lease informs the standby."""
    await install(play, "base", 2)
    try:
        async with beats(play) as found:
            leader = found.holder
            name = leader.partition("_")[0]
            since = time()
            await play.kill_controller(name)
            await play.client.delete(PODS, name, CONTROLLER, grace_period_seconds=0)
            seen, spec = await until_acquired(found, leader, since)
            renewed, last = last_of(found, leader)
            print(
                f"FAILOVER kill -9: last renewal to acquired {seen - renewed:.3f} s (by the Lease's own times"
                f" {seconds(spec['acquireTime']) - seconds(last['renewTime']):.3f} s), acquired to first write"
                f" {found.first_write(seen) - seen:.3f} s, killed to first write"
                f" {found.first_write(seen) - since:.2f} s"
            )
            assert found.holder.partition("_")[0] != name
            # By the Lease's own times: a busy machine may show its versions late, also to the standby, which does not
            # wait for twice as long, though.
            assert 15 <= seconds(spec["acquireTime"]) - seconds(last["renewTime"]) < 30
        await play.controllers(2)
    finally:
        await install(play, "overlays/single", 1)
