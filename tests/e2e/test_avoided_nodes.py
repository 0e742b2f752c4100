"""A Task that fails on one node runs on another; with kube-scheduler, which obeys the affinity of its Pods."""

from typing import Any

from frameworkcontroller.api import names
from tests.e2e.stage import WITHIN, Play, play
from tests.support.frameworks import policy, tasks

Json = dict[str, Any]


def avoiding(**avoid: Any) -> Json:
    return {"retryPolicy": {"maxRetryCount": 5, "avoidNodes": avoid}}


def nodes_of(play: Play, name: str) -> list[str]:
    """The nodes of the Task's Pods that had one, in the order of its attempts."""
    pods = [pod for pod in play.recorder.pods_seen[play.namespace].values() if pod["spec"].get("nodeName")]
    pods = [pod for pod in pods if pod["metadata"]["annotations"][names.FRAMEWORK_NAME] == name]
    pods.sort(key=lambda pod: int(pod["metadata"]["annotations"][names.TASK_ATTEMPT_ID]))
    return [pod["spec"]["nodeName"] for pod in pods]


@play()
async def test_a_task_that_fails_runs_on_another_node(play: Play) -> None:
    """Two nodes take its Pods. After both have failed, it waits for a while, and runs on the first one again."""
    script = '[ "$FC_TASK_ATTEMPT_ID" -ge 2 ] || exit 1'
    # Another play may have a node full: only the affinity is to decide.
    containers = [play.container(script, resources={})]
    task = avoiding(relaxAfterSeconds=10)
    role = play.role(script="", containers=containers, task=task, frameworkAttemptCompletionPolicy=policy(1, 1))
    await play.create("avoids", role)
    status = await play.until_completed("avoids", within=2 * WITHIN)
    assert status["attemptStatus"]["completionStatus"]["code"] == 0
    first, second, third = nodes_of(play, "avoids")
    assert first != second
    assert third == first
    (task,) = tasks(status)
    retry = task["retryPolicyStatus"]
    # Two failures, and the Pod that fitted nowhere, which is no retry.
    assert (retry["totalRetriedCount"], retry["accountableRetriedCount"]) == (3, 2)
    assert [one["name"] for one in task["avoidedNodes"]] == [second]


@play()
async def test_the_terms_of_a_template_are_restricted(play: Play) -> None:
    """Each of its terms: with one left as it was, the Pod could run on the same node again."""
    nodes = play.nodes.names[:-1]
    terms = [
        {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]} for node in nodes
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    script = '[ "$FC_TASK_ATTEMPT_ID" -ge 1 ] || exit 1'
    spec: Json = {"affinity": {"nodeAffinity": required}, "frameworkAttemptCompletionPolicy": policy(1, 1)}
    containers = [play.container(script, resources={})]
    await play.create("terms", play.role(script="", containers=containers, task=avoiding(), **spec))
    status = await play.until_completed("terms", within=2 * WITHIN)
    assert status["attemptStatus"]["completionStatus"]["code"] == 0
    first, second = nodes_of(play, "terms")
    assert {first, second} == set(nodes)
