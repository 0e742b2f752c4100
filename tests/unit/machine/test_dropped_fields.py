"""An API server whose CRD is older drops fields of a status: the machine acts on nothing that is not stored."""

from typing import Any

from frameworkcontroller.machine.kernel.protocol import StatusWritten
from frameworkcontroller.machine.kernel.requests import PatchStatus, Post
from frameworkcontroller.machine.lifereasons import LifeReason
from frameworkcontroller.machine.parts.dependencies.dependencies import DependencyReason
from frameworkcontroller.machine.statuswriter import PRUNED_RETRY_SEC
from tests.support.bench import role
from tests.support.oneframework import Driver, OneFramework

EVERY = {
    "accumulatedPastExecutionTimeSeconds",
    "executionStartTime",
    "podForceDeletionPolicy",
    "policy",
    "recentRetriedCount",
    "started",
}
"""The fields of a status that the CRD before them lacks, by name."""


def ordered() -> OneFramework:
    """A role ``w`` that waits for the Tasks of ``a``."""
    worker = {**role("w"), "dependsOn": [{"name": "a", "status": "Complete"}]}
    return OneFramework(role("a"), worker)


def condition(world: OneFramework, kind: str = "Stalled") -> Any:
    return next((one for one in world.status["conditions"] if one["type"] == kind), None)


def completion(world: OneFramework) -> Any:
    return world.status["attemptStatus"]["completionStatus"]


def created(driver: Driver) -> list[str]:
    return [request.name for request in driver.requests if isinstance(request, Post)]


def rest(driver: Driver) -> None:
    """Passes, until nothing is due before another attempt to store all fields."""
    for _ in range(100):
        done = driver.finish()
        if done.requeue_after is None or done.requeue_after >= PRUNED_RETRY_SEC:
            return
        driver.world.clock += done.requeue_after
    raise AssertionError("it does not come to rest")


def run_all(world: OneFramework, driver: Driver) -> None:
    rest(driver)
    for name in world.pods:
        world.run(name)
        driver.reconciler.on_pod_event(name)
    rest(driver)


def complete(world: OneFramework, driver: Driver, name: str, phase: str = "Succeeded") -> None:
    """The Pod ends, and the caches and the controller see it go."""
    last = world.run(name, phase)
    driver.reconciler.on_pod_event(name)
    rest(driver)
    world.objects.pop(name, None)
    world.pods.pop(name, None)
    driver.reconciler.on_pod_dropped(last, removed=True)
    driver.reconciler.on_pod_event(name)
    rest(driver)


def later(world: OneFramework, driver: Driver) -> None:
    world.clock += PRUNED_RETRY_SEC
    rest(driver)


def test_a_role_does_not_start_before_its_start_is_stored() -> None:
    world = ordered()
    world.drops = {"started"}
    driver = Driver(world)
    run_all(world, driver)
    complete(world, driver, "f-a-0")
    assert "started" not in world.status["attemptStatus"]["taskRoleStatuses"][1]
    assert created(driver) == ["f-attempt", "f-a-0"]
    stalled = condition(world)
    assert (stalled["status"], stalled["reason"]) == ("True", "FieldsDropped")
    assert "drops status.attemptStatus.taskRoleStatuses.started" in stalled["message"]

    # A successor reads the stored status, decides the same, and waits for the same.
    world.show()
    successor = Driver(world)
    rest(successor)
    assert created(successor) == []
    assert condition(world)["status"] == "True"
    for _ in range(3):
        later(world, successor)
    assert created(successor) == []
    assert [record.reason for record in successor.records()].count(LifeReason.FIELDS_DROPPED) <= 1

    world.drops = set()
    later(world, successor)
    assert created(successor) == ["f-w-0"]
    assert world.status["attemptStatus"]["taskRoleStatuses"][1]["started"] is True
    assert condition(world)["status"] == "False"
    reasons = [record.reason for record in successor.records()]
    assert reasons.count(DependencyReason.STARTED) == 1
    assert reasons.count(LifeReason.PROGRESSING) == 1


def test_the_condition_does_not_change_while_fields_are_dropped() -> None:
    world = ordered()
    world.drops = {"started"}
    driver = Driver(world)
    run_all(world, driver)
    complete(world, driver, "f-a-0")
    status = world.status
    driver.sent()
    driver.effects.clear()
    for number in range(1, 4):
        later(world, driver)
        assert world.status == status
        assert driver.sent() == ["PatchStatus f"]
        assert [effect.result for effect in driver.take(StatusWritten)] == ["pruned"], number


def test_no_pod_is_created_before_its_forced_deletion_is_stored() -> None:
    world = OneFramework(role("a", podForceDeletionPolicy="NodeUnreachable", podGracefulDeletionTimeoutSec=9))
    world.drops = {"podForceDeletionPolicy"}
    driver = Driver(world)
    rest(driver)
    assert created(driver) == []
    assert "podForceDeletionPolicy" in condition(world)["message"]
    world.drops = set()
    later(world, driver)
    assert created(driver) == ["f-attempt", "f-a-0"]
    assert condition(world)["status"] == "False"


def test_no_deadline_passes_before_its_start_is_stored() -> None:
    world = OneFramework(role("a"), activeDeadlineSeconds=20)
    world.drops = {"executionStartTime"}
    driver = Driver(world)
    run_all(world, driver)
    assert "executionStartTime" in condition(world)["message"]
    later(world, driver)
    assert completion(world) is None
    world.drops = set()
    later(world, driver)
    assert completion(world)["code"] == -250


def test_a_rule_that_ends_the_attempt_and_the_time_of_attempts() -> None:
    rule = {"action": "RestartFramework", "onCompletionCodes": {"operator": "NotIn", "values": [1]}}
    roles = role("a", podFailurePolicy={"rules": [rule]})
    retry = {"maxRetryCount": 5, "backoff": {"baseSeconds": 1}}
    world = OneFramework(roles, activeDeadlineSeconds=3600, retryPolicy=retry)
    driver = Driver(world)
    run_all(world, driver)
    world.drops = {"policy"}
    world.run("f-a-0", "Failed")
    driver.reconciler.on_pod_event("f-a-0")
    driver.sent()
    rest(driver)
    assert [sent for sent in driver.sent() if sent.startswith("Remove")] == []
    assert "status.attemptStatus.completionStatus.policy" in condition(world)["message"]
    world.drops = set()
    later(world, driver)
    assert "Remove f-attempt" in driver.sent()


def test_an_edit_meanwhile_is_decided_on_the_stored_status() -> None:
    world = ordered()
    world.drops = {"started"}
    driver = Driver(world)
    run_all(world, driver)
    complete(world, driver, "f-a-0")
    world.edit_and_show(role("a"), role("w"))
    rest(driver)
    assert created(driver)[-1] == "f-w-0"
    assert condition(world)["status"] == "False"


def test_a_framework_without_such_fields_notices_nothing() -> None:
    def life(drops: set[str]) -> list[object]:
        world = OneFramework(role("a", 2))
        world.drops = drops
        driver = Driver(world)
        run_all(world, driver)
        for name in ("f-a-0", "f-a-1"):
            complete(world, driver, name)
        assert not any(request.whole for request in driver.requests if isinstance(request, PatchStatus))
        return [world.status, [str(request) for request in driver.requests if not isinstance(request, PatchStatus)]]

    assert life(EVERY) == life(set())


def test_only_writes_that_bring_such_a_field_are_answered_in_full() -> None:
    world = OneFramework(role("a", 2), activeDeadlineSeconds=3600)
    driver = Driver(world)
    run_all(world, driver)
    writes = [request.whole for request in driver.requests if isinstance(request, PatchStatus)]
    assert writes.count(True) == 1
    assert writes.count(False) > 1
    driver.requests.clear()
    complete(world, driver, "f-a-0")
    assert not any(request.whole for request in driver.requests if isinstance(request, PatchStatus))


def test_a_spec_that_loses_a_field_at_the_same_generation_counts_no_more() -> None:
    world = OneFramework(role("a"), suspend=True)
    driver = Driver(world)
    rest(driver)
    # The API server drops the field when it reads the stored object.
    del world.body["spec"]["suspend"]
    world.annotate()
    world.show()
    driver.reconciler.resync(from_cache=False)
    rest(driver)
    assert created(driver) == []
    driver.reconciler.resync()
    rest(driver)
    assert created(driver) == ["f-attempt", "f-a-0"]
