"""The whole controller, killed at random requests and started again, on the embedded API server.

A kill is what SIGKILL is: the controller gets no further than one request, which the API server may have executed or
not, and nothing of it runs on. What is checked is not the controller's word but the server's own record of every write.
"""

import asyncio
import random
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from frameworkcontroller.api import names
from frameworkcontroller.api.codec import decode_status
from frameworkcontroller.api.status import FrameworkStatus, State
from frameworkcontroller.app import Controller
from frameworkcontroller.config import Config
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.kube.resources import CRDS
from frameworkcontroller.local.apiserver.records import Change
from frameworkcontroller.local.apiserver.server import ApiServer
from frameworkcontroller.local.kubelet.agent import NodeAgent
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.machine.invariants import check_status, check_step
from frameworkcontroller.machine.states import ENDED
from tests.support.frameworks import Frameworks, policy, role
from tests.support.realcluster import CRD
from tests.support.virtual_clock import run, wall

FOREVER = 10_000


@dataclass(frozen=True)
class Job:
    """One Framework and what is done to it: `edits` at the first kills, one each."""

    roles: tuple[dict[str, Any], ...]
    retry: dict[str, Any]
    edits: tuple[str, ...]


@dataclass(frozen=True)
class Kill:
    """The controller is killed at its so-many-th write, before or after the API server has executed it."""

    write: int
    executed: bool


def retries(most: int) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"fancyRetryPolicy": st.booleans(), "maxRetryCount": st.integers(0, most)})


@st.composite
def roles(draw: st.DrawFn, name: str) -> dict[str, Any]:
    number = draw(st.integers(1, 3))
    simulate = {
        "run-seconds": draw(st.sampled_from(["0", "0.5", "1, 0", "3"])),
        "exit-code": draw(st.sampled_from(["0", "0", "1", "200, 0", "200, 210", "1, 0"])),
        "stop-seconds": draw(st.sampled_from(["0", "2"])),
    }
    ends = draw(st.sampled_from([policy(), policy(1), policy(-1, 1), policy(2, 2)]))
    return role(
        name, number, simulate=simulate, task={"retryPolicy": draw(retries(2))}, frameworkAttemptCompletionPolicy=ends
    )


jobs = st.builds(
    Job,
    roles=st.tuples(roles("a"), roles("b")),
    # Not fancy: a Framework whose first attempts at its Tasks fail transiently would be retried for ever, as it should.
    retry=st.fixed_dictionaries({"maxRetryCount": st.integers(0, 1)}),
    edits=st.lists(st.sampled_from(["up", "down", "drop", "stop", "pod", "configmap", "none"]), max_size=3).map(tuple),
)
kills = st.lists(st.builds(Kill, st.integers(1, 15), st.booleans()), max_size=8)


class Dying(KubeClient):
    """A client that stops for ever at one of its writes."""

    def arm(self, kill: Kill) -> None:
        """Die as `kill` says."""
        self.kill = kill
        self.writes = 0
        self.dead = asyncio.Event()

    async def write(self, send: Callable[[], Awaitable[bytes]]) -> bytes:
        """Send a write, unless it is the one to die at, or came after it."""
        self.writes += 1
        if self.writes < self.kill.write:
            return await send()
        if self.writes == self.kill.write and self.kill.executed:
            with suppress(Exception):
                await send()
        self.dead.set()
        await asyncio.Event().wait()
        raise AssertionError("the dead do not answer")

    async def create(self, *args: Any, **kwargs: Any) -> bytes:
        return await self.write(lambda: KubeClient.create(self, *args, **kwargs))

    async def patch(self, *args: Any, **kwargs: Any) -> bytes:
        return await self.write(lambda: KubeClient.patch(self, *args, **kwargs))

    async def delete(self, *args: Any, **kwargs: Any) -> bytes:
        return await self.write(lambda: KubeClient.delete(self, *args, **kwargs))


async def controller_until_killed(server: ApiServer, kill: Kill, life: int) -> bool:
    """Run a controller until it is killed, or has been idle for long; whether it was killed."""
    controller = Controller(Config(), Connection.to_address(server.url), wall=wall, rng=random.Random(life))
    client = controller._client
    client.__class__ = Dying
    assert isinstance(client, Dying)
    client.arm(kill)
    running = asyncio.create_task(controller.run())
    try:
        await asyncio.wait_for(client.dead.wait(), 60)
    except TimeoutError:
        return False
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
    return True


async def edit(frameworks: Frameworks, name: str, what: str) -> None:
    """What a user, or somebody else, does while no controller is there."""
    spec = (await frameworks.get(name))["spec"]
    match what:
        case "up":
            await frameworks.set(name, taskRoles__0__taskNumber=spec["taskRoles"][0]["taskNumber"] + 1)
        case "down":
            await frameworks.set(name, taskRoles__0__taskNumber=max(1, spec["taskRoles"][0]["taskNumber"] - 1))
        case "drop":
            await frameworks.set(name, taskRoles=spec["taskRoles"][:1])
        case "stop":
            await frameworks.set(name, executionType="Stop")
        case "pod":
            with suppress(Exception):
                await frameworks.delete_pod(f"{name}-a-0")
        case "configmap":
            with suppress(Exception):
                await frameworks.client.raw("DELETE", f"/api/v1/namespaces/default/configmaps/{name}-attempt")


async def history(work: list[Job], deaths: list[Kill]) -> list[Change]:
    """Play it; the server's record of every write."""
    with tempfile.TemporaryDirectory() as folder:
        async with (
            ApiServer(wall=wall, rng=random.Random(1), audit=True) as server,
            KubeClient(Connection.to_address(server.url)) as client,
        ):
            server.write_kubeconfig(Path(folder) / "kubeconfig")
            await client.create(CRDS, orjson.dumps(yaml.safe_load(CRD.read_text())))
            node = asyncio.create_task(NodeAgent(client, SimulatedRuntime(wall=wall), wall=wall).run())
            await asyncio.sleep(1)
            frameworks = Frameworks(client, "default")
            for number, job in enumerate(work):
                await frameworks.create(f"f{number}", *job.roles, retryPolicy=job.retry)
            for turn, kill in enumerate(deaths):
                if not await controller_until_killed(server, kill, turn):
                    break
                for number, job in enumerate(work):
                    if turn < len(job.edits):
                        await edit(frameworks, f"f{number}", job.edits[turn])
            async with Controller(Config(), Connection.to_address(server.url), wall=wall, rng=random.Random(-1)):
                for number in range(len(work)):
                    await frameworks.until_state(f"f{number}", "Completed", within=FOREVER, every=5)
                    await frameworks.assert_nothing_left(f"f{number}")
            node.cancel()
            with suppress(asyncio.CancelledError):
                await node
            assert server.storage.audit is not None
            return server.storage.audit


class Record:
    """What was promised, checked along the server's record of every write."""

    def __init__(self) -> None:
        self.statuses: dict[str, FrameworkStatus] = {}
        self.pods: dict[str, dict[str, Any]] = {}
        self.configmaps: dict[str, dict[str, Any]] = {}
        self.instances: dict[tuple[str, str, str], str] = {}
        self.exposed: set[str | None] = set()

    def take(self, change: Change) -> None:
        """Check one write."""
        new = None if change.new is None else change.new.document()
        if change.record.resource == "frameworks.frameworkcontroller.microsoft.com":
            if new is not None and new.get("status"):
                self._take_status(change.record.name, new)
        elif change.record.resource in ("pods", "configmaps") and names.FRAMEWORK_NAME in change.record.labels:
            kept = self.pods if change.record.resource == "pods" else self.configmaps
            if new is None:
                del kept[change.record.name]
                return
            if change.old is None:
                self._take_creation(change.record.resource, new)
            kept[change.record.name] = new

    def _take_status(self, name: str, framework: dict[str, Any]) -> None:
        status = decode_status(framework["status"])
        assert status is not None
        check_status(status)
        before = self.statuses.get(name)
        if before is not None:
            check_step(before, status)
        self.statuses[name] = status
        here = {uid_of(pod) for pod in self.pods.values()}
        if status.state in ENDED:
            # C4: nothing of the Framework is there.
            assert not [pod for pod in self.pods if pod.startswith(f"{name}-")]
            assert f"{name}-attempt" not in self.configmaps
        for item in status.attempt.roles:
            for task in item.tasks:
                if task.attempt.pod_uid is not None:
                    self.exposed.add(task.attempt.pod_uid)
                # C2: nothing of the Task is there.
                assert task.state not in ENDED or task.attempt.pod_uid not in here

    def _take_creation(self, resource: str, body: dict[str, Any]) -> None:
        annotations = body["metadata"]["annotations"]
        status = self.statuses[annotations[names.FRAMEWORK_NAME]]
        if resource == "configmaps":
            assert status.state is State.CREATION_PENDING
            assert annotations[names.FRAMEWORK_ATTEMPT_ID] == str(status.attempt.id)
            return
        (item,) = [item for item in status.attempt.roles if item.name == annotations[names.TASKROLE_NAME]]
        task = item.tasks[int(annotations[names.TASK_INDEX])]
        # Persisted before it was acted upon: this very Task instance and attempt waits for its Pod.
        assert task.state is State.CREATION_PENDING
        assert not task.deletion_pending
        assert annotations[names.TASK_UID] == task.instance_uid
        assert annotations[names.TASK_ATTEMPT_ID] == str(task.attempt.id)
        # An attempt has one Pod; another one only if the first was deleted by others before a client could see it.
        key = (body["metadata"]["name"], task.instance_uid, str(task.attempt.id))
        assert self.instances.get(key) not in self.exposed
        self.instances[key] = uid_of(body)


def uid_of(body: dict[str, Any]) -> str:
    uid: str = body["metadata"]["uid"]
    return uid


@given(work=st.lists(jobs, min_size=1, max_size=2), deaths=kills)
@settings(max_examples=30)
def test_every_guarantee_holds_however_often_the_controller_is_killed(work: list[Job], deaths: list[Kill]) -> None:
    record = Record()
    for change in run(history(work, deaths)):
        record.take(change)
    assert all(status.state is State.COMPLETED for status in record.statuses.values())
    assert record.pods == {}
    assert record.configmaps == {}
