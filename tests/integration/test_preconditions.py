"""The preconditions of the status write, one by one: changes between a decision and its storage."""

import asyncio

import orjson
import pytest

from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.config.config import Config
from frameworkcontroller.kube.errors import ApiError, TransportError
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.manager.app import Controller
from tests.support.clusters import Cluster
from tests.support.exposure import Exposure
from tests.support.frameworks import Frameworks, Json, codes, role, states, tasks
from tests.support.requests import Request, Requests, Send
from tests.support.virtual_clock import VirtualClockLoop

pytestmark = pytest.mark.newest


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> Requests:
    return Requests(monkeypatch, cluster.namespace)


@pytest.fixture
async def frameworks(
    cluster: Cluster, requests: Requests, pods: SimulatedRuntime, controller: Controller
) -> Frameworks:
    return Frameworks(await cluster.client(), cluster.namespace)


@pytest.fixture
async def history(cluster: Cluster) -> Exposure:
    return Exposure(await cluster.client(), cluster.namespace)


def shows_running(request: Request) -> bool:
    return request.writes_status and "AttemptRunning" in states(request.status)


async def test_a_lost_answer_is_found_to_have_been_a_success(frameworks: Frameworks, requests: Requests) -> None:
    async def lose_the_answer(send: Send) -> bytes:
        await send()
        raise TransportError("the connection was cut")

    requests.once(shows_running, lose_the_answer)
    await frameworks.create("f", role("a", 2))
    before = await frameworks.until_running("f", 2)
    await frameworks.set("f", executionType="Stop")
    after = await frameworks.until_state("f", "Completed")
    assert requests.done
    assert pod_uids(after) == pod_uids(before)


async def test_a_status_never_lands_on_a_spec_that_it_has_not_seen(frameworks: Frameworks, requests: Requests) -> None:
    refusals: list[str] = []

    async def change_the_spec_first(send: Send) -> bytes:
        await frameworks.set("f", taskRoles__0__taskNumber=1)
        try:
            return await send()
        except ApiError as error:
            refusals.append(str(error))
            raise

    requests.once(shows_running, change_the_spec_first)
    await frameworks.create("f", role("a", 2))
    status = await frameworks.until("f", lambda status: states(status) == ["AttemptRunning"])
    assert len(refusals) == 1
    assert status["observedGeneration"] == 2
    assert status["attemptStatus"]["id"] == 0


async def test_metadata_of_other_clients_is_kept_and_does_not_matter(
    frameworks: Frameworks, requests: Requests
) -> None:
    async def annotate_first(send: Send) -> bytes:
        await frameworks.merge(FRAMEWORKS, "f", {"metadata": {"annotations": {"requestGeneration": "2"}}})
        return await send()

    requests.once(shows_running, annotate_first)
    await frameworks.create("f", role("a", 2))
    await frameworks.until_running("f", 2)
    assert requests.done
    assert (await frameworks.get("f"))["metadata"]["annotations"]["requestGeneration"] == "2"


async def test_the_status_of_another_client_is_not_overwritten(frameworks: Frameworks, requests: Requests) -> None:
    async def write_another_first(send: Send) -> bytes:
        status = await frameworks.status("f")
        status["attemptStatus"]["taskRoleStatuses"][0]["taskStatuses"][0]["retryPolicyStatus"]["totalRetriedCount"] = 7
        status["attemptStatus"]["taskRoleStatuses"][0]["taskStatuses"][0]["attemptStatus"]["id"] = 7
        body = orjson.dumps({**await frameworks.get("f"), "status": status})
        await frameworks.client.raw("PUT", FRAMEWORKS.path(frameworks.namespace, "f", "status"), body=body)
        return await send()

    # The first write after the initial one: the stored status still waits for its ConfigMap.
    requests.once(
        lambda request: request.writes_status and request.status["attemptStatus"]["configMapUID"] is not None,
        write_another_first,
    )
    await frameworks.create("f", role("a", 2))
    status = await frameworks.until_running("f", 2)
    assert requests.done
    assert [task["attemptStatus"]["id"] for task in tasks(status)] == [7, 0]


async def test_a_namesake_starts_from_scratch(frameworks: Frameworks, requests: Requests) -> None:
    replaced = asyncio.Event()

    async def replace_it_first(send: Send) -> bytes:
        await frameworks.delete("f", "Background")
        await frameworks.create("f", role("a", 1))
        replaced.set()
        return await send()

    old = await frameworks.create("f", role("a", 2), executionType="Create")
    await frameworks.until_state("f", "AttemptCreationPending")
    requests.once(lambda request: request.writes_status, replace_it_first)
    await frameworks.set("f", executionType="Start")
    # For a moment there is neither.
    await asyncio.wait_for(replaced.wait(), 300)
    status = await frameworks.until_running("f", 1)
    new = await frameworks.get("f")
    assert new["metadata"]["uid"] != old["metadata"]["uid"]
    assert len(tasks(status)) == 1


async def test_an_answer_for_a_framework_is_not_recorded_in_its_namesake(
    clock: VirtualClockLoop, frameworks: Frameworks, requests: Requests
) -> None:
    async def send_late(send: Send) -> bytes:
        await asyncio.sleep(5)
        return await send()

    requests.once(lambda request: (request.verb, request.name) == ("create", "f-attempt"), send_late)
    await frameworks.create("f", role("a", 1))
    await asyncio.sleep(1)
    (old,) = requests.creations("f-attempt")
    await frameworks.delete("f", "Background")
    await frameworks.create("f", role("a", 1))
    status = await frameworks.until_running("f", 1)
    assert old.answered is not None
    recorded = {
        request.status["attemptStatus"]["configMapUID"] for request in requests.status_writes if request.accepted
    }
    assert recorded == {None, status["attemptStatus"]["configMapUID"]}
    assert len(requests.creations("f-attempt")) > 1


def both_run(role: list[Json]) -> bool:
    return [task["state"] for task in role] == ["AttemptRunning"] * 2


async def test_two_controllers_at_once(
    cluster: Cluster, pods: SimulatedRuntime, frameworks: Frameworks, history: Exposure
) -> None:
    async with history.following():
        async with Controller(Config(), await cluster.connection(), wall=cluster.wall):
            simulate = {"run-seconds": "0.3, 0.2, 0.1", "exit-code": "200, 200, 0"}
            retry = {"retryPolicy": {"fancyRetryPolicy": True}}
            await frameworks.create("f", role("a", 5, simulate=simulate, task=retry), role("b", 3))
            await asyncio.sleep(0.2)
            await frameworks.set("f", taskRoles__1__taskNumber=2)
            await frameworks.until("f", lambda status: both_run(tasks(status, "b")))
            for index in range(2):
                pods.finish(f"{cluster.namespace}/f-b-{index}")
            status = await frameworks.until_state("f", "Completed")
        await history.until_last("Completed")
    assert codes(tasks(status, "a")) == [0] * 5
    assert codes(tasks(status, "b")) == [0] * 2
    assert [len(statuses) > 3 for statuses in history.statuses.values()] == [True]
    history.check()
    await frameworks.assert_nothing_left("f")


def pod_uids(status: Json) -> list[str]:
    return [task["attemptStatus"]["podUID"] for task in tasks(status)]
