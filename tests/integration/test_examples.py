"""The examples: every API server takes them, and they end as they say, with simulated Pods, and as people run them."""

import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import orjson
import pytest
import yaml

from frameworkcontroller.api import names
from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.kube.client import KubeClient
from frameworkcontroller.kube.resources import (
    CONFIGMAPS,
    PERSISTENTVOLUMECLAIMS,
    PODS,
    SERVICEACCOUNTS,
    SERVICES,
    Resource,
)
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.local.kubelet.simulation import PREFIX
from frameworkcontroller.manager.app import Controller
from tests.support.cli import run_program
from tests.support.clusters import Cluster
from tests.support.dryrun import dry_run
from tests.support.examples import EXAMPLES, OF_KUEUE, ROOT, example_files, find, framework_of, objects, pods_of
from tests.support.frameworks import Frameworks, codes, tasks
from tests.support.installed import PROGRAM, run_cleanly
from tests.support.othercontrollers import crd_of, served

Json = dict[str, Any]

RBAC: Final = "rbac.authorization.k8s.io"
KINDS: Final = {
    resource.kind: resource
    for resource in (
        FRAMEWORKS,
        CONFIGMAPS,
        PERSISTENTVOLUMECLAIMS,
        SERVICES,
        SERVICEACCOUNTS,
        Resource(RBAC, "v1", "roles", "Role"),
        Resource(RBAC, "v1", "rolebindings", "RoleBinding"),
    )
}

WORK: Final = {"run-seconds": "1"}
SERVE: Final = {"run-seconds": "forever"}


@dataclass(frozen=True)
class Run:
    """The behavior of each role's commands, for Pods that run none, and the end of the Framework that follows."""

    does: dict[str, dict[str, str]]
    phrase: str
    codes: dict[str, list[int]]
    retries: dict[str, list[int]] = field(default_factory=dict)
    framework_retries: int = 0
    trigger: str | None = None


def failing(code: int) -> dict[str, str]:
    return {"run-seconds": "1", "exit-code": str(code)}


RUNS: Final = {
    "batchsucceeded": Run({"worker": WORK}, "Succeeded", {"worker": [0]}),
    "batchretried": Run(
        {"worker": {"run-seconds": "1", "exit-code": "200, 0"}},
        "Succeeded",
        {"worker": [0, 0, 0]},
        retries={"worker": [1, 1, 1]},
    ),
    "batchfailedpermanent": Run(
        {"worker": failing(210)}, "ContainerPermanentFailed", {"worker": [210]}, retries={"worker": [0]}
    ),
    "batchfailedunknown": Run(
        {"worker": failing(1)}, "ContainerUnrecognizedFailed", {"worker": [1]}, retries={"worker": [1]}
    ),
    "batchstatefulfailed": Run(
        {"worker": failing(1)},
        "ContainerUnrecognizedFailed",
        {"worker": [1, 1, 1]},
        retries={"worker": [1, 1, 1]},
        framework_retries=1,
        trigger="FailedTaskCount 3 has reached MinFailedTaskCount 3 in the TaskRole",
    ),
    "batchwithservicesucceeded": Run(
        {"server": SERVE, "worker": WORK},
        "Succeeded",
        {"server": [-220, -220], "worker": [0, 0, 0]},
        trigger="SucceededTaskCount 3 has reached MinSucceededTaskCount 3 in the TaskRole",
    ),
    "inorder": Run(
        {"prepare": WORK, "server": SERVE, "client": WORK},
        "Succeeded",
        {"prepare": [0], "server": [-220], "client": [0, 0, 0]},
        trigger="SucceededTaskCount 3 has reached MinSucceededTaskCount 3 in the TaskRole",
    ),
    "deadline": Run({"worker": SERVE}, "FrameworkActiveDeadlineExceeded", {"worker": [-220]}),
    "failurerules": Run(
        {"worker": {"run-seconds": "1", "exit-code": "42"}},
        "ContainerUnrecognizedFailed",
        {},
        retries={"worker": [0, 0, 0]},
    ),
    "backoff": Run(
        {"worker": {"run-seconds": "0", "exit-code": "1, 1, 0"}}, "Succeeded", {"worker": [0]}, {"worker": [2]}
    ),
    "gang": Run({"worker": WORK}, "Succeeded", {"worker": [0, 0, 0, 0]}),
    "lostnode": Run({"worker": WORK}, "Succeeded", {"worker": [0, 0]}),
    "queued": Run({"worker": WORK}, "Succeeded", {"worker": [0, 0, 0, 0]}),
    "resumed": Run({"worker": WORK}, "Succeeded", {"worker": [0, 0, 0, 0]}),
    "urgent": Run({"worker": WORK}, "Succeeded", {"worker": [0, 0]}),
    "serverworkers": Run(
        {"server": SERVE, "worker": WORK},
        "Succeeded",
        {"server": [-220], "worker": [0, 0, 0]},
        trigger="SucceededTaskCount 3 has reached MinSucceededTaskCount 3 in the TaskRole",
    ),
}

OTHERS: Final = (
    "allornothing", "allreduce", "evicted", "fromjob", "fromjobset", "fromtrainjob", "fromvolcanojob", "long",
)  # fmt: skip
ENDING: Final = {
    **{name: "Succeeded" if run.phrase == "Succeeded" else "Failed" for name, run in RUNS.items()},
    **dict.fromkeys(OTHERS, "Succeeded"),
}
del ENDING["queued"], ENDING["urgent"]
"""Those that run to their end by themselves on any machine with sh and python3, and how they end."""

NAMED: Final = {"standalone": "Succeeded"}
"""Those that also need host names, and so namespaces (docs/local-cluster.md)."""


def namespaces_work() -> bool:
    unshare = ["unshare", "--mount", "--uts", *([] if os.geteuid() == 0 else ["--map-root-user"]), "true"]
    return subprocess.run(unshare, capture_output=True, check=False).returncode == 0


async def started(name: str, does: dict[str, dict[str, str]], cluster: Cluster, client: KubeClient) -> None:
    """Create the example, its Pods simulated."""
    framework = framework_of(find(name))
    for role in framework["spec"]["taskRoles"]:
        annotations = role["task"]["pod"].setdefault("metadata", {}).setdefault("annotations", {})
        annotations |= {PREFIX + key: value for key, value in does[role["name"]].items()}
    await client.create(FRAMEWORKS, orjson.dumps(framework), cluster.namespace)


@pytest.mark.newest
async def test_they_end_as_they_say_and_leave_nothing_behind(
    cluster: Cluster, pods: SimulatedRuntime, controller: Controller
) -> None:
    """All at the same time, to save time."""
    client = await cluster.client()
    frameworks = Frameworks(client, cluster.namespace)
    for name, run in RUNS.items():
        await started(name, run.does, cluster, client)
    for name, run in RUNS.items():
        status = await frameworks.until_state(name, "Completed")
        completion = status["attemptStatus"]["completionStatus"]
        assert completion["phrase"] == run.phrase, name
        assert {role: codes(tasks(status, role)) for role in run.codes} == run.codes, name
        for role, retries in run.retries.items():
            assert [task["retryPolicyStatus"]["totalRetriedCount"] for task in tasks(status, role)] == retries, name
        assert status["retryPolicyStatus"]["totalRetriedCount"] == run.framework_retries, name
        if run.trigger is not None:
            assert completion["trigger"]["message"] == run.trigger, name
        await frameworks.assert_nothing_left(name)


@pytest.mark.virtual_clock
async def test_a_transient_failure_is_retried_forever_and_for_free(
    cluster: Cluster, pods: SimulatedRuntime, controller: Controller
) -> None:
    client = await cluster.client()
    await started("batchfailedtransient", {"worker": {"run-seconds": "0", "exit-code": "200"}}, cluster, client)

    def retried(status: Json) -> bool:
        (task,) = tasks(status, "worker")
        policy = task["retryPolicyStatus"]
        assert policy["accountableRetriedCount"] == 0
        return bool(policy["totalRetriedCount"] >= 5)

    await Frameworks(client, cluster.namespace).until("batchfailedtransient", retried)


@pytest.mark.virtual_clock
async def test_a_conflict_gives_everything_back_and_waits(
    cluster: Cluster, pods: SimulatedRuntime, controller: Controller
) -> None:
    name, client = "batchfailedtransientconflict", await cluster.client()
    frameworks = Frameworks(client, cluster.namespace)
    await started(name, {"worker": failing(201)}, cluster, client)
    status = await frameworks.until(name, lambda status: status["retryPolicyStatus"]["retryDelaySec"] is not None)
    assert status["state"] == "AttemptCompleted"
    assert 60 <= status["retryPolicyStatus"]["retryDelaySec"] <= 900
    await frameworks.assert_nothing_left(name)
    status = await frameworks.until(name, lambda status: bool(status["attemptStatus"]["id"] == 1), within=1000, every=5)
    assert status["retryPolicyStatus"]["totalRetriedCount"] == 1
    assert status["retryPolicyStatus"]["accountableRetriedCount"] == 0


@pytest.mark.virtual_clock
async def test_a_gang_that_is_not_complete_in_time_gives_everything_back(
    cluster: Cluster, pods: SimulatedRuntime, controller: Controller
) -> None:
    """Its last worker finds no room at first."""
    client = await cluster.client()
    frameworks = Frameworks(client, cluster.namespace)
    framework = framework_of(find("gang"))
    (worker,) = framework["spec"]["taskRoles"]
    worker["taskNumber"] = 3
    stuck = {PREFIX + "prepare-seconds": "100000, 0", PREFIX + "attempt": "framework", PREFIX + "run-seconds": "1"}
    runs = {PREFIX + "run-seconds": "100000, 1", PREFIX + "attempt": "framework"}
    last = {**simulated(worker, stuck), "preRunningDeadlineSeconds": 3}
    framework["spec"]["taskRoles"] = [
        {**worker, "task": simulated(worker, runs)},
        {**worker, "name": "last", "taskNumber": 1, "task": last},
    ]
    await client.create(FRAMEWORKS, orjson.dumps(framework), cluster.namespace)
    status = await frameworks.until("gang", lambda status: status["retryPolicyStatus"]["retryDelaySec"] is not None)
    assert status["attemptStatus"]["completionStatus"]["code"] == -260
    assert codes(tasks(status, "worker")) == [-220, -220, -220]
    assert 60 <= status["retryPolicyStatus"]["retryDelaySec"] <= 900
    await frameworks.assert_nothing_left("gang")
    status = await frameworks.until_state("gang", "Completed", within=1000, every=5)
    assert status["attemptStatus"]["completionStatus"]["code"] == 0
    policy = status["retryPolicyStatus"]
    assert (policy["totalRetriedCount"], policy["accountableRetriedCount"]) == (1, 0)


def simulated(role: Json, annotations: dict[str, str]) -> Json:
    """The role's Task, with Pods that behave as the annotations say."""
    return {**role["task"], "pod": {**role["task"]["pod"], "metadata": {"annotations": annotations}}}


async def test_every_api_server_takes_every_example(cluster: Cluster) -> None:
    """All objects, and of each role a Pod, since no API server looks into the Pod template of a Framework."""
    client = await cluster.client()
    create = partial(dry_run, client, cluster.namespace)
    wrong = []
    for path in example_files():
        for manifest in objects(path):
            wrong += [f"{manifest}: {error}" for error in await create(KINDS[manifest.kind], manifest.body)]
        for pod in pods_of(framework_of(path), cluster):
            wrong += [f"{path}: Pod {pod['metadata']['name']}: {error}" for error in await create(PODS, pod)]
    assert wrong == []


async def test_objects_of_kueue_are_valid_by_its_schemas(cluster: Cluster) -> None:
    """All except its ClusterQueue, whose schema is missing here."""
    if cluster.name == "1.20":
        pytest.skip("Kueue supports no Kubernetes as old")
    client, tried = await cluster.client(), []
    for body in yaml.safe_load_all((OF_KUEUE / "queues.yaml").read_text()):
        crd = crd_of(body)
        if crd is None:
            continue
        async with served(client, crd) as resource:
            assert await dry_run(client, cluster.namespace, resource, body) == []
            tried.append(body["kind"])
    if not tried:
        pytest.skip("no CustomResourceDefinitions of Kueue in ../shared/crds or OTHER_CRDS")
    assert tried == ["ResourceFlavor", "LocalQueue", "WorkloadPriorityClass", "WorkloadPriorityClass"]


@pytest.mark.usefixtures("logging_as_before")
def test_lint_has_nothing_to_complain_of() -> None:
    ended = run_program("lint", *map(str, example_files()))
    assert (ended.code, ended.err) == (0, ""), ended
    assert "no problems" in ended.out


def test_make_demo_runs_examples_that_succeed() -> None:
    (line,) = re.findall(r"^demo:.*\n\t(.* local run .*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {ENDING[Path(word).stem] for word in line.split() if word.endswith(".yaml")} == {"Succeeded"}


def test_those_that_end_do_so_as_people_run_them(tmp_path: Path) -> None:
    """The installed program, the files as they are, real processes and real time; two clusters at once to save time."""
    ending = ENDING | (NAMED if namespaces_work() else {})

    def run(folder: str, *names: str) -> subprocess.CompletedProcess[str]:
        files = [find(name).relative_to(ROOT) for name in names]
        return run_cleanly(tmp_path / folder, PROGRAM, "local", "run", "--logs", "--timeout", "500", *files)

    with ThreadPoolExecutor(1) as pool:
        # It loses the only node, and every other Framework's with it.
        losing = pool.submit(run, "losing", "outage")
        ran, lost = run("others", *ending), losing.result()
    assert endings(ran) == ending, ran.stdout + ran.stderr
    assert "worker: 3 Tasks, 1 retry: 3 succeeded" in ran.stdout
    assert "SucceededTaskCount 3 has reached MinSucceededTaskCount 3" in ran.stdout
    # Some of them fail, as they should.
    assert (ran.returncode, ran.stderr) == (1, "")
    assert re.search(r"evicted worker\[0\]: Ending \(attempt 0\): .*\(-1010 PodEvictedByApi\)", ran.stdout)
    assert endings(lost) == {"outage": "Succeeded"}, lost.stdout + lost.stderr
    assert (lost.returncode, lost.stderr) == (0, "")
    assert re.search(r"worker\[0\]: Ending \(attempt 0\): .*\(-1009 PodEvictedByTaint\)", lost.stdout)
    # A kubelet keeps a container running until it is notified.
    assert "| attempt 0 runs" in lost.stdout.partition("worker[0]: Pending (attempt 1)")[2]


def endings(ran: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """How each Framework ended, by the summary."""
    return dict(re.findall(r"^(\w+): (\w+) after", ran.stdout, re.MULTILINE))


@pytest.mark.parametrize("path", example_files(), ids=lambda path: path.stem)
def test_is_named_like_its_file_and_describes_its_content(path: Path) -> None:
    text, framework = path.read_text(), framework_of(path)
    assert text.startswith("# ")
    assert framework["metadata"]["name"] == path.stem
    assert framework["apiVersion"] == names.API_VERSION
    readme = next(folder / "README.md" for folder in path.parents if (folder / "README.md").exists())
    assert readme.is_relative_to(EXAMPLES)
    assert f"({path.relative_to(readme.parent)})" in readme.read_text(), f"{readme} does not tell of {path.name}"
