"""The shipped images and manifests, as they are installed."""

import re

from tests.e2e.stage import CONTROLLER, Play, play


@play()
async def test_the_controller_comes_up_by_its_probes(play: Play) -> None:
    pods = await play.controllers()
    (pod,) = pods.values()
    (container,) = pod["status"]["containerStatuses"]
    assert container["restartCount"] == 0
    failed = [
        event["message"]
        for event in play.recorder.events(CONTROLLER).values()
        # It may be asked before it serves, and a slow machine may answer late.
        if event["reason"] == "Unhealthy" and re.match("(?!Readiness).*statuscode", event["message"])
    ]
    assert failed == []
    assert '"frameworks"' in await play.kubectl.ok("get", "--raw", "/apis/frameworkcontroller.microsoft.com/v1")
