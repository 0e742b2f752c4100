"""Changes by other clients to the objects of a running Framework."""

from typing import Any

import orjson

from frameworkcontroller.api import names
from frameworkcontroller.kube.client import MERGE_PATCH
from frameworkcontroller.kube.resources import CONFIGMAPS, PODS
from tests.e2e.stage import Play, attempts_of, play
from tests.support.frameworks import tasks

Json = dict[str, Any]

RETRIED = {"retryPolicy": {"fancyRetryPolicy": True, "maxRetryCount": 0}}


@play()
async def test_a_configmap_that_others_delete_ends_the_attempt_with_its_pods(play: Play) -> None:
    """In the background, as kubectl does: the next attempt begins when the last Pod has ended."""
    retried = {"fancyRetryPolicy": True, "maxRetryCount": 0}
    await play.create("deleted", play.saving(number=3, seconds=5), retryPolicy=retried)
    await play.until_said("deleted", "holds", 3)
    await play.until_running("deleted", 3)
    await play.client.delete(CONFIGMAPS, "deleted-attempt", play.namespace, propagation="Background")
    await play.until("deleted", lambda status: status["attemptStatus"]["id"] == 1)
    ended = [one for one in play.instances() if one.framework_attempt == 0]
    assert [bool(one.said("saved")) for one in ended] == [True] * 3
    await play.until_running("deleted", 3)


@play()
async def test_a_pod_that_loses_its_label_is_followed(play: Play) -> None:
    """While it runs, and while it ends: the next instance begins when it has."""
    script = "trap 'line asked; until_there .over; line saved; exit 0' TERM; hold"
    await play.create("unlabelled", play.saving(number=2, script=script, task=RETRIED))
    await play.until_said("unlabelled", "holds", 2)
    await play.until_running("unlabelled", 2)
    unlabel = orjson.dumps({"metadata": {"labels": {names.FRAMEWORK_NAME: None}}})
    await play.frameworks.delete_pod("unlabelled-a-0")
    for pod in ("unlabelled-a-0", "unlabelled-a-1"):
        await play.client.patch(PODS, pod, unlabel, play.namespace, content_type=MERGE_PATCH)
    play.say_over()
    await play.until_attempts("unlabelled", [1, 0])
    (first,) = [one for one in play.instances() if one.pod == "unlabelled-a-0" and one.task_attempt == 0]
    assert first.said("saved")
    await play.until_said("unlabelled", "holds", 3)
    await play.until_running("unlabelled", 2, attempts=[1, 0])
    await play.frameworks.set("unlabelled", executionType="Stop")
    status = await play.until_completed("unlabelled")
    assert (len(tasks(status)), attempts_of(status)) == (2, [1, 0])
    assert all(one.said("saved") for one in play.instances())
