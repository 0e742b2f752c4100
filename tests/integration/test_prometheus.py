"""A real Prometheus scrapes a real controller, and evaluates its dashboard and its alerts.

Debian has it as the package `prometheus`; these tests are skipped where it is not installed.
"""

import asyncio
import json
import shutil
import subprocess
import time
from collections.abc import AsyncIterator
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
from tests.support.realcluster import ROOT
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
CASES = yaml.safe_load((ROOT / "tests/support/alerts.yaml").read_text())


def of_target(series: str) -> str:
    """The series with the labels of the target."""
    name, _, labels = series.rstrip("}").partition("{")
    return f"{name}{{{labels}{', ' if labels else ''}{TARGET}}}"


def test_every_alert_is_tried() -> None:
    assert [case["alert"] for case in CASES] == [rule["alert"] for rule in RULES]


def test_alerts_fire_when_they_should_and_only_then(rules: Path) -> None:
    tests = []
    for case in CASES:
        query = f'count(ALERTS{{alertname="{case["alert"]}", alertstate="firing"}}) or vector(0)'
        for series, expected in ((case["fires"], 1), (case["quiet"], 0)):
            tests.append(
                {
                    "name": f"{case['alert']} {expected}",
                    "interval": "1m",
                    "input_series": [{"series": of_target(name), "values": values} for name, values in series.items()],
                    "promql_expr_test": [
                        {"expr": query, "eval_time": case["at"], "exp_samples": [{"labels": "{}", "value": expected}]}
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
                assert await running.value('frameworkcontroller_frameworks{phase="Succeeded"}') == 1
                empty = [where for where, expression in expressions.items() if not await running.query(expression)]
                # Nothing is refused, no watch breaks, nothing is evicted, and there is no report server.
                assert set(empty) <= {
                    "Frameworks that wait: {{reason}}",
                    "Records that wait: {{trigger}}",
                    "Evictions by reason: {{reason}}",
                    "Reports by result: {{result}}",
                    "Writes by result: {{result}}",
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
