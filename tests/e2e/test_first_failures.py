"""The Task that failed first, by the clocks of real kubelets."""

from typing import Any

from tests.e2e.stage import Play, play
from tests.support.failures import GLOO
from tests.support.frameworks import policy


@play()
async def test_the_first_failure_on_two_nodes(play: Play) -> None:
    """A Task fails, one on the other node follows within the second, and a third one is stopped."""
    first, other = play.nodes.names[:2]
    log = {"terminationMessagePolicy": "FallbackToLogsOnError"}

    def role(name: str, script: str, node: str) -> Any:
        made = play.role(
            name,
            script="",
            containers=[play.container(f"until_there .over; {script}", **log)],
            nodeSelector={"kubernetes.io/hostname": node},
            tolerations=[{"key": "plays", "operator": "Exists"}],
        )
        return {**made, "frameworkAttemptCompletionPolicy": policy(1)}

    await play.create(
        "failing",
        role("follower", f"echo '{GLOO}'; exit 1", other),
        role("cause", "echo 'ValueError: bad batch'; exit 7", first),
        role("stopped", "sleep 600", other),
    )
    await play.until_running("failing", 3)
    play.say_over()
    found = (await play.until_completed("failing"))["firstFailure"]
    assert (found["taskRoleName"], found["nodeName"], found["code"]) == ("cause", first, 7), found
    assert (found["containerName"], found["message"]) == ("main", "main exited with 7: ValueError: bad batch")
