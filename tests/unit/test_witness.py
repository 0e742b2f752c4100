"""The checks of the end-to-end suite can fail."""

from pathlib import Path

from tests.e2e.witness import Instance, Json, Stored, outlived, overlaps, read_instances


def instance(
    first: float, last: float, *, attempt: int = 0, uid: str = "", framework_attempt: int = 0, pod: str = "f-a-0"
) -> Instance:
    return Instance(
        namespace="n",
        framework="f",
        framework_uid="F",
        framework_attempt=framework_attempt,
        pod=pod,
        task_uid="T",
        task_attempt=attempt,
        uid=uid or f"{attempt}_{first}",
        first=first,
        last=last,
        words=((first, "begins"), (last, "runs")),
    )


def status(
    state: str = "AttemptRunning",
    task: str = "AttemptRunning",
    *,
    attempt: int = 0,
    framework_attempt: int = 0,
    uid: str = "T",
) -> Json:
    tasks = [{"instanceUID": uid, "state": task, "attemptStatus": {"id": attempt}}]
    return {"state": state, "attemptStatus": {"id": framework_attempt, "taskRoleStatuses": [{"taskStatuses": tasks}]}}


def test_instances_of_a_task_that_run_one_after_the_other_are_fine() -> None:
    assert overlaps([instance(1, 5), instance(5.5, 9, attempt=1)]) == []


def test_two_instances_of_a_task_are_found() -> None:
    (found,) = overlaps([instance(1, 5), instance(4.5, 9, attempt=1)])
    assert found.startswith("C1: two instances of a Task for 0.50 s")


def test_two_instances_that_are_far_apart_in_the_list_are_found() -> None:
    others = [instance(at, at + 1, pod=f"f-b-{at}") for at in range(2, 8)]
    (found,) = overlaps([instance(1, 20), *others, instance(9, 30, attempt=1)])
    assert found.startswith("C1: two instances of a Task for 11.00 s")


def test_two_attempts_of_a_framework_are_found() -> None:
    (found,) = overlaps([instance(1, 5), instance(4, 9, framework_attempt=1, pod="f-b-0")])
    assert found.startswith("C3: two attempts of a Framework for 1.00 s")


def test_tasks_of_one_attempt_may_run_at_once() -> None:
    assert overlaps([instance(1, 5), instance(1, 5, pod="f-a-1")]) == []


def test_pods_that_run_as_their_status_says_are_fine() -> None:
    history = [Stored(0.5, "F", status()), Stored(3, "F", status()), Stored(5.1, "F", status(task="AttemptCompleted"))]
    assert outlived([instance(1, 5)], history) == []


def test_an_instance_that_outlives_its_attempt_is_found() -> None:
    for late in (
        status(task="AttemptCompleted"),
        status(task="Completed"),
        status(attempt=1),
        status("AttemptCompleted"),
        status("Completed"),
        status(framework_attempt=1),
        status(uid="another"),
        None,
    ):
        (found,) = outlived([instance(1, 5)], [Stored(0.5, "F", status()), Stored(4, "F", late)])
        assert "1.00 s before the last line" in found, late


def test_a_status_that_is_read_late_proves_nothing() -> None:
    for early in (status(task="AttemptCompleted"), status("Completed"), status(uid="another")):
        assert outlived([instance(1, 5, attempt=1, framework_attempt=1)], [Stored(2, "F", early)]) == []


def test_other_frameworks_do_not_matter() -> None:
    assert outlived([instance(1, 5)], [Stored(4, "G", None)]) == []


def test_files_of_all_containers_of_a_pod_are_one_instance(tmp_path: Path) -> None:
    marks = "n f F 2 f-a-0 T 3 3_uid"
    (tmp_path / "3_uid.first").write_text(f"{marks}\n1.5 begins\n2.5 runs\n")
    (tmp_path / "3_uid.main").write_text(f"{marks}\n3.00 begins\n4.00 saved\n5.0")
    (tmp_path / "4_uid.main").write_text("n f F")
    (tmp_path / ".over").touch()
    (found,) = read_instances(tmp_path)
    assert (found.first, found.last, found.framework_attempt, found.task_attempt) == (1.5, 4.0, 2, 3)
    assert found.said("begins") == [1.5, 3.0]
