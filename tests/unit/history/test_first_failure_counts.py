"""Failed attempts of Frameworks count for the node and the role that failed first."""

from typing import Any

import pytest

from frameworkcontroller.history.archive import HistoryArchive
from frameworkcontroller.history.reads import CountFailures, FailureKey
from tests.support.archives import framework_record, task_status


@pytest.mark.parametrize(
    ("first", "node", "role"), [(("ps", 0), "node-2", "ps"), (None, "node-1", "worker"), (("gone", 7), None, "gone")]
)
async def test_the_first_failure_is_the_cause(
    database_url: str, first: tuple[str, int] | None, node: str | None, role: str
) -> None:
    roles: dict[str, Any] = {
        "worker": [task_status(0, code=1, node="node-1")],
        "ps": [task_status(0, code=None, node="node-2")],
    }
    record = framework_record("u", code=1, roles=roles, cause=("worker", 0), first=first)
    async with await HistoryArchive.open(database_url) as archive:
        await archive.store([record])
        by_node = (await archive.read(CountFailures(by=FailureKey.NODE)))["items"]
        by_role = (await archive.read(CountFailures(by=FailureKey.ROLE)))["items"]
    assert {one["key"] for one in by_node if one["frameworkAttempts"]} == ({node} if node else set())
    assert {one["key"] for one in by_role if one["frameworkAttempts"]} == {role}
