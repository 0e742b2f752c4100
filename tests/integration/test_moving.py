"""docs/moving.md: the manifests of other controllers are valid, and the Frameworks in their place behave alike."""

from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import orjson
import pytest

from frameworkcontroller.api.resources import FRAMEWORKS
from frameworkcontroller.config.config import shipped_config
from frameworkcontroller.kube.resources import PODS, Resource
from frameworkcontroller.local.kubelet.simulation import PREFIX
from tests.support.clusters import Cluster
from tests.support.dryrun import dry_run
from tests.support.eventually import eventually
from tests.support.examples import BEFORE, EXAMPLES, Json, find, framework_of
from tests.support.frameworks import codes, condition, tasks
from tests.support.othercontrollers import crd_of, manifest, served
from tests.support.site import Site, site

JOBS: Final = Resource("batch", "v1", "jobs", "Job")
NAMES: Final = sorted(path.stem for path in BEFORE.glob("*.yaml"))


def test_each_has_its_framework() -> None:
    after = {path.stem for path in (EXAMPLES / "moving").glob("*.yaml")}
    assert after == {f"from{name}" for name in NAMES}


# --- the manifests before ---


@pytest.mark.parametrize("name", [name for name in NAMES if name != "job"])
async def test_the_manifest_is_valid_by_its_real_schema(name: str, cluster: Cluster) -> None:
    body = manifest(name)
    if cluster.name == "1.20":
        pytest.skip("refuses their default values; none of them supports a Kubernetes as old")
    crd = crd_of(body)
    if crd is None:
        pytest.skip(f"no CustomResourceDefinition of {name} in ../shared/crds or OTHER_CRDS")
    client = await cluster.client()
    async with served(client, crd) as resource:
        assert await dry_run(client, cluster.namespace, resource, body) == []
        wrong = {**body, "spec": {**body["spec"], "noSuchField": 1}}
        assert await dry_run(client, cluster.namespace, resource, wrong) != []


async def test_the_job_is_valid(cluster: Cluster) -> None:
    body, client = manifest("job"), await cluster.client()
    if cluster.name == "assets":
        assert await dry_run(client, cluster.namespace, JOBS, body) == []
    # Those without Jobs: the template as a Pod. tests/unit/test_moving_tables.py knows the fields.
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "job"}, **body["spec"]["template"]}
    assert await dry_run(client, cluster.namespace, PODS, pod) == []


# --- the Frameworks after ---


class Here(Site):
    """The embedded cluster on virtual time, with simulated Pods."""

    def wall(self) -> float:
        return self.cluster.wall()

    async def start(self, name: str, does: dict[str, dict[str, str]], **spec: Any) -> None:
        """Create the Framework of that example; its Pods behave as given by role, or run forever."""
        framework = framework_of(find(name))
        framework["spec"] |= spec
        for role in framework["spec"]["taskRoles"]:
            annotations = role["task"]["pod"].setdefault("metadata", {}).setdefault("annotations", {})
            annotations |= {PREFIX + key: value for key, value in does.get(role["name"], {}).items()}
        await self.frameworks.client.create(FRAMEWORKS, orjson.dumps(framework), self.frameworks.namespace)

    def ends(self, pod: str, code: int = 0) -> None:
        """End the Pod now."""
        self.pods.fail(f"{self.frameworks.namespace}/{pod}", code)

    async def until_run(self, *names: str, replaced: str = "") -> dict[str, str]:
        """Wait until exactly these Pods exist, and run, and none has the UID ``replaced``. Return their UIDs."""

        async def probe() -> dict[str, str]:
            found = await self.frameworks.pods()
            assert set(found) == set(names)
            assert all(pod["status"].get("phase") == "Running" for pod in found.values())
            uids = {name: pod["metadata"]["uid"] for name, pod in found.items()}
            assert replaced not in uids.values()
            return uids

        return await eventually(probe, within=100)


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Here]:
    async with site(tmp_path, Here, shipped_config()) as here:
        yield here


def pods_named(name: str, **counts: int) -> list[str]:
    return [f"{name}-{role}-{index}" for role, count in counts.items() for index in range(count)]


def completion(status: Json) -> Json:
    found: Json = status["attemptStatus"]["completionStatus"]
    return found


@pytest.mark.virtual_clock
async def test_job_retries_each_index_after_a_delay_and_tolerates_failures(here: Here) -> None:
    await here.start("fromjob", {})
    names = pods_named("fromjob", worker=5)
    first = await here.until_run(*names)
    at = here.wall()
    here.ends(names[0], 1)
    second = await here.until_run(*names, replaced=first[names[0]])
    assert 10 <= here.wall() - at < 15
    assert {name for name in names if first[name] != second[name]} == {names[0]}
    here.ends(names[0], 1)  # its second failure is the last, and the one that is tolerated
    for name in names[1:]:
        here.ends(name)
    status = await here.frameworks.until_state("fromjob", "Completed")
    assert completion(status)["code"] == 0
    assert codes(tasks(status, "worker")) == [1, 0, 0, 0, 0]
    ended = here.wall()
    await eventually(lambda: here.frameworks.until_gone("fromjob"), within=700)
    assert 595 <= here.wall() - ended <= 660


@pytest.mark.virtual_clock
async def test_job_fails_when_too_many_indexes_do(here: Here) -> None:
    await here.start("fromjob", {"worker": {"run-seconds": "1", "exit-code": "1"}})
    status = await here.frameworks.until_state("fromjob", "Completed", within=100)
    assert completion(status)["code"] == 1
    assert completion(status)["trigger"]["message"].endswith("MinFailedTaskCount 2 in the TaskRole")


@pytest.mark.virtual_clock
async def test_job_fails_at_once_with_exit_code_42(here: Here) -> None:
    await here.start("fromjob", {})
    names = pods_named("fromjob", worker=5)
    await here.until_run(*names)
    here.ends(names[3], 42)
    status = await here.frameworks.until_state("fromjob", "Completed")
    assert completion(status)["code"] == 42
    assert completion(status)["policy"] == {"action": "FailFramework", "rule": 1}
    assert codes(tasks(status, "worker")) == [-220, -220, -220, 42, -220]


@pytest.mark.virtual_clock
@pytest.mark.parametrize(("name", "seconds"), [("fromjob", 3600), ("fromtrainjob", 86400), ("fromrayjob", 3600)])
async def test_hangs_until_its_deadline_and_no_longer(name: str, seconds: int, here: Here) -> None:
    await here.start(name, {})
    status = await here.frameworks.until_state(name, "Completed", within=2 * seconds, every=seconds / 10)
    assert completion(status)["phrase"] == "FrameworkActiveDeadlineExceeded"
    begun, ended = (datetime.fromisoformat(status[key]) for key in ("startTime", "completionTime"))
    assert seconds <= (ended - begun).total_seconds() <= seconds + 60
    await here.frameworks.assert_nothing_left(name)


@pytest.mark.virtual_clock
async def test_jobset_is_in_order_and_restarts_as_a_whole(here: Here) -> None:
    await here.start("fromjobset", {})
    workers = pods_named("fromjobset", worker=4)
    for restart in range(3):
        await here.until_run("fromjobset-prepare-0")
        here.ends("fromjobset-prepare-0")
        await here.until_run(*workers)
        here.ends(workers[restart], 1)
    status = await here.frameworks.until_state("fromjobset", "Completed")
    assert completion(status)["code"] == 1
    assert status["retryPolicyStatus"]["totalRetriedCount"] == 2


@pytest.mark.virtual_clock
async def test_jobset_succeeds_with_its_workers_and_goes_after_its_time(here: Here) -> None:
    await here.start("fromjobset", {role: {"run-seconds": "5"} for role in ("prepare", "worker")})
    status = await here.frameworks.until_state("fromjobset", "Completed")
    assert completion(status)["trigger"]["message"].startswith("SucceededTaskCount 4 ")
    await eventually(lambda: here.frameworks.until_gone("fromjobset"), within=700)


@pytest.mark.virtual_clock
async def test_trainjob_fetches_its_dataset_first(here: Here) -> None:
    await here.start("fromtrainjob", {})
    await here.until_run("fromtrainjob-dataset-0")
    here.ends("fromtrainjob-dataset-0")
    nodes = pods_named("fromtrainjob", node=3)
    await here.until_run(*nodes)
    for node in nodes:
        here.ends(node)
    status = await here.frameworks.until_state("fromtrainjob", "Completed")
    assert completion(status)["code"] == 0


@pytest.mark.virtual_clock
async def test_trainjob_fails_without_its_dataset(here: Here) -> None:
    await here.start("fromtrainjob", {"dataset": {"run-seconds": "1", "exit-code": "3"}})
    status = await here.frameworks.until_state("fromtrainjob", "Completed")
    assert completion(status)["code"] == 3
    assert completion(status)["trigger"]["taskRoleName"] == "dataset"
    assert codes(tasks(status, "node")) == [-220, -220, -220]


@pytest.mark.virtual_clock
async def test_volcano_ends_with_its_master_and_restarts_with_a_failed_pod(here: Here) -> None:
    await here.start("fromvolcanojob", {"master": {"startup-seconds": "30"}})
    all_of_them = pods_named("fromvolcanojob", master=1, worker=3)
    await eventually(lambda: only(here, "fromvolcanojob-master-0"))
    await here.until_run(*all_of_them)
    here.ends("fromvolcanojob-worker-1", 1)
    await here.frameworks.until("fromvolcanojob", lambda status: bool(status["attemptStatus"]["id"] == 1))
    await here.until_run(*all_of_them)
    here.ends("fromvolcanojob-master-0")
    status = await here.frameworks.until_state("fromvolcanojob", "Completed")
    assert completion(status)["code"] == 0
    assert codes(tasks(status, "worker")) == [-220, -220, -220]


async def only(here: Here, name: str) -> None:
    assert set(await here.frameworks.pods()) == {name}


@pytest.mark.virtual_clock
async def test_volcano_is_terminated_by_exit_code_42(here: Here) -> None:
    await here.start("fromvolcanojob", {})
    await here.until_run(*pods_named("fromvolcanojob", master=1, worker=3))
    here.ends("fromvolcanojob-worker-2", 42)
    status = await here.frameworks.until_state("fromvolcanojob", "Completed")
    assert (completion(status)["code"], status["retryPolicyStatus"]["totalRetriedCount"]) == (42, 0)


@pytest.mark.virtual_clock
async def test_leaderworkerset_recreates_its_group_under_the_same_names(here: Here) -> None:
    await here.start("fromleaderworkerset", {"leader": {"startup-seconds": "20"}})
    group = pods_named("fromleaderworkerset", leader=1, worker=2)
    seen: set[str] = set()
    for ends in ("leader-0", "worker-1", "worker-0"):
        await eventually(lambda: only(here, "fromleaderworkerset-leader-0"))
        found = set((await here.until_run(*group)).values())
        assert not seen & found
        seen |= found
        here.ends(f"fromleaderworkerset-{ends}", 1 if ends != "worker-0" else 0)
    await eventually(lambda: only(here, "fromleaderworkerset-leader-0"))
    assert not seen & set((await here.until_run(*group)).values())
    await here.frameworks.set("fromleaderworkerset", executionType="Stop")
    await here.frameworks.until_state("fromleaderworkerset", "Completed")
    await here.frameworks.assert_nothing_left("fromleaderworkerset")


@pytest.mark.virtual_clock
async def test_rayjob_replaces_workers_and_ends_with_its_driver(here: Here) -> None:
    await here.start("fromrayjob", {"head": {"startup-seconds": "20"}})
    cluster = pods_named("fromrayjob", head=1, worker=2, driver=1)
    await eventually(lambda: only(here, "fromrayjob-head-0"))
    first = await here.until_run(*cluster)
    here.ends("fromrayjob-worker-1", 1)
    second = await here.until_run(*cluster, replaced=first["fromrayjob-worker-1"])
    assert {name for name in cluster if first[name] != second[name]} == {"fromrayjob-worker-1"}
    here.ends("fromrayjob-driver-0")
    status = await here.frameworks.until_state("fromrayjob", "Completed")
    assert (completion(status)["code"], status["retryPolicyStatus"]["totalRetriedCount"]) == (0, 0)
    await eventually(lambda: here.frameworks.until_gone("fromrayjob"), within=700)


@pytest.mark.virtual_clock
async def test_rayjob_gives_up_when_its_head_does_not_run_in_time(here: Here) -> None:
    """With a new cluster for the one retry."""
    at = here.wall()
    await here.start("fromrayjob", {"head": {"prepare-seconds": "100000"}})
    status = await here.frameworks.until_state("fromrayjob", "Completed", within=1300, every=5)
    assert completion(status)["phrase"] == "TaskPreRunningDeadlineExceeded"
    assert status["retryPolicyStatus"]["totalRetriedCount"] == 1
    assert 1200 <= here.wall() - at <= 1260


@pytest.mark.virtual_clock
@pytest.mark.parametrize("name", ["fromjob", "fromjobset", "fromtrainjob", "fromvolcanojob", "fromrayjob"])
async def test_is_suspended_where_the_other_can_be(name: str, here: Here) -> None:
    """At its start, and in the middle of its run."""

    async def is_suspended() -> Json:
        status = await here.frameworks.until(
            name, lambda status: condition(status, "Suspended").get("status") == "True"
        )
        assert await here.frameworks.pods() == {}
        return status

    await here.start(name, {}, suspend=True)
    assert (await is_suspended())["attemptStatus"]["id"] == 0
    await here.frameworks.set(name, suspend=False)
    await here.frameworks.until_state(name, "AttemptRunning")
    await here.frameworks.set(name, suspend=True)
    assert (await is_suspended())["retryPolicyStatus"]["accountableRetriedCount"] == 0
    await here.frameworks.set(name, suspend=False)
    status = await here.frameworks.until_state(name, "AttemptRunning")
    assert status["attemptStatus"]["id"] == 1
