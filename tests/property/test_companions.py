"""Histories of one Framework with host names, whose Service others delete, take the name of, or change.

By the rules of tests/support/guarantees.py: no attempt begins before there was a Service, and foreign ones stay.
"""

from __future__ import annotations

from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from frameworkcontroller.api.status import State
from frameworkcontroller.machine.kernel.requests import Kind
from tests.support.history import History
from tests.support.world import Fate, controller_of, uid_of

TAKE, FREE, DELETE, UNLABEL, EDIT = "take", "free", "delete", "unlabel", "edit"
SUSPEND, RESUME, CRASH, RESCALE, EXIT, COLLECT = "suspend", "resume", "crash", "rescale", "exit", "collect"
FATES: Final = [
    *((verb, fate) for verb in ("create", "write", "get") for fate in list(Fate)[:2]),
    ("create", Fate.FORBIDDEN),
    ("create", Fate.QUOTA),
    ("create", Fate.CLASH),
]
OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(
            [TAKE, FREE, DELETE, DELETE, UNLABEL, EDIT, SUSPEND, RESUME, CRASH, RESCALE, EXIT, COLLECT, *FATES]
        ),
        st.integers(0, 12),
    ),
    max_size=14,
)
NAME: Final = "train"


class Networked:
    """A history, and the Service in it."""

    def __init__(self) -> None:
        self.history = History()
        self.history.create({"taskRoles": [{"name": "a", "taskNumber": 2}], "network": {"subdomain": NAME}})

    @property
    def service(self) -> dict[str, Any] | None:
        """The live Service."""
        return self.history.world.objects[Kind.SERVICE].get(NAME)

    @property
    def is_ours(self) -> bool:
        """Whether it is the Framework's."""
        framework = self.history.framework
        return self.service is not None and framework is not None and controller_of(self.service) == uid_of(framework)

    def do(self, operation: Any) -> None:
        """One operation, if it can be done."""
        history, world = self.history, self.history.world
        match operation:
            case "take" if self.service is None:
                world.create(Kind.SERVICE, {"metadata": {"name": NAME, "labels": {"FC_FRAMEWORK_NAME": "x"}}})
            case "free" if self.service is not None and not self.is_ours:
                world.delete(Kind.SERVICE, NAME)
            case "delete" if self.is_ours and self.service is not None and self.service["metadata"]["labels"]:
                # Without the label, no event would show it.
                world.delete(Kind.SERVICE, NAME)
            case "unlabel" if self.is_ours:
                world.edit(Kind.SERVICE, NAME, lambda body: body["metadata"].update(labels={}))
            case "edit" if self.is_ours:
                world.edit(Kind.SERVICE, NAME, lambda body: body["metadata"].update(annotations={"x": "y"}))
            case "suspend" | "resume":
                history.suspend(wanted=operation == SUSPEND)
            case "crash":
                history.crash(0)
            case "rescale":
                history.rescale("a", 3)
            case "exit":
                history.kubelet(0, "end", 1)
            case "collect":
                history.collect(3)
            case (verb, fate):
                history.fail(verb, fate)


@given(first=st.integers(0, 12), operations=OPERATIONS)
def test_a_framework_has_its_service_under_all_acts_of_users(first: int, operations: list[tuple[Any, int]]) -> None:
    networked = Networked()
    history = networked.history
    history.follow(0, first)
    for operation, steps in operations:
        networked.do(operation)
        foreign = None if networked.service is None or networked.is_ours else networked.service["metadata"]
        version = None if foreign is None else foreign["resourceVersion"]
        history.follow(0, steps)
        if foreign is not None:
            assert networked.service is not None
            assert networked.service["metadata"]["resourceVersion"] == version, "a foreign Service was changed"
    networked.do(FREE)
    networked.do(RESUME)
    history.wait(100)
    history.wait(100)
    status = history.status
    assert status is not None
    if status.state not in (State.COMPLETED, State.ATTEMPT_COMPLETED) and status.attempt.completion_status is None:
        assert networked.is_ours
    history.finish()
