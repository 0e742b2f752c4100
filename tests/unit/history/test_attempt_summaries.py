"""The first failure, the avoided nodes and the steps of Framework attempts in the archive."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from frameworkcontroller.history.archive import HistoryArchive
from frameworkcontroller.history.attemptsummary import attempt_summary
from frameworkcontroller.history.reads import MAX_AVOIDED_SHOWN, CostKey, CountCost, GetAttempt, GetFramework
from tests.support.archives import framework_record, task_status
from tests.support.costs import Attempt, PodRun, Template, records

FAILURE = {
    "frameworkAttemptID": 0,
    "taskRoleName": "worker",
    "taskIndex": 2,
    "nodeName": "n2",
    "message": "main exited with 1: bad\0memory",
    "certain": True,
    "unknown": [1],
}
PROGRESS = {"frameworkAttemptID": 0, "step": 14, "lastCheckpointStep": 10}


def spec(**avoid: Any) -> Any:
    return {"taskRoles": [{"name": "worker", "task": {"retryPolicy": {"avoidNodes": avoid}}}]}


def avoiding(index: int, **failures: int) -> Any:
    nodes = [{"name": name, "failures": count} for name, count in failures.items()]
    return {**task_status(index), "avoidedNodes": nodes}


def record(roles: Any, the_spec: Any, **status: Any) -> bytes:
    return framework_record("u", code=1, roles={"worker": roles}, spec=the_spec, more_status=status)


async def test_the_archive_has_them_by_attempt(database_url: str) -> None:
    roles = [avoiding(0, n1=1, n2=2), avoiding(1, n2=3, n3=2)]
    lines = [
        record(roles, spec(after=2), firstFailure=FAILURE, progress=PROGRESS),
        framework_record("u", attempt=1, code=0, more_status={"firstFailure": FAILURE, "progress": PROGRESS}),
    ]
    async with await HistoryArchive.open(database_url) as archive:
        await archive.store(lines)
        found: Any = await archive.read(GetFramework("u"))
        first, second = found["attempts"]
        assert first["firstFailure"] == {
            "taskRoleName": "worker",
            "taskIndex": 2,
            "nodeName": "n2",
            "message": "main exited with 1: bad\0memory",
            "certain": True,
        }
        assert (first["avoidedNodes"], first["lastStep"], first["checkpointStep"]) == (["n2", "n3"], 14, 10)
        # The status still has the values of the attempt before.
        assert (second["firstFailure"], second["avoidedNodes"], second["lastStep"]) == (None, [], None)
        attempt: Any = await archive.read(GetAttempt("u", 0))
        assert {key: attempt[key] for key in ("firstFailure", "avoidedNodes", "lastStep", "checkpointStep")} == {
            key: first[key] for key in ("firstFailure", "avoidedNodes", "lastStep", "checkpointStep")
        }


@pytest.mark.parametrize("value", [None, 1, "x", [], [1], {"frameworkAttemptID": 0}, {"taskRoleName": 1}])
def test_invalid_values_count_as_absent(value: Any) -> None:
    body = orjson.loads(record([avoiding(0)], spec(after="x"), firstFailure=value, progress=value))["object"]
    nothing: dict[str, Any] = {"firstFailure": None, "avoidedNodes": [], "lastStep": None, "checkpointStep": None}
    assert attempt_summary(body) == nothing
    body["status"]["attemptStatus"]["taskRoleStatuses"] = value
    assert attempt_summary(body) == nothing
    assert attempt_summary({"spec": value, "status": value}) == nothing


def test_the_avoided_nodes_are_bounded() -> None:
    roles = [avoiding(index, **{f"n{index}": 1}) for index in range(MAX_AVOIDED_SHOWN + 5)]
    body = orjson.loads(record(roles, spec()))["object"]
    assert attempt_summary(body)["avoidedNodes"] == [f"n{index}" for index in range(MAX_AVOIDED_SHOWN)]


async def test_the_cost_of_the_attempts_of_one_framework(database_url: str) -> None:
    template = Template(({"cpu": 1000},))
    pods = [PodRun(Attempt(uid, "a/f", number), "worker", template) for uid in ("u", "v") for number in (0, 1)]
    async with await HistoryArchive.open(database_url) as archive:
        await archive.store(records(pods))
        found = await archive.read(CountCost(CostKey.ATTEMPT, uid="u"))
        assert sorted(one["key"] for one in found["items"]) == ["0", "1"]
        assert [one["attempts"] for one in found["items"]] == [1, 1]
        assert found["total"]["attempts"] == 2
