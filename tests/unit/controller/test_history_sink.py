"""The sink of the history: batches, acknowledgements, back-off and bounds, with a destination that obeys the test."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import orjson
import pytest

from frameworkcontroller.api.codec import encode_status
from frameworkcontroller.api.historyrecords import (
    UNREADABLE_ATTEMPT,
    HistoryRecord,
    LogRecord,
    RecordId,
    Trigger,
    decode_record,
)
from frameworkcontroller.api.objects import FrameworkRecord
from frameworkcontroller.api.status import FrameworkAttemptStatus, FrameworkStatus
from frameworkcontroller.controller.historysink import (
    _BEGIN_OF_STATUS,
    BATCH_BYTES,
    LINGER_SEC,
    HistorySink,
    RecordsRefused,
    Unavailable,
)
from frameworkcontroller.machine.kernel.model import Snapshot
from frameworkcontroller.machine.kernel.requests import Answer, Answered, Refusal, Refused, Unanswered
from tests.support.virtual_clock import wall

pytestmark = pytest.mark.virtual_clock

MAX_PENDING = 8 * 2**20


class FakeDestination:
    """Keeps the ids that it has stored. ``reply``: raises, or awaits, before a batch is stored."""

    name = "the archive"

    def __init__(self, concurrency: int) -> None:
        self.concurrency = concurrency
        self.batches: list[list[str]] = []
        self.times: list[float] = []
        self.stored: list[str] = []
        self.last: list[HistoryRecord] = []
        self.reply: Callable[[list[str]], Any] = lambda _: None
        self.under_way = 0
        self.most_under_way = 0
        self.closed = False

    async def send(self, lines: Sequence[bytes]) -> None:
        self.last = [decode_record(line) for line in lines]
        ids = [str(record.id) for record in self.last]
        self.batches.append(ids)
        self.times.append(asyncio.get_running_loop().time())
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            result = self.reply(ids)
            if asyncio.iscoroutine(result):
                await result
        finally:
            self.under_way -= 1
        self.stored += ids

    async def close(self) -> None:
        self.closed = True


def raises(error: Exception) -> Callable[[list[str]], None]:
    def reply(_ids: list[str]) -> None:
        raise error

    return reply


def refuses(*bad: str) -> Callable[[list[str]], None]:
    """Refuses batches with one of these records, by the words of a server."""

    def reply(ids: list[str]) -> None:
        if set(bad) & set(ids):
            raise RecordsRefused("the archive: 400 no thanks", 400)

    return reply


def framework(uid: str = "f-1", name: str = "f") -> FrameworkRecord:
    spec = b'{"taskRoles":[{"name":"a","task":{"x":1}}]}'
    return FrameworkRecord(f"ns/{name}", "ns", name, uid, "7", 3, None, b'{"uid":"%s"}' % uid.encode(), spec, None)


def task_snapshot(
    index: int = 0, *, uid: str = "f-1", size: int = 0, trigger: Trigger = Trigger.TASK_RETRY
) -> Snapshot:
    status = {
        "instanceUID": f"t-{index}",
        "startTime": "2026-01-01T00:00:00Z",
        "attemptStatus": {"id": 0, "podName": f"f-a-{index}", "padding": "x" * size},
    }
    annotations = {
        "FC_FRAMEWORK_NAME": "f",
        "FC_FRAMEWORK_UID": uid,
        "FC_FRAMEWORK_ATTEMPT_ID": "2",
        "FC_TASKROLE_NAME": "a",
        "FC_TASK_INDEX": str(index),
    }
    return Snapshot(trigger, orjson.dumps(status), "a", index, annotations)


def task_id(index: int = 0, uid: str = "f-1") -> str:
    return f"{uid}/2/a/t-{index}/0"


FRAMEWORK_SNAPSHOT = Snapshot(Trigger.FRAMEWORK_RETRY, b'{"attemptStatus":{"id":2}}')

POD = {
    "metadata": {
        "name": "f-a-0",
        "namespace": "ns",
        "uid": "p-1",
        "annotations": {
            "FC_FRAMEWORK_UID": "f-1",
            "FC_FRAMEWORK_ATTEMPT_ID": "2",
            "FC_TASKROLE_NAME": "a",
            "FC_TASK_UID": "t-0",
            "FC_TASK_ATTEMPT_ID": "0",
        },
    }
}
POD_RECORD_ID = "f-1/2/a/t-0/0/p-1"


@asynccontextmanager
async def running(
    reply: Callable[[list[str]], Any] = lambda _: None, *, concurrency: int = 4, **options: Any
) -> AsyncIterator[tuple[HistorySink, FakeDestination]]:
    destination = FakeDestination(concurrency)
    destination.reply = reply
    given = {"triggers": Trigger, "blocks": True, "max_pending_bytes": MAX_PENDING, **options}
    sink = HistorySink(destination, wall=wall, rng=random.Random(1), **given)
    task = asyncio.create_task(sink.run())
    await asyncio.sleep(0)
    try:
        yield sink, destination
    finally:
        task.cancel()
        await asyncio.wait([task])
    assert destination.closed
    assert (sink.pending_bytes, sink.pending.total()) == (0, 0)


async def stored(sink: HistorySink, *snapshots: Snapshot, uid: str = "f-1") -> Answer:
    return await sink.store(framework(uid), "6", snapshots)


# --- records and batches ----------------------------------------------------------------------------------------------


async def test_records_of_each_kind() -> None:
    async with running() as (sink, destination):
        sink.cluster = "east"
        assert isinstance(await stored(sink, FRAMEWORK_SNAPSHOT, task_snapshot(3)), Answered)
        of_framework, of_task = destination.last
        assert of_framework == HistoryRecord(
            id=of_framework.id,
            trigger=Trigger.FRAMEWORK_RETRY,
            time="2026-01-01T00:00:00.000000Z",
            cluster="east",
            namespace="ns",
            name="f",
            generation=3,
            object={
                "apiVersion": "frameworkcontroller.microsoft.com/v1",
                "kind": "Framework",
                "metadata": {"uid": "f-1", "resourceVersion": "6"},
                "spec": {"taskRoles": [{"name": "a", "task": {"x": 1}}]},
                "status": {"attemptStatus": {"id": 2}},
            },
        )
        assert (str(of_framework.id), str(of_task.id)) == ("f-1/2", task_id(3))
        assert of_task.object["spec"] == {"x": 1}
        sink.offer_deleted_pod(POD)
        sink.offer_deleted_framework(framework(), status_json=b'{"attemptStatus":{"id":4}}')
        await sink.drain(1)
        assert [(str(one.id), one.trigger, one.object["kind"]) for one in destination.last] == [
            (POD_RECORD_ID, Trigger.POD_DELETION, "Pod"),
            ("f-1/4", Trigger.FRAMEWORK_DELETION, "Framework"),
        ]
        assert sink.records == {
            (Trigger.FRAMEWORK_RETRY, "stored"): 1,
            (Trigger.TASK_RETRY, "stored"): 1,
            (Trigger.POD_DELETION, "stored"): 1,
            (Trigger.FRAMEWORK_DELETION, "stored"): 1,
        }


@pytest.mark.parametrize(("uid", "generation"), [("f-1", 3), ("another", 0)])
async def test_the_record_of_a_pod_has_the_generation_of_its_framework(uid: str, generation: int) -> None:
    async with running() as (sink, destination):
        sink.find_framework = {"ns/f": framework(uid)}.get
        sink.offer_deleted_pod(POD)
        await sink.drain(1)
    assert [one.generation for one in destination.last] == [generation]


async def test_ten_thousand_tasks_that_retry_at_once_are_some_twenty_requests() -> None:
    async with running() as (sink, destination):
        assert isinstance(await stored(sink, *(task_snapshot(n, size=1200) for n in range(10_000))), Answered)
    assert destination.stored == [task_id(n) for n in range(10_000)]
    assert 15 <= len(destination.batches) <= 25


async def test_frameworks_share_batches_and_each_waits_for_its_own_records() -> None:
    async with running(concurrency=1) as (sink, destination):
        first = asyncio.create_task(stored(sink, task_snapshot(uid="f-0"), uid="f-0"))
        await asyncio.sleep(0.01)
        assert destination.stored == [task_id(uid="f-0")], "after a pause, a record does not wait for others"
        others = [asyncio.create_task(stored(sink, task_snapshot(uid=f"f-{n}"), uid=f"f-{n}")) for n in range(1, 100)]
        await asyncio.gather(first, *others)
    assert [len(batch) for batch in destination.batches] == [1, 99]
    assert destination.times[1] - destination.times[0] == pytest.approx(LINGER_SEC)


async def test_a_full_batch_does_not_wait_and_is_not_larger_than_its_bound() -> None:
    async with running(concurrency=1) as (sink, destination):
        began = asyncio.get_running_loop().time()
        sizes = [BATCH_BYTES // 3] * 7
        await asyncio.gather(*(stored(sink, task_snapshot(n, size=size)) for n, size in enumerate(sizes)))
        assert [len(batch) for batch in destination.batches] == [1, 2, 2, 2]
        assert destination.times[2] == began


async def test_a_record_above_the_bound_of_a_batch_goes_alone() -> None:
    async with running(concurrency=1) as (sink, destination):
        large = task_snapshot(1, size=2 * BATCH_BYTES)
        await asyncio.gather(stored(sink, task_snapshot(0)), stored(sink, large), stored(sink, task_snapshot(2)))
    assert destination.batches == [[task_id(0)], [task_id(1)], [task_id(2)]]


async def test_triggers_that_are_off_are_not_sent_and_not_waited_for() -> None:
    async with running(triggers={Trigger.TASK_RETRY}) as (sink, destination):
        assert isinstance(await stored(sink, FRAMEWORK_SNAPSHOT, task_snapshot()), Answered)
        sink.offer_deleted_pod(POD)
        sink.offer_deleted_framework(framework(), status_json=b"{}")
        await sink.drain(1)
    assert destination.stored == [task_id()]


async def test_an_impossible_record_is_logged_and_blocks_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as (sink, destination):
        changed = {**POD["metadata"], "annotations": {**POD["metadata"]["annotations"], "FC_TASK_UID": "a/b"}}  # type: ignore[dict-item]
        sink.offer_deleted_pod({"metadata": changed})
        of_task = task_snapshot()
        answer = await stored(sink, replace(of_task, status_json=of_task.status_json.replace(b'"id":0', b'"id":"x"')))
        assert isinstance(answer, Unanswered)
        assert "status.attemptStatus.id: must be a number" in answer.message
        # The last record of a Framework, without which it cannot be deleted, has an id in any case.
        for attempt in (b'"x"', b"-1", b"99999999999"):
            status_json = b'{"attemptStatus":{"id":%s,"x":0}}' % attempt
            assert isinstance(await stored(sink, Snapshot(Trigger.FRAMEWORK_DELETION, status_json)), Answered)
    assert set(destination.stored) == {f"f-1/{UNREADABLE_ATTEMPT}"}
    assert "[ns/f]: no record for the history: metadata.annotations.FC_TASK_UID: must be" in caplog.text


@pytest.mark.parametrize(
    "status_json",
    [
        encode_status("f", FrameworkStatus(0, 0, attempt=FrameworkAttemptStatus(12, 0, configmap_uid="c-1"))),
        b'{"conditions":[{"message":"\\"attemptStatus\\":{\\"id\\":7,"}],"attemptStatus":{"id":12}}',
        b'{"admission":{"a":{}},"attemptStatus":{"id":12,"x":0}}',
    ],
)
async def test_the_attempt_of_a_framework_comes_from_its_status(status_json: bytes) -> None:
    async with running() as (sink, destination):
        assert isinstance(await stored(sink, Snapshot(Trigger.FRAMEWORK_RETRY, status_json)), Answered)
    assert destination.stored == ["f-1/12"]


async def test_the_large_status_of_a_framework_is_not_parsed() -> None:
    status = encode_status("f", FrameworkStatus(0, 0, attempt=FrameworkAttemptStatus(12, 0, configmap_uid="c-1")))
    assert _BEGIN_OF_STATUS.match(status)


# --- a destination that is unavailable --------------------------------------------------------------------------------


async def test_nothing_is_acknowledged_before_it_is_stored() -> None:
    answered = asyncio.Event()
    async with running(lambda _: answered.wait()) as (sink, _):
        waiting = asyncio.create_task(stored(sink, task_snapshot()))
        await asyncio.sleep(20)
        assert not waiting.done()
        assert sink.oldest_seconds == pytest.approx(20)
        assert sink.pending == {Trigger.TASK_RETRY: 1}
        answered.set()
        assert isinstance(await waiting, Answered)
        assert sink.oldest_seconds == 0


async def test_a_failure_is_answered_at_once_and_the_machine_asks_again() -> None:
    async with running(raises(Unavailable("the archive: cannot connect"))) as (sink, destination):
        answers = await asyncio.gather(*(stored(sink, task_snapshot(n)) for n in range(3)))
        assert answers == [Unanswered("the archive: cannot connect")] * 3
        assert sink.pending.total() == 0
        destination.reply = lambda _: None
        assert isinstance(await stored(sink, task_snapshot()), Answered)
        assert sink.oldest_seconds == 0
    assert sink.records == {(Trigger.TASK_RETRY, "failed"): 3, (Trigger.TASK_RETRY, "stored"): 1}


async def test_requests_to_a_destination_that_fails_back_off_for_all_frameworks_together() -> None:

    async def insist(sink: HistorySink, n: int) -> None:
        while not isinstance(answer := await stored(sink, task_snapshot(n)), Answered):
            assert isinstance(answer, Refused)
            assert (answer.code, answer.kind) == (503, Refusal.SERVER_ERROR)
            await asyncio.sleep(0.5)

    async with running(raises(Unavailable("the archive: 503 away", 503))) as (sink, destination):
        insisting = [asyncio.create_task(insist(sink, n)) for n in range(200)]
        await asyncio.sleep(300)
        pauses = [after - before for before, after in zip(destination.times, destination.times[1:], strict=False)]
        assert max(pauses) < 16
        assert min(pauses[8:]) > 7
        assert destination.most_under_way == 1
        assert 290 < sink.oldest_seconds <= 300
        destination.reply = lambda _: None
        await asyncio.gather(*insisting)
    assert sorted(destination.stored) == sorted(task_id(n) for n in range(200))


async def test_retry_after_is_kept_and_told() -> None:
    async with running(raises(Unavailable("the archive: 429 slowly", 429, retry_after_sec=100))) as (sink, destination):
        began = asyncio.get_running_loop().time()
        for pause in (0, 30):
            await asyncio.sleep(pause)
            answer = await stored(sink, task_snapshot())
            assert isinstance(answer, Refused)
            assert (answer.code, answer.message) == (429, "the archive: 429 slowly")
            assert answer.retry_after_sec == pytest.approx(100 - pause)
        assert asyncio.get_running_loop().time() == pytest.approx(began + 30), "no call waits for such a time"
        assert len(destination.batches) == 1
        destination.reply = lambda _: None
        sink.offer_deleted_pod(POD)
        await asyncio.sleep(71)
        assert destination.times[1] - destination.times[0] == pytest.approx(100)


async def test_a_short_retry_after_is_waited_for() -> None:
    async with running(raises(Unavailable("the archive: 429 slowly", 429, retry_after_sec=10))) as (sink, destination):
        await stored(sink, task_snapshot())
        destination.reply = lambda _: None
        assert isinstance(await stored(sink, task_snapshot()), Answered)
    assert destination.times[1] - destination.times[0] == pytest.approx(10)


async def test_a_failure_that_concerns_no_record_is_forgotten() -> None:
    """Its Framework was deleted by force: nothing is sent that would show that the destination is back."""
    async with running(raises(Unavailable("the archive: cannot connect"))) as (sink, _):
        await stored(sink, task_snapshot())
        await asyncio.sleep(30)
        assert sink.oldest_seconds == pytest.approx(30)
        await asyncio.sleep(40)
        assert sink.oldest_seconds == 0


async def test_unawaited_records_stay_until_they_are_stored() -> None:
    async with running(raises(Unavailable("the archive: cannot connect"))) as (sink, destination):
        sink.offer_deleted_pod(POD)
        sink.offer(framework(), "6", [task_snapshot(0), task_snapshot(1)])
        await asyncio.sleep(200)
        assert sink.oldest_seconds == pytest.approx(200)
        assert sink.pending.total() == 3
        destination.reply = lambda _: None
        await asyncio.sleep(16)
        assert destination.stored == [POD_RECORD_ID, task_id(0), task_id(1)]
        assert sink.oldest_seconds == 0


async def test_an_unexpected_error_is_answered(caplog: pytest.LogCaptureFixture) -> None:
    async with running(raises(RuntimeError("boom"))) as (sink, destination):
        answer = await stored(sink, task_snapshot())
        assert isinstance(answer, Unanswered)
        assert "unexpected error: RuntimeError('boom')" in answer.message
        destination.reply = lambda _: None
        assert isinstance(await stored(sink, task_snapshot()), Answered)
    assert "boom" in caplog.text


async def test_an_outage_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    async with running(raises(Unavailable("the archive: cannot connect"))) as (sink, destination):
        for _ in range(5):
            await stored(sink, task_snapshot())
        destination.reply = lambda _: None
        await stored(sink, task_snapshot())
    assert caplog.messages == [
        "History: the archive: cannot connect; retrying",
        "History: the archive is available again",
    ]


# --- records that are refused -----------------------------------------------------------------------------------------


async def test_a_refused_record_blocks_only_its_own_framework() -> None:
    async with running(refuses(task_id(77))) as (sink, destination):
        await stored(sink, task_snapshot(1000))
        destination.batches.clear()
        answers = await asyncio.gather(*(stored(sink, task_snapshot(n)) for n in range(100)))
        assert [n for n, answer in enumerate(answers) if not isinstance(answer, Answered)] == [77]
        assert answers[77] == Refused(
            400,
            f"record {task_id(77)}: the archive: 400 no thanks",
            b"",
            kind=Refusal.INVALID,
            by_api=False,
        )
        assert sorted(destination.stored) == sorted(
            task_id(n) for n in range(1001) if (n < 100 and n != 77) or n == 1000
        )
        assert len(destination.batches) <= 15
        assert sink.oldest_seconds == 0, "the destination is available"

        # From then on it goes alone, and delays no other record.
        destination.batches.clear()
        answers = await asyncio.gather(*(stored(sink, task_snapshot(n)) for n in range(70, 80)))
        assert [isinstance(answer, Answered) for answer in answers] == [n != 77 for n in range(70, 80)]
        assert [batch for batch in destination.batches if task_id(77) in batch] == [[task_id(77)]]

        destination.reply = lambda _: None
        assert isinstance(await stored(sink, task_snapshot(77)), Answered)
    assert sink.records[Trigger.TASK_RETRY, "refused"] == 2


async def test_a_destination_that_refuses_all_is_not_asked_for_each_record() -> None:
    async with running(raises(RecordsRefused("the archive: 400 no thanks", 400))) as (sink, destination):
        answers = await asyncio.gather(*(stored(sink, task_snapshot(n)) for n in range(1000)))
        assert all(isinstance(answer, Refused) and answer.code == 400 for answer in answers)
    assert len(destination.batches) < 40


async def test_a_refused_unawaited_record_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    async with running(refuses(POD_RECORD_ID)) as (sink, destination):
        sink.offer_deleted_pod(POD)
        assert isinstance(await stored(sink, task_snapshot()), Answered)
    assert destination.stored == [task_id()]
    assert sink.records[Trigger.POD_DELETION, "dropped"] == 1
    assert f"dropped a record that is refused: record {POD_RECORD_ID}: the archive: 400 no thanks" in caplog.text


async def test_a_destination_that_fails_in_the_search_for_a_refused_record() -> None:

    def reply(ids: list[str]) -> None:
        if len(ids) == 10:
            raise RecordsRefused("the archive: 400 no thanks", 400)
        if task_id(5) in ids:
            raise Unavailable("the archive: cannot connect")

    async with running(reply) as (sink, destination):
        destination.concurrency = 1
        await stored(sink, task_snapshot(99))
        answers = await asyncio.gather(*(stored(sink, task_snapshot(n)) for n in range(10)))
        assert [isinstance(answer, Answered) for answer in answers] == [True] * 5 + [False] * 5
        assert answers[9] == Unanswered("the archive: cannot connect")


# --- bounds -----------------------------------------------------------------------------------------------------------


async def test_block_refuses_records_above_the_bound_and_does_not_grow() -> None:
    answered = asyncio.Event()
    async with running(lambda _: answered.wait()) as (sink, _):
        waiting = [asyncio.create_task(stored(sink, task_snapshot(n, size=2**20))) for n in range(7)]
        await asyncio.sleep(1)
        answer = await stored(sink, task_snapshot(8, size=2**20))
        assert isinstance(answer, Unanswered)
        assert "bytes of records wait for the archive" in answer.message
        assert f"history.maxPendingBytes ({MAX_PENDING})" in answer.message
        assert sink.pending_bytes <= MAX_PENDING
        # No record is made for that.
        sink._batches = None  # type: ignore[assignment]
        assert await stored(sink, task_snapshot(8, size=2**20)) == answer
        del sink._batches
        answered.set()
        await asyncio.gather(*waiting)
        assert isinstance(await stored(sink, task_snapshot(8, size=2**20)), Answered)


async def test_block_lets_a_single_record_above_the_bound_through() -> None:
    async with running() as (sink, _):
        assert isinstance(await stored(sink, task_snapshot(size=2 * MAX_PENDING)), Answered)


async def test_unawaited_records_leave_room_for_awaited_ones() -> None:
    async with running(raises(Unavailable("the archive: cannot connect"))) as (sink, destination):
        for n in range(20):
            sink.offer(framework(), "6", [task_snapshot(n, size=2**20, trigger=Trigger.TASK_DELETION)])
        assert sink.pending_bytes <= MAX_PENDING // 2
        assert sink.records[Trigger.TASK_DELETION, "dropped"] == 17
        await asyncio.sleep(1)
        destination.reply = lambda _: None
        assert isinstance(await stored(sink, task_snapshot(size=2**20)), Answered)


async def test_drop_acknowledges_at_once_and_drops_above_the_bound(caplog: pytest.LogCaptureFixture) -> None:
    async with running(raises(Unavailable("the archive: cannot connect")), blocks=False) as (sink, destination):
        answer = await stored(sink, *(task_snapshot(n, size=2**20) for n in range(10)))
        assert isinstance(answer, Answered)
        assert sink.records[Trigger.TASK_RETRY, "dropped"] == 3
        assert 6 * 2**20 < sink.pending_bytes <= MAX_PENDING
        await asyncio.sleep(100)
        destination.reply = lambda _: None
        await asyncio.sleep(20)
        assert sorted(destination.stored) == sorted(task_id(n) for n in range(7))
    assert len([text for text in caplog.messages if "dropping records" in text]) == 1


# --- the end ----------------------------------------------------------------------------------------------------------


async def test_a_stop_sends_pending_records_also_after_a_failure() -> None:
    async with running(raises(Unavailable("the archive: 429", 429, retry_after_sec=300))) as (sink, destination):
        sink.offer_deleted_pod(POD)
        await asyncio.sleep(1)
        destination.reply = lambda _: None
        began = asyncio.get_running_loop().time()
        await sink.drain(5)
        assert asyncio.get_running_loop().time() == began
    assert destination.stored == [POD_RECORD_ID]


async def test_a_stop_waits_for_a_bounded_time_and_reports_the_rest(caplog: pytest.LogCaptureFixture) -> None:
    async with running(lambda _: asyncio.sleep(1000)) as (sink, _):
        waiting = asyncio.create_task(stored(sink, task_snapshot()))
        sink.offer_deleted_pod(POD)
        began = asyncio.get_running_loop().time()
        await sink.drain(5)
        assert asyncio.get_running_loop().time() == began + 5
    assert await waiting == Unanswered("the archive: the controller stops")
    assert await stored(sink, task_snapshot()) == Unanswered("the archive: the controller stops")
    assert "2 records are not stored in the archive after 5 s" in caplog.text
    assert sink.records[Trigger.POD_DELETION, "dropped"] == 1


async def test_who_no_longer_waits_does_not_stop_the_sink() -> None:
    async with running(lambda _: asyncio.sleep(10)) as (sink, destination):
        waiting = asyncio.create_task(stored(sink, task_snapshot()))
        await asyncio.sleep(1)
        waiting.cancel()
        await asyncio.sleep(10)
        assert destination.stored == [task_id()]
        assert isinstance(await stored(sink, task_snapshot()), Answered)


# --- logs -------------------------------------------------------------------------------------------------------------

LOG = LogRecord(index=0, pod_name="f-a-0", node="n", container="main")
PLACE = ("ns", "f", 3)


async def test_a_log_has_the_id_of_its_pod() -> None:
    async with running() as (sink, destination):
        assert sink.offer_log(PLACE, RecordId.parse(POD_RECORD_ID), LOG.with_data(b"said"))
        await sink.drain(1)
        (record,) = destination.last
        assert (str(record.id), record.trigger, record.generation) == (POD_RECORD_ID, Trigger.POD_LOG, 3)
        assert LogRecord.decode(record.object).data() == b"said"


async def test_logs_have_a_part_of_the_room_and_then_only_their_reasons() -> None:
    async with running(raises(Unavailable("no"))) as (sink, _):
        found = RecordId.parse(POD_RECORD_ID)
        log = LOG.with_data(random.Random(1).randbytes(2**18))
        kept = [sink.offer_log(PLACE, found, log) for _ in range(100)]
        # A quarter of the whole: half of the room for records that nothing waits for.
        assert MAX_PENDING // 4 - 2**19 < sink.pending_bytes < MAX_PENDING // 4 + 2**17
        assert kept == sorted(kept, reverse=True)
        last = LogRecord.decode(decode_record(sink._queue[-1].line).object)
        assert (last.size, last.cut_end, last.why) == (0, True, "the history's sink is full")
        assert sink.records[Trigger.POD_LOG, "dropped"] == 0


async def test_without_the_trigger_no_log_is_taken() -> None:
    async with running(triggers=[Trigger.POD_DELETION]) as (sink, _):
        assert not sink.offer_log(PLACE, RecordId.parse(POD_RECORD_ID), LOG)
        assert sink.pending_bytes == 0
