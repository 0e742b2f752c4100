"""The driver: unexpected errors, even while a Framework is put into quarantine."""

import asyncio
import contextlib
import gc
import random
from dataclasses import replace
from typing import Any, cast

import orjson
import pytest

from frameworkcontroller.api import names
from frameworkcontroller.api.codec import EncodedStatus
from frameworkcontroller.api.objects import FrameworkRecord, framework_record
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.controller.driver import LARGE_IN_FLIGHT, Driver
from frameworkcontroller.controller.reconcilers import Reconcilers
from frameworkcontroller.controller.recorder import EventRecorder
from frameworkcontroller.controller.snapshots import SnapshotLogger
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.errors import ObjectNotFound, TransportError
from frameworkcontroller.kube.resources import Resource
from frameworkcontroller.machine.kernel.model import Snapshot, SnapshotTrigger
from frameworkcontroller.machine.kernel.protocol import Archive, Offer, RequeueError
from frameworkcontroller.machine.kernel.requests import Answer, Answered, Unanswered
from frameworkcontroller.machine.reconciler import Reconciler
from tests.support.bench import limits


class BrokenClient:
    """Reads raise an unexpected error, once."""

    def __init__(self) -> None:
        self.reads = 0

    async def get(self, *_: Any, **__: Any) -> bytes:
        self.reads += 1
        if self.reads == 1:
            raise ZeroDivisionError
        metadata = {"namespace": "ns", "name": "f", "uid": "another", "resourceVersion": "1", "generation": 1}
        return orjson.dumps({"metadata": metadata, "spec": {}})


class Recorder:
    """Records nothing."""

    def record(self, *_: Any, **__: Any) -> None:
        """Do nothing."""


class LostClient:
    """Loses the answers to all requests."""

    async def patch(self, *_: Any, **__: Any) -> bytes:
        raise TransportError("no answer")


def driver_of(client: object, record: FrameworkRecord) -> Driver:
    return Driver(
        client=cast(KubeClient, client),
        reconcilers=Reconcilers(),
        frameworks=cast(Any, {record.key: record}),
        configmaps=cast(Any, {}),
        pods=cast(Any, {}),
        find_companion=lambda _kind, _key, _framework: None,
        list_claims=lambda _key, _needed: (),
        limits=limits(),
        wall=lambda: 0.0,
        clock=lambda: 0.0,
        rng=random.Random(1),
        recorder=cast(EventRecorder, Recorder()),
        snapshots=cast(SnapshotLogger, None),
        relist=lambda _: None,
        listed=lambda _: 0.0,
        wrote=lambda _result, _size: None,
        count_attempts=lambda _: None,
        status_not_stored=lambda _: None,
    )


async def test_an_error_during_quarantine_does_not_hang_the_next_pass() -> None:
    record = FrameworkRecord("ns/f", "ns", "f", "u", "1", 1, None, b"{}", b"{}", b'{"state":"none"}')
    client = BrokenClient()
    driver = driver_of(client, record)
    with pytest.raises(ZeroDivisionError):
        await driver.reconcile(record.key)
    # It reads another Framework of the name the next time.
    async with asyncio.timeout(300):
        with pytest.raises(RequeueError):
            await driver.reconcile(record.key)
    assert client.reads == 2


async def test_a_failed_pass_leaves_no_reference_cycle() -> None:
    record = FrameworkRecord("ns/f", "ns", "f", "u", "1", 1, None, b"{}", b"{}", None)
    driver = driver_of(LostClient(), record)
    gc.collect()
    gc.disable()
    try:
        before = left_over()
        with contextlib.suppress(RequeueError):
            await driver.reconcile(record.key)
        # The status that was not written may be large.
        assert left_over() == before
    finally:
        gc.enable()


class SilentClient(LostClient):
    """Counts the writes in flight, which it answers when the test wants."""

    def __init__(self) -> None:
        self.writing: set[str] = set()
        self.may_answer = asyncio.Event()

    async def patch(self, _resource: Resource, name: str, *_: Any, **__: Any) -> bytes:
        self.writing.add(name)
        await self.may_answer.wait()
        return await super().patch()


async def test_few_large_requests_are_in_flight_and_small_ones_do_not_wait_for_them() -> None:
    large = orjson.dumps({"suspend": True, "description": "x" * (300 << 10)})
    record = FrameworkRecord("ns/f", "ns", "f", "u", "1", 1, None, b"{}", b"{}", None)
    records = [replace(record, key=f"n{n}/f{n}", namespace=f"n{n}", name=f"f{n}", spec_json=large) for n in range(20)]
    records.append(replace(record, key="ns/small", name="small"))
    client = SilentClient()
    driver = driver_of(client, record)
    driver.frameworks = cast(Any, {one.key: one for one in records})
    reconciling = [asyncio.create_task(driver.reconcile(one.key)) for one in records]
    machines: list[Reconciler] = []
    while len(machines) < len(records) or any(map(Reconciler.must_read, machines, records)):
        await asyncio.sleep(0.001)
        machines = [one for one in driver.reconcilers.values() if isinstance(one, Reconciler)]
    for _ in range(10):
        await asyncio.sleep(0)
    assert "small" in client.writing
    assert len(client.writing) == LARGE_IN_FLIGHT + 1
    client.may_answer.set()
    assert all(isinstance(one, RequeueError) for one in await asyncio.gather(*reconciling, return_exceptions=True))
    assert len(client.writing) == len(records)


async def test_others_continue_while_a_large_spec_is_parsed() -> None:
    # It is invalid, so that its status is small.
    roles = [{"name": f"r{number}", "taskNumber": 10_000} for number in range(20_000)]
    record = FrameworkRecord("ns/f", "ns", "f", "u", "1", 1, None, b"{}", orjson.dumps({"taskRoles": roles}), None)
    driver, steps = driver_of(LostClient(), record), 0
    reconciling = asyncio.create_task(driver.reconcile(record.key))
    while not reconciling.done():
        steps += 1
        await asyncio.sleep(0)
    assert isinstance(reconciling.exception(), RequeueError)
    assert steps > 50
    # Neither a status nor a resync makes it parse the same text again.
    machine = driver.reconcilers.get(record.key)
    assert isinstance(machine, Reconciler)
    assert not machine.must_read(replace(record, resource_version="2"))
    assert machine.must_read(replace(record, generation=2, spec_json=orjson.dumps({"taskRoles": roles[1:]})))


def left_over() -> int:
    """Number of statuses and errors in memory."""
    return sum(isinstance(one, EncodedStatus | RequeueError) for one in gc.get_objects())


class Sink:
    """A sink that answers when the test wants."""

    def __init__(self) -> None:
        self.asked: list[tuple[FrameworkRecord, str, list[Snapshot]]] = []
        self.offered: list[Snapshot] = []
        self.may_answer = asyncio.Event()

    async def store(self, framework: FrameworkRecord, version: str, snapshots: Any) -> Answer:
        self.asked.append((framework, version, list(snapshots)))
        await self.may_answer.wait()
        return Answered(b"")

    def offer(self, _framework: FrameworkRecord, _version: str, snapshots: Any) -> None:
        self.offered += snapshots


class Machine:
    """A machine that only takes answers of the history."""

    key, uid = "ns/f", "u"

    def __init__(self) -> None:
        self.answers: list[Answer] = []

    def on_archived(self, _archive: Archive, answer: Answer) -> None:
        self.answers.append(answer)


async def test_a_sink_that_hangs_holds_up_neither_a_pass_nor_a_request() -> None:
    record = FrameworkRecord("ns/f", "ns", "f", "u", "1", 1, None, b"{}", b"{}", None)
    driver = driver_of(LostClient(), record)
    sink, machine, enqueued = Sink(), Machine(), asyncio.Event()
    driver.history, driver.enqueue = cast(Any, sink), lambda _: enqueued.set()
    snapshot = Snapshot(SnapshotTrigger.FRAMEWORK_RETRY, b"{}")
    driver.carry_out(cast(Any, machine), Archive([snapshot], "7", [None]))
    driver.carry_out(cast(Any, machine), Offer([snapshot], "7"))
    assert (sink.offered, machine.answers) == ([snapshot], [])
    async with driver.slots.taken("ns/f"):
        await asyncio.sleep(0)
    assert machine.answers == []
    async with asyncio.timeout(300):
        sink.may_answer.set()
        await enqueued.wait()
    assert sink.asked == [(record, "7", [snapshot])]
    assert machine.answers == [Answered(b"")]


async def test_nothing_is_stored_of_a_framework_that_is_gone() -> None:
    driver = driver_of(LostClient(), FrameworkRecord("ns/f", "ns", "f", "other", "1", 1, None, b"{}", b"{}", None))
    sink, machine = Sink(), Machine()
    driver.history = cast(Any, sink)
    driver.carry_out(cast(Any, machine), Archive([Snapshot(SnapshotTrigger.FRAMEWORK_RETRY, b"{}")], "7", [None]))
    await asyncio.gather(*driver._archiving)
    assert (sink.asked, machine.answers) == ([], [Unanswered("the Framework is gone")])


async def test_a_sink_that_breaks_is_one_that_does_not_answer() -> None:
    driver = driver_of(LostClient(), FrameworkRecord("ns/f", "ns", "f", "u", "1", 1, None, b"{}", b"{}", None))
    machine = Machine()
    driver.history = cast(Any, object())
    driver.carry_out(cast(Any, machine), Archive([Snapshot(SnapshotTrigger.FRAMEWORK_RETRY, b"{}")], "7", [None]))
    await asyncio.gather(*driver._archiving)
    (answer,) = machine.answers
    assert isinstance(answer, Unanswered)
    assert "AttributeError" in answer.message


class HeldClient:
    """Serves a deleted Framework with a status that cannot be read, and nothing else."""

    def __init__(self) -> None:
        self.body: dict[str, Any] = {
            "metadata": {
                "namespace": "ns", "name": "f", "uid": "u", "resourceVersion": "1", "generation": 1,
                "finalizers": [names.HISTORY_FINALIZER], "deletionTimestamp": "2030-01-01T00:00:00Z",
            },
            "spec": {},
            "status": {"state": "none"},
        }  # fmt: skip
        self.patches: list[Any] = []

    async def get(self, resource: Resource, *_: Any, **__: Any) -> bytes:
        if resource is not FRAMEWORKS:
            raise ObjectNotFound("none", code=404, reason="NotFound", details={"name": "f-attempt"})
        return orjson.dumps(self.body)

    async def patch(self, _resource: Resource, _name: str, body: bytes, *_: Any, **__: Any) -> bytes:
        self.patches.append(orjson.loads(body))
        return orjson.dumps({"metadata": {"resourceVersion": "2", "uid": "u"}})


def held() -> tuple[HeldClient, Driver, Sink, list[str]]:
    """A driver of a quarantined Framework that is deleted, with a sink. The list: the keys that it enqueues."""
    client, sink, enqueued = HeldClient(), Sink(), list[str]()
    driver = driver_of(client, framework_record(client.body))
    driver.pods, driver.history, driver.enqueue = cast(Any, Pods()), cast(Any, sink), enqueued.append
    driver.limits = replace(limits(), history=frozenset(SnapshotTrigger), history_blocks=True)
    return client, driver, sink, enqueued


async def test_a_quarantined_framework_that_is_deleted_goes_once_its_status_is_stored() -> None:
    client, driver, sink, enqueued = held()
    sink.may_answer.set()
    async with asyncio.timeout(300):
        await driver.reconcile("ns/f")
        await asyncio.gather(*driver._archiving)
        assert enqueued == ["ns/f"]
        await driver.reconcile("ns/f")
    assert [one.status_json for _, _, snapshots in sink.asked for one in snapshots] == [b'{"state":"none"}']
    assert client.patches[-1][-1] == {"op": "remove", "path": "/metadata/finalizers/0"}


async def test_the_end_of_a_quarantined_framework_holds_no_worker_up() -> None:
    client, driver, sink, enqueued = held()
    async with asyncio.timeout(300):
        for _ in range(3):
            await driver.reconcile("ns/f")
    # It waits for the first answer.
    await asyncio.sleep(0)
    assert (len(sink.asked), enqueued) == (1, [])
    assert [patch[-1]["path"] for patch in client.patches] == ["/status/conditions"]
    driver.stop()
    await asyncio.gather(*driver._archiving, return_exceptions=True)


class Pods:
    """No Pods."""

    def by_index(self, _key: str) -> dict[str, Any]:
        return {}
