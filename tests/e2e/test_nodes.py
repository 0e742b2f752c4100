"""Nodes that are drained, lost, and removed: the last one, by one play after the other."""

from typing import Any, Final

import orjson

from frameworkcontroller.kube.resources import PODS, Resource
from tests.e2e.stage import GRACE, NODE, WITHIN, Play, Track, attempts_of, play
from tests.support.eventually import eventually
from tests.support.frameworks import tasks
from tests.support.objects import read

Json = dict[str, Any]

PRIORITIES: Final = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)

RETRIED = {"retryPolicy": {"fancyRetryPolicy": True, "maxRetryCount": 0}}
SECONDS = {"spared": 60, "forced": 1200}
"""For which those that are slow to end save their state."""


def anywhere(play: Play) -> Json:
    """Pods go to the last node while it is there, and elsewhere while it is not."""
    preference = {
        "matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [play.nodes.names[-1]]}]
    }
    preferred = [{"weight": 100, "preference": preference}]
    return {
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}},
        "tolerations": [{"key": "plays", "operator": "Exists"}],
    }


async def begun(play: Play, name: str, number: int = 2, *, task: Json | None = None) -> None:
    """A Framework runs on the last node."""
    await play.takes_pods(play.nodes.names[-1])
    await play.create(name, play.saving(number=number, task={**RETRIED, **(task or {})}, **anywhere(play)))
    await play.until_said(name, "holds", number)
    await play.until_running(name, number)
    pods = play.recorder.pods(play.namespace)
    where = {pod["spec"]["nodeName"] for key, pod in pods.items() if key.startswith(f"{name}-")}
    assert where == {play.nodes.names[-1]}


@play(Track.NODE)
async def test_a_drain_moves_tasks(play: Play) -> None:
    node = play.nodes.names[-1]
    await begun(play, "drained")
    timeout = f"--timeout={2 * WITHIN:.0f}s"
    try:
        await play.kubectl.ok("drain", node, "--ignore-daemonsets", "--force", "--delete-emptydir-data", timeout)
        await play.until_running("drained", 2, attempts=[1, 1])
        assert all(one.said("saved") for one in play.instances() if one.task_attempt == 0)
        pods = play.recorder.pods(play.namespace).values()
        assert node not in {pod["spec"]["nodeName"] for pod in pods}
    finally:
        await play.kubectl.ok("uncordon", node)


@play(Track.NODE)
async def test_a_lost_node_comes_back(play: Play) -> None:
    """Its Pods are deleted and may run on: their Tasks wait. Once it is back they save their state, and are retried."""
    node = play.nodes.names[-1]
    await begun(play, "lost")
    play.nodes.kill_kubelet(node)
    try:
        await play.until("lost", lambda status: all(task["state"] == "AttemptDeleting" for task in tasks(status)))
        assert attempts_of(await play.frameworks.status("lost")) == [0, 0]
        gone = play.instances()
    finally:
        await play.bring_back(node)
    await play.until_attempts("lost", [1, 1])
    await play.until_running("lost", 2)
    first = [one for one in play.instances() if one.task_attempt == 0]
    assert all(one.said("saved") for one in first)
    # They continued to run unseen.
    assert all(
        one.last > before.last for one, before in zip(sorted(first, key=str), sorted(gone, key=str), strict=True)
    )


async def given_up(play: Play, name: str, task: Json) -> None:
    """A lost node's Pod is given up, though it may run on."""
    node = play.nodes.names[-1]
    play.excused.add(name)
    await begun(play, name, 1, task=task)
    play.nodes.kill_kubelet(node)
    try:
        await play.until_running(name, 1, attempts=[1])
        (pod,) = play.recorder.pods(play.namespace).values()
        assert pod["spec"]["nodeName"] != node
    finally:
        await play.bring_back(node)


@play(Track.NODE)
async def test_availability_is_preferred_if_asked_for(play: Play) -> None:
    """podGracefulDeletionTimeoutSec gives a lost node's Pods up, though they may run on."""
    await given_up(play, "available", {"podGracefulDeletionTimeoutSec": 5})


@play(Track.NODE)
async def test_a_lost_node_is_given_up_because_it_is_unreachable(play: Play) -> None:
    """As Kubernetes signals by its taint. Once the node is back, it ends the remaining containers."""
    task = {"podGracefulDeletionTimeoutSec": 5, "podForceDeletionPolicy": "NodeUnreachable"}
    await given_up(play, "unreachable", task)
    (first, *_) = play.instances()

    async def ended() -> None:
        # Longer than between two of its lines.
        (before, *_), last = play.instances(), max(one.last for one in play.instances())
        assert before.uid == first.uid
        assert last - before.last > 20

    await eventually(ended, within=WITHIN, every=1)


@play()
async def test_a_pod_that_is_slow_to_end_on_a_healthy_node(play: Play) -> None:
    """It saves its state under NodeUnreachable; under Always its Task continues before it could."""
    play.excused.add("forced")
    for name, policy in (("spared", "NodeUnreachable"), ("forced", "Always")):
        task = {**RETRIED, "podGracefulDeletionTimeoutSec": 5, "podForceDeletionPolicy": policy}
        # That which is forced could take longer than the play waits.
        await play.create(name, play.saving(seconds=SECONDS[name], task=task, terminationGracePeriodSeconds=3600))
    for name in ("spared", "forced"):
        await play.until_said(name, "holds")
        await play.until_running(name, 1)
        await play.client.delete(PODS, f"{name}-a-0", play.namespace)
    for name in ("forced", "spared"):
        await play.until_attempts(name, [1])
        await play.until_said(name, "holds", 2)
    first, second = play.instances("spared")
    (asked,), (saved,) = first.said("asked"), first.said("saved")
    assert saved - asked >= SECONDS["spared"]
    assert second.first > saved
    first, _ = play.instances("forced")
    assert not first.said("saved")


@play(Track.NODE)
async def test_a_machine_that_ended_is_removed(play: Play) -> None:
    """Its Tasks continue elsewhere as soon as its Node is deleted, without waiting for it to come back."""
    node = play.nodes.names[-1]
    await begun(play, "removed")
    play.nodes.kill_kubelet(node)
    play.nodes.kill_containers(node)
    try:
        await play.node_is(node, "Unknown")
        await play.client.delete(NODE, node)
        await play.until_running("removed", 2, attempts=[1, 1])
    finally:
        await play.bring_back(node)


@play(Track.NODE)
async def test_a_more_important_pod_takes_the_place(play: Play) -> None:
    """The scheduler preempts a Task, which saves its state and waits for a place."""
    node = play.nodes.names[-1]
    for name, value in (("less", -10), ("more", 10)):
        body = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": f"{play.namespace}-{name}"},
            "value": value,
        }
        await play.client.create(PRIORITIES, orjson.dumps(body))
    capacity = (await read(play.client, NODE, node))["status"]["allocatable"]["cpu"]

    await play.takes_pods(node)

    def role(name: str, script: str) -> Json:
        container = play.container(script, resources={"requests": {"cpu": capacity}})
        return play.role(
            script="",
            containers=[container],
            task=RETRIED,
            priorityClassName=f"{play.namespace}-{name}",
            nodeSelector={"kubernetes.io/hostname": node},
            tolerations=[{"key": "plays", "operator": "Exists"}],
            terminationGracePeriodSeconds=GRACE,
        )

    await play.create("less", role("less", "trap 'checkpoint 3 0' TERM; hold"))
    await play.until_said("less", "holds")
    await play.until_running("less", 1)
    await play.create("more", role("more", "sleep 1"))
    await play.until_completed("more")
    (first, *_) = play.instances("less")
    assert first.said("saved")
    await play.until_said("less", "holds", 2)
    await play.until_attempts("less", [1])
