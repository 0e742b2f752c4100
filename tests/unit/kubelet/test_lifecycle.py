"""One Pod's life: order, restarts, deadlines, endings, and the status that it shows."""

from typing import Any

from frameworkcontroller.local.kubelet.container import ContainerTime, RestartBackoff, Termination, Trouble
from frameworkcontroller.local.kubelet.lifecycle import PodFailure, PodLife, Prepare, Start, Stop
from frameworkcontroller.local.kubelet.podstatus import PodStatusView
from tests.support.pods import pod_manifest, record

WALL = 1_767_225_600.0


def at(seconds: float) -> ContainerTime:
    return ContainerTime(100.0 + seconds, WALL + seconds)


def ended(code: int, seconds: float = 0.0) -> Termination:
    return Termination(code, "Completed" if code == 0 else "Error", WALL + seconds, WALL)


def begin(manifest: dict[str, Any]) -> PodLife:
    """A life whose Pod is prepared."""
    life = PodLife(record(manifest), at(0))
    assert life.step(at(0)) == [Prepare()]
    assert life.step(at(0)) == []
    life.prepared("127.16.1.1")
    return life


def show(life: PodLife, seconds: float = 0.0) -> dict[str, Any]:
    return PodStatusView(life, "test").render(at(seconds))


def test_one_container_runs_and_succeeds() -> None:
    life = begin(pod_manifest())
    assert life.phase == "Pending"
    assert life.step(at(0)) == [Start("main", 0)]
    assert life.step(at(0)) == []
    life.started("main", at(1))
    assert life.phase == "Running"
    status = show(life, 1)
    assert status["containerStatuses"][0]["state"] == {"running": {"startedAt": "2026-01-01T00:00:01Z"}}
    assert status["podIP"] == "127.16.1.1"
    assert status["podIPs"] == [{"ip": "127.16.1.1"}]
    assert status["hostIP"] == "127.0.0.1"
    assert {c["type"]: c["status"] for c in status["conditions"]} == {
        "Initialized": "True",
        "Ready": "True",
        "ContainersReady": "True",
    }
    life.exited("main", ended(0, 5), at(5))
    assert life.step(at(5)) == []
    assert life.phase == "Succeeded"
    status = show(life, 5)
    assert status["containerStatuses"][0]["state"]["terminated"] == {
        "exitCode": 0,
        "reason": "Completed",
        "startedAt": "2026-01-01T00:00:00Z",
        "finishedAt": "2026-01-01T00:00:05Z",
        "containerID": f"test://{life.record.uid}/main/0",
    }
    assert next(c for c in status["conditions"] if c["type"] == "Ready")["reason"] == "PodCompleted"


def test_init_containers_run_one_after_another_before_the_main_ones() -> None:
    life = begin(pod_manifest({"name": "a"}, {"name": "b"}, inits=({"name": "i"}, {"name": "j"})))
    assert life.step(at(0)) == [Start("i", 0)]
    life.started("i", at(0))
    status = show(life)
    assert status["containerStatuses"][0]["state"]["waiting"]["reason"] == "PodInitializing"
    initialized = status["conditions"][0]
    assert (initialized["status"], initialized["message"]) == ("False", "containers with incomplete status: [i j]")
    life.exited("i", ended(0), at(1))
    assert life.step(at(1)) == [Start("j", 0)]
    life.exited("j", ended(0), at(2))
    assert life.step(at(2)) == [Start("a", 0), Start("b", 0)]
    life.started("a", at(2))
    assert life.phase == "Pending"
    life.started("b", at(2))
    assert life.phase == "Running"


def test_a_failed_init_container_fails_a_pod_that_never_restarts() -> None:
    life = begin(pod_manifest(inits=({"name": "i"},)))
    life.step(at(0))
    life.exited("i", ended(201), at(1))
    assert life.step(at(1)) == []
    assert life.phase == "Failed"
    status = show(life, 1)
    assert status["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 201
    assert status["containerStatuses"][0]["state"]["waiting"]["reason"] == "PodInitializing"


def test_a_failed_init_container_is_tried_again_otherwise() -> None:
    life = begin(pod_manifest(inits=({"name": "i"},), restartPolicy="OnFailure"))
    life.step(at(0))
    life.exited("i", ended(1), at(1))
    assert life.step(at(1)) == [Start("i", 1)]
    life.exited("i", ended(1, 2), at(2))
    assert life.step(at(2)) == []
    assert life.wake_at == at(12).tick
    assert show(life, 2)["initContainerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert life.step(at(12)) == [Start("i", 2)]


def test_restart_policies() -> None:
    for policy, code, restarted in [
        ("Never", 0, False),
        ("Never", 1, False),
        ("OnFailure", 0, False),
        ("OnFailure", 1, True),
        ("Always", 0, True),
        ("Always", 1, True),
    ]:
        life = begin(pod_manifest(restartPolicy=policy))
        life.step(at(0))
        life.started("main", at(0))
        life.exited("main", ended(code), at(1))
        assert bool(life.step(at(1))) is restarted, (policy, code)
        assert life.phase == ("Running" if restarted else "Failed" if code else "Succeeded")


def test_crash_loop_is_shown_with_the_last_state() -> None:
    life = begin(pod_manifest(restartPolicy="Always"))
    life.step(at(0))
    life.started("main", at(0))
    life.exited("main", ended(3, 1), at(1))
    assert life.step(at(1)) == [Start("main", 1)]
    life.started("main", at(1))
    running = show(life, 1)["containerStatuses"][0]
    assert (running["restartCount"], running["lastState"]["terminated"]["exitCode"]) == (1, 3)
    assert running["lastState"]["terminated"]["containerID"].endswith("/main/0")
    life.exited("main", ended(4, 2), at(2))
    life.step(at(2))
    status = show(life, 2)["containerStatuses"][0]
    assert status["state"]["waiting"] == {
        "reason": "CrashLoopBackOff",
        "message": f"back-off 10s restarting failed container=main pod=f-r-0_default({life.record.uid})",
    }
    assert status["lastState"]["terminated"]["exitCode"] == 4
    assert status["restartCount"] == 1
    assert status["ready"] is False
    assert life.phase == "Running"


def test_back_off_doubles_to_five_minutes_and_is_forgotten_after_a_long_run() -> None:
    backoff = RestartBackoff()
    now, waits = 0.0, []
    for _ in range(8):
        due = backoff.due(now)
        waits.append(due - now)
        now = due
        backoff.restarted(now)
    assert waits == [0, 10, 20, 40, 80, 160, 300, 300]
    assert backoff.due(now + 600) == now + 900
    assert backoff.due(now + 601) == now + 601
    backoff.restarted(now + 601)
    assert backoff.delay == 10


def test_deletion_stops_everything_within_the_grace_period_and_sidecars_last() -> None:
    life = begin(pod_manifest(inits=({"name": "side", "restartPolicy": "Always"},)))
    assert life.step(at(0)) == [Start("side", 0)]
    life.started("side", at(0))
    assert life.step(at(0)) == [Start("main", 0)]
    life.started("main", at(0))
    life.terminate(30, at(10))
    assert life.step(at(10)) == [Stop("main", 30)]
    assert life.step(at(11)) == []
    life.terminate(5, at(12))
    assert life.step(at(12)) == [Stop("main", 5)]
    life.terminate(30, at(13))
    assert life.step(at(13)) == []
    life.exited("main", ended(143, 14), at(14))
    assert life.step(at(14)) == [Stop("side", 3)]
    assert show(life, 14)["phase"] == "Running"
    life.exited("side", ended(143, 15), at(15))
    assert life.step(at(15)) == []
    assert life.dead
    assert show(life, 15)["phase"] == "Failed"


def test_a_kill_is_requested_again() -> None:
    life = begin(pod_manifest())
    life.step(at(0))
    life.started("main", at(0))
    life.terminate(5, at(0))
    assert life.step(at(0)) == [Stop("main", 5)]
    life.kill()
    assert life.step(at(9)) == [Stop("main", 0)]
    assert life.step(at(9)) == []


def test_a_sidecar_is_restarted_and_stopped_once_the_main_containers_are_done() -> None:
    life = begin(pod_manifest(inits=({"name": "side", "restartPolicy": "Always"},)))
    life.step(at(0))
    life.started("side", at(0))
    life.step(at(0))
    life.started("main", at(0))
    life.exited("side", ended(1), at(1))
    assert life.step(at(1)) == [Start("side", 1)]
    life.started("side", at(1))
    life.exited("main", ended(0), at(2))
    assert life.step(at(2)) == [Stop("side", 30)]
    assert life.phase == "Running"
    life.exited("side", ended(137), at(3))
    assert life.step(at(3)) == []
    assert life.phase == "Succeeded"


def test_deadline() -> None:
    life = begin(pod_manifest(activeDeadlineSeconds=20, terminationGracePeriodSeconds=7))
    life.step(at(0))
    life.started("main", at(0))
    life.step(at(1))
    assert life.wake_at == at(20).tick
    assert life.step(at(20)) == [Stop("main", 7)]
    assert life.phase == "Running"
    life.exited("main", ended(143, 21), at(21))
    life.step(at(21))
    status = show(life, 21)
    assert (status["phase"], status["reason"]) == ("Failed", "DeadlineExceeded")
    assert status["message"] == "Pod was active on the node longer than the specified deadline"


def test_a_failed_step_is_shown_and_tried_again() -> None:
    life = PodLife(record(pod_manifest(restartPolicy="Always")), at(0))
    life.step(at(0))
    life.unprepared(Trouble("FailedMount", 'configmap "c" not found'), at(0))
    assert life.step(at(1)) == []
    assert life.wake_at == at(2).tick
    assert show(life)["containerStatuses"][0]["state"]["waiting"] == {
        "reason": "ContainerCreating",
        "message": 'FailedMount: configmap "c" not found',
    }
    assert life.step(at(2)) == [Prepare()]
    life.prepared("127.16.1.1")
    assert life.step(at(2)) == [Start("main", 0)]
    life.refused("main", Trouble("CreateContainerConfigError", 'secret "s" not found'), at(2))
    assert life.step(at(3)) == []
    assert show(life)["containerStatuses"][0]["state"]["waiting"]["reason"] == "CreateContainerConfigError"
    assert life.dead
    assert life.step(at(4)) == [Start("main", 0)]
    life.started("main", at(4))
    life.exited("main", ended(1, 11), at(11))
    assert life.step(at(11)) == [Start("main", 1)]
    life.refused("main", Trouble("CreateContainerConfigError", 'secret "s" not found'), at(11))
    status = show(life, 11)["containerStatuses"][0]
    assert status["restartCount"] == 0
    assert status["lastState"]["terminated"]["exitCode"] == 1
    # Nothing has crashed since, so nothing is backed off from.
    assert life.step(at(13)) == [Start("main", 1)]


def test_a_pod_that_fails_as_a_whole_is_failed_only_once_it_is_dead() -> None:
    life = begin(pod_manifest(restartPolicy="Always"))
    life.step(at(0))
    life.started("main", at(0))
    life.fail(PodFailure("Evicted", "low on memory"), at(1))
    assert life.step(at(1)) == [Stop("main", 30)]
    status = show(life, 1)
    assert (status["phase"], status.get("reason")) == ("Running", None)
    life.exited("main", ended(137, 2), at(2))
    assert life.step(at(2)) == []
    status = show(life, 2)
    assert (status["phase"], status["reason"], status["message"]) == ("Failed", "Evicted", "low on memory")
    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137


def test_a_pod_deleted_before_anything_ran_stays_pending() -> None:
    life = PodLife(record(pod_manifest()), at(0))
    life.terminate(30, at(0))
    assert life.step(at(0)) == []
    assert life.dead
    assert life.phase == "Pending"


def test_a_start_in_progress_at_the_end_is_stopped_and_awaited() -> None:
    life = begin(pod_manifest())
    assert life.step(at(0)) == [Start("main", 0)]
    life.terminate(30, at(1))
    assert life.step(at(1)) == [Stop("main", 30)]
    assert not life.dead
    life.started("main", at(2))
    assert life.step(at(2)) == []
    life.exited("main", ended(143, 3), at(3))
    assert life.dead


def test_a_pod_that_an_earlier_kubelet_started_and_lost_has_failed() -> None:
    lost = record(
        pod_manifest(restartPolicy="Always"),
        status={
            "phase": "Running",
            "podIP": "127.16.1.9",
            "startTime": "2025-12-31T00:00:00Z",
            "containerStatuses": [{"name": "main", "state": {"running": {"startedAt": "2025-12-31T00:00:01Z"}}}],
        },
    )
    assert lost.ran
    life = PodLife.lost(lost, at(0), "the processes ended with the kubelet")
    assert life.step(at(0)) == []
    status = show(life)
    assert (status["phase"], status["reason"]) == ("Failed", "NodeLost")
    assert status["message"] == "the processes ended with the kubelet"
    assert status["startTime"] == "2025-12-31T00:00:00Z"
    terminated = status["containerStatuses"][0]["state"]["terminated"]
    assert (terminated["exitCode"], terminated["reason"]) == (137, "ContainerStatusUnknown")


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    life = begin(pod_manifest())
    view = PodStatusView(life, "test")

    def since(kind: str, seconds: float) -> tuple[str, str]:
        found = next(c for c in view.render(at(seconds))["conditions"] if c["type"] == kind)
        return found["status"], found["lastTransitionTime"]

    assert since("Ready", 1) == ("False", "2026-01-01T00:00:01Z")
    life.step(at(1))
    life.started("main", at(2))
    assert since("Ready", 2) == ("True", "2026-01-01T00:00:02Z")
    assert since("Ready", 9) == ("True", "2026-01-01T00:00:02Z")
    assert since("Initialized", 9) == ("True", "2026-01-01T00:00:01Z")


def test_words_once_said_are_taken_back_by_name() -> None:
    """A merge patch keeps fields that it does not name, so an outdated reason must be named and null."""
    life = begin(pod_manifest())
    view = PodStatusView(life, "test")
    assert view.render(at(0))["conditions"][1]["reason"] == "ContainersNotReady"
    life.step(at(0))
    life.started("main", at(0))
    ready = view.render(at(0))["conditions"][1]
    assert ready["reason"] is None
    assert ready["message"] is None
    life.override = ("Unknown", PodFailure("NodeLost", "away"))
    shown = view.render(at(0))
    assert (shown["phase"], shown["reason"], shown["message"]) == ("Unknown", "NodeLost", "away")
    life.override = None
    shown = view.render(at(0))
    assert (shown["phase"], shown["reason"], shown["message"]) == ("Running", None, None)


def test_a_restarted_container_is_not_ready_until_its_probe_succeeds_again() -> None:
    main = {"name": "main", "image": "i", "readinessProbe": {"tcpSocket": {"port": 80}}}
    life = begin(pod_manifest(main, restartPolicy="Always"))

    def ready() -> bool:
        (status,) = show(life)["containerStatuses"]
        return bool(status["ready"])

    life.step(at(0))
    life.started("main", at(0))
    assert not ready()
    life.probed("main", True)
    assert ready()
    life.exited("main", ended(1), at(1))
    assert not ready()
    assert life.step(at(1)) == [Start("main", 1)]
    life.started("main", at(1))
    assert not ready()
    life.probed("main", True)
    assert ready()
