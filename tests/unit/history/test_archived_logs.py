"""Logs in the archive: which record counts, lists and texts, their own retention."""

from __future__ import annotations

import base64
import gzip
from typing import Any

import orjson
import pytest

from frameworkcontroller.api.historyrecords import MAX_LOG_BYTES
from frameworkcontroller.history.archive import HistoryArchive
from frameworkcontroller.history.archiveerrors import QueryError, RecordError
from frameworkcontroller.history.queries import last_lines
from frameworkcontroller.history.reads import GetFramework, GetLog, ListFrameworks, ListLogs, ListTasks
from frameworkcontroller.webaccess.viewers import LogAccessError, SimpleViewer
from tests.support.archives import EPOCH, framework_record, log_record, task_record, task_status

SECOND = 1_000_000


async def logs(archive: HistoryArchive, uid: str = "u", **query: Any) -> list[Any]:
    page = await archive.read(ListLogs(uid, **query))
    assert page is not None
    return [*page["items"]]


async def text(archive: HistoryArchive, item: Any, **query: Any) -> str:
    found = await archive.read(GetLog("u", item["id"], **query))
    assert found is not None
    assert found["text"] is not None
    return found["text"]


async def test_a_log_is_listed_and_read(archive: HistoryArchive) -> None:
    await archive.store([log_record("u", 3, b"one\ntwo\n", run=1, cut_start=True, why="only its end", time=SECOND)])
    (item,) = await logs(archive)
    assert {**item, "id": 0} == {
        "id": 0,
        "frameworkAttempt": 0,
        "role": "worker",
        "index": 3,
        "taskUid": "task-3",
        "attempt": 0,
        "pod": "train-worker-3",
        "podUid": "pod-3-0",
        "node": "node-0",
        "container": "main",
        "run": 1,
        "captured": "2026-01-01T00:00:01Z",
        "size": 8,
        "cutStart": True,
        "cutEnd": False,
        "why": "only its end",
        "lastLine": "two",
    }
    assert await text(archive, item) == "one\ntwo\n"
    assert await text(archive, item, tail=1) == "two\n"
    assert await archive.read(GetLog("u", item["id"] + 1)) is None
    assert await archive.read(GetLog("v", item["id"])) is None
    # Its Framework is known by it.
    assert [one["uid"] for one in (await archive.read(ListFrameworks()))["items"]] == ["u"]


PARTS: dict[str, dict[str, Any]] = {
    "reason": {"data": b"", "why": "the node is gone"},
    "tail": {"data": b"12345", "cut_end": True},
    "more": {"data": b"123456", "cut_end": True},
    "ended": {"data": b"678", "cut_start": True},
    "whole": {"data": b"12345678"},
}


@pytest.mark.parametrize(
    ("first", "second", "stays"),
    [
        ("reason", "tail", "tail"),
        ("tail", "reason", "tail"),
        ("tail", "more", "more"),
        ("more", "tail", "more"),
        ("more", "ended", "ended"),
        ("ended", "more", "ended"),
        ("ended", "whole", "whole"),
        ("whole", "reason", "whole"),
    ],
)
@pytest.mark.parametrize("together", [True, False])
async def test_the_record_with_the_end_or_with_more_stays(
    archive: HistoryArchive, first: str, second: str, stays: str, *, together: bool
) -> None:
    lines = [log_record("u", time=n, **PARTS[name]) for n, name in enumerate((first, second))]
    for batch in [lines] if together else [[line] for line in lines]:
        await archive.store(batch)
    (item,) = await logs(archive)
    assert (await text(archive, item)).encode() == PARTS[stays]["data"]


async def test_of_two_tails_of_equal_size_the_later_one_stays(archive: HistoryArchive) -> None:
    for data, time in ((b"new", 2), (b"old", 1)):
        await archive.store([log_record("u", data=data, cut_end=True, time=time)])
    (item,) = await logs(archive)
    assert await text(archive, item) == "new"


async def test_a_record_that_comes_again_changes_nothing(archive: HistoryArchive) -> None:
    line = log_record("u")
    await archive.store([line, line])
    before = await logs(archive)
    await archive.store([line])
    assert await logs(archive) == before
    assert len(before) == 1


async def test_lists_of_an_attempt_a_role_a_task_a_container(archive: HistoryArchive) -> None:
    await archive.store(
        [
            log_record("u", index, role=role, container=container, run=run, attempt=attempt)
            for attempt in (0, 1)
            for role in ("ps", "worker")
            for index in (0, 1, 10)
            for container in ("init", "main")
            for run in (0, 1)
        ]
    )
    places = [(a, r, i, c, n) for a in (0, 1) for r in ("ps", "worker") for i in (0, 1, 10)
              for c in ("init", "main") for n in (0, 1)]  # fmt: skip

    def place(item: Any) -> tuple[Any, ...]:
        return tuple(item[name] for name in ("frameworkAttempt", "role", "index", "container", "run"))

    assert list(map(place, await logs(archive))) == places
    narrow = await logs(archive, attempt=1, role="ps", index=10, container="init")
    assert list(map(place, narrow)) == [(1, "ps", 10, "init", 0), (1, "ps", 10, "init", 1)]
    found: list[Any] = []
    after = ""
    while True:
        page = await archive.read(ListLogs("u", limit=7, after=after))
        assert page is not None
        found += map(place, page["items"])
        if page["next"] is None:
            break
        after = page["next"]
    assert found == places
    with pytest.raises(QueryError, match="after: must be `next` of a page of the same list"):
        await archive.read(ListLogs("u", after="x"))


async def test_attempts_show_how_many_logs_they_have(archive: HistoryArchive) -> None:
    roles = {"worker": [task_status(0), task_status(1)]}
    await archive.store([framework_record("u", roles=roles), task_record("u", 0), framework_record("u", attempt=1)])
    lines = [log_record("u", 0), log_record("u", 0, container="sidecar"), log_record("u", 1, b"", why="lost")]
    await archive.store(lines)
    framework = await archive.read(GetFramework("u"))
    assert framework is not None
    assert [one.get("logs") for one in framework["attempts"]] == [2, 0]
    tasks = await archive.read(ListTasks("u", 0))
    assert tasks is not None
    assert [(one["index"], one.get("logs")) for one in tasks["items"]] == [(0, 2), (1, 0)]


HOSTILE = b"\x1b[2J\x1b]0;owned\x07<script>alert(1)</script>\xff\xfe\x00\r" + "\u202e".encode() + b"\n"


async def test_bytes_come_back_as_they_were(archive: HistoryArchive) -> None:
    every = bytes(range(256)) * 3 + HOSTILE
    await archive.store([log_record("u", data=every)])
    (item,) = await logs(archive)
    found = await archive.read(GetLog("u", item["id"], raw=True))
    assert found is not None
    assert found["text"] is None
    assert base64.b64decode(found["data"] or "") == every
    # Invalid UTF-8 is replaced, and all answers are JSON.
    assert await text(archive, item) == every.decode(errors="replace")


async def test_the_largest_log_is_stored(archive: HistoryArchive) -> None:
    await archive.store([log_record("u", data=b"x" * MAX_LOG_BYTES)])
    (item,) = await logs(archive)
    assert await text(archive, item, tail=1) == "x" * MAX_LOG_BYTES


@pytest.mark.parametrize("size", [MAX_LOG_BYTES, 5])
async def test_a_gzip_bomb_is_refused(archive: HistoryArchive, size: int) -> None:
    record = orjson.loads(log_record("u"))
    bomb = base64.b64encode(gzip.compress(bytes(64 << 20))).decode()
    record["object"] |= {"data": bomb, "size": size}
    with pytest.raises(RecordError, match=rf"line 1: object\.data: must be gzip with {size} bytes"):
        await archive.store([orjson.dumps(record)])
    assert (await archive.read(ListFrameworks()))["items"] == []


@pytest.mark.parametrize(
    ("data", "last"),
    [
        (b"", ""),
        (b" \n\n", ""),
        (b"a\nb\n \n", "b"),
        (b"a\r\nb\r\n", "b"),
        (b"x" * 300, "x" * 256),
        (b"a\n\xff\x00\n", "\ufffd\ufffd"),
        (b"y" * MAX_LOG_BYTES, "y" * 256),
    ],
)
async def test_lists_have_the_last_line(archive: HistoryArchive, data: bytes, last: str) -> None:
    await archive.store([log_record("u", data=data)])
    (item,) = await logs(archive)
    assert item["lastLine"] == last


async def test_texts_with_nul_are_stored(archive: HistoryArchive) -> None:
    record = orjson.loads(log_record("u", why="x"))
    record["object"]["why"] = "a\x00b"
    await archive.store([orjson.dumps(record)])
    (item,) = await logs(archive)
    assert item["why"] == "a�b"


async def test_old_logs_go_and_their_frameworks_stay(archive: HistoryArchive) -> None:
    await archive.store([log_record("u", n, time=n * SECOND) for n in range(1200)])
    assert await archive.prune_logs() == 0
    assert await archive.prune_logs(before=EPOCH + 1190) == 1190
    assert [one["index"] for one in await logs(archive)] == list(range(1190, 1200))
    assert await archive.prune_logs(before=EPOCH + 1190) == 0
    assert len((await archive.read(ListFrameworks()))["items"]) == 1


async def test_excess_logs_go_oldest_first(archive: HistoryArchive) -> None:
    await archive.store([log_record("u", n, bytes(range(256)) * n, time=-n * SECOND) for n in range(1, 21)])
    left = await logs(archive)
    assert await archive.prune_logs(max_bytes=1 << 30) == 0
    assert 0 < await archive.prune_logs(max_bytes=6_000) < 20
    assert await logs(archive) == left[: len(await logs(archive))]
    await archive.prune_logs(max_bytes=0)
    assert await logs(archive) == []


async def test_logs_go_with_their_framework(archive: HistoryArchive) -> None:
    await archive.store([log_record("u", n) for n in range(3)])
    assert (await archive.prune(before=EPOCH + 1)).frameworks == 1
    assert await archive.read(ListLogs("u")) is None
    assert await archive.prune_logs(before=EPOCH + 1) == 0


class NoLogs(SimpleViewer):
    """May read Frameworks, and no logs."""

    async def may_read_logs(self, namespace: str) -> bool:
        del namespace
        return False


async def test_frameworks_alone_do_not_permit_logs(archive: HistoryArchive) -> None:
    await archive.store([log_record("u")])
    (item,) = await logs(archive)
    reader = await archive.for_viewer(NoLogs("n", reads=True))
    assert await reader.read(GetFramework("u")) is not None
    match = "the permission to get pods/log in namespace default"
    with pytest.raises(LogAccessError, match=match):
        await reader.read(ListLogs("u"))
    with pytest.raises(LogAccessError, match=match):
        await reader.read(GetLog("u", item["id"]))
    # Others do not exist.
    assert await reader.read(ListLogs("v")) is None
    assert await reader.read(GetLog("v", item["id"])) is None
    allowed = await archive.for_viewer(SimpleViewer("y", reads=True))
    assert await allowed.read(ListLogs("u")) is not None
    stranger = await archive.for_viewer(SimpleViewer("s", reads=False))
    assert await stranger.read(ListLogs("u")) is None


@pytest.mark.parametrize(
    ("data", "count", "expected"),
    [
        (b"a\nb\nc\n", 2, b"b\nc\n"),
        (b"a\nb\nc", 2, b"b\nc"),
        (b"a\nb\n\n", 2, b"b\n\n"),
        (b"a\nb\n", 2, b"a\nb\n"),
        (b"a\nb\n", 9, b"a\nb\n"),
        (b"\n", 1, b"\n"),
        (b"", 1, b""),
        (b"a\n", 0, b""),
    ],
)
def test_last_lines(data: bytes, count: int, expected: bytes) -> None:
    assert last_lines(data, count) == expected
