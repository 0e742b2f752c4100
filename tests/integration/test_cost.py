"""``kubectl framework cost``, from a folder of records: of Frameworks on the local cluster, and of given records."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

from frameworkcontroller.commands import showcost
from frameworkcontroller.commands.program import UsageError
from frameworkcontroller.config.config import shipped_config
from frameworkcontroller.config.historyconfig import History, HistorySinkKind
from frameworkcontroller.manager.app import Controller
from tests.support.archives import EPOCH
from tests.support.cli import run_offline
from tests.support.costs import DAY, Attempt, PodRun, Template, records
from tests.support.frameworks import Json, policy, role
from tests.support.site import LocalSite, local_site
from tests.support.virtual_clock import wall

pytestmark = pytest.mark.virtual_clock


async def run(*arguments: str) -> tuple[str, str]:
    """The output and the remarks of the command where there is no cluster."""
    return await run_offline("cost", *arguments, wall=lambda: EPOCH + 10 * DAY)


# --- on the local cluster ---------------------------------------------------------------------------------------


def needing(number: int, requests: Json, seconds: int, code: int = 0, **spec: Any) -> Json:
    """A role of Pods with these requests."""
    made = role(number=number, simulate={"run-seconds": seconds, "exit-code": code}, **spec)
    made["task"]["pod"]["spec"]["containers"][0]["resources"] = {"requests": requests}
    return made


def archived(folder: Path) -> Iterator[Json]:
    for path in sorted(folder.glob("*.ndjson")):
        yield from map(orjson.loads, path.read_bytes().splitlines())


def seconds_between(begin: str, end: str) -> int:
    return int((datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds())


async def test_the_cost_on_a_cluster_is_the_cost_of_its_pods(tmp_path: Path) -> None:
    """One Framework waits for the other's room, a Task is retried, and the controller is replaced meanwhile."""
    folder = tmp_path / "history"
    folder.mkdir()
    history = History(sink=HistorySinkKind.FILE, path=str(folder))
    config = shipped_config().model_copy(update={"history": history})
    async with local_site(tmp_path, LocalSite, config, capacity={"cpu": "3", "memory": "8Gi"}) as site:
        fails = needing(1, {"cpu": "500m"}, 40, 1, task={"retryPolicy": {"maxRetryCount": 1}})
        fails["task"]["pod"] = needing(1, {"cpu": "500m"}, 40, 1)["task"]["pod"]
        fails |= {"name": "bad", "frameworkAttemptCompletionPolicy": policy(1)}
        await site.frameworks.create("first", needing(2, {"cpu": "1", "memory": "1Gi"}, 300), fails)
        await site.frameworks.until_running("first", 3)
        await site.frameworks.create("second", needing(1, {"cpu": "2"}, 100), metadata={"labels": {"userName": "ann"}})
        await site.frameworks.until_state("first", "Completed", within=900)
        await site.frameworks.until_state("second", "AttemptRunning", within=900)
        # Another process continues with the stored status alone.
        async with Controller(config, site.cluster.connect(), wall=wall):
            await site.frameworks.until_state("second", "Completed", within=900)
    ends: dict[str, str] = {}
    pods: dict[str, Json] = {}
    for record in archived(folder):
        body = record["object"]
        if body["kind"] == "Pod":
            pods[body["metadata"]["uid"]] = body
        for status in _statuses(body):
            ends[status["podUID"]] = status["completionTime"]
    assert len(pods) == 5
    expected = dict.fromkeys(("cpu", "memory"), 0.0)
    for uid, pod in pods.items():
        (bound,) = [one for one in pod["status"]["conditions"] if one["type"] == "PodScheduled"]
        held = seconds_between(bound["lastTransitionTime"], ends[uid])
        requests = pod["spec"]["containers"][0]["resources"]["requests"]
        expected["cpu"] += held * {"1": 1, "2": 2, "500m": 0.5}[requests["cpu"]]
        expected["memory"] += held * (1 << 30 if "memory" in requests else 0)
    assert expected["cpu"] > 300
    for by in ("framework", "namespace", "queue", "user", "node", "code", "day"):
        out, err = await run("--dir", str(folder), "--by", by, "-o", "json")
        assert err == ""
        found = orjson.loads(out)
        assert found["total"]["attempts"] == len(pods)
        assert found["total"]["unknownAttempts"] == 0
        sums = {name: sum(spans.values()) for name, spans in found["total"]["resources"].items()}
        assert sums == expected, by
    users = {
        one["key"]: one
        for one in orjson.loads((await run("--dir", str(folder), "--by", "user", "-o", "json"))[0])["items"]
    }
    assert users["ann"]["resources"]["cpu"]["lost"] == 0
    # The Framework failed without a report of progress: nothing of it counts.
    assert users[""]["resources"]["cpu"]["useful"] == 0


def _statuses(body: Json) -> Iterator[Json]:
    """The attempts of Tasks in an archived object."""
    attempt = (body.get("status") or {}).get("attemptStatus") or {}
    if body["kind"] == "Task":
        yield attempt
    for of_role in attempt.get("taskRoleStatuses") or ():
        for task in of_role["taskStatuses"]:
            yield task["attemptStatus"]


# --- the output -------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Records of a user whose name is a formula."""
    template = Template(({"cpu": 2000, "nvidia.com/gpu": 4},))
    attempts = [
        Attempt("u", "default/train", code=1, user='=HYPERLINK("http://x")', progress=(3600, None)),
        Attempt("v", "default/serve", user="ann"),
        Attempt("w", "other/train", user="-2+3"),
    ]
    pods = [
        PodRun(attempts[0], "worker", template, ran=900, ended=7200, code=-101),
        PodRun(attempts[1], "worker", Template(({"cpu": 500},)), ended=7200),
        PodRun(attempts[1], "worker", Template(({"cpu": 500},)), index=1, old=True),
        PodRun(attempts[2], "worker", template, ended=3600),
    ]
    (tmp_path / "2026-01-01.ndjson").write_bytes(b"".join(line + b"\n" for line in records(pods)))
    return tmp_path


async def test_the_table_has_the_main_resource_and_a_total(folder: Path) -> None:
    out, err = await run("--dir", str(folder))
    assert [line.split() for line in out.splitlines()] == [
        ["FRAMEWORK", "ATTEMPTS", "NVIDIA.COM/GPU", "HOURS", "USEFUL", "WAITING", "LOST", "LOST", "%", "UNKNOWN"],
        ["default/train", "1", "8.00", "3.00", "1.00", "4.00", "50.0%", "0"],
        ["default/serve", "1", "0", "0", "0", "0", "-", "1"],
        ["TOTAL", "2", "8.00", "3.00", "1.00", "4.00", "50.0%", "1"],
    ]
    assert "1 attempt with unknown cost, not in the sums" in err
    out, _ = await run("--dir", str(folder), "-A", "--resource", "cpu")
    assert [line.split()[:3] for line in out.splitlines()] == [
        ["NAMESPACE", "ATTEMPTS", "CPU"], ["default", "2", "5.00"], ["other", "1", "2.00"], ["TOTAL", "3", "7.00"],
    ]  # fmt: skip
    wide, _ = await run("--dir", str(folder), "-o", "wide")
    assert "CPU HOURS" in wide.splitlines()[0]
    code, _ = await run("--dir", str(folder), "--by", "code")
    assert "-101 PodExternalDeleted" in code


async def test_csv_has_no_formulas_and_the_exact_seconds(folder: Path) -> None:
    out, _ = await run("--dir", str(folder), "-A", "--by", "user", "-o", "csv")
    head, *rows = csv.reader(io.StringIO(out))
    assert head[:5] == ["user", "label", "attempts", "unknown_attempts", "resource"]
    assert head[5:] == ["useful_seconds", "waiting_seconds", "lost_seconds"]
    assert [row[0] for row in rows if row[4] == "nvidia.com/gpu"] == ['\'=HYPERLINK("http://x")', "'-2+3"]
    assert rows[0][4:] == ["cpu", "5400", "1800", "7200"]
    assert ["ann", "ann", "1", "1", "cpu", "3600", "0", "0"] in rows
    out, _ = await run("--dir", str(folder), "--by", "code", "-o", "csv")
    # A number is no formula.
    assert out.splitlines()[1].startswith("-101,PodExternalDeleted,1,0,cpu,")


@pytest.mark.parametrize("text", ["=1", "+1", "@x", "-x", "\tx", "\rx", "\nx", "-1-1", "+"])
def test_a_formula_is_neutralized(text: str) -> None:
    assert showcost.neutral(text) == f"'{text}"


@pytest.mark.parametrize("text", ["", "x=1", "-101", "0", "default/a", "'="])
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert showcost.neutral(text) == text


async def test_nothing_in_the_period(folder: Path) -> None:
    out, err = await run("--dir", str(folder), "--since", "1d")
    assert out == ""
    assert "no attempt with a node" in err
    with pytest.raises(UsageError, match="--most 0"):
        await run("--dir", str(folder), "--most", "0")
