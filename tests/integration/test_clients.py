"""The requests of existing clients, in their shapes, and the fields of the responses that they read.

One group per client. Requests are bare HTTP: a client's library must not correct an input that the product should take.
"""

import base64
import gzip
import json
import re
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
import yaml

from frameworkcontroller.api import names
from frameworkcontroller.config.config import Config, shipped_config
from frameworkcontroller.local.kubelet.simulated import SimulatedRuntime
from frameworkcontroller.manager.app import Controller
from tests.support.api import MERGE_PATCH, Api, gone, open_api
from tests.support.clusters import Cluster
from tests.support.eventually import eventually, read_until, until
from tests.support.realcluster import ROOT

Json = dict[str, Any]

SIM: Final = "sim.frameworkcontroller.dev/"


@pytest.fixture
async def api(cluster: Cluster, pods: SimulatedRuntime) -> AsyncIterator[Api]:
    """The API server, and a node; the controller is each group's own."""
    async with open_api(cluster.kubeconfig, cluster.namespace) as api:
        yield api


def path_of(api: Api, name: str = "") -> str:
    return f"/apis/{names.GROUP}/v1/namespaces/{api.namespace}/frameworks" + (f"/{name}" if name else "")


async def in_state(api: Api, name: str, state: str) -> Json:
    """The Framework, once it is in that state."""

    async def probe() -> Json:
        body: Json = (await api.get(path_of(api, name))).ok()
        assert body.get("status", {}).get("state") == state, body.get("status")
        return body

    return await eventually(probe, within=60)


async def pods_of(api: Api, name: str) -> dict[str, Json]:
    """The Pods of a Framework by name, found as clients find them."""
    items = (await api.get(api.path("pods"), labelSelector=f"FC_FRAMEWORK_NAME={name}")).ok()["items"]
    return {item["metadata"]["name"]: item for item in items}


async def pods_named(api: Api, framework: str, *names: str) -> dict[str, Json]:
    """The Pods of a Framework, once exactly these exist: it runs as soon as one of them does."""
    return await read_until(lambda: pods_of(api, framework), lambda pods: sorted(pods) == sorted(names))


def env_of(pod: Json, container: str = "") -> dict[str, Any]:
    """The environment of a container (the first one), as it is declared."""
    spec = pod["spec"]
    every = [*spec.get("initContainers", ()), *spec["containers"]]
    found = next(item for item in every if item["name"] == (container or spec["containers"][0]["name"]))
    return {item["name"]: item.get("value", item.get("valueFrom")) for item in found["env"]}


def request_of(client: str, name: str, simulate: Json) -> Json:
    """The request of a client to create the Framework; its Pods behave as `simulate` says."""
    body: Json = yaml.safe_load((ROOT / f"tests/support/clients/{client}.yaml").read_text())
    body["metadata"]["name"] = name
    for role in body["spec"]["taskRoles"]:
        annotations = role["task"]["pod"].setdefault("metadata", {}).setdefault("annotations", {})
        annotations |= {SIM + key: value for key, value in simulate.items()}
    return body


# --- NNI ----------------------------------------------------------------------------------------------------------


def nni_framework(name: str, **simulate: str) -> Json:
    """A trial of NNI."""
    body = request_of("nni", name, simulate)
    body["metadata"]["labels"]["trialId"] = name
    return body


async def nni_creates(api: Api, name: str, **annotations: str) -> Json:
    body = nni_framework(name, **annotations)
    body["metadata"]["namespace"] = api.namespace
    created: Json = (await api.post(path_of(api), body)).ok()
    return created


async def test_nni_submits_a_trial_and_reads_how_it_ended(api: Api, controller: Controller) -> None:
    created = await nni_creates(api, "nniexp1envabc", **{"run-seconds": "1"})
    assert created["spec"]["retryPolicy"] == {"fancyRetryPolicy": False, "maxRetryCount": 0}
    assert created["spec"]["taskRoles"][0]["task"].get("podGracefulDeletionTimeoutSec") is None
    # The template is stored as it was sent, with its unknown fields.
    sent = nni_framework("nniexp1envabc", **{"run-seconds": "1"})["spec"]["taskRoles"]
    assert [role["task"]["pod"] for role in created["spec"]["taskRoles"]] == [role["task"]["pod"] for role in sent]

    status = (await in_state(api, "nniexp1envabc", "Completed"))["status"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", status["startTime"])
    assert status["startTime"] <= status["completionTime"]
    assert status["attemptStatus"]["completionStatus"]["type"]["name"] == "Succeeded"


async def test_nni_pods_are_as_it_asked(api: Api, controller: Controller) -> None:
    await nni_creates(api, "trial")
    pods = await pods_named(api, "trial", "trial-ps-0", "trial-worker-0")
    for pod in pods.values():
        assert pod["spec"]["restartPolicy"] == "OnFailure"
        # The API server drops the unknown key, and accepts the object.
        assert pod["spec"]["volumes"][0]["azureFile"]["shareName"] == "nni"
        # Without any configuration of its own, the barrier finds its Framework by these.
        barrier = env_of(pod, "frameworkbarrier")
        assert barrier["FC_FRAMEWORK_NAMESPACE"] == api.namespace
        assert barrier["FC_FRAMEWORK_NAME"] == "trial"
        assert list(barrier) == list(env_of(pod, "framework"))


async def test_nni_reads_that_a_trial_failed(api: Api, controller: Controller, pods: SimulatedRuntime) -> None:
    # OnFailure restarts a container in place, so that a trial fails only with its Pod.
    await nni_creates(api, "trial")
    await in_state(api, "trial", "AttemptRunning")
    await until(lambda: f"{api.namespace}/trial-worker-0" in pods.running())
    pods.fail_pod(f"{api.namespace}/trial-worker-0", "Evicted", "no memory is left")
    status = (await in_state(api, "trial", "Completed"))["status"]
    assert status["attemptStatus"]["completionStatus"]["type"]["name"] == "Failed"


async def test_nni_deletes_objects_with_its_labels(api: Api, controller: Controller) -> None:
    for name in ("trial1", "trial2"):
        await nni_creates(api, name)
        await in_state(api, name, "AttemptRunning")
    (
        await api.delete(
            path_of(api), labelSelector="app=nni,expId=exp1,trialId=trial1", propagationPolicy="Background"
        )
    ).ok()
    await gone(api, path_of(api, "trial1"))

    async def nothing_left() -> None:
        assert await pods_of(api, "trial1") == {}
        configmaps = (await api.get(api.path("configmaps"), labelSelector="FC_FRAMEWORK_NAME=trial1")).ok()
        assert configmaps["items"] == []

    await eventually(nothing_left, within=60)
    assert (await in_state(api, "trial2", "AttemptRunning"))["metadata"].get("deletionTimestamp") is None


# --- DLWorkspace --------------------------------------------------------------------------------------------------


def dlworkspace_framework(name: str, **simulate: str) -> Json:
    """A job of DLWorkspace."""
    return request_of("dlworkspace", name, simulate)


async def test_dlworkspace_runs_a_job_with_empty_policies(api: Api, controller: Controller) -> None:
    (await api.post(path_of(api), dlworkspace_framework("job"))).ok()
    body = await in_state(api, "job", "AttemptRunning")
    worker = body["spec"]["taskRoles"][1]
    assert worker["task"]["retryPolicy"]["maxRetryCount"] == 0
    assert worker["frameworkAttemptCompletionPolicy"] == {"minFailedTaskCount": 0, "minSucceededTaskCount": 0}
    pods = await pods_named(api, "job", "job-ps-0", "job-worker-0", "job-worker-1")
    for container in ("init", "3f2a"):
        env = env_of(pods["job-worker-1"], container)
        assert (env["FC_FRAMEWORK_ATTEMPT_ID"], env["FC_TASK_ATTEMPT_ID"]) == ("0", "0")
        assert (env["FC_TASKROLE_NAME"], env["FC_TASK_INDEX"]) == ("worker", "1")
    # The container's own come last, where they may refer to the others.
    assert list(env_of(pods["job-ps-0"]))[-1] == "DLWS_ROLE_NAME"
    assert pods["job-ps-0"]["metadata"]["labels"].items() >= {"jobId": "3f2a", "FC_TASKROLE_NAME": "ps"}.items()
    assert pods["job-ps-0"]["spec"]["hostNetwork"] is True


@pytest.mark.parametrize(
    ("exit_code", "phrase", "attempts"),
    [
        (200, "ContainerTransientFailed", 2),
        (201, "ContainerTransientConflictFailed", 2),
        (202, "ContainerUnrecognizedFailed", 2),
        (204, "ContainerUnrecognizedFailed", 2),
    ],
)
async def test_dlworkspace_reads_why_its_init_container_gave_up(
    api: Api, controller: Controller, exit_code: int, phrase: str, attempts: int
) -> None:
    (await api.post(path_of(api), dlworkspace_framework("job", **{"exit-code.init": str(exit_code)}))).ok()
    status = (await in_state(api, "job", "Completed"))["status"]
    completion = status["attemptStatus"]["completionStatus"]
    assert completion["code"] == exit_code
    assert completion["phrase"] == phrase
    assert completion["type"]["name"] == "Failed"
    assert f'"code":{exit_code}' in completion["diagnostics"]
    assert status["attemptStatus"]["id"] == attempts - 1


async def test_dlworkspace_kills_a_job(api: Api, controller: Controller) -> None:
    (await api.post(path_of(api), dlworkspace_framework("job", **{"stop-seconds": "1"}))).ok()
    await in_state(api, "job", "AttemptRunning")
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
    (await api.delete(path_of(api, "job"), options)).ok()
    await gone(api, path_of(api, "job"))
    await read_until(lambda: pods_of(api, "job"), lambda found: found == {}, within=60)
    answer = await api.get(path_of(api, "job"))
    assert (answer.code, answer.reason) == (404, "NotFound")


# --- OpenPAI ------------------------------------------------------------------------------------------------------


def pai_framework(name: str, number: int = 2, generation: int = 1, simulate: Json | None = None) -> Json:
    """A job of OpenPAI."""
    body = request_of("openpai", name, simulate or {})
    body["metadata"]["annotations"] |= {"totalTaskNumber": str(number), "requestGeneration": str(generation)}
    body["spec"]["taskRoles"][0]["taskNumber"] = number
    return body


@pytest.fixture
async def pai(api: Api, cluster: Cluster) -> AsyncIterator[Api]:
    """A controller as OpenPAI configures it."""
    config = shipped_config().model_copy(
        update={
            "large_framework_compression": True,
            "kube_client_qps": 200.0,
            "kube_client_burst": 300,
            "worker_number": 500,
            "framework_completed_retain_sec": 2_147_483_600,
        }
    )
    assert isinstance(config, Config)
    async with Controller(config, await cluster.connection(), wall=cluster.wall):
        yield api


def roles_of(status: Json) -> Any:
    """As the rest-server reads them: gunzipped when the raw field is null."""
    attempt = status["attemptStatus"]
    if attempt["taskRoleStatuses"] is not None:
        return attempt["taskRoleStatuses"]
    return json.loads(gzip.decompress(base64.b64decode(attempt["taskRoleStatusesCompressed"])))


async def test_openpai_lists_and_watches(pai: Api) -> None:
    listed = (await pai.get(path_of(pai))).ok()
    assert listed["items"] == []
    seen: list[Json] = []
    version = listed["metadata"]["resourceVersion"]
    async with pai.watch(path_of(pai), resourceVersion=version, timeoutSeconds=31536000) as events:
        (await pai.post(path_of(pai), pai_framework("job", simulate={"run-seconds": "1"}))).ok()
        await in_state(pai, "job", "Completed")
        await until(lambda: events.of("job")[-1]["object"]["status"]["state"] == "Completed")
        (await pai.delete(path_of(pai, "job"))).ok()
        await until(lambda: events.of("job")[-1]["type"] == "DELETED", within=60)
        seen = events.of("job")
        assert not events.ended.is_set()
    assert seen[0]["type"] == "ADDED"
    states = [one["object"]["status"]["state"] for one in seen if "status" in one["object"]]
    assert states[0] == "AttemptCreationPending"
    assert states[-1] == "Completed"
    # Every object seen meanwhile can be read: the fields that clients index exist, null while they have no value.
    for status in (one["object"]["status"] for one in seen if "status" in one["object"]):
        assert {"startTime", "runTime", "completionTime", "retryPolicyStatus", "attemptStatus"} <= status.keys()
        for role in roles_of(status):
            for task in role["taskStatuses"]:
                assert {"completionStatus", "podUID", "podHostIP"} <= task["attemptStatus"].keys()
    last = seen[-1]["object"]
    assert last["metadata"]["annotations"]["requestGeneration"] == "1"


async def test_openpai_reads_all_that_it_shows_of_a_job(pai: Api, pods: SimulatedRuntime) -> None:
    (await pai.post(path_of(pai), pai_framework("job"))).ok()
    for number in range(2):

        async def both_run(number: int = number) -> None:
            status = (await pai.get(path_of(pai, "job"))).ok().get("status")
            assert status
            assert status["attemptStatus"]["id"] == number
            assert [task["state"] for task in roles_of(status)[0]["taskStatuses"]] == ["AttemptRunning"] * 2

        await eventually(both_run)
        for index in range(2):
            pods.fail(f"{pai.namespace}/job-taskrole-{index}", 137, message='said "no" & <left>')
    framework = await in_state(pai, "job", "Completed")
    status = framework["status"]
    assert status["runTime"] is not None
    assert status["completionTime"] is not None
    assert status["retryPolicyStatus"] == {"totalRetriedCount": 1, "accountableRetriedCount": 1, "retryDelaySec": None}
    attempt = status["attemptStatus"]
    assert attempt["id"] == 1
    completion = attempt["completionStatus"]
    assert completion["code"] == 137
    assert completion["phrase"] == "ContainerSigKillReceived"
    assert completion["type"] == {"name": "Failed", "attributes": ["Transient"]}
    trigger = completion["trigger"]
    assert re.fullmatch(r"FailedTaskCount [12] has reached MinFailedTaskCount 1 in the TaskRole", trigger["message"])
    assert trigger["taskRoleName"] == "taskrole"
    index = trigger["taskIndex"]
    assert index in (0, 1)
    # The text before is prose; JSON follows the mark.
    matched = json.loads(completion["diagnostics"].split("matched: ", 1)[1])
    assert matched["containers"][0]["name"] == "app"
    assert matched["containers"][0]["code"] == 137
    assert matched["containers"][0]["message"] == 'said "no" & <left>'
    assert "\\u0026 \\u003cleft\\u003e" in completion["diagnostics"]

    (role,) = roles_of(status)
    assert role["name"] == "taskrole"
    for number, task in enumerate(role["taskStatuses"]):
        assert task["index"] == number
        assert task["instanceUID"]
        assert task["state"] == "Completed"
        assert task["startTime"] <= task["runTime"] <= task["completionTime"]
        assert task["retryPolicyStatus"]["totalRetriedCount"] == 0
        assert task["attemptStatus"]["id"] == 0
        assert task["attemptStatus"]["podName"] == f"job-taskrole-{number}"
        assert task["attemptStatus"]["podUID"]
        assert task["attemptStatus"]["podNodeName"]
        assert task["attemptStatus"]["podHostIP"]
    assert role["taskStatuses"][index]["attemptStatus"]["completionStatus"]["code"] == 137


async def test_openpai_pods_are_as_its_runtime_needs_them(pai: Api) -> None:
    (await pai.post(path_of(pai), pai_framework("job"))).ok()
    framework = await in_state(pai, "job", "AttemptRunning")
    attempt = framework["status"]["attemptStatus"]
    await pods_named(pai, "job", "job-taskrole-0", "job-taskrole-1")
    # The labels that its views and Services select on.
    selector = "FC_FRAMEWORK_NAME=job,FC_TASKROLE_NAME=taskrole,FC_TASK_INDEX=1"
    (pod,) = (await pai.get(pai.path("pods"), labelSelector=selector)).ok()["items"]
    assert pod["metadata"]["name"].split("-") == ["job", "taskrole", "1"]
    assert pod["metadata"]["annotations"]["FC_TASK_INDEX"] == "1"
    assert pod["metadata"]["labels"].items() >= {"userName": "somebody", "type": "kube-launcher-task"}.items()
    assert "privileged" not in pod["spec"]
    for container in ("init", "app"):
        env = env_of(pod, container)
        assert env["FC_TASK_INDEX"] == "1"
        assert env["FC_FRAMEWORK_ATTEMPT_INSTANCE_UID"] == attempt["instanceUID"]
        assert env["FC_POD_UID"]["fieldRef"]["fieldPath"] == "metadata.uid"
    reference = env_of(pod)["PAI_CURRENT_TASK_ROLE_CURRENT_TASK_INDEX"]["fieldRef"]["fieldPath"]
    assert reference == "metadata.annotations['FC_TASK_INDEX']"
    assert env_of(pod)["PAI_TASK_INDEX"] == "$(FC_TASK_INDEX)"


async def test_openpai_patches_the_whole_spec_and_its_own_annotation(pai: Api) -> None:
    body = pai_framework("job", 1)
    (await pai.post(path_of(pai), body)).ok()
    before = await in_state(pai, "job", "AttemptRunning")
    # The database holds the request; the client resends all of it, with the next generation.
    again = pai_framework("job", 1, generation=2)
    patched = (await pai.patch(path_of(pai, "job"), again, MERGE_PATCH)).ok()
    assert patched["metadata"]["annotations"]["requestGeneration"] == "2"
    assert patched["metadata"]["generation"] == before["metadata"]["generation"]

    more = pai_framework("job", 3, generation=3)
    (await pai.patch(path_of(pai, "job"), {"spec": more["spec"], "metadata": more["metadata"]}, MERGE_PATCH)).ok()

    async def three_run() -> Json:
        now: Json = (await pai.get(path_of(pai, "job"))).ok()
        states = [task["state"] for task in roles_of(now["status"])[0]["taskStatuses"]]
        assert states == ["AttemptRunning"] * 3
        return now

    after = await eventually(three_run, within=60)
    first, second = (roles_of(one["status"])[0]["taskStatuses"][0] for one in (before, after))
    assert second["attemptStatus"]["podUID"] == first["attemptStatus"]["podUID"]
    annotations = after["metadata"]["annotations"]
    assert annotations == {**body["metadata"]["annotations"], "totalTaskNumber": "3", "requestGeneration": "3"}
    assert after["metadata"]["labels"] == body["metadata"]["labels"]


async def test_openpai_stops_a_job_by_merge_patch(pai: Api) -> None:
    (await pai.post(path_of(pai), pai_framework("job"))).ok()
    await in_state(pai, "job", "AttemptRunning")
    stop = {"metadata": {"annotations": {"requestGeneration": "2"}}, "spec": {"executionType": "Stop"}}
    (await pai.patch(path_of(pai, "job"), stop, MERGE_PATCH)).ok()
    framework = await in_state(pai, "job", "Completed")
    # Shown as stopped by these very codes.
    assert framework["status"]["attemptStatus"]["completionStatus"]["code"] == -210
    tasks = roles_of(framework["status"])[0]["taskStatuses"]
    assert [task["attemptStatus"]["completionStatus"]["code"] for task in tasks] == [-220, -220]
    assert framework["metadata"]["annotations"]["requestGeneration"] == "2"
    # Sending all of it once more changes nothing, and starts nothing.
    whole = pai_framework("job", generation=2)
    whole["spec"]["executionType"] = "Stop"
    (await pai.patch(path_of(pai, "job"), whole, MERGE_PATCH)).ok()
    assert (await in_state(pai, "job", "Completed"))["status"] == framework["status"]


async def test_openpai_gunzips_the_roles_of_a_large_job(pai: Api) -> None:
    body = pai_framework("job", 1800)
    body["spec"]["executionType"] = "Create"
    (await pai.post(path_of(pai), body)).ok()
    status = (await in_state(pai, "job", "AttemptCreationPending"))["status"]
    assert status["attemptStatus"]["taskRoleStatuses"] is None
    (role,) = roles_of(status)
    assert [task["index"] for task in role["taskStatuses"]] == list(range(1800))
    assert {task["state"] for task in role["taskStatuses"]} == {"AttemptCreationPending"}


async def test_openpai_deletes_in_the_foreground_and_creates_the_same_again(pai: Api) -> None:
    """The same name at once, as its database does with a job that disappeared: never two instances of a Task."""
    (await pai.post(path_of(pai), pai_framework("job", 1, simulate={"stop-seconds": "1"}))).ok()
    first = await in_state(pai, "job", "AttemptRunning")
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Foreground"}
    (await pai.delete(path_of(pai, "job"), options)).ok()

    async def created_again() -> Json:
        answer = await pai.post(path_of(pai), pai_framework("job", 1, generation=2))
        assert answer.code == 201, answer.body
        made: Json = answer.body
        return made

    await eventually(created_again, within=60)
    second = await in_state(pai, "job", "AttemptRunning")
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    pods = await pods_of(pai, "job")
    assert [pod["metadata"]["annotations"]["FC_FRAMEWORK_UID"] for pod in pods.values()] == [second["metadata"]["uid"]]


async def test_openpai_is_refused_nothing_within_the_documented_bounds(pai: Api) -> None:
    """A create that is refused with 422 marks its job as failed permanently."""
    body = pai_framework("a" * 63, 0)
    body["spec"]["retryPolicy"]["maxRetryCount"] = 2_147_483_647
    body["spec"]["description"] = None
    role = body["spec"]["taskRoles"][0]
    role["name"] = "r" * 63
    role["frameworkAttemptCompletionPolicy"] = {"minFailedTaskCount": 2_147_483_647, "minSucceededTaskCount": -1}
    role["task"]["podGracefulDeletionTimeoutSec"] = None
    role["task"]["retryPolicy"]["maxRetryCount"] = -2
    (await pai.post(path_of(pai), body)).ok()
    await in_state(pai, "a" * 63, "AttemptPreparing")
    (await pai.post(path_of(pai), {**body, "metadata": {"name": "bare"}, "spec": {"taskRoles": []}})).ok()
    await in_state(pai, "bare", "AttemptPreparing")
