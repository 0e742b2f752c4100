"""The controller is taken away while Tasks start and end."""

import asyncio
from typing import Any

import orjson

from frameworkcontroller.kube.client import MERGE_PATCH
from frameworkcontroller.kube.resources import PODS, Resource
from tests.e2e.recorder import uptime
from tests.e2e.stage import CONTROLLER, ENDED_PODS_KEPT, WITHIN, Play, Track, attempts_of, play
from tests.support.frameworks import codes, condition, tasks

Json = dict[str, Any]

STATEFULSETS = Resource("apps", "v1", "statefulsets", "StatefulSet")
RETRIED = {"retryPolicy": {"fancyRetryPolicy": True, "maxRetryCount": 0}}
UNTIL_OVER = "until [ -e /witness/.over ]; do sleep 1; done"


async def scale(play: Play, replicas: int) -> None:
    patch = orjson.dumps({"spec": {"replicas": replicas}})
    await play.client.patch(STATEFULSETS, CONTROLLER, patch, CONTROLLER, content_type=MERGE_PATCH)


async def kill_when_there_are(play: Play, pods: int) -> None:
    """Kill the controller once this number of Pods exist, and wait until it is ready again."""
    await play.recorder.until(lambda: len(play.recorder.pods(play.namespace)) >= pods, within=WITHIN)
    await play.restart_controller()


@play(Track.CONTROLLER)
async def test_sixty_pods_start_while_the_controller_is_killed(play: Play) -> None:
    """Each Task still has one Pod, in its first attempt."""
    await play.create("sixty", play.role(number=60, script=UNTIL_OVER))
    for known in (5, 30):
        await kill_when_there_are(play, known)
    await play.until_running("sixty", 60, within=4 * WITHIN)
    play.say_over()
    status = await play.until_completed("sixty", within=4 * WITHIN)
    assert codes(tasks(status)) == [0] * 60
    assert len(play.recorder.pods_seen[play.namespace]) == 60


@play(Track.CONTROLLER)
async def test_a_suspension_that_no_controller_sees_at_first(play: Play) -> None:
    """It is killed while it creates Pods, before all are recorded. Suspended is true when all have ended."""
    await play.create("blind", play.role(number=6, script=UNTIL_OVER, terminationGracePeriodSeconds=3))
    await play.recorder.until(lambda: len(play.recorder.pods(play.namespace)) >= 2, within=WITHIN)
    await play.kill_controller()
    # A new Pod starts at once, and its container does not back off.
    await play.client.delete(PODS, f"{CONTROLLER}-0", CONTROLLER, grace_period_seconds=0)
    await play.frameworks.set("blind", suspend=True)
    status = await play.until("blind", lambda status: condition(status, "Suspended").get("status") == "True")
    suspended = uptime()
    await play.frameworks.assert_nothing_left("blind")
    assert status["attemptStatus"]["id"] == 1
    assert all(one.last < suspended for one in play.instances())
    await play.frameworks.set("blind", suspend=False)
    await play.until_running("blind", 6)
    play.say_over()
    status = await play.until_completed("blind")
    assert codes(tasks(status)) == [0] * 6
    assert status["retryPolicyStatus"]["accountableRetriedCount"] == 0


@play(Track.CONTROLLER)
async def test_pods_are_collected_while_no_controller_runs(play: Play) -> None:
    """A Task whose Pod was garbage-collected before its end was recorded is retried, and never runs twice at once."""
    await play.create("collected", play.role(number=3, script=UNTIL_OVER, task=RETRIED))
    await play.until_running("collected", 3)
    await scale(play, 0)
    await play.recorder.until(lambda: not play.recorder.pods(CONTROLLER), within=WITHIN)
    try:
        play.say_over()
        await play.recorder.until(lambda: phases(play) == ["Succeeded"] * 3, within=WITHIN)
        # The collector deletes the oldest of those above its threshold: these are younger.
        await asyncio.gather(*(ended_pod(play, f"ended-{number}") for number in range(ENDED_PODS_KEPT)))
        await play.recorder.until(lambda: not phases(play), within=WITHIN)
    finally:
        await scale(play, 1)
    status = await play.until_completed("collected")
    assert codes(tasks(status)) == [0, 0, 0]
    assert attempts_of(status) == [1, 1, 1]


def phases(play: Play) -> list[str]:
    """The phases of the Pods of Frameworks."""
    pods = play.recorder.pods(play.namespace).values()
    return [pod["status"]["phase"] for pod in pods if "ownerReferences" in pod["metadata"]]


async def ended_pod(play: Play, name: str) -> None:
    """Create a Pod without owner that is never scheduled, and has succeeded."""
    spec = {"schedulerName": "none", "containers": [{"name": "main", "image": "none"}]}
    body = orjson.dumps({"metadata": {"name": name}, "spec": spec})
    await play.client.create(PODS, body, play.namespace)
    status = orjson.dumps({"status": {"phase": "Succeeded"}})
    await play.client.patch(PODS, name, status, play.namespace, content_type=MERGE_PATCH, subresource="status")
