"""The rules of a sync that are easily lost, one by one, as the API server and its clients see them."""

import asyncio
import itertools
import logging
import uuid
from collections.abc import Callable
from typing import Final

import orjson
import pytest

from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.config.config import Config
from frameworkcontroller.kube.client import MERGE_PATCH
from frameworkcontroller.kube.errors import TooLarge, TransportError
from frameworkcontroller.local.apiserver.object_records import Origin
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.manager.app import Controller
from tests.support.clusters import Cluster
from tests.support.eventually import eventually
from tests.support.frameworks import Frameworks, Json, condition, role, states, tasks
from tests.support.requests import Hook, Request, Requests, Send
from tests.support.virtual_clock import VirtualClockLoop


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch, cluster: Cluster) -> Requests:
    return Requests(monkeypatch, cluster.namespace)


@pytest.fixture
async def frameworks(
    cluster: Cluster, requests: Requests, pods: SimulatedRuntime, controller: Controller
) -> Frameworks:
    return Frameworks(await cluster.client(), cluster.namespace)


def is_status_write(request: Request) -> bool:
    return request.writes_status


def records_a_pod(request: Request) -> bool:
    """Whether the request writes a status that records a Pod."""
    return request.writes_status and any(pod_uids(request.status))


def pod_uids(status: Json) -> list[str | None]:
    return [
        task["attemptStatus"].get("podUID")
        for item in status["attemptStatus"]["taskRoleStatuses"]
        for task in item["taskStatuses"]
    ]


def told(caplog: pytest.LogCaptureFixture, reason: str) -> int:
    """How many lines tell of it."""
    return sum(f": {reason}: " in record.getMessage() for record in caplog.records)


async def store(frameworks: Frameworks, name: str, status: Json) -> None:
    """Write the status, as another controller would."""
    body = orjson.dumps({**await frameworks.get(name), "status": status})
    await frameworks.client.raw("PUT", FRAMEWORKS.path(frameworks.namespace, name, "status"), body=body)


async def annotate(frameworks: Frameworks, name: str) -> None:
    """Change the Framework's metadata."""
    body = orjson.dumps({"metadata": {"annotations": {"something": str(uuid.uuid4())}}})
    await frameworks.client.patch(FRAMEWORKS, name, body, frameworks.namespace, content_type=MERGE_PATCH)


# --- preconditions -----------------------------------------------------------------------------------------------


async def test_a_write_tests_the_generation_on_which_its_status_was_decided(
    frameworks: Frameworks, requests: Requests
) -> None:
    """A status write tests the generation on which the tracked status was decided, not the newest one read."""

    async def change_the_spec_and_lose_the_request(_: Send) -> bytes:
        await frameworks.set("f", taskRoles__0__taskNumber=1)
        # Until the cache of the controller shows it.
        await asyncio.sleep(0.5)
        raise TransportError("the connection was cut")

    requests.once(records_a_pod, change_the_spec_and_lose_the_request)
    await frameworks.create("f", role("a", 2))
    await frameworks.until("f", lambda status: states(status) == ["AttemptRunning"])
    refused = [request for request in requests.status_writes if request.refused]
    # The lost one, and the same once more.
    assert [request.tested_generation for request in refused] == [1, 1]


async def test_a_change_of_the_spec_lets_no_write_be_refused(frameworks: Frameworks, requests: Requests) -> None:
    """It gives the stored status a new version, which the event of the change shows."""

    async def all_accepted() -> None:
        assert all(request.accepted for request in requests.status_writes)

    await frameworks.create("f", role("a", 2))
    await frameworks.until_running("f", 2)
    for number in (3, 1, 2):
        await eventually(all_accepted)
        await frameworks.set("f", taskRoles__0__taskNumber=number)
        running = ["AttemptRunning"] * number
        await frameworks.until("f", lambda status, running=running: states(status) == running)  # type: ignore[misc]
    await eventually(all_accepted)


async def test_what_was_created_is_persisted_first_after_a_take_over(
    frameworks: Frameworks, requests: Requests, caplog: pytest.LogCaptureFixture
) -> None:
    """After a take-over, the UIDs of created Pods are put into the other writer's status and stored before all else."""
    caplog.set_level(logging.INFO)

    async def write_another_first(send: Send) -> bytes:
        await frameworks.delete_pod("f-a-0", grace=0)
        status = await frameworks.status("f")
        tasks(status)[1]["retryPolicyStatus"]["totalRetriedCount"] = 7
        await store(frameworks, "f", status)
        # Until the cache of the controller shows it.
        await asyncio.sleep(0.5)
        return await send()

    requests.once(records_a_pod, write_another_first)
    await frameworks.create("f", role("a", 2))
    status = await frameworks.until_running("f", 1)
    assert requests.done
    # The Pod that is gone was recorded: no second one is made for its attempt.
    await asyncio.sleep(1)
    assert len(requests.creations("f-a-")) == 2
    taken_over = next(request for request in requests.status_writes if request.refused)
    after = requests.all[requests.all.index(taken_over) + 1 :]
    first = next(request for request in after if request.verb != "get")
    assert first.writes_status
    assert pod_uids(first.status) == pod_uids(taken_over.status) == pod_uids(status)
    assert states(first.status) == ["AttemptCreationRequested"] * 2
    assert [task["retryPolicyStatus"]["totalRetriedCount"] for task in tasks(first.status)] == [0, 7]
    # What was decided before, and dropped, is not told.
    assert told(caplog, "PodCreated") == 2
    assert told(caplog, "TaskRunning") == 1


async def test_a_take_over_repeats_only_what_is_not_stored_yet(frameworks: Frameworks, requests: Requests) -> None:
    """The UIDs of created Pods are forgotten once a write that records them is accepted."""

    await frameworks.create("f", role("a", 2))
    before = await frameworks.until_running("f", 2)
    old = [one.status for one in requests.status_writes if one.accepted and not any(pod_uids(one.status))][-1]

    async def put_an_old_one_first(send: Send) -> bytes:
        await store(frameworks, "f", old)
        return await send()

    requests.once(is_status_write, put_an_old_one_first)
    await frameworks.delete_pod("f-a-0", grace=0)

    def runs_again(status: Json) -> bool:
        return states(status) == ["AttemptRunning"] * 2 and pod_uids(status)[0] != pod_uids(before)[0]

    after = await frameworks.until("f", runs_again)
    assert requests.done
    assert [task["attemptStatus"]["id"] for task in tasks(after)] == [0, 0]
    assert pod_uids(after)[1] == pod_uids(before)[1]


async def test_an_accepted_write_ends_a_row_of_failed_preconditions(
    clock: VirtualClockLoop, frameworks: Frameworks, requests: Requests
) -> None:
    """Writes wait only after several preconditions in a row have failed: an accepted one starts the count anew."""

    async def annotate_first(send: Send) -> bytes:
        await annotate(frameworks, "f")
        return await send()

    for _ in range(2):
        for _ in range(3):
            requests.once(is_status_write, annotate_first)
        requests.once(is_status_write, lambda send: send())
    await frameworks.create("f", role("a", 2))
    await frameworks.until_running("f", 2)
    assert requests.done
    writes = requests.status_writes
    assert [request.accepted for request in writes[:8]] == [False, False, False, True] * 2
    for refused, following in itertools.pairwise(writes):
        if not refused.accepted:
            assert refused.answered is not None
            assert following.sent - refused.answered < 0.001


# --- actions under way ----------------------------------------------------------------------------------------------


@pytest.fixture
async def alone(cluster: Cluster, requests: Requests, controller: Controller) -> Frameworks:
    """Frameworks on a cluster without a node: their Pods stay as they were created."""
    return Frameworks(await cluster.client(), cluster.namespace)


def creates(name: str) -> Callable[[Request], bool]:
    """Whether a request creates the object of that name."""
    return lambda request: request.verb == "create" and request.name == name


def late(before: float, after: float = 0.0) -> Hook:
    """Send a request after so many seconds, and have it answered so many seconds later."""

    async def send_late(send: Send) -> bytes:
        await asyncio.sleep(before)
        answer = await send()
        await asyncio.sleep(after)
        return answer

    return send_late


async def test_what_is_answered_while_a_status_is_written_is_in_the_next_write(
    clock: VirtualClockLoop, alone: Frameworks, requests: Requests
) -> None:
    """Nothing is folded between encoding a status and its acceptance: it would pass for persisted."""
    requests.once(creates("f-a-1"), late(0, 10))
    requests.once(creates("f-a-2"), late(0, 100))
    requests.once(records_a_pod, late(10))
    requests.hold_watches("Pod")
    await alone.create("f", role("a", 3))

    def records_both(status: Json) -> bool:
        return [uid is not None for uid in pod_uids(status)] == [True, True, False]

    await alone.until("f", records_both)
    first, second = [request for request in requests.status_writes if records_a_pod(request)]
    (answered,) = [request.answered for request in requests.creations("f-a-1")]
    assert answered is not None
    assert first.answered is not None
    assert first.sent < answered < first.answered < second.sent
    requests.let_watches_go("Pod")


async def test_a_controller_that_stops_writes_what_it_knows_and_begins_nothing(
    clock: VirtualClockLoop, cluster: Cluster, requests: Requests
) -> None:
    """A stopping controller writes at once what it would gather otherwise, and starts no action."""
    frameworks = Frameworks(await cluster.client(), cluster.namespace)
    requests.always(lambda request: request.verb == "create" and request.kind == "Pod", late(0, 0.5))
    async with Controller(Config(), await cluster.connection(), wall=cluster.wall):
        await frameworks.create("f", role("a", 3))
        # In the middle of the first creation.
        await asyncio.sleep(0.25)
        stopped = clock.time()
    (created,) = requests.creations("f-a-")
    assert created.sent < stopped
    assert [uid is not None for uid in pod_uids(await frameworks.status("f"))] == [True, False, False]
    assert requests.status_writes[-1].sent == created.answered


async def test_a_namesake_ends_what_is_done_for_the_framework_before(
    clock: VirtualClockLoop, alone: Frameworks, requests: Requests
) -> None:
    """A Framework that was deleted and created again under its name interrupts the actions of the one before."""
    requests.always(lambda request: request.name.startswith("f-a-"), late(0, 2))
    await alone.create("f", role("a", 200))
    await asyncio.sleep(5)
    await alone.delete("f", "Background")
    await alone.create("f", role("b", 2))
    replaced = clock.time()
    await asyncio.sleep(60)
    assert len(requests.creations("f-b-")) == 2
    begun = [request.sent for request in requests.creations("f-a-")]
    assert 1 < len(begun) < 200
    assert max(begun) <= replaced


async def test_what_a_framework_asked_for_is_not_recorded_in_its_namesake(
    clock: VirtualClockLoop, frameworks: Frameworks, requests: Requests
) -> None:
    """An outcome belongs to the Framework that asked for it, not to the one that bears its name by then."""
    requests.once(creates("f-attempt"), late(0, 5))
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


# --- when a status is written ---------------------------------------------------------------------------------------


async def test_steps_that_follow_from_each_other_are_written_together(
    clock: VirtualClockLoop, frameworks: Frameworks, requests: Requests
) -> None:
    """A sync plans again what follows from its own plan, before it writes."""
    await frameworks.create("f", role("a", 2))
    await frameworks.until_running("f", 2)
    await frameworks.delete_pod("f-a-0", grace=0)
    await frameworks.until("f", lambda status: "Completed" in states(status))
    shown = {states(request.status)[0] for request in requests.status_writes}
    assert "AttemptCompleted" not in shown


async def test_what_happens_while_a_write_waits_for_its_turn_goes_with_it(
    clock: VirtualClockLoop, frameworks: Frameworks, pods: SimulatedRuntime, requests: Requests
) -> None:
    """A status is planned once more when its write gets a slot: the busier the API server, the fewer the writes."""
    await frameworks.create("f", role("a", 3))
    await frameworks.until_running("f", 3)
    # All requests that a namespace may have under way.
    requests.always(lambda request: request.name.startswith("busy-a-"), late(0, 10))
    await frameworks.create("busy", role("a", 200))
    await asyncio.sleep(15)
    began = len(requests.status_writes)
    assert sum(request.answered is None for request in requests.creations("busy-a-")) == 50
    pods.fail(f"{frameworks.namespace}/f-a-0")
    await asyncio.sleep(2)
    pods.fail(f"{frameworks.namespace}/f-a-1")
    finished = clock.time()
    await frameworks.until("f", lambda status: states(status).count("AttemptRunning") == 1)
    writes = [request for request in requests.status_writes[began:] if request.name == "f"]
    assert writes[0].sent > finished
    assert states(writes[0].status).count("AttemptRunning") == 1


@pytest.mark.parametrize(("write_sec", "wait_sec"), [(0.0, 1.0), (0.3, 3.0), (3.0, 10.0)])
async def test_a_step_waits_for_the_next_one(
    clock: VirtualClockLoop, alone: Frameworks, requests: Requests, write_sec: float, wait_sec: float
) -> None:
    """What is only requested is written with what follows from it; after a second, or later where writes are slow."""
    requests.hold_watches("Pod")
    requests.always(is_status_write, late(write_sec))
    await alone.create("f", role("a", 1))
    await alone.until("f", lambda status: all(pod_uids(status)))
    _, second = requests.status_writes
    (created,) = requests.creations("f-a-0")
    assert created.answered is not None
    assert second.sent - created.answered == pytest.approx(wait_sec, abs=0.01)
    requests.let_watches_go("Pod")


async def test_changes_of_tasks_are_gathered_and_those_of_the_framework_are_not(
    clock: VirtualClockLoop, frameworks: Frameworks, requests: Requests
) -> None:
    """After a quiet, a change is written at once; then changes are gathered, unless the whole Framework waits."""
    requests.always(is_status_write, late(1))
    number = 20
    roles = [role(f"r{index}", 1, simulate={"prepare-seconds": 5 + 0.3 * index}) for index in range(number)]
    await frameworks.create("f", *roles)
    await frameworks.until_running("f", number)
    (created,) = requests.creations("f-r0-0")
    assert created.answered is not None
    first, *others, last = [one for one in requests.status_writes if "AttemptRunning" in states(one.status)]
    assert first.sent - created.answered == pytest.approx(5, abs=0.01)
    for previous, following in itertools.pairwise([first, *others]):
        assert previous.answered is not None
        assert following.sent - previous.answered >= 1
    assert len(others) >= 2
    began = clock.time()
    await frameworks.set("f", executionType="Stop")
    await frameworks.until_state("f", "AttemptDeletionPending")
    urgent = next(one for one in requests.status_writes if one.status["state"] == "AttemptDeletionPending")
    assert last.answered is not None
    assert began - last.answered < 0.1
    assert urgent.sent == began


async def test_what_follows_soon_after_a_write_is_gathered_for_as_long_as_that_took(
    clock: VirtualClockLoop, frameworks: Frameworks, requests: Requests
) -> None:
    """The first of several changes after a write waits for the others; after a quiet it does not."""
    requests.always(is_status_write, late(1))
    # Written from 5 to 6, and not before 7 again.
    prepare = [5, 7.3, 8, 20, 100]
    roles = [role(f"r{index}", 1, simulate={"prepare-seconds": seconds}) for index, seconds in enumerate(prepare)]
    await frameworks.create("f", *roles)
    await frameworks.until_running("f", 4)
    (created,) = requests.creations("f-r0-0")
    assert created.answered is not None
    began = created.answered
    shown = [(round(one.sent - began, 2), states(one.status).count("AttemptRunning")) for one in requests.status_writes]
    assert shown[-3:] == [(5, 1), (8.3, 3), (20, 4)]


async def test_only_the_first_status_at_rest_is_written_at_once(
    clock: VirtualClockLoop, frameworks: Frameworks, requests: Requests
) -> None:
    """Where Tasks end one by one, with none on its way, their ends are gathered as other changes are."""
    requests.always(is_status_write, late(1))
    await frameworks.create("f", role("a", 5))
    await frameworks.until_running("f", 5)
    await asyncio.sleep(10)
    began = clock.time()
    for index, at in enumerate([0, 2.2, 2.9]):
        await asyncio.sleep(began + at - clock.time())
        await frameworks.delete_pod(f"f-a-{index}", grace=0)
    await frameworks.until("f", lambda status: states(status).count("Completed") == 3)
    shown = [(round(one.sent - began, 2), states(one.status).count("Completed")) for one in requests.status_writes]
    assert shown[-2:] == [(0, 1), (3.2, 3)]


async def test_a_status_that_cannot_even_say_that_it_is_too_large_is_logged_once(
    clock: VirtualClockLoop, alone: Frameworks, requests: Requests, caplog: pytest.LogCaptureFixture
) -> None:
    """Where the condition Stalled is too large, too, log and Event say so, once, and the write is tried seldom."""

    async def refuse_all(_: Send) -> bytes:
        raise TooLarge("etcdserver: request is too large", code=500)

    requests.always(is_status_write, refuse_all)
    await alone.create("f", role("a", 1))
    # It is tried again every five minutes.
    await asyncio.sleep(3.5 * 300)
    assert told(caplog, "StatusTooLarge") == 1
    # Each time the status itself, and the one that says that it is too large.
    assert len(requests.status_writes) == 2 * 4
    await alone.assert_nothing_left("f")


# --- generations and deletions --------------------------------------------------------------------------------------

STAYS: Final = {"finalizers": ["example.com/stay"]}


def set_back(cluster: Cluster, name: str, generation: int) -> None:
    """Give the stored Framework a lower generation, as after a restore of the API server from a backup."""
    assert cluster.server is not None
    storage = cluster.server.storage
    record = storage.get(FRAMEWORKS.qualified, f"{cluster.namespace}/{name}")
    assert record is not None
    document = record.document()
    document["metadata"]["generation"] = generation
    storage.update(record, document, Origin("update"), record.fields)


async def refuse(_: Send) -> bytes:
    raise TransportError("the connection was cut")


async def test_a_generation_that_went_back_is_believed(
    clock: VirtualClockLoop, cluster: Cluster, frameworks: Frameworks, requests: Requests
) -> None:
    """What a live read shows after a failed precondition counts, even an older generation than the one known."""

    async def set_back_first(send: Send) -> bytes:
        set_back(cluster, "f", 1)
        return await send()

    await frameworks.create("f", role("a", 2))
    before = await frameworks.until_running("f", 2)
    requests.once(is_status_write, set_back_first)
    await frameworks.set("f", taskRoles__0__taskNumber=3)
    after = await frameworks.until_running("f", 3)
    assert requests.done
    assert after["observedGeneration"] == 1
    assert pod_uids(after)[:2] == pod_uids(before)


async def test_a_deletion_with_an_older_generation_counts(
    clock: VirtualClockLoop, cluster: Cluster, alone: Frameworks, requests: Requests
) -> None:
    """A Framework that the cache shows as being deleted is, even if its generation is older than the one known."""
    requests.always(creates("f-attempt"), refuse)
    await alone.create("f", role("a", 1), metadata=STAYS)
    for number in (2, 3):
        await alone.set("f", taskRoles__0__taskNumber=number)
    await alone.until("f", lambda status: condition(status, "Stalled").get("status") == "True")
    assert (await alone.get("f"))["metadata"]["generation"] == 3
    set_back(cluster, "f", 1)
    await asyncio.sleep(1)
    await alone.delete("f")
    deleted = clock.time()
    await asyncio.sleep(60)
    assert max(request.sent for request in requests.creations("f-attempt")) <= deleted


async def test_a_deletion_that_a_live_read_shows_counts_while_the_cache_is_behind(
    clock: VirtualClockLoop, alone: Frameworks, requests: Requests
) -> None:
    """A Framework that a live read has shown as being deleted stays so, whatever an older cache shows."""
    requests.always(creates("f-attempt"), refuse)
    await alone.create("f", role("a", 1), metadata=STAYS)
    await alone.until_state("f", "AttemptCreationPending")
    requests.hold_watches("Framework")
    await alone.delete("f")

    async def is_refused() -> Request:
        refused = [request for request in requests.status_writes if request.refused]
        assert refused
        return refused[0]

    refused = await eventually(is_refused)
    await asyncio.sleep(60)
    assert refused.answered is not None
    assert max(request.sent for request in requests.creations("f-attempt")) <= refused.answered
    requests.let_watches_go("Framework")
