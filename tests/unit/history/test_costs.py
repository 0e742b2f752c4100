"""Requests and spans of attempts from archived objects, older databases, and the metrics of costs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, cast

import orjson
import pytest
from sqlalchemy import text

from frameworkcontroller.history.archive import HistoryArchive
from frameworkcontroller.history.archivemetrics import COST_NAMESPACES, COST_RESOURCES, OTHERS, ArchiveMetrics
from frameworkcontroller.history.database import MIGRATIONS, Database
from frameworkcontroller.history.holdings import queue_of, requests_of, user_of
from frameworkcontroller.history.reads import CostKey, CountCost
from tests.support.archives import framework_record, task_status
from tests.support.costs import Attempt, PodRun, Template, check_costs, records


def pod(*containers: Any, **spec: Any) -> dict[str, Any]:
    return {"containers": [{"resources": one} for one in containers], **spec}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (pod({"requests": {"cpu": "0.0001", "memory": "1.5"}}), {"cpu": 1, "memory": 2}),
        (pod({"limits": {"nvidia.com/gpu": 8}}), {"nvidia.com/gpu": 8}),
        (pod({"requests": {"cpu": "0", "memory": "-1"}}), {}),
        (pod({}, "nonsense", None), {}),
        (pod({"requests": {"cpu": "much", "memory": ["1"]}}), {}),
        (pod({"requests": {"cpu": "9e9999"}}), {"cpu": 2**63 - 1}),
        (pod({"requests": {"cpu": 1}}, resources={"requests": {"cpu": "3"}}, overhead={"cpu": "250m"}), {"cpu": 3250}),
        ({"containers": "nonsense", "initContainers": {}}, {}),
    ],
)
def test_requests_are_whole_numbers(spec: Any, expected: dict[str, int]) -> None:
    found = requests_of(spec)
    assert found is not None
    assert orjson.loads(found) == expected


@pytest.mark.parametrize(
    "names",
    [[f"example.com/{number}" for number in range(17)], [f"{'x' * 600}/{number}" for number in (1, 2)], ["ä/b"]],
)
def test_requests_of_too_many_resources_are_not_known(names: list[str]) -> None:
    """A database refuses large entries of an index, and with them the other records of the transaction."""
    assert requests_of(pod({"requests": dict.fromkeys(names, "1")})) is None


def test_the_queue_is_admitted_or_in_a_label_or_volcanos() -> None:
    labels = {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "later"}}}
    assert queue_of("a", {**labels, "status": {"admission": {"queueName": "first"}}}) == "a/first"
    assert queue_of("a", labels) == "a/later"
    assert queue_of("a", {"spec": {"scheduling": {"queue": "training"}}}) == "training"
    assert queue_of("a", {"metadata": None, "spec": {"scheduling": []}, "status": {"admission": 1}}) == ""


def test_the_user_is_an_annotation_or_a_label() -> None:
    user = "frameworkcontroller.microsoft.com/user"
    body = {"metadata": {"annotations": {user: "a@b"}, "labels": {user: "a", "userName": "c"}}}
    assert user_of(body) == "a@b"
    assert user_of({"metadata": {"labels": {user: "a", "userName": "c"}}}) == "a"
    assert user_of({"metadata": {"labels": {"userName": "c"}}}) == "c"
    assert user_of({"metadata": {"labels": {"userName": 1}, "annotations": []}}) == ""


@pytest.mark.parametrize(
    "spec",
    [
        None,
        {"taskRoles": [{"name": ["worker"], "task": 1}, 3, {"name": "worker", "task": {"pod": {"spec": []}}}]},
        {"taskRoles": {"worker": {}}},
        {"taskRoles": [{"name": "worker", "task": {"pod": {"spec": pod({"requests": {"cpu": {"a": "b"}}})}}}]},
    ],
)
async def test_an_unreadable_spec_keeps_its_record(database_url: str, spec: Any) -> None:
    status = task_status(0)
    status["attemptStatus"]["scheduledTime"] = "nonsense"
    line = framework_record("u", roles={"worker": [status]}, spec={"taskRoles": []}, more_status={"progress": [1]})
    body = orjson.loads(line)
    body["object"]["spec"] = spec
    async with await HistoryArchive.open(database_url) as archive:
        await archive.store([orjson.dumps(body)])
        total = (await archive.read(CountCost()))["total"]
        assert (total["attempts"], total["unknownAttempts"], total["resources"]) == (0, 1, {})


async def test_attempts_in_an_older_database_have_an_unknown_cost(database_url: str, tmp_path: Path) -> None:
    fourth = tmp_path / "fourth"
    shutil.copytree(MIGRATIONS, fourth, ignore=shutil.ignore_patterns("__pycache__", "0005_*", "0006_*"))
    database = Database(database_url, fourth)
    await database.open()
    async with database.writing() as connection:
        await connection.execute(
            text(
                "INSERT INTO frameworks (fid, uid, namespace, name, cluster, time, last, created)"
                " VALUES (1000, 'old', 'a', 'old', '', 1, 1, 1)"
            )
        )
        await connection.execute(text("INSERT INTO framework_attempts (fid, attempt, time) VALUES (1000, 0, 1)"))
        for index, node in enumerate(("node-1", "node-2", None)):
            await connection.execute(
                text(
                    "INSERT INTO task_attempts (fid, attempt, role, idx, task_uid, task_attempt, own, time, code, node,"
                    " ran, completed) VALUES (1000, 0, 'w', :index, 'u', 0, 1, 1, 0, :node, 100, 200)"
                ),
                {"index": index, "node": node},
            )
    await database.close()
    async with await HistoryArchive.open(database_url) as archive:
        # The last one never had a node.
        for by in CostKey:
            answer = await archive.read(CountCost(by))
            assert sum(item["unknownAttempts"] for item in answer["items"]) == 2, by
            assert answer["total"] == {"attempts": 0, "unknownAttempts": 2, "resources": {}}
        assert (await archive.read(CountCost(since=201)))["items"] == []
        # Records that come later have a cost next to them.
        pods = [PodRun(Attempt("new", "a/new"), "worker", Template(({"cpu": 500},)), ended=100)]
        await archive.store(records(pods))
        total = (await archive.read(CountCost()))["total"]
        assert (total["attempts"], total["unknownAttempts"]) == (1, 2)
        await check_costs(archive, pods, 0, None)


async def test_the_most_expensive_groups_come_first(database_url: str) -> None:
    def one(place: int, **amounts: int) -> PodRun:
        names = {"gpu": "nvidia.com/gpu"}
        template = Template(({names.get(name, name): amount for name, amount in amounts.items()},))
        return PodRun(Attempt(f"u{place}", f"a/f{place}"), "worker", template)

    async with await HistoryArchive.open(database_url) as archive:
        await archive.store(records([one(0, cpu=9000), one(1, cpu=1000, gpu=1), one(2, cpu=2000, gpu=4)]))
        for query, expected, resource in (
            (CountCost(CostKey.FRAMEWORK), ["a/f2", "a/f1", "a/f0"], "nvidia.com/gpu"),
            (CountCost(CostKey.FRAMEWORK, "cpu", limit=2), ["a/f0", "a/f2"], "cpu"),
            (CountCost(CostKey.FRAMEWORK, "nosuch"), ["a/f0", "a/f1", "a/f2"], "nosuch"),
        ):
            found = await archive.read(query)
            assert ([item["label"] for item in found["items"]], found["resource"]) == (expected, resource)
            assert found["total"]["attempts"] == 3


# --- metrics ----------------------------------------------------------------------------------------------------


def costs(count: int, resources: int = 1) -> Any:
    """Costs of some namespaces: 1, 2 and 3 seconds of each resource."""
    names = ["cpu", "memory", *(f"example.com/{number:02}" for number in range(resources))]
    spans = {"waiting": 1, "useful": 2, "lost": 3.5}
    items = [
        {
            "key": f"ns-{number}",
            "label": "",
            "attempts": 1,
            "unknownAttempts": 0,
            "resources": dict.fromkeys(names, spans),
        }
        for number in range(count)
    ]
    total = {name: {span: value * count for span, value in spans.items()} for name in names}
    return {"items": items, "total": {"attempts": count, "unknownAttempts": 7, "resources": total}, "resource": "cpu"}


def series(metrics: ArchiveMetrics) -> dict[tuple[str, str, str], float]:
    return {
        (one.labels["namespace"], one.labels["resource"], one.labels["use"]): one.value
        for family in metrics.registry.collect()
        for one in family.samples
        if one.name == "frameworkcontroller_archive_resource_seconds_last_day"
    }


def test_metrics_of_costs_are_replaced_and_bounded() -> None:
    metrics = ArchiveMetrics()
    metrics.show_costs(cast("Any", costs(2)))
    found = series(metrics)
    assert found["ns-1", "cpu", "lost"] == 3.5
    assert len(found) == 2 * 3 * 3
    metrics.show_costs(cast("Any", costs(COST_NAMESPACES + 20, resources=50)))
    found = series(metrics)
    assert len(found) == (COST_NAMESPACES + 1) * COST_RESOURCES * 3
    assert found[OTHERS, "memory", "useful"] == 40
    assert sum(value for (_, resource, use), value in found.items() if (resource, use) == ("cpu", "waiting")) == 120
    metrics.show_costs(cast("Any", costs(1)))
    assert {namespace for namespace, _, _ in series(metrics)} == {"ns-0"}
