"""The pages are right: every row of a table that is marked "tried", and every YAML block."""

import re
from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from frameworkcontroller.api.names import API_VERSION, KIND
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.api.spec import parse_spec
from frameworkcontroller.config.config import Config, load_config, shipped_config
from frameworkcontroller.kube.resources import PODS
from tests.support.clusters import Cluster
from tests.support.dryrun import dry_run
from tests.support.examples import EXAMPLES, ROOT, Json, pods_of
from tests.support.fences import Block, blocks
from tests.support.frameworks import codes, condition, policy, role, tasks
from tests.support.site import Site, site

PAGES: Final = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted(EXAMPLES.rglob("*.md"))]
TEXT: Final = "\n".join(page.read_text() for page in PAGES)
YAML_BLOCKS: Final = [block for page in PAGES for block in blocks(page, "yaml")]


def rows(name: str) -> Iterator[list[str]]:
    """The cells of the table that follows the mark ``<!-- tried: name -->``."""
    table = TEXT.partition(f"<!-- tried: {name} -->\n")[2].partition("\n\n")[0]
    lines = table.splitlines()[2:]
    assert lines, name
    for line in lines:
        yield [cell.strip() for cell in line.strip("|").split("|")]


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Site]:
    """The embedded cluster alone, since these are rules of the pure machine, with the default configuration."""
    async with site(tmp_path, Site, shipped_config()) as here:
        yield here


@pytest.mark.virtual_clock
async def test_retries_are_as_told(here: Site) -> None:
    frameworks = here.frameworks
    for number, (fancy, limit, exits, code, total, counted) in enumerate(rows("retry")):
        retry = {"fancyRetryPolicy": fancy == "true", "maxRetryCount": int(limit)}
        does = {"run-seconds": 1, "exit-code": exits}
        await frameworks.create(f"f{number}", role(task={"retryPolicy": retry}, simulate=does))
        (task,) = tasks(await frameworks.until_state(f"f{number}", "Completed", every=1))
        ended = task["attemptStatus"]["completionStatus"]["code"], task["retryPolicyStatus"]
        assert ended == (
            int(code),
            {"totalRetriedCount": int(total), "accountableRetriedCount": int(counted), "retryDelaySec": None},
        ), (fancy, limit, exits)


@pytest.mark.virtual_clock
async def test_delays_are_as_told(here: Site) -> None:
    """By the times at which the attempts of a Task begin; each takes a second and its own deletion."""
    frameworks = here.frameworks
    for number, (fancy, bounds, exits, delays) in enumerate(rows("delays")):
        name, retry = f"f{number}", dict[str, Any](fancyRetryPolicy=fancy == "true", maxRetryCount=100)
        if bounds:
            base, _, most = bounds.partition(", ")
            retry["backoff"] = {"baseSeconds": int(base), "maxSeconds": int(most)}
        does = {"run-seconds": 1, "exit-code": exits}
        await frameworks.create(name, role(task={"retryPolicy": retry}, simulate=does))
        begun: dict[int, int] = {}

        def ended(status: Json, begun: dict[int, int] = begun) -> bool:
            (task,) = tasks(status)
            started = datetime.fromisoformat(task["attemptStatus"]["startTime"]).timestamp()
            begun.setdefault(task["attemptStatus"]["id"], int(started))
            return bool(status["state"] == "Completed")

        await frameworks.until(name, ended, within=1000, every=0.5)
        expected = [int(delay) for delay in delays.split(", ")]
        assert sorted(begun) == list(range(len(expected) + 1)), (fancy, bounds)
        found = [begun[index + 1] - begun[index] for index in range(len(expected))]
        assert all(delay + 1 <= one <= delay + 3 for delay, one in zip(expected, found, strict=True)), (bounds, found)


@pytest.mark.virtual_clock
async def test_failure_rules_are_as_told(here: Site) -> None:
    frameworks, retry = here.frameworks, {"maxRetryCount": 1}
    for action, exits, retries, counted, code, of_framework in rows("rules"):
        on_exit_codes = {"operator": "In", "values": [42]}
        rules = {"rules": [{"action": action, "onExitCodes": on_exit_codes}]}
        does = {"run-seconds": 1, "exit-code": exits}
        name = action.lower()
        task: Json = {"retryPolicy": retry, "podFailurePolicy": rules}
        await frameworks.create(name, role(task=task, simulate=does), retryPolicy=retry)
        status = await frameworks.until_state(name, "Completed", every=1)
        (one,) = tasks(status)
        found = one["retryPolicyStatus"]
        assert (found["totalRetriedCount"], found["accountableRetriedCount"]) == (int(retries), int(counted)), action
        assert status["attemptStatus"]["completionStatus"]["code"] == int(code), action
        assert status["retryPolicyStatus"]["totalRetriedCount"] == int(of_framework), action


@pytest.mark.virtual_clock
async def test_completions_are_as_told(here: Site) -> None:
    frameworks, pods = here.frameworks, here.pods
    for number, (failed, succeeded, ends, code, stopped) in enumerate(rows("completion")):
        name = f"f{number}"
        completion = policy(int(failed), int(succeeded))
        await frameworks.create(name, role(number=3, frameworkAttemptCompletionPolicy=completion))
        await frameworks.until_running(name, 3)
        ended = {int(index): int(exit_code) for index, exit_code in re.findall(r"(\d): (\d+)", ends)}
        for count, (index, exit_code) in enumerate(ended.items(), 1):
            pods.fail(f"{frameworks.namespace}/{name}-a-{index}", exit_code)

            def told(status: Json, count: int = count) -> bool:
                return sum(code not in (None, -220) for code in codes(tasks(status))) == count

            await frameworks.until(name, told)
        status = await frameworks.until_state(name, "Completed")
        assert status["attemptStatus"]["completionStatus"]["code"] == int(code), (failed, succeeded, ends)
        left = [index for index, one in enumerate(codes(tasks(status))) if one == -220]
        assert left == [int(index) for index in re.findall(r"\d+", stopped)], (failed, succeeded, ends)
        assert [codes(tasks(status))[index] for index in ended] == list(ended.values())


@pytest.mark.virtual_clock
async def test_suspensions_are_as_told(here: Site) -> None:
    frameworks = here.frameworks
    for number, (when, attempt, counted) in enumerate(rows("suspend")):
        name = f"f{number}"
        if when == "before its start":
            await frameworks.create(name, role(), suspend=True)
        elif when.startswith("while a retry"):
            fails = role(simulate={"run-seconds": 1, "exit-code": 1}, frameworkAttemptCompletionPolicy=policy(1))
            await frameworks.create(name, fails, retryPolicy={"maxRetryCount": 1, "backoff": {"baseSeconds": 100}})
            await frameworks.until(name, lambda status: bool(status["retryPolicyStatus"]["retryDelaySec"]))
            await frameworks.set(name, suspend=True)
        else:
            await frameworks.create(name, role())
            await frameworks.until_running(name, 1)
            if when.startswith("twice"):
                await frameworks.set(name, suspend=True)
                await frameworks.until_state(name, "AttemptCreationPending")
                await frameworks.set(name, suspend=False)
                await frameworks.until_running(name, 1)
            await frameworks.set(name, suspend=True)
        status = await frameworks.until_state(name, "AttemptCreationPending", within=200)
        status = await frameworks.until(name, lambda status: condition(status, "Suspended").get("status") == "True")
        await frameworks.assert_nothing_left(name)
        assert status["attemptStatus"]["id"] == int(attempt), when
        assert status["retryPolicyStatus"]["accountableRetriedCount"] == int(counted), when
        await frameworks.set(name, suspend=False)
        await frameworks.until_state(name, "AttemptRunning")


def test_every_table_that_says_so_is_tried() -> None:
    marks = re.findall(r"<!-- tried: (\w+) -->", TEXT)
    assert sorted(marks) == sorted(set(re.findall(r'rows\("(\w+)"\)', Path(__file__).read_text())))


def test_the_walk_through_has_the_steps_of_the_script() -> None:
    said = re.findall(r'^say "(.*)"$', (EXAMPLES / "rescale/walkthrough.sh").read_text(), re.MULTILINE)
    (shown,) = (block for block in blocks(EXAMPLES / "rescale/README.md", "") if "a-0 " in block.text)
    assert re.findall(r"^# (.*)$", shown.text, re.MULTILINE) == said


# --- YAML ---

OF_A_SPEC: Final = {"executionType", "retryPolicy", "network", "coordinator", "scheduling", "taskRoles", "description"}
OF_A_POD: Final = {"metadata", "spec"}
OF_A_POD_SPEC: Final = {"initContainers", "containers", "tolerations", "volumes"}
OF_A_CONFIGURATION: Final = {field.alias for field in Config.model_fields.values()}
OF_A_KUSTOMIZATION: Final = {"resources", "components"}
NOT_OURS: Final = {"scrape_configs": "Prometheus"}


def as_framework(document: Json) -> Json | None:
    """The fragment in a whole Framework; None if it is nothing of one."""
    keys = set(document)
    if document.get("kind") == KIND:
        return document
    if keys <= OF_A_SPEC:
        spec = document
    elif keys == {"task"}:
        spec = of_pod(document["task"].get("pod") or {}, **document["task"])
    elif keys == {"pod"}:
        spec = of_pod(document["pod"])
    elif keys <= OF_A_POD:
        spec = of_pod(document)
    elif keys <= OF_A_POD_SPEC:
        spec = of_pod({"spec": document})
    else:
        return None
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "f"}, "spec": spec}


def of_pod(pod: Json, **task: Any) -> Json:
    """A spec of one role with that Pod template, and with the required fields of a Pod."""
    container = {"name": "main", "image": "none"}
    filled = {**pod, "spec": {"containers": [container], **(pod.get("spec") or {})}}
    return {"taskRoles": [{"name": "a", "task": {**task, "pod": filled}}]}


def documents(block: Block) -> list[Any]:
    return [document for document in yaml.safe_load_all(block.text) if document is not None]


@pytest.mark.parametrize("block", YAML_BLOCKS, ids=str)
def test_yaml_can_be_used(block: Block, tmp_path: Path) -> None:
    """Each is a valid part of a Framework, or a whole object of another kind."""
    for document in documents(block):
        assert isinstance(document, dict)
        framework = as_framework(document)
        if framework is not None:
            parse_spec(framework["spec"])
        elif set(document) <= OF_A_CONFIGURATION:
            (tmp_path / "config.yaml").write_text(block.text)
            load_config(tmp_path / "config.yaml", required=True)
        elif set(document) <= OF_A_KUSTOMIZATION:
            overlay = ROOT / "manifests/overlays/mine"
            assert [one for part in document.values() for one in part if not (overlay / one).resolve().is_dir()] == []
        else:
            known = set(document) <= set(NOT_OURS) or {"apiVersion", "kind"} <= set(document)
            assert known, f"{block}: what is it part of? Tell this test"


async def test_api_servers_take_every_framework_of_the_pages(cluster: Cluster) -> None:
    client = await cluster.client()
    wrong = []
    for block in YAML_BLOCKS:
        for document in documents(block):
            framework = as_framework(document)
            if framework is None:
                continue
            wrong += [f"{block}: {one}" for one in await dry_run(client, cluster.namespace, FRAMEWORKS, framework)]
            for pod in pods_of(framework, cluster):
                wrong += [f"{block}: Pod: {one}" for one in await dry_run(client, cluster.namespace, PODS, pod)]
    assert wrong == []


# --- Links to pages in code ---


def test_code_cites_pages_and_headings_that_are_there() -> None:
    cited = re.compile(r'(docs/[a-z-]+\.md)(?:,? \(?("[^"]+"(?:(?:,|,? and) "[^"]+")*))?')
    wrong = []
    for folder in ("frameworkcontroller", "manifests", "scripts", "tests", "benchmarks", "examples"):
        for file in (ROOT / folder).rglob("*"):
            if file.suffix not in (".py", ".yaml"):
                continue
            for name, headings in cited.findall(re.sub(r"\s+", " ", file.read_text())):
                page = ROOT / name
                text = page.read_text() if page.exists() else ""
                wanted = [f"# {heading}\n" for heading in re.findall(r'"([^"]+)"', headings)]
                if not text or not all(heading in text for heading in wanted):
                    wrong.append(f"{file.relative_to(ROOT)}: {name} {headings}")
    assert wrong == []
