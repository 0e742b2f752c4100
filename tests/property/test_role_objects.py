"""Histories of a Framework whose role has a Service and a disruption budget, under rescale, evictions and crashes.

tests/support/roleobjectguarantees.py has the rules.
"""

from __future__ import annotations

from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from frameworkcontroller.api.status import State
from frameworkcontroller.machine.kernel.requests import Kind
from tests.support.frameworks import is_ready
from tests.support.history import NAME, History
from tests.support.roleobjectguarantees import ROLE_OBJECTS, role_objects
from tests.support.world import Fate, controller_of, is_deleting, name_of, uid_of

OBJECT: Final = f"{NAME}-a"
FATES: Final = [*((verb, fate) for verb in ("create", "write", "patch", "delete") for fate in list(Fate)[:2])]
OPERATIONS = st.lists(
    st.tuples(
        st.one_of(
            st.tuples(st.just("rescale"), st.integers(0, 4)),
            st.tuples(st.just("budget"), st.sampled_from([None, 0, 1, 2])),
            st.tuples(st.just("service"), st.sampled_from([None, 80, 81])),
            st.tuples(st.just("pods"), st.sampled_from(["Running", "ready", "unready", "end"])),
            st.tuples(st.sampled_from(["crash", "run", "lose", "evict", "restart", "lazy"]), st.integers(0, 3)),
            st.sampled_from(FATES),
        ),
        st.integers(0, 12),
    ),
    max_size=16,
)


class Addressed:
    """A history, and the objects of its role in it."""

    def __init__(self) -> None:
        self.history = History()
        self.history.create(
            {
                "taskRoles": [
                    {
                        "name": "a",
                        "taskNumber": 2,
                        "disruptionBudget": {"maxUnavailable": 1},
                        "task": {"retryPolicy": {"maxRetryCount": -2}},
                    }
                ],
                "retryPolicy": {"maxRetryCount": -2},
                "network": {"enableDNSHostnames": False, "services": [_service(80)]},
            }
        )

    def do(self, operation: Any) -> None:
        """One operation, if it can be done."""
        history, world = self.history, self.history.world
        match operation:
            case ("rescale", number):
                history.rescale("a", number)
            case ("budget", most):
                budget = None if most is None else {"maxUnavailable": most}
                history.edit(f"budget {most}", lambda spec: spec["taskRoles"][0].update(disruptionBudget=budget))
            case ("service", port):
                services = [] if port is None else [_service(port)]
                history.edit(f"service {port}", lambda spec: spec["network"].update(services=services))
            case ("pods", what):
                for number in range(len(history.pods())):
                    history.kubelet(number, what)
            case ("crash", _):
                history.crash(0)
            case ("run", number):
                history.kubelet(number, "Running")
                history.kubelet(number, "ready")
            case ("lose", number):
                kind = ROLE_OBJECTS[number % 2]
                if (found := world.objects[kind].get(OBJECT)) is not None and not is_deleting(found):
                    world.delete(kind, OBJECT)
            case ("evict", number):
                self.evict(number)
            case ("restart", _):
                history.wait(20)
            case ("lazy", number):
                history.breathe(lazy=bool(number % 2), actions=100)
            case (verb, fate):
                history.fail(verb, fate)

    def evict(self, number: int) -> None:
        """A drain evicts a ready Pod, if the budget permits it."""
        world = self.history.world
        ready = [pod for pod in self.history.pods() if is_ready(pod)]
        budget = world.objects[Kind.DISRUPTION_BUDGET].get(OBJECT)
        if ready and budget is not None and len(ready) > budget["spec"]["minAvailable"]:
            world.delete(Kind.POD, name_of(ready[number % len(ready)]))


def _service(port: int) -> dict[str, Any]:
    return {"taskRole": "a", "ports": [{"port": port}]}


@given(first=st.integers(0, 12), operations=OPERATIONS)
def test_objects_of_a_role_follow_spec_and_tasks(first: int, operations: list[tuple[Any, int]]) -> None:
    play(first, *operations)


def play(first: int, *operations: tuple[Any, int]) -> None:
    """Some steps, the operations with steps after each, and the end, when all Pods are ready."""
    addressed = Addressed()
    history, world = addressed.history, addressed.history.world
    history.follow(0, first)
    for operation, steps in operations:
        addressed.do(operation)
        history.follow(0, steps)
    for _ in range(4):
        history.settle()
        history.all_pods_run()
        history.wait(100)
    status, spec, framework = history.status, history.spec, history.framework
    assert status is not None
    assert spec is not None
    assert framework is not None
    wanted = role_objects(framework["spec"])
    assert set(status.role_objects) == wanted, f"O: recorded are {status.role_objects}, wanted {sorted(wanted)}"
    there = {f"{kind}/{name}" for kind in ROLE_OBJECTS for name in world.objects[kind]}
    if status.state is State.RUNNING or not spec.task_count:
        assert there == wanted
    else:
        assert there <= wanted
    for kind in ROLE_OBJECTS:
        for body in world.objects[kind].values():
            assert controller_of(body) == uid_of(framework)
    budget = world.objects[Kind.DISRUPTION_BUDGET].get(OBJECT)
    if budget is not None and status.state is State.RUNNING:
        ready = sum(is_ready(pod) for pod in history.pods())
        assert ready == spec.task_count
        assert budget["spec"]["minAvailable"] == max(0, spec.task_count - spec.budgets["a"])
    service = world.objects[Kind.SERVICE].get(OBJECT)
    if service is not None and status.state is State.RUNNING:
        assert service["spec"]["ports"][0]["port"] == spec.services[0].ports[0].port
    history.finish()
