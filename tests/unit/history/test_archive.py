"""The archive on each kind of database: storing, lists, objects, permissions."""

from __future__ import annotations

import asyncio
import base64
import gzip
import re
import time
from typing import Any

import orjson
import pytest
from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncConnection

from frameworkcontroller.api.completion import CONTAINER_UNRECOGNIZED_FAILED_PHRASE
from frameworkcontroller.history import groupcommit, ingest, queries
from frameworkcontroller.history.archive import HistoryArchive, encode
from frameworkcontroller.history.archiveerrors import ArchiveError, QueryError, RecordError
from frameworkcontroller.history.ingest import MAX_RECORD_BYTES
from frameworkcontroller.history.reads import (
    A,
    CountFailures,
    FailureKey,
    GetAttempt,
    GetFramework,
    GetTaskAttempt,
    GetTaskHistory,
    ListFailures,
    ListFrameworks,
    ListNamespaces,
    ListTasks,
    Read,
)
from tests.support.archives import (
    EPOCH,
    at,
    completion,
    framework_record,
    pod_record,
    task_record,
    task_status,
)

SECOND = 1_000_000


async def read(archive: HistoryArchive, query: Read[A | None], namespaces: frozenset[str] | None = None) -> A:
    """The answer to a query, which there must be."""
    answer = await archive.read(query, namespaces)
    assert answer is not None
    return answer


async def names(archive: HistoryArchive, namespaces: frozenset[str] | None = None, **query: Any) -> list[str]:
    """The names of all pages. Only the last page may be short."""
    found: list[str] = []
    after = ""
    while True:
        page = await archive.read(ListFrameworks(after=after, **query), namespaces)
        found += [item["name"] for item in page["items"]]
        if page["next"] is None:
            return found
        assert len(page["items"]) == query["limit"]
        after = page["next"]


async def test_a_framework_is_listed_as_its_newest_record_says(archive: HistoryArchive) -> None:
    tasks = {"worker": [task_status(0, 2, retries=2, code=0), task_status(1, code=7), task_status(2, code=None)]}
    await archive.store(
        [
            framework_record("u", time=30 * SECOND, trigger="OnFrameworkDeletion", code=7, roles=tasks),
            framework_record("u", time=20 * SECOND, state="AttemptRunning", code=None, completed=None),
        ]
    )
    page = await archive.read(ListFrameworks())
    assert page["next"] is None
    assert page["items"] == [
        {
            "uid": "u",
            "namespace": "default",
            "name": "train",
            "cluster": "cluster-1",
            "state": "Completed",
            "phase": "failed",
            "code": 7,
            "phrase": "Phrase7",
            "type": "Failed",
            "diagnostics": "ended with 7",
            "attempts": 1,
            "taskRetries": 2,
            "tasks": 3,
            "failedTasks": 1,
            "succeededTasks": 1,
            "stoppedTasks": 0,
            "created": at(0),
            "started": at(0),
            "completed": at(20),
            "archived": at(30),
            "deleted": at(30),
        }
    ]


async def test_a_framework_shows_its_attempts_and_their_objects(archive: HistoryArchive) -> None:
    await archive.store([framework_record("u", time=1, trigger="OnFrameworkRetry", code=1, state="AttemptCompleted")])
    await archive.store([framework_record("u", attempt=2, time=2, roles={"worker": [task_status(0, code=None)]})])
    await archive.store([task_record("u", 0, attempt=1)])
    found = await read(archive, GetFramework("u"))
    assert found["attemptCount"] == 3
    assert [(item["id"], item["trigger"], item["code"], item["tasks"]) for item in found["attempts"]] == [
        (0, "OnFrameworkRetry", 1, 0),
        (1, None, None, None),
        (2, "OnFrameworkCompletion", 0, 1),
    ]
    assert found["attempts"][0]["diagnostics"] == "ended with 1"
    newest = await read(archive, GetAttempt("u", 2))
    assert newest["tasks"] == {"total": 1, "running": 1, "succeeded": 0, "stopped": 0, "failed": 0}
    assert newest["object"]["metadata"]["uid"] == "u"
    assert newest["record"]["controller"] == "1.0"
    only_tasks = await read(archive, GetAttempt("u", 1))
    assert only_tasks["object"] is None
    assert await archive.read(GetAttempt("u", 3)) is None
    assert await archive.read(GetFramework("other")) is None
    assert await archive.read(GetAttempt("other", 0)) is None


async def test_a_task_attempt_without_a_record_is_shown_from_the_framework(archive: HistoryArchive) -> None:
    await archive.store([framework_record("u", roles={"worker": [task_status(0), task_status(1, 3, code=0)]})])
    found = await read(archive, GetTaskAttempt("u", 0, "worker", 1, "task-1", 3))
    assert found["trigger"] == "OnFrameworkCompletion"
    assert found["object"]["kind"] == "Task"
    assert found["object"]["spec"] == {"of": "worker"}
    assert found["object"]["status"] == task_status(1, 3, code=0)
    assert await archive.read(GetTaskAttempt("u", 0, "worker", 1, "task-1", 2)) is None


async def test_compressed_roles_are_read_and_shown(archive: HistoryArchive) -> None:
    roles = [{"name": "worker", "taskStatuses": [task_status(index, code=5) for index in range(3)]}]
    packed = base64.b64encode(gzip.compress(orjson.dumps(roles))).decode()
    status = {"taskRoleStatuses": None, "taskRoleStatusesCompressed": packed}
    await archive.store([framework_record("u", attempt_status=status)])
    page = await read(archive, ListTasks("u", 0))
    assert [(item["index"], item["code"]) for item in page["items"]] == [(0, 5), (1, 5), (2, 5)]
    found = await read(archive, GetAttempt("u", 0))
    assert found["object"]["status"]["attemptStatus"]["taskRoleStatuses"] == roles
    assert found["tasks"]["failed"] == 3


async def test_a_status_that_cannot_be_read_is_kept_whole(archive: HistoryArchive) -> None:
    """A Framework whose status is broken must be archived, too: its deletion waits for that."""
    status = {
        "id": 1 << 70,
        "startTime": "yesterday",
        "completionTime": 5,
        "completionStatus": {"code": 1 << 64, "phrase": ["a"], "type": "x", "diagnostics": "a\x00b😀"},
        "taskRoleStatuses": [3, {"name": 4}, {"name": "r", "taskStatuses": [None, {"index": "0"}, {"index": 0}]}],
        "future": {"field": [1, {"x": 1.5}]},
    }
    await archive.store(
        [
            framework_record("u", attempt_status={"taskRoleStatusesCompressed": "?", "taskRoleStatuses": None}),
            # The number cannot be encoded by orjson.
            framework_record("v", attempt_status={"completionStatus": {"code": 1}}).replace(
                b'"completionStatus":{"code":1}', b'"completionStatus":{"code":123456789012345678901234567890}'
            ),
            _with_status("w", status),
        ]
    )
    found = await read(archive, GetAttempt("v", 0))
    code = found["object"]["status"]["attemptStatus"]["completionStatus"]["code"]
    assert code == 123456789012345678901234567890
    assert found["code"] is None
    assert b"123456789012345678901234567890" in encode(found)
    found = await read(archive, GetAttempt("w", 0))
    assert found["object"]["status"]["attemptStatus"] == status
    assert found["diagnostics"] == "a\ufffdb😀"
    assert (found["started"], found["completed"], found["phrase"]) == (None, None, None)


def _with_status(uid: str, status: dict[str, Any]) -> bytes:
    import json

    line = json.loads(framework_record(uid))
    line["object"]["status"]["attemptStatus"] = status
    return json.dumps(line).encode()


async def test_a_large_record_comes_back_as_it_was(archive: HistoryArchive) -> None:
    line = task_record("u", 0, padding=300_000)
    await archive.store([line])
    found = await read(archive, GetTaskAttempt("u", 0, "worker", 0, "task-0", 0))
    assert found["object"] == orjson.loads(line)["object"]
    assert (await archive.usage()).bytes < 300_000


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"", "no JSON"),
        (b"{", "no JSON"),
        (b"[]", "must be a JSON object"),
        (b"{}", "id: "),
        (b"\xff\xfe", "no JSON"),
        (task_record("u", 0).replace(b'"time"', b'"tim"'), "time: "),
        (task_record("u", 0).replace(b'"OnTaskRetry"', b'"OnTask"'), "trigger: "),
        (task_record("u", 0).replace(b'"namespace":"default"', b'"namespace":""'), "namespace: "),
        (task_record("u", 0).replace(b'"namespace":"default"', b'"namespace":"a\\u0000"'), "namespace: "),
        (task_record("u", 0).replace(b'"cluster-1"', b'"\\ud800"'), "no JSON"),
        (task_record("u", 0).replace(b'"u/0/', b'"u\\u0000/0/'), "id: "),
        (task_record("u", 0).replace(b'"index":0', b'"index":-1'), "object.status.index: "),
        (task_record("u", 0).replace(b'"index":0', b'"index":18446744073709551617'), "object.status.index: "),
        (framework_record("u").replace(b'"kind":"Framework"', b'"kind":"Task"'), "object: "),
        (b'{"id":' + b"[" * 5000 + b"]" * 5000 + b"}", "no JSON"),
    ],
)
async def test_an_invalid_record_is_named_and_nothing_is_stored(
    archive: HistoryArchive, line: bytes, problem: str
) -> None:
    with pytest.raises(RecordError) as raised:
        await archive.store([task_record("v", 0), framework_record("w"), line, task_record("v", 1)])
    assert raised.value.line == 3
    assert raised.value.problem.startswith(problem)
    assert str(raised.value).startswith(f"line 3: {problem}")
    assert (await archive.read(ListFrameworks()))["items"] == []


async def test_a_record_of_100_mb_is_refused_unread(archive: HistoryArchive) -> None:
    with pytest.raises(RecordError, match=f"line 2: has 100000000 bytes, at most {MAX_RECORD_BYTES}"):
        await archive.store([task_record("u", 0), b"x" * 100_000_000])
    assert await archive.read(GetFramework("u")) is None


async def test_a_uid_of_another_framework_is_refused(archive: HistoryArchive) -> None:
    """Otherwise a writer of one namespace could change another one."""
    await archive.store([task_record("u", 0)])
    with pytest.raises(RecordError, match="line 2: id: u is another Framework in other records"):
        await archive.store([task_record("v", 0), task_record("u", 1, where="theirs/train")])
    with pytest.raises(RecordError, match="line 2: id: w is another Framework in other records"):
        await archive.store([task_record("w", 0), task_record("w", 1, where="theirs/train")])
    assert await names(archive) == ["train"]


async def test_one_bad_caller_does_not_fail_the_others(archive: HistoryArchive) -> None:
    await archive.store([task_record("u", 0)])
    results = await asyncio.gather(
        archive.store([task_record("v", 0)]),
        archive.store([task_record("u", 0, where="theirs/train")]),
        archive.store([task_record("w", 0)]),
        archive.store([b"?"]),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [type(None), RecordError] * 2
    assert {item["uid"] for item in (await archive.read(ListFrameworks()))["items"]} == {"u", "v", "w"}


async def test_a_record_that_the_database_refuses_does_not_fail_other_callers(
    archive: HistoryArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise one sender could keep all others from storing."""

    async def write(connection: AsyncConnection, batch: ingest.RowBatch) -> None:
        if "bad" in batch.touched:
            await connection.execute(text("SELECT * FROM nothing"))
        await ingest.write(connection, batch)

    monkeypatch.setattr(groupcommit, "write", write)
    results = await asyncio.gather(
        *(archive.store([task_record(uid, 0)]) for uid in ("u", "v", "bad", "w")), return_exceptions=True
    )
    assert [type(result) for result in results] == [type(None), type(None), ArchiveError, type(None)]
    assert {item["uid"] for item in (await archive.read(ListFrameworks()))["items"]} == {"u", "v", "w"}


async def test_a_record_from_the_future_is_refused(archive: HistoryArchive) -> None:
    """A clock may be ahead, but not by years: retention would keep such a Framework forever."""
    now = time.time()
    archive._wall = lambda: now
    ahead = int(now) - EPOCH + ingest.MAX_AHEAD_SEC
    for seconds in (ahead + 2, 251_635_000_000):
        with pytest.raises(RecordError, match="more than a day ahead of the archive's clock"):
            await archive.store([task_record("v", 0), task_record("u", 0, time=seconds * SECOND)])
    assert await names(archive, limit=10) == []
    await archive.store([task_record("u", 0, time=(ahead - 1) * SECOND)])
    assert len(await names(archive, limit=10)) == 1


async def test_a_time_of_an_object_in_the_future_is_no_value(archive: HistoryArchive) -> None:
    """It would be the first of every list forever."""
    roles = {"worker": [task_status(0, code=7)]}
    line = framework_record("u", code=7, roles=roles).replace(at(0).encode(), b"9999-12-31T23:59:59Z")
    assert b"9999" in line
    await archive.store([line])
    found = await read(archive, GetFramework("u"))
    assert "9999" not in str(found)
    page = await read(archive, ListTasks("u", 0))
    assert "9999" not in str(page["items"])


async def test_a_record_from_before_1970_is_stored(archive: HistoryArchive) -> None:
    """A clock that was never set."""
    early = [
        line.replace(b'"time":"2026', b'"time":"1969') for line in (framework_record("u", code=3), task_record("u", 0))
    ]
    for line in early:
        await archive.store([line])
    (item,) = (await archive.read(ListFrameworks()))["items"]
    assert (item["state"], item["code"], str(item["archived"])[:4]) == ("Completed", 3, "1969")
    attempt = await read(archive, GetAttempt("u", 0))
    assert attempt["code"] == 3
    assert attempt["object"] is not None


LONG = "".join(chr(0x10000 + number * 97 % 0x4000) for number in range(9000))
"""No database makes it smaller: an entry of an index cannot hold it."""


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (task_record("u", 0, where=f"{LONG}/train"), "namespace: must have at most 253 characters, and has 9000"),
        (task_record("u", 0, where=f"default/{LONG}"), "name: must have at most 253 characters, and has 9000"),
        (
            task_record("u", 0).replace(b'"cluster-1"', f'"{LONG}"'.encode()),
            "cluster: must have at most 253 characters, and has 9000",
        ),
        (task_record(LONG[:250], 0, role=LONG[:250]), "id: role and UIDs must have at most 1024 bytes, and have 20"),
    ],
)
async def test_texts_that_no_index_can_hold_are_refused(archive: HistoryArchive, line: bytes, problem: str) -> None:
    """Otherwise the database would refuse them, again and again, and with them other records of the controller."""
    with pytest.raises(RecordError) as raised:
        await archive.store([line])
    assert raised.value.problem.startswith(problem)


async def test_long_texts_inside_of_an_object_are_cut_in_columns(archive: HistoryArchive) -> None:
    status = task_status(0, code=1, node=LONG)
    roles = {"worker": [status, task_status(1, uid=LONG)], LONG: [task_status(2)]}
    line = framework_record("u", code=1, state=LONG, roles=roles, cause=(LONG, 2))
    await archive.store([line, task_record("u", 0, node=LONG), pod_record("u", 0, pod=LONG[:200])])
    page = await read(archive, ListTasks("u", 0))
    assert sorted((item["index"], len(item["role"])) for item in page["items"]) == [(0, 6), (2, 253)]
    found = await read(archive, GetTaskAttempt("u", 0, "worker", 0, "task-0", 0))
    assert found["object"]["status"]["attemptStatus"]["podNodeName"] == LONG


@pytest.mark.parametrize("number", [b"9" * 300, b"9" * 5000, b"-" + b"9" * 5000, b"1e400", b"0." + b"1" * 5000])
async def test_long_numbers(archive: HistoryArchive, number: bytes) -> None:
    """They are refused, or else shown."""
    line = task_record("u", 0).replace(b'"padding":""', b'"padding":' + number)
    try:
        orjson.loads(line)
    except orjson.JSONDecodeError:
        with pytest.raises(RecordError, match="no JSON"):
            await archive.store([line])
        return
    await archive.store([line])
    found = await read(archive, GetTaskAttempt("u", 0, "worker", 0, "task-0", 0))
    assert orjson.loads(encode(found))["object"]["spec"]["padding"] == orjson.loads(number)


async def test_acknowledged_records_are_committed_and_synced(archive: HistoryArchive, database_url: str) -> None:
    async with await HistoryArchive.open(database_url) as other:
        for number in range(5):
            await asyncio.gather(*(archive.store([task_record(f"u-{number}-{caller}", 0)]) for caller in range(3)))
            assert len((await other.read(ListFrameworks()))["items"]) == 3 * (number + 1)
    # A loss of power cannot be tried here.
    async with archive._database.writing() as connection:
        if archive._database.path is None:
            assert await connection.scalar(text("SHOW synchronous_commit")) == "on"
        else:
            assert await connection.scalar(text("PRAGMA synchronous")) == 2
            assert await connection.scalar(text("PRAGMA journal_mode")) == "wal"


async def test_namespaces_are_listed_without_reading_all_frameworks(archive: HistoryArchive) -> None:
    assert (await archive.read(ListNamespaces()))["items"] == []
    where = ["b/x", "a/x", "a/y", "ä/x", "a-1/x", "Z/x", "b/z"]
    await archive.store([task_record(f"u-{number}", 0, where=one) for number, one in enumerate(where)])
    assert (await archive.read(ListNamespaces()))["items"] == ["Z", "a", "a-1", "b", "ä"]


async def test_no_lines_are_nothing(archive: HistoryArchive) -> None:
    await archive.store([])
    assert (await archive.read(ListFrameworks()))["items"] == []


@pytest.mark.parametrize("seen", [None, frozenset({"ns-0", "ns-1"}), frozenset({"ns-1"})])
async def test_a_search_reads_a_bounded_part_of_the_archive_for_each_page(
    archive: HistoryArchive, monkeypatch: pytest.MonkeyPatch, seen: frozenset[str] | None
) -> None:
    """A word that few Frameworks have costs many short pages, not one that reads all."""
    monkeypatch.setattr(queries, "SEARCHED", 10)
    await archive.store(
        [
            framework_record(f"u-{number:02}", where=f"ns-{number % 3}/f-{number:02}", created=number % 20)
            for number in range(60)
        ]
    )
    read = [number for number in range(60) if seen is None or f"ns-{number % 3}" in seen]
    for words, expected in (("f-4", 4), ("nothing", 9), ("f-00", 0), ("ns", None)):
        for limit in (1, 3, 100):
            found, after, pages = [], "", 0
            while True:
                page = await archive.read(ListFrameworks(q=words, limit=limit, after=after), seen)
                assert len(page["items"]) <= limit
                found += [item["name"] for item in page["items"]]
                pages += 1
                if page["next"] is None:
                    break
                assert page["next"] != after
                after = page["next"]
            assert pages >= len(read) // 10
            order = sorted(read, key=lambda number: (number % 20, number), reverse=True)
            assert found == [
                f"f-{number:02}"
                for number in order
                if (number == 0 if words == "f-00" else expected is None or number // 10 == expected)
            ]


@pytest.mark.parametrize("count", [1, 2, 15, 16, 17, 600])
async def test_nothing_of_other_namespaces_is_seen_or_counted(archive: HistoryArchive, count: int) -> None:
    mine = frozenset(f"ns-{number}" for number in range(count))
    await archive.store(
        [
            line
            for number in range(20)
            for line in (
                framework_record(f"u-{number}", where=f"ns-{number}/f-{number:02}", created=number, code=9),
                task_record(f"u-{number}", 0, where=f"ns-{number}/f-{number:02}", code=8, node=f"node-{number}"),
            )
        ]
    )
    seen = [f"f-{number:02}" for number in reversed(range(min(count, 20)))]
    assert await names(archive, mine, limit=3) == seen
    assert await names(archive, mine, namespace="ns-0") == ["f-00"]
    assert await names(archive, mine, namespace="ns-19") == (["f-19"] if count > 19 else [])
    assert await names(archive, frozenset()) == []
    for by in FailureKey:
        items = (await archive.read(CountFailures(by=by), mine))["items"]
        assert sum(item["taskAttempts"] for item in items) == len(seen)
        assert {item["example"]["name"] for item in items} <= set(seen)
        assert (await archive.read(CountFailures(by=by), frozenset()))["items"] == []
        assert (await archive.read(CountFailures(by=by, namespace="ns-19"), frozenset({"ns-0"})))["items"] == []
    for none in (frozenset[str](), frozenset({"ns-x"})):
        assert await archive.read(GetFramework("u-0"), none) is None
        assert await archive.read(GetAttempt("u-0", 0), none) is None
        assert await archive.read(ListTasks("u-0", 0), none) is None
        assert await archive.read(GetTaskHistory("u-0", "worker", 0), none) is None
        assert await archive.read(GetTaskAttempt("u-0", 0, "worker", 0, "task-0", 0), none) is None
    assert await archive.read(GetFramework("u-0"), mine) is not None
    assert set((await archive.read(ListNamespaces(), mine))["items"]) == mine & {f"ns-{number}" for number in range(20)}
    assert (await archive.read(ListNamespaces()))["items"] == sorted(f"ns-{number}" for number in range(20))


async def test_pages_of_tasks(archive: HistoryArchive) -> None:
    statuses = [task_status(index, code=index % 3, uid=f"t/{index}".replace("/", "-")) for index in range(12)]
    await archive.store([framework_record("u", roles={"worker": statuses, "ps": [task_status(0, code=None)]})])
    for limit in (1, 5, 13, 100):
        found: list[tuple[str, int]] = []
        after = ""
        while True:
            page = await read(archive, ListTasks("u", 0, limit=limit, after=after))
            found += [(item["role"], item["index"]) for item in page["items"]]
            if page["next"] is None:
                break
            after = page["next"]
        assert found == [("ps", 0), *(("worker", index) for index in range(12))]
    page = await read(archive, ListTasks("u", 0, role="worker", failed=True))
    assert [item["index"] for item in page["items"]] == [index for index in range(12) if index % 3]
    page = await read(archive, ListTasks("u", 0, failed=False))
    assert [(item["role"], item["index"]) for item in page["items"]] == [
        ("ps", 0),
        *(("worker", index) for index in range(0, 12, 3)),
    ]
    # A container may exit with the number of a code for ends on request.
    exited = task_status(12, code=-210, uid="t-12")
    exited["attemptStatus"]["completionStatus"]["phrase"] = CONTAINER_UNRECOGNIZED_FAILED_PHRASE
    await archive.store([framework_record("v", roles={"worker": [exited, task_status(13, code=-210)]})])
    for is_failed, index in ((True, 12), (False, 13)):
        page = await read(archive, ListTasks("v", 0, failed=is_failed))
        assert [item["index"] for item in page["items"]] == [index]
    page = await read(archive, ListTasks("u", 0, index=4))
    assert page["items"] == [
        {
            "frameworkAttempt": 0,
            "role": "worker",
            "index": 4,
            "taskUid": "t-4",
            "attempt": 0,
            "code": 1,
            "phrase": "Phrase1",
            "type": "Failed",
            "diagnostics": "ended with 1",
            "node": "node-0",
            "pod": "train-worker-4",
            "podUid": "pod-4-0",
            "podIP": "10.0.0.1",
            "hostIP": "192.168.0.1",
            "started": at(1),
            "ran": at(2),
            "completed": at(10),
            "trigger": "OnFrameworkCompletion",
            "logs": 0,
        }
    ]
    assert await archive.read(ListTasks("u", 1)) is None
    assert await archive.read(ListTasks("other", 0)) is None


async def test_the_history_of_one_task(archive: HistoryArchive) -> None:
    lines = [task_record("u", 3, number, attempt=attempt) for attempt in range(3) for number in range(2)]
    await archive.store([*lines, task_record("u", 2), task_record("u", 3, role="ps")])
    found = await read(archive, GetTaskHistory("u", "worker", 3))
    assert [(item["frameworkAttempt"], item["attempt"]) for item in found["items"]] == [
        (attempt, number) for attempt in range(3) for number in range(2)
    ]
    assert await archive.read(GetTaskHistory("u", "worker", 7)) == {"items": []}


@pytest.mark.parametrize("after", ["x", "1", "1.2.3", "null", "WzFd", "é", "W10", "1." + "9" * 30])
async def test_a_place_in_a_list_that_is_none(archive: HistoryArchive, after: str) -> None:
    await archive.store([task_record("u", 0)])
    for call in (archive.read(ListFrameworks(after=after)), archive.read(ListTasks("u", 0, after=after))):
        with pytest.raises(QueryError, match="after: must be `next` of a page of the same list"):
            await call


async def test_a_closed_archive_says_so(database_url: str) -> None:
    archive = await HistoryArchive.open(database_url)
    await archive.close()
    with pytest.raises(ArchiveError, match="closed"):
        await archive.read(ListFrameworks())
    with pytest.raises(ArchiveError, match="closed"):
        await archive.store([task_record("u", 0)])
    with pytest.raises(ArchiveError, match="closed"):
        await archive.check()


async def test_records_are_there_after_the_archive_is_opened_again(database_url: str) -> None:
    async with await HistoryArchive.open(database_url) as archive:
        await archive.store([task_record("u", 0)])
    async with await HistoryArchive.open(database_url) as archive:
        assert await names(archive) == ["train"]


def test_all_answers_are_encoded() -> None:
    assert encode({"a": 1 << 70}) == b'{"a":%d}' % (1 << 70)
    assert encode({"ä": [completion(0)["code"]]}) == '{"ä":[0]}'.encode()


@pytest.mark.parametrize(
    "url", ["", "nonsense", "mysql://h/x", "sqlite://", "sqlite:///:memory:", "sqlite:///a.db?mode=ro", "postgresql+psycopg://h/d"]
)  # fmt: skip
async def test_a_url_of_another_kind_is_refused(url: str) -> None:
    with pytest.raises(ArchiveError, match="sqlite:///"):
        await HistoryArchive.open(url)


async def test_no_error_shows_the_password() -> None:
    with pytest.raises(ArchiveError) as raised:
        await HistoryArchive.open("postgresql://me:secret@/x?host=/nowhere")
    assert "secret" not in str(raised.value)
    assert "postgresql://me:***@" in str(raised.value)


def failed_with(uid: str, index: int, words: str, *, code: int = 7, node: str = "node-0", at: int = 10) -> bytes:
    """A failed Task attempt whose container has written that; the diagnostics have it as the controller writes it."""
    status = task_status(index, code=code, node=node, completed=at)
    pod = {"containers": [{"name": "main", "code": code, "message": words}]}
    text = f"Pod failed: PodPattern unmatched: {orjson.dumps(pod).decode()}"
    status["attemptStatus"]["completionStatus"]["diagnostics"] = text
    return framework_record(uid, where=f"default/{uid}", code=None, roles={"worker": [status]})


async def test_failures_by_cause(archive: HistoryArchive) -> None:
    """Words that differ in numbers are one cause; the same words with another code are another one."""
    told = [("rank 3 lost node-7", 7), ("rank 12 lost node-1", 7), ("no data", 7), ("no data", 9)]
    await archive.store([failed_with(f"u{n}", n, words, code=code, at=n) for n, (words, code) in enumerate(told)])
    items = (await archive.read(CountFailures(by=FailureKey.CAUSE)))["items"]
    assert [(item["key"], item["taskAttempts"], item["frameworks"]) for item in items] == [
        ("7 main exited with #: rank # lost node-#", 2, 2),
        ("7 main exited with #: no data", 1, 1),
        ("9 main exited with #: no data", 1, 1),
    ]
    first = items[0]
    assert first["label"] == "7 Phrase7: main exited with 7: rank 12 lost node-1"
    assert (first["first"], first["last"], first["example"]["name"]) == (at(0), at(1), "u1")
    for item in items:
        listed = (await archive.read(ListFailures(by=FailureKey.CAUSE, key=item["key"])))["items"]
        assert len(listed) == item["taskAttempts"]
    listed = (await archive.read(ListFailures(by=FailureKey.CAUSE, key=first["key"])))["items"]
    assert [(one["name"], one["role"], one["index"], one["code"]) for one in listed] == [
        ("u1", "worker", 1, 7),
        ("u0", "worker", 0, 7),
    ]
    with pytest.raises(QueryError, match="key: must begin with a code"):
        await archive.read(ListFailures(by=FailureKey.CAUSE, key="no code"))


async def test_each_number_of_failures_leads_to_its_attempts(archive: HistoryArchive) -> None:
    lines = [failed_with(f"u{n}", n, "no", code=n % 2 + 1, node=f"node-{n % 3}", at=n * 40_000) for n in range(9)]
    await archive.store(lines)
    for by in FailureKey:
        for item in (await archive.read(CountFailures(by=by)))["items"]:
            listed = (await archive.read(ListFailures(by=by, key=item["key"])))["items"]
            assert len(listed) == item["taskAttempts"], (by, item["key"])
    assert len((await archive.read(ListFailures(limit=4)))["items"]) == 4
    assert (await archive.read(ListFailures(), frozenset({"ns-x"})))["items"] == []
    with pytest.raises(QueryError, match="key: must be a day"):
        await archive.read(ListFailures(by=FailureKey.DAY, key="yesterday"))


async def test_failures_by_node_are_compared_with_all_attempts_there(archive: HistoryArchive) -> None:
    statuses = [task_status(n, code=int(n == 0), node=f"node-{n % 2}", completed=10) for n in range(10)]
    statuses += [task_status(10, code=None, node="node-0")]
    await archive.store(
        [
            framework_record("u", where="a/f", roles={"worker": statuses}, time=20 * SECOND),
            framework_record("v", where="b/f", roles={"worker": statuses[1:]}, time=20 * SECOND),
        ]
    )

    async def of(readable: frozenset[str] | None = None, **query: Any) -> list[tuple[str, int, int | None]]:
        items = (await archive.read(CountFailures(by=FailureKey.NODE, **query), readable))["items"]
        return [(item["key"], item["taskAttempts"], item["ofAttempts"]) for item in items]

    # Nothing of a namespace that may not be read is counted.
    assert await of(frozenset({"a"})) == [("node-0", 1, 5)]
    assert await of() == [("node-0", 1, 9)]
    assert await of(namespace="a") == [("node-0", 1, 5)]
    assert await of(since=EPOCH + 10) == [("node-0", 1, 9)]
    assert await of(since=EPOCH + 11) == []
    assert {item["ofAttempts"] for item in (await archive.read(CountFailures()))["items"]} == {None}


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (CountFailures(by=FailureKey.NODE, since=EPOCH), "task_attempts_ended"),
        (CountFailures(by=FailureKey.CODE, since=EPOCH), "task_attempts_failed"),
        (CountFailures(by=FailureKey.CAUSE, since=EPOCH), "task_attempts_failed"),
        (ListFailures(by=FailureKey.DAY, key="2026-01-01"), "task_attempts_failed"),
    ],
)
async def test_failures_are_read_from_an_index(archive: HistoryArchive, query: Read[Any], index: str) -> None:
    """No statement reads all Task attempts."""
    await archive.store([framework_record("u", roles={"worker": [task_status(n) for n in range(10)]})])
    asked: list[tuple[str, Any]] = []
    # Few rows are read as they are, unless that is forbidden.
    prefix = "EXPLAIN QUERY PLAN " if archive.path is not None else "EXPLAIN "
    engine = (await archive._database._current()).readers.sync_engine

    def keep(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if statement.startswith("SELECT"):
            asked.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", keep)
    try:
        assert (await archive.read(query))["items"]
    finally:
        event.remove(engine, "before_cursor_execute", keep)
    plans = ""
    async with archive._database.reading() as connection:
        if archive.path is None:
            await connection.execute(text("SET LOCAL enable_seqscan = off"))
        for statement, parameters in asked:
            plan = (await connection.exec_driver_sql(prefix + statement, parameters)).all()
            plans += "".join(f"{row[-1]}\n" for row in plan)
    assert index in plans
    assert not re.search(r"SCAN task_attempts|Seq Scan on task_attempts", plans)
