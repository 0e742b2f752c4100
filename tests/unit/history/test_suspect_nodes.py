"""Failures of nodes in the archive: compared with other nodes, without Pods that had to make room, and suspects."""

from __future__ import annotations

from typing import Any

import pytest

from frameworkcontroller.history.archive import HistoryArchive
from frameworkcontroller.history.archiveapi import new_metrics
from frameworkcontroller.history.reads import CountFailures, FailureKey, ListFailures
from frameworkcontroller.history.suspectnodes import is_suspect, ranked
from tests.support.archives import EPOCH, framework_record, task_status

BY_NODE = CountFailures(FailureKey.NODE)


def record(uid: str, *ends: tuple[str, int], where: str = "", time: int = 10) -> bytes:
    """A Framework whose Tasks ended on these nodes with these codes."""
    statuses = [task_status(n, code=code, node=node, completed=time) for n, (node, code) in enumerate(ends)]
    return framework_record(uid, where=where or f"default/{uid}", roles={"worker": statuses}, time=20_000_000)


async def counted(
    archive: HistoryArchive, query: CountFailures = BY_NODE
) -> dict[str, tuple[int, int | None, float | None]]:
    """Failures, attempts and expected failures by node."""
    items = (await archive.read(query))["items"]
    return {one["key"]: (one["taskAttempts"], one["ofAttempts"], one["expected"]) for one in items}


async def test_nodes_are_compared_with_the_others(archive: HistoryArchive) -> None:
    for number in range(3):
        await archive.store([record(f"u{number}", ("n1", 1), ("n1", 1), ("n1", 0), ("n2", 0), ("n2", 0), ("n3", 0))])
    await archive.store([record("x", ("n2", 1), ("n2", 0), where="other/x")])
    # n1: 1 of 11 elsewhere. n2: 6 of 12 elsewhere.
    assert await counted(archive) == {"n1": (6, 9, 0.82), "n2": (1, 8, 4.0)}
    assert await counted(archive, CountFailures(FailureKey.NODE, "other")) == {"n2": (1, 2, None)}
    assert await counted(archive, CountFailures(FailureKey.NODE, since=EPOCH + 11)) == {}
    assert await counted(archive, CountFailures(FailureKey.NODE, "default", EPOCH, EPOCH + 60)) == {"n1": (6, 9, 0.0)}
    items = (await archive.read(BY_NODE))["items"]
    assert [(one["key"], is_suspect(one)) for one in ranked(items)] == [("n1", True), ("n2", False)]
    assert {one["expected"] for one in (await archive.read(CountFailures(FailureKey.CODE)))["items"]} == {None}


async def test_pods_that_had_to_make_room_do_not_count(archive: HistoryArchive) -> None:
    codes = (1, -1003, *range(-1012, -1006), -1000)
    await archive.store([record("u", *(("n1", code) for code in codes), ("n2", 0))])
    assert await counted(archive) == {"n1": (2, 9, 0.0)}
    listed = (await archive.read(ListFailures(FailureKey.NODE, "n1")))["items"]
    assert {one["code"] for one in listed} == {1, -1000}


def node(name: str, failed: int, *, frameworks: int = 3, expected: float | None = 1.0, of: int = 10) -> dict[str, Any]:
    return {"key": name, "taskAttempts": failed, "frameworks": frameworks, "expected": expected, "ofAttempts": of}


@pytest.mark.parametrize(
    ("item", "suspect"),
    [
        (node("n", 3), True),
        (node("n", 2), False),
        (node("n", 30, frameworks=2), False),
        (node("n", 3, expected=0.0), True),
        # There is no other node, or the archive is older.
        (node("n", 30, expected=None), False),
        ({"key": "n", "taskAttempts": 30, "frameworks": 9, "ofAttempts": 30}, False),
    ],
)
def test_suspects(item: dict[str, Any], suspect: bool) -> None:
    assert is_suspect(item) is suspect


def test_the_order_of_nodes() -> None:
    items = [node("a", 1, frameworks=9), node("b", 3), node("c", 2, of=0), node("d", 1), node("e", 2)]
    assert [one["key"] for one in ranked(items)] == ["b", "a", "c", "e", "d"]


def test_the_metric_has_the_last_sample() -> None:
    metrics = new_metrics()
    name = "frameworkcontroller_archive_suspect_node_failures"
    metrics.set_suspect_nodes({"n1": 4, "n2": 3})
    metrics.set_suspect_nodes({"n2": 5})
    assert metrics.registry.get_sample_value(name, {"node": "n2"}) == 5
    assert metrics.registry.get_sample_value(name, {"node": "n1"}) is None
