"""A real Prometheus scrapes a real controller, and evaluates its dashboard and its alerts.

Debian has it as the package `prometheus`; these tests are skipped where it is not installed.
"""

import asyncio
import json
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp
import pytest
import yaml
from prometheus_client import generate_latest

from frameworkcontroller.config.bindaddress import BindAddress
from frameworkcontroller.config.config import Config
from frameworkcontroller.config.historyconfig import History, HistorySinkKind
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.connection import Connection
from frameworkcontroller.local.apiserver.restserver import ApiServer
from frameworkcontroller.local.kubelet.agent import NodeAgent
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.manager.app import Controller
from frameworkcontroller.manager.exposition import registry_of
from frameworkcontroller.manager.web import WebServer
from tests.support.eventually import eventually
from tests.support.frameworks import Frameworks, policy, role
from tests.support.ports import unused_port
from tests.unit.test_monitoring import MONITORING, PANELS, RULES

PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")

pytestmark = pytest.mark.skipif(
    PROMETHEUS is None or PROMTOOL is None,
    reason="no prometheus and promtool on PATH (Debian: apt-get install prometheus)",
)


def promtool(*arguments: str | Path, stdin: bytes | None = None) -> str:
    """Return its output; it must succeed."""
    assert PROMTOOL is not None
    ended = subprocess.run([PROMTOOL, *arguments], input=stdin, capture_output=True, check=False, timeout=600)
    said = (ended.stdout + ended.stderr).decode()
    assert ended.returncode == 0, said
    return said


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """The rules as a Prometheus without the operator reads them."""
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump(yaml.safe_load((MONITORING / "rules.yaml").read_text())["spec"]))
    return file


def test_rules_are_valid(rules: Path) -> None:
    assert f"SUCCESS: {len(RULES)} rules found" in promtool("check", "rules", rules)


async def test_metrics_are_as_prometheus_wants_them() -> None:
    controller = Controller(Config(), Connection.to_address("http://127.0.0.1:1"))
    said = promtool("check", "metrics", stdin=generate_latest(registry_of(controller)))
    # Only names of client-go: the lint also reads names that are not ours.
    assert [line for line in said.splitlines() if line.startswith("frameworkcontroller_")] == []


# --- when alerts fire -----------------------------------------------------------------------------------------------

TARGET = 'namespace="fc", job="fc", instance="a"'
LEADER = f'leader_election_master_status{{name="frameworkcontroller", {TARGET}}}'
REQUESTS = "frameworkcontroller_api_requests_total"


def requests(verb: str, resource: str, code: str) -> str:
    return f'{REQUESTS}{{verb="{verb}", resource="{resource}", code="{code}", {TARGET}}}'


def bucket(histogram: str, le: str, more: str = "") -> str:
    return f'{histogram}_bucket{{le="{le}", {more}{TARGET}}}'


def slow(histogram: str, below: str, above: str, more: str = "") -> dict[str, str]:
    """A histogram whose increase is all between two bounds."""
    return {
        bucket(histogram, below, more): "0x180",
        bucket(histogram, above, more): "0+60x180",
        bucket(histogram, "+Inf", more): "0+60x180",
    }


QUEUE = 'name="framework", '


def history(result: str) -> str:
    return f'frameworkcontroller_history_records_total{{trigger="OnTaskRetry", result="{result}", {TARGET}}}'


CASES: list[tuple[str, str, Mapping[str, str], Mapping[str, str]]] = [
    # alert, time, series with which it fires, series with which it does not
    (
        "FrameworkControllerAbsent",
        "6m",
        {"up": "1x180"},
        {f'frameworkcontroller_build_info{{version="1", python="3", {TARGET}}}': "1x180"},
    ),
    ("FrameworkControllerNoLeader", "3m", {LEADER: "0x180"}, {LEADER: "0 1 0 1 1x180"}),
    (
        "FrameworkControllerCacheNotFilled",
        "11m",
        {LEADER: "1x180", f'frameworkcontroller_cache_synced{{resource="pods", {TARGET}}}': "0x180"},
        # A standby does not list Frameworks.
        {LEADER: "0x180", f'frameworkcontroller_cache_synced{{resource="frameworks", {TARGET}}}': "0x180"},
    ),
    (
        "FrameworkControllerWatchFailing",
        "30m",
        {f'frameworkcontroller_watch_restarts_total{{resource="pods", reason="broken", {TARGET}}}': "0+12x180"},
        {
            f'frameworkcontroller_watch_restarts_total{{resource="pods", reason="closed", {TARGET}}}': "0+12x180",
            f'frameworkcontroller_watch_restarts_total{{resource="pods", reason="broken", {TARGET}}}': "0 8 9x180",
        },
    ),
    (
        "FrameworkControllerSyncStuck",
        "15m",
        {f"workqueue_longest_running_processor_seconds{{{QUEUE}{TARGET}}}": "0+60x180"},
        {
            f"workqueue_longest_running_processor_seconds{{{QUEUE}{TARGET}}}": "5x180",
            f'workqueue_longest_running_processor_seconds{{name="another", {TARGET}}}': "0+60x180",
        },
    ),
    (
        "FrameworkControllerSyncFailing",
        "10m",
        {f'frameworkcontroller_reconcile_duration_seconds_count{{result="failed", {TARGET}}}': "0 0 0 1x180"},
        {
            f'frameworkcontroller_reconcile_duration_seconds_count{{result="failed", {TARGET}}}': "0x180",
            f'frameworkcontroller_reconcile_duration_seconds_count{{result="done", {TARGET}}}': "0+60x180",
        },
    ),
    (
        "FrameworkControllerApiErrors",
        "30m",
        {requests("create", "pods", "201"): "0+60x180", requests("create", "pods", "500"): "0+6x180"},
        {
            requests("create", "pods", "201"): "0+60x180",
            requests("create", "pods", "409"): "0+60x180",
            requests("create", "pods", "500"): "0+1x180",
            requests("watch", "pods", "none"): "0+600x180",
        },
    ),
    (
        "FrameworkControllerForbidden",
        "30m",
        {requests("delete", "pods", "403"): "0+1x180"},
        {requests("create", "pods", "403"): "0+60x180", requests("delete", "pods", "403"): "7x180"},
    ),
    (
        "FrameworkStatusTooLarge",
        "10m",
        {f'frameworkcontroller_status_writes_total{{result="too_large", {TARGET}}}': "0 0 1x180"},
        {f'frameworkcontroller_status_writes_total{{result="too_large", {TARGET}}}': "3x180"},
    ),
    (
        "FrameworkStatusSubresourceLost",
        "5m",
        {f"frameworkcontroller_status_subresource_lost{{{TARGET}}}": "1x180"},
        {f"frameworkcontroller_status_subresource_lost{{{TARGET}}}": "1 0x180"},
    ),
    (
        "FrameworkCrdOutdated",
        "5m",
        {f"frameworkcontroller_crd_missing_fields{{{TARGET}}}": "3x180"},
        {f"frameworkcontroller_crd_missing_fields{{{TARGET}}}": "3 0x180"},
    ),
    (
        "FrameworkControllerRateLimited",
        "40m",
        slow("frameworkcontroller_api_rate_limiter_wait_seconds", "2.5", "5.0"),
        slow("frameworkcontroller_api_rate_limiter_wait_seconds", "0.5", "1.0"),
    ),
    (
        "FrameworkControllerQueueSlow",
        "40m",
        slow("workqueue_queue_duration_seconds", "30.0", "60.0", QUEUE),
        slow("workqueue_queue_duration_seconds", "5.0", "10.0", QUEUE),
    ),
    (
        "FrameworkControllerWorkersBusy",
        "20m",
        {
            f"frameworkcontroller_workers_busy{{{TARGET}}}": "200x180",
            f"frameworkcontroller_workers{{{TARGET}}}": "200x180",
        },
        {
            f"frameworkcontroller_workers_busy{{{TARGET}}}": "100x180",
            f"frameworkcontroller_workers{{{TARGET}}}": "200x180",
        },
    ),
    (
        "FrameworkControllerEventLoopLag",
        "40m",
        slow("frameworkcontroller_event_loop_lag_seconds", "1.0", "5.0"),
        slow("frameworkcontroller_event_loop_lag_seconds", "0.1", "0.25"),
    ),
    (
        "FrameworkControllerFileDescriptors",
        "15m",
        {
            f"frameworkcontroller_build_info{{{TARGET}}}": "1x180",
            f"process_open_fds{{{TARGET}}}": "900x180",
            f"process_max_fds{{{TARGET}}}": "1000x180",
        },
        {f"process_open_fds{{{TARGET}}}": "900x180", f"process_max_fds{{{TARGET}}}": "1000x180"},
    ),
    (
        "FrameworkQuarantined",
        "6m",
        {f"frameworkcontroller_frameworks_quarantined{{{TARGET}}}": "1x180"},
        {f"frameworkcontroller_frameworks_quarantined{{{TARGET}}}": "0x180"},
    ),
    (
        "FrameworksStalled",
        "40m",
        {f'frameworkcontroller_frameworks_stalled{{reason="NamingConflict", {TARGET}}}': "2x180"},
        {f'frameworkcontroller_frameworks_stalled{{reason="NamingConflict", {TARGET}}}': "2x20 0x180"},
    ),
    (
        "FrameworkQueueUnavailable",
        "20m",
        {f'frameworkcontroller_frameworks_stalled{{reason="QueueUnavailable", {TARGET}}}': "1x180"},
        {f'frameworkcontroller_frameworks_stalled{{reason="QueueUnavailable", {TARGET}}}': "1x5 0x180"},
    ),
    (
        "FrameworkQuotaKept",
        "40m",
        {f"frameworkcontroller_longest_eviction_seconds{{{TARGET}}}": "0+60x180"},
        {f"frameworkcontroller_longest_eviction_seconds{{{TARGET}}}": "600x180"},
    ),
    (
        "FrameworkGangUnsupported",
        "20m",
        {f'frameworkcontroller_frameworks_stalled{{reason="GangUnsupported", {TARGET}}}': "1x180"},
        {f'frameworkcontroller_frameworks_stalled{{reason="GangUnsupported", {TARGET}}}': "1x5 0x180"},
    ),
    (
        "FrameworkGangMinimumOutdated",
        "20m",
        {f'frameworkcontroller_frameworks_stalled{{reason="PodGroupNotAnswered", {TARGET}}}': "1x180"},
        {f'frameworkcontroller_frameworks_stalled{{reason="PodGroupNotAnswered", {TARGET}}}': "1x5 0x180"},
    ),
    (
        "FrameworkHistoryUnavailable",
        "5m",
        {f"frameworkcontroller_history_oldest_pending_seconds{{{TARGET}}}": "0 0+60x180"},
        {f"frameworkcontroller_history_oldest_pending_seconds{{{TARGET}}}": "0 60 61 0x180"},
    ),
    (
        "FrameworkHistoryDropped",
        "10m",
        {history("dropped"): "0 0 5x180"},
        {history("dropped"): "5x180", history("failed"): "0+5x180"},
    ),
    (
        "FrameworkArchiveDatabaseUnavailable",
        "10m",
        {f"frameworkcontroller_archive_database_up{{{TARGET}}}": "1 0x180"},
        {f"frameworkcontroller_archive_database_up{{{TARGET}}}": "0x3 1x180"},
    ),
    (
        "FrameworkArchiveVolumeFilling",
        "30m",
        {
            f"frameworkcontroller_archive_volume_free_bytes{{{TARGET}}}": "14x180",
            f"frameworkcontroller_archive_volume_bytes{{{TARGET}}}": "100x180",
        },
        # PostgreSQL has no volume of the archive's.
        {
            f"frameworkcontroller_archive_volume_free_bytes{{{TARGET}}}": "0x180",
            f"frameworkcontroller_archive_volume_bytes{{{TARGET}}}": "0x180",
        },
    ),
    (
        "FrameworkArchiveRefusesRecords",
        "10m",
        {f'frameworkcontroller_archive_refused_total{{code="403", source="http", {TARGET}}}': "0 0 5x180"},
        {
            f'frameworkcontroller_archive_refused_total{{code="403", source="http", {TARGET}}}': "5x180",
            f'frameworkcontroller_archive_refused_total{{code="503", source="http", {TARGET}}}': "0+5x180",
        },
    ),
    (
        "FrameworkTasksNotStarting",
        "40m",
        {
            f'frameworkcontroller_tasks{{state="AttemptPreparing", {TARGET}}}': "5x180",
            f'frameworkcontroller_tasks{{state="AttemptRunning", {TARGET}}}': "0x180",
        },
        {
            f'frameworkcontroller_tasks{{state="AttemptPreparing", {TARGET}}}': "5x180",
            f'frameworkcontroller_tasks{{state="AttemptRunning", {TARGET}}}': "1x180",
        },
    ),
    (
        "FrameworkPodsUnreadable",
        "10m",
        {f'frameworkcontroller_unreadable_objects_total{{resource="pods", {TARGET}}}': "0 0 1x180"},
        {f'frameworkcontroller_unreadable_objects_total{{resource="pods", {TARGET}}}': "0x180"},
    ),
]


def test_every_alert_is_tried() -> None:
    assert [alert for alert, _, _, _ in CASES] == [rule["alert"] for rule in RULES]


def test_alerts_fire_when_they_should_and_only_then(rules: Path) -> None:
    tests = []
    for alert, when, firing, quiet in CASES:
        query = f'count(ALERTS{{alertname="{alert}", alertstate="firing"}}) or vector(0)'
        for series, expected in ((firing, 1), (quiet, 0)):
            tests.append(
                {
                    "name": f"{alert} {expected}",
                    "interval": "1m",
                    "input_series": [{"series": name, "values": values} for name, values in series.items()],
                    "promql_expr_test": [
                        {"expr": query, "eval_time": when, "exp_samples": [{"labels": "{}", "value": expected}]}
                    ],
                }
            )
    file = rules.parent / "tests.yml"
    file.write_text(yaml.safe_dump({"rule_files": [rules.name], "tests": tests}))
    promtool("test", "rules", file)


# --- a real scrape --------------------------------------------------------------------------------------------------


class Prometheus:
    """A running one."""

    def __init__(self, url: str) -> None:
        self.url = url

    async def ask(self, path: str, **query: str) -> Any:
        """The data of an answer of its API, which must be a success."""
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{self.url}/api/v1/{path}?{urlencode(query)}") as answer,
        ):
            text = await answer.text()
            # While it starts it says 503, and that in plain words.
            assert answer.status == HTTPStatus.OK, text
            body = json.loads(text)
            assert body["status"] == "success", body
            return body["data"]

    async def query(self, expression: str) -> list[dict[str, Any]]:
        """The result of an instant query."""
        found: list[dict[str, Any]] = (await self.ask("query", query=expression))["result"]
        return found

    async def value(self, expression: str) -> float:
        """The result of an instant query, which must be one number."""
        found = await self.query(expression)
        assert len(found) == 1, f"{expression}: {found}"
        return float(found[0]["value"][1])


@asynccontextmanager
async def prometheus(folder: Path, target: str, rules: Path) -> AsyncIterator[Prometheus]:
    """One that scrapes the target every second."""
    assert PROMETHEUS is not None
    config = folder / "prometheus.yml"
    config.write_text(
        yaml.safe_dump(
            {
                "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                "rule_files": [str(rules)],
                "scrape_configs": [{"job_name": "frameworkcontroller", "static_configs": [{"targets": [target]}]}],
            }
        )
    )
    log = folder / "prometheus.log"
    # The port 0 would do, but it does not tell which one it got.
    port = unused_port()
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            PROMETHEUS,
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            stdout=output,
            stderr=output,
        )
    try:
        running = Prometheus(f"http://127.0.0.1:{port}")

        async def scraped() -> None:
            assert process.returncode is None, log.read_text()
            try:
                assert await running.value('up{job="frameworkcontroller"}') == 1
            except aiohttp.ClientError as error:
                raise AssertionError(log.read_text()) from error

        await eventually(scraped, within=60, every=0.3)
        yield running
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), 300)


@pytest.fixture
def expressions() -> dict[str, str]:
    """The dashboard's PromQL by panel and legend, as Grafana would send it."""
    found = {}
    for panel in PANELS:
        for target in panel.get("targets", ()):
            expression = target["expr"].replace("$__rate_interval", "10s").replace("$job", ".+")
            found[f"{panel['title']}: {target['legendFormat']}"] = expression
    return found


async def test_a_real_scrape_fills_the_dashboard_and_evaluates_the_alerts(
    tmp_path: Path, rules: Path, expressions: dict[str, str]
) -> None:
    (tmp_path / "history").mkdir()
    config = Config(history=History(sink=HistorySinkKind.FILE, path=str(tmp_path / "history")))
    async with (
        ApiServer() as server,
        KubeClient(Connection.to_address(server.url)) as client,
        KubeClient(Connection.to_address(server.url)) as node,
        Controller(config, Connection.to_address(server.url)) as controller,
        WebServer(controller, BindAddress("127.0.0.1", 0)) as web,
        asyncio.TaskGroup() as group,
    ):
        agent = group.create_task(NodeAgent(node, SimulatedRuntime(wall=time.time), wall=time.time).run())
        frameworks = Frameworks(client, "default")
        # Changes continue while the rates are read.
        retried = role(
            "a", 2, task={"retryPolicy": {"maxRetryCount": -2}}, simulate={"run-seconds": 0.3, "exit-code": 1}
        )
        await frameworks.create("busy", retried)
        await frameworks.create("long", role("a", 3))
        done = role("a", 1, simulate={"run-seconds": 0.1}, frameworkAttemptCompletionPolicy=policy(1))
        await frameworks.create("done", done)
        await frameworks.until_state("done", "Completed")
        async with prometheus(tmp_path, web.url.removeprefix("http://"), rules) as running:

            async def filled() -> None:
                assert await running.value('sum(frameworkcontroller_tasks{state="AttemptRunning"})') >= 3
                assert await running.value("sum(rate(frameworkcontroller_retries_total[10s]))") > 0
                assert await running.value('frameworkcontroller_frameworks{state="Completed"}') == 1
                empty = [where for where, expression in expressions.items() if not await running.query(expression)]
                # Nothing is refused, no watch breaks and nothing is evicted while all is well.
                assert set(empty) <= {
                    "Frameworks that wait: {{reason}}",
                    "Records that wait: {{trigger}}",
                    "Evictions by reason: {{reason}}",
                    "Refused and unanswered requests: {{verb}} {{resource}} {{code}}",
                    "Watches that did not continue: {{resource}} {{reason}}",
                }

            await eventually(filled, within=60, every=0.5)

            async def calm() -> None:
                groups = (await running.ask("rules"))["groups"]
                health = {rule["name"]: (rule["health"], rule["state"]) for one in groups for rule in one["rules"]}
                # Some may wait whether a machine that is slow now stays so.
                quiet = {name: (said, state.replace("pending", "inactive")) for name, (said, state) in health.items()}
                assert quiet == {rule["alert"]: ("ok", "inactive") for rule in RULES}
                (target,) = (await running.ask("targets"))["activeTargets"]
                assert (target["health"], target["lastError"]) == ("up", "")

            await eventually(calm, within=30, every=0.5)
        agent.cancel()
