"""How Tasks end with real containers."""

import datetime as dt
from typing import Any

import orjson

from frameworkcontroller.kube.client import MERGE_PATCH
from frameworkcontroller.kube.resources import PODS
from tests.e2e.stage import WITHIN, Play, play
from tests.support.frameworks import codes, policy, tasks

Json = dict[str, Any]

RETRIED = {"retryPolicy": {"fancyRetryPolicy": True, "maxRetryCount": 0}}
"""Transient failures are retried, others are not."""

EXITS = (0, 1, 2, 126, 127, 200, 201, 210, 255)
SIGNALS = {"SEGV": 139, "ABRT": 134, "KILL": 137, "TERM": 143}


def completion(status: Json, role: str = "a", index: int = 0) -> Json:
    found: Json = tasks(status, role)[index]["attemptStatus"]["completionStatus"]
    return found


@play()
async def test_exit_codes(play: Play) -> None:
    await play.create("exits", *(play.role(f"e{code}", script=f"sleep 1; exit {code}") for code in EXITS))
    status = await play.until_completed("exits")
    assert {code: codes(tasks(status, f"e{code}")) for code in EXITS} == {code: [code] for code in EXITS}


@play()
async def test_signals(play: Play) -> None:
    """Of a program, whose parent ends with 128 and the signal's number, as shells do."""
    # Kubernetes makes $$ of $$$$.
    roles = [play.role(name.lower(), script=f"sh -c 'kill -{name} $$$$'; exit $?") for name in SIGNALS]
    await play.create("signals", *roles)
    status = await play.until_completed("signals")
    assert {name: codes(tasks(status, name.lower())) for name in SIGNALS} == {
        name: [code] for name, code in SIGNALS.items()
    }


@play()
async def test_no_memory(play: Play) -> None:
    # The node's runtime sees this only between the start and the end of the container: its first process continues.
    script = "until_there .over; tail /dev/zero || sleep 10; exit 137"
    container = play.container(script, resources={"limits": {"memory": "16Mi"}})
    await play.create("memory", play.role(script="", containers=[container], task=RETRIED))
    await play.until_running("memory", 1)
    play.say_over()
    ended = completion(await play.until_completed("memory"))
    assert (ended["phrase"], ended["type"]["attributes"]) == ("ContainerDockerOOMKilled", ["Permanent"]), ended


@play()
async def test_commands_that_are_not_there(play: Play) -> None:
    missing = play.container("", command=["/no/such/program"])
    folder = play.container("", command=["/tmp"])
    await play.create("missing", play.role(script="", containers=[missing], task=RETRIED))
    await play.create("folder", play.role(script="", containers=[folder], task=RETRIED))
    for name in ("missing", "folder"):
        ended = completion(await play.until_completed(name))
        assert ended["type"]["attributes"] == ["Permanent"], ended


@play()
async def test_containers_wait_for_their_conditions(play: Play) -> None:
    """An image, a ConfigMap: Pods wait for as long as it takes; Stop ends them."""
    configured = {"name": "VALUE", "valueFrom": {"configMapKeyRef": {"name": "absent", "key": "absent"}}}
    wanted: dict[str, Json] = {
        "config": {"env": [configured]},
        "absent": {"image": "localhost/absent:1"},
        "never": {"image": "localhost/absent:1", "imagePullPolicy": "Never"},
        "invalid": {"image": "NOT/an:image:name"},
    }
    roles = [play.role(name, script="", containers=[play.container("", **what)]) for name, what in wanted.items()]
    await play.create("waits", *roles)

    def waiting() -> bool:
        reasons = {
            pod["metadata"]["labels"]["FC_TASKROLE_NAME"]: item["state"].get("waiting", {}).get("reason")
            for pod in play.recorder.pods(play.namespace).values()
            for item in pod["status"].get("containerStatuses", ())
        }
        assert reasons.get("config") == "CreateContainerConfigError", reasons
        assert reasons.get("absent") in ("ErrImagePull", "ImagePullBackOff"), reasons
        assert reasons.get("never") == "ErrImageNeverPull", reasons
        assert reasons.get("invalid") == "InvalidImageName", reasons
        return True

    await play.recorder.until(waiting, within=WITHIN)
    await play.until(
        "waits", lambda status: all(tasks(status, name)[0]["state"] == "AttemptPreparing" for name in wanted)
    )
    await play.frameworks.set("waits", executionType="Stop")
    status = await play.until_completed("waits")
    assert status["attemptStatus"]["completionStatus"]["code"] == -210


@play()
async def test_init_containers(play: Play) -> None:
    """They run one after the other before the containers; one that fails ends the Pod with its code."""
    inits = [play.container("line first", name="first"), play.container("line second", name="second")]
    await play.create("good", play.role(script="line third; sleep 1", initContainers=inits))
    await play.create(
        "bad", play.role(script="hold", initContainers=[play.container("exit 210", name="first")], task=RETRIED)
    )
    assert codes(tasks(await play.until_completed("good"))) == [0]
    (instance,) = play.instances("good")
    assert instance.said("first") < instance.said("second") < instance.said("third")
    assert codes(tasks(await play.until_completed("bad"))) == [210]


@play()
async def test_a_sidecar_decides_when_the_pod_ends_and_not_how(play: Play) -> None:
    """Kubernetes ends a Pod with its last container: one that continues holds the Task up."""
    containers = [
        play.container("sleep 1; exit 3"),
        play.container("until [ -e /witness/.over ]; do sleep 1; done", name="sidecar"),
    ]
    await play.create("sidecar", play.role(script="", containers=containers))

    def main_ended() -> bool:
        (pod,) = play.recorder.pods(play.namespace).values()
        ended = {item["name"]: item["state"] for item in pod["status"].get("containerStatuses", ())}
        return "terminated" in ended.get("main", ()) and "running" in ended["sidecar"]

    await play.recorder.until(lambda: play.recorder.pods(play.namespace) and main_ended(), within=WITHIN)
    await play.until_running("sidecar", 1)
    play.say_over()
    assert codes(tasks(await play.until_completed("sidecar"))) == [3]


@play()
async def test_a_task_that_is_stopped_saves_its_state(play: Play) -> None:
    await play.create("saves", play.saving(number=2))
    await play.until_said("saves", "holds", 2)
    await play.until_running("saves", 2)
    await play.frameworks.set("saves", executionType="Stop")
    status = await play.until_completed("saves")
    assert codes(tasks(status)) == [-220, -220]
    assert all(one.said("saved") for one in play.instances())


@play()
async def test_grace_ends(play: Play) -> None:
    """Who does not heed the signal is killed at the end of the grace period, and not before."""
    deaf = "trap 'line asked' TERM; hold"
    await play.create("deaf", play.role(script=deaf, terminationGracePeriodSeconds=15))
    await play.until_said("deaf", "holds")
    await play.until_running("deaf", 1)
    await play.frameworks.set("deaf", executionType="Stop")
    await play.until_completed("deaf")
    (instance,) = play.instances()
    # Lines come once a second, or later where many wait for a processor.
    assert instance.last - min(instance.said("asked")) > 5


@play()
async def test_a_deleted_pod_is_retried_when_it_has_ended(play: Play) -> None:
    """Five times, with an application that takes its time: no two of them at once."""
    await play.create("again", play.saving(task=RETRIED))
    for attempt in range(4):
        await play.until_said("again", "holds", attempt + 1)
        await play.until_running("again", 1, attempts=[attempt])
        await play.frameworks.delete_pod("again-a-0")
        await play.until_attempts("again", [attempt + 1])
        assert len([one for one in play.instances() if one.said("saved")]) == attempt + 1
    await play.until_said("again", "holds", 5)
    await play.until_running("again", 1, attempts=[4])
    await play.frameworks.delete("again")
    await play.until_gone("again")
    assert all(one.said("saved") for one in play.instances())


@play()
async def test_an_eviction_costs_no_retry(play: Play) -> None:
    """By the eviction API, as drains do. Kubernetes 1.20 sets no condition DisruptionTarget: the code is -101."""
    rules: dict[str, Json] = {
        "code": {"action": "Ignore", "onCompletionCodes": {"operator": "In", "values": [-101]}},
        "condition": {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
    }
    roles = [play.saving("fancy", task=RETRIED)]
    roles += [play.saving(name, task={"podFailurePolicy": {"rules": [rule]}}) for name, rule in rules.items()]
    await play.create("evicted", *roles)
    await play.until_said("evicted", "holds", 3)
    await play.until_running("evicted", 3)
    for name in ("fancy", *rules):
        pod = f"evicted-{name}-0"
        eviction = {
            "apiVersion": "policy/v1beta1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": play.namespace},
        }
        await play.client.create(PODS, orjson.dumps(eviction), play.namespace, name=pod, subresource="eviction")
    await play.until_attempts("evicted", [1, 1, 0])
    status = await play.until("evicted", lambda status: tasks(status, "condition")[0]["state"] == "Completed")
    assert codes(tasks(status, "condition")) == [-101]
    assert all(one.said("saved") for one in play.instances() if one.task_attempt == 0)
    await play.until_said("evicted", "holds", 5)
    status = await play.until_running("evicted", 2, attempts=[1, 1, 0])
    for name in ("fancy", "code"):
        retries = tasks(status, name)[0]["retryPolicyStatus"]
        assert (retries["totalRetriedCount"], retries["accountableRetriedCount"]) == (1, 0)


@play()
async def test_a_deadline_leaves_the_grace_period(play: Play) -> None:
    """A Pod that is over its activeDeadlineSeconds saves its state before the next instance begins."""
    task = {"retryPolicy": {"fancyRetryPolicy": False, "maxRetryCount": 1}}
    await play.create("deadline", play.saving(seconds=6, task=task, terminationGracePeriodSeconds=30))
    # A deadline counts from the time at which the kubelet first saw the Pod, and may pass before the container begins:
    # each Pod gets one that has passed once it runs.
    passed = orjson.dumps({"spec": {"activeDeadlineSeconds": 1}})
    for attempt in range(2):
        await play.until_said("deadline", "holds", attempt + 1)
        await play.until_running("deadline", 1, attempts=[attempt])
        await play.client.patch(PODS, "deadline-a-0", passed, play.namespace, content_type=MERGE_PATCH)
    ended = tasks(await play.until_completed("deadline", within=2 * WITHIN))
    assert codes(ended) == [-1004]
    instances = play.instances()
    assert [one.task_attempt for one in instances] == [0, 1]
    assert all(one.said("saved") for one in instances), [one.words for one in instances]


@play()
async def test_an_attempt_is_over_when_its_last_pod_is(play: Play) -> None:
    """One Task fails the attempt while the others save their state; then all are retried as one."""
    workers = play.saving("w", 3, seconds=4)
    script = "until_there .over-$FC_FRAMEWORK_ATTEMPT_ID; exit $((1 - FC_FRAMEWORK_ATTEMPT_ID))"
    fails = play.role("f", script=script, frameworkAttemptCompletionPolicy=policy(1, 1))
    await play.create("whole", workers, fails, retryPolicy={"fancyRetryPolicy": False, "maxRetryCount": 1})
    for attempt in range(2):
        await play.until_said("whole", "holds", 3 * (attempt + 1))
        status = await play.until_running("whole", 4)
        assert status["attemptStatus"]["id"] == attempt
        (play.folder / f".over-{attempt}").touch()
    status = await play.until_completed("whole")
    assert status["attemptStatus"]["completionStatus"]["code"] == 0
    assert status["retryPolicyStatus"]["totalRetriedCount"] == 1
    assert codes(tasks(status, "w")) == [-220] * 3
    assert len([one for one in play.instances() if one.said("saved")]) == 6


@play()
async def test_retries_in_a_row_are_held_back(play: Play) -> None:
    """Of a Pod that its node refuses, and of a container that ends at once: after three, the next waits for 10 s."""
    refused = play.container("", resources={"requests": {"cpu": "1000"}})
    roles = {
        "refused": play.role("refused", script="", containers=[refused], nodeName=play.nodes.names[0], task=RETRIED),
        "ends": play.role("ends", script="exit 200", task=RETRIED),
    }
    await play.create("row", *roles.values())
    await play.until("row", lambda status: all(tasks(status, name)[0]["attemptStatus"]["id"] >= 4 for name in roles))
    for name in roles:
        recorded = [
            tasks(stored.status, name)[0]["attemptStatus"]
            for stored in play.recorder.statuses[play.namespace]
            if stored.status is not None
        ]
        # By the controller's times, in whole seconds: when a status is read here depends on how busy the machine is.
        ended = {one["id"]: one["completionTime"] for one in recorded if one.get("completionTime")}
        began = {one["id"]: one["startTime"] for one in recorded}
        waited = dt.datetime.fromisoformat(began[4]) - dt.datetime.fromisoformat(ended[3])
        assert waited > dt.timedelta(seconds=8), (name, began, ended)
