"""Reports of progress from Pods on real nodes, with the variables, the token and the CA that they get."""

from typing import Any

import yaml

from frameworkcontroller.api import names
from tests.e2e.stage import CONTROLLER, PYTHON, WITHIN, Play, Track, play
from tests.support.reportingprograms import SENDS

Json = dict[str, Any]

REPORTS = (
    SENDS
    + """
until = time.time() + 240
while send({"progressPercentage": 10, "metrics": [{"name": "current_step", "value": "1"}]}) != 200:
    assert time.time() < until
    time.sleep(2)
url = os.environ["KUBEFLOW_TRAINER_SERVER_URL"]
account = open("/var/run/secrets/kubernetes.io/serviceaccount/token").read().strip()
answers = [
    send({"step": 2}, token=account),
    send({"step": 2}, url=url.replace("/attempts/0", "/attempts/1")),
    send({"step": 2}, url=url.replace("/frameworks/", "/frameworks/x")),
    send({"step": "x"}),
]
print("answers", answers, flush=True)
time.sleep(6)
print("checkpoint", send({"step": 3, "checkpoint": True}), flush=True)
time.sleep(1000)
"""
)

HANGS = (
    SENDS
    + """
for step in range(4):
    while send({"step": step}) != 200:
        time.sleep(2)
    time.sleep(1)
if os.environ["FC_FRAMEWORK_ATTEMPT_ID"] == "0":
    print("waits for a peer that never comes", flush=True)
    time.sleep(1000)
print("trained", flush=True)
"""
)


async def until_controller_takes_reports(play: Play, reports: bool) -> None:
    """Wait until the one controller has, or no longer has, the port for reports, and is ready."""

    def replaced() -> bool:
        pod = play.recorder.pods(CONTROLLER).get(f"{CONTROLLER}-0")
        assert pod is not None, "the controller has no Pod"
        ports = [one["name"] for one in pod["spec"]["containers"][0]["ports"]]
        assert ("reports" in ports) == reports, ports
        (container,) = pod["status"].get("containerStatuses") or [{"ready": False}]
        assert container["ready"], pod["status"]
        return "deletionTimestamp" not in pod["metadata"]

    await play.recorder.until(replaced, within=WITHIN)


async def hangs(play: Play) -> None:
    """An attempt whose program waits forever is ended, and the next one succeeds."""
    container = {**play.container(""), "image": PYTHON, "command": ["python3", "-c", HANGS]}
    role = play.role(script="", containers=[container])
    play.keep_output(role["task"]["pod"]["spec"], container)
    progress = {"intervalSeconds": 1, "deadlineSeconds": 10}
    await play.create("hung", role, progress=progress, retryPolicy={"fancyRetryPolicy": True})
    await play.until("hung", lambda status: (status.get("progress") or {}).get("step") == 3)
    status = await play.until_completed("hung")
    assert status["attemptStatus"]["completionStatus"]["phrase"] == "Succeeded"
    assert (status["retryPolicyStatus"]["totalRetriedCount"], status["attemptStatus"]["id"]) == (1, 1)


@play(Track.CONTROLLER)
async def test_a_pod_reports_progress(play: Play) -> None:
    # By the name of its Pod, as no proxy makes the addresses of Services reachable here.
    url = f"https://{CONTROLLER}-0.{CONTROLLER}.{CONTROLLER}.svc:10281"
    settings: Json = {"progressReports": {"bindAddress": ":10281", "url": url}}
    await play.stage.install("overlays/single", "components/progress", configuration=yaml.safe_dump(settings))
    try:
        await until_controller_takes_reports(play, True)
        container = {**play.container(""), "image": PYTHON, "command": ["python3", "-c", REPORTS]}
        role = play.role(script="", containers=[container])
        play.keep_output(role["task"]["pod"]["spec"], container)
        await play.create("reporting", role, progress={"intervalSeconds": 1})
        await play.until("reporting", lambda status: (status.get("progress") or {}).get("lastCheckpointTime"))
        status = await play.until("reporting", lambda status: status["progress"].get("step") == 3)
        assert status["progress"]["percentage"] == 10
        assert "answers [401, 403, 403, 400]" in play.outputs()["reporting-a-0"]
        pod = play.recorder.pods(play.namespace)["reporting-a-0"]
        variables = {one["name"] for one in pod["spec"]["containers"][0]["env"]}
        assert {names.SERVER_URL, names.SERVER_CA_CERT, names.SERVER_TOKEN} <= variables
        await hangs(play)
    finally:
        await play.stage.install("overlays/single")
        await until_controller_takes_reports(play, False)
