"""Order of roles, deadlines of Pods, and suspension, with real containers."""

from typing import Any

from tests.e2e.recorder import uptime
from tests.e2e.stage import GRACE, WITHIN, Play, play
from tests.e2e.witness import Instance
from tests.support.frameworks import codes, condition, policy, states, tasks

Json = dict[str, Any]

SAVES_UNTIL_OVER = "trap 'checkpoint 3 0' TERM; line holds; until_there .over"


@play()
async def test_an_initialiser_before_a_server_before_trainers(play: Play) -> None:
    """The server is ready by its probe, some time after it runs. The next attempt starts in order again."""
    probe = {
        "exec": {"command": ["sh", "-c", "[ -e /witness/.ready-$FC_FRAMEWORK_ATTEMPT_ID ]"]},
        "periodSeconds": 1,
        "timeoutSeconds": 60,
    }
    saves = "trap 'checkpoint 3 0' TERM; sleep 4; line ready; : >/witness/.ready-$FC_FRAMEWORK_ATTEMPT_ID; hold"
    serves = play.container(saves, readinessProbe=probe)
    server = {
        **play.role("server", script="", containers=[serves], terminationGracePeriodSeconds=GRACE),
        "dependsOn": [{"name": "init", "status": "Complete"}],
    }
    # Once both have begun: the first one that fails ends the attempt.
    trains = (
        "line trains; : >/witness/.trains-$FC_FRAMEWORK_ATTEMPT_ID-$FC_TASK_INDEX\n"
        "until_there .trains-$FC_FRAMEWORK_ATTEMPT_ID-$((1 - FC_TASK_INDEX)); exit $((1 - FC_FRAMEWORK_ATTEMPT_ID))"
    )
    trainer = {
        **play.role("trainer", 2, script=trains, frameworkAttemptCompletionPolicy=policy(1, 2)),
        "dependsOn": [{"name": "server", "status": "Ready"}],
    }
    init = play.role("init", 2, script="sleep $((2 + 2 * FC_TASK_INDEX)); line prepared")
    await play.create("order", init, server, trainer, retryPolicy={"maxRetryCount": 1})
    status = await play.until_completed("order", within=3 * WITHIN)
    assert (status["attemptStatus"]["id"], status["attemptStatus"]["completionStatus"]["code"]) == (1, 0)
    for attempt in (0, 1):
        of = {
            name: [one for one in play.instances() if (one.framework_attempt, role_of(one)) == (attempt, name)]
            for name in ("init", "server", "trainer")
        }
        assert [len(instances) for instances in of.values()] == [2, 1, 2]
        (serving,), (ready,) = of["server"], of["server"][0].said("ready")
        assert serving.first > max(at for one in of["init"] for at in one.said("prepared"))
        assert min(one.first for one in of["trainer"]) > ready
        assert serving.said("saved")


@play()
async def test_a_pod_that_does_not_run_in_time_is_given_up(play: Play) -> None:
    """For lack of its image, or of a node: its retry policy decides. A running one is not touched."""
    late: Json = {"preRunningDeadlineSeconds": 10, "retryPolicy": {"maxRetryCount": 1}}
    absent = play.container("", image="localhost/absent:1")
    await play.create(
        "late",
        play.role("image", script="", containers=[absent], task=late),
        play.role("node", script="", nodeSelector={"no": "such-node"}, task=late),
        play.role("runs", script="until_there .over", task={"preRunningDeadlineSeconds": 3600}),
    )
    await play.until("late", lambda status: tasks(status, "runs")[0]["state"] == "AttemptRunning")
    await play.frameworks.set("late", taskRoles__2__task__preRunningDeadlineSeconds=1)
    status = await play.until(
        "late", lambda status: all(tasks(status, name)[0]["state"] == "Completed" for name in ("image", "node"))
    )
    for name in ("image", "node"):
        (task,) = tasks(status, name)
        assert (codes([task]), task["attemptStatus"]["id"]) == ([-260], 1)
    await play.until_said("late", "runs")
    play.say_over()
    status = await play.until_completed("late")
    assert codes(tasks(status, "runs")) == [0]
    assert [role_of(one) for one in play.instances()] == ["runs"]
    pods = [pod["metadata"]["labels"]["FC_TASKROLE_NAME"] for pod in play.recorder.pods_seen[play.namespace].values()]
    assert sorted(pods) == ["image", "image", "node", "node", "runs"]


@play()
async def test_a_suspended_job_gives_everything_back_and_is_resumed(play: Play) -> None:
    """Twice in the middle of its run: while its workers run, and while a Pod of the next attempt waits for a node."""
    worker = play.saving("worker", 2, script=SAVES_UNTIL_OVER)
    done = play.role("done", script="sleep 1")
    await play.create("job", worker, done, activeDeadlineSeconds=3600)
    await play.until_said("job", "holds", 2)
    await play.until("job", lambda status: states(status) == ["AttemptRunning", "AttemptRunning", "Completed"])

    await play.frameworks.set("job", suspend=True)
    status = await play.until("job", is_suspended)
    suspended = uptime()
    await play.frameworks.assert_nothing_left("job")
    instances = play.instances()
    assert all(one.last < suspended for one in instances)
    assert [bool(one.said("saved")) for one in instances if role_of(one) == "worker"] == [True, True]
    assert (status["state"], status["attemptStatus"]["id"]) == ("AttemptCreationPending", 1)
    active = status["accumulatedPastExecutionTimeSeconds"]

    await play.frameworks.set("job", taskRoles__0__task__pod__spec__nodeSelector={"no": "such-node"})
    await play.frameworks.set("job", suspend=False)
    # Those that were completed run again.
    await play.until("job", lambda status: states(status) == ["AttemptPreparing", "AttemptPreparing", "Completed"])
    assert {one.framework_attempt for one in play.instances() if one.first > suspended} == {1}
    await play.frameworks.set("job", suspend=True)
    status = await play.until("job", is_suspended)
    await play.frameworks.assert_nothing_left("job")
    assert (status["state"], status["attemptStatus"]["id"]) == ("AttemptCreationPending", 2)
    assert status["accumulatedPastExecutionTimeSeconds"] >= active

    await play.frameworks.set("job", taskRoles__0__task__pod__spec__nodeSelector={})
    await play.frameworks.set("job", suspend=False)
    await play.until("job", lambda status: states(status) == ["AttemptRunning", "AttemptRunning", "Completed"])
    play.say_over()
    status = await play.until_completed("job")
    assert (codes(tasks(status, "worker")), codes(tasks(status, "done"))) == ([0, 0], [0])
    retries = status["retryPolicyStatus"]
    assert (retries["totalRetriedCount"], retries["accountableRetriedCount"]) == (2, 0)
    ran = [(one.framework_attempt, role_of(one)) for one in play.instances()]
    assert sorted(ran) == [(0, "done"), *[(0, "worker")] * 2, (1, "done"), (2, "done"), *[(2, "worker")] * 2]


def is_suspended(status: Json) -> bool:
    """Whether the status promises that nothing runs."""
    return condition(status, "Suspended").get("status") == "True"


def role_of(instance: Instance) -> str:
    """The TaskRole of an instance."""
    return instance.pod.rsplit("-", 2)[1]
