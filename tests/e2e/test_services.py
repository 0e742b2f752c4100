"""Services on real nodes: a rollout behind an address under load, and drains that disruption budgets hold back."""

import json
from typing import Final

from frameworkcontroller.kube.resources import SERVICES
from tests.e2e.stage import PYTHON, WITHIN, Play, Track, play
from tests.e2e.test_examples import applied
from tests.e2e.test_nodes import RETRIED, anywhere
from tests.support.frameworks import Json
from tests.support.objects import V1BETA1_BUDGETS, read

LOAD: Final = """
import json, os, sys, threading, time, urllib.request

found, failed = {}, []

def ask():
    while not os.path.exists("/witness/.over"):
        try:
            with urllib.request.urlopen(sys.argv[1], timeout=20) as answer:
                text = answer.read().decode().strip()
                found[text] = found.get(text, 0) + 1
        except Exception as error:
            failed.append(f"{time.time()} {error!r}")
        time.sleep(0.05)

threads = [threading.Thread(target=ask) for _ in range(3)]
for one in threads:
    one.start()
for one in threads:
    one.join()
with open("/witness/load.json", "w") as file:
    json.dump([found, failed], file)
"""
"""Requests by three clients until they are told that it is over."""


def role_of(status: Json) -> Json:
    role: Json = status["attemptStatus"]["taskRoleStatuses"][0]
    return role


@play()
async def test_no_request_fails_while_web_servers_are_replaced(play: Play) -> None:
    """Through the address of the role's Service: kube-proxy chooses the Pod."""
    await applied(play, "web")
    await play.until("web", lambda status: role_of(status).get("readyTaskCount") == 4)
    address = (await read(play.client, SERVICES, "web-server", play.namespace))["spec"]["clusterIP"]
    script = f"line asks\npython3 -c '{LOAD}' http://{address}:8080/"
    await play.create("asks", play.role(script="", containers=[play.container(script, image=PYTHON)]))
    await play.until_said("asks", "asks")
    await play.frameworks.set("web", taskRoles__0__task__pod__spec__containers__0__env__0__value="2")
    await play.until(
        "web",
        lambda status: (
            (role_of(status).get("updatedTaskCount"), role_of(status).get("readyTaskCount")) == (4, 4)
            and all(task["attemptStatus"]["id"] == 1 for task in role_of(status)["taskStatuses"])
        ),
        within=2 * WITHIN,
    )
    play.say_over()
    await play.until_completed("asks")
    found, failed = json.loads((play.folder / "load.json").read_text())
    assert failed == []
    assert {text.split(" by ")[1] for text in found} == {f"web-server-{index}" for index in range(4)}
    assert {text.split(" by ")[0] for text in found} == {"1", "2"}
    assert sum(found.values()) > 100
    await play.frameworks.delete("web")
    await play.until_gone("web")


@play(Track.NODE)
async def test_a_budget_holds_a_drain_back(play: Play) -> None:
    node = play.nodes.names[-1]
    await play.takes_pods(node)
    # Another play may have the node's CPU, and Pods on the node.
    containers = [play.container("hold", resources={})]
    here = {"nodeSelector": {"kubernetes.io/hostname": node}}
    role = play.role("a", 2, script="", containers=containers, task=RETRIED, **anywhere(play), **here)
    await play.create("kept", {**role, "disruptionBudget": {"maxUnavailable": 0}})
    await play.until_said("kept", "holds", 2)
    before = await play.until("kept", lambda status: role_of(status).get("budgetedTaskCount") == 2)
    # Their successors may run elsewhere.
    await play.frameworks.set("kept", taskRoles__0__task__pod__spec__nodeSelector={})

    async def minimum() -> int:
        found: int = (await read(play.client, V1BETA1_BUDGETS, "kept-a", play.namespace))["spec"]["minAvailable"]
        return found

    drain = ["drain", node, "--ignore-daemonsets", "--force", "--delete-emptydir-data"]
    drain += ["--pod-selector=FC_FRAMEWORK_NAME=kept"]
    refusal = "Cannot evict pod as it would violate the pod's disruption budget"
    try:
        refused = await play.kubectl(*drain, "--timeout=10s")
        assert refused.code != 0
        assert refusal in refused.err
        assert await minimum() == 2
        status = await play.frameworks.status("kept")
        assert [task["instanceUID"] for task in role_of(status)["taskStatuses"]] == [
            task["instanceUID"] for task in role_of(before)["taskStatuses"]
        ]
        await play.frameworks.set("kept", taskRoles__0__disruptionBudget={"maxUnavailable": 1})
        done = await play.kubectl(*drain, f"--timeout={2 * WITHIN:.0f}s")
        assert done.code == 0, done.err
        # The second Pod was evicted once the first one's successor was ready elsewhere.
        assert refusal in done.err
        await play.until_running("kept", 2, attempts=[1, 1])
        assert await minimum() == 1
    finally:
        await play.kubectl.ok("uncordon", node)
    first, second = sorted(one.last for one in play.instances() if one.task_attempt == 0)
    successor = min(one.first for one in play.instances() if one.task_attempt == 1)
    assert first < successor < second
