"""The history on real nodes: the content of the archive once `kubectl delete` has returned."""

from typing import Any

import orjson
import yaml

from frameworkcontroller import __version__
from frameworkcontroller.kube.resources import PODS
from tests.e2e.recorder import uptime
from tests.e2e.stage import CONTROLLER, GRACE, MANIFESTS, WITHIN, Play, Track, attempts_of, play

Json = dict[str, Any]

ARCHIVE = "frameworkcontroller-archive"

ASK = """
import pathlib, sys, urllib.request
token = pathlib.Path("/var/run/secrets/frameworkcontroller-history/token").read_text()
request = urllib.request.Request(sys.argv[1], headers={"Authorization": "Bearer " + token})
print(urllib.request.urlopen(request, timeout=60).read().decode())
"""
"""Asks the archive as the controller, which may read Frameworks."""


async def start_archive(play: Play) -> str:
    """The shipped archive, in a Pod without the claim that no storage here would bind; its address.

    It serves plain HTTP, as it is asked by its Pod's address, which no certificate has. test_manifests.py has TLS.
    """
    folder = MANIFESTS / "components" / "archive"
    for file in ("serviceaccount.yaml", "rbac.yaml"):
        await play.stage.kubectl(CONTROLLER).ok("apply", "-f", str(folder / file))
    template = yaml.safe_load((folder / "statefulset.yaml").read_text())["spec"]["template"]
    spec = template["spec"]
    spec["volumes"] = [one for one in spec["volumes"] if one["name"] != "tls"] + [{"name": "data", "emptyDir": {}}]
    (container,) = spec["containers"]
    container["image"] = f"frameworkcontroller:{__version__}"
    container["args"] = [one for one in container["args"] if not one.startswith("--tls-")]
    container["volumeMounts"] = [one for one in container["volumeMounts"] if one["name"] != "tls"]
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if probe in container:
            container[probe]["httpGet"].pop("scheme")
    body = {"metadata": {"name": ARCHIVE, "labels": template["metadata"]["labels"]}, "spec": spec}
    await play.client.create(PODS, orjson.dumps(body), CONTROLLER)

    def ready() -> str:
        status = play.recorder.pods(CONTROLLER).get(ARCHIVE, {}).get("status") or {}
        conditions = {one["type"]: one["status"] for one in status.get("conditions") or ()}
        assert conditions.get("Ready") == "True", status
        address: str = status["podIP"]
        return address

    found: str = await play.recorder.until(ready, within=WITHIN)
    return f"http://{found}:10281"


async def until_controller_has(play: Play, volume: bool) -> None:
    """Wait until the one controller has, or no longer has, the token for the archive, and is ready."""

    def replaced() -> bool:
        pod = play.recorder.pods(CONTROLLER).get(f"{CONTROLLER}-0")
        assert pod is not None, "the controller has no Pod"
        names = [one["name"] for one in pod["spec"]["volumes"]]
        assert ("history-token" in names) == volume, names
        (container,) = pod["status"].get("containerStatuses") or [{"ready": False}]
        assert container["ready"], pod["status"]
        return "deletionTimestamp" not in pod["metadata"]

    await play.recorder.until(replaced, within=WITHIN)


@play(Track.CONTROLLER)
async def test_all_attempts_are_in_the_archive_when_a_framework_is_gone(play: Play) -> None:
    """It goes after its containers, though `kubectl delete` deletes in the background."""
    address = await start_archive(play)
    sink: Json = {"sink": "http", "url": f"{address}/v1/records", "cluster": "plays", "logs": {"keep": "All"}}
    sink["tokenFile"] = "/var/run/secrets/frameworkcontroller-history/token"
    await play.stage.install("overlays/single", "components/history", configuration=yaml.safe_dump({"history": sink}))
    try:
        await until_controller_has(play, True)
        begin = "echo words of attempt $FC_TASK_ATTEMPT_ID"
        end = "trap 'echo last words; checkpoint 3 0' TERM; hold"
        script = f"{begin}; mkdir /witness/.$FC_POD_NAME 2>/dev/null && exit 7; {end}"
        retried = {"retryPolicy": {"maxRetryCount": 1}}
        role = play.role(number=2, script=script, task=retried, terminationGracePeriodSeconds=GRACE)
        await play.create("kept", role)
        status = await play.until_running("kept", 2, attempts=[1, 1])
        await play.until_said("kept", "holds", 2)
        uid = play.recorder.frameworks(play.namespace)["kept"]["metadata"]["uid"]
        await play.kubectl.ok("delete", "framework", "kept")
        gone = uptime()
        await play.frameworks.assert_nothing_left("kept")
        assert all(one.last < gone for one in play.instances("kept"))

        async def ask(path: str) -> Json:
            said = await play.stage.kubectl(CONTROLLER).ok(
                "exec", f"{CONTROLLER}-0", "--", "python3", "-c", ASK, f"{address}/v1/frameworks/{uid}{path}"
            )
            found: Json = orjson.loads(said)
            return found

        found = await ask("")
        assert (found["namespace"], found["name"], found["code"]) == (play.namespace, "kept", -210)
        attempts = [(one["index"], one["attempt"], one["code"]) for one in (await ask("/attempts/0/tasks"))["items"]]
        assert sorted(attempts)[0::2] == [(0, 0, 7), (1, 0, 7)]
        assert {(index, attempt) for index, attempt, _ in attempts} == {(0, 0), (0, 1), (1, 0), (1, 1)}
        assert attempts_of(status) == [1, 1]
        # The logs of both attempts: of a Pod that had ended, and of one that was stopped while it ran.
        logs = (await ask("/logs"))["items"]
        assert sorted((one["index"], one["attempt"], one["why"]) for one in logs) == [
            (index, attempt, "") for index in range(2) for attempt in range(2)
        ]
        for one in logs:
            text = (await ask(f"/logs/{one['id']}"))["text"]
            assert f"words of attempt {one['attempt']}" in text
            assert ("last words" in text) == (one["attempt"] == 1), text
    finally:
        # A controller without a history removes the finalizers that are left.
        await play.stage.install("overlays/single")
        await until_controller_has(play, False)
        await play.client.delete(PODS, ARCHIVE, CONTROLLER, grace_period_seconds=0)
