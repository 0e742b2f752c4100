"""The examples, as people apply them: every one whose images can be stood in for."""

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from frameworkcontroller.api.names import API_VERSION, KIND
from frameworkcontroller.kube.errors import NotFound
from frameworkcontroller.kube.resources import SERVICEACCOUNTS, SERVICES
from tests.e2e.stage import WITHIN, Play, play
from tests.integration.test_examples import RUNS
from tests.support.examples import find
from tests.support.frameworks import codes, condition, policy, tasks
from tests.support.objects import read

Json = dict[str, Any]

RETRIES = {"batchretried": {"worker": [0, 1, 0]}}
"""Where real containers do not do the same in each Task, as simulated ones do."""

IMAGES = ("busybox:1.37", "python:3.12-slim", "frameworkcontroller/frameworkbarrier")


async def applied(play: Play, name: str, image: str = "") -> None:
    """Apply an example with only the changes that its README asks for: an image of no registry must not be pulled.

    `image` replaces the images of its containers, whose output is kept.
    """
    documents = list(yaml.safe_load_all(find(name).read_text()))
    for document in documents:
        if document["kind"] != KIND:
            continue
        for role in document["spec"]["taskRoles"]:
            pod = role["task"]["pod"]["spec"]
            for container in (*pod.get("initContainers", ()), *pod["containers"]):
                if image and container in pod["containers"]:
                    container["image"] = image
                    play.keep_output(pod, container)
                else:
                    assert container["image"].startswith(IMAGES), container["image"]
                container["imagePullPolicy"] = "IfNotPresent"
    await play.kubectl.ok("apply", "--validate=false", "-f", "-", stdin=yaml.safe_dump_all(documents))


async def ends(play: Play, name: str) -> None:
    """It ends as the table of the simulated examples says."""
    await applied(play, name)
    # All of them begin at once.
    status = await play.until_completed(name, within=2 * WITHIN)
    run = RUNS[name]
    completion = status["attemptStatus"]["completionStatus"]
    assert completion["phrase"] == run.phrase
    assert {role: codes(tasks(status, role)) for role in run.codes} == run.codes
    for role, retries in (run.retries | RETRIES.get(name, {})).items():
        assert [task["retryPolicyStatus"]["totalRetriedCount"] for task in tasks(status, role)] == retries
    assert status["retryPolicyStatus"]["totalRetriedCount"] == run.framework_retries
    if run.trigger is not None:
        assert completion["trigger"]["message"] == run.trigger


@play()
async def test_batches_end_as_they_say(play: Play) -> None:
    await play.kubectl.ok("create", "role", "podreader", "--verb=get", "--resource=pods")
    account = f"--serviceaccount={play.namespace}:default"
    await play.kubectl.ok("create", "rolebinding", "podreader", "--role=podreader", account)
    # Those with a queue need one, and volumes: tests/e2e/test_queues.py plays others.
    await asyncio.gather(*(ends(play, name) for name in RUNS if find(name).parent.name != "kueue"))


async def gang(play: Play, name: str, *codes_of_success: int) -> None:
    """A Framework whose init containers wait at the barrier with the token of a service account, and which succeeds."""
    await applied(play, name)
    status = await play.until_completed(name, within=2 * WITHIN)
    assert condition(status, "Succeeded")["status"] == "True", status
    for role in status["attemptStatus"]["taskRoleStatuses"]:
        assert set(codes(role["taskStatuses"])) <= set(codes_of_success), role


@play()
async def test_twenty_tasks_meet_behind_the_barrier(play: Play) -> None:
    await gang(play, "frameworkbarrier", 0)


@play()
async def test_a_ring_sums_behind_the_barrier(play: Play) -> None:
    await gang(play, "allreduce", 0)


@play()
async def test_a_standalone_cluster_counts_primes(play: Play) -> None:
    await gang(play, "standalone", 0, -220)


@play()
async def test_elastic_training_reaches_its_end(play: Play) -> None:
    await applied(play, "elastic")
    try:
        status = await play.until_completed("elastic", within=2 * WITHIN)
        assert status["attemptStatus"]["completionStatus"]["phrase"] == "Succeeded"
    finally:
        uid = play.recorder.frameworks(play.namespace)["elastic"]["metadata"]["uid"]
        for left in Path("/tmp/elastic-checkpoints").glob(f"*{uid}*"):
            left.unlink()


@play()
async def test_services_are_served_and_replaced(play: Play) -> None:
    """Asked from a Pod, one by the address of its Service, and one by the addresses of its Pods: nodes have no DNS."""
    await applied(play, "service")
    await applied(play, "servicestateful")
    status = await play.until_running("servicestateful", 3)
    await play.until_running("service", 3)
    address = (await read(play.client, SERVICES, "service", play.namespace))["spec"]["clusterIP"]
    members = [task["attemptStatus"]["podIP"] for task in tasks(status, "server")]
    awaited = [
        (f"$(wget -q -O - http://{member}:8080/)", f"I am servicestateful-server-{index}, attempt 0")
        for index, member in enumerate(members)
    ]
    asks = "\n".join(f"until [ \"{said}\" = '{expected}' ]; do sleep 1; done" for said, expected in awaited)
    await play.create(
        "asks", play.role(script=f"until wget -q -O /dev/null http://{address}/; do sleep 1; done\n{asks}")
    )
    await play.until_completed("asks")
    await play.frameworks.delete_pod("service-server-1")
    await play.until("service", lambda status: tasks(status, "server")[1]["attemptStatus"]["id"] == 1)
    await play.until_running("service", 3)
    await play.frameworks.set("service", executionType="Stop")
    status = await play.until_completed("service")
    assert status["attemptStatus"]["completionStatus"]["phrase"] == "StopFrameworkRequested"
    await play.frameworks.delete("servicestateful")
    await play.until_gone("servicestateful")


@play()
async def test_a_framework_waits_for_prepared_objects(play: Play) -> None:
    name = "prestart"
    await applied(play, name)
    await play.until(name, lambda status: status["state"] == "AttemptCreationPending")
    uid = (await play.frameworks.get(name))["metadata"]["uid"]
    owner = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "ownerReferences": [owner]}}
    await play.client.create(SERVICEACCOUNTS, orjson.dumps(account), play.namespace)
    await play.has_token(name)
    await play.frameworks.set(name, executionType="Start")
    assert codes(tasks(await play.until_completed(name), "worker")) == [0]
    await play.frameworks.delete(name)
    await play.until_gone(name)
    with pytest.raises(NotFound):
        await play.client.get(SERVICEACCOUNTS, name, play.namespace)


@play()
async def test_a_stopped_framework_stays_to_be_archived(play: Play) -> None:
    await applied(play, "poststop")
    await play.until_running("poststop", 2)
    await play.frameworks.set("poststop", executionType="Stop")
    status = await play.until_completed("poststop")
    assert status["attemptStatus"]["completionStatus"]["code"] == -210
    assert codes(tasks(status, "worker")) == [-220, -220]


@play()
async def test_a_rescale_while_tasks_still_leave(play: Play) -> None:
    """The steps of examples/rescale, with containers: leaving ones take longer than the next one to run."""
    script = "trap 'line asked; until_there .over; line saved; exit 0' TERM; hold"
    await play.create("rescale", play.saving(number=4, script=script, frameworkAttemptCompletionPolicy=policy(4, 1)))
    before = tasks(await play.until_running("rescale", 4))
    await play.until_said("rescale", "holds", 4)
    await play.frameworks.set("rescale", taskRoles__0__taskNumber=2)
    await play.until_said("rescale", "asked", 2)
    await play.frameworks.set("rescale", taskRoles__0__taskNumber=5)
    status = await play.until(
        "rescale", lambda status: tasks(status)[4:] and tasks(status)[4]["state"] == "AttemptRunning"
    )
    assert [task["deletionPending"] for task in tasks(status)] == [False, False, True, True, False]
    assert codes(tasks(status))[2:4] == [-230, -230]
    play.say_over()
    after = tasks(await play.until_running("rescale", 5))
    await play.until_said("rescale", "holds", 7)
    same = [task["instanceUID"] == after[index]["instanceUID"] for index, task in enumerate(before)]
    assert same == [True, True, False, False]
    assert len([one for one in play.instances() if one.said("saved")]) == 2
    await play.frameworks.delete("rescale")
    await play.until_gone("rescale")
    assert len([one for one in play.instances() if one.said("saved")]) == 7
